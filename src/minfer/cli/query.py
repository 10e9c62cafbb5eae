"""``minfer query``: P(targets | evidence)."""

from __future__ import annotations

from typing import Any

from minfer.cli import render
from minfer.cli.generate import Words, argument, command, option
from minfer.cli.options import JSON, Input, rows_option
from minfer.cli.progress import wait_for
from minfer.io.typed import parse_query


@command()
def query(
    source: Input,
    targets: Words = argument("TARGETS  Variables; without any, all of them, one by one.", None),
    separate: bool = option("Each target separately, not their joint distribution."),
    json: bool = JSON,
    rows: int = rows_option("the most probable"),
) -> None:
    """The exact distribution of some variables given evidence.

    Several targets give a joint distribution, with a row for each combination of states. What
    cannot matter to them is removed first. States are shown by name if the model has names.

    \b
    Examples:
      minfer query alarm.minfer CVP -e HR=LOW,PAP=HIGH
      minfer query alarm.minfer CVP PCWP -e HR=LOW
      minfer query alarm.minfer CVP PCWP --separate --json
    """
    from minfer.queries.asked import ask
    from minfer.say.tables import marginal_table

    graph, seen = source.bare, source.seen
    chosen = parse_query(targets, graph, "TARGETS")
    asked = wait_for("asking", lambda: ask(graph, chosen, seen, separate))
    content = source.content(graph, asked.to_dict())
    found: Any = asked.found
    *others, last = [*asked.faces(rows)] or [marginal_table(found, None, rows)]
    for face in [] if json else others:
        render.face(render.console(), face)
        render.console().print()
    lines = source.summary(graph, asked.summary())
    render.tell(json, content, last, lines, hint="(--rows, --json)")
