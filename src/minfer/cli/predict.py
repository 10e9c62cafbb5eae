"""``minfer predict``: a table of cases in, posteriors for every row out."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Annotated, Any, Optional

import typer

from minfer.cli.failures import UsageError
from minfer.cli.files import read_model
from minfer.cli.options import OUTPUT_PANEL, Json, Missing, Model, Probabilities, targets_option
from minfer.typed import listed

_SECONDS = 10.0  # between two lines of progress where there is no terminal


def predict(
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
            help="Answers: .csv, .tsv (.gz), .parquet; - is CSV.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = "-",
    targets: Annotated[
        Optional[list[str]],  # noqa: UP045
        targets_option("Variables to predict. Default: those without a column."),
    ] = None,
    evidence: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--evidence",
            "-e",
            metavar="A,B",
            help="Columns to read. Default: all that are variables but not targets.",
        ),
    ] = None,
    keep: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            metavar="ID,...", help="Columns to copy to the answers.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = None,
    unknown: Annotated[
        str,
        typer.Option(
            metavar="raise|skip|mark",
            help="Rows with an unknown state: stop, leave out, or mark in the answer.",
        ),
    ] = "raise",
    missing: Missing = None,
    probabilities: Probabilities = True,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, metavar="N", help="Threads. Default: one per core."),
    ] = None,
    json: Json = False,
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
    from minfer.prediction import Predictor

    if model == "-" and cases == "-":
        raise UsageError("only one of model and cases can be standard input (-)")
    if json and out == "-":
        raise UsageError("--json goes to standard output: name a file for the answers with -o")
    if unknown not in ("raise", "skip", "mark"):
        raise UsageError(f"--unknown must be raise, skip or mark, not {unknown}")
    graph = read_model(model)
    ask = Predictor(
        graph, _if_given(targets), evidence=_if_given(evidence), keep=listed(keep),
        on_unknown=unknown, probabilities=probabilities, missing=("", *(missing or ())),
        workers=workers,
    )  # fmt: skip
    meter = _Meter()
    # in this thread, where an interrupt removes a half-written file
    summary = ask.file(cases, out, report=meter)
    meter.end()
    if json:
        from minfer.cli import render

        rate = summary.rows / summary.seconds if summary.seconds else 0.0
        facts: dict[str, Any] = {"model": model, "cases": cases, **asdict(summary)}
        sys.stdout.write(render.to_json({**facts, "rows_per_second": rate}) + "\n")
    else:
        sys.stderr.write(f"minfer: {summary}\n")


def _if_given(texts: list[str] | None) -> list[str] | None:
    return None if texts is None else listed(texts)


class _Meter:
    """Rows so far on stderr: a line that changes on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self.live, self.began = sys.stderr.isatty(), time.perf_counter()
        self.last = self.began
        self.shown = False

    def __call__(self, rows: int) -> None:
        now = time.perf_counter()
        if now - self.last < (0.2 if self.live else _SECONDS):
            return
        self.last, self.shown = now, True
        text = f"{rows:,} rows; {rows / (now - self.began):,.0f} a second"
        sys.stderr.write(f"\r\x1b[K{text}" if self.live else f"minfer: {text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        if self.live and self.shown:
            sys.stderr.write("\n")
