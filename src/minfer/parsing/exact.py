"""Exact arc probabilities of projective grandparent models (Koo & Collins 2010, Model 0).

    P(tree) ∝ exp(sum_{(h, m)} arc[h, m] + sum_{(g, h), (h, m)} gp[g, h, m])

Inside-outside in O(n^4), to measure the true error of belief propagation and of a reduction (the
paper's E*). The arcs out of the root have no grandparent. Linear numbers, each word's weights
scaled; logarithms where they would not do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_flag, real_numbers
from minfer.errors import ModelError
from minfer.parsing.trees import checked_scores, no_tree


def exact_grandparent(
    arc_scores: ArrayLike, gp_scores: ArrayLike, *, single_root: bool = True
) -> tuple[NDArray[np.float64], float]:
    """Arc probabilities (n+1, n+1) [head, modifier] and log Z.

    ``arc_scores`` (n+1, n+1), minus infinity where there is no arc; ``gp_scores``
    (n+1, n+1, n+1) [g, h, m] for the arcs g -> h and h -> m. Entries that belong to no projective
    tree (g between h and m, h = 0) are not read.
    """
    from minfer.kernels.trees.trees import TINY
    from minfer.parsing.kernels.grandparents import grandparent_marginals

    check_flag("single_root", single_root)
    arcs = checked_scores(arc_scores)
    n = len(arcs)
    pairs = np.array(real_numbers(gp_scores, "grandparent scores"), dtype=np.float64, order="C")
    if pairs.shape != (n, n, n):
        raise ModelError(f"grandparent scores must have shape {(n, n, n)}, not {pairs.shape}")
    if not (pairs < np.inf).all():
        _scores(arcs, pairs)  # says where, if it would be read
    mu = np.empty((n, n))
    log_z, z = grandparent_marginals(arcs, pairs, bool(single_root), mu)
    if TINY <= z < 1.0 / TINY:
        return mu, float(log_z)
    v = _scores(arcs, pairs)
    scale = np.r_[0.0, v.max(axis=(0, 2))[1:]]
    if (scale == -np.inf).any():
        raise no_tree(True, single_root)
    log_mu, log_z = _in_logs(v - scale[:, None], single_root)
    if log_z == -np.inf:
        raise no_tree(True, single_root)
    return np.minimum(np.exp(log_mu - log_z), 1.0), float(log_z + scale.sum())


def _scores(arcs: NDArray[np.float64], pairs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores (n+1, n+1, n+1) [h, m, g] of arcs with a grandparent, minus infinity elsewhere; those
    of the root's arcs, which have none, at g = 0."""
    n = len(arcs)
    h, m, g = np.ogrid[:n, :n, :n]
    low, high = np.minimum(h, m), np.maximum(h, m)
    readable = (low > 0) & (low < high) & ((g < low) | (g > high))
    v = np.where(readable, pairs.transpose(1, 2, 0), -np.inf)
    if not (v < np.inf).all():
        at = tuple(int(i) for i in np.argwhere(~(v < np.inf))[0])
        raise ModelError(
            f"grandparent {at[2]} -> {at[0]} -> {at[1]}: score {v[at]}; scores are finite or minus "
            "infinity"
        )
    v[0, 1:, 0] = 0.0
    v += arcs[:, :, None]
    return v


def _in_logs(v: NDArray[np.float64], single_root: bool) -> tuple[NDArray[np.float64], float]:
    """The kernel's two passes in logarithms, one span at a time; log of w dZ/dw, and log Z."""
    n = len(v)
    last, lo = n - 1, int(single_root)
    add, total = np.logaddexp, np.logaddexp.reduce
    c, inc, dc, dinc = np.full((4, n, n, n), -np.inf)  # as in the kernel
    for i in range(last, lo - 1, -1):
        c[i, i] = 0.0
        for j in range(i + 1, n):
            rights, lefts = c[i, i:j], c[j, i + 1 : j + 1]
            inc[i, j] = v[i, j] + total(rights + lefts[:, i, None])
            inc[j, i] = v[j, i] + total(lefts + rights[:, j, None])
            c[i, j] = total(inc[i, i + 1 : j + 1] + c[i + 1 : j + 1, j, i, None])
            c[j, i] = total(inc[j, i:j] + c[i:j, i, j, None])
    log_mu = np.full((n, n), -np.inf)
    if single_root:
        root, left, right = v[0, 1:, 0], c[1:, 1, 0], c[1:, last, 0]
        log_mu[0, 1:] = root + left + right
        log_z = float(total(log_mu[0]))
        dc[1:, 1, 0] = root + right
        dc[1:, last, 0] = add(dc[1:, last, 0], root + left)
    else:
        log_z = float(c[0, last, 0])
        dc[0, last, 0] = 0.0
    for i in range(lo, n):
        for j in range(last, i, -1):
            low, high = slice(i, j), slice(i + 1, j + 1)
            a, b = dc[i, j].copy(), dc[j, i].copy()
            dc[high, j, i] = add(dc[high, j, i], total(a + inc[i, high], axis=1))
            dc[low, i, j] = add(dc[low, i, j], total(b + inc[j, low], axis=1))
            dinc[i, high] = add(dinc[i, high], a + c[high, j, i, None])
            dinc[j, low] = add(dinc[j, low], b + c[low, i, j, None])
            log_mu[i, j] = total(inc[i, j] + dinc[i, j])
            log_mu[j, i] = total(inc[j, i] + dinc[j, i])
            a, b = dinc[i, j] + v[i, j], dinc[j, i] + v[j, i]
            dc[i, low] = add(dc[i, low], a + c[j, high, i, None])
            dc[j, high] = add(dc[j, high], b + c[i, low, j, None])
            dc[j, high, i] = add(dc[j, high, i], total(a + c[i, low], axis=1))
            dc[i, low, j] = add(dc[i, low, j], total(b + c[j, high], axis=1))
    return log_mu, log_z
