"""A byte range of a text file, moved to where records begin, so that ranges cut nothing in two.

A record belongs to the range in which its first byte lies. With ``b(p)`` the first place at or
after ``p`` where a record can begin (after an empty line in CoNLL, after a line end in JSON lines),
the range ``[start, stop)`` reads ``[b(start), b(stop))``: neighbours agree on ``b`` without asking
each other, and every record is read once. Places are counted in the text, so a compressed file has
ranges too; they are reached by decompressing what lies before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from minfer.io.opening import opened as regular
from minfer.io.opening import reading, starts_packed, streamed

#: The line end after which a record can begin, by kind of file.
ENDS = {
    "conllu": re.compile(rb"(?<=\n)\n|(?<=\n\r)\n"),
    "jsonl": re.compile(rb"\n"),
    "csv": re.compile(rb"\n"),
}

_CHUNK = 1 << 18
_BEHIND = 2  # bytes before a line end that the patterns look at


def text_range(file: str, kind: str, start: int, stop: int | None) -> Iterator[bytes]:
    """The bytes of a range, in chunks; ``stop`` None is the end of the file."""
    pattern = ENDS[kind]
    with opened(file) as text:
        behind = min(start, _BEHIND + 1)
        _go_to(text, start - behind)
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
        if text.seekable():
            return text.seek(0, 2)
        size = 0
        while chunk := text.read(_CHUNK):
            size += len(chunk)
        return size


@contextmanager
def opened(file: str) -> Iterator[BinaryIO]:
    """A file for reading, decompressed; damage is a FormatError."""
    with reading(file), streamed(file) if is_compressed(file) else regular(file) as text:
        yield text


def _go_to(text: BinaryIO, place: int) -> None:
    """Read on from a place in a text, which is at its beginning."""
    if text.seekable():
        text.seek(place)
        return
    while place > 0 and (chunk := text.read(min(place, _CHUNK))):
        place -= len(chunk)


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
