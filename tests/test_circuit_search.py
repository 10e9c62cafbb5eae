"""The search for a circuit: limits of time, memory and steps, Ctrl-C, refusals, repeatability."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

import minfer
from minfer import Exact, FactorGraph, RefusedError
from minfer.engine.circuits import driver
from minfer.engine.conditioning import condition
from minfer.solvers import circuit as circuits
from minfer.solvers import exact
from minfer.solvers.clique_passes import check_tree
from minfer.solvers.loose_ends import loose_ends

GIB = 2.0**30


def parities(n: int = 34, each: int = 60, seed: int = 0) -> FactorGraph:
    """Clauses of three of n variables, and weights that are all different: many nodes."""
    rng = np.random.default_rng(seed)
    scopes = [rng.choice(n, 3, replace=False).tolist() for _ in range(each)]
    signs = rng.choice([-1, 1], (each, 3)).tolist()
    graph = FactorGraph.empty([2] * n).add_clauses(scopes, signs=signs)
    pairs = [[v, (v + 1) % n] for v in range(n)]
    return graph.add_tables(pairs, rng.normal(size=(n, 2, 2)))


def build(graph: FactorGraph, **limits):
    return driver.build(condition(graph), **{"max_gib": 4.0, **limits})


def same(one, two) -> None:
    for a, b in zip(one, two):
        np.testing.assert_array_equal(a, b)


def test_the_same_run_twice_is_the_same_circuit(monkeypatch):
    graph = parities(26, 26)
    first = build(graph)
    same(first, build(graph, progress=lambda p: None, deadline=1e18, max_gib=8.0))
    monkeypatch.setattr(driver, "SLICE", 977)
    same(first, build(graph))


def test_progress_is_told_while_orders_are_compared_and_then_of_nodes(monkeypatch):
    monkeypatch.setattr(driver, "SLICE", 1000)
    heard: list[driver.SearchProgress] = []
    build(parities(), progress=heard.append)
    orders = [p.orders for p in heard if not p.nodes]
    nodes = [p.nodes for p in heard if p.nodes]
    assert max(orders) > 3
    assert len(nodes) > 10
    assert nodes == sorted(nodes)
    assert all(0.0 <= p.share <= 1.0 for p in heard)


@pytest.mark.parametrize("when", ["orders", "search"])
def test_ctrl_c_ends_it_and_leaves_nothing_behind(monkeypatch, when):
    monkeypatch.setattr(driver, "SLICE", 1000)
    graph = parities(30, 60)

    def stop(p: driver.SearchProgress) -> None:
        if p.orders if when == "orders" else p.nodes:
            raise KeyboardInterrupt

    solver = Exact(method="circuit")
    with pytest.raises(KeyboardInterrupt):
        circuits.Circuit(solver, graph, (), progress=stop)
    assert circuits.kept_circuit(graph) is None
    assert solver(graph).log_z == pytest.approx(Exact(method="clique-tree")(graph).log_z, abs=1e-9)


def test_a_refusal_for_time_says_how_far_it_came(monkeypatch):
    """While orders are compared, and in the search."""
    monkeypatch.setattr(driver, "SLICE", 1000)
    looks: list[driver.SearchProgress] = []
    graph = parities()
    build(graph, progress=looks.append)
    orders = sum(p.nodes == 0 for p in looks)
    for reads, words in [
        (2, r"after \d+ orders were compared, before the search"),
        (orders + 9, r"at [\d,]+ nodes, about .* % of the search"),
    ]:
        clock = iter(range(10_000))
        monkeypatch.setattr(driver, "clock", lambda clock=clock: next(clock))
        with pytest.raises(RefusedError, match=rf"the time limit is over,? {words}.*Auto\(\)"):
            build(graph, deadline=reads)


def test_a_refusal_for_steps_repeats(monkeypatch):
    monkeypatch.setattr(driver, "STEPS_A_NODE", 0.0)
    monkeypatch.setattr(driver, "SLICE", 1000)
    said = []
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"more than the 2.0e\+04 steps allowed, at") as told:
            build(parities(), most_steps=2e4)
        said.append(str(told.value))
    assert said[0] == said[1]
    monkeypatch.undo()
    with pytest.raises(RefusedError, match="nodes or more, by an estimate"):
        build(parities(), most_steps=10.0)


@pytest.mark.parametrize("mib", [8, 14])
def test_memory_stays_within_the_limit(mib):
    """Arrays that numpy knows of; kernels keep what is small."""
    graph = parities(40, 80)
    build(parities(12, 12))
    model = condition(graph)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with pytest.raises(RefusedError, match=r"nodes fill the .* GiB .* raise max_gib"):
            driver.build(model, max_gib=mib / 1024)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak <= 1.1 * mib * 2**20


def test_an_answer_takes_no_more_than_the_search_reckoned_with():
    graph = parities()
    Exact(method="circuit")(parities(12, 12))
    tracemalloc.start()
    try:
        answer = Exact(method="circuit")(graph)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    frame = answer.state.weighed.wires.frame
    n, e, k = len(frame.variable), len(frame.leaf), len(frame.child)
    assert n > 10_000
    with pytest.raises(RefusedError, match="fill"):
        build(graph, max_gib=0.9 * driver._bytes(n, n, e, k, 2 * n) / GIB)
    assert Exact(method="circuit", max_gib=1.1 * peak / GIB)(graph).log_z == answer.log_z


def test_the_note_bounds_the_chance_of_a_wrong_hit():
    answer = Exact(method="circuit")(parities(20, 20))
    assert "128-bit keys (that some two collide: below " in answer.note
    assert driver.collision_bound(10**7) == pytest.approx(1e14 / 2**129)


def test_a_tree_that_takes_long_gives_way_to_a_circuit(monkeypatch):
    """Where it takes fewer steps; else the tree answers."""
    graph = parities(30, 60)
    truth = Exact(method="clique-tree")(graph)
    monkeypatch.setattr(exact, "LONG_TREE", 0.0)
    assert "clique tree" not in (tree := Exact()(graph)).note
    assert tree.log_z == pytest.approx(truth.log_z, abs=1e-9)
    monkeypatch.setattr(exact, "STEPS_A_SECOND", 1e12)
    answer = Exact()(graph)
    assert "by a circuit, which takes less work than a clique tree" in answer.note
    assert answer.log_z == pytest.approx(truth.log_z, abs=1e-9)
    np.testing.assert_allclose(answer.probs, truth.probs, atol=1e-9)


# ---------------------------------------------------------------- loose ends, forecasts


def with_loose_ends(seed: int) -> FactorGraph:
    """Findings of 4 or 5 causes: noisy-or, or of three states; one is seen, one is likely."""
    rng = np.random.default_rng(seed)
    causes, findings = 6, 4
    sizes = rng.integers(2, 4, causes).tolist()
    scopes = [[v, (v + 1) % causes] for v in range(causes)]
    tables = [rng.normal(size=(sizes[v], sizes[w])) for v, w in scopes]
    for _ in range(findings):
        scope = rng.choice(causes, 5, replace=False).tolist()
        none = np.array(rng.uniform(0.5, 1.0))
        for v in scope:
            b = rng.random(sizes[v])
            b[rng.integers(sizes[v])] = rng.choice([0.0, 1.0])
            none = np.multiply.outer(none, b)
        own = [none, 1.0 - none]
        if rng.random() < 0.3:
            own = [none, np.full_like(none, 0.1) * 0.5, 0.95 - none]
        own = [own[a] for a in rng.permutation(len(own))]
        t = np.stack(own, axis=0) * rng.choice([1.0, 3.0])
        scopes.append([len(sizes), *scope])
        sizes.append(len(own))
        with np.errstate(divide="ignore"):
            tables.append(np.log(np.maximum(t, 0.0)))
    graph = FactorGraph.from_tables(sizes, scopes, tables)
    graph = graph.with_evidence({causes: 0})
    return graph.with_soft_evidence({causes + 1: rng.random(sizes[causes + 1])})


def test_loose_ends_are_answered_from_the_others():
    for seed in range(12):
        graph = with_loose_ends(seed)
        assert len(loose_ends(condition(graph))) == 2
        truth, found = Exact(method="enumerate")(graph), Exact(method="circuit")(graph)
        assert type(found.state).__name__ == "LooseState"
        assert found.log_z == pytest.approx(truth.log_z, abs=1e-10)
        np.testing.assert_allclose(found.probs, truth.probs, atol=1e-10)
        for scope in [[8, 0], [9, 8], [1, 9, 8, 3], [0, 2]]:
            joint, true = found.joint(*scope).table, truth.joint(*scope).table
            np.testing.assert_allclose(joint, true, atol=1e-10)
        for f in range(graph.n_factors):
            np.testing.assert_allclose(found.factor(f), truth.factor(f), atol=1e-10)


def test_compile_counts_what_it_takes():
    circuit = minfer.compile(parities(20, 20))
    assert circuit.size.nodes > 100
    assert math.isfinite(circuit.log_z)


def test_plan_forecasts_a_circuit_where_no_tree_fits(monkeypatch):
    monkeypatch.setattr(Exact, "check", lambda self, tree: check_tree(tree, 1e-4))
    made = minfer.plan(parities(30, 60))
    assert made["exact"].refuses
    assert made.recommendation == "exact"
    assert "circuit should" in made.reason
    assert "an estimate from random walks and no bound; at most 10^" in made.circuit
    assert "circuit: about 10^" in str(made)


def test_plan_asks_for_no_forecast_where_a_tree_fits(monkeypatch):
    monkeypatch.setattr(driver, "forecast", lambda model: pytest.fail("asked"))
    assert minfer.plan(parities(20, 20)).circuit == ""


def test_forecasts_of_easy_models_are_bounds():
    for seed in range(5):
        graph = parities(12, 12, seed)
        found = driver.forecast(condition(graph))
        assert len(build(graph).variable) <= 2.0**found.most
        assert str(found).startswith("at most 10^")
