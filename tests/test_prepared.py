"""Structure prepared once, numbers many: every answer equals the solver's on that very model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws, few
from minfer import (
    BeliefPropagation,
    ContradictionError,
    EvidenceError,
    Exact,
    FactorGraph,
    Gibbs,
    MeanField,
    MinferError,
    ModelError,
    TreeReweighted,
)
from oracle import lists, models
from oracle import truth as naive
from refused import refused

GRAPHS = {**lists.graphs(), **lists.higher_order()}
FINE = {
    "bp": BeliefPropagation(tol=1e-12),
    "trw": TreeReweighted(tol=1e-12),
    "mean-field": MeanField(tol=1e-12),
    "exact": Exact(),
    "gibbs": Gibbs(n_sweeps=40, burn_in=10, n_chains=2),
}


def numbers_for(graph: FactorGraph, seed: int, evidence: bool = True) -> dict:
    """Other weights, field and evidence for a graph; zeros stay where they are."""
    rng = np.random.default_rng(seed)
    weights = graph.weights + 0.3 * rng.normal(size=graph.weights.shape)
    field = rng.normal(size=len(graph.field))
    out = {"weights": weights, "field": field}
    open_ = [v for v in range(graph.n_variables) if graph.n_states[v] > 1]
    if evidence and open_:
        v = int(rng.choice(open_))
        allowed = np.flatnonzero(graph.field[graph.offsets[v] : graph.offsets[v + 1]] > -np.inf)
        out["evidence"] = {v: int(rng.choice(allowed))}
    return out


def directly(graph: FactorGraph, numbers: dict) -> FactorGraph:
    graph = graph.with_weights(numbers["weights"]) if "weights" in numbers else graph
    graph = graph.tilt(numbers["field"]) if "field" in numbers else graph
    return graph.with_evidence(numbers.get("evidence", {}))


def attempt(call, *arguments, **numbers):
    try:
        return call(*arguments, **numbers)
    except MinferError as error:
        return type(error)


def same(want, got, atol=1e-9, log_z=1e-9) -> bool:
    """The same error, or answers that are equal; whether there are answers."""
    if isinstance(want, type) or isinstance(got, type):
        assert want == got
        return False
    np.testing.assert_allclose(got.probs, want.probs, atol=atol)
    np.testing.assert_allclose(got.log_z, want.log_z, rtol=atol, atol=log_z)
    return True


@pytest.mark.drawn
@pytest.mark.parametrize("solver", FINE)
@pytest.mark.parametrize("name", GRAPHS)
def test_a_prepared_run_equals_a_call(name, solver):
    graph, run = GRAPHS[name], None
    try:
        run = FINE[solver].prepare(graph)
    except MinferError as error:
        with pytest.raises(type(error)):
            FINE[solver](graph)
        return
    for seed in few(range(3), 1):
        for pick in (("weights",), ("field",), ("evidence",), ("weights", "field", "evidence")):
            numbers = numbers_for(graph, seed)
            numbers = {k: v for k, v in numbers.items() if k in pick}
            other = directly(graph, numbers)
            want, got = attempt(FINE[solver], other), attempt(run, **numbers)
            answers = not isinstance(want, type) and not isinstance(got, type)
            if answers and not (want.converged and got.converged):
                continue
            if answers and solver == "gibbs" and "evidence" in numbers:  # other random numbers
                assert np.abs(got.probs - want.probs).max(initial=0.0) < 0.5
            elif same(want, got):
                np.testing.assert_array_equal(got.graph.field, other.field)


@settings(max_examples=draws(60))
@given(models.drawn_tables(), st.integers(0, 2**16))
def test_drawn_models_with_other_numbers(drawn, seed):
    """Zeros, one-state variables, huge weights: exact on the same model, or the same error."""
    graph = attempt(drawn.graph)
    if isinstance(graph, type):
        return
    run = attempt(lambda: Exact().prepare(graph))
    if isinstance(run, type):
        assert attempt(lambda: Exact()(graph)) == run
        return
    numbers = numbers_for(graph, seed)
    want = attempt(lambda: Exact()(directly(graph, numbers)))
    same(want, attempt(run, **numbers), log_z=1e-6)


@settings(max_examples=draws(60))
@given(models.drawn_tables(max_arity=2, tree=True), st.integers(0, 2**16))
def test_prepared_propagation_is_exact_on_drawn_trees(drawn, seed):
    graph = attempt(drawn.graph)
    if isinstance(graph, type) or isinstance(attempt(lambda: Exact()(graph)), type):
        return
    for solver in (BeliefPropagation(), TreeReweighted()):
        numbers = numbers_for(graph, seed)
        want = attempt(Exact(), directly(graph, numbers))
        same(want, attempt(solver.prepare(graph), **numbers), 1e-8, 1e-6)


def test_messages_of_old_weights_start_the_new_ones():
    graph = FactorGraph.grid(np.random.default_rng(0).normal(size=(8, 8)), 0.8)
    solver = BeliefPropagation(tol=1e-9)
    run = solver.prepare(graph)
    first = run()
    weights = graph.weights * 1.001
    cold, warm = run(weights=weights), run(weights=weights, start=first)
    assert warm.iterations < cold.iterations
    np.testing.assert_allclose(warm.probs, cold.probs, atol=1e-8)
    again = solver(graph.with_weights(weights), start=first)
    assert again.iterations == warm.iterations
    np.testing.assert_array_equal(again.probs, warm.probs)
    assert again.state.mesh.slot is first.state.mesh.slot  # nothing was wired again


@pytest.mark.drawn
def test_prepared_edge_weights_are_those_of_what_evidence_leaves():
    """A call with evidence kept the edge weights of the whole: another fixed point and bound."""
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(draws(100)):
        n = int(rng.integers(3, 7))
        sizes = rng.integers(2, 4, size=n) if rng.random() < 0.5 else np.full(n, 2)
        edges = [[a, b] for a in range(n) for b in range(a) if rng.random() < 0.7]
        graph = FactorGraph.empty(sizes)
        for a, b in edges:
            graph = graph.add_tables([[a, b]], [2.0 * rng.normal(size=(sizes[a], sizes[b]))])
        solver = TreeReweighted(tol=1e-11)
        run, before = solver.prepare(graph), None
        for _ in range(4):
            known = {v: int(rng.integers(sizes[v])) for v in range(n) if rng.random() < 0.3}
            call = {"evidence": known, "field": rng.normal(size=int(sizes.sum()))}
            model = directly(graph, call)
            want = solver(model)
            for got in (run(**call), run(**call, start=before), run(**call, start=want)):
                assert got.log_z >= naive.log_z(model) - 1e-9
                if want.converged and got.converged:
                    np.testing.assert_allclose(got.probs, want.probs, atol=1e-8)
                    assert got.log_z == pytest.approx(want.log_z, abs=1e-6)
                    told += bool(known)
            before = got
    assert told > 100


def test_one_run_does_not_touch_the_next():
    graph = FactorGraph.from_tables(
        [2, 3, 2, 2],
        [[0, 1], [1, 2], [2, 3], [3, 0], [0]],
        [np.random.default_rng(k).normal(size=s) for k, s in
         enumerate([(2, 3), (3, 2), (2, 2), (2, 2), 2])],
    )  # fmt: skip
    run = BeliefPropagation().prepare(graph)
    before = run()
    wide = np.zeros(len(graph.field))
    wide[0] = -800.0  # goes on in log space
    run(field=wide)
    run(weights=graph.weights * 100)
    run(evidence={0: 1})
    np.testing.assert_array_equal(run().probs, before.probs)


def test_numbers_that_change_the_structure_are_laid_out_afresh():
    graph = FactorGraph.pairwise([0.1, 0.2, 0.3], [[0, 1], [1, 2], [2, 0]], 1.0)
    run = BeliefPropagation(tol=1e-12).prepare(graph)
    heavy = graph.weights.copy()
    heavy[3] = 400.0  # beyond odds
    want = BeliefPropagation(tol=1e-12)(graph.with_weights(heavy))
    np.testing.assert_allclose(run(weights=heavy).probs, want.probs, atol=1e-10)
    shut = np.zeros(6)
    shut[0] = -np.inf
    want = BeliefPropagation(tol=1e-12)(graph.tilt(shut))
    np.testing.assert_allclose(run(field=shut).probs, want.probs, atol=1e-10)


def test_weights_are_in_the_order_of_the_factors():
    graph = FactorGraph.from_tables([2, 2], [[0, 1], [1]], [np.arange(4.0), [5.0, 6.0]])
    graph = graph.add_features([[0, 1]], [7.0])
    np.testing.assert_array_equal(graph.weights, [0, 1, 2, 3, 5, 6, 7])
    other = graph.with_weights(np.arange(7.0))
    np.testing.assert_array_equal(other.weights, np.arange(7.0))
    assert other.lineage == graph.lineage
    for wrong in (np.zeros(6), np.full(7, np.nan), "no"):
        refused(ModelError, "", graph.with_weights, wrong)


@pytest.mark.parametrize("solver", FINE)
def test_statistics_are_the_gradient_or_the_joints(solver):
    graph = FactorGraph.grid(np.random.default_rng(3).normal(size=(3, 3)), 0.4)
    m = FINE[solver](graph)
    want = np.concatenate(
        [[m[v][1] for v in range(9)], [m.factor(i)[0, 0] + m.factor(i)[1, 1] for i in range(9, 21)]]
    )
    np.testing.assert_allclose(m.statistics(), want, atol=1e-12)
    if solver != "exact":
        return
    w, step = graph.weights, 1e-5
    for i in range(0, len(w), 5):
        e = np.zeros(len(w))
        e[i] = step
        up, down = (Exact()(graph.with_weights(w + s * e)).log_z for s in (1, -1))
        assert m.statistics()[i] == pytest.approx((up - down) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("name", [n for n in GRAPHS if n != "empty"])
def test_all_factors_at_once_are_the_factors_one_by_one(name):
    graph = GRAPHS[name]
    for m in (BeliefPropagation()(graph), Exact()(graph)):
        for g in graph.groups:
            many = m.factors(g.ids)
            for i, row in zip(g.ids, many):
                np.testing.assert_allclose(row, m.factor(int(i)).ravel(), atol=1e-12)


@pytest.mark.parametrize("solver", FINE)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_is_its_rows(solver, workers):
    graph = FactorGraph.grid(np.random.default_rng(1).normal(size=(3, 4)), 0.5)
    rng = np.random.default_rng(2)
    run = FINE[solver].prepare(graph)
    field = rng.normal(size=(7, 24))
    evidence = np.full((7, 12), -1)
    evidence[::2, 3] = 1
    evidence[3, 5] = 0
    batch = run.batch(evidence, field=field, workers=workers)
    assert batch.probs.shape == (7, 24)
    for i in range(7):
        one = run(evidence=evidence[i], field=field[i])
        np.testing.assert_allclose(batch.probs[i], one.probs, atol=1e-10)
        if solver != "gibbs":
            assert batch.log_z[i] == pytest.approx(one.log_z, abs=1e-9)
        assert batch.status[i] is one.status
    np.testing.assert_array_equal(batch["x3"][0], [0.0, 1.0])
    weights = graph.weights + rng.normal(size=(5, len(graph.weights)))
    assert run.batch(weights=weights[:0]).probs.shape == (0, 24)
    batch = run.batch(weights=weights, statistics=True, workers=workers)
    for i in range(5 if solver in ("bp", "exact") else 0):
        m = FINE[solver](graph.with_weights(weights[i]))
        np.testing.assert_allclose(batch.probs[i], m.probs, atol=1e-9)
        np.testing.assert_allclose(batch.statistics[i], m.statistics(), atol=1e-9)


@pytest.mark.parametrize("size", [4, 5, 7])
def test_fields_of_a_batch_with_wide_logical_factors(size):
    """A logical factor over more than four variables brings auxiliary ones, which have no field."""
    rng = np.random.default_rng(size)
    graph = FactorGraph.empty([2] * size).add_parity([range(size)], 1.0)
    graph = graph.add_parity([range(size - 1)], 2.0).add_tables([[0]], [[-np.inf, 0.0]])
    field = rng.normal(size=(4, 2 * size))
    field[1, 3] = -np.inf
    field[2, :2] = [0.0, -np.inf]  # takes the one state that is left
    evidence = np.full((4, size), -1)
    evidence[3, 2] = 1
    run = Exact().prepare(graph)
    for known in (None, evidence):
        batch = run.batch(known, field=field)
        assert batch.impossible.tolist() == [False, False, True, False]
        for i in (0, 1, 3):
            model = graph.tilt(field[i])
            if known is not None:
                model = model.with_evidence({2: 1} if i == 3 else {})
            np.testing.assert_allclose(batch.probs[i], naive.marginals(model), atol=1e-12)
            assert batch.log_z[i] == pytest.approx(naive.log_z(model), abs=1e-12)


@pytest.mark.parametrize("solver", ["bp", "exact"])
def test_impossible_rows_do_not_stop_the_others(solver):
    table = [[0.0, -np.inf], [-np.inf, 0.0]]
    graph = FactorGraph.from_tables([2, 2, 2], [[0, 1], [1, 2]], [table, np.eye(2)])
    batch = FINE[solver].prepare(graph).batch([{0: 1, 1: 0}, {0: 1}, {}])
    assert batch.impossible.tolist() == [True, False, False]
    assert batch.log_z[0] == -np.inf
    assert np.isnan(batch.probs[0]).all()
    np.testing.assert_allclose(batch["x1"][1], [0, 1], atol=1e-12)
    assert "1 impossible" in repr(batch)
    refused(ContradictionError, "", FINE[solver].prepare(graph), {0: 1, 1: 0})


NAMED = FactorGraph.named(
    {"a": ["no", "yes"], "b": ["low", "mid", "high"]}, {("a", "b"): [[0, 1, 2], [2, 0, 0]]}
)


@pytest.mark.parametrize("solver", [Exact(), BeliefPropagation()])
def test_states_of_a_batch_by_name(solver):
    run = solver.prepare(NAMED)
    want = run.batch(np.array([[0, -1], [-1, 2], [1, 1]])).probs
    for rows in (
        [{"a": "no"}, {"b": "high"}, {"a": "yes", "b": 1}],
        [{"a": "no", "b": None}, {"b": "high", "a": float("nan")}, {"a": "yes", "b": "mid"}],
        {"a": ["no", None, "yes"], "b": [None, "high", "mid"]},
        {"a": ["no", float("nan"), 1], "b": np.array([-1, 2, 1])},
        {"a": [0, -1, 1], 1: np.array([None, "high", "mid"])},
        np.array([["no", None], [None, "high"], ["yes", "mid"]], dtype=object),
        [["no", -1], [-1, "high"], ["yes", "mid"]],
    ):
        np.testing.assert_array_equal(run.batch(rows).probs, want)
    one = run(evidence={"a": "yes", "b": "mid"}).probs
    np.testing.assert_allclose(one, want[2], atol=1e-12)
    np.testing.assert_array_equal(one, run(evidence=["yes", "mid"]).probs)
    np.testing.assert_allclose(run(evidence=["no", None]).probs, want[0], atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give rows"),
        ({"evidence": [{"z": 0}]}, "no variable"),
        ({"evidence": np.array([[0, 3]])}, "row 0: b has .*not 3"),
        ({"evidence": np.zeros((2, 3), int)}, "shape"),
        ({"evidence": {"a": [0, 1], "b": [0]}}, "the same length"),
        ({"field": np.zeros((2, 4))}, "shape"),
        ({"field": np.full((2, 5), np.nan)}, "NaN"),
        ({"weights": np.zeros((2, 7))}, "shape"),
        ({"field": np.zeros((2, 5)), "weights": np.zeros((3, 6))}, "rows"),
        ({"evidence": 5}, "."),
        ({"evidence": [{0: [1, 0, 0]}]}, "row 0: .* one likelihood for each, not 3"),
        ({"evidence": {0: [[0, 1], [1, 0]]}}, "."),
        ({"field": np.full((2, 5), 1e301)}, "."),
        ({"weights": np.full((2, 6), 1e301)}, "."),
        ({"evidence": [{"a": "no"}, {"b": "hi"}]}, "row 1: b has the states low, .*, not 'hi'"),
        ({"evidence": {"b": ["low", "heigh"]}}, "row 1: b has the states .*did you mean high"),
        ({"evidence": [["no", "low"], ["no", "lo"]]}, "row 1: b has the .*did you mean low"),
        ({"evidence": [{"a": "no", 0: "yes"}]}, "row 0: a is given two states"),
    ],
)
def test_wrong_rows_are_named(arguments, message):
    for solver in (Exact(), BeliefPropagation()):
        with pytest.raises((ModelError, EvidenceError), match=message):
            solver.prepare(NAMED).batch(**arguments)


def test_zeros_that_weights_of_a_row_remove_or_add():
    one = FactorGraph.from_tables([3], [[0]], [[-np.inf, 0.0, 0.0]])
    two = FactorGraph.from_tables([2, 3], [[0, 1]], [np.zeros((2, 3))])
    row = np.array([[0, 0, 0, 0, 0, -np.inf]])
    for solver in (Exact(), BeliefPropagation()):
        assert solver.prepare(one).batch(weights=[[0.0, 0, 0]]).log_z[0] == pytest.approx(np.log(3))
        assert solver.prepare(two).batch(weights=row).log_z[0] == pytest.approx(np.log(5))


@pytest.mark.parametrize("solver", ["bp", "trw", "exact", "mean-field"])
def test_weights_that_free_what_was_fixed(solver):
    """Evidence on a variable that the graph's own zeros fix, and new weights do not."""
    table = [[1.0, 0], [0, 1]]
    apart = FactorGraph.from_tables([2, 2, 2], [[0], [1, 2]], [[0.0, -np.inf], table])
    joined = FactorGraph.from_tables([2, 2], [[0], [0, 1]], [[0.0, -np.inf], table])
    for graph, state in ((apart, 0), (joined, 1)):
        weights = graph.weights.copy()
        weights[1] = 0.5
        want = FINE[solver](graph.with_weights(weights).with_evidence({0: state}))
        run = FINE[solver].prepare(graph)
        got = run(evidence={0: state}, weights=weights)
        np.testing.assert_allclose(got.probs, want.probs, atol=1e-9)
        assert got.log_z == pytest.approx(want.log_z, abs=1e-9)
        batch = run.batch([{0: state}], weights=weights)
        np.testing.assert_allclose(batch.probs[0], want.probs, atol=1e-9)


@pytest.mark.drawn
def test_answers_do_not_depend_on_the_clock_or_on_threads(monkeypatch):
    """Kernel calls may be cut anywhere: running beliefs of automata go on where they were."""
    import minfer.solvers.propagation as iteration

    for seed in few(range(6), 2):
        rng = np.random.default_rng(seed)
        graph = (
            FactorGraph.empty([2] * 6)
            .add_exactly_one([[0, 1, 2], [1, 2, 3]])
            .add_clauses([[2, 3, 4], [3, 4, 5], [0, 4, 5]], 1.5, signs=[[1, -1, 1]] * 3)
            .add_tables(np.array([[0, 1], [2, 3], [1, 3]]), rng.normal(size=(3, 2, 2)) * 2)
        )
        for schedule in ("sequential", "residual", "flooding", "coloured"):
            run = BeliefPropagation(tol=1e-10, max_iters=300, schedule=schedule).prepare(graph)
            monkeypatch.setattr(iteration, "_GLANCE", 0.05)
            want = run()
            monkeypatch.setattr(iteration, "_GLANCE", 1e-7)
            np.testing.assert_array_equal(run().probs, want.probs)
            monkeypatch.setattr(iteration, "_GLANCE", 0.05)
        weights = graph.weights + rng.normal(size=(40, len(graph.weights)))
        one, four = run.batch(weights=weights), run.batch(weights=weights, workers=4)
        np.testing.assert_array_equal(one.probs, four.probs)


def test_a_factor_that_evidence_makes_constant_has_a_joint():
    graph = FactorGraph.empty([2] * 4).add_clauses([[0, 1, 2, 3]], 1.0)
    graph = graph.add_tables(np.array([[1, 2], [2, 3], [3, 1]]), np.ones((3, 2, 2)))
    m = BeliefPropagation()(graph.with_evidence({0: 1}))
    assert m.statistics()[0] == pytest.approx(1.0)
    np.testing.assert_allclose(m.factor(0).sum(), 1.0)


def test_a_data_frame_is_taken_by_the_names_of_its_columns():
    pd = pytest.importorskip("pandas")
    graph = FactorGraph.named({"a": 2, "b": 3}, {("a", "b"): [[0, 1, 2], [2, 0, 0]]})
    run = Exact().prepare(graph)
    frame = pd.DataFrame({"b": [2, None, 0], "a": [1, 0, None]})
    want = run.batch(np.array([[1, 2], [0, -1], [-1, 0]]))
    np.testing.assert_array_equal(run.batch(frame).probs, want.probs)
    for wrong in (frame.rename(columns={"a": "age"}), frame + 0.5, frame.astype(str)):
        refused(EvidenceError, "", run.batch, wrong)


@pytest.mark.parametrize("solver", lists.SOLVERS)
def test_every_solver_prepares(solver):
    """Also a model that becomes one for it by evidence only."""
    s = lists.SOLVERS[solver]
    graphs = [FactorGraph.grid(np.zeros((2, 3)), 0.5)]
    if solver in ("mean-field", "gibbs"):
        hard = FactorGraph.empty([2] * 4).add_clauses([[0, 1, 2]])
        graphs.append(hard.add_tables([[2, 3]], [np.ones((2, 2))]))
    for graph in graphs:
        got, want = s.prepare(graph)(evidence={0: 1}), s(graph.with_evidence({0: 1}))
        np.testing.assert_allclose(got.probs, want.probs, atol=0.1)


def test_evidence_among_logical_factors_is_confirmed_as_in_a_fresh_run():
    """Messages to known variables, which nothing reads, kept a run from being confirmed."""
    graph = FactorGraph.empty([2] * 6).tilt([-0.5, 0.0] + [0.0] * 10)
    graph = graph.add_parity([[2, 3, 0, 1, 4]], -0.5, signs=[[-1] * 5])
    graph = graph.add_exactly_one(
        [[1, 5, 0, 4, 3]], states=[[0, 0, 1, 1, 1]], signs=[[1, -1, -1, -1, 1]]
    )
    run = BeliefPropagation().prepare(graph)
    for evidence in ({3: 0, 4: 0}, {1: 1, 2: 0, 4: 0}):
        whole = graph.with_evidence(evidence)
        assert BeliefPropagation()(whole).converged
        answer = run(evidence=evidence)
        assert answer.converged
        np.testing.assert_allclose(answer.probs, naive.marginals(whole), rtol=0, atol=1e-9)
