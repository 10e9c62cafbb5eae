"""What an answer may cost: Proposition 1, bounds and certificates against enumeration."""

from __future__ import annotations

import itertools
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.special
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from draws import draws, thorough
from minfer import (
    Auto,
    BeliefPropagation,
    Components,
    ContradictionError,
    Exact,
    FactorGraph,
    Gibbs,
    Join,
    JoinTemplates,
    LogZ,
    Marginals,
    MeanField,
    MinDivergence,
    MinJoint,
    MinSize,
    ModelError,
    RefusedError,
    Result,
    SettingsError,
    TreeReweighted,
    infer,
    relax,
)
from minfer.reduction import bound as bounds
from minfer.reduction import seeds
from minfer.reduction.bound import Dropped, certificate, feature_bound, ignored, quantile_bound
from minfer.reduction.recipes import Compensated, Iterated, Paper
from minfer_experiments.proposition1 import split
from oracle import lists, models
from oracle import truth as naive
from refused import refused

SHARES = st.sampled_from([0.0, 0.5, 0.8])
SEEDS = st.integers(0, 2**32 - 1)


def size(graph: FactorGraph) -> float:
    """The largest score, which sets the rounding of differences of scores."""
    score = naive.log_scores(graph)
    return float(np.abs(score[np.isfinite(score)]).max(initial=1.0))


def random_keep(graph: FactorGraph, seed: int, share: float) -> np.ndarray:
    return np.random.default_rng(seed).random(graph.n_factors) < share


@given(models.table_graphs(), SEEDS, SHARES, SHARES)
@settings(max_examples=draws(300))
def test_gains_and_two_terms_are_the_divergence(graph, rng, share, of_those):
    keep = random_keep(graph, rng, share)
    seed = keep & random_keep(graph, rng + 1, of_those)
    reduced = graph.keep(keep)
    assume(np.isfinite(naive.log_z(reduced)))
    parts = split(graph, seed, keep)
    exact, slack = naive.divergence(reduced, graph), 1e-10 * size(graph)
    assert parts.divergence == pytest.approx(exact, abs=slack)
    assert not np.isnan([parts.S, parts.I, *parts.gains]).any()
    if np.isfinite(parts.gains).all():
        assert parts.total == pytest.approx(exact, rel=1e-10, abs=slack)
    else:
        assert parts.total == np.inf


def test_a_global_factor_in_the_seed_and_what_split_refuses():
    graph = lists.with_globals()["one-of-three-and-pairs"]
    keep = seeds.unary_and_globals(graph)
    parts = split(graph, keep, keep)
    assert parts.total == pytest.approx(naive.divergence(graph.keep(keep), graph), abs=1e-10)
    graph = lists.graphs()["chain"]
    everything = np.ones(graph.n_factors, dtype=bool)
    refused(ModelError, "not kept", split, graph, everything, seeds.unary(graph))
    refused(ModelError, "bool mask", split, graph, everything[:2], everything)
    large = FactorGraph.grid(np.zeros((5, 5)))
    refused(RefusedError, "2\\^25", split, large, seeds.unary(large), seeds.unary(large))


def random_features(rng):
    """Weights and a joint law of up to five binary features: theta (n,), phi (2^n, n), p (2^n,)."""
    n = int(rng.integers(1, 6))
    theta = rng.normal(size=n) * rng.choice([0.3, 1.0, 4.0])
    phi = np.array(list(itertools.product([0, 1], repeat=n)))
    return theta, phi, rng.dirichlet(np.full(len(phi), rng.choice([0.1, 1.0])))


@pytest.mark.drawn
def test_proposition_2_corrected_holds():
    """No violation over random joint laws of the features; equality at the law of the next test."""
    rng = np.random.default_rng(4)
    for _ in range(draws(3000)):
        theta, phi, p = random_features(rng)
        mu = p @ phi
        exact = np.log((p * np.exp(phi @ theta)).sum()) - mu @ theta
        bound, loose = feature_bound(mu, theta), feature_bound(mu, theta, loose=True)
        assert exact <= bound + 1e-9
        assert bound <= loose + 1e-9
        joints = [np.array([1 - m, m]) for m in mu]
        tables = [np.array([0.0, t]) for t in theta]
        assert quantile_bound(joints, tables) == pytest.approx(bound, abs=1e-9)


@pytest.mark.drawn
def test_quantile_bound_is_the_divergence_of_the_comonotone_law():
    """All factors read off one uniform number, by the definition of a quantile."""
    rng = np.random.default_rng(7)
    for _ in range(draws(300)):
        sizes = rng.integers(1, 6, size=rng.integers(1, 6))
        joints = [rng.dirichlet(np.full(s, 0.7)) for s in sizes]
        tables = [rng.normal(size=s) * rng.choice([0.1, 1.0, 20.0]) for s in sizes]
        order = [np.argsort(t) for t in tables]
        edges = [np.cumsum(p[o])[:-1] for p, o in zip(joints, order)]
        u = np.sort(np.concatenate([[0.0, 1.0], *edges]))
        middle, width = (u[1:] + u[:-1]) / 2, np.diff(u)
        log_psi = sum(t[o][np.searchsorted(e, middle)] for t, o, e in zip(tables, order, edges))
        mean = sum(p @ t for p, t in zip(joints, tables))
        exact = scipy.special.logsumexp(log_psi, b=width) - mean
        assert quantile_bound(joints, tables) == pytest.approx(exact, rel=1e-9, abs=1e-10)


def test_zeros_nothing_small_and_large_numbers():
    half, zero = np.array([0.5, 0.5]), np.array([0.0, -np.inf])
    assert quantile_bound([half], [zero]) == np.inf
    assert quantile_bound([np.array([1.0, 0.0])], [zero]) == 0.0
    assert quantile_bound([], []) == 0.0
    assert feature_bound([], []) == 0.0
    refused(ModelError, "size", quantile_bound, [half], [np.zeros(3)])
    assert feature_bound([0.3], [1e-6]) == pytest.approx(0.5 * 0.21 * 1e-12, rel=1e-3)
    assert feature_bound([0.0, 1.0], [900.0, 900.0]) == 0.0
    assert feature_bound([1.0], [-900.0]) == feature_bound([1.0], [1.0]) == 0.0
    assert feature_bound([1e-200], [1000.0]) == pytest.approx(1000.0 - 200 * np.log(10))
    assert feature_bound([0.5] * 1000, [50.0] * 1000) == pytest.approx(25_000 - np.log(2))


def holds(part: FactorGraph, full: FactorGraph, dropped: list[Dropped], max_cells=None):
    """Check all that a certificate says by enumeration; return it."""
    found = certificate(part, dropped, max_cells)
    if found.bound is None:
        assert "clique cells" in found.reason
        return found
    exact, log_z, log_z_f = naive.divergence(part, full), naive.log_z(part), naive.log_z(full)
    slack = 1e-9 * max(size(part), size(full))
    assert exact <= found.bound + slack
    assert found.bound <= found.loose + slack
    assert found.log_z == pytest.approx(log_z, abs=slack)
    assert found.log_z_lower <= log_z_f + slack
    assert log_z_f <= found.log_z_upper + slack
    if not found.n_enveloped:
        assert np.isinf(exact) == np.isinf(found.bound)
    if np.isfinite(exact):  # also of each component by itself: no marginal differs by more
        error = np.abs(naive.marginals(part) - naive.marginals(full))
        most = np.minimum(np.sqrt(found.by_variable / 2), 1.0)
        assert (error <= np.repeat(most, part.n_states) + 1e-9).all()
    if np.isfinite(found.bound):
        both = found.log_z + found.expectation + found.bound
        assert found.log_z_upper == pytest.approx(both, abs=1e-9 * (1 + abs(both)) + slack)
    return found


@given(models.table_graphs(), SEEDS, SHARES)
@settings(max_examples=draws(1000))
def test_certificates_of_tables(graph, rng, share):
    """Several states, one-state variables, zeros, evidence, weights up to 2000."""
    keep = random_keep(graph, rng, share)
    part = graph.keep(keep)
    assume(np.isfinite(naive.log_z(part)))
    full = holds(part, graph, ignored(graph, keep))
    assert full.n_enveloped == 0
    holds(part, graph, ignored(graph, keep), full.cells - 1)


@given(models.binary_graphs(), SEEDS, SHARES)
@settings(max_examples=draws(200))
def test_certificates_of_features(graph, rng, share):
    keep = seeds.unary(graph) | random_keep(graph, rng, share)
    part = graph.keep(keep)
    holds(part, graph, ignored(graph, keep))
    x, p = naive.joint(part)
    means, weights = [], []
    for i in np.flatnonzero(~keep):
        table = graph.log_table(i)
        theta = table.flat[np.argmax(np.abs(table))]
        if theta:
            means.append(p @ (table[tuple(x[:, graph.scope(i)].T)] / theta))
            weights.append(theta)
    found = certificate(part, ignored(graph, keep))
    if size(graph) < 30:  # beyond, means next to 0 and 1 lose what the certificate keeps
        assert found.bound <= feature_bound(means, weights) + 1e-9, "groups only help"


@given(SEEDS)
@settings(max_examples=draws(60))
def test_when_joints_are_too_expensive(rng):
    """Ever smaller budgets: some joints in batches, the rest from single marginals."""
    rng = np.random.default_rng(rng)
    graph = FactorGraph.grid(3 * rng.normal(size=(3, 3)), rng.normal(size=12))
    graph = graph.add_tables([[0, 4, 8], [2, 4, 6]], rng.normal(size=(2, 2, 2, 2)))
    keep = np.arange(graph.n_factors) < 9
    keep[9:21] = rng.random(12) < 0.7
    part = graph.keep(keep)
    full = holds(part, graph, ignored(graph, keep))
    previous = full.bound
    for share in (0.9, 0.6):
        less = holds(part, graph, ignored(graph, keep), full.cells * share)
        if less.bound is None:
            break
        assert less.cells <= full.cells * share
        assert less.bound >= previous - 1e-9 or less.n_enveloped < 2


def test_envelopes_are_used_and_help():
    """A cycle with one factor dropped: its joint needs a wider tree than the path that is left."""
    graph = FactorGraph.pairwise(
        [4.0, 0, 0, 0, 0, -4.0], [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 0]], 1.0
    )
    keep = np.arange(12) < 11
    part = graph.keep(keep)
    full = holds(part, graph, ignored(graph, keep))
    assert full.bound == pytest.approx(naive.divergence(part, graph), abs=1e-12), (
        "one factor: exact"
    )
    less = holds(part, graph, ignored(graph, keep), full.cells - 1)
    assert less.n_enveloped == 1
    assert full.bound < less.bound < 0.2, "variable 5 is almost surely off, so the factor is too"
    none = certificate(part, ignored(graph, keep), 4)
    assert none.bound is None
    assert none.log_z_lower is None


def test_batches(monkeypatch):
    """All joints at once would be too wide; by region they are not."""
    rng = np.random.default_rng(0)
    graph = FactorGraph.grid(rng.normal(size=(3, 40)), 0.5)
    keep = np.ones(graph.n_factors, dtype=bool)
    keep[200::3] = False
    part, dropped = graph.keep(keep), ignored(graph, keep)
    full = certificate(part, dropped)
    ladder = FactorGraph(part._n_states, part.groups, None, part._field)
    wide = [Dropped(np.array([[v, 119 - v]]), np.zeros((1, 4)), (2, 2)) for v in range(0, 60, 7)]
    some = certificate(ladder, dropped + wide, 20 * full.cells)
    assert some.n_enveloped < len(wide)
    assert some.log_z_lower == pytest.approx(full.log_z_lower)
    monkeypatch.setattr(bounds, "MAX_TREES", 1)
    fewer = certificate(ladder, dropped + wide, 20 * full.cells)
    assert fewer.n_enveloped >= some.n_enveloped


def test_independent_groups_add_up_and_evidence_separates():
    """Many small models side by side: one bound for each, not one for all."""
    rng = np.random.default_rng(1)
    edges = np.arange(400, dtype=np.int32).reshape(200, 2)
    graph = FactorGraph.pairwise(rng.normal(size=400), edges, rng.normal(size=200))
    keep = seeds.unary(graph)
    found = certificate(graph.keep(keep), ignored(graph, keep))
    gains = [split(part.graph, seeds.unary(part.graph), seeds.unary(part.graph)).divergence
             for part in graph.components()]  # fmt: skip
    assert found.bound == pytest.approx(sum(gains), rel=1e-9), "one factor each: exact"
    np.testing.assert_allclose(found.by_variable, np.repeat(gains, 2), rtol=1e-7, atol=1e-12)
    # An observed variable joins nothing: what hangs on it is independent.
    graph = FactorGraph.pairwise(np.zeros(5), [[0, v] for v in range(1, 5)], 2.0, feature="equal")
    graph = graph.with_evidence({0: 1})
    keep = seeds.unary(graph)
    part = graph.keep(keep)
    found = holds(part, graph, ignored(graph, keep))
    assert found.bound == pytest.approx(naive.divergence(part, graph), abs=1e-12)


def test_a_zero_is_told_from_a_small_probability():
    """State 1 has probability e^-1000 in one part, none in the other; the table rewards it."""
    table = np.array([[0.0, 0.0], [0.0, 1500.0]])
    rare = FactorGraph.from_tables([2, 2], [[0], [1]], [[0, -1000.0], [0, 0]])
    found = holds(rare, rare.add_tables([[0, 1]], [table]),
                  [Dropped(np.array([[0, 1]]), table.reshape(1, -1), (2, 2))])  # fmt: skip
    assert found.bound > 499
    hard = FactorGraph.from_tables(
        [2, 2, 2], [[0, 2], [0, 2]], [[[0, 0], [-np.inf, 0]], [[0, 0], [0, -np.inf]]]
    )
    forbids = np.array([[0.0, 0.0], [-np.inf, -np.inf]])
    for psi in (table, forbids):
        found = holds(hard, hard.add_tables([[0, 1]], [psi]),
                      [Dropped(np.array([[0, 1]]), psi.reshape(1, -1), (2, 2))])  # fmt: skip
        assert found.bound == pytest.approx(0.0, abs=1e-12)


def test_large_global_factors_have_no_certificate_and_tables_are_checked():
    graph = FactorGraph.pairwise(np.zeros(40), [[0, 1]], 1.0).add_global(
        np.arange(40), lists.exactly_one()
    )
    keep = seeds.unary_and_globals(graph)
    found = certificate(graph.keep(keep), ignored(graph, keep))
    assert found.bound is None
    assert "global factor" in found.reason
    graph = lists.graphs()["chain"]
    pair = np.array([[0, 1]], dtype=np.int32)
    for bad in (
        Dropped(pair, np.zeros((1, 6)), (2, 3)),
        Dropped(pair, np.zeros((1, 3)), (2, 2)),
        Dropped(pair, np.zeros((2, 4)), (2, 2)),
        Dropped(pair, np.full((1, 4), np.inf), (2, 2)),
        Dropped(pair, np.full((1, 4), np.nan), (2, 2)),
    ):
        refused(ModelError, "dropped", certificate, graph, [bad])


NAMED = {**lists.graphs(), **lists.higher_order(), **lists.with_globals()}


@pytest.mark.parametrize("name", NAMED)
def test_named_graphs_and_small_global_factors(name):
    graph = NAMED[name]
    keep = seeds.unary_and_globals(graph)
    holds(graph.keep(keep), graph, ignored(graph, keep))
    nothing = holds(graph, graph, [])
    assert nothing.bound == nothing.loose == 0.0
    if name in lists.with_globals():
        refused(ModelError, "global", ignored, graph, seeds.unary(graph))


def log_weights(drawn: models.Draft, kept: np.ndarray, left: np.ndarray | None) -> np.ndarray:
    """The product of the kept tables and what is left of the others, log, at every assignment."""
    sizes = tuple(drawn.n_states)
    ends = np.cumsum(sizes)[:-1]
    field = [] if left is None else enumerate(np.split(left, ends) if sizes else [])
    tables = [f for f, here in zip(drawn.factors, kept) if here]
    return naive.log_weights(sizes, [*tables, *(((v,), t) for v, t in field)]).ravel()


@st.composite
def drawn_models(draw):
    """Of any family, with constants among the factors; so small that all of it is summed."""
    kind = draw(st.sampled_from([k for k in models.SMALL if k not in ("huge", "tiny")]))
    drawn = models.SMALL[kind](np.random.default_rng(draw(SEEDS)))
    if draw(st.booleans()):
        drawn.table([], [draw(st.sampled_from([-5.0, 0.7]))])
    assume(np.prod(drawn.n_states, dtype=float) <= 600)
    return drawn


PROMISING = {
    "exact": Exact(method="clique-tree"),
    "joint-table": Exact(),
    "bp": BeliefPropagation(),
    "bp-damped": BeliefPropagation(damping=0.3, max_iters=300),
    "trw": TreeReweighted(max_iters=300),
    "mean-field": MeanField(),
    "gibbs": Gibbs(n_sweeps=30, burn_in=5, n_chains=2),
    "auto": Auto(),
    "components-exact": Components(Exact(method="clique-tree"), size=1),
    "components-bp": Components(BeliefPropagation(), size=1),
    "components-trw": Components(TreeReweighted(max_iters=300), size=1),
    "components-mean-field": Components(MeanField(), size=1),
}
OBJECTIVES = st.one_of(
    st.builds(MinJoint, st.sampled_from([0.0, 0.05, 10.0, np.inf])),
    st.builds(MinSize, st.sampled_from([0.0, 0.3, np.inf])),
    st.builds(MinDivergence, st.integers(0, 4)),
)


def total(log_weights: np.ndarray) -> float:
    return float(naive.logsumexp(log_weights)) if (log_weights > -np.inf).any() else -np.inf


def by_variable(states: list[int], p: np.ndarray) -> np.ndarray:
    whole = p.reshape(states)
    return np.concatenate([[], *(naive.table(whole, [v]) for v in range(len(states)))])


def keeps_its_word(result: Result, drawn: models.Draft, honest: bool = True) -> None:
    """Every rigorous statement of a result against sums over all assignments.

    What the solver says of the reduced model itself is one of them if it is ``honest``.
    """
    f = log_weights(drawn, np.ones(len(drawn.factors), dtype=bool), None)
    left = None if result.compensation is None else result.compensation.field
    h = log_weights(drawn, result.keep, left)
    log_z_f, log_z_h = total(f), total(h)
    magnitude = np.abs(np.concatenate([f[np.isfinite(f)], h[np.isfinite(h)], [1.0]])).max()
    slack = 1e-9 * magnitude
    alive = h > -np.inf
    assert not (alive < (f > -np.inf)).any(), "the reduced model forbids no more than the full one"

    kinds = [(result.log_z_full, result.log_z_full_kind, log_z_f)]
    if honest:
        kinds.append((result.log_z, result.marginals.log_z_kind, log_z_h))
    for value, kind, truth in kinds:
        if kind is LogZ.EXACT:
            assert value == pytest.approx(truth, abs=slack)
        elif kind is LogZ.LOWER:
            assert value <= truth + slack
        elif kind is LogZ.UPPER:
            assert value >= truth - slack
    assert (result.log_z_full_kind is LogZ.NONE) == bool(result.no_log_z_full)
    assert np.isfinite(result.log_z_full) or result.log_z_full_kind in (LogZ.NONE, LogZ.LOWER)

    found = result.certificate
    assert result.bound is not None, "so small a model has a bound"
    assert found.log_z == pytest.approx(log_z_h, abs=slack)
    low, high = result.log_z_bounds
    assert low <= log_z_f + slack
    assert log_z_f <= high + slack
    p = np.exp(h - log_z_h)
    if log_z_f == -np.inf or (alive & (f == -np.inf)).any():
        assert result.bound == np.inf
        return
    q = np.exp(f - log_z_f)
    exact = float((p[alive] * (h[alive] - log_z_h - f[alive] + log_z_f)).sum())
    assert exact <= result.bound + slack
    told = result.marginals.log_z_kind, result.log_z_full_kind
    if honest and told == (LogZ.EXACT, LogZ.LOWER):
        assert result.log_z_full == pytest.approx(log_z_f - exact, abs=10 * slack)
    off = np.abs(by_variable(drawn.n_states, p) - by_variable(drawn.n_states, q))
    most = np.minimum(np.sqrt(found.by_variable / 2), 1.0)  # Pinsker
    assert (off <= np.repeat(most, drawn.n_states) + 1e-9).all()
    assert result.intervals is result.interval is None, "nobody asked for them"
    if honest and result.marginals.log_z_kind is LogZ.EXACT:
        np.testing.assert_allclose(
            result.marginals.probs, by_variable(drawn.n_states, p), atol=1e-5
        )


@given(
    drawn_models(),
    st.sampled_from(sorted(PROMISING)),
    OBJECTIVES,
    st.sampled_from(["none", "unary", "forest", "some"]),
    st.sampled_from([None, "gain", "residual", "reverse"]),
    st.booleans(),
    st.integers(0, 2),
    st.booleans(),
    SEEDS,
)
@settings(
    max_examples=600 if thorough() else 60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_results_promise_only_what_holds(
    drawn, solver, objective, seed, score, compensated, refreshes, relaxed, rng
):
    graph = drawn.graph
    always = seeds.unary_and_globals(graph) & ~seeds.unary(graph)
    masks = {
        "none": always,
        "unary": seeds.unary_and_globals(graph),
        "forest": seeds.spanning_forest(graph) | seeds.unary_and_globals(graph),
        "some": random_keep(graph, rng, 0.5) | always,
    }
    recipe = Compensated(refreshes=refreshes, score=score) if compensated else Paper(score=score)
    if relaxed:
        recipe = Iterated(compensate=compensated, score=score, rounds=1 + refreshes)
    try:
        result = infer(graph, objective, PROMISING[solver], recipe=recipe, seed=masks[seed])
    except (RefusedError, ContradictionError):
        return
    keeps_its_word(result, drawn)
    json.dumps(result.to_dict(), allow_nan=False)


def test_a_constant_that_is_ignored_leaves_nothing_behind():
    drawn = models.Draft([2, 2])
    drawn.table([], [-5.0])
    drawn.table([0, 1], [[0.3, 0], [0, 0.2]])
    none = np.zeros(2, bool)
    for solver in (Exact(), MeanField(), Components(MeanField())):
        for recipe in (Compensated(refreshes=0), Compensated(refreshes=2)):
            result = infer(drawn.graph, MinJoint(10.0), solver, recipe=recipe, seed=none)
            keeps_its_word(result, drawn)
            assert result.log_z_full_kind is LogZ.LOWER
            assert result.log_z_full == pytest.approx(-3.48, abs=0.02)


def test_corrections_beyond_the_largest_odds():
    """Messages are cut at e^300, beliefs at e^575: their sum is not what stands in the field."""
    drawn = models.Draft([2] * 5)
    for v in range(1, 5):
        drawn.table([0, v], [[0.0, 0.0], [0.0, 290.0]])
    for v in range(1, 5):
        drawn.table([v], [0.0, 300.0])
    result = infer(drawn.graph, MinDivergence(0), Exact(), recipe=Compensated(refreshes=1))
    keeps_its_word(result, drawn)


def test_rigour_does_not_hang_on_a_name():
    """Any callable may call itself mean field, and mean field may hide inside another."""
    drawn = models.Draft([2, 2, 2])
    for scope, w in (([0, 1], 0.4), ([1, 2], 0.3), ([2, 0], -0.5)):
        drawn.table(scope, [[0.0, 0], [0, w]])
    drawn.fields(np.full(3, 0.3))

    def liar(graph, start=None):
        honest = BeliefPropagation()(graph)
        return Marginals.from_probs(graph, honest.probs, "MeanField(tol=0)", log_z=1000.0)

    result = infer(drawn.graph, MinDivergence(1), liar)
    assert result.log_z_full_kind is LogZ.ESTIMATE
    keeps_its_word(result, drawn)

    def boaster(graph, start=None):
        return replace(liar(graph), log_z_kind=LogZ.LOWER)

    keeps_its_word(infer(drawn.graph, MinDivergence(1), boaster), drawn, honest=False)

    def sure(graph, start=None):
        return replace(liar(graph), log_z_kind=LogZ.EXACT, graph=graph.tilt(np.ones(6)))

    keeps_its_word(infer(drawn.graph, MinDivergence(1), sure), drawn, honest=False)

    def wrapped(graph, start=None):
        return replace(MeanField()(graph, start), solver="mine")

    for solver in (MeanField(), wrapped, Components(MeanField(), size=1)):
        result = infer(drawn.graph, MinDivergence(1), solver)
        assert result.log_z_full_kind is LogZ.LOWER
        keeps_its_word(result, drawn)


def test_log_z_of_the_full_model_is_an_estimate_only_where_something_supports_it():
    rng = np.random.default_rng(0)
    weak = FactorGraph.grid(3 * rng.normal(size=(6, 6)), 1.0)
    result = infer(weak, MinJoint(0.01), recipe=Compensated())
    assert result.log_z_full_kind is LogZ.ESTIMATE
    assert result.log_z_full == pytest.approx(Exact()(weak).log_z, abs=0.2)
    low, high = result.log_z_bounds
    assert low <= Exact()(weak).log_z <= high
    strong = FactorGraph.grid(rng.normal(size=(6, 6)), 2.0, feature="equal")
    result = infer(strong, MinDivergence(40))
    assert result.log_z_full_kind is LogZ.NONE
    assert np.isnan(result.log_z_full)
    assert "nats open" in result.no_log_z_full
    found = result.to_dict()["reduction"]
    assert found["log_z_full"] is None
    assert found["no_log_z_full"] == result.no_log_z_full
    gibbs = infer(weak, MinJoint(0.01), Gibbs(n_sweeps=20))
    assert gibbs.log_z_full_kind is LogZ.NONE
    assert "gives none" in gibbs.no_log_z_full


STRIP = FactorGraph.grid(8 * np.random.default_rng(0).normal(size=(4, 30)), coupling=1.0)


@given(
    models.binary_graphs(max_variables=5, scale=2.0),
    st.integers(0, 5),
    st.sampled_from([Exact(), BeliefPropagation(max_iters=2), MeanField()]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=draws(60), deadline=None)
def test_no_answer_is_further_off(graph, m, solver, compensate, iterate) -> None:
    """Whatever was left out and whoever solved it: the interval holds the solver's error, too."""
    run = relax if iterate else infer
    recipe = Compensated(refreshes=0) if compensate else Paper()
    recipe = Iterated(compensate=compensate) if iterate else recipe
    result = run(graph, MinDivergence(m), solver, recipe=recipe)
    assert result.intervals is result.interval is None
    sure = result.certified(60.0, work=20_000)
    truth = naive.marginals(graph)
    assert (sure.intervals.lo <= truth + 1e-12).all()
    assert (truth <= sure.intervals.hi + 1e-12).all()
    assert np.abs(sure.marginals.probs - truth).max(initial=0.0) <= sure.interval + 1e-12
    assert sure.timings == result.timings, "intervals are not part of the method's time"


def test_what_the_result_says() -> None:
    result = infer(STRIP, MinJoint(0.05), Gibbs(n_sweeps=50, rng=0), certify=2.0)
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert content["reduction"]["interval"] == result.interval
    assert content["intervals"]["intervals"]["x3"]["lo"] == result.intervals[3][:, 0].tolist()
    assert "largest possible error" in result._repr_html_()
    again = pickle.loads(pickle.dumps(result))
    assert again.interval == result.interval
    np.testing.assert_array_equal(again.intervals.lo, result.intervals.lo)
    plain = infer(STRIP, MinJoint(0.05))
    assert plain.to_dict()["intervals"] is None
    assert "possible" not in plain._repr_html_()
    soon = relax(STRIP, MinJoint(0.05), recipe=Iterated(time_limit=5.0), certify=2.0)
    assert soon.interval < 0.05
    assert infer(FactorGraph.empty([]), MinJoint(0.1), certify=1.0).interval == 0.0


def test_candidates_that_are_never_built_and_wrong_seconds_are_refused() -> None:
    side = np.zeros(4, dtype=np.int64)
    seed = FactorGraph.pairwise([0.0, 0.5, 1.0, -3.0], [], [])
    join = Join(side, side, 0.5, 0.5)
    source = JoinTemplates([join], lambda _, scope: np.full(len(scope), 0.5))
    refused(
        RefusedError, r"minfer\.ground", infer, seed, MinJoint(1e-3), source=source, certify=1.0
    )
    lazy = infer(seed, MinJoint(0.01), source=source)
    assert lazy.n_untouched > 0
    refused(RefusedError, "never built", lazy.certified, 1.0)
    for run, seconds in itertools.product((infer, relax), (0, -1.0, "soon", True, float("nan"))):
        refused(SettingsError, "certify", run, STRIP, MinJoint(0.05), certify=seconds)
