"""Arc probabilities of second-order models, for scores from anywhere.

Belief propagation on the graph of :mod:`minfer.parsing.graphs`, reduced as in the paper: a seed
without pairs is answered (``kernels/seeds.py``), pairs are scored by their gain under it, an
objective says which to keep, and belief propagation runs on the tree with these
(``kernels/parser.py``, which says what *converged* means). Without pairs one pass is exact.

A pair of arcs is looked at only if mu_a mu_b >= ``least`` under the seed. With ``least`` from
:func:`minfer.reduction.lazy.least_mean` and true bounds of theta, what MinJoint keeps is what
it would keep after a scan of all pairs. Arcs below ``arc_least`` are left out of the trees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import (
    by_name,
    check_choice,
    check_flag,
    check_number,
    check_settings,
    check_type,
    told,
)
from minfer.basics.words import counted
from minfer.errors import SettingsError
from minfer.parsing.graphs import ArcScores, list_pairs, pair_weights
from minfer.parsing.trees import no_tree
from minfer.reduction.lazy import least_mean
from minfer.reduction.objectives import MinDivergence, MinJoint, MinSize

if TYPE_CHECKING:
    from minfer.parsing.kernels.parser import PackedInference

_MARGIN = 1e-9  # thresholds are lowered by this much, relatively, against rounding

Reducer = MinJoint | MinSize | MinDivergence
Seed = Literal["tree", "unary"]


@by_name
@dataclass(frozen=True, kw_only=True)
class Inference:
    """How second-order marginals are computed.

    Parameters
    ----------
    least : float
        Pairs with mu_a mu_b below it under the seed are never looked at; 0 looks at all.
    arc_least : float
        Arcs with a smaller probability under the seed are left out; 0 keeps all.
    objective : MinJoint, MinSize, MinDivergence or None
        Which of the pairs looked at are kept, by their gains; None keeps all.
    max_iters : int
        Iterations of belief propagation at most.
    tol : float
        Stop when an undamped iteration moved no message, as a probability, and no arc's
        probability by more. It bounds this residual, not the error.
    damping : float in [0, 1)
        Share of the old message kept, in all but the iterations that look whether it may stop.
    seed : "tree" or "unary"
        The graph under whose marginals pairs are judged.
    paper_order : bool
        Whether MinSize and MinDivergence sort all gains, as the paper does: the same choice,
        slower. For timing.
    """

    least: float = 3e-3
    arc_least: float = 3e-3
    objective: Reducer | None = None
    max_iters: int = 10
    tol: float = 1e-3
    damping: float = 0.0
    seed: Seed = "tree"
    paper_order: bool = False

    def __post_init__(self) -> None:
        for name in ("least", "arc_least", "tol"):
            check_number(name, getattr(self, name), 0.0, what="at least 0 and finite")
        check_settings(self.max_iters, self.tol, self.damping)
        check_choice("seed", self.seed, ("tree", "unary"))
        check_flag("paper_order", self.paper_order)
        if self.objective is not None and not isinstance(self.objective, Reducer):
            raise SettingsError(
                "objective must be MinJoint, MinSize, MinDivergence or None, not "
                f"{told(self.objective)}"
            )

    @classmethod
    def full(cls, max_iters: int = 10, tol: float = 1e-3, damping: float = 0.0) -> Inference:
        """Belief propagation with every pair and every arc."""
        return cls(least=0.0, arc_least=0.0, max_iters=max_iters, tol=tol, damping=damping)

    @classmethod
    def scan(cls, objective: Reducer, arc_least: float = 0.0, **settings: Any) -> Inference:
        """Look at every pair and keep what the objective chooses."""
        return cls(least=0.0, arc_least=arc_least, objective=objective, **settings)

    @classmethod
    def min_joint(
        cls, factor_cost: float, theta_low: float, theta_high: float, arc_least: float = 0.0,
        **settings: Any,
    ) -> Inference:  # fmt: skip
        """Keep the pairs whose gain reaches ``factor_cost``, and look at no other if it can be
        avoided: all weights lie between ``theta_low`` and ``theta_high``."""
        least = min(least_mean(factor_cost, theta_low, theta_high) * (1 - _MARGIN), 2.0)
        return cls(least=least, arc_least=arc_least, objective=MinJoint(factor_cost), **settings)

    def packed(
        self, projective: bool, single_root: bool, gp: bool, sib: bool, limit: float = 30.0,
        max_iters: int | None = None,
    ) -> PackedInference:  # fmt: skip
        """As the kernels take it; ``limit`` bounds |theta|, ``max_iters`` here may be 0."""
        from minfer.parsing.kernels.parser import PackedInference

        objective, parameter = _numbers(self.objective)
        return PackedInference(
            bool(projective), bool(single_root), bool(gp), bool(sib),
            self.seed == "unary" and bool(gp or sib), float(self.least), float(self.arc_least),
            objective, parameter, bool(self.paper_order),
            int(self.max_iters if max_iters is None else max_iters), float(self.tol),
            float(self.damping), float(limit),
        )  # fmt: skip


def _numbers(objective: Reducer | None) -> tuple[int, float]:
    """An objective as :func:`minfer.kernels.scores.select.choose` takes it."""
    from minfer.kernels.scores import select as k

    match objective:
        case MinJoint(factor_cost):
            return k.JOINT, float(factor_cost)
        case MinSize(max_divergence):
            return k.SIZE, float(max_divergence)
        case MinDivergence(max_factors):
            return k.DIVERGENCE, float(max_factors)
        case _:
            return k.ALL, 0.0


class Messages(NamedTuple):
    """All messages of belief propagation to arcs, as log-odds of an arc being on.

    An iteration computes those of all pairs from the beliefs before it, and then the tree's. The
    arc scores are the tree's, so the log-odds of an arc are the sum of its messages.

    Attributes
    ----------
    heads, modifiers : (A,) int32, the arcs
    pairs : (P, 2) int32, numbers of the two arcs of each pair
    theta : (P,) weights of the pairs
    from_pairs : (P, 2) to both arcs of each pair
    from_tree : (A,)
    """

    heads: NDArray[np.int32]
    modifiers: NDArray[np.int32]
    pairs: NDArray[np.int32]
    theta: NDArray[np.float64]
    from_pairs: NDArray[np.float64]
    from_tree: NDArray[np.float64]


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
        Whether the residual is within the tolerance.
    residual : float
        The largest movement of a message or a belief in the last iteration, messages as
        probabilities; 0 without pairs, where the answer is exact. Of a run that has not converged
        pairs' messages may be left out, and a damped iteration is scaled to an undamped one.
    still_to_move : float or None
        What further iterations would still move, by the ratio of what the last two moved; None if
        that says nothing: it is not below 1, or there was only one undamped iteration.
    messages : Messages or None
        Those before the last iteration, if asked for.
    """

    probs: NDArray[np.float64]
    log_z: float
    heads: NDArray[np.int32]
    scored: int
    kept: int
    iterations: int
    converged: bool
    residual: float = 0.0
    still_to_move: float | None = 0.0
    messages: Messages | None = None

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return (
            f"ArcMarginals({counted(len(self.heads), 'word')}, log Z {self.log_z:.4g}; "
            f"{self.kept:,} of {counted(self.scored, 'scored pair')} kept; "
            f"{counted(self.iterations, 'iteration')}, {state})"
        )


def marginals(
    arc_scores: ArrayLike,
    *,
    sib: ArrayLike | None = None,
    gp: ArrayLike | None = None,
    projective: bool = True,
    single_root: bool = True,
    objective: Reducer | None = None,
    inference: Inference | None = None,
    keep_messages: bool = False,
) -> ArcMarginals:
    """Arc probabilities, log Z and the decoded tree for your own scores of one sentence.

    Parameters
    ----------
    arc_scores : (N, N) [head, modifier], node 0 the root, N = n + 1; minus infinity for no arc
    sib : (N, N, N) [head, modifier, modifier further right], added when both arcs are on
    gp : (N, N, N) [grandparent, head, modifier], likewise
    projective : whether arcs may not cross
    single_root : whether the root has exactly one child
    objective : MinJoint, MinSize or MinDivergence: keep only the pairs it chooses by their gains
    inference : all settings instead; by default every pair and every arc is used
    keep_messages : whether to return the messages before the last iteration, so that it can be
        repeated; everything is then computed twice

    Examples
    --------
    >>> import numpy as np
    >>> from minfer.parsing import marginals
    >>> answer = marginals(np.zeros((3, 3)))
    >>> answer.probs[0].tolist(), round(float(np.exp(answer.log_z)))
    ([0.0, 0.5, 0.5], 2)
    """
    from minfer.parsing.kernels.decode import decode
    from minfer.parsing.kernels.parser import infer_arrays

    check_flag("projective", projective)
    check_flag("single_root", single_root)
    scores = ArcScores.checked(arc_scores, gp, sib)
    uses = gp is not None, sib is not None
    if inference is not None and objective is not None:
        raise SettingsError("give objective or inference, not both")
    check_type(inference, (Inference, NoneType), "inference must be an Inference or None")
    if inference is None:
        inference = _inference(objective, scores, *uses, projective, single_root)
    mu = np.empty_like(scores.arcs)
    packed = inference.packed(projective, single_root, *uses)
    log_z, scored, iterations, residual, ratio, kept, _, _ = infer_arrays(packed, *scores, mu)
    if log_z == -np.inf:
        raise no_tree(projective, single_root)
    heads = np.empty(len(mu), dtype=np.int64)
    decode(bool(projective), bool(single_root), mu, heads)
    messages = None
    if keep_messages and iterations:
        packed = inference.packed(projective, single_root, *uses, max_iters=iterations - 1)
        state = infer_arrays(packed, *scores, np.empty_like(mu))[-1]
        arc_heads, modifiers, pairs, theta, logs, odds, sent = state
        log: Any = np.asarray if logs else np.log
        from_pairs, from_tree = log(sent[:, :2]), log(odds).copy()
        np.subtract.at(from_tree, pairs, from_pairs)
        messages = Messages(arc_heads, modifiers, pairs, theta, from_pairs, from_tree)
    return ArcMarginals(
        mu, float(log_z), heads[1:].astype(np.int32), int(scored), len(kept), int(iterations),
        bool(residual <= inference.tol), float(residual), still_to_move(residual, ratio), messages,
    )  # fmt: skip


def still_to_move(residual: float, ratio: float) -> float | None:
    """What iterations would move in all whose movements go on to shrink by a ratio.

    >>> still_to_move(0.01, 0.5), still_to_move(0.01, 1.5)
    (0.01, None)
    """
    if residual == 0.0:
        return 0.0
    further = float(residual * ratio / (1.0 - ratio)) if ratio < 1.0 else math.inf
    return further if further <= 1.0 else None


def _inference(
    objective: Reducer | None, scores: ArcScores, gp: bool, sib: bool, projective: bool,
    single_root: bool,
) -> Inference:  # fmt: skip
    """Settings for an objective; MinJoint looks only at what can reach its cost."""
    if objective is None:
        return Inference.full()
    if not isinstance(objective, MinJoint):
        return Inference.scan(objective)
    theta = pair_weights(scores, list_pairs(scores.arcs, gp, sib, projective, single_root))
    low, high = float(theta.min(initial=0.0)), float(theta.max(initial=0.0))
    return Inference.min_joint(objective.factor_cost, low, high)
