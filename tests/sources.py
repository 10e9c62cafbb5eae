"""The package's sources as trees, parsed once for all tests of a process that look at them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """Not to be changed."""
    return ast.parse(path.read_text("utf-8"))
