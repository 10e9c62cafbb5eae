"""Answers as tables of the kind that came in, and files of cases and answers, a chunk at a time.

For a target A there are ``A`` (its most probable state), ``P(A)`` (how probable that is) and
``P(A=state)`` for each state; at last ``log P(e)``, and ``problem``: empty, or why a row has none.

CSV (``.csv``, ``.tsv``, compressed with ``.gz``; ``-`` is standard input or output) has a header;
its separator is the comma, semicolon or tab that the header has most of. All cells are texts. Blank
lines are skipped, except in a file of one column, where each is an empty cell. With
pyarrow it is read and written by that, some ten times faster than by the standard library; Parquet
needs pyarrow. An answer appears under its name only when it is complete.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import first_twice
from minfer.basics.words import counted
from minfer.errors import FormatError, MinferError, RefusedError, SettingsError
from minfer.io.opening import opened, reading, streamed
from minfer.io.text import PathLike, atomic_write, check_text, csv_header, path_text, shown
from minfer.model.evidence import Table, of_objects, table_of

if TYPE_CHECKING:
    from minfer.graph import FactorGraph


_HEADER = 1 << 20  # bytes: the longest header
_READ = 1 << 20
#: So many columns: pyarrow's words, with the row where it reads with one thread.
_RAGGED = re.compile(r"CSV parse error: (Row #\d+: )?Expected ")
IMPOSSIBLE = "impossible: the evidence has probability 0"
LOG_PE, PROBLEM = "log P(e)", "problem"


class Texts(NamedTuple):
    """A column of few different texts: places among them, -1 for none."""

    places: NDArray[np.integer]
    values: list[str]

    def objects(self) -> NDArray[np.object_]:
        return np.array([*self.values, None], dtype=object)[self.places]


Column = Any  # an array, Texts, or a column of the table that came in


def answer_names(
    graph: FactorGraph, targets: Sequence[int], probabilities: bool
) -> list[tuple[int, str, str, list[str]]]:
    """For each target: its number, and the names of its columns."""
    out = []
    for v in targets:
        name = graph.name(v)
        states = [f"P({name}={s})" for s in graph.states(v)] if probabilities else []
        out.append((v, name, f"P({name})", states))
    return out


def answer_columns(
    graph: FactorGraph,
    targets: Sequence[int],
    probs: NDArray[np.float64],
    log_pe: NDArray[np.float64] | None,
    problems: Texts,
    probabilities: bool,
) -> dict[str, Column]:
    """Columns of the answer by name; ``probs`` (N, states of the targets end to end)."""
    out: dict[str, Column] = {}
    first = 0
    unanswered = problems.places >= 0
    some = bool(unanswered.any())
    for v, name, of_best, by_state in answer_names(graph, targets, probabilities):
        size = int(graph._n_states[v])
        part = probs[:, first : first + size]
        if size == 2:
            best = (part[:, 1] > part[:, 0]).astype(np.int8)
            highest = np.maximum(part[:, 0], part[:, 1])
        else:
            best = part.argmax(axis=1)
            highest = part[np.arange(len(part)), best]
        if some:
            best = np.where(unanswered, -1, best)
        named = graph._states is not None and graph._states[v] is not None
        out[name] = Texts(best, list(graph.states(v))) if named else best.astype(np.int64)
        out[of_best] = highest
        for k, label in enumerate(by_state):
            out[label] = part[:, k]
        first += size
    if log_pe is not None:
        out[LOG_PE] = log_pe
    out[PROBLEM] = problems
    return out


def as_kind(kind: str, given: Any, columns: dict[str, Column], rows: NDArray | None) -> Any:
    """The answer as a table of a kind; ``rows``: those of the input it is about, None: all."""
    if kind == "pandas":
        import pandas as pd

        index = given.index if rows is None else given.index[rows]
        frame = pd.DataFrame({k: plain(x) for k, x in columns.items()}, index=index, copy=False)
        if PROBLEM in columns:
            problems = columns[PROBLEM].objects()
            frame[PROBLEM] = pd.Series(problems, index=index, dtype=object)  # None
        return frame
    if kind == "polars":
        import polars as pl

        return pl.DataFrame(
            {
                k: pl.Series(k, x.objects().tolist(), dtype=pl.String) if isinstance(x, Texts) else
                x if isinstance(x, pl.Series) else pl.Series(k, np.ascontiguousarray(x))
                for k, x in columns.items()
            }
        )  # fmt: skip
    if kind == "arrow":
        return as_arrow(columns)
    if kind == "records":
        lists = [plain(x) for x in columns.values()]
        lists = [x.tolist() if isinstance(x, np.ndarray) else x for x in lists]
        return [dict(zip(columns, cells)) for cells in zip(*lists)]
    arrays = {k: np.asarray(plain(x)) for k, x in columns.items()}
    if kind == "columns":
        return arrays
    out = np.empty(
        len(next(iter(arrays.values()))), dtype=[(k, x.dtype) for k, x in arrays.items()]
    )
    for k, x in arrays.items():
        out[k] = x
    return out


def plain(column: Column) -> Any:
    """A column as what tables of all kinds take."""
    if isinstance(column, Texts):
        return column.objects()
    return column.array if hasattr(column, "iloc") else column  # a series has its own index


def as_arrow(columns: dict[str, Column]) -> Any:
    import pyarrow as pa

    def array(x: Column) -> Any:
        if isinstance(x, Texts):
            mask = x.places < 0
            places = pa.array(np.where(mask, 0, x.places).astype(np.int32), mask=mask)
            values = pa.array(x.values or [""], pa.string())
            return pa.DictionaryArray.from_arrays(places, values).cast(pa.string())
        return pa.array(np.ascontiguousarray(x)) if isinstance(x, np.ndarray) else x

    return pa.table({k: array(x) for k, x in columns.items()})


def taken(column: Any, rows: NDArray[np.int64]) -> Any:
    if hasattr(column, "iloc"):
        return column.iloc[rows]
    if isinstance(column, list):
        return [column[r] for r in rows.tolist()]
    return column.take(rows) if hasattr(column, "take") else column[rows]


class Cases:
    """An open file of cases."""

    def __init__(
        self, name: str, names: list[str], tables: Callable[[list[str], int], Iterator[Table]]
    ) -> None:
        self.name, self.names = name, names
        self.tables = tables  # of some columns, so many rows at a time
        if (twice := first_twice(names)) is not None:
            raise FormatError(f"{name}: two columns are called {twice!r}")


def kind_of(path: PathLike, who: str = "predict", what: str = "files of cases") -> str:
    """``csv`` or ``parquet``, by the name."""
    name = path_text(path).lower()
    if name.endswith(".parquet"):
        return "parquet"
    if name == "-" or os.path.splitext(name.removesuffix(".gz"))[1] in (".csv", ".tsv", ".txt"):
        return "csv"
    raise SettingsError(f"{who}: {shown(path)}: {what} end in .csv, .csv.gz, .tsv or .parquet")


def arrow() -> Any:
    """pyarrow, or None where it is not installed."""
    try:
        import pyarrow
    except ImportError:
        return None
    return pyarrow


@contextmanager
def open_cases(path: PathLike, who: str = "predict") -> Iterator[Cases]:
    """A file of cases, open."""
    kind, name = kind_of(path, who), shown(path)
    pa = arrow()
    with ExitStack() as stack:
        if kind == "parquet":
            if pa is None:
                raise RefusedError(f"{who}: Parquet needs pyarrow: pip install pyarrow")
            import pyarrow.parquet as pq

            raw = stack.enter_context(opened(path, pipes=False))
            with reading(path, "a Parquet file is needed"):
                file = stack.enter_context(pq.ParquetFile(raw))
                columns = file.schema_arrow.names
            yield Cases(name, columns, lambda c, n: _parquet(file, name, c, n))
            return
        data = stack.enter_context(streamed(path))
        header = data.readline(_HEADER)
        check_text(name, header)
        names, separator = csv_header(name, header)
        read = _plain_csv if pa is None else _arrow_csv

        def tables(columns: list[str], rows: int) -> Iterator[Table]:
            try:
                yield from read(data, name, names, separator, columns, rows)
            except _RaggedError:
                if os.path.isfile(path) and (found := _ragged(path, len(names), separator)):
                    raise FormatError(f"{name}: {found}") from None
                raise

        yield Cases(name, names, tables)


class _RaggedError(FormatError):
    """A row has too many or too few cells; its line is not known."""


def _ragged(path: PathLike, width: int, separator: str) -> str:
    """The first line of a file, read again, with too many or too few cells."""
    with suppress(csv.Error, UnicodeDecodeError), streamed(path) as data:
        reader = csv.reader(io.TextIOWrapper(data, "utf-8", newline=""), delimiter=separator)
        line = 1
        for cells in reader:
            if cells and len(cells) != width:
                return f"line {line}: {_cells_told(len(cells), width)}"
            line = reader.line_num + 1
    return ""


def _cells_told(found: int, width: int) -> str:
    return f"{counted(found, 'cell')}, but {counted(width, 'column')}"


def _arrow_csv(
    data: BinaryIO, name: str, names: list[str], separator: str, columns: list[str], rows: int
) -> Iterator[Table]:
    import pyarrow as pa
    from pyarrow import csv as pacsv

    text = pa.dictionary(pa.int32(), pa.string())
    try:
        reader = pacsv.open_csv(
            data,
            pacsv.ReadOptions(column_names=names, block_size=_READ),
            pacsv.ParseOptions(
                delimiter=separator, newlines_in_values=True, ignore_empty_lines=len(names) > 1
            ),
            pacsv.ConvertOptions(
                column_types=dict.fromkeys(columns, text), include_columns=columns or names[:1],
                null_values=[], strings_can_be_null=False,
            ),
        )  # fmt: skip
        with reader:  # closed by an interrupt too, so that no thread of its own reads on
            yield from _gathered(reader, rows)
    except StopIteration:
        return
    except MinferError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if "Empty CSV" in str(error):
            return
        ragged = _RAGGED.search(str(error))
        reason = str(error).replace("Row #", "data row ")
        if "straddles two block boundaries" in reason:
            raise FormatError(f"{name}: a row is longer than {_READ:,} bytes") from None
        raise (_RaggedError if ragged else FormatError)(f"{name}: {reason}") from None


def _parquet(file: Any, name: str, columns: list[str], rows: int) -> Iterator[Table]:
    import pyarrow as pa

    wanted = columns or file.schema_arrow.names[:1]
    groups = range(file.num_row_groups)  # one reader for all would keep what it has read of each
    try:
        yield from _gathered(
            chain.from_iterable(file.iter_batches(rows, [k], wanted) for k in groups), rows
        )
    except MinferError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: not UTF-8, among others
        raise FormatError(f"{name}: the Parquet file is damaged: {error}") from None


def _gathered(batches: Any, rows: int) -> Iterator[Table]:
    """Batches joined or cut into tables of so many rows."""
    import pyarrow as pa

    held: list[Any] = []
    n = 0
    for batch in batches:
        held.append(batch)
        n += batch.num_rows
        while n >= rows:
            table = pa.Table.from_batches(held)
            yield table_of(table.slice(0, rows).unify_dictionaries())
            rest = table.slice(rows)
            held, n = rest.to_batches(), rest.num_rows
    if n:
        yield table_of(pa.Table.from_batches(held).unify_dictionaries())


def _plain_csv(
    data: BinaryIO, name: str, names: list[str], separator: str, columns: list[str], rows: int
) -> Iterator[Table]:
    reader = csv.reader(io.TextIOWrapper(data, "utf-8", newline=""), delimiter=separator)
    place = {column: names.index(column) for column in columns}
    done = 0
    try:
        while given_lines := list(islice(reader, rows)):
            lines = [line or [""] for line in given_lines if line or len(names) == 1]
            if not lines:
                continue
            for k, line in enumerate(lines):
                if len(line) != len(names):
                    told = _cells_told(len(line), len(names))
                    raise _RaggedError(f"{name}: data row {done + k + 1}: {told}")
            done += len(lines)
            cells = list(zip(*lines))
            given = {c: list(cells[k]) for c, k in place.items()}
            yield table_of(given) if columns else Table("columns", {}, [], len(lines), of_objects)
    except (csv.Error, UnicodeDecodeError, EOFError) as error:
        raise FormatError(f"{name}: after data row {done}: {error}") from None


@contextmanager
def open_answers(
    path: PathLike, who: str = "predict", what: str = "files of cases"
) -> Iterator[Callable[[dict[str, Column]], None]]:
    """Where answers go; the file is there, complete, when the block has ended."""
    pa, kind = arrow(), kind_of(path, who, what)
    separator = "\t" if path_text(path).lower().removesuffix(".gz").endswith(".tsv") else ","
    if kind == "parquet" and pa is None:
        raise RefusedError(f"{who}: Parquet needs pyarrow: pip install pyarrow")
    with ExitStack() as stack:
        file = stack.enter_context(atomic_write(path))
        writer: list[Any] = []

        def to_parquet(columns: dict[str, Column]) -> None:
            import pyarrow.parquet as pq

            table = as_arrow(columns)
            if not writer:
                writer.append(stack.enter_context(pq.ParquetWriter(file, table.schema)))
            writer[0].write_table(table)

        def to_csv(columns: dict[str, Column]) -> None:
            if not writer:
                text = codecs.getwriter("utf-8")(file)
                writer.append(csv.writer(text, delimiter=separator, lineterminator="\n"))
                writer[0].writerow(columns)
            if pa is not None:
                file.write(_csv_lines(as_arrow(columns), separator))
            else:
                writer[0].writerows(zip(*(_listed(plain(x)) for x in columns.values())))

        yield to_parquet if kind == "parquet" else to_csv


def _csv_lines(table: Any, separator: str) -> Any:
    """A table's rows as CSV: quoted where they must be, and empty where there is no number.

    pyarrow's own writer quotes every text or none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for column in table.columns:
        if pa.types.is_floating(column.type):
            empty = pc.is_nan(column)
            column = pc.if_else(empty, None, column) if pc.any(empty).as_py() else column
        text = pc.cast(column, pa.string())
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            columns.append(text)
            continue
        special = pc.match_substring_regex(text, f'[{separator}"\r\n]')
        if pc.any(special).as_py():
            doubled = pc.replace_substring(text, '"', '""')
            text = pc.if_else(special, pc.binary_join_element_wise('"', doubled, '"', ""), text)
        columns.append(text)
    end = pa.scalar("\n")
    nothing = {"null_handling": "replace", "null_replacement": ""}
    lines = pc.binary_join_element_wise(*columns, separator, **nothing)
    lines = pc.binary_join_element_wise(lines, end, "")
    return b"".join(_text_of(chunk) for chunk in lines.chunks)


def _text_of(lines: Any) -> bytes:
    """The texts of an array, end to end."""
    _, offsets, data = lines.buffers()
    if not len(lines) or data is None:
        return b""
    ends = np.frombuffer(offsets, dtype=np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return bytes(data)[int(ends[0]) : int(ends[-1])]


def _listed(column: Any) -> Any:
    """A column's cells; nothing where there is no number."""
    cells = column.tolist() if hasattr(column, "tolist") else column
    return [None if isinstance(x, float) and x != x else x for x in cells]


def joined(parts: Sequence[dict[str, Column]]) -> Any:
    """Chunks as one table: of Arrow, or columns where pyarrow is not installed."""
    pa = arrow()
    if pa is not None:
        return pa.concat_tables([as_arrow(part) for part in parts]) if parts else pa.table({})
    names = list(parts[0]) if parts else []
    return {k: np.concatenate([np.asarray(plain(part[k])) for part in parts]) for k in names}
