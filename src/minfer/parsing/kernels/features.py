"""Hashed features and the scores of arcs and pairs, for parsing and for learning.

Nodes are 0 .. n, 0 is the root; N = n + 1. A feature is a *line* of 16 weights in one table, found
by a hash; a line lies in one cache line, and its slots are conjunctions with direction and distance
of which each arc or pair reads two. A template gives every token one key per role it plays, and

    line = ((key[h] ^ key[m]) * ODD) >> shift

so that an arc costs one multiplication per template beyond the reading of its weights.

Arguments that go together: ``tables`` of an encoder; ``tokens``, its sentences: start i8 (B + 1,),
words, upos and xpos i4 (tokens,); ``templates``: columns, offsets and salt of all roles, one after
the other, where each of the ten begins, keys of the tags between; ``learning``: AdaGrad's squares,
the seed that chooses the features to drop, how many of 2^24 to keep, rate.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.compiling.jit import jit

ODD = np.uint64(0x9E3779B97F4A7C15)
MIX = np.uint64(0xD6E8FEB86659FD93)
OUTSIDE = np.uint64(0xA0761D6478BD642F)  # stands for an atom beyond the sentence
SLOTS = 16
SCORE, DROP, UPDATE = 0, 1, 2  # what a pass over features does
SKIP = 1e-3  # gradients below are not applied
ALL_KEPT = 1 << 24
ARC, GP, SIB = 2, 4, 7  # the first of the roles of a kind; 0 and 1 are tokens by themselves
DISTANCES = np.array(
    [0, 0, 1, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 5, 5, 6]
)  # 1, 2, 3, 4-5, 6-8, 9-14, 15
COARSE = np.array([0, 0, 1, 1, 1, 2])  # 1, 2-4, 5 and more


@jit
def line_shift(n_lines):
    """How far a 64-bit hash is shifted to be the number of a line; n_lines is a power of two."""
    bits = 0
    while (1 << bits) < n_lines:
        bits += 1
    return np.uint64(64 - bits)


@jit
def sentence_keys(columns, offsets, salt, tables, tokens, b):
    """Keys u8 (N, T) of sentence b: what each template reads at a token, hashed into one number;
    and numbers i8 (N,) of tags.

    ``columns`` and ``offsets`` i8 (T, 4): the atoms of a template, columns -1 where there are
    fewer, offset 1 is the token to the right. ``salt`` u8 (T,) tells templates and roles apart.
    Atoms are columns of the form, then UPOS, then XPOS.
    """
    forms, upos_keys, xpos_keys, root, tag_numbers = tables
    start, words, upos, xpos = tokens
    first = start[b] - 1
    n = start[b + 1] - first
    n_form = forms.shape[1]
    atoms = np.empty((n, n_form + 2), np.uint64)
    tags = np.empty(n, np.int64)
    for k in range(n_form + 2):
        atoms[0, k] = root[k]
    tags[0] = 0
    for i in range(1, n):
        for k in range(n_form):
            atoms[i, k] = forms[words[first + i], k]
        atoms[i, n_form] = upos_keys[upos[first + i]]
        atoms[i, n_form + 1] = xpos_keys[xpos[first + i]]
        tags[i] = tag_numbers[upos[first + i]]
    keys = np.empty((n, columns.shape[0]), np.uint64)
    for t in range(columns.shape[0]):
        for i in range(n):
            key = salt[t]
            for c in range(4):
                column = columns[t, c]
                if column < 0:
                    break
                at = i + offsets[t, c]
                atom = atoms[at, column] if 0 <= at < n else OUTSIDE
                key = (key ^ atom) * MIX
                key ^= key >> np.uint64(29)
            keys[i, t] = key
    return keys, tags


@jit
def role(keys, bounds, number):
    """The keys u8 (N, T) of one role, side by side.

    The number is not a literal, for each of which this would be compiled anew.
    """
    return np.ascontiguousarray(keys[:, bounds[number] : bounds[number + 1]])


@jit
def dropped(line, seed, keep):
    """Whether a feature is left out for this sentence; ``keep`` of 2^24 stay."""
    z = (line ^ seed) * MIX
    z ^= z >> np.uint64(32)
    z *= ODD
    return (z >> np.uint64(40)) >= keep


@jit
def step(weights, squares, at, g, rate):
    """AdaGrad (Duchi et al. 2011)."""
    squares[at] += np.float32(g * g)
    weights[at] -= np.float32(rate * g / np.sqrt(squares[at]))


@jit
def visit(mode, key, shift, a, b, g, weights, learning):
    """The slots a and b of the line of a key, zeros if it is dropped; or a step along the gradient
    g of their sum."""
    squares, seed, keep, rate = learning
    line = (key * ODD) >> shift
    x = y = np.float32(0.0)
    if mode == SCORE or not dropped(line, seed, keep):
        base = line << np.uint64(4)
        if mode == UPDATE:
            step(weights, squares, base + a, g, rate)
            step(weights, squares, base + b, g, rate)
        else:
            x, y = weights[base + a], weights[base + b]
    return x, y


@jit
def token_pass(mode, keys, weights, learning, shift, sums):
    """Features of single tokens, all slots at once: added up in ``sums`` f8 (N, 16), or its
    entries are the gradients."""
    squares, seed, keep, rate = learning
    scale = ALL_KEPT / keep  # makes up for the features left out
    for i in range(keys.shape[0]):
        row = sums[i]
        for t in range(keys.shape[1]):
            line = (keys[i, t] * ODD) >> shift
            if mode != SCORE and dropped(line, seed, keep):
                continue
            for s in range(SLOTS):
                at = (line << np.uint64(4)) + np.uint64(s)
                if mode != UPDATE:
                    row[s] += weights[at]
                elif abs(row[s]) >= SKIP:
                    step(weights, squares, at, row[s] * scale, rate)
        if mode == DROP:
            for s in range(SLOTS):
                row[s] *= scale


@jit
def arc_pass(
    mode, head_keys, mod_keys, tags, tag_keys, between, sums, weights, learning, shift, scores
):
    """Scores of all arcs into ``scores`` (N, N), or a step along the gradients that are there.

    ``head_keys`` and ``mod_keys`` u8 (N, T + 1): the last column is for the tags between head and
    modifier, once for each that occurs: ``tags`` i8 (N,) in 0 .. 63. ``sums`` f8 (2, N, 16) are
    those of the tokens as heads and as modifiers. ``between`` u8 (64,) is scratch.
    """
    n_templates = head_keys.shape[1] - 1
    scale = ALL_KEPT / learning[2]
    n = head_keys.shape[0]
    for h in range(n):
        hk = head_keys[h]
        hs = sums[0, h]
        for direction in range(2):
            sign = 1 if direction == 0 else -1
            seen = np.uint64(0)
            n_between = 0
            for m in range(h + sign, n if direction == 0 else 0, sign):
                mk = mod_keys[m]
                ms = sums[1, m]
                a = np.uint64(direction)
                b = np.uint64(2 + 7 * direction + DISTANCES[min(abs(h - m), 15)])
                x, y, total = hs[a] + ms[a], hs[b] + ms[b], 0.0
                g = scores[h, m] if mode == UPDATE else 0.0
                if mode != UPDATE or abs(g) >= SKIP:
                    for t in range(n_templates):
                        key = hk[t] ^ mk[t]
                        p, q = visit(mode, key, shift, a, b, g * scale, weights, learning)
                        x += p
                        y += q
                        total += p + q
                    for t in range(n_between):
                        key = hk[n_templates] ^ mk[n_templates] ^ between[t]
                        p, q = visit(mode, key, shift, a, b, g * scale, weights, learning)
                        x += p
                        y += q
                        total += p + q
                    if mode == SCORE:
                        scores[h, m] = x + y
                    elif mode == DROP:
                        scores[h, m] = total * scale + hs[a] + hs[b] + ms[a] + ms[b]
                    else:
                        hs[a] += g
                        hs[b] += g
                        ms[a] += g
                        ms[b] += g
                tag = np.uint64(1) << np.uint64(tags[m])
                if not seen & tag:
                    seen |= tag
                    between[n_between] = tag_keys[tags[m]]
                    n_between += 1


@jit
def first_scores(mode, templates, keys, tags, weights, learning, scores):
    """Arc scores (N, N) from the keys, or a step along the gradients that are there."""
    _, _, _, bounds, tag_keys = templates
    shift = line_shift(weights.shape[0] // SLOTS)
    sums = np.zeros((2, scores.shape[0], SLOTS))  # of the tokens as heads and as modifiers
    between = np.empty(64, np.uint64)
    for part in range(3):
        k = (part + 2) % 3 if mode == UPDATE else part  # gradients of sums follow those of arcs
        own = role(keys, bounds, k)
        if k < ARC:
            token_pass(mode, own, weights, learning, shift, sums[k])
        else:
            arc_pass(
                mode, own, role(keys, bounds, k + 1), tags, tag_keys, between, sums, weights,
                learning, shift, scores,
            )  # fmt: skip


@jit
def second_scores(mode, templates, keys, pairs, weights, learning, limit, theta):
    """Pair weights theta (P,) from the keys, or a step along the gradients that are there.

    ``pairs``: their arcs, nodes i4 (P, 3), and how many are grandparents: nodes are grandparent,
    head, modifier of these, which come first, or head and two modifiers from left to right. Weights
    are kept within +-``limit``.
    """
    _, pair_nodes, n_gp = pairs
    bounds = templates[3]
    scale = ALL_KEPT / learning[2]
    shift = line_shift(weights.shape[0] // SLOTS)
    for sib in range(2):
        kind = SIB if sib else GP
        first, last = (n_gp, theta.shape[0]) if sib else (0, n_gp)
        if first == last:
            continue
        keys0, keys1 = role(keys, bounds, kind), role(keys, bounds, kind + 1)
        keys2 = role(keys, bounds, kind + 2)
        for p in range(first, last):
            g = theta[p] if mode == UPDATE else 0.0
            if mode == UPDATE and abs(g) < SKIP:
                continue
            i, j, k = pair_nodes[p, 0], pair_nodes[p, 1], pair_nodes[p, 2]
            if not sib:
                shape = (2 if i < j else 0) + (1 if j < k else 0)
            else:
                shape = 0 if k < i else (1 if j > i else 2)
            a = np.uint64(shape)
            b = np.uint64(4 + 3 * shape + COARSE[min(abs(k - j), 5)])
            total = 0.0
            for t in range(keys0.shape[1]):
                key = keys0[i, t] ^ keys1[j, t] ^ keys2[k, t]
                x, y = visit(mode, key, shift, a, b, g * scale, weights, learning)
                total += x + y
            if mode != UPDATE:
                theta[p] = min(max(total * scale, -limit), limit)
