"""Pictures hold what they say they hold, without a screen; notebooks' HTML is escaped."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import minfer
from minfer import (
    BeliefPropagation,
    FactorGraph,
    MinDivergence,
    MinJoint,
    ModelError,
    SettingsError,
    infer,
    plots,
    relax,
    tradeoff,
)
from minfer.reduction.recipes import Iterated
from oracle import lists
from refused import refused

GRID = FactorGraph.grid(2 * np.random.default_rng(0).normal(size=(12, 12)), 1.0)


@pytest.fixture(autouse=True)
def headless():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    plt = plots.pyplot(headless=True)
    yield
    plt.close("all")


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_result():
    answer = infer(GRID, MinDivergence(100))
    left, right = answer.plot()
    assert {"100 kept", "164 ignored"} < set(labels(left))
    assert sum(p.get_height() for bars in left.containers for p in bars) == 264
    threshold = np.sort(answer.scores[~answer.seed])[163]
    assert left.lines[0].get_xdata()[0] == threshold
    assert labels(right) == ["seed: converged", "reduced model: converged"]
    np.testing.assert_array_equal(
        right.lines[1].get_ydata(), np.maximum(answer.marginals.residuals, plots.LEAST_DRAWN)
    )


def test_relaxed_result_has_a_trace():
    answer = relax(GRID, MinJoint(0.01), recipe=Iterated(max_bound=0.5))
    trace = answer.plot()[2]
    assert trace.get_title() == answer.stopped
    assert labels(trace) == ["divergence (estimate)", "change of the marginals", "bound"]
    np.testing.assert_array_equal(
        trace.lines[0].get_xdata(), [step.seconds for step in answer.trace]
    )
    refused(SettingsError, "relax", plots.trace, infer(GRID, MinJoint(0.01)))


def test_results_with_little_to_draw():
    """Nothing outside the seed, nothing ignored, only what must be kept; a solver by itself."""
    plots.result(infer(FactorGraph.pairwise([0.5, 1.0], [], []), MinDivergence(1)))
    plots.result(infer(GRID, MinDivergence(10**6)))
    forced = infer(lists.graphs()["zeros"], MinDivergence(0))
    assert f"{forced.n_forced} must be kept" in labels(plots.scores(forced))
    (line,) = plots.convergence(BeliefPropagation(max_iters=3, tol=1e-12)(GRID)).lines
    assert len(line.get_xdata()) == 3
    assert labels(line.axes) == ["solver: not converged"]


def test_intervals_and_how_they_narrowed():
    found = minfer.intervals(GRID, work=2_000_000, time_limit=None)
    answer = BeliefPropagation()(GRID)
    ax = plots.intervals(found, answer)
    assert len(ax.patches) == len(ax.lines) == plots.MOST_BARS
    widest = int(np.argmax(found.width))
    low, high = found[widest][1]
    bar = ax.patches[0]
    assert (bar.get_x(), bar.get_width()) == (low, pytest.approx(max(high - low, 1e-3)))
    assert ax.lines[0].get_xdata()[0] == answer[widest][1]
    refuted = int(found.refuted(answer).sum())
    assert f"{refuted} estimates refuted" in ax.get_title()
    assert len(plots.intervals(found, variables=["x3", 5]).patches) == 2
    line = plots.narrowing(found).lines[0]
    mean = np.maximum([step.mean_width for step in found.trace], plots.LEAST_DRAWN)
    np.testing.assert_array_equal(line.get_ydata(), mean)
    refused(SettingsError, "Intervals", plots.intervals, answer)
    refused(SettingsError, "Marginals", plots.intervals, found, found)
    plots.intervals(minfer.intervals(FactorGraph.empty([2, 3, 1])))


def test_tradeoff():
    found = tradeoff(FactorGraph.grid(np.ones((4, 4)), 0.5), values=[0.1, 1.0], repeats=1)
    for x in ("seconds", "kept_share"):
        ax = plots.tradeoff(found, x)
        assert set(labels(ax)) == {p.method for p in found.points}
        drawn = sum(len(line.get_xdata()) for line in ax.lines)
        assert drawn == len(found.points)
    refused(SettingsError, "kept_share", plots.tradeoff, found, "size")


def test_calibration():
    rng = np.random.default_rng(3)
    p = rng.random(20_000)
    fair = plots.reliability(p, rng.random(len(p)) < p)
    assert len(fair.cases) == 10
    assert fair.cases.sum() == len(p)
    assert fair.error < 0.02
    np.testing.assert_allclose(fair.confidence, np.arange(0.05, 1, 0.1), atol=0.01)
    sure = plots.reliability(np.where(p > 0.5, 1.0, 0.0), rng.random(len(p)) < p)
    assert sure.error == pytest.approx(0.25, abs=0.01)  # says 1 where it is 3/4 on average
    assert len(sure.cases) == 2
    ax = plots.calibration(p, rng.random(len(p)) < p, bins=5)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0, 1])
    assert len(ax.lines[1].get_xdata()) == 5
    assert any("20,000 cases" in text for text in labels(ax))
    for bad in (([0.5], [1, 0]), ([], []), ([1.5], [1]), ([np.nan], [1]), ([0.5], [2])):
        refused(ModelError, "", plots.reliability, *bad)
    refused(SettingsError, "", plots.reliability, [0.5], [1], bins=0)


class Tags(HTMLParser):
    """The tags in use, every one closed, and the text of the cells."""

    def __init__(self, html):
        super().__init__()
        self.open, self.seen, self.cells = [], set(), []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def test_notebooks_show_escaped_tables():
    nasty = "<script>alert('x')</script> & co"
    graph = FactorGraph.pairwise([0.5, 3.0], [[0, 1]], 1.0, names=[nasty, "b"])
    answer = infer(graph, MinDivergence(0))
    allowed = {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "p"}
    shown = [Tags(thing._repr_html_()) for thing in (graph, answer.marginals, answer)]
    assert all(tags.seen <= allowed for tags in shown)
    of_graph, of_marginals, of_result = (tags.cells for tags in shown)
    assert of_graph == ["factors", "count", "unary", "2", "pairwise", "1"]
    assert nasty in of_marginals
    assert dict(zip(of_result[::2], of_result[1::2]))["ignored"] == "1"
    many = Tags(BeliefPropagation()(GRID)._repr_html_())
    assert len(many.cells) == 3 + 3 * 20
    assert "and 124 more" in BeliefPropagation()(GRID)._repr_html_()
