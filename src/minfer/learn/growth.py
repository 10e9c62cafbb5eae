r"""Structure growth: which factors to add to a model, by section 4 of Riedel, Smith & McCallum.

The gain of a candidate feature phi is the divergence of its empirical mean from the model's,

    g = KL( mean over the data || mean under the model ),

the largest rise of the mean log-likelihood that its weight alone can bring if all else stays
(Della Pietra, Della Pietra & Lafferty 1997). A round scores all candidates under the model as it
is, adds the most promising of those that an objective chooses, and learns all weights anew. When
nothing more is chosen, factors whose gain with all others in is not worth it go: early ones often
stood for a chain of others that came later.

The model's mean of [y_u = y_v] is taken over its conditionals at the data: y_u given all other
variables of a sample, then whether it equals y_v; no inference is needed, whatever the model has
grown to. Under the true model that is the true mean, and under the empty one the product of two.

Gains come from finite data: of a pair that is independent, 2 N g is about a chi-square variable of
one degree of freedom. So a factor cost of c is a test at level P(chi2 > 2 N c).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import brief, check_whole, edge_array, integers, told
from minfer.errors import ModelError, SettingsError
from minfer.graph import FactorGraph
from minfer.learn.fitting import Fitted, fit
from minfer.learn.model import Instance

if TYPE_CHECKING:
    from minfer.learn.objectives import Objective
    from minfer.reduction.objectives import SelectionObjective as Choice

Floats = NDArray[np.float64]

#: Candidates that are scored together, drawn from a source.
AT_ONCE = 1 << 16


class Round(NamedTuple):
    """A line of the trace of growth."""

    number: int  # from 1 on
    scored: int  # candidates that were looked at
    best: float  # the largest gain among those that were not in the model
    added: NDArray[np.int32]  # (n, 2) by falling gain
    gains: Floats  # (n,) theirs
    dropped: NDArray[np.int32]  # (m, 2) taken out again: with the others in, not worth their cost
    loss: float  # mean loss of a variable after learning again


@dataclass(frozen=True, eq=False)
class Grown:
    """What was grown.

    Attributes
    ----------
    edges : (E, 2) pairs in the order in which they were added
    rounds : list of Round, what was added when
    fitted : Fitted, the weights: V fields, then E couplings of [y_u = y_v]
    graph : FactorGraph
    status : "done" (nothing more is worth its cost) or "max rounds"
    """

    edges: NDArray[np.int32]
    rounds: list[Round]
    fitted: Fitted
    graph: FactorGraph
    status: str

    @property
    def couplings(self) -> Floats:
        """Weights of the pairs, shape (E,)."""
        return self.fitted.weights[len(self.fitted.weights) - len(self.edges) :]


def grow(
    data: ArrayLike,
    candidates: ArrayLike | Iterable[ArrayLike] | Callable[[], Iterable[ArrayLike]] | None,
    choose: Choice,
    *,
    objective: str | Objective = "pseudolikelihood",
    a_round: int | None = None,
    max_rounds: int = 50,
    l2: float = 1e-5,
    progress: bool = False,
    **more: Any,
) -> Grown:
    """Grow a model over binary variables from samples, pair by pair.

    Parameters
    ----------
    data : int array (N, V) of zeros and ones
    candidates : (E, 2) pairs, a list of portions of them, a function that yields portions, or None
        None: all pairs. A source is read once a round, and only one portion is held at a time.
    choose : MinJoint(cost), MinDivergence(k), MinSize(d), Budget(...)
        Which gains are worth it; asked in each round about those candidates that are not in the
        model. :class:`~minfer.MinDivergence` counts factors over all rounds.
    objective, l2, more
        As in :func:`minfer.learn.fit`, for learning the weights anew.
    a_round : int, optional
        Maximum number of factors to add in a round: half as many as there are variables by
        default, since gains of pairs that share variables explain one another.
    max_rounds : int

    Examples
    --------
    >>> from minfer import FactorGraph, MinJoint, sample
    >>> from minfer.learn import grow
    >>> true = FactorGraph.pairwise([0.0] * 5, [[0, 1], [1, 2], [3, 4]], 1.5, "equal")
    >>> grown = grow(sample(true, 2000, seed=0), None, MinJoint(0.01))
    >>> sorted(map(tuple, grown.edges.tolist()))
    [(0, 1), (1, 2), (3, 4)]
    """
    x = integers(data, "grow: data", bools=True).astype(np.int32)
    if x.ndim != 2 or not x.size:
        raise ModelError(f"grow: data must be samples (N, V), not {x.shape}")
    if x.min() < 0 or x.max() > 1:
        raise ModelError("grow: states must be 0 and 1; growth is for binary variables")
    n_variables = x.shape[1]
    a_round = max(1, n_variables // 2) if a_round is None else a_round
    check_whole("a_round", a_round, 1)
    check_whole("max_rounds", max_rounds, 1)
    if not callable(choose) or isinstance(choose, type):
        raise SettingsError(
            f"grow: {brief(choose)} is not an objective: grow(data, None, MinJoint(0.01))"
        )
    candidates = _checked(candidates)
    y = x.astype(np.float64)
    edges = nothing = np.zeros((0, 2), dtype=np.int32)
    rounds: list[Round] = []
    status = "max rounds"

    def learned(start: Floats) -> tuple[Fitted, FactorGraph]:
        from scipy import sparse

        graph = FactorGraph.pairwise(np.zeros(n_variables), edges, 0.0, feature="equal")
        instance = Instance(graph, sparse.eye_array(len(graph.weights), format="csr"), x)
        fitted = fit([instance], objective, l2=l2, start=start, **more)
        return fitted, instance.graph_at(fitted.weights)

    fitted, graph = learned(np.zeros(n_variables))
    for number in range(1, max_rounds + 1):
        found, gains, scored = _scored(y, edges, fitted, _portions(candidates, n_variables))
        worth = _left(gains, len(edges), choose)
        order = np.flatnonzero(choose(worth) & (worth > 0.0))
        order = order[np.argsort(-gains[order], kind="stable")][:a_round]
        best = float(gains.max(initial=0.0))
        if not len(order):
            status = "done"
            break
        new = found[order]
        edges = np.concatenate([edges, new])
        fitted, graph = learned(np.concatenate([fitted.weights, np.zeros(len(new))]))
        rounds.append(Round(number, scored, best, new, gains[order], nothing, fitted.loss))
        if progress:
            print(
                f"round {number}: {len(new)} of {scored} added, gains {gains[order[0]]:.4f} to "
                f"{gains[order[-1]]:.4f}; loss {fitted.loss:.5f}",
                file=sys.stderr,
            )
    while len(edges):
        own = _gains(*_odds(y, edges, fitted), edges, fitted.weights[n_variables:])
        keep = choose(_left(own, 0, choose))
        if keep.all():
            break
        begin = fitted.weights[np.append(np.ones(n_variables, bool), keep)]
        dropped, edges = edges[~keep], edges[keep]
        fitted, graph = learned(begin)
        rounds.append(Round(len(rounds) + 1, len(own), 0.0, nothing, own[:0], dropped, fitted.loss))
    return Grown(edges, rounds, fitted, graph, status)


def _left(gains: Floats, n: int, choose: Choice) -> Floats:
    """Gains as an objective is to see them: a limit on the number of factors counts all rounds."""
    limit = getattr(choose, "max_factors", None)
    if limit is None:
        return gains
    rank = np.argsort(np.argsort(-gains, kind="stable"))
    return np.where(rank < int(limit) - n, gains, 0.0)


def _portions(candidates: Any, n: int) -> Iterable[NDArray[np.int32]]:
    """Candidates, a portion at a time."""
    if candidates is None:
        others = np.arange(n, dtype=np.int32)
        yield from (np.stack([np.full_like(others[u + 1 :], u), others[u + 1 :]], axis=1)
                    for u in range(n - 1))  # fmt: skip
        return
    for portion in candidates() if callable(candidates) else candidates:
        pairs = edge_array(portion)
        if len(pairs) and (pairs.min() < 0 or pairs.max() >= n):
            raise ModelError(f"grow: a candidate names a variable outside 0..{n - 1}")
        yield pairs


def _checked(candidates: Any) -> Any:
    """A source that can be read in every round: None, a function, or a list of portions."""
    if candidates is None or callable(candidates):
        return candidates
    if isinstance(candidates, np.ndarray):
        return [candidates]
    if not isinstance(candidates, Sequence):
        raise ModelError(
            "grow: candidates are read once per round: give pairs, a list of portions, or a "
            f"function that yields the portions again, not {told(candidates)}"
        )
    one = not len(candidates) or (len(candidates[0]) == 2 and np.ndim(candidates[0][0]) == 0)
    return [candidates] if one else candidates


def _scored(
    y: Floats, edges: NDArray[np.int32], fitted: Fitted, portions: Iterable[NDArray[np.int32]]
) -> tuple[NDArray[np.int32], Floats, int]:
    """Pairs not in the model, their gains, and how many were looked at."""
    odds, signs = _odds(y, edges, fitted)
    taken = {tuple(sorted(e)) for e in edges.tolist()}
    found, gains, scored = [edges[:0]], [np.zeros(0)], 0
    for portion in portions:
        scored += len(portion)
        new = []
        for e in portion.tolist():
            new.append(tuple(sorted(e)) not in taken)
            taken.add(tuple(sorted(e)))
        pair = portion[np.array(new, dtype=bool)]
        for k in range(0, len(pair), AT_ONCE):
            gains.append(_gains(odds, signs, pair[k : k + AT_ONCE], 0.0))
        found.append(pair)
    return np.concatenate(found), np.concatenate(gains), scored


def _odds(y: Floats, edges: NDArray[np.int32], fitted: Fitted) -> tuple[Floats, Floats]:
    """log-odds of each variable given all others of its sample, (N, V); states as -1 and 1."""
    n = y.shape[1]
    coupling = np.zeros((n, n))
    w = fitted.weights[n:]
    np.add.at(coupling, (edges[:, 0], edges[:, 1]), w)
    np.add.at(coupling, (edges[:, 1], edges[:, 0]), w)
    signs = 2.0 * y - 1.0
    return fitted.weights[:n] + signs @ coupling, signs


def _gains(odds: Floats, signs: Floats, pairs: NDArray[np.int32], own: ArrayLike) -> Floats:
    """KL of the empirical mean of [y_u = y_v] against the model's without the pair's own weight, by
    y_u given the others or by y_v: the larger counts."""
    u, v = pairs.T
    empirical = (signs[:, u] == signs[:, v]).mean(axis=0)
    out = np.zeros(len(pairs))
    for a, b in ((u, v), (v, u)):
        alike = signs[:, b] * odds[:, a] - np.asarray(own)  # log-odds of y_a = y_b
        out = np.maximum(out, _divergence(empirical, (1.0 / (1.0 + np.exp(-alike))).mean(axis=0)))
    return out


def _divergence(q: Floats, p: Floats) -> Floats:
    """KL of two Bernoulli means, finite."""
    p = np.clip(p, 1e-12, 1.0 - 1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        on = np.where(q > 0.0, q * np.log(q / p), 0.0)
        off = np.where(q < 1.0, (1.0 - q) * np.log((1.0 - q) / (1.0 - p)), 0.0)
    return np.maximum(on + off, 0.0)
