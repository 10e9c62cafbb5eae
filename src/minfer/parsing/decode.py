"""The best dependency tree: Eisner (projective) and Chu-Liu-Edmonds (any tree).

Under arc scores that is the most probable tree of a first-order model; under arc probabilities it
is the tree with the most expected correct arcs, minimum Bayes risk, as in the paper's section 5.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.checks import check_flag
from minfer.parsing.trees import checked_scores, no_tree


def eisner(scores: ArrayLike, *, single_root: bool = True) -> NDArray[np.int64]:
    """Heads (n+1,) of the best projective tree, -1 at 0; O(n^3).

    ``scores`` (n+1, n+1) [head, modifier], minus infinity where there is no arc. The same scores
    give the same tree, ties or not.
    """
    from minfer.parsing.kernels.decode import eisner as kernel

    check_flag("single_root", single_root)
    clean = checked_scores(scores)
    n = len(clean)
    heads = np.empty(n, dtype=np.int64)
    work = np.empty(2 * n * n)
    best = kernel(clean, bool(single_root), heads, work, np.empty(2 * n * n + 4 * n + 8, np.int64))
    if best == -np.inf:
        raise no_tree(True, single_root)
    return heads


def chu_liu_edmonds(scores: ArrayLike, *, single_root: bool = True) -> NDArray[np.int64]:
    """Heads (n+1,) of the best tree, crossing arcs or not, -1 at 0; exact for a single root too.

    ``scores`` as for :func:`eisner`.
    """
    from minfer.parsing.kernels.decode import chu_liu_edmonds as kernel

    check_flag("single_root", single_root)
    clean = checked_scores(scores)
    n = len(clean)
    heads = np.empty(n, dtype=np.int64)
    ints = np.empty(6 * n * n + 5 * n, dtype=np.int64)
    if not kernel(clean, bool(single_root), heads, np.empty(n * n), ints):
        raise no_tree(False, single_root)
    return heads
