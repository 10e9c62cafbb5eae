"""The one way into files that are read: what they are, how much they may unfold to, what can fail.

Every reader opens its file here and reads inside :func:`reading`, which turns what Python, the
operating system and the compression raise into errors of ours that name the file. Regular files,
pipes, terminals and standard input are read; other devices, which may never end, are refused.

Input that begins as gzip does is decompressed, in several members too. A small file can unfold to a
huge one, so what it may unfold to is bounded: :data:`FREE_BYTES`, or :data:`MAX_RATIO` times the
compressed bytes (all of a regular file, those read so far of a pipe); and what is held in memory as
a whole, compressed or piped, by :data:`MAX_BYTES`. The environment can set the last two:
``MINFER_MAX_RATIO=1000 MINFER_MAX_BYTES=8000000000``. Plain files have no limit of their own: who
reads one has the bytes already.
"""

from __future__ import annotations

import gc
import io
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeVar, cast

from minfer.errors import FormatError, MinferError, RefusedError, SettingsError, visible
from minfer.io.text import PathLike, shown

T = TypeVar("T")

#: What compressed or piped input may be in memory: 1 GiB. Larger models are read from plain files.
MAX_BYTES = 1 << 30
#: How many times its size compressed input may unfold to, once it is more than this many bytes.
MAX_RATIO, FREE_BYTES = 100, 1 << 26

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 16


# ---------------------------------------------------------------------- errors


@contextmanager
def reading(path: PathLike, needed: str = "") -> Iterator[None]:
    """What fails in this block because of a file is an error of ours that names it.

    Memory that is used up is given back first: what was read so far hangs on the traceback. With
    ``needed``, words for what the file should be, any other error is one of the file, too: for
    libraries that raise almost anything over a damaged one.
    """
    try:
        yield
    except MinferError:
        raise
    except MemoryError as error:
        error.__traceback__ = None
        gc.collect()
        raise RefusedError(f"{_name(path)}: there is not enough memory to read it") from None
    except RecursionError as error:
        error.__traceback__ = None
        raise FormatError(f"{_name(path)}: it is nested too deeply to be read") from None
    except EOFError:
        raise FormatError(f"{_name(path)}: truncated: the data end too early") from None
    except zlib.error as error:
        raise FormatError(f"{_name(path)}: corrupt compressed data: {error}") from None
    except UnicodeError as error:
        raise FormatError(f"{_name(path)}: this is not UTF-8: {error}") from None
    except BrokenPipeError:
        raise  # of standard output: the caller's business
    except OSError as error:
        raise cannot_read(path, error) from None
    except Exception as error:
        if not needed:
            raise
        reason = visible(" ".join(str(error).split())[:200]) or type(error).__name__
        raise FormatError(f"{_name(path)}: {reason}; {needed}") from None


def cannot_read(path: PathLike, error: Exception) -> FormatError:
    """The error to raise where the operating system did not let us read."""
    return FormatError(f"cannot read {_name(path)}: {getattr(error, 'strerror', None) or error}")


def _name(path: PathLike) -> str:
    return visible(shown(path))


# ---------------------------------------------------------------------- limits


def limit(variable: str, default: int) -> int:
    """A limit as it stands, or as the environment sets it."""
    given = os.environ.get(variable, "")
    if not given:
        return default
    if not (given.isascii() and given.isdigit() and 0 < len(given) < 19):
        raise SettingsError(f"{variable} must be a whole number, not {given!r}")
    return int(given)


def max_bytes() -> int:
    """What compressed or piped input may be in memory."""
    return limit("MINFER_MAX_BYTES", MAX_BYTES)


def max_unfolded(packed: int) -> int:
    """What so many compressed bytes may unfold to."""
    return max(FREE_BYTES, limit("MINFER_MAX_RATIO", MAX_RATIO) * packed)


def check_unfolded(name: str, unfolded: int, packed: int) -> None:
    """FormatError if compressed bytes unfold to more than they may."""
    if unfolded > max_unfolded(packed):
        raise FormatError(
            f"{visible(name)}: {packed:,} compressed bytes unfold to more than "
            f"{max_unfolded(packed):,}; if that is intended, decompress the file first, or set "
            "MINFER_MAX_RATIO"
        )


# ---------------------------------------------------------------------- opening


def open_file(path: PathLike, pipes: bool = True) -> BinaryIO:
    """A file, open for reading its bytes as they are; ``-`` is standard input.

    Without ``pipes`` it must be a regular file: one that is read in any order, or read twice.
    """
    from minfer.io.text import check_path

    check_path(path)
    try:
        if pipes and os.fspath(path) == "-":
            return sys.stdin.buffer
        # a pipe that nobody writes to is waited for, as by any program; but no device
        file = open(path, "rb")  # noqa: SIM115 (the caller closes it)
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from None
    try:
        if complaint := _complaint(file, pipes):
            raise FormatError(f"cannot read {_name(path)}: {complaint}")
    except BaseException:
        file.close()
        raise
    return cast(BinaryIO, file)


def _complaint(file: io.BufferedReader, pipes: bool) -> str:
    mode = os.fstat(file.fileno()).st_mode
    if stat.S_ISREG(mode) or (pipes and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))):
        return ""
    if stat.S_ISCHR(mode) and ((pipes and file.isatty()) or _is_null(file)):
        return ""
    return "it is a device, not a file" if pipes else "it is a pipe or device, not a file"


def _is_null(file: io.BufferedReader) -> bool:
    """Whether it is the device that is always empty."""
    try:
        return os.fstat(file.fileno()).st_rdev == os.stat(os.devnull).st_rdev
    except OSError:
        return False


def check_regular(path: PathLike) -> None:
    """FormatError unless it is a file that can be read, for libraries that open it by name."""
    open_file(path, pipes=False).close()


@contextmanager
def opened(path: PathLike, pipes: bool = True) -> Iterator[BinaryIO]:
    """As :func:`open_file`, closed at the end of the block unless it is standard input."""
    file = open_file(path, pipes)
    try:
        yield file
    finally:
        if file is not sys.stdin.buffer:
            file.close()


# ---------------------------------------------------------------------- reading


def read_bytes(path: PathLike) -> bytes:
    """The whole content of a file or of standard input, decompressed."""
    with reading(path), opened(path) as file:
        if is_regular(file) and not starts_packed(file):
            return file.read()
        return _joined(shown(path), unpacked(chunks_of(file.read), shown(path), size_of(file)))


def parsed(path: PathLike, parse: Callable[[str, bytes], T]) -> T:
    """What ``parse(name, data)`` makes of the whole of a file."""
    with reading(path):
        data = read_bytes(path)
        return parse(shown(path), data)


def is_regular(file: BinaryIO) -> bool:
    """Whether it is a file that knows its size."""
    return size_of(file) is not None


def size_of(file: Any) -> int | None:
    """The bytes of a regular file; None of anything else."""
    try:
        found = os.fstat(file.fileno())
    except (OSError, AttributeError):  # no file at all, such as standard input in a test
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def starts_packed(file: BinaryIO) -> bool:
    """Whether a file begins as gzip does; it is read from its beginning afterwards."""
    start = file.read(2)
    file.seek(0)
    return start == _GZIP_MAGIC


def _joined(name: str, chunks: Iterable[bytes]) -> bytes:
    out, size, most = [], 0, max_bytes()
    for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise FormatError(
                f"{visible(name)}: compressed or piped input is limited to {most:,} bytes; store "
                "it as a plain file, or set MINFER_MAX_BYTES"
            )
        out.append(chunk)
    return b"".join(out)


def chunks_of(read: Callable[[int], bytes | str]) -> Iterator[bytes]:
    """What a function reads, in chunks."""
    while data := read(_CHUNK):
        yield data.encode() if isinstance(data, str) else data


def unpacked(chunks: Iterator[bytes], name: str, size: int | None = None) -> Iterator[bytes]:
    """The same chunks, or what they unfold to where they begin as gzip does.

    ``size`` is what all of them have together, where that is known.
    """
    start = b""
    for data in chunks:
        start += data
        if len(start) > 2:
            break
    if start.startswith(_GZIP_MAGIC):
        yield from _gunzip(start, chunks, name, size or 0)
        return
    if start:
        yield start
    yield from chunks


def _gunzip(start: bytes, chunks: Iterator[bytes], name: str, size: int) -> Iterator[bytes]:
    """Any number of gzip members, one after the other, and zeros after them."""
    member = zlib.decompressobj(wbits=31)
    packed = unfolded = 0
    data = start
    while data:
        packed += len(data)
        while data:
            if member.eof:
                if not (data := data.lstrip(b"\0")):
                    break
                member = zlib.decompressobj(wbits=31)
            try:
                out = member.decompress(data, _CHUNK)
            except zlib.error as error:
                raise FormatError(f"{visible(name)}: corrupt gzip data: {error}") from None
            unfolded += len(out)
            check_unfolded(name, unfolded, max(packed, size))
            if out:
                yield out
            data = member.unused_data or member.unconsumed_tail
        data = next(chunks, b"")
    if not member.eof:
        raise FormatError(f"{visible(name)}: truncated: the compressed data ends too early")


class Stream(io.RawIOBase):
    """Chunks of bytes as a file that is read on."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._left = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        room = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        n = min(len(room), len(self._left))
        room[:n] = self._left[:n]
        self._left = self._left[n:]
        return n


@contextmanager
def streamed(path: PathLike) -> Iterator[BinaryIO]:
    """A file or standard input to read on, decompressed."""
    with opened(path) as file:
        read = getattr(file, "read1", file.read)
        chunks = unpacked(chunks_of(read), shown(path), size_of(file))
        yield cast(BinaryIO, io.BufferedReader(Stream(_named(path, chunks))))


def _named(path: PathLike, chunks: Iterator[bytes]) -> Iterator[bytes]:
    with reading(path):
        yield from chunks
