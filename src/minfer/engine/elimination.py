"""Elimination orders and clique trees: how hard a model is to solve exactly, and the plan for it.

Eliminating a variable joins its neighbours into a clique; the *induced width* of an order is the
largest neighbourhood met, and exact inference costs time and memory proportional to the cells of
the cliques, exponential in the width. Orders are found greedily: min-fill (fewest new edges,
Rose 1972; Kjaerulff 1990) and min-weight (smallest clique); where these are expensive also the
order of the variables' numbers, reverse Cuthill-McKee (both good for grids), and then in turn
weighted fill (an edge counts the logs of its variables' numbers of states) with random factors, and
min-fill, or min-weight where variables differ in their states, with random ties. Random factors
find trees that ties do not: of a hundred runs the best is often a quarter of the first. The
cheapest one found is used; the search is deterministic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock, deadline_of
from minfer.engine.layout import ranges

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.engine.layout import Flat, Scopes

#: An elimination stops when a clique has more than 2**HOPELESS cells: no machine will hold it.
HOPELESS = 48.0
#: Trees with fewer cells than this are cheap enough to stop looking for better ones.
CHEAP_CELLS = 2.0**18
#: Cells of a row, eight rows abreast, for which one step of a search is a twentieth of the time.
STEPS_PER_ROW = 600.0
#: Steps of one elimination before it gives up (a step takes 10 to 50 ns), in all and per variable
#: (narrow models take 100 to 250); and the random restarts.
MAX_WORK, MAX_WORK_EACH, MAX_RESTARTS = 30_000_000, 250, 1000
#: A step takes this at most, in seconds: by it a time becomes steps.
SLOW_STEP = 5e-8
#: Of a larger model that is too wide for min-fill no other order is tried.
LARGE_MODEL = 20_000
#: Added to what is minimised, fill counts and all, to leave a vertex to the end.
_BEHIND = 2.0**50
#: Orders tried for a tree with less memory.
_LIGHTER = 300


class Adjacency(NamedTuple):
    """Which free variables share a factor. Vertices are numbered 0..n-1."""

    variables: NDArray[np.int64]  # (n,) the free variables
    ptr: NDArray[np.int64]  # (n+1,)
    neighbours: NDArray[np.int32]  # sorted within each vertex
    log_card: NDArray[np.float64]  # (n,) log2 of the number of states


class Order(NamedTuple):
    """An elimination, perhaps cut short, as the kernel leaves it."""

    order: NDArray[np.int32]
    pool: NDArray[np.int32]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    n_done: int
    width: int
    largest: float  # log2 of the cells of the largest clique
    cells: float  # of all cliques met
    work: int
    method: str = ""


@dataclass(frozen=True, eq=False)
class CliqueTree:
    """Cliques in an order in which children come before parents. C cliques, n free variables.

    Where the search for an order was cut short (``complete`` is False) there are no cliques, and
    width and cells are what was met before it stopped: lower bounds for that order.
    """

    complete: bool
    left: int  # variables not eliminated when the search stopped; 0 if complete
    method: str
    width: int  # variables of the largest clique, less one
    largest: float  # log2 of its cells
    cells: float  # of all cliques
    message_cells: float  # of all separators
    ptr: NDArray[np.int64]  # (C+1,)
    variables: NDArray[np.int32]  # graph numbers, in elimination order within a clique
    n_eliminated: NDArray[np.int32]  # (C,) the first so many of a clique are eliminated there
    parent: NDArray[np.int32]  # (C,) or -1
    home: NDArray[np.int32]  # (V,) the clique in which a variable is eliminated, or -1
    position: NDArray[np.int64]  # (V,) place in the elimination order, or -1
    clique_cells: NDArray[np.float64]  # (C,)
    separator_cells: NDArray[np.float64]  # (C,)

    @property
    def scratch_cells(self) -> float:
        """Cells of the messages one clique sends to its children, at most."""
        child = self.parent >= 0
        totals = np.bincount(self.parent[child], self.separator_cells[child])
        return float(totals.max(initial=0.0))

    def homes(self, fptr: NDArray[np.int64], scope: NDArray[np.int32]) -> NDArray[np.int64]:
        """The clique of each table: where the first of its variables is eliminated."""
        if len(fptr) < 2:
            return np.zeros(0, dtype=np.int64)
        free = np.flatnonzero(self.position >= 0)
        at = np.zeros(len(free), dtype=np.int64)
        at[self.position[free]] = self.home[free]
        return at[np.minimum.reduceat(self.position[scope], fptr[:-1])]

    @property
    def memory(self) -> float:
        """Bytes the two passes need beside the model."""
        return 8.0 * (self.message_cells + self.scratch_cells)


def adjacency(model: Conditioned) -> Adjacency:
    """The interaction graph of the free variables of a model in tables."""
    return links(model.arrays.scopes, model.fixed < 0, model.graph._n_states)


def links(where: Scopes | Flat, keep: NDArray[np.bool_], card: NDArray[np.int32]) -> Adjacency:
    """Which of the variables to keep (V,), of so many states, share a scope."""
    from minfer.kernels.cliques.elimination import link_scopes

    variables = keep.nonzero()[0]
    number = np.full(len(keep), -1, dtype=np.int32)
    number[variables] = np.arange(len(variables), dtype=np.int32)
    ptr, neighbours = link_scopes(where.scope, where.fptr, number, len(variables))
    return Adjacency(variables, ptr, neighbours, np.log2(card[variables]))


def clique_tree(
    model: Conditioned, max_cells: float = math.inf, seconds: float = math.inf,
    memory: float = math.inf,
) -> CliqueTree:  # fmt: skip
    """The cheapest clique tree found; gives up early where all cost more than ``max_cells``. After
    ``seconds``, about, the search ends; what it finds can then depend on the machine. Where its
    messages take more than ``memory`` bytes, another of up to twice the cells is looked for."""
    shape, n = adjacency(model), model.graph.n_variables
    tree = tree_over(shape, n, max_cells, seconds=seconds)
    if tree.complete and tree.memory > memory >= 8.0 * 2.0**tree.largest:
        return _lighter(tree, shape, n, memory)
    return tree


def _lighter(tree: CliqueTree, links: Adjacency, n: int, memory: float) -> CliqueTree:
    """The cheapest tree found whose messages need no more than so many bytes, if one is."""
    from minfer.kernels.cliques.elimination import MIN_FILL, WEIGHTED_FILL

    best, most = tree, 2.0 * tree.cells
    for seed in range(_LIGHTER):
        kind, method = ((MIN_FILL, "min-fill"), (WEIGHTED_FILL, "weighted fill"))[seed % 2]
        found = eliminate_by(links, kind, seed, most, f"{method}, for memory")
        if found.n_done < len(found.order) or found.cells >= most:
            continue
        if (lighter := tree_of(found, links, n)).memory <= memory:
            best, most = lighter, lighter.cells
    return best


def tree_over(
    links: Adjacency,
    n: int,
    max_cells: float = math.inf,
    rows: int = 1,
    seconds: float = math.inf,
) -> CliqueTree:
    """The same from the interaction graph of the free ones of ``n`` variables. ``rows``: how often
    the tree will be used, and so how long a search for a better one may pay."""
    return tree_of(find_order(links, max_cells, rows, seconds), links, n)


def tree_of(
    best: Order, links: Adjacency, n: int, last: NDArray[np.bool_] | None = None
) -> CliqueTree:
    """The clique tree of an elimination, ``n`` variables in all. No clique eliminates vertices of
    ``last`` (n,) and others."""
    if best.n_done < len(links.variables):
        none, none32, nothing = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0)
        return CliqueTree(
            False, len(best.order) - best.n_done, best.method, best.width, best.largest,
            best.cells, best.cells, none, none32, none32, none32, none32, none, nothing, nothing,
        )  # fmt: skip
    from minfer.kernels.cliques.elimination import build_cliques

    free = links.variables
    ptr, vertices, n_eliminated, parent, home = build_cliques(
        best.order, best.pool, best.start, best.length,
        np.zeros(len(free), dtype=np.bool_) if last is None else last,
    )  # fmt: skip
    home_of, position = np.full(n, -1, dtype=np.int32), np.full(n, -1, dtype=np.int64)
    home_of[free], position[free[best.order]] = home, np.arange(len(free))
    bits = links.log_card[vertices]
    inner = np.ones(len(bits), dtype=bool)
    inner[ranges(ptr[:-1], n_eliminated)] = False
    if len(bits):
        of_clique, of_separator = (np.add.reduceat(x, ptr[:-1]) for x in (bits, bits * inner))
    else:
        of_clique = of_separator = bits
    cells, separators = np.rint(2.0**of_clique), np.rint(2.0**of_separator)
    return CliqueTree(
        True, 0, best.method, best.width, float(of_clique.max(initial=0.0)), float(cells.sum()),
        float(separators.sum()), ptr, free[vertices].astype(np.int32), n_eliminated, parent,
        home_of, position, cells, separators,
    )  # fmt: skip


def rooted_at(tree: CliqueTree, variable: int) -> CliqueTree:
    """The same cliques with the smallest one that has ``variable`` as the last, a root; what it
    sends up, to nobody, is over the variable alone."""
    variables, parent, n_own = (
        x.tolist() for x in (tree.variables, tree.parent, tree.n_eliminated)
    )
    cells, separators = tree.clique_cells.tolist(), tree.separator_cells.tolist()
    cliques = [variables[lo:hi] for lo, hi in pairwise(tree.ptr.tolist())]
    holders = [c for c, clique in enumerate(cliques) if variable in clique]
    path = [min(holders, key=cells.__getitem__)]
    while parent[path[-1]] >= 0:
        path.append(parent[path[-1]])
    on_path = set(path)
    order = [c for c in range(len(cliques)) if c not in on_path] + path[::-1]
    place = [0] * len(order)
    for k, c in enumerate(order):
        place[c] = k
    separator, below, n_cells = [variable], -1, 0.0
    for c in path:  # the overlap with a parent becomes that with a child
        own = cliques[c]
        rest = [v for v in own if v not in separator]
        cliques[c] = rest + separator
        separator = own[n_own[c] :]
        n_own[c], parent[c], below = len(rest), below, c
        separators[c], n_cells = n_cells, separators[c]
    ptr = [0, *accumulate(len(cliques[c]) for c in order)]
    new_place = np.array([*place, -1], dtype=np.int32)
    return replace(
        tree,
        ptr=np.array(ptr, dtype=np.int64),
        variables=np.array([v for c in order for v in cliques[c]], dtype=np.int32),
        n_eliminated=np.array([n_own[c] for c in order], dtype=np.int32),
        parent=new_place[[parent[c] for c in order]],
        home=new_place[tree.home],
        clique_cells=tree.clique_cells[order],
        separator_cells=np.array([separators[c] for c in order]),
    )


def find_order(
    links: Adjacency, max_cells: float = math.inf, rows: int = 1, seconds: float = math.inf
) -> Order:
    """The elimination with the fewest cells among several heuristics."""
    from minfer.kernels.cliques.elimination import GIVEN, MIN_FILL, MIN_WEIGHT, WEIGHTED_FILL

    n = len(links.variables)
    mixed = n > 0 and links.log_card.max() > links.log_card.min()
    until = deadline_of(seconds) if seconds < math.inf else math.inf

    def left() -> float:
        return until - clock() if until < math.inf else math.inf

    def attempt(
        kind: int, seed: int, bar: float, method: str, rank: NDArray[np.float64] | None = None
    ) -> Order:
        steps = max(left(), 0.0) / SLOW_STEP
        return eliminate_by(links, kind, seed, bar, method, rank, min(_max_work(n), steps))

    best = attempt(MIN_FILL, 0, max_cells, "min-fill")
    if best.n_done < n and (n > LARGE_MODEL or best.work > _max_work(n)):
        return best
    fewest = 4.0 * n  # cells of any order, about: of each variable and a neighbour
    if left() < 0.0 or best.cells <= 4.0 * fewest:  # a tree or nearly: nothing to gain
        return best
    best = _better(best, attempt(MIN_WEIGHT, 0, _bar(best, max_cells), "min-weight"))
    share = 1.0 / 16.0 + (rows - 1) / STEPS_PER_ROW
    if best.cells * share <= CHEAP_CELLS / 16.0:
        return best
    if mixed:
        best = _better(best, attempt(WEIGHTED_FILL, 0, _bar(best, max_cells), "weighted fill"))
    if best.cells > CHEAP_CELLS:
        natural = np.arange(n, dtype=np.float64)
        for name, rank in (("as numbered", natural), ("Cuthill-McKee", cuthill_mckee(links))):
            best = _better(best, attempt(GIVEN, 0, _bar(best, max_cells), name, rank))
    spent = 0.0  # look only for as long as it may pay: a small share of the time of the solution
    for seed in range(1, MAX_RESTARTS + 1):
        most = 2 * MAX_WORK if best.n_done == n else MAX_WORK / 2
        if spent > min(best.cells * share, most) or left() < 0.0:
            break
        kind, method = WEIGHTED_FILL, "weighted fill, random factors"
        if seed % 2 == 0:
            kind, method = MIN_FILL, "min-fill, random ties"
            if mixed:
                kind, method = MIN_WEIGHT, "min-weight, random ties"
        found = attempt(kind, seed, _bar(best, max_cells), method)
        best = _better(best, found)
        spent += found.work + 20.0 * n
    return best


def _max_work(n: int) -> int:
    return MAX_WORK + MAX_WORK_EACH * n


def _bar(best: Order, max_cells: float) -> float:
    """Cells at which a further attempt is no longer worth finishing."""
    return min(best.cells, max_cells) if best.n_done == len(best.order) else max_cells


def order_in_two(links: Adjacency, last: NDArray[np.bool_]) -> Order:
    """An elimination that leaves the vertices ``last`` (n,) to the end, as a maximum after sums
    needs it: within both parts min-fill, or min-weight where that has fewer cells."""
    from minfer.kernels.cliques.elimination import MIN_FILL, MIN_WEIGHT

    rank, work = np.where(last, _BEHIND, 0.0), _max_work(len(links.variables))
    kinds = MIN_FILL, MIN_WEIGHT
    return _better(
        *(eliminate_by(links, kind, 0, math.inf, "sums first", rank, work) for kind in kinds)
    )


def _better(old: Order, new: Order) -> Order:
    """A finished elimination before an unfinished one, then the cheaper; unfinished: the longer."""
    finished = new.n_done == len(new.order)
    if finished != (old.n_done == len(old.order)):
        return new if finished else old
    if finished:
        return new if new.cells < old.cells else old
    return new if new.n_done > old.n_done else old


def eliminate_by(
    links: Adjacency,
    kind: int,
    seed: int,
    max_cells: float,
    method: str,
    rank: NDArray[np.float64] | None = None,
    work: float = math.inf,
    widest: float = HOPELESS,
) -> Order:
    """One elimination: min-fill, min-weight or by ``rank``; see the kernel. ``work`` in steps."""
    from minfer.kernels.cliques.elimination import eliminate

    rank = np.zeros(len(links.variables)) if rank is None else rank
    try:
        found = eliminate(
            links.ptr, links.neighbours, links.log_card, rank, kind, seed,
            widest, float(max_cells), int(min(work, 1 << 60)),
        )  # fmt: skip
    except SystemError as error:  # Ctrl-C while its arrays were handed over
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    return Order(*found)._replace(method=method)


def cuthill_mckee(links: Adjacency) -> NDArray[np.float64]:
    """Each vertex's place in the reverse Cuthill-McKee order (small bandwidth, small width)."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n, ones = len(links.variables), np.ones(len(links.neighbours), dtype=np.int8)
    graph = csr_array((ones, links.neighbours, links.ptr), shape=(n, n))
    rank = np.empty(n)
    rank[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(n)
    return rank
