"""``minfer example``: a model file, or a treebank, to start with."""

from __future__ import annotations

import typer

from minfer.cli.failures import UsageError
from minfer.cli.files import check_writable, wrote
from minfer.cli.generate import argument, command, option

TREEBANK = "treebank"


@command
def example(
    name: str | None = argument("NAME  Which example; without a name, they are listed.", None),
    out: str | None = option(
        "-o FILE  File to write; the suffix sets the format, - is standard output (UAI; CoNLL-U "
        "for treebank)."
    ),
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
    import minfer
    from minfer.examples import EXAMPLES, noisy_drawing
    from minfer.io.text import format_of
    from minfer.parsing.conllu import write_conllu
    from minfer.parsing.tiny import tiny_treebank
    from minfer.pictures import write_picture

    known = ", ".join([*EXAMPLES, TREEBANK])
    if name is None:
        if out is not None:
            raise UsageError(f"-o names a file, but which example? Add its name, one of {known}")
        for key, one in EXAMPLES.items():
            typer.echo(f"{key:<12}{one.about}")
        typer.echo(f"{TREEBANK:<12}40 English sentences with their trees, for `minfer parse`")
        typer.echo("\nWrite one with `minfer example NAME -o NAME.minfer`.")
        return
    if name not in (*EXAMPLES, TREEBANK):
        raise UsageError(f"there is no example {name!r}; choose from {known}")
    if out is None:
        file = "tiny.conllu" if name == TREEBANK else f"{name}.minfer"
        raise UsageError(f"where to? For instance `minfer example {name} -o {file}`")
    check_writable(out)
    if name == TREEBANK:
        write_conllu(tiny_treebank(), out)
        wrote(out, f"; now try `minfer parse train {out} -o tiny.model`")
    elif name == "picture" and out.lower().endswith(".png"):
        write_picture(out, noisy_drawing())
        wrote(out, f"; now try `minfer denoise {out} -o clean.png`")
    else:
        graph = EXAMPLES[name].make()
        minfer.write(graph, out)
        lossy = graph.names and format_of(out) in ("uai", "fg")
        names = " (its variables are x0, x1, ...: .uai and .fg files keep no names)"
        wrote(out, f"{names if lossy else ''}; now try `minfer run {out}`")
