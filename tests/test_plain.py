"""Kernels as plain Python, watched: NUMBA_DISABLE_JIT=1 pytest tests/test_plain.py

numpy checks every index there, so a kernel that reads or writes past an array fails instead of
returning whatever lies behind it; but it takes -1 for the last entry. :func:`watched` gives each
kernel the same body in which an index that was computed and is negative is an error, too, and in
which every block of statements notes that it was reached. All that calls for recorded answers come
from is run, and :mod:`plain_checks`, which compare with enumeration.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import traceback
import warnings
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pytest

import plain_checks
from exercise import Unit, units
from minfer.basics.parallel import cores, ordered_map
from minfer.kernels.arithmetic import lanes
from minfer.kernels.compiling import jit as _jit
from minfer.kernels.compiling import plain as _plain

pytestmark = [
    pytest.mark.skipif(not _plain.OFF, reason="for NUMBA_DISABLE_JIT=1"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # whole numbers wrap around on purpose
]

#: The share of all blocks of statements (bodies of functions, loops and branches) that must be
#: reached. What is not are mostly rare turns: numbers out of range, arrays that must grow.
LEAST_REACHED = 0.9


WHOLE = (int, np.integer)
KERNELS: set[str] = set()  # "module.name"
BLOCKS: set[str] = set()  # "module:line", or the name of the kernel that begins there
REACHED: set[str] = set()  # of these


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
    KERNELS.update(watched(kernel) for kernel in _jit.kernels())


def run(_: None, number: int) -> tuple[str, str, set[str], set[str], set[str]]:
    """One unit: its title, what went wrong, and what was reached so far."""
    unit, wrong = work()[number], ""
    try:
        unit.work()
    except Exception:
        wrong = traceback.format_exc()
    return f"{number} {unit.title}", wrong, KERNELS, BLOCKS, REACHED


def test_every_index_is_inside_and_most_blocks_are_reached():
    """Every unit, in as many processes as there are cores."""
    wrong, kernels, blocks, reached = [], set(), set(), set()
    numbers = range(len(work()))
    assert len(numbers) > 30
    for title, traces, *found in ordered_map(run, numbers, cores(), setup=setup):
        wrong += [f"{title}:\n{traces}"] if traces else []
        for whole, part in zip((kernels, blocks, reached), found, strict=True):
            whole |= part
    assert not wrong, "\n".join(wrong)
    assert len(kernels) == len(_jit.kernels())
    assert sorted(kernels - reached) == []
    missed = sorted(blocks - reached)
    assert len(missed) < (1.0 - LEAST_REACHED) * len(blocks), " ".join(missed)


@pytest.mark.parametrize(("dtype", "eps", "low"), [("f8", 1e-15, -700.0), ("f4", 5e-7, -25.0)])
def test_exp_and_log_of_lanes(dtype, eps, low):
    x = np.linspace(low, 1.0, 64).astype(dtype)
    for k in range(0, 64, lanes.lanes_of(x)):
        found = lanes.exp(lanes.load(x, k))
        np.testing.assert_allclose(found, np.exp(x[k : k + len(found)]), rtol=eps)
        if dtype == "f8":
            np.testing.assert_allclose(lanes.log(found), x[k : k + 8], rtol=1e-15, atol=1e-15)
    assert not np.any(lanes.exp(lanes.splat(x, -1e4)))


def _first(x, i):
    return x[i]


def test_a_negative_index_is_an_error():
    watched(_first)
    assert _first(np.arange(3.0), 2) == 2.0
    with pytest.raises(IndexError, match="-1"):
        _first(np.arange(3.0), -1)
