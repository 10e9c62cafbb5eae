"""``minfer predict``: a table of cases in, posteriors for every row out."""

from __future__ import annotations

import sys
from dataclasses import asdict

from minfer.cli.files import OUT, read_model
from minfer.cli.generate import Given, Words, command, option, output, taken
from minfer.cli.options import CASES, MISSING, MODEL, PROBABILITIES, SUMMARY
from minfer.cli.progress import Meter
from minfer.io.typed import listed


@command()
def predict(
    model: str = MODEL,
    cases: str = CASES,
    out: str = output("-o OUT  Answers: .csv, .tsv (.gz), .parquet; - is CSV.", "-", file=OUT),
    targets: Words = option("-t A,B  Variables to predict. Default: those without a column."),
    evidence: Words = option(
        "-e A,B  Columns to read. Default: all that are variables but not targets."
    ),
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
    """
    from minfer.cli import render
    from minfer.prediction import Predictor

    graph = read_model(model)
    ask = Predictor(
        graph, None if targets is None else listed(targets), keep=listed(keep),
        evidence=None if evidence is None else listed(evidence), missing=("", *(missing or ())),
        **answers, **how,
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
