"""Marginals and log Z of a prepared run as functions that autograd can differentiate, and modules.

What passes between the two worlds is in :class:`Passage`: tensors come in by sharing their memory
where they are contiguous float64 on the CPU, by a copy elsewhere; answers leave by one copy, so
that writing into them cannot reach what backward will read.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from minfer.basics.checks import check_choice, check_type, check_whole
from minfer.errors import EvidenceError, ModelError, RefusedError, SettingsError
from minfer.solvers.differentiable_batch import Pullbacks, possible, record
from minfer.solvers.gradients import pull_back
from minfer.solvers.prepared import Prepared

#: Rounding keeps sweeps from settling any closer than this share of the largest derivative.
_FINEST = 1e-12


class GradientWarning(UserWarning):
    """A run or its adjoint has not converged, so gradients are approximate."""


def marginals(
    run: Prepared,
    unary: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    evidence: Any = None,
    tol: float | None = None,
    max_iters: int = 1000,
    workers: int = 1,
) -> Tensor:
    """P(x_v) of all variables, differentiable by ``unary`` and ``weights``.

    Parameters
    ----------
    run : Prepared
        ``solver.prepare(graph)``. Belief propagation and tree-reweighted propagation over tables
        have an adjoint, and so has ``Exact``; ``MeanField`` and logical or global factors are
        differentiated by perturbation, to about 1e-9.
    unary : tensor of floats, optional
        Log-weights to add to every state: (sum of states,), or any shape of so many numbers, such
        as (V, K). With one more dimension in front, a batch.
    weights : tensor (n_weights,) or (N, n_weights), optional
        Instead of ``graph.weights``.
    evidence : as in ``run(evidence=...)``, or N of them for a batch
    tol : float, optional
        Of the adjoint; by default the solver's own.
    max_iters : int
        Sweeps of the adjoint at most.
    workers : int
        Threads over the rows of a batch.

    Returns
    -------
    tensor
        Of the shape of ``unary``; without it (sum of states,) or (N, sum of states).
    """
    passage = Passage.of(run, unary, weights, evidence, "marginals")
    if tol is None:
        tol = float(getattr(run.solver, "tol", 1e-6))
    elif not (isinstance(tol, float) and 0.0 < tol < 1.0):
        raise SettingsError(f"marginals: tol must be a number between 0 and 1, not {tol!r}")
    check_whole("workers", workers, 1)
    check_whole("max_iters", max_iters, 1)
    settings = max(tol, _FINEST), max_iters, workers
    return _Marginals.apply(unary, weights, passage, settings)


def log_partition(
    run: Prepared,
    unary: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    evidence: Any = None,
    workers: int = 1,
) -> Tensor:
    """log Z, differentiable by ``unary`` and ``weights``: exact, a bound or an estimate.

    Of shape () or (N,), from what :func:`marginals` takes. Its gradient is the marginals and the
    expected statistics, so nothing has to be solved backwards.
    """
    check_whole("workers", workers, 1)
    passage = Passage.of(run, unary, weights, evidence, "log_partition")
    return _LogPartition.apply(unary, weights, passage, workers)


# ---------------------------------------------------------------------- tensors and arrays


def to_array(tensor: Tensor) -> NDArray[np.float64]:
    """A tensor's numbers in float64, shared where they are on the CPU and contiguous."""
    return tensor.detach().to("cpu", torch.float64).contiguous().numpy()


def to_tensor(array: NDArray, like: Tensor) -> Tensor:
    """A copy of an array with another tensor's dtype, device and shape."""
    copy = np.array(array, dtype=np.float64).reshape(tuple(like.shape))
    return torch.from_numpy(copy).to(like.device, like.dtype)


def check_tensor(tensor: Any, what: str) -> None:
    check_type(tensor, Tensor, f"{what} must be a tensor", ModelError)
    if not tensor.is_floating_point():
        raise ModelError(f"{what} must be of a floating dtype, not {tensor.dtype}")


@dataclass(frozen=True, eq=False)
class Passage:
    """What a call was given, and the way back."""

    run: Prepared
    rows: int | None  # None: no batch
    unary: NDArray[np.float64] | None  # (sum S,) or (N, sum S)
    weights: NDArray[np.float64] | None  # (n_weights,) or (N, n_weights)
    evidence: Any
    like: Tensor  # empty, of the dtype and on the device that answers have
    shape: tuple[int, ...] | None  # of unary

    @classmethod
    def of(
        cls, run: Any, unary: Tensor | None, weights: Tensor | None, evidence: Any, who: str
    ) -> Passage:
        check_type(run, Prepared, f"{who}: run must be solver.prepare(graph)", ModelError)
        graph = run.graph
        size, n_weights = int(graph._offsets[-1]), int(graph.weight_offsets[-1])
        rows, field, theta, given = None, None, None, []
        if unary is not None:
            check_tensor(unary, f"{who}: unary")
            given.append(unary)
            n = unary.numel()
            whole = n == size and not (unary.dim() == 2 and unary.shape == (1, size))
            if not whole:
                if unary.dim() < 2 or n != unary.shape[0] * size:
                    raise ModelError(
                        f"{who}: unary has shape {tuple(unary.shape)}; the model has {size} states,"
                        f" so expected ({size},), (N, {size}), or as many numbers in another shape"
                    )
                rows = int(unary.shape[0])
            field = to_array(unary).reshape(-1 if rows is None else (rows, size))
        if weights is not None:
            check_tensor(weights, f"{who}: weights")
            given.append(weights)
            if weights.dim() not in (1, 2) or weights.shape[-1] != n_weights:
                raise ModelError(
                    f"{who}: weights have shape {tuple(weights.shape)}; the model has {n_weights}, "
                    f"so expected ({n_weights},) or (N, {n_weights})"
                )
            theta = to_array(weights)
            if weights.dim() == 2:
                if rows not in (None, len(theta)):
                    raise ModelError(f"{who}: {len(theta)} rows of weights, {rows} of unary")
                rows = len(theta)
        if not given:
            raise ModelError(f"{who}: give unary, weights or both")
        if len({t.device for t in given}) > 1:
            raise ModelError(f"{who}: unary and weights are on different devices")
        dtype = (
            given[0].dtype if len(given) == 1 else torch.promote_types(*(t.dtype for t in given))
        )
        like = torch.empty(0, dtype=dtype, device=given[0].device)
        shape = None if unary is None else tuple(unary.shape)
        return cls(run, rows, field, theta, evidence, like, shape)

    def single(self) -> dict[str, Any]:
        """The arguments of a call without a batch."""
        return {"field": self.unary, "weights": self.weights, "evidence": self.evidence}

    def known(self) -> Any:
        """Evidence for every row of a batch, or None."""
        known = self.evidence
        if known is None:
            return None
        single = isinstance(known, Mapping) or (
            np.ndim(known) == 1 and len(known) > 0 and not isinstance(known[0], Mapping)
        )
        if single:
            return [known] * (self.rows or 1)
        if len(known) != self.rows:
            raise ModelError(f"{len(known)} rows of evidence, {self.rows} of others")
        return known

    def answer(self, values: NDArray, shape: tuple[int, ...]) -> Tensor:
        out = torch.from_numpy(np.array(values, dtype=np.float64).reshape(shape))  # no view
        return out.to(self.like.device, self.like.dtype)


def warn(what: str, unsettled: int, of: int) -> None:
    if unsettled:
        count = f"{unsettled} of {of} " if of > 1 else ""
        warnings.warn(
            f"{count}{what} not converged: gradients are approximate; raise max_iters, or damp the "
            "solver",
            GradientWarning,
            stacklevel=4,
        )


# ---------------------------------------------------------------------- autograd


class Once(torch.autograd.Function):
    """A gradient as it is, that refuses to be differentiated in its turn."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, who: str, *others: Tensor) -> Tensor:
        ctx.who = who
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise RefusedError(
            f"double backward through minfer.torch.{ctx.who} is not supported: its gradient is "
            "computed outside autograd, once; do without create_graph=True, or take differences of "
            "gradients"
        )


def once(gradient: Tensor | None, who: str, *others: Tensor | None) -> Tensor | None:
    """The gradient, tied to what it depends on so that a second backward is refused by name."""
    if gradient is None or not torch.is_grad_enabled():
        return gradient
    return Once.apply(gradient, who, *(t for t in others if t is not None))


class _Marginals(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, unary: Tensor | None, weights: Tensor | None, passage: Passage, settings: Any
    ) -> Tensor:
        ctx.passage, ctx.settings = passage, settings
        ctx.save_for_backward(unary, weights)
        run, rows = passage.run, passage.rows
        size = int(run.graph._offsets[-1])
        shape = (size,) if passage.shape is None else passage.shape
        if rows is not None and (passage.unary is None or passage.unary.ndim == 1):
            shape = (rows, *shape)
        if rows is None:
            ctx.answer = run(**passage.single())
            warn("the run has", int(not ctx.answer.converged), 1)
            return passage.answer(ctx.answer.probs, shape)
        given = passage.known(), passage.weights, passage.unary
        if any(ctx.needs_input_grad):
            ctx.rows = record(run, *given, workers=settings[2])
            batch = ctx.rows.batch
        else:
            batch = possible(run.batch(*given, workers=settings[2], log_z=False))
        warn("runs have", int((~batch.converged).sum()), rows)
        return passage.answer(batch.probs, shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        passage, (tol, max_iters, _) = ctx.passage, ctx.settings
        c = to_array(gradients[0])
        how = {"tol": tol, "max_iters": max_iters, "weights": ctx.needs_input_grad[1]}
        if passage.rows is None:
            one = pull_back(ctx.answer, c, solver=passage.run.solver, **how)
            found = Pullbacks(one.field[None], one.weights[None], np.array([one.converged]))
            ok = np.array([ctx.answer.converged])
        else:
            size = int(passage.run.graph._offsets[-1])
            found = ctx.rows.pull_back(c.reshape(passage.rows, size), **how)
            ok = ctx.rows.batch.converged
        warn("adjoints have", int((ok & ~found.converged).sum()), len(ok))
        return _handed_back(ctx, "marginals", gradients[0], found.field, found.weights)


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, unary: Tensor | None, weights: Tensor | None, passage: Passage, workers: int
    ) -> Tensor:
        ctx.save_for_backward(unary, weights)
        run, rows = passage.run, passage.rows
        if rows is None:
            m = run(**passage.single())
            warn("the run has", int(not m.converged), 1)
            by_weight = m.statistics()[None] if ctx.needs_input_grad[1] else None
            ctx.found = m.probs[None], by_weight
            return passage.answer(np.array(m.log_z), ())
        batch = possible(run.batch(
            passage.known(), passage.weights, passage.unary, workers=workers,
            statistics=ctx.needs_input_grad[1],
        ))  # fmt: skip
        warn("runs have", int((~batch.converged).sum()), rows)
        ctx.found = batch.probs, batch.statistics
        return passage.answer(batch.log_z, (rows,))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        probs, statistics = ctx.found
        share = to_array(gradients[0]).reshape(-1, 1)
        by_weights = None if statistics is None else share * statistics
        return _handed_back(ctx, "log_partition", gradients[0], share * probs, by_weights)


def _handed_back(
    ctx: Any, who: str, gradient: Tensor, by_unary: NDArray, by_weights: NDArray | None
) -> tuple[Tensor | None, ...]:
    """Derivatives of every row in the shape of the inputs; summed where these served all rows."""
    out: list[Tensor | None] = []
    for wanted, like, whole in zip(ctx.needs_input_grad, ctx.saved_tensors, (by_unary, by_weights)):
        found = None
        if wanted and whole is not None:
            found = to_tensor(whole if whole.size == like.numel() else whole.sum(axis=0), like)
        out.append(once(found, who, gradient, *ctx.saved_tensors))
    return *out, None, None


# ---------------------------------------------------------------------- modules


class BPLayer(nn.Module):
    """Marginals of a prepared run as a layer: log-weights of states in, probabilities out.

    Parameters
    ----------
    run : Prepared
        ``solver.prepare(graph)``.
    learn_weights : bool
        Whether the layer has the model's weights as a parameter of its own, which starts as
        ``graph.weights``; they must be finite then.
    tol, max_iters, workers
        As in :func:`minfer.torch.marginals`.

    Examples
    --------
    >>> import torch
    >>> from minfer import BeliefPropagation, FactorGraph
    >>> from minfer.torch import BPLayer
    >>> run = BeliefPropagation().prepare(FactorGraph.grid(torch.zeros(2, 2).numpy(), 0.5))
    >>> layer = BPLayer(run, learn_weights=True)
    >>> p = layer(torch.zeros(3, 4, 2))
    >>> p.shape, p.requires_grad
    (torch.Size([3, 4, 2]), True)
    """

    def __init__(
        self,
        run: Prepared,
        *,
        learn_weights: bool = False,
        tol: float | None = None,
        max_iters: int = 1000,
        workers: int = 1,
    ) -> None:
        super().__init__()
        check_type(run, Prepared, "BPLayer: run must be solver.prepare(graph)", ModelError)
        self.run, self.tol, self.max_iters, self.workers = run, tol, max_iters, workers
        self.weights: nn.Parameter | None = None
        if learn_weights:
            own = np.array(run.graph.weights)
            if not np.isfinite(own).all():
                raise ModelError(
                    "BPLayer: a weight of the model is infinite, which cannot be learned: pass "
                    "weights to the call instead"
                )
            self.weights = nn.Parameter(torch.from_numpy(own))

    def forward(
        self, unary: Tensor | None = None, weights: Tensor | None = None, evidence: Any = None
    ) -> Tensor:
        """Of the shape of ``unary``; ``weights`` instead of the layer's own."""
        theta = self.weights if weights is None else weights
        found = marginals(
            self.run, unary, theta, evidence=evidence, tol=self.tol, max_iters=self.max_iters,
            workers=self.workers,
        )  # fmt: skip
        return found if unary is None else found.to(unary.dtype)

    def extra_repr(self) -> str:
        return f"{self.run.graph!r}, {self.run.solver!r}"


class CRFLoss(nn.Module):
    """Minus the log-likelihood of labels: log Z less log Z with the labels known.

    Labels of -1 are hidden: what is maximised then is the marginal likelihood of the others. With
    ``Exact`` that is the likelihood itself, with belief propagation the Bethe likelihood, tree-
    reweighted its convex upper bound; where all labels are known the second term is exact with any
    of them.

    Parameters
    ----------
    run : Prepared
    reduction : "mean", "sum" or "none"
        Over the rows of a batch.
    workers : int

    Examples
    --------
    >>> import torch
    >>> from minfer import Exact, FactorGraph
    >>> from minfer.torch import CRFLoss
    >>> chain = FactorGraph.pairwise([0.0] * 3, [[0, 1], [1, 2]], [1.0, 1.0], "equal")
    >>> loss = CRFLoss(Exact().prepare(chain))
    >>> round(float(loss(torch.zeros(6, dtype=torch.float64), labels=torch.tensor([0, 0, 0]))), 4)
    1.3197
    """

    def __init__(self, run: Prepared, *, reduction: str = "mean", workers: int = 1) -> None:
        super().__init__()
        check_type(run, Prepared, "CRFLoss: run must be solver.prepare(graph)", ModelError)
        check_choice("reduction", reduction, ("mean", "sum", "none"))
        self.run, self.reduction, self.workers = run, reduction, workers

    def forward(
        self,
        unary: Tensor | None = None,
        weights: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        """The loss of ``labels`` (V,) or (N, V), of any shape with so many numbers."""
        known = self._checked(labels)
        free = log_partition(self.run, unary, weights, workers=self.workers)
        n = free.numel()
        if len(known) not in (1, n):
            raise ModelError(f"CRFLoss: {len(known)} rows of labels, {n} of numbers")
        known = known[0] if free.dim() == 0 else np.broadcast_to(known, (n, known.shape[1]))
        loss = free - log_partition(self.run, unary, weights, evidence=known, workers=self.workers)
        if free.dim() == 0:
            return loss
        return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[self.reduction]()

    def _checked(self, labels: Any) -> np.ndarray:
        graph = self.run.graph
        check_type(
            labels, Tensor, "CRFLoss: labels must be a tensor of whole numbers", EvidenceError
        )
        if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
            raise EvidenceError(f"CRFLoss: labels must be whole numbers, not {labels.dtype}")
        n = graph.n_variables
        if n == 0 or labels.numel() % n:
            raise EvidenceError(
                f"CRFLoss: {labels.numel()} labels for {n} variables; give one for each, or N "
                "rows of them"
            )
        found = labels.detach().cpu().numpy().astype(np.int64).reshape(-1, n)
        wrong = (found < -1) | (found >= graph._n_states)
        if wrong.any():
            row, v = (int(i) for i in np.argwhere(wrong)[0])
            raise EvidenceError(
                f"CRFLoss: row {row}: label {found[row, v]} of {graph.name(v)}, which has "
                f"{graph._n_states[v]} states; -1 is for a hidden label"
            )
        return found

    def extra_repr(self) -> str:
        return f"{self.run.graph!r}, {self.run.solver!r}"
