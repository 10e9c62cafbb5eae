"""Belief propagation on many rows of one structure of parity checks: codes, and their like.

All rows share bits and checks, and differ in the field of the bits. Each gets the answer of
:class:`~minfer.BeliefPropagation` with the flooding schedule, to rounding, whatever runs beside it
and in however many threads. Rows whose numbers a double cannot hold as they are needed are left to
the caller: ``unsafe``.
"""

from __future__ import annotations

import math
import threading
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.parallel import in_threads

if TYPE_CHECKING:
    from minfer.engine.wiring import Wired

#: Products of a bit's messages stay above this.
_LEAST_LOG10 = -290.0
#: Messages are held at the floor, which is no more than this: its rounding is lost in any belief.
_MOST_FLOOR = 1e-20


class ParityStructure(NamedTuple):
    """M checks over V bits, S messages between them, in the order of checks."""

    first: NDArray[np.int64]  # (M+1,) where a check's messages begin
    even: NDArray[np.float64]  # (M,) its weight of an even number of ones, if both sum to 1
    ptr: NDArray[np.int64]  # (V+1,)
    slot: NDArray[np.int64]  # (S,) messages bit by bit
    longest: int  # list of messages, of a check or a bit
    floor: float
    constant: float  # the log of what ``even`` was divided by, summed

    @classmethod
    def of(cls, mesh: Wired) -> ParityStructure | None:
        """Of a mesh that no run has used; None where it is of another kind."""
        from minfer.kernels.messages.automata import BACK

        w, ma = mesh.wiring, mesh.machines
        if mesh.log or mesh.reweighted or mesh.is_forest or mesh.python_factors:
            return None  # trees are exact as they are
        if len(w.rev) or len(ma.code) != len(w.fac) or not (ma.code == BACK).all():
            return None
        if not len(ma.code) or not ((w.card == 2).all() and (ma.card == 2).all()):
            return None
        first = ma.first.astype(np.int64)
        bit = np.searchsorted(w.off, ma.at, side="right") - 1
        ptr = np.concatenate([[0], np.cumsum(np.bincount(bit, minlength=len(w.card)))])
        most = int(np.diff(ptr).max())
        floor = 10.0 ** (_LEAST_LOG10 / (most + 1))
        if floor > _MOST_FLOOR:
            return None
        ends = ma.final[ma.fin[:, None] + np.arange(2)]
        flips = np.add.reduceat(1 - ma.lit.astype(np.int64), first[:-1]) + ma.start
        odd = flips % 2 == 1  # literals that are true at 0 turn even into odd
        ends[odd] = ends[odd][:, ::-1]
        total = ends.sum(axis=1)
        return cls(
            first, ends[:, 0] / total, ptr.astype(np.int64), np.argsort(bit, kind="stable"),
            max(most, int(np.diff(first).max())), floor, float(np.log(total).sum()),
        )  # fmt: skip


class ParityAnswers(NamedTuple):
    """Of n rows; what is ``unsafe`` is to be run singly."""

    probs: NDArray[np.float64]  # (n, V) of ones
    iterations: NDArray[np.int64]  # (n,)
    converged: NDArray[np.bool_]  # (n,)
    residual: NDArray[np.float64]  # (n,) the last one
    log_z: NDArray[np.float64]  # (n or 0,) but for ``constant``
    unsafe: NDArray[np.bool_]  # (n,)
    stop: NDArray[np.int64]  # (1,) not 0: all runs end where they are

    @property
    def stopped(self) -> bool:
        """By the time limit."""
        return bool(self.stop[0])


def run_parities(
    s: ParityStructure, field: NDArray[np.float64], tol: float, max_iters: int,
    time_limit: float | None, workers: int, log_z: bool,
) -> ParityAnswers:  # fmt: skip
    """Rows of log-weights (n, 2 V) of the bits' states."""
    from minfer.kernels.messages.parity_lanes import propagate_parities

    n = len(field)
    two = field.reshape(n, -1, 2)
    scale = np.logaddexp(two[:, :, 0], two[:, :, 1])
    with np.errstate(invalid="ignore"):
        prior = np.exp(two - scale[:, :, None])
        safe = np.asarray((prior > s.floor).all(axis=(1, 2)))
    found = ParityAnswers(
        np.full(two.shape[:2], np.nan), np.zeros(n, np.int64), np.zeros(n, bool),
        np.full(n, np.nan), np.full(n if log_z else 0, np.nan), ~safe, np.zeros(1, np.int64),
    )  # fmt: skip
    timer = None
    if time_limit is not None:
        timer = threading.Timer(time_limit, found.stop.fill, (1,))
        timer.daemon = True
        timer.start()
    how = float(tol), int(max_iters), s.floor

    def work(part: NDArray[np.int64]) -> None:
        propagate_parities(s, prior, part, how, found)

    rows = np.flatnonzero(safe)
    # a kernel cannot be interrupted, so it gets a fifth of a second's work or so
    most = max(int(4e6 / max(len(s.slot), 1)), 64)
    size = max(min(math.ceil(len(rows) / (4 * workers)) if workers > 1 else len(rows), most), 64)
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    try:
        in_threads(work, parts, workers, partial(found.stop.fill, 1))
    finally:
        if timer is not None:
            timer.cancel()
    if log_z:
        found.log_z[:] += scale.sum(axis=1) + s.constant
    return found
