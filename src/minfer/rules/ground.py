"""Rules into factors: what each formula becomes, and all its groundings as arrays.

A weighted formula counts where the *formula* is true: one factor for each value of its free
variables. Most are clauses, or conjunctions (the clause of the opposite literals with the opposite
weight); these are found by one join of the database. ``EXIST`` over a domain is one long clause.
What is left (``<=>``, conjunctions in disjunctions) is a table over its atoms, one for each pattern
of what is known, coincides or is not a candidate. Quantifiers inside quantifiers are written out in
Python: exact and slow, for small domains.

``split=True`` is Alchemy's way: a formula becomes clauses that share its weight, another model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ContradictionError, RefusedError, visible
from minfer.rules.blocks import Block, merged
from minfer.rules.formulas import (
    And,
    Atom,
    Compare,
    Exists,
    Forall,
    Formula,
    Not,
    Or,
    Variable,
    atoms,
    clauses,
    comparisons,
    free_variables,
    negation_normal,
    quantified,
    renamed_apart,
    variables_of,
)
from minfer.rules.joins import Builder, ClauseJoin, Source, alike, variable_classes

if TYPE_CHECKING:
    from minfer.rules.parse import Rule
    from minfer.rules.schema import Store

MAX_TABLE = 16  # atoms of a formula that is not a clause
MAX_WRITTEN_OUT = 200_000  # groundings that are written out in Python


@dataclass(frozen=True)
class Part:
    """A piece of a rule that is grounded by itself: a clause, or a formula as a whole.

    ``share`` times the rule's weight counts where it is true (a conjunction is the clause of the
    opposite literals, its share -1).
    """

    rule: int
    share: float
    literals: tuple[Formula, ...] = ()  # of a clause; Exists among them
    formula: Formula | None = None  # else
    whole: bool = False  # whether its variables have all values of their types: FORALL says so
    kind: str = ""  # "clause", "long clause", "table" or "written out"

    @cached_property
    def said(self) -> Formula:
        return _disjunction(self.literals) if self.formula is None else self.formula

    @cached_property
    def listed(self) -> bool:
        """Whether :meth:`Grounder.instances` finds what it becomes, binding by binding."""
        return self.kind in ("clause", "table") and len(list(atoms(self.said))) <= MAX_TABLE

    def block(self, scope: NDArray[np.int32], **more: Any) -> Block:
        return Block(self.rule, scope, self.share, listed=self.listed, **more)


@dataclass
class Grounding:
    """All factors of a program, before they have weights."""

    blocks: list[Block] = field(default_factory=list)  # in order of their rules
    bindings: list[int] = field(default_factory=list)  # of each rule, that evidence leaves open
    #: Of each rule with a +, the values of these variables, one row for each weight.
    keys: dict[int, list[tuple[str, ...]]] = field(default_factory=dict)


def parts_of(rule: Rule, number: int, split: bool = False) -> list[Part]:
    formula = negation_normal(renamed_apart(rule.formula))
    if split and not rule.hard:
        found = clauses(formula)
        return [
            part for c in found
            for part in _parts(_disjunction(c), number, 1.0 / len(found), False)
        ]  # fmt: skip
    return _parts(formula, number, 1.0, rule.hard)


def _disjunction(literals: Sequence[Formula]) -> Formula:
    return literals[0] if len(literals) == 1 else Or(tuple(literals))


def _parts(formula: Formula, number: int, share: float, hard: bool) -> list[Part]:
    literals = _clause(formula)
    if literals is not None:
        return [Part(number, share, literals)] if not _tautology(literals) else []
    if hard and isinstance(formula, And):
        return [p for x in formula.parts for p in _parts(x, number, share, True)]
    if hard and isinstance(formula, Forall):  # as if its variables were free
        return [replace(p, whole=True) for p in _parts(formula.part, number, share, True)]
    if hard and isinstance(formula, Or) and not quantified(formula):
        return [p for c in clauses(formula) for p in _parts(_disjunction(c), number, share, True)]
    opposite = _clause(negation_normal(formula, True))
    if opposite is not None and not hard:
        return [Part(number, -share, opposite)] if not _tautology(opposite) else []
    return [Part(number, share, formula=formula)]


def _tautology(literals: Sequence[Formula]) -> bool:
    return any(negation_normal(x, True) in literals for x in literals)


def _clause(formula: Formula) -> tuple[Formula, ...] | None:
    """Literals (and EXIST over conjunctions of literals) whose disjunction is the formula."""
    out: list[Formula] = []
    for part in formula.parts if isinstance(formula, Or) else (formula,):
        if isinstance(part, Exists):
            terms = _terms(part)
            if terms is None:
                return None
            out += terms
        elif _is_literal(part):
            out.append(part)
        else:
            return None
    return tuple(dict.fromkeys(out))


def _terms(quantifier: Exists) -> list[Formula] | None:
    """EXIST over a disjunction, taken apart; None where more than literals are inside."""
    inner = quantifier.part
    out: list[Formula] = []
    for part in inner.parts if isinstance(inner, Or) else (inner,):
        if isinstance(part, Exists):
            deeper = _terms(Exists(quantifier.variables + part.variables, part.part))
            if deeper is None:
                return None
            out += deeper
            continue
        literals = part.parts if isinstance(part, And) else (part,)
        if not all(map(_is_literal, literals)):
            return None
        names = free_variables(part)
        used = tuple(v for v in quantifier.variables if v in names)
        if used:
            out.append(Exists(used, part))
        elif len(literals) == 1:
            out.append(part)
        else:
            return None
    return out


def _is_literal(formula: Formula) -> bool:
    if isinstance(formula, Not):
        return isinstance(formula.part, Atom)
    return isinstance(formula, Atom | Compare)


class Grounder:
    def __init__(
        self, store: Store, rules: Sequence[Rule], split: bool = False, whole_domains: bool = False
    ) -> None:
        self.store, self.rules = store, list(rules)
        self.split, self.whole_domains = split, whole_domains
        self._builders: dict[Part, Builder] = {}
        self._bindings: dict[Part, list[ClauseJoin]] = {}
        self.keys = [Keys(store, rule) for rule in self.rules]
        self.parts = [
            replace(p, kind=self._kind(p)) for k, rule in enumerate(self.rules)
            if rule.weight != 0 or rule.weights
            for part in parts_of(rule, k, split) for p in self._without_twins(part)
        ]  # fmt: skip

    def with_rules(self, rules: Sequence[Rule]) -> Grounder:
        return Grounder(self.store, rules, self.split, self.whole_domains)

    def _without_twins(self, part: Part) -> list[Part]:
        """A clause with each atom once, same(x, y) and same(y, x) too; nothing if always true."""
        kept: dict[tuple[Any, bool], Formula] = {}
        for literal in part.literals:
            key: Any = literal
            positive = not isinstance(literal, Not)
            atom = literal.part if isinstance(literal, Not) else literal
            if isinstance(atom, Atom):
                terms = tuple(
                    (True, t.name) if isinstance(t, Variable) else (False, str(t))
                    for t in atom.terms
                )
                both = self.store.predicates[atom.predicate].symmetric
                key = (atom.predicate, min(terms, terms[::-1]) if both else terms)
                if (key, not positive) in kept:
                    return []
            kept.setdefault((key, positive), literal)
        return [replace(part, literals=tuple(kept.values()))] if part.literals else [part]

    def builder(self, part: Part) -> Builder:
        """What makes the joins of a part; of it and its bindings there is one."""
        if part not in self._builders:
            rule = self.rules[part.rule]
            classes = {
                **variable_classes(self.store, rule.formula),
                **variable_classes(self.store, part.said),
            }
            whole = self.whole_domains or part.whole or part.kind == "long clause"
            self._builders[part] = Builder(self.store, rule, classes, whole)
        return self._builders[part]

    def free(self, part: Part) -> list[str]:
        return list(dict.fromkeys([*free_variables(part.said), *self.rules[part.rule].plus]))

    def _kind(self, part: Part) -> str:
        if part.formula is not None:
            return "written out" if quantified(part.formula) else "table"
        inner = [
            sum(self.store.predicates[a.predicate].open for a in atoms(x))
            for x in part.literals if isinstance(x, Exists)
        ]  # fmt: skip
        return "clause" if not inner else "long clause" if max(inner) <= 1 else "written out"

    def joins(self, part: Part) -> list[ClauseJoin]:
        """The joins of a part that is a clause of plain literals."""
        builder = self.builder(part)
        return [x for join in self.bindings(part) for x in builder.unmerged(join, part.literals)]

    def bindings(self, part: Part) -> list[ClauseJoin]:
        """Joins with a row for each binding, the same factor or not; not of what is written out.

        Of a long clause those of its plain literals, of a table those of its clauses.
        """
        if part not in self._bindings:
            literals: list[Sequence[Formula]] = [part.literals]
            if part.kind == "long clause":
                literals = [[x for x in part.literals if not isinstance(x, Exists)]]
            elif part.kind != "clause":
                literals = list(clauses(part.said)) if part.kind == "table" else []
            easy = part.kind == "clause"
            need = self.rules[part.rule].plus if easy else self.free(part)
            self._bindings[part] = [
                join for some in literals
                for join in self.builder(part).joins(some, need, everything=not easy)
            ]  # fmt: skip
        return self._bindings[part]

    def ground(self) -> Grounding:
        return self.grounding([block for part in self.parts for block in self.blocks(part)])

    def grounding(self, blocks: list[Block]) -> Grounding:
        """These factors as if they were all there are."""
        bindings = [0] * len(self.rules)
        for block in blocks:
            bindings[block.rule] += block.n_bindings
        keys = {k: self.keys[k].texts() for k, rule in enumerate(self.rules) if rule.plus}
        return Grounding(blocks, bindings, keys)

    def blocks(self, part: Part) -> Iterator[Block]:
        if part.kind == "clause":
            for join in self.joins(part):
                yield from self.clauses(part, join)
            if self.rules[part.rule].hard:
                self.check_violated(part)
        elif part.kind == "long clause":
            yield from self._long(part)
        elif part.kind == "table":
            yield from self._patterns(part)
        else:
            yield from self._written_out(part)

    def _contradiction(self, part: Part, names: Iterable[str], codes: Iterable[Any]) -> None:
        """The error that evidence breaks a hard rule where variables have these values."""
        classes = self.builder(part).classes
        at = [
            f"{v} = {visible(self.store.texts(np.array([x]), classes[v])[0])}"
            for v, x in zip(names, codes)
        ]
        raise ContradictionError(
            f"{self.rules[part.rule].name}: the evidence breaks this hard rule"
            f"{' at ' if at else ''}{', '.join(at)}"
        )

    def clauses(
        self,
        part: Part,
        join: ClauseJoin,
        conditions: Iterable[str] = (),
        tables: Mapping[str, str] | None = None,
        most: int | None = None,
    ) -> Iterator[Block]:
        """The factors of a join under ``conditions``, with other ``tables``, of ``most`` rows."""
        if not join.literals:
            return
        sql = join.ids_sql(conditions, tables)
        if most is not None:
            sql += f" limit {most}"
        got = self.store.con.arrays(sql)
        ids = [got[f"i{k}"] for k in range(len(join.literals))]
        count = np.asarray(got["n"], dtype=np.int64) if "n" in got else None
        if count is not None and (not len(count) or int(count.max()) == 1):
            count = None
        key = self.keys[part.rule].rows([got[f"k{k}"] for k in range(len(join.plus))])
        positive = np.array([x.positive for x in join.literals])
        for a, b in combinations(range(len(ids)), 2):
            x, y = join.literals[a], join.literals[b]
            if x.predicate == y.predicate and x.positive == y.positive:
                ids[b] = np.where(ids[a] == ids[b], np.int32(-1), ids[b])
        if join.times > 1:
            count = np.full(len(ids[0]), join.times) if count is None else join.times * count
        for rows, kept in _by_absence(ids):
            if not kept or not len(ids[0][rows]):
                continue
            scope = np.stack([ids[k][rows] for k in kept], axis=1).astype(np.int32, copy=False)
            mine = None if key is None else key[rows]
            if join.partly and len(kept) < len(ids):  # the rest of a binding is not to be seen
                for places in alike([join.literals[k] for k in kept]).values():
                    scope[:, places] = np.sort(scope[:, places], axis=1)
                signs = np.broadcast_to(positive[kept], scope.shape)
                yield from _merged_clauses(part, scope, signs, mine, join.times)
            else:
                n = None if count is None else count[rows]
                yield part.block(scope, positive=positive[kept], count=n, key=mine)

    def check_violated(self, part: Part) -> None:
        """A hard clause that evidence makes false, no atom left to mend it."""
        builder, everywhere = self.builder(part), True
        bound, names = set[str](), set[str]()  # variables of negated literals, and of all
        for x in part.literals:
            complete = isinstance(x, Atom) and self.store.predicates[x.predicate].complete
            if isinstance(x, Not) or complete:
                bound |= set(free_variables(x))
            names |= set(free_variables(x))
        if not builder.whole_domains and not names <= bound:
            everywhere = all(  # its variables have the values of candidates, if there are any
                self.store.con.one(f"select {builder.absent(x, {})}")[0]
                for x in part.literals
                if isinstance(x, Atom) and self.store.predicates[x.predicate].open
            )
            if everywhere:
                size = math.prod(self.store.domain(k)[1] for k in builder.classes.values())
                if size > MAX_WRITTEN_OUT:
                    return
                builder = Builder(self.store, builder.rule, builder.classes, True)
        for join in builder.joins(part.literals, everything=everywhere):
            false = [f"{x.id} = -1" for x in join.literals]
            row = self.store.con.one(f"{join.values_sql(join.variables, false)} limit 1")
            if row is not None:
                self._contradiction(part, join.variables, row)

    def _long(self, part: Part) -> Iterator[Block]:
        """Clauses with EXIST: rows of a driving table, and for each the literals of its terms."""
        store, rule = self.store, self.rules[part.rule]
        names, join = self.free(part), self.bindings(part)[0]
        select = ["(row_number() over () - 1)::integer as r"]
        select += [f"{join.variables[v]} as v{k}" for k, v in enumerate(names)]
        select += [f"{x.id} as i{k}" for k, x in enumerate(join.literals)]
        table = store.fresh("driver")
        store.con.make(table, f"select {', '.join(select)} {join.from_where()}")
        got = store.con.arrays(f"select * from {table} order by r")
        n = len(got["r"])
        rows = [np.arange(n, dtype=np.int64)] * len(join.literals)
        ids = [got[f"i{k}"].astype(np.int64) for k in range(len(join.literals))]
        signs = [np.full(n, x.positive) for x in join.literals]
        satisfied = np.zeros(n, dtype=bool)
        driver = Source(table, "d", (), tuple((v, f"v{k}") for k, v in enumerate(names)))
        for term in part.literals:
            if isinstance(term, Exists):  # where the clause of the opposite literals may be false
                opposite = negation_normal(term.part, True)
                literals = opposite.parts if isinstance(opposite, Or) else (opposite,)
                (of,) = self.builder(part).joins(literals, term.variables, given=driver)
                ident = of.literals[0].id if of.literals else "-1"
                found = store.con.arrays(f"select d.r as r, {ident} as i {of.from_where()}")
                rows.append(found["r"].astype(np.int64))
                ids.append(found["i"].astype(np.int64))
                satisfied[rows[-1][ids[-1] < 0]] = True
                positive = not (of.literals and of.literals[0].positive)
                signs.append(np.full(len(ids[-1]), positive))
        store.con.execute(f"drop table {table}")
        row, atom, sign = map(np.concatenate, (rows, ids, signs))
        good = (atom >= 0) & ~satisfied[row]
        row, atom, sign = row[good], atom[good], sign[good]
        order = np.lexsort((sign, atom, row))
        row, atom, sign = row[order], atom[order], sign[order]
        same = (row[1:] == row[:-1]) & (atom[1:] == atom[:-1])
        satisfied[row[1:][same & (sign[1:] != sign[:-1])]] = True
        good = np.concatenate([[True], ~same])[: len(row)] & ~satisfied[row]
        row, atom, sign = row[good], atom[good], sign[good]
        size = np.bincount(row, minlength=n)
        if rule.hard and (broken := (size == 0) & ~satisfied).any():
            k = int(np.flatnonzero(broken)[0])
            self._contradiction(part, names, [got[f"v{i}"][k] for i in range(len(names))])
        key = self.keys[part.rule].rows([got[f"v{names.index(v)}"] for v in rule.plus])
        first = np.concatenate([[0], np.cumsum(size)])
        for length in np.unique(size[size > 0]).tolist():
            which = np.flatnonzero(size == length)
            place = first[which][:, None] + np.arange(length)
            scopes, positives = atom[place].astype(np.int32), sign[place]
            mine = None if key is None else key[which]
            yield from _merged_clauses(part, scopes, positives, mine)

    def instances(
        self, part: Part, selects: Iterable[str]
    ) -> tuple[list[NDArray], list[tuple[NDArray, NDArray[np.int32], NDArray[np.bool_]]]]:
        """What is left of a formula without quantifiers where its variables have some values.

        ``selects``: queries for these, v0, v1, ... Returns them and, for each pattern of what is
        known, coincides or is not a candidate, its rows, their atoms and the table of its truth.
        """
        builder, free = self.builder(part), self.free(part)
        bound = {v: f"d.v{k}" for k, v in enumerate(free)}
        text = f"from ({' union '.join(selects)}) d"
        columns = [f"d.v{k} as v{k}" for k in range(len(free))]
        found: list[Formula] = [*atoms(part.said), *comparisons(part.said)]
        listed = list(dict.fromkeys(found))
        for j, a in enumerate(listed):
            if isinstance(a, Compare):
                columns.append(f"if({builder.comparison(a, bound)}, -2, -1) as i{j}")
                continue
            assert isinstance(a, Atom)
            p = self.store.predicates[a.predicate]
            on, _, _ = builder.arguments(a, f"t{j}", bound)
            text += f" left join {p.table} t{j} on {' and '.join(on) or 'true'}"
            if p.open:
                known = f"if(t{j}.known = 2, t{j}.id, -1 - t{j}.known)"
                columns.append(f"coalesce({known}, -1) as i{j}")
            else:
                columns.append(f"if(t{j}.a0 is null, -1, -2) as i{j}")
        got = self.store.con.arrays(f"select {', '.join(columns)} {text}")
        ids = np.stack([got[f"i{j}"] for j in range(len(listed))], axis=1).astype(np.int32)
        code = ids.copy()  # -1 false, -2 true, else the column where its atom is first
        for j in range(len(listed)):
            here = ids[:, j] >= 0
            code[here, j] = j
            for i in range(j - 1, -1, -1):
                code[here & (ids[:, i] == ids[:, j]), j] = i
        patterns, which = _unique_rows(code)
        out = []
        for k, pattern in enumerate(patterns):
            kept = [j for j in range(len(listed)) if pattern[j] == j]
            rows = np.flatnonzero(which == k)
            if len(kept) > MAX_TABLE:
                raise RefusedError(
                    f"{builder.rule.name}: a formula that is not a clause can have at most "
                    f"{MAX_TABLE} open atoms, not {len(kept)}; name a part of it by a predicate, "
                    "defined by a hard rule"
                )
            cells = _cells(len(kept))
            values = {
                piece: cells[kept.index(at)] if at >= 0 else np.bool_(at == -2)
                for piece, at in zip(listed, pattern.tolist())
            }
            truth = np.broadcast_to(evaluate(part.said, values), (2 ** len(kept),))
            out.append((rows, ids[rows][:, kept], truth.reshape((2,) * len(kept))))
        return [got[f"v{k}"] for k in range(len(free))], out

    def _patterns(self, part: Part) -> Iterator[Block]:
        """A formula without quantifiers as tables, one for each pattern of what is left of it."""
        rule, free = self.rules[part.rule], self.free(part)
        selects = [join.values_sql(free) for join in self.bindings(part)]
        if not selects:
            return
        values, found = self.instances(part, selects)
        key = self.keys[part.rule].rows([values[free.index(v)] for v in rule.plus])
        tables = _RuleTables(part)
        for rows, scope, truth in found:
            if rule.hard and not truth.any():
                self._contradiction(part, free, [x[rows[0]] for x in values])
            if truth.any() and not truth.all():
                tables.add(scope, truth, None if key is None else key[rows])
        yield from tables.blocks()

    def _written_out(self, part: Part) -> Iterator[Block]:
        """Formulas with quantifiers inside, written out over their domains in Python."""
        store, builder, rule = self.store, self.builder(part), self.rules[part.rule]
        formula, free = part.said, self.free(part)
        tables = {v: store.domain(number) for v, number in builder.classes.items()}
        size = max([math.prod(tables[v][1] for v in free), *(n for _, n in tables.values())])
        if size > MAX_WRITTEN_OUT:
            raise RefusedError(
                f"{rule.name}: a formula with quantifiers that is not a clause is written out for "
                f"every value of its variables, {size:,} times; at most {MAX_WRITTEN_OUT:,}. Name "
                "what is under the quantifier by a predicate of its own, defined by a hard rule"
            )
        domains = {
            v: store.con.arrays(f"select v from {name} order by v")["v"].tolist()
            for v, (name, _) in tables.items()
        }
        world = _World(store, {a.predicate for a in atoms(formula)}, builder)
        found = _RuleTables(part)
        for values in product(*(domains[v] for v in free)):
            binding = dict(zip(free, values))
            left = world.residual(formula, binding, domains)
            if left is True or left is False:
                if rule.hard and left is False:
                    self._contradiction(part, free, values)
                continue
            key = self.keys[part.rule].rows([np.array([binding[v]]) for v in rule.plus])
            block = _block_of(left, part, rule, key)
            if block.truth is None:
                yield block
            else:
                found.add(block.scope, block.truth, key)
        yield from found.blocks()

    def unique_scopes(self) -> Iterator[tuple[bool, list[NDArray[np.int32]]]]:
        """For each functional predicate: exactly one?, and the atoms of each key."""
        for p in self.store.open_predicates:
            if p.unique is None:
                continue
            determined, exactly = p.unique
            by = ", ".join(f"a{k}" for k in range(p.arity) if k not in determined)
            got = self.store.con.arrays(
                f"select (dense_rank() over (order by {by}) - 1)::integer as g, id from {p.atoms} "
                "order by g, id"
            )
            ends = np.flatnonzero(np.diff(got["g"])) + 1
            yield exactly, np.split(got["id"], ends) if len(got["id"]) else []


class Keys:
    """Rows of weights of a rule with +: a number for each combination of values."""

    def __init__(self, store: Store, rule: Rule) -> None:
        self.store, self.rule = store, rule
        self.found: dict[tuple[Any, ...], int] = {}
        self._texts: list[tuple[str, ...]] = []

    def rows(self, columns: Sequence[Any]) -> NDArray[np.int64] | None:
        """Numbers of values of the variables with a +, a column each; None where there are none."""
        if not columns:
            return None
        table = np.stack([np.asarray(c, dtype=np.float64) for c in columns], axis=1)
        different, which = np.unique(table, axis=0, return_inverse=True)
        place = [self.found.setdefault(tuple(row), len(self.found)) for row in different.tolist()]
        return np.array(place, dtype=np.int64)[which.ravel()]

    def texts(self) -> list[tuple[str, ...]]:
        new = list(self.found)[len(self._texts) :]
        if new:
            classes = variable_classes(self.store, self.rule.formula)
            columns = zip(self.rule.plus, zip(*new))
            self._texts += zip(*(self.store.texts(np.array(x), classes[v]) for v, x in columns))
        return list(self._texts)


class _World:
    """What is known of some predicates, as Python sets and dictionaries."""

    def __init__(self, store: Store, names: Iterable[str], builder: Builder) -> None:
        self.store, self.builder = store, builder
        self.closed: dict[str, set[tuple[Any, ...]]] = {}
        self.open: dict[str, dict[tuple[Any, ...], int]] = {}
        self._constants: dict[tuple[str, int], Any] = {}
        for name in names:
            p = store.predicates[name]
            args = ", ".join(p.arguments)
            if p.open:
                sql = f"select {args}, if(known = 2, id, -1 - known) from {p.table}"
                self.open[name] = {r[:-1]: r[-1] for r in store.con.rows(sql)}
            else:
                rows = store.con.rows(f"select {args} from {p.table}")
                self.closed[name] = set(rows)

    def value(self, term: Any, binding: Mapping[str, Any], number: int) -> Any:
        if isinstance(term, Variable):
            return binding[term.name]
        at = (term.text, number)
        if at not in self._constants:
            sql = self.store.constant(term.text, number, self.builder.rule.name)
            self._constants[at] = self.store.con.one(f"select {sql}")[0]
        return self._constants[at]

    def compare(self, c: Compare, binding: Mapping[str, Any]) -> bool:
        bound = {}
        for v in (*variables_of(c.left), *variables_of(c.right)):
            bound[v.name] = f"({binding[v.name]!r})"
        sql = self.builder.comparison(c, bound)
        return bool(self.store.con.one(f"select {sql}")[0])

    def residual(
        self, f: Formula, binding: dict[str, Any], domains: Mapping[str, Sequence[Any]]
    ) -> Any:
        """True, False, or what is left: ("lit", id, sign), ("and"|"or", parts)."""
        if isinstance(f, Atom | Not):
            atom = f if isinstance(f, Atom) else f.part
            assert isinstance(atom, Atom)
            positive = isinstance(f, Atom)
            p = self.store.predicates[atom.predicate]
            row = tuple(self.value(t, binding, k) for t, k in zip(atom.terms, p.classes))
            if not p.open:
                return (row in self.closed[p.name]) == positive
            ident = self.open[p.name].get(row, -1)
            if ident < 0:
                return (ident == -2) == positive
            return ("lit", ident, positive)
        if isinstance(f, Compare):
            return self.compare(f, binding)
        if isinstance(f, Exists | Forall):
            word = "or" if isinstance(f, Exists) else "and"
            inner = (
                self.residual(f.part, {**binding, **dict(zip(f.variables, values))}, domains)
                for values in product(*(domains[v] for v in f.variables))
            )
            return _together(word, inner)
        assert isinstance(f, And | Or)
        word = "and" if isinstance(f, And) else "or"
        return _together(word, (self.residual(x, binding, domains) for x in f.parts))


def _together(word: str, parts: Iterable[Any]) -> Any:
    """A conjunction or disjunction of residuals, flat and without repetitions."""
    decided = word == "or"
    out: dict[Any, None] = {}
    for part in parts:
        if part is decided:
            return decided
        if part is (not decided):
            continue
        for x in part[1] if part[0] == word else (part,):
            out[x] = None
            if x[0] == "lit" and ("lit", x[1], not x[2]) in out:
                return decided
    if not out:
        return not decided
    return next(iter(out)) if len(out) == 1 else (word, tuple(out))


def _literals_of(residual: Any) -> Iterator[tuple[int, bool]]:
    if residual[0] == "lit":
        yield residual[1], residual[2]
    else:
        for part in residual[1]:
            yield from _literals_of(part)


def _block_of(left: Any, part: Part, rule: Rule, key: NDArray | None) -> Block:
    """One factor from what is left of a formula."""
    literals = list(_literals_of(left))
    listed = sorted({i for i, _ in literals})
    n = len(listed)
    if n <= MAX_TABLE:
        cells = _cells(n)
        place = {i: cells[k] for k, i in enumerate(listed)}
        truth = _truth(left, place).reshape((2,) * n)
        scope = np.array([listed], dtype=np.int32)
        return part.block(scope, truth=truth, key=key)
    if len(literals) == n and (auto := _two_level(left)) is not None:
        scope, step, ends = auto
        return part.block(scope, automaton=(step, ends), key=key)
    raise RefusedError(
        f"{rule.name}: a grounding has {n} open atoms, some of them in several places; at most "
        f"{MAX_TABLE} then. Name what is under the quantifier by a predicate of its own, defined "
        "by a hard rule"
    )


def _cells(n: int) -> NDArray[np.bool_]:
    """All values of n atoms, (n, 2^n), the last atom fastest."""
    return np.indices((2,) * n).reshape(n, 2**n).astype(bool)


def _truth(left: Any, place: Mapping[int, NDArray[np.bool_]]) -> NDArray[np.bool_]:
    if left[0] == "lit":
        return place[left[1]] if left[2] else ~place[left[1]]
    parts = [_truth(x, place) for x in left[1]]
    return np.logical_and.reduce(parts) if left[0] == "and" else np.logical_or.reduce(parts)


def _two_level(left: Any) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]] | None:
    """An automaton of a disjunction of conjunctions (or the other way), no atom in it twice."""
    terms = [x if x[0] != "lit" else (None, (x,)) for x in left[1]]
    if any(y[0] != "lit" for x in terms for y in x[1]):
        return None
    decisive = left[0] == "or"  # states: 0 the present term may still decide, 1 not, 2 decided
    scope: list[int] = []
    steps: list[list[list[int]]] = []
    for _, literals in terms:
        for k, (_, ident, positive) in enumerate(literals):
            last = k == len(literals) - 1
            step = [[0, 0], [0 if last else 1, 0 if last else 1], [2, 2]]
            for value in (0, 1):
                helps = (bool(value) == positive) == decisive
                step[0][value] = (2 if last else 0) if helps else (0 if last else 1)
            scope.append(ident)
            steps.append(step)
    ends = np.array([not decisive, not decisive, decisive])
    return np.array([scope], dtype=np.int32), np.array(steps, dtype=np.int32), ends


def evaluate(formula: Formula, values: Mapping[Formula, Any]) -> Any:
    """The truth of a formula in negation normal form, from the truths of atoms and comparisons."""
    if isinstance(formula, Not):
        return ~values[formula.part]
    if isinstance(formula, And | Or):
        parts = [evaluate(x, values) for x in formula.parts]
        out = parts[0]
        for x in parts[1:]:
            out = out & x if isinstance(formula, And) else out | x
        return out
    return values[formula]


def _by_absence(
    ids: Sequence[NDArray[np.int32]],
) -> Iterator[tuple[NDArray[np.int64] | slice, list[int]]]:
    """Rows by which literals are left (their id is not -1), and these literals."""
    everything = list(range(len(ids)))
    uncertain = [k for k in everything if len(ids[k]) and ids[k].min() < 0]
    if not uncertain:
        yield slice(None), everything
        return
    pattern = np.zeros(len(ids[0]), dtype=np.int64)
    for bit, k in enumerate(uncertain):
        pattern |= (ids[k] < 0).astype(np.int64) << bit
    few = len(uncertain) <= 16
    codes = np.flatnonzero(np.bincount(pattern)) if few else np.unique(pattern)
    for code in codes.tolist():
        gone = {k for bit, k in enumerate(uncertain) if code >> bit & 1}
        yield np.flatnonzero(pattern == code), [k for k in everything if k not in gone]


def _unique_rows(code: NDArray) -> tuple[NDArray, NDArray[np.int64]]:
    patterns, which = np.unique(code, axis=0, return_inverse=True)
    return patterns, which.ravel()


class _RuleTables:
    """Formulas of one part as tables over their atoms by id, the same ones merged."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.found: dict[tuple[tuple[int, ...], bytes], list[Block]] = {}

    def add(self, scope: NDArray[np.int32], truth: NDArray[np.bool_], key: NDArray | None) -> None:
        order = np.argsort(scope, axis=1, kind="stable")
        scope = np.take_along_axis(scope, order, axis=1)
        orders, which = _unique_rows(order)
        for k, axes in enumerate(orders):
            table, rows = np.ascontiguousarray(truth.transpose(axes)), which == k
            mine = None if key is None else key[rows]
            block = self.part.block(scope[rows], truth=table, key=mine)
            self.found.setdefault((table.shape, table.tobytes()), []).append(block)

    def blocks(self) -> Iterator[Block]:
        return map(merged, self.found.values())


def _merged_clauses(
    part: Part,
    scopes: NDArray[np.int32],
    positives: NDArray[np.bool_],
    key: NDArray | None,
    times: int = 1,
) -> Iterator[Block]:
    """Clauses of one length: a block for each pattern of signs, the same ones merged."""
    patterns, which = _unique_rows(positives)
    for k, pattern in enumerate(patterns):
        rows = np.flatnonzero(which == k)
        yield merged([part.block(
            scopes[rows], positive=pattern.astype(bool), count=np.full(len(rows), times),
            key=None if key is None else key[rows],
        )])  # fmt: skip
