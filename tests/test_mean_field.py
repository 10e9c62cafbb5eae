"""Mean field against sums over all assignments: a bound, that rises, at a fixed point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws
from minfer import ContradictionError, FactorGraph
from minfer.solvers.base import LogZ, Marginals, Status
from minfer.solvers.mean_field import MeanField
from oracle import models
from oracle import truth as naive
from test_gibbs import check_probs

many = settings(max_examples=draws(150), deadline=None, derandomize=True)
GRAPHS = models.table_graphs(max_states=4)
very_many = settings(many, max_examples=draws(500))


def solve(graph, solver=None, start=None):
    """The answer, or None where the graph is found to be a contradiction."""
    try:
        return (solver or MeanField())(graph, start)
    except ContradictionError:
        assert naive.log_z(graph) == -np.inf
        return None


def product_bound(graph, probs):
    """F(q) by definition, over all assignments; 2e-308 stands for no mass."""
    probs = np.where(probs > 1e-300, probs, 0.0)
    x = naive.assignments(graph)
    q = probs[graph.offsets[:-1] + x].prod(axis=1)
    score = naive.log_scores(graph)
    entropy = -(probs[probs > 0] * np.log(probs[probs > 0])).sum()
    return (q[q > 0] * score[q > 0]).sum() + entropy


def rises(bounds):
    before, after = bounds[:-1], bounds[1:]
    slack = 1e-9 * np.maximum(1, np.abs(np.where(np.isfinite(after), after, 0)))
    return bool((after >= before - slack).all())


@very_many
@given(GRAPHS)
def test_bound_below_log_z_and_rising(graph):
    m = solve(graph)
    if m is None:
        return
    check_probs(m)
    exact = naive.log_z(graph)
    assert not np.isnan(m.log_z)
    assert m.log_z <= exact + 1e-9 * max(1, abs(exact))
    assert m.log_z_kind is LogZ.LOWER
    assert rises(m.state.bounds)
    assert m.state.bounds.shape == m.residuals.shape == (m.iterations,)
    assert m.log_z == m.state.bounds[-1]
    assert (m.log_z == -np.inf) == bool(m.note)


@many
@given(GRAPHS)
def test_bound_is_what_it_says(graph):
    """The bound read off during a sweep is F at the q returned, converged or not."""
    for n in (1, 2, 1000):
        m = solve(graph, MeanField(max_iters=n))
        if m is not None and np.isfinite(m.log_z):
            assert m.log_z == pytest.approx(product_bound(graph, m.probs), rel=1e-9, abs=1e-9)


@many
@given(GRAPHS)
def test_answer_is_a_fixed_point(graph):
    m = solve(graph, MeanField(tol=1e-10))
    if m is None or m.status is not Status.CONVERGED:
        return
    again = MeanField(tol=1e-10)(graph, start=m)
    np.testing.assert_allclose(again.probs, m.probs, atol=1e-7)
    assert again.log_z >= m.log_z - 1e-9 * max(1, abs(m.log_z))
    assert again.iterations <= 3


@many
@given(models.table_graphs(max_states=4, max_arity=1))
def test_exact_without_interactions(graph):
    m = solve(graph)
    if m is None:
        return
    np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-12)
    assert m.log_z == pytest.approx(naive.log_z(graph), rel=1e-12, abs=1e-9)
    assert m.status is Status.CONVERGED


@many
@given(GRAPHS, GRAPHS)
def test_any_start_is_taken_or_ignored(graph, other):
    start = solve(other)
    m = solve(graph, start=start)
    if m is not None:
        check_probs(m)
        assert m.log_z <= naive.log_z(graph) + 1e-6


@many
@given(st.integers(0, 2**32 - 1))
def test_quadratic_edges_equal_tables(seed):
    """The special case for 2x2 tables, against the same tables hidden in triples."""
    rng = np.random.default_rng(seed)
    n = 5
    edges = np.array([(i, j) for i in range(n) for j in range(n) if i != j])
    edges = edges[rng.permutation(len(edges))[:6]]
    unary, pairs = rng.normal(size=(n, 2)), rng.normal(size=(6, 2, 2)) * 2
    everyone = np.arange(n)[:, None]
    fast = FactorGraph.empty(np.full(n, 2)).add_tables(everyone, unary).add_tables(edges, pairs)
    idle = np.array([[next(u for u in range(n) if u not in e)] for e in edges])
    triples = np.repeat(pairs[..., None], 2, axis=-1)
    slow = FactorGraph.empty(np.full(n, 2)).add_tables(everyone, unary)
    slow = slow.add_tables(np.hstack([edges, idle]), triples)
    a, b = MeanField(max_iters=7)(fast), MeanField(max_iters=7)(slow)
    np.testing.assert_allclose(a.probs, b.probs, atol=1e-12)
    np.testing.assert_allclose(a.state.bounds, b.state.bounds, atol=1e-10)


def test_large_finite_penalties_do_not_swallow_small_weights():
    """-1e30 as a soft zero: in a quadratic form 1e30 + 0.7 - 1e30 would be 0."""
    graph = FactorGraph.from_tables([2, 2], [[0], [0, 1]], [[0, 0.7], [[-1e30, 0], [0, 0]]])
    hard = FactorGraph.from_tables([2, 2], [[0], [0, 1]], [[0, 0.7], [[-np.inf, 0], [0, 0]]])
    assert MeanField()(graph).log_z == pytest.approx(MeanField()(hard).log_z)


def test_soft_penalties_choose_the_better_side():
    """Two neighbours exclude each other: the one with more to gain stays free."""
    graph = FactorGraph.from_tables(
        [2, 2], [[0], [1], [0, 1]], [[0, 3.0], [0, 1.0], [[0, 0], [0, -np.inf]]]
    )
    m = MeanField()(graph)
    assert m.log_z == pytest.approx(np.log1p(np.exp(3)))
    assert m.status is Status.CONVERGED
    assert m[1].tolist() == [1, np.finfo(float).tiny]  # no mass, though nothing forbids it


def test_exclusive_or_needs_the_search():
    """x0 != x1 without field: every penalty leaves the uniform saddle; one side is taken."""
    unequal = [[-np.inf, 0], [0, -np.inf]]
    chain = FactorGraph.from_tables([2] * 6, [[i, i + 1] for i in range(5)], [unequal] * 5)
    m = MeanField()(chain)
    assert m.log_z == pytest.approx(0, abs=1e-12)
    assert naive.log_z(chain) == pytest.approx(np.log(2))
    assert (m.max_prob() == 1).all()


def test_contradiction_is_reported_not_hidden():
    """An odd ring of "unequal" has no solution, which no single factor shows."""
    unequal = [[-np.inf, 0], [0, -np.inf]]
    ring = FactorGraph.from_tables([2] * 3, [[0, 1], [1, 2], [0, 2]], [unequal] * 3)
    m = MeanField()(ring)
    assert m.log_z == -np.inf
    assert not m.converged
    assert "BeliefPropagation" in m.note
    check_probs(m)


def test_symmetric_start_is_a_saddle():
    m = MeanField()(FactorGraph.grid(np.zeros((3, 3)), 2.0))
    assert (m.probs == 0.5).all()
    biased = Marginals.from_probs(m.graph, np.tile([0.4, 0.6], 9), "hand")
    assert MeanField()(m.graph, start=biased).log_z > m.log_z + 1


def test_limits_and_status():
    graph = FactorGraph.grid(np.random.default_rng(0).normal(size=(8, 8)), 1.0)
    short = MeanField(max_iters=3, tol=0)(graph)
    assert short.status is Status.MAX_ITERS
    assert short.iterations == 3
    none = MeanField(time_limit=1e-9, tol=0)(graph)
    assert none.status is Status.TIME_LIMIT
    assert none.iterations >= 1
    check_probs(none)
    full = MeanField()(graph)
    assert full.status is Status.CONVERGED
    assert full.residuals[-1] <= 1e-6
    assert set(full.timings) == {"plan", "iterate"}


def test_hard_model_under_every_limit():
    """However few sweeps there are, the bound told is that of the q returned."""
    rng = np.random.default_rng(3)
    scopes = [rng.choice(8, 3, replace=False) for _ in range(12)]
    tables = [np.where(rng.random((3, 3, 3)) < 0.3, -np.inf, rng.normal(size=(3, 3, 3)))] * 12
    graph = FactorGraph.from_tables([3] * 8, scopes, tables)
    for n in (1, 2, 5, 20, 200):
        m = MeanField(max_iters=n)(graph)
        check_probs(m)
        assert m.iterations <= n
        assert m.log_z == pytest.approx(product_bound(graph, m.probs))
        assert m.log_z <= naive.log_z(graph)
