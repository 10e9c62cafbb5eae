"""Orders for the search: several greedy eliminations of the core, the best by its forecast."""

from __future__ import annotations

import numpy as np

from minfer.engine.circuits.core import Bottom, Core, Ready, core_of, links_of
from minfer.engine.elimination import eliminate_by


def chosen(start: Ready, bottom: Bottom, deadline: float) -> Core:
    left = bottom.arrays.left & start.free
    links = links_of(bottom.tables, [g.scope for g in start.machines], left)
    n = len(links.variables)
    best = None
    for seed in range(12):
        for kind in (0, 1):
            found = eliminate_by(
                links, kind, seed, best.cells if best else np.inf, "x", None, 3e7, 1e9
            )
            if found.n_done == n and (best is None or found.cells < best.cells):
                best = found
    rank = np.zeros(len(left), dtype=np.int64)
    rank[links.variables[best.order[::-1]]] = np.arange(n)
    return core_of(start, bottom, rank)
