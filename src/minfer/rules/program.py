"""``minfer.Rules``: predicates, rules and tables in, probabilities as tables out."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from minfer.basics.checks import (
    as_list,
    check_choice,
    check_flag,
    check_number,
    check_solver,
    check_type,
    check_whole,
    warn,
)
from minfer.basics.limits import clock
from minfer.basics.words import counted
from minfer.errors import ContradictionError, ModelError, SettingsError, visible
from minfer.model.states import did_you_mean
from minfer.reduction.objectives import MinJoint
from minfer.rules.answer import Answer
from minfer.rules.formulas import Variable
from minfer.rules.ground import Grounder, Grounding
from minfer.rules.joins import variable_classes
from minfer.rules.lazy import infer_lazily, worth_it
from minfer.rules.model import Model, build
from minfer.rules.parse import Rule, parse_atom, parse_rule
from minfer.rules.plan import Plan, check_size, make_plan
from minfer.rules.schema import Declaration, Observation, Store

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.rules.weights import Learned

MAX_GROUNDINGS = 30_000_000

_LAZY = ("rounds", "sums", "starts")  # settings of lazy grounding
_SMALL = 10_000  # factors up to which the solver may look for an exact answer


class Rules:
    """A program of weighted first-order rules over tables (Markov logic).

    Predicates are stated first, then rules; methods return the program itself, so that they can be
    chained. Nothing is read or joined before it is asked for.

    Parameters
    ----------
    split : bool
        Split formulas into clauses that share their weight, as Alchemy does. By default a
        formula's weight counts where the formula is true: another model, unless it is a clause.
    unbound : "error" or "domain"
        What a variable that no literal binds means: a mistake, or all values of its type.
    memory_limit : str, optional
        For the database, as "2GB"; it spills to disk beyond that.
    threads : int
        Of the database.
    max_groundings : float
        More are refused before any of them is built; in lazy grounding, more that become factors.

    Examples
    --------
    >>> from minfer import Rules
    >>> rules = (
    ...     Rules()
    ...     .closed("friends", [("Anna", "Bob"), ("Bob", "Carl")], types=("person", "person"))
    ...     .open("smokes", ["Anna", "Bob", "Carl"], types=("person",))
    ...     .rule("1.0: friends(x, y) ^ smokes(x) => smokes(y)")
    ...     .evidence("smokes(Anna)")
    ... )
    >>> round(rules.infer().probability("smokes(Bob)"), 3)
    0.65
    """

    def __init__(
        self,
        *,
        split: bool = False,
        unbound: str = "error",
        memory_limit: str | None = None,
        threads: int = 1,
        max_groundings: float = MAX_GROUNDINGS,
    ) -> None:
        check_flag("split", split)
        check_choice("unbound", unbound, ("error", "domain"))
        check_whole("threads", threads, 1)
        check_number("max_groundings", max_groundings, 0.0)
        self.split, self.unbound = split, unbound
        self.memory_limit, self.threads = memory_limit, threads
        self.max_groundings = max_groundings
        self.queried: list[str] | None = None  # predicates that a file asks for
        self.new_constants = False  # whether constants of rules belong to the domains
        self._declared: dict[str, Declaration] = {}
        self._rules: list[Rule] = []
        self._evidence: list[Observation] = []
        self._changed()

    def _changed(self) -> None:
        self._grounder: Grounder | None = None
        self._grounding: Grounding | None = None
        self._model: Model | None = None

    def closed(
        self,
        name: str,
        table: Any,
        *,
        columns: Iterable[str] | None = None,
        types: Iterable[str | None] | None = None,
        symmetric: bool = False,
    ) -> Rules:
        """State a predicate that is true for the rows of a table, and false elsewhere.

        Parameters
        ----------
        name : str
        table : data frame of pandas or polars, Arrow table, columns ``{name: values}``, list of
            tuples or dicts, name of a .csv or .parquet file, list of :class:`~pathlib.Path` of
            such files, ``("file.duckdb", "table")``, for SQLite files too, or
            :class:`minfer.rules.Query`
        columns : the columns that are its arguments; all by default
        types : a name for each argument. Arguments that one variable joins are of one type; named
        types catch mistakes
        symmetric : whether every row counts in both orders
        """
        if table is None:
            raise ModelError(f"closed predicate {visible(name)}: it has no table")
        return self._declare(
            Declaration(
                name, False, table, _names(columns, "columns"), _names(types, "types"),
                symmetric=symmetric,
            )
        )  # fmt: skip

    def open(
        self,
        name: str,
        candidates: Any = None,
        *,
        columns: Iterable[str] | None = None,
        types: Iterable[str | None] | None = None,
        log_odds: float | str | None = None,
        probability: float | str | None = None,
        symmetric: bool = False,
        exactly_one: str | Iterable[str] | None = None,
        at_most_one: str | Iterable[str] | None = None,
    ) -> Rules:
        """State a predicate whose atoms have probabilities.

        Parameters
        ----------
        name : str
        candidates : table, as in :meth:`closed`
            What may be true; the rest is false. None: all values of its types, which must be given.
        columns, types : as in :meth:`closed`
        log_odds, probability : number, or name of a column
            The prior of each candidate; 0, even odds, by default.
        symmetric : whether ``same(x, y)`` is the atom ``same(y, x)``
        exactly_one, at_most_one : names of columns
            Of which exactly (at most) one value is true for each value of the others.
        """
        if exactly_one is not None and at_most_one is not None:
            raise ModelError(
                f"open predicate {visible(name)}: give exactly_one= or at_most_one=, not both"
            )
        if log_odds is not None and probability is not None:
            raise ModelError(
                f"open predicate {visible(name)}: give log_odds= or probability=, not both"
            )
        kinds = _names(types, "types")
        if candidates is None and (not kinds or None in kinds):
            raise ModelError(
                f"open predicate {visible(name)}: give a table of candidates, or the types= of "
                "its arguments; then all combinations of their values are candidates"
            )
        return self._declare(
            Declaration(
                name, True, candidates, _names(columns, "columns"), kinds, log_odds, probability,
                symmetric, _names(exactly_one, "exactly_one") or (),
                _names(at_most_one, "at_most_one") or (),
            )
        )  # fmt: skip

    def _declare(self, d: Declaration) -> Rules:
        if not isinstance(d.name, str) or not d.name.isidentifier():
            raise ModelError(f"a predicate's name must be a word, not {d.name!r}")
        if d.name in self._declared:
            raise ModelError(f"the predicate {visible(d.name)} is stated twice")
        check_flag("symmetric", d.symmetric)
        self._declared[d.name] = d
        self._changed()
        return self

    def rule(
        self,
        text: str,
        weight: float | None = None,
        *,
        weights: Mapping[Any, float] | None = None,
    ) -> Rules:
        """Add a rule: ``"1.5: smokes(x) ^ friends(x, y) => smokes(y)"``, hard with a full stop.

        Parameters
        ----------
        text : str
            ``! ^ v => <=>``, ``EXIST y ...``, comparisons as ``x != y`` or ``a - b > 5``. Words
            with a capital, numbers and quoted strings are constants, other words variables.
            ``+x``: a weight for each value of x.
        weight : float, optional
            Instead of the one in the text; infinite for a hard rule.
        weights : mapping, optional
            Of a rule with ``+``: the value of its variable (a tuple of them, in order of
            appearance) to the weight; others have ``weight``, or 0.
        """
        rule = parse_rule(text)
        if weight is not None:
            if rule.weight is not None:
                raise ModelError(f"{rule.name}: its weight is given twice")
            rule = rule.with_weight(weight)
        if weights is not None:
            rule = replace(rule.with_weights(weights), stated=True)
        self._rules.append(rule)
        self._changed()
        return self

    def evidence(self, *atoms: Any, truth: bool | str = True) -> Rules:
        """What is known about open predicates.

        ``evidence("smokes(Anna)", "!smokes(Bob)")``, or a predicate and a table of its atoms:
        ``evidence("smokes", table)``, ``evidence("smokes", table, truth=False)``, or with the name
        of a column that says which: ``truth="label"``. With ``truth=False`` atoms that are written
        out are false too, and those with a ``!`` true.
        """
        if not isinstance(truth, bool | np.bool_ | str):
            raise SettingsError(
                f"evidence: truth= must be True, False or the name of a column, not {truth!r}"
            )
        if len(atoms) == 2 and isinstance(atoms[0], str) and "(" not in atoms[0]:
            self._evidence.append(Observation(atoms[0], atoms[1], truth))
        else:
            if isinstance(truth, str):
                raise SettingsError("evidence: a column of truths is for a predicate and its table")
            self._evidence += self._observed(atoms, bool(truth))
        self._changed()
        return self

    def _observed(self, atoms: Iterable[str], truth: bool) -> list[Observation]:
        """Atoms that are written out, as one table for each predicate, width and truth."""
        rows: dict[tuple[str, int, bool], list[tuple[str, ...]]] = {}
        for text in atoms:
            atom, yes = parse_atom(text, where="evidence: ")
            row = tuple(t.name if isinstance(t, Variable) else t.text for t in atom.terms)
            rows.setdefault((atom.predicate, len(row), yes == truth), []).append(row)
        return [Observation(name, listed, yes) for (name, _, yes), listed in rows.items()]

    def condition(self, *atoms: str) -> Rules:
        """A copy of the program that also knows these atoms: ``condition("smokes(Anna)")``."""
        out = copy(self)
        out._declared, out._rules = dict(self._declared), list(self._rules)
        out._evidence = list(self._evidence)
        return out.evidence(*atoms)

    def learn(
        self,
        labels: Mapping[str, Any],
        objective: Any = "pseudolikelihood",
        *,
        prior: float | None = 2.0,
        mean: str = "zero",
        truth: bool | str | Mapping[str, bool | str] = True,
        keep: Iterable[str] = (),
        solver: Any = None,
        start: Learned | None = None,
        threshold: float | None = None,
        **settings: Any,
    ) -> Learned:
        """Weights of the rules from labels of the open atoms; hard rules stay as they are.

        Parameters
        ----------
        labels : {predicate: table}
            The rows are true, all other candidates of the predicate false. Evidence is known, not
            learned from.
        objective : "pseudolikelihood", "marginals", or any other of :mod:`minfer.learn`
            Each atom given the labels of all others, by counts that the database makes, without a
            factor graph: fast, but overconfident where rules tie many atoms together. Or the
            loss of the marginals, by a gradient through the solver on the grounded graph: slower,
            and what the answers are judged by.
        prior : float, optional
            Standard deviation of a weight before any labels are seen; None for no prior.
        mean : "zero" or "given"
            What weights are expected to be: 0, or what the rules say.
        truth : bool, name of a column, or {predicate: either}
            With a column that says which rows are true, candidates without a row have no label;
            the objective must then be one on the graph.
        keep : formulas of rules whose weights stay as they are
        solver : of "marginals"; belief propagation by default
        start : weights of another run to begin with
        threshold : float, optional
            For objectives on the graph: leave out groundings whose gain, under the priors and the
            weights of ``start`` (else those in the rules), is below it. Where weights end far from
            those, learn once more with the result as the start.
        settings : of :func:`minfer.learn.fit`, for objectives on the graph

        Examples
        --------
        >>> from minfer import Rules
        >>> rules = Rules().open("coin", list(range(10))).rule("coin(x)")
        >>> learned = rules.learn({"coin": [0, 1, 2, 3, 4, 5, 6]}, prior=None)
        >>> round(learned.program.infer().probability("coin(8)"), 3)
        0.7
        """
        from minfer.rules.weights import learn

        return learn(
            [self], [labels], objective, prior=prior, mean=mean, truth=truth, keep=keep,
            solver=solver, start=start, threshold=threshold, **settings,
        )  # fmt: skip

    def with_weights(self, weights: Mapping[str, Any] | Learned) -> Rules:
        """A copy of the program with other weights: learned ones, or {formula: weight}."""
        from minfer.rules.weights import Learned, with_weights

        given = weights.weights if isinstance(weights, Learned) else weights
        check_type(given, Mapping, "with_weights takes what learn found, or {formula: weight}")
        out = self.condition()
        out._rules = with_weights(self._rules, given)
        return out

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(self._rules)

    @property
    def predicates(self) -> tuple[str, ...]:
        return tuple(self._declared)

    @property
    def grounder(self) -> Grounder:
        """The rules over their tables in the database, read when first asked for."""
        if self._grounder is None:
            store = Store(
                list(self._declared.values()), self._rules, self._evidence,
                memory_limit=self.memory_limit, threads=self.threads,
                new_constants=self.new_constants,
            )  # fmt: skip
            self._grounder = Grounder(store, self._rules, self.split, self.unbound == "domain")
            for rule in self._rules:
                if rule.stated:
                    self._check_values(store, rule)
        return self._grounder

    def _check_values(self, store: Store, rule: Rule) -> None:
        """Warn of weights for values that no table has."""
        classes = variable_classes(store, rule.formula)
        for k, name in enumerate(rule.plus):
            table, _ = store.domain(classes[name])
            codes = store.con.arrays(f"select v from {table}")["v"]
            values = set(store.texts(codes, classes[name]))
            for key, _ in rule.weights or ():
                if key[k] not in values:
                    hint = did_you_mean(key[k], values)
                    called = store.coding(classes[name]).called
                    warn(
                        f"{rule.name}: it has a weight for {visible(key[k])}, which is in no table "
                        f"of {called}{hint}"
                    )
                    return

    @property
    def store(self) -> Store:
        """The tables in the database."""
        return self.grounder.store

    def plan(self) -> Plan:
        """Atoms, and groundings of each rule, counted by the database before anything is built."""
        return make_plan(self.grounder)

    def ground(self) -> Grounding:
        """All factors, before they have weights."""
        if self._grounding is None:
            check_size(self.grounder, self.max_groundings)
            self._grounding = self.grounder.ground()
        return self._grounding

    @property
    def model(self) -> Model:
        """The factor graph of all groundings, and where its factors come from."""
        if self._model is None:
            self._model = build(self.grounder, self.ground())
        return self._model

    def to_graph(self, *, names: bool = True) -> FactorGraph:
        """All groundings as a factor graph: a variable with states 0 and 1 for each atom.

        ``names``: call variables as the atoms are written.
        """
        check_flag("names", names)
        graph = self.model.graph
        if not names:
            return graph
        return replace(graph, names=tuple(self.store.atom_texts(np.arange(self.store.n_atoms))))

    def infer(
        self,
        objective: Any = None,
        solver: Any = None,
        *,
        grounding: str = "auto",
        threshold: float | None = None,
        tolerance: float | None = None,
        **settings: Any,
    ) -> Answer:
        """Probabilities of all open atoms.

        Parameters
        ----------
        objective : MinJoint, MinSize, MinDivergence or Budget, optional
            Which groundings to keep, as in :func:`minfer.infer`; all by default.
        solver : any solver, optional
            Belief propagation by default, and :class:`minfer.Auto` for small programs.
        grounding : "auto", "full" or "lazy"
            Build all groundings, or only those that matter (:mod:`minfer.rules.lazy`): by default
            lazily where counts say that there are many more of them than rows in the tables, but
            no more than 100 billion, and without an objective.
        threshold : float, optional
            For lazy grounding: the gain from which groundings become factors. With a tolerance too,
            where lowering it begins. :class:`minfer.MinJoint` as the objective says the same; other
            objectives need all gains, so they cannot be had lazily.
        tolerance : float, optional
            For lazy grounding: lower the threshold until two answers differ by no more than this on
            average. 1e-3 where neither is given.
        settings
            For :func:`minfer.infer`, with an objective: ``recipe``, ``seed``, ``costs``...
            For lazy grounding: ``rounds`` (2) of selection, ``sums`` of what is left out (1; with
            a tolerance as many as it takes, 10 at most), and ``starts``, other starts of belief
            propagation that the answer is compared with (8 up to 20,000 factors; beyond that 3 with
            a tolerance, none with a threshold alone). Each takes two runs of the solver.
        """
        if solver is not None:
            check_solver(solver)
        began = clock()
        if self._lazily(objective, grounding, threshold, tolerance):
            return self._infer_lazily(objective, solver, threshold, tolerance, settings)
        for name in settings:
            if name in _LAZY:
                raise SettingsError(f"{name}= is for grounding='lazy'")
        model = self.model
        grounded = clock()
        if solver is None:
            solver = default_solver(model.graph)
        if objective is None:
            if settings:
                raise SettingsError(f"infer: {next(iter(settings))}= needs an objective")
            result, marginals = None, self._solved(solver, model.graph)
        else:
            from minfer.reduction.infer import infer

            result = infer(model.graph, objective, solver, **settings)
            marginals = result.marginals
        ended = clock()
        possible = sum(self.ground().bindings)
        timings = {"ground": grounded - began, "infer": ended - grounded}
        return Answer(self, marginals, result, possible, timings)

    def _solved(self, solver: Any, graph: FactorGraph) -> Any:
        """What a solver says; where no world is possible, an error in the words of the rules."""
        try:
            return solver(graph)
        except ContradictionError as error:
            hard = [f"`{visible(rule.text)}`" for rule in self._rules if rule.hard]
            hard += [
                f"one per key of {d.name}" for d in self._declared.values()
                if d.exactly_one or d.at_most_one
            ]  # fmt: skip
            raise ContradictionError(
                "hard rules and evidence contradict each other, so no world is possible; hard "
                f"rules: {', '.join(hard[:5])}{', ...' if len(hard) > 5 else ''} ({error})"
            ) from None

    def _lazily(self, objective: Any, grounding: str, *given: float | None) -> bool:
        check_choice("grounding", grounding, ("auto", "full", "lazy"))
        for name, value in zip(("threshold", "tolerance"), given):
            if value is None:
                continue
            check_number(name, value, 0.0)
            if value == 0.0:
                raise SettingsError(f"{name} must be above 0; grounding='full' leaves nothing out")
            if grounding == "full" or (grounding == "auto" and objective is not None):
                raise SettingsError(f"{name}= is for grounding='lazy'")
        if grounding == "auto":
            asked = any(x is not None for x in given)
            return objective is None and (asked or worth_it(self.grounder))
        return grounding == "lazy"

    def _infer_lazily(
        self,
        objective: Any,
        solver: Any,
        threshold: float | None,
        tolerance: float | None,
        settings: dict[str, Any],
    ) -> Answer:
        from minfer.solvers.bp import BeliefPropagation

        began = clock()
        if objective is not None:
            if not isinstance(objective, MinJoint):
                raise SettingsError(
                    f"{type(objective).__name__} needs the gains of all groundings, also of those "
                    "that lazy grounding never sees; use MinJoint, threshold= or tolerance=, or "
                    "grounding='full'"
                )
            if threshold is not None or not 0.0 < objective.factor_cost < math.inf:
                raise SettingsError(
                    "lazy grounding has one threshold, finite and above 0: that of MinJoint or "
                    "threshold="
                )
            threshold = objective.factor_cost
        for name in settings:
            if name not in _LAZY:
                raise SettingsError(f"infer: {name}= is not a setting of lazy grounding")
        rounds, sums, starts = (
            settings.get("rounds", 2),
            settings.get("sums"),
            settings.get("starts"),
        )
        check_whole("rounds", rounds, 1)
        for name, value in (("sums", sums), ("starts", starts)):
            if value is not None:
                check_whole(name, value, 0)
        rough = None
        if solver is None:
            solver, rough = BeliefPropagation(tol=1e-5), BeliefPropagation(tol=1e-3)
        marginals, how = infer_lazily(
            self.grounder, solver, threshold, tolerance, rounds, sums, self.max_groundings, rough,
            starts,
        )  # fmt: skip
        timings = {"infer": clock() - began}
        return Answer(self, marginals, None, how.possible, timings, how)

    def explain(self, atom: str, answer: Answer | None = None, n: int = 10) -> Any:
        """Why an atom has its probability; see :meth:`Answer.explain`."""
        return (self.infer() if answer is None else answer).explain(atom, n)

    @classmethod
    def read(
        cls,
        program: str | os.PathLike[str],
        evidence: Any = (),
        query: Any = None,
        **settings: Any,
    ) -> Rules:
        """A program of Alchemy or Tuffy: ``.mln``, evidence ``.db`` files and what is asked.

        Parameters
        ----------
        program : name of an .mln file (.gz too)
        evidence : names of .db files
        query : names of predicates, or of a file that lists them; by default all that are not
            declared with a ``*``. They are open; others without a ``*`` are so too, as the rules
            say nothing else of them.
        settings : of :class:`Rules`; ``split=True`` and ``unbound="domain"`` by default here
        """
        from minfer.rules.mln import read_program

        return read_program(cls, program, evidence, query, settings)

    def __repr__(self) -> str:
        closed = [d.name for d in self._declared.values() if not d.open]
        opened = [d.name for d in self._declared.values() if d.open]
        return (
            f"Rules({counted(len(self._rules), 'rule')}; open: {', '.join(opened) or 'none'}; "
            f"closed: {', '.join(closed) or 'none'})"
        )


def default_solver(graph: FactorGraph) -> Any:
    """Exact where that is cheap, else belief propagation."""
    if graph.n_factors <= _SMALL:
        from minfer.solvers.auto import Auto

        return Auto()
    from minfer.solvers.bp import BeliefPropagation

    return BeliefPropagation()


def _names(given: Any, what: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    listed = tuple(as_list(given, f"{what}= must be a list of names", ModelError))
    for name in listed:
        if not isinstance(name, str) and not (what == "types" and name is None):
            raise ModelError(f"{what}= must have names, not {name!r}")
    return listed
