"""Proof of optimality by toulbar2's branch and bound, where pytoulbar2 is installed.

It runs in a process of its own, which can be ended when the time is over, and reads the problem
from a file. Its costs are integers, numbers of so many decimals: each function is off by a unit at
most, and a unit for each is added to its bound.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from minfer.queries.map.problem import MapProblem

_DIGITS = 16.0  # of all costs together
_MOST_CELLS = 1 << 22  # beyond, writing the problem takes longer than proofs do
_START = 1.0  # seconds that the process needs for itself


def available() -> bool:
    return find_spec("pytoulbar2") is not None


def solve(
    problem: MapProblem, score: float, seconds: float, python: str = sys.executable
) -> tuple[NDArray[np.int32] | None, float] | None:
    """A better assignment, if one was found, and a bound (scaled) on all; None without both."""
    content = _content(problem, score)
    if content is None:
        return None
    answer = _ask(content, seconds, python)
    if answer is None:
        return None
    x = None if answer["x"] is None else np.array(answer["x"], dtype=np.int32)
    if answer["bound"] is None:
        return None if x is None else (x, math.inf)
    unit = 10.0 ** -content["decimals"]
    bound = content["constant"] - answer["bound"] + unit * (len(content["functions"]) + 2)
    return x, bound + problem.slack + 2.0**-50 * abs(bound)


def _ask(content: dict[str, Any], seconds: float, python: str) -> dict[str, Any] | None:
    """What the process of its own says, or None.

    Eliminating variables crashes some builds: a process that crashed is followed by one without.
    """
    until = time.perf_counter() + seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.json"
        for plain in (False, True):
            left = until - time.perf_counter()
            if left < _START:
                return None
            most = max(1, math.floor(left - _START))
            path.write_text(json.dumps({**content, "seconds": most, "plain": plain}))
            try:
                done = subprocess.run(
                    [python, __file__, str(path)],
                    capture_output=True, text=True, timeout=left, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return None
            if done.returncode == 0:
                return dict(json.loads(done.stdout.strip().splitlines()[-1]))
    return None


def _content(problem: MapProblem, score: float) -> dict[str, Any] | None:
    """The problem as costs: what each cell is short of its table's best."""
    w, cards = problem.wires, problem.cards
    functions: list[tuple[list[int], NDArray[np.float64]]] = [
        ([i], problem.theta[w.off[i] : w.off[i + 1]]) for i in range(problem.n)
    ]
    total = 0
    for f, t in enumerate(w.ft.tolist()):
        scope = w.sv[w.fptr[f] : w.fptr[f + 1]].tolist()
        shape = cards[scope]
        cells = int(np.prod(shape))
        total += cells
        if total > _MOST_CELLS:
            return None
        if w.fw[f] < 0:
            table = w.tab[t : t + cells]
        else:
            apart = np.abs(np.arange(shape[0])[:, None] - np.arange(shape[1])).ravel()
            table = w.tab[np.where(apart < w.fw[f], t + 1 + apart, t)]
        functions.append((scope, table))
    tops = [float(t.max()) for _, t in functions]
    far = [float((top - t[t > -np.inf]).max()) for top, (_, t) in zip(tops, functions)]
    worst = math.fsum(far)
    decimals = int(_DIGITS - math.ceil(math.log10(max(worst, 1.0) * 4.0)))
    if decimals < 3:
        return None
    forbidden = 2.0 * worst + 1.0
    constant = math.fsum([problem.constant, *tops])
    costs = [
        (scope, np.where(t > -np.inf, top - t, forbidden).tolist())
        for top, (scope, t) in zip(tops, functions)
    ]
    known = constant - score * problem.scale
    limit = known + 1e-9 * problem.scale if score > -math.inf else forbidden
    return {
        "cards": cards.tolist(), "functions": costs, "decimals": decimals, "constant": constant,
        "limit": limit,
    }  # fmt: skip


def _main(path: str) -> None:
    import pytoulbar2

    content = json.loads(Path(path).read_text())
    cfn = pytoulbar2.CFN(content["limit"], resolution=content["decimals"], verbose=-1)
    if content["plain"]:
        cfn.Option.elimDegree = -1
    for i, card in enumerate(content["cards"]):
        cfn.AddVariable(f"x{i}", range(card))
    for scope, costs in content["functions"]:
        cfn.AddFunction([f"x{i}" for i in scope], costs)
    began, cpu = time.perf_counter(), time.process_time()
    found = cfn.Solve(timeLimit=content["seconds"])
    spent = max(time.perf_counter() - began, time.process_time() - cpu)
    x = None if found is None else [int(k) for k in found[0]]
    bound = float(cfn.GetDDualBound())
    if spent < content["seconds"]:  # it ended by itself: its bound may be older than the proof
        bound = max(bound, content["limit"] if found is None else float(found[1]))
    print(json.dumps({"x": x, "bound": bound if math.isfinite(bound) else None}))


if __name__ == "__main__":
    _main(sys.argv[1])
