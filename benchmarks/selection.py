"""What choosing the factors costs, on a million gains: selection against sorting.

    python benchmarks/selection.py [--n 1000000] [--rounds 9] [--json F]

The gains are exponential draws, 10 % of them zero and 1 % infinite. MinSize drops 10 to 99.9 % of
the finite ones, MinDivergence keeps 10 to half a million, MinJoint splits them in half. Beside each
run, in turn within a round and in CPU time on one pinned core:

* the paper's way, ``paper_order=True``: a stable argsort, ties by factor number;
* a bare ``np.argsort``, the least that the paper's way could cost;
* a bare ``np.sort`` of the values, which does not yet say which factors to keep;
* for MinJoint, the bare comparison ``gains >= c`` and ``gains.sum()``.

Ratios are medians over rounds of the ratio within a round. `--check` fails if a bar is missed:
at most 1/3 of either argsort, never slower than the sort.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from minfer import MinDivergence, MinJoint, MinSize
from minfer_experiments import pages
from minfer_experiments.measure import in_turn, median_ratio, medians, pin, sample

DROP = (0.1, 0.5, 0.9, 0.999)
KEEP = (10, 1000, 100_000, 500_000)


def draw(n: int) -> np.ndarray:
    """Gains (n,): exponential, 10 % zero, 1 % infinite."""
    rng = np.random.default_rng(0)
    gains = rng.exponential(size=n)
    gains[rng.random(n) < 0.1] = 0.0
    gains[rng.random(n) < 0.01] = np.inf
    return gains


def cases(gains: np.ndarray) -> dict[str, dict[str, Callable[[], Any]]]:
    """Name of a case -> what is timed in turn; "minfer" is ours."""
    ordered = np.sort(gains[np.isfinite(gains)])
    total = np.cumsum(ordered)
    out: dict[str, dict[str, Callable[[], Any]]] = {}
    sorts: dict[str, Callable[[], Any]] = {
        "argsort": lambda: np.argsort(gains),
        "sort": lambda: np.sort(gains),
    }
    for share in DROP:
        k = int(share * len(ordered))
        size = MinSize(float(total[k - 1] + total[k]) / 2)
        out[f"MinSize, drops {share:.1%}"] = {
            "minfer": lambda o=size: o(gains),  # type: ignore[misc]
            "paper": lambda o=size: o(gains, paper_order=True),  # type: ignore[misc]
            **sorts,
        }
    for m in KEEP:
        if m > len(ordered):
            continue
        least = MinDivergence(m)
        out[f"MinDivergence, keeps {m:,}"] = {
            "minfer": lambda o=least: o(gains),  # type: ignore[misc]
            "paper": lambda o=least: o(gains, paper_order=True),  # type: ignore[misc]
            **sorts,
        }
    middle = float(np.median(ordered))
    out["MinJoint, keeps half"] = {
        "minfer": lambda: MinJoint(middle)(gains),
        "comparison": lambda: gains >= middle,
        "sum": lambda: gains.sum(),
        **sorts,
    }
    return out


def measure(n: int = 1_000_000, rounds: int = 9) -> dict[str, Any]:
    """CPU milliseconds and ratios to minfer's time of every case: {"n", "rounds", "cases"}."""
    found = {name: _turns(runs, rounds) for name, runs in cases(draw(n)).items()}
    return {"n": n, "rounds": rounds, "numpy": np.__version__, "cases": found}


def _turns(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    times = in_turn(runs, rounds, timer=sample)
    ours = times["minfer"]
    return {
        "ms": {name: 1e3 * seconds for name, seconds in medians(times).items()},
        "ratio": {name: median_ratio(ours, x) for name, x in times.items() if x is not ours},
    }


def missed(found: dict[str, Any]) -> list[str]:
    """The bars that the numbers miss, in words."""
    limits = {"paper": 1 / 3, "argsort": 1 / 3, "sort": 1.0, "comparison": 1.2}
    return [
        f"{name}: {ratio:.2f} of the time of {other}, more than {limits[other]:.2f}"
        for name, case in found["cases"].items()
        for other, ratio in case["ratio"].items()
        if other in limits and ratio > limits[other]
    ]


def table(found: dict[str, Any]) -> str:
    columns = ["paper", "argsort", "sort", "comparison", "sum"]
    body = []
    for name, case in found["cases"].items():
        cells = [f"{case['ratio'][c]:.2f}" if c in case["ratio"] else "" for c in columns]
        body.append([name, f"{case['ms']['minfer']:.2f}", *cells])
    head = ["CPU time of minfer", "ms", "of the paper's order", "of np.argsort", "of np.sort"]
    return pages.table([*head, "of gains >= c", "of gains.sum()"], body)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed")
    args = parser.parse_args()
    pin()
    found = measure(args.n, args.rounds)
    print(table(found))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    bars = missed(found)
    print("\n" + ("\n".join(bars) or "Every bar is met."))
    sys.exit(1 if args.check and bars else 0)


if __name__ == "__main__":
    main()
