"""Probabilities of independent variables, in vectors."""

import numpy as np

from minfer.kernels.arithmetic.addresses import L, address
from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.vectors import exp_from_top, multiply


@jit
def softmax(log_field, off, out):
    """Probabilities of independent variables into ``out``; log of the sum over all assignments."""
    log_z, few = 0.0, np.zeros(L)
    for v in range(off.shape[0] - 1):
        at, n = address(out) + 8 * off[v], off[v + 1] - off[v]
        top, _, mass = exp_from_top(address(log_field) + 8 * off[v], at, n, address(few))
        log_z += top + np.log(mass)
        multiply(at, 1.0 / mass, n)
    return log_z
