"""``minfer plan``: what each solver would cost, before paying for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from minfer.cli.files import check_inputs, load
from minfer.cli.options import Evidence, Model, Soft
from minfer.cli.progress import wait_for
from minfer.words import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from minfer.planning import Plan


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
        _report(render.console(), f"{model}: {render.describe(graph)}", made)


def _report(console: Console, model: str, made: Plan) -> None:
    from minfer.cli import render

    render.show(console, _estimates(made))
    console.print()
    lines = {
        "model": f"{model}; {counted(made.n_components, 'component')}",
        "width": _width(made),
        "use": f"--solver {made.recommendation}: {made.reason}",
    }
    render.show(console, render.facts({key: text for key, text in lines.items() if text}))


def _estimates(made: Plan) -> Table:
    from minfer.cli import render

    costs = ("time, about", "memory")
    table = render.empty_table("solver", *costs, "remark", right=costs)
    for one in made.estimates:
        if one.refuses:
            table.add_row(one.solver, "", "", f"refuses: {one.refuses}")
        else:
            cost = [render.duration(one.seconds), f"{one.memory / 2**20:,.1f} MiB"]
            table.add_row(one.solver, *cost, "")
    return table


def _width(made: Plan) -> str:
    if made.width is None:
        return ""
    least = "" if made.width_known else "at least "
    return f"{least}{made.width}; the largest clique has {least}2^{made.largest_clique:.1f} cells"
