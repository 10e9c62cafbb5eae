"""Parity checks abreast: against single runs, a decoder in the other domain, and themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

import minfer
from minfer import BeliefPropagation, FactorGraph
from minfer.solvers.batch import Rows, one_by_one
from minfer.solvers.parity_lanes import ParityStructure

BITS = 24


def checks(rng: np.random.Generator, bits: int = BITS, each: int = 3) -> list[NDArray[np.int64]]:
    """Of three to six bits, every bit in three of them."""
    out = []
    for _ in range(each):
        order, at = rng.permutation(bits), 0
        while at < bits:
            size = int(rng.integers(3, 7))
            size = size if bits - at - size >= 3 else bits - at
            out.append(order[at : at + size])
            at += size
    return out


def code(rng: np.random.Generator, soft: bool, bits: int = BITS) -> FactorGraph:
    graph = FactorGraph.empty([2] * bits)
    for c in checks(rng, bits):
        signs = [rng.choice([1, -1], len(c)).tolist()]
        weight = float(rng.normal()) if soft else np.inf
        graph = graph.add_parity([c.tolist()], weight, odd=bool(rng.integers(2)), signs=signs)
    return graph


def fields(rng: np.random.Generator, n: int, bits: int, size: float) -> NDArray[np.float64]:
    out = rng.normal(size=(n, bits, 2)) * size
    return out.reshape(n, -1)


def mesh_of(graph: FactorGraph):
    mesh = BeliefPropagation(schedule="flooding").prepare(graph).mesh
    assert mesh is not None
    return mesh


def both(graph: FactorGraph, field: NDArray[np.float64], **how: object):
    run = BeliefPropagation(schedule="flooding", **how).prepare(graph)  # type: ignore[arg-type]
    assert run.mesh is not None
    assert ParityStructure.of(run.mesh) is not None, "these do run abreast"
    return run.batch(field=field), one_by_one(run, Rows.of(graph, None, None, field), 1, False)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("size", [0.3, 1.0, 3.0, 30.0])
def test_as_single_runs(soft: bool, size: float) -> None:
    rng = np.random.default_rng([int(10 * size), soft])
    for _ in range(4):
        graph = code(rng, soft)
        field = fields(rng, 21, BITS, size)
        found, single = both(graph, field, tol=1e-9, max_iters=60)
        settled = single.converged & found.converged
        assert np.abs(found.probs - single.probs)[settled].max(initial=0.0) < 1e-7
        assert np.allclose(found.log_z[settled], single.log_z[settled], atol=1e-7)
        # what is held above the floor instead of going on in logs may settle sooner, never later
        assert not (single.converged & ~found.converged).any()
        if size <= 3.0 and soft:
            assert (found.codes == single.codes).all()
            assert (found.iterations == single.iterations).all()
            assert np.allclose(found.residuals, single.residuals, atol=1e-9)


def decoded(graph: FactorGraph, odds: NDArray[np.float64], iterations: int) -> NDArray[np.float64]:
    """Log-odds of 0 after so many iterations of the tanh rule, (V,); checks are even."""
    scopes = [tuple(s) for g in graph.groups for s in g._scope.tolist()]
    told = {(f, v): 0.0 for f, s in enumerate(scopes) for v in s}
    for _ in range(iterations):
        total = odds.copy()
        for (_, v), x in told.items():
            total[v] += x
        half = {key: math.tanh((total[key[1]] - x) / 2) for key, x in told.items()}
        for f, s in enumerate(scopes):
            for v in s:
                told[f, v] = 2 * math.atanh(math.prod(half[f, u] for u in s if u != v))
    total = odds.copy()
    for (_, v), x in told.items():
        total[v] += x
    return total


def test_as_the_tanh_rule() -> None:
    rng = np.random.default_rng(4)
    graph = FactorGraph.empty([2] * BITS)
    for c in checks(rng):
        graph = graph.add_parity([c.tolist()])
    odds = rng.normal(size=(9, BITS)) + 0.8
    field = np.stack([odds, np.zeros_like(odds)], axis=2).reshape(9, -1)
    for iterations in (1, 2, 5):
        how = {"tol": 1e-300, "max_iters": iterations}
        found, _ = both(graph, field, **how)
        ones = found.probs.reshape(9, BITS, 2)[:, :, 1]
        for row in range(9):
            expected = 1 / (1 + np.exp(decoded(graph, odds[row], iterations)))
            assert np.allclose(ones[row], expected, atol=1e-12)


def test_rows_know_nothing_of_their_neighbours() -> None:
    rng = np.random.default_rng(5)
    graph = code(rng, False)
    run = BeliefPropagation(schedule="flooding", tol=1e-6, max_iters=40).prepare(graph)
    field = fields(rng, 300, BITS, 1.5)
    whole = run.batch(field=field)
    order = rng.permutation(300)
    mixed, threads = run.batch(field=field[order]), run.batch(field=field, workers=3)
    alone = [run.batch(field=field[i : i + 1]) for i in range(5)]
    for name in ("probs", "log_z", "codes", "iterations", "residuals"):
        mine = getattr(whole, name)
        assert (getattr(mixed, name) == mine[order]).all()
        assert (getattr(threads, name) == mine).all()
        assert all((getattr(a, name)[0] == mine[i]).all() for i, a in enumerate(alone))


def test_what_does_not_fit_runs_singly() -> None:
    rng = np.random.default_rng(6)
    graph = code(rng, False)
    field = fields(rng, 8, BITS, 1.0)
    field[0, 0] = -np.inf  # a bit that is known
    field[1, :6] = [900.0, 0.0, 900.0, 0.0, 0.0, 900.0]  # further than doubles go
    found, single = both(graph, field, tol=1e-8)
    assert (found.probs[:2] == single.probs[:2]).all()
    assert (found.codes == single.codes).all()
    assert np.isnan(found.log_z).sum() == np.isnan(single.log_z).sum()
    run = BeliefPropagation(schedule="flooding").prepare(graph)
    seen = run.batch(evidence=[{0: 1}, {1: 0}])
    assert np.allclose(seen.probs[0][:2], [0.0, 1.0])
    assert run.batch(field=field[2:], log_z=False).probs.shape == (6, 2 * BITS)
    assert run.batch(field=field[:0]).probs.shape == (0, 2 * BITS)


def test_other_models_do_not_go_there() -> None:
    def structure(graph: FactorGraph) -> ParityStructure | None:
        return ParityStructure.of(mesh_of(graph))

    three = FactorGraph.empty([2] * 4)
    loop = [[0, 1, 2], [1, 2, 3], [0, 2, 3]]
    assert structure(three.add_parity(loop)) is not None
    assert structure(three.add_parity(loop).add_clauses([[0, 1, 3]])) is None
    assert structure(three.add_parity(loop).add_tables([[0, 1]], [np.eye(2)])) is None
    assert structure(three.add_parity(loop[:1])) is None  # a tree: exact as it is
    many = [[0, i, i + 1] for i in range(1, 40)]
    assert structure(FactorGraph.empty([2] * 41).add_parity(many)) is None  # range of doubles


def test_time_limits_and_contradictions() -> None:
    rng = np.random.default_rng(7)
    big = code(rng, False, 4000)
    run = BeliefPropagation(schedule="flooding", tol=0.0, max_iters=10**6, time_limit=0.3)
    found = run.prepare(big).batch(field=fields(rng, 16, 4000, 1.0))
    assert found.seconds < 5
    assert set(found.status) == {minfer.Status.TIME_LIMIT}
    never = FactorGraph.empty([2] * 3).add_parity([[0, 1, 2], [0, 1, 2]])
    never = never.add_parity([[0, 1, 2]], odd=True)
    found, single = both(never, np.array([[0.0, 0, 0.1, 0, 0.2, 0], [9.0, 0, 9, 0, 9, 0]]))
    assert (found.codes == single.codes).all()
