"""``minfer learn``: the tables of a Bayesian network from a table of cases."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from minfer.cli.failures import note
from minfer.cli.files import check_writable, read_model
from minfer.cli.options import OUTPUT_PANEL, Json, Missing, Model


def learn(
    model: Model,
    cases: Annotated[
        str,
        typer.Argument(
            metavar="CASES", help="Table of cases: .csv, .tsv (.gz), .parquet; - is CSV."
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="OUT",
            help="Model to write; the suffix sets the format.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ],
    prior: Annotated[
        str,
        typer.Option(
            metavar="uniform|bdeu|none",
            help="Pseudo-counts: --strength for each cell, for each table, or none.",
        ),
    ] = "uniform",
    strength: Annotated[
        float, typer.Option(min=0.0, metavar="X", help="Strength of the prior.")
    ] = 1.0,
    start: Annotated[
        str,
        typer.Option(
            metavar="counts|random|structure",
            help="Where EM starts; structure: at the tables of MODEL.",
        ),
    ] = "counts",
    restarts: Annotated[
        int, typer.Option(min=1, metavar="N", help="Runs of EM; the best is kept.")
    ] = 1,
    max_iters: Annotated[int, typer.Option(min=1, metavar="N", help="Steps of EM.")] = 200,
    tol: Annotated[
        float,
        typer.Option(min=0.0, metavar="X", help="EM stops when a step gains less than this share."),
    ] = 1e-6,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of random starts.")] = 0,
    missing: Missing = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Threads.")] = 1,
    json: Json = False,
) -> None:
    """Learn the tables of a Bayesian network from cases; its structure and states are kept.

    Columns that are called like variables are read, empty cells are missing. With
    cells missing, or variables without a column, the tables are found by EM.

    \b
    Examples:
      minfer learn alarm.bif cases.csv -o learned.bif
      minfer learn alarm.bif cases.parquet -o learned.bif --prior bdeu --strength 10
    """
    from minfer.learn import BayesianNetwork

    check_writable(out, [model, cases])
    graph = read_model(model)
    net = BayesianNetwork(
        graph, prior=prior, strength=strength, missing=("", *(missing or ())), start=start,
        restarts=restarts, max_iterations=max_iters, tol=tol, random_state=seed, workers=workers,
    ).fit(cases)  # fmt: skip
    net.save(out)
    if json:
        from minfer.cli import render

        facts = {
            "model": model, "cases": cases, "out": out, "status": net.status_,
            "converged": net.converged_, "iterations": net.n_iter_, "objective": net.objective_,
            "log_likelihood": net.log_likelihood_, "advice": net.advice_,
        }  # fmt: skip
        sys.stdout.write(render.to_json(facts) + "\n")
        return
    steps = "" if net.status_ == "counted" else f" after {net.n_iter_} steps of EM"
    note(f"{net.status_}{steps}; log-likelihood {net.log_likelihood_:.6g}; wrote {out}")
    if net.advice_:
        note(net.advice_)
