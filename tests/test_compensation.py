"""Past the paper: compensation, refreshes, other scores, iteration, deletion; by slow twins."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws
from minfer import (
    BeliefPropagation,
    Budget,
    Components,
    Exact,
    FactorGraph,
    MinDivergence,
    MinferError,
    MinJoint,
    MinSize,
    Status,
    TreeReweighted,
    factor_gains,
    infer,
    relax,
)
from minfer.reduction import seeds
from minfer.reduction.compensation import compensate
from minfer.reduction.gains import factor_scores
from minfer.reduction.infer import edge_weights
from minfer.reduction.recipes import Compensated, Iterated, Paper, recipe_named
from minfer.reduction.sources import Join, JoinTemplates, ground
from minfer_experiments.deletion import delete, deletion_costs
from oracle import lists, models
from oracle import truth as naive
from refused import refused


def grid(seed: int = 0, strength: float = 3.0) -> FactorGraph:
    return FactorGraph.grid(strength * np.random.default_rng(seed).normal(size=(4, 4)), 1.0)


def slow_messages(graph, probs, keep, messages=None, damping=0.0):
    """The ignored factors speak in the order of groups and rows; every message moves a belief."""
    beliefs = [probs[a:b].copy() for a, b in zip(graph.offsets, graph.offsets[1:])]
    messages = {} if messages is None else messages
    field = [np.zeros(s) for s in graph.n_states]
    for i in [int(i) for g in graph.groups for i in g.ids]:
        scope = graph.scope(i)
        if keep[i] or len(scope) == 0:
            continue
        table = np.exp(graph.log_table(i))
        if len(scope) == 1:
            field[scope[0]] += graph.log_table(i)
            continue
        old = messages.get(i, [np.ones(graph.n_states[v]) for v in scope])
        new = []
        for a in range(len(scope)):
            rest = table
            for b, v in enumerate(scope):
                if b != a:
                    cavity = beliefs[v] / old[b]
                    shape = [-1 if c == b else 1 for c in range(len(scope))]
                    rest = rest * cavity.reshape(shape)
            m = rest.sum(axis=tuple(b for b in range(len(scope)) if b != a))
            binary = table.shape == (2, 2)
            m = m / (m[0] if binary else m.max())  # odds, or scaled to maximum 1
            if binary:
                m = (1 - damping) * m + damping * old[a]
            else:
                m = np.exp((1 - damping) * np.log(m) + damping * np.log(old[a]))
            new.append(m)
        for a, v in enumerate(scope):
            beliefs[v] *= new[a] / old[a]
            beliefs[v] /= beliefs[v].sum()
            field[v] += np.log(new[a])
        messages[i] = new
    return np.concatenate([f - f[0] for f in field]) if len(field) else np.zeros(0), messages


def relative(graph, field):
    """Log-weights relative to each variable's first state: constants do not matter."""
    return field - np.repeat(field[graph.offsets[:-1]], graph.n_states)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3]))
@settings(max_examples=draws(60))
def test_messages_against_the_slow_twin(seed, damping):
    rng = np.random.default_rng(seed)
    states = rng.integers(1, 4, size=5)
    scopes = [rng.permutation(5)[: rng.integers(0, 4)].tolist() for _ in range(8)]
    tables = [rng.normal(size=[states[v] for v in s]) * 2 for s in scopes]
    graph = FactorGraph.from_tables(states, scopes, tables)
    binary = np.flatnonzero(states == 2)
    if len(binary) > 2:
        pairs = [rng.permutation(binary)[:2].tolist() for _ in range(4)]
        graph = graph.add_features(pairs, rng.normal(size=4), "equal")
        graph = graph.add_features([binary[:3].tolist()], [1.3], rng.random((2, 2, 2)) < 0.5)
    keep = rng.random(graph.n_factors) < 0.4
    probs = naive.marginals(graph.keep(keep))
    left = compensate(graph, probs, keep, store=True)
    expected, messages = slow_messages(graph, probs, keep)
    np.testing.assert_allclose(relative(graph, left.field), expected, atol=1e-9)
    unstored = compensate(graph, probs, keep)
    np.testing.assert_allclose(unstored.field, left.field, atol=1e-12)
    assert unstored.messages is None
    assert unstored.remembered().messages is not None
    again = naive.marginals(graph.keep(keep).tilt(left.field))
    new = left.refreshed(again, damping)
    expected, _ = slow_messages(graph, again, keep, messages, damping)
    np.testing.assert_allclose(relative(graph, new.field), expected, atol=1e-9)
    np.testing.assert_allclose(relative(graph, left.field), relative(graph, unstored.field))


@given(models.table_graphs(max_variables=4))
@settings(max_examples=draws(150))
def test_messages_are_finite_on_anything(graph):
    """Zeros, huge weights, one-state variables, evidence: no NaN, no infinity."""
    seed = seeds.unary(graph)
    small = graph.keep(seed)
    if not np.isfinite(naive.log_z(small)):
        return
    result = (
        infer(graph, MinJoint(np.inf), Exact(), recipe=Compensated(refreshes=0))
        if _possible(graph)
        else None
    )
    if result is None:
        return
    assert np.isfinite(result.marginals.probs).all()
    assert np.isfinite(result.error_estimates).all()
    if result.compensation is not None:
        assert np.isfinite(result.compensation.field).all()


def _possible(graph):
    """Whether the forced factors leave any assignment."""
    seed = seeds.unary(graph)
    gains = factor_gains(graph, Exact()(graph.keep(seed)), seed)
    return np.isfinite(naive.log_z(graph.keep(seed | np.isinf(gains))))


def test_refreshed_to_the_end_it_is_belief_propagation():
    for graph in (grid(1), lists.higher_order()["triples"], lists.graphs()["mixed"]):
        full = BeliefPropagation(tol=1e-12)(graph)
        recipe = Compensated(refreshes=80)
        result = infer(graph, MinJoint(np.inf), BeliefPropagation(tol=1e-12), recipe=recipe)
        assert result.n_added == 0
        np.testing.assert_allclose(result.marginals.probs, full.probs, atol=1e-6)
        assert result.error_estimates.max() < 1e-6
    graph = grid(8, strength=2.0)
    full = BeliefPropagation(tol=1e-10)(graph)
    result = relax(graph, MinJoint(0.02), recipe=Iterated(max_error=1e-9, rounds=60))
    assert result.stopped == "the answer stands still"
    np.testing.assert_allclose(result.marginals.probs, full.probs, atol=1e-5)
    seconds = [step.seconds for step in result.trace]
    assert seconds == sorted(seconds)
    sizes = [step.n_added for step in result.trace]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("relaxed", [False, True])
def test_refreshed_to_the_end_it_is_tree_reweighted_propagation(relaxed):
    rng = np.random.default_rng(15)
    potts = FactorGraph.from_tables(
        [3] * 4,
        [[v] for v in range(4)] + [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]],
        [rng.normal(size=3) for _ in range(4)] + [rng.normal(size=(3, 3)) for _ in range(5)],
    )
    solver = TreeReweighted(tol=1e-10)
    for graph in (grid(1), potts):
        full = solver(graph)
        if relaxed:
            result = relax(
                graph, MinDivergence(3), solver, recipe=Iterated(max_error=1e-9, rounds=100)
            )
        else:
            result = infer(graph, MinDivergence(3), solver, recipe=Compensated(refreshes=80))
        assert result.n_added == 3
        np.testing.assert_allclose(result.marginals.probs, full.probs, atol=1e-5)


def test_edges_have_weights_though_an_ignored_factor_would_fix_their_ends():
    """A triangle, an observed variable, and a constraint between them that is left out."""
    scopes, hard = [[0, 1], [1, 2], [2, 0], [3, 0]], [[0.0, 0.0], [-np.inf, 0.0]]
    equal = [[1.0, 0.0], [0.0, 1.0]]
    graph = FactorGraph.from_tables([2] * 4, scopes, [equal, equal, equal, hard])
    graph = graph.with_evidence({3: 1})
    solver = TreeReweighted()
    assert (edge_weights(solver, graph, np.ones(4, bool)) == 1).all(), "no loop is left"
    weights = edge_weights(solver, graph, np.arange(4) < 3)
    np.testing.assert_allclose(weights[:3], 2 / 3, atol=1e-9)
    assert edge_weights(BeliefPropagation(), graph, np.ones(4, bool)) is None


def test_compensation_helps_beside_global_factors():
    graph = lists.with_globals()["one-of-three-and-pairs"]
    result = infer(graph, MinJoint(np.inf), recipe=Compensated(refreshes=3))
    truth = naive.marginals(graph)
    bare = infer(graph, MinJoint(np.inf)).marginals.probs
    assert np.abs(result.marginals.probs - truth).max() < 0.3 * np.abs(bare - truth).max()


@given(models.table_graphs(max_variables=4))
@settings(max_examples=draws(100))
def test_reverse_score_is_the_reverse_divergence(graph):
    seed = seeds.unary(graph)
    small = graph.keep(seed)
    if not np.isfinite(naive.log_z(small)):
        return
    scores = factor_scores(graph, Exact()(small), seed, "reverse")
    x, p = naive.joint(small)
    for i in np.flatnonzero(~seed):
        psi = np.array([graph.log_table(i)[tuple(row)] for row in x[:, graph.scope(i)]])
        alive = (p > 0) & (psi > -np.inf)
        if not alive.any():
            assert np.isinf(scores[i])
            continue
        log_q = np.log(p[alive]) + psi[alive]
        log_q -= np.logaddexp.reduce(log_q)
        expected = float((np.exp(log_q) * (log_q - np.log(p[alive]))).sum())
        assert scores[i] == pytest.approx(expected, rel=1e-7, abs=1e-7)


def test_reverse_score_of_a_constraint_and_of_features():
    """-log P_G(allowed), where the forward gain is infinite."""
    table = [[0.0, -np.inf], [0.0, 0.0]]
    graph = FactorGraph.from_tables([2, 2], [[0], [1], [0, 1]], [[0.0, 0.4], [0.3, 0.0], table])
    seed = seeds.unary(graph)
    m = Exact()(graph.keep(seed))
    assert np.isinf(factor_gains(graph, m, seed)[2])
    allowed = 1 - m[0][0] * m[1][1]
    assert factor_scores(graph, m, seed, "reverse")[2] == pytest.approx(-np.log(allowed))
    forced = infer(graph, MinJoint(10.0), Exact())
    assert forced.forced_share == 1.0
    assert "reverse" in forced.advice
    dropped = infer(graph, MinJoint(10.0), Exact(), recipe=Paper(score="reverse"))
    assert dropped.n_forced == dropped.n_added == 0
    assert dropped.divergence == np.inf
    graph = grid(3)
    seed = seeds.unary(graph)
    m = Exact()(graph.keep(seed))
    tables = models.as_tables(graph)
    for score in ("gain", "residual", "reverse"):
        np.testing.assert_allclose(
            factor_scores(graph, m, seed, score),
            factor_scores(tables, m, seed, score),
            rtol=1e-9,
            atol=1e-12,
        )


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=draws(60))
def test_residual_score(seed):
    """Half the weighted least squares that no sum of unary terms explains."""
    rng = np.random.default_rng(seed)
    arity = int(rng.integers(2, 4))
    states = rng.integers(1, 4, size=arity)
    table = rng.normal(size=tuple(states))
    graph = FactorGraph.from_tables(
        states,
        [[v] for v in range(arity)] + [list(range(arity))],
        [rng.normal(size=s) for s in states] + [table],
    )
    m = Exact()(graph.keep(seeds.unary(graph)))
    weight = np.sqrt(m.product(range(arity))).ravel()
    columns = [np.ones(table.size)]
    for a, index in enumerate(np.indices(tuple(states))):
        columns += [(index == s).ravel().astype(float) for s in range(states[a])]
    design = np.stack(columns, axis=1) * weight[:, None]
    fit = design @ np.linalg.lstsq(design, table.ravel() * weight, rcond=None)[0]
    expected = 0.5 * ((table.ravel() * weight - fit) ** 2).sum()
    score = factor_scores(graph, m, seeds.unary(graph), "residual")[arity]
    assert score == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "solver", [Exact(), Exact(method="clique-tree"), Exact(method="enumerate"), BeliefPropagation()]
)
def test_gains_use_the_joints_that_the_solver_knows(solver):
    """Second factors on scopes of the seed: the product of marginals would be wrong."""
    rng = np.random.default_rng(4)
    edges = [[0, 1], [1, 2], [1, 0], [1, 2]]
    graph = FactorGraph.pairwise(rng.normal(size=6), edges, [2.0, -1.0, 1.5, 0.7])
    graph = graph.add_tables([[3, 4, 5], [5, 3, 4]], rng.normal(size=(2, 2, 2, 2)))
    seed = np.array([True] * 8 + [False, False, True, False])
    small = graph.keep(seed)
    x, p = naive.joint(small)
    gains = factor_gains(graph, solver(small), seed)
    for i in np.flatnonzero(~seed):
        log_psi = np.array([graph.log_table(i)[tuple(row)] for row in x[:, graph.scope(i)]])
        expected = np.log((p * np.exp(log_psi)).sum()) - (p * log_psi).sum()
        assert gains[i] == pytest.approx(expected, rel=1e-6)


def test_recipes_took_the_place_of_flags():
    for run in (infer, relax):
        for flag in ("compensate", "refreshes", "score", "rounds"):
            with pytest.raises(MinferError, match=f"{flag} is a setting of the recipe"):
                run(grid(), MinJoint(0.1), **{flag: 1})
        refused(MinferError, "recipe must be", run, grid(), MinJoint(0.1), recipe="paper")
    with pytest.raises(MinferError, match=r"recipe must be Iterated\(\)"):
        relax(grid(), MinJoint(0.1), recipe=Paper())
    with pytest.raises(MinferError, match="costs= goes with one inference"):
        infer(grid(), MinJoint(0.1), recipe=Iterated(), costs=np.ones(grid().n_factors))
    refused(MinferError, "an objective", infer, grid(), None, recipe=Iterated())
    one, other = relax(grid(), MinJoint(0.1)), infer(grid(), MinJoint(0.1), recipe=Iterated())
    np.testing.assert_array_equal(one.marginals.probs, other.marginals.probs)
    assert one.trace
    assert Compensated(refreshes=3).words == "compensated, refreshed 3 times"
    assert Iterated().words == "compensated, iterated"
    assert recipe_named("paper", time_limit=3.0) == Iterated(compensate=False, time_limit=3.0)
    assert recipe_named("compensated", score="gain") == Compensated(score="gain")


@pytest.mark.parametrize(
    "solver", [BeliefPropagation(), Exact(method="clique-tree"), TreeReweighted()]
)
def test_refreshes_that_still_move_the_answer_are_not_converged(solver):
    graph = grid(2)
    short = infer(graph, MinDivergence(5), solver, recipe=Compensated())
    assert short.marginals.converged
    assert short.last_change > 1e-3
    assert not short.settled
    assert not short.converged
    assert short.status is Status.MAX_ITERS
    assert "refresh" in short.advice
    assert "not converged" in repr(short)
    found = short.to_dict()
    assert (found["status"], found["converged"]) == ("not converged", False)
    assert found["reduction"]["solver_status"] == short.marginals.status.value
    long = infer(graph, MinDivergence(5), solver, recipe=Compensated(refreshes=60))
    assert long.last_change < 1e-6
    assert long.converged
    assert long.status is Status.CONVERGED  # of a model that lacks factors, exact or not
    once = infer(graph, MinDivergence(5), solver, recipe=Compensated(refreshes=0))
    assert once.last_change == 0.0
    assert once.status is Status.CONVERGED
    apart = infer(graph, MinDivergence(5), Components(solver), recipe=Compensated())
    assert apart.status is Status.MAX_ITERS


def test_rounds_that_still_move_the_answer_are_not_converged():
    graph = grid(2)
    short = relax(graph, MinDivergence(5), recipe=Iterated(rounds=2))
    assert short.marginals.converged
    assert short.status is Status.MAX_ITERS
    assert "raise rounds" in short.advice
    for objective, recipe in (
        (MinDivergence(5), Iterated(rounds=60)),
        (MinJoint(0.0), Iterated(rounds=1)),  # all is kept
        (MinJoint(0.05), Iterated(compensate=False)),
    ):
        assert relax(graph, objective, recipe=recipe).status is Status.CONVERGED
    timed = relax(graph, MinJoint(0.05), recipe=Iterated(time_limit=1e-6))
    assert timed.stopped == "the time is up"
    assert timed.status is Status.TIME_LIMIT
    assert "time_limit" in timed.advice
    solver = BeliefPropagation(time_limit=50.0)  # a limit of its own, beyond that of the recipe
    both = relax(grid(12), MinJoint(0.0), solver, recipe=Iterated(time_limit=20.0))
    assert both.status is Status.CONVERGED


def test_results_say_everything_in_plain_values():
    import json

    result = infer(grid(5), MinDivergence(6), recipe=Compensated(refreshes=0))
    d = json.loads(json.dumps(result.to_dict([0])))
    assert d["reduction"]["added"] == 6
    assert d["reduction"]["score"] == "residual"
    everything = infer(grid(5), MinJoint(0.0), recipe=Compensated(refreshes=0))
    assert everything.mean_error_estimate == 0.0
    assert everything.compensation is None
    graph = grid(6)
    costs = np.ones(graph.n_factors)
    gains = infer(graph, MinJoint(np.inf)).scores
    best = int(np.argmax(np.where(np.isfinite(gains), gains, -1)))
    costs[best] = 1e6
    result = infer(graph, MinJoint(0.01), costs=costs)
    assert not result.keep[best]
    assert result.gap == 0.0
    assert infer(graph, MinDivergence(5), costs=costs).gap >= 0.0
    # Corrections of factors that iteration adds later go to the last digit.
    rng = np.random.default_rng(1)
    graph = FactorGraph.grid(rng.normal(size=(3, 3)), rng.normal(size=12) * 200)
    result = relax(graph, MinDivergence(12), Exact(), recipe=Iterated(rounds=10))
    assert result.keep.all()
    assert result.compensation is None
    np.testing.assert_allclose(result.marginals.probs, naive.marginals(graph), atol=1e-9)


def test_relax_stops_for_reasons():
    graph = grid(7)
    steps = []
    result = relax(graph, MinJoint(0.05), recipe=Iterated(compensate=False), on_step=steps.append)
    assert steps == list(result.trace)
    assert result.stopped == "nothing left is worth adding"
    scores = factor_gains(graph, result.marginals, result.keep)
    assert (scores[~result.keep] < 0.05).all()
    assert len(result.trace) >= 1
    graph = grid(11)
    result = relax(graph, MinDivergence(24), Exact(), recipe=Iterated(max_bound=0.5))
    assert result.stopped == "the bound is within its limit"
    assert result.trace[-1].bound <= 0.5
    assert result.bound == result.trace[-1].bound
    # A complete graph of 40 variables: exact inference fits while the kept part is a forest.
    rng = np.random.default_rng(16)
    a, b = np.triu_indices(40, 1)
    edges = np.stack([a, b], axis=1)
    graph = FactorGraph.pairwise(rng.normal(size=40), edges, rng.normal(size=780))
    result = relax(
        graph, MinDivergence(780), Exact(max_gib=1e-6), recipe=Iterated(compensate=False)
    )
    assert "refused" in result.stopped
    assert np.isfinite(result.marginals.probs).all()
    assert result.n_added < 780


@pytest.mark.parametrize("compensate", [False, True])
def test_relax_keeps_its_budget(compensate):
    graph = grid(9)
    recipe = Iterated(compensate=compensate)
    assert relax(graph, MinDivergence(7), recipe=recipe).n_added == 7
    none = relax(graph, Budget(max_factors=7, factor_cost=1e9), recipe=recipe)
    assert none.n_added == 0
    within = relax(graph, MinSize(0.5), recipe=recipe)
    assert within.divergence <= 0.5 + 1e-9


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=draws(60))
def test_deletion_costs_are_divergences(seed):
    rng = np.random.default_rng(seed)
    states = rng.integers(1, 4, size=4)
    scopes = [rng.permutation(4)[: rng.integers(1, 4)].tolist() for _ in range(7)]
    tables = [rng.normal(size=[states[v] for v in s]) * 2 for s in scopes]
    graph = FactorGraph.from_tables(states, scopes, tables)
    binary = np.flatnonzero(states == 2)
    if len(binary) > 1:
        graph = graph.add_features([binary[:2].tolist()] * 2, [1.0, -2.0], "implies")
    full = Exact()(graph)
    seed = seeds.unary(graph)
    costs = deletion_costs(graph, full, seed)
    _, p = naive.joint(graph)
    for i in np.flatnonzero(~seed):
        without = naive.log_scores(graph.keep(np.flatnonzero(np.arange(graph.n_factors) != i)))
        without = without - np.logaddexp.reduce(without)
        alive = p > 0
        expected = float((p[alive] * (np.log(p[alive]) - without[alive])).sum())
        assert costs[i] == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_deletion_with_and_without_compensation():
    graph = grid(13, strength=2.0)
    truth = naive.marginals(graph)
    full = BeliefPropagation(tol=1e-10)(graph)
    plain = delete(graph, full, MinDivergence(10), BeliefPropagation())
    left = delete(graph, full, MinDivergence(10), BeliefPropagation(), compensate=True)
    assert plain.n_added == left.n_added == 10
    error = [np.abs(r.marginals.probs - truth).mean() for r in (plain, left)]
    assert error[1] < 0.3 * error[0]


@pytest.mark.parametrize(
    "options", [{}, {"recipe": Compensated(refreshes=0)}, {"recipe": Compensated(refreshes=1)}]
)
@pytest.mark.parametrize("objective", [MinJoint(0.01), MinDivergence(9), MinSize(0.3)])
def test_lazy_inference_keeps_what_a_full_scan_keeps(objective, options):
    rng = np.random.default_rng(14)
    left, right = rng.integers(0, 4, size=12), rng.integers(0, 4, size=12)
    weight = rng.normal(size=(12, 12))
    source = JoinTemplates(
        [Join(left, right, -4.0, 4.0)], lambda t, scope: weight[scope[:, 0], scope[:, 1]]
    )
    base = FactorGraph.pairwise(rng.normal(size=12) - 2, np.zeros((0, 2), int), [])
    lazy = infer(base, objective, source=source, **options)
    whole = infer(ground(base, source), objective, **options)
    np.testing.assert_array_equal(lazy.kept, whole.kept)
    assert lazy.n_factors == whole.n_factors
    low, high = lazy.divergence_interval
    assert low - 1e-12 <= whole.divergence <= high + 1e-12
    if not options:
        np.testing.assert_allclose(lazy.marginals.probs, whole.marginals.probs, atol=1e-6)
    if lazy.untouched.count:
        assert lazy.bound is None
        assert 0 < lazy.error_estimates.mean() < 1
        assert "between" in repr(lazy)
        assert lazy.divergence == high


def chains_of_arcs(n: int, scale: float, seed: int) -> tuple[FactorGraph, JoinTemplates]:
    """Arcs with softmax marginals, and a weight for every chain of two and for every sibling."""
    rng = np.random.default_rng(seed)
    head, modifier = np.array([(h, m) for h in range(n + 1) for m in range(1, n + 1) if h != m]).T
    on = np.exp(3 * rng.normal(size=len(head)))
    on /= np.bincount(modifier, on)[modifier]
    tables = scale * rng.normal(size=(2, len(head), len(head)))
    bounds = tables.min(), tables.max()
    joins = [Join(modifier, head, *bounds), Join(head, head, *bounds, symmetric=True)]
    source = JoinTemplates(joins, lambda t, scope: tables[t, scope[:, 0], scope[:, 1]])
    return FactorGraph.pairwise(np.log(on / (1 - on)), np.zeros((0, 2), int), []), source


@pytest.mark.parametrize(
    "options", [{}, {"recipe": Compensated(refreshes=0)}, {"recipe": Compensated(refreshes=1)}]
)
def test_the_error_estimate_counts_candidates_never_built(options):
    for seed in range(3):
        base, source = chains_of_arcs(16, 0.5, seed)
        truth = BeliefPropagation(tol=1e-9)(ground(base, source)).probs
        for gamma in (1e-2, 1e-3, 1e-4):
            result = infer(base, MinJoint(gamma), source=source, **options)
            assert result.n_untouched > 0.4 * source.n_factors
            error = np.abs(result.marginals.probs - truth).mean()
            assert 0.5 < result.error_estimates.mean() / error < 2
        careful = infer(base, MinJoint(np.inf), source=source, **options)
        assert careful.n_untouched == source.n_factors
        error = np.abs(careful.marginals.probs - truth).mean()
        assert error < careful.error_estimates.mean() < 50 * error, "only the bounds are known"


def test_the_error_estimate_of_any_source_and_of_a_copy():
    base, source = chains_of_arcs(8, 0.5, 1)

    class Bare:
        """A source that offers no sums: its factors are listed."""

        n_factors, theta_bounds = source.n_factors, source.theta_bounds
        candidates, weights, total = source.candidates, source.weights, source.total

    result, bare = (
        infer(base, MinJoint(1e-3), source=s, recipe=Compensated(refreshes=0))
        for s in (source, Bare())
    )
    assert result.n_untouched
    np.testing.assert_allclose(bare.error_estimates, result.error_estimates, rtol=1e-9)
    fresh = infer(base, MinJoint(1e-3), source=source, recipe=Compensated(refreshes=0))
    copy = pickle.loads(pickle.dumps(fresh))
    np.testing.assert_array_equal(copy.error_estimates, result.error_estimates)
    assert np.isnan(replace(copy, trace=()).mean_error_estimate), "the source stayed behind"
    all_built = infer(base, MinSize(0.5), source=source, recipe=Compensated(refreshes=0))
    full = infer(ground(base, source), MinSize(0.5), recipe=Compensated(refreshes=0))
    np.testing.assert_allclose(all_built.error_estimates, full.error_estimates, atol=1e-7)
