"""Gains of left-out factors under product marginals, one pass and no Python per factor.

    g = D(p_G || p_{G+i}) = log(1 - mu + mu e^theta) - mu theta          (binary feature)
    g = log E[Psi] - E[log Psi]                                           (table)

Riedel, Smith & McCallum (2010), section 3.1. The printed form of the first loses all digits for
small weights and overflows for large ones; with r = min(mu, 1 - mu) and s the weight turned
accordingly it is evaluated by a series, by log1p and expm1, or by its asymptote.
"""

import math

import numpy as np

from minfer.kernels._jit import jit


@jit
def feature_gain(mu, nu, theta):
    """Gain of a feature that is on with probability mu and off with nu = 1 - mu, given apart.

    Stable for all of [0, 1]: next to 1 only nu still has the digits.
    """
    r, s = (mu, theta) if mu <= nu else (nu, -theta)
    if r <= 0.0:
        return 0.0
    if abs(s) < 1e-3:
        v = r * (1.0 - r)
        skew = 1.0 - 2.0 * r
        return (
            v
            * s
            * s
            * (
                0.5
                + s
                * (skew / 6.0 + s * ((1.0 - 6.0 * v) / 24.0 + s * skew * (1.0 - 12.0 * v) / 120.0))
            )
        )
    if s > 30.0:
        return (1.0 - r) * s + math.log(r + (1.0 - r) * math.exp(-s))
    return math.log1p(r * math.expm1(s)) - r * s


@jit
def pair_feature_gains(scope, truth, theta, off, probs, out):
    """Gains of features over two binary variables; truth is (t00, t01, t10, t11)."""
    for f in range(scope.shape[0]):
        a, b = off[scope[f, 0]], off[scope[f, 1]]
        p00, p01 = probs[a] * probs[b], probs[a] * probs[b + 1]
        p10, p11 = probs[a + 1] * probs[b], probs[a + 1] * probs[b + 1]
        mu = truth[0] * p00 + truth[1] * p01 + truth[2] * p10 + truth[3] * p11
        nu = (1.0 - truth[0]) * p00 + (1.0 - truth[1]) * p01
        nu += (1.0 - truth[2]) * p10 + (1.0 - truth[3]) * p11
        out[f] = feature_gain(mu, nu, theta[f])


@jit
def feature_gains(mu, nu, theta, out):
    """Gains from the probabilities that features are on and off."""
    for f in range(theta.shape[0]):
        out[f] = feature_gain(mu[f], nu[f], theta[f])


@jit
def table_gains(joint, log_psi, out):
    """log E[Psi] - E[log Psi] of tables (F, n) under joints (F, n); infinite if a zero has mass."""
    single = log_psi.shape[0] == 1
    for f in range(joint.shape[0]):
        row = 0 if single else f
        mode = 0  # the most probable cell: log-tables are taken relative to its entry
        for i in range(joint.shape[1]):
            if joint[f, i] > joint[f, mode]:
                mode = i
        base = log_psi[row, mode]
        if base == -np.inf:
            out[f] = np.inf
            continue
        rise = mean = 0.0
        top = 0.0
        for i in range(joint.shape[1]):
            p = joint[f, i]
            if p > 0.0:
                x = log_psi[row, i] - base
                top = max(top, x + math.log(p))
                rise += p * math.expm1(min(x, 700.0))
                mean += p * x
        if top < 30.0:
            log_mean = math.log1p(rise)  # of E[Psi] / Psi(mode): accurate for small gains
        else:
            total = 0.0
            for i in range(joint.shape[1]):
                if joint[f, i] > 0.0:
                    total += math.exp(log_psi[row, i] - base + math.log(joint[f, i]) - top)
            log_mean = top + math.log(total)
        out[f] = max(log_mean - mean, 0.0)  # infinite where the mean is minus infinity
