"""Commands that ask one thing of a model, or write it down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minfer.basics.words import counted
from minfer.cli import render
from minfer.cli.failures import note
from minfer.cli.files import HTML, NET, File, written, wrote
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
      minfer query alarm.minfer PCWP -e HR=LOW --do CVP=HIGH
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


@command()
def sample(
    source: Input,
    n: int = option("-n N  How many samples.", 1000, min=0),
    out: str = option(
        "-o FILE.csv  File to write; - is standard output; .gz compresses.",
        "-",
        file=File("out", (".csv", ".csv.gz")),
    ),
    seed: int = option("N  The same seed gives the same samples.", 0, min=0),
    numbers: bool = option("Indices of states instead of their names."),
) -> None:
    """Independent, exact samples of all variables given evidence, as CSV.

    \b
    Examples:
      minfer sample alarm.minfer -n 1000 -o cases.csv
      minfer sample alarm.minfer -n 10 -e HR=LOW --seed 7
    """
    import numpy as np

    import minfer
    from minfer.io.text import write_csv

    graph, seen = source.bare, source.seen
    drawn = wait_for("drawing", lambda: minfer.sample(graph, n, seen, seed=seed))
    rows = np.asarray(drawn).tolist() if numbers else zip(*drawn.to_dict().values())
    told = f", {counted(n, 'sample')} of {counted(graph.n_variables, 'variable')}"
    written(out, lambda path: write_csv(path, [drawn.variables, *rows]), told)


@command()
def explore(
    source: Input,
    out: str = option("-o PAGE.HTML  Page to write; - is standard output.", ..., file=HTML),
    targets: Words = option(
        "-t A,B  Only these variables, the observed ones, and what they depend on."
    ),
    fix: bool = option(
        "Make evidence and --do permanent: it cannot be removed in the page, which gets smaller."
    ),
    title: str | None = option("TEXT  Name of the network. Default: the file name."),
) -> None:
    """A page to play with: one HTML file that draws the network and runs inference in the browser.

    Every variable is a card with a bar for each state. Click on a state to
    observe it (in a Bayesian network: again, to set it), and all posteriors are
    updated: the page computes them itself, exactly, and loads nothing from
    elsewhere. Evidence given here is set when the page opens; the page keeps its
    evidence in its address, for sharing. A model whose clique tree has more than
    a million cells is refused: --targets and --fix make it smaller.

    \b
    Examples:
      minfer explore sprinkler.minfer -o sprinkler.html
      minfer explore grid.uai -o grid.html --evidence x3=1 --title "A grid"
      minfer explore large.bif -o large.html --targets A,B --evidence C=yes --fix
    """
    import minfer

    file = source.model
    graph, seen, done = source.untouched, source.seen, source.done
    name = Path(file).name if title is None and file != "-" else title or ""
    chosen = parse_query(targets, graph, "--targets")
    page = wait_for(
        "planning and drawing",
        lambda: minfer.explore(graph, seen, do=done, targets=chosen, fix=fix, title=name),
    )
    written(out, page.write)


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


@command()
def convert(
    source: Input,
    target: str = argument(
        "OUT  File to write; the suffix sets the format, - is standard output.", file=NET
    ),
) -> None:
    """Convert a model to another format, including its evidence if there is any.

    Reads .uai, .fg, .cnf, .minfer, .circuit (its model alone) and, for Bayesian networks, .bif,
    .xmlbif (.bifxml, .xml), .net and .xdsl, each also as .gz; writes all but .circuit.
    Bayesian network files cannot hold evidence.

    \b
    Examples:
      minfer convert grid.fg grid.uai
      minfer convert alarm.bif alarm.net
      minfer convert grid.uai.gz observed.uai --evidence grid.uai.evid
    """
    import minfer
    from minfer.solvers.circuit import circuit_of

    graph = source.graph
    if circuit_of(graph) is not None:
        note(f"{target} holds the model of {source.model}, not its circuit")
    minfer.write(graph, target)  # in this thread, where an interrupt removes a half-written file
    wrote(target)
