"""``minfer learn``: the tables of a Bayesian network from a table of cases."""

from __future__ import annotations

from minfer.cli.failures import note
from minfer.cli.files import NET, read_model
from minfer.cli.generate import Words, command, option, output
from minfer.cli.options import CASES, JSON, MISSING, MODEL


@command
def learn(
    model: str = MODEL,
    cases: str = CASES,
    out: str = output("-o OUT  Model to write; the suffix sets the format.", ..., file=NET),
    prior: str = option(
        "uniform|bdeu|none  Pseudo-counts: --strength for each cell, for each table, or none.",
        "uniform",
    ),
    strength: float = option("X  Strength of the prior.", 1.0, min=0.0),
    start: str = option(
        "counts|random|structure  Where EM starts; structure: at the tables of MODEL.", "counts"
    ),
    restarts: int = option("N  Runs of EM; the best is kept.", 1, min=1),
    max_iters: int = option("N  Steps of EM.", 200, min=1),
    tol: float = option("X  EM stops when a step gains less than this share.", 1e-06, min=0.0),
    seed: int = option("N  Seed of random starts.", 0, min=0),
    missing: Words = MISSING,
    workers: int = option("N  Threads.", 1, min=1),
    json: bool = JSON,
) -> None:
    """Learn the tables of a Bayesian network from cases; its structure and states are kept.

    Columns named after variables are read; empty cells are missing. If cells are
    missing, or a variable has no column, the tables are found by EM.

    \b
    Examples:
      minfer learn alarm.bif cases.csv -o learned.bif
      minfer learn alarm.bif cases.parquet -o learned.bif --prior bdeu --strength 10
    """
    from minfer.cli import render
    from minfer.learn import BayesianNetwork

    graph = read_model(model)
    net = BayesianNetwork(
        graph, prior=prior, strength=strength, missing=("", *(missing or ())), start=start,
        restarts=restarts, max_iterations=max_iters, tol=tol, random_state=seed, workers=workers,
    ).fit(cases)  # fmt: skip
    net.save(out)
    if json:
        render.write_json({
            "model": model, "cases": cases, "out": out, "status": net.status_,
            "converged": net.converged_, "iterations": net.n_iter_, "objective": net.objective_,
            "log_likelihood": net.log_likelihood_, "advice": net.advice_,
        })  # fmt: skip
        return
    steps = "" if net.status_ == "counted" else f" after {net.n_iter_} steps of EM"
    note(f"{net.status_}{steps}; log-likelihood {net.log_likelihood_:.6g}; wrote {out}")
    if net.advice_:
        note(net.advice_)
