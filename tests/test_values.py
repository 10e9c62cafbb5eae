"""Lists of values: whole belief propagation where all are kept, near it elsewhere, honest."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

from draws import thorough
from minfer import (
    BeliefPropagation,
    Budget,
    Exact,
    FactorGraph,
    MinDivergence,
    MinferError,
    MinJoint,
    MinSize,
    TreeReweighted,
    infer,
)
from minfer.certified.potts import potts_upper
from minfer.conditioning import condition
from minfer.errors import RefusedError, SettingsError
from minfer.graph import grid_edges
from minfer.reduction.recipes import Compensated
from minfer.reduction.values import FULL, ValueLists, Values, chosen, value_costs
from oracle import truth as naive

EVERY = Values(MinJoint(0.0), add=0.0, drop=0.0, dense=False)
LISTS = Values(MinJoint(0.02), dense=False)


def drawn(rng: np.random.Generator, widest: int, scale: float = 1.0) -> FactorGraph:
    """Pairs of variables with 1 to ``widest`` states: zeros, ties, evidence."""
    n = int(rng.integers(2, 9))
    sizes = rng.integers(1, widest + 1, n)
    if rng.random() < 0.5:
        sizes[:] = rng.integers(2, widest + 1)
    graph = FactorGraph.empty(sizes)
    field = rng.normal(size=int(sizes.sum())) * rng.choice([0.0, 1.0, 4.0])  # 0: all values tie
    first = np.zeros(len(field), dtype=bool)
    first[np.cumsum(sizes) - sizes] = True
    field[(rng.random(len(field)) < rng.choice([0.0, 0.3])) & ~first] = -np.inf
    graph = graph.tilt(field)
    every = list(itertools.combinations(range(n), 2))
    for a, b in every:
        if rng.random() < 0.5:
            table = scale * rng.normal(size=(sizes[a], sizes[b]))
            if rng.random() < 0.2:
                table[rng.random(table.shape) < 0.2] = -np.inf
                table[0] = np.maximum(table[0], -1.0)
                table[:, 0] = np.maximum(table[:, 0], -1.0)
            pair = [a, b] if rng.random() < 0.5 else [b, a]
            graph = graph.add_tables([pair], (table if pair == [a, b] else table.T)[None])
    if rng.random() < 0.3:
        graph = graph.with_evidence({0: 0})
    return graph


def test_all_values_kept_is_whole_belief_propagation():
    solver = BeliefPropagation(tol=1e-12, max_iters=3000)
    rng = np.random.default_rng(1)
    lists = 0
    for _ in range(60):
        graph = drawn(rng, 40 if rng.random() < 0.3 else 6, rng.choice([0.3, 1.0]))
        whole = solver(graph)
        found = infer(graph, None, solver, values=EVERY)
        if not whole.converged:
            continue
        assert found.converged
        lists += not found.values.dense
        assert np.abs(whole.probs - found.marginals.probs).max() < 1e-9
        assert found.marginals.log_z == pytest.approx(whole.log_z, abs=1e-8)
        assert found.values.n_kept == found.values.n_values or found.values.outside_estimate < 1e-12
        for i in range(graph.n_factors):
            assert np.abs(whole.factor(i) - found.marginals.factor(i)).max() < 1e-8
    assert lists > 45


def test_trees_with_all_values_are_exact():
    rng = np.random.default_rng(2)
    for _ in range(20):
        n, k = int(rng.integers(2, 7)), int(rng.integers(2, 5))
        graph = FactorGraph.empty([k] * n).tilt(rng.normal(size=n * k))
        for v in range(1, n):
            graph = graph.add_tables([[int(rng.integers(v)), v]], rng.normal(size=(1, k, k)))
        found = infer(graph, None, BeliefPropagation(tol=1e-13), values=EVERY)
        assert np.abs(found.marginals.probs - naive.marginals(graph)).max() < 1e-10
        assert found.marginals.log_z == pytest.approx(naive.log_z(graph), abs=1e-9)


def test_lists_are_near_whole_belief_propagation():
    rng = np.random.default_rng(3)
    solver = BeliefPropagation(tol=1e-10)
    used = 0
    for _ in range(40):
        graph = drawn(rng, 40)
        whole, found = solver(graph), infer(graph, None, solver, values=LISTS)
        lists = found.values
        if not whole.converged or not found.converged or lists.dense:
            continue
        used += 1
        # what is outside errs by its own mass and a little for what it does to neighbours
        assert (
            np.abs(whole.probs - found.marginals.probs).max() < 0.003 + 3 * lists.outside_estimate
        )
        missed = np.add.reduceat(np.where(lists.keep, 0.0, whole.probs), graph.offsets[:-1])
        assert missed.max(initial=0.0) < 0.003 + 10 * lists.outside.max(initial=0.0)
        total = np.add.reduceat(found.marginals.probs, graph.offsets[:-1])
        assert np.abs(total - 1.0).max() < 1e-12
    assert used > 10


def test_values_that_the_seed_loses_come_back():
    # the seed prefers value 0; three neighbours say 7, with certainty
    k = 40
    field = np.zeros((4, k))
    field[0, 0], field[1:, 7] = 6.0, 20.0
    table = 5.0 * np.eye(k) + 1e-3 * np.random.default_rng(0).normal(size=(k, k))
    graph = FactorGraph.empty([k] * 4).tilt(field.ravel())
    graph = graph.add_tables(np.array([[0, 1], [0, 2], [0, 3]]), table[None])
    first = chosen(condition(graph), infer_seed(graph), MinJoint(0.02))
    assert not first.reshape(4, k)[0, 7]
    found = infer(graph, None, values=Values())
    assert not found.values.dense
    assert 7 in found.values[0]
    assert int(found.marginals.mpm()[0]) == 7
    exact = Exact()(graph).probs
    assert np.abs(exact - found.marginals.probs).max() < 1e-3


def infer_seed(graph: FactorGraph) -> np.ndarray:
    return infer(graph, MinDivergence(0)).seed_marginals.probs


def picture(k: int, trust: float, pairs: str = "general", side: int = 8) -> FactorGraph:
    rng = np.random.default_rng(k)
    field = trust * rng.normal(size=(side * side, k))
    graph = FactorGraph.empty([k] * side**2).add_tables(np.arange(side**2)[:, None], field)
    if pairs == "potts":
        return graph.add_potts(grid_edges(side, side), 1.0)
    return graph.add_tables(grid_edges(side, side), 0.5 * rng.normal(size=(1, k, k)))


def test_objectives_choose_values():
    graph = picture(40, 3.0)
    model, seed = condition(graph), infer_seed(graph)
    q = seed.reshape(64, 40)
    costs, _ = value_costs(model)
    assert np.repeat(costs, 40).mean() == pytest.approx(1.0)
    assert costs[0] < costs[1] < costs[9]  # two, three, four neighbours
    joint = chosen(model, seed, MinJoint(0.02)).reshape(64, 40)
    best = q == q.max(axis=1, keepdims=True)
    assert (joint == ((-np.log1p(-q) >= 0.02 * costs[:, None]) | best)).all()
    few = chosen(model, seed, MinDivergence(100)).reshape(64, 40)
    assert (few[best]).all()
    assert np.repeat(costs, 40)[(few & ~best).ravel()].sum() <= 100
    size = chosen(model, seed, MinSize(0.5)).reshape(64, 40)
    assert -np.log1p(-q[~size]).sum() <= 0.5
    assert size[best].all()
    both = chosen(model, seed, Budget(max_factors=100, factor_cost=0.02)).reshape(64, 40)
    assert (both == (few & joint) | best).all()


def test_factors_and_values_in_one_call():
    graph = picture(40, 5.0)
    whole = BeliefPropagation()(graph)
    plain = infer(graph, MinJoint(0.001), recipe=Compensated())
    found = infer(graph, MinJoint(0.001), recipe=Compensated(), values=MinJoint(0.02))
    assert found.n_ignored == plain.n_ignored > 0
    assert not found.values.dense
    assert found.values.n_kept < 0.3 * found.values.n_values
    assert np.abs(found.marginals.probs - plain.marginals.probs).max() < 0.02
    assert np.abs(found.marginals.probs - whole.probs).mean() < 1e-3


def test_result_says_what_was_kept():
    graph = picture(40, 6.0)
    found = infer(graph, None, values=MinJoint(0.02))
    lists = found.values
    assert isinstance(lists, ValueLists)
    assert not lists.dense
    assert lists.n_values == 64 * 40
    assert lists.lengths.sum() == lists.n_kept == lists.keep.sum()
    assert lists.n_kept < FULL * lists.n_values
    inside = np.where(lists.keep, 0.0, found.marginals.probs)
    assert lists.outside_estimate == pytest.approx(inside.sum())
    assert found.to_dict()["values"]["kept"] == lists.n_kept
    assert lists.outside_bound is None
    assert "proved only for such pairs" in lists.no_bound
    assert f"{lists.n_kept} of 2,560 values" in repr(found)
    assert "values kept" in found._repr_html_()
    assert found.n_added == 112
    assert found.n_forced == 0
    assert found.divergence == 0.0
    again = pickle.loads(pickle.dumps(found))
    assert (again.values.keep == lists.keep).all()
    assert infer(graph, MinJoint(0.0)).values is None
    assert infer(graph, MinJoint(0.0)).to_dict()["values"] is None


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (picture(8, 4.0), "lists pay from 32"),
        (picture(40, 0.1), "of the values"),
        (picture(64, 1.0), "of its mass"),
        (picture(64, 4.0, "potts"), "O(K)"),
        (picture(40, 4.0).add_tables([[0, 1, 2]], np.zeros((1, 40, 40, 40))), "need pairs"),
        (FactorGraph.empty([40] * 3).tilt(np.arange(120.0)), "no pair of variables"),
    ],
)  # fmt: skip
def test_whole_where_lists_do_not_pay(graph, why):
    found = infer(graph, None, values=MinJoint(0.02))
    assert why in found.values.dense
    if why:
        assert found.values.n_kept == found.values.n_values
        assert found.values.outside_bound == 0.0
        whole = BeliefPropagation()(graph).probs  # the last bit may depend on addresses
        np.testing.assert_allclose(found.marginals.probs, whole, rtol=1e-13)


def test_numbers_too_far_apart_are_swept_whole():
    graph = picture(40, 4.0).add_tables([[0, 1]], 1000.0 * np.eye(40)[None])
    found = infer(graph, None, values=Values(dense=False))
    assert "too far apart" in found.values.dense
    np.testing.assert_allclose(found.marginals.probs, BeliefPropagation()(graph).probs, rtol=1e-13)


def test_limits_of_the_solver_hold():
    graph = picture(40, 4.0)
    found = infer(graph, None, BeliefPropagation(max_iters=3), values=LISTS)
    assert found.marginals.iterations == 3
    assert not found.converged
    assert found.advice
    found = infer(graph, None, BeliefPropagation(time_limit=1e-9), values=LISTS)
    assert found.status.value == "time limit"


def test_settings_are_checked():
    graph = picture(40, 4.0)
    with pytest.raises(RefusedError, match="BeliefPropagation"):
        infer(graph, None, Exact(), values=MinJoint(0.02))
    with pytest.raises(RefusedError, match="undamped"):
        infer(graph, None, BeliefPropagation(damping=0.3), values=MinJoint(0.02))
    with pytest.raises(RefusedError):
        infer(graph, None, TreeReweighted(), values=MinJoint(0.02))
    with pytest.raises(SettingsError, match="objective"):
        infer(graph, None)
    with pytest.raises(SettingsError, match="not an objective"):
        infer(graph, None, values=0.02)
    with pytest.raises(SettingsError, match="above add"):
        Values(add=1e-4)
    with pytest.raises(SettingsError):
        Values(add=-1.0)
    with pytest.raises(MinferError, match="mask"):
        infer(graph, None, values=Values(lambda gains, costs: gains))


# ---------------------------------------------------------------------- the bound


def potts(rng: np.random.Generator) -> FactorGraph:
    k = int(rng.integers(2, 6))
    n = int(rng.integers(2, {2: 9, 3: 8, 4: 6, 5: 5}[k]))
    edges = np.array(
        [e for e in itertools.combinations(range(n), 2) if rng.random() < 0.6] or [(0, 1)]
    )
    field = rng.normal(size=n * k) * rng.choice([0.0, 1.0, 5.0])
    weights = rng.choice([0.2, 1.0, 3.0, 30.0]) * (
        rng.random(len(edges)) if rng.random() < 0.5 else np.ones(len(edges))
    )
    graph = FactorGraph.empty([k] * n).tilt(field)
    if rng.random() < 0.5:
        return graph.add_potts(edges, weights)
    return graph.add_tables(edges, weights[:, None, None] * np.eye(k) - 1.0)


@pytest.mark.drawn
def test_potts_bound_holds():
    rng = np.random.default_rng(4)
    useful = 0
    for _ in range(400 if thorough() else 150):
        graph = potts(rng)
        upper, truth = potts_upper(graph), naive.marginals(graph)
        assert (truth * (1 - 1e-13) <= upper).all()  # enumeration rounds too
        assert (upper <= 1.0).all()
        useful += (upper < 0.5).sum()
    assert useful > (500 if thorough() else 180)


def test_potts_bound_is_never_above_markovs():
    rng = np.random.default_rng(5)
    for _ in range(30):
        k, side, weight = 4, 3, float(rng.uniform(0.3, 2.5))
        field = rng.normal(size=(9, k)) * rng.uniform(0.5, 4.0)
        edges = grid_edges(side, side)
        graph = FactorGraph.empty([k] * 9).tilt(field.ravel()).add_potts(edges, weight)
        e = np.exp(field - field.max(axis=1, keepdims=True))
        others = e.sum(axis=1, keepdims=True) - e
        q = [e * np.exp(weight * j) / (e * np.exp(weight * j) + others) for j in range(5)]
        degree = np.bincount(edges.ravel(), minlength=9)
        markov = np.array([q[degree[v]][v] for v in range(9)])
        for _ in range(200):
            before, total = markov, np.zeros_like(markov)
            for a, b in edges:
                total[a] += markov[b]
                total[b] += markov[a]
            step = q[0].copy()
            for j in range(1, 5):
                rise = np.where(degree[:, None] >= j, q[j] - q[j - 1], 0.0)
                step += rise * np.minimum(1.0, total / j)
            markov = np.minimum(markov, step)
            if (markov == before).all():
                break
        # sweeps end at a thousandth: allow for that
        assert (potts_upper(graph) <= markov.ravel() * 1.01 + 0.005).all()


def test_no_bound_without_a_proof():
    base = FactorGraph.empty([3, 3]).tilt([5.0, 0, 0, 0, 0, 0])
    for graph in (
        base.add_potts([[0, 1]], -1.0),
        base.add_truncated_linear([[0, 1]], 1.0, 2),
        base.add_tables([[0, 1]], np.arange(9.0).reshape(1, 3, 3)),
        base.add_tables([[0, 1]], -np.eye(3)[None]),
    ):
        assert "proved only for such pairs" in potts_upper(graph)
    assert isinstance(potts_upper(base), np.ndarray)


def test_expected_number_outside_is_bounded():
    # strong fields and weak couplings: a proof that says something
    rng = np.random.default_rng(6)
    n, k = 7, 4
    graph = FactorGraph.empty([k] * n).tilt(6.0 * rng.normal(size=n * k))
    graph = graph.add_potts([[v, v + 1] for v in range(n - 1)], rng.uniform(0.1, 0.6, n - 1))
    found = infer(graph, None, values=Values(dense=False))
    lists = found.values
    assert not lists.dense
    assert lists.n_kept < lists.n_values
    truth = float(np.where(lists.keep, 0.0, naive.marginals(graph)).sum())
    assert lists.no_bound == ""
    assert truth <= lists.outside_bound < 0.5
    # and one that does not: no number then
    graph = graph.add_potts([[v, v + 1] for v in range(n - 1)], 40.0)
    found = infer(graph, None, values=Values(dense=False))
    if found.values.n_kept < found.values.n_values:
        could = int((found.values.lengths < k).sum())
        assert found.values.outside_bound is None or found.values.outside_bound < could / 2
