"""The method: gains, objectives and Algorithm 1 against enumeration and exhaustive search."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

import naive
import zoo
from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    MinDivergence,
    MinferError,
    MinJoint,
    MinSize,
    factor_gains,
    infer,
)
from minfer.reduction import seeds
from minfer.reduction.bound import feature_bound, pinsker, quantile_bound

SEEDS = {"unary": seeds.unary, "globals": seeds.unary_and_globals, "forest": seeds.spanning_forest}


def divergence(p_graph: FactorGraph, q_graph: FactorGraph) -> float:
    """D(p || q) by enumeration."""
    x = naive.assignments(p_graph)
    p, q = p_graph.log_score(x), q_graph.log_score(x)
    p, q = p - logsumexp(p), q - logsumexp(q)
    alive = p > -np.inf
    with np.errstate(invalid="ignore"):
        return float((np.exp(p[alive]) * (p[alive] - q[alive])).sum())


# ------------------------------------------------------------------ gains


@given(zoo.table_graphs(max_variables=4))
@settings(max_examples=150)
def test_gain_is_the_divergence_of_adding_the_factor(graph):
    seed = seeds.unary(graph)
    small = graph.keep(seed)
    if not np.isfinite(naive.log_z(small)):
        return
    gains = factor_gains(graph, Exact(method="enumerate")(small), seed)
    assert np.isinf(gains[seed]).all()
    for i in np.flatnonzero(~seed):
        with_i = graph.keep(np.flatnonzero(seed | (np.arange(graph.n_factors) == i)))
        if not np.isfinite(naive.log_z(with_i)):
            assert np.isinf(gains[i])
            continue
        exact = divergence(small, with_i)
        assert gains[i] == pytest.approx(exact, rel=1e-9, abs=1e-9), i


@given(zoo.binary_graphs(max_variables=5))
@settings(max_examples=150)
def test_gain_of_features_and_of_their_tables(graph):
    seed = seeds.unary(graph)
    m = Exact()(graph.keep(seed))
    gains = factor_gains(graph, m, seed)
    tables = FactorGraph.from_tables(
        graph.n_states,
        [graph.scope(i) for i in range(graph.n_factors)],
        [graph.log_table(i) for i in range(graph.n_factors)],
    )
    np.testing.assert_allclose(factor_gains(tables, m, seed), gains, rtol=1e-7, atol=1e-9)


def test_gain_is_stable():
    """Against the exact value in more digits: tiny and huge weights, means next to 0 and 1."""
    mpmath = pytest.importorskip("mpmath")
    from minfer.kernels.gains import feature_gain

    mpmath.mp.dps = 60
    rng = np.random.default_rng(0)
    for _ in range(2000):
        mu = rng.choice([10.0 ** rng.uniform(-14, -0.31), rng.random(), 0.0, 1.0])
        theta = rng.choice([-1, 1]) * 10.0 ** rng.uniform(-8, 3.4)
        m, t = mpmath.mpf(float(mu)), mpmath.mpf(float(theta))
        exact = mpmath.log(1 - m + m * mpmath.exp(t)) - m * t
        assert feature_gain(mu, 1 - mu, theta) == pytest.approx(float(exact), rel=1e-11, abs=1e-40)


def test_higher_arity_features():
    graph = zoo.higher_order()["features"]
    seed = seeds.unary(graph)
    m = Exact()(graph.keep(seed))
    gains = factor_gains(graph, m, seed)
    for i in np.flatnonzero(~seed):
        table = graph.log_table(i)
        joint = m.product(graph.scope(i))
        expected = np.log((joint * np.exp(table)).sum()) - (joint * table).sum()
        assert gains[i] == pytest.approx(expected, abs=1e-12)


def test_global_factors_belong_to_the_seed():
    graph = zoo.with_globals()["one-of-three-and-pairs"]
    m = BeliefPropagation()(graph.keep(seeds.unary(graph)))
    with pytest.raises(MinferError, match="put it into the seed"):
        factor_gains(graph, m, seeds.unary(graph))
    assert np.isfinite(
        factor_gains(graph, m, seeds.unary_and_globals(graph))[~seeds.unary_and_globals(graph)]
    ).all()


# ------------------------------------------------------------------ seeds


@given(zoo.table_graphs(max_arity=2))
def test_spanning_forest(graph):
    mask = seeds.spanning_forest(graph)
    kept = graph.keep(mask)
    assert mask[graph.arity <= 1].all()
    before, after = graph.component_labels(), kept.component_labels()
    assert len(np.unique(before)) == len(np.unique(after)), "spans"
    trees = len(np.unique(after))
    assert int((kept.arity == 2).sum()) == graph.n_variables - trees, "has no cycle"


# ------------------------------------------------------------------ objectives

QUARTERS = st.lists(
    st.one_of(st.integers(0, 8).map(lambda k: k / 4), st.just(np.inf)), min_size=0, max_size=9
)


def subsets(gains):
    """All masks that keep every infinite gain."""
    free = np.flatnonzero(np.isfinite(gains))
    for bits in itertools.product([False, True], repeat=len(free)):
        mask = ~np.isfinite(gains)
        mask[free] = bits
        yield mask


@given(QUARTERS, st.integers(0, 40).map(lambda k: k / 8))
@settings(max_examples=300)
def test_objectives_are_optimal_for_the_surrogate(gains, parameter):
    """Exhaustive search, exact arithmetic: ties, zeros, infinite gains, budgets met exactly."""
    gains = np.array(gains)
    lost = {m.tobytes(): float(gains[~m].sum()) for m in subsets(gains)}
    size = {m.tobytes(): int(m.sum()) for m in subsets(gains)}
    for paper in (False, True):
        keep = MinSize(parameter)(gains, paper)
        assert lost[keep.tobytes()] <= parameter
        assert keep.sum() == min(s for k, s in size.items() if lost[k] <= parameter)
        m = int(parameter)
        keep = MinDivergence(m)(gains, paper)
        forced = int(np.isinf(gains).sum())
        assert keep.sum() <= m + forced
        assert lost[keep.tobytes()] == min(d for k, d in lost.items() if size[k] <= m + forced)
    keep = MinJoint(parameter)(gains)
    best = min(lost[k] + parameter * size[k] for k in lost)
    assert lost[keep.tobytes()] + parameter * keep.sum() == pytest.approx(best)
    np.testing.assert_array_equal(keep, gains >= parameter)


@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
@settings(max_examples=100)
def test_selection_equals_the_papers_sort(seed, share):
    rng = np.random.default_rng(seed)
    gains = rng.exponential(size=int(rng.integers(1, 400))) ** 3
    gains[rng.random(len(gains)) < 0.1] = 0.0
    budget = share * gains.sum()
    a, b = MinSize(budget)(gains), MinSize(budget)(gains, paper_order=True)
    np.testing.assert_array_equal(a, b)
    m = int(share * len(gains))
    np.testing.assert_array_equal(
        MinDivergence(m)(gains), MinDivergence(m)(gains, paper_order=True)
    )


def test_on_one_graph_equal_size_means_equal_set():
    gains = np.random.default_rng(0).exponential(size=500)
    for m in (1, 50, 499):
        keep = MinDivergence(m)(gains)
        np.testing.assert_array_equal(MinJoint(gains[keep].min())(gains), keep)
        np.testing.assert_array_equal(MinSize(gains[~keep].sum() * (1 + 1e-9))(gains), keep)


def test_bad_settings():
    for bad in (lambda: MinSize(-1), lambda: MinDivergence(1.5), lambda: MinJoint(np.nan)):
        with pytest.raises(MinferError):
            bad()


# ------------------------------------------------------------------ Algorithm 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("solver", [s for s in zoo.SOLVERS if s != "enumerate"])
def test_every_solver_as_black_box(solver, seed):
    rng = np.random.default_rng(1)
    graph = FactorGraph.grid(2 * rng.normal(size=(4, 4)), 0.5)
    s = zoo.SOLVERS[solver]
    everything = infer(graph, MinJoint(0.0), s, SEEDS[seed])
    assert everything.keep.all()
    assert everything.divergence == 0.0
    nothing = infer(graph, MinJoint(np.inf), s, SEEDS[seed])
    np.testing.assert_array_equal(nothing.keep, nothing.seed)
    assert nothing.marginals is nothing.seed_marginals, "nothing added: the second run is skipped"
    some = infer(graph, MinDivergence(6), s, SEEDS[seed])
    assert some.n_added == 6
    assert some.n_seed + some.n_added + some.n_forced == len(some.kept)
    assert some.divergence == pytest.approx(some.gains[~some.keep].sum())
    assert list(some.timings) == ["seed", "gains", "select", "infer"]
    assert "kept" in repr(some)


def test_more_factors_bring_the_answer_closer():
    rng = np.random.default_rng(2)
    graph = FactorGraph.grid(3 * rng.normal(size=(4, 4)), 1.0)
    truth = naive.marginals(graph)
    errors = [
        np.abs(infer(graph, MinDivergence(m), Exact()).marginals.probs - truth).mean()
        for m in (0, 6, 12, 18, 24)
    ]
    assert errors[-1] < 1e-9
    assert errors[0] > errors[2] > errors[-1]


def test_surrogate_is_exact_for_independent_features():
    """Left-out features over disjoint pairs are independent under the seed: D1 = D."""
    rng = np.random.default_rng(3)
    graph = FactorGraph.pairwise(rng.normal(size=6), [[0, 1], [2, 3], [4, 5]], [1.0, -2.0, 0.7])
    result = infer(graph, MinDivergence(1), Exact())
    exact = divergence(graph.keep(result.keep), graph)
    assert result.divergence == pytest.approx(exact, abs=1e-10)


def test_forced_factors_are_kept_outside_the_budget():
    graph = zoo.graphs()["zeros"].add_tables([[0], [1], [2]], [[0, 0.1], [0.2, 0], [0, 0, 0.3]])
    result = infer(graph, MinDivergence(0), Exact())
    assert result.n_forced == 2
    assert result.n_added == 0
    assert np.isfinite(result.divergence)


def test_a_seed_of_the_wrong_shape_is_an_error():
    graph = zoo.graphs()["grid"]
    with pytest.raises(MinferError, match="seed"):
        infer(graph, MinJoint(0.1), Exact(), np.ones(3, dtype=bool))


# ------------------------------------------------------------------ bounds


def test_proposition_2_corrected_holds_and_is_tight():
    """No violation over random joint laws of the features; equality at the comonotone law."""
    rng = np.random.default_rng(4)
    for case in range(3000):
        n = int(rng.integers(1, 6))
        theta = rng.normal(size=n) * rng.choice([0.3, 1.0, 4.0])
        phi = np.array(list(itertools.product([0, 1], repeat=n)))
        p = rng.dirichlet(np.full(len(phi), rng.choice([0.1, 1.0])))
        mu = p @ phi
        exact = np.log((p * np.exp(phi @ theta)).sum()) - mu @ theta
        bound, loose = feature_bound(mu, theta), feature_bound(mu, theta, loose=True)
        assert exact <= bound + 1e-9
        assert bound <= loose + 1e-9
        joints = [np.array([1 - m, m]) for m in mu]
        tables = [np.array([0.0, t]) for t in theta]
        assert quantile_bound(joints, tables) == pytest.approx(bound, abs=1e-9)
        u = np.sort(np.concatenate([[0.0], np.where(theta >= 0, 1 - mu, mu), [1.0]]))
        middle, width = (u[1:] + u[:-1]) / 2, np.diff(u)
        on = np.where(theta >= 0, middle[:, None] > 1 - mu, middle[:, None] < mu)
        comonotone = np.log((width * np.exp(on @ theta)).sum()) - mu @ theta
        assert bound == pytest.approx(comonotone, abs=1e-9), case


def test_quantile_bound_on_dropped_tables():
    rng = np.random.default_rng(5)
    for _ in range(400):
        states = rng.integers(2, 4, size=3)
        scopes = [[0, 1], [1, 2], [0, 2]]
        tables = [rng.normal(size=[states[v] for v in s]) for s in scopes]
        graph = FactorGraph.from_tables(
            states, [[0], *scopes], [rng.normal(size=states[0]), *tables]
        )
        keep = np.array([True, *(rng.random(3) < 0.5)])
        small = graph.keep(keep)
        dropped = np.flatnonzero(~keep)
        x, p = naive.joint(small)
        joints = []
        for i in dropped:
            joint = np.zeros(tuple(states[graph.scope(i)]))
            np.add.at(joint, tuple(x[:, graph.scope(i)].T), p)
            joints.append(joint)
        bound = quantile_bound(joints, [graph.log_table(i) for i in dropped])
        assert divergence(small, graph) <= bound + 1e-9


def test_pinsker():
    assert pinsker(0.0) == 0.0
    assert pinsker(0.02) == pytest.approx(0.1)
    assert pinsker(50.0) == 1.0
