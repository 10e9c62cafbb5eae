"""Scores of left-out factors under product marginals, one pass and no Python per factor.

    gain      g = D(p_G || p_{G+i}) = log(1 - mu + mu e^theta) - mu theta     (binary feature)
              g = log E[Psi] - E[log Psi]                                     (table)
    reverse   D(p_{G+i} || p_G) = E[Psi log Psi] / E[Psi] - log E[Psi]
    residual  1/2 w^2 v_a v_b, for tables 1/2 E[R^2], R = log Psi - its best sum of unary terms

Riedel, Smith & McCallum (2010), section 3.1, for the first. Its printed form loses all digits for
small weights and overflows for large ones; with r = min(mu, 1 - mu) and s the weight turned
accordingly it is evaluated by a series, by log1p and expm1, or by its asymptote. ``gain_block``
does so for a block at once in a form that LLVM vectorises: with x = r expm1(s)

    g = r (expm1(s) - s) + (log1p(x) - x),

both parts without cancellation, the second by its series where x is small, and only in blocks
where some x is not small by a logarithm. A factor's gain never depends on its neighbours.
"""

import math

import numpy as np

from minfer.kernels.arithmetic.powers import LN2, LN2_HI, LN2_LO, LOG2E, MAGIC, SQRT_HALF
from minfer.kernels.arithmetic.vexp import bits_of, double_of
from minfer.kernels.compiling.jit import jit

_BLOCK = 512
_SMALL, _LARGE = 1e-3, 30.0  # |theta| below which a series serves; above which no block does
_NEAR = 1 / 64  # |x| up to which nine terms of log1p(x) do


@jit
def feature_gain(mu, nu, theta):
    """Gain of a feature that is on with probability mu and off with nu = 1 - mu, given apart: next
    to 1 only nu still has the digits."""
    r, s = (mu, theta) if mu <= nu else (nu, -theta)
    if r <= 0.0:
        return 0.0
    if abs(s) < _SMALL:
        v = r * (1.0 - r)
        skew = 1.0 - 2.0 * r
        third = skew * (1.0 - 12.0 * v) / 120.0
        return v * s * s * (0.5 + s * (skew / 6.0 + s * ((1.0 - 6.0 * v) / 24.0 + s * third)))
    if s > 700.0:
        return (1.0 - r) * s + math.log(r + (1.0 - r) * math.exp(-s))
    return math.log1p(r * math.expm1(s)) - r * s


@jit(fastmath={"contract"})
def gain_block(mu, nu, theta, x, out):
    """As ``feature_gain`` for arrays that fit into cache; relative error below 1e-12. ``x`` is room
    of their size. Up to 1/2 only mu counts, beyond only nu."""
    far = extreme = 0
    for i in range(mu.size):
        flip = mu[i] > 0.5
        r = nu[i] if flip else mu[i]
        s = -theta[i] if flip else theta[i]
        # s = e ln 2 + d: expm1(s) - s = 2^e (e^d - 1 - d) + (2^e - 1) (1 + d) - e ln 2
        t = s * LOG2E + MAGIC
        e = t - MAGIC
        d = (s - e * LN2_HI) - e * LN2_LO
        d2 = d * d
        d4 = d2 * d2
        low = (0.5 + d * (1.0 / 6.0)) + d2 * (1.0 / 24.0 + d * (1.0 / 120.0))
        mid = (1.0 / 720.0 + d * (1.0 / 5040.0)) + d2 * (1.0 / 40320.0 + d * (1.0 / 362880.0))
        q = d2 * (low + d4 * (mid + d4 * (1.0 / 3628800.0 + d * (1.0 / 39916800.0))))
        power = double_of((bits_of(t) + 1023) << 52)
        h = power * q + ((power - 1.0) * (1.0 + d) - e * LN2)
        y = r * (h + s)
        y2 = y * y
        low = (y * (1.0 / 3.0) - 0.5) + y2 * (y * (1.0 / 5.0) - 1.0 / 4.0)
        high = (y * (1.0 / 7.0) - 1.0 / 6.0) + y2 * (y * (1.0 / 9.0) - 1.0 / 8.0)
        out[i] = r * h + y2 * (low + (y2 * y2) * high)
        x[i] = y
        far += abs(y) > _NEAR
        extreme += abs(s) > _LARGE
    if far:
        _far_gains(mu, nu, theta, x, out)
    if extreme:
        for i in range(mu.size):
            if abs(theta[i]) > _LARGE:
                out[i] = feature_gain(mu[i], nu[i], theta[i])


@jit(fastmath={"contract"})
def _far_gains(mu, nu, theta, x, out):
    """Gains log1p(x) - r s where |x| is not small; the others stay."""
    for i in range(mu.size):
        flip = mu[i] > 0.5
        r = nu[i] if flip else mu[i]
        s = -theta[i] if flip else theta[i]
        # 1 + x = 2^k m: log1p(x) = k ln 2 + 2 atanh(f), f = x / (2 + x) where k = 0
        y = x[i]
        bits = bits_of(1.0 + y)
        m = double_of((bits & 0x000FFFFFFFFFFFFF) | 0x3FE0000000000000)
        small = m < SQRT_HALF
        m = m + m if small else m
        k = double_of(((bits >> 52) & 0x7FF) | 0x4330000000000000) - (4503599627370496.0 + 1022.0)
        k = k - 1.0 if small else k
        f = (y if k == 0.0 else m - 1.0) / (2.0 + y if k == 0.0 else m + 1.0)
        g = f * f
        g2 = g * g
        g4 = g2 * g2
        low = (1.0 / 3.0 + g * (1.0 / 5.0)) + g2 * (1.0 / 7.0 + g * (1.0 / 9.0))
        mid = (1.0 / 11.0 + g * (1.0 / 13.0)) + g2 * (1.0 / 15.0 + g * (1.0 / 17.0))
        p = g * (low + g4 * (mid + g4 * (1.0 / 19.0 + g * (1.0 / 21.0))))
        gain = k * LN2_HI + (k * LN2_LO + 2.0 * (f + f * p)) - r * s
        out[i] = gain if abs(y) > _NEAR else out[i]


@jit
def feature_gains(mu, nu, theta, out):
    """Gains from the probabilities that features are on and off."""
    n = theta.shape[0]
    x = np.empty(min(n, _BLOCK))
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        room = x[: end - start]
        gain_block(mu[start:end], nu[start:end], theta[start:end], room, out[start:end])


@jit
def pair_gains(scope, truth, theta, probs, out):
    """Gains of features over two binary variables with marginals ``probs`` (V, 2), read-only."""
    n = scope.shape[0]
    mu, nu, x = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        size = end - start
        _pair_means(scope[start:end], truth, probs, mu[:size], nu[:size])
        gain_block(mu[:size], nu[:size], theta[start:end], x[:size], out[start:end])


@jit(fastmath={"contract"})
def _pair_means(scope, truth, probs, mu, nu):
    """Probabilities that features are on and off, the smaller one of them to all its digits."""
    t00, t01, t10, t11 = truth[0], truth[1], truth[2], truth[3]
    u00, u01, u10, u11 = 1.0 - t00, 1.0 - t01, 1.0 - t10, 1.0 - t11
    if u00 * u01 * u10 * t11 == 1.0:  # a conjunction
        for i in range(mu.size):
            a, b = np.uint32(scope[i, 0]), np.uint32(scope[i, 1])
            mu[i] = probs[a, 1] * probs[b, 1]
        often = 0
        for i in range(mu.size):
            nu[i] = 1.0 - mu[i]
            often += mu[i] > 0.5
        if often:
            for i in range(mu.size):
                a, b = np.uint32(scope[i, 0]), np.uint32(scope[i, 1])
                nu[i] = probs[a, 0] + probs[a, 1] * probs[b, 0]
        return
    for i in range(mu.size):
        a, b = np.uint32(scope[i, 0]), np.uint32(scope[i, 1])
        b0, b1 = probs[b, 0], probs[b, 1]
        mu[i] = probs[a, 0] * (t00 * b0 + t01 * b1) + probs[a, 1] * (t10 * b0 + t11 * b1)
        nu[i] = probs[a, 0] * (u00 * b0 + u01 * b1) + probs[a, 1] * (u10 * b0 + u11 * b1)


@jit(fastmath={"contract"})
def pair_residuals(scope, theta, slope, probs, out):
    """1/2 w^2 v_a v_b, w = slope * theta; variances v from the marginals ``probs`` (V, 2)."""
    half = 0.5 * slope * slope
    for f in range(scope.shape[0]):
        a, b = np.uint32(scope[f, 0]), np.uint32(scope[f, 1])
        both = (probs[a, 0] * probs[a, 1]) * (probs[b, 0] * probs[b, 1])
        out[f] = half * theta[f] * theta[f] * both


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


@jit
def table_reverse_gains(joint, log_psi, out):
    """E[Psi log Psi] / E[Psi] - log E[Psi]; infinite only if all mass lies on zeros."""
    single = log_psi.shape[0] == 1
    for f in range(joint.shape[0]):
        row = 0 if single else f
        top = -np.inf
        for i in range(joint.shape[1]):
            if joint[f, i] > 0.0:
                top = max(top, log_psi[row, i])
        if top == -np.inf:
            out[f] = np.inf
            continue
        mean = weighted = 0.0
        for i in range(joint.shape[1]):
            x = log_psi[row, i] - top
            if joint[f, i] > 0.0 and x > -np.inf:
                p = joint[f, i] * math.exp(x)
                mean += p
                weighted += p * x
        out[f] = max(weighted / mean - math.log(mean), 0.0)


@jit
def table_residuals(joint, log_psi, sizes, out):
    """1/2 E[R^2], R = T - sum_a E[T | x_a] + (A - 1) E[T], what no sum of unary terms explains,
    ``joint`` (F, n) being products of marginals; infinite if a zero has mass."""
    single = log_psi.shape[0] == 1
    arity, n = sizes.shape[0], joint.shape[1]
    start = np.zeros(arity + 1, np.int64)
    for a in range(arity):
        start[a + 1] = start[a] + sizes[a]
    state = np.zeros((n, arity), np.int64)  # where each cell's states lie in ``mass``
    for i in range(n):
        rest = i
        for a in range(arity - 1, -1, -1):
            state[i, a] = start[a] + rest % sizes[a]
            rest //= sizes[a]
    mass, given = np.empty(start[arity]), np.empty(start[arity])
    for f in range(joint.shape[0]):
        row = 0 if single else f
        mean = 0.0
        for j in range(start[arity]):
            mass[j] = given[j] = 0.0
        for i in range(n):
            p = joint[f, i]
            if p > 0.0:
                x = p * log_psi[row, i]
                mean += x
                for a in range(arity):
                    mass[state[i, a]] += p
                    given[state[i, a]] += x
        if mean == -np.inf:
            out[f] = np.inf
            continue
        for j in range(start[arity]):
            given[j] = given[j] / mass[j] if mass[j] > 0.0 else 0.0
        total = 0.0
        for i in range(n):
            if joint[f, i] > 0.0:
                r = log_psi[row, i] + (arity - 1) * mean
                for a in range(arity):
                    r -= given[state[i, a]]
                total += joint[f, i] * r * r
        out[f] = 0.5 * total


@jit
def same_pairs(scope, ptr, other, number, twin):
    """For each pair (F, 2) the number of a factor on the same two variables into ``twin`` (F,),
    where there is one. Those lie in CSR order of their smaller variable: ``other[ptr[v]:ptr[v +
    1]]`` are the larger ones."""
    for f in range(scope.shape[0]):
        a, b = min(scope[f, 0], scope[f, 1]), max(scope[f, 0], scope[f, 1])
        for j in range(ptr[a], ptr[a + 1]):
            if other[j] == b:
                twin[f] = number[j]
                break
