"""Tables of any kind as relations of the database, and answers in the kind that came in.

The database (DuckDB, inside this process) reads data frames and Arrow tables where they lie, CSV
and Parquet files by itself, tables of DuckDB files through ATTACH; a table of SQLite is read by
Python's own module, so that no extension need be fetched.

Opening a database takes longer than all the joins of a small program. So the programs of a
process have connections to one, whose temporary tables are theirs alone and go when they go; a
program with a memory limit has a database of its own.
"""

from __future__ import annotations

import ctypes
import datetime
import glob
import os
import re
import sqlite3
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minfer.checks import first_twice, told
from minfer.errors import FormatError, ModelError, RefusedError, SettingsError, visible
from minfer.io.opening import opened, streamed
from minfer.io.text import check_text, csv_header
from minfer.rules.formulas import value_text
from minfer.words import counted

_VALUES = (str, int, float, np.generic, datetime.date)
_LONGEST_HEADER = 1 << 20  # bytes

_shared: dict[int, Any] = {}  # databases, by the threads they have
_lock = threading.Lock()  # of what connections of one database have in common


def _begin_anew() -> None:
    """In a fork: it has no use for the databases and locks of its parent.

    To close one would wait for threads that are not there, so that they are kept to its end.
    """
    global _lock
    for database in _shared.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(database))
    _shared.clear()
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class Raw(NamedTuple):
    """A table as it was given, known to the database by ``name``."""

    name: str
    columns: dict[str, str]  # name: SQL type
    kind: str  # pandas, polars, arrow or columns


class Database:
    """A connection; queries for one row are read to their end, as the next one requires."""

    def __init__(self, con: Any) -> None:
        self.con = con
        con.execute("set enable_progress_bar = false")

    def execute(self, sql: str) -> Any:
        """Run a statement; the database calls Ctrl-C a RuntimeError."""
        try:
            return self.con.execute(sql)
        except RuntimeError as error:
            if str(error) == "Query interrupted":
                raise KeyboardInterrupt from None
            raise

    def one(self, sql: str) -> Any:
        """The first row of an answer, or None."""
        rows = self.execute(sql).fetchall()
        return rows[0] if rows else None

    def make(self, table: str, sql: str) -> int:
        """Make a table of an answer, in place of the one of that name; its number of rows.

        It is temporary: other connections have tables of the same names.
        """
        return self.one(f"create or replace temp table {table} as {sql}")[0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.con, name)


def connect(memory_limit: str | None = None, threads: int = 1) -> Database:
    """Room for tables of one's own, in memory, spilling to a temporary folder where it must."""
    try:
        import duckdb
    except ImportError:
        raise RefusedError(
            "rules need duckdb, which is not installed: pip install 'minfer[rules]'"
        ) from None
    if memory_limit is None:
        with _lock:
            for _ in range(2):
                if threads not in _shared:
                    _shared[threads] = duckdb.connect(config=_settings(threads))
                try:
                    return Database(_shared[threads].cursor())
                except duckdb.Error:  # a damaged file has ended it for all
                    del _shared[threads]
    if not isinstance(memory_limit, str):
        raise SettingsError(
            f"memory_limit must be a string with a unit, such as '2GB', not {memory_limit!r}"
        )
    con = duckdb.connect(config=_settings(threads))
    try:
        con.execute(f"set memory_limit = {quoted(memory_limit)}")
    except duckdb.Error as error:
        raise ModelError(f"memory_limit: {str(error).splitlines()[0]}") from None
    return Database(con)


def _settings(threads: int) -> dict[str, Any]:
    spill = os.path.join(tempfile.gettempdir(), f"minfer-{uuid.uuid4().hex}")  # made when needed
    return {
        "threads": threads, "allow_unsigned_extensions": "false", "temp_directory": spill,
        "preserve_insertion_order": "true",
    }  # fmt: skip


def quoted(text: str) -> str:
    """A text as SQL."""
    return "'" + text.replace("'", "''") + "'"


def named(text: str) -> str:
    """A name as SQL."""
    return '"' + text.replace('"', '""') + '"'


def columns_of(con: Any, name: str) -> dict[str, str]:
    """Names and types of a relation's columns."""
    relation = con.view(name)
    return {column: str(kind) for column, kind in zip(relation.columns, relation.types)}


def load(con: Database, name: str, source: Any, what: str, width: int | None = None) -> Raw:
    """Make a source known to the database as ``name``. ``what`` begins messages about it."""
    import duckdb

    kind = "columns"
    home = type(source).__module__.partition(".")[0]
    try:
        if isinstance(source, str | os.PathLike):
            con.make(name, _of_file(os.fspath(source), what))
        elif isinstance(source, tuple) and len(source) == 2 and _is_path(source[0]):
            _of_database(con, name, os.fspath(source[0]), source[1], what)
        elif home in ("pandas", "polars", "pyarrow"):
            kind = "arrow" if home == "pyarrow" else home
            if hasattr(source, "collect"):
                source = source.collect()
            if home == "pandas" and not hasattr(source, "columns"):
                source = source.to_frame()
            if home == "polars" and not hasattr(source, "columns"):
                source = source.to_frame()
            names = [str(c) for c in getattr(source, "columns", ())] if home == "pandas" else []
            if len(set(names)) < len(names):
                twice = next(c for c in names if names.count(c) > 1)
                raise ModelError(f"{what}: two columns are called {visible(twice)!r}")
            con.register(name, source)
        elif home in ("duckdb", "_duckdb"):
            con.register(name, _checked(source.fetchnumpy(), what))
        else:
            con.register(name, _of_values(source, what, width))
        return Raw(name, columns_of(con, name), kind)
    except duckdb.Error as error:
        raise FormatError(f"{what}: {_problem(error, source)}") from None


def _is_path(value: Any) -> bool:
    if not isinstance(value, str | os.PathLike):
        return False
    suffix = Path(value).suffix.lower()
    return suffix in (".duckdb", ".db", ".sqlite", ".sqlite3", ".ddb")


def _of_file(path: str, what: str) -> str:
    bare = path.lower().removesuffix(".gz")
    files = sorted(glob.glob(path)) if "*" in path else [path]
    if not files or not os.path.exists(files[0]):
        raise FormatError(f"{what}: cannot read {visible(path)}: there is no such file")
    if bare.endswith(".parquet"):
        return f"select * from read_parquet({quoted(path)})"
    if not bare.endswith((".csv", ".tsv", ".txt")):
        raise FormatError(
            f"{what}: {visible(path)} is neither .csv, .tsv (.gz) nor .parquet; a table of a "
            "database is given as ('file.duckdb', 'table')"
        )
    names, separator = _header(files[0], what)
    for other in files[1:]:
        found = _header(other, what)
        if found != (names, separator):
            raise FormatError(
                f"{what}: {visible(other)}: line 1: its columns are {visible(', '.join(found[0]))}"
                f", those of {visible(files[0])} {visible(', '.join(names))}"
            )
    listed = ", ".join(f"{quoted(n)}: 'varchar'" for n in names)
    every = ", ".join(map(quoted, files))
    # nothing is left to guess: a sniffer makes some table of whatever there is
    return (
        f"select * from read_csv([{every}], auto_detect = false, header = true, delim = "
        f"{quoted(separator)}, quote = '\"', escape = '\"', columns = {{{listed}}}, "
        "strict_mode = true, null_padding = false)"
    )


def _header(path: str, what: str) -> tuple[list[str], str]:
    """The names of a CSV file's columns, and its separator."""
    place = f"{what}: {visible(path)}"
    try:
        with streamed(path) as file:
            line = file.readline(_LONGEST_HEADER)
            if path.lower().endswith(".gz"):  # the database reads it, and has no limits of its own
                while file.read(1 << 20):
                    pass
    except FormatError as error:
        raise FormatError(f"{what}: {error}") from None
    check_text(place, line)
    names, separator = csv_header(place, line)
    if path.lower().removesuffix(".gz").endswith(".tsv"):
        names, separator = csv_header(place, line, "\t")
    elif len(names) == 1 and "|" in names[0]:
        names, separator = csv_header(place, line, "|")
    if line.count(b'"') % 2:
        raise FormatError(f"{place}: line 1: a quote that does not end")
    if all(_is_number(n) for n in names):
        raise FormatError(
            f"{place}: line 1: there is no header with the names of the columns, but numbers"
        )
    if "" in names:
        raise FormatError(f"{place}: line 1: column {names.index('') + 1} has no name")
    if (twice := first_twice(n.lower() for n in names)) is not None:
        spelt = next(n for n in names if n.lower() == twice)
        raise FormatError(f"{place}: line 1: two columns are called {visible(spelt)!r}")
    return names, separator


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _problem(error: Exception, source: Any) -> str:
    """What the database says of a table, in one line."""
    text = str(error)
    line = re.search(r"CSV Error on Line: (\d+)", text)
    if line is None:
        return text.splitlines()[0]
    file = re.search(r"^  file = (.*)$", text, re.MULTILINE)
    path = file.group(1) if file else os.fspath(source)
    place = f"{visible(path)}: line {int(line.group(1)):,}: "
    widths = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text)
    if widths is not None:
        wanted, found = (int(x) for x in widths.groups())
        return f"{place}{counted(found, 'value')}, but the header has {counted(wanted, 'column')}"
    if "unterminated quote" in text:
        return f"{place}a quote that does not end, or text after its end"
    if "utf-8" in text.lower():
        return f"{place}this is not UTF-8"
    words = [x for x in text.splitlines()[1:] if x and not x.startswith("Original Line")]
    return place + (words[0] if words else text.splitlines()[0])


def _of_database(con: Database, name: str, path: str, table: str, what: str) -> None:
    if not isinstance(table, str):
        raise ModelError(f"{what}: a table of a database is given as ('file.duckdb', 'table')")
    if not os.path.exists(path):
        raise FormatError(f"{what}: cannot read {visible(path)}: there is no such file")
    with opened(path, pipes=False) as file:
        head = file.read(16)
    query = table if table.lstrip().lower().startswith(("select ", "with ")) else None
    if head.startswith(b"SQLite format 3"):
        try:
            with sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True) as lite:
                cursor = lite.execute(query or f"select * from {named(table)}")
                names = [d[0] for d in cursor.description]
                rows = cursor.fetchall()
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise FormatError(f"{what}: {visible(path)}: {error}") from None
        finally:
            if "lite" in locals():
                lite.close()
        columns = list(zip(*rows)) if rows else [()] * len(names)
        con.register(name, {n: _array(c) for n, c in zip(names, columns)})
        return
    with _lock:  # a file is attached once, and all connections see it
        con.execute(f"attach {quoted(path)} as source_db (read_only)")
        try:
            con.execute("use source_db")
            try:
                con.make(name, query or f"select * from {named(table)}")
            finally:
                con.execute("use memory")
        finally:
            con.execute("detach source_db")


def _of_values(source: Any, what: str, width: int | None) -> dict[str, np.ndarray]:
    """Columns, records, tuples, or plain values of one column."""
    if isinstance(source, Mapping):
        return _checked({str(k): _array(v) for k, v in source.items()}, what)
    if isinstance(source, np.ndarray) and source.dtype.names:
        return {k: _array(source[k]) for k in source.dtype.names}
    if isinstance(source, np.ndarray) and source.ndim == 2:
        return {f"c{k}": _array(source[:, k]) for k in range(source.shape[1])}
    if isinstance(source, np.ndarray) and source.ndim == 1:
        return {"c0": _array(source)}
    if isinstance(source, Sequence | set | frozenset):
        rows = list(source)
        if not rows:
            return {f"c{k}": np.zeros(0, dtype=object) for k in range(width or 1)}
        if all(isinstance(row, Mapping) for row in rows):
            names = list(rows[0])
            for k, row in enumerate(rows):
                if list(row) != names and set(row) != set(names):
                    raise ModelError(f"{what}: row {k} has other columns than row 0")
            return {str(n): _array([row[n] for row in rows]) for n in names}
        if all(isinstance(row, tuple | list) for row in rows):
            size = len(rows[0])
            for k, row in enumerate(rows):
                if len(row) != size:
                    raise ModelError(f"{what}: row {k} has {len(row)} values, row 0 has {size}")
            return {f"c{k}": _array([row[k] for row in rows]) for k in range(size)}
        if all(row is None or isinstance(row, _VALUES) for row in rows):
            return {"c0": _array(rows)}
    raise ModelError(
        f"{what}: a table must be a data frame of pandas or polars, an Arrow table, columns "
        "{name: values}, a list of tuples or dicts, the name of a .csv or .parquet file, or "
        f"('file.duckdb' or a file of SQLite, 'table'), not {type(source).__name__}"
    )


def _checked(columns: dict[str, np.ndarray], what: str) -> dict[str, np.ndarray]:
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ModelError(f"{what}: columns must have the same length, not {sizes}")
    return columns


def _text(value: Any) -> str:
    return value_text(value) if isinstance(value, bool | np.bool_) else str(value)


def _array(values: Any) -> np.ndarray:
    """Numbers and truth values as they are, everything else as texts."""
    if isinstance(values, np.ma.MaskedArray):
        values = values.tolist()  # None where it is masked
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        return np.ascontiguousarray(values)
    try:
        listed = list(values.tolist() if hasattr(values, "tolist") else values)
    except TypeError:
        raise ModelError(f"a column must be a list of values, not {told(values)}") from None
    kinds = set(map(type, listed))
    if kinds and kinds <= {int}:
        for kind in (np.int64, np.uint64):
            try:
                return np.array(listed, dtype=kind)
            except OverflowError:
                pass
    elif kinds and kinds <= {int, float}:
        return np.array(listed, dtype=np.float64)
    elif kinds == {bool}:
        return np.array(listed)
    out = np.empty(len(listed), dtype=object)
    out[:] = [x if x is None or isinstance(x, str) else _text(x) for x in listed]
    return out


def as_kind(con: Any, kind: str, sql: str, columns: Mapping[str, Any] | None = None) -> Any:
    """The answer to a query as a table of some kind."""
    if columns:
        con.register("answer_columns", dict(columns))
    if kind in ("polars", "arrow"):
        relation = con.sql(sql)
        to_arrow = getattr(relation, "to_arrow_table", None) or relation.arrow
        table = to_arrow()
        if kind == "arrow":
            return table
        import polars

        return polars.from_arrow(table)
    found = con.execute(sql)
    if kind == "pandas":
        return found.df()
    return {name: _array(values) for name, values in found.fetchnumpy().items()}
