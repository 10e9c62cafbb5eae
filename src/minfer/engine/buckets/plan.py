"""Which mini-buckets: an order, a partition of each variable's bucket, and where everything lies.

Variables are eliminated in turn. The *bucket* of v has the tables and messages whose first variable
is v; where all of them together have more than 2^i cells it is split into mini-buckets of at most
as many (Dechter & Rish, J. ACM 2003), the largest scopes first, each put where it adds the fewest
cells. The mini-buckets of one variable get *shifts*: functions of the variables they all share that
add up to zero, so that the product stays as it is while the bound moves. The message of a
mini-bucket goes to the bucket of the first variable that is left in its scope.

The variables' *pseudo tree*: the parent of v is the next of those it shared a clique with when it
was eliminated, were nothing split. Each table and message then lies on one path from a root.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.engine.elimination import adjacency, eliminate_by, order_in_two
from minfer.engine.layout import ends, flatten
from minfer.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minfer.engine.conditioning import Conditioned
    from minfer.engine.elimination import Adjacency, Order
    from minfer.engine.layout import Flat
    from minfer.kernels.buckets.passes import Buckets

#: Random orders that are tried beside min-fill and min-weight, and the steps that may take.
RESTARTS, ORDER_WORK = 60, 2e7
#: Cells that one pass up visits, at most, if nobody asks for more: about an eighth of a second.
MOST_CELLS = 1e7
#: So many times as many are well spent where no bucket is split then.
EXACT_PAYS = 16.0
#: Bytes for each cell of a message: bounds from above and below, and shares; without one from
#: below.
BYTES, BYTES_EXACT = 24.0, 16.0

Ints = NDArray[np.int64]


class BucketPiece(NamedTuple):
    """A factor of some bucket: its variables as places in the order, increasing."""

    scope: tuple[int, ...]
    source: int  # a table's number, -1 - v for the field of v, or n_tables + k for a message


class Partition(NamedTuple):
    """A partition, mini-buckets in the order of elimination. K of them, n variables."""

    scopes: list[tuple[int, ...]]  # places in the order, the eliminated one first
    pieces: list[list[BucketPiece]]
    bptr: list[int]  # (n+1,) those of each variable
    shared: list[tuple[int, ...]]  # (n,) what all mini-buckets of a split variable share
    cells: float  # of all
    message_cells: float


class BucketPlan(NamedTuple):
    """Everything about the mini-buckets of a model but their numbers. n variables by their place in
    the order of elimination."""

    flat: Flat
    order: Ints  # (n,) variables
    parent: Ints  # (n,) in the pseudo tree, -1 for a root
    split: NDArray[np.bool_]  # (n,)
    target: Ints  # (K,) the variable whose bucket a message goes to, -1: none is left
    table: Ints  # (F,) the variable whose bucket a table is in
    field_at: Ints  # (n,) where in ``val`` a variable's field lies
    table_at: Ints  # (F,) where in ``val`` a table lies
    pieces: list[list[BucketPiece]]
    scopes: list[tuple[int, ...]]
    start: NDArray[np.float64]  # tables, fields, and zeros for shifts and messages
    buckets: Buckets
    levels: int  # largest mini-bucket, log2 of its cells, rounded up
    cells: float  # of all mini-buckets: what a pass visits
    message_cells: float
    whole_cells: float  # the same were no bucket split
    whole_memory: float  # bytes, then

    @property
    def exact(self) -> bool:
        return not bool(self.split.any())


def plan_buckets(
    model: Conditioned,
    last: NDArray[np.bool_] | None = None,
    memory_limit: float = 2.0**30,
    i_bound: int | None = None,
    most_cells: float = MOST_CELLS,
) -> BucketPlan:
    """Mini-buckets of a model in tables. ``last`` (V,): variables that are eliminated last.
    ``i_bound``: cells of the largest, as a power of two; None: what the memory, in bytes, and the
    cells of a pass allow."""
    links = adjacency(model)
    flat = flatten(model)
    order = find_order(links, None if last is None else last[links.variables])
    place = np.full(len(flat.card), -1, dtype=np.int64)
    place[links.variables[order.order]] = np.arange(len(order.order))
    card = flat.card[links.variables[order.order]].tolist()
    scopes = [
        tuple(sorted(place[flat.scope[a:b]].tolist()))
        for a, b in zip(flat.fptr[:-1].tolist(), flat.fptr[1:].tolist())
    ]
    if i_bound is not None:
        parts = partition(scopes, card, float(i_bound))
        if parts.message_cells * BYTES > memory_limit:
            raise RefusedError(
                f"mini-buckets of 2^{i_bound} cells need {parts.message_cells * BYTES / 2**30:.2g} "
                f"GiB of messages, more than the {memory_limit / 2**30:.2g} GiB allowed; ask for a "
                "smaller i_bound, or for none"
            )
    else:
        parts = _widest(scopes, card, memory_limit, most_cells)
    return _lay_out(flat, links.variables[order.order], order, place, card, scopes, parts)


def find_order(links: Adjacency, last: NDArray[np.bool_] | None) -> Order:
    """The cheapest of several orders, however wide."""
    from minfer.kernels.cliques.elimination import MIN_FILL, MIN_WEIGHT, WEIGHTED_FILL

    if last is not None and last.any():
        found = order_in_two(links, last)
        if found.n_done == len(found.order):
            return found
    rank = None if last is None else np.where(last, 2.0**50, 0.0)
    tries = [(MIN_FILL, 0), (MIN_WEIGHT, 0)]
    tries += [(WEIGHTED_FILL if s % 2 else MIN_FILL, s) for s in range(1, RESTARTS + 1)]
    best: Order | None = None
    spent = 0.0
    for kind, seed in tries:
        if best is not None and spent > ORDER_WORK:
            break
        found = eliminate_by(links, kind, seed, math.inf, "", rank, widest=math.inf)
        if best is None or found.cells < best.cells:
            best = found
        spent += found.work + 20.0 * len(found.order)
        if found.cells < 2.0**16:
            break
    assert best is not None
    return best


def _widest(
    scopes: list[tuple[int, ...]], card: list[int], memory_limit: float, most_cells: float
) -> Partition:
    """The coarsest partition that fits."""
    whole = partition(scopes, card, math.inf)
    if whole.message_cells * BYTES_EXACT <= memory_limit and whole.cells <= EXACT_PAYS * most_cells:
        return whole
    least = max((math.log2(math.prod(card[v] for v in s)) for s in scopes), default=0.0)
    size, step, best = max(math.ceil(least), 4), 4, None
    while True:
        found = partition(scopes, card, float(size))
        memory = found.message_cells * BYTES
        if best is None and memory > memory_limit:
            raise RefusedError(
                f"even the smallest mini-buckets of this model need {memory / 2**30:.2g} GiB of "
                f"messages, more than the {memory_limit / 2**30:.2g} GiB allowed; allow more memory"
            )
        if best is None or (memory <= memory_limit and found.cells <= most_cells):
            best = found
            size += step
        elif step == 1:
            return best
        else:
            size, step = size - step + 1, 1


def partition(scopes: list[tuple[int, ...]], card: list[int], i_bound: float) -> Partition:
    """Mini-buckets of at most 2^i_bound cells, but where a table or message alone has more."""
    n, n_tables = len(card), len(scopes)
    log = [math.log2(c) for c in card]
    waiting: list[list[BucketPiece]] = [[BucketPiece((v,), -1 - v)] for v in range(n)]
    for f, scope in enumerate(scopes):
        waiting[scope[0]].append(BucketPiece(scope, f))
    made: list[tuple[int, ...]] = []
    pieces: list[list[BucketPiece]] = []
    bptr, shared = [0], []
    cells = message_cells = 0.0
    for v in range(n):
        minis = _split(waiting[v], log, i_bound)
        waiting[v] = []
        for own, members in minis:
            k = len(made)
            whole = (v, *sorted(own - {v}))
            made.append(whole)
            pieces.append(members)
            size = 2.0 ** min(sum(log[u] for u in whole), 900.0)
            cells += size
            message_cells += size / card[v]
            if len(whole) > 1:
                waiting[whole[1]].append(BucketPiece(whole[1:], n_tables + k))
        common = set.intersection(*(set(s) for s, _ in minis)) if len(minis) > 1 else set()
        shared.append(tuple(sorted(common)))
        if common:
            message_cells += len(minis) * 2.0 ** min(sum(log[u] for u in common), 900.0)
        bptr.append(len(made))
    return Partition(made, pieces, bptr, shared, cells, message_cells)


def _split(
    pieces: list[BucketPiece], log: list[float], i_bound: float
) -> list[tuple[set[int], list[BucketPiece]]]:
    """One bucket: the largest pieces first, each where it adds the fewest cells."""
    by_size = sorted(pieces, key=lambda p: (-sum(log[u] for u in p.scope), p.source))
    minis: list[tuple[set[int], list[BucketPiece], list[float]]] = []
    for p in by_size:
        best, least = -1, math.inf
        for m, (scope, _, size) in enumerate(minis):
            more = sum(log[u] for u in p.scope if u not in scope)
            if (more == 0.0 or size[0] + more <= i_bound + 1e-9) and more < least:
                best, least = m, more
        if best < 0:
            minis.append((set(p.scope), [p], [sum(log[u] for u in p.scope)]))
        else:
            scope, members, size = minis[best]
            scope.update(p.scope)
            members.append(p)
            size[0] += least
    return [(scope, members) for scope, members, _ in minis]


def _lay_out(
    flat: Flat, order: Ints, found: Order, place: Ints, card: list[int],
    scopes: list[tuple[int, ...]], parts: Partition,
) -> BucketPlan:  # fmt: skip
    """Where everything lies."""
    from minfer.kernels.buckets.passes import Buckets

    n, n_tables, n_minis = len(card), len(scopes), len(parts.scopes)
    sizes = np.array(card, dtype=np.int64)
    base = len(flat.log_psi)
    field_at = base + ends(sizes)[:-1]
    top = base + int(sizes.sum())
    table = np.array([s[0] for s in scopes], dtype=np.int64)
    shift_at, owner = [-1] * n_minis, [0] * n_minis
    for v, (a, b) in enumerate(zip(parts.bptr[:-1], parts.bptr[1:])):
        for k in range(a, b):
            owner[k] = v
            if b - a > 1:
                shift_at[k] = top
                top += math.prod(card[u] for u in parts.shared[v])
    out = []
    for scope in parts.scopes:
        out.append(top)
        top += math.prod(card[u] for u in scope[1:])
    dptr, iptr = [0], [0]
    dims: list[int] = []
    src: list[int] = []
    sptr: list[int] = []
    stride: list[int] = []
    shift: list[int] = []
    for k, (scope, members) in enumerate(zip(parts.scopes, parts.pieces)):
        dims += [card[u] for u in scope]
        dptr.append(len(dims))
        where = {u: d for d, u in enumerate(scope)}
        for p in members:
            step = [0] * len(scope)
            if 0 <= p.source < n_tables:
                at = int(flat.toff[p.source])
                a, b = int(flat.fptr[p.source]), int(flat.fptr[p.source + 1])
                axes = place[flat.scope[a:b]].tolist()
            else:
                at = int(field_at[p.scope[0]]) if p.source < 0 else out[p.source - n_tables]
                axes = list(p.scope)
            _strides(step, axes, card, where)
            src.append(at)
            sptr.append(len(stride))
            stride += step
        shift.append(-1)
        if shift_at[k] >= 0:
            shift[k] = len(src)
            step = [0] * len(scope)
            _strides(step, list(parts.shared[owner[k]]), card, where)
            src.append(shift_at[k])
            sptr.append(len(stride))
            stride += step
        iptr.append(len(src))
    start = np.zeros(top)
    start[:base] = flat.log_psi
    for v in range(n):
        x = int(order[v])
        start[field_at[v] : field_at[v] + card[v]] = flat.field[flat.off[x] : flat.off[x + 1]]
    parent = np.full(n, -1, dtype=np.int64)
    back = np.empty(n, dtype=np.int64)
    back[found.order] = np.arange(n)
    for v, x in enumerate(found.order.tolist()):
        a, length = int(found.start[x]), int(found.length[x])
        if length:
            parent[v] = back[found.pool[a : a + length]].min()
    bptr = np.array(parts.bptr, dtype=np.int64)
    given = (dptr, dims, iptr, src, sptr, stride, out, shift)
    laid = [np.array(values, dtype=np.int64) for values in given]
    buckets = Buckets._make([*laid, bptr, base])
    target = np.array([s[1] if len(s) > 1 else -1 for s in parts.scopes], dtype=np.int64)
    largest = max((sum(math.log2(card[u]) for u in s) for s in parts.scopes), default=0.0)
    whole = partition(scopes, card, math.inf)
    return BucketPlan(
        flat, order, parent, np.diff(bptr) > 1, target, table, field_at, flat.toff.copy(),
        parts.pieces, parts.scopes, start, buckets, math.ceil(largest - 1e-9), parts.cells,
        parts.message_cells, whole.cells, whole.message_cells * BYTES_EXACT,
    )  # fmt: skip


def _strides(step: list[int], axes: Sequence[int], card: list[int], where: dict[int, int]) -> None:
    """The steps of a table, last axis fastest, along the dimensions it has."""
    size = 1
    for u in reversed(axes):
        step[where[u]] = size
        size *= card[u]
