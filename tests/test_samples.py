"""Exact samples: their frequencies are the probabilities of all assignments."""

import numpy as np
import pytest
from scipy.stats import chisquare

import minfer
from minfer import ContradictionError, FactorGraph, ModelError, RefusedError, SettingsError
from minfer.queries import samples
from oracle import models
from oracle import truth as naive
from test_states import sprinkler


@pytest.mark.parametrize("kind", models.NETWORKS)
@pytest.mark.parametrize("seed", range(12))
def test_frequencies_are_probabilities(kind, seed):
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


def test_seeded_named_and_shaped():
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


def test_in_pandas():
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


def test_tables_in_blocks(monkeypatch):
    g = FactorGraph.grid(np.random.default_rng(0).normal(size=(3, 6)), 0.7)
    want = minfer.sample(g, 400, seed=1)
    monkeypatch.setattr(samples, "_BLOCK", 8)
    assert np.array_equal(want, minfer.sample(g, 400, seed=1))


def test_refused_with_an_estimate():
    pairs = [[a, b] for a in range(50) for b in range(a + 1, 50)]
    g = FactorGraph.pairwise(np.zeros(50), pairs, 0.1)
    with pytest.raises(RefusedError, match=r"^sample: .*GiB.*Gibbs"):
        minfer.sample(g, 10)
