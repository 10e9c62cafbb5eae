"""The benchmark problems: seeded pairwise models as plain arrays.

Every problem is p(y) ∝ exp(sum_v unary[v, y_v] + sum_e tables[e, y_a, y_b]), (a, b) = edges[e].
The binary ones also carry the compact form (log_odds, weights, feature): "equal" scores
weight * [y_a = y_b], "and" scores weight * y_a * y_b.

The picture under the Ising grids is a disc. It was chosen among about twenty because the number of
iterations it needs (flooding 31 and 51 on P1a5 and P1a1) is that of typical noisy pictures; on much
easier ones (8 iterations) the time to build a graph would count for more, and ratios to tools whose
set-up is left out would be smaller. Seed 1 of P4i is one on which sequential and flooding belief
propagation reach the same fixed point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F8 = NDArray[np.float64]
I4 = NDArray[np.int32]


@dataclass(frozen=True)
class Problem:
    """A pairwise model in which every variable has the same number of states."""

    name: str
    about: str
    unary: F8  # [V, S] log-potentials
    edges: I4  # [E, 2]
    tables: F8  # [E, S, S] log-potentials
    shape: tuple[int, int] | None = None  # rows, columns of a grid in row-major order
    log_odds: F8 | None = None  # [V], binary problems only
    weights: F8 | None = None  # [E], binary problems only
    feature: str | None = None  # "equal" or "and"

    @property
    def n_vars(self) -> int:
        return self.unary.shape[0]

    @property
    def n_states(self) -> int:
        return self.unary.shape[1]

    @property
    def binary(self) -> bool:
        return self.feature is not None


def grid_edges(rows: int, cols: int) -> I4:
    """Horizontal, then vertical neighbours of a rows x cols grid in row-major order."""
    ids = np.arange(rows * cols, dtype=np.int32).reshape(rows, cols)
    across = np.stack([ids[:, :-1].ravel(), ids[:, 1:].ravel()], axis=1)
    down = np.stack([ids[:-1].ravel(), ids[1:].ravel()], axis=1)
    return np.concatenate([across, down])


def noisy_image(rows: int, cols: int, rng: np.random.Generator) -> F8:
    """A filled disc (1 on 0, radius a quarter of the side) plus N(0, 0.3), centred to mean 0."""
    r, c = np.mgrid[:rows, :cols]
    disc = np.hypot((r + 0.5) / rows - 0.5, (c + 0.5) / cols - 0.5) < 0.25
    x = disc + rng.normal(0, 0.3, (rows, cols))
    return x - x.mean()


def ising(name: str, rows: int, cols: int, alpha: float, seed: int) -> Problem:
    """p(y) ∝ exp(sum_edges [y_i = y_j] + alpha * sum_i x_i y_i) with x a noisy image."""
    log_odds = alpha * noisy_image(rows, cols, np.random.default_rng(seed)).ravel()
    edges = grid_edges(rows, cols)
    return Problem(
        name=name,
        about=f"{rows}x{cols} Ising grid, alpha {alpha:g}",
        unary=np.stack([np.zeros_like(log_odds), log_odds], axis=1),
        edges=edges,
        tables=np.broadcast_to(np.eye(2), (len(edges), 2, 2)),
        shape=(rows, cols),
        log_odds=log_odds,
        weights=np.ones(len(edges)),
        feature="equal",
    )


def dense_pairs(name: str, n_vars: int, n_pairs: int, seed: int) -> Problem:
    """Distinct random pairs with score w * y_a * y_b, w ~ N(0, 0.3), log-odds ~ N(0, 1)."""
    rng = np.random.default_rng(seed)
    a, b = np.triu_indices(n_vars, 1)
    chosen = np.sort(rng.choice(len(a), n_pairs, replace=False))
    weights = rng.normal(0, 0.3, n_pairs)
    log_odds = rng.normal(0, 1, n_vars)
    tables = np.zeros((n_pairs, 2, 2))
    tables[:, 1, 1] = weights
    return Problem(
        name=name,
        about=f"{n_vars} binary variables, {n_pairs:,} random conjunctions",
        unary=np.stack([np.zeros(n_vars), log_odds], axis=1),
        edges=np.stack([a[chosen], b[chosen]], axis=1).astype(np.int32),
        tables=tables,
        log_odds=log_odds,
        weights=weights,
        feature="and",
    )


def potts_like(
    name: str, rows: int, cols: int, states: int, table_scale: float, seed: int
) -> Problem:
    """A grid with N(0, 1) log unaries and dense table_scale * N(0, 1) log tables."""
    rng = np.random.default_rng(seed)
    edges = grid_edges(rows, cols)
    return Problem(
        name=name,
        about=f"{rows}x{cols} grid, {states} states, dense tables",
        unary=rng.normal(0, 1, (rows * cols, states)),
        edges=edges,
        tables=table_scale * rng.normal(0, 1, (len(edges), states, states)),
        shape=(rows, cols),
    )


PROBLEMS = {
    "P1a5": lambda: ising("P1a5", 64, 64, 5.0, seed=1),
    "P1a1": lambda: ising("P1a1", 64, 64, 1.0, seed=1),
    "P2a5": lambda: ising("P2a5", 512, 512, 5.0, seed=2),
    "P3": lambda: dense_pairs("P3", 700, 20_000, seed=3),
    "P4i": lambda: ising("P4i", 10, 10, 1.0, seed=1),
    "P4m": lambda: potts_like("P4m", 6, 4, 12, 1.0, seed=5),
    "G12": lambda: potts_like("G12", 64, 64, 12, 0.5, seed=6),
}


def load(name: str) -> Problem:
    """The problem of that name; the same arrays on every call."""
    return PROBLEMS[name]()
