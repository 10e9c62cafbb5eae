"""Belief propagation of one sentence in logarithms, for scores that plain numbers cannot hold.

The twin of ``second_order`` in ``parser``, which see: the same messages in the same order,
at many times the cost. Nothing is cut off, however strong pairs are, however far an arc lies below
its rivals, and whether or not every tree needs it. What both share about when to stop is here too.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.trees import tree_messages

CERTAIN = 1e100  # log-odds that the tree gives an arc at most; finite, so that none is NaN


# ------------------------------------------------------------------ when to stop


@jit
def worse(worst, moved):
    """The larger of two movements; infinite if a number got lost."""
    if moved <= worst:
        return worst
    return moved if moved > worst else np.inf


@jit
def judged(tol, damping, rest, look, worst, moved, before, trigger):
    """What follows from an iteration that kept a share ``rest`` of the old messages and moved
    messages or beliefs by up to ``worst``, pairs' messages only with ``look``; without these it is
    ``moved``, and was ``before`` in the iteration before, infinite in the first.

    Returns the residual; the ratio of that to the one before, infinite where there is none alike;
    and for the next iteration: share, look, trigger. Only an undamped iteration that looked can
    have a residual within ``tol``, and then the run is over. To look costs as much as half an
    update of the pairs; so it is done when that is where ``moved`` is about to get. A damped
    iteration always looks; one that moved things by ``trigger`` at most is followed by an undamped
    one; if that fails, damped ones go on, and have to come closer before the next.
    """
    above = np.nextafter(tol, np.inf)
    if rest > 0.0:
        worst /= 1.0 - rest
        return max(worst, above), np.inf, 0.0 if worst <= trigger else damping, True, trigger
    if not look:
        worst = max(worst, above)
    ratio = moved / before if damping == 0.0 and 0.0 < before < np.inf else np.inf
    soon = moved <= 4.0 * tol or moved * moved <= 2.0 * tol * min(before, 1.0)
    return worst, ratio, damping, soon or damping > 0.0, 0.5 * trigger


# ------------------------------------------------------------------ numbers


@jit
def softplus(x):
    """log (1 + e^x)"""
    return max(x, 0.0) + np.log1p(np.exp(-abs(x)))


@jit
def sigmoid(x):
    """1 / (1 + e^-x)"""
    small = np.exp(-abs(x))
    return (1.0 if x > 0.0 else small) / (1.0 + small)


@jit
def log_sum(x, y):
    """log (e^x + e^y)"""
    return max(x, y) + np.log1p(np.exp(-abs(x - y)))


@jit
def pair_message(q, theta):
    """log (1 + e^{q + theta}) / (1 + e^q), without a difference of large numbers."""
    if q > 0.0:
        return theta + softplus(-q - theta) - softplus(-q)
    return softplus(q + theta) - softplus(q)


# ------------------------------------------------------------------ belief propagation


@jit
def pair_log_z_logs(n_pairs, pair_arcs, messages, odds):
    """``pair_log_z`` of log-messages and log-odds; large numbers cancel before they are added."""
    total = 0.0
    for p in range(n_pairs):
        theta = messages[p, 2]
        oa, ob = odds[pair_arcs[p, 0]], odds[pair_arcs[p, 1]]
        qa, qb = oa - messages[p, 0], ob - messages[p, 1]
        # 1 + qa + qb + qa qb e^theta = off + qa on, where both lose qb if that is large
        off, on = softplus(-abs(qb)), softplus(qb + theta)
        if qb > 0.0:
            on = theta + softplus(-qb - theta)
            total += -messages[p, 1] if ob > 0.0 else qb
        else:
            total -= max(ob, 0.0)
        if qa > 0.0:
            total += log_sum(off - qa, on)
            total += -messages[p, 0] if oa > 0.0 else qa
        else:
            total += log_sum(off, on + qa) - max(oa, 0.0)
        total -= softplus(-abs(oa)) + softplus(-abs(ob))
    return total


@jit
def pair_beliefs_logs(n_pairs, pair_arcs, messages, odds, belief):
    """``pair_beliefs`` of log-messages and log-odds."""
    for p in range(n_pairs):
        qa = odds[pair_arcs[p, 0]] - messages[p, 0]
        qb = odds[pair_arcs[p, 1]] - messages[p, 1]
        others = log_sum(log_sum(-qa - qb, -qa), -qb)
        belief[p] = sigmoid(messages[p, 2] - others)


@jit
def ask_tree(projective_tree, single_root, heads, modifiers, start, incoming, pulls, unary,
             from_tree, belief, odds):  # fmt: skip
    """Let the tree answer: log Z and the largest movement of one of its messages or of a belief."""
    n_arcs = heads.shape[0]
    out = np.empty(2 * n_arcs)
    for a in range(n_arcs):
        incoming[2 * a] = 0.0
        incoming[2 * a + 1] = unary[a] + pulls[a]
    log_z = tree_messages(
        projective_tree, single_root, start.shape[0] - 1, heads, modifiers,
        np.empty((8, 0), np.int32), np.zeros(n_arcs, np.uint8), np.arange(n_arcs), start, incoming,
        out,
    )  # fmt: skip
    if not log_z > -np.inf:
        return -np.inf, np.inf
    worst = 0.0
    for a in range(n_arcs):
        x = min(max(out[2 * a + 1] - out[2 * a], -CERTAIN), CERTAIN) + unary[a]
        odds[a] = x + pulls[a]
        worst = worse(worst, abs(sigmoid(x) - from_tree[a]))
        worst = worse(worst, abs(sigmoid(odds[a]) - belief[a]))
        from_tree[a] = sigmoid(x)
        belief[a] = sigmoid(odds[a])
    return log_z, worst


@jit
def second_order_logs(
    projective_tree, single_root, max_iters, tol, damping, unary, heads, modifiers, start,
    pair_arcs, theta, n_pairs, belief, odds, messages,
):  # fmt: skip
    """As ``second_order``: iterations, residual, its ratio to the one before, log Z.

    ``unary`` (A,) are scores. ``belief`` (A,) gets probabilities, ``odds`` (A,) and ``messages``
    (P, 3) logarithms.
    """
    n_arcs = heads.shape[0]
    incoming = np.empty(2 * n_arcs)
    pulls = np.zeros(n_arcs)  # the sum of the pairs' messages to an arc
    from_tree = np.zeros(n_arcs)
    for p in range(n_pairs):
        messages[p, 0] = 0.0
        messages[p, 1] = 0.0
        messages[p, 2] = theta[p]
    log_z, _ = ask_tree(
        projective_tree, single_root, heads, modifiers, start, incoming, pulls, unary, from_tree,
        belief, odds,
    )  # fmt: skip
    iters = 0
    residual = ratio = moved = np.inf
    rest, look, trigger = damping, damping > 0.0, tol
    while iters < max_iters and not residual <= tol and log_z > -np.inf:
        iters += 1
        worst = 0.0
        pulls[:] = 0.0
        for p in range(n_pairs):
            a, b = pair_arcs[p, 0], pair_arcs[p, 1]
            from_a, from_b = messages[p, 0], messages[p, 1]
            to_b = pair_message(odds[a] - from_a, theta[p])
            to_a = pair_message(odds[b] - from_b, theta[p])
            if rest > 0.0:
                to_a = log_sum(np.log(1.0 - rest) + to_a, np.log(rest) + from_a)
                to_b = log_sum(np.log(1.0 - rest) + to_b, np.log(rest) + from_b)
            if look:
                worst = worse(worst, abs(sigmoid(to_a) - sigmoid(from_a)))
                worst = worse(worst, abs(sigmoid(to_b) - sigmoid(from_b)))
            messages[p, 0] = to_a
            messages[p, 1] = to_b
            pulls[a] += to_a
            pulls[b] += to_b
        before = moved
        log_z, moved = ask_tree(
            projective_tree, single_root, heads, modifiers, start, incoming, pulls, unary,
            from_tree, belief, odds,
        )  # fmt: skip
        residual, ratio, rest, look, trigger = judged(
            tol, damping, rest, look, worse(worst, moved), moved, before, trigger
        )
    log_z += pair_log_z_logs(n_pairs, pair_arcs, messages, odds)
    return iters, residual, ratio, log_z
