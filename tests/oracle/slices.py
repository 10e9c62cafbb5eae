"""Networks through time by sums over all joint states of a slice, in logarithms.

Tables are plain: for each variable v of a slice ``(parents, table)``, where parent n + u is
variable u of the slice before. Evidence is a likelihood for each state of each variable and time.
Nothing here knows of interfaces, cliques or leaves.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from oracle.truth import logsumexp

Tables = list[tuple[list[int], np.ndarray]]
Likelihoods = list[list[np.ndarray]]  # by time and variable


class Chain(NamedTuple):
    """log P of the first joint state (K,), of steps (K, K), and the joint states (K, n)."""

    first: np.ndarray
    step: np.ndarray
    states: np.ndarray


def chain(card: list[int], first: Tables, step: Tables) -> Chain:
    states = np.array(list(itertools.product(*map(range, card))))
    k = len(states)
    now = [states[None, :, v] for v in range(len(card))]
    past = [states[:, None, v] for v in range(len(card))]
    log_first, log_step = np.zeros((1, k)), np.zeros((k, k))
    with np.errstate(divide="ignore"):
        for v, (own, table) in enumerate(first):
            log_first = log_first + np.log(table)[tuple((now + past)[p] for p in [*own, v])]
        for v, (own, table) in enumerate(step):
            log_step = log_step + np.log(table)[tuple((now + past)[p] for p in [*own, v])]
    return Chain(log_first[0], log_step, states)


class Answers(NamedTuple):
    filtered: np.ndarray  # (T, K)
    smoothed: np.ndarray  # (T, K)
    pairs: np.ndarray  # (T-1, K, K)
    log_likelihood: float
    best: float
    dead: int  # the first time at which nothing is possible, or -1


def solve(model: Chain, seen: Likelihoods) -> Answers:
    """All answers about one sequence."""
    n_steps, k = len(seen), len(model.first)
    with np.errstate(divide="ignore"):
        log_seen = np.array([
            sum((np.log(like)[model.states[:, v]] for v, like in enumerate(at)), np.zeros(k))
            for at in seen
        ])  # fmt: skip
    alpha, most = np.zeros((n_steps, k)), np.zeros((n_steps, k))
    beta = np.zeros((n_steps, k))
    dead = -1
    for t in range(n_steps):
        if t:
            alpha[t] = logsumexp(alpha[t - 1][:, None] + model.step, axis=0) + log_seen[t]
            most[t] = (most[t - 1][:, None] + model.step).max(axis=0) + log_seen[t]
        else:
            alpha[t] = most[t] = model.first + log_seen[t]
        if dead < 0 and alpha[t].max() == -np.inf:
            dead = t
    for t in range(n_steps - 2, -1, -1):
        beta[t] = logsumexp(model.step + (log_seen[t + 1] + beta[t + 1])[None, :], axis=1)
    total = float(logsumexp(alpha[-1]))
    if dead >= 0:
        return Answers(alpha, beta, alpha[:0], -np.inf, -np.inf, dead)
    pairs = [
        np.exp(alpha[t][:, None] + model.step + (log_seen[t + 1] + beta[t + 1])[None] - total)
        for t in range(n_steps - 1)
    ]
    filtered = np.exp(alpha - logsumexp(alpha, axis=1)[:, None])
    smoothed = np.exp(alpha + beta - total)
    shape = (n_steps - 1, k, k)
    return Answers(filtered, smoothed, np.reshape(pairs, shape), total, float(most[-1].max()), dead)


def marginal(model: Chain, beliefs: np.ndarray, v: int, size: int) -> np.ndarray:
    """Of a variable (T, S), from beliefs about joint states."""
    return np.stack([beliefs[:, model.states[:, v] == s].sum(axis=1) for s in range(size)], axis=1)
