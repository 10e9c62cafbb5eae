"""What answers of a device are called is a theorem, and drawn models try to refute it.

The oracle's plain arithmetic makes the last update again, from the messages that it began with and
the model as it was given: no message and no belief may move by more than the tolerance, whatever
the sweeps were made in.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from draws import blocks, few
from host_device import Host
from minfer import BeliefPropagation, ContradictionError, FactorGraph, LogZ, MeanField, Status
from minfer.errors import RefusedError
from minfer.solvers import on_device
from oracle import models, promises, truth

BINARY = ("grid", "mixed_signs", "frustrated", "balanced")
KINDS = (*BINARY, "states", "labels", "star")


def drawn_graph(rng: np.random.Generator, kinds: tuple[str, ...]) -> FactorGraph:
    kind = str(rng.choice(kinds))
    if kind == "labels":
        return models.labels(rng)
    if kind == "star":
        return promises.draw_graph(rng)
    return getattr(models, kind)(rng).graph


def check(number: int, kinds: tuple[str, ...] = KINDS) -> str:
    """Draw and check one case; a word on how it ended."""
    rng = np.random.default_rng(number)
    graph, solver = drawn_graph(rng, kinds), promises.draw_solver(rng)
    settings = {"device": "auto", "dtype": str(rng.choice(["float64", "float32", "auto"]))}
    if isinstance(solver, BeliefPropagation) and solver.schedule == "residual":
        settings["schedule"] = "coloured"
    solver = replace(solver, **settings)
    if rng.random() < 0.3:
        graph = promises._observe(graph, rng)
    where = f"case {number}: {solver!r} on {graph}"
    try:
        start = solver(graph) if rng.random() < 0.2 else None
        answer = solver(graph, start)
    except ContradictionError:
        assert truth.log_z(graph) == -np.inf, where
        return "contradiction"
    except RefusedError:
        return "refused"
    if not answer.note.startswith("on this") and not answer.note.startswith("on NVIDIA"):
        return "here"
    log_z = truth.log_z(graph)
    slip = 1e-9 * (1.0 + abs(log_z))
    if answer.log_z_kind is LogZ.UPPER:
        assert answer.log_z >= log_z - slip, where
    if answer.log_z_kind is LogZ.LOWER:
        assert answer.log_z <= log_z + slip, where
    assert np.isfinite(answer.probs).all(), where
    if answer.status is not Status.CONVERGED:
        return "not converged"
    if isinstance(solver, MeanField):
        return "mean field"
    state = answer.state
    model = promises.Plain.of(graph, answer)
    if model.forest:
        return "forest"
    moved = again(model, state)
    assert moved <= solver.tol * (1 + 1e-6) + 1e-12, f"{where}: moved {moved}"
    assert moved <= abs(answer.residuals[-1]) + 1e-12, (
        f"{where}: moved {moved}, told {answer.residuals[-1]}"
    )
    return "converged"


def again(model: promises.Plain, state) -> float:
    """The last update made again: the most that a message or a belief of the core moves."""
    state.before = state.before._replace(to_factor=np.ones_like(state.before.to_variable))
    old = promises.Vectors.of(state)
    told, moved = old.pair | old.general, 0.0
    beliefs = {v: model.belief(v, told, {}) for v in {v for _, v in told}}
    new = dict(told)
    for i, v in told:
        others = [u for u in model.factors[i][0] if u != v]
        if not model.core.issuperset([v, *others]):
            continue  # of trees, which are solved before and after
        said = {u: promises._over(beliefs[u], told[i, u]) for u in others}
        new[i, v] = model.message(i, v, said)
        moved = max(moved, np.abs(new[i, v] - told[i, v]).max())
    for v in model.core & beliefs.keys():
        moved = max(moved, np.abs(model.belief(v, new, {}) - beliefs[v]).max())
    return float(moved)


def test_what_a_block_confirms_is_confirmed(there):
    """From messages that went through logs in floats, with tolerances next to what these hide."""
    passed = 0
    for number in range(20):
        rng = np.random.default_rng(number)
        tol = float(rng.choice([1e-6, 2e-6, 1e-5]))
        field, weights = 3.0 * rng.normal(size=(4, 5)), rng.normal(size=31)
        graph = FactorGraph.grid(field, weights)
        answer = BeliefPropagation(device="cuda", dtype="float32", tol=tol)(graph)
        if not answer.converged:
            continue
        passed += 1
        moved = again(promises.Plain.of(graph, answer), answer.state)
        assert moved <= min(tol * (1 + 1e-6), answer.residuals[-1] + 1e-12), (number, moved)
    assert passed > 10


@pytest.mark.drawn
@pytest.mark.parametrize("block", range(blocks(10)))
def test_drawn_answers_promise_only_what_holds(there, monkeypatch, block):
    """A hundred cases each; on a card of binary ones, for every number of states is compiled."""
    monkeypatch.setattr(on_device, "BREAK_EVEN", 0)
    kinds = KINDS if isinstance(there, Host) else BINARY
    for number in few(range(100 * block, 100 * block + 100), 12):
        check(number, kinds)
