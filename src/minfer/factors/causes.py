"""Conditional distributions in which each parent acts on its own: noisy-OR, -AND, -MAX and -MIN.

Every parent i draws a state z_i of the child from a distribution q_i(. | x_i), and so does nobody,
the leak; the child is the highest of them (or the lowest). That is a number for each state of each
parent, not for each combination (Pearl 1988; Henrion 1989; Diez 1993):

    P(Y <= y | x) = L(y) prod_i C_i(y | x_i),        C and L the cumulative sums of q and the leak.

Taken one parent after another, the highest state so far is the state of a chain (Heckerman &
Breese 1996),

    f_0 = leak,      f_i(s) = f_{i-1}(s) C_i(s | x_i) + q_i(s | x_i) sum_{t < s} f_{i-1}(t),

all of it sums of products of numbers that are not negative: nothing cancels, and messages to all
parents take time linear in their number. The chain *sums* over its states. So it serves marginals,
samples and log Z, and not maxima: the best assignment of the model's own variables is not a best
path of the chain. For maxima these factors are tables, or refused where those would be too large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ModelError, RefusedError
from minfer.factors.group import (
    MAX_TABLE_CELLS,
    Entry,
    FactorGroup,
    Floats,
    Get,
    Ints,
    Mask,
    Rows,
    Tables,
    read_only,
)

#: Cells up to which message passing and sampling take these factors as tables.
_MOST_TABLED = 1 << 12
#: Variables and cells up to which elimination does so, too; beyond, they become chains.
_MOST_WRITTEN = 4, 256
_ROW_SUM = 1e-9  # of a distribution in a file


@dataclass(frozen=True, eq=False)
class IndependentCauses(FactorGroup):
    """F conditional distributions over (parents..., child); once the child is known, its state is
    in ``_seen`` and it is no longer in the scope.

    ``_log_q`` has the logarithm of a distribution over the child's states for each state of each
    parent in turn, and last the leak's.
    """

    shape: tuple[int, ...]
    size: int  # S, states of the child
    highest: bool  # the child is the highest of what the parents draw; else the lowest
    _log_q: Floats  # (F, (sum of the parents' states + 1) S)
    _seen: NDArray[np.int32]  # (F,) the state of the child; -1 in all of them: it is in the scope

    kind, noun = "independent-causes", "noisy gate"
    per_factor = ("_log_q", "_seen")

    # ------------------------------------------------------------------ looking

    @property
    def form(self) -> str:  # type: ignore[override]
        return "table" if self.n_cells <= _MOST_TABLED or not self.decomposes else "messages"

    @property
    def decomposes(self) -> bool:
        arity, cells = _MOST_WRITTEN
        return self.arity > 3 and (self.arity > arity or self.n_cells > cells)

    @property
    def has_tables(self) -> bool:
        return self.n_cells <= MAX_TABLE_CELLS or not self.decomposes

    @property
    def is_conditional(self) -> bool:
        return not len(self) or int(self._seen[0]) < 0

    @property
    def has_maxima(self) -> bool:
        return False

    @property
    def n_parents(self) -> int:
        return self.arity - self.is_conditional

    def distributions(self, row: int) -> list[Floats]:
        """What the parents of a factor draw from, (states, S) each, and the leak, (1, S)."""
        return [read_only(np.exp(q[row])) for q in self._parts(self._log_q)]

    def _parts(self, flat: Floats) -> list[Floats]:
        """Rows (n, all) as arrays (n, states, S) of each parent, and of the leak (n, 1, S)."""
        sizes = [*self.shape[: self.n_parents], 1]
        cuts = np.cumsum(sizes)[:-1] * self.size
        parts = np.split(flat, cuts, axis=1)
        return [p.reshape(len(flat), k, self.size) for p, k in zip(parts, sizes)]

    def has_structure_of(self, other: FactorGroup) -> bool:
        return (
            super().has_structure_of(other)
            and isinstance(other, IndependentCauses)
            and (self.size, self.highest) == (other.size, other.highest)
            and np.array_equal(self._seen, other._seen)
        )

    def _levels(self, logs: Floats) -> Floats:
        """The child's states from the one that has no effect, or back."""
        return logs if self.highest else logs[..., ::-1]

    def _links(self, rows: Rows) -> list[tuple[Floats, Floats]]:
        """Of some factors, log q and log C of each parent, and of the leak, by level."""
        parts = [self._levels(p) for p in self._parts(self._log_q[rows])]
        return [(q, _cumulative(q)) for q in parts]

    def _goals(self, rows: Rows) -> Floats:
        """Log-indicators of the level seen, (n, S)."""
        seen = self._seen[rows][:, None] == np.arange(self.size)
        return self._levels(np.where(seen, 0.0, -np.inf))

    # ------------------------------------------------------------------ values

    def score(self, rows: Ints, states: Ints) -> Floats:
        n, at = len(rows), np.arange(len(rows))
        *parents, (now, _) = self._links(rows)
        now = now[:, 0]
        for a, (q, c) in enumerate(parents):
            now = _after(now, q[at, states[:, a]], c[at, states[:, a]])
        state = states[:, -1] if self.is_conditional else self._seen[rows]
        level = state if self.highest else self.size - 1 - state
        return now[at, level] if n else np.zeros(0)

    def log_tables(self, rows: Rows = slice(None)) -> Floats:
        if not self.has_tables:
            return super().log_tables(rows)  # which refuses
        *parents, (now, _) = self._links(rows)  # (n, cells so far, S)
        for q, c in parents:
            more = _after(now[:, :, None], q[:, None], c[:, None])
            now = more.reshape(len(now), -1, self.size)
        if self.is_conditional:
            return np.ascontiguousarray(self._levels(now)).reshape(len(now), -1)
        states = self._seen[rows]
        levels = states if self.highest else self.size - 1 - states
        return np.take_along_axis(now, levels[:, None, None].astype(np.int64), axis=2)[..., 0]

    def forbids(self) -> Mask:
        """All that may: those with a link of probability zero where it would matter."""
        none = np.array(
            [np.isneginf(c[..., 0]).any(axis=1) for _, c in self._links(slice(None))[:-1]]
        ).any(axis=0)
        leak = self._parts(self._log_q)[-1]
        return np.asarray(np.isneginf(leak).any(axis=(1, 2)) | none)

    def magnitude(self) -> Floats:
        """A bound: each link counts."""
        q = np.where(np.isfinite(self._log_q), np.abs(self._log_q), 0.0)
        return np.array([p.max(axis=(1, 2)) for p in self._parts(q)]).sum(axis=0)

    def spread(self) -> Floats:
        if self.has_tables:
            return super().spread()
        return np.where(self.forbids(), np.inf, 2.0 * self.magnitude())

    # ------------------------------------------------------------------ forms

    def simplified(self) -> list[FactorGroup]:
        """Small ones as tables."""
        return [self] if self.decomposes else [self.as_tables()]

    def messages(self, rows: Ints, incoming: Floats, out: Floats, best: bool = False) -> Floats:
        if best and self.has_tables:
            return super().messages(rows, incoming, out, best)
        if best:
            first = int(self._ids[rows[0] if len(rows) else 0])
            raise RefusedError(
                f"factor {first} is {self._a_noun} over {self.arity} variables that are not "
                "known: best assignments and circuits need its table, which is too large. Observe "
                "more of them, or ask for the most probable state of each (Marginals.mpm)"
            )
        *parents, (leak, _) = self._links(rows)
        sizes = list(self.shape[: self.n_parents])
        cuts = [0, *np.cumsum(sizes).tolist()]
        mine = [incoming[:, lo:hi, None] for lo, hi in pairwise(cuts)]
        goal = self._levels(incoming[:, cuts[-1] :]) if self.is_conditional else self._goals(rows)
        draws = [np.logaddexp.reduce(m + q, axis=1) for m, (q, _) in zip(mine, parents)]
        below = [np.logaddexp.reduce(m + c, axis=1) for m, (_, c) in zip(mine, parents)]
        ahead = [leak[:, 0]]  # before each parent, and at the end
        for q, c in zip(draws, below):
            ahead.append(_after(ahead[-1], q, c))
        behind = goal
        for a in range(self.n_parents - 1, -1, -1):
            q, c = parents[a]
            each = _after(ahead[a][:, None], q, c)
            out[:, cuts[a] : cuts[a + 1]] = np.logaddexp.reduce(each + behind[:, None], axis=2)
            more = _beyond(behind + draws[a])
            behind = np.logaddexp(behind + below[a], more)
        if self.is_conditional:
            out[:, cuts[-1] :] = self._levels(ahead[-1])
        return np.asarray(np.logaddexp.reduce(ahead[-1] + goal, axis=1))

    @property
    def chain_cells(self) -> int:
        return len(self) * self.size * self.size * sum(self.shape[: self.n_parents])

    def chained(self, first: int) -> tuple[list[Tables], list[int]]:
        """Tables (state before, parent, state after) over auxiliary variables from number ``first``
        on, and how many states these have. Parents come in the order of variables where that is one
        group: then chains of many children fit together."""
        group = self._sorted()
        *parents, (now, _) = group._links(slice(None))
        n, last = len(group), group.n_parents - 1
        tables: list[Tables] = []
        states: list[int] = []
        before = np.zeros((n, 0), dtype=np.int64)
        step = now[:, :1]  # (n, 1, S): the start is known
        moves = np.where(np.eye(self.size, dtype=bool), 0.0, -np.inf)[None]
        for a, (q, c) in enumerate(parents):
            ahead = step if a == 0 else moves
            table = _after(ahead[:, :, None], q[:, None], c[:, None])  # (n, before, x, after)
            table = np.broadcast_to(table, (n, *table.shape[1:]))
            if a < last:
                new = first + len(states) + np.arange(n)[:, None]
                states += [self.size] * n
            elif self.is_conditional:
                table, new = self._levels(table), group._scope[:, -1:].astype(np.int64)
            else:
                goal = group._goals(slice(None))
                table = np.logaddexp.reduce(table + goal[:, None, None], axis=3)[..., None]
                new = before[:, :0]
            scope = np.concatenate([before, group._scope[:, a, None], new], axis=1)
            shape = (*[self.size] * before.shape[1], self.shape[a], *[self.size] * new.shape[1])
            logs = np.ascontiguousarray(table).reshape(n, -1)
            tables.append(Tables(np.full(n, -1), scope.astype(np.int32), shape, logs))
            before = new
        return tables, states

    def _sorted(self) -> IndependentCauses:
        """Parents in the order of variables, if they have equally many states."""
        k = self.n_parents
        if len(set(self.shape[:k])) > 1 or not len(self):
            return self
        order = np.argsort(self._scope[:, :k], axis=1, kind="stable")
        scope = self._scope.copy()
        scope[:, :k] = np.take_along_axis(self._scope[:, :k], order, axis=1)
        apart = self._log_q[:, : -self.size].reshape(len(self), k, -1)
        q = np.take_along_axis(apart, order[..., None], axis=1).reshape(len(self), -1)
        return self.replace(
            _scope=scope, _log_q=np.concatenate([q, self._log_q[:, -self.size :]], axis=1)
        )

    # ------------------------------------------------------------------ evidence

    def _slice(self, rows: Ints, known: Mask, states: NDArray[np.int32]) -> list[FactorGroup]:
        """Known parents join the leak; a child that shows no effect takes its parents apart."""
        k = self.n_parents
        at = np.arange(len(rows))
        *parents, (leak, _) = self._links(rows)
        now, seen = leak[:, 0], self._seen[rows]
        places = np.flatnonzero(known).tolist()
        for column, a in enumerate(places):
            if a < k:
                q, c = parents[a]
                now = _after(now, q[at, states[:, column]], c[at, states[:, column]])
            else:
                seen = states[:, column]
        left = [a for a in range(k) if not known[a]]
        rest = [self._levels(parents[a][0]).reshape(len(rows), -1) for a in left]
        group = IndependentCauses(
            self._ids[rows],
            np.ascontiguousarray(self._scope[rows][:, ~known]),
            tuple(s for s, gone in zip(self.shape, known) if not gone),
            self.size,
            self.highest,
            np.concatenate([*rest, self._levels(now)], axis=1),
            np.ascontiguousarray(seen, dtype=np.int32),
        )
        if group.is_conditional:
            return group.simplified()
        quiet = seen == (0 if self.highest else self.size - 1)
        out: list[FactorGroup] = []
        for mine in (np.flatnonzero(~quiet), np.flatnonzero(quiet)):
            if not len(mine):
                continue
            some = group if len(mine) == len(rows) else group.take(mine, group._ids[mine])
            out += some._apart() if quiet[mine[0]] else some.simplified()
        return out

    def _apart(self) -> list[FactorGroup]:
        """Factors whose child shows no effect: none of its parents has any, each by itself."""
        *parents, (leak, _) = self._links(slice(None))
        out: list[FactorGroup] = [Tables(self._ids, self._scope[:, :0], (), leak[:, :, 0])]
        for a, (q, _) in enumerate(parents):
            scope = np.ascontiguousarray(self._scope[:, a : a + 1])
            out.append(Tables(self._ids, scope, self.shape[a : a + 1], q[..., 0].copy()))
        return out

    def without_zeros(self, which: Mask) -> FactorGroup:
        return super().without_zeros(which) if self.has_tables else self

    # ------------------------------------------------------------------ checks and files

    def check_numbers(self) -> None:
        n, k = len(self), self.n_parents
        opened = (self._seen == -1) if self.is_conditional else (self._seen >= 0)
        if self._seen.shape != (n,) or not opened.all() or (self._seen >= self.size).any():
            raise ModelError(f"{self._a_noun}: wrong states of the children")
        if self.size < 2 or k < 0 or (self.is_conditional and self.shape[-1] != self.size):
            raise ModelError(f"{self._a_noun}: children of {self.size} states in {self.shape}")
        if self._log_q.shape != (n, (sum(self.shape[:k]) + 1) * self.size):
            raise ModelError(f"{self._a_noun}: numbers of shape {self._log_q.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.exp(self._log_q).reshape(n, -1, self.size).sum(axis=2)
        wrong = ~(np.abs(total - 1.0) <= _ROW_SUM)
        if wrong.any():
            row, which = np.argwhere(wrong)[0].tolist()
            raise ModelError(
                f"factor {int(self._ids[row])}, {self._a_noun}: distribution {which} sums to "
                f"{total[row, which]:.6g}, not 1"
            )

    def describe(self, put: Callable[[str, NDArray], None]) -> dict[str, Any]:
        put("log_q", self._log_q.astype("<f8"))
        put("seen", self._seen.astype("<i4"))
        return {"size": self.size, "highest": self.highest}

    @classmethod
    def _fields(cls, n: int, shape: tuple[int, ...], get: Get, entry: Entry) -> tuple[Any, ...]:
        size, highest = entry.get("size"), entry.get("highest")
        if type(size) is not int or not 2 <= size <= MAX_TABLE_CELLS or type(highest) is not bool:
            raise ModelError(f"a {cls.noun} of {str(size)[:40]} states")
        seen = get("seen", "<i4", [n])
        parents = shape[:-1] if n and int(seen[0]) < 0 else shape
        log_q = get("log_q", "<f8", [n, (sum(parents) + 1) * size])
        return shape, size, highest, log_q, seen


def _cumulative(log_q: Floats) -> Floats:
    """Log-sums up to each level; zero, but for rounding, at the last."""
    return np.minimum(np.logaddexp.accumulate(log_q, axis=-1), 0.0)


def _after(now: Floats, q: Floats, c: Floats) -> Floats:
    """The highest level so far (..., S), after one more draw from q, whose log-sums are c."""
    out = now + c
    if out.shape[-1] > 1:
        fewer = np.logaddexp.accumulate(now, axis=-1)[..., :-1]
        out[..., 1:] = np.logaddexp(out[..., 1:], fewer + q[..., 1:])
    return np.asarray(out)


def _beyond(logs: Floats) -> Floats:
    """Log-sums over the levels above each one."""
    out = np.full_like(logs, -np.inf)
    out[..., :-1] = np.logaddexp.accumulate(logs[..., :0:-1], axis=-1)[..., ::-1]
    return out
