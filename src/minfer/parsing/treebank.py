"""The bytes of a treebank or text, sentence by sentence, in memory that does not grow with a file.

Accepts what people have: gzip (by its first bytes, in several members too), standard input
(``-``), open files, a byte order mark, Windows line ends, further empty lines, no empty line or no
line end after the last sentence. What arrives through a pipe is passed on as soon as a sentence is
complete. Two layouts: ``conll``, a word per line and an empty line after each sentence, and
``text``, a sentence per line and blanks between its words.
:mod:`minfer.parsing.conllu` gives the bytes their meaning.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import IO, Any, Literal, NamedTuple

from minfer.basics.checks import told
from minfer.errors import FormatError, SettingsError
from minfer.io.opening import chunks_of, opened, reading, size_of, unpacked
from minfer.io.text import PathLike, check_text, shown

Source = PathLike | IO[bytes] | IO[str]
Layout = Literal["conll", "text"]

#: Bytes one sentence may have; a file without empty lines is refused there, not read into memory.
MAX_SENTENCE = 1 << 24

_SUFFIXES: dict[str, Layout] = {
    **dict.fromkeys((".conllu", ".conllx", ".conll", ".conll06", ".conll07"), "conll"),
    ".txt": "text",
}


class SentenceLines(NamedTuple):
    """The bytes of one sentence: its first line, its lines, whether the file ends inside one."""

    line: int
    data: bytes
    cut: bool = False


def read_blocks(source: Source) -> Iterator[SentenceLines]:
    """The sentences of a file, unparsed: lines that end in ``\\n``, without empty ones."""
    return read_units(source, "conll")[1]


def read_units(
    source: Source, layout: Layout | None = None
) -> tuple[Layout, Iterator[SentenceLines]]:
    """The layout of a file, told from the suffix or else its first line, and its sentences."""
    name = source_name(source)
    chunks = _text_chunks(source, name)
    if layout is None:
        layout = _SUFFIXES.get(os.path.splitext(name.lower().removesuffix(".gz"))[1])
    if layout is None:
        start = b""
        for data in chunks:
            start += data
            if (layout := _layout(start)) is not None or len(start) > MAX_SENTENCE:
                break
        layout = layout or _layout(start + b"\n") or "conll"
        chunks = chain([start], chunks)
    return layout, (_lines if layout == "text" else _blocks)(chunks, name)


def _layout(start: bytes) -> Layout | None:
    """What a text is by its first line that is no comment; None if there is none yet."""
    *lines, _ = start.split(b"\n")
    for line in lines:
        if line.strip() and not line.startswith(b"#"):
            cells = line.split()
            table = b"\t" in line or (len(cells) == 10 and cells[0] == b"1")
            return "conll" if table else "text"
    return None


def _blocks(chunks: Iterable[bytes], name: str) -> Iterator[SentenceLines]:
    line, rest = 1, b""
    for data in chunks:
        *parts, rest = (rest + data).split(b"\n\n")
        for part in parts:
            body = part.lstrip(b"\n")
            line += len(part) - len(body)
            if body:
                yield SentenceLines(line, body)
                line += body.count(b"\n")
            line += 2
        if len(rest) > MAX_SENTENCE:
            raise FormatError(
                f"{name}: line {line}: no empty line in {MAX_SENTENCE:,} bytes: not a CoNLL file?"
            )
    body = rest.lstrip(b"\n")
    if body:
        row = body.rpartition(b"\n")[2]  # a last one that has all its columns is complete
        cut = not body.endswith(b"\n") and (row.count(b"\t") < 9 or row.endswith(b"\t"))
        yield SentenceLines(line + len(rest) - len(body), body.rstrip(b"\n"), cut)


def _lines(chunks: Iterable[bytes], name: str) -> Iterator[SentenceLines]:
    line, rest = 1, b""
    for data in chunks:
        *parts, rest = (rest + data).split(b"\n")
        for part in parts:
            if part.strip():
                yield SentenceLines(line, part)
            line += 1
        if len(rest) > MAX_SENTENCE:
            raise FormatError(
                f"{name}: line {line}: no line end in {MAX_SENTENCE:,} bytes: a sentence per line?"
            )
    if rest.strip():
        yield SentenceLines(line, rest)


def source_name(source: Source) -> str:
    """What messages call a source."""
    if isinstance(source, str | os.PathLike):
        return shown(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else "<stream>"


def _text_chunks(source: Source, name: str) -> Iterator[bytes]:
    """Bytes of the text, decompressed, without byte order mark and with ``\\n`` as line end."""
    held = b""  # a carriage return at the end of a chunk waits for the next
    for k, data in enumerate(_whole_start(_unpacked(source, name))):
        if not k:
            check_text(name, data)
        data = held + (data if k else data.removeprefix(b"\xef\xbb\xbf"))
        held = b"\r" if data.endswith(b"\r") else b""
        if b"\r" in data:
            data = data.removesuffix(b"\r").replace(b"\r\n", b"\n")
        yield data


def _unpacked(source: Source, name: str) -> Iterator[bytes]:
    file: AbstractContextManager[Any]
    if isinstance(source, str | os.PathLike):
        file = opened(source)
    elif hasattr(source, "read"):
        file = nullcontext(source)  # who has opened it closes it
    else:
        raise SettingsError(f"a treebank must be a path or an open file, not {told(source)}")
    with reading(name), file as opened_file:
        read = getattr(opened_file, "read1", opened_file.read)
        yield from unpacked(chunks_of(read), name, size_of(opened_file))


def _whole_start(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks, the first of at least three bytes if there are so many: enough for a mark."""
    start = b""
    for data in chunks:
        start += data
        if len(start) > 2:
            break
    yield start
    yield from chunks
