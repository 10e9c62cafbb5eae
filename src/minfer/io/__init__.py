"""Models and answers in files.

Formats, by suffix, each also compressed as ``.gz``: ``.uai`` (the UAI competition's,
:mod:`minfer.io.uai`), ``.fg`` (libDAI's, :mod:`minfer.io.fg`), ``.cnf`` (weighted CNF,
:mod:`minfer.io.cnf`) and ``.minfer`` (native, bit for bit, :mod:`minfer.io.native`); and for
Bayesian networks ``.bif`` (:mod:`minfer.io.bif`), ``.xmlbif``, ``.bifxml`` and ``.xml``
(:mod:`minfer.io.xmlbif`), ``.net`` (Hugin's, :mod:`minfer.io.net`) and ``.xdsl`` (GeNIe's,
:mod:`minfer.io.xdsl`). The first three store linear numbers and lose names. Every error is a
:class:`~minfer.errors.MinferError` that says which file, line and token; files are written
atomically.
"""

from __future__ import annotations

from minfer.errors import FormatError
from minfer.graph import FactorGraph
from minfer.io.bif import read_bif, write_bif
from minfer.io.cnf import read_cnf, write_cnf
from minfer.io.fg import read_fg, write_fg
from minfer.io.formats import format_by_content, format_of, writing_complaint
from minfer.io.native import read_native, write_native
from minfer.io.net import read_net, write_net
from minfer.io.opening import parsed
from minfer.io.text import PathLike, atomic_write, path_text
from minfer.io.uai import (
    Evidence,
    read_evidence,
    read_mar,
    read_pr,
    read_uai,
    with_evidence,
    write_mar,
    write_pr,
    write_uai,
)
from minfer.io.xdsl import read_xdsl, write_xdsl
from minfer.io.xmlbif import read_xmlbif, write_xmlbif

__all__ = [
    "atomic_write",
    "read",
    "read_bif",
    "read_cnf",
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
    "write_cnf",
    "write_fg",
    "write_mar",
    "write_native",
    "write_net",
    "write_pr",
    "write_uai",
    "write_xdsl",
    "write_xmlbif",
]


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
        kind = format_of(path) or format_by_content(name, data)
        return kind.function("parse")(name, data)

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
    kind = format_of(path)
    assert kind is not None
    kind.function("write")(graph, path)
