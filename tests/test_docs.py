"""What the documentation shows is run: Python blocks and doctests; the public API is described."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import minfer

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = [
    "denoising",
    "graph",
    "interop.arrays",
    "io.fg",
    "io.native",
    "io.uai",
    "parallel",
    "parsing.calibration",
    "parsing.conllu",
    "parsing.drawing",
    "parsing.graphs",
    "planning",
    "reduction.calibrate",
    "reduction.explain",
    "reduction.infer",
    "reduction.objectives",
    "reduction.relax",
    "reduction.sources",
    "reduction.tradeoff",
    "report",
    "solvers.auto",
    "solvers.bp",
    "solvers.exact",
    "solvers.gibbs",
    "solvers.mean_field",
    "solvers.trw",
]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.M | re.S)


@pytest.mark.parametrize("page", [p for p in PAGES if p.exists()], ids=lambda p: p.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """All blocks of a page in order, in one namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    for block in blocks(page):
        exec(compile(block, f"{page.name}", "exec"), namespace)


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    module = importlib.import_module(f"minfer.{name}")
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert failed == 0


def test_public_api_has_docstrings_and_types():
    for name in minfer.__all__:
        thing = getattr(minfer, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            members = [m for k, m in vars(thing).items() if not k.startswith("_")]
            functions = [m for m in members if inspect.isfunction(m)]
        else:
            functions = [thing] if inspect.isfunction(thing) else []
        for function in functions:
            assert inspect.getdoc(function), f"{name}.{function.__name__}"
            assert "return" in function.__annotations__, f"{name}.{function.__name__}"


def test_readme_shows_the_two_commands():
    text = (ROOT / "README.md").read_text()
    section = text.split("<!-- the two commands -->")[1].split("<!-- end -->")[0]
    commands = [line for line in section.splitlines() if line.startswith("python3 ")]
    assert commands == ["python3 bootstrap.py demo", "python3 bootstrap.py test"]
