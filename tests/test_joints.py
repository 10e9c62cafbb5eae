"""Joint marginals of any variables, by clique trees and by BP; exact samples of all of them."""

import pickle

import numpy as np
import pytest
from scipy.stats import chisquare

import minfer
from minfer import (
    BeliefPropagation,
    Components,
    ContradictionError,
    Exact,
    FactorGraph,
    Gibbs,
    MeanField,
    ModelError,
    RefusedError,
    SettingsError,
)
from minfer.queries import samples
from oracle import models
from oracle import truth as naive
from refused import all_refused, refused
from test_states import sprinkler


def some_of(rng, graph, most=3):
    k = int(rng.integers(1, min(most, graph.n_variables) + 1))
    return [int(v) for v in rng.choice(graph.n_variables, k, replace=False)]


@pytest.mark.parametrize("kind", models.NETWORKS)
@pytest.mark.parametrize("seed", range(25))
def test_any_set_exactly(kind, seed):
    rng = np.random.default_rng(seed)
    graph = models.NETWORKS[kind](rng, zeros=float(rng.choice([0.0, 0.3])))
    seen = {graph.index(v): s for v, s in models.evidence(rng, graph, soft=False).items()}
    w = naive.weights(graph, seen)
    if w.sum() == 0.0:
        return
    which = some_of(rng, graph, 4)
    want = naive.table(w, which)
    graph = graph.with_evidence(seen)
    tree = Exact(method="clique-tree")
    for solver in (Exact(), tree, Exact(method="enumerate"), Components(tree, workers=1, size=2)):
        found = solver(graph).joint(*which)
        assert np.abs(found.table - want).max() < 1e-11, solver
        assert found.variables == tuple(graph.name(v) for v in which)
    base = graph._renumbered(_field=None)
    try:
        prepared = Exact().prepare(base)
    except ContradictionError:
        return
    assert np.abs(prepared(evidence=seen).joint(*which).table - want).max() < 1e-11


def forest(rng, zeros):
    """A tree of tables over up to three variables, each new one hanging on one old variable."""
    sizes, scopes, tables = [int(rng.integers(1, 4))], [], []
    for _ in range(int(rng.integers(1, 5))):
        root = int(rng.integers(len(sizes)))
        new = int(rng.integers(1, 3))
        scope = [root, *range(len(sizes), len(sizes) + new)]
        sizes += [int(rng.integers(1, 4)) for _ in range(new)]
        scope = [int(v) for v in rng.permutation(scope)]
        table = rng.normal(size=[sizes[v] for v in scope])
        table[rng.random(table.shape) < zeros] = -np.inf
        scopes.append(scope)
        tables.append(table)
    return FactorGraph.from_tables(sizes, scopes, tables)


@pytest.mark.parametrize("seed", range(40))
def test_on_a_tree_bp_has_all_of_them(seed):
    rng = np.random.default_rng(seed)
    graph = forest(rng, float(rng.choice([0.0, 0.2])))
    w = naive.weights(graph)
    if w.sum() == 0.0:
        return
    which = some_of(rng, graph, 4)
    found = BeliefPropagation()(graph).joint(*which)
    assert np.abs(found.table - naive.table(w, which)).max() < 1e-9


def test_bp_by_a_factor_or_a_path_beside_a_loop():
    rng = np.random.default_rng(3)
    pairs = [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4], [0, 5]]  # a triangle with two tails
    g = FactorGraph.pairwise(0.3 * rng.normal(size=7), pairs, rng.normal(size=6))
    m = BeliefPropagation(tol=1e-12)(g)
    for a, b in pairs:
        belief = m.factor(7 + pairs.index([a, b]))
        assert np.abs(m.joint(b, a).table - belief.T).max() < 1e-12
    tail = m.joint(2, 4).table  # p(2, 3) p(4 | 3)
    want = m.factor(7 + 3) @ (m.factor(7 + 4) / m[3][:, None])
    assert np.abs(tail - want).max() < 1e-10
    assert np.abs(m.joint(4, 6).table - np.multiply.outer(m[4], m[6])).max() < 1e-12
    with pytest.raises(
        RefusedError, match=r"x4, x5: no single factor .*, and they lie on loops.*Exact"
    ):
        m.joint(4, 5)
    known = BeliefPropagation()(g.with_evidence({2: 1}))
    assert known.joint(2, 4)[0].sum() == 0.0
    assert np.abs(known.joint(4, 5).table.sum() - 1.0) < 1e-12  # evidence cuts the loop


@pytest.mark.parametrize(("degree", "weight"), [(3, 360), (5, 200), (9, 100), (9, 700), (12, 45)])
def test_around_a_hub_with_a_very_unlikely_state(degree, weight):
    """1 / p^(degree - 1) was infinite."""
    rng = np.random.default_rng(degree)
    links = rng.normal(size=(degree, 3, 2))
    edges = [[0, i] for i in range(1, degree + 1)]
    graph = FactorGraph.empty([3] + [2] * degree).tilt([0.0, -weight, 0.0] + [0.0] * 2 * degree)
    graph = graph.add_tables(edges, links)
    m = BeliefPropagation()(graph)
    _, p = naive.joint(graph)
    p = p.reshape(graph.n_states)
    leaves = m.joint(*range(1, degree + 1)).table
    np.testing.assert_allclose(leaves, p.sum(axis=0), atol=0, rtol=1e-9)
    whole = m.joint(*range(degree, -1, -1)).table.transpose()
    np.testing.assert_allclose(whole[1], p[1], atol=1e-300, rtol=1e-8)


def test_other_solvers():
    g = FactorGraph.pairwise([0.1, 0.2, 0.3], [[0, 1], [1, 2]], [1.0, 0.5])
    field = MeanField()(g)
    assert np.abs(field.joint(0, 2).table - np.multiply.outer(field[0], field[2])).max() == 0.0
    chains = Gibbs(rng=1)(g)
    assert np.abs(chains.joint(0, 1).table - Exact()(g).joint(0, 1).table).max() < 0.05
    refused(RefusedError, "Gibbs has no joint", chains.joint, 0, 2)


def test_refused_and_wrong():
    g = FactorGraph.grid(np.random.default_rng(0).normal(size=(12, 12)), 0.5)
    m = Exact()(g)
    all_refused(
        (lambda: Exact(max_gib=1e-9)(g), RefusedError, "GiB"),
        (lambda: m.joint(*range(0, 144, 4)), RefusedError, "cells"),
        *((lambda w=wrong: m.joint(*w), ModelError, "") for wrong in ((), (0, 0), (145,))),
    )


def test_a_joint_pickles():
    graph = FactorGraph.from_tables([2, 2], [[0, 1]], [[[0.0, -800.0], [-2000.0, -1500.0]]])
    j = pickle.loads(pickle.dumps(Exact()(graph).joint(0, 1)))
    np.testing.assert_allclose(j.conditional(0).table[1], [0.0, 1.0], atol=1e-12)


def test_entropy():
    g = FactorGraph.from_tables([2, 3, 1], [[0], [1]], [[0.0, 0.0], [0.0, -np.inf, -np.inf]])
    assert Exact()(g).entropy().tolist() == pytest.approx([np.log(2.0), 0.0, 0.0])


@pytest.mark.parametrize("kind", models.NETWORKS)
@pytest.mark.parametrize("seed", range(12))
def test_frequencies_of_samples_are_probabilities(kind, seed):
    rng = np.random.default_rng([seed, len(kind)])
    graph = models.NETWORKS[kind](rng, 5, zeros=float(rng.choice([0.0, 0.3])))
    seen = models.evidence(rng, graph)
    w = naive.weights(graph, seen)
    if w.sum() == 0.0:
        with pytest.raises(ContradictionError):
            minfer.sample(graph, 10, seen)
        return
    n = 20_000
    x = minfer.sample(graph, n, seen, seed=seed)
    assert x.shape == (n, graph.n_variables)
    cell = np.ravel_multi_index(tuple(np.asarray(x).T), w.shape)
    count = np.bincount(cell, minlength=w.size)
    p = (w / w.sum()).ravel()
    assert not count[p == 0.0].any()
    often = p * n > 5.0
    rest = p[(p > 0) & ~often].sum()
    seen_, want = count[often], p[often] * n
    if rest * n > 5.0:
        seen_, want = np.append(seen_, n - seen_.sum()), np.append(want, rest * n)
    else:
        want = want * seen_.sum() / want.sum()
    if len(want) > 1:
        assert chisquare(seen_, want).pvalue > 1e-6


def test_samples_are_seeded_named_and_shaped():
    g = sprinkler()
    a, b = minfer.sample(g, 50, {"wet": "yes"}, seed=3), minfer.sample(g, 50, {"wet": 1}, seed=3)
    assert np.array_equal(a, b)
    assert not np.array_equal(a, minfer.sample(g, 50, {"wet": 1}, seed=4))
    assert a.to_dict()["wet"] == ["yes"] * 50
    assert (a["wet"] == 1).all()
    assert type(a[0]) is np.ndarray
    assert minfer.sample(g, 0).shape == (0, 4)
    with pytest.raises(ModelError, match="no variable 'snow'"):
        a["snow"]
    with pytest.raises(SettingsError):
        minfer.sample(g, -1)


def test_samples_in_pandas():
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = minfer.sample(sprinkler(), 20, {"wet": "yes"}).to_pandas()
    assert list(frame["wet"]) == ["yes"] * 20
    assert set(frame["rain"]) <= {"no", "yes"}
    assert all(isinstance(x, str) for x in frame["rain"])
    assert frame.value_counts().sum() == 20  # counts what is there, not all combinations
    frame = minfer.sample(sprinkler(), 20, {"wet": "yes"}).to_pandas(categories=True)
    assert list(frame["rain"].cat.categories) == ["no", "yes"]


def test_rules_hold_in_every_sample():
    g = FactorGraph.empty([2] * 7).add_exactly_one([list(range(7))]).add_parity([[0, 1, 2]], np.inf)
    x = minfer.sample(g, 500)
    assert (np.asarray(x).sum(axis=1) == 1).all()


def test_samples_by_tables_in_blocks(monkeypatch):
    g = FactorGraph.grid(np.random.default_rng(0).normal(size=(3, 6)), 0.7)
    want = minfer.sample(g, 400, seed=1)
    monkeypatch.setattr(samples, "_BLOCK", 8)
    assert np.array_equal(want, minfer.sample(g, 400, seed=1))


def test_samples_are_refused_with_an_estimate():
    pairs = [[a, b] for a in range(50) for b in range(a + 1, 50)]
    g = FactorGraph.pairwise(np.zeros(50), pairs, 0.1)
    with pytest.raises(RefusedError, match=r"^sample: .*GiB.*Gibbs"):
        minfer.sample(g, 10)
