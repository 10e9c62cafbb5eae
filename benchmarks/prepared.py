"""Structure prepared once, numbers many: what that is worth, against the code before it.

    taskset -c 0 python benchmarks/prepared.py BEFORE          # a checkout from before

Both run in processes of their own, in turn, ``--rounds`` times; a call's time is the median of its
CPU times in a round, and a ratio is the median over rounds. The code before has no prepared runs
and does each job as its users had to: a new graph for new weights, a loop of calls for many rows.
The alarm network (Beinlich et al. 1989) has its real structure and numbers of states; its tables
are drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minfer import BeliefPropagation, Exact, FactorGraph, TreeReweighted
from minfer.graph import grid_edges
from stopwatch import measure as m

HERE = Path(__file__).resolve().parents[1]
Jobs = dict[str, tuple[Callable[[], object], int]]  # name -> what to do, for how many

#: job -> (the job it is compared with, in which code, the bar)
BARS: dict[str, list[tuple[str, str, float]]] = {
    "gradient, TRW": [("gradient, TRW", "before", 4.0)],
    "gradient, BP": [("gradient, BP", "before", 4.0)],
    "10x10 grids": [("10x10 grids, loop", "before", 30.0), ("10x10 grids, union", "before", 3.0)],
    "10x10 grids, float32": [("10x10 grids, union", "before", 8.0)],
    "10x10 grids, coupling 1": [("10x10 grids, coupling 1, loop", "before", 30.0)],
    "10x10 grids, coupling 1, float32": [("10x10 grids, coupling 1, loop", "before", 30.0)],
    "chains of 20": [("chains of 20, loop", "before", 500.0)],
    "alarm, rows": [("alarm, loop", "before", 300.0)],
    "alarm, one row": [("alarm, loop", "before", 1.0)],
    "10x10 grid, one call": [("10x10 grid, one call", "before", 1.0)],
    "10x10 grid, prepared call": [("10x10 grid, one call", "before", 1.0)],
    "factors(ids)": [("a sweep", "after", 0.5)],
}


#: variable, states, parents
ALARM = """
HISTORY 2 LVFAILURE; CVP 3 LVEDVOLUME; PCWP 3 LVEDVOLUME; HYPOVOLEMIA 2;
LVEDVOLUME 3 HYPOVOLEMIA LVFAILURE; LVFAILURE 2; STROKEVOLUME 3 HYPOVOLEMIA LVFAILURE;
ERRLOWOUTPUT 2; HRBP 3 ERRLOWOUTPUT HR; HREKG 3 ERRCAUTER HR; ERRCAUTER 2; HRSAT 3 ERRCAUTER HR;
INSUFFANESTH 2; ANAPHYLAXIS 2; TPR 3 ANAPHYLAXIS; EXPCO2 4 ARTCO2 VENTLUNG; KINKEDTUBE 2;
MINVOL 4 INTUBATION VENTLUNG; FIO2 2; PVSAT 3 FIO2 VENTALV; SAO2 3 PVSAT SHUNT; PAP 3 PULMEMBOLUS;
PULMEMBOLUS 2; SHUNT 2 INTUBATION PULMEMBOLUS; INTUBATION 3; PRESS 4 INTUBATION KINKEDTUBE VENTTUBE;
DISCONNECT 2; MINVOLSET 3; VENTMACH 4 MINVOLSET; VENTTUBE 4 DISCONNECT VENTMACH;
VENTLUNG 4 INTUBATION KINKEDTUBE VENTTUBE; VENTALV 4 INTUBATION VENTLUNG; ARTCO2 3 VENTALV;
CATECHOL 2 ARTCO2 INSUFFANESTH SAO2 TPR; HR 3 CATECHOL; CO 3 HR STROKEVOLUME; BP 3 CO TPR
"""

Network = tuple[NDArray[np.int32], list[list[int]], list[NDArray[np.float64]]]


def alarm(seed: int = 0) -> Network:
    """States, scopes (parents, then the variable) and conditional tables of the alarm network."""
    lines = [line.split() for line in ALARM.replace("\n", " ").split(";")]
    number = {line[0]: v for v, line in enumerate(lines)}
    card = np.array([int(line[1]) for line in lines], dtype=np.int32)
    scopes = [[*(number[p] for p in line[2:]), v] for v, line in enumerate(lines)]
    return card, scopes, drawn_tables(card, scopes, seed)


def drawn_tables(card: NDArray, scopes: list[list[int]], seed: int) -> list[NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    shapes = [tuple(int(s) for s in card[scope]) for scope in scopes]
    return [rng.dirichlet(np.full(shape[-1], 0.5), shape[:-1]) for shape in shapes]


def as_graph(network: Network) -> FactorGraph:
    card, scopes, tables = network
    graph = FactorGraph.empty(card)
    for scope, table in zip(scopes, tables):
        graph = graph.add_tables([scope], [np.log(table)])
    return graph


def sampled(network: Network, n: int, seed: int = 1) -> NDArray[np.int32]:
    """Rows (n, V) drawn from the network."""
    card, scopes, tables = network
    rng = np.random.default_rng(seed)
    x = np.full((n, len(card)), -1, dtype=np.int32)
    while (x < 0).any():
        for scope, table in zip(scopes, tables):
            v, parents = scope[-1], scope[:-1]
            if x[0, v] < 0 and (not parents or (x[0, parents] >= 0).all()):
                p = np.broadcast_to(table[tuple(x[:, parents].T)], (n, card[v]))
                x[:, v] = (rng.random((n, 1)) > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    return x


def observed(
    network: Network, n: int, share: float, same: bool, seed: int = 2
) -> NDArray[np.int32]:
    """Rows of evidence: a share of the variables, the same in all rows or not."""
    rows = sampled(network, n, seed)
    rng = np.random.default_rng(seed)
    count = max(1, round(share * rows.shape[1]))
    hide = np.ones(rows.shape, dtype=bool)
    for r in range(n):
        if r == 0 or not same:
            chosen = rng.permutation(rows.shape[1])[:count]
        hide[r, chosen] = False
    rows[hide] = -1
    return rows


# ---------------------------------------------------------------------- the jobs


def gradient(solver: object, new: bool) -> Callable[[], object]:
    """A warm step with other weights over ten 64x64 pictures: expectations and log Z."""
    rng = np.random.default_rng(0)
    pixel = np.arange(10 * 64 * 64).reshape(10, 64, 64)
    edges = np.concatenate(
        [
            np.stack([pixel[:, :, :-1].ravel(), pixel[:, :, 1:].ravel()], 1),
            np.stack([pixel[:, :-1].ravel(), pixel[:, 1:].ravel()], 1),
        ]
    )
    log_odds = rng.normal(size=pixel.size)
    graph = FactorGraph.pairwise(log_odds, edges, 0.5, feature="equal")
    state: dict = {"m": None, "k": 0}
    if new:
        run, weights = solver.prepare(graph), graph.weights  # type: ignore[attr-defined]

        def step() -> float:
            state["k"] += 1
            m = state["m"] = run(weights=weights * (1 + 1e-3 * state["k"]), start=state["m"])
            m.statistics()
            return m.log_z

        return step

    def rebuilt() -> float:
        state["k"] += 1
        scale = 1 + 1e-3 * state["k"]
        other = FactorGraph.pairwise(log_odds * scale, edges, 0.5 * scale, feature="equal")
        m = solver(other)  # type: ignore[operator]
        m.factors(np.arange(pixel.size, other.n_factors))
        return m.log_z

    return rebuilt


def pictures(n: int, edges: NDArray, coupling: float, size: int, new: bool, name: str) -> Jobs:
    fields = np.random.default_rng(0).normal(size=(n, size))
    solver = BeliefPropagation()
    if new:
        run = solver.prepare(FactorGraph.pairwise(np.zeros(size), edges, coupling, feature="equal"))
        rows = np.zeros((n, 2 * size))
        rows[:, 1::2] = fields
        return {
            # a loop of calls does not compute log Z either, unless somebody asks for it
            name: (lambda: run.batch(field=rows, log_z=False), n),
            f"{name}, float32": (lambda: run.batch(field=rows, log_z=False, dtype="float32"), n),
            f"{name}, with log Z": (lambda: run.batch(field=rows), n),
        }
    model = FactorGraph.pairwise(np.zeros(size), edges, coupling, feature="equal")
    rows = np.zeros((100, 2 * size))
    rows[:, 1::2] = fields[:100]
    shifted = (edges[None] + size * np.arange(n)[:, None, None]).reshape(-1, 2)
    union = FactorGraph.pairwise(fields.ravel(), shifted, coupling, feature="equal")
    return {
        f"{name}, loop": (lambda: [solver(model.tilt(row)) for row in rows], len(rows)),
        f"{name}, union": (lambda: solver(union), n),
    }


def jobs(new: bool) -> Jobs:
    rng = np.random.default_rng(0)
    out: Jobs = {
        "gradient, TRW": (gradient(TreeReweighted(max_iters=2), new), 1),
        "gradient, BP": (gradient(BeliefPropagation(max_iters=2), new), 1),
    }
    grid, chain = grid_edges(10, 10), np.array([[i, i + 1] for i in range(19)], dtype=np.int32)
    out |= pictures(1000, grid, 0.5, 100, new, "10x10 grids")
    out |= pictures(1000, grid, 1.0, 100, new, "10x10 grids, coupling 1")
    out |= pictures(1000, chain, 1.0, 20, new, "chains of 20")
    network = alarm()
    graph, evidence = as_graph(network), observed(network, 2000, 0.2, same=False)
    if new:
        rows = Exact().prepare(graph)
        out["alarm, rows"] = (lambda: rows.batch(evidence), len(evidence))
        out["alarm, one row"] = (lambda: [rows(evidence=e) for e in evidence[:50]], 50)
    else:
        seen = [
            graph.with_evidence({v: int(x) for v, x in enumerate(e) if x >= 0})
            for e in evidence[:50]
        ]
        out["alarm, loop"] = (lambda: [Exact()(g) for g in seen], len(seen))
    small, solver = FactorGraph.grid(rng.normal(size=(10, 10)), 1.0), BeliefPropagation()
    out["10x10 grid, one call"] = (lambda: [solver(small) for _ in range(50)], 50)
    pixel = np.arange(1600).reshape(40, 40)
    pairs = np.concatenate(
        [
            np.stack([pixel[:, :-1].ravel(), pixel[:, 1:].ravel()], 1),
            np.stack([pixel[:-1].ravel(), pixel[1:].ravel()], 1),
        ]
    )
    tables = FactorGraph.empty([17] * 1600).add_tables(
        pairs, rng.normal(size=(len(pairs), 17, 17)) * 0.3
    )
    answer = BeliefPropagation()(tables)
    out["factors(ids)"] = (lambda: answer.factors(np.arange(len(pairs))), 1)
    if new:
        run = solver.prepare(small)
        out["10x10 grid, prepared call"] = (lambda: [run() for _ in range(50)], 50)
        few = BeliefPropagation(max_iters=4, tol=0.0).prepare(tables)
        many = BeliefPropagation(max_iters=14, tol=0.0).prepare(tables)
        out["4 sweeps"], out["14 sweeps"] = (few, 1), (many, 1)
    return out


def measure(new: bool) -> dict[str, float]:
    """CPU microseconds of each job, for one."""
    out = {}
    for name, (go, count) in jobs(new).items():
        out |= m.medians(m.in_turn({name: go}, 5))
        out[name] *= 1e6 / count
    if new:
        out["a sweep"] = (out.pop("14 sweeps") - out.pop("4 sweeps")) / 10
    return out


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("before", type=Path, nargs="?", help="a checkout of the code before")
    cli.add_argument("--side", choices=("before", "after"), help=argparse.SUPPRESS)
    cli.add_argument("--rounds", type=int, default=3)
    asked = cli.parse_args()
    if asked.side:
        print(json.dumps(measure(asked.side == "after")))
        return
    if asked.before is None:
        cli.error("give a checkout of the code before")
    sides: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    for _ in range(asked.rounds):
        for side, root in (("before", asked.before.resolve()), ("after", HERE)):
            env = {**os.environ, "PYTHONPATH": str(root / "src")}
            done = subprocess.run(
                [sys.executable, __file__, "--side", side],
                env=env, check=True, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            sides[side].append(json.loads(done.stdout))
    body = []
    for name, bars in BARS.items():
        for other, side, bar in bars:
            mine = np.array([r[name] for r in sides["after"]])
            theirs = np.array([r[other] for r in sides[side]])
            ratio = m.median_ratio(theirs, mine)
            word = "" if ratio >= bar else ", missed"
            body.append(
                [name, f"{np.median(mine):.3g}", f"{other} ({side})", f"{np.median(theirs):.4g}",
                 f"{ratio:.3g}", f"{bar:g}{word}"]
            )  # fmt: skip
    from minfer_experiments import pages  # of this checkout

    print(pages.table(["job", "us", "compared with", "us", "speed-up", "bar"], body))


if __name__ == "__main__":
    main()
