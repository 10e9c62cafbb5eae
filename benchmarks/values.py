"""Ignoring values against the whole model, at equal error; and the bound of Potts models.

    taskset -c 0 python benchmarks/values.py                 # general tables, 64 and 256 values
    taskset -c 0 python benchmarks/values.py --pays-not      # where lists must not cost much
    python benchmarks/values.py --bound 10000                # the Potts bound against enumeration

Scenes are rendered: slanted surfaces at different depths, a pair of pictures with texture and
noise, and for each pixel and each of K disparities the windowed difference of the two pictures.
Pair tables are truncated linear times noise, so nothing has structure. Both sides run through the
public functions from a built model to the marginals, by the same settings on every scene, each
stopped after the fewest sweeps at which the mean total variation from the converged answer of the
whole model is at most TARGET. CPU time of this process, interleaved, medians.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer import BeliefPropagation, FactorGraph, MinJoint, infer
from minfer.certified.potts import potts_upper
from minfer.graph import grid_edges

TARGET = 0.002
#: The one setting.
VALUES = MinJoint(0.02)
#: Window and trust in differences of pictures.
SEEDS = {"strong": (5, 120.0), "medium": (5, 60.0), "weak": (3, 15.0)}
#: Slope, truncation, sweeps of the reference.
PAIRS = {16: (0.8, 3, 200), 64: (0.5, 5, 80), 256: (0.25, 10, 30)}


def scene(K: int, seed: str, size: int, number: int) -> NDArray[np.float64]:
    """Log-weights of K disparities at each pixel, (size * size, K)."""
    window, trust = SEEDS[seed]
    rng = np.random.default_rng(number)
    y, x = np.mgrid[:size, :size] / size
    depth = 0.1 + 0.25 * y + 0.05 * x
    for _ in range(4):  # surfaces in front of it, nearer ones last
        cx, cy, rx, ry = rng.uniform(0.15, 0.85, 4) * [1, 1, 0.35, 0.35]
        inside = ((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 < 1
        if rng.random() < 0.5:
            inside = (abs(x - cx) < rx) & (abs(y - cy) < ry)
        slope = rng.uniform(-0.3, 0.3, 2)
        depth = np.where(
            inside, rng.uniform(0.3, 0.9) + slope[0] * (x - cx) + slope[1] * (y - cy), depth
        )
    label = np.clip(np.round(depth * (K - 1)), 0, K - 1)
    step = min(1.0, 64 / K)  # pixels a disparity
    room = int((K - 1) * step) + 2
    picture = rng.normal(size=(size, size + room + 8))
    smooth = np.array([0.25, 0.5, 0.25])
    picture = np.apply_along_axis(lambda r: np.convolve(r, smooth, "same"), 1, picture)
    patches = np.apply_along_axis(
        lambda r: np.convolve(r, np.ones(25) / 25, "same"), 1, rng.random(picture.shape)
    )
    picture *= 0.6 * np.where(patches > 0.5, 1.0, 0.15)
    rows, columns = np.mgrid[:size, :size]

    def at(image: NDArray, place: NDArray) -> NDArray:
        whole = np.floor(place).astype(int)
        part = place - whole
        return image[rows, whole] * (1 - part) + image[rows, whole + 1] * part

    left = at(picture, columns + room - label * step) + 0.15 * rng.normal(size=(size, size))
    right = picture + 0.075 * rng.normal(size=picture.shape)
    out = np.empty((size, size, K))
    for k in range(K):
        out[:, :, k] = -trust * np.minimum(abs(left - at(right, columns + room - k * step)), 0.5)
    r = window // 2
    padded = np.pad(out, ((r, r), (r, r), (0, 0)), mode="edge")
    out = sum(padded[i : i + size, j : j + size] for i in range(window) for j in range(window))
    return np.ascontiguousarray(out.reshape(size * size, K) / window**2)


def model_of(K: int, seed: str, size: int, number: int, pairs: str) -> FactorGraph:
    """A scene with general tables, or Potts pairs, between neighbours."""
    n = size * size
    graph = FactorGraph.empty([K] * n)
    graph = graph.add_tables(np.arange(n)[:, None], scene(K, seed, size, number))
    if pairs == "potts":
        return graph.add_potts(grid_edges(size, size), 2.0)
    slope, cut, _ = PAIRS[K]
    apart = abs(np.subtract.outer(np.arange(K), np.arange(K)))
    noise = 0.3 * np.random.default_rng(number).normal(size=(K, K))
    return graph.add_tables(grid_edges(size, size), (noise - slope * np.minimum(apart, cut))[None])


def whole(graph: FactorGraph, sweeps: int) -> Any:
    return BeliefPropagation(max_iters=sweeps, tol=1e-12)(graph)


def lists(graph: FactorGraph, sweeps: int) -> Any:
    return infer(graph, None, BeliefPropagation(max_iters=sweeps, tol=1e-12), values=VALUES)


def case(K: int, seed: str, size: int, number: int, pairs: str, repeats: int) -> float:
    """One line: times, how many times sooner lists are, and what they kept."""
    graph, n = model_of(K, seed, size, number, pairs), size * size
    reference = whole(graph, PAIRS[K][2]).probs.reshape(n, K)

    def error(probs: NDArray) -> tuple[float, float, float]:
        p = probs.reshape(n, K)
        apart = 0.5 * abs(p - reference).sum(axis=1)
        return apart.mean(), apart.max(), (p.argmax(1) != reference.argmax(1)).mean()

    def fewest(run: Callable, first: int) -> int:
        for sweeps in range(first, 41):
            answer = run(graph, sweeps)
            probs = answer.probs if run is whole else answer.marginals.probs
            if error(probs)[0] <= TARGET:
                break
        return sweeps

    a = fewest(whole, 2)
    trial = lists(graph, 5)
    b = a if trial.values.dense else fewest(lists, 4)
    took: dict[Callable, list[float]] = {whole: [], lists: []}
    for _ in range(repeats):
        for run, sweeps in ((whole, a), (lists, b)):
            begin = time.process_time()
            answer = run(graph, sweeps)
            took[run].append(time.process_time() - begin)
            if run is lists:
                found = answer
    one, two = (statistics.median(took[run]) for run in (whole, lists))
    off = error(found.marginals.probs)
    kept = found.values.n_kept / n
    laps = ", ".join(f"{name} {1e3 * t:.0f}" for name, t in found.timings.items() if t > 1e-3)
    print(
        f"{pairs:7s} K={K:3d} {seed:6s} scene {number}: whole {1e3 * one:6.0f} ms, {a} sweeps | "
        f"lists {1e3 * two:6.0f} ms, {b} sweeps, {kept:5.1f} values, {found.values.refreshes} "
        f"refreshes | {one / two:5.2f}x | off {off[0]:.4f}, at most {off[1]:.2f}, "
        f"{off[2]:.2%} of pixels otherwise; "
        f"outside about {found.values.outside_estimate / n:.4f} a pixel"
        f"{'; whole: ' + found.values.dense if found.values.dense else ''} ({laps})",
        flush=True,
    )
    return one / two


def bound(cases: int) -> int:
    """Draw Potts models small enough to enumerate; how many marginals are above their bound."""
    rng = np.random.default_rng(0)
    wrong = checked = useful = 0
    for _ in range(cases):
        graph = drawn(rng)
        upper = potts_upper(graph)
        assert not isinstance(upper, str), upper
        truth = enumerated(graph)
        wrong += int((truth * (1 - 1e-13) > upper).sum())  # enumeration rounds too
        checked += len(truth)
        useful += int((upper < 0.5).sum())
    print(f"{cases} models, {checked} marginals, {useful} bounds below a half: {wrong} violations")
    return wrong


def drawn(rng: np.random.Generator) -> FactorGraph:
    """A Potts model with weights per pair or one for all, zeros in the field, evidence."""
    K = int(rng.integers(2, 6))
    n = int(rng.integers(2, {2: 9, 3: 8, 4: 6, 5: 5}[K]))
    every = np.array(list(itertools.combinations(range(n), 2)))
    edges = every[rng.random(len(every)) < rng.uniform(0.3, 1.0)]
    if not len(edges):
        edges = every[:1]
    field = rng.normal(size=n * K) * rng.choice([0.0, 0.5, 2.0, 6.0])
    first = np.arange(n * K) % K == 0
    field[(rng.random(n * K) < rng.choice([0.0, 0.2])) & ~first] = -np.inf
    J = rng.choice([0.1, 0.5, 1.0, 3.0, 20.0])
    weights = rng.choice([J, 0.0, 0.3 * J], len(edges)) if rng.random() < 0.4 else J
    weights = J * rng.random(len(edges)) if rng.random() < 0.3 else weights
    graph = FactorGraph.empty([K] * n).tilt(field)
    if rng.random() < 0.5:
        graph = graph.add_potts(edges, weights)
    else:
        each = np.broadcast_to(weights, (len(edges),))
        graph = graph.add_tables(edges, each[:, None, None] * np.eye(K) + rng.normal())
    if rng.random() < 0.3:
        graph = graph.with_evidence({0: 0})
    return graph


def enumerated(graph: FactorGraph) -> NDArray[np.float64]:
    """All marginals, by adding up every assignment."""
    n, K = graph.n_variables, int(graph.n_states[0])
    x = np.array(list(itertools.product(range(K), repeat=n)))
    score = graph.log_score(x)
    p = np.exp(score - score.max())
    p /= p.sum()
    return np.array([p[x[:, v] == a].sum() for v in range(n) for a in range(K)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bound", type=int, metavar="N", help="check the bound on N drawn models")
    parser.add_argument("--pays-not", action="store_true", help="weak seeds, few values, Potts")
    parser.add_argument("--values", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--seeds", nargs="+", default=["strong", "medium"])
    parser.add_argument("--scenes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    ask = parser.parse_args()
    if ask.bound:
        raise SystemExit(1 if bound(ask.bound) else 0)
    cases = [(K, seed, "general") for K in ask.values for seed in ask.seeds]
    if ask.pays_not:
        cases = [(64, "weak", "general"), (16, "medium", "general"), (64, "medium", "potts")]
    case(cases[0][0], "strong", 16, 0, "general", 1)  # compiles
    ratios: dict[Any, list[float]] = {}
    for K, seed, pairs in cases:
        for number in ask.scenes:
            ratio = case(K, seed, ask.size, number, pairs, ask.repeats)
            ratios.setdefault((pairs, K, seed), []).append(ratio)
    for key, found in ratios.items():
        print(*key, f"least {min(found):.2f}x, median {statistics.median(found):.2f}x")


if __name__ == "__main__":
    main()
