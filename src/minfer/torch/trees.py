"""Probabilities of arcs under all dependency trees, and log Z, as differentiable functions.

Forward is the batch kernel of the parser (:func:`minfer.parsing.tree_marginals`). The
Jacobian of the probabilities by the scores is a covariance, hence symmetric, so its product with a
cotangent is how the probabilities move along it: four more calls' worth of sentences in one batch,
a difference of fourth order, good to about 1e-8. A tilt of improbable arcs moves nothing that can
be told from rounding (and the log-loss of an arc of probability p has a cotangent of 1 / p): what
these do to all others is read from the trees that have them, one more sentence for each.

Tensors on a card stay there (:mod:`minfer.device.trees`), but for sentences that need more than
plain numbers, which the processor does. Without CuPy all of them go by way of the processor.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from minfer.device.runs import Device
from minfer.device.trees import tree_sums
from minfer.errors import DeviceError, MinferError, ModelError
from minfer.parsing import trees
from minfer.solvers import on_device
from minfer.solvers.gradients import TILTS, slopes
from minfer.torch.functions import check_tensor, once

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
    return _Arcs.apply(scores, _checked(scores, lengths), projective, single_root)


def tree_log_partition(
    scores: Tensor,
    lengths: Any = None,
    *,
    projective: bool = True,
    single_root: bool = True,
) -> Tensor:
    """log of the sum over all trees of exp(score), (B,) or (); its gradient is the marginals."""
    return _LogZ.apply(scores, _checked(scores, lengths), projective, single_root)


def _checked(scores: Any, lengths: Any) -> NDArray[np.int64] | None:
    """Words of each sentence; None: all have as many as there is room for."""
    check_tensor(scores, "arc scores")
    if scores.dim() not in (2, 3):
        raise ModelError(
            f"arc scores must have shape (B, N, N) or (N, N), not {tuple(scores.shape)}"
        )
    if isinstance(lengths, Tensor):
        lengths = lengths.detach().cpu().numpy()
    return None if lengths is None else np.atleast_1d(np.asarray(lengths))


def _values(tensor: Tensor) -> Tensor:
    """Numbers (B, N, N) in float64, where they are."""
    values = tensor.detach().to(torch.float64).contiguous()
    return values if values.dim() == 3 else values[None]


def _device_of(values: Tensor) -> Device | None:
    """The card that a tensor is on, if kernels can be launched there; else None."""
    if values.device.type != "cuda":
        return None
    try:
        return on_device.device()
    except DeviceError:
        return None  # by way of the processor


def _sums(
    values: Tensor, lengths: NDArray[np.int64] | None, projective: bool, single: bool
) -> tuple[Tensor, Tensor]:
    """Probabilities and log Z of sentences, float64, where they are."""
    there, how = _device_of(values), {"projective": projective, "single_root": single}
    if there is None:
        mu, log_z = trees.tree_marginals(values.cpu().numpy(), lengths, **how)
        return torch.from_numpy(mu).to(values.device), torch.from_numpy(log_z).to(values.device)
    words = trees.checked_batch(values, lengths, projective, single)
    found, sums = torch.empty_like(values), values.new_empty(len(words))
    fine = torch.zeros(len(words), dtype=torch.int32, device=values.device)
    if lengths is None:
        sizes = torch.full_like(fine, values.shape[1] - 1)
    else:
        sizes = torch.from_numpy(words.astype(np.int32)).to(values.device)
    # a card without room leaves them to the processor
    with suppress(DeviceError), there.beside(values):
        tree_sums(there, *map(there.borrow, (values, sizes, found, sums, fine)), **how)
    if not bool(fine.all()):
        rest = torch.nonzero(fine == 0)[:, 0]
        # where an inverse or a chart in plain numbers is not safe, or there is no tree
        which = rest.cpu().numpy()
        try:
            mu, log_z = trees.tree_marginals(values[rest].cpu().numpy(), words[which], **how)
        except MinferError:
            trees.tree_marginals(values.cpu().numpy(), lengths, **how)  # names the sentence
            raise
        found[rest] = torch.from_numpy(mu).to(values.device)
        sums[rest] = torch.from_numpy(log_z).to(values.device)
    return found, sums


class _Arcs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, lengths: Any, projective: bool, single: bool) -> Tensor:
        ctx.save_for_backward(scores)
        values = _values(scores)
        mu, _ = _sums(values, lengths, projective, single)
        ctx.rest = values, lengths, projective, single, mu
        return mu.reshape(scores.shape).to(scores.dtype, copy=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (scores,) = ctx.saved_tensors
        values, lengths, projective, single, probs = ctx.rest
        along, n = _values(gradients[0]).reshape(values.shape), values.shape[1]
        node = torch.arange(n, device=values.device)
        inside = torch.ones(values.shape, dtype=torch.bool, device=values.device)  # where arcs are
        if lengths is not None:
            used = node <= torch.from_numpy(lengths).to(values.device)[:, None]
            inside = used[:, :, None] & used[:, None, :]
        inside = inside & (node > 0) & (node[:, None] != node)
        nothing = ~inside | ((probs == 0.0) & torch.isfinite(along))
        along = along.masked_fill(nothing, 0.0)
        most = (along * probs).abs().amax(dim=(1, 2), keepdim=True)
        rare = (along.abs() > _RARE * most) & (probs > 0.0)
        share = (along * probs)[rare]
        along = along.masked_fill(rare, 0.0)
        # a number added to all arcs into a word changes nothing: keep the step small
        heads = inside.sum(dim=1, keepdim=True).clamp(min=1)
        along = torch.where(inside, along - along.sum(dim=1, keepdim=True) / heads, 0.0)
        size = along.abs().amax(dim=(1, 2), keepdim=True)
        step = _STEP / torch.where(size > 0.0, size, 1.0)
        tilted = torch.cat([values + k * step * along for k in TILTS])
        words = None if lengths is None else np.tile(lengths, 4)
        fine, coarse = slopes(_sums(tilted, words, projective, single)[0].chunk(4), step)
        slope = fine + (fine - coarse) / 3.0
        places = torch.nonzero(rare)
        size = max(_AT_ONCE // (n * n), 1)
        for begin in range(0, len(places), size):
            b, h, m = places[begin : begin + size].T
            given, each = values[b], torch.arange(len(b), device=values.device)
            kept = given[each, h, m]
            given[each, :, m] = -torch.inf
            given[each, h, m] = kept
            words = None if lengths is None else lengths[b.cpu().numpy()]
            mu, _ = _sums(given, words, projective, single)
            own = share[begin : begin + size, None, None]
            slope.index_put_((b,), own * (mu - probs[b]), accumulate=True)
        found = slope.reshape(scores.shape).to(scores.dtype)
        return once(found, "tree_marginals", gradients[0], scores), None, None, None


class _LogZ(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, lengths: Any, projective: bool, single: bool) -> Tensor:
        ctx.mu, log_z = _sums(_values(scores), lengths, projective, single)
        ctx.save_for_backward(scores)
        out = log_z.to(scores.dtype)
        return out if scores.dim() == 3 else out[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (scores,) = ctx.saved_tensors
        share = gradients[0].detach().to(torch.float64).reshape(-1, 1, 1)
        found = (share * ctx.mu).reshape(scores.shape).to(scores.dtype)
        return once(found, "tree_log_partition", gradients[0], scores), None, None, None
