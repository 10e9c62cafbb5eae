"""``query``: P(targets | evidence), and the prepared question behind it.

A question is planned once (:mod:`minfer.solvers.plans`) for its targets and the variables that are
observed; the next evidence on the same variables only moves numbers. ``query`` keeps the last plans
of each model by itself; :func:`prepare` hands one out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, overload
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_flag, check_graph, integer
from minfer.errors import ContradictionError, EvidenceError, ModelError, RefusedError, visible
from minfer.graph import FactorGraph
from minfer.model.evidence import Evidence, log_field, numbered
from minfer.model.states import Probabilities, is_plain_number
from minfer.say.answers import set_text
from minfer.solvers.base import LogZ, Marginals, Solver, Status, in_parts
from minfer.solvers.conflicts import located
from minfer.solvers.plans import (
    IMPOSSIBLE,
    KEPT,
    MOST_PLANS,
    MOST_ROW_CELLS,
    acted_on,
    check_size,
    in_order,
    kept_of,
    plan_for,
)
from minfer.solvers.pruning import prune

if TYPE_CHECKING:
    from minfer.model.joint import Joint

_NOTHING: dict[int, NDArray[np.float64]] = {}
_SHOWN = 4  # pieces of evidence that a posterior names


def _exactly() -> Solver:
    from minfer.solvers.exact import Exact  # needed by few questions

    return Exact()


#: Observed states, and likelihoods of soft evidence, by variables' numbers.
Given = tuple[Mapping[int, int], Mapping[int, NDArray[np.float64]]]


class Posterior(Probabilities):
    """P(target | evidence), shape (S,); also by the states' names, as in ``p["yes"]``."""

    variable: str = ""
    states: tuple[str, ...] | None = None
    _set: str = ""  # what do= has set, in words
    #: The question, its model, the evidence, and log Z of what it was answered by.
    _asked: tuple[_Question, FactorGraph, Given, float] | None = None

    def __array_finalize__(self, other: Any) -> None:
        if isinstance(other, Posterior):
            self.__dict__.update(other.__dict__)

    @property
    def _title(self) -> str:
        """With the evidence, if there is not much."""
        title = super()._title
        if self._asked is None or not title.endswith(")"):
            return title
        from minfer.say.answers import evidence_text

        _, graph, (hard, soft), _ = self._asked
        known = dict(list({**hard, **soft}.items())[:_SHOWN])
        more = ", ..." * (len(hard) + len(soft) > _SHOWN)
        given = ", ".join(filter(None, (self._set, evidence_text(graph, known))))
        return f"{title[:-1]}{f' | {visible(given)}{more}' if given else ''})"

    @property
    def log_evidence(self) -> float:
        """Log of the probability of all evidence, the model's own field too; on first access."""
        if self._asked is None:
            return math.nan
        question, graph, given, log_z = self._asked
        return question.log_evidence(graph, given, log_z)


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


@overload
def query(
    model: FactorGraph,
    targets: int | str,
    evidence: Evidence | None = None,
    *,
    do: Evidence | None = None,
    solver: Solver | None = None,
    check: bool = True,
) -> Posterior: ...


@overload
def query(
    model: FactorGraph,
    targets: list[int] | list[str] | tuple[int | str, ...],
    evidence: Evidence | None = None,
    *,
    do: Evidence | None = None,
    solver: Solver | None = None,
    check: bool = True,
) -> Joint: ...


@overload
def query(
    model: FactorGraph,
    targets: None = None,
    evidence: Evidence | None = None,
    *,
    do: Evidence | None = None,
    solver: Solver | None = None,
    check: bool = True,
) -> Marginals: ...


@overload
def query(
    model: FactorGraph,
    targets: int | str | Sequence[int | str] | None = None,
    evidence: Evidence | None = None,
    *,
    do: Evidence | None = None,
    solver: Solver | None = None,
    check: bool = True,
) -> Posterior | Joint | Marginals: ...


def query(
    model: FactorGraph,
    targets: int | str | Sequence[int | str] | None = None,
    evidence: Evidence | None = None,
    *,
    do: Evidence | None = None,
    solver: Solver | None = None,
    check: bool = True,
) -> Posterior | Joint | Marginals:
    """P(targets | evidence), or P(targets | do(what is set), evidence), exactly.

    Parameters
    ----------
    model : FactorGraph
    targets : a variable, several, or None for all
        By name or number.
    evidence : {variable: state, or likelihoods}
        States by name or number. Soft (virtual) evidence is a likelihood for each state, a list or
        ``{"LOW": 0.2, "HIGH": 0.8}``; states left out have 0.
    do : {variable: state}, optional
        Of a Bayesian network: variables that are set, whatever their parents say
        (:meth:`FactorGraph.with_do`). Evidence is what is seen after that, on other variables.
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
        Marginals of every variable. All three have ``log_evidence`` (under ``do``, if anything is
        set) and ``to_pandas()``.

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

    Wet grass is a sign of rain, but a hose does not make it rain:

    >>> float(minfer.query(g, "rain", do={"wet": "yes"})["yes"].round(4))
    0.2
    """
    if do is not None:
        check_graph(model, "query")
        acted = acted_on(model, do, evidence)
        answer = query(acted, targets, evidence, solver=solver, check=check)
        return _naming(answer, model, do)
    key = asked = hard = None
    if solver is None and check is True and targets.__class__ in (str, int, NoneType):
        given = {} if evidence is None else evidence
        try:
            key = (targets, *given)
            known = KEPT.get(model)
            asked = None if known is None else known.asked.get(key)
            hard = None if asked is None else asked.states(given)
        except TypeError:  # something that is not a model or a variable, or no evidence
            key = asked = None
        if asked is not None and hard is not None:
            return asked.answer((hard, _NOTHING))
    check_graph(model, "query")
    _check_some(targets)
    check_flag("check", check)
    hard, soft = numbered(model, {} if evidence is None else evidence)
    if targets is None and solver is None and not hard and not soft:
        return Posteriors.of(_exactly()(model), None)  # nothing a plan could be used for again
    asked = _Question(model, targets, hard, soft, solver, check)
    if key is not None and not soft:
        known = kept_of(model)
        if len(known.asked) >= MOST_PLANS:
            known.asked.clear()
        known.asked[key] = asked
    return asked.answer((hard, soft))


def prepare(
    model: FactorGraph,
    targets: int | str | Sequence[int | str] | None = None,
    observed: Iterable[int | str] = (),
    *,
    soft: Iterable[int | str] = (),
    do: Evidence | None = None,
    solver: Solver | None = None,
    check: bool = True,
) -> Query:
    """A question planned for evidence on the variables ``observed``, to be called with it.

    For each of the variables ``soft``, calls give likelihoods; what ``do`` sets is the same in all.
    Others as in :func:`query`.

    Examples
    --------
    >>> import minfer
    >>> from minfer.examples import sprinkler
    >>> rain = minfer.queries.prepare(sprinkler(), "rain", ["wet_grass"])
    >>> [rain({"wet_grass": s}).round(3).tolist() for s in (0, 1)]
    [[0.954, 0.046], [0.346, 0.654]]
    """
    return Query(model, targets, observed, soft=soft, do=do, solver=solver, check=check)


class Query:
    """A prepared question: see :func:`prepare`. Calls may come from several threads."""

    def __init__(
        self,
        model: FactorGraph,
        targets: int | str | Sequence[int | str] | None = None,
        observed: Iterable[int | str] = (),
        *,
        soft: Iterable[int | str] = (),
        do: Evidence | None = None,
        solver: Solver | None = None,
        check: bool = True,
    ) -> None:
        check_graph(model, "prepare")
        _check_some(targets)
        hard = model._indices(observed, "observed")
        softly = model._indices(soft, "soft")
        if set(hard) & set(softly):
            raise EvidenceError(
                f"{model.name(min(set(hard) & set(softly)))} cannot be observed and have soft "
                "evidence; give it one likelihood for each state"
            )
        self._before, self._do = model, do
        self.model = acted_on(model, do, dict.fromkeys((*hard, *softly), 0))
        self._asked = _Question(self.model, targets, hard, softly, solver, check)

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
        return len(self._asked.part.variables)

    def __call__(self, evidence: Evidence | None = None) -> Posterior | Joint | Marginals:
        """The answer for evidence on the variables that were prepared for."""
        found = self._asked.states({} if evidence is None else evidence)
        if found is not None:
            return _naming(self._asked.answer((found, _NOTHING)), self._before, self._do)
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
        return _naming(self._asked.answer((hard, soft)), self._before, self._do)

    def __repr__(self) -> str:
        what = ", ".join(self.targets) if len(self.targets) < 6 else f"{len(self.targets)} targets"
        shown = ", ".join(filter(None, (set_text(self._before, self._do), *self.observed)))
        given = f" | {shown}" if shown else ""
        return f"Query(P({what}{given}), {self.n_variables} variables left)"


def _naming(
    answer: Posterior | Joint | Marginals, model: FactorGraph, do: Evidence | None
) -> Posterior | Joint | Marginals:
    """An answer that says what was set, where it shows what it was asked."""
    if do and isinstance(answer, Posterior):
        answer._set = set_text(model, do)
    return answer


class _Question:
    """Targets and evidence's variables by number, and how they are answered; kept by the model."""

    def __init__(
        self,
        graph: FactorGraph,
        targets: Any,
        hard: Iterable[int],
        soft: Iterable[int],
        solver: Solver | None,
        check: bool,
    ) -> None:
        check_flag("check", check)
        self._of = ref(graph)
        self.hard, self.soft = tuple(sorted(hard)), tuple(sorted(soft))
        self.solver, self.check = solver, check
        self._refused = 0  # how often no clique tree fitted
        self.targets, self.form = _targets(graph, targets)
        if self.form == "joint":
            check_size(graph, self.targets)
        every = self.form == "all"
        self.plan: Any = None
        if solver is None:
            self.plan = plan_for(
                graph, self.targets, self.hard, self.soft, each=every and bool(self.targets),
                whole=every, check=check, small=self.form == "one" and check and not self.soft,
            )  # fmt: skip
            self.part = self.plan.part
        else:
            self.part = prune(graph, self.targets, self.hard, self.soft, whole=every, check=check)
        self.place = {v: k for k, v in enumerate(self.part.variables.tolist())}
        self.decided: dict[int, int] = {} if self.plan is None else self.plan.decided
        self.single = self.plan.single if self.form == "one" and self.plan and not soft else None
        self.careful = graph._field is not None or bool(self.soft or self.decided)
        self.title: tuple[str, tuple[str, ...] | None] = "", None
        if self.form == "one":
            t = self.targets[0]
            self.title = graph.name(t), graph._states[t] if graph._states else None
        #: Of each observed variable, by name and number: its number, and that of its states.
        self._known: dict[Any, tuple[int, dict[Any, int]]] | None = None

    @property
    def graph(self) -> FactorGraph:
        found = self._of()
        assert found is not None
        return found

    # ------------------------------------------------------------ evidence as it mostly is given

    def _names(self) -> dict[Any, tuple[int, dict[Any, int]]]:
        graph = self.graph
        found: dict[Any, tuple[int, dict[Any, int]]] = {}
        for v in self.hard:
            states = graph.states(v)
            known: dict[Any, int] = {s: k for k, s in enumerate(states)}
            found[graph.name(v)] = (
                v, known | {k: k for k in range(len(states)) if is_plain_number(states, k)}
            )  # fmt: skip
            found[v] = v, known | {k: k for k in range(len(states))}
        return found

    def states(self, evidence: Any) -> dict[int, int] | None:
        """The observed states, or None where it takes a closer look."""
        if self.soft or evidence.__class__ is not dict:
            return None
        hard: dict[int, int] = {}
        known = self._known
        if known is None:
            known = self._known = self._names()
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
        return hard if len(hard) == len(self.hard) == len(evidence) else None

    # ------------------------------------------------------------ answers

    def answer(self, given: Given) -> Posterior | Joint | Marginals:
        graph, hard = self.graph, given[0]
        try:
            if self.careful:
                self._check(given)
            if self.solver is not None:
                return self._solve(self.solver, given)
            if self.single is not None:
                p, unsafe = self.single([hard[v] for v in self.plan.order])
                if not unsafe:
                    log_z = p.item(-2)
                    if log_z == -math.inf:
                        raise ContradictionError(IMPOSSIBLE)
                    p = p[:-2] if self.plan.target >= 0 else self._of_target(p, hard)
                    return self._posterior(graph, p, given, log_z)
            if not self.plan.fits and (known := self._compiled(given)) is not None:
                return known
            try:
                if self.form == "joint":
                    return self._joint(given)
                probs, log_z = self._row(given)
                if self.form == "all":
                    return self._all(given, probs, log_z)
            except RefusedError:
                return self._without_a_tree(given)
            return self._posterior(graph, self._of_target(probs, hard), given, log_z)
        except ContradictionError as error:
            raise located(error, graph, *given) from None

    def _compiled(self, given: Given) -> Posterior | Joint | Marginals | None:
        """The answer by the model's circuit, if it has been compiled with this evidence free."""
        if "circuit" not in self.graph._conditioning:
            return None
        from minfer.solvers.circuit import kept_circuit

        whole = self.graph._observing(*given)
        circuit = kept_circuit(whole)
        if circuit is None:
            return None
        answer = circuit._at(whole)
        return self._told(answer, self.targets, circuit.solver, given)

    def _without_a_tree(self, given: Given) -> Posterior | Joint | Marginals:
        """By whatever else is exact; a question that is asked again has a circuit compiled."""
        self._refused += 1
        if self._refused == 2:
            from minfer.solvers.circuit import Circuit, keep_circuit
            from minfer.solvers.exact import CIRCUIT_GIB, Exact

            solver = Exact(method="circuit", max_gib=CIRCUIT_GIB)
            with suppress(RefusedError):
                keep_circuit(Circuit(solver, self.graph, (*self.hard, *self.soft)))
        known = self._compiled(given)
        return self._solve(_exactly(), given) if known is None else known

    def _row(self, given: Given) -> tuple[NDArray[np.float64], float]:
        probs, log_z = self.plan.run(self.plan.row(given[0]), self._field(given[1]))
        if log_z[0] == -math.inf:
            raise ContradictionError(IMPOSSIBLE)
        return probs[0], float(log_z[0])

    def _of_target(self, p: NDArray, hard: Mapping[int, int]) -> NDArray[np.float64]:
        """The one target's among a row's probabilities."""
        plan, t = self.plan, self.targets[0]
        if plan.target >= 0:
            return p
        if t in hard:
            p = np.zeros(int(self.graph._n_states[t]))
            p[hard[t]] = 1.0
            return p
        v = self.place[t]
        return p[plan.offsets[v] : plan.offsets[v + 1]]

    # ------------------------------------------------------------ forms of answers

    def _posterior(self, graph: FactorGraph, p: NDArray, given: Given, log_z: float) -> Posterior:
        out = p.view(Posterior)
        out.variable, out.states = self.title
        out._asked = self, graph, given, log_z
        out.setflags(write=False)
        return out

    def _joint(self, given: Given) -> Joint:
        graph, plan, hard = self.graph, self.plan, given[0]
        free = [t for t in self.targets if t not in hard]
        order = in_order(graph, free)
        row, field = plan.row(hard), self._field(given[1])
        if not free:
            table, log_z = np.ones(()), self._row(given)[1]
        elif math.prod(int(graph._n_states[t]) for t in order[1:]) * plan.cells > MOST_ROW_CELLS:
            answer = _exactly()(plan.with_evidence(row[0], None if field is None else field[0]))
            table, log_z = answer.joint(*(self.place[t] for t in free)).table, answer.log_z
        else:
            table, log_z = plan.joint([self.place[t] for t in order], row, field)
            now = [*order[1:], order[0]]
            table = table.transpose([now.index(t) for t in free])
        if len(free) < len(self.targets):  # put back onto all of them
            whole = np.zeros([int(graph._n_states[t]) for t in self.targets])
            whole[tuple(hard.get(t, slice(None)) for t in self.targets)] = table
            table = whole
        return self._named(table, given, log_z)

    def _named(self, table: NDArray, given: Given, log_z: float) -> Joint:
        from minfer.model.joint import Joint

        graph = self.graph
        return Joint(
            table,
            tuple(graph.name(t) for t in self.targets),
            tuple(graph.states(t) for t in self.targets),
            (),
            lambda: self.log_evidence(graph, given, log_z),
            lambda cells: self.logs(graph, cells, given),
        )

    def _all(self, given: Given, probs: NDArray, log_z: float) -> Marginals:
        graph = self.graph._observing(*given)
        own = probs[: int(graph._offsets[-1])].copy()
        state = _Later(graph, log_z)
        return Posteriors(graph, own, _exactly(), Status.EXACT, LogZ.EXACT, state=state)

    def _solve(self, solver: Solver, given: Given) -> Posterior | Joint | Marginals:
        if self.form == "all":
            return self._told(solver(self.graph._observing(*given)), (), solver, given)
        where = [self.place[t] for t in self.targets]
        return self._told(self._of_part(solver, given), where, solver, given)

    def _told(
        self, answer: Marginals, where: Sequence[int], solver: Solver, given: Given
    ) -> Posterior | Joint | Marginals:
        """What a solver says of the targets, which have these numbers in its model."""
        if self.form == "all":
            return Posteriors.of(answer, solver) if type(answer) is Marginals else answer
        if self.form == "one":
            return self._posterior(self.graph, np.array(answer[where[0]]), given, answer.log_z)
        joint = answer.joint(*where)
        return replace(self._named(joint.table, given, answer.log_z), _logs=joint._logs)

    def _of_part(self, solver: Solver, given: Given) -> Marginals:
        """What a solver of the caller's says of the part."""
        (hard, soft), place, graph = given, self.place, self.part.graph
        graph = graph.tilt(log_field(graph, place, soft)) if soft else graph
        (solver,) = in_parts(solver, self.graph, [self.part])
        return solver(graph.with_evidence({place[v]: s for v, s in hard.items() if v in place}))

    # ------------------------------------------------------------ evidence

    def _field(self, soft: Mapping[int, NDArray]) -> NDArray[np.float64] | None:
        return log_field(self.part.graph, self.place, soft)[None] if self.soft else None

    def _check(self, given: Given) -> None:
        """A variable with no state left: by the model's zeros alone and evidence, or by the
        model's own field, evidence and soft evidence."""
        graph, (hard, soft) = self.graph, given
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
        if any(hard.get(v, state) != state for v, state in self.decided.items()):
            raise ContradictionError(IMPOSSIBLE)

    def log_evidence(self, graph: FactorGraph, given: Given, log_z: float) -> float:
        """log P(evidence): of all of it, the model's own field included."""
        base = log_z_without_evidence(graph, self.solver)
        if self.part.whole:
            return log_z - base
        return _Question(graph, (), *given, self.solver, self.check).log_z(given) - base

    def logs(
        self, graph: FactorGraph, cells: NDArray[np.int64], given: Given
    ) -> NDArray[np.float64]:
        """log P(targets, evidence) of states of the targets (n, k), less a constant, (n,)."""
        hard, soft = given
        asked = _Question(graph, (), {*hard, *self.targets}, soft, None, self.check)
        rows = np.repeat(asked.plan.row(hard), len(cells), axis=0)
        able = np.ones(len(cells), dtype=bool)
        for a, t in enumerate(self.targets):
            if t in hard:
                able &= cells[:, a] == hard[t]
            rows[:, asked.place[t]] = cells[:, a]
        log_z = asked.plan.run(rows, asked._field(soft))[1]
        return np.where(able, log_z, -np.inf)

    def log_z(self, given: Given) -> float:
        """log Z of the part that has a say in it."""
        if self.solver is not None:
            return self._of_part(self.solver, given).log_z
        try:
            return float(self.plan.run(self.plan.row(given[0]), self._field(given[1]))[1][0])
        except RefusedError:
            return self._of_part(_exactly(), given).log_z


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
            self._answer = _exactly()(self.graph)
        return self._answer.state

    def factor(self, factor: int) -> NDArray[np.float64] | None:
        return self.state.factor(factor)

    def factors(self, factors: NDArray[np.int64]) -> NDArray[np.float64] | None:
        return self.state.factors(factors)

    def joint(self, variables: list[int]) -> NDArray[np.float64]:
        return self.state.joint(variables)


def log_z_without_evidence(graph: FactorGraph, solver: Solver | None = None) -> float:
    """log Z of the factors alone: 0 of a Bayesian network, without any work."""
    known, key = kept_of(graph).asked, ("log Z", repr(solver))
    found: float | None = known.get(key)
    if found is None:
        from minfer.solvers.joint_table import JointTable

        bare = graph if graph._field is None else graph._renumbered(_field=None)
        part = prune(bare, (), (), whole=True)
        if not len(part.factors) and not len(part.variables):
            found = 0.0
        elif solver is None and (small := JointTable.of(bare)) is not None:
            found = small.log_z()
        else:
            found = _Question(bare, (), (), (), solver, True).log_z(({}, {}))
        known[key] = found
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
    which = tuple(graph._indices(targets, "targets"))
    return (which, "joint") if which else ((), "all")
