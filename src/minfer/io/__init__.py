"""Models and answers in files.

Formats, by suffix, each also compressed as ``.gz``: ``.uai`` (the UAI competition's,
:mod:`minfer.io.uai`), ``.fg`` (libDAI's, :mod:`minfer.io.fg`) and ``.minfer`` (native, bit for bit,
:mod:`minfer.io.native`). The first two store linear tables and lose names. Every error is a
:class:`~minfer.errors.MinferError` that says which file, line and token; files are written
atomically.
"""

from __future__ import annotations

from minfer.errors import FormatError
from minfer.graph import FactorGraph
from minfer.io.fg import parse_fg, read_fg, write_fg
from minfer.io.native import MAGIC, parse_native, read_native, write_native
from minfer.io.text import (
    PathLike,
    atomic_write,
    check_text,
    format_of,
    path_text,
    read_bytes,
    shown,
)
from minfer.io.uai import (
    Evidence,
    parse_uai,
    read_evidence,
    read_mar,
    read_pr,
    read_uai,
    with_evidence,
    write_mar,
    write_pr,
    write_uai,
)

__all__ = [
    "atomic_write",
    "read",
    "read_evidence",
    "read_fg",
    "read_mar",
    "read_native",
    "read_pr",
    "read_uai",
    "write",
    "write_fg",
    "write_mar",
    "write_native",
    "write_pr",
    "write_uai",
]

_PARSE = {"uai": parse_uai, "fg": parse_fg, "minfer": parse_native}
_WRITE = {"uai": write_uai, "fg": write_fg, "minfer": write_native}


def read(path: PathLike, evidence: Evidence | None = None) -> FactorGraph:
    """Read a model in any format.

    Parameters
    ----------
    path : str or Path
        The suffix tells the format; of ``-`` (standard input) and other names the content does.
    evidence : path of a UAI evidence file, or ``{variable: state}``, optional
    """
    data = read_bytes(path)
    kind = format_of(path) or _sniff(shown(path), data)
    return with_evidence(_PARSE[kind](shown(path), data), evidence)


def write(graph: FactorGraph, path: PathLike) -> None:
    """Write a model in the format of the suffix; standard output gets UAI."""
    kind = "uai" if path_text(path) == "-" else format_of(path)
    if kind is None:
        raise FormatError(
            f"cannot write {shown(path)}: the name should end in .uai, .fg or .minfer, or that and "
            ".gz"
        )
    _WRITE[kind](graph, path)


def _sniff(name: str, data: bytes) -> str:
    """The format by the first bytes."""
    if data[:8] == MAGIC:
        return "minfer"
    first = data[:4096].split(maxsplit=1)
    if not first:
        raise FormatError(f"{name}: line 1: the file is empty")
    if first[0] in (b"MARKOV", b"BAYES"):
        return "uai"
    if first[0].isdigit() or first[0].startswith(b"#"):
        return "fg"
    check_text(name, data)
    raise FormatError(
        f"{name}: line 1: neither UAI (MARKOV, BAYES), nor libDAI (a number), nor native minfer"
    )
