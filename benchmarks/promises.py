"""Try to refute what answers promise: ``python benchmarks/promises.py --n 100000``.

Draws models, solvers and starts, and holds converged, exact and the bounds on log Z against plain
sums (``tests/oracle/promises.py`` says how). A failure prints its number, which
``promises.check(number)`` makes again. Exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from minfer_experiments.measure import Stopwatch
from oracle import promises


def main() -> int:
    cli = argparse.ArgumentParser(description="drawn answers against plain sums")
    cli.add_argument("--n", type=int, default=2000, help="how many cases")
    cli.add_argument("--first", type=int, default=0, help="number of the first")
    asked = cli.parse_args()
    ends: Counter[str] = Counter()
    failures, spent = 0, Stopwatch()
    for number in range(asked.first, asked.first + asked.n):
        try:
            ends[promises.check(number)] += 1
        except Exception:
            failures += 1
            print(f"case {number}", file=sys.stderr)
            traceback.print_exc(limit=-3)
    for end, count in ends.most_common():
        print(f"{count:8,}  {end}")
    print(f"{failures:8,}  refuted, in {spent.wall:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
