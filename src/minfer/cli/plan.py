"""``minfer plan``: what each solver would cost, before paying for it."""

from __future__ import annotations

from typing import Annotated

import typer

from minfer.cli.files import check_inputs, load
from minfer.cli.options import Evidence, Model, Soft
from minfer.cli.progress import wait_for


def plan(
    model: Model,
    evidence: Evidence = None,
    soft: Soft = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output.")
    ] = False,
) -> None:
    """Size of a model, what each solver would cost on it, and which one to use.

    \b
    Example:
      minfer plan grid.uai --evidence x3=1
    """
    from minfer.planning import plan as make_plan

    check_inputs(model, evidence)
    graph, _ = load(model, evidence, soft)
    made = wait_for("planning", lambda: make_plan(graph))
    from minfer.cli import render

    if json:
        info = {"file": model, **render.model_info(graph)}
        content = {"minfer": render.version(), "model": info, "plan": made.to_dict()}
        typer.echo(render.to_json(content))
    else:
        render.face(render.console(), made.face(), {"file": f"{model}: {render.describe(graph)}"})
