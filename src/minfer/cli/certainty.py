"""Certified intervals on the command line: a progress bar, summaries, tables and files.

Intervals are printed rounded outward, so what is printed holds too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minfer.certified.telling import certain, ending, judged
from minfer.cli.failures import UsageError
from minfer.cli.files import draw_pair
from minfer.errors import SettingsError
from minfer.words import counted, duration, visible

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console
    from rich.table import Table

    from minfer.certified.result import Intervals, Step
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Marginals


def find(graph: FactorGraph, seconds: float | None, **options: Any) -> Intervals:
    """:func:`minfer.intervals`, its settings called by their options in what it refuses.

    In this thread, so that Ctrl-C ends the search and not the command.
    """
    import minfer.kernels._jit  # noqa: F401 (loads numba, which is no part of the search's time)
    from minfer.certified.search import intervals as search

    try:
        return search(graph, seconds, **options)
    except SettingsError as error:
        words = str(error).split(" ", 1)
        flag = "--" + words[0].strip(":").replace("_", "-")
        raise UsageError(" ".join([flag, *words[1:]])) from None


@contextmanager
def live(n: int) -> Iterator[Callable[[Step], None] | None]:
    """A bar on stderr for the ``watch`` of a search of n variables, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from minfer.cli.render import console

    columns = (TextColumn("intervals"), BarColumn(), TextColumn("{task.description}"))
    with Progress(
        *columns, TimeElapsedColumn(), console=console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("", total=max(n, 1))

        def watch(step: Step) -> None:
            text = (
                f"{n - step.open:,} of {n:,} finished; width {step.mean_width:.2g} on average, "
                f"{step.max_width:.2g} at most; {step.method}"
            )
            bar.update(task, completed=n - step.open, description=text)

        yield watch


def sentence(iv: Intervals, chosen: list[int] | None = None, undecided: bool = False) -> str:
    """What is certain, why the search ended and what to do next, in plain words."""
    what = f"{certain(iv, chosen)}. {ending(iv)}"
    advice = next_step(iv, chosen, undecided)
    return f"{what}; {advice}." if advice else f"{what}."


def next_step(iv: Intervals, chosen: list[int] | None = None, undecided: bool = False) -> str:
    """What to do about intervals that are too wide; empty where nothing needs doing."""
    which = slice(None) if chosen is None else chosen
    left = iv.width[which] > iv.tol
    if undecided:
        left &= ~iv.decided()[which]
    if not left.any():
        return ""
    if iv.stopped == "exhausted":
        return "only exact inference is left: `minfer plan` says what it would cost"
    more = {
        "time": f"--time-limit {float(f'{4 * iv.seconds:.1g}'):g}",
        "work": f"--work {4 * max(iv.work, 1)}",
    }.get(iv.stopped, "a longer run")
    narrower = "" if chosen is not None else ", or --variables for some of them,"
    if iv.trace and len(iv.trace) > 8 and not any(step.improved for step in iv.trace[-5:]):
        return f"{more} may not help: the last five steps narrowed nothing (`minfer plan`: exact?)"
    return f"{more}{narrower} narrows what is left"


def told(iv: Intervals, marginals: Marginals, chosen: list[int] | None = None) -> dict[str, str]:
    """Two lines about intervals for the facts below an answer."""
    advice = next_step(iv, chosen).replace("--time-limit", "--intervals")
    advice = advice.replace("--variables", "--query")
    return {
        "judged": judged(iv, marginals, chosen),
        "intervals": f"{certain(iv, chosen)}. {ending(iv)}{f'; {advice}' if advice else ''}",
    }


def show_table(console: Console, iv: Intervals, chosen: list[int] | None, rows: int) -> None:
    """The table, widest first, and what it leaves out."""
    from minfer.cli import render

    of = np.arange(len(iv)) if chosen is None else np.asarray(chosen)
    order = of[np.argsort(-iv.width[of], kind="stable")][: rows if chosen is None else None]
    if len(order):
        render.show(console, interval_table(iv, order))
    if left := len(of) - len(order):
        console.print(f"  and {left:,} more, none wider (--rows, --variables, --csv, --json)")
    if len(of):
        console.print()


def interval_table(iv: Intervals, variables: NDArray[np.int64]) -> Table:
    """One row per variable: the intervals of its states, the width, and the method."""
    from minfer.cli import render

    most = int(iv.graph.n_states[variables].max())
    states = render.columns_of(iv.graph, variables.tolist(), render.MOST_INTERVALS)
    titles = states or ["states", "highest"]
    table = render.empty_table("variable", *titles, "width", "by", right=["width"])
    width, method, vacuous = iv.width, iv.method, iv.vacuous
    for v in variables.tolist():
        ends = iv[v]
        if states:
            cells = [render.ends(lo, hi) for lo, hi in ends] + [""] * (most - len(ends))
        else:
            cells = [str(len(ends)), _highest(ends, iv.graph.states(v))]
        by = "nothing known" if vacuous[v] else str(method[v])
        table.add_row(iv.graph.name(v), *cells, f"{width[v]:.2g}", by)
    return table


def _highest(ends: NDArray[np.float64], names: Sequence[str]) -> str:
    from minfer.cli import render

    order = np.lexsort((-ends[:, 0], -ends[:, 1]))[: render.MOST_STATES]
    text = "  ".join(f"{visible(names[s])}: {render.ends(*ends[s])}" for s in order)
    more = len(ends) - len(order)
    return f"{text}  +{more} more" if more else text


def facts(name: str, iv: Intervals, read: float, chosen: list[int] | None) -> dict[str, str]:
    from minfer.cli import render

    which = slice(None) if chosen is None else chosen
    width, method, codes = iv.width[which], iv.method[which], iv.codes[which]
    made = [
        f"{counted(int((method == word).sum()), 'variable')} by {word}"
        for word in dict.fromkeys(method[np.argsort(codes, kind="stable")].tolist())
        if word != "none"
    ]
    return {
        "model": f"{name}: {render.describe(iv.graph)}",
        "width": f"{width.mean():.2g} on average, {width.max():.2g} at most" if len(iv) else "none",
        "method": ", ".join(made) or "none",
        "time": f"{duration(iv.seconds)} without compiling and loading kernels, "
        f"{iv.work:.2g} units of work; reading the model {duration(read)}",
    }


def draw(iv: Intervals, chosen: list[int] | None, path: str, title: str) -> None:
    """The widest intervals and how they narrowed, as a picture."""
    from minfer import plots

    draw_pair(
        path,
        f"{Path(title).name}: {counted(len(iv), 'variable')}",
        lambda ax: plots.intervals(iv, variables=chosen, ax=ax),
        lambda ax: plots.narrowing(iv, ax),
    )
