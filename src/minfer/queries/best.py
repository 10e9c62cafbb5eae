"""The most probable explanation, the k best, and marginal MAP: by maxima in a clique tree.

One pass of maxima towards the roots; then, from the roots, each clique takes its best states given
its separator. The next best come without further passes (in the manner of Lawler 1972 and Nilsson
1998): all assignments but the best are divided by the first clique, in the order from the roots, in
which they differ from it. With the cliques before as they are and this clique in its best *other*
state, the cliques behind it take their best; so the score of every part is known at once,

    score(part) = score(best) - g(its state | s) + g(best other state | s),

g the clique's table with its children's messages. The best part is opened, and divided again.
Marginal MAP sums all other variables first, so its tree may be much wider. Where no tree fits, the
best is searched for, with a bound: of all variables (:mod:`.map`), or of some
(:mod:`.map.marginal`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import (
    check_graph,
    check_number,
    check_seconds,
    check_whole,
)
from minfer.basics.limits import clock, deadline_of, start_clock
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import CliqueTree, adjacency
from minfer.errors import ModelError, RefusedError
from minfer.graph import FactorGraph
from minfer.model.evidence import Evidence, numbered
from minfer.model.ranked import Assignment as Assignment
from minfer.model.ranked import Best as Best
from minfer.queries.cliques import Cliques, circuit_for, constant_of, planned
from minfer.queries.map.search import search
from minfer.solvers.conflicts import locates
from minfer.solvers.plans import acted_on, part_for

#: The share of a time limit in which an elimination order is looked for.
FOR_ORDER = 0.2
FOR_TREE = 0.8  # of a time limit, where a search can follow
FOR_CIRCUIT = 0.5  # of what is left of it, for a circuit
#: Memory for the search of a circuit where another search can follow: about two seconds.
_FEW_GIB = 0.125
_ADVICE = (
    "Observe more variables, ask for the best one only (k=1 goes on by searching), or for the "
    "most probable state of each (Marginals.mpm)"
)
_ADVICE_MAP = "sums before maxima need a wider tree than either alone"


@locates
def mpe(
    model: FactorGraph,
    evidence: Evidence | None = None,
    *,
    do: Evidence | None = None,
    k: int = 1,
    variables: Sequence[int | str] | None = None,
    time_limit: float | None = None,
    gap: float = 0.0,
    max_gib: float = 4.0,
) -> Best:
    """The most probable explanation: the best states of all variables together.

    Exact by a clique tree where one fits, and by a circuit where the model was compiled
    (:func:`minfer.compile`), or has zeros and a small one. Elsewhere one assignment is searched
    for, with an upper bound on all (``upper``, ``gap``, ``status``): by a maximum flow where the
    model is a cut, which is exact; else by dual block ascent, rounding and moves, and in the time
    left by toulbar2's branch and bound where pytoulbar2 is installed. Of some variables
    (``variables``) the best are searched for in the same way, by weighted mini-buckets and
    best-first search.

    Parameters
    ----------
    model : FactorGraph
    evidence : {variable: state, or likelihoods}, optional
        As in :func:`minfer.query`.
    do : {variable: state}, optional
        What is set, as in :func:`minfer.query`.
    k : int
        How many, best first. Ties come in an order that depends on the model alone.
    variables : list, optional
        Marginal MAP: the best states of these variables, all others summed out. Where no clique
        tree fits, a log score is what is proven of the sum, from below.
    time_limit : float, optional
        Seconds for a search (a step under way is finished); without it, a search ends when it has
        made no progress for a while. With ``k`` > 1 and no ``variables`` there is no search: what
        would take longer is refused.
    gap : float
        A search may stop once no assignment is better by more than this, in log score.
    max_gib : float
        Use no clique tree whose largest clique would fill more than this; for ``variables`` also
        what a search may fill, but never less than a quarter of a GiB.

    Examples
    --------
    >>> import minfer
    >>> g = minfer.FactorGraph.network(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"rain": [0.8, 0.2], "wet": (["rain"], [[0.9, 0.1], [0.2, 0.8]])},
    ... )
    >>> best = minfer.mpe(g, {"wet": "yes"}, k=2)
    >>> best["rain"], round(best.best.probability, 4), best.proven
    ('yes', 0.6667, True)
    >>> [a["rain"] for a in best]
    ['yes', 'no']
    """
    check_graph(model, "mpe")
    check_whole("k", k, 1)
    check_seconds("time_limit", time_limit)
    check_number("gap", gap, 0.0, infinite=True)
    began = start_clock(time_limit)
    deadline = deadline_of(time_limit, began)
    hard, soft = numbered(model, {} if evidence is None else evidence)
    model = acted_on(model, do, evidence)
    wanted = list(range(model.n_variables))
    if variables is not None:
        wanted = _wanted(model, variables)
        seen, liked = (tuple(sorted(known)) for known in (hard, soft))
        part = part_for(model, tuple(wanted), seen, liked, whole=True)
        place = {v: i for i, v in enumerate(part.variables.tolist())}
        home = part.graph
        graph = home._observing(
            {place[v]: s for v, s in hard.items()},
            {place[v]: like for v, like in soft.items()},
        )
        inside = [place[v] for v in wanted]
    else:
        home, graph, inside = model, model._observing(hard, soft), wanted
    names = tuple(model.name(v) for v in wanted)
    states = tuple(model.states(v) for v in wanted)
    may_search = k == 1 or variables is not None
    until = clock() + FOR_TREE * (deadline - clock()) if may_search else deadline
    try:
        found, complete, log_z, slip = _by_tree(
            home, graph, k, None if variables is None else inside, until, max_gib, time_limit
        )
    except RefusedError as refusal:
        if variables is None:
            with suppress(RefusedError):
                limit = None
                if time_limit is not None:
                    limit = max(FOR_CIRCUIT * (deadline - clock()), 1e-3)
                gib = min(max_gib, _FEW_GIB) if may_search else max_gib
                circuit = circuit_for(graph, refusal, gib, limit)
                return replace(circuit._ranked(graph, k), seconds=clock() - began)
        else:
            return _marginal(graph, inside, names, states, k, deadline, gap, max_gib, began)
        if not may_search:
            raise
        answer = search(condition(graph), deadline, gap)
        one = Assignment(names, answer.x, answer.score, math.nan, states)
        proven = answer.status == "optimal"
        seconds = clock() - began
        return Best((one,), proven, False, seconds, answer.upper, answer.status, answer.steps)
    ranked = []
    for score, x in found:
        if variables is None:
            score = float(graph.log_score(x[: graph.n_variables]))
        log_probability = math.nan if math.isnan(log_z) else min(score - log_z, 0.0)
        ranked.append(Assignment(names, x[inside].astype(np.int64), score, log_probability, states))
    upper = float(np.nextafter(ranked[0].log_score + slip, math.inf))
    return Best(tuple(ranked), True, complete, clock() - began, upper)


def _marginal(
    graph: FactorGraph, inside: list[int], names: tuple[str, ...],
    states: tuple[tuple[str, ...], ...], k: int, deadline: float, gap: float, max_gib: float,
    began: float,
) -> Best:  # fmt: skip
    """Marginal MAP by search, where no tree fits."""
    from minfer.queries.map.marginal import marginal_map

    answer = marginal_map(graph, inside, k, deadline, gap, max_gib)
    ranked = tuple(Assignment(names, x, score, math.nan, states) for score, x in answer.found)
    seconds, proven = clock() - began, answer.status == "optimal"
    return Best(ranked, proven, answer.complete, seconds, answer.upper, answer.status, answer.steps)


def _by_tree(
    home: FactorGraph,
    graph: FactorGraph,
    k: int,
    inside: list[int] | None,
    deadline: float,
    max_gib: float,
    time_limit: float | None,
) -> tuple[list[tuple[float, NDArray[np.int32]]], bool, float, float]:
    """The k best (score, assignment) by a clique tree, whether these are all, log Z, and rounding.

    ``inside``: marginal MAP of these. log Z is NaN where only the best was found in time.
    """
    sums = inside is not None
    problem = only_tables(condition(graph), "mpe", best=not sums)
    seconds = FOR_ORDER * (deadline - clock())
    shape = adjacency(problem)
    last = np.ones(len(shape.variables), dtype=bool)
    if inside is not None:
        last = np.isin(shape.variables, inside)
    cliques = planned(
        home, problem, "mpe", _ADVICE_MAP if sums else _ADVICE, max_gib, time_limit, deadline,
        shape=shape, last=None if last.all() else last, seconds=seconds,
    )  # fmt: skip
    maximise = shape.variables[last].tolist()  # all, auxiliary ones too, or sums first
    found, complete = _ranked(cliques, problem, cliques.collect(maximise), k)
    try:
        log_z = cliques.collect() + constant_of(problem)
    except RefusedError:
        log_z = math.nan
    return found, complete, log_z, _rounding(graph, problem, cliques.tree, sums)


def _rounding(graph: FactorGraph, problem: Conditioned, tree: CliqueTree, sums: bool) -> float:
    """How far a true score may lie above the best one that a tree finds, by rounding alone.

    Scores are sums of one number per factor and variable and two more for each clique; each errs by
    2^-53 of a partial sum, at most the largest numbers added up. Twice, for the best and the one
    taken, and twice more for sums made again. ``sums``: also what exponentials add to logs.
    """
    n = graph.n_factors + graph.n_variables + 2 * len(tree.parent) + 8
    unit = 4.0 * n * 2.0**-53
    groups = graph.groups
    if any(g.form == "messages" for g in groups):  # known by the tables they became
        groups = (*groups, *problem.groups)
    sizes = [unit * g.magnitude() for g in groups]
    field = graph._field
    if field is not None and len(field):
        largest = np.where(np.isfinite(field), np.abs(field), 0.0)
        sizes.append(unit * np.maximum.reduceat(largest, graph._offsets[:-1]))
    total = math.fsum(x for size in sizes for x in np.asarray(size, dtype=np.float64).tolist())
    return total + (2.0**-50 * (tree.cells + n) if sums else 0.0)


def _wanted(model: FactorGraph, variables: Any) -> list[int]:
    wanted = model._indices(variables, "mpe: variables")
    if not wanted:
        raise ModelError("mpe: variables: name at least one")
    return wanted


def _ranked(
    cliques: Cliques, model: Conditioned, whole: float, k: int
) -> tuple[list[tuple[float, NDArray[np.int32]]], bool]:
    """The k best (score, assignment), and whether these are all that are possible."""
    order = [c for c in range(cliques.n - 1, -1, -1) if cliques.maximal[c]]
    x = np.maximum(model.fixed, 0).astype(np.int32)[None].copy()
    _complete(cliques, order, 0, x)
    score = constant_of(model) + whole
    heap: list[tuple[float, int, int, list[int], int, NDArray[np.int32]]] = []
    out: list[tuple[float, NDArray[np.int32]]] = []
    start, count = 0, 0
    excluded: list[int] = []
    while True:
        out.append((score, x[0]))
        if len(out) == k + 1 or not order:
            break
        for j in range(start, len(order)):
            if len(out) == k and heap:
                break
            cliques.check_clock()
            table = cliques.local(order[j], x)[0]
            mine = _cell(cliques, order[j], x)
            base = float(table[mine])
            without = [*(excluded if j == start else ()), mine]
            table[without] = -np.inf
            other = int(np.argmax(table))
            if table[other] > -np.inf:
                count += 1
                gone = score - base + float(table[other])
                heappush(heap, (-gone, count, j, without, other, x))
        if len(out) == k and heap:  # there is another one: that is all one needs to know
            return out, False
        if not heap:
            break
        gone, _, start, excluded, cell, before = heappop(heap)
        score, x = -gone, before.copy()
        cliques.put(order[start], np.array([cell]), x)
        _complete(cliques, order, start + 1, x)
    return out[:k], len(out) <= k


def _complete(cliques: Cliques, order: list[int], first: int, x: NDArray[np.int32]) -> None:
    """Best states of the cliques from ``first`` on, given those before."""
    for c in order[first:]:
        cliques.put(c, np.argmax(cliques.local(c, x), axis=1), x)


def _cell(cliques: Cliques, c: int, x: NDArray[np.int32]) -> int:
    mine = cliques.rest[c]
    return int(np.ravel_multi_index([int(x[0, v]) for v in mine], [cliques.card[v] for v in mine]))
