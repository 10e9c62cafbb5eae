"""Stopped early, still certain: bounds of log Z and of marginals against time, and marginal MAP.

    python benchmarks/anytime.py before [NAME ...]   # as it was: the methods and bounds there were
    python benchmarks/anytime.py now [NAME ...]      # mini-buckets and search among them
    python benchmarks/anytime.py map [NAME ...]      # half of the variables of 20 models maximised
    python benchmarks/anytime.py page                # the tables of docs/reference/how-far-off.md

The models: two noisy-or chains and three of UAI 2014 where exact inference does not fit (with a GiB
for two of them), and five drawn networks of 300 variables with three states, each with two
parents anywhere before it and a tenth of its variables observed. Each is a process on one pinned
core, and seconds are CPU seconds, compiling excluded. ``before`` has the four methods of intervals
that there were, and the better of the bounds of log Z that solvers gave: reweighted messages from
above, mean field from below. Widths are medians over the variables that the evidence leaves.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from minfer_experiments import pages
from places import DATA, DOCS, RESULTS, UAI, UaiModel, uai_models
from stopwatch import measure

Row = dict[str, Any]
FILE, PAGE = RESULTS / "anytime.json", DOCS / "how-far-off.md"
#: CPU seconds of a run, and where it is looked at.
LIMIT, MARKS = 10.0, (1.0, 3.0, 10.0)
GIB = 1.0
OLD = ["exact", "walks", "monotone", "boxes"]
DRAWN = [f"network_{seed}" for seed in range(5)]
MODELS = ["or_chain_107", "or_chain_242", "linkage_21", "ObjectDetection_13", "Grids_18", *DRAWN]


def drawn(seed: int, n: int = 300, states: int = 3, seen: int = 30) -> Any:
    """A network whose variables have two parents anywhere before them, with evidence.

    The evidence is part of one draw from the network, and so is possible and not unusual.
    """
    from minfer import FactorGraph

    rng = np.random.default_rng([300, seed])
    tables: dict[str, Any] = {}
    x = np.zeros(n, dtype=np.int64)
    for v in range(n):
        parents = rng.choice(v, min(v, 2), replace=False).tolist()
        p = rng.dirichlet(np.ones(states), [states] * len(parents))
        x[v] = rng.choice(states, p=p[tuple(x[parents])])
        tables[f"v{v}"] = ([f"v{u}" for u in parents], p) if parents else p
    graph = FactorGraph.network(dict.fromkeys(tables, states), tables)
    known = rng.permutation(n)[:seen].tolist()
    return graph.with_evidence({f"v{v}": int(x[v]) for v in known})


def model(name: str) -> Any:
    import minfer

    if name in DRAWN:
        return drawn(DRAWN.index(name))
    if name.startswith("or_chain"):
        path = DATA / "promedas" / f"{name}.fg.uai.gz"
        return minfer.read_uai(path, path.with_name(f"{name}.fg.uai.evid.gz"))
    return UaiModel(UAI / name.partition("_")[0] / f"{name}.uai.gz").graph


# ------------------------------------------------------------------ one case, in its process


def cpu_clock() -> None:
    """Time limits in CPU seconds of this process, compiling excluded, also in CPU seconds."""
    from minfer.basics import limits
    from minfer.kernels.compiling import cache, jit

    for one in (limits, jit, cache):
        one.time = SimpleNamespace(  # type: ignore[attr-defined]
            perf_counter=time.process_time, time=time.time, sleep=time.sleep
        )


def before(name: str, seconds: float) -> Row:
    """The four methods that there were, and the better bounds of log Z by solvers."""
    import minfer

    graph = model(name)
    minfer.intervals(warm(), 1.0, methods=OLD, workers=1)
    found = minfer.intervals(graph, seconds, methods=OLD, workers=1, tol=0.0)
    upper, lower = old_bounds(graph, seconds)
    return {**of_intervals(found), "log_z": [lower, upper]}


def old_bounds(graph: Any, seconds: float) -> tuple[float | None, float | None]:
    """The least upper and the largest lower bound of log Z, each solver with all the seconds."""
    from minfer import LogZ, MeanField, MinferError, StructuredMeanField, TreeReweighted

    best: dict[LogZ, float] = {}
    for kind in (TreeReweighted, MeanField, StructuredMeanField):
        try:
            answer = kind(time_limit=seconds)(graph)
        except MinferError as error:
            print(f"  {kind.__name__}: {str(error)[:100]}", file=sys.stderr)
            continue
        value = answer.log_z
        print(f"  {answer}: {value} {answer.log_z_kind}", file=sys.stderr)
        if answer.log_z_kind is LogZ.UPPER:
            best[LogZ.UPPER] = min(value, best.get(LogZ.UPPER, math.inf))
        elif answer.log_z_kind is LogZ.LOWER and math.isfinite(value):
            best[LogZ.LOWER] = max(value, best.get(LogZ.LOWER, -math.inf))
    return best.get(LogZ.UPPER), best.get(LogZ.LOWER)


def warm() -> Any:
    """A small model through which every method runs once."""
    from minfer import FactorGraph

    rng = np.random.default_rng(0)
    graph = FactorGraph.grid(rng.normal(size=(4, 4)), 1.0)
    return graph.add_tables([[0, 1, 2]], [rng.normal(size=(2, 2, 2))])


def of_intervals(found: Any) -> Row:
    free = found.method != "fixed"
    width = found.width[free]
    return {
        "variables": int(free.sum()),
        "median": float(np.median(width)),
        "mean": float(width.mean()),
        "vacuous": int(found.vacuous[free].sum()),
        "stopped": found.stopped,
        "seconds": round(found.seconds, 2),
    }


def now(name: str, seconds: float) -> Row:
    """All methods together, and how the two widths fall."""
    import minfer

    graph = model(name)
    minfer.intervals(warm(), 1.0, workers=1, tol=0.0)
    found = minfer.intervals(graph, seconds, workers=1, tol=0.0)
    falls = []
    for mark in MARKS:
        done = [step for step in found.trace if step.seconds <= mark * 1.05]
        falls.append([mark, done[-1].mean_width, finite(done[-1].log_z_width)])
    bounds = [finite(end) for end in found.log_z_bounds or (-math.inf, math.inf)]
    return {**of_intervals(found), "log_z": bounds, "falls": falls}


def finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


# ------------------------------------------------------------------ marginal MAP


def maximised() -> list[str]:
    """Twenty of the UAI models."""
    names = [m.name for m in uai_models()]
    return sorted(np.random.default_rng(20).permutation(names)[:20].tolist())


def best_half(name: str, seconds: float) -> Row:
    """Half of the variables that the evidence leaves, drawn by the model's name."""
    import minfer
    from minfer.engine.conditioning import condition

    minfer.mpe(warm(), variables=[0, 3, 5, 9], time_limit=1.0)
    graph = model(name)
    free = np.flatnonzero(condition(graph).fixed < 0)
    rng = np.random.default_rng(list(name.encode()))
    wanted = np.sort(rng.permutation(free)[: (len(free) + 1) // 2]).tolist()
    row: Row = {"variables": len(free), "maximised": len(wanted)}
    with measure.Stopwatch() as spent:
        try:
            found = minfer.mpe(graph, variables=wanted, time_limit=seconds, max_gib=GIB)
        except minfer.MinferError as error:
            return {**row, "error": f"{type(error).__name__}: {error}"[:200]}
    return {
        **row, "score": found.log_score, "upper": found.upper, "status": found.status,
        "steps": list(found.steps), "seconds": round(spent.cpu, 1),
    }  # fmt: skip


PARTS: dict[str, Callable[[str, float], Row]] = {"before": before, "now": now, "map": best_half}
#: CPU seconds of a case of each, by default.
SECONDS = {"before": LIMIT, "now": LIMIT, "map": 60.0}


# ------------------------------------------------------------------ the page


def gap(bounds: list[float | None]) -> str:
    lower, upper = bounds
    return "-" if lower is None or upper is None else pages.number(upper - lower)


def of_bounds(old: dict[str, Row], new: dict[str, Row]) -> str:
    head = ["model", "variables", "median width, the others", "all", "says nothing, the others",
            "all", "log Z gap, the others", "all", "after 1 s", "3 s"]  # fmt: skip
    rows = []
    for name in MODELS:
        a, b = old.get(name, {}), new.get(name, {})
        if "median" not in a or "median" not in b:
            continue
        falls = [pages.number(width) if width is not None else "-" for *_, width in b["falls"]]
        rows.append([
            name, f"{a['variables']:,}", pages.number(a["median"]), pages.number(b["median"]),
            str(a["vacuous"]), str(b["vacuous"]), gap(a["log_z"]), gap(b["log_z"]), *falls[:2],
        ])  # fmt: skip
    return pages.table(head, rows)


def of_maxima(found: dict[str, Row]) -> str:
    head = ["model", "variables", "maximised", "score", "gap", "status", "s", "by"]
    rows = []
    for name, row in sorted(found.items()):
        if "score" not in row:
            rows.append([name, *(str(row.get(k, "-")) for k in ("variables", "maximised")),
                         row.get("error", "?")[:60], "-", "-", "-", "-"])  # fmt: skip
            continue
        rows.append([
            name, str(row["variables"]), str(row["maximised"]), f"{row['score']:.6g}",
            pages.number(row["upper"] - row["score"]), row["status"], str(row["seconds"]),
            ", ".join(row["steps"]),
        ])  # fmt: skip
    return pages.table(head, rows)


# ------------------------------------------------------------------ all of them


def alone(part: str, name: str, seconds: float) -> Row:
    """One case in a process of its own, on one core."""
    command = [sys.executable, __file__, part, name, "--seconds", str(seconds), "--inside"]
    pinned = ["taskset", "-c", str(measure.last_core()), *command]
    done = subprocess.run(pinned, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    sys.stderr.write(done.stderr)
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or ["?"])[-1][:300]}
    row: Row = json.loads(lines[-1])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=[*PARTS, "page"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_intermixed_args()
    seconds = a.seconds or SECONDS.get(a.part, LIMIT)
    if a.inside:
        cpu_clock()
        print(json.dumps(PARTS[a.part](a.names[0], seconds)))
        return
    from minfer_experiments.results import Results

    kept = Results(a.out)
    if a.part == "page":
        parts = kept.parts
        made = {
            "anytime": of_bounds(parts.get("before", {}), parts.get("now", {})),
            "marginal": of_maxima(parts.get("map", {})),
        }
        pages.write_sections(PAGE, made)
        return
    known = dict(kept.parts.get(a.part, {}))
    for name in a.names or (maximised() if a.part == "map" else MODELS):
        known[name] = alone(a.part, name, seconds)
        print(a.part, name, known[name], flush=True)
        kept.keep(a.part, known)


if __name__ == "__main__":
    main()
