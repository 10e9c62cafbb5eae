"""Pictures with many labels: ``python benchmarks/labels.py [CHECKOUT] [--pgmax PYTHON]``.

Rendered scenes of slanted surfaces, seen by two cameras: a pixel's label is how far it moved
between them, and its unary factors compare the pictures. Neighbouring pixels are tied by Potts or
truncated linear factors. Measured is the CPU time of whole calls of ``BeliefPropagation`` with as
many sweeps as it takes until the marginals are within a mean total variation of .002 of the
converged ones, with the pairs as label distances (O(K) messages), as one shared table (O(K^2)), and
as the same table in another checkout, such as the commit before. Processes on one core, in turn;
medians over rounds.

``--pgmax``: the python of an environment with PGMax (:mod:`speed` says how one is made). Its sum
messages over K^2 tables in float32, flooding, run as many iterations as get to the same error;
what is timed is the compiled run alone, without building or compiling. Its wiring, two numbers for
each cell of each table, goes to the compiled function as arguments: as constants, which is how it
comes, JAX spends minutes on folding them. It has ``--give`` seconds of CPU time for the iterations
and ``--memory`` GB; where it is not there by then, the table has the error it got to, and "over".
``--side`` takes a part of a scene.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

from stopwatch import measure

HERE = Path(__file__).resolve().parents[1]
SIDE = 128
ERROR = 0.002
#: How much a pixel's pictures say: the window that is compared, and what a difference counts.
SEEDS = {"strong": (5, 120.0), "medium": (5, 60.0), "weak": (3, 15.0)}
#: Truncated linear factors by the number of labels: weight and truncation.
LINEAR = {16: (0.8, 3), 64: (0.5, 5), 256: (0.25, 10)}
POTTS = 1.5
MOST = 40  # sweeps


def scene(labels: int, window: int, strength: float, seed: int = 0) -> np.ndarray:
    """Log-likelihoods (SIDE, SIDE, labels) of a rendered pair of pictures."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    depth = 0.1 + 0.25 * y / SIDE + 0.05 * x / SIDE
    depth = np.where((x - 40) ** 2 + (y - 45) ** 2 < 28**2, 0.55 + 0.3 * (x - 40) / SIDE, depth)
    box = (abs(x - 92) < 22) & (abs(y - 40) < 30)
    depth = np.where(box, 0.75 - 0.35 * (y - 40) / SIDE, depth)
    band = (x + 0.6 * y > 120) & (x + 0.6 * y < 150) & (y > 60)
    depth = np.where(band, 0.9, depth)
    depth = np.where((x - 30) ** 2 + 2 * (y - 100) ** 2 < 20**2, 0.4, depth)
    moved = np.clip(np.round(depth * (labels - 1)), 0, labels - 1)
    step = min(1.0, 64.0 / labels)
    margin = int((labels - 1) * step) + 2
    texture = rng.normal(size=(SIDE, SIDE + margin + 8))
    texture = sum(w * np.roll(texture, s, axis=1) for s, w in ((-1, 0.25), (0, 0.5), (1, 0.25)))
    smooth = np.apply_along_axis(
        lambda row: np.convolve(row, np.ones(25) / 25, "same"), 1, rng.random(texture.shape)
    )
    texture *= 0.6 * np.where(smooth > 0.5, 1.0, 0.15)

    def seen(picture: np.ndarray, by: np.ndarray | float) -> np.ndarray:
        place = x + margin - by * step
        left = np.floor(place).astype(int)
        share = place - left
        return picture[y, left] * (1 - share) + picture[y, left + 1] * share

    one = seen(texture, moved) + 0.15 * rng.normal(size=(SIDE, SIDE))
    other = texture + 0.075 * rng.normal(size=texture.shape)
    cost = np.stack([np.minimum(abs(one - seen(other, k)), 0.5) for k in range(labels)], axis=-1)
    half = window // 2
    padded = np.pad(cost, ((half, half), (half, half), (0, 0)), mode="edge")
    parts = [padded[i : i + SIDE, j : j + SIDE] for i in range(window) for j in range(window)]
    return -strength * sum(parts) / window**2


def edges(side: int) -> np.ndarray:
    pixel = np.arange(side**2).reshape(side, side)
    across = np.stack([pixel[:, :-1].ravel(), pixel[:, 1:].ravel()], axis=1)
    return np.concatenate([across, np.stack([pixel[:-1].ravel(), pixel[1:].ravel()], axis=1)])


def model(kind: str, labels: int, seed: str, side: int, as_table: bool):
    """The graph of the middle of a scene, with the minfer that is on the path."""
    from minfer import FactorGraph

    cut = slice((SIDE - side) // 2, (SIDE + side) // 2)
    unary = scene(labels, *SEEDS[seed])[cut, cut]
    graph = FactorGraph.empty([labels] * side**2).tilt(unary.ravel())
    weight, far = LINEAR[labels]
    if not as_table and kind == "potts":
        return graph.add_potts(edges(side), POTTS)
    if not as_table:
        return graph.add_truncated_linear(edges(side), weight, far)
    apart = abs(np.subtract.outer(np.arange(labels), np.arange(labels)))
    table = POTTS * (apart == 0) if kind == "potts" else -weight * np.minimum(apart, far)
    return graph.add_tables(edges(side), table[None].astype(float))


def needed(kind: str, labels: int, seed: str, side: int) -> tuple[int, float]:
    """Sweeps to the wanted error, and the error then, from the converged answer."""
    from minfer import BeliefPropagation

    graph = model(kind, labels, seed, side, as_table=False)
    truth = BeliefPropagation(max_iters=400, tol=1e-6)(graph).probs.reshape(-1, labels)
    for sweeps in range(1, MOST + 1):
        p = BeliefPropagation(max_iters=sweeps)(graph).probs.reshape(-1, labels)
        error = float(0.5 * abs(p - truth).sum(axis=1).mean())
        if error <= ERROR:
            return sweeps, error
    return MOST, error


def milliseconds(
    kind: str, labels: int, seed: str, side: int, as_table: bool, sweeps: int, repeats: int
) -> float:
    """Milliseconds of CPU time of a call."""
    from minfer import BeliefPropagation

    graph = model(kind, labels, seed, side, as_table)
    solver = BeliefPropagation(max_iters=sweeps)
    BeliefPropagation(max_iters=2)(graph)
    return 1e3 * measure.usual(lambda: solver(graph), repeats)


def write_truth(kind: str, labels: int, seed: str, side: int, path: str) -> None:
    """What PGMax is compared with, and its tables: unaries, edges, one table, marginals."""
    from minfer import BeliefPropagation

    graph = model(kind, labels, seed, side, as_table=True)
    truth = BeliefPropagation(max_iters=400, tol=1e-6)(graph).probs.reshape(-1, labels)
    table = graph.groups[-1].log_tables()[0].reshape(labels, labels)
    unary = graph.field.reshape(-1, labels)
    np.savez(path, unary=unary, edges=edges(side), table=table, truth=truth)


def pgmax(path: str, repeats: int, seconds: float, memory: float) -> dict[str, object]:
    """Iterations of PGMax, the error after them, milliseconds of CPU time, all where it got to.

    Or ``why`` there are none. It stops at the wanted error, or after so many seconds.
    """
    import resource

    room = int(memory * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    try:
        return _pgmax(path, repeats, seconds)
    except Exception as error:  # JAX has a type of its own for it, with this text
        if not isinstance(error, MemoryError) and "ut of memory" not in str(error):
            raise
        return {"why": f"out of memory in {memory:.0f} GB"}


def _pgmax(path: str, repeats: int, seconds: float) -> dict[str, object]:
    from tools import PGMax

    given, tool = np.load(path), PGMax()
    tool.setup()
    truth = given["truth"]
    n, labels = truth.shape
    tool.build(
        SimpleNamespace(
            n_states=labels, n_vars=n, edges=given["edges"], tables=given["table"],
            unary=given["unary"],
        )
    )  # fmt: skip
    tool.compile(1)
    start = tool.arrays
    iterations, error, spent = 0, 1.0, 0.0
    while error > ERROR and spent < seconds:
        took, tool.arrays = measure.timed(lambda: tool.run(1))
        spent += took
        error = float(0.5 * abs(tool.marginals(tool.arrays) - truth).sum(axis=1).mean())
        iterations += 1
    best = spent
    if error <= ERROR:  # all of them in one call
        tool.arrays = start
        tool.compile(iterations)
        best = min(best, measure.usual(lambda: tool.run(iterations), repeats))
    return {"iterations": iterations, "error": error, "ms": 1e3 * best}


def ask(
    root: Path, core: int, *job: object, python: str = sys.executable, limit: float | None = None
) -> Any:
    """What a process of its own, on one core, with the code of a checkout, answers in time."""
    run = [python, __file__, "--job", json.dumps(job), "--core", str(core)]
    env = {**os.environ, **measure.ONE_THREAD, "PYTHONPATH": str(root / "src")}
    env["JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS"] = "1"
    done = subprocess.run(
        run, env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=limit
    )
    return json.loads(done.stdout.splitlines()[-1])


def against(asked: argparse.Namespace, path: str, ours: float) -> list[str]:
    """PGMax's three columns of the table; ``ours``: milliseconds."""
    job = "pgmax", path, asked.repeats, asked.give, asked.memory
    try:
        found = ask(HERE, asked.core, *job, python=asked.pgmax, limit=asked.limit)
    except subprocess.TimeoutExpired:
        return [f"no answer in {asked.limit:.0f} s", "–", "–"]
    if "why" in found:
        return [found["why"], "–", "–"]
    took, off = found["ms"], found["error"]
    over = "over " if off > ERROR else ""
    return [f"{over}{took:.3g}", f"{found['iterations']}, {off:.4f}", f"{over}{took / ours:.1f}"]


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("checkout", type=Path, nargs="?", help="the other code")
    cli.add_argument("--rounds", type=int, default=3)
    cli.add_argument("--repeats", type=int, default=3)
    cli.add_argument("--labels", type=int, nargs="*", default=[16, 64, 256])
    cli.add_argument("--seeds", nargs="*", default=list(SEEDS), choices=list(SEEDS))
    cli.add_argument("--kinds", nargs="*", default=["potts", "linear"])
    cli.add_argument("--core", type=int, default=0)
    cli.add_argument("--side", type=int, default=SIDE, help="pixels, of the middle of a scene")
    cli.add_argument("--limit", type=float, default=600.0, help="seconds for PGMax, all included")
    cli.add_argument("--give", type=float, default=120.0, help="seconds for its iterations")
    cli.add_argument("--memory", type=float, default=16.0, help="GB for PGMax")
    cli.add_argument("--pgmax", metavar="PYTHON", help="of an environment with PGMax")
    cli.add_argument("--job", help=argparse.SUPPRESS)
    asked = cli.parse_args()
    if asked.job is not None:  # a child
        measure.pin(asked.core)
        name, *job = json.loads(asked.job)
        jobs = {"needed": needed, "time": milliseconds, "truth": write_truth, "pgmax": pgmax}
        print(json.dumps(jobs[name](*job)))
        return
    from minfer_experiments.pages import line, table

    if asked.pgmax is None:
        print("PGMax is left out: --pgmax names no python that has it\n")
    sides = {"distances": (HERE, False), "table": (HERE, True)}
    if asked.checkout is not None:
        sides["before"] = asked.checkout.resolve(), True
    head = ["scene", "sweeps", "error", "distances, ms", "table, ms", "before, ms", "speed-up"]
    print(table([*head, "PGMax, ms", "its iterations, error", "speed-up"], []))
    for labels in asked.labels:
        for kind in asked.kinds:
            for seed in asked.seeds:
                about = kind, labels, seed, asked.side
                sweeps, error = ask(HERE, asked.core, "needed", *about)
                asks = {
                    key: partial(
                        ask, root, asked.core, "time", *about, as_table, sweeps, asked.repeats
                    )
                    for key, (root, as_table) in sides.items()
                }
                ms = measure.in_turn(asks, asked.rounds, warm_up=False, timer=measure.told)
                middle = [f"{x:.3g}" for x in measure.medians(ms).values()]
                ratio = measure.median_ratio(ms[[*sides][-1]], ms["distances"])
                peer = ["–"] * 3
                if asked.pgmax is not None:
                    with tempfile.TemporaryDirectory() as folder:
                        path = str(Path(folder) / "truth.npz")
                        ask(HERE, asked.core, "truth", *about, path)
                        peer = against(asked, path, median(ms["distances"]))
                cells = [f"{kind} {labels} {seed}", str(sweeps), f"{error:.4f}", *middle]
                cells += ["–"] * (3 - len(sides))
                print(line([*cells, f"{ratio:.1f}", *peer]), flush=True)


if __name__ == "__main__":
    main()
