"""Objectives, budgets and calibration against exhaustive search and the paper's sort."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws
from minfer import BeliefPropagation, Exact, FactorGraph, MinferError, infer
from minfer.reduction import objectives, seeds
from minfer.reduction.calibrate import calibrate
from minfer.reduction.objectives import Budget, MinDivergence, MinJoint, MinSize, SelectionObjective
from minfer.reduction.recipes import Compensated
from refused import refused

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


@pytest.mark.parametrize("n", [500, 50_000])
def test_on_one_graph_equal_size_means_equal_set(n):
    """All three keep the top of one ranking; they differ over collections that share a value."""
    gains = np.random.default_rng(0).exponential(size=n)
    for m in (1, n // 10, n - 1):
        keep = MinDivergence(m)(gains)
        np.testing.assert_array_equal(MinJoint(gains[keep].min())(gains), keep)
        np.testing.assert_array_equal(MinSize(gains[~keep].sum() * (1 + 1e-9))(gains), keep)
    other = 3 * gains
    m = n // 10
    joint = MinJoint(np.sort(gains)[-m])
    size = MinSize(gains[~MinDivergence(m)(gains)].sum() * (1 + 1e-9))
    sizes = {int(o(other).sum()) for o in (MinDivergence(m), joint, size)}
    assert len(sizes) == 3, "a second graph, twice as uncertain, and the same parameters"


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


def test_the_gap_is_small_on_many_factors():
    rng = np.random.default_rng(4)
    gains, costs = rng.exponential(size=5000), rng.uniform(1, 3, size=5000)
    for objective in (MinSize(500.0), MinDivergence(3000)):
        keep = objective(gains, costs)
        assert 0 <= objective.gap(gains, costs, keep) < 0.1
        assert 0 < keep.sum() < len(keep)


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
        (lambda: calibrate(MinSize, graphs), "exactly one"),
        (lambda: calibrate(MinSize, graphs, kept=0.5, error=0.1), "exactly one"),
        (lambda: calibrate(MinSize, graphs, kept=1.5), "between 0 and 1"),
        (lambda: calibrate(MinSize, graphs, error=-0.1), "0 or more"),
        (lambda: calibrate(MinSize, graphs, error=np.nan), "0 or more"),
        (lambda: calibrate(Budget, graphs, kept=0.5), "the class"),
        (lambda: calibrate(MinSize(1.0), graphs, kept=0.5), "the class"),
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
