"""Modules: belief propagation as a layer, a conditional random field's likelihood as a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from minfer.basics.checks import check_choice, check_type
from minfer.errors import EvidenceError, ModelError
from minfer.solvers.prepared import Prepared
from minfer.torch.functions import log_partition, marginals


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
