"""Belief propagation where it must be exact, at its limits, and its warm starts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from draws import draws
from minfer import BeliefPropagation, ContradictionError, Exact, FactorGraph, LogZ, TreeReweighted
from minfer.engine.conditioning import condition
from minfer.engine.wiring import wire
from oracle import lists, models
from oracle import truth as naive

SCHEDULES = ["sequential", "flooding", "residual", "coloured"]


@given(models.table_graphs(tree=True, max_states=4, max_variables=6))
@settings(max_examples=draws(150))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_exact_on_trees(schedule, graph):
    if not np.isfinite(naive.log_z(graph)):
        with pytest.raises(ContradictionError):
            BeliefPropagation(schedule=schedule)(graph)
        return
    m = BeliefPropagation(schedule=schedule, tol=1e-12)(graph)
    assert m.converged
    assert m.log_z_kind is LogZ.EXACT
    np.testing.assert_allclose(m.probs, naive.marginals(graph), atol=1e-9)
    assert m.log_z == pytest.approx(naive.log_z(graph), rel=1e-9, abs=1e-9)
    for i in range(graph.n_factors):
        np.testing.assert_allclose(m.factor(i), naive.factor_marginal(graph, i), atol=1e-9)


@given(models.table_graphs(zeros=True))
@settings(max_examples=draws(150))
def test_log_space_agrees_with_linear(graph):
    """The same sweeps in linear numbers and in logs, sweep by sweep."""
    from minfer.engine.message_state import NO_WAKE, fresh_messages, refresh_cavities, watch_for
    from minfer.kernels.messages import sweeps as bp

    try:
        runs = []
        for log in (False, True):
            mesh = wire(condition(graph), log=log)
            s = fresh_messages(mesh)
            refresh_cavities(mesh, s)
            bp.sweeps(
                mesh.wiring, None, s, watch_for(-1.0), bp.SEQUENTIAL, 7, np.zeros(7),
                *mesh.kinds(), NO_WAKE,
            )  # fmt: skip
            if s.flag.any():
                return  # contradiction, or a range that asks for logs: covered elsewhere
            bp.read_beliefs(mesh.wiring, s, np.zeros(0), bp.WRITE, mesh.log)
            runs.append(s.bel.copy())
    except ContradictionError:
        return
    np.testing.assert_allclose(runs[0], runs[1], atol=1e-9)


@pytest.mark.parametrize("reweighted", [False, True])
@given(models.binary_graphs(max_variables=9))
@settings(max_examples=draws(150))
def test_sending_ahead_gives_the_bits_of_sending_everything(reweighted, graph):
    """After any number of sweeps: beliefs as they are, and messages once completed."""
    from minfer.engine.message_state import fresh_messages, watch_for
    from minfer.kernels.messages import odds

    rho = np.full(graph.n_factors, 0.7) if reweighted else None
    mesh = wire(condition(graph), rho)
    if mesh.wiring.field.size:
        return  # zeros: not in odds
    for sweeps in range(1, 8):
        runs = []
        for sent in (odds.NEVER, 0.0):
            s, watch = fresh_messages(mesh.changed(first=mesh.first.copy())), watch_for(-1.0)
            watch.control[odds.SENT] = sent
            weights = None
            if reweighted:
                s.weighted_log[:] = mesh.wiring.rho * np.log(s.m)
                weights = mesh.wiring.rho, s.weighted_log, True
            parts = mesh.wiring.odds
            made = odds.sweep_pairs(
                parts, s.m, s.bel, watch.m, watch.bel, watch.control, np.zeros(sweeps), 0.0,
                weights, None, None, None,
            )  # fmt: skip
            assert made == sweeps
            seen = s.bel.copy()
            odds.complete(parts, s.m, s.bel, watch.control, weights)
            assert (s.bel[1::2] == seen[1::2]).all()
            runs.append((seen[1::2], s.m.copy(), s.weighted_log.copy()))
        for a, b in zip(*runs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_run_over_variables_without_factors_has_room_for_its_beliefs():
    """Solvers answer such models before; a confirming update must not write past its arrays."""
    from minfer.solvers.propagation import Propagation

    field = np.array([0.0, 1.0, 2.0, 0.0])
    run = Propagation(wire(condition(FactorGraph.empty([2, 2]).tilt(field))), None, 1e-6, 0.0,
                      "sequential")  # fmt: skip
    assert len(run.watch.bel) == 4
    run.run(5, None)
    weights = np.exp(field.reshape(2, 2))
    expected = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(run.probs(), expected.ravel(), rtol=1e-12)


@pytest.mark.parametrize("name", lists.SOLVERS)
def test_no_solver_writes_into_the_model(name):
    """A field to which nothing is added is not copied."""
    graph = FactorGraph.grid(np.zeros((3, 3)), 0.5).tilt(np.linspace(-1.0, 1.0, 18))
    wide = FactorGraph.empty([4] * 4).tilt(np.linspace(0.0, 1.0, 16))
    wide = wide.add_potts([[0, 1], [1, 2], [2, 3], [3, 0]], 1.0)
    for g in (graph.keep(graph.arity == 2), wide):
        before = g.field.copy()
        lists.SOLVERS[name](g)
        np.testing.assert_array_equal(g.field, before)


@given(models.binary_graphs(max_variables=9))
@settings(max_examples=draws(100))
def test_slots_of_a_variable_lie_in_two_runs_the_nearest_neighbours_outside(graph):
    mesh = wire(condition(graph))
    w = mesh.wiring
    owner = np.repeat(np.arange(len(w.card)), np.diff(w.ptr).astype(int))
    np.testing.assert_array_equal(w.rev[w.rev], np.arange(len(w.rev)))
    np.testing.assert_array_equal(owner[mesh.slot], mesh.pair_scope)
    np.testing.assert_array_equal(w.rev[mesh.slot[:, 0]], mesh.slot[:, 1])
    for v in range(len(w.card)):
        others = owner[w.rev[int(w.ptr[v]) : int(w.ptr[v + 1])]]
        late = int((others > v).sum())
        assert (others[:late] > v).all()
        assert (others[late:] < v).all()
        assert not late or others[0] == others[:late].min()
        assert late == len(others) or others[-1] == others[late:].max()


def test_huge_and_tiny_numbers():
    """No overflow at high degree: a star is a tree, so the answer is known."""
    rng = np.random.default_rng(0)
    for scale in (0.1, 5.0, 40.0, 149.0, 400.0, 3000.0):
        leaves = 120
        edges = [[0, v] for v in range(1, leaves + 1)]
        weights = rng.normal(size=leaves) * scale
        fields = rng.normal(size=leaves + 1) * scale
        graph = FactorGraph.pairwise(fields, edges, weights, feature="and")
        m = BeliefPropagation()(graph)
        on = fields[0] + np.logaddexp(0, fields[1:] + weights).sum()
        off = np.logaddexp(0, fields[1:]).sum()
        expected = 1 / (1 + np.exp(np.clip(off - on, -745, 700)))
        assert m[0][1] == pytest.approx(expected, abs=1e-12)
        assert m.log_z == pytest.approx(np.logaddexp(on, off), rel=1e-12)
        assert m.converged
    # Two states each favoured 1e-400 to 1 by one half of the factors: the rest must decide.
    big = 950.0
    tables = [[[0.0, -big], [0.0, -big]]] * 3 + [[[-big, 0.0], [-big, 0.0]]] * 3
    scopes = [[v, 6] for v in range(6)]
    graph = FactorGraph.from_tables([2] * 7, [*scopes, [6]], [*tables, [0.0, 1.0]])
    m = BeliefPropagation()(graph)
    assert m[6][1] == pytest.approx(1 / (1 + np.exp(-1)), abs=1e-9)
    three = [np.pad(np.array(t), ((0, 0), (0, 1)), constant_values=-2000.0) for t in tables]
    graph = FactorGraph.from_tables([2] * 6 + [3], [*scopes, [6]], [*three, [0.0, 1.0, 0.0]])
    m = BeliefPropagation()(graph)
    assert m[6][1] == pytest.approx(1 / (1 + np.exp(-1)), abs=1e-9)
    # Probabilities shrink by 1e-3 a step over 600 steps: linear messages must switch to logs.
    n = 600
    step = np.log(np.array([[1.0, 1e-3], [1e-300, 1.0]]))
    graph = FactorGraph.from_tables(
        [2] * n,
        [[0]] + [[i, i + 1] for i in range(n - 1)],
        [np.log([1e-200, 1.0])] + [step] * (n - 1),
    )
    bp, exact = BeliefPropagation()(graph), Exact()(graph)
    np.testing.assert_allclose(bp.probs, exact.probs, atol=1e-10)
    assert bp.log_z == pytest.approx(exact.log_z, rel=1e-10)


def test_warm_start_survives_keep_and_evidence():
    rng = np.random.default_rng(2)
    tables = [rng.normal(size=(3, 3)) for _ in range(12)]
    edges = [[i, j] for i in range(6) for j in range(i)][:12]
    table_graph = FactorGraph.from_tables([3] * 6, edges, tables)
    for graph in (FactorGraph.grid(rng.normal(size=(12, 12)), 0.5), table_graph):
        mask = rng.random(graph.n_factors) < 0.9
        part = BeliefPropagation()(graph.keep(mask))
        full = BeliefPropagation()(graph)
        warm = BeliefPropagation()(graph, start=part)
        np.testing.assert_allclose(warm.probs, full.probs, atol=1e-5)
        assert warm.iterations <= full.iterations
        observed = graph.with_evidence({0: 1})
        seen, warm = BeliefPropagation()(observed), BeliefPropagation()(observed, start=full)
        np.testing.assert_allclose(warm.probs, seen.probs, atol=1e-5)
        # zeros that came with evidence must not outlive it
        warm = BeliefPropagation()(graph, start=seen)
        np.testing.assert_allclose(warm.probs, full.probs, atol=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("feature", ["equal", "table"])
def test_a_symmetric_model_gets_a_symmetric_answer(schedule, feature):
    """No field: every marginal is one half, and no state is favoured by how BP begins."""
    if feature == "equal":
        graph = FactorGraph.grid(np.zeros((5, 5)), 1.0)
    else:
        table = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])
        graph = FactorGraph.from_tables([3] * 4, np.array([[0, 1], [1, 2], [2, 3], [3, 0]]), table)
    m = BeliefPropagation(schedule=schedule)(graph)
    assert m.converged
    assert len(m.residuals) == m.iterations
    np.testing.assert_allclose(m.probs, 1 / graph.n_states[0], atol=1e-6)


@pytest.mark.parametrize("solver", [BeliefPropagation(), TreeReweighted()])
def test_a_tilted_graph_runs_on_the_wiring_it_has(solver):
    """The same factors under another field: same answer as from scratch, the old one unharmed."""
    rng = np.random.default_rng(11)
    graph = FactorGraph.grid(rng.normal(size=(5, 5)), 0.6)
    first = solver(graph)
    before = first.probs.copy()
    delta = rng.normal(size=50)
    again = solver(graph.tilt(delta), first)
    assert again.state.mesh.slot is first.state.mesh.slot
    fresh = solver(graph.tilt(delta))
    np.testing.assert_allclose(again.probs, fresh.probs, atol=1e-5)
    assert again.log_z == pytest.approx(fresh.log_z, abs=1e-5)
    np.testing.assert_array_equal(first.probs, before)
    assert first.log_z == pytest.approx(solver(graph).log_z, abs=1e-9)
    known = solver(graph.with_evidence({3: 1}), first)
    assert known.state.mesh.slot is not first.state.mesh.slot
    np.testing.assert_allclose(known.probs, solver(graph.with_evidence({3: 1})).probs, atol=1e-5)


@pytest.mark.parametrize("kind", ["pairs", "potts", "linear", "tables"])
@pytest.mark.parametrize(
    "solver",
    [
        *(BeliefPropagation(tol=1e-10, schedule=s) for s in SCHEDULES),
        BeliefPropagation(tol=1e-10, damping=0.3),
        TreeReweighted(tol=1e-10),
    ],
    ids=[*SCHEDULES, "damped", "reweighted"],
)
def test_observed_variables_are_not_swept(solver, kind):
    """Sliced out, and of no kind that makes a run of pairs mixed; the answers are those of a
    prepared run, in which they stay and say what they know."""
    from minfer.graph import grid_edges
    from minfer.kernels.messages.wiring import ASLEEP, GENERAL

    rng = np.random.default_rng(4)
    k, edges = (2 if kind == "pairs" else 5), grid_edges(8, 8)
    graph = FactorGraph.empty([k] * 64).add_tables(np.arange(64)[:, None], rng.normal(size=(64, k)))
    graph = {
        "pairs": lambda: graph.add_tables(edges, 0.5 * rng.normal(size=(len(edges), 2, 2))),
        "potts": lambda: graph.add_potts(edges, 0.5),
        "linear": lambda: graph.add_truncated_linear(edges, 0.4, 2),
        "tables": lambda: graph.add_tables(edges, 0.3 * rng.normal(size=(1, k, k))),
    }[kind]()
    known = {0: 1, 9: 0, 27: 1, 28: k - 1, 63: 0}
    mesh = wire(condition(graph.with_evidence(known)))
    assert (mesh.wiring.kind[list(known)] == ASLEEP).all()
    assert (mesh.wiring.kind == GENERAL).any() == (k > 2)
    assert (mesh.wiring.field.size > 0) == (k > 2)
    m = solver(graph.with_evidence(known))
    assert m.converged
    assert all(m[v][s] == 1.0 and m[v].sum() == 1.0 for v, s in known.items())
    if isinstance(solver, TreeReweighted):  # evidence changes the trees, and so the answer
        assert m.log_z >= Exact()(graph.with_evidence(known)).log_z
    else:
        other = solver.prepare(graph)(evidence=known)
        np.testing.assert_allclose(m.probs, other.probs, atol=1e-8)
        assert m.log_z == pytest.approx(other.log_z, abs=1e-7)
        again = solver.prepare(graph.with_evidence(known))(evidence={9: 0, 30: 1})
        want = solver(graph.with_evidence({**known, 30: 1}))
        np.testing.assert_allclose(again.probs, want.probs, atol=1e-8)
    everything = {v: v % 2 for v in range(64)}
    whole = solver(graph.with_evidence(everything))
    assert whole.log_z == pytest.approx(float(graph.log_score(np.arange(64) % 2)))


def test_log_messages_that_still_move_are_not_converged():
    """A recomputation that moves no probability may move a message from e^-500 to e^-900."""
    graph = FactorGraph.from_tables(
        [2, 3, 2, 2],
        [[0, 2], [1, 0], [0, 1], [2, 3, 0], [2, 1], [0, 2]],
        [
            [[2500.0, 0.0], [1100.0, 2500.0]],
            [[0.0, 600.0], [300.0, 1900.0], [1200.0, 1100.0]],
            [[1400.0, 300.0, 800.0], [2800.0, 2000.0, 0.0]],
            [[[1200.0, 2900.0], [700.0, 800.0]], [[0.0, 2500.0], [500.0, 1400.0]]],
            [[900.0, 100.0, 1600.0], [0.0, 2000.0, 3800.0]],
            [[3000.0, 3000.0], [3000.0, 0.0]],
        ],
    )
    for solver in (BeliefPropagation(damping=0.5), BeliefPropagation()):
        m = solver(graph)
        for i in range(graph.n_factors):
            joint, scope = m.factor(i), graph.scope(i).tolist()
            for a, v in enumerate(scope):
                own = joint.sum(axis=tuple(b for b in range(joint.ndim) if b != a))
                assert not m.converged or np.abs(own - m[v]).max() < 1e-3


@given(models.table_graphs(max_states=3, max_variables=7))
@settings(max_examples=draws(60))
def test_no_two_variables_of_a_colour_share_a_factor(graph):
    try:
        mesh = wire(condition(graph))
    except ContradictionError:
        return
    order, first = mesh.by_colour()
    colour = dict(zip(order.tolist(), np.repeat(np.arange(len(first) - 1), np.diff(first))))
    for i in range(graph.n_factors):
        mine = [colour[v] for v in graph.scope(i).tolist() if v in colour]
        assert len(set(mine)) == len(mine)


def test_a_coloured_sweep_of_a_grid_is_half_of_it_and_then_the_other():
    """Two colours; after n sweeps the beliefs are those of updating them in turn, all at once."""
    fields = np.random.default_rng(5).normal(size=(4, 5))
    graph = FactorGraph.grid(fields, 0.8, feature="and")
    mesh = wire(condition(graph))
    order, first = mesh.by_colour()
    assert [len(x) for x in np.split(order, first[1:-1])] == [10, 10]
    white = np.add.outer(np.arange(4), np.arange(5)) % 2
    m = {d: np.ones((4, 5)) for d in [(0, 1), (0, -1), (1, 0), (-1, 0)]}  # from the neighbour there
    w = np.exp(0.8)
    for sweep in range(1, 5):
        for colour in (0, 1):
            belief = np.exp(fields) * np.prod(list(m.values()), axis=0)
            for (dy, dx), into in m.items():
                for y, x in np.argwhere(white == colour):
                    if 0 <= y + dy < 4 and 0 <= x + dx < 5:
                        c = belief[y, x] / into[y, x]
                        m[-dy, -dx][y + dy, x + dx] = (1 + w * c) / (1 + c)
        answer = BeliefPropagation(schedule="coloured", max_iters=sweep, tol=1e-300)(graph)
        odds = np.exp(fields) * np.prod(list(m.values()), axis=0)
        np.testing.assert_allclose(answer.probs[1::2], (odds / (1 + odds)).ravel(), atol=1e-12)
