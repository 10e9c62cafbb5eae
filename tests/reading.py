"""Many bad files, in a process of its own: ``python tests/reading.py crafted 300``.

What is accepted goes through the kernels, where a wrong index would end it. It may take 2 GiB more
than it has when it begins. It prints what happened to how many, and on stderr each case before
it is read: the last one there is the one that failed, hung or ended the process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import ModuleType

import crafting
import fuzzing
import mutating

HANGS_AFTER = 120.0


def read_many(
    kind: ModuleType, n: int, folder: Path, limit: float, alone: bool = False
) -> Counter[str]:
    """Cases of ``fuzzing``, ``crafting`` or ``mutating``, each within ``limit`` seconds of CPU."""
    outcomes: Counter[str] = Counter()
    for number in range(n):
        case = kind.case(1, number, *([folder] if kind is crafting else []))
        at = f"{kind.__name__}.case(1, {number}): {case.kind} {case.data[:200]!r}"
        if alone:
            print(at, file=sys.stderr, flush=True)
            faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
        try:
            outcome, took = kind.check(case, folder)
        except BaseException as error:
            error.add_note(at)
            raise
        assert took < limit, f"{at} took {took:.1f} s"
        outcomes[f"{case.kind}: {outcome}"] += 1
    return outcomes


def main() -> None:
    kind = {"broken": fuzzing, "crafted": crafting, "mutated": mutating}[sys.argv[1]]
    faulthandler.enable()
    for k in range(len(fuzzing.SOLVERS)):  # compiles or loads what the cases need
        fuzzing.answered(fuzzing.model(), k)
    with tempfile.TemporaryDirectory() as name:
        for case in kind.honest(*([Path(name)] if kind is crafting else [])):
            assert kind.check(case, Path(name))[0] == "accepted", case.kind
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (taken + (2 << 30),) * 2)
        print(json.dumps(read_many(kind, int(sys.argv[2]), Path(name), 5.0, alone=True)))


if __name__ == "__main__":
    main()
