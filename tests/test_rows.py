"""Rows on one clique tree against enumeration and ``Exact``, and each other, bit for bit."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from draws import draws
from minfer import ContradictionError, EvidenceError, Exact, FactorGraph, SettingsError
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.elimination import clique_tree, links, tree_over
from minfer.engine.layout import Flat, cells, flatten, scopes
from minfer.kernels.cliques.rows import INPUTS, INPUTS_END, MOST_INPUTS
from minfer.solvers.row_plans import OneRow, RowPlan, SolvedRows
from oracle import models
from oracle import truth as naive

QUICK = {"deadline": None, "suppress_health_check": list(HealthCheck)}


class Case(NamedTuple):
    graph: FactorGraph
    evidence: NDArray[np.int32]  # (N, V)
    field: NDArray[np.float64]  # (N, sum S)


@st.composite
def cases(draw: st.DrawFn, scale: float | None = None) -> Case:
    """Mixed states, arity up to 4, zeros, ties, constants; rows with evidence and fields."""
    graph = draw(models.table_graphs(max_variables=6, max_states=4, max_arity=4, scale=scale))
    try:
        condition(graph)
    except ContradictionError:
        reject()
    states = graph.n_states.tolist()
    n = len(states)
    n_rows = draw(st.integers(0, 11))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    evidence = np.array([rng.integers(-1, s, n_rows) for s in states], dtype=np.int32)
    evidence = np.ascontiguousarray(evidence.reshape(n, n_rows).T)
    evidence[rng.random(evidence.shape) < rng.random((n_rows, 1))] = -1
    field = rng.normal(size=(n_rows, sum(states))) * draw(st.sampled_from([0.0, 1.0, 30.0, 700.0]))
    field[rng.random(field.shape) < draw(st.sampled_from([0.0, 0.1]))] = -np.inf
    return Case(graph, evidence, field)


def enumerated(case: Case, r: int, field: bool) -> tuple[float, NDArray[np.float64]]:
    """log Z and marginals of one row, over all assignments."""
    graph = case.graph.tilt(case.field[r]) if field else case.graph
    seen = {v: int(s) for v, s in enumerate(case.evidence[r]) if s >= 0}
    score = naive.log_scores_with(graph, seen)
    log_z = float(naive.logsumexp(score)) if score.size else 0.0
    if log_z == -math.inf:
        return log_z, np.full(len(graph.field), np.nan)
    weight = np.exp(score - score.max())
    return log_z, np.concatenate([[], *(naive.table(weight, [v]) for v in range(weight.ndim))])


def prepared(graph: FactorGraph) -> tuple[Conditioned, RowPlan]:
    model = condition(graph)
    flat = flatten(model)
    plan = RowPlan.make(flat, clique_tree(model))
    plan.load(flat.log_psi, flat.field, model.constant)
    return model, plan


def check(found: SolvedRows, case: Case, field: bool, all_safe: bool) -> None:
    for r in range(len(case.evidence)):
        if found.unsafe[r]:
            assert not all_safe
            assert np.isnan(found.log_z[r])
            assert np.isnan(found.probs[r]).all()
            continue
        log_z, probs = enumerated(case, r, field)
        if log_z == -math.inf:
            assert found.log_z[r] == -math.inf
            assert np.isnan(found.probs[r]).all()
        else:
            assert found.log_z[r] == pytest.approx(log_z, abs=1e-12 * max(10.0, abs(log_z)))
            scale = 1e-12 if all_safe else 1e-9  # sums of huge weights round
            np.testing.assert_allclose(found.probs[r], probs, atol=scale)


@settings(max_examples=draws(300), **QUICK)
@given(cases(1.0))
def test_rows_agree_with_enumeration(case: Case) -> None:
    _, plan = prepared(case.graph)
    moderate = np.abs(case.field[np.isfinite(case.field)]).max(initial=0.0) < 60.0
    check(plan.run(evidence=case.evidence), case, False, True)
    check(plan.run(case.field, case.evidence), case, True, moderate)


@settings(max_examples=draws(300), **QUICK)
@given(cases())
def test_huge_weights_are_right_or_reported(case: Case) -> None:
    _, plan = prepared(case.graph)
    check(plan.run(evidence=case.evidence), case, False, False)
    check(plan.run(case.field, case.evidence), case, True, False)


@settings(max_examples=draws(150), **QUICK)
@given(cases(1.0))
def test_planning_for_observed_sets_changes_nothing(case: Case) -> None:
    model, plan = prepared(case.graph)
    for seen in np.unique(case.evidence >= 0, axis=0):
        chosen = ((case.evidence >= 0) == seen).all(axis=1)
        some = Case(case.graph, case.evidence[chosen], case.field[chosen])
        free = links(plan.flat, ~seen & (plan.tree.home >= 0), plan.flat.card)
        tree = tree_over(free, case.graph.n_variables)
        narrow = RowPlan.make(plan.flat, tree, seen)
        narrow.load(plan.flat.log_psi, plan.flat.field, model.constant)
        check(narrow.run(evidence=some.evidence), some, False, True)
        check(narrow.run(some.field, some.evidence), some, True, False)


@settings(max_examples=draws(100), **QUICK)
@given(cases(1.0))
def test_joints_are_the_tables_marginals(case: Case) -> None:
    model, plan = prepared(case.graph)
    found = plan.run(evidence=case.evidence, joints=True)
    plain = plan.run(evidence=case.evidence)
    np.testing.assert_allclose(found.probs, plain.probs, atol=1e-14)
    assert found.joints is not None
    ends = np.cumsum(plan.flat.sizes)
    for r, row in enumerate(case.evidence):
        if not found.log_z[r] > -math.inf:
            assert np.isnan(found.joints[r]).all()
            continue
        answer = Exact()(case.graph.with_evidence({v: int(s) for v, s in enumerate(row) if s >= 0}))
        for number, joint in zip(plan.flat.ids, np.split(found.joints[r], ends[:-1])):
            whole = model.expand(int(number), joint.reshape(_free_shape(model, int(number))))
            np.testing.assert_allclose(whole, answer.factor(int(number)), atol=1e-12)


def _free_shape(model: Conditioned, factor: int) -> tuple[int, ...]:
    scope = model.graph.scope(factor)
    return tuple(int(s) for s in model.graph.n_states[scope[model.fixed[scope] < 0]])


@settings(max_examples=draws(100), **QUICK)
@given(cases(1.0), st.integers(0, 2**32 - 1))
def test_weights_of_each_row(case: Case, seed: int) -> None:
    """Equal to the same numbers loaded for all rows; zeros, huge weights and joints included."""
    model, plan = prepared(case.graph)
    rng = np.random.default_rng(seed)
    flat = plan.flat
    scale = rng.choice([1.0, 3.0, 400.0], (len(case.evidence), 1))
    log_psi = rng.normal(size=(len(case.evidence), len(flat.log_psi))) * scale
    log_psi[rng.random(log_psi.shape) < 0.1] = -np.inf
    found = plan.run(case.field, case.evidence, log_psi, joints=True)
    other = RowPlan.make(flat, plan.tree)
    for r in range(len(case.evidence)):
        other.load(log_psi[r], flat.field, model.constant)
        one = other.run(case.field[r : r + 1], case.evidence[r : r + 1], joints=True)
        assert one.joints is not None
        assert found.joints is not None
        if found.unsafe[r] or one.unsafe[0]:
            assert scale[r] > 3.0 or np.nanmax(np.abs(case.field)) > 20.0
            continue
        assert one.log_z[0] == pytest.approx(found.log_z[r], rel=1e-12, abs=1e-11)
        np.testing.assert_allclose(found.probs[r], one.probs[0], atol=1e-12)
        np.testing.assert_allclose(found.joints[r], one.joints[0], atol=1e-12)


def network(n: int, seed: int, zeros: float = 0.0) -> FactorGraph:
    """A chain with a few longer links, of three states."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph.empty(np.full(n, 3, dtype=np.int32))
    for v in range(1, n):
        parents = sorted({v - 1, max(0, v - int(rng.integers(1, 4)))})
        table = rng.normal(size=(3,) * (len(parents) + 1))
        table[rng.random(table.shape) < zeros] = -np.inf
        graph = graph.add_tables([[*parents, v]], [table])
    return graph


def evidence_for(graph: FactorGraph, n_rows: int, share: float, seed: int) -> NDArray[np.int32]:
    rng = np.random.default_rng(seed)
    evidence = rng.integers(0, graph.n_states, (n_rows, graph.n_variables)).astype(np.int32)
    evidence[rng.random(evidence.shape) > share] = -1
    return evidence


@given(cases(), st.integers(0, 7))
@settings(max_examples=draws(150), **QUICK)
def test_one_row_is_what_the_lanes_say(case: Case, target: int) -> None:
    """The same messages without lanes: probabilities, log Z, and what is unsafe."""
    graph = case.graph
    if not graph.n_variables or any(g.arity == 0 for g in graph.groups):
        return
    target %= graph.n_variables
    for row in case.evidence[:3]:
        evidence = np.maximum(row, 0)[None].astype(np.int32)
        seen = row >= 0
        seen[target] = False
        evidence[0, ~seen] = -1
        field = case.field[0] if len(case.field) else np.zeros(int(graph._offsets[-1]))
        field = np.where(np.repeat(seen, graph.n_states), 0.0, field)  # that is for lanes
        flat = Flat(
            graph._n_states, graph._offsets, field, *scopes(graph.groups), *cells(graph.groups)
        )
        tree = tree_over(links(flat, ~seen, flat.card), graph.n_variables)
        plan = RowPlan.make(flat, tree, seen, target, np.ones_like(seen))
        plan.load(flat.log_psi, field, 0.25)
        lanes = plan.run(evidence=evidence)
        observed = np.flatnonzero(seen)
        found, unsafe = OneRow(plan, observed)(evidence[0, observed].tolist())
        assert unsafe == lanes.unsafe[0]
        if not unsafe:
            np.testing.assert_allclose(found[-2], lanes.log_z[0], rtol=1e-12, atol=1e-12)
            if lanes.log_z[0] > -np.inf:
                np.testing.assert_allclose(found[:-2], lanes.probs[0], rtol=1e-12)


@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_answers_depend_neither_on_workers_nor_on_neighbours(zeros: float) -> None:
    graph = network(30, 1, zeros)
    _, plan = prepared(graph)
    evidence = evidence_for(graph, 700, 0.2, 2)
    field = np.random.default_rng(3).normal(size=(700, int(graph.n_states.sum())))
    order = np.random.default_rng(4).permutation(700)
    for given_field in (None, field):
        for joints in (False, True):
            one = plan.run(given_field, evidence, joints=joints)
            three = plan.run(given_field, evidence, joints=joints, workers=3)
            mixed_field = None if given_field is None else given_field[order]
            mixed = plan.run(mixed_field, evidence[order], joints=joints)
            single = plan.run(
                None if given_field is None else field[9:10], evidence[9:10], joints=joints
            )
            for a, b, c, d in zip(one, three, mixed, single):
                if len(a):
                    np.testing.assert_array_equal(a, b)
                    np.testing.assert_array_equal(a[order], c)
                    np.testing.assert_array_equal(a[9:10], d)


def test_cells_that_no_row_reaches_are_dropped_and_nothing_else_changes() -> None:
    graph = network(30, 1, 0.3)
    _, plan = prepared(graph)
    assert plan.numbers is not None
    assert plan.layout is not None
    assert len(plan.numbers.rows.psi) < len(plan.numbers.whole_psi)
    evidence = evidence_for(graph, 50, 0.1, 2)
    short = plan.run(evidence=evidence)
    rows = plan.numbers.rows._replace(psi=plan.numbers.whole_psi)
    plan.numbers = plan.numbers._replace(layout=plan.layout, rows=rows)
    whole = plan.run(evidence=evidence)
    assert np.isneginf(whole.log_z).any()
    assert np.isfinite(whole.log_z).any()
    np.testing.assert_array_equal(short.probs, whole.probs)
    np.testing.assert_array_equal(short.log_z, whole.log_z)


def test_six_hundred_leaves_do_not_underflow() -> None:
    """Naive Bayes: a class with many leaves."""
    edges = [[0, v] for v in range(1, 601)]
    tables = np.log([[[0.99, 0.01], [0.01, 0.99]]] * 600)
    _, plan = prepared(FactorGraph.empty([2] * 601).add_tables(edges, tables))
    assert plan.layout is not None
    assert (plan.layout.nodes[:, INPUTS_END] - plan.layout.nodes[:, INPUTS]).max() <= MOST_INPUTS
    evidence = np.ones((4, 601), dtype=np.int32)
    evidence[:, 0] = -1
    evidence[1, 1::2] = 0  # as many for as against
    evidence[2, 300:] = -1
    evidence[3, 0] = 0  # against all leaves: nothing is impossible, only unlikely
    found = plan.run(evidence=evidence)
    assert not found.unsafe[:3].any()
    np.testing.assert_allclose(found.probs[:3, 0], [0.0, 0.5, 0.0], atol=1e-12)
    np.testing.assert_allclose(
        found.log_z[:2],
        [600 * math.log(0.99) + math.log1p(99.0**-600), math.log(2) + 300 * math.log(0.0099)],
        rtol=1e-12,
    )
    if not found.unsafe[3]:
        assert found.log_z[3] == pytest.approx(600 * math.log(0.01), rel=1e-12)


@pytest.mark.parametrize("first", [-500.0, -2000.0, -math.inf])
@pytest.mark.parametrize("second", [-500.0, -2000.0, -math.inf])
def test_a_contradiction_is_never_claimed_for_what_is_only_unlikely(
    first: float, second: float
) -> None:
    """Two tables that forbid, strictly or all but, that their variables differ."""
    tables = [np.array([[0.0, odd], [odd, 0.0]]) for odd in (first, second)]
    graph = FactorGraph.empty(np.full(3, 2, dtype=np.int32)).add_tables([[0, 1], [1, 2]], tables)
    _, plan = prepared(graph)
    evidence = np.array([[0, -1, 1], [0, 1, 0], [0, -1, 0], [-1, -1, -1]], dtype=np.int32)
    found = plan.run(evidence=evidence)
    assert not found.unsafe[2:].any()
    for r, row in enumerate(evidence):
        seen = graph.with_evidence({v: int(s) for v, s in enumerate(row) if s >= 0})
        try:
            answer = Exact()(seen)
        except ContradictionError:
            if not found.unsafe[r]:
                assert found.log_z[r] == -math.inf
            continue
        if not found.unsafe[r]:
            assert found.log_z[r] == pytest.approx(answer.log_z, rel=1e-12)
            np.testing.assert_allclose(found.probs[r], answer.probs, atol=1e-12)
    if first == second == -math.inf:
        assert not found.unsafe.any()


def test_long_chains_stay_in_range() -> None:
    n = 3000
    edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    rng = np.random.default_rng(1)
    graph = FactorGraph.empty(np.full(n, 2, dtype=np.int32)).add_tables(
        edges, rng.normal(size=(n - 1, 2, 2)) + 3.0
    )
    _, plan = prepared(graph)
    evidence = evidence_for(graph, 9, 0.1, 2)
    found = plan.run(evidence=evidence)
    assert not found.unsafe.any()
    for row, probs, log_z in zip(evidence, found.probs, found.log_z):
        answer = Exact()(graph.with_evidence({v: int(s) for v, s in enumerate(row) if s >= 0}))
        np.testing.assert_allclose(probs, answer.probs, atol=1e-12)
        assert log_z == pytest.approx(answer.log_z, rel=1e-12)


def test_empty_and_without_rows() -> None:
    _, plan = prepared(FactorGraph.empty(np.zeros(0, dtype=np.int32)))
    found = plan.run(evidence=np.zeros((3, 0), dtype=np.int32), joints=True)
    assert found.probs.shape == (3, 0)
    assert found.log_z.tolist() == [0.0] * 3
    _, plan = prepared(network(5, 1))
    found = plan.run(evidence=np.zeros((0, 5), dtype=np.int32))
    assert found.probs.shape == (0, 15)


def test_what_is_asked_wrongly_is_said() -> None:
    graph = network(5, 1)
    _, plan = prepared(graph)
    with pytest.raises(EvidenceError, match="variable 2 has 3 states"):
        plan.run(evidence=np.array([[0] * 5, [0, 0, 3, 0, 0]], dtype=np.int32))
    with pytest.raises(SettingsError, match="load first"):
        RowPlan.make(plan.flat, plan.tree).run(evidence=np.zeros((1, 5), dtype=np.int32))
