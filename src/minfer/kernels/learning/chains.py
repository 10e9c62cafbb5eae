"""Linear chains with tied weights: likelihood and gradient, marginals, best paths.

A *sequence* is a run of items; an item has attributes with values; an attribute has a weight for
each of some labels. The score of a path is the sum of its items' weights times values and of a
weight for each pair of labels in a row. K labels in lines of P entries, P whole vectors of lanes.

**Numbers are linear**, scaled to sum one at every item: alpha_t = (alpha_(t-1) E) psi_t / c_t, with
E and psi the exponentials of scores less their largest; log Z is the sum of log c_t and of what
was taken off. Sums run over the lanes of labels, nothing is exponentiated but psi. A state of alpha
is at least e^-(range of the pairs' weights + range of the item's scores) of the largest, and so is
one of beta; so nothing underflows where the ranges together stay below ``MOST_RANGE``. Sequences
with more go through the same recursions in logarithms.

The expected number of times that label j follows i is E_ij times the sum over items of
alpha_(t-1),i (psi_t beta_t / c_t)_j: one outer product an item, and E once at the end.

Training takes attributes that meet many labels apart: *wide* ones have whole lines of weights, P
entries each, which are read and written as vectors. Items and weights are the tuples of
:mod:`minfer.learn.chain`.
"""

from __future__ import annotations

import math

import numpy as np

from minfer.kernels.arithmetic.lanes import exp, load, splat, store
from minfer.kernels.compiling.jit import jit

LANES = 8
#: Natural logarithms: e^-600 is 1e-261, and products of a few such steps are never formed.
MOST_RANGE = 600.0


@jit
def line_width(n_labels):
    """Whole vectors of lanes."""
    return -(-n_labels // LANES) * LANES


@jit
def item_scores(first, past, items, weights, width, out):
    """Scores of labels of some items, in lines of ``out``."""
    iptr, attr, value = items.iptr, items.attr, items.value
    fptr, label, w = weights.fptr, weights.label, weights.w
    for t in range(first, past):
        line = (t - first) * width
        for k in range(line, line + width):
            out[k] = 0.0
        for i in range(iptr[t], iptr[t + 1]):
            a = attr[i]
            x = value[i]
            for k in range(fptr[a], fptr[a + 1]):
                out[line + label[k]] += x * w[k]


@jit
def _make_linear(n, n_labels, width, scores, tops, most):
    """exp(score - largest) in place, padded with zeros; False if an item's range is above most."""
    widest = 0.0
    for t in range(n):
        line = t * width
        low = high = scores[line]
        for k in range(line + 1, line + n_labels):
            x = scores[k]
            low = min(low, x)
            high = max(high, x)
        widest = max(widest, high - low)
        tops[t] = high
    if not widest <= most:
        return False
    for t in range(n):
        line = t * width
        top = tops[t]
        for k in range(line, line + width, LANES):
            store(scores, k, exp(load(scores, k) - top))
        for k in range(line + n_labels, line + width):
            scores[k] = 0.0
    return True


@jit
def _add_wide(first, past, items, lines, width, out):
    """Add the scores by wide attributes: a vector of labels stays in a register for an item."""
    iptr, attr, value = items.iptr, items.attr, items.value
    for t in range(first, past):
        line = (t - first) * width
        begin, end = iptr[t], iptr[t + 1]
        for block in range(0, width, LANES):
            acc = load(out, line + block)
            for i in range(begin, end):
                acc = acc + load(lines, attr[i] * width + block) * value[i]
            store(out, line + block, acc)


@jit
def _times(x, at, n_labels, width, matrix, out, out_at):
    """out <- x matrix. Two sums in turn, since one waits for itself."""
    even = n_labels - n_labels % 2
    for block in range(0, width, LANES):
        one, two = splat(out, 0.0), splat(out, 0.0)
        for i in range(0, even, 2):
            row = i * width + block
            one = one + load(matrix, row) * x[at + i]
            two = two + load(matrix, row + width) * x[at + i + 1]
        if even < n_labels:
            one = one + load(matrix, even * width + block) * x[at + even]
        store(out, out_at + block, one + two)


@jit
def _sum(x, first, past):
    one, two = 0.0, 0.0
    for k in range(first, past, 2):  # widths are even
        one += x[k]
        two += x[k + 1]
    return one + two


@jit
def _passes(n, n_labels, width, psi, forth, back, alpha, beta, scale, pairs):
    """Marginals of one sequence in ``alpha``, pair sums (without E) added to ``pairs``.

    ``forth`` is E, ``back`` its transpose; ``psi`` is overwritten. Returns the sum of log c_t.
    """
    logs, product = 0.0, 1.0
    for t in range(n):
        at = t * width
        if t:
            _times(alpha, at - width, n_labels, width, forth, alpha, at)
            for k in range(at, at + width, LANES):
                store(alpha, k, load(alpha, k) * load(psi, k))
        else:
            for k in range(0, width, LANES):
                store(alpha, k, load(psi, k))
        total = _sum(alpha, at, at + width)
        inverse = 1.0 / total
        for k in range(at, at + width, LANES):
            store(alpha, k, load(alpha, k) * inverse)
        scale[t] = inverse
        if total < 1e-100:
            logs += math.log(total)
        else:
            product *= total
            if product < 1e-100 or product > 1e100:
                logs += math.log(product)
                product = 1.0
    logs += math.log(product)
    for k in range(width):
        beta[k] = 1.0
    for t in range(n - 1, 0, -1):
        at = t * width
        inverse = scale[t]
        for k in range(0, width, LANES):  # psi becomes psi beta / c
            store(psi, at + k, load(psi, at + k) * load(beta, k) * inverse)
            store(scale, n + at + k, load(alpha, at + k) * load(beta, k))
        _times(psi, at, n_labels, width, back, beta, 0)
    for k in range(0, width, LANES):
        store(scale, n + k, load(alpha, k) * load(beta, k))
    if n > 1:
        _add_pairs(n, n_labels, width, alpha, psi, pairs)
    for k in range(0, n * width, LANES):
        store(alpha, k, load(scale, n + k))
    return logs


@jit
def _add_pairs(n, n_labels, width, alpha, ahead, pairs):
    """pairs_ij += sum over t of alpha_(t-1),i ahead_tj."""
    for i in range(n_labels):
        for block in range(0, width, LANES):
            one, two = load(pairs, i * width + block), splat(pairs, 0.0)
            t = 1
            while t + 1 < n:
                at = t * width
                one = one + load(ahead, at + block) * alpha[at - width + i]
                two = two + load(ahead, at + width + block) * alpha[at + i]
                t += 2
            if t < n:
                at = t * width
                one = one + load(ahead, at + block) * alpha[at - width + i]
            store(pairs, i * width + block, one + two)


@jit
def _log_sum(x, first, past):
    top = -np.inf
    for k in range(first, past):
        top = max(top, x[k])
    total = 0.0
    for k in range(first, past):
        total += math.exp(x[k] - top)
    return top + math.log(total)


@jit
def _passes_in_logs(n, n_labels, width, scores, trans, alpha, beta, line, pairs):
    """The same from scores and weights themselves; pair sums are added as they are. Log Z."""
    for k in range(n_labels):
        alpha[k] = scores[k]
    for t in range(1, n):
        at = t * width
        for j in range(n_labels):
            for i in range(n_labels):
                line[i] = alpha[at - width + i] + trans[i, j]
            alpha[at + j] = scores[at + j] + _log_sum(line, 0, n_labels)
    last = (n - 1) * width
    log_z = _log_sum(alpha, last, last + n_labels)
    for k in range(n_labels):
        beta[k] = 0.0
    for t in range(n - 1, 0, -1):
        at = t * width
        for i in range(n_labels):
            for j in range(n_labels):
                line[j] = trans[i, j] + scores[at + j] + beta[j]
                pairs[i * width + j] += math.exp(alpha[at - width + i] + line[j] - log_z)
            beta[width + i] = _log_sum(line, 0, n_labels)
        for j in range(n_labels):
            alpha[at + j] = math.exp(alpha[at + j] + beta[j] - log_z)
            beta[j] = beta[width + j]
    for j in range(n_labels):
        alpha[j] = math.exp(alpha[j] + beta[j] - log_z)
    for t in range(n):
        for k in range(t * width + n_labels, (t + 1) * width):
            alpha[k] = 0.0
    return log_z


@jit
def _exponentials(trans, width):
    """E and its transpose in lines, what was taken off, and the range of the weights."""
    n = trans.shape[0]
    low, high = trans[0, 0], trans[0, 0]
    for i in range(n):
        for j in range(n):
            low = min(low, trans[i, j])
            high = max(high, trans[i, j])
    forth, back = np.zeros(n * width), np.zeros(n * width)
    for i in range(n):
        for j in range(n):
            forth[i * width + j] = math.exp(trans[i, j] - high)
            back[j * width + i] = forth[i * width + j]
    return forth, back, high, high - low


@jit
def _room(n_labels, width, ptr):
    """Scratch: psi, alpha, beta, scale (marginals behind it), tops, line, pairs twice."""
    longest = 0
    for s in range(ptr.size - 1):
        longest = max(longest, ptr[s + 1] - ptr[s])
    size = longest * width
    return (
        np.empty(size), np.empty(size), np.empty(2 * width), np.empty(longest + size),
        np.empty(longest), np.empty(width),
        np.zeros(n_labels * width), np.zeros(n_labels * width),
    )  # fmt: skip


@jit(forceinline=True)
def _infer(n, trans, width, powers, room):
    """log Z of a sequence whose scores are in psi; marginals in alpha, pair sums are added."""
    n_labels = trans.shape[0]
    forth, back, most, spread = powers
    psi, alpha, beta, scale, tops, line, pairs, more_pairs = room
    if not _make_linear(n, n_labels, width, psi, tops, MOST_RANGE - spread):
        return _passes_in_logs(n, n_labels, width, psi, trans, alpha, beta, line, more_pairs)
    log_z = _passes(n, n_labels, width, psi, forth, back, alpha, beta, scale, pairs)
    for t in range(n):
        log_z += tops[t]
    return log_z + most * (n - 1)


@jit
def likelihood(items, wide, weights, lines, gold, gradient):
    """Minus the log-likelihood of the ``gold`` labels, and its derivatives.

    ``items`` have the narrow attributes, ``wide`` the others. ``gradient``, like (w, lines, trans),
    is overwritten. Also returns the largest share of a sequence.
    """
    trans, ptr, fptr, label = weights.trans, items.ptr, weights.fptr, weights.label
    grad, d_lines, d_trans = gradient
    n_labels = trans.shape[0]
    width = line_width(n_labels)
    powers, room = _exponentials(trans, width), _room(n_labels, width, ptr)
    psi, alpha = room[0], room[1]
    grad[:] = 0.0
    d_lines[:] = 0.0
    d_trans[:] = 0.0
    loss, largest = 0.0, 0.0
    for s in range(ptr.size - 1):
        first, past = ptr[s], ptr[s + 1]
        n = past - first
        if n == 0:
            continue
        item_scores(first, past, items, weights, width, psi)
        _add_wide(first, past, wide, lines, width, psi)
        own = 0.0
        for t in range(n):
            own -= psi[t * width + gold[first + t]]
            if t:
                own -= trans[gold[first + t - 1], gold[first + t]]
                d_trans[gold[first + t - 1], gold[first + t]] -= 1.0
        own += _infer(n, trans, width, powers, room)
        loss += own
        largest = max(largest, own)
        for t in range(n):
            at = t * width
            alpha[at + gold[first + t]] -= 1.0
            for i in range(items.iptr[first + t], items.iptr[first + t + 1]):
                a = items.attr[i]
                x = items.value[i]
                for k in range(fptr[a], fptr[a + 1]):
                    grad[k] += x * alpha[at + label[k]]
            for i in range(wide.iptr[first + t], wide.iptr[first + t + 1]):
                row = wide.attr[i] * width
                x = wide.value[i]
                for k in range(0, width, LANES):
                    store(d_lines, row + k, load(d_lines, row + k) + load(alpha, at + k) * x)
    forth, pairs, more_pairs = powers[0], room[6], room[7]
    for i in range(n_labels):
        for j in range(n_labels):
            at = i * width + j
            d_trans[i, j] += pairs[at] * forth[at] + more_pairs[at]
    return loss, largest


@jit
def marginals(items, weights, out, log_z):
    """Probabilities (T, K) of the labels of items, and log Z (N,)."""
    trans, ptr = weights.trans, items.ptr
    n_labels = trans.shape[0]
    width = line_width(n_labels)
    powers, room = _exponentials(trans, width), _room(n_labels, width, ptr)
    alpha = room[1]
    for s in range(ptr.size - 1):
        first, past = ptr[s], ptr[s + 1]
        log_z[s] = 0.0
        if past == first:
            continue
        item_scores(first, past, items, weights, width, room[0])
        log_z[s] = _infer(past - first, trans, width, powers, room)
        for t in range(past - first):
            total = 0.0
            for k in range(n_labels):
                total += alpha[t * width + k]
            for k in range(n_labels):
                out[first + t, k] = alpha[t * width + k] / total


@jit
def best_paths(items, weights, path):
    """The labels (T,) of each sequence's best path, the first of equals."""
    trans, ptr = weights.trans, items.ptr
    n_labels = trans.shape[0]
    width = line_width(n_labels)
    best = _room(n_labels, width, ptr)[0]
    came = np.empty((best.size // width, n_labels), np.int32)
    for s in range(ptr.size - 1):
        first, past = ptr[s], ptr[s + 1]
        n = past - first
        if n == 0:
            continue
        item_scores(first, past, items, weights, width, best)
        for t in range(1, n):
            at = t * width
            for j in range(n_labels):
                top, where = best[at - width] + trans[0, j], 0
                for i in range(1, n_labels):
                    x = best[at - width + i] + trans[i, j]
                    if x > top:
                        top, where = x, i
                best[at + j] += top
                came[t, j] = where
        at = (n - 1) * width
        where = 0
        for j in range(1, n_labels):
            if best[at + j] > best[at + where]:
                where = j
        for t in range(n - 1, -1, -1):
            path[first + t] = where
            if t:
                where = came[t, where]


@jit
def column_keys(iptr, attr, bits, first, second):
    """Two keys of each attribute's column: of which items have it, with which value.

    ``bits`` (of the values) as uint64; ``first`` and ``second`` uint64 (A,), zero at the start.
    """
    for t in range(iptr.size - 1):
        for i in range(iptr[t], iptr[t + 1]):
            x = np.uint64(t + 1) * np.uint64(0x9E3779B97F4A7C15) ^ bits[i]
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x = x ^ (x >> np.uint64(31))
            first[attr[i]] += x
            second[attr[i]] += (x ^ np.uint64(0xD6E8FEB86659FD93)) * (x | np.uint64(1))
