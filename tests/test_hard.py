"""Solvers for models where belief propagation is wrong, against enumeration and Exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hsettings

import drawn_models
import naive
import zoo
from minfer import (
    Auto,
    BeliefPropagation,
    Clamped,
    ContradictionError,
    Exact,
    FactorGraph,
    Gibbs,
    JoinGraph,
    LogZ,
    MeanField,
    RefusedError,
    SettingsError,
    Status,
    StructuredMeanField,
    Tempering,
    TreeReweighted,
)
from minfer.planning import plan

TWO_MODES = FactorGraph.grid(np.full((5, 5), 0.02), 3.0, feature="equal")


def mixed_grid(n: int, strength: float, seed: int = 0) -> FactorGraph:
    rng = np.random.default_rng(seed)
    at = np.arange(n * n).reshape(n, n)
    edges = np.concatenate(
        [np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], 1),
         np.stack([at[:-1].ravel(), at[1:].ravel()], 1)]
    )  # fmt: skip
    weights = strength * rng.normal(size=len(edges))
    return FactorGraph.pairwise(0.5 * rng.normal(size=n * n), edges, weights, "equal")


def possible(seed: int, each: int):
    """Drawn models of every kind with their true marginals."""
    for graph, p in drawn_models.cases(seed, each, most=200):
        yield graph, np.array(p, dtype=np.float64)


# ------------------------------------------------------------------ join graphs


@given(zoo.table_graphs())
@hsettings(max_examples=80)
def test_a_join_graph_that_fits_is_exact(graph):
    if not np.isfinite(naive.log_z(graph)):
        with pytest.raises(ContradictionError):
            JoinGraph()(graph)
        return
    m = JoinGraph()(graph)
    assert m.status is Status.EXACT
    assert m.log_z_kind is LogZ.EXACT
    np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-9)
    assert m.log_z == pytest.approx(naive.log_z(graph), rel=1e-9, abs=1e-8)
    for i in range(graph.n_factors):
        np.testing.assert_allclose(m.factor(i), naive.factor_marginal(graph, i), atol=1e-9)


def test_small_clusters_on_a_tree_are_exact_and_elsewhere_never_say_so():
    chain = FactorGraph.pairwise(np.linspace(-1, 1, 9), [[i, i + 1] for i in range(8)], 1.5)
    assert JoinGraph(max_cells=4)(chain).status is Status.EXACT
    for graph, p in possible(3, 3):
        m = JoinGraph(max_cells=3)(graph)
        if m.status is Status.EXACT:
            np.testing.assert_allclose(m.probs, p, atol=1e-8)
        else:
            assert m.log_z_kind is LogZ.ESTIMATE


def test_zeros_of_a_join_graph_are_sound():
    """A state that it gives probability zero is impossible."""
    n = 0
    for graph, p in possible(4, 6):
        m = JoinGraph(max_cells=6)(graph)
        assert (p[m.probs == 0.0] < 1e-300).all()
        n += int((m.probs == 0.0).sum())
    assert n > 20


def test_larger_clusters_are_better_in_the_end():
    graph = mixed_grid(7, 1.0)
    p = Exact()(graph).probs
    off = [np.abs(JoinGraph(size, damping=0.3)(graph).probs - p).mean() for size in (4, 128, 4096)]
    assert off[1] < off[0]
    assert off[2] < 1e-9


def test_join_graph_keeps_its_limits():
    graph = mixed_grid(12, 2.0)
    m = JoinGraph(max_cells=16, max_iters=1)(graph)
    assert m.status is Status.MAX_ITERS
    assert m.iterations == 1
    assert "clusters of up to 16 cells" in m.note
    with pytest.raises(SettingsError, match="max_cells"):
        JoinGraph(max_cells=0)


# ------------------------------------------------------------------ clamping


def test_from_exact_answers_the_mixture_is_exact():
    for graph, p in possible(5, 4):
        m = Clamped(Exact(), k=2, restarts=0)(graph)
        assert m.status is Status.EXACT
        assert m.log_z_kind is LogZ.EXACT
        np.testing.assert_allclose(m.probs, p, atol=1e-8)
        assert m.log_z == pytest.approx(naive.log_z(graph), rel=1e-9, abs=1e-7)


@pytest.mark.parametrize(
    ("solver", "kind"), [(MeanField(), LogZ.LOWER), (TreeReweighted(), LogZ.UPPER)]
)
def test_bounds_stay_bounds_when_clamped(solver, kind):
    for seed in range(12):
        graph = mixed_grid(3, 2.0, seed)
        m = Clamped(solver, k=2, restarts=1)(graph)
        assert m.log_z_kind in (kind, LogZ.EXACT)  # what is left may be a tree
        side = -1 if kind is LogZ.LOWER else 1
        assert side * (m.log_z - naive.log_z(graph)) >= -1e-9


def test_clamping_splits_modes():
    p = Exact()(TWO_MODES).probs
    assert np.abs(BeliefPropagation()(TWO_MODES).probs - p).mean() > 0.3
    m = Clamped(k=1)(TWO_MODES)
    assert np.abs(m.probs - p).mean() < 0.01
    assert "clamped x" in m.note
    assert m.error_estimate > 0.2, "the first variable moved everything"


def test_what_has_no_log_z_cannot_be_mixed():
    with pytest.raises(RefusedError, match="no log Z"):
        Clamped(Gibbs(n_sweeps=5))(TWO_MODES)
    with pytest.raises(SettingsError):
        Clamped(k=-1)


# ------------------------------------------------------------------ tempering


def test_tempering_against_enumeration():
    """Zeros, ties, one-state variables, evidence, huge weights: within five standard errors."""
    far = total = 0
    for graph, p in possible(6, 4):
        try:
            m = Tempering(n_sweeps=800, burn_in=200, n_replicas=8)(graph)
        except RefusedError:
            continue  # a logical factor too large to write out, or no allowed state met
        assert (m.probs[p == 0.0] == 0.0).all(), "nothing forbidden is ever recorded"
        off = np.abs(m.probs - p).max(initial=0.0)
        total += 1
        far += off > max(0.1, 5 * m.error_estimate)
    assert total > 25
    assert far <= 1


def test_tempering_crosses_between_modes_where_gibbs_does_not():
    p = Exact()(TWO_MODES).probs
    m = Tempering(n_sweeps=1500, rng=3)(TWO_MODES)
    assert np.abs(m.probs - p).mean() < 0.05
    assert m.state.round_trips.min() > 2
    assert m.log_z == pytest.approx(Exact()(TWO_MODES).log_z, abs=0.3)
    assert np.abs(Gibbs(n_sweeps=1500, n_chains=1)(TWO_MODES).probs - p).mean() > 0.2


def test_tempering_joins_islands_of_allowed_assignments():
    islands = FactorGraph.from_tables(
        [2, 2, 2], [[0, 1], [1, 2], [0]],
        [[[0.0, -np.inf], [-np.inf, 0.0]], [[0.0, -np.inf], [-np.inf, 0.0]], [0.0, 1.0]],
    )  # fmt: skip
    m = Tempering(n_sweeps=3000)(islands)
    assert m[2][1] == pytest.approx(np.e / (1 + np.e), abs=0.05)
    assert m.factor(0)[0, 1] == 0.0


def test_a_ladder_too_short_is_said():
    graph = mixed_grid(12, 40.0)
    m = Tempering(n_sweeps=20, burn_in=20, n_replicas=3)(graph)
    assert "too few to have seen every mode" in m.note


def test_a_time_limit_ends_tempering():
    m = Tempering(n_sweeps=10**9, time_limit=0.2)(mixed_grid(12, 1.0))
    assert m.status is Status.TIME_LIMIT
    assert m.iterations >= 1


def test_contradictions_are_found_or_refused():
    no = FactorGraph.from_tables([2, 2], [[0, 1], [0, 1]],
                                 [[[0.0, -np.inf], [-np.inf, -np.inf]],
                                  [[-np.inf, 0.0], [0.0, 0.0]]])  # fmt: skip
    with pytest.raises(ContradictionError):
        JoinGraph()(no)
    with pytest.raises(ContradictionError):
        StructuredMeanField()(no)
    with pytest.raises((ContradictionError, RefusedError)):
        Tempering(n_sweeps=20)(no)


# ------------------------------------------------------------------ structured mean field


def test_structured_bounds_hold_and_never_fall():
    for graph, p in possible(7, 5):
        m = StructuredMeanField(tol=1e-9)(graph)
        truth = naive.log_z(graph)
        assert m.log_z <= truth + 1e-9 * max(1.0, abs(truth))
        if m.status is Status.EXACT:
            np.testing.assert_allclose(m.probs, p, atol=1e-8)
            continue
        size = max(1.0, float(np.abs(m.state.bounds).max()))
        assert (np.diff(m.state.bounds) >= -1e-10 * size).all()


def test_structure_helps():
    graph = FactorGraph.grid(np.linspace(-1, 1, 36).reshape(6, 6), 0.8)
    truth = Exact()(graph).log_z
    naive_bound, forests = MeanField()(graph).log_z, StructuredMeanField()(graph)
    assert naive_bound < forests.log_z < truth
    assert "2 blocks" in forests.note


def test_given_blocks():
    graph = mixed_grid(4, 1.0)
    rows = [list(range(4 * r, 4 * r + 4)) for r in range(4)]
    by_rows = StructuredMeanField(rows)(graph)
    single = StructuredMeanField([])(graph)
    whole = StructuredMeanField([range(16)])(graph)
    assert single.log_z == pytest.approx(MeanField(tol=1e-9)(graph).log_z, abs=0.3)
    assert single.log_z <= by_rows.log_z + 0.1
    assert whole.status is Status.EXACT
    np.testing.assert_allclose(whole.probs, Exact()(graph).probs, atol=1e-9)
    with pytest.raises(SettingsError, match="in two of them"):
        StructuredMeanField([[0, 1], [1]])(graph)
    hard = graph.add_exactly_one([[0, 5]])
    with pytest.raises(RefusedError, match="crosses the blocks"):
        StructuredMeanField(rows)(hard)


# ------------------------------------------------------------------ the portfolio


def test_without_a_time_limit_auto_is_what_it_was():
    for graph in (mixed_grid(6, 1.0), TWO_MODES):
        m = Auto(exact_cells=0)(graph)
        np.testing.assert_array_equal(m.probs, BeliefPropagation()(graph).probs)
        assert "Tempering" not in m.note


def test_with_a_time_limit_auto_finds_both_modes():
    p = Exact()(TWO_MODES).probs
    m = Auto(time_limit=1.5, exact_cells=0)(TWO_MODES)
    assert np.abs(m.probs - p).mean() < 0.05
    assert m.status is not Status.EXACT
    assert m.log_z_kind is LogZ.ESTIMATE
    assert m.error_estimate is not None
    assert "ran BeliefPropagation" in m.note
    assert "Tempering" in m.note


def test_with_a_time_limit_trees_and_small_models_are_exact_at_once():
    chain = FactorGraph.pairwise(np.linspace(-1, 1, 40), [[i, i + 1] for i in range(39)], 1.5)
    m = Auto(time_limit=30.0, exact_cells=0)(chain)
    np.testing.assert_allclose(m.probs, Exact()(chain).probs, atol=1e-6)
    assert "Tempering" not in m.note
    assert Auto(time_limit=30.0)(TWO_MODES).status is Status.EXACT


def test_auto_answers_whatever_belief_propagation_does():
    every = {**zoo.with_globals(), **zoo.logical()}
    for graph in itertools.islice(every.values(), 0, None, 3):
        m = Auto(time_limit=0.4, exact_cells=0)(graph)
        assert np.isfinite(m.probs).all()
        np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=0.2)


def test_plans_know_them():
    made = plan(mixed_grid(6, 1.0))
    assert made["tempering"].seconds > 0
    assert made["join-graph"].seconds > 0
    logical = plan(FactorGraph.pairwise(np.zeros(20), [], []).add_exactly_one([range(20)]))
    assert "too many" in logical["tempering"].refuses


# ------------------------------------------------------------------ real models


@zoo.needs_data
@pytest.mark.parametrize(("name", "most"), [("DBN_12", 0.03), ("Segmentation_15", 0.03)])
def test_real_models_where_belief_propagation_is_wrong(name, most):
    graph, p = drawn_models.published(zoo.UAI / name.split("_")[0] / f"{name}.uai.gz")
    assert np.abs(BeliefPropagation()(graph).probs - p).mean() > 0.05
    assert np.abs(Tempering(n_sweeps=1000)(graph).probs - p).mean() < most
