"""A sentence as a factor graph (Smith & Eisner 2008): the definition of the parser's model.

    p(y) ∝ tree(y) exp(sum_a s_a y_a + sum_{(g,h),(h,m)} gp[g,h,m] y_gh y_hm
                                     + sum_{(h,m),(h,s), m < s} sib[h,m,s] y_hm y_hs)

One binary variable per candidate arc, by modifier and then head; factors in this order: one unary
per arc, the tree, grandparents by (h, g, m), siblings by (h, m, s). Pairs that no tree contains are
not there: g -> h -> g; with projective trees g between h and m; siblings under a single root. Any
solver answers such a graph; the parser's kernels are held equal to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from minfer.graph import FactorGraph
from minfer.parsing.pairs import ArcScores, list_pairs, pair_weights
from minfer.parsing.trees import NonProjectiveTree, ProjectiveTree


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
