"""Gradients through marginals, each against central differences of the solver itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    Gibbs,
    Marginals,
    MeanField,
    ModelError,
    RefusedError,
    SettingsError,
    TreeReweighted,
)
from minfer.solvers.gradients import pull_back
from zoo import graphs

TIGHT = {
    "bp": BeliefPropagation(tol=1e-14, max_iters=20_000),
    "bp-damped": BeliefPropagation(tol=1e-14, max_iters=20_000, damping=0.4),
    "trw": TreeReweighted(tol=1e-14, max_iters=20_000),
    "exact": Exact(),
    "mean-field": MeanField(tol=1e-15, max_iters=50_000),
}


def differences(solver, graph, cotangent, start=None, step=1e-5):
    """dLoss/d(field) and dLoss/d(weights) of loss = probs @ cotangent, number by number."""

    def loss(g):
        return float(solver(g, start).probs @ cotangent)

    field = np.zeros(len(cotangent))
    for i in range(len(field)):
        d = np.zeros(len(field))
        d[i] = step
        field[i] = (loss(graph.tilt(d)) - loss(graph.tilt(-d))) / (2 * step)
    given = graph.weights
    weights = np.zeros(len(given))
    for i in np.flatnonzero(np.isfinite(given)):
        d = np.zeros(len(given))
        d[i] = step
        up, down = graph.with_weights(given + d), graph.with_weights(given - d)
        weights[i] = (loss(up) - loss(down)) / (2 * step)
    return field, weights


def agree(back, graph, solver, cotangent, within=1e-7, start=None):
    field, weights = differences(solver, graph, cotangent, start)
    np.testing.assert_allclose(back.field, field, rtol=0, atol=within)
    np.testing.assert_allclose(back.weights, weights, rtol=0, atol=within)


@pytest.mark.parametrize("name", TIGHT)
@pytest.mark.parametrize("kind", ["chain", "star", "grid", "parallel", "disconnected", "observed"])
def test_of_binary_pairs(name, kind):
    graph, solver = graphs()[kind], TIGHT[name]
    m = solver(graph)
    c = np.random.default_rng(3).normal(size=len(m.probs))
    back = pull_back(m, c, tol=1e-12)
    assert back.converged
    agree(back, graph, solver, c)


def test_evidence_of_a_prepared_call():
    graph, solver = graphs()["grid"], TIGHT["bp"]
    m = solver.prepare(graph)(evidence={4: 1, 0: 0})
    c = np.random.default_rng(4).normal(size=len(m.probs))
    back = pull_back(m, c, tol=1e-12)
    agree(back, graph.with_evidence({4: 1, 0: 0}), solver, c)


def test_the_two_ways_agree():
    rng = np.random.default_rng(5)
    graph = FactorGraph.grid(rng.normal(size=(6, 6)), rng.normal(size=60))
    m = TIGHT["bp"](graph)
    c = rng.normal(size=len(m.probs))
    one, two = pull_back(m, c, tol=1e-12), pull_back(m, c, method="perturbation")
    assert (one.method, two.method) == ("adjoint", "perturbation")
    np.testing.assert_allclose(one.field, two.field, atol=1e-8)
    np.testing.assert_allclose(one.weights, two.weights, atol=1e-8)
    assert np.abs(one.weights - two.weights).max() <= two.error


def test_what_has_not_converged_says_so():
    graph = graphs()["grid"]
    m = BeliefPropagation(max_iters=1)(graph)
    back = pull_back(m, np.ones(len(m.probs)))
    assert not back.converged
    assert "not converged" in back.note
    m = BeliefPropagation()(graph)
    c = np.random.default_rng(0).normal(size=len(m.probs))
    assert not pull_back(m, c, tol=1e-12, max_iters=2).converged


def test_bad_input_is_refused():
    m = BeliefPropagation()(graphs()["grid"])
    with pytest.raises(ModelError, match="3 numbers for 18"):
        pull_back(m, np.ones(3))
    with pytest.raises(ModelError, match="finite"):
        pull_back(m, np.full(18, np.nan))
    with pytest.raises(SettingsError, match="tol"):
        pull_back(m, np.ones(18), tol=0.0)
    with pytest.raises(SettingsError, match="method"):
        pull_back(m, np.ones(18), method="magic")
    with pytest.raises(ModelError, match="the answer of a solver"):
        pull_back(graphs()["grid"], np.ones(18))
    given = Marginals.from_probs(m.graph, m.probs, "somebody")
    with pytest.raises(RefusedError, match="pass solver="):
        pull_back(given, np.ones(18))
    sampled = Gibbs(n_sweeps=20, rng=0)
    with pytest.raises(RefusedError, match="samples have no gradient"):
        pull_back(sampled(m.graph), np.ones(18), solver=sampled)
    with pytest.raises(RefusedError, match="no adjoint"):
        pull_back(replace(Exact())(m.graph), np.ones(18), method="adjoint")
