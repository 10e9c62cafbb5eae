"""Programs of Alchemy and Tuffy: ``.mln``, ``.db`` and query files, read as they are.

``.mln``: declarations ``*wrote(person, paper)`` (``*``: closed world) and rules ``1.5 formula``,
``formula.`` (hard) or a formula alone (its weight is to be learned); a type with ``!``, as in
``category(paper, cat!)``, has exactly one value for each value of the others; ``type = {A, B}``
lists constants; ``//`` and ``/* */`` are comments. ``.db``: an atom a line, ``!`` where it is
false. Query files: an atom or a name a line.

Rules go to :mod:`minfer.rules.parse`; here are lines, comments and declarations. Lines of evidence
are read by one expression, since there are many of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from minfer.basics.words import counted
from minfer.errors import ContradictionError, FormatError, visible
from minfer.io.opening import read_bytes, reading
from minfer.io.text import shown
from minfer.model.states import did_you_mean
from minfer.rules.formulas import Constant, Variable, atoms
from minfer.rules.parse import Rule, parse_atom, parse_rule, place_in
from minfer.rules.schema import MAX_ARGUMENTS, Declaration, Observation

_DECLARATION = re.compile(r"\s*(?:(\*)\s*)?([^\W\d]\w*)\s*\(([^()]*)\)\s*$")
#: A type, perhaps with ! and a name. No character can be read in two ways, so this takes no longer
#: on a text that does not match.
_ARGUMENT = re.compile(r"\s*[^\W\d]\w*(?:\s+[^\W\d]\w*|\s*!(?:\s*[^\W\d]\w*)?)?\s*")
#: A string and its closing quote; one that has none ends with its line.
_STRING = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*(")?')
_COMMENT = re.compile(r"//[^\n]*|/\*")
_STRING_OR_COMMENT = re.compile(rf"{_STRING.pattern}|{_COMMENT.pattern}")
_DOMAIN = re.compile(r"\s*([^\W\d]\w*)\s*=\s*\{(.*)\}\s*$", re.DOTALL)
_FACT = re.compile(r'\s*(?:(!)\s*)?([^\W\d]\w*)\s*\(([^()"\'\\{};=<>^]*)\)\s*$')
_WHOLE = re.compile(r"-?\d{1,9}").fullmatch
MAX_RANGE = 1_000_000
_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|[\w+-]+(?:\.\w+)*')


@dataclass
class Program:
    """An .mln file: types of predicates, those with a ``*``, rules, listed constants."""

    types: dict[str, tuple[str, ...]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    unique: dict[str, int] = field(default_factory=dict)  # predicate: its argument with a !
    rules: list[Rule] = field(default_factory=list)
    domains: dict[str, list[str]] = field(default_factory=dict)


def read_text(path: str | os.PathLike[str]) -> str:
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        at = place_in(before, len(before))
        raise FormatError(f"{visible(shown(path))}: {at}: this is not UTF-8") from None


def without_comments(text: str, where: str) -> str:
    """The text with comments blank, every line and column where it was."""
    out, at, unclosed = [], 0, 0  # up to where no string is closed
    while True:
        m = _COMMENT.search(text, at, unclosed) if at < unclosed else None
        if m is None:
            out.append(text[at:unclosed])
            at = max(at, unclosed)
            m = _STRING_OR_COMMENT.search(text, at)
        if m is None:
            break
        out.append(text[at : m.start()])
        if m[0].startswith('"'):
            end = m.end() if m[1] else m.start() + 1
            out.append(text[m.start() : end])
            at, unclosed = end, m.end()
            continue
        end = m.end()
        if m[0] == "/*":
            close = text.find("*/", m.end())
            if close < 0:
                place = place_in(text, m.start())
                raise FormatError(f"{where}{place}: this comment is not closed by */")
            end = close + 2
        out.append(re.sub(r"[^\n]", " ", text[m.start() : end]))
        at = end
    out.append(text[at:])
    return "".join(out)


def parse_mln(text: str, where: str = "") -> Program:
    """A program from its text.

    Examples
    --------
    >>> program = parse_mln("*friends(person, person)\\nsmokes(person)\\n1.5 friends(x, y) ^ "
    ...                     "smokes(x) => smokes(y)")
    >>> program.closed, program.types["smokes"], program.rules[0].weight
    ({'friends'}, ('person',), 1.5)
    """
    program = Program()
    for line, column, statement in _statements(without_comments(text, where)):
        at = f"{where}line {line}, column {column}: "
        if statement.startswith("#"):
            raise FormatError(f"{at}{visible(statement.split()[0])} is not supported")
        domain = _DOMAIN.match(statement)
        if domain is not None:
            if domain[1] in program.domains:
                raise FormatError(f"{at}the constants of {visible(domain[1])} are listed twice")
            program.domains[domain[1]] = _listed(domain, where, line, column)
            continue
        m = _DECLARATION.match(statement)
        if m is not None and all(map(_ARGUMENT.fullmatch, m[3].split(","))):
            # of small words, not met before; or what the types of a predicate are once more
            types = tuple(x.replace("!", " ").split()[0] for x in m[3].split(","))
            small = all(x.strip()[0].islower() for x in m[3].split(","))
            if m[1] or program.types.get(m[2]) == types or (m[2] not in program.types and small):
                _declare(program, m, at)
                continue
        rule = parse_rule(statement, where=where, line=line, column=column)
        for atom in atoms(rule.formula):
            _check_atom(program, atom.predicate, len(atom.terms), where, line, column, statement)
        program.rules.append(rule)
    return program


def _listed(domain: re.Match[str], where: str, line: int, column: int) -> list[str]:
    """The constants between the brackets of ``type = {A, B}``, or ``{1, ..., 9}``."""
    values, at = [], domain.start(2)
    for piece in domain[2].split(","):
        value = piece.strip()
        if value != "..." and _CONSTANT.fullmatch(value) is None:
            place = at + len(piece) - len(piece.lstrip())
            raise FormatError(
                f"{where}{place_in(domain.string, place, line, column)}: expected a constant of "
                f"{visible(domain[1])}, not {visible(value)!r}"
            )
        values.append(value.strip('"'))
        at += len(piece) + 1
    if "..." not in values:
        return values
    if len(values) == 3 and values[1] == "..." and _WHOLE(values[0]) and _WHOLE(values[2]):
        first, last = int(values[0]), int(values[2])
        if first <= last < first + MAX_RANGE:
            return [str(k) for k in range(first, last + 1)]
    raise FormatError(
        f"{where}{place_in(domain.string, domain.start(2), line, column)}: a range of constants is "
        f"{{1, ..., 9}}, of whole numbers, at most {MAX_RANGE:,}"
    )


def _statements(text: str) -> Iterable[tuple[int, int, str]]:
    """Line, column and text of each statement: a line, or more where brackets are open."""
    held: list[str] = []
    began, depth, column, ends = 0, 0, 1, False
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if not held and not bare:
            continue
        if not held:
            began, column = number, len(line) - len(line.lstrip()) + 1
        held.append(line.rstrip() if held else bare)
        if bare:  # after an empty line it ends as it did before
            ends = held[-1].endswith(("^", "=>", "<=>", " v", ","))
        bare = _STRING.sub(lambda m: "" if m[1] else m[0], bare)
        depth += bare.count("(") + bare.count("{") - bare.count(")") - bare.count("}")
        if depth <= 0 and not ends:
            yield began, column, "\n".join(held)
            held, depth = [], 0
    if held:
        yield began, column, "\n".join(held)


def _declare(program: Program, m: re.Match[str], at: str) -> None:
    name = m[2]
    if name in program.types:
        raise FormatError(f"{at}the predicate {visible(name)} is declared twice")
    types = []
    arguments = m[3].split(",")
    if len(arguments) > MAX_ARGUMENTS:
        raise FormatError(
            f"{at}{visible(name)} has {len(arguments):,} arguments; there may be {MAX_ARGUMENTS}"
        )
    for k, argument in enumerate(arguments):
        kind, mark, _ = argument.partition("!")
        if mark:
            if name in program.unique:
                raise FormatError(f"{at}{visible(name)} has two arguments with a !")
            program.unique[name] = k
        types.append(kind.split()[0])
    if name in program.unique and len(types) < 2:
        raise FormatError(f"{at}{visible(name)} has one argument only, so a ! has no key")
    program.types[name] = tuple(types)
    if m[1]:
        program.closed.add(name)


def _check_atom(
    program: Program, name: str, n: int, where: str, line: int, column: int, text: str
) -> None:
    """That an atom with n arguments, somewhere in a text, is declared so."""
    wanted = len(program.types.get(name, ()))
    if name in program.types and n == wanted:
        return
    m = re.search(rf"\b{re.escape(name)}\b", text)
    at = where + place_in(text, m.start() if m else 0, line, column)
    if name not in program.types:
        hint = did_you_mean(name, program.types)
        raise FormatError(f"{at}: the predicate {visible(name)} is not declared{hint}")
    raise FormatError(
        f"{at}: {visible(name)} has {counted(n, 'argument')} here, but {wanted} where it is "
        "declared"
    )


Facts = dict[str, tuple[list[tuple[str, ...]], list[bool]]]


def parse_db(text: str, program: Program, where: str = "", facts: Facts | None = None) -> Facts:
    """Evidence by predicate: atoms and whether they are true."""
    facts = {} if facts is None else facts
    match, types = _FACT.match, program.types
    width = {name: len(kinds) for name, kinds in types.items()}
    clean = without_comments(text, where) if "/" in text else text
    for number, line in enumerate(clean.split("\n"), 1):
        m = match(line)
        if m is None:
            if not line.strip():
                continue
            atom, truth = parse_atom(line, where=where, line=number)
            name = atom.predicate
            row = tuple(t.name if isinstance(t, Variable) else t.text for t in atom.terms)
        else:
            name, truth = m[2], not m[1]
            row = tuple([x.strip() for x in m[3].split(",")])
        if width.get(name) != len(row) or "" in row:
            if m is not None and "" in row and name in width:
                place = m.start(3) + sum(len(x) + 1 for x in m[3].split(",")[: row.index("")])
                at = place_in(line, place, number)
                raise FormatError(f"{where}{at}: an argument of {visible(name)} is empty")
            _check_atom(program, name, len(row), where, number, 1, line)
        rows, truths = facts.setdefault(name, ([], []))
        rows.append(row)
        truths.append(truth)
    return facts


def parse_query(text: str, program: Program, where: str = "") -> list[str]:
    """Names of predicates, from lines with atoms or names."""
    out: list[str] = []
    for number, line in enumerate(without_comments(text, where).split("\n"), 1):
        for piece in [line] if "(" in line else line.split(","):
            if not piece.strip():
                continue
            if "(" in piece:
                atom, _ = parse_atom(piece, where=where, line=number)
                if any(isinstance(t, Constant) for t in atom.terms):
                    raise FormatError(
                        f"{where}line {number}: a query is about all atoms of a predicate"
                    )
                name, n = atom.predicate, len(atom.terms)
            else:
                name = piece.strip()
                n = len(program.types.get(name, ()))
            _check_atom(program, name, n, where, number, 1, line)
            out.append(name)
    return list(dict.fromkeys(out))


def read_program(cls: type, path: Any, evidence: Any, query: Any, settings: dict[str, Any]) -> Any:
    with reading(path):
        program = parse_mln(read_text(path), f"{visible(shown(path))}: ")
    facts: Facts = {}
    for path in [evidence] if isinstance(evidence, str | os.PathLike) else list(evidence or ()):
        with reading(path):
            parse_db(read_text(path), program, f"{visible(shown(path))}: ", facts)
    asked: list[str] = []
    if isinstance(query, os.PathLike) or (
        isinstance(query, str) and query not in program.types and os.path.exists(query)
    ):
        with reading(query):
            asked = parse_query(read_text(query), program, f"{visible(os.fspath(query))}: ")
    elif query is not None:
        for name in query.split(",") if isinstance(query, str) else list(query):
            asked += parse_query(str(name), program, "query: ")
    rules = cls(**({"split": True, "unbound": "domain"} | settings))
    rules.new_constants, rules.queried = True, None if query is None else asked
    for name in asked:
        if name in program.closed:
            raise FormatError(f"query: {visible(name)} is declared with a *: it is known")
    named: dict[str, set[str]] = {kind: set(values) for kind, values in program.domains.items()}
    for kind in chain.from_iterable(program.types.values()):
        named.setdefault(kind, set())
    for rule in program.rules:
        for atom in atoms(rule.formula):
            for term, kind in zip(atom.terms, program.types[atom.predicate]):
                if isinstance(term, Constant):
                    named[kind].add(term.text)
    for name, types in program.types.items():
        rows, truths = facts.get(name, ([], []))
        if name in program.closed:
            true, false = (
                [row for row, truth in zip(rows, truths) if truth is yes] for yes in (True, False)
            )
            both = set(true) & set(false) if false else set()
            if both:
                said = f"{name}({', '.join(min(both))})"
                raise ContradictionError(
                    f"evidence says both that {visible(said)} is true and that it is false"
                )
            for kind, column in zip(types, zip(*false)):  # constants all the same
                named[kind].update(column)
            rules._declare(Declaration(name, False, true, types=types))
            continue
        columns = tuple(f"a{i}" for i in range(len(types))) if name in program.unique else None
        one = (columns[program.unique[name]],) if columns else ()
        rules._declare(Declaration(name, True, None, columns, types, exactly_one=one))
        if rows:
            table = [(*row, truth) for row, truth in zip(rows, truths)]
            rules._evidence.append(Observation(name, table, f"c{len(types)}"))
    for kind, values in named.items():  # constants that no table has
        name = f"constants_{kind}"
        while name in program.types:
            name += "_"
        if values:
            listed = [(v,) for v in sorted(values)]
            rules._declare(Declaration(name, False, listed, types=(kind,)))
    rules._rules.extend(program.rules)
    rules._changed()
    return rules
