"""How far loopy BP is off on the UAI 2014 models: one row per family, or one per model.

    python benchmarks/uai_bp.py [--data DIR] [--models] [--write docs/uai.md]

DIR as in places.py. Errors are against the exact marginals (all states of all variables) and
log10 Z.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from pathlib import Path

import numpy as np

from minfer import BeliefPropagation
from minfer_experiments.pages import table
from places import UAI, UaiModel, uai_models


def measure(model: UaiModel) -> dict:
    graph = model.graph
    answer = BeliefPropagation(time_limit=60)(graph)
    note = ""
    if not answer.converged:
        damped = BeliefPropagation(damping=0.5, time_limit=60)(graph)
        if damped.converged or damped.residuals[-1] < answer.residuals[-1]:
            answer, note = damped, "damped"
    error = np.abs(answer.probs - model.marginals)
    return {
        "family": model.family,
        "name": model.name,
        "variables": graph.n_variables,
        "converged": answer.converged,
        "note": note,
        "iterations": answer.iterations,
        "seconds": answer.timings["iterate"],
        "mean": float(error.mean()),
        "max": float(error.max()),
        "log10_z": abs(answer.log_z / math.log(10) - model.log10_z),
    }


def family_table(rows: list[dict]) -> str:
    by_family = defaultdict(list)
    for row in rows:
        by_family[row["family"]].append(row)
    body = [
        [family, f"{len(group)}", f"{sum(r['converged'] for r in group)}",
         f"{sum(r['note'] == 'damped' for r in group)}",
         f"{np.mean([r['mean'] for r in group]):.2g}", f"{max(r['max'] for r in group):.2g}",
         f"{max(r['log10_z'] for r in group):.2g}", f"{sum(r['seconds'] for r in group):.2g}"]
        for family, group in sorted(by_family.items())
    ]  # fmt: skip
    head = ["family", "models", "converged", "with damping 0.5", "mean error", "largest error"]
    return table([*head, "largest error of log10 Z", "seconds"], body)


def model_table(rows: list[dict]) -> str:
    body = []
    for r in rows:
        status = "converged" if r["converged"] else "not converged"
        status += f" ({r['note']})" if r["note"] else ""
        numbers = (f"{r[k]:.2g}" for k in ("mean", "max", "log10_z", "seconds"))
        body.append([r["name"], f"{r['variables']}", status, f"{r['iterations']}", *numbers])
    head = ["model", "variables", "status", "iterations", "mean error", "largest error"]
    return table([*head, "error of log10 Z", "seconds"], body)


PAGE = """# Loopy BP on the UAI 2014 models

<!-- Made by benchmarks/uai_bp.py; run it again rather than edit this page. -->

`BeliefPropagation()` with its default settings on the 44 models of the MAR task of the UAI 2014
competition, evidence applied; where it does not converge, once more with `damping=0.5`, and the
answer whose messages moved less at the end counts. Errors are against the exact marginals, over all
states of all variables. BP is an approximation: on the strongly coupled Grids it does not converge,
and on DBN and Segmentation it converges to one of several fixed points, which can be the wrong one;
`status` cannot tell. `minfer run` solves 40 of the 44 exactly by default.
Use `Exact` where `minfer plan` says that it fits.

## By family

{families}

## Every model

{models}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=UAI)
    parser.add_argument("--write", type=Path, help="write the page here")
    parser.add_argument("--models", action="store_true", help="one row per model")
    arguments = parser.parse_args()
    rows = [measure(model) for model in uai_models(arguments.data)]
    print(model_table(rows) if arguments.models else family_table(rows))
    if arguments.write:
        families, models = family_table(rows), model_table(rows)
        arguments.write.write_text(PAGE.format(families=families, models=models))


if __name__ == "__main__":
    main()
