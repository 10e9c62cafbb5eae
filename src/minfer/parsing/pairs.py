"""Arcs and pairs of arcs of a sentence, and their scores, as the kernels take them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_flag, real_numbers
from minfer.errors import ModelError
from minfer.parsing.trees import checked_scores


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
