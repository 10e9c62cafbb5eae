"""How far the answer can be off: upper bounds on D(p_H || p_F) from means of the dropped factors.

Proposition 2 of the paper, corrected (its C has the wrong sign, and the means are those of H, not
of the seed): flip negative weights (phi -> 1 - phi, theta -> -theta, mu -> 1 - mu), sort the
dropped features by increasing mean under p_H, let cs_j = theta_1 + ... + theta_j; then

    D(p_H || p_F) <= sum_i (1 - mu_i) theta_i + C,
    C = log sum_{j=0}^{L} (mu_{j+1} - mu_j) e^{-cs_j}  <= 0,     mu_0 = 0, mu_{L+1} = 1,

with equality for comonotone features. Without C it is the looser bound of Riedel & Smith (2010).
For tables the same argument holds with quantiles: D = log E_H[Psi_R] - E_H[log Psi_R], and
E_H[prod Psi_i] is largest when all log Psi_i rise together, so

    D(p_H || p_F) <= log int_0^1 exp( sum_i Q_i(u) ) du - sum_i E_H[log Psi_i],

Q_i the quantile function of log Psi_i under the marginal of H over its scope. A feature is the case
of two values. The bound is rigorous if these marginals are those of p_H itself; it allows all
dropped factors to be maximally correlated, grows with their number, and says nothing on large
models where many are dropped.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp


def feature_bound(mu: NDArray, theta: NDArray, loose: bool = False) -> float:
    """Bound on D(p_H || p_F) from the means under H and the weights of the dropped features.

    Parameters
    ----------
    mu, theta : float arrays (L,)
    loose : bool
        Leave out C: the bound of Riedel & Smith (2010).
    """
    mu, theta = np.asarray(mu, dtype=np.float64), np.asarray(theta, dtype=np.float64)
    negative = theta < 0
    mu, theta = np.where(negative, 1 - mu, mu), np.abs(theta)
    first = float(((1 - mu) * theta).sum())
    if loose or not len(mu):
        return first
    order = np.argsort(mu, kind="stable")
    steps = np.diff(np.concatenate([[0.0], mu[order], [1.0]]))
    sums = np.concatenate([[0.0], np.cumsum(theta[order])])
    used = steps > 0
    return max(first + float(logsumexp(-sums[used], b=steps[used])), 0.0)


def quantile_bound(joints: list[NDArray], log_tables: list[NDArray]) -> float:
    """The same for any factors: each a marginal over its scope and its log-table (flat, same size).

    Infinite if a dropped table has a zero where H has mass.
    """
    breaks, levels = [np.array([0.0, 1.0])], []
    mean = 0.0
    for joint, table in zip(joints, log_tables, strict=True):
        p, x = np.ravel(joint), np.ravel(table)
        p, x = p[p > 0], x[p > 0]
        if np.isneginf(x).any():
            return np.inf
        order = np.argsort(x, kind="stable")
        edges = np.cumsum(p[order])
        edges[-1] = 1.0
        levels.append((edges, x[order]))
        breaks.append(edges)
        mean += float((p * x).sum())
    cuts = np.unique(np.clip(np.concatenate(breaks), 0.0, 1.0))
    width, middle = np.diff(cuts), (cuts[1:] + cuts[:-1]) / 2
    total = np.zeros(len(middle))
    for edges, x in levels:
        total += x[np.minimum(np.searchsorted(edges, middle), len(x) - 1)]
    used = width > 0
    return max(float(logsumexp(total[used], b=width[used])) - mean, 0.0)


def pinsker(divergence: float) -> float:
    """Largest possible error of any probability at this divergence: sqrt(D / 2), at most 1."""
    return float(min(np.sqrt(divergence / 2), 1.0))
