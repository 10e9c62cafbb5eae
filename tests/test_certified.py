"""Certified intervals: never wrong, never wider with more work, the same bits for the same work."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys

import mpmath
import numpy as np
import pytest

import minfer
from draws import blocks, draws, few, thorough
from minfer import Exact, FactorGraph, Intervals, Marginals, MinferError, ModelError, SettingsError
from minfer.certified.bounds import BoundMethod, Bounds, Effort, Refining, sum_of_others
from minfer.certified.boxes import Boxes
from minfer.certified.exact_cliques import ExactCliques
from minfer.certified.local import LocalBounds
from minfer.certified.monotone import Grid, Monotone, Region, find_grid, rectangle_plan, run
from minfer.certified.result import METHODS
from minfer.certified.search import all_methods
from minfer.certified.walks import Walks
from minfer.engine.conditioning import condition
from oracle import lists, models
from oracle import truth as naive
from oracle.truth import true_marginals, violations
from refused import refused

ALONE = [*all_methods()]
CLASSES = [Boxes, Walks, ExactCliques, Monotone]
#: Work of a call on a drawn model: next to nothing, and plenty.
LITTLE, PLENTY = 2_000, 300_000


def certify(graph: FactorGraph, work: int | None = PLENTY, tol: float = 0.0, **more) -> Intervals:
    """Intervals that depend on nothing but the arguments."""
    return minfer.intervals(graph, None, tol=tol, work=work, **{"workers": 1, **more})


def grid(side: int = 12, alpha: float = 1.0, coupling: float = 1.0) -> FactorGraph:
    fields = np.random.default_rng(0).normal(size=(side, side))
    return FactorGraph.grid(alpha * fields, coupling)


def made_up(graph: FactorGraph, lo: list[float], hi: list[float], **more) -> Intervals:
    codes = np.zeros(graph.n_variables, dtype=np.uint8)
    return Intervals(graph, np.array(lo), np.array(hi), codes, 0.01, "time", **more)


def estimate(graph: FactorGraph, probs: list[float]) -> Marginals:
    return Marginals.from_probs(graph, np.array(probs), "a guess")


@pytest.mark.drawn
@pytest.mark.parametrize("method", [*ALONE, "all"])
@pytest.mark.parametrize("first", range(0, 60 * blocks(4), 60))
def test_the_truth_lies_inside(method, first):
    methods, numbers = None if method == "all" else [method], range(first, first + 60)
    once = len(models.FAMILIES) * first // 240  # of each family one every day
    for drawn in models.possible(numbers if thorough() else numbers[once:][:5]):
        for work, tol in ((LITTLE, 0.0), (PLENTY, 0.0 if drawn.number % 2 else 0.01)):
            iv = certify(drawn.graph, work, tol, methods=methods)
            wrong = np.flatnonzero(models.judge(drawn, iv))
            assert not len(wrong), (
                f"model {drawn.number} ({drawn.family}), work {work}, tol {tol}: entries "
                f"{wrong.tolist()}, {iv.lo[wrong]} to {iv.hi[wrong]}, not {drawn.digits[wrong]}"
            )


def test_the_oracle_notices_the_last_bit():
    drawn = models.draw(0)
    exact = np.array([float(p) for p in drawn.digits])
    iv = made_up(drawn.graph, np.nextafter(exact, 0), np.nextafter(exact, 1))
    assert not models.judge(drawn, iv).any()
    above = np.array([float(p) > p for p in drawn.digits])  # rounded up, or down
    iv = made_up(drawn.graph, exact, np.ones_like(exact))
    np.testing.assert_array_equal(models.judge(drawn, iv), above)
    iv = made_up(drawn.graph, np.zeros_like(exact), exact)
    np.testing.assert_array_equal(models.judge(drawn, iv), ~above)
    assert models.judge(drawn, made_up(drawn.graph, exact * np.nan, exact)).all()


@pytest.mark.drawn
@pytest.mark.parametrize("share", [0.0, 0.4, 0.8])
def test_ignored_factors_may_be_anything_in_their_range(share):
    for drawn in models.possible(range(draws(120))):
        kept = np.random.default_rng(drawn.number).random(drawn.graph.n_factors) < share
        iv = certify(drawn.graph, PLENTY, methods=["monotone"], kept=kept)  # the kept part first
        assert not models.judge(drawn, iv).any(), (drawn.number, drawn.family)


MODELS = {
    "grid": lambda: grid(12),
    "weak grid": lambda: grid(10, 3.0),
    "signs": lambda: models.draw(models.FAMILIES.index(models.thin)).graph,
    "tables": lambda: models.draw(models.FAMILIES.index(models.rope)).graph,
    "states": lambda: models.potts(16, 3, np.random.default_rng(1), 0.6),
}


@pytest.mark.drawn
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", [*ALONE, "all"])
def test_more_work_never_widens_and_the_same_gives_the_same_bits_on_any_number_of_cores(
    model, method
):
    graph, methods = MODELS[model](), None if method == "all" else [method]
    lo, hi = np.zeros(int(graph.n_states.sum())), np.ones(int(graph.n_states.sum()))
    budgets = [0, 1_000, 10_000, 60_000, 1_000_000]
    for work in budgets + [20_000_000] * thorough():
        iv = certify(graph, work, methods=methods)
        assert (iv.lo >= lo).all(), work
        assert (iv.hi <= hi).all(), work
        lo, hi = iv.lo, iv.hi
        means = [step.mean_width for step in iv.trace]
        assert means == sorted(means, reverse=True)
        assert [step.work for step in iv.trace] == sorted(step.work for step in iv.trace)
    for other in (certify(graph, work, methods=methods, workers=n) for n in (1, 2)):
        np.testing.assert_array_equal(lo, other.lo)
        np.testing.assert_array_equal(hi, other.hi)
        np.testing.assert_array_equal(iv.method, other.method)
        assert (iv.work, iv.stopped) == (other.work, other.stopped)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_what_other_states_leave_never_widens(n):
    """The sum of all less one's own fell by a last bit where another state's end was tighter."""
    rng = np.random.default_rng(n)
    loose = rng.dirichlet(np.ones(n), 20_000)
    tight = loose.copy()
    tight[:, 0] *= 1.0 + 1e-11 * rng.random(len(loose))
    before, after = sum_of_others(loose), sum_of_others(tight)
    plain = [x.sum(axis=1, keepdims=True) - x for x in (loose, tight)]
    np.testing.assert_allclose(after, plain[1], atol=1e-14)
    assert (after >= before).all()
    assert (plain[1][:, 0] < plain[0][:, 0]).any()


@pytest.mark.parametrize("step", [1, 2, 3])
def test_ctrl_c_returns_the_best_so_far(step):
    seen = []

    def watch(line):
        seen.append(line)
        if len(seen) == step:
            raise KeyboardInterrupt

    iv = minfer.intervals(grid(20), None, tol=0.0, watch=watch, workers=1)
    assert iv.stopped == "interrupted"
    assert len(iv.trace) == step
    assert iv.width.mean() == seen[-1].mean_width
    assert (iv.lo <= iv.hi).all()


def test_what_ended_the_search_is_told():
    assert certify(grid(), 1_000).stopped == "work"
    tree = FactorGraph.pairwise([0.5, -0.2, 0.1], [[0, 1], [1, 2]], [1.0, -0.5])
    assert certify(tree, PLENTY, tol=0.01).stopped == "tolerance"
    dense = FactorGraph.from_tables(
        [3, 3, 3], [[0, 1, 2]], np.where(np.arange(27).reshape(1, 3, 3, 3) % 2, 0.0, -np.inf)
    )
    assert certify(dense, None, methods=["walks"]).stopped == "exhausted"
    seen = []
    iv = certify(grid(), 100_000, watch=seen.append)
    assert seen == iv.trace
    assert {s.method for s in seen} <= {*METHODS}
    assert seen[-1].mean_width == iv.width.mean()
    assert seen[-1].max_width == iv.width.max()
    graph = grid(24)
    soon = minfer.intervals(graph, 0.02, tol=0.0, workers=1)
    longer = minfer.intervals(graph, 0.5, tol=0.0, workers=1)
    assert soon.stopped == "time"
    assert (longer.lo >= soon.lo).all()
    assert (longer.hi <= soon.hi).all()
    none = minfer.intervals(graph, 1e-9)
    assert none.stopped == "time"
    assert len(none.trace) >= 1


def test_named_or_undecided_variables_are_worked_on():
    graph = grid(30, 2.0)
    some = certify(graph, 1_000_000, variables=[435, "x436"])
    everyone = certify(graph, 1_000_000)
    assert some.width[[435, 436]].max() < 0.5 * everyone.width[[435, 436]].max()
    one = certify(graph, 1_000_000, variables=435)
    assert one.width[435] <= everyone.width[435]
    assert certify(graph, None, tol=0.2, variables=[435]).stopped == "tolerance"
    graph = grid(12, 3.0)
    iv = minfer.intervals(graph, None, tol=1e-6, work=30_000_000, undecided=True, workers=1)
    assert iv.decided().all()
    assert iv.stopped == "tolerance"
    full = minfer.intervals(graph, None, tol=1e-6, work=30_000_000, workers=1)
    assert full.work > iv.work
    np.testing.assert_array_equal(iv.states(), Exact()(graph).mpm())


def test_evidence_is_exact_and_an_unknown_factor_a_vacuum():
    graph = grid(6).with_evidence({3: 1, 10: 0})
    iv = certify(graph)
    np.testing.assert_array_equal(iv[3], [[0, 0], [1, 1]])
    np.testing.assert_array_equal(iv[10], [[1, 1], [0, 0]])
    assert iv.method[3] == iv.method[10] == "fixed"
    free = np.delete(np.arange(36), [3, 10])
    assert (iv.width[free] > 0).all()  # a computed one has some width

    class Odd:
        def messages(self, incoming, out):
            raise AssertionError("not asked")

        def score(self, assignments):
            return assignments.sum(axis=1) * 1.0

    graph = FactorGraph.pairwise(np.zeros(20), [], []).add_global(range(20), Odd())
    iv = certify(graph, 100_000)
    assert iv.vacuous.all()
    assert not iv.decided().any()


@pytest.mark.parametrize("graph", [FactorGraph.empty([]), FactorGraph.empty([1, 1])])
def test_nothing_to_do(graph):
    iv = minfer.intervals(graph)
    assert iv.stopped == "tolerance"
    assert len(iv) == graph.n_variables
    assert not iv.width.any()
    assert not iv.vacuous.any()
    assert iv.decided().all()
    assert list(iv) == [] or (iv[0] == 1).all()
    assert isinstance(repr(iv), str)
    assert isinstance(iv._repr_html_(), str)
    json.dumps(iv.to_dict())
    assert len(iv.midpoint().probs) == graph.n_variables
    assert not iv.refuted(Exact()(graph)).any()


WRONG = {
    "time_limit": [math.nan, -1, "soon"],
    "tol": [math.nan, -0.1],
    "work": [-1, 0.5, math.nan],
    "workers": [0],
    "undecided": ["yes"],
    "methods": [["magic"], "magic"],
    "variables": [[], [99], "nobody", [math.nan]],
    "kept": [[True], [math.nan] * 3],
}


def test_bad_arguments_are_typed_errors():
    graph = FactorGraph.pairwise([0.1, 0.2], [[0, 1]], [0.3])
    for name, values in WRONG.items():
        error = MinferError if name in ("variables", "kept") else SettingsError
        for value in values:
            refused(error, "", minfer.intervals, graph, **{name: value})
    refused(MinferError, "", minfer.intervals, "a model")


TWO = FactorGraph.empty([2, 3], ["a", "b"])
LO, HI = [0.1, 0.6, 0.2, 0.1, 0.3], [0.4, 0.9, 0.5, 0.2, 0.7]
INSIDE, OUTSIDE = [0.3, 0.7, 0.3, 0.15, 0.55], [0.5, 0.5, 0.05, 0.2, 0.75]


def test_intervals_are_read_like_marginals():
    iv = made_up(TWO, LO, HI)
    np.testing.assert_array_equal(iv["a"], [[0.1, 0.4], [0.6, 0.9]])
    np.testing.assert_array_equal(iv[1], iv["b"])
    np.testing.assert_allclose(iv.width, [0.3, 0.4])
    assert [name for name, _ in iv.items()] == ["a", "b"]
    assert len(list(iv)) == len(iv) == 2
    refused(ModelError, "", iv.__getitem__, "c")
    with pytest.raises(ValueError, match="read-only"):
        iv.lo[0] = 0
    assert iv.to_dict()["intervals"]["b"]["hi"] == HI[2:]
    np.testing.assert_array_equal(iv.decided(), [True, False])
    np.testing.assert_array_equal(iv.states(), [1, -1])
    tie = made_up(FactorGraph.empty([2]), [0.5, 0.5], [0.5, 0.5])
    assert not tie.decided().any()


def test_refuted_means_off_by_more_than_that():
    iv = made_up(TWO, LO, HI)
    assert not iv.refuted(estimate(TWO, INSIDE), by=0).any()
    m = estimate(TWO, OUTSIDE)
    np.testing.assert_array_equal(iv.refuted(m), [True, True])
    np.testing.assert_array_equal(iv.refuted(m, by=0.12), [False, True])
    np.testing.assert_array_equal(iv.refuted(m, by=0.16), [False, False])
    least, most = iv.error_bounds(m)
    np.testing.assert_allclose(least, [0.1, 0.15])
    np.testing.assert_allclose(most, [0.4, 0.45])
    for by in (math.nan, -1, "much"):
        refused(SettingsError, "", iv.refuted, m, by=by)
    refused(ModelError, "", iv.refuted, Exact()(grid(3)))
    refused(ModelError, "", iv.refuted, np.array(OUTSIDE))


def test_clips_and_midpoints_lie_inside_and_add_up():
    iv = made_up(TWO, LO, HI)
    np.testing.assert_allclose(iv.clip(estimate(TWO, INSIDE)).probs, INSIDE, atol=1e-15)
    p = iv.clip(estimate(TWO, OUTSIDE)).probs
    assert (p >= np.array(LO) - 1e-15).all()
    assert (p <= np.array(HI) + 1e-15).all()
    np.testing.assert_allclose([p[:2].sum(), p[2:].sum()], 1)
    np.testing.assert_allclose(p[:2], [0.4, 0.6])
    p = iv.midpoint().probs
    np.testing.assert_allclose(p[:2], [0.25, 0.75])
    np.testing.assert_allclose(p[2:].sum(), 1)
    assert (p >= np.array(LO) - 1e-15).all()
    assert (p <= np.array(HI) + 1e-15).all()
    vacuous = made_up(TWO, np.zeros(5), np.ones(5)).midpoint()
    np.testing.assert_allclose(vacuous.probs, [1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])


IMPORTED = """
import sys
import minfer
from minfer.certified import search
from minfer.examples import sprinkler

before = set()

class Meter(search.Effort):
    def __init__(self, *limits):
        before.update(sys.modules)
        super().__init__(*limits)

search.Effort = Meter
minfer.intervals(sprinkler(), tol=0.0)
print([m for m in {*sys.modules} - before if m.split(".")[0] in ("minfer", "scipy")])
"""


@pytest.mark.slow
def test_what_is_imported_is_not_on_the_clock() -> None:
    words = [sys.executable, "-c", IMPORTED]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "[]\n"


def logs_of(graph: FactorGraph) -> np.ndarray:
    """Logarithms of the true marginals, however small, (sum of states,)."""
    score, x = naive.log_scores(graph), naive.assignments(graph)
    each = [
        float(naive.logsumexp(score[x[:, v] == s])) if (x[:, v] == s).any() else -np.inf
        for v, size in enumerate(graph.n_states)
        for s in range(size)
    ]
    return np.array(each) - float(naive.logsumexp(score))


def extreme(rng: np.random.Generator) -> FactorGraph:
    """Numbers of hundreds and thousands, some zeros."""
    n = int(rng.integers(2, 7))
    size = float(rng.choice([100.0, 400.0, 1000.0, 10000.0]))
    graph = FactorGraph.empty(rng.integers(1, 4, size=n) if rng.random() < 0.6 else [2] * n)
    graph = graph.tilt(size * float(rng.choice([0.0, 1.0])) * rng.normal(size=len(graph.field)))
    for _ in range(int(rng.integers(1, 2 * n))):
        scope = rng.choice(n, size=min(n, int(rng.choice([2, 2, 3]))), replace=False)
        shape = graph.n_states[scope]
        if len(scope) == 2 and shape[0] == shape[1] and rng.random() < 0.3:
            graph = graph.add_potts([scope], [abs(size * rng.normal())])
            continue
        table = size * rng.normal(size=shape)
        table[rng.random(shape) < float(rng.choice([0.0, 0.2]))] = -np.inf
        graph = graph.add_tables([scope], table[None])
    return graph


@pytest.mark.drawn
@pytest.mark.parametrize("method", [*ALONE, "all"])
def test_what_is_possible_has_an_upper_end_above_zero(method):
    """[0, 0] by boxes for e^-1400: an exponential rounded to 0 meant impossible."""
    never = -np.inf
    chain = FactorGraph.empty([2, 2, 2]).add_tables(
        [[0, 1], [1, 2]], [[[0, 0], [never, 0]], [[0, 0.3], [-1400, -1400.2]]]
    )
    rng = np.random.default_rng(0)
    for graph in [chain, *(extreme(rng) for _ in range(draws(100)))]:
        if naive.log_z(graph) == never:
            continue
        truth = logs_of(graph)
        for work in (1, 1000, 100_000):
            found = certify(graph, work, methods=None if method == "all" else [method])
            assert (found.hi[truth > never] > 0.0).all()
            with np.errstate(divide="ignore"):
                low, high = np.log(found.lo), np.log(found.hi)
            slip = 1e-9 * (1 + np.abs(np.where(truth > never, truth, 0.0)))
            assert (low <= truth + slip).all()
            assert (high >= truth - slip).all()


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
VACUOUS = {Boxes: 0.5, Walks: 0.5, ExactCliques: 0.0, Monotone: 0.8}


@pytest.mark.drawn
@pytest.mark.parametrize("method", CLASSES)
def test_the_truth_is_inside_at_every_budget(method):
    n_states = n_vacuous = 0
    for drawn in models.possible(range(1000, 1000 + draws(200)), most=3000):
        found = alone(method(), drawn.graph)
        for bounds in found:
            assert not violations(bounds, drawn.digits), (drawn.number, drawn.family)
        wide = found[-1].hi - found[-1].lo
        n_states, n_vacuous = n_states + len(wide), n_vacuous + int((wide >= 1).sum())
        if method is ExactCliques:
            zero = np.array([x == 0 for x in drawn.digits], dtype=bool)
            assert not found[-1].hi[zero].any(), "zeros are structural"
            assert wide.max(initial=0.0) < 1e-12 * max(drawn.magnitude, 1.0)
        elif method is Walks and drawn.family in PAIRS and drawn.graph.n_variables < 7:
            assert wide.max(initial=0.0) < 1e-9, "as plain numbers hold all odds"
    assert n_vacuous <= VACUOUS[method] * n_states, n_vacuous / n_states


@pytest.mark.drawn
@pytest.mark.parametrize("method", [Boxes, Walks, ExactCliques])
def test_a_tree_is_known_to_the_last_digits(method):
    rng = np.random.default_rng(5)
    for _ in range(draws(50)):
        sizes = rng.integers(2, 5, 7) if method in (Boxes, ExactCliques) else [2] * 7
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
    for method in CLASSES:
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
        (ExactCliques, FactorGraph.pairwise(np.zeros(4), [[0, 1], [2, 3]], [1.0, 1.0])),
    ],
    ids=["boxes", "walks", "exact"],
)
def test_what_was_followed_to_its_end_is_not_tried_again(method, graph):
    local, bounds, one = LocalBounds.of(condition(graph)), Bounds.vacuous(graph), method()
    spent = []
    for budget in (1e7, 1e8):
        effort = Effort(None, None)
        one.refine(Refining(local, bounds, np.ones(graph.n_variables, dtype=bool), budget, effort))
        spent.append(effort.work)
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
    boxes, effort = Boxes(), Effort(20.0, None, clock=lambda: float(next(ticks)))
    assert boxes.refine(Refining(local, bounds, np.ones(6, dtype=bool), 1e4, effort))
    assert effort.stopped == "time"
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


@pytest.mark.parametrize("method", [Walks, ExactCliques])
def test_only_the_wanted_are_touched_and_work_is_counted(method):
    graph = FactorGraph.pairwise(np.zeros(4), [[0, 1], [2, 3]], [1.0, 1.0])
    if method is Walks:
        graph = sparse(60, np.random.default_rng(3))
    local, bounds = LocalBounds.of(condition(graph)), Bounds.vacuous(graph)
    wanted = np.zeros(graph.n_variables, dtype=bool)
    wanted[[0, 1]] = True
    one, effort = method(), Effort(None, None)
    if method is ExactCliques:  # waits until its budget is enough
        one.refine(Refining(local, bounds, wanted, 2.0, effort))
        assert bounds.width.tolist() == [1.0] * 4
    one.refine(Refining(local, bounds, wanted, 1e4, effort))
    assert 0 < effort.work <= 2 * 1.1e4
    assert (
        bounds.width[~wanted] == 1
    ).all() or method is ExactCliques  # which may do small parts too
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
            bounds = alone(ExactCliques(), graph)[-1]
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
        bounds = alone(ExactCliques(), graph)[-1]
        other = Exact()(graph).probs
        assert bounds.width.max() < 1e-8
        assert (bounds.lo - 1e-9 <= other).all()
        assert (other <= bounds.hi + 1e-9).all()


def test_components_wait_for_their_budget():
    rng = np.random.default_rng(0)
    dense = [[i, j] for i in range(10) for j in range(i)]
    graph = FactorGraph.pairwise(np.zeros(14), [*dense, [10, 11], [12, 13]],
                                 rng.normal(size=len(dense) + 2))  # fmt: skip
    local, whole = LocalBounds.of(condition(graph)), ExactCliques()
    bounds, effort = Bounds.vacuous(graph), Effort(None, None)
    whole.refine(Refining(local, bounds, np.ones(14, dtype=bool), 64.0, effort))
    assert bounds.width[10:].max() < 1e-10
    assert bounds.width[:10].min() == 1.0
    before = effort.work
    whole.refine(Refining(local, bounds, bounds.width > 1e-3, 256.0, effort))
    assert bounds.width.max() < 1e-10
    spent = effort.work
    assert spent > before
    whole.refine(Refining(local, bounds, np.ones(14, dtype=bool), 1024.0, effort))
    assert effort.work == spent  # not again


def test_tens_of_thousands_of_small_components_and_long_chains():
    rng = np.random.default_rng(0)
    n = 30_000
    edges = np.arange(2 * n).reshape(n, 2)
    theta, w = rng.normal(size=2 * n), rng.normal(size=n)
    bounds = alone(ExactCliques(), FactorGraph.pairwise(theta, edges, w))[-1]
    assert bounds.width.max() < 1e-12
    a, b = theta[0::2], theta[1::2]
    p = (np.exp(a) + np.exp(a + b + w)) / (1 + np.exp(a) + np.exp(b) + np.exp(a + b + w))
    assert np.abs(bounds.lo[1::4] - p).max() < 1e-12
    edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    chain = FactorGraph.pairwise(theta[:n], edges, 3 * w[1:])
    assert alone(ExactCliques(), chain)[-1].width.max() < 1e-8


@pytest.mark.drawn
@pytest.mark.parametrize(
    "path", few(lists.UAI_MODELS, 12), ids=lambda p: p.name.removesuffix(".uai.gz")
)
def test_published_answers_lie_inside(path):
    graph, p = lists.published(path)
    bounds = alone(ExactCliques(), graph)[-1]
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
    assert not violations(alone(ExactCliques(), graph)[-1], p)
    assert not violations(minfer.intervals(graph, None, tol=0.0, work=10**6), p)


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
