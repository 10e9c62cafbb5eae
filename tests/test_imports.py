"""Layers hold, and importing minfer stays cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import minfer

PACKAGE = Path(minfer.__file__).parent

# each layer may import from itself and from layers above it in this list
LAYERS = [
    {"errors", "notebook", "words"},
    {"factors"},
    {"checks", "parallel"},
    {"kernels"},
    {"graph"},
    {"conditioning"},
    {"wiring", "elimination"},
    {"solvers", "planning"},
    {"reduction"},
    {"io", "examples", "interop", "pictures", "plots"},
    {"denoising", "parsing"},
    {"paper", "batch"},
    {"report"},
    {"cli", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def module_imports(path: Path, top_only: bool = False):
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_layers():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if name == "__init__":
            continue
        for module in module_imports(path, top_only=True):
            parts = module.split(".")
            if parts[0] == "minfer" and len(parts) > 1:
                assert LEVEL[parts[1]] <= LEVEL[name], f"{path} imports {module}"


def test_numba_only_in_kernels_and_rich_only_in_cli():
    for path in sorted(PACKAGE.rglob("*.py")):
        layer = path.relative_to(PACKAGE).parts[0]
        for module in module_imports(path):
            top = module.split(".")[0]
            if top == "numba" and layer != "kernels":
                assert layer == "cli", f"{path} imports numba"  # doctor and demo ask for versions
            if top in ("rich", "typer"):
                assert layer == "cli", f"{path} imports {top}"
            if top == "matplotlib":
                assert layer in ("cli", "plots.py"), f"{path} imports matplotlib"
                assert top not in module_imports(path, top_only=True), f"{path}: import it late"
            if top in ("ray", "pyarrow"):
                assert layer == "batch", f"{path} imports {top}"
                assert top != "ray" or top not in module_imports(path, top_only=True), path
            assert top != "torch", f"{path} imports {top}"


def test_import_loads_neither_numba_nor_scipy():
    code = (
        "import sys, time; t = time.process_time(); import minfer; "
        "print(time.process_time() - t, [m for m in ('numba', 'scipy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split(" ", 1)[1].strip() == "[]"


def test_public_names_exist():
    for name in minfer.__all__:
        assert getattr(minfer, name) is not None
    assert minfer.__version__
