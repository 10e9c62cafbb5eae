"""The parser's arithmetic: lazy pairs, belief propagation with a tree, whole sentences, learning.

Nodes are 0 .. n, 0 is the root; N = n + 1. Arcs and pairs are scored by ``features``.

Belief propagation (Smith & Eisner 2008) alternates the tree factor and all pair factors
exp(theta y_a y_b). Messages are odds: an arc enters the tree with r_a = e^{s_a} prod_f m_{f -> a};
the tree gives its belief odds O_a; then for each pair f = (a, b), with q_a = O_a / m_{f -> a},

    m_{f -> b} = (1 + q_a e^theta) / (1 + q_a)        and likewise to a

    log Z = log Z_tree(r) + sum_f log (1 + q_a + q_b + q_a q_b e^theta) / ((1 + O_a) (1 + O_b))

An iteration computes every message anew: of all pairs, each from the beliefs before it, and then of
the tree. Arc scores count as the tree's, whose message to an arc is O_a / prod_f m_{f -> a}; so a
number added to all scores of a word, which changes no tree, changes no message. The run is
converged once an undamped iteration moved neither a message, as a probability m / (1 + m), nor a
belief by more than the tolerance. Numbers beyond the bounds below are left to logarithms
(``parser_logs``), with the same messages.

The first tree pass is the seed of the reduction: its marginals decide which pairs are looked at
and, with the pairs' gains, what an objective keeps. The other seed, the unary factors alone, needs
no tree (``seeds``).
Scratch arrays are passed in and may hold anything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minfer.kernels.compiling.jit import jit
from minfer.kernels.scores.gains import pair_gains
from minfer.kernels.scores.select import ALL, choose
from minfer.kernels.trees.nonprojective import ONE_ROOT, inverse_marginals
from minfer.kernels.trees.projective import plan_arcs
from minfer.kernels.trees.trees import (
    SPREAD,
    TINY,
    derivatives,
    float_scratch,
    int_scratch,
    scale_root,
)
from minfer.parsing.kernels.decode import decode
from minfer.parsing.kernels.features import (
    ALL_KEPT,
    DROP,
    SCORE,
    UPDATE,
    first_scores,
    second_scores,
    sentence_keys,
)
from minfer.parsing.kernels.parser_logs import ask_tree, pair_sums_logs, send_logs, worse
from minfer.parsing.kernels.seeds import seed

MOST = 1e100  # odds are cut to 1e-100 .. 1e100, which is harmless while
MOST_PRODUCT = 1e80  # - the messages to an arc have a product within 1e-80 .. 1e80,
LEAST_ONE_ROOT = 1e-20  # - or not below this, if trees have a single root and may cross,
MOST_THETA = 60.0  # - no pair is stronger,
FAR = 500.0  # - and where scores are cut, so far below the best of their word,
UNLIKELY = 1e-100  # no arc is more probable than this
SAFE = 600.0  # sum of |theta| of an arc below which its product stays a number by itself
NOISE = 1e-10  # ten times what probabilities from an inverse may be off
BOTH = np.array([0.0, 0.0, 0.0, 1.0])  # truth of a pair's feature


class PackedInference(NamedTuple):
    """How to infer; by default with every arc and every pair."""

    projective_tree: bool
    single_root: bool
    use_gp: bool
    use_sib: bool
    from_unary: bool = False  # whether the seed is the unary factors
    least: float = 0.0  # mean of a pair that is looked at
    arc_least: float = 0.0  # probability of an arc that is
    objective: int = ALL  # as ``choose`` takes it, with its parameter and whether it sorts
    parameter: float = 0.0
    by_sorting: bool = False
    max_iters: int = 0
    tol: float = 0.0
    damping: float = 0.0
    limit: float = 30.0  # largest |theta|


class ParseArrays(NamedTuple):
    """What ``parse`` fills, words of all sentences one after the other."""

    heads: Any  # i4 (tokens,)
    probs: Any  # of the chosen arcs
    second: Any  # the best other head, -1 for none
    second_probs: Any
    log_z: Any  # (B,)
    log_p: Any  # (B,), the log-probability of the tree
    counts: Any  # i8 (B, 4): arcs, pairs looked at, pairs kept, iterations
    residuals: Any  # (B, 2): residual and ratio (``second_order``; 0 without pairs)
    marginals: Any  # all N x N probabilities, one sentence after the other, unless it is empty


class LearntTables(NamedTuple):
    """What ``learn`` changes, f4: weights of arcs and of pairs, and AdaGrad's sums of squares."""

    arcs: Any
    pairs: Any
    arc_squares: Any
    pair_squares: Any


# ------------------------------------------------------------------ candidates


@jit
def list_pairs(settings, mu, heads, modifiers, start, arc_at, pair_arcs, pair_nodes):
    """How many pairs there are, grandparents and all; as many as there is room for are written."""
    projective_tree, least = settings.projective_tree, settings.least
    n = mu.shape[0]
    room = pair_arcs.shape[0]
    out = np.empty(n, np.int32)  # likely arcs out of a head
    n_gp = count = 0
    for sib in range(2):
        if not (settings.use_sib if sib else settings.use_gp):
            continue
        for h in range(0 if sib and not settings.single_root else 1, n):
            n_out = 0
            for m in range(1, n):
                if arc_at[h, m] >= 0 and mu[h, m] >= least:
                    out[n_out] = arc_at[h, m]
                    n_out += 1
            for k in range(0 if sib else start[h], n_out if sib else start[h + 1]):
                a = out[k] if sib else k
                g = heads[a]
                p = mu[g, modifiers[a]]
                if p < least:
                    continue
                for j in range(k + 1 if sib else 0, n_out):
                    b = out[j]
                    m = modifiers[b]
                    if p * mu[h, m] < least:
                        continue
                    if not sib and (m == g or (projective_tree and (h < g < m or m < g < h))):
                        continue
                    if count < room:
                        pair_arcs[count, 0] = a
                        pair_arcs[count, 1] = b
                        pair_nodes[count, 0] = g
                        pair_nodes[count, 1] = modifiers[a]
                        pair_nodes[count, 2] = m
                    count += 1
        if not sib:
            n_gp = count
    return n_gp, count


@jit
def candidates(settings, scores, mu):
    """Arcs with mu >= arc_least and pairs of them with mu_a mu_b >= least.

    Arcs are listed by modifier and then head, those into m at ``start[m] : start[m + 1]``; those of
    score minus infinity are none. Pairs that no tree has are left out: g -> h -> g; if trees are
    projective, g between h and m; siblings under a single root. Returns heads i4 (A,), modifiers,
    start i8 (N + 1,); and pair_arcs i4 (P, 2), pair_nodes i4 (P, 3), grandparents first, n_gp.
    """
    n = scores.shape[0]
    heads = np.empty(n * n, np.int32)
    modifiers = np.empty(n * n, np.int32)
    start = np.zeros(n + 1, np.int64)
    arc_at = np.full((n, n), -1, np.int32)
    n_arcs = 0
    for m in range(1, n):
        start[m] = n_arcs
        for h in range(n):
            if h != m and mu[h, m] >= settings.arc_least and scores[h, m] > -np.inf:
                arc_at[h, m] = n_arcs
                heads[n_arcs] = h
                modifiers[n_arcs] = m
                n_arcs += 1
    start[n] = n_arcs
    heads, modifiers = heads[:n_arcs], modifiers[:n_arcs]
    pair_arcs = np.empty((0, 2), np.int32)
    pair_nodes = np.empty((0, 3), np.int32)
    n_gp = 0
    for _ in range(2):  # counted, then written
        n_gp, count = list_pairs(
            settings, mu, heads, modifiers, start, arc_at, pair_arcs, pair_nodes
        )
        if count == pair_arcs.shape[0]:
            break
        pair_arcs = np.empty((count, 2), np.int32)
        pair_nodes = np.empty((count, 3), np.int32)
    return (heads, modifiers, start), (pair_arcs, pair_nodes, n_gp)


@jit
def keep_pairs(settings, mu, arcs, pairs, theta):
    """Pairs and weights that the objective chooses by their gains under ``mu`` (N, N), packed."""
    heads, modifiers, _ = arcs
    pair_arcs, pair_nodes, n_gp = pairs
    if settings.objective == ALL:
        return pairs, theta
    probs = np.empty((heads.shape[0], 2))
    for a in range(heads.shape[0]):
        probs[a, 1] = mu[heads[a], modifiers[a]]
        probs[a, 0] = 1.0 - probs[a, 1]
    gains = np.empty(theta.shape[0])
    keep = np.empty(theta.shape[0], np.bool_)
    pair_gains(pair_arcs, BOTH, theta, probs, gains)
    choose(settings.objective, settings.parameter, settings.by_sorting, gains, keep)
    count = 0
    for p in range(theta.shape[0]):
        if keep[p]:
            for c in range(2):
                pair_arcs[count, c] = pair_arcs[p, c]
            for c in range(3):
                pair_nodes[count, c] = pair_nodes[p, c]
            theta[count] = theta[p]
            count += 1
    return (pair_arcs[:count], pair_nodes[:count], keep[:n_gp].sum()), theta[:count]


# ------------------------------------------------------------------ belief propagation


@jit
def belief_odds(n_nodes, start, mass, product, mu, odds, from_tree):
    """Probabilities and odds (A,) of arcs from their masses: those into a word are rivals.

    ``product`` (A,) of the pairs' messages to an arc; ``from_tree`` (A,) gets the tree's, as
    probabilities. Returns the largest movement of one of these or of a belief.
    """
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
            x = min(max(x, 1.0 / MOST), MOST)
            odds[a] = x
            p = x / (x + product[a])
            change = max(change, abs(p - from_tree[a]))
            from_tree[a] = p
    return change


@jit
def tree_pass(projective_tree, single_root, arcs, plan, to_last_digit, r, mass, d, work, ints):
    """log Z of the tree factor for odds r (A,); ``mass`` (A,) gets what the arcs' beliefs are
    proportional to, among the arcs into one word. Minus infinity: no tree, or none that plain
    numbers can tell. ``to_last_digit``: small masses are good relative to themselves, as they
    always are if trees are projective. ``d`` (A,), ``work`` and ``ints`` are scratch."""
    heads, modifiers, start = arcs
    n, n_arcs = start.shape[0] - 1, heads.shape[0]
    base = 0.0
    for m in range(1, n):
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
    if not projective_tree and not to_last_digit:
        dense = np.zeros((n, n))
        beliefs = np.empty((n, n))
        for a in range(n_arcs):
            dense[heads[a], modifiers[a]] = mass[a]
        z = inverse_marginals(dense, single_root, beliefs, work)
        if z >= TINY:
            for a in range(n_arcs):
                mass[a] = beliefs[heads[a], modifiers[a]]
            return base + np.log(z)
    z = derivatives(projective_tree, single_root, n, heads, modifiers, plan, mass, d, work, ints)
    if not (ONE_ROOT if single_root and not projective_tree else TINY) <= z < 1.0 / TINY:
        return -np.inf
    for a in range(n_arcs):
        mass[a] *= d[a]
    return base + np.log(z)


@jit
def send(rest, look, floor, wild, pair_arcs, odds, messages, product):
    """New messages of all pairs, with a share ``rest`` of the old ones.

    Returns the largest movement of one, as a probability, or 0 without ``look``; and whether a
    ``product`` (A,) of the messages to an arc left its range on the way, as it can if ``wild``.
    """
    worst = 0.0
    lost = False
    product[:] = 1.0
    for p in range(pair_arcs.shape[0]):
        a, b = np.uint32(pair_arcs[p, 0]), np.uint32(pair_arcs[p, 1])
        from_a, from_b, x = messages[p, 0], messages[p, 1], messages[p, 2]
        to_b = (from_a + odds[a] * x) / (from_a + odds[a])
        to_a = (from_b + odds[b] * x) / (from_b + odds[b])
        if rest > 0.0:
            to_a = (1.0 - rest) * to_a + rest * from_a
            to_b = (1.0 - rest) * to_b + rest * from_b
        messages[p, 0] = to_a
        messages[p, 1] = to_b
        product[a] *= to_a
        product[b] *= to_b
        if look:  # |to / (1 + to) - from / (1 + from)|, divided only where it is the largest
            scale = (1.0 + to_a) * (1.0 + from_a)
            if abs(to_a - from_a) > worst * scale:
                worst = abs(to_a - from_a) / scale
            scale = (1.0 + to_b) * (1.0 + from_b)
            if abs(to_b - from_b) > worst * scale:
                worst = abs(to_b - from_b) / scale
        if wild:
            lost |= not floor < product[a] < MOST_PRODUCT
            lost |= not floor < product[b] < MOST_PRODUCT
    return worst, lost


@jit
def pair_sums(pair_arcs, odds, messages, beliefs):
    """What the pairs add to the log-partition of the tree in the Bethe expression.

    With ``beliefs`` e^theta is replaced by the probability that both arcs of a pair are on.
    """
    log_z = 0.0
    product = 1.0  # a logarithm only when it leaves the range
    for p in range(pair_arcs.shape[0]):
        a, b = np.uint32(pair_arcs[p, 0]), np.uint32(pair_arcs[p, 1])
        qa, qb = odds[a] / messages[p, 0], odds[b] / messages[p, 1]
        on = qa * qb * messages[p, 2]
        if beliefs:
            messages[p, 2] = on / (1.0 + qa + qb + on)
        product *= (1.0 + qa + qb + on) / ((1.0 + odds[a]) * (1.0 + odds[b]))
        if not 1e-100 < product < 1e100:
            log_z += np.log(product)
            product = 1.0
    return log_z + np.log(product)


# ------------------------------------------------------------------ one sentence


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


@jit
def second_order(settings, beliefs, scores, mu, arcs, pair_arcs, theta, logs):
    """Belief propagation from the tree's ``mu`` (N, N), which gets the answer.

    An iteration is an update of all pairs and a tree pass, in plain numbers; where these leave
    their range all is done again in logarithms, as it is at once with ``logs``. Returns iterations;
    the residual, and the ratio by which movements shrank last (``judged``); log Z; and the
    messages: whether what follows are logarithms, odds of the arcs (A,), messages f8 (P, 3) to both
    arcs of a pair, and, with ``beliefs``, how probable it is that both are on. Where there is no
    tree log Z is minus infinity and ``mu`` stays.
    """
    projective_tree, single_root = settings.projective_tree, settings.single_root
    max_iters, tol, damping = settings.max_iters, settings.tol, settings.damping
    heads, modifiers, start = arcs
    n_pairs = theta.shape[0]
    n, n_arcs = scores.shape[0], heads.shape[0]
    sparse = projective_tree and 3 * n_arcs < (n - 1) * (n - 1)
    plan = np.empty((8, n_arcs + n + 1 if sparse else 0), np.int32)
    if sparse:
        plan_arcs(heads, modifiers, n, plan)
    log_unary = np.empty(n_arcs)
    unary = np.empty(n_arcs)
    r = np.zeros(n_arcs)
    d = np.empty(n_arcs)
    pull = np.empty(n_arcs)  # the product of the messages to an arc, or the sum of logarithms
    mass = np.empty(n_arcs)
    belief = np.empty(n_arcs)
    from_tree = np.empty(n_arcs)
    odds = np.empty(n_arcs)
    messages = np.empty((n_pairs, 3))
    work = np.empty(float_scratch(n))
    ints = np.empty(int_scratch(n), np.int64)
    least = 0.0
    for p in range(n_pairs):
        least = min(least, theta[p])
        logs |= not abs(theta[p]) <= MOST_THETA
        for c in range(2):
            r[pair_arcs[p, c]] += abs(theta[p])
    least = np.exp(least)  # no message is smaller
    floor = 1.0 / MOST_PRODUCT if projective_tree or not single_root else LEAST_ONE_ROOT
    wild = False  # whether a product of messages could leave the range of numbers
    for a in range(n_arcs):
        wild = wild or r[a] > SAFE
        log_unary[a] = scores[heads[a], modifiers[a]]
    # what the scores lose to stay in range, at the root and word by word
    shift = scale_root(n, heads, modifiers, log_unary) if single_root else 0.0
    far = False
    for m in range(1, n):
        top = -np.inf
        for a in range(start[m], start[m + 1]):
            top = max(top, log_unary[a])
        if top == -np.inf:
            return 0, np.inf, np.inf, -np.inf, (logs, odds, messages)
        shift += top
        for a in range(start[m], start[m + 1]):
            log_unary[a] -= top
            far |= log_unary[a] < -FAR
            unary[a] = np.exp(max(log_unary[a], -FAR))
            mass[a] = belief[a] = mu[heads[a], m]
    while True:
        pull[:] = 0.0 if logs else 1.0
        for p in range(n_pairs):
            messages[p, 0] = messages[p, 1] = 0.0 if logs else 1.0
            messages[p, 2] = theta[p] if logs else np.exp(theta[p])
        log_z = 0.0 if logs else -np.inf
        if not logs:
            belief_odds(n, start, mass, pull, belief, odds, from_tree)
        iters = -1 if logs else 0  # logarithms begin with the tree, whose seed is not one
        residual = ratio = moved = np.inf
        rest, look, trigger = damping, damping > 0.0, tol
        lost = False
        while iters < max_iters and not residual <= tol and (log_z > -np.inf or not logs):
            iters += 1
            before = moved
            if logs:
                worst = 0.0
                if iters > 0:
                    worst = send_logs(rest, look, pair_arcs, odds, messages, pull)
                log_z, moved = ask_tree(
                    projective_tree, single_root, arcs, log_unary, pull, from_tree, belief, odds
                )
                if iters == 0:
                    moved = np.inf
                    continue
            else:
                worst, lost = send(rest, look, floor, wild, pair_arcs, odds, messages, pull)
                small = least
                for a in range(n_arcs):
                    lost |= not floor < pull[a] < MOST_PRODUCT
                    small = min(small, pull[a])
                    r[a] = unary[a] * pull[a]
                if lost:
                    break
                to_last_digit = (tol if tol > 0.0 else 1e-3) * small < NOISE
                log_z = tree_pass(
                    projective_tree, single_root, arcs, plan, to_last_digit, r, mass, d, work, ints
                )
                lost = not log_z > -np.inf
                if lost:
                    break
                moved = belief_odds(n, start, mass, pull, belief, odds, from_tree)
                for a in range(n_arcs if far else 0):
                    lost |= log_unary[a] < -FAR and not belief[a] <= UNLIKELY
                if lost:
                    break
            residual, ratio, rest, look, trigger = judged(
                tol, damping, rest, look, worse(worst, moved), moved, before, trigger
            )
        if not lost:
            break
        logs = True
    if logs:
        log_z += pair_sums_logs(pair_arcs, odds, messages)
        if log_z == -np.inf:
            return iters, np.inf, np.inf, log_z, (logs, odds, messages)
    else:
        log_z += pair_sums(pair_arcs, odds, messages, beliefs)
    mu[:, :] = 0.0
    for a in range(n_arcs):
        mu[heads[a], modifiers[a]] = belief[a]
    return iters, residual, ratio, log_z + shift, (logs, odds, messages)


@jit
def settled(settings, beliefs, scores, mu, log_z, arcs, pairs, theta):
    """The rest of Algorithm 1: keep the pairs that the objective chooses, and infer with them.

    ``mu`` (N, N) and ``log_z`` are the seed's, arcs and pairs the candidates, ``theta`` (P,) their
    weights. ``mu`` gets the answer. Returns log Z, pairs and weights that are left, iterations,
    residual and ratio (0 without pairs), whether there was a tree with the pairs' arcs, and the
    messages as from ``second_order``.
    """
    pairs, theta = keep_pairs(settings, mu, arcs, pairs, theta)
    if settings.from_unary:
        log_z = seed(False, settings.projective_tree, settings.single_root, scores, mu)
    iters = 0
    residual = ratio = 0.0
    found, messages = False, (False, np.empty(0), np.empty((0, 3)))
    if theta.shape[0] > 0 and log_z > -np.inf:
        iters, residual, ratio, z, messages = second_order(
            settings, beliefs, scores, mu, arcs, pairs[0], theta, False
        )
        found = z > -np.inf
        if found:
            log_z = z
    return log_z, pairs, theta, iters, residual, ratio, found, messages


@jit
def infer_arrays(settings, scores, gp, sib, mu):
    """Inference for given scores: arcs (N, N), pairs (N, N, N) or of no entries.

    ``mu`` (N, N) is filled. Returns log Z, pairs looked at, iterations, residual and ratio
    (``second_order``; 0 without pairs), nodes i4 (P, 3) of the pairs kept, how many of these are
    grandparents, and the messages: heads and modifiers of the arcs, arcs of the pairs, theta, and
    what ``second_order`` tells.
    """
    log_z = seed(settings.from_unary, settings.projective_tree, settings.single_root, scores, mu)
    if log_z == -np.inf:
        mu[:, :] = 0.0
    arcs, pairs = candidates(settings, scores, mu)
    _, pair_nodes, n_gp = pairs
    scored = pair_nodes.shape[0]
    theta = np.empty(scored)
    for p in range(scored):
        i, j, k = pair_nodes[p, 0], pair_nodes[p, 1], pair_nodes[p, 2]
        theta[p] = gp[i, j, k] if p < n_gp else sib[i, j, k]
    log_z, pairs, theta, iters, residual, ratio, _, (logs, odds, messages) = settled(
        settings, np.bool_(False), scores, mu, log_z, arcs, pairs, theta
    )
    state = arcs[0], arcs[1], pairs[0], theta, logs, odds, messages
    return log_z, scored, iters, residual, ratio, pairs[1], pairs[2], state


# ------------------------------------------------------------------ the model on a batch


@jit
def parse(settings, templates, tables, tokens, weights, pair_weights, phase, temper, out):
    """Parse B sentences; ``templates``, ``tables`` and ``tokens`` as in ``features``.

    The probabilities of a word's heads are taken to the power of ``temper`` and scaled to sum to 1,
    but for those in ``out.marginals``. ``phase`` below 5 stops early, to be timed: 0 keys, 1 arc
    scores, 2 the seed, 3 pairs listed and scored, 4 selection and belief propagation.
    """
    projective_tree, single_root = settings.projective_tree, settings.single_root
    heads, probs, second, second_probs, log_z, log_p, counts, residuals, every = out
    columns, offsets, salt = templates[:3]
    start = tokens[0]
    nothing = np.empty(0, np.float32), np.uint64(0), np.uint64(ALL_KEPT), 0.0  # is learnt
    at_mu = 0
    for b in range(start.shape[0] - 1):
        keys, tags = sentence_keys(columns, offsets, salt, tables, tokens, b)
        n = keys.shape[0]
        first = start[b] - 1
        if phase < 1:
            continue
        scores = np.empty((n, n))
        first_scores(SCORE, templates, keys, tags, weights, nothing, scores)
        if phase < 2:
            continue
        mu = np.empty((n, n))
        log_z[b] = seed(settings.from_unary, projective_tree, single_root, scores, mu)
        if phase < 3:
            continue
        arcs, pairs = candidates(settings, scores, mu)
        theta = np.empty(pairs[0].shape[0])
        second_scores(SCORE, templates, keys, pairs, pair_weights, nothing, settings.limit, theta)
        if phase < 4:
            continue
        counts[b, 0] = arcs[0].shape[0] if settings.use_gp or settings.use_sib else 0
        counts[b, 1] = theta.shape[0]
        log_z[b], pairs, theta, counts[b, 3], residuals[b, 0], residuals[b, 1], _, _ = settled(
            settings, np.bool_(False), scores, mu, log_z[b], arcs, pairs, theta
        )
        _, pair_nodes, n_gp = pairs
        counts[b, 2] = theta.shape[0]
        if phase < 5:
            continue
        chosen = np.empty(n, np.int64)
        decode(projective_tree, single_root, mu, chosen)
        log_p[b] = -log_z[b]
        for p in range(theta.shape[0]):
            i, j = pair_nodes[p, 0], pair_nodes[p, 1]
            if chosen[j] == i and chosen[pair_nodes[p, 2]] == (j if p < n_gp else i):
                log_p[b] += theta[p]
        for m in range(1, n):
            h = chosen[m]
            log_p[b] += scores[h, m]
            heads[first + m] = h
            probs[first + m] = mu[h, m]
            best = -1
            for g in range(n):
                if g != h and g != m and (best < 0 or mu[g, m] > mu[best, m]):
                    best = g
            second[first + m] = best
            second_probs[first + m] = mu[best, m] if best >= 0 else 0.0
            if temper != 1.0:
                total = 0.0
                for g in range(n):
                    total += mu[g, m] ** temper
                probs[first + m] = probs[first + m] ** temper / total
                second_probs[first + m] = second_probs[first + m] ** temper / total
        if every.size > 0:
            every[at_mu : at_mu + n * n] = mu.reshape(n * n)
            at_mu += n * n


@jit
def learn(settings, templates, tables, tokens, learnt, gold, order, seeds, rates, totals):
    """One step of AdaGrad for each sentence in ``order``, along the gradient of log P(tree).

    ``gold`` i4 (tokens,) are heads; ``seeds`` u8 (len(order),) choose the features dropped;
    ``rates``: how many of 2^24 features to keep, the steps for arcs and for pairs. ``totals`` f8
    (6,) is added to: minus log-likelihood, words, pairs, iterations, least and largest theta seen.
    """
    weights, pair_weights, squares, pair_squares = learnt
    keep, rate, pair_rate = rates
    limit = settings.limit
    columns, offsets, salt = templates[:3]
    for k in range(order.shape[0]):
        keys, tags = sentence_keys(columns, offsets, salt, tables, tokens, order[k])
        n = keys.shape[0]
        first = tokens[0][order[k]] - 1
        learning = squares, seeds[k], keep, rate
        pair_learning = pair_squares, seeds[k], keep, pair_rate
        scores = np.empty((n, n))
        first_scores(DROP, templates, keys, tags, weights, learning, scores)
        mu = np.empty((n, n))
        log_z = seed(
            settings.from_unary, settings.projective_tree, settings.single_root, scores, mu
        )
        arcs, pairs = candidates(settings, scores, mu)
        theta = np.empty(pairs[0].shape[0])
        second_scores(DROP, templates, keys, pairs, pair_weights, pair_learning, limit, theta)
        log_z, pairs, theta, iters, _, _, found, (_, _, messages) = settled(
            settings, np.bool_(True), scores, mu, log_z, arcs, pairs, theta
        )
        totals[2] += theta.shape[0]
        totals[3] += iters
        gold_score = 0.0
        _, pair_nodes, n_gp = pairs
        both = np.empty(theta.shape[0])
        for p in range(theta.shape[0] if found else 0):
            both[p] = messages[p, 2]
            i, j, s = pair_nodes[p, 0], pair_nodes[p, 1], pair_nodes[p, 2]
            totals[4] = min(totals[4], theta[p])
            totals[5] = max(totals[5], theta[p])
            if gold[first + j] == i and gold[first + s] == (j if p < n_gp else i):
                gold_score += theta[p]
                both[p] -= 1.0
        if found:
            second_scores(UPDATE, templates, keys, pairs, pair_weights, pair_learning, limit, both)
        for m in range(1, n):
            h = gold[first + m]
            gold_score += scores[h, m]
            mu[h, m] -= 1.0
        first_scores(UPDATE, templates, keys, tags, weights, learning, mu)
        totals[0] += log_z - gold_score
        totals[1] += n - 1
