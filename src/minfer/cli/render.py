"""What people see: tables, times and pictures; and JSON for programs."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

import minfer
from minfer.errors import visible
from minfer.notebook import Bold, words
from minfer.words import duration, options_in
from minfer.words import ends as ends
from minfer.words import probability as probability

if TYPE_CHECKING:
    from minfer.certified.result import Intervals
    from minfer.cli.files import Given
    from minfer.graph import FactorGraph
    from minfer.notebook import Face
    from minfer.solvers.base import Marginals

PAGE = 80  # columns that a picture may take where there is no terminal
UNWRAPPED = 10_000  # columns of a pipe or file: no line is broken


def console(stderr: bool = False) -> Console:
    """Plain text: nothing is highlighted or read as markup unless asked for.

    Lines are broken at the width of a terminal, or at COLUMNS if set; in a pipe or file they are
    as long as they need to be.
    """
    made = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.file.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        made.width = UNWRAPPED
    return made


class _Console(Console):
    """A console that leaves a closed pipe to :mod:`minfer.cli.failures`.

    Of what is printed as a string only line ends act on the terminal.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*map(_printable, objects), **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _printable(what: Any) -> Any:
    return "\n".join(map(visible, what.split("\n"))) if isinstance(what, str) else what


class _Table(Table):
    """A table whose cells are plain text, one line each as far as the text goes."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*map(line, cells), **options)


def line(text: Any) -> Any:
    """A string as plain text of one line, safe to show; anything else as it is."""
    return Text(visible(text)) if isinstance(text, str) else text


def show(to: Console, what: RenderableType) -> None:
    """Print a table without the blanks that fill its lines up to the width."""
    with to.capture() as captured:
        to.print(what)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    to.file.write("\n".join(lines).strip("\n") + "\n")
    to.file.flush()


def empty_table(*titles: str, right: Collection[str] = ()) -> Table:
    """A table with these columns; those in ``right`` are set to the right."""
    table = _Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in titles:
        side: Any = "right" if title in right else "left"
        table.add_column(line(title), justify=side, overflow="fold")
    return table


def face(to: Console, what: Face, notes: Mapping[str, str] = {}) -> None:
    """The conclusion, the table, and the notes of an answer, with some more notes before them."""
    if what.conclusion:
        to.print(what.conclusion)
        to.print()
    if what.rows:
        show(to, table_of(what))
    if notes or what.notes:
        to.print()
        show(to, facts({**notes, **what.notes}))


def table_of(what: Face) -> Table:
    """The table of a face."""
    numbers = [title for k, title in enumerate(what.head) if what.is_number(k)]
    table = empty_table(*what.head, right=numbers)
    for k, row in enumerate(what.rows):
        table.add_row(*map(_cell, row), style="bold" if k in what.bold else "")
    return table


def _cell(value: object) -> Text | str:
    return Text(words(value), style="bold") if isinstance(value, Bold) else words(value)


def version() -> str:
    return minfer.__version__


# ---------------------------------------------------------------------- an answer


def probabilities(
    to: Console,
    marginals: Marginals,
    chosen: list[int] | None,
    rows: int,
    intervals: Intervals | None = None,
) -> None:
    """The table of marginals, of those asked for or the least certain, and what it leaves out."""
    from minfer.certified.telling import marginal_table

    shown, left = chosen, 0
    if chosen is None:
        shown = np.argsort(marginals.max_prob(), kind="stable")[:rows].tolist()
        left = len(marginals) - len(shown)
    if shown:
        show(to, table_of(marginal_table(marginals, shown, intervals)))
    if left:
        to.print(f"  and {left:,} more, all at least as certain (--rows, --query, --json)")
    elif not len(marginals):
        to.print("The model has no variables.")
    if shown or left:
        to.print()


def summary(given: Given, graph: FactorGraph, told: Mapping[str, str]) -> dict[str, str]:
    """What a library says of an answer, in the words of the command line, and about the model."""
    from minfer.solvers.telling import describe

    lines = {"model": f"{given.file}: {describe(graph)}", **told}
    lines["advice"] = options_in(lines.get("advice", ""))
    if "time" in lines:
        lines["time"] += f"; reading the model {duration(given.seconds)}"
    return {key: value for key, value in lines.items() if value}


def facts(lines: Mapping[str, str], ok: bool = True) -> Table:
    """``name  value`` lines, values aligned and wrapped; a status that is not ``ok`` stands out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in lines.items():
        style = ("green" if ok else "bold yellow") if key == "status" else ""
        grid.add_row(key, Text(visible(value), style=style))
    return grid


# ---------------------------------------------------------------------- small things


def write_json(content: dict[str, Any]) -> None:
    """One object on standard output."""
    sys.stdout.write(to_json(content) + "\n")


def to_json(content: dict[str, Any]) -> str:
    """Standard JSON: NaN and infinity, which it has not, become null (marginals have neither)."""
    plain = {k: value if k == "marginals" else _plain(value) for k, value in content.items()}
    return json.dumps(plain, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def can_print(characters: str) -> bool:
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def side_by_side(titles: list[str], shown: list[NDArray], to: Console) -> None:
    """Binary pictures of one size in a row, each under its title."""
    from minfer import pictures

    gap = "   "
    width = PAGE if to.width == UNWRAPPED else to.width
    room = (width - len(gap) * (len(shown) - 1)) // len(shown)
    plain = not can_print(pictures.HALF_BLOCKS)
    drawn = [pictures.drawn(p, room, plain) for p in shown]
    wide = len(drawn[0][0])
    rows = list(zip(*([t[:wide], *lines] for t, lines in zip(titles, drawn))))
    if wide > room:  # not even so: below each other
        rows = [(line,) for t, lines in zip(titles, drawn) for line in [t, *lines]]
    for row in rows:
        to.print(gap.join(part.ljust(wide) for part in row).rstrip(), no_wrap=True, crop=False)
