"""The text of one rule: ``1.5: smokes(x) ^ friends(x, y) => smokes(y)``.

In front a weight with a colon (in files without one), or ``inf``; a full stop at the end makes a
rule hard. Words that begin with a capital, numbers and whatever is in quotes are constants, other
words variables. From tight to loose: ``!``, ``^`` (``&``), ``v`` (``|``), ``=>``, ``<=>``;
``EXIST x, y`` reaches as far to the right as it can.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

from minfer.basics.checks import told
from minfer.errors import FormatError, ModelError, visible
from minfer.rules.formulas import (
    COMPARISONS,
    And,
    Arithmetic,
    Atom,
    Compare,
    Constant,
    Exists,
    Forall,
    Formula,
    Iff,
    Implies,
    Not,
    Or,
    Term,
    Variable,
    depth_and_size,
    free_variables,
    value_text,
)

MAX_DEPTH = 60  # of brackets within brackets
MAX_NESTED = 100  # of a formula; => and <=> nest as brackets do, and so does arithmetic
MAX_PARTS = 10_000  # of a formula: atoms, comparisons, terms and what joins them

NUMBER = r"(?:\d+(?:\.(?!\s*\Z)\d*)?|\.\d+)(?:[eE][-+]?\d+)?"  # a full stop may follow, at the end
_TOKEN = re.compile(
    rf"""\s*(?:(?P<number>{NUMBER}(?![\w]))|(?P<word>[^\W\d]\w*|\d\w*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<op><=>|=>|<=|>=|!=|<>|[-+*/()!^&|,.:<>=\[\]?]))""",
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*")
_AFTER_TERM = (*COMPARISONS, "<>", "+", "-", "*", "/")
_QUANTIFIERS: dict[str, type[Exists] | type[Forall]] = {
    "exist": Exists,
    "exists": Exists,
    "forall": Forall,
}


@dataclass(frozen=True)
class Rule:
    """A formula with its weight."""

    formula: Formula
    weight: float | None  # infinite for a hard rule; None: not known yet
    text: str  # as it was written
    where: str = ""  # the place it was read from, for messages
    #: By the values of the variables with a ``+``, where they differ.
    weights: tuple[tuple[tuple[str, ...], float], ...] | None = None
    stated: bool = False  # whether these are the user's for this program, not learned from another

    @property
    def hard(self) -> bool:
        return self.weight == math.inf

    @cached_property
    def plus(self) -> tuple[str, ...]:
        """The variables with a weight for each of their values."""
        return tuple(name for name, plus in free_variables(self.formula).items() if plus)

    @property
    def name(self) -> str:
        """For messages: where it is and what it says."""
        return f"{self.where}rule `{visible(self.text)}`"

    def with_weight(self, weight: Any) -> Rule:
        """The rule with a weight, infinite for a hard one."""
        return replace(self, weight=self._checked(weight))

    def with_weights(self, given: Mapping[Any, Any]) -> Rule:
        """The rule with weights by values of its variables with a ``+`` (tuples of several)."""
        if not self.plus:
            raise ModelError(
                f"{self.name}: several weights are for rules with a + before a variable"
            )
        if not isinstance(given, Mapping):
            raise ModelError(f"{self.name}: weights must be {{value: weight}}, not {told(given)}")
        table = []
        for key, weight in given.items():
            values = key if isinstance(key, tuple) else (key,)
            if len(values) != len(self.plus):
                raise ModelError(
                    f"{self.name}: the weights have the key {key!r}, but the variables are "
                    f"{', '.join(self.plus)}"
                )
            table.append((tuple(map(value_text, values)), self._checked(weight)))
        if self.hard or any(math.isinf(w) for _, w in table):
            raise ModelError(
                f"{self.name}: a rule is hard for all values or for none; state the hard one as a "
                "rule of its own"
            )
        return replace(self, weights=tuple(table), stated=False)

    def _checked(self, weight: Any) -> float:
        if isinstance(weight, bool) or not isinstance(weight, int | float | np.number):
            raise ModelError(f"{self.name}: a weight must be a number, not {weight!r}")
        number = float(weight)
        if not _is_weight(number):
            raise ModelError(
                f"{self.name}: the weight is {number:g}; weights are finite numbers (within "
                "1e300), or inf for a hard rule"
            )
        return number


class Token(NamedTuple):
    kind: str  # number, word, text, op, end
    value: str
    place: int


def parse_rule(text: str, *, where: str = "", line: int = 0, column: int = 1) -> Rule:
    """A rule from its text. ``line`` and ``column`` say where it begins in a file.

    Examples
    --------
    >>> rule = parse_rule("1.5: smokes(x) ^ friends(x, y) => smokes(y)")
    >>> rule.weight, str(rule.formula)
    (1.5, 'smokes(x) ^ friends(x, y) => smokes(y)')
    >>> parse_rule("EXIST y adviser(x, y).").hard
    True
    """
    if not isinstance(text, str):
        raise FormatError(f"a rule must be a string, not {type(text).__name__}")
    return _Parser(text, where, line, column).rule()


def parse_atom(text: str, *, where: str = "", line: int = 0) -> tuple[Atom, bool]:
    """An atom, and whether it is affirmed: ``!smokes(Anna)`` is not."""
    if not isinstance(text, str):
        raise FormatError(
            f"an atom must be a string such as 'smokes(Anna)', not {type(text).__name__}"
        )
    parser = _Parser(text, where, line, 1)
    if parser.next.kind == "number":
        parser.fail(parser.next.place, "soft evidence is not supported; write a rule with a weight")
    if parser.next.value == "?":
        parser.fail(parser.next.place, "no ? is needed: atoms without evidence are unknown")
    negated = parser.take("!")
    name = parser.need("word", "the name of a predicate")
    atom = parser.atom(name)
    parser.take(".")
    parser.end()
    return atom, not negated


#: How other languages, PSL's among them, write what has another sign here.
_ELSEWHERE = [
    ("->", "implication is =>"), (">>", "implication is =>"), ("<<", "implication is =>"),
    ("<-", "implication is =>"), ("==", "equality is ="), ("&&", "conjunction is ^"),
    ("||", "disjunction is v"), ("~", "negation is !"), ("and ", "conjunction is ^"),
    ("or ", "disjunction is v"), ("not ", "negation is !"), ("implies ", "implication is =>"),
]  # fmt: skip


def _hint(text: str, place: int) -> str:
    """What was perhaps meant at a place where something is wrong, or just before it."""
    for sign, words in _ELSEWHERE:
        starts = (place, place - 1) if not sign[0].isalpha() else (place, place - len(sign))
        for at in starts:
            if at >= 0 and text[at : at + len(sign)].lower() == sign:
                return f"; {words}"
    return ""


def place_in(text: str, place: int, line: int = 1, column: int = 1) -> str:
    """Line and column, in words, of a place in a text that begins there; of line 0 the column."""
    before = text[:place]
    column = place - (before.rfind("\n") + 1) + (column if "\n" not in before else 1)
    return f"line {line + before.count(chr(10))}, column {column}" if line else f"column {column}"


class _Parser:
    def __init__(self, text: str, where: str, line: int, column: int) -> None:
        self.text, self.where, self.line, self.column = text, where, line, column
        self.tokens = list(self._tokens())
        self.at = self.depth = 0
        self.bound: dict[str, Token] = {}  # variables of the quantifiers that are being read
        self.quantified: list[Token] = []  # ... and of those that were

    def _tokens(self) -> list[Token]:
        found, at, text = [], 0, self.text
        end = len(text.rstrip())
        while at < end:
            m = _TOKEN.match(text, at)
            if m is None:
                at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
                self.fail(at, f"{visible(text[at])!r} has no meaning here")
            kind = m.lastgroup or ""
            found.append(Token(kind, m[kind], m.start(kind)))
            at = m.end()
        found.append(Token("end", "", end))
        return found

    def fail(self, place: int, message: str) -> NoReturn:
        at = place_in(self.text, place, self.line, self.column)
        about = "" if self.line else f" in `{visible(self.text.strip()[:80])}`"
        raise FormatError(f"{self.where}{at}{about}: {message}{_hint(self.text, place)}")

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def take(self, value: str, kind: str = "op") -> bool:
        if self.next.kind == kind and self.next.value == value:
            self.at += 1
            return True
        return False

    def need(self, kind: str, what: str) -> Token:
        token = self.next
        if token.kind != kind:
            self.fail(token.place, f"expected {what}, not {self.shown(token)}")
        self.at += 1
        return token

    def need_op(self, value: str, after: str) -> None:
        if not self.take(value):
            self.fail(self.next.place, f"expected {value!r} {after}, not {self.shown(self.next)}")

    @staticmethod
    def shown(token: Token) -> str:
        return "the end of the text" if token.kind == "end" else repr(visible(token.value[:40]))

    def end(self) -> None:
        if self.next.kind != "end":
            self.fail(self.next.place, f"unexpected {self.shown(self.next)}")

    def rule(self) -> Rule:
        weight = self._weight()
        if self.next.kind == "end":
            self.fail(self.next.place, "there is no formula")
        for token in self.tokens[self.at :]:
            if token.kind == "number" and math.isinf(float(token.value)):
                self.fail(
                    token.place,
                    f"{token.value} is infinite; numbers are finite, and names that look like one "
                    "are put in quotes",
                )
        formula = self.formula()
        deepest, n = depth_and_size(formula)
        if deepest > MAX_NESTED or n > MAX_PARTS:
            what = f"is nested more than {MAX_NESTED} deep, as by so many =>, <=> or + in a row"
            what = what if deepest > MAX_NESTED else f"has more than {MAX_PARTS:,} parts"
            what += "; name a part of it by a predicate, defined by a hard rule"
            self.fail(0, f"the formula {what}")
        place = self.next.place
        if self.take("."):
            if weight is not None and not math.isinf(weight):
                self.fail(place, "a rule has a weight, or a full stop that makes it hard, not both")
            weight = math.inf
        self.end()
        free = free_variables(formula)
        for token in self.quantified:
            if token.value in free:
                self.fail(
                    token.place,
                    f"the variable {visible(token.value)} is quantified here, but also stands "
                    "where this quantifier does not reach; give one of the two another name, or "
                    "put brackets around all that the quantifier is about",
                )
        line = f"line {self.line}: " if self.line else ""
        return Rule(formula, weight, self.text.strip(), self.where + line)

    def _weight(self) -> float | None:
        start = self.at
        negative = self.take("-")
        if not negative:
            self.take("+")
        token = self.next
        value: float | None = None
        if token.kind == "number":
            value = float(token.value)
            if math.isinf(value):
                value = math.nan  # too large to be meant
        elif token.kind == "word" and token.value.lower() in ("inf", "infinity", "nan", "hard"):
            after = self.tokens[self.at + 1]  # after ( it is a predicate of that name
            if after.kind in ("word", "text") or after.value in (":", "!"):
                value = math.nan if token.value.lower() == "nan" else math.inf
        if value is None:
            self.at = start
            return None
        self.at += 1
        if self.next.kind == "op" and self.next.value in _AFTER_TERM:
            self.at = start  # a comparison that begins with a number
            return None
        self.take(":")
        value = -value if negative else value
        if not _is_weight(value):
            self.fail(
                token.place,
                f"the weight is {'-' * negative}{token.value}; weights are finite numbers (within "
                "1e300), or inf for a hard rule",
            )
        return value

    def deeper(self, at: Token) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(at.place, f"brackets and negations are more than {MAX_DEPTH} deep")

    def formula(self) -> Formula:
        self.deeper(self.next)
        left = self.implication()
        while self.take("<=>"):
            left = Iff(left, self.implication())
        self.depth -= 1
        return left

    def implication(self) -> Formula:
        parts = [self.disjunction()]
        while self.take("=>"):
            parts.append(self.disjunction())
        out = parts.pop()
        while parts:  # to the right
            out = Implies(parts.pop(), out)
        return out

    def disjunction(self) -> Formula:
        parts = [self.conjunction()]
        while self.take("|") or self.take("v", "word"):
            parts.append(self.conjunction())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def conjunction(self) -> Formula:
        parts = [self.negation()]
        while self.take("^") or self.take("&"):
            parts.append(self.negation())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def negation(self) -> Formula:
        token = self.next
        if self.take("!"):
            self.deeper(token)
            inner = self.negation()
            self.depth -= 1
            return Not(inner)
        word = token.value.lower() if token.kind == "word" else ""
        if word in _QUANTIFIERS and self.tokens[self.at + 1].value != "(":
            return self.quantifier()
        if token.kind == "op" and token.value == "(":
            close = self._closing.get(self.at)  # of terms alone, as in (a - b) > 5
            if close is not None and self.tokens[close + 1].value in _AFTER_TERM:
                return self.comparison()
            self.at += 1
            inner = self.formula()
            self.need_op(")", "to close the bracket")
            return inner
        if token.kind == "word" and self.tokens[self.at + 1].value == "(":
            self.at += 1
            return self.atom(token)
        return self.comparison()

    def quantifier(self) -> Formula:
        kind = _QUANTIFIERS[self.next.value.lower()]
        self.at += 1
        names: list[str] = []
        while True:
            token = self.need("word", "a variable")
            if _is_constant(token.value):
                self.fail(token.place, f"{visible(token.value)} is a constant; a variable is bound")
            if token.value in self.bound:
                self.fail(token.place, f"the variable {visible(token.value)} is bound twice")
            names.append(token.value)
            self.bound[token.value] = token
            if not self.take(","):
                break
        inner = self.formula()
        self.quantified += [self.bound.pop(name) for name in names]
        free = free_variables(inner)
        used = tuple(name for name in names if name in free)
        return kind(used, inner) if used else inner

    def atom(self, name: Token) -> Atom:
        self.need_op("(", f"after {visible(name.value)}")
        terms: list[Variable | Constant] = []
        while True:
            terms.append(self.argument())
            if not self.take(","):
                break
        self.need_op(")", f"after the arguments of {visible(name.value)}")
        return Atom(name.value, tuple(terms))

    def argument(self) -> Variable | Constant:
        plus = self.take("+")
        sign = "-" if not plus and self.take("-") else ""
        token = self.next
        if token.kind == "number":
            self.at += 1
            if plus:
                self.fail(token.place, "a + stands before a variable")
            return Constant(sign + token.value)
        if sign:
            self.fail(token.place, "expected a number after the minus sign")
        if token.kind == "text":
            self.at += 1
            return Constant(re.sub(r"\\(.)", r"\1", token.value[1:-1], flags=re.DOTALL))
        token = self.need("word", "a variable or a constant")
        if _is_constant(token.value):
            if plus:
                self.fail(token.place, "a + stands before a variable")
            return Constant(token.value)
        return Variable(token.value, plus)

    @cached_property
    def _closing(self) -> dict[int, int]:
        """Where the brackets close that have nothing but terms between them, by where they open."""
        out: dict[int, int] = {}
        opened: list[int] = []
        for k, token in enumerate(self.tokens):
            if token.kind != "op":
                continue
            if token.value == "(":
                opened.append(k)
            elif token.value == ")" and opened:
                out[opened.pop()] = k
            elif token.value not in "+-*/":
                opened.clear()  # none that is open here has terms alone
        return out

    def comparison(self) -> Compare:
        left = self.sum()
        token = self.next
        op = "!=" if token.value == "<>" else token.value
        if token.kind != "op" or op not in COMPARISONS:
            self.no_comparison()
        self.at += 1
        return Compare(op, left, self.sum())

    def no_comparison(self) -> NoReturn:
        what = "an atom such as smokes(x), or a comparison such as x < y"
        self.fail(self.next.place, f"expected {what}, not {self.shown(self.next)}")

    def sum(self, ops: str = "+-") -> Term:
        """A sum of products, or with ``*/`` a product of factors."""
        part: Callable[[], Term] = partial(self.sum, "*/") if ops == "+-" else self.factor
        left = part()
        while self.next.kind == "op" and self.next.value in ops:
            op = self.next.value
            self.at += 1
            left = Arithmetic(op, left, part())
        return left

    def factor(self) -> Term:
        token = self.next
        self.deeper(token)
        out: Term
        if self.take("("):
            out = self.sum()
            self.need_op(")", "to close the bracket")
        elif self.take("-"):
            inner = self.factor()
            if isinstance(inner, Constant) and inner.number is not None:
                out = Constant(f"-{inner.text}")
            else:
                out = Arithmetic("-", Constant("0"), inner)
        elif token.kind in ("number", "word", "text"):
            out = self.argument()
        else:
            self.no_comparison()
        self.depth -= 1
        return out


def _is_weight(number: float) -> bool:
    return number == math.inf or abs(number) <= 1e300


def _is_constant(word: str) -> bool:
    return word[0].isupper() or word[0].isdigit()
