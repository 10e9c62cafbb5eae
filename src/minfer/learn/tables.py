"""Conditional distributions of a Bayesian network from a table: counts, priors, missing values.

The structure is given, the numbers are learned. With nothing missing a family (a variable and its
parents) is counted in one pass. With cells missing, or whole variables hidden, by EM: each step
sums posteriors of all families as counts (:mod:`minfer.learn.families`) and normalises them;
:mod:`minfer.learn.em` says what that maximises.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_choice, real_numbers, warn
from minfer.errors import ContradictionError, EvidenceError, ModelError, SettingsError, visible
from minfer.graph import FactorGraph
from minfer.io import read, write
from minfer.learn.bins import FEW_NUMBERS, MANY_NUMBERS, edges_of_columns
from minfer.learn.case_columns import columns_of, nodes_and_edges, state_name
from minfer.learn.em import Expected, LearnedTables, TablesByEM, dot_logs, drawn_weights
from minfer.learn.families import Families, FamilyCounts, Floats, States, different_rows
from minfer.learn.gates import Draws, Expanded, Gate, expanded, gates_of, learning_of, normalised
from minfer.model.causes import NoisyCauses, with_causes
from minfer.model.directed import network_of, order_or_cycle
from minfer.model.evidence import UNKNOWN, Factorised, StateReader, is_missing
from minfer.model.states import (
    bin_names,
    check_columns,
    declared_states,
    did_you_mean,
    near_names,
    number_of,
)

if TYPE_CHECKING:
    from minfer.io.text import PathLike

PRIORS = ("none", "uniform", "bdeu")
MANY_STATES = 100  # a column with more, most of them in one row only, is noticed


@dataclass(eq=False, repr=False)
class BayesianNetwork(TablesByEM):
    """A Bayesian network whose tables are learned from cases; its structure is given.

    Parameters
    ----------
    structure : edges, mapping, model, path or None
        Edges ``[(parent, child), ...]``, ``{child: [parents]}``, a Bayesian network (a
        `FactorGraph`, or the file of one; its states are the model's), any object with ``nodes``
        and ``edges`` as networkx and pgmpy have them, or None: no edges. Variables are those it
        names (of None: all columns); other columns are not read. Variables without a column are
        hidden. Causes that combine in such a model (`minfer.NoisyOr` and its like) do so in what
        is learned, too; causes that have no effect in some state, and no leak, are kept so.
    prior : "uniform", "bdeu", "none" or {variable: numbers}
        Pseudo-counts: ``strength`` for each cell, for each table, or none. Rows of a table without
        any data are uniform. In Python also numbers by variable: one, or an array (parents...,
        variable), none for those left out.
    strength : float
        Strength of the prior.
    states : {variable: names, or how many}, optional
        Those left out are the values in the data, sorted. Hidden variables need them.
    bins : int, text, list of edges, or {variable: one of these}, optional
        Columns of numbers are put into bins, whose edges are the states' names ("< 4.5", "4.5 to
        6", ">= 6"): 5 or "quantiles:5" for bins of as many rows each, "width:5", "edges:18,65" or
        [18, 65], "supervised:CLASS" for edges that tell most about that column. One for all: for
        columns of numbers that are not all whole, or more than 20. Evidence may be any number.
    missing : strings that mean not observed, besides empty cells, None and NaN
    start : "counts", "random" or "structure"
        Where EM begins: counts of the rows that know a family, random tables, or the tables of the
        model that gives the structure. Families that no row knows begin at random.
    restarts : int
        Times EM is run, from the second on with random tables; the best is kept.
    max_iterations : int
        Steps of EM.
    tol : float
        EM stops where a step raises the objective by at most this share of itself.
    random_state : int or None
        Seed of random starts.
    workers : int
        Threads.

    Attributes
    ----------
    model_ : FactorGraph, for `minfer.query` and `minfer.predict`, written by `save`
    tables_ : {variable: array (parents..., variable)}; of causes that combine, their entry
    parents_, states_ : {variable: list of names}
    bins_ : {variable: edges}, of columns that were put into bins
    counts_ : {variable: array}, the counts, or expected counts, that the tables were made from;
        of causes that combine, {parent: draws (states, S)}, the leak's under None
    objective_ : log P(data) + sum of alpha log theta
    log_likelihood_ : the first part of it
    trace_ : the objective of each iteration, rising
    n_iter_, converged_, status_, advice_

    Examples
    --------
    >>> rows = {"rain": ["no", "no", "yes", None], "wet": ["no", "yes", "yes", "yes"]}
    >>> net = BayesianNetwork([("rain", "wet")], prior="none").fit(rows)
    >>> net.status_, net.tables_["wet"].round(2).tolist()
    ('converged', [[0.4, 0.6], [0.0, 1.0]])
    >>> import minfer
    >>> minfer.predict(net.model_, [{"wet": "yes"}], "rain")[0]["rain"]
    'no'
    """

    _estimator_type = "density_estimator"
    _tags: ClassVar[Mapping[str, Any]] = {
        "input.allow_nan": True,
        "input.categorical": True,
        "input.string": True,
    }

    structure: Any = None
    _: KW_ONLY
    prior: Any = "uniform"
    strength: float = 1.0
    states: Mapping[str, Any] | None = None
    bins: Any = None
    missing: Sequence[str] = ("",)
    start: str = "counts"
    restarts: int = 1
    max_iterations: int = 200
    tol: float = 1e-6
    random_state: int | None = 0
    workers: int = 1

    def _check_settings(self) -> None:
        if not isinstance(self.prior, Mapping):
            check_choice("BayesianNetwork: prior", self.prior, PRIORS)
        super()._check_settings()

    # ------------------------------------------------------------ learning

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the tables from cases: a table of any kind, or a .csv or .parquet file.

        Tables are those of `minfer.predict`: data frames of pandas or polars, Arrow tables, columns
        {name: values}, lists of dicts, arrays (N, V) whose columns are x0, x1, ... ``y`` is
        ignored.
        """
        return self._learn(X, {})

    def _learn(self, X: Any, own: dict[str, Factorised]) -> Self:
        """From cases, and some columns beside them."""
        self._check_settings()
        with columns_of(self, X, True) as (names, read_columns):
            names = [*names, *own]
            variables, parents, given = self._structure(names)
            check_columns(names, variables, "BayesianNetwork")
            columns = read_columns([v for v in variables if v in names and v not in own]) | own
        self.bins_ = self._edges(columns, given)
        gates = gates_of(given) if given is not None else []
        families = self._families(variables, parents, given, columns, names, gates)
        known = self._known(families.graph, columns, "raise")
        n = known.shape[1]
        if not n:
            raise ModelError("BayesianNetwork: there are no rows: 0 sample(s)")
        alone: dict[int, LearnedTables[Draws]] = {}
        parts = None
        if gates:
            apart = self._apart(gates, known)
            alone = self._learn_gates([g for g in gates if apart[g.child]], known)
            parts = expanded(families.graph, families.parents, gates, apart)
            bare, families = families, Families(*parts[:4])
            more = families.graph.n_variables - bare.graph.n_variables
            known = np.concatenate([known, np.full((more, n), -1, dtype=np.int32)])
        alpha = families.learned(self._alpha(families))
        if bool((known >= 0).all()):
            counts = families.counts(known, None)
            theta = families.normalised(counts + alpha)
            likelihood = dot_logs(counts, theta)
            objective = likelihood + dot_logs(alpha, theta)
            found = LearnedTables[Floats](theta, counts, likelihood, [objective], "counted")
        else:
            found = self._by_em(families, known, alpha, given)
        if parts is None:
            self._keep(families, found)
        else:
            self._keep_gates(bare, families, found, gates, alone, parts, n)
        return self

    def _apart(self, gates: Sequence[Gate], known: States) -> NDArray[np.bool_]:
        """Which variables (V,) have a gate whose family every row knows."""
        complete = np.asarray((known >= 0).all(axis=1))
        out = np.zeros(len(known), dtype=bool)
        for gate in gates:
            out[gate.child] = complete[gate.child] and complete[gate.parents].all()
        return out

    def _learn_gates(self, gates: Sequence[Gate], known: States) -> dict[int, LearnedTables[Draws]]:
        """Gates that can be learned by themselves."""
        rng = np.random.default_rng(self.random_state)
        out = {}
        for gate in gates:

            def begin(start: str, own: Draws = gate.draws) -> Draws:
                if start == "structure":
                    return own
                return [
                    normalised(np.where(q > 0.0, drawn_weights(rng, q.shape), 0.0), q) for q in own
                ]

            expect, improved = learning_of(gate, known, self._strength)
            out[gate.child] = self._best_climb(begin, expect, improved)
        return out

    def _strength(self, q: Floats) -> Floats:
        """Pseudo-counts of the draws of one cause."""
        if self.prior == "uniform":
            return np.full(q.shape, self.strength)
        return np.full(q.shape, self.strength / q.size if self.prior == "bdeu" else 0.0)

    def _by_em(
        self, families: Families, known: States, alpha: Floats, given: FactorGraph | None
    ) -> LearnedTables[Floats]:
        """The best of some climbs."""
        rng = np.random.default_rng(self.random_state)
        rows, weight, first = different_rows(known)
        complete = (rows >= 0).all(axis=1)
        sure = families.counts(np.ascontiguousarray(rows[complete].T), weight[complete])
        available = families.counts(np.ascontiguousarray(rows.T), weight)
        engine = FamilyCounts(families, rows[~complete], weight[~complete], first[~complete])

        def begin(start: str) -> Floats:
            if start == "random":
                return families.normalised(drawn_weights(rng, len(alpha)))
            if start == "structure":
                assert given is not None
                said = {**families.fixed, **families.start}
                return np.concatenate([
                    (said[v] if v in said else given.conditional(families.graph.name(v)).table)
                    .ravel()
                    for v in range(families.graph.n_variables)
                ])  # fmt: skip
            theta = families.normalised(available + alpha + 0.1)  # none zero
            for a, b in pairwise(families.ends.tolist()):
                if not available[a:b].any():  # no row knows the family
                    theta[a:b] = drawn_weights(rng, b - a)
            return families.normalised(theta)

        def expect(theta: Floats) -> Expected[Floats]:
            counts, likelihood = engine(theta, self.workers)
            counts += sure
            likelihood += dot_logs(sure, theta)
            value = likelihood + dot_logs(alpha, theta)
            if value == -np.inf:
                raise ContradictionError(
                    "BayesianNetwork: the tables to begin with give the data, or what the prior "
                    'asks for, probability zero; start="counts" does not'
                )
            return Expected(counts, likelihood, value)

        return self._best_climb(
            begin, expect, lambda counts, _: families.normalised(counts + alpha)
        )

    def _keep(self, families: Families, found: LearnedTables[Floats]) -> None:
        graph, ends = families.graph, families.ends.tolist()
        model = network_of(graph, families.scopes, found.theta)
        assert isinstance(model, FactorGraph)  # rows sum to one
        self.model_ = model
        names = [graph.name(v) for v in range(graph.n_variables)]

        def shaped(x: Floats) -> dict[str, Floats]:
            parts = zip(names, families.shapes, pairwise(ends))
            return {name: x[a:b].reshape(shape) for name, shape, (a, b) in parts}

        self.tables_: dict[str, Any] = shaped(found.theta)
        self.counts_: dict[str, Any] = shaped(found.counts)
        self.parents_ = {x: [names[u] for u in families.parents[v]] for v, x in enumerate(names)}
        self.states_ = {x: list(graph.states(v)) for v, x in enumerate(names)}
        self._say(found)

    def _keep_gates(
        self,
        bare: Families,
        families: Families,
        found: LearnedTables[Floats],
        gates: Sequence[Gate],
        alone: dict[int, LearnedTables[Draws]],
        parts: Expanded,
        n: int,
    ) -> None:
        """The same, and gates in place of the tables that stood for them."""
        graph, ends = bare.graph, families.ends.tolist()
        tables = [found.theta[a:b] for a, b in pairwise(ends)]
        counted = [found.counts[a:b] for a, b in pairwise(ends)]
        entries: dict[int, tuple[list[int], NoisyCauses]] = {}
        counts: dict[int, list[Floats]] = {}
        objective, likelihood = found.objective, found.likelihood
        for gate in gates:
            v = gate.child
            if v in alone:
                draws, counts[v] = alone[v].theta, alone[v].counts
                root = n * math.log(gate.size)  # its child stood for itself, uniform
                objective += alone[v].objective + root
                likelihood += alone[v].likelihood + root
            else:
                shapes = [q.shape for q in gate.draws]
                draws = [tables[z].reshape(s) for z, s in zip(parts.draws[v], shapes)]
                counts[v] = [counted[z].reshape(s) for z, s in zip(parts.draws[v], shapes)]
            entries[v] = gate.parents, gate.entry(graph, draws)
        rest = [v for v in range(graph.n_variables) if v not in entries]
        theta = np.concatenate([tables[v] for v in rest])  # of roots at least
        model = network_of(graph, [families.scopes[v] for v in rest], theta)
        assert isinstance(model, FactorGraph)  # rows sum to one
        self.model_ = with_causes(model, entries)
        names = [graph.name(v) for v in range(graph.n_variables)]
        self.tables_, self.counts_, self.parents_ = {}, {}, {}
        for v, name in enumerate(names):
            if v in entries:
                own, entry = entries[v]
                self.tables_[name] = entry
                causes = [*(names[u] for u in own), None]
                self.counts_[name] = dict(zip(causes, counts[v]))
            else:
                own = families.parents[v]
                self.tables_[name] = tables[v].reshape(families.shapes[v])
                self.counts_[name] = counted[v].reshape(families.shapes[v])
            self.parents_[name] = [names[u] for u in own]
        self.states_ = {x: list(graph.states(v)) for v, x in enumerate(names)}
        more, status = objective - found.objective, found.status
        if alone and status in ("counted", "converged"):
            done = all(one.status == "converged" for one in alone.values())
            status = "converged" if done else "out of iterations"
        trace = [value + more for value in found.trace]
        self._say(found._replace(likelihood=likelihood, trace=trace, status=status))
        self.objective_ = objective

    # ------------------------------------------------------------ answers

    def score_samples(self, X: Any) -> Floats:
        """log P of what each row knows, (N,); minus infinity where it is impossible."""
        self._check_fitted("score_samples")
        with columns_of(self, X, False) as (names, read_columns):
            columns = read_columns([v for v in self.tables_ if v in names])
        return self._log_likelihoods(columns)

    def _log_likelihoods(self, columns: dict[str, Factorised]) -> Floats:
        from minfer.solvers.plans import Network

        known = self._known(self.model_, columns, "impossible")
        rows = np.ascontiguousarray(known.T)
        strange = (rows == UNKNOWN).any(axis=1)
        rows[strange] = -1
        out = Network(self.model_).ask(rows, [], self.workers).log_pe
        out[strange] = -np.inf
        return out

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of :meth:`score_samples`; a state never seen makes it minus infinity."""
        return float(np.mean(self.score_samples(X)))

    def save(self, path: PathLike) -> None:
        """Write the network: .bif, .xmlbif, .net, .uai, .fg or .minfer, by the file's name."""
        self._check_fitted("save")
        write(self.model_, path)

    # ------------------------------------------------------------ structure

    def _structure(
        self, names: Sequence[str]
    ) -> tuple[list[str], dict[str, list[str]], FactorGraph | None]:
        """Variables, their parents by name, and the model if one was given."""
        given = self.structure
        if isinstance(given, str | os.PathLike):
            given = read(given)
        if isinstance(given, FactorGraph):
            if not given.directed:
                raise ModelError(
                    "BayesianNetwork: the model that gives the structure is not a Bayesian network"
                )
            variables = [given.name(v) for v in range(given.n_variables)]
            return variables, {v: list(given.parents(v)) for v in variables}, given
        if self.start == "structure":
            raise SettingsError('BayesianNetwork: start="structure" needs a model as structure')
        if given is None:
            given = self._structure_of_none([*names, *(self.states or {})])
        nodes, edges = nodes_and_edges(given)
        parents: dict[str, list[str]] = {name: [] for name in nodes}
        for parent, child in edges:
            parents.setdefault(parent, [])
            parents.setdefault(child, []).append(parent)
        for child, own in parents.items():
            if len({*own, child}) <= len(own):
                raise ModelError(
                    f"BayesianNetwork: {visible(child)} is its own parent, or has a parent twice"
                )
        order = [name for name in names if name in parents]
        order += [name for name in parents if name not in set(names)]
        number = {name: k for k, name in enumerate(order)}
        of = {number[c]: [number[p] for p in own] for c, own in parents.items()}
        if loop := order_or_cycle(of)[1]:
            shown = " <- ".join(visible(order[v]) for v in loop[:8])
            raise ModelError(f"BayesianNetwork: the parents form a cycle: {shown}")
        return order, parents, None

    def _structure_of_none(self, names: list[str]) -> dict[str, Sequence[str]]:
        return dict.fromkeys(names, ())

    def _edges(
        self, columns: dict[str, Factorised], given: FactorGraph | None
    ) -> dict[str, list[float]]:
        """Where columns of numbers are cut."""
        own, bins = self.states or {}, self._cuts()
        if bins is not None and given is not None and self.start == "structure":
            raise SettingsError(
                'BayesianNetwork: start="structure" begins with tables of a model, and bins= would '
                "change the states that they are over"
            )
        if isinstance(bins, Mapping) and (twice := [name for name in bins if name in own]):
            raise SettingsError(
                f"BayesianNetwork: {visible(twice[0])} has states= and bins=: give one of them"
            )
        free = {k: x for k, x in columns.items() if isinstance(bins, Mapping) or k not in own}
        return edges_of_columns(bins, free, frozenset(self.missing), "BayesianNetwork")

    def _cuts(self) -> Any:
        return self.bins

    def _families(
        self,
        variables: list[str],
        parents: dict[str, list[str]],
        given: FactorGraph | None,
        columns: dict[str, Factorised],
        names: Sequence[str],
        gates: Sequence[Gate] = (),
    ) -> Families:
        own = dict(self.states or {})
        for name in own:
            if name not in parents:
                raise SettingsError(
                    f"BayesianNetwork: states: no variable is called {visible(str(name))!r}"
                    f"{did_you_mean(str(name), variables)}"
                )
        said: dict[str, Any] = {}
        for name in variables:
            if name in self.bins_:
                said[name] = list(bin_names(self.bins_[name]))
            elif given is not None:
                said[name] = list(given.states(name)) if given.has_state_names else (
                    int(given._n_states[given.index(name)]))  # fmt: skip
            elif name in own:
                said[name] = own[name]
            elif name in columns:
                said[name] = self._learned_states(name, columns[name])
            else:
                near = near_names(name, [x for x in names if x not in columns])
                hint = f" Did you mean the column {visible(near[0])}?" if near else ""
                raise EvidenceError(
                    f"BayesianNetwork: there is no column {visible(name)!r}: a hidden variable "
                    f"needs states={{{name!r}: 2}}.{hint}"
                )
        sizes, state_names = declared_states(said, "BayesianNetwork")
        graph = FactorGraph.empty(sizes, variables).with_state_names(state_names)
        number = {name: k for k, name in enumerate(variables)}
        of = [[number[p] for p in parents[name]] for name in variables]
        for gate in gates:  # the model's numbers are these
            given_names = [given.name(v) for v in gate.parents] if given is not None else []
            of[gate.child] = []
            if any(name in self.bins_ for name in [*given_names, variables[gate.child]]):
                raise SettingsError(
                    f"BayesianNetwork: {visible(variables[gate.child])} has causes that combine, "
                    "and bins= would change the states that they are over"
                )
        return Families(graph, of)

    def _learned_states(self, name: str, column: Factorised) -> list[str] | int:
        """Names of the values there are, numbers by size; a count where they are 0, 1, ..., K-1."""
        missing = {*self.missing}
        for places in (column.places[:1000], column.places):  # a few rows often show all values
            used = np.bincount(places + 1, minlength=len(column.values) + 1)[1:]
            if used.all():
                break
        values = [column.values[k] for k in np.flatnonzero(used).tolist()]
        texts = {
            state_name(x) for x in values
            if not is_missing(x) and not (isinstance(x, str) and x.strip() in missing)
        }  # fmt: skip
        if not texts:
            raise EvidenceError(
                f"BayesianNetwork: column {visible(name)!r} has no value at all: give its states, "
                f"as states={{{name!r}: 2}}"
            )
        if any(isinstance(x, float | np.floating) and math.isinf(x) for x in values):
            raise EvidenceError(
                f"BayesianNetwork: column {visible(name)!r} has infinity, which is no finite "
                "number: write None or NaN where nothing is known"
            )
        numbers = [number_of(x) for x in texts]
        strangers = sorted(x for x, number in zip(texts, numbers) if number is None)
        nearly = 0 < len(strangers) <= max(1, len(texts) // 10)
        measured = len(texts) > FEW_NUMBERS and any(x is not None and x % 1.0 for x in numbers)
        measured |= nearly and len(texts) - len(strangers) > MANY_NUMBERS
        if len(texts) > max(MANY_STATES, len(column.places) // 2) or measured:
            into = f"bins={{{name!r}: 5}} puts them into five"
            if nearly and len(texts) > FEW_NUMBERS:
                absent = [*self.missing, *strangers]
                into = f"they are numbers without {strangers[0]!r}: missing={absent!r} and {into}"
            elif strangers:
                into = "leave the column out, or give it fewer values"
            warn(
                f"BayesianNetwork: column {visible(name)!r} has {len(texts):,} different values in "
                f"{len(column.places):,} rows, and each becomes a state: {into}"
            )
        if None in numbers:
            return sorted(texts)
        listed = sorted(texts, key=lambda x: number_of(x) or 0.0)
        plain = listed == [str(k) for k in range(len(listed))]
        whole = all(isinstance(x, int | float | np.number) for x in values if not is_missing(x))
        return len(listed) if plain and whole else listed

    def _known(self, graph: FactorGraph, columns: dict[str, Factorised], on_unknown: str) -> States:
        """States (V, N), -1 where nothing is known."""
        n = len(next(iter(columns.values())).places) if columns else 0
        known = np.full((graph.n_variables, n), -1, dtype=np.int32)
        for name, column in columns.items():
            v = graph.index(name)
            reader = StateReader(graph, v, self.missing)
            known[v] = reader(column)
            if on_unknown == "raise" and (fault := reader.fault(column, known[v])):
                row, said = fault
                raise EvidenceError(f"BayesianNetwork: row {row}, column {visible(name)}: {said}")
        return known

    def _alpha(self, families: Families) -> Floats:
        """The prior's pseudo-counts, as the tables lie."""
        ends = families.ends
        out = np.zeros(int(ends[-1]))
        if self.prior == "uniform":
            out[:] = self.strength
        elif self.prior == "bdeu":
            sizes = np.diff(ends)
            out[:] = np.repeat(self.strength / sizes, sizes)
        elif isinstance(self.prior, Mapping):
            for name, numbers in self.prior.items():
                v = families.graph.index(name)
                shape = families.shapes[v]
                what = f"BayesianNetwork: the prior of {visible(str(name))}: pseudo-counts"
                own = real_numbers(numbers, what, SettingsError).astype(np.float64)
                if own.ndim and own.size != ends[v + 1] - ends[v]:
                    raise SettingsError(
                        f"BayesianNetwork: the prior of {visible(str(name))} has shape "
                        f"{own.shape}, not {shape}: parents in order, then itself"
                    )
                if not (np.isfinite(own) & (own >= 0)).all():
                    raise SettingsError(
                        f"BayesianNetwork: the prior of {visible(str(name))} has a pseudo-count "
                        "that is negative or not finite"
                    )
                out[ends[v] : ends[v + 1]] = own.ravel() if own.ndim else float(own)
        return out
