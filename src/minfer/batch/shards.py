"""What is worked on at a time: inputs cut into shards, and shards read as record batches.

The cut depends on the inputs and the shard size alone:

* CoNLL-U, JSON lines and CSV (without line ends in cells): byte ranges of the text
  (:func:`text_range`); a compressed file has at most :data:`MOST_PACKED` of them, since each is
  reached by decompressing what lies before;
* Parquet: runs of row groups;
* models and pictures: runs of files.

A shard is read as a stream: what is in memory is one record batch. Rows know their ``place``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from minfer.basics.words import counted
from minfer.batch.folder import MANIFEST, PLAN
from minfer.errors import FormatError, MinferError
from minfer.io.opening import check_regular, reading, starts_packed, streamed
from minfer.io.opening import opened as regular
from minfer.io.text import check_path, csv_header
from minfer.parsing.conllu import CUT_OFF
from minfer.parsing.treebank import read_blocks

if TYPE_CHECKING:
    from minfer.batch.jobs import Job

SHARD_BYTES = 8 << 20
MOST_FILES = 64  # in a shard of models or pictures
MOST_PACKED = 16  # shards of one compressed file
MAX_LINE = 1 << 24  # bytes of one record in JSON lines
_HEADER = 1 << 20  # bytes of the header of a CSV file

#: The line end after which a record can begin, by kind of file.
ENDS = {
    "conllu": re.compile(rb"(?<=\n)\n|(?<=\n\r)\n"),
    "jsonl": re.compile(rb"\n"),
    "csv": re.compile(rb"\n"),
}

_CHUNK = 1 << 18
_BEHIND = 2  # bytes before a line end that the patterns look at

TABLES = {
    ".conllu": "conllu",
    ".conllx": "conllu",
    ".conll": "conllu",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".csv": "csv",
}

KINDS = {*TABLES.values(), "file"}


class InputFile(NamedTuple):
    """One file to read: its size and time of change tell whether it is still the same."""

    file: str
    kind: str  # one of KINDS; "file" is a record of its own
    name: str  # below the folder that was given, or the file's own
    size: int
    modified: int  # in nanoseconds


class Shard(NamedTuple):
    """A part of the input that one worker does in one go.

    ``start`` and ``stop`` are bytes of the text or numbers of row groups, ``stop`` None the end;
    ``files`` are pairs of path and name.
    """

    number: int
    kind: str
    file: str
    start: int
    stop: int | None
    size: int
    files: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """The shard as messages call it."""
        if self.kind == "file":
            more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
            return f"{self.files[0][0]}{more}"
        if self.kind == "parquet":
            return f"{self.file} from row group {self.start}" if self.start else self.file
        return f"{self.file} from byte {self.start}" if self.start else self.file


class Bad(NamedTuple):
    """A record that cannot be read."""

    place: str
    error: str


def find_inputs(
    paths: Sequence[str],
    job: Job,
    out: str | None = None,
    note: Callable[[str], None] | None = None,
) -> list[InputFile]:
    """The files that paths stand for; a folder stands for those below it that fit the job.

    The folder of the output may lie among them, and those of earlier runs: what is below them is
    not taken for input. ``note`` is told of what is left out and might have been expected.
    """
    own = None if out is None else Path(out).resolve()
    found: list[InputFile] = []
    runs: list[str] = []
    unread: list[str] = []
    for path in map(os.fspath, paths):
        check_path(path)
        if not os.path.exists(path):
            raise FormatError(f"{path}: there is no such file or folder")
        if os.path.isdir(path):
            below = sorted(p for p in Path(path).rglob("*") if p.is_file())
            if own in (folder := Path(path).resolve(), *folder.parents):
                raise FormatError(f"{path}: this is in the output folder; name another one")
            below = [p for p in below if own not in p.resolve().parents]
            plans, lists = ({p.parent for p in below if p.name == n} for n in (PLAN, MANIFEST))
            earlier = (plans & lists) - {Path(path)}  # folders of batch runs
            below = [p for p in below if not earlier & {*p.parents}]
            runs += sorted(map(str, earlier))
            unread += [str(p) for p in below if _suffix(str(p)) == job.evidence_suffix]
            fitting = [(str(p), str(p.relative_to(path))) for p in below if _kind(str(p), job)]
            if not fitting:
                raise FormatError(f"{path}: no file below this folder ends in {_known(job)}")
        else:
            fitting = [(path, os.path.basename(path))]
        for file, name in fitting:
            kind = _kind(file, job)
            if kind is None:
                raise FormatError(f"{file}: the name must end in {_known(job)}")
            try:
                file.encode()  # names go into tables and JSON lines, which are UTF-8
                facts = os.stat(file)
            except UnicodeEncodeError:
                raise FormatError(f"{file!r}: the name is not UTF-8; rename the file") from None
            except OSError as error:
                raise FormatError(f"cannot read {file}: {error.strerror}") from None
            found.append(InputFile(file, kind, name, facts.st_size, facts.st_mtime_ns))
    seen: set[str] = set()
    for item in found:
        if item.file in seen:
            raise FormatError(f"{item.file} is given twice")
        seen.add(item.file)
    if note and runs:
        note(f"{_count(runs, 'folder')} left out as output of an earlier run: {_some(runs)}")
    if note and unread:
        note(
            f"{_count(unread, 'evidence file')} not read: {_some(unread)}; to give evidence, write "
            'a table of JSON lines such as {"model": "net.uai", "evidence": {"x3": 1}}'
        )
    return found


def _count(items: Sequence[str], word: str) -> str:
    return f"{counted(len(items), word)} {'was' if len(items) == 1 else 'were'}"


def _some(items: Sequence[str]) -> str:
    return ", ".join(items[:3]) + (", ..." if len(items) > 3 else "")


def _suffix(file: str) -> str:
    """Of the name, in small letters, compressed or not."""
    return os.path.splitext(file.lower().removesuffix(".gz"))[1]


def _kind(file: str, job: Job) -> str | None:
    suffix = _suffix(file)
    if suffix in job.suffixes:
        return "file"
    kind = TABLES.get(suffix)
    return kind if kind in job.tables else None


def _known(job: Job) -> str:
    known = sorted([s for s, kind in TABLES.items() if kind in job.tables] + list(job.suffixes))
    return f"{', '.join(known[:-1])} or {known[-1]}"


def cut(inputs: Sequence[InputFile], job: Job, shard_bytes: int = SHARD_BYTES) -> list[Shard]:
    """The shards of the inputs, in order."""
    shards: list[Shard] = []
    waiting: list[InputFile] = []

    def add(*fields: Any) -> None:
        shards.append(Shard(len(shards), *fields))

    def flush() -> None:
        if waiting:
            files = tuple((item.file, item.name) for item in waiting)
            add("file", "", 0, None, sum(item.size for item in waiting), files)
            waiting.clear()

    for item in inputs:
        if item.kind == "file":
            waiting.append(item)
            if len(waiting) == MOST_FILES or sum(w.size for w in waiting) >= shard_bytes:
                flush()
            continue
        flush()
        ranges = _row_groups if item.kind == "parquet" else _byte_ranges
        for start, stop, size in ranges(item, job, shard_bytes):
            add(item.kind, item.file, start, stop, size)
    flush()
    return shards


def _byte_ranges(
    item: InputFile, job: Job, shard_bytes: int
) -> Iterator[tuple[int, int | None, int]]:
    size, most = item.size, item.size
    if is_compressed(item.file):
        try:
            size, most = text_size(item.file), MOST_PACKED
        except MinferError:
            most = 1  # damaged: whoever reads it will say where
    n = max(1, min(-(-size // shard_bytes), most))
    step = -(-size // n)
    for k in range(n):
        last = k == n - 1
        yield k * step, None if last else (k + 1) * step, (size - k * step if last else step)


def _row_groups(
    item: InputFile, job: Job, shard_bytes: int
) -> Iterator[tuple[int, int | None, int]]:
    with _parquet(item.file) as file:
        job.check_columns(item.file, file.schema_arrow.names)
        facts, start, size = file.metadata, 0, 0
        for k in range(facts.num_row_groups):
            size += facts.row_group(k).total_byte_size
            if size >= shard_bytes or k == facts.num_row_groups - 1:
                yield start, k + 1, size
                start, size = k + 1, 0


def read(shard: Shard, job: Job) -> Iterator[pa.RecordBatch | Bad]:
    """The records of a shard, ``job.rows`` at a time, in order; what cannot be read in between.

    Every batch has a column ``place`` and those of ``job.columns`` that there are. FormatError if
    the rest of the shard cannot be read at all.
    """
    if shard.kind in _BATCHES:
        yield from _BATCHES[shard.kind](shard, job)
        return
    rows: list[dict[str, Any]] = []

    def batch() -> Iterator[pa.RecordBatch]:
        if rows:
            names = {name for row in rows for name in row}
            kinds = {"place": pa.string(), **{k: t for k, t in job.columns.items() if k in names}}
            columns = [pa.array([row.get(k) for row in rows], kind) for k, kind in kinds.items()]
            rows.clear()
            yield pa.record_batch(columns, names=list(kinds))

    try:
        for row in _ROWS[shard.kind](shard, job):
            if isinstance(row, Bad):
                yield from batch()
                yield row
            else:
                rows.append(row)
                if len(rows) == job.rows:
                    yield from batch()
    except FormatError:
        yield from batch()
        raise
    yield from batch()


def _read_conllu(shard: Shard, job: Job) -> Iterator[dict[str, Any] | Bad]:
    chunks = text_range(shard.file, "conllu", shard.start, shard.stop)
    for block in read_blocks(cast(IO[bytes], Chunks(chunks, shard.label))):
        place = f"{shard.label}: line {block.line}"
        if block.cut:
            yield Bad(place, CUT_OFF)
            continue
        yield {"place": place, "conllu": block.data}


def _read_jsonl(shard: Shard, job: Job) -> Iterator[dict[str, Any] | Bad]:
    for number, line in enumerate(_lines(shard), 1):
        place = f"{shard.label}: JSON line {number}"
        if not line.strip():
            continue
        try:
            yield {"place": place, **_json_record(line, os.path.dirname(shard.file), job)}
        except FormatError as error:
            yield Bad(place, str(error))


def _lines(shard: Shard) -> Iterator[bytes]:
    rest = b""
    for chunk in text_range(shard.file, "jsonl", shard.start, shard.stop):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > MAX_LINE:
            raise FormatError(f"{shard.label}: no line end in {MAX_LINE:,} bytes: not JSON lines?")
    if rest:
        yield rest


def _json_record(line: bytes, folder: str, job: Job) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise FormatError(f"a record must be a JSON object, not {type(record).__name__}")
    row: dict[str, Any] = {}
    for name, kind in job.columns.items():
        value = record.get(name)
        if value is None:
            continue
        if name == "id" or job.texts or (name == "evidence" and not isinstance(value, str)):
            value = value if isinstance(value, str) else json.dumps(value)
        try:
            if pa.types.is_list(kind) and not isinstance(value, list):
                raise TypeError
            row[name] = pa.scalar(value, kind).as_py()
        except (pa.ArrowException, TypeError, ValueError):
            raise FormatError(f"{name} is not a {kind}: {json.dumps(value)[:60]}") from None
    job.check_columns("the record", list(row))
    for name in job.paths:
        if name in row:
            row[name] = os.path.join(folder, row[name])
    return row


def _read_files(shard: Shard, job: Job) -> Iterator[dict[str, Any] | Bad]:
    for file, name in shard.files:
        yield {"place": file, "id": name, job.paths[0]: file}


_ROWS = {"conllu": _read_conllu, "jsonl": _read_jsonl, "file": _read_files}


def _read_parquet(shard: Shard, job: Job) -> Iterator[pa.RecordBatch]:
    folder = os.path.dirname(shard.file)
    with _parquet(shard.file) as file:
        names = [name for name in job.columns if name in file.schema_arrow.names]
        stop = file.metadata.num_row_groups if shard.stop is None else shard.stop
        row = sum(file.metadata.row_group(k).num_rows for k in range(shard.start))
        for batch in file.iter_batches(job.rows, range(shard.start, stop), columns=names):
            places = [f"{shard.file}: row {row + k + 1}" for k in range(len(batch))]
            columns = [_column(batch.column(name), name, folder, shard, job) for name in names]
            yield pa.record_batch([pa.array(places), *columns], names=["place", *names])
            row += len(batch)


def _read_csv(shard: Shard, job: Job) -> Iterator[pa.RecordBatch | Bad]:
    """Cells as texts; a row with too many or too few is bad."""
    from pyarrow import csv as pacsv

    with opened(shard.file) as text:
        header = text.readline(_HEADER)
    names, separator = csv_header(shard.file, header)
    wanted = [name for name in job.columns if name in names]
    job.check_columns(shard.file, names)
    data = b"".join(text_range(shard.file, "csv", shard.start, shard.stop))
    if shard.start == 0:
        data = data[len(header) :]
    if not data.strip():
        return
    try:
        data.decode()  # or the library would complain where nobody can hear it
    except UnicodeDecodeError:
        raise FormatError(f"{shard.label}: this is not UTF-8") from None
    bad: list[Bad] = []

    def note(row: Any) -> str:
        told = f"{row.actual_columns} cells, but {row.expected_columns} columns"
        bad.append(Bad(f"{shard.label}: {row.text[:60]}", told))
        return "skip"

    try:
        table = pacsv.read_csv(
            pa.BufferReader(data),
            pacsv.ReadOptions(column_names=names, use_threads=False),
            pacsv.ParseOptions(delimiter=separator, invalid_row_handler=note),
            pacsv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted,
                null_values=[], strings_can_be_null=False,
            ),
        )  # fmt: skip
    except pa.ArrowException as error:
        raise FormatError(f"{shard.label}: {error}") from None
    yield from bad
    row = 0
    for batch in table.combine_chunks().to_batches(job.rows):
        places = [f"{shard.label}: row {row + k + 1}" for k in range(len(batch))]
        yield pa.record_batch([pa.array(places), *batch.columns], names=["place", *wanted])
        row += len(batch)


_BATCHES = {"parquet": _read_parquet, "csv": _read_csv}


def _column(values: pa.Array, name: str, folder: str, shard: Shard, job: Job) -> pa.Array:
    """A column of the type that the job takes; maps and structs of evidence become JSON."""
    kind = job.columns[name]
    if name == "evidence" and not pa.types.is_string(values.type):
        rows = (_plain(x, values.type) if x else None for x in values.to_pylist())
        try:
            return pa.array([None if row is None else json.dumps(row) for row in rows], kind)
        except (TypeError, ValueError):
            raise FormatError(
                f"{shard.file}: evidence is {values.type}, not texts, or maps of numbers or texts"
            ) from None
    try:
        values = values.cast(kind)
    except pa.ArrowException:
        raise FormatError(f"{shard.file}: {name} is {values.type}, not {kind}") from None
    if name not in job.paths:
        return values
    paths = [None if x is None else os.path.join(folder, x) for x in values.to_pylist()]
    return pa.array(paths, kind)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Maps and structs as dicts, without what is null."""
    if value is None or not (pa.types.is_map(kind) or pa.types.is_struct(kind)):
        return value
    if pa.types.is_map(kind):
        return {k: _plain(v, kind.item_type) for k, v in value if v is not None}
    return {k: _plain(v, kind.field(k).type) for k, v in value.items() if v is not None}


@contextmanager
def _parquet(path: str) -> Iterator[Any]:
    """An open Parquet file; what is wrong with it is a FormatError."""
    check_regular(path)
    with reading(path, "a Parquet file is needed"):
        file = pq.ParquetFile(path)
    try:
        with file:
            yield file
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise FormatError(f"{path}: the Parquet file is damaged: {error}") from None


def text_range(file: str, kind: str, start: int, stop: int | None) -> Iterator[bytes]:
    """The bytes of a range, moved to where records begin, in chunks; ``stop`` None: to the end.

    A record belongs to the range in which its first byte lies. With ``b(p)`` the first place at or
    after ``p`` where a record can begin (:data:`ENDS`), ``[start, stop)`` reads ``[b(start),
    b(stop))``: neighbours agree on ``b`` without asking each other, and every record is read once.
    Places are counted in the decompressed text.
    """
    pattern = ENDS[kind]
    with opened(file) as text:
        behind = min(start, _BEHIND + 1)
        before = start - behind
        if text.seekable():
            text.seek(before)
        else:
            while before > 0 and (chunk := text.read(min(before, _CHUNK))):
                before -= len(chunk)
        base, kept, begun = start - behind, b"", start == 0
        read = getattr(text, "read1", text.read)
        while chunk := read(_CHUNK):  # what a damaged file still has comes through
            data, new = kept + chunk, len(kept)
            if not begun:
                found = pattern.search(data, max(start - 1 - base, 0))
                begun = found is not None
                new = found.end() if found else len(data)
                if begun and stop is not None and base + new >= stop:
                    return
            if begun and stop is not None and base + len(data) >= stop:
                found = pattern.search(data, max(stop - 1 - base, new))
                if found:
                    yield data[new : found.end()]
                    return
            if begun and new < len(data):
                yield data[new:]
            kept = data[-_BEHIND:]
            base += len(data) - len(kept)


def is_compressed(file: str) -> bool:
    """Whether a file begins as gzip does."""
    with regular(file, pipes=False) as raw:
        return starts_packed(raw)


def text_size(file: str) -> int:
    """Bytes of the text of a file, decompressed."""
    with opened(file) as text:
        return sum(map(len, iter(lambda: text.read(_CHUNK), b"")))


@contextmanager
def opened(file: str) -> Iterator[BinaryIO]:
    """A file for reading, decompressed; damage is a FormatError."""
    with reading(file), streamed(file) if is_compressed(file) else regular(file) as text:
        yield text


class Chunks:
    """Chunks of bytes as an open file with a name, for readers that only read on."""

    def __init__(self, chunks: Iterator[bytes], name: str) -> None:
        self._chunks, self.name = chunks, name

    def read(self, size: int = -1) -> bytes:
        """The next chunk, whatever its size; empty at the end."""
        return next(self._chunks, b"")


def hashed(chunks: Iterator[bytes]) -> str:
    """SHA-256 of some bytes, in hexadecimal digits."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def digest(shard: Shard) -> str:
    """SHA-256 of the bytes that a shard stands for; of the whole file if it is damaged."""
    if shard.kind == "file":
        whole = hashlib.sha256()
        for file, name in shard.files:
            try:
                content = hashed(bytes_of(file, 0, os.path.getsize(file)))
            except OSError as error:
                content = str(error.strerror)  # its record is an error
            whole.update(f"{name}\0{content}\n".encode())
        return whole.hexdigest()
    start, stop = 0, os.path.getsize(shard.file)
    try:
        if shard.kind != "parquet":
            return hashed(text_range(shard.file, shard.kind, shard.start, shard.stop))
        with _parquet(shard.file) as file:
            offsets = [_offset(file.metadata, k) for k in range(file.metadata.num_row_groups)]
        start = offsets[shard.start] if offsets else 0
        if shard.stop is not None and shard.stop < len(offsets):
            stop = offsets[shard.stop]
    except FormatError:
        pass
    return hashed(bytes_of(shard.file, start, stop))


def _offset(facts: Any, group: int) -> int:
    columns = [facts.row_group(group).column(k) for k in range(facts.num_columns)]
    starts = [c.dictionary_page_offset or c.data_page_offset for c in columns]
    return min([*starts, *(c.data_page_offset for c in columns)])


def bytes_of(path: str, start: int, stop: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(start)
        while start < stop and (chunk := file.read(min(1 << 20, stop - start))):
            start += len(chunk)
            yield chunk
