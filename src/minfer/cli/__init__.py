"""The command line: a thin layer over the Python API.

Every command is a function in a file of its name, listed below; this file only binds
them together and turns errors into one line and an exit code:

    0 answered    2 usage    3 bad input    4 refused    5 not converged, under --strict
    6 disk full   1 a bug, or something broken (doctor)   130 interrupted

Data goes to stdout, everything else to stderr. Nothing here imports numba or rich before a command
needs it, so that ``minfer --version`` is quick.
"""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from minfer import __version__
from minfer.cli.batch import batch
from minfer.cli.failures import Commands, leave
from minfer.cli.generate import command, flag, option
from minfer.cli.options import Command
from minfer.cli.parse import parse
from minfer.cli.rules import rules

__all__ = ["app", "main"]

app = typer.Typer(
    name="minfer",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"minfer {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
@command
def top(
    context: typer.Context,
    version: bool = option("-V  Show the version.", False, callback=_show_version, is_eager=True),
    debug: bool = flag("Show the traceback of an unexpected error."),
) -> None:
    """Fast marginal inference in discrete factor graphs, and how far the answer can be off.

    New here? Start with one of these:

    \b
      minfer demo
      minfer example sprinkler -o sprinkler.minfer
      minfer run sprinkler.minfer
      minfer run sprinkler.minfer --reduce
      minfer intervals sprinkler.minfer

    Bayesian networks (BIF, XMLBIF, NET, XDSL), as in `pgmpy` or `pyAgrum`:

    \b
      minfer query alarm.bif HYPOVOLEMIA -e CVP=LOW
      minfer mpe alarm.bif -e CVP=LOW
      minfer predict alarm.bif cases.csv -o answers.csv --targets HYPOVOLEMIA
      minfer explore alarm.bif -o alarm.html

    Exit codes: 0 answered, 2 usage, 3 bad input, 4 refused, 5 not converged (with --strict),
    6 disk full.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for _name in (
    "run", "query", "predict", "learn", "intervals", "mpe", "sample", "explore", "plan", "tradeoff",
    "denoise", "paper", "convert", "example", "demo", "warmup", "doctor",
):  # fmt: skip
    app.command(cls=Command)(getattr(import_module(f"minfer.cli.{_name}"), _name))
app.add_typer(parse)
app.add_typer(batch)
app.add_typer(rules)


def main() -> None:
    """Entry point of the ``minfer`` script."""
    for stream in (sys.stdout, sys.stderr):  # a terminal without our characters shows ? instead
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="minfer")
    except SystemExit as exit_:
        leave(exit_.code)
