"""What the formats share: naming, atomic writing, and numbers that know their place.

Paths are ``str`` or ``Path``; ``-`` is standard input or output. Output is compressed whenever its
name ends in ``.gz``, without a time stamp, so that equal models give equal files. Input is opened
by :mod:`minfer.io.opening`.

:class:`Numbers` reads all numbers of a text at once; only an error looks for line and token.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, cast

import numpy as np

from minfer.basics.words import plain
from minfer.errors import DiskFullError, FormatError, MinferError, SettingsError, fullness

if TYPE_CHECKING:
    from minfer.factors.group import Floats, Ints

#: The longest number: even a denormal written out in full has fewer digits.
MAX_TOKEN = 2000

PathLike = str | os.PathLike[str]

_LOOK = 1024  # bytes that tell text from binary data


def shown(path: PathLike) -> str:
    """A path as messages call it."""
    name = path_text(path)
    return "<stdin>" if name == "-" else name


def path_text(path: PathLike) -> str:
    """A path as a string; what is none is refused."""
    if path.__class__ is str:
        return path
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise SettingsError(f"a file name must be a string or a Path, not {type(path).__name__}")
    return name


def check_path(path: PathLike, verb: str = "read") -> None:
    """FormatError if no file can have that name."""
    name, wrong = path_text(path), None
    if "\0" in name:
        wrong = "a NUL character"
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        wrong = "a character that cannot be encoded"
    if wrong:
        raise FormatError(f"cannot {verb} {name}: a file name cannot hold {wrong}; take it out")


def check_writable(path: PathLike, inputs: Iterable[PathLike | None] = ()) -> None:
    """SettingsError unless this is standard output, or a file that could be written now.

    Its folder is there, and it is none of the inputs: for calls that work long before they write.
    """
    name = path_text(path)
    check_path(path, "write")
    folder = Path(name).parent
    if name == "-":
        return
    if not folder.is_dir():
        raise SettingsError(f"cannot write {name}: there is no folder {folder}")
    if Path(name).is_dir():
        raise SettingsError(f"cannot write {name}: it is a folder")
    for source in inputs if Path(name).exists() else ():  # any text, also of none that is there
        if source and os.path.exists(source) and Path(name).samefile(source):
            raise SettingsError(f"{name} is also an input and would be overwritten")


def check_text(name: str, start: bytes) -> None:
    """Raise FormatError if the first bytes of a file cannot be those of a text in UTF-8."""
    if b"\0" in start[:_LOOK]:
        raise FormatError(
            f"{name}: this is not text: it has zero bytes, as binary files and UTF-16 have; is it "
            "the right file? Text should be UTF-8"
        )


@contextmanager
def atomic_write(path: PathLike, *, follow: bool = True) -> Iterator[BinaryIO]:
    """A binary file that appears under its name only when complete.

    What is written goes to a temporary file in the same folder; at the end of the block it is
    synced and takes the name. Any exception, Ctrl-C included, removes it and leaves an existing
    file untouched. ``-`` is standard output, ``.gz`` compresses; a device or pipe is written
    directly, a link is followed; with ``follow`` false nothing but a file of that name is written.

    >>> from minfer.io import atomic_write
    >>> with atomic_write("whole.txt") as file:
    ...     _ = file.write(b"text")
    >>> open("whole.txt").read()
    'text'
    """
    name = path_text(path)
    check_path(path, "write")
    try:
        if name == "-":
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        target = Path(os.path.realpath(path) if follow else path)
        if follow and target.exists() and not target.is_file() and not target.is_dir():
            with target.open("wb") as device, _compressed(path, device) as file:
                yield file
            return
        with _temporary(target) as plain, _compressed(path, plain) as file:
            yield file
    except BrokenPipeError:
        raise  # the reader of a pipe went away: the caller's business
    except OSError as error:
        raise cannot_write(path, error) from None


def cannot_write(path: PathLike, error: OSError) -> MinferError:
    """The error to raise where the operating system did not let us write."""
    name = "<stdout>" if os.fspath(path) == "-" else os.fspath(path)
    if full := fullness(error):
        return DiskFullError(f"cannot write {name}: {full}")
    return MinferError(f"cannot write {name}: {error.strerror or error}")


def make_folder(folder: Path) -> Path:
    """The folder, which is created with those above it if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise MinferError(
            f"cannot write to {folder}: that is a file, and a folder is needed; name another"
        ) from None
    except OSError as error:
        raise cannot_write(folder, error) from None
    return folder


@contextmanager
def _temporary(target: Path) -> Iterator[BinaryIO]:
    """A new file beside ``target`` that replaces it at the end of the block, or vanishes."""
    if target.is_dir():
        raise IsADirectoryError(0, "it is a directory")
    temporary = target.parent / f".minfer-{os.urandom(8).hex()}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield cast(BinaryIO, file)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _compressed(path: PathLike, file: BinaryIO) -> Iterator[BinaryIO]:
    if not path_text(path).lower().endswith(".gz"):
        yield file
        return
    with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        yield cast(BinaryIO, packed)


def write_bytes(path: PathLike, data: bytes) -> None:
    """Write a whole file, atomically."""
    with atomic_write(path) as file:
        file.write(data)


def json_text(content: Mapping[str, Any]) -> str:
    """Standard JSON: NaN and infinity, which it has not, become null (marginals have neither)."""
    told = {k: value if k == "marginals" else plain(value) for k, value in content.items()}
    return json.dumps(told, allow_nan=False)


def write_csv(path: PathLike, rows: Iterable[Sequence[Any]]) -> None:
    """Rows of cells as CSV, atomically."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_bytes(path, text.getvalue().encode())


def write_records(path: PathLike, records: Sequence[Mapping[str, Any]]) -> None:
    """Rows that name their cells, all alike, as CSV."""
    write_csv(path, [list(records[0]), *(list(row.values()) for row in records)])


class Numbers:
    """All numbers of a text from ``start`` on, in order; whitespace of any kind separates."""

    def __init__(self, name: str, data: bytes, start: int = 0) -> None:
        self.name, self._data, self._start, self.n_bytes = name, data, start, len(data)
        begin, end = _spans(data, start)
        longest = int((end - begin).max(initial=0))
        if longest > MAX_TOKEN:
            self.fail(int(np.argmax(end - begin)), f"{longest:,} characters are not a number")
        self.values = _parse_floats(data[start:])
        if self.values.size != len(begin):
            if not start:
                check_text(name, data)
            self.fail(_first_bad(data[start:].split()), "expected a number")

    def __len__(self) -> int:
        return self.values.size

    def require_finite(self) -> None:
        """Refuse NaN, infinities and negative numbers anywhere."""
        if not self.values.size:
            return
        if not (finite := np.isfinite(self.values)).all():
            k = int(np.argmin(finite))
            word = "NaN" if np.isnan(self.values[k]) else "an infinite or too large number"
            self.fail(k, f"{word} is not allowed")
        if self.values.min() < 0:
            self.fail(int(np.argmax(self.values < 0)), "a negative number is not allowed")

    def integer(self, k: int, what: str, most: float = np.inf) -> int:
        """The k-th number, which must be an integer from 0 to ``most``."""
        if k >= len(self):
            self.ends(f"{what} is missing")
        value = self.values.item(k)
        if value < 0 or not value.is_integer():
            self.fail(k, f"{what} must be a non-negative integer")
        if value > most:
            self.fail(
                k,
                f"{what} is {int(value):,}, more than the rest of the file can hold: "
                "truncated, or a wrong count",
            )
        return int(value)

    def integers(self, where: Ints, what: str) -> Ints:
        """The numbers at some places, all of which must be integers below 2**31."""
        values = self.values[where]
        bad = (values != np.floor(values)) | (values >= 2**31) | (values < 0)
        if bad.any():
            self.fail(int(where[np.argmax(bad)]), f"{what} must be an integer from 0 to 2**31 - 1")
        return values.astype(np.int64)

    def fail(self, k: int, message: str, error: type[MinferError] = FormatError) -> NoReturn:
        """Raise an error about the k-th number that says where it stands."""
        begin, end = _spans(self._data, self._start)
        where = place(self._data, int(begin[k]), self._data[begin[k] : end[k]])
        raise error(f"{self.name}: {where}: {message}")

    def ends(self, message: str) -> NoReturn:
        """Raise an error about a file that ends too early."""
        line = self._data.count(b"\n", 0, len(self._data.rstrip())) + 1
        raise FormatError(f"{self.name}: line {line}: the file ends too early: {message}")


def place(data: bytes, offset: int, token: bytes) -> str:
    """Line, column and token as messages give them."""
    line = data.count(b"\n", 0, offset) + 1
    column = offset - data.rfind(b"\n", 0, offset)
    text = token[:40].decode("ascii", "backslashreplace") + "..." * (len(token) > 40)
    return f"line {line}, column {column}, token '{text}'"


def _spans(data: bytes, start: int) -> tuple[Ints, Ints]:
    """Where each token of ``data[start:]`` begins and ends in ``data``."""
    text = np.frombuffer(data, dtype=np.uint8)[start:]
    solid = np.zeros(text.size + 2, dtype=bool)
    solid[1:-1] = (text != 32) & ((text < 9) | (text > 13))  # as bytes.split() has it
    edges = np.flatnonzero(solid[1:] != solid[:-1]) + start
    return edges[::2], edges[1::2]


def _parse_floats(text: bytes) -> Floats:
    """All numbers of a text; none if something else stands there."""
    if b"\0" in text or not text.strip():
        return np.zeros(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # NumPy 2.3 raises, older ones warn
        try:
            return np.fromstring(text, dtype=np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            return np.zeros(0)


def _first_bad(tokens: list[bytes], block: int = 1000) -> int:
    """The first token that is not a number: first the block, then the token."""
    for k in range(0, len(tokens), block):
        part = tokens[k : k + block]
        if _parse_floats(b" ".join(part)).size != len(part):
            return k if block == 1 else k + _first_bad(part, 1)
    return 0


def csv_header(name: str, line: bytes, separator: str | None = None) -> tuple[list[str], str]:
    """The names of the columns, and the separator, guessed where it is not given."""
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise FormatError(f"{name}: line 1: the header is not UTF-8") from None
    if not text.strip():
        raise FormatError(f"{name}: line 1: there is no header with the names of the columns")
    if separator is None:
        separator = max(",;\t", key=text.count)
    try:
        names = next(csv.reader([text], delimiter=separator))
    except (csv.Error, StopIteration) as error:  # a lone CR, or a name of very many characters
        raise FormatError(f"{name}: line 1: the header is not CSV: {error}") from None
    return [n.strip() for n in names], separator
