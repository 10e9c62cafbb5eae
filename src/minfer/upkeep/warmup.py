"""What ``minfer warmup`` compiles ahead of a first run: every kernel that Python calls.

Those of a module are compiled in one go, for the types of all recorded calls of them
(:mod:`minfer.kernels.compiling.answers`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from minfer.basics.parallel import cores, ordered_map
from minfer.errors import SettingsError
from minfer.kernels.compiling import answers, cache
from minfer.kernels.compiling.jit import be_quiet

_KERNELS, _PARSER = "minfer.kernels.", "minfer.parsing.kernels."
_TOPICS = ("arithmetic", "best", "cliques", "learning", "messages", "sampling", "scores")
#: How the names of the modules of each part begin.
PARTS = {
    "solvers": tuple(f"{_KERNELS}{topic}." for topic in _TOPICS),
    "method": tuple(
        f"{_KERNELS}{topic}." for topic in _TOPICS if topic not in ("best", "learning")
    ),
    "intervals": tuple(
        f"{_KERNELS}{topic}" for topic in ("intervals.", "cliques.", "arithmetic.", "buckets.")
    ),
    "trees": (
        f"{_KERNELS}trees.",
        f"{_KERNELS}messages.",
        f"{_PARSER}decode",
        f"{_PARSER}grandparents",
    ),
    "circuits": (f"{_KERNELS}circuits.", f"{_KERNELS}arithmetic."),
    "time": (f"{_KERNELS}time.",),
    "parser": (_PARSER, f"{_KERNELS}scores.select"),
}


def homes(part: str | None = None) -> list[str]:
    """The modules of a part, or all; those with most calls, which mostly take longest, first."""
    if part is not None and part not in PARTS:
        raise SettingsError(f"there is no part {part!r}; choose from {', '.join(PARTS)}")
    recorded = answers.kept().items()
    calls = Counter(name.rpartition(".")[0] for name, known in recorded for _ in known)
    chosen = "minfer." if part is None else PARTS[part]
    return [module for module, _ in calls.most_common() if module.startswith(chosen)]


class Compiled(NamedTuple):
    """A module that is done, the ``number``-th ``of`` all of them."""

    number: int
    of: int
    title: str
    seconds: float
    unsaved: str  # why a kernel was not kept in the cache, if one was not
    asked: int  # kernels that were compiled, and asked what plain Python has answered
    wrong: str  # the first whose answer was wrong, if there is one

    def __str__(self) -> str:
        return f"{self.number:>2}/{self.of}  {self.title:<30}{self.seconds:6.1f} s"


def warmed_up(part: str | None = None, workers: int | None = None) -> Iterator[Compiled]:
    """Compile a part, one of :data:`PARTS`, or all, in so many processes, or one per core."""
    chosen = homes(part)
    workers = min(workers or cores(), len(chosen))
    done = ordered_map(compile_home, chosen, workers, in_flight=len(chosen))
    for k, (module, found) in enumerate(zip(chosen, done), 1):
        yield Compiled(k, len(chosen), module.removeprefix("minfer."), *found)


def compile_home(module: str) -> tuple[float, str, int, str]:
    """Compile the kernels of a module: seconds, and what else :class:`Compiled` tells."""
    be_quiet()
    began, before = time.perf_counter(), answers.ASKED[0]
    wrong = answers.compile_recorded(module)
    unsaved = cache.UNSAVED[0] if cache.UNSAVED else ""
    return time.perf_counter() - began, unsaved, answers.ASKED[0] - before, wrong
