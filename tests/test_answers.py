"""Machine code is asked what plain Python has answered; what is wrong is found and not used.

NUMBA_DISABLE_JIT=1 pytest tests/test_answers.py asks plain Python again.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba.core import config
from typer.testing import CliRunner

from minfer.cli import app
from minfer.errors import MiscompiledError
from minfer.kernels.compiling import answers as _answers
from minfer.kernels.compiling import cache as _cache
from minfer.kernels.compiling import identity as _identity
from minfer.kernels.compiling import jit as _jit
from minfer.kernels.compiling.answers import Question
from minfer.upkeep import health, warmup
from sources import parsed

ROOT = Path(__file__).parents[1]
recorder = pytest.importorskip("record_answers")
AGAIN = "python packaging/record_answers.py"
PLAIN = bool(getattr(config, "DISABLE_JIT", False))
compiled = pytest.mark.skipif(PLAIN, reason="needs the compiler")

#: Kernels that Python calls and nobody asks, and why.
UNASKED: dict[str, str] = {}


def called_by_python() -> set[str]:
    """Full names of the kernels that modules other than those of kernels refer to."""
    kernels = {_answers._name(kernel) for kernel in _jit.kernels()}
    modules = {name.rpartition(".")[0] for name in kernels}
    found = set()
    for path in _identity.PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(_identity.PACKAGE.parent).with_suffix("").parts)
        if name.startswith(_jit.HOMES):
            continue
        nodes = list(ast.walk(parsed(path))) if "kernels" in path.read_text("utf-8") else []
        known = {}  # names of modules of kernels
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                full = {alias.asname or alias.name: f"{node.module}.{alias.name}"
                        for alias in node.names}  # fmt: skip
                found |= kernels & set(full.values())
                known |= {short: module for short, module in full.items() if module in modules}
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found |= kernels & {f"{known.get(node.value.id)}.{node.attr}"}
    return found


def test_every_kernel_that_python_calls_has_questions():
    called = called_by_python()
    assert len(called) > 100
    assert called - set(_answers.kept()) == set(UNASKED)


def test_answers_are_of_these_sources_and_small():
    modules = {name.rpartition(".")[0] for name in _answers.kept()}
    stale = sorted(module for module in modules if _answers.stale(module))
    assert not stale, f"edited after answers were recorded; run: {AGAIN}"
    assert _answers.FILE.stat().st_size < 2 << 20


def test_questions_are_telling():
    """In most answers there are numbers that are neither zero nor what was given."""
    dull = [name for name, asked in _answers.kept().items() if not any(map(is_telling, asked))]
    assert len(dull) <= 5, dull


def is_telling(question: Question) -> bool:
    before = dict(_answers.leaves(question.arguments(), None))
    return any(
        name not in before or not np.array_equal(before[name], value, equal_nan=True)
        for name, value in question.answer()
        if np.any(value)
    )


@pytest.mark.skipif(not PLAIN, reason="for NUMBA_DISABLE_JIT=1")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # whole numbers wrap around on purpose
@pytest.mark.parametrize("name", sorted(_answers.kept()))
def test_plain_python_says_so_again(name):
    module, _, function = name.rpartition(".")
    kernel = getattr(import_module(module), function)
    for question in _answers.questions(name):
        wrong = _answers.differs(question, question.arguments(), kernel)
        assert not wrong, f"{wrong}; run: {AGAIN}"


class Pair(NamedTuple):
    left: Any
    right: Any


def kept(args: tuple[Any, ...]) -> list[Any]:
    """Through the format and back."""
    arrays = recorder.arrays_in(args)
    memory = recorder.Memory(arrays)
    described = [recorder.describe(a, memory) for a in args]
    question = Question(json.loads(json.dumps(described)), memory.copy(arrays))
    return question.arguments()


WHOLE = np.arange(24.0).reshape(4, 6)
FIXED = np.arange(3)
FIXED.flags.writeable = False
ARGUMENTS = {
    "numbers": (1, -0.0, True, None, np.nan, np.inf, np.uint64(2**64 - 1), np.float32(0.1)),
    "contiguous": (WHOLE,),
    "by columns": (np.asfortranarray(WHOLE),),
    "in steps": (WHOLE[::2, 1::3], WHOLE[0, ::-1], WHOLE.T[::-1]),
    "read-only": (FIXED,),
    "empty": (np.empty((0, 3)), np.empty(0, np.int8), WHOLE),
    "small": (np.arange(3, dtype=np.int8)[1:], np.array([True, False]), np.arange(5, dtype="u4")),
    "tuples": ((WHOLE, 1), Pair(WHOLE[0], (2.0, WHOLE[1]))),
    "side by side": (WHOLE[:, 0], WHOLE[:, 1], WHOLE[1], np.arange(8, dtype=np.int8)),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_come_back_as_they_were(case):
    args = ARGUMENTS[case]
    back = kept(args)
    assert tuple(map(numba.typeof, back)) == tuple(map(numba.typeof, args))
    given, found = _answers.leaves(list(args), None), _answers.leaves(back, None)
    assert [name for name, _ in given] == [name for name, _ in found]
    for (_, one), (_, two) in zip(given, found):
        np.testing.assert_array_equal(one, two)
        assert np.asarray(one).dtype == np.asarray(two).dtype


def test_arrays_that_share_memory_still_do_and_neighbours_stay_apart():
    whole, row, steps, again = kept((WHOLE, WHOLE[1], WHOLE[::2, 1::3], WHOLE))
    whole[...] = 7.0
    assert (row == 7.0).all()
    assert (steps == 7.0).all()
    again[0, 0] = 1.0
    assert whole[0, 0] == 1.0
    assert WHOLE[1, 0] == 6.0  # the original is left alone
    row = np.arange(8, dtype=np.int8)
    left, right = kept((row[:4], row[4:]))
    left[...] = 9
    assert right.tolist() == [4, 5, 6, 7]


def question_of(result: Any, **more: Any) -> Question:
    arrays = recorder.arrays_in([result])
    memory = recorder.Memory(arrays)
    return Question([], [], recorder.describe(result, memory), memory.copy(arrays), **more)


@pytest.mark.parametrize(
    ("right", "said", "fine"),
    [
        (2**62, 2**62 + 1, False),
        (True, False, False),
        (0.1 + 0.2, 0.3, True),
        (1.0, 1.0 + 1e-10, False),
        (1e9, 1e9 + 1e-4, True),
        (np.nan, np.nan, True),
        (1.0, np.nan, False),
        (np.inf, np.inf, True),
        (np.inf, 1e308, False),
        (np.float32(0.1), 0.1, True),
        (np.float32(0.1), 0.1001, False),
        (np.array([1.0, 2.0]), np.array([1.0]), False),
        (np.array([1.0, np.nan]), np.array([1.0, 0.0]), False),
        ((1, 2.0), (1, 2.0), True),
        ((1, 2.0), (1, 2.5), False),
        ((1, 2.0), 1, False),
        (None, 1, False),
    ],
)
def test_answers_are_compared(right, said, fine):
    wrong = _answers.differs(question_of(right), [], lambda: said)
    assert (wrong == "") == fine, wrong


def test_what_counts_as_another_answer():
    assert "ZeroDivisionError" in _answers.differs(question_of(1.0), [], lambda: 1 // 0)
    shaky = question_of(np.array([1.0, 2.0]), sway={0: 1e-9})
    assert not _answers.differs(shaky, [], lambda: np.array([1.0, 2.0 + 1e-8]))
    assert _answers.differs(shaky, [], lambda: np.array([1.0, 2.0 + 1e-5]))
    bits = np.packbits([False, True]).tobytes()
    loose = question_of(np.array([1.0, 2.0]), undefined={0: bits})
    assert not _answers.differs(loose, [], lambda: np.array([1.0, 99.0]))
    assert _answers.differs(loose, [], lambda: np.array([0.0, 2.0]))


#: A kernel of the package that compiles in no time, and what another one would make of its name.
NAME = "minfer.kernels.arithmetic.softmax.softmax"


def wrong_softmax(field, offsets, probs):
    for k in range(len(field)):
        probs[k] = 1.0 / (1 + field[k] - field[k])
    return 0.0


def named_like_a_kernel(function: Any) -> Any:
    function.__module__, _, function.__qualname__ = NAME.rpartition(".")
    return function


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of its own for kernels made from here on, and none of a wheel."""
    monkeypatch.delenv("MINFER_READY", raising=False)
    monkeypatch.setattr(_jit, "READY", _cache.ShippedKernels(tmp_path))  # there is nothing in it
    _jit.kernels()
    place = tmp_path / "cache"
    place.mkdir()
    monkeypatch.setattr(_jit, "CACHE_DIR", place)
    monkeypatch.setattr(_jit, "_KERNELS", [])
    monkeypatch.setattr(_cache, "FAULTS", [])
    return place


def arguments() -> list[Any]:
    return _answers.questions(NAME)[0].arguments()


@compiled
def test_what_is_compiled_wrong_is_never_used(folder):
    kernel = _jit.jit(named_like_a_kernel(wrong_softmax))
    for _ in range(2):
        with pytest.raises(MiscompiledError) as caught:
            kernel(*arguments())
        for part in (NAME, "float64", "off by", numba.__version__, "report"):
            assert part in str(caught.value)
    assert not list(folder.rglob("*.nbc"))
    assert not kernel.overloads


@compiled
@pytest.mark.parametrize("wrong", [False, True])
def test_warmup_says_how_many_were_asked_or_which_is_wrong(folder, monkeypatch, wrong):
    from minfer.kernels.arithmetic import softmax as module

    function = named_like_a_kernel(wrong_softmax) if wrong else module.softmax.py_func
    monkeypatch.setattr(module, "softmax", _jit.jit(function))
    monkeypatch.setitem(warmup.PARTS, "method", (module.__name__,))
    result = CliRunner().invoke(app, ["warmup", "method"])
    assert result.exit_code == wrong, result.output
    assert (NAME if wrong else "1 kernel compiled") in result.output


def planted(cache: Any) -> None:
    """Save a wrong kernel under the key of the right one."""
    wrong = numba.njit(**_jit.OPTIONS)(wrong_softmax)
    wrong(*arguments())
    [(types, made)] = wrong.overloads.items()
    cache.save_overload(types, made)


def doctor(monkeypatch: Any) -> Any:
    checks = {name: health.CHECKS[name] for name in ("cache", "kernels")}
    monkeypatch.setattr(health, "CHECKS", checks)
    return CliRunner().invoke(app, ["doctor", "--json"])


@compiled
def test_wrong_code_in_a_wheel_is_passed_over(folder, tmp_path, monkeypatch):
    from minfer.kernels.arithmetic.softmax import softmax
    from test_kernel_cache import as_wheel

    def kernel() -> Any:
        """As in a new process."""
        made = _jit.jit(softmax.py_func)
        place = made._cache.folder
        made._cache = _cache.KernelCache(softmax.py_func, place, _cache.ShippedKernels(shipped))
        monkeypatch.setattr(_jit, "_KERNELS", [made])
        return made

    shipped = tmp_path / "ready"
    shipped.mkdir()
    place = shipped / "any" / _jit.jit(softmax.py_func)._cache.folder.name
    planted(_cache.KernelCache(softmax.py_func, place))
    as_wheel(shipped, softmax)
    assert kernel()(*arguments()) == 0.0  # wrong
    kernel()
    result = doctor(monkeypatch)
    assert result.exit_code == 1
    assert f"the wheel holds {NAME}" in result.stdout
    args = arguments()
    assert not _answers.differs(_answers.questions(NAME)[0], args, kernel())
    kernel()
    again = doctor(monkeypatch)
    assert json.loads(again.stdout)["ok"], again.stdout
    assert list(shipped.rglob("*.nbc"))  # not ours to remove


PLANT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from minfer.kernels.arithmetic.softmax import softmax
from test_answers import planted
planted(softmax._cache)
"""
SAY = """
import numpy as np
from minfer.kernels.arithmetic.softmax import softmax
probs = np.empty(2)
softmax(np.array([0.0, np.log(3.0)]), np.array([0, 2]), probs)
print(probs.round(9).tolist())
"""


#: Without the checks that compile solvers.
DOCTOR = """
from minfer.upkeep import health
from minfer.cli import app
health.CHECKS = {name: health.CHECKS[name] for name in ("cache", "kernels")}
app(["doctor"])
"""


@pytest.mark.slow
@compiled
def test_wrong_code_in_the_cache_is_found_and_replaced(tmp_path):
    """In processes of their own, as it happened."""
    places = os.pathsep.join(str(ROOT / name) for name in ("src", "tests", "packaging"))
    environment = {
        **os.environ, "PYTHONPATH": places, "MINFER_CACHE_DIR": str(tmp_path / "cache"),
        "MINFER_READY": "0",
    }  # fmt: skip

    def run(*words: str) -> Any:
        call = [sys.executable, *words]
        return subprocess.run(call, env=environment, capture_output=True, text=True)

    assert run("-c", PLANT).returncode == 0
    assert run("-c", SAY).stdout == "[1.0, 1.0]\n"  # wrong
    found = run("-c", DOCTOR)
    assert found.returncode == 1, found.stderr
    assert "BROKEN" in found.stdout
    [line] = [line for line in found.stdout.splitlines() if line.startswith("kernels")]
    for part in (NAME, "the cache", "float64", "off by", numba.__version__, "report"):
        assert part in line
    assert run("-c", SAY).stdout == "[0.25, 0.75]\n"
    assert run("-c", DOCTOR).returncode == 0
