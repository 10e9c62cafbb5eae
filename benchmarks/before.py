"""The same calls on this code and on another checkout: ``python benchmarks/before.py CHECKOUT``.

Both run in processes of their own, in turn, ``--rounds`` times; a call's time is the median of its
CPU times in a round, and the ratio printed is the median over rounds, this code to the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from stopwatch import measure

HERE = Path(__file__).resolve().parents[1]


def calls() -> dict[str, tuple[float, int]]:
    """Milliseconds and iterations of each call, with the minfer that is on the path."""
    from minfer import BeliefPropagation, FactorGraph, MeanField, TreeReweighted

    rng = np.random.default_rng(0)
    pairs = rng.integers(700, size=(20_000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pixel = np.arange(576).reshape(24, 24)
    edges = np.stack([pixel[:, :-1].ravel(), pixel[:, 1:].ravel()], axis=1).tolist()
    edges += np.stack([pixel[:-1].ravel(), pixel[1:].ravel()], axis=1).tolist()
    tables = [rng.normal(size=12) for _ in range(576)]
    tables += [rng.normal(size=(12, 12)) * 0.5 for _ in edges]
    grid = FactorGraph.grid(rng.normal(size=(64, 64)), 1.0)
    chain = [[i, i + 1] for i in range(999)]
    solved = {
        "10x10 grid": (FactorGraph.grid(rng.normal(size=(10, 10)), 1.0), BeliefPropagation(), 200),
        "64x64 grid": (grid, BeliefPropagation(), 20),
        "64x64 grid, alpha 5": (
            FactorGraph.grid(5 * rng.normal(size=(64, 64)), 1.0), BeliefPropagation(), 40,
        ),
        "700 variables, 20,000 pairs": (
            FactorGraph.pairwise(
                rng.normal(size=700), pairs, rng.normal(size=len(pairs)) * 0.1, feature="equal"
            ), BeliefPropagation(), 40,
        ),
        "chain of 1,000": (
            FactorGraph.pairwise(rng.normal(size=1000), chain, 1.0, feature="equal"),
            BeliefPropagation(), 60,
        ),
        "24x24 grid, 12 states": (
            FactorGraph.from_tables([12] * 576, [[v] for v in range(576)] + edges, tables),
            BeliefPropagation(), 6,
        ),
        "64x64 grid, TRW": (grid, TreeReweighted(), 5),
        "64x64 grid, mean field": (grid, MeanField(), 5),
    }  # fmt: skip
    out = {}
    for name, (graph, solver, repeats) in solved.items():
        iterations = solver(graph).iterations
        out[name] = 1e3 * measure.usual(partial(solver, graph), repeats), iterations
    dense = solved["700 variables, 20,000 pairs"][0]
    sharp = FactorGraph.grid(5 * rng.normal(size=(64, 64)) - 2, 2.0)
    large = FactorGraph.grid(3 * rng.normal(size=(512, 512)) - 2, 2.0)
    for name, graph, make, few, many in (
        ("a sweep, 64x64", sharp, BeliefPropagation, 20, 220),
        ("a sweep, 512x512", large, BeliefPropagation, 2, 12),
        ("a sweep, 20,000 pairs", dense, BeliefPropagation, 20, 220),
        ("a sweep, 64x64, TRW", sharp, TreeReweighted, 20, 120),
    ):
        out[name] = _sweep(graph, make, few, many), many - few
    return out


def _sweep(graph: Any, make: Any, few: int, many: int) -> float:
    """Milliseconds that one sweep more takes: many against few, none of which converge."""
    prepare = {n: lambda n=n: make(max_iters=n, tol=0.0).prepare(graph) for n in (few, many)}
    took = measure.in_turn(
        prepare, 4, warm_up=False, timer=lambda made: measure.cpu_seconds(made())
    )
    return 1e3 * median(b - a for a, b in zip(took[few], took[many])) / (many - few)


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("checkout", type=Path, nargs="?", help="the other code")
    cli.add_argument("--rounds", type=int, default=3)
    asked = cli.parse_args()
    if asked.checkout is None:  # a child
        print(json.dumps(calls()))
        return
    from minfer.experiments.pages import table

    def ask(root: Path) -> dict[str, tuple[float, int]]:
        run = [sys.executable, __file__]
        env = {**os.environ, "PYTHONPATH": str(root / "src")}
        done = subprocess.run(run, env=env, check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)

    roots = {"new": HERE, "old": asked.checkout.resolve()}
    asks = {key: partial(ask, root) for key, root in roots.items()}
    found = measure.in_turn(asks, asked.rounds, warm_up=False, timer=measure.told)
    rows = []
    for name, (_, iterations) in found["new"][0].items():
        new, old = ([answer[name][0] for answer in found[key]] for key in roots)
        ratio = measure.median_ratio(new, old)
        cells = f"{median(new):.3g}", f"{median(old):.3g}", f"{ratio:.2f}"
        rows.append([name, *cells, str(iterations), str(found["old"][0][name][1])])
    print(table(["call", "ms", "ms, other", "ratio", "iterations", "other"], rows))


if __name__ == "__main__":
    main()
