"""Arc probabilities of second-order models, for scores from anywhere.

Belief propagation on the graph of :mod:`minfer.parsing.graphs`, reduced as in the paper: the seed
is the model without pairs, answered exactly by one tree pass. A pair of arcs is looked at only if
mu_a mu_b >= ``least`` under the seed, and kept if its gain reaches ``factor_cost`` (MinJoint).
With ``least`` from :func:`minfer.reduction.sources.least_mean` and true bounds of theta, what is
kept is what a scan of all pairs would keep. Arcs below ``arc_least`` are left out of the trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.errors import SettingsError
from minfer.parsing.graphs import Scores, list_pairs, pair_weights
from minfer.parsing.trees import no_tree
from minfer.reduction.sources import least_mean

_MARGIN = 1e-9  # thresholds are lowered by this much, relatively, against rounding


@dataclass(frozen=True)
class Inference:
    """How second-order marginals are computed.

    Parameters
    ----------
    least : float
        Pairs with mu_a mu_b below it under the seed are never looked at; 0 looks at all.
    arc_least : float
        Arcs with a smaller probability under the seed are left out; 0 keeps all.
    factor_cost : float
        Pairs with a smaller gain are dropped after scoring (MinJoint's gamma); 0 keeps all.
    max_iters : int
        Iterations of belief propagation at most.
    tol : float
        Stop when no arc probability changed by more.
    damping : float in [0, 1)
        Share of the old message kept.
    """

    least: float = 1e-3
    arc_least: float = 1e-3
    factor_cost: float = 0.0
    max_iters: int = 10
    tol: float = 1e-3
    damping: float = 0.0

    def __post_init__(self) -> None:
        for name in ("least", "arc_least", "factor_cost", "tol"):
            value = getattr(self, name)
            if not 0 <= value < np.inf:
                raise SettingsError(f"{name} must be at least 0 and finite, not {value}")
        if not 0 <= self.damping < 1:
            raise SettingsError(f"damping must be in [0, 1), not {self.damping}")
        if self.max_iters < 1:
            raise SettingsError(f"max_iters must be at least 1, not {self.max_iters}")

    @classmethod
    def full(cls, max_iters: int = 10, tol: float = 1e-3, damping: float = 0.0) -> Inference:
        """Belief propagation with every pair and every arc."""
        return cls(0.0, 0.0, 0.0, max_iters, tol, damping)

    @classmethod
    def min_joint(
        cls, factor_cost: float, theta_low: float, theta_high: float, arc_least: float = 0.0,
        **settings: Any,
    ) -> Inference:  # fmt: skip
        """Keep the pairs whose gain reaches ``factor_cost``, and look at no other if it can be
        avoided: all weights lie between ``theta_low`` and ``theta_high``."""
        least = min(least_mean(factor_cost, theta_low, theta_high) * (1 - _MARGIN), 2.0)
        return cls(least, arc_least, factor_cost, **settings)

    def packed(
        self, projective: bool, single_root: bool, gp: bool, sib: bool, limit: float = 30.0
    ) -> tuple[bool, bool, bool, bool, float, float, float, int, float, float, float]:
        """As the kernels take it; ``limit`` bounds |theta|."""
        return (
            bool(projective), bool(single_root), bool(gp), bool(sib), float(self.least),
            float(self.arc_least), float(self.factor_cost), int(self.max_iters), float(self.tol),
            float(self.damping), float(limit),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class ArcMarginals:
    """Arc probabilities of one sentence and the tree decoded from them.

    Attributes
    ----------
    probs : (N, N) [head, modifier]; those into a word sum to one
    log_z : float
        Exact without pairs, else the Bethe estimate.
    heads : (n,) int32
        Of word i + 1: the tree with the most expected correct arcs (minimum Bayes risk).
    scored, kept : int
        Pairs looked at, and pairs in the graph.
    iterations : int
    converged : bool
    """

    probs: NDArray[np.float64]
    log_z: float
    heads: NDArray[np.int32]
    scored: int
    kept: int
    iterations: int
    converged: bool

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return (
            f"ArcMarginals({len(self.heads)} words, log Z {self.log_z:.4g}; {self.kept:,} of "
            f"{self.scored:,} scored pairs kept; {self.iterations} iterations, {state})"
        )


def marginals(
    arc_scores: ArrayLike,
    sib: ArrayLike | None = None,
    gp: ArrayLike | None = None,
    projective: bool = True,
    *,
    single_root: bool = True,
    factor_cost: float | None = None,
    inference: Inference | None = None,
) -> ArcMarginals:
    """Arc probabilities, log Z and the decoded tree for your own scores of one sentence.

    Parameters
    ----------
    arc_scores : (N, N) [head, modifier], node 0 the root, N = n + 1; minus infinity for no arc
    sib : (N, N, N) [head, modifier, modifier further right], added when both arcs are on
    gp : (N, N, N) [grandparent, head, modifier], likewise
    projective : whether arcs may not cross
    single_root : whether the root has exactly one child
    factor_cost : keep only pairs whose gain reaches it, the paper's MinJoint
    inference : all settings instead; by default every pair and every arc is used

    Examples
    --------
    >>> import numpy as np
    >>> from minfer.parsing import marginals
    >>> answer = marginals(np.zeros((3, 3)))
    >>> answer.probs[0].tolist(), round(float(np.exp(answer.log_z)))
    ([0.0, 0.5, 0.5], 2)
    """
    from minfer.kernels.parser import infer_arrays

    scores = Scores.checked(arc_scores, gp, sib)
    uses = gp is not None, sib is not None
    if inference is None:
        inference = Inference.full()
        if factor_cost is not None:
            pairs = list_pairs(scores.arcs, *uses, projective, single_root)
            theta = pair_weights(scores, pairs)
            low, high = float(theta.min(initial=0.0)), float(theta.max(initial=0.0))
            inference = Inference.min_joint(factor_cost, low, high)
    elif factor_cost is not None:
        raise SettingsError("give factor_cost or inference, not both")
    mu = np.empty_like(scores.arcs)
    heads = np.empty(len(mu), dtype=np.int64)
    log_z, scored, kept, iterations, change = infer_arrays(
        inference.packed(projective, single_root, *uses), *scores, mu, heads
    )
    if log_z == -np.inf:
        raise no_tree(projective, single_root)
    return ArcMarginals(
        mu, float(log_z), heads[1:].astype(np.int32), int(scored), int(kept), int(iterations),
        bool(kept == 0 or change <= inference.tol),
    )  # fmt: skip
