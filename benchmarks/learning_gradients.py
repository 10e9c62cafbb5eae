"""Forward and backward through marginals at equal accuracy, beside torch unrolled and a JAX scan.

    python benchmarks/learning_gradients.py            # results, and the page
    python benchmarks/learning_gradients.py --dry      # prints the tables only

A grid of binary variables, random fields and couplings; loss = sum of squared P(x = 1). Everybody
stops as early as an error of 1e-6 allows: the largest difference of any derivative, by field or by
weight, from those of a fixed point converged to 1e-14, as a share of the largest. Of minfer that is
the largest tolerance, of the others the least number of sweeps; they send all messages at once and
differentiate through the sweeps. They come in two forms: over lists of edges, which takes any graph
as minfer does, and over four shifted arrays of messages, which takes grids alone. CPU seconds, one
thread on one core, in one process, interleaved; the median of several turns. All is measured a
second time in a process as anybody starts it: those ratios are of CPU seconds of all threads.

Beside it: what backward costs where forward is 1, and batches of small models through
``minfer.torch.marginals``, forward and backward in one call against a call for each row.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from learning_page import keep
from minfer import BeliefPropagation, Exact, FactorGraph, TreeReweighted
from minfer.graph import grid_edges
from minfer.solvers.gradients import pull_back
from minfer_experiments.measure import in_both_ways, in_turn, is_loose, medians, timed
from minfer_experiments.pages import table

#: Of the largest derivative, what everybody's gradient may be wrong by.
ERROR = 1e-6
#: Tolerances that minfer may be stopped at, from coarse to fine.
TOLERANCES = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7, 3e-8, 1e-8)
#: What each rival, in either form, must be slower by, by the side of the grid.
BARS = {("torch", 64): 10, ("JAX scan", 64): 6, ("torch", 256): 6, ("JAX scan", 256): 6}


def problem(side: int, scale: float, seed: int = 0) -> dict[str, Any]:
    """Log-odds (side, side), weights of conjunctions across (side, side-1), down (side-1, side)."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(size=(side, side))
    across = scale * rng.normal(size=(side, side - 1))
    down = scale * rng.normal(size=(side - 1, side))
    return {"a": log_odds, "across": across, "down": down, "edges": grid_edges(side, side)}


def graph_of(p: dict[str, Any]) -> FactorGraph:
    theta = flat(p, p["a"], p["across"], p["down"])[p["a"].size :]
    return FactorGraph.pairwise(p["a"].ravel(), p["edges"], theta)


def ours(
    p: dict[str, Any], solver: Any, tol: float
) -> tuple[Callable[[], np.ndarray], dict[str, Any]]:
    graph = graph_of(p)
    run, weights, told = solver.prepare(graph), graph.weights, {}
    pairs = slice(int(graph.weight_offsets[-1]) - len(p["edges"]), None)

    def step() -> np.ndarray:
        m = run(weights=weights)
        c = np.zeros_like(m.probs)
        c[1::2] = 2 * m.probs[1::2]
        back = pull_back(m, c, tol=tol)
        told.update(sweeps=m.iterations, back=back.sweeps, converged=back.converged, note=back.note)
        return np.concatenate([back.field[1::2], back.weights[pairs]])

    return step, told


def flat(p: dict[str, Any], by_field: Any, across: Any, down: Any) -> np.ndarray:
    """Derivatives of a grid in arrays as those of its edges in their order."""
    edges, side = p["edges"], len(p["a"])
    right = edges[:, 1] == edges[:, 0] + 1
    row, column = np.divmod(edges[:, 0], side)
    out = np.empty(len(edges))
    out[right] = np.asarray(across)[row[right], column[right]]
    out[~right] = np.asarray(down)[row[~right], column[~right]]
    return np.concatenate([np.asarray(by_field).ravel(), out])


def in_torch(p: dict[str, Any], sweeps: int) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    a, across, down = (torch.tensor(p[k], requires_grad=True) for k in ("a", "across", "down"))

    def step() -> Any:
        odds, wa, wd = torch.exp(a), torch.exp(across), torch.exp(down)
        left, right = torch.ones_like(wa), torch.ones_like(wa)  # into the right end; the left end
        up, low = torch.ones_like(wd), torch.ones_like(wd)

        def total() -> Any:
            pad = torch.nn.functional.pad
            return (
                odds * pad(left, (1, 0), value=1.0) * pad(right, (0, 1), value=1.0)
                * pad(up, (0, 0, 1, 0), value=1.0) * pad(low, (0, 0, 0, 1), value=1.0)
            )  # fmt: skip

        for _ in range(sweeps):
            b = total()
            c, d = b[:, :-1] / right, b[:, 1:] / left
            e, f = b[:-1] / low, b[1:] / up
            left, right = (1 + wa * c) / (1 + c), (1 + wa * d) / (1 + d)
            up, low = (1 + wd * e) / (1 + e), (1 + wd * f) / (1 + f)
        b = total()
        prob = b / (1 + b)
        loss = (prob**2).sum()
        return torch.autograd.grad(loss, (a, across, down))

    return step


def directed(p: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """From, to, the opposite of every message of a grid, and the weights of its edges."""
    edges = p["edges"].astype(np.int64)
    n = len(edges)
    back = np.concatenate([np.arange(n, 2 * n), np.arange(n)])
    ends = np.concatenate([edges, edges[:, ::-1]])
    return ends[:, 0], ends[:, 1], back, flat(p, p["a"], p["across"], p["down"])[p["a"].size :]


def in_torch_edges(p: dict[str, Any], sweeps: int) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    source, target, back, theta = directed(p)
    src, dst, rev = (torch.from_numpy(np.ascontiguousarray(x)) for x in (source, target, back))
    a = torch.tensor(p["a"].ravel(), requires_grad=True)
    w = torch.tensor(theta, requires_grad=True)
    soft = torch.nn.functional.softplus

    def step() -> Any:
        both = torch.cat([w, w])
        m = torch.zeros_like(both)
        for _ in range(sweeps):
            c = a.index_add(0, dst, m)[src] - m[rev]
            m = soft(c + both) - soft(c)
        prob = torch.sigmoid(a.index_add(0, dst, m))
        return torch.autograd.grad((prob**2).sum(), (a, w))

    return step


def in_jax_edges(p: dict[str, Any], sweeps: int) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    source, target, back, theta = directed(p)

    def loss(a: Any, w: Any) -> Any:
        both = jnp.concatenate([w, w])

        def sweep(m: Any, _: Any) -> Any:
            c = a.at[target].add(m)[source] - m[back]
            return jax.nn.softplus(c + both) - jax.nn.softplus(c), None

        m, _ = jax.lax.scan(sweep, jnp.zeros_like(both), None, length=sweeps)
        return (jax.nn.sigmoid(a.at[target].add(m)) ** 2).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    given = jnp.asarray(p["a"].ravel()), jnp.asarray(theta)

    def step() -> Any:
        return jax.block_until_ready(gradient(*given))

    return step


def in_jax(p: dict[str, Any], sweeps: int) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")

    def loss(a: Any, across: Any, down: Any) -> Any:
        odds, wa, wd = jnp.exp(a), jnp.exp(across), jnp.exp(down)

        def total(m: Any) -> Any:
            left, right, up, low = m
            one = {"constant_values": 1.0}
            return (
                odds * jnp.pad(left, ((0, 0), (1, 0)), **one)
                * jnp.pad(right, ((0, 0), (0, 1)), **one)
                * jnp.pad(up, ((1, 0), (0, 0)), **one) * jnp.pad(low, ((0, 1), (0, 0)), **one)
            )  # fmt: skip

        def sweep(m: Any, _: Any) -> Any:
            left, right, up, low = m
            b = total(m)
            c, d = b[:, :-1] / right, b[:, 1:] / left
            e, f = b[:-1] / low, b[1:] / up
            new = (
                (1 + wa * c) / (1 + c), (1 + wa * d) / (1 + d),
                (1 + wd * e) / (1 + e), (1 + wd * f) / (1 + f),
            )  # fmt: skip
            return new, None

        first = (jnp.ones_like(wa), jnp.ones_like(wa), jnp.ones_like(wd), jnp.ones_like(wd))
        last, _ = jax.lax.scan(sweep, first, None, length=sweeps)
        b = total(last)
        return ((b / (1 + b)) ** 2).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    given = tuple(jnp.asarray(p[k]) for k in ("a", "across", "down"))

    def step() -> Any:
        return jax.block_until_ready(gradient(*given))

    return step


RIVALS = {
    "torch, edges": in_torch_edges,
    "JAX scan, edges": in_jax_edges,
    "torch, shifted arrays": in_torch,
    "JAX scan, shifted arrays": in_jax,
}


def measured(steps: dict[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """Median CPU seconds of each, turn about."""
    return medians(in_turn(steps, turns))


def as_one(p: dict[str, Any], found: Any) -> np.ndarray:
    """Whatever a step gives as derivatives by log-odds, then by weights of the edges in order."""
    if isinstance(found, np.ndarray):
        return found
    parts = [np.asarray(x) for x in found]
    return flat(p, *parts) if len(parts) == 3 else np.concatenate(parts)


def error_of(p: dict[str, Any], found: Any, truth: np.ndarray) -> float:
    return float(np.abs(as_one(p, found) - truth).max() / np.abs(truth).max())


def stopped_early(
    p: dict[str, Any], truth: np.ndarray
) -> tuple[float, Callable[[], Any], dict[str, Any]]:
    """minfer with the largest tolerance whose gradient is right to ``ERROR``."""
    for tol in TOLERANCES:
        step, told = ours(p, BeliefPropagation(tol=tol), tol)
        if error_of(p, step(), truth) <= ERROR:
            return tol, step, told
    raise AssertionError("no tolerance is small enough")


def fewest(
    p: dict[str, Any], make: Any, truth: np.ndarray, guess: int
) -> tuple[int, Callable[[], Any]]:
    """The least number of sweeps whose gradient is right to ``ERROR``, and a step with so many."""

    def good(sweeps: int) -> bool:
        return error_of(p, make(p, sweeps)(), truth) <= ERROR

    while not good(guess):
        guess += 1
        assert guess < 1000
    while guess > 1 and good(guess - 1):
        guess -= 1
    return guess, make(p, guess)


def speed(sides: tuple[int, ...] = (64, 256), turns: int = 7) -> list[dict[str, Any]]:
    rows = []
    for side in sides:
        p = problem(side, 1.0)
        truth = ours(p, BeliefPropagation(tol=1e-14, max_iters=10_000), 1e-12)[0]()
        tol, step, told = stopped_early(p, truth)
        steps: dict[str, Callable[[], Any]] = {"minfer": step}
        sweeps, skipped, guess = {}, {}, 2 * told["sweeps"]
        for name, make in RIVALS.items():
            try:
                guess, steps[name] = fewest(p, make, truth, guess)
                sweeps[name] = f"{guess}"
            except ImportError as error:
                skipped[name] = str(error)
        error = {name: error_of(p, s(), truth) for name, s in steps.items()}
        sweeps["minfer"] = f"{told['sweeps']}, {told['back']} back"
        found = measured(steps, turns)
        for name, seconds in found.items():
            rows.append(
                {
                    "side": side, "who": name, "ms": 1e3 * seconds, "error": error[name],
                    "times": seconds / found["minfer"], "sweeps": sweeps[name], "tol": tol,
                    "bar": BARS.get((name.split(",")[0], side)),
                }
            )  # fmt: skip
        rows += [{"side": side, "who": n, "skipped": why} for n, why in skipped.items()]
    return rows


def frustrated(n: int = 60, scale: float = 0.45, seed: int = 0) -> FactorGraph:
    rng = np.random.default_rng(seed)
    edges = np.array([[a, b] for a in range(n) for b in range(a)])
    weights = -np.abs(rng.normal(size=len(edges))) * scale
    return FactorGraph.pairwise(rng.normal(size=n) / 2, edges, weights, feature="equal")


def costs(turns: int = 5) -> list[dict[str, Any]]:
    """Backward beside forward, both prepared: sweeps and CPU time, also of damped messages."""
    rng = np.random.default_rng(1)
    labels = FactorGraph.empty([8] * 1024).tilt(rng.normal(size=8192))
    labels = labels.add_potts(grid_edges(32, 32), 0.5 * rng.normal(size=1984))
    cases: list[tuple[str, FactorGraph, Any]] = [
        ("grid 64x64", graph_of(problem(64, 1.0)), BeliefPropagation()),
        ("grid 64x64, TRW", graph_of(problem(64, 1.0)), TreeReweighted()),
        ("Potts 32x32, 8 labels", labels, BeliefPropagation()),
        ("60 that all differ, damped", frustrated(),
         BeliefPropagation(damping=0.8, max_iters=5000)),
        ("40 that all differ, damped", frustrated(40, 0.6),
         BeliefPropagation(damping=0.8, max_iters=5000)),
    ]  # fmt: skip
    rows = []
    for name, graph, solver in cases:
        run, weights, forward, backward = solver.prepare(graph), graph.weights, [], []
        m = run(weights=weights)
        c = rng.normal(size=len(m.probs))
        pull_back(m, c, tol=solver.tol)
        for _ in range(turns):
            seconds, m = timed(partial(run, weights=weights))
            forward.append(seconds)
            seconds, back = timed(partial(pull_back, m, c, tol=solver.tol))
            backward.append(seconds)
        rows.append(
            {
                "model": name, "converged": m.converged, "sweeps": m.iterations,
                "back": back.sweeps, "ok": back.converged, "note": back.note,
                "share": float(np.median(backward) / np.median(forward)),
            }
        )  # fmt: skip
    return rows


def batches(n: int = 256, turns: int = 5) -> list[dict[str, Any]]:
    """A batch with gradients in one call, and the same by a call for each row."""
    import torch

    from minfer.torch import marginals

    torch.set_num_threads(1)
    rng = np.random.default_rng(3)
    chain = np.stack([np.arange(19), np.arange(1, 20)], 1)
    grid = graph_of(problem(10, 0.5))
    cases: list[tuple[str, FactorGraph, Any]] = [
        ("grid 10x10", grid, BeliefPropagation()),
        ("chain of 20", FactorGraph.pairwise(np.zeros(20), chain, 1.0), BeliefPropagation()),
        ("chain of 20, exact", FactorGraph.pairwise(np.zeros(20), chain, 1.0), Exact()),
        ("grid 10x10, TRW: row by row inside too", grid, TreeReweighted()),
    ]
    rows = []
    for name, graph, solver in cases:
        run, width = solver.prepare(graph), int(graph._offsets[-1])
        given = rng.normal(size=(n, width))

        def step(values: np.ndarray, run: Any = run, graph: Any = graph) -> Any:
            u = torch.tensor(values, requires_grad=True)
            w = torch.tensor(graph.weights, requires_grad=True)
            (marginals(run, u, w) ** 2).sum().backward()
            return u.grad.numpy(), w.grad.numpy()

        def singly(step: Any = step, given: np.ndarray = given) -> Any:
            found = [step(one) for one in given]
            return np.array([u for u, _ in found]), sum(w for _, w in found)

        def together(step: Any = step, given: np.ndarray = given) -> Any:
            return step(given)

        apart = max(float(np.abs(a - b).max()) for a, b in zip(together(), singly()))
        found = measured({"batch": together, "rows": singly}, turns)
        rows.append(
            {
                "model": name, "rows": n, "batch": 1e6 * found["batch"] / n,
                "singly": 1e6 * found["rows"] / n, "times": found["rows"] / found["batch"],
                "apart": apart,
            }
        )  # fmt: skip
    return rows


def section(found: dict[str, Any]) -> str:
    """For the page, from what was stored."""
    rows, backward, many = found["speed"], found["costs"], found["batches"]
    loose = {(r["side"], r["who"]): r["times"] for r in found.get("loose", []) if "times" in r}
    out = [] if loose else ["Not measured yet in a process that is not pinned.", ""]
    body, last = [], ["at least", *(["not pinned"] if loose else [])]
    for r in rows:
        side = f"{r['side']}x{r['side']}"
        if "skipped" in r:
            why = f"left out: {r['skipped']}"
            body.append([side, r["who"], "", "", "", why, *("" for _ in last)])
            continue
        bar = "" if r["bar"] is None else f"{r['bar']}"
        who = f"minfer, tol={r['tol']:g}" if r["who"] == "minfer" else r["who"]
        free = [_ratio(loose.get((r["side"], r["who"])))] if loose else []
        body.append([side, who, r["sweeps"], f"{r['error']:.1e}", f"{r['ms']:.3g}",
                     f"{r['times']:.1f}", bar, *free])  # fmt: skip
    out.append(table(["grid", "who", "sweeps", "error", "ms", "times minfer's", *last], body))
    short = [
        f"{r['who']} at {r['side']}x{r['side']} ({r['times']:.1f}, not {r['bar']})"
        for r in rows
        if r.get("bar") and r["times"] < r["bar"]
    ]
    if short:
        out += ["", f"Aims missed: {'; '.join(short)}."]
    body = []
    for r in backward:
        word = "" if r["ok"] and r["converged"] else "not converged"
        if r["back"] > r["sweeps"]:
            word = "; ".join(x for x in (word, "more sweeps than forward") if x)
        remarks = "; ".join(x for x in (word, r["note"]) if x)
        body.append([r["model"], f"{r['sweeps']}", f"{r['back']}", f"{r['share']:.2f}", remarks])
    head = ["model", "sweeps forward", "backward", "its time, forward = 1", ""]
    out += ["", table(head, body)]
    out += [
        "",
        f"Batches of {many[0]['rows']} through `minfer.torch.marginals`, gradients by fields and by"
        " shared weights: microseconds per row, forward and backward.",
        "",
    ]
    body = [
        [r["model"], f"{r['singly']:.0f}", f"{r['batch']:.3g}", f"{r['times']:.1f}",
         f"{r['apart']:.0e}"]
        for r in many
    ]  # fmt: skip
    head = ["model", "a call for each row", "one call", "speed-up", "largest difference"]
    out.append(table(head, body))
    return "\n".join(out)


def _ratio(x: float | None) -> str:
    return "" if x is None else f"{x:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sides", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--dry", action="store_true", help="print only")
    given = parser.parse_args()

    def everything() -> dict[str, Any]:
        rows = speed(tuple(given.sides), given.turns)
        if is_loose():
            return {"speed": rows}
        return {"speed": rows, "costs": costs(), "batches": batches()}

    both = in_both_ways(__file__, everything)
    if both is None:
        return
    found = {**both["pinned"], "loose": both["loose"]["speed"]}
    text = section(found)
    print(text)
    if not given.dry:
        keep("gradients", found, text)


if __name__ == "__main__":
    main()
