"""Does the machine code of a kernel say what plain Python says? Questions, and answers to compare.

``answers.npz``, written by ``packaging/record_answers.py``, holds calls of every kernel that Python
calls, for each of the types that it is compiled for: the arguments, and what plain Python (no
numba, no LLVM) made of them. A kernel is asked

* right after it was compiled, before anyone gets a result of it (:func:`vet`): if an answer is
  wrong, it is not used and not kept, and the call raises :class:`~minfer.errors.MiscompiledError`;
* by ``minfer doctor``, whatever a cache or a wheel holds: what is wrong there is not loaded again.

Whole numbers must be equal. Others may differ by :data:`TOLERANCE`, since sums may be added in
another order, and by :data:`SWAY` times what a last bit in the arguments changes in the answer of
plain Python. The file is a npz of three arrays, never pickled: ``about`` is JSON, ``pool`` the
bytes of all arrays, ``ends`` where the pieces end. An array is a place in a piece of memory, so
that strides, order and overlaps are those of the call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from minfer.kernels.compiling import identity as _identity

FILE = Path(__file__).parents[1] / "answers.npz"
FORMAT = 1
#: By which numbers may differ, relatively and absolutely.
TOLERANCE = {8: 1e-12, 4: 1e-5}
#: So many times the effect of a last bit.
SWAY = 64.0

Leaves = list[tuple[str, Any]]


class Question(NamedTuple):
    """One call of a kernel, and what came of it in plain Python.

    ``sway`` is what a last bit changes, relatively, and ``undefined`` which elements mean nothing,
    as packed bits; both by the number of a leaf.
    """

    args: list[Any]  # descriptions (:func:`made`)
    before: list[bytes]  # the memory in which their arrays lie
    result: Any = None
    after: list[bytes] = []  # noqa: RUF012
    sway: dict[int, float] = {}  # noqa: RUF012
    undefined: dict[int, bytes] = {}  # noqa: RUF012

    def arguments(self) -> list[Any]:
        return made(self.args, blocks(self.before))

    def answer(self) -> Leaves:
        """All that there is to compare: the arguments after the call, and the result."""
        args, result = made([self.args, self.result], blocks(self.after))
        return leaves(args, result)


class Verdict(NamedTuple):
    """How many questions were asked, and what was wrong; nothing if all was right."""

    asked: int
    wrong: str


# ---------------------------------------------------------------------- asking


def ask(kernel: Any, types: Iterable[Any], call: Callable[..., Any]) -> Verdict:
    """Ask an entry point, or the plain function, all questions for these types of arguments."""
    signature, asked = tuple(types), 0
    for question in questions(_name(kernel)):
        args = question.arguments()
        if tuple(map(numba.typeof, args)) == signature:
            asked += 1
            wrong = differs(question, args, call)
            if wrong:
                return Verdict(asked, wrong)
    return Verdict(asked, "")


def differs(question: Question, args: list[Any], call: Callable[..., Any]) -> str:
    """How a call differs from what plain Python says, at its worst; nothing if it does not."""
    try:
        found = leaves(args, call(*args))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    known = question.answer()
    if [name for name, _ in found] != [name for name, _ in known]:
        return "values of another kind"
    worst, where = 0.0, ""
    for k, ((name, right), (_, given)) in enumerate(zip(known, found, strict=True)):
        off = _off(np.asarray(right), np.asarray(given), question, k)
        if off > worst:
            worst, where = off, name
    return f"off by {worst:.1e} in {where}" if where else ""


def _off(right: NDArray[Any], given: NDArray[Any], question: Question, leaf: int) -> float:
    """The largest difference, if it is beyond what is allowed; infinite, if nothing fits."""
    if right.shape != given.shape:
        return np.inf
    gap = gaps(right, given)
    allowed = 0.0
    if right.dtype.kind == "f":
        allowed = TOLERANCE[right.dtype.itemsize] + SWAY * question.sway.get(leaf, 0.0)
    scale = np.nan_to_num(np.abs(right.astype(float)), nan=0.0, posinf=0.0, neginf=0.0)
    beyond = gap > allowed * (1.0 + scale)
    if leaf in question.undefined:
        bits = np.frombuffer(question.undefined[leaf], dtype=np.uint8)
        beyond &= ~np.unpackbits(bits, count=right.size).astype(bool).reshape(right.shape)
    return float(gap[beyond].max(initial=0.0))


def gaps(right: NDArray[Any], given: NDArray[Any]) -> NDArray[Any]:
    """Element by element; infinite where one is not a number or infinite and the other differs."""
    if right.dtype.kind in "biu" and given.dtype.kind in "biu":
        apart = right != given  # exact, beyond 2^53 too
        return np.where(apart, np.maximum(1.0, np.abs(right.astype(float) - given)), 0.0)
    same = (right == given) | (np.isnan(right) & np.isnan(given))
    with np.errstate(invalid="ignore"):
        gap = np.abs(right.astype(float) - given)
    return np.where(same, 0.0, np.where(np.isfinite(gap), gap, np.inf))


def leaves(args: list[Any], result: Any) -> Leaves:
    """Every array and number among the arguments and in the result, with its name."""
    found: Leaves = []
    for k, value in enumerate(args, 1):
        found += _leaves(f"argument {k}", value)
    return [*found, *_leaves("the result", result)]


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, tuple):
        for k, (part, field) in enumerate(zip(value, getattr(value, "_fields", value))):
            yield from _leaves(f"{name}.{field if hasattr(value, '_fields') else k}", part)
    elif value is not None and not isinstance(value, str):
        yield name, value


# ---------------------------------------------------------------------- when a kernel is compiled


def vet(kernel: Any, made: Any) -> None:
    if not callable(made.entry_point):  # for kernels only: a part of what will be asked
        return
    verdict = ask(kernel, made.signature.args, made.entry_point)
    ASKED[0] += verdict.asked > 0
    if verdict.wrong:
        from minfer.errors import MiscompiledError

        raise MiscompiledError(
            f"numba compiles {report(kernel, made.signature.args, verdict)}. It is not used. "
            "Please report this line; NUMBA_DISABLE_JIT=1 does without compiled code, slowly"
        )


def report(kernel: Any, types: Iterable[Any], verdict: Verdict) -> str:
    """What is wrong, and all that somebody who looks into it needs to know."""
    from minfer.kernels.compiling.cache import processor, system

    signature = ", ".join(map(str, types))
    return (
        f"{_name(kernel)}({signature}) to code that is wrong: {verdict.wrong} "
        f"(numba {numba.__version__}, {processor()}, {system()})"
    )


def compile_recorded(module: str) -> str:
    """Compile the kernels of a module for the types of all questions; the first wrong answer."""
    from minfer.errors import MiscompiledError

    wrong = ""
    for name, known in kept().items():
        home, _, short = name.rpartition(".")
        kernel: Any = getattr(import_module(module), short, None) if home == module else None
        if not hasattr(kernel, "compile"):  # the compiler is off
            continue
        for types in dict.fromkeys(tuple(map(numba.typeof, q.arguments())) for q in known):
            try:
                kernel.compile(types)
            except MiscompiledError as error:
                wrong = wrong or str(error)
            except Exception:
                if not stale(module):  # or it was edited, and takes other arguments now
                    raise
    return wrong


#: How many versions of kernels this process has compiled and asked.
ASKED = [0]


# ---------------------------------------------------------------------- the file


def _name(kernel: Any) -> str:
    function = getattr(kernel, "py_func", kernel)
    return f"{function.__module__}.{function.__qualname__}"


def questions(name: str) -> list[Question]:
    """Those of a kernel by its full name; none if it was edited after they were recorded."""
    module = name.rpartition(".")[0]
    return kept().get(name, []) if name.startswith("minfer.") and not stale(module) else []


def stale(module: str) -> bool:
    """Whether the sources of a module are others than those that answered."""
    return bool(_file()[0].get(module, "") != _identity.key(module))


def kept() -> dict[str, list[Question]]:
    return _file()[1]


@cache
def _file() -> tuple[dict[str, str], dict[str, list[Question]]]:
    return read(FILE) if FILE.exists() else ({}, {})


def read(path: Path) -> tuple[dict[str, str], dict[str, list[Question]]]:
    """The keys of the modules that were asked, and questions by kernel."""
    with np.load(path, allow_pickle=False) as file:
        about = json.loads(file["about"].tobytes())
        pool, ends = file["pool"].tobytes(), file["ends"].tolist()
    if about["format"] != FORMAT:
        raise ValueError(f"{path} is of another version; run packaging/record_answers.py")
    pieces = [pool[start:end] for start, end in zip([0, *ends], ends)]

    def question(args: Any, before: Any, result: Any, after: Any, sway: Any, undefined: Any) -> Any:
        bits = {int(k): pieces[piece] for k, piece in undefined.items()}
        then, now = [pieces[k] for k in before], [pieces[k] for k in after]
        return Question(args, then, result, now, {int(k): x for k, x in sway.items()}, bits)

    found = {name: [question(*q) for q in known] for name, known in about["kernels"].items()}
    return about["modules"], found


# ---------------------------------------------------------------------- values as JSON and memory


def blocks(memory: list[bytes]) -> list[NDArray[np.uint8]]:
    return [np.frombuffer(block, dtype=np.uint8).copy() for block in memory]


def made(described: Any, memory: list[NDArray[np.uint8]]) -> Any:
    """The value of a description for JSON (``describe`` in packaging/record_answers.py)."""

    def value(given: Any) -> Any:
        if isinstance(given, list):
            return [value(part) for part in given]
        if not isinstance(given, dict):
            return given
        if "tuple" in given:
            parts = value(given["tuple"])
            return _class(given["of"])(*parts) if given["of"] else tuple(parts)
        if "scalar" in given:
            return np.dtype(given["scalar"]).type(given["value"])
        return _array(memory, **given)

    return value(described)


@cache
def _class(name: str) -> Any:
    module, _, kind = name.partition(":")
    return getattr(import_module(module), kind)


def _array(
    memory: list[NDArray[np.uint8]], array: str, shape: list[int], strides: list[int], block: int,
    at: int, writeable: bool,
) -> NDArray[Any]:  # fmt: skip
    made: NDArray[Any] = np.empty(shape, dtype=array)
    if made.size:
        made = np.ndarray(tuple(shape), array, memory[block], at, tuple(strides))
    made.flags.writeable = writeable
    return made
