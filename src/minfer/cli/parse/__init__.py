"""``minfer parse``: train a dependency parser, run it, evaluate it, inspect a parse."""

from __future__ import annotations

import typer

from minfer.cli.failures import Group
from minfer.cli.options import WithoutIntervals
from minfer.cli.parse.evaluate import evaluate
from minfer.cli.parse.run import run
from minfer.cli.parse.show import show
from minfer.cli.parse.train import train

parse = typer.Typer(name="parse", cls=Group)


@parse.callback(invoke_without_command=True)
def about(context: typer.Context) -> None:
    """Dependency parsing: train a parser, run it, evaluate it, inspect a parse.

    The parser of section 5.2 of the paper: arcs, grandparents and siblings under
    one tree factor, belief propagation on the pairs that matter. Every arc comes
    with its probability, an estimate: certified intervals, as `minfer intervals`
    computes for models, are not available yet. Files are CoNLL-U or CoNLL-X,
    or text with one sentence per line. Needs safetensors, the extra `parsing`.

    \b
    Example, on a treebank that comes with minfer:
      minfer example treebank -o tiny.conllu
      minfer parse train tiny.conllu -o tiny.model
      minfer parse show tiny.model "The old dog sees a bird ."
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for _name, _command in (("train", train), ("run", run), ("eval", evaluate), ("show", show)):
    parse.command(name=_name, cls=WithoutIntervals)(_command)
