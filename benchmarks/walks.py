"""How many files a call walks through: ``python benchmarks/walks.py [-v]``.

Counted are the files of the package in which a function runs, on small models; with the compiler
off (NUMBA_DISABLE_JIT, set here), so that kernels count like any other function. A second number
leaves out what runs while modules are loaded (decorators of kernels, most of all). The aims are at
most 20 files for plain belief propagation and 22 for the first query of a network. ``-v`` names the
files, each with how often its functions were called, of these by loading.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

os.environ["NUMBA_DISABLE_JIT"] = "1"

import numpy as np

import minfer

PACKAGE = str(Path(minfer.__file__).parent) + os.sep


def network(n: int = 30) -> minfer.FactorGraph:
    """A Bayesian network of binary variables, each with two parents among the last four."""
    rng = np.random.default_rng(0)
    scopes, tables = [], []
    for i in range(n):
        parents = sorted(rng.choice(np.arange(max(0, i - 4), i), min(i, 2), replace=False))
        scopes.append([*parents, i])
        tables.append(np.log(rng.dirichlet(np.ones(2), size=(2,) * len(parents))))
    return minfer.FactorGraph.from_tables([2] * n, scopes, tables)


def files_of(call: Callable[[], Any]) -> tuple[Counter[str], Counter[str]]:
    """Calls of functions by file of the package while ``call`` runs: all, and those by loading."""
    found: Counter[str] = Counter()
    loading: Counter[str] = Counter()
    modules = 0  # that are being loaded

    def seen(frame: FrameType, event: str, _: Any) -> None:
        nonlocal modules
        code = frame.f_code
        if code.co_name == "<module>":
            modules += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and code.co_filename.startswith(PACKAGE):
            name = code.co_filename.removeprefix(PACKAGE)
            found[name] += 1
            loading[name] += modules > 0

    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found, loading


def main() -> None:
    weights = np.random.default_rng(0).normal(size=25)
    graph, net = minfer.FactorGraph.grid(weights.reshape(5, 5), 0.5), network()
    solver = minfer.BeliefPropagation()
    ask = lambda: minfer.query(net, 3, {20: 1})  # noqa: E731
    reducing = lambda: minfer.infer(graph, minfer.MinJoint(0.1), recipe=minfer.Compensated())  # noqa: E731
    jobs = {
        "belief propagation on a grid": lambda: solver(graph),
        "first query of a network": ask,
        "the same once more": ask,
        "infer, compensated": reducing,
    }
    for name, job in jobs.items():
        found, loading = files_of(job)
        rest = len(found - loading)
        print(f"{len(found):4} files, {rest:4} without loading, {found.total():6} calls: {name}")
        if "-v" in sys.argv:
            for file, times in found.most_common():
                print(f"        {times:6} {loading[file] or '':6}  {file}")


if __name__ == "__main__":
    main()
