"""How many groundings each rule has, by the database's own counts, before anything is built.

First a bound from the sizes of tables alone, which costs nothing; then one by summing counts along
the join (exact where its tables hang together like a tree, and in time linear in them however many
groundings there are); then, where these are few enough, the count itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from minfer.basics.notebook import Face, Faced, Right
from minfer.basics.words import counted
from minfer.errors import RefusedError, visible
from minfer.rules.tables import named

if TYPE_CHECKING:
    from minfer.rules.ground import Grounder, Part
    from minfer.rules.joins import ClauseJoin
    from minfer.rules.schema import Store

MAX_COUNTED = 200_000_000  # groundings that are counted one by one


@dataclass(frozen=True)
class RulePlan:
    """What is known about a rule before it is grounded.

    Attributes
    ----------
    rule : its text
    groundings : values of its variables for which evidence does not decide it
    exact : whether that is the count; else there are at most so many
    kind : "clause", "long clause", "table" or "written out"
    """

    rule: str
    groundings: float
    exact: bool
    kind: str

    def __str__(self) -> str:
        return f"{_at_most(self.groundings, self.exact)}  {self.rule}"


@dataclass(frozen=True, repr=False)
class Plan(Faced):
    """Counts before anything is built.

    Attributes
    ----------
    atoms : by open predicate
    known : atoms that evidence fixes
    rules : a :class:`RulePlan` each
    """

    atoms: dict[str, int]
    known: int
    rules: list[RulePlan]

    @property
    def groundings(self) -> float:
        return sum(r.groundings for r in self.rules)

    @property
    def exact(self) -> bool:
        return all(r.exact for r in self.rules)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        facts = {"atoms": self.atoms, "known": self.known, "groundings": self.groundings}
        return {**facts, "rules": [asdict(r) for r in self.rules]}

    def face(self) -> Face:
        """What there is to say: groundings and atoms in all, then rule by rule."""
        total = ", ".join(f"{n:,} of {name}" for name, n in self.atoms.items())
        atoms = f"{counted(sum(self.atoms.values()), 'atom')} ({total})"
        count = _at_most(self.groundings, self.exact)
        rows = [(Right(_at_most(r.groundings, r.exact)), visible(r.rule)) for r in self.rules]
        conclusion = f"{count} groundings over {atoms}, {self.known:,} known"
        return Face(conclusion, ("groundings", "rule"), rows)


def whole(n: float) -> float:
    return int(n) if math.isfinite(n) and n == int(n) else n


def _at_most(n: float, exact: bool = True) -> str:
    return ("" if exact else "at most ") + (f"{n:,.0f}" if n < 1e15 else f"{n:.2g}")


def make_plan(grounder: Grounder) -> Plan:
    store, rules = grounder.store, []
    for k, rule in enumerate(grounder.rules):
        mine = [part for part in grounder.parts if part.rule == k]
        counts = [count_part(grounder, part, MAX_COUNTED) for part in mine]
        total, exact = whole(sum(n for n, _ in counts)), all(exact for _, exact in counts)
        rules.append(RulePlan(rule.text, total, exact, mine[0].kind if mine else "nothing"))
    atoms = {p.name: p.n for p in store.open_predicates}
    known = sum(
        store.con.one(f"select count(*) from {p.atoms} where known < 2")[0]
        for p in store.open_predicates
        if p.has_known
    )
    return Plan(atoms, known, rules)


def check_size(grounder: Grounder, most: float, parts: Sequence[Part] | None = None) -> None:
    """Refuse rules (or these parts) that have too many groundings, before any join is run."""
    total = 0.0
    for part in grounder.parts if parts is None else parts:
        n, _ = count_part(grounder, part, 0.0, enough=most)
        if total + n > most:  # the bound is loose perhaps
            n, exact = count_part(grounder, part, min(10 * most, MAX_COUNTED))
            if total + n > most:
                rule = grounder.rules[part.rule]
                others = f" on top of {_at_most(total)} others" if n <= most else ""
                raise RefusedError(
                    f"{rule.name}: {'' if exact else 'up to '}{_at_most(n)} groundings{others}, "
                    f"more than max_groundings = {_at_most(most)}; bind its variables by a "
                    "condition that holds for fewer of them (blocking), give fewer candidates, set "
                    "max_groundings, or ask for grounding='lazy'"
                )
        total += n


def count_part(
    grounder: Grounder, part: Part, count_up_to: float, enough: float = -1.0
) -> tuple[float, bool]:
    """Groundings of a part, and whether that is exact; a bound up to ``enough`` will do."""
    kind, joins = part.kind, grounder.bindings(part)
    if kind == "written out":
        classes = grounder.builder(part).classes
        sizes = [grounder.store.domain(classes[v])[1] for v in grounder.free(part)]
        return float(math.prod(sizes)), False
    total, exact = 0.0, kind != "long clause"  # whether one is decided takes all its atoms
    for join in joins:
        if kind == "clause" and not join.literals:
            continue  # the tables decide it
        n = quick_bound(grounder.store, join)
        sure = False
        if n > enough:
            summed, sure = summed_bound(grounder.store, join)
            n = min(n, summed)
            if not sure and n <= count_up_to:
                n = float(grounder.store.con.one(join.count_sql())[0])
                sure = True
        total, exact = total + n, exact and sure
    if kind == "table":
        known = any(x.may_be_known or x.optional for join in joins for x in join.literals)
        exact = exact and len(joins) == 1 and not known
    return total, exact


def quick_bound(store: Store, join: ClauseJoin) -> float:
    """From sizes alone: sources that others bind add nothing, since no row is there twice."""
    sizes = {p.table: p.n * (2 if p.open and p.symmetric else 1) for p in store.predicates.values()}
    inner = [s for s in join.sources if not s.left]
    inner.sort(key=lambda s: sizes.get(s.table, math.inf))
    best = math.inf if inner else 1.0
    for first in inner:
        covered: set[str] = set()
        total = 1.0
        for s in (first, *inner):
            names = {v for v, _ in s.variables}
            if not names <= covered:
                total *= sizes.get(s.table, math.inf)
                covered |= names
        best = min(best, total)
    return best


def summed_bound(store: Store, join: ClauseJoin) -> tuple[float, bool]:
    """Sums of counts along the join; whether nothing was left out on the way."""
    known = all(x.optional or x.may_be_known for x in join.literals)  # evidence may decide it
    exact = not join.conditions and not known
    left: list[tuple[frozenset[str], str]] = []
    factor = 1.0
    inner = [s for s in join.sources if not s.left]
    for s in list(inner):  # those that hold for all values restrict nothing, but for what is known
        elsewhere = {v for o in inner if o is not s for v, _ in o.variables}
        if s.complete and {v for v, _ in s.variables} <= elsewhere:
            inner.remove(s)
            exact = exact and not s.own
    for s in inner:
        columns = ", ".join(f"{s.alias}.{c} as {named(v)}" for v, c in s.variables)
        where = f" where {' and '.join(s.own)}" if s.own else ""
        comma = ", " if columns else ""
        sql = f"select {columns}{comma}1::double as n from {s.table} {s.alias}{where}"
        left.append((frozenset(v for v, _ in s.variables), sql))
    while len(left) > 1:
        for k, (names, sql) in enumerate(left):
            others = left[:k] + left[k + 1 :]
            shared = names & frozenset[str]().union(*(o[0] for o in others))
            if not shared:
                factor *= _total(store, sql)
                left = others
                break
            host = next((i for i, o in enumerate(others) if shared <= o[0]), None)
            if host is None:
                continue
            keys = ", ".join(named(v) for v in sorted(shared))
            on = " and ".join(f"h.{named(v)} = g.{named(v)}" for v in sorted(shared))
            keep = ", ".join(f"h.{named(v)}" for v in sorted(others[host][0]))
            merged = (
                f"select {keep}, h.n * g.n as n from ({others[host][1]}) h join (select {keys}, "
                f"sum(n) as n from ({sql}) group by {keys}) g on {on}"
            )
            others[host] = (others[host][0], merged)
            left = others
            break
        else:  # a cycle: leave out a source whose variables others have
            exact = False
            k = next(
                i for i, (names, _) in enumerate(left)
                if names <= frozenset[str]().union(*(o[0] for j, o in enumerate(left) if j != i))
            )  # fmt: skip
            del left[k]
    total = _total(store, left[0][1]) if left else 1.0
    return factor * total, exact


def _total(store: Store, sql: str) -> float:
    return float(store.con.one(f"select coalesce(sum(n), 0) from ({sql})")[0])
