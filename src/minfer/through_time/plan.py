"""The clique tree of one slice, rooted at its interface, and its numbers; see the kernel.

A variable that has no child in its slice or the next is a *leaf*: no clique has it, and what is
known of it is a likelihood of its parents. Of every other variable it is one of itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.words import counted
from minfer.engine.elimination import links, order_in_two, tree_of
from minfer.engine.layout import Scopes
from minfer.errors import RefusedError
from minfer.kernels.time.slices import C_SIZE, I_SIZE, LARGEST, N_VALUES, S_SIZE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Cells of all cliques of a slice: eight sequences' numbers would fill 512 MiB.
MAX_CELLS = 1 << 23
_HEAD = LARGEST + 1
#: Log of what no product of linear numbers may fall below.
_LEAST = math.log(1e-290)


class Family(NamedTuple):
    """A variable's parents and itself, by numbers within two slices, and where its table goes: the
    first cell of a clique and the map of its cells, or, of a leaf, its first entry and no map."""

    scope: list[int]
    first: int
    cells: Ints | None


class Room(NamedTuple):
    """What a clique's product is made of: messages, sources, and cells."""

    n_messages: int
    sources: list[int]
    first: int
    n_cells: int


class SlicePlan:
    """The tree of a slice of n variables, numbered 0 to n - 1, those of the slice before n to
    2n - 1; ``scopes`` are (parents..., v) for each v. ``after`` is the plan of the first slice, of
    which this one is the step: it is packed behind that."""

    def __init__(
        self,
        card: Sequence[int],
        scopes: list[list[int]],
        interface: list[int],
        after: SlicePlan | None = None,
    ) -> None:
        first = after is None
        head: int = 0 if after is None else len(after.ints)
        cell: int = 0 if after is None else after.end
        inputs: list[tuple[int, int, int, int]] = []
        n = self.n = len(card)
        both = [*card, *card]
        size = math.prod(card[v] for v in interface)
        before = [] if first else [n + v for v in interface]
        parents = {p for scope in scopes for p in scope[:-1]} | set(interface)
        givens = [[v] if v in parents else scopes[v][:-1] for v in range(n)]
        inner = [v for v in range(n) if v in parents]
        wanted = [scopes[v] for v in inner] + [g for g in givens if g] + [interface, before]
        cliques = _cliques(both, [w for w in wanted if w], interface)
        cells = [math.prod(both[v] for v in own + rest) for own, rest, _ in cliques]
        if sum(cells) > MAX_CELLS:
            raise RefusedError(
                f"a slice needs cliques of {float(sum(cells)):.3g} cells "
                f"({counted(len(interface), 'variable')} that the next slice mentions have "
                f"{float(size):.3g} joint states), and at most {MAX_CELLS:,} fit: unroll(n) gives "
                "the graph of n slices for minfer.plan and the solvers that estimate"
            )

        def home(scope: Sequence[int]) -> int:
            """The smallest clique that has a scope."""
            fits = [k for k, (a, b, _) in enumerate(cliques) if set(scope) <= {*a, *b}]
            return min(fits, key=lambda k: (cells[k], k))

        offset = np.cumsum([cell, *cells])
        n_inputs = len(cliques) - 1 + n + (not first)
        records, sources = np.zeros((len(cliques), C_SIZE)), np.zeros((n, S_SIZE))
        maps: list[Ints] = []
        inputs_from = head + _HEAD + records.size
        sources_from = inputs_from + n_inputs * I_SIZE
        at = sources_from + sources.size
        value, table = 2 * size, int(offset[-1])
        for v, own in enumerate(givens):
            leaf = v not in parents
            entries = math.prod(both[u] for u in own)
            sources[v] = value, entries, table if leaf else -1, card[v]
            value += entries
            table += entries * card[v] if leaf else 0
        messages = []
        for k, (sep, _, _) in enumerate(cliques):
            is_root = k == len(cliques) - 1
            messages.append(size if is_root else value)
            value += 0 if is_root else math.prod(both[u] for u in sep)
        self.rooms: list[Room] = []
        arriving: list[list[tuple[int, list[int], int]]] = [[] for _ in cliques]
        for k, (sep, _, parent) in enumerate(cliques):
            if parent >= 0:
                arriving[parent].append((messages[k], sep, -1))
        if not first:
            arriving[home(before)].append((0, before, -1))
        for v, own in enumerate(givens):
            arriving[home(own)].append((int(sources[v, 0]), own, v))
        for k, (sep, rest, _) in enumerate(cliques):
            axes = sep + rest
            begin = inputs_from + len(inputs) * I_SIZE
            for where, scope, source in arriving[k]:
                entries = math.prod(both[u] for u in scope)
                inputs.append((where, at, source, entries))
                maps.append(_map(both, axes, scope))
                at += cells[k]
            entries = math.prod(both[u] for u in sep)
            end = inputs_from + len(inputs) * I_SIZE
            first_cell = int(offset[k])
            records[k] = entries, cells[k] // entries, first_cell, messages[k], begin, end
            own_sources = [source for _, _, source in arriving[k] if source >= 0]
            self.rooms.append(
                Room(len(arriving[k]) - len(own_sources), own_sources, first_cell, cells[k])
            )
        listed = [at, len(cliques), n, head + _HEAD, sources_from, value, max(cells)]
        flat = [np.array(listed), records.ravel(), np.array(inputs).ravel(), sources.ravel()]
        parts = [*flat, *maps]
        self.ints: Ints = np.concatenate(parts).astype(np.int64)
        self.families = []
        for v, scope in enumerate(scopes):
            if v in parents:
                k = home(scope)
                axes = cliques[k][0] + cliques[k][1]
                self.families.append(Family(scope, int(offset[k]), _map(both, axes, scope)))
            else:
                self.families.append(Family(scope, int(sources[v, 2]), None))
        self.begin, self.n_draws = cell, len(cliques) + n + 1
        self.end: int = table

    @property
    def n_values(self) -> int:
        """Vectors of the values of a slice."""
        return int(self.ints[N_VALUES])

    def numbers(self, tables: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
        """Linear and logarithmic, and the log of the smallest positive entry of every source."""
        logs, low = np.zeros(self.end - self.begin), np.zeros(self.n)
        with np.errstate(divide="ignore"):
            for v, (family, table) in enumerate(zip(self.families, tables)):
                x, at = np.log(table).ravel(), family.first - self.begin
                if family.cells is None:
                    logs[at : at + x.size] = x
                    low[v] = x[x > -np.inf].min(initial=0.0)
                else:
                    logs[at : at + family.cells.size] += x[family.cells]
        return np.exp(logs), logs, low

    def floor(self, logs: Floats, low: Floats) -> float:
        """The smallest positive entry of messages with which no product is lost; above 1 if some
        are lost in any case. ``low`` (n,) are logs of the smallest likelihoods of sources."""
        worst = -np.inf
        for room in self.rooms:
            part = logs[room.first - self.begin :][: room.n_cells]
            least = part[part > -np.inf].min(initial=0.0) + sum(low[v] for v in room.sources)
            worst = max(worst, (_LEAST - least) / (room.n_messages + 1))
        return math.exp(min(worst, 1.0))

    def counts(self, cells: Floats, tables: Sequence[Floats]) -> list[Floats]:
        """Expected counts of all tables from those of cells and entries of both plans."""
        out = []
        for family, table in zip(self.families, tables):
            at = family.first
            if family.cells is None:
                own = cells[at : at + table.size]
            else:
                given = cells[at : at + family.cells.size]
                own = np.bincount(family.cells, given, table.size).astype(np.float64)
            out.append(own.reshape(table.shape))
        return out


def _cliques(
    card: list[int], scopes: list[list[int]], interface: list[int]
) -> list[tuple[list[int], list[int], int]]:
    """Cliques, children first: variables shared with the parent, the rest, the parent. The last is
    the interface, all of it shared."""
    found: list[tuple[list[int], list[int], int]] = []
    if scopes:
        free = np.zeros(len(card), dtype=bool)
        free[[v for scope in scopes for v in scope]] = True
        ptr = np.cumsum([0, *map(len, scopes)]).astype(np.int64)
        joined = np.array([v for scope in scopes for v in scope], dtype=np.int32)
        near = links(
            Scopes(np.arange(len(scopes)), ptr, joined), free, np.array(card, dtype=np.int32)
        )
        last = np.isin(near.variables, interface)
        tree = tree_of(order_in_two(near, last), near, len(card), last)
        if not tree.complete:
            raise RefusedError("a slice is too wide for a clique tree: see unroll(n)")
        variables = tree.variables.tolist()
        for k, (lo, hi) in enumerate(pairwise(tree.ptr.tolist())):
            own = variables[lo:hi]
            split = int(tree.n_eliminated[k])
            found.append((own[split:], own[:split], int(tree.parent[k])))
    root = next(
        (k for k, c in enumerate(found) if c[2] < 0 and sorted(c[0] + c[1]) == interface), None
    )
    order = [k for k in range(len(found)) if k != root]
    place = {k: i for i, k in enumerate(order)}
    out = []
    for k in order:
        sep, rest, parent = found[k]
        if parent == root or parent < 0:
            shared = sorted({*sep, *rest} & set(interface)) if parent < 0 else sep
            out.append((shared, [v for v in sep + rest if v not in shared], len(order)))
        else:
            out.append((sep, rest, place[parent]))
    return [*out, (interface, [], -1)]


def _map(card: Sequence[int], axes: list[int], scope: Sequence[int]) -> Ints:
    """Where each cell over ``axes`` lies in a table over ``scope``, part of them; row-major."""
    step, stride = 1, dict.fromkeys(axes, 0)
    for v in reversed(scope):
        stride[v] = step
        step *= card[v]
    out = np.zeros(1, dtype=np.int64)
    for v in axes:
        out = (out[:, None] + np.arange(card[v]) * stride[v]).ravel()
    return out
