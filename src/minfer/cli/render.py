"""What people see: tables, times and pictures; and JSON for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from minfer import __version__
from minfer.basics.notebook import Bold, Face, words
from minfer.cli.failures import in_flags
from minfer.errors import visible

PAGE = 80  # columns that a picture may take where there is no terminal
UNWRAPPED = 10_000  # columns of a pipe or file: no line is broken
NOTHING = Face("", (), ())


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


def tell(
    json: bool,
    content: Mapping[str, Any],
    what: Face = NOTHING,
    notes: Mapping[str, str] = {},
    to: Console | None = None,
    more: Iterable[Face] = (),
    **about: Any,
) -> None:
    """An answer, as JSON on standard output, or as its face, and some more of them."""
    if json:
        write_json(content)
        return
    to = to or console()
    face(to, what, notes, **about)
    for other in more:
        to.print()
        face(to, other)


def face(
    to: Console, what: Face, notes: Mapping[str, str] = {}, hint: str = "", ok: bool = True
) -> None:
    """The conclusion, the table, and the notes of an answer, with some more notes before them.

    The ``hint`` is how to see what the table leaves out; a status that is not ``ok`` stands out.
    """
    lines = {**notes, **what.notes}
    groups: list[list[Any]] = [
        [what.conclusion],
        [table_of(what) if what.rows else None, what.more and f"  {what.more} {hint}".rstrip()],
        [facts(lines, ok) if lines else None],
    ]
    for k, group in enumerate(group for group in groups if any(group)):
        if k:
            to.print()
        for part in filter(None, group):
            show(to, part)


def table_of(what: Face) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for k, title in enumerate(what.head):
        side: Any = "right" if what.is_number(k) else "left"
        table.add_column(line(title), justify=side, overflow="fold")
    for k, row in enumerate(what.rows):
        cells = (Text(words(x), style="bold" * isinstance(x, Bold)) for x in row)
        table.add_row(*cells, style="bold" if k in what.bold else "")
    return table


def facts(lines: Mapping[str, str], ok: bool = True) -> Table:
    """``name  value`` lines, values aligned and wrapped; a status that is not ``ok`` stands out.

    Those without content are left out.
    """
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in lines.items():
        style = ("green" if ok else "bold yellow") if key == "status" else ""
        value = in_flags(value) if key in ("advice", "left out") else value
        if value:
            grid.add_row(key, Text(visible(value), style=style))
    return grid


# ---------------------------------------------------------------------- small things


def write_json(content: Mapping[str, Any]) -> None:
    """One object on standard output, that of this version."""
    from minfer.io.text import json_text

    sys.stdout.write(json_text({"minfer": __version__, **content}) + "\n")


def can_print(characters: str) -> bool:
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def pictures(to: Console, titles: list[str], shown: list[NDArray]) -> None:
    """Binary pictures of one size in a row, each under its title."""
    from minfer.pictures import HALF_BLOCKS, side_by_side

    width = PAGE if to.width == UNWRAPPED else to.width
    for row in side_by_side(titles, shown, width, not can_print(HALF_BLOCKS)):
        to.print(row, no_wrap=True, crop=False)
