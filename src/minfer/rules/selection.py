"""The factors of a program whose gains reach a threshold, found without building the others.

A clause is taken in *pieces*, by which of its literals are left where the others are known to be
false: each a join of its own, with a bound on how many bindings may give the same factor.

Clauses inside the interval of u (:mod:`minfer.rules.blocks`) are found by a join in order of rank
(:mod:`minfer.rules.ranked`) where two literals bind all variables, else by the database. *Before
merging* the interval is wide enough for every weight that merging can give (the gain grows with the
size of the weight); *after merging* the test itself is made, on the factor with its whole weight.
So what is kept is what a scan of all factors keeps, under the marginals it was given. What is not
kept is summed over the same pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.errors import RefusedError
from minfer.kernels.scores import ranked as kernels
from minfer.rules.blocks import (
    FLOOR,
    SOFT,
    Block,
    Floats,
    add_messages,
    codes,
    false_given,
    gains,
    joined,
    merged,
    widest,
)
from minfer.rules.ground import Grounder, Grounding, Part
from minfer.rules.joins import ClauseJoin, ColumnTest, contradictory, implied, orders
from minfer.rules.model import block_weights, weight_of
from minfer.rules.plan import check_size, count_part
from minfer.rules.ranked import Ranked, RankedTables, ranked
from minfer.rules.schema import Store

MAX_SUMMED = 5_000_000  # merged groundings whose messages are summed outside the database
#: Part, atoms, negated ones, its piece if that is alone or -1; of a dense block -1 and its number.
At = tuple[int, ...]
Kept = dict[At, Block]


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
    for join, kinds, gone, alone in found:
        # literals of these kinds may also be what is left where others are known
        elsewhere = any(k == kinds and g != gone for _, k, g, _ in found)
        pieces.append(Piece(number, join, alone and not elsewhere, _most_bindings(store, join)))
    shared = sum(piece.most for piece in pieces if not piece.alone)
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
        s = rest.pop(0)
        names = {v for v, _ in s.variables}
        if not names or not names <= bound:  # else one: no row is there twice
            by = ", ".join(f"{s.alias}.{c}" for v, c in s.variables if v in bound)
            where = f" where {' and '.join(s.own)}" if s.own else ""
            group = f" group by {by}" if by else ""
            sql = f"select count(*) as n from {s.table} {s.alias}{where}{group}"
            ways *= float(store.con.one(f"select coalesce(max(n), 0) from ({sql})")[0])
        bound |= names
    return max(ways, 1.0)


def union(a: Kept, b: Kept) -> Kept:
    """What is in either; a factor that is in both has the same bindings there."""
    out = dict(a)
    for at, new in b.items():
        if at in out:
            both = [out[at], new]
            first = np.unique(codes(both), return_index=True)[1]
            out[at] = joined(both).rows(first)
        else:
            out[at] = new
    return out


class Selector:
    """Finds the factors of a program whose gains reach a threshold, without building the others.

    Formulas that are not clauses of plain literals (``<=>``, ``EXIST``) are grounded in full, once;
    what is kept of them is chosen by the same test.
    """

    def __init__(self, grounder: Grounder, max_groundings: float) -> None:
        self.grounder, self.store = grounder, grounder.store
        self.max_groundings = max_groundings
        self.unary: list[Block] = []
        self.dense: list[Block] = []
        self.pieces: list[Piece] = []
        self.skipped: list[str] = []  # what no band could be summed of
        self.by_rank: dict[int, Ranked] = {}  # pieces that are joined in order of rank
        self._used: Floats | None = None  # the probabilities that the database has
        self.possible, self.exact = 0.0, True
        hard_parts = [p for p in grounder.parts if p.kind != "clause"]
        check_size(grounder, max_groundings, hard_parts)
        for number, part in enumerate(grounder.parts):
            weight_of(grounder.rules[part.rule], [])  # or an error that it has none
            if part.kind == "clause":
                n, exact = count_part(grounder, part, 0.0)
                self.possible, self.exact = self.possible + n, self.exact and exact
                pieces, single = pieces_of(grounder, number)
                self.pieces += pieces
                for join in single:
                    self.unary += grounder.clauses(part, join)
                if grounder.rules[part.rule].hard:
                    grounder.check_violated(part)
                continue
            for block in grounder.blocks(part):
                self.possible += block.n_bindings
                (self.unary if block.scope.shape[1] == 1 else self.dense).append(block)
        tables, pieces = RankedTables(self.store), []
        for piece in self.pieces:
            found = ranked(piece.join, tables) if piece.alone else None
            if found is not None and found.empty:
                continue
            if found is not None:
                self.by_rank[len(pieces)] = found
            pieces.append(piece)
        self.pieces = pieces

    def weights(self, rule: int) -> Floats:
        r = self.grounder.rules[rule]
        return weight_of(r, self.grounder.keys[rule].texts() if r.plus else None)

    def _extremes(self, piece: Piece) -> list[float]:
        """The largest weights that merging can give to a factor of a piece."""
        part = self.grounder.parts[piece.part]
        rule = self.grounder.rules[part.rule]
        given = [0.0 if rule.weight is None else rule.weight, *(w for _, w in rule.weights or ())]
        out = [w if math.isinf(w) else w * part.share * piece.most for w in given]
        return [min(out), max(out)]

    def _use(self, p: Floats) -> None:
        if self._used is None or not np.array_equal(p, self._used):
            self.store.set_probabilities(p)
            self._used = p.copy()

    def select(self, p: Floats, threshold: float) -> Kept:
        """Factors whose gains under marginals ``p`` reach a threshold."""
        found: dict[At, list[Block]] = {}
        room = self.max_groundings
        for k, piece in enumerate(self.pieces):
            blocks = self._blocks(k, threshold, p, room)
            if blocks is None:
                part = self.grounder.parts[piece.part]
                raise RefusedError(
                    f"{self.grounder.rules[part.rule].name}: more than max_groundings = "
                    f"{self.max_groundings:,.0f} groundings reach the threshold; set a larger "
                    "threshold=, or max_groundings"
                )
            room -= sum(map(len, blocks))
            self._collect(found, k, blocks)
        kept: Kept = {}
        for at, whole in self._wholes(found):
            good = np.flatnonzero(self._gains(whole, p) >= threshold)
            if len(good):
                kept[at] = whole.rows(good)
        return kept

    def _blocks(self, number: int, threshold: float, p: Floats, most: float) -> list[Block] | None:
        """Factors of a piece, over two atoms or more, near a threshold; None: above ``most``."""
        interval = widest(threshold, self._extremes(self.pieces[number]))
        if interval is None:
            return []
        limit, piece = int(min(max(most, 0.0), 2**62)), self.pieces[number]
        if number not in self.by_rank:
            self._use(p)
            blocks = list(self._joined(number, *piece.within(*interval), limit + 1))
            n = sum(map(len, blocks))
            return None if n > limit else [b for b in blocks if b.scope.shape[1] > 1]
        rows, n = [], 0
        for scope in self.by_rank[number].find(p, *interval):
            rows.append(scope.copy())
            n += len(scope)
            if n > limit:
                return None
        if not n:
            return []
        count = np.full(n, piece.join.times) if piece.join.times > 1 else None
        part = self.grounder.parts[piece.part]
        return [part.block(np.concatenate(rows), positive=piece.positive, count=count)]

    def _collect(self, found: dict[At, list[Block]], number: int, blocks: list[Block]) -> None:
        """Put blocks of a piece with those that may have the same factors."""
        piece = self.pieces[number]
        for block in blocks:  # negated literals first, those of a sign by ids
            assert block.positive is not None
            order, n = np.argsort(block.positive, kind="stable"), int((~block.positive).sum())
            scope = block.scope[:, order]
            for side in (scope[:, :n], scope[:, n:]):
                side.sort(axis=1)
            scope, positive = np.ascontiguousarray(scope), block.positive[order]
            at = (piece.part, scope.shape[1], n, number if piece.alone else -1)
            found.setdefault(at, []).append(replace(block, scope=scope, positive=positive))

    def _wholes(self, found: dict[At, list[Block]]) -> Iterator[tuple[At, Block]]:
        """Dense blocks, and what was found in pieces, the same factors as one."""
        yield from (((-1, k), block) for k, block in enumerate(self.dense))
        for at, parts in found.items():
            yield at, merged(parts) if at[3] < 0 else joined(parts)

    def _gains(self, block: Block, p: Floats) -> Floats:
        w = block_weights(block, self.weights(block.rule))
        return gains(false_given(block, p[block.scope]), w)

    def sums(self, p: Floats, kept: Kept, threshold: float, now: Floats | None = None) -> Floats:
        """First-order messages of what is not kept and has a gain of ``threshold`` or more.

        As log-odds of each atom; at a threshold of 0 of all that is not kept. The gain is that
        under ``p``; messages are made of the same probabilities or, where messages of the same
        factors are in them already, of ``now``: then those of a factor's other atoms are taken
        without its own message (its cavity). Where no two bindings give the same factor all of
        them are added up, and those of the kept ones are taken off again; the rest is merged.
        """
        cavity = now is not None
        if now is None:
            now = p
        out = np.zeros(self.store.n_atoms)
        self.skipped = []
        found: dict[At, list[Block]] = {}
        for k, piece in enumerate(self.pieces):
            rule = self.grounder.rules[self.grounder.parts[piece.part].rule]
            if piece.alone and not rule.plus:
                self._sum_alone(k, threshold, kept, p, now, cavity, out)
            elif (blocks := self._blocks(k, threshold, p, MAX_SUMMED)) is None:
                self.skipped.append(rule.text)
            else:
                self._collect(found, k, blocks)
        for at, whole in self._wholes(found):
            if at in kept:
                n, number = len(kept[at]), codes([kept[at], whole])
                whole = whole.rows(~np.isin(number[n:], number[:n]))
            some = whole.rows(self._gains(whole, p) >= threshold)
            w = block_weights(some, self.weights(some.rule))
            add_messages(some, w, now, out, 1.0, cavity)
        return out

    def _sum_alone(
        self,
        number: int,
        threshold: float,
        kept: Kept,
        p: Floats,
        now: Floats,
        cavity: bool,
        out: Floats,
    ) -> None:
        """Messages of a piece whose factors come once each, all of them less those of the kept."""
        piece = self.pieces[number]
        w = self._extremes(piece)[0]  # all factors have this one
        interval = widest(threshold, [w])
        if interval is None:
            return
        rule, positive = self.grounder.parts[piece.part].rule, piece.positive
        product = np.ones(len(out))
        for scope in self._scopes(number, interval, p):
            if abs(w) <= SOFT or math.isinf(w):
                c, floor = -math.expm1(-w), FLOOR if math.isinf(w) else 0.0
                kernels.add_messages(scope, positive, now, c, floor, cavity, product, out)
            else:
                some = Block(rule, scope, 1.0, positive)
                add_messages(some, np.full(len(some), w), now, out, 1.0, cavity)
        out += np.log(product)
        mine = kept.get((piece.part, len(positive), int((~positive).sum()), number))
        if mine is not None:
            u = false_given(mine, p[mine.scope])
            some = mine.rows((u >= interval[0]) & (u <= interval[1]))
            add_messages(some, np.full(len(some), w), now, out, -1.0, cavity)

    def _scopes(
        self, number: int, interval: tuple[float, float], p: Floats
    ) -> Iterator[NDArray[np.int32]]:
        """Atoms of the factors of a piece that is alone, some millions at a time at most."""
        if number in self.by_rank:
            yield from self.by_rank[number].find(p, *interval)
            return
        piece = self.pieces[number]
        self._use(p)
        conditions, tables = piece.within(*interval)
        n = self.store.con.one(f"select count(*) {piece.join.from_where(conditions, tables)}")[0]
        some = n // MAX_SUMMED + 1
        first = piece.join.literals[0].alias
        for k in range(some):
            here = [*conditions, f"{first}.id % {some} = {k}"] if some > 1 else conditions
            yield from (block.scope for block in self._joined(number, here, tables))

    def _joined(self, number: int, *how: Any) -> Iterator[Block]:
        """Factors of a piece that the database finds."""
        piece = self.pieces[number]
        return self.grounder.clauses(self.grounder.parts[piece.part], piece.join, *how)

    def grounding(self, kept: Kept) -> Grounding:
        """Kept factors and those over single atoms, as if they were all there are."""
        return self.grounder.grounding([*self.unary, *kept.values()])
