"""Steps of belief propagation in logarithms, for scores that plain numbers cannot hold.

Twins of those in ``parser``, which see: the same messages in the same order, at many times the
cost. Nothing is cut off, however strong pairs are, however far an arc lies below its rivals, and
whether or not every tree needs it. Odds (A,) and messages (P, 3), of which the last is theta, are
logarithms, and so is the pull (A,), the sum of the pairs' messages to an arc.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.vexp import log_add
from minfer.kernels.compiling.jit import jit
from minfer.kernels.trees.trees import tree_messages

CERTAIN = 1e100  # log-odds that the tree gives an arc at most; finite, so that none is NaN


@jit
def worse(worst, moved):
    """The larger of two movements; infinite if a number got lost."""
    if moved <= worst:
        return worst
    return moved if moved > worst else np.inf


@jit
def sigmoid(x):
    """1 / (1 + e^-x)"""
    small = np.exp(-abs(x))
    return (1.0 if x > 0.0 else small) / (1.0 + small)


@jit
def pair_message(q, theta):
    """log (1 + e^{q + theta}) / (1 + e^q), without a difference of large numbers."""
    if q > 0.0:
        return theta + log_add(0.0, -q - theta) - log_add(0.0, -q)
    return log_add(0.0, q + theta) - log_add(0.0, q)


@jit
def send_logs(rest, look, pair_arcs, odds, messages, pull):
    """New messages of all pairs, with a share ``rest`` of the old ones; the largest movement of
    one, as a probability, or 0 without ``look``."""
    worst = 0.0
    pull[:] = 0.0
    for p in range(pair_arcs.shape[0]):
        a, b = pair_arcs[p, 0], pair_arcs[p, 1]
        from_a, from_b, theta = messages[p, 0], messages[p, 1], messages[p, 2]
        to_b = pair_message(odds[a] - from_a, theta)
        to_a = pair_message(odds[b] - from_b, theta)
        if rest > 0.0:
            to_a = log_add(np.log(1.0 - rest) + to_a, np.log(rest) + from_a)
            to_b = log_add(np.log(1.0 - rest) + to_b, np.log(rest) + from_b)
        if look:
            worst = worse(worst, abs(sigmoid(to_a) - sigmoid(from_a)))
            worst = worse(worst, abs(sigmoid(to_b) - sigmoid(from_b)))
        messages[p, 0] = to_a
        messages[p, 1] = to_b
        pull[a] += to_a
        pull[b] += to_b
    return worst


@jit
def ask_tree(projective_tree, single_root, arcs, unary, pull, from_tree, belief, odds):
    """Let the tree answer: log Z and the largest movement of one of its messages or of a belief.

    ``unary`` (A,) are scores; ``from_tree`` and ``belief`` (A,) are probabilities.
    """
    heads, modifiers, start = arcs
    n_arcs = heads.shape[0]
    incoming, out = np.zeros(2 * n_arcs), np.empty(2 * n_arcs)
    for a in range(n_arcs):
        incoming[2 * a + 1] = unary[a] + pull[a]
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
        odds[a] = x + pull[a]
        worst = worse(worst, abs(sigmoid(x) - from_tree[a]))
        worst = worse(worst, abs(sigmoid(odds[a]) - belief[a]))
        from_tree[a] = sigmoid(x)
        belief[a] = sigmoid(odds[a])
    return log_z, worst


@jit
def pair_sums_logs(pair_arcs, odds, messages):
    """``pair_sums``; what is on and off is divided by 1 + O at once, so nothing large cancels."""
    total = 0.0
    for p in range(pair_arcs.shape[0]):
        a, b = odds[pair_arcs[p, 0]], odds[pair_arcs[p, 1]]
        on_a = min(a, 0.0) - messages[p, 0]
        on_b = min(b, 0.0) - messages[p, 1]
        off_a, off_b = min(-a, 0.0), min(-b, 0.0)
        on = on_a + on_b + messages[p, 2]
        others = log_add(log_add(off_a + off_b, on_a + off_b), off_a + on_b)
        messages[p, 2] = sigmoid(on - others)
        total += log_add(on, others) - log_add(0.0, -abs(a)) - log_add(0.0, -abs(b))
    return total
