"""Five tasks, done by a script of nothing but blocks of the ten pages.

The script is a file in an empty folder, run by a Python of its own; what it prints is what the
pages say. For each task it takes the first block of Python under one heading, so that a reader who
copies only that block gets as far.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from test_docs import ROOT, Block, assert_prints, blocks

#: Task: the page and the heading.
TASKS = {
    "a query on a network typed in": ("start", "A network, typed in"),
    "predictions over a table": ("rows", "A table of cases"),
    "an interval": ("how-far-off", "Ask"),
    "a parsed sentence": ("paper", "A parser"),
    "an answered rule": ("rules", "A program"),
}
BETWEEN = "----------"


def shown(page: str, heading: str, folder: Path) -> tuple[str, str]:
    """The first block of Python under a heading, and what it prints."""
    text = (ROOT / "docs" / "path" / f"{page}.md").read_text("utf-8")
    [part] = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S)
    alone = folder / "part.md"
    alone.write_text(part, "utf-8")
    found: list[Block] = blocks(alone)
    at = next(i for i, block in enumerate(found) if block.language == "python")
    code, printed = found[at : at + 2]
    assert (printed.language, printed.follows) == ("text", True), "it shows what it prints"
    return code.text, printed.text


def test_a_script_of_copied_blocks_does_five_tasks(tmp_path):
    pytest.importorskip("duckdb")
    pairs = [shown(*where, tmp_path) for where in TASKS.values()]
    (tmp_path / "part.md").unlink()
    script = tmp_path / "tasks.py"
    script.write_text(f'\nprint("{BETWEEN}")\n'.join(code for code, _ in pairs), "utf-8")
    ran = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    printed = ran.stdout.split(f"{BETWEEN}\n")
    for (_, expected), got in zip(pairs, printed, strict=True):
        assert_prints(expected, got)
