"""``minfer explore``: a network as a page to play with."""

from __future__ import annotations

from pathlib import Path

from minfer.cli.files import HTML, written
from minfer.cli.generate import Words, command, option
from minfer.cli.options import Input
from minfer.cli.progress import wait_for
from minfer.io.typed import parse_query


@command()
def explore(
    source: Input,
    out: str = option("-o PAGE.HTML  Page to write; - is standard output.", ..., file=HTML),
    targets: Words = option(
        "-t A,B  Only these variables, the observed ones, and what they depend on."
    ),
    fix: bool = option(
        "Make the evidence permanent: it cannot be removed in the page, which gets smaller."
    ),
    title: str | None = option("TEXT  Name of the network. Default: the file name."),
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

    graph = source.graph
    file = source.model
    name = Path(file).name if title is None and file != "-" else title or ""
    chosen = parse_query(targets, graph, "--targets")
    page = wait_for(
        "planning and drawing",
        lambda: minfer.explore(graph, targets=chosen, fix=fix, title=name),
    )
    written(out, page.write)
