"""Sensitivity, strength of evidence and value of information, against their definitions."""

import math

import numpy as np
import pytest

import minfer
from minfer import ContradictionError, FactorGraph, ModelError, RefusedError
from oracle import models
from oracle import truth as naive
from refused import all_refused
from test_states import sprinkler


def as_tables(graph, seen):
    """Linear tables of all factors, and the weight of fields and evidence, over all assignments."""
    tables = [np.exp(graph.log_table(i)) for i in range(graph.n_factors)]
    bare = graph.keep(np.zeros(graph.n_factors, dtype=bool))
    return tables, naive.weights(bare, seen)


def derivative_of_z(graph, tables, rest, factor):
    """d Z / d theta of one factor: the product of all others, summed onto its scope."""
    sizes, total = tuple(graph.n_states.tolist()), rest
    for i, table in enumerate(tables):
        if i != factor:
            total = total * naive.spread(sizes, tuple(graph.scope(i).tolist()), table)
    scope = graph.scope(factor).tolist()
    out = total.sum(axis=tuple(a for a in range(total.ndim) if a not in scope))
    return out.transpose([sorted(scope).index(v) for v in scope])


CASES = [(kind, seed) for kind in models.NETWORKS for seed in range(25)]


def drawn(rng, graph):
    """A target, evidence on others, and the weights of all assignments with it."""
    t = int(rng.integers(graph.n_variables))
    seen = {v: x for v, x in models.evidence(rng, graph).items() if graph.index(v) != t}
    return t, seen, naive.weights(graph, seen)


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_every_derivative(kind, seed):
    rng = np.random.default_rng([seed, len(kind)])
    graph = models.NETWORKS[kind](rng, 5, zeros=float(rng.choice([0.0, 0.3])))
    t, seen, w = drawn(rng, graph)
    s = int(rng.integers(graph.n_states[t]))
    if w.sum() == 0.0:
        with pytest.raises(ContradictionError):
            minfer.sensitivity(graph, t, s, seen)
        return
    found = minfer.sensitivity(graph, t, s, seen)
    f = float(naive.table(w, [t])[s])
    assert found.probability == pytest.approx(f, abs=1e-12)
    tables, rest = as_tables(graph, seen)
    event = naive.weights(FactorGraph.empty(graph.n_states), {t: s})
    for i in range(graph.n_factors):
        both = derivative_of_z(graph, tables, rest * event, i)
        below = derivative_of_z(graph, tables, rest, i)
        want = (both - f * below) / w.sum()
        assert np.allclose(found.derivatives[i], want, atol=1e-10, rtol=1e-9)
        assert np.allclose(found.log_derivatives[i], want * tables[i], atol=1e-10)


@pytest.mark.parametrize("seed", range(15))
def test_covaried_derivatives_are_slopes_of_networks(seed):
    rng = np.random.default_rng(seed)
    graph = models.network(rng, 5)
    t, seen, _ = drawn(rng, graph)
    found = minfer.sensitivity(graph, t, 0, seen)
    i = int(rng.integers(graph.n_factors))
    table = np.exp(graph.log_table(i))
    cell = tuple(int(rng.integers(n)) for n in table.shape)
    if table.shape[-1] == 1:
        assert found.covaried[i][cell] == 0.0
        return

    def moved(h):
        new = table.copy()
        row = new[cell[:-1]]
        others = 1.0 - row[cell[-1]]
        row *= (others - h) / others
        row[cell[-1]] = table[cell] + h
        weights = graph.weights
        first = graph.weight_offsets[i]
        weights[first : first + new.size] = np.log(new).ravel()
        return float(naive.table(naive.weights(graph.with_weights(weights), seen), [t])[0])

    h = 1e-5 * min(table[cell], 1 - table[cell])
    slope = (moved(h) - moved(-h)) / (2 * h)
    assert found.covaried[i][cell] == pytest.approx(slope, abs=1e-4 * max(1, abs(slope)))


def test_they_speak_names():
    found = minfer.sensitivity(sprinkler(), "rain", "yes", {"wet": "yes"})
    first = found.largest(1)[0]
    assert first.variable in ("rain", "sprinkler", "wet")
    assert found["rain"].shape == (2,)
    assert "P(rain=yes)" in repr(found)
    lines = str(found).splitlines()
    assert "P(rain=yes)" in lines[0]
    assert "others of an entry's row change in proportion" in lines[-1]
    of_two = [line[2:] for line in lines[3:-2] if "P(count" not in line]
    given = [row.split("=")[0] + row.partition(" | ")[2].partition(")")[0] for row in of_two]
    assert len(set(given)) == len(given)  # of two states one: the other's has the other sign
    assert found.to_dict(3)["largest"][0]["variable"] == first.variable
    assert not found.derivatives[3].any()  # what is known cuts it off
    found = minfer.sensitivity(sprinkler(), "rain", "yes")
    assert found.derivatives[3].any()  # barren, but one entry alone breaks its row's sum
    assert np.abs(found["count"]).max() < 1e-12  # its rows sum to one whatever they are
    found = minfer.influence(sprinkler(), "rain", {"wet": "yes", "count": 2}, state="yes")
    assert "wet=yes" in str(found)
    assert found.to_dict()["state"] == "yes"
    found = minfer.information(sprinkler(), "rain", {"sprinkler": "off"}, ["wet", "count"])
    assert [row.variable for row in found.rows] == ["wet", "count"]
    assert found["wet"].share > found["count"].share
    assert "wet would tell most" in str(found)
    assert " nats" in str(found).splitlines()[0]
    assert found.to_dict()["unit"] == "nats"


@pytest.mark.parametrize("seed", range(20))
def test_influence_is_leaving_out_and_taking_alone(seed):
    rng = np.random.default_rng(seed)
    graph = models.network(rng, 6)
    t, seen, w = drawn(rng, graph)
    found = minfer.influence(graph, t, seen)
    s = graph.state(t, found.state)
    p = naive.table(w, [t])
    assert found.probability == pytest.approx(p[s])
    assert len(found.rows) == len(seen)
    for row in found.rows:
        v = next(v for v in seen if graph.index(v) == graph.index(row.variable))
        less = {u: x for u, x in seen.items() if u != v}
        q = naive.table(naive.weights(graph, less), [t])
        assert row.without == pytest.approx(q[s])
        assert row.alone == pytest.approx(naive.table(naive.weights(graph, {v: seen[v]}), [t])[s])
        both = (p > 0) & (q > 0)
        assert row.divergence == pytest.approx(
            (p[both] * np.log(p[both] / q[both])).sum(), abs=1e-9
        )
        if 0 < p[s] < 1:
            want = math.log(p[s] / (1 - p[s])) - math.log(q[s] / (1 - q[s]))
            assert row.log_odds == pytest.approx(want, abs=1e-8)


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_mutual_information(kind, seed):
    rng = np.random.default_rng([seed, 3, len(kind)])
    graph = models.NETWORKS[kind](rng, zeros=float(rng.choice([0.0, 0.3])))
    t, seen, w = drawn(rng, graph)
    if rng.random() < 0.2:
        seen[t] = rng.random(int(graph.n_states[t])).tolist()
        w = naive.weights(graph, seen)
    if w.sum() == 0.0:
        with pytest.raises(ContradictionError):
            minfer.information(graph, t, seen)
        return
    found = minfer.information(graph, t, seen)
    p = naive.table(w, [t])
    assert found.entropy == pytest.approx(-sum(x * math.log(x) for x in p if x > 0), abs=1e-11)
    hard = {graph.index(v) for v, x in seen.items() if not isinstance(x, (dict, list))}
    assert {row.variable for row in found.rows} == {
        graph.name(v) for v in range(graph.n_variables) if v != t and v not in hard
    }
    for row in found.rows:
        both = naive.table(w, [t, graph.index(row.variable)])
        q = both.sum(axis=0)
        some = both > 0
        want = (both[some] * np.log(both[some] / np.multiply.outer(p, q)[some])).sum()
        assert row.mutual_information == pytest.approx(want, abs=1e-10)
    tells = [row.mutual_information for row in found.rows]
    assert tells == sorted(tells, reverse=True)


def test_what_is_refused():
    g, rain = sprinkler(), {"rain": "yes"}
    loose = FactorGraph.from_tables([2, 2], [[0, 1]], [np.zeros((2, 2))])
    pairs = [[a, b] for a in range(40) for b in range(a + 1, 40)]
    dense = FactorGraph.pairwise(np.zeros(40), pairs, 0.1)
    all_refused(
        (lambda: minfer.sensitivity(g, "rain", "yes", rain), ModelError, "is the target"),
        (lambda: minfer.sensitivity(g, "rain", "maybe"), ModelError, "the states no, yes"),
        (lambda: minfer.sensitivity(loose, 0, 0)[0], ModelError, "no conditional"),
        (lambda: minfer.sensitivity(dense, 0, 0), RefusedError, "^sensitivity: "),
        (lambda: minfer.influence(g, "rain", rain), ModelError, "has evidence itself"),
        (lambda: minfer.influence(g, "rain", {"wet": "yes"}, "yes"), TypeError, ""),
        (lambda: minfer.information(g, "rain", rain), ModelError, "is observed"),
    )
