"""The formats of models: a row for each, and a file with ``parse_FILE`` and ``write_FILE``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from minfer.errors import FormatError
from minfer.io.text import PathLike, check_text, path_text, shown

_LOOK = 4096  # bytes of a file that tell its format
_COMMENTS = re.compile(rb"(?m)^[ \t]*(?://|%|#)[^\n]*|/\*[\s\S]*?(?:\*/|\Z)")


class Format(NamedTuple):
    """``parse_FILE(file name, bytes)`` and ``write_FILE(graph, path)`` in ``minfer.io.FILE``."""

    name: str
    file: str
    suffixes: tuple[str, ...]  # each also with ``.gz``
    starts: bytes  # a regular expression: what its files begin with, comments left out
    writes: bool = True

    def function(self, verb: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(
            import_module(f"minfer.io.{self.file}"), f"{verb}_{self.file}"
        )
        return found


#: A file without a telling suffix has the first of these formats that begins as it does.
FORMATS = [
    Format("uai", "uai", (".uai",), rb"(MARKOV|BAYES)(?![A-Za-z])"),
    Format("fg", "fg", (".fg",), rb"[0-9]"),
    Format("minfer", "native", (".minfer",), rb"MINFER\r\n"),
    Format("circuit", "circuits", (".circuit",), rb"MINFERC\n", writes=False),
    Format("bif", "bif", (".bif",), rb"network(?![A-Za-z])"),
    Format("xdsl", "xdsl", (".xdsl",), rb"<[\s\S]*?<smile|<smile"),
    Format("xmlbif", "xmlbif", (".xmlbif", ".bifxml", ".xml"), rb"<"),
    Format("cnf", "cnf", (".cnf",), rb"c(?![^\s])|p\s+cnf(?!\S)"),
    Format("net", "net", (".net",), rb"(net|class|node)(?![A-Za-z])"),
]


def suffixes() -> list[str]:
    """What model files may be called, each also with ``.gz``."""
    return [suffix for kind in FORMATS for suffix in kind.suffixes]


def format_of(path: PathLike) -> Format | None:
    """The format by the suffix (before ``.gz``); None if it says nothing."""
    suffix = os.path.splitext(path_text(path).lower().removesuffix(".gz"))[1]
    return next((kind for kind in FORMATS if suffix in kind.suffixes), None)


def writing_complaint(path: PathLike) -> str:
    """Why no model can be written under this name; empty if one can."""
    kind = format_of(path)
    if kind is not None and kind.writes:
        return ""
    why = f"{kind.name.upper()} is only read; " if kind is not None else ""
    if kind is not None and kind.name == "circuit":
        why = "circuits are written by `minfer compile` and Circuit.save; "
    *most, last = [kind.suffixes[0] for kind in FORMATS if kind.writes]
    names = f"{', '.join(most)} or {last}"
    return f"cannot write {shown(path)}: {why}the name should end in {names}, or that and .gz"


def format_by_content(name: str, data: bytes) -> Format:
    """The format by the first bytes."""
    start = _COMMENTS.sub(b" ", data[:_LOOK]).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start:
        if not data.strip():
            raise FormatError(f"{name}: line 1: the file is empty")
        start = data.lstrip()
    raw = data.lstrip()  # of libDAI's files, a comment may be all that tells
    for text in (start, b"0") if raw.startswith(b"#") else (start,):
        for kind in FORMATS:
            if re.match(kind.starts, text):
                return kind
    check_text(name, data)
    raise FormatError(
        f"{name}: line 1: neither UAI (MARKOV, BAYES), nor libDAI (a number), nor CNF, nor native "
        "minfer, nor a network in BIF, XMLBIF, NET or XDSL"
    )
