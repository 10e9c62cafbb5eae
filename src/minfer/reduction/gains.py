"""Scores of left-out factors from the seed's marginals: what would ignoring each one cost?

The paper's score is the gain, the divergence that each factor would cause if added to the seed,

    g_G(i) = D(p_G || p_{G + i}) = log E_G[Psi_i] - E_G[log Psi_i],

for a feature exp(theta phi) with mean mu = E_G[phi]: log(1 - mu + mu e^theta) - mu theta (Riedel,
Smith & McCallum 2010, section 3.1). It is infinite only if the seed gives one of the table's zeros
mass: D(p_H || p_F) is infinite without such a factor, so no objective may drop it.

The joint of a factor's variables is the solver's where it knows it (a factor of the seed has the
same scope), and the product of their marginals elsewhere. Two more scores:

* ``residual``, for compensated inference: to second order the gain that is left once the factor's
  unary part stays behind, 1/2 w^2 v_a v_b with w = T11 - T10 - T01 + T00, v = mu (1 - mu); for
  tables 1/2 E[R^2] with R the log-table minus its best sum of unary terms. No exp, no log.
* ``reverse``, D(p_{G + i} || p_G): -log P_G(allowed) for a hard constraint. Finite where the gain
  is not, but dropping such a factor leaves D(p_H || p_F) infinite: it ranks, it promises nothing.

Scores of different kinds do not compare, nor do their thresholds. What each factor's score cannot
exceed under any marginals, a group says from its numbers alone (:meth:`FactorGroup.score_bounds`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import bool_mask, check_choice, check_graph, check_type
from minfer.errors import ModelError
from minfer.factors.group import Floats, Ints, Mask
from minfer.solvers.base import Marginals

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

SCORES = ("gain", "residual", "reverse")


def factor_gains(model: FactorGraph, marginals: Marginals, seed: Mask | None = None) -> Floats:
    """Gain of every factor of a model under the seed's marginals, (F,); infinite on ``seed`` (F,).

    Global factors must be among the seed.
    """
    return factor_scores(model, marginals, seed, "gain")


def factor_scores(
    model: FactorGraph, marginals: Marginals, seed: Mask | None = None, score: str = "gain"
) -> Floats:
    """As :func:`factor_gains` for any of the scores ``gain``, ``residual`` and ``reverse``."""
    check_choice("score", score, SCORES)
    check_graph(model, "factor_gains")
    check_type(marginals, Marginals, "factor_gains takes the seed's Marginals", ModelError)
    probs = np.ascontiguousarray(marginals.probs)
    if probs.shape != (int(model._offsets[-1]),):
        raise ModelError("factor_gains: the marginals are of a model with other variables")
    n = model.n_factors
    skip = np.zeros(n, dtype=bool) if seed is None else bool_mask(seed, n, "seed")
    out = np.empty(model.n_factors)
    for g in model.groups:
        here = skip[g._span]
        if here.all():
            out[g._span] = np.inf
            continue
        if g.form == "messages":
            number = int(g._ids[np.flatnonzero(~here)[0]])
            what = f"factor {number} is {g._a_noun}"
            raise ModelError(f"{what} and has no gain: put it into the seed")
        if not here.any():
            part, into = g, g._span
        else:
            rows = np.flatnonzero(~here)
            out[g._span] = np.inf
            part = g.take(rows, g._ids[rows])
            into = part._ids
        if isinstance(into, slice):
            part.scores(probs, model._offsets, score, out[into])
        else:
            values = np.empty(len(part))
            part.scores(probs, model._offsets, score, values)
            out[into] = values
    if score != "residual":
        _use_known_joints(model, marginals, skip, score, out)
    return out


def _use_known_joints(
    model: FactorGraph, marginals: Marginals, skip: NDArray, score: str, out: NDArray
) -> None:
    """Score again, with the solver's joint, the factors whose scope a factor of the seed has."""
    seed = marginals.graph
    if not len(seed.arity) or seed.arity.max() < 2:
        return
    for g in model.groups:
        if g.form != "table" or g.arity < 2:
            continue
        rows = np.flatnonzero(~skip[g._span])
        if not len(rows):
            continue
        twin, order = _same_scope(seed, g._scope[rows])
        rows, order, twin = rows[twin >= 0], order[twin >= 0], twin[twin >= 0]
        if not len(rows):
            continue
        part = g.take(rows, g._ids[rows])
        joints = _reordered(marginals.factors(twin), order, part.shape)
        values = np.empty(len(part))
        part.joint_scores(slice(0, len(part)), joints, score, values)
        out[part._ids] = values


def _same_scope(seed: FactorGraph, scope: NDArray) -> tuple[Ints, Ints]:
    """A factor of the seed over each scope (n, A), or -1; and its axes in that order, (n, A)."""
    arity = scope.shape[1]
    twin = np.full(len(scope), -1, dtype=np.int64)
    groups = [g for g in seed.groups if g.form == "table" and g.arity == arity]
    axes = np.tile(np.arange(arity), (len(scope), 1))
    if not groups:
        return twin, axes
    theirs = np.concatenate([g._scope for g in groups])
    number = np.concatenate([g._ids for g in groups])
    if arity == 2:
        from minfer.kernels.scores.gains import same_pairs

        small, large = theirs.min(axis=1), theirs.max(axis=1)
        order = np.argsort(small, kind="stable")
        ptr = np.zeros(seed.n_variables + 1, dtype=np.int64)
        np.cumsum(np.bincount(small, minlength=seed.n_variables), out=ptr[1:])
        same_pairs(scope, ptr, large[order], order, twin)
    else:
        both = np.sort(np.concatenate([theirs, scope]), axis=1)
        _, first, label = np.unique(both, axis=0, return_index=True, return_inverse=True)
        source = first[label.ravel()[len(theirs) :]]  # the first row that is equal
        twin[:] = np.where(source < len(theirs), source, -1)
    found = twin >= 0
    match = scope[found][:, :, None] == theirs[twin[found]][:, None, :]
    axes[found] = match.argmax(axis=2)
    twin[found] = number[twin[found]]
    return twin, axes


def _reordered(joints: NDArray, axes: NDArray, shape: tuple[int, ...]) -> Floats:
    """Joints (n, cells) over the seed's scopes with their axes in the given order, (n, cells)."""
    out = np.empty_like(joints)
    for order in np.unique(axes, axis=0):
        rows = np.flatnonzero((axes == order).all(axis=1))
        theirs = [0] * len(order)
        for mine, axis in enumerate(order):
            theirs[axis] = shape[mine]
        block = joints[rows].reshape(len(rows), *theirs)
        out[rows] = block.transpose(0, *(order + 1)).reshape(len(rows), -1)
    return out
