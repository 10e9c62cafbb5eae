"""The command line: a thin layer over the Python API.

Every command is a function in a file, listed below; this file only binds them together and turns
errors into one line and an exit code:

    0 answered    2 usage    3 bad input    4 refused    5 not converged, under --strict
    6 disk full   1 a bug, or something broken (doctor)   130 interrupted
    141 standard output was closed

Data goes to stdout, everything else to stderr. Nothing here imports numba or rich before a command
needs it, so that ``minfer --version`` is quick.
"""

from __future__ import annotations

import sys
from collections import UserDict
from importlib import import_module
from typing import Any

import typer

from minfer import __version__
from minfer.cli.failures import Commands
from minfer.cli.generate import command, option, plain
from minfer.cli.options import Command
from minfer.cli.progress import leave

__all__ = ["app", "main"]

#: In the order of the help, by file.
HOMES = {
    "run": "run", "query": "asking", "predict": "cases", "evaluate": "cases",
    "learn": "cases",
    "intervals": "intervals", "mpe": "asking", "sample": "asking", "explore": "asking",
    "compile": "compiling", "plan": "asking", "tradeoff": "tradeoff", "denoise": "denoise",
    "paper": "paper", "convert": "asking", "example": "beginning", "demo": "beginning",
    "warmup": "beginning", "doctor": "beginning", "parse": "parse", "batch": "batch",
    "rules": "rules", "time": "through_time",
}  # fmt: skip


class Loaded(UserDict[str, Any]):
    """The commands by name; each is loaded when it is first asked for."""

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            found = getattr(import_module(f"minfer.cli.{HOMES[name]}"), name)
            if not isinstance(found, typer.Typer):  # one command, and no group
                function, found = found, plain()
                found.command(cls=Command)(function)
            self.data[name] = typer.main.get_command(found)
        return self.data[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Errors of a command that cannot be loaded are errors, also if they are of keys."""
        return self[name] if name in self.data else default


class Everything(Commands):
    """All commands."""

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self.commands: Any = Loaded(dict.fromkeys(HOMES))


about = {"help_option_names": ["-h", "--help"]}
app = plain(name="minfer", cls=Everything, context_settings=about)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"minfer {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
@command()
def top(
    context: typer.Context,
    version: bool = option("-V  Show the version.", False, callback=_show_version, is_eager=True),
    debug: bool = option("Show the traceback of an unexpected error."),
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


def main() -> None:
    """Entry point of the ``minfer`` script."""
    for stream in (sys.stdout, sys.stderr):  # a terminal without our characters shows ? instead
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="minfer")
    except SystemExit as exit_:
        leave(exit_.code)
