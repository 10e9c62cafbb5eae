"""The best dependency tree: Eisner (projective) and Chu-Liu-Edmonds (any tree).

Under arc scores that is the most probable tree of a first-order model; under arc probabilities it
is the tree with the most expected correct arcs, minimum Bayes risk, as in the paper's section 5.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_flag
from minfer.parsing.trees import checked_scores, no_tree


def eisner(scores: ArrayLike, *, single_root: bool = True) -> NDArray[np.int64]:
    """Heads (n+1,) of the best projective tree, -1 at 0; O(n^3).

    ``scores`` (n+1, n+1) [head, modifier], minus infinity where there is no arc. The same scores
    give the same tree, ties or not.
    """
    return _best(scores, True, single_root)


def chu_liu_edmonds(scores: ArrayLike, *, single_root: bool = True) -> NDArray[np.int64]:
    """Heads (n+1,) of the best tree, crossing arcs or not, -1 at 0; exact for a single root too.

    ``scores`` as for :func:`eisner`.
    """
    return _best(scores, False, single_root)


def _best(scores: ArrayLike, projective: bool, single_root: bool) -> NDArray[np.int64]:
    from minfer.parsing.kernels.decode import decode

    check_flag("single_root", single_root)
    clean = checked_scores(scores)
    heads = np.empty(len(clean), dtype=np.int64)
    if not decode(projective, bool(single_root), clean, heads):
        raise no_tree(projective, single_root)
    return heads
