"""Exact inference on the UAI 2014 MAR problems against their reference answers.

    python benchmarks/uai_exact.py [--data DIR] [--max-gib 4] [--out table.md] [NAME ...]

Runs every model whose clique tree fits, the small ones first, and prints one Markdown row each:
log2 of the cells of the largest clique and of all cliques, wall and CPU seconds (second run of a
small model, so that compilation does not count), nanoseconds of CPU per cell, the largest error of
any marginal and the error of log10 Z. DIR holds the families as folders and manifest.csv
(default: MINFER_DATA/uai, else shared/data/uai beside the project).
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import time
from pathlib import Path

import numpy as np

from minfer import Exact, FactorGraph, RefusedError
from minfer.conditioning import condition
from minfer.elimination import CliqueTree, clique_tree
from minfer.io.uai import read_mar, read_pr, read_uai

PAGE = """# Exact inference on the UAI 2014 models

<!-- Made by `python benchmarks/uai_exact.py --out docs/uai_exact.md`; run it rather than edit. -->

`Exact(max_gib=4)` on the 44 models of the MAR task, evidence applied, against reference answers of
12 digits (so 5e-13 is their rounding). Times are of a warm second run on one core; the time to find
the elimination order is included. A refusal names its reason.

"""
HEAD = (
    "| model | variables | largest clique | all cliques | s | CPU s | ns/cell "
    "| max error | log10 Z error |\n|---|---|---|---|---|---|---|---|---|"
)


def read_model(data: Path, name: str) -> tuple[FactorGraph, np.ndarray, float]:
    stem = data / name.rsplit("_", 1)[0] / f"{name}.uai"
    graph = read_uai(f"{stem}.gz", f"{stem}.evid.gz")
    return graph, np.concatenate(read_mar(f"{stem}.MAR.gz")), read_pr(f"{stem}.PR.gz")


def row(data: Path, name: str, tree: CliqueTree, solver: Exact) -> str:
    graph, marginals, log10_z = read_model(data, name)
    size = f"| {name} | {graph.n_variables} | 2^{tree.largest:.1f} | 2^{math.log2(tree.cells):.1f} "
    for _ in range(2 if tree.cells < 1e8 else 1):
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            answer = solver(graph)
        except RefusedError as error:
            return f"{size}| refused: {error} | | | | |"
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    error = abs(answer.probs - marginals).max()
    z_error = abs(answer.log_z / math.log(10) - log10_z)
    return (
        f"{size}| {wall:.3g} | {cpu:.3g} | {cpu / tree.cells * 1e9:.1f} "
        f"| {error:.0e} | {z_error:.0e} |"
    )


def main() -> None:
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument(
        "--data", default=str(Path(os.environ.get("MINFER_DATA") or beside) / "uai")
    )
    parser.add_argument("--max-gib", type=float, default=4.0)
    parser.add_argument("--out")
    args = parser.parse_args()
    data = Path(args.data)
    with open(data / "manifest.csv", newline="") as file:
        names = args.names or [r["name"] for r in csv.DictReader(file)]
    trees = {n: clique_tree(condition(read_model(data, n)[0])) for n in names}
    lines = [HEAD]
    print(HEAD, flush=True)
    for name in sorted(names, key=lambda n: trees[n].cells):
        lines.append(row(data, name, trees[name], Exact(max_gib=args.max_gib)))
        print(lines[-1], flush=True)
        if args.out:
            Path(args.out).write_text(PAGE + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
