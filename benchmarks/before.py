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
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1]


def measure() -> dict[str, tuple[float, int]]:
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
    calls = {
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
    for name, (graph, solver, repeats) in calls.items():
        iterations, times = solver(graph).iterations, []
        for _ in range(repeats):
            begin = time.process_time()
            solver(graph)
            times.append(time.process_time() - begin)
        out[name] = float(np.median(times)) * 1e3, iterations
    dense = calls["700 variables, 20,000 pairs"][0]
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
    times = []
    for _ in range(4):
        took = []
        for n in (few, many):
            run = make(max_iters=n, tol=0.0).prepare(graph)
            begin = time.process_time()
            run()
            took.append(time.process_time() - begin)
        times.append((took[1] - took[0]) / (many - few))
    return float(np.median(times)) * 1e3


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("checkout", type=Path, nargs="?", help="the other code")
    cli.add_argument("--rounds", type=int, default=3)
    asked = cli.parse_args()
    if asked.checkout is None:  # a child
        print(json.dumps(measure()))
        return
    rounds = []
    for _ in range(asked.rounds):
        pair = []
        for root in (HERE, asked.checkout.resolve()):
            run = [sys.executable, __file__]
            env = {**os.environ, "PYTHONPATH": str(root / "src")}
            done = subprocess.run(run, env=env, check=True, stdout=subprocess.PIPE, text=True)
            pair.append(json.loads(done.stdout))
        rounds.append(pair)
    print("| call | ms | ms, other | ratio | iterations | other |\n|---|---|---|---|---|---|")
    for name in rounds[0][0]:
        new, old = ([r[k][name][0] for r in rounds] for k in (0, 1))
        ratio = np.median(np.array(new) / np.array(old))
        its = [r[name][1] for r in rounds[0]]
        print(
            f"| {name} | {np.median(new):.3g} | {np.median(old):.3g} | {ratio:.2f} | {its[0]} "
            f"| {its[1]} |"
        )


if __name__ == "__main__":
    main()
