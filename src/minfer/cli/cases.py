"""Commands that read tables of cases."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from minfer.cli import render
from minfer.cli.failures import note
from minfer.cli.files import NET, OUT, PICTURE, read_model, written, wrote
from minfer.cli.generate import Given, Words, argument, command, option, output, taken
from minfer.cli.options import CASES, JSON, MISSING, MODEL, PROBABILITIES, SUMMARY
from minfer.cli.progress import Meter
from minfer.errors import ModelError, SettingsError
from minfer.io.typed import do_of, listed, numbers
from minfer.model.states import bin_names


@command()
def predict(
    model: str = MODEL,
    cases: str = CASES,
    out: str = output("-o OUT  Answers: .csv, .tsv (.gz), .parquet; - is CSV.", "-", file=OUT),
    targets: Words = option("-t A,B  Variables to predict. Default: those without a column."),
    evidence: Words = option(
        "-e A,B  Columns to read. Default: all that are variables but not targets."
    ),
    do: Words = option("x4=1  Set variables in every row, whatever their parents say."),
    keep: Words = output("ID,...  Columns to copy to the answers."),
    missing: Words = MISSING,
    answers: Given = PROBABILITIES,
    how: Given = taken("minfer:predict", "workers", on_unknown="--unknown"),
    json: bool = SUMMARY,
) -> None:
    """Exact posteriors for every row of a table of cases.

    Columns named after variables are evidence, with states by name or index;
    empty cells are not observed. Files may be larger than memory. Rows that are
    impossible under the model are marked, and counted at the end.

    \b
    Examples:
      minfer predict asia.minfer cases.csv -o answers.csv --targets lung,bronc
      minfer predict asia.minfer cases.parquet -o answers.parquet --keep id --unknown mark
      minfer predict asia.minfer cases.csv -t lung --no-probabilities
      minfer predict asia.minfer cases.csv -t bronc -e lung --do smoke=no
    """
    from minfer.prediction import Predictor

    graph = read_model(model)
    ask = Predictor(
        graph, None if targets is None else listed(targets), keep=listed(keep),
        evidence=None if evidence is None else listed(evidence), do=do_of(graph, do),
        missing=("", *(missing or ())), **answers, **how,
    )  # fmt: skip
    with Meter() as meter:  # in this thread, where an interrupt removes a half-written file
        told = "{:,} rows; {} a second"
        summary = ask.file(cases, out, report=lambda n: meter(told.format(n, meter.rate(n))))
    if json:
        rate = summary.rows / summary.seconds if summary.seconds else 0.0
        about = {"model": model, "cases": cases, **asdict(summary), "rows_per_second": rate}
        render.write_json(about)
    else:
        sys.stderr.write(f"minfer: {summary}\n")


@command()
def evaluate(
    model: str = MODEL,
    cases: str = CASES,
    target: str = argument("TARGET  Variable whose column says what is true."),
    evidence: Words = option("-e A,B  Columns to read. Default: all other variables."),
    missing: Words = MISSING,
    plot: str | None = output("OUT.png  Share that is right against probability.", file=PICTURE),
    json: bool = JSON,
    how: Given = taken("minfer:evaluate", "workers bins"),
) -> None:
    """How good the posteriors of a variable are, over a table that has it.

    Accuracy, log-loss and Brier score, beside those of the states' shares alone,
    and how true the probability of the most probable state is.

    \b
    Examples:
      minfer evaluate asia.minfer cases.csv lung
      minfer evaluate asia.minfer cases.csv lung --plot calibration.png
    """
    from minfer import evaluate as asked

    found = asked(
        read_model(model), cases, target, missing=("", *(missing or ())),
        evidence=None if evidence is None else listed(evidence), **how,
    )  # fmt: skip
    written(plot, found.draw)
    table = found.calibration.face()._replace(conclusion="")
    render.tell(json, found.to_dict(), found.face(), more=[table])


@command()
def learn(
    model: str = MODEL,
    cases: str = CASES,
    out: str = output("-o OUT  Model to write; the suffix sets the format.", ..., file=NET),
    missing: Words = MISSING,
    bins: Words = option(
        "5|age=5|age=width:5|age=edges:18,65|age=supervised:CLASS  "
        "Put columns of numbers into bins, which become their states: all measurements, or a "
        "column for each --bins."
    ),
    compare: str | None = option(
        "--compare-bins 2,3,5,8  Learn with the number of bins that is best on held-out rows."
    ),
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
    missing, or a variable has no column, the tables are found by EM. Evidence on a
    variable in bins may be any number.

    \b
    Examples:
      minfer learn alarm.bif cases.csv -o learned.bif
      minfer learn alarm.bif cases.parquet -o learned.bif --prior bdeu --strength 10
      minfer learn health.bif health.csv -o learned.bif --bins age=5 --compare-bins 2,3,5,8
    """
    from minfer.learn import BayesianNetwork, compare_bins

    graph = read_model(model)
    if not graph.directed:
        raise ModelError(f"{model}: this is not a Bayesian network")
    settings |= {"missing": ("", *(missing or ())), "bins": None if bins is None else _bins(bins)}
    net, compared = BayesianNetwork(graph, **settings), None
    if compare is not None:
        compared = compare_bins(net, cases, [int(x) for x in numbers("--compare-bins", compare)])
        net.bins = compared.best_bins
        if not json:
            render.face(render.console(), compared.face())
    net.fit(cases)
    net.save(out)
    if json:
        render.write_json({
            "model": model, "cases": cases, "out": out, "status": net.status_,
            "converged": net.converged_, "iterations": net.n_iter_, "objective": net.objective_,
            "log_likelihood": net.log_likelihood_, "advice": net.advice_,
            "bins": net.bins_, "compared": None if compared is None else compared.to_dict(),
        })  # fmt: skip
        return
    steps = "" if net.status_ == "counted" else f" after {net.n_iter_} steps of EM"
    note(f"{net.status_}{steps}; log-likelihood {net.log_likelihood_:.6g}")
    for name, edges in net.bins_.items():
        note(f"{name}: {', '.join(bin_names(edges))}")
    wrote(out)
    if net.advice_:
        note(net.advice_)


def _bins(texts: list[str]) -> Any:
    """``--bins``: one rule for all measurements, or {column: rule}."""
    pairs = [text.rpartition("=") for text in texts]
    if not any(equals for _, equals, _ in pairs) and len(texts) == 1:
        return texts[0]
    if wrong := [text for text, (name, _, rule) in zip(texts, pairs) if not (name and rule)]:
        raise SettingsError(f"--bins: {wrong[0]!r} is not COLUMN=RULE, as in age=5")
    return {name: rule for name, _, rule in pairs}
