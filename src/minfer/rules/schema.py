"""Predicates as tables of the database: what may be true, and what is known.

A *closed* predicate is a table: what is in it is true, the rest is false. An *open* one has atoms
that inference is about: its candidates, each with an id (the number of its variable in the factor
graph), ``field`` (prior log-odds), ``p`` (a probability, at first the prior's) and ``known`` (0
false, 1 true, 2 not known). What is not a candidate is false.

Arguments that can meet, because one variable of a rule stands at both or they are declared to be of
one type, share their *coding*: whole numbers of 32 bits and real numbers stand for themselves,
texts and larger whole numbers are numbered in their order (int32), so that the joins of the
database are over numbers and a comparison of texts is one of numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import real_numbers
from minfer.basics.words import counted
from minfer.errors import (
    ContradictionError,
    EvidenceError,
    ModelError,
    RefusedError,
    visible,
)
from minfer.model.states import did_you_mean
from minfer.rules import tables
from minfer.rules.blocks import Floats
from minfer.rules.formulas import (
    Arithmetic,
    Atom,
    Constant,
    Variable,
    as_argument,
    atoms,
    comparisons,
    value_text,
    variables_of,
)
from minfer.rules.tables import Raw, named, quoted

if TYPE_CHECKING:
    from minfer.rules.parse import Rule

MAX_ARGUMENTS = 100  # of a predicate
MAX_ATOMS = 50_000_000  # made from whole domains

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT")
_WIDE = ("BIGINT", "UINTEGER", "UBIGINT", "HUGEINT", "UHUGEINT")
_REALS = ("FLOAT", "DOUBLE")


@dataclass(frozen=True)
class Declaration:
    name: str
    open: bool
    source: Any = None  # None: an open predicate over all values of its types
    columns: tuple[str, ...] | None = None
    types: tuple[str | None, ...] | None = None
    log_odds: float | str | None = None
    probability: float | str | None = None
    symmetric: bool = False
    exactly_one: tuple[str, ...] = ()
    at_most_one: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        return f"{'open' if self.open else 'closed'} predicate {visible(self.name)}"

    @property
    def prior(self) -> float | str | None:
        return self.log_odds if self.probability is None else self.probability

    def prior_log_odds(self) -> float:
        """Those of a prior that is a number."""
        value = self.prior
        if value is None:
            return 0.0
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise ModelError(
                f"{self.what}: a prior must be a number or the name of a column, not {value!r}"
            )
        number = float(value)
        if math.isnan(number):
            raise ModelError(f"{self.what}: its prior is NaN")
        if self.probability is None:
            return number
        if not 0.0 <= number <= 1.0:
            raise ModelError(
                f"{self.what}: a prior probability must be from 0 to 1, not {number:g}"
            )
        if number in (0.0, 1.0):
            return math.inf if number else -math.inf
        return math.log(number) - math.log1p(-number)


@dataclass(frozen=True)
class Observation:
    """Evidence on atoms of an open predicate: a table, and which of its rows are true."""

    predicate: str
    source: Any
    truth: bool | str = True
    where: str = ""


@dataclass
class Predicate:
    """A predicate as it lies in the database.

    ``table`` has columns a0, a1, ... of codes; that of an open predicate also id, field, p and
    known (in both orders of the arguments where it is symmetric). ``atoms`` has each atom once.
    """

    name: str
    open: bool
    columns: tuple[str, ...]
    classes: tuple[int, ...]  # of the arguments
    table: str
    atoms: str = ""
    first: int = 0
    n: int = 0
    symmetric: bool = False
    complete: bool = False
    has_known: bool = False
    unique: tuple[tuple[int, ...], bool] | None = None  # determined columns; True: exactly one
    kind: str = "columns"
    sql_types: tuple[str, ...] = ()  # of the columns that were given

    @property
    def arity(self) -> int:
        return len(self.columns)

    @property
    def arguments(self) -> list[str]:
        return [f"a{k}" for k in range(self.arity)]


@dataclass
class Coding:
    """Of the values of some arguments: ``int`` and ``real`` as they are, ``text`` by a table."""

    number: int
    kind: str = "text"
    type_name: str | None = None
    whole: bool = False  # texts that are whole numbers of more than 32 bits, in their order
    columns: list[tuple[str, str, str]] = field(default_factory=list)  # relation, column, type
    constants: dict[str, str] = field(default_factory=dict)  # text: where it is named
    n: int = 0  # texts

    @property
    def table(self) -> str:
        return f"minfer_dict_{self.number}"

    @property
    def sql_type(self) -> str:
        return "DOUBLE" if self.kind == "real" else "INTEGER"

    @property
    def given(self) -> str:
        """The SQL type of values, as tables gave them."""
        if self.columns and all(_family(t) == "text" for _, _, t in self.columns):
            return "VARCHAR"
        if self.whole:
            return "UBIGINT" if any(t == "UBIGINT" for _, _, t in self.columns) else "BIGINT"
        return "VARCHAR" if self.kind == "text" else self.sql_type

    @property
    def called(self) -> str:
        return f"type {visible(self.type_name)}" if self.type_name else "these arguments"


class _Observed(NamedTuple):
    """A table of atoms, and whether they are true."""

    predicate: str
    raw: Raw
    columns: list[str]  # of the arguments
    truth: bool | str
    what: str  # begins messages about it


class Store:
    """All predicates in one database; see the module."""

    def __init__(
        self,
        declarations: Sequence[Declaration],
        rules: Sequence[Rule],
        evidence: Sequence[Observation] = (),
        *,
        memory_limit: str | None = None,
        threads: int = 1,
        new_constants: bool = False,
    ) -> None:
        sources = [*(d.source for d in declarations), *(o.source for o in evidence)]
        self.con = tables.connect(memory_limit, threads, sources)
        self.new_constants = new_constants
        self.declarations = {d.name: d for d in declarations}
        self.predicates: dict[str, Predicate] = {}
        self.n_atoms = 0
        self._raws: dict[str, Raw] = {}
        self._rows: dict[str, int] = {}  # of raw tables
        self._domains: dict[int, int] = {}
        self._numbers = 0
        for d in declarations:
            if d.source is not None:
                width = len(d.types) if d.types else None
                raw = tables.load(self.con, self.fresh("raw"), d.source, d.what, width)
                self._raws[d.name] = raw
        observations = self._observations(evidence)
        for rule in rules:
            bound = set[str]()
            for atom in atoms(rule.formula):
                self.check_atom(atom, rule.name)
                bound |= {v.name for t in atom.terms for v in variables_of(t)}
            for c in comparisons(rule.formula):
                for v in (*variables_of(c.left), *variables_of(c.right)):
                    if v.name not in bound:
                        raise ModelError(
                            f"{rule.name}: the variable {visible(v.name)} is in comparisons only; "
                            "an atom must bind it"
                        )
        self.codings = self._classes(rules, observations)
        for coding in {id(c): c for c in self.codings.values()}.values():
            self._choose_coding(coding, rules)
        self._by_number = {c.number: c for c in self.codings.values()}
        for d in declarations:
            if not d.open:
                self._close(d)
        for d in declarations:
            if d.open:
                self._open(d, [o for o in observations if o.predicate == d.name])

    def fresh(self, stem: str) -> str:
        """A name that the database does not have yet, nor a file that is read from there."""
        self._numbers += 1
        return f"minfer_{stem}_{self._numbers}"

    def columns(self, d: Declaration) -> tuple[str, ...]:
        priors = [d.prior] if isinstance(d.prior, str) else []
        if d.source is None:
            assert d.types is not None
            return d.columns or tuple(
                t if t and d.types.count(t) == 1 else f"{t or 'a'}{k + 1}"
                for k, t in enumerate(d.types)
            )
        raw = self._raws[d.name]
        for name in (*(d.columns or ()), *priors):
            if name not in raw.columns:
                hint = did_you_mean(name, raw.columns, quotes=True)
                raise ModelError(
                    f"{d.what}: there is no column {visible(name)!r} among "
                    f"{', '.join(map(visible, raw.columns))}{hint}"
                )
        found = d.columns or tuple(c for c in raw.columns if c not in priors)
        if len(found) > MAX_ARGUMENTS:
            raise ModelError(
                f"{d.what}: its table has {len(found):,} columns, but a predicate at most "
                f"{MAX_ARGUMENTS} arguments: name those that it is about as columns="
            )
        if d.types is not None and len(d.types) != len(found):
            raise ModelError(
                f"{d.what}: {counted(len(d.types), 'type')} for {counted(len(found), 'column')}: "
                f"{', '.join(map(visible, found))}"
            )
        return found

    def _observations(self, evidence: Sequence[Observation]) -> list[_Observed]:
        found = []
        for o in evidence:
            what = f"{o.where}evidence on {visible(o.predicate)}"
            d = self.declarations.get(o.predicate)
            if d is None:
                raise EvidenceError(f"{what}: {self.unknown_predicate(o.predicate)}")
            if not d.open:
                raise EvidenceError(
                    f"{what}: it is closed: what is in its table is true, the rest false"
                )
            found.append(self.observed(o.predicate, o.source, o.truth, what))
        return found

    def observed(
        self, name: str, source: Any, truth: bool | str, what: str, labels: bool = False
    ) -> _Observed:
        """A table of atoms of a predicate; of ``labels`` the columns that are called as its own."""
        error = ModelError if labels else EvidenceError
        wanted = self.columns(self.declarations[name])
        raw = tables.load(self.con, self.fresh("raw"), source, what, len(wanted))
        if isinstance(truth, str) and truth not in raw.columns:
            raise error(f"{what}: there is no column {visible(truth)!r}")
        columns = [c for c in raw.columns if c != truth]
        unnamed = wanted == tuple(f"c{k}" for k in range(len(wanted)))  # those of tuples
        if labels and not unnamed and set(wanted) <= set(columns):
            columns = list(wanted)
        if len(columns) != len(wanted):
            raise error(
                f"{what}: {counted(len(columns), 'column')} for {counted(len(wanted), 'argument')} "
                f"({', '.join(map(visible, wanted))})"
            )
        return _Observed(name, raw, columns, truth, what)

    def unknown_predicate(self, name: str) -> str:
        return f"there is no predicate {visible(name)}{did_you_mean(name, self.declarations)}"

    def check_atom(self, atom: Atom, who: str) -> None:
        d = self.declarations.get(atom.predicate)
        if d is None:
            raise ModelError(f"{who}: {self.unknown_predicate(atom.predicate)}")
        width = len(self.columns(d))
        if len(atom.terms) != width:
            raise ModelError(
                f"{who}: {visible(str(atom))} has {counted(len(atom.terms), 'argument')}, but "
                f"{visible(atom.predicate)} has {width}: "
                f"{', '.join(map(visible, self.columns(d)))}"
            )

    def _classes(
        self, rules: Sequence[Rule], observations: list[_Observed]
    ) -> dict[tuple[str, int], Coding]:
        """The coding of each argument (predicate, position)."""
        parent: dict[Any, Any] = {}
        type_of: dict[Any, str] = {}

        def find(x: Any) -> Any:
            parent.setdefault(x, x)
            while parent[x] != x:
                parent[x] = parent[parent[x]]
                x = parent[x]
            return x

        def join(x: Any, y: Any, why: str) -> None:
            a, b = find(x), find(y)
            if a == b:
                return
            s, t = type_of.get(a), type_of.get(b)
            if s is not None and t is not None and s != t:
                raise ModelError(f"{why} has two types, {visible(s)} and {visible(t)}")
            parent[b] = a
            if t is not None:
                type_of[a] = t

        for d in self.declarations.values():
            for k in range(len(self.columns(d))):
                root = find((d.name, k))
                name = d.types[k] if d.types else None
                if name is not None:
                    type_of.setdefault(find(("type", name)), name)
                    if type_of.get(root) != name:
                        join(("type", name), (d.name, k), f"{d.what}: argument {k + 1}")
            if d.symmetric:
                if len(self.columns(d)) != 2:
                    raise ModelError(f"{d.what}: a symmetric predicate has two arguments")
                join((d.name, 0), (d.name, 1), f"{d.what} is symmetric, but")
        constants: list[tuple[tuple[str, int], str, str]] = []
        for rule in rules:
            places: dict[str, tuple[str, int]] = {}
            for atom in atoms(rule.formula):
                for k, term in enumerate(atom.terms):
                    at = (atom.predicate, k)
                    if isinstance(term, Constant):
                        constants.append((at, term.text, rule.name))
                    elif isinstance(term, Variable):
                        if term.name in places:
                            why = f"{rule.name}: the variable {visible(term.name)}"
                            join(places[term.name], at, why)
                        places[term.name] = at
            for c in comparisons(rule.formula):
                if isinstance(c.left, Variable) and isinstance(c.right, Variable):
                    why = f"{rule.name}: the comparison {visible(str(c))}"
                    join(places[c.left.name], places[c.right.name], why)
        made: dict[Any, Coding] = {}
        out: dict[tuple[str, int], Coding] = {}
        for d in self.declarations.values():
            cols = self.columns(d)
            for k, column in enumerate(cols):
                root = find((d.name, k))
                if root not in made:
                    made[root] = Coding(len(made), type_name=type_of.get(root))
                coding = out[d.name, k] = made[root]
                if d.name in self._raws:
                    raw = self._raws[d.name]
                    coding.columns.append((raw.name, column, raw.columns[column]))
            if d.name in self._raws:
                self._check_complete(self._raws[d.name], cols, d.what)
        for o in observations:
            for k, column in enumerate(o.columns):
                out[o.predicate, k].columns.append((o.raw.name, column, o.raw.columns[column]))
            self._check_complete(o.raw, o.columns, o.what)
        for at, text, where in constants:
            out[at].constants.setdefault(text, where)
        return out

    def _check_complete(self, raw: Raw, columns: Sequence[str], what: str) -> None:
        """No argument may be missing; the rows are counted on the way."""
        counts = ["count(*)"]
        for column in columns:
            c = named(column)
            real = raw.columns[column] in _REALS
            counts.append(f"count({c}) filter (where not isnan({c}))" if real else f"count({c})")
        n, *present = self.con.one(f"select {', '.join(counts)} from {raw.name}")
        for column, found in zip(columns, present):
            if found < n:
                raise ModelError(
                    f"{what}: column {visible(column)!r} has {counted(n - found, 'missing value')};"
                    " arguments of atoms must not be missing"
                )
        self._rows[raw.name] = n

    def _choose_coding(self, coding: Coding, rules: Sequence[Rule]) -> None:
        """What stands for the values of a class."""
        kinds = {_family(t) for _, _, t in coding.columns}
        con = self.con
        new = list(coding.constants) if self.new_constants or not coding.columns else []

        def texts_are(test: str) -> bool:
            """Whether what SQL says of a text x holds for all that tables give."""
            return all(
                con.one(f"select 1 from (select {named(c)}::varchar as x from {r}) where not {test}"
                        " limit 1") is None
                for r, c, t in coding.columns if _family(t) == "text"
            )  # fmt: skip

        whole = kinds <= {"int", "text"} and all(_is_whole(x) for x in new)
        whole = whole and texts_are("regexp_full_match(x, '0|-?[1-9][0-9]{0,8}')")
        wide = " union all ".join(
            f"select max(abs({named(c)}::hugeint)) as v from {r}"
            for r, c, t in coding.columns if t in _WIDE
        )  # fmt: skip
        largest = (con.one(f"select max(v) from ({wide})")[0] or 0) if wide else 0
        whole = whole and largest < 2**31
        if whole and (coding.columns or new):
            coding.kind = "int"
            return
        numbers = kinds <= {"int", "real"} and "real" in kinds
        exact = largest <= 2**53  # as real numbers
        if numbers and not exact:
            raise ModelError(
                f"{coding.called} have whole numbers beyond 2^53 and real numbers, which cannot be "
                "told apart; give them as texts"
            )
        maybe = not numbers and exact and bool(coding.columns)
        if maybe and ("real" in kinds or self._computed(coding, rules)):
            numbers = texts_are("(try_cast(x as double) is not null)")
        if numbers and all(Constant(x).number is not None for x in new):
            coding.kind = "real"
            return
        coding.whole = kinds == {"int"} and not new
        order = "v::hugeint" if coding.whole else "v"
        parts = [f"select {named(c)}::varchar as v from {r}" for r, c, _ in coding.columns]
        if new:
            parts.append("select unnest([" + ", ".join(map(quoted, new)) + "]) as v")
        union = " union all ".join(parts) or "select ''::varchar as v where false"
        coding.n = con.make(
            coding.table,
            f"select (row_number() over (order by {order}) - 1)::integer as id, v from "
            f"(select distinct v from ({union}))",
        )

    def _computed(self, coding: Coding, rules: Sequence[Rule]) -> bool:
        """Whether a rule computes with values of a class, or compares them with a number."""
        for rule in rules:
            mine = {
                t.name for a in atoms(rule.formula) for k, t in enumerate(a.terms)
                if isinstance(t, Variable) and self.codings[a.predicate, k] is coding
            }  # fmt: skip
            for c in comparisons(rule.formula):
                sides = (c.left, c.right)
                used = {v.name for side in sides for v in variables_of(side)}
                if not used & mine:
                    continue
                numbers = [isinstance(x, Constant) and x.number is not None for x in sides]
                if c.op not in ("=", "!=") and any(numbers):
                    return True
                if any(isinstance(side, Arithmetic) for side in sides):
                    return True
        return False

    def coding(self, number: int) -> Coding:
        return self._by_number[number]

    def codes_of(
        self,
        raw: Raw,
        columns: Iterable[str],
        classes: Sequence[int],
        more: str = "",
        known: bool = True,
    ) -> str:
        """SQL of arguments as codes a0, ...; unless all are ``known``, of rows that have them."""
        select, joins, where = [], "", []
        for k, (column, number) in enumerate(zip(columns, classes)):
            coding = self.coding(number)
            c = f"r.{named(column)}"
            if coding.kind == "text":
                joins += f" join {coding.table} d{k} on d{k}.v = {c}::varchar"
                select.append(f"d{k}.id as a{k}")
            elif known:
                select.append(f"{c}::{coding.sql_type} as a{k}")
            else:
                value = f"try_cast({c} as {coding.sql_type})"
                select.append(f"{value} as a{k}")
                where.append(f"{value} is not null")
        condition = f" where {' and '.join(where)}" if where else ""
        return f"select {', '.join(select)}{more} from {raw.name} r{joins}{condition}"

    def constant(self, text: str, number: int, who: str) -> str:
        """A constant as SQL; of texts its number, -1 where nothing is called so."""
        coding = self.coding(number)
        if coding.kind == "int" and _is_whole(text):
            return text
        value = Constant(text).number
        overflows = value is not None and math.isinf(value) and any(c.isdigit() for c in text)
        if coding.kind == "real" and value is not None and not overflows:
            return _sql_number(value)
        hint = ""
        if coding.kind == "text":
            if (found := self.value(text, number)) is not None:
                return found
            rows = self.con.rows(f"select v from {coding.table} limit 10000")
            hint = did_you_mean(text, [r[0] for r in rows])
        if not hint and "rule `" in who and text[:1].isupper():
            hint = "; variables begin with a small letter"
        raise ModelError(
            f"{who}: the constant {visible(text)} is in no table of {coding.called}{hint}"
        )

    def value(self, text: str, number: int) -> str | None:
        """The number of a text in a class of texts, as SQL; None where nothing is called so."""
        coding = self.coding(number)
        if coding.kind != "text":
            return None
        row = self.con.one(f"select id from {coding.table} where v = {quoted(text)}")
        return None if row is None else str(row[0])

    def domain(self, number: int) -> tuple[str, int]:
        """The table (column v) of all values of a class, and how many they are."""
        coding, name = self.coding(number), f"minfer_domain_{number}"
        if number not in self._domains:
            if coding.kind == "text":
                self.con.execute(f"create temp view {name} as select id as v from {coding.table}")
                n = coding.n
            else:
                parts = [
                    f"select {named(c)}::{coding.sql_type} as v from {r}"
                    for r, c, _ in coding.columns
                ]
                if self.new_constants or not coding.columns:
                    numbers = (Constant(x).number or 0.0 for x in coding.constants)
                    parts += [f"select {_sql_number(x)}::{coding.sql_type} as v" for x in numbers]
                union = " union all ".join(parts) or "select 0 as v where false"
                n = self.con.make(name, f"select distinct v from ({union}) order by v")
            self._domains[number] = n
        return name, self._domains[number]

    def _close(self, d: Declaration) -> None:
        raw, columns = self._raws[d.name], self.columns(d)
        classes = tuple(self.codings[d.name, k].number for k in range(len(columns)))
        table = self.fresh("closed")
        rows = self.codes_of(raw, columns, classes)
        if d.symmetric:  # each pair once, the lower first and all in order; then the same turned
            rows = (
                "with r as materialized (select distinct least(a0, a1) as a0, greatest(a0, a1) as "
                f"a1 from ({rows}) order by all) select a0, a1 from r union all select a1, a0 from "
                "r where a0 <> a1"
            )
        n = self.con.make(table, rows)
        if not d.symmetric and self._twin(table, len(columns)) is not None:
            n = self.con.make(table, f"select distinct * from {table}")
        self.predicates[d.name] = Predicate(
            d.name, False, columns, classes, table, n=n, kind=raw.kind, symmetric=d.symmetric
        )

    def _twin(self, table: str, width: int) -> Any:
        """A row that is given twice, or None."""
        listed = ", ".join(f"a{k}" for k in range(width))
        return self.con.one(
            f"select {listed} from {table} group by {listed} having count(*) > 1 limit 1"
        )

    def _check_twins(self, d: Declaration, table: str, classes: Sequence[int]) -> None:
        row = None if d.source is None else self._twin(table, len(classes))
        if row is not None:
            shown = self.atom_text(d.name, row, classes)
            both = " with different priors, perhaps in both orders" if d.symmetric else ""
            raise ModelError(f"{d.what}: the candidate {shown} is given twice{both}")

    def _open(self, d: Declaration, observed: list[_Observed]) -> None:
        columns, raw = self.columns(d), self._raws.get(d.name)
        classes = tuple(self.codings[d.name, k].number for k in range(len(columns)))
        args = [f"a{k}" for k in range(len(columns))]
        if raw is None:
            rows = self._all_atoms(d, classes)
        else:
            rows = self.codes_of(raw, columns, classes, self._prior(d, raw))
        con, listed, base = self.con, ", ".join(args), ""
        if d.symmetric or observed:  # candidates before they are numbered
            if d.symmetric:
                rows = (
                    "select distinct least(a0, a1) as a0, greatest(a0, a1) as a1, field from "
                    f"({rows})"
                )
            base = source = self.fresh("candidates")
            n = con.make(base, rows)
            self._check_twins(d, base, classes)
            if observed:
                source = self._with_evidence(d, base, observed, args, classes)
        else:
            source = f"({rows})"
            sizes = [self.domain(k)[1] for k in classes] if raw is None else [self._rows[raw.name]]
            n = math.prod(sizes)
        if self.n_atoms + n >= 2**31:
            raise RefusedError(f"{self.n_atoms + n:,} atoms are more than 2^31")
        atoms_table = self.fresh("atoms")
        known = "case when field = 'inf' then 1 when field = '-inf' then 0 else 2 end::tinyint"
        con.make(
            atoms_table,
            f"select {listed}, (row_number() over () - 1 + {self.n_atoms})::integer as id, field, "
            f"1 / (1 + exp(-field)) as p, {known} as known from {source}",
        )
        if base:
            con.execute(f"drop table {base}")
        else:
            self._check_twins(d, atoms_table, classes)
        if not observed and not isinstance(d.prior, str):
            has_known = n > 0 and math.isinf(d.prior_log_odds())
        else:
            has_known = con.one(f"select count(*) from {atoms_table} where known < 2")[0] > 0
        unique = None
        for names, exact in ((d.exactly_one, True), (d.at_most_one, False)):
            if names:
                for name in names:
                    if name not in columns:
                        raise ModelError(f"{d.what}: there is no column {visible(name)!r}")
                if len(set(names)) == len(columns) or d.symmetric:
                    raise ModelError(f"{d.what}: the other columns are the key; there are none")
                unique = (tuple(columns.index(name) for name in names), exact)
        kind, types = "columns", tuple(self.coding(k).given for k in classes)
        if raw is not None:
            kind, types = raw.kind, tuple(raw.columns[c] for c in columns)
        table = self.fresh("both") if d.symmetric else atoms_table
        predicate = Predicate(
            d.name, True, columns, classes, table, atoms_table, self.n_atoms, n, d.symmetric,
            raw is None, has_known, unique, kind, types,
        )  # fmt: skip
        self.n_atoms += n
        self.predicates[d.name] = predicate
        self._mirror(predicate)

    def _all_atoms(self, d: Declaration, classes: Sequence[int]) -> str:
        domains = [self.domain(number) for number in classes]
        size = math.prod(n for _, n in domains)
        if size > MAX_ATOMS:
            raise RefusedError(
                f"{d.what}: {size:,} atoms over all values of its types; give a table of "
                "candidates: what is not in it is false"
            )
        field = _sql_number(d.prior_log_odds())
        listed = ", ".join(f"t{k}.v as a{k}" for k in range(len(domains)))
        froms = ", ".join(f"{name} t{k}" for k, (name, _) in enumerate(domains))
        order = ", ".join(f"a{k}" for k in range(len(domains)))
        return f"select {listed}, {field} as field from {froms} order by {order}"

    def _prior(self, d: Declaration, raw: Raw) -> str:
        given = d.prior
        if not isinstance(given, str):
            return f", {_sql_number(d.prior_log_odds())} as field"
        c = named(given)
        number = f"try_cast(r.{c} as double)"
        bad = f"{number} is null or isnan({number})"
        if d.probability is not None:
            bad += f" or {number} < 0 or {number} > 1"
        row = self.con.one(f"select r.{c} from {raw.name} r where {bad} limit 1")
        if row is not None:
            what = "a probability from 0 to 1" if d.probability is not None else "log-odds"
            found = "a missing value (None or NaN)" if row[0] is None else row[0]
            raise ModelError(f"{d.what}: column {visible(given)!r} has {found}, not {what}")
        if d.log_odds is not None:
            return f", {number} as field"
        return (
            f", case when {number} = 0 then '-inf'::double when {number} = 1 then 'inf'::double "
            f"else ln({number} / (1 - {number})) end as field"
        )

    def _with_evidence(
        self,
        d: Declaration,
        base: str,
        observed: list[_Observed],
        args: list[str],
        classes: Sequence[int],
    ) -> str:
        """SQL of the candidates, priors replaced by what is known."""
        parts = " union all ".join(self.truths(o, classes) for o in observed)
        known = self.fresh("known")
        self.con.make(known, by_atom(parts, args, d.symmetric))
        on = " and ".join(f"b.{a} = k.{a}" for a in args)
        row = self.con.one(
            f"select {', '.join('k.' + a for a in args)}, clash, field is null as absent, truth "
            f"from {known} k left join {base} b on {on} where clash or (truth and absent) or "
            f"(truth and field = '-inf') or (not truth and field = 'inf') "
            "order by clash desc, absent desc limit 1"
        )
        if row is not None:
            *codes, clash, absent, truth = row
            shown = self.atom_text(d.name, codes, classes)
            if clash:
                raise ContradictionError(
                    f"evidence says both that {shown} is true and that it is false"
                )
            if absent:
                raise EvidenceError(
                    f"evidence says that {shown} is true, but it is not a candidate of the {d.what}"
                )
            raise ContradictionError(
                f"evidence says that {shown} is {str(truth).lower()}, but its prior excludes that"
            )
        listed = ", ".join(f"b.{a}" for a in args)
        return (
            f"(select {listed}, case when k.truth is null then b.field when k.truth then "
            f"'inf'::double else '-inf'::double end as field from {base} b left join {known} k on "
            f"{on})"
        )

    def truths(self, o: _Observed, classes: Sequence[int], known: bool = True) -> str:
        """SQL of observed atoms as codes, and ``truth``; ``known`` as in :meth:`codes_of`."""
        if isinstance(o.truth, str):
            c = f"r.{named(o.truth)}"
            text = f"lower({c}::varchar)"
            yes, no = "('true', '1', '1.0', 't', 'yes')", "('false', '0', '0.0', 'f', 'no')"
            bad = f"{text} is null or ({text} not in {yes} and {text} not in {no})"
            row = self.con.one(f"select {c} from {o.raw.name} r where {bad} limit 1")
            if row is not None:
                raise EvidenceError(
                    f"{o.what}: column {visible(o.truth)!r} must be true or false, not {row[0]}"
                )
            truth = f"({text} in {yes})"
        else:
            truth = str(o.truth).lower()
        return self.codes_of(o.raw, o.columns, classes, f", {truth} as truth", known)

    def _mirror(self, predicate: Predicate) -> None:
        """The table of a symmetric predicate, both ways round."""
        if predicate.symmetric and predicate.open:
            a, rest = predicate.atoms, "* exclude (a0, a1, field)"  # no rule reads priors
            self.con.make(
                predicate.table,
                f"select a0, a1, {rest} from {a} union all select a1 as a0, a0 as a1, {rest} from "
                f"{a} where a0 <> a1",
            )

    @property
    def open_predicates(self) -> list[Predicate]:
        """In order of their atoms' ids."""
        return [p for p in self.predicates.values() if p.open]

    def open_predicate(self, name: str, who: str) -> Predicate:
        if name not in self.predicates:
            raise ModelError(f"{who}: {self.unknown_predicate(name)}")
        if not self.predicates[name].open:
            raise ModelError(f"{who}: {visible(name)} is closed: its atoms are known")
        return self.predicates[name]

    def fields(self) -> Floats:
        """Prior log-odds of all atoms, infinite for known ones, shape (atoms,)."""
        return self._atoms("field", np.float64)

    def known(self) -> NDArray[np.int8]:
        """0 false, 1 true, 2 not known; shape (atoms,)."""
        return self._atoms("known", np.int8)

    def _atoms(self, column: str, kind: type) -> NDArray[Any]:
        out: NDArray[Any] = np.empty(self.n_atoms, dtype=kind)
        for p in self.open_predicates:
            got = self.con.arrays(f"select id, {column} from {p.atoms}")
            out[got["id"]] = got[column]
        return out

    def set_probabilities(self, values: ArrayLike) -> None:
        """Replace ``p`` of all atoms, by their ids."""
        numbers = real_numbers(values, "p").astype(np.float64)
        if numbers.shape != (self.n_atoms,):
            raise ModelError(f"p has shape {numbers.shape}, not ({self.n_atoms},)")
        for p in self.open_predicates:
            part = np.ascontiguousarray(numbers[p.first : p.first + p.n])
            ids = np.arange(p.first, p.first + p.n, dtype=np.int32)
            self.con.register("replacing", {"rid": ids, "x": part})
            made = self.con.make(  # rows are in the order of their ids
                p.atoms,
                f"select * exclude (rid, x) replace (x as p) from {p.atoms} positional join "
                "replacing where id = rid",
            )
            self.con.unregister("replacing")
            if made != p.n:
                raise RuntimeError(f"the atoms of {visible(p.name)} are not in order")
            self._mirror(p)

    def texts(self, codes: NDArray, number: int) -> list[str]:
        """Values of a class as they are written."""
        coding = self.coding(number)
        if coding.kind != "text" or not len(codes):
            return [value_text(x) for x in codes.tolist()]
        different, places = np.unique(codes, return_inverse=True)
        self.con.register("codes", {"id": different.astype(np.int32)})
        found = dict(
            self.con.rows(f"select c.id, d.v from codes c join {coding.table} d on d.id = c.id")
        )
        self.con.unregister("codes")
        words = [found.get(int(x), "?") for x in different]
        return [words[k] for k in places.ravel().tolist()]

    def atom_text(
        self, predicate: str, codes: Sequence[Any], classes: Sequence[int] | None = None
    ) -> str:
        if classes is None:
            classes = self.predicates[predicate].classes
        words = [self.texts(np.array([c]), k)[0] for c, k in zip(codes, classes)]
        return visible(f"{predicate}({', '.join(words)})")

    def atom_texts(self, ids: ArrayLike) -> list[str]:
        """Atoms by their ids, as they are written."""
        wanted = np.asarray(ids, dtype=np.int32)
        out: dict[int, str] = {}
        for p in self.open_predicates:
            mine = np.unique(wanted[(wanted >= p.first) & (wanted < p.first + p.n)])
            if not len(mine):
                continue
            listed = ", ".join(f"a.{a}" for a in p.arguments)
            self.con.register("wanted", {"id": mine})
            got = self.con.arrays(
                f"select a.id, {listed} from {p.atoms} a join wanted w on w.id = a.id"
            )
            self.con.unregister("wanted")
            words = [self.texts(got[a], k) for a, k in zip(p.arguments, p.classes)]
            for i, args in zip(got["id"].tolist(), zip(*words)):
                out[i] = f"{p.name}({', '.join(map(as_argument, args))})"
        return [out[i] for i in wanted.tolist()]

    def atom_id(self, atom: Atom, who: str) -> int:
        """The id of a ground atom of an open predicate."""
        self.check_atom(atom, who)
        p = self.open_predicate(atom.predicate, who)
        where = []
        for k, (term, number) in enumerate(zip(atom.terms, p.classes)):
            if isinstance(term, Variable):  # in atoms that are asked for, all words are constants
                term = Constant(term.name)
            where.append(f"a{k} = {self.constant(term.text, number, who)}")
        row = self.con.one(f"select id from {p.table} where {' and '.join(where)}")
        if row is None:
            raise ModelError(f"{who}: {visible(str(atom))} is not a candidate of {visible(p.name)}")
        return int(row[0])


def by_atom(rows: str, args: Sequence[str], symmetric: bool) -> str:
    """SQL of rows (a0, ..., truth) as one for each atom: its truth, and whether others clash."""
    if symmetric:
        rows = f"select least(a0, a1) as a0, greatest(a0, a1) as a1, truth from ({rows})"
    listed, truth = ", ".join(args), "bool_or(truth)"
    return (
        f"select {listed}, {truth} as truth, {truth} <> bool_and(truth) as clash from ({rows}) "
        f"group by {listed}"
    )


def _family(sql_type: str) -> str:
    if sql_type in _INTEGERS or sql_type in _WIDE:
        return "int"
    if sql_type in _REALS or sql_type.startswith("DECIMAL"):
        return "real"
    return "text"


def _is_whole(text: str) -> bool:
    return bool(re.fullmatch("0|-?[1-9][0-9]{0,9}", text)) and abs(int(text)) < 2**31


def _sql_number(value: float) -> str:
    return f"'{value!r}'::double"
