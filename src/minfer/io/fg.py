"""libDAI's factor graph format, ``.fg``.

The number of factors, then for each factor, usually after a blank line: its number of variables,
their labels, their numbers of states, the number of entries that follow, and a line ``index value``
for each; entries left out are zero. The FIRST variable of a table runs fastest. Lines that begin
with ``#`` are comments.

Labels are any non-negative integers. The variables are those mentioned, by increasing label; if the
labels are not 0, 1, 2, ..., variables are named after them, ``x7``; their numbers still run from 0,
and it is these that an evidence file gives.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from minfer.basics.checks import check_graph, table_sizes
from minfer.errors import FormatError, RefusedError
from minfer.factors.group import Floats, Ints
from minfer.graph import FactorGraph
from minfer.io.opening import parsed
from minfer.io.tables import (
    MAX_ARITY,
    LinearGroup,
    check_distinct,
    check_not_zero,
    linear_groups,
    most_declared,
    pointers,
    ranges,
    to_log,
)
from minfer.io.text import Numbers, PathLike, write_bytes


class _Layout(NamedTuple):
    """Where things stand among the numbers of a file."""

    arity: Ints  # (F,)
    first: Ints  # (F,) the token that gives the arity
    n_entries: Ints  # (F,)
    labels_at: Ints  # (sum of arity,)
    states_at: Ints  # (sum of arity,)
    index_at: Ints  # (sum of n_entries,) each value stands right after its index


def read_fg(path: PathLike) -> FactorGraph:
    """Read a libDAI factor graph; ``-`` for standard input, gzip is recognised."""
    return parsed(path, parse_fg)


def parse_fg(name: str, data: bytes) -> FactorGraph:
    """The model in the text ``data``; ``name`` is the file for messages."""
    if b"#" in data:
        data = re.sub(rb"(?m)^[ \t]*#[^\n]*", b"", data)
    text = Numbers(name, data)
    if not len(text):
        raise FormatError(f"{name}: line 1: the file is empty; it should give a number of factors")
    text.require_finite()
    layout = _read_layout(text)
    labels, scopes, n_states = _read_variables(text, layout)
    tables, ptr = _read_entries(text, layout, n_states[scopes])
    check_not_zero(text, tables, ptr, layout.first)
    plain = np.array_equal(labels, np.arange(len(labels)))
    graph = FactorGraph.empty(n_states, None if plain else [f"x{k}" for k in labels])
    return graph.add_flat_tables(layout.arity, scopes.astype(np.int32), to_log(tables))


def _read_layout(text: Numbers) -> _Layout:
    n = text.integer(0, "the number of factors", (len(text) - 1) // 2)
    at, total, item = 1, len(text), text.values.item
    first, arities, counts = [], [], []
    for factor in range(n):
        if at >= total:
            text.ends(f"factor {factor} of {n} is missing")
        arity = item(at)
        if arity > MAX_ARITY or not arity.is_integer():
            text.fail(
                at,
                f"the number of variables of factor {factor} must be an integer "
                f"from 0 to {MAX_ARITY}",
            )
        count_at = at + 1 + 2 * int(arity)
        what = f"the number of entries of factor {factor}"
        count = text.integer(count_at, what, (total - count_at - 1) // 2)
        first.append(at)
        arities.append(int(arity))
        counts.append(count)
        at = count_at + 1 + 2 * count
    if at < total:
        text.fail(at, "nothing may follow the last factor")
    begin, arity_, count_ = (np.array(a, dtype=np.int64) for a in (first, arities, counts))
    labels_at = ranges(begin + 1, arity_)
    states_at = labels_at + np.repeat(arity_, arity_)
    index_at = ranges(begin + 2 + 2 * arity_, 2 * count_)[::2]
    return _Layout(arity_, begin, count_, labels_at, states_at, index_at)


def _read_variables(text: Numbers, layout: _Layout) -> tuple[Ints, Ints, Ints]:
    """Labels (V,), scopes (sum of arity,) as numbers of variables, and numbers of states (V,)."""
    found = text.integers(layout.labels_at, "a variable's label")
    states = text.integers(layout.states_at, "a number of states")
    if states.size and states.min() < 1:
        bad = layout.states_at[np.argmin(states)]
        text.fail(int(bad), "a variable needs at least one state")
    labels, place, scopes = np.unique(found, return_index=True, return_inverse=True)
    n_states = states[place]
    differs = states != n_states[scopes]
    if differs.any():
        k = int(np.argmax(differs))
        text.fail(
            int(layout.states_at[k]),
            f"variable {found[k]} had {n_states[scopes[k]]} states in an earlier factor",
        )
    check_distinct(text, scopes, layout.arity, layout.labels_at)
    return labels, scopes, n_states


def _read_entries(text: Numbers, layout: _Layout, states: Ints) -> tuple[Floats, Ints]:
    """Dense tables end to end, last variable fastest, and where each begins."""
    size = table_sizes(states, layout.arity)
    most = most_declared(text.n_bytes)  # zeros may be left out
    if size.sum() > most:
        factor = int(np.argmax(np.cumsum(size) > most))
        text.fail(
            int(layout.first[factor]),
            f"the tables up to factor {factor} have {size[: factor + 1].sum():.6g} entries, "
            f"of which this file of {text.n_bytes:,} bytes may declare {most:,}: is a number of "
            "states wrong? If not, build the model in Python",
        )
    owner = np.repeat(np.arange(len(size)), layout.n_entries)
    index = text.values[layout.index_at]
    bad = (index != np.floor(index)) | (index >= size[owner])
    if bad.any():
        k = int(np.argmax(bad))
        text.fail(
            int(layout.index_at[k]),
            f"an index into the table of factor {owner[k]} is an integer "
            f"from 0 to {size[owner[k]] - 1:.0f}",
        )
    ptr = pointers(size.astype(np.int64))
    cell = ptr[owner] + _last_fastest(index.astype(np.int64), owner, states, layout.arity)
    tables = np.full(ptr[-1], -1.0)
    tables[cell] = text.values[layout.index_at + 1]
    unset = tables < 0
    if np.count_nonzero(unset) != ptr[-1] - len(cell):
        order = np.argsort(cell, kind="stable")
        k = int(order[1:][cell[order][1:] == cell[order][:-1]].min())
        text.fail(int(layout.index_at[k]), f"factor {owner[k]} gives this entry twice")
    tables[unset] = 0.0
    return tables, ptr


def _last_fastest(index: Ints, owner: Ints, states: Ints, arity: Ints) -> Ints:
    """Turn indices that count the first variable fastest into those that count the last so."""
    begin, out = pointers(arity), index.copy()
    for a in np.unique(arity[arity > 1]):
        rows = np.flatnonzero(arity[owner] == a)
        left, cell = index[rows], np.zeros(len(rows), dtype=np.int64)
        for k in range(a):
            s = states[begin[owner[rows]] + k]
            cell = cell * s + left % s
            left //= s
        out[rows] = cell
    return out


def write_fg(graph: FactorGraph, path: PathLike) -> None:
    """Write a libDAI factor graph.

    Tables are stored linearly without their zeros, features as tables, the field (evidence) as
    further unary tables after the last factor, and a variable in no factor gets a table of ones, as
    the format knows no others. Names are lost, except that variables called ``x2``, ``x7``, ... in
    increasing order keep these labels. Log-values beyond the range of doubles and global factors
    are refused: the native format keeps the former.
    """
    write_bytes(path, format_fg(graph))


def format_fg(graph: FactorGraph) -> bytes:
    """The text of a ``.fg`` file."""
    labels = _labels(graph)
    groups = list(linear_groups(graph, "libDAI"))
    groups += _unmentioned(graph, groups)
    blocks: dict[int, str] = {}
    for group in groups:
        size, arity = group.tables.shape[1], len(group.shape)
        order = np.arange(size).reshape(group.shape).ravel(order="F")
        tables = group.tables[:, order].tolist()
        some = ([f"{i} {x!r}" for i, x in enumerate(row) if x] for row in tables)
        rows = ["\n".join([str(len(lines)), *lines]) for lines in some]
        shape = " ".join(map(str, group.shape))
        rows = rows * len(group.ids) if len(rows) == 1 else rows
        for i, scope, entries in zip(group.ids.tolist(), group.scope.tolist(), rows):
            names = " ".join(str(labels[v]) for v in scope)
            blocks[i] = f"\n{arity}\n{names}\n{shape}\n{entries}"
    lines = [str(len(blocks)), *(blocks[i] for i in range(len(blocks))), ""]
    data = "\n".join(lines).encode()
    entries = sum(len(group.ids) * group.tables.shape[1] for group in groups)
    if entries > most_declared(len(data)):
        raise RefusedError(
            f"a libDAI file could not be read back: its {len(data):,} bytes may declare "
            f"{most_declared(len(data)):,} entries, but the tables have {entries:,}, nearly all "
            "of them zeros: write the native format, .minfer"
        )
    return data


def _labels(graph: FactorGraph) -> list[int]:
    """The numbers in names x2, x7, ... if they increase, else 0, 1, 2, ..."""
    check_graph(graph, "a .fg file")
    names = graph.names or ()
    if all(re.fullmatch("x(0|[1-9][0-9]{0,8})", name) for name in names):
        labels = [int(name[1:]) for name in names]
        if labels and all(a < b for a, b in pairwise(labels)):
            return labels
    return list(range(graph.n_variables))


def _unmentioned(graph: FactorGraph, groups: list[LinearGroup]) -> list[LinearGroup]:
    """A table of ones for each variable that is in no factor."""
    free = np.ones(graph.n_variables, dtype=bool)
    for group in groups:
        free[group.scope] = False
    first = sum(len(group.ids) for group in groups)
    return [
        LinearGroup(
            np.array([first + k]),
            np.array([[v]], dtype=np.int32),
            (int(graph._n_states[v]),),
            np.ones((1, int(graph._n_states[v]))),
        )
        for k, v in enumerate(np.flatnonzero(free))
    ]
