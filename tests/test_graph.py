"""The model: building, checking, slicing, showing; its factors are laid out once."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

import minfer
from minfer import ContradictionError, EvidenceError, Exact, FactorGraph, ModelError
from minfer.engine import conditioning
from minfer.engine.conditioning import condition
from oracle import lists, models
from oracle import truth as naive
from refused import refused


def test_pairwise_layout():
    graph = FactorGraph.pairwise([0.5, -1.0, 0.0], [[0, 1], [2, 1]], [2.0, 3.0], feature="equal")
    assert graph.n_variables == 3
    assert graph.n_factors == 5
    assert [graph.scope(i).tolist() for i in range(5)] == [[0], [1], [2], [0, 1], [2, 1]]
    np.testing.assert_array_equal(graph.log_table(4), [[3.0, 0.0], [0.0, 3.0]])
    np.testing.assert_array_equal(graph.log_table(1), [0.0, -1.0])
    named = FactorGraph.named({"ab": 2, "a": 2}, {"ab": [0.0, 1.0], ("a", "ab"): np.zeros((2, 2))})
    assert named.scope(0).tolist() == [0], "a string is one name"


@given(models.drawn_tables())
def test_a_graph_hands_out_what_it_was_built_from(drawn):
    """And so the sums of ``naive`` are those of the model as drawn."""
    graph = drawn.graph()
    factors = list(zip(map(tuple, drawn.scopes), drawn.tables, strict=True))
    for v, seen in drawn.evidence.items():
        factors.append(((v,), np.where(np.arange(drawn.n_states[v]) == seen, 0.0, -np.inf)))
    assert graph.n_factors == len(drawn.scopes)
    for i, (scope, table) in enumerate(factors[: graph.n_factors]):
        assert tuple(graph.scope(i)) == scope
        np.testing.assert_array_equal(graph.log_table(i), table)
    flat = [np.ravel(t) if np.ndim(t) else t for t in drawn.tables]
    same = FactorGraph.from_tables(drawn.n_states, drawn.scopes, flat)
    for i in range(graph.n_factors):
        np.testing.assert_array_equal(same.log_table(i), graph.log_table(i))
    want = naive.log_weights(tuple(drawn.n_states), factors).ravel()
    np.testing.assert_array_equal(naive.log_scores(graph), want)


FEATURES = {
    "and": lambda a, b: a == 1 and b == 1,
    "equal": lambda a, b: a == b,
    "or": lambda a, b: a == 1 or b == 1,
    "implies": lambda a, b: a == 0 or b == 1,
}


@given(models.drawn_pairs(max_variables=5))
def test_features_are_what_they_are_called(drawn):
    log_odds, edges, weights, feature = drawn
    graph = FactorGraph.pairwise(*drawn)
    for x, score in zip(naive.assignments(graph), naive.log_scores(graph), strict=True):
        want = sum(a for a, on in zip(log_odds, x) if on)
        want += sum(w for (i, j), w in zip(edges, weights) if FEATURES[feature](x[i], x[j]))
        assert score == pytest.approx(want, rel=1e-12, abs=1e-12 * (1 + np.abs(weights).sum()))


def scores_agree(graph):
    x, want = naive.assignments(graph), naive.log_scores(graph)
    slack = 1e-12 * np.abs(want[np.isfinite(want)]).max(initial=1.0)
    np.testing.assert_allclose(graph.log_score(x), want, rtol=0, atol=slack)
    np.testing.assert_allclose(graph.log_score(x[-1]), want[-1], rtol=0, atol=slack)


def test_log_score_is_the_sum_of_the_tables():
    for graph in {**lists.higher_order(), **lists.with_globals()}.values():
        scores_agree(graph)


@given(models.table_graphs() | models.binary_graphs())
def test_log_score_of_drawn_graphs(graph):
    scores_agree(graph)
    fewer = graph.keep(np.arange(graph.n_factors) % 3 > 0)
    scores_agree(fewer.tilt(np.linspace(-2.0, 1.0, len(graph.field))))


def test_input_is_copied_shared_and_checked():
    table = np.array([[[0.0, 1.0], [2.0, 3.0]]])
    edges = np.array([[0, 1], [1, 2], [2, 0]])
    shared = FactorGraph.from_tables([2] * 3, edges, table)
    own = FactorGraph.from_tables([2] * 3, edges, np.repeat(table, 3, axis=0))
    assert shared.groups[0].shared
    assert not own.groups[0].shared
    np.testing.assert_allclose(Exact()(shared).probs, Exact()(own).probs)
    kept = shared.keep([0, 2])
    np.testing.assert_array_equal(kept.log_table(1), table[0])
    for solver in ("bp", "trw", "mean-field", "gibbs"):
        s = lists.SOLVERS[solver]
        np.testing.assert_allclose(s(shared).probs, s(own).probs, atol=1e-9)
    weights = np.array([1.0, 2.0])
    graph = FactorGraph.pairwise([0, 0, 0], [[0, 1], [1, 2]], weights)
    weights[0] = 100
    assert graph.groups[1].theta[0] == 1.0
    theta = graph.groups[1].theta
    for array in (graph.n_states, graph.offsets, graph.field, theta, graph.scope(3)):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    graph = FactorGraph.from_tables([2, 3], [[0, 1]], [np.zeros((2, 3))])
    (group,) = graph.groups
    for wrong in ({"_log_psi": np.zeros((1, 5))}, {"_scope": np.zeros((1, 1), np.int32)}):
        refused(ModelError, "", replace(graph, groups=(replace(group, **wrong),)).validate)
    graph = FactorGraph.grid(np.zeros((4, 4)), 1.0)
    kept = graph.keep(np.ones(graph.n_factors, dtype=bool))
    assert np.shares_memory(kept.groups[1].theta, graph.groups[1].theta)
    for bad in (np.ones(3, dtype=bool), [3, 1], [-1], [10**6]):
        refused(ModelError, "", graph.keep, bad)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FactorGraph.pairwise([0, 0], [[0, 2]], [1]), "factor 2.*outside"),
        (lambda: FactorGraph.pairwise([0, 0], [[0, 0]], [1]), "twice"),
        (lambda: FactorGraph.pairwise([0, np.nan], [[0, 1]], [1]), "factor 1.*not finite"),
        (lambda: FactorGraph.pairwise([0, 0], [[0, 1]], [1, 2]), "weights of shape"),
        (lambda: FactorGraph.pairwise([0, 0], [[0, 1]], [1], feature="xor?"), "unknown feature"),
        (lambda: FactorGraph.pairwise([0, 0], [0, 1], [1]), r"shape \(E, 2\)"),
        (lambda: FactorGraph.pairwise([0, 0], [[0.5, 1]], [1]), "integers"),
        (lambda: FactorGraph.grid([1.0, 2.0]), r"shape \(H, W\)"),
        (lambda: FactorGraph.from_tables([2, 0], [], []), "variable 1"),
        (lambda: FactorGraph.from_tables([2, 3], [[0, 1]], [np.zeros((3, 2))]), "needs"),
        (lambda: FactorGraph.from_tables([2], [[0]], [[0, np.nan]]), "factor 0.*entry 1"),
        (lambda: FactorGraph.from_tables([2, 2], [[0]], [[0, 0], [0, 0]]), "1 scopes but 2"),
        (lambda: FactorGraph.empty([2, 2], ["a", "a"]), "'a'"),
        (lambda: FactorGraph.empty([2, 2], ["a"]), "1 names"),
        (lambda: FactorGraph.empty([3]).add_features([[0]], [1.0], [0, 1]), "use a table"),
        (lambda: FactorGraph.empty([2]).add_features([[0]], [1.0], [0, 2]), "0 and 1 only"),
        (lambda: FactorGraph.empty([2] * 7).add_features([range(7)], [1.0], "and"), "1 to 6"),
        (lambda: FactorGraph.empty([2]).add_global([0], object()), "messages"),
    ],
)
def test_bad_models_are_named(build, message):
    refused(ModelError, message, build)


HUGE = np.array([4]), np.arange(4, dtype=np.int32), np.zeros(0)


@pytest.mark.parametrize("build", [
    lambda: FactorGraph.empty([65536] * 4).add_flat_tables(*HUGE),
    lambda: FactorGraph.empty([65536] * 4).add_tables([[0, 1, 2, 3]], [[]]),
    lambda: FactorGraph.empty([65536] * 4).add_tables(np.array([[0, 1, 2, 3]]), np.zeros((1, 0))),
    lambda: FactorGraph.from_tables([2] * 5000, [list(range(5000))], [[0.0]]),
])  # fmt: skip
def test_table_sizes_beyond_64_bits_are_named(build):
    """2^16 to the fourth power is 0 for an integer of 64 bits, the size of no entries."""
    refused(ModelError, r"factor 0: .* about 2\^\d+ entries.*add_global", build)


@pytest.mark.parametrize("n", [2**31, 2**40, 2**63, 2**64, 2**70])
def test_numbers_of_states_beyond_32_bits_are_named(n):
    with pytest.raises(ModelError, match=rf"variable 1: {n} states; .* at most 2,147,483,647"):
        FactorGraph.empty([2, n])


def test_evidence_and_soft_evidence():
    graph = FactorGraph.named({"a": 2, "b": 3}, {("a", "b"): np.arange(6).reshape(2, 3) * 0.3})
    seen = graph.with_evidence({"b": 2})
    np.testing.assert_allclose(Exact()(seen)["b"], [0, 0, 1])
    np.testing.assert_allclose(Exact()(seen).probs, naive.marginals(seen))
    assert Exact()(seen).log_z == pytest.approx(naive.log_z(seen))
    refused(EvidenceError, "there is no variable 'c'", graph.with_evidence, {"c": 0})
    refused(EvidenceError, "states 0 to 2, not 3", graph.with_evidence, {"b": 3})
    refused(EvidenceError, "no variable 7", graph.with_evidence, {7: 0})
    refused(ContradictionError, "contradicts earlier", seen.with_evidence, {"b": 1})
    assert "1 observed" in repr(seen)
    refused(EvidenceError, "mapping", graph.with_evidence, [0, 1])
    graph = FactorGraph.pairwise([0.1, 0.2], [[0, 1]], [1.0])
    soft = graph.with_soft_evidence({0: [0.3, 0.9]})
    same = graph.add_tables([[0]], [np.log([0.3, 0.9])])
    np.testing.assert_allclose(naive.marginals(soft), naive.marginals(same))
    for bad in ([0.1], [-1, 1], [0, 0], [np.nan, 1]):
        refused(EvidenceError, "", graph.with_soft_evidence, {0: bad})
    refused(EvidenceError, "no variable", graph.with_soft_evidence, {9: [1, 1]})


@given(models.table_graphs(zeros=False))
def test_keep_is_the_same_as_building_less(graph):
    rng = np.random.default_rng(graph.n_factors)
    mask = rng.random(graph.n_factors) < 0.5
    kept = graph.keep(mask)
    kept.validate()
    ids = np.flatnonzero(mask)
    np.testing.assert_array_equal(kept.origin, ids)
    for new, old in enumerate(ids):
        np.testing.assert_array_equal(kept.scope(new), graph.scope(old))
        np.testing.assert_array_equal(kept.log_table(new), graph.log_table(old))
    again = kept.keep(np.arange(0, kept.n_factors, 2))
    np.testing.assert_array_equal(again.origin, ids[::2])
    np.testing.assert_array_equal(graph.keep(ids).origin, ids)


@given(models.table_graphs())
def test_components(graph):
    parts = graph.components()
    seen = np.concatenate([p.variables for p in parts]) if parts else []
    assert sorted(seen) == list(range(graph.n_variables))
    total = 0.0
    for part in parts:
        part.graph.validate()
        total += naive.log_z(part.graph)
    whole = naive.log_z(graph)
    if np.isfinite(whole):
        assert total == pytest.approx(whole, rel=1e-9, abs=1e-9)


@given(models.table_graphs())
def test_pickles_and_validates(graph):
    graph.validate()
    graph.component_labels()
    back = pickle.loads(pickle.dumps(graph))
    assert repr(back) == repr(graph)
    np.testing.assert_array_equal(naive.log_scores(back), naive.log_scores(graph))
    assert back.lineage == graph.lineage


def test_shows_itself():
    graph = FactorGraph.grid(np.zeros((64, 64)), 1.0)
    factors = "12,160 factors: 4,096 unary, 8,064 pairwise"
    assert repr(graph) == f"FactorGraph(4,096 variables of 2 states; {factors})"
    assert "<table>" in graph._repr_html_()
    assert repr(FactorGraph.empty([])) == "FactorGraph(0 variables; 0 factors)"


RNG = np.random.default_rng(5)
GRID = FactorGraph.grid(RNG.normal(size=(4, 5)), 0.6)
RULES = GRID.add_clauses([[0, 1, 2]]).add_tables([[3, 4, 5]], RNG.normal(size=(1, 2, 2, 2)))


@pytest.fixture
def settled(monkeypatch):
    """The graphs that are conditioned anew, a list that grows."""
    seen = []
    real = conditioning._settled

    def watched(graph, *rest):
        seen.append(graph)
        return real(graph, *rest)

    monkeypatch.setattr(conditioning, "_settled", watched)
    return seen


def fresh(graph):
    """The same graph, which knows nothing yet."""
    return pickle.loads(pickle.dumps(graph))


def same(one, other):
    np.testing.assert_allclose(one.field, other.field, rtol=1e-13)
    np.testing.assert_array_equal(one.fixed, other.fixed)
    assert one.constant == pytest.approx(other.constant, rel=1e-13)
    for a, b in zip(one.groups, other.groups, strict=True):
        np.testing.assert_array_equal(a._scope, b._scope)
        np.testing.assert_array_equal(a._ids, b._ids)


@pytest.mark.parametrize("graph", [GRID, RULES])
def test_a_new_field_is_added_to_what_is_known(graph, settled):
    graph = fresh(graph)
    first = condition(graph)
    for _ in range(3):
        graph = graph.tilt(RNG.normal(size=40))
        again = condition(graph)
        assert again.arrays is first.arrays
        same(again, condition(fresh(graph)))
    assert sum(g is graph for g in settled) == 0


def test_other_evidence_fixes_other_variables_and_new_weights_are_new_factors(settled):
    graph = fresh(RULES)
    for evidence in ({0: 1}, {0: 0, 1: 0}, {4: 1}):
        seen = graph.with_evidence(evidence)
        one, other = condition(seen), condition(seen.tilt(RNG.normal(size=40)))
        assert one.arrays is other.arrays
        same(one, condition(fresh(seen)))
    assert len(settled) == 6  # three here, three fresh
    before = condition(graph)
    assert before.fixed.max() == -1
    after = condition(graph.with_weights(2.0 * graph.weights))
    assert after.arrays is not before.arrays
    same(after, condition(fresh(graph.with_weights(2.0 * graph.weights))))


def test_solvers_condition_once(settled):
    minfer.infer(fresh(GRID), minfer.MinJoint(0.02), recipe=minfer.Compensated())
    assert len(settled) == 2  # the seed, and what is kept
    settled.clear()
    minfer.Auto(exact_cells=0)(fresh(GRID))
    minfer.Auto(exact_cells=0, time_limit=0.5)(fresh(GRID))
    assert len([g for g in settled if g._field is None]) == 2
    settled.clear()
    minfer.Clamped(minfer.MeanField(), k=1, restarts=2)(fresh(GRID))
    assert len(settled) == 1 + 2  # and with each state of the one that is clamped
