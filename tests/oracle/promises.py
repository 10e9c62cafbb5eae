"""Drawn models and runs, and what their answers promise, each promise held against plain sums.

``check(number)`` draws a model, a solver and perhaps an earlier answer to start from, and raises
AssertionError with the place if the answer promises too much:

* a forest is solved to 1e-9 by BP and TRW, whatever the schedule, the damping and the tolerance;
* a converged run on a loopy core moves no message and no belief by more than ``tol`` if its last
  update is made again from the messages it began with: here by sums over plain tables;
* log Z is exact, an upper bound or a lower bound where it is called so;
* mean field has converged only if two sweeps more moved no q by more than ``tol``, and no update of
  one variable would;
* a contradiction is one.

``check_best(number)`` does the same for the search for the best assignment. ``test_promises.py``
and ``test_map.py`` run as many as they are told to (``draws.py``).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

import minfer
from minfer import (
    BeliefPropagation,
    ContradictionError,
    FactorGraph,
    LogZ,
    Marginals,
    MeanField,
    RefusedError,
    Status,
    TreeReweighted,
)
from oracle import models, truth

ROUNDING = 1e-10  # of an update made twice; tolerances are drawn above it


@dataclass(frozen=True, eq=False)
class Vectors:
    """Messages by (factor number, variable), as the model's own tables define them, summing to 1.

    Those that a confirming update began with: into a variable from ``pair`` factors (two binary
    variables, no zeros) and from ``general`` ones, which also remember what the variable last said
    to them, its ``cavity``.
    """

    pair: dict[tuple[int, int], np.ndarray]
    general: dict[tuple[int, int], np.ndarray]
    cavity: dict[tuple[int, int], np.ndarray]

    @classmethod
    def of(cls, state) -> Vectors:
        mesh, s, out = state.mesh, state.before, cls({}, {}, {})
        pairs = state._pair_odds(s.m).tolist()
        for i, scope, odds in zip(mesh.pair_ids.tolist(), mesh.pair_scope.tolist(), pairs):
            for v, x in zip(scope, odds):
                out.pair[i, v] = _normalised(np.array([0.0, x]))
        for v, (f, _, o, n) in zip(mesh.gowner.tolist(), mesh.wiring.gslot.tolist()):
            for kind, x in ((out.general, s.to_variable), (out.cavity, s.to_factor)):
                with np.errstate(divide="ignore"):
                    x = x[o : o + n] if mesh.log else np.log(x[o : o + n])
                kind[int(mesh.general_ids[f]), v] = _normalised(x)
        return out


def _normalised(log_table: np.ndarray) -> np.ndarray:
    table = np.exp(log_table - log_table.max())
    return table / table.sum()


def draw_graph(rng: np.random.Generator) -> FactorGraph:
    """One of many families, small enough to enumerate."""
    plain = [k for k in models.SMALL if k not in ("huge", "tiny")]  # beyond plain sums in doubles
    kind = str(rng.choice(["star", "uniform", "labels", "global", *plain, "trees", "logic"]))
    if kind == "star":  # of tiny pulls, perhaps with a loop at its hub
        n = int(rng.integers(3, 11))
        edges = [[0, v] if rng.random() < 0.5 else [v, 0] for v in range(1, n)]
        edges += [[1, 2]] if rng.random() < 0.5 else []
        fields = np.r_[0.0, rng.choice([0.0, 3e-3, -3e-3], n - 1)]
        weight = float(rng.choice([10.0, 3.0, 1.0]))
        return FactorGraph.pairwise(fields, edges, weight, feature="equal")
    if kind == "uniform":  # conditional tables of which many say nothing
        graph = models.network(rng, 7)
        tables = [np.zeros_like(t) if rng.random() < 0.4 else t
                  for t in map(graph.log_table, range(graph.n_factors))]  # fmt: skip
        scopes = [graph.scope(i).tolist() for i in range(graph.n_factors)]
        return FactorGraph.from_tables(graph.n_states, scopes, tables)
    if kind == "labels":
        return models.labels(rng)
    if kind != "global":
        return models.SMALL[kind](rng).graph
    n = int(rng.integers(2, 5))  # a global factor over some new variables, and one that was there
    old = models.tables(rng).graph
    more = FactorGraph.pairwise(rng.normal(size=n), [[0, 1]], rng.normal(size=1))
    both = models.union(old, more)
    scope = [v for v in range(both.n_variables) if both.n_states[v] == 2][: n + 1]
    return both.add_global(scope, models.Between(1, least=1))


def draw_solver(rng: np.random.Generator) -> BeliefPropagation | TreeReweighted | MeanField:
    tol = float(10.0 ** -rng.integers(2, 10))
    damping = float(rng.choice([0.0, 0.0, 0.3, 0.5, 0.9]))
    iterations = int(rng.choice([1, 2, 7, 400]))
    kind = rng.integers(6)
    if kind == 0:
        return MeanField(max_iters=iterations, tol=tol)
    if kind == 1:
        schedule = str(rng.choice(["sequential", "coloured"]))
        return TreeReweighted(max_iters=iterations, tol=tol, damping=damping, schedule=schedule)
    schedule = str(rng.choice(["sequential", "flooding", "residual", "coloured"]))
    return BeliefPropagation(max_iters=iterations, tol=tol, damping=damping, schedule=schedule)


def check(number: int) -> str:
    """Draw and check one case; a word on how it ended."""
    rng = np.random.default_rng(number)
    graph = draw_graph(rng)
    solver = draw_solver(rng)
    if isinstance(solver, MeanField) and any(g.form == "machine" for g in graph.groups):
        solver = BeliefPropagation(max_iters=solver.max_iters, tol=solver.tol)
    if rng.random() < 0.15 and all(g.form == "table" for g in graph.groups):
        tree = models.trees(rng).graph  # of other states, which must be right in any case
        if np.prod(graph.n_states) * np.prod(tree.n_states) <= 20_000:
            graph = models.union(graph, tree)
    start = None
    if rng.random() < 0.3:  # an earlier answer: other evidence, or fewer factors
        earlier = graph.keep(rng.random(graph.n_factors) < 0.8) if rng.random() < 0.5 else graph
        start = _run(solver, _observe(earlier, rng))
    if rng.random() < 0.3:
        graph = _observe(graph, rng)
    log_z = truth.log_z(graph)
    where = f"case {number}: {solver!r} on {graph}"
    try:
        answer = solver(graph, start)
    except RefusedError:
        return "refused"
    except ContradictionError:
        assert log_z == -np.inf, f"{where}: no contradiction, log Z is {log_z}"
        return "contradiction"
    if log_z == -np.inf:
        return "missed contradiction"  # BP finds many of them, not all
    right = truth.marginals(graph)
    slip = 1e-9 * (1.0 + abs(log_z))
    if answer.log_z_kind is LogZ.EXACT:
        assert abs(answer.log_z - log_z) <= slip, f"{where}: exact {answer.log_z}, is {log_z}"
    if answer.log_z_kind is LogZ.UPPER:
        assert answer.log_z >= log_z - slip * 1e-4, f"{where}: {answer.log_z} < {log_z}"
    if answer.log_z_kind is LogZ.LOWER:
        assert answer.log_z <= log_z + slip * 1e-4, f"{where}: {answer.log_z} > {log_z}"
    assert np.isfinite(answer.probs).all(), where
    if isinstance(solver, MeanField):
        return _check_mean_field(answer, solver.tol, where)
    model = Plain.of(graph, answer)
    bound = model.bound_to_core()
    free = np.array([v not in bound for v in range(graph.n_variables)], dtype=bool)
    alone = np.repeat(free, graph.n_states)
    worst = np.abs(answer.probs - right)[alone].max(initial=0.0)
    assert worst <= 1e-9, f"{where}: a component that is a tree is off by {worst}"
    if model.forest:
        assert answer.status is Status.CONVERGED, f"{where}: a forest, {answer}"
        assert answer.log_z_kind is LogZ.EXACT, f"{where}: a forest, {answer.log_z_kind}"
        worst = np.abs(answer.probs - right).max(initial=0.0)
        assert worst <= 1e-9, f"{where}: a forest, off by {worst}"
        return "forest"
    assert answer.log_z_kind is not LogZ.EXACT, f"{where}: loopy, and called exact"
    if answer.status is not Status.CONVERGED:
        assert answer.residuals[-1] > solver.tol, f"{where}: {answer.residuals[-1]} within tol"
        return "not converged"
    moved = model.repeat(answer)
    assert moved <= solver.tol * (1 + 1e-6) + ROUNDING, f"{where}: moved {moved}"
    assert moved <= answer.residuals[-1] + ROUNDING, (
        f"{where}: {moved}, told {answer.residuals[-1]}"
    )
    return "converged"


def _observe(graph: FactorGraph, rng: np.random.Generator) -> FactorGraph:
    if not graph.n_variables:
        return graph
    v = int(rng.integers(graph.n_variables))
    return graph.with_evidence({v: int(rng.integers(graph.n_states[v]))})


def _run(solver, graph: FactorGraph) -> Marginals | None:
    try:
        return solver(graph)
    except (ContradictionError, RefusedError):
        return None


def _forbidden(scope: list[int], table: np.ndarray, fields: list[np.ndarray]) -> None:
    """States that a hard factor excludes, into the fields of its variables."""
    allowed = table
    for a, v in enumerate(scope):
        shape = [-1 if b == a else 1 for b in range(len(scope))]
        allowed = allowed + np.where(fields[v] > -np.inf, 0.0, -np.inf).reshape(shape)
    for a, v in enumerate(scope):
        best = allowed.max(axis=tuple(b for b in range(len(scope)) if b != a))
        fields[v] = np.where(best > -np.inf, fields[v], -np.inf)


@dataclass
class Plain:
    """A model as scopes, tables and fields over its free variables; and its loopy core."""

    fields: list[np.ndarray]
    factors: dict[int, tuple[list[int], np.ndarray]]  # arity 2 or more, linear tables
    rho: dict[int, float]
    core: set[int]

    @property
    def forest(self) -> bool:
        return not self.core

    def bound_to_core(self) -> set[int]:
        """The variables of all components that have a cycle."""
        reached, size = set(self.core), -1
        while size != len(reached):
            size = len(reached)
            for scope, _ in self.factors.values():
                reached |= set(scope) if reached & set(scope) else set()
        return reached

    @classmethod
    def of(cls, graph: FactorGraph, answer: Marginals) -> Plain:
        fields = [np.zeros(int(s)) for s in graph.n_states]
        if graph.field is not None:
            fields = np.split(np.array(graph.field), np.cumsum(graph.n_states)[:-1])
        every = truth.factors_of(graph)[: graph.n_factors]
        rest = {i: (list(scope), np.array(table)) for i, (scope, table) in enumerate(every)}
        known: dict[int, int] = {}
        logic = {int(i) for g in graph.groups if g.form == "machine" for i in g.ids}
        untouched = set(rest)  # by evidence
        for _ in range(20):  # unary factors into fields, known variables out of tables
            for i in [i for i, (scope, _) in rest.items() if len(scope) < 2]:
                scope, table = rest.pop(i)
                if scope:
                    fields[scope[0]] = fields[scope[0]] + table
            for i in logic & set(rest):  # they exclude what no message need
                if len(rest[i][0]) > 2:
                    _forbidden(*rest[i], fields)
                    if i not in untouched and np.ptp(rest[i][1]) == 0:
                        del rest[i]
            new = {v: int(np.argmax(f)) for v, f in enumerate(fields)
                   if v not in known and np.isfinite(f).sum() == 1}  # fmt: skip
            if not new:
                break
            known |= new
            untouched -= {i for i, (scope, _) in rest.items() if set(scope) & set(new)}
            for i, (scope, table) in rest.items():
                index = tuple(new.get(v, slice(None)) for v in scope)
                rest[i] = [v for v in scope if v not in new], table[index]
        factors = {i: (scope, np.exp(t - t.max())) for i, (scope, t) in rest.items()}
        mesh = getattr(answer.state, "mesh", None)
        rho = dict.fromkeys(factors, 1.0)
        if mesh is not None and mesh.reweighted:
            w = mesh.wiring
            rho |= {int(i): float(w.rho[mesh.slot[f, 0]]) for f, i in enumerate(mesh.pair_ids)}
            rho |= {int(mesh.general_ids[f]): float(w.grho[g])
                    for g, f in enumerate(w.gslot[:, 0])}  # fmt: skip
        left = {i: set(scope) for i, (scope, _) in factors.items()}
        while True:  # leaves fall, of variables and of factors
            slots = [v for scope in left.values() for v in scope]
            gone = {v for v in slots if slots.count(v) == 1}
            loose = [i for i, scope in left.items() if len(scope) == 1 or
                     (scope & gone and rho[i] == 1.0)]  # fmt: skip
            if not loose:
                break
            for i in loose:
                left[i] -= gone if rho[i] == 1.0 else set()
                if len(left[i]) <= 1:
                    del left[i]
        return cls(fields, factors, rho, {v for scope in left.values() for v in scope})

    def repeat(self, answer: Marginals) -> float:
        """The last update made again: the most that it moves a message or a belief of the core."""
        old = Vectors.of(answer.state)
        pair, general, cavity = dict(old.pair), dict(old.general), dict(old.cavity)
        moved = 0.0
        before = {v: self.belief(v, old.pair, old.general) for v in self.core}
        for i, v in general:  # 1. factors answer what the variables last said to them
            if v in self.core:
                said = {u: old.cavity[i, u] for u in self.factors[i][0] if u != v}
                general[i, v] = self.message(i, v, said)
                moved = max(moved, np.abs(general[i, v] - old.general[i, v]).max())
        for v in self.core:  # 2. variables speak, through pair factors to the other end
            belief = self.belief(v, old.pair, general)
            for i in (i for i, u in general if u == v):
                cavity[i, v] = _over(belief, general[i, v])
                moved = max(moved, np.abs(cavity[i, v] - old.cavity[i, v]).max())
            for i in (i for i, u in old.pair if u == v):
                (u,) = [u for u in self.factors[i][0] if u != v]
                pair[i, u] = self.message(i, u, {v: _over(belief, old.pair[i, v])})
                moved = max(moved, np.abs(pair[i, u] - old.pair[i, u]).max())
        for v in self.core:
            moved = max(moved, np.abs(self.belief(v, pair, general) - before[v]).max())
        return float(moved)

    def belief(self, v: int, pair: dict, general: dict) -> np.ndarray:
        total = self.fields[v].astype(float)
        with np.errstate(divide="ignore"):
            for kind in (pair, general):
                for (i, u), m in kind.items():
                    total = total + self.rho[i] * np.log(m) if u == v else total
        return np.exp(total - truth.logsumexp(total))

    def message(self, i: int, v: int, said: dict[int, np.ndarray]) -> np.ndarray:
        scope, table = self.factors[i]
        out = np.zeros(table.shape[scope.index(v)])
        for x in itertools.product(*(range(s) for s in table.shape)):
            weight = table[x] ** (1.0 / self.rho[i])
            for u, k in zip(scope, x):
                weight *= said[u][k] if u in said else 1.0
            out[x[scope.index(v)]] += weight
        return out / out.sum()


def _over(belief: np.ndarray, message: np.ndarray) -> np.ndarray:
    """The cavity: a belief without one message, 0 / 0 = 0."""
    out = np.array([b / m if b > 0 else 0.0 for b, m in zip(belief, message)])
    return out / out.sum()


def _check_mean_field(answer: Marginals, tol: float, where: str) -> str:
    graph = answer.graph
    if answer.status is not Status.CONVERGED:
        return "not converged"
    model = Plain.of(graph, answer)
    if any((t == 0).any() for _, t in model.factors.values()) or answer.state.before is None:
        return "converged, with zeros"
    q = [np.array(p) for p in np.split(answer.state.before, np.cumsum(graph.n_states)[:-1])]
    busy = [v for v in range(graph.n_variables) if any(v in s for s, _ in model.factors.values())]
    moved = 0.0
    for sweep in (answer.iterations - 2, answer.iterations - 1):
        for v in busy if sweep % 2 == 0 else reversed(busy):
            new = _updated(model, q, v)
            moved = max(moved, np.abs(new - q[v]).max())
            q[v] = new
    for v in busy:  # nor would one more update of any variable alone
        moved = max(moved, np.abs(_updated(model, q, v) - q[v]).max())
    assert moved <= tol * (1 + 1e-6) + ROUNDING, f"{where}: q moved {moved}"
    return "converged"


def _updated(model: Plain, q: list[np.ndarray], v: int) -> np.ndarray:
    """The best q of one variable given all others'."""
    energy = model.fields[v].astype(float)
    for scope, table in model.factors.values():
        if v in scope:
            energy = energy + _expected(scope, np.log(table), q, v)
    return np.exp(energy - truth.logsumexp(energy))


def _expected(scope: list[int], log: np.ndarray, q: list[np.ndarray], v: int) -> np.ndarray:
    """E[log Psi | x_v] under q of the other variables."""
    out = np.zeros(len(q[v]))
    for x in itertools.product(*(range(s) for s in log.shape)):
        weight = np.prod([q[u][k] for u, k in zip(scope, x) if u != v])
        out[x[scope.index(v)]] += weight * log[x]
    return out


#: So little memory that no clique tree fits.
NO_TREE = 1e-12
KINDS = ("network", "markov", "mixed", "signs", "balanced", "labels", "logical", "long", "global",
         "huge")  # fmt: skip


def draw_best(number: int) -> tuple[str, FactorGraph, dict]:
    """The model of a number, and evidence."""
    rng = np.random.default_rng([21, number])
    kind = KINDS[number % len(KINDS)]
    if kind in models.NETWORKS:
        zeros = float(rng.choice([0.0, 0.0, 0.2, 0.5]))
        graph = models.NETWORKS[kind](rng, zeros=zeros)
    elif kind == "signs":
        graph = [models.mixed_signs, models.ties, models.zeros][rng.integers(3)](rng).graph
    elif kind == "balanced":
        graph = models.balanced(rng).graph
    elif kind == "labels":
        graph = models.labels(rng)
    elif kind == "global":
        graph = models.with_global(rng)
    elif kind == "huge":
        graph = models.huge(rng, (1e5, 1e12, 1e80, 1e250)).graph
    else:
        least = 3 if kind == "logical" else 9
        draft = models.Draft([2] * int(rng.integers(least, least + 3)))
        draft.fields(models.numbers(rng, len(draft.n_states)))
        draft.feature([0, 1], float(rng.normal()), "equal")
        for _ in range(int(rng.integers(1, 4))):
            draft.logical(rng, 1.5, least, least + 2)
        graph = draft.graph
    return kind, graph, models.evidence(rng, graph, soft=kind != "huge")


def check_best(number: int, **settings) -> str:
    """Whether a search keeps its promises on one drawn model; its status."""
    kind, graph, seen = draw_best(number)
    scores = truth.log_scores_with(graph, seen)
    top = float(scores.max())
    try:
        best = minfer.mpe(graph, seen, max_gib=NO_TREE, **settings)
    except ContradictionError:
        assert top == -np.inf, f"drawn model {number}: called impossible"
        return "impossible"
    except RefusedError:  # global factors that contradict each other, or nearly
        assert kind == "global", f"drawn model {number}: nothing found"
        return "nothing found"
    assert best.steps != ("clique tree",)
    at = float(scores[tuple(best.numbers)])
    size = max(abs(top), float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0)), 1.0)
    same = abs(best.log_score - at) <= 1e-12 * size
    assert same, f"drawn model {number}: says {best.log_score}, has {at}"
    # naive's own sum errs by some ulps of its terms
    valid = best.upper >= top - 1e-15 * size
    assert valid, f"drawn model {number}: bound {best.upper!r}, best {top!r}"
    assert best.gap == max(best.upper - best.log_score, 0.0)
    assert best.proven == (best.status == "optimal")
    if best.proven:
        near = top - at <= 2e-8 + 1e-11 * size
        assert near, f"drawn model {number}: optimal {at!r}, best {top!r}"
    return best.status
