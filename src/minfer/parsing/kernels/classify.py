"""Log-linear classifiers over hashed features: tags of words, relations of arcs.

    p(c | x) ∝ exp(sum of weights[line, c] over the lines of x)

A table f4 (lines, C) has one row of class weights per line; lines are found as in
``minfer.parsing.kernels.features``. Learning is AdaGrad on the log-likelihood, one word at a time.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.parsing.kernels.features import DISTANCES, ODD, line_shift, sentence_keys

SHARP = 2.0  # scores count so many times in learning, which stops earlier at words that are sure


@jit(fastmath={"reassoc", "contract"})
def classified(lines, weights, squares, rate, scores, barred, gold):
    """The best class of a word with these features, and minus its log-likelihood if it is learned.

    ``scores`` f4 (C,), scratch; ``barred``: a class that it does not have, or -1. It is learned
    with a rate above 0, along the gradient that ``scores`` becomes.
    """
    n_classes = scores.shape[0]
    scale = np.float32(SHARP if rate > 0.0 else 1.0)
    scores[:] = np.float32(0.0)
    for t in range(lines.shape[0]):
        row = weights[lines[t]]
        for c in range(n_classes):
            scores[c] += row[c]
    if barred >= 0:
        scores[barred] = -np.inf
    best = 0
    for c in range(n_classes):
        scores[c] *= scale
        if scores[c] > scores[best]:
            best = c
    if not rate > 0.0:
        return best, 0.0
    top = scores[best]
    total = np.float32(0.0)
    own = scores[gold] - top
    for c in range(n_classes):
        scores[c] = np.exp(scores[c] - top)
        total += scores[c]
    for c in range(n_classes):
        scores[c] *= scale / total
    scores[gold] -= scale
    if abs(scores[gold]) >= np.float32(1e-3):
        for t in range(lines.shape[0]):
            row = weights[lines[t]]
            past = squares[lines[t]]
            for c in range(n_classes):
                g = scores[c]
                past[c] += g * g
                row[c] -= np.float32(rate) * g / np.sqrt(past[c])
    return best, np.log(total) - own


@jit
def tag(templates, tables, tokens, weights, squares, class_keys, order, gold, rate, classes):
    """Tags i4 (tokens,) of the sentences in ``order``, greedily from left to right.

    ``templates``: columns, offsets and salts as in ``sentence_keys``, and salts u8 (5,) of the
    features with the two tags before. With a ``rate`` above 0 the weights learn ``gold`` on the
    way. Returns minus the log-likelihood then.
    """
    columns, offsets, salt, history = templates
    n_static = salt.shape[0]
    n_classes = weights.shape[1]
    shift = line_shift(weights.shape[0])
    lines = np.empty(n_static + 5, np.int64)
    scores = np.empty(n_classes, np.float32)
    loss = 0.0
    for k in range(order.shape[0]):
        first = tokens[0][order[k]] - 1
        keys, _ = sentence_keys(columns, offsets, salt, tables, tokens, order[k])
        one = two = n_classes
        for i in range(1, keys.shape[0]):
            for t in range(n_static):
                lines[t] = (keys[i, t] * ODD) >> shift
            a, b = class_keys[one], class_keys[two] * ODD
            lines[n_static] = ((a ^ history[0]) * ODD) >> shift
            lines[n_static + 1] = ((a ^ b ^ history[1]) * ODD) >> shift
            for t in range(3):
                lines[n_static + 2 + t] = ((a ^ keys[i, t] ^ history[2 + t]) * ODD) >> shift
            two = one
            one, lost = classified(lines, weights, squares, rate, scores, -1, gold[first + i])
            classes[first + i] = one
            loss += lost
    return loss


@jit
def label(
    templates, tables, tokens, weights, squares, heads, order, gold, rate, root_class, classes
):
    """Relations i4 (tokens,) of the arcs ``heads`` i4 (tokens,), in the sentences of ``order``.

    All arcs from the root and no others have ``root_class``, unless that is negative.

    ``templates``: columns, offsets and salts of the four roles, grandparent, head, modifier and the
    modifier's first child (the root if there is none), one after the other, and 16 keys for
    direction and distance; the first three templates see the distance. Learning as in ``tag``.
    """
    columns, offsets, salt, distances = templates
    n_templates = salt.shape[0] // 4
    shift = line_shift(weights.shape[0])
    lines = np.empty(n_templates, np.int64)
    scores = np.empty(weights.shape[1], np.float32)
    loss = 0.0
    for k in range(order.shape[0]):
        first = tokens[0][order[k]] - 1
        keys, _ = sentence_keys(columns, offsets, salt, tables, tokens, order[k])
        n = keys.shape[0]
        child = np.zeros(n, np.int64)
        for m in range(n - 1, 0, -1):
            child[heads[first + m]] = m
        for m in range(1, n):
            h = heads[first + m]
            g = heads[first + h] if h > 0 else 0
            side = 0 if h < m else 7
            near = distances[side]
            far = distances[side + DISTANCES[min(abs(h - m), 15)]] * ODD
            for t in range(n_templates):
                key = keys[g, t] ^ keys[h, n_templates + t]
                key ^= keys[m, 2 * n_templates + t] ^ keys[child[m], 3 * n_templates + t]
                lines[t] = ((key ^ (far if t < 3 else near)) * ODD) >> shift
            barred = root_class if h > 0 else -1
            best, lost = classified(lines, weights, squares, rate, scores, barred, gold[first + m])
            classes[first + m] = root_class if root_class >= 0 and h == 0 else best
            loss += lost
    return loss
