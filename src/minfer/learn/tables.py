"""Conditional distributions of a Bayesian network from a table: counts, priors, missing values.

The structure is given, the numbers are learned. With nothing missing a family (a variable and its
parents) is counted in one pass. With cells missing, or whole variables hidden, by EM: each step
asks the clique tree for the posterior of every family in every *different* row
(:mod:`minfer.solvers.row_plans`, eight rows abreast), sums them as counts, and normalises.

**What is maximised.** log P(data) + sum over cells of alpha log theta, where alpha are the prior's
pseudo-counts. Each step of EM raises it; that is checked at every step, with the objective computed
at the tables that are reported. The estimate (n + alpha) / (N + sum of alpha) is its maximum, and
the posterior mean under a Dirichlet prior with parameters alpha.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import (
    brief,
    check_choice,
    check_number,
    check_type,
    check_whole,
    real_numbers,
    warn,
)
from minfer.errors import (
    ContradictionError,
    EvidenceError,
    ModelError,
    RefusedError,
    SettingsError,
    visible,
)
from minfer.graph import FactorGraph
from minfer.io import read, write
from minfer.learn.bins import FEW_NUMBERS, MANY_NUMBERS, edges_of_columns
from minfer.learn.estimator import Estimator, alike
from minfer.learn.gates import (
    Expanded,
    Gate,
    LearnedGate,
    expanded,
    gates_of,
    learn_gate,
    normalised,
)
from minfer.model.causes import NoisyCauses, with_causes
from minfer.model.directed import FlatTables, network_of, order_or_cycle, with_flat_conditionals
from minfer.model.evidence import (
    UNKNOWN,
    Factorised,
    StateReader,
    is_array,
    is_missing,
    table_of,
)
from minfer.model.states import (
    bin_names,
    declared_states,
    did_you_mean,
    is_slip,
    near_names,
    number_of,
)
from minfer.prediction import files

if TYPE_CHECKING:
    from minfer.io.text import PathLike

Floats = NDArray[np.float64]
States = NDArray[np.int32]  # -1 where nothing is known

PRIORS = ("none", "uniform", "bdeu")
STARTS = ("counts", "random", "structure")
MANY_STATES = 100  # a column with more, most of them in one row only, is noticed
_MOST_CELLS = 1 << 26  # of a table
_BLOCK = 1 << 19  # numbers of posteriors held at a time
_ALL_ROWS = 1 << 31  # of a file
ROUNDING = 1e-9  # of the objective: what a step may seem to lose

ADVICE = {
    "counted": "",
    "converged": "",
    "out of iterations": "raise max_iterations, or tol if this is near enough",
    "fell": "a step lowered the objective by more than rounding: please report it",
}


class _Families:
    """Variables, their parents, and where each table lies; the child runs fastest.

    Of ``fixed`` ones, by variable, nothing is learned; of those in ``start`` zeros stay zeros.
    """

    def __init__(
        self,
        graph: FactorGraph,
        parents: list[list[int]],
        fixed: Mapping[int, Floats] | None = None,
        start: Mapping[int, Floats] | None = None,
    ) -> None:
        self.graph, self.parents = graph, parents  # variables and states, no factors
        self.fixed, self.start = fixed or {}, start or {}
        self.card = card = graph._n_states.tolist()
        self.scopes = [[*own, v] for v, own in enumerate(parents)]
        self.shapes = [tuple(card[v] for v in scope) for scope in self.scopes]
        self.arity = np.array([len(scope) for scope in self.scopes], dtype=np.int64)
        self.joined = np.array([v for scope in self.scopes for v in scope], dtype=np.int64)
        self.starts = np.append(0, np.cumsum(self.arity))  # of scopes, in ``joined``
        sizes = [math.prod(shape) for shape in self.shapes]
        for v, size in enumerate(sizes):
            if size > _MOST_CELLS:
                raise RefusedError(
                    f"BayesianNetwork: the table of {visible(graph.name(v))} has {size:.3g} "
                    f"cells ({' x '.join(map(str, self.shapes[v]))}): give it fewer parents, or "
                    "columns with fewer different values"
                )
        self.ends = np.array([0, *accumulate(sizes)], dtype=np.int64)  # of tables
        self.rows = np.repeat(card, np.array(sizes, dtype=np.int64) // card)  # sizes of all rows
        self._known, self._zeros = self._said(self.fixed), self._said(self.start) == 0.0

    def _said(self, tables: Mapping[int, Floats]) -> Floats:
        """Some tables, where they lie; NaN elsewhere."""
        out = np.full(int(self.ends[-1]) if tables else 0, np.nan)
        for v, table in tables.items():
            out[self.ends[v] : self.ends[v + 1]] = table.ravel()
        return out

    def learned(self, alpha: Floats) -> Floats:
        """Pseudo-counts where something is learned."""
        if len(self._known):
            alpha = np.where(np.isnan(self._known), alpha, 0.0)
        return np.where(self._zeros, 0.0, alpha) if len(self._zeros) else alpha

    def normalised(self, counts: Floats) -> Floats:
        """Rows divided by their sums; a row of zeros becomes uniform."""
        if len(self._zeros):
            counts = np.where(self._zeros, 0.0, counts)
        out = self._divided(counts)
        if len(self._zeros) and (out[self._zeros] > 0.0).any():
            out = self._divided(np.where(self._zeros, 0.0, out))
        if len(self._known):
            out = np.where(np.isnan(self._known), out, self._known)
        return out

    def _divided(self, counts: Floats) -> Floats:
        total = np.add.reduceat(counts, np.cumsum(self.rows) - self.rows)
        empty = total <= 0.0
        out = counts / np.repeat(np.where(empty, 1.0, total), self.rows)
        return out + np.repeat(np.where(empty, 1.0 / self.rows, 0.0), self.rows)

    def counts(self, known: States, weight: Floats | None) -> Floats:
        """Counts of all families, each from the rows (V, N) in which all of it is known."""
        from minfer.kernels.learning.families import count_families

        out = np.zeros(int(self.ends[-1]))
        count_families(
            known, self.starts, self.joined.astype(np.int32),
            np.array(self.card, dtype=np.int64), self.ends,
            np.empty(0) if weight is None else weight, out,
        )  # fmt: skip
        return out


@dataclass(eq=False, repr=False)
class BayesianNetwork(Estimator):
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
        check_number("BayesianNetwork: strength", self.strength, 0.0)
        check_choice("BayesianNetwork: start", self.start, STARTS)
        for name, least in (("restarts", 1), ("max_iterations", 1), ("workers", 1)):
            check_whole(f"BayesianNetwork: {name}", getattr(self, name), least)
        check_number("BayesianNetwork: tol", self.tol, 0.0)
        check_type(self.missing, Iterable, "BayesianNetwork: missing must be a list of texts")
        if self.random_state is not None:
            check_whole("BayesianNetwork: random_state", self.random_state)

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
        with _source(self, X, True) as (names, read_columns):
            names = [*names, *own]
            variables, parents, given = self._structure(names)
            _check_names(variables, names)
            columns = read_columns([v for v in variables if v in names and v not in own]) | own
        self.bins_ = self._edges(columns, given)
        gates = gates_of(given) if given is not None else []
        families = self._families(variables, parents, given, columns, names, gates)
        known = self._known(families.graph, columns, "raise")
        n = known.shape[1]
        if not n:
            raise ModelError("BayesianNetwork: there are no rows: 0 sample(s)")
        alone: dict[int, LearnedGate] = {}
        parts = None
        if gates:
            apart = self._apart(gates, known)
            alone = self._learn_gates([g for g in gates if apart[g.child]], known)
            parts = expanded(families.graph, families.parents, gates, apart)
            bare, families = families, _Families(*parts[:4])
            more = families.graph.n_variables - bare.graph.n_variables
            known = np.concatenate([known, np.full((more, n), -1, dtype=np.int32)])
        alpha = families.learned(self._alpha(families))
        if bool((known >= 0).all()):
            counts = families.counts(known, None)
            theta = families.normalised(counts + alpha)
            likelihood = dot_logs(counts, theta)
            objective = likelihood + dot_logs(alpha, theta)
            found = _FoundTables(theta, counts, likelihood, [objective], "counted")
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

    def _learn_gates(self, gates: Sequence[Gate], known: States) -> dict[int, LearnedGate]:
        """Gates that can be learned by themselves."""
        rng = np.random.default_rng(self.random_state)
        out = {}
        for gate in gates:
            found = []
            for k in range(self.restarts):
                begin = gate.draws
                if k or self.start != "structure":
                    begin = [
                        normalised(np.where(q > 0.0, rng.gamma(1.0, size=q.shape) + 1e-3, 0.0), q)
                        for q in gate.draws
                    ]
                found.append(
                    learn_gate(gate, known, self._strength, begin, self.max_iterations, self.tol)
                )
            best = max(found, key=lambda one: one.objective)
            if best.objective == -np.inf:
                raise ContradictionError(
                    "BayesianNetwork: some row is impossible under the zeros of the causes of "
                    f"gate number {gate.child}: give the gate a leak, or causes without zeros"
                )
            out[gate.child] = best
        return out

    def _strength(self, q: Floats) -> Floats:
        """Pseudo-counts of the draws of one cause."""
        if self.prior == "uniform":
            return np.full(q.shape, self.strength)
        return np.full(q.shape, self.strength / q.size if self.prior == "bdeu" else 0.0)

    def _by_em(
        self, families: _Families, known: States, alpha: Floats, given: FactorGraph | None
    ) -> _FoundTables:
        """The best of some climbs."""
        rng = np.random.default_rng(self.random_state)
        rows, weight, first = _different(known)
        complete = (rows >= 0).all(axis=1)
        sure = families.counts(np.ascontiguousarray(rows[complete].T), weight[complete])
        available = families.counts(np.ascontiguousarray(rows.T), weight)
        engine = _Posteriors(families, rows[~complete], weight[~complete], first[~complete])
        found = []
        for k in range(self.restarts):
            if k or self.start == "random":
                theta = families.normalised(rng.gamma(1.0, size=len(alpha)) + 1e-3)
            elif self.start == "structure":
                assert given is not None
                said = {**families.fixed, **families.start}
                theta = np.concatenate([
                    (said[v] if v in said else given.conditional(families.graph.name(v)).table)
                    .ravel()
                    for v in range(families.graph.n_variables)
                ])  # fmt: skip
            else:  # none zero; at random where no row knows a family
                theta = families.normalised(available + alpha + 0.1)
                for begin, end in pairwise(families.ends.tolist()):
                    if not available[begin:end].any():
                        theta[begin:end] = rng.gamma(1.0, size=end - begin) + 1e-3
                theta = families.normalised(theta)
            found.append(self._climb(engine, theta, sure, alpha))
        return max(found, key=lambda one: one.trace[-1])

    def _climb(
        self, engine: _Posteriors, theta: Floats, sure: Floats, alpha: Floats
    ) -> _FoundTables:
        """EM from some tables."""
        trace: list[float] = []
        while True:
            counts, likelihood = engine(theta, self.workers)
            counts += sure
            likelihood += dot_logs(sure, theta)
            value = likelihood + dot_logs(alpha, theta)
            if value == -np.inf:
                raise ContradictionError(
                    "BayesianNetwork: the tables to begin with give the data, or what the prior "
                    'asks for, probability zero; start="counts" does not'
                )
            gain = (value - trace[-1]) / max(abs(value), 1.0) if trace else np.inf
            trace.append(value)
            if gain <= self.tol or len(trace) > self.max_iterations:
                status = "converged" if gain <= self.tol else "out of iterations"
                status = "fell" if gain < -ROUNDING else status
                return _FoundTables(theta, counts, likelihood, trace, status)
            theta = engine.families.normalised(counts + alpha)

    def _keep(self, families: _Families, found: _FoundTables) -> None:
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
        self.objective_, self.log_likelihood_ = found.trace[-1], found.likelihood
        self.trace_, self.n_iter_ = found.trace, max(len(found.trace) - 1, 1)
        self.status_, self.advice_ = found.status, ADVICE[found.status]
        self.converged_ = found.status in ("counted", "converged")

    def _keep_gates(
        self,
        bare: _Families,
        families: _Families,
        found: _FoundTables,
        gates: Sequence[Gate],
        alone: dict[int, LearnedGate],
        parts: Expanded,
        n: int,
    ) -> None:
        """The same, and gates in place of the tables that stood for them."""
        graph, ends = bare.graph, families.ends.tolist()
        tables = [found.theta[a:b] for a, b in pairwise(ends)]
        counted = [found.counts[a:b] for a, b in pairwise(ends)]
        entries: dict[int, tuple[list[int], NoisyCauses]] = {}
        counts: dict[int, list[Floats]] = {}
        objective, likelihood = found.trace[-1], found.likelihood
        for gate in gates:
            v = gate.child
            if v in alone:
                draws, counts[v] = alone[v].draws, alone[v].counts
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
        more = objective - found.trace[-1]
        self.objective_, self.log_likelihood_ = objective, likelihood
        self.trace_ = [value + more for value in found.trace]
        self.n_iter_ = max(len(found.trace) - 1, 1)
        status = found.status
        if alone and status in ("counted", "converged"):
            done = all(one.converged for one in alone.values())
            status = "converged" if done else "out of iterations"
        self.status_, self.advice_ = status, ADVICE[status]
        self.converged_ = status in ("counted", "converged")

    # ------------------------------------------------------------ answers

    def score_samples(self, X: Any) -> Floats:
        """log P of what each row knows, (N,); minus infinity where it is impossible."""
        self._check_fitted("score_samples")
        with _source(self, X, False) as (names, read_columns):
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
        nodes, edges = _nodes_and_edges(given)
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
    ) -> _Families:
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
        return _Families(graph, of)

    def _learned_states(self, name: str, column: Factorised) -> list[str] | int:
        """Names of the values there are, numbers by size; a count where they are 0, 1, ..., K-1."""
        missing = {*self.missing}
        for places in (column.places[:1000], column.places):  # a few rows often show all values
            used = np.bincount(places + 1, minlength=len(column.values) + 1)[1:]
            if used.all():
                break
        values = [column.values[k] for k in np.flatnonzero(used).tolist()]
        texts = {
            _text(x) for x in values
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

    def _alpha(self, families: _Families) -> Floats:
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


class _FoundTables(NamedTuple):
    theta: Floats
    counts: Floats
    likelihood: float
    trace: list[float]
    status: str


class _Posteriors:
    """Expected counts of all families over different rows, each with a weight."""

    def __init__(
        self, families: _Families, rows: States, weight: Floats, first: NDArray[np.int64]
    ) -> None:
        from minfer.engine.elimination import links, tree_over
        from minfer.engine.layout import Flat
        from minfer.solvers.row_plans import MAX_CELLS, RowPlan

        graph, scopes, ends = families.graph, families.scopes, families.ends
        self.families, self.rows, self.weight, self.first = families, rows, weight, first
        flat = Flat(
            np.ascontiguousarray(graph._n_states), graph._offsets,
            np.zeros(int(graph._offsets[-1])), np.arange(len(scopes), dtype=np.int64),
            families.starts, families.joined.astype(np.int32), ends[:-1].copy(),
            np.zeros(int(ends[-1])),
        )  # fmt: skip
        free = np.ones(graph.n_variables, dtype=bool)
        tree = tree_over(
            links(flat, free, flat.card), graph.n_variables, MAX_CELLS, max(len(rows), 1)
        )
        self.plan = RowPlan.make(flat, tree)
        if self.plan.layout is None:
            raise RefusedError(
                "BayesianNetwork: EM needs a clique tree of at most "
                f"{MAX_CELLS:,.0f} cells, and this structure has more; drop the rows with missing "
                "cells, or give variables fewer parents"
            )
        self.block = max(64, _BLOCK // max(int(ends[-1]), 1) // 8 * 8)

    def __call__(self, theta: Floats, workers: int) -> tuple[Floats, float]:
        """Expected counts, and the log-likelihood."""
        with np.errstate(divide="ignore"):
            log_psi = np.log(theta)
        self.plan.load(log_psi, np.zeros(int(self.plan.flat.off[-1])))
        counts, likelihood = np.zeros(len(theta)), 0.0
        step = self.block * workers
        for begin in range(0, len(self.rows), step):
            rows, weight = self.rows[begin : begin + step], self.weight[begin : begin + step]
            found = self.plan.run(evidence=rows, joints=True, workers=workers)
            joints, log_z = found.joints, found.log_z
            assert joints is not None
            for r in np.flatnonzero(found.unsafe).tolist():
                joints[r], log_z[r] = self._single(theta, rows[r])
            if not (log_z > -np.inf).all():
                r = int(np.flatnonzero(~(log_z > -np.inf))[0])
                raise ContradictionError(
                    f"BayesianNetwork: row {int(self.first[begin + r])} has probability zero under "
                    'the tables to begin with; start="counts", or a prior, leaves none at zero'
                )
            counts += weight @ joints
            likelihood += float(weight @ log_z)
        return counts, likelihood

    def _single(self, theta: Floats, row: States) -> tuple[Floats, float]:
        """One row by the clique tree in logarithms: linear numbers would not have held it."""
        from minfer.solvers.exact import Exact

        families = self.families
        tables = FlatTables(families.graph, families.arity, families.joined, theta)
        graph = with_flat_conditionals(families.graph, tables, normalise=False)
        known: dict[int | str, int | str] = {int(v): int(row[v]) for v in np.flatnonzero(row >= 0)}
        try:
            answer = Exact()(graph.with_evidence(known))
        except ContradictionError:
            return np.zeros(len(theta)), -np.inf
        joints = [answer.factor(f).ravel() for f in range(len(families.scopes))]
        return np.concatenate(joints), answer.log_z


# ---------------------------------------------------------------------- numbers


def dot_logs(counts: Floats, theta: Floats) -> float:
    """Sum of counts times log theta, where there are counts."""
    some = counts > 0.0
    with np.errstate(divide="ignore"):
        return float(counts[some] @ np.log(theta[some]))


def _different(known: States) -> tuple[States, Floats, NDArray[np.int64]]:
    """The different rows by two keys of 64 bits, how often each occurs, and where first."""
    rng = np.random.default_rng(20_010_417)
    keys = []
    for _ in range(2):
        factor = rng.integers(1, 2**64 - 1, size=len(known), dtype=np.uint64) | np.uint64(1)
        key = np.zeros(known.shape[1], dtype=np.uint64)
        for v, states in enumerate(known):
            key = (key ^ (key >> np.uint64(29))) * factor[v] + (states + 2).astype(np.uint64)
        keys.append(key)
    first, owner = alike(np.array(keys))
    weight = np.bincount(owner).astype(np.float64)
    return np.ascontiguousarray(known[:, first].T), weight, first


# ---------------------------------------------------------------------- input


def _nodes_and_edges(given: Any) -> tuple[list[str], list[tuple[str, str]]]:
    """Of a list of edges, {child: parents}, or an object that has both."""
    nodes: Iterable[Any] = ()
    edges = given
    if isinstance(given, Mapping):
        for child, own in given.items():
            if not isinstance(own, Iterable):
                raise SettingsError(
                    f"BayesianNetwork: the parents of {visible(str(child))} must be a list "
                    f"of names, not {brief(own)}"
                )
        nodes, of = given, {c: [own] if isinstance(own, str) else own for c, own in given.items()}
        edges = [(p, child) for child, own in of.items() for p in own]
    elif hasattr(given, "edges"):
        edges = given.edges() if callable(given.edges) else given.edges
        nodes = getattr(given, "nodes", ())
        nodes = nodes() if callable(nodes) else nodes
    if isinstance(edges, str) or not isinstance(edges, Iterable):
        raise SettingsError(
            "BayesianNetwork: structure must be a list of edges (parent, child), {child: "
            f"parents}}, a Bayesian network or its file, not {brief(given)}"
        )
    out = []
    for edge in edges:
        if isinstance(edge, str) or not isinstance(edge, Sequence) or len(edge) != 2:
            raise SettingsError(
                f"BayesianNetwork: an edge must be a pair (parent, child), not {brief(edge)}"
            )
        out.append((str(edge[0]), str(edge[1])))
    return [str(x) for x in nodes], out


@contextmanager
def _source(
    owner: Estimator, X: Any, reset: bool
) -> Iterator[tuple[list[str], Callable[[list[str]], dict[str, Factorised]]]]:
    """Names of the columns of a table of any kind, or a file, and what reads some of them."""
    name = type(owner).__name__
    if isinstance(X, str | os.PathLike):
        with files.open_cases(X, name) as source:
            owner._check_width(len(source.names), source.names, reset)

            def read_whole(columns: list[str]) -> dict[str, Factorised]:
                found = list(source.tables(columns, _ALL_ROWS))
                if not found:
                    raise ModelError(_empty(name, 0, len(source.names)))
                [table] = found
                return {c: table.column(c) for c in columns}

            yield source.names, read_whole
        return
    plain = hasattr(X, "tocsr") or is_array(X)
    if not plain:
        table = table_of(X, who=name)  # or says what may be given
    else:
        x = owner._array(X)
        if x.dtype.kind == "f" and np.isinf(x).any():
            raise ModelError(f"{name}: X has infinity, which is not a state (NaN or inf)")
        table = table_of(x, [f"x{k}" for k in range(x.shape[1])], name)
    owner._check_width(len(table.names), None if plain else table.names, reset)
    if not table.n or not table.names:
        raise ModelError(_empty(name, table.n, len(table.names)))
    yield table.names, lambda columns: {c: table.column(c) for c in columns}


def _empty(name: str, rows: int, columns: int) -> str:
    what = "sample" if columns else "feature"
    return (
        f"{name}: found a table with 0 {what}(s) (shape=({rows}, {columns})) while a minimum of 1 "
        "is required."
    )


def _check_names(variables: Sequence[str], names: Sequence[str]) -> None:
    """Columns that are not variables are not read, unless one looks like a slip for one."""
    read = set(variables) & set(names)
    absent = [x for x in variables if x not in read]
    for name in names:
        near = [] if name in read else near_names(name, absent)
        if near and is_slip(name, near[0]):
            raise EvidenceError(
                f"BayesianNetwork: column {visible(name)!r} is not a variable, and "
                f"{visible(near[0])} has no column: rename one of them"
            )
    if not read:
        raise EvidenceError(
            "BayesianNetwork: no column is a variable of the structure: columns are "
            f"{', '.join(map(visible, names[:5]))}, variables {', '.join(absent[:5])}"
        )


def _text(value: Any) -> str:
    """The name of a state that a value is."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
