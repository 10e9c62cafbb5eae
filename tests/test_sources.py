"""Factor sources: thresholds, numbering, and the same kept set as a scan of everything."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws
from minfer import FactorGraph, Marginals, MinDivergence, MinJoint, MinSize, ModelError
from minfer.errors import SettingsError
from minfer.factors.features import binary_pairs
from minfer.kernels.arithmetic.sorting import sort_by
from minfer.kernels.scores.gains import feature_gain
from minfer.reduction.gains import factor_scores
from minfer.reduction.lazy import least_mean
from minfer.reduction.objectives import Budget
from minfer.reduction.sources import (
    FactorSource,
    Join,
    JoinTemplates,
    ground,
    least_variance,
    scan,
)
from oracle import lists
from refused import all_refused

SCORES = ("gain", "residual")


class Listed:
    """A source of one template that has all its factors in a list, in no order."""

    def __init__(self, scope, theta):
        self.scope, self.theta = np.asarray(scope, dtype=np.int32), np.asarray(theta)
        self.n_factors = len(self.theta)
        self.theta_bounds = np.array([[self.theta.min(), self.theta.max()]])

    def candidates(self, template, key, least):
        ids = np.flatnonzero(key[self.scope].prod(axis=1) >= least)
        ids = np.random.default_rng(0).permutation(ids)
        return self.scope[ids], ids

    def weights(self, template, scope, ids):
        return self.theta[ids]

    def total(self, template, key):
        return float(key[self.scope].prod(axis=1).sum()) * (1 + 1e-12)


def naive_pairs(join: Join) -> list[tuple[int, int]]:
    """The factors of a template in the order of their numbers, by looking at every pair."""
    left, right = np.asarray(join.left), np.asarray(join.right)
    found = [
        (int(left[a]), a, b)
        for a in range(len(left))
        for b in range(len(right))
        if a != b and left[a] == right[b] >= 0 and (a < b or not join.symmetric)
    ]
    return [(a, b) for _, a, b in sorted(found)]


def log_odds(probs: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.clip(np.log(probs[:, 1]) - np.log(probs[:, 0]), -700, 700)


def full_scan(source: FactorSource, probs: np.ndarray, score: str) -> np.ndarray:
    """Scores of all factors of a source, shape (n,), by materialising them."""
    base = FactorGraph.pairwise(log_odds(probs), [], [])
    marginals = Marginals.from_probs(base, probs.ravel(), "given")
    model = ground(base, source)
    seed = np.arange(model.n_factors) < base.n_factors
    return factor_scores(model, marginals, seed, score)[~seed]


@st.composite
def problems(draw, max_variables=8):
    """Small joins with ties, idle variables, extreme weights and marginals."""
    n = draw(st.integers(0, max_variables))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.0, 0.01, 0.5, 2.0, 40.0, 2000.0]))
    slack = draw(st.sampled_from([0.0, 1.0]))
    digits = draw(st.sampled_from([0, 12]))
    joins, tables = [], []
    for _ in range(draw(st.integers(0, 3))):
        symmetric = bool(rng.random() < 0.5)
        left = rng.integers(-1, rng.integers(1, 5), size=n)
        right = left if symmetric else rng.integers(-1, 4, size=n)
        table = np.round(rng.normal(size=(n, n)), digits) * scale + rng.choice([0.0, 1.0, -1.0])
        low, high = table.min(initial=0.0), table.max(initial=0.0)
        joins.append(Join(left, right, low * (1 + slack), high * (1 + slack), symmetric))
        tables.append(table)
    values = [0.0, 1.0, 0.5, 1e-3, 1e-200, 1 - 1e-9, rng.random(), rng.random() ** 8]
    on = rng.choice(values, size=n)
    source = JoinTemplates(joins, lambda t, scope: tables[t][scope[:, 0], scope[:, 1]])
    return source, joins, np.stack([1 - on, on], axis=1).reshape(-1, 2)


@given(
    st.floats(-40, 40), st.floats(0, 40), st.floats(-12, 1).map(lambda x: 10.0**x), st.booleans()
)
@settings(max_examples=draws(200), deadline=None)
def test_least_mean_excludes_nothing_and_is_tight(low, width, gamma, small):
    scale = 1e-3 if small else 1.0
    low, high = scale * low, scale * (low + width)
    least = least_mean(gamma, low, high)
    means = np.concatenate([10.0 ** np.linspace(-300, -2, 300), np.linspace(0.01, 1, 300)])
    reached = [
        mu
        for mu in means
        for theta in (low, high, (low + high) / 2)
        if feature_gain(mu, 1 - mu, theta) >= gamma * (1 + 1e-9)
    ]
    assert least <= min(reached, default=np.inf) * (1 + 1e-9)
    if least < np.inf:
        above = least * (1 + 1e-9)
        best = max(feature_gain(above, 1 - above, theta) for theta in (low, high))
        assert best >= gamma * (1 - 1e-6), "tight"


def test_least_mean_by_hand():
    assert least_mean(0.0, -1.0, 1.0) == 0.0
    assert least_mean(-3.0, 0.0, 0.0) == 0.0
    assert least_mean(1e-9, 0.0, 0.0) == np.inf
    assert least_mean(0.2, -1.0, 1.0) == np.inf, "theta^2 / 8 bounds every gain"
    assert least_mean(np.inf, -1.0, 1.0) == np.inf
    mu, theta = 0.02, 1.7
    gain = np.log(1 - mu + mu * np.exp(theta)) - mu * theta
    assert least_mean(gain, 0.0, theta) == pytest.approx(mu, rel=1e-9)
    assert least_mean(gain, -0.5, theta) == pytest.approx(mu, rel=1e-9)
    assert least_mean(1.0, -5000.0, 5000.0) < 1e-300


@given(st.floats(-9, 9), st.floats(0, 9), st.floats(1e-9, 10))
@settings(max_examples=draws(200), deadline=None)
def test_least_variance(low, width, gamma):
    high = low + width
    least = least_variance(gamma, low, high)
    theta = max(abs(low), abs(high))
    if least == np.inf:
        assert 0.5 * theta**2 / 16 <= gamma
    else:
        assert 0.5 * theta**2 * least == pytest.approx(gamma)
    assert least_variance(0.0, low, high) == 0.0


@given(problems(), st.floats(0, 1.1))
@settings(max_examples=draws(150), deadline=None)
def test_candidates_and_their_numbers(problem, share):
    source, joins, probs = problem
    key = probs[:, 1].copy()
    first = 0
    for t, join in enumerate(joins):
        pairs = np.array(naive_pairs(join), dtype=np.int32).reshape(-1, 2)
        products = key[pairs[:, 0]] * key[pairs[:, 1]]
        for least in (0.0, share**4, *products[:1]):
            scope, ids = source.candidates(t, key, least)
            rows = np.flatnonzero(products >= least)
            np.testing.assert_array_equal(scope, pairs[rows])
            np.testing.assert_array_equal(ids, first + rows)
        total = source.total(t, key)
        assert products.sum() <= total + 1e-15
        assert total == pytest.approx(products.sum(), abs=1e-10)
        sums = np.zeros(len(key))
        for a, b in pairs:
            sums[[a, b]] += key[[b, a]]
        np.testing.assert_allclose(source.partner_sums(t, key), sums, atol=1e-12)
        first += len(pairs)
    assert source.n_factors == first
    assert isinstance(source, FactorSource)


@pytest.mark.parametrize("symmetric", [False, True])
def test_candidates_of_one_large_join(symmetric):
    """Few of many right members are reached: their places are sorted, not all tested."""
    n = 300
    rng = np.random.default_rng(0)
    key = rng.random(n) ** 6
    join = Join(np.zeros(n, int), np.zeros(n, int), -1.0, 1.0, symmetric)
    source = JoinTemplates([join], lambda t, scope: np.zeros(len(scope)))
    pairs = np.array(naive_pairs(join))
    for least in (0.0, 1e-4, 0.01, 0.3, 0.9):
        rows = np.flatnonzero(key[pairs[:, 0]] * key[pairs[:, 1]] >= least)
        scope, ids = source.candidates(0, key, least)
        np.testing.assert_array_equal(scope, pairs[rows])
        np.testing.assert_array_equal(ids, rows)


def check(source: FactorSource, objective, probs: np.ndarray, score: str, scores: np.ndarray):
    """A scan keeps what the full scan keeps, and its claims about the rest hold."""
    result = scan(source, objective, probs, score)
    expected = objective(scores)
    np.testing.assert_array_equal(result.ids[result.keep], np.flatnonzero(expected))
    np.testing.assert_array_equal(result.scores, scores[result.ids])
    assert (np.diff(result.ids) > 0).all()
    assert result.n_touched + result.count == source.n_factors
    unseen = np.ones(source.n_factors, dtype=bool)
    unseen[result.ids] = False
    assert (scores[unseen] < result.ceiling).all()
    low, high = result.divergence
    ignored = scores[~expected].sum()
    assert low <= ignored * (1 + 1e-12) <= high * (1 + 1e-9) + 1e-300
    if not result.count:
        assert result.ceiling == 0.0
        assert low == high
    return result


@pytest.mark.parametrize("score", SCORES)
@given(problems(), st.floats(-10, 1), st.integers(0, 20))
@settings(max_examples=draws(150), deadline=None)
def test_the_kept_set_is_that_of_the_full_scan(score, problem, exponent, m):
    source, _, probs = problem
    scores = full_scan(source, probs, score)
    at_the_boundary = scores[scores > 1e-12][: m % 3]  # below, rounding decides for huge weights
    for gamma in (0.0, 10.0**exponent, np.inf, *at_the_boundary):
        check(source, MinJoint(gamma), probs, score, scores)
        check(source, Budget(factor_cost=gamma, max_factors=m), probs, score, scores)
    for count in {m, 0, len(scores) // 2, len(scores)}:
        check(source, MinDivergence(count), probs, score, scores)
        check(source, Budget(max_factors=count), probs, score, scores)
    for objective in (MinSize(10.0**exponent), Budget(max_divergence=1.0, factor_cost=1e-3)):
        assert check(source, objective, probs, score, scores).count == 0


@pytest.mark.parametrize("score", SCORES)
def test_a_parser_touches_little(score):
    """Arcs with softmax marginals: chains of two arcs, and siblings."""
    n = 20
    rng = np.random.default_rng(3)
    head, modifier = np.array([(h, m) for h in range(n + 1) for m in range(1, n + 1) if h != m]).T
    on = np.exp(3 * rng.normal(size=len(head)))
    on /= np.bincount(modifier, on)[modifier]
    probs = np.stack([1 - on, on], axis=1)
    tables = 0.5 * rng.normal(size=(2, len(head), len(head)))
    asked = []

    def weights(template, scope):
        asked.append(len(scope))
        return tables[template, scope[:, 0], scope[:, 1]]

    bounds = tables.min(), tables.max()
    joins = [Join(modifier, head, *bounds), Join(head, head, *bounds, symmetric=True)]
    source = JoinTemplates(joins, weights)
    chains, siblings = n * n * (n - 1), comb(n, 2) + n * comb(n - 1, 2)
    assert source.n_factors == chains + siblings
    scores = full_scan(source, probs, score)
    asked.clear()
    joint = check(source, MinJoint(1e-2), probs, score, scores)
    assert sum(asked) == joint.n_touched < 0.1 * source.n_factors
    assert joint.divergence[1] < joint.divergence[0] + 0.5 * joint.count * joint.ceiling
    best = check(source, MinDivergence(30), probs, score, scores)
    assert best.n_touched < 0.2 * source.n_factors
    assert "touched" in repr(best)
    assert "2 templates" in repr(source)


def test_sources_may_list_factors_in_any_order():
    source = Listed([[a, b] for a in range(5) for b in range(a)], np.ones(10))
    assert isinstance(source, FactorSource)
    on = np.array([0.5, 0.5, 0.5, 0.2, 0.2])
    probs = np.stack([1 - on, on], axis=1)
    scores = full_scan(source, probs, "gain")
    check(source, MinDivergence(2), probs, "gain", scores)
    check(source, MinJoint(0.05), probs, "gain", scores)


def test_probabilities_that_do_not_quite_sum_to_one():
    rng = np.random.default_rng(2)
    n = 30
    join = Join(np.zeros(n, int), np.zeros(n, int), -2.0, 2.0)
    source = JoinTemplates([join], lambda t, s: np.where(s.sum(axis=1) % 2, -2.0, 2.0))
    on = 1 - rng.random(n) ** 3
    probs = np.stack([1 - on, on], axis=1) + 4e-7 * rng.normal(size=(n, 2)).clip(-1, 1)
    probs = np.abs(probs)
    scores = full_scan(source, probs, "gain")
    for gamma in scores[::9]:
        check(source, MinJoint(gamma), probs, "gain", scores)


def test_binary_pairs():
    graph = lists.graphs()["mixed"]
    probs = np.concatenate([np.full(s, 1 / s) for s in graph.n_states])
    expected = [[0.5, 0.5], [1, 0], [1, 0], [1, 0]]
    np.testing.assert_array_equal(binary_pairs(probs, graph.offsets), expected)


def test_nothing_to_scan():
    source = JoinTemplates([], lambda t, scope: np.zeros(len(scope)))
    probs = np.full((3, 2), 0.5)
    for objective in (MinJoint(0.1), MinDivergence(4), MinSize(1.0)):
        result = scan(source, objective, probs)
        assert (result.n_touched, result.count, result.divergence) == (0, 0, (0.0, 0.0))
    idle = JoinTemplates([Join([-1, -1, 0], [0, -1, -1], 1, 1)], lambda t, s: np.ones(len(s)))
    assert idle.n_factors == 1
    nobody = JoinTemplates([Join([-1, 2, 0], [1, -1, -1], 1, 1)], lambda t, s: np.ones(len(s)))
    assert nobody.n_factors == 0
    assert scan(nobody, MinDivergence(1), probs).n_touched == 0


@pytest.mark.parametrize("bad", [1.5, -1.5, np.nan])
def test_violated_bounds_are_named(bad):
    join = Join([0, 0, 0], [0, 0, 0], -1.0, 1.0)
    source = JoinTemplates([join, join], lambda t, s: np.where(t * s[:, 0] == 2, bad, 0.5))
    with pytest.raises(ModelError, match=r"template 1, factor 10 over \[2, 0\]"):
        scan(source, MinJoint(1e-3), np.full((3, 2), 0.5))


def test_other_mistakes_are_named():
    def constant(t, s):
        return np.ones(len(s))

    def made(*joins):
        return JoinTemplates(joins, constant)

    two, half = Join([0, 0], [0, 0], 1, 1), np.full((2, 2), 0.5)

    def scanned(probs, score="gain", source=None):
        return scan(source or made(two), MinJoint(0.01), probs, score)

    short = JoinTemplates([two], lambda t, s: np.ones(1))
    all_refused(
        (lambda: made(two, Join([0], [0], 1, 1)), ModelError, "template 1: left and right"),
        (lambda: made(Join([0.5, 0], [0, 0], 1, 1)), ModelError, "int arrays"),
        (lambda: made(Join([0, 0], [0, 1], 1, 1, symmetric=True)), ModelError, "same left and"),
        *((lambda b=bounds: made(Join([0, 0], [0, 0], *b)), ModelError, "interval")
          for bounds in ((1, 0), (0, np.inf), (np.nan, 1))),
        (lambda: scanned(np.full((3, 2), 0.5)), ModelError, "another model"),
        (lambda: scanned(half + 0.1), ModelError, "sum to 1"),
        (lambda: scanned(half + np.nan), ModelError, "sum to 1"),
        (lambda: scanned(half.ravel()), ModelError, "shape"),
        (lambda: scanned(half, "reverse"), SettingsError, "reverse"),
        (lambda: scanned(half, source=short), ModelError, "weights of shape"),
    )  # fmt: skip


@given(
    key=st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0]) | st.floats(-1, 1), max_size=40),
    start=st.integers(0, 5),
)
def test_sorting_is_stable_and_leaves_the_rest_alone(key, start):
    items = np.random.default_rng(len(key)).permutation(len(key))
    start = min(start, len(key))
    want = items.copy()
    want[start:] = sorted(items[start:], key=lambda item: key[item])
    spare = np.empty(len(key), np.int64)
    sort_by(items, start, len(key), np.array(key, dtype=np.float64), spare)
    assert items.tolist() == want.tolist()
