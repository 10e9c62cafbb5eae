"""``minfer query``: P(targets | evidence)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import typer

from minfer.cli.files import check_inputs, load_apart, show_json
from minfer.cli.options import Evidence, Json, Model, Soft, rows_option
from minfer.cli.progress import wait_for
from minfer.typed import evidence_text, parse_query, told_evidence

if TYPE_CHECKING:
    from rich.table import Table

    from minfer.graph import FactorGraph
    from minfer.joint import Joint
    from minfer.solvers.base import Marginals


def query(
    model: Model,
    targets: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[TARGETS]...", help="Variables; without any, all of them, one by one."
        ),
    ] = None,
    evidence: Evidence = None,
    soft: Soft = None,
    separate: Annotated[
        bool,
        typer.Option("--separate", help="Each target separately, not their joint distribution."),
    ] = False,
    json: Json = False,
    rows: Annotated[int, rows_option("the most probable")] = 20,
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
    check_inputs(model, evidence)
    graph, seen, seconds = load_apart(model, evidence, soft)
    chosen = parse_query(targets, graph)
    asked = wait_for("asking", lambda: _ask(graph, chosen, seen, separate))
    if json:
        content = {
            "targets": [graph.name(v) for v in chosen or range(graph.n_variables)],
            "evidence": told_evidence(graph, seen),
            "log_evidence": asked.log_evidence,
            **({} if asked.joint is None else {"joint": asked.joint.to_dict()}),
            **({} if asked.each is None else {"marginals": _by_name(graph, asked.each)}),
        }
        show_json(model, graph, content, seconds)
    else:
        _show(model, graph, seen, asked, rows)


class Asked(NamedTuple):
    """A joint, or the distribution of each target, or of all variables."""

    log_evidence: float
    joint: Joint | None = None
    each: dict[int, Any] | None = None
    whole: Marginals | None = None


def _ask(
    graph: FactorGraph, chosen: list[int] | None, seen: dict[int, Any], separate: bool
) -> Asked:
    import minfer

    if chosen is None:
        every: Any = minfer.query(graph, None, seen)
        return Asked(log_evidence(graph, seen), None, dict(enumerate(every)), every)
    if separate or len(chosen) == 1:
        each: dict[int, Any] = {v: minfer.query(graph, v, seen) for v in chosen}
        return Asked(each[chosen[0]].log_evidence, None, each)
    joint: Any = minfer.query(graph, chosen, seen)
    return Asked(joint.log_evidence, joint)


def log_evidence(graph: FactorGraph, seen: dict[int, Any]) -> float:
    """log P(e), for which any variable will do."""
    import minfer

    found: Any = minfer.query(graph, 0, seen) if graph.n_variables else None
    return 0.0 if found is None else found.log_evidence


def _show(model: str, graph: FactorGraph, seen: dict[int, Any], asked: Asked, rows: int) -> None:
    from minfer.cli import render

    to = render.console()
    if asked.whole is not None:
        render.probabilities(to, asked.whole, None, rows)
    elif asked.joint is not None:
        render.show(to, _joint(asked.joint, rows))
        left = asked.joint.table.size - rows
        if left > 0:
            to.print(f"  and {left:,} more, none larger (--rows, --json)")
        to.print()
    else:
        for v, p in (asked.each or {}).items():
            render.show(to, _states(graph, v, p))
            to.print()
    facts = {"model": f"{model}: {render.describe(graph)}"}
    if seen:
        facts["evidence"] = evidence_text(graph, seen)
        facts["log P(e)"] = f"{asked.log_evidence:.8g}; P(e) = {math.exp(asked.log_evidence):.6g}"
    render.show(to, render.facts(facts))


def _by_name(graph: FactorGraph, each: dict[int, Any]) -> dict[str, dict[str, float]]:
    return {graph.name(v): dict(zip(graph.states(v), map(float, p))) for v, p in each.items()}


def _states(graph: FactorGraph, v: int, p: Any) -> Table:
    from minfer.cli import render

    table = render.empty_table(graph.name(v), "probability", right=["probability"])
    for state, x in zip(graph.states(v), p):
        table.add_row(state, render.probability(float(x)))
    return table


def _joint(joint: Joint, rows: int) -> Table:
    import numpy as np

    from minfer.cli import render

    table = render.empty_table(*joint.variables, "probability", right=["probability"])
    order = np.argsort(-joint.table.ravel(), kind="stable")[:rows]
    for cell in order:
        where = np.unravel_index(int(cell), joint.table.shape)
        states = [names[int(k)] for names, k in zip(joint.states, where)]
        table.add_row(*states, render.probability(float(joint.table[where])))
    return table
