"""The last words of ignored factors: one message to each of their variables.

With B the belief odds of a variable and m the message that the factor sent it before (1 at first),
the cavity odds are B / m, and a 2x2 table psi sends b the odds

    (psi01 m_a + psi11 B_a) / (psi00 m_a + psi10 B_a).

Factors speak one after the other, and every message moves the belief at once, so that later
factors hear earlier ones; how far a belief moved in the end is what the messages changed, and no
logarithm is needed per factor. Other tables send vectors of log-messages, scaled to maximum 0.

``rho`` are edge appearance probabilities (tree-reweighted): psi^(1/rho) stands for psi, and a
message counts with the power rho. Empty means 1 for all.
"""

import math

import numpy as np

from minfer.kernels.arithmetic.vexp import exp_in_place
from minfer.kernels.compiling.jit import jit
from minfer.kernels.messages.tables import contract
from minfer.kernels.messages.wiring import OFFSET, SIZE

_BLOCK = 512
_MAX_LOG = 300.0  # log-weights and log-messages are cut at this
_MAX_ODDS = 1e130
_LEAST, _MOST = 1e-250, 1e250  # of a belief; times a message and an entry it is still a number


@jit
def pair_messages(scope, values, truth, keep, rho, belief, m, damping):
    """Messages of ignored binary pair factors; ``belief`` (V,), odds, is moved by each. ``values``
    (F, 1) are weights of features with this truth table, or (F or 1, 4) log-tables; ``m`` (F, 2)
    earlier messages, replaced by the new ones, or empty if none are wanted."""
    n = scope.shape[0]
    psi, small = np.empty((_BLOCK, 4)), np.empty(_BLOCK)
    features, single, stored = values.shape[1] == 1, values.shape[0] == 1, m.shape[0] > 0
    t0, t1, t2, t3 = truth[0], truth[1], truth[2], truth[3]
    share, reweighted = 1.0 - damping, rho.size > 0
    for start in range(0, n, _BLOCK):
        size = min(_BLOCK, n - start)
        if features:  # one exp each: the larger of on and off is 1
            for i in range(size):
                weight = abs(values[start + i, 0])
                if reweighted:
                    weight /= rho[start + i]
                small[i] = -min(weight, _MAX_LOG)
            exp_in_place(small[:size])
            for i in range(size):
                positive = values[start + i, 0] > 0.0
                on = 1.0 if positive else small[i]
                off = small[i] if positive else 1.0
                psi[i, 0] = on if t0 else off
                psi[i, 1] = on if t1 else off
                psi[i, 2] = on if t2 else off
                psi[i, 3] = on if t3 else off
        else:
            for i in range(size):
                row = 0 if single else start + i
                top = max(max(values[row, 0], values[row, 1]), max(values[row, 2], values[row, 3]))
                scale = 1.0 / rho[start + i] if reweighted else 1.0
                for j in range(4):
                    psi[i, j] = (values[row, j] - top) * scale
                exp_in_place(psi[i])
        for i in range(size):
            f = start + i
            if keep[f]:
                continue
            a, b = np.uint32(scope[f, 0]), np.uint32(scope[f, 1])
            p00, p01, p10, p11 = psi[i, 0], psi[i, 1], psi[i, 2], psi[i, 3]
            odds_a, odds_b = belief[a], belief[b]
            if stored:
                ma, mb = m[f, 0], m[f, 1]
                to_b = (p01 * ma + p11 * odds_a) / (p00 * ma + p10 * odds_a)
                to_a = (p10 * mb + p11 * odds_b) / (p00 * mb + p01 * odds_b)
                to_a = share * min(max(to_a, 1.0 / _MAX_ODDS), _MAX_ODDS) + damping * ma
                to_b = share * min(max(to_b, 1.0 / _MAX_ODDS), _MAX_ODDS) + damping * mb
                m[f, 0] = to_a
                m[f, 1] = to_b
                to_a /= ma
                to_b /= mb
            else:
                to_b = (p01 + p11 * odds_a) / (p00 + p10 * odds_a)
                to_a = (p10 + p11 * odds_b) / (p00 + p01 * odds_b)
                to_a = min(max(to_a, 1.0 / _MAX_ODDS), _MAX_ODDS)
                to_b = min(max(to_b, 1.0 / _MAX_ODDS), _MAX_ODDS)
            if reweighted:
                to_a = to_a ** rho[f]
                to_b = to_b ** rho[f]
            odds_a *= to_a
            odds_b *= to_b
            belief[a] = min(max(odds_a, _LEAST), _MOST)
            belief[b] = min(max(odds_b, _LEAST), _MOST)


@jit
def table_messages(scope, log_psi, sizes, keep, rho, off, probs, m, damping, field):
    """Log-messages of ignored tables of one shape; their change is added to ``field``, and
    ``probs`` (sum of states,), the marginals, is moved by each. ``m`` (F, sum of sizes) are earlier
    log-messages, replaced by the new ones, or empty. States without mass get no message."""
    single, stored = log_psi.shape[0] == 1, m.shape[0] > 0
    arity, n, width = sizes.shape[0], log_psi.shape[1], 0
    slot, place = np.zeros((arity, 4), np.int64), np.arange(arity)
    for a in range(arity):
        slot[a, OFFSET], slot[a, SIZE] = width, sizes[a]
        width += sizes[a]
    cavity, psi, new = np.empty(width), np.empty(n), np.empty(n)
    for f in range(scope.shape[0]):
        if keep[f]:
            continue
        row = 0 if single else f
        power = rho[f] if rho.size > 0 else 1.0
        top = -np.inf
        for i in range(n):
            top = max(top, log_psi[row, i])
        for i in range(n):
            psi[i] = math.exp((log_psi[row, i] - top) / power)
        for a in range(arity):
            o, first, largest = off[scope[f, a]], slot[a, OFFSET], 0.0
            for j in range(sizes[a]):
                x = probs[o + j]
                if stored and x > 0.0:
                    x *= math.exp(-m[f, first + j])
                cavity[first + j] = x
                largest = max(largest, x)
            for j in range(first, first + sizes[a]):
                cavity[j] /= largest
        for a in range(arity):
            contract(psi, np.int64(0), cavity, slot, place, np.int64(0), arity, a, new)
            o, first, largest = off[scope[f, a]], slot[a, OFFSET], -np.inf
            for j in range(sizes[a]):
                ok = cavity[first + j] > 1e-290 and new[j] > 0.0
                new[j] = math.log(new[j]) if ok else -np.inf
                largest = max(largest, new[j])
            total = 0.0
            for j in range(sizes[a]):
                k = o + j
                x = max(new[j] - largest, -_MAX_LOG) if largest > -np.inf else 0.0
                if probs[k] <= 0.0:
                    x = 0.0
                old = 0.0
                if stored:
                    old = m[f, first + j]
                    x = (1.0 - damping) * x + damping * old
                    m[f, first + j] = x
                x = power * (x - old)
                field[k] += x
                probs[k] = max(probs[k] * math.exp(x), 1e-300) if probs[k] > 0.0 else 0.0
                total += probs[k]
            for k in range(o, o + sizes[a]):
                probs[k] /= total
