"""Tables of any kind as relations of the database, and answers in the kind that came in.

The database (DuckDB, inside this process) reads data frames and Arrow tables where they lie, CSV
and Parquet files by itself, tables of DuckDB files through ATTACH; a table of SQLite is read by
Python's own module, so that no extension need be fetched.

*A tool, not a door.* No database here can open a file, a network address or an extension, but for
the files that were named to it, and nothing that it runs can change that (:func:`_closed`). What
somebody else wrote, a view in a file or the SQL of a :class:`Query`, runs in a database of its own
that has this one file, read-only; only columns come back from there. A name is that file: names
with characters that the database would expand are handed to it as links with plain names.

Opening a database takes longer than all the joins of a small program. So the programs of a process
that read no files have connections to one, whose temporary tables are theirs alone and go when they
go; a program with files or a memory limit has a database of its own.
"""

from __future__ import annotations

import ctypes
import datetime
import os
import re
import shutil
import sqlite3
import tempfile
import threading
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minfer.basics import checks
from minfer.basics.checks import told
from minfer.basics.words import counted
from minfer.errors import FormatError, ModelError, RefusedError, SettingsError, visible
from minfer.io.opening import opened, streamed
from minfer.io.text import check_text, csv_header
from minfer.model.states import did_you_mean
from minfer.rules.formulas import Constant, value_text

_VALUES = (str, int, float, np.generic, datetime.date)
_LONGEST_HEADER = 1 << 20  # bytes
_AS_THEY_ARE = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "FLOAT", "DOUBLE", "VARCHAR",
)  # fmt: skip
_NESTED = re.compile(r"\]$|^(STRUCT|MAP|UNION|VARIANT)")
_NO_FUNCTIONS = ("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer")
_LOG = ".wal"  # beside a DuckDB file, with rows that are not in it yet
_SUFFIXES = (".csv.gz", ".tsv.gz", ".txt.gz", ".csv", ".tsv", ".txt", ".parquet")
#: What a text that names a database ends in, whether or not it is there.
DATABASES = (".duckdb", ".ddb", ".db", ".sqlite", ".sqlite3")
_NO_TEXT = re.compile("[\ud800-\udfff]")
# patterns, home folders, and what is no UTF-8
_SPECIAL = re.compile("[*?\\[\\]{}~\ud800-\udfff" + ("" if os.sep == "\\" else "\\\\") + "]")

_shared: dict[int, Any] = {}  # databases, by the threads they have
_lock = threading.Lock()  # of these
_attaching = threading.Lock()  # a process can attach a file once


def _begin_anew() -> None:
    """In a fork: it has no use for the databases and locks of its parent.

    To close one would wait for threads that are not there, so that they are kept to its end.
    """
    global _lock, _attaching
    for database in _shared.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(database))
    _shared.clear()
    _lock, _attaching = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@dataclass(frozen=True)
class Query:
    """What a database file answers to SQL: a table for :meth:`minfer.Rules.closed` and others.

    The statement must be a single one that reads. It sees the tables and views of this file and
    nothing else: no other files, no network, no extensions; and it cannot write.

    Parameters
    ----------
    file : name of a DuckDB or SQLite file
    sql : str

    Examples
    --------
    >>> from minfer.rules import Query
    >>> Query("people.duckdb", sql="select a, b from friends where since < 2020").sql
    'select a, b from friends where since < 2020'
    """

    file: str | os.PathLike[str]
    sql: str = field(kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.file, str | os.PathLike):
            raise ModelError(f"Query: file must be the name of a file, not {self.file!r}")
        if not isinstance(self.sql, str):
            raise ModelError(f"Query: sql= must be a text, not {self.sql!r}")


class Raw(NamedTuple):
    """A table as it was given, known to the database by ``name``."""

    name: str
    columns: dict[str, str]  # name: SQL type
    kind: str  # pandas, polars, arrow or columns


class Database:
    """A connection; ``files`` it may open, by their full names: how the database calls them."""

    def __init__(
        self, con: Any, settings: dict[str, Any], files: dict[str, str], folder: str | None = None
    ) -> None:
        self.con = con
        self.settings = settings
        self.files = files
        if folder is not None:
            weakref.finalize(self, _remove, folder, os.getpid())

    def execute(self, sql: str) -> None:
        with self.enough():
            self.con.execute(sql)

    def rows(self, sql: str) -> list[Any]:
        """An answer as tuples."""
        with self.enough():
            return self.con.execute(sql).fetchall()

    def columns(self, sql: str) -> dict[str, Any]:
        """An answer by columns, masked arrays where values are missing."""
        with self.enough():
            return self.con.execute(sql).fetchnumpy()

    def arrays(self, sql: str) -> dict[str, np.ndarray]:
        """An answer of which nothing is missing, by columns."""
        return {name: np.ma.getdata(column) for name, column in self.columns(sql).items()}

    @contextmanager
    def enough(self) -> Iterator[None]:
        """RefusedError where the database lacks memory; it calls Ctrl-C a RuntimeError."""
        import duckdb

        try:
            yield
        except (MemoryError, duckdb.OutOfMemoryException) as error:
            said = str(error).partition("\n")[0].removeprefix("Out of Memory Error: ")
            limit = self.settings.get("memory_limit")
            below = "set memory_limit= below what the process may have, so that it spills to disk"
            raise RefusedError(
                f"the database ran out of memory{f' ({said})' if said else ''}: "
                f"{f'raise memory_limit={limit}' if limit else below}, or make fewer groundings: "
                "rules with fewer variables, fewer candidates, or a higher threshold="
            ) from None
        except RuntimeError as error:
            if str(error) == "Query interrupted":
                raise KeyboardInterrupt from None
            raise

    def one(self, sql: str) -> Any:
        """The first row of an answer, or None."""
        rows = self.rows(sql)
        return rows[0] if rows else None

    def make(self, table: str, sql: str) -> int:
        """Make a temporary table of an answer, in place of the one of that name; how many rows."""
        return self.one(f"create or replace temp table {table} as {sql}")[0]

    def file(self, path: str) -> str:
        """A file that it may open, as SQL."""
        return quoted(self.files[os.path.abspath(path)])

    @contextmanager
    def for_files(self, paths: Sequence[str]) -> Iterator[Database]:
        """This one where it may open these files, else another that may."""
        if all(os.path.abspath(path) in self.files for path in paths):
            yield self
        else:
            with closing(_closed(self.settings, paths)) as other:
                yield other

    @contextmanager
    def attached(self, path: str) -> Iterator[None]:
        """A DuckDB file as the database ``source_db``, read-only."""
        with _attaching:
            self.execute(f"attach {self.file(path)} as source_db (read_only)")
            try:
                yield
            finally:
                self.execute("detach source_db")

    def close(self) -> None:
        self.con.close()

    def register(self, name: str, table: Any) -> None:
        with self.enough():
            self.con.register(name, table)

    def unregister(self, name: str) -> None:
        self.con.unregister(name)


def connect(
    memory_limit: str | None = None, threads: int = 1, sources: Iterable[Any] = ()
) -> Database:
    """Room for tables of one's own, in memory, spilling to a temporary folder where it must.

    Files that ``sources`` are read from can be opened, and no others.
    """
    checks.load("duckdb", "rules need duckdb", "rules")
    if memory_limit is not None and not isinstance(memory_limit, str):
        raise SettingsError(
            f"memory_limit must be a string with a unit, such as '2GB', not {memory_limit!r}"
        )
    files = [path for source in sources for path in _files_of(source)]
    if memory_limit is not None or files:
        return _closed({"threads": threads, "memory_limit": memory_limit}, files)
    with _lock:
        if threads not in _shared:
            _shared[threads] = _closed({"threads": threads}, ())
        whole = _shared[threads]
        return Database(whole.con.cursor(), whole.settings, {})


def _closed(settings: dict[str, Any], files: Sequence[str]) -> Database:
    """A database that can open these files only, and whose settings nothing can change."""
    import duckdb

    spill = os.path.join(tempfile.gettempdir(), f"minfer-{uuid.uuid4().hex}")  # made when needed
    whole = duckdb.connect(
        config={
            "threads": settings["threads"], "temp_directory": spill,
            "preserve_insertion_order": "true", "allow_unsigned_extensions": "false",
            "allow_community_extensions": "false", "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false", "allow_persistent_secrets": "false",
        }
    )  # fmt: skip
    memory = settings.get("memory_limit")
    if memory is not None:
        try:
            if memory.lstrip().startswith("-"):
                raise ValueError
            whole.execute(f"set memory_limit = {quoted(memory)}")
        except (ValueError, duckdb.Error):
            raise SettingsError(
                "memory_limit must be a number with a unit (KB, MB, GB, TB, KiB, MiB, GiB, TiB), "
                f"such as '2GB', not {memory!r}"
            ) from None
    names, folder = _plain_names(files)
    if names:
        allowed = [*names.values(), *map(os.path.realpath, names)]  # where links lead to, too
        every = [n + end for n in allowed if not _NO_TEXT.search(n) for end in ("", _LOG)]
        whole.execute(f"set allowed_paths = [{', '.join(map(quoted, every))}]")
    whole.execute("set python_enable_replacements = false")
    whole.execute("set enable_external_access = false")
    whole.execute("set lock_configuration = true")
    # a connection of its own, which has no progress bar
    return Database(whole.cursor(), settings, names, folder)


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # and not a fork of it
        shutil.rmtree(folder, ignore_errors=True)


def _plain_names(paths: Iterable[str]) -> tuple[dict[str, str], str | None]:
    """Names that stand for themselves (links, where a character means more), and their folder."""
    names: dict[str, str] = {}
    folder: str | None = None
    for path in dict.fromkeys(map(os.path.abspath, paths)):
        if not os.path.isfile(path):
            continue
        names[path] = path
        if not _SPECIAL.search(path):
            continue
        if folder is None:
            folder = tempfile.mkdtemp(prefix="minfer-names-")
        suffix = next((x for x in _SUFFIXES if path.lower().endswith(x)), "")
        link = os.path.join(folder, f"{len(names)}{suffix}")
        try:
            if _SPECIAL.search(link):
                raise OSError(f"so are those of the temporary folder, {folder}")
            for end in ("", _LOG):
                if os.path.exists(path + end):
                    os.symlink(path + end, link + end)
        except OSError as error:
            raise FormatError(
                f"cannot read {visible(path)}: its name has characters that need a link to it, and "
                f"none can be made ({error.strerror or error}); rename it"
            ) from None
        names[path] = link
    return names, folder


def _files_of(source: Any) -> list[str]:
    """Files that the database opens for a source; SQL is run elsewhere."""
    if isinstance(source, str | os.PathLike):
        return [os.fsdecode(source)]
    if _is_table_of_file(source):
        return [os.fsdecode(source[0])] if isinstance(source[1], str) else []
    return [os.fsdecode(path) for path in source] if _are_files(source) else []


def _are_files(source: Any) -> bool:
    """Texts in a list are values, paths in a list are files."""
    if not isinstance(source, list | tuple) or not source or _is_table_of_file(source):
        return False
    return all(isinstance(path, os.PathLike) for path in source)


def _is_table_of_file(source: Any) -> bool:
    """Two texts are values, unless the first is the name of a database or of any file there."""
    if not isinstance(source, tuple) or len(source) != 2 or isinstance(source[1], os.PathLike):
        return False
    first, second = source
    if not isinstance(first, str):
        return isinstance(first, os.PathLike)
    named_so = Path(first).suffix.lower() in DATABASES
    return named_so or (isinstance(second, str) and os.path.isfile(first))


def quoted(text: str) -> str:
    """A text as SQL."""
    return "'" + text.replace("'", "''") + "'"


def named(text: str) -> str:
    """A name as SQL."""
    return '"' + text.replace('"', '""') + '"'


def columns_of(con: Database, name: str) -> dict[str, str]:
    with con.enough():
        relation = con.con.view(name)
    return {column: str(kind) for column, kind in zip(relation.columns, relation.types)}


def load(con: Database, name: str, source: Any, what: str, width: int | None = None) -> Raw:
    """Make a source known to the database as ``name``. ``what`` begins messages about it."""
    import duckdb

    kind = "columns"
    home = type(source).__module__.partition(".")[0]
    try:
        if isinstance(source, str | os.PathLike) or _are_files(source):
            paths = _files_of(source)
            for path in paths:
                _check_file(path, what)
            with con.for_files(paths) as reader:
                _bring(con, name, reader, _files_sql(reader, paths, what), what)
        elif isinstance(source, Query):
            _of_database(con, name, source.file, what, sql=source.sql)
        elif _is_table_of_file(source):
            _of_database(con, name, source[0], what, table=source[1])
        elif home in ("pandas", "polars", "pyarrow"):
            kind = "arrow" if home == "pyarrow" else home
            if hasattr(source, "collect"):
                source = source.collect()
            if home in ("pandas", "polars") and not hasattr(source, "columns"):
                source = source.to_frame()
            schema = getattr(source, "schema", None) if home == "pyarrow" else None
            names = getattr(source, "columns", ()) if schema is None else schema.names
            _check_names([str(c) for c in names], what)
            con.register(name, source)
        elif home in ("duckdb", "_duckdb"):
            _check_names(source.columns, what)
            with con.enough():
                found = source.fetchnumpy()
            con.register(name, found)
        else:
            con.register(name, _of_values(source, what, width))
        return Raw(name, columns_of(con, name), kind)
    except duckdb.Error as error:
        raise FormatError(f"{what}: {_problem(error, source, con.files)}") from None


def _check_names(names: Sequence[str], what: str, error: type[Exception] = ModelError) -> None:
    """Columns have names that the database can tell apart."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.lower())
        seen[name.lower()] = name
        if other is None:
            continue
        if other == name:
            raise error(f"{what}: two columns are called {visible(name)!r}")
        raise error(
            f"{what}: the columns {visible(other)!r} and {visible(name)!r} differ only in case, "
            "which the database does not tell apart: rename one of them"
        )


def _check_file(path: str, what: str) -> None:
    if os.path.isfile(path):
        return
    problem = "there is no such file"
    if os.path.exists(path):
        problem = "it is a folder" if os.path.isdir(path) else "it is not a file"
    elif re.search("[*?[]", path):
        problem += (
            "; a name is no pattern: several files are given as a list of paths, such as "
            "sorted(Path('folder').glob('*.csv'))"
        )
    raise FormatError(f"{what}: cannot read {visible(path)}: {problem}")


def _files_sql(reader: Database, paths: list[str], what: str) -> str:
    """SQL of the rows of CSV or Parquet files with the same columns, one after the other."""
    bare = [path.lower().removesuffix(".gz") for path in paths]
    listed = "[" + ", ".join(map(reader.file, paths)) + "]"
    if all(path.endswith(".parquet") for path in bare):
        for path in paths:
            _check_parquet(reader, path, paths[0], what)
        # folders called year=2020 say something to the database, but are no columns of the file
        return f"select * from read_parquet({listed}, hive_partitioning = false)"
    for path, end in zip(paths, bare):
        if not end.endswith((".csv", ".tsv", ".txt")):
            raise FormatError(
                f"{what}: {visible(path)} is neither .csv, .tsv (.gz) nor .parquet, or not of the "
                "kind of the others; a table of a database is given as ('file.duckdb', 'table')"
            )
    names, separator = _header(paths[0], what)
    for other in paths[1:]:
        found = _header(other, what)
        if found != (names, separator):
            raise _other_columns(what, other, found[0], paths[0], names, "line 1: ")
    columns = ", ".join(f"{quoted(n)}: 'varchar'" for n in names)
    # nothing is left to guess: a sniffer makes some table of whatever there is
    return (
        f"select * from read_csv({listed}, auto_detect = false, header = true, delim = "
        f"{quoted(separator)}, quote = '\"', escape = '\"', columns = {{{columns}}}, "
        "strict_mode = true, null_padding = false, hive_partitioning = false)"
    )


def _other_columns(
    what: str, other: str, found: Sequence[str], first: str, names: Sequence[str], line: str = ""
) -> FormatError:
    return FormatError(
        f"{what}: {visible(other)}: {line}its columns are {visible(', '.join(found))}, those of "
        f"{visible(first)} {visible(', '.join(names))}"
    )


def _check_parquet(reader: Database, path: str, first: str, what: str) -> None:
    """Names of its columns that can be told apart, and are those of the first file."""

    def columns(path: str) -> list[str]:
        sql = f"select name, num_children from parquet_schema({reader.file(path)})"
        rows = iter(reader.rows(sql))
        found = []
        for _ in range(next(rows)[1] or 0):
            name, below = next(rows)
            found.append(name)
            below = below or 0
            while below:
                below += (next(rows)[1] or 0) - 1
        return found

    names = columns(path)
    _check_names(names, f"{what}: {visible(path)}", FormatError)
    if path != first and names != columns(first):
        raise _other_columns(what, path, names, first, columns(first))


def _bring(con: Database, name: str, reader: Database, sql: str, what: str) -> None:
    """An answer as a table; from another database its columns come over."""
    if reader is con:
        con.make(name, sql)
        return
    with reader.enough():
        names = reader.con.sql(sql).columns
    _check_names(names, what)
    reader.make("minfer_brought", sql)
    types = columns_of(reader, "minfer_brought")
    columns = {c: t for c, t in types.items() if t in _AS_THEY_ARE}
    listed = [named(c) if c in columns else f"{named(c)}::varchar as {named(c)}" for c in types]
    got = reader.columns(f"select {', '.join(listed)} from minfer_brought")
    con.register("brought", {c: _array(values) for c, values in got.items()})
    back = {c: "VARCHAR" if _NESTED.search(t) else t for c, t in types.items()}
    con.make(
        name, f"select {', '.join(f'{named(c)}::{t} as {named(c)}' for c, t in back.items())} "
        "from brought",
    )  # fmt: skip
    con.unregister("brought")


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
    if all(Constant(n).number is not None for n in names):
        raise FormatError(
            f"{place}: line 1: there is no header with the names of the columns, but numbers"
        )
    if "" in names:
        raise FormatError(f"{place}: line 1: column {names.index('') + 1} has no name")
    _check_names(names, f"{place}: line 1", FormatError)
    return names, separator


def _problem(error: Exception, source: Any, files: Mapping[str, str]) -> str:
    """What the database says of a table, in one line."""
    text = str(error)
    for path, name in files.items():
        text = text.replace(name, path)
    line = re.search(r"CSV Error on Line: (\d+)", text)
    if line is None:
        text = text.splitlines()[0]
        if not isinstance(source, Query) and not _is_table_of_file(source):
            return text
        path = visible(os.fsdecode(source.file if isinstance(source, Query) else source[0]))
        if "already attached" in text or "Unique file handle" in text:
            call = "sql(...)" if isinstance(source, Query) else f"table({source[1]!r})"
            text = (
                f"this process has it open: give con.{call} of that connection instead of its name"
            )
        return f"{path}: {text}"
    file = re.search(r"^  file = (.*)$", text, re.MULTILINE)
    path = file.group(1) if file else os.fspath(source)
    place = f"{visible(path)}: line {int(line.group(1)):,}: "
    widths = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text)
    if widths is not None:
        wanted, found = (int(x) for x in widths.groups())
        return f"{place}{counted(found, 'value')}, but the header has {counted(wanted, 'column')}"
    if "unterminated quote" in text:
        return f"{place}a quote that does not end, or text after its end"
    if "utf-8" in text.lower() or "invalid unicode" in text.lower():
        return f"{place}this is not UTF-8"
    words = [x for x in text.splitlines()[1:] if x and not x.startswith("Original Line")]
    return place + (words[0] if words else text.splitlines()[0])


def _of_database(
    con: Database,
    name: str,
    file: str | os.PathLike[str],
    what: str,
    table: str = "",
    sql: str | None = None,
) -> None:
    """A table or view of a file, or what the file answers to SQL."""
    import duckdb

    if not isinstance(table, str):
        raise ModelError(f"{what}: a table of a database is given as ('file.duckdb', 'table')")
    path = os.fsdecode(file)
    _check_file(path, what)
    with opened(path, pipes=False) as source:
        head = source.read(16)
    place = f"{what}: {visible(path)}"
    if head.startswith(b"SQLite format 3"):
        return _of_sqlite(con, name, path, place, table, sql)
    if "?" in os.path.basename(path):
        raise FormatError(f"{place}: DuckDB misreads names with a ?: rename the file")
    if head[8:12] != b"DUCK":
        hint = "" if sql is not None else "; two values are given as a list: ['a', 'b']"
        raise FormatError(f"{place} is neither a DuckDB nor a SQLite file{hint}")
    if sql is None:
        with con.for_files([path]) as reader, reader.attached(path):
            sql, plain = _table_sql(reader, table, place)
            if plain:
                return _bring(con, name, reader, sql, what)
    # what somebody else wrote sees its own file, and no other of this program
    with closing(_closed(con.settings, [path])) as reader, reader.attached(path):
        kinds = [statement.type for statement in reader.con.extract_statements(sql)]
        if len(kinds) != 1:
            raise FormatError(f"{place}: SQL must be a single statement, not {len(kinds)}")
        if kinds[0] != duckdb.StatementType.SELECT:
            word = str(kinds[0]).rpartition(".")[2]
            raise FormatError(f"{place}: SQL must be a statement that reads, a SELECT, not {word}")
        reader.execute("use source_db")
        try:
            return _bring(con, name, reader, sql, what)
        finally:
            reader.execute("use memory")


def _table_sql(reader: Database, table: str, place: str) -> tuple[str, bool]:
    """SQL of all rows of a table or view, and whether they just lie there."""
    in_file = "from duckdb_{}() where database_name = 'source_db' and schema_name = 'main'"
    tables, views = in_file.format("tables"), in_file.format("views") + " and not internal"
    rows = reader.rows(f"select table_name, sql {tables} union all select view_name, null {views}")
    found = {name.lower(): (name, text) for name, text in rows}
    if table.lower() not in found:
        raise _no_table(place, table, [name for name, _ in rows])
    called, text = found[table.lower()]
    computed = text is None or "generated" in text.lower()
    return f"select * from source_db.main.{named(called)}", not computed


def _no_table(place: str, table: str, names: Sequence[str]) -> FormatError:
    hint = did_you_mean(table, names, quotes=True)
    if re.match(r"\s*(select|with|from)\b", table, re.IGNORECASE):
        hint = "; SQL is given as minfer.rules.Query(file, sql=...)"
    return FormatError(f"{place}: there is no table {visible(table)!r}{hint}")


def _of_sqlite(
    con: Database, name: str, path: str, place: str, table: str, sql: str | None
) -> None:
    """A table of SQLite, by Python's own module, which runs a single statement only."""
    uri = f"{Path(path).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as lite:
            lite.execute("pragma trusted_schema = off")  # views call nothing that does anything
            lite.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            if sql is None:
                rows = lite.execute("select name from sqlite_master where type in ('table','view')")
                names = {n.lower(): n for (n,) in rows.fetchall()}
                if table.lower() not in names:
                    raise _no_table(place, table, list(names.values()))
                sql = f"select * from {named(names[table.lower()])}"
            lite.set_authorizer(_may_read)
            cursor = lite.execute(sql)
            if cursor.description is None:
                raise FormatError(f"{place}: SQL must be a statement that reads, a SELECT")
            columns = [d[0] for d in cursor.description]
            found = cursor.fetchall()
    except (sqlite3.Error, sqlite3.Warning, UnicodeError, OverflowError) as error:
        raise FormatError(f"{place}: {error}") from None
    _check_names(columns, place)
    values = list(zip(*found)) if found else [()] * len(columns)
    con.register(name, {n: _array(c) for n, c in zip(columns, values)})


def _may_read(action: int, first: str | None, second: str | None, *_: Any) -> int:
    """What SQLite may do for a table: read, and compute."""
    reads = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
    computes = action == sqlite3.SQLITE_FUNCTION and second not in _NO_FUNCTIONS
    return sqlite3.SQLITE_OK if action in reads or computes else sqlite3.SQLITE_DENY


def _of_values(source: Any, what: str, width: int | None) -> dict[str, np.ndarray]:
    """Columns, records, tuples, or plain values of one column."""
    if isinstance(source, Mapping):
        _check_names([str(k) for k in source], what)
        columns = {str(k): _array(v) for k, v in source.items()}
        sizes = {name: len(values) for name, values in columns.items()}
        if len(set(sizes.values())) > 1:
            raise ModelError(f"{what}: columns must have the same length, not {sizes}")
        return columns
    if isinstance(source, np.ndarray) and source.dtype.names:
        _check_names(source.dtype.names, what)
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
            _check_names([str(n) for n in names], what)
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
        "{name: values}, a list of tuples or dicts, the name of a .csv or .parquet file or a list "
        "of paths, ('file.duckdb' or a file of SQLite, 'table') or a minfer.rules.Query, not "
        f"{type(source).__name__}"
    )


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
    yes_no = (bool, np.bool_)
    texts = (value_text(x) if isinstance(x, yes_no) else x if x is None else str(x) for x in listed)
    out[:] = list(texts)
    return out


def as_kind(
    con: Database, kind: str, sql: str, names: Sequence[str], columns: Mapping[str, Any]
) -> Any:
    """The answer to a query as a table of some kind, whose columns have these names.

    The query has other names for them: the database has one name for ``a`` and ``A``. It can read
    ``columns`` as answer_columns.
    """
    con.register("answer_columns", dict(columns))
    try:
        if kind == "columns":
            return {name: _array(values) for name, values in zip(names, con.columns(sql).values())}
        with con.enough():
            relation = con.con.sql(sql)
            if kind == "pandas":
                frame = relation.df()
                frame.columns = list(names)
                return frame
            to_arrow = getattr(relation, "to_arrow_table", None) or relation.arrow
            table = to_arrow().rename_columns(list(names))
    finally:
        con.unregister("answer_columns")
    if kind == "polars":
        import polars

        return polars.from_arrow(table)
    return table
