"""Hulls over a ball's boundary: the truth lies inside, whatever the model."""

from __future__ import annotations

import numpy as np
import pytest

import zoo
from certifying import true_marginals, violations
from drawn_models import alone, cases, published
from draws import draws
from minfer import Exact, FactorGraph
from minfer.certified.bounds import Bounds, Meter
from minfer.certified.hull import Hull
from minfer.certified.local import Local
from minfer.conditioning import condition


@pytest.mark.drawn
def test_the_truth_lies_inside():
    n = vacuous = 0
    for graph, p in cases(2, draws(30)):
        for levels in (2, 4):
            bounds = alone(Hull(), graph, levels)
            assert not violations(bounds, p)
            n += len(p)
            vacuous += int(((bounds.hi - bounds.lo) >= 1).sum())
    assert n > draws(4000)
    assert vacuous < 0.7 * n


def grid(n: int, coupling: float, seed: int = 0) -> FactorGraph:
    rng = np.random.default_rng(seed)
    k = np.arange(n * n).reshape(n, n)
    edges = [*zip(k[:, 1:].ravel(), k[:, :-1].ravel()), *zip(k[1:].ravel(), k[:-1].ravel())]
    weights = coupling * rng.normal(size=len(edges))
    return FactorGraph.pairwise(rng.normal(size=n * n), np.array(edges), weights)


def test_larger_balls_are_better_and_true():
    graph = grid(8, 0.7)
    p = Exact()(graph).probs
    widths = []
    for levels in (2, 3, 5, 7):
        bounds = alone(Hull(), graph, levels)
        assert (bounds.lo <= p + 1e-12).all()
        assert (p <= bounds.hi + 1e-12).all()
        widths.append(bounds.width.mean())
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.1 < widths[0]


def test_what_is_known_of_the_boundary_helps():
    graph = grid(6, 2.0, seed=3)
    p = Exact()(graph).probs
    plain = alone(Hull(), graph, 3)
    start = Bounds.vacuous(graph)
    rng = np.random.default_rng(0)
    known = np.repeat(rng.random(36) < 0.5, 2)
    start.lo[known], start.hi[known] = p[known] - 1e-3, p[known] + 1e-3
    helped = alone(Hull(), graph, 3, start)
    assert (helped.lo <= p + 1e-12).all()
    assert (p <= helped.hi + 1e-12).all()
    other = ~known[::2]
    assert helped.width[other].mean() < 0.97 * plain.width[other].mean()


def test_small_trees_are_solved():
    edges = [[0, 1], [1, 2], [1, 3], [3, 4]]
    graph = FactorGraph.pairwise(np.arange(5) / 3.0, edges, [1.0, -2.0, 0.5, 3.0])
    bounds = alone(Hull(), graph, 4)
    assert bounds.width.max() < 1e-12
    assert not violations(bounds, true_marginals(graph))


def test_weights_beyond_the_range_of_floats_are_given_up_not_lost():
    graph = FactorGraph.from_tables(
        [2, 2, 2], [[0, 1], [1, 2], [2]],
        [[[0.0, -1000.0], [-1000.0, 0.0]], [[0.0, -300.0], [-300.0, 0.0]], [0.0, 1e3]],
    )  # fmt: skip
    bounds = alone(Hull(), graph, 5)
    assert not violations(bounds, true_marginals(graph))


def network(rng: np.random.Generator, n: int) -> FactorGraph:
    """A Bayesian network of variables of two and three states with up to three parents."""
    states = rng.integers(2, 4, n).tolist()
    scopes, tables = [], []
    for v in range(n):
        parents = rng.choice(v, min(v, int(rng.integers(0, 4))), replace=False).tolist()
        table = rng.random([states[u] for u in [*parents, v]]) + 0.05
        scopes.append([*parents, v])
        tables.append(np.log(table / table.sum(axis=-1, keepdims=True)))
    return FactorGraph.from_tables(states, scopes, tables)


def test_barren_variables_are_left_out():
    # a variable and its parents, below them a thicket of which nothing is known
    graph = network(np.random.default_rng(1), 300)
    bounds = alone(Hull(), graph, 5)
    assert bounds.width[:5].max() < 1e-4
    seen = graph.with_evidence({299: 0, 290: 1})
    assert alone(Hull(), seen, 3).width[:5].max() <= 1.0


@pytest.mark.drawn
@pytest.mark.parametrize("observed", [0, 2])
def test_barren_variables_leave_the_truth_inside(observed):
    for seed in range(draws(25)):
        rng = np.random.default_rng([seed, observed])
        graph = network(rng, 8)
        if observed:
            graph = graph.with_evidence({int(v): 0 for v in rng.choice(8, observed, replace=False)})
        bounds = alone(Hull(), graph, 3)
        assert not violations(bounds, true_marginals(graph))


def test_no_variables_and_budgets_are_kept():
    assert alone(Hull(), FactorGraph.empty([])).lo.size == 0
    graph = grid(10, 1.0)
    local = Local.of(condition(graph))
    spent = []
    for budget in (64.0, 1024.0, 16384.0):
        meter = Meter(None, None)
        Hull().refine(local, Bounds.vacuous(graph), np.ones(100, dtype=bool), budget, meter)
        spent.append(meter.work)
        assert meter.work < 8 * budget * 100 + 1e6
    assert spent == sorted(spent)
    stopped = Bounds.vacuous(graph)
    Hull().refine(local, stopped, np.ones(100, dtype=bool), 1024.0, Meter(None, 0))
    assert stopped.width.min() == 1.0


def test_answers_do_not_depend_on_workers():
    graph = grid(40, 1.0)
    local = Local.of(condition(graph))
    found = []
    for workers in (1, 2):
        bounds = Bounds.vacuous(graph)
        for budget in (1024.0, 4096.0):
            meter = Meter(None, None, workers)
            Hull().refine(local, bounds, np.ones(1600, dtype=bool), budget, meter)
        found.append(bounds)
    assert (found[0].lo == found[1].lo).all()
    assert (found[0].hi == found[1].hi).all()


@pytest.mark.parametrize("path", zoo.UAI_MODELS, ids=lambda p: p.name.removesuffix(".uai.gz"))
def test_published_answers_lie_inside(path):
    graph, p = published(path)
    bounds = alone(Hull(), graph, 4)
    assert (bounds.lo <= p + 1e-11).all()
    assert (p <= bounds.hi + 1e-11).all()
