"""BIF, the Bayesian Interchange Format as bnlearn's repository, pgmpy and pyAgrum write it.

    network unknown { }
    variable rain { type discrete [ 2 ] { no, yes }; }
    variable wet { type discrete [ 2 ] { no, yes }; }
    probability ( rain ) { table 0.8, 0.2; }
    probability ( wet | rain ) {
      (no) 0.9, 0.1;
      (yes) 0.2, 0.8;
    }

Rows come in any order, each once; ``default`` serves those left out. ``table`` under parents lists
the numbers with the last parent fastest and the variable itself slowest. Commas are white space;
names are words, or strings where they hold anything else. ``//`` and ``/* */`` are comments,
``property`` lines are skipped. Continuous variables and joint distributions are refused.

Nearly all files are *plain*: no comments, strings, properties or defaults, commas between numbers,
all rows there. Those are cut by one regular expression a block (:func:`_plain`), several times
sooner. Whatever is not plain, or wrong in any way, is read token by token; only that reader makes
errors, so that each has one text and a place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, product
from math import prod
from typing import Any, NoReturn

import numpy as np

from minfer.errors import FormatError, visible
from minfer.graph import FactorGraph
from minfer.io.networks import Draft, check_one_line, conditionals, in_words, names_of, quoted
from minfer.io.opening import parsed
from minfer.io.tables import MAX_ARITY
from minfer.io.text import PathLike, write_bytes
from minfer.io.tokens import STRING, Tokens

_TOKEN = re.compile(STRING + r'|[{}()\[\];|]|[^\s,{}()\[\];|"]+')
_COMMENT = r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)"
_PLAIN = re.compile(r'[^\s,{}()\[\];|"\\]+')

_WORD = r'[^\s,{}()\[\];|"]++'
_WORDS = r'[^{}()\[\];|"]*+'
#: A plain block: a variable's name, count and states; or the scope, parents, and table or rows.
#: Nothing is given back once it is taken (*+, ++): a text that does not match is soon known.
_BLOCK = re.compile(
    rf"\s*+(?:variable\s++({_WORD})\s*+{{\s*+type\s++discrete\s*+\[\s*+([0-9]{{1,9}})\s*+\]\s*+"
    rf"{{({_WORDS})}}\s*+;\s*+}}"
    rf"|probability\s*+\(\s*+({_WORD})\s*+(?:\|({_WORDS}))?\)\s*+{{\s*+"
    rf"(?:table\s({_WORDS});|((?:\s*+\({_WORDS}\){_WORDS};)+))\s*+}}"
    rf"|network\s++{_WORD}\s*+{{\s*+}})\s*+"
)
_ROW = re.compile(rf"\(({_WORDS})\)({_WORDS});")


def read_bif(path: PathLike) -> FactorGraph:
    """Read a Bayesian network in BIF; ``-`` for standard input, gzip is recognised."""
    return parsed(path, parse_bif)


def parse_bif(name: str, data: bytes) -> FactorGraph:
    """The network in the text ``data``; ``name`` is the file for messages."""
    found = _plain(data)
    if found is not None:
        return found
    text = Tokens(name, data, _TOKEN, _COMMENT if b"//" in data or b"/*" in data else "")
    if not len(text):
        raise FormatError(f"{name}: line 1: the file is empty; it should hold a network")
    draft = Draft(text.n_bytes, text.fail)
    tables, k = [], 0
    while k < len(text):
        word = text.words[k]
        if word == "network":
            begin = text.find("{", k, "the network")
            k = text.expect(_properties(text, begin + 1), "}")
        elif word == "variable":
            k = _variable(text, draft, k + 1)
        elif word == "probability":
            tables.append(k)
            k = text.find("}", k, "this probability") + 1
        else:
            text.fail(k, "expected network, variable or probability")
    for k in tables:
        _probability(text, draft, k + 1)
    return draft.graph()


def _properties(text: Tokens, k: int) -> int:
    """The place after any properties."""
    while k < len(text) and text.words[k] == "property":
        k = text.find(";", k, "this property") + 1
    return k


def _variable(text: Tokens, draft: Draft, at: int) -> int:
    name = text.string(at, "a variable's name")
    k = _properties(text, text.expect(at + 1, "{"))
    k = text.expect(k, "type")
    if text.get(k, "the type") != "discrete":
        text.fail(k, f"{visible(name)} is not discrete; only discrete variables are read")
    k = text.expect(k + 1, "[")
    n = text.integer(k, "the number of states")
    begin = text.expect(k + 1, "]", "{")
    end = text.find("}", begin, f"the states of {visible(name)}")
    states = [text.string(j, "a state") for j in range(begin, end)]
    if len(states) != n:
        text.fail(k, f"{visible(name)} is said to have {n} states, but {len(states)} are named")
    draft.variable(name, states, at)
    return text.expect(_properties(text, text.expect(end + 1, ";")), "}")


def _probability(text: Tokens, draft: Draft, k: int) -> None:
    at = text.expect(k, "(")
    child = text.string(at, "a variable")
    end = text.find(")", at, "the scope")
    first = at + 1
    if first < end and text.words[first] != "|":
        text.fail(first, "expected '|' or ')': the table of one variable, given its parents")
    places = range(first + 1, end)
    parents = [text.string(j, "a parent") for j in places]
    scope = draft.scope(child, parents, at, places)
    _Rows(text, draft, scope, at).read(text.expect(end + 1, "{"))


class _Rows:
    def __init__(self, text: Tokens, draft: Draft, scope: list[int], at: int) -> None:
        self.text, self.draft, self.scope, self.at = text, draft, scope, at
        *self.parents, child = draft.shape(scope)
        self.size = child
        self.rows: list[int] = []  # numbers of the rows, and where their numbers stand
        self.spans: list[tuple[int, int]] = []
        self.default: tuple[int, int] | None = None
        self.table: tuple[int, int] | None = None

    def read(self, k: int) -> None:
        try:
            self._read(k)
        except FormatError:
            raise
        except (ValueError, IndexError):  # of the list of tokens: there are no more
            self.text.ends("a row has no ';' or ')'")
        self._finish()

    def _read(self, k: int) -> None:
        text, words = self.text, self.text.words
        find = words.index
        lookups = [{s: i for i, s in enumerate(self.draft.states[v])} for v in self.scope[:-1]]
        sized = list(zip(lookups, self.parents))
        n_parents, size = len(sized), self.size
        while (word := words[k]) != "}":
            if word == "(":
                close = find(")", k)
                end = find(";", close)
                if close - k - 1 != n_parents:
                    text.fail(k, f"{close - k - 1} states for {n_parents} parents")
                row, j = 0, k
                for lookup, n in sized:
                    j += 1
                    state = lookup.get(words[j])
                    row = row * n + (self._state(j, lookup) if state is None else state)
                if end - close - 1 != size:
                    self._count(close, end)
                self.rows.append(row)
                self.spans.append((close + 1, end))
                k = end + 1
            elif word in ("table", "default"):
                end = find(";", k)
                if getattr(self, word) is not None:
                    text.fail(k, f"there is a second {word}")
                setattr(self, word, (k + 1, end))
                k = end + 1
            elif word == "property":
                k = _properties(text, k)
            else:
                text.fail(k, "expected a row, table, default or property")

    def _state(self, j: int, lookup: dict[str, int]) -> int:
        """The number of a state written as a string, or an error."""
        name = self.text.string(j, "a state")
        if name not in lookup:
            parent = self.scope[j - self._row_begin(j) - 1]
            states = self.draft.states[parent]
            self.text.fail(
                j,
                f"{visible(self.draft.name(parent))} has the states "
                f"{', '.join(map(visible, states[:12]))}, and not this one",
            )
        return lookup[name]

    def _row_begin(self, j: int) -> int:
        while self.text.words[j] != "(":
            j -= 1
        return j

    def _count(self, close: int, end: int) -> None:
        child = visible(self.draft.name(self.scope[-1]))
        bad = next((j for j in range(close + 1, end) if self.text.words[j] in "{}()[]|"), close)
        if bad > close:
            self.text.fail(bad, "expected a number or ';'")
        self.text.fail(
            close, f"{end - close - 1} numbers follow, but {child} has {self.size} states"
        )

    def _finish(self) -> None:
        text, draft, scope = self.text, self.draft, self.scope
        n_rows = prod(self.parents)
        if self.table is not None:
            if self.rows or self.default is not None:
                text.fail(self.table[0] - 1, "a table beside rows or a default")
            values = text.numbers([self.table])
            if values.size != n_rows * self.size:
                text.fail(self.table[0] - 1, draft.size_complaint(scope, values.size))
            by_child = values.reshape(self.size, n_rows)
            first = self.table[0]  # the variable itself is slowest: a row begins at its number
            draft.table(scope, np.ascontiguousarray(by_child.T), self.at, lambda r: first + r)
            return
        if len(set(self.rows)) < len(self.rows):
            seen: set[int] = set()
            k = next(k for k, r in enumerate(self.rows) if r in seen or seen.add(r))  # type: ignore[func-returns-value]
            text.fail(self._row_begin(self.spans[k][0] - 1), "this row was given before")
        if self.default is None:
            self._check_complete(n_rows)
            values = np.empty((n_rows, self.size))
        else:
            default = text.numbers([self.default])
            if default.size != self.size:
                self._count(self.default[0] - 1, self.default[1])
            draft.check_expanded(scope, self.at)
            values = np.tile(default, (n_rows, 1))
        values[self.rows] = text.numbers(self.spans).reshape(-1, self.size)
        places = {row: span[0] - 1 for row, span in zip(self.rows, self.spans)}
        row_at = self._row_begin
        other = self.at if self.default is None else self.default[0] - 1
        draft.table(scope, values, self.at, lambda r: row_at(places[r]) if r in places else other)

    def _check_complete(self, n_rows: int) -> None:
        if len(self.rows) < n_rows:
            here = set(self.rows)
            missing = next(r for r in range(n_rows) if r not in here)
            states = []
            for v in reversed(self.scope[:-1]):
                missing, s = divmod(missing, len(self.draft.states[v]))
                states.append(f"{visible(self.draft.name(v))}={visible(self.draft.states[v][s])}")
            given = f", as the one given {', '.join(reversed(states))}" if states else ""
            self.text.fail(
                self.at,
                f"{len(self.rows)} of {float(n_rows):.15g} rows are there; missing are "
                f"{n_rows - len(self.rows):.15g}{given}",
            )


class _NotPlain(Exception):
    """To be read token by token."""


def _plain(data: bytes) -> FactorGraph | None:
    """The network of a plain file in which nothing is wrong; None of any other."""
    if b"//" in data or b"/*" in data or b"\0" in data:
        return None
    try:
        return _plain_network(data.decode("utf-8-sig"), len(data))
    except (_NotPlain, ValueError, KeyError):
        return None


def _not_plain(*where: Any) -> NoReturn:
    raise _NotPlain


def _plain_network(text: str, n_bytes: int) -> FactorGraph:
    draft = Draft(n_bytes, _not_plain)
    blocks, at = [], 0
    while at < len(text):
        block = _BLOCK.match(text, at)
        if block is None:
            raise _NotPlain
        at = block.end()
        name, count, states, child, parents, table, rows = block.groups()
        if name is not None:
            draft.variable(name, _words(states), None)
            if len(draft.states[-1]) != int(count):
                raise _NotPlain
        elif child is not None:
            blocks.append((child, parents, table, rows))
    if not blocks:
        raise _NotPlain
    index, states_of = draft.numbers, draft.states
    known: dict[tuple[tuple[str, ...], ...], dict[str, int]] = {}
    scopes: list[list[int]] = []
    numbers: list[str] = []
    begin: list[int] = []  # of each run of numbers: where it belongs
    length: list[int] = []
    first = 0
    for child, parents, table, rows in blocks:
        scope = [] if parents is None else [index[name] for name in _words(parents)]
        if len(scope) >= MAX_ARITY:
            raise _NotPlain
        given = tuple([states_of[v] for v in scope])
        scope.append(index[child])
        scopes.append(scope)
        size, n_rows = len(states_of[scope[-1]]), prod(map(len, given))
        if table is not None:  # the variable itself is slowest
            if table.count(",") != size * n_rows - 1:
                raise _NotPlain
            numbers.append(table)
            if n_rows == 1:
                begin.append(first)
                length.append(size)
            else:
                begin += [first + r * size + s for s in range(size) for r in range(n_rows)]
                length += [1] * (size * n_rows)
        else:
            cells = _ROW.findall(rows)
            if len(cells) != n_rows:
                raise _NotPlain
            if sum(n_rows // len(own) * sum(map(len, own)) for own in given) > len(rows):
                raise _NotPlain  # the names do not all stand there, and together are perhaps long
            if given not in known:
                known[given] = dict(zip(map(", ".join, product(*given)), range(n_rows)))
            keys, own = zip(*cells)
            for row in own:
                if row.count(",") != size - 1:
                    raise _NotPlain
            numbers += own
            begin += [first + r * size for r in _row_numbers(known[given], keys)]
            length += [size] * n_rows
        first += size * n_rows
        if len(set(scope)) < len(scope):
            raise _NotPlain
    if len({scope[-1] for scope in scopes}) < len(scopes):
        raise _NotPlain
    joined = ",".join(numbers)
    if not joined.isascii() or "_" in joined:  # float() takes more than a file should hold
        raise _NotPlain
    values = np.array(list(map(float, joined.split(","))))
    if first != len(values) or sum(length) != first:
        raise _NotPlain
    if begin == [0, *accumulate(length[:-1])]:  # in the order of the tables already
        return draft.flat_graph(scopes, values, _not_plain, _not_plain)
    runs = np.array(length)
    sorted_ = np.empty(len(values))
    shift = np.array(begin) - (np.cumsum(runs) - runs)
    sorted_[np.repeat(shift, runs) + np.arange(len(values))] = values
    return draft.flat_graph(scopes, sorted_, _not_plain, _not_plain)


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _row_numbers(known: dict[str, int], keys: tuple[str, ...]) -> Sequence[int]:
    """The number of each row; each is there once."""
    if keys == tuple(known):
        return range(len(known))
    try:
        found = list(map(known.__getitem__, keys))
    except KeyError:
        found = [known[", ".join(_words(key))] for key in keys]
    if len(set(found)) < len(known):
        raise _NotPlain
    return found


def write_bif(graph: FactorGraph, path: PathLike) -> None:
    """Write a Bayesian network in BIF, with names, states and the order of parents.

    Models that are not Bayesian networks, or contain evidence, are refused. Names that are not
    plain words become strings, which not every other program reads.
    """
    write_bytes(path, format_bif(graph))


def format_bif(graph: FactorGraph) -> bytes:
    """The text of a BIF file."""
    tables = list(conditionals(graph, "BIF"))
    check_one_line(graph, "BIF")
    names = [_name(n) for n in names_of(graph)]
    states = [[_name(s) for s in graph.states(v)] for v in range(graph.n_variables)]
    lines = ["network unknown {", "}"]
    for name, own in zip(names, states):
        lines += [f"variable {name} {{", f"  type discrete [ {len(own)} ] {{ {', '.join(own)} }};"]
        lines.append("}")
    for child, parents, table in tables:
        if not parents:
            lines.append(f"probability ( {names[child]} ) {{")
            lines.append(f"  table {in_words(table.tolist(), ', ')};")
        else:
            given = ", ".join(names[p] for p in parents)
            lines.append(f"probability ( {names[child]} | {given} ) {{")
            rows = table.reshape(-1, table.shape[-1]).tolist()
            for which, row in zip(np.ndindex(table.shape[:-1]), rows):
                key = ", ".join(states[p][s] for p, s in zip(parents, which))
                lines.append(f"  ({key}) {in_words(row, ', ')};")
        lines.append("}")
    return ("\n".join(lines) + "\n").encode()


def _name(name: str) -> str:
    plain = _PLAIN.fullmatch(name) and "//" not in name and "/*" not in name
    return name if plain else quoted(name)
