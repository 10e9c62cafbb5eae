"""The factors of a program whose gains reach a threshold, found without building the others.

Clauses inside the interval of u (:mod:`minfer.rules.gains`) are found by a join in order of rank
(:mod:`minfer.rules.ranked`) where two literals bind all variables, else by the database while it
joins:

1. *Before merging*, an interval that is wide enough for every weight that merging can give (the
   gain grows with the size of the weight, so that of the largest), and for each literal those atoms
   alone that are false with at least the lower root's probability.
2. *After merging*, the test itself, on the factor with its whole weight. So what is kept is what a
   scan of all factors keeps, under the marginals it was given.

What is not kept is summed over the same pieces (:mod:`minfer.rules.messages`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from minfer.errors import RefusedError
from minfer.rules.gains import SOFT, all_false, false_under, gains, widest
from minfer.rules.ground import Block, Grounder, Grounding, Keys, Part
from minfer.rules.messages import FLOOR, add_dense, add_messages, messages_sql
from minfer.rules.model import Model, block_weights, build, weight_of
from minfer.rules.pieces import Piece, pieces_of
from minfer.rules.plan import check_size, count_part
from minfer.rules.ranked import Ranked, Tables, ranked

MAX_SUMMED = 5_000_000  # merged groundings whose messages are summed outside the database


@dataclass
class Factors:
    """Clauses of one part with as many literals of each sign: negated ones first, by ids."""

    scope: NDArray[np.int32]  # (F, A)
    n_negated: int
    count: NDArray[np.int64] | None = None  # bindings; None: one each
    key: NDArray[np.int64] | None = None  # None: the rule has one weight

    def __len__(self) -> int:
        return len(self.scope)

    @property
    def positive(self) -> NDArray[np.bool_]:
        return np.arange(self.scope.shape[1]) >= self.n_negated

    def rows(self, which: NDArray) -> Factors:
        count, key = (None if x is None else x[which] for x in (self.count, self.key))
        return Factors(self.scope[which], self.n_negated, count, key)

    def block(self, part: Part) -> Block:
        return Block(
            part.rule, self.scope, part.share, self.positive, count=self.count, key=self.key,
            plain=True,
        )  # fmt: skip


At = tuple[int, int, int, int]  # part, atoms, negated ones, its piece if that is alone, or -1
Kept = dict[At, Factors]


def _canonical(block: Block) -> Factors:
    assert block.positive is not None
    order = np.argsort(block.positive, kind="stable")
    scope = block.scope[:, order]
    n = int((~block.positive).sum())
    for side in (slice(0, n), slice(n, None)):
        if scope[:, side].shape[1] > 1:
            scope[:, side] = np.sort(scope[:, side], axis=1)
    return Factors(np.ascontiguousarray(scope), n, block.count, block.key)


def _codes(parts: Sequence[Factors]) -> NDArray[np.int64]:
    """A number for each factor, the same for the same."""
    key = _together([f.key for f in parts], parts, 0)
    code: NDArray[np.int64] = np.zeros(sum(map(len, parts)), np.int64)
    if key is not None:
        code += key
    bits = int(code.max(initial=0)).bit_length()
    for a in range(parts[0].scope.shape[1]):
        column = np.concatenate([f.scope[:, a] for f in parts])
        more = int(column.max(initial=0)).bit_length()
        if bits + more > 63:  # numbers without gaps instead
            code = np.unique(code, return_inverse=True)[1].ravel().astype(np.int64)
            bits = int(code.max(initial=0)).bit_length()
        code, bits = code << more | column, bits + more
    return code


def _joined(parts: Sequence[Factors]) -> Factors:
    if len(parts) == 1:
        return parts[0]
    return Factors(
        np.concatenate([f.scope for f in parts]), parts[0].n_negated,
        _together([f.count for f in parts], parts, 1), _together([f.key for f in parts], parts, 0),
    )  # fmt: skip


def _together(
    columns: Sequence[NDArray[np.int64] | None], parts: Sequence[Factors], usual: int
) -> NDArray[np.int64] | None:
    """Columns of parts one after the other; None where all have what is usual."""
    if all(x is None for x in columns):
        return None
    return np.concatenate([
        np.full(len(f), usual, np.int64) if x is None else x for x, f in zip(columns, parts)
    ])  # fmt: skip


def _merged(parts: Sequence[Factors]) -> Factors:
    """The same factors as one, their bindings added up."""
    whole = _joined(parts)
    _, first, which = np.unique(_codes(parts), return_index=True, return_inverse=True)
    out = whole.rows(first)
    n = np.bincount(which.ravel(), whole.count, minlength=len(first))
    out.count = n.astype(np.int64)
    return out


def union(a: Kept, b: Kept) -> Kept:
    """What is in either; a factor that is in both has the same bindings there."""
    out = dict(a)
    for at, new in b.items():
        if at in out:
            both = [out[at], new]
            first = np.unique(_codes(both), return_index=True)[1]
            out[at] = _joined(both).rows(first)
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
        self.keys: dict[int, Keys] = {}
        self.unary: list[Block] = []
        self.dense: list[Block] = []
        self.pieces: list[Piece] = []
        self.skipped: list[str] = []  # what no band could be summed of
        self.by_rank: dict[int, Ranked] = {}  # pieces that are joined in order of rank
        self._p: NDArray[np.float64] | None = None
        self._m: NDArray[np.float64] | None = None
        self.possible, self.exact = 0.0, True
        hard_parts = [p for p in grounder.parts if not grounder.easy(p)]
        check_size(grounder, max_groundings, hard_parts)
        for number, part in enumerate(grounder.parts):
            keys = self.keys.setdefault(part.rule, Keys(self.store, grounder, part.rule))
            weight_of(grounder.rules[part.rule], [])  # or an error that it has none
            if grounder.easy(part):
                n, exact, _ = count_part(grounder, part, 0.0)
                self.possible, self.exact = self.possible + n, self.exact and exact
                pieces, single = pieces_of(grounder, number)
                self.pieces += pieces
                for join in single:
                    self.unary += grounder.clauses(part, join, keys)
                if grounder.rules[part.rule].hard:
                    grounder.check_violated(part)
                continue
            for block in grounder.blocks(part, keys):
                n = len(block) if block.count is None else int(block.count.sum())
                self.possible += n
                (self.unary if block.scope.shape[1] == 1 else self.dense).append(block)
        tables, pieces = Tables(self.store), []
        for piece in self.pieces:
            found = ranked(piece.join, tables) if piece.alone else None
            if found is not None and found.empty:
                continue
            if found is not None:
                self.by_rank[len(pieces)] = found
            pieces.append(piece)
        self.pieces = pieces

    def weights(self, rule: int) -> NDArray[np.float64]:
        """The weights of a rule, by key."""
        r = self.grounder.rules[rule]
        return weight_of(r, self.keys[rule].texts() if r.plus else None)

    def _extremes(self, piece: Piece) -> list[float]:
        """The largest weights that merging can give to a factor of a piece."""
        part = self.grounder.parts[piece.part]
        rule = self.grounder.rules[part.rule]
        given = [0.0 if rule.weight is None else rule.weight, *(w for _, w in rule.weights or ())]
        out = [w if math.isinf(w) else w * part.share * piece.most for w in given]
        return [min(out), max(out)]

    def set_p(self, p: NDArray[np.float64]) -> None:
        """The marginals that the database uses."""
        if self._p is None or not np.array_equal(p, self._p):
            self.store.set_p(p)
            self._p = p.copy()

    # ------------------------------------------------------------------ selecting

    def select(self, p: NDArray[np.float64], threshold: float) -> tuple[Kept, list[NDArray]]:
        """Factors whose gains under marginals ``p`` reach a threshold; rows of dense blocks."""
        found: dict[At, list[Factors]] = {}
        room = self.max_groundings
        for k, piece in enumerate(self.pieces):
            interval = widest(threshold, self._extremes(piece))
            if interval is None:
                continue
            for block in self._blocks(k, interval, p, room):
                factors = _canonical(block)
                room -= len(factors)
                which = k if piece.alone else -1
                at = (piece.part, factors.scope.shape[1], factors.n_negated, which)
                found.setdefault(at, []).append(factors)
        kept: Kept = {}
        for at, parts in found.items():
            whole = _merged(parts) if at[3] < 0 else _joined(parts)
            g = gains(all_false(whole.scope, whole.positive, p), self._weights_of(at, whole))
            good = np.flatnonzero(g >= threshold)
            if len(good):
                kept[at] = whole.rows(good)
        return kept, [
            gains(false_under(b, p), block_weights(b, self.weights(b.rule))) >= threshold
            for b in self.dense
        ]

    def _blocks(
        self, number: int, interval: tuple[float, float], p: NDArray[np.float64], room: float
    ) -> list[Block]:
        """Factors of a piece with u in an interval, those over one atom left out."""
        piece = self.pieces[number]
        part = self.grounder.parts[piece.part]
        most = int(min(max(room, 0.0), 2**62))
        if number in self.by_rank:
            blocks = self._by_rank(number, interval, p, most)
        else:
            blocks = self._by_database(piece, interval, p, most + 1)
        if sum(map(len, blocks)) > most:
            raise RefusedError(
                f"{self.grounder.rules[part.rule].name}: more than max_groundings = "
                f"{self.max_groundings:,.0f} groundings reach the threshold; set a larger "
                "threshold=, or max_groundings"
            )
        return [b for b in blocks if b.scope.shape[1] > 1]

    def _by_database(
        self, piece: Piece, interval: tuple[float, float], p: NDArray[np.float64], most: int
    ) -> list[Block]:
        """At most so many rows."""
        part = self.grounder.parts[piece.part]
        self.set_p(p)
        conditions, tables = piece.within(*interval)
        keys = self.keys[part.rule]
        return list(self.grounder.clauses(part, piece.join, keys, conditions, tables, most))

    def _by_rank(
        self, number: int, interval: tuple[float, float], p: NDArray[np.float64], most: int
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
        return [Block(
            part.rule, np.concatenate(rows), part.share, join.positive, count=count, plain=True
        )]  # fmt: skip

    def _weights_of(self, at: At, factors: Factors) -> NDArray[np.float64]:
        part = self.grounder.parts[at[0]]
        return block_weights(factors.block(part), self.weights(part.rule))

    # ------------------------------------------------------------------ what is not built

    def sums(
        self,
        p: NDArray[np.float64],
        kept: Kept,
        masks: Sequence[NDArray],
        threshold: float,
        now: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """First-order messages of what is not kept and has a gain of ``threshold`` or more.

        As log-odds of each atom; at a threshold of 0 of all that is not kept. The gain is that
        under ``p``; messages are made of the same probabilities or, where messages of the same
        factors are in them already, of ``now``: then those of a factor's other atoms are taken
        without its own message (its cavity). Where no two bindings give the same factor the
        database adds up all of them, and those of the kept ones are taken off again; the rest is
        merged here.
        """
        cavity = now is not None
        if now is None:
            now = p
        out = np.zeros(self.store.n_atoms)
        self.skipped = []
        together: dict[At, list[Factors]] = {}
        for number, piece in enumerate(self.pieces):
            interval = widest(threshold, self._extremes(piece)) if threshold else (0.0, 1.0)
            if interval is None:
                continue
            part = self.grounder.parts[piece.part]
            rule = self.grounder.rules[part.rule]
            if piece.alone and not rule.plus:
                self._sum_alone(number, interval, kept, p, now, cavity, out)
                continue
            blocks = self._by_database(piece, interval, p, MAX_SUMMED + 1)
            if sum(map(len, blocks)) > MAX_SUMMED:
                self.skipped.append(rule.text)
                continue
            for block in blocks:
                if block.scope.shape[1] > 1:
                    f = _canonical(block)
                    which = number if piece.alone else -1
                    at = (piece.part, f.scope.shape[1], f.n_negated, which)
                    together.setdefault(at, []).append(f)
        for at, parts in together.items():
            whole = _merged(parts)
            if at in kept:
                codes = _codes([kept[at], whole])
                mine = codes[len(kept[at]) :]
                whole = whole.rows(~np.isin(mine, codes[: len(kept[at])]))
            w = self._weights_of(at, whole)
            good = gains(all_false(whole.scope, whole.positive, p), w) >= threshold
            add_messages(whole.rows(good), w[good], now, out, 1.0, cavity)
        for block, mask in zip(self.dense, masks):
            w = block_weights(block, self.weights(block.rule))
            u = false_under(block, p)
            rows = np.flatnonzero(~mask & (gains(u, w) >= threshold))
            add_dense(block, rows, w, now, out, cavity)
        return out

    def _sum_alone(
        self,
        number: int,
        interval: tuple[float, float],
        kept: Kept,
        p: NDArray[np.float64],
        now: NDArray[np.float64],
        cavity: bool,
        out: NDArray[np.float64],
    ) -> None:
        """Messages of a piece whose factors come once each, all of them less those of the kept."""
        piece = self.pieces[number]
        w = self._extremes(piece)[0]  # all factors have this one
        if number in self.by_rank and (abs(w) <= SOFT or w == math.inf):
            floor = FLOOR if math.isinf(w) else 0.0
            self.by_rank[number].add_messages(
                p, *interval, now, -math.expm1(-w), floor, cavity, out
            )
        else:
            self._sum_in_database(piece, w, interval, p, now, cavity, out)
        literals = piece.join.literals
        n_negated = sum(not x.positive for x in literals)
        mine = kept.get((piece.part, len(literals), n_negated, number))
        if mine is not None:
            u = all_false(mine.scope, mine.positive, p)
            inside = (u >= interval[0]) & (u <= interval[1])
            some = mine.rows(inside)
            add_messages(some, np.full(len(some), w), now, out, -1.0, cavity)

    def _sum_in_database(
        self,
        piece: Piece,
        w: float,
        interval: tuple[float, float],
        p: NDArray[np.float64],
        now: NDArray[np.float64],
        cavity: bool,
        out: NDArray[np.float64],
    ) -> None:
        self.set_p(p)
        if cavity and (self._m is None or not np.array_equal(now, self._m)):
            self.store.set_messages_p(now)
            self._m = now.copy()
        literals = piece.join.literals
        used = "m" if cavity else "p"
        columns = [
            f"{x.alias}.id as i{k}, {x.false_by(used)} as q{k}" for k, x in enumerate(literals)
        ]
        rows = f"select {', '.join(columns)} {piece.join.from_where(*piece.within(*interval))}"
        rows = messages_sql(w, rows, len(literals), cavity)
        numbers = range(len(literals))
        got = self.store.con.execute(
            f"select {', '.join(f'i{k}, sum(l{k}) as m{k}' for k in numbers)} from ({rows}) "
            f"group by grouping sets ({', '.join(f'(i{k})' for k in numbers)})"
        ).fetchnumpy()
        for k, x in enumerate(literals):
            here = np.flatnonzero(~np.ma.getmaskarray(got[f"i{k}"]))
            ids_ = np.ma.getdata(got[f"i{k}"])[here]
            sign = -1.0 if x.positive else 1.0
            np.add.at(out, ids_, sign * np.ma.getdata(got[f"m{k}"])[here])

    # ------------------------------------------------------------------ the graph

    def grounding(self, kept: Kept, masks: Sequence[NDArray]) -> Grounding:
        """Kept factors and those over single atoms, as if they were all there are."""
        out = Grounding(list(self.unary), [0] * len(self.grounder.rules))
        for block, mask in zip(self.dense, masks):
            rows = np.flatnonzero(mask)
            if len(rows):
                out.blocks.append(replace(
                    block, scope=block.scope[rows],
                    count=None if block.count is None else block.count[rows],
                    key=None if block.key is None else block.key[rows],
                ))  # fmt: skip
        for (number, *_), factors in kept.items():
            part = self.grounder.parts[number]
            out.blocks.append(factors.block(part))
        for block in out.blocks:
            n = len(block) if block.count is None else int(block.count.sum())
            out.bindings[block.rule] += n
        out.keys = {k: v.texts() for k, v in self.keys.items() if self.grounder.rules[k].plus}
        return out

    def model(self, kept: Kept, masks: Sequence[NDArray]) -> tuple[Grounding, Model]:
        grounding = self.grounding(kept, masks)
        return grounding, build(self.store, self.grounder, grounding)
