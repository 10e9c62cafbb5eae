"""Exact samples of the posterior: states drawn clique by clique, from the roots of a clique tree.

After one pass of sums each clique's table at given states of its separator is proportional to the
probabilities of its other states. Samples with the same separator states share that table. A state
of probability zero is never drawn.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_graph, check_whole
from minfer.engine.conditioning import condition
from minfer.engine.decomposition import only_tables
from minfer.errors import RefusedError
from minfer.graph import FactorGraph, with_any_evidence
from minfer.model.drawn import Samples as Samples
from minfer.model.evidence import Evidence
from minfer.queries.cliques import Cliques, check_fits, circuit_for, factors_of, planned
from minfer.solvers.conflicts import locates
from minfer.solvers.plans import acted_on
from minfer.solvers.simplified import solvable

_BLOCK = 1 << 22  # cells of separate tables at a time


@locates
def sample(
    model: FactorGraph,
    n: int,
    evidence: Evidence | None = None,
    *,
    do: Evidence | None = None,
    seed: int = 0,
    max_gib: float = 4.0,
) -> Samples:
    """Independent samples of P(all variables | evidence), exactly distributed.

    By a clique tree; where none fits, by a circuit (:func:`minfer.compile`), if there is a small
    one.

    Parameters
    ----------
    model : FactorGraph
    n : int
    evidence : {variable: state, or likelihoods}, optional
        As in :func:`minfer.query`.
    do : {variable: state}, optional
        What is set, as in :func:`minfer.query`.
    seed : int
        The same model, evidence, seed and n give the same samples.
    max_gib : float
        Refuse a model whose largest clique would fill more than this.

    Returns
    -------
    Samples
        An int array (n, V) of states' numbers; ``to_dict`` and ``to_pandas`` have their names.

    Examples
    --------
    >>> import minfer
    >>> from minfer.examples import sprinkler
    >>> x = minfer.sample(sprinkler(), 1000, {"wet_grass": 1})
    >>> x.shape, bool((x["wet_grass"] == 1).all())
    ((1000, 7), True)
    """
    check_graph(model, "sample")
    check_whole("n", n, 0)
    check_whole("seed", seed, 0)
    model = acted_on(model, do, evidence)
    graph = with_any_evidence(model, evidence)
    conditioned = condition(graph)
    problem, simplified = only_tables(conditioned), None
    advice = "Gibbs samples approximately (minfer.Gibbs)"
    try:
        cliques = planned(model, problem, "sample", advice, max_gib)
    except RefusedError:
        try:
            problem, tree, simplified = solvable(conditioned)
            check_fits(tree, "sample", advice, max_gib, None)
        except RefusedError as refusal:
            circuit = circuit_for(graph, refusal, max_gib)
            return Samples.of(circuit._drawn(graph, n, seed), model)
        cliques = Cliques(problem.graph._n_states, factors_of(problem), tree)
    cliques.collect()
    x = np.repeat(np.maximum(problem.fixed, 0).astype(np.int32)[None], n, axis=0)
    rng = np.random.default_rng(seed)
    for c in range(cliques.n - 1, -1, -1):
        _draw(cliques, c, rng.random(n), x)
    drawn: NDArray = np.ascontiguousarray(x[:, : model.n_variables])
    if simplified is not None:
        drawn = simplified.draw_states(drawn, rng).astype(np.int32)
    return Samples.of(drawn, model)


def _draw(cliques: Cliques, c: int, u: NDArray[np.float64], x: NDArray[np.int32]) -> None:
    """States of a clique's own variables, given its separator's, for each row of x (n, V)."""
    if not len(x):
        return
    separator = cliques.separator[c]
    n_cells = math.prod(cliques.card[v] for v in cliques.rest[c])
    key = np.zeros(len(x), dtype=np.int64)
    for v in separator:
        key = key * cliques.card[v] + x[:, v]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    which = which.ravel()
    step = max(1, _BLOCK // n_cells)
    by = np.argsort(which, kind="stable")
    ends = np.searchsorted(which[by], np.arange(0, len(first) + step, step))
    for k, begin in enumerate(range(0, len(first), step)):
        rows = by[ends[k] : ends[k + 1]]
        table = cliques.local(c, x[first[begin : begin + step]])
        table -= table.max(axis=1, keepdims=True)
        np.exp(table, out=table)
        cells = _pick(np.cumsum(table, axis=1, out=table), which[rows] - begin, u[rows])
        some = x[rows]
        cliques.put(c, cells, some)
        x[rows] = some


def _pick(
    cumulated: NDArray[np.float64], row: NDArray[np.int64], u: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The first cell of each row whose cumulated weight is above u times the row's total."""
    wanted = u * cumulated[row, -1]
    low = np.zeros(len(row), dtype=np.int64)
    high = np.full(len(row), cumulated.shape[1] - 1)
    while (low < high).any():
        middle = (low + high) // 2
        above = cumulated[row, middle] > wanted
        high = np.where(above, middle, high)
        low = np.where(above, low, np.minimum(middle + 1, high))
    return low
