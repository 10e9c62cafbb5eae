"""Bayesian networks: tables that are conditional distributions know their child.

A factor over (parents..., child) whose rows over the child sum to one is a conditional distribution
P(child | parents); :attr:`FactorGraph.directed` says whether a model consists of one for each
variable, without a cycle. Pruning, sampling, counting and sensitivity need to know.

Such a model also says what follows where somebody sets variables, whatever their causes say
(:func:`intervened`): the tables of these give way, all others stay (Pearl 2009, section 1.3),

    p(x | do(A = a)) = [x_A = a] prod_{v not in A} p(x_v | parents of v).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import concatenate, real_numbers, table_sizes, told
from minfer.errors import EvidenceError, ModelError, visible
from minfer.factors.group import Floats, Ints, Mask
from minfer.factors.tables import Tables, flat_table_groups, table_groups
from minfer.model.causes import NoisyCauses, with_causes
from minfer.model.evidence import numbered
from minfer.model.states import Variables

if TYPE_CHECKING:
    from minfer.model.build import Growing

G = TypeVar("G", bound="Growing")

ROW_SUM = 1e-4  # how far a row of probabilities may be from one
ROUNDING = 1e-12  # rows this near are left as they are: what is off is the rounding of the sum
_HINT = "; a table of columns, as pgmpy has them, has to be turned into one of rows: table.T"


def with_network(graph: G, tables: Any) -> G:
    """A graph without factors with those of a network; see :meth:`FactorGraph.network`."""
    if not isinstance(tables, Mapping):
        raise ModelError(
            f"network: tables must be a mapping {{variable: table}}, not {told(tables)}"
        )
    children, parents, cpts = [], [], []
    noisy: dict[int, tuple[list[int], NoisyCauses]] = {}
    for name, entry in tables.items():
        if isinstance(entry, NoisyCauses):
            if not isinstance(entry.causes, Mapping):
                raise ModelError(
                    f"network: {visible(name)}: causes must be a mapping {{parent: numbers}}, not "
                    f"{told(entry.causes)}"
                )
            noisy[graph.index(name)] = [graph.index(p) for p in entry.causes], entry
            continue
        own_parents: Any = []
        table = entry
        if isinstance(entry, tuple) and len(entry) == 2:
            first = [entry[0]] if isinstance(entry[0], str) else entry[0]
            if isinstance(first, (list, tuple)) and all(isinstance(x, str) for x in first):
                own_parents, table = list(first), entry[1]
        children.append(graph.index(name))
        parents.append([graph.index(p) for p in own_parents])
        cpts.append(table)
    missing = set(range(graph.n_variables)) - set(children) - noisy.keys()
    if missing:
        raise ModelError(f"network: there is no table for {graph.name(min(missing))}")
    if not noisy:
        return with_conditionals(graph, children, parents, cpts)
    every = [*parents, *(own for own, _ in noisy.values())]
    check_acyclic(graph, [*children, *noisy], every)
    made = with_causes(with_conditionals(graph, children, parents, cpts), noisy)
    assert made._child is not None
    place = {v: k for k, v in enumerate(map(graph.index, tables))}  # factors as they were given
    number = np.array([place[v] for v in made._child.tolist()], dtype=np.int64)
    groups = tuple(g.replace(_ids=number[g._ids]) for g in made.groups)
    return made._regrouped(groups, made._child[np.argsort(number)])


def with_probabilities(graph: G, scopes: Sequence[Sequence[int]], tables: Sequence[ArrayLike]) -> G:
    """A graph with tables of numbers that are not negative added, which are not their logarithms.

    Those that are conditional distributions of their last variables know it, unless two are of one
    variable or they form a cycle; their rows are divided by their sums (:data:`ROW_SUM`).
    """
    listed: list[Floats] = []
    for scope, table in zip(scopes, tables):
        what = f"the table of {graph._scope_text(scope)}"
        p = np.array(real_numbers(table, what), dtype=np.float64)
        bad = ~(np.isfinite(p) & (p >= 0))
        if bad.any():
            raise ModelError(
                f"{what} has {p[bad][0]:g}; probabilities must be finite and not negative"
            )
        if p.size and not p.any():
            raise ModelError(f"{what} is zero everywhere")
        listed.append(p)
    arity = np.array([len(scope) for scope in scopes], dtype=np.int64)
    joined = concatenate([np.asarray(scope) for scope in scopes], np.int64)
    child = None
    if (table_sizes(graph._n_states[joined], arity) == [p.size for p in listed]).all():
        some = np.flatnonzero(arity)
        flat = concatenate([listed[i].ravel() for i in some], np.float64)
        known = FlatTables(graph, arity[some], joined, flat)
        good = known.are_conditional()
        parents = {scopes[i][-1]: scopes[i][:-1] for i in some[good].tolist()}
        if parents and len(parents) == good.sum() and not order_or_cycle(parents)[1]:
            ends = np.cumsum([listed[i].size for i in some])
            for i, p in zip(some.tolist(), np.split(known.normalised(good), ends[:-1])):
                listed[i] = p.reshape(listed[i].shape)
            child = np.full(len(listed), -1, dtype=np.int32)
            child[some[good]] = [scopes[i][-1] for i in some[good].tolist()]
    with np.errstate(divide="ignore"):
        logs = [np.log(p) for p in listed]
    return graph._append(*table_groups(graph, graph.n_factors, scopes, logs), child=child)


def with_conditionals(
    graph: G, children: Sequence[int], parents: Sequence[Sequence[int]], tables: Sequence[ArrayLike]
) -> G:
    """A graph with conditional distributions added; scopes are (parents..., child).

    Rows that sum to one within :data:`ROW_SUM` are accepted, and divided by their sum (files round
    to a few digits, and what is left out by pruning must then sum to one); others are an error.
    """
    scopes, flat = [], []
    for child, own, table in zip(children, parents, tables):
        name = visible(graph.name(child))
        scope = [*own, child]
        if len(set(scope)) < len(scope):
            raise ModelError(f"network: {name} is its own parent, or has a parent twice")
        shape = tuple(int(graph._n_states[v]) for v in scope)
        p = real_numbers(table, f"network: the table of {name}").astype(np.float64)
        if p.size != np.prod(shape, dtype=np.float64):
            raise ModelError(
                f"network: the table of {name} has {p.size} numbers, but its parents and itself "
                f"have {' x '.join(map(str, shape))} states"
            )
        if p.ndim > 1 and p.shape not in (shape, (math.prod(shape[:-1]), shape[-1])):
            hint = _HINT if p.shape == (shape[-1], math.prod(shape[:-1])) else ""
            raise ModelError(
                f"network: the table of {name} has shape {p.shape}, not {shape}, parents first"
                f"{hint}"
            )
        scopes.append(np.array(scope, dtype=np.int64))
        flat.append(p.ravel())
    arity = np.array([len(s) for s in scopes], dtype=np.int64)
    joined = concatenate(scopes, np.int64), concatenate(flat, np.float64)
    given = FlatTables(graph, arity, *joined)
    if fault := given.fault():
        columns = flat[fault.table].reshape(int(graph._n_states[children[fault.table]]), -1).sum(0)
        hint = f"; its columns do{_HINT}" if (np.abs(columns - 1.0) <= ROW_SUM).all() else ""
        raise ModelError(f"network: {fault.message}{hint}")
    check_acyclic(graph, list(children), [list(p) for p in parents])
    return with_flat_conditionals(graph, given)


def with_flat_conditionals(graph: G, tables: FlatTables, normalise: bool = True) -> G:
    """As :func:`with_conditionals`, from tables in which nothing is wrong."""
    with np.errstate(divide="ignore"):
        logs = np.log(tables.normalised() if normalise else tables.p)
    scopes = tables.scopes.astype(np.int32)
    groups = flat_table_groups(graph, graph.n_factors, tables.arity, scopes, logs)
    return graph._append(*groups, child=tables.children)


def network_of(bare: G, scopes: Sequence[list[int]], p: Floats) -> G | TableFault:
    """The network of one conditional distribution for each variable of a graph without factors.

    As :class:`FlatTables` and :func:`with_flat_conditionals`, with as few calls as a small file
    deserves: shapes are handled in plain Python, numbers all at once.
    """
    card = bare._n_states.tolist()
    shapes = [tuple([card[v] for v in scope]) for scope in scopes]
    sizes = [math.prod(shape) for shape in shapes]
    begin = [0, *accumulate(sizes)]
    rows: list[int] = []
    for shape, lo, hi in zip(shapes, begin, begin[1:]):
        rows += range(lo, hi, shape[-1])
    total = np.add.reduceat(p, rows)
    off = np.abs(total - 1.0)
    most = off.max()  # NaN where there is one
    least = p.min()
    if not (most <= ROW_SUM and least >= 0.0):
        arity = np.array([len(scope) for scope in scopes], dtype=np.int64)
        flat = np.array([v for scope in scopes for v in scope])
        fault = FlatTables(bare, arity, flat, p).fault()
        assert fault is not None
        return fault
    if most >= ROUNDING:
        total[off < ROUNDING] = 1.0
        p = p / total.repeat(np.diff(rows, append=len(p)))
    with np.errstate(divide="ignore") if least == 0.0 else nullcontext():
        logs = np.log(p)
    found: dict[tuple[int, ...], list[int]] = {}
    for i, shape in enumerate(shapes):
        found.setdefault(shape, []).append(i)
    groups = []
    for shape in sorted(found, key=lambda shape: (len(shape), shape)):
        mine, size = found[shape], math.prod(shape)
        entries = np.array([logs[begin[i] : begin[i] + size] for i in mine])
        scope = np.array([scopes[i] for i in mine], dtype=np.int32)
        groups.append(Tables(np.array(mine), scope, shape, entries))
    child = np.array([scope[-1] for scope in scopes], dtype=np.int32)
    return bare._append(*groups, child=child)


class TableFault(NamedTuple):
    """What is wrong with a table of probabilities, and where: its number, and a row of it."""

    table: int
    row: int
    message: str


class FlatTables:
    """Tables of probabilities ``p`` end to end, each over (parents..., child), the child fastest.

    ``arity`` (F,) is at least 1, ``scopes`` (sum of arity,) are numbers of variables of ``graph``.
    """

    def __init__(self, graph: Variables, arity: Ints, scopes: Ints, p: NDArray) -> None:
        self.graph, self.arity, self.scopes, self.p = graph, arity, scopes, p
        self.children = scopes[np.cumsum(arity) - 1]
        states = graph._n_states[self.children].astype(np.int64)
        self.n_rows = table_sizes(graph._n_states[scopes], arity).astype(np.int64) // states
        self.row_sizes = np.repeat(states, self.n_rows)
        self.first = np.cumsum(self.row_sizes) - self.row_sizes  # cells of rows
        self.rows_before = np.cumsum(self.n_rows) - self.n_rows  # each table

    def _sums(self, p: Floats) -> Floats:
        return np.add.reduceat(p, self.first) if len(self.first) else np.zeros(0)

    def normalised(self, which: Mask | None = None) -> Floats:
        """Each row divided by its sum, if that is not one but for rounding; of all or some."""
        total = self._sums(self.p)
        total[np.abs(total - 1.0) < ROUNDING] = 1.0
        if which is not None:
            total[~np.repeat(which, self.n_rows)] = 1.0
        return self.p / np.repeat(total, self.row_sizes)

    def are_conditional(self) -> Mask:
        """Which are conditional distributions of their last variables, shape (F,)."""
        wrong = ~(np.abs(self._sums(self.p) - 1.0) <= ROW_SUM)
        return ~np.logical_or.reduceat(wrong, self.rows_before)

    def fault(self) -> TableFault | None:
        """The first row that has a negative number or does not sum to one."""
        bad_cell = ~(np.isfinite(self.p) & (self.p >= 0))
        total = self._sums(np.where(bad_cell, np.nan, self.p))
        wrong = ~(np.abs(total - 1.0) <= ROW_SUM)
        if not wrong.any():
            return None
        at = int(np.argmax(wrong))
        table = int(np.searchsorted(self.rows_before, at, side="right")) - 1
        row = at - int(self.rows_before[table])
        end = int(self.arity[: table + 1].sum())
        *parents, child = self.scopes[end - int(self.arity[table]) : end].tolist()
        name, given = visible(self.graph.name(child)), ""
        if parents:  # the last of them runs fastest
            states = np.unravel_index(row, [int(self.graph._n_states[v]) for v in parents])
            names = ((self.graph.name(v), self.graph.states(v)[k]) for v, k in zip(parents, states))
            given = " given " + ", ".join(f"{visible(v)}={visible(s)}" for v, s in names)
        if bad_cell[self.first[at] : self.first[at] + self.row_sizes[at]].any():
            what = f"the table of {name}{given} has a number that is negative or not finite"
        else:
            what = f"the probabilities of {name}{given} sum to {total[at]:.6g}, not 1"
        return TableFault(table, row, what)


def intervention(graph: Any, do: Any, observed: Iterable[int] = ()) -> dict[int, int]:
    """States that are set, by variables' numbers; none of them may be ``observed`` as well."""
    done = numbered(graph, do, likelihoods=False, what="do")[0]
    if not done:
        return done
    if not graph.directed:
        raise ModelError(
            "do needs a Bayesian network, in which each variable has a conditional distribution "
            "of its own to give way (FactorGraph.network, or a file); this model has no directions"
        )
    own = set() if graph._field is None else {
        v for v in done if graph.field[graph._offsets[v] : graph._offsets[v + 1]].any()
    }  # fmt: skip
    if both := sorted((own | set(observed)) & done.keys()):
        raise EvidenceError(
            f"do: {visible(graph.name(both[0]))} is set and has evidence too; what is set is known "
            "without being observed: leave one of them out"
        )
    return done


def intervened(graph: G, done: Mapping[int, int]) -> G:
    """Graph surgery: what :func:`intervention` found is certain, and has no parents.

    Factors keep their numbers, but what is known of the old model does not go along.
    """
    assert graph._child is not None
    cut = np.isin(graph._child, list(done))
    groups = []
    for g in graph.groups:
        left = np.flatnonzero(~cut[g._ids])
        if len(left):
            groups.append(g if len(left) == len(g) else g.take(left, g._ids[left]))
    factors = np.flatnonzero(cut)
    size = graph._n_states[graph._child[factors]]
    for n in np.unique(size).tolist():
        ids = factors[size == n]
        scope = graph._child[ids][:, None]
        states = [done[v] for v in scope[:, 0].tolist()]
        tables = np.where(np.eye(n, dtype=bool), 0.0, -np.inf)[states]
        groups.append(Tables(ids, scope, (n,), tables))
    return graph._regrouped(tuple(groups), graph._child)


def child_last(graph: Any) -> Iterator[tuple[list[int], Floats]]:
    """The log-tables of a Bayesian network, factor by factor, scopes (parents..., child)."""
    return (child_last_of(graph, i) for i in range(graph.n_factors))


def child_last_of(graph: Any, factor: int) -> tuple[list[int], Floats]:
    """The same of one factor."""
    scope, child = graph.scope(factor).tolist(), graph.child(factor)
    axis = scope.index(child)
    table = np.moveaxis(graph.log_table(factor), axis, -1)
    return scope[:axis] + scope[axis + 1 :] + [child], table


def check_acyclic(
    graph: Variables, children: Sequence[int], parents: Sequence[Sequence[int]]
) -> Ints:
    """Variables in an order that puts parents first; a cycle is an error that shows it."""
    of: dict[int, Sequence[int]] = {}
    for child, own in zip(children, parents):
        if child in of:
            raise ModelError(f"network: {visible(graph.name(child))} has two tables")
        of[child] = own
    order, loop = order_or_cycle(of)
    if loop:
        raise ModelError(f"network: {cycle_text(graph, loop)}")
    return np.array(order, dtype=np.int64)


def cycle_text(graph: Variables, loop: Sequence[int]) -> str:
    """A cycle in words."""
    shown = " <- ".join(visible(graph.name(x)) for x in loop[:8])
    return f"the parents form a cycle: {shown}{' <- ...' * (len(loop) > 8)}"


def parents_first(scopes: Sequence[Sequence[int]]) -> bool:
    """Whether every table (parents..., child) comes after those of its parents."""
    seen: set[int] = set()
    for scope in scopes:
        if not seen.issuperset(scope[:-1]):
            return False
        seen.add(scope[-1])
    return True


def order_or_cycle(parents: Mapping[int, Sequence[int]]) -> tuple[list[int], list[int]]:
    """Variables with parents first, or else (a, parent of a, ..., a), a cycle."""
    order: list[int] = []
    state: dict[int, int] = {}
    for begin in parents:
        path: list[tuple[int, int]] = [(begin, 0)]
        if state.get(begin):
            continue
        state[begin] = 1
        while path:
            v, k = path[-1]
            own = parents.get(v, ())
            if k == len(own):
                state[v] = 2
                order.append(v)
                path.pop()
                continue
            path[-1] = (v, k + 1)
            p = own[k]
            if state.get(p) == 1:
                walk = [x for x, _ in path]
                return [], [*walk[walk.index(p) :], p]
            if not state.get(p):
                state[p] = 1
                path.append((p, 0))
    return order, []
