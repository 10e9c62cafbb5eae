"""Mini-buckets and the search over them: no bound is wrong, and each does what it says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

import minfer
from draws import blocks, draws
from minfer import Auto, Exact, FactorGraph, MiniBuckets, RefusedError, SettingsError
from minfer.engine.buckets.bounds import BucketBounds, prepare
from minfer.engine.buckets.conditioned import holders, marginal_ends
from minfer.engine.buckets.plan import partition, plan_buckets
from minfer.engine.buckets.search import BoundedSearch
from minfer.engine.conditioning import condition
from minfer.errors import ContradictionError
from oracle import models
from oracle.truth import WIDE, log_weights

MOST = 1 << 11


def log_sums(drawn: models.Drawn) -> np.ndarray:
    """Log-weights of all assignments, in long doubles."""
    return log_weights(drawn.n_states, drawn.factors, WIDE)


def log_sum(logs: np.ndarray) -> float:
    top = logs.max(initial=-np.inf)
    return top if np.isneginf(top) else top + np.log(np.exp(logs - top).sum())


def chosen(first: int, n: int) -> Iterator[tuple[models.Drawn, np.random.Generator]]:
    for drawn in models.possible(range(first, first + n), MOST):
        if drawn.n_states and drawn.magnitude < 1e5:
            yield drawn, np.random.default_rng([drawn.number, 38])


def slip(truth: float) -> float:
    """What the long doubles of the oracle may be wrong by."""
    return float(np.finfo(WIDE).eps) * 100 * (1 + (abs(float(truth)) if truth > -np.inf else 0))


def check(drawn: models.Drawn, rng: np.random.Generator) -> None:
    """Every bound that mini-buckets give of one model, at a drawn size."""
    logs = log_sums(drawn)
    truth = log_sum(logs)
    found = BucketBounds(condition(drawn.graph), i_bound=int(rng.integers(1, 5)))
    last = math.inf, -math.inf
    for _ in range(3):
        assert found.lower <= truth + slip(truth), drawn.number
        assert found.upper >= truth - slip(truth), drawn.number
        assert found.upper <= last[0], "it only tightens"
        assert found.lower >= last[1], "it only tightens"
        last = found.upper, found.lower
        found.tighten(sweeps=2)
    for v in range(len(drawn.n_states)):
        low, high = found.conditioned(v, float(rng.choice([0.0, 30.0, math.inf])))
        for s in range(drawn.n_states[v]):
            one = log_sum(np.take(logs, s, axis=v))
            assert low[s] <= one + slip(one), (drawn.number, v, s)
            assert high[s] >= one - slip(one), (drawn.number, v, s)


def test_bounds_hold_at_every_size():
    for drawn, rng in chosen(0, draws(400)):
        check(drawn, rng)


@pytest.mark.slow
def test_bounds_hold_on_many_models():
    for k in range(blocks(4)):
        for drawn, rng in chosen(10_000 + 500 * k, 500):
            check(drawn, rng)


def test_intervals_hold_when_conditioned():
    for drawn, rng in chosen(3_000, draws(200)):
        truth = drawn.wide
        if np.isnan(truth).any():
            continue  # numbers beyond what long doubles hold
        size, of_marginals = int(rng.integers(1, 4)), bool(rng.random() < 0.5)
        search = BoundedSearch(condition(drawn.graph), i_bound=size, marginals=of_marginals)
        search.run(work=int(rng.integers(1, 8)))
        for limit in (0.0, None):  # by what was explored; by conditioning, too
            low, high = search.intervals(time_limit=limit)
            assert (low <= truth + 1e-17).all(), drawn.number
            assert (high >= truth - 1e-17).all(), drawn.number


def loop(n: int, rng: np.random.Generator, states: int = 3, zeros: float = 0.0) -> FactorGraph:
    """All pairs of n variables."""
    graph = FactorGraph.empty([states] * n)
    for a in range(n):
        for b in range(a):
            table = rng.normal(size=(1, states, states))
            table[rng.random(table.shape) < zeros] = -np.inf
            table[0, 0, 0] = 0.0
            graph = graph.add_tables([(b, a)], table)
    return graph


def test_a_split_is_a_partition_and_messages_go_on_one_path():
    """Every table once, clusters within their size, each message read by the bucket of the first
    variable it has left."""
    graph = loop(7, np.random.default_rng(0))
    plan = plan_buckets(prepare(condition(graph)).tables, None, i_bound=5)
    n_tables = len(plan.table)
    used = sorted(p.source for members in plan.pieces for p in members if 0 <= p.source < n_tables)
    assert used == list(range(n_tables))
    assert max(3 ** len(s) for s in plan.scopes) <= 2**5
    reader = holders(plan)
    for k, scope in enumerate(plan.scopes):
        if len(scope) == 1:
            assert reader[k] == -1
            assert plan.target[k] == -1
        else:
            assert set(scope[1:]) <= set(plan.scopes[reader[k]])
            assert plan.scopes[reader[k]][0] == scope[1] == plan.target[k]
    whole = partition([(0, 1), (1, 2), (0, 2)], [2, 2, 2], math.inf)
    assert whole.cells == 8 + 4 + 2


def test_exact_where_nothing_is_split():
    graph = loop(5, np.random.default_rng(1))
    found = BucketBounds(condition(graph))
    assert found.exact
    assert found.upper - found.lower < 1e-11
    low, high = found.conditioned(2)
    assert (high - low < 1e-11).all()


def test_search_closes_and_goes_on():
    """Stopped after each few leaves, it gets narrower each time, and ends exact."""
    graph = loop(8, np.random.default_rng(2), zeros=0.2)
    search = BoundedSearch(condition(graph), i_bound=5)
    widths = []
    while not search.exact:
        search.run(work=5)
        widths.append(search.upper - search.lower)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1e-9
    exact = BucketBounds(condition(graph))
    assert search.lower <= exact.upper
    assert exact.lower <= search.upper
    assert [h[2] for h in search.history] == sorted(h[2] for h in search.history)
    nodes = search.nodes
    search.run(work=5)
    assert search.nodes == nodes, "nothing is left to do"


def test_runs_repeat():
    graph = loop(8, np.random.default_rng(3), zeros=0.2)
    found = []
    for stops in ((40,), (15, 25)):
        search = BoundedSearch(condition(graph), i_bound=5)
        for work in stops:
            search.run(work=work)
        found.append((search.lower, search.upper, search.nodes))
    assert found[0] == found[1]


def test_little_memory():
    """The bounds stay right when there is no room for another node, and still get narrower."""
    graph = loop(10, np.random.default_rng(4), zeros=0.1)
    whole = BucketBounds(condition(graph))
    search = BoundedSearch(condition(graph), i_bound=5, memory_limit=120_000)
    while not search.exact:
        nodes = search.nodes
        search.run(work=1_000)
        assert search.nodes > nodes, "it never gets stuck here"
        assert search.lower <= whole.upper
        assert whole.lower <= search.upper
    assert search.upper - search.lower < 1e-9
    held = BoundedSearch(condition(graph), i_bound=5)
    held.run()
    assert search.nodes > held.nodes, "what was forgotten was opened again"
    with pytest.raises(RefusedError, match="i_bound"):
        BoundedSearch(condition(graph), i_bound=8, memory_limit=1_000)


def test_best_assignment():
    rng = np.random.default_rng(6)
    graph = loop(6, rng)
    drawn = {tuple(graph.scope(f).tolist()): graph.log_table(f) for f in range(graph.n_factors)}
    logs = log_weights((3,) * 6, list(drawn.items()))
    most = (4, 1, 2)
    value = np.log(np.exp(logs).sum(axis=(0, 3, 5)))  # of (1, 2, 4)
    search = BoundedSearch(condition(graph), maximise=most, i_bound=4)
    for _ in range(30):
        search.run(work=10)
        if search.best is not None:
            a, b, c = (int(s) for s in search.best)
            assert search.lower - 1e-9 <= value[b, c, a] <= search.upper + 1e-9
    assert search.exact
    assert abs(value.max() - search.lower) < 1e-9
    with pytest.raises(SettingsError, match="without variables to maximise"):
        search.intervals()


def test_contradictions():
    table = np.full((1, 2, 2), -np.inf)
    table[0, 0, 1] = table[0, 1, 0] = 0.0
    graph = FactorGraph.empty([2] * 3)
    for pair in ((0, 1), (1, 2), (0, 2)):  # an odd cycle of unequal neighbours
        graph = graph.add_tables([pair], table)
    with pytest.raises(ContradictionError):
        BoundedSearch(condition(graph), i_bound=1).run(work=100)


@pytest.mark.parametrize("seed", range(12))
def test_what_cancels_counts_with_its_size(seed):
    """Zeros leave one assignment: log Z is what is left of large numbers, a fraction."""
    rng = np.random.default_rng(seed)
    graph, truth = FactorGraph.empty([2, 3]), Fraction(0)
    size = 10.0 ** rng.uniform(0, 12)
    for i in range(30):
        table = rng.normal(size=(2, 3)) * size
        table[1, 0] = table[1, 0] if i < 29 else -float(truth)
        truth += Fraction(float(table[1, 0]))
        table[0] = -np.inf
        table[1, 1:] = -np.inf if i % 2 else table[1, 1:]
        flip = rng.random() < 0.5
        graph = graph.add_tables([[1, 0] if flip else [0, 1]], (table.T if flip else table)[None])
    for solver in (MiniBuckets(), Exact(), Auto(time_limit=4)):
        lower, upper = solver(graph).log_z_bounds
        assert Fraction(lower) <= truth <= Fraction(upper), solver
    for variables in ([0], None):
        assert truth <= Fraction(minfer.mpe(graph, variables=variables).upper)


def test_ends_of_a_marginal():
    low, high = marginal_ends(np.log([0.2, 0.5]), np.log([0.3, 0.6]), math.log(0.8), 0.0)
    assert np.allclose(low, [0.2 / 0.8, 0.5 / 0.8])
    assert np.allclose(high, [0.3 / 0.8, 0.6 / 0.8])
