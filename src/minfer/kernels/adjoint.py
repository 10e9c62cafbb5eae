"""Derivatives through a fixed point of belief propagation, backwards: one solve for all numbers.

With beliefs b_v, messages M of weight rho (1 in plain belief propagation) and a loss whose
derivative by the marginals is c_v(x), let s_v(x) b_v(x) be the derivative by the field of v and
lambda_{f,v}(x) b_v(x) that by log M_{f→v}(x). Under the factor's own belief b_f,

    q_{f,v}(x)      = E_f[ sum_{u in f, u != v} lambda_{f,u}(x_u) | x_v = x ]
    s_v             = c_v - E[c_v] + sum_f q_{f,v}
    lambda_{f,v}    = rho_f s_v - q_{f,v}
    d / d log psi_f(x) = b_f(x) sum_{v in f} lambda_{f,v}(x_v) / rho_f

which is message passing again, linear and with conditional expectations where the messages were: on
trees one pass up and one down, on cycles sweeps until nothing moves. It needs no derivative of a
message's code, only beliefs, and nothing in it is divided by a small probability.

**Binary pairs** need one number per direction. S_v = s_v(1) b_v(1) is the derivative by the
log-odds of v, ``lam`` that by the log of an odds message, f' = sigma(c + w) - sigma(c) the slope of
the message that answers a cavity with log-odds c (w is the conjunction's weight over rho):

    S_v = g_v + sum_e f'_e lam_rev(e),    lam_e = rho_e S_v - f'_e lam_rev(e)
    d / d w = (sigma_a lam_b + sigma_b lam_a) / rho,    sigma = sigma(c + w)

S must be the derivative of both states' difference: a field's is (-S, S).
"""

import math

from minfer.kernels._jit import jit

#: Cavity odds beyond these leave a message at its limit to the last bit.
_FAR = 1e100
CONVERGED, RUNNING, DIVERGED = 0, 1, 2
#: How far beyond its size at the start an adjoint may grow before it counts as diverging.
_GROWTH = 1e12


@jit
def pair_slopes(ptr, m, W, odds, log_odds, slope, sigma):
    """f' and sigma(c + w) of every slot, for the message that its variable sends.

    ``odds`` are the beliefs', NaN where ``log_odds`` have to do, which may be infinite.
    """
    for v in range(ptr.shape[0] - 1):
        o, lo = odds[v], log_odds[v]
        for e in range(ptr[v], ptr[v + 1]):
            w = W[e]
            if o == o:
                c = o / m[e]
            else:
                x = lo - math.log(m[e])
                c = math.exp(min(max(x, -300.0), 300.0))
            if c > _FAR and c * w > _FAR:
                slope[e], sigma[e] = 0.0, 1.0
            elif c * _FAR < 1.0 and c * w * _FAR < 1.0:
                slope[e], sigma[e] = 0.0, 0.0
            else:
                up = 1.0 / (1.0 + w * c)
                sigma[e] = w * c * up
                slope[e] = (w - 1.0) * (c / (1.0 + c)) * up


@jit
def pair_pass(ptr, rev, rho, slope, g, lam, S, order, down, damping):
    """Visit some variables in turn: the largest change of S, and the largest S."""
    n = order.shape[0]
    moved, scale = 0.0, 0.0
    for k in range(n):
        v = order[n - 1 - k] if down else order[k]
        lo, hi = ptr[v], ptr[v + 1]
        s = g[v]
        for e in range(lo, hi):
            s += slope[e] * lam[rev[e]]
        moved = max(moved, abs(s - S[v]))
        scale = max(scale, abs(s))
        S[v] = s
        for e in range(lo, hi):
            new = (s if rho.size == 0 else rho[e] * s) - slope[e] * lam[rev[e]]
            lam[e] = new if damping == 0.0 else new + damping * (lam[e] - new)
    return moved, scale


@jit
def pair_sweeps(ptr, rev, rho, slope, g, lam, S, order, done, most, tol, damping):
    """Sweeps ``done`` to ``most`` over the core, in turn up and down; how it ended, and at which.

    Converged: two sweeps running, one in each direction, moved no S by more than ``tol`` of the
    largest. With damping a sweep moves that much less.
    """
    first = 0.0
    for v in order:
        first = max(first, abs(S[v]), abs(g[v]))
    quiet = 0
    tol *= 1.0 - damping
    while done < most:
        moved, scale = pair_pass(ptr, rev, rho, slope, g, lam, S, order, done % 2 == 1, damping)
        done += 1
        if not scale <= _GROWTH * first:
            return DIVERGED, done, moved
        quiet = quiet + 1 if moved <= tol * scale else 0
        if quiet == 2:
            return CONVERGED, done, moved
    return RUNNING, done, moved if most else 0.0


@jit
def pair_weights(slot, rho, sigma, lam, out):
    """d / d w of the conjunction of every pair factor with slots (P, 2)."""
    for f in range(slot.shape[0]):
        a, b = slot[f, 0], slot[f, 1]
        x = sigma[a] * lam[b] + sigma[b] * lam[a]
        out[f] = x if rho.size == 0 else x / rho[a]


@jit
def pair_statistics(rows, scope, S, by_weight, basis, out):
    """Derivatives by the weights of pair factors ``rows``, log-tables being weights @ basis."""
    for r in range(rows.shape[0]):
        f = rows[r]
        a, b, w = S[scope[f, 0]], S[scope[f, 1]], by_weight[f]
        d00, d01, d10 = w - a - b, b - w, a - w
        for k in range(basis.shape[0]):
            out[r, k] = basis[k, 0] * d00 + basis[k, 1] * d01 + basis[k, 2] * d10 + basis[k, 3] * w
