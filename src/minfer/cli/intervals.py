"""``minfer intervals``: guaranteed intervals for the true marginals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minfer.basics.limits import load_compiler
from minfer.basics.words import counted
from minfer.cli import render
from minfer.cli.files import PICTURE, written
from minfer.cli.generate import Given, Words, command, option, output, taken
from minfer.cli.options import CSV, JSON, Input, rows_option
from minfer.cli.progress import bar
from minfer.errors import SettingsError
from minfer.io.typed import parse_query

if TYPE_CHECKING:
    from minfer.certified.result import Intervals, SearchStep
    from minfer.graph import FactorGraph
    from minfer.reduction.result import Result
    from minfer.solvers.base import Marginals

SECONDS = 10.0


@command()
def intervals(
    source: Input,
    variables: Words = option("-q x5,x9  Only these variables; may be repeated."),
    time_limit: float | None = option(
        "S  Time limit in seconds; then the best intervals so far are printed. Default: 10, or "
        "none with --work."
    ),
    settings: Given = taken("minfer:intervals", "tol work undecided"),
    methods: str | None = option(
        "A,B,...  Only these methods: exact, monotone, walks, boxes, buckets, leaves. Default: all "
        "that are worth their time."
    ),
    csv_file: str | None = CSV,
    picture: str | None = output(
        "FILE  Draw the widest intervals, and how they narrowed, to a .png or .svg file (needs "
        "the extra `plot`).",
        file=PICTURE,
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
    from minfer.io.text import write_csv
    from minfer.pictures import draw_intervals
    from minfer.say import intervals as say
    from minfer.say import tables
    from minfer.solvers.conflicts import locating

    names = None if methods is None else [m.strip() for m in methods.split(",") if m.strip()]
    if names == []:
        raise SettingsError("--methods: name at least one, as in --methods monotone,walks")
    if time_limit is None and settings["work"] is None:
        time_limit = SECONDS
    with locating(source.bare, source.seen):
        graph = source.graph
        chosen = parse_query(variables, graph, "--variables")
        found = find(graph, time_limit, chosen, methods=names, **settings)
    written(csv_file, lambda path: write_csv(path, tables.rows(graph, chosen, None, found)))
    title = f"{Path(source.model).name}: {counted(len(found), 'variable')}"
    written(picture, lambda path: draw_intervals(path, found, chosen, title))
    content = source.content(graph, say.to_dict(found, chosen))
    text = say.sentence(found, chosen, settings["undecided"])
    table = tables.interval_table(found, chosen, rows)._replace(conclusion=text)
    lines = source.summary(graph, say.summary(found, chosen))
    console = render.console(stderr=csv_file == "-")
    hint = "(--rows, --variables, --csv, --json)"
    render.tell(json, content, table, lines, console, hint=hint)


# ---------------------------------------------------------------------- for other commands


def find(
    graph: FactorGraph, seconds: float | None, variables: list[int] | None = None, **options: Any
) -> Intervals:
    """:func:`minfer.intervals`, in this thread, so that Ctrl-C ends the search, not the command."""
    load_compiler()
    from minfer.certified.search import intervals as search

    with live(graph.n_variables if variables is None else len(variables)) as watch:
        return search(graph, seconds, variables=variables, watch=watch, **options)


@contextmanager
def live(n: int) -> Iterator[Callable[[SearchStep], None]]:
    """A bar on stderr for the ``watch`` of a search of n variables."""
    with bar(max(n, 1)) as draw:
        yield lambda step: draw(n - step.open, f"intervals: {step.told(n)}")


def certified(result: Result, seconds: float | None, **options: Any) -> Result:
    """A reduced answer with intervals, if they are asked for."""
    if seconds is None:
        return result
    with live(result.model.n_variables) as watch:
        return result.certified(seconds, watch=watch, **options)


def told(iv: Intervals, marginals: Marginals, chosen: list[int] | None = None) -> dict[str, str]:
    from minfer.say.intervals import judged, sentence

    text = sentence(iv, chosen)
    return {"judged": judged(iv, marginals, chosen), "intervals": text.removesuffix(".")}
