"""What machine code is called, and what it depends on: one name, one body; one key, one source.

**Names.** numba tells functions of one qualified name, types and options apart by a number that
counts the functions of *one process* (``FunctionIdentity._unique_ids``), and puts it into the name
of their machine code: ``...B3v38B...``. What another process loads from a cache then meets
functions of its own under the same name, and LLVM keeps one of the two: ``a + b`` where ``a - b``
was meant (numba issue 10486). Here the number is 128 random bits, drawn for each function.

:func:`counted` finds what still has a counted name: functions that were compiled before this module
was loaded and are now part of a kernel. Such a kernel works, and is not kept.

**Keys.** The key of a module is a hash of its source and of the sources of every module of
``minfer`` that it imports, directly or through others, in late imports too: an edit recompiles the
kernels that may contain the edited code, and no others. The modules of this folder are not part of
kernels: how they compile is in the name of the cache folder.

Imports are read from the text: a statement that can import from this package names it (or begins
with a dot) in its first line. Where such a statement is not plain, its file is parsed.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

#: What to do without: "symbols", "cache", "frugal" and "event", separated by commas. Tests force
#: the ways that are taken where a name of numba is missing.
WITHOUT = set(os.environ.get("MINFER_WITHOUT", "").split(","))

#: A part of the name of the cache folder: what was kept under counted names is never read again.
EDITION = "one name, one body, one key"

#: The number in a mangled name, length and letter before it: B3v38B.
_NUMBER = re.compile(rb"B(\d+)v(\d+)B")
_DIGITS = 30  # a counter never gets there, and of 10^9 random numbers one has fewer


class _Numbers:
    """An endless iterator over random numbers of 128 bits."""

    def __iter__(self) -> _Numbers:
        return self

    def __next__(self) -> int:
        return int.from_bytes(os.urandom(16), "little") | 1 << 127


def install() -> str:
    """Let numba number functions by :class:`_Numbers`; why not, if it cannot be done."""
    try:
        identity: Any = import_module("numba.core.bytecode").FunctionIdentity
        if not isinstance(identity._unique_ids, _Numbers):
            next(identity._unique_ids)
            identity._unique_ids = _Numbers()
        first, second = (identity.from_function(install).unique_id for _ in range(2))
    except Exception as error:  # another numba
        return f"{type(error).__name__}: {error}"
    if first == second or min(first, second) < 1 << 127:
        return "numba does not take the number of a function from where it did"
    return ""


def counted(code: bytes) -> str:
    """The first name in machine code with a number that a counter may have given; or nothing."""
    for match in _NUMBER.finditer(code):
        if int(match[1]) == len(match[2]) + 1 and len(match[2]) < _DIGITS:
            start = code.rfind(b"\0", 0, match.start()) + 1
            return code[start : code.find(b"\0", match.end())].decode("ascii", "replace")
    return ""


#: Why names are numba's own; empty where they are not. No kernel is kept on disk then.
UNAVAILABLE = "MINFER_WITHOUT has it" if "symbols" in WITHOUT else install()


# ---------------------------------------------------------------------- keys

PACKAGE = Path(__file__).parents[2]
_STATEMENT = re.compile(r"^[ \t]*((?:from|import)[ \t]+[^(\n]*(?:\([^)]*\))?)", re.MULTILINE)
_OURS = re.compile(rf"from[ \t]*\.|.*\b{PACKAGE.name}\b|.*\\$")


@cache
def key(module: str, package: Path = PACKAGE) -> str:
    digest = hashlib.sha256()
    for name in sorted(closure(module, package)):
        digest.update(f"{name}\0{_source(_place(name, package))[1]}\0".encode())
    return digest.hexdigest()


def closure(module: str, package: Path = PACKAGE) -> set[str]:
    """A module and all modules of the package that it imports, directly or through others."""
    found, waiting = {module}, [module]
    while waiting:
        new = _imports(waiting.pop(), package) - found
        found |= new
        waiting += new
    return found


@cache
def _imports(module: str, package: Path) -> frozenset[str]:
    """The modules of the package that one of them names in its import statements."""
    place = _place(module, package)
    parent = module if place.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for name in _named(_source(place)[0], parent):
        if name.partition(".")[0] != package.name:
            continue
        while not _place(name, package).exists():  # a function or constant of a module
            name = name.rpartition(".")[0]
        if not name.startswith(f"{package.name}.kernels.compiling."):
            found.add(name)
    return frozenset(found)


def _named(text: str, parent: str) -> Iterator[str]:
    """Full names that the import statements of a text may refer to."""
    plain: list[ast.AST] = []
    for match in _STATEMENT.finditer(text):
        statement = match[1]
        if _OURS.match(statement.partition("\n")[0]):
            try:
                plain += ast.parse(statement).body
            except SyntaxError:  # prose, or something unusual
                plain = list(ast.walk(ast.parse(text)))
                break
    for node in plain:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = parent.split(".")[: -node.level + 1 or None] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


@cache
def _place(module: str, package: Path) -> Path:
    place = package.joinpath(*module.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def _source(place: Path) -> tuple[str, str]:
    content = place.read_bytes()
    return content.decode(), hashlib.sha256(content).hexdigest()
