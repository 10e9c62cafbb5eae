"""One layout: what a model's factors come to is found out once, whatever the field."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from minfer import Auto, Clamped, Compensated, FactorGraph, MeanField, MinJoint, infer
from minfer.engine import conditioning
from minfer.engine.conditioning import condition

RNG = np.random.default_rng(5)
GRID = FactorGraph.grid(RNG.normal(size=(4, 5)), 0.6)
RULES = GRID.add_clauses([[0, 1, 2]]).add_tables([[3, 4, 5]], RNG.normal(size=(1, 2, 2, 2)))


@pytest.fixture
def settled(monkeypatch):
    """The graphs that are conditioned anew, a list that grows."""
    seen = []
    real = conditioning._settled

    def watched(graph, *rest):
        seen.append(graph)
        return real(graph, *rest)

    monkeypatch.setattr(conditioning, "_settled", watched)
    return seen


def fresh(graph):
    """The same graph, which knows nothing yet."""
    return pickle.loads(pickle.dumps(graph))


def same(one, other):
    np.testing.assert_allclose(one.field, other.field, rtol=1e-13)
    np.testing.assert_array_equal(one.fixed, other.fixed)
    assert one.constant == pytest.approx(other.constant, rel=1e-13)
    for a, b in zip(one.groups, other.groups, strict=True):
        np.testing.assert_array_equal(a._scope, b._scope)
        np.testing.assert_array_equal(a._ids, b._ids)


@pytest.mark.parametrize("graph", [GRID, RULES])
def test_a_new_field_is_added_to_what_is_known(graph, settled):
    graph = fresh(graph)
    first = condition(graph)
    for _ in range(3):
        graph = graph.tilt(RNG.normal(size=40))
        again = condition(graph)
        assert again.arrays is first.arrays
        same(again, condition(fresh(graph)))
    assert sum(g is graph for g in settled) == 0


def test_other_evidence_fixes_other_variables(settled):
    graph = fresh(RULES)
    for evidence in ({0: 1}, {0: 0, 1: 0}, {4: 1}):
        seen = graph.with_evidence(evidence)
        one, other = condition(seen), condition(seen.tilt(RNG.normal(size=40)))
        assert one.arrays is other.arrays
        same(one, condition(fresh(seen)))
    assert len(settled) == 6  # three here, three fresh
    assert condition(graph).fixed.max() == -1


def test_new_weights_are_new_factors():
    graph = fresh(GRID)
    before = condition(graph)
    after = condition(graph.with_weights(2.0 * graph.weights))
    assert after.arrays is not before.arrays
    same(after, condition(fresh(graph.with_weights(2.0 * graph.weights))))


def test_solvers_condition_once(settled):
    infer(fresh(GRID), MinJoint(0.02), recipe=Compensated())
    assert len(settled) == 2  # the seed, and what is kept
    settled.clear()
    Auto(exact_cells=0)(fresh(GRID))
    Auto(exact_cells=0, time_limit=0.5)(fresh(GRID))
    assert len([g for g in settled if g._field is None]) == 2
    settled.clear()
    Clamped(MeanField(), k=1, restarts=2)(fresh(GRID))
    assert len(settled) == 1 + 2  # and with each state of the one that is clamped
