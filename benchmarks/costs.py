"""What single steps cost: ``python benchmarks/costs.py [PART ...] [--check]``, all by default.

* *scan*: scoring a million pairwise features (a grid; a random graph, whose memory accesses have no
  order) against one sequential sweep of BP over them: the pass for gains, the one for residuals,
  and the whole calls of ``factor_scores``.
* *selection*: choosing among a million gains (exponential draws, 10 % zero, 1 % infinite) against
  the paper's way, ``paper_order=True``, a bare ``np.argsort``, and a bare ``np.sort``, which does
  not yet say what to keep; MinJoint against ``gains >= c`` and ``gains.sum()``.
* *small*: exact marginals of small models by the joint table and by a clique tree: binary
  variables, 40 % of all pairs.
* *memory*: peak memory of BP on a 2048x2048 grid beyond the model's, in bytes a directed message.
* *shell*: what a call costs around its kernels: BP on a 10x10 grid, new, seen before and prepared;
  ``infer`` with compensation on a 64x64 grid against the two runs of BP in it.

CPU time on one pinned core, in turn within a round; ratios are medians of the ratio within a round.
``--check`` fails if a bar is missed.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minfer import (
    BeliefPropagation,
    Compensated,
    Exact,
    FactorGraph,
    MinDivergence,
    MinJoint,
    MinSize,
    infer,
)
from minfer.engine.conditioning import condition
from minfer.engine.wiring import wire
from minfer.factors import Features
from minfer.reduction.gains import factor_scores
from minfer.solvers.propagation import Propagation
from minfer_experiments.measure import (
    cpu_seconds,
    in_turn,
    least,
    median_ratio,
    medians,
    peak,
    pin,
    sample,
)
from minfer_experiments.pages import table

PARTS = ("memory", "scan", "selection", "small", "shell")  # a peak comes first
SCAN_BARS = {"gain / sweep": 2.0, "residual / gain": 1 / 3}
SELECTION_BARS = {"paper": 1 / 3, "argsort": 1 / 3, "sort": 1.0, "comparison": 1.2}
SHELL_BARS = {
    "a graph seen before": 150.0,
    "a new graph": 150.0,
    "prepared": 25.0,
    "infer / its two runs": 1.6,
}

Runs = dict[str, Callable[[], Any]]
Found = dict[str, Any]


# ------------------------------------------------------------------ scoring


def scan(rounds: int = 9) -> Found:
    """CPU milliseconds and ratios for both models: {"rounds", "models"}."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 35_000, size=(1_000_000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    fields = 2 * rng.normal(size=35_000)
    models = {
        "grid": FactorGraph.grid(2 * rng.normal(size=(708, 708)), 1.0),
        "random graph": FactorGraph.pairwise(fields, pairs, rng.normal(0, 0.5, len(pairs))),
    }
    found = {}
    for name, graph in models.items():
        times = in_turn(_scans(graph), rounds)
        found[name] = {
            "factors": int((graph.arity == 2).sum()),
            "ms": {what: 1e3 * seconds for what, seconds in medians(times).items()},
            "gain / sweep": median_ratio(times["gain"], times["sweep"]),
            "residual / gain": median_ratio(times["residual"], times["gain"]),
        }
    return {"rounds": rounds, "models": found}


def _scans(graph: FactorGraph) -> Runs:
    """Arrays and wiring are made beforehand, but for the whole calls."""
    seed = graph.arity <= 1
    marginals = BeliefPropagation()(graph.keep(seed))
    bp = Propagation(wire(condition(graph)), None, 0.0, 0.0, "sequential")
    residuals = np.zeros(1)
    pairs = next(g for g in graph.groups if isinstance(g, Features) and g.arity == 2)
    out, probs = np.zeros(len(pairs)), np.ascontiguousarray(marginals.probs)
    return {
        "sweep": lambda: bp._sweeps(1, residuals),
        "gain": lambda: pairs.scores(probs, graph._offsets, "gain", out),
        "residual": lambda: pairs.scores(probs, graph._offsets, "residual", out),
        "gain call": lambda: factor_scores(graph, marginals, seed),
        "residual call": lambda: factor_scores(graph, marginals, seed, "residual"),
    }


def scan_missed(found: Found) -> list[str]:
    """The bars that the numbers miss, in words."""
    return [
        f"{name}: {what} is {row[what]:.2f}, more than {limit:.2f}"
        for name, row in found["models"].items()
        for what, limit in SCAN_BARS.items()
        if row[what] > limit
    ]


def scan_table(found: Found) -> str:
    body = []
    for name, row in found["models"].items():
        ms = {what: f"{seconds:.1f}" for what, seconds in row["ms"].items()}
        ratios = (f"{row[what]:.2f}" for what in SCAN_BARS)
        body.append([name, f"{row['factors']:,}", ms["sweep"], ms["gain"], ms["residual"], *ratios,
                     ms["gain call"], ms["residual call"]])  # fmt: skip
    head = ["model", "features", "sweep ms", "gains ms", "residuals ms", "gains / sweep"]
    head += ["residuals / gains", "call for gains ms", "call for residuals ms"]
    return table(head, body)


# ------------------------------------------------------------------ choosing


def selection(n: int = 1_000_000, rounds: int = 9) -> Found:
    """CPU milliseconds and ratios to minfer's time of every case: {"n", "rounds", "cases"}."""
    rng = np.random.default_rng(0)
    gains = rng.exponential(size=n)
    gains[rng.random(n) < 0.1] = 0.0
    gains[rng.random(n) < 0.01] = np.inf
    found = {}
    for name, runs in _choices(gains).items():
        times = in_turn(runs, rounds, timer=sample)
        ours = times["minfer"]
        found[name] = {
            "ms": {what: 1e3 * seconds for what, seconds in medians(times).items()},
            "ratio": {what: median_ratio(ours, x) for what, x in times.items() if x is not ours},
        }
    return {"n": n, "rounds": rounds, "numpy": np.__version__, "cases": found}


def _choices(gains: np.ndarray) -> dict[str, Runs]:
    """Name of a case -> what is timed in turn; "minfer" is ours."""
    ordered = np.sort(gains[np.isfinite(gains)])
    total = np.cumsum(ordered)
    sorts: Runs = {"argsort": partial(np.argsort, gains), "sort": partial(np.sort, gains)}
    objectives: dict[str, Any] = {}
    for share in (0.1, 0.5, 0.9, 0.999):
        k = int(share * len(ordered))
        objectives[f"MinSize, drops {share:.1%}"] = MinSize(float(total[k - 1] + total[k]) / 2)
    for m in (10, 1000, 100_000, 500_000):
        objectives[f"MinDivergence, keeps {m:,}"] = MinDivergence(m)
    out: dict[str, Runs] = {
        name: {"minfer": partial(o, gains), "paper": partial(o, gains, paper_order=True), **sorts}
        for name, o in objectives.items()
    }
    middle = float(np.median(ordered))
    out["MinJoint, keeps half"] = {
        "minfer": partial(MinJoint(middle), gains),
        "comparison": lambda: gains >= middle,
        "sum": lambda: gains.sum(),
        **sorts,
    }
    return out


def selection_missed(found: Found) -> list[str]:
    """The bars that the numbers miss, in words."""
    return [
        f"{name}: {ratio:.2f} of the time of {other}, more than {SELECTION_BARS[other]:.2f}"
        for name, case in found["cases"].items()
        for other, ratio in case["ratio"].items()
        if ratio > SELECTION_BARS.get(other, np.inf)
    ]


def selection_table(found: Found) -> str:
    columns = ["paper", "argsort", "sort", "comparison", "sum"]
    body = []
    for name, case in found["cases"].items():
        cells = [f"{case['ratio'][c]:.2f}" if c in case["ratio"] else "" for c in columns]
        body.append([name, f"{case['ms']['minfer']:.2f}", *cells])
    head = ["CPU time of minfer", "ms", "of the paper's order", "of np.argsort", "of np.sort"]
    return table([*head, "of gains >= c", "of gains.sum()"], body)


# ------------------------------------------------------------------ small models, large ones


def small() -> str:
    rng = np.random.default_rng(0)
    body = []
    for n in (2, 4, 6, 8, 10, 11, 12):
        edges = [(a, b) for a in range(n) for b in range(a) if rng.random() < 0.4] or [(0, 1)]
        graph = FactorGraph.pairwise(rng.normal(size=n), edges, rng.normal(size=len(edges)))
        solvers = {"table": Exact(), "tree": Exact(method="clique-tree")}
        best = least(in_turn({k: partial(s, graph) for k, s in solvers.items()}, 50))
        body.append([f"{n}", f"{len(edges)}", *(f"{1e3 * best[k]:.2f}" for k in solvers)])
    return table(["variables", "pairs", "table ms", "tree ms"], body)


def memory(bars: list[str], side: int = 2048) -> str:
    """The peak of a process that does nothing else, less what it had with the model built."""

    def resident() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    rng = np.random.default_rng(0)
    solver = BeliefPropagation(max_iters=5)
    solver(FactorGraph.grid(rng.normal(size=(8, 8)), 1.0)).log_z  # kernels in memory  # noqa: B018
    log_odds = rng.normal(size=(side, side))
    before = resident()
    graph = FactorGraph.grid(log_odds, 1.0)
    loaded = resident()
    messages = 4 * side * (side - 1)
    answer = solver(graph)
    used = peak() - loaded
    if used > 40 * messages:
        bars.append(f"memory: {used / messages:.1f} bytes a message, more than 40")
    return (
        f"{side}x{side} grid, {messages:,} directed messages, {answer.iterations} sweeps; model "
        f"{(loaded - before) / 2**20:.0f} MiB; peak beyond it {used / 2**20:.0f} MiB = "
        f"{used / messages:.1f} bytes a message"
    )


# ------------------------------------------------------------------ a call around its kernels


def shell(bars: list[str], rounds: int = 25) -> str:
    """CPU microseconds of calls on a small grid, and a ratio of times within ``infer``."""
    rng, bp = np.random.default_rng(0), BeliefPropagation()
    graph, field = FactorGraph.grid(rng.normal(size=(10, 10)), 1.0), rng.normal(size=200)
    prepared, seen = bp.prepare(graph), []
    new = iter([FactorGraph.grid(rng.normal(size=(10, 10)), 1.0) for _ in range(20 * rounds + 20)])

    def on_new_ones() -> None:
        for _ in range(20):
            bp(next(new))

    runs: Runs = {
        "a graph seen before": partial(bp, graph),
        "prepared": partial(prepared, field=field),
    }
    times = {
        what: 1e6 * np.median([sample(call) for _ in range(rounds)]) for what, call in runs.items()
    }
    on_new_ones()
    times["a new graph"] = 1e6 / 20 * np.median([cpu_seconds(on_new_ones) for _ in range(rounds)])
    model = FactorGraph.grid(5 * rng.normal(size=(64, 64)), 1.0)
    for _ in range(rounds):
        spent = infer(model, MinJoint(0.01), bp, recipe=Compensated(refreshes=0)).timings
        seen.append(sum(spent.values()) / (spent["seed"] + spent["infer"]))
    times["infer / its two runs"] = np.median(seen)
    for what, most in SHELL_BARS.items():
        if times[what] > most:
            bars.append(f"shell: {what} is {times[what]:.3g}, more than {most:g}")
    return table(
        ["what", "us, or a ratio", "aim"],
        [[k, f"{times[k]:.3g}", f"{SHELL_BARS[k]:g}"] for k in SHELL_BARS],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"{', '.join(PARTS)}; default all")
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed")
    asked = parser.parse_args()
    pin()
    bars: list[str] = []
    for part in asked.parts:
        if part == "scan":
            bars += scan_missed(found := scan())
            print(scan_table(found))
        elif part == "selection":
            bars += selection_missed(found := selection())
            print(selection_table(found))
        else:
            others = {
                "memory": partial(memory, bars),
                "small": small,
                "shell": partial(shell, bars),
            }
            print(others[part]())
    print("\n".join(bars) or "Every bar is met.")
    sys.exit(1 if asked.check and bars else 0)


if __name__ == "__main__":
    main()
