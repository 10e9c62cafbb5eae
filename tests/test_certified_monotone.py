"""Monotone regions against enumeration: strips of grids, balls, whole regions, pinned variables."""

import itertools

import mpmath
import numpy as np
import pytest

from certifying import true_marginals, violations
from minfer import Exact, FactorGraph, Intervals, intervals
from minfer.certified.bounds import Bounds, Meter
from minfer.certified.local import Local, odds_ranges, ratios
from minfer.certified.monotone import Grid, Monotone, Region, find_grid, rectangle_plan, run
from minfer.conditioning import condition

NO_STOP = np.zeros(1, dtype=np.uint8)


def holds(graph: FactorGraph, bounds: Bounds | Intervals) -> None:
    """No true marginal outside, by numbers with 50 digits."""
    p = true_marginals(graph)
    assert p is not None
    assert not violations(bounds, p)


def alone(graph: FactorGraph, budgets=(64.0, 1024.0, 65536.0)) -> Bounds:
    local, bounds = Local.of(condition(graph)), Bounds.vacuous(graph)
    method, meter = Monotone(), Meter(None, None)
    for budget in budgets:
        method.refine(local, bounds, bounds.width > 0, budget, meter)
    return bounds


def drawn(rng: np.random.Generator, grid: bool) -> FactorGraph:
    scale = rng.choice([0.1, 1.0, 4.0, 60.0])
    if grid:
        shape = (int(rng.integers(2, 4)), int(rng.integers(2, 4)))
        edges = [
            (r * shape[1] + c, (r + i) * shape[1] + c + j)
            for r in range(shape[0])
            for c in range(shape[1])
            for i, j in ((0, 1), (1, 0))
            if r + i < shape[0] and c + j < shape[1]
        ]
        n = shape[0] * shape[1]
    else:
        n = int(rng.integers(2, 9))
        edges = [e for e in itertools.combinations(range(n), 2) if rng.random() < 0.35]
    w = rng.normal(size=len(edges)) * scale
    if rng.random() < 0.4:
        w = np.abs(w)
    graph = FactorGraph.pairwise(rng.normal(size=n) * scale, np.array(edges).reshape(-1, 2), w)
    if rng.random() < 0.3 and n > 3:
        table = rng.normal(size=(2, 2, 2)) * scale
        if rng.random() < 0.5:
            table[rng.random((2, 2, 2)) < 0.2] = -np.inf
        graph = graph.add_tables([rng.choice(n, 3, replace=False).tolist()], [table])
    if rng.random() < 0.3:
        graph = graph.with_evidence({int(rng.integers(n)): 0})
    return graph


@pytest.mark.parametrize("seed", range(40))
def test_no_interval_excludes_the_truth(seed):
    from minfer import ContradictionError

    rng = np.random.default_rng(seed)
    for grid in (True, False):
        graph = drawn(rng, grid)
        try:
            bounds = alone(graph, (64.0, 512.0))
        except ContradictionError:
            continue
        if true_marginals(graph) is None:
            continue
        free = np.repeat(condition(graph).fixed < 0, graph.n_states)
        bounds.hi[~free], bounds.lo[~free] = 1.0, 0.0  # those of fixed ones are the search's
        holds(graph, bounds)


def test_strips_inside_a_larger_grid_hold_and_narrow():
    rng = np.random.default_rng(3)
    graph = FactorGraph.grid(2 * rng.normal(size=(9, 9)), coupling=0.8)
    p = Exact()(graph).probs
    widths = []
    for budget in (64.0, 512.0, 2048.0, 1e7):
        bounds = alone(graph, (budget,))
        assert (bounds.lo - 1e-13 <= p).all()
        assert (p <= bounds.hi + 1e-13).all()
        widths.append(bounds.width.max())
    assert 1 > widths[0] > widths[1] > widths[2] > 1e-3
    assert 0 < widths[3] < 1e-10  # whole: exact up to rounding


def test_whole_regions_of_any_sign_are_exact():
    rng = np.random.default_rng(1)
    edges = list(itertools.combinations(range(7), 2))
    graph = FactorGraph.pairwise(rng.normal(size=7), edges, 2 * rng.normal(size=len(edges)))
    bounds = alone(graph, (1e6,))
    assert bounds.width.max() < 1e-11
    holds(graph, bounds)


def test_grids_are_found_by_their_numbers():
    def found(graph):
        return find_grid(Local.of(condition(graph)))

    assert found(FactorGraph.grid(np.zeros((3, 5)))) == Grid(3, 5, False)
    assert found(FactorGraph.pairwise(np.zeros(9), [[k, k + 1] for k in range(8)], 1.0)) is None
    kings = [[0, 1], [1, 2], [3, 4], [4, 5], [0, 3], [1, 4], [2, 5], [0, 4], [1, 3], [1, 5], [2, 4]]
    assert found(FactorGraph.pairwise(np.zeros(6), kings, 1.0)) == Grid(2, 3, True)
    # a torus is none: the pair that closes a row joins the first column and the last
    torus = [*kings[:7], [0, 2], [3, 5]]
    assert found(FactorGraph.pairwise(np.zeros(6), torus, 1.0)) is None


def test_diagonal_grids_hold():
    rng = np.random.default_rng(5)
    n, width = 10, 4
    edges = [
        (a, b)
        for a, b in itertools.combinations(range(n), 2)
        if abs(a % width - b % width) <= 1 and b // width - a // width <= 1
    ]
    graph = FactorGraph.pairwise(rng.normal(size=n), edges, np.abs(rng.normal(size=len(edges))))
    bounds = alone(graph, (256.0,))
    holds(graph, bounds)
    assert bounds.width.max() < 1


def test_strong_fields_are_cut_outward():
    rng = np.random.default_rng(2)
    odds = rng.normal(size=(3, 4)) * 400
    graph = FactorGraph.grid(odds, coupling=3.0)
    bounds = alone(graph, (1024.0,))
    holds(graph, bounds)


def test_four_regions_abreast_say_what_each_says_alone():
    rng = np.random.default_rng(0)
    graph = FactorGraph.grid(rng.normal(size=(6, 8)), coupling=0.7)
    local = Local.of(condition(graph))
    at = np.arange(48).reshape(6, 8)
    plan = rectangle_plan(3, 5, False)
    regions = [
        Region(plan, np.ascontiguousarray(at[r : r + 3, c : c + 5].T).ravel(), False)
        for r, c in ((0, 0), (1, 2), (3, 3), (2, 1))
    ]
    together = run(local, regions, NO_STOP)
    for region, answer in zip(regions, together):
        (lone,) = run(local, [region], NO_STOP)
        assert np.array_equal(lone.lo, answer.lo)
        assert np.array_equal(lone.hi, answer.hi)


def test_long_ways_back_are_computed_anew(monkeypatch):
    import minfer.certified.monotone as module

    rng = np.random.default_rng(0)
    graph = FactorGraph.grid(rng.normal(size=(4, 30)), coupling=0.7)
    whole = alone(graph, (1e7,))
    monkeypatch.setattr(module, "KEPT", 1)
    again = alone(graph, (1e7,))
    assert np.array_equal(whole.lo, again.lo)
    assert np.array_equal(whole.hi, again.hi)


def test_ranges_are_the_extremes_over_the_others():
    rng = np.random.default_rng(4)
    table = rng.normal(size=(2, 3, 2))
    table[1, 2, 0] = table[0, 2, 0] = -np.inf  # says nothing of the first variable
    graph = FactorGraph.from_tables([2, 3, 2], [[0, 1, 2]], [table])
    (group,) = graph.groups
    low, high = odds_ranges(group)[0, 0]
    odds = [table[1, b, c] - table[0, b, c] for b in range(3) for c in range(2) if (b, c) != (2, 0)]
    assert (low, high) == (min(odds), max(odds))
    assert np.isnan(odds_ranges(group)[0, 1]).all()
    d = ratios(table.reshape(1, -1), (2, 3, 2), 1)[0]
    assert d[0, 1] == max(table[a, 0, c] - table[a, 1, c] for a in range(2) for c in range(2))


def test_ignored_factors_are_ranges():
    rng = np.random.default_rng(6)
    graph = FactorGraph.grid(2 * rng.normal(size=(3, 4)), coupling=0.9)
    keep = rng.random(graph.n_factors) < 0.6
    keep[:12] = True
    local = Local.of(condition(graph), ~keep)
    bounds, meter = Bounds.vacuous(graph), Meter(None, None)
    Monotone().refine(local, bounds, bounds.width > 0, 1e6, meter)
    holds(graph, bounds)
    iv = intervals(graph, time_limit=None, work=10**6, kept=keep)
    holds(graph, iv)


def test_long_sums_are_counted():
    # equal terms, so that the rounding of a sum of 2^13 of them is a bias, not a random walk
    n, field = 14, np.zeros(14)
    field[0] = 0.3217
    edges = list(itertools.combinations(range(n), 2))
    graph = FactorGraph.pairwise(field, edges, np.full(len(edges), 1e-30))
    bounds = alone(graph, (1e9,))
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(0.3217)))
        assert mpmath.mpf(float(bounds.lo[1])) <= p <= mpmath.mpf(float(bounds.hi[1]))
    assert bounds.width.max() > 2**n * 2.0**-54  # room for the worst of such sums
