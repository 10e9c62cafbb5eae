"""``minfer example``: a model file, or a treebank, to start with."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from minfer.cli.failures import UsageError, note
from minfer.cli.files import check_writable

TREEBANK = "treebank"


def example(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="NAME", help="Which example; without a name, they are listed."),
    ] = None,
    out: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File to write; the suffix sets the format, - is standard output (UAI; CoNLL-U "
            "for treebank).",
        ),
    ] = None,
) -> None:
    """Write an example model to a file, or list the examples.

    Names of variables are lost in .uai and .fg files. As a .png file the picture is grey, with
    Gaussian noise, for `minfer denoise`.

    \b
    Examples:
      minfer example
      minfer example sprinkler -o sprinkler.minfer
      minfer example sprinkler -o sprinkler.bif
      minfer example treebank -o tiny.conllu
      minfer example picture -o noisy.png
    """
    from minfer.examples import EXAMPLES

    if name is None and out is not None:
        known = ", ".join([*EXAMPLES, TREEBANK])
        raise UsageError(f"-o says where to, but not which one: give a name as well, of {known}")
    if name is None:
        for key, one in EXAMPLES.items():
            typer.echo(f"{key:<12}{one.about}")
        typer.echo(f"{TREEBANK:<12}40 English sentences with their trees, for `minfer parse`")
        typer.echo("\nWrite one with `minfer example NAME -o NAME.minfer`.")
        return
    if name not in (*EXAMPLES, TREEBANK):
        known = ", ".join([*EXAMPLES, TREEBANK])
        raise UsageError(f"there is no example {name!r}; choose from {known}")
    if out is None:
        file = "tiny.conllu" if name == TREEBANK else f"{name}.minfer"
        raise UsageError(f"where to? For instance `minfer example {name} -o {file}`")
    if out != "-":
        check_writable(out, [])
    if name == TREEBANK:
        _write_treebank(out)
    else:
        _write(name, out)


def _write_treebank(out: str) -> None:
    from minfer.parsing.conllu import write_conllu
    from minfer.parsing.tiny import tiny_treebank

    write_conllu(tiny_treebank(), out)
    if out != "-":
        note(f"wrote {out}; now try `minfer parse train {out} -o tiny.model`")


def _write(name: str, out: str) -> None:
    import minfer
    from minfer.examples import EXAMPLES, noisy_drawing
    from minfer.io.text import format_of
    from minfer.pictures import write_picture

    if name == "picture" and out.lower().endswith(".png"):
        write_picture(out, noisy_drawing())
        note(f"wrote {out}; now try `minfer denoise {out} -o clean.png`")
        return
    graph = EXAMPLES[name].make()
    minfer.write(graph, out)
    if out != "-":
        lossy = graph.names and format_of(out) in ("uai", "fg")
        names = " (its variables are x0, x1, ...: .uai and .fg files keep no names)"
        names = names if lossy else ""
        note(f"wrote {out}{names}; now try `minfer run {out}`")
