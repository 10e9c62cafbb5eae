"""Ignoring values against the whole model, at equal error; and the bound of Potts models.

    taskset -c 0 python benchmarks/values.py                 # general tables, 64 and 256 values
    taskset -c 0 python benchmarks/values.py --pays-not      # where lists must not cost much
    taskset -c 0 python benchmarks/values.py --rule          # when the seed's lists are too blind
    python benchmarks/values.py --bound 10000                # the Potts bound against enumeration

Scenes are rendered: slanted surfaces at different depths, a pair of pictures with texture and
noise, and for each pixel and each of K disparities the windowed difference of the two pictures.
Pair tables are truncated linear times noise, so nothing has structure. ``--kind flow`` has another
sort of scene: pieces of a picture that moved each its own way, a value being a movement in two
directions, so that values have no order. Both sides run through the
public functions from a built model to the marginals, by the same settings on every scene, each
stopped after the fewest sweeps at which the mean total variation from the converged answer of the
whole model is at most TARGET. CPU time of this process, interleaved, medians.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer import BeliefPropagation, FactorGraph, MinJoint, infer
from minfer.certified.potts import potts_upper
from minfer.conditioning import condition
from minfer.graph import grid_edges
from minfer.reduction.values import Values, chosen
from minfer_experiments.measure import in_turn, medians, timed

TARGET = 0.002
#: To ask for lists where they do not pay may cost this many times the whole model.
DEAR = 1.1
#: The one setting.
VALUES = MinJoint(0.02)
#: Window and trust in differences of pictures.
SEEDS = {"strong": (5, 120.0), "medium": (5, 60.0), "weak": (3, 15.0)}
#: Slope, truncation, sweeps of the reference.
PAIRS = {16: (0.8, 3, 200), 64: (0.5, 5, 80), 256: (0.25, 10, 30)}


def scene(K: int, trust: float, window: int, size: int, number: int) -> NDArray[np.float64]:
    """Log-weights of K disparities at each pixel, (size * size, K)."""
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
    return windowed(out, window)


def windowed(out: NDArray, window: int) -> NDArray[np.float64]:
    """Means over windows of pixels, (size, size, K) as (size * size, K)."""
    r, size = window // 2, len(out)
    padded = np.pad(out, ((r, r), (r, r), (0, 0)), mode="edge")
    out = sum(padded[i : i + size, j : j + size] for i in range(window) for j in range(window))
    return np.ascontiguousarray(out.reshape(size * size, -1) / window**2)


def flow(K: int, trust: float, window: int, size: int, number: int) -> NDArray[np.float64]:
    """Log-weights of K movements, side by side in both directions, (size * size, K)."""
    rng = np.random.default_rng(number)
    side = math.isqrt(K)
    y, x = np.mgrid[:size, :size]
    nearest = np.full((size, size), np.inf)
    moved = np.zeros((2, size, size), int)
    for _ in range(9):  # pieces around random points
        cy, cx = rng.uniform(0, size, 2)
        near = (y - cy) ** 2 + (x - cx) ** 2
        piece = near < nearest
        nearest = np.minimum(nearest, near)
        moved[:, piece] = rng.integers(0, side, 2)[:, None]
    picture = rng.normal(size=(size + side, size + side))
    picture = (picture + np.roll(picture, 1, 0) + np.roll(picture, 1, 1)) / 3
    first = picture[y + moved[0], x + moved[1]] + 0.15 * rng.normal(size=(size, size))
    second = picture + 0.15 * rng.normal(size=picture.shape)
    out = np.empty((size, size, K))
    for k in range(K):
        apart = abs(first - second[y + k // side, x + k % side])
        out[:, :, k] = -trust * np.minimum(apart, 0.5)
    return windowed(out, window)


def model_of(
    K: int, seed: str, size: int, number: int, pairs: str, trust: float | None = None
) -> FactorGraph:
    """A scene with general tables, of stereo or flow, or Potts pairs, between neighbours."""
    n = size * size
    window, usual = SEEDS[seed]
    trust = usual if trust is None else trust
    graph = FactorGraph.empty([K] * n)
    unary = flow(K, trust, window, size, number) if pairs == "flow" else (
        scene(K, trust, window, size, number)
    )  # fmt: skip
    graph = graph.add_tables(np.arange(n)[:, None], unary)
    if pairs == "potts":
        return graph.add_potts(grid_edges(size, size), 2.0)
    slope, cut, _ = PAIRS[K]
    apart = abs(np.subtract.outer(np.arange(K), np.arange(K)))
    if pairs == "flow":
        side = math.isqrt(K)
        a, b = np.arange(K) // side, np.arange(K) % side
        apart = abs(np.subtract.outer(a, a)) + abs(np.subtract.outer(b, b))
    noise = 0.3 * np.random.default_rng(number).normal(size=(K, K))
    return graph.add_tables(grid_edges(size, size), (noise - slope * np.minimum(apart, cut))[None])


def whole(graph: FactorGraph, sweeps: int) -> Any:
    return BeliefPropagation(max_iters=sweeps, tol=1e-12)(graph)


def lists(graph: FactorGraph, sweeps: int) -> Any:
    return infer(graph, None, BeliefPropagation(max_iters=sweeps, tol=1e-12), values=VALUES)


def case(K: int, seed: str, size: int, number: int, pairs: str, repeats: int) -> float:
    """One line: times, the speed-up of lists, and what they kept."""
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
    b = a if trial.values.dense else fewest(lists, 2)
    calls = {whole: partial(whole, graph, a), lists: partial(lists, graph, b)}
    runs = in_turn(calls, repeats, warm_up=False, timer=timed)
    found = runs[lists][-1][1]
    one, two = medians({run: [spent for spent, _ in rows] for run, rows in runs.items()}).values()
    off = error(found.marginals.probs)
    kept = found.values.n_kept / n
    short = " NOT THERE" if off[0] > TARGET else ""
    laps = ", ".join(f"{name} {1e3 * t:.0f}" for name, t in found.timings.items() if t > 1e-3)
    print(
        f"{pairs:7s} K={K:3d} {seed:6s} scene {number}: whole {1e3 * one:6.0f} ms, {a} sweeps | "
        f"lists {1e3 * two:6.0f} ms, {b} sweeps, {kept:5.1f} values, {found.values.refreshes} "
        f"refreshes | {one / two:5.2f}x | off {off[0]:.4f}{short}, "
        f"at most {off[1]:.2f}, "
        f"{off[2]:.2%} of pixels otherwise; "
        f"outside about {found.values.outside_estimate / n:.4f} a pixel"
        f"{'; whole: ' + found.values.dense if found.values.dense else ''} ({laps})",
        flush=True,
    )
    return one / two


def rule(K: int, size: int, number: int, kind: str, trust: float) -> None:
    """One line: what the seed's lists leave out, and how lists do that are not swept whole for it.

    Forced lists (``dense=False``) get twice as many sweeps as the whole model needed.
    """
    n = size * size
    graph = model_of(K, "medium", size, number, kind, trust)
    reference = whole(graph, PAIRS[K][2]).probs.reshape(n, K)
    seed = BeliefPropagation()(graph.keep(np.arange(n))).probs
    blind = 1.0 - float(seed[chosen(condition(graph), seed, VALUES)].sum()) / n

    def error(probs: NDArray) -> float:
        return float(0.5 * abs(probs.reshape(n, K) - reference).sum(axis=1).mean())

    for a in range(2, 41):
        if error(whole(graph, a).probs) <= TARGET:
            break
    took, _ = timed(lambda: whole(graph, a))
    forced = Values(VALUES, dense=False)
    for b in range(3, 2 * a + 1):
        solver = BeliefPropagation(max_iters=b, tol=1e-12)
        found = infer(graph, None, solver, values=forced)
        off = error(found.marginals.probs)
        if off <= TARGET:
            break
    mine, _ = timed(lambda: infer(graph, None, solver, values=forced))  # all kernels loaded
    usual = lists(graph, b).values.dense or "lists"
    print(
        f"{kind:7s} K={K} trust {trust:5.1f} scene {number}: seed's lists leave out {blind:.2f} | "
        f"forced lists: off {off:.4f} after {b} sweeps, {found.values.n_kept / n:.1f} values, "
        f"{took / mine:.2f}x the whole model's {a} sweeps | as asked for: {usual}",
        flush=True,
    )


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
    parser.add_argument("--rule", action="store_true", help="unaries from strong to weak")
    parser.add_argument("--kind", choices=["general", "flow"], default="general")
    parser.add_argument("--values", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--seeds", nargs="+", default=["strong", "medium"])
    parser.add_argument("--scenes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    ask = parser.parse_args()
    if ask.bound:
        raise SystemExit(1 if bound(ask.bound) else 0)
    if ask.rule:
        for number, trust in itertools.product(ask.scenes, (120.0, 60.0, 40.0, 25.0, 15.0, 8.0)):
            rule(ask.values[0], ask.size, number, ask.kind, trust)
        return
    cases = [(K, seed, ask.kind) for K in ask.values for seed in ask.seeds]
    if ask.pays_not:
        cases = [(64, "weak", "general"), (64, "weak", "flow"), (16, "medium", "general"),
                 (16, "strong", "general"), (16, "medium", "potts"), (64, "medium", "potts"),
                 (64, "strong", "potts")]  # fmt: skip
    case(cases[0][0], "strong", 16, 0, "general", 1)  # compiles
    ratios: dict[Any, list[float]] = {}
    for K, seed, pairs in cases:
        for number in ask.scenes:
            ratio = case(K, seed, ask.size, number, pairs, ask.repeats)
            ratios.setdefault((pairs, K, seed), []).append(ratio)
    for key, found in ratios.items():
        print(*key, f"least {min(found):.2f}x, median {statistics.median(found):.2f}x")
    if ask.pays_not:
        worst = 1.0 / min(min(found) for found in ratios.values())
        print(f"asked for lists: at most {worst:.3f} times the whole model, may be {DEAR}")


if __name__ == "__main__":
    main()
