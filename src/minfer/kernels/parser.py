"""The parser's arithmetic: hashed features, lazy pairs, belief propagation with a tree, learning.

Nodes are 0 .. n, 0 is the root; N = n + 1. A feature is a *line* of 16 weights in one table, found
by a hash; a line lies in one cache line, and its slots are conjunctions with direction and distance
of which each arc or pair reads two. A template gives every token one key per role it plays, and

    line = ((key[h] ^ key[m]) * ODD) >> shift

so that an arc costs one multiplication per template beyond the reading of its weights.

Belief propagation (Smith & Eisner 2008) alternates the tree factor and all pair factors
exp(theta y_a y_b). Messages are odds: an arc enters the tree with r_a = e^{s_a} prod_f m_{f -> a};
the tree gives its belief odds O_a; then for each pair f = (a, b), with q_a = O_a / m_{f -> a},

    m_{f -> b} = (1 + q_a e^theta) / (1 + q_a)        and likewise to a

    log Z = log Z_tree(r) + sum_f log (1 + q_a + q_b + q_a q_b e^theta) / ((1 + O_a) (1 + O_b))

The first tree pass is the seed of the reduction: its marginals decide which pairs are looked at
and, with the pairs' gains, what an objective keeps. The other seed, the unary factors alone, needs
no tree: a word's scores, normalised over its heads.
Scratch arrays are passed in and may hold anything.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels._jit import jit
from minfer.kernels.decode import chu_liu_edmonds, eisner
from minfer.kernels.gains import pair_gains
from minfer.kernels.select import ALL, choose
from minfer.kernels.trees import (
    ONE_ROOT,
    SPREAD,
    TINY,
    float_scratch,
    int_scratch,
    inverse_marginals,
    nonprojective,
    nonprojective_log,
    plan_arcs,
    projective,
    projective_log,
    projective_sparse,
    tree_marginals,
)

ODD = np.uint64(0x9E3779B97F4A7C15)
MIX = np.uint64(0xD6E8FEB86659FD93)
OUTSIDE = np.uint64(0xA0761D6478BD642F)  # stands for an atom beyond the sentence
SLOTS = 16
SCORE, DROP, UPDATE = 0, 1, 2  # what a pass over features does
SKIP = 1e-3  # gradients below are not applied
MOST = 1e30  # odds are kept within 1e-30 .. 1e30
LIMIT = 1e140  # products of messages are kept within 1e-140 .. 1e140
SAFE = 350.0  # sum of |theta| of an arc below which they stay there by themselves
GP, SIB = 0, 1
BOTH = np.array([0.0, 0.0, 0.0, 1.0])  # truth of a pair's feature


# ------------------------------------------------------------------ features


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


# ------------------------------------------------------------------ candidates


@jit
def list_arcs(scores, mu, least, heads, modifiers, start, arc_at):
    """How many arcs with mu >= least there are, listed by modifier and then head.

    ``heads``, ``modifiers`` i4 (n^2,); those into m at ``start[m] : start[m + 1]``, i8 (N + 1,);
    ``arc_at`` i4 (N, N) is the number of an arc or -1. Arcs of score minus infinity are none.
    """
    n = mu.shape[0]
    count = 0
    start[0] = 0
    for m in range(n):
        start[m] = count
        for h in range(n):
            arc_at[h, m] = -1
            if m > 0 and h != m and mu[h, m] >= least and scores[h, m] > -np.inf:
                arc_at[h, m] = count
                heads[count] = h
                modifiers[count] = m
                count += 1
    start[n] = count
    return count


@jit
def list_pairs(
    projective_tree, single_root, use_gp, use_sib, least, mu, heads, modifiers, start, arc_at,
    bucket, fill, pair_arcs, pair_nodes,
):  # fmt: skip
    """How many pairs with mu_a mu_b >= least there are: grandparents, and all of both kinds.

    Pairs that no tree has are left out: g -> h -> g; if trees are projective, g between h and m;
    siblings under a single root. With ``fill`` they are written: ``pair_arcs`` and
    ``pair_nodes`` i4. ``bucket`` i4 (n^2,), scratch: the arcs out of a head.
    """
    n = mu.shape[0]
    count = 0
    if use_gp:
        for h in range(1, n):
            n_out = 0
            for m in range(1, n):
                b = arc_at[h, m]
                if b >= 0 and mu[h, m] >= least:
                    bucket[n_out] = b
                    n_out += 1
            for a in range(start[h], start[h + 1]):
                g = heads[a]
                p = mu[g, h]
                if p < least:
                    continue
                for k in range(n_out):
                    b = bucket[k]
                    m = modifiers[b]
                    if m == g or p * mu[h, m] < least:
                        continue
                    if projective_tree and (h < g < m or m < g < h):
                        continue
                    if fill:
                        pair_arcs[count, 0] = a
                        pair_arcs[count, 1] = b
                        pair_nodes[count, 0] = g
                        pair_nodes[count, 1] = h
                        pair_nodes[count, 2] = m
                    count += 1
    n_gp = count
    if use_sib:
        for h in range(1 if single_root else 0, n):
            n_out = 0
            for m in range(1, n):
                b = arc_at[h, m]
                if b >= 0 and mu[h, m] >= least:
                    bucket[n_out] = b
                    n_out += 1
            for i in range(n_out):
                a = bucket[i]
                p = mu[h, modifiers[a]]
                for j in range(i + 1, n_out):
                    b = bucket[j]
                    if p * mu[h, modifiers[b]] < least:
                        continue
                    if fill:
                        pair_arcs[count, 0] = a
                        pair_arcs[count, 1] = b
                        pair_nodes[count, 0] = h
                        pair_nodes[count, 1] = modifiers[a]
                        pair_nodes[count, 2] = modifiers[b]
                    count += 1
    return n_gp, count


@jit
def keep_pairs(
    objective, parameter, by_sorting, mu, heads, modifiers, pair_arcs, pair_nodes, n_gp, theta
):
    """Keep the pairs that an objective chooses by their gains under ``mu`` (N, N).

    The three arrays are packed in place; how many grandparents and pairs are left.
    """
    n_pairs = theta.shape[0]
    if objective == ALL:
        return n_gp, n_pairs
    probs = np.empty((heads.shape[0], 2))
    for a in range(heads.shape[0]):
        probs[a, 1] = mu[heads[a], modifiers[a]]
        probs[a, 0] = 1.0 - probs[a, 1]
    gains = np.empty(n_pairs)
    keep = np.empty(n_pairs, np.bool_)
    pair_gains(pair_arcs, BOTH, theta, probs, gains)
    choose(objective, parameter, by_sorting, gains, keep)
    count = 0
    left = 0
    for p in range(n_pairs):
        if keep[p]:
            for c in range(2):
                pair_arcs[count, c] = pair_arcs[p, c]
            for c in range(3):
                pair_nodes[count, c] = pair_nodes[p, c]
            theta[count] = theta[p]
            count += 1
            if p < n_gp:
                left += 1
    return left, count


# ------------------------------------------------------------------ belief propagation


@jit
def belief_odds(n_nodes, start, mass, mu, odds):
    """Probabilities and odds (A,) of arcs from their masses: those into a word are rivals."""
    change = 0.0
    for m in range(1, n_nodes):
        top = -1.0
        first = -1
        total = 0.0
        for a in range(start[m], start[m + 1]):
            total += mass[a]
            if mass[a] > top:
                top = mass[a]
                first = a
        rest = 0.0
        for a in range(start[m], start[m + 1]):
            if a != first:
                rest += mass[a]
        for a in range(start[m], start[m + 1]):
            p = mass[a] / total
            change = max(change, abs(p - mu[a]))
            mu[a] = p
            off = rest if a == first else total - mass[a]
            x = mass[a] / off if off > 0.0 else MOST
            odds[a] = min(max(x, 1.0 / MOST), MOST)
    return change


@jit
def tree_pass(
    projective_tree, single_root, n_nodes, sparse, heads, modifiers, start, plan, r, mass,
    w, d, work, ints,
):  # fmt: skip
    """log Z of the tree factor for odds r (A,); ``mass`` (A,) gets what the arcs' beliefs are
    proportional to, among the arcs into one word. Minus infinity: no tree."""
    n_arcs = start[n_nodes]
    base = 0.0
    size = n_nodes * n_nodes
    dense = w[:size].reshape(n_nodes, n_nodes)
    derivative = d[:size].reshape(n_nodes, n_nodes)
    if not sparse:
        w[:size] = 0.0
    for m in range(1, n_nodes):
        top = 0.0
        total = 0.0
        for a in range(start[m], start[m + 1]):
            total += r[a]
            top = max(top, r[a])
        if projective_tree:
            total = min(total, SPREAD * top)
        if not total > 0.0:
            return -np.inf
        base += np.log(total)
        for a in range(start[m], start[m + 1]):
            mass[a] = r[a] / total
            if not sparse:
                dense[heads[a], m] = mass[a]
    if sparse:
        z = projective_sparse(plan, mass[:n_arcs], n_nodes, single_root, d[:n_arcs], work)
    elif projective_tree:
        z = projective(dense, single_root, derivative, work)
    else:
        z = inverse_marginals(dense, single_root, derivative, work)
        if z >= TINY:
            for a in range(n_arcs):
                mass[a] = derivative[heads[a], modifiers[a]]
            return base + np.log(z)
        z = nonprojective(dense, single_root, derivative, work, ints)
    floor = ONE_ROOT if single_root and not projective_tree else TINY
    if z >= floor and z < 1.0 / TINY:
        for a in range(n_arcs):
            mass[a] *= d[a] if sparse else derivative[heads[a], modifiers[a]]
        return base + np.log(z)
    for q in range(size):
        w[q] = -np.inf
        d[q] = -np.inf
    for a in range(n_arcs):
        dense[heads[a], modifiers[a]] = np.log(mass[a])
    if projective_tree:
        log_z = projective_log(dense, single_root, derivative, work)
    else:
        log_z = nonprojective_log(dense, single_root, derivative, work, ints)
    for a in range(n_arcs):
        h, m = heads[a], modifiers[a]
        mass[a] = np.exp(dense[h, m] + derivative[h, m] - log_z) if log_z > -np.inf else 0.0
    return base + log_z


@jit
def pair_log_z(n_pairs, pair_arcs, messages, odds):
    """What the pairs add to the log-partition of the tree in the Bethe expression."""
    total = 0.0
    product = 1.0  # a logarithm only when it leaves the range
    for p in range(n_pairs):
        a, b = np.uint32(pair_arcs[p, 0]), np.uint32(pair_arcs[p, 1])
        qa, qb = odds[a] / messages[p, 0], odds[b] / messages[p, 1]
        both = qa * qb * messages[p, 2]
        product *= (1.0 + qa + qb + both) / ((1.0 + odds[a]) * (1.0 + odds[b]))
        if not 1e-100 < product < 1e100:
            total += np.log(product)
            product = 1.0
    return total + np.log(product)


@jit
def pair_beliefs(n_pairs, pair_arcs, messages, odds, belief):
    """Probability (P,) that both arcs of a pair are on."""
    for p in range(n_pairs):
        qa = odds[pair_arcs[p, 0]] / messages[p, 0]
        qb = odds[pair_arcs[p, 1]] / messages[p, 1]
        both = qa * qb * messages[p, 2]
        belief[p] = both / (1.0 + qa + qb + both)


# ------------------------------------------------------------------ one sentence


@jit
def tree_seed(projective_tree, single_root, scores, mu):
    """log Z and arc probabilities (N, N) of the model without pairs."""
    n = scores.shape[0]
    work = np.empty(float_scratch(n))
    ints = np.empty(int_scratch(n), np.int64)
    w = np.empty((n, n))
    d = np.empty((n, n))
    return tree_marginals(projective_tree, single_root, scores, mu, w, d, work, ints)


@jit
def unary_seed(scores, mu):
    """Arc probabilities (N, N) by each word's scores alone; the sum of the logs of what they are
    divided by, minus infinity if a word has no head."""
    n = scores.shape[0]
    mu[:, :] = 0.0
    log_z = 0.0
    for m in range(1, n):
        top = -np.inf
        for h in range(n):
            if h != m:
                top = max(top, scores[h, m])
        if top == -np.inf:
            return top
        total = 0.0
        for h in range(n):
            if h != m:
                mu[h, m] = np.exp(scores[h, m] - top)
                total += mu[h, m]
        for h in range(n):
            mu[h, m] /= total
        log_z += top + np.log(total)
    return log_z


@jit
def seed(from_unary, projective_tree, single_root, scores, mu):
    """log Z and arc probabilities (N, N) of the seed, the tree or the unary factors."""
    if from_unary:
        return unary_seed(scores, mu)
    return tree_seed(projective_tree, single_root, scores, mu)


@jit
def candidates(projective_tree, single_root, use_gp, use_sib, least, arc_least, scores, mu):
    """Arcs with probability >= arc_least and pairs with mu_a mu_b >= least, as ``list_arcs`` and
    ``list_pairs`` have them: heads, modifiers, start, pair_arcs, pair_nodes, n_gp."""
    n = scores.shape[0]
    heads = np.empty(n * n, np.int32)
    modifiers = np.empty(n * n, np.int32)
    start = np.empty(n + 1, np.int64)
    arc_at = np.empty((n, n), np.int32)
    bucket = np.empty(n * n, np.int32)
    n_arcs = list_arcs(scores, mu, arc_least, heads, modifiers, start, arc_at)
    heads, modifiers = heads[:n_arcs], modifiers[:n_arcs]
    pair_arcs = np.empty((0, 2), np.int32)
    pair_nodes = np.empty((0, 3), np.int32)
    n_gp, count = list_pairs(
        projective_tree, single_root, use_gp, use_sib, least, mu, heads, modifiers, start, arc_at,
        bucket, False, pair_arcs, pair_nodes,
    )  # fmt: skip
    pair_arcs = np.empty((count, 2), np.int32)
    pair_nodes = np.empty((count, 3), np.int32)
    list_pairs(
        projective_tree, single_root, use_gp, use_sib, least, mu, heads, modifiers, start, arc_at,
        bucket, True, pair_arcs, pair_nodes,
    )  # fmt: skip
    return heads, modifiers, start, pair_arcs, pair_nodes, n_gp


@jit
def second_order(
    projective_tree, single_root, max_iters, tol, damping, scores, mu, heads, modifiers, start,
    pair_arcs, theta, n_pairs,
):  # fmt: skip
    """Belief propagation from the seed's ``mu`` (N, N), which gets the answer.

    An iteration is an update of all pairs and a tree pass. Returns iterations, the last change of
    a probability, log Z, odds of the arcs (A,) and messages f8 (P, 3): to both arcs of a pair, and
    e^theta. Where there is no tree log Z is minus infinity and ``mu`` stays.
    """
    n = scores.shape[0]
    n_arcs = start[n]
    sparse = projective_tree and 3 * n_arcs < (n - 1) * (n - 1)
    plan = np.empty((8, n_arcs + n + 1 if sparse else 0), np.int32)
    if sparse:
        plan_arcs(heads, modifiers, n, plan)
    unary = np.empty(n_arcs)
    r = np.empty(n_arcs)
    mass = np.empty(n_arcs)
    belief = np.empty(n_arcs)
    odds = np.empty(n_arcs)
    messages = np.empty((n_pairs, 3))
    w = np.empty(n * n)
    d = np.empty(n * n)
    work = np.empty(float_scratch(n))
    ints = np.empty(int_scratch(n), np.int64)
    r[:] = 0.0
    for p in range(n_pairs):
        messages[p, 0] = 1.0
        messages[p, 1] = 1.0
        messages[p, 2] = np.exp(theta[p])
        for c in range(2):
            r[pair_arcs[p, c]] += abs(theta[p])
    wild = False  # whether a product of messages could leave the range of numbers
    for a in range(n_arcs):
        wild = wild or r[a] > SAFE
    shift = 0.0  # what the scores lose to stay in range, word by word
    for m in range(1, n):
        top = -np.inf
        for a in range(start[m], start[m + 1]):
            top = max(top, scores[heads[a], m])
        if top == -np.inf:
            return 0, np.inf, -np.inf, odds, messages
        shift += top
        for a in range(start[m], start[m + 1]):
            unary[a] = np.exp(max(scores[heads[a], m] - top, -300.0))
            mass[a] = mu[heads[a], m]
            belief[a] = mass[a]
    belief_odds(n, start, mass, belief, odds)
    iters = 0
    change = np.inf
    log_z = -np.inf
    while iters < max_iters and change > tol:
        iters += 1
        for a in range(n_arcs):
            r[a] = unary[a]
        for p in range(n_pairs):
            a, b = np.uint32(pair_arcs[p, 0]), np.uint32(pair_arcs[p, 1])
            from_a, from_b, x = messages[p, 0], messages[p, 1], messages[p, 2]
            to_b = (from_a + odds[a] * x) / (from_a + odds[a])
            to_a = (from_b + odds[b] * x) / (from_b + odds[b])
            if damping > 0.0:
                to_a = (1.0 - damping) * to_a + damping * from_a
                to_b = (1.0 - damping) * to_b + damping * from_b
            messages[p, 0] = to_a
            messages[p, 1] = to_b
            r[a] *= to_a
            r[b] *= to_b
            if wild:
                r[a] = min(max(r[a], 1.0 / LIMIT), LIMIT)
                r[b] = min(max(r[b], 1.0 / LIMIT), LIMIT)
        for a in range(n_arcs):
            r[a] = min(max(r[a], 1.0 / LIMIT), LIMIT)
        log_z = tree_pass(
            projective_tree, single_root, n, sparse, heads, modifiers, start, plan, r, mass, w, d,
            work, ints,
        )  # fmt: skip
        if log_z == -np.inf:
            return iters, change, log_z, odds, messages
        change = belief_odds(n, start, mass, belief, odds)
    log_z += shift + pair_log_z(n_pairs, pair_arcs, messages, odds)
    mu[:, :] = 0.0
    for a in range(n_arcs):
        mu[heads[a], modifiers[a]] = belief[a]
    return iters, change, log_z, odds, messages


@jit
def decode(projective_tree, single_root, mu, heads):
    """The tree with the most expected correct arcs into ``heads`` i8 (N,): minimum Bayes risk."""
    n = mu.shape[0]
    if projective_tree:
        work = np.empty(2 * n * n)
        back = np.empty(2 * n * n + 4 * n + 8, np.int64)
        eisner(mu, single_root, heads, work, back)
    else:
        work = np.empty(n * n)
        back = np.empty(6 * n * n + 5 * n, np.int64)
        chu_liu_edmonds(mu, single_root, heads, work, back)


@jit
def array_weights(gp, sib, pair_nodes, n_gp, theta):
    """Weights of pairs from arrays [g, h, m] and [h, m, s]."""
    for p in range(pair_nodes.shape[0]):
        i, j, k = pair_nodes[p, 0], pair_nodes[p, 1], pair_nodes[p, 2]
        theta[p] = gp[i, j, k] if p < n_gp else sib[i, j, k]


@jit
def infer_arrays(settings, scores, gp, sib, mu):
    """Inference for given scores: arcs (N, N), pairs (N, N, N) or of no entries.

    ``mu`` (N, N) is filled. Returns log Z, pairs looked at, iterations, last change, nodes i4
    (P, 3) of the pairs kept, and how many of these are grandparents. ``settings`` as for
    ``parse``.
    """
    (
        projective_tree, single_root, use_gp, use_sib, from_unary, least, arc_least, objective,
        parameter, by_sorting, max_iters, tol, damping, limit,
    ) = settings  # fmt: skip
    log_z = seed(from_unary, projective_tree, single_root, scores, mu)
    if log_z == -np.inf:
        return log_z, 0, 0, 0.0, np.empty((0, 3), np.int32), 0
    arc_heads, modifiers, start, pair_arcs, pair_nodes, n_gp = candidates(
        projective_tree, single_root, use_gp, use_sib, least, arc_least, scores, mu
    )
    theta = np.empty(pair_arcs.shape[0])
    array_weights(gp, sib, pair_nodes, n_gp, theta)
    n_gp, n_pairs = keep_pairs(
        objective, parameter, by_sorting, mu, arc_heads, modifiers, pair_arcs, pair_nodes, n_gp,
        theta,
    )  # fmt: skip
    if from_unary:
        log_z = tree_seed(projective_tree, single_root, scores, mu)
    iters = 0
    change = 0.0
    if n_pairs > 0 and log_z > -np.inf:
        iters, change, z, odds, messages = second_order(
            projective_tree, single_root, max_iters, tol, damping, scores, mu, arc_heads,
            modifiers, start, pair_arcs, theta, n_pairs,
        )  # fmt: skip
        if z > -np.inf:
            log_z = z
    return log_z, theta.shape[0], iters, change, pair_nodes[:n_pairs], n_gp


# ------------------------------------------------------------------ the model on a batch


@jit
def role(keys, bounds, number, n_nodes):
    """The keys u8 (N, T) of one role in the flat array of all."""
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
def first_scores(mode, templates, keys, tags, weights, squares, shift, seed_, keep, rate, scores):
    """Arc scores (N, N) from the keys, or a step along the gradients that are there."""
    columns, offsets, salt, bounds, tag_keys = templates
    n_nodes = scores.shape[0]
    head_sums = np.empty((n_nodes, SLOTS))
    mod_sums = np.empty((n_nodes, SLOTS))
    head_keys = role(keys, bounds, 0, n_nodes)
    mod_keys = role(keys, bounds, 1, n_nodes)
    lines = np.empty(bounds[3] - bounds[2] + 64, np.uint64)
    if mode != UPDATE:
        token_pass(mode, head_keys, weights, squares, shift, seed_, keep, rate, head_sums)
        token_pass(mode, mod_keys, weights, squares, shift, seed_, keep, rate, mod_sums)
    arc_pass(
        mode, role(keys, bounds, 2, n_nodes), role(keys, bounds, 3, n_nodes), tags, tag_keys,
        head_sums, mod_sums, weights, squares, shift, seed_, keep, rate, lines, scores,
    )  # fmt: skip
    if mode == UPDATE:
        token_pass(mode, head_keys, weights, squares, shift, seed_, keep, rate, head_sums)
        token_pass(mode, mod_keys, weights, squares, shift, seed_, keep, rate, mod_sums)


@jit
def second_scores(
    mode, templates, keys, n_nodes, n_gp, n_pairs, pair_nodes, weights, squares, shift, seed_,
    keep, rate, limit, theta,
):  # fmt: skip
    """Pair weights theta (P,) from the keys, or a step along the gradients that are there."""
    columns, offsets, salt, bounds, tag_keys = templates
    lines = np.empty(max(bounds[5] - bounds[4], bounds[8] - bounds[7]), np.uint64)
    pair_pass(
        mode, GP, 0, n_gp, pair_nodes, role(keys, bounds, 4, n_nodes),
        role(keys, bounds, 5, n_nodes), role(keys, bounds, 6, n_nodes), weights, squares, shift,
        seed_, keep, rate, limit, lines, theta,
    )  # fmt: skip
    pair_pass(
        mode, SIB, n_gp, n_pairs, pair_nodes, role(keys, bounds, 7, n_nodes),
        role(keys, bounds, 8, n_nodes), role(keys, bounds, 9, n_nodes), weights, squares, shift,
        seed_, keep, rate, limit, lines, theta,
    )  # fmt: skip


@jit
def parse(
    settings, templates, tables, weights, pair_weights, start, words, upos, xpos, phase, heads,
    probs, second, second_probs, log_z, log_p, counts, change, mu_out,
):  # fmt: skip
    """Parse B sentences, whose tokens are ``start[b] : start[b + 1]`` of the flat arrays.

    ``settings``: projective, single_root, use_gp, use_sib, whether the seed is the unary factors,
    least mean of a pair, least probability of an arc, objective, its parameter, whether by
    sorting (``choose``), most iterations, tolerance, damping, largest |theta|. ``heads`` i4
    (tokens,) and ``probs`` of the chosen arcs; ``second`` and ``second_probs`` of the best other
    head; ``log_z`` and ``log_p`` (B,), the log-probability of the tree. ``counts`` i8 (B, 4):
    arcs, pairs looked at, pairs kept, iterations. ``mu_out`` gets all N x N probabilities, one
    sentence after the other, unless it is empty. ``phase`` below 5 stops early, to be timed: 0
    keys, 1 arc scores, 2 the seed, 3 pairs listed and scored, 4 selection and belief propagation.
    """
    (
        projective_tree, single_root, use_gp, use_sib, from_unary, least, arc_least, objective,
        parameter, by_sorting, max_iters, tol, damping, limit,
    ) = settings  # fmt: skip
    n_keys = templates[3][-1]
    shift = np.uint64(64 - table_bits(weights.shape[0]))
    pair_shift = np.uint64(64 - table_bits(pair_weights.shape[0]))
    none = np.empty(0, np.float32)
    zero = np.uint64(0)
    whole = np.uint64(1 << 24)
    at_mu = 0
    for b in range(start.shape[0] - 1):
        lo, hi = start[b], start[b + 1]
        n = hi - lo + 1
        keys = np.empty(n * n_keys, np.uint64)
        tags = np.empty(n, np.int64)
        sentence_keys(templates, tables, words[lo:hi], upos[lo:hi], xpos[lo:hi], keys, tags)
        if phase < 1:
            continue
        scores = np.empty((n, n))
        first_scores(SCORE, templates, keys, tags, weights, none, shift, zero, whole, 0.0, scores)
        if phase < 2:
            continue
        mu = np.empty((n, n))
        log_z[b] = seed(from_unary, projective_tree, single_root, scores, mu)
        if phase < 3:
            continue
        n_arcs = n_pairs = scored = iters = n_gp = 0
        change[b] = 0.0
        pair_nodes = np.empty((0, 3), np.int32)
        theta = np.empty(0)
        if use_gp or use_sib:
            arc_heads, modifiers, first, pair_arcs, pair_nodes, n_gp = candidates(
                projective_tree, single_root, use_gp, use_sib, least, arc_least, scores, mu
            )
            n_arcs = first[n]
            scored = n_pairs = pair_arcs.shape[0]
            theta = np.empty(scored)
            second_scores(
                SCORE, templates, keys, n, n_gp, scored, pair_nodes, pair_weights, none,
                pair_shift, zero, whole, 0.0, limit, theta,
            )  # fmt: skip
            if phase < 4:
                continue
            n_gp, n_pairs = keep_pairs(
                objective, parameter, by_sorting, mu, arc_heads, modifiers, pair_arcs, pair_nodes,
                n_gp, theta,
            )  # fmt: skip
            if from_unary:
                log_z[b] = tree_seed(projective_tree, single_root, scores, mu)
            if n_pairs > 0:
                iters, change[b], z, odds, messages = second_order(
                    projective_tree, single_root, max_iters, tol, damping, scores, mu, arc_heads,
                    modifiers, first, pair_arcs, theta, n_pairs,
                )  # fmt: skip
                if z > -np.inf:
                    log_z[b] = z
        counts[b, 0] = n_arcs
        counts[b, 1] = scored
        counts[b, 2] = n_pairs
        counts[b, 3] = iters
        if phase < 5:
            continue
        chosen = np.empty(n, np.int64)
        decode(projective_tree, single_root, mu, chosen)
        log_p[b] = -log_z[b]
        for p in range(n_pairs):
            i, j = pair_nodes[p, 0], pair_nodes[p, 1]
            if chosen[j] == i and chosen[pair_nodes[p, 2]] == (j if p < n_gp else i):
                log_p[b] += theta[p]
        for m in range(1, n):
            h = chosen[m]
            log_p[b] += scores[h, m]
            heads[lo + m - 1] = h
            probs[lo + m - 1] = mu[h, m]
            best = -1
            for g in range(n):
                if g != h and g != m and (best < 0 or mu[g, m] > mu[best, m]):
                    best = g
            second[lo + m - 1] = best
            second_probs[lo + m - 1] = mu[best, m] if best >= 0 else 0.0
        if mu_out.size > 0:
            for h in range(n):
                for m in range(n):
                    mu_out[at_mu + h * n + m] = mu[h, m]
            at_mu += n * n


@jit
def table_bits(size):
    """log2 of the number of lines in a table of this many weights."""
    bits = 0
    while (SLOTS << bits) < size:
        bits += 1
    return bits


@jit
def learn(
    settings, templates, tables, weights, squares, pair_weights, pair_squares, start, words, upos,
    xpos, gold, order, seeds, keep, rate, pair_rate, use_pairs, totals,
):  # fmt: skip
    """One step of AdaGrad for each sentence in ``order``, along the gradient of log P(tree).

    ``gold`` i4 (tokens,) are heads; ``seeds`` u8 (len(order),) choose the features dropped.
    ``totals`` f8 (6,) is added to: minus log-likelihood, words, pairs, iterations, and the least
    and largest theta seen.
    """
    (
        projective_tree, single_root, use_gp, use_sib, from_unary, least, arc_least, objective,
        parameter, by_sorting, max_iters, tol, damping, limit,
    ) = settings  # fmt: skip
    n_keys = templates[3][-1]
    shift = np.uint64(64 - table_bits(weights.shape[0]))
    pair_shift = np.uint64(64 - table_bits(pair_weights.shape[0]))
    for k in range(order.shape[0]):
        b = order[k]
        lo, hi = start[b], start[b + 1]
        n = hi - lo + 1
        keys = np.empty(n * n_keys, np.uint64)
        tags = np.empty(n, np.int64)
        sentence_keys(templates, tables, words[lo:hi], upos[lo:hi], xpos[lo:hi], keys, tags)
        scores = np.empty((n, n))
        first_scores(
            DROP, templates, keys, tags, weights, squares, shift, seeds[k], keep, rate, scores
        )
        mu = np.empty((n, n))
        log_z = seed(from_unary and use_pairs, projective_tree, single_root, scores, mu)
        gold_score = 0.0
        if use_pairs:
            arc_heads, modifiers, first, pair_arcs, pair_nodes, n_gp = candidates(
                projective_tree, single_root, use_gp, use_sib, least, arc_least, scores, mu
            )
            theta = np.empty(pair_arcs.shape[0])
            second_scores(
                DROP, templates, keys, n, n_gp, theta.shape[0], pair_nodes, pair_weights,
                pair_squares, pair_shift, seeds[k], keep, pair_rate, limit, theta,
            )  # fmt: skip
            n_gp, n_pairs = keep_pairs(
                objective, parameter, by_sorting, mu, arc_heads, modifiers, pair_arcs, pair_nodes,
                n_gp, theta,
            )  # fmt: skip
            if from_unary:
                log_z = tree_seed(projective_tree, single_root, scores, mu)
            if n_pairs > 0:
                iters, change, z, odds, messages = second_order(
                    projective_tree, single_root, max_iters, tol, damping, scores, mu, arc_heads,
                    modifiers, first, pair_arcs, theta, n_pairs,
                )  # fmt: skip
                if z > -np.inf:
                    log_z = z
                    belief = np.empty(n_pairs)
                    pair_beliefs(n_pairs, pair_arcs, messages, odds, belief)
                    for p in range(n_pairs):
                        i, j, s = pair_nodes[p, 0], pair_nodes[p, 1], pair_nodes[p, 2]
                        totals[4] = min(totals[4], theta[p])
                        totals[5] = max(totals[5], theta[p])
                        both = gold[lo + s - 1] == (j if p < n_gp else i)
                        if both and gold[lo + j - 1] == i:
                            gold_score += theta[p]
                            belief[p] -= 1.0
                    second_scores(
                        UPDATE, templates, keys, n, n_gp, n_pairs, pair_nodes, pair_weights,
                        pair_squares, pair_shift, seeds[k], keep, pair_rate, limit, belief,
                    )  # fmt: skip
                totals[2] += n_pairs
                totals[3] += iters
        for m in range(1, n):
            h = gold[lo + m - 1]
            gold_score += scores[h, m]
            mu[h, m] -= 1.0
        first_scores(
            UPDATE, templates, keys, tags, weights, squares, shift, seeds[k], keep, rate, mu
        )
        totals[0] += log_z - gold_score
        totals[1] += n - 1
