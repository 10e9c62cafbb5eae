"""Kernels as plain Python, watched: NUMBA_DISABLE_JIT=1, and then what numpy does not tell.

numpy checks every index, but takes -1 for the last entry. :func:`watch` gives each kernel the same
body in which an index that was computed and is negative is an error, too, and in which every block
of statements notes that it was reached.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import time
import traceback
import warnings
from types import CodeType, FunctionType
from typing import Any

import numpy as np

import plain_checks
from exercise import Unit, units
from minfer.kernels.compiling import jit as _jit

WHOLE = (int, np.integer)
KERNELS: set[str] = set()  # "module.name"
BLOCKS: set[str] = set()  # "module:line", or the name of the kernel that begins there
REACHED: set[str] = set()  # of these


def watch() -> None:
    """Watch every kernel of the package."""
    KERNELS.update(watched(kernel) for kernel in _jit.kernels())


def watched(kernel: FunctionType) -> str:
    """Give a function another body; returns its name."""
    text = textwrap.dedent(inspect.getsource(kernel))
    tree = ast.parse(text)
    ast.increment_lineno(tree, kernel.__code__.co_firstlineno - 1)
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list = []
    home = kernel.__module__.removeprefix("minfer.").replace("kernels.", "")
    name = f"{home}.{kernel.__name__}"
    body = _Watched(home)
    body.generic_visit(function)
    body.block(name, function)
    assert not kernel.__code__.co_freevars, kernel
    module = compile(ast.fix_missing_locations(tree), kernel.__code__.co_filename, "exec")
    (code,) = (c for c in module.co_consts if isinstance(c, CodeType))
    kernel.__code__ = code
    kernel.__globals__.update(_reached=REACHED.add, _inside=inside)
    return name


class _Watched(ast.NodeTransformer):
    def __init__(self, home: str) -> None:
        self.home = home

    def block(self, name: str, node: Any, part: str = "body") -> None:
        """Let a list of statements begin with a note that it was reached."""
        BLOCKS.add(name)
        note = ast.parse(f"_reached({name!r})").body[0]
        body = getattr(node, part)
        for inner in ast.walk(note):
            ast.copy_location(inner, body[0])
        body.insert(0, note)

    def _branches(self, node: Any) -> Any:
        for part in ("body", "orelse"):
            if statements := getattr(node, part):
                self.block(f"{self.home}:{statements[0].lineno}", node, part)
        return self.generic_visit(node)

    visit_If = visit_For = visit_While = _branches

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        self.generic_visit(node)
        node.slice = self._checked(node.slice)
        return node

    def _checked(self, index: Any) -> Any:
        if isinstance(index, ast.Slice):
            for end in ("lower", "upper"):
                if getattr(index, end) is not None:
                    setattr(index, end, self._checked(getattr(index, end)))
            return index
        if isinstance(index, ast.Tuple):
            index.elts = [self._checked(each) for each in index.elts]
            return index
        written = index.operand if isinstance(index, ast.UnaryOp) else index
        if isinstance(written, ast.Constant):  # as in ptr[-1], which is meant
            return index
        call = ast.Call(ast.Name("_inside", ast.Load()), [index], [])
        return ast.copy_location(call, index)


def inside(index: Any) -> Any:
    """An index, or an array of them, none of which may count from the end."""
    if isinstance(index, WHOLE):
        wrong = index < 0
    else:
        wrong = np.asarray(index).dtype != bool and bool(np.less(index, 0).any())
    if wrong:
        raise IndexError(f"index {index}")
    return index


def work() -> list[Unit]:
    """Everything that calls for recorded answers come from, and what reaches the rest."""
    return [*units(), *(Unit(check.__name__, check) for check in plain_checks.CHECKS)]


def setup() -> None:
    """For a process that runs some of it."""
    warnings.simplefilter("ignore", RuntimeWarning)  # whole numbers wrap around on purpose
    watch()


class Done:
    """What came of the units that are done."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.seconds: dict[str, float] = {}  # of CPU time
        self.kernels: set[str] = set()
        self.blocks: set[str] = set()
        self.reached: set[str] = set()

    def add(self, title, seconds, wrong, kernels, blocks, reached) -> None:
        """The answer of :func:`run`."""
        self.seconds[title] = seconds
        self.wrong += [f"{title}:\n{wrong}"] if wrong else []
        self.kernels |= kernels
        self.blocks |= blocks
        self.reached |= reached


def run(_: None, number: int) -> tuple[str, float, str, set[str], set[str], set[str]]:
    """One unit: its title and CPU time, what went wrong, and what was reached so far."""
    unit, began, wrong = work()[number], time.process_time(), ""
    try:
        unit.work()
    except Exception:
        wrong = traceback.format_exc()
    title = f"{number} {unit.title}"
    return title, time.process_time() - began, wrong, KERNELS, BLOCKS, REACHED
