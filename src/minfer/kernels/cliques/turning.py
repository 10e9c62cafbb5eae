"""Tables with their variables in another order (:mod:`minfer.engine.contraction`).

What lies together in the new table and what lies together in the old one make a tile; tile by tile
is copied, so that neighbours are near each other on both sides, and scaled on the way.
"""

from minfer.kernels.compiling.jit import jit


@jit
def turn(values, starts, runs, inner, factor, out):
    """out[starts[t, 1] + runs[r, 1] + j] = factor values[starts[t, 0] + runs[r, 0] + inner[j]]"""
    for t in range(starts.shape[0]):
        for r in range(runs.shape[0]):
            old = starts[t, 0] + runs[r, 0]
            new = starts[t, 1] + runs[r, 1]
            for j in range(inner.size):
                out[new + j] = factor * values[old + inner[j]]
