"""A clause in pieces: by which of its literals are left where the others are known to be false.

Each piece is a join of its own, with a bound on how many bindings may give the same factor. With it
the interval of u inside the join is as narrow as is safe: wide enough for every weight that merging
can give, and no wider.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.rules.conditions import ColumnTest, contradictory, implied
from minfer.rules.joins import orders

if TYPE_CHECKING:
    from minfer.rules.ground import Grounder, Part
    from minfer.rules.joins import ClauseJoin, Source
    from minfer.rules.schema import Store


@dataclass(frozen=True)
class Piece:
    """Groundings of a clause in which the same literals are left; none of them is known.

    ``alone``: no factor of it comes from anywhere else, each from ``join.times`` bindings.
    ``most``: bindings that may give the same factor, here and in other pieces.
    """

    part: int  # among those of the grounder
    join: ClauseJoin
    alone: bool
    most: float

    @property
    def positive(self) -> NDArray[np.bool_]:
        """The signs of its literals."""
        return np.array([x.positive for x in self.join.literals])

    @property
    def false(self) -> str:
        """SQL of u; an atom that is there twice counts once."""
        out = []
        for k, x in enumerate(self.join.literals):
            same = [
                f"{x.alias}.id = {y.alias}.id" for y in self.join.literals[:k]
                if not self.alone and (y.predicate, y.positive) == (x.predicate, x.positive)
            ]  # fmt: skip
            out.append(f"if({' or '.join(same)}, 1.0, {x.false})" if same else x.false)
        return " * ".join(out)

    def within(self, low: float, high: float) -> tuple[list[str], dict[str, str]]:
        """Conditions that u is in an interval, and the literals' tables with what can be."""
        conditions = [f"{self.false} >= {low!r}"]
        if high < 1.0:
            conditions.append(f"{self.false} <= {high!r}")
        sources = {s.alias: s.table for s in self.join.sources}
        tables = {}
        for x in self.join.literals:
            test = f"{'1 - p' if x.positive else 'p'} >= {low!r}"
            tables[x.alias] = f"(select * from {sources[x.alias]} where {test})"
        return conditions, tables


def pieces_of(grounder: Grounder, number: int) -> tuple[list[Piece], list[ClauseJoin]]:
    """A clause by which of its literals are left; and those that leave one atom, in full."""
    store, part = grounder.store, grounder.parts[number]
    joins = grounder.joins(part)
    several = len({j.sources for j in joins}) > 1
    found: list[tuple[ClauseJoin, frozenset, tuple[int, ...], bool]] = []
    single: list[ClauseJoin] = []
    for join in joins:
        loose = [k for k, x in enumerate(join.literals) if x.optional or x.may_be_known]
        for size in range(len(loose) + 1):
            for gone in combinations(loose, size):
                left = _left(join, gone)
                if left is None:
                    continue
                if len(left.literals) == 1:
                    single.append(left)
                    continue
                kinds = frozenset((x.predicate, x.positive) for x in left.literals)
                for some in _split(grounder, part, left, bool(gone)):
                    if contradictory(some):
                        continue
                    some = replace(some, conditions=some.conditions + tuple(implied(some)))
                    if not _has_rows(store, some):
                        continue
                    if some.merge and len(kinds) == 1:
                        first = f"{some.literals[0].alias}.id"
                        same = tuple(
                            ColumnTest(f"{x.alias}.id", "=", first) for x in some.literals[1:]
                        )
                        single.append(replace(some, conditions=some.conditions + same))
                    found.append((some, kinds, gone, not (some.merge or several)))
    pieces = []
    most = [_most_bindings(store, join) for join, *_ in found]
    for n, (join, kinds, gone, alone) in zip(most, found):
        # literals of these kinds may also be what is left where others are known
        elsewhere = any(k == kinds and g != gone for _, k, g, _ in found)
        if alone and not elsewhere:
            pieces.append(Piece(number, join, True, n))
        else:
            pieces.append(Piece(number, join, False, math.inf))
    shared = sum(n for n, piece in zip(most, pieces) if not piece.alone)
    return [p if p.alone else replace(p, most=shared) for p in pieces], single


def _has_rows(store: Store, join: ClauseJoin) -> bool:
    """Whether each source has rows whose own columns are the same where they must be."""
    for s in join.sources:
        tests = [] if s.left else [
            x for x in join.conditions
            if isinstance(x, ColumnTest) and x.op == "=" and x.aliases == {s.alias}
        ]  # fmt: skip
        where = " and ".join([*s.own, *tests])
        if (
            tests
            and store.con.one(f"select 1 from {s.table} {s.alias} where {where} limit 1") is None
        ):
            return False
    return True


def _split(grounder: Grounder, part: Part, join: ClauseJoin, gone: bool) -> Iterator[ClauseJoin]:
    """A join as those whose factors come once, and those where equal values let them coincide.

    The latter by the first equality that holds, which the database can join by.
    """
    found = [join]
    if gone and join.merge and not join.coincide:
        old = set(join.conditions)
        again = grounder.builder(part).unmerged(replace(join, merge=False), part.literals)
        known = [
            j.times == join.times
            and not any(isinstance(c, ColumnTest) and c.op == "<" for c in set(j.conditions) - old)
            for j in again
        ]
        if all(known):  # no new symmetry, which what is gone need not share
            found = [replace(j, partly=False) for j in again]
    for some in found:
        if not some.coincide:
            yield some
            continue
        rest = some.conditions[:-1]
        for k, test in enumerate(some.coincide):
            before = tuple(t.negated() for t in some.coincide[:k])
            yield replace(some, conditions=(*rest, test, *before), coincide=())


def _left(join: ClauseJoin, gone: Sequence[int]) -> ClauseJoin | None:
    """The join where these literals are known to be false and the others are open."""
    if len(gone) == len(join.literals):
        return None
    more: list[str] = []
    sources = {s.alias: s for s in join.sources}
    literals = []
    for k, x in enumerate(join.literals):
        s = sources[x.alias]
        if k in gone:
            if x.optional:
                known = f" or {x.alias}.known <> 2" if x.may_be_known else ""
                more.append(f"({x.alias}.id is null{known})")
            else:
                sources[x.alias] = replace(s, table=f"(select * from {s.table} where known <> 2)")
            continue
        table = f"(select * from {s.table} where known = 2)" if x.may_be_known else s.table
        sources[x.alias] = replace(s, table=table, left=False)
        literals.append(replace(x, optional=False, may_be_known=False))
    return replace(
        join, sources=tuple(sources[s.alias] for s in join.sources),
        conditions=(*more, *join.conditions), literals=tuple(literals),
        merge=join.merge or (join.partly and bool(gone)), partly=False,
    )  # fmt: skip


def _most_bindings(store: Store, join: ClauseJoin) -> float:
    """A bound on how many bindings give the same factor."""
    if not join.merge:
        return float(join.times)
    ways = float(join.times * orders(store, join.literals))
    mine = {x.alias for x in join.literals}
    bound = {v for s in join.sources if s.alias in mine for v, _ in s.variables}
    rest = [s for s in join.sources if s.alias not in mine and not s.left]
    while rest:  # those that what is bound says most of, first
        rest.sort(key=lambda s: len([v for v, _ in s.variables if v not in bound]))
        ways *= _fan_out(store, rest[0], bound)
        bound |= {v for v, _ in rest[0].variables}
        del rest[0]
    return max(ways, 1.0)


def _fan_out(store: Store, s: Source, bound: set[str]) -> float:
    """The most rows of a source that agree in the variables that are bound."""
    if s.variables and all(v in bound for v, _ in s.variables):
        return 1.0  # no row is there twice
    by = ", ".join(f"{s.alias}.{c}" for v, c in s.variables if v in bound)
    where = f" where {' and '.join(s.own)}" if s.own else ""
    group = f" group by {by}" if by else ""
    sql = f"select count(*) as n from {s.table} {s.alias}{where}{group}"
    return float(store.con.one(f"select coalesce(max(n), 0) from ({sql})")[0])
