"""``minfer example``: a model file to begin with."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from minfer.cli.failures import UsageError, note
from minfer.cli.run import check_writable


def example(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="NAME", help="Which one; left out, they are listed."),
    ] = None,
    out: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File to write; the suffix tells the format, - is standard output (UAI).",
        ),
    ] = None,
) -> None:
    """Write an example model to a file, or list the examples.

    Names of variables are kept by the .minfer format, not by .uai and .fg.

    \b
    Examples:
      minfer example
      minfer example sprinkler -o sprinkler.minfer
    """
    from minfer.examples import EXAMPLES

    if name is None:
        for key, one in EXAMPLES.items():
            typer.echo(f"{key:<12}{one.about}")
        typer.echo("\nWrite one with `minfer example NAME -o NAME.minfer`.")
        return
    if name not in EXAMPLES:
        raise UsageError(f"there is no example {name!r}; choose from {', '.join(EXAMPLES)}")
    if out is None:
        raise UsageError(f"where to? For instance `minfer example {name} -o {name}.minfer`")
    _write(name, out)


def _write(name: str, out: str) -> None:
    import minfer
    from minfer.examples import EXAMPLES

    if out != "-":
        check_writable(out, [])
    graph = EXAMPLES[name].make()
    minfer.write(graph, out)
    if out != "-":
        lossy = graph.names and not out.removesuffix(".gz").endswith(".minfer")
        names = " (its variables are x0, x1, ...: only .minfer files keep names)" if lossy else ""
        note(f"wrote {out}{names}; now try `minfer run {out}`")
