"""Record what plain Python makes of calls of every kernel: src/minfer/kernels/answers.npz.

    python packaging/record_answers.py
    python packaging/record_answers.py --keep      the questions that there are, if answers stand

To be run after any edit of a kernel; ``--keep`` will do where none does anything new. In three
processes:

1. ``ask``, with compiled kernels (those in the cache will do): all that ``exercise.py`` does, and
   some tests, which ask harder questions. Calls of kernels by Python are candidates, if small.
2. ``answer``, with numba switched off: what plain Python makes of the candidates. Those that run
   the most branches of each kernel are kept. More runs tell which elements mean nothing (arrays
   were made, but not filled) and what a last bit in the arguments changes in the answer.
3. ``check``, with compiled kernels again: their answers, on this machine. A question with numbers
   at the edge of the range, where they answer in another way, is not kept, and that is said.

What they mean is told in src/minfer/kernels/compiling/answers.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from minfer.kernels.compiling import answers as _answers  # noqa: E402
from minfer.kernels.compiling import identity  # noqa: E402
from minfer.kernels.compiling import jit as _jit  # noqa: E402
from minfer.kernels.compiling.answers import Question  # noqa: E402

#: Candidates per kernel and types, and how many of them are kept, at least and at most.
CANDIDATES, FEW, KEPT = 16, 3, 9
#: How many of them are ordinary.
ORDINARY = 2
#: Bytes of a candidate, in memory and compressed.
LARGEST, LARGEST_PACKED = 2 << 20, 64 << 10
#: Smaller numbers are at the edge of the range: a product that is made in another order loses them.
EDGE = 1e-290
#: Seconds (CPU) for which plain Python may work on a candidate, all lines noted.
PATIENCE = 1.5
#: Tests whose calls are candidates, too, by file; so many of each.
SAMPLE = 8
TESTS = (
    "lanes", "bp", "certified", "chain",
    "compensation", "exact", "gibbs", "gradients", "labels", "logical",
    "hard", "joints", "map", "objectives", "parser", "reduction", "rows", "trees",
)  # fmt: skip


# ---------------------------------------------------------------------- the file


def describe(value: Any, memory: Memory) -> Any:
    """A value for JSON: numbers as they are, arrays as places in memory."""
    if isinstance(value, np.ndarray):
        return memory.describe(value)
    if isinstance(value, np.generic):
        return {"scalar": value.dtype.str, "value": value.item()}
    if isinstance(value, tuple | list):
        kind = type(value)
        of = f"{kind.__module__}:{kind.__qualname__}" if hasattr(value, "_fields") else ""
        return {"tuple": [describe(part, memory) for part in value], "of": of}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"an argument of a kernel is a {type(value).__name__}")


class Memory:
    """Pieces of memory in which arrays lie; those that overlap share one.

    ``before``: so many pieces are somebody else's.
    """

    def __init__(self, arrays: Iterable[NDArray[Any]], before: int = 0) -> None:
        self.before = before
        self.starts: list[int] = []
        self.stops: list[int] = []
        for start, stop in sorted(_span(array) for array in arrays if array.size):
            if self.starts and start < self.stops[-1]:
                self.stops[-1] = max(stop, self.stops[-1])
            else:
                self.starts.append(start)
                self.stops.append(stop)
        self.origins = [start - start % 16 for start in self.starts]  # so are new ones aligned

    def describe(self, array: NDArray[Any]) -> dict[str, Any]:
        """An array as a place in one of the pieces."""
        block = at = 0
        if array.size:
            block = int(np.searchsorted(self.starts, _span(array)[0], side="right")) - 1
            at = array.__array_interface__["data"][0] - self.origins[block]
        return {
            "array": array.dtype.str, "shape": list(array.shape), "strides": list(array.strides),
            "block": self.before + block, "at": at, "writeable": bool(array.flags.writeable),
        }  # fmt: skip

    def copy(self, arrays: Iterable[NDArray[Any]]) -> list[bytes]:
        """What is in the pieces now; zeros where no array lies."""
        none = [np.zeros(0, dtype=np.uint8)] * self.before
        own = [np.zeros(b - a, dtype=np.uint8) for a, b in zip(self.origins, self.stops)]
        for array in arrays:
            place = _answers._array(none + own, **{**self.describe(array), "writeable": True})
            place[...] = array
        return [block.tobytes() for block in own]


def _span(array: NDArray[Any]) -> tuple[int, int]:
    """The first byte of an array, and the one after its last."""
    start = stop = array.__array_interface__["data"][0]
    for extent, stride in zip(array.shape, array.strides):
        start += min(0, stride * (extent - 1))
        stop += max(0, stride * (extent - 1))
    return start, stop + array.itemsize


def arrays_in(value: Any) -> list[NDArray[Any]]:
    """Every array in nested tuples."""
    if isinstance(value, np.ndarray):
        return [value]
    return [a for part in value for a in arrays_in(part)] if isinstance(value, tuple | list) else []


def write(path: Path, found: dict[str, list[Question]]) -> None:
    """Keep questions, with the keys of the modules that they are for."""
    pool: dict[bytes, int] = {}

    def piece(content: bytes) -> int:
        return pool.setdefault(content, len(pool))

    def packed(q: Question) -> list[Any]:
        bits = {k: piece(content) for k, content in q.undefined.items()}
        before, after = [piece(b) for b in q.before], [piece(b) for b in q.after]
        return [q.args, before, q.result, after, q.sway, bits]

    kernels = {name: [packed(q) for q in found[name]] for name in sorted(found)}
    modules = {name.rpartition(".")[0] for name in found}
    about = {
        "format": _answers.FORMAT,
        "modules": {module: identity.key(module) for module in sorted(modules)},
        "kernels": kernels,
    }
    text = json.dumps(about, separators=(",", ":")).encode()
    np.savez_compressed(
        path,
        about=np.frombuffer(text, dtype=np.uint8),
        pool=np.frombuffer(b"".join(pool), dtype=np.uint8),
        ends=np.cumsum([len(content) for content in pool], dtype=np.int64),
    )


# ---------------------------------------------------------------------- 1: candidates


class Calls:
    """Calls of kernels by Python: a few of each, of many shapes."""

    def __init__(self) -> None:
        self.found: defaultdict[Any, dict[bytes, Question]] = defaultdict(dict)
        self.shapes: defaultdict[Any, set[Any]] = defaultdict(set)
        self.too_large: set[Any] = set()
        self.room = 2 * CANDIDATES  # half of it for calls of other shapes

    def note(self, name: str, args: tuple[Any, ...]) -> None:
        """Keep a call that is not too large and not much like those that are kept."""
        key = name, _kind(args)
        known, shape = self.found[key], _shape(args)
        new = shape not in self.shapes[key]
        if len(known) >= self.room if new else len(known) >= self.room - CANDIDATES:
            return
        arrays = arrays_in(args)
        if sum(array.nbytes for array in arrays) > LARGEST:
            self.too_large.add(key)
            return
        memory = Memory(arrays)
        question = Question([describe(a, memory) for a in args], memory.copy(arrays))
        if _packed(question) > LARGEST_PACKED:
            self.too_large.add(key)
            return
        self.shapes[key].add(shape)
        content = hashlib.sha256(repr(question).encode()).digest()
        known.setdefault(content, question)


def _kind(value: Any) -> Any:
    """What numba makes other code for."""
    import numba

    return tuple(str(numba.typeof(part)) for part in value)


def _short(kind: tuple[str, ...]) -> str:
    text = f"({', '.join(kind)})"
    return text if len(text) < 100 else f"{text[:100]} ..."


def _shape(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape
    if isinstance(value, tuple):
        return tuple(map(_shape, value))
    return value if isinstance(value, bool) else None


def _packed(question: Question) -> int:
    return len(zlib.compress(b"".join(question.before), 1))


def _overhear(calls: Calls) -> None:
    """From here on, take note of all calls of kernels by Python."""
    kinds: dict[type, type] = {}

    def listening(kind: Any) -> type:
        def call(self: Any, *args: Any) -> Any:
            calls.note(f"{self.py_func.__module__}.{self.py_func.__qualname__}", args)
            return kind.__call__(self, *args)

        return kinds.setdefault(kind, type(kind.__name__, (kind,), {"__call__": call}))

    for kernel in _jit.kernels():
        kernel.__class__ = listening(type(kernel))


class Sample:
    """A plugin for pytest: a few tests of each file."""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        files = defaultdict(list)
        for item in items:
            if not any(item.iter_markers("slow")):
                files[item.path].append(item)
        items[:] = [item for known in files.values() for item in known[:: 1 + len(known) // SAMPLE]]


def ask(path: Path) -> None:
    """The first part: candidates."""
    import pytest

    from exercise import units

    _jit.be_quiet()
    calls = Calls()
    _overhear(calls)
    with _filled(0):  # work arrays are then small when compressed
        for unit in units():
            unit.work()
        calls.room *= 2
        files = [str(ROOT / "tests" / f"test_{name}.py") for name in TESTS]
        options = ["-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
        if pytest.main([*files, *options], plugins=[Sample()]) > 1:  # more than tests that failed
            sys.exit("the tests could not be run: see above")
    found = defaultdict(list)
    for (name, _), known in calls.found.items():
        found[name] += known.values()
    for name, kind in sorted(calls.too_large):
        if not calls.found[name, kind]:
            print(f"too large: {name} {_short(kind)}")
    write(path, found)


# ---------------------------------------------------------------------- 2: answers


class Run(NamedTuple):
    """What plain Python made of a candidate."""

    question: Question  # answered
    steps: frozenset[Any]  # from line to line
    telling: int  # numbers that are new


class _Late(Exception):
    pass


@contextmanager
def _patience(seconds: float) -> Iterator[None]:
    import signal

    def stop(*_: Any) -> None:
        raise _Late

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@contextmanager
def _filled(value: int) -> Iterator[None]:
    """New arrays hold this number."""
    kept = np.empty, np.empty_like

    def filling(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **options: Any) -> Any:
            array = make(*args, **options)
            array.fill(value)
            return array

        return made

    np.empty, np.empty_like = map(filling, kept)
    try:
        yield
    finally:
        np.empty, np.empty_like = kept


def _run(
    function: Callable[..., Any], question: Question, fill: int = 0, seed: int | None = None
) -> Question:
    """The question with its answer; of arguments that differ by a last bit, if there is a seed."""
    memory = _answers.blocks(question.before)
    args = _answers.made(question.args, memory)
    if seed is not None:
        _sway(args, seed)
    with _filled(fill), np.errstate(all="ignore"), _patience(PATIENCE):
        result = _own(function(*args))
    arrays = arrays_in([result])
    rest = Memory(arrays, len(memory))
    after = [block.tobytes() for block in memory] + rest.copy(arrays)
    return question._replace(result=describe(result, rest), after=after)


def _sway(args: list[Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    for array in arrays_in(args):
        if array.dtype.kind == "f":
            array.flags.writeable = True
            array *= 1.0 + rng.choice([-1, 1], array.shape) * np.finfo(array.dtype).eps


def _own(value: Any) -> Any:
    """A result in memory of its own."""
    if isinstance(value, np.ndarray):
        return np.array(value, order="C")
    if isinstance(value, tuple):
        parts = [_own(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _traced(function: Callable[..., Any], question: Question) -> Run:
    """Answered, with the steps from line to line of kernels that this took."""
    steps: set[Any] = set()
    homes = tuple(str(_answers.FILE.parents[1] / place) for place in ("kernels", "parsing/kernels"))

    def trace(frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(homes):
            return None
        last = [0]

        def step(frame: Any, event: str, _: Any) -> Any:
            if event == "line":
                steps.add((code, last[0], frame.f_lineno))
                last[0] = frame.f_lineno
            return step

        return step

    sys.settrace(trace)
    try:
        answered = _run(function, question)
    finally:
        sys.settrace(None)
    return Run(answered, frozenset(steps), _telling(answered))


def _telling(question: Question) -> int:
    """How many numbers of the answer are neither zero nor as before."""
    before = dict(_answers.leaves(question.arguments(), None))
    count = 0
    for name, value in question.answer():
        new = np.asarray(value)
        old = np.asarray(before.get(name, np.zeros_like(new)))
        count += int(np.count_nonzero((new != old) & (new != 0)))
    return count


def _choose(runs: list[Run]) -> list[Run]:
    """Ordinary candidates first, since kernels have ways round numbers that are not; then such that
    go other ways; of those that go the same, telling and small ones."""
    chosen = _ordinary(runs)
    seen: set[Any] = set().union(*(run.steps for run in chosen))
    rest = sorted(
        (run for run in runs if run not in chosen),
        key=lambda run: (-min(run.telling, 8), _packed(run.question)),
    )
    while rest and len(chosen) < KEPT:
        best = max(rest, key=lambda run: len(run.steps - seen))  # the first of them
        if len(chosen) >= FEW and best.steps <= seen:
            break
        chosen.append(best)
        seen |= best.steps
        rest.remove(best)
    return chosen


def _ordinary(runs: list[Run]) -> list[Run]:
    """The most telling candidates whose numbers are neither extreme nor few."""
    tame = [run for run in runs if is_tame(run.question)]
    return sorted(tame, key=lambda run: (-min(run.telling, 100), _packed(run.question)))[:ORDINARY]


def is_tame(question: Question) -> bool:
    """Whether all numbers that are given are of ordinary size."""
    arrays = arrays_in(question.arguments())
    return all(np.all(np.abs(a) < 50.0) for a in arrays if a.dtype.kind == "f")


def _assess(function: Callable[..., Any], question: Question) -> Question:
    """What means nothing in an answer, and how much a last bit matters."""
    other = _run(function, question, fill=1)
    undefined = {}
    for k, ((_, one), (_, two)) in enumerate(zip(question.answer(), other.answer(), strict=True)):
        apart = _answers.gaps(np.asarray(one), np.asarray(two)) != 0
        if apart.any():
            undefined[k] = np.packbits(apart).tobytes()
    sway: dict[int, float] = {}
    for seed in (1, 2):
        try:
            moved = _run(function, question, seed=seed).answer()
        except Exception:  # numbers that must not change: bits, places
            continue
        for k, gap in enumerate(_movement(question.answer(), moved)):
            if gap > 1e-15:
                sway[k] = max(sway.get(k, 0.0), gap)
    return question._replace(sway=sway, undefined=undefined)


def _movement(right: _answers.Leaves, moved: _answers.Leaves) -> Iterator[float]:
    for (_, one), (_, two) in zip(right, moved, strict=True):
        a, b = np.asarray(one), np.asarray(two)
        if a.shape != b.shape:
            yield np.inf
            continue
        scale = np.nan_to_num(np.abs(a.astype(float)), posinf=0.0, neginf=0.0)
        yield float((_answers.gaps(a, b) / (1.0 + scale)).max(initial=0.0))


def answer(source: Path, path: Path) -> None:
    """The second part: plain Python answers."""
    kernels = {_answers._name(kernel): kernel for kernel in _jit.kernels()}
    found: dict[str, list[Question]] = {}
    for name, candidates in sorted(_answers.read(source)[1].items()):
        kinds = defaultdict(list)
        for question in candidates:
            kinds[_kind(question.arguments())].append(question)
        kept: list[Question] = []
        for kind, known in kinds.items():
            began = time.process_time()
            runs, why = [], ""
            for question in sorted(known, key=_packed):
                if why and time.process_time() - began > 5 * PATIENCE:
                    break
                try:
                    runs.append(_traced(kernels[name], question))
                except _Late:
                    why = "takes too long in plain Python"
                except Exception as error:
                    why = f"{type(error).__name__}: {error}"
            chosen = [_assess(kernels[name], run.question) for run in _choose(runs)]
            kept += chosen
            took = time.process_time() - began
            if not chosen or took > 5.0:
                print(f"{name}: {len(chosen)} of {len(known)}, {took:.1f} s {why} {_short(kind)}")
        if kept:
            found[name] = kept
    write(path, found)
    count = sum(map(len, found.values()))
    print(f"{count} questions for {len(found)} kernels, {path.stat().st_size:,} bytes")


def keep() -> None:
    """The questions that there are, once plain Python has said the same again."""
    kernels = {_answers._name(kernel): kernel for kernel in _jit.kernels()}
    for name, known in _answers.kept().items():
        for question in known:
            said = _answers.differs(question, question.arguments(), kernels[name])
            if said:
                raise SystemExit(f"{name}: {said}; record answers anew, without --keep")
    write(_answers.FILE, _answers.kept())


# ---------------------------------------------------------------------- 3: compiled kernels


def is_at_edge(question: Question) -> bool:
    """Whether it or its answer has a number so small that the next product may lose it."""
    told = [*_answers.leaves(question.arguments(), None), *question.answer()]
    sizes = [np.abs(x) for _, x in told if np.asarray(x).dtype.kind == "f"]
    return any(np.any((x > 0.0) & (x < EDGE)) for x in sizes)


def check() -> int:
    """The third part: what compiled kernels say; how many are wrong."""
    wrong, left = 0, {name: list(known) for name, known in _answers.kept().items()}
    _jit.be_quiet()
    for kernel in _jit.kernels():
        name = _answers._name(kernel)
        for question in _answers.questions(name):
            args = question.arguments()
            said = _answers.differs(question, args, kernel)
            if said:
                sway = max(question.sway.values(), default=0.0)
                edge = is_at_edge(question) and len(left[name]) > 1
                more = "; not kept, since it is at the edge of the range" if edge else ""
                print(f"{name}: {said}, sway {sway:.1e} {_short(_kind(args))}{more}")
                if edge:
                    left[name].remove(question)
                wrong += not edge
    if left != _answers.kept():
        write(_answers.FILE, left)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ("ask", "answer", "keep", "check")
    parser.add_argument("--part", choices=parts, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="the questions that there are")
    parser.add_argument("--candidates", type=Path, help="keep them here, or take those that are")
    options = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    if options.part == "ask":
        ask(options.candidates)
    elif options.part == "answer":
        answer(options.candidates, _answers.FILE)
    elif options.part == "keep":
        keep()
    elif options.part == "check":
        raise SystemExit(1 if check() else 0)
    elif options.keep:
        for part in ("keep", "check"):
            _part(part, _answers.FILE)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            path = options.candidates or Path(scratch, "candidates.npz")
            for part in ("ask", "answer", "check"):
                if part != "ask" or not path.exists():
                    _part(part, path)


def _part(part: str, path: Path) -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": str(int(part in ("answer", "keep")))}
    call = [sys.executable, __file__, "--part", part, "--candidates", str(path)]
    began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(call, env=environment, check=True)
    took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began
    print(f"{part}: {took:.0f} s (CPU)", flush=True)


if __name__ == "__main__":
    main()
