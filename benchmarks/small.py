"""Exact marginals of small models: by the joint table, and by a clique tree.

    python benchmarks/small.py

Milliseconds of CPU of a call, the least of 50, in turns; binary variables, 40 % of all pairs. The
numbers of docs/architecture.md, section Exact.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from minfer import Exact, FactorGraph
from minfer_experiments import measure


def model(n: int, rng: np.random.Generator) -> FactorGraph:
    edges = [(a, b) for a in range(n) for b in range(a) if rng.random() < 0.4] or [(0, 1)]
    return FactorGraph.pairwise(rng.normal(size=n), edges, rng.normal(size=len(edges)))


def main() -> None:
    measure.pin()
    rng = np.random.default_rng(0)
    print(f"{'variables':>9}{'pairs':>7}{'table':>8}{'tree':>8}")
    for n in (2, 4, 6, 8, 10, 11, 12):
        graph = model(n, rng)
        solvers = {"table": Exact(), "tree": Exact(method="clique-tree")}
        calls = {name: partial(solver, graph) for name, solver in solvers.items()}
        best = measure.least(measure.in_turn(calls, 50))
        pairs = graph.n_factors - n
        print(f"{n:9d}{pairs:7d}{1e3 * best['table']:8.2f}{1e3 * best['tree']:8.2f}")


if __name__ == "__main__":
    main()
