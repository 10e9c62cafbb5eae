"""Self-avoiding walks alone: what they say holds, rounding included, and at full depth is exact."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import certifying
import naive
from draws import draws
from minfer import FactorGraph
from minfer.certified.bounds import Bounds, Meter
from minfer.certified.local import Local
from minfer.certified.walks import Walks
from minfer.conditioning import condition

BUDGETS = (64.0, 1e3, 1e4, 1e7)


@pytest.mark.drawn
@pytest.mark.parametrize("kind", ["pairs", "trees", "others"])
def test_the_truth_is_inside(kind):
    rng = np.random.default_rng(["pairs", "trees", "others"].index(kind))
    n_states = n_vacuous = 0
    for _ in range(draws(250)):
        graph = certifying.drawn_binary(rng, tree=kind == "trees", others=kind == "others")
        truth = certifying.true_marginals(graph)
        for bounds in certifying.alone(Walks(), graph, BUDGETS):
            assert not certifying.violations(bounds, truth), graph
        free = np.repeat(condition(graph).fixed < 0, 2)
        n_states += int(free.sum())
        n_vacuous += int(((bounds.hi - bounds.lo) >= 1)[free].sum())
        if kind != "others" and sum(np.abs(g.magnitude()).sum() for g in graph.groups) < 600:
            assert (bounds.hi - bounds.lo)[free].max(initial=0) < 1e-9, (
                "as plain numbers hold all odds"
            )
    print(f"{kind}: {n_states} states, {n_vacuous / n_states:.1%} vacuous")
    assert n_vacuous <= {"pairs": 0.1, "trees": 0.1, "others": 0.4}[kind] * n_states


@pytest.mark.drawn
def test_a_tree_is_known_to_the_last_digits():
    rng = np.random.default_rng(5)
    for _ in range(draws(60)):
        n = 8
        edges = certifying.drawn_edges(rng, n, tree=True)
        weights = rng.normal(size=len(edges))
        graph = FactorGraph.pairwise(rng.normal(size=n), edges, weights)
        bounds = certifying.alone(Walks(), graph, BUDGETS)[-1]
        assert not certifying.violations(bounds, certifying.true_marginals(graph))
        assert 0 < bounds.width.max() < 2e-13


def test_every_pair_of_signs_closes_its_cycles_by_the_order():
    """K4 with every choice of signs: the order rule, wrong, would show at full depth."""
    edges = np.array([(a, b) for b in range(4) for a in range(b)])
    fields = np.array([0.3, -0.7, 1.1, 0.2])
    for code in range(64):
        signs = np.array([1 if code >> k & 1 else -1 for k in range(6)])
        graph = FactorGraph.pairwise(fields, edges, signs * np.linspace(0.5, 2.0, 6))
        bounds = certifying.alone(Walks(), graph, (1e6,))[-1]
        truth = naive.marginals(graph)
        assert np.abs(bounds.lo - truth).max() < 1e-12
        assert np.abs(bounds.hi - truth).max() < 1e-12


@pytest.mark.drawn
def test_ignored_pairs_are_ranges():
    rng = np.random.default_rng(8)
    for _ in range(draws(100)):
        graph = certifying.drawn_binary(rng)
        ignored = (rng.random(graph.n_factors) < 0.3) & (np.array(graph.arity) == 2)
        truth = certifying.true_marginals(graph)
        for bounds in certifying.alone(Walks(), graph, BUDGETS, ignored):
            assert not certifying.violations(bounds, truth)


def sparse(n: int, rng: np.random.Generator) -> FactorGraph:
    edges = np.array([(i, j) for i in range(n) for j in range(i) if rng.random() < 3 / n])
    return FactorGraph.pairwise(rng.normal(size=n), edges, rng.normal(size=len(edges)))


def test_more_work_is_narrower_and_the_same_each_time():
    graph = sparse(60, np.random.default_rng(1))
    budgets = tuple(64 * 4.0**k for k in range(1, 8))
    found = certifying.alone(Walks(), graph, budgets)
    widths = [b.width.mean() for b in found]
    assert all(b < a for a, b in pairwise(widths))
    assert widths[-1] < 0.01 * widths[0]
    again = certifying.alone(Walks(), graph, budgets)
    for one, other in zip(found, again):
        assert np.array_equal(one.lo, other.lo)
        assert np.array_equal(one.hi, other.hi)


def test_threads_and_portions_change_nothing():
    graph = sparse(400, np.random.default_rng(2))
    local = Local.of(condition(graph))
    found = []
    for workers in (1, 3):
        bounds, meter = Bounds.vacuous(graph), Meter(None, None, workers=workers)
        method = Walks()
        for budget in (1e3, 1e4):
            method.refine(local, bounds, np.ones(400, dtype=bool), budget, meter)
        found.append((bounds.lo, bounds.hi, meter.work))
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2] <= 400 * 1.2e4


def test_only_the_wanted_are_touched_and_work_is_counted():
    graph = sparse(60, np.random.default_rng(3))
    local = Local.of(condition(graph))
    bounds, meter = Bounds.vacuous(graph), Meter(None, None)
    wanted = np.zeros(60, dtype=bool)
    wanted[[3, 17]] = True
    Walks().refine(local, bounds, wanted, 1e4, meter)
    assert 0 < meter.work <= 2 * 1.1e4
    assert (bounds.width[~wanted] == 1).all()
    assert (bounds.width[wanted] < 1).all()


def test_what_was_followed_to_its_end_is_not_followed_again():
    graph = FactorGraph.pairwise([0.5, -1.0, 2.0], [(0, 1), (1, 2), (2, 0)], [1.0, -2.0, 0.5])
    local, bounds, method = Local.of(condition(graph)), Bounds.vacuous(graph), Walks()
    spent = []
    for budget in (1e5, 1e6):
        meter = Meter(None, None)
        method.refine(local, bounds, np.ones(3, dtype=bool), budget, meter)
        spent.append(meter.work)
    assert spent[0] > 0
    assert spent[1] == 0
