"""Many instances of one structure at once: each as the single engine answers it, alone or not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws
from minfer import BeliefPropagation, FactorGraph, ModelError, Status, TreeReweighted
from minfer.engine.conditioning import condition
from minfer.engine.wiring import wire
from minfer.solvers.lanes import LaneStructure, absorb, run_in_lanes
from refused import refused

FEATURES = ["and", "equal", "or", "implies"]


def mesh_of(graph):
    return wire(condition(graph))


def one_by_one(graphs, **settings):
    """The single engine's answers as arrays."""
    answers = [BeliefPropagation(**settings)(g) for g in graphs]
    probs = [np.reshape(m.probs, (-1, 2))[:, 1] for m in answers]
    return (
        np.array(probs),
        np.array([m.iterations for m in answers]),
        np.array([m.status is Status.CONVERGED for m in answers]),
        np.array([m.residuals[-1] if len(m.residuals) else 0.0 for m in answers]),
        np.array([m.log_z for m in answers]),
        answers,
    )


@st.composite
def structures(draw):
    """Edges: trees, loops, trees on loops, several components, parallel edges, lone variables."""
    n = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    edges = [[v, int(rng.integers(v))] for v in range(1, n) if rng.random() < 0.8]
    for _ in range(draw(st.sampled_from([0, 0, 1, 2, 6])) if n > 1 else 0):
        edges.append(rng.choice(n, 2, replace=False).tolist())  # may be a second one of a pair
    edges = [e if rng.random() < 0.5 else e[::-1] for e in edges]
    order = rng.permutation(len(edges))
    edges = np.array(edges, dtype=np.int32).reshape(-1, 2)[order]
    names = rng.permutation(n).astype(np.int32)
    return n, names[edges].reshape(-1, 2), rng


def the_same(answers, single, offset=0.0):
    probs, iterations, converged, residual, log_z, _ = single
    assert not answers.unsafe.any()
    np.testing.assert_array_equal(answers.iterations, iterations)
    np.testing.assert_array_equal(answers.converged, converged)
    np.testing.assert_allclose(answers.probs, probs, rtol=0, atol=1e-12)
    np.testing.assert_allclose(answers.residual, residual, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(answers.log_z + offset, log_z, rtol=1e-12, atol=1e-11)


@settings(max_examples=draws(60), deadline=None)
@given(
    structures(),
    st.integers(1, 40),
    st.sampled_from(FEATURES),
    st.sampled_from([0.0, 0.3, 1.0, 3.0]),
    st.sampled_from([0.0, 0.0, 0.4]),
    st.sampled_from([1e-6, 1e-3, 1e-9]),
    st.sampled_from([1, 2, 5, 200]),
)
def test_fields_differ(structure, n, feature, scale, damping, tol, max_iters):
    size, edges, rng = structure
    weights = rng.normal(size=len(edges)) * scale
    fields = rng.normal(size=(n, size)) * rng.choice([0.0, 0.5, 2.0])
    mesh = mesh_of(FactorGraph.pairwise(np.zeros(size), edges, weights, feature=feature))
    with_damping = {"tol": tol, "max_iters": max_iters, "damping": damping}
    answers = run_in_lanes(mesh, fields + mesh.weighed.lean, pairs=True, **with_damping)
    graphs = [FactorGraph.pairwise(f, edges, weights, feature=feature) for f in fields]
    single = one_by_one(graphs, **with_damping)
    the_same(answers, single, mesh.constant)
    for i in range(min(n, 3) if len(edges) else 0):
        want = single[-1][i].factors(size + np.arange(len(edges)))
        got = answers.pairs[i][np.argsort(mesh.pair_ids)].reshape(-1, 2, 2)
        np.testing.assert_allclose(got, np.reshape(want, got.shape), rtol=0, atol=1e-12)


@settings(max_examples=draws(40), deadline=None)
@given(structures(), st.integers(1, 20), st.sampled_from([0.3, 1.0, 3.0]), st.booleans())
def test_weights_differ(structure, n, scale, with_tables):
    size, edges, rng = structure
    half = len(edges) // 2
    parts = [(edges[:half], "equal"), (edges[half:], "and")]
    fields = rng.normal(size=(n, size))
    thetas = rng.normal(size=(n, len(edges))) * scale * (rng.random((n, len(edges))) < 0.8)
    tables = rng.normal(size=(n, len(edges), 4)) * scale

    def graph(i):
        if with_tables:
            scopes = [[v] for v in range(size)] + edges.tolist()
            values = [np.array([0.0, f]) for f in fields[i]] + list(tables[i].reshape(-1, 2, 2))
            return FactorGraph.from_tables([2] * size, scopes, values)
        out = FactorGraph.pairwise(fields[i], [], [])
        for (part, feature), theta in zip(parts, (thetas[i, :half], thetas[i, half:])):
            out = out.add_features(part, theta, feature) if len(part) else out
        return out

    mesh = mesh_of(graph(0))
    if with_tables:
        given_weights = [tables] if len(edges) else []
    else:
        given_weights = [x[:, :, None] for x in (thetas[:, :half], thetas[:, half:]) if x.shape[1]]
    if not given_weights:
        return
    new = absorb(mesh, given_weights)
    answers = run_in_lanes(mesh, fields + new.lean, new.w, new.first, max_iters=200)
    the_same(answers, one_by_one([graph(i) for i in range(n)], max_iters=200), new.constant)


def grids(n, size=6, coupling=1.0, seed=0):
    fields = np.random.default_rng(seed).normal(size=(n, size, size))
    mesh = mesh_of(FactorGraph.grid(np.zeros((size, size)), coupling))
    return mesh, fields, fields.reshape(n, -1) + mesh.weighed.lean


def bits(answers):
    return [answers.probs, answers.iterations, answers.converged, answers.residual, answers.log_z]


@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_neighbours_and_threads_change_no_bit(dtype, damping):
    mesh, _, odds = grids(400)
    structure = LaneStructure.of(mesh)
    more = {"dtype": dtype, "damping": damping, "max_iters": 300}
    together = run_in_lanes(structure, odds, **more)
    order = np.random.default_rng(1).permutation(len(odds))
    threads = run_in_lanes(structure, odds, workers=3, **more)
    mixed = run_in_lanes(structure, odds[order], **more)
    for a, b, c in zip(bits(together), bits(threads), bits(mixed)):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a[order], c)
    for some in ([0], [17], [3, 390], list(range(100, 111))):
        alone = run_in_lanes(structure, odds[some], **more)
        for a, b in zip(bits(together), bits(alone)):
            np.testing.assert_array_equal(a[some], b)


@settings(max_examples=draws(30), deadline=None)
@given(structures(), st.integers(1, 20))
def test_known_variables(structure, n):
    size, edges, rng = structure
    weights = rng.normal(size=len(edges))
    fields = rng.normal(size=(n, size))
    mesh = mesh_of(FactorGraph.pairwise(np.zeros(size), edges, weights, feature="equal"))
    known = np.where(rng.random((n, size)) < 0.3, rng.integers(0, 2, (n, size)), -1)
    odds = fields + mesh.weighed.lean
    odds[known == 1], odds[known == 0] = np.inf, -np.inf
    answers = run_in_lanes(mesh, odds, tol=1e-12, pairs=True)
    np.testing.assert_array_equal(answers.probs[known >= 0], known[known >= 0])
    single = run_in_lanes(mesh, odds, dtype=np.float32)
    np.testing.assert_array_equal(single.probs[known >= 0], known[known >= 0])
    # which log Z leaves out
    own = np.where(known == 1, fields + mesh.weighed.lean, 0.0).sum(axis=1)
    for i in range(n):
        graph = FactorGraph.pairwise(fields[i], edges, weights, feature="equal")
        m = BeliefPropagation(tol=1e-12)(graph.with_evidence(dict(_known(known[i]))))
        want = np.reshape(m.probs, (-1, 2))[:, 1]
        if not (answers.converged[i] and m.converged):
            continue
        np.testing.assert_allclose(answers.probs[i], want, rtol=0, atol=1e-9)
        np.testing.assert_allclose(single.probs[i], want, rtol=0, atol=1e-5)
        assert answers.log_z[i] + own[i] + mesh.constant == pytest.approx(m.log_z, abs=1e-9)
        for f, (a, b) in enumerate(mesh.pair_scope):
            joint = answers.pairs[i, f].reshape(2, 2)
            np.testing.assert_allclose(joint.sum(axis=1)[1], want[a], rtol=0, atol=1e-9)
            np.testing.assert_allclose(joint.sum(axis=0)[1], want[b], rtol=0, atol=1e-9)


def _known(states):
    return [(v, int(s)) for v, s in enumerate(states) if s >= 0]


@pytest.mark.parametrize("coupling", [0.3, 1.0, 2.5, 6.0, 12.0])
def test_float32_is_near_float64(coupling):
    mesh, _, odds = grids(60, coupling=coupling)
    structure = LaneStructure.of(mesh)
    a = run_in_lanes(structure, odds, pairs=True)
    b = run_in_lanes(structure, odds, dtype=np.float32, pairs=True)
    assert b.probs.dtype == np.float32
    np.testing.assert_array_equal(a.converged, b.converged)
    # tol leaves either of them some way off where sweeps hardly contract
    both = a.converged & (a.iterations < 100)
    np.testing.assert_allclose(b.probs[both], a.probs[both], rtol=0, atol=1e-5)
    np.testing.assert_allclose(b.log_z[both], a.log_z[both], rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(b.pairs[both], a.pairs[both], rtol=0, atol=1e-5)
    c = run_in_lanes(structure, odds, dtype=np.float32, tol=1e-9)  # beyond float32
    d = run_in_lanes(structure, odds, tol=1e-9)
    np.testing.assert_array_equal(c.probs, d.probs.astype(np.float32))
    np.testing.assert_array_equal(c.iterations, d.iterations)


def test_wide_numbers_are_right_or_left_to_the_caller():
    edges = [[0, 1], [1, 2], [2, 0], [2, 3]]
    rng = np.random.default_rng(0)
    n = 200
    fields = rng.normal(size=(n, 4)) * rng.choice([1.0, 30.0, 300.0, 1e4], (n, 1))
    thetas = rng.normal(size=(n, 4)) * rng.choice([1.0, 10.0, 40.0], (n, 1))
    mesh = mesh_of(FactorGraph.pairwise(np.zeros(4), edges, 1.0, feature="equal"))
    new = absorb(mesh, [thetas[:, :, None]])
    for dtype, close in ((np.float64, 1e-12), (np.float32, 1e-5)):
        answers = run_in_lanes(
            mesh, fields + new.lean, new.w, new.first, dtype=dtype, max_iters=100
        )
        load = np.zeros((n, 4))
        for f, (a, b) in enumerate(edges):
            load[:, a] += abs(new.w[:, f])
            load[:, b] += abs(new.w[:, f])
        np.testing.assert_array_equal(answers.unsafe, load.max(axis=1) > 100)
        assert 10 < answers.unsafe.sum() < n - 50
        assert np.isnan(answers.probs[answers.unsafe]).all()
        for i in np.flatnonzero(~answers.unsafe):
            m = BeliefPropagation(max_iters=100)(
                FactorGraph.pairwise(fields[i], edges, thetas[i], feature="equal")
            )
            assert m.converged == answers.converged[i]
            if m.converged:
                want = np.reshape(m.probs, (-1, 2))[:, 1]
                np.testing.assert_allclose(answers.probs[i], want, rtol=0, atol=close)
                z = answers.log_z[i] + new.constant[i]
                assert z == pytest.approx(m.log_z, rel=1e-6 if close > 1e-9 else 1e-12, abs=close)


@pytest.mark.parametrize("workers", [1, 2])
def test_time_limit(workers):
    mesh, _, odds = grids(2000, coupling=1.2)
    answers = run_in_lanes(mesh, odds, tol=0.0, max_iters=10**7, time_limit=0.3, workers=workers)
    assert answers.stopped
    assert not answers.converged.all()
    assert np.isfinite(answers.probs).all()
    assert not answers.unsafe.any()


def test_nothing_to_do_and_nothing_to_know():
    mesh, _, odds = grids(20)
    answers = run_in_lanes(mesh, odds[:0], pairs=True)
    assert answers.probs.shape == (0, 36)
    assert answers.pairs.shape == (0, 60, 4)
    lone = mesh_of(FactorGraph.pairwise([0.0, 0.0], [], []))
    answers = run_in_lanes(lone, [[0.0, np.log(3.0)], [np.inf, -np.log(3.0)]], pairs=True)
    np.testing.assert_allclose(answers.probs, [[0.5, 0.75], [1.0, 0.25]], rtol=1e-15)
    np.testing.assert_allclose(answers.log_z, np.log([8.0, 4.0 / 3.0]), atol=1e-13)
    assert answers.iterations.tolist() == [0, 0]
    assert answers.converged.all()
    odds[3, 5] = np.nan  # is left to the caller
    answers = run_in_lanes(mesh, odds)
    assert answers.unsafe.tolist() == [i == 3 for i in range(20)]
    assert np.isnan(answers.probs[3]).all()
    assert np.isfinite(np.delete(answers.probs, 3, 0)).all()


def test_what_does_not_fit_is_refused():
    mesh, _, odds = grids(3)
    refused(ModelError, r"log_odds must have shape \(3, 36\)", run_in_lanes, mesh, odds[:, 1:])
    refused(ModelError, r"w must have shape", run_in_lanes, mesh, odds, np.zeros((2, 60)))
    three = FactorGraph.from_tables([3, 2], [[0, 1]], [np.zeros((3, 2))])
    refused(ModelError, "one by one", run_in_lanes, mesh_of(three), np.zeros((1, 2)))
    m = TreeReweighted()(FactorGraph.grid(np.zeros((2, 2)), 1.0))
    refused(ModelError, "one by one", run_in_lanes, m.state.mesh, np.zeros((1, 4)))
