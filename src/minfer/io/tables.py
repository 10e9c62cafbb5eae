"""Between log-tables in memory and the linear tables of the text formats.

A number is written with the fewest digits (at most 17) that read back as the same double. Reading
takes its logarithm and writing the exponential, and rounding could let a value creep from one
generation of files to the next: exp(log(3)) is not 3. So a log-value l is written as an x with
log(x) = l, a short one if there is one. Only where doubles are too coarse for any (|l| < 1) does l
move, once, by a rounding error. From then on files repeat byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_graph
from minfer.errors import ContradictionError, RefusedError
from minfer.factors.group import Floats, Ints

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.io.text import Numbers

MAX_ARITY = 32  # variables of one table in a text format; more could only have one state each
#: Numbers that a file may declare without writing them down, states of variables or zeros of
#: tables: this many, or so many for each of its bytes. Who reads it needs 8 bytes for each.
DECLARED, DECLARED_PER_BYTE = 1 << 22, 64
_LOWEST, _HIGHEST = -708.39, 709.78  # natural logs of the normal doubles, rounded inwards
_POWERS = np.array([float(f"1e{k}") for k in range(23)])  # the powers of 10 that are doubles


class LinearGroup(NamedTuple):
    """Factors of one shape with their tables as they are written."""

    ids: Ints  # (F,) numbers in the file
    scope: NDArray[np.int32]  # (F, A)
    shape: tuple[int, ...]
    tables: Floats  # (F, prod shape), or (1, prod shape) if shared


def linear_groups(graph: FactorGraph, kind: str) -> Iterator[LinearGroup]:
    """Every factor as a linear table; the field as further unary tables after the last factor."""
    check_graph(graph, f"a {kind} file")
    for g in graph.groups:
        if g.form == "messages" or not g.has_tables:
            raise RefusedError(
                f"factor {g._ids[0]} is {g._a_noun}: it has no table that a {kind} file could hold"
            )
        if g.arity > MAX_ARITY:
            raise RefusedError(
                f"factor {g._ids[0]} has {g.arity} variables; a {kind} file is limited to "
                f"{MAX_ARITY}: write the native format, .minfer"
            )
        log_tables = g.log_tables(slice(0, 1) if g.shared else slice(None))
        names = [f"factor {i}" for i in g._ids[: len(log_tables)]]
        yield LinearGroup(g._ids, g._scope, g.shape, to_linear(log_tables, names, kind))
    yield from _field_groups(graph, kind)


def _field_groups(graph: FactorGraph, kind: str) -> Iterator[LinearGroup]:
    """One unary table per variable of which the field says anything."""
    if graph._field is None or not graph.n_variables:
        return
    said = np.flatnonzero(np.add.reduceat(graph._field != 0, graph._offsets[:-1]))
    ids = graph.n_factors + np.arange(len(said))
    for s in np.unique(graph._n_states[said]):
        rows = np.flatnonzero(graph._n_states[said] == s)
        variables = said[rows].astype(np.int32)
        log_tables = graph._field[graph._offsets[variables][:, None] + np.arange(s)]
        names = [f"the evidence on {graph.name(v)}" for v in variables]
        tables = to_linear(log_tables, names, kind)
        yield LinearGroup(ids[rows], variables[:, None], (int(s),), tables)


def to_linear(log_tables: NDArray, names: list[str], kind: str) -> Floats:
    """Exponentials of log-tables (R, S) as they are written; ``names`` are the rows' for errors."""
    log_tables = np.ascontiguousarray(log_tables)
    outside = ((log_tables < _LOWEST) & (log_tables > -np.inf)) | (log_tables > _HIGHEST)
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise RefusedError(
            f"{names[row]} has log-value {log_tables[row, column]:.6g}; a {kind} file stores "
            "exp of it, which spans logs from -708 to 709 only: write the native format, .minfer"
        )
    if len(log_tables) and (log_tables.max(axis=1) == -np.inf).any():
        row = int(np.argmax(log_tables.max(axis=1) == -np.inf))
        raise ContradictionError(f"{names[row]} forbids every state; no {kind} file holds that")
    return _exp(log_tables.ravel()).reshape(log_tables.shape)


def _exp(log_x: Floats) -> Floats:
    """exp, but to values whose logs are ``log_x`` again where that can be had."""
    x, missed = _inverse_of_log(log_x)
    if len(missed):
        x[missed], _ = _inverse_of_log(to_log(np.exp(log_x[missed])))
    return x


def _inverse_of_log(log_x: Floats) -> tuple[Floats, Ints]:
    """Some x with log(x) == log_x, and where none was found within four units of exp(log_x)."""
    exact = np.exp(log_x)
    x = exact.copy()
    todo = np.arange(len(x))
    for candidate in _CANDIDATES:
        x[todo] = candidate(exact[todo])
        todo = todo[to_log(x[todo]) != log_x[todo]]
        if not len(todo):
            break
    x[todo] = exact[todo]
    return x, todo


def _round(digits: int, x: Floats) -> Floats:
    """To some significant digits where that is exact: with a power 10**k, 0 <= k <= 22."""
    out = x.copy()
    inside = np.flatnonzero((x > 1e-7) & (x < 1e11))
    scale = _POWERS[digits - 1 - np.floor(np.log10(x[inside])).astype(np.int64)]
    out[inside] = np.rint(x[inside] * scale) / scale
    return out


#: What may stand for exp(l): short numbers first, then the nearest doubles.
_CANDIDATES = [
    *(partial(_round, digits) for digits in (12, 15)),
    *(partial(lambda n, x: x + n * np.spacing(x), n) for n in (0, 1, -1, 2, -2, 3, -3, 4, -4)),
]


def to_log(x: Floats) -> Floats:
    """Natural logs; zeros become minus infinity."""
    with np.errstate(divide="ignore"):
        return np.log(x)


def most_declared(n_bytes: int) -> int:
    """How many numbers a file of this size may declare."""
    return max(DECLARED, DECLARED_PER_BYTE * n_bytes)


def states_complaint(total: int, n_bytes: int) -> str:
    """What is wrong with so many states in a file of so many bytes; empty if nothing.

    An answer has a number for each state, whether or not a table mentions it, so their number is
    held against the bytes of the file although reading alone would not need them.
    """
    if total <= most_declared(n_bytes):
        return ""
    return (
        f"the variables have {total:,} states together, for which an answer takes "
        f"{total / 2**27:,.1f} GiB; a file of {n_bytes:,} bytes may declare "
        f"{most_declared(n_bytes):,}: if that many are meant, build the model in Python"
    )


def check_readable(graph: FactorGraph, kind: str, data: bytes) -> bytes:
    """The bytes of a file, unless they declare more states than a reader accepts."""
    if complaint := states_complaint(int(graph._n_states.sum(dtype=np.int64)), len(data)):
        raise RefusedError(f"a {kind} file could not be read back: {complaint}")
    return data


def pointers(sizes: Ints) -> Ints:
    """Where consecutive blocks begin, and where the last one ends, shape (n + 1,)."""
    out = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=out[1:])
    return out


def ranges(first: Ints, sizes: Ints) -> Ints:
    """first[0], first[0]+1, ..., (sizes[0] of them), then first[1], ...: shape (sum of sizes,)."""
    ptr = pointers(sizes)
    return np.arange(ptr[-1]) + np.repeat(first - ptr[:-1], sizes)


def check_distinct(text: Numbers, scopes: NDArray, arity: Ints, where: Ints) -> None:
    """No variable twice in one scope; ``where`` are the tokens that name the variables."""
    owner = np.repeat(np.arange(len(arity)), arity)
    order = np.lexsort((scopes, owner)) if len(scopes) else owner
    twice = (scopes[order][1:] == scopes[order][:-1]) & (owner[order][1:] == owner[order][:-1])
    if twice.any():
        k = order[1:][twice].min()
        text.fail(int(where[k]), f"factor {owner[k]} has this variable twice")


def check_not_zero(text: Numbers, tables: NDArray, ptr: Ints, where: Ints) -> None:
    """No table of zeros only; ``where`` is a token to blame for each factor."""
    if len(ptr) < 2:
        return
    zero = np.maximum.reduceat(tables, ptr[:-1]) == 0
    if zero.any():
        factor = int(np.argmax(zero))
        text.fail(
            int(where[factor]),
            f"the table of factor {factor} is all zeros: every assignment has probability zero",
            ContradictionError,
        )
