"""Gibbs sampling, whose seeds are fixed, and mean field, against sums over all assignments."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws
from minfer import Components, ContradictionError, Exact, FactorGraph, RefusedError
from minfer.graph import grid_edges
from minfer.say import answers as telling
from minfer.solvers.base import LogZ, Marginals, Status
from minfer.solvers.gibbs import Gibbs
from minfer.solvers.mean_field import MeanField
from oracle import models
from oracle import truth as naive
from refused import refused

many = settings(max_examples=draws(100), deadline=None, derandomize=True)
QUICK = Gibbs(n_sweeps=50, burn_in=10, n_chains=3)


def check_probs(m):
    assert np.isfinite(m.probs).all()
    assert (m.probs >= 0).all()
    if len(m):
        np.testing.assert_allclose(np.add.reduceat(m.probs, m.graph.offsets[:-1]), 1, atol=1e-12)


@many
@given(models.table_graphs(max_states=4, zeros=False, scale=1.0))
def test_close_to_the_truth(graph):
    m = Gibbs(n_sweeps=4000)(graph)
    check_probs(m)
    error = np.abs(m.probs - naive.marginals(graph)).max(initial=0.0)
    assert error < 5 * m.error_estimate + 0.005
    assert m.error_estimate < 0.03
    for f in range(graph.n_factors):
        joint = m.factor(f)
        assert joint.sum() == pytest.approx(1)
        if graph.arity[f]:
            np.testing.assert_allclose(joint, naive.factor_marginal(graph, f), atol=0.05)


@many
@given(models.table_graphs(max_states=4))
def test_any_model_is_answered_or_refused(graph):
    try:
        m = QUICK(graph)
    except (ContradictionError, RefusedError):
        assert naive.log_z(graph) == -np.inf
        return
    check_probs(m)
    assert np.isfinite(graph.log_score(m.state.states)).all()
    allowed = naive.assignments(graph)[np.isfinite(naive.log_scores(graph))]
    for v in range(graph.n_variables):
        assert set(np.flatnonzero(m[v])) <= set(allowed[:, v]), "impossible states have nothing"
    for f in range(graph.n_factors):
        joint = m.factor(f)
        assert joint.shape == tuple(graph.n_states[graph.scope(f)])
        assert joint.sum() == pytest.approx(1)
        assert (joint[np.isneginf(graph.log_table(f))] == 0).all()


EQUAL = np.array([[0, -np.inf], [-np.inf, 0]])
ALL_EQUAL = np.full((2, 2, 2), -np.inf)
ALL_EQUAL[0, 0, 0] = ALL_EQUAL[1, 1, 1] = 0.0


@pytest.mark.parametrize(
    "graph",
    [
        FactorGraph.empty([2, 2]).add_tables([[0, 1]], [EQUAL]),
        FactorGraph.empty([2, 2]).add_potts([[0, 1]], np.inf),
        FactorGraph.empty([2, 2, 2]).add_tables([[0, 1, 2]], [ALL_EQUAL]),
        FactorGraph.empty([2] * 20).add_tables([[i, i + 1] for i in range(19)], [EQUAL] * 19),
    ],
)
@pytest.mark.parametrize("prepared", [False, True])
def test_chains_that_began_on_one_side_have_not_converged(graph, prepared):
    """With seeds 12, 14 and 18 all four chains did, and [0, 1] had an error of 0."""
    for seed in range(24):
        solver = Gibbs(rng=seed, n_sweeps=20, burn_in=2)
        m = solver.prepare(graph)() if prepared else solver(graph)
        assert m.error_estimate == np.inf
        assert not m.converged
    sides = m.state.chain_probs[:, 1]
    assert set(sides) <= {0.0, 1.0}
    assert f"differ by {sides.std(ddof=1) / np.sqrt(4):.2g}" in m.note or sides.std() == 0
    assert "Tempering" in m.advice
    assert "error unknown" in telling.status(m)
    assert json.loads(json.dumps(m.to_dict(), allow_nan=False))["error_estimate"] is None
    seen = solver.prepare(graph)({0: 1}) if prepared else solver(graph.with_evidence({0: 1}))
    assert seen.converged
    assert seen[1][1] == 1.0
    both = Components(Gibbs(n_sweeps=100), size=1)(models.union(graph, FactorGraph.empty([2])))
    assert both.error_estimate == np.inf
    assert not both.converged


def islands(graph: FactorGraph) -> int:
    """How many sets of allowed assignments there are that single moves do not join: by flooding."""
    score = naive.log_scores(graph)
    left = {tuple(x) for x in naive.assignments(graph)[score > -np.inf].tolist()}
    found = 0
    while left:
        found, todo = found + 1, [left.pop()]
        while todo:
            x = todo.pop()
            for v, s in enumerate(graph.n_states.tolist()):
                near = {(*x[:v], k, *x[v + 1 :]) for k in range(s)} & left
                left -= near
                todo += near
    return found


@pytest.mark.drawn
def test_trapped_is_what_flooding_says():
    """Small parts are decided either way; a haven is a proof."""
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(draws(400)):
        n = int(rng.integers(2, 6))
        graph = FactorGraph.empty(rng.integers(1, 4, size=n))
        for _ in range(int(rng.integers(1, 5))):
            scope = rng.choice(n, size=min(n, int(rng.integers(1, 4))), replace=False)
            table = np.where(rng.random(graph.n_states[scope]) < 0.3, -np.inf, 0.0)
            graph = graph.add_tables([scope], table[None])
        n_islands = islands(graph)
        try:
            m = Gibbs(n_sweeps=5, burn_in=0)(graph)
        except (ContradictionError, RefusedError):
            assert n_islands == 0
            continue
        assert (m.error_estimate == np.inf) == (n_islands > 1)
        seen.add(n_islands)
    assert {1, 2, 3} <= seen


def test_feasible_start_in_a_tight_model():
    """Colouring a grid with three colours: a random state breaks a third of the edges."""
    edges = grid_edges(20, 20)
    unequal = np.where(np.eye(3), -np.inf, 0.0)[None]
    graph = FactorGraph.empty(np.full(400, 3)).add_tables(edges, unequal)
    m = Gibbs(n_sweeps=200, burn_in=50)(graph)
    x = m.state.states
    assert (x[:, edges[:, 0]] != x[:, edges[:, 1]]).all()
    check_probs(m)
    ring = FactorGraph.from_tables([2] * 3, [[0, 1], [1, 2], [0, 2]], [unequal[0, :2, :2]] * 3)
    refused(RefusedError, "Exact or BeliefPropagation", Gibbs(), ring)


def test_same_seed_same_answer_at_any_pace(monkeypatch):
    """How many sweeps a kernel call makes depends on the clock; the numbers must not."""
    before = np.random.get_state()[1].copy()  # noqa: NPY002  the legacy state is left alone
    graph = FactorGraph.grid(np.random.default_rng(0).normal(size=(6, 6)), 1.0)
    a, b, c = QUICK(graph), QUICK(graph), Gibbs(n_sweeps=50, burn_in=10, n_chains=3, rng=1)(graph)
    assert (a.probs == b.probs).all()
    assert (a.state.counts == b.state.counts).all()
    assert (a.residuals == b.residuals).all()
    assert (a.probs != c.probs).any()
    chains = a.state.chain_probs
    assert (chains[0] != chains[1]).any()
    wider = Gibbs(n_sweeps=50, burn_in=10, n_chains=5)(graph)  # leaves the first as they were
    assert (wider.state.chain_probs[:3] == chains).all()
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    monkeypatch.setattr("minfer.solvers.mean_field._CALL_SECONDS", 0.0)
    slow = QUICK(graph)
    assert (a.probs == slow.probs).all()
    np.testing.assert_array_equal(a.residuals, slow.residuals)


def test_start_gives_the_first_states():
    """Without mixing (weights of 500) the chains stay where the start puts them."""
    graph = FactorGraph.grid(np.zeros((3, 3)), 500.0)
    ones = Marginals.from_probs(graph, np.tile([0.0, 1.0], 9), "hand")
    m = Gibbs(n_sweeps=20, burn_in=0)(graph, start=ones)
    assert (m.mpm() == 1).all()
    assert m.error_estimate == np.inf  # nobody knows where else they might have stayed
    other = Marginals.from_probs(FactorGraph.empty([3]), np.ones(3) / 3, "hand")
    assert (QUICK(graph, start=other).probs == QUICK(graph).probs).all()
    assert (QUICK(graph, start=m).mpm() == 1).all()
    assert QUICK(graph.with_evidence({0: 0}), start=ones)[0].tolist() == [1, 0]


def test_limits_and_status():
    graph = FactorGraph.grid(np.zeros((30, 30)), 1.0)
    m = QUICK(graph)
    assert m.status is Status.SAMPLED
    assert m.iterations == len(m.residuals) == 50
    assert m.log_z_kind is LogZ.NONE
    assert np.isnan(m.log_z)
    assert set(m.timings) == {"plan", "iterate"}
    cut = Gibbs(n_sweeps=10**9, burn_in=10**9, time_limit=0.1)(graph)
    assert cut.status is Status.TIME_LIMIT
    assert cut.iterations >= 1
    assert Gibbs(n_sweeps=1, burn_in=10**9, time_limit=0.1)(graph).status is Status.TIME_LIMIT
    check_probs(cut)
    assert Gibbs(n_chains=1)(graph).error_estimate is None
    assert cut.factor(1000).sum() == pytest.approx(1)


def test_residuals_are_changes_of_the_chains_means():
    graph = FactorGraph.grid(np.random.default_rng(0).normal(size=(3, 3)), 1.0)
    means = [Gibbs(n_sweeps=n, burn_in=0, n_chains=2)(graph).state.chain_probs for n in range(1, 6)]
    residuals = Gibbs(n_sweeps=5, burn_in=0, n_chains=2)(graph).residuals
    changes = [np.abs(b - a).max() for a, b in pairwise(means)]
    np.testing.assert_allclose(residuals, [1.0, *changes], atol=1e-12)


def tied(weight: float, kind: str) -> FactorGraph:
    """Two to four variables that large finite weights tie, in two modes of equal probability."""
    if kind == "pair":
        table = [[weight, 0.0], [0.0, weight]]
        return FactorGraph.empty([2, 2]).add_tables([[0, 1]], [table])
    if kind == "fields":  # the same, as a conjunction against unaries
        return FactorGraph.pairwise([-weight, -weight], [[0, 1]], [2 * weight])
    if kind == "labels":
        return FactorGraph.empty([4, 4, 4]).add_potts([[0, 1], [1, 2]], weight)
    if kind == "parity":
        return FactorGraph.empty([2] * 4).add_parity([[0, 1, 2, 3]], weight)
    chain = [[0, 1], [1, 2], [2, 3]]
    weak = FactorGraph.pairwise([0.0] * 4, [[0, 3]], [0.5], feature="equal")
    return weak.add_features(chain, weight, np.eye(2, dtype=bool))


@pytest.mark.parametrize("kind", ["pair", "fields", "labels", "parity", "chain"])
@pytest.mark.parametrize("weight", [12.0, 20.0, 30.0, 50.0])
def test_large_finite_weights_trap_chains_and_that_is_said(weight, kind):
    """All chains in one mode agree: it was "converged", error 0, for 3 of 24 seeds."""
    graph = tied(weight, kind)
    truth = naive.marginals(graph)
    wrong = 0
    for seed in range(24):
        m = Gibbs(rng=seed, n_sweeps=500, burn_in=50)(graph)
        off = np.abs(m.probs - truth).max()
        wrong += off > 0.2
        assert not m.converged or off <= 5 * m.error_estimate, (seed, m.probs, m.error_estimate)
        if kind != "parity":  # whose islands are all alike to a single variable
            assert not m.converged
    assert wrong or kind == "parity"


def test_large_weights_are_an_alarm_only_where_they_trap():
    """One mode, however sharp; modes that single moves join; weights that chains do cross."""
    edges = [[0, 1], [1, 2]]
    one_mode = FactorGraph.pairwise([5.0, 5.0, 5.0], edges, [30.0, 30.0], feature="equal")
    joined = FactorGraph.empty([2] * 5).add_clauses([[0, 1, 2], [2, 3, 4]], 30.0)
    crossed = FactorGraph.pairwise([0.0, 0.0], [[0, 1]], [4.0], feature="equal")
    unary = FactorGraph.empty([2, 2]).add_tables([[0, 1]], [[[0.0, 0.0], [-40.0, -40.0]]])
    wide = FactorGraph.empty([2] * 30).add_clauses([[v, v + 1] for v in range(29)], 30.0)
    for graph in (one_mode, joined, crossed, unary, wide):
        m = Gibbs(rng=1)(graph)
        assert m.converged, m.note
        assert m.error_estimate < 0.1
    m = Gibbs(rng=0, n_sweeps=50, burn_in=10)(FactorGraph.grid(np.zeros((8, 8)), 30.0, "equal"))
    assert not m.converged
    assert "where they began" in m.note
    # All four where the start puts them, agreed, and off by 1.
    graph = FactorGraph.pairwise([10.0, 10.0], [[0, 1]], [40.0], feature="equal")
    zeros = Marginals.from_probs(graph, np.array([1.0, 0.0, 1.0, 0.0]), "hand")
    m = Gibbs(rng=0)(graph, start=zeros)
    assert m[0][0] > 0.99
    assert naive.marginals(graph)[0] < 1e-8
    assert not m.converged
    assert Gibbs(rng=0)(graph, start=Exact()(graph)).converged


ascents = settings(many, max_examples=draws(150))
very_many = settings(many, max_examples=draws(500))
GRAPHS = models.table_graphs(max_states=4)


def solve(graph, solver=None, start=None):
    """The answer, or None where the graph is found to be a contradiction."""
    try:
        return (solver or MeanField())(graph, start)
    except ContradictionError:
        assert naive.log_z(graph) == -np.inf
        return None


def product_bound(graph, probs):
    """F(q) by definition, over all assignments; 2e-308 stands for no mass."""
    probs = np.where(probs > 1e-300, probs, 0.0)
    x = naive.assignments(graph)
    q = probs[graph.offsets[:-1] + x].prod(axis=1)
    score = naive.log_scores(graph)
    entropy = -(probs[probs > 0] * np.log(probs[probs > 0])).sum()
    return (q[q > 0] * score[q > 0]).sum() + entropy


def rises(bounds):
    before, after = bounds[:-1], bounds[1:]
    slack = 1e-9 * np.maximum(1, np.abs(np.where(np.isfinite(after), after, 0)))
    return bool((after >= before - slack).all())


@very_many
@given(GRAPHS)
def test_bound_below_log_z_and_rising(graph):
    m = solve(graph)
    if m is None:
        return
    check_probs(m)
    exact = naive.log_z(graph)
    assert not np.isnan(m.log_z)
    assert m.log_z <= exact + 1e-9 * max(1, abs(exact))
    assert m.log_z_kind is LogZ.LOWER
    assert rises(m.state.bounds)
    assert m.state.bounds.shape == m.residuals.shape == (m.iterations,)
    assert m.log_z == m.state.bounds[-1]
    assert (m.log_z == -np.inf) == bool(m.note)


@ascents
@given(GRAPHS)
def test_bound_is_what_it_says(graph):
    """The bound read off during a sweep is F at the q returned, converged or not."""
    for n in (1, 2, 1000):
        m = solve(graph, MeanField(max_iters=n))
        assert m is None or m.iterations <= n
        if m is not None and np.isfinite(m.log_z):
            assert m.log_z == pytest.approx(product_bound(graph, m.probs), rel=1e-9, abs=1e-9)


@ascents
@given(GRAPHS)
def test_answer_is_a_fixed_point(graph):
    m = solve(graph, MeanField(tol=1e-10))
    if m is None or m.status is not Status.CONVERGED:
        return
    again = MeanField(tol=1e-10)(graph, start=m)
    np.testing.assert_allclose(again.probs, m.probs, atol=1e-7)
    assert again.log_z >= m.log_z - 1e-9 * max(1, abs(m.log_z))
    assert again.iterations <= 3


@ascents
@given(models.table_graphs(max_states=4, max_arity=1))
def test_exact_without_interactions(graph):
    m = solve(graph)
    if m is None:
        return
    np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-12)
    assert m.log_z == pytest.approx(naive.log_z(graph), rel=1e-12, abs=1e-9)
    assert m.status is Status.CONVERGED


@ascents
@given(GRAPHS, GRAPHS)
def test_any_start_is_taken_or_ignored(graph, other):
    start = solve(other)
    m = solve(graph, start=start)
    if m is not None:
        check_probs(m)
        assert m.log_z <= naive.log_z(graph) + 1e-6


@ascents
@given(st.integers(0, 2**32 - 1))
def test_quadratic_edges_equal_tables(seed):
    """The special case for 2x2 tables, against the same tables hidden in triples."""
    rng = np.random.default_rng(seed)
    n = 5
    edges = np.array([(i, j) for i in range(n) for j in range(n) if i != j])
    edges = edges[rng.permutation(len(edges))[:6]]
    unary, pairs = rng.normal(size=(n, 2)), rng.normal(size=(6, 2, 2)) * 2
    everyone = np.arange(n)[:, None]
    fast = FactorGraph.empty(np.full(n, 2)).add_tables(everyone, unary).add_tables(edges, pairs)
    idle = np.array([[next(u for u in range(n) if u not in e)] for e in edges])
    triples = np.repeat(pairs[..., None], 2, axis=-1)
    slow = FactorGraph.empty(np.full(n, 2)).add_tables(everyone, unary)
    slow = slow.add_tables(np.hstack([edges, idle]), triples)
    a, b = MeanField(max_iters=7)(fast), MeanField(max_iters=7)(slow)
    np.testing.assert_allclose(a.probs, b.probs, atol=1e-12)
    np.testing.assert_allclose(a.state.bounds, b.state.bounds, atol=1e-10)


def test_penalties_soft_and_hard():
    # -1e30 as a soft zero: in a quadratic form 1e30 + 0.7 - 1e30 would be 0
    graph = FactorGraph.from_tables([2, 2], [[0], [0, 1]], [[0, 0.7], [[-1e30, 0], [0, 0]]])
    hard = FactorGraph.from_tables([2, 2], [[0], [0, 1]], [[0, 0.7], [[-np.inf, 0], [0, 0]]])
    assert MeanField()(graph).log_z == pytest.approx(MeanField()(hard).log_z)
    # two neighbours exclude each other: the one with more to gain stays free
    graph = FactorGraph.from_tables(
        [2, 2], [[0], [1], [0, 1]], [[0, 3.0], [0, 1.0], [[0, 0], [0, -np.inf]]]
    )
    m = MeanField()(graph)
    assert m.log_z == pytest.approx(np.log1p(np.exp(3)))
    assert m.status is Status.CONVERGED
    assert m[1].tolist() == [1, np.finfo(float).tiny]  # no mass, though nothing forbids it


def test_saddles_are_left_only_where_they_must_be():
    """x0 != x1 without field: every penalty leaves the uniform saddle; one side is taken."""
    unequal = [[-np.inf, 0], [0, -np.inf]]
    chain = FactorGraph.from_tables([2] * 6, [[i, i + 1] for i in range(5)], [unequal] * 5)
    m = MeanField()(chain)
    assert m.log_z == pytest.approx(0, abs=1e-12)
    assert naive.log_z(chain) == pytest.approx(np.log(2))
    assert (m.max_prob() == 1).all()
    # an odd ring of "unequal" has no solution, which no single factor shows
    ring = FactorGraph.from_tables([2] * 3, [[0, 1], [1, 2], [0, 2]], [unequal] * 3)
    m = MeanField()(ring)
    assert m.log_z == -np.inf
    assert not m.converged
    assert "BeliefPropagation" in m.note
    check_probs(m)
    m = MeanField()(FactorGraph.grid(np.zeros((3, 3)), 2.0))
    assert (m.probs == 0.5).all()
    biased = Marginals.from_probs(m.graph, np.tile([0.4, 0.6], 9), "hand")
    assert MeanField()(m.graph, start=biased).log_z > m.log_z + 1


def test_limits_and_status_of_mean_field():
    graph = FactorGraph.grid(np.random.default_rng(0).normal(size=(8, 8)), 1.0)
    short = MeanField(max_iters=3, tol=0)(graph)
    assert short.status is Status.MAX_ITERS
    assert short.iterations == 3
    none = MeanField(time_limit=1e-9, tol=0)(graph)
    assert none.status is Status.TIME_LIMIT
    assert none.iterations >= 1
    check_probs(none)
    full = MeanField()(graph)
    assert full.status is Status.CONVERGED
    assert full.residuals[-1] <= 1e-6
    assert set(full.timings) == {"plan", "iterate"}
