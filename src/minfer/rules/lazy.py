"""Lazy grounding: only the groundings that can matter are ever built.

A factor of a formula with weight w that is false with probability u under independent atoms has the
gain ``log(1 + u (e^-w - 1)) + u w``, whatever the formula. At a given weight it rises with u, peaks
and falls to 0 at u = 1, so "gain >= threshold" is an interval of u, between two roots. Clauses
inside that interval are found by a join in order of rank (:mod:`minfer.rules.ranked`) where two
literals bind all variables, else by the database while it joins:

1. *Before merging*, an interval that is wide enough for every weight that merging can give (the
   gain grows with the size of the weight, so that of the largest), and for each literal those atoms
   alone that are false with at least the lower root's probability.
2. *After merging*, the test itself, on the factor with its whole weight. So what is kept is what a
   scan of all factors keeps, under the marginals of that round.

Marginals begin with priors, rules about single atoms and functional constraints, which are always
kept. A second round selects with the marginals of the first and keeps both (selecting afresh drops
what it has just satisfied). Then *summed bands*: first-order messages of what is not kept but has a
gain above a lower threshold, added up where they are found and put into the fields. No
factor is built for them; it is the compensation of the method. Summed once, they are messages of
marginals that knew nothing of them; so with a tolerance they are summed again, from the marginals
they led to (the band stays that of the kept factors alone, or it would be empty as soon as it has
done its work), until they move nothing. In the end the threshold is lowered until two answers
agree. At each of them selection begins anew, with the first marginals and then with those of kept
factors alone, so that a lower threshold builds what a higher one only summed, and the two answers
check each other. Two things neither of them sees are checked then: what is below both bands, by
summing messages of *all* groundings once (where they are few enough to be listed), and whether
belief propagation has another answer, by solving from other starts: from nothing, and from atoms
that were all pulled to be true, or false.

A hard rule has an infinite gain unless it is sure to hold. It is judged by the reverse divergence,
-log(1 - u), and no divergence is reported then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.errors import RefusedError
from minfer.graph import FactorGraph
from minfer.rules.ground import Block, Grounder, Grounding, Keys, Part
from minfer.rules.joins import Join, Source
from minfer.rules.model import Model, block_weights, build, weight_of
from minfer.rules.plan import check_size, count_part
from minfer.rules.ranked import Ranked, Tables, contradictory, implied, ranked
from minfer.rules.schema import Store

THRESHOLD = 1e-3  # where lowering begins
TOLERANCE = 1e-3  # mean difference of two answers that is good enough
LOWER = 10.0  # the next threshold
BAND = 100.0  # how far below the threshold messages are summed
LEAST = 1e-9  # thresholds are not lowered further
MAX_CHECKED = 20_000_000  # groundings up to which all are summed before answers count as agreed
PULL = 6.0  # log-odds by which atoms are pulled for another start
MAX_SUMS = 10  # times that a band is summed until it moves nothing
LEAST_STEP = 0.125  # of a sum that is made again
MAX_SUMMED = 5_000_000  # merged groundings whose messages are summed outside the database
AUTO_FROM = 2_000_000  # groundings from which lazy grounding may pay
AUTO_RATIO = 20.0  # ... if there are so many for each row of the tables
AUTO_UP_TO = 1e11  # more are a cross product that nobody meant, and refused with their number
_SLACK = 1e-9  # of roots inside the join: rounding must not lose what the test after it keeps
_SOFT = 30.0  # weights of more than this are handled as logs
_FLOOR = 1e-9  # least factor that the message of a hard rule is taken for


# ---------------------------------------------------------------------- gains


def gains(u: Any, w: Any) -> NDArray[np.float64]:
    """The gain of factors that are false with probability u, of weight w; hard: -log(1 - u)."""
    u, w = np.broadcast_arrays(np.asarray(u, dtype=np.float64), np.asarray(w, dtype=np.float64))
    out = np.empty(u.shape)
    hard = np.isinf(w)
    strong = (np.abs(w) > _SOFT) & ~hard
    plain = ~(hard | strong)
    x, y = u[plain], w[plain]
    out[plain] = np.log1p(x * np.expm1(-y)) + x * y
    with np.errstate(divide="ignore"):
        x, y = u[strong], w[strong]
        out[strong] = np.logaddexp(np.log1p(-x), np.log(x) - y) + x * y
        out[hard] = -np.log1p(-u[hard])
    return np.maximum(out, 0.0)


def _gain(u: float, w: float) -> float:
    """As :func:`gains`, of one factor that is not hard."""
    if abs(w) > _SOFT:
        return float(gains(u, w))
    return math.log1p(u * math.expm1(-w)) + u * w


@lru_cache(maxsize=1000)
def roots(threshold: float, w: float) -> tuple[float, float] | None:
    """Between which u the gain at weight w reaches a threshold; None where nowhere."""
    if math.isinf(w):
        return -math.expm1(-threshold), 1.0
    if w == 0.0:
        return None
    if w > 0:
        peak = 1.0 / -math.expm1(-w) - 1.0 / w if w > 1e-4 else 0.5
    else:
        peak = 1.0 - (1.0 / -math.expm1(w) + 1.0 / w) if w < -1e-4 else 0.5
    peak = min(max(peak, 1e-300), 1.0)
    if _gain(peak, w) < threshold:
        return None

    def bisect(bad: float, good: float) -> float:
        for _ in range(100):
            middle = 0.5 * (bad + good)
            if _gain(middle, w) < threshold:
                bad = middle
            else:
                good = middle
        return bad

    low = math.log(1e-308)
    good = math.log(peak)
    for _ in range(100):  # on a log scale: the lower root may be tiny
        middle = 0.5 * (low + good)
        if _gain(math.exp(middle), w) < threshold:
            low = middle
        else:
            good = middle
    return math.exp(low), bisect(1.0, peak)


def _widest(threshold: float, weights: Iterable[float]) -> tuple[float, float] | None:
    """An interval of u that has those of all weights in it, a little slack around."""
    found = [r for w in weights if (r := roots(threshold, w)) is not None]
    if not found:
        return None
    low, high = min(r[0] for r in found), max(r[1] for r in found)
    return low * (1 - _SLACK), 1 - (1 - high) * (1 - _SLACK) + 1e-15


def false_under(block: Block, p: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(formula is false) of each factor of a block, its atoms independent."""
    if block.positive is not None:
        return _all_false(block.scope, block.positive, p)
    if block.truth is not None:
        values = block.truth.reshape(1, -1).astype(np.float64)
        values = np.broadcast_to(values, (len(block), values.shape[1]))
        for a in range(block.scope.shape[1]):
            q = p[block.scope[:, a]][:, None]
            half = values.shape[1] // 2
            values = values[:, :half] * (1 - q) + values[:, half:] * q
        return 1.0 - values[:, 0]
    assert block.automaton is not None
    step, accepting = block.automaton
    at = np.zeros((len(block), len(accepting)))
    at[:, 0] = 1.0
    for a in range(block.scope.shape[1]):
        q = p[block.scope[:, a]]
        then = np.zeros_like(at)
        for state in range(len(accepting)):
            then[:, step[a, state, 0]] += at[:, state] * (1 - q)
            then[:, step[a, state, 1]] += at[:, state] * q
        at = then
    return at[:, ~accepting].sum(axis=1)


def _all_false(
    scope: NDArray[np.int32], positive: NDArray[np.bool_], p: NDArray[np.float64]
) -> NDArray[np.float64]:
    u = np.ones(len(scope))
    for a, yes in enumerate(positive.tolist()):
        q = p[scope[:, a]]
        u *= (1 - q) if yes else q
    return u


# ---------------------------------------------------------------------- pieces of a rule


@dataclass(frozen=True)
class Piece:
    """Groundings of a clause in which the same literals are left; none of them is known.

    ``alone``: no factor of it comes from anywhere else, each from ``join.times`` bindings.
    ``most``: bindings that may give the same factor, here and in other pieces.
    """

    part: int  # among those of the grounder
    join: Join
    alone: bool
    most: float

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


def _pieces(grounder: Grounder, number: int) -> tuple[list[Piece], list[Join]]:
    """A clause by which of its literals are left; and those that leave one atom, in full."""
    store, part = grounder.store, grounder.parts[number]
    joins = grounder.joins(part)
    several = len({j.sources for j in joins}) > 1
    found: list[tuple[Join, frozenset, tuple[int, ...], bool]] = []
    single: list[Join] = []
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
                        first = some.literals[0].alias
                        same = tuple(f"{x.alias}.id = {first}.id" for x in some.literals[1:])
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


def _has_rows(store: Store, join: Join) -> bool:
    """Whether each source has rows whose own columns are the same where they must be."""
    for s in join.sources:
        own = re.compile(rf"{s.alias}\.\w+ = {s.alias}\.\w+")
        tests = [] if s.left else [x for x in join.conditions if own.fullmatch(x)]
        where = " and ".join([*s.own, *tests])
        if (
            tests
            and store.con.one(f"select 1 from {s.table} {s.alias} where {where} limit 1") is None
        ):
            return False
    return True


def _split(grounder: Grounder, part: Part, join: Join, gone: bool) -> Iterator[Join]:
    """A join as those whose factors come once, and those where equal values let them coincide.

    The latter by the first equality that holds, which the database can join by.
    """
    found = [join]
    if gone and join.merge and not join.coincide:
        old = set(join.conditions)
        again = grounder.builder(part).unmerged(replace(join, merge=False), part.literals)
        known = [
            j.times == join.times and not any(" < " in c for c in set(j.conditions) - old)
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
            before = tuple(t.replace(" = ", " <> ") for t in some.coincide[:k])
            yield replace(some, conditions=(*rest, test, *before), coincide=())


def _left(join: Join, gone: Sequence[int]) -> Join | None:
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


def _most_bindings(store: Store, join: Join) -> float:
    """A bound on how many bindings give the same factor."""
    if not join.merge:
        return float(join.times)
    ways = float(join.times)
    alike: dict[tuple[str, bool], int] = {}
    for x in join.literals:
        alike[x.predicate, x.positive] = alike.get((x.predicate, x.positive), 0) + 1
    for (name, _), n in alike.items():
        ways *= math.factorial(n) * (2**n if store.predicates[name].symmetric else 1)
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


# ---------------------------------------------------------------------- kept factors


@dataclass
class Factors:
    """Clauses of one part with as many literals of each sign: negated ones first, by ids."""

    scope: NDArray[np.int32]  # (F, A)
    n_negated: int
    count: NDArray[np.int64]
    key: NDArray[np.int64]  # 0 where the rule has one weight

    def __len__(self) -> int:
        return len(self.scope)

    @property
    def positive(self) -> NDArray[np.bool_]:
        return np.arange(self.scope.shape[1]) >= self.n_negated

    def rows(self, which: NDArray) -> Factors:
        return Factors(self.scope[which], self.n_negated, self.count[which], self.key[which])

    def block(self, part: Part, plus: bool) -> Block:
        return Block(
            part.rule, self.scope, part.share, self.positive, count=self.count,
            key=self.key if plus else None, plain=True,
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
    count = np.ones(len(block), np.int64) if block.count is None else block.count
    key = np.zeros(len(block), np.int64) if block.key is None else block.key
    return Factors(np.ascontiguousarray(scope), n, count, key)


def _codes(parts: Sequence[Factors]) -> NDArray[np.int64]:
    """A number for each factor, the same for the same."""
    key = np.concatenate([f.key for f in parts])
    code, bits = key.astype(np.int64), int(key.max(initial=0)).bit_length()
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
        np.concatenate([f.count for f in parts]), np.concatenate([f.key for f in parts]),
    )  # fmt: skip


def _merged(parts: Sequence[Factors]) -> Factors:
    """The same factors as one, their bindings added up."""
    whole = _joined(parts)
    _, first, which = np.unique(_codes(parts), return_index=True, return_inverse=True)
    out = whole.rows(first)
    out.count = np.bincount(which.ravel(), whole.count, minlength=len(first)).astype(np.int64)
    return out


def _union(a: Kept, b: Kept) -> Kept:
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

    Formulas that are no clauses of plain literals (``<=>``, ``EXIST``) are grounded in full, once;
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
                pieces, single = _pieces(grounder, number)
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
            interval = _widest(threshold, self._extremes(piece))
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
            g = gains(_all_false(whole.scope, whole.positive, p), self._weights_of(at, whole))
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
            self.set_p(p)
            conditions, tables = piece.within(*interval)
            blocks = list(self.grounder.clauses(
                part, piece.join, self.keys[part.rule], conditions, tables, most + 1
            ))  # fmt: skip
        if sum(map(len, blocks)) > most:
            raise RefusedError(
                f"{self.grounder.rules[part.rule].name}: more than max_groundings = "
                f"{self.max_groundings:,.0f} groundings reach the threshold; set a larger "
                "threshold=, or max_groundings"
            )
        return [b for b in blocks if b.scope.shape[1] > 1]

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
        plus = bool(self.grounder.rules[part.rule].plus)
        return block_weights(factors.block(part, plus), self.weights(part.rule))

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
            interval = _widest(threshold, self._extremes(piece)) if threshold else (0.0, 1.0)
            if interval is None:
                continue
            part = self.grounder.parts[piece.part]
            rule = self.grounder.rules[part.rule]
            if piece.alone and not rule.plus:
                self._sum_alone(number, interval, kept, p, now, cavity, out)
                continue
            self.set_p(p)
            conditions, tables = piece.within(*interval)
            blocks = list(self.grounder.clauses(
                part, piece.join, self.keys[part.rule], conditions, tables, MAX_SUMMED + 1
            ))  # fmt: skip
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
            good = gains(_all_false(whole.scope, whole.positive, p), w) >= threshold
            _add_messages(whole.rows(good), w[good], now, out, 1.0, cavity)
        for block, mask in zip(self.dense, masks):
            w = block_weights(block, self.weights(block.rule))
            u = false_under(block, p)
            rows = np.flatnonzero(~mask & (gains(u, w) >= threshold))
            _add_dense(block, rows, w, now, out, cavity)
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
        if number in self.by_rank and (abs(w) <= _SOFT or w == math.inf):
            floor = _FLOOR if math.isinf(w) else 0.0
            self.by_rank[number].add_messages(
                p, *interval, now, -math.expm1(-w), floor, cavity, out
            )
        else:
            self._sum_in_database(piece, w, interval, p, now, cavity, out)
        literals = piece.join.literals
        n_negated = sum(not x.positive for x in literals)
        mine = kept.get((piece.part, len(literals), n_negated, number))
        if mine is not None:
            u = _all_false(mine.scope, mine.positive, p)
            inside = (u >= interval[0]) & (u <= interval[1])
            some = mine.rows(inside)
            _add_messages(some, np.full(len(some), w), now, out, -1.0, cavity)

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
        chances = [x.false_by("m" if cavity else "p") for x in literals]

        def others(k: int, false: Sequence[str]) -> str:
            return " * ".join(f for j, f in enumerate(false) if j != k)

        if cavity:
            factor = [_message_sql(w, others(k, chances))[0] for k in range(len(literals))]
            chances = [
                f"({f} / greatest({f} + (1 - {f}) * {x}, 1e-300))" for f, x in zip(chances, factor)
            ]
        columns = [
            f"sum({_message_sql(w, others(k, chances))[1]}) as m{k}" for k in range(len(literals))
        ]
        ids = [f"{x.alias}.id" for x in literals]
        rows = ", ".join(f"{i} as i{k}" for k, i in enumerate(ids))
        sets = ", ".join(f"({i})" for i in ids)
        where = piece.join.from_where(*piece.within(*interval))
        got = self.store.con.execute(
            f"select {rows}, {', '.join(columns)} {where} group by grouping sets ({sets})"
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
            out.blocks.append(factors.block(part, bool(self.grounder.rules[part.rule].plus)))
        for block in out.blocks:
            n = len(block) if block.count is None else int(block.count.sum())
            out.bindings[block.rule] += n
        out.keys = {k: v.texts() for k, v in self.keys.items() if self.grounder.rules[k].plus}
        return out

    def model(self, kept: Kept, masks: Sequence[NDArray]) -> tuple[Grounding, Model]:
        grounding = self.grounding(kept, masks)
        return grounding, build(self.store, self.grounder, grounding)


def _add_messages(
    factors: Factors,
    w: NDArray[np.float64],
    p: NDArray[np.float64],
    out: NDArray[np.float64],
    times: float,
    cavity: bool,
) -> None:
    """Add clauses' messages, as log-odds of their atoms; ``cavity``: they are in ``p`` already."""
    positive = factors.positive.tolist()
    q = [1 - p[factors.scope[:, a]] if yes else p[factors.scope[:, a]]
         for a, yes in enumerate(positive)]  # fmt: skip
    hard = np.isinf(w)

    def message_to(a: int, q: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        others = np.ones(len(factors))
        for b in range(len(positive)):
            if b != a:
                others *= q[b]
        return _log_message(w, others, hard)

    if cavity:
        q = [x / np.maximum(x + (1 - x) * _exp(message_to(a, q)), 1e-300) for a, x in enumerate(q)]
    for a, yes in enumerate(positive):
        message = message_to(a, q)
        sign = -times if yes else times
        out += np.bincount(factors.scope[:, a], sign * message, minlength=len(out))


def _log_message(
    w: NDArray[np.float64], others: NDArray[np.float64], hard: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """log(1 - c prod of the others' chances to be false), c = 1 - e^-w."""
    out = np.empty(len(w))
    out[hard] = np.log(np.maximum(1 - others[hard], _FLOOR))
    strong = (np.abs(w) > _SOFT) & ~hard
    rest = ~(hard | strong)
    out[rest] = np.log1p(np.expm1(-w[rest]) * others[rest])
    with np.errstate(divide="ignore"):
        x = others[strong]
        out[strong] = np.logaddexp(np.log1p(-x), np.log(x) - w[strong])
    return out


def _message_sql(w: float, others: str) -> tuple[str, str]:
    """SQL of the message that :func:`_log_message` has, and of its log."""
    if math.isinf(w):
        value = f"greatest(1 - {others}, {_FLOOR!r})"
        return value, f"ln({value})"
    if abs(w) <= _SOFT / 2:
        value = f"(1 - {-math.expm1(-w)!r} * {others})"
        return value, f"ln({value})"
    # log of (1 - x) + x e^-w, neither of which need be a number that is not 0 or infinite
    none = "'-inf'::double"
    true = f"if({others} < 1, ln(1 - {others}), {none})"
    false = f"(if({others} > 0, ln({others}), {none}) - {w!r}::double)"
    value = f"(greatest({true}, {false}) + ln(1 + exp(-abs({true} - {false}))))"
    return f"exp(least({value}, 700))", value


def _add_dense(
    block: Block,
    rows: NDArray[np.int64],
    w: NDArray[np.float64],
    p: NDArray[np.float64],
    out: NDArray[np.float64],
    cavity: bool,
) -> None:
    """Messages of formulas that are no clauses: P(false) with the atom true, and false."""
    if not len(rows):
        return
    some = replace(block, scope=block.scope[rows], count=None, key=None)
    w, hard = w[rows], np.isinf(w[rows])
    # a chance for each place of each factor, and those of an atom that is false, or true
    places: NDArray[np.int32] = np.arange(some.scope.size, dtype=np.int32)
    places = places.reshape(some.scope.shape)

    def messages(chances: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        extended = np.concatenate([chances.ravel(), [0.0, 1.0]])
        found = []
        for a in range(some.scope.shape[1]):
            logs = []
            for state in (0, 1):
                scope = places.copy()
                scope[:, a] = places.size + state
                here = false_under(replace(some, scope=scope), extended)
                logs.append(_log_message(w, here, hard))
            found.append(logs[1] - logs[0])
        return found

    chances = p[some.scope]
    found = messages(chances)
    if cavity:
        for a, message in enumerate(found):
            x = chances[:, a].copy()
            chances[:, a] = x / np.maximum(x + (1 - x) * _exp(message), 1e-300)
        found = messages(chances)
    for a, message in enumerate(found):
        out += np.bincount(some.scope[:, a], message, minlength=len(out))


def _exp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(np.minimum(x, 700.0))


# ---------------------------------------------------------------------- inference


@dataclass
class Lazily:
    """How an answer by lazy grounding came about.

    Attributes
    ----------
    threshold : the last one: groundings with a gain of so much are factors
    band : the gain from which messages of others were summed
    kept : factors built, with those over one atom left out
    possible : groundings there are (where not ``exact``: at most)
    rounds : kept factors after each round
    thresholds, differences, largest : by threshold, how far the answer was from the one before it
        (mean and largest difference over atoms that are not known)
    tolerance : the mean difference that was asked for; None: one threshold alone
    agreed : whether two answers agreed to it, sums moved the last by no more than half of it, and
        other starts gave the same answer; None where not asked
    checked : whether these were sums of all groundings, so that nothing was left out of them
    another : how far the answers from other starts were, on average
    moved : mean change of the probabilities by the last sums of messages
    hard : whether hard rules were selected by the reverse divergence
    notes : what could not be done
    """

    threshold: float
    band: float
    kept: int = 0
    possible: float = 0.0
    exact: bool = True
    rounds: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    largest: list[float] = field(default_factory=list)
    tolerance: float | None = None
    agreed: bool | None = None
    checked: bool = False
    another: float = 0.0
    moved: float = 0.0
    hard: bool = False
    notes: list[str] = field(default_factory=list)
    grounding: Grounding = field(default_factory=Grounding)
    model: Model | None = None

    @property
    def mean_error_estimate(self) -> float:
        """Mean difference of the last two answers; or, if more, how far the last sums moved it."""
        return max(self.differences[-1], self.moved) if self.differences else self.moved

    def __str__(self) -> str:
        most = "" if self.exact else "at most "
        text = f"threshold {self.threshold:g}: {self.kept:,} factors of {most}"
        text += f"{self.possible:,.0f} groundings"
        if self.differences:
            text += f"; {self.differences[-1]:.2g} on average from the answer before it"
        if self.agreed is False and not self.another > (self.tolerance or 0.0):
            text += f", more than the {self.tolerance:g} asked for"
        if self.agreed and not self.checked:
            text += f"; gains below {self.band:g} are in neither"
        return "; ".join([text, *self.notes])


def worth_it(grounder: Grounder) -> bool:
    """Whether groundings are many, far more than the rows they come from, and not absurd."""
    rows = sum(p.n for p in grounder.store.predicates.values())
    total = 0.0
    enough = max(AUTO_FROM, AUTO_RATIO * rows)
    for part in grounder.parts:
        if grounder.easy(part):
            total += count_part(grounder, part, 0.0, enough=enough - total)[0]
    return enough < total <= AUTO_UP_TO


def infer_lazily(
    grounder: Grounder,
    solver: Callable[..., Any],
    threshold: float | None = None,
    tolerance: float | None = None,
    rounds: int = 2,
    sums: int | None = None,
    max_groundings: float = math.inf,
    rough: Callable[..., Any] | None = None,
) -> tuple[Any, Lazily]:
    """Marginals of all atoms from the groundings that matter.

    Parameters
    ----------
    threshold : float, optional
        The gain from which groundings become factors; with a tolerance, where lowering begins
    tolerance : float, optional
        Lower the threshold tenfold until two answers differ by no more on average. Without a
        threshold 1e-3
    rounds : selections at each threshold, each with the marginals of the one before it
    sums : how often messages of what is not kept are summed, at each threshold; 0: not. By default
        once, or with a tolerance until they move the answer by no more than half of it
    rough : solver of rounds before the last
    """
    if threshold is None and tolerance is None:
        tolerance = TOLERANCE
    gamma = THRESHOLD if threshold is None else threshold
    most = sums if sums is not None else 1 if tolerance is None else MAX_SUMS
    selector = Selector(grounder, max_groundings)
    how = Lazily(gamma, gamma / BAND, possible=selector.possible, exact=selector.exact)
    how.tolerance = tolerance
    how.hard = any(r.hard for r in grounder.rules)
    masks = [np.zeros(len(b), dtype=bool) for b in selector.dense]
    kept: Kept = {}
    seed = build(grounder.store, grounder, selector.grounding(kept, masks))
    marginals = (rough or solver)(seed.graph)
    first = _true(marginals)
    free = np.isfinite(seed.log_odds)
    del seed
    before: NDArray[np.float64] | None = None
    everything = False  # whether sums are of all groundings
    last: Any = None
    model: Any = None
    grounding: Any = None
    while True:
        n, own = -1, first  # what kept factors say, without sums
        for _ in range(rounds):
            try:
                new, more = selector.select(own, gamma)
            except RefusedError:
                if before is None:
                    raise
                how.notes.append(f"more than {max_groundings:,.0f} factors at {gamma:g}")
                how.agreed = False
                return last, how
            kept = _union(kept, new)
            masks = [a | b for a, b in zip(masks, more)]
            now = sum(map(len, kept.values())) + sum(int(m.sum()) for m in masks)
            how.rounds.append(now)
            if now == n:
                break
            n = now
            # two of them at a time would be most of the memory
            marginals = model = grounding = sums_of = None
            grounding, model = selector.model(kept, masks)
            marginals = (rough if rough is not None and most else solver)(model.graph)
            own = _true(marginals)
        band = 0.0 if everything else gamma / BAND
        how.moved = 0.0
        sums_of = _Sums(selector, model, solver, kept, masks, own, marginals)
        marginals = None  # sums replace it
        p = sums_of.until_still(band, most, tolerance, free)
        if most:
            how.moved = sums_of.moved
        how.threshold, how.band = gamma, band if most else gamma
        how.kept, how.grounding, how.model = model.graph.n_factors, grounding, model
        how.thresholds.append(gamma)
        _note_skipped(how, selector)
        last = sums_of.marginals
        if before is not None:
            mean, largest = _apart(p, before, free)
            how.differences.append(mean)
            how.largest.append(largest)
        if tolerance is None:
            return last, how
        still = most == 0 or how.moved <= tolerance / 2
        if how.differences and how.differences[-1] <= tolerance and still:
            if most and selector.possible <= MAX_CHECKED:
                if not everything:
                    p = sums_of.until_still(0.0, 1, tolerance, free)
                    how.moved, how.band, everything = sums_of.moved, 0.0, True
                    still = how.moved <= tolerance / 2
                how.checked = still and not selector.skipped
                if not still:  # what is below the band matters: it is in all answers from now on
                    p = sums_of.until_still(0.0, most, tolerance, free)
                    how.moved = sums_of.moved
                last = sums_of.marginals
            if still:
                how.another = _another_answer(solver, sums_of.graph, p, free)
                how.agreed = how.another <= tolerance
                if not how.agreed:
                    how.notes.append(
                        "belief propagation has several answers: from another start one that is "
                        f"{how.another:.2g} away on average"
                    )
                return last, how
        if gamma / LOWER < LEAST:
            how.agreed = False
            return last, how
        before, gamma = p, gamma / LOWER


def _another_answer(
    solver: Callable[..., Any],
    graph: FactorGraph,
    p: NDArray[np.float64],
    free: NDArray[np.bool_],
) -> float:
    """How far answers from other starts are: from nothing, and from atoms all true or all false."""
    away = _apart(_true(solver(graph)), p, free)[0]
    for sign in (1.0, -1.0):
        pull = np.zeros((len(p), 2))
        pull[free, 1] = sign * PULL
        pulled = solver(graph.tilt(pull.ravel()))
        away = max(away, _apart(_true(solver(graph, start=pulled)), p, free)[0])
    return away


@dataclass
class _Sums:
    """An answer and the sums of messages that are in it, made again from the answer they led to."""

    selector: Selector
    model: Model
    solver: Callable[..., Any]
    kept: Kept
    masks: Sequence[NDArray]
    own: NDArray[np.float64]  # what kept factors say
    marginals: Any
    p: NDArray[np.float64] | None = None  # with sums; None: there are none yet
    moved: float = 0.0

    def __post_init__(self) -> None:
        self.graph = self.model.graph

    def until_still(
        self, band: float, times: int, tolerance: float | None, free: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Sum until that moves the answer by no more than half the tolerance.

        Sums may overshoot: of many weak messages against an atom each is made as if the others were
        not there. Where the answer moves by more than half of what it moved before, steps are
        halved from then on.
        """
        step, total, before = 1.0, np.zeros(len(self.own)), math.inf
        for _ in range(times):
            new = self.selector.sums(self.own, self.kept, self.masks, band, self.p)
            total += step * (new - total)
            delta = np.zeros((len(self.own), 2))
            delta[:, 1] = np.where(np.isfinite(self.model.log_odds), total, 0.0)
            self.graph = self.model.graph.tilt(delta.ravel())
            self.marginals = self.solver(self.graph, start=self.marginals)
            then = _true(self.marginals)
            self.moved = _apart(then, self.own if self.p is None else self.p, free)[0] / step
            self.p = then
            if tolerance is not None and self.moved <= tolerance / 2:
                break
            if self.moved > before / 2:
                step = max(step / 2, LEAST_STEP)
            before = self.moved
        return self.own if self.p is None else self.p


def _apart(
    p: NDArray[np.float64], q: NDArray[np.float64], free: NDArray[np.bool_]
) -> tuple[float, float]:
    """Mean and largest difference over atoms that are not known."""
    away = np.abs(p - q)[free]
    return (float(away.mean()), float(away.max())) if len(away) else (0.0, 0.0)


def _note_skipped(how: Lazily, selector: Selector) -> None:
    if selector.skipped:
        texts = ", ".join(dict.fromkeys(selector.skipped))
        note = f"too many groundings to sum: {texts}"
        if note not in how.notes:
            how.notes.append(note)


def _true(marginals: Any) -> NDArray[np.float64]:
    return np.ascontiguousarray(marginals.probs.reshape(-1, 2)[:, 1])
