"""Windows: exact where they hold everything, belief propagation where they hold one variable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hsettings

from draws import draws
from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    SettingsError,
    Status,
    Windows,
)
from minfer.engine.conditioning import condition
from minfer.engine.message_state import MessageState
from minfer.solvers.windows import Rounds
from oracle import lists, models
from oracle import truth as naive

GRAPHS = {**lists.graphs(), **lists.higher_order(), **lists.logical(), **lists.with_globals()}


def rounds(graph: FactorGraph, **settings) -> Rounds | None:
    """Windows, even where all of the model fits into one or belief propagation is exact."""
    first = BeliefPropagation(tol=1e-10, damping=0.3, max_iters=5000)(graph)
    if not isinstance(first.state, MessageState):
        return None
    made = Rounds(Windows(**settings), graph, condition(graph), first)
    made.until(math.inf)
    return made


#: Of windows that hold some loops of a grid of nine by nine, and not all of it.
SMALL = 2**8


def spins(n: int, strength: float, seed: int = 0) -> FactorGraph:
    rng = np.random.default_rng(seed)
    field = 0.5 * rng.normal(size=(n, n))
    return FactorGraph.grid(field, strength * rng.normal(size=2 * n * (n - 1)), feature="equal")


@pytest.mark.parametrize("name", GRAPHS)
def test_a_window_over_everything_is_exact(name):
    graph = GRAPHS[name]
    made = rounds(graph, max_cells=2**20, core=3)
    if made is None or any(g.form == "messages" for g in made.model.groups):
        return  # global factors are always cut
    np.testing.assert_allclose(made.probs, naive.marginals(graph), atol=1e-9)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_window_of_one_variable_is_belief_propagation(name):
    made = rounds(GRAPHS[name], max_cells=1, core=1)
    if made is not None:
        np.testing.assert_allclose(made.probs, made.first.probs, atol=1e-9)


@given(models.drawn_tables(max_variables=7, tree=True))
@hsettings(max_examples=draws(80), deadline=None)
def test_on_a_tree_every_window_is_exact(drawn):
    graph = drawn.graph()
    if naive.log_z(graph) == -math.inf:
        return
    for cells in (4, 16, 64):
        made = rounds(graph, max_cells=cells, core=1)
        if made is not None:
            np.testing.assert_allclose(made.probs, naive.marginals(graph), atol=1e-7)


@given(models.drawn_tables(max_variables=6))
@hsettings(max_examples=draws(120), deadline=None)
def test_drawn_windows_are_distributions_that_keep_sound_zeros(drawn):
    graph = drawn.graph()
    if naive.log_z(graph) == -math.inf:
        return
    truth = naive.marginals(graph)
    for settings in ({"max_cells": 8, "core": 1}, {"max_cells": 32, "core": 4}):
        m = Windows(**settings)(graph)
        sums = np.add.reduceat(m.probs, graph.offsets[:-1]) if graph.n_variables else np.ones(0)
        np.testing.assert_allclose(sums, 1.0, atol=1e-9)
        fixed = np.repeat(condition(graph).fixed >= 0, graph.n_states)
        np.testing.assert_allclose(m.probs[fixed], truth[fixed], atol=1e-9)
        if m.status is Status.EXACT:
            np.testing.assert_allclose(m.probs, truth, atol=1e-7)


@pytest.mark.slow
def test_errors_fall_as_windows_grow():
    errors = []
    for seed in range(3):
        graph = spins(13, 2.0, seed)
        truth = Exact()(graph).probs
        found = [Windows(max_cells=2**k)(graph) for k in (0, 12, 16)]
        errors.append([float(np.abs(m.probs - truth).mean()) for m in found])
    plain, small, large = np.mean(errors, axis=0)
    assert large < small < plain
    assert large < plain / 4


def test_gone_on_with_it_is_the_same():
    graph = spins(9, 2.0)
    at_once = rounds(graph, max_cells=SMALL)
    assert at_once is not None
    pieces = Rounds(at_once.settings, graph, at_once.model, at_once.first)
    for _ in range(10_000):
        if pieces.finished:
            break
        pieces.took = 0.0
        before = len(pieces.todo), len(pieces.left), pieces.cells
        core = pieces.take() if pieces.todo else None
        if core is None:
            pieces.until(-math.inf)  # begins no round that it cannot finish
            assert (len(pieces.todo), len(pieces.left), pieces.cells) == before
            pieces.until(math.inf)
        else:
            pieces._answer(core)
    np.testing.assert_array_equal(pieces.probs, at_once.probs)


def test_what_it_says():
    graph = spins(9, 2.0)
    m = Windows(max_cells=SMALL)(graph)
    assert "windows of up to" in m.note
    assert m.error_estimate is not None
    assert 0.0 <= m.error_estimate <= 1.0
    pair = int(np.flatnonzero(graph.arity == 2)[0])
    first, second = graph.scope(pair).tolist()
    np.testing.assert_allclose(m.factor(pair).sum(axis=1), m[first], atol=1e-6)
    np.testing.assert_allclose(m.factor(pair).sum(axis=0), m[second], atol=1e-6)
    for settings in ({"time_limit": 1e-3}, {"time_limit": 0.5, "max_cells": 2**60}):
        assert Windows(**settings)(spins(40, 2.0)).status is Status.TIME_LIMIT
    assert Windows()(spins(4, 1.0)).status is Status.EXACT
    with pytest.raises(SettingsError, match="max_cells"):
        Windows(max_cells=0)


def test_cores_are_made_as_they_are_needed():
    graph = spins(60, 1.0)
    made = Rounds(Windows(), graph, condition(graph), BeliefPropagation(max_iters=1)(graph))
    assert made.n_cores == 1
    assert not made.until(-math.inf)
    assert made.n_cores == 1
    assert not made.finished
    assert "no window was finished in time" in made.answer(0.0).note
    made.take()
    assert made.n_cores == 2


def test_windows_without_a_loop_are_no_answer():
    """20 states: a loop has more cells than the first round allows, and is tried again."""
    rng = np.random.default_rng(0)
    at = np.arange(12).reshape(3, 4)
    pairs = [*zip(at[:, :-1].ravel(), at[:, 1:].ravel()), *zip(at[:-1].ravel(), at[1:].ravel())]
    graph = FactorGraph.empty([20] * 12).add_potts(pairs, [4.0] * len(pairs))
    graph = graph.add_tables([[v] for v in range(12)], rng.normal(size=(12, 20)))
    m = Windows(max_cells=2**12)(graph)
    assert "no window holds a loop" in m.note
    assert m.error_estimate == 1.0
    larger = Windows(max_cells=2**17)(graph)
    assert 1e-4 < larger.error_estimate < 1.0
    truth = Exact()(graph).probs
    assert np.abs(larger.probs - truth).mean() < np.abs(m.probs - truth).mean()


def test_what_is_beside_loops_is_known():
    """A variable without a factor, and a tree."""
    grid, small = spins(9, 2.0), Windows(max_cells=SMALL)
    scopes = [grid.scope(i).tolist() for i in range(grid.n_factors)]
    tables = [grid.log_table(i) for i in range(grid.n_factors)]
    alone = FactorGraph.from_tables([2] * 82, scopes, tables)
    assert small(alone).error_estimate == pytest.approx(small(grid).error_estimate)
    tree = FactorGraph.from_tables([2] * 83, [*scopes, [81, 82]], [*tables, np.eye(2)])
    assert max(small(grid).error_estimate, small(tree).error_estimate) < 1.0


def test_iterations_and_advice_are_those_of_belief_propagation():
    graph = spins(9, 2.0)
    m = Windows(max_cells=SMALL, max_iters=3)(graph)
    assert m.status is Status.MAX_ITERS
    assert m.iterations == 3
    assert "after 3 iterations" in m.advice
