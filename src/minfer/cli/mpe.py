"""``minfer mpe``: the most probable explanation, or the k best."""

from __future__ import annotations

import math
from typing import Annotated, Optional

import typer

from minfer.cli.files import check_inputs, load_apart, show_json
from minfer.cli.options import Evidence, Json, Model, Soft
from minfer.cli.progress import wait_for
from minfer.typed import parse_query, told_evidence
from minfer.words import duration


def mpe(
    model: Model,
    evidence: Evidence = None,
    soft: Soft = None,
    k: Annotated[int, typer.Option("-k", min=1, metavar="N", help="How many, best first.")] = 1,
    variables: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--variables",
            metavar="A,B",
            help="Marginal MAP: the best states of these, all others summed out.",
        ),
    ] = None,
    time_limit: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            metavar="SECONDS",
            help="Search no longer than this where no clique tree fits; with -k or --variables, "
            "refuse to take longer.",
        ),
    ] = None,
    gap: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="NATS",
            help="A search may end once no log score is better by more than this.",
        ),
    ] = 0.0,
    json: Json = False,
) -> None:
    """The most probable states of all variables together, given evidence.

    Exact by a clique tree where one fits; else a search that says how far from the best it may be.

    \b
    Examples:
      minfer mpe alarm.minfer -e HR=LOW
      minfer mpe alarm.minfer -e HR=LOW -k 3 --json
      minfer mpe alarm.minfer --variables CVP,PCWP
      minfer mpe large.uai --time-limit 10
    """
    import minfer
    from minfer.cli import render

    check_inputs(model, evidence)
    graph, seen, seconds = load_apart(model, evidence, soft)
    chosen = parse_query(variables, graph)
    best = wait_for(
        "looking for the best",
        lambda: minfer.mpe(graph, seen, k=k, variables=chosen, time_limit=time_limit, gap=gap),
    )
    if json:
        content = {"evidence": told_evidence(graph, seen), **best.to_dict()}
        show_json(model, graph, content, seconds)
        return
    to = render.console()
    titles = ["state"] if len(best) == 1 else [f"{i + 1}." for i in range(len(best))]
    table = render.empty_table("variable", *titles)
    assignments = [a.states for a in best]
    for name in best.best.variables:
        states = [states[name] for states in assignments]
        observed = isinstance(seen.get(graph.index(name)), int)
        table.add_row(name + (" (observed)" if observed else ""), *states)
    if not math.isnan(best.log_probability):
        table.add_row("probability", *(f"{a.probability:.4g}" for a in best))
    table.add_row("log score", *(f"{a.log_score:.6g}" for a in best))
    render.show(to, table)
    to.print()
    told = "proven"
    if not best.proven:
        told = f"{best.status}: log score {best.log_score:.6g}, none is above {best.upper:.6g}"
    facts = {"model": f"{model}: {render.describe(graph)}", "best": told}
    if best.steps != ("clique tree",):
        facts["by"] = ", ".join(best.steps)
    if best.complete and k > 1:
        facts["all"] = f"there are no more than these {len(best)} with a positive probability"
    facts["time"] = duration(best.seconds)
    render.show(to, render.facts(facts))
