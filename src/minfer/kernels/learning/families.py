"""Counting families, a variable and its parents each, in rows of states."""

from __future__ import annotations

import numpy as np

from minfer.kernels.compiling.jit import jit

_ROWS = 512


@jit
def count_families(known, fptr, scope, card, toff, weight, out):
    """Add the rows that know all of a family to its table.

    ``known`` int32 (V, N), negative where nothing is known; ``scope`` of family f from ``fptr[f]``
    on, the last variable fastest; tables begin at ``toff``. ``weight`` (N,), or empty: ones.
    """
    n = known.shape[1]
    weighted = weight.size > 0
    cell = np.empty(_ROWS, np.int64)  # of a block of rows, in the family's table
    sign = np.empty(_ROWS, np.int32)  # negative where a state is
    for f in range(fptr.size - 1):
        for begin in range(0, n, _ROWS):
            size = min(_ROWS, n - begin)
            cell[:size] = toff[f]
            sign[:size] = 0
            stride = 1
            for k in range(fptr[f + 1] - 1, fptr[f] - 1, -1):
                v = scope[k]
                for i in range(size):
                    state = known[v, begin + i]
                    cell[i] += stride * state
                    sign[i] |= state
                stride *= card[v]
            for i in range(size):
                if sign[i] >= 0:
                    out[cell[i]] += weight[begin + i] if weighted else 1.0
