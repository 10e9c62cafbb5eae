"""Proposition 1 as a diagnostic: what the surrogate D1 leaves out, by enumeration of small models.

With G the seed, N the factors added to it (H = G + N), R the ignored ones (F = H + R), and all
expectations under p_G,

    D(p_H || p_F) = sum_{i in R} g_G(i) + S + I,
    S = log( Cov(Psi_N, Psi_R) / (E[Psi_N] E[Psi_R]) + 1 ) - Cov(log Psi_R, Psi_N) / E[Psi_N],
    I = log( E[Psi_R] / prod_{i in R} E[Psi_i] ),     g_G(i) = log E[Psi_i] - E[log Psi_i].

The paper prints S with the roles of N and R exchanged in the second covariance and with
E[log Psi] in the denominator; the equation does not hold that way.

S measures how the added factors shift the ignored ones: it vanishes if Psi_N and Psi_R are
independent under p_G, and if nothing was added. I measures how the ignored factors depend on each
other: it vanishes if they are independent under p_G, and for a single one. If both hold, D1, the
sum of the gains, is the divergence. With attractive factors S + I > 0, and D1 is too small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import bool_mask, check_graph
from minfer.basics.words import power
from minfer.errors import ContradictionError, ModelError, RefusedError
from minfer.graph import FactorGraph

MAX_ASSIGNMENTS = 1 << 20


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The parts of D(p_H || p_F), and the divergence itself, computed without them.

    Where a gain is infinite (the seed gives a zero of an ignored table mass), S and I mean nothing
    and are 0, and the total is infinite; the divergence is so only if H gives that zero mass too.

    Attributes
    ----------
    gains : float array (R,)
        Of the ignored factors, by their numbers.
    S, I : float
    divergence : float
        D(p_H || p_F) from its definition.
    """

    gains: NDArray[np.float64]
    S: float
    I: float
    divergence: float

    @property
    def surrogate(self) -> float:
        """D1, the sum of the gains."""
        return float(self.gains.sum())

    @property
    def total(self) -> float:
        """Gains + S + I: the divergence, by Proposition 1."""
        return self.surrogate + self.S + self.I


def split(model: FactorGraph, seed: NDArray[np.bool_], keep: NDArray[np.bool_]) -> Decomposition:
    """Split D(p_H || p_F) into isolated gains, S and I.

    Parameters
    ----------
    model : FactorGraph
        F, with at most 2**20 assignments.
    seed, keep : bool arrays (F,)
        Factors of G and of H; the seed is part of H.
    """
    from scipy.special import logsumexp

    check_graph(model, "split")
    seed, keep = (bool_mask(m, model.n_factors, w) for m, w in ((seed, "seed"), (keep, "keep")))
    if (seed & ~keep).any():
        raise ModelError(f"split: factor {np.flatnonzero(seed & ~keep)[0]} of the seed is not kept")
    n = math.prod(model.n_states.tolist())
    if n > MAX_ASSIGNMENTS:
        raise RefusedError(
            f"split enumerates up to 2^20 assignments, but the model has {power(math.log2(n))}; "
            "certificate() bounds the divergence of larger models"
        )
    log_g, log_n = np.zeros(n), np.zeros(n)
    for v in range(model.n_variables):
        log_g += model.field[model.offsets[v] + _state(model, v, n)]
    for i in np.flatnonzero(seed).tolist():
        log_g += _log_psi(model, i, n)
    for i in np.flatnonzero(keep & ~seed).tolist():
        log_n += _log_psi(model, i, n)
    log_g = _normalised(log_g, "the seed")
    log_h = _normalised(log_g + log_n, "the reduced model")
    alive = log_g > -np.inf
    p_g, p_h, log_p = _probs(log_g[alive]), _probs(log_h[alive]), log_g[alive]
    log_r = np.zeros(len(p_g))
    gains, means = np.zeros(int((~keep).sum())), np.zeros(int((~keep).sum()))
    for k, i in enumerate(np.flatnonzero(~keep).tolist()):
        log_psi = _log_psi(model, i, n)[alive]
        log_r += log_psi
        if (log_psi == -np.inf).any():
            gains[k] = np.inf
            continue
        means[k] = logsumexp(log_p + log_psi)
        gains[k] = max(means[k] - float(p_g @ log_psi), 0.0)
    divergence = _divergence(log_h[alive], log_h[alive] + log_r)
    if np.isinf(gains).any():
        return Decomposition(gains, 0.0, 0.0, divergence)
    e_r, e_n = float(logsumexp(log_p + log_r)), float(logsumexp(log_p + log_n[alive]))
    both = float(logsumexp(log_p + log_n[alive] + log_r))
    shift = float((p_h - p_g) @ log_r)  # Cov(log Psi_R, Psi_N) / E[Psi_N] = E_H - E_G of log Psi_R
    return Decomposition(gains, both - e_n - e_r - shift, e_r - float(means.sum()), divergence)


def _state(model: FactorGraph, variable: int, n: int) -> NDArray[np.int64]:
    """The variable's state in each of the n assignments, the last variable fastest."""
    stride = math.prod(model.n_states[variable + 1 :].tolist())
    return np.arange(n) // stride % int(model.n_states[variable])


def _log_psi(model: FactorGraph, factor: int, n: int) -> NDArray[np.float64]:
    """One factor's value in every assignment."""
    scope = model.scope(factor)
    table = model.log_table(factor).ravel()
    cell = np.zeros(n, dtype=np.int64)
    for v in scope:
        cell = cell * int(model.n_states[v]) + _state(model, int(v), n)
    return table[cell]


def _normalised(log_score: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    from scipy.special import logsumexp

    total = logsumexp(log_score)
    if total == -np.inf:
        raise ContradictionError(f"split: every assignment has probability zero in {name}")
    return log_score - total


def _probs(log_p: NDArray[np.float64]) -> NDArray[np.float64]:
    """exp(log_p), summing to 1 to the last bit: rounding grows with the size of the scores."""
    p = np.exp(log_p)
    return p / p.sum()


def _divergence(log_p: NDArray[np.float64], score: NDArray[np.float64]) -> float:
    """D(p || q) of normalised log p and unnormalised log q."""
    from scipy.special import logsumexp

    alive = log_p > -np.inf
    log_p, score = log_p[alive], score[alive]
    if (score == -np.inf).any():
        return math.inf
    return max(float(_probs(log_p) @ (log_p - (score - logsumexp(score)))), 0.0)
