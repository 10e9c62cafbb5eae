"""Iterative join-graph propagation: belief propagation between overlapping clusters.

Variables are eliminated as for a clique tree, but a bucket whose clique would have more than
``max_cells`` cells is split into mini-buckets that fit (Dechter & Rish 2003, "Mini-buckets", JACM
50:107-153). Each mini-bucket is a cluster; it sends over what is left of its variables to the
cluster where the next of them is eliminated, and mini-buckets of one bucket are joined over the
variable alone. Sum-product messages on this graph are iterated (Mateescu, Kask, Gogate & Dechter
2010, "Join-graph propagation algorithms", JAIR 37:279-328). The zeros it finds are sound. Larger
clusters hold more loops inside, and where no bucket was split the graph is a clique tree and the
answer exact.

log Z is the Bethe value of the join graph, sum_c log Z_c - sum_e log Z_e in the messages: exact on
a tree, an estimate elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import by_name, check_settings, check_whole
from minfer.basics.limits import clock, deadline_of, start_clock
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import SLOW_STEP, Adjacency, adjacency, eliminate_by
from minfer.engine.layout import ends
from minfer.errors import NOTHING_POSSIBLE, ContradictionError, RefusedError
from minfer.solvers.base import LogZ, Marginals, Status, check_start, normalised
from minfer.solvers.prepared import Preparable
from minfer.solvers.propagation import drifting, iterate

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

#: Cells of all clusters beyond which a join graph is refused.
MOST_CELLS = 1 << 28
_INNER = 128  # cells of the inner loop over a cluster, about
_LOOK = 256  # variables between two looks at the clock
_MAX_WORK = 100_000_000  # steps of the search for an order


@by_name
@dataclass(frozen=True, kw_only=True)
class JoinGraph(Preparable):
    """Belief propagation between clusters of bounded size.

    Parameters
    ----------
    max_cells : int
        Cells of a cluster, at most; a factor's own table always fits.
    max_iters : int
        Sweeps back and forth over the clusters.
    tol : float
        Stop once a sweep, which recomputes every message, moves none by more than this.
    damping : float in [0, 1)
        Share of the old message kept, in logs.
    time_limit : float or None
        Seconds after which the best answer so far is returned with status ``time limit``; if not
        even the clusters are built by then, RefusedError.

    Notes
    -----
    For models with zeros or short loops, such as pedigrees, where belief propagation is off.
    Answers with status ``exact`` where the clusters make a clique tree. ``start`` is ignored.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import FactorGraph, JoinGraph
    >>> grid = FactorGraph.grid(np.ones((5, 5)), -1.0)
    >>> JoinGraph()(grid).status.value, JoinGraph(max_cells=8)(grid).status.value
    ('exact', 'converged')
    """

    max_cells: int = 1 << 12
    max_iters: int = 200
    tol: float = 1e-6
    damping: float = 0.0
    time_limit: float | None = None

    def __post_init__(self) -> None:
        check_settings(self.max_iters, self.tol, self.damping, self.time_limit)
        check_whole("max_cells", self.max_cells, 1)

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        begin = start_clock(self.time_limit)
        check_start(start)
        model = only_tables(condition(graph), "JoinGraph")
        deadline = deadline_of(self.time_limit, begin)
        order = order_of(adjacency(model), (deadline - clock()) / 4)
        return self.run(graph, model, clusters(model, self.max_cells, order, deadline), begin)

    def run(
        self, graph: FactorGraph, model: Conditioned, joined: Clusters, begin: float
    ) -> Marginals:
        """The answer on clusters already built."""
        links = Links(model, joined)
        ready = clock()
        if joined.is_tree:
            links.sweep(1, np.zeros(1), 0.0)
            status, residuals = Status.EXACT, np.zeros(0)
        else:
            limit = None if self.time_limit is None else self.time_limit - (ready - begin)
            status, residuals = iterate(
                lambda n, out: links.sweep(n, out, self.damping, self.tol),
                lambda: links.last <= self.tol,
                self.max_iters,
                None if limit is None else max(limit, 1e-9),
                3e-8 * len(links.arrays.psi),
            )
        probs, log_z = links.read()
        note = (
            f"{len(joined.scopes):,} clusters of up to {joined.largest:,} cells, "
            f"{joined.n_split:,} buckets split"
        )
        return Marginals(
            graph, probs[: int(graph._offsets[-1])], self, status,
            LogZ.EXACT if joined.is_tree else LogZ.ESTIMATE, len(residuals), residuals,
            {"plan": ready - begin, "iterate": clock() - ready},
            note=note, state=JoinGraphState(graph, links, log_z),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Clusters:
    """A join graph. C clusters in the order of elimination, E edges."""

    scopes: list[tuple[int, ...]]  # (C,)
    factors: list[list[int]]  # (C,) of the tables in each, their places in ``arrays.scopes``
    field_of: dict[int, int]  # variable -> the cluster that has its field
    edges: list[tuple[int, int, tuple[int, ...]]]  # (E,) cluster, later cluster, variables
    n_split: int
    largest: int
    cells: int

    @property
    def is_tree(self) -> bool:
        """No bucket was split: a clique tree, one sweep forth and back is exact."""
        return self.n_split == 0


def order_of(links: Adjacency, seconds: float = math.inf) -> list[int]:
    """A min-fill order of all free variables, however wide; after ``seconds`` as numbered."""
    from minfer.kernels.cliques.elimination import MIN_FILL

    work = min(_MAX_WORK, seconds / SLOW_STEP)
    found = eliminate_by(links, MIN_FILL, 0, math.inf, "min-fill", work=work, widest=math.inf)
    order = found.order[: found.n_done].tolist()
    done = set(order)
    order += [v for v in range(len(links.variables)) if v not in done]
    return [int(links.variables[v]) for v in order]


def clusters(
    model: Conditioned, max_cells: int, order: list[int] | None = None, until: float = math.inf
) -> Clusters:
    """Mini-buckets of at most ``max_cells`` cells, along ``order``, else a min-fill order; refused
    if they are not made ``until`` then."""
    order = order_of(adjacency(model)) if order is None else order
    place = dict(zip(order, range(len(order))))
    card = model.graph._n_states.tolist()
    buckets: list[list[_Item]] = [[] for _ in order]
    flat = model.arrays.scopes
    every = flat.scope.tolist()
    for f, (begin, end) in enumerate(pairwise(flat.fptr.tolist())):
        scope = frozenset(every[begin:end])
        buckets[min(place[v] for v in scope)].append((scope, f, -1))
    out = Clusters([], [], {}, [], 0, 0, 0)
    n_split = largest = total = 0
    for at, v in enumerate(order):
        if at % _LOOK == 0 and clock() > until:
            raise RefusedError("JoinGraph: the time limit passed before the clusters were made")
        minis = _partition(buckets[at], card, max_cells) or [(frozenset([v]), [])]
        n_split += len(minis) > 1
        before = -1
        for scope, items in minis:
            c = len(out.scopes)
            variables = tuple(sorted(scope, key=place.__getitem__))
            out.scopes.append(variables)
            cells = math.prod(card[u] for u in variables)
            largest, total = max(largest, cells), total + cells
            if total > MOST_CELLS:
                raise RefusedError(
                    f"JoinGraph: the clusters would have more than {MOST_CELLS:,} cells together; "
                    "lower max_cells, or use BeliefPropagation"
                )
            out.factors.append([f for _, f, _ in items if f >= 0])
            for s, _, sender in items:
                if sender >= 0:
                    out.edges.append((sender, c, tuple(sorted(s, key=place.__getitem__))))
            if before >= 0:
                out.edges.append((before, c, (v,)))
            else:
                out.field_of[v] = c
            before = c
            rest = scope - {v}
            if rest:
                buckets[place[min(rest, key=place.__getitem__)]].append((rest, -1, c))
        buckets[at] = []
    return Clusters(out.scopes, out.factors, out.field_of, out.edges, n_split, largest, total)


#: Variables, and the factor or the cluster (the other is -1) that has them.
_Item = tuple[frozenset[int], int, int]


def _partition(
    items: list[_Item], card: list[int], max_cells: int
) -> list[tuple[frozenset[int], list[_Item]]]:
    """A bucket's items packed greedily, the widest first, each where it adds the least."""
    minis: list[tuple[frozenset[int], list[_Item]]] = []
    for item in sorted(items, key=lambda x: -len(x[0])):
        best, gain = -1, math.inf
        for k, (scope, _) in enumerate(minis):
            more = item[0] - scope
            if len(more) < gain:
                union = scope | more
                if not more or math.prod(card[u] for u in union) <= max_cells:
                    best, gain = k, len(more)
                    if not more:
                        break
        if best < 0:
            minis.append((item[0], [item]))
        else:
            scope, mine = minis[best]
            mine.append(item)
            minis[best] = (scope | item[0], mine)
    return minis


class Links:
    """A join graph as arrays, with its messages."""

    def __init__(self, model: Conditioned, joined: Clusters) -> None:
        from minfer.kernels.messages.join_graph import ClusterGraph, add_table, fill_places

        graph = model.graph
        self.model, self.joined = model, joined
        self.card = card = graph._n_states.astype(np.int64)
        n = len(joined.scopes)
        self.cl_ptr = ends([len(s) for s in joined.scopes])
        self.cl_var = np.array([v for s in joined.scopes for v in s], dtype=np.int64)
        sizes = [[int(card[v]) for v in s] for s in joined.scopes]
        cell_ptr = ends([math.prod(s) for s in sizes])
        n_outer, inner = np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
        for c, shape in enumerate(sizes):
            cut, cells = len(shape), 1
            while cut and cells * shape[cut - 1] <= max(_INNER, shape[cut - 1]):
                cut -= 1
                cells *= shape[cut]
            n_outer[c], inner[c] = cut, cells
        psi = np.zeros(int(cell_ptr[-1]))

        def add(c: int, scope: NDArray[np.int64], table: NDArray[np.float64]) -> None:
            mine = psi[cell_ptr[c] : cell_ptr[c + 1]]
            add_table(card, self.cl_var, self.cl_ptr[c], self.cl_ptr[c + 1], scope, table, mine)

        flat, (toff, log_psi), off = model.arrays.scopes, model.arrays.cells, graph._offsets
        begin, scope = flat.fptr, flat.scope.astype(np.int64)
        size = model.arrays.sizes
        for c, factors in enumerate(joined.factors):
            for f in factors:
                add(c, scope[begin[f] : begin[f + 1]], log_psi[toff[f] : toff[f] + size[f]])
        for v, c in joined.field_of.items():
            add(c, np.array([v]), model.field[off[v] : off[v + 1]])
        edges = joined.edges
        edge = np.array([e[:2] for e in edges], dtype=np.int64).reshape(-1, 2)
        sep_ptr = ends([len(e[2]) for e in edges])
        sep_var = np.array([v for e in edges for v in e[2]], dtype=np.int64)
        sep_cells = np.array([math.prod(card[list(e[2])].tolist()) for e in edges], dtype=np.int64)
        of = edge.ravel()
        by = np.argsort(of, kind="stable")
        inc_ptr = ends(np.bincount(of, minlength=n))
        place_ptr = ends((np.diff(cell_ptr) // inner + inner)[of[by]])
        place = np.empty(int(place_ptr[-1]), dtype=np.int32)
        fill_places(
            card, self.cl_ptr, self.cl_var, n_outer, inc_ptr, by // 2, sep_ptr, sep_var, place_ptr,
            place,
        )  # fmt: skip
        at = ends(np.repeat(sep_cells, 2))
        msg = np.repeat(-np.log(np.repeat(sep_cells, 2)), np.diff(at))
        self.arrays = ClusterGraph(
            psi, cell_ptr, inner, inc_ptr, by // 2, by % 2, edge, sep_cells, at[:-1].copy(), msg,
            place_ptr, place,
        )  # fmt: skip
        self.last = math.inf

    def sweep(
        self, n: int, residuals: NDArray[np.float64], damping: float, tol: float = 0.0
    ) -> int:
        """Up to n sweeps forth and back; how many were made."""
        from minfer.kernels.messages.join_graph import sweep

        for k in range(n):
            moved, before = np.zeros(1), self.arrays.msg.copy()
            for forward in (True, False):
                if sweep(self.arrays, float(damping), forward, moved) >= 0:
                    raise ContradictionError(NOTHING_POSSIBLE)
            residuals[k] = self.last = float(moved[0])
            if self.last <= tol and drifting(before, self.arrays.msg).any():
                residuals[k] = self.last = math.nextafter(tol, 1.0)  # quiet, but not settled
            if self.last <= tol:
                return k + 1
        return n

    def read(self) -> tuple[NDArray[np.float64], float]:
        """Marginals, those of auxiliary variables behind, and log Z."""
        from minfer.kernels.messages.join_graph import read

        model, graph = self.model, self.model.graph
        home = np.full(graph.n_variables, -1, dtype=np.int64)
        size = np.diff(self.arrays.cell_ptr)
        for c in np.argsort(size, kind="stable").tolist():
            home[self.cl_var[self.cl_ptr[c] : self.cl_ptr[c + 1]]] = c  # the largest comes last
        probs = np.zeros(int(graph._offsets[-1]))
        where = self.card, self.cl_ptr, self.cl_var, home, graph._offsets
        log_z = read(self.arrays, *where, probs)
        if log_z == -np.inf:
            raise ContradictionError(NOTHING_POSSIBLE)
        log_z += model.constant
        probs[model.fixed_at] = 1.0
        log_z += float(model.field[model.fixed_at].sum())
        return normalised(probs, graph._offsets), float(log_z)

    def belief(self, c: int) -> NDArray[np.float64]:
        """A cluster's distribution, shape (S_1, ..., S_A)."""
        from minfer.kernels.messages.join_graph import belief_of

        return belief_of(c, self.arrays).reshape([int(self.card[v]) for v in self.joined.scopes[c]])


@dataclass(frozen=True, eq=False)
class JoinGraphState:
    """The clusters and their messages."""

    graph: FactorGraph
    links: Links
    value: float

    def log_z(self) -> float:
        return self.value

    @cached_property
    def _home(self) -> dict[int, int]:
        ids = self.links.model.arrays.scopes.ids
        return {int(ids[f]): c for c, mine in enumerate(self.links.joined.factors) for f in mine}

    def factor(self, factor: int) -> NDArray[np.float64] | None:
        """The factor's cluster, summed down to its scope; None where it is not a table there."""
        c = self._home.get(self.graph.factor_index(factor))
        if c is None:
            return None
        model = self.links.model
        scope = [int(v) for v in self.graph.scope(factor) if model.fixed[v] < 0]
        inside = self.links.joined.scopes[c]
        axes = tuple(i for i, v in enumerate(inside) if v not in scope)
        left = [v for v in inside if v in scope]
        joint = self.links.belief(c).sum(axis=axes).transpose([left.index(v) for v in scope])
        return replace(model, graph=self.graph).expand(factor, joint)
