"""``minfer mpe``: the most probable explanation, or the k best."""

from __future__ import annotations

from minfer.cli import render
from minfer.cli.generate import Words, command, option
from minfer.cli.options import JSON, Input
from minfer.cli.progress import wait_for
from minfer.io.typed import parse_query


@command()
def mpe(
    source: Input,
    k: int = option("-k N  How many, best first.", 1, min=1),
    variables: Words = option(
        "A,B  Marginal MAP: the best states of these, all others summed out."
    ),
    time_limit: float | None = option(
        "SECONDS  Search no longer than this where no clique tree fits; with -k or --variables, "
        "refuse to take longer."
    ),
    gap: float = option(
        "NATS  A search may end once no log score is better by more than this.", 0.0, min=0.0
    ),
    json: bool = JSON,
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
    from minfer.say.answers import told_evidence

    graph, seen = source.bare, source.seen
    chosen = parse_query(variables, graph, "--variables")
    best = wait_for(
        "looking for the best",
        lambda: minfer.mpe(graph, seen, k=k, variables=chosen, time_limit=time_limit, gap=gap),
    )
    observed = [graph.name(v) for v, state in seen.items() if isinstance(state, int)]
    content = {"evidence": told_evidence(graph, seen), **best.to_dict()}
    notes = source.summary(graph, {})
    render.tell(json, source.content(graph, content), best.face(observed), notes)
