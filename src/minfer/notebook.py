"""What notebooks show of graphs and answers: a title and a small table, as plain HTML.

No script, no style sheet, no plotting library; everything that is not ours to know is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from minfer.words import visible


def card(
    title: str, text: str, head: Sequence[str], rows: Iterable[Sequence[object]], foot: str = ""
) -> str:
    """A bold title with a text, a table under it, and a line at the foot.

    Numbers are set right, an int with its thousands apart and a float with four digits.
    """
    parts = [f"<div><b>{escape(title)}</b> {_safe(text)}", "<table>"]
    if head:
        parts.append(f"<thead><tr>{''.join(f'<th>{escape(h)}</th>' for h in head)}</tr></thead>")
    body = "".join(f"<tr>{''.join(_cell(x) for x in row)}</tr>" for row in rows)
    parts.append(f"<tbody>{body}</tbody></table>")
    if foot:
        parts.append(f"<p>{_safe(foot)}</p>")
    return "".join(parts) + "</div>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"<td style='text-align:right'>{value:,}</td>"
    if isinstance(value, float):
        return f"<td style='text-align:right'>{value:.4g}</td>"
    return f"<td style='text-align:left'>{_safe(str(value))}</td>"


def _safe(text: str) -> str:
    return escape(visible(text))
