"""What notebooks and terminals show of graphs and answers: a title and a small table.

In HTML no script, no style sheet, no plotting library; everything that is not ours to know is
escaped. A :class:`Face` is written once and shown in all three places: as text, as HTML, and by the
command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minfer.errors import visible


def card(
    title: str, text: str, head: Sequence[str], rows: Iterable[Sequence[object]], foot: str = ""
) -> str:
    """A bold title with a text, a table under it, and a line at the foot.

    Numbers are set right, an int with its thousands apart and a float with four digits.
    """
    from html import escape  # a large module, which terminals do not need

    parts = [f"<div><b>{escape(title)}</b> {_safe(text)}", "<table>"]
    if head:
        parts.append(f"<thead><tr>{''.join(f'<th>{escape(h)}</th>' for h in head)}</tr></thead>")
    body = "".join(f"<tr>{''.join(_cell(x) for x in row)}</tr>" for row in rows)
    parts.append(f"<tbody>{body}</tbody></table>")
    if foot:
        parts.append(f"<p>{_safe(foot)}</p>")
    return "".join(parts) + "</div>"


class Face(NamedTuple):
    """What there is to say: the conclusion first, then a table, then notes by name."""

    conclusion: str
    head: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    notes: Mapping[str, str] = {}
    bold: frozenset[int] = frozenset()  # rows that stand out in a terminal
    more: str = ""  # what the table leaves out

    def text(self) -> str:
        """Plain lines; columns of numbers are set right."""
        cells = [self.head, *([words(x) for x in row] for row in self.rows)]
        wide = [max(len(row[k]) for row in cells) for k in range(len(self.head))]
        numbers = [self.is_number(k) for k in range(len(self.head))]
        lines = [visible(self.conclusion), ""]
        for row in cells:
            line = (x.rjust(w) if n else x.ljust(w) for x, w, n in zip(row, wide, numbers))
            lines.append("  ".join(line).rstrip())
        lines += [f"  {self.more}"] * bool(self.more)
        if self.notes:
            lines += ["", *(f"{name}: {visible(text)}" for name, text in self.notes.items())]
        return "\n".join(lines)

    def html(self, title: str) -> str:
        notes = (f"{name}: {text}" for name, text in self.notes.items())
        foot = "; ".join(filter(None, [self.more, *notes]))
        return card(title, self.conclusion, self.head, self.rows, foot)

    def is_number(self, column: int) -> bool:
        return any(isinstance(row[column], (int, float, Right)) for row in self.rows)


class Right(str):
    """A cell that is a number with its unit: set right, like a number."""

    __slots__ = ()


class Bold(Right):
    """One that stands out in a terminal."""

    __slots__ = ()


class Faced:
    """Answers with a face: ``print`` gives all of it, ``repr`` the conclusion, notebooks a card."""

    def face(self) -> Face:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.face().text()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({visible(self.face().conclusion)})"

    def _repr_html_(self) -> str:
        return self.face().html(type(self).__name__)


def words(value: object) -> str:
    """A cell as text: an int with its thousands apart, a float with four digits."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else visible(str(value))


def _cell(value: object) -> str:
    side = "right" if isinstance(value, (int, float, Right)) else "left"
    return f"<td style='text-align:{side}'>{_safe(words(value))}</td>"


def _safe(text: str) -> str:
    from html import escape

    return escape(visible(text))
