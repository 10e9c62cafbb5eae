"""Certified intervals: never wrong, never wider with more work, the same bits for the same work."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import minfer
from draws import draws, thorough
from minfer import Exact, FactorGraph, Intervals, Marginals, MinferError, ModelError, SettingsError
from minfer.certified.result import METHODS
from minfer.certified.search import all_methods
from minfer.examples import picture
from oracle import models
from oracle import truth as naive
from refused import refused

ALONE = [*all_methods()]
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


def batches(n: int, size: int) -> Iterator[range]:
    return (range(first, min(first + size, n)) for first in range(0, n, size))


@pytest.mark.drawn
@pytest.mark.parametrize("method", [*ALONE, "all"])
@pytest.mark.parametrize("numbers", [*batches(240, 60)], ids=lambda r: f"{r.start}-{r.stop - 1}")
def test_the_truth_lies_inside(method, numbers):
    methods = None if method == "all" else [method]
    once = len(models.FAMILIES) * numbers.start // 240  # of each family one every day
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


@pytest.mark.parametrize("number", range(len(models.FAMILIES)))
def test_the_two_ways_of_drawing_agree(number):
    """The oracle's tables are those of the graph, by another way to sum."""
    drawn = models.draw(number)
    if drawn.impossible:
        pytest.skip("no assignment is possible")
    if drawn.order is None:
        drawn.order = list(range(drawn.graph.n_variables))  # summed out, not enumerated
    np.testing.assert_allclose(
        drawn._marginals(naive.in_long_doubles).astype(float), Exact()(drawn.graph).probs, atol=1e-9
    )


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


def frustrated(side: int = 16) -> FactorGraph:
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], 2 * side * (side - 1))
    return FactorGraph.grid(rng.normal(size=(side, side)), signs)


@pytest.mark.parametrize(
    ("model", "work", "mean", "largest"),
    [
        (lambda: grid(64, 5.0), 400_000_000, 0.001, 0.01),
        (lambda: grid(32, 2.0), 400_000_000, 0.02, 0.2),
        (frustrated, 200_000_000, 1e-8, 1e-8),
        (lambda: models.potts(16, 3, np.random.default_rng(1), 0.6), 50_000_000, 0.06, 0.2),
    ],
    ids=["alpha 5", "alpha 2", "frustrated", "potts"],
)
def test_so_much_work_gives_intervals_so_narrow(model, work, mean, largest):
    """What the page "How far off" says, in work: the same on every machine."""
    iv = certify(model(), work, tol=0.01)
    assert iv.width.mean() < mean
    assert iv.width.max() < largest


def test_every_pixel_of_the_picture_is_decided():
    iv = certify(picture().graph, 1_000_000_000, undecided=True)
    assert iv.decided().all()
    assert iv.stopped == "tolerance"


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
    assert certify(dense, None, methods=["walks"] if "walks" in ALONE else []).stopped == (
        "exhausted"
    )
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
