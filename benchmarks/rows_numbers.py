"""Rows of evidence on one network: a prepared clique tree, a loop of ``Exact()``, and pyAgrum.

    python benchmarks/rows_numbers.py            # a few minutes, one core

CPU time, medians of interleaved runs in one process. The alarm network (Beinlich et al. 1989) has
its real structure and numbers of states here; its tables are drawn.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer import Exact, FactorGraph
from minfer.conditioning import condition
from minfer.elimination import clique_tree
from minfer.solvers.rows import RowPlan, flatten

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


def drawn_network(n: int, most_parents: int, states: int, seed: int = 0) -> Network:
    """A network with parents among the last few variables."""
    rng = np.random.default_rng(seed)
    card = rng.integers(2, states + 1, n).astype(np.int32)
    scopes = []
    for v in range(n):
        near = np.arange(max(0, v - 8), v)
        count = min(len(near), int(rng.integers(0, most_parents + 1)))
        scopes.append([*rng.choice(near, count, replace=False).tolist(), v])
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


def prepared(graph: FactorGraph) -> RowPlan:
    model = condition(graph)
    flat = flatten(model)
    plan = RowPlan.make(flat, clique_tree(model))
    plan.load(flat.log_psi, flat.field, model.constant)
    return plan


def cpu(work: Callable[[], Any], repeats: int = 1) -> float:
    """Seconds of CPU time of one call."""
    began = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - began) / repeats


def medians(work: dict[str, tuple[Callable[[], Any], int]], rounds: int = 5) -> dict[str, float]:
    """Interleaved: each piece of work with how often it is repeated in a round."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for call, _ in work.values():
        call()
    for _ in range(rounds):
        for name, (call, repeats) in work.items():
            times[name].append(cpu(call, repeats))
    return {name: float(np.median(t)) for name, t in times.items()}


def network_numbers(network: Network, n: int = 4000, loop: int = 40) -> dict[str, float]:
    """Microseconds a row, all posteriors, 20 % of the variables observed."""
    graph = as_graph(network)
    plan = prepared(graph)
    model = condition(graph)
    flat = flatten(model)
    tree = clique_tree(model)
    same, other = observed(network, n, 0.2, True), observed(network, n, 0.2, False)
    dicts = [{v: int(s) for v, s in enumerate(row) if s >= 0} for row in other[:loop]]
    calls = [(plan.run(evidence=other[i : i + 1]), d) for i, d in enumerate(dicts)]
    for found, d in calls:
        np.testing.assert_allclose(
            found.probs[0], Exact()(graph.with_evidence(d)).probs, atol=1e-12
        )
    solver = Exact()
    work: dict[str, tuple[Callable[[], Any], int]] = {
        "loop": (lambda: [solver(graph.with_evidence(d)) for d in dicts], 1),
        "plan": (lambda: RowPlan.make(flat, tree), 5),
        "load": (lambda: plan.load(flat.log_psi, flat.field, model.constant), 20),
        "one row": (lambda: plan.run(evidence=other[:1]), 200),
        "rows, any pattern": (lambda: plan.run(evidence=other), 1),
        "rows, one pattern": (lambda: plan.run(evidence=same), 1),
        "rows with a field": (lambda: plan.run(np.zeros((n, len(flat.field))), other), 1),
        "rows with joints": (lambda: plan.run(evidence=other, joints=True), 1),
    }
    out = medians(work)
    for name in out:
        out[name] *= 1e6 / (loop if name == "loop" else n if name.startswith("rows") else 1)
    out["times sooner"] = out["loop"] / out["rows, any pattern"]
    out["cells"] = plan.cells
    return out


def weight_numbers(graph: FactorGraph, n: int = 1000, loop: int = 40) -> dict[str, float]:
    """Microseconds a model of other weights on the same structure."""
    model = condition(graph)
    flat = flatten(model)
    plan = prepared(graph)
    log_psi = np.random.default_rng(0).normal(size=(n, len(flat.log_psi)))
    models = [_with_tables(graph, row) for row in log_psi[:loop]]
    found = plan.run(log_psi=log_psi)
    for r, other in enumerate(models):
        np.testing.assert_allclose(found.probs[r], Exact()(other).probs, atol=1e-12)
    solver = Exact()
    out = medians({
        "loop": (lambda: [solver(m) for m in models], 1),
        "rows": (lambda: plan.run(log_psi=log_psi), 1),
        "rows with joints": (lambda: plan.run(log_psi=log_psi, joints=True), 1),
    })  # fmt: skip
    for name in out:
        out[name] *= 1e6 / (loop if name == "loop" else n)
    out["times sooner"] = out["loop"] / out["rows"]
    return out


def _with_tables(graph: FactorGraph, log_psi: NDArray) -> FactorGraph:
    """The pairwise graph again, each factor with its own table."""
    tables = log_psi.reshape(-1, 2, 2)
    scopes = np.array([graph.scope(i) for i in range(graph.n_factors)])
    return FactorGraph.empty(graph.n_states).add_tables(scopes, tables)


def pairs_graph(edges: NDArray[np.int64], n: int) -> FactorGraph:
    """Binary variables with a table for every pair."""
    return FactorGraph.empty(np.full(n, 2, dtype=np.int32)).add_tables(
        edges, np.zeros((len(edges), 2, 2))
    )


def chain(n: int) -> FactorGraph:
    return pairs_graph(np.stack([np.arange(n - 1), np.arange(1, n)], axis=1), n)


def grid(side: int) -> FactorGraph:
    at = np.arange(side * side).reshape(side, side)
    across = np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], axis=1)
    down = np.stack([at[:-1].ravel(), at[1:].ravel()], axis=1)
    return pairs_graph(np.concatenate([across, down]), side * side)


def pyagrum_row(network: Network, rows: NDArray[np.int32]) -> float:
    """Microseconds a row, all posteriors, an unchanged observed set: pyAgrum's best case."""
    import pyagrum as gum

    card, scopes, tables = network
    bn = gum.BayesNet()
    names = [f"x{v}" for v in range(len(card))]
    for name, states in zip(names, card):
        bn.add(gum.LabelizedVariable(name, name, int(states)))
    for scope in scopes:
        for p in scope[:-1]:
            bn.addArc(names[p], names[scope[-1]])
    for scope, table in zip(scopes, tables):
        v = scope[-1]
        order = [names.index(x) for x in reversed(bn.cpt(names[v]).names)]
        turned = table.transpose([scope.index(u) for u in order])
        bn.cpt(names[v])[:] = np.ascontiguousarray(turned)
    engine = gum.LazyPropagation(bn)
    engine.setNumberOfThreads(1)

    def solve(row: NDArray[np.int32]) -> None:
        for v in np.flatnonzero(row >= 0):
            if engine.hasEvidence(names[v]):
                engine.chgEvidence(names[v], int(row[v]))
            else:
                engine.addEvidence(names[v], int(row[v]))
        engine.makeInference()
        for name in names:
            engine.posterior(name)

    solve(rows[0])
    return 1e6 * cpu(lambda: [solve(row) for row in rows]) / len(rows)


def numbers() -> dict[str, Any]:
    network = alarm()
    out: dict[str, Any] = {"alarm": network_numbers(network)}
    with suppress(ImportError):
        out["alarm"]["pyAgrum"] = pyagrum_row(network, observed(network, 40, 0.2, True))
    out["wide network"] = network_numbers(drawn_network(40, 4, 4, seed=3), 2000, 10)
    out["chain of 20"] = weight_numbers(chain(20))
    out["grid 6x6"] = weight_numbers(grid(6))
    return out


if __name__ == "__main__":
    print(json.dumps(numbers(), indent=1))
