"""Whether changing one variable at a time can lead from any allowed assignment to any other.

Single-site chains in a model that forbids something may be trapped: of exactly one of three
switches none can be moved alone. Here it is *shown* that they are not, where that is easy: if every
variable has a state that it may take in any allowed assignment without breaking a factor, all
allowed assignments lead to the one where each variable is in that state, and so to one another.
Small parts without such states are decided by looking at all their assignments.

Large finite weights trap chains, too. There nothing can be shown ahead, but after a run it can be
asked whether *blocks* of strongly tied variables, given where the chains ended, have islands
between which single moves would have to cross assignments too improbable to be seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.engine.layout import join, same_steps
from minfer.factors.group import Floats, Ints, Mask, all_cells, components

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.factors.group import FactorGroup, Machine


#: Assignments of a part up to which all of them are looked at, and such parts of a model.
MAX_CELLS, MAX_PARTS = 1 << 14, 1 << 8
#: The same of blocks that finite weights tie, and how many chains are asked.
BLOCK_CELLS, MAX_BLOCKS, MAX_CHAINS = 1 << 12, 1 << 6, 4
#: Weights, in nats, that count as zeros in blocks too large to be looked at.
AS_ZERO = 15.0
#: The share of a block's probability that chains may leave out unnoticed.
MISSED = 0.01


def no_messages(model: Conditioned) -> str:
    """Why solvers that need values, not messages, decline a model and what to do, or nothing."""
    for g in model.groups:
        if g.form == "messages":
            return (
                f"cannot use factor {int(g._ids[0])}: it is {g._a_noun}, which only gives messages"
                "; use BeliefPropagation, or Exact if the model is small"
            )
    return ""


def haven(model: Conditioned) -> tuple[NDArray[np.int32] | None, str]:
    """A state of every variable that all assignments lead to, (V,): needed in models with hard
    logical factors; if there is none, the words say of which factor and what to do."""
    if why := no_messages(model):
        return None, why
    graph, off = model.graph, model.graph._offsets
    given = [g for g in graph.groups if g.form == "machine"]  # evidence makes tables of some
    if not given:
        return None, ""
    logical = np.zeros(graph.n_factors, dtype=bool)
    for g in given:
        logical[g._ids] = True
    hard = model.arrays.hard
    if not any(logical[g._ids[rows]].any() for g, rows in hard):
        return None, ""
    safe = model.field > -np.inf
    for g, rows in sorted(hard, key=lambda part: bool(logical[part[0]._ids].any())):
        _exclude(safe, model, g, rows)
        bare = ~np.logical_or.reduceat(safe, off[:-1])
        if bare.any():
            v = int(np.flatnonzero(bare)[0])
            i = int(g._ids[rows[(g._scope[rows] == v).any(axis=1)][0]])
            return None, (
                f"cannot use factor {i}, a hard {graph._locate(i)[0].noun}: "
                f"{graph.name(v)} has no state that is always allowed, so changing one variable at "
                "a time may never lead from one allowed assignment to another, and chains would "
                "stay where they began; use BeliefPropagation or Exact, or make it soft, with "
                "finite weights"
            )
    first = np.flatnonzero(safe)[::-1]
    owner = np.searchsorted(off, first, side="right") - 1
    target = np.zeros(graph.n_variables, dtype=np.int32)
    target[owner] = first - off[owner]  # the first of each variable is written last
    return target, ""


def may_be_trapped(model: Conditioned) -> str:
    """A factor by which single moves may not lead everywhere, in words; empty: they do."""
    hard = model.arrays.hard
    if not hard:
        return ""
    graph, off = model.graph, model.graph._offsets
    safe = model.field > -np.inf
    for g, rows in hard:
        _exclude(safe, model, g, rows)
    bare = ~np.logical_or.reduceat(safe, off[:-1])
    if not bare.any():
        return ""
    part = tied_parts(graph.n_variables, hard)
    for n, c in enumerate(np.unique(part[bare]).tolist()):
        members = np.flatnonzero(part == c)
        mine = [(g, rows[part[g._scope[rows, 0]] == c]) for g, rows in hard]
        cells = math.prod(graph._n_states[members].tolist())
        few = n < MAX_PARTS and cells <= MAX_CELLS
        if not few or _islands(_allowed(model, members, mine)).max(initial=0):
            return f"{_first_of(hard, part, c)}, which forbids something"
    return ""


def may_stick(model: Conditioned, states: NDArray[np.int32], sweeps: int) -> str:
    """A factor by whose finite weights chains, which ended in ``states`` (C, V), may have stayed
    where they began, in words: what is less probable than one in ``sweeps`` is not seen."""
    nats = math.log(max(sweeps, 2))
    tied = [(g, rows) for g in model.groups if len(rows := np.flatnonzero(_range(g) > nats))]
    if not tied:
        return ""
    part = tied_parts(model.graph.n_variables, tied)
    seen = np.unique(states, axis=0)[:MAX_CHAINS]
    blocks = np.unique(np.concatenate([part[g._scope[rows, 0]] for g, rows in tied]))
    large = []
    for c in blocks[:MAX_BLOCKS].tolist():
        members = np.flatnonzero((part == c) & (model.fixed < 0))
        cells = math.prod(model.graph._n_states[members].tolist())
        if cells > BLOCK_CELLS:
            large.append(c)
            continue
        for x in seen:
            if _is_stuck(_block_scores(model, members, x), tuple(x[members].tolist()), nats):
                return _first_of(tied, part, c)
    safe = model.field > -np.inf
    for g, rows in tied:
        far = rows[(_range(g)[rows] > AS_ZERO) & np.isin(part[g._scope[rows, 0]], large)]
        if len(far):
            _exclude(safe, model, g, far, AS_ZERO)
    bare = np.flatnonzero(~np.logical_or.reduceat(safe, model.graph._offsets[:-1]))
    return _first_of(tied, part, int(part[bare[0]])) if len(bare) else ""


def _range(group: FactorGroup) -> Floats:
    """Largest less smallest log psi of each factor, (F,); infinite where it has a zero."""
    if group.form != "machine":
        return group.spread()
    final = group.machine().final
    return np.broadcast_to(final.max(axis=1) - final.min(axis=1), (len(group),))


def _first_of(tied: list[tuple[FactorGroup, Ints]], part: NDArray[np.int32], c: int) -> str:
    ids = [g._ids[rows[part[g._scope[rows, 0]] == c]] for g, rows in tied]
    return f"factor {int(np.concatenate(ids).min())}"


def tied_parts(n: int, groups: list[tuple[FactorGroup, Ints]]) -> NDArray[np.int32]:
    """The part of each of n variables: those that share one of these factors belong together."""
    scopes = [g._scope[rows] for g, rows in groups]
    first = join([np.repeat(s[:, 0], s.shape[1] - 1) for s in scopes], np.int32)
    others = join([s[:, 1:].ravel() for s in scopes], np.int32)
    return components(n, first, others)


def _block_scores(model: Conditioned, members: Ints, x: NDArray[np.int32]) -> Floats:
    """log p of all assignments of a block, up to a constant, given the others' states."""
    graph = model.graph
    shape = tuple(graph._n_states[members].tolist())
    cells = all_cells(shape)
    total = model.field[graph._offsets[members] + cells].sum(axis=1)
    place = np.full(graph.n_variables, -1)
    place[members] = np.arange(len(members))
    for g in model.groups:
        rows = np.flatnonzero((place[g._scope] >= 0).any(axis=1))
        some = max(1, (1 << 20) // len(cells))
        for begin in range(0, len(rows), some):
            mine = rows[begin : begin + some]
            scope = g._scope[mine]
            inside = place[scope][:, None, :]
            own = np.where(inside >= 0, cells.T[place[scope]].transpose(0, 2, 1), x[scope][:, None])
            scores = g.score(np.repeat(mine, len(cells)), own.reshape(-1, scope.shape[1]))
            total += scores.reshape(len(mine), -1).sum(axis=0)
    return total.reshape(shape)


def _is_stuck(scores: Floats, cell: tuple[int, ...], nats: float) -> bool:
    """Whether a chain that ended in a cell misses a share: of islands apart by so many nats."""
    top = float(scores.max())
    allowed = scores > top - nats
    island = np.full(scores.shape, -1)
    island[allowed] = _islands(allowed)
    mass = np.bincount(island[allowed], np.exp(scores[allowed] - top))
    mine = int(island[_climbed(scores, cell)])
    return mine < 0 or bool(mass[mine] < (1.0 - MISSED) * mass.sum())


def _climbed(scores: Floats, cell: tuple[int, ...]) -> tuple[int, ...]:
    """From a cell to the best that changes of one coordinate, each for the better, lead to."""
    while True:
        lines = [np.moveaxis(scores, a, -1)[cell[:a] + cell[a + 1 :]] for a in range(len(cell))]
        best = [int(np.argmax(line)) for line in lines]
        a = int(np.argmax([line[k] for line, k in zip(lines, best)]))
        if lines[a][best[a]] <= scores[cell]:
            return cell
        cell = (*cell[:a], best[a], *cell[a + 1 :])


def _exclude(
    safe: Mask, model: Conditioned, group: FactorGroup, rows: Ints, nats: float = math.inf
) -> None:
    """Take from ``safe`` the states that a variable may not always take; ``nats`` count as zero."""
    for a, harmless in enumerate(_harmless(group, rows, nats)):
        first = model.graph._offsets[group._scope[rows, a]]
        states = first[:, None] + np.arange(group.shape[a])
        safe[states[~harmless]] = False


def _allowed(model: Conditioned, members: Ints, hard: list[tuple[FactorGroup, Ints]]) -> Mask:
    """Which assignments of a part are allowed, (S_1, ..., S_n)."""
    shape = tuple(model.graph._n_states[members].tolist())
    x = all_cells(shape)
    ok = (model.field[model.graph._offsets[members] + x] > -np.inf).all(axis=1)
    for g, rows in hard:
        for row in rows.tolist():
            own = x[:, np.searchsorted(members, g._scope[row])]
            ok &= g.score(np.full(len(x), row), own) > -np.inf
    return ok.reshape(shape)


def _islands(allowed: Mask) -> NDArray[np.int32]:
    """The island of each allowed cell, (n,): changes of one coordinate lead around it."""
    cell = np.flatnonzero(allowed)
    number = np.full(allowed.size, -1, dtype=np.int32)
    number[cell] = np.arange(len(cell))
    links = [np.zeros((2, 0), dtype=np.int32)]
    for axis in range(allowed.ndim):  # a cell leads to the next allowed one of its line
        line = np.moveaxis(number.reshape(allowed.shape), axis, -1).reshape(-1)
        place = np.flatnonzero(line >= 0)
        same = place[1:] // allowed.shape[axis] == place[:-1] // allowed.shape[axis]
        links.append(np.stack([line[place[:-1]], line[place[1:]]])[:, same])
    i, j = np.concatenate(links, axis=1)
    return components(len(cell), i, j)


def _harmless(group: FactorGroup, rows: Ints, nats: float) -> Iterator[Mask]:
    """States that a variable may always take, by position: each (n, S_a)."""
    if group.form == "machine":
        m = group.machine()
        ends = m.final > m.final.max(axis=1, keepdims=True) - nats
        ends = np.broadcast_to(ends, (len(group), m.final.shape[1]))[rows]
        key = np.concatenate([m.start[rows, None], ends], axis=1)
        kinds, which = np.unique(key, axis=0, return_inverse=True)
        moves = np.array([_moves(m, int(k[0]), k[1:] > 0) for k in kinds])[which.ravel()]
        for a, size in enumerate(group.shape):  # moves: (n, A, 2)
            is_literal = np.arange(size) == m.literal[rows, a, None]
            yield np.where(is_literal, moves[:, a, 1:], moves[:, a, :1])
        return
    tables = group.log_tables(rows)
    allowed = tables > tables.max(axis=1, keepdims=True) - nats
    allowed = allowed.reshape(len(rows), *group.shape)
    for a in range(group.arity):
        kept = allowed | ~allowed.any(axis=a + 1, keepdims=True)
        others = tuple(b + 1 for b in range(group.arity) if b != a)
        yield np.asarray(kept.all(axis=others))


def _moves(m: Machine, start: int, ends: Mask) -> Mask:
    """Whether each literal may be made false, and made true, wherever it was allowed, (A, 2).

    The pairs of states that the two values of a literal lead to are followed to the end. Literals
    of a run that commute are all like its last.
    """
    arity, n = len(m.step), len(ends)
    step = np.concatenate([m.step, np.full((arity, 1, 2), -1)], axis=1)
    step = np.where(step < 0, n, step)  # forbidden is one state more
    allowed = np.append(ends, False)
    out = np.empty((arity, 2), dtype=bool)
    reach = np.arange(n + 1) == start
    for begin, end, commute in same_steps(m.step):
        for a in range(begin, end):
            if not commute or a == end - 1:
                pairs = np.unique(step[a, reach], axis=0)
                for b in range(a + 1, arity):
                    pairs = np.unique(
                        np.concatenate([step[b][pairs, 0], step[b][pairs, 1]]), axis=0
                    )
                off, on = allowed[pairs].T
                out[begin if commute else a : a + 1] = not (on & ~off).any(), not (off & ~on).any()
            after = np.zeros(n + 1, dtype=bool)
            after[step[a, reach]] = True
            reach = after
    return out
