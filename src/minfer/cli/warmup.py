"""``minfer warmup``: compile every kernel now rather than in the first run."""

from __future__ import annotations

import time

import typer

from minfer.cli.failures import UsageError
from minfer.cli.generate import argument, command, option
from minfer.cli.progress import wait_for
from minfer.errors import visible
from minfer.exercise import PARTS, Unit, units
from minfer.parallel import cores, ordered_map
from minfer.words import counted


@command
def warmup(
    part: str | None = argument(
        "PART  solvers, method, intervals, trees or parser. Default: all of them.", None
    ),
    workers: int | None = option("N  Processes. Default: one per core.", min=1),
) -> None:
    """Compile every kernel, so that no later run has to wait for it.

    Compiled kernels stay in a cache folder until minfer, numba or Python changes. Those of other
    versions that nobody has used for a month are removed. `minfer parse` needs the part `parser`.

    \b
    Examples:
      minfer warmup
      minfer warmup parser
    """
    if part is not None and part not in PARTS:
        raise UsageError(f"there is no part {part!r}; choose from {', '.join(PARTS)}")
    from minfer.kernels._cache import prune
    from minfer.kernels._jit import CACHE_DIR, folders

    began = time.perf_counter()
    chosen = [unit for unit in units() if part in (None, unit.part)]
    workers = min(workers or cores(), len(chosen))
    done = ordered_map(_compile, chosen, workers, in_flight=len(chosen))
    unsaved = ""
    for k, unit in enumerate(chosen, 1):
        seconds, why = wait_for(f"compiling: {unit.title}", lambda: next(done))
        typer.echo(f"{k:>2}/{len(chosen)}  {unit.title:<30}{seconds:6.1f} s", err=True)
        unsaved = unsaved or why
    seconds = time.perf_counter() - began
    if unsaved:
        text = f"Compiled in {seconds:.1f} s, but not kept in {CACHE_DIR}: {unsaved}"
        typer.echo(visible(text), err=True)
        raise typer.Exit(1)
    gone, freed = prune(CACHE_DIR, folders())
    if gone:
        text = f"Removed {counted(gone, 'folder')} of old kernels, {freed / 2**20:,.0f} MiB"
        typer.echo(text, err=True)
    typer.echo(visible(f"Ready after {seconds:.1f} s. The cache is {CACHE_DIR}"))


def _compile(unit: Unit) -> tuple[float, str]:
    """The seconds it took, and why a kernel was not kept, if one was not."""
    from minfer.kernels._cache import UNSAVED
    from minfer.kernels._jit import be_quiet

    be_quiet()
    began = time.perf_counter()
    unit.work()
    return time.perf_counter() - began, UNSAVED[0] if UNSAVED else ""
