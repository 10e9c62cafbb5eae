"""Exact inference on the UAI 2014 MAR problems against their reference answers.

    python benchmarks/uai_exact.py [--data DIR] [--max-gib 4] [--out table.md] [NAME ...]

Runs every model whose clique tree fits, the small ones first, and prints one Markdown row each:
log2 of the cells of the largest clique and of all cliques, wall and CPU seconds (second run of a
small model, so that compilation does not count), nanoseconds of CPU per cell, the largest error of
any marginal and the error of log10 Z. DIR as in places.py.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from minfer import Exact, RefusedError
from minfer.conditioning import condition
from minfer.elimination import CliqueTree, clique_tree
from minfer_experiments.measure import Stopwatch
from minfer_experiments.pages import line, table
from places import UAI, UaiModel, uai_models

PAGE = """# Exact inference on the UAI 2014 models

<!-- Made by `python benchmarks/uai_exact.py --out docs/uai_exact.md`; run it rather than edit. -->

`Exact(max_gib=4)` on the 44 models of the MAR task, evidence applied, against reference answers of
12 digits (so 5e-13 is their rounding). Times are of a warm second run on one core; the time to find
the elimination order is included. A refusal names its reason.

"""
HEAD = ["model", "variables", "largest clique", "all cliques", "s", "CPU s", "ns/cell", "max error"]
HEAD += ["log10 Z error"]


def row(model: UaiModel, tree: CliqueTree, solver: Exact) -> list[str]:
    graph = model.graph
    size = [model.name, f"{graph.n_variables}", f"2^{tree.largest:.1f}"]
    size.append(f"2^{math.log2(tree.cells):.1f}")
    for _ in range(2 if tree.cells < 1e8 else 1):
        try:
            with Stopwatch() as spent:
                answer = solver(graph)
        except RefusedError as error:
            return [*size, f"refused: {error}", *[""] * 4]
    error = abs(answer.probs - model.marginals).max()
    z_error = abs(answer.log_z / math.log(10) - model.log10_z)
    per_cell = spent.cpu / tree.cells * 1e9
    return [*size, f"{spent.wall:.3g}", f"{spent.cpu:.3g}", f"{per_cell:.1f}", f"{error:.0e}",
            f"{z_error:.0e}"]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--data", type=Path, default=UAI)
    parser.add_argument("--max-gib", type=float, default=4.0)
    parser.add_argument("--out")
    args = parser.parse_args()
    models = list(uai_models(args.data, args.names))
    trees = {model.name: clique_tree(condition(model.graph)) for model in models}
    rows: list[list[str]] = []
    print(table(HEAD, rows), flush=True)
    for model in sorted(models, key=lambda model: trees[model.name].cells):
        rows.append(row(model, trees[model.name], Exact(max_gib=args.max_gib)))
        print(line(rows[-1]), flush=True)
        if args.out:
            Path(args.out).write_text(f"{PAGE}{table(HEAD, rows)}\n")


if __name__ == "__main__":
    main()
