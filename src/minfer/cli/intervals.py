"""``minfer intervals``: guaranteed intervals for the true marginals."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from minfer.certified.telling import rows as rows_of
from minfer.certified.telling import to_dict
from minfer.cli.certainty import draw, facts, find, live, sentence, show_table
from minfer.cli.failures import UsageError
from minfer.cli.files import check_files, check_inputs, load, show_json, write_csv
from minfer.cli.options import OUTPUT_PANEL, Csv, Evidence, Json, Model, Soft, rows_option
from minfer.typed import parse_query

SECONDS = 10.0


def intervals(
    model: Model,
    evidence: Evidence = None,
    soft: Soft = None,
    variables: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--variables",
            "-q",
            metavar="x5,x9",
            help="Only these variables; may be repeated.",
        ),
    ] = None,
    time_limit: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            metavar="S",
            help="Time limit in seconds; then the best intervals so far are printed. Default: 10, "
            "or none with --work.",
        ),
    ] = None,
    tol: Annotated[
        float, typer.Option(metavar="T", help="Width at which a variable is finished.")
    ] = 0.01,
    work: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            metavar="N",
            help="Limit on nodes and cells to visit, instead of seconds: the same intervals on "
            "every machine. A few nanoseconds each.",
        ),
    ] = None,
    undecided: Annotated[
        bool,
        typer.Option(
            "--undecided",
            help="Finish a variable once its most probable state is certain, at any width.",
        ),
    ] = False,
    methods: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="A,B,...",
            help="Only these methods: exact, monotone, walks, boxes, hull. Default: all that pay.",
        ),
    ] = None,
    csv_file: Csv = None,
    picture: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Draw the widest intervals, and how they narrowed, to a .png or .svg file (needs "
            "the extra `plot`).",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    json: Json = False,
    rows: Annotated[int, rows_option("the widest intervals")] = 20,
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
    check_files(csv_file, picture, json, [model, *(evidence or ())])
    check_inputs(model, evidence)
    graph, seconds = load(model, evidence, soft)
    chosen = parse_query(variables, graph)
    if time_limit is None and work is None:
        time_limit = SECONDS
    names = None if methods is None else [m.strip() for m in methods.split(",") if m.strip()]
    if names == []:
        raise UsageError("--methods: name at least one, as in --methods monotone,walks")
    with live(graph.n_variables if chosen is None else len(chosen)) as watch:
        found = find(
            graph, time_limit, tol=tol, variables=chosen, work=work, undecided=undecided,
            methods=names, watch=watch,
        )  # fmt: skip
    if csv_file is not None:
        write_csv(csv_file, rows_of(graph, chosen, None, found))
    if picture is not None:
        draw(found, chosen, picture, model)
    if json:
        content = to_dict(found, chosen)
        show_json(model, graph, content, seconds)
    else:
        from minfer.cli import render

        console = render.console(stderr=csv_file == "-")
        console.print(sentence(found, chosen, undecided))
        console.print()
        show_table(console, found, chosen, rows)
        render.show(console, render.facts(facts(model, found, seconds, chosen)))


# ---------------------------------------------------------------------- finding them


# ---------------------------------------------------------------------- telling it


# ---------------------------------------------------------------------- JSON, CSV, pictures
