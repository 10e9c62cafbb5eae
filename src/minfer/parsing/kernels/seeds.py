"""The two seeds of the parser: models without pairs, whose arc probabilities are easily had.

``tree`` has the tree factor, and one pass over all trees answers it. ``unary``, the paper's, has
the arc scores alone: each word chooses a head,

    mu[h, m] = exp(s[h, m]) / sum_h' exp(s[h', m])

so a number added to all scores of one word changes nothing, as in a tree. With a single root a
number added to all of the root's scores changes no tree either, and learning lets it drift. The
seed must not depend on it: it is chosen so that the root has one child in expectation.
Nodes are 0 .. n, 0 is the root; N = n + 1.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.kernels.trees.trees import float_scratch, int_scratch, tree_marginals


@jit
def one_child(leads):
    """How much to take from the root's leads (N,) in log-odds for one child in expectation.

    The c with sum_m 1 / (1 + exp(c - leads[m])) = 1, by Newton's steps kept in bounds; infinite if
    a word has no head but the root, minus infinity if the root has no arc.
    """
    n = leads.shape[0]
    top = second = -np.inf
    for m in range(1, n):
        second = max(second, min(top, leads[m]))
        top = max(top, leads[m])
    if np.isinf(top):
        return top
    high = 0.0
    for m in range(1, n):
        high += np.exp(leads[m] - top)
    high = top + np.log(high)  # an odds is more than its probability
    low = max(second, top - 50.0)  # two have a half or more, or one all but e^-50
    c = high
    for _ in range(60):
        total = slope = 0.0
        for m in range(1, n):
            p = 1.0 / (1.0 + np.exp(c - leads[m]))
            total += p
            slope -= p * (1.0 - p)
        if total > 1.0:
            low = c
        else:
            high = c
        step = total * np.log(total) / slope if slope < 0.0 else 0.0
        if abs(step) < 1e-13 * (1.0 + abs(c)):
            break
        c -= step
        if not low <= c <= high:
            c = 0.5 * (low + high)
    return c


@jit
def unary_seed(single_root, scores, mu):
    """Arc probabilities (N, N) by each word's scores alone; minus infinity if a word has no head,
    else 0, log Z of probabilities."""
    n = scores.shape[0]
    leads = np.empty(n)  # of the root over all other heads, in log-odds
    mu[:, :] = 0.0
    for m in range(1, n):
        top = -np.inf
        for h in range(1, n):
            if h != m:
                top = max(top, scores[h, m])
        if top == -np.inf and scores[0, m] == -np.inf:
            return -np.inf
        leads[m] = np.inf
        if top > -np.inf:
            total = 0.0
            for h in range(1, n):
                if h != m:
                    mu[h, m] = np.exp(scores[h, m] - top)
                    total += mu[h, m]
            for h in range(1, n):
                mu[h, m] /= total
            leads[m] = scores[0, m] - top - np.log(total)
    c = one_child(leads) if single_root else 0.0
    for m in range(1, n):
        mu[0, m] = 1.0 if leads[m] == np.inf else 0.0
        if -np.inf < leads[m] < np.inf:
            mu[0, m] = 1.0 / (1.0 + np.exp(c - leads[m]))
        for h in range(1, n):
            mu[h, m] *= 1.0 - mu[0, m]
    return 0.0


@jit
def seed(from_unary, projective_tree, single_root, scores, mu):
    """log Z and arc probabilities (N, N) of the seed, the tree or the unary factors."""
    if from_unary:
        return unary_seed(single_root, scores, mu)
    n = scores.shape[0]
    work, ints = np.empty(float_scratch(n)), np.empty(int_scratch(n), np.int64)
    w, d = np.empty((n, n)), np.empty((n, n))
    return tree_marginals(projective_tree, single_root, scores, mu, w, d, work, ints)
