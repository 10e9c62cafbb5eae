"""The method: gains, objectives and Algorithm 1 against enumeration and exhaustive search."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws, few
from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    Marginals,
    MinDivergence,
    MinferError,
    MinJoint,
    factor_gains,
    infer,
)
from minfer.kernels.scores.gains import feature_gain, feature_gains
from minfer.reduction import seeds
from minfer.reduction.gains import SCORES, factor_scores
from minfer.reduction.recipes import Compensated
from oracle import lists, models
from oracle import truth as naive
from refused import refused

SEEDS = {"unary": seeds.unary, "globals": seeds.unary_and_globals, "forest": seeds.spanning_forest}


@given(models.table_graphs(max_variables=4))
@settings(max_examples=draws(150))
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
        exact = naive.divergence(small, with_i)
        assert gains[i] == pytest.approx(exact, rel=1e-9, abs=1e-9), i


BOUNDED = {**lists.graphs(), **lists.higher_order(), **lists.every_kind(), **lists.logical()}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", BOUNDED)
def test_scores_lie_within_their_bounds(name, score):
    """Whatever the marginals: drawn, almost certain, certain. The spread is that of the table."""
    graph, rng = BOUNDED[name], np.random.default_rng(0)
    most = np.empty(graph.n_factors)
    for g in graph.groups:
        most[g.ids] = g.score_bounds(score)
        tables = g.log_tables()
        with np.errstate(invalid="ignore"):
            wide = np.where(np.isneginf(tables).any(axis=1), np.inf, np.ptp(tables, axis=1))
        np.testing.assert_allclose(g.spread(), wide, rtol=1e-14)
    for alpha in (3.0, 1.0, 0.3, 0.03, 0.0003):
        probs = [rng.dirichlet(np.full(s, alpha)) for s in graph.n_states]
        m = Marginals.from_probs(graph, np.concatenate([*probs, []]), "drawn")
        assert (factor_scores(graph, m, None, score) <= most * (1 + 1e-12) + 1e-15).all()


@given(models.table_graphs(max_variables=4), st.integers(0, 1000))
def test_drawn_scores_lie_within_their_bounds(graph, seed):
    rng = np.random.default_rng(seed)
    probs = [rng.dirichlet(np.ones(s)) for s in graph.n_states]
    m = Marginals.from_probs(graph, np.concatenate([*probs, []]), "drawn")
    for score in SCORES:
        found = factor_scores(graph, m, None, score)
        for g in graph.groups:
            error = 1e-14 * (1 + g.magnitude())
            assert (found[g.ids] <= g.score_bounds(score) * (1 + 1e-12) + error).all()


@pytest.mark.parametrize("theta", [1e-8, 1e-3, 0.009, 0.011, 0.5, 3.0, 40.0, 700.0, 1e5])
def test_bounds_of_scores_are_reached(theta):
    """The gain of a feature at its worst mean; reverse, at that of the way back; residual, at 1/2.

    That mean is (1 - r / (e^r - 1)) / r, about 1/2 for small weights and 1 / r for large ones.
    """
    one = FactorGraph.empty([2]).add_features([[0]], [theta], [False, True])
    pair = FactorGraph.empty([2, 2]).add_features([[0, 1]], [theta], "and")
    (most,) = one.groups[0].score_bounds()
    assert most <= min(theta**2 / 8 * (1 + 1e-12), theta)
    small = theta < 1e-3
    mean = 0.5 if small else 1 / theta - 1 / (np.expm1(theta) if theta < 700 else np.inf)
    m = Marginals.from_probs(one, [1 - mean, mean], "worst")
    rel = 1e-4 if theta < 0.1 else 1e-9
    assert factor_scores(one, m)[0] == pytest.approx(most, rel=rel)
    if 1e-3 < theta < 40:
        on = (1 - mean) * np.exp(-theta)
        m = Marginals.from_probs(one, np.array([mean, on]) / (mean + on), "worst")
        assert factor_scores(one, m, None, "reverse")[0] == pytest.approx(most, rel=1e-4)
    half = Marginals.from_probs(pair, [0.5] * 4, "half")
    (most,) = pair.groups[0].score_bounds("residual")
    assert factor_scores(pair, half, None, "residual")[0] == pytest.approx(most, rel=1e-12)


@given(models.binary_graphs(max_variables=5))
@settings(max_examples=draws(150))
def test_gain_of_features_and_of_their_tables(graph):
    seed = seeds.unary(graph)
    m = Exact()(graph.keep(seed))
    gains = factor_gains(graph, m, seed)
    tables = models.as_tables(graph)
    np.testing.assert_allclose(factor_gains(tables, m, seed), gains, rtol=1e-7, atol=1e-9)


def test_gain_is_stable():
    """Against the exact value in more digits: tiny and huge weights, means next to 0 and 1."""
    mpmath = pytest.importorskip("mpmath")

    mpmath.mp.dps = 60
    rng = np.random.default_rng(0)
    n = 4000
    kinds = [10.0 ** rng.uniform(-14, -0.31, n), rng.random(n), np.zeros(n), np.ones(n)]
    mu = np.choose(rng.integers(0, 4, n), kinds)
    theta = rng.choice([-1, 1], n) * 10.0 ** rng.uniform(-8, np.where(rng.random(n) < 0.5, 3.4, 1))
    order = np.argsort(np.minimum(mu, 1 - mu) * np.exp(np.minimum(theta, 700)))  # blocks of a kind
    mu, theta = mu[order], theta[order]
    blocks = np.empty(n)
    feature_gains(mu, 1 - mu, theta, blocks)
    for i in range(n):
        m, t = mpmath.mpf(mu[i]), mpmath.mpf(theta[i])
        exact = float(mpmath.log(1 - m + m * mpmath.exp(t)) - m * t)
        assert blocks[i] == pytest.approx(exact, rel=1e-12, abs=1e-40)
        assert feature_gain(mu[i], 1 - mu[i], theta[i]) == pytest.approx(
            exact, rel=1e-11, abs=1e-40
        )
    shuffled, again = rng.permutation(n), np.empty(n)
    feature_gains(mu[shuffled], 1 - mu[shuffled], theta[shuffled], again)
    np.testing.assert_array_equal(again, blocks[shuffled], "neighbours in a block do not count")


def test_higher_arity_features():
    graph = lists.higher_order()["features"]
    seed = seeds.unary(graph)
    m = Exact()(graph.keep(seed))
    gains = factor_gains(graph, m, seed)
    for i in np.flatnonzero(~seed):
        table = graph.log_table(i)
        joint = m.product(graph.scope(i))
        expected = np.log((joint * np.exp(table)).sum()) - (joint * table).sum()
        assert gains[i] == pytest.approx(expected, abs=1e-12)


def test_seeds_have_a_mask_and_all_global_factors():
    wrong = np.ones(3, dtype=bool)
    refused(MinferError, "seed", infer, lists.graphs()["grid"], MinJoint(0.1), Exact(), seed=wrong)
    graph = lists.with_globals()["one-of-three-and-pairs"]
    m = BeliefPropagation()(graph.keep(seeds.unary(graph)))
    refused(MinferError, "put it into the seed", factor_gains, graph, m, seeds.unary(graph))
    assert np.isfinite(
        factor_gains(graph, m, seeds.unary_and_globals(graph))[~seeds.unary_and_globals(graph)]
    ).all()


@given(models.table_graphs(max_arity=2))
def test_spanning_forest(graph):
    mask = seeds.spanning_forest(graph)
    kept = graph.keep(mask)
    assert mask[graph.arity <= 1].all()
    before, after = graph.component_labels(), kept.component_labels()
    assert len(np.unique(before)) == len(np.unique(after)), "spans"
    trees = len(np.unique(after))
    assert int((kept.arity == 2).sum()) == graph.n_variables - trees, "has no cycle"


BOXES = [*(s for s in lists.SOLVERS if s != "enumerate"), "pyagrum"]


@pytest.mark.drawn
@pytest.mark.parametrize(("solver", "seed"), few(product(BOXES, SEEDS), len(BOXES)))
def test_every_solver_as_black_box(solver, seed):
    rng = np.random.default_rng(1)
    graph = FactorGraph.grid(2 * rng.normal(size=(4, 4)), 0.5)
    if solver == "pyagrum":
        pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
    s = lists.pyagrum_solver if solver == "pyagrum" else lists.SOLVERS[solver]
    everything = infer(graph, MinJoint(0.0), s, seed=SEEDS[seed])
    assert everything.keep.all()
    assert everything.divergence == 0.0
    nothing = infer(graph, MinJoint(np.inf), s, seed=SEEDS[seed])
    np.testing.assert_array_equal(nothing.keep, nothing.seed)
    assert nothing.marginals is nothing.seed_marginals, "nothing added: the second run is skipped"
    some = infer(graph, MinDivergence(6), s, seed=SEEDS[seed])
    assert some.n_added == 6
    assert some.n_seed + some.n_added + some.n_forced == len(some.kept)
    assert some.divergence == pytest.approx(some.scores[~some.keep].sum())
    assert list(some.timings) == ["seed", "scores", "select", "compensate", "infer"]
    assert "kept" in repr(some)
    left = infer(graph, MinDivergence(6), s, seed=SEEDS[seed], recipe=Compensated(refreshes=1))
    assert left.n_added == 6
    assert left.score_kind == "residual"
    assert np.isfinite(left.error_estimates).all()
    truth = naive.marginals(graph)
    if solver not in lists.SAMPLERS | lists.LOWER:
        assert (
            np.abs(left.marginals.probs - truth).mean()
            < np.abs(nothing.marginals.probs - truth).mean()
        )


def test_surrogate_is_exact_for_independent_features():
    """Left-out features over disjoint pairs are independent under the seed: D1 = D."""
    rng = np.random.default_rng(3)
    graph = FactorGraph.pairwise(rng.normal(size=6), [[0, 1], [2, 3], [4, 5]], [1.0, -2.0, 0.7])
    result = infer(graph, MinDivergence(1), Exact())
    exact = naive.divergence(graph.keep(result.keep), graph)
    assert result.divergence == pytest.approx(exact, abs=1e-10)


def test_forced_factors_are_kept_outside_the_budget():
    graph = lists.graphs()["zeros"].add_tables([[0], [1], [2]], [[0, 0.1], [0.2, 0], [0, 0, 0.3]])
    result = infer(graph, MinDivergence(0), Exact())
    assert result.n_forced == 2
    assert result.n_added == 0
    assert np.isfinite(result.divergence)
