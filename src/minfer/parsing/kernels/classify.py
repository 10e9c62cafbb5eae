"""Log-linear classifiers over hashed features: tags of words, relations of arcs.

    p(c | x) ∝ exp(sum of weights[line, c] over the lines of x)

A table f4 (lines, C) has one row of class weights per line; lines are found as in
``minfer.parsing.kernels.features``. Learning is AdaGrad on the log-likelihood, one word at a time.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels._jit import jit
from minfer.parsing.kernels.features import (
    ODD,
    distance_bin,
    dropped,
    line_shift,
    load_atoms,
    role_keys,
)


@jit(fastmath={"reassoc", "contract"})
def add_rows(lines, count, weights, scores):
    """Class scores f4 (C,): the sum of some rows."""
    n_classes = scores.shape[0]
    for c in range(n_classes):
        scores[c] = np.float32(0.0)
    for t in range(count):
        row = weights[lines[t]]
        for c in range(n_classes):
            scores[c] += row[c]


@jit
def best_class(scores):
    best = 0
    for c in range(1, scores.shape[0]):
        if scores[c] > scores[best]:
            best = c
    return best


@jit(fastmath={"reassoc", "contract"})
def learn_class(lines, count, weights, squares, scores, gold, rate, scale):
    """One step for one word; minus its log-likelihood. ``scores`` becomes the gradient."""
    n_classes = scores.shape[0]
    top = scores[best_class(scores)]
    total = np.float32(0.0)
    own = scores[gold] - top
    for c in range(n_classes):
        scores[c] = np.exp(scores[c] - top)
        total += scores[c]
    for c in range(n_classes):
        scores[c] *= scale / total
    scores[gold] -= scale
    if abs(scores[gold]) < np.float32(1e-3):
        return np.log(total) - own
    for t in range(count):
        row = weights[lines[t]]
        past = squares[lines[t]]
        for c in range(n_classes):
            g = scores[c]
            past[c] += g * g
            row[c] -= rate * g / np.sqrt(past[c])
    return np.log(total) - own


@jit
def thin(lines, count, seed, keep):
    """Drop some features; how many are left."""
    left = 0
    for t in range(count):
        if not dropped(lines[t], seed, keep):
            lines[left] = lines[t]
            left += 1
    return left


@jit
def classified(lines, weights, squares, scores, barred, gold, word, seeds, sentence, keep, rate):
    """The best class of a word with these features, and minus its log-likelihood if it is learned.

    ``scores`` f4 (C,), scratch; ``barred``: a class that it does not have, or -1.
    """
    if not rate > 0.0:
        add_rows(lines, lines.shape[0], weights, scores)
        if barred >= 0:
            scores[barred] = -np.inf
        return best_class(scores), 0.0
    scale = np.float32(1.0 if keep >= (1 << 24) else (1 << 24) / keep)
    count = thin(lines, lines.shape[0], seeds[sentence], keep)
    add_rows(lines, count, weights, scores)
    for c in range(scores.shape[0]):
        scores[c] *= scale
    if barred >= 0:
        scores[barred] = -np.inf
    best = best_class(scores)
    step = np.float32(rate)
    return best, learn_class(lines, count, weights, squares, scores, gold[word], step, scale)


@jit
def tag(
    templates, tables, weights, squares, start, words, class_keys, order, gold, seeds, keep, rate,
    classes,
):  # fmt: skip
    """Tags i4 (tokens,) of the sentences in ``order``, greedily from left to right.

    ``templates``: columns, offsets and salts as in ``role_keys``, and salts u8 (5,) of the
    features with the two tags before. With a ``rate`` above 0 the weights learn ``gold`` on the
    way; ``seeds`` u8 (len(order),). Returns minus the log-likelihood then.
    """
    columns, offsets, salt, history = templates
    forms, root = tables
    n_static = salt.shape[0]
    n_classes = weights.shape[1]
    shift = line_shift(weights.shape[0])
    lines = np.empty(n_static + 5, np.int64)
    scores = np.empty(n_classes, np.float32)
    no_tags = np.zeros(1, np.uint64)
    loss = 0.0
    for k in range(order.shape[0]):
        lo, hi = start[order[k]], start[order[k] + 1]
        n = hi - lo + 1
        atoms = np.empty((n, root.shape[0]), np.uint64)
        keys = np.empty((n, n_static), np.uint64)
        none = np.zeros(n - 1, np.int32)
        load_atoms(words[lo:hi], none, none, forms, no_tags, no_tags, root, atoms)
        role_keys(atoms, columns, offsets, salt, keys)
        one = two = n_classes
        for i in range(1, n):
            for t in range(n_static):
                lines[t] = (keys[i, t] * ODD) >> shift
            a, b = class_keys[one], class_keys[two] * ODD
            lines[n_static] = ((a ^ history[0]) * ODD) >> shift
            lines[n_static + 1] = ((a ^ b ^ history[1]) * ODD) >> shift
            lines[n_static + 2] = ((a ^ keys[i, 0] ^ history[2]) * ODD) >> shift
            lines[n_static + 3] = ((a ^ keys[i, 1] ^ history[3]) * ODD) >> shift
            lines[n_static + 4] = ((a ^ keys[i, 2] ^ history[4]) * ODD) >> shift
            two = one
            one, lost = classified(
                lines, weights, squares, scores, -1, gold, lo + i - 1, seeds, k, keep, rate
            )
            classes[lo + i - 1] = one
            loss += lost
    return loss


@jit
def label(
    templates, tables, weights, squares, start, words, upos, xpos, heads, order, gold, seeds, keep,
    rate, root_class, classes,
):  # fmt: skip
    """Relations i4 (tokens,) of the arcs ``heads`` i4 (tokens,), in the sentences of ``order``.

    All arcs from the root and no others have ``root_class``, unless that is negative.

    ``templates``: columns, offsets and salts of the four roles, grandparent, head, modifier and the
    modifier's first child (the root if there is none), one after the other, and 16 keys for
    direction and distance; the first three templates see the distance. Learning as in ``tag``.
    """
    columns, offsets, salt, distances = templates
    forms, upos_keys, xpos_keys, root, tag_numbers = tables
    n_templates = salt.shape[0] // 4
    n_classes = weights.shape[1]
    shift = line_shift(weights.shape[0])
    lines = np.empty(n_templates, np.int64)
    scores = np.empty(n_classes, np.float32)
    loss = 0.0
    for k in range(order.shape[0]):
        lo, hi = start[order[k]], start[order[k] + 1]
        n = hi - lo + 1
        atoms = np.empty((n, root.shape[0]), np.uint64)
        keys = np.empty((n, 4 * n_templates), np.uint64)
        child = np.zeros(n, np.int64)
        load_atoms(words[lo:hi], upos[lo:hi], xpos[lo:hi], forms, upos_keys, xpos_keys, root, atoms)
        role_keys(atoms, columns, offsets, salt, keys)
        for m in range(n - 1, 0, -1):
            child[heads[lo + m - 1]] = m
        for m in range(1, n):
            h = heads[lo + m - 1]
            g = heads[lo + h - 1] if h > 0 else 0
            side = 0 if h < m else 7
            near = distances[side]
            far = distances[side + distance_bin(abs(h - m))] * ODD
            for t in range(n_templates):
                key = keys[g, t] ^ keys[h, n_templates + t]
                key ^= keys[m, 2 * n_templates + t] ^ keys[child[m], 3 * n_templates + t]
                lines[t] = ((key ^ (far if t < 3 else near)) * ODD) >> shift
            best, lost = classified(
                lines, weights, squares, scores, root_class if h > 0 else -1, gold, lo + m - 1,
                seeds, k, keep, rate,
            )  # fmt: skip
            classes[lo + m - 1] = root_class if root_class >= 0 and h == 0 else best
            loss += lost
    return loss
