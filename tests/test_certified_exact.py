"""Exact intervals: the truth lies inside, they are narrow, and budgets are kept."""

from __future__ import annotations

from decimal import localcontext

import numpy as np
import pytest

import zoo
from certifying import true_marginals, violations
from drawn_models import alone, cases, published
from draws import draws
from minfer import ContradictionError, Exact, FactorGraph, intervals
from minfer.certified.bounds import Bounds, Meter
from minfer.certified.local import Local
from minfer.certified.whole import Whole
from minfer.conditioning import condition
from refuting import EXACT, exponential


@pytest.mark.drawn
def test_the_truth_lies_inside():
    n = widest = 0
    for graph, p in cases(1, draws(30)):
        bounds = alone(Whole(), graph)
        assert not violations(bounds, p)
        n += len(p)
        assert (bounds.hi[np.array([x == 0 for x in p])] <= 0).all(), "zeros are structural"
        widest = max(widest, (bounds.hi - bounds.lo).max(initial=0.0))
    assert n > draws(2000)
    assert widest < 1e-9


def test_larger_cliques():
    """Of more cells than are walked one by one: dense models, weights of all sizes."""
    rng = np.random.default_rng(5)
    seen = 0
    for scale in (0.5, 3.0, 30.0, 300.0, 2000.0):
        for states in ([2] * 9, [3, 2, 4, 2, 3, 2], [5, 4, 3, 5]):
            n = len(states)
            scopes = [[i, j] for i in range(n) for j in range(i)] + [[0, 1, 2], [3, 2]]
            tables = [scale * rng.normal(size=[states[v] for v in s]) for s in scopes]
            tables[0][0, 0] = -np.inf
            graph = FactorGraph.from_tables(states, scopes, tables)
            bounds = alone(Whole(), graph, levels=7)
            assert not violations(bounds, true_marginals(graph))
            assert (bounds.hi - bounds.lo).max() < 1e-9 * max(scale, 1.0)
            seen += 1
    assert seen == 15


def test_many_messages_meet_in_one_clique():
    """Products of 600 and 1,500 messages: beyond the range of floats, and beyond the fast way."""
    for n in (600, 1500):
        graph = FactorGraph.pairwise(np.zeros(n + 8), [[k, n] for k in range(n)], 3.0)
        core = [[i, j] for i in range(n, n + 8) for j in range(n, i)]
        graph = graph.add_features(core, 0.5)
        graph = graph.tilt(np.where(np.arange(2 * (n + 8)) == 2 * n, n * 1.5, 0.0))
        bounds = alone(Whole(), graph, levels=3)
        other = Exact()(graph).probs
        assert bounds.width.max() < 1e-8
        assert (bounds.lo - 1e-9 <= other).all()
        assert (other <= bounds.hi + 1e-9).all()


def test_intervals_have_some_width_and_hold_numbers_that_floats_do_not():
    graph = FactorGraph.from_tables([3], [[0]], [[0.1, 0.2, 0.3]])
    bounds = alone(Whole(), graph)
    with localcontext(EXACT):
        w = [exponential(x) for x in (0.1, 0.2, 0.3)]
        assert not violations(bounds, [x / sum(w) for x in w])
    assert (bounds.lo < bounds.hi).all()
    assert (bounds.hi - bounds.lo).max() < 1e-13


def test_conflicting_weights_beyond_the_range_of_floats():
    # a chain whose ends are forced by e^1000, and its middle undecided by e^0
    weights = [[0.0, -1000.0], [-1000.0, 0.0]]
    graph = FactorGraph.from_tables(
        [2] * 5,
        [[0], [0, 1], [1, 2], [2, 3], [3, 4], [4]],
        [[0.0, 3000.0], weights, weights, weights, weights, [3000.0, 0.0]],
    )
    bounds = alone(Whole(), graph)
    assert not violations(bounds, true_marginals(graph))
    assert (bounds.hi - bounds.lo).max() < 1e-9
    assert 0.2 < bounds.lo[2] < 0.8


def test_a_state_that_is_improbable_is_not_impossible():
    graph = FactorGraph.from_tables([2, 2], [[0], [0, 1]], [[0.0, -1e4], [[0.0, 1.0], [2.0, 0.0]]])
    bounds = alone(Whole(), graph)
    assert bounds.lo[1] == 0.0
    assert 0.0 < bounds.hi[1] < 1e-190
    hard = FactorGraph.from_tables([2, 2], [[0, 1]], [[[0.0, 1.0], [-np.inf, -np.inf]]])
    assert alone(Whole(), hard).hi[1] == 0.0


def test_a_contradiction_is_one():
    ring = [[0, 1], [1, 2], [0, 2]]
    differ = [[-np.inf, 0.0], [0.0, -np.inf]]
    graph = FactorGraph.from_tables([2, 2, 2], ring, [differ] * 3)
    with pytest.raises(ContradictionError):
        alone(Whole(), graph)


def test_no_variables():
    assert alone(Whole(), FactorGraph.empty([])).lo.size == 0
    assert alone(Whole(), FactorGraph.empty([1, 1])).hi.tolist() == [1.0, 1.0]


def test_components_wait_for_their_budget():
    rng = np.random.default_rng(0)
    dense = [[i, j] for i in range(10) for j in range(i)]
    graph = FactorGraph.pairwise(np.zeros(14), [*dense, [10, 11], [12, 13]],
                                 rng.normal(size=len(dense) + 2))  # fmt: skip
    local, whole = Local.of(condition(graph)), Whole()
    bounds, meter = Bounds.vacuous(graph), Meter(None, None)
    whole.refine(local, bounds, np.ones(14, dtype=bool), 64.0, meter)
    assert bounds.width[10:].max() < 1e-10
    assert bounds.width[:10].min() == 1.0
    before = meter.work
    whole.refine(local, bounds, bounds.width > 1e-3, 256.0, meter)
    assert bounds.width.max() < 1e-10
    spent = meter.work
    assert spent > before
    whole.refine(local, bounds, np.ones(14, dtype=bool), 1024.0, meter)
    assert meter.work == spent  # not again


def test_only_what_is_wanted():
    graph = FactorGraph.pairwise(np.zeros(4), [[0, 1], [2, 3]], [1.0, 1.0])
    local, bounds = Local.of(condition(graph)), Bounds.vacuous(graph)
    whole, meter = Whole(), Meter(None, None)
    for budget in (1.0, 2.0):
        whole.refine(local, bounds, np.array([True, False, False, False]), budget, meter)
        assert bounds.width.tolist() == [1.0] * 4
    whole.refine(local, bounds, np.array([True, False, False, False]), 64.0, meter)
    assert bounds.width[0] < 1e-12
    stopped = Meter(None, 0)
    fresh = Bounds.vacuous(graph)
    Whole().refine(local, fresh, np.ones(4, dtype=bool), 64.0, stopped)
    assert fresh.width.tolist() == [1.0] * 4


def test_tens_of_thousands_of_small_components():
    rng = np.random.default_rng(0)
    n = 30_000
    edges = np.arange(2 * n).reshape(n, 2)
    theta, w = rng.normal(size=2 * n), rng.normal(size=n)
    graph = FactorGraph.pairwise(theta, edges, w)
    bounds = alone(Whole(), graph, levels=1)
    assert bounds.width.max() < 1e-12
    a, b = theta[0::2], theta[1::2]
    p = (np.exp(a) + np.exp(a + b + w)) / (1 + np.exp(a) + np.exp(b) + np.exp(a + b + w))
    assert np.abs(bounds.lo[1::4] - p).max() < 1e-12


def test_long_chains_stay_narrow():
    n = 20_000
    rng = np.random.default_rng(0)
    edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    graph = FactorGraph.pairwise(rng.normal(size=n), edges, 3 * rng.normal(size=n - 1))
    assert alone(Whole(), graph, levels=1).width.max() < 1e-8


@pytest.mark.parametrize("path", zoo.UAI_MODELS, ids=lambda p: p.name.removesuffix(".uai.gz"))
def test_published_answers_lie_inside(path):
    graph, p = published(path)
    bounds = alone(Whole(), graph, 5)
    assert (bounds.lo <= p + 1e-11).all()
    assert (p <= bounds.hi + 1e-11).all()


@pytest.mark.parametrize("size", [1e12, 1e19, 1e30])
def test_numbers_beyond_what_floats_can_tell_are_left_alone(size):
    # a field and a pair that cancel: whoever computes the sum has lost everything else
    graph, same = (
        FactorGraph.from_tables(
            [2, 2, 2], [[0], [0, 1], [1, 2]],
            [[0.0, w], [[0.0, 0.0], [-w, -w]], [[0.3, -0.2], [0.1, 0.4]]],
        )
        for w in (size, 0.0)
    )  # fmt: skip
    p = true_marginals(same)
    assert not violations(alone(Whole(), graph), p)
    assert not violations(intervals(graph, None, tol=0.0, work=10**6), p)
