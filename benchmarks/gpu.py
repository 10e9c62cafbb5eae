"""Belief propagation on a graphics card: what is sent, swept and set up, in absolute times.

    python benchmarks/gpu.py [--json FILE]

The CPU's stop rule at tol=1e-4 everywhere. Device times are of CUDA events, medians; the rest is
wall-clock time of the whole call, the best of several. One core of the processor beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from minfer import BeliefPropagation, FactorGraph
from minfer.device.cuda import cuda
from minfer.engine.conditioning import condition
from minfer.engine.wiring import wire
from minfer.solvers import on_device

TOL = 1e-4
SIDES = (64, 256, 512, 1024, 2048, 4096)


def best(call, n: int = 5) -> float:
    """Seconds of the fastest of n calls."""
    times = []
    for _ in range(n):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def on_card(call, n: int = 20) -> float:
    """Seconds between two events around a call, the median."""
    import cupy

    begin, end, times = cupy.cuda.Event(), cupy.cuda.Event(), []
    for _ in range(n):
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3)
    return float(np.median(times))


def copy_bandwidth() -> float:
    """Bytes a second of a copy on the card, read and written."""
    import cupy

    x = cupy.zeros(1 << 28, np.float32)
    y = cupy.empty_like(x)
    return 2 * x.nbytes / on_card(lambda: cupy.copyto(y, x))


def noisy(side: int, rows: int | None = None, seed: int = 0) -> np.ndarray:
    """Log-odds of noisy pictures of rectangles."""
    rng = np.random.default_rng(seed)
    clean = np.zeros((side, side))
    clean[side // 4 : side // 2, side // 8 : side] = clean[side // 2 :, : side // 3] = 1.0
    shape = (side, side) if rows is None else (rows, side, side)
    return 2.0 * (clean + rng.normal(size=shape) - 0.5)


def a_grid(side: int, copy: float, slow: bool) -> dict:
    there = cuda()
    field = noisy(side)
    graph = FactorGraph.grid(field, 1.0)
    solver = BeliefPropagation(device="cuda", tol=TOL)
    begin = time.perf_counter()
    run = solver.prepare(graph)
    first = run()
    setup = time.perf_counter() - begin
    answer = run()
    call = best(run, 3 if slow else 7)
    row = {
        "side": side, "sweeps": answer.iterations, "status": answer.status.value,
        "set-up and first call, s": setup, "prepared call, ms": 1e3 * call,
    }  # fmt: skip
    mesh = wire(condition(graph))
    for schedule in ("coloured", "flooding"):
        layout = on_device.laid_out(there, mesh, *mesh.by_colour())
        held = on_device.Run(
            there, layout, on_device.log_prior(mesh)[None],
            on_device.weights(there, mesh, layout, np.dtype("float32")),
            np.zeros((1, len(mesh.wiring.rev))), TOL, 0.0, schedule == "flooding", 10**9,
            np.float32,
        )  # fmt: skip
        trace = held.trace[0]
        many = 20

        def go(held=held, trace=trace, many=many) -> None:
            held.controls[:, 6] = 0.0  # PASSED: each is a sweep like any other
            for _ in range(many):
                held.controls[:, 2] = 0.0
                held._sweep(trace)

        seconds = on_card(go, 5) / many
        moved = 16.0 * len(mesh.wiring.rev) + 12.0 * side * side
        row[f"{schedule}, us a sweep"] = 1e6 * seconds
        row[f"{schedule}, share of copy"] = moved / seconds / copy
    if not slow:
        plain = BeliefPropagation(tol=TOL)
        here = plain.prepare(graph)
        here()
        row["one core, ms"] = 1e3 * best(here, 3)
        row["largest difference"] = float(np.abs(here().probs - first.probs).max())
    return row


def pictures(rows: int, side: int = 64) -> dict:
    """Many pictures of one size: what is sent, what is swept, the whole call."""
    there, field = cuda(), noisy(side, rows).reshape(rows, -1)
    graph = FactorGraph.grid(np.zeros((side, side)), 1.0)
    mesh = wire(condition(graph))
    layout = on_device.laid_out(there, mesh, *mesh.by_colour(whole=True))
    w = on_device.weights(there, mesh, layout, np.dtype("float32"))
    log_odds = on_device.log_prior(mesh) + field
    sent, swept, read = [], [], []
    probs = np.empty(log_odds.shape)
    for _ in range(6):
        begin = time.perf_counter()
        run = on_device.Run(
            there, layout, log_odds, w, np.zeros((1, len(mesh.wiring.rev))), TOL, 0.0, False, 1000,
            np.float32,
        )  # fmt: skip
        there.get(run.controls)
        sent.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        run.sweeps(1000, np.zeros(1000))
        swept.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        run.beliefs(probs)
        read.append(time.perf_counter() - begin)
    both = np.stack([np.zeros_like(field), field], axis=2).reshape(rows, -1)
    call = BeliefPropagation(device="cuda", tol=TOL).prepare(graph)
    here = BeliefPropagation(tol=TOL).prepare(graph)
    found = call.batch(field=both, log_z=False)
    few = here.batch(field=both[:100], log_z=False)
    return {
        "pictures": rows, "side": side, "sweeps, mean": float(run.made.mean()),
        "sweeps, most": int(run.made.max()), "converged": int(run.passed.sum()),
        "laid out and sent, ms": 1e3 * min(sent), "swept, ms": 1e3 * min(swept),
        "beliefs back, ms": 1e3 * min(read),
        "batch(), ms": 1e3 * best(lambda: call.batch(field=both, log_z=False), 3),
        "batch() with log Z, ms": 1e3 * best(lambda: call.batch(field=both), 2),
        "one core, batch(), ms": 1e3 * best(lambda: here.batch(field=both, log_z=False), 2),
        "largest difference": float(np.abs(few.probs - found.probs[: len(few.probs)]).max()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sides", type=int, nargs="*", default=list(SIDES))
    given = parser.parse_args()
    copy = copy_bandwidth()
    found = {"card": cuda().name, "copy, TB/s": copy / 1e12, "grids": []}
    print(found, flush=True)
    for side in given.sides:
        found["grids"].append(a_grid(side, copy, side > 2048))
        print(json.dumps(found["grids"][-1]), flush=True)
    found["pictures"] = []
    for rows in (1, 132, 1000, 10_000):
        found["pictures"].append(pictures(rows))
        print(json.dumps(found["pictures"][-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
