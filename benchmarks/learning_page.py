"""Results of learning's benchmarks, and sections of docs/learning-measured.md made from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "learning.json"
PAGE = HERE.parent / "docs" / "learning-measured.md"


def stored() -> dict[str, Any]:
    """What was measured, by part."""
    return json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}


def store(part: str, rows: Any) -> None:
    """Keep what was measured; other parts stay as they were."""
    RESULTS.write_text(json.dumps(stored() | {part: rows}, indent=1) + "\n", "utf-8")


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Put a text between the page's markers of that name."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    head, rest = page.read_text("utf-8").split(begin, 1)
    page.write_text(f"{head}{begin}\n\n{text.strip()}\n\n{end}{rest.split(end, 1)[1]}", "utf-8")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
