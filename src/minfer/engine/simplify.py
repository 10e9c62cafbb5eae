"""A smaller model with the same answers, by its zeros, its repetitions and its products.

What comes out has the same variables with fewer states, fewer cells that are not zero and smaller
scopes. In turn, until nothing changes:

* *Zeros.* A state that some factor allows with no possible states of its other variables goes
  (generalised arc consistency; Mackworth 1977). So does a pair of states that one factor over both
  variables excludes from all others over them (pairwise consistency; Janssen et al. 1989). Logical
  factors take part by :mod:`minfer.engine.support`. A variable with one state left is sliced out.
* *Proportional states.* If psi_f(a, .) = c_f psi_f(b, .) for all factors f of a variable, then a
  and b become one state with the weight w_b + w_a prod_f c_f, and given that state the chance of
  each is its share whatever else is known.
* *Products.* A table psi(x, y) = g(x) h(y) over two parts of its scope becomes two tables; tables
  over the same variables become one. Tables over one variable are weights of its states.

All of it can be undone: marginals, joints, samples and best assignments come back in the states
that went in (:class:`Simplified`). What counts as equal agrees to a few units in the last place.
States and factors are looked at by the shape of their tables, many at a time; work is counted in
cells and bounded, so that runs repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.words import counted
from minfer.engine.conditioning import Conditioned
from minfer.engine.layout import ends
from minfer.engine.support import possible
from minfer.errors import NOTHING_POSSIBLE, ContradictionError
from minfer.factors.group import FactorGroup, Tables, n_entries

#: Cells of all tables together beyond which a model is left as it is.
MOST_CELLS = 1 << 24
#: Cells looked at, in all, before it ends where it is.
MOST_WORK = 1 << 31
#: Log-weights that agree to so many units in the last place are equal, or to so much at most.
ULPS, CLOSEST = 8.0 * float(np.finfo(np.float64).eps), 1e-13
#: The logarithm of the least share of a state in what it becomes; it stays away from underflow.
LEAST_SHARE = -600.0
#: Variables of tables that are split in any way; of larger ones a variable at a time.
SPLIT_ANYWHERE = 6
#: Variables and cells of tables whose pairs of variables are made consistent.
PAIRS_ARITY, PAIRS_CELLS = 8, 1 << 12

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Simplified:
    """A model, what is left of it, and the way back. V variables, S states before, T after."""

    before: Conditioned
    model: Conditioned
    state: NDArray[np.int32]  # (sum S,) what each state has become, -1: excluded
    share: Floats  # (sum S,) p(state | what it has become)
    leader: NDArray[np.int32]  # (sum T,) the most likely of the states that became one
    best: Floats  # (sum T,) the field with that one's weight instead of the sum
    shift: Floats  # (sum T,) what the field of a free variable has beside that of ``before``
    free: Mask  # (V,) variables whose field may change
    excluded: int = 0  # states that zeros exclude
    merged: int = 0  # states that went into others
    fixed: int = 0  # variables with a single state left, more than before
    split: int = 0  # tables that became two
    joined: int = 0  # tables that went into others
    zeroed: int = 0  # cells that have become zero
    rounds: int = 0

    @property
    def changed(self) -> bool:
        """Whether the model is another one."""
        return self.model is not self.before

    @property
    def note(self) -> str:
        """What was done, in a few words; empty if nothing."""
        parts = [
            (self.excluded, "state", " excluded by zeros"),
            (self.merged, "state", " merged"),
            (self.fixed, "variable", " fixed"),
            (self.split, "table", " split"),
        ]
        told = [f"{counted(n, noun)}{how}" for n, noun, how in parts if n]
        return f"simplified: {', '.join(told)}" if told else ""

    def marginals(self, probs: Floats) -> Floats:
        """Of all states before, (..., sum S), from those of the states after, (..., sum T)."""
        return probs[..., self._where] * self._factor

    def joint(self, variables: Sequence[int], table: Floats) -> Floats:
        """Over the states of some variables before, from a joint over those after."""
        off = self.before.graph._offsets
        for axis, v in enumerate(variables):
            own = slice(int(off[v]), int(off[v + 1]))
            share = self._factor[own].reshape([-1] + [1] * (table.ndim - 1 - axis))
            table = np.take(table, np.maximum(self.state[own], 0), axis=axis) * share
        return table

    def means(self, values: Floats) -> Floats:
        """Of numbers of the states before, (sum S,), the mean over those that became one."""
        total = np.bincount(self._where, values * self._factor, minlength=len(self.leader))
        return np.asarray(total[: len(self.leader)], dtype=np.float64)

    def best_states(self, states: NDArray) -> Ints:
        """The most likely assignments (..., V) before, of assignments after."""
        return self.leader[self.model.graph._offsets[:-1] + states].astype(np.int64)

    def draw_states(self, states: NDArray, rng: np.random.Generator) -> Ints:
        """Assignments (n, V) before, drawn given assignments after."""
        out = self.best_states(states)
        before, after = self.before.graph, self.model.graph
        merged = np.bincount(self._owner, self.state >= 0, minlength=len(self.free))
        for v in np.flatnonzero(merged > after._n_states):
            own = slice(int(before._offsets[v]), int(before._offsets[v + 1]))
            here = self.state[own] == np.arange(after._n_states[v])[:, None]
            upto = np.cumsum(here * self.share[own], axis=1)
            upto /= upto[:, -1:]
            drawn = rng.random(len(states))[:, None] * np.ones(1)
            found = (drawn >= upto[states[:, v]]).sum(axis=1)
            last = here.shape[1] - 1 - np.argmax(here[:, ::-1], axis=1)
            out[:, v] = np.minimum(found, last[states[:, v]])
        return out

    def field(self, field: Floats) -> Floats:
        """The field after, (sum T,), for one before that differs on free variables only."""
        out = self.model.field.copy()
        graph = self.model.graph
        own = np.repeat(self.free, graph._n_states)
        first = np.repeat(self.before.graph._offsets[:-1], graph._n_states)
        out[own] = field[(first + self.leader)[own]] + self.shift[own]
        return out

    @property
    def _owner(self) -> Ints:
        return np.repeat(np.arange(len(self.free)), self.before.graph._n_states)

    @property
    def _where(self) -> Ints:
        """Where each state before is among those after, (sum S,); of what is excluded anywhere."""
        return self.model.graph._offsets[self._owner] + np.maximum(self.state, 0)

    @property
    def _factor(self) -> Floats:
        return np.where(self.state >= 0, self.share, 0.0)


def simplify(model: Conditioned, free: Mask | None = None) -> Simplified:
    """Simplify a model to a fixed point. ContradictionError if its zeros exclude everything.

    ``free`` (V,): variables whose field will change. What it says is not used, none of their states
    is merged; those that tables exclude may still go.
    """
    lent = np.zeros(model.graph.n_variables, dtype=bool) if free is None else np.asarray(free, bool)
    cells = sum(n_entries(g.shape) * len(g) for g in model.groups if g.form == "table")
    if cells > MOST_CELLS or any(g.form == "messages" for g in model.groups):
        return untouched(model, lent)
    return _Work(model, lent).result()


def untouched(model: Conditioned, free: Mask | None = None) -> Simplified:
    """Nothing done."""
    graph, n = model.graph, len(model.field)
    own = (np.arange(n) - np.repeat(graph._offsets[:-1], graph._n_states)).astype(np.int32)
    lent = np.zeros(graph.n_variables, dtype=bool) if free is None else free
    return Simplified(model, model, own, np.ones(n), own, model.field, np.zeros(n), lent)


class _Bundle(NamedTuple):
    """n tables of one shape, the variables of each in order of their size and number."""

    shape: tuple[int, ...]
    scope: NDArray[np.int32]  # (n, A)
    log_psi: Floats  # (n, cells), our own
    ids: Ints  # (n,) a factor of the graph that each is of
    fresh: Mask  # (n,) not yet tried to be split
    stale: Mask  # (n,) with zeros that others have not heard of

    def rows(self, which: NDArray) -> _Bundle:
        return _Bundle(self.shape, *(x[which] for x in self[1:]))


class _Link(NamedTuple):
    """What tables of one shape say of some of their variables, one or two."""

    axes: tuple[int, ...]
    size: int
    rows: Ints  # (r,) of the bundle
    where: Ints  # (r,) number of the variable or pair
    first: Ints  # (r,) where its states are among all


class _Work:
    """A model on its way."""

    def __init__(self, model: Conditioned, free: Mask) -> None:
        self.before, graph = model, model.graph
        self.free = free
        self.sizes = graph._n_states.astype(np.int64)
        self.off = ends(self.sizes)
        self.fixed = model.fixed.copy()
        self.constant = model.constant
        own = np.repeat(self.free, self.sizes)
        self.field = np.where(own, 0.0, model.field)  # of free ones, what is added
        self.best = self.field.copy()
        n = len(self.field)
        self.at = np.arange(n)  # (sum S,) where each state is now, -1: excluded
        self.leader = np.arange(n)  # (sum T,) where each was, or its most likely member
        self.log_share = np.zeros(n)
        self.done = dict.fromkeys(("excluded", "merged", "fixed", "split", "joined", "zeroed"), 0)
        self.work = self.rounds = 0
        self.machines = [g for g in model.groups if g.form == "machine"]
        self._hold()
        self.bundles: list[_Bundle] = []
        self._gather([_bundle(g) for g in model.groups if g.form == "table"])
        known = self.fixed >= 0
        if known.any():  # nothing refers to them
            only = np.zeros(n, dtype=bool)
            only[self.off[:-1][known] + self.fixed[known]] = True
            self.fixed[known] = 0
            self._keep(only | ~np.repeat(known, self.sizes))
        self._drop(self.field > -np.inf)
        self._run()

    def _hold(self) -> None:
        """Variables of logical factors keep their states."""
        self.held = np.zeros(len(self.sizes), dtype=bool)
        for g in self.machines:
            self.held[g._scope] = True

    def _run(self) -> None:
        """To a fixed point, or to the end of the budget."""
        news = True
        while news and self.work < MOST_WORK:
            self.rounds += 1
            news = self._consistent()
            news |= self._merge()
            news |= self._split()

    def result(self) -> Simplified:
        done = self.done
        before = self.before
        if not any(done[k] for k in ("excluded", "merged", "fixed", "split", "joined")):
            return replace(untouched(before, self.free), zeroed=done["zeroed"], rounds=self.rounds)
        n_states = self.sizes.astype(np.int32)
        graph = replace(before.graph, _n_states=n_states, _field=None, _states=None)
        tables: list[FactorGroup] = []
        for b in self.bundles:
            order = np.argsort(b.ids, kind="stable")
            tables.append(Tables(b.ids[order], b.scope[order], b.shape, b.log_psi[order]))
        own = np.repeat(self.free, self.sizes)
        given = before.field[self.leader]
        field = np.where(own, given + self.field, self.field)
        best = np.where(own, given + self.best, self.best)
        groups = (*tables, *self.machines)
        model = Conditioned(graph, self.constant, field, self.fixed, groups)
        old = before.graph._offsets[:-1]
        size = before.graph._n_states
        owner = np.repeat(np.arange(len(size)), size)
        state = np.where(self.at >= 0, self.at - self.off[owner], -1).astype(np.int32)
        leader = (self.leader - np.repeat(old, self.sizes)).astype(np.int32)
        share = np.where(self.at >= 0, np.exp(self.log_share), 0.0)
        shift = np.where(own, self.field, 0.0)
        return Simplified(
            before, model, state, share, leader, best, shift, self.free, rounds=self.rounds, **done
        )

    # ------------------------------------------------------------------ tables

    def _gather(self, parts: Sequence[_Bundle]) -> None:
        """Take tables in: no variable to the constant, one to the field, others by shape, those
        over the same variables as one."""
        by_shape: dict[tuple[int, ...], list[_Bundle]] = {}
        for part in parts:
            if len(part.shape) == 0:
                self.constant += float(part.log_psi.sum())
                if self.constant == -np.inf:
                    raise ContradictionError(NOTHING_POSSIBLE)
            elif len(part.shape) == 1:
                at = self.off[part.scope] + np.arange(part.shape[0])
                np.add.at(self.field, at, part.log_psi)
                np.add.at(self.best, at, part.log_psi)
            elif len(part.scope):
                for b in _in_order(part, len(self.sizes)):
                    by_shape.setdefault(b.shape, []).append(b)
        self.bundles = []
        for shape in sorted(by_shape, key=lambda s: (len(s), s)):
            some = by_shape[shape]
            b = some[0]
            if len(some) > 1:
                b = _Bundle(shape, *(np.concatenate(x) for x in list(zip(*some))[1:]))
            self.bundles.append(self._multiplied(b))

    def _multiplied(self, b: _Bundle) -> _Bundle:
        """Tables over the same variables as one."""
        order = np.lexsort((b.ids, *b.scope.T[::-1]))
        scope = b.scope[order]
        first = np.append(True, (scope[1:] != scope[:-1]).any(axis=1))
        if first.all():
            return b
        begin = np.flatnonzero(first)
        self.done["joined"] += len(order) - len(begin)
        several = np.diff(begin, append=len(order)) > 1
        fresh = np.logical_or.reduceat(b.fresh[order], begin) | several
        stale = np.logical_or.reduceat(b.stale[order], begin) | several
        log_psi = np.add.reduceat(b.log_psi[order], begin, axis=0)
        return _Bundle(b.shape, scope[begin], log_psi, b.ids[order][begin], fresh, stale)

    def _keep(self, keep: Mask) -> None:
        """Leave out states (sum T,); a variable with one state left goes out of its tables."""
        owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
        sizes = np.bincount(owner[keep], minlength=len(self.sizes))
        smaller = sizes < self.sizes
        off, old_off, old_sizes = ends(sizes), self.off, self.sizes
        new = np.where(keep, np.cumsum(keep) - 1, -1)
        self.at = np.where(self.at >= 0, new[self.at], -1)
        states = np.flatnonzero(keep)
        own = states - old_off[owner[states]]  # of the states kept, their numbers till now
        self.field, self.best = self.field[keep], self.best[keep]
        self.leader = self.leader[keep]
        self.sizes, self.off = sizes, off
        newly = (sizes == 1) & (self.fixed < 0)
        self.fixed[newly] = 0
        self.done["fixed"] += int(newly.sum())
        parts: list[_Bundle] = []
        for b in self.bundles:
            hit = np.asarray(smaller[b.scope].any(axis=1))
            if not hit.any():
                parts.append(b)
                continue
            parts.append(b.rows(~hit))
            some = b.rows(hit)
            shapes = sizes[some.scope]
            kinds, which = np.unique(shapes, axis=0, return_inverse=True)
            which = which.ravel()
            for k, shape in enumerate(kinds.tolist()):
                part = some.rows(which == k)
                cell = np.zeros((len(part.scope), 1), dtype=np.int64)
                for axis, size in enumerate(shape):
                    local = own[off[part.scope[:, axis]][:, None] + np.arange(size)]
                    cell = cell[:, :, None] * b.shape[axis] + local[:, None, :]
                    cell = cell.reshape(len(cell), -1)
                left = np.array(shape) > 1
                self.work += cell.size
                parts.append(
                    part._replace(
                        shape=tuple(s for s in shape if s > 1),
                        scope=np.ascontiguousarray(part.scope[:, left]),
                        log_psi=np.take_along_axis(part.log_psi, cell, axis=1),
                        fresh=np.ones(len(cell), dtype=bool),
                    )
                )
        assert (old_sizes >= sizes).all()
        self._gather(parts)

    # ------------------------------------------------------------------ zeros

    def _drop(self, alive: Mask) -> bool:
        """Leave out states (sum T,) that are not alive; whether there were some."""
        counts = np.add.reduceat(alive, self.off[:-1], dtype=np.int64) if len(alive) else self.sizes
        if (counts == 0).any():
            raise self._empty(int(np.argmin(counts)))
        known = self.held & (counts == 1) & (self.fixed < 0)
        if known.any():
            self._slice(known, alive)
        held = np.repeat(self.held, self.sizes)
        lost = held & ~alive & (self.field > -np.inf)
        self.field[lost] = self.best[lost] = -np.inf
        gone = ~alive & ~held
        self.done["excluded"] += int(gone.sum() + lost.sum())
        if gone.any() or ((self.sizes == 1) & (self.fixed < 0)).any():
            self._keep(~gone)
        return bool(gone.any() or lost.any())

    def _slice(self, known: Mask, alive: Mask) -> None:
        """Logical factors of variables whose state has become known."""
        owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
        states = np.full(len(self.sizes), -1, dtype=np.int32)
        at = np.flatnonzero(alive & known[owner])
        states[owner[at]] = at - self.off[owner[at]]
        parts = [part for g in self.machines for part in g.sliced(known, states)]
        small = [g for g in parts if g.form == "table" or g.arity < 2]
        self.machines = [g for g in parts if g.form != "table" and g.arity >= 2]
        self._hold()
        tables = (g if g.form == "table" else g.as_tables() for g in small)
        self._gather([*self.bundles, *map(_bundle, tables)])

    def _empty(self, v: int) -> ContradictionError:
        name = self.before.graph.name(v)
        return ContradictionError(f"{NOTHING_POSSIBLE}: variable {name} has no state left")

    def _consistent(self) -> bool:
        """Exclude what zeros exclude; whether that is anything."""
        found = False
        while True:
            alive = self._by_tables()
            if self.machines:
                field = np.where(alive, 0.0, -np.inf)
                size = self.sizes.astype(np.int32)
                graph = replace(self.before.graph, _n_states=size, _field=None, _states=None)
                machines = Conditioned(graph, 0.0, field, self.fixed, tuple(self.machines))
                alive = possible(machines).astype(bool)
            if not self._drop(alive):
                return found
            found = True

    def _by_tables(self) -> Mask:
        """States that tables leave, (sum T,); cells that cannot be become zero."""
        alive = self.field > -np.inf
        stale = [b.stale & np.isneginf(b.log_psi).any(axis=1) for b in self.bundles]
        if alive.all() and not any(s.any() for s in stale):
            for b in self.bundles:
                b.stale[:] = False
            return alive
        links, n = self._links()
        allowed = np.append(alive, np.ones(n - len(alive), dtype=bool))
        touched = np.zeros(1 + max([int(x.where.max(initial=0)) for own in links for x in own],
                                   default=0), dtype=bool)  # fmt: skip
        owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
        near = np.zeros(len(self.sizes), dtype=bool)
        for b, s in zip(self.bundles, stale):
            near[b.scope[s]] = True
        dead = owner[~alive]
        touched[dead[dead < len(touched)]] = True
        cells = [(b.log_psi > -np.inf).reshape(-1, *b.shape) for b in self.bundles]
        dirty = [np.asarray(near[b.scope].any(axis=1)) for b in self.bundles]
        changed = [np.zeros(len(b.ids), dtype=bool) for b in self.bundles]
        while self.work < MOST_WORK:
            for own, t, d, c in zip(links, cells, dirty, changed):
                for link in own:
                    self._restrict(link, t, allowed, touched, d, c)
            touched[:] = False
            for own, t, d in zip(links, cells, dirty):
                if d.any():
                    for link in own:
                        self._project(link, t, allowed, touched, d)
                    d[:] = False
            if not touched.any():
                break
        for b, t, c in zip(self.bundles, cells, changed):
            b.stale[:] = False
            rows = np.flatnonzero(c)
            if len(rows):
                log_psi = b.log_psi[rows]
                gone = ~t[rows].reshape(log_psi.shape) & (log_psi > -np.inf)
                self.done["zeroed"] += int(gone.sum())
                log_psi[gone] = -np.inf
                b.log_psi[rows] = log_psi
                b.fresh[rows] = True
        return allowed[: len(alive)]

    def _links(self) -> tuple[list[list[_Link]], int]:
        """What factors say of variables, and of pairs that several have; and how many states and
        pairs of states these have."""
        n, total = len(self.sizes), len(self.field)
        links = [
            [_Link((a,), size, np.arange(len(b.ids)), b.scope[:, a].astype(np.int64),
                   self.off[b.scope[:, a]]) for a, size in enumerate(b.shape)]
            for b in self.bundles
        ]  # fmt: skip
        pairs, keys, sizes = [], [], []
        for k, b in enumerate(self.bundles):
            if len(b.shape) <= PAIRS_ARITY and n_entries(b.shape) <= PAIRS_CELLS:
                for x, y in combinations(range(len(b.shape)), 2):
                    pairs.append((k, x, y))
                    keys.append(b.scope[:, x].astype(np.int64) * n + b.scope[:, y])
                    sizes.append(np.full(len(b.ids), b.shape[x] * b.shape[y]))
        if not keys:
            return links, total
        flat, size = np.concatenate(keys), np.concatenate(sizes)
        _, begin, which, count = np.unique(flat, return_index=True, return_inverse=True,
                                           return_counts=True)  # fmt: skip
        which = which.ravel()
        starts = total + ends(np.where(count > 1, size[begin], 0))
        done = 0
        for (k, x, y), key in zip(pairs, keys):
            own = which[done : done + len(key)]
            done += len(key)
            rows = np.flatnonzero(count[own] > 1)
            if len(rows):
                b = self.bundles[k]
                own = own[rows]
                links[k].append(_Link((x, y), b.shape[x] * b.shape[y], rows, n + own, starts[own]))
        return links, int(starts[-1])

    def _restrict(
        self, link: _Link, cells: Mask, allowed: Mask, touched: Mask, dirty: Mask, changed: Mask
    ) -> None:
        """Put what is not allowed out of tables."""
        mine = np.flatnonzero(touched[link.where])
        if not len(mine):
            return
        rows = link.rows[mine]
        shape = [s if a in link.axes else 1 for a, s in enumerate(cells.shape[1:])]
        left = allowed[link.first[mine][:, None] + np.arange(link.size)]
        now = cells[rows]
        self.work += now.size
        new = now & left.reshape(-1, *shape)
        lost = (new != now).reshape(len(rows), -1).any(axis=1)
        if lost.any():
            rows = rows[lost]
            cells[rows], dirty[rows], changed[rows] = new[lost], True, True

    def _project(self, link: _Link, cells: Mask, allowed: Mask, touched: Mask, dirty: Mask) -> None:
        """Put out what tables do not allow."""
        mine = np.flatnonzero(dirty[link.rows])
        if not len(mine):
            return
        others = tuple(1 + a for a in range(cells.ndim - 1) if a not in link.axes)
        now = cells[link.rows[mine]]
        self.work += now.size
        at = link.first[mine][:, None] + np.arange(link.size)
        gone = ~now.any(axis=others).reshape(at.shape) & allowed[at]
        if gone.any():
            allowed[at[gone]] = False
            touched[link.where[mine][gone.any(axis=1)]] = True

    # ------------------------------------------------------------------ states

    def _merge(self) -> bool:
        """Merge proportional states; whether there were some."""
        may = ~self.held & ~self.free & (self.fixed < 0)
        if not may.any():
            return False
        owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
        n = len(owner)
        # a random combination of each state's numbers, which proportional ones share
        mark, size = np.zeros(n), np.zeros(n)
        for b in self.bundles:
            for axis in range(len(b.shape)):
                m, top = _by_state(b, axis, slice(None))
                self.work += m.size
                with np.errstate(invalid="ignore"):
                    m = np.where(m > -np.inf, m - top[:, :, None], -1e3)
                weights = np.random.default_rng(m.shape[2]).uniform(0.5, 1.5, m.shape[2])
                salt = np.sqrt(2.0 + b.ids % 997 + axis)[:, None]
                value = (m @ weights) * salt
                at = (self.off[b.scope[:, axis]][:, None] + np.arange(b.shape[axis])).ravel()
                mark += np.bincount(at, value.ravel(), minlength=n)
                size += np.bincount(at, np.abs(value).ravel(), minlength=n)
        order = np.lexsort((mark, owner))
        same = (owner[order][1:] == owner[order][:-1]) & may[owner[order][1:]]
        same &= np.diff(mark[order]) <= 1e-10 * (1.0 + size[order][1:])
        if not same.any():
            return False
        run = np.cumsum(np.append(True, ~same)) - 1
        least = np.minimum.reduceat(order, np.flatnonzero(np.append(True, ~same)))
        into = np.empty(n, dtype=np.int64)
        into[order] = least[run]
        ratio = self._verified(into)
        some = np.flatnonzero(into != np.arange(n))
        if not len(some):
            return False
        there = self.at >= 0
        while True:
            home = into[some]
            field = self.field.copy()
            np.logaddexp.at(field, home, self.field[some] + ratio[some])
            share = np.zeros(n)
            share[home] = self.field[home] - field[home]
            share[some] = self.field[some] + ratio[some] - field[home]
            lost = self.log_share[there] + share[self.at[there]] < LEAST_SHARE
            if not lost.any():
                break
            apart = np.zeros(n, dtype=bool)
            apart[into[self.at[there][lost]]] = True
            some = some[~apart[home]]
            if not len(some):
                return False
        ratio = ratio[some]
        self.done["merged"] += len(some)
        best = self.best.copy()
        np.maximum.at(best, home, self.best[some] + ratio)
        ahead = (self.best[some] + ratio == best[home]) & (best[home] > self.best[home])
        self.leader[home[ahead]] = self.leader[some[ahead]]
        self.log_share[there] += share[self.at[there]]
        moved = np.arange(n)  # those that stay apart do not
        moved[some] = into[some]
        self.at[there] = moved[self.at[there]]
        self.field, self.best = field, best
        keep = np.ones(n, dtype=bool)
        keep[some] = False
        self._keep(keep)
        return True

    def _verified(self, into: Ints) -> Floats:
        """Log-ratios of states to those that they seem proportional to, (sum T,); where they are
        not, ``into`` is put back."""
        n = len(into)
        ratio, bad = np.zeros(n), into[into] != into
        moves = into != np.arange(n)
        owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
        moving = np.zeros(len(self.sizes), dtype=bool)
        moving[owner[moves]] = True
        for b in self.bundles:
            for axis, size in enumerate(b.shape):
                rows = np.flatnonzero(moving[b.scope[:, axis]])
                if not len(rows):
                    continue
                m, top = _by_state(b, axis, rows)
                first = self.off[b.scope[rows, axis]][:, None]
                at = first + np.arange(size)
                local = into[at] - first
                with np.errstate(invalid="ignore"):
                    m = m - top[:, :, None]
                    there = m[np.arange(len(rows))[:, None], local]
                    close = np.abs(m - there) <= _tolerance(b.log_psi[rows])[:, None, None]
                equal = (close | (m == there)).all(axis=2)
                bad[at[~equal]] = True
                more = top - np.take_along_axis(top, local, axis=1)
                ratio += np.bincount(at.ravel(), more.ravel(), minlength=n)
        into[bad] = np.flatnonzero(bad)
        return ratio

    # ------------------------------------------------------------------ products

    def _split(self) -> bool:
        """Split tables that are products; whether there were some."""
        if not any(b.fresh.any() for b in self.bundles):
            return False
        todo, n = list(self.bundles), 0
        done: list[_Bundle] = []
        while todo:
            b = todo.pop()
            left = np.flatnonzero(b.fresh)
            whole = np.ones(len(b.ids), dtype=bool)
            for axes in _parts_of(len(b.shape)):
                if not len(left) or self.work > MOST_WORK:
                    break
                rest = tuple(a for a in range(len(b.shape)) if a not in axes)
                shapes = [tuple(b.shape[a] for a in x) for x in (axes, rest)]
                log_psi = b.log_psi[left]
                m = log_psi.reshape(-1, *b.shape).transpose(0, *(1 + a for a in axes + rest))
                m = m.reshape(len(left), n_entries(shapes[0]), -1)
                self.work += m.size
                row, column = np.divmod(m.reshape(len(left), -1).argmax(axis=1), m.shape[2])
                every = np.arange(len(left))
                top = m[every, row, column][:, None]
                if top.min() == -np.inf:
                    raise ContradictionError(NOTHING_POSSIBLE)
                one, two = m[every, :, column] - top, m[every, row] - top
                with np.errstate(invalid="ignore"):
                    product = (top + one)[:, :, None] + two[:, None, :]
                    close = np.abs(product - m) <= _tolerance(log_psi)[:, None, None]
                yes = (close | (product == m)).all(axis=(1, 2))
                if not yes.any():
                    continue
                rows = left[yes]
                whole[rows] = False
                left = left[~yes]
                n += len(rows)
                self.constant += float(top[yes].sum())
                some = b.rows(rows)
                for x, shape, values in zip((axes, rest), shapes, (one[yes], two[yes])):
                    scope = np.ascontiguousarray(some.scope[:, list(x)])
                    fresh = np.full(len(rows), len(x) > 1)
                    part = some._replace(shape=shape, scope=scope, log_psi=values, fresh=fresh)
                    (todo if len(x) > 1 else done).append(part)
            b.fresh[:] = False
            done.append(b if whole.all() else b.rows(whole))
        self.done["split"] += n
        if n:
            self._gather(done)
        return n > 0


def _bundle(g: FactorGroup) -> _Bundle:
    """Tables of a group, copied."""
    log_psi = np.array(np.broadcast_to(g.log_tables(), (len(g), n_entries(g.shape))))
    ids = g._ids.astype(np.int64)
    return _Bundle(
        tuple(g.shape), g._scope, log_psi, ids, np.ones(len(g), bool), np.ones(len(g), bool)
    )


def _in_order(b: _Bundle, n: int) -> Iterator[_Bundle]:
    """The same tables with the variables of each in order of their size and number."""
    by_size = np.argsort(b.shape, kind="stable")
    shape = tuple(b.shape[a] for a in by_size)
    run = np.cumsum(np.append(0, np.diff(shape) > 0))
    perm = np.argsort(run * n + b.scope[:, by_size].astype(np.int64), axis=1, kind="stable")
    perm = by_size[perm]
    code = perm @ (len(shape) ** np.arange(len(shape), dtype=object)).astype(np.int64)
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    which = which.ravel()
    for k, row in enumerate(first.tolist()):
        order = perm[row]
        part = b if len(first) == 1 else b.rows(which == k)
        if (order == np.arange(len(shape))).all():
            yield part
            continue
        table = part.log_psi.reshape(-1, *b.shape).transpose(0, *(1 + order))
        log_psi = np.ascontiguousarray(table).reshape(len(part.ids), -1)
        scope = np.ascontiguousarray(part.scope[:, order])
        yield part._replace(shape=shape, scope=scope, log_psi=log_psi)


def _by_state(b: _Bundle, axis: int, rows: NDArray | slice) -> tuple[Floats, Floats]:
    """Tables by the state of one variable, (n, states, cells), and the largest of each state."""
    m = np.moveaxis(b.log_psi[rows].reshape(-1, *b.shape), 1 + axis, 1)
    m = m.reshape(m.shape[0], m.shape[1], -1)
    top = m.max(axis=2)
    return m, np.where(top > -np.inf, top, 0.0)


def _tolerance(log_psi: Floats) -> Floats:
    """How far equal numbers of tables (n, cells) may be apart, (n,)."""
    size = np.where(log_psi > -np.inf, np.abs(log_psi), 0.0).max(axis=1)
    return np.minimum(ULPS * np.maximum(size, 1.0), CLOSEST)


def _parts_of(n: int) -> Iterator[tuple[int, ...]]:
    """One of the two parts of each way to split n variables."""
    for k in range(1, n // 2 + 1 if n <= SPLIT_ANYWHERE else 2):
        for axes in combinations(range(n), k):
            if 2 * k < n or axes[0] == 0:
                yield axes
