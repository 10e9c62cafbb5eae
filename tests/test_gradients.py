"""Gradients through marginals, each against central differences of the solver itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from draws import draws, few
from minfer import (
    BeliefPropagation,
    ContradictionError,
    Exact,
    FactorGraph,
    Gibbs,
    Marginals,
    MeanField,
    ModelError,
    RefusedError,
    SettingsError,
    TreeReweighted,
)
from minfer.solvers.differentiable_batch import record
from minfer.solvers.gradients import pull_back
from oracle import truth as naive
from oracle.lists import every_kind, graphs, higher_order, logical, with_globals
from oracle.models import binary_graphs, table_graphs
from refused import refused

TIGHT = {
    "bp": BeliefPropagation(tol=1e-14, max_iters=20_000),
    "bp-damped": BeliefPropagation(tol=1e-14, max_iters=20_000, damping=0.4),
    "trw": TreeReweighted(tol=1e-14, max_iters=20_000),
    "exact": Exact(method="clique-tree"),
    "joint-table": Exact(),
    "mean-field": MeanField(tol=1e-15, max_iters=50_000),
}


def differences(solver, graph, cotangent, start=None, step=1e-5):
    """dLoss/d(field) and dLoss/d(weights) of loss = probs @ cotangent, number by number.

    NaN where it was not asked for.
    """

    def loss(g):
        return float(solver(g, start).probs @ cotangent)

    field = np.full(len(cotangent), np.nan)
    for i in few(range(len(field)), 3):
        d = np.zeros(len(field))
        d[i] = step
        field[i] = (loss(graph.tilt(d)) - loss(graph.tilt(-d))) / (2 * step)
    given = graph.weights
    weights = np.where(np.isfinite(given), np.nan, 0.0)
    for i in few(np.flatnonzero(np.isfinite(given)), 3):
        d = np.zeros(len(given))
        d[i] = step
        up, down = graph.with_weights(given + d), graph.with_weights(given - d)
        weights[i] = (loss(up) - loss(down)) / (2 * step)
    return field, weights


def agree(back, graph, solver, cotangent, within=1e-7, start=None):
    compare(back, differences(solver, graph, cotangent, start), rtol=0, atol=within)


def compare(back, truth, **within):
    for found, expected in zip((back.field, back.weights), truth):
        asked = ~np.isnan(expected)
        np.testing.assert_allclose(found[asked], expected[asked], **within)


#: Of the drawn models on which a solver has converged, those whose adjoint must too.
SHARE = 0.95
NAMED = {**graphs(), **higher_order()}
LOGICAL = {**{f"kind-{k}": g for k, g in every_kind().items()}, **logical(), **with_globals()}


@pytest.mark.drawn
@pytest.mark.parametrize("name", TIGHT)
@pytest.mark.parametrize("kind", [*NAMED, *LOGICAL])
def test_of_every_kind_of_factor(name, kind):
    graph, solver = {**NAMED, **LOGICAL}[kind], TIGHT[name]
    if kind in LOGICAL and name not in ("bp", "exact"):
        pytest.skip("refused, or the same way")
    try:
        m = solver(graph)
    except RefusedError:
        pytest.skip("not a model for this solver")
    if not m.converged:
        pytest.skip("mean field does not settle here")
    c = np.random.default_rng(3).normal(size=len(m.probs))
    back = pull_back(m, c, tol=1e-12)
    assert back.converged
    if kind in LOGICAL:
        assert back.method == ("adjoint" if name == "exact" else "perturbation")
    elif isinstance(solver, (BeliefPropagation, TreeReweighted)):
        assert back.method in ("adjoint", "independent")
    start = m if name == "mean-field" else None  # which has more than one fixed point
    agree(back, graph, solver, c, start=start)


@pytest.mark.parametrize("kind", [*higher_order(), *logical()])
def test_cavities_that_are_not_kept_follow_from_messages(kind, monkeypatch):
    """As in large models, whose states have none."""
    graph, solver = {**NAMED, **LOGICAL}[kind], TIGHT["bp"]
    m = solver(graph)
    monkeypatch.setattr("minfer.solvers.propagation.KEEP", 0)
    lean = solver(graph)
    assert not len(lean.state.messages.to_factor)
    np.testing.assert_allclose(lean.probs, m.probs, rtol=0, atol=1e-12)
    assert lean.log_z == pytest.approx(m.log_z, abs=1e-9)
    for i in range(graph.n_factors):
        if m.factor(i) is not None:
            np.testing.assert_allclose(lean.factor(i), m.factor(i), rtol=0, atol=1e-9)
    again = solver(graph, start=lean)
    np.testing.assert_allclose(again.probs, m.probs, rtol=0, atol=1e-9)
    c = np.random.default_rng(3).normal(size=len(m.probs))
    np.testing.assert_allclose(pull_back(lean, c).field, pull_back(m, c).field, rtol=0, atol=1e-7)


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("models", "names", "examples"),
    [
        (table_graphs(), ["bp", "bp-damped", "exact"], 60),
        (binary_graphs(), ["bp", "trw"], 60),
        (table_graphs(max_arity=2, max_states=4), ["trw"], 40),
    ],
    ids=["tables", "pairs", "reweighted"],
)
def test_of_drawn_models(models, names, examples):
    """Against differences; almost every fixed point must have a gradient."""
    asked = found = 0

    @settings(max_examples=draws(examples), deadline=None)
    @given(models, st.sampled_from(names), st.integers(0, 99))
    def check(graph, name, seed):
        nonlocal asked, found
        solver = TIGHT[name]
        try:
            m = solver(graph)
        except ContradictionError:
            assume(False)
        assume(m.converged)
        c = np.random.default_rng(seed).normal(size=len(m.probs))
        back = pull_back(m, c, tol=1e-12, max_iters=5000)
        asked += 1
        if not back.converged:  # a fixed point next to one that is not stable
            return
        found += 1
        size = 1e-7 * max(1.0, np.abs(back.field).max(initial=0.0))
        compare(back, differences(solver, graph, c, start=m), rtol=1e-7, atol=size)

    check()
    assert asked >= draws(examples) // 2
    assert found >= SHARE * asked, f"{found} of {asked} adjoints have converged"


def test_states_next_to_impossible_have_a_gradient():
    """One over a probability of 1e-323 is infinite: the gradient was NaN, and called converged."""
    graph = FactorGraph.pairwise([-1245.6, 458.5], [[1, 0]], [502.0])
    m = TIGHT["bp"](graph)
    assert 0.0 < m[0][1] < 1e-300
    back = pull_back(m, np.array([0.1, -0.1, 0.6, 0.1]))
    assert back.converged
    np.testing.assert_allclose(back.field, 0.0, atol=1e-150)
    np.testing.assert_allclose(back.weights, 0.0, atol=1e-150)


def frustrated(n=40, scale=0.6, seed=0):
    """Everybody is to differ from everybody: sweeps oscillate unless they are damped."""
    rng = np.random.default_rng(seed)
    edges = [[a, b] for a in range(n) for b in range(a)]
    weights = -np.abs(rng.normal(size=len(edges))) * scale
    return FactorGraph.pairwise(rng.normal(size=n) / 2, edges, weights, feature="equal")


def test_where_belief_propagation_needs_damping():
    graph = frustrated()
    assert not BeliefPropagation(tol=1e-10, max_iters=2000)(graph).converged
    m = BeliefPropagation(tol=1e-10, max_iters=5000, damping=0.8)(graph)
    assert m.converged
    c = np.random.default_rng(1).normal(size=len(m.probs))
    back = pull_back(m, c, tol=1e-9)
    assert back.converged
    assert "GMRES" in back.note
    assert back.sweeps <= m.iterations
    other = pull_back(m, c, method="perturbation")
    np.testing.assert_allclose(back.field, other.field, atol=1e-8)
    np.testing.assert_allclose(back.weights, other.weights, atol=1e-8)


def test_labels_by_distance_as_their_tables():
    """Filters and bands against the same model in plain tables."""
    rng = np.random.default_rng(2)
    scopes = [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]
    for far in (2, 9, 30):
        field = rng.normal(size=4 * 40)
        short = FactorGraph.empty([40] * 4).tilt(field)
        short = short.add_truncated_linear(scopes, [0.3, 0.5, -0.2, 0.4, 0.1], far)
        tables = [short.log_table(f) for f in range(5)]
        plain = FactorGraph.from_tables([40] * 4, scopes, tables).tilt(field)
        c = rng.normal(size=len(field))
        for solver in (TIGHT["bp"], TIGHT["trw"]):
            one = pull_back(solver(short), c, tol=1e-12)
            two = pull_back(solver(plain), c, tol=1e-12)
            assert one.method == two.method == "adjoint"
            np.testing.assert_allclose(one.field, two.field, atol=1e-10)
            phi = -np.minimum(np.abs(np.subtract.outer(np.arange(40), np.arange(40))), far)
            of_weight = two.weights.reshape(5, -1) @ phi.ravel()
            np.testing.assert_allclose(one.weights, of_weight, atol=1e-9)


@pytest.mark.drawn
def test_evidence_of_a_prepared_call():
    graph, solver = graphs()["grid"], TIGHT["bp"]
    m = solver.prepare(graph)(evidence={4: 1, 0: 0})
    c = np.random.default_rng(4).normal(size=len(m.probs))
    back = pull_back(m, c, tol=1e-12)
    agree(back, graph.with_evidence({4: 1, 0: 0}), solver, c)


def test_what_has_not_converged_says_so_and_bad_input_is_refused():
    graph = graphs()["grid"]
    m = BeliefPropagation(max_iters=1)(graph)
    back = pull_back(m, np.ones(len(m.probs)))
    assert not back.converged
    assert "not converged" in back.note
    m = BeliefPropagation()(graph)
    c = np.random.default_rng(0).normal(size=len(m.probs))
    assert not pull_back(m, c, tol=1e-12, max_iters=2).converged
    m = BeliefPropagation()(graphs()["grid"])
    refused(ModelError, "3 numbers for 18", pull_back, m, np.ones(3))
    refused(ModelError, "finite", pull_back, m, np.full(18, np.nan))
    refused(SettingsError, "tol", pull_back, m, np.ones(18), tol=0.0)
    refused(SettingsError, "method", pull_back, m, np.ones(18), method="magic")
    refused(ModelError, "the answer of a solver", pull_back, graphs()["grid"], np.ones(18))
    given = Marginals.from_probs(m.graph, m.probs, "somebody")
    refused(RefusedError, "pass solver=", pull_back, given, np.ones(18))
    sampled = Gibbs(n_sweeps=20, rng=0)
    with pytest.raises(RefusedError, match="samples have no gradient"):
        pull_back(sampled(m.graph), np.ones(18), solver=sampled)
    with pytest.raises(RefusedError, match="no adjoint"):
        pull_back(MeanField()(m.graph), np.ones(18), method="adjoint")


@pytest.mark.parametrize("nats", [5.0, 30.0, 60.0])
def test_the_log_loss_of_improbable_labels(nats):
    """Its cotangent is 1 / p: a step that fits it would leave nothing else but rounding."""
    graph = FactorGraph.empty([2, 3]).tilt([0.0, -nats, 0.3, 0.0, -1.0])
    graph = graph.add_tables([[0, 1]], [[[0.5, 0.0, 1.0], [0.0, 0.2, -0.3]]])
    for name in ("exact", "mean-field"):
        m = TIGHT[name](graph)
        c = np.zeros(5)
        c[[1, 3]] = -1.0 / m.probs[[1, 3]]
        back = pull_back(m, c, solver=TIGHT[name])
        assert back.method == ("adjoint" if name == "exact" else "perturbation")
        assert back.converged == (name == "exact" or nats == 5.0)
        if not back.converged:
            assert "improbable" in back.note
            continue
        losses = []
        for step in np.concatenate([np.eye(5), -np.eye(5)]) * 1e-5:
            p = TIGHT[name](graph.tilt(step), m).probs
            losses.append(-np.log(p[[1, 3]]).sum())
        slope = (np.array(losses[:5]) - losses[5:]) / 2e-5
        np.testing.assert_allclose(back.field, slope, rtol=0, atol=1e-8)


EXACTLY = {
    "clique-tree": Exact(method="clique-tree"),
    "joint-table": Exact(),
    "enumeration": Exact(method="enumerate"),
}


def drawn(seed):
    """A model with weights of up to some hundred nats, zeros, logic, evidence; None: impossible."""
    rng = np.random.default_rng([17, seed])
    n = rng.integers(1, 4, size=rng.integers(2, 8)).tolist()
    scale = float(rng.choice([0.3, 1.0, 5.0, 40.0, 300.0]))
    graph = FactorGraph.empty(n).tilt(scale * rng.normal(size=sum(n)))
    for _ in range(int(rng.integers(1, 9))):
        scope = rng.permutation(len(n))[: int(rng.integers(1, 4))]
        table = scale * rng.normal(size=[n[v] for v in scope])
        table[rng.random(table.shape) < rng.choice([0.0, 0.2])] = -np.inf
        graph = graph.add_tables([scope], [table])
    if rng.random() < 0.5:
        scope = rng.permutation(len(n))[: int(rng.integers(2, 7))]
        states = [[int(rng.integers(n[v])) for v in scope]]
        add = [graph.add_clauses, graph.add_parity][int(rng.integers(2))]
        graph = add([scope], scale * float(rng.normal()), states=states)
    if rng.random() < 0.3:
        graph = graph.with_evidence({0: int(rng.integers(n[0]))})
    c = rng.normal(size=sum(n))
    if np.isneginf(naive.log_scores(graph)).all():
        return None
    if rng.random() < 0.4:  # the log-loss of a label each, however improbable
        p = naive.marginals(graph)
        labels = graph.offsets[:-1] + np.array([rng.integers(k) for k in n])
        c = np.zeros(sum(n))
        labels = labels[p[labels] > 1e-250]
        c[labels] = -1.0 / p[labels]
    return graph, c


@pytest.mark.drawn
@pytest.mark.parametrize("name", EXACTLY)
def test_exact_answers_have_exact_gradients(name):
    """To rounding, however extreme the marginals are; differences were off by a millionth."""
    solver, asked = EXACTLY[name], 0
    for seed in range(draws(500)):
        model = drawn(seed)
        if model is None:
            continue
        graph, c = model
        m = solver(graph)
        back = pull_back(m, c)
        assert (back.method, back.converged) in (("adjoint", True), ("independent", True))
        assert pull_back(m, c, weights=False).field.tolist() == back.field.tolist()
        field, joints, size = naive.covariances(graph, c)
        within = 1e-11 * size
        np.testing.assert_allclose(back.field, field, rtol=0, atol=within, err_msg=str(seed))
        for i, joint in enumerate(joints):
            found = back.weights[graph.weight_offsets[i] : graph.weight_offsets[i + 1]]
            if len(found) != joint.size:  # a logical factor's one weight
                joint = [(joint * (graph.log_table(i) != 0.0)).sum()]
            np.testing.assert_allclose(found, np.ravel(joint), rtol=0, atol=within)
        if name == "joint-table":  # of a batch, too
            rows = record(Exact().prepare(graph), None, None, np.zeros((2, len(c))))
            both = rows.pull_back(np.stack([c, -c]), tol=1e-6, max_iters=100, weights=True)
            assert both.converged.all()
            within = 1e-9 * size + 1e-100
            np.testing.assert_allclose(both.field, [field, -field], rtol=0, atol=within)
        asked += 1
    assert asked >= draws(300)


@pytest.mark.parametrize("name", EXACTLY)
def test_what_is_below_the_range_of_numbers_is_not_called_a_gradient(name):
    """The log-loss of a label with a probability of 1.7e-308: it was off by everything."""
    graph = FactorGraph.empty([2, 2]).tilt([0.0, -708.7, 0.0, 0.0])
    graph = graph.add_tables([[0, 1]], [[[0.0, 0.0], [0.0, 1.0]]])
    c = np.array([0.0, -1.0 / np.exp(np.longdouble(-708.1)), 0.0, 0.0]).astype(float)
    field, _, size = naive.covariances(graph, c)
    assert size > 1.0
    back = pull_back(EXACTLY[name](graph), c)
    assert not back.converged or np.abs(back.field - field).max() < 1e-6
    rows = record(Exact().prepare(graph), None, None, np.zeros((2, 4)))
    found = rows.pull_back(np.stack([c, np.ones(4)]), tol=1e-6, max_iters=100, weights=True)
    assert not found.converged[0] or np.abs(found.field[0] - field).max() < 1e-6
    assert found.converged[1]


def test_gradients_in_large_models_by_both_ways():
    """Also in cliques larger than a chunk; plain_checks.py holds small ones against enumeration."""
    rng = np.random.default_rng(3)
    grid = FactorGraph.grid(rng.normal(size=(14, 14)), rng.normal(size=364))
    scopes = [[a, b] for a in range(7) for b in range(a)]
    tables = rng.normal(size=(len(scopes), 8, 8))
    dense = FactorGraph.from_tables([8] * 7, scopes, tables)
    loopy = FactorGraph.grid(rng.normal(size=(6, 6)), rng.normal(size=60))
    for graph, solver in ((grid, Exact()), (dense, Exact()), (loopy, TIGHT["bp"])):
        m = solver(graph)
        c = rng.normal(size=len(m.probs))
        one, two = pull_back(m, c, tol=1e-12), pull_back(m, c, method="perturbation")
        assert (one.method, two.method) == ("adjoint", "perturbation")
        within = 1e-9 if graph is not loopy else 1e-8
        np.testing.assert_allclose(one.field, two.field, rtol=0, atol=within)
        np.testing.assert_allclose(one.weights, two.weights, rtol=0, atol=within)
        assert np.abs(one.weights - two.weights).max() <= max(two.error, 1e-9)


@pytest.mark.parametrize("method", ["auto", "clique-tree", "enumerate"])
def test_what_prepared_calls_round_to_zero_is_found_again(method):
    """A log-loss of a state of probability 1.3e-34; its gradient was 0, and called exact."""
    tables = np.array([[154.0, -61], [821, 262]]), np.array([[556.0, 349], [466, -203]])
    graph = FactorGraph.from_tables([2] * 3, [[0, 1], [1, 2]], list(tables))
    field = np.array([354.0, -235, 481, -700, 127, -630])
    rare = Exact(method="enumerate")(graph.tilt(field)).probs[0]
    assert 1e-34 < rare < 2e-34
    c = np.zeros(6)
    c[0] = -1.0 / rare
    run = Exact(method=method).prepare(graph)
    for answer in (Exact(method=method)(graph.tilt(field)), run(field=field)):
        back = pull_back(answer, c)
        assert back.converged
        np.testing.assert_allclose(back.field[:2], [-1.0, 1.0], atol=1e-9)
