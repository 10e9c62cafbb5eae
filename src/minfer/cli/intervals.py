"""``minfer intervals``: guaranteed intervals for the true marginals."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from minfer.cli.certainty import find, live, sentence
from minfer.cli.failures import UsageError
from minfer.cli.files import check_outputs, draw_pair, load, write_csv
from minfer.cli.generate import Words, command, flag, option, output
from minfer.cli.options import CSV, JSON, Input, rows_option
from minfer.typed import parse_query
from minfer.words import counted

SECONDS = 10.0


@command
def intervals(
    source: Input,
    variables: Words = option("-q x5,x9  Only these variables; may be repeated."),
    time_limit: float | None = option(
        "S  Time limit in seconds; then the best intervals so far are printed. Default: 10, or "
        "none with --work."
    ),
    tol: float = option("T  Width at which a variable is finished.", 0.01),
    work: int | None = option(
        "N  Limit on nodes and cells to visit, instead of seconds: the same intervals on every "
        "machine. A few nanoseconds each."
    ),
    undecided: bool = flag(
        "Finish a variable once its most probable state is certain, at any width."
    ),
    methods: str | None = option(
        "A,B,...  Only these methods: exact, monotone, walks, boxes, hull. Default: all that pay."
    ),
    csv_file: str | None = CSV,
    picture: str | None = output(
        "FILE  Draw the widest intervals, and how they narrowed, to a .png or .svg file (needs "
        "the extra `plot`)."
    ),
    json: bool = JSON,
    rows: int = rows_option("the widest intervals"),
) -> None:
    """Intervals that are guaranteed to contain the true marginals of a model.

    Not an estimate: every probability lies between the two ends, rounding
    included. [0, 1] means that nothing is known, which is called vacuous. More
    time never widens an interval; Ctrl-C prints the best so far.

    `minfer run MODEL --intervals` prints them next to an estimate, and says how
    many of its numbers they refute.

    \b
    Examples:
      minfer intervals grid.uai
      minfer intervals grid.uai --evidence x3=1 --time-limit 60 --tol 0.001
      minfer intervals grid.uai --variables x5,x9 --undecided
      minfer intervals grid.uai --work 1000000000 --csv grid.csv --picture grid.png
    """
    from minfer import plots
    from minfer.certified import telling

    check_outputs({"--csv": csv_file, "--picture": picture}, source.files, json)
    names = None if methods is None else [m.strip() for m in methods.split(",") if m.strip()]
    if names == []:
        raise UsageError("--methods: name at least one, as in --methods monotone,walks")
    given = load(source)
    graph = given.graph
    chosen = parse_query(variables, graph)
    if time_limit is None and work is None:
        time_limit = SECONDS
    with live(graph.n_variables if chosen is None else len(chosen)) as watch:
        found = find(
            graph, time_limit, tol=tol, variables=chosen, work=work, undecided=undecided,
            methods=names, watch=watch,
        )  # fmt: skip
    if csv_file is not None:
        write_csv(csv_file, telling.rows(graph, chosen, None, found))
    if picture is not None:
        draw_pair(
            picture,
            f"{Path(source.model).name}: {counted(len(found), 'variable')}",
            lambda ax: plots.intervals(found, variables=chosen, ax=ax),
            lambda ax: plots.narrowing(found, ax),
        )
    if json:
        given.show_json(graph, telling.to_dict(found, chosen))
        return
    from minfer.cli import render

    console = render.console(stderr=csv_file == "-")
    console.print(sentence(found, chosen, undecided))
    console.print()
    of = np.arange(len(found)) if chosen is None else np.asarray(chosen)
    order = of[np.argsort(-found.width[of], kind="stable")][: rows if chosen is None else None]
    if len(order):
        render.show(console, render.table_of(telling.interval_table(found, order.tolist())))
    if left := len(of) - len(order):
        console.print(f"  and {left:,} more, none wider (--rows, --variables, --csv, --json)")
    if len(of):
        console.print()
    lines = render.summary(given, graph, telling.summary(found, chosen))
    render.show(console, render.facts(lines))
