"""How lean is it: peak memory of BP on a large grid, in bytes per directed message.

    python benchmarks/memory.py [--side 2048]

The peak resident set of a fresh process that builds the grid and runs BP, less the resident set
after kernels were loaded and the model (its arrays, counted) was built.
"""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path

import numpy as np

from minfer_experiments.measure import peak


def resident() -> int:
    """Resident bytes now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=2048)
    side = parser.parse_args().side
    from minfer import BeliefPropagation, FactorGraph

    rng = np.random.default_rng(0)
    solver = BeliefPropagation(max_iters=5)
    solver(FactorGraph.grid(rng.normal(size=(8, 8)), 1.0)).log_z  # kernels in memory  # noqa: B018
    log_odds = rng.normal(size=(side, side))
    before = resident()
    graph = FactorGraph.grid(log_odds, 1.0)
    model = resident() - before
    if peak() > resident() + (64 << 20):
        print(f"building the model peaked at {(peak() - before) / 2**20:.0f} MiB", file=sys.stderr)
    messages = 2 * 2 * side * (side - 1)
    loaded = resident()
    built = peak()
    answer = solver(graph)
    used = max(peak(), built) - loaded
    print(f"{side}x{side} grid, {messages:,} directed messages, {answer.iterations} sweeps")
    print(f"model                {model / 2**20:8.0f} MiB")
    print(f"peak beyond model    {used / 2**20:8.0f} MiB = {used / messages:.1f} bytes a message")
    if used / messages > 40:
        sys.exit("over the bar of 40 bytes a message")


if __name__ == "__main__":
    main()
