"""Belief propagation on many instances of one structure at once: arrays in, arrays out.

All instances share the wiring of one binary pairwise model; their fields differ, perhaps also their
weights. Each gets the answer of :class:`~minfer.BeliefPropagation` with the sequential schedule
(the same sweeps, the same definition of converged; float64 differs from it by rounding), whatever
runs beside it and in however many threads. See :mod:`minfer.kernels.messages.odds_lanes`.

Which arithmetic an instance gets follows from its numbers alone:

* float64 where no variable's sum |w| is above 100. Beyond, it is left to the caller: ``unsafe``.
* float32, where asked for and where odds stay within e^42, for ``tol`` from 5e-7: below that its
  rounding would be taken for movement. What does not fit, or does not converge, is done in float64.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.parallel import in_threads
from minfer.errors import ModelError

if TYPE_CHECKING:
    from minfer.engine.wiring import Wired

#: The least tolerance that float32 serves.
LEAST_TOL_32 = 5e-7


# A sweep multiplies two sums of odds and of messages, and a message by W; so these reach e^340 in
# float64 and e^42 in float32. A field clamped at c leaves odds of e^(c - sum |w|) at least, and a
# message that is off its limit by e^|w| over that: e^-40 and e^-16, less than rounding.
_CLAMP_64, _LOAD_64 = 240.0, 100.0
_CLAMP_32, _LOAD_32, _HIGH_32, _WEIGHT_32, _CLAMPED_32 = 29.0, 50.0, 42.0, 40.0, 13.0


@dataclass(frozen=True, eq=False)
class LaneStructure:
    """A structure laid out for :func:`abreast`; made once, of a mesh that no run has used."""

    ptr: NDArray[np.int64]  # (V+1,) slots of a variable
    rev: NDArray[np.int64]  # (E,) the slot of the opposite direction
    pair: NDArray[np.int64]  # (E,) the pair factor of a slot
    slot: NDArray[np.int64]  # (P, 2)
    scope: NDArray[np.int64]  # (P, 2)
    core: NDArray[np.int64]  # variables that are swept, ascending
    order: NDArray[np.int64]  # variables of trees, collecting order
    up: NDArray[np.int64]  # of each of them, the slot towards the core; -1: a root
    forest: bool
    w: NDArray[np.float64]  # (P,)
    first: NDArray[np.float64]  # (E,) logs of the messages to begin with

    @classmethod
    def of(cls, mesh: Wired) -> LaneStructure:
        wiring = mesh.wiring
        if len(wiring.gslot) or mesh.reweighted or not (wiring.card == 2).all():
            raise ModelError(
                "instances run abreast only where all variables are binary and all factors over "
                "two or more of them are pairs without zeros: run this model one by one"
            )
        ptr, rev = wiring.ptr.astype(np.int64), wiring.rev.astype(np.int64)
        n, slots = len(ptr) - 1, len(rev)
        slot, scope = mesh.slot.astype(np.int64), mesh.pair_scope.astype(np.int64)
        pair = np.empty(slots, np.int64)
        pair[slot] = np.arange(len(slot))[:, None]
        asleep, order, whole = np.zeros(n, bool), np.zeros(0, np.int64), slots == 0
        if mesh.trees is not None:
            asleep, order, whole = mesh.trees.asleep, mesh.trees.order, mesh.trees.whole
        place = np.full(n, n)
        place[order] = np.arange(len(order))
        owner = np.repeat(np.arange(n), np.diff(ptr))
        towards = np.flatnonzero(place[owner[rev]] > place[owner])
        up = np.full(len(order), -1)
        up[place[owner[towards]]] = towards
        return cls(
            ptr, rev, pair, slot, scope, np.flatnonzero(~asleep), order, up, bool(whole),
            np.log(wiring.W[slot[:, 0]]), np.log(mesh.first),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Answers:
    """Of n instances; rows that are ``unsafe`` were not run and hold NaN."""

    probs: NDArray  # (n, V) of state 1, in the precision asked for; 0 and 1 where known
    iterations: NDArray[np.int64]  # (n,)
    converged: NDArray[np.bool_]  # (n,)
    residual: NDArray[np.float64]  # (n,) the last one
    unsafe: NDArray[np.bool_]  # (n,) numbers too large (or NaN): to be run one by one
    stopped: bool  # by the time limit: what has not converged may have been cut short
    log_z: NDArray[np.float64] | None  # (n,) relative to every zero state and to t00 of the tables
    pairs: NDArray[np.float64] | None  # (n, P, 4) beliefs of the pairs: 00, 01, 10, 11


@dataclass(frozen=True, eq=False)
class Absorbed:
    """What new weights of the pair factors mean for :func:`abreast`."""

    lean: NDArray[np.float64]  # (n, V) log-odds that the unary parts add up to
    w: NDArray[np.float64]  # (n, P)
    first: NDArray[np.float64]  # (n, E) logs of the messages to begin with
    constant: NDArray[np.float64]  # (n,) the sum of t00


def absorb(mesh: Wired, weights: list[NDArray[np.float64]]) -> Absorbed:
    """Split the pair factors of many instances into unary parts and conjunctions.

    ``weights``, one array (n, F, k) for each group of ``mesh.model.groups``: as the group's own
    ``weights``, in terms of its ``basis``.
    """
    from minfer.kernels.messages import odds_lanes as bp_lanes

    n, n_pairs = len(weights[0]) if weights else 0, len(mesh.slot)
    out = Absorbed(
        np.zeros((n, len(mesh.wiring.card))),
        np.empty((n, n_pairs)),
        np.empty((n, 2 * n_pairs)),
        np.zeros(n),
    )
    done = 0
    for g, values in zip(mesh.model.groups, weights, strict=True):
        here = slice(done, done + len(g))
        w = np.empty((n, len(g)))
        bp_lanes.unary_parts(
            mesh.pair_scope[here].astype(np.int64), mesh.slot[here].astype(np.int64),
            np.ascontiguousarray(values, dtype=np.float64), g.basis(), out.lean, w, out.first,
            out.constant,
        )  # fmt: skip
        out.w[:, here] = w
        done += len(g)
    return out


def abreast(
    structure: Wired | LaneStructure,
    log_odds: ArrayLike,
    w: ArrayLike | None = None,
    first: ArrayLike | None = None,
    *,
    tol: float = 1e-6,
    max_iters: int = 1000,
    damping: float = 0.0,
    dtype: type = np.float64,
    workers: int = 1,
    time_limit: float | None = None,
    log_z: bool = True,
    pairs: bool = False,
) -> Answers:
    """Run belief propagation on n instances of one structure.

    Parameters
    ----------
    structure : Mesh or LaneStructure
        All variables binary, all factors pairs.
    log_odds : float array (n, V)
        Fields with the unary parts of the pair tables absorbed; infinite where a variable is known.
        Whatever a known variable's own log-odds were, log Z counts them as 0.
    w : float array (n, P), optional
        Weights log psi11 psi00 / (psi01 psi10) of the pairs, where they are not the structure's.
    first : float array (n, E), optional
        Logs of the messages to begin with, in the order of slots; with new weights those of
        :func:`absorb`. Else the structure's, or 0 with new weights.
    tol, max_iters, damping
        As in :class:`~minfer.BeliefPropagation`.
    workers : int
        Threads; answers do not depend on them.
    time_limit : float, optional
        Seconds after which all runs end where they are.
    log_z, pairs : bool
        Whether to compute these.
    """
    lanes = structure if isinstance(structure, LaneStructure) else LaneStructure.of(structure)
    log_odds = np.ascontiguousarray(log_odds, dtype=np.float64)
    weights = np.ascontiguousarray(lanes.w[None] if w is None else w, dtype=np.float64)
    if first is None:
        first = lanes.first[None] if w is None else np.zeros((1, len(lanes.rev)))
    first = np.ascontiguousarray(first, dtype=np.float64)
    n = len(log_odds)
    for name, x, width in (
        ("log_odds", log_odds, len(lanes.ptr) - 1),
        ("w", weights, len(lanes.w)),
        ("first", first, len(lanes.rev)),
    ):
        if x.ndim != 2 or x.shape[1] != width or len(x) not in ((n,) if x is log_odds else (1, n)):
            raise ModelError(f"{name} must have shape ({n}, {width}), not {x.shape}")
    run = _Run(lanes, log_odds, weights, first, tol, max_iters, damping, workers, log_z, pairs)
    return run(np.dtype(dtype).type, time_limit)


class _Run:
    """The arrays of one call, and its instances sorted by the arithmetic they need."""

    def __init__(
        self, lanes: LaneStructure, log_odds: NDArray, w: NDArray, first: NDArray, tol: float,
        max_iters: int, damping: float, workers: int, log_z: bool, pairs: bool,
    ) -> None:  # fmt: skip
        from minfer.kernels.messages import odds_lanes as bp_lanes

        self.kernels, self.lanes = bp_lanes, lanes
        self.log_odds, self.w, self.first = log_odds, w, first
        self.tol, self.max_iters, self.damping = float(tol), int(max_iters), float(damping)
        self.workers = workers
        n = len(log_odds)
        self.iterations, self.converged = np.zeros(n, np.int64), np.zeros(n, bool)
        self.residual = np.full(n, np.nan)
        self.log_z = np.full(n if log_z or pairs else 0, np.nan)
        self.joint = np.full((n if pairs else 0, len(lanes.slot), 4), np.nan)
        self.wanted = log_z, pairs
        self.known = np.zeros(n, bool)
        self.stop = np.zeros(1, np.int64)

    def __call__(self, dtype: type, time_limit: float | None) -> Answers:
        n, n_variables = self.log_odds.shape
        field, high, load, widest = np.empty((4, n))
        if n:
            lanes = self.lanes
            self.kernels.reach(
                lanes.ptr, lanes.pair, self.log_odds, self.w, field, high, load, widest
            )
        self.known = field == np.inf
        safe = (load <= _LOAD_64) & ~np.isnan(field)
        single = np.zeros(n, bool)
        if dtype is np.float32 and self.tol >= LEAST_TOL_32:
            single = safe & (load <= _LOAD_32) & (widest <= _WEIGHT_32)
            single &= np.minimum(high, _CLAMP_32 + load) <= _HIGH_32
            single &= (field <= _CLAMP_32) | (load + widest <= _CLAMPED_32)
        probs: NDArray = np.empty((n, n_variables), dtype)
        probs[~safe] = np.nan
        timer = None
        if time_limit is not None:
            timer = threading.Timer(time_limit, self.stop.fill, (1,))
            timer.daemon = True
            timer.start()
        try:
            self._work(single, np.float32, _CLAMP_32, probs)
            rest = safe & ~single
            if not self.stop[0]:
                rest |= single & ~self.converged
            self._work(rest, np.float64, _CLAMP_64, probs)
        finally:
            if timer is not None:
                timer.cancel()
        some = np.flatnonzero(safe & self.known)
        if len(some):
            given = self.log_odds[some]
            probs[some] = np.where(np.isinf(given), given > 0, probs[some])
        with_z, with_pairs = self.wanted
        return Answers(
            probs, self.iterations, self.converged, self.residual, ~safe, bool(self.stop[0]),
            self.log_z if with_z else None, self.joint if with_pairs else None,
        )  # fmt: skip

    def _work(self, chosen: NDArray[np.bool_], dtype: type, clamp: float, probs: NDArray) -> None:
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return
        target = probs if probs.dtype == dtype else np.empty(probs.shape, dtype)
        # a kernel cannot be interrupted, so it gets a fifth of a second's work or so
        most = int(4e6 / max(len(self.lanes.rev), 1))
        share = -(-len(rows) // (4 * self.workers)) if self.workers > 1 else len(rows)
        size = max(min(share, most), 128)
        parts = [rows[i : i + size] for i in range(0, len(rows), size)]
        work = partial(self._kernel, clamp=clamp, probs=target)
        in_threads(work, parts, self.workers, partial(self.stop.fill, 1))
        if target is not probs:
            probs[rows] = target[rows]

    def _kernel(self, rows: NDArray[np.int64], clamp: float, probs: NDArray) -> None:
        x = self.lanes
        if x.forest:
            self.kernels.forests(
                x.ptr, x.rev, x.pair, x.slot, x.scope, x.core, x.order, x.up,
                rows, self.log_odds, self.w, self.first, clamp, probs, self.log_z, self.joint,
            )  # fmt: skip
            self.iterations[rows], self.converged[rows] = min(len(x.rev), 1), True
            self.residual[rows] = 0.0
            return
        floor = 0.02 * self.tol if self.damping == 0.0 else 0.0
        if probs.dtype == np.float32:
            floor = max(floor, float(np.finfo(np.float32).eps))
        self.kernels.propagate(
            x.ptr, x.rev, x.pair, x.slot, x.scope, x.core, x.order, x.up,
            rows, self.log_odds, self.known, self.w, self.first, clamp,
            self.tol, floor, self.max_iters, self.damping, self.stop,
            probs, self.iterations, self.converged, self.residual, self.log_z, self.joint,
        )  # fmt: skip
