"""The factors of a program whose gains reach a threshold, found without building the others.

Clauses inside the interval of u (:mod:`minfer.rules.gains`) are found by a join in order of rank
(:mod:`minfer.rules.ranked`) where two literals bind all variables, else by the database. *Before
merging* the interval is wide enough for every weight that merging can give (the gain grows with the
size of the weight); *after merging* the test itself is made, on the factor with its whole weight.
So what is kept is what a scan of all factors keeps, under the marginals it was given. What is not
kept is summed over the same pieces (:mod:`minfer.rules.messages`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.errors import RefusedError
from minfer.kernels.scores import ranked as kernels
from minfer.rules.blocks import Block, Floats, codes, joined, merged
from minfer.rules.gains import false_under, gains, widest
from minfer.rules.ground import Grounder, Grounding
from minfer.rules.messages import FLOOR, SOFT, add_messages
from minfer.rules.model import Model, block_weights, build, weight_of
from minfer.rules.pieces import Piece, pieces_of
from minfer.rules.plan import check_size, count_part
from minfer.rules.ranked import Ranked, RankedTables, ranked

MAX_SUMMED = 5_000_000  # merged groundings whose messages are summed outside the database


#: Part, atoms, negated ones, its piece if that is alone or -1; of a dense block -1 and its number.
At = tuple[int, ...]
Kept = dict[At, Block]


def _canonical(block: Block) -> Block:
    """A block of clauses with negated literals first, those of a sign by ids."""
    assert block.positive is not None
    order = np.argsort(block.positive, kind="stable")
    scope, n = block.scope[:, order], int((~block.positive).sum())
    for side in (slice(0, n), slice(n, None)):
        if scope[:, side].shape[1] > 1:
            scope[:, side] = np.sort(scope[:, side], axis=1)
    return replace(block, scope=np.ascontiguousarray(scope), positive=block.positive[order])


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


# ---------------------------------------------------------------------- the source of factors


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
                n, exact, _ = count_part(grounder, part, 0.0)
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
        """The weights of a rule, by key."""
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
        """Have the database use these probabilities."""
        if self._used is None or not np.array_equal(p, self._used):
            self.store.set_probabilities(p)
            self._used = p.copy()

    # ------------------------------------------------------------------ selecting

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
        """Factors of a piece that may reach a threshold, those over one atom left out.

        None where there are more than ``most``.
        """
        interval = widest(threshold, self._extremes(self.pieces[number]))
        if interval is None:
            return []
        limit = int(min(max(most, 0.0), 2**62))
        if number in self.by_rank:
            blocks = self._by_rank(number, interval, p, limit)
        else:
            self._use(p)
            blocks = list(self._joined(number, *self.pieces[number].within(*interval), limit + 1))
        if sum(map(len, blocks)) > limit:
            return None
        return [b for b in blocks if b.scope.shape[1] > 1]

    def _collect(self, found: dict[At, list[Block]], number: int, blocks: list[Block]) -> None:
        """Put blocks of a piece with those that may have the same factors."""
        piece = self.pieces[number]
        for block in map(_canonical, blocks):
            assert block.positive is not None
            width, n_negated = block.scope.shape[1], int((~block.positive).sum())
            at = (piece.part, width, n_negated, number if piece.alone else -1)
            found.setdefault(at, []).append(block)

    def _wholes(self, found: dict[At, list[Block]]) -> Iterator[tuple[At, Block]]:
        """Dense blocks, and what was found in pieces, the same factors as one."""
        yield from (((-1, k), block) for k, block in enumerate(self.dense))
        for at, parts in found.items():
            yield at, merged(parts) if at[3] < 0 else joined(parts)

    def _weights_of(self, block: Block) -> Floats:
        return block_weights(block, self.weights(block.rule))

    def _gains(self, block: Block, p: Floats) -> Floats:
        return gains(false_under(block, p), self._weights_of(block))

    def _by_rank(
        self, number: int, interval: tuple[float, float], p: Floats, most: int
    ) -> list[Block]:
        """One row more than ``most`` at least, where there are so many."""
        piece, join = self.pieces[number], self.by_rank[number]
        rows, n = [], 0
        for scope in join.find(p, *interval):
            rows.append(scope.copy())
            n += len(scope)
            if n > most:
                break
        if not n:
            return []
        part, times = self.grounder.parts[piece.part], piece.join.times
        count = np.full(n, times) if times > 1 else None
        return [part.block(np.concatenate(rows), positive=piece.positive, count=count)]

    # ------------------------------------------------------------------ what is not built

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
            add_messages(some, self._weights_of(some), now, out, 1.0, cavity)
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
            u = false_under(mine, p)
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

    # ------------------------------------------------------------------ the graph

    def grounding(self, kept: Kept) -> Grounding:
        """Kept factors and those over single atoms, as if they were all there are."""
        return self.grounder.grounding([*self.unary, *kept.values()])

    def model(self, kept: Kept) -> tuple[Grounding, Model]:
        grounding = self.grounding(kept)
        return grounding, build(self.store, self.grounder, grounding)
