"""States that some best assignment of a binary pairwise model has, whatever its signs: QPBO.

Every variable is doubled, x and its opposite; pairs with a negative price link x_i with the
opposite of x_j instead, so the doubled model has no negative price and is a cut (Hammer, Hansen &
Simeone 1984; Kolmogorov & Rother 2007). Its maximum is the bound of the relaxation with
half-integers (roof duality). Where x and its opposite come out opposite, some best assignment has
that state (persistency), all of them together.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from minfer.queries.map.flow import Ising, best_cut


def persistent(model: Ising) -> tuple[NDArray[np.int32], float]:
    """The state of each variable, or -1 where nothing is known; and a bound on every score."""
    n = len(model.unary)
    i, j = model.pairs.T
    negative = model.price < 0.0
    other = np.where(negative, n, 0)
    pairs = np.concatenate(
        [np.stack([i, j + other], axis=1), np.stack([i + n, j + n - other], axis=1)]
    )
    half = np.abs(model.price) / 2.0
    y, top = best_cut(
        np.concatenate([model.unary, -model.unary]) / 2.0, pairs, np.concatenate([half, half])
    )
    constant = math.fsum(
        [
            model.constant,
            *(model.unary / 2.0).tolist(),
            *(-model.price[negative]).tolist(),
        ]
    )
    bound = constant + top
    bound += model.slack + 4.0 * 2.0**-52 * (abs(constant) + abs(top))
    return np.where(y[:n] != y[n:], y[:n], -1).astype(np.int32), bound
