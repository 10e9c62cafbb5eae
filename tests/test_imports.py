"""Layers hold, importing minfer stays cheap, and a first call compiles what it needs alone."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import pytest

import minfer
from sources import parsed

PACKAGE = Path(minfer.__file__).parent

# each layer may import from itself and from layers above it in this list: the table of
# docs/architecture.md, from its last row to its first
LAYERS = [
    {"kernels"},
    {"errors", "basics", "plots", "say"},
    {"factors", "model", "graph"},
    {"engine"},
    {"device"},
    {"solvers"},
    {"queries"},
    {"certified"},
    {"reduction"},
    {"io", "interop", "pictures"},
    {"images", "parsing", "prediction", "learn", "through_time"},
    {"stereo", "rules", "batch", "examples", "torch"},
    {"report"},
    {"upkeep"},
    {"cli", "__main__"},
]
MOST_LEVELS = 11
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


#: Late imports from a later layer, each with its reason. One that is gone must leave this list.
LATE_BREAKS = {
    ("solvers/portfolio.py", "minfer.certified.search"): "the answer of Auto(time_limit=...) is "
    "clipped into certified intervals, which know no solver",
    (
        "kernels/compiling/answers.py",
        "minfer.errors",
    ): "a kernel that is wrong is an error of ours, not of numba's",
}


class Import(NamedTuple):
    module: str
    line: int
    late: bool  # inside a function: it runs when that is called


class Finder(ast.NodeVisitor):
    """Every import of a file that is ever run: anywhere but under ``if TYPE_CHECKING``.

    A name taken from ``minfer`` itself (``from minfer import Exact``, or ``minfer.Exact`` after
    ``import minfer``) counts as an import of the module it lives in.
    """

    def __init__(self, path: Path) -> None:
        self.package = ["minfer", *path.relative_to(PACKAGE).parts[:-1]]
        self.found: list[Import] = []
        self.depth = 0
        text = path.read_text("utf-8")
        self.lines = text.splitlines()
        self.visit(parsed(path))

    def add(self, module: str, node: ast.AST) -> None:
        self.found.append(Import(module, getattr(node, "lineno", 0), self.depth > 0))

    def visit_If(self, node: ast.If) -> None:
        only_types = "TYPE_CHECKING" in ast.dump(node.test)
        for child in node.orelse if only_types else ast.iter_child_nodes(node):
            self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        lines = self.lines[node.lineno - 1 : node.end_lineno]
        if not any("import" in line or "minfer" in line for line in lines):
            return  # most functions: there is nothing to find
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = self.package[: len(self.package) + 1 - node.level] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            if module == "minfer":
                self.add(home_of(alias.name), node)
            else:
                inner = f"{module}.{alias.name}"
                self.add(inner if is_module(inner) else module, node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id == "minfer":
            self.add(home_of(node.attr), node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
        by_name = called in ("import_module", "__import__")
        if by_name and node.args and isinstance(node.args[0], ast.Constant):
            self.add(str(node.args[0].value), node)
        self.generic_visit(node)


def home_of(name: str) -> str:
    """The module of a name that ``minfer`` hands out; a module or package is its own."""
    if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists():
        return f"minfer.{name}"
    return getattr(getattr(minfer, name), "__module__", "minfer")


def is_module(name: str) -> bool:
    """Whether it is a file or a folder of the package."""
    top, *parts = name.split(".")
    place = PACKAGE.joinpath(*parts)
    return top == "minfer" and (place.is_dir() or place.with_suffix(".py").exists())


@cache
def imports(path: Path) -> list[Import]:
    return Finder(path).found


def upwards() -> Iterator[tuple[str, Import]]:
    """Imports of a later layer than a file's own."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if name == "__init__":  # the package's face
            continue
        for found in imports(path):
            parts = found.module.split(".")
            if parts[0] == "minfer" and len(parts) > 1 and LEVEL[parts[1]] > LEVEL[name]:
                yield path.relative_to(PACKAGE).as_posix(), found


def test_layers():
    """Late imports keep to them too."""
    for path, found in upwards():
        assert found.late, f"{path}, line {found.line} imports {found.module}"
    assert {(path, found.module) for path, found in upwards()} == set(LATE_BREAKS)


def import_graph(late: bool) -> nx.DiGraph:
    """Which file imports which, with or without late imports."""
    graph = nx.DiGraph()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(["minfer", *path.relative_to(PACKAGE).with_suffix("").parts])
        name = name.removesuffix(".__init__")
        if name != "minfer":  # the package's face
            ends = {found.module for found in imports(path) if late or not found.late}
            graph.add_edges_from((name, end) for end in ends - {name, "minfer"} if is_module(end))
    return graph


def test_no_circle_of_imports_and_few_levels():
    """Late ones count: files that import each other can only be read together."""
    graph = import_graph(late=True)
    circles = [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1]
    assert circles == []
    chain = nx.dag_longest_path(import_graph(late=False))
    assert len(chain) <= MOST_LEVELS, " > ".join(chain)


def test_what_makes_graphs_does_not_know_them():
    """Nor by their annotations: builders take whatever can grow."""
    for path in (PACKAGE / "model").glob("*.py"):
        if path.stem != "drawn":  # samples name variables of a graph, which makes none
            found = [n for n in ast.walk(parsed(path)) if isinstance(n, ast.ImportFrom)]
            assert "FactorGraph" not in {alias.name for n in found for alias in n.names}, path


def test_numba_only_in_kernels_and_rich_only_in_cli():
    for path in sorted(PACKAGE.rglob("*.py")):
        layer = path.relative_to(PACKAGE).parts[0]
        for found in imports(path):
            top = found.module.split(".")[0]
            if top == "numba" and layer != "kernels":
                assert layer == "cli", f"{path} imports numba"  # doctor and demo ask for versions
            if top in ("rich", "typer"):
                assert layer == "cli", f"{path} imports {top}"
            if top == "matplotlib":
                assert layer in ("cli", "plots.py"), f"{path} imports matplotlib"
                assert found.late, f"{path}: import it late"
            if top == "ray":
                assert layer in ("batch", "learn"), f"{path} imports {top}"
            if top in ("pyarrow", "pandas", "polars"):
                evidence = path == PACKAGE / "model" / "evidence.py"
                assert evidence or layer in ("batch", "prediction", "rules"), (
                    f"{path} imports {top}"
                )
                assert top != "ray" or found.late, path
            if top == "torch":
                stream = path == PACKAGE / "device" / "cuda.py"  # of the tensors that it is given
                assert layer == "torch" or (stream and found.late), f"{path} imports {top}"
            if top == "duckdb":
                assert layer == "rules", f"{path} imports {top}"
                assert found.late, f"{path}: import it late"


def test_class_names_have_one_home():
    """But for those that two packages promise their users."""
    homes: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, set()).add(path.relative_to(PACKAGE).as_posix())
    assert {name for name, found in homes.items() if len(found) > 1} == {"Plan", "Query"}


def test_kernels_take_few_arguments():
    """What needs more takes a named structure."""
    for path in PACKAGE.rglob("kernels/**/*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef):
                assert len(node.args.args) <= 12, f"{path}: {node.name}"


def test_loose_modules_are_those_that_are_promised():
    loose = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    promised = (Path(__file__).parents[1] / "docs" / "stable.md").read_text("utf-8")
    assert {name for name in loose if f"`minfer.{name}" not in promised} == set()


def test_the_experiments_are_beside_the_package():
    """One command starts them, and nothing else knows them."""
    users = {p.name for p in PACKAGE.rglob("*.py") if "minfer_experiments" in p.read_text("utf-8")}
    assert users == {"paper.py"}


def test_import_loads_neither_numba_nor_scipy():
    code = "import sys, minfer; print([m for m in ('numba', 'scipy') if m in sys.modules])"
    code += "; minfer.queries.prepare; minfer.interop.from_pgmpy"  # by their full names
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_query_loads_no_kernels_of_parse_trees():
    code = """
import sys
from minfer import FactorGraph, query
rows = [[0.9, 0.1], [0.2, 0.8]]
tables = {f"v{k}": (f"v{k - 1}", rows) for k in range(1, 20)}  # too many for a joint table
names = dict.fromkeys(["v0", *tables], 2)
query(FactorGraph.network(names, {"v0": [0.6, 0.4], **tables}), "v9", {"v0": 1, "v19": 1})
print(*sorted(m for m in sys.modules if m.startswith("minfer.kernels.")))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("minfer.kernels.") for name in out.stdout.split()}
    assert "cliques.rows" in loaded
    assert not {m for m in loaded if m.startswith("trees") or m == "messages.spanning"}


#: One process, so that each case adds to what those before it compiled.
FIRST_CALLS = """
import json
import numpy as np
from numba.core import event
from typer.testing import CliRunner
import minfer
from minfer import BeliefPropagation, Exact, FactorGraph
from minfer.cli import app
from minfer.examples import sprinkler

names = []

class Listener(event.Listener):
    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        names.append(f"{function.__module__}.{function.__name__}")

    def on_end(self, event):
        pass

event.register("numba:compile", Listener())
found = {}

def note(case):
    found[case] = [name for name in names if name.startswith("minfer.")]
    names.clear()

minfer.query(sprinkler(), "rain", {"wet_grass": 1})
seen = Exact()(sprinkler().with_evidence({"wet_grass": 1}))
assert seen.log_z and seen.factor(0).size and seen.joint("rain", "sprinkler")
Exact(method="enumerate")(sprinkler()).log_z
note("exact")
rng = np.random.default_rng(0)
m = BeliefPropagation()(FactorGraph.grid(rng.normal(size=(24, 24)), 0.5))
assert m.converged and m.log_z
note("grid")
again = BeliefPropagation()(FactorGraph.grid(rng.normal(size=(3, 9)), 1.0))
assert again.converged
note("another grid")
seen = FactorGraph.grid(rng.normal(size=(24, 24)), 0.5).with_evidence({30: 1, 100: 0, 301: 1})
seen = BeliefPropagation()(seen)
assert seen.converged and seen.log_z
note("evidence")
result = CliRunner().invoke(app, ["demo"])
assert result.exit_code == 0, result.output
note("demo")
print(json.dumps(found))
"""


@pytest.mark.slow
def test_the_first_calls_compile_what_they_need_and_nothing_else(tmp_path):
    places = {"PYTHONPATH": str(PACKAGE.parent), "MINFER_CACHE_DIR": str(tmp_path)}
    call = [sys.executable, "-c", FIRST_CALLS]
    done = subprocess.run(call, env={**os.environ, **places}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    compiled = json.loads(done.stdout)
    assert compiled["exact"] == []
    names = compiled["grid"]
    assert "minfer.kernels.messages.odds.sweep_pairs" in names
    modules = {name.rpartition(".")[0].removeprefix("minfer.kernels.") for name in names}
    assert modules <= {"messages.odds", "messages.bethe", "messages.wiring", "messages.tables"}
    needless = {
        "walk_pairs", "wake_all", "factor_message", "contract", "damped", "general_terms",
        "tree_slack", "peel",
    }  # fmt: skip
    assert not needless & {name.rpartition(".")[2] for name in names}
    assert len(names) <= 25
    assert compiled["another grid"] == []  # nothing depends on size or numbers
    assert compiled["evidence"] == []  # observed variables make no run a mixed one
    names = compiled["demo"]
    modules = {name.split(".")[-2] for name in names}
    assert modules <= {"walks", "deepening"}
    assert len(names) <= 10
