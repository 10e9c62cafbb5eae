"""How experiments measure: CPU seconds, contenders that take turns, one pinned core and none.

A ratio is the median over rounds of the ratio within a round, so what else the machine does hits
both sides. ``in_turn`` runs the rounds and returns every sample; ``medians``, ``least`` and
``median_ratio`` make numbers of them.

Only the standard library is imported, and nothing of minfer: workers in the environments of other
libraries, or with another checkout on their path, load this file by its path
(``benchmarks/stopwatch.py``).
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: Short calls are repeated until a sample lasts this long.
SAMPLE_SECONDS = 0.01
#: For the environment of a process that is to use one thread.
ONE_THREAD = {
    **{f"{x}_NUM_THREADS": "1" for x in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")},
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
#: How a process that :func:`in_both_ways` started is to run: "pinned" or "loose".
WAY = "MINFER_BENCHMARK_WAY"
#: The checkout that this file is part of, if it is part of one.
ROOT = Path(__file__).resolve().parents[2]


# ---------------------------------------------------------------------- one call


class Stopwatch:
    """CPU seconds of this process and seconds by the clock: so far, or of a block.

    >>> with Stopwatch() as spent:
    ...     _ = sum(range(1000))
    >>> 0 <= spent.cpu and 0 <= spent.wall
    True
    """

    def __init__(self) -> None:
        self._end: tuple[float, float] | None = None
        self._begin = _now()

    def __enter__(self) -> Stopwatch:
        self._end = None
        self._begin = _now()
        return self

    def __exit__(self, *_: object) -> None:
        self._end = _now()

    @property
    def cpu(self) -> float:
        return (self._end[0] if self._end else time.process_time()) - self._begin[0]

    @property
    def wall(self) -> float:
        return (self._end[1] if self._end else time.perf_counter()) - self._begin[1]


def _now() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def cpu_seconds(call: Callable[[], Any], number: int = 1) -> float:
    """CPU seconds of a call, the mean of ``number`` of them in a row."""
    begin = time.process_time()
    for _ in range(number):
        call()
    return (time.process_time() - begin) / number


def thread_seconds(call: Callable[[], Any]) -> float:
    """CPU seconds of a call in this thread alone, where another one shows progress."""
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def wall_seconds(call: Callable[[], Any]) -> float:
    """Seconds of a call by the clock."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of a call, and what it returned."""
    begin = time.process_time()
    answer = call()
    return time.process_time() - begin, answer


def usual(call: Callable[[], Any], rounds: int) -> float:
    """Median CPU seconds of so many calls."""
    return statistics.median(cpu_seconds(call) for _ in range(rounds))


def sample(call: Callable[[], Any], seconds: float = SAMPLE_SECONDS) -> float:
    """Mean CPU seconds of a call that is repeated until all have taken so many seconds."""
    n, begin = 0, time.process_time()
    while True:
        call()
        n += 1
        spent = time.process_time() - begin
        if spent >= seconds:
            return spent / n


def quickest(call: Callable[[], Any], seconds: float) -> float:
    """Least CPU seconds of a call that is repeated until all have taken so many seconds."""
    spent, best = 0.0, math.inf
    while spent < seconds:
        once = cpu_seconds(call)
        spent, best = spent + once, min(best, once)
    return best


def repeats(call: Callable[[], Any]) -> int:
    """How many calls make a sample of ``SAMPLE_SECONDS``; also the warm-up."""
    seconds = cpu_seconds(call)
    if seconds < 1.0:
        seconds = cpu_seconds(call)
    return max(1, math.ceil(SAMPLE_SECONDS / max(seconds, 1e-7)))


# ---------------------------------------------------------------------- several, in turn


def in_turn(
    calls: Mapping[K, Callable[[], Any]],
    rounds: int,
    *,
    warm_up: bool = True,
    timer: Callable[[Callable[[], Any]], Any] = cpu_seconds,
    there_and_back: bool = False,
    fewer: Callable[[Any], int] | None = None,
    slow: float = math.inf,
) -> dict[K, list[Any]]:
    """What ``timer`` says of each call in every round, in which all take their turn.

    ``warm_up`` adds a first round that does not count. ``there_and_back`` reverses every second
    round. ``fewer`` says, from its first number, how many rounds a contender takes part in at
    most. A round of more than ``slow`` CPU seconds is the last. With ``timer=told`` the calls
    return the number themselves.
    """
    found: dict[K, list[Any]] = {name: [] for name in calls}
    for turn in range(-1 if warm_up else 0, rounds):
        begin = time.process_time()
        for name in list(calls)[:: -1 if there_and_back and turn % 2 else 1]:
            if fewer and found[name] and len(found[name]) >= fewer(found[name][0]):
                continue
            value = timer(calls[name])
            if turn >= 0:
                found[name].append(value)
        if turn >= 0 and time.process_time() - begin > slow:
            break
    return found


def told(call: Callable[[], T]) -> T:
    """For calls that measure something themselves: what they return."""
    return call()


def medians(found: Mapping[K, Iterable[float]]) -> dict[K, float]:
    """The median of each contender's samples."""
    return {name: statistics.median(samples) for name, samples in found.items()}


def least(found: Mapping[K, Iterable[float]]) -> dict[K, float]:
    """The least of each contender's samples; infinite without any."""
    return {name: min(samples, default=math.inf) for name, samples in found.items()}


def median_ratio(one: Iterable[float], other: Iterable[float]) -> float:
    """The median over rounds of one / other."""
    return statistics.median(a / b for a, b in zip(one, other))


# ---------------------------------------------------------------------- where


def last_core() -> int:
    """The last core that this process may use, which is the least busy on most machines."""
    return max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


def is_loose() -> bool:
    """Whether this process is to run as anybody's does: :func:`pin` does nothing then."""
    return os.environ.get(WAY) == "loose"


def loosen() -> None:
    """Run on as anybody's process does, and let those that are started do so."""
    os.environ[WAY] = "loose"


def one_thread() -> dict[str, str]:
    """For the environment of a contender's process: one thread, unless this one is loose."""
    return {} if is_loose() else ONE_THREAD


def pin(core: int | None = None) -> int:
    """Keep this process and those it starts on one core, by default the last; returns it."""
    core = last_core() if core is None else core
    if hasattr(os, "sched_setaffinity") and not is_loose():
        os.sched_setaffinity(0, {core})
    return core


def both_ways(script: str, *arguments: str) -> dict[str, Any]:
    """What a script says on one core with one thread ("pinned"), and as anybody runs it ("loose").

    Each in a process of its own, since libraries decide about threads when they are loaded. The
    script prints JSON as its last line. Ratios to other code are told both ways: threads that spin
    beside the work cost nothing on one core.
    """
    free = {k: v for k, v in os.environ.items() if k not in ONE_THREAD}
    ways = {
        "pinned": ({**os.environ, **ONE_THREAD, WAY: "pinned"}, {last_core()}),
        "loose": ({**free, WAY: "loose"}, None),
    }
    found = {}
    for name, (environment, cores) in ways.items():
        command = [sys.executable, script, *arguments]
        if cores and hasattr(os, "sched_setaffinity"):
            command = [sys.executable, __file__, str(max(cores)), *command[1:]]
        shown = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        found[name] = json.loads(shown.stdout.decode().splitlines()[-1])
    return found


def in_both_ways(script: str, measured: Callable[[], Any]) -> dict[str, Any] | None:
    """For the main function of a script: what it measures, pinned and loose.

    Starts the script again, twice, with the same arguments. There this prints what was measured, as
    JSON, and returns None: the script is to end.
    """
    if WAY in os.environ:
        print(json.dumps(measured()), flush=True)
        return None
    return both_ways(script, *sys.argv[1:])


def peak() -> int:
    """The most memory that this process has held, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cpu_name() -> str:
    """What the processor calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def about(*packages: str, code: str | None = None) -> dict[str, Any]:
    """When and where something was measured: day, processor, Python, state of the code, versions.

    ``packages`` are those that count besides numpy and numba; ``code`` is the checkout's commit, or
    minfer's version where there is none, unless it is given.
    """
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": cpu_name(),
        "python": platform.python_version(),
        "code": commit() or f"minfer {_version('minfer')}" if code is None else code,
        "versions": {name: _version(name) for name in ("numpy", "numba", *packages)},
    }


def commit() -> str:
    """The commit of this checkout, with "+" where code differs from it; empty outside of one."""
    if not (ROOT / "pyproject.toml").exists():  # installed, perhaps inside somebody's repository
        return ""
    git = ["git", "-C", str(ROOT)]
    quiet: dict[str, Any] = {"text": True, "stderr": subprocess.DEVNULL}
    try:
        name = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], **quiet).strip()
        same = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "*.py"], check=False)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return name + "+" * (same.returncode != 0)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":  # a core, a script and its arguments: the script on that core
    pin(int(sys.argv[1]))
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
