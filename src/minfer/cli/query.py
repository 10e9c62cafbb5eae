"""``minfer query``: P(targets | evidence)."""

from __future__ import annotations

import math
from typing import Any

from minfer.cli.files import load
from minfer.cli.generate import Words, argument, command, flag
from minfer.cli.options import JSON, Input, rows_option
from minfer.cli.progress import wait_for
from minfer.notebook import Face, Right
from minfer.typed import evidence_text, parse_query, told_evidence
from minfer.words import probability


@command
def query(
    source: Input,
    targets: Words = argument("TARGETS  Variables; without any, all of them, one by one.", None),
    separate: bool = flag("Each target separately, not their joint distribution."),
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
    import minfer
    from minfer.cli import render

    given = load(source)
    graph, seen = given.bare, given.seen
    chosen = parse_query(targets, graph)
    joint = chosen is not None and len(chosen) > 1 and not separate

    def ask() -> tuple[Any, float]:
        """A joint, the distribution of each target, or of all variables; and log P(e)."""
        if joint:
            found: Any = minfer.query(graph, chosen, seen)
            return found, found.log_evidence
        some = range(min(1, graph.n_variables)) if chosen is None else chosen
        each: Any = {v: minfer.query(graph, v, seen) for v in some}  # log P(e): any will do
        log_evidence = next((p.log_evidence for p in each.values()), 0.0)
        return minfer.query(graph, None, seen) if chosen is None else each, log_evidence

    found, log_evidence = wait_for("asking", ask)
    if json:
        content = {
            "targets": [graph.name(v) for v in chosen or range(graph.n_variables)],
            "evidence": told_evidence(graph, seen),
            "log_evidence": log_evidence,
        }
        if joint:
            content["joint"] = found.to_dict()
        else:
            each = dict(enumerate(found)) if chosen is None else found
            content["marginals"] = {
                graph.name(v): dict(zip(graph.states(v), map(float, p))) for v, p in each.items()
            }
        given.show_json(graph, content)
        return
    to = render.console()
    if chosen is None:
        render.probabilities(to, found, None, rows)
    elif joint:
        render.face(to, found.face(rows))
        if found.table.size > rows:
            to.print(f"  and {found.table.size - rows:,} more, none larger (--rows, --json)")
        to.print()
    else:
        for v, p in found.items():
            cells = [(s, Right(probability(float(x)))) for s, x in zip(graph.states(v), p)]
            render.face(to, Face("", (graph.name(v), "probability"), cells))
            to.print()
    lines = render.summary(given, graph, {})
    if seen:
        lines["evidence"] = evidence_text(graph, seen)
        lines["log P(e)"] = f"{log_evidence:.8g}; P(e) = {math.exp(log_evidence):.6g}"
    render.show(to, render.facts(lines))
