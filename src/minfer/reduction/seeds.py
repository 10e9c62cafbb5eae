"""Seed graphs: the small part of a model that is inferred in first, as masks over its factors.

The paper's seed is the set of local factors (section 3.5). Constants always belong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_graph, real_numbers
from minfer.errors import ModelError

if TYPE_CHECKING:
    from minfer.graph import FactorGraph


def unary(graph: FactorGraph) -> NDArray[np.bool_]:
    """Factors over at most one variable, shape (F,)."""
    check_graph(graph, "a seed")
    mask = np.zeros(graph.n_factors, dtype=bool)
    for g in graph.groups:
        if g.arity <= 1:
            mask[g._ids] = True
    return mask


def unary_and_globals(graph: FactorGraph) -> NDArray[np.bool_]:
    """Unary factors and all global factors: one iteration of BP makes their answer exact."""
    mask = unary(graph)
    for g in graph.groups:
        if g.form == "messages":
            mask[g._ids] = True
    return mask


def spanning_forest(graph: FactorGraph, scores: NDArray | None = None) -> NDArray[np.bool_]:
    """Unary factors and a spanning forest of the pairwise ones, the best by ``scores`` (F,) first.

    Without scores the spread max - min of the log-tables counts (zeros count as infinite).
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    mask = unary(graph)
    groups = [g for g in graph.groups if g.form == "table" and g.arity == 2]
    if not groups:
        return mask
    ids = np.concatenate([g._ids for g in groups])
    ends = np.concatenate([np.sort(g._scope, axis=1) for g in groups])
    if scores is None:
        score = np.concatenate([g.spread() for g in groups])
    else:
        given = real_numbers(scores, "scores").astype(np.float64)
        if given.shape != (graph.n_factors,):
            raise ModelError(f"scores must have shape ({graph.n_factors},), not {given.shape}")
        score = given[ids]
    # the forest takes the smallest weights: ranks, the best first, and one edge per pair
    order = np.lexsort((ids, -score))
    _, first = np.unique(ends[order] @ np.array([graph.n_variables, 1]), return_index=True)
    order = order[np.sort(first)]
    rank = np.arange(1, len(order) + 1, dtype=np.float64)
    n = graph.n_variables
    tree = minimum_spanning_tree(coo_array((rank, tuple(ends[order].T)), shape=(n, n)))
    mask[ids[order[tree.data.astype(np.int64) - 1]]] = True
    return mask


#: The seeds by name, each with what it is.
SEEDS: dict[str, tuple[Callable[[FactorGraph], NDArray[np.bool_]], str]] = {
    "globals": (unary_and_globals, "unary and global factors"),
    "unary": (unary, "unary factors"),
    "forest": (spanning_forest, "unary factors and a spanning forest"),
}
