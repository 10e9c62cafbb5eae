"""First-order formulas: what a rule says, before any table is looked at.

Terms are variables and constants; atoms, comparisons of terms with arithmetic; ``! ^ v => <=>``,
``EXIST`` and ``FORALL``. Variables that no quantifier binds are *free*: a rule is meant for each of
their values. Formulas are frozen and compare by value.

Two normal forms are all that grounding needs: negations pushed down to the literals
(:func:`negation_normal`), and conjunctions of clauses (:func:`clauses`), whose literals may be
quantified formulas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, Union

import numpy as np

from minfer.errors import RefusedError, visible

MAX_CLAUSES = 256  # of one formula
_MOST_LITERALS = 4096  # of one formula, written out
_BARE = re.compile(r"\w+|-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?").fullmatch

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Variable:
    """A variable; ``plus``: the rule has a weight for each of its values."""

    name: str
    plus: bool = False

    def __str__(self) -> str:
        return f"+{self.name}" if self.plus else self.name


@dataclass(frozen=True)
class Constant:
    """A constant, as it was written (without quotes)."""

    text: str

    @property
    def number(self) -> float | None:
        """Its value, if it is a number."""
        try:
            return float(self.text)
        except ValueError:
            return None

    def __str__(self) -> str:
        word = self.text.isidentifier() and self.text.isascii() and self.text[0].isupper()
        return self.text if word or self.number is not None else _in_quotes(self.text)


def _in_quotes(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def value_text(value: Any) -> str:
    """A value of a table as a text: 1.0 as 1, True as true (so does the database)."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) <= 2**53
        return str(int(value)) if whole else repr(float(value))
    return str(value)


def as_argument(text: str) -> str:
    """A value in an atom that has values only: in quotes where it would not be read as one."""
    return text if _BARE(text) else _in_quotes(text)


@dataclass(frozen=True)
class Arithmetic:
    """left op right, of ``+ - * /``."""

    op: str
    left: Term
    right: Term

    def __str__(self) -> str:
        return f"({self.left} {self.op} {self.right})"


Term: TypeAlias = Union[Variable, Constant, Arithmetic]  # noqa: UP007 (recursive)


@dataclass(frozen=True)
class Atom:
    predicate: str
    terms: tuple[Variable | Constant, ...]

    def __str__(self) -> str:
        return f"{self.predicate}({', '.join(map(str, self.terms))})"


@dataclass(frozen=True)
class Compare:
    """left op right, of :data:`COMPARISONS`, or not; without a value (x / 0) it is false."""

    op: str
    left: Term
    right: Term
    negated: bool = False

    def __str__(self) -> str:
        text = f"{self.left} {self.op} {self.right}"
        return f"!({text})" if self.negated else text


@dataclass(frozen=True)
class Not:
    part: Formula

    def __str__(self) -> str:
        return f"!{_inside(self.part)}"


@dataclass(frozen=True)
class And:
    parts: tuple[Formula, ...]

    def __str__(self) -> str:
        return " ^ ".join(map(_inside, self.parts))


@dataclass(frozen=True)
class Or:
    parts: tuple[Formula, ...]

    def __str__(self) -> str:
        return " v ".join(map(_inside, self.parts))


@dataclass(frozen=True)
class Implies:
    left: Formula
    right: Formula

    def __str__(self) -> str:
        left = str(self.left) if isinstance(self.left, And | Or) else _inside(self.left)
        right = str(self.right) if isinstance(self.right, And | Or) else _inside(self.right)
        return f"{left} => {right}"


@dataclass(frozen=True)
class Iff:
    left: Formula
    right: Formula

    def __str__(self) -> str:
        return f"{_inside(self.left)} <=> {_inside(self.right)}"


@dataclass(frozen=True)
class Exists:
    variables: tuple[str, ...]
    part: Formula

    def __str__(self) -> str:
        return f"EXIST {', '.join(self.variables)} {_inside(self.part)}"


@dataclass(frozen=True)
class Forall:
    variables: tuple[str, ...]
    part: Formula

    def __str__(self) -> str:
        return f"FORALL {', '.join(self.variables)} {_inside(self.part)}"


Formula: TypeAlias = Union[Atom, Compare, Not, And, Or, Implies, Iff, Exists, Forall]  # noqa: UP007


def _inside(formula: Formula) -> str:
    if isinstance(formula, Atom):
        return str(formula)
    if isinstance(formula, Not) and isinstance(formula.part, Atom):
        return str(formula)
    return f"({formula})"


def atoms(formula: Formula) -> Iterator[Atom]:
    """All atoms, from left to right."""
    for part in _walk(formula):
        if isinstance(part, Atom):
            yield part


def comparisons(formula: Formula) -> Iterator[Compare]:
    for part in _walk(formula):
        if isinstance(part, Compare):
            yield part


def quantified(formula: Formula) -> bool:
    return any(isinstance(part, Exists | Forall) for part in _walk(formula))


def children(formula: Formula) -> tuple[Formula, ...]:
    if isinstance(formula, Not | Exists | Forall):
        return (formula.part,)
    if isinstance(formula, And | Or):
        return formula.parts
    if isinstance(formula, Implies | Iff):
        return formula.left, formula.right
    return ()


def _walk(formula: Formula) -> Iterator[Formula]:
    left = [formula]
    while left:
        part = left.pop()
        yield part
        left.extend(reversed(children(part)))


def variables_of(term: Term) -> Iterator[Variable]:
    left = [term]
    while left:
        part = left.pop()
        if isinstance(part, Variable):
            yield part
        elif isinstance(part, Arithmetic):
            left += [part.right, part.left]


def depth_and_size(formula: Formula) -> tuple[int, int]:
    """How deep formulas and terms are nested, found without recursion, and how many there are."""
    deepest, n, left = 0, 0, [(formula, 1)]
    while left:
        part, level = left.pop()
        deepest, n = max(deepest, level), n + 1
        inner: tuple[Any, ...] = children(part)
        if isinstance(part, Compare | Arithmetic):
            inner = (part.left, part.right)
        left += [(one, level + 1) for one in inner]
    return deepest, n


def free_variables(formula: Formula) -> dict[str, bool]:
    """Names of the free variables in order of appearance; True for those with a ``+``."""
    found: dict[str, bool] = {}

    left: list[tuple[Formula, frozenset[str]]] = [(formula, frozenset())]
    while left:
        part, bound = left.pop()
        if isinstance(part, Exists | Forall):
            left.append((part.part, bound | frozenset(part.variables)))
            continue
        terms: tuple[Term, ...] = ()
        if isinstance(part, Atom):
            terms = part.terms
        elif isinstance(part, Compare):
            terms = (part.left, part.right)
        for term in terms:
            for v in variables_of(term):
                if v.name not in bound:
                    found[v.name] = found.get(v.name, False) or v.plus
        left += [(child, bound) for child in reversed(children(part))]
    return found


def with_terms(part: Atom | Compare, of: Callable[[Variable], Term]) -> Atom | Compare:
    """An atom or comparison with something else in place of its variables."""

    def term(t: Term) -> Term:
        if isinstance(t, Variable):
            return of(t)
        if isinstance(t, Arithmetic):
            return Arithmetic(t.op, term(t.left), term(t.right))
        return t

    if isinstance(part, Atom):
        return Atom(part.predicate, tuple(term(t) for t in part.terms))  # type: ignore[misc]
    return replace(part, left=term(part.left), right=term(part.right))


def renamed(part: Atom | Compare, names: Mapping[str, str]) -> Atom | Compare:
    """An atom or comparison with some of its variables called otherwise."""
    return with_terms(part, lambda v: Variable(names.get(v.name, v.name), v.plus))


def substituted(formula: Formula, binding: Mapping[str, str]) -> Formula:
    """A formula with values for its free variables."""
    if isinstance(formula, Atom | Compare):
        return with_terms(
            formula, lambda v: Constant(binding[v.name]) if v.name in binding else Variable(v.name)
        )
    return _mapped(formula, lambda part: substituted(part, binding))


def renamed_apart(formula: Formula) -> Formula:
    """The same formula, no quantified variable called like a free one or another quantified one."""
    used = set(free_variables(formula))

    def go(part: Formula, names: dict[str, str]) -> Formula:
        if isinstance(part, Exists | Forall):
            inner = dict(names)
            for v in part.variables:
                new, k = v, 1
                while new in used:
                    k += 1
                    new = f"{v}_{k}"
                used.add(new)
                inner[v] = new
            return type(part)(tuple(inner[v] for v in part.variables), go(part.part, inner))

        if isinstance(part, Atom | Compare):
            return renamed(part, names)
        return _mapped(part, lambda child: go(child, names))

    return go(formula, {})


def _mapped(formula: Formula, change: Callable[[Formula], Formula]) -> Formula:
    if isinstance(formula, Not):
        return Not(change(formula.part))
    if isinstance(formula, And | Or):
        return type(formula)(tuple(change(part) for part in formula.parts))
    if isinstance(formula, Implies | Iff):
        return type(formula)(change(formula.left), change(formula.right))
    assert isinstance(formula, Exists | Forall)
    return type(formula)(formula.variables, change(formula.part))


def negation_normal(formula: Formula, negate: bool = False) -> Formula:
    """Negations at atoms alone (comparisons have their own), all flat, ``<=>`` written out."""
    f = formula
    if isinstance(f, Atom):
        return Not(f) if negate else f
    if isinstance(f, Compare):
        return replace(f, negated=not f.negated) if negate else f
    if isinstance(f, Not):
        return negation_normal(f.part, not negate)
    if isinstance(f, And | Or):
        conjunction = isinstance(f, And) != negate
        return _flat(And if conjunction else Or, [negation_normal(p, negate) for p in f.parts])
    if isinstance(f, Implies):
        left, right = negation_normal(f.left, not negate), negation_normal(f.right, negate)
        return _flat(And if negate else Or, [left, right])
    if isinstance(f, Iff):
        if _size(f) > _MOST_LITERALS:
            raise RefusedError(
                f"`{visible(str(formula)[:80])}` has more than {_MOST_LITERALS:,} literals with "
                "its <=> written out, twice as many for each inside another; name a part of it by "
                "a predicate, defined by a hard rule"
            )
        first = Or((Not(f.left), f.right))
        second = Or((f.left, Not(f.right)))
        return negation_normal(And((first, second)), negate)
    existential = isinstance(f, Exists) != negate
    return (Exists if existential else Forall)(f.variables, negation_normal(f.part, negate))


def _size(formula: Formula) -> int:
    """Literals of a formula with ``<=>`` written out."""
    total = sum(map(_size, children(formula)))
    return 2 * total if isinstance(formula, Iff) else max(total, 1)


def _flat(kind: type[And] | type[Or], parts: list[Formula]) -> Formula:
    out = tuple(
        dict.fromkeys(
            p for part in parts for p in (part.parts if isinstance(part, kind) else (part,))
        )
    )
    return out[0] if len(out) == 1 else kind(out)


def clauses(formula: Formula) -> list[tuple[Formula, ...]]:
    """Clauses whose conjunction is the formula; quantified parts count as literals."""

    def go(f: Formula) -> list[tuple[Formula, ...]]:
        if isinstance(f, And):
            return _limited([c for part in f.parts for c in go(part)], formula)
        if isinstance(f, Or):
            parts = [go(part) for part in f.parts]
            if all(len(part) == 1 for part in parts):  # nearly always, and of many literals perhaps
                return [tuple(literal for part in parts for literal in part[0])]
            out: list[tuple[Formula, ...]] = [()]
            for part in parts:
                out = _limited([(*a, *b) for a in out for b in part], formula)
            return out
        return [(f,)]

    found: list[tuple[Formula, ...]] = []
    for clause in go(negation_normal(formula)):
        literals = dict.fromkeys(clause)
        if not any(negation_normal(x, True) in literals for x in literals):
            found.append(tuple(literals))
    return list(dict.fromkeys(found))


def _limited(found: list[tuple[Formula, ...]], formula: Formula) -> list[tuple[Formula, ...]]:
    if len(found) > MAX_CLAUSES:
        raise RefusedError(
            f"the formula {str(formula)[:80]} makes more than {MAX_CLAUSES} clauses; name parts "
            "of it by predicates of their own, defined by hard rules"
        )
    return found
