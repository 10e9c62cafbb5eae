"""Upper bounds on marginals where pairs favour equal values: :mod:`minfer.certified.potts`."""

import math

import numpy as np

from minfer.kernels._jit import jit


@jit
def lower_ups(sptr, nbr, units, delta, off, rho, slip, most, upper):
    """One sweep over all values; by how much all bounds together came down.

    Slots have ``units`` (S,), variables a unit ``delta`` (V,) of nats, values the odds ``rho`` of
    all others against them, rounded down (infinite where a value is impossible). ``most`` is the
    largest sum of units at a variable; ``slip`` the relative error of what is computed from
    ``rho``.

    Roundings: the exponent is moved outward by more than its two; r has those of an exponential and
    a product, q three more (``slip`` covers them, and those of m: d products and sums). Each q_j -
    beta j errs by 2 U (1 + beta j), the last line by as much again: 2^-50 (1 + beta N) is four
    times the sum.
    """
    q, r = np.empty(most + 1), np.empty(most + 1)
    fallen = 0.0
    for v in range(off.shape[0] - 1):
        n_units = 0
        for s in range(sptr[v], sptr[v + 1]):
            n_units += units[s]
        for j in range(n_units + 1):
            r[j] = math.exp(-(j * delta[v]) * (1.0 + 1e-15)) * (1.0 - slip)
        for i in range(off[v], off[v + 1]):
            if rho[i] == np.inf:
                fallen += upper[i]
                upper[i] = 0.0
                continue
            m = 0.0
            for s in range(sptr[v], sptr[v + 1]):
                m += units[s] * upper[off[nbr[s]] + i - off[v]]
            m *= 1.0 + slip
            for j in range(n_units + 1):
                q[j] = min(1.0, (1.0 + slip) / (1.0 + rho[i] * r[j]))
            beta, best = 0.0, 0  # the steepest line from q[0]
            for j in range(1, n_units + 1):
                if q[j] - q[0] > beta * j:
                    beta, best = (q[j] - q[0]) / j, j
            if m > best:
                j = int(m)
                beta = max(q[j + 1] - q[j], 0.0) if j < n_units else 0.0
            alpha = 0.0  # any beta will do, if the line is above all points
            for j in range(n_units + 1):
                alpha = max(alpha, q[j] - beta * j)
            bound = alpha + beta * m
            bound += 8.8817841970012523e-16 * (1.0 + beta * n_units + bound)
            if bound < upper[i]:
                fallen += upper[i] - bound
                upper[i] = bound
    return fallen
