"""Certified intervals: how narrow they are and how soon, and what they say of answers.

    python benchmarks/certified.py --widths [NAME ...]  # width against time, together and alone
    python benchmarks/certified.py --uai [DIR]          # the UAI models against their exact answers
    python benchmarks/certified.py --judge              # BP, TRW, mean field, Gibbs on large models

Several may be given at once. ``--out FILE`` keeps what was found as JSON (parts that are there
stay), ``--page docs/reference/how-far-off.md`` writes the tables of that file into the page.
One pinned core, one thread; seconds are CPU seconds, compiling excluded; every seed is fixed.
``--uai`` exits with 1 if an interval does not hold the truth.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import minfer
from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    Gibbs,
    Intervals,
    Marginals,
    MeanField,
    MinDivergence,
    MinferError,
    TreeReweighted,
    infer,
)
from minfer.certified import bounds as _bounds
from minfer.certified.result import METHODS
from minfer.certified.search import Search, all_methods
from minfer.engine.conditioning import condition
from minfer.examples import picture
from minfer.graph import grid_edges
from minfer_experiments import measure
from minfer_experiments.pages import table, write_section
from minfer_experiments.results import Results
from oracle import models
from places import INSTANCES, UAI, UaiModel, uai_models

TOGETHER = "all together"
#: What the reference answers of the UAI models may be off: they have 12 digits.
DIGITS = 1e-11
#: Width beyond which an interval says next to nothing.
SAYS_NOTHING = 0.99
#: Seconds at which widths are read off the trace.
MARKS = (0.1, 0.3, 1.0, 3.0)


def cpu_clock() -> None:
    """Time limits and traces in CPU seconds of this process, compiling excluded."""
    from minfer.kernels.compiling.jit import compiling

    _bounds.wall_clock = lambda: time.process_time() - compiling()


def own_methods() -> list[str]:
    """The methods that work locally: all but exact inference of the whole."""
    return [name for name in all_methods() if name != "exact"]


# ------------------------------------------------------------------ problems


@dataclass
class Bar:
    """What must be reached in so many seconds."""

    seconds: float
    words: str
    met: Callable[[Intervals], bool]


@dataclass
class Problem:
    name: str
    words: str
    make: Callable[[], FactorGraph]
    bars: list[Bar] = field(default_factory=list)
    kept: Callable[[FactorGraph], np.ndarray] | None = None
    alone: bool = True  # whether each method is tried alone
    undecided: bool = False
    tol: float = 0.01


def share(iv: Intervals, below: float) -> float:
    return float((iv.width < below).mean())


def _grid(side: int, alpha: float, coupling: float = 1.0) -> Callable[[], FactorGraph]:
    def make() -> FactorGraph:
        fields = np.random.default_rng(0).normal(size=(side, side))
        return FactorGraph.grid(alpha * fields, coupling)

    return make


def _sparse(kind: str = "equal") -> FactorGraph:
    """A random graph in which everyone has three partners; weights 1, or N(0, 1) for "signs"."""
    rng = np.random.default_rng(0)
    n = 200
    while True:
        ends = rng.permutation(np.repeat(np.arange(n), 3)).reshape(-1, 2)
        ends.sort(axis=1)
        if (ends[:, 0] != ends[:, 1]).all() and len(np.unique(ends, axis=0)) == len(ends):
            break
    fields = rng.normal(size=n)
    if kind == "signs":
        return FactorGraph.pairwise(fields, ends, rng.normal(size=len(ends)))
    return FactorGraph.pairwise(fields, ends, 1.0, feature=kind)


def _frustrated(coupling: float) -> Callable[[], FactorGraph]:
    def make() -> FactorGraph:
        rng = np.random.default_rng(0)
        fields = rng.normal(size=(16, 16))
        signs = rng.choice([-1.0, 1.0], 2 * 16 * 15)
        return FactorGraph.grid(fields, coupling * signs)

    return make


def _potts() -> FactorGraph:
    rng = np.random.default_rng(0)
    edges = grid_edges(16, 16)
    graph = FactorGraph.empty(np.full(256, 3))
    graph = graph.add_tables(np.arange(256)[:, None], 2 * rng.normal(size=(256, 3)))
    return graph.add_tables(np.asarray(edges), 0.5 * np.eye(3)[None])


def _dense(scale: float) -> Callable[[], FactorGraph]:
    def make() -> FactorGraph:
        rng = np.random.default_rng(0)
        pairs = np.stack(np.triu_indices(50, 1), axis=1)
        return FactorGraph.pairwise(rng.normal(size=50), pairs, scale * rng.normal(size=len(pairs)))

    return make


def _strip() -> FactorGraph:
    return FactorGraph.grid(8 * np.random.default_rng(0).normal(size=(4, 30)), coupling=1.0)


def _segmentation() -> FactorGraph:
    return UaiModel(UAI / "Segmentation" / "Segmentation_14.uai.gz").graph


def problems() -> dict[str, Problem]:
    mean = lambda iv: float(iv.width.mean())  # noqa: E731
    largest = lambda iv: float(iv.width.max())  # noqa: E731
    found = [
        Problem("picture", "the demo's picture, 64x64, coupling 1.2",
                lambda: picture().graph,
                [Bar(1.5, "every pixel decided", lambda iv: bool(iv.decided().all()))],
                undecided=True, tol=0.0),
        Problem("grid64-5", "64x64, coupling 1, alpha 5", _grid(64, 5.0),
                [Bar(1, "99 % below .01", lambda iv: share(iv, 0.01) >= 0.99)]),
        Problem("grid64-2", "64x64, coupling 1, alpha 2", _grid(64, 2.0),
                [Bar(2, "mean below .018, 99 % below .1",
                     lambda iv: mean(iv) < 0.018 and share(iv, 0.1) >= 0.99),
                 Bar(20, "mean below .004", lambda iv: mean(iv) < 0.004)]),
        Problem("grid64-1", "64x64, coupling 1, alpha 1", _grid(64, 1.0),
                [Bar(20, "mean below .10", lambda iv: mean(iv) < 0.10)]),
        Problem("grid256-5", "256x256, coupling 1, alpha 5", _grid(256, 5.0),
                [Bar(15, "95 % below .01", lambda iv: share(iv, 0.01) >= 0.95)], alone=False),
        *(
            Problem(f"sparse-{kind}", f"200 variables, three partners each, {words}",
                    lambda kind=kind: _sparse(kind),
                    [Bar(0.3, "largest .004", lambda iv: largest(iv) <= 0.004)], tol=0.001)
            for kind, words in (("equal", "1 if equal"), ("and", "1 if both are 1"),
                                ("signs", "N(0, 1) if both are 1"))
        ),
        Problem("frustrated-.5", "16x16 of random signs, coupling 0.5", _frustrated(0.5),
                [Bar(0.5, "mean .0004", lambda iv: mean(iv) <= 0.0004)], tol=1e-4),
        Problem("frustrated-1", "16x16 of random signs, coupling 1", _frustrated(1.0),
                [Bar(2.8, "mean .027", lambda iv: mean(iv) <= 0.027)]),
        Problem("potts", "16x16 of three states, Potts 0.5", _potts,
                [Bar(0.3, "mean .0065", lambda iv: mean(iv) <= 0.0065)], tol=0.001),
        Problem("segmentation", "Segmentation_14 of UAI 2014", _segmentation,
                [Bar(2, "mean .002", lambda iv: mean(iv) <= 0.002)], tol=0.001),
        Problem("dense-.05", "50 variables, all pairs N(0, .05)", _dense(0.05),
                [Bar(3, "mean .011", lambda iv: mean(iv) <= 0.011)], tol=0.001),
        Problem("dense-.5", "50 variables, all pairs N(0, .5)", _dense(0.5)),
        Problem("strip", "4x30, alpha 8, of which 120 are kept", _strip,
                [Bar(1, "largest .02", lambda iv: largest(iv) <= 0.02)],
                kept=lambda g: infer(g, MinDivergence(120), Exact()).keep, tol=1e-4),
        Problem("grid1024-5", "1024x1024, coupling 1, alpha 5", _grid(1024, 5.0),
                [Bar(360, "90 % below .05, less than 2 GiB",
                     lambda iv: share(iv, 0.05) >= 0.90 and peak() < 2048)], alone=False),
    ]  # fmt: skip
    if not UAI.exists():
        found = [p for p in found if p.name != "segmentation"]
    return {p.name: p for p in found}


def peak() -> float:
    """The most memory this process has had, MiB."""
    return measure.peak() / 2**20


def facts(iv: Intervals) -> dict[str, Any]:
    width = iv.width
    count = np.bincount(iv.codes, minlength=len(METHODS))
    return {
        "mean": float(width.mean()),
        "max": float(width.max()),
        "below_.01": share(iv, 0.01),
        "below_.05": share(iv, 0.05),
        "below_.1": share(iv, 0.1),
        "vacuous": float((width > SAYS_NOTHING).mean()),
        "decided": float(iv.decided().mean()),
        "by": {m: int(c) for m, c in zip(METHODS, count) if c},
        "stopped": iv.stopped,
        "work": iv.work,
        "seconds": iv.seconds,
        "trace": [
            f"{s.method} {s.level}: work {s.work}, {s.seconds:.3f} s, mean {s.mean_width:.3g}, "
            f"largest {s.max_width:.3g}, open {s.open}"
            for s in iv.trace
        ],
    }


def at_marks(iv: Intervals) -> list[float]:
    """Mean widths after so many seconds, by the trace: the last step that was through."""
    out = []
    for mark in MARKS:
        seen = [s.mean_width for s in iv.trace if s.seconds <= mark]
        out.append(seen[-1] if seen else 1.0)
    return out


def warm_up() -> None:
    """Every kernel compiled, or read from the cache, before anything is timed."""
    for make in (_grid(12, 2.0), _frustrated(0.5), _sparse, _potts):
        for methods in [None, *([m] for m in all_methods())]:
            minfer.intervals(make(), 3.0, tol=0.0, work=3_000_000, methods=methods, workers=1)
    for number in range(20):
        drawn = models.draw(number)
        minfer.intervals(drawn.graph, 1.0, tol=0.0, work=100_000, workers=1)


def kept_alone(graph: FactorGraph, keep: np.ndarray, tol: float) -> Intervals:
    """What the kept part says for itself: the first half of ``minfer.intervals(kept=...)``."""
    asked = np.ones(graph.n_variables, dtype=bool)
    search = Search(condition(graph), asked, tol, False, _bounds.Effort(1.0, None, 1))
    search.begin()
    known = all_methods()
    search.kept_part(~keep, [make() for n in ("walks", "monotone") for make in known[n]])
    return search.answer()


def one_problem(p: Problem, slow: bool = True) -> dict[str, Any]:
    """Its bars, each a run of so many seconds; and each method alone."""
    graph = p.make()
    more: dict[str, Any] = {"workers": 1}
    if p.undecided:
        more["undecided"] = True
    out: dict[str, Any] = {"words": p.words, "bars": [], "alone": {}}
    if p.kept is not None:
        more["kept"] = p.kept(graph)
        iv = kept_alone(graph, more["kept"], p.tol)
        out["kept alone"] = facts(iv)
        print(f"{p.name}: kept part alone: mean {iv.width.mean():.3g}, max {iv.width.max():.3g}")
    for bar in p.bars:
        limit, whole = bar.seconds, np.inf
        for _ in range(3):  # a limit is overrun by what is under way: the bar counts that, too
            with measure.Stopwatch() as spent:
                iv = minfer.intervals(graph, limit, tol=p.tol, **more)
            whole = spent.cpu
            if whole <= 1.02 * bar.seconds:
                break
            limit *= 0.97 * bar.seconds / whole
        met = bar.met(iv) and whole <= 1.05 * bar.seconds
        line = {"bar": bar.words, "asked": bar.seconds, "met": met, "cpu": whole, "limit": limit,
                "peak_mib": peak(), **facts(iv)}  # fmt: skip
        out["bars"].append(line)
        print(
            f"{p.name}: {bar.words} in {bar.seconds:g} s: {'met' if line['met'] else 'MISSED'}; "
            f"mean {line['mean']:.3g}, max {line['max']:.3g}, {line['below_.01']:.1%} < .01, "
            f"{line['below_.1']:.1%} < .1, decided {line['decided']:.1%}, {line['by']}, work "
            f"{iv.work:,}, CPU {whole:.2f} s, {iv.stopped}, peak {peak():.0f} MiB",
            flush=True,
        )
    if p.alone and slow:
        for name in [*own_methods(), TOGETHER]:
            methods = None if name == TOGETHER else [name]
            iv = minfer.intervals(graph, MARKS[-1], tol=1e-4, methods=methods, workers=1)
            out["alone"][name] = {"marks": at_marks(iv), **facts(iv)}
            print(
                f"  {name}: "
                + ", ".join(f"{m:g} s {w:.3g}" for m, w in zip(MARKS, at_marks(iv)))
                + f"; max {iv.width.max():.3g}, {iv.stopped}",
                flush=True,
            )
    return out


def bars_table(found: dict[str, Any]) -> str:
    body = []
    for p in found.values():
        for b in p["bars"]:
            body.append(
                [p["words"], f"{b['bar']} in {b['asked']:g} s", "met" if b["met"] else "missed",
                 f"{b['mean']:.2g}", f"{b['max']:.2g}", _percent(b["below_.01"]),
                 _percent(b["below_.1"]), f"{b['cpu']:.2g}",
                 ", ".join(f"{m} {c:,}" for m, c in b["by"].items())]
            )  # fmt: skip
    head = ["problem", "aim", "", "mean", "largest", "below .01", "below .1", "CPU s", "by"]
    return table(head, body)


def kept_table(found: dict[str, Any]) -> str:
    body = []
    for p in found.values():
        if "kept alone" in p:
            for words, line in (("kept part alone", p["kept alone"]), ("all", p["bars"][0])):
                body.append(
                    [f"{p['words']}: {words}", f"{line['mean']:.2g}", f"{line['max']:.2g}",
                     _percent(line["below_.01"])]
                )  # fmt: skip
    return table(["", "mean", "largest", "below .01"], body)


def _percent(x: float) -> str:
    return f"{100 * np.floor(1000 * x) / 1000:.3g} %"


def alone_table(found: dict[str, Any]) -> str:
    body = []
    for p in found.values():
        for name, line in p["alone"].items():
            if name != TOGETHER and line["vacuous"] == 1.0:
                cells = ["vacuous", *[""] * len(MARKS)]
            else:
                cells = [f"{w:.2g}" for w in line["marks"]] + [f"{line['max']:.2g}"]
            body.append([p["words"], name, *cells])
    marks = (f"{m:g} s" for m in MARKS)
    return table(["problem", "method", *marks, "largest, at the end"], body)


# ------------------------------------------------------------------ judging


def solvers() -> dict[str, Any]:
    return {
        "BP": BeliefPropagation(time_limit=3),
        "TRW": TreeReweighted(time_limit=3),
        "mean field": MeanField(time_limit=3),
        "Gibbs": Gibbs(time_limit=3, rng=0),
    }


def answer_of(name: str, solver: Any, graph: FactorGraph) -> Marginals | None:
    try:
        m = solver(graph)
        if name == "BP" and not m.converged:
            damped = BeliefPropagation(damping=0.5, time_limit=3)(graph)
            m = damped if damped.converged else m
    except MinferError:
        return None
    return m


def judged(graph: FactorGraph, iv: Intervals) -> dict[str, Any]:
    """What the intervals say of every solver's answer, and of their own midpoints."""
    out = {}
    for name, solver in solvers().items():
        m = answer_of(name, solver, graph)
        if m is None:
            out[name] = None
            continue
        least, most = iv.error_bounds(m)
        out[name] = {
            "converged": bool(m.converged),
            "outside": int(iv.refuted(m, by=1e-6).sum()),
            "refuted": int(iv.refuted(m, by=0.01).sum()),
            "refuted_.1": int(iv.refuted(m, by=0.1).sum()),
            "least": float(least.mean()),
            "most": float(most.mean()),
            "worst": float(least.max()),
        }
    return out


def judge() -> dict[str, Any]:
    """The solvers on models that are too large for exact inference."""
    found = {}
    every = problems()
    for name, seconds in (
        ("picture", 3.0), ("grid64-5", 3.0), ("grid64-2", 10.0), ("grid64-1", 10.0),
        ("sparse-signs", 3.0), ("frustrated-.5", 3.0), ("frustrated-1", 5.0), ("potts", 5.0),
    ):  # fmt: skip
        graph = every[name].make()
        iv = minfer.intervals(graph, seconds, tol=1e-4, workers=1)
        found[name] = {
            "words": every[name].words, "variables": graph.n_variables,
            "mean": float(iv.width.mean()), "seconds": iv.seconds, "of": judged(graph, iv),
        }  # fmt: skip
        print(name, json.dumps(found[name]["of"]), flush=True)
    return found


def judge_table(found: dict[str, Any]) -> str:
    body = []
    for p in found.values():
        n = p["variables"]
        for name, line in p["of"].items():
            if line is None:
                continue
            shares = (f"{line[k] / n:.0%}" for k in ("outside", "refuted", "refuted_.1"))
            body.append(
                [p["words"], f"{p['mean']:.2g}", name, "yes" if line["converged"] else "no",
                 *shares, f"{line['least']:.2g}", f"{line['most']:.2g}"]
            )  # fmt: skip
    head = ["model", "mean width", "answer", "converged", "outside its interval", "off by > .01"]
    return table([*head, "off by > .1", "mean error, at least", "at most"], body)


# ------------------------------------------------------------------ UAI


def uai(folder: Path, names: list[str]) -> dict[str, Any]:
    """Every model against its exact answers; with exact inference, without, each method alone."""
    found: dict[str, Any] = {}
    local = own_methods()
    for model in uai_models(folder, names):
        name, graph, truth = model.name, model.graph, model.marginals
        line: dict[str, Any] = {"variables": graph.n_variables, "runs": {}}
        runs: dict[str, tuple[list[str] | None, float]] = {
            TOGETHER: (None, 10.0),
            "without exact": (local, 3.0),
        }
        runs |= {m: ([m], 0.5) for m in local}
        for run, (methods, limit) in runs.items():
            spent = measure.Stopwatch()
            try:
                iv = minfer.intervals(graph, limit, tol=1e-4, methods=methods, workers=1)
            except MinferError as error:
                line["runs"][run] = {"error": str(error)}
                continue
            cpu = spent.cpu
            wrong = (truth < iv.lo - DIGITS) | (truth > iv.hi + DIGITS) | ~(iv.lo <= iv.hi)
            got = facts(iv)
            got.pop("trace")
            line["runs"][run] = {"violations": int(wrong.sum()), "cpu": cpu, **got}
            if wrong.any():
                at = int(np.argmax(wrong))
                print(
                    f"{name}, {run}: entry {at} is [{iv.lo[at]!r}, {iv.hi[at]!r}], truth "
                    f"{truth[at]!r}",
                    file=sys.stderr,
                )
            if run == TOGETHER:
                line["judged"] = judged(graph, iv)
            print(
                f"{name}, {run}: mean {got['mean']:.3g}, max {got['max']:.3g}, vacuous "
                f"{got['vacuous']:.0%}, {got['by']}, {iv.stopped}, CPU {cpu:.2f} s, wrong "
                f"{int(wrong.sum())}",
                flush=True,
            )
        found[name] = line
    return found


def uai_table(found: dict[str, Any]) -> str:
    body = []
    for name, line in found.items():
        cells = [name, f"{line['variables']}"]
        whole, part = line["runs"][TOGETHER], line["runs"]["without exact"]
        cells += [f"{whole['mean']:.1g}, {whole['max']:.1g}", f"{whole['cpu']:.2g}"]
        by = ", ".join(f"{m} {c:,}" for m, c in part["by"].items() if m != "fixed")
        cells += [
            f"{part['mean']:.2g}, {part['max']:.2g}", f"{part['vacuous']:.0%}",
            f"{part['cpu']:.2g}", by,
        ]  # fmt: skip
        for solver in ("BP", "TRW", "mean field", "Gibbs"):
            got = line.get("judged", {}).get(solver)
            text = "–" if got is None else f"{got['refuted']}"
            cells.append(text + ("" if got is None or got["converged"] else " *"))
        body.append(cells)
    head = ["model", "variables", "all: mean, largest", "CPU s", "without exact: mean, largest"]
    head += ["says nothing", "CPU s", "by", "BP", "TRW", "mean field", "Gibbs"]
    return table(head, body)


def uai_summary(found: dict[str, Any]) -> str:
    runs = sorted({r for line in found.values() for r in line["runs"]}, key=str)
    body = []
    for run in runs:
        got = [line["runs"][run] for line in found.values() if "mean" in line["runs"].get(run, {})]
        if got:
            mean = {k: np.mean([g[k] for g in got]) for k in ("mean", "vacuous", "below_.01")}
            body.append(
                [run, f"{len(got)}", f"{sum(g['violations'] for g in got)}", f"{mean['mean']:.2g}",
                 f"{mean['vacuous']:.0%}", f"{mean['below_.01']:.0%}"]
            )  # fmt: skip
    head = ["run", "models", "violations", "mean width", "says nothing", "width below .01"]
    return table(head, body)


# ------------------------------------------------------------------ the page


def write_page(page: Path, found: dict[str, Any]) -> None:
    """The tables of what was found into their sections."""
    made = {}
    if "widths" in found:
        made["bars"], made["alone"] = bars_table(found["widths"]), alone_table(found["widths"])
        made["kept"] = kept_table(found["widths"])
    if "judge" in found:
        made["judge"] = judge_table(found["judge"])
    if "uai" in found:
        made["uai-summary"] = uai_summary(found["uai"])
        write_section(INSTANCES, "intervals uai", uai_table(found["uai"]))
    for name, text in made.items():
        write_section(page, name, text)


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--widths", nargs="*", metavar="NAME", help="problems; all by default")
    cli.add_argument("--no-alone", action="store_true", help="widths: all methods together only")
    cli.add_argument("--uai", nargs="?", const=str(UAI), metavar="DIR")
    cli.add_argument("--models", nargs="*", default=[], help="uai: only these")
    cli.add_argument("--judge", action="store_true")
    cli.add_argument("--out", type=Path, default=None)
    cli.add_argument("--page", type=Path, default=None)
    cli.add_argument("--core", type=int, help="core to pin to (default the last)")
    asked = cli.parse_args()
    measure.pin(asked.core)
    cpu_clock()
    results = Results(asked.out)
    found, keep = results.found, results.keep
    bad = False
    if asked.widths is not None:
        warm_up()
        every = problems()
        done = found.get("widths", {})
        for name in asked.widths or every:
            done[name] = one_problem(every[name], not asked.no_alone)
            keep("widths", {n: done[n] for n in every if n in done})
        print(bars_table(found["widths"]), alone_table(found["widths"]), sep="\n\n")
    if asked.judge:
        warm_up()
        keep("judge", judge())
        print(judge_table(found["judge"]))
    if asked.uai:
        warm_up()
        keep("uai", {**found.get("uai", {}), **uai(Path(asked.uai), asked.models)})
        print(uai_table(found["uai"]), uai_summary(found["uai"]), sep="\n\n")
        runs = [r for line in found["uai"].values() for r in line["runs"].values()]
        bad |= any(r.get("violations", 0) for r in runs)
    if asked.page:
        write_page(asked.page, found)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
