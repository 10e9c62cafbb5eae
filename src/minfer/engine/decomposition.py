"""A model in tables only, as elimination needs it.

Small global factors are written out. So are small machines (:class:`minfer.factors.Machine`); a
larger one becomes a chain: an auxiliary variable s_i holds the automaton's state after position i,
and tables (s_{i-1}, x_i, s_i) say how it moves,

    psi(x) = sum_s [s_1 = step(s_0, x_1)] [s_2 = step(s_1, x_2)] ... exp final(step(s_{A-1}, x_A)).

So do conditional distributions of independent causes
(:class:`minfer.factors.IndependentCauses`), but as sums in which more than one state counts: where
maxima are asked for they have to be written out.

Auxiliary variables come behind the graph's own, and tables of chains have the number -1. Only
states that can be reached, and from which an allowed end can be reached, are counted.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from minfer.engine.conditioning import Conditioned, absorb_small
from minfer.engine.layout import in_order
from minfer.errors import ContradictionError, RefusedError
from minfer.factors.group import MAX_TABLE_CELLS, FactorGroup, all_cells
from minfer.factors.tables import Tables

#: A machine with at most so many variables and cells is written out as one table.
MAX_WRITTEN_ARITY, MAX_WRITTEN_CELLS = 4, 256
#: Cells of the tables of all chains, together, beyond which a model is refused.
MAX_CHAIN_CELLS = 1 << 26


def only_tables(model: Conditioned, who: str = "Exact", best: bool = False) -> Conditioned:
    """The same model in tables, with auxiliary variables behind its own where there must be.
    RefusedError, in the name of ``who``, where a factor cannot be written so. ``best``: as maxima
    need it, no factor a sum over auxiliary variables."""
    if all(g.form == "table" and not g.decomposes for g in model.groups):
        return model
    groups: list[FactorGroup] = []
    chains = _MachineChains(model, who)
    field, constant = model.field.copy(), model.constant
    for g in model.groups:
        if g.decomposes:
            groups += [_for_maxima(g)] if best else chains.of_sums(g)
        elif g.form == "table":
            groups.append(g)
        elif g.form == "machine":
            if g.arity <= MAX_WRITTEN_ARITY and g.n_cells <= MAX_WRITTEN_CELLS:
                groups.append(g.as_tables())
            else:
                chains.add(g)
        else:
            tables = [written(model, g, row, who) for row in range(len(g))]
            more, rest = absorb_small(model.graph, tables, field)
            constant += more
            groups += rest
    if constant == -np.inf:
        raise ContradictionError("every assignment has probability zero: a global factor forbids "
                                 "the observed states of all its variables")  # fmt: skip
    groups += chains.tables()
    if not chains.states:
        return replace(model, groups=tuple(groups), field=field, constant=constant)
    new = np.array(chains.states, dtype=np.int32)
    states = np.concatenate([model.graph._n_states, new])
    return Conditioned(
        replace(model.graph, _n_states=states, names=None, _field=None),
        constant,
        np.concatenate([field, np.zeros(int(new.sum()))]),
        np.concatenate([model.fixed, np.full(len(new), -1, dtype=np.int32)]),
        tuple(groups),
    )


def written(model: Conditioned, group: FactorGroup, row: int, who: str = "Exact") -> Tables:
    """A global factor as a table over its free variables, by asking for every assignment."""
    scope = group._scope[row]
    free = model.fixed[scope] < 0
    shape = tuple(int(s) for s in model.graph._n_states[scope[free]])
    if math.prod(shape) > MAX_TABLE_CELLS:
        raise RefusedError(
            f"{who}: {group.noun} {int(group._ids[row])} has {len(shape)} unobserved variables, "
            f"too many to write it out as a table ({MAX_TABLE_CELLS} cells); use BeliefPropagation"
        )
    cells = all_cells(shape)
    x = np.tile(model.fixed[scope].astype(np.int64), (len(cells), 1))
    x[:, free] = cells
    table = group.score(np.full(len(cells), row), x).reshape(1, -1)
    return Tables(group._ids[row : row + 1], scope[free][None], shape, table)


def _for_maxima(group: FactorGroup) -> Tables:
    """A group whose chains are sums, as tables."""
    if not group.has_tables:  # says so
        group.messages(np.zeros(0, np.int64), np.zeros((0, 0)), np.zeros((0, 0)), best=True)
    return group.as_tables()


class _MachineChains:
    """Auxiliary variables and the tables of chains, those of one shape collected."""

    def __init__(self, model: Conditioned, who: str) -> None:
        self.model, self.who = model, who
        self.states: list[int] = []  # of the auxiliary variables
        self.cells = 0
        self.parts: dict[tuple[int, ...], list[tuple[NDArray, NDArray]]] = {}

    def add(self, group: FactorGroup) -> None:
        """The chains of a group of machines, all its factors position by position."""
        m, scope = in_order(group)
        useful = _useful(m.step, m.start, m.final)
        if not useful.any(axis=1).all():
            raise ContradictionError(
                f"every assignment has probability zero: factor {int(group._ids[0])}, "
                f"{group._a_noun}, forbids them all"
            )
        n = useful.sum(axis=1)
        self._count(group, int((n[:-1] * n[1:] * group.shape).sum()) * len(group))
        first = self.model.graph.n_variables + len(self.states)
        before: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        for a in range(group.arity):
            size = group.shape[a]
            states = np.flatnonzero(useful[a])
            after = np.flatnonzero(useful[a + 1])
            # moves[f, x, k]: the state after state k of ``states`` and the variable in state x
            is_literal = (np.arange(size) == m.literal[:, a, None]).astype(np.int64)
            moves = m.step[a][states][:, is_literal].transpose(1, 2, 0)
            if a == 0:  # the start is known: one state, of each factor its own
                moves = np.take_along_axis(
                    moves, np.searchsorted(states, m.start)[:, None, None], axis=2
                )
            if a == group.arity - 1:
                final = np.broadcast_to(m.final, (len(group), m.final.shape[1]))
                end = np.where(
                    moves < 0, -np.inf, final[np.arange(len(group))[:, None, None], moves]
                )
                table, new = end[..., None], np.zeros((len(group), 0), dtype=np.int64)
            else:
                table = np.where(moves[..., None] == after, 0.0, -np.inf)
                new = (first + np.arange(len(group)))[:, None]
                first += len(group)
                self.states += [len(after)] * len(group)
            table = table.transpose(0, 2, 1, 3)  # (F, before, x, after)
            old = before[:, None] if a else new[:, :0]
            shape = (*((len(states),) if a else ()), size, *((len(after),) if new.size else ()))
            members = np.concatenate([old, scope[:, a, None], new], axis=1).astype(np.int32)
            part = members, table.reshape(len(group), -1)
            self.parts.setdefault(shape, []).append(part)
            before = new[:, 0] if new.size else before

    def of_sums(self, group: FactorGroup) -> list[Tables]:
        """The chains of a group that has them of its own."""
        self._count(group, group.chain_cells)
        tables, states = group.chained(self.model.graph.n_variables + len(self.states))
        self.states += states
        return tables

    def _count(self, group: FactorGroup, cells: int) -> None:
        self.cells += cells
        if self.cells > MAX_CHAIN_CELLS:
            raise RefusedError(
                f"{self.who}: factor {int(group._ids[0])}, {group._a_noun} over {group.arity} "
                f"unobserved variables, has too many states in between (chains of more than "
                f"{MAX_CHAIN_CELLS:,} cells); use BeliefPropagation"
            )

    def tables(self) -> list[FactorGroup]:
        out: list[FactorGroup] = []
        for shape, parts in self.parts.items():
            scope = np.concatenate([members for members, _ in parts])
            log_psi = np.concatenate([table for _, table in parts])
            out.append(Tables(np.full(len(scope), -1), scope, shape, log_psi))
        return out


def _useful(step: NDArray, start: NDArray, final: NDArray[np.float64]) -> NDArray[np.bool_]:
    """States before each position, and at the end, on the way to something allowed, (A + 1, K)."""
    arity, n = len(step), final.shape[1]
    out = np.zeros((arity + 1, n + 1), dtype=bool)  # the last one: forbidden
    out[0, start] = True
    for a in range(arity):
        out[a + 1, step[a][out[a, :n]]] = True
    out[:, n] = False
    alive = np.append((final > -np.inf).any(axis=0), False)
    out[arity] &= alive
    for a in range(arity - 1, -1, -1):
        alive = np.append(alive[step[a]].any(axis=1), False)
        keep = out[a] & alive
        if a == 0:
            keep[start] = True  # every factor has its start, be it a dead end
        out[a] = keep
    return out[:, :n]
