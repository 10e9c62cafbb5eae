"""What the first call costs: CPU seconds and compilations, from an empty kernel cache.

    python benchmarks/coldstart.py                       this checkout
    python benchmarks/coldstart.py --wheel dist/*.whl    and a wheel with machine code

Each case is a fresh process with an empty cache of its own. A second process, with the cache that
the first one left, shows what a start costs from then on. Python's bytecode is there, as an
installation leaves it.
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from stopwatch import measure

ROOT = Path(__file__).resolve().parents[1]

GRID = """
import numpy as np
from minfer import BeliefPropagation, FactorGraph
m = BeliefPropagation()(FactorGraph.grid(np.random.default_rng(0).normal(size=(24, 24)), 0.5))
assert m.converged and m.log_z
"""
SMALL = """
from minfer import Exact
from minfer.examples import sprinkler
Exact()(sprinkler().with_evidence({"wet_grass": 1})).log_z
"""
TREE = """
import numpy as np
from minfer import Exact, FactorGraph
Exact()(FactorGraph.grid(np.random.default_rng(0).normal(size=(8, 8)), 0.5)).log_z
"""
QUERY = """
import minfer
from minfer.examples import sprinkler
minfer.query(sprinkler(), "rain", {"wet_grass": 1})
"""
PARSE = """
import contextlib, io, sys
from minfer.cli import app
from typer.testing import CliRunner
result = CliRunner().invoke(app, ["parse", "run", sys.argv[1], sys.argv[2], "-o", sys.argv[3]])
assert result.exit_code == 0, result.output
"""
DEMO = """
from minfer.cli import app
from typer.testing import CliRunner
result = CliRunner().invoke(app, ["demo"])
assert result.exit_code == 0, result.output
"""
COUNTED = """
import sys
{code}
if "numba" in sys.modules:
    from minfer.kernels.compiling import jit as _jit
    misses = [sum(k.stats.cache_misses.values()) for k in _jit._KERNELS]
    print("COUNT", sum(misses), _jit.READY.loaded)
else:
    print("COUNT", 0, 0)
"""

#: Name, code, most CPU seconds from a checkout, most from a wheel.
CASES = [
    ("demo", DEMO, 12.0, 2.5),
    ("BP on a grid, and log Z", GRID, 8.0, 1.5),
    ("a query to a small network", QUERY, 4.0, 1.5),
    ("Exact on a small network", SMALL, 4.0, 1.5),
    ("Exact by a clique tree", TREE, 25.0, 1.5),
    ("parse run", PARSE, 45.0, 4.0),
]


def spent(code: str, arguments: list[str], path: str, cache: str) -> tuple[float, int, int]:
    """CPU seconds, compilations, and kernels taken from the wheel, of one process."""
    environment = _with(path, cache)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call = [sys.executable, "-c", COUNTED.format(code=code), *arguments]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stderr)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("COUNT")]
    _, compiled, ready = line.split()
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, int(compiled), int(ready)


def _with(path: str, cache: str) -> dict[str, str]:
    """The environment of a process that imports from this path."""
    environment = {**os.environ, "PYTHONPATH": path, "MINFER_CACHE_DIR": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def files(folder: Path) -> list[str]:
    """A parser and a sentence, made by this checkout."""
    model, text = folder / "tiny.model", folder / "tiny.conllu"
    for words in (
        ["example", "treebank", "-o", text],
        ["parse", "train", text, "-o", model],
    ):
        command = [sys.executable, "-m", "minfer", *map(str, words)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        subprocess.run(command, env=environment, check=True, capture_output=True)
    return [str(model), str(text), str(folder / "out.conllu")]


def table(title: str, path: str, column: int, arguments: list[str], chosen: list[str]) -> bool:
    """Print one; whether every case is within its limit."""
    print(f"\n{title}\n{'':<28}{'first':>8}{'limit':>7}{'then':>7}{'compiled':>10}{'ready':>7}")
    good = True
    for case in CASES:
        name, code, limit = case[0], case[1], case[column]
        if chosen and name not in chosen:
            continue
        with tempfile.TemporaryDirectory() as cache:
            first, compiled, ready = spent(code, arguments, path, cache)
            then, _, _ = spent(code, arguments, path, cache)
        good &= first <= limit
        over = "" if first <= limit else "  over"
        print(
            f"{name:<28}{first:8.1f}{limit:7.1f}{then:7.1f}{compiled:10d}{ready:7d}{over}",
            flush=True,
        )
    return good


def everything(path: str) -> None:
    """``minfer warmup`` on all cores, by the clock."""
    with tempfile.TemporaryDirectory() as cache:
        environment = _with(path, cache)
        command = [sys.executable, "-m", "minfer", "warmup"]
        with measure.Stopwatch() as spent:
            subprocess.run(command, env=environment, check=True, capture_output=True)
    print(f"\neverything (`minfer warmup`): {spent.wall:.0f} s by the clock")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="a wheel with machine code")
    parser.add_argument("--everything", action="store_true", help="time `minfer warmup` too")
    parser.add_argument("cases", nargs="*", help=f"of: {', '.join(case[0] for case in CASES)}")
    options = parser.parse_args()
    compileall.compile_dir(ROOT / "src", quiet=1)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = files(Path(scratch))
        good = table("From a checkout", str(ROOT / "src"), 2, arguments, options.cases)
        if options.wheel:
            site = Path(scratch) / "site"
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
            subprocess.run([*pip, "--target", str(site), str(options.wheel)], check=True)
            title = f"From {options.wheel.name}"
            good &= table(title, str(site), 3, arguments, options.cases)
        if options.everything:
            everything(str(ROOT / "src"))
    if not good:
        sys.exit("a first call is over its limit")


if __name__ == "__main__":
    main()
