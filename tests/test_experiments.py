"""What all experiments share: clocks, tables, sections, stored results; scripts still fit."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from minfer import FormatError
from minfer_experiments import measure, pages
from minfer_experiments.results import Results, together

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "benchmarks"
DOCS = ROOT / "docs" / "reference"
needs_scripts = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="the benchmarks are not here")


class Clock:
    """CPU seconds pass only as calls say."""

    def __init__(self) -> None:
        self.now = 0.0

    def spend(self, *seconds: float):
        left = list(seconds)

        def call() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    for name in ("process_time", "perf_counter", "thread_time"):
        monkeypatch.setattr(time, name, lambda: found.now)
    return found


def test_one_call(clock):
    assert measure.cpu_seconds(clock.spend(1.0, 2.0, 3.0), 3) == 2.0
    assert measure.wall_seconds(clock.spend(2.0)) == measure.thread_seconds(clock.spend(2.0)) == 2.0
    assert measure.timed(lambda: clock.spend(4.0)() or "answer") == (4.0, "answer")
    with measure.Stopwatch() as spent:
        clock.spend(3.0)()
    clock.spend(5.0)()
    assert (spent.cpu, spent.wall) == (3.0, 3.0)
    assert measure.sample(clock.spend(4.0, 2.0, 3.0), 9.0) == 3.0
    assert measure.quickest(clock.spend(4.0, 2.0, 3.0), 9.0) == 2.0
    assert measure.quickest(clock.spend(1.0), 0.0) == math.inf
    assert measure.repeats(clock.spend(0.9, 0.004)) == 3  # the first call is the warm-up
    assert measure.usual(clock.spend(9.0, 1.0, 2.0), 3) == 2.0
    calls = {"quick": clock.spend(1.0), "slow": clock.spend(9.0)}
    found = measure.in_turn(calls, 4, warm_up=False, fewer=lambda first: 9 if first < 5 else 2)
    assert found == {"quick": [1.0] * 4, "slow": [9.0] * 2}
    found = measure.in_turn({"a": clock.spend(9.0, 1.0, 9.0, 1.0)}, 5, slow=5.0)
    assert found == {"a": [1.0, 9.0]}  # the warm-up does not count


def test_contenders_take_turns():
    seen: list[str] = []
    calls = {name: lambda name=name: seen.append(name) or len(seen) for name in "ab"}
    found = measure.in_turn(calls, 2, timer=measure.told)
    assert seen == list("ababab")
    assert found == {"a": [3, 5], "b": [4, 6]}  # the first round is the warm-up
    seen.clear()
    measure.in_turn(calls, 3, warm_up=False, there_and_back=True, timer=measure.told)
    assert seen == list("abbaab")
    found = {"a": [1.0, 9.0, 2.0], "b": [1.0, 3.0, 4.0]}
    assert measure.medians(found) == {"a": 2.0, "b": 3.0}
    assert measure.least({**found, "c": []}) == {"a": 1.0, "b": 1.0, "c": math.inf}
    assert measure.median_ratio(found["a"], found["b"]) == 1.0
    stamp = measure.about("pytest", "no-such-package")
    assert set(stamp) == {"date", "cpu", "python", "code", "versions"}
    assert stamp["versions"]["pytest"]
    assert stamp["versions"]["no-such-package"] == ""
    assert measure.peak() > 1 << 20
    # Workers in other libraries' environments load the file by its path.
    tree = ast.parse(Path(measure.__file__).read_text())
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= {*sys.stdlib_module_names}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no pinning here")
def test_a_script_runs_pinned_and_as_anybody_runs_it(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    # By one call in its main function; what pins itself is not pinned where it is loose.
    monkeypatch.delenv(measure.WAY, raising=False)
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(measure.__file__).parent)!r})\n"
        "import json, os, measure\n\n"
        "def measured():\n    measure.pin()\n"
        "    return [len(os.sched_getaffinity(0)), len(measure.one_thread()), sys.argv[1:]]\n\n"
        "found = measure.in_both_ways(__file__, measured)\n"
        "if found is not None:\n    print(json.dumps(found))\n"
    )
    shown = subprocess.check_output([sys.executable, str(script), "--turns=2"], text=True)
    cores, variables = len(os.sched_getaffinity(0)), len(measure.ONE_THREAD)
    assert json.loads(shown) == {
        "pinned": [1, variables, ["--turns=2"]],
        "loose": [cores, 0, ["--turns=2"]],
    }


def test_tables_sections_claims_and_records(tmp_path):
    text = pages.table(["", "b"], iter([["1", ""], ["2", "x"]]))
    assert text == "| | b |\n|---|---|\n| 1 | |\n| 2 | x |"
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin a -->\nold\n<!-- end a -->\nafter\n<!-- begin ab -->\n")
    pages.write_section(page, "a", "\nnew\n")
    assert page.read_text() == (
        "before\n<!-- begin a -->\n\nnew\n\n<!-- end a -->\nafter\n<!-- begin ab -->\n"
    )
    for name in ("ab", "c"):  # not closed, not there
        with pytest.raises(FormatError, match=f"begin {name} -->"):
            pages.write_section(page, name, "new")
    claim = pages.Claim("it holds", False, "0.1")
    assert pages.claims_table([claim]).splitlines()[-1] == "| it holds | **no** | 0.1 |"

    class Row(NamedTuple):
        name: str
        n: int
        x: float

    assert pages.record(Row("a", 1, 1 / 3)) == {"name": "a", "n": "1", "x": "0.333333"}
    assert pages.record(Row("a", 1, math.nan))["x"] == ""


def test_parts_are_kept_with_when_and_where(tmp_path):
    path = tmp_path / "new" / "found.json"
    Results(path).keep("first", [1], {"date": "2020-01-02"})
    again = Results(path)
    again.keep("second", {"x": 2})
    assert again.parts == {"first": [1], "second": {"x": 2}}
    assert json.loads(path.read_text()) == again.found
    assert again.found["about"]["second"]["python"]
    assert together(again.found, "date")[0] == "2020-01-02"
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    again.forget(["first", "unknown"])
    assert Results(path).parts == {"second": {"x": 2}}
    path = tmp_path / "found.json"
    for results in (Results(path, dry=True), Results(None)):
        results.keep("part", 1)
        assert results.parts == {"part": 1}
    assert not path.exists()


def script(name: str) -> ModuleType:
    """A script as a module; some have the names of modules here."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        spec = importlib.util.spec_from_file_location(f"script_{name}", SCRIPTS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(SCRIPTS))


def top_names(path: Path) -> set[str]:
    out: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            out.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            out.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            out |= {(a.asname or a.name).split(".")[0] for a in node.names}
    return out


@needs_scripts
@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_what_a_script_imports_is_there(path):
    """Names of minfer and of other scripts: these run too rarely for anybody to notice."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        names = [alias.name for alias in node.names]
        sibling = SCRIPTS / f"{node.module}.py"
        if node.module.split(".")[0] == "minfer":
            pytest.importorskip("torch") if node.module.startswith("minfer.torch") else None
            module = importlib.import_module(node.module)
            for name in names:
                inner = f"{node.module}.{name}"
                there = hasattr(module, name) or importlib.util.find_spec(inner) is not None
                assert there, f"line {node.lineno}: {inner}"
        elif sibling.exists():
            assert set(names) <= top_names(sibling), f"line {node.lineno}: {node.module}"


@needs_scripts
def test_pages_are_what_the_results_say(tmp_path):
    """How far off, learning, parsing, the method; test_peers has peers and networks."""
    pytest.importorskip("pandas")
    made = {
        "parsing.md": lambda r: script("parsing_page").sections(r.parts),
        "learning-measured.md": lambda r: script("learning").page(r.parts),
        "method.md": lambda r: script("method_page").sections(r.found),
        "how-far-off.md": None,
    }
    for name, sections in made.items():
        page = tmp_path / name
        page.write_text((DOCS / name).read_text("utf-8"), "utf-8")
        stem = {"how-far-off": "certified"}.get(page.stem, page.stem.split("-")[0])
        results = Results(SCRIPTS / "results" / f"{stem}.json", dry=True)
        if sections is None:
            script("certified").write_page(page, results.found)
        else:
            pages.write_sections(page, sections(results))
        assert page.read_text("utf-8") == (DOCS / name).read_text("utf-8")
