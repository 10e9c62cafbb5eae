"""Objectives, budgets, calibration and factor sources against exhaustive search and full scans."""

from __future__ import annotations

import itertools
from math import comb
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws
from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    Marginals,
    MinDivergence,
    MinferError,
    MinJoint,
    MinSize,
    ModelError,
    infer,
)
from minfer.errors import SettingsError
from minfer.factors.features import binary_pairs
from minfer.kernels.arithmetic.sorting import sort_by
from minfer.kernels.scores.gains import feature_gain
from minfer.reduction import objectives, seeds
from minfer.reduction.calibrate import calibrate
from minfer.reduction.gains import factor_scores
from minfer.reduction.lazy import least_mean
from minfer.reduction.objectives import Budget, SelectionObjective
from minfer.reduction.recipes import Compensated
from minfer.reduction.sources import FactorSource, Join, JoinTemplates, ground, least_variance, scan
from oracle import lists
from refused import all_refused, refused

GAINS = st.one_of(st.integers(0, 8).map(lambda k: k / 4), st.just(np.inf))
QUARTERS = st.lists(GAINS, min_size=0, max_size=9)
PRICED = st.lists(st.tuples(GAINS, st.integers(1, 6).map(lambda k: k / 2)), max_size=8)
PARAMETER = st.integers(0, 40).map(lambda k: k / 8)


def subsets(gains):
    """All masks that keep every infinite gain."""
    free = np.flatnonzero(np.isfinite(gains))
    for bits in itertools.product([False, True], repeat=len(free)):
        mask = ~np.isfinite(gains)
        mask[free] = bits
        yield mask


def check_optimal(gains, parameter):
    lost = {m.tobytes(): float(gains[~m].sum()) for m in subsets(gains)}
    size = {m.tobytes(): int(m.sum()) for m in subsets(gains)}
    for paper in (False, True):
        keep = MinSize(parameter)(gains, paper_order=paper)
        assert lost[keep.tobytes()] <= parameter
        assert keep.sum() == min(s for k, s in size.items() if lost[k] <= parameter)
        assert MinSize(parameter).gap(gains, None, keep) == 0.0
        m = int(parameter)
        keep = MinDivergence(m)(gains, paper_order=paper)
        forced = int(np.isinf(gains).sum())
        assert keep.sum() <= m + forced
        assert lost[keep.tobytes()] == min(d for k, d in lost.items() if size[k] <= m + forced)
        assert MinDivergence(m).gap(gains, None, keep) == 0.0
    keep = MinJoint(parameter)(gains)
    best = min(lost[k] + parameter * size[k] for k in lost)
    assert lost[keep.tobytes()] + parameter * keep.sum() == pytest.approx(best)
    np.testing.assert_array_equal(keep, gains >= parameter)
    assert MinJoint(parameter).gap(gains, None, keep) == 0.0


@pytest.mark.parametrize("sorted_up_to", [2, objectives._SMALL])
@given(QUARTERS, PARAMETER)
@settings(max_examples=draws(300))
def test_objectives_are_optimal_for_the_surrogate(sorted_up_to, gains, parameter):
    """Exhaustive search, exact arithmetic: ties, zeros, infinite gains, budgets met exactly."""
    with patch.object(objectives, "_SMALL", sorted_up_to):  # radix selection of small sets, too
        check_optimal(np.array(gains), parameter)


def check_against_the_sort(gains, share):
    ordered = np.sort(gains[np.isfinite(gains)])
    total = np.concatenate([[0.0], np.cumsum(ordered)])
    k = min(int(share * len(ordered)), max(len(ordered) - 1, 0))
    budget = (total[k] + total[min(k + 1, len(ordered))]) / 2
    keep = MinSize(budget)(gains)
    np.testing.assert_array_equal(keep, MinSize(budget)(gains, paper_order=True))
    assert gains[~keep].sum() <= budget * (1 + 1e-12)
    keep = MinDivergence(k)(gains)
    np.testing.assert_array_equal(keep, MinDivergence(k)(gains, paper_order=True))


SHAPES = {
    "continuous": lambda rng, n: rng.exponential(size=n) ** 3,
    "zeros": lambda rng, n: np.where(rng.random(n) < 0.5, 0.0, rng.exponential(size=n)),
    "minus zero": lambda rng, n: np.where(rng.random(n) < 0.3, -0.0, rng.random(n)),
    "narrow": lambda rng, n: 0.3 + 1e-12 * rng.random(n),
    "one value": lambda rng, n: np.full(n, 0.3),
    "few values": lambda rng, n: rng.integers(0, 5, n) / 4,
    "many scales": lambda rng, n: 10.0 ** rng.uniform(-300, 3, n),
    "infinite": lambda rng, n: np.where(rng.random(n) < 0.4, np.inf, rng.exponential(size=n)),
    "all infinite": lambda rng, n: np.full(n, np.inf),
}


@pytest.mark.parametrize("shape", SHAPES)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0, 1))
@settings(max_examples=draws(20))
def test_selection_equals_the_papers_sort(shape, seed, share):
    rng = np.random.default_rng(seed)
    check_against_the_sort(SHAPES[shape](rng, int(rng.integers(1, 400))), share)


@pytest.mark.parametrize("shape", SHAPES)
def test_selection_equals_the_papers_sort_at_size(shape):
    """More gains than are sorted outright: radix selection."""
    rng = np.random.default_rng(1)
    gains = SHAPES[shape](rng, 40_000)
    for share in (0.0, 0.05, 0.5, 0.9, 0.999, 1.0):
        check_against_the_sort(gains, share)
    gains.flags.writeable = False
    check_against_the_sort(gains, 0.4)
    check_against_the_sort(gains[::2], 0.4)


def test_everything_and_nothing():
    gains = np.concatenate([np.random.default_rng(2).random(50_000), [np.inf, np.inf]])
    for few in (gains, gains[-50:]):
        for objective in (MinSize(np.inf), MinSize(1e9), MinDivergence(0), MinJoint(np.inf)):
            np.testing.assert_array_equal(objective(few), np.isinf(few))
        for objective in (MinSize(0.0), MinDivergence(10**9), MinJoint(0.0)):
            assert objective(few).all()


def test_rounding_does_not_break_the_bound():
    """A million equal gains: a running sum would be off by 2e-11."""
    gains = np.full(1_000_000, 0.3)
    for n in (10, 999, 123_456, 999_999):
        keep = MinSize(0.3 * n)(gains)
        assert n - 1 <= (~keep).sum() <= n
        assert 0.3 * (~keep).sum() <= 0.3 * n * (1 + 1e-12)
    assert not keep[-1]
    assert keep[0]


@given(PRICED, PARAMETER)
@settings(max_examples=draws(300))
def test_costs_against_exhaustive_search(items, parameter):
    """Greedy is within its gap of the optimum, and the optimum within the relaxation's bound."""
    gains, costs = np.array(items, dtype=float).reshape(-1, 2).T
    free = np.isfinite(gains)

    def lost(mask):
        return float(gains[~mask].sum())

    def spent(mask):
        return float(costs[mask & free].sum())

    masks = list(subsets(gains))
    chosen = MinSize(parameter)
    keep = chosen(gains, costs)
    gap = chosen.gap(gains, costs, keep)
    best = min(spent(m) for m in masks if lost(m) <= parameter)
    assert keep[~free].all()
    assert lost(keep) <= parameter
    assert 0 <= spent(keep) - best <= gap + 1e-12
    if (costs == costs.max(initial=0)).all():
        assert gap == 0.0

    chosen = MinDivergence(int(parameter))
    keep = chosen(gains, costs)
    gap = chosen.gap(gains, costs, keep)
    best = min(lost(m) for m in masks if spent(m) <= int(parameter))
    total = float(gains[free].sum())
    assert keep[~free].all()
    assert spent(keep) <= int(parameter)
    assert 0 <= lost(keep) - best <= gap + 1e-12
    assert total - lost(keep) >= (total - best) / 2, "at least half of what can be kept"
    if (costs == costs.max(initial=0)).all():
        assert gap == 0.0

    joint = MinJoint(parameter)
    keep = joint(gains, costs)
    best = min(lost(m) + parameter * spent(m) for m in masks)
    assert lost(keep) + parameter * spent(keep) == pytest.approx(best)
    assert joint.gap(gains, costs, keep) == 0.0
    for mask in masks:
        value = lost(mask) + parameter * spent(mask)
        assert joint.gap(gains, costs, mask) == pytest.approx(value - best)


@given(QUARTERS, PARAMETER, st.sampled_from([0.1, 0.5, 1.0, 3.0]))
def test_equal_costs_only_scale(gains, parameter, cost):
    gains = np.array(gains)
    costs = np.full(len(gains), cost)
    np.testing.assert_array_equal(MinSize(parameter)(gains, costs), MinSize(parameter)(gains))
    m = int(parameter)
    np.testing.assert_array_equal(
        MinDivergence(m)(gains, costs), MinDivergence(int(m / cost))(gains)
    )


def test_the_gap_of_any_choice():
    gains, costs = np.array([3.0, 2.0, 1.0, np.inf]), np.array([2.0, 1.0, 1.0, 5.0])
    seed_only = np.array([False, False, False, True])
    assert MinSize(0.0).gap(gains, costs, np.ones(4, dtype=bool)) == 0.0
    assert MinSize(3.0).gap(gains, None, np.ones(4, dtype=bool)) == 2.0
    assert MinDivergence(2).gap(gains, None, seed_only) == 5.0
    assert MinDivergence(3).gap(gains, costs, seed_only) == 5.0
    with pytest.raises(MinferError, match="mask"):
        MinSize(1.0).gap(gains, costs, [True])


@given(
    QUARTERS,
    st.one_of(st.none(), PARAMETER),
    st.one_of(st.none(), st.integers(0, 9)),
    st.one_of(st.none(), PARAMETER),
    st.booleans(),
)
@settings(max_examples=draws(200))
def test_budget_stops_at_the_first_limit(gains, divergence, factors, cost, priced):
    gains = np.array(gains)
    if divergence is None and factors is None and cost is None:
        refused(MinferError, "at least one", Budget)
        return
    budget = Budget(max_divergence=divergence, max_factors=factors, factor_cost=cost)
    keep = budget(gains)
    order = np.lexsort((np.arange(len(gains)), -gains))  # the largest first, earlier before later
    added = [int(i) for i in order if np.isfinite(gains[i])]
    expected = np.isinf(gains)
    for i in added:
        rest = gains[~expected].sum()
        stop = (
            (divergence is not None and rest <= divergence)
            or (factors is not None and (expected & np.isfinite(gains)).sum() >= factors)
            or (cost is not None and gains[i] < cost)
        )
        if stop:
            break
        expected[i] = True
    np.testing.assert_array_equal(keep, expected)
    assert budget.gap(gains, None, keep) == 0.0
    if priced and len(gains):
        costs = np.arange(1.0, len(gains) + 1)
        keep = budget(gains, costs)
        for part in budget.parts:
            assert not (keep & ~part(gains, costs)).any()
        assert budget.gap(gains, costs, keep) >= 0.0


def test_objectives_follow_the_protocol():
    for objective in (MinSize(1.0), MinDivergence(1), MinJoint(0.1), Budget(max_factors=1)):
        assert isinstance(objective, SelectionObjective)
        assert objective([]).shape == (0,)
        assert objective([1.0, 2.0], [1.0, 3.0]).shape == (2,)


def test_bad_gains_and_costs():
    for bad in (
        lambda: MinJoint(0.1)([[1.0]]),
        lambda: MinJoint(0.1)([1.0], [0.0]),
        lambda: MinSize(0.1)([1.0, 1.0], [1.0, np.inf]),
        lambda: MinDivergence(1)([1.0, 1.0], [1.0, np.nan]),
        lambda: Budget(max_factors=1)([1.0, 1.0], [1.0]),
    ):
        refused(MinferError, "", bad)


CLASSES = [MinSize, MinDivergence, MinJoint]
OPTIONS = [{}, {"recipe": Compensated(refreshes=0)}, {"recipe": Compensated(refreshes=1)}]


def unequal_grids():
    rng = np.random.default_rng(5)
    sizes = [(1.0, (3, 4)), (3.0, (5, 5)), (6.0, (4, 7))]
    return [FactorGraph.grid(a * rng.normal(size=size), 1.0) for a, size in sizes]


def reductions(graphs, objective, **options):
    results = [infer(g, objective, BeliefPropagation(), **options) for g in graphs]
    free = sum(int(np.isfinite(r.scores).sum()) for r in results)
    errors = [
        np.abs(r.marginals.probs - BeliefPropagation()(g).probs).mean()
        for g, r in zip(graphs, results)
    ]
    return sum(r.n_added for r in results), free, float(np.mean(errors))


@pytest.mark.parametrize("objective", CLASSES)
@pytest.mark.parametrize("options", OPTIONS[:2], ids=str)
def test_calibrated_to_a_share(objective, options):
    graphs = unequal_grids()
    for kept in (0.0, 0.1, 0.5, 0.83, 1.0):
        chosen = calibrate(objective, iter(graphs), kept=kept, **options)
        assert type(chosen) is objective
        added, free, _ = reductions(graphs, chosen, **options)
        at_once = len(graphs) if objective is MinDivergence else 1  # a step of m adds to each graph
        assert abs(added - kept * free) <= at_once / 2 + 1e-9


def test_calibration_comes_as_close_as_ties_allow():
    """Equal gains: MinJoint takes all of them or none, so 60 % is nearer to all than to none."""
    graph = FactorGraph.pairwise(np.zeros(8), [[0, 1], [2, 3], [4, 5], [6, 7]], 1.0)
    assert infer(graph, calibrate(MinJoint, [graph], kept=0.6), Exact()).n_added == 4
    assert infer(graph, calibrate(MinJoint, [graph], kept=0.4), Exact()).n_added == 0


def test_a_share_takes_one_inference_per_graph():
    calls = []

    def solver(graph, start=None):
        calls.append(graph)
        return BeliefPropagation()(graph, start)

    calibrate(MinSize, unequal_grids(), kept=0.3, solver=solver, recipe=Compensated())
    assert len(calls) == 3
    calls.clear()
    calibrate(MinSize, unequal_grids(), error=0.02, solver=solver)
    assert len(calls) <= 3 * (2 + 2 * 13)


@pytest.mark.parametrize("objective", CLASSES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_calibrated_to_an_error(objective, options):
    graphs = unequal_grids()
    sizes = []
    for target in (1e-6, 0.003, 0.03, 1.0):
        chosen = calibrate(objective, graphs, error=target, **options)
        added, free, error = reductions(graphs, chosen, **options)
        assert error <= target
        sizes.append(added)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 0
    assert 0 < sizes[1] < 0.98 * free
    assert sizes[2] < 0.9 * free


def test_calibrate_with_other_seeds_and_solvers():
    graphs = unequal_grids()
    chosen = calibrate(MinJoint, graphs, kept=0.5, solver=Exact(), seed=seeds.spanning_forest)
    results = [infer(g, chosen, Exact(), seed=seeds.spanning_forest) for g in graphs]
    free = sum(int(np.isfinite(r.scores).sum()) for r in results)
    assert abs(sum(r.n_added for r in results) - free / 2) <= 0.5


def test_bad_calibrations():
    graphs = unequal_grids()
    tree = [FactorGraph.pairwise(np.zeros(3), np.zeros((0, 2), dtype=int), [])]
    for bad, says in (
        (lambda: calibrate(MinSize, graphs, kept=0.5, error=0.1), "exactly one"),
        (lambda: calibrate(MinSize, graphs, kept=1.5), "between 0 and 1"),
        (lambda: calibrate(MinSize, graphs, error=-0.1), "0 or more"),
        (lambda: calibrate(Budget, graphs, kept=0.5), "the class"),
        (lambda: calibrate(MinSize, graphs[0], kept=0.5), "into a list"),
        (lambda: calibrate(MinSize, [], kept=0.5), "no graph has a factor"),
        (lambda: calibrate(MinSize, tree, kept=0.5), "no graph has a factor"),
        (lambda: calibrate(MinSize, graphs, kept=0.5, compensate=True), "of the recipe"),
    ):
        refused(MinferError, says, bad)


def test_calibrating_a_solver_that_does_not_repeat_itself():
    rng = np.random.default_rng(6)

    def noisy(graph, start=None):
        graph = graph.tilt(0.3 * rng.normal(size=2 * graph.n_variables))
        return BeliefPropagation()(graph)

    with pytest.raises(MinferError, match="repeats itself"):
        calibrate(MinJoint, unequal_grids(), error=1e-9, solver=noisy)


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
