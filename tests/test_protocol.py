"""All solvers on all graphs: the promises every solver keeps."""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hsettings

import minfer
from draws import draws, few
from minfer import (
    BeliefPropagation,
    ContradictionError,
    Exact,
    FactorGraph,
    LogZ,
    Marginals,
    MinferError,
    RefusedError,
    Solver,
    Status,
)
from oracle import lists, models
from oracle import truth as naive
from refused import all_refused, refused

GRAPHS = lists.graphs()
HIGHER = lists.higher_order()
GLOBALS = lists.with_globals()
LOGICAL = lists.logical()
#: Those that take no table, draw at random, or are others with other settings.
SELDOM = lists.PAIRWISE_ONLY | lists.SAMPLERS
SELDOM |= {"bp-damped", "exact-auto", "enumerate", "auto-bp", "components"}


def check_answer(graph: FactorGraph, m: Marginals) -> None:
    assert isinstance(m, Marginals)
    assert m.probs.shape == (int(graph.offsets[-1]),)
    assert np.isfinite(m.probs).all()
    assert (m.probs >= 0).all()
    if graph.n_variables:
        np.testing.assert_allclose(np.add.reduceat(m.probs, graph.offsets[:-1]), 1, atol=1e-9)
    assert m.seconds >= 0
    assert len(m.mpm()) == graph.n_variables
    if graph.n_factors:
        np.testing.assert_array_equal(m.factor(-1), m.factor(graph.n_factors - 1))
    with pytest.raises(MinferError, match="no factor"):
        m.factor(graph.n_factors)
    for i in range(graph.n_factors):
        joint = m.factor(i)
        assert joint.shape == tuple(graph.n_states[graph.scope(i)])
        assert joint.sum() == pytest.approx(1, abs=1e-9)
    m.to_dict()
    assert repr(m).startswith("Marginals(")
    assert "<" in m._repr_html_()


@pytest.mark.drawn
@pytest.mark.parametrize(("solver", "name"), few(product(lists.SOLVERS, GRAPHS), 113))
def test_every_solver_on_every_graph(solver, name):
    graph, s = GRAPHS[name], lists.SOLVERS[solver]
    before = pickle.dumps(graph)
    m = s(graph)
    check_answer(graph, m)
    assert pickle.dumps(graph) == before, "a solver must not touch its input"
    again = s(graph)
    np.testing.assert_array_equal(m.probs, again.probs)
    assert isinstance(s, Solver)
    names = {name: getattr(minfer, name) for name in minfer.__all__}
    assert eval(repr(s), names) == s, "prints as its constructor call"
    assert m.solver
    back = pickle.loads(pickle.dumps(m))
    np.testing.assert_array_equal(back.probs, m.probs)
    np.testing.assert_equal(back.log_z, m.log_z)
    for i in range(graph.n_factors):
        np.testing.assert_array_equal(back.factor(i), m.factor(i))
    if name == "empty" and solver not in lists.SAMPLERS:
        assert m.log_z == 0.0
        assert m.log_z_kind in (LogZ.EXACT, LogZ.LOWER)
    warm = s(graph, start=m)
    check_answer(graph, warm)
    if m.converged and solver not in lists.SAMPLERS:
        np.testing.assert_allclose(warm.probs, m.probs, atol=1e-4)


@pytest.mark.parametrize("name", [*HIGHER, *GLOBALS])
@pytest.mark.parametrize("solver", lists.SOLVERS)
def test_higher_order_and_global_factors(solver, name):
    graph, s = {**HIGHER, **GLOBALS}[name], lists.SOLVERS[solver]
    if solver in (lists.PAIRWISE_ONLY if name in HIGHER else lists.NO_LARGE_GLOBALS):
        refused(RefusedError, "BeliefPropagation", s, graph)
        return
    m = s(graph)
    if name in HIGHER:
        check_answer(graph, m)
        return
    assert np.isfinite(m.probs).all()
    if solver in lists.EXACT or name == "one-of-four":  # one factor: a tree
        np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-6)
        assert m.log_z == pytest.approx(naive.log_z(graph), abs=1e-6)
    else:
        np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=0.1)


@pytest.mark.drawn
@pytest.mark.parametrize(("solver", "name"), few(product(lists.SOLVERS, LOGICAL), 100))
def test_logical_factors(solver, name):
    graph, s = LOGICAL[name], lists.SOLVERS[solver]
    hard = name in lists.HAVENS | lists.TRAPS
    if (
        solver in lists.PAIRWISE_ONLY
        or (solver in lists.SOFT_ONLY and hard)
        or (solver == "gibbs" and name in lists.TRAPS)
    ):
        refused(RefusedError, "BeliefPropagation", s, graph)
        return
    m = s(graph)
    check_answer(graph, m)
    if solver in lists.EXACT:
        np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-9)
        assert m.log_z == pytest.approx(naive.log_z(graph), abs=1e-9)
    elif solver not in lists.LOWER:
        np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=0.15)


def test_a_global_factor_with_evidence_and_a_broken_one():
    graph = GLOBALS["one-of-four"].with_evidence({2: 0})
    m = BeliefPropagation()(graph)
    np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-9)
    impossible = GLOBALS["one-of-four"].with_evidence({2: 1, 0: 1})
    refused(ContradictionError, "", BeliefPropagation(), impossible)

    class Broken(models.Between):
        def messages(self, incoming, out):
            out[:] = np.nan
            return np.zeros(len(out))

    graph = FactorGraph.pairwise(np.zeros(3), [], []).add_global([0, 1, 2], Broken(1))
    refused(MinferError, r"global factor 3 \(Broken\)", BeliefPropagation(), graph)


@given(models.table_graphs())
@hsettings(max_examples=draws(60))
@pytest.mark.parametrize("solver", [s for s in lists.SOLVERS if s not in SELDOM])
def test_drawn_tables(solver, graph):
    """Never NaN, never unnormalised; an impossible model is said to be one, or found improbable."""
    impossible = not np.isfinite(naive.log_z(graph))
    try:
        m = lists.SOLVERS[solver](graph)
    except ContradictionError:
        assert impossible
        return
    if solver in lists.EXACT:
        assert not impossible
        np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-8)
        assert m.log_z == pytest.approx(naive.log_z(graph), rel=1e-9, abs=1e-8)
    check_answer(graph, m)


@given(models.binary_graphs())
@hsettings(max_examples=draws(60))
@pytest.mark.parametrize("solver", ["bp", "bp-residual", "trw", "mean-field", "gibbs", "exact"])
def test_drawn_pairs(solver, graph):
    check_answer(graph, lists.SOLVERS[solver](graph))


@pytest.mark.parametrize("name", [*GRAPHS, *HIGHER])
def test_asking_for_log_z_changes_nothing(name):
    graph = {**GRAPHS, **HIGHER}[name]
    m = BeliefPropagation(max_iters=3)(graph)
    before = m.probs.copy()
    first = m.log_z
    np.testing.assert_array_equal(m.probs, before)
    assert BeliefPropagation(max_iters=3)(graph).log_z == first
    if len(before):
        with pytest.raises(ValueError, match="read-only"):
            m.probs[0] = 2


def test_what_comes_from_outside_is_checked_and_not_called_converged():
    graph = FactorGraph.pairwise([0.5, -0.2], [[0, 1]], [1.0])
    all_refused(
        (lambda: Marginals.from_probs(graph, [0.5, 0.5, 0.4, 0.4], "o"), MinferError, "sums to"),
        (lambda: Marginals.from_probs(graph, [0.5, 0.5, np.nan, 0.4], "o"), MinferError, "finite"),
        (lambda: Marginals.from_probs(graph, [0.5, 0.5], "o"), MinferError, "states"),
    )
    other = Marginals.from_probs(graph, [0.5, 0.5, 0.4, 0.6], "other")
    assert other.status is Status.GIVEN
    assert other.status.value == "given"
    assert other.converged, "it is taken as finished"
    assert not other.advice
    intervals = minfer.intervals(graph)
    for made in (intervals.midpoint(), intervals.clip(other)):
        assert made.status is Status.GIVEN
        assert made.log_z_kind is LogZ.NONE

    def half(part, start=None):
        return Marginals.from_probs(part, np.full(2 * part.n_variables, 0.5), "half")

    apart = FactorGraph.pairwise(np.zeros(4), [[0, 1], [2, 3]], [1.0, 1.0])
    assert minfer.Components(half, size=1)(apart).status is Status.GIVEN
    assert isinstance(lists.pyagrum_solver, Solver)


def test_not_converged_is_a_status_with_advice():
    graph = FactorGraph.grid(np.zeros((6, 6)) + 0.01, 2.0)
    m = BeliefPropagation(max_iters=2)(graph)
    assert not m.converged
    assert m.status.value == "not converged"
    assert "max_iters" in m.advice
    assert m.log_z_kind is LogZ.ESTIMATE
    late = BeliefPropagation(time_limit=1e-9, tol=0)(graph)
    assert late.status.value == "time limit"
    assert "time_limit" in late.advice


def test_marginals_by_name_and_number():
    graph = FactorGraph.named({"rain": 2, "wet": 3}, {("rain", "wet"): np.zeros((2, 3))})
    m = Exact()(graph)
    np.testing.assert_allclose(m["wet"], [1 / 3] * 3)
    np.testing.assert_array_equal(m["wet"], m[1])
    assert [len(p) for p in m] == [2, 3]
    all_refused(
        (lambda: m["wett"], MinferError, "did you mean wet"),
        (lambda: m["wet"].__setitem__(0, 1), ValueError, "read-only"),
        *((lambda bad=bad: m[bad], MinferError, "") for bad in (1.5, None, slice(2), -1, 99)),
    )


@pytest.mark.parametrize("feature", ["and", "equal"])
@pytest.mark.parametrize("solver", lists.SOLVERS)
def test_degree_60(solver, feature):
    """A star: one variable in 60 factors. A tree, so most solvers must be exact."""
    if solver == "enumerate":
        pytest.skip("2^61 assignments")
    rng = np.random.default_rng(9)
    leaves = 60
    edges = [[0, v] for v in range(1, leaves + 1)]
    field, weight = rng.normal(size=leaves + 1), rng.normal(size=leaves)
    graph = FactorGraph.pairwise(field, edges, weight, feature=feature)
    equal = feature == "equal"
    on = field[0] + np.logaddexp(equal * 0.0, field[1:] + weight).sum()
    off = np.logaddexp(equal * weight, field[1:]).sum()
    log_z, p = np.logaddexp(on, off), 1 / (1 + np.exp(off - on))
    m = lists.SOLVERS[solver](graph)
    check_answer(graph, m)
    if solver in lists.SAMPLERS:
        assert abs(m[0][1] - p) <= max(0.1, 5 * m.error_estimate)  # the hub seldom flips
    elif solver in lists.LOWER and m.log_z_kind is LogZ.LOWER:
        assert m.log_z <= log_z + 1e-9
    else:
        assert m[0][1] == pytest.approx(p, abs=1e-5)
        assert m.log_z == pytest.approx(log_z, abs=1e-5)


def test_solvers_take_graphs_only():
    for thing in (None, "model.uai", np.zeros(3)):
        for name in ("bp", "exact", "mean-field", "gibbs", "trw", "auto"):
            with pytest.raises((MinferError, AttributeError)):
                lists.SOLVERS[name](thing)
    refused(MinferError, "takes a FactorGraph", BeliefPropagation(), "model.uai")
