"""Ignoring values: belief propagation between lists of values that matter (the paper's section 6).

Each variable has a list of *kept* values; all its others are lumped into one *rest*, which weighs
what they weigh and, towards any neighbour, behaves like the mean of all values. (To forget the
others altogether is worse: .038 of total variation against .017 at equal lists.) A message then
costs k l for lists of k and l values, not K^2 (:mod:`minfer.kernels.values`).

**Choosing.** Under the seed's marginals q, dropping value x of variable v alone costs the
divergence

    g(v, x) = D(p_without || p) = -log P(x_v != x) = -log(1 - q_v(x)),

which is its gain; the best value of a variable is always kept. The three objectives choose by gains
as they choose factors, a value's cost being the numbers it is multiplied with in a sweep of the
whole model, 1 on average. What is dropped from one variable adds up to a little more than the sum
of the gains; that is a surrogate too.

**Bringing back.** The seed is often wrong about values: it must not have the last word. A *refresh*
reads the beliefs of all K values from what the neighbours' lists send (k K a message), takes in
values from ``add`` on, drops listed ones below ``drop``, weighs the rest anew, and carries the
messages over. Two sweeps and a refresh; then sweeps until beliefs move by less than ``add``, eight
of them at first and twice as many each time, and a refresh, until nothing is added; then until they
stand still, and a refresh again. The last one is the answer: the marginals of all values, listed or
not. (A second refresh after four sweeps costs more than it brings: what is read last has the other
values anyway.)

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
from minfer.factors import FactorGroup
from minfer.graph import FactorGraph
from minfer.limits import clock
from minfer.message_state import MessageState
from minfer.reduction.objectives import MinJoint, Objective
from minfer.solvers.base import LogZ, Marginals, Solver, Status
from minfer.solvers.bp import BeliefPropagation
from minfer.solvers.independent import independent, softmax
from minfer.solvers.iteration import still_to_move
from minfer.words import counted

if TYPE_CHECKING:
    from minfer.kernels.values import Lists, Net

#: Values that a variable with neighbours must have on average for lists to be worth their while.
FEW = 32
#: Share of the values in lists, seed's or refreshed, beyond which the whole model is swept.
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
#: Rounds of sweeps and refreshes at most.
_ROUNDS = 30
#: Sweeps after which lists are looked through again, the first time; then twice as many.
AGAIN = 8
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
        A refresh takes in values whose belief is ``add`` or more, and drops those below ``drop``.
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
                f"drop={self.drop} is above add={self.add}: what one refresh takes in, the next "
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
        *Estimated* probability that a variable is outside its list: what the answer itself gives
        the values that were not kept. It includes neither propagation's error nor values that no
        neighbour's list supports: the truth may be several times this.
    refreshes : int
        How often lists were looked through.
    settled : bool
        Whether the last refresh added nothing.
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
            "outside_estimate": self.outside_estimate,
            "outside_bound": self.outside_bound,
            "no_bound": self.no_bound,
            "refreshes": self.refreshes,
            "settled": self.settled,
            "dense": self.dense,
        }

    def __repr__(self) -> str:
        if self.dense:
            return f"ValueLists(all {counted(self.n_values, 'value')}: {self.dense})"
        return (
            f"ValueLists(kept {self.n_kept} of {counted(self.n_values, 'value')}; about "
            f"{self.outside_estimate:.3g} of {counted(self.graph.n_variables, 'variable')} outside)"
        )


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
        may, seed, keep = self.values.dense, self.seed.probs, self.lists.keep
        model = ready.model
        if may and (why := why_dense(model.groups)):
            return why
        if not again:
            keep = chosen(model, seed, self.values.objective)
            blind = 1.0 - float(seed[np.flatnonzero(keep)].sum()) / max(model.graph.n_variables, 1)
            if may and blind > BLIND:
                return f"the seed's lists leave out {blind:.2g} of its mass"
        laid = _lay_out(ready)
        return laid if isinstance(laid, str) else _Run(laid, self.values, self.solver, begin)(keep)

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
        cells += rows * (g.shape[0] + 1) * (g.shape[1] + 1)
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
        size, step = (a + 1) * (b + 1), len(g) != 1 and len(logs) == 1
        out = np.empty((len(logs), a + 1, b + 1))
        turned = np.empty((len(logs), b + 1, a + 1)) if turn else _NO_TABLES
        k.extend(logs - top[:, None], a, b, out, turned)
        row = np.zeros(len(g), np.int64) if step else np.arange(len(g))
        first = done + row * size
        other = first + len(logs) * size if turn else first
        ends = np.empty((3, len(g), 2), dtype=np.int64)  # base, mine and other of both ends
        ends[0, :, 0], ends[1, :, 0], ends[2, :, 0] = first, b + 1, 1
        ends[0, :, 1] = other
        ends[1, :, 1], ends[2, :, 1] = (a + 1, 1) if turn else (1, b + 1)
        tables += [out.ravel(), turned.ravel()] if turn else [out.ravel()]
        done += len(logs) * size * (2 if turn else 1)
        starts.append(ends.reshape(3, -1))
        places.append(g._scope)
        ids.append(g._ids)
        wide.append(np.broadcast_to(top - low, (len(g),)))
        constant += float(top.sum()) * (len(g) if step else 1)
    scope = np.concatenate([np.zeros((0, 2), np.int32), *places])
    sptr, order = np.empty(n + 1, np.int64), np.empty(scope.size, np.int64)
    by_neighbour(np.ascontiguousarray(scope), sptr, order, *np.empty((2, scope.size), np.int32))
    flat = scope.ravel().astype(np.int64)
    slot = np.empty(len(order), dtype=np.int64)
    slot[order] = np.arange(len(order))
    owner, nbr = np.repeat(np.arange(n), np.diff(sptr)), flat[order ^ 1]
    before = np.concatenate([[0], np.cumsum(nbr < owner)])
    base, mine, other = np.concatenate([np.zeros((3, 0), np.int64), *starts], axis=1)
    span = np.concatenate([np.zeros(0), *wide])
    total = np.bincount(owner, weights=np.repeat(span, 2)[order], minlength=n)
    if total.max(initial=0.0) > _RANGE or (zeros and _deepest(model) < -_RANGE):
        return "the numbers of the model are too far apart for lists"
    weights, shift = ready.weights, ready.mass
    if weights is None:
        weights = np.empty(len(model.field))
        shift = k.linear_field(model.field, graph._offsets, weights)
    net = k.Net(
        sptr, before[sptr[1:]] - before[sptr[:-1]], nbr,
        slot[order ^ 1], base[order], mine[order], other[order],
        np.concatenate([np.zeros(0), *tables]), np.array(graph._offsets, dtype=np.int64), weights,
    )  # fmt: skip
    return _Laid(graph, net, constant + shift, slot.reshape(-1, 2),
                 np.concatenate([np.zeros(0, np.int64), *ids]))  # fmt: skip


def _deepest(model: Conditioned) -> float:
    """The lowest field below a variable's largest, zeros apart."""
    off = model.graph._offsets
    top = np.repeat(np.maximum.reduceat(model.field, off[:-1]), np.diff(off))
    return float((model.field - top).min(where=model.field > -np.inf, initial=0.0))


# ---------------------------------------------------------------------- running


class _Run:
    """Sweeps and refreshes; called with the first lists it gives the answer, or why not."""

    def __init__(
        self, laid: _Laid, values: Values, solver: BeliefPropagation, begin: float
    ) -> None:
        from minfer.kernels import values as k

        self.k, self.laid, self.net, self.values, self.solver = k, laid, laid.net, values, solver
        self.begin = begin
        self.ready = clock()
        size = np.diff(self.net.off)
        self.degree = int(np.diff(self.net.sptr).max(initial=0))
        self.widest = int(size.max(initial=1)) + 1
        self.work = np.empty((self.degree + 4) * self.widest)
        self.rows = np.empty((self.degree + 1) * self.widest, dtype=np.int64)
        self.said = np.empty(len(self.rows))
        self.probs = np.empty(len(self.net.field))
        self.outside = np.empty(len(size))  # of these, what is outside the lists
        self.residuals: list[float] = []
        self.since = 0  # sweeps since lists were last changed
        self.quiet = 0  # of these, the last ones that moved nothing
        self.late = self.converged = False
        self.refreshes = 0
        self.log_z = np.nan
        self.last_q = np.zeros(0)

    def __call__(self, keep: NDArray[np.bool_]) -> tuple[Marginals, ValueLists] | str:
        self.keep, self.lists = keep, self._listed(keep)
        if why := self._too_long(self.lists):
            return why
        settled = calm = False
        sweeps, tol = 2, 0.0  # the seed's lists are not worth more
        for turn in range(_ROUNDS):
            if self._sweeps(sweeps, tol):
                return _CONTRADICTION
            self.converged = calm and self.quiet >= 2
            over = self.late or len(self.residuals) >= self.solver.max_iters or turn == _ROUNDS - 1
            last = over and not self.converged
            found = self._refresh(calm, read=last)
            if found is None:
                return _CONTRADICTION
            if last:
                break
            came, new, lists = found
            settled = self.converged and not came
            if settled:
                break
            if why := self._too_long(lists) or self._lost(lists.bel[lists.lptr[1:] - 1]):
                return why
            self.lists, self.keep, self.since, self.quiet = lists, new, 0, 0
            calm = calm or (turn > 0 and not came)
            sweeps, tol = AGAIN << turn, max(self.values.add, self.solver.tol)
            if calm:
                sweeps, tol = self.solver.max_iters, self.solver.tol
        return self._lost(self.outside) or self._answer(settled)

    # ------------------------------------------------------------------ parts

    @property
    def _status(self) -> Status:
        if self.converged:
            return Status.CONVERGED
        return Status.TIME_LIMIT if self.late else Status.MAX_ITERS

    def _out_of_time(self) -> bool:
        limit = self.solver.time_limit
        return limit is not None and clock() - self.begin >= limit

    def _sweeps(self, n: int, tol: float) -> bool:
        """Up to n sweeps, until a forward and a backward one moved nothing; whether one failed."""
        for _ in range(n):
            if self.quiet >= 2 or len(self.residuals) >= self.solver.max_iters:
                break
            if self.residuals and self._out_of_time():
                self.late = True
                break
            forward = len(self.residuals) % 2 == 0
            watching = self.since > 0 and self.residuals[-1] <= 10 * tol
            moved, told, bad = self.k.sweep(
                self.net, self.lists, forward, self.work, self.rows, watching
            )
            if bad:
                return True
            self.residuals.append(float(max(moved, told)))
            self.since += 1
            self.quiet = self.quiet + 1 if watching and max(moved, told) <= tol else 0
        return False

    def _room(self, some: bool = True) -> Lists:
        """Room for any lists, or for none. Pages that are not written are never had."""
        n, wide = len(self.net.off) - 1, np.diff(self.net.off) + 1
        entries = int(wide.sum()) if some else 0
        messages = int((wide * np.diff(self.net.sptr)).sum()) if some else 0
        return self.k.Lists(
            np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(entries, np.int64),
            np.empty(entries), np.empty(messages), np.empty(entries),
        )  # fmt: skip

    def _listed(self, keep: NDArray[np.bool_]) -> Lists:
        """Lists of kept values, with messages that say nothing."""
        lists = self._room()
        self.k.fill(self.net, keep, lists)
        return lists

    def _refresh(self, calm: bool, read: bool) -> tuple[int, NDArray[np.bool_], Lists] | None:
        """Beliefs of all values, and unless they are only ``read``: how many came, and new lists.

        None where numbers vanished. Beliefs are kept if they may be the last: where it is ``calm``.
        """
        self.refreshes += 1
        messages = int(self.lists.mptr[-1])
        if len(self.last_q) < messages:  # else over those before, which nobody asks for again
            self.last_q = np.empty(messages)
        self.log_z, bad = self.k.cavities(self.net, self.lists, self.last_q, self.work)
        if bad:
            return None
        room, new = self._room(not read), np.zeros_like(self.keep)
        came, bad = self.k.refresh(
            self.net, self.lists, self.last_q, self.keep, self.values.add, self.values.drop,
            self.probs if calm or read else self.probs[:0], self.outside, new, room, self.work,
            self.rows, self.said,
        )  # fmt: skip
        return None if bad else (int(came), new, room)

    def _too_long(self, lists: Lists) -> str:
        """Why the whole model is swept rather than these; empty where they are short enough."""
        if not self.values.dense:
            return ""
        degree = np.diff(self.net.sptr)
        every = float((np.diff(self.net.off) * degree).sum())
        share = float(((np.diff(lists.lptr) - 1) * degree).sum()) / max(every, 1.0)
        if share <= FULL:
            return ""
        return f"lists would have {share:.0%} of the values, and pay up to {FULL:.0%}"

    def _lost(self, outside: NDArray[np.float64]) -> str:
        """The same where variables are outside their lists with so much probability, (V,)."""
        lost = float(outside.mean()) if self.values.dense and len(outside) else 0.0
        return f"lists would leave out {lost:.2g} of the mass" if lost > LOST else ""

    def _answer(self, settled: bool) -> tuple[Marginals, ValueLists]:
        graph, now = self.laid.graph, clock()
        lists = ValueLists(graph, self.keep, self.outside, self.refreshes, settled)
        recent = self.residuals[len(self.residuals) - self.since :]
        kept = self._kept()
        return Marginals(
            graph, self.probs, self.solver, self._status, LogZ.ESTIMATE,
            len(self.residuals), np.array(self.residuals),
            {"plan": self.ready - self.begin, "iterate": now - self.ready},
            note=f"lists of {kept:.3g} values on average",
            state=_State(self.laid, self.lists, self.last_q, self.probs,
                         self.laid.constant + float(self.log_z)),
            still_to_move=still_to_move(recent[-12:], 2),
        ), lists  # fmt: skip

    def _kept(self) -> float:
        return float(np.count_nonzero(self.keep)) / max(len(self.net.off) - 1, 1)


@dataclass(frozen=True, eq=False)
class _State:
    """What lists leave: log Z (Bethe, with rests) and joint marginals of pairs over all values."""

    laid: _Laid
    lists: Lists
    q: NDArray[np.float64]
    probs: NDArray[np.float64]
    value: float

    def log_z(self) -> float:
        return self.value

    def factor(self, factor: int) -> NDArray[np.float64] | None:
        """psi times both cavities, those of all values: belief over message, with 0 / 0 = 0."""
        row = np.flatnonzero(self.laid.ids == factor)
        if not len(row):
            return None
        net = self.laid.net
        s, r = (int(i) for i in self.laid.slot[row[0]])
        a, b = int(net.nbr[r]), int(net.nbr[s])
        sizes = [int(net.off[v + 1] - net.off[v]) for v in (a, b)]
        at = net.base[s] + np.arange(sizes[0] + 1)[:, None] * net.mine[s]
        psi = net.tab[at + np.arange(sizes[1] + 1) * net.other[s]]
        one = self._cavity(a, psi.T, r, b)
        two = self._cavity(b, psi, s, a)
        joint = one[:, None] * psi[:-1, :-1] * two
        return joint / joint.sum()

    def _cavity(self, v: int, psi: NDArray, slot: int, u: int) -> NDArray[np.float64]:
        """Of v, by what u sends it along a slot of its own; psi with rows of u."""
        net, lists = self.laid.net, self.lists
        k = int(lists.lptr[u + 1] - lists.lptr[u])
        first = int(lists.mptr[u] + (slot - net.sptr[u]) * k)
        message = self.q[first : first + k] @ psi[lists.val[lists.lptr[u] : lists.lptr[u + 1]], :-1]
        mine = self.probs[net.off[v] : net.off[v + 1]]
        return np.divide(mine, message, out=np.zeros_like(mine), where=message > 0.0)
