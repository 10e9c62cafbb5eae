"""Weighted CNF: DIMACS clauses and weights of literals, as in the Model Counting Competitions.

``p cnf V C``, then C clauses of literals from -V to V, each ended by 0, over one line or several;
``c p weight LITERAL W 0`` gives a literal's weight (Fichte, Hecher & Hamiti, "The Model Counting
Competition 2020", 2021), not negative, ``W`` perhaps a fraction ``a/b``; a variable without has 1
and 1. Other lines that begin with ``c`` are comments; after a line that begins with ``%`` nothing
but a 0 may follow. Then Z is the weighted model count, without weights the number of models.

Clause k is factor k - 1, a hard :class:`~minfer.factors.Clauses`; literals given twice count once,
and a clause that holds a literal and its opposite is a constant. Weights are the field. Variables
are called ``x1``, ``x2``, ... as in the file; their numbers run from 0.

Programs disagree on what only one weight of a variable means, and on older ways to write weights
and projections, so these are refused: they are not comments that could be passed over.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

import numpy as np

from minfer.basics.checks import check_graph
from minfer.errors import ContradictionError, FormatError, MinferError, RefusedError
from minfer.factors.connectives import Clauses
from minfer.factors.group import FactorGroup, Floats, Ints, Tables
from minfer.graph import FactorGraph
from minfer.io.opening import parsed
from minfer.io.tables import check_readable, states_complaint, to_linear, to_log
from minfer.io.text import Numbers, PathLike, check_text, place, write_bytes
from minfer.io.tokens import number_complaint

_LINES = re.compile(rb"(?m)^[ \t]*[cpw][^\n]*")
_END = re.compile(rb"(?m)^[ \t]*%[^\n]*")
_DIGIT = re.compile(r"^[+.0]*[1-9]")  # of a number that is not zero
_INTEGER = re.compile(rb"[+-]?[0-9]{1,10}")
_WRITE = "write 'c p weight LITERAL W 0', a line for each literal"
#: What other programs read as part of the model: the beginning of a line, and what to say.
_OTHERS = [
    (("c", "p", "show"), "counts of models projected to some variables are not supported"),
    (("c", "ind"), "counts of models projected to some variables are not supported"),
    (("c", "t", "pmc"), "counts of models projected to some variables are not supported"),
    (("c", "t", "pwmc"), "counts of models projected to some variables are not supported"),
    (("c", "t", "wpmc"), "counts of models projected to some variables are not supported"),
    (("c", "p", "gweight"), "a weight of the whole model is not supported; add it to log Z"),
    (("c", "weights"), f"an old way to write weights; {_WRITE}"),
    (("cp", "weight"), f"this looks like a weight; {_WRITE}"),
    (("w",), f"an old way to write weights, of literals or of variables; {_WRITE}"),
]


class _Weight(NamedTuple):
    at: int  # where its line begins
    value: float


def read_cnf(path: PathLike) -> FactorGraph:
    """Read a weighted CNF; ``-`` for standard input, gzip is recognised."""
    return parsed(path, parse_cnf)


def parse_cnf(name: str, data: bytes) -> FactorGraph:
    """The model in the text ``data``; ``name`` is the file for messages."""
    check_text(name, data)
    if data.startswith(b"\xef\xbb\xbf"):
        raise FormatError(
            f"{name}: line 1: the file begins with a byte order mark; save it as UTF-8 without one"
        )
    file = _File(name, data)
    text = Numbers(name, file.clauses())
    literals, arity = _literals(text, file)
    log_w = file.field()
    graph = FactorGraph.empty([2] * file.n_variables, [f"x{k + 1}" for k in range(len(log_w) // 2)])
    graph = graph._append(*_groups(literals, arity))
    return graph.tilt(log_w) if file.weights else graph


class _File:
    """The lines that are no clauses."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.data, self.weights, self.header = name, data, dict[int, _Weight](), -1
        end = _END.search(data)
        self.end = end.start() if end else len(data)
        self.n_variables = self.n_clauses = 0
        for line in _LINES.finditer(data, 0, self.end):
            words = line[0].split()
            if words[0] == b"c" and words[1:3] == [b"p", b"weight"]:
                self._weight(line.start(), words)
            elif line[0].lstrip().startswith(b"p"):
                self._head(line.start(), words)
            else:
                self._comment(line.start(), words)
        if self.header < 0:
            raise FormatError(f"{name}: line 1: there is no line 'p cnf VARIABLES CLAUSES'")
        for literal, weight in self.weights.items():
            if abs(literal) > self.n_variables:
                self.fail(weight.at, f"{literal} is no literal: {self._range()}")
            other = self.weights.get(-literal)
            if other is None:
                self.fail(
                    weight.at,
                    f"literal {-literal} has no weight: programs take 1 - W or 1 for it, so say "
                    f"which: 'c p weight {-literal} W 0'",
                )
            if weight.value == other.value == 0.0:
                self.fail(
                    weight.at, "both weights of this variable are zero: no assignment has a "
                    "positive weight", ContradictionError,
                )  # fmt: skip

    def _range(self) -> str:
        return f"the variables are 1 to {self.n_variables}"

    def fail(self, at: int, message: str, error: type[MinferError] = FormatError) -> NoReturn:
        """Raise an error about the line that begins there."""
        end = self.data.find(b"\n", at)
        line = self.data[at : end if end >= 0 else len(self.data)].strip()
        raise error(f"{self.name}: {place(self.data, at, line)}: {message}")

    def _head(self, at: int, words: list[bytes]) -> None:
        if self.header >= 0:
            self.fail(at, "a second line that begins with p")
        if len(words) > 1 and words[0] == b"p" and words[1] != b"cnf":
            self.fail(at, "only 'p cnf' is read: neither maximum satisfiability nor other formulas")
        counts = [int(w) if _INTEGER.fullmatch(w) else -1 for w in words[2:]]
        if words[0] != b"p" or len(counts) != 2 or min(counts) < 0:
            self.fail(at, "this line should be 'p cnf VARIABLES CLAUSES'")
        self.header, (self.n_variables, self.n_clauses) = at, counts
        if complaint := states_complaint(2 * self.n_variables, len(self.data)):
            self.fail(at, complaint)

    def _weight(self, at: int, words: list[bytes]) -> None:
        literal = int(words[3]) if len(words) > 3 and _INTEGER.fullmatch(words[3]) else 0
        if len(words) != 6 or words[5] != b"0" or not literal:
            self.fail(at, "this line should be 'c p weight LITERAL W 0'")
        parts = words[4].decode("ascii", "replace").split("/")
        if complaint := next(filter(None, map(number_complaint, parts)), ""):
            self.fail(at, f"the weight: {complaint}")
        if len(parts) > 2 or (len(parts) == 2 and not _DIGIT.search(parts[1])):
            self.fail(at, "the weight should be a number, or a fraction a/b")
        value, below = float(parts[0]), float(parts[1]) if len(parts) == 2 else 1.0
        value = value / below if below else np.inf
        if value == np.inf or (value == 0.0 and _DIGIT.search(parts[0])):
            self.fail(
                at, "the weight is outside 5e-324 to 1.8e308; divide both weights of the variable "
                "by one number",
            )  # fmt: skip
        if literal in self.weights:
            before = self.data.count(b"\n", 0, self.weights[literal].at) + 1
            self.fail(at, f"literal {literal} had a weight in line {before}")
        self.weights[literal] = _Weight(at, value)

    def _comment(self, at: int, words: list[bytes]) -> None:
        for start, message in _OTHERS:
            if words[: len(start)] == [w.encode() for w in start]:
                self.fail(at, message)
        if not words[0].startswith(b"c"):
            self.fail(at, "a clause, a comment (c) or 'p cnf' should stand here")

    def clauses(self) -> bytes:
        """The text with blanks for all other lines, so that places stay."""
        rest = self.data[self.end :].partition(b"\n")[2].strip()
        if rest not in (b"", b"0"):
            self.fail(self.end, "nothing but a 0 may follow a line that begins with %")
        return _LINES.sub(lambda line: b" " * len(line[0]), self.data[: self.end])

    def field(self) -> Floats:
        """Log-weights, false and true of each variable in turn."""
        weights = np.ones(2 * self.n_variables)
        if self.weights:
            literal = np.array(list(self.weights))
            values = [weight.value for weight in self.weights.values()]
            weights[2 * (np.abs(literal) - 1) + (literal > 0)] = values
        return to_log(weights)


def _literals(text: Numbers, file: _File) -> tuple[Ints, Ints]:
    """Literals of all clauses end to end, and how many each has."""
    values = text.values
    bad = (values != np.rint(values)) | ~(np.abs(values) <= file.n_variables)
    if bad.any():
        text.fail(int(np.argmax(bad)), f"not a literal: {file._range()}")
    if _LINES.sub(b"", file.data[: file.header]).strip():
        text.fail(0, "a clause before the line 'p cnf'")
    stops = np.flatnonzero(values == 0)
    if len(values) and (not len(stops) or stops[-1] < len(values) - 1):
        text.ends(f"clause {len(stops) + 1} is not ended by 0")
    if len(stops) > file.n_clauses:
        extra = int(stops[file.n_clauses - 1]) + 1 if file.n_clauses else 0
        text.fail(extra, f"clause {file.n_clauses + 1}, but 'p cnf' says {file.n_clauses:,}")
    if len(stops) < file.n_clauses:
        text.ends(f"there are {len(stops):,} clauses, but 'p cnf' says {file.n_clauses:,}")
    arity = np.diff(stops, prepend=-1) - 1
    if len(arity) and arity.min() == 0:
        k = int(np.argmin(arity))
        text.fail(
            int(stops[k]), f"clause {k + 1} is empty, so no assignment satisfies it",
            ContradictionError,
        )  # fmt: skip
    return values[values != 0].astype(np.int64), arity


def _groups(literals: Ints, arity: Ints) -> list[FactorGroup]:
    """Clauses by their number of literals, and those that always hold."""
    owner, variable = np.repeat(np.arange(len(arity)), arity), np.abs(literals) - 1
    order = np.lexsort((literals, variable, owner))
    same = (owner[order][1:] == owner[order][:-1]) & (variable[order][1:] == variable[order][:-1])
    always = np.zeros(len(arity), dtype=bool)
    if same.any():
        again = literals[order][1:] == literals[order][:-1]
        always[owner[order][1:][same & ~again]] = True
        keep = np.ones(len(literals), dtype=bool)
        keep[order[1:][same & again]] = False
        keep &= ~always[owner]
        literals, owner, variable = literals[keep], owner[keep], variable[keep]
        arity = np.bincount(owner, minlength=len(arity))
    first = np.cumsum(arity) - arity
    groups: list[FactorGroup] = []
    if always.any():
        ids = np.flatnonzero(always)
        scope = np.zeros((len(ids), 0), dtype=np.int32)
        groups.append(Tables(ids, scope, (), np.zeros((len(ids), 1))))
    for a in np.unique(arity[~always]).tolist():
        ids = np.flatnonzero((arity == a) & ~always)
        at = first[ids][:, None] + np.arange(a)
        states = (literals[at] > 0).astype(np.int32)
        scope, flip = variable[at].astype(np.int32), np.zeros(a, dtype=bool)
        groups.append(Clauses(ids, scope, (2,) * a, states, flip, np.full(len(ids), np.inf)))
    return groups


def write_cnf(graph: FactorGraph, path: PathLike) -> None:
    """Write hard clauses over binary variables, and weights of literals.

    The field and unary factors become weights; names are lost. Anything else is refused.
    """
    write_bytes(path, format_cnf(graph))


def format_cnf(graph: FactorGraph) -> bytes:
    """The text of a CNF file."""
    check_graph(graph, "a .cnf file")
    if (graph._n_states != 2).any():
        v = int(np.argmax(graph._n_states != 2))
        raise RefusedError(
            f"variable {graph.name(v)} has {graph._n_states[v]} states; a CNF file holds binary "
            "variables only: write the native format, .minfer"
        )
    log_w = graph.field.copy()
    lines: dict[int, str] = {}
    for g in graph.groups:
        if isinstance(g, Clauses) and np.isinf(g._theta).all():
            signs = np.where((g._literal == 1) != g.flip, 1, -1) * (g._scope + 1)
            texts = [" ".join(map(str, row)) + " 0" for row in signs.tolist()]
            lines |= dict(zip(g._ids.tolist(), texts))
        elif g.arity == 1 and g.has_tables:
            at = graph._offsets[g._scope[:, 0]][:, None] + np.arange(2)
            np.add.at(log_w, at, np.broadcast_to(g.log_tables(), at.shape))
        elif g.arity or g.log_tables().any():
            raise RefusedError(
                f"factor {g._ids[0]} is {g._a_noun}; a CNF file holds hard clauses and weights of "
                "literals: write the native format, .minfer"
            )
    names = [f"the weights of {graph.name(v)}" for v in range(graph.n_variables)]
    weights = to_linear(log_w.reshape(-1, 2), names, "CNF")
    text = [f"p cnf {graph.n_variables} {len(lines)}"]
    for v in np.flatnonzero((weights != 1.0).any(axis=1)).tolist():
        no, yes = weights[v].tolist()
        text += [f"c p weight {v + 1} {yes!r} 0", f"c p weight {-v - 1} {no!r} 0"]
    text += [lines[k] for k in sorted(lines)]
    return check_readable(graph, "CNF", "\n".join([*text, ""]).encode())
