"""Hashed features and the scores of arcs and pairs, for parsing and for learning.

Nodes are 0 .. n, 0 is the root; N = n + 1. A feature is a *line* of 16 weights in one table, found
by a hash; a line lies in one cache line, and its slots are conjunctions with direction and distance
of which each arc or pair reads two. A template gives every token one key per role it plays, and

    line = ((key[h] ^ key[m]) * ODD) >> shift

so that an arc costs one multiplication per template beyond the reading of its weights.
Scratch arrays are passed in and may hold anything.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels._jit import jit

ODD = np.uint64(0x9E3779B97F4A7C15)
MIX = np.uint64(0xD6E8FEB86659FD93)
OUTSIDE = np.uint64(0xA0761D6478BD642F)  # stands for an atom beyond the sentence
SLOTS = 16
SCORE, DROP, UPDATE = 0, 1, 2  # what a pass over features does
SKIP = 1e-3  # gradients below are not applied
GP, SIB = 0, 1


@jit
def line_shift(n_lines):
    """How far a 64-bit hash is shifted to be the number of a line; n_lines is a power of two."""
    bits = 0
    while (1 << bits) < n_lines:
        bits += 1
    return np.uint64(64 - bits)


@jit
def load_atoms(words, upos, xpos, forms, upos_keys, xpos_keys, root, atoms):
    """Atoms u8 (N, K): columns of the form, then UPOS, then XPOS; row 0 is ``root`` (K,)."""
    n_form = forms.shape[1]
    for k in range(n_form + 2):
        atoms[0, k] = root[k]
    for i in range(words.shape[0]):
        for k in range(n_form):
            atoms[i + 1, k] = forms[words[i], k]
        atoms[i + 1, n_form] = upos_keys[upos[i]]
        atoms[i + 1, n_form + 1] = xpos_keys[xpos[i]]


@jit
def role_keys(atoms, columns, offsets, salt, keys):
    """Keys u8 (N, T): what each template reads at a token, hashed into one number.

    ``columns`` and ``offsets`` i8 (T, 4): the atoms of a template, columns -1 where there are
    fewer, offset 1 is the token to the right. ``salt`` u8 (T,) tells templates and roles apart.
    """
    n = atoms.shape[0]
    n_templates = columns.shape[0]
    for t in range(n_templates):
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


@jit
def dropped(line, seed, keep):
    """Whether a feature is left out for this sentence; ``keep`` of 2^24 stay."""
    z = (line ^ seed) * MIX
    z ^= z >> np.uint64(32)
    z *= ODD
    return (z >> np.uint64(40)) >= keep


@jit
def distance_bin(d):
    """1, 2, 3, 4-5, 6-8, 9-14, 15 and more: 0 to 6."""
    if d <= 3:
        return d - 1
    if d <= 5:
        return 3
    if d <= 8:
        return 4
    if d <= 14:
        return 5
    return 6


@jit
def coarse_bin(d):
    """1, 2-4, 5 and more: 0 to 2."""
    return 0 if d <= 1 else (1 if d <= 4 else 2)


@jit
def step(weights, squares, at, g, rate):
    """AdaGrad (Duchi et al. 2011)."""
    squares[at] += np.float32(g * g)
    weights[at] -= np.float32(rate * g / np.sqrt(squares[at]))


@jit
def token_pass(mode, keys, weights, squares, shift, seed, keep, rate, sums):
    """Features of single tokens, all slots at once: ``sums`` f8 (N, 16) is filled, or its
    entries are the gradients."""
    scale = 1.0 if keep >= (1 << 24) else (1 << 24) / keep
    n, n_templates = keys.shape
    for i in range(n):
        row = sums[i]
        if mode != UPDATE:
            for s in range(SLOTS):
                row[s] = 0.0
        for t in range(n_templates):
            line = (keys[i, t] * ODD) >> shift
            if mode != SCORE and dropped(line, seed, keep):
                continue
            base = line << np.uint64(4)
            if mode == UPDATE:
                for s in range(SLOTS):
                    if abs(row[s]) >= SKIP:
                        step(weights, squares, base + np.uint64(s), row[s] * scale, rate)
            else:
                for s in range(SLOTS):
                    row[s] += weights[base + np.uint64(s)]
        if mode == DROP:
            for s in range(SLOTS):
                row[s] *= scale


@jit
def arc_pass(
    mode, head_keys, mod_keys, tags, tag_keys, head_sums, mod_sums, weights, squares, shift, seed,
    keep, rate, lines, scores,
):  # fmt: skip
    """Scores of all arcs into ``scores`` (N, N), or a step along the gradients that are there.

    ``head_keys`` and ``mod_keys`` u8 (N, T + 1): the last column is for the tags between head and
    modifier, once for each that occurs: ``tags`` i8 (N,) in 0 .. 63, ``tag_keys`` u8 (64,).
    ``lines`` u8 (T + 64,): the lines of weights of an arc that learns.
    """
    scale = 1.0 if keep >= (1 << 24) else (1 << 24) / keep
    n = head_keys.shape[0]
    n_templates = head_keys.shape[1] - 1
    if mode == UPDATE:
        head_sums[:, :] = 0.0
        mod_sums[:, :] = 0.0
    one = np.uint64(1)
    four = np.uint64(4)
    between = np.empty(64, np.uint64)  # keys of the tags between
    for h in range(n):
        hk = head_keys[h]
        hs = head_sums[h]
        for direction in range(2):
            sign = 1 if direction == 0 else -1
            seen = np.uint64(0)
            n_between = 0
            for m in range(h + sign, n if direction == 0 else 0, sign):
                mk = mod_keys[m]
                ms = mod_sums[m]
                a = np.uint64(direction)
                b = np.uint64(2 + 7 * direction + distance_bin(abs(h - m)))
                key = hk[n_templates] ^ mk[n_templates]
                if mode == SCORE:
                    x = hs[a] + ms[a]
                    y = hs[b] + ms[b]
                    for t in range(n_templates):
                        base = (((hk[t] ^ mk[t]) * ODD) >> shift) << four
                        x += weights[base + a]
                        y += weights[base + b]
                    for t in range(n_between):
                        base = (((key ^ between[t]) * ODD) >> shift) << four
                        x += weights[base + a]
                        y += weights[base + b]
                    scores[h, m] = x + y
                elif mode == DROP or abs(scores[h, m]) >= SKIP:
                    for t in range(n_templates):
                        lines[t] = ((hk[t] ^ mk[t]) * ODD) >> shift
                    for t in range(n_between):
                        lines[n_templates + t] = ((key ^ between[t]) * ODD) >> shift
                    if mode == DROP:
                        total = 0.0
                        for t in range(n_templates + n_between):
                            if not dropped(lines[t], seed, keep):
                                base = lines[t] << four
                                total += weights[base + a] + weights[base + b]
                        scores[h, m] = total * scale + hs[a] + hs[b] + ms[a] + ms[b]
                    else:
                        g = scores[h, m]
                        hs[a] += g
                        hs[b] += g
                        ms[a] += g
                        ms[b] += g
                        g *= scale
                        for t in range(n_templates + n_between):
                            if not dropped(lines[t], seed, keep):
                                base = lines[t] << four
                                step(weights, squares, base + a, g, rate)
                                step(weights, squares, base + b, g, rate)
                tag = one << np.uint64(tags[m])
                if not seen & tag:
                    seen |= tag
                    between[n_between] = tag_keys[tags[m]]
                    n_between += 1


@jit
def pair_pass(
    mode, kind, first, last, pair_nodes, keys0, keys1, keys2, weights, squares, shift, seed, keep,
    rate, limit, lines, theta,
):  # fmt: skip
    """Weights theta of pairs ``first`` to ``last`` of one kind, or a step along the gradients.

    ``pair_nodes`` i4 (P, 3): grandparent, head, modifier, or head and two modifiers from left to
    right; ``keys*`` u8 (N, T) for the three roles. Weights are kept within +-``limit``.
    """
    scale = 1.0 if keep >= (1 << 24) else (1 << 24) / keep
    n_templates = keys0.shape[1]
    for p in range(first, last):
        g = theta[p]
        if mode == UPDATE and abs(g) < SKIP:
            continue
        i, j, k = pair_nodes[p, 0], pair_nodes[p, 1], pair_nodes[p, 2]
        if kind == GP:
            shape = (2 if i < j else 0) + (1 if j < k else 0)
            a = np.uint64(shape)
            b = np.uint64(4 + 3 * shape + coarse_bin(abs(j - k)))
        else:
            shape = 0 if k < i else (1 if j > i else 2)
            a = np.uint64(shape)
            b = np.uint64(4 + 3 * shape + coarse_bin(k - j))
        x, y, z = keys0[i], keys1[j], keys2[k]
        for t in range(n_templates):
            lines[t] = ((x[t] ^ y[t] ^ z[t]) * ODD) >> shift
        if mode == UPDATE:
            g *= scale
            for t in range(n_templates):
                if not dropped(lines[t], seed, keep):
                    base = lines[t] << np.uint64(4)
                    step(weights, squares, base + a, g, rate)
                    step(weights, squares, base + b, g, rate)
            continue
        total = 0.0
        for t in range(n_templates):
            if mode == SCORE or not dropped(lines[t], seed, keep):
                base = lines[t] << np.uint64(4)
                total += weights[base + a] + weights[base + b]
        if mode == DROP:
            total *= scale
        theta[p] = min(max(total, -limit), limit)


@jit
def role(keys, bounds, number, n_nodes):
    """The keys u8 (N, T) of one role in the flat array of all.

    The number is no literal, for each of which this would be compiled anew.
    """
    lo, hi = bounds[number], bounds[number + 1]
    return keys[n_nodes * lo : n_nodes * hi].reshape(n_nodes, hi - lo)


@jit
def sentence_keys(templates, tables, words, upos, xpos, keys, tags):
    """All keys of a sentence, role after role, into the flat ``keys``; tag numbers (N,)."""
    columns, offsets, salt, bounds, tag_keys = templates
    forms, upos_keys, xpos_keys, root, tag_numbers = tables
    n_nodes = words.shape[0] + 1
    atoms = np.empty((n_nodes, root.shape[0]), np.uint64)
    load_atoms(words, upos, xpos, forms, upos_keys, xpos_keys, root, atoms)
    for k in range(bounds.shape[0] - 1):
        lo, hi = bounds[k], bounds[k + 1]
        role_keys(
            atoms, columns[lo:hi], offsets[lo:hi], salt[lo:hi], role(keys, bounds, k, n_nodes)
        )
    tags[0] = 0
    for i in range(words.shape[0]):
        tags[i + 1] = tag_numbers[upos[i]]


@jit
def first_scores(mode, templates, keys, tags, weights, squares, seed_, keep, rate, scores):
    """Arc scores (N, N) from the keys, or a step along the gradients that are there."""
    columns, offsets, salt, bounds, tag_keys = templates
    n_nodes = scores.shape[0]
    shift = line_shift(weights.shape[0] // SLOTS)
    head_sums = np.empty((n_nodes, SLOTS))
    mod_sums = np.empty((n_nodes, SLOTS))
    head_keys = role(keys, bounds, np.int64(0), n_nodes)
    mod_keys = role(keys, bounds, np.int64(1), n_nodes)
    lines = np.empty(bounds[3] - bounds[2] + 64, np.uint64)
    if mode != UPDATE:
        token_pass(mode, head_keys, weights, squares, shift, seed_, keep, rate, head_sums)
        token_pass(mode, mod_keys, weights, squares, shift, seed_, keep, rate, mod_sums)
    arc_pass(
        mode, role(keys, bounds, np.int64(2), n_nodes),
        role(keys, bounds, np.int64(3), n_nodes), tags, tag_keys,
        head_sums, mod_sums, weights, squares, shift, seed_, keep, rate, lines, scores,
    )  # fmt: skip
    if mode == UPDATE:
        token_pass(mode, head_keys, weights, squares, shift, seed_, keep, rate, head_sums)
        token_pass(mode, mod_keys, weights, squares, shift, seed_, keep, rate, mod_sums)


@jit
def second_scores(
    mode, templates, keys, n_nodes, n_gp, n_pairs, pair_nodes, weights, squares, seed_, keep, rate,
    limit, theta,
):  # fmt: skip
    """Pair weights theta (P,) from the keys, or a step along the gradients that are there."""
    columns, offsets, salt, bounds, tag_keys = templates
    shift = line_shift(weights.shape[0] // SLOTS)
    lines = np.empty(max(bounds[5] - bounds[4], bounds[8] - bounds[7]), np.uint64)
    pair_pass(
        mode, GP, 0, n_gp, pair_nodes, role(keys, bounds, np.int64(4), n_nodes),
        role(keys, bounds, np.int64(5), n_nodes), role(keys, bounds, np.int64(6), n_nodes),
        weights, squares, shift, seed_, keep, rate, limit, lines, theta,
    )  # fmt: skip
    pair_pass(
        mode, SIB, n_gp, n_pairs, pair_nodes, role(keys, bounds, np.int64(7), n_nodes),
        role(keys, bounds, np.int64(8), n_nodes), role(keys, bounds, np.int64(9), n_nodes),
        weights, squares, shift, seed_, keep, rate, limit, lines, theta,
    )  # fmt: skip
