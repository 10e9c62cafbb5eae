"""Pairs of labels by distance: equal to their tables everywhere, and quick; sending ahead."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hsettings
from hypothesis import strategies as st

from draws import draws, thorough
from minfer import (
    BeliefPropagation,
    ContradictionError,
    Exact,
    FactorGraph,
    FormatError,
    Gibbs,
    Marginals,
    MeanField,
    MinferError,
    ModelError,
    RefusedError,
    SettingsError,
    TreeReweighted,
)
from minfer.engine.conditioning import condition
from minfer.engine.message_state import refresh_cavities
from minfer.engine.wiring import encoded, wire
from minfer.factors import Distances, Tables
from minfer.graph import grid_edges
from minfer.io.fg import format_fg, parse_fg
from minfer.io.native import format_native, parse_native
from minfer.io.uai import format_uai, parse_uai
from minfer.kernels.messages.labels import label_message, label_message_log
from minfer.reduction.gains import factor_scores
from minfer.solvers.propagation import Propagation
from oracle import lists, models
from oracle import truth as naive
from refused import all_refused

LABELS = st.sampled_from([1, 2, 3, 4, 7, 8, 9, 17, 33, 300])


@st.composite
def label_graphs(draw, labels=LABELS, max_variables=5, zeros=True):
    """Grids, trees and tangles of pairs of labels of every kind, with evidence and plain tables."""
    k, n = draw(labels), draw(st.integers(1, max_variables))
    if k > 33:
        n = min(n, 3)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.1, 1.0, 3.0, 40.0, 700.0]))
    graph = FactorGraph.empty([k] * n).tilt(rng.normal(size=n * k) * min(scale, 3.0))
    for _ in range(draw(st.integers(0, 3))):
        pairs = [[a, b] for a in range(n) for b in range(n) if a != b and rng.random() < 0.3]
        scope = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        weights = rng.normal(size=len(scope)) * scale
        if rng.random() < 0.5:
            weights = float(rng.normal() * scale)
        kind = rng.integers(6 if zeros else 4)
        far = float(rng.choice([0.5, 1.0, 2.0, 3.5, 30.0, np.inf]))
        if kind == 0:
            graph = graph.add_potts(scope, weights)
        elif kind == 1:
            graph = graph.add_truncated_linear(scope, weights, far)
        elif kind == 2:
            graph = graph.add_truncated_quadratic(scope, weights, far)
        elif kind == 3:
            taps = rng.normal(size=int(rng.integers(1, 6))) * min(scale, 40.0)
            if rng.random() < 0.3:
                taps = rng.normal(size=(len(scope), len(taps)))
            graph = graph.add_label_distances(scope, taps, 1.0 if len(scope) == 0 else weights)
        elif kind == 4:
            graph = graph.add_truncated_linear(scope, weights, far, hard=True)
        else:
            graph = graph.add_potts(scope, rng.choice([np.inf, -np.inf, 1.0], len(scope)))
    if n > 1 and rng.random() < 0.3:
        graph = graph.add_tables([[0, 1]], [rng.normal(size=(k, k))])
    if rng.random() < 0.3:
        graph = graph.with_evidence({int(rng.integers(n)): int(rng.integers(k))})
    return graph


def outcome(solver, graph: FactorGraph) -> Marginals | type:
    try:
        return solver(graph)
    except MinferError as error:
        return type(error)


# Few sweeps: where nothing converges, rounding grows from sweep to sweep.
SOLVERS = {
    "bp": BeliefPropagation(max_iters=6),
    "bp-flooding": BeliefPropagation(max_iters=4, schedule="flooding"),
    "bp-damped": BeliefPropagation(max_iters=5, damping=0.4),
    "bp-residual": BeliefPropagation(max_iters=3, schedule="residual"),
    "trw": TreeReweighted(max_iters=4),
    "mean-field": MeanField(max_iters=5),
    "gibbs": Gibbs(n_sweeps=20, burn_in=3, n_chains=2, rng=3),
    "exact": Exact(method="clique-tree"),
    "joint-table": Exact(),
}


@pytest.mark.parametrize("solver", SOLVERS)
@given(graph=label_graphs())
@hsettings(max_examples=draws(30))
def test_every_solver_answers_as_with_tables(solver, graph):
    plain = models.as_tables(graph)
    a, b = outcome(SOLVERS[solver], graph), outcome(SOLVERS[solver], plain)
    if isinstance(a, type) or isinstance(b, type):
        assert a is b
        return
    np.testing.assert_allclose(a.probs, b.probs, rtol=1e-12, atol=1e-12)
    if np.isfinite(b.log_z):
        assert a.log_z == pytest.approx(b.log_z, rel=1e-12, abs=1e-11)
    for i in range(min(graph.n_factors, 3)):
        np.testing.assert_allclose(a.factor(i), b.factor(i), atol=1e-12)


@given(graph=label_graphs(labels=st.sampled_from([2, 3, 5]), max_variables=4, zeros=False))
@hsettings(max_examples=draws(40))
def test_converged_answers_are_those_of_tables(graph):
    a, b = (
        BeliefPropagation(tol=1e-10)(graph),
        BeliefPropagation(tol=1e-10)(models.as_tables(graph)),
    )
    if a.converged and b.converged:
        np.testing.assert_allclose(a.probs, b.probs, atol=1e-6)
    exact = Exact()(graph)
    np.testing.assert_allclose(exact.probs, naive.marginals(models.as_tables(graph)), atol=1e-9)


def taps_of(kind: str, rng: np.random.Generator, k: int) -> np.ndarray:
    d = np.arange(k, dtype=float)
    w = float(rng.choice([0.01, 0.5, 3.0, 40.0]))
    cut = float(rng.integers(1, k + 1))
    return {
        "potts": np.array([w, 0.0])[: min(k, 2)],
        "repulsive": np.array([-w, 0.0])[: min(k, 2)],
        "equal": np.array([0.0, -np.inf])[: min(k, 2)],
        "differ": np.array([-np.inf, 0.0])[: min(k, 2)],
        "linear": -w * np.minimum(d, cut),
        "quadratic": -w * np.minimum(d, cut) ** 2 * 0.1,
        "rising": w * np.minimum(d, cut) * 0.1,
        "hard": np.where(d > cut, -np.inf, -w * d),
        "free": rng.normal(size=int(rng.integers(1, k + 1))) * w,
    }[kind]


KINDS = [
    "potts", "repulsive", "equal", "differ", "linear", "quadratic", "rising", "hard", "free",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_messages_lose_no_relative_accuracy(kind, log):
    """Against sums without rounding, where one label has nearly all the mass too."""
    rng = np.random.default_rng(5)
    for k in (2, 3, 8, 11, 40, 41, *([128, 300] if thorough() else [])):
        for peak in (1.0, 1e8, 1e40):
            taps = taps_of(kind, rng, k)
            taps = np.maximum(taps - taps.max(), -300.0 if taps.min() > -np.inf else -np.inf)
            taps = np.pad(taps, (0, 0))
            h = rng.random(k) + 1e-6
            h[rng.integers(k)] *= peak
            h /= h.sum()
            numbers, codes = encoded(taps[None])
            tmp = np.zeros(6 * k + 40)
            width = len(taps) - 1
            psi = taps[np.minimum(np.abs(np.subtract.outer(np.arange(k), np.arange(k))), width)]
            want = [math.fsum(math.exp(t) * x for t, x in zip(row, h)) for row in psi]
            if log:
                label_message_log(numbers[0], 0, int(codes[0]), width, np.log(h), 0, k, tmp)
                with np.errstate(divide="ignore"):
                    np.testing.assert_allclose(tmp[:k], np.log(want), rtol=1e-12, atol=1e-12)
            else:
                label_message(np.exp(numbers[0]), 0, int(codes[0]), width, h, 0, k, tmp)
                np.testing.assert_allclose(tmp[:k], want, rtol=1e-12)


@given(st.integers(0, 2**32 - 1), LABELS, st.sampled_from(KINDS))
@hsettings(max_examples=draws(40))
def test_sums_and_maxima_of_a_group(seed, k, kind):
    rng = np.random.default_rng(seed)
    taps = taps_of(kind, rng, k)
    graph = FactorGraph.empty([k, k, k]).add_label_distances([[0, 1], [2, 1]], taps)
    (group,) = graph.groups
    plain = Tables(group._ids, group._scope, group.shape, np.array(group.log_tables()))
    incoming = rng.normal(size=(2, 2 * k)) * rng.choice([0.1, 3.0, 50.0])
    incoming[rng.random(incoming.shape) < 0.2] = -np.inf
    rows = np.arange(2)
    for best in (False, True):
        a, b = np.empty((2, 2 * k)), np.empty((2, 2 * k))
        with np.errstate(invalid="ignore"):
            x, y = group.messages(rows, incoming, a, best), plain.messages(rows, incoming, b, best)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-11)
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-11)


def sweeps(graph: FactorGraph, n: int, ahead: bool, lean: bool) -> tuple:
    """Beliefs and messages after n sweeps of either engine, and whether it went on in logs."""
    from minfer.kernels.messages.wiring import BLANK, SENT

    run = Propagation(wire(condition(graph)), None, 1e-300, 0.0, "sequential")
    if not lean:
        run.watch, run.fits_vector_pairs = run.watch._replace(work=np.zeros(0)), False
        if run.is_fresh:
            run.is_fresh = False
            run.watch.control[[SENT, BLANK]] = 0.0
            run.messages.to_variable[:], run.messages.bel[:] = 1.0, 0.5
            run.messages = refresh_cavities(run.mesh, run.messages)
    if not ahead:
        run.watch.control[SENT] = 2.0  # never
    in_logs = run.mesh.log
    run.run(n, None)
    return run.probs().copy(), run.messages.to_variable.copy(), run.mesh.log != in_logs


@given(st.one_of(models.table_graphs(max_variables=6), label_graphs(max_variables=6)))
@hsettings(max_examples=draws(40))
def test_sending_ahead_is_sending_all_bit_for_bit(graph):
    try:
        if not condition(graph).groups:
            return  # nothing to propagate, and nobody would
        for n in (1, 2, 3, 4, 7):
            a, b = sweeps(graph, n, True, False), sweeps(graph, n, False, False)
            if a[2] or b[2]:  # a number that nobody reads may be what sends a run to logs
                np.testing.assert_allclose(a[0], b[0], rtol=1e-9, atol=1e-12)
                continue
            np.testing.assert_array_equal(a[0], b[0])
            np.testing.assert_array_equal(a[1], b[1])
    except ContradictionError:
        return


@given(label_graphs(max_variables=6, zeros=False), st.booleans())
@hsettings(max_examples=draws(40))
def test_lean_sweeps_are_the_general_ones(graph, plain):
    graph = models.as_tables(graph) if plain else graph
    if not len(wire(condition(graph)).vector_room):
        return
    for n in (1, 2, 3, 6):
        a, b = sweeps(graph, n, True, True), sweeps(graph, n, True, False)
        np.testing.assert_allclose(a[0], b[0], rtol=1e-10, atol=1e-12)


def test_a_large_model_is_confirmed_in_place(monkeypatch):
    """More numbers of messages than are kept: a sweep in each direction confirms."""
    graph = FactorGraph.empty([40] * 100).tilt(np.random.default_rng(2).normal(size=4000))
    graph = graph.add_truncated_linear(grid_edges(10, 10), 0.3, 3)
    usual = BeliefPropagation(tol=1e-7)(graph)
    monkeypatch.setattr("minfer.solvers.propagation.KEEP", 0)
    m = BeliefPropagation(tol=1e-7)(graph)
    assert m.converged
    np.testing.assert_allclose(m.probs, usual.probs, atol=1e-6)
    again = BeliefPropagation(tol=1e-7)(graph, start=m)
    np.testing.assert_allclose(again.probs, m.probs, atol=1e-6)
    assert again.iterations <= 4


@given(label_graphs(labels=st.sampled_from([2, 3, 6, 20])), st.integers(0, 2**32 - 1))
@hsettings(max_examples=draws(30))
def test_scores_are_those_of_tables(graph, seed):
    plain = models.as_tables(graph)
    q = np.random.default_rng(seed).random(int(graph.offsets[-1]))
    q /= np.repeat(np.add.reduceat(q, graph.offsets[:-1]), graph.n_states)
    alone = FactorGraph.empty(graph.n_states)
    marginals = Marginals.from_probs(alone, q, "drawn")
    for score in ("gain", "reverse", "residual"):
        a, b = (factor_scores(g, marginals, score=score) for g in (graph, plain))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        for g in graph.groups:
            if isinstance(g, Distances):
                assert (a[g.ids] <= g.score_bounds(score) * (1 + 1e-9) + 1e-12).all()


@pytest.mark.parametrize("solver", ["bp", "exact", "trw", "mean-field"])
def test_statistics_are_the_gradient(solver):
    rng = np.random.default_rng(6)
    graph = FactorGraph.empty([5] * 4).tilt(rng.normal(size=20))
    graph = graph.add_truncated_linear([[0, 1], [1, 2], [2, 3], [0, 3]], [0.5, 0.2, -0.3, 0.8], 3)
    m = {**lists.SOLVERS, "bp": BeliefPropagation(tol=1e-12)}[solver](graph)
    got = m.statistics()
    d = -np.minimum(np.abs(np.subtract.outer(np.arange(5), np.arange(5))), 3)
    np.testing.assert_allclose(got, [(m.factor(i) * d).sum() for i in range(4)], atol=1e-12)
    if solver in ("bp", "exact"):
        step = 1e-5
        for i in range(4):
            up, down = graph.weights, graph.weights
            up[i] += step
            down[i] -= step
            run = BeliefPropagation(tol=1e-12) if solver == "bp" else Exact()
            a, b = run(graph.with_weights(up)).log_z, run(graph.with_weights(down)).log_z
            assert got[i] == pytest.approx((a - b) / (2 * step), abs=1e-6)


@given(label_graphs())
@hsettings(max_examples=draws(30))
def test_structure_is_found_in_tables(graph):
    plain = models.as_tables(graph)
    found = plain.structured()
    assert found.n_factors == plain.n_factors
    for i in range(plain.n_factors):
        np.testing.assert_array_equal(found.scope(i), plain.scope(i))
        np.testing.assert_allclose(found.log_table(i), plain.log_table(i), rtol=1e-12, atol=1e-12)
    taps = {int(i): g.label_taps().shape[1] for g in graph.groups
            if isinstance(g, Distances) for i in g.ids}  # fmt: skip
    held = {int(i) for g in found.groups if isinstance(g, Distances) for i in g.ids}
    for i, n in taps.items():
        k = int(graph.n_states[0])
        assert i in held or k < 3 or n - 1 > k // 2


def test_structure_is_found_as_it_would_be_written():
    rng = np.random.default_rng(1)
    edges = grid_edges(3, 3)
    graph = FactorGraph.empty([8] * 9)
    potts = models.as_tables(graph.add_potts(edges, rng.normal(size=12))).structured()
    (group,) = potts.groups
    np.testing.assert_array_equal(group.profile, [[1.0, 0.0]])
    line = models.as_tables(graph.add_truncated_linear(edges, 0.5, 3)).structured()
    np.testing.assert_array_equal(line.groups[0].profile, [[0.0, -1.0, -2.0, -3.0]])
    free = graph.add_tables(edges, rng.normal(size=(1, 8, 8)))
    assert free.structured() is free
    table = 1.5 * np.eye(8)
    noisy = graph.add_tables(edges, (table + 1e-9 * rng.normal(size=(8, 8)))[None])
    assert noisy.structured() is noisy
    assert isinstance(noisy.structured(1e-6).groups[0], Distances)
    with pytest.raises(ModelError, match="tolerance"):
        graph.structured(-1.0)


@given(label_graphs(labels=st.sampled_from([1, 2, 3, 9])))
@hsettings(max_examples=draws(30))
def test_files(graph):
    back = parse_native("file", format_native(graph))
    assert [type(g) for g in back.groups] == [type(g) for g in graph.groups]
    for g, h in zip(graph.groups, back.groups):
        if isinstance(g, Distances):
            np.testing.assert_array_equal(g._theta, h._theta)
            np.testing.assert_array_equal(g._profile, h._profile)
    for read, write in ((parse_uai, format_uai), (parse_fg, format_fg)):
        try:
            text = write(graph)
        except RefusedError:  # numbers beyond what such a file can hold
            continue
        other = read("file", text)
        x = naive.assignments(graph)[:50]
        with np.errstate(invalid="ignore"):
            a, b = graph.log_score(x), other.log_score(x)
            np.testing.assert_allclose(a - a.max(), b - b.max(), rtol=1e-9, atol=1e-9)


def test_a_file_that_lies_is_refused():
    graph = FactorGraph.empty([4, 4]).add_potts([[0, 1]], 1.0)
    data = format_native(graph)
    for old, new in ((b'"taps":2', b'"taps":7'), (b'"rows":1', b'"rows":5')):
        with pytest.raises(FormatError):
            parse_native("file", data.replace(old, new))


def test_mistakes_are_errors():
    g = FactorGraph.empty([3, 3, 4])
    pair = [[0, 1]]
    all_refused(
        (lambda: g.add_potts([[0, 2]], 1.0), ModelError, r"factor 0: .* \[3, 4\] states"),
        (lambda: g.add_potts([[0, 1, 2]], 1.0), ModelError, "pairs of variables"),
        (lambda: g.add_potts(pair, [1.0, 2.0]), ModelError, "weights of shape"),
        (lambda: g.add_potts(pair, np.nan), ModelError, "factor 0: .* NaN"),
        (lambda: g.add_potts(pair, 1e301), ModelError, "factor 0: .*within"),
        (lambda: g.add_potts([[0, 0]], 1.0), ModelError, "factor 0"),
        (lambda: g.add_truncated_linear(pair, 1.0, 0), ModelError, "linear: the truncation"),
        (lambda: g.add_truncated_quadratic(pair, 1.0, "far"), ModelError, "truncation"),
        (lambda: g.add_label_distances(pair, 3.0), ModelError, "list by distance"),
        (lambda: g.add_label_distances(pair, [0.0, np.inf]), ModelError, "factor 0: .* not inf"),
        (lambda: g.add_label_distances(pair, np.zeros((3, 2))), ModelError, "log-weights of shape"),
        *((lambda a=a: getattr(g, a)(pair, 1.0, 2.0, hard="no"), SettingsError,
           f"{a}: hard must be True or False, not 'no'")
          for a in ("add_truncated_linear", "add_truncated_quadratic")),
    )  # fmt: skip
