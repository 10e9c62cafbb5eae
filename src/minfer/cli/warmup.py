"""``minfer warmup``: compile every kernel now rather than in the first run."""

from __future__ import annotations

import time

import typer

from minfer.basics.words import counted
from minfer.cli.generate import argument, command, option
from minfer.cli.progress import wait_for
from minfer.errors import visible


@command()
def warmup(
    part: str | None = argument(
        "PART  solvers, method, intervals, trees or parser. Default: all of them.", None
    ),
    workers: int | None = option("N  Processes. Default: one per core.", min=1),
) -> None:
    """Compile every kernel, so that no later run has to wait for it.

    Each is asked at once whether it says what plain Python has said; one that does not is not used.
    Compiled kernels stay in a cache folder until minfer, numba or Python changes. Those of other
    versions that nobody has used for a month are removed. `minfer parse` needs the part `parser`.

    \b
    Examples:
      minfer warmup
      minfer warmup parser
    """
    from minfer.kernels.compiling.cache import prune
    from minfer.kernels.compiling.jit import CACHE_DIR, folders
    from minfer.upkeep.warmup import warmed_up

    began = time.perf_counter()
    done, unsaved, asked, wrong = warmed_up(part, workers), "", 0, set()
    while step := wait_for("compiling", lambda: next(done, None)):
        typer.echo(str(step), err=True)
        unsaved = unsaved or step.unsaved
        asked += step.asked
        wrong |= {step.wrong} - {""}
    took = f"{time.perf_counter() - began:.1f} s"
    if wrong:
        for text in sorted(wrong):
            typer.echo(visible(text), err=True)
        raise typer.Exit(1)
    if unsaved:
        text = f"Compiled in {took}, but not kept in {CACHE_DIR}: {unsaved}"
        typer.echo(visible(text), err=True)
        raise typer.Exit(1)
    gone, freed = prune(CACHE_DIR, folders())
    if gone:
        text = f"Removed {counted(gone, 'folder')} of old kernels, {freed / 2**20:,.0f} MiB"
        typer.echo(text, err=True)
    checked = f" {counted(asked, 'kernel')} compiled, all answer right." if asked else ""
    typer.echo(visible(f"Ready after {took}.{checked} The cache is {CACHE_DIR}"))
