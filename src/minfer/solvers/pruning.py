"""What of a model a question is about: barren, separated and unconnected parts left out.

A variable is *barren* if nothing is known or asked of it and the only factor it is in is its own
conditional distribution: that sums to one, so variable and factor go, and its parents may be next
(Shachter 1986). Of what is left, everything that the observed variables cut off from the targets
has no say in them: in a Bayesian network that is d-separation.

A part without targets still has one thing to say: whether the evidence is possible at all. So parts
stay, unless the caller waives that, where a zero could contradict it: a zero of an undirected
factor, or of the distribution of a variable of which something is known. (Without those, draw the
unknown variables from their distributions, parents first: all that is known has a positive
probability then.)
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from minfer.engine.layout import FactorArrays, Flat
from minfer.factors.group import FactorGroup
from minfer.graph import FactorGraph

#: How far a row of a conditional table may be from one to be summed out unseen.
_ROW_SUM = 1e-12


class PruningLists:
    """What pruning needs to know of a graph, as lists; what not every question needs, when asked.

    Attributes
    ----------
    where : each factor's scope, as arrays
    scopes : of each factor, as lists
    factors : of each variable
    child : of each factor the variable it can be summed out with, or -1
    touched : of each variable whether the graph's own field says anything of it
    """

    def __init__(self, graph: FactorGraph) -> None:  # which these must outlive
        n, n_factors = graph.n_variables, graph.n_factors
        self._arrays = FactorArrays(graph._n_states, graph._offsets, graph.groups)
        self._field = graph._field
        self.where = self._arrays.scopes
        every, past = self.where.scope.tolist(), self.where.fptr.tolist()
        self.scopes: list[list[int]] = [[]] * n_factors
        self.factors: list[list[int]] = [[] for _ in range(n)]
        for i, begin, end in sorted(zip(self.where.ids.tolist(), past, past[1:])):
            self.scopes[i] = every[begin:end]
            for v in self.scopes[i]:
                self.factors[v].append(i)
        child = np.full(n_factors, -1, dtype=np.int64)
        if graph._child is not None:
            for g in graph.groups:
                if g.form == "table" or g.is_conditional:
                    child[g._ids] = _summed_out(g, graph._child[g._ids])
        self.child: list[int] = child.tolist()
        self.touched = [False] * n
        if self._field is not None and n:
            said = np.add.reduceat(self._field != 0.0, graph._offsets[:-1], dtype=np.int64)
            self.touched = (said > 0).tolist()

    @cached_property
    def zeros(self) -> list[bool]:
        """Of each factor whether it forbids something, or may."""
        zeros = np.ones(len(self.scopes), dtype=bool)
        for g in self._arrays.groups:
            if g.form == "table" or g.is_conditional:
                zeros[g._ids] = g.forbids()
        return zeros.tolist()

    @cached_property
    def flat(self) -> Flat | None:
        """All tables end to end, if the model is of tables over variables only."""
        groups = self._arrays.groups
        if [] in self.scopes or any(g.form != "table" or g.decomposes for g in groups):
            return None
        card, offsets = self._arrays.n_states, self._arrays.offsets
        field = np.zeros(int(offsets[-1])) if self._field is None else np.array(self._field)
        return Flat(card, offsets, field, *self.where, *self._arrays.cells)


class PrunedPart:
    """The part of a model that a question is about; to be used as long as the model is there.

    ``factors`` and ``variables`` are numbers in the model, increasing; ``whole`` says whether
    nothing that has a say in the evidence's probability was left out.
    """

    def __init__(
        self, of: FactorGraph, factors: NDArray[np.int64], variables: NDArray[np.int64], whole: bool
    ) -> None:
        self._of = ref(of)  # parts are kept by the model
        self.factors, self.variables, self.whole = factors, variables, whole
        self.cells = len(factors) + len(variables)  # numbers that are kept

    @property
    def of(self) -> FactorGraph:
        """The model."""
        found = self._of()
        assert found is not None
        return found

    @cached_property
    def graph(self) -> FactorGraph:
        """The part as a model of its own, variables and factors numbered anew."""
        labels = np.ones(self.of.n_variables, dtype=np.int64)
        labels[self.variables] = 0
        return self.of.keep(self.factors).split(labels)[0].graph

    @cached_property
    def flat(self) -> Flat | None:
        """Its tables end to end, if all factors are tables and the model has no evidence of its
        own; else it has to be conditioned first."""
        flat = structure_of(self.of).flat
        if flat is None or (self.of._field is not None and np.isneginf(self.of._field).any()):
            return None
        kept = np.zeros(len(flat.ids), dtype=bool)
        kept[self.factors] = True
        return flat.part(self.variables, np.flatnonzero(kept[flat.ids]))


def whole_of(graph: FactorGraph) -> PrunedPart:
    """A part from which nothing is pruned."""
    return PrunedPart(graph, np.arange(graph.n_factors), np.arange(graph.n_variables), True)


_STRUCTURES: WeakKeyDictionary[FactorGraph, PruningLists] = WeakKeyDictionary()


def structure_of(graph: FactorGraph) -> PruningLists:
    """Made once for each graph."""
    found = _STRUCTURES.get(graph)
    return found if found is not None else _STRUCTURES.setdefault(graph, PruningLists(graph))


def _summed_out(group: FactorGroup, child: NDArray) -> NDArray[np.int64]:
    """The child (F,) of each factor whose table does sum to one over it, -1 of others."""
    out = np.full(len(group), -1, dtype=np.int64)
    if group.is_conditional:
        return np.where(group._scope[:, -1] == child, child, -1)
    tables = np.exp(group.stored_tables())
    for a in range(group.arity):
        rows = np.flatnonzero(group._scope[:, a] == child)
        if len(rows):
            own = tables[np.zeros(len(rows), np.int64) if group.shared else rows]
            total = own.reshape(len(rows), *group.shape).sum(axis=a + 1)
            off = np.abs(total.reshape(len(rows), -1) - 1.0).max(axis=1)
            out[rows] = np.where(off <= _ROW_SUM, child[rows], -1)
    return out


def prune(
    graph: FactorGraph,
    targets: Iterable[int],
    observed: Iterable[int],
    soft: Iterable[int] = (),
    *,
    whole: bool = False,
    check: bool = True,
    barren: bool = False,
) -> PrunedPart:
    """The part that P(targets | evidence on observed and soft) depends on.

    ``whole`` leaves out only what is barren, so that the part's log Z is that of all; ``check``
    keeps parts that can contradict the evidence; ``barren`` keeps what is barren and not cut off.
    """
    s = structure_of(graph)
    targets = list(targets)
    known = set(observed)
    wanted = [False] * graph.n_variables
    for v in (*targets, *known, *soft):
        wanted[v] = True
    kept = [True] * len(s.scopes) if barren else _without_barren(s, wanted)
    if whole:
        factors, complete = [i for i, k in enumerate(kept) if k], True
    else:
        factors, complete = _connected(s, kept, targets, known, wanted if check else None)
        factors.sort()
    inside = [False] * graph.n_variables
    for i in factors:
        for v in s.scopes[i]:
            inside[v] = True
    for v in targets:
        inside[v] = True
    gone = {c for c, k in zip(s.child, kept) if not k}  # summed out with their factors: to one
    for v, w in enumerate(wanted):  # variables without factors have their say too
        bare = v not in gone and not any(kept[i] for i in s.factors[v])
        if not inside[v] and (w or s.touched[v] or bare):
            inside[v] = whole
            complete = complete and whole
    variables = np.array([v for v, k in enumerate(inside) if k], dtype=np.int64)
    return PrunedPart(graph, np.array(factors, dtype=np.int64), variables, complete)


def _without_barren(s: PruningLists, wanted: list[bool]) -> list[bool]:
    """Which factors are left when barren variables are gone."""
    kept = [True] * len(s.scopes)
    count = [len(f) for f in s.factors]
    todo = [v for v, n in enumerate(count) if n == 1 and not wanted[v] and not s.touched[v]]
    while todo:
        v = todo.pop()
        left = [i for i in s.factors[v] if kept[i]]
        if len(left) != 1 or s.child[left[0]] != v:
            continue
        kept[left[0]] = False
        for u in s.scopes[left[0]]:
            count[u] -= 1
            if count[u] == 1 and not wanted[u] and not s.touched[u]:
                todo.append(u)
    return kept


def _connected(
    s: PruningLists,
    kept: list[bool],
    targets: list[int],
    known: set[int],
    wanted: list[bool] | None,
) -> tuple[list[int], bool]:
    """Factors that the targets reach without passing a known variable, and parts with one that may
    forbid the evidence, ``wanted`` among it; whether these are all that were left."""
    seen_factor = [not k for k in kept]
    seen = [False] * len(s.factors)

    def reach(begin: list[int]) -> list[int]:
        found, todo = [], begin
        while todo:
            i = todo.pop()
            found.append(i)
            for v in s.scopes[i]:
                if seen[v] or v in known:
                    continue
                seen[v] = True
                for j in s.factors[v]:
                    if not seen_factor[j]:
                        seen_factor[j] = True
                        todo.append(j)
        return found

    def may_forbid(i: int) -> bool:
        c = s.child[i]
        return s.zeros[i] and (c < 0 or (wanted is not None and wanted[c]) or s.touched[c])

    asked = [t for t in targets if t not in known]
    begin = list(dict.fromkeys(j for t in asked for j in s.factors[t] if kept[j]))
    for t in asked:
        seen[t] = True
    for j in begin:
        seen_factor[j] = True
    out, complete = reach(begin), True
    for i in range(len(kept)):
        if seen_factor[i]:
            continue
        seen_factor[i] = True
        apart = reach([i])
        if wanted is not None and any(may_forbid(j) for j in apart):
            out += apart
        else:
            complete = False
    return out, complete
