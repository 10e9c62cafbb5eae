"""``minfer convert``: a model from one format to another."""

from __future__ import annotations

from minfer.cli.files import NET, wrote
from minfer.cli.generate import argument, command
from minfer.cli.options import Input


@command()
def convert(
    source: Input,
    target: str = argument(
        "OUT  File to write; the suffix sets the format, - is standard output.", file=NET
    ),
) -> None:
    """Convert a model to another format, including its evidence if there is any.

    Reads .uai, .fg, .minfer and, for Bayesian networks, .bif, .xmlbif (.bifxml, .xml), .net and
    .xdsl, each also as .gz; writes all but .xdsl. Bayesian network files cannot hold evidence.

    \b
    Examples:
      minfer convert grid.fg grid.uai
      minfer convert alarm.bif alarm.net
      minfer convert grid.uai.gz observed.uai --evidence grid.uai.evid
    """
    import minfer

    graph = source.graph
    minfer.write(graph, target)  # in this thread, where an interrupt removes a half-written file
    wrote(target)
