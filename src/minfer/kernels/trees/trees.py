"""Sums over dependency trees: their weight, its derivative by every arc, and what follows.

Nodes are ``0 .. n``; 0 is the root and never a modifier; N = n + 1. With one weight w[h, m] per arc

    Z = sum_trees prod_{(h, m) in tree} w[h, m],    d[h, m] = dZ / dw[h, m]

where every word has exactly one head and the root one child (``single_root``) or any number. A tree
has one arc into each m, so d[h, m] does not depend on the weights of the arcs into m, a word's
weights may be scaled at will, and all that is asked of a tree factor follows by sums of positive
terms: an arc is on with mass w d and off with the mass of its rivals, the other arcs into m. With
a single root the weights of all arcs from it may be scaled at will too, and learnt scores make use
of that: without a scale of their own (``root_scale``), Z would sink out of range with n.

``minfer.kernels.trees.projective`` and ``minfer.kernels.trees.nonprojective`` compute Z and d; here
are the messages and probabilities. Linear kernels take and give plain weights, ``*_log`` kernels
logarithms (minus infinity is a zero), for where a linear sum is too small to be trusted. Scratch is
passed in, at least ``float_scratch(N)`` and ``int_scratch(N)`` entries, and may hold anything.
Entries of ``d`` that are not arcs are left alone.
"""

from __future__ import annotations

import numpy as np

from minfer.kernels.arithmetic.vexp import exp_in_place, log_in_place
from minfer.kernels.compiling.jit import jit
from minfer.kernels.trees.nonprojective import (
    MAX_DEPTH,
    ONE_ROOT,
    TINY,
    inverse_marginals,
    nonprojective,
    nonprojective_log,
)
from minfer.kernels.trees.projective import projective, projective_log, projective_sparse
from minfer.kernels.trees.tree_lanes import marginals_in_lanes

SPREAD = 2.6  # see scale_of
CUT = 1e4  # arcs so far below their rivals are tried without, and needed only where all trees
MATTERS = 750.0  # without them weigh little more: e^-750 is 0


@jit
def float_scratch(n_nodes):
    return (8 * n_nodes + 1) * n_nodes + 4 * MAX_DEPTH


@jit
def int_scratch(n_nodes):
    return 3 * n_nodes + 4 * MAX_DEPTH


@jit
def scale_of(log_w, arcs, lo, hi, cap):
    """What to subtract from the log-weights of the arcs into one word: ``arcs[lo:hi]``.

    Their sum, so that Z is at most 1; in the projective chart at most ``cap`` times the largest,
    because most choices of heads cross and Z would sink too fast (equal weights give about 6.75^n
    trees, one good head each gives 1: ``SPREAD``, about the root of it, fits both).
    """
    top = -np.inf
    for p in range(lo, hi):
        top = max(top, log_w[arcs[p]])
    if top == -np.inf:
        return 0.0
    total = 0.0
    for p in range(lo, hi):
        total += np.exp(log_w[arcs[p]] - top)
    return top + np.log(min(total, cap))


@jit
def root_scale(own, others):
    """What to subtract from the log-weights of all arcs from a single root: their largest lead.

    ``own`` (N,) are these, ``others`` (N,) the largest of each word's other heads. A lead too large
    to be a matter of scale is left alone.
    """
    most = -np.inf
    for m in range(1, own.shape[0]):
        if own[m] - others[m] < CUT:  # not so if there is no other head
            most = max(most, own[m] - others[m])
    return most if most > -CUT else 0.0


@jit
def scale_root(n, heads, modifiers, log_w):
    """Take ``root_scale`` from the log-weights (A,) of candidate arcs, and tell it."""
    own = np.full(n, -np.inf)
    others = np.full(n, -np.inf)
    for a in range(heads.shape[0]):
        m = modifiers[a]
        if heads[a] == 0:
            own[m] = log_w[a]
        else:
            others[m] = max(others[m], log_w[a])
    root = root_scale(own, others)
    for a in range(heads.shape[0]):
        if heads[a] == 0:
            log_w[a] -= root
    return root


@jit
def derivatives(projective_tree, single_root, n, heads, modifiers, plan, w, d, work, ints):
    """Z and dZ/dw of A candidate arcs, ``w`` and ``d`` (A,); a plan without columns means dense."""
    if projective_tree and plan.shape[1] > 0:
        return projective_sparse(plan, w, n, single_root, d, work)
    dense = np.zeros((n, n))
    dense_d = np.zeros((n, n))
    for a in range(w.shape[0]):
        dense[heads[a], modifiers[a]] = w[a]
    if projective_tree:
        z = projective(dense, single_root, dense_d, work)
    else:
        z = nonprojective(dense, single_root, dense_d, work, ints)
    for a in range(w.shape[0]):
        d[a] = dense_d[heads[a], modifiers[a]]
    return z


@jit
def trusted(z, d, dead, floor):
    """Whether no linear sum is too small or too large, but for arcs that are in no tree anyway."""
    if not (floor <= z < 1.0 / TINY):
        return False
    for a in range(d.shape[0]):
        if not (d[a] < 1.0 / TINY) or (d[a] < floor and dead[a] == 0):
            return False
    return True


@jit
def find_dead(projective_tree, single_root, n, heads, modifiers, plan, log_w, dead, work, ints):
    """Mark in ``dead`` u1 (A,) the arcs that no tree of arcs with positive weight can contain.

    The derivatives at equal weights tell, unless the least that they can be is too small a number.
    """
    n_arcs = heads.shape[0]
    count = np.zeros(n)
    for a in range(n_arcs):
        if log_w[a] > -np.inf:
            count[modifiers[a]] += 1.0
    least = 0.0
    for m in range(1, n):
        least -= np.log(max(count[m], 1.0))
    floor = ONE_ROOT if single_root and not projective_tree else TINY
    for a in range(n_arcs):
        dead[a] = 0
    if least < np.log(floor) + 1.0:
        return
    w = np.zeros(n_arcs)
    d = np.zeros(n_arcs)
    for a in range(n_arcs):
        if log_w[a] > -np.inf:
            w[a] = 1.0 / count[modifiers[a]]
    derivatives(projective_tree, single_root, n, heads, modifiers, plan, w, d, work, ints)
    for a in range(n_arcs):
        dead[a] = 1 if d[a] < floor else 0


@jit
def logs_all_through(projective_tree, single_root, w, every, d, work, ints):
    """log Z, and ``d`` (N, N) gets log dZ/dw, for any scaled log-weights ``w`` (N, N).

    Arcs far below their rivals, such as those masked by -1e9, would cost all others their digits.
    They are left out, and put in for what cannot be told without them: log Z and, if ``every``
    one matters, derivatives; else only those of likely arcs are right.
    """
    n = w.shape[0]
    near = w.copy()
    far = False
    for h in range(n):
        for m in range(n):
            if -np.inf < w[h, m] <= -CUT:
                near[h, m] = -np.inf
                far = True
    log_z = _log_sums(projective_tree, single_root, near, d, work, ints)
    if not far:
        return log_z
    low = MATTERS - CUT
    lacking = log_z <= low
    if every:
        for h in range(n):
            for m in range(n):
                lacking |= w[h, m] > -np.inf and d[h, m] <= low
    if lacking:
        others = np.empty((n, n))
        other_z = _log_sums(projective_tree, single_root, w, others, work, ints)
        log_z = log_z if log_z > low else other_z
        for h in range(n):
            for m in range(n):
                d[h, m] = d[h, m] if d[h, m] > low else others[h, m]
    return log_z


@jit
def _log_sums(projective_tree, single_root, w, d, work, ints):
    d[:, :] = -np.inf
    if projective_tree:
        return projective_log(w, single_root, d, work)
    return nonprojective_log(w, single_root, d, work, ints)


@jit
def log_derivatives(projective_tree, single_root, n, heads, modifiers, plan, dead, log_w, log_d):
    """log Z over A arcs of scaled log-weights, and log dZ/dw (A,); logs all through if need be.

    ``dead`` u1 (A,): arcs that are known to be in no tree.
    """
    n_arcs = heads.shape[0]
    work = np.empty(float_scratch(n), np.float64)
    ints = np.empty(int_scratch(n), np.int64)
    w = log_w.copy()
    exp_in_place(w)
    log_d[:] = 0.0
    z = derivatives(projective_tree, single_root, n, heads, modifiers, plan, w, log_d, work, ints)
    floor = ONE_ROOT if single_root and not projective_tree else TINY
    fine = trusted(z, log_d, dead, floor)
    if not fine and z >= floor:
        dead = dead.copy()
        find_dead(projective_tree, single_root, n, heads, modifiers, plan, log_w, dead, work, ints)
        fine = trusted(z, log_d, dead, floor)
    if fine:
        log_in_place(log_d)
        for a in range(n_arcs):
            if dead[a] == 1:
                log_d[a] = -np.inf
        return np.log(z)
    dense = np.full((n, n), -np.inf)
    d = np.empty((n, n))
    for a in range(n_arcs):
        dense[heads[a], modifiers[a]] = log_w[a]
    log_z = logs_all_through(projective_tree, single_root, dense, np.bool_(True), d, work, ints)
    for a in range(n_arcs):
        log_d[a] = d[heads[a], modifiers[a]]
    return log_z


@jit
def tree_messages(
    projective_tree, single_root, n, heads, modifiers, plan, dead, order, start, incoming, out
):
    """Messages of the tree factor over A binary arcs and its log-partition.

    ``order`` i8 (A,) are the arcs by modifier, those into m at ``start[m] : start[m + 1]``, i8
    (N + 1,). ``incoming`` and ``out`` f8 (2 A,): log-messages for off and on, arc after arc.
    """
    n_arcs = heads.shape[0]
    log_w = np.empty(n_arcs)  # on, times all rivals off
    log_d = np.empty(n_arcs)
    scale = np.zeros(n)
    off = np.zeros(n)  # sum of the log-messages for off, forced arcs left out
    forced = np.zeros(n, np.int64)  # arcs whose message forbids off
    cap = SPREAD if projective_tree else np.inf
    for m in range(1, n):
        for p in range(start[m], start[m + 1]):
            q0 = incoming[2 * order[p]]
            if q0 == -np.inf:
                forced[m] += 1
            else:
                off[m] += q0
        for p in range(start[m], start[m + 1]):
            a = order[p]
            q0 = incoming[2 * a]
            if q0 == -np.inf:
                log_w[a] = incoming[2 * a + 1] + off[m] if forced[m] == 1 else -np.inf
            else:
                log_w[a] = incoming[2 * a + 1] + off[m] - q0 if forced[m] == 0 else -np.inf
    root = scale_root(n, heads, modifiers, log_w) if single_root else 0.0
    for m in range(1, n):
        scale[m] = scale_of(log_w, order, start[m], start[m + 1], cap)
        for p in range(start[m], start[m + 1]):
            log_w[order[p]] -= scale[m]
    later = np.zeros(n + 1)  # sum of the scales from a word on
    for m in range(n - 1, 0, -1):
        later[m] = later[m + 1] + scale[m]
    log_z = log_derivatives(
        projective_tree, single_root, n, heads, modifiers, plan, dead, log_w, log_d
    )
    for a in range(n_arcs):
        log_d[a] += root if heads[a] != 0 else 0.0  # each has one arc from the root beside it
    earlier = 0.0
    for m in range(1, n):
        others = earlier + later[m + 1] + off[m]  # no difference: one scale may dwarf the rest
        earlier += scale[m]
        first = -1  # the heaviest arc into m
        for p in range(start[m], start[m + 1]):
            a = order[p]
            q0 = incoming[2 * a]
            log_w[a] = log_d[a] + incoming[2 * a + 1] - (q0 if q0 > -np.inf else 0.0)
            if first < 0 or log_w[a] > log_w[first]:
                first = a
        top = log_w[first] if first >= 0 else -np.inf
        second = -np.inf
        for p in range(start[m], start[m + 1]):
            if order[p] != first:
                second = max(second, log_w[order[p]])
        total = 0.0  # relative to top
        rest = 0.0  # without the first, relative to second
        for p in range(start[m], start[m + 1]):
            if top > -np.inf:
                total += np.exp(log_w[order[p]] - top)
            if order[p] != first and second > -np.inf:
                rest += np.exp(log_w[order[p]] - second)
        for p in range(start[m], start[m + 1]):
            a = order[p]
            q0 = incoming[2 * a]
            is_forced = q0 == -np.inf
            rivals = forced[m] - (1 if is_forced else 0)  # that must be on
            without = others - (0.0 if is_forced else q0)
            out[2 * a + 1] = log_d[a] + without if rivals == 0 else -np.inf
            mass = -np.inf
            if rivals == 0:
                if a == first:
                    mass = second + np.log(rest) if rest > 0.0 else -np.inf
                elif top > -np.inf:
                    mass = top + np.log(total - np.exp(log_w[a] - top))
            elif rivals == 1:
                for p2 in range(start[m], start[m + 1]):
                    b = order[p2]
                    if b != a and incoming[2 * b] == -np.inf:
                        mass = log_w[b]
            out[2 * a] = mass + without
    return log_z + root + earlier


@jit
def tree_marginals(projective_tree, single_root, scores, mu, w, d, work, ints):
    """Arc probabilities ``mu`` (N, N) under exp(scores), and log Z; minus infinity: no tree.

    ``scores`` (N, N) [head, modifier]; column 0 and the diagonal are not read. ``w`` and ``d``
    (N, N) are scratch, as are ``work`` and ``ints``.
    """
    n = scores.shape[0]
    first = 1 if single_root else 0
    shift = work[:n]  # what is subtracted from the scores of the arcs into a word
    total = work[n : 2 * n]
    for m in range(n):
        shift[m] = -np.inf
        total[m] = 0.0
    for h in range(n):
        for m in range(n):
            w[h, m] = scores[h, m]
        w[h, 0] = -np.inf
        w[h, h] = -np.inf
        if h >= first:
            for m in range(n):
                shift[m] = w[h, m] if w[h, m] > shift[m] else shift[m]
    root = 0.0
    if single_root:
        root = root_scale(w[0], shift)
        for m in range(1, n):
            w[0, m] -= root
            shift[m] = max(shift[m], w[0, m])
    for m in range(1, n):
        if shift[m] == -np.inf:
            mu[:, :] = 0.0
            return -np.inf
    shift[0] = 0.0
    for h in range(n):
        for m in range(n):
            w[h, m] -= shift[m]
    exp_in_place(w.reshape(n * n))
    for h in range(n):
        for m in range(n):
            total[m] += w[h, m]
    total[0] = 1.0
    base = root
    for m in range(1, n):
        if projective_tree:
            total[m] = min(total[m], SPREAD)
        shift[m] += np.log(total[m])
        base += shift[m]
        total[m] = 1.0 / total[m]
    for h in range(n):
        for m in range(n):
            w[h, m] *= total[m]
    if not projective_tree:
        z = inverse_marginals(w, single_root, mu, work[n:])
        if z >= TINY:
            return base + np.log(z)
    d[:, :] = 0.0
    if projective_tree:
        z = projective(w, single_root, d, work[n:])
    else:
        z = nonprojective(w, single_root, d, work[n:], ints)
    floor = ONE_ROOT if single_root and not projective_tree else TINY
    if floor <= z < 1.0 / TINY:
        inverse = 1.0 / z
        for h in range(n):
            for m in range(n):
                mu[h, m] = min(w[h, m] * d[h, m] * inverse, 1.0)
        return base + np.log(z)
    for h in range(n):
        for m in range(n):
            x = scores[h, m] - (root if h == 0 else 0.0) - shift[m]
            w[h, m] = x if m > 0 and h != m else -np.inf
    log_z = logs_all_through(projective_tree, single_root, w, np.bool_(False), d, work[n:], ints)
    for h in range(n):
        for m in range(n):
            if log_z > -np.inf:
                mu[h, m] = min(np.exp(w[h, m] + d[h, m] - log_z), 1.0)
            else:
                mu[h, m] = 0.0
    return base + log_z


@jit
def _legal(scores):
    """Whether all scores of arcs are numbers below infinity."""
    n = scores.shape[0]
    for h in range(n):
        good = True
        for m in range(1, n):
            good &= scores[h, m] < np.inf or h == m
        if not good:
            return False
    return True


@jit
def batch_marginals(projective_tree, single_root, n_nodes, start, order, scores, mu, log_z):
    """``tree_marginals`` of many sentences, eight at a time where that is faster.

    Those of ``scores`` and ``mu`` in float32 are computed so, where that can be trusted and trees
    need not be projective, which are no faster in float32.

    ``n_nodes`` i8 (B,), words + 1; ``start`` i8 (B,): where a sentence's N x N entries begin in
    ``scores`` and ``mu``, both flat; ``order`` i8: the sentences that are asked for, by length;
    ``log_z`` f8 (B,), infinity for scores that are NaN or infinite. Returns whether all are finite.
    """
    most = 0
    for b in order:
        log_z[b] = np.nan
        most = max(most, n_nodes[b])
    work = np.empty(0, np.float64)
    ints = np.empty(0, np.int64)
    square = work
    if not projective_tree:
        marginals_in_lanes(single_root, n_nodes, start, order, scores, mu, log_z, scores)
        if scores.itemsize < 8:
            rest = order[np.isnan(log_z[order])]
            marginals_in_lanes(single_root, n_nodes, start, rest, scores, mu, log_z, work)
    for b in order:
        if log_z[b] == log_z[b]:
            continue
        if work.size == 0:
            work = np.empty(float_scratch(most), np.float64)
            ints = np.empty(int_scratch(most), np.int64)
            square = np.empty(2 * most * most, np.float64)
        n = n_nodes[b]
        size = n * n
        at = start[b]
        mine = scores[at : at + size].reshape(n, n)
        if not _legal(mine):
            log_z[b] = np.inf
            continue
        log_z[b] = tree_marginals(
            projective_tree, single_root, mine, mu[at : at + size].reshape(n, n),
            square[:size].reshape(n, n), square[size : 2 * size].reshape(n, n), work, ints,
        )  # fmt: skip
    return np.isfinite(log_z[order]).all()
