"""Solvers for models where belief propagation is wrong, against enumeration and Exact."""

from __future__ import annotations

import itertools
import math
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hsettings

import minfer
from draws import draws, few
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
    Windows,
)
from minfer.engine import elimination
from minfer.engine.conditioning import condition
from minfer.engine.message_state import MessageState
from minfer.graph import grid_edges
from minfer.kernels.compiling import jit as _jit
from minfer.solvers import mean_field, portfolio
from minfer.solvers.portfolio import Contender
from minfer.solvers.propagation import iterate
from minfer.solvers.windows import Rounds
from oracle import lists, models
from oracle import truth as naive
from refused import refused
from test_beside import Compiler

TWO_MODES = FactorGraph.grid(np.full((5, 5), 0.02), 3.0, feature="equal")
SLOPE, STRONG = (
    FactorGraph.grid(np.linspace(-1, 1, 9).reshape(3, 3), w, feature="equal") for w in (1.0, 4.0)
)


def choose(found, samples=None, soft=False):
    """What a portfolio takes."""
    return portfolio._choose(found, samples, soft)[0]


def mixed_grid(n: int, strength: float, seed: int = 0) -> FactorGraph:
    rng = np.random.default_rng(seed)
    edges = grid_edges(n, n)
    weights = strength * rng.normal(size=len(edges))
    return FactorGraph.pairwise(0.5 * rng.normal(size=n * n), edges, weights, feature="equal")


def possible(seed: int, each: int):
    """Drawn models of every kind with their true marginals."""
    n = len(models.FAMILIES)
    for drawn in models.possible(range(n * each * seed, n * each * (seed + 1)), most=300):
        yield drawn.graph, np.array(drawn.digits, dtype=np.float64)


@given(models.table_graphs())
@hsettings(max_examples=draws(80))
def test_a_join_graph_that_fits_is_exact(graph):
    if not np.isfinite(naive.log_z(graph)):
        refused(ContradictionError, "", JoinGraph(), graph)
        return
    m = JoinGraph()(graph)
    assert m.status is Status.EXACT
    assert m.log_z_kind is LogZ.EXACT
    np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-9)
    assert m.log_z == pytest.approx(naive.log_z(graph), rel=1e-9, abs=1e-8)
    for i in range(graph.n_factors):
        np.testing.assert_allclose(m.factor(i), naive.factor_marginal(graph, i), atol=1e-9)


def test_small_clusters_on_a_tree_are_exact_and_elsewhere_never_say_so():
    """A state that they give probability zero is impossible."""
    chain = FactorGraph.pairwise(np.linspace(-1, 1, 9), [[i, i + 1] for i in range(8)], 1.5)
    assert JoinGraph(max_cells=4)(chain).status is Status.EXACT
    n = 0
    for graph, p in possible(4, 6):
        m = JoinGraph(max_cells=3 if n % 2 else 6)(graph)
        if m.status is Status.EXACT:
            np.testing.assert_allclose(m.probs, p, atol=1e-8)
        else:
            assert m.log_z_kind is LogZ.ESTIMATE
        assert (p[m.probs == 0.0] < 1e-300).all()
        n += int((m.probs == 0.0).sum())
    assert n > 20


def test_a_join_graph_has_not_converged_while_messages_drift():
    """Where weights are huge: of 1,007 "converged" answers 13 moved by up to 1 in more sweeps."""
    settled = 0
    for seed in (90, 120, 210, 394, 713, 720, 848, 1184, *range(20)):
        rng = np.random.default_rng(seed)
        n, size = int(rng.integers(4, 10)), int(rng.integers(2, 4))
        edges = [[a, b] for a in range(n) for b in range(a) if rng.random() < 0.6]
        scale = float(rng.choice([30, 300, 1000, 3000]))
        tables = scale * np.round(rng.normal(size=(len(edges), size, size)), 1)
        graph = FactorGraph.from_tables([size] * n, edges, tables)
        graph = graph.tilt(scale * rng.normal(size=n * size) * rng.choice([0, 0.01, 1]))
        m = JoinGraph(max_cells=int(rng.choice([4, 9, 16])))(graph)
        if m.status is Status.CONVERGED:
            settled += 1
            m.state.links.sweep(300, np.zeros(300), 0.0, -1.0)
            np.testing.assert_allclose(m.state.links.read()[0], m.probs, rtol=0, atol=1e-3)
    assert settled > 5


def test_join_graph_keeps_its_limits():
    graph = mixed_grid(12, 2.0)
    m = JoinGraph(max_cells=16, max_iters=1)(graph)
    assert m.status is Status.MAX_ITERS
    assert m.iterations == 1
    assert "clusters of up to 16 cells" in m.note
    refused(SettingsError, "max_cells", JoinGraph, max_cells=0)


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
    refused(RefusedError, "no log Z", Clamped(Gibbs(n_sweeps=5)), TWO_MODES)
    refused(SettingsError, "", Clamped, k=-1)


@pytest.mark.parametrize("seed", [157, 227])
def test_runs_without_any_mass_on_what_is_allowed_are_refused(seed):
    """Mean field that is stuck on what is forbidden says log Z = -inf: no proof, and no weight."""
    rng = np.random.default_rng(seed)
    g = FactorGraph.empty([2] * 7)
    for _ in range(12):
        table = rng.normal(size=(2, 2))
        table[rng.random((2, 2)) < 0.3] = -np.inf
        g = g.add_tables([rng.permutation(7)[:2].tolist()], [table])
    assert MeanField(max_iters=50)(g).log_z == -np.inf
    for k in (0, 1):
        with suppress(ContradictionError, RefusedError):
            m = Clamped(MeanField(max_iters=50), k=k, restarts=0)(g)
            assert np.isfinite(m.probs).all()
            assert np.isfinite(m.log_z)


def test_a_mixture_with_one_inexact_run_is_not_exact():
    """x0 = 0 leaves one assignment, solved exactly; x0 = 1 is heavier, and its bound far below."""
    pairs = list(itertools.combinations(range(1, 10), 2))
    rng = np.random.default_rng(0)
    for _ in range(12):
        weights = 1e5 * rng.normal(size=len(pairs))
        free = FactorGraph.empty([2] * 10).add_tables(pairs, [[[w, -w], [-w, w]] for w in weights])
        fields = [[0.0, 1e5 * h] for h in rng.normal(size=9)]
        free = free.add_tables([[i] for i in range(1, 10)], fields)
        implied = [[[0.0, -np.inf], [0.0, 0.0]]] * 9
        tied = free.add_tables([[0, i] for i in range(1, 10)], implied)
        one = tied.with_evidence({0: 1})
        bound, truth = StructuredMeanField()(one).log_z, Exact()(one).log_z
        if truth - bound > 4000:
            break
    zero = Exact()(tied.with_evidence({0: 0})).log_z
    g = tied.add_tables([[0]], [[(bound + truth) / 2 - zero, 0.0]])
    m = Clamped(StructuredMeanField(), k=1, restarts=0)(g)
    assert m.log_z_kind is LogZ.LOWER
    assert m.status is not Status.EXACT


def test_ctrl_c_during_an_elimination_is_ctrl_c(monkeypatch):
    def interrupted(*_):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise SystemError("returned a result with an exception set") from error

    monkeypatch.setattr("minfer.kernels.cliques.elimination.eliminate", interrupted)
    refused(KeyboardInterrupt, "", Exact(), TWO_MODES)
    refused(KeyboardInterrupt, "", JoinGraph(), TWO_MODES)


def test_tempering_against_enumeration():
    """Zeros, ties, one-state variables, evidence, huge weights: within five standard errors."""
    far = total = 0
    for graph, p in possible(6, 4):
        try:
            m = Tempering(n_sweeps=800, burn_in=200, n_replicas=8)(graph)
        except RefusedError:
            continue  # a logical factor too large to write out, or no allowed state met
        least = np.finfo(float).tiny  # of what only a search could exclude
        assert (m.probs[p == 0.0] <= least).all(), "nothing forbidden is ever recorded"
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
    equal = [[0.0, -np.inf], [-np.inf, 0.0]]
    islands = FactorGraph.from_tables([2] * 3, [[0, 1], [1, 2], [0]], [equal, equal, [0.0, 1.0]])
    m = Tempering(n_sweeps=3000)(islands)
    assert m[2][1] == pytest.approx(np.e / (1 + np.e), abs=0.05)
    assert m.factor(0)[0, 1] == 0.0
    short = Tempering(n_sweeps=20, burn_in=20, n_replicas=3)(mixed_grid(12, 40.0))
    assert "too few to have seen every mode" in short.note
    cut = Tempering(n_sweeps=10**9, time_limit=0.2)(mixed_grid(12, 1.0))
    assert cut.status is Status.TIME_LIMIT
    assert cut.iterations >= 1


def test_few_ensembles_that_met_something_allowed_claim_no_certainty():
    """Softened, what is forbidden is e^9 times as likely as all that is allowed together."""
    g = FactorGraph.empty([2, 2]).add_tables([[0], [1]], [[0, 39.0], [0, 39.5]])
    g = g.add_tables([[0, 1]], [[[0, 0], [0, -np.inf]]])
    p = Exact()(g).probs
    off = answered = 0
    for seed in range(20):
        try:
            m = Tempering(n_sweeps=500, burn_in=100, rng=seed)(g)
        except RefusedError:
            continue
        answered += 1
        assert m.error_estimate is None or m.error_estimate > 0.0
        if m.error_estimate is None:
            assert "only 1 of 4 ensembles met one" in m.note
        else:
            off += np.abs(m.probs - p).max() > 3 * m.error_estimate
    assert answered > 3
    assert off <= 1


def exclusive(strength: float) -> FactorGraph:
    """Four variables that all want to be on, and no two may be."""
    fields = [[0, strength + 0.3 * i] for i in range(4)]
    pairs = list(itertools.combinations(range(4), 2))
    g = FactorGraph.empty([2] * 4).add_tables([[i] for i in range(4)], fields)
    return g.add_tables(pairs, [[[0, 0], [0, -np.inf]]] * 6)


@pytest.mark.drawn
@pytest.mark.parametrize("strength", [36.0, 37.0, 37.5])
def test_tempering_says_no_rather_than_nan(strength):
    g = exclusive(strength)
    for seed in few(range(6), 2):
        try:
            m = Tempering(rng=seed)(g)
        except RefusedError:
            continue
        assert np.isfinite(m.probs).all()
        assert m.error_estimate is None or m.error_estimate > 0.0


def test_belief_propagation_does_not_vouch_for_itself():
    """A mixture of one run is the same method; an answer that moves still is as good as its worst
    witness."""
    graph = FactorGraph.grid(np.zeros((3, 3)), 4.0, feature="equal")
    moving = BeliefPropagation(max_iters=1)(graph)
    alone = Clamped(BeliefPropagation(max_iters=1), k=0, restarts=0)(graph)
    assert not moving.converged
    found = [Contender("BeliefPropagation", moving), Contender("Clamped", alone)]
    assert choose(found).error_estimate == moving.error_estimate  # nothing is known
    tilted = BeliefPropagation()(graph.tilt(np.tile([0.0, 3.0], 9)))
    found.append(Contender("JoinGraph(max_cells=8)", replace(tilted, status=moving.status)))
    worst = max(np.abs(tilted.probs - c.answer.probs).max() for c in found[:2])
    assert choose(found).error_estimate == worst


def test_samples_do_not_outvote_a_united_message_passing_behind_zeros():
    """Nor, if they are coarse, what converged, unless it is far off."""
    settled = BeliefPropagation()(SLOPE)
    other = BeliefPropagation()(SLOPE.tilt(np.tile([0.0, 1.0], 9)))
    drawn = portfolio.JudgedSamples(replace(settled, probs=other.probs), 1e-4, True)
    names = "BeliefPropagation", "JoinGraph(max_cells=16)", "JoinGraph(max_cells=64)"
    found = [Contender(name, settled) for name in names]
    assert choose(found, drawn, soft=False).error_estimate > 0.05
    assert np.array_equal(choose(found, drawn, soft=False).probs, settled.probs)
    assert np.array_equal(choose(found, drawn, soft=True).probs, other.probs)
    united = [*found[:2], found[2]._replace(answer=other)]
    assert np.array_equal(choose(united, drawn, soft=False).probs, other.probs)
    apart = float(np.abs(settled.probs - other.probs).mean())
    moving = found[0]._replace(answer=replace(settled, status=Status.MAX_ITERS))
    for one, error, taken in (
        (found[0], apart / 3, settled),
        (found[0], apart / 9, other),
        (moving, apart / 3, other),
    ):
        assert error > portfolio.COARSE
        chosen = choose([one], drawn._replace(error=error))
        assert np.array_equal(chosen.probs, taken.probs)


def test_a_join_graph_that_still_moves_far_yields_to_belief_propagation_at_rest():
    rest = Contender("BeliefPropagation", BeliefPropagation(damping=0.5)(STRONG))
    moving = BeliefPropagation(max_iters=1)(STRONG)

    def join(last):
        answer = replace(moving, residuals=np.array([0.5, last]))
        return Contender("JoinGraph(max_cells=8)", answer)

    assert portfolio._best([rest, join(0.1)]) is rest
    near = join(0.01)
    assert portfolio._best([rest, near]) is near
    restless = rest._replace(answer=moving)
    assert portfolio._best([restless, join(0.1)]).name.startswith("JoinGraph")


def test_samples_without_round_trips_serve_where_a_soft_model_has_nothing_better():
    moving = BeliefPropagation(max_iters=1)(STRONG)
    settled = BeliefPropagation(damping=0.5)(STRONG)
    assert settled.converged > moving.converged
    drawn = Tempering(n_sweeps=50)(STRONG)
    samples = portfolio.JudgedSamples(drawn, 0.02, False)
    candidate = Contender("BeliefPropagation", moving)
    chosen, why = portfolio._choose([candidate], samples, soft=True)
    assert "no other vouches for itself" in why
    assert np.array_equal(chosen.probs, drawn.probs)
    assert chosen.error_estimate == min(1.0, portfolio.NO_TRIPS * drawn.error_estimate)
    vague = samples._replace(error=1.0)
    at_rest = candidate._replace(answer=settled)
    for found, soft in ((candidate, True), (candidate, False), (at_rest, True)):
        assert np.array_equal(choose([found], vague, soft).probs, found.answer.probs)


def test_a_seed_of_tempering_gives_the_same_bits_whatever_the_clock_says(monkeypatch):
    graph = FactorGraph.grid(np.linspace(-1, 1, 16).reshape(4, 4), 2.0)
    first = Tempering(n_sweeps=400, burn_in=60)(graph)
    monkeypatch.setattr(mean_field.Pace, "__exit__", lambda self, *error: setattr(self, "n", 7))
    again = Tempering(n_sweeps=400, burn_in=60)(graph)
    np.testing.assert_array_equal(again.probs, first.probs)
    assert again.log_z == first.log_z


def test_contradictions_are_found_or_refused():
    no = FactorGraph.from_tables([2, 2], [[0, 1], [0, 1]],
                                 [[[0.0, -np.inf], [-np.inf, -np.inf]],
                                  [[-np.inf, 0.0], [0.0, 0.0]]])  # fmt: skip
    refused(ContradictionError, "", JoinGraph(), no)
    refused(ContradictionError, "", StructuredMeanField(), no)
    with pytest.raises((ContradictionError, RefusedError)):
        Tempering(n_sweeps=20)(no)


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


def test_given_blocks():
    graph = mixed_grid(4, 1.0)
    rows = [list(range(4 * r, 4 * r + 4)) for r in range(4)]
    by_rows = StructuredMeanField(rows)(graph)
    forests = StructuredMeanField()(graph)
    assert MeanField()(graph).log_z < forests.log_z < Exact()(graph).log_z
    assert "2 blocks" in forests.note
    single = StructuredMeanField([])(graph)
    whole = StructuredMeanField([range(16)])(graph)
    assert single.log_z == pytest.approx(MeanField(tol=1e-9)(graph).log_z, abs=0.3)
    assert single.log_z <= by_rows.log_z + 0.1
    assert whole.status is Status.EXACT
    np.testing.assert_allclose(whole.probs, Exact()(graph).probs, atol=1e-9)
    refused(SettingsError, "in two of them", StructuredMeanField([[0, 1], [1]]), graph)
    hard = graph.add_exactly_one([[0, 5]])
    refused(RefusedError, "crosses the blocks", StructuredMeanField(rows), hard)
    with pytest.raises(RefusedError, match="of more than 7 cells"):
        StructuredMeanField([range(16)], max_cells=7)(graph)


def test_a_wide_logical_factor_within_one_block():
    """The chain that a wide factor becomes lies in the block of its variables."""
    rng = np.random.default_rng(3)
    graph = FactorGraph.empty([2] * 7).tilt(rng.normal(size=14)).add_parity([range(5)], 3.0)
    graph = graph.add_tables([[4, 5], [5, 6]], rng.normal(size=(2, 2, 2)))
    whole = StructuredMeanField([range(7)])(graph)
    assert whole.status is Status.EXACT
    np.testing.assert_allclose(whole.probs, naive.marginals(graph), atol=1e-12)
    assert whole.log_z == pytest.approx(naive.log_z(graph), abs=1e-12)
    two = StructuredMeanField([range(5), [5, 6]], tol=1e-12)(graph)
    assert two.converged
    assert two.log_z <= naive.log_z(graph)
    others = graph.with_evidence({5: 1})  # cuts the blocks apart, so a product is the truth
    apart = StructuredMeanField([range(5), [5, 6]], tol=1e-12)(others)
    np.testing.assert_allclose(apart.probs, naive.marginals(others), atol=1e-12)
    with pytest.raises(RefusedError, match=r"over x0, x1, x2, x3, x4 crosses the blocks"):
        StructuredMeanField([[0, 1, 2, 3]])(graph)


def test_with_a_time_limit_auto_finds_both_modes(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", time.process_time)  # whatever else the machine does
    p = Exact()(TWO_MODES).probs
    m = Auto(time_limit=0.5, exact_cells=0)(TWO_MODES)
    assert np.abs(m.probs - p).mean() < 0.05
    assert m.status is not Status.EXACT
    assert m.log_z_kind is LogZ.ESTIMATE
    assert m.error_estimate is not None
    assert "ran BeliefPropagation" in m.note
    assert "Tempering" in m.note


def test_only_with_a_time_limit_and_where_exact_is_not_cheap_others_run():
    for graph in (mixed_grid(6, 1.0), TWO_MODES):
        m = Auto(exact_cells=0)(graph)
        np.testing.assert_array_equal(m.probs, BeliefPropagation()(graph).probs)
        assert "Tempering" not in m.note
    chain = FactorGraph.pairwise(np.linspace(-1, 1, 40), [[i, i + 1] for i in range(39)], 1.5)
    m = Auto(time_limit=30.0, exact_cells=0)(chain)
    np.testing.assert_allclose(m.probs, Exact()(chain).probs, atol=1e-6)
    assert "Tempering" not in m.note
    assert Auto(time_limit=30.0)(TWO_MODES).status is Status.EXACT


def test_auto_answers_whatever_belief_propagation_does():
    every = {**lists.with_globals(), **lists.logical()}
    for graph in itertools.islice(every.values(), 0, None, 3):
        m = Auto(time_limit=0.15, exact_cells=0)(graph)
        assert np.isfinite(m.probs).all()
        np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=0.2)


@pytest.mark.parametrize("ready", ["none", "walks"])
def test_intervals_that_are_not_compiled_are_left_out_and_that_is_said(monkeypatch, ready):
    used = []

    def noted(graph, seconds, *, methods, workers):
        used.extend(methods)
        raise RefusedError("no")

    monkeypatch.setattr(portfolio, "LEAST_FOR_INTERVALS", 0.0)
    monkeypatch.setattr(_jit, "ready", lambda kernel: ready in kernel.py_func.__module__)
    monkeypatch.setattr("minfer.certified.search.intervals", noted)
    note = Auto(time_limit=0.3, exact_cells=0)(TWO_MODES).note
    left = [method for method in ("monotone", "walks", "boxes", "buckets") if method != ready]
    assert used == ([] if ready == "none" else [ready])
    assert f"not clipped to certified intervals by {', '.join(left)}, whose kernels" in note
    assert "minfer warmup intervals" in note


def test_no_limit_counts_compiling(monkeypatch):
    compiler = Compiler(monkeypatch)

    def sweeps(n, residuals):
        compiler.seconds += 1000.0
        residuals[:] = 1.0
        return n

    status, _ = iterate(sweeps, lambda: compiler.seconds > 5000.0, 10**6, 60.0, 1e-3)
    assert status is Status.CONVERGED
    search = elimination.find_order

    def slow(*args, **settings):
        compiler.seconds += 1000.0
        return search(*args, **settings)

    monkeypatch.setattr(elimination, "find_order", slow)
    assert Exact(time_limit=60.0)(TWO_MODES).status is Status.EXACT
    m = Auto(time_limit=60.0)(TWO_MODES)
    assert m.status is Status.EXACT
    assert "compiling kernels took 1000 s, which time_limit does not count" in m.note
    assert minfer.mpe(TWO_MODES, time_limit=60.0).steps == ("clique tree",)


def test_the_search_for_an_order_keeps_to_its_time():
    graph = mixed_grid(30, 1.0)
    links = elimination.adjacency(condition(graph))
    assert elimination.find_order(links).n_done == graph.n_variables
    cut = elimination.find_order(links, seconds=1e-4)
    assert cut.n_done < graph.n_variables
    assert cut.work < 1e-4 / elimination.SLOW_STEP + 10_000
    note = Auto(time_limit=1e-3)(graph).note
    assert "the search for an elimination order was given up" in note
    refused(RefusedError, "elimination order was given up", Exact(time_limit=1e-4), graph)


def test_a_clique_beyond_all_numbers_is_refused_at_once():
    """2^1100 cells do not fit a float, and counting the fill of a dense graph has a limit, too."""
    n = 1100
    edges = np.stack(np.triu_indices(n, 1), axis=1)
    graph = FactorGraph.pairwise(np.zeros(n), edges, np.full(len(edges), 0.01))
    refused(RefusedError, r"2\^1100", Exact(), graph)


def test_windows_that_never_left_belief_propagation_do_not_vouch_for_it():
    bp = BeliefPropagation()(TWO_MODES)
    rounds = Rounds(Windows(max_cells=64), TWO_MODES, condition(TWO_MODES), bp)
    rounds.until(np.inf)
    windows = rounds.answer(0.0)
    assert np.abs(windows.probs - bp.probs).max() < 0.005
    found = [Contender("BeliefPropagation", bp), Contender("Windows", windows)]
    chosen = choose(found)
    assert np.abs(chosen.probs - Exact()(TWO_MODES).probs).max() > 0.3
    assert chosen.error_estimate is None, "nothing is known of it"
    clamped = Contender("Clamped", Clamped(k=1)(TWO_MODES))
    assert choose([*found, clamped]).error_estimate > 0.3
    without_loops = portfolio._Windows(TWO_MODES, condition(TWO_MODES), 4.0, bp)
    assert without_loops.until(np.inf) == []


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
def test_a_window_over_everything_is_exact_and_of_one_variable_belief_propagation(name):
    graph = GRAPHS[name]
    whole, single = (rounds(graph, max_cells=n, core=k) for n, k in ((2**20, 3), (1, 1)))
    if whole is None or single is None:
        return
    np.testing.assert_allclose(single.probs, single.first.probs, atol=1e-9)
    if not any(g.form == "messages" for g in whole.model.groups):  # these are always cut
        np.testing.assert_allclose(whole.probs, naive.marginals(graph), atol=1e-9)


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
    begun = Rounds(Windows(), graph, condition(graph), BeliefPropagation(max_iters=1)(graph))
    assert "no window was finished in time" in begun.answer(0.0).note
    assert m.error_estimate is not None
    assert 0.0 <= m.error_estimate <= 1.0
    pair = int(np.flatnonzero(graph.arity == 2)[0])
    first, second = graph.scope(pair).tolist()
    np.testing.assert_allclose(m.factor(pair).sum(axis=1), m[first], atol=1e-6)
    np.testing.assert_allclose(m.factor(pair).sum(axis=0), m[second], atol=1e-6)
    for settings in ({"time_limit": 1e-3}, {"time_limit": 0.5, "max_cells": 2**60}):
        assert Windows(**settings)(spins(40, 2.0)).status is Status.TIME_LIMIT
    assert Windows()(spins(4, 1.0)).status is Status.EXACT
    refused(SettingsError, "max_cells", Windows, max_cells=0)
    cut = Windows(max_cells=SMALL, max_iters=3)(graph)  # of belief propagation
    assert (cut.status, cut.iterations) == (Status.MAX_ITERS, 3)
    assert "after 3 iterations" in cut.advice


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
