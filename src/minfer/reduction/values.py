"""Ignoring values: belief propagation between lists of values that matter (the paper's section 6).

Each variable has a list of *kept* values; all its others are lumped into one *rest*, which weighs
what they weigh and, towards any neighbour, behaves like the mean of all values. (To forget the
others altogether is worse: .038 of total variation against .017 at equal lists.) A message from a
list of k values to all K of the neighbour costs k K, not K^2 (:mod:`minfer.kernels.values`).

**Choosing.** Under the seed's marginals q, dropping value x of variable v alone costs the
divergence

    g(v, x) = D(p_without || p) = -log P(x_v != x) = -log(1 - q_v(x)),

which is its gain; the best value of a variable is always kept. The three objectives choose by gains
as they choose factors, a value's cost being the numbers it is multiplied with in a sweep of the
whole model, 1 on average. What is dropped from one variable adds up to a little more than the sum
of the gains; that is a surrogate too.

**Bringing back.** The seed is often wrong about values: it must not have the last word. Messages
go to all values, so a visit has the belief of each; it takes in those from ``add`` on, drops listed
ones below ``drop``, and weighs the rest anew. The seed's lists are what a variable begins with, and
what later variables say before the first sweep. Sweeps visit those whom a neighbour has news for,
which is a belief that moved by :data:`DEAF` of ``add`` or a list that changed; once there are none,
any message that changed by ``tol`` of itself. From then on, or after :data:`DROPPING` sweeps, lists
only grow, so they come to rest. The answer are the beliefs of all values, listed or not.

**When it does not pay** the whole model is swept instead (:func:`why_dense` and :data:`FULL` have
the rule), so that to ask for lists never costs much more than not to ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.checks import brief, check_flag, check_number
from minfer.conditioning import Conditioned, condition
from minfer.errors import RefusedError, SettingsError
from minfer.factors.group import FactorGroup
from minfer.limits import clock
from minfer.message_state import MessageState
from minfer.reduction.objectives import MinJoint, Objective
from minfer.solvers.base import Marginals, Solver
from minfer.solvers.bp import BeliefPropagation
from minfer.solvers.independent import independent, softmax
from minfer.solvers.iteration import still_to_move
from minfer.solvers.status import LogZ, Status
from minfer.words import counted

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.kernels.values import Net

#: Values that a variable with neighbours must have on average for lists to be worth their while.
FEW = 32
#: Share of the values in lists, the seed's or later ones, beyond which the whole model is swept.
FULL = 0.25
#: Mean estimated mass outside the lists beyond which it is too.
LOST = 0.05
#: Mean mass of the seed outside its lists beyond which it is: such a seed does not know what it
#: leaves out, and propagation between its lists settles elsewhere. Set by looking at scenes of
#: ``benchmarks/values.py``, whose ``--rule`` tries it on others; nothing derives it.
BLIND = 0.4
#: Cells of tables that are laid out for lists; more of them only for whole sweeps.
MOST_CELLS = 1 << 27
#: Up to so many cells a second, transposed copy is made, which is quicker to read.
_TURNED = 1 << 22
#: Nats between the largest and the smallest number that all tables at a variable make together.
_RANGE = 300.0
#: A belief that moves by less than this part of ``add`` is no news to neighbours, until there are
#: none; then any message that changes by ``tol`` of itself is.
DEAF = 0.1
#: No smaller part does.
_ROUNDING = 1e-13
#: Sweeps in which lists may lose values; then they only grow, so that they come to rest.
DROPPING = 8
_NO_TABLES = np.zeros((0, 1, 1))
_CONTRADICTION = "the kept values contradict one another"


@dataclass(frozen=True)
class Values:
    """How values are chosen and brought back: ``infer(model, None, values=Values(...))``.

    Parameters
    ----------
    objective : MinSize, MinDivergence, MinJoint or Budget
        Which values of the seed to begin with; their gains and costs are those of the module.
        ``MinJoint(0.02)`` keeps those of probability 0.02 and more.
    add, drop : float in [0, 1]
        A visit takes in values whose belief is ``add`` or more, and drops those below ``drop``.
    dense : bool
        Whether the whole model may be swept instead where lists would not pay.
    """

    objective: Objective = field(default_factory=lambda: MinJoint(0.02))
    _: KW_ONLY
    add: float = 1e-3
    drop: float = 3e-4
    dense: bool = True

    def __post_init__(self) -> None:
        if not callable(self.objective) or isinstance(self.objective, type):
            raise SettingsError(
                f"{brief(self.objective)} is not an objective for values: "
                "infer(model, None, values=MinJoint(0.02))"
            )
        check_number("add", self.add, 0.0, 1.0)
        check_number("drop", self.drop, 0.0, 1.0)
        check_flag("dense", self.dense)
        if self.drop > self.add:
            raise SettingsError(
                f"drop={self.drop} is above add={self.add}: what one visit takes in, the next "
                "would drop"
            )


def checked_values(values: object, solver: Solver) -> Values | None:
    """What ``values=`` asks for; None for nothing. Lists are for plain belief propagation."""
    if values is None:
        return None
    chosen = values if isinstance(values, Values) else Values(values)  # type: ignore[arg-type]
    plain = isinstance(solver, BeliefPropagation) and not solver.damping
    if not plain or solver.schedule != "sequential":  # type: ignore[attr-defined]
        raise RefusedError(
            f"values: lists of values are swept by BeliefPropagation, one variable after the other "
            f"and undamped, not by {brief(solver)}: leave out solver= or values="
        )
    return chosen


@dataclass(frozen=True, eq=False, repr=False)
class ValueLists:
    """Which values an answer was computed with, and what may be outside: ``result.values``.

    Attributes
    ----------
    graph : FactorGraph
        The full model.
    keep : bool array (sum of states,)
        The kept values, laid out as marginals are; all of them where ``dense`` says why.
    outside : float array (V,)
        *Estimated* probability that a variable is outside its list (shown only where ``settled``):
        what the answer itself gives
        the values that were not kept. It includes neither propagation's error nor values that no
        neighbour's list supports: the truth may be several times this.
    refreshes : int
        How often lists were looked through: in every sweep.
    settled : bool
        Whether it converged and nothing was added last.
    dense : str
        Why the whole model was swept, with all values; empty where lists were used.
    """

    graph: FactorGraph
    keep: NDArray[np.bool_]
    outside: NDArray[np.float64]
    refreshes: int = 0
    settled: bool = True
    dense: str = ""

    @property
    def n_values(self) -> int:
        """Values of all variables."""
        return len(self.keep)

    @property
    def n_kept(self) -> int:
        return int(np.count_nonzero(self.keep))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Kept values of each variable, shape (V,)."""
        if not self.graph.n_variables:
            return np.zeros(0, dtype=np.int64)
        return np.add.reduceat(self.keep, self.graph._offsets[:-1], dtype=np.int64)

    def __getitem__(self, variable: int | str) -> NDArray[np.int64]:
        """The kept values of a variable, increasing."""
        v = self.graph.index(variable)
        return np.flatnonzero(self.keep[self.graph._offsets[v] : self.graph._offsets[v + 1]])

    @property
    def outside_estimate(self) -> float:
        """*Estimated* expected number of variables outside their list: the sum of ``outside``."""
        return float(self.outside.sum())

    @cached_property
    def _bound(self) -> tuple[float | None, str]:
        from minfer.certified.potts import potts_upper
        from minfer.certified.rounding import gamma

        if self.keep.all():
            return 0.0, ""
        upper = potts_upper(self.graph)
        if isinstance(upper, str):
            return None, upper
        mass = np.where(self.keep, 0.0, upper)
        each = np.minimum(np.add.reduceat(mass, self.graph._offsets[:-1]), 1.0)
        bound = float(each.sum()) * (1.0 + float(gamma(len(mass))))
        could = int(np.count_nonzero(self.lengths < self.graph._n_states))
        if bound >= could / 2:
            return None, (
                f"the bound would be {bound:.3g} of the {counted(could, 'variable')} that have "
                "values outside: it says nothing worth knowing"
            )
        return bound, ""

    @property
    def outside_bound(self) -> float | None:
        """Rigorous: no more variables than this are outside their list in expectation.

        Under the exact marginals of the full model, rounding included. Only where there is a proof:
        pairs that favour equal values, as Potts models have (:mod:`minfer.certified.potts`), and
        only where it says something. None elsewhere: :attr:`no_bound`. Computed on first access.
        """
        return self._bound[0]

    @property
    def no_bound(self) -> str:
        """Why there is no :attr:`outside_bound`; empty where there is one."""
        return self._bound[1]

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return {
            "values": self.n_values,
            "kept": self.n_kept,
            "outside_estimate": self.outside_estimate if self.settled else None,
            "outside_bound": self.outside_bound,
            "no_bound": self.no_bound,
            "refreshes": self.refreshes,
            "settled": self.settled,
            "dense": self.dense,
        }

    def __repr__(self) -> str:
        if self.dense:
            return f"ValueLists(all {counted(self.n_values, 'value')}: {self.dense})"
        kept = f"kept {self.n_kept} of {counted(self.n_values, 'value')}"
        if not self.settled:
            return f"ValueLists({kept}; not converged)"
        outside = f"{self.outside_estimate:.3g} of {counted(self.graph.n_variables, 'variable')}"
        return f"ValueLists({kept}; about {outside} outside)"


class OverLists:
    """A solver for parts of one model: belief propagation over lists of their values.

    The first call chooses lists by the seed's marginals; later ones (other fields, as refreshed
    compensations leave them) begin with the lists of the one before. ``lists`` are the last.
    """

    def __init__(
        self,
        values: Values,
        solver: Solver,
        model: FactorGraph,
        seed: Marginals,
        ready: Ready | None = None,
    ) -> None:
        assert isinstance(solver, BeliefPropagation)
        self.values, self.solver, self.model, self.seed = values, solver, model, seed
        self.ready = ready
        why = why_dense(model.groups) if values.dense else ""
        self.lists = self._dense(why or "nothing was added to the seed")
        self.used = False

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        begin = clock()
        again, self.used = self.used, True
        if again and self.lists.dense:
            return self.solver(graph, start)
        ready, self.ready = self.ready, None
        if ready is None:
            ready = Ready(self.seed, condition(graph))
        found = self._over_lists(ready, begin, again)
        if not isinstance(found, str):
            answer, lists = found
            self.lists = replace(lists, graph=self.model)
            return answer
        self.lists = self._dense(found)
        has_messages = start is not None and isinstance(start.state, MessageState)
        if has_messages or not ready.model.groups:
            return self.solver(graph, start if has_messages else None)
        return self.solver.propagate(graph, self.solver.wired(ready.model), None, begin)

    def _over_lists(
        self, ready: Ready, begin: float, again: bool
    ) -> tuple[Marginals, ValueLists] | str:
        """What lists give, or why they are not for this; whatever tells that early comes first."""
        from minfer.kernels.values import count

        may, seed, keep = self.values.dense, self.seed.probs, self.lists.keep
        model, offsets = ready.model, ready.model.graph._offsets
        if may and (why := why_dense(model.groups)):
            return why
        length = np.empty(model.graph.n_variables, dtype=np.int64)
        if again:
            keep = keep.copy()
            count(seed, offsets, keep, length)
        else:
            keep = chosen(model, seed, self.values.objective)
            blind = 1.0 - float(count(seed, offsets, keep, length)) / max(len(length), 1)
            if may and blind > BLIND:
                return f"the seed's lists leave out {blind:.2g} of its mass"
        laid = _lay_out(ready)
        if isinstance(laid, str):
            return laid
        return _Run(laid, self.values, self.solver, begin)(keep, length)

    def _dense(self, why: str) -> ValueLists:
        n = self.model.n_variables
        return ValueLists(self.model, np.ones(len(self.seed.probs), bool), np.zeros(n), dense=why)


@dataclass(frozen=True, eq=False)
class Ready:
    """A seed and the model that it is the seed of, conditioned.

    ``weights`` are the seed's probabilities where these are the softmax of the model's field, whose
    log Z is then ``mass``: what values weigh, up to a factor, without taking exponentials again.
    """

    seed: Marginals
    model: Conditioned
    weights: NDArray[np.float64] | None = None
    mass: float = 0.0

    @classmethod
    def of(cls, model: FactorGraph, mask: NDArray[np.bool_], solver: Solver) -> Ready | None:
        """Both at once where the seed is all unary factors, and pairs leave the field alone.

        So its field is the model's to the last bit: no variable is fixed, which would slice pairs
        into it, and no factor excludes states by itself.
        """
        if any(mask[g._ids].all() != (g.arity < 2) or mask[g._ids].any() != (g.arity < 2)
               or type(g).exclude is not FactorGroup.exclude for g in model.groups):  # fmt: skip
            return None
        whole = condition(model)
        if whole.has_fixed:
            return None
        alone = replace(whole, graph=model.keep(mask), groups=())
        begin = clock()
        weights, mass = softmax(alone)
        seed = independent(alone, solver, begin, (weights, mass))
        return None if seed is None else cls(seed, whole, weights, mass)


# ---------------------------------------------------------------------- choosing


def value_costs(model: Conditioned) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """What a value of each variable costs: numbers it meets in a whole sweep, 1 on average, (V,).

    1 where there are no neighbours, as nothing is computed with such values; and where there are.
    """
    size = model.graph._n_states.astype(np.int64)
    meets = np.zeros(len(size))
    for g in model.groups:
        for a, b in ((0, 1), (1, 0)) if g.arity == 2 else ():
            meets += np.bincount(g._scope[:, a], size[g._scope[:, b]], len(size))
    paired = meets > 0.0
    total = float((meets * size).sum())
    if total == 0.0:
        return np.ones(len(size)), paired
    return np.where(paired, meets * (float(size[paired].sum()) / total), 1.0), paired


def chosen(
    model: Conditioned, seed: NDArray[np.float64], objective: Objective
) -> NDArray[np.bool_]:
    """The values that an objective keeps on the seed's marginals (sum of states,)."""
    from minfer.kernels import values as k

    (costs, paired), offsets = value_costs(model), model.graph._offsets
    seed = np.ascontiguousarray(seed)
    keep = np.zeros(len(seed), dtype=bool)
    if type(objective) is MinJoint:  # its threshold is known before any gain is
        with np.errstate(over="ignore", invalid="ignore"):
            limit = -np.expm1(-objective.factor_cost * costs)
        k.choose(seed, offsets, np.where(paired, limit, 5e-324), keep)
        return keep
    k.choose(seed, offsets, np.where(paired, np.inf, 5e-324), keep)  # the best, which must stay
    with np.errstate(divide="ignore"):
        gains = -np.log1p(-np.minimum(seed, 1.0))
    gains[keep] = np.inf
    found = objective(gains, np.repeat(costs, np.diff(offsets)))
    if getattr(found, "shape", None) != keep.shape or found.dtype != bool:
        raise SettingsError(f"values: {brief(objective)} must return a mask of {len(keep)} values")
    return found | keep


def why_dense(groups: Sequence[FactorGroup]) -> str:
    """Why lists cannot pay whatever is in them; empty where they may.

    Few values (less than :data:`FEW` on average over the ends of factors), or messages that cost
    O(K) instead of O(K^2) anyway at half the factors and more: label distances. Unary factors do
    not count.
    """
    groups = [g for g in groups if g.arity > 1]
    ends = sum(len(g) * g.arity for g in groups)
    if not ends:
        return "no pair of variables is left"
    mean = sum(len(g) * sum(g.shape) for g in groups) / ends
    if mean < FEW:
        return f"variables have {mean:.3g} values on average, and lists pay from {FEW} on"
    short = sum(len(g) for g in groups if g.label_taps() is not None)
    if 2 * short >= sum(map(len, groups)):
        return "label distances have messages in O(K), which lists do not beat"
    return ""


# ---------------------------------------------------------------------- laying out


@dataclass(frozen=True, eq=False)
class _Laid:
    """Pairs from both ends, and what is needed to answer questions."""

    graph: FactorGraph
    net: Net
    constant: float
    numbers: int  # of all messages
    slot: NDArray[np.int64]  # (P, 2) slots of the pairs' ends
    ids: NDArray[np.int64]  # (P,) their factors' numbers


def _lay_out(ready: Ready) -> _Laid | str:
    """The model as lists see it, or why they cannot."""
    from minfer.kernels import values as k
    from minfer.kernels.lean import by_neighbour

    model = ready.model
    graph, n = model.graph, model.graph.n_variables
    for g in model.groups:
        if g.form != "table" or g.arity != 2 or not g.has_tables:
            return f"factor {int(g._ids[0])} is not a table over two variables: lists need pairs"
    cells = 0
    for g in model.groups:
        taps = g.label_taps()  # their tables are not written out before it is known that they fit
        rows = len(g.stored_tables() if taps is None else taps)
        cells += rows * (g.shape[0] + 1) * k.padded(g.shape[1])
    if cells > MOST_CELLS:
        return f"the tables have {cells:.2g} cells, more than are laid out for lists"
    turn = cells <= _TURNED
    tables, starts, places, ids, wide, constant = [], [], [], [], [], model.constant
    done, zeros = 0, False
    for g in model.groups:
        logs = np.ascontiguousarray(g.stored_tables())
        top = logs.max(axis=1)
        if (top == -np.inf).any():
            return "a table is zero everywhere"
        low = logs.min(axis=1, where=logs > -np.inf, initial=np.inf)
        zeros = zeros or bool(np.isneginf(logs).any())
        a, b = g.shape
        along, across = int(k.padded(b)), int(k.padded(a))
        step = len(g) != 1 and len(logs) == 1
        size, back = (a + 1) * along, (b + 1) * across
        out = np.empty((len(logs), a + 1, along))
        turned = np.zeros((len(logs), b + 1, across)) if turn else _NO_TABLES
        k.extend(logs - top[:, None], a, b, out, turned)
        row = np.zeros(len(g), np.int64) if step else np.arange(len(g))
        first = done + row * size
        other = done + len(logs) * size + row * back if turn else first
        ends = np.empty((3, len(g), 2), dtype=np.int64)  # base, mine and other of both ends
        ends[0, :, 0], ends[1, :, 0], ends[2, :, 0] = first, along, 1
        ends[0, :, 1] = other
        ends[1, :, 1], ends[2, :, 1] = (across, 1) if turn else (1, along)
        tables += [out.ravel(), turned.ravel()] if turn else [out.ravel()]
        done += len(logs) * (size + back if turn else size)
        starts.append(ends)
        places.append(g._scope)
        ids.append(g._ids)
        wide.append(np.broadcast_to(top - low, (len(g),)))
        constant += float(top.sum()) * (len(g) if step else 1)
    scope = np.concatenate([np.zeros((0, 2), np.int32), *places])
    sptr, order = np.empty(n + 1, np.int64), np.empty(scope.size, np.int64)
    by_neighbour(np.ascontiguousarray(scope), sptr, order, *np.empty((2, scope.size), np.int32))
    span, degree = np.concatenate([np.zeros(0), *wide]), np.diff(sptr)
    if (far := span.max(initial=0.0) * degree.max(initial=0)) > _RANGE:  # more than it may be?
        each = np.repeat(span, 2)
        far = np.bincount(scope.ravel(), weights=each, minlength=n).max(initial=0.0)
    if far > _RANGE or (zeros and _deepest(model) < -_RANGE):
        return "the numbers of the model are too far apart for lists"
    weights, shift = ready.weights, ready.mass
    if weights is None:
        weights = np.empty(len(model.field))
        shift = k.linear_field(model.field, graph._offsets, weights)
    off = np.array(graph._offsets, dtype=np.int64)
    split = np.empty(n, np.int64)
    slot, rev, place = np.empty((3, scope.size), np.int64)
    way = np.empty((scope.size, 6), np.int64)
    ends = np.concatenate([np.zeros((3, 0, 2), np.int64), *starts], axis=1)
    numbers = k.wire(scope, ends, off, sptr, order, slot, split, rev, place, way)
    table = _lines(done)
    np.concatenate([np.zeros(0), *tables], out=table)
    net = k.Net(sptr, split, rev, place, way, table, off, weights)
    return _Laid(graph, net, constant + shift, int(numbers), slot.reshape(-1, 2),
                 np.concatenate([np.zeros(0, np.int64), *ids]))  # fmt: skip


def _lines(n: int) -> NDArray[np.float64]:
    """Room for n numbers that begins where a line of the cache does."""
    room = np.empty(n + 8)
    first = -room.ctypes.data // 8 % 8
    return room[first : first + n]


def _deepest(model: Conditioned) -> float:
    """The lowest field below a variable's largest, zeros apart."""
    off = model.graph._offsets
    top = np.repeat(np.maximum.reduceat(model.field, off[:-1]), np.diff(off))
    return float((model.field - top).min(where=model.field > -np.inf, initial=0.0))


# ---------------------------------------------------------------------- running


class _Run:
    """Sweeps; called with the first lists it gives the answer, or why not."""

    def __init__(
        self, laid: _Laid, values: Values, solver: BeliefPropagation, begin: float
    ) -> None:
        from minfer.kernels import values as k

        self.k, self.laid, self.net, self.values, self.solver = k, laid, laid.net, values, solver
        self.begin = begin
        self.ready = clock()
        widest = int(np.diff(self.net.off).max(initial=1)) + 9
        flags = np.zeros(-(-widest // 8) * 8, dtype=np.uint8)
        self.rooms = (
            np.empty(widest), np.empty(widest, dtype=np.int64), np.empty(widest), flags,
            flags.view(np.uint64),
        )  # fmt: skip
        self.degree = np.diff(self.net.sptr)
        self.every = float((np.diff(self.net.off) * self.degree).sum())
        self.residuals: list[float] = []

    def __call__(
        self, keep: NDArray[np.bool_], length: NDArray[np.int64]
    ) -> tuple[Marginals, ValueLists] | str:
        n, limit = len(length), self.solver.max_iters
        self.lists = lists = self.k.Lists(
            keep.view(np.uint8), length,
            _lines(self.laid.numbers),
            np.empty(len(keep)), np.zeros(n), np.full(n, self.k.BOTH),
        )  # fmt: skip
        if why := self._too_long():
            return why
        settled = late = converged = written = False
        tol = max(self.solver.tol, _ROUNDING)
        still, eps, drop = DEAF * self.values.add, 0.0, self.values.drop
        if still <= tol:
            still, eps = -1.0, tol
        self.k.greet(self.net, lists, *self.rooms[1:])
        for turn in range(limit):
            if turn > 0 and self._out_of_time():
                late = True
                break
            written = turn == limit - 1
            found = self._sweep(turn, written, drop, still, eps if turn > 1 else 0.0)
            if isinstance(found, str):
                return found
            moved, came = found
            if not lists.awake.any():
                settled = not came
                converged = turn > 1 and eps > 0.0 and moved <= self.solver.tol
                if converged:
                    break
                still, eps, drop = -1.0, tol, 0.0
                lists.awake[:] = self.k.BOTH
            if turn >= DROPPING:
                drop = 0.0
        if not written:
            lists.awake[:] = 0
            if self.k.sweep(self.net, lists, True, False, True, *[0.0] * 5, *self.rooms)[2]:
                return _CONTRADICTION
        status = Status.TIME_LIMIT if late else Status.MAX_ITERS
        status = Status.CONVERGED if converged else status
        return self._lost() or self._answer(status, settled and converged)

    # ------------------------------------------------------------------ parts

    def _out_of_time(self) -> bool:
        limit = self.solver.time_limit
        return limit is not None and clock() - self.begin >= limit

    def _sweep(
        self, turn: int, last: bool, drop: float, still: float, eps: float
    ) -> tuple[float, int] | str:
        """The largest change and how many values came, or why the whole model is swept."""
        room = FULL * self.every if self.values.dense else np.inf
        moved, came, bad = self.k.sweep(
            self.net, self.lists, turn % 2 == 0, turn == 0, last, self.values.add, drop, still,
            eps, room, *self.rooms,
        )  # fmt: skip
        if bad > 0:
            return _CONTRADICTION
        if bad < 0:
            return f"lists would have more than {FULL:.0%} of the values"
        self.residuals.append(float(moved))
        return self._too_long() or (self._lost() if turn > 0 else "") or (float(moved), int(came))

    def _too_long(self) -> str:
        """Why the whole model is swept rather than these; empty where they are short enough."""
        if not self.values.dense:
            return ""
        share = float((self.lists.length * self.degree).sum()) / max(self.every, 1.0)
        if share <= FULL:
            return ""
        return f"lists would have {share:.0%} of the values, and pay up to {FULL:.0%}"

    def _lost(self) -> str:
        """The same where variables are outside their lists with so much probability."""
        outside = self.lists.outside
        lost = float(outside.mean()) if self.values.dense and len(outside) else 0.0
        return f"lists would leave out {lost:.2g} of the mass" if lost > LOST else ""

    def _answer(self, status: Status, settled: bool) -> tuple[Marginals, ValueLists]:
        graph, lists, now, sweeps = self.laid.graph, self.lists, clock(), len(self.residuals)
        kept = float(lists.length.sum()) / max(len(lists.length), 1)
        return Marginals(
            graph, lists.bel, self.solver, status, LogZ.ESTIMATE, sweeps, np.array(self.residuals),
            {"plan": self.ready - self.begin, "iterate": now - self.ready},
            note=f"lists of {kept:.3g} values on average",
            state=_State(self.laid, lists.m),
            still_to_move=still_to_move(self.residuals[-12:], 2),
        ), ValueLists(graph, lists.keep.view(bool), lists.outside, sweeps, settled)  # fmt: skip


@dataclass(frozen=True, eq=False)
class _State:
    """What lists leave, messages to all values: log Z (Bethe) and joint marginals of pairs."""

    laid: _Laid
    m: NDArray[np.float64]

    def log_z(self) -> float:
        from minfer.kernels.values import bethe

        value, bad = bethe(self.laid.net, self.m)
        return float("nan") if bad else self.laid.constant + float(value)

    def factor(self, factor: int) -> NDArray[np.float64] | None:
        """psi times both cavities."""
        from minfer.kernels.values import NBR

        row = np.flatnonzero(self.laid.ids == factor)
        if not len(row):
            return None
        net = self.laid.net
        s, r = (int(i) for i in self.laid.slot[row[0]])
        _, base, mine, other, u, _ = (int(i) for i in net.way[s])
        one, two = self._cavity(int(net.way[r, NBR]), s), self._cavity(u, r)
        at = base + np.arange(len(one))[:, None] * mine + np.arange(len(two)) * other
        joint = one[:, None] * net.tab[at] * two
        return joint / joint.sum()

    def _cavity(self, v: int, slot: int) -> NDArray[np.float64]:
        """What v would say along a slot of its own, of all its values."""
        net = self.laid.net
        cavity = net.field[net.off[v] : net.off[v + 1]].copy()
        for s in range(net.sptr[v], net.sptr[v + 1]):
            if s != slot:
                cavity *= self.m[net.place[s] : net.place[s] + len(cavity)]
        return cavity / cavity.sum()
