"""Whether changing one variable at a time can lead from any allowed assignment to any other.

Single-site chains in a model that forbids something may be trapped: of exactly one of three
switches none can be moved alone. Here it is *shown* that they are not, where that is easy: if every
variable has a state that it may take in any allowed assignment without breaking a factor, all
allowed assignments lead to the one where each variable is in that state, and so to one another.
"At most k of these" allows that (false), a clause does (its literals true), tables may. Variables
of small parts without such states are decided by looking at all their assignments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.factors.group import all_cells, components
from minfer.layout import same_steps

if TYPE_CHECKING:
    from minfer.conditioning import Conditioned
    from minfer.factors.group import FactorGroup, Machine


#: Assignments of a part up to which all of them are looked at, and such parts of a model.
MAX_CELLS, MAX_PARTS = 1 << 14, 1 << 8


def no_messages(model: Conditioned) -> str:
    """Why solvers that need values, not messages, decline a model and what to do, or nothing."""
    for g in model.groups:
        if g.form == "messages":
            return (
                f"cannot use factor {int(g._ids[0])}: it is a {g.noun}, which only gives messages; "
                "use BeliefPropagation, or Exact if the model is small"
            )
    return ""


def haven(model: Conditioned) -> tuple[NDArray[np.int32] | None, str]:
    """A state of every variable that all assignments lead to, (V,), where one is needed.

    It is needed in models with hard logical factors; if there is none, the words say of which
    factor and what to do. Hard tables alone are none of its business: there an allowed assignment
    is searched for, and :func:`may_be_trapped` says what is known.
    """
    if why := no_messages(model):
        return None, why
    graph, off = model.graph, model.graph._offsets
    given = [g for g in graph.groups if g.form == "machine"]  # evidence makes tables of some
    if not given:
        return None, ""
    logical = np.zeros(graph.n_factors, dtype=bool)
    for g in given:
        logical[g._ids] = True
    hard = _hard(model)
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
    """A factor by which single moves may not lead everywhere, in words; empty: it is shown they do.

    Parts that share no factor with zeros move on their own. Each must have a state of every
    variable that may always be taken, or so few assignments that all can be looked at.
    """
    hard = _hard(model)
    if not hard:
        return ""
    graph, off = model.graph, model.graph._offsets
    safe = model.field > -np.inf
    for g, rows in hard:
        _exclude(safe, model, g, rows)
    bare = ~np.logical_or.reduceat(safe, off[:-1])
    if not bare.any():
        return ""
    scopes = [g._scope[rows] for g, rows in hard]
    first = np.concatenate([np.repeat(s[:, 0], s.shape[1] - 1) for s in scopes])
    part = components(graph.n_variables, first, np.concatenate([s[:, 1:].ravel() for s in scopes]))
    for n, c in enumerate(np.unique(part[bare]).tolist()):
        members = np.flatnonzero(part == c)
        mine = [(g, rows[part[g._scope[rows, 0]] == c]) for g, rows in hard]
        cells = math.prod(graph._n_states[members].tolist())
        if n >= MAX_PARTS or cells > MAX_CELLS or not _all_joined(_allowed(model, members, mine)):
            i = min(int(g._ids[rows].min()) for g, rows in mine if len(rows))
            return f"factor {i}, which forbids something"
    return ""


def _hard(model: Conditioned) -> list[tuple[FactorGroup, NDArray[np.int64]]]:
    """Groups with factors that forbid something, and which of their rows do."""
    return [(g, rows) for g in model.groups if len(rows := np.flatnonzero(g.forbids()))]


def _exclude(
    safe: NDArray[np.bool_], model: Conditioned, group: FactorGroup, rows: NDArray[np.int64]
) -> None:
    """Take from ``safe`` the states that a variable may not always take."""
    for a, harmless in enumerate(_harmless(group, rows)):
        first = model.graph._offsets[group._scope[rows, a]]
        states = first[:, None] + np.arange(group.shape[a])
        safe[states[~harmless]] = False


def _allowed(
    model: Conditioned,
    members: NDArray[np.int64],
    hard: list[tuple[FactorGroup, NDArray[np.int64]]],
) -> NDArray[np.bool_]:
    """Which assignments of a part are allowed, (S_1, ..., S_n)."""
    shape = tuple(model.graph._n_states[members].tolist())
    x = all_cells(shape)
    ok = (model.field[model.graph._offsets[members] + x] > -np.inf).all(axis=1)
    for g, rows in hard:
        for row in rows.tolist():
            own = x[:, np.searchsorted(members, g._scope[row])]
            ok &= g.score(np.full(len(x), row), own) > -np.inf
    return ok.reshape(shape)


def _all_joined(allowed: NDArray[np.bool_]) -> bool:
    """Whether changes of one coordinate lead from each allowed cell to all others."""
    cell = np.flatnonzero(allowed)
    if len(cell) < 2:
        return True
    number = np.full(allowed.size, -1, dtype=np.int32)
    number[cell] = np.arange(len(cell))
    links = []
    for axis in range(allowed.ndim):  # a cell leads to the next allowed one of its line
        line = np.moveaxis(number.reshape(allowed.shape), axis, -1).reshape(-1)
        place = np.flatnonzero(line >= 0)
        same = place[1:] // allowed.shape[axis] == place[:-1] // allowed.shape[axis]
        links.append(np.stack([line[place[:-1]], line[place[1:]]])[:, same])
    i, j = np.concatenate(links, axis=1)
    return int(components(len(cell), i, j).max()) == 0


def _harmless(group: FactorGroup, rows: NDArray[np.int64]) -> Iterator[NDArray[np.bool_]]:
    """States that a variable may always take, by position: each (n, S_a)."""
    if group.form == "machine":
        m = group.machine()
        ends = np.broadcast_to(m.final > -np.inf, (len(group), m.final.shape[1]))[rows]
        key = np.concatenate([m.start[rows, None], ends], axis=1)
        kinds, which = np.unique(key, axis=0, return_inverse=True)
        moves = np.array([_moves(m, int(k[0]), k[1:] > 0) for k in kinds])[which.ravel()]
        for a, size in enumerate(group.shape):  # moves: (n, A, 2)
            is_literal = np.arange(size) == m.literal[rows, a, None]
            yield np.where(is_literal, moves[:, a, 1:], moves[:, a, :1])
        return
    allowed = (group.log_tables(rows) > -np.inf).reshape(len(rows), *group.shape)
    for a in range(group.arity):
        kept = allowed | ~allowed.any(axis=a + 1, keepdims=True)
        others = tuple(b + 1 for b in range(group.arity) if b != a)
        yield np.asarray(kept.all(axis=others))


def _moves(m: Machine, start: int, ends: NDArray[np.bool_]) -> NDArray[np.bool_]:
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
