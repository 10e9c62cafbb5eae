"""Pairs of many states on a device: the CUDA sources on this processor, and (-m device) on a card.

The oracle is the engine of the processor, at a fixed point that both find.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from host_device import Host
from minfer import BeliefPropagation, FactorGraph, Status, TreeReweighted
from minfer.device.vectors import VectorLayout
from minfer.engine.conditioning import condition
from minfer.engine.wiring import wire
from minfer.errors import RefusedError
from minfer.graph import grid_edges
from minfer.solvers import on_device

RNG = np.random.default_rng(5)


def bare(states: list[int], scale: float = 1.0) -> FactorGraph:
    """Variables with a field, and no factors."""
    return FactorGraph.empty(states).tilt(scale * RNG.normal(size=sum(states)))


def ragged() -> FactorGraph:
    """A hub, a ring around it, a tree on that; tables of pairs alone, and shared ones."""
    states = [5, 4, 3, 4, 3, 3, 4, 3, 3, 1, 2]
    graph = bare(states)
    pairs = [(0, k) for k in range(1, 9)] + [(k, k + 1) for k in range(1, 8)] + [(8, 10)]
    for a, b in pairs:
        graph = graph.add_tables([[b, a]], 0.7 * RNG.normal(size=(1, states[b], states[a])))
    return graph.add_tables(np.array([[1, 3], [3, 6], [6, 1]]), RNG.normal(size=(1, 4, 4)))


EDGES, RING = grid_edges(4, 5), [[0, 1], [1, 2], [2, 0]]
MODELS = {
    "Potts": bare([3] * 20).add_potts(EDGES, RNG.normal(size=len(EDGES))),
    "one table": bare([3] * 20).add_tables(EDGES, RNG.normal(size=(1, 3, 3))),
    "own tables": bare([3] * 20).add_tables(EDGES, RNG.normal(size=(len(EDGES), 3, 3))),
    "ragged": ragged(),
    "far apart": bare([3] * 20, 300.0).add_potts(EDGES, 20.0),
    "rise": bare([26] * 3).add_truncated_linear(RING, [0.4, 0.3, 0.5], 4),
    "band": bare([26] * 3).add_label_distances(RING, 0.3 * RNG.normal(size=(3, 5))),
    "chain": bare([26] * 3).add_truncated_linear(RING, 0.1, 25),
}
LONG = ("rise", "band", "chain", "ragged")  # programs of their own to compile
SETTINGS = [{}, {"schedule": "flooding"}, {"damping": 0.3},
            {"schedule": "flooding", "damping": 0.4}]  # fmt: skip


def alike(graph: FactorGraph, dtype: str, **settings: object) -> None:
    """The same answer as on the processor."""
    tol, atol = (1e-10, 1e-8) if dtype == "float64" else (1e-5, 5e-5)
    here = BeliefPropagation(**settings, tol=tol)(graph)
    found = BeliefPropagation(**settings, tol=tol, device="cuda", dtype=dtype)(graph)
    assert found.status is here.status is Status.CONVERGED
    np.testing.assert_allclose(found.probs, here.probs, atol=atol)
    assert found.log_z == pytest.approx(here.log_z, abs=100 * atol, rel=1e-9)
    factor = graph.n_factors - 1
    np.testing.assert_allclose(found.factor(factor), here.factor(factor), atol=10 * atol)
    assert found.note.startswith("on ")
    assert dtype in found.note


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in MODELS]
)
def test_answers_are_those_of_the_processor(there, name):
    alike(MODELS[name], "float64")


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_in_every_schedule(there, settings):
    alike(MODELS["Potts"], "float32", **settings)
    alike(MODELS["one table"], "float64", **settings)


@pytest.mark.parametrize(
    "name", ["Potts", "own tables", pytest.param("ragged", marks=pytest.mark.slow)]
)
def test_tree_reweighted_ones_too(there, name):
    graph = MODELS[name]
    for dtype, tol, atol in (("float64", 1e-10, 1e-8), ("float32", 1e-5, 5e-5)):
        here = TreeReweighted(tol=tol)(graph)
        found = TreeReweighted(tol=tol, device="cuda", dtype=dtype)(graph)
        assert found.status is here.status is Status.CONVERGED
        np.testing.assert_allclose(found.probs, here.probs, atol=atol)
        assert found.log_z == pytest.approx(here.log_z, abs=max(1e-6, 1000 * atol * atol, 10 * tol))
        factor = graph.n_factors - 1
        np.testing.assert_allclose(found.factor(factor), here.factor(factor), atol=10 * atol)
    known = graph.with_evidence({3: 1, 4: 0})
    run = TreeReweighted(device="cuda", dtype="float64", tol=1e-10).prepare(graph)
    plain = TreeReweighted(tol=1e-10)(known)
    np.testing.assert_allclose(run(evidence={3: 1, 4: 0}).probs, plain.probs, atol=1e-8)


def test_what_is_converged_is_confirmed_here(there):
    """Two sweeps and an update on the processor, from there, move nothing much."""
    for dtype, tol in (("float64", 1e-7), ("float32", 1e-5)):
        for name in ("own tables", "Potts"):
            found = BeliefPropagation(device="cuda", dtype=dtype, tol=tol)(MODELS[name])
            again = BeliefPropagation(tol=10 * tol, schedule="flooding", max_iters=3)
            assert again(MODELS[name], found).converged


def test_what_ends_early_is_told(there):
    graph = MODELS["Potts"]
    found = BeliefPropagation(device="cuda", max_iters=3, dtype="float64")(graph)
    assert found.status is Status.MAX_ITERS
    assert found.iterations == 3
    timed = BeliefPropagation(device="cuda", time_limit=1e-9, dtype="float64")(graph)
    assert timed.status is not Status.CONVERGED
    fine = BeliefPropagation(device="cuda", tol=1e-12, dtype="float32", max_iters=200)(graph)
    assert fine.status is Status.MAX_ITERS
    assert fine.residuals[-1] > 1e-12


def test_starts_evidence_prepared_calls_and_files(there):
    graph = MODELS["own tables"]
    solver = BeliefPropagation(device="cuda", dtype="float64", tol=1e-10)
    plain = BeliefPropagation(tol=1e-10)
    first = solver(graph)
    assert solver(graph, first).iterations < first.iterations / 3
    kept = pickle.loads(pickle.dumps(first))
    assert kept.log_z == first.log_z
    known = graph.with_evidence({3: 1, 12: 0})
    np.testing.assert_allclose(solver(known).probs, plain(known).probs, atol=1e-8)
    run = solver.prepare(graph)
    np.testing.assert_allclose(run().probs, first.probs, atol=1e-8)
    found = run(evidence={3: 1, 12: 0})
    np.testing.assert_allclose(found.probs, plain(known).probs, atol=1e-8)
    assert found.log_z == pytest.approx(plain(known).log_z, abs=1e-7)
    weights = 0.5 * graph.weights
    found = run(weights=weights, field=np.linspace(-1, 1, 60))
    other = graph.with_weights(weights).tilt(np.linspace(-1, 1, 60))
    np.testing.assert_allclose(found.probs, plain(other).probs, atol=1e-8)


@pytest.mark.parametrize("name", ["Potts", "ragged"])
def test_batches_answer_what_single_calls_do(there, name):
    graph, rng = MODELS[name], np.random.default_rng(3)
    n, states = graph.n_variables, np.array(graph.n_states)
    field = rng.normal(size=(5, int(states.sum())))
    evidence = np.where(rng.random((5, n)) < 0.2, rng.integers(0, 60, (5, n)) % states, -1)
    here = BeliefPropagation(tol=1e-10).prepare(graph)
    run = BeliefPropagation(tol=1e-10, device="cuda", dtype="float64").prepare(graph)
    for given in ({"field": field}, {"evidence": evidence}, {"evidence": evidence, "field": field}):
        found, by_hand = run.batch(**given), here.batch(**given)
        assert found.converged.all()
        np.testing.assert_allclose(found.probs, by_hand.probs, atol=1e-8)
        np.testing.assert_allclose(found.log_z, by_hand.log_z, atol=1e-7)
    field[1, : states[0]] = -np.inf  # no state is left
    found = run.batch(field=field)
    assert np.isnan(found.probs[1]).all()
    assert found.log_z[1] == -np.inf
    assert found.converged[[0, 2, 3, 4]].all()


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2))
def test_drawn_models_promise_no_more_than_here(there, block):
    for number in range(20 * block, 20 * block + 20):
        rng = np.random.default_rng(number)
        n = int(rng.integers(3, 8))
        edges = [[a, b] for a in range(n) for b in range(a) if rng.random() < 0.6] or [[0, 1]]
        scale = float(rng.choice([0.3, 1.0, 4.0, 12.0]))
        graph = FactorGraph.empty([3] * n).tilt(scale * rng.normal(size=3 * n))
        if rng.random() < 0.5:
            graph = graph.add_tables(edges, scale * rng.normal(size=(len(edges), 3, 3)))
        else:
            graph = graph.add_potts(edges, scale * rng.normal(size=len(edges)))
        tol = float(10.0 ** -rng.integers(2, 9))
        settings = {
            "tol": tol, "max_iters": 200, "damping": float(rng.choice([0.0, 0.0, 0.4])),
            "schedule": str(rng.choice(["coloured", "flooding"])),
            "dtype": str(rng.choice(["float32", "float64"])),
        }  # fmt: skip
        found = BeliefPropagation(device="cuda", **settings)(graph)
        if found.status is not Status.CONVERGED:
            assert found.residuals[-1] > tol
            continue
        again = BeliefPropagation(tol=max(tol, 1e-12), schedule="flooding", max_iters=2)
        room = 10 * tol + (1e-5 if settings["dtype"] == "float32" else 1e-9)
        assert np.abs(again(graph, found).probs - found.probs).max() <= room, (number, found)


def test_threads_may_run_in_any_order(monkeypatch):
    answers = []
    for backwards in (False, True):
        host = Host(backwards)
        monkeypatch.setattr(on_device, "device", lambda host=host: host)
        answers.append(BeliefPropagation(device="cuda", dtype="float64")(MODELS["Potts"]))
    np.testing.assert_array_equal(answers[0].probs, answers[1].probs)


def test_a_psi_that_pairs_share_lies_there_once():
    def numbers(graph: FactorGraph) -> int:
        mesh = wire(condition(graph))
        order = mesh.by_colour(whole=True)
        return VectorLayout(Host(), mesh.wiring, mesh.gowner, *order).n_table

    assert numbers(MODELS["Potts"]) <= 32 * 3
    assert numbers(MODELS["one table"]) == 32
    assert numbers(MODELS["own tables"]) <= 4 * 2 * 9 * 32


def test_what_has_no_form_there_is_refused_with_a_way_out(there):
    solver = BeliefPropagation(device="cuda")
    pair = np.array([[0.0, -np.inf, 0.1], [1.0, 0.0, 0.0], [0.2, 0.3, 0.0]])
    zeros = FactorGraph.empty([3] * 3).add_tables(np.array(RING), pair[None])
    triple = FactorGraph.empty([3] * 3).add_tables([[0, 1, 2]], RNG.normal(size=(1, 3, 3, 3)))
    mixed = bare([2, 2, 2, 3, 3]).add_potts(RING, 0.5).add_tables(
        [[2, 3], [2, 4]], RNG.normal(size=(2, 2, 3))
    ).add_potts([[3, 4]], 1.0)  # fmt: skip
    for graph, word in ((zeros, "zeros"), (triple, "three or more"), (mixed, "both")):
        with pytest.raises(RefusedError, match=rf"{word}.*device='cpu'"):
            solver(graph)
        found = BeliefPropagation(device="auto")(graph)
        assert "on the processor" in found.note
        np.testing.assert_array_equal(found.probs, BeliefPropagation()(graph).probs)
    wide = bare([3] * 3).add_potts(RING, [80.0, 70.0, 90.0])
    with pytest.raises(RefusedError, match="float64"):
        BeliefPropagation(device="cuda", dtype="float32")(wide)
    found = solver(wide)
    assert "float64" in found.note
    np.testing.assert_allclose(found.probs, BeliefPropagation()(wide).probs, atol=1e-5)
    tree = bare([3] * 3).add_potts([[0, 1], [1, 2]], 1.0)
    assert "tree" in solver(tree).note
