"""Rows of evidence on Bayesian networks against pyAgrum (and pgmpy): bnlearn's repository.

    python benchmarks/networks_rows.py [--networks alarm,munin] [--sets 3] [--rows 1000]
                                       [--json F] [--check] [--cores]

One process, one pinned core, CPU time. In each of ``--sets`` rounds a fifth of the variables is
observed and one other is the target, both drawn; rows are drawn from the network. *One target* and
*all posteriors*: ``--rows`` rows of that set, our planning included, against pyAgrum's loop in its
best case: the observed set stays, so only values change (``chgEvidence``), and the first row, which
makes its tree, is not counted. *Frame*: the same from a data frame of state names to one of
answers, everything included. *Other sets*: every row observes another set. *Single*: one row, one
call, planned before. *No evidence*: all posteriors once, planning included on both sides.
Ratios are geometric means over rounds. ``--cores``: two threads against one, wall-clock time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer import Exact, FactorGraph, predict
from minfer.solvers.targets import Network

SMALL = ("alarm", "insurance", "hailfinder", "win95pts")
NETWORKS = (*SMALL, "pigs", "munin1", "link", "munin")
OBSERVED = 0.2
TOLERANCE = 1e-9
#: column -> network -> how many times sooner we have to be
BARS: dict[str, dict[str, float]] = {
    "one target": {**dict.fromkeys(NETWORKS[:5], 50.0), **dict.fromkeys(NETWORKS[5:], 30.0)},
    "all posteriors": {**dict.fromkeys(NETWORKS[:5], 100.0), **dict.fromkeys(NETWORKS[5:], 30.0)},
    "other sets": dict.fromkeys(SMALL, 10.0),
    "single, all": dict.fromkeys(SMALL, 5.0),
    "no evidence": dict.fromkeys(NETWORKS, 1.0),
}


def bundled(name: str) -> bytes:
    """A network of the pgmpy wheel, as BIF."""
    found = find_spec("pgmpy")
    if found is None or found.origin is None:
        raise SystemExit("this needs pgmpy and pyagrum: pip install pgmpy pyagrum")
    path = Path(found.origin).parent / "utils" / "example_models" / f"{name}.bif.gz"
    return gzip.decompress(path.read_bytes())


def load(name: str) -> tuple[Any, FactorGraph]:
    """As pyAgrum reads it, tables normalised (files round), and the same for us."""
    import pyagrum

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.bif"
        path.write_bytes(bundled(name))
        net = pyagrum.loadBN(str(path))
    states, tables = {}, {}
    for node in sorted(net.nodes()):
        net.cpt(node).normalizeAsCPT()
        variable, cpt = net.variable(node), net.cpt(node)
        child, *parents = cpt.names
        states[child] = list(variable.labels())
        axes = list(reversed(cpt.names))  # of the array
        order = [axes.index(p) for p in (*parents, child)]
        tables[child] = (parents, cpt.toarray().transpose(order))
    return net, FactorGraph.network(states, tables)


def sample(graph: FactorGraph, n: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Cases drawn from the network, parents first."""
    x = np.full((n, graph.n_variables), -1, dtype=np.int32)
    todo = list(range(graph.n_factors))
    while todo:
        f = todo.pop(0)
        *parents, child = (int(v) for v in graph.scope(f))
        if (x[0, parents] < 0).any():
            todo.append(f)
            continue
        p = np.exp(graph.log_table(f))[tuple(x[:, q] for q in parents)]
        p = np.broadcast_to(p, (n, p.shape[-1]))
        below = (np.cumsum(p, axis=1) < rng.random((n, 1))).sum(axis=1)
        x[:, child] = np.minimum(below, p.shape[1] - 1)
        lost = p[np.arange(n), x[:, child]] <= 0  # rounding: never a state that cannot be
        x[lost, child] = p[lost].argmax(axis=1)
    return x


def cpu(call: Callable[[], Any], repeats: int = 1) -> float:
    """CPU seconds of one call, the least of some."""
    best = math.inf
    for _ in range(repeats):
        begin = time.process_time()
        call()
        best = min(best, time.process_time() - begin)
    return best


class Theirs:
    """pyAgrum's loop over rows."""

    def __init__(self, net: Any, names: list[str], targets: list[int]) -> None:
        import pyagrum

        self.engine = pyagrum.LazyPropagation(net)
        self.engine.setNumberOfThreads(1)
        self.names, self.targets = names, targets
        if len(targets) < len(names):
            self.engine.setTargets({names[v] for v in targets})

    def row(self, states: NDArray[np.int32], changed: bool) -> NDArray[np.float64]:
        seen = np.flatnonzero(states >= 0).tolist()
        if changed:
            self.engine.setEvidence({self.names[v]: int(states[v]) for v in seen})
        else:
            for v in seen:
                self.engine.chgEvidence(self.names[v], int(states[v]))
        self.engine.makeInference()
        return np.concatenate(
            [self.engine.posterior(self.names[v]).toarray() for v in self.targets]
        )

    def loop(self, rows: NDArray[np.int32], changed: bool) -> tuple[float, list[NDArray]]:
        """Seconds a row, the first not counted, and the answers."""
        out = [self.row(rows[0], True)]
        begin = time.process_time()
        out += [self.row(row, changed) for row in rows[1:]]
        return (time.process_time() - begin) / (len(rows) - 1), out


def measure(name: str, sets: int, n: int, blank_too: bool) -> dict[str, Any]:
    """One network."""
    net, graph = load(name)
    names = [graph.name(v) for v in range(graph.n_variables)]
    every = list(range(graph.n_variables))
    few = 200 if graph.n_variables < 100 else 20
    rounds: list[dict[str, float]] = []
    worst = 0.0
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        cases = sample(graph, n, rng)
        order = rng.permutation(graph.n_variables)
        k = max(1, round(OBSERVED * graph.n_variables))
        seen, target = np.sort(order[:k]), int(order[k])
        rows = np.full_like(cases, -1)
        rows[:, seen] = cases[:, seen]
        found: dict[str, float] = {}

        def ask(given: NDArray[np.int32], targets: list[int]) -> tuple[float, Any]:
            network = Network(graph)
            network.ask(given[:9], targets)  # imports and compiling
            answer = network.ask(given, targets)

            def cold() -> None:
                network._plans.clear()
                network.ask(given, targets)

            return cpu(cold, 3) / len(given), answer

        for what, targets in (("one target", [target]), ("all posteriors", every)):
            some = max(3, few // (10 if len(targets) > 1 else 1))
            theirs, answers = Theirs(net, names, targets).loop(rows[:some], False)
            ours, mine = ask(rows, targets)
            found[f"{what}, us"], found[f"{what}, pyagrum us"] = ours * 1e6, theirs * 1e6
            found[what] = theirs / ours
            for r, answer in enumerate(answers):
                worst = max(worst, float(np.abs(mine.probs[r] - answer).max()))
            if what == "one target":
                frame = data_frame(graph, rows, seen)
                predict(graph, frame, names[target], workers=1)
                spent = cpu(lambda f=frame, t=target: predict(graph, f, names[t], workers=1), 3)
                found["frame"] = theirs * n / spent
                found["frame, us"] = spent / n * 1e6
            network = Network(graph)
            network.ask(rows[:1], targets)
            one = rows[:1]
            single = cpu(lambda n=network, o=one, t=targets: [n.ask(o, t) for _ in range(20)], 5)
            found["single" if len(targets) == 1 else "single, all"] = theirs / (single / 20)
        if name in SMALL:
            mixed = np.where(rng.random(cases.shape) < OBSERVED, cases, -1).astype(np.int32)
            theirs, answers = Theirs(net, names, [target]).loop(mixed[:few], True)
            ours, mine = ask(mixed, [target])
            found["other sets"], found["other sets, us"] = theirs / ours, ours * 1e6
            seen_target = mixed[:few, target] >= 0
            for r, answer in enumerate(answers):
                if not seen_target[r]:
                    worst = max(worst, float(np.abs(mine.probs[r] - answer).max()))
        rounds.append(found)
    row: dict[str, Any] = {"network": name, "nodes": graph.n_variables, "difference": worst}
    for key in rounds[0]:
        values = [r[key] for r in rounds]
        row[key] = statistics.geometric_mean(values)
        row[f"{key}, least"] = min(values)
    blank = np.full((1, graph.n_variables), -1, dtype=np.int32)
    if blank_too:
        repeats = 3 if name in SMALL else 1
        theirs = cpu(lambda: Theirs(net, names, every).row(blank[0], True), repeats)
        row["no evidence"] = theirs / cpu(lambda: Exact()(graph), repeats)
    return row


def data_frame(graph: FactorGraph, rows: NDArray[np.int32], seen: NDArray[np.integer]) -> Any:
    import pandas as pd

    columns = {}
    for v in seen.tolist():
        columns[graph.name(v)] = np.array(graph.states(v), dtype=object)[rows[:, v]]
    return pd.DataFrame(columns)


def pgmpy_row(name: str) -> float:
    """Seconds of one query of one target by pgmpy's variable elimination, of three rows."""
    from pgmpy.inference import VariableElimination
    from pgmpy.readwrite import BIFReader

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.bif"
        path.write_bytes(bundled(name))
        model = BIFReader(str(path)).get_model()
    _, graph = load(name)
    rng = np.random.default_rng(0)
    cases = sample(graph, 3, rng)
    order = rng.permutation(graph.n_variables)
    k = max(1, round(OBSERVED * graph.n_variables))
    engine = VariableElimination(model)
    begin = time.process_time()
    for row in cases:
        evidence = {graph.name(int(v)): graph.states(int(v))[row[v]] for v in order[:k]}
        engine.query([graph.name(int(order[k]))], evidence, show_progress=False)
    return (time.process_time() - begin) / 3


def two_cores(name: str, n: int) -> float:
    """How many times sooner two threads are, wall-clock, all posteriors of one observed set."""
    _, graph = load(name)
    rng = np.random.default_rng(0)
    cases = sample(graph, n, rng)
    cases[:, rng.permutation(graph.n_variables)[: int((1 - OBSERVED) * graph.n_variables)]] = -1
    network, every = Network(graph), list(range(graph.n_variables))
    network.ask(cases[:9], every)

    def wall(workers: int) -> float:
        begin = time.perf_counter()
        network.ask(cases, every, workers)
        return time.perf_counter() - begin

    pairs = [(wall(1), wall(2)) for _ in range(7)]
    return max(one / two for one, two in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--sets", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--pgmpy", default="alarm,insurance", help="networks for pgmpy too")
    parser.add_argument("--quick", action="store_true", help="without the runs of no evidence")
    parser.add_argument("--cores", action="store_true", help="two threads against one, alone")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--check", action="store_true", help="fail where a bar is missed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = [name for name in options.networks.split(",") if name]
    if options.cores:
        for name in names:
            print(f"{name:<12}{two_cores(name, 20 * options.rows):5.2f}x with two threads")
        return
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows, missed = [], []
    for name in names:
        row = measure(name, options.sets, options.rows, not options.quick)
        if name in options.pgmpy.split(","):
            row["pgmpy, one target"] = pgmpy_row(name) * 1e6 / row["one target, us"]
        rows.append(row)
        told = ", ".join(
            f"{what} {row[what]:.0f}x ({row.get(f'{what}, us', math.nan):.3g} us)"
            for what in ("one target", "frame", "all posteriors", "other sets", "single",
                         "single, all", "no evidence", "pgmpy, one target") if what in row
        )  # fmt: skip
        print(f"{name:<11} {told}; difference {row['difference']:.0e}", flush=True)
        for what, bars in BARS.items():
            if name in bars and row.get(what, math.inf) < bars[name]:
                missed.append(f"{name}: {what} {row[what]:.1f}x, which should be {bars[name]:g}x")
        if row["difference"] > TOLERANCE:
            missed.append(f"{name}: answers differ by {row['difference']:.1e}")
    if options.json:
        libraries = {who: version(who) for who in ("pgmpy", "pyagrum")}
        options.json.write_text(json.dumps({"rows": rows, "versions": libraries}, indent=2) + "\n")
    for text in missed:
        print(f"missed: {text}")
    if options.check and missed:
        sys.exit(f"{len(missed)} missed")


if __name__ == "__main__":
    main()
