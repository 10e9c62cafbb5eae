"""What scoring a million factors costs: gains and residuals against one sweep of BP over them.

    python benchmarks/scan.py [--rounds 9] [--json F] [--check]

Two models of about 10^6 pairwise features: a grid of 708 x 708 pixels, and a random graph of 35,000
variables, whose memory accesses have no order. Timed in turn within a round, in CPU time on one
pinned core:

* one sequential sweep of belief propagation, its wiring made beforehand;
* the pass over all pairs that computes their gains, or their residual scores, from the seed's
  marginals, into an array made beforehand, as the sweep's are;
* the whole call ``factor_scores``, which also makes the array and marks the seed.

Ratios are medians over rounds of the ratio within a round. ``--check`` fails if a bar is missed:
the pass for gains at most twice the sweep, the one for residuals at most a third of that for gains.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from minfer import BeliefPropagation, FactorGraph
from minfer.conditioning import condition
from minfer.factors import Features
from minfer.reduction.gains import factor_scores
from minfer.solvers.propagation import Propagation
from minfer.wiring import wire
from minfer_experiments import pages
from minfer_experiments.measure import in_turn, median_ratio, medians, pin

LIMITS = {"gain / sweep": 2.0, "residual / gain": 1 / 3}


def models() -> dict[str, FactorGraph]:
    """Name -> model of about a million pairwise features."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 35_000, size=(1_000_000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    fields = 2 * rng.normal(size=35_000)
    return {
        "grid": FactorGraph.grid(2 * rng.normal(size=(708, 708)), 1.0),
        "random graph": FactorGraph.pairwise(fields, pairs, rng.normal(0, 0.5, len(pairs))),
    }


def runs(graph: FactorGraph) -> dict[str, Callable[[], Any]]:
    """What is timed: one sweep, the passes for gains and residuals, the whole calls."""
    seed = graph.arity <= 1
    marginals = BeliefPropagation()(graph.keep(seed))
    bp = Propagation(wire(condition(graph)), None, 0.0, 0.0, "sequential")
    residuals = np.zeros(1)
    pairs = next(g for g in graph.groups if isinstance(g, Features) and g.arity == 2)
    out, probs = np.zeros(len(pairs)), np.ascontiguousarray(marginals.probs)
    return {
        "sweep": lambda: bp._sweeps(1, residuals),
        "gain": lambda: pairs.scores(probs, graph._offsets, "gain", out),
        "residual": lambda: pairs.scores(probs, graph._offsets, "residual", out),
        "gain call": lambda: factor_scores(graph, marginals, seed),
        "residual call": lambda: factor_scores(graph, marginals, seed, "residual"),
    }


def measure(rounds: int = 9) -> dict[str, Any]:
    """CPU milliseconds and ratios for both models: {"rounds", "models"}."""
    found = {}
    for name, graph in models().items():
        times = in_turn(runs(graph), rounds)
        found[name] = {
            "factors": int((graph.arity == 2).sum()),
            "ms": {what: 1e3 * seconds for what, seconds in medians(times).items()},
            "gain / sweep": median_ratio(times["gain"], times["sweep"]),
            "residual / gain": median_ratio(times["residual"], times["gain"]),
        }
    return {"rounds": rounds, "models": found}


def missed(found: dict[str, Any]) -> list[str]:
    """The bars that the numbers miss, in words."""
    return [
        f"{name}: {what} is {row[what]:.2f}, more than {limit:.2f}"
        for name, row in found["models"].items()
        for what, limit in LIMITS.items()
        if row[what] > limit
    ]


def table(found: dict[str, Any]) -> str:
    body = []
    for name, row in found["models"].items():
        ms = {what: f"{seconds:.1f}" for what, seconds in row["ms"].items()}
        body.append([
            name, f"{row['factors']:,}", ms["sweep"], ms["gain"], ms["residual"],
            *(f"{row[what]:.2f}" for what in LIMITS), ms["gain call"], ms["residual call"],
        ])  # fmt: skip
    head = [
        "model", "features", "sweep ms", "gains ms", "residuals ms", "gains / sweep",
        "residuals / gains", "call for gains ms", "call for residuals ms",
    ]  # fmt: skip
    return pages.table(head, body)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed")
    args = parser.parse_args()
    pin()
    found = measure(args.rounds)
    print(table(found))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    bars = missed(found)
    print("\n" + ("\n".join(bars) or "Every bar is met."))
    sys.exit(1 if args.check and bars else 0)


if __name__ == "__main__":
    main()
