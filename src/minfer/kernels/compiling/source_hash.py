"""What a kernel's machine code depends on: its own file and all that it imports from this package.

The key of a module is a hash of its source and of the sources of every module of ``minfer`` that it
imports, directly or through others, in late imports too: an edit recompiles the kernels that may
contain the edited code, and no others. The modules of this folder are not part of kernels: how they
compile is in the name of the cache folder.

Imports are read from the text: a statement that can import from this package names it (or begins
with a dot) in its first line. Where such a statement is not plain, its file is parsed.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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
