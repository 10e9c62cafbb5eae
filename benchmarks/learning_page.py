"""Sections of docs/learning-measured.md, each between two comments and written by one benchmark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "learning-measured.md"


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Put a section in the place of the one before, or at the end of the page."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    whole = page.read_text("utf-8") if page.exists() else "# Learning, measured\n"
    section = f"{begin}\n{text.strip()}\n{end}"
    found = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if found.search(whole):
        whole = found.sub(lambda _: section, whole)
    else:
        whole = f"{whole.rstrip()}\n\n{section}\n"
    page.write_text(whole, "utf-8")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
