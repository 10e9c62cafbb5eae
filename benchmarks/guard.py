"""Has anything become slower? The same calls on this code and on another, side by side.

    python benchmarks/guard.py OTHER [JOB ...] [--rounds 9] [--runs 3] [--json F]
    python benchmarks/guard.py --list

OTHER is a wheel of minfer, or a checkout. Both sides run on one core, in a process each that stays;
a job is built and called once on both, then the two take turns for ``--rounds`` rounds of at least
``SAMPLE`` CPU seconds, the same number of calls on either side. What counts is the median over
rounds of the ratio within a round. A job above ``RED`` is measured again, up to ``--runs`` times,
and is red if most of its runs are: then the exit code is 1. Each time both sides compile it anew,
in new processes: where machine code happens to lie can make a sweep take twice as long. Answers
are compared, too: exact ones must agree, and how far others are apart is told.

A job uses nothing but what both sides have in public, and draws its own models.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stopwatch import measure

HERE = Path(__file__).resolve().parents[1]
RED = 1.10
#: CPU seconds of a round, at least; a job's call may take longer.
SAMPLE = 0.05
#: What exact answers may differ by.
SAME = 1e-9

#: What is timed, and then asked for numbers to compare.
Call = Callable[[], Any]
JOBS: dict[str, Callable[[], tuple[Call, Callable[[Any], Any]]]] = {}
#: Jobs whose numbers are exact, or come to one fixed point.
EXACT: set[str] = set()


def job(name: str, exact: bool = True) -> Callable[[Any], Any]:
    """A function that builds something and returns the call that is timed, and how to read it."""

    def register(build: Any) -> Any:
        JOBS[name] = build
        if exact:
            EXACT.add(name)
        return build

    return register


def marginals(answer: Any) -> Any:
    return answer.probs


# ---------------------------------------------------------------------- messages


def grid(side: int, strength: float = 1.0, seed: int = 0) -> Any:
    from minfer import FactorGraph

    rng = np.random.default_rng(seed)
    return FactorGraph.grid(strength * rng.normal(size=(side, side)), 1.0)


def neighbours(rows: int, columns: int) -> np.ndarray:
    """Pairs of pixels that touch, (n, 2)."""
    pixel = np.arange(rows * columns).reshape(rows, columns)
    across = np.stack([pixel[:, :-1].ravel(), pixel[:, 1:].ravel()], axis=1)
    down = np.stack([pixel[:-1].ravel(), pixel[1:].ravel()], axis=1)
    return np.concatenate([across, down])


def pictures(side: int, n_states: int, seed: int = 0) -> Any:
    """A grid without pairs: a random field of so many labels."""
    from minfer import FactorGraph

    rng = np.random.default_rng(seed)
    n = side * side
    fields = list(rng.normal(size=(n, n_states)))
    return FactorGraph.from_tables([n_states] * n, [[v] for v in range(n)], fields)


def solved(solver: str, graph: Any, **settings: Any) -> tuple[Call, Any]:
    import minfer

    return partial(getattr(minfer, solver)(**settings), graph), marginals


for _name, _solver, _side, _settings in (
    ("bp, 10x10", "BeliefPropagation", 10, {}),
    ("bp, 64x64", "BeliefPropagation", 64, {}),
    ("bp, 256x256, 5 sweeps", "BeliefPropagation", 256, {"max_iters": 5}),
    ("bp damped, 64x64", "BeliefPropagation", 64, {"damping": 0.3}),
    ("bp flooding, 64x64", "BeliefPropagation", 64, {"schedule": "flooding"}),
    ("bp residual, 64x64", "BeliefPropagation", 64, {"schedule": "residual"}),
    ("trw, 32x32", "TreeReweighted", 32, {}),
    ("mean field, 64x64", "MeanField", 64, {}),
    ("join graph, 16x16", "JoinGraph", 16, {"max_cells": 64}),
    ("gibbs, 16x16", "Gibbs", 16, {"n_sweeps": 200, "burn_in": 20}),
    ("tempering, 10x10", "Tempering", 10, {"n_sweeps": 50, "burn_in": 10}),
):
    job(_name, exact=_solver not in ("Gibbs", "Tempering"))(
        lambda s=_solver, n=_side, k=_settings: solved(s, grid(n), **k)
    )


@job("bp, 700 variables, 20,000 pairs")
def _dense() -> tuple[Call, Any]:
    from minfer import FactorGraph

    rng = np.random.default_rng(0)
    pairs = rng.integers(700, size=(20_000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    weights = rng.normal(size=len(pairs)) * 0.1
    graph = FactorGraph.pairwise(rng.normal(size=700), pairs, weights, feature="equal")
    return solved("BeliefPropagation", graph)


@job("bp, chain of 1,000")
def _chain() -> tuple[Call, Any]:
    from minfer import FactorGraph

    pairs = [[i, i + 1] for i in range(999)]
    log_odds = np.random.default_rng(0).normal(size=1000)
    return solved("BeliefPropagation", FactorGraph.pairwise(log_odds, pairs, 1.0, feature="equal"))


@job("bp, 24x24, tables of 12 states")
def _tables() -> tuple[Call, Any]:
    rng, pairs = np.random.default_rng(1), neighbours(24, 24)
    tables = list(0.5 * rng.normal(size=(len(pairs), 12, 12)))
    return solved("BeliefPropagation", pictures(24, 12).add_tables(pairs, tables))


@job("bp, 32x32, 64 labels apart")
def _labels() -> tuple[Call, Any]:
    graph = pictures(32, 64).add_truncated_linear(neighbours(32, 32), 0.5, 5)
    return solved("BeliefPropagation", graph, max_iters=10)


@job("bp, 32x32, 16 labels, Potts")
def _potts() -> tuple[Call, Any]:
    return solved("BeliefPropagation", pictures(32, 16).add_potts(neighbours(32, 32), 0.7))


@job("bp, tables with zeros")
def _zeros() -> tuple[Call, Any]:
    rng, pairs = np.random.default_rng(2), neighbours(16, 16)
    tables = rng.normal(size=(len(pairs), 5, 5))
    tables[rng.random(tables.shape) < 0.2] = -np.inf
    tables[:, np.arange(5), np.arange(5)] = 0.0  # all alike is allowed
    return solved("BeliefPropagation", pictures(16, 5).add_tables(pairs, list(tables)))


def clauses(n: int) -> Any:
    from minfer import FactorGraph

    rng = np.random.default_rng(3)
    scopes = np.array([rng.choice(n // 3, 3, replace=False) for _ in range(n)])
    graph = FactorGraph.pairwise(0.5 * rng.normal(size=n // 3), [], [])
    return graph.add_clauses(scopes, rng.uniform(0.5, 1.5, n), signs=rng.choice([-1, 1], (n, 3)))


@job("bp, 3,000 clauses")
def _clauses() -> tuple[Call, Any]:
    return solved("BeliefPropagation", clauses(3000))


@job("bp, at most 5 of 20, on a grid")
def _cardinality() -> tuple[Call, Any]:
    sets = np.arange(400).reshape(20, 20)
    return solved("BeliefPropagation", grid(20).add_cardinality(sets, at_most=5))


@job("bp, parity checks of 600 bits")
def _parity() -> tuple[Call, Any]:
    from minfer import FactorGraph

    rng = np.random.default_rng(4)
    scopes = np.array([rng.choice(600, 6, replace=False) for _ in range(300)])
    log_odds = np.where(rng.random(600) < 0.05, 1.0, -1.0) * 2.5
    return solved("BeliefPropagation", FactorGraph.pairwise(log_odds, [], []).add_parity(scopes))


@job("prepared bp, 10x10, a call")
def _prepared() -> tuple[Call, Any]:
    from minfer import BeliefPropagation

    run = BeliefPropagation().prepare(grid(10))
    field = np.random.default_rng(5).normal(size=200)
    return partial(run, field=field), marginals


@job("prepared bp, 10x10, 512 rows")
def _batch() -> tuple[Call, Any]:
    from minfer import BeliefPropagation

    run = BeliefPropagation().prepare(grid(10))
    fields = np.random.default_rng(5).normal(size=(512, 200))
    return partial(run.batch, field=fields), marginals


@job("forward and backward, 32x32")
def _gradients() -> tuple[Call, Any]:
    import torch

    from minfer import BeliefPropagation
    from minfer.torch import marginals as layer

    torch.set_num_threads(1)
    run = BeliefPropagation().prepare(grid(32))
    start = torch.tensor(np.random.default_rng(6).normal(size=2 * 1024))

    def step() -> Any:
        field = start.clone().requires_grad_()
        layer(run, field).square().sum().backward()
        return field.grad

    return step, lambda gradient: gradient.numpy()


# ---------------------------------------------------------------------- exact, networks


def network(n: int = 40, seed: int = 0) -> Any:
    """A Bayesian network with names: up to three parents among the six variables before."""
    from minfer import FactorGraph

    rng = np.random.default_rng(seed)
    states = {f"v{i}": [f"s{k}" for k in range(rng.integers(2, 5))] for i in range(n)}
    tables: dict[str, Any] = {}
    for i, name in enumerate(states):
        near = [f"v{j}" for j in range(max(0, i - 6), i)]
        count = min(len(near), int(rng.integers(0, 4)))
        parents = sorted(rng.choice(near, count, replace=False)) if count else []
        shape = [len(states[p]) for p in parents]
        table = rng.dirichlet(np.ones(len(states[name])), size=shape or None)
        tables[name] = (list(map(str, parents)), table) if parents else table
    return FactorGraph.network(states, tables)


def cases(n: int, same: bool) -> list[dict[str, str]]:
    """Rows of evidence: the same ten variables observed in each, or others each time."""
    rng, found = np.random.default_rng(7), []
    chosen = rng.choice(40, 10, replace=False)
    for _ in range(n):
        which = chosen if same else rng.choice(40, 10, replace=False)
        found.append({f"v{i}": f"s{rng.integers(2)}" for i in which})
    return found


@job("exact, 12x12")
def _exact_grid() -> tuple[Call, Any]:
    return solved("Exact", grid(12))


@job("exact, a network")
def _exact_network() -> tuple[Call, Any]:
    return solved("Exact", network())


@job("query, one target, seen before")
def _query() -> tuple[Call, Any]:
    import minfer

    graph, evidence = network(), {"v3": "s0", "v20": "s1"}
    return partial(minfer.query, graph, "v30", evidence), lambda p: [p["s0"], p["s1"]]


@job("query, a small network that is new")
def _new_network() -> tuple[Call, Any]:
    import minfer

    states = {f"v{i}": ["yes", "no"] for i in range(6)}
    tables: dict[str, Any] = {"v0": [0.2, 0.8]}
    for i in range(1, 6):
        tables[f"v{i}"] = ([f"v{i // 2}" if i > 1 else "v0"], [[0.9, 0.1], [0.3, 0.7]])

    def ask() -> list[float]:
        graphs = [minfer.FactorGraph.network(states, tables) for _ in range(50)]
        return [minfer.query(graph, "v0", {"v5": "yes"})["yes"] for graph in graphs]

    return ask, lambda found: found


@job("query, other evidence each time")
def _queries() -> tuple[Call, Any]:
    import minfer

    graph, rows = network(), cases(20, same=False)

    def ask() -> list[float]:
        free = [next(f"v{i}" for i in range(40) if f"v{i}" not in row) for row in rows]
        return [minfer.query(graph, v, row)["s0"] for v, row in zip(free, rows)]

    return ask, lambda found: found


def _predicted(same: bool) -> tuple[Call, Any]:
    import minfer

    graph, rows = network(), cases(1000 if same else 200, same)
    columns = {f"v{i}": [row.get(f"v{i}", "") for row in rows] for i in range(40)}
    targets = ["v39"] if "v39" not in rows[0] else ["v38"]
    columns.pop(targets[0])

    def numbers(table: Any) -> list[float]:
        values = [v for v in dict(table).values() if isinstance(v[0], float)]
        return [float(x) for v in values for x in v]

    return partial(minfer.predict, graph, columns, targets, workers=1), numbers


job("predict, the same columns")(partial(_predicted, True))
job("predict, other columns in each row")(partial(_predicted, False))


@job("best assignment, 14x14")
def _best() -> tuple[Call, Any]:
    import minfer

    return partial(minfer.mpe, grid(14)), lambda best: [best.log_score]


@job("samples of a network", exact=False)
def _samples() -> tuple[Call, Any]:
    import minfer

    return partial(minfer.sample, network(), 1000), lambda found: []


# ---------------------------------------------------------------------- the method, and the rest


@job("infer, MinJoint, 64x64")
def _reduced() -> tuple[Call, Any]:
    from minfer import BeliefPropagation, MinJoint, infer

    call = partial(infer, grid(64, 5.0), MinJoint(0.01), BeliefPropagation())
    return call, lambda found: found.marginals.probs


@job("infer, compensated, 64x64")
def _compensated() -> tuple[Call, Any]:
    from minfer import BeliefPropagation, Compensated, MinJoint, infer

    solver, recipe = BeliefPropagation(), Compensated()
    call = partial(infer, grid(64, 5.0), MinJoint(0.01), solver, recipe=recipe)
    return call, lambda found: found.marginals.probs


@job("intervals, 24x24, so much work", exact=False)
def _intervals() -> tuple[Call, Any]:
    import minfer

    call = partial(minfer.intervals, grid(24), time_limit=600, work=2**24, workers=1)
    return call, lambda found: np.concatenate([found.lo, found.hi])


@job("auto, 14x14", exact=False)
def _auto() -> tuple[Call, Any]:
    return solved("Auto", grid(14))


@job("auto, 40x40 of 5 states", exact=False)
def _auto_large() -> tuple[Call, Any]:
    rng, pairs = np.random.default_rng(8), neighbours(40, 40)
    graph = pictures(40, 5).add_tables(pairs, list(rng.normal(size=(len(pairs), 5, 5))))
    return solved("Auto", graph)


@job("arcs of 64 sentences")
def _arcs() -> tuple[Call, Any]:
    from minfer.parsing import tree_marginals

    scores = np.random.default_rng(9).normal(size=(64, 26, 26))
    return partial(tree_marginals, scores, projective=False), lambda found: found[0]


@job("arcs of 16 sentences, projective")
def _projective() -> tuple[Call, Any]:
    from minfer.parsing import tree_marginals

    scores = np.random.default_rng(9).normal(size=(16, 26, 26))
    return partial(tree_marginals, scores), lambda found: found[0]


@job("a chain CRF, five steps")
def _crf() -> tuple[Call, Any]:
    from minfer.learn import ChainCRF

    rng = np.random.default_rng(10)
    words = [[[f"w{rng.integers(300)}"] for _ in range(15)] for _ in range(100)]
    tags = [[f"t{rng.integers(8)}" for _ in sentence] for sentence in words]
    call = partial(ChainCRF(max_iterations=5).fit, words, tags)
    return call, lambda crf: crf.log_likelihood(words[:5], tags[:5])


def _rules(grounding: str) -> tuple[Call, Any]:
    from minfer import Rules
    from minfer.rules.examples import friends_and_smokers

    data = friends_and_smokers()

    def run() -> Any:
        rules = (
            Rules()
            .closed("friends", data["friends"], types=("person", "person"))
            .open("smokes", data["people"], types=("person",), probability=0.3)
            .rule("0.7: friends(x, y) => (smokes(x) <=> smokes(y))")
        )
        return rules.infer(grounding=grounding)

    return run, lambda answer: list(answer["smokes"]["probability"])


job("rules, all groundings")(partial(_rules, "full"))
job("rules, lazily", exact=False)(partial(_rules, "lazy"))


def memory() -> int:
    """The most memory that a process takes to build a large grid and to run BP on it."""
    solved("BeliefPropagation", grid(700), max_iters=5)[0]()
    return measure.peak()


# ---------------------------------------------------------------------- two sides


def work() -> None:
    """A side: jobs come as lines of JSON, and so do their times and numbers."""
    calls: dict[str, Any] = {}
    for line in sys.stdin:
        name, number = json.loads(line)
        try:
            if name not in calls:
                call, read = calls[name] = JOBS[name]()
                numbers = np.asarray(read(call()), dtype=float).ravel()
                once = measure.cpu_seconds(call)
                said: dict[str, Any] = {"numbers": numbers.tolist(), "seconds": once}
            else:
                said = {"seconds": measure.cpu_seconds(calls[name][0], number)}
        except ImportError as error:
            said = {"missing": str(error)}
        print(json.dumps(said), flush=True)


class Side:
    """A process with one minfer on its path."""

    def __init__(self, path: Path, **more: str) -> None:
        self.path = path
        self.environment = {**os.environ, **measure.ONE_THREAD, "PYTHONPATH": str(path), **more}
        self.command = [sys.executable, __file__]
        self.process = subprocess.Popen(
            [*self.command, "--worker"], env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, name: str, number: int = 1) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, number]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"guard: {name} ended its process")
        return json.loads(line)

    def memory(self) -> int:
        call = [*self.command, "--memory"]
        said = subprocess.check_output(call, env=self.environment, text=True)
        return int(said)

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def compared(name: str, new: Side, old: Side, rounds: int, runs: int) -> dict[str, Any]:
    """A job on both sides: ratios of all runs, and how far its numbers are apart."""
    first, other = new.ask(name), old.ask(name)
    if "missing" in first or "missing" in other:
        return {"name": name, "missing": first.get("missing") or other["missing"]}
    number = max(1, int(np.ceil(SAMPLE / max(other["seconds"], 1e-7))))
    apart = np.abs(np.subtract(first["numbers"], other["numbers"])).max(initial=0.0)
    ratios: list[float] = []
    found: dict[str, list[Any]] = {}
    while len(ratios) < runs and (not ratios or max(ratios) > RED):
        with ExitStack() as stack:
            if ratios:
                caches = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(2)]
                new = stack.enter_context(Side(new.path, MINFER_CACHE_DIR=caches[0]))
                old = stack.enter_context(Side(old.path, MINFER_CACHE_DIR=caches[1]))
                new.ask(name), old.ask(name)
            found = measure.in_turn(
                {"new": partial(new.ask, name, number), "old": partial(old.ask, name, number)},
                rounds, warm_up=False, there_and_back=True, timer=lambda ask: ask()["seconds"],
            )  # fmt: skip
        ratios.append(measure.median_ratio(found["new"], found["old"]))
    times = measure.medians(found)
    return {
        "name": name, "ratios": ratios, "apart": float(apart),
        "ms": 1e3 * times["new"], "ms_other": 1e3 * times["old"],
        "red": sum(ratio > RED for ratio in ratios) > runs // 2,
        "wrong": name in EXACT and not apart <= SAME,
    }  # fmt: skip


def unpacked(other: Path, scratch: Path) -> Path:
    """The folder that has the package minfer in it."""
    if other.suffix == ".whl":
        with zipfile.ZipFile(other) as wheel:
            wheel.extractall(scratch)
        return scratch
    for place in (other / "src", other):
        if (place / "minfer" / "__init__.py").exists():
            return place.resolve()
    sys.exit(f"guard: {other} is neither a wheel nor a checkout of minfer")


def measured(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = unpacked(asked.other, scratch)
        new, old = stack.enter_context(Side(HERE / "src")), stack.enter_context(Side(path))
        chosen = [n for n in JOBS if not asked.jobs or any(part in n for part in asked.jobs)]
        for name in chosen:
            yield compared(name, new, old, asked.rounds, asked.runs)
        if not asked.jobs or "memory" in asked.jobs:
            bytes_new, bytes_old = new.memory(), old.memory()
            ratio = bytes_new / bytes_old
            yield {
                "name": "memory, 700x700 (MiB)", "ratios": [ratio], "apart": 0.0,
                "ms": bytes_new / 2**20, "ms_other": bytes_old / 2**20, "red": ratio > RED,
                "wrong": False,
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, nargs="?", help="a wheel or a checkout of minfer")
    parser.add_argument("jobs", nargs="*", help="jobs that have one of these in their names")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", type=int, default=3, help="at most, of a job that looks slow")
    parser.add_argument("--json", type=Path, help="a file for all numbers")
    parser.add_argument("--list", action="store_true", help="the jobs")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(JOBS))
        return
    if asked.worker or asked.memory:
        print(memory(), flush=True) if asked.memory else work()
        return
    if asked.other is None:
        parser.error("which other minfer?")
    core = measure.pin()
    print(f"CPU time on core {core}, this code / the other; red above {RED:.2f}")
    rows = []
    wide = min(shutil.get_terminal_size().columns, 100) - 46
    for row in measured(asked):
        rows.append(row)
        if "missing" in row:
            print(f"{row['name']:<{wide}} not measured: {row['missing']}", flush=True)
            continue
        ratios = " ".join(f"{ratio:.2f}" for ratio in row["ratios"])
        mark = "WRONG" if row["wrong"] else "RED" if row["red"] else ""
        apart = f"{row['apart']:.0e}" if row["apart"] else "same"
        times = f"{row['ms']:9.3f} {row['ms_other']:9.3f}"
        print(f"{row['name']:<{wide}} {times}  {ratios:<15} {apart:>6} {mark}", flush=True)
    bad = [row["name"] for row in rows if row.get("red") or row.get("wrong")]
    if asked.json:
        asked.json.write_text(json.dumps({**measure.about(), "jobs": rows}, indent=1) + "\n")
    print("green" if not bad else f"not green: {', '.join(bad)}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
