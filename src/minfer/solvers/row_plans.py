"""Exact answers for many rows on one structure: a clique tree planned once, eight rows abreast.

A *row* is what differs between questions to one model: observed states, a field, or the tables'
numbers (:mod:`minfer.kernels.cliques.rows` has the formulas).

**Evidence enters as zeros**, so one plan serves every pattern of observed variables; a plan for one
set takes them out of the tree, and observed states select slices of the tables
(:mod:`minfer.solvers.plans` chooses).

**Small inputs meet first.** In a clique much larger than two of its inputs (messages of children,
fields), these are multiplied in a node of their own, over their variables only, and come in as one;
no node has more than eight, so that no product leaves the range of floats.

**Never wrong in silence.** The numbers are linear. A bound on what underflow may have cost goes
along, and rows for which it is not negligible are reported as ``unsafe``, for the clique tree in
logarithms to solve; a row is called impossible only if nothing was lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.engine.elimination import CliqueTree, rooted_at
from minfer.engine.layout import Flat
from minfer.errors import EvidenceError, SettingsError
from minfer.kernels.cliques.rows import (
    BOTH_PASSES,
    CELLS,
    ENTRIES,
    INPUTS,
    INPUTS_END,
    MOST_INPUTS,
    S_MAP,
    S_SIZE,
    UNUSED,
    PackedTree,
    RowInputs,
    RowNumbers,
    SolvedRows,
    index_maps,
    live_cells,
    one_row,
    reached_entries,
    run_rows,
    shared_fields,
    shared_products,
    shared_slices,
    start_one,
    without_dead,
)

#: A plan with more cells is not made: eight rows' beliefs would fill 128 MiB.
MAX_CELLS = float(1 << 21)
NS_PER_CELL = 3.0  # both passes, one row, measured: 2 to 4
NS_PER_VARIABLE = 45_000.0  # planning for an observed set, measured: 33 to 55 thousand
_NODE_CELLS = 12  # what a node costs beside its cells, in cells
_CHUNK = 128  # rows, whole vectors of them: fewer are not worth a thread
_NO_NUMBERS, _NO_STATES = np.empty((0, 0)), np.empty((0, 0), dtype=np.int32)


class SharedNumbers(NamedTuple):
    """``layout`` and ``rows.psi`` are without the cells that no row can reach."""

    layout: PackedTree
    rows: RowNumbers
    constant: float
    whole_psi: NDArray[np.float64]  # of all cells: for the tables' marginals


@dataclass(eq=False)
class RowPlan:
    """A structure prepared for rows: made once, loaded with what all rows share, then run."""

    flat: Flat  # its structure; its numbers are not read
    tree: CliqueTree
    layout: PackedTree | None  # None: too wide without evidence
    n_table_cells: int
    numbers: SharedNumbers | None = None
    constant: float | None = None  # as it was loaded

    @classmethod
    def make(
        cls,
        flat: Flat,
        tree: CliqueTree,
        observed: NDArray[np.bool_] | None = None,
        target: int | None = None,
        entering: NDArray[np.bool_] | None = None,
        most: float | None = None,
    ) -> RowPlan:
        """Plan for all observed sets, or for one, whose variables are not in the tree.

        With a ``target`` that is not observed, or none at all (-1), a first pass is laid out alone;
        ``entering`` are the variables that some rows observe, and those that have a field.
        """
        sizes, layout = flat.sizes, None
        if tree.complete and tree.cells <= (MAX_CELLS if most is None else most):
            if target is not None and target >= 0:
                tree = rooted_at(tree, target)
            nobody = np.zeros(len(flat.card), dtype=bool)
            cut = nobody if observed is None else observed
            layout = lay_out(flat, tree, sizes, cut, entering, target != -1)
        return cls(flat, tree, layout, int(sizes.sum()))

    @property
    def width(self) -> int:
        """Probabilities of a row."""
        answer = BOTH_PASSES if self.layout is None else self.layout.answer
        if self.layout is None or answer == BOTH_PASSES:
            return int(self.flat.off[-1])
        return int(self.layout.nodes[answer, ENTRIES]) if answer >= 0 else 0

    def load(
        self, log_psi: NDArray[np.float64], field: NDArray[np.float64], constant: float = 0.0
    ) -> None:
        """Enter what all rows share: tables as in ``flat``, a field (sum S,), a constant."""
        self.constant, self.numbers = float(constant), None
        if self.layout is not None:
            given = _plain(log_psi), _plain(field), self.constant
            self.numbers = _numbers(self.flat, self.layout, *given)

    def run(
        self,
        field: NDArray[np.float64] | None = None,
        evidence: NDArray[np.int32] | None = None,
        log_psi: NDArray[np.float64] | None = None,
        *,
        joints: bool = False,
        workers: int = 1,
    ) -> SolvedRows:
        """Marginals of every variable, or of the plan's target, for each row, and log Z; with
        ``joints`` those of all tables, too.

        Rows bring logarithms to add to the field (N, sum S), observed states (N, V), -1 where a
        variable is free, and tables in place of those that were loaded (N, cells).
        """
        if self.constant is None:
            raise SettingsError("RowPlan.run: no numbers yet; call load first")
        own = [
            none if x is None else _plain(x, none.dtype.type)
            for x, none in ((evidence, _NO_STATES), (field, _NO_NUMBERS), (log_psi, _NO_NUMBERS))
        ]
        n = max(len(x) for x in own)
        found = SolvedRows(
            np.empty((n, self.width)), np.empty(n), np.zeros(n, dtype=bool),
            np.empty((n, self.n_table_cells)) if joints else _NO_NUMBERS,
        )  # fmt: skip
        if self.layout is None or self.numbers is None:
            for x in (found.probs, found.log_z, found.joints):
                x[:] = np.nan
            found.unsafe[:] = True
            return found
        rows = RowInputs(*own)
        layout, numbers, constant, whole_psi = self.numbers
        if len(found.joints) or len(rows.log_psi):
            layout, numbers = self.layout, numbers._replace(psi=whole_psi)
        if len(rows.log_psi):
            constant = self.constant

        def some(first: int, past: int) -> None:
            mine, out = (
                kind(*(x[first:past] if len(x) > past - first else x for x in arrays))
                for kind, arrays in ((RowInputs, rows), (SolvedRows, found))
            )
            wrong = run_rows(layout, numbers, mine, constant, out)
            if wrong >= 0:
                states, card = rows.evidence[first + wrong], self.flat.card
                v = int(np.flatnonzero(states >= card)[0])
                raise EvidenceError(
                    f"variable {v} has {card[v]} states, counted from 0, but a row of "
                    f"evidence has the state {states[v]}"
                )

        spread(some, n, workers)
        return found


def observed_sets(evidence: NDArray[np.int32], few: int) -> list[NDArray[np.int64]]:
    """The rows of each observed set that more than ``few`` rows have."""
    weights = np.random.default_rng(0).integers(0, 1 << 63, evidence.shape[1], dtype=np.uint64)
    keys = (evidence >= 0).astype(np.uint64) @ weights  # mod 2^64
    ordered = np.sort(keys)
    if not (ordered[few:] == ordered[: max(len(keys) - few, 0)]).any():
        return []
    groups = np.split(
        np.argsort(keys, kind="stable"), np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    )
    out = []
    for mine in groups:
        if len(mine) > few:
            seen = evidence[mine] >= 0
            out.append(mine[(seen == seen[0]).all(axis=1)])  # not by its key alone
    return out


class OneRow:
    """A first pass over a loaded plan for one row at a time: one lane, and next to no overhead.

    Rows bring the states of ``observed``, which the plan has taken out of its tree and which have
    no field. Messages that no evidence touches are made once.
    """

    def __init__(self, plan: RowPlan, observed: Sequence[int]) -> None:
        assert plan.numbers is not None
        layout, numbers, constant, _ = plan.numbers
        place = np.full(len(numbers.card), -1, dtype=np.int64)
        place[observed] = np.arange(len(observed))
        picks = layout.picks.copy()
        picks[:, 0] = place[picks[:, 0]]
        base, todo = start_one(
            layout.nodes, layout.inputs, layout.slices, layout.maps, numbers.psi, numbers.shared,
            numbers.field, len(place),
        )  # fmt: skip
        base[-1] = constant + numbers.shared[4, : len(place)].sum()
        self.kernel, self.room = one_row, plan.width + 2
        self.arguments = (
            layout.nodes, layout.inputs, layout.slices, picks, layout.maps, numbers.psi,
            numbers.table, todo, base, layout.answer,
        )  # fmt: skip

    def __call__(self, states: list[int]) -> tuple[NDArray[np.float64], bool]:
        """Probabilities and, behind them, log Z and what it may lack; whether the row is unsafe."""
        out = np.empty(self.room)
        return out, self.kernel(*self.arguments, np.array(states, dtype=np.int64), out)


def _plain(x: NDArray, kind: type = np.float64) -> NDArray:
    """As kernels want arrays: C-contiguous, writable, of one type."""
    if x.dtype == kind and x.flags.carray:
        return x
    return np.require(x, dtype=kind, requirements=["C", "W"])


def spread(work: Callable[[int, int], None], n: int, workers: int) -> None:
    """Chunks of whole vectors of rows, in threads."""
    if workers <= 1 or n <= _CHUNK:
        work(0, n)
        return
    from minfer.basics.parallel import in_threads

    size = _CHUNK * -(-n // (4 * workers * _CHUNK))
    in_threads(lambda first: work(first, min(first + size, n)), range(0, n, size), workers)


# ---------------------------------------------------------------- layout


class _Node:
    """A clique, or a place where inputs meet."""

    __slots__ = ("inputs", "separator", "variables")

    def __init__(self, separator: list[int], rest: list[int]) -> None:
        self.separator = separator
        self.variables = separator + rest  # the separator outermost
        self.inputs: list[tuple[str, int]] = []  # ("field", v), ("slice", t) or ("node", number)


def lay_out(
    flat: Flat,
    tree: CliqueTree,
    sizes: NDArray[np.int64],
    observed: NDArray[np.bool_],
    entering: NDArray[np.bool_] | None = None,
    answer: bool = True,
) -> PackedTree:
    """Nodes, their inputs and all maps; ``observed`` variables are not in the tree.

    ``entering`` (V,) lays out the first pass alone: the variables whose fields are inputs; with
    ``answer`` the message of the last clique is asked for (:func:`rooted_at`).
    """
    card = flat.card.tolist()
    scope, fptr = flat.scope.tolist(), flat.fptr.tolist()
    scopes = [scope[a:b] for a, b in pairwise(fptr)]
    seen = observed.tolist()
    any_seen = bool(observed.any())
    free = [[v for v in s if not seen[v]] for s in scopes] if any_seen else scopes
    cut = [t for t, s in enumerate(scopes) if len(free[t]) < len(s)] if any_seen else []
    fields = None if entering is None else entering.tolist()
    nodes, of_clique = _nodes(card, tree, seen, [(t, free[t]) for t in cut], MOST_INPUTS, fields)
    n_nodes, is_cut = len(nodes), set(cut)
    # where things lie: fields, slices, messages
    slice_at, at = {}, int(flat.off[-1])
    for t in cut:
        slice_at[t] = at
        at += math.prod([card[v] for v in free[t]])
    offsets = flat.off.tolist()
    cells = [math.prod([card[v] for v in node.variables]) for node in nodes]
    entries = [math.prod([card[v] for v in node.separator]) for node in nodes]
    message = list(accumulate(entries, initial=at))
    first = list(accumulate(cells, initial=0))[:-1]
    ends = list(accumulate(entries, initial=0))
    # inputs
    is_root = [True] * n_nodes
    n_variables, slice_number = len(card), {t: i for i, t in enumerate(cut)}
    found: list[tuple[int, list[int], int, int]] = []
    in_ptr = [0]
    for c, node in enumerate(nodes):
        for kind, k in node.inputs:
            if kind == "node":
                found.append((c, nodes[k].separator, message[k], n_variables + len(cut) + k))
                is_root[k] = False
            elif kind == "field":
                found.append((c, [k], offsets[k], k))
            else:
                found.append((c, free[k], slice_at[k], n_variables + slice_number[k]))
        in_ptr.append(len(found))
    n_inputs = len(found)
    which, over = [x[0] for x in found], [x[1] for x in found]
    source, bound = [x[2] for x in found], [x[3] for x in found]
    whole = [t for t in range(len(scopes)) if t not in is_cut]
    homes = tree.homes(*_ragged([scopes[t] for t in whole])).tolist()
    table_node = [of_clique[c] for c in homes]
    which += table_node
    over += [scopes[t] for t in whole]
    start = list(accumulate([cells[c] for c in which], initial=ends[-1]))
    n_maps = start.pop()
    slices, picks, more_maps = _slices(flat, scopes, seen, cut, list(slice_at.values()), n_maps)
    maps = np.empty(n_maps + len(more_maps), dtype=np.int32)
    maps[n_maps:] = more_maps
    width = [n // k for n, k in zip(cells, entries)]
    past = np.cumsum(np.repeat(width, entries))
    maps[: ends[-1]] = past - np.repeat(first, entries)
    index_maps(
        flat.card, *_ragged([node.variables for node in nodes]), np.array(which, dtype=np.int64),
        *_ragged(over), np.array(start, dtype=np.int64), maps,
    )  # fmt: skip
    kinds = observed.astype(np.uint8), BOTH_PASSES
    if entering is not None:
        unused = np.where(entering, 0, UNUSED).astype(np.uint8)
        kinds = unused, of_clique[-1] if answer else -1
    toff = flat.toff[whole]  # some tables are several factors'
    _, where, which_of = np.unique(toff, return_index=True, return_inverse=True)
    same = where[which_of.ravel()]
    return PackedTree(
        _columns(cells, entries, first, ends[:-1], message[:-1], in_ptr[:-1], in_ptr[1:], is_root),
        _columns(source, start[:n_inputs], bound),
        _columns(table_node, start[n_inputs:], toff, sizes[whole], same),
        slices, picks, maps, *kinds,
    )  # fmt: skip


def _slices(
    flat: Flat,
    scopes: list[list[int]],
    seen: list[bool],
    cut: list[int],
    slice_at: list[int],
    n_maps: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """For tables with observed variables: where slices lie, the steps of the observed variables,
    and maps from the entries of a slice into its table."""
    slices: list[tuple[int, ...]] = []
    picks: list[tuple[int, int]] = []
    maps: list[int] = []
    card, toff = flat.card.tolist(), flat.toff.tolist()
    for t, into in zip(cut, slice_at):
        step, n_picks = 1, len(picks)
        index = [0]
        for v in reversed(scopes[t]):
            states = card[v]
            if seen[v]:
                picks.append((v, step))
            else:
                index = [s * step + i for s in range(states) for i in index]
            step *= states
        slices.append((toff[t], len(index), n_maps, into, n_picks, len(picks), step))
        maps += index
        n_maps += len(index)
    return (
        np.array(slices, dtype=np.int64).reshape(-1, 7),
        np.array(picks, dtype=np.int64).reshape(-1, 2),
        np.array(maps, dtype=np.int32),
    )


def _columns(*columns: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """A table of integers by its columns."""
    return np.array(columns, dtype=np.int64).T.copy()


def _ragged(lists: Sequence[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    ptr = np.array([0, *accumulate(map(len, lists))], dtype=np.int64)
    return ptr, np.array([v for x in lists for v in x], dtype=np.int32)


def _nodes(
    card: list[int],
    tree: CliqueTree,
    seen: list[bool],
    cut: list[tuple[int, list[int]]],
    most: int,
    fields: list[bool] | None = None,
) -> tuple[list[_Node], list[int]]:
    """Nodes in an order in which children come first; the node of each clique.

    ``cut``: tables of which rows select a slice, with its variables; ``fields``: if not all enter.
    """
    ptr, variables = tree.ptr.tolist(), tree.variables.tolist()
    n_eliminated, parent = tree.n_eliminated.tolist(), tree.parent.tolist()
    position, home = tree.position.tolist(), tree.home.tolist()
    n_cliques = len(parent)
    cliques = [variables[a:b] for a, b in pairwise(ptr)]
    size = [int(x) for x in tree.clique_cells.tolist()]
    smallest: dict[int, int] = {}
    for c, clique in enumerate(cliques):
        for v in clique:
            if v not in smallest or size[c] < size[smallest[v]]:
                smallest[v] = c
    items: list[list[tuple[str, int, list[int]]]] = [[] for _ in range(n_cliques)]
    for v, c in smallest.items():
        if fields is None or fields[v]:
            items[c].append(("field", v, [v]))
    nodes: list[_Node] = []
    constants = []
    for t, scope in cut:
        if scope:
            items[home[min(scope, key=position.__getitem__)]].append(("slice", t, scope))
        else:
            constants.append(("slice", t))
    of_clique = []
    for c, clique in enumerate(cliques):
        separator = clique[n_eliminated[c] :]
        node = _Node(separator, clique[: n_eliminated[c]])
        node.inputs = _meet(nodes, items[c], card, clique, size[c], most)
        of_clique.append(len(nodes))
        nodes.append(node)
        if parent[c] >= 0:
            items[parent[c]].append(("node", of_clique[c], separator))
    # what is in no clique: fixed variables, tables of which every variable is observed
    loose: list[tuple[list[int], list[tuple[str, int]]]]
    loose = [([v], [("field", v)]) for v in range(len(card)) if home[v] < 0 and not seen[v]]
    for i in range(0, len(constants), most):
        loose.append(([], constants[i : i + most]))
    for scope, inputs in loose:
        node = _Node([], scope)
        node.inputs = inputs
        nodes.append(node)
    return nodes, of_clique


def _meet(
    nodes: list[_Node],
    items: list[tuple[str, int, list[int]]],
    card: list[int],
    clique: list[int],
    size: int,
    most: int,
) -> list[tuple[str, int]]:
    """The inputs of a clique, ``most`` or fewer; appends the nodes in which some meet first: those
    over whose variables a node has less than a quarter of the clique's cells, the fewest first."""
    if len(items) < 2:
        return [(kind, k) for kind, k, _ in items]
    bit = {v: 1 << i for i, v in enumerate(clique)}
    n_cells: dict[int, int] = {}
    meeting: set[int] = set()

    def cells(mask: int) -> int:
        if mask not in n_cells:
            n_cells[mask] = math.prod([card[v] for v in clique if bit[v] & mask])
        return n_cells[mask]

    def joined(mask: int, members: list[tuple[int, str, int]]) -> tuple[int, str, int]:
        node = _Node([v for v in clique if bit[v] & mask], [])
        node.inputs = [item[1:] for item in members]
        nodes.append(node)
        meeting.add(len(nodes) - 1)
        return mask, "node", len(nodes) - 1

    have = [(sum(bit[v] for v in scope), kind, k) for kind, k, scope in items]
    if len(have) > most:  # many of one scope, as in naive Bayes: by handfuls
        by_mask: dict[int, list[tuple[int, str, int]]] = {}
        for item in have:
            by_mask.setdefault(item[0], []).append(item)
        have = []
        for mask, same in by_mask.items():
            while len(same) > 1:
                handfuls = [same[i : i + most] for i in range(0, len(same), most)]
                same = [joined(mask, some) if len(some) > 1 else some[0] for some in handfuls]
            have += same
    while len(have) > 1:
        fewest, a, b = min(
            (cells(have[a][0] | have[b][0]), a, b) for a in range(len(have)) for b in range(a)
        )
        if 4 * fewest + _NODE_CELLS > size and len(have) <= most:
            break
        pair = [have.pop(a), have.pop(b)]
        mask = pair[0][0] | pair[1][0]
        # a node over the same variables has room for another input, if that is made before it
        pair.sort(key=lambda item: item[2] if item[1] == "node" else -1)
        other, host = pair
        is_meeting = host[1] == "node" and host[2] in meeting and host[0] == mask
        if is_meeting and len(nodes[host[2]].inputs) < most:
            nodes[host[2]].inputs.append(other[1:])
            have.append(host)
        else:
            have.append(joined(mask, pair))
    return [item[1:] for item in have]


# ---------------------------------------------------------------- numbers


def _numbers(
    flat: Flat, layout: PackedTree, log_psi: NDArray, log_field: NDArray, constant: float
) -> SharedNumbers:
    """Products of tables over the nodes, and what bounds need to know of them."""
    n_nodes, n_slices, n_variables = len(layout.nodes), len(layout.slices), len(flat.card)
    n_cells = int(layout.nodes[:, CELLS].sum())
    psi, live = np.empty(n_cells), np.empty(n_cells, dtype=np.uint8)
    shared = np.zeros((7, max(n_nodes, n_variables, n_slices)))
    top = np.empty(n_nodes)
    n_zero = shared_products(
        layout.nodes, layout.tables, layout.maps, log_psi, psi, live, top, shared[0], shared[1]
    )
    field = np.empty(len(log_field))
    shared_fields(flat.off, log_field, field, shared[4], shared[2], shared[3])
    constant += float(top.sum())
    table = np.zeros(0)
    reached = np.zeros(0, dtype=np.uint8)
    if n_slices:
        table = np.zeros(len(log_psi))
        constant += shared_slices(layout.slices, log_psi, table, shared[5], shared[6])
        reached = np.empty(int(layout.slices[:, S_SIZE].sum()), dtype=np.uint8)
        reached_entries(layout.slices, layout.picks, layout.maps, flat.card, log_psi, reached)
    n_live = n_cells
    if n_zero or not reached.all() or np.isneginf(log_field).any():
        entered = np.concatenate([log_field > -np.inf, reached]).astype(np.uint8)
        n_live = live_cells(layout.nodes, layout.inputs, layout.maps, entered, live)
    numbers = RowNumbers(psi, shared, flat.card, flat.off, log_field, field, table)
    if n_live > 0.9 * n_cells:
        return SharedNumbers(layout, numbers, constant, psi)
    nodes, inputs = np.empty_like(layout.nodes), np.empty_like(layout.inputs)
    n_inputs = layout.nodes[:, INPUTS_END] - layout.nodes[:, INPUTS]
    room = int(layout.nodes[:, ENTRIES].sum() + (layout.nodes[:, CELLS] * n_inputs).sum())
    maps, kept = np.empty(room + len(reached), dtype=np.int32), np.empty(n_live)
    without_dead(layout.nodes, layout.inputs, layout.maps, psi, live, nodes, inputs, maps, kept)
    slices = layout.slices.copy()
    maps[room:] = layout.maps[len(layout.maps) - len(reached) :]  # those of slices lie behind
    slices[:, S_MAP] += room - (len(layout.maps) - len(reached))
    small = layout._replace(
        nodes=nodes, inputs=inputs, tables=layout.tables[:0], slices=slices, maps=maps
    )
    return SharedNumbers(small, numbers._replace(psi=kept), constant, psi)
