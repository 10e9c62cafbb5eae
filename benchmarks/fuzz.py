"""Feed broken files to every reader: ``python benchmarks/fuzz.py --n 100000 --rng 0``.

Passes if only typed errors escape, no file takes longer than 2 s, and memory stays small. A failure
prints the case, which ``fuzzing.case(rng, number)`` makes again.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import fuzzing

MAX_GROWTH_MIB = 512


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(n: int, rng: int, first: int = 0) -> int:
    """Number of failures among ``n`` cases."""
    outcomes: Counter[str] = Counter()
    failures, slowest, before, begin = 0, (0.0, -1), peak_mib(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, first + n):
            faulthandler.dump_traceback_later(60, exit=True)
            broken = fuzzing.case(rng, number)
            try:
                outcome, seconds = fuzzing.check(broken, Path(folder))
            except Exception:
                failures += 1
                print(f"case {rng}/{number}: {broken.kind} {broken.data[:300]!r}", file=sys.stderr)
                traceback.print_exc(limit=-4)
                continue
            outcomes[f"{broken.kind}: {outcome}"] += 1
            slowest = max(slowest, (seconds, number))
            if seconds > fuzzing.LIMIT_SECONDS:
                failures += 1
                print(f"case {rng}/{number}: took {seconds:.1f} s", file=sys.stderr)
    faulthandler.cancel_dump_traceback_later()
    growth = peak_mib() - before
    if growth > MAX_GROWTH_MIB:
        failures += 1
        print(f"memory grew by {growth:.0f} MiB", file=sys.stderr)
    report = {
        "cases": n,
        "rng": rng,
        "failures": failures,
        "seconds": round(time.perf_counter() - begin, 1),
        "slowest_ms": round(slowest[0] * 1e3, 1),
        "slowest_case": slowest[1],
        "memory_growth_mib": round(growth, 1),
        "outcomes": dict(sorted(outcomes.items())),
    }
    print(json.dumps(report, indent=2))
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=100_000, help="number of broken files")
    parser.add_argument("--rng", type=int, default=0, help="which stream of them")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    options = parser.parse_args()
    sys.exit(run(options.n, options.rng, options.first) > 0)


if __name__ == "__main__":
    main()
