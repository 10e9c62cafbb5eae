"""Converged, exact, bound: what an answer is called is a theorem, and these try to refute it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from draws import blocks, draws, few, thorough
from minfer import (
    BeliefPropagation,
    ContradictionError,
    Exact,
    FactorGraph,
    LogZ,
    Marginals,
    MeanField,
    MinDivergence,
    ModelError,
    Status,
    StructuredMeanField,
    TreeReweighted,
    infer,
)
from minfer.engine.message_state import MessageState
from oracle import models, promises
from oracle import truth as naive
from refused import all_refused

SCHEDULES = ["sequential", "flooding", "residual", "coloured"]


@pytest.mark.drawn
@pytest.mark.parametrize("block", range(blocks(20)))
def test_drawn_answers_promise_only_what_holds(block):
    """A hundred cases each."""
    for number in few(range(100 * block, 100 * block + 100), 12):
        promises.check(number)


def solvers() -> list:
    return [*(BeliefPropagation(schedule=s) for s in SCHEDULES), TreeReweighted()]


def right(answer: Marginals, atol: float = 1e-9) -> None:
    """Converged, and equal to the sums over all assignments."""
    assert answer.status is Status.CONVERGED
    assert answer.log_z_kind is LogZ.EXACT
    np.testing.assert_allclose(answer.probs, naive.marginals(answer.graph), atol=atol)
    assert answer.log_z == pytest.approx(naive.log_z(answer.graph), abs=1e-9)


@pytest.mark.parametrize("solver", solvers(), ids=repr)
def test_a_uniform_root_hides_nothing(solver):
    """The first sweep moved no belief: it was called converged after 1, p(x1) = .5 for .7025."""
    tables = [np.log([[0.05, 0.95], [0.5, 0.5]]), np.log([[0.95, 0.05], [0.05, 0.95]])]
    graph = FactorGraph.from_tables([2] * 3, [[2, 0], [0, 1]], tables)
    answer = solver(graph)
    right(answer)
    assert answer[1][1] == pytest.approx(0.7025)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_zero_fields_hide_nothing(schedule):
    solver = BeliefPropagation(schedule=schedule)
    right(solver(FactorGraph.pairwise([0, 0, 0], [[0, 1], [1, 2]], [-4, -9.9], feature="implies")))
    grid = FactorGraph.grid(np.zeros((10, 10)), 1.0, feature="and")
    answer = solver(grid)
    assert answer.converged
    assert answer.log_z == pytest.approx(Exact()(grid).log_z, abs=1e-3)  # it was off by 2.35


def test_damping_hides_nothing():
    pair = FactorGraph.pairwise([-7, 18.9], [[0, 1]], [8.2], feature="equal")
    right(BeliefPropagation(damping=0.3)(pair))
    edges = [[1, 0], [2, 0], [3, 0], [3, 2]]
    graph = FactorGraph.pairwise([34.1, 7.8, 11.8, -24.5], edges, 20.8, feature="and")
    for max_iters in (1, 2, 3, 10, 1000):  # it said 106.68
        bound = TreeReweighted(damping=0.3, max_iters=max_iters)(graph)
        assert bound.log_z_kind is LogZ.UPPER
        assert bound.log_z >= naive.log_z(graph)


@pytest.mark.parametrize(
    "solver", [BeliefPropagation(tol=1e-3), TreeReweighted(tol=1e-3)], ids=repr
)
def test_tiny_pulls_that_add_up(solver):
    """A hub with 2,000 leaves, each within the tolerance: p(hub) is 0.98, not 0.5."""
    leaves = 2000
    fields, edges = np.r_[0.0, np.full(leaves, 3e-3)], [[0, v] for v in range(1, leaves + 1)]
    answer = solver(FactorGraph.pairwise(fields, edges, 10.0, feature="equal"))
    on = leaves * np.logaddexp(10.0 + 3e-3, 0.0)
    off = leaves * np.logaddexp(10.0, 3e-3)
    assert answer[0][1] == pytest.approx(1 / (1 + np.exp(off - on)), abs=1e-9)
    assert answer.log_z == pytest.approx(np.logaddexp(on, off), rel=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("core", [0, 3])
def test_branches_are_collected_and_distributed(schedule, core):
    """2,000 branches leaf-mid-root of tiny fields pass any test of one update."""
    fields, edges = [0.0] * max(core, 1), []
    for _ in range(2000):
        n = len(fields)
        fields += [3e-3, 0.0]
        edges += [[n, n + 1], [n + 1, 0]]
    weights = np.full(len(edges), 10.0)
    if core:
        edges += [[0, 1], [1, 2], [2, 0]]
        weights = np.r_[weights, 0.3, 0.3, 0.3]
    graph = FactorGraph.pairwise(fields, edges, weights, feature="equal")
    answer, truth = BeliefPropagation(tol=1e-3, schedule=schedule)(graph), Exact()(graph)
    assert answer.converged
    np.testing.assert_allclose(answer.probs, truth.probs, atol=1e-3 if core else 1e-9)
    assert (answer.log_z_kind is LogZ.EXACT) == (core == 0)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_beliefs_alone_are_not_enough(schedule):
    """A 4-cycle whose first flooding iteration moves no belief, and whose second moves .355."""
    cycle = [[0, 1], [1, 2], [2, 3], [3, 0]]
    graph = FactorGraph.pairwise([2, 0, -2, 0], cycle, 2.0, feature="equal")
    answer = BeliefPropagation(schedule=schedule)(graph)
    assert answer.converged
    assert answer.iterations > 3
    assert promises.Plain.of(graph, answer).repeat(answer) <= 1e-6
    more = BeliefPropagation(schedule=schedule, tol=1e-12)(graph)
    np.testing.assert_allclose(answer.probs, more.probs, atol=1e-5)


def test_large_models_are_confirmed_in_place(monkeypatch):
    """Without room for a second set of messages: one sweep in each direction."""
    rng = np.random.default_rng(0)
    graph = FactorGraph.grid(rng.normal(size=(12, 12)), 0.7)
    tables = FactorGraph.from_tables(
        [3] * 9, [[i, (i + 1) % 9] for i in range(9)], [rng.normal(size=(3, 3)) for _ in range(9)]
    )
    for model in (graph, tables):
        for damping in (0.0, 0.5):
            for schedule in SCHEDULES:
                solver = BeliefPropagation(tol=1e-7, schedule=schedule, damping=damping)
                with_room = solver(model)
                with monkeypatch.context() as patch:
                    patch.setattr("minfer.solvers.propagation.KEEP", 0)
                    without = solver(model)
                assert with_room.converged
                assert without.converged
                assert without.state.before is None
                np.testing.assert_allclose(with_room.probs, without.probs, atol=1e-5)


def test_what_further_iteration_would_move_is_estimated():
    rng = np.random.default_rng(1)
    for coupling in (0.3, 0.6, 1.0):
        graph = FactorGraph.grid(rng.normal(size=(20, 20)), coupling)
        for schedule in ("sequential", "flooding"):
            rough = BeliefPropagation(tol=1e-4, schedule=schedule)(graph)
            fine = BeliefPropagation(tol=1e-13, max_iters=5000)(graph)
            off = np.abs(rough.probs - fine.probs).max()
            assert rough.still_to_move is not None
            assert off / 20 <= rough.still_to_move
            assert rough.to_dict()["still_to_move"] == rough.still_to_move
    assert BeliefPropagation(max_iters=1)(graph).still_to_move is None
    assert BeliefPropagation()(FactorGraph.pairwise([1, 0], [[0, 1]], [1.0])).still_to_move == 0


@pytest.mark.parametrize("weight", [30.0, 300.0, 2740.0])
@pytest.mark.parametrize("table", [False, True])
def test_mean_field_has_not_converged_if_one_update_would_move_it(weight, table):
    """Beside a saddle point two sweeps move next to nothing, and the next one moves a lot."""
    told = 0
    for field in 10.0 ** np.arange(-17.0, -5.0):
        graph = FactorGraph.pairwise([field, field], [[0, 1]], [weight], feature="equal")
        if table:  # a third state that is never taken keeps the pair from its short form
            graph = FactorGraph.empty([3, 3]).tilt([0.0, field, -2e4] * 2)
            graph = graph.add_tables([[0, 1]], weight * np.eye(3)[None])
        joint = naive.log_scores(graph).reshape(graph.n_states)
        for solver in (MeanField(tol=1e-6), StructuredMeanField([], tol=1e-6)):
            answer = solver(graph)
            told += answer.converged
            for v in range(2):
                energy = (joint if v == 0 else joint.T) @ answer[1 - v]
                new = np.exp(energy - naive.logsumexp(energy))
                assert np.abs(new - answer[v]).max() <= 1e-6 + 1e-11 or not answer.converged
    assert told > 12


@pytest.mark.parametrize("size", [1e15, 1e30, 1e100, 9e299])
def test_huge_fields_on_trees_and_loops(size):
    """They overflowed the exponent of scaled products: a loop without end."""
    for edges in ([[0, 1]], [[0, 1], [1, 2], [2, 0]]):
        graph = FactorGraph.pairwise([size, -size, size], edges, 1.0, feature="and")
        for solver in (BeliefPropagation(), TreeReweighted(), MeanField()):
            answer = solver(graph)
            ones = [answer[v][1] for v in range(3)]
            np.testing.assert_allclose(ones, [1.0, 0.0, 1.0], atol=1e-100)


@pytest.mark.parametrize("size", [-1e8, -1e15, -9e299, 1e17])
def test_log_z_beside_huge_fields(size):
    """It was -0.69, and exact: digits were lost with the state that is never taken."""
    graph = FactorGraph.empty([2, 2]).add_tables([[0, 1]], [np.zeros((2, 2))])
    for field in ([size, 0.0], [0.0, -abs(size)]):
        truth = max(*field, 0.0) + np.log(2.0)
        for solver in (BeliefPropagation(), TreeReweighted()):
            assert solver(graph.tilt([*field, 0.0, 0.0])).log_z == pytest.approx(truth, rel=1e-9)
    run = BeliefPropagation().prepare(graph.add_tables([[0, 1]], [[[0.0] * 2, [size] * 2]]))
    for state in (0, 1):  # what the table says of the known variable counts once
        assert run({0: state}).log_z == pytest.approx(size * state + np.log(2.0), rel=1e-9)


@pytest.mark.parametrize("solver", solvers(), ids=repr)
def test_a_start_without_some_unary_factors(solver):
    tables = [[0.0, 1.0]], list(np.random.default_rng(0).normal(size=(3, 2, 2)))
    graph = FactorGraph.empty([2] * 3).add_tables([[0]], tables[0])
    graph = graph.add_tables([[0, 1], [1, 2], [0, 2]], tables[1])
    graph = graph.add_tables([[1], [2]], [[0.5, 0.0], [0.2, 0.0]])
    answer, cold = solver(graph, solver(graph.keep([0, 1, 2, 3]))), solver(graph)
    for i in range(graph.n_factors):  # it was an IndexError
        np.testing.assert_allclose(answer.factor(i), cold.factor(i), atol=1e-5)


def test_numbers_that_overflow_when_added_are_refused():
    empty, words = FactorGraph.empty([2, 2]), "within 1e300"
    all_refused(
        (lambda: FactorGraph.pairwise([1e308, 0.0], [[0, 1]], [1.0]), ModelError, words),
        (lambda: empty.add_tables([[0]], [[-1e308, 0.0]]), ModelError, words),
        (lambda: empty.tilt([1e308, 0.0, 0.0, 0.0]), ModelError, words),
    )


def test_lost_digits_do_not_make_a_bound_of_zero():
    """A factor of 1e-8 moves marginals by 2.5e-9; its divergence of 1e-17 is lost beside others."""
    rng = np.random.default_rng(0)
    scopes = [[0], [1], [0, 1], [1, 2], [2]]
    tables = [rng.normal(size=2), rng.normal(size=2), rng.normal(size=(2, 2)) * 3,
              np.array([[1e-8, 0.0], [0.0, 0.0]]), rng.normal(size=2)]  # fmt: skip
    graph = FactorGraph.from_tables([2] * 3, scopes, tables)
    result = infer(graph, MinDivergence(1), Exact())
    off = np.abs(result.marginals.probs - naive.marginals(graph)).max()
    assert result.n_ignored == 1
    assert off <= np.sqrt(result.bound / 2), "Pinsker"
    assert off <= result.certified(1.0).interval


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_trees_are_right_wherever_the_core_is_stopped(schedule):
    """Also where the limit falls between a quiet sweep and the update that would confirm it."""
    rng = np.random.default_rng(3)
    loop = [[0, 1], [1, 2], [2, 0], [2, 3], [3, 0]]
    chain = [[4, 5], [5, 6], [6, 7], [7, 8]]
    graph = FactorGraph.from_tables(
        [3] * 9,
        [*loop, *chain, [8]],
        [rng.normal(size=(3, 3)) for _ in (*loop, *chain)] + [rng.normal(size=3)],
    )
    truth = naive.marginals(graph)
    for max_iters in range(1, 25):
        answer = BeliefPropagation(max_iters=max_iters, tol=1e-4, schedule=schedule)(graph)
        np.testing.assert_allclose(answer.probs[12:], truth[12:], atol=1e-9, err_msg=str(max_iters))
    assert answer.converged


_LONG = np.longdouble


def _extreme(number: int) -> tuple[FactorGraph, list[np.ndarray], list[tuple]]:
    """Pairs of labels with zeros and with numbers thousands of nats apart; fields; tables."""
    rng = np.random.default_rng(number)
    K, n = int(rng.choice([3, 5, 8, 16])), int(rng.integers(2, 5))
    fields = [rng.normal(size=K) * rng.choice([0.3, 20.0]) for _ in range(n)]
    for u in fields:
        u[1:][rng.random(K - 1) < rng.choice([0.0, 0.4])] = -np.inf
    graph = FactorGraph.empty([K] * n).tilt(np.concatenate(fields))
    apart = abs(np.subtract.outer(np.arange(K), np.arange(K)))
    pairs = []
    for _ in range(int(rng.integers(2, 8))):
        i, j = (int(v) for v in rng.choice(n, 2, replace=False))
        weight = float(rng.normal() * rng.choice([5.0, 60.0, 1e3]))
        far = int(rng.integers(1, K + 2))
        hard = rng.random() < 0.3
        if rng.random() < 0.3:
            graph = graph.add_potts([[i, j]], np.inf if hard else weight)
            table = np.where(apart, -np.inf, 0.0) if hard else weight * (apart == 0)
        else:
            graph = graph.add_truncated_linear([[i, j]], weight, far, hard=hard)
            table = -weight * np.minimum(apart, far)
            table = np.where(apart > far, -np.inf, table) if hard else table
        pairs.append((i, j, table))
    return graph, fields, pairs


def _possible(fields: list[np.ndarray], pairs: list[tuple]) -> list[np.ndarray]:
    """States that neither their field nor a neighbour without a partner for them excludes."""
    ok = [np.isfinite(u) for u in fields]
    while True:
        before = [x.copy() for x in ok]
        for i, j, t in pairs:
            ok[i] &= (np.isfinite(t) & ok[j]).any(axis=1)
            ok[j] &= (np.isfinite(t) & ok[i][:, None]).any(axis=0)
        if all((a == b).all() for a, b in zip(before, ok)):
            return ok


def _log_messages(state, before: bool) -> dict:
    """As they were kept: what a vector of probabilities cannot hold, numbers below e^-745, too."""
    mesh, s = state.mesh, state.before if before else state.messages
    out = {}
    for v, (f, _, o, n) in zip(mesh.gowner.tolist(), mesh.wiring.gslot.tolist()):
        x = s.to_variable[o : o + n].astype(_LONG)
        with np.errstate(divide="ignore"):
            out[int(mesh.general_ids[f]), v] = x if mesh.log else np.log(x)
    return out


def _flooded(fields: list[np.ndarray], pairs: list[tuple], m: dict) -> tuple[dict, list]:
    """All messages anew and beliefs, in logs of extended precision."""
    at: list[list[int]] = [[] for _ in fields]
    for f, (i, j, _) in enumerate(pairs):
        at[i].append(f)
        at[j].append(f)
    new = {}
    for f, (i, j, t) in enumerate(pairs):
        for a, b, table in ((i, j, t), (j, i, t.T)):
            cavity = fields[a].astype(_LONG) + sum(m[g, a] for g in at[a] if g != f)
            x = naive.logsumexp(cavity[:, None] + table.astype(_LONG), 0)
            new[f, b] = x - naive.logsumexp(x, 0)
    beliefs = []
    for v, u in enumerate(fields):
        b = u.astype(_LONG) + sum(m[f, v] for f in at[v])
        beliefs.append(np.exp(b - naive.logsumexp(b, 0)))
    return new, beliefs


@pytest.mark.drawn
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_converged_is_true_of_labels_with_zeros_and_thousands_of_nats(schedule):
    """The update that confirmed, made again from the messages it began with or left.

    Messages are compared where a state is possible: of others they say nothing to anybody, and a
    belief of zero sends zero even to the factor that made it so. Those into trees come after the
    update. Those that it left may move again by more than ``tol`` where numbers are thousands of
    nats apart and a probability of 1e-300 decides a message: a residual is what is promised.
    """
    solver = BeliefPropagation(tol=1e-9, max_iters=300, schedule=schedule)
    checked = wide = zeros = 0
    for number in few(range(80), 45):
        graph, fields, pairs = _extreme(number)
        try:
            answer = solver(graph)
        except ContradictionError:
            continue
        state = answer.state
        if not answer.converged or not isinstance(state, MessageState) or state.is_forest:
            continue
        possible, moved = _possible(fields, pairs), []
        for before in (True, False):
            m = _log_messages(state, before)
            if len(m) < 2 * len(pairs):
                break
            new, beliefs = _flooded(fields, pairs, m)
            apart = {}
            for key in m:
                one, two = (x[key][possible[key[1]]] for x in (m, new))
                one, two = (np.exp(x - naive.logsumexp(x, 0)) for x in (one, two))
                apart[key] = float(abs(one - two).max())
            moved.append(apart)
        if len(moved) < 2:
            continue
        assert max(min(moved[0][k], moved[1][k]) for k in m) <= 2e-9, number
        off = max(float(abs(b - answer[v]).max()) for v, b in enumerate(beliefs))
        assert off <= 1e-9, number  # beliefs of the messages that it left are the answer
        checked += 1
        wide += max(np.ptp(t[np.isfinite(t)]) for _, _, t in pairs) > 1800
        zeros += any(np.isneginf(t).any() for _, _, t in pairs)
    some, least = (25, 5) if thorough() else (8, 2)
    assert checked > some, checked
    assert min(wide, zeros) > least, (wide, zeros)


def sandwich(graph: FactorGraph, weights="auto") -> bool:
    """Mean field <= log Z <= tree-reweighted; whether the latter is called a bound."""
    z = naive.log_z(graph)
    slack = 1e-7 * max(1.0, abs(z))
    low = MeanField()(graph)
    assert low.log_z_kind is LogZ.LOWER
    assert low.log_z <= z + slack
    high = TreeReweighted(weights=weights, tol=1e-8, damping=0.2)(graph)
    if high.log_z_kind in (LogZ.UPPER, LogZ.EXACT):
        assert high.log_z >= z - slack
    return high.log_z_kind in (LogZ.UPPER, LogZ.EXACT)


@pytest.mark.drawn
def test_bounds_hold_with_bridges_and_tails():
    rng = np.random.default_rng(11)
    converged = 0
    cases = 2500 if thorough() else 240
    for case in range(cases):
        n = int(rng.integers(2, 9))
        density = rng.choice([0.3, 0.5, 1.0])
        edges = [[a, b] for a in range(n) for b in range(a) if rng.random() < density]
        if case % 3 == 0:  # a dense core with a tail: bridges must have weight 1
            edges = [[a, b] for a in range(min(n, 5)) for b in range(a)]
            edges += [[v, v - 1] for v in range(5, n)]
        spread = rng.choice([0.2, 1.0, 3.0])
        weights = rng.normal(size=len(edges)) * spread
        if case % 2:
            weights = np.abs(weights)
        edges = np.array(edges, dtype=np.int32).reshape(-1, 2)
        graph = FactorGraph.pairwise(rng.normal(size=n), edges, weights, feature="equal")
        converged += sandwich(graph, ["auto", "forests", "spanning-tree"][case % 3])
    assert converged > 0.8 * cases


@given(models.table_graphs(max_arity=2, max_states=3))
@settings(max_examples=draws(150))
def test_bounds_of_drawn_tables(graph):
    if np.isfinite(naive.log_z(graph)):
        sandwich(graph)
