"""What people see: tables, times and pictures; and JSON for programs."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

import minfer
from minfer.notebook import words
from minfer.words import counted, duration, outward, visible

if TYPE_CHECKING:
    from minfer.certified.result import Intervals
    from minfer.graph import FactorGraph
    from minfer.notebook import Face
    from minfer.reduction.comparison import Comparison
    from minfer.reduction.result import Result
    from minfer.solvers.base import Marginals

MOST_COLUMNS = 6  # states shown as columns of their own
MOST_INTERVALS = 3  # where each has an interval
MOST_STATES = 4  # states named in a row otherwise
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
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    return table


def face(to: Console, what: Face, notes: Mapping[str, str] = {}) -> None:
    """The conclusion, the table, and the notes of an answer, with some more notes before them."""
    to.print(what.conclusion)
    to.print()
    show(to, table_of(what))
    to.print()
    show(to, facts({**notes, **what.notes}))


def compared(to: Console, result: Result, found: Comparison) -> None:
    """The reduced answer beside full ones."""
    from minfer.reduction.comparison import face as beside

    show(to, table_of(beside(result, found)))


def table_of(what: Face) -> Table:
    """The table of a face."""
    numbers = [title for k, title in enumerate(what.head) if what.is_number(k)]
    table = empty_table(*what.head, right=numbers)
    for k, row in enumerate(what.rows):
        table.add_row(*map(words, row), style="bold" if k in what.bold else "")
    return table


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
    """The table of marginals and what it leaves out."""
    shown, left = choose(marginals, chosen, rows)
    if shown:
        show(to, marginal_table(marginals, shown, intervals))
    if left:
        to.print(f"  and {left:,} more, all at least as certain (--rows, --query, --json)")
    elif not len(marginals):
        to.print("The model has no variables.")
    if shown or left:
        to.print()


def choose(marginals: Marginals, chosen: list[int] | None, rows: int) -> tuple[list[int], int]:
    """The variables to show, and how many are left out: those asked for, or the least certain."""
    if chosen is not None:
        return chosen, 0
    order = np.argsort(marginals.max_prob(), kind="stable")[:rows]
    return [int(v) for v in order], len(marginals) - len(order)


def marginal_table(
    marginals: Marginals, variables: list[int], intervals: Intervals | None = None
) -> Table:
    """One row per variable: its states as columns if they are few and called alike, else listed.

    With intervals ``p [lo, hi]``, and a last column for estimates that they refute.
    """
    from minfer.certified.result import REFUTED

    graph = marginals.graph
    by_column = columns_of(graph, variables, MOST_COLUMNS if intervals is None else MOST_INTERVALS)
    titles = by_column or ["states", "most probable"]
    last = [] if intervals is None else [""]
    table = empty_table("variable", *titles, *last, right=by_column)
    refuted = None if intervals is None else intervals.refuted(marginals, REFUTED)
    for v in variables:
        p = marginals[v]
        words = [probability(x) for x in p]
        if intervals is not None:
            words = [f"{word} {ends(lo, hi)}" for word, (lo, hi) in zip(words, intervals[v])]
        cells: list[Text | str] = [str(len(p)), _likeliest(p, words, graph.states(v))]
        if by_column:
            cells = _by_column(p, words)
        cells += [""] * (len(titles) - len(cells))
        if refuted is not None:
            cells.append(Text("refuted", style="bold yellow") if refuted[v] else "")
        table.add_row(graph.name(v), *cells)
    return table


def columns_of(graph: FactorGraph, variables: Sequence[int], most: int) -> list[str]:
    """Titles of columns for states, if they are few and called alike; else none."""
    longest = max((graph.states(v) for v in variables), key=len)
    alike = all(graph.states(v) == longest[: graph.n_states[v]] for v in variables)
    return [f"p({visible(s)})" for s in longest] if alike and len(longest) <= most else []


def _by_column(p: NDArray, words: list[str]) -> list[Text | str]:
    top = int(np.argmax(p))
    return [Text(word, style="bold" if s == top else "") for s, word in enumerate(words)]


def _likeliest(p: NDArray, words: list[str], names: Sequence[str]) -> str:
    order = np.argsort(-p, kind="stable")[:MOST_STATES]
    text = "  ".join(f"{visible(names[s])}: {words[s]}" for s in order)
    more = len(p) - len(order)
    return f"{text}  +{more} more" if more else text


def probability(p: float) -> str:
    """Four digits; a small one keeps its size rather than reading as zero."""
    return f"{p:.0e}" if 0 < p < 5e-5 else f"{p:.4f}"


def ends(lo: float, hi: float) -> str:
    """An interval, rounded outward: what is printed holds, too."""
    return "[{}, {}]".format(*outward(lo, hi))


def status(marginals: Marginals) -> Text:
    text = marginals.status.value
    if marginals.iterations:
        text += f" after {counted(marginals.iterations, 'iteration')}"
    if marginals.error_estimate is not None:
        text += f", estimated error {marginals.error_estimate:.1e}"
    if marginals.still_to_move:
        text += f"; more iterations would move it by about {marginals.still_to_move:.1g}"
    return Text(text, style="green" if marginals.converged else "bold yellow")


def summary(name: str, marginals: Marginals, read: float) -> dict[str, str | Text]:
    lines: dict[str, str | Text] = {
        "model": f"{name}: {describe(marginals.graph)}",
        "solver": repr(marginals.solver),
        "why": marginals.note,
        "status": status(marginals),
        "advice": options_in(marginals.advice),
        "log Z": log_z(marginals),
        "time": f"{duration(marginals.seconds)}, compiling or loading kernels included; "
        f"reading the model {duration(read)}",
    }
    return {key: value for key, value in lines.items() if value}


def options_in(advice: str) -> str:
    """The advice of the Python API in the words of the command line."""
    words = []
    for word in advice.split():
        head, equals, value = word.partition("=")
        bare = head.strip(",:;.")
        if equals or bare in ("max_iters", "time_limit", "n_sweeps"):
            flag = "--" + bare.replace("_", "-")
            value = value.replace("'", "")
            word = f"{head.replace(bare, flag)} {value}" if equals else head.replace(bare, flag)
        words.append(word)
    return " ".join(words)


def facts(lines: Mapping[str, str | Text]) -> Table:
    """``name  value`` lines, the values aligned and wrapped."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in lines.items():
        grid.add_row(key, line(value))
    return grid


def log_z(marginals: Marginals) -> str:
    value = marginals.log_z
    if math.isnan(value):
        return "this solver gives none"
    kind = marginals.log_z_kind.value
    return f"{value:.8g} ({kind}); log10 Z = {value / math.log(10):.8g}"


# ---------------------------------------------------------------------- models


def describe(graph: FactorGraph) -> str:
    """``7 variables of 2 to 4 states; ...``, as the graph prints itself."""
    return repr(graph).removeprefix("FactorGraph(").removesuffix(")")


def model_info(graph: FactorGraph) -> dict[str, Any]:
    return {
        "variables": graph.n_variables,
        "factors": graph.n_factors,
        "states": int(graph.n_states.sum()),
        "max_states": int(graph.n_states.max(initial=0)),
        "max_arity": int(graph.arity.max(initial=0)),
        "observed": graph.n_observed,
    }


# ---------------------------------------------------------------------- small things


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


# ---------------------------------------------------------------------- pictures

_HALF_BLOCKS = " ▀▄█"
_ASCII = " '.:"
# Dots of a braille character, row by row: the bit of each in its code point.
_BRAILLE = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


def picture(pixels: NDArray, width: int) -> list[str]:
    """A binary picture as lines of text that fit the width: half blocks, or braille if narrow."""
    if not can_print(_HALF_BLOCKS):
        return _pairs_of_rows(pixels, _ASCII)
    if pixels.shape[1] <= width:
        return _pairs_of_rows(pixels, _HALF_BLOCKS)
    return _braille(pixels)


def can_print(characters: str) -> bool:
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _pairs_of_rows(pixels: NDArray, characters: str) -> list[str]:
    """Two pixels above each other per character."""
    on = np.pad(pixels.astype(int), ((0, len(pixels) % 2), (0, 0)))
    cells = on[0::2] + 2 * on[1::2]
    return ["".join(characters[c] for c in row) for row in cells]


def _braille(pixels: NDArray) -> list[str]:
    """Two by four pixels per character."""
    height, width = pixels.shape
    on = np.pad(pixels.astype(int), ((0, -height % 4), (0, -width % 2)))
    blocks = on.reshape(on.shape[0] // 4, 4, on.shape[1] // 2, 2)
    codes = 0x2800 + np.einsum("aibj,ij->ab", blocks, _BRAILLE)
    return ["".join(map(chr, row)) for row in codes]


def side_by_side(titles: list[str], pictures: list[NDArray], to: Console) -> None:
    """Pictures of one size in a row, each under its title."""
    gap = "   "
    width = PAGE if to.width == UNWRAPPED else to.width
    room = (width - len(gap) * (len(pictures) - 1)) // len(pictures)
    drawn = [picture(p, room) for p in pictures]
    wide = len(drawn[0][0])
    rows = list(zip(*([t[:wide], *lines] for t, lines in zip(titles, drawn))))
    if wide > room:  # not even so: below each other
        rows = [(line,) for t, lines in zip(titles, drawn) for line in [t, *lines]]
    for row in rows:
        to.print(gap.join(part.ljust(wide) for part in row).rstrip(), no_wrap=True, crop=False)
