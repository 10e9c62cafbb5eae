"""The UAI competition's formats: model, evidence, marginals (MAR) and partition function (PR).

Model: ``MARKOV`` or ``BAYES`` (both mean a product of tables), the number of variables, their
numbers of states, the number of factors, for each factor its arity and variables, then for each
factor the number of entries and the entries: linear, not negative, row-major over the scope as
written, the last variable fastest. Whitespace of any kind separates.

``BAYES`` says that each table is the conditional distribution of its last variable. Tables whose
rows sum to one within 1e-4 are taken so, each row divided by its sum; others are plain factors, and
a warning tells how many. ``MARKOV`` tables are taken as they stand.

The format has no comments, but files do: ``//`` and ``#`` to the end of a line and ``/* */`` are
skipped in all four kinds of files, since no number holds these characters.

Evidence: ``k v1 x1 ... vk xk``, or the same after a first line ``1``, the number of evidence sets;
or a JSON object (:mod:`minfer.io.evidence`).

MAR: ``MAR``, then ``n c1 p p .. c2 p p ..`` for all n variables. PR: ``PR``, then log10 of Z.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from minfer.basics.checks import check_graph, check_type, table_sizes, warn
from minfer.basics.words import counted
from minfer.errors import (
    ContradictionError,
    EvidenceError,
    FormatError,
    ModelError,
    RefusedError,
    visible,
)
from minfer.factors.group import Floats, Ints
from minfer.graph import FactorGraph, with_any_evidence
from minfer.io.evidence import is_json, numbered_evidence, parse_json_evidence
from minfer.io.opening import parsed
from minfer.io.tables import (
    MAX_ARITY,
    check_distinct,
    check_not_zero,
    check_readable,
    linear_groups,
    pointers,
    ranges,
    states_complaint,
    to_log,
)
from minfer.io.text import Numbers, PathLike, check_text, place, shown, write_bytes
from minfer.model.directed import FlatTables, order_or_cycle, with_flat_conditionals
from minfer.solvers.base import Marginals

Evidence = PathLike | Mapping[Any, Any]

#: One that is not closed is the last.
_COMMENT = re.compile(rb"(?://|#)[^\n]*|/\*[\s\S]*?(?:\*/|\Z)")


def read_uai(path: PathLike, evidence: Evidence | None = None) -> FactorGraph:
    """Read a MARKOV or BAYES model; the tables of the latter keep their direction.

    Parameters
    ----------
    path : str or Path
        ``-`` for standard input; gzip is recognised.
    evidence : path of an evidence file, or ``{variable: state, or likelihoods}``, optional
    """
    return with_evidence(parsed(path, parse_uai), evidence)


def with_evidence(graph: FactorGraph, evidence: Evidence | None) -> FactorGraph:
    """Apply evidence given as a mapping or as the path of an evidence file."""
    if evidence is None:
        return graph
    found = evidence if isinstance(evidence, Mapping) else read_evidence(evidence, graph)
    return with_any_evidence(graph, found)


def parse_uai(name: str, data: bytes) -> FactorGraph:
    """The model in the text ``data``; ``name`` is the file for messages."""
    data = without_comments(name, data)
    text = _after_word(name, data, (b"MARKOV", b"BAYES"))
    text.require_finite()
    n = text.integer(0, "the number of variables", len(text) - 1)
    n_states = text.integers(np.arange(1, n + 1), "a number of states")
    if n and n_states.min() < 1:
        text.fail(1 + int(np.argmin(n_states)), "a variable needs at least one state")
    if complaint := states_complaint(int(n_states.sum(dtype=np.int64)), text.n_bytes):
        text.fail(1 + int(np.argmax(n_states)), complaint)
    arity, first, at = _read_scopes(text, n + 1, n)
    where = ranges(first + 1, arity)
    scopes = text.integers(where, "a variable")
    if scopes.size and scopes.max() >= len(n_states):
        bad = int(np.argmax(scopes >= len(n_states)))
        text.fail(int(where[bad]), f"there is no such variable; they are 0 to {len(n_states) - 1}")
    check_distinct(text, scopes, arity, where)
    tables, ptr, where = _read_tables(text, at, table_sizes(n_states[scopes], arity))
    check_not_zero(text, tables, ptr, where)
    graph = FactorGraph.empty(n_states)
    if data.lstrip().startswith(b"BAYES") and len(arity):
        directed = _directed(name, graph, arity, scopes, tables)
        if directed is not None:
            return directed
    return graph.add_flat_tables(arity, scopes.astype(np.int32), to_log(tables))


def _directed(
    name: str, graph: FactorGraph, arity: Ints, scopes: Ints, tables: Floats
) -> FactorGraph | None:
    """The model of a BAYES file, if it is one; a warning says why not."""
    if arity.min() == 0:
        _note(name, "a table has no variable")
        return None
    end = np.cumsum(arity)
    children = scopes[end - 1]
    parents = {int(v): scopes[e - a : e - 1].tolist() for v, e, a in zip(children, end, arity)}
    if len(parents) < len(children) or order_or_cycle(parents)[1]:
        _note(name, "its last variables are not one to a table, or form a cycle")
        return None
    known = FlatTables(graph, arity, scopes, tables)
    fault = known.fault()
    if fault is None:
        return with_flat_conditionals(graph, known)
    good = known.are_conditional()
    _note(
        name,
        f"{(~good).sum():,} of {len(good):,} tables are not conditional distributions and are read "
        f"as plain factors; of factor {fault.table}, {fault.message}",
    )
    logs = to_log(known.normalised(good))
    whole = graph.add_flat_tables(arity, scopes.astype(np.int32), logs)
    return whole._renumbered(_child=np.where(good, children, -1).astype(np.int32))


def _note(name: str, what: str) -> None:
    warn(f"{visible(name)}: the file says BAYES, but {what}")


def without_comments(name: str, data: bytes) -> bytes:
    """The text with blanks for its comments, so that places stay."""
    if b"#" not in data and b"/" not in data:
        return data

    def blank(comment: re.Match[bytes]) -> bytes:
        found = comment[0]
        if found.startswith(b"/*") and not (found.endswith(b"*/") and len(found) > 3):
            where = place(data, comment.start(), b"/*")
            raise FormatError(f"{name}: {where}: this comment is never closed")
        return re.sub(rb"[^\n]", b" ", found)

    return _COMMENT.sub(blank, data)


def _after_word(name: str, data: bytes, words: tuple[bytes, ...]) -> Numbers:
    """The numbers after the first word, which must be one of ``words``."""
    want = " or ".join(w.decode() for w in words)
    match = re.match(rb"\s*(\S+)", data)
    if match is None:
        raise FormatError(f"{name}: line 1: the file is empty; it should start with {want}")
    if match[1] not in words:
        check_text(name, data)
        where = place(data, match.start(1), match[1])
        raise FormatError(f"{name}: {where}: the file should start with {want}")
    return Numbers(name, data, match.end())


def _read_scopes(text: Numbers, at: int, n_variables: int) -> tuple[Ints, Ints, int]:
    """Arity of each factor, the token that gives it, and where the tables begin."""
    n = text.integer(at, "the number of factors", (len(text) - at - 1) // 3)
    at, most, total = at + 1, float(min(n_variables, MAX_ARITY)), len(text)
    item = text.values.item
    first, arities = [], []
    for factor in range(n):
        if at >= total:
            text.ends(f"the scope of factor {factor} of {n} is missing")
        arity = item(at)
        if arity > most or not arity.is_integer():
            text.fail(
                at,
                f"the number of variables of factor {factor} must be an integer "
                f"from 0 to {int(most)}",
            )
        first.append(at)
        arities.append(arity)
        at += 1 + int(arity)
    if at > total:
        text.ends(f"the scope of factor {n - 1} of {n} is incomplete")
    return np.array(arities, dtype=np.int64), np.array(first, dtype=np.int64), at


def _read_tables(text: Numbers, at: int, sizes: Floats) -> tuple[Floats, Ints, Ints]:
    """All entries end to end, where each table begins among them, and its count token."""
    rest = len(text) - at
    whole = int(np.searchsorted(np.cumsum(sizes + 1), rest, side="right"))  # tables that fit
    counts = at + pointers(sizes[:whole].astype(np.int64) + 1)
    declared = np.minimum(counts, max(len(text) - 1, 0))[: min(whole + 1, len(sizes))]
    wrong = text.values[declared] != sizes[: len(declared)]
    if wrong.any() and counts[int(np.argmax(wrong))] < len(text):
        factor = int(np.argmax(wrong))
        text.fail(
            int(counts[factor]),
            f"the table of factor {factor} should have {sizes[factor]:.15g} "
            "entries, the product of its variables' numbers of states",
        )
    if whole < len(sizes):
        text.ends(f"the table of factor {whole} of {len(sizes)} is incomplete")
    if counts[-1] < len(text):
        text.fail(int(counts[-1]), "nothing may follow the last table")
    entry = np.ones(rest, dtype=bool)
    entry[counts[:-1] - at] = False
    return text.values[at:][entry], pointers(sizes.astype(np.int64)), counts[:-1]


def read_evidence(path: PathLike, graph: FactorGraph) -> dict[int, Any]:
    """Read an evidence file: UAI's in either variant, or JSON (:mod:`minfer.io.evidence`).

    Returns
    -------
    {variable: state, or likelihoods of its states}
        By number. Only JSON has likelihoods, float arrays (S,).
    """
    check_graph(graph, "read_evidence")

    def parse(name: str, data: bytes) -> dict[int, Any]:
        if is_json(data):
            return numbered_evidence(graph, parse_json_evidence(data, name), name)
        return _read_pairs(Numbers(name, without_comments(name, data)), graph)

    return parsed(path, parse)


def _read_pairs(text: Numbers, graph: FactorGraph) -> dict[int, int]:
    """Both variants of UAI's; they differ in the parity of the token count."""
    if not len(text):
        raise FormatError(f"{text.name}: line 1: the file is empty; no evidence is written as 0")
    text.require_finite()
    values = text.integers(np.arange(len(text)), "evidence").tolist()
    n, at = values[0], 0  # where the number of observed variables stands
    if len(values) != 1 + 2 * n:
        at = 1
        if n != 1 or len(values) == 1 or len(values) != 2 + 2 * values[1]:
            text.fail(0, _evidence_complaint(values))
    evidence: dict[int, int] = {}
    for k in range(at + 1, len(values), 2):
        variable, state = values[k], values[k + 1]
        if variable >= graph.n_variables:
            text.fail(
                k,
                f"evidence on an unknown variable; the model has {graph.n_variables:,}, "
                "counted from 0",
                EvidenceError,
            )
        if state >= graph._n_states[variable]:
            last = graph._n_states[variable] - 1
            text.fail(k + 1, f"variable {variable} has states 0 to {last}", EvidenceError)
        if evidence.setdefault(variable, state) != state:
            text.fail(
                k + 1,
                f"contradictory evidence: variable {variable} was {evidence[variable]} before",
                ContradictionError,
            )
    return evidence


def _evidence_complaint(values: list[int]) -> str:
    n, at = values[0], 1
    for _ in range(n if 1 < n < len(values) else 0):
        at += 1 + 2 * values[at] if at < len(values) else 1
    if at == len(values) > 1:
        return f"the file has {n} evidence sets; keep one of them"
    return (
        f"{len(values)} numbers are not evidence: k observations take 1 + 2k of them, "
        "or 2 + 2k after a leading 1"
    )


def write_uai(graph: FactorGraph, path: PathLike) -> None:
    """Write a MARKOV file, or a BAYES file if the model is a Bayesian network without evidence.

    Tables are stored linearly, features as tables, the field (evidence) as further unary tables
    after the last factor; names are lost. Log-values beyond the range of doubles and global
    factors are refused: the native format keeps the former.
    """
    write_bytes(path, format_uai(graph))


def format_uai(graph: FactorGraph) -> bytes:
    """The text of a UAI file."""
    check_graph(graph, "a UAI file")
    scopes: dict[int, str] = {}
    tables: dict[int, str] = {}
    for group in linear_groups(graph, "UAI"):
        ids, size = group.ids.tolist(), group.tables.shape[1]
        for i, scope in zip(ids, group.scope.tolist()):
            scopes[i] = " ".join(map(str, [len(scope), *scope]))
        rows = [f"{size}\n{' '.join(map(repr, row))}\n" for row in group.tables.tolist()]
        tables.update(zip(ids, rows * len(ids) if len(rows) == 1 else rows))
    child = graph._child if graph.directed and not graph.field.any() else None
    word = "MARKOV"
    if child is not None and all((g._scope[:, -1] == child[g._ids]).all() for g in graph.groups):
        word = "BAYES"  # a network without evidence, its children last in their scopes
    head = [word, str(graph.n_variables), " ".join(map(str, graph._n_states.tolist()))]
    order = range(len(scopes))
    lines = [*head, str(len(scopes)), *(scopes[i] for i in order), "", *(tables[i] for i in order)]
    return check_readable(graph, "UAI", ("\n".join(lines).rstrip("\n") + "\n").encode())


def write_mar(marginals: Marginals, path: PathLike) -> None:
    """Write all marginals, evidence variables too, with the digits that make them exact."""
    check_type(marginals, Marginals, "write_mar takes Marginals", ModelError)
    words = [str(marginals.graph.n_variables)]
    probs, at = marginals.probs.tolist(), 0
    for n in marginals.graph._n_states.tolist():
        words += [str(n), *map(repr, probs[at : at + n])]
        at += n
    write_bytes(path, f"MAR\n{' '.join(words)}\n".encode())


def write_pr(marginals: Marginals, path: PathLike) -> None:
    """Write log10 of the partition function, evidence applied."""
    check_type(marginals, Marginals, "write_pr takes Marginals", ModelError)
    log_z = marginals.log_z
    if not math.isfinite(log_z):
        raise RefusedError(f"log Z is {log_z}: {marginals.solver} gives none; use another solver")
    write_bytes(path, f"PR\n{log_z / math.log(10)!r}\n".encode())


def read_mar(path: PathLike, graph: FactorGraph | None = None) -> list[Floats]:
    """Marginals of all variables; a number of evidence sets, 1, before them is skipped.

    With a ``graph`` they must be of its variables.
    """
    text = _plain_after_word(path, b"MAR")
    text.require_finite()
    start = int(_mar_end(text.values, 0) != len(text) == _mar_end(text.values, 1))
    n = text.integer(start, "the number of variables", (len(text) - start - 1) // 2)
    at, out = start + 1, []
    for v in range(n):
        size = text.integer(at, f"the number of states of variable {v}", len(text) - at - 1)
        out.append(text.values[at + 1 : at + 1 + size])
        at += 1 + size
    if at < len(text):
        text.fail(at, "nothing may follow the last variable")
    sizes = [len(p) for p in out]
    if graph is not None and sizes != graph.n_states.tolist():
        raise FormatError(
            f"{shown(path)}: it has {counted(len(sizes), 'variable')} with "
            f"{counted(sum(sizes), 'state')}, the model {graph.n_variables} with "
            f"{int(graph.n_states.sum())}"
        )
    return out


def _plain_after_word(path: PathLike, word: bytes) -> Numbers:
    return parsed(path, lambda name, data: _after_word(name, without_comments(name, data), (word,)))


def _mar_end(values: Floats, start: int) -> int:
    """Where marginals that begin at ``start`` would end; -1 after anything but a leading 1."""
    if len(values) <= start or (start == 1 and values[0] != 1):
        return -1
    at, left = start + 1, values.item(start)
    while left > 0 and at < len(values):
        at, left = at + 1 + int(values.item(at)), left - 1
    return at if left == 0 else -1


def read_pr(path: PathLike) -> float:
    """log10 of Z as a PR file gives it; a number of evidence sets, 1, before it is skipped."""
    text = _plain_after_word(path, b"PR")
    if not len(text):
        text.ends("log10 of Z is missing")
    if len(text) > 2 or (len(text) == 2 and text.values[0] != 1):
        text.fail(1, "nothing may follow log10 of Z")
    if not np.isfinite(text.values[-1]):
        text.fail(len(text) - 1, "log10 of Z must be finite")
    return text.values.item(len(text) - 1)
