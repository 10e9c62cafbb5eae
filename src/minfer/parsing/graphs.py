"""A sentence as a factor graph (Smith & Eisner 2008): the definition of the parser's model.

    p(y) ∝ tree(y) exp(sum_a s_a y_a + sum_{(g,h),(h,m)} gp[g,h,m] y_gh y_hm
                                     + sum_{(h,m),(h,s), m < s} sib[h,m,s] y_hm y_hs)

One binary variable per candidate arc, by modifier and then head; factors in this order: one unary
per arc, the tree, grandparents by (h, g, m), siblings by (h, m, s). Pairs that no tree contains are
not there: g -> h -> g; with projective trees g between h and m; siblings under a single root. Any
solver answers such a graph; the parser's kernels are held equal to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_flag, real_numbers
from minfer.errors import ModelError
from minfer.parsing.trees import NonProjectiveTree, ProjectiveTree, checked_scores

if TYPE_CHECKING:
    from minfer.graph import FactorGraph


def to_graph(
    arc_scores: ArrayLike,
    *,
    sib: ArrayLike | None = None,
    gp: ArrayLike | None = None,
    projective: bool = True,
    single_root: bool = True,
) -> FactorGraph:
    """The factor graph of given scores; variables are named ``head->modifier``.

    Parameters
    ----------
    arc_scores : (N, N) [head, modifier], minus infinity where there is no arc
    sib : (N, N, N) [head, modifier, modifier further right]
    gp : (N, N, N) [grandparent, head, modifier]
    """
    from minfer.graph import FactorGraph

    scores = ArcScores.checked(arc_scores, gp, sib)
    pairs = list_pairs(scores.arcs, gp is not None, sib is not None, projective, single_root)
    names = [f"{h}->{m}" for h, m in zip(pairs.heads.tolist(), pairs.modifiers.tolist())]
    n_arcs = len(names)
    graph = FactorGraph.empty(np.full(n_arcs, 2), names)
    unary = scores.arcs[pairs.heads, pairs.modifiers]
    graph = graph.add_features(np.arange(n_arcs)[:, None], unary, [False, True])
    kind = ProjectiveTree if projective else NonProjectiveTree
    tree = kind(pairs.heads, pairs.modifiers, len(scores.arcs) - 1, single_root)
    graph = graph.add_global(np.arange(n_arcs), tree)
    if not len(pairs.arcs):
        return graph
    return graph.add_features(pairs.arcs, pair_weights(scores, pairs), "and")


class ArcScores(NamedTuple):
    """Scores of one sentence, checked, as the kernels take them; N = n + 1."""

    arcs: NDArray[np.float64]  # (N, N) [head, modifier], minus infinity where there is no arc
    gp: NDArray[np.float64]  # (N, N, N) [grandparent, head, modifier], or of no entries
    sib: NDArray[np.float64]  # (N, N, N) [head, left modifier, right modifier], or of no entries

    @classmethod
    def checked(
        cls, arcs: ArrayLike, gp: ArrayLike | None = None, sib: ArrayLike | None = None
    ) -> ArcScores:
        clean = checked_scores(arcs)
        return cls(clean, _pair_scores("gp", gp, len(clean)), _pair_scores("sib", sib, len(clean)))


def _pair_scores(name: str, values: ArrayLike | None, n: int) -> NDArray[np.float64]:
    if values is None:
        return np.zeros((0, 0, 0))
    array = np.require(real_numbers(values, f"{name} scores"), np.float64, ["C", "W"])
    if array.shape != (n, n, n):
        raise ModelError(f"{name} scores must have shape {(n, n, n)}, not {array.shape}")
    if not np.isfinite(array).all():
        i, j, k = (int(x) for x in np.argwhere(~np.isfinite(array))[0])
        raise ModelError(f"{name}[{i}, {j}, {k}] is {array[i, j, k]}; pair scores must be finite")
    return array


class ParserPairs(NamedTuple):
    """Pairs of arcs, grandparents first."""

    heads: NDArray[np.int32]  # (A,) of the candidate arcs
    modifiers: NDArray[np.int32]
    arcs: NDArray[np.int32]  # (P, 2) each pair's two arcs
    nodes: NDArray[np.int32]  # (P, 3) g, h, m or h, m, s
    n_gp: int  # how many of them are grandparents


def list_pairs(
    arc_scores: NDArray[np.float64], gp: bool, sib: bool, projective: bool, single_root: bool
) -> ParserPairs:
    """All candidate arcs and all pairs that a tree may contain, in the order of the graph."""
    check_flag("projective", projective)
    check_flag("single_root", single_root)
    from minfer.parsing.kernels.parser import PackedInference, candidates

    settings = PackedInference(bool(projective), bool(single_root), bool(gp), bool(sib))
    (heads, modifiers, _), (arcs, nodes, n_gp) = candidates(
        settings, arc_scores, np.ones_like(arc_scores)
    )
    return ParserPairs(heads, modifiers, arcs, nodes, int(n_gp))


def count_pairs(
    n: ArrayLike, gp: bool, sib: bool, projective: bool, single_root: bool
) -> NDArray[np.int64]:
    """How many pairs :func:`list_pairs` lists for sentences of n words with all arcs.

    >>> count_pairs([2, 10], gp=True, sib=True, projective=True, single_root=True).tolist()
    [2, 930]
    """
    n = np.asarray(n, dtype=np.int64)
    pairs = np.zeros_like(n)
    if gp:
        pairs += n * (n - 1) ** 2
        if projective:
            pairs -= n * (n - 1) * (n - 2) // 3  # g between h and m
    if sib:
        pairs += n * (n - 1) * (n - 2) // 2
        if not single_root:
            pairs += n * (n - 1) // 2
    return pairs


def pair_weights(scores: ArcScores, pairs: ParserPairs) -> NDArray[np.float64]:
    """theta (P,) of the pairs."""
    chains, fans = pairs.nodes[: pairs.n_gp], pairs.nodes[pairs.n_gp :]
    return np.concatenate([scores.gp[tuple(chains.T)], scores.sib[tuple(fans.T)]])
