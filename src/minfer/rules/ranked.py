"""Joins in order of rank: pairs of atoms that are both improbable are never met.

A clause can only matter if u, the product of the chances q that its literals are false, is large
enough. A database joins first and tests u then; in transitivity over n records it meets n^3
bindings. Here two literals are joined in order of falling q (:mod:`minfer.kernels.scores.ranked`):
what is met is what passes, but for the literals that are looked up afterwards.

That needs open literals alone, two of which bind all variables, and conditions that are comparisons
of columns; for other joins :func:`ranked` returns None, and the database joins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.kernels.scores import ranked as kernels
from minfer.reduction.lazy import CHUNK, Ranks, joined
from minfer.rules.blocks import Floats
from minfer.rules.joins import ColumnTest, Equal

if TYPE_CHECKING:
    from minfer.rules.joins import ClauseJoin, OpenLiteral, Source
    from minfer.rules.schema import Store

ROWS = 1 << 18  # of the first literal that are prepared at a time
DENSE = 8  # cells for each row up to which a table has all of them
_SMALL = 1 << 20  # cells that it may have anyway
_MOST_CELLS = 1 << 60
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_COMPARE = {
    "<": np.less, "<=": np.less_equal, "=": np.equal, "<>": np.not_equal, ">": np.greater,
    ">=": np.greater_equal,
}  # fmt: skip
Columns = dict[str, NDArray[Any]]
_Steps = list[tuple[Any, ...]]  # column, lowest value, how many, cells between two of them


class _RankedTable(NamedTuple):
    """Rows of a source, as the database gave them."""

    columns: Columns
    id: NDArray[np.int32]


class RankedTables:
    """Rows of sources, read once; what changes in the database are probabilities alone."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._read: dict[str, _RankedTable | None] = {}

    def get(self, s: Source, conditions: Sequence[str], with_id: bool) -> _RankedTable | None:
        """None where values are not whole numbers of 32 bits."""
        names = sorted({c for _, c in s.variables})
        where = f" where {' and '.join(conditions)}" if conditions else ""
        listed = [*(f"{s.alias}.{c}" for c in names), *([f"{s.alias}.id"] if with_id else [])]
        sql = f"select {', '.join(listed)} from {s.table} {s.alias}{where}"
        sql = re.sub(rf"\b{s.alias}\b", "t", sql)
        if sql not in self._read:
            got = self.store.con.columns(sql) if listed else {}
            fine = bool(listed) and all(
                x.dtype == np.int32 and not np.ma.getmaskarray(x).any() for x in got.values()
            )
            columns = {c: np.ma.getdata(x) for c, x in got.items()} if fine else {}
            n = len(next(iter(columns.values()))) if fine else 0
            ids = columns.pop("id", np.zeros(n, np.int32))
            self._read[sql] = _RankedTable(columns, ids) if fine else None
        return self._read[sql]


class _Lookup(NamedTuple):
    """A table that is looked up by columns of the two literals that are joined."""

    literal: OpenLiteral | None  # None: there must be no row
    rows: _RankedTable
    key: list[tuple[str, str]]  # column of it: column of another source


def ranked(join: ClauseJoin, tables: RankedTables) -> Ranked | None:
    """How a join is made in order of rank; None where it cannot be."""
    mine = {x.alias: x for x in join.literals}
    inner = {s.alias: s for s in join.sources if not s.left}
    if join.merge or join.plus or len(mine) < 2 or not set(mine) <= set(inner):
        return None
    own: dict[str, list[str]] = {s.alias: list(s.own) for s in join.sources}
    tests: list[ColumnTest] = []
    differ: list[tuple[str, str]] = []
    for sql in dict.fromkeys(join.conditions):
        aliases = set(re.findall(r"\b([a-z_]\w*)\.\w", sql))
        test = sql if isinstance(sql, ColumnTest) else None
        if "(select" in sql or "'" in sql or not aliases <= set(own) or not aliases:
            return None
        if len(aliases) == 1 and next(iter(aliases)) not in inner:
            own[next(iter(aliases))].append(sql)  # about what is joined from the left
        elif test is not None and test.a.endswith(".id") and test.b.endswith(".id"):
            if test.op != "<>":
                return None
            if aliases <= set(mine):
                differ.append((test.a[:-3], test.b[:-3]))
            elif aliases <= set(inner) or "is distinct from" not in sql:
                return None
        elif test is not None and aliases <= set(inner) and ".id" not in sql:
            tests.append(test)
        elif len(aliases) == 1:
            own[next(iter(aliases))].append(sql)
        else:
            return None
    for s in join.sources:
        for sql in s.on:
            same = isinstance(sql, ColumnTest) and sql.op == "="
            if sql not in s.own and (not same or ".id" in sql):
                return None
    equal = Equal(join)
    pairs = sorted(permutations(join.literals, 2), key=lambda ab: ab[0].positive + ab[1].positive)
    for a, b in pairs:
        one, two = (
            {equal.of(f"{x.alias}.{c}") for _, c in inner[x.alias].variables} for x in (a, b)
        )
        if len(inner) > 2 and one.isdisjoint(two):
            continue  # all pairs, where another literal would leave a few of them
        lookups = _lookups(join, tables, own, equal, (a.alias, b.alias))
        if lookups is not None:
            sides = [tables.get(inner[x.alias], own[x.alias], True) for x in (a, b)]
            if sides[0] is None or sides[1] is None:
                return None
            found = Ranked(join, (a, b), (sides[0], sides[1]), lookups, tests, differ, equal)
            return found if found.fits else None
    return None


def _lookups(
    join: ClauseJoin,
    tables: RankedTables,
    conditions: Mapping[str, list[str]],
    equal: Equal,
    pair: tuple[str, str],
) -> list[_Lookup] | None:
    """All other sources, looked up by columns of a pair; None where these are not enough."""
    bound = {
        equal.of(f"{s.alias}.{c}"): f"{s.alias}.{c}"
        for s in join.sources if s.alias in pair for _, c in s.variables
    }  # fmt: skip
    literals = {x.alias: x for x in join.literals}
    out = []
    for s in join.sources:
        if s.alias in pair:
            continue
        key = []
        for column in sorted({c for _, c in s.variables}):
            at = f"{s.alias}.{column}"
            same = at  # of a left join, what it must be the same as
            for sql in s.on if s.left else ():
                if isinstance(sql, ColumnTest) and at in (sql.a, sql.b):
                    same = sql.b if sql.a == at else sql.a
                    break
            to = bound.get(equal.of(same))
            if to is None:
                return None
            key.append((column, to))
        own, literal = conditions[s.alias], literals.get(s.alias)
        if literal is None and not s.left:  # few rows: what the database begins with
            return None
        if s.left:  # no row, which passes, or one that its conditions let through
            more = [x for x in own if x not in s.own]
            others = [x for x in s.on if x not in s.own]  # each column is asked for once
            if not more or len(others) != len({c for _, c in s.variables}):
                return None
            no_row = f"(select 1) nothing left join {s.table} {s.alias} on false"
            both = " and ".join(more)
            sql = f"select count(*) from {no_row} where {both}"
            if not tables.store.con.one(sql)[0]:
                return None
            own = [*s.own, f"not coalesce({both}, false)"]
        rows = tables.get(s, own, literal is not None)
        if rows is None:
            return None
        out.append(_Lookup(literal, rows, key))
    return out


class Ranked:
    """A join of two literals by rank, the others looked up."""

    def __init__(
        self,
        join: ClauseJoin,
        pair: tuple[OpenLiteral, OpenLiteral],
        sides: tuple[_RankedTable, _RankedTable],
        lookups: list[_Lookup],
        tests: list[ColumnTest],
        differ: list[tuple[str, str]],
        equal: Equal,
    ) -> None:
        self.pair, self.sides, self.lookups = pair, sides, lookups
        places = {x.alias: k for k, x in enumerate(join.literals)}
        self.place = np.array([places[x.alias] for x in pair])
        self.places = np.array([
            -1 if look.literal is None else places[look.literal.alias] for look in lookups
        ], dtype=np.int64)  # fmt: skip
        self.positive = np.array([x.positive for x in join.literals])
        self.differ = np.array([(places[a], places[b]) for a, b in differ], dtype=np.int64).reshape(
            -1, 2
        )
        mine = [
            {equal.of(f"{x.alias}.{c}"): c for c in side.columns} for x, side in zip(pair, sides)
        ]
        self.shared = [(mine[0][c], mine[1][c]) for c in mine[0] if c in mine[1]]
        fine = [np.ones(len(side.id), dtype=bool) for side in sides]
        for k, (x, side) in enumerate(zip(pair, sides)):
            for c in side.columns:  # columns of one literal that are the same
                fine[k] &= side.columns[c] == side.columns[mine[k][equal.of(f"{x.alias}.{c}")]]
        self.tests: list[tuple[str, int, str]] = []
        for test in tests:
            left, op, right = equal.of(test.a), test.op, equal.of(test.b)
            own = next((k for k in (0, 1) if left in mine[k] and right in mine[k]), None)
            if own is not None:
                columns = sides[own].columns
                fine[own] &= _COMPARE[op](columns[mine[own][left]], columns[mine[own][right]])
            elif op != "=":  # that is among those that are shared
                if left not in mine[0]:
                    left, op, right = right, _TURNED[op], left
                self.tests.append((mine[0][left], kernels.OPS.index(op), mine[1][right]))
        strict = {(a, b) for a, op, b in self.tests if kernels.OPS[op] in ("<", ">")}
        self.tests = [
            x for x in dict.fromkeys(self.tests)
            if kernels.OPS[x[1]] != "<>" or (x[0], x[2]) not in strict
        ]  # fmt: skip
        self.rows = [np.flatnonzero(x).astype(np.int32) for x in fine]
        self.fits = self._prepare()

    def _prepare(self) -> bool:
        """Tables that are looked up, the first literal's rows in the order of the first of them.

        And numbers of what both sides share; whether all that fits into whole numbers.
        """
        names = [x.alias for x in self.pair]
        self._keys: list[tuple[_Steps, _Steps]] = []  # by lookup, what columns of both sides add
        self._tables, self._hashed, cells_ = [], [], []
        for look in self.lookups:
            columns, ids = look.rows.columns, look.rows.id
            steps, cells = _cells({c: columns[c] for c, _ in look.key})
            if cells >= _MOST_CELLS:
                return False
            parts: tuple[_Steps, _Steps] = ([], [])
            for (_, to), (_, *step) in zip(look.key, steps):
                alias, name = to.split(".")
                parts[names.index(alias)].append((name, *step))
            self._keys.append(parts)
            keys = _numbers(len(ids), columns, steps)
            dense = cells <= max(DENSE * len(ids), _SMALL)
            size = cells if dense else 1 << (2 * len(ids) + 1).bit_length()
            table = np.full(size, -1, np.int32)
            hashed = np.zeros(0 if dense else size, np.int64)
            if not kernels.put(keys, ids, table, hashed):
                return False
            cells_.append(cells)
            self._tables.append(table)
            self._hashed.append(hashed)
        self._cells = np.array(cells_, dtype=np.int64)
        if self._keys and self._keys[0][0]:  # neighbours in its table follow each other
            rows, first = self.rows[0], self._keys[0][0][0][0]
            self.rows[0] = rows[np.argsort(self.sides[0].columns[first][rows], kind="stable")]
        b = self.sides[1].columns
        steps, cells = _cells({c: b[c][self.rows[1]] for _, c in self.shared})
        if cells >= _MOST_CELLS:
            return False
        turned = [(c, *step) for (c, _), (_, *step) in zip(self.shared, steps)]
        groups = [
            _numbers(len(rows), side.columns, mine, rows)
            for side, rows, mine in zip(self.sides, self.rows, (turned, steps))
        ]
        if cells > max(DENSE * len(self.rows[1]), _SMALL):
            kinds, groups[1] = np.unique(groups[1], return_inverse=True)
            at = np.minimum(np.searchsorted(kinds, groups[0]), len(kinds) - 1)
            groups[0], cells = np.where(kinds[at] == groups[0], at, -1), len(kinds)
        self._group = [np.maximum(g, -1).astype(np.int32) for g in groups]  # -1: none on the other
        self._groups = cells
        return True

    @property
    def empty(self) -> bool:
        """Whether it is known that nothing is found, whatever the probabilities are."""
        if not all(map(len, self.rows)):
            return True
        return any(self._never(k) for k in range(len(self.lookups)))

    def _never(self, k: int) -> bool:
        """Whether what must not be there is there wherever two different columns may lead."""
        if self.lookups[k].literal is not None:
            return not len(self.lookups[k].rows.id)
        parts = self._keys[k]
        if len(self._hashed[k]) or any(len(p) != 1 for p in parts):
            return False
        at, values = np.flatnonzero(self._tables[k] < 0), []
        for side, ((name, low, size, step),) in zip(self.sides, parts):
            x = side.columns[name]
            if int(x.min()) < low or int(x.max()) >= low + size:
                return False
            values.append(at // step % size + low)
        good = np.ones(len(at), dtype=bool)
        for mine, op, other in self.tests:
            if (mine, other) == (parts[0][0][0], parts[1][0][0]):
                good &= _COMPARE[kernels.OPS[op]](*values)
        return not good.any()

    def find(self, p: Floats, low: float, high: float) -> Iterator[NDArray[np.int32]]:
        """Ids of the clauses with u from ``low`` to ``high``, as arrays that are used again."""
        some, q = self._likely(1, slice(None), p, low)
        ranks = Ranks.of(q, self._group[1][some], self._groups)
        b_rows = self.rows[1][some][ranks.rows]
        del some, q
        a, b = (side.columns for side in self.sides)
        ops = np.array([op for _, op, _ in self.tests], dtype=np.int64)
        b_tests = _stacked([b[name][b_rows] for _, _, name in self.tests], len(b_rows), np.int32)
        b_keys, b_id = self._added(1, b_rows), self.sides[1].id[b_rows]
        del b_rows
        out = np.zeros((CHUNK, len(self.positive)), np.int32)
        for first in range(0, len(self.rows[0]), ROWS):  # what is known of rows is made for some
            here = slice(first, first + ROWS)
            some, q = self._likely(0, here, p, low)
            of = self._group[0][here][some]
            good = (of >= 0) & (q * ranks.best[of] >= low)
            some, q, of = some[good], q[good], of[good]
            rows = self.rows[0][here][some]
            sides = kernels.Sides(
                of, self.sides[0].id[rows], q, ranks.start, b_id, ranks.q, self.place
            )
            a_tests = _stacked([a[name][rows] for name, _, _ in self.tests], len(rows), np.int32)
            tests = kernels.Tests(ops, a_tests, b_tests, self.differ)
            lookups = self._lookups(self._added(0, rows), b_keys)
            yield from joined(sides, p, (low, high), tests, lookups, out)

    def _likely(
        self, side: int, some: slice, p: Floats, low: float
    ) -> tuple[NDArray[np.int64], Floats]:
        """Which of some rows have a literal that is false with a probability of ``low``, and it."""
        q = p[self.sides[side].id[self.rows[side][some]]]
        q = 1 - q if self.pair[side].positive else q
        good = np.flatnonzero(q >= low)
        return good, q[good]

    def _added(self, side: int, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """What rows add to the keys of tables that are looked up."""
        columns = self.sides[side].columns
        found = [_numbers(len(rows), columns, parts[side], rows) for parts in self._keys]
        return _stacked(found, len(rows), np.int64)

    def _lookups(self, a_keys: NDArray[np.int64], b_keys: NDArray[np.int64]) -> kernels.Lookups:
        literals = [look.literal for look in self.lookups]
        return kernels.Lookups(
            a_keys, b_keys, self._cells,
            _ends(self._tables), _end_to_end(self._tables, np.int32),
            _ends(self._hashed), _end_to_end(self._hashed, np.int64),
            np.array([x is not None and x.positive for x in literals], dtype=bool), self.places,
        )  # fmt: skip


def _cells(columns: Columns) -> tuple[_Steps, int]:
    """How columns are counted off as one number, and how many such numbers there are."""
    out: _Steps = []
    cells = 1
    for name, x in columns.items():
        low = int(x.min()) if len(x) else 0
        size = int(x.max()) - low + 1 if len(x) else 1
        out.append((name, low, size, cells))
        cells *= size
    return out, cells


def _numbers(
    n: int, columns: Columns, steps: _Steps, rows: NDArray[np.int32] | slice = slice(None)
) -> NDArray[np.int64]:
    """What columns add to the numbers of n rows, far below 0 where there is no such value."""
    out = np.zeros(n, np.int64)
    for name, low, size, step in steps:
        x = columns[name][rows].astype(np.int64) - low
        out += np.where((x >= 0) & (x < size), x * step, -_MOST_CELLS)
    return out


def _stacked(rows: list[NDArray[Any]], n: int, kind: Any) -> NDArray[Any]:
    if len(rows) == 1:
        return rows[0][None]
    return np.stack(rows) if rows else np.zeros((0, n), kind)


def _ends(parts: list[NDArray[Any]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum([len(x) for x in parts])]).astype(np.int64)


def _end_to_end(parts: list[NDArray[Any]], kind: Any) -> NDArray[Any]:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, kind)
