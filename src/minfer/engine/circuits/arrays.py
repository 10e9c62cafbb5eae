"""A circuit as arrays: what the search makes and what passes over it read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class CircuitArrays(NamedTuple):
    """N nodes, children before parents. The value of node i is the sum over its edges e in
    eptr[i]:eptr[i+1] of

        weight[e] * likelihood[variable[i], state[e]] * product of child[cptr[e]:cptr[e+1]]'s values

    and Z = exp(log_scale) * product of the values of ``roots``. Every free variable of the model
    occurs exactly once below the roots in each product (smooth and decomposable), so marginals are
    flows. Edges of weight zero are not stored. Variables that are not the model's (of chains of
    automata) have the numbers V, V+1, ...; readers ignore them.
    """

    variable: NDArray[np.int32]  # (N,) a variable of the model
    eptr: NDArray[np.int64]  # (N+1,)
    state: NDArray[np.int32]  # (E,) a state of that variable
    weight: NDArray[np.float64]  # (E,) > 0, linear
    cptr: NDArray[np.int64]  # (E+1,)
    child: NDArray[np.int32]  # (C,)
    roots: NDArray[np.int32]  # (R,)
    log_scale: float
    keyed: int = 0  # rests that were told apart by keys, while it was made


def grown(array: NDArray, size: int) -> NDArray:
    """The same numbers with room behind. An array that owns its memory grows in place, which costs
    no second copy of it where the system can move pages; nobody else may be reading it."""
    if array.flags.owndata and array.flags.writeable:
        array.resize((size, *array.shape[1:]), refcheck=False)
        return array
    out = np.empty((size, *array.shape[1:]), dtype=array.dtype)
    out[: len(array)] = array
    return out
