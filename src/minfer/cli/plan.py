"""``minfer plan``: what each solver would cost, before paying for it."""

from __future__ import annotations

from minfer.cli import render
from minfer.cli.generate import command
from minfer.cli.options import JSON, Input
from minfer.cli.progress import wait_for


@command()
def plan(source: Input, json: bool = JSON) -> None:
    """Size of a model, what each solver would cost on it, and which one to use.

    \b
    Example:
      minfer plan grid.uai --evidence x3=1
    """
    from minfer.solvers.planning import plan as make_plan

    graph = source.graph
    made = wait_for("planning", lambda: make_plan(graph))
    content = source.content(graph, {"plan": made.to_dict()})
    render.tell(json, content, made.face(), {"file": source.model})
