"""``minfer sample``: exact samples of the posterior, as a table."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Annotated

import typer

from minfer.cli.failures import UsageError, note
from minfer.cli.files import check_inputs, check_writable, load_apart
from minfer.cli.options import Evidence, Model, Soft
from minfer.cli.progress import wait_for
from minfer.words import counted

if TYPE_CHECKING:
    from minfer.queries.samples import Samples


def sample(
    model: Model,
    n: Annotated[int, typer.Option("-n", min=0, metavar="N", help="How many samples.")] = 1000,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.csv",
            help="File to write; - is standard output; .gz compresses.",
        ),
    ] = "-",
    evidence: Evidence = None,
    soft: Soft = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="The same seed gives the same samples.")
    ] = 0,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="Indices of states instead of their names.")
    ] = False,
) -> None:
    """Independent, exact samples of all variables given evidence, as CSV.

    \b
    Examples:
      minfer sample alarm.minfer -n 1000 -o cases.csv
      minfer sample alarm.minfer -n 10 -e HR=LOW --seed 7
    """
    import minfer
    from minfer.io.text import write_bytes

    check_inputs(model, evidence)
    if out != "-":
        if not out.lower().removesuffix(".gz").endswith(".csv"):
            raise UsageError(f"cannot write {out}: end the name in .csv or .csv.gz")
        check_writable(out, [model, *(evidence or ())])
    graph, seen, _ = load_apart(model, evidence, soft)
    drawn = wait_for("drawing", lambda: minfer.sample(graph, n, seen, seed=seed))
    write_bytes(out, _csv(drawn, numbers).encode())
    if out != "-":
        note(f"wrote {out}, {counted(n, 'sample')} of {counted(graph.n_variables, 'variable')}")


def _csv(drawn: Samples, numbers: bool) -> str:
    import numpy as np

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(drawn.variables)
    if numbers:
        writer.writerows(np.asarray(drawn).tolist())
    else:
        columns = drawn.to_dict()
        writer.writerows(zip(*columns.values()))
    return text.getvalue()
