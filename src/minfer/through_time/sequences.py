"""Tables of cases over time: which rows make up a sequence, and what each slice has observed.

A row is a slice. The columns ``case`` and ``time`` say which sequence it belongs to and when;
without the first all rows are one sequence, without the second each row is the next slice. Rows of
different cases may be mixed. Within a case times rise, and steps that are left out are slices
without observation. Cells are read as those of :func:`minfer.predict` are; in a list of evidence
{variable: state, or likelihoods} likelihoods may stand in place of states.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_type, integer, real_numbers
from minfer.errors import EvidenceError, ModelError, SettingsError, visible
from minfer.graph import FactorGraph
from minfer.model.evidence import (
    Factorised,
    StateReader,
    Table,
    is_array,
    is_missing,
    soft_evidence,
    states_of,
    table_of,
)
from minfer.model.states import check_columns, number_of
from minfer.prediction import files

Ints = NDArray[np.int64]

#: Slices without observation that a table may imply: so many, or so many for each row.
MOST_GAPS, GAPS_EACH = 1_000_000, 1_000
_ALL_ROWS = 1 << 31


@dataclass(eq=False)
class Sequences:
    """C sequences of R slices in all, from a table of N rows."""

    states: NDArray[np.int32]  # (R, V), -1 nothing known, -2 - a row of ``likelihoods``
    likelihoods: NDArray[np.float64]  # (., most states), logs, each with maximum 0
    scale: NDArray[np.float64]  # (R,) log of what the likelihoods of a slice were divided by
    first: Ints  # (C,) where a sequence begins
    length: Ints  # (C,)
    where: Ints  # (N,) the slice of each row
    row_case: Ints  # (N,) its sequence
    times: Ints  # (N,)
    begin: Ints  # (C,) time of the first slice
    table: Table
    case: str | None
    time: str | None
    evidence: list[str]  # the variables that have columns
    row_from: int  # rows of files are counted from 1

    @property
    def n(self) -> int:
        return len(self.first)

    def labels(self) -> list[Any]:
        """What cases are called in the table; nothing where there is no such column."""
        if self.case is None:
            return []
        column, rows = self.table.column(self.case), np.unique(self.row_case, return_index=True)[1]
        return [column.values[k] for k in column.places[rows].tolist()]

    def place(self, c: int, t: int) -> str:
        """A slice in words."""
        at = f"time {int(self.begin[c]) + t}"
        return at if self.case is None else f"case {visible(str(self.labels()[c]))}, {at}"

    def extended(self, by: int) -> Sequences:
        """Each sequence with so many slices more, of which nothing is known."""
        length = self.length + by
        first = np.cumsum(length) - length
        states = np.full((int(length.sum()), self.states.shape[1]), -1, dtype=np.int32)
        scale = np.zeros(len(states))
        new = np.arange(len(self.states)) + np.repeat(np.arange(self.n) * by, self.length)
        states[new], scale[new] = self.states, self.scale
        known = {"states": states, "scale": scale, "first": first, "length": length}
        return Sequences(**{**self.__dict__, **known})


def sequences_of(
    graph: FactorGraph,
    rows: Any,
    who: str,
    *,
    case: str | None = None,
    time: str | None = None,
    soft: Mapping[str, Any] | None = None,
    missing: Iterable[str] = ("",),
) -> Sequences:
    """Read a table; ``graph`` has the variables of a slice."""
    check_type(missing, Iterable, f"{who}: missing must be a list of texts")
    pairs: list[tuple[int, int, Any]] = []  # row, variable, likelihoods
    row_from = 0
    if isinstance(rows, str | os.PathLike):
        with files.open_cases(rows, who) as source:
            tables = list(source.tables(list(source.names), _ALL_ROWS))
            row_from = 1
            table = tables[0] if tables else table_of({name: [] for name in source.names}, who=who)
    elif is_array(rows) and not _is_nested(rows):
        if _is_flat(rows):
            raise EvidenceError(
                f"{who}: a list of states does not say what they are of: give "
                "{variable: states}, or an array (T, variables)"
            )
        states = states_of(graph, rows, who)
        names = [graph.name(v) for v in range(graph.n_variables)]
        table = table_of({name: states[:, v] for v, name in enumerate(names)}, who=who)
    else:
        if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
            if _is_nested(rows):
                rows, case = _joined(graph, rows, case, who)
            rows, pairs = _split(graph, rows, who)
        table = table_of(rows, who=who)
    named = [graph.name(v) for v in range(graph.n_variables)]
    case, time = (_column(table, x, d, named, who) for x, d in ((case, "case"), (time, "time")))
    if case is not None and case == time:
        raise SettingsError(f"{who}: {visible(case)} cannot be both case and time")
    evidence = [x for x in table.names if x in named and x not in (case, time)]
    check_columns([x for x in table.names if x not in (case, time)], named, who)
    n = table.n
    row_case = np.zeros(n, dtype=np.int64)
    if case is not None:
        row_case = _cases(table.column(case), case, who, row_from)
    times = None if time is None else _times(table.column(time), time, who, row_from)
    n_cases = int(row_case.max(initial=-1)) + 1
    mixed = bool((row_case[1:] < row_case[:-1]).any())
    order = np.argsort(row_case, kind="stable") if mixed else np.arange(n)
    ends = np.cumsum(np.bincount(row_case, minlength=n_cases))
    starts = np.append(0, ends[:-1])[:n_cases]
    if times is None:
        times = np.empty(n, dtype=np.int64)
        times[order] = step = np.arange(n) - np.repeat(starts, ends - starts)
    else:
        step = times[order] - np.repeat(times[order][starts], ends - starts)
        same = np.append(False, row_case[order][1:] == row_case[order][:-1])[:n]
        wrong = same & (np.diff(step, prepend=0) <= 0)
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            now, past = int(times[order[k]]), int(times[order[k - 1]])
            label = "" if case is None else f"case {visible(str(_label(table, case, order[k])))}: "
            what = f"time {now} is there twice" if now == past else f"time {now} comes after {past}"
            raise EvidenceError(f"{who}: row {int(order[k]) + row_from}: {label}{what}")
    length = step[ends - 1] + 1 if n else np.zeros(0, dtype=np.int64)
    total = int(length.sum())
    if total - n > max(MOST_GAPS, GAPS_EACH * n):
        raise EvidenceError(
            f"{who}: column {visible(str(time))}: {total - n:,} slices without a row lie between "
            f"these {n:,}: times must be numbers of steps"
        )
    first = np.cumsum(length) - length
    where = np.arange(n)
    if mixed or total > n:
        where[order] = np.repeat(first, ends - starts) + step
    codes = np.full((total, graph.n_variables), -1, dtype=np.int32)
    for name in evidence:
        v = graph.index(name)
        reader, column = StateReader(graph, v, missing), table.column(name)
        states = reader(column)
        if fault := reader.fault(column, states):
            raise EvidenceError(
                f"{who}: row {fault[0] + row_from}, column {visible(name)}: {fault[1]}"
            )
        codes[where if mixed or total > n else slice(None), v] = states
    likelihoods, scale = _likelihoods(graph, codes, where, pairs, soft, n, who)
    begin = times[order][starts] if n else np.zeros(0, dtype=np.int64)
    evidence += [graph.name(v) for v in {v for _, v, _ in pairs} if graph.name(v) not in evidence]
    return Sequences(
        codes, likelihoods, scale, first, length, where, row_case, times, begin, table, case, time,
        evidence, row_from,
    )  # fmt: skip


def _is_flat(rows: Any) -> bool:
    """Whether an array, or a list, has one dimension."""
    if hasattr(rows, "ndim"):
        return bool(rows.ndim < 2)
    return len(rows) > 0 and (isinstance(rows[0], str) or not hasattr(rows[0], "__len__"))


def _is_nested(rows: Any) -> bool:
    """Whether rows are lists of evidence, a list for each case."""
    return (
        isinstance(rows, list | tuple)
        and all(isinstance(r, list | tuple) and all(map(_is_evidence, r)) for r in rows)
        and (not rows or any(rows))
    )


def _joined(
    graph: FactorGraph, rows: Sequence[Any], case: str | None, who: str
) -> tuple[list[Any], str | None]:
    """Rows of all cases, and the column that numbers them."""
    if not rows:
        return [], case
    name = unused("case", graph)
    for c, own in enumerate(rows):
        if not own:
            raise EvidenceError(f"{who}: case {c} has no rows: leave it out")
        if case is not None or any(name in row for row in own):
            said = name if case is None else case
            raise EvidenceError(
                f"{who}: each list of a list of lists is a case: {visible(str(said))!r} cannot say "
                "so again"
            )
    return [{name: c, **row} for c, own in enumerate(rows) for row in own], name


def unused(name: str, graph: FactorGraph) -> str:
    """A column's name that is not a variable's."""
    while name in graph._index:
        name += "_"
    return name


def _is_evidence(row: Any) -> bool:
    return isinstance(row, Mapping)


def _split(
    graph: FactorGraph, rows: Sequence[Any], who: str
) -> tuple[Any, list[tuple[int, int, Any]]]:
    """Rows without likelihoods, and these."""
    if not all(map(_is_evidence, rows)):
        return rows, []
    out, found = [], []
    for k, row in enumerate(rows):
        plain = {}
        for key, value in row.items():
            if isinstance(value, Mapping) or (
                isinstance(value, list | tuple | np.ndarray) and np.ndim(value) > 0
            ):
                try:
                    [(v, like)] = soft_evidence(graph, {key: value}).items()
                except EvidenceError as error:
                    raise EvidenceError(f"{who}: row {k}: {error}") from None
                found.append((k, v, like))
            else:
                name = integer(key)
                plain[key if name is None else graph.name(name)] = value
        out.append(plain)
    return out, found


def _column(
    table: Table, given: Any, default: str, variables: Sequence[str], who: str
) -> str | None:
    index = getattr(getattr(table.given, "index", None), "names", ())
    if table.kind == "pandas" and (given or default) in index and given not in table.keys:
        raise SettingsError(
            f"{who}: {default}: {visible(str(given or default))!r} is in the index, which is not "
            "read: use reset_index()"
        )
    if given is not None:
        if given not in table.keys:
            raise SettingsError(f"{who}: {default}: there is no column {visible(str(given))!r}")
        if given in variables:
            raise SettingsError(
                f"{who}: {default}: {visible(str(given))!r} is a variable of the model"
            )
        return str(given)
    return default if default in table.keys and default not in variables else None


def _label(table: Table, case: str, row: int) -> Any:
    column = table.column(case)
    return column.values[int(column.places[row])]


def _cases(column: Factorised, name: str, who: str, row_from: int) -> Ints:
    """Cases (N,) in the order of their first rows."""
    places, values = column.places, column.values
    if not isinstance(values, range):
        empty = np.array([is_missing(x) or x == "" for x in values] + [True])
        bad = empty[places]
        if bad.any():
            row = int(np.argmax(bad)) + row_from
            raise EvidenceError(f"{who}: row {row}, column {visible(name)}: the case is missing")
    begin = np.full(len(values), len(places))
    begin[places[::-1]] = np.arange(len(places))[::-1]  # of several, the last is kept
    rank = np.empty(len(values), dtype=np.int64)
    rank[np.argsort(begin, kind="stable")] = np.arange(len(values))
    return rank[places]


def _times(column: Factorised, name: str, who: str, row_from: int) -> Ints:
    """Times (N,), which must be whole numbers."""
    values = np.full(len(column.values) + 1, np.nan)
    for k, value in enumerate(column.values):
        number = number_of(value) if isinstance(value, str) else value
        try:
            values[k] = np.nan if number is None or is_missing(number) else float(number)
        except (TypeError, ValueError):
            continue
    found = values[column.places]
    bad = ~(np.abs(found) < 2**53) | (found != np.rint(found))
    if bad.any():
        row = int(np.argmax(bad))
        place = int(column.places[row])
        value = None if place < 0 else column.values[place]
        said = "nothing" if is_missing(value) or value == "" else repr(value)
        raise EvidenceError(
            f"{who}: row {row + row_from}, column {visible(name)}: a time must be a whole number "
            f"of steps, not {visible(said)}"
        )
    return found.astype(np.int64)


def _likelihoods(
    graph: FactorGraph,
    codes: NDArray[np.int32],
    where: Ints,
    pairs: list[tuple[int, int, Any]],
    soft: Mapping[str, Any] | None,
    n: int,
    who: str,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logs of likelihoods, to whose rows ``codes`` then refer, and what these lost."""
    widest = int(graph._n_states.max(initial=1))
    parts: list[tuple[Any, int, Any]] = [(k, v, like) for k, v, like in pairs]
    if soft is not None:
        check_type(soft, Mapping, f"{who}: soft must be {{variable: likelihoods (N, S)}}")
        for name, given in soft.items():
            try:
                v = graph.index(name)
            except ModelError as error:
                raise EvidenceError(f"{who}: soft evidence: {error}") from None
            what = f"{who}: soft evidence: likelihoods of {visible(str(name))}"
            size = int(graph._n_states[v])
            like = real_numbers(given, what, EvidenceError).astype(np.float64)
            if like.shape != (n, size):
                raise EvidenceError(f"{what} must have shape ({n}, {size}), not {like.shape}")
            some = ~np.isnan(like).all(axis=1)
            mine = like[some]
            bad = ~(np.isfinite(mine).all(axis=1) & (mine >= 0).all(axis=1) & mine.any(axis=1))
            if bad.any():
                row = int(np.flatnonzero(some)[int(np.argmax(bad))])
                raise EvidenceError(
                    f"{what}: row {row} must be finite, not negative and not all zero"
                )
            parts += [(k, v, own) for k, own in zip(np.flatnonzero(some).tolist(), mine)]
    pool, scale = np.full((len(parts), widest), -np.inf), np.zeros(len(codes))
    for j, (k, v, like) in enumerate(parts):
        at = int(where[k])
        if codes[at, v] != -1:
            raise EvidenceError(f"{who}: row {k}: {visible(graph.name(v))} is observed twice")
        pool[j, : len(like)], top = scaled_logs(like)
        scale[at] += top
        codes[at, v] = -2 - j
    return pool, scale


def scaled_logs(likelihoods: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Logs of likelihoods (S,) with maximum 0, and what was taken off: no quotient of two floats
    leaves their range so."""
    with np.errstate(divide="ignore"):
        logs = np.log(likelihoods)
    top = float(logs.max())
    return logs - top, top
