"""Where to draw the variables of a small graph: stress majorisation.

Positions X minimise  sum_{i<j} (|X_i - X_j| - d_ij)^2 / d_ij^2  with d the number of edges between
two nodes (Gansner, Koren & North 2005): neighbours come out equally far apart, grids as grids.
Each round solves one linear system with the same matrix, whose inverse is computed once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 200
_ENOUGH = 1e-5  # relative change of the stress at which it stops


def stress_layout(n: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Positions (n, 2) of nodes joined by ``edges`` (E, 2); x from 0 to 1, y from 0 on, wide side
    first. The same graph always gives the same drawing."""
    if n <= 1:
        return np.zeros((n, 2))
    d = _distances(n, edges)
    weight = np.where(d > 0, 1 / np.maximum(d, 1) ** 2, 0.0)
    inverse = np.linalg.pinv(np.diag(weight.sum(axis=1)) - weight)
    x = _start(d)
    before = np.inf
    for _ in range(_ROUNDS):
        apart = np.linalg.norm(x[:, None] - x[None], axis=2)
        stress = float((weight * (apart - d) ** 2).sum())
        if before - stress <= _ENOUGH * stress:
            break
        before = stress
        pull = weight * d / np.maximum(apart, 1e-9)
        x = inverse @ (np.diag(pull.sum(axis=1)) - pull) @ x
    return _upright(x)


def _distances(n: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Edges on the shortest way between all nodes, (n, n); parts are put beside each other."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import shortest_path

    i, j = np.asarray(edges, dtype=np.int64).reshape(-1, 2).T
    links = coo_array((np.ones(len(i)), (i, j)), shape=(n, n)).tocsr()
    d = np.asarray(shortest_path(links, directed=False, unweighted=True))
    reach = d[np.isfinite(d)].max(initial=1.0)
    return np.where(np.isfinite(d), d, reach + 1)


def _start(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """Classical scaling, and a little spiral that tells nodes apart which it puts on one spot."""
    centred = -0.5 * d**2
    centred = centred - centred.mean(axis=0) - centred.mean(axis=1)[:, None] + centred.mean()
    value, vector = np.linalg.eigh(centred)
    x = vector[:, -2:] * np.sqrt(np.maximum(value[-2:], 0.0))
    angle = np.arange(len(d)) * np.pi * (3 - np.sqrt(5))
    return x + 0.05 * np.sqrt(np.arange(len(d)))[:, None] * np.stack(
        [np.cos(angle), np.sin(angle)], axis=1
    )


def _upright(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turned so that the box around it is smallest and lies across, and scaled to width 1."""

    def turned(angle: float) -> NDArray[np.float64]:
        c, s = np.cos(angle), np.sin(angle)
        y = x @ np.array([[c, -s], [s, c]])
        return y - y.min(axis=0)

    x = min((turned(a) for a in np.linspace(0, np.pi / 2, 91)), key=lambda y: y.max(axis=0).prod())
    if x[:, 1].max() > x[:, 0].max():
        x = x[:, ::-1]
    return x / max(float(x[:, 0].max()), 1e-9)
