"""Inference as a layer of a network: marginals and log Z as differentiable functions of PyTorch.

    run = BeliefPropagation().prepare(graph)
    p = marginals(run, unary, weights)           # tensors in, a tensor out
    loss_of(p).backward()

Forward is a prepared run, backward its adjoint (:mod:`minfer.solvers.gradients`): no sweep is
recorded, so memory does not grow with their number. Numbers are computed in float64 whatever comes
in, and handed back in the dtype and on the device of the input. The module is imported only when
used; ``pip install minfer[torch]`` installs PyTorch.
"""

from __future__ import annotations

from minfer.basics.checks import load

load("torch")

from minfer.torch.functions import (  # noqa: E402
    BPLayer,
    CRFLoss,
    GradientWarning,
    log_partition,
    marginals,
)
from minfer.torch.trees import tree_log_partition, tree_marginals  # noqa: E402

__all__ = [
    "BPLayer",
    "CRFLoss",
    "GradientWarning",
    "log_partition",
    "marginals",
    "tree_log_partition",
    "tree_marginals",
]
