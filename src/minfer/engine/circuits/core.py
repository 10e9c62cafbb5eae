"""A conditioned model as the search takes it: ranged tables, machines that commute, and a core.

Machines of up to ``WRITTEN`` cells are written out as tables. Larger ones whose literals may be
read in any order, all but one perhaps, which then is read as if it came last, stay machines; others
become chains of tables with auxiliary variables (:mod:`minfer.engine.decomposition`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.engine.conditioning import Conditioned
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import Adjacency, Order, eliminate_by, find_order
from minfer.engine.layout import ends, flatten, ranges, table_sizes
from minfer.errors import NOTHING_POSSIBLE, ContradictionError, RefusedError
from minfer.factors.group import FactorGroup
from minfer.kernels.circuits.bottom import BottomArrays, TableArrays, eliminate_small
from minfer.kernels.circuits.residuals import (
    FoldableMachines,
    FoldedArrays,
    SupportArrays,
    fold,
    supports,
)
from minfer.kernels.circuits.search import CoreArrays

#: A clique of at most so many cells is eliminated densely before the search.
SMALL = 256
#: A machine of at most so many cells is written out as a table.
WRITTEN = 256
#: Of a longer machine an order sees a path over its variables, not a clique.
LONG = 40
#: Edges of all folded factors, beyond which a model is refused; entries of supports of one table
#: and of all, beyond which zeros are only seen when they are met.
MAX_EDGES, MAX_SUPPORT, MAX_SUPPORTS = 1 << 26, 1 << 15, 1 << 24
#: What an edge and an entry take while they are made, about.
EDGE_BYTES, SUPPORT_BYTES = 100.0, 50.0
_RANGE = 256.0 * math.log(2.0)
_FARTHEST = 1e8  # of a logarithm


@dataclass(frozen=True)
class Ready:
    """A model in ranged tables and machines. V variables, auxiliary ones included."""

    tables: TableArrays
    machines: list[_Group]
    free: NDArray[np.bool_]  # (V,) not fixed
    constant: float


class _Group(NamedTuple):
    """Machines of one kind and arity, in commuting form."""

    scope: NDArray[np.int32]  # (F, A)
    literal: NDArray[np.int32]  # (F, A) as in FoldableMachines
    last: NDArray[np.bool_]  # (A,)
    step: NDArray[np.int32]  # (K, 4)
    start: NDArray[np.int32]  # (F,)
    final: NDArray[np.float64]  # (F, K) logarithms


def ranged(
    logs: NDArray[np.float64], start: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
    """Numbers v 2^(256 e) in place of logarithms, each segment from ``start`` (F,) on divided by
    its largest; and the logarithms of those, (F,)."""
    if not len(logs):
        return logs, np.zeros(0, np.int32), np.zeros(len(start))
    order = np.argsort(start, kind="stable")
    bounds = start[order]
    top = np.empty(len(start))
    top[order] = np.maximum.reduceat(logs, bounds)
    if (top == -np.inf).any():
        raise ContradictionError(NOTHING_POSSIBLE)
    sizes = np.diff(np.append(bounds, len(logs)))
    low = logs - np.repeat(top[order], sizes)
    exponent = np.zeros(len(logs), dtype=np.int32)
    far = np.flatnonzero(low < -_RANGE)
    if len(far):
        some = low[far]
        if (some[some > -np.inf] < -_FARTHEST).any():
            raise RefusedError(
                "circuit: numbers of one factor lie further apart than e^1e8; write -inf for what "
                'is impossible, or use Exact(method="clique-tree")'
            )
        some = np.where(some > -np.inf, np.ceil(some / _RANGE), 0.0)
        exponent[far] = some.astype(np.int32)
        low[far] -= some * _RANGE
    return np.exp(low), exponent, top


def ready(model: Conditioned, free: NDArray[np.bool_] | None = None) -> Ready:
    """The model in ranged tables and machines; the field of ``free`` (V,) variables left out."""
    tables: list[FactorGroup] = []
    machines: list[_Group] = []
    for g in model.groups:
        if g.form == "machine" and g.n_cells <= WRITTEN:
            tables.append(g.as_tables())
        elif g.form != "machine" or (found := _commuting(g)) is None:
            tables.append(g)
        else:
            machines.append(found)
    whole = only_tables(replace(model, groups=tuple(tables)), "circuit", best=True)
    flat = flatten(whole)
    n, extra = len(flat.card), len(flat.card) - model.graph.n_variables
    known, open_ = whole.fixed, np.zeros(len(flat.card), dtype=bool)
    if free is not None:
        open_[: n - extra] = free
    field = np.where(np.repeat(open_, flat.card), 0.0, flat.field)
    at = np.flatnonzero(known >= 0)
    constant = whole.constant + float(field[flat.off[at] + known[at]].sum())
    own, own_e, top = ranged(field, flat.off[:-1])
    constant += float(top[known < 0].sum())
    start, which = np.unique(flat.toff, return_inverse=True)
    value, value_e, top = ranged(flat.log_psi, start)
    constant += float(top[which].sum())
    if not constant < np.inf:
        raise RefusedError("circuit: the numbers of this model, multiplied, leave the range")
    arrays = TableArrays(
        flat.card.astype(np.int64), flat.off.astype(np.int64), own, own_e, flat.fptr,
        flat.scope.astype(np.int32), flat.toff, value, value_e,
    )  # fmt: skip
    return Ready(arrays, machines, known < 0, constant)


def _commuting(group: FactorGroup) -> _Group | None:
    """Machines whose literals may be read in any order, the last one apart; None: they may not."""
    m = group.machine()
    arity, n_ends = len(m.step), m.final.shape[1]
    common = m.step[0]
    same = (m.step == common).all(axis=(1, 2))
    turned = ~same & (m.step == common[:, ::-1]).all(axis=(1, 2))
    late = np.zeros(arity, dtype=bool)
    late[-1] = not (same[-1] or turned[-1])
    if not (same | turned | late).all():
        return None
    one = np.concatenate([common, [[-1, -1]]])  # what follows -1 is -1
    if not np.array_equal(one[one[:, 0], 1], one[one[:, 1], 0]):
        return None
    stay = np.arange(n_ends, dtype=np.int32)
    final = np.broadcast_to(m.final, (len(group), n_ends))
    if not late[-1]:
        step = np.stack([common[:, 0], common[:, 1], stay, stay], axis=1)
    else:  # before the last one, after it was false, after it was true
        blocks = [np.where(common < 0, -1, common + b * n_ends) for b in range(3)]
        after = [np.stack([stay + n_ends, stay + 2 * n_ends], axis=1)]
        after += [np.stack([stay + b * n_ends] * 2, axis=1) for b in (1, 2)]
        step = np.concatenate([np.concatenate(blocks), np.concatenate(after)], axis=1)
        then = [m.step[-1][:, bit] for bit in range(2)]
        weights = [np.full_like(final, -np.inf)]
        weights += [np.where(t < 0, -np.inf, final[:, t]) for t in then]
        final = np.concatenate(weights, axis=1)
    literal = np.where(turned, -1 - m.literal, m.literal)
    return _Group(
        group._scope, literal.astype(np.int32), late, np.ascontiguousarray(step, dtype=np.int32),
        m.start.astype(np.int32), final,
    )  # fmt: skip


def machine_arrays(
    groups: Sequence[_Group], position: NDArray[np.int32]
) -> tuple[FoldableMachines, NDArray[np.float64]]:
    """All machines end to end, variables by their place in the order; and the logarithms of the
    numbers that their weights were divided by."""
    parts: list[tuple[NDArray, ...]] = []
    kinds: dict[bytes, int] = {}
    steps: list[NDArray] = []
    for g in groups:
        where = position[g.scope]
        order = np.argsort(where, axis=1, kind="stable")
        key = g.step.tobytes()
        if key not in kinds:
            kinds[key] = len(steps)
            steps.append(g.step)
        n, arity = g.scope.shape
        parts.append((
            np.full(n, arity), np.take_along_axis(where, order, axis=1).ravel(),
            np.take_along_axis(g.literal, order, axis=1).ravel(), g.last[order].ravel(),
            np.full(n, kinds[key]), g.start, np.full(n, g.final.shape[1]), g.final.ravel(),
        ))  # fmt: skip
    none = np.zeros(0)
    cols = [np.concatenate(c) for c in zip(*parts)] if parts else [none] * 8
    foff = ends(cols[6].astype(np.int64))
    final, final_e, top = ranged(cols[7], foff[:-1])
    step = np.concatenate(steps) if steps else np.zeros((0, 4))
    arrays = FoldableMachines(
        ends(cols[0].astype(np.int64)), cols[1].astype(np.int32), cols[2].astype(np.int32),
        cols[3].astype(np.bool_), cols[4].astype(np.int32), cols[5].astype(np.int32), foff[:-1],
        final, final_e, ends([len(s) for s in steps]), step.astype(np.int32),
    )  # fmt: skip
    return arrays, top


def links_of(
    tables: TableArrays, scopes: Sequence[NDArray], which: NDArray[np.bool_],
    rank: NDArray[np.int64] | None = None,
) -> Adjacency:  # fmt: skip
    """Which of the variables ``which`` (V,) share a table or a machine, of ``scopes`` (F, A) each.
    Long machines link neighbours by ``rank`` (V,), or in their scopes."""
    from minfer.kernels.cliques.elimination import link_scopes

    sizes, parts = [np.diff(tables.fptr)], [tables.scope]
    for scope in scopes:
        if scope.shape[1] > LONG:
            if rank is not None:
                scope = np.take_along_axis(scope, np.argsort(rank[scope], axis=1), axis=1)
            scope = np.stack([scope[:, :-1], scope[:, 1:]], axis=2).reshape(-1, 2)
        sizes.append(np.full(len(scope), scope.shape[1]))
        parts.append(scope.ravel())
    variables = np.flatnonzero(which)
    number = np.full(len(which), -1, dtype=np.int32)
    number[variables] = np.arange(len(variables), dtype=np.int32)
    scope = np.concatenate(parts).astype(np.int32)
    ptr, near = link_scopes(scope, ends(np.concatenate(sizes)), number, len(variables))
    return Adjacency(variables, ptr, near, np.log2(tables.card[variables].astype(np.float64)))


class Bottom(NamedTuple):
    """What the dense stage left."""

    arrays: BottomArrays
    tables: TableArrays  # those left
    log_scale: float
    raised: bool


def eliminate_bottom(start: Ready, small: int, max_nodes: int) -> Bottom:
    """The dense stage, in an order that suits the whole model."""
    tables = start.tables
    scopes = [g.scope for g in start.machines]
    links = links_of(tables, scopes, start.free)
    blocked = ~start.free
    for scope in scopes:
        blocked[scope] = True
    order = links.variables[_first_order(links).order].astype(np.int32)
    found, whole, whole_e, status = eliminate_small(tables, order, blocked, small, max_nodes)
    if status == 0:
        raise ContradictionError(NOTHING_POSSIBLE)
    if status < 0:
        raise RefusedError(
            "circuit: more nodes than memory holds before the search began; raise max_gib, observe "
            "more variables, or use Auto()"
        )
    left = tables._replace(
        fptr=found.fptr, scope=found.scope, toff=found.toff, value=found.value,
        value_e=found.value_e,
    )  # fmt: skip
    return Bottom(found, left, start.constant + math.log(whole) + _RANGE * whole_e, status == 2)


def _first_order(links: Adjacency) -> Order:
    """An elimination of everything; what it cannot order in reasonable time comes last."""
    found = find_order(links)
    if found.n_done < len(found.order):
        rest = np.ones(len(found.order), dtype=bool)
        rest[found.order[: found.n_done]] = False
        found.order[found.n_done :] = np.flatnonzero(rest)
    return found


@dataclass(frozen=True)
class Core:
    """What the search runs on."""

    arrays: CoreArrays
    folded: FoldedArrays
    rules: SupportArrays
    log_scale: float
    contexts: NDArray[np.float64]  # (n,) log2 of the keys that a variable can have, at most
    depth: int


def core_of(start: Ready, bottom: Bottom, rank: NDArray[np.int64], room: float) -> Core:
    """The core with variables in the order of ``rank`` (V,), the first one the root's; ``room``:
    bytes that it may take, about."""
    b, tables = bottom.arrays, bottom.tables
    scopes = [g.scope for g in start.machines]
    left = b.left & start.free
    links = links_of(tables, scopes, left, rank)
    n = len(links.variables)
    tree = eliminate_by(links, 2, 0, math.inf, "given", -rank[links.variables].astype(float),
                        math.inf, 1e300)  # fmt: skip
    local = tree.order[::-1]  # in the order of the search
    variables = links.variables[local]
    position = np.full(len(left), -1, dtype=np.int32)
    position[variables] = np.arange(n, dtype=np.int32)
    place = np.empty(n, dtype=np.int64)
    place[local] = np.arange(n)
    # the parent is the last decided of the variables that a variable was eliminated with
    length = tree.length[local]
    near = place[tree.pool[ranges(tree.start[local], length)]]
    parent = np.full(n, -1, dtype=np.int32)
    bits = np.zeros(n)
    some = length > 0
    if some.any():
        begin = (np.cumsum(length) - length)[some]
        parent[some] = np.maximum.reduceat(near, begin)
        bits[some] = np.add.reduceat(links.log_card[local[near]], begin)
    card = tables.card[variables]
    machines, tops = machine_arrays(start.machines, position)
    most = int(min(MAX_EDGES, room / EDGE_BYTES))
    folded, too_many = fold(
        position, tables.fptr, tables.scope, tables.toff, tables.value, tables.value_e, b.node,
        card, machines, most,
    )  # fmt: skip
    if too_many:
        raise RefusedError(
            f"circuit: its factors have more than {most:,} states in between; raise max_gib, or "
            "use BeliefPropagation"
        )
    if (folded.scale == 0.0).any():
        raise ContradictionError(NOTHING_POSSIBLE)
    scale = np.log(folded.scale) + _RANGE * folded.scale_e
    rules = supports(
        position, tables.fptr, tables.scope, tables.toff, tables.value, card, machines,
        MAX_SUPPORT, int(min(MAX_SUPPORTS, room / SUPPORT_BYTES)),
    )  # fmt: skip
    # factors of a variable, over it, that end at it
    fptr = np.append(tables.fptr[:-1], tables.fptr[-1] + machines.fptr)
    scope = np.append(position[tables.scope], machines.position).astype(np.int32)
    factor = np.repeat(np.arange(len(fptr) - 1, dtype=np.int32), np.diff(fptr))
    at_ptr, at = _by(scope, factor, n)
    over_ptr, over, long_bits = _crossing(fptr, scope, parent, machines, len(tables.toff))
    has = np.zeros(len(fptr) - 1, dtype=bool)
    has[: len(tables.toff)] = b.node[tables.toff] >= 0
    sizes = table_sizes(tables.card.astype(np.int32), tables.fptr, tables.scope)
    for f in np.flatnonzero(~has[: len(sizes)]).tolist():  # its first cell may be a zero
        has[f] = bool((b.node[tables.toff[f] : tables.toff[f] + sizes[f]] >= 0).any())
    deepest = np.maximum.reduceat(scope, fptr[:-1]) if len(fptr) > 1 else scope
    end_ptr, end = _by(deepest[has], np.flatnonzero(has).astype(np.int32), n)
    rule_of = np.repeat(np.arange(len(rules.start)), rules.factor[:, 3] - rules.factor[:, 2])
    rule_ptr, picked = _by(rules.place[:, 0], np.arange(len(rule_of), dtype=np.int32), n)
    rule = np.stack([rule_of[picked], rules.place[picked, 1], rules.place[picked, 2]], axis=1)
    child_of = np.flatnonzero(parent >= 0).astype(np.int32)
    below_ptr, below = _by(parent[child_of], child_of, n)
    states = ranges(tables.off[variables], card)
    own_node = b.own_node[states]
    off = ends(card)
    has_node = np.zeros(n, dtype=bool)
    has_node[np.repeat(np.arange(n), card)[own_node >= 0]] = True
    kids = (np.diff(below_ptr) + np.diff(end_ptr) + has_node).astype(np.int32)
    arrays = CoreArrays(
        variables.astype(np.int32), card, off, tables.own[states], tables.own_e[states], own_node,
        has_node, _salts(variables), parent, below_ptr, below, at_ptr, at, over_ptr, over, end_ptr,
        end, kids, ends(card * kids)[:-1], rule_ptr, rule,
    )  # fmt: skip
    depth = np.zeros(n, dtype=np.int64)
    for x, p in enumerate(parent.tolist()):
        depth[x] = depth[p] + 1 if p >= 0 else 1
    return Core(
        arrays, folded, rules, float(scale.sum() + tops.sum()), bits + long_bits,
        int(depth.max(initial=0)),
    )  # fmt: skip


def _by(owner: NDArray, item: NDArray[np.int32], n: int) -> tuple[NDArray[np.int32], NDArray]:
    """Items by owner, in their order: ptr (n+1,) and items."""
    order = np.argsort(owner, kind="stable")
    return ends(np.bincount(owner, minlength=n)).astype(np.int32), item[order]


def _crossing(
    fptr: NDArray[np.int64], scope: NDArray[np.int32], parent: NDArray[np.int32],
    machines: FoldableMachines, n_tables: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:  # fmt: skip
    """Factors over variables both above x and in its subtree, by x; and for each x the log2 of the
    states of the long machines among them."""
    owner: list[int] = []
    item: list[int] = []
    up = parent.tolist()
    bits = np.zeros(len(parent))
    if len(fptr) > 1:
        deep = np.maximum.reduceat(scope, fptr[:-1]).tolist()
        high = np.minimum.reduceat(scope, fptr[:-1]).tolist()
        arity = np.diff(fptr).tolist()
        for f, (x, top) in enumerate(zip(deep, high)):
            m = f - n_tables
            long = m >= 0 and arity[f] > LONG
            while x != top:
                owner.append(x)
                item.append(f)
                if long:
                    kind = machines.kind[m]
                    bits[x] += math.log2(machines.koff[kind + 1] - machines.koff[kind])
                x = up[x]
    ptr, items = _by(np.array(owner, np.int64), np.array(item, np.int32), len(parent))
    return ptr, items, bits


def _salts(variables: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Two random 64-bit numbers for each variable, (n, 2), the same in every run."""
    seeds = np.random.SeedSequence(20371)
    words = np.random.Generator(np.random.PCG64(seeds)).integers(
        0, np.iinfo(np.uint64).max, (int(variables.max(initial=-1)) + 1, 2), dtype=np.uint64
    )
    return words[variables]
