"""Gains: the divergence that each left-out factor would cause, from the seed's marginals.

    g_G(i) = D(p_G || p_{G + i}) = log E_G[Psi_i] - E_G[log Psi_i]

For a feature exp(theta phi) with mean mu = E_G[phi] this is log(1 - mu + mu e^theta) - mu theta
(Riedel, Smith & McCallum 2010, section 3.1). The joint of a factor's variables is the product of
their marginals. A table has an infinite gain only if the seed gives one of its zeros mass:
D(p_H || p_F) is infinite without it, so no objective may drop it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ModelError
from minfer.factors import Features, Globals, n_entries
from minfer.graph import FactorGraph
from minfer.solvers.base import Marginals

_CHUNK = 1 << 22  # cells of product joints held at a time


def factor_gains(
    model: FactorGraph, marginals: Marginals, seed: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Gain of every factor under the seed's marginals, shape (F,); infinite on the seed itself.

    Parameters
    ----------
    model : FactorGraph
        The full model.
    marginals : Marginals
        Of the seed graph: the same variables, fewer factors.
    seed : bool array (F,), optional
        Which factors are the seed; their gains are not computed. Global factors must be among them.
    """
    from minfer.kernels import gains as k

    probs = np.ascontiguousarray(marginals.probs)
    if probs.shape != (int(model._offsets[-1]),):
        raise ModelError("factor_gains: the marginals are of a model with other variables")
    skip = np.zeros(model.n_factors, dtype=bool) if seed is None else np.asarray(seed, dtype=bool)
    out = np.full(model.n_factors, np.inf)
    for g in model.groups:
        rows = np.flatnonzero(~skip[g._ids])
        if not len(rows):
            continue
        if isinstance(g, Globals):
            raise ModelError(
                f"factor {int(g._ids[rows[0]])} is global and has no gain: put it into the seed"
            )
        part = g if len(rows) == len(g) else g.take(rows, g._ids[rows])
        values = np.empty(len(part))
        if isinstance(part, Features) and part.arity == 2:
            truth = part.truth.ravel().astype(np.float64)
            k.pair_feature_gains(part._scope, truth, part._theta, model._offsets, probs, values)
        elif isinstance(part, Features):
            on, off = part.truth.ravel().astype(float), (~part.truth).ravel().astype(float)
            means = [(j @ on, j @ off) for j in _joints(model, part, probs)]
            mu, nu = (np.concatenate(x) for x in zip(*means))
            k.feature_gains(mu, nu, part._theta, values)
        else:
            done = 0
            for joint in _joints(model, part, probs):
                rows_here = slice(done, done + len(joint))
                tables = part._log_psi if part.shared else part._log_psi[rows_here]
                k.table_gains(joint, tables, values[rows_here])
                done += len(joint)
        out[part._ids] = values
    return out


def _joints(model: FactorGraph, group, probs: NDArray):  # type: ignore[no-untyped-def]
    """Product marginals over each factor's scope, (rows, cells), a chunk of rows at a time."""
    step = max(1, _CHUNK // n_entries(group.shape))
    for start in range(0, len(group), step):
        scope = group._scope[start : start + step]
        joint = np.ones((len(scope), 1))
        for a, size in enumerate(group.shape):
            p = probs[model._offsets[scope[:, a]][:, None] + np.arange(size)]
            joint = (joint[:, :, None] * p[:, None, :]).reshape(len(scope), -1)
        yield joint
