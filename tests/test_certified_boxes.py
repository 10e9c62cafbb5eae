"""Boxes of ratios alone: what they say holds, rounding included, for any tables."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import certifying
import zoo
from draws import draws
from minfer import FactorGraph
from minfer.certified.bounds import Bounds, Meter
from minfer.certified.boxes import Boxes
from minfer.certified.local import Local
from minfer.certified.walks import Walks
from minfer.conditioning import condition

BUDGETS = (500.0, 1e4, 1e6)
KINDS = ["tables", "zeros", "trees", "binary"]


def drawn(rng: np.random.Generator, kind: str) -> FactorGraph:
    if kind == "binary":
        return certifying.drawn_binary(rng, others=True)
    return certifying.drawn_tables(rng, tree=kind == "trees", zeros=kind == "zeros")


@pytest.mark.drawn
@pytest.mark.parametrize("kind", KINDS)
def test_the_truth_is_inside(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    n_states = n_vacuous = 0
    for _ in range(draws(100)):
        graph = drawn(rng, kind)
        truth = certifying.true_marginals(graph)
        for bounds in certifying.alone(Boxes(), graph, BUDGETS):
            assert not certifying.violations(bounds, truth), graph
        free = np.repeat(condition(graph).fixed < 0, graph.n_states)
        n_states += int(free.sum())
        n_vacuous += int(((bounds.hi - bounds.lo) >= 1)[free].sum())
    print(f"{kind}: {n_states} states, {n_vacuous / n_states:.1%} vacuous")
    assert n_vacuous <= {"zeros": 0.7, "binary": 0.6}.get(kind, 0.3) * n_states


@pytest.mark.drawn
def test_a_tree_is_known_to_the_last_digits():
    rng = np.random.default_rng(5)
    for _ in range(draws(40)):
        sizes = rng.integers(2, 5, 6)
        edges = certifying.drawn_edges(rng, 6, tree=True)
        graph = FactorGraph.empty(sizes)
        for scope in [*edges.tolist(), *[[v] for v in range(6)]]:
            graph = graph.add_tables([scope], [rng.normal(size=tuple(sizes[scope]))])
        bounds = certifying.alone(Boxes(), graph, (1e6,))[-1]
        assert not certifying.violations(bounds, certifying.true_marginals(graph))
        assert 0 < bounds.width.max() < 1e-12


ZOO = {
    **zoo.graphs(),
    **zoo.higher_order(),
    **zoo.every_kind(),
    **zoo.with_globals(),
    **zoo.logical(),
}
SMALL = sorted(name for name, g in ZOO.items() if np.prod(g.n_states.astype(float)) <= 3000)


@pytest.mark.parametrize("name", SMALL)
def test_every_kind_of_factor(name):
    graph = ZOO[name]
    truth = certifying.true_marginals(graph)
    for method in (Boxes(), Walks()):
        for bounds in certifying.alone(method, graph, BUDGETS):
            assert not certifying.violations(bounds, truth)


@pytest.mark.parametrize("method", [Boxes, Walks])
def test_a_factor_too_large_for_a_table_is_a_range(method):
    """Eighteen variables and a weight by the count of them: convolutions are the oracle."""
    rng = np.random.default_rng(4)
    fields, weights = rng.normal(size=18), np.array([0.0, 0.3, -0.4, 0.2])
    graph = FactorGraph.pairwise(fields, [], []).add_cardinality([np.arange(18)], weights)
    by_count = np.exp(np.append(weights, np.full(15, weights[-1])))
    truth = []
    for v in range(18):
        rest = np.ones(1)
        for u in range(18):
            if u != v:
                rest = np.convolve(rest, [1.0, np.exp(fields[u])])
        off, on = rest @ by_count[:-1], np.exp(fields[v]) * (rest @ by_count[1:])
        truth += [off / (off + on), on / (off + on)]
    bounds = certifying.alone(method(), graph, (1e5,))[-1]
    assert (bounds.lo <= truth).all()
    assert (bounds.hi >= truth).all()
    assert bounds.width.max() < 0.5


def potts(n: int, states: int, rng: np.random.Generator, coupling: float = 0.5) -> FactorGraph:
    graph = FactorGraph.empty(np.full(n * n, states))
    at = np.arange(n * n).reshape(n, n)
    edges = np.concatenate([np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], 1),
                            np.stack([at[:-1].ravel(), at[1:].ravel()], 1)])  # fmt: skip
    graph = graph.add_tables(at.reshape(-1, 1), rng.normal(size=(n * n, states)))
    return graph.add_tables(
        edges, np.broadcast_to(coupling * np.eye(states), (len(edges), states, states))
    )


def test_more_work_is_narrower_and_the_same_each_time():
    graph = potts(8, 3, np.random.default_rng(1))
    budgets = tuple(1e3 * 4.0**k for k in range(5))
    found = certifying.alone(Boxes(), graph, budgets)
    widths = [b.width.mean() for b in found]
    assert all(b < a for a, b in pairwise(widths))
    assert widths[-1] < 0.2 * widths[0]
    for one, other in zip(found, certifying.alone(Boxes(), graph, budgets)):
        assert np.array_equal(one.lo, other.lo)
        assert np.array_equal(one.hi, other.hi)


def test_threads_and_portions_change_nothing():
    graph = potts(12, 3, np.random.default_rng(2))
    local = Local.of(condition(graph))
    found = []
    for workers in (1, 3):
        bounds, meter = Bounds.vacuous(graph), Meter(None, None, workers=workers)
        method = Boxes()
        for budget in (1e3, 1e4):
            method.refine(local, bounds, np.ones(144, dtype=bool), budget, meter)
        found.append((bounds.lo, bounds.hi, meter.work))
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2]


def test_what_cannot_be_narrowed_is_not_tried_again():
    graph = potts(3, 3, np.random.default_rng(3))
    local, bounds, method = Local.of(condition(graph)), Bounds.vacuous(graph), Boxes()
    spent = []
    for budget in (1e7, 1e8):
        meter = Meter(None, None)
        method.refine(local, bounds, np.ones(9, dtype=bool), budget, meter)
        spent.append(meter.work)
    assert spent[0] > 0
    assert spent[1] == 0


def test_many_states_cost_no_more_than_they_can_tell():
    rng = np.random.default_rng(6)
    graph = FactorGraph.empty([2, 3, 300, 3])
    for scope in ([0, 1], [1, 2], [2, 3], [0, 3], [0, 2, 3]):
        table = 0.3 * rng.normal(size=tuple(graph.n_states[scope]))
        graph = graph.add_tables([scope], [table])
    bounds = certifying.alone(Boxes(), graph, (1e6,))[-1]
    assert not certifying.violations(bounds, certifying.true_marginals(graph))
    assert (bounds.width < 1).tolist() == [True, True, False, True]


def test_scratch_has_room_for_a_variable_of_many_states():
    """In plain Python, where a write beyond the end is an error and not a damaged heap."""
    import subprocess
    import sys

    code = """
import os
os.environ["NUMBA_DISABLE_JIT"] = "1"
import numpy as np
from minfer import FactorGraph
from minfer.certified.boxes import prepare
from minfer.certified.local import Local
from minfer.conditioning import condition
table = np.random.default_rng(0).normal(size=(40, 2, 2))
prepare(Local.of(condition(FactorGraph.from_tables([40, 2, 2], [[0, 1, 2]], [table]))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_a_preparation_that_takes_long_ends_with_the_time():
    ticks = iter(range(10**6))
    pairs = [[i, i + 1] for i in range(5)]
    graph = FactorGraph.empty([40] * 6).add_truncated_linear(pairs, 0.5, 3.0)
    local, bounds = Local.of(condition(graph)), Bounds.vacuous(graph)
    boxes, meter = Boxes(), Meter(20.0, None, clock=lambda: float(next(ticks)))
    assert boxes.refine(local, bounds, np.ones(6, dtype=bool), 1e4, meter)
    assert meter.stopped == "time"
    assert next(ticks) < 30  # a look at the clock for each label
    later = Meter(None, None)
    assert boxes.refine(local, bounds, np.ones(6, dtype=bool), 1e4, later)
    assert not later.stopped
    assert later.work > 0
