"""Counting families, a variable and its parents each, in rows of states."""

from __future__ import annotations

from minfer.kernels._jit import jit


@jit
def count_families(known, fptr, scope, card, toff, weight, out):
    """Add the rows that know all of a family to its table.

    ``known`` int32 (V, N), negative where nothing is known; ``scope`` of family f from ``fptr[f]``
    on, the last variable fastest; tables begin at ``toff``. ``weight`` (N,), or empty: ones.
    """
    n = known.shape[1]
    weighted = weight.size > 0
    for f in range(fptr.size - 1):
        first, past = fptr[f], fptr[f + 1]
        base = toff[f]
        for r in range(n):
            code = 0
            there = True
            for k in range(first, past):
                v = scope[k]
                state = known[v, r]
                if state < 0:
                    there = False
                    break
                code = code * card[v] + state
            if there:
                out[base + code] += weight[r] if weighted else 1.0
