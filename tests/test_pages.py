"""Every table that a command makes is in the list of commands, with its day and machine."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from test_docs import ROOT, run_shell

if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the benchmarks are not here", allow_module_level=True)

REFERENCE = ROOT / "docs" / "reference"
#: Between markers, and not measured.
OTHERS = {"when", "made"}


@pytest.fixture(scope="module")
def listed() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("pages")


def markers(page: Path) -> list[str]:
    return re.findall(r"^<!-- begin (.*) -->$", page.read_text("utf-8"), flags=re.M)


def test_every_section_is_in_the_list_once(listed: Any) -> None:
    there = [(p, name) for p in REFERENCE.rglob("*.md") for name in markers(p)]
    known = [(listed.page_of(made), name) for made in listed.MADE for name in made.sections]
    assert sorted(known) == sorted((p.resolve(), name) for p, name in there if name not in OTHERS)


def test_every_page_with_tables_says_when_and_where(listed: Any) -> None:
    for page, made in listed.pages().items():
        text = " ".join(page.read_text("utf-8").split())
        stamps = [stamp for one in made for stamp in listed.stamps(one)]
        assert stamps or not any(one.sections or one.kept for one in made), page.name
        if "begin when" in text:
            assert listed.sentence(made) in text, f"{page.name}: run benchmarks/pages.py --write"
        else:
            assert all(day in text and machine in text for _, day, machine in stamps), page.name


def test_the_list_on_its_page_is_this_one(listed: Any) -> None:
    assert listed.listing() in listed.LIST.read_text("utf-8"), "run benchmarks/pages.py --write"


def test_what_is_kept_is_stamped(listed: Any) -> None:
    for made in listed.MADE:
        if made.kept.endswith(".json") and (listed.RESULTS / made.kept).exists():
            parts = {part for part, _, _ in listed.stamps(made)}
            assert parts, made.what
            assert all(re.fullmatch(r"2\d{3}-\d\d-\d\d", day) for _, day, _ in listed.stamps(made))


def test_commands_of_the_list_are_there(listed: Any) -> None:
    for made in listed.MADE:
        for one in [*made.measure, *([made.write] if made.write else [])]:
            first = shlex.split(one)[0]
            if first == "minfer":
                run_shell(one, 0, run_it=False)
            elif first.endswith(".py"):
                assert (ROOT / listed.command(one)[1]).exists(), one


def test_the_list_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "pages.py", "--run", "no such page"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no page no such page" in done.stderr
