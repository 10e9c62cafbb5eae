"""``minfer explore``: a network as a page to play with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from minfer.cli.failures import UsageError, note
from minfer.cli.files import check_inputs, check_writable, load
from minfer.cli.options import Evidence, Model, Soft, targets_option
from minfer.cli.progress import wait_for
from minfer.typed import parse_query


def explore(
    model: Model,
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", metavar="PAGE.HTML", help="Page to write; - is standard output."
        ),
    ],
    evidence: Evidence = None,
    soft: Soft = None,
    targets: Annotated[
        Optional[list[str]],  # noqa: UP045
        targets_option("Only these variables, the observed ones, and what they depend on."),
    ] = None,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Make the evidence permanent: it cannot be removed in the page, which gets "
            "smaller.",
        ),
    ] = False,
    title: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="TEXT", help="Name of the network. Default: the file name."),
    ] = None,
) -> None:
    """A page to play with: one HTML file that draws the network and runs inference in the browser.

    Every variable is a card with a bar for each state. Click on a state to
    observe it, and all posteriors are updated: the page computes them itself,
    exactly, and loads nothing from elsewhere. Evidence given here is set when the
    page opens; the page keeps its evidence in its address, for sharing. A model
    whose clique tree has more than a million cells is refused: --targets and
    --fix make it smaller.

    \b
    Examples:
      minfer explore sprinkler.minfer -o sprinkler.html
      minfer explore grid.uai -o grid.html --evidence x3=1 --title "A grid"
      minfer explore large.bif -o large.html --targets A,B --evidence C=yes --fix
    """
    import minfer

    if out != "-":
        if Path(out).suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"--out {out}: end the name in .html")
        check_writable(out, [model, *(evidence or ())])
    check_inputs(model, evidence)
    graph, _ = load(model, evidence, soft)
    name = Path(model).name if title is None and model != "-" else title or ""
    chosen = parse_query(targets, graph)
    page = wait_for(
        "planning and drawing",
        lambda: minfer.explore(graph, targets=chosen, fix=fix, title=name),
    )
    page.write(out)
    if out != "-":
        note(f"wrote {out}")
