"""A clause as a join: what the database is asked so that it finds all groundings.

A clause is false where all its literals are, so its groundings are found by joins: a negated closed
literal is a join with its table, a positive one an anti-join, a comparison a condition. Open
literals join with the tables of their atoms. A positive open literal is false
where its atom is not a candidate: it is joined from the left, unless the candidates are all there
are. Literals that evidence makes true drop the grounding, those it makes false are left out of it
(their id is -1).

A :class:`ClauseJoin` keeps all of that in parts (sources, conditions, open literals), so that
others can ask about the same groundings in their own way: count them, filter the atoms of a
literal, put a threshold inside, sum messages instead of building factors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from typing import TYPE_CHECKING

from minfer.errors import ModelError, visible
from minfer.rules.formulas import (
    Arithmetic,
    Atom,
    Compare,
    Constant,
    Formula,
    Not,
    Term,
    Variable,
    atoms,
    free_variables,
    renamed,
)
from minfer.rules.tables import quoted

if TYPE_CHECKING:
    from minfer.rules.parse import Rule
    from minfer.rules.schema import Store

_MOST_MAPS = 1000  # permutations of a clause's literals that are followed
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}


class ColumnTest(str):
    """A condition, as SQL, that says no more than how two columns compare (neither is null)."""

    __slots__ = ("a", "b", "op")
    a: str
    op: str
    b: str

    def __new__(cls, a: str, op: str, b: str, sql: str = "") -> ColumnTest:
        out = super().__new__(cls, sql or f"{a} {op} {b}")
        out.a, out.op, out.b = a, op, b
        return out

    def negated(self) -> ColumnTest:
        return ColumnTest(self.a, _OPPOSITE[self.op], self.b)

    @property
    def aliases(self) -> set[str]:
        return {x.partition(".")[0] for x in (self.a, self.b)}


@dataclass(frozen=True)
class Source:
    """A table in the FROM list, in the order of the literals it stands for."""

    table: str  # a name, or a query in brackets
    alias: str
    on: tuple[str, ...]  # conditions with sources before it, and with constants
    variables: tuple[tuple[str, str], ...]  # variable: column, for all its arguments
    left: bool = False  # a left join
    own: tuple[str, ...] = ()  # the conditions of ``on`` that are about it alone
    complete: bool = False  # before these it has all values of its arguments


@dataclass(frozen=True)
class OpenLiteral:
    alias: str
    predicate: str
    positive: bool
    atom: Atom
    optional: bool  # its atom may be missing: then it is false
    may_be_known: bool

    @property
    def id(self) -> str:
        """SQL of the atom's id, -1 where the literal is known to be false."""
        own = f"{self.alias}.id"
        if self.may_be_known:
            return f"coalesce(if({self.alias}.known = 2, {own}, -1), -1)"
        return f"coalesce({own}, -1)" if self.optional else own

    @property
    def false(self) -> str:
        """SQL of the probability that the literal is false."""
        p = f"{self.alias}.p"
        p = f"coalesce({p}, 0)" if self.optional else p
        return f"(1 - {p})" if self.positive else p


@dataclass(frozen=True)
class ClauseJoin:
    """The groundings of a clause (or a part of them, where a clause needs several)."""

    sources: tuple[Source, ...]
    conditions: tuple[str, ...]
    literals: tuple[OpenLiteral, ...]
    variables: Mapping[str, str]  # name: SQL of its value
    plus: tuple[str, ...] = ()  # variables with a weight for each value
    merge: bool = False  # whether different bindings may give the same factor: group by its key
    partly: bool = False  # ... but only where an id is -1
    times: int = 1  # else: how many bindings give each factor
    coincide: tuple[ColumnTest, ...] = ()  # of a part where some of these hold: its last condition

    def from_where(
        self, conditions: Iterable[str] = (), tables: Mapping[str, str] | None = None
    ) -> str:
        """FROM and WHERE; ``tables`` replaces sources by alias, as by atoms that can matter."""
        text, where = "", list(self.conditions)
        # left joins last: DuckDB 2.0 loses rows of a cross product that is between them and others
        for s in sorted(self.sources, key=lambda s: s.left):
            table = (tables or {}).get(s.alias, s.table)
            if not text and not s.left:
                text = f"from {table} {s.alias}"
                where += s.on
            else:
                how = "left join" if s.left else "join"
                text = text or "from (select 1) nothing"
                text += f" {how} {table} {s.alias} on {' and '.join(s.on) or 'true'}"
        text = text or "from (select 1) nothing"
        where += conditions
        return text + (f" where {' and '.join(where)}" if where else "")

    def present(self, aliases: Iterable[str]) -> ClauseJoin:
        """The join where these sources have a row: the database must not find that out."""
        inner = set(aliases)
        sources = tuple(replace(s, left=s.left and s.alias not in inner) for s in self.sources)
        return replace(self, sources=sources)

    @property
    def key(self) -> list[str]:
        """SQL of the atoms' ids, in an order that is the same for the same factor."""
        out = [x.id for x in self.literals]
        if not self.merge:
            return out
        for places in alike(self.literals).values():
            ids = [out[k] for k in places]
            if len(places) == 2:
                out[places[0]], out[places[1]] = (
                    f"least({ids[0]}, {ids[1]})", f"greatest({ids[0]}, {ids[1]})"
                )  # fmt: skip
            elif len(places) > 2:
                for n, k in enumerate(places):
                    out[k] = f"list_sort([{', '.join(ids)}])[{n + 1}]"
        return out

    def ids_sql(
        self, conditions: Iterable[str] = (), tables: Mapping[str, str] | None = None
    ) -> str:
        """Ids i0, i1, ..., weight keys k0, ...; with ``merge`` n, how many bindings give it."""
        names = [f"i{k}" for k in range(len(self.literals))]
        keys = [f"k{k}" for k in range(len(self.plus))]
        listed = [f"{sql} as {name}" for name, sql in zip(names, self.key)]
        listed += [f"{self.variables[v]} as {name}" for name, v in zip(keys, self.plus)]
        if self.merge:
            listed.append("count(*)::integer as n")
        text = f"select {', '.join(listed)} {self.from_where(conditions, tables)}"
        if self.merge:
            text += f" group by {', '.join(names + keys)}"
        return text

    def values_sql(self, names: Iterable[str], conditions: Iterable[str] = ()) -> str:
        """Values v0, v1, ... of some variables."""
        listed = ", ".join(f"{self.variables[v]} as v{k}" for k, v in enumerate(names))
        return f"select {listed or '0 as v'} {self.from_where(conditions)}"

    def count_sql(self) -> str:
        """How many bindings there are that evidence leaves open."""
        left = []
        if self.literals and all(x.optional or x.may_be_known for x in self.literals):
            left = [f"greatest({', '.join(x.id for x in self.literals)}) >= 0"]
        return f"select count(*) {self.from_where(left)}"


def alike(literals: Sequence[OpenLiteral]) -> dict[tuple[str, bool], list[int]]:
    """Places of literals by their predicate and sign."""
    out: dict[tuple[str, bool], list[int]] = {}
    for k, x in enumerate(literals):
        out.setdefault((x.predicate, x.positive), []).append(k)
    return out


def orders(store: Store, literals: Sequence[OpenLiteral]) -> int:
    """In how many ways literals that are alike can be put, arguments of symmetric ones turned."""
    out = 1
    for (name, _), places in alike(literals).items():
        ways = 2 if store.predicates[name].symmetric else 1
        out *= math.factorial(len(places)) * ways ** len(places)
    return out


@dataclass
class Builder:
    store: Store
    rule: Rule
    classes: dict[str, int]  # of the variables
    whole_domains: bool  # what nothing binds has all values of its type; else that is an error

    def expression(self, term: Term, bound: Mapping[str, str], numbers: bool) -> str:
        """SQL of a term; of texts, their numbers."""
        if isinstance(term, Variable):
            coding = self.store.coding(self.classes[term.name])
            if numbers and coding.kind == "text":
                what = (
                    "whole numbers beyond 2^53" if coding.whole else "values that are not numbers"
                )
                raise ModelError(
                    f"{self.rule.name}: the variable {visible(term.name)} has {what}, so it cannot "
                    "be computed with"
                )
            return bound[term.name]
        if isinstance(term, Constant):
            value = term.number
            if value is None or not math.isfinite(value):
                raise ModelError(
                    f"{self.rule.name}: the constant {visible(str(term))} is compared with numbers,"
                    " and is no finite one itself"
                )
            return f"{value!r}::double"
        left = self.expression(term.left, bound, True)
        right = self.expression(term.right, bound, True)
        if term.op == "/":
            return f"(({left})::double / nullif({right}, 0))"
        return f"(({left})::double {term.op} {right})"

    def comparison(self, c: Compare, bound: Mapping[str, str], negate: bool = False) -> str:
        """SQL of a comparison, or of its opposite; one that has no value (1/0) is false."""
        negate = negate != c.negated
        if isinstance(c.left, Variable) and isinstance(c.right, Variable):
            op = "<>" if c.op == "!=" else c.op
            test = ColumnTest(bound[c.left.name], op, bound[c.right.name])
            return test.negated() if negate else test
        sql = self._comparison(c, bound)
        return f"not coalesce({sql}, false)" if negate else f"coalesce({sql}, false)"

    def _comparison(self, c: Compare, bound: Mapping[str, str]) -> str:
        sides = (c.left, c.right)
        simple = not any(isinstance(side, Arithmetic) for side in sides)
        op = "<>" if c.op == "!=" else c.op
        for var, other, flipped in ((c.left, c.right, False), (c.right, c.left, True)):
            if not (simple and isinstance(var, Variable) and isinstance(other, Constant)):
                continue
            coding = self.store.coding(self.classes[var.name])
            if coding.kind != "text":
                break
            text, v, x = quoted(other.text), "v", bound[var.name]
            if op not in ("=", "<>") and coding.whole:
                text, v = self.expression(other, {}, True), "v::hugeint"  # a finite number
                if re.fullmatch("-?[0-9]+", other.text):  # with all its digits
                    text = f"'{other.text}'::hugeint"
            elif op not in ("=", "<>") and other.number is not None:
                row = self.store.con.one(
                    f"select v from {coding.table} where try_cast(v as double) is null"
                )
                such = f", such as {visible(row[0])!r}" if row is not None else ""
                raise ModelError(
                    f"{self.rule.name}: the variable {visible(var.name)} has values that are not "
                    f"numbers{such}, so it cannot be compared with {visible(other.text)}"
                )
            direct = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(op, op) if flipped else op
            below = f"(select count(*) from {coding.table} where {v} < {text})"
            upto = f"(select count(*) from {coding.table} where {v} <= {text})"
            return {
                "=": f"{x} = coalesce((select id from {coding.table} where v = {text}), -1)",
                "<>": f"{x} <> coalesce((select id from {coding.table} where v = {text}), -1)",
                "<": f"{x} < {below}", "<=": f"{x} < {upto}",
                ">": f"{x} >= {upto}", ">=": f"{x} >= {below}",
            }[direct]  # fmt: skip
        if simple and all(isinstance(side, Constant) for side in sides):
            values = [side.number if isinstance(side, Constant) else None for side in sides]
            if None in values:
                texts = [side.text if isinstance(side, Constant) else "" for side in sides]
                return f"{quoted(texts[0])} {op} {quoted(texts[1])}"
        left, right = (self.expression(side, bound, not simple) for side in sides)
        return f"{left} {op} {right}"

    def arguments(
        self, atom: Atom, alias: str, bound: dict[str, str]
    ) -> tuple[list[str], list[tuple[str, str]], list[str]]:
        """Conditions that join an atom's table, its variables' columns; new variables are bound."""
        p = self.store.predicates[atom.predicate]
        on, columns, own = list[str](), [], list[str]()
        mine: dict[str, str] = {}
        for k, term in enumerate(atom.terms):
            sql = f"{alias}.a{k}"
            if isinstance(term, Constant):
                own.append(
                    f"{sql} = {self.store.constant(term.text, p.classes[k], self.rule.name)}"
                )
                continue
            if term.name in mine:
                own.append(ColumnTest(sql, "=", mine[term.name]))
                continue
            mine[term.name] = sql
            columns.append((term.name, f"a{k}"))
            if term.name in bound:
                on.append(ColumnTest(sql, "=", bound[term.name]))
            else:
                bound[term.name] = sql
        return on + own, columns, own

    def joins(
        self,
        literals: Sequence[Formula],
        need: Iterable[str] = (),
        everything: bool = False,
        given: Source | None = None,
    ) -> list[ClauseJoin]:
        """The joins of a clause of plain literals, every variable of ``need`` bound.

        All bindings are there, whether they give the same factor or not. ``everything``: also those
        that are false whatever the open atoms are. ``given``: a source whose variables are bound.
        """
        positives: list[Formula] = []
        rest: list[Formula] = []
        sure = given is not None or everything  # whether one join has them all
        for literal in literals:
            if isinstance(literal, Compare):
                rest.append(literal)
                continue
            p, positive = self.store.predicates[_atom(literal).predicate], isinstance(literal, Atom)
            (positives if p.open and positive else rest).append(literal)
            sure = sure or (p.open and (p.complete or not positive))
        if sure or not positives:
            return [self._join(rest, positives, need, given=given)]
        joins = []  # one open atom at least is a candidate: the first such, in turn
        for k in range(len(positives)):
            order = [positives[k], *positives[:k], *positives[k + 1 :]]
            join = self._join(rest, order, need, first=True)
            absent = tuple(f"{x.alias}.id is null" for x in join.literals[1 : k + 1])
            back = [*range(1, k + 1), 0, *range(k + 1, len(positives))]
            ordered = tuple(join.literals[i] for i in back)
            joins.append(replace(join, conditions=join.conditions + absent, literals=ordered))
        return joins

    def _join(
        self,
        rest: Sequence[Formula],
        positives: Sequence[Formula],
        need: Iterable[str],
        first: bool = False,
        given: Source | None = None,
    ) -> ClauseJoin:
        store, bound = self.store, dict[str, str]()
        sources: list[Source] = []
        if given is not None:
            sources.append(given)
            bound |= {v: f"{given.alias}.{c}" for v, c in given.variables}
        open_literals: list[OpenLiteral] = []
        conditions: list[str] = []
        later: list[Formula] = []

        def add(atom: Atom, positive: bool, inner: bool) -> None:
            p = store.predicates[atom.predicate]
            alias = f"t{len(sources)}"
            on, columns, own = self.arguments(atom, alias, bound)
            if p.open and p.has_known:
                if inner:  # what evidence makes true drops the grounding
                    own.append(f"{alias}.known <> {int(positive)}")
                    on.append(own[-1])
                else:
                    conditions.append(f"{alias}.known is distinct from {int(positive)}")
            sources.append(
                Source(p.table, alias, tuple(on), tuple(columns), not inner, tuple(own), p.complete)
            )
            if p.open:
                open_literals.append(
                    OpenLiteral(alias, atom.predicate, positive, atom, not inner, p.has_known)
                )

        for literal in rest:
            if isinstance(literal, Not):
                add(_atom(literal), False, True)
            else:
                later.append(literal)
        left: list[Atom] = []
        for k, literal in enumerate(positives):
            atom = _atom(literal)
            if store.predicates[atom.predicate].complete or (first and k == 0):
                add(atom, True, True)
            else:
                left.append(atom)
        names = [name for literal in (*left, *later) for name in free_variables(literal)]
        for name in dict.fromkeys([*names, *need]):
            if name in bound:
                continue
            table, n = store.domain(self.classes[name])
            if not self.whole_domains:
                raise ModelError(
                    f"{self.rule.name}: nothing binds the variable {visible(name)}, which would "
                    f"take all {n:,} values of its type; add a condition that binds it, or set "
                    'unbound="domain"'
                )
            bound[name] = f"t{len(sources)}.v"
            sources.append(Source(table, f"t{len(sources)}", (), ((name, "v"),)))
        for atom in left:
            add(atom, True, False)
        for literal in later:
            if isinstance(literal, Compare):
                conditions.append(self.comparison(literal, bound, negate=True))
            elif isinstance(literal, Atom):
                conditions.append(self.absent(literal, bound))
        for x, y in combinations(open_literals, 2):
            if x.predicate == y.predicate and x.positive != y.positive:
                a, b, either = f"{x.alias}.id", f"{y.alias}.id", x.optional or y.optional
                sql = f"{a} is distinct from {b}" if either else ""
                conditions.append(ColumnTest(a, "<>", b, sql))
        return ClauseJoin(
            tuple(sources), tuple(conditions), tuple(open_literals), bound, self.rule.plus
        )

    def absent(self, atom: Atom, bound: Mapping[str, str]) -> str:
        """SQL that a closed atom is not in its table; variables not bound stand for any value."""
        table = self.store.predicates[atom.predicate].table
        on, _, _ = self.arguments(atom, "e", dict(bound))
        return f"not exists (select 1 from {table} e where {' and '.join(on) or 'true'})"

    def unmerged(self, join: ClauseJoin, literals: Sequence[Formula]) -> list[ClauseJoin]:
        """The join as one or two whose factors come as rarely twice as can be known beforehand.

        Grouping costs more than joining. Where all variables are in open literals, two bindings
        give the same factor only by a permutation of literals that are alike; each is followed to
        what it asks of the variables: nothing (a symmetry of the clause, of which one binding of
        two is taken, if the other conditions share it), or that some are equal (these few bindings
        are a join of their own, which is grouped).
        """
        named = {t.name for x in join.literals for t in x.atom.terms if isinstance(t, Variable)}
        partly = any(x.optional or x.may_be_known for x in join.literals)
        grouped = [replace(join, merge=True)]
        if not set(join.variables) <= named | set(self.rule.plus):
            return grouped
        found = self._coincidences(join, literals)
        if found is None:
            return grouped
        equal, swap = found
        conditions, times = list(join.conditions), 1
        if swap is not None:
            a, b = (join.variables[v] for v in swap)
            equal = equal | {swap}
            conditions.append(ColumnTest(a, "<", b))
            times = 2
        if not equal:
            return [replace(join, partly=partly)]
        tests = [ColumnTest(join.variables[a], "=", join.variables[b]) for a, b in sorted(equal)]
        conditions += [t.negated() for t in tests]
        either = f"({' or '.join(tests)})"
        few = replace(
            join, conditions=(*join.conditions, either), merge=True, coincide=tuple(tests)
        )
        return [replace(join, conditions=tuple(conditions), partly=partly, times=times), few]

    def _coincidences(
        self, join: ClauseJoin, literals: Sequence[Formula]
    ) -> tuple[set[tuple[str, str]], tuple[str, str] | None] | None:
        """Variables that, equal, let bindings coincide; a symmetry's pair. None: unknown."""
        n_maps = orders(self.store, join.literals)
        if n_maps == 1:
            return set(), None
        if n_maps > _MOST_MAPS:
            return None
        groups = alike(join.literals).values()
        others = frozenset(
            x for x in literals if isinstance(x, Compare)
            or not self.store.predicates[_atom(x).predicate].open
        )  # fmt: skip
        unchanged = frozenset(_renamed(x, {}) for x in others)
        equal: set[tuple[str, str]] = set()
        swaps: set[tuple[tuple[str, str], ...]] = set()
        for images in product(*map(permutations, groups)):
            target = {a: b for places, to in zip(groups, images) for a, b in zip(places, to)}
            mirrored = [k for k, x in enumerate(join.literals)
                        if self.store.predicates[x.predicate].symmetric]  # fmt: skip
            for flips in product([False, True], repeat=len(mirrored)):
                turned = {k for k, flip in zip(mirrored, flips) if flip}
                sigma: dict[str, str] = {}
                asked: set[tuple[str, str]] = set()
                possible = True
                for k, x in enumerate(join.literals):
                    terms = x.atom.terms[::-1] if k in turned else x.atom.terms
                    for mine, theirs in zip(terms, join.literals[target[k]].atom.terms):
                        if isinstance(mine, Constant) and isinstance(theirs, Constant):
                            possible = possible and mine == theirs
                        elif isinstance(mine, Constant) or isinstance(theirs, Constant):
                            return None
                        elif sigma.setdefault(theirs.name, mine.name) != mine.name:
                            asked.add(_pair(sigma[theirs.name], mine.name))
                for name in self.rule.plus:  # another value has another weight
                    if sigma.get(name, name) != name:
                        asked.add(_pair(name, sigma[name]))
                if not possible or (all(a == b for a, b in sigma.items()) and not asked):
                    continue
                if asked:
                    equal |= asked
                    continue
                moved = tuple(sorted({_pair(a, b) for a, b in sigma.items() if a != b}))
                if any(sigma.get(b) != a for a, b in sigma.items()):
                    return None  # no swap
                strict = any(  # what must hold, the opposite of the literal, is < or >
                    isinstance(c, Compare) and c.op in ("<", ">", "<=", ">=")
                    and c.negated == (c.op in ("<", ">"))
                    and isinstance(c.left, Variable) and isinstance(c.right, Variable)
                    and _pair(c.left.name, c.right.name) in moved
                    for c in others
                )  # fmt: skip
                if strict:  # it holds for one of two bindings only
                    continue
                if frozenset(_renamed(x, sigma) for x in others) != unchanged:
                    return None
                swaps.add(moved)
        if len(swaps) > 1:
            return None
        return equal, (next(iter(swaps))[0] if swaps else None)


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


def _renamed(formula: Formula, names: Mapping[str, str]) -> Formula:
    if isinstance(formula, Not):
        return Not(_renamed(formula.part, names))
    assert isinstance(formula, Atom | Compare)
    part = renamed(formula, names)
    if isinstance(part, Compare) and part.op in ("=", "!=") and str(part.left) > str(part.right):
        return replace(part, left=part.right, right=part.left)
    return part


def _atom(literal: Formula) -> Atom:
    atom = literal.part if isinstance(literal, Not) else literal
    assert isinstance(atom, Atom)
    return atom


def variable_classes(store: Store, formula: Formula) -> dict[str, int]:
    """The coding of each variable of a formula, quantified ones too."""
    out: dict[str, int] = {}
    for atom in atoms(formula):
        for k, term in enumerate(atom.terms):
            if isinstance(term, Variable):
                out[term.name] = store.predicates[atom.predicate].classes[k]
    return out


class Equal:
    """Columns that have the same value."""

    def __init__(self, join: ClauseJoin) -> None:
        self._up: dict[str, str] = {}
        every = [*join.conditions, *(x for s in join.sources if not s.left for x in s.on)]
        for test in every:
            if isinstance(test, ColumnTest) and test.op == "=":
                self._up[self.of(test.a)] = self.of(test.b)

    def of(self, column: str) -> str:
        while column in self._up and self._up[column] != column:
            column = self._up[column]
        return column


def contradictory(join: ClauseJoin) -> bool:
    """Whether conditions ask two columns to be the same and not to be."""
    equal = Equal(join)
    tests = [x for x in join.conditions if isinstance(x, ColumnTest)]
    return any(x.op in ("<", ">", "<>") and equal.of(x.a) == equal.of(x.b) for x in tests)


def implied(join: ClauseJoin) -> list[ColumnTest]:
    """Equalities within one source that follow from those between sources."""
    equal, out = Equal(join), list[ColumnTest]()
    for s in join.sources:
        columns = [] if s.left else list(dict.fromkeys(f"{s.alias}.{c}" for _, c in s.variables))
        for k, a in enumerate(columns):
            same = [b for b in columns[k + 1 :] if equal.of(a) == equal.of(b)]
            new = [ColumnTest(a, "=", b) for b in same]
            out += [x for x in new if x not in (*s.own, *join.conditions)]
    return out
