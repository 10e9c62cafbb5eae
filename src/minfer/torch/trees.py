"""Probabilities of arcs under all dependency trees, and log Z, as differentiable functions.

Forward is the batch kernel of the parser (:func:`minfer.parsing.tree_marginals`). The
Jacobian of the probabilities by the scores is a covariance, hence symmetric, so its product with a
cotangent is how the probabilities move along it: four more calls' worth of sentences in one batch,
a difference of fourth order, good to about 1e-8. A tilt of improbable arcs moves nothing that can
be told from rounding (and the log-loss of an arc of probability p has a cotangent of 1 / p): what
these do to all others is read from the trees that have them, one more sentence for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from minfer.errors import ModelError
from minfer.parsing import trees
from minfer.solvers.gradients import TILTS, slope_of
from minfer.torch.functions import check_tensor, once, to_array, to_tensor

#: A tilt, in nats of a sentence's largest cotangent.
_STEP = 4e-3
#: Arcs whose cotangent is larger than this times what they can contribute are left to no tilt.
_RARE = 1e4
_AT_ONCE = 1 << 20  # scores of sentences that are given an arc


def tree_marginals(
    scores: Tensor,
    lengths: Any = None,
    *,
    projective: bool = True,
    single_root: bool = True,
) -> Tensor:
    """P(head, modifier) of every arc under all trees, differentiable by the scores.

    Parameters
    ----------
    scores : tensor (B, N, N) or (N, N)
        ``scores[b, h, m]`` of the arc from h to m; 0 is the root, and what lies beyond a sentence's
        words is not read and has gradient 0.
    lengths : integers (B,), optional
        Words of each sentence; by default all have N - 1.
    projective, single_root : bool

    Examples
    --------
    >>> import torch
    >>> from minfer.torch import tree_marginals
    >>> tree_marginals(torch.zeros(3, 3, dtype=torch.float64))[0].tolist()  # arcs from the root
    [0.0, 0.5, 0.5]
    """
    return _Arcs.apply(scores, *_checked(scores, lengths), projective, single_root)


def tree_log_partition(
    scores: Tensor,
    lengths: Any = None,
    *,
    projective: bool = True,
    single_root: bool = True,
) -> Tensor:
    """log of the sum over all trees of exp(score), (B,) or (); its gradient is the marginals."""
    return _LogZ.apply(scores, *_checked(scores, lengths), projective, single_root)


def _checked(scores: Any, lengths: Any) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    check_tensor(scores, "arc scores")
    if scores.dim() not in (2, 3):
        raise ModelError(
            f"arc scores must have shape (B, N, N) or (N, N), not {tuple(scores.shape)}"
        )
    values = to_array(scores)
    if isinstance(lengths, Tensor):
        lengths = lengths.detach().cpu().numpy()
    words = None if lengths is None else np.atleast_1d(np.asarray(lengths))
    return (values if values.ndim == 3 else values[None]), words


class _Arcs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, values: NDArray, lengths: Any, projective: bool, single: bool
    ) -> Tensor:
        ctx.save_for_backward(scores)
        mu, _ = trees.tree_marginals(values, lengths, projective=projective, single_root=single)
        ctx.rest = values, lengths, projective, single, np.array(mu, dtype=np.float64)
        return to_tensor(mu, scores)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (scores,) = ctx.saved_tensors
        values, lengths, projective, single, probs = ctx.rest
        along = to_array(gradients[0]).reshape(values.shape)
        n = values.shape[1]
        inside = np.ones(values.shape, dtype=bool)  # where arcs are
        if lengths is not None:
            node = np.arange(n) <= lengths[:, None]
            inside = node[:, :, None] & node[:, None, :]
        inside &= (np.arange(n) > 0) & ~np.eye(n, dtype=bool)
        along = np.where(inside, along, 0.0)
        along[(probs == 0.0) & np.isfinite(along)] = 0.0
        most = np.abs(along * probs).max(axis=(1, 2), keepdims=True, initial=0.0)
        rare = (np.abs(along) > _RARE * most) & (probs > 0.0)
        share = (along * probs)[rare]
        along[rare] = 0.0
        # a number added to all arcs into a word changes nothing: keep the step small
        heads = np.maximum(inside.sum(axis=1, keepdims=True), 1)
        along = np.where(inside, along - along.sum(axis=1, keepdims=True) / heads, 0.0)
        size = np.abs(along).max(axis=(1, 2), keepdims=True, initial=0.0)
        step = _STEP / np.where(size > 0.0, size, 1.0)
        tilted = np.concatenate([values + k * step * along for k in TILTS])
        words = None if lengths is None else np.tile(lengths, 4)
        mu, _ = trees.tree_marginals(tilted, words, projective=projective, single_root=single)
        slope, _ = slope_of(np.split(mu, 4), step)
        places = np.argwhere(rare)
        size = max(_AT_ONCE // (n * n), 1)
        for begin in range(0, len(places), size):
            b, h, m = places[begin : begin + size].T
            given = values[b]
            each = np.arange(len(b))
            kept = given[each, h, m]
            given[each, :, m] = -np.inf
            given[each, h, m] = kept
            words = None if lengths is None else lengths[b]
            mu, _ = trees.tree_marginals(given, words, projective=projective, single_root=single)
            np.add.at(slope, b, share[begin : begin + size, None, None] * (mu - probs[b]))
        found = to_tensor(slope, scores)
        return once(found, "tree_marginals", gradients[0], scores), None, None, None, None


class _LogZ(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, values: NDArray, lengths: Any, projective: bool, single: bool
    ) -> Tensor:
        mu, log_z = trees.tree_marginals(values, lengths, projective=projective, single_root=single)
        ctx.save_for_backward(scores)
        ctx.mu = mu
        out = torch.from_numpy(log_z).to(scores.device, scores.dtype)
        return out if scores.dim() == 3 else out[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (scores,) = ctx.saved_tensors
        share = to_array(gradients[0]).reshape(-1, 1, 1)
        found = to_tensor(share * ctx.mu, scores)
        return once(found, "tree_log_partition", gradients[0], scores), None, None, None, None
