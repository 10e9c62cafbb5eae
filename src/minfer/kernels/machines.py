"""Finite automata over literals: their messages, and their end states under product marginals.

With q_a(l) the weight of literal a being l, alpha the forward and beta the backward sums,

    alpha_{a+1}[step(k, l)] += alpha_a[k] q_a(l)
    beta_a[k] = sum_l q_a(l) beta_{a+1}[step(k, l)]
    M_a(l) = sum_k alpha_a[k] beta_{a+1}[step(k, l)],

all of them sums of products of numbers that are not negative: nothing cancels, whatever the arity.
"""

import numpy as np

from minfer.kernels._jit import jit

# ---------------------------------------------------------------------- product marginals


@jit
def end_distributions(step, literal, start, scope, probs, offsets, out):
    """Where the automata end if variables are independent: ``out`` (F, K + 1), the last: nowhere.

    ``step`` i4 (A, K, 2), ``literal`` and ``scope`` i4 (F, A), ``start`` i4 (F,).
    """
    arity, n_states = step.shape[0], step.shape[1]
    new = np.empty(n_states + 1)
    for f in range(start.shape[0]):
        old = out[f]
        old[:] = 0.0
        old[start[f]] = 1.0
        for a in range(arity):
            v = scope[f, a]
            on, off = probs[offsets[v] + literal[f, a]], 0.0
            for i in range(offsets[v], offsets[v + 1]):
                off += probs[i] if i != offsets[v] + literal[f, a] else 0.0
            new[:] = 0.0
            new[n_states] = old[n_states]
            for k in range(n_states):
                i, j = step[a, k, 0], step[a, k, 1]
                new[i if i >= 0 else n_states] += old[k] * off
                new[j if j >= 0 else n_states] += old[k] * on
            for k in range(n_states + 1):
                old[k] = new[k]


@jit
def residuals(step, literal, start, final, scope, probs, offsets, ends, out):
    """1/2 E[R^2], R = log psi minus its best sum of unary terms; infinite if a zero has mass.

    Reading literal a in state k moves the expectation of log psi by (l - p_a) D_a(k), where D_a is
    the difference of the expectations after reading 1 and 0. These increments do not correlate,
    and what no unary term explains of them is D_a(k) - E[D_a]:

        E[R^2] = sum_a p_a (1 - p_a) Var[D_a].
    """
    arity, n_states = step.shape[0], step.shape[1]
    value = np.zeros((arity + 1, n_states + 1))  # expected log psi from a state on
    old, new = np.empty(n_states + 1), np.empty(n_states + 1)
    on, off = np.empty(arity), np.empty(arity)
    for f in range(start.shape[0]):
        hard = ends[f, n_states] > 0.0
        for k in range(n_states):
            zero = final[f, k] == -np.inf
            hard |= zero and ends[f, k] > 0.0
            value[arity, k] = 0.0 if zero else final[f, k]
        if hard:
            out[f] = np.inf
            continue
        for a in range(arity - 1, -1, -1):
            v = scope[f, a]
            on[a], off[a] = probs[offsets[v] + literal[f, a]], 0.0
            for i in range(offsets[v], offsets[v + 1]):
                off[a] += probs[i] if i != offsets[v] + literal[f, a] else 0.0
            for k in range(n_states):
                i, j = step[a, k, 0], step[a, k, 1]  # -1 is the last one, 0
                value[a, k] = off[a] * value[a + 1, i] + on[a] * value[a + 1, j]
        old[:] = 0.0
        old[start[f]] = 1.0
        total = 0.0
        for a in range(arity):
            mean = spread = 0.0
            new[:] = 0.0
            for k in range(n_states):
                i, j = step[a, k, 0], step[a, k, 1]
                mean += old[k] * (value[a + 1, j] - value[a + 1, i])
                new[i] += old[k] * off[a]
                new[j] += old[k] * on[a]
            for k in range(n_states):
                i, j = step[a, k, 0], step[a, k, 1]
                d = value[a + 1, j] - value[a + 1, i] - mean
                spread += old[k] * d * d
            total += on[a] * off[a] * spread
            for k in range(n_states):
                old[k] = new[k]
        out[f] = 0.5 * total
