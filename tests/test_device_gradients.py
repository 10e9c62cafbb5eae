"""Beliefs of pairs, statistics and gradients of batches on a device: as C++ on this processor, and
(-m device) on a card. The oracle is the processor's lanes and their adjoint."""

from __future__ import annotations

import numpy as np
import pytest

from host_device import Host
from minfer import BeliefPropagation, FactorGraph
from minfer.solvers import on_device
from minfer.solvers.batch import Rows
from minfer.solvers.differentiable_batch import record
from test_device import GRID, WHEEL

RNG = np.random.default_rng(4)


def rows_of(graph: FactorGraph, n: int = 5) -> dict:
    states = 2 * graph.n_variables
    some = RNG.random((n, graph.n_variables)) < 0.2
    known = np.where(some, RNG.integers(0, 2, some.shape), -1)
    wild = 0.3 * RNG.normal(size=(n, int(graph.weight_offsets[-1])))
    return {"field": RNG.normal(size=(n, states)), "evidence": known, "weights": wild}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_statistics_and_gradients_are_those_of_the_processor(there, dtype, damping):
    tol, atol = (1e-11, 1e-8) if dtype == "float64" else (2e-6, 5e-5)
    settings = {"tol": tol, "damping": damping}
    for graph in (GRID, WHEEL):
        given = rows_of(graph)
        for part in (given, {"field": given["field"]}):
            run = BeliefPropagation(**settings, device="cuda", dtype=dtype).prepare(graph)
            here = BeliefPropagation(tol=1e-11, damping=damping).prepare(graph)
            found = run.batch(**part, statistics=True, log_z=False)
            wanted = here.batch(**part, statistics=True, log_z=False)
            np.testing.assert_allclose(found.statistics, wanted.statistics, atol=atol)
            along = RNG.normal(size=found.probs.shape)
            all_ = {"evidence": None, "weights": None, **part}
            back, right = (
                record(r, **all_).pull_back(along, tol=t, max_iters=1000, weights=True)
                for r, t in ((run, tol), (here, 1e-11))
            )
            assert back.converged.all()
            np.testing.assert_allclose(back.field, right.field, atol=atol)
            np.testing.assert_allclose(back.weights, right.weights, atol=atol)


def test_what_does_not_settle_is_solved_otherwise_or_told(there):
    """Next to where the fixed point splits in two sweeps hardly shrink: GMRES, from there on."""
    near = FactorGraph.grid(np.full((6, 6), 0.01), 0.78)
    rows = {"field": 0.01 * RNG.normal(size=(2, 72)), "evidence": None, "weights": None}
    along = RNG.normal(size=(2, 72))
    gradients = []
    for device in ("cuda", "cpu"):
        dtype = "float64" if device == "cuda" else "auto"
        solver = BeliefPropagation(tol=1e-12, max_iters=20_000, device=device, dtype=dtype)
        recorded = record(solver.prepare(near), **rows)
        gradients.append(recorded.pull_back(along, tol=1e-11, max_iters=5000, weights=True))
        cut = recorded.pull_back(along, tol=1e-11, max_iters=3, weights=False)
        assert not cut.converged.any()
    assert gradients[0].converged.all()
    np.testing.assert_allclose(gradients[0].field, gradients[1].field, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(gradients[0].weights, gradients[1].weights, rtol=1e-6, atol=1e-7)


def test_rows_that_are_known_all_through_have_joints_of_zeros_and_ones(there):
    run = BeliefPropagation(device="cuda", dtype="float64", tol=1e-9).prepare(GRID)
    known = RNG.integers(0, 2, (3, GRID.n_variables))
    found = run.in_lanes(Rows.of(GRID, known, None, None), np.float64, 1, False, True)
    assert found is not None
    joints = found[1].get()
    assert set(np.unique(joints)) <= {0.0, 1.0}
    scope = run.mesh.pair_scope
    place = 2 * known[:, scope[:, 0]] + known[:, scope[:, 1]]
    np.testing.assert_array_equal(joints.argmax(axis=2), place)
    np.testing.assert_array_equal(found[1][2], joints[2])


def test_threads_may_run_in_any_order(monkeypatch):
    given, along = rows_of(GRID), RNG.normal(size=(5, 84))
    found = []
    for backwards in (False, True):
        host = Host(backwards)
        monkeypatch.setattr(on_device, "device", lambda host=host: host)
        recorded = record(BeliefPropagation(device="cuda").prepare(GRID), **given)
        found.append(recorded.pull_back(along, tol=1e-6, max_iters=100, weights=True))
    np.testing.assert_array_equal(found[0].field, found[1].field)
    np.testing.assert_array_equal(found[0].weights, found[1].weights)
