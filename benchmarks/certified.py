"""Certified intervals: tries to refute them, and measures how narrow they are and how soon.

    python benchmarks/certified.py --refute 3000        # drawn models against an independent oracle
    python benchmarks/certified.py --widths [NAME ...]  # width against time, together and alone
    python benchmarks/certified.py --uai [DIR]          # the UAI models against their exact answers
    python benchmarks/certified.py --judge              # BP, TRW, mean field, Gibbs on large models

Several may be given at once. ``--out FILE`` keeps what was found as JSON (parts that are there
stay), ``--page docs/how-far-off.md`` writes the tables of that file into the page.
One pinned core, one thread; seconds are CPU seconds, compiling excluded; every seed is fixed.
``--refute`` and ``--uai`` exit with 1 if an interval does not hold the truth.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import minfer
import refuting
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
from minfer.conditioning import condition
from minfer.examples import picture
from minfer.graph import grid_edges
from minfer.io.uai import read_mar, read_uai

ROOT = Path(__file__).resolve().parents[1]
BESIDE = Path(os.environ.get("MINFER_DATA") or ROOT.parent / "shared" / "data") / "uai"
TOGETHER = "all together"
#: Work of the drawn models: next to nothing, some, plenty.
BUDGETS = (300, 20_000, 1_000_000)
#: What the reference answers of the UAI models may be off: they have 12 digits.
DIGITS = 1e-11
#: Width beyond which an interval says next to nothing.
SAYS_NOTHING = 0.99
#: Seconds at which widths are read off the trace.
MARKS = (0.1, 0.3, 1.0, 3.0)


def cpu_clock() -> None:
    """Time limits and traces in CPU seconds of this process, compiling excluded."""
    from minfer.kernels._jit import compiling

    _bounds._clock = lambda: time.process_time() - compiling()


def own_methods() -> list[str]:
    """The methods that work locally: all but exact inference of the whole."""
    return [name for name in all_methods() if name != "exact"]


# ------------------------------------------------------------------ refuting


def refute(n: int, first: int = 0, budgets: tuple[int, ...] = BUDGETS) -> dict[str, Any]:
    """Each method alone and all together on drawn models, at every budget."""
    choices: dict[str, list[str] | None] = {m: [m] for m in all_methods()}
    choices[TOGETHER] = None
    tally = {
        name: {"models": 0, "intervals": 0, "violations": 0, "vacuous": 0, "width": 0.0,
               "by_digits": 0, "errors": 0}
        for name in choices
    }  # fmt: skip
    families: dict[str, int] = {}
    impossible = 0
    number = first - 1
    while sum(families.values()) < n:
        number += 1
        drawn = refuting.draw(number)
        if drawn.impossible:
            impossible += 1
            continue
        families[drawn.family] = families.get(drawn.family, 0) + 1
        for name, methods in choices.items():
            line = tally[name]
            line["models"] += 1
            for k, work in enumerate(budgets):
                tol = 0.0 if (number + k) % 2 else 0.01
                try:
                    iv = minfer.intervals(
                        drawn.graph, None, tol, work=work, methods=methods, workers=1
                    )
                except Exception as error:
                    line["errors"] += 1
                    print(f"model {number}, {name}, work {work}: {error!r}", file=sys.stderr)
                    continue
                unsure = refuting.unclear(drawn, iv)
                wrong = refuting.judge(drawn, iv)
                line["intervals"] += len(iv.lo)
                line["by_digits"] += int(unsure.sum())
                line["vacuous"] += int((iv.hi - iv.lo >= 1).sum())
                line["width"] += float((iv.hi - iv.lo).sum())
                if wrong.any():
                    line["violations"] += int(wrong.sum())
                    at = int(np.argmax(wrong))
                    print(
                        f"model {number} ({drawn.family} {drawn.note}), {name}, work {work}, tol "
                        f"{tol}: entry {at} is [{iv.lo[at]!r}, {iv.hi[at]!r}], truth "
                        f"{drawn.digits[at]}",
                        file=sys.stderr,
                    )
    for line in tally.values():
        many = max(1, line["intervals"])
        line["vacuous"] = line["vacuous"] / many
        line["width"] = line["width"] / many
    return {
        "n": n, "first": first, "budgets": list(budgets), "impossible": impossible,
        "families": families, "methods": tally,
    }  # fmt: skip


def refute_table(found: dict[str, Any]) -> list[str]:
    out = [
        "| method | models | intervals | violations | placed by 50 digits | vacuous | mean width |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, line in found["methods"].items():
        out.append(
            f"| {name} | {line['models']:,} | {line['intervals']:,} | {line['violations']} "
            f"| {line['by_digits']:,} | {line['vacuous']:.0%} | {line['width']:.3f} |"
        )
    return out


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
    return FactorGraph.pairwise(fields, ends, 1.0, kind)


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
    stem = BESIDE / "Segmentation" / "Segmentation_14.uai"
    return read_uai(f"{stem}.gz", f"{stem}.evid.gz")


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
    if not BESIDE.exists():
        found = [p for p in found if p.name != "segmentation"]
    return {p.name: p for p in found}


def peak() -> float:
    """The most memory this process has had, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


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
            minfer.intervals(make(), 3.0, 0.0, work=3_000_000, methods=methods, workers=1)
    for number in range(20):
        drawn = refuting.draw(number)
        minfer.intervals(drawn.graph, 1.0, 0.0, work=100_000, workers=1)


def kept_alone(graph: FactorGraph, keep: np.ndarray, tol: float) -> Intervals:
    """What the kept part says for itself: the first half of ``minfer.intervals(kept=...)``."""
    asked = np.ones(graph.n_variables, dtype=bool)
    search = Search(condition(graph), asked, tol, False, _bounds.Meter(1.0, None, 1))
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
            begin = time.process_time()
            iv = minfer.intervals(graph, limit, p.tol, **more)
            whole = time.process_time() - begin
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
            iv = minfer.intervals(graph, MARKS[-1], 1e-4, methods=methods, workers=1)
            out["alone"][name] = {"marks": at_marks(iv), **facts(iv)}
            print(
                f"  {name}: "
                + ", ".join(f"{m:g} s {w:.3g}" for m, w in zip(MARKS, at_marks(iv)))
                + f"; max {iv.width.max():.3g}, {iv.stopped}",
                flush=True,
            )
    return out


def bars_table(found: dict[str, Any]) -> list[str]:
    out = [
        "| problem | aim | | mean | largest | below .01 | below .1 | CPU s | by |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for p in found.values():
        for b in p["bars"]:
            by = ", ".join(f"{m} {c:,}" for m, c in b["by"].items())
            out.append(
                f"| {p['words']} | {b['bar']} in {b['asked']:g} s "
                f"| {'met' if b['met'] else 'missed'} | {b['mean']:.2g} | {b['max']:.2g} "
                f"| {_percent(b['below_.01'])} | {_percent(b['below_.1'])} | {b['cpu']:.2g} "
                f"| {by} |"
            )
    return out


def kept_table(found: dict[str, Any]) -> list[str]:
    out = ["| | mean | largest | below .01 |", "|---|---|---|---|"]
    for p in found.values():
        if "kept alone" in p:
            for words, line in (("kept part alone", p["kept alone"]), ("all", p["bars"][0])):
                out.append(
                    f"| {p['words']}: {words} | {line['mean']:.2g} | {line['max']:.2g} "
                    f"| {_percent(line['below_.01'])} |"
                )
    return out


def _percent(x: float) -> str:
    return f"{100 * np.floor(1000 * x) / 1000:.3g} %"


def alone_table(found: dict[str, Any]) -> list[str]:
    out = [
        "| problem | method | "
        + " | ".join(f"{m:g} s" for m in MARKS)
        + " | largest, at the end |",
        "|---|---|" + "---|" * (len(MARKS) + 1),
    ]
    for p in found.values():
        for name, line in p["alone"].items():
            if name != TOGETHER and line["vacuous"] == 1.0:
                cells = ["vacuous", *[""] * len(MARKS)]
            else:
                cells = [f"{w:.2g}" for w in line["marks"]] + [f"{line['max']:.2g}"]
            out.append(f"| {p['words']} | {name} | " + " | ".join(cells) + " |")
    return out


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
        iv = minfer.intervals(graph, seconds, 1e-4, workers=1)
        found[name] = {
            "words": every[name].words, "variables": graph.n_variables,
            "mean": float(iv.width.mean()), "seconds": iv.seconds, "of": judged(graph, iv),
        }  # fmt: skip
        print(name, json.dumps(found[name]["of"]), flush=True)
    return found


def judge_table(found: dict[str, Any]) -> list[str]:
    out = [
        "| model | mean width | answer | converged | outside its interval | off by > .01 "
        "| off by > .1 | mean error, at least | at most |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for p in found.values():
        n = p["variables"]
        for name, line in p["of"].items():
            if line is None:
                continue
            out.append(
                f"| {p['words']} | {p['mean']:.2g} | {name} "
                f"| {'yes' if line['converged'] else 'no'} | {line['outside'] / n:.0%} "
                f"| {line['refuted'] / n:.0%} | {line['refuted_.1'] / n:.0%} "
                f"| {line['least']:.2g} | {line['most']:.2g} |"
            )
    return out


# ------------------------------------------------------------------ UAI


def uai_models(folder: Path) -> Iterator[tuple[str, FactorGraph, np.ndarray]]:
    with open(folder / "manifest.csv", newline="") as file:
        names = [row["name"] for row in csv.DictReader(file)]
    for name in names:
        stem = folder / name.rsplit("_", 1)[0] / f"{name}.uai"
        if Path(f"{stem}.MAR.gz").exists():
            graph = read_uai(f"{stem}.gz", f"{stem}.evid.gz")
            yield name, graph, np.concatenate(read_mar(f"{stem}.MAR.gz"))


def uai(folder: Path, names: list[str]) -> dict[str, Any]:
    """Every model against its exact answers; with exact inference, without, each method alone."""
    found: dict[str, Any] = {}
    local = own_methods()
    for name, graph, truth in uai_models(folder):
        if names and name not in names:
            continue
        line: dict[str, Any] = {"variables": graph.n_variables, "runs": {}}
        runs: dict[str, tuple[list[str] | None, float]] = {
            TOGETHER: (None, 10.0),
            "without exact": (local, 3.0),
        }
        runs |= {m: ([m], 0.5) for m in local}
        for run, (methods, limit) in runs.items():
            begin = time.process_time()
            try:
                iv = minfer.intervals(graph, limit, 1e-4, methods=methods, workers=1)
            except MinferError as error:
                line["runs"][run] = {"error": str(error)}
                continue
            cpu = time.process_time() - begin
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


def uai_table(found: dict[str, Any]) -> list[str]:
    out = [
        "| model | variables | all: mean, largest | CPU s | without exact: mean, largest "
        "| says nothing | CPU s | by | BP | TRW | mean field | Gibbs |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
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
        out.append("| " + " | ".join(cells) + " |")
    return out


def uai_summary(found: dict[str, Any]) -> list[str]:
    runs = sorted({r for line in found.values() for r in line["runs"]}, key=str)
    out = ["| run | models | violations | mean width | says nothing | width below .01 |",
           "|---|---|---|---|---|---|"]  # fmt: skip
    for run in runs:
        got = [line["runs"][run] for line in found.values() if "mean" in line["runs"].get(run, {})]
        if got:
            out.append(
                f"| {run} | {len(got)} | {sum(g['violations'] for g in got)} "
                f"| {np.mean([g['mean'] for g in got]):.2g} "
                f"| {np.mean([g['vacuous'] for g in got]):.0%} "
                f"| {np.mean([g['below_.01'] for g in got]):.0%} |"
            )
    return out


# ------------------------------------------------------------------ the page


def write_page(page: Path, found: dict[str, Any]) -> None:
    """The tables between ``<!-- table NAME -->`` and ``<!-- end -->``."""
    made = {}
    if "refute" in found:
        made["refute"] = refute_table(found["refute"])
    if "widths" in found:
        made["bars"], made["alone"] = bars_table(found["widths"]), alone_table(found["widths"])
        made["kept"] = kept_table(found["widths"])
    if "judge" in found:
        made["judge"] = judge_table(found["judge"])
    if "uai" in found:
        made["uai"], made["uai-summary"] = uai_table(found["uai"]), uai_summary(found["uai"])
    text = page.read_text()
    for name, lines in made.items():
        begin = text.index(f"<!-- table {name} -->")
        end = text.index("<!-- end -->", begin)
        text = text[:begin] + f"<!-- table {name} -->\n\n" + "\n".join(lines) + "\n\n" + text[end:]
    page.write_text(text)


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--refute", type=int, metavar="N", help="drawn models that allow anything")
    cli.add_argument("--first", type=int, default=0, help="number of the first drawn model")
    cli.add_argument("--widths", nargs="*", metavar="NAME", help="problems; all by default")
    cli.add_argument("--no-alone", action="store_true", help="widths: all methods together only")
    cli.add_argument("--uai", nargs="?", const=str(BESIDE), metavar="DIR")
    cli.add_argument("--models", nargs="*", default=[], help="uai: only these")
    cli.add_argument("--judge", action="store_true")
    cli.add_argument("--out", type=Path, default=None)
    cli.add_argument("--page", type=Path, default=None)
    cli.add_argument("--core", type=int, default=0)
    asked = cli.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {asked.core})
    cpu_clock()
    found: dict[str, Any] = {}
    if asked.out and asked.out.exists():
        found = json.loads(asked.out.read_text())

    def keep(part: str, what: Any) -> None:
        found[part] = what
        if asked.out:
            asked.out.write_text(json.dumps(found, indent=1) + "\n")

    bad = False
    if asked.refute is not None:
        keep("refute", refute(asked.refute, asked.first))
        print("\n".join(refute_table(found["refute"])))
        bad |= any(m["violations"] + m["errors"] for m in found["refute"]["methods"].values())
    if asked.widths is not None:
        warm_up()
        every = problems()
        done = found.get("widths", {})
        for name in asked.widths or every:
            done[name] = one_problem(every[name], not asked.no_alone)
            keep("widths", {n: done[n] for n in every if n in done})
        print("\n".join([*bars_table(found["widths"]), "", *alone_table(found["widths"])]))
    if asked.judge:
        warm_up()
        keep("judge", judge())
        print("\n".join(judge_table(found["judge"])))
    if asked.uai:
        warm_up()
        keep("uai", {**found.get("uai", {}), **uai(Path(asked.uai), asked.models)})
        print("\n".join([*uai_table(found["uai"]), "", *uai_summary(found["uai"])]))
        runs = [r for line in found["uai"].values() for r in line["runs"].values()]
        bad |= any(r.get("violations", 0) for r in runs)
    if asked.page:
        write_page(asked.page, found)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
