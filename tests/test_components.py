"""Components solved apart: every solver, every graph, as on the whole."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hsettings

from draws import draws, few
from minfer import (
    Auto,
    BeliefPropagation,
    Clamped,
    Components,
    ContradictionError,
    Exact,
    FactorGraph,
    MinDivergence,
    MinJoint,
    ModelError,
    RefusedError,
    SettingsError,
    StructuredMeanField,
    TreeReweighted,
    infer,
    query,
    relax,
)
from minfer.factors import group
from minfer.reduction.recipes import Compensated, Iterated
from minfer.solvers.components import pack
from oracle import lists, models
from oracle import truth as naive
from oracle.models import union
from refused import refused

EVERY = {**lists.graphs(), **lists.higher_order(), **lists.with_globals()}


@pytest.mark.parametrize("seed", range(20))
def test_components_of_few_links_are_those_of_many(monkeypatch, seed):
    """A plain loop and scipy number them alike: by first appearance."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    i, j = rng.integers(n, size=(2, int(rng.integers(0, n + 1))), dtype=np.int32)
    few_links = group.components(n, i, j)
    monkeypatch.setattr(group, "_FEW_LINKS", -1)
    np.testing.assert_array_equal(few_links, group.components(n, i, j))
    _, first = np.unique(few_links, return_index=True)
    assert first.tolist() == sorted(first.tolist())


@pytest.mark.drawn
@pytest.mark.parametrize("solver", lists.SOLVERS)
def test_every_solver_apart_is_as_on_the_whole(solver):
    s = lists.SOLVERS[solver]
    apart = Components(s, workers=2, size=4)
    for name, graph in few(EVERY.items(), 5):
        try:
            whole = s(graph)
        except RefusedError:
            refused(RefusedError, "", apart, graph)
            continue
        m = apart(graph)
        other = solver in lists.SAMPLERS or solver == "clamped"  # it clamps k in every part
        atol = 0.25 if other else 2e-5
        np.testing.assert_allclose(m.probs, whole.probs, atol=atol, err_msg=name)
        if other:
            continue
        assert m.converged == whole.converged
        assert m.log_z == pytest.approx(whole.log_z, abs=1e-4), name
        for i in range(graph.n_factors):
            np.testing.assert_allclose(m.factor(i), whole.factor(i), atol=2e-5, err_msg=name)


@given(models.table_graphs(), models.table_graphs(), models.table_graphs())
@hsettings(max_examples=draws(40))
def test_drawn_unions(a, b, c):
    graph = union(a, b, c) if a.n_variables + b.n_variables + c.n_variables else a
    if not np.isfinite(naive.log_z(a) + naive.log_z(b) + naive.log_z(c)):
        return
    m = Components(Exact(), size=1)(graph)
    expected = Exact()(graph)
    np.testing.assert_allclose(m.probs, expected.probs, atol=1e-9)
    assert m.log_z == pytest.approx(expected.log_z, abs=1e-8)
    arity = np.array([len(graph.scope(i)) for i in range(graph.n_factors)])
    pairs = [i for i in np.flatnonzero(arity == 2) if graph.log_table(i).shape == (2, 2)]
    np.testing.assert_allclose(m.factors(pairs), expected.factors(pairs), atol=1e-9)


def test_packing_is_by_size_alone_and_parts_go_on_from_their_own_messages():
    edges = np.arange(4000).reshape(-1, 2)
    rng = np.random.default_rng(1)
    graph = FactorGraph.pairwise(rng.normal(size=4000), edges, rng.normal(size=2000))
    parts = graph.split(pack(graph, 1200))
    assert [p.graph.n_variables for p in parts] == [400] * 10
    assert sum(p.graph.n_factors for p in parts) == graph.n_factors
    one, two = (Components(BeliefPropagation(), workers=n, size=1200)(graph) for n in (1, 3))
    np.testing.assert_array_equal(one.probs, two.probs)
    tilted = graph.tilt(rng.normal(size=8000) * 1e-9)
    again = Components(BeliefPropagation(tol=1e-8), workers=2, size=1200)(tilted, one)
    assert again.iterations <= one.iterations
    np.testing.assert_allclose(again.probs, BeliefPropagation()(tilted).probs, atol=1e-8)


def test_errors_name_variables_of_the_whole():
    graph = FactorGraph.pairwise(np.zeros(6), [[0, 1], [2, 3], [4, 5]], 1.0)
    graph = graph.add_tables([[4, 5], [4]], [[[-np.inf, -np.inf], [0, 0]], [0, -np.inf]])
    refused(ContradictionError, r"variable x5 ", Components(BeliefPropagation(), size=1), graph)
    refused(ModelError, "different labels", graph.split, [0, 1, 0, 0, 0, 0])
    rng = np.random.default_rng(2)
    islands = union(*[FactorGraph.grid(rng.normal(size=(4, 4)), 0.5) for _ in range(8)])
    m = Components(Auto(exact_cells=2000), size=1)(islands)  # each part is cheap
    assert m.status.value == "exact"


@pytest.mark.parametrize("size", [3, 1 << 16])
def test_reweighted_parts_have_the_weights_of_the_full_model(size):
    """A grid of strong couplings and weak fields, where plain messages break the symmetry."""
    rng = np.random.default_rng(0)
    graph = FactorGraph.grid(0.1 * rng.normal(size=(6, 6)), 2.0, feature="equal")
    truth = Exact()(graph).probs
    plain = TreeReweighted(tol=1e-9)
    apart = Components(plain, workers=2, size=size)
    for objective in (MinJoint(np.inf), MinDivergence(12), MinDivergence(45)):
        options = {"recipe": Compensated()}
        expected = infer(graph, objective, plain, **options)
        found = infer(graph, objective, apart, **options)
        np.testing.assert_array_equal(found.keep, expected.keep)
        np.testing.assert_allclose(found.marginals.probs, expected.marginals.probs, atol=1e-6)
        assert found.log_z == pytest.approx(expected.log_z, abs=1e-5)
        assert np.abs(found.marginals.probs - truth).mean() < 0.08
    relaxed = [
        relax(graph, MinDivergence(12), solver, recipe=Iterated(rounds=4))
        for solver in (plain, apart)
    ]
    np.testing.assert_allclose(relaxed[1].marginals.probs, relaxed[0].marginals.probs, atol=1e-6)


def test_lent_weights_are_found_on_whatever_is_left_of_a_graph():
    rng = np.random.default_rng(0)
    grids = [FactorGraph.grid(rng.normal(size=(4, 4)), 1.5, feature="equal") for _ in range(3)]
    graph = union(*grids)
    solver = TreeReweighted(tol=1e-10)
    rho = solver.appearance(graph)
    lending = solver.lending(graph, rho)
    keep = graph.arity == 1
    keep |= rng.random(graph.n_factors) < 0.7
    left = graph.keep(keep)
    given = lending(left)
    assert np.abs(given.probs - solver(left).probs).max() > 1e-3
    for other in (left, left.split(left.component_labels()), left.tilt(np.zeros(96))):
        parts = [(other, np.arange(48))]
        if isinstance(other, list):
            parts = [(p.graph.keep(np.ones(p.graph.n_factors, bool)), p.variables) for p in other]
            assert len(parts) > 3
        for part, variables in parts:
            expected = given.probs.reshape(-1, 2)[variables].ravel()
            np.testing.assert_allclose(lending(part).probs, expected, atol=1e-8)
    apart = Components(lending, size=1)(left)
    assert "parts" in apart.note
    np.testing.assert_allclose(apart.probs, given.probs, atol=1e-8)
    assert apart.log_z == pytest.approx(given.log_z)
    refused(SettingsError, "one per factor", solver.lending, left, rho)
    stranger = union(*grids)
    np.testing.assert_array_equal(lending(stranger).probs, solver(stranger).probs)
    whole = solver.lending(left, rho[keep])(graph)  # lent by less: no weights to be found
    np.testing.assert_array_equal(whole.probs, solver(graph).probs)
    # A run took over the weights of the one that it was started from.
    rng = np.random.default_rng(0)
    edges = [[a, b] for a in range(6) for b in range(a)]
    graph = FactorGraph.pairwise(rng.normal(size=6), edges, 1.5, feature="equal")
    own = TreeReweighted(tol=1e-10)
    lending = own.lending(graph, own.appearance(graph))
    left = graph.keep(np.arange(graph.n_factors) < graph.n_factors - 3)
    one, two = own(left), lending(left)
    assert np.abs(one.probs - two.probs).max() > 0.01
    for m in (one, two):
        np.testing.assert_allclose(own(left, m).probs, one.probs, atol=1e-8)
        np.testing.assert_allclose(lending(left, m).probs, two.probs, atol=1e-8)
    assert lending(left, two).iterations < two.iterations


@pytest.mark.parametrize("clamped", [False, True])
def test_blocks_are_in_numbers_of_the_whole(clamped):
    """Blocks of variables 8 to 11 were looked up in a part that has four variables."""

    def wrap(solver):
        return Clamped(solver, k=1, restarts=0) if clamped else solver

    rng = np.random.default_rng(5)
    graph = union(*(FactorGraph.grid(rng.normal(size=(2, 2)), 1.5, "equal") for _ in range(3)))
    named = replace(graph, names=tuple(f"n{v}" for v in range(graph.n_variables)))
    blocks = [[9, 0, 3], [6, 10, 11, 8], [2, 5]]  # with variables of several parts, and not all
    for model, told in ((graph, blocks), (named, [[f"n{v}" for v in block] for block in blocks])):
        solver = wrap(StructuredMeanField(told, tol=1e-12))
        whole, apart = solver(model), Components(solver, size=1)(model)
        assert "3 parts" in apart.note
        if not clamped:
            np.testing.assert_allclose(apart.probs, whole.probs, atol=1e-9)
            assert apart.log_z == pytest.approx(whole.log_z, abs=1e-9)
        assert apart.log_z <= naive.log_z(graph)
    for v in (0, 5, 10) if not clamped else ():  # of a question: asked of what matters to it
        seen = {(v + 3) % 12: 1}
        p = query(graph, v, seen, solver=StructuredMeanField(blocks, tol=1e-12))
        want = StructuredMeanField(blocks, tol=1e-12)(graph.with_evidence(seen))[v]
        np.testing.assert_allclose(p, want, atol=1e-9)
    outside, twice = (StructuredMeanField(b) for b in ([[12]], [[3], [0, 3]]))
    refused(ModelError, "12", Components(wrap(outside), size=1), graph)
    refused(SettingsError, "x3 is in two of them", Components(wrap(twice), size=1), graph)


def test_a_time_limit_reaches_the_solver_inside():
    graph = FactorGraph.grid(np.random.default_rng(0).normal(size=(5, 5)), 1.0)
    limits = []

    @dataclass(frozen=True)
    class Watched:
        time_limit: float | None = None

        def __call__(self, graph, start=None):
            limits.append(self.time_limit)
            return BeliefPropagation()(graph)

    relax(graph, MinDivergence(9), Components(Watched(), size=1), recipe=Iterated(time_limit=30.0))
    assert limits[0] is None, "the seed"
    assert all(0 < t <= 30 for t in limits[1:])
