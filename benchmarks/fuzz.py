"""Feed bad files to every reader: ``python benchmarks/fuzz.py --n 100000 --rng 0``.

So many files broken at random (``tests/fuzzing.py``), as many crafted ones with right checksums
(``tests/crafting.py``), and as many mutated tables, programs, records and learners
(``tests/mutating.py``), each read in a child process and, if it is accepted, put to use. Passes if
only typed errors escape, no answer is nonsense, no child dies, no file is read for longer than 5
seconds of the processor, and none takes more than 2 GiB beyond what the child has when it begins.
A failure prints the case, which ``case(rng, number)`` of these modules makes again. ``--bounds``
compiles the kernels anew, into a cache of its own, with a check at every index: a wrong one is then
seen even where it would have gone unnoticed.
``--readers bif,xmlbif,net,xdsl`` breaks files of these formats alone.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path

from minfer_experiments import measure

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

KINDS = ("broken", "crafted", "mutated")
MAX_GROWTH_MIB = 512
MORE_ADDRESSES = 2 << 30  # bytes that a child may ask for beyond what it has when it begins
LIMIT_SECONDS = 5.0
HANGS_AFTER = 120.0


def addresses() -> int:
    """Bytes of the address space of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_mib() -> float:
    return measure.peak() / 2**20


# ---------------------------------------------------------------------- the child


def child(kind: str, n: int, rng: int, first: int, readers: tuple[str, ...]) -> None:
    """Read the cases and say what happened, a line before and a line after each."""
    import crafting
    import fuzzing
    import mutating

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for k in range(len(fuzzing.SOLVERS)):  # compiles or loads what the cases need, untimed
            fuzzing.answered(fuzzing.model(), k)
        for case in crafting.honest(folder):
            outcome, _ = crafting.check(case, folder)
            if outcome != "accepted":
                raise SystemExit(f"the honest {case.kind} file is refused: {outcome}")
        for case in mutating.honest():
            outcome, _ = mutating.check(case, folder)
            if outcome != "accepted":
                raise SystemExit(f"the honest {case.kind} file is refused: {outcome}")
        before = peak_mib()
        most = addresses() + MORE_ADDRESSES  # kernels and libraries have many that they do not use
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        for number in range(first, first + n):
            faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
            print(f"begin {number}", flush=True)
            if kind == "crafted":
                case, check = crafting.case(rng, number, folder), crafting.check
            elif kind == "mutated":
                case, check = mutating.case(rng, number, readers), mutating.check
            else:
                case, check = fuzzing.case(rng, number, readers), fuzzing.check
            try:
                outcome, seconds = check(case, folder)
            except Exception as error:
                print(f"{kind} {rng}/{number}: {case.kind} {case.data[:200]!r}", file=sys.stderr)
                traceback.print_exc(limit=-5)
                outcome, seconds = f"FAILED {type(error).__name__}", 0.0
            line = {"kind": case.kind, "outcome": outcome, "seconds": round(seconds, 4)}
            print(json.dumps({**line, "growth": round(peak_mib() - before, 1)}), flush=True)
        faulthandler.cancel_dump_traceback_later()


# ---------------------------------------------------------------------- the parent


class Tally:
    """What happened so far."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.failures, self.slowest, self.growth = 0, (0.0, -1), 0.0
        self.number = -1

    def hear(self, text: str) -> None:
        """One line of a child."""
        word, _, rest = text.partition(" ")
        if word == "begin":
            self.number = int(rest)
            return
        line = json.loads(text)
        self.outcomes[f"{line['kind']}: {line['outcome']}"] += 1
        self.slowest = max(self.slowest, (line["seconds"], self.number))
        self.growth = max(self.growth, line["growth"])
        if line["outcome"].startswith("FAILED"):
            self.failures += 1
        elif line["seconds"] > LIMIT_SECONDS:
            self.fail(f"took {line['seconds']:.1f} s")

    def fail(self, what: str) -> None:
        self.failures += 1
        print(f"case {self.number}: {what}", file=sys.stderr)


def run(
    kind: str,
    n: int,
    rng: int,
    first: int = 0,
    bounds: bool = False,
    readers: tuple[str, ...] = (),
) -> dict:
    """All cases of one kind, in one child, and in another after one that died."""
    tally, spent, end = Tally(), measure.Stopwatch(), first + n
    environment = dict(os.environ)
    if bounds:
        environment["NUMBA_BOUNDSCHECK"] = "1"
        environment["MINFER_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / "minfer-bounds-checked")
    while first < end:
        command = [sys.executable, __file__, "--child", kind, "--n", str(end - first)]
        command += ["--rng", str(rng), "--first", str(first)]
        command += ["--readers", ",".join(readers)] if readers else []
        tally.number = first - 1
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            for text in process.stdout:
                tally.hear(text)
        if process.returncode == 0:
            break
        tally.fail(f"the process ended with {process.returncode}")
        if tally.number < first:
            break  # it did not even begin
        first = tally.number + 1
    if tally.growth > MAX_GROWTH_MIB:
        tally.fail(f"memory grew by {tally.growth:.0f} MiB")
    return {
        "what": kind,
        "cases": n,
        "rng": rng,
        "bounds_checked": bounds,
        "failures": tally.failures,
        "seconds": round(spent.wall, 1),
        "slowest_ms": round(tally.slowest[0] * 1e3, 1),
        "slowest_case": tally.slowest[1],
        "memory_growth_mib": tally.growth,
        "outcomes": dict(sorted(tally.outcomes.items())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=100_000, help="number of files of each kind")
    parser.add_argument("--rng", type=int, default=0, help="which stream of them")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--what", choices=KINDS, action="append", help="all by default")
    parser.add_argument("--bounds", action="store_true", help="check every index of the kernels")
    parser.add_argument("--readers", default="", help="broken files of these, as in bif,net,xdsl")
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    readers = tuple(name for name in options.readers.split(",") if name)
    if readers and not options.what:
        options.what = ["broken"]
    if options.child:
        child(options.child, options.n, options.rng, options.first, readers)
        return
    reports = [
        run(kind, options.n, options.rng, options.first, options.bounds, readers)
        for kind in options.what or KINDS
    ]
    print(json.dumps(reports, indent=2))
    sys.exit(any(report["failures"] for report in reports))


if __name__ == "__main__":
    main()
