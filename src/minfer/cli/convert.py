"""``minfer convert``: a model from one format to another."""

from __future__ import annotations

from typing import Annotated

import typer

from minfer.cli.failures import note
from minfer.cli.files import check_inputs, check_writable, load
from minfer.cli.options import Evidence, Model, Soft


def convert(
    model: Model,
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="File to write; the suffix sets the format, - is standard output."
        ),
    ],
    evidence: Evidence = None,
    soft: Soft = None,
) -> None:
    """Convert a model to another format, including its evidence if there is any.

    Reads .uai, .fg, .minfer and, for Bayesian networks, .bif, .xmlbif (.bifxml, .xml), .net and
    .xdsl, each also as .gz; writes all but .xdsl. Bayesian network files cannot hold evidence.

    \b
    Examples:
      minfer convert grid.fg grid.uai
      minfer convert alarm.bif alarm.net
      minfer convert grid.uai.gz observed.uai --evidence grid.uai.evid
    """
    import minfer

    check_inputs(model, evidence)
    if target != "-":
        check_writable(target, [model, *(evidence or ())])
    graph, _ = load(model, evidence, soft)
    minfer.write(graph, target)  # in this thread, where an interrupt removes a half-written file
    if target != "-":
        note(f"wrote {target}")
