"""Many graphs of one structure: abreast, against a loop of calls and against their union.

    taskset -c 0 python benchmarks/lanes_numbers.py

CPU time per graph, medians over rounds in which the ways take turns; ratios within a round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from minfer import BeliefPropagation, FactorGraph
from minfer.conditioning import condition
from minfer.graph import grid_edges
from minfer.solvers.abreast import Structure, abreast
from minfer.wiring import wire

SEED = 0


def grids(n: int, side: int, coupling: float) -> tuple[Structure, np.ndarray, list, FactorGraph]:
    """The structure, absorbed log-odds, the graphs one by one, and their union."""
    fields = np.random.default_rng(SEED).normal(size=(n, side * side))
    return _cases(fields, grid_edges(side, side), coupling, "equal")


def chains(n: int, length: int, coupling: float) -> tuple[Structure, np.ndarray, list, FactorGraph]:
    fields = np.random.default_rng(SEED).normal(size=(n, length))
    edges = np.array([[i, i + 1] for i in range(length - 1)], dtype=np.int32)
    return _cases(fields, edges, coupling, "equal")


def _cases(
    fields: np.ndarray, edges: np.ndarray, coupling: float, feature: str
) -> tuple[Structure, np.ndarray, list, FactorGraph]:
    n, size = fields.shape
    mesh = wire(condition(FactorGraph.pairwise(np.zeros(size), edges, coupling, feature)))
    graphs = [FactorGraph.pairwise(f, edges, coupling, feature) for f in fields]
    shifted = (edges[None] + size * np.arange(n)[:, None, None]).reshape(-1, 2)
    union = FactorGraph.pairwise(fields.ravel(), shifted, coupling, feature)
    return Structure.of(mesh), fields + mesh.lean, graphs, union


def measure(case: tuple, rounds: int = 5, log_z: bool = False) -> dict[str, float]:
    """Microseconds a graph of each way, and how many times sooner the lanes are."""
    structure, odds, graphs, union = case
    run = BeliefPropagation()
    some = graphs[:200]  # of the loop, whose cost does not depend on how many there are
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "loop": (lambda: [run(g).log_z if log_z else run(g) for g in some], len(some)),
        "union": (lambda: run(union), len(graphs)),
        "float64": (lambda: abreast(structure, odds, log_z=log_z), len(graphs)),
        "float32": (
            lambda: abreast(structure, odds, log_z=log_z, dtype=np.float32),
            len(graphs),
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for go, _ in ways.values():
        go()
    for _ in range(rounds):
        for name, (go, count) in ways.items():
            begin = time.process_time()
            go()
            times[name].append((time.process_time() - begin) / count * 1e6)
    out = {name: statistics.median(t) for name, t in times.items()}
    for base in ("loop", "union"):
        for name in ("float64", "float32"):
            ratios = [a / b for a, b in zip(times[base], times[name])]
            out[f"{base}/{name}"] = statistics.median(ratios)
    return out


def main() -> None:
    cases = {
        "chains of 20": chains(1000, 20, 1.0),
        "10x10, coupling 0.5": grids(1000, 10, 0.5),
        "10x10, coupling 1": grids(1000, 10, 1.0),
        "64x64, coupling 0.5": grids(40, 64, 0.5),
    }
    for name, case in cases.items():
        print(name)
        for key, value in measure(case).items():
            unit = "times sooner" if "/" in key else "us a graph"
            print(f"  {key:15} {value:9.2f} {unit}", flush=True)


if __name__ == "__main__":
    main()
