"""Belief propagation on many instances of one structure at once: arrays in, arrays out.

All instances share the wiring of one binary pairwise model; their fields differ, perhaps also their
weights. Each gets the answer of :class:`~minfer.BeliefPropagation` with the sequential schedule, to
rounding, whatever runs beside it and in however many threads.

Which arithmetic an instance gets follows from its numbers alone:

* float64 where no variable's sum |w| is above 100. Beyond, it is left to the caller: ``unsafe``.
* float32, where asked for and where odds stay within e^42, for ``tol`` from 5e-7: below that its
  rounding would be taken for movement. What does not fit, or does not converge, is done in float64.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

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


class LaneStructure(NamedTuple):
    """A structure laid out for :func:`run_in_lanes`; made once, of a mesh that no run has used."""

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


class LaneRows(NamedTuple):
    """The numbers of n instances."""

    log_odds: NDArray[np.float64]  # (n, V), infinite where a variable is known
    known: NDArray[np.bool_]  # (n,) where one is
    w: NDArray[np.float64]  # (n or 1, P)
    first: NDArray[np.float64]  # (n or 1, E)
    clamp: float  # log-odds are held within this


class LaneAnswers(NamedTuple):
    """Of n instances; rows that are ``unsafe`` were not run and hold NaN."""

    probs: NDArray  # (n, V) of state 1, in the precision asked for; 0 and 1 where known
    iterations: NDArray[np.int64]  # (n,)
    converged: NDArray[np.bool_]  # (n,)
    residual: NDArray[np.float64]  # (n,) the last one
    log_z: NDArray[np.float64]  # (n or 0,) relative to every zero state and to t00 of the tables
    pairs: Any  # (n or 0, P, 4) beliefs of the pairs: 00, 01, 10, 11; perhaps on a device
    unsafe: NDArray[np.bool_]  # (n,) numbers too large (or NaN): to be run one by one
    stop: NDArray[np.int64]  # (1,) not 0: all runs end where they are

    @property
    def stopped(self) -> bool:
        """By the time limit: what has not converged may have been cut short."""
        return bool(self.stop[0])


class Absorbed(NamedTuple):
    """What new weights of the pair factors mean for :func:`run_in_lanes`."""

    lean: NDArray[np.float64]  # (n, V) log-odds that the unary parts add up to
    w: NDArray[np.float64]  # (n, P)
    first: NDArray[np.float64]  # (n, E) logs of the messages to begin with
    constant: NDArray[np.float64]  # (n,) the sum of t00


def absorb(mesh: Wired, weights: list[NDArray[np.float64]]) -> Absorbed:
    """Split the pair factors of many instances, whose weights are (n, F, k) for each group of
    ``mesh.model.groups``, into unary parts and conjunctions."""
    from minfer.kernels.messages.odds_lanes import unary_parts

    n, n_pairs = len(weights[0]) if weights else 0, len(mesh.slot)
    out = Absorbed(
        np.zeros((n, len(mesh.wiring.card))), np.empty((n, n_pairs)), np.empty((n, 2 * n_pairs)),
        np.zeros(n),
    )  # fmt: skip
    done = 0
    for g, values in zip(mesh.model.groups, weights, strict=True):
        here = slice(done, done + len(g))
        w = np.empty((n, len(g)))
        unary_parts(
            mesh.pair_scope[here].astype(np.int64), mesh.slot[here].astype(np.int64),
            np.ascontiguousarray(values, dtype=np.float64), g.basis(), out.lean, w, out.first,
            out.constant,
        )  # fmt: skip
        out.w[:, here] = w
        done += len(g)
    return out


def run_in_lanes(
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
) -> LaneAnswers:
    """Run belief propagation on n instances of one structure: variables binary, factors pairs.

    Parameters
    ----------
    log_odds : float array (n, V)
        Fields with the unary parts of the pair tables absorbed; infinite where a variable is known.
        Whatever a known variable's own log-odds were, log Z counts them as 0.
    w : float array (n, P), optional
        Weights log psi11 psi00 / (psi01 psi10) of the pairs, where they are not the structure's.
    first : float array (n, E), optional
        Logs of the messages to begin with, in the order of slots; with new weights those of
        :func:`absorb`. Else the structure's, or 0 with new weights.
    tol, max_iters, damping, time_limit
        As in :class:`~minfer.BeliefPropagation`; when time is up all runs end where they are.
    log_z, pairs : bool
        Whether to compute these.
    """
    from minfer.kernels.messages.odds_lanes import reach

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
    field, high, load, widest = np.empty((4, n))
    if n:
        reach(lanes.ptr, lanes.pair, log_odds, weights, field, high, load, widest)
    safe = (load <= _LOAD_64) & ~np.isnan(field)
    single = np.zeros(n, bool)
    if np.dtype(dtype) == np.float32 and tol >= LEAST_TOL_32:
        single = safe & (load <= _LOAD_32) & (widest <= _WEIGHT_32)
        single &= np.minimum(high, _CLAMP_32 + load) <= _HIGH_32
        single &= (field <= _CLAMP_32) | (load + widest <= _CLAMPED_32)
    found = LaneAnswers(
        np.empty(log_odds.shape, dtype), np.zeros(n, np.int64), np.zeros(n, bool),
        np.full(n, np.nan), np.full(n if log_z or pairs else 0, np.nan),
        np.full((n if pairs else 0, len(lanes.slot), 4), np.nan), ~safe, np.zeros(1, np.int64),
    )  # fmt: skip
    found.probs[~safe] = np.nan
    given = LaneRows(log_odds, field == np.inf, weights, first, _CLAMP_64)
    how = float(tol), int(max_iters), float(damping)
    timer = None
    if time_limit is not None:
        timer = threading.Timer(time_limit, found.stop.fill, (1,))
        timer.daemon = True
        timer.start()
    try:
        _run(lanes, given._replace(clamp=_CLAMP_32), single, np.float32, how, found, workers)
        rest = safe & ~single
        if not found.stopped:
            rest |= single & ~found.converged
        _run(lanes, given, rest, np.float64, how, found, workers)
    finally:
        if timer is not None:
            timer.cancel()
    some = np.flatnonzero(safe & given.known)
    if len(some):
        told = log_odds[some]
        found.probs[some] = np.where(np.isinf(told), told > 0, found.probs[some])
    return found


def _run(
    lanes: LaneStructure, given: LaneRows, chosen: NDArray[np.bool_], dtype: type,
    how: tuple[float, int, float], found: LaneAnswers, workers: int,
) -> None:  # fmt: skip
    """Some instances in one arithmetic; ``how``: (tol, max_iters, damping)."""
    from minfer.kernels.messages import odds_lanes as kernels

    rows = np.flatnonzero(chosen)
    if not len(rows):
        return
    tol, max_iters, damping = how
    same = found.probs.dtype == dtype
    mine = found if same else found._replace(probs=np.empty(found.probs.shape, dtype))
    floor = 0.02 * tol if damping == 0.0 else 0.0
    if dtype is np.float32:
        floor = max(floor, float(np.finfo(np.float32).eps))

    def work(part: NDArray[np.int64]) -> None:
        if lanes.forest:
            kernels.forests(lanes, given, part, mine)
        else:
            kernels.propagate(lanes, given, part, (tol, floor, max_iters, damping), mine)

    # a kernel cannot be interrupted, so it gets a fifth of a second's work or so
    most = int(4e6 / max(len(lanes.rev), 1))
    share = -(-len(rows) // (4 * workers)) if workers > 1 else len(rows)
    size = max(min(share, most), 128)
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    in_threads(work, parts, workers, partial(found.stop.fill, 1))
    if lanes.forest:
        found.iterations[rows], found.converged[rows] = min(len(lanes.rev), 1), True
        found.residual[rows] = 0.0
    if not same:
        found.probs[rows] = mine.probs[rows]
