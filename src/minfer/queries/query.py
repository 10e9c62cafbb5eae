"""``query``: P(targets | evidence), and the prepared question behind it.

A question is planned once (:mod:`minfer.queries.plans`) for its targets and the variables that are
observed; the next evidence on the same variables only moves numbers. ``query`` keeps the last plans
of each model by itself; :func:`prepare` hands one out.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from threading import Lock
from types import NoneType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from minfer.checks import as_list, check_flag, check_graph, first_twice, integer
from minfer.errors import ContradictionError, EvidenceError, ModelError, visible
from minfer.evidence import Evidence, log_field, numbered
from minfer.graph import FactorGraph
from minfer.joint import Joint
from minfer.queries.conflicts import located
from minfer.queries.plans import (
    IMPOSSIBLE,
    MOST_ROW_CELLS,
    Plan,
    check_size,
    in_order,
    plan_for,
)
from minfer.queries.pruning import prune
from minfer.queries.small import Tabled
from minfer.solvers.base import Marginals, Solver, in_parts
from minfer.solvers.exact import Exact
from minfer.solvers.joint_table import JointTable
from minfer.solvers.status import LogZ, Status
from minfer.states import Probabilities, is_plain_number

_EXACTLY = Exact()
#: Plans kept for each model, and cells of all of them: some 30 bytes each.
MOST_PLANS = 64
MOST_CELLS = 2.0**24
_PLANS: WeakKeyDictionary[FactorGraph, OrderedDict[Any, Any]] = WeakKeyDictionary()
#: Questions that were asked before, by target and the names of what was observed.
_READERS: WeakKeyDictionary[FactorGraph, dict[Any, _Reader]] = WeakKeyDictionary()


#: Held while plans are kept or forgotten: questions may come from several threads.
_LOCK = Lock()


class Posterior(Probabilities):
    """P(target | evidence), shape (S,); also by the states' names, as in ``p["yes"]``."""

    _ask: Callable[[], float] | None

    def __array_finalize__(self, other: Any) -> None:
        super().__array_finalize__(other)
        self._ask = getattr(other, "_ask", None)

    @property
    def log_evidence(self) -> float:
        """Log of the probability of the evidence; computed when asked for.

        All evidence counts, the model's own field too, against the model's factors alone. Of a
        Bayesian network only the ancestors of what was observed have a say in it.
        """
        return math.nan if self._ask is None else self._ask()


@dataclass(frozen=True, eq=False, repr=False)
class Posteriors(Marginals):
    """P(each variable | evidence), and log P(evidence)."""

    _solver: Solver | None = None

    @classmethod
    def of(cls, answer: Marginals, solver: Solver | None) -> Posteriors:
        own = {f.name: getattr(answer, f.name) for f in fields(Marginals)}
        return cls(**own, _solver=solver)

    @property
    def log_evidence(self) -> float:
        """Log of the probability of the evidence, as a :class:`Posterior` has it."""
        return self.log_z - log_z_without_evidence(self.graph, self._solver)


def query(
    model: FactorGraph,
    targets: int | str | Sequence[int | str] | None = None,
    evidence: Evidence | None = None,
    *,
    solver: Solver | None = None,
    check: bool = True,
) -> Posterior | Joint | Marginals:
    """P(targets | evidence), exactly.

    Parameters
    ----------
    model : FactorGraph
    targets : a variable, several, or None for all
        By name or number.
    evidence : {variable: state, or likelihoods}
        States by name or number. Soft (virtual) evidence is a likelihood for each state, a list or
        ``{"LOW": 0.2, "HIGH": 0.8}``; states left out have 0.
    solver : Solver, optional
        To run, on what is left after pruning, instead of exact inference.
    check : bool
        Look for contradictions everywhere. Without it, parts of the model that do not affect the
        targets are left out even where they might show that the evidence is impossible.

    Returns
    -------
    Posterior, one target
        Its distribution, an array (S,).
    Joint, a list of targets
        Their joint table.
    Posteriors, None
        Marginals of every variable. All three have ``log_evidence`` and ``to_pandas()``.

    Examples
    --------
    >>> import minfer
    >>> g = minfer.FactorGraph.network(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"rain": [0.8, 0.2], "wet": (["rain"], [[0.9, 0.1], [0.2, 0.8]])},
    ... )
    >>> p = minfer.query(g, "rain", {"wet": "yes"})
    >>> float(p["yes"].round(4)), round(p.log_evidence, 4)
    (0.6667, -1.4271)
    >>> float(minfer.query(g, ["rain", "wet"])["yes", "yes"].round(4))
    0.16
    """
    key: Any = None
    if solver is None and check is True and targets.__class__ in (str, int, NoneType):
        known = _READERS.get(model) if isinstance(model, FactorGraph) else None
        given = {} if evidence is None else evidence
        reader = hard = None
        try:
            key = (targets, *given)
            reader = None if known is None else known.get(key)
            hard = None if reader is None else reader.states(given, model)
        except TypeError:  # something that is not a variable, or no evidence
            key = hard = None
        if reader is not None and hard is not None:
            return _Question(model, *reader.about).answer(hard, {})
    check_graph(model, "query")
    _check_some(targets)
    check_flag("check", check)
    hard, soft = numbered(model, {} if evidence is None else evidence)
    if targets is None and solver is None and not hard and not soft:
        return Posteriors.of(Exact()(model), None)  # nothing a plan could be used for again
    asked = _Question.of(model, targets, tuple(sorted(hard)), tuple(sorted(soft)), solver, check)
    if key is not None and not soft:
        with _LOCK:
            known = _READERS.setdefault(model, {})
            if len(known) >= MOST_PLANS:
                known.clear()
            known[key] = _Reader(asked)
    return asked.answer(hard, soft)


def prepare(
    model: FactorGraph,
    targets: int | str | Sequence[int | str] | None = None,
    observed: Iterable[int | str] = (),
    *,
    soft: Iterable[int | str] = (),
    solver: Solver | None = None,
    check: bool = True,
) -> Query:
    """A question planned for evidence on the variables ``observed``, to be called with it.

    Parameters
    ----------
    observed : variables whose states each call gives
    soft : variables for whose states each call gives likelihoods
    others : as in :func:`query`

    Examples
    --------
    >>> import minfer
    >>> from minfer.examples import sprinkler
    >>> rain = minfer.queries.prepare(sprinkler(), "rain", ["wet_grass"])
    >>> [rain({"wet_grass": s}).round(3).tolist() for s in (0, 1)]
    [[0.954, 0.046], [0.346, 0.654]]
    """
    return Query(model, targets, observed, soft=soft, solver=solver, check=check)


class Query:
    """A prepared question: see :func:`prepare`. Calls may come from several threads."""

    def __init__(
        self,
        model: FactorGraph,
        targets: int | str | Sequence[int | str] | None = None,
        observed: Iterable[int | str] = (),
        *,
        soft: Iterable[int | str] = (),
        solver: Solver | None = None,
        check: bool = True,
    ) -> None:
        check_graph(model, "prepare")
        _check_some(targets)
        hard = _variables(model, observed, "observed")
        softly = _variables(model, soft, "soft")
        if set(hard) & set(softly):
            raise EvidenceError(
                f"{model.name(min(set(hard) & set(softly)))} cannot be observed and have soft "
                "evidence; give it one likelihood for each state"
            )
        self.model = model
        self._asked = _Question.of(
            model, targets, tuple(sorted(hard)), tuple(sorted(softly)), solver, check
        )
        self._reader = _Reader(self._asked)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the variables that are asked for."""
        return tuple(self.model.name(v) for v in self._asked.targets)

    @property
    def observed(self) -> tuple[str, ...]:
        """Names of the variables of which each call gives the states."""
        return tuple(self.model.name(v) for v in self._asked.hard)

    @property
    def n_variables(self) -> int:
        """How many variables are left after pruning."""
        return self._asked.plan.n_variables

    def __call__(self, evidence: Evidence | None = None) -> Posterior | Joint | Marginals:
        """The answer for evidence on the variables that were prepared for."""
        found = self._reader.states({} if evidence is None else evidence, self.model)
        if found is not None:
            return self._asked.answer(found, {})
        hard, soft = numbered(self.model, {} if evidence is None else evidence)
        for what, given, wanted in (
            ("observed", hard, self._asked.hard),
            ("soft", soft, self._asked.soft),
        ):
            if tuple(sorted(given)) != wanted:
                names = ", ".join(self.model.name(v) for v in wanted) or "none"
                raise EvidenceError(
                    f"this question was prepared with these {what} variables: {names}; prepare "
                    "another for other evidence, or call minfer.query"
                )
        return self._asked.answer(hard, soft)

    def __repr__(self) -> str:
        what = ", ".join(self.targets) if len(self.targets) < 6 else f"{len(self.targets)} targets"
        given = f" | {', '.join(self.observed)}" if self.observed else ""
        return f"Query(P({what}{given}), {self.n_variables} variables left)"


class _Reader:
    """Evidence on the variables of a question, if it is given as it mostly is."""

    def __init__(self, asked: _Question) -> None:
        self.about = (
            asked.targets, asked.form, asked.hard, asked.soft, asked.solver, asked.check, asked.plan
        )  # fmt: skip
        self.hard, self.n, self.soft = asked.hard, len(asked.hard), bool(asked.soft)
        #: Of each observed variable, by name and number: its number, and that of its states.
        self.known: dict[Any, tuple[int, dict[Any, int]]] | None = None

    def _known(self, graph: FactorGraph) -> dict[Any, tuple[int, dict[Any, int]]]:
        """Made by the second question. ``graph`` is not kept: readers are, as long as it is."""
        found: dict[Any, tuple[int, dict[Any, int]]] = {}
        for v in self.hard:
            states = graph.states(v)
            known: dict[Any, int] = {s: k for k, s in enumerate(states)}
            found[graph.name(v)] = (
                v, known | {k: k for k in range(len(states)) if is_plain_number(states, k)}
            )  # fmt: skip
            found[v] = v, known | {k: k for k in range(len(states))}
        return found

    def states(self, evidence: Any, graph: FactorGraph) -> dict[int, int] | None:
        """The observed states, or None where it takes a closer look."""
        if self.soft or evidence.__class__ is not dict:
            return None
        hard: dict[int, int] = {}
        known = self.known
        if known is None:
            known = self.known = self._known(graph)
        try:
            for name, state in evidence.items():
                if state.__class__ is not str and state.__class__ is not int:
                    return None
                if name.__class__ is bool:  # which equals a number
                    return None
                v, states = known[name]
                hard[v] = states[state]
        except (KeyError, TypeError):
            return None
        return hard if len(hard) == self.n == len(evidence) else None


# ---------------------------------------------------------------- one question


@dataclass(eq=False)
class _Question:
    """Targets and evidence's variables by number, and how they are answered."""

    graph: FactorGraph
    targets: tuple[int, ...]
    form: str  # "one", "joint" or "all"
    hard: tuple[int, ...]
    soft: tuple[int, ...]
    solver: Solver | None
    check: bool
    plan: Plan

    @classmethod
    def of(
        cls,
        graph: FactorGraph,
        targets: Any,
        hard: tuple[int, ...],
        soft: tuple[int, ...],
        solver: Solver | None,
        check: bool,
    ) -> _Question:
        with _LOCK:
            kept = _PLANS.setdefault(graph, OrderedDict())
        key: Any = None  # no bools, which equal numbers
        if targets.__class__ in (str, int, NoneType):
            key = targets, hard, soft, check, solver is None
        elif isinstance(targets, (list, tuple)) and bool not in map(type, targets):
            key = tuple(targets), hard, soft, check, solver is None
        try:
            found = None if key is None else kept.get(key)
        except TypeError:  # something that is not a variable
            key = found = None
        if found is None:
            check_flag("check", check)
            which, form = _targets(graph, targets)
            if form == "joint":
                check_size(graph, which)
            plan: Any = None
            if solver is not None:
                plan = Unplanned(graph, which, hard, soft, form == "all", check)
            elif form == "one" and check and not soft:
                plan = Tabled.of(graph, which[0], hard)
            if plan is None:
                plan = plan_for(graph, which, hard, soft, whole=form == "all", check=check)
            found = which, form, plan
            with _LOCK:
                if key is not None:
                    kept[key] = found
                _forget(graph, kept)
        which, form, plan = found
        return cls(graph, which, form, hard, soft, solver, check, plan)

    def answer(
        self, hard: Mapping[int, int], soft: Mapping[int, NDArray[np.float64]]
    ) -> Posterior | Joint | Marginals:
        if self.graph._field is not None or soft:
            self._check_field(hard, soft)
        try:
            return self._answer(hard, soft)
        except ContradictionError as error:
            raise located(error, self.graph, hard, soft) from None

    def _answer(
        self, hard: Mapping[int, int], soft: Mapping[int, NDArray[np.float64]]
    ) -> Posterior | Joint | Marginals:
        if self.solver is not None:
            return self._solve(self.solver, hard, soft)
        plan = self.plan
        place = plan.place
        if plan.known_states:
            for v, state in hard.items():
                if plan.known_states.get(place.get(v, -1), state) != state:
                    raise ContradictionError(IMPOSSIBLE)
        if self.form == "one" and not soft and plan.single is not None:
            p, unsafe = plan.single([hard[v] for v in plan.order])
            if not unsafe:
                log_z = p.item(-1)
                if log_z == -math.inf:
                    raise ContradictionError(IMPOSSIBLE)
                return self._posterior(self._of_target(p[:-1], hard), hard, soft, log_z)
        row = plan.nothing_known.copy()
        for v, state in hard.items():
            if v in place:
                row[0, place[v]] = state
        field = self._field(soft)
        if self.form == "joint":
            return self._joint(hard, soft, row, field)
        found = plan.run(row, field)
        log_z = float(found.log_z[0])
        if log_z == -math.inf:
            raise ContradictionError(IMPOSSIBLE)
        if self.form == "all":
            return self._all(hard, soft, found.probs[0], log_z)
        return self._posterior(self._of_target(found.probs[0], hard), hard, soft, log_z)

    def _of_target(self, p: NDArray, hard: Mapping[int, int]) -> NDArray[np.float64]:
        """The one target's among a row's probabilities."""
        plan, t = self.plan, self.targets[0]
        if plan.target >= 0:
            return p
        if t in hard:
            p = np.zeros(int(self.graph._n_states[t]))
            p[hard[t]] = 1.0
            return p
        v = plan.place[t]
        return p[plan.offsets[v] : plan.offsets[v + 1]]

    # ------------------------------------------------------------ forms of answers

    def _posterior(
        self, p: NDArray, hard: Mapping[int, int], soft: Mapping[int, NDArray], log_z: float
    ) -> Posterior:
        graph, t = self.graph, self.targets[0]
        out = p.view(Posterior)
        out.variable = graph.names[t] if graph.names else f"x{t}"
        out.states = graph._states[t] if graph._states else None
        out._ask = lambda: self.log_evidence(hard, soft, log_z)
        out.flags.writeable = False
        return out

    def _joint(
        self,
        hard: Mapping[int, int],
        soft: Mapping[int, NDArray],
        row: NDArray[np.int32],
        field: NDArray[np.float64] | None,
    ) -> Joint:
        graph, plan = self.graph, self.plan
        free = [t for t in self.targets if t not in hard]
        order = in_order(graph, free) if free else []
        if not free:
            log_z = float(plan.run(row, field).log_z[0])
            if log_z == -math.inf:
                raise ContradictionError(IMPOSSIBLE)
            table: NDArray[np.float64] = np.ones(())
        elif math.prod(int(graph._n_states[t]) for t in order[1:]) * plan.cells > MOST_ROW_CELLS:
            known = row.copy()
            whole = plan.with_evidence(known[0], None if field is None else field[0])
            answer = Exact()(whole)
            table = answer.joint(*(plan.place[t] for t in free)).table
            log_z = answer.log_z
        else:
            table, log_z = plan.joint([plan.place[t] for t in order], row, field)
            now = [*order[1:], order[0]]
            table = table.transpose([now.index(t) for t in free])
        return self._named(_expanded(graph, self.targets, hard, table), hard, soft, log_z)

    def _named(
        self, table: NDArray, hard: Mapping[int, int], soft: Mapping[int, NDArray], log_z: float
    ) -> Joint:
        graph = self.graph
        return Joint(
            table,
            tuple(graph.name(t) for t in self.targets),
            tuple(graph.states(t) for t in self.targets),
            (),
            lambda: self.log_evidence(hard, soft, log_z),
            lambda cells: self.logs(cells, hard, soft),
        )

    def _all(
        self, hard: Mapping[int, int], soft: Mapping[int, NDArray], probs: NDArray, log_z: float
    ) -> Marginals:
        graph = self._with(hard, soft)
        own = probs[: int(graph._offsets[-1])].copy()
        return Posteriors(
            graph, own, _EXACTLY, Status.EXACT, LogZ.EXACT, state=_Later(graph, log_z)
        )

    def _solve(
        self, solver: Solver, hard: Mapping[int, int], soft: Mapping[int, NDArray]
    ) -> Posterior | Joint | Marginals:
        if self.form == "all":
            answer = solver(self._with(hard, soft))
            return Posteriors.of(answer, solver) if type(answer) is Marginals else answer
        part = self.plan.part
        place = self.plan.place
        graph = part.graph.tilt(log_field(part.graph, place, soft)) if soft else part.graph
        (solver,) = in_parts(solver, self.graph, [part])
        answer = solver(graph.with_evidence({place[v]: s for v, s in hard.items() if v in place}))
        where = [place[t] for t in self.targets]
        if self.form == "one":
            return self._posterior(np.array(answer[where[0]]), hard, soft, answer.log_z)
        joint = answer.joint(*where)
        return replace(self._named(joint.table, hard, soft, answer.log_z), _logs=joint._logs)

    # ------------------------------------------------------------ evidence

    def _with(self, hard: Mapping[int, int], soft: Mapping[int, NDArray]) -> FactorGraph:
        return self.graph._observing(hard, soft)

    def _field(self, soft: Mapping[int, NDArray]) -> NDArray[np.float64] | None:
        if not self.soft:
            return None
        plan = self.plan
        return log_field(plan.graph, plan.place, soft)[None]

    def _check_field(self, hard: Mapping[int, int], soft: Mapping[int, NDArray]) -> None:
        """A variable with no state left, by the model's own field, evidence and soft evidence."""
        graph = self.graph
        if self.check and graph._field is not None and graph.n_variables:
            nothing = np.maximum.reduceat(graph._field, graph._offsets[:-1]) == -np.inf
            if nothing.any():
                name = visible(graph.name(int(np.argmax(nothing))))
                raise ContradictionError(f"the model's own evidence leaves {name} no state")
        for v in (*hard, *soft):
            lo, hi = int(graph._offsets[v]), int(graph._offsets[v + 1])
            left = graph.field[lo:hi] > -np.inf
            if v in soft:
                left = left & (soft[v] > 0.0)
            if not (left[hard[v]] if v in hard else left.any()):
                raise ContradictionError(
                    f"evidence on {graph.name(v)} contradicts earlier evidence, which excludes it"
                )

    def log_evidence(
        self, hard: Mapping[int, int], soft: Mapping[int, NDArray], log_z: float
    ) -> float:
        """log P(evidence): of all of it, the model's own field included."""
        base = log_z_without_evidence(self.graph, self.solver)
        if self.plan.part.whole:
            return log_z - base
        asked = _Question.of(self.graph, (), self.hard, self.soft, self.solver, self.check)
        return asked.log_z(hard, soft) - base

    def logs(
        self, cells: NDArray[np.int64], hard: Mapping[int, int], soft: Mapping[int, NDArray]
    ) -> NDArray[np.float64]:
        """log P(targets, evidence) of states of the targets (n, k), less a constant, (n,)."""
        observed = tuple(sorted({*hard, *self.targets}))
        plan = _Question.of(self.graph, (), observed, self.soft, None, self.check).plan
        rows = np.repeat(plan.nothing_known, len(cells), axis=0)
        for v, state in hard.items():
            rows[:, plan.place[v]] = state
        able = np.ones(len(cells), dtype=bool)
        for a, t in enumerate(self.targets):
            if t in hard:
                able &= cells[:, a] == hard[t]
            rows[:, plan.place[t]] = cells[:, a]
        able[able] = [plan.check_known(row) for row in rows[able]]
        field = None
        if soft:
            field = np.repeat(log_field(plan.graph, plan.place, soft)[None], able.sum(), axis=0)
        out = np.full(len(cells), -np.inf)
        if able.any():
            out[able] = plan.run(rows[able], field).log_z
        return out

    def log_z(self, hard: Mapping[int, int], soft: Mapping[int, NDArray]) -> float:
        """log Z of the part that has a say in it."""
        plan = self.plan
        if self.solver is not None:
            place, graph = plan.place, plan.part.graph
            graph = graph.tilt(log_field(graph, place, soft)) if soft else graph
            (solver,) = in_parts(self.solver, self.graph, [plan.part])
            return solver(graph.with_evidence({place[v]: s for v, s in hard.items()})).log_z
        row = plan.nothing_known.copy()
        for v, state in hard.items():
            row[0, plan.place[v]] = state
        if not plan.check_known(row[0]):
            return -math.inf
        return float(plan.run(row, self._field(soft)).log_z[0])


def _cells(found: Any) -> float:
    """Of a plan that is kept; none where the model is solved anew each time."""
    plan = found[-1] if isinstance(found, tuple) else None  # log Z is kept among them, a number
    return plan.cells if plan is not None and plan.cells < math.inf else 0.0


def _forget(graph: FactorGraph, kept: OrderedDict[Any, Any]) -> None:
    """Drop the oldest plans where there are too many, or too many cells; the newest stays.

    Questions by name, which hold plans too, are forgotten with them.
    """
    sizes = [_cells(found) for found in kept.values()]
    cells = sum(sizes)
    for size in sizes[:-1]:
        if len(kept) <= MOST_PLANS and cells <= MOST_CELLS:
            return
        kept.popitem(last=False)
        _READERS.pop(graph, None)
        cells -= size


class Unplanned:
    """The pruned part alone, for a solver of the caller's."""

    cells = math.inf

    def __init__(
        self,
        graph: FactorGraph,
        targets: tuple[int, ...],
        hard: tuple[int, ...],
        soft: tuple[int, ...],
        whole: bool,
        check: bool,
    ) -> None:
        self.part = prune(graph, targets, hard, soft, whole=whole, check=check)
        self.n_variables = len(self.part.variables)
        self.place = {v: k for k, v in enumerate(self.part.variables.tolist())}


@dataclass(eq=False)
class _Later:
    """State of marginals of all variables: the factors' joints are computed when asked for."""

    graph: FactorGraph
    value: float
    _answer: Marginals | None = None

    def log_z(self) -> float:
        return self.value

    @property
    def state(self) -> Any:
        if self._answer is None:
            self._answer = Exact()(self.graph)
        return self._answer.state

    def factor(self, factor: int) -> NDArray[np.float64] | None:
        return self.state.factor(factor)

    def factors(self, factors: NDArray[np.int64]) -> NDArray[np.float64] | None:
        return self.state.factors(factors)

    def joint(self, variables: list[int]) -> NDArray[np.float64]:
        return self.state.joint(variables)


def log_z_without_evidence(graph: FactorGraph, solver: Solver | None = None) -> float:
    """log Z of the factors alone: 0 of a Bayesian network, without any work."""
    with _LOCK:
        kept = _PLANS.setdefault(graph, OrderedDict())
    key = ("log Z", repr(solver))
    found: float | None = kept.get(key)
    if found is None:
        bare = graph if graph._field is None else graph._renumbered(_field=None)
        part = prune(bare, (), (), whole=True)
        if not len(part.factors) and not len(part.variables):
            found = 0.0
        elif solver is None and (small := JointTable.of(bare)) is not None:
            found = small.log_z()
        else:
            found = _Question.of(bare, (), (), (), solver, True).log_z({}, {})
        with _LOCK:
            kept[key] = found
    return found


# ---------------------------------------------------------------- reading what was given


def _check_some(targets: Any) -> None:
    if isinstance(targets, (list, tuple)) and not targets:
        raise ModelError("query: name at least one target, or give None for all variables")


def _targets(graph: FactorGraph, targets: Any) -> tuple[tuple[int, ...], str]:
    if targets is None:
        return tuple(range(graph.n_variables)), "all"
    if isinstance(targets, str) or integer(targets) is not None:
        return (graph.index(targets),), "one"
    which = tuple(_variables(graph, targets, "targets"))
    return (which, "joint") if which else ((), "all")


def _variables(graph: FactorGraph, names: Any, what: str) -> list[int]:
    named = as_list(names, f"{what}: a list of variables", ModelError)
    found = [graph.index(v) for v in named]
    if (twice := first_twice(found)) is not None:
        raise ModelError(f"{what}: {graph.name(twice)} is named twice")
    return found


def _expanded(
    graph: FactorGraph, targets: tuple[int, ...], hard: Mapping[int, int], table: NDArray
) -> NDArray[np.float64]:
    """A table over the free targets, put back onto all of them."""
    if not any(t in hard for t in targets):
        return table
    out = np.zeros([int(graph._n_states[t]) for t in targets])
    out[tuple(hard[t] if t in hard else slice(None) for t in targets)] = table
    return out
