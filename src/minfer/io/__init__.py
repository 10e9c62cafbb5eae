"""Models and answers in files.

Formats, by suffix, each also compressed as ``.gz``: ``.uai`` (the UAI competition's,
:mod:`minfer.io.uai`), ``.fg`` (libDAI's, :mod:`minfer.io.fg`) and ``.minfer`` (native, bit for bit,
:mod:`minfer.io.native`); and for Bayesian networks ``.bif`` (:mod:`minfer.io.bif`), ``.xmlbif``,
``.bifxml`` and ``.xml`` (:mod:`minfer.io.xmlbif`), ``.net`` (Hugin's, :mod:`minfer.io.net`) and
``.xdsl`` (GeNIe's, only read, :mod:`minfer.io.xdsl`). The first two store linear tables and lose
names. Every error is a :class:`~minfer.errors.MinferError` that says which file, line and token;
files are written atomically.
"""

from __future__ import annotations

import re

from minfer.errors import FormatError
from minfer.graph import FactorGraph
from minfer.io.bif import parse_bif, read_bif, write_bif
from minfer.io.fg import parse_fg, read_fg, write_fg
from minfer.io.native import MAGIC, parse_native, read_native, write_native
from minfer.io.net import parse_net, read_net, write_net
from minfer.io.opening import parsed
from minfer.io.text import (
    PathLike,
    atomic_write,
    check_text,
    format_of,
    path_text,
    writing_complaint,
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
from minfer.io.xdsl import parse_xdsl, read_xdsl
from minfer.io.xmlbif import parse_xmlbif, read_xmlbif, write_xmlbif

__all__ = [
    "atomic_write",
    "read",
    "read_bif",
    "read_evidence",
    "read_fg",
    "read_mar",
    "read_native",
    "read_net",
    "read_pr",
    "read_uai",
    "read_xdsl",
    "read_xmlbif",
    "write",
    "write_bif",
    "write_fg",
    "write_mar",
    "write_native",
    "write_net",
    "write_pr",
    "write_uai",
    "write_xmlbif",
]

_PARSE = {
    "uai": parse_uai,
    "fg": parse_fg,
    "minfer": parse_native,
    "bif": parse_bif,
    "xmlbif": parse_xmlbif,
    "net": parse_net,
    "xdsl": parse_xdsl,
}
_WRITE = {
    "uai": write_uai,
    "fg": write_fg,
    "minfer": write_native,
    "bif": write_bif,
    "xmlbif": write_xmlbif,
    "net": write_net,
}
#: The first word of a text, and its format.
_FIRST = {
    b"MARKOV": "uai",
    b"BAYES": "uai",
    b"network": "bif",
    b"net": "net",
    b"class": "net",
    b"node": "net",
}
_LOOK = 4096  # bytes of a file that tell its format
_COMMENTS = re.compile(rb"(?m)^[ \t]*(?://|%|#)[^\n]*|/\*[\s\S]*?(?:\*/|\Z)")


def read(path: PathLike, evidence: Evidence | None = None) -> FactorGraph:
    """Read a model in any format.

    Parameters
    ----------
    path : str or Path
        The suffix sets the format; for ``-`` (standard input) and other names the content does.
    evidence : path of an evidence file, or ``{variable: state, or likelihoods}``, optional
        By number or name; a file is UAI's, or JSON (:mod:`minfer.io.evidence`).
    """
    path = path_text(path)

    def parse(name: str, data: bytes) -> FactorGraph:
        return _PARSE[format_of(path) or _sniff(name, data)](name, data)

    return with_evidence(parsed(path, parse), evidence)


def write(graph: FactorGraph, path: PathLike) -> None:
    """Write a model in the format of the suffix; standard output gets UAI.

    BIF, XMLBIF and NET hold Bayesian networks only, without evidence.
    """
    if path_text(path) == "-":
        write_uai(graph, path)
        return
    if complaint := writing_complaint(path):
        raise FormatError(complaint)
    _WRITE[format_of(path) or ""](graph, path)


def _sniff(name: str, data: bytes) -> str:
    """The format by the first bytes."""
    if data[:8] == MAGIC:
        return "minfer"
    start = _COMMENTS.sub(b" ", data[:_LOOK]).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start:
        if not data.strip():
            raise FormatError(f"{name}: line 1: the file is empty")
        start = data.lstrip()
    if start.startswith(b"<"):
        return "xdsl" if b"<smile" in data[:_LOOK] else "xmlbif"
    word = re.match(rb"[A-Za-z]*", start)
    if word and word[0] in _FIRST:
        return _FIRST[word[0]]
    if start[:1].isdigit() or data.lstrip().startswith(b"#"):
        return "fg"
    check_text(name, data)
    raise FormatError(
        f"{name}: line 1: neither UAI (MARKOV, BAYES), nor libDAI (a number), nor native minfer, "
        "nor a network in BIF, XMLBIF, NET or XDSL"
    )
