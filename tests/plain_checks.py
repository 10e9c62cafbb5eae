"""Answers of kernels that run as plain Python, against sums over all assignments or trees.

Models are as small as they can be: plain Python is a hundred times slower. Beside the answers, what
matters is which kernels are entered, so each check says what it is after.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from unittest.mock import patch

import numpy as np
import pytest

from exercise import small_graphs
from minfer import (
    BeliefPropagation,
    Dynamic,
    Exact,
    FactorGraph,
    Gibbs,
    MeanField,
    MinJoint,
    TreeReweighted,
    intervals,
    mpe,
)
from minfer.certified.search import all_methods
from minfer.engine.conditioning import condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import clique_tree
from minfer.engine.layout import flatten
from minfer.engine.support import possible
from minfer.errors import EvidenceError, RefusedError
from minfer.graph import grid_edges
from minfer.kernels.cliques import ranged_passes as whole
from minfer.kernels.cliques import streamed as cliques
from minfer.kernels.messages import spanning
from minfer.kernels.messages import vectors as general
from minfer.kernels.sampling import gibbs
from minfer.kernels.scores import ranked
from minfer.learn import ChainCRF
from minfer.parsing import Inference, marginals, tree_marginals
from minfer.solvers.differentiable_batch import record
from minfer.solvers.exact import assignments
from minfer.solvers.gradients import pull_back
from minfer.solvers.row_plans import RowPlan
from oracle import slices
from oracle import truth as naive
from test_trees import total

CHECKS: list[Callable[[], None]] = []
SCHEDULES = [{"schedule": name} for name in ("flooding", "residual", "coloured")]


def check(function):
    CHECKS.append(function)
    return function


def states_of(graph: FactorGraph, rng, n: int) -> np.ndarray:
    """Rows of evidence that the model allows: some variables of drawn assignments."""
    x, p = naive.joint(graph)
    rows = x[rng.choice(len(x), size=n, p=p)].astype(np.int32)
    return np.where(rng.random(rows.shape) < 0.4, rows, -1)


def given(graph: FactorGraph, row: np.ndarray) -> np.ndarray:
    """Marginals where a row is observed."""
    seen = {v: int(s) for v, s in enumerate(row) if s >= 0}
    return naive.marginals(graph.with_evidence(seen))


@check
def labels_of_all_kinds():
    """Thirty labels: vectors and what is left of them, few taps and many, linear numbers, logs."""
    solvers = (
        BeliefPropagation(max_iters=5),
        BeliefPropagation(damping=0.3, max_iters=3),
        BeliefPropagation(schedule="flooding", max_iters=3),
        BeliefPropagation(schedule="residual", max_iters=3),
        BeliefPropagation(schedule="coloured", max_iters=3),
        TreeReweighted(max_iters=3),
        TreeReweighted(max_iters=3, schedule="coloured"),
        MeanField(max_iters=2),
        Gibbs(n_sweeps=3, burn_in=1),
    )
    for graph in small_graphs(30)[9:]:
        for solver in solvers:
            answer = solver(graph)
            _ = answer.log_z
            assert all(abs(answer[v].sum() - 1.0) < 1e-9 for v in range(4))


@check
def instances_in_lanes():
    """Belief propagation in lanes: damped, with evidence, with weights or fields of each row."""
    rng = np.random.default_rng(6)
    tree = FactorGraph.grid(rng.normal(size=(1, 5)), 0.7)
    loopy = FactorGraph.grid(rng.normal(size=(3, 3)), 0.7)
    for graph, exact in ((tree, True), (loopy, False)):
        for damping in (0.0, 0.3):
            solver = BeliefPropagation(damping=damping, tol=1e-10, max_iters=200)
            run = solver.prepare(graph)
            rows = states_of(graph, rng, 19)
            field = rng.normal(size=(19, 2 * graph.n_variables))
            weights = graph.weights * rng.normal(size=(19, len(graph.weights)))
            for dtype, off in (("float64", 1e-7), ("float32", 1e-4)):
                seen = run.batch(evidence=rows, dtype=dtype).probs
                own = run.batch(weights=weights, field=field, dtype=dtype, statistics=True).probs
                for k in range(19):
                    other = graph.with_weights(weights[k]).tilt(field[k])
                    if exact:
                        np.testing.assert_allclose(seen[k], given(graph, rows[k]), atol=off)
                        np.testing.assert_allclose(own[k], naive.marginals(other), atol=off)
                    elif k < 3:
                        one = solver(other)
                        np.testing.assert_allclose(own[k], one.probs, atol=10 * off)


@check
def trees_in_lanes():
    """Sentences in lanes, by inverses and by sums, filled up or not, in both precisions."""
    rng = np.random.default_rng(7)
    for scale in (1.0, 30.0):
        scores = scale * rng.normal(size=(19, 5, 5))
        for single_root in (True, False):
            probs, log_z = tree_marginals(scores, projective=False, single_root=single_root)
            for k in range(19):
                mu, z = total(scores[k], False, single_root)
                np.testing.assert_allclose(probs[k], mu, atol=1e-9)
                np.testing.assert_allclose(log_z[k], z, atol=1e-9)
    long = rng.normal(size=(17, 17, 17))
    one, _ = tree_marginals(long[0], projective=False)
    for dtype, off in ((np.float64, 1e-9), (np.float32, 1e-4)):
        many, _ = tree_marginals(long.astype(dtype), projective=False)
        np.testing.assert_allclose(many[0], one, atol=off)


@check
def parses_in_logs():
    """Scores beyond the range of linear numbers, and pairs judged by the arcs' own scores."""
    rng = np.random.default_rng(8)
    for projective in (True, False):
        arcs, pairs = rng.normal(size=(5, 5)), rng.normal(size=(2, 5, 5, 5))
        for scale in (1.0, 400.0):
            full = marginals(scale * arcs, gp=scale * pairs[0], sib=pairs[1], projective=projective)
            np.testing.assert_allclose(full.probs[:, 1:].sum(axis=0), 1.0, atol=1e-2)
        for single_root in (True, False):
            unary = Inference(seed="unary", objective=MinJoint(1e-3), damping=0.2)
            marginals(arcs, gp=pairs[0], sib=pairs[1], inference=unary, single_root=single_root,
                      projective=projective)  # fmt: skip


@check
def sequences_in_logs():
    """Chains whose weights leave the range of linear numbers."""
    near = ChainCRF(max_iterations=2).fit([[["a"], ["b"], ["a"]]] * 3, [["x", "y", "z"]] * 3)
    far = [{"a": 1e4}, {"b": -1e4}, {"a": 3e3}]
    (probs,) = near.predict_marginals([far])
    np.testing.assert_allclose([sum(p.values()) for p in probs], 1.0, atol=1e-9)
    ChainCRF(max_iterations=2, c2=0.0).fit([far, far], [["x", "y", "z"], ["z", "y", "x"]])


@check
def odds_out_of_range():
    """Pairs so strong that products of odds are kept as mantissa and exponent."""
    rng = np.random.default_rng(10)
    star = FactorGraph.pairwise(
        rng.normal(size=9), [[0, k] for k in range(1, 9)], 120.0 * rng.choice([-1.0, 1.0], size=8)
    )
    ring = [[k, (k + 1) % 4] for k in range(4)]
    for graph in (star, star.tilt(np.tile([0.0, 400.0], 9))):
        for solver in (BeliefPropagation(), BeliefPropagation(schedule="flooding")):
            np.testing.assert_allclose(solver(graph).probs, naive.marginals(graph), atol=1e-6)
    wide = [[-300.0, 300.0, -200.0, 250.0], [280.0, -290.0, 310.0, -250.0]]
    for weights in wide:
        graph = FactorGraph.pairwise(rng.normal(size=4), ring, weights)
        for settings in ({}, {"damping": 0.2}, *SCHEDULES):
            probs = BeliefPropagation(max_iters=30, **settings)(graph).probs
            np.testing.assert_allclose(probs.reshape(4, 2).sum(axis=1), 1.0, atol=1e-9)


@check
def grids_of_labels():
    """The way that grids of labels have to themselves: fresh, one sweep, and from an answer."""
    rng = np.random.default_rng(11)
    along = grid_edges(4, 4)
    single = np.arange(16)[:, None]
    alone = FactorGraph.empty([9] * 16).add_tables(single, rng.normal(size=(16, 9)))
    grids = [
        alone.add_potts(along, 0.7),
        alone.add_truncated_linear(along, 0.4, 5.0),
        alone.add_truncated_quadratic(along, 0.2, 3.0),
        alone.add_tables(along, rng.normal(size=(len(along), 9, 9))),
        alone.add_potts(along, -0.7),
    ]
    for graph in grids:
        answer = BeliefPropagation()(graph)
        again = BeliefPropagation()(graph, start=answer)
        np.testing.assert_allclose(again.probs, answer.probs, atol=1e-4)
        slow = BeliefPropagation(schedule="flooding", max_iters=300)(graph)
        np.testing.assert_allclose(slow.probs, answer.probs, atol=1e-3)
        for settings in ({"max_iters": 1}, {"max_iters": 2}, {"damping": 0.3}):
            _ = BeliefPropagation(**settings)(graph).log_z
    path = FactorGraph.empty([5] * 4).add_tables(np.arange(4)[:, None], rng.normal(size=(4, 5)))
    ends = [[0, 1], [1, 2], [2, 3]]
    for tree in (path.add_potts(ends, 0.7), path.add_potts(ends, -0.7),
                 path.add_truncated_linear(ends, 0.4, 3.0),
                 path.add_truncated_quadratic(ends, 0.2, 3.0)):  # fmt: skip
        found = BeliefPropagation()(tree)
        np.testing.assert_allclose(found.probs, naive.marginals(tree), atol=1e-9)
        assert abs(found.log_z - naive.log_z(tree)) < 1e-9


@check
def cliques_in_chunks():
    """Cliques of many rows and chunks, whose inputs are bundled: rows and chunks are small here."""
    rng = np.random.default_rng(12)
    size = 7
    scopes = [[a, b] for a in range(5) for b in range(a + 1, 5) if (a, b) != (0, 4)]
    tables = rng.normal(size=(len(scopes), size, size))
    graph = FactorGraph.from_tables([size] * 5, scopes, tables)
    small = {"ROW": 8, "CHUNK": 32, "CHUNK_WIDE": 64, "MIN_RUN": 4}
    pairs = [[a, b] for a in range(12) for b in range(a)]
    all_pairs = FactorGraph.pairwise(rng.normal(size=12), pairs, rng.normal(size=66))
    forbidding = all_pairs.add_tables([[0, 3], [5, 9]], [[[0.0, -np.inf], [0.0, 1.0]]] * 2)
    for limits in (small, {**small, "ROW": 64}, {**small, "CHUNK": 1 << 14}):
        with patch.multiple(cliques, **limits):
            for model in (graph, all_pairs, forbidding):
                found = Exact(method="clique-tree")(model)
                np.testing.assert_allclose(found.probs, naive.marginals(model), atol=1e-9)
                assert abs(found.log_z - naive.log_z(model)) < 1e-9
                most = max(model.log_score(x).max() for x in assignments(model))
                assert abs(mpe(model).log_score - most) < 1e-9
            ask = rng.normal(size=len(found.probs))
            moved, joints, _ = naive.covariances(forbidding, ask)
            back = pull_back(found, ask)
            np.testing.assert_allclose(back.field, moved, atol=1e-9)
            np.testing.assert_allclose(back.weights[-8:], np.ravel(joints[-2:]), atol=1e-9)


@check
def plain_floats_where_ranges_are_wide():
    """Exact intervals: cliques in plain floats, and in numbers without a range."""
    rng = np.random.default_rng(13)
    for scale in (1.0, 150.0, 400.0):
        graph = FactorGraph.grid(scale * rng.normal(size=(3, 3)), scale * rng.normal(size=12))
        truth = naive.marginals(graph)
        for limits in ({"WORTH_PLAIN": 1.0}, {"WORTH_PLAIN": 1.0, "CHUNK": 2}, {"CHUNK": 64}):
            with patch.multiple(whole, **limits):
                found = intervals(graph, None, tol=0.0, methods=["exact"])
            assert (found.lo <= truth + 1e-12).all()
            assert (found.hi >= truth - 1e-12).all()
            assert (found.hi - found.lo).max() < 1e-6


@check
def edges_that_no_forest_has():
    """What a few forests leave out is covered by more of them."""
    edges = np.array([[a, b] for a in range(9) for b in range(a + 1, 9)], dtype=np.int32)
    for most in (1, 2, 5, 20):
        count = np.zeros(len(edges), dtype=np.int32)
        rounds = spanning.cover_with_forests(9, edges, 1, most, count)
        assert (count > 0).all()
        assert count.sum() == 8 * rounds


@check
def keys_in_a_table():
    """Rules find atoms by a hash where a table of all keys would be too large."""
    rng = np.random.default_rng(15)
    keys = rng.integers(10**12, size=20)
    table, hashed = np.full(32, -1, dtype=np.int32), np.zeros(32, dtype=np.int64)
    assert ranked.put(keys, np.arange(20, dtype=np.int32), table, hashed)
    for k, key in enumerate(keys):
        assert ranked._find(key, table, 0, hashed, 0, 32) == k
    assert ranked._find(10**12 + 1, table, 0, hashed, 0, 32) == -1
    assert not ranked.put(keys[:1], np.zeros(1, dtype=np.int32), table, hashed)


@check
def numbers_too_far_apart_to_subtract():
    """A field whose largest and lowest numbers have no finite difference."""
    far = np.array([1.7e308, -1.7e308, 0.0, 1.0, -np.inf, 2.0, 3.0, 4.0, 5.0])
    out, few = np.zeros(9), np.zeros(8)
    place = general.address
    top, _, mass = general.exp_from_top(place(far), place(out), 9, place(few))
    assert (top, mass) == (1.7e308, 1.0)
    np.testing.assert_array_equal(out, [1.0] + [0.0] * 8)


@check
def updates_without_room():
    """Models so large that the confirming update has no second array of messages: a limit of 0."""
    along = grid_edges(3, 4)
    rng = np.random.default_rng(16)
    labels = FactorGraph.empty([9] * 12).tilt(rng.normal(size=108)).add_potts(along, 0.5)
    for graph in [*small_graphs()[:10], labels]:
        for settings in ({}, {"damping": 0.2}, *SCHEDULES):
            solver = BeliefPropagation(max_iters=60, **settings)
            usual = solver(graph)
            with patch("minfer.solvers.propagation.KEEP", 0):
                found = solver(graph)
                _ = found.log_z
            if usual.converged and found.converged:
                np.testing.assert_allclose(found.probs, usual.probs, atol=1e-3)


@check
def gradients_of_cycles():
    """Adjoints where sweeps are needed, damped and reweighted."""
    rng = np.random.default_rng(19)
    ring = [[0, 1], [1, 2], [2, 3], [3, 0]]
    field = FactorGraph.empty([9] * 4).tilt(rng.normal(size=36))
    strong = FactorGraph.pairwise(rng.normal(size=4), ring, [200.0, 1.0, -150.0, 0.5])
    for graph in (field.add_potts(ring, 0.5), field.add_truncated_quadratic(ring, 0.1, 3.0),
                  field.add_tables(ring, 0.3 * rng.normal(size=(4, 9, 9))), strong):  # fmt: skip
        for solver in (BeliefPropagation(), BeliefPropagation(damping=0.3), TreeReweighted()):
            answer = solver(graph)
            found = pull_back(answer, np.arange(len(answer.probs)) / 10.0)
            assert np.isfinite(found.field).all()
    rows = BeliefPropagation().prepare(FactorGraph.grid(np.zeros((3, 3)), 0.5))
    many = record(rows, None, 2.0 * rng.normal(size=(11, 21)), rng.normal(size=(11, 18)))
    pulled = many.pull_back(rng.normal(size=(11, 18)), tol=1e-6, max_iters=50, weights=True)
    assert np.isfinite(pulled.field).all()
    assert np.isfinite(pulled.weights).all()


@check
def instances_that_stop_or_wait():
    """Lanes whose instances are strong: some never converge, some fail to be confirmed."""
    rng = np.random.default_rng(20)
    graph = FactorGraph.grid(rng.normal(size=(3, 4)), 1.0)
    tail = FactorGraph.pairwise(
        rng.normal(size=8),
        [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7], [7, 5]],
        1.0,
    )
    for model in (graph, tail):
        weights = 4.0 * rng.normal(size=(45, len(model.weights)))
        field = 30.0 * rng.normal(size=(45, 2 * model.n_variables))
        for limit, tol in ((1, 1e-4), (5, 1e-9), (60, 1e-12)):
            run = BeliefPropagation(max_iters=limit, tol=tol).prepare(model)
            for given_field in (None, field):
                found = run.batch(weights=weights, field=given_field, statistics=limit > 1)
                total_ = found.probs.reshape(45, -1, 2).sum(axis=2)
                np.testing.assert_allclose(total_, 1.0, atol=1e-9)


@check
def sweeps_in_stretches():
    """Exact intervals of grids that keep little of the way there for the way back."""
    rng = np.random.default_rng(22)
    grid = FactorGraph.grid(rng.normal(size=(4, 4)), rng.normal(size=24))
    alike = FactorGraph.grid(rng.normal(size=(4, 4)), 0.7)
    for graph in (grid, alike):
        truth = naive.marginals(graph)
        for limit in (0, 100, 1 << 20):
            with patch("minfer.certified.monotone.KEPT", limit):
                for name in all_methods():
                    with suppress(RefusedError):
                        found = intervals(graph, None, tol=0.0, work=20_000, methods=[name])
                        assert (found.lo <= truth + 1e-9).all(), name
                        assert (found.hi >= truth - 1e-9).all(), name


@check
def rows_that_contradict_or_are_planned_for():
    """Rows without any probability, rows with a state that is none, and many of one set."""
    hard = small_graphs()[3]  # variables 1 and 3 must not have the same number
    run = Exact(method="clique-tree").prepare(hard)
    evidence = np.full((9, 4), -1)
    evidence[4, [1, 3]] = 1
    found = run.batch(evidence=evidence, field=np.zeros((9, 11)))
    assert np.isnan(found.probs[4]).all()
    np.testing.assert_allclose(found.probs[0], naive.marginals(hard), atol=1e-9)
    flat = flatten(only_tables(condition(hard)))
    plan = RowPlan.make(flat, clique_tree(only_tables(condition(hard))))
    plan.load(flat.log_psi, flat.field, 0.0)
    with pytest.raises(EvidenceError):
        plan.run(evidence=np.full((1, 4), 7, dtype=np.int32))
    near = small_graphs(7)[9]
    many = np.full((300, 4), -1)
    many[:, 0] = np.arange(300) % 7
    probs = Exact(method="clique-tree").prepare(near).batch(evidence=many).probs
    for k in range(7):
        np.testing.assert_allclose(probs[k], given(near, many[k]), atol=1e-9)
    wide = -300.0 * (1 - np.eye(3))
    leaves = [[0.0, -90.0, -90.0], [-90.0, 0.0, -90.0], [-90.0, -90.0, 0.0]]
    star = FactorGraph.from_tables([3] * 5, [[0, 1], [0, 2], [0, 3], [0, 4]], [wide / 3] * 4)
    star = star.tilt(np.concatenate([[0.0] * 3, *leaves, [0.0, 1.0, 2.0]]))
    far = Exact(method="clique-tree").prepare(star).batch(evidence=np.full((3, 5), -1))
    np.testing.assert_allclose(far.probs[0], naive.marginals(star), atol=1e-9)
    assert abs(far.log_z[0] - naive.log_z(star)) < 1e-6


@check
def logic_of_automata_and_scopes_out_of_order():
    """States that a hard logical factor leaves; an automaton walked from its start."""
    one = FactorGraph.empty([2] * 5).add_exactly_one([[0, 1, 2, 3, 4]]).with_evidence({0: 1})
    hard = FactorGraph.empty([2] * 5).add_exactly_one([[0, 1, 2, 3, 4]])
    assert possible(condition(hard)).all()
    assert possible(condition(one)).sum() == 5
    whole = np.array([0, 1]), np.array([1, 1]), np.array([0, 4]), np.array([0, 1, 1, 1] * 2)
    for x, end in (([0, 0], 0), ([0, 1], 1), ([1, 0], 1)):
        assert gibbs._walk(*whole, np.array(x), 0, 2, 0) == end  # whether one of two is true


@check
def through_time():
    """Passes along sequences in linear numbers and in logarithms, against all joint states."""
    fair, far = [[0.5, 0.5], [0.3, 0.7]], [[1e-250, 1.0 - 1e-250], [0.6, 0.4]]
    for table in map(np.array, (fair, far)):
        leaf = np.array([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]])
        first = [([], np.array([0.5, 0.5])), ([0], leaf)]
        step = [([2], table), ([0], leaf)]
        model = Dynamic.hmm(first[0][1], table, leaf)
        symbols = [np.eye(3)[0], np.ones(3), np.eye(3)[1]]
        states = [np.ones(2), np.ones(2), np.array([1e-9, 1.0])]
        chain = slices.chain([2, 3], first, step)
        wanted = slices.solve(chain, [list(pair) for pair in zip(states, symbols)])
        rows = [{"symbol": 0}, {}, {"symbol": 1, "state": [1e-9, 1.0]}]
        found = model.smooth(rows, "state")["state"]
        np.testing.assert_allclose(found, slices.marginal(chain, wanted.smoothed, 0, 2), atol=1e-12)
        np.testing.assert_allclose(model.best(rows).log_score, wanted.best, rtol=1e-12)
