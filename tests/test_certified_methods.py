"""The methods of certified intervals, each alone: the truth lies inside, they narrow, budgets hold.

``test_certified.py`` runs each of them by the search over drawn models; here they are called by
themselves, over one list where they promise the same, and then for what each does its own way.
"""

from __future__ import annotations

import itertools
import subprocess
import sys

import mpmath
import numpy as np
import pytest

from draws import draws
from minfer import Exact, FactorGraph, intervals
from minfer.certified.bounds import BoundMethod, Bounds, Effort, Refining
from minfer.certified.boxes import Boxes
from minfer.certified.exact_cliques import Whole
from minfer.certified.local import LocalBounds
from minfer.certified.monotone import Grid, Monotone, Region, find_grid, rectangle_plan, run
from minfer.certified.walks import Walks
from minfer.engine.conditioning import condition
from oracle import lists, models
from oracle import truth as naive
from oracle.truth import true_marginals, violations

METHODS = [Boxes, Walks, Whole, Monotone]
NO_STOP = np.zeros(1, dtype=np.uint8)


def alone(
    method: BoundMethod, graph: FactorGraph, budgets: tuple[float, ...] = (64.0, 1e3, 1e4, 1e6)
) -> list[Bounds]:
    """The bounds after each call, from nothing; known variables are the caller's."""
    model = condition(graph)
    local, bounds = LocalBounds.of(model), Bounds.vacuous(graph)
    for v in np.flatnonzero(model.fixed >= 0):
        mine = slice(graph.offsets[v], graph.offsets[v + 1])
        bounds.lo[mine] = bounds.hi[mine] = np.arange(graph.n_states[v]) == model.fixed[v]
    found = []
    for budget in budgets:
        method.refine(Refining(local, bounds, bounds.width > 1e-13, budget, Effort(None, None)))
        found.append(Bounds(graph, bounds.lo.copy(), bounds.hi.copy(), bounds.codes.copy()))
    return found


def holds(graph: FactorGraph, *found) -> None:
    """No true marginal outside, by numbers with 50 digits."""
    p = true_marginals(graph)
    assert p is not None
    assert not [violations(bounds, p) for bounds in found if violations(bounds, p)]


#: Families of binary pairs whose walks end within the budget, if they are small.
PAIRS = ("mixed_signs", "balanced", "frustrated")
#: At most this share of the states of drawn models is left at [0, 1] by a method alone.
VACUOUS = {Boxes: 0.5, Walks: 0.5, Whole: 0.0, Monotone: 0.8}


@pytest.mark.drawn
@pytest.mark.parametrize("method", METHODS)
def test_the_truth_is_inside_at_every_budget(method):
    n_states = n_vacuous = 0
    for drawn in models.possible(range(1000, 1000 + draws(200)), most=3000):
        found = alone(method(), drawn.graph)
        for bounds in found:
            assert not violations(bounds, drawn.digits), (drawn.number, drawn.family)
        wide = found[-1].hi - found[-1].lo
        n_states, n_vacuous = n_states + len(wide), n_vacuous + int((wide >= 1).sum())
        if method is Whole:
            zero = np.array([x == 0 for x in drawn.digits], dtype=bool)
            assert not found[-1].hi[zero].any(), "zeros are structural"
            assert wide.max(initial=0.0) < 1e-12 * max(drawn.magnitude, 1.0)
        elif method is Walks and drawn.family in PAIRS and drawn.graph.n_variables < 7:
            assert wide.max(initial=0.0) < 1e-9, "as plain numbers hold all odds"
    assert n_vacuous <= VACUOUS[method] * n_states, n_vacuous / n_states


@pytest.mark.drawn
@pytest.mark.parametrize("method", [Boxes, Walks, Whole])
def test_a_tree_is_known_to_the_last_digits(method):
    rng = np.random.default_rng(5)
    for _ in range(draws(50)):
        sizes = rng.integers(2, 5, 7) if method in (Boxes, Whole) else [2] * 7
        graph = FactorGraph.empty(sizes)
        pairs = [[v, int(rng.integers(v))] for v in range(1, 7) if rng.random() < 0.9]
        for scope in [*pairs, *([v] for v in range(7))]:
            table = rng.normal(size=tuple(graph.n_states[scope]))
            graph = graph.add_tables([scope], [table])
        bounds = alone(method(), graph)[-1]
        holds(graph, bounds)
        assert 0 < bounds.width.max() < 3e-12


ZOO = {**lists.graphs(), **lists.higher_order(), **lists.every_kind(), **lists.with_globals(),
       **lists.logical()}  # fmt: skip
SMALL = sorted(name for name, g in ZOO.items() if np.prod(g.n_states.astype(float)) <= 3000)


@pytest.mark.parametrize("name", SMALL)
def test_every_kind_of_factor(name):
    graph = ZOO[name]
    for method in METHODS:
        holds(graph, *alone(method(), graph))


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
    bounds = alone(method(), graph, (1e5,))[-1]
    assert (bounds.lo <= truth).all()
    assert (bounds.hi >= truth).all()
    assert bounds.width.max() < 0.5


def sparse(n: int, rng: np.random.Generator) -> FactorGraph:
    edges = np.array([(i, j) for i in range(n) for j in range(i) if rng.random() < 3 / n])
    return FactorGraph.pairwise(rng.normal(size=n), edges, rng.normal(size=len(edges)))


@pytest.mark.parametrize(
    ("method", "graph"),
    [
        (Boxes, models.potts(3, 3, np.random.default_rng(3))),
        (Walks, FactorGraph.pairwise([0.5, -1.0, 2.0], [(0, 1), (1, 2), (2, 0)], [1.0, -2.0, 0.5])),
        (Whole, FactorGraph.pairwise(np.zeros(4), [[0, 1], [2, 3]], [1.0, 1.0])),
    ],
    ids=["boxes", "walks", "exact"],
)
def test_what_was_followed_to_its_end_is_not_tried_again(method, graph):
    local, bounds, one = LocalBounds.of(condition(graph)), Bounds.vacuous(graph), method()
    spent = []
    for budget in (1e7, 1e8):
        meter = Effort(None, None)
        one.refine(Refining(local, bounds, np.ones(graph.n_variables, dtype=bool), budget, meter))
        spent.append(meter.work)
    assert spent[0] > 0
    assert spent[1] == 0


def test_many_states_cost_no_more_than_they_can_tell():
    rng = np.random.default_rng(6)
    graph = FactorGraph.empty([2, 3, 300, 3])
    for scope in ([0, 1], [1, 2], [2, 3], [0, 3], [0, 2, 3]):
        table = 0.3 * rng.normal(size=tuple(graph.n_states[scope]))
        graph = graph.add_tables([scope], [table])
    bounds = alone(Boxes(), graph, (1e6,))[-1]
    holds(graph, bounds)
    assert (bounds.width < 1).tolist() == [True, True, False, True]


@pytest.mark.slow
def test_scratch_has_room_for_a_variable_of_many_states():
    """In plain Python, where a write beyond the end is an error and not a damaged heap."""
    code = """
import os
os.environ["NUMBA_DISABLE_JIT"] = "1"
import numpy as np
from minfer import FactorGraph
from minfer.certified.boxes import prepare
from minfer.certified.local import LocalBounds
from minfer.engine.conditioning import condition
table = np.random.default_rng(0).normal(size=(40, 2, 2))
prepare(LocalBounds.of(condition(FactorGraph.from_tables([40, 2, 2], [[0, 1, 2]], [table]))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_a_preparation_that_takes_long_ends_with_the_time():
    ticks = iter(range(10**6))
    pairs = [[i, i + 1] for i in range(5)]
    graph = FactorGraph.empty([40] * 6).add_truncated_linear(pairs, 0.5, 3.0)
    local, bounds = LocalBounds.of(condition(graph)), Bounds.vacuous(graph)
    boxes, meter = Boxes(), Effort(20.0, None, clock=lambda: float(next(ticks)))
    assert boxes.refine(Refining(local, bounds, np.ones(6, dtype=bool), 1e4, meter))
    assert meter.stopped == "time"
    assert next(ticks) < 30  # a look at the clock for each label
    later = Effort(None, None)
    assert boxes.refine(Refining(local, bounds, np.ones(6, dtype=bool), 1e4, later))
    assert not later.stopped
    assert later.work > 0


def test_every_pair_of_signs_closes_its_cycles_by_the_order():
    """K4 with every choice of signs: the order rule, wrong, would show at full depth."""
    edges = np.array([(a, b) for b in range(4) for a in range(b)])
    fields = np.array([0.3, -0.7, 1.1, 0.2])
    for code in range(64):
        signs = np.array([1 if code >> k & 1 else -1 for k in range(6)])
        graph = FactorGraph.pairwise(fields, edges, signs * np.linspace(0.5, 2.0, 6))
        bounds = alone(Walks(), graph, (1e6,))[-1]
        truth = naive.marginals(graph)
        assert np.abs(bounds.lo - truth).max() < 1e-12
        assert np.abs(bounds.hi - truth).max() < 1e-12


@pytest.mark.parametrize("method", [Walks, Whole])
def test_only_the_wanted_are_touched_and_work_is_counted(method):
    graph = FactorGraph.pairwise(np.zeros(4), [[0, 1], [2, 3]], [1.0, 1.0])
    if method is Walks:
        graph = sparse(60, np.random.default_rng(3))
    local, bounds = LocalBounds.of(condition(graph)), Bounds.vacuous(graph)
    wanted = np.zeros(graph.n_variables, dtype=bool)
    wanted[[0, 1]] = True
    one, meter = method(), Effort(None, None)
    if method is Whole:  # waits until its budget is enough
        one.refine(Refining(local, bounds, wanted, 2.0, meter))
        assert bounds.width.tolist() == [1.0] * 4
    one.refine(Refining(local, bounds, wanted, 1e4, meter))
    assert 0 < meter.work <= 2 * 1.1e4
    assert (bounds.width[~wanted] == 1).all() or method is Whole  # which may do small parts too
    assert (bounds.width[wanted] < 1).all()
    fresh = Bounds.vacuous(graph)
    method().refine(Refining(local, fresh, wanted, 64.0, Effort(None, 0)))
    assert (fresh.width == 1).all()


def test_larger_cliques_and_many_messages():
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
            bounds = alone(Whole(), graph)[-1]
            holds(graph, bounds)
            assert (bounds.hi - bounds.lo).max() < 1e-9 * max(scale, 1.0)
            seen += 1
    assert seen == 15
    # Products of 600 and 1,500 messages: beyond the range of floats, and beyond the fast way.
    for n in (600, 1500):
        graph = FactorGraph.pairwise(np.zeros(n + 8), [[k, n] for k in range(n)], 3.0)
        core = [[i, j] for i in range(n, n + 8) for j in range(n, i)]
        graph = graph.add_features(core, 0.5)
        graph = graph.tilt(np.where(np.arange(2 * (n + 8)) == 2 * n, n * 1.5, 0.0))
        bounds = alone(Whole(), graph)[-1]
        other = Exact()(graph).probs
        assert bounds.width.max() < 1e-8
        assert (bounds.lo - 1e-9 <= other).all()
        assert (other <= bounds.hi + 1e-9).all()


def test_components_wait_for_their_budget():
    rng = np.random.default_rng(0)
    dense = [[i, j] for i in range(10) for j in range(i)]
    graph = FactorGraph.pairwise(np.zeros(14), [*dense, [10, 11], [12, 13]],
                                 rng.normal(size=len(dense) + 2))  # fmt: skip
    local, whole = LocalBounds.of(condition(graph)), Whole()
    bounds, meter = Bounds.vacuous(graph), Effort(None, None)
    whole.refine(Refining(local, bounds, np.ones(14, dtype=bool), 64.0, meter))
    assert bounds.width[10:].max() < 1e-10
    assert bounds.width[:10].min() == 1.0
    before = meter.work
    whole.refine(Refining(local, bounds, bounds.width > 1e-3, 256.0, meter))
    assert bounds.width.max() < 1e-10
    spent = meter.work
    assert spent > before
    whole.refine(Refining(local, bounds, np.ones(14, dtype=bool), 1024.0, meter))
    assert meter.work == spent  # not again


def test_tens_of_thousands_of_small_components_and_long_chains():
    rng = np.random.default_rng(0)
    n = 30_000
    edges = np.arange(2 * n).reshape(n, 2)
    theta, w = rng.normal(size=2 * n), rng.normal(size=n)
    bounds = alone(Whole(), FactorGraph.pairwise(theta, edges, w))[-1]
    assert bounds.width.max() < 1e-12
    a, b = theta[0::2], theta[1::2]
    p = (np.exp(a) + np.exp(a + b + w)) / (1 + np.exp(a) + np.exp(b) + np.exp(a + b + w))
    assert np.abs(bounds.lo[1::4] - p).max() < 1e-12
    edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    chain = FactorGraph.pairwise(theta[:n], edges, 3 * w[1:])
    assert alone(Whole(), chain)[-1].width.max() < 1e-8


@pytest.mark.parametrize("path", lists.UAI_MODELS, ids=lambda p: p.name.removesuffix(".uai.gz"))
def test_published_answers_lie_inside(path):
    graph, p = lists.published(path)
    bounds = alone(Whole(), graph)[-1]
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
    assert not violations(alone(Whole(), graph)[-1], p)
    assert not violations(intervals(graph, None, tol=0.0, work=10**6), p)


def test_whole_regions_are_exact_and_grids_are_found_by_their_numbers():
    rng = np.random.default_rng(1)
    edges = list(itertools.combinations(range(7), 2))
    graph = FactorGraph.pairwise(rng.normal(size=7), edges, 2 * rng.normal(size=len(edges)))
    bounds = alone(Monotone(), graph, (1e6,))[-1]
    assert bounds.width.max() < 1e-11
    holds(graph, bounds)
    graph = FactorGraph.grid(2 * np.random.default_rng(3).normal(size=(9, 9)), 0.8)
    strips, p = alone(Monotone(), graph, (256.0, 1024.0, 1e7)), Exact()(graph).probs
    assert all((b.lo - 1e-13 <= p).all() and (p <= b.hi + 1e-13).all() for b in strips)
    assert 0 < strips[-1].width.max() < 1e-10 < 1e-3 < strips[1].width.max() < 1

    def found(graph):
        return find_grid(LocalBounds.of(condition(graph)))

    assert found(FactorGraph.grid(np.zeros((3, 5)))) == Grid(3, 5, False)
    assert found(FactorGraph.pairwise(np.zeros(9), [[k, k + 1] for k in range(8)], 1.0)) is None
    kings = [[0, 1], [1, 2], [3, 4], [4, 5], [0, 3], [1, 4], [2, 5], [0, 4], [1, 3], [1, 5], [2, 4]]
    assert found(FactorGraph.pairwise(np.zeros(6), kings, 1.0)) == Grid(2, 3, True)
    # a torus is none: the pair that closes a row joins the first column and the last
    torus = [*kings[:7], [0, 2], [3, 5]]
    assert found(FactorGraph.pairwise(np.zeros(6), torus, 1.0)) is None


def test_four_regions_abreast_say_what_each_says_alone():
    rng = np.random.default_rng(0)
    graph = FactorGraph.grid(rng.normal(size=(6, 8)), coupling=0.7)
    local = LocalBounds.of(condition(graph))
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
    whole = alone(Monotone(), graph, (1e7,))[-1]
    monkeypatch.setattr(module, "KEPT", 1)
    again = alone(Monotone(), graph, (1e7,))[-1]
    assert np.array_equal(whole.lo, again.lo)
    assert np.array_equal(whole.hi, again.hi)


def test_long_sums_are_counted():
    # equal terms, so that the rounding of a sum of 2^13 of them is a bias, not a random walk
    n, field = 14, np.zeros(14)
    field[0] = 0.3217
    edges = list(itertools.combinations(range(n), 2))
    graph = FactorGraph.pairwise(field, edges, np.full(len(edges), 1e-30))
    bounds = alone(Monotone(), graph, (1e9,))[-1]
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(0.3217)))
        assert mpmath.mpf(float(bounds.lo[1])) <= p <= mpmath.mpf(float(bounds.hi[1]))
    assert bounds.width.max() > 2**n * 2.0**-54  # room for the worst of such sums
