"""Mean errors of marginals where belief propagation is wrong, by model and method.

    python benchmarks/hard.py [--data DIR] [--seconds 1 10 60] [--models NAME ...]
                              [--grids 40 70 100] [--reference 300] [--write FILE.json]

The UAI 2014 models (DIR as in uai_bp.py) against their exact marginals, and square grids with
strong mixed couplings, fields N(0, 1/4) and couplings "equal" N(0, 4), against a long run of
tempering, whose own standard error is given. Exact inference is switched off above 2^16 cells.
An error is the mean over all states of all variables, at least 1e-4 in the means at the end.
Seconds are wall clock, without compiling. The last lines compare Auto(time_limit) with BP: the
geometric mean of the ratio of their errors where BP errs by more than .01, and the models where
Auto is worse by more than .005.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from minfer import (
    Auto,
    Clamped,
    FactorGraph,
    JoinGraph,
    Marginals,
    MinferError,
    StructuredMeanField,
    Tempering,
    read_uai,
)
from minfer.io import read_mar
from uai_bp import DATA, beside

CELLS = 2**16
FLOOR = 1e-4
UNBOUNDED = 1 << 40  # sweeps


def methods(seconds: float) -> dict[str, Callable[[FactorGraph], Marginals]]:
    """What is run in so many seconds; the first is belief propagation, damped where it must be."""
    return {
        "bp": Auto(exact_cells=CELLS),
        "structured mean field": StructuredMeanField(time_limit=seconds),
        "join graph 2^8": JoinGraph(2**8, time_limit=seconds),
        "clamped": Clamped(time_limit=seconds),
        "tempering": Tempering(UNBOUNDED, 2000, time_limit=seconds),
        "auto": Auto(time_limit=seconds, exact_cells=CELLS),
    }


def uai(data: Path, names: list[str]) -> Iterator[tuple[str, FactorGraph, np.ndarray, float]]:
    for path in sorted(data.glob("uai/*/*.uai.gz")):
        name = path.name.removesuffix(".uai.gz")
        if names and name not in names:
            continue
        graph = read_uai(path, evidence=beside(path, "evid"))
        yield name, graph, np.concatenate(read_mar(beside(path, "MAR"))), 0.0


def grids(
    sizes: list[int], reference: float
) -> Iterator[tuple[str, FactorGraph, np.ndarray, float]]:
    """Grids, a long run's marginals, and its mean standard error."""
    for n in sizes:
        rng = np.random.default_rng(n)
        where = np.arange(n * n).reshape(n, n)
        across = np.stack([where[:, :-1].ravel(), where[:, 1:].ravel()], axis=1)
        down = np.stack([where[:-1].ravel(), where[1:].ravel()], axis=1)
        edges = np.concatenate([across, down])
        graph = FactorGraph.pairwise(
            0.5 * rng.normal(size=n * n), edges, 2.0 * rng.normal(size=len(edges)), "equal"
        )
        long = Tempering(UNBOUNDED, 10_000, n_replicas=32, rng=1, time_limit=reference)(graph)
        chains = long.state.chain_probs
        error = float((chains.std(axis=0, ddof=1) / math.sqrt(len(chains))).mean())
        yield f"grid {n}x{n}", graph, long.probs, error


def measure(
    name: str, graph: FactorGraph, truth: np.ndarray, noise: float, seconds: list[float]
) -> dict:
    row: dict = {"name": name, "variables": graph.n_variables, "noise": noise, "errors": {}}
    for limit in seconds:
        for method, solver in methods(limit).items():
            key = method if method == "bp" else f"{method} {limit:g} s"
            if key in row["errors"]:
                continue
            try:
                answer = solver(graph)
            except MinferError as error:
                row["errors"][key] = None
                row.setdefault("refused", {})[key] = str(error)
                continue
            row["errors"][key] = float(np.abs(answer.probs - truth).mean())
            if method == "auto":
                row.setdefault("notes", {})[key] = answer.note
            if method == "bp" and answer.status.value == "exact":
                row["exact"] = True
                return row
    return row


def table(rows: list[dict]) -> list[str]:
    columns = list(dict.fromkeys(k for row in rows for k in row["errors"]))
    out = [f"| model | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for row in rows:
        cells = [row["errors"].get(k) for k in columns]
        text = " | ".join("–" if c is None else f"{c:.4f}" for c in cells)
        about = f" (reference ± {row['noise']:.3f})" if row["noise"] else ""
        out.append(f"| {row['name']}{about} | {text} |")
    return out


def summary(rows: list[dict]) -> list[str]:
    out = []
    for key in dict.fromkeys(k for row in rows for k in row["errors"] if k.startswith("auto")):
        pairs = [
            (row["name"], max(row["errors"]["bp"], FLOOR), max(row["errors"][key], FLOOR))
            for row in rows
            if row["errors"].get(key) is not None
        ]
        ratios = [bp / auto for _, bp, auto in pairs if bp > 0.01]
        worse = [name for name, bp, auto in pairs if auto > bp + 0.005]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            out.append(f"{key}: {mean:.1f} times below bp over the {len(ratios)} where it errs; "
                       f"worse by more than .005 on {', '.join(worse) or 'none'}")  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("MINFER_DATA", DATA)))
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 10.0, 60.0])
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--grids", type=int, nargs="*", default=[40, 70, 100])
    parser.add_argument("--reference", type=float, default=300.0, help="seconds of a long run")
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    warm = FactorGraph.grid(np.zeros((9, 9)) + 0.1, 1.0)
    for solver in methods(0.2).values():  # compile
        solver(warm)
    rows = []
    for case in (*uai(args.data, args.models), *grids(args.grids, args.reference)):
        rows.append(measure(*case, args.seconds))
        print("\n".join(table(rows[-1:])), flush=True)
    print("\n".join([*table([r for r in rows if not r.get("exact")]), *summary(rows)]))
    if args.write:
        args.write.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
