"""How experiments write pages: Markdown tables, numbers in them, sections between markers."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from minfer.basics.notebook import Face
from minfer.errors import FormatError
from minfer.io.owned import Owned
from minfer.io.text import write_bytes, write_records
from minfer_experiments.measure import about


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table.

    >>> print(table(["tool", "ms"], [["ours", "1.5"]]))
    | tool | ms |
    |---|---|
    | ours | 1.5 |
    """
    return "\n".join([line(head), "|---" * len(head) + "|", *map(line, rows)])


def line(cells: Iterable[str]) -> str:
    """One line of a table, for those that are printed while it is made."""
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def number(x: float | None, digits: int = 3) -> str:
    """So many significant digits without an exponent; ``-`` for None.

    >>> number(12345.6), number(0.012345), number(None)
    ('12,346', '0.0123', '-')
    """
    if x is None:
        return "-"
    if x == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(x))))
    return f"{x:,.{places}f}"


def write_section(page: Path, name: str, text: str) -> None:
    """Put a text between the page's markers ``<!-- begin NAME -->`` and ``<!-- end NAME -->``."""
    write_sections(page, {name: text})


def write_sections(page: Path, made: Mapping[str, str]) -> None:
    """The same of several, by name; the file is written once."""
    out = page.read_text("utf-8")
    for name, text in made.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        head, found, rest = out.partition(begin)
        _, closed, tail = rest.partition(end)
        if not (found and closed):
            raise FormatError(f"{page}: there is no {begin} with an {end} after it")
        out = f"{head}{begin}\n\n{text.strip()}\n\n{end}{tail}"
    write_bytes(page, out.encode())


def say(text: str) -> None:
    """Tell whoever waits, on stderr, at once."""
    print(text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------------- what the paper says


class Claim(NamedTuple):
    """A statement of the paper, whether it comes out, and the numbers."""

    text: str
    holds: bool
    evidence: str

    @property
    def verdict(self) -> str:
        return "yes" if self.holds else "**no**"


def claims_table(claims: Iterable[Claim]) -> str:
    """Statement by statement."""
    rows = ([claim.text, claim.verdict, claim.evidence] for claim in claims)
    return table(["statement", "comes out", "numbers"], rows)


def record(row: Any) -> dict[str, str]:
    """A named tuple as strings, ready for a CSV file; empty where a number is NaN."""
    return {key: _cell(value) for key, value in row._asdict().items()}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return str(value)


#: Is told how far an experiment is.
Note = Callable[[str], None]


class Made(NamedTuple):
    """What an experiment gives."""

    records: Sequence[dict[str, Any]]
    page: str
    claims: Sequence[Claim]
    section: str  # of the paper
    draw: Callable[[str], None] | None = None  # to a file

    def write(self, base: str) -> Iterator[str]:
        """Write the numbers, the page and the figure to files of this name; theirs in turn.

        RefusedError if others of such a name are there.
        """
        folder, name = Path(base).parent, Path(base).name
        own = Owned(folder)
        with TemporaryDirectory(prefix="minfer-") as scratch:
            made = Path(scratch)
            write_records(made / f"{name}.csv", self.records)
            stamp = about()
            when = f"Measured: {stamp['date']}, {stamp['cpu']}."
            write_bytes(made / f"{name}.md", f"{self.page.rstrip()}\n\n{when}\n".encode())
            if self.draw is not None:
                self.draw(str(made / f"{name}.png"))
            for path in sorted(made.iterdir()):
                own.write(path.name, path.read_bytes())
                yield str(folder / path.name)

    def face(self) -> Face:
        """Statement by statement, whether it comes out."""
        rows = [(c.text, "yes" if c.holds else "NO", c.evidence) for c in self.claims]
        return Face("", (f"section {self.section} says", "comes out", "numbers"), rows)
