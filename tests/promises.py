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

``tests/test_promises.py`` runs two thousand, ``benchmarks/promises.py`` any number.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

import naive
import zoo
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

ROUNDING = 1e-10  # of an update made twice; tolerances are drawn above it


# ------------------------------------------------------------------ drawing


def draw_graph(rng: np.random.Generator) -> FactorGraph:
    """One of several families, small enough to enumerate."""
    family = rng.integers(10)
    scale = float(rng.choice([1e-3, 0.1, 1.0, 3.0, 10.0, 40.0]))
    if family == 0:  # uniform conditional tables: a chain or tree of CPTs, often uniform
        return _conditionals(rng)
    if family == 1:  # a star of tiny pulls, perhaps with a loop at its hub
        n = int(rng.integers(3, 11))
        edges = [[0, v] if rng.random() < 0.5 else [v, 0] for v in range(1, n)]
        edges += [[1, 2]] if rng.random() < 0.5 else []
        fields = np.r_[0.0, rng.choice([0.0, 3e-3, -3e-3], n - 1)]
        return FactorGraph.pairwise(
            fields, edges, float(rng.choice([10.0, 3.0, 1.0])), feature="equal"
        )
    if family == 2:  # loops without fields
        n = int(rng.integers(3, 8))
        edges = [[i, (i + 1) % n] for i in range(n)] + [[0, n // 2]] * (n > 4)
        feature = rng.choice(["and", "equal", "or", "implies"])
        fields = rng.choice([0.0, 0.0, 2.0, -2.0], n)
        return FactorGraph.pairwise(
            fields, edges, rng.normal(size=len(edges)) * scale, feature=feature
        )
    if family == 3:
        shape = int(rng.integers(2, 4)), int(rng.integers(2, 4))
        feature = rng.choice(["and", "equal"])
        return FactorGraph.grid(
            rng.normal(size=shape) * rng.choice([0, 1, 3]), scale, feature=feature
        )
    if family == 4:  # binary pairs at random
        n = int(rng.integers(2, 9))
        edges = [[a, b] for a in range(n) for b in range(a) if rng.random() < 0.35]
        edges = np.array(edges, dtype=np.int32).reshape(-1, 2)
        feature = rng.choice(["and", "equal", "or", "implies"])
        fields = rng.normal(size=n) * scale
        return FactorGraph.pairwise(
            fields, edges, rng.normal(size=len(edges)) * scale, feature=feature
        )
    graph = _tables(rng, scale, tree=family == 5, pairwise=family == 6)
    if family in (7, 8):
        graph = _with_logic(rng, graph, scale)
    if family == 9:  # a global factor over some new variables, and one that was there
        old, n = graph.n_variables, int(rng.integers(2, 5))
        more = FactorGraph.pairwise(rng.normal(size=n) * min(scale, 3.0), [], [])
        scopes = [graph.scope(i).tolist() for i in range(graph.n_factors)]
        scopes += [[old + v] for v in range(n)] + [[old, old + 1]] * int(rng.integers(2))
        tables = [graph.log_table(i) for i in range(graph.n_factors)]
        tables += [more.log_table(i) for i in range(n)] + [rng.normal(size=(2, 2))]
        states = np.r_[graph.n_states, np.full(n, 2)]
        graph = FactorGraph.from_tables(states, scopes, tables[: len(scopes)])
        binary = [v for v in range(old) if states[v] == 2][:1]
        graph = graph.add_global([*binary, *range(old, old + n)], zoo.ExactlyOne())
    return graph


def _with_logic(rng: np.random.Generator, graph: FactorGraph, scale: float) -> FactorGraph:
    """The same with up to three logical factors over three or more of its variables."""
    n = graph.n_variables
    for _ in range(int(rng.integers(1, 4)) if n > 2 else 0):
        scope = rng.permutation(n)[: rng.integers(3, min(n, 5) + 1)]
        states = [[int(rng.integers(graph.n_states[v])) for v in scope]]
        signs = [rng.choice([-1, 1], len(scope)).tolist()]
        literals = {"signs": signs, "states": states}
        weight = np.inf if rng.random() < 0.3 else float(rng.normal() * scale)
        kind, scopes = rng.integers(6), [scope.tolist()]
        if kind == 0:
            graph = graph.add_clauses(scopes, weight, **literals)
        elif kind == 1:
            graph = graph.add_exactly_one(scopes, **literals)
        elif kind == 2:
            graph = graph.add_parity(scopes, weight, odd=bool(rng.integers(2)), **literals)
        elif kind == 3:
            graph = graph.add_cardinality(scopes, at_most=int(rng.integers(1, 3)), **literals)
        elif kind == 4:
            graph = graph.add_cardinality(scopes, rng.normal(size=3) * scale, **literals)
        else:
            graph = graph.add_or([scope[:-1]], [scope[-1]], weight, **literals)
    return graph


def _labels(rng: np.random.Generator) -> FactorGraph:
    """Pairs of labels by distance, perhaps beside a table."""
    scale = float(rng.choice([1e-3, 0.1, 1.0, 3.0, 10.0, 40.0]))
    k, n = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    graph = FactorGraph.empty([k] * n).tilt(rng.normal(size=n * k) * min(scale, 3.0))
    pairs = [[a, b] for a in range(n) for b in range(a) if rng.random() < 0.6]
    scope = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    weights = rng.normal(size=len(scope)) * scale
    kind = rng.integers(5)
    if kind == 0:
        graph = graph.add_potts(scope, weights)
    elif kind == 1:
        graph = graph.add_truncated_linear(scope, weights, float(rng.integers(1, 4)))
    elif kind == 2:
        graph = graph.add_label_distances(scope, rng.normal(size=k) * scale)
    elif kind == 3:
        graph = graph.add_truncated_linear(scope, np.abs(weights), 1, hard=True)
    else:
        graph = graph.add_potts(scope, rng.choice([-np.inf, 1.0], len(scope)))
    return graph.add_tables([[0, 1]], [rng.normal(size=(k, k))]) if rng.random() < 0.2 else graph


def _conditionals(rng: np.random.Generator) -> FactorGraph:
    n = int(rng.integers(2, 8))
    states = rng.integers(2, 4 if rng.random() < 0.3 else 3, n)
    names = rng.permutation(n)
    scopes, tables = [], []
    for k in range(n):
        v = int(names[k])
        parents = [int(names[rng.integers(k)])] if k else []
        if k > 1 and rng.random() < 0.2:
            parents = [int(u) for u in rng.choice(names[:k], 2, replace=False)]
        shape = [int(states[u]) for u in [*parents, v]]
        p = rng.choice([0.05, 0.5, 0.95, 0.3], shape)
        if rng.random() < 0.4:
            p = np.ones(shape)
        if not parents and rng.random() < 0.5:
            continue  # a uniform root
        scopes.append([*parents, v])
        tables.append(np.log(p / p.sum(axis=-1, keepdims=True)))
    return FactorGraph.from_tables(states, scopes, tables)


def _tables(rng: np.random.Generator, scale: float, tree: bool, pairwise: bool) -> FactorGraph:
    n = int(rng.integers(1, 7))
    states = rng.integers(1 if rng.random() < 0.3 else 2, 4, n)
    scopes: list[list[int]] = []
    if tree:
        scopes = [[v, int(rng.integers(v))] for v in range(1, n) if rng.random() < 0.9]
    else:
        for _ in range(int(rng.integers(0, 8))):
            arity = int(rng.integers(0, min(2 if pairwise else 3, n) + 1))
            scopes.append(rng.permutation(n)[:arity].tolist())
    scopes += [[v] for v in range(n) if rng.random() < 0.5]
    tables = []
    for scope in scopes:
        table = rng.normal(size=[int(states[v]) for v in scope]) * scale
        if table.size > 1 and rng.random() < 0.2:
            table = np.where(rng.random(table.shape) < 0.25, -np.inf, table)
        tables.append(table)
    return FactorGraph.from_tables(states, scopes, tables)


def beside(graph: FactorGraph, other: FactorGraph) -> FactorGraph:
    """Two models as one; the first unchanged where it has no tables, or is large."""
    if (
        any(g.form != "table" for g in graph.groups)
        or np.prod(graph.n_states) * np.prod(other.n_states) > 20_000
    ):
        return graph
    both = [(g, n) for g, n in ((graph, 0), (other, graph.n_variables))]
    return FactorGraph.from_tables(
        np.r_[graph.n_states, other.n_states],
        [(g.scope(i) + n).tolist() for g, n in both for i in range(g.n_factors)],
        [g.log_table(i) for g, n in both for i in range(g.n_factors)],
    )


def draw_solver(rng: np.random.Generator) -> BeliefPropagation | TreeReweighted | MeanField:
    tol = float(10.0 ** -rng.integers(2, 10))
    damping = float(rng.choice([0.0, 0.0, 0.3, 0.5, 0.9]))
    iterations = int(rng.choice([1, 2, 7, 400]))
    kind = rng.integers(6)
    if kind == 0:
        return MeanField(max_iters=iterations, tol=tol)
    if kind == 1:
        return TreeReweighted(max_iters=iterations, tol=tol, damping=damping)
    schedule = str(rng.choice(["sequential", "flooding", "residual"]))
    return BeliefPropagation(max_iters=iterations, tol=tol, damping=damping, schedule=schedule)


# ------------------------------------------------------------------ checking


def check(number: int) -> str:
    """Draw and check one case; a word on how it ended."""
    rng = np.random.default_rng(number)
    graph = _labels(rng) if number % 11 == 10 else draw_graph(rng)
    solver = draw_solver(rng)
    if isinstance(solver, MeanField) and any(g.form == "machine" for g in graph.groups):
        solver = BeliefPropagation(max_iters=solver.max_iters, tol=solver.tol)
    if rng.random() < 0.15:  # beside a tree of other states, which must be right in any case
        graph = beside(graph, _tables(rng, 1.0, tree=True, pairwise=True))
    start = None
    if rng.random() < 0.3:  # an earlier answer: other evidence, or fewer factors
        earlier = graph.keep(rng.random(graph.n_factors) < 0.8) if rng.random() < 0.5 else graph
        start = _run(solver, _observe(earlier, rng))
    if rng.random() < 0.3:
        graph = _observe(graph, rng)
    x, weights = naive.assignments(graph), naive.log_scores(graph)
    log_z = float(naive.logsumexp(weights)) if len(weights) else -np.inf
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
    p = np.exp(weights - log_z)
    truth = np.concatenate(
        [np.bincount(x[:, v], p, minlength=s) for v, s in enumerate(graph.n_states)] or [[]]
    )
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
    alone = np.repeat([v not in model.bound_to_core() for v in range(len(x.T))], graph.n_states)
    worst = np.abs(answer.probs - truth)[alone].max(initial=0.0)
    assert worst <= 1e-9, f"{where}: a component that is a tree is off by {worst}"
    if model.forest:
        assert answer.status is Status.CONVERGED, f"{where}: a forest, {answer}"
        assert answer.log_z_kind is LogZ.EXACT, f"{where}: a forest, {answer.log_z_kind}"
        worst = np.abs(answer.probs - truth).max(initial=0.0)
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


def naive_table(graph: FactorGraph, factor: int) -> np.ndarray:
    """A factor's log-table, a global one's from its scores."""
    for group in graph.groups:
        if group.kind == "global" and factor in group.ids:
            return naive.global_table(graph, tuple(graph.scope(factor).tolist()), group.factor)
    return np.array(graph.log_table(factor))


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
        rest = {i: (graph.scope(i).tolist(), naive_table(graph, i))
                for i in range(graph.n_factors)}  # fmt: skip
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
        old = answer.state.vectors(before=True)
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
        return np.exp(total - naive.logsumexp(total))

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
    return np.exp(energy - naive.logsumexp(energy))


def _expected(scope: list[int], log: np.ndarray, q: list[np.ndarray], v: int) -> np.ndarray:
    """E[log Psi | x_v] under q of the other variables."""
    out = np.zeros(len(q[v]))
    for x in itertools.product(*(range(s) for s in log.shape)):
        weight = np.prod([q[u][k] for u, k in zip(scope, x) if u != v])
        out[x[scope.index(v)]] += weight * log[x]
    return out
