"""``minfer example``: a model file, or a treebank, to start with."""

from __future__ import annotations

import typer

from minfer.cli.files import OUT, wrote
from minfer.cli.generate import argument, command, option
from minfer.errors import SettingsError


@command()
def example(
    name: str | None = argument("NAME  Which example; without a name, they are listed.", None),
    out: str | None = option(
        "-o FILE  File to write; the suffix sets the format, - is standard output (UAI; CoNLL-U "
        "for treebank).",
        file=OUT,
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
    from minfer.examples import TREEBANK, listed_examples, write_example

    about = listed_examples()
    if name is None and out is None:
        for key, text in about.items():
            typer.echo(f"{key:<12}{text}")
        typer.echo("\nWrite one with `minfer example NAME -o NAME.minfer`.")
        return
    if name not in about:
        what = f"there is no example {name!r}; choose" if name else "-o of which example? Choose"
        raise SettingsError(f"{what} from {', '.join(about)}")
    if out is None:
        file = "tiny.conllu" if name == TREEBANK else f"{name}.minfer"
        raise SettingsError(f"where to? For instance `minfer example {name} -o {file}`")
    wrote(out, write_example(name, out))
