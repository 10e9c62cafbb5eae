"""Where learning's benchmarks keep results, and the page whose sections are made from them."""

from __future__ import annotations

from typing import Any

from minfer_experiments.pages import write_section
from minfer_experiments.results import Results
from places import DOCS, RESULTS

FILE, PAGE = RESULTS / "learning.json", DOCS / "learning-measured.md"


def keep(part: str, found: Any, text: str) -> None:
    """Keep what was measured and write its section; other parts stay as they were."""
    Results(FILE).keep(part, found)
    write_section(PAGE, part, text)
