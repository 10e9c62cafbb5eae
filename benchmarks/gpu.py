"""Belief propagation on a graphics card: what is sent, swept and set up, in absolute times.

    python benchmarks/gpu.py [--json FILE] [grids labels random pictures even | new]

``new`` is what came last, in less than a minute: tree-reweighted sweeps, mean field, dependency
trees, gradients; with --card-only without one core beside it, whose kernels compile for a minute.

The CPU's stop rule at tol=1e-4 everywhere. Device times are of CUDA events, medians, with work for
the card before the first, so that it does not wait for the host in between; the rest is wall-clock
time of the whole call, the best of several. One core of the processor beside it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
import types
from functools import partial
from pathlib import Path

import numpy as np

from minfer import BeliefPropagation, FactorGraph, MeanField, TreeReweighted
from minfer.device.cuda import cuda
from minfer.device.means import MeansRun
from minfer.device.odds import Run
from minfer.device.runs import PAUSE
from minfer.device.trees import tree_sums
from minfer.device.vectors import VectorRun
from minfer.engine.conditioning import condition
from minfer.engine.wiring import Wired, wire
from minfer.graph import grid_edges
from minfer.parsing import tree_marginals
from minfer.solvers import on_device
from minfer.solvers.differentiable_batch import record

TOL = 1e-4
SIDES = (64, 256, 512, 1024, 2048, 4096)
PARTS = ("grids", "labels", "random", "pictures", "even")
SINGLE = np.dtype("float32")


def best(call, n: int = 5) -> float:
    """Seconds of the fastest of n calls."""
    times = []
    for _ in range(n):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def on_card(call, n: int = 20) -> float:
    """Seconds between two events around a call that the card has in its queue, the median."""
    import cupy

    begin, end, times = cupy.cuda.Event(), cupy.cuda.Event(), []
    before = cupy.zeros(1 << 30, np.uint8)
    for _ in range(n):
        for _ in range(6):
            before.fill(0)
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


def a_burst(run) -> float:
    """Seconds of a sweep of a run that is never at rest, confirming updates that wait told in."""
    run._burst()
    sweeps = run.burst - -(-run.burst // PAUSE)
    return on_card(run._burst, 6) / sweeps


def noisy(side: int, rows: int | None = None, seed: int = 0) -> np.ndarray:
    """Log-odds of noisy pictures of rectangles."""
    rng = np.random.default_rng(seed)
    clean = np.zeros((side, side))
    clean[side // 4 : side // 2, side // 8 : side] = clean[side // 2 :, : side // 3] = 1.0
    shape = (side, side) if rows is None else (rows, side, side)
    return 2.0 * (clean + rng.normal(size=shape) - 0.5)


def a_sweep(mesh: Wired, schedule: str, moved: float, copy: float) -> dict:
    """Microseconds of a sweep, bursts of which are recorded, and its share of copy bandwidth, if it
    moves so many bytes."""
    there, flooding = cuda(), schedule == "flooding"
    if on_device.of_pairs(mesh):
        layout = on_device.laid_out(there, mesh, *mesh.by_colour())
        run = Run(there, layout, 1, False, flooding, SINGLE)
        w = on_device.weights(there, mesh, layout, SINGLE)
        run.start(on_device.log_prior(mesh)[None], w, None, -1.0, 0.0, 10**9)  # never at rest
    else:
        layout = on_device.vectors_laid_out(there, mesh)
        run = VectorRun(there, layout, 1, flooding, SINGLE)
        field, _ = on_device.fields_there(mesh, mesh.model.field[None], None)
        tab = on_device.tables_there(there, mesh, layout, SINGLE)
        run.start(field, tab, None, -1.0, 0.0, 10**9)
    seconds = a_burst(run)
    return {
        f"{schedule}, us a sweep": 1e6 * seconds,
        f"{schedule}, share of copy": moved / seconds / copy,
    }


def calls(graph: FactorGraph, copy: float, moved: float, slow: bool) -> dict:
    """A model: set-up, prepared calls, sweeps; one core beside it unless that is slow."""
    begin = time.perf_counter()
    run = BeliefPropagation(device="cuda", tol=TOL).prepare(graph)
    first = run()
    setup = time.perf_counter() - begin
    run()
    row = {
        "sweeps": first.iterations, "status": first.status.value,
        "set-up and first call, s": setup,
        "prepared call, ms": 1e3 * best(run, 3 if slow else 7),
    }  # fmt: skip
    mesh = wire(condition(graph))
    for schedule in ("coloured", "flooding"):
        row |= a_sweep(mesh, schedule, moved, copy)
    if not slow:
        here = BeliefPropagation(tol=TOL).prepare(graph)
        answer = here()
        row["one core, sweeps"] = answer.iterations
        row["one core, ms"] = 1e3 * best(here, 2)
        row["largest difference"] = float(np.abs(answer.probs - first.probs).max())
    return row


def a_grid(side: int, copy: float, slow: bool) -> dict:
    messages = 4 * side * (side - 1)
    graph = FactorGraph.grid(noisy(side), 1.0)
    return {"side": side} | calls(graph, copy, 16.0 * messages + 12.0 * side * side, slow)


def a_labelling(side: int, k: int, kind: str, copy: float, slow: bool) -> dict:
    """Labels on a grid: a field of squares of distances, and smoothness."""
    rng, edges = np.random.default_rng(0), grid_edges(side, side)
    clean = (np.arange(side) * k // side)[:, None] * np.ones((1, side))
    seen = clean + 0.1 * k * rng.normal(size=(side, side))
    field = -((seen.reshape(-1, 1) - np.arange(k)) ** 2) / (0.02 * k * k)
    graph = FactorGraph.empty([k] * side * side).tilt(field.ravel())
    if kind == "Potts":
        graph = graph.add_potts(edges, 1.0)
    elif kind == "truncated":
        graph = graph.add_truncated_linear(edges, 0.5, 3)
    else:
        rows = 1 if kind == "one table" else len(edges)
        graph = graph.add_tables(edges, rng.normal(size=(rows, k, k)))
    messages = 2 * len(edges)
    moved = messages * (8.0 * k + 12) + 12.0 * k * side * side
    if kind == "own tables":
        moved += 4.0 * k * k * messages
    return {"side": side, "states": k, "pairs": kind} | calls(graph, copy, moved, slow)


def a_random(variables: int, pairs: int, copy: float, slow: bool) -> dict:
    rng = np.random.default_rng(0)
    scope = rng.integers(0, variables, (pairs, 2)).astype(np.int32)
    scope = scope[scope[:, 0] != scope[:, 1]]
    weight = rng.normal(size=len(scope)) / np.sqrt(pairs / variables)
    graph = FactorGraph.pairwise(rng.normal(size=variables), scope, weight)
    moved = 32.0 * len(scope) + 12.0 * variables
    return {"variables": variables, "pairs": len(scope)} | calls(graph, copy, moved, slow)


def pictures(rows: int, side: int = 64) -> dict:
    """Many pictures of one size: what is sent, what is swept, the whole call."""
    there, field = cuda(), noisy(side, rows).reshape(rows, -1)
    graph = FactorGraph.grid(np.zeros((side, side)), 1.0)
    mesh = wire(condition(graph))
    layout = on_device.laid_out(there, mesh, *mesh.by_colour(whole=True))
    w = on_device.weights(there, mesh, layout, SINGLE)
    log_odds = on_device.log_prior(mesh) + field
    run = Run(there, layout, rows, False, False, SINGLE)
    run.start(log_odds, w, None, TOL, 0.0, 1000)

    def whole() -> None:
        run.begin(TOL, 0.0, 1000)
        for array, number in ((run.even, 0), (run.bel, 0.5)):
            there.fill(array, number)
        for _ in range(2):  # 128 sweeps, if they are needed
            run._launch(1000)
        run.believe()

    card = on_card(whole, 10)
    there.get(run.controls)
    sent, swept, read = [], [], []
    for _ in range(6):
        begin = time.perf_counter()
        run.start(log_odds, w, None, TOL, 0.0, 1000)
        there.get(run.controls)
        sent.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        run.sweeps(1000, np.zeros(1000))
        swept.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        run.beliefs()
        read.append(time.perf_counter() - begin)
    both = np.stack([np.zeros_like(field), field], axis=2).reshape(rows, -1)
    call = BeliefPropagation(device="cuda", tol=TOL).prepare(graph)
    here = BeliefPropagation(tol=TOL).prepare(graph)
    found = call.batch(field=both, log_z=False)
    few = here.batch(field=both[:100], log_z=False)
    return {
        "pictures": rows, "side": side, "sweeps, mean": float(run.made.mean()),
        "sweeps, most": int(run.made.max()), "converged": int(run.passed.sum()),
        "fields to beliefs, on the card, ms": 1e3 * card, "sent, ms": 1e3 * min(sent),
        "swept, ms": 1e3 * min(swept),
        "beliefs back, ms": 1e3 * min(read),
        "batch(), ms": 1e3 * best(lambda: call.batch(field=both, log_z=False), 3),
        "one core, batch(), ms": 1e3 * best(lambda: here.batch(field=both, log_z=False), 2),
        "largest difference": float(np.abs(few.probs - found.probs[: len(few.probs)]).max()),
    }  # fmt: skip


def break_even(states: int, sides: tuple[int, ...]) -> list[dict]:
    """Prepared calls here and there by size."""
    out = []
    for side in sides:
        graph = FactorGraph.grid(noisy(side), 1.0)
        if states > 2:
            field = np.random.default_rng(0).normal(size=side * side * states)
            graph = FactorGraph.empty([states] * side * side).tilt(2.0 * field)
            graph = graph.add_potts(grid_edges(side, side), 1.0)
        row: dict = {"side": side, "numbers of messages": 4 * side * (side - 1)}
        row["numbers of messages"] *= states if states > 2 else 1
        for device in ("cuda", "cpu"):
            run = BeliefPropagation(device=device, tol=TOL).prepare(graph)
            run()
            row[f"{device}, ms"] = 1e3 * best(run, 5)
        out.append(row)
    return out


def reweighted(side: int, beside: tuple[str, ...]) -> dict:
    """A tree-reweighted sweep, and a prepared call, edge weights apart; one core beside it."""
    graph, row = FactorGraph.grid(noisy(side), 1.0), {"side": side}
    there, mesh = cuda(), TreeReweighted().wired(condition(graph))
    layout = on_device.laid_out(there, mesh, *mesh.by_colour())
    run = Run(there, layout, 1, False, False, SINGLE, True)
    w, rho = on_device.weights(there, mesh, layout, SINGLE), on_device.edge_weights(mesh, layout)
    run.start(on_device.log_prior(mesh)[None], w, None, -1.0, 0.0, 10**9, rho)
    row["a sweep, us"] = 1e6 * a_burst(run)
    for device in beside:
        call = TreeReweighted(device=device, tol=TOL).prepare(graph)
        found = call()
        row[f"{device}, sweeps"] = found.iterations
        row[f"{device}, ms"] = 1e3 * best(call, 3 if device == "cuda" else 1)
        row[f"{device}, log Z at most"] = found.log_z
    return row


def means(side: int, beside: tuple[str, ...]) -> dict:
    """Mean field: a sweep up and down, a call, one core beside it."""
    graph, row = FactorGraph.grid(noisy(side), 0.5), {"side": side}
    there, mesh = cuda(), wire(condition(graph))
    layout = on_device.laid_out(there, mesh, *mesh.by_colour(whole=True))
    run, w = MeansRun(there, layout, SINGLE), on_device.weights(there, mesh, layout, SINGLE)
    run.start(on_device.log_prior(mesh)[None], w, np.full((1, side * side), 0.5), -1.0, 10**9)
    row["a sweep up and down, us"] = 1e6 * on_card(run._burst, 6) / run.burst
    for device in beside:
        solver = MeanField(device=device, tol=TOL)
        found = solver(graph)
        row[f"{device}, sweeps"] = found.iterations
        row[f"{device}, ms"] = 1e3 * best(lambda: solver(graph), 3)  # noqa: B023 - called here
        row[f"{device}, log Z at least"] = found.log_z
    return row


def dependency_trees(sentences: int, words: int, projective: bool, beside: tuple[str, ...]) -> dict:
    """The kernel alone; through torch, with gradients, where its tensors can be on the card."""
    there, nodes = cuda(), words + 1
    scores = np.random.default_rng(0).normal(size=(sentences, nodes, nodes))
    how = {"projective": projective, "single_root": True}
    given, lengths = there.put(scores), there.put(np.full(sentences, words, np.int32))
    mu, log_z = there.empty(scores.shape, np.float64), there.empty((sentences,), np.float64)
    fine = there.empty((sentences,), np.int32)
    seconds = on_card(lambda: tree_sums(there, given, lengths, mu, log_z, fine, **how))
    row = {
        "sentences": sentences, "words": words, "projective": projective,
        "the kernel, us": 1e6 * seconds, "safe": int(there.get(fine).sum()),
        "a word has heads, off by": float(np.abs(there.get(mu)[:, :, 1:].sum(axis=1) - 1.0).max()),
    }  # fmt: skip
    if "cpu" in beside:
        row["one core, us"] = 1e6 * best(lambda: tree_marginals(scores, **how), 3)
        wanted, _ = tree_marginals(scores, **how)
        row["largest difference"] = float(np.abs(there.get(mu) - wanted).max())
    try:
        import torch

        tensor = torch.tensor(scores, device="cuda", requires_grad=True)
    except (ImportError, RuntimeError, AssertionError) as error:
        return row | {"torch": f"none with a card: {error}"[:60]}
    return row | by_torch(torch, tensor, projective)


def by_torch(torch, tensor, projective: bool) -> dict:
    """Forward and backward of minfer.torch; and of logdet, which has all that log Z needs."""
    import minfer.torch as ours

    along = torch.randn_like(tensor)

    def marginals() -> None:
        found = ours.tree_marginals(tensor, projective=projective)
        torch.autograd.grad((found * along).sum(), tensor)

    def log_z() -> None:
        torch.autograd.grad(ours.tree_log_partition(tensor, projective=projective).sum(), tensor)

    def logdet() -> None:
        w = tensor.exp()
        inner = w[:, 1:, 1:] * (1.0 - torch.eye(w.shape[1] - 1, device=w.device))
        degree = torch.diag_embed(inner.sum(1) + w[:, 0, 1:])
        torch.autograd.grad(torch.logdet(degree - inner).sum(), tensor)

    def timed(call) -> float:
        call()
        torch.cuda.synchronize()

        def once() -> None:
            call()
            torch.cuda.synchronize()

        return 1e6 * best(once, 10)

    row = {"marginals and their gradient, us": timed(marginals),
           "log Z and its gradient, us": timed(log_z)}  # fmt: skip
    if not projective:
        row["torch logdet and its gradient, us"] = timed(logdet)
    ours_told = ours.tree_log_partition(tensor, projective=projective).detach()
    for name, partition in peers(torch, projective).items():

        def theirs(partition=partition) -> None:
            torch.autograd.grad(partition(tensor).sum(), tensor)

        apart = (partition(tensor).detach() - ours_told).abs().max()
        row |= {f"{name}, log Z and its gradient, us": timed(theirs),
                f"{name}, log Z apart": float(apart)}  # fmt: skip
    return row


def peers(torch, projective: bool) -> dict:
    """log Z of scores by torch-struct and by SuPar's structures, where they are installed; of SuPar
    no more is imported than that, for its parsers need much else."""
    found = {}
    if importlib.util.find_spec("torch_struct"):
        import torch_struct

        kind = torch_struct.NonProjectiveDependencyCRF
        kind = torch_struct.DependencyCRF if projective else kind

        def by_torch_struct(scores):
            size = scores.shape[1] - 1
            eye = torch.eye(size, dtype=torch.bool, device=scores.device)
            arcs = torch.where(eye, scores[:, :1, 1:], scores[:, 1:, 1:])  # roots are diagonal
            return kind(arcs, multiroot=False).partition

        found["torch-struct"] = by_torch_struct
    places = [place for place in map(Path, sys.path) if (place / "supar" / "structs").is_dir()]
    if places:
        for name in ("supar", "supar.utils", "supar.structs"):
            module = sys.modules.setdefault(name, types.ModuleType(name))
            module.__path__ = [str(places[0].joinpath(*name.split(".")))]
        from supar.structs.tree import DependencyCRF, MatrixTree

        tree = DependencyCRF if projective else MatrixTree

        def by_supar(scores):
            return tree(scores.transpose(1, 2).contiguous(), multiroot=False).log_partition

        found["SuPar"] = by_supar
    return found


def gradients(rows: int, beside: tuple[str, ...], side: int = 64) -> dict:
    """Pictures: answers, statistics, and the way back, from and to numpy; one core for few."""
    field = noisy(side, rows).reshape(rows, -1)
    both = np.stack([np.zeros_like(field), field], axis=2).reshape(rows, -1)
    graph, row = FactorGraph.grid(np.zeros((side, side)), 1.0), {"pictures": rows, "side": side}
    along, found = np.random.default_rng(1).normal(size=both.shape), {}
    for device in beside[: 2 if rows < 200 else 1]:
        run = BeliefPropagation(device=device, tol=1e-5).prepare(graph)
        batch = partial(run.batch, field=both, statistics=True, log_z=False)
        row[f"{device}, with statistics, ms"] = 1e3 * best(batch, 2)
        recorded = record(run, None, None, both)
        back = partial(recorded.pull_back, along, tol=1e-5, max_iters=1000, weights=True)
        row[f"{device}, the way back, ms"] = 1e3 * best(back, 2)
        found[device] = back()
    row["converged"] = int(found["cuda"].converged.sum())
    if "cpu" in found:
        apart = np.abs(found["cuda"].field - found["cpu"].field)
        row["largest difference"] = float(apart.max())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sides", type=int, nargs="*", default=list(SIDES))
    parser.add_argument("--card-only", action="store_true")
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    given = parser.parse_args()
    copy = copy_bandwidth()
    found: dict = {"card": cuda().name, "copy, TB/s": copy / 1e12}
    print(found, flush=True)

    def add(part: str, row: dict) -> None:
        found.setdefault(part, []).append(row)
        print(json.dumps({k: float(f"{v:.4g}") if isinstance(v, float) else v
                          for k, v in row.items()}), flush=True)  # fmt: skip
        if given.json:
            given.json.write_text(json.dumps(found, indent=1) + "\n")

    beside = ("cuda",) if given.card_only else ("cuda", "cpu")
    if "new" in given.parts:
        for words, sentences in ((25, 256), (40, 256), (25, 4096)):
            for projective in (False, True):
                row = dependency_trees(sentences, words, projective, beside)
                add("dependency trees", row)
        for side in (256, 512):
            add("tree-reweighted", reweighted(side, beside))
            add("mean field", means(side, beside))
        for rows in (132, 1000):
            add("gradients", gradients(rows, beside))
    if "grids" in given.parts:
        for side in given.sides:
            add("grids", a_grid(side, copy, side > 1024))
    if "labels" in given.parts:
        for kind in ("one table", "Potts", "truncated", "own tables"):
            add("labels", a_labelling(512, 12, kind, copy, kind != "Potts"))
        add("labels", a_labelling(2048, 12, "one table", copy, True))
        add("labels", a_labelling(256, 64, "truncated", copy, False))
    if "random" in given.parts:
        for n, pairs in ((700, 20_000), (10_000, 990_000), (100_000, 10_000_000)):
            add("random", a_random(n, pairs, copy, pairs > 1_000_000))
    if "pictures" in given.parts:
        for rows in (1, 132, 1000, 10_000):
            add("pictures", pictures(rows))
    if "even" in given.parts:
        for states in (2, 12):
            for row in break_even(states, (16, 32, 48, 64, 96, 128, 192)):
                add(f"break-even, {states} states", row)


if __name__ == "__main__":
    main()
