"""``minfer learn``: the tables of a Bayesian network from a table of cases."""

from __future__ import annotations

from minfer.cli import render
from minfer.cli.failures import note
from minfer.cli.files import NET, read_model, wrote
from minfer.cli.generate import Given, Words, command, output, taken
from minfer.cli.options import CASES, JSON, MISSING, MODEL
from minfer.errors import ModelError


@command()
def learn(
    model: str = MODEL,
    cases: str = CASES,
    out: str = output("-o OUT  Model to write; the suffix sets the format.", ..., file=NET),
    missing: Words = MISSING,
    json: bool = JSON,
    settings: Given = taken(
        "minfer.learn:BayesianNetwork",
        "prior strength start restarts tol workers",
        max_iterations="--max-iters N",
        random_state="--seed N",
    ),
) -> None:
    """Learn the tables of a Bayesian network from cases; its structure and states are kept.

    Columns named after variables are read; empty cells are missing. If cells are
    missing, or a variable has no column, the tables are found by EM.

    \b
    Examples:
      minfer learn alarm.bif cases.csv -o learned.bif
      minfer learn alarm.bif cases.parquet -o learned.bif --prior bdeu --strength 10
    """
    from minfer.learn import BayesianNetwork

    graph = read_model(model)
    if not graph.directed:
        raise ModelError(f"{model}: this is not a Bayesian network")
    net = BayesianNetwork(graph, missing=("", *(missing or ())), **settings).fit(cases)
    net.save(out)
    if json:
        render.write_json({
            "model": model, "cases": cases, "out": out, "status": net.status_,
            "converged": net.converged_, "iterations": net.n_iter_, "objective": net.objective_,
            "log_likelihood": net.log_likelihood_, "advice": net.advice_,
        })  # fmt: skip
        return
    steps = "" if net.status_ == "counted" else f" after {net.n_iter_} steps of EM"
    note(f"{net.status_}{steps}; log-likelihood {net.log_likelihood_:.6g}")
    wrote(out)
    if net.advice_:
        note(net.advice_)
