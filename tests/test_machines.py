"""Logical factors in the solvers that read their automata: against tables, sums and enumeration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from minfer import ContradictionError, Exact, FactorGraph, Gibbs, MeanField, RefusedError
from minfer.engine.conditioning import condition
from minfer.engine.decomposition import only_tables
from minfer.engine.layout import in_order, lay_out, same_steps
from minfer.factors import Machine
from minfer.solvers.irreducible import haven
from minfer.solvers.planning import plan
from oracle import lists, models
from oracle import truth as naive
from refused import all_refused

GRAPHS = lists.logical()
SOFT = [name for name in GRAPHS if name not in lists.HAVENS | lists.TRAPS]


def as_tables(graph: FactorGraph) -> FactorGraph:
    """The same model with every logical factor written out."""
    groups = tuple(g.as_tables() if g.form == "machine" else g for g in graph.groups)
    return replace(graph, groups=groups)


@pytest.mark.parametrize("shuffled", [False, True])
def test_exact_at_arity_1000(shuffled):
    """Of a chain with a clause over all: Z less the weight of all false."""
    n = 1000
    scope = np.random.default_rng(1).permutation(n) if shuffled else np.arange(n)
    draw = np.random.default_rng(0)
    edges = [[i, i + 1] for i in range(n - 1)]
    graph = FactorGraph.pairwise(draw.normal(size=n) - 8, edges, 1.0, feature="equal")
    whole, none = Exact()(graph).log_z, float(graph.log_score(np.zeros((1, n), dtype=int))[0])
    m = Exact()(graph.add_clauses([scope]))
    assert m.log_z == pytest.approx(whole + np.log1p(-np.exp(none - whole)), abs=1e-9)
    tree = only_tables(condition(graph.add_clauses([scope])))
    assert tree.graph.n_variables == 2 * n - 1
    with pytest.raises(RefusedError, match="joint marginal over 1000 unobserved"):
        m.factor(-1)


def test_exact_counts_at_arity_1000():
    """Independent variables of which at most 20 are on: a sum over counts."""
    n, k = 1000, 20
    odds = np.exp(np.random.default_rng(3).normal(size=n) - 4)
    ways = np.zeros(k + 1)
    ways[0] = 1.0
    for o in odds:
        ways[1:] += o * ways[:-1]
    graph = FactorGraph.pairwise(np.log(odds), [], []).add_cardinality([np.arange(n)], at_most=k)
    assert Exact()(graph).log_z == pytest.approx(np.log(ways.sum()), abs=1e-9)


def test_what_is_refused():
    n = 800
    field = FactorGraph.pairwise(np.zeros(n), [], [])
    squares = field.add_cardinality([np.arange(n)], np.linspace(0, 1, n + 1) ** 2)
    never = FactorGraph.empty([2] * 6).add_cardinality([np.arange(6)], [-np.inf, -np.inf])
    soft = field.add_clauses([np.arange(n)], 1.0)
    many = [MeanField()(soft), Gibbs(n_sweeps=5, burn_in=0)(soft)]
    all_refused(
        (lambda: Exact()(squares), RefusedError,
         f"factor {n}, a .*too many states.*BeliefPropagation"),
        (lambda: Exact()(never), ContradictionError, ""),
        *((lambda m=m: m.factor(n), RefusedError, r"over 800 variables has 2\^800 cells")
          for m in many),
        *((lambda name=name: MeanField()(GRAPHS[name]), RefusedError,
           r"MeanField cannot use factor \d+: it is a hard .* finite weight")
          for name in sorted(lists.HAVENS | lists.TRAPS)),
        *((lambda name=name: Gibbs()(GRAPHS[name]), RefusedError,
           r"Gibbs cannot use factor \d+, a hard .*one variable at a time.*Exact")
          for name in sorted(lists.TRAPS)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_drawn_logical_models(seed):
    """Kinds, signs, states and evidence by lot: exact by sums, the others as with tables."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 8))
    draft = models.Draft(rng.integers(2, 4, size=n))
    for v in range(n):
        draft.drawn(rng, [v])
    for _ in range(int(rng.integers(1, 4))):
        draft.logical(rng, 1.0, 3, n)
    if rng.random() < 0.5:
        v = int(rng.integers(n))
        draft.known(v, int(rng.integers(draft.n_states[v])))
    graph = draft.graph
    log_z = naive.log_z(graph)
    if log_z == -np.inf:
        with pytest.raises(ContradictionError):
            Exact()(graph)
        return
    m = Exact()(graph)
    np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-10)
    assert m.log_z == pytest.approx(log_z, abs=1e-10)
    for i in range(graph.n_factors):
        np.testing.assert_allclose(m.factor(i), naive.factor_marginal(graph, i), atol=1e-10)
    if any(g.forbids().any() for g in condition(graph).groups):
        return
    for solver in (MeanField(tol=1e-10, max_iters=3000), Gibbs(n_sweeps=400, burn_in=40)):
        m, want = solver(graph), solver(as_tables(graph))
        np.testing.assert_allclose(m.probs, want.probs, atol=1e-6)
        if isinstance(solver, MeanField):
            assert m.log_z == pytest.approx(want.log_z, abs=1e-6)
            assert (np.diff(m.state.bounds) > -1e-9).all()
            assert m.log_z <= log_z + 1e-9


def test_mean_field_at_arity_1000():
    """A soft clause over all, at its fixed point q_v = sigma(field + w prod(others off))."""
    n, w = 1000, 3.0
    field = np.random.default_rng(0).normal(size=n) - 6.5
    graph = FactorGraph.pairwise(field, [], []).add_clauses(
        [np.random.default_rng(1).permutation(n)], w
    )
    m = MeanField(tol=1e-13)(graph)
    q = m.probs.reshape(-1, 2)
    log_off = np.log(q[:, 0])
    others = np.exp(log_off.sum() - log_off)
    np.testing.assert_allclose(q[:, 1], 1 / (1 + np.exp(-field - w * others)), atol=1e-10)


@pytest.mark.parametrize("name", [*SOFT, *sorted(lists.HAVENS)])
def test_gibbs_draws_as_with_tables(name):
    """The same conditionals, hence the same chains, from the same first states."""
    graph = GRAPHS[name]
    solver = Gibbs(n_sweeps=3000, burn_in=100)
    m = solver(graph)
    if name in SOFT:
        want = solver(as_tables(graph))
        np.testing.assert_allclose(m.probs, want.probs, atol=1e-9)
        for i in range(graph.n_factors):
            if i not in (9, 10) or name != "evidence":  # true by evidence: no factor any more
                np.testing.assert_allclose(m.factor(i), want.factor(i), atol=1e-9)
    np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=0.05)
    for x in m.state.states:
        assert graph.log_score(x[None].astype(np.int64))[0] > -np.inf


def test_gibbs_havens_by_kind():
    graph = FactorGraph.pairwise(np.zeros(4), [], [])
    every = [[0, 1, 2, 3]]
    for model, state in (
        (graph.add_cardinality(every, at_most=2), 0),
        (graph.add_at_most_one(every), 0),
        (graph.add_clauses(every), 1),
        (graph.add_clauses(every, signs=-np.ones((1, 4), dtype=int)), 0),
        (graph.add_cardinality(every, [-np.inf, -np.inf, 0.0]), 1),
        (graph.add_cardinality(every, [0.0, -np.inf, 0.0]), None),
        (graph.add_parity(every), None),
        (graph.add_exactly_one(every), None),
        (graph.add_or([[0, 1, 2]], [3]), None),
        (graph.add_clauses(every, 3.0), "none needed"),
        (graph.add_exactly_one(every).with_evidence({0: 1}), "none needed"),
        (graph.add_exactly_one(every).with_evidence({0: 0}), None),
        (graph.add_exactly_one(every).with_evidence({0: 0, 1: 0}), None),  # a table by now
    ):
        target, why = haven(condition(model))
        if state is None:
            assert target is None
            assert "cannot use factor 4" in why
        elif state == "none needed":
            assert target is None
            assert why == ""
        else:
            assert why == ""
            assert target.tolist() == [state] * 4


def test_a_haven_agrees_with_tables():
    """Hard tables beside hard logical factors must share the haven."""
    graph = FactorGraph.pairwise(np.zeros(4), [], []).add_cardinality([[0, 1, 2, 3]], at_most=2)
    lower = graph.add_tables([[0, 1]], [[[0.0, 0.0], [0.0, -np.inf]]])
    upper = graph.add_tables([[0, 1]], [[[-np.inf, 0.0], [0.0, 0.0]]])
    np.testing.assert_allclose(Gibbs()(lower).probs, naive.marginals(lower), atol=0.05)
    with pytest.raises(RefusedError, match="cannot use factor 4, a hard"):
        Gibbs()(upper)


def test_gibbs_at_arity_1000():
    n, k = 1000, 20
    graph = FactorGraph.pairwise(np.full(n, -2.0), [], []).add_cardinality(
        [np.random.default_rng(0).permutation(n)], at_most=k
    )
    m = Gibbs(n_sweeps=50, burn_in=50, n_chains=2)(graph)
    assert (m.state.states.sum(axis=1) <= k).all()
    assert m.probs.reshape(-1, 2)[:, 1].sum() == pytest.approx(
        Exact()(graph).probs[1::2].sum(), abs=1
    )


def test_positions_that_commute_are_sorted_and_others_are_not():
    graph = FactorGraph.pairwise(np.zeros(5), [], []).add_or([[3, 1, 4, 2]], [0], 1.0)
    m, scope = in_order(graph.groups[-1])
    assert scope.tolist() == [[1, 2, 3, 4, 0]]
    assert lay_out(condition(graph)).machine[0, 3] == 0
    no_two = Machine(  # "no two in a row" does not commute
        np.array([[[0, 1], [0, -1]]] * 3, dtype=np.int32), *np.zeros((3, 1, 3), dtype=np.int32)
    )
    assert same_steps(no_two.step) == [(0, 3, False)]
    assert same_steps(m.step) == [(0, 4, True), (4, 5, same_steps(m.step[4:])[0][2])]


def test_a_plan_for_logical_factors():
    p = plan(GRAPHS["exactly-one"])
    assert "hard exactly" in p["mean-field"].refuses
    assert "one variable at a time" in p["gibbs"].refuses
    assert "pairs only" in p["trw"].refuses
    assert p["exact"].refuses == ""
    assert p.recommendation == "exact"
    p = plan(GRAPHS["clauses"])
    assert p["mean-field"].refuses == p["gibbs"].refuses == ""
    assert 0 < p["bp"].seconds < 1
