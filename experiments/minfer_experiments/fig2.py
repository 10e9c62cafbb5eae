"""Figure 2 of the paper (section 5.2): how the reduced graphs and the time they take grow.

    (a) added factors against variables      (b) time against variables, with the fitted growth
    (c) time against accuracy while epsilon, m and gamma vary

Variables are candidate arcs, the square of the number of words. Growth is the slope of a line
fitted to log time against log variables, over sentences of 10 to 100 words: full belief
propagation has a cubic number of pairs, so about 1.5 is to be expected of it. Long sentences are
rare, so those of the training file are left out of training and measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.parsing.inference import Inference
from minfer.pictures import write_figure
from minfer.plots import pyplot
from minfer_experiments.pages import Claim, Made, Note, claims_table, record, table
from minfer_experiments.parsing import (
    FULL,
    LEAST,
    SAME_UAS,
    Corpus,
    Experiment,
    Family,
    Method,
    choose,
    load,
    objectives,
    same_accuracy,
    times,
    treebanks,
)

if TYPE_CHECKING:
    from minfer.parsing.conllu import Sentence

WORDS = 10, 100  # of the sentences of (a) and (b)
LONG = 60  # words; longer sentences are not learnt from
PER_LENGTH = 4  # sentences measured of each length, one of each beyond LONG
LAZY = "lazy, arc-pruned tree"
MOST_GROWTH = 1.15  # of the lazy parser, in the number of variables


class Growth(NamedTuple):
    """One method on sentences of one length: means (a, b)."""

    method: str
    words: int
    variables: int
    factors: float  # pairs in the graph
    ms: float  # inference, selection included
    ms_end_to_end: float
    sentences: int


class Tradeoff(NamedTuple):
    """One method at one parameter, over all test sentences (c)."""

    method: str
    parameter: float
    kept: float  # percent
    ms: float
    uas: float


@dataclass(frozen=True)
class Result:
    """All of the figure."""

    treebank: str
    growth: list[Growth]
    tradeoff: list[Tradeoff]

    def of(self, method: str) -> list[Growth]:
        return [g for g in self.growth if g.method == method]

    def slope(self, method: str, field: str = "ms") -> float:
        """Growth of a time with the variables: the exponent of a fitted power."""
        points = self.of(method)
        values = np.array([getattr(p, field) for p in points])
        if len(points) < 2 or not (values > 0).all():
            return nan
        return float(np.polyfit(np.log([p.variables for p in points]), np.log(values), 1)[0])


@dataclass(eq=False)
class Figure(Experiment):
    """The measurements on one treebank."""

    def __post_init__(self) -> None:
        train = self.split.train
        self.split = self.split._replace(train=[s for s in train if len(s) <= LONG])
        self.long = [s for s in train if len(s) > LONG]

    def measure(self, say: Callable[[str], object] = lambda text: None) -> Result:
        """Train or load, choose on dev, measure."""
        say(f"{self.treebank.name}: training")
        parser = self.parser(name=f"{self.treebank.code}-fig2")
        say("choosing parameters on dev")
        dev = Corpus(parser, self.split.dev)
        aim = same_accuracy(dev)
        methods = [FULL, *(choose(family, dev, aim) for family in objectives())]
        methods.append(Method(LAZY, Inference()))
        del dev
        say("measuring growth")
        some = Corpus(parser, _by_length([*self.split.test, *self.long]))
        alone, whole = (times(some, methods, self.passes, end_to_end=e) for e in (False, True))
        growth = [g for row in zip(methods, alone, whole) for g in _growth(some, *row)]
        del some
        say("measuring time and accuracy")
        test = Corpus(parser, self.split.test)
        stopped = [Method("full BP", Inference.full(k), float(k)) for k in (1, 2, 3, 10)]
        lazy = Family(LAZY, lambda p: Inference(least=p, arc_least=p), LEAST)
        tried = [m for family in [*objectives(), lazy] for m in family.methods()]
        every = [*stopped, *tried]
        tradeoff = [_tradeoff(test, *row) for row in zip(every, times(test, every, self.passes))]
        return Result(self.treebank.name, growth, tradeoff)


def _growth(
    corpus: Corpus, method: Method, alone: NDArray[np.float64], whole: NDArray[np.float64]
) -> list[Growth]:
    """Means over the sentences of each length; seconds (S,) of inference and end to end."""
    kept = corpus.run(method.inference).kept
    out = []
    for n in np.unique(corpus.words).tolist():
        at = corpus.words == n
        means = float(kept[at].mean()), 1e3 * alone[at].mean(), 1e3 * whole[at].mean()
        out.append(Growth(method.name, n, n * n, *means, int(at.sum())))
    return out


def _tradeoff(corpus: Corpus, method: Method, seconds: NDArray[np.float64]) -> Tradeoff:
    outcome = corpus.run(method.inference)
    kept = 100 * outcome.kept.sum() / max(int(corpus.possible.sum()), 1)
    uas = outcome.attachments.uas
    return Tradeoff(method.name, method.parameter, float(kept), 1e3 * float(seconds.mean()), uas)


def _by_length(sentences: Sequence[Sentence]) -> list[Sentence]:
    """The first few sentences of each length."""
    seen: dict[int, int] = {}
    out = []
    for s in sentences:
        n = len(s)
        if WORDS[0] <= n <= WORDS[1] and seen.get(n, 0) < (PER_LENGTH if n <= LONG else 1):
            seen[n] = seen.get(n, 0) + 1
            out.append(s)
    return out


# ---------------------------------------------------------------------- what the paper says


def claims(result: Result) -> list[Claim]:
    """The statements of sections 5.2.2 and 5.2.3, each with its numbers."""
    out = []

    def say(text: str, holds: bool, evidence: str) -> None:
        out.append(Claim(text, bool(holds), evidence))

    sizes = np.array([g.factors for g in result.of("MinDivergence")])
    say(
        "(a) the graph size stays constant for MinDivergence",
        np.ptp(sizes) <= 0.01 * sizes.max(),
        f"{sizes.min():.0f} to {sizes.max():.0f} pairs",
    )
    for method in ("MinSize", "MinJoint"):
        short, long = _ends(result.of(method))
        say(
            f"(a) {method}'s factor count adapts to the problem",
            long > 2 * short,
            f"{short:.0f} pairs in the shortest fifth of lengths, {long:.0f} in the longest",
        )
    full = result.slope("full BP")
    for method in ("MinJoint", "MinSize", "MinDivergence", LAZY):
        mine = result.slope(method)
        say(
            f"(b) {method} scales better than full BP, inference alone",
            mine < full,
            f"time grows as variables^{mine:.2f}, full BP's ^{full:.2f}",
        )
    scanned = {m: result.slope(m) for m in ("MinJoint", "MinSize", "MinDivergence")}
    say(
        f"(b) linear in the variables (at most ^{MOST_GROWTH}) with a scan of all pairs",
        max(scanned.values()) <= MOST_GROWTH,
        ", ".join(f"{m} ^{x:.2f}" for m, x in scanned.items())
        + ": the scan itself is cubic in the words, and here it is no longer hidden",
    )
    for field, name in (("ms", "inference"), ("ms_end_to_end", "end to end")):
        mine = result.slope(LAZY, field)
        say(
            f"(b) linear in the variables (at most ^{MOST_GROWTH}) with lazy scoring, {name}",
            mine <= MOST_GROWTH,
            f"^{mine:.2f}; full BP ^{result.slope('full BP', field):.2f}",
        )
    best = next(t for t in result.tradeoff if t.method == "full BP" and t.parameter == 10)
    fastest = {
        method: min(
            (t.ms for t in result.tradeoff
             if t.method == method and t.uas >= best.uas - SAME_UAS),
            default=np.inf,
        )
        for method in ("MinJoint", "MinSize", "MinDivergence")
    }  # fmt: skip
    say(
        "(c) MinJoint reaches the accuracy of full BP (within 0.1) fastest",
        fastest["MinJoint"] < min(fastest["MinSize"], fastest["MinDivergence"]),
        ", ".join(f"{m} {t:.3f} ms" for m, t in fastest.items()) + f"; full BP {best.ms:.3f}",
    )
    return out


def _ends(points: Sequence[Growth]) -> tuple[float, float]:
    """Mean number of pairs in the first and the last fifth of the lengths."""
    sizes: NDArray[np.float64] = np.array([g.factors for g in points])
    fifth = max(len(sizes) // 5, 1)
    return float(sizes[:fifth].mean()), float(sizes[-fifth:].mean())


# ---------------------------------------------------------------------- the page


def page(result: Result) -> str:
    """The figure as a page of Markdown."""
    lines = ["# Figure 2, measured", "", "![](fig2.png)", "", *_intro(result), ""]
    lines.append(claims_table(claims(result)))
    methods = list(dict.fromkeys(g.method for g in result.growth))
    lines += ["", "## (a, b) against the number of words", ""]
    lines += ["Pairs in the graph; ms of inference / end to end, means over lengths.", ""]
    body = []
    for low in range(WORDS[0], WORDS[1], 10):
        cells = [_cell([g for g in result.of(m) if low <= g.words < low + 10]) for m in methods]
        if any(cells):
            body.append([f"{low}-{low + 9}", *cells])
    for field, name in (("ms", "inference"), ("ms_end_to_end", "end to end")):
        body.append([f"growth, {name}", *(f"^{result.slope(m, field):.2f}" for m in methods)])
    lines += [table(["words", *methods], body), "", "## (c) time and accuracy", ""]
    body = [
        [t.method, f"{t.parameter:g}", f"{t.kept:.2f}", f"{t.ms:.3f}", f"{t.uas:.2f}"]
        for t in result.tradeoff
    ]
    lines.append(table(["method", "parameter", "F", "T", "A"], body))
    return "\n".join(lines) + "\n"


def _cell(points: Sequence[Growth]) -> str:
    if not points:
        return ""
    factors = np.mean([g.factors for g in points])
    ms = np.mean([g.ms for g in points]), np.mean([g.ms_end_to_end for g in points])
    return f"{factors:,.0f}; {ms[0]:.3f} / {ms[1]:.3f}"


def _intro(result: Result) -> list[str]:
    return [
        f"Made by `minfer paper fig2 --data DIR` on {result.treebank}; the numbers are in",
        "`fig2.csv` too. (a) and (b): up to four test sentences of each length from 10 to 100",
        f"words; those of more than {LONG} are from test, or from training, which omitted them.",
        "This parser is not Table 1's, which also learns from the long sentences. Variables",
        "are candidate arcs. Parameters of MinDivergence, MinSize and MinJoint are chosen on dev",
        "as in Table 1; *lazy* is the parser's default: pairs and arcs above "
        f"{Inference().least:g} under",
        "the seed. Times are milliseconds of CPU time, one core, the best of several passes.",
        "(c): all test sentences; the parameter of full BP is its maximum number of iterations.",
    ]


def records(result: Result) -> list[dict[str, str]]:
    """Both lists as strings, ready for one CSV file."""
    fields = ["panel", *Growth._fields, *(f for f in Tradeoff._fields if f not in Growth._fields)]
    out = []
    for panel, rows in (("a, b", result.growth), ("c", result.tradeoff)):
        for row in rows:
            known = record(row)
            out.append({field: known.get(field, "") for field in fields} | {"panel": panel})
    return out


# ---------------------------------------------------------------------- the picture

DRAWN = {  # method -> colour of Figure 2
    "full BP": "black",
    "MinDivergence": "tab:green",
    "MinSize": "tab:blue",
    "MinJoint": "tab:red",
    "lazy, arc-pruned tree": "tab:orange",
}


def draw(result: Result, path: str) -> None:
    """Figure 2 of the paper, with full BP and the lazy parser beside its methods."""
    plt = pyplot("the figure needs", headless=True)
    figure, (a, b, c) = plt.subplots(1, 3, figsize=(14, 4.4), dpi=110)
    for method, colour in DRAWN.items():
        points = result.of(method)
        variables = [p.variables for p in points]
        if method != "full BP":
            a.plot(variables, [p.factors for p in points], ".", color=colour, label=method)
        label = f"{method}: ^{result.slope(method):.2f}"
        b.plot(variables, [p.ms for p in points], ".", color=colour, label=label)
        tried = [t for t in result.tradeoff if t.method == method]
        c.plot(
            [t.ms for t in tried], [t.uas for t in tried], "o-", color=colour, label=method,
            markersize=3,
        )  # fmt: skip
    a.set(title="(a) added factors", xlabel="variables", ylabel="pairs in the graph")
    b.set(title="(b) time and its growth", xlabel="variables", ylabel="ms a sentence")
    b.set(xscale="log", yscale="log")
    c.set(title="(c) time and accuracy", xlabel="ms a sentence", ylabel="UAS")
    c.set_xlim(left=0)
    best = max(t.uas for t in result.tradeoff)
    c.set_ylim(best - 1.5, best + 0.1)
    for axis in (a, b, c):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, frameon=False)
    figure.tight_layout()
    write_figure(path, figure)
    plt.close(figure)


def run(quick: bool, data: str | None, models: Path, note: Note) -> Made:
    """Figure 2, of the first treebank."""
    treebank = treebanks(data)[0]
    pyplot("the figure needs", headless=True)
    split = load(str(data), treebank, quick)
    result = Figure(treebank, split, models, passes=1 if quick else 3).measure(note)
    done = records(result), page(result), claims(result)
    return Made(*done, "5.2", partial(draw, result))
