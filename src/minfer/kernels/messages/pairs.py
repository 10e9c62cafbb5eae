"""The identity that every solver's treatment of binary pairs stands on.

A 2x2 table without zeros is a constant, two unaries and one conjunction: with y in {0, 1},

    log psi(y_a, y_b) = t00 + ua y_a + ub y_b + w y_a y_b,   e^w = psi11 psi00 / (psi01 psi10).

(:func:`minfer.factors.interaction` is w for whole arrays.)
"""

from minfer.kernels.compiling.jit import jit


@jit
def split_pair(t00, t01, t10, t11):
    """(ua, ub, w) of a log-table; t00 is the constant."""
    ua, ub = t10 - t00, t01 - t00
    return ua, ub, (t11 - t10) - ub


@jit
def pair_table(values, basis, row):
    """Row ``row`` of ``values @ basis``: a log-table (00, 01, 10, 11)."""
    t00 = t01 = t10 = t11 = 0.0
    for k in range(values.shape[1]):
        x = values[row, k]
        t00 += x * basis[k, 0]
        t01 += x * basis[k, 1]
        t10 += x * basis[k, 2]
        t11 += x * basis[k, 3]
    return t00, t01, t10, t11
