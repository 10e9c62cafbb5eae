"""Exact inference against enumeration, and against the reference answers of UAI models."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draws import draws, few
from minfer import Auto, ContradictionError, Exact, FactorGraph, LogZ, RefusedError, Status, query
from minfer.engine.conditioning import condition
from minfer.engine.elimination import adjacency, clique_tree
from minfer.io.uai import read_pr
from minfer.solvers.planning import plan
from oracle import lists, models
from oracle import truth as naive
from refused import refused

DATA = lists.UAI
TOLERANCE = 1e-9


class Parity:
    """A global factor: x_1 + ... + x_n is even, else a penalty."""

    def __init__(self, odd: float) -> None:
        self.odd = odd

    def score(self, assignments: np.ndarray) -> np.ndarray:
        return np.where(assignments.sum(axis=1) % 2 == 0, 0.0, self.odd)

    def messages(self, incoming: np.ndarray, out: np.ndarray) -> np.ndarray:
        raise NotImplementedError


@st.composite
def graphs(draw: st.DrawFn) -> FactorGraph:
    """Mixed states, arity up to 4, zeros, ties, huge weights, constants, evidence, a global."""
    graph = draw(models.table_graphs(max_variables=6, max_states=4, max_arity=4))
    n, states = graph.n_variables, graph.n_states.tolist()
    binary = [v for v in range(n) if states[v] == 2]
    if len(binary) >= 2 and draw(st.booleans()):
        pair = draw(st.permutations(binary))[:2]
        graph = graph.add_features([pair], draw(st.floats(-2, 2)), "equal")
    if n and draw(st.integers(0, 3)) == 0:
        scope = draw(st.permutations(range(n)))[: draw(st.integers(1, n))]
        graph = graph.add_global(scope, Parity(draw(st.sampled_from([-1.0, 0.5, -math.inf]))))
    if n and draw(st.booleans()):
        v = draw(st.integers(0, n - 1))
        graph = graph.with_soft_evidence({v: np.linspace(0.0, 1.0, states[v] + 1)[1:]})
    return graph


def check_against(answer, graph, log_z, marginals, factor_marginal, every=1) -> None:
    assert answer.status is Status.EXACT
    assert answer.log_z_kind is LogZ.EXACT
    assert answer.log_z == pytest.approx(log_z, abs=TOLERANCE * max(1.0, abs(log_z)))
    np.testing.assert_allclose(answer.probs, marginals, atol=TOLERANCE)
    for i in range(0, graph.n_factors, every):
        np.testing.assert_allclose(answer.factor(i), factor_marginal(i), atol=TOLERANCE)


@settings(max_examples=draws(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_agrees_with_enumeration(graph: FactorGraph) -> None:
    with np.errstate(all="ignore"):
        log_z = naive.log_z(graph)
    if log_z == -math.inf:
        for method in ("auto", "clique-tree", "enumerate"):
            refused(ContradictionError, "", Exact(method=method), graph)
        return
    oracle = naive.marginals(graph)
    for method in ("auto", "clique-tree", "enumerate"):
        answer = Exact(method=method)(graph)
        check_against(answer, graph, log_z, oracle, lambda i: naive.factor_marginal(graph, i))


def random_tables(rng: np.random.Generator, states, n_factors: int, arity: int) -> FactorGraph:
    states = np.asarray(states)
    scopes = [rng.choice(len(states), arity, replace=False) for _ in range(n_factors)]
    tables = [rng.normal(0, 2, tuple(states[s])) for s in scopes]
    return FactorGraph.from_tables(states, scopes, tables)


@pytest.mark.parametrize(
    ("states", "n_factors", "arity"),
    [
        ([2] * 16, 60, 2),  # one wide clique: the outer loop and the bundles of small tables
        ([2] * 17, 20, 4),
        ([3] * 10, 25, 2),
        ([16, 16, 17, 16], 6, 2),  # rows that are not a power of two
        ([200, 180, 3], 3, 2),
        ([5000, 3, 4], 3, 2),  # one variable longer than a row
        ([1500, 1500], 1, 2),  # one variable longer than a chunk
    ],
)
def test_cliques_larger_than_a_chunk(states, n_factors, arity) -> None:
    graph = random_tables(np.random.default_rng(0), states, n_factors, arity)
    answer, oracle = Exact()(graph), Exact(method="enumerate")(graph)
    every = max(1, n_factors // 5)  # the oracle goes through all assignments for each
    check_against(answer, graph, oracle.log_z, oracle.probs, oracle.factor, every)


def test_long_chains() -> None:
    n = 5000
    edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    graph = FactorGraph.pairwise(np.zeros(n), edges, 1000.0, feature="equal").with_evidence({0: 1})
    answer = Exact()(graph)
    np.testing.assert_allclose(answer.probs.reshape(n, 2)[:, 1], 1.0, atol=TOLERANCE)
    assert answer.log_z == pytest.approx(1000.0 * (n - 1), rel=1e-12)


@pytest.mark.parametrize("weight", [1e6, 1e12, 1e17, 9e299])
@pytest.mark.parametrize("solver", [Exact(), Exact(method="clique-tree"), Auto()], ids=repr)
def test_huge_weights_swallow_nothing(solver, weight) -> None:
    """One is added to all others, in a joint table or in a score, and must leave them digits."""
    small = FactorGraph.pairwise([1.0, 0.5], [[0, 1]], [1.0])
    want = Exact(method="enumerate")(small)
    large = FactorGraph.pairwise([1.0, 0.5, weight], [[0, 1]], [1.0])
    both = large.add_features([[1, 2]], -weight)
    cases = {
        "apart": (large, 2, 1),
        "observed": (large.with_evidence({2: 1}), 2, 1),
        "against it": (large.with_evidence({2: 0}), 2, 0),
    }
    for name, (graph, v, state) in cases.items():
        m = solver(graph)
        assert m[v][state] == 1.0, name
        np.testing.assert_allclose(m.probs[:4], want.probs, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(m.factor(3), want.factor(2), atol=1e-12, err_msg=name)
        asked = query(graph, 0)
        np.testing.assert_allclose(asked, want[0], atol=1e-12, err_msg=name)
    sure = both.with_evidence({1: 1, 2: 1})
    np.testing.assert_allclose(solver(sure)[0], Exact()(small.with_evidence({1: 1}))[0], atol=1e-12)
    np.testing.assert_allclose(query(large, 0, {2: 0}), want[0], atol=1e-12)
    # Sums of a huge field or table and others keep the others' digits.
    sure = FactorGraph.pairwise([0.2, 1.0, 0.5], [[0, 1], [1, 2]], [0.7, -0.4])
    want = Exact(method="enumerate")(sure.with_evidence({0: 1}))
    by_field = sure.add_features([[0]], weight, [False, True])
    by_tables = sure.add_tables([[1, 0], [2, 0]], np.broadcast_to([-weight, weight], (2, 2, 2)))
    for graph in (by_field, by_tables):
        m = solver(graph)
        np.testing.assert_allclose(m.probs, want.probs, atol=1e-12)
        np.testing.assert_allclose(m.factor(4), want.factor(4), atol=1e-12)
        large = weight if graph is by_field else 2 * weight
        np.testing.assert_allclose(m.log_z - large, want.log_z, atol=max(1.0, 4e-16 * large))


@pytest.mark.parametrize("seed", [7, 10, 11])
@pytest.mark.parametrize("method", ["auto", "clique-tree", "enumerate"])
def test_what_is_certain_has_exactly_one(method, seed) -> None:
    weights = np.random.default_rng(seed).normal(size=(6, 6))
    edges = [(i, j) for i in range(6) for j in range(i)]
    graph = FactorGraph.pairwise(weights[0], edges, [weights[e] for e in edges])
    graph = graph.add_tables([[]], [np.array(1.5)])
    m = Exact(method=method)(graph.with_evidence({0: 1, 1: 1, 2: 1}))
    for factor in range(graph.n_factors):
        if set(graph.scope(factor).tolist()) <= {0, 1, 2}:
            joint = m.factor(factor)
            assert joint[(1,) * joint.ndim] == 1.0 == joint.sum()


def test_what_is_a_matter_for_a_table_and_what_for_the_tree() -> None:
    """Auto enumerates few assignments of any model, unless its weights are huge."""
    graph = FactorGraph.pairwise([1.0, 0.0, 1e17], [[0, 1]], [1.0]).add_clauses([[0, 1]], 0.5)
    want = Exact(method="enumerate")(
        FactorGraph.pairwise([1.0, 0.0], [[0, 1]], [1.0]).add_clauses([[0, 1]], 0.5)
    )
    np.testing.assert_allclose(Auto()(graph).probs[:4], want.probs, atol=1e-12)
    # A joint table is made factor by factor, in Python.
    rng = np.random.default_rng(4)
    scopes, weights = rng.integers(0, 3, (400, 1)), rng.normal(size=400)
    graph = FactorGraph.empty([2] * 3).add_features(scopes, weights, [False, True])
    answer = Exact()(graph)
    assert "table" not in answer.timings
    odds = np.bincount(scopes[:, 0], weights, minlength=3)
    np.testing.assert_allclose(answer.probs[1::2], 1 / (1 + np.exp(-odds)), atol=TOLERANCE)


def test_refuses_with_an_estimate_and_a_way_out() -> None:
    wide = r"2\^\d+.*GiB.*BeliefPropagation"
    refused(RefusedError, wide, Exact(), FactorGraph.grid(np.zeros((60, 60))))
    graph = FactorGraph.grid(np.zeros((16, 16)))
    refused(RefusedError, "max_gib", Exact(max_gib=1e-4), graph)
    refused(RefusedError, "time", Exact(time_limit=1e-6), graph)
    refused(RefusedError, r"2\^24", Exact(method="enumerate"), FactorGraph.empty([2] * 25))
    large = FactorGraph.empty([2] * 20).add_global(np.arange(20), Parity(-1.0))
    refused(RefusedError, "BeliefPropagation", Exact(), large)
    known = large.with_evidence(dict.fromkeys(range(10), 0))  # 10 variables left: small enough
    assert Exact()(known)[15][1] == pytest.approx(0.5)


def test_min_fill_counts_stay_exact() -> None:
    """Every elimination's neighbourhood, replayed on sets; a tree has width one, grids more."""
    from minfer.kernels.cliques.elimination import MIN_FILL, eliminate

    rng = np.random.default_rng(5)
    edges = [[int(rng.integers(0, v)), v] for v in range(1, 300)]
    tree = clique_tree(condition(FactorGraph.pairwise(np.zeros(300), edges, 1.0)))
    assert (tree.width, tree.complete) == (1, True)
    assert clique_tree(condition(FactorGraph.grid(np.zeros((4, 30))))).width == 4
    rng = np.random.default_rng(6)
    n = 60
    edges = rng.integers(0, n, (150, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    links = adjacency(condition(FactorGraph.pairwise(np.zeros(n), edges, 1.0)))
    order, pool, start, length, done, *_ = eliminate(
        links.ptr, links.neighbours, links.log_card, np.zeros(n), MIN_FILL, 0, 99.0, math.inf, 10**9
    )
    near = {v: set() for v in range(n)}
    for a, b in edges.tolist():
        near[a].add(b)
        near[b].add(a)

    def fill(v: int) -> int:
        return sum(b not in near[a] for a in near[v] for b in near[v] if a < b)

    assert done == n
    for v in order.tolist():
        assert fill(v) == min(fill(u) for u in near)
        assert sorted(near[v]) == pool[start[v] : start[v] + length[v]].tolist()
        for a in near[v]:
            near[a] |= near[v] - {a}
            near[a].discard(v)
        del near[v]


def test_plan_recommends_exact_for_small_and_bp_for_wide_models_and_says_who_refuses() -> None:
    small = plan(FactorGraph.grid(np.zeros((5, 5))))
    assert (small.recommendation, small.width, small.width_known) == ("exact", 5, True)
    wide = plan(FactorGraph.grid(np.zeros((60, 60))))
    assert wide.recommendation == "bp"
    assert "GiB" in wide["exact"].refuses
    assert set(wide.to_dict()["estimates"]) == {
        "bp", "trw", "mean-field", "gibbs", "tempering", "join-graph", "windows", "exact",
    }  # fmt: skip
    triple = plan(FactorGraph.from_tables([2, 2, 2], [[0, 1, 2]], [np.zeros((2, 2, 2))]))
    assert triple["trw"].refuses
    assert not triple["gibbs"].refuses
    globals_ = plan(FactorGraph.empty([2] * 20).add_global(np.arange(20), Parity(-1.0)))
    assert all(globals_[s].refuses for s in ("trw", "mean-field", "gibbs", "exact"))
    assert (globals_.recommendation, globals_.width) == ("bp", None)
    assert plan(FactorGraph.empty([])).recommendation == "exact"
    made = plan(FactorGraph.grid(np.zeros((6, 6)), 1.0))
    assert made["tempering"].seconds > 0
    assert made["join-graph"].seconds > 0
    logical = plan(FactorGraph.pairwise(np.zeros(20), [], []).add_exactly_one([range(20)]))
    assert "too many" in logical["tempering"].refuses


def test_auto_is_exact_where_cheap_and_says_so() -> None:
    graph = FactorGraph.grid(np.random.default_rng(7).normal(size=(6, 6)), 1.0)
    answer = Auto()(graph)
    assert answer.status is Status.EXACT
    assert answer.note.startswith("Exact")
    assert isinstance(answer.solver, Auto)
    np.testing.assert_array_equal(answer.probs, Exact()(graph).probs)
    large = FactorGraph.grid(np.random.default_rng(8).normal(size=(17, 17)), 0.3)
    assert "Exact" in Auto()(large).note
    answer = Auto(exact_cells=100)(large)
    assert answer.status is Status.CONVERGED
    assert answer.note.startswith("BeliefPropagation")
    assert abs(answer.probs - Exact()(large).probs).max() < 0.05
    hurried = Auto(time_limit=0.02)(large)  # an exact answer would take longer, and is not begun
    assert "BeliefPropagation" in hurried.note
    assert "time_limit" in hurried.note


def uai_names(max_log2: float) -> list[str]:
    if not (DATA / "manifest.csv").exists():
        return []
    with open(DATA / "manifest.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [r["name"] for r in rows if float(r["log2_max_clique"]) <= max_log2]


@pytest.mark.skipif(not uai_names(99), reason=f"no UAI models in {DATA}; set MINFER_DATA")
@pytest.mark.drawn
@pytest.mark.parametrize("name", few(uai_names(22.0), 12))
def test_uai_reference(name: str) -> None:
    stem = DATA / name.rsplit("_", 1)[0] / f"{name}.uai"
    graph, marginals = lists.published(Path(f"{stem}.gz"))
    answer = Exact()(graph)
    np.testing.assert_allclose(answer.probs, marginals, atol=1e-6)
    assert answer.log_z / math.log(10) == pytest.approx(read_pr(f"{stem}.PR.gz"), abs=1e-6)


def test_a_tree_with_less_memory_is_found_where_the_cheapest_has_too_much():
    found = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        pairs = [rng.choice(30, 2, replace=False).tolist() for _ in range(70)]
        graph = FactorGraph.pairwise(rng.normal(size=30), pairs, rng.normal(size=70))
        model = condition(graph)
        first = clique_tree(model)
        assert clique_tree(model, memory=first.memory).cells == first.cells
        assert clique_tree(model, memory=8.0).cells == first.cells  # too little for any
        light = clique_tree(model, memory=first.memory - 8.0)
        assert light.cells <= 2.0 * first.cells
        if light.memory >= first.memory:
            continue
        found += 1
        tree = Exact(method="clique-tree")
        less = replace(tree, max_gib=(first.memory - 8.0) / 2.0**30)
        assert less(graph).log_z == pytest.approx(tree(graph).log_z, abs=1e-9)
    assert found
