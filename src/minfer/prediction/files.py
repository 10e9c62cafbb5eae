"""Cases from files and answers to files, a chunk at a time.

CSV (``.csv``, ``.tsv``, compressed with ``.gz``; ``-`` is standard input or output) has a header;
its separator is the comma, semicolon or tab that the header has most of. All cells are texts. Blank
lines are skipped, except in a file of one column, where each is an empty cell. With
pyarrow it is read and written by that, some ten times faster than by the standard library; Parquet
needs pyarrow. An answer appears under its name only when it is complete.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice
from typing import Any, BinaryIO

from minfer.basics.checks import first_twice
from minfer.basics.words import counted
from minfer.errors import FormatError, MinferError, RefusedError, SettingsError
from minfer.io.opening import opened, reading, streamed
from minfer.io.text import (
    PathLike,
    atomic_write,
    check_text,
    check_writable,
    csv_header,
    path_text,
    shown,
)
from minfer.model.evidence import Table, of_objects, table_of
from minfer.prediction.answers import Column, as_arrow, plain

_HEADER = 1 << 20  # bytes: the longest header
_READ = 1 << 20
_RAGGED = "CSV parse error: Expected "  # so many columns; pyarrow's words


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


def check_output(out: PathLike, cases: PathLike) -> None:
    """Fail before the work, not after it."""
    kind_of(out)
    check_writable(out, [cases])


def arrow() -> Any:
    """pyarrow, or None where it is not installed."""
    try:
        import pyarrow
    except ImportError:
        return None
    return pyarrow


# ---------------------------------------------------------------------- reading


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
        reason = str(error).replace("Row #", "data row ")
        if "straddles two block boundaries" in reason:
            raise FormatError(f"{name}: a row is longer than {_READ:,} bytes") from None
        raise (_RaggedError if _RAGGED in reason else FormatError)(f"{name}: {reason}") from None


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


# ---------------------------------------------------------------------- writing


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
                writer.append(csv.writer(_Utf8(file), delimiter=separator, lineterminator="\n"))
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
    import numpy as np

    _, offsets, data = lines.buffers()
    if not len(lines) or data is None:
        return b""
    ends = np.frombuffer(offsets, dtype=np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return bytes(data)[int(ends[0]) : int(ends[-1])]


def _listed(column: Any) -> Any:
    """A column's cells; nothing where there is no number."""
    cells = column.tolist() if hasattr(column, "tolist") else column
    return [None if isinstance(x, float) and x != x else x for x in cells]


class _Utf8:
    """Takes texts for a file of bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def write(self, text: str) -> int:
        return self.file.write(text.encode())


def joined(parts: Sequence[dict[str, Column]]) -> Any:
    """Chunks as one table: of Arrow, or columns where pyarrow is not installed."""
    pa = arrow()
    if pa is not None:
        return pa.concat_tables([as_arrow(part) for part in parts]) if parts else pa.table({})
    import numpy as np

    names = list(parts[0]) if parts else []
    return {k: np.concatenate([np.asarray(plain(part[k])) for part in parts]) for k in names}
