"""Simplified models against enumeration: what comes back is what the model says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from draws import draws
from minfer import ContradictionError, Exact, FactorGraph, Marginals
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.simplify import simplify
from minfer.solvers import simplified
from minfer.solvers.gradients import pull_back
from oracle.truth import factors_of, log_weights, logsumexp


def drawn(seed: int, evidence: bool = True) -> FactorGraph:
    """A model of up to seven variables with zeros, repetitions, products and logical factors."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 8))
    sizes = rng.integers(1, 6 if n < 6 else 4, n)
    if rng.random() < 0.4:
        sizes[:] = 2
    decades = rng.choice([1.0, 3.0, 25.0]) * math.log(10.0)
    scopes, tables = [], []
    kinds = [rng.integers(0, max(1, s - 1), s) for s in sizes]  # states that look alike
    for _ in range(int(rng.integers(0, 9)) if n else 0):
        arity = min(int(rng.integers(0, 5)), n)
        scope = rng.permutation(n)[:arity]
        table = rng.uniform(-decades / 2, decades / 2, sizes[scope])
        if rng.random() < 0.4:  # one of few numbers
            table = rng.choice(rng.normal(size=3), size=table.shape)
        table = np.where(rng.random(table.shape) < rng.choice([0.0, 0.2, 0.5]), -np.inf, table)
        if arity and rng.random() < 0.7:  # repeated, up to factors
            for axis, v in enumerate(scope):
                table = np.take(table, kinds[v], axis=axis)
                if rng.random() < 0.5:
                    factor = rng.normal(size=sizes[v])
                    table = table + factor.reshape([-1] + [1] * (arity - 1 - axis))
        if arity > 1 and rng.random() < 0.3:  # a product
            cut = int(rng.integers(1, arity))
            rest = (0,) * (arity - cut)
            with np.errstate(invalid="ignore"):
                table = (
                    table[(..., *rest)].reshape(table.shape[:cut] + (1,) * (arity - cut))
                    + (table[(0,) * cut])
                )
        scopes.append(scope.tolist())
        tables.append(np.nan_to_num(table, nan=-np.inf, posinf=0.0, neginf=-np.inf))
    graph = FactorGraph.from_tables(sizes, scopes, tables)
    for _ in range(int(rng.integers(0, 3))):
        if n < 2:
            break
        scope = rng.permutation(n)[: rng.integers(2, n + 1)]
        of = {"states": [[int(rng.integers(0, sizes[v])) for v in scope]]}
        kind, one = rng.integers(0, 4), [scope.tolist()]
        if kind == 0:
            signs = [rng.choice([-1, 1], len(scope)).tolist()]
            graph = graph.add_clauses(one, rng.choice([np.inf, 1.5]), signs=signs, **of)
        elif kind == 1:
            graph = graph.add_exactly_one(one, **of)
        elif kind == 2:
            graph = graph.add_parity(one, odd=bool(rng.random() < 0.5), **of)
        else:
            graph = graph.add_cardinality(one, rng.normal(size=len(scope) + 1), **of)
    if evidence and n and rng.random() < 0.5:
        v = int(rng.integers(0, n))
        graph = graph.with_evidence({v: int(rng.integers(0, sizes[v]))})
    return graph


def weights_of(model: Conditioned, field: np.ndarray | None = None) -> np.ndarray:
    """Log-weights of all assignments of a conditioned model, by its own parts."""
    sizes = tuple(int(k) for k in model.graph._n_states)
    starts = model.graph._offsets
    field = model.field if field is None else field
    factors = [((v,), field[starts[v] : starts[v + 1]]) for v in range(len(sizes))]
    for g in model.groups:
        assert tuple(g.shape) == tuple(sizes[v] for v in g.scope[0])
        factors += [
            (tuple(scope), table.reshape(g.shape))
            for scope, table in zip(g.scope.tolist(), g.log_tables())
        ]
    for v in np.flatnonzero(model.fixed >= 0):
        keep = np.full(sizes[v], -np.inf)
        keep[model.fixed[v]] = 0.0
        factors.append(((int(v),), keep))
    return log_weights(sizes, factors) + model.constant


def sums(w: np.ndarray, axes: list[int]) -> np.ndarray:
    """Marginals over some axes, in their order."""
    p = np.exp(w - logsumexp(w.ravel()))
    out = p.sum(axis=tuple(a for a in range(p.ndim) if a not in axes))
    return out.transpose(np.argsort(np.argsort(axes)))


def check(seed: int) -> None:
    """Everything that comes back of a drawn model."""
    graph = drawn(seed)
    rng = np.random.default_rng(seed)
    truth = log_weights(tuple(graph.n_states.tolist()), factors_of(graph))
    log_z = logsumexp(truth.ravel())
    try:
        model = condition(graph)
        found = simplify(model)
    except ContradictionError:
        assert log_z == -np.inf
        return
    w = weights_of(found.model)
    if log_z == -np.inf:
        assert logsumexp(w.ravel()) == -np.inf
        return
    n = graph.n_variables
    assert abs(logsumexp(w.ravel()) - log_z) < 1e-11 * (1 + abs(log_z))
    probs = [sums(w, [v]) for v in range(n)]
    back = found.marginals(np.concatenate([np.zeros(0), *probs]))
    want = np.concatenate([np.zeros(0), *(sums(truth, [v]) for v in range(n))])
    np.testing.assert_allclose(back, want, rtol=1e-11, atol=1e-300)
    for _ in range(3):
        axes = rng.permutation(n)[: rng.integers(0, n + 1)].tolist()
        joint = found.joint(axes, sums(w, axes))
        np.testing.assert_allclose(joint, sums(truth, axes), rtol=1e-11, atol=1e-300)
    best = weights_of(found.model, found.best)
    x = found.best_states(np.array(np.unravel_index(best.argmax(), best.shape), dtype=int))
    assert truth[tuple(x)] >= truth.max() - 1e-9
    assert abs(best.max() - truth.max()) < 1e-9
    again = simplify(found.model)
    assert not again.changed, again.note


@pytest.mark.parametrize("block", range(draws(20)))
def test_all_answers_come_back(block: int):
    for seed in range(50 * block, 50 * block + 50):
        check(seed)


@pytest.mark.parametrize("block", range(draws(20)))
def test_free_variables_take_any_likelihood_afterwards(block: int):
    """A model simplified once, then known and likely states of its free variables."""
    for seed in range(50 * block, 50 * block + 50):
        graph = drawn(seed, evidence=False)
        rng = np.random.default_rng(seed)
        n, off = graph.n_variables, graph._offsets
        free = rng.random(n) < 0.5
        try:
            found = simplify(condition(graph), free)
        except ContradictionError:
            truth = log_weights(tuple(graph.n_states.tolist()), factors_of(graph))
            assert logsumexp(truth.ravel()) == -np.inf
            continue
        for _ in range(3):
            more = np.zeros(int(off[-1]))
            for v in np.flatnonzero(free):
                own = slice(int(off[v]), int(off[v + 1]))
                more[own] = rng.normal(size=int(graph.n_states[v]))
                if rng.random() < 0.5:
                    more[own] = np.where(
                        np.arange(len(more[own])) == rng.integers(0, 9), 0, -np.inf
                    )
            factors = factors_of(graph)
            factors += [((v,), more[off[v] : off[v + 1]]) for v in range(n)]
            truth = log_weights(tuple(graph.n_states.tolist()), factors)
            log_z = logsumexp(truth.ravel())
            w = weights_of(found.model, found.field(found.before.field + more))
            if log_z == -np.inf:
                assert logsumexp(w.ravel()) == -np.inf
                continue
            assert abs(logsumexp(w.ravel()) - log_z) < 1e-11 * (1 + abs(log_z))
            back = found.marginals(np.concatenate([np.zeros(0), *(sums(w, [v]) for v in range(n))]))
            want = np.concatenate([np.zeros(0), *(sums(truth, [v]) for v in range(n))])
            np.testing.assert_allclose(back, want, rtol=1e-11, atol=1e-300)


def test_drawn_states_have_their_shares():
    """Of merged states each is drawn as often as it is likely."""
    with np.errstate(divide="ignore"):
        table = np.log(np.array([[1.0, 2.0], [3.0, 6.0], [0.0, 0.0], [5.0, 1.0], [2.0, 4.0]]))
    graph = FactorGraph.from_tables([5, 2, 2], [[0, 1], [1, 2]], [table, np.log([[1, 2], [3, 1]])])
    found = simplify(condition(graph))
    assert (found.merged, found.excluded) == (2, 1)
    w = weights_of(found.model)
    rng = np.random.default_rng(1)
    simple = rng.choice(w.size, p=np.exp(w - logsumexp(w.ravel())).ravel(), size=20_000)
    x = found.draw_states(np.stack(np.unravel_index(simple, w.shape), axis=1), rng)
    truth = log_weights((5, 2, 2), factors_of(graph))
    p = np.exp(truth - logsumexp(truth.ravel()))
    seen = np.zeros(p.shape)
    np.add.at(seen, tuple(x.T), 1.0)
    assert seen[p == 0].sum() == 0
    left = p > 0
    chi = ((seen - 20_000 * p)[left] ** 2 / (20_000 * p[left])).sum()
    assert chi < left.sum() + 5 * math.sqrt(2 * left.sum())


def test_what_zeros_contradict_is_told():
    """An even and an odd number of ones: neither excludes a state by itself."""
    parity = np.indices((2, 2, 2)).sum(axis=0) % 2
    even, odd = np.where(parity == 0, 0.0, -np.inf), np.where(parity == 1, 0.0, -np.inf)
    graph = FactorGraph.from_tables([2, 2, 2], [[0, 1, 2], [2, 0, 1]], [even, odd])
    with pytest.raises(ContradictionError, match="every assignment has probability zero"):
        simplify(condition(graph))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simplify whatever comes to a tree."""
    monkeypatch.setattr(simplified, "_looks_simple", lambda model: (-1.0, True))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("block", range(draws(10)))
def test_exact_answers_of_simplified_models(block: int):
    """Marginals, log Z, joints of factors and of any variables, and gradients."""
    for seed in range(30 * block, 30 * block + 30):
        graph = drawn(seed)
        truth = log_weights(tuple(graph.n_states.tolist()), factors_of(graph))
        log_z = logsumexp(truth.ravel())
        solver = Exact(method="clique-tree")
        if log_z == -np.inf:
            with pytest.raises(ContradictionError, match=r"zero|no state left|forbid"):
                solver(graph)
            continue
        m = solver(graph)
        n = graph.n_variables
        assert abs(m.log_z - log_z) < 1e-10 * (1 + abs(log_z))
        want = np.concatenate([np.zeros(0), *(sums(truth, [v]) for v in range(n))])
        np.testing.assert_allclose(m.probs, want, atol=1e-11)
        for f in range(graph.n_factors):
            own = sums(truth, graph.scope(f).tolist())
            np.testing.assert_allclose(m.factor(f), own, atol=1e-11)
        rng = np.random.default_rng(seed)
        axes = rng.permutation(n)[: rng.integers(1, n + 1)].tolist() if n else []
        if axes:
            table = m.joint(*axes)
            np.testing.assert_allclose(np.asarray(table.table), sums(truth, axes), atol=1e-11)
        check_gradient(graph, m, rng)


def check_gradient(graph: FactorGraph, m: Marginals, rng: np.random.Generator) -> None:
    """Against the joint table of all variables."""
    c = rng.normal(size=len(m.probs))
    back = pull_back(m, c)
    plain = pull_back(Exact(method="enumerate")(graph), c)
    np.testing.assert_allclose(back.field, plain.field, atol=1e-9)
    np.testing.assert_allclose(back.weights, plain.weights, atol=1e-9)


def test_states_whose_share_would_underflow_stay_apart():
    graph = FactorGraph.empty([2, 2]).tilt([-18000.0, -4800.0, -360.0, 0.0])
    found = simplify(condition(graph))
    assert found.state.tolist() == [0, 1, 0, 0]  # the first two are not one
    np.testing.assert_allclose(np.log(found.share[2:]), [-360.0, 0.0], atol=1e-12)
