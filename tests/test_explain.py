"""Explaining an answer: against removing factors one by one, and against loops over cells."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from draws import few
from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    MinDivergence,
    MinferError,
    MinJoint,
    infer,
)
from minfer.reduction.explain import explain, explain_model
from minfer.reduction.recipes import Compensated
from oracle import lists
from refused import refused

EXACT = Exact(method="enumerate")
LOOPY = {**lists.graphs(), **lists.higher_order()}
LOOPY = {name: g for name, g in LOOPY.items() if g.n_variables and name != "huge"}


def random_tree(rng: np.random.Generator, n: int = 7) -> FactorGraph:
    states = rng.integers(2, 4, size=n)
    scopes = [[v] for v in range(n)] + [[int(rng.integers(v)), v] for v in range(1, n)]
    scopes[-1] = scopes[-1][::-1]
    return FactorGraph.from_tables(
        states, scopes, [rng.normal(size=[states[v] for v in s]) for s in scopes]
    )


def naive_message(table, cavities, axis):
    """sum over the other axes, one cell after the other."""
    out = np.zeros(table.shape[axis])
    for cell in itertools.product(*map(range, table.shape)):
        weight = np.exp(table[cell])
        for b, x in enumerate(cell):
            if b != axis:
                weight *= cavities[b][x]
        out[cell[axis]] += weight
    return out


def naive_cavities(table, probs):
    """q with the given marginals of Psi prod q: proportional fitting, one factor at a time."""
    q = [p.copy() for p in probs]
    for _ in range(400):
        before = [x.copy() for x in q]
        for a in range(table.ndim):
            m = naive_message(table, q, a)
            q[a] = np.divide(probs[a], m, out=np.zeros_like(m), where=m > 0)
            q[a] /= q[a].sum()
        if all(np.abs(x - y).max() < 1e-15 for x, y in zip(before, q)):
            break
    return q


def stored_messages(result, i):
    """Log-messages that an ignored factor left with each of its variables."""
    group, row = result.model._locate(i)
    shape = group.shape
    if result.compensation is None:
        return [np.zeros(s) for s in shape]
    if group.arity == 1:
        return [result.model.log_table(i)]
    number = next(k for k, g in enumerate(result.model.groups) if g is group)
    m = result.compensation.remembered().messages[number][row]
    if shape == (2, 2):
        return [np.array([0.0, np.log(x)]) for x in m]
    return np.split(m, np.cumsum(shape)[:-1])


def naive_effect(result, i, v):
    scope = result.model.scope(i)
    axis = scope.tolist().index(v)
    p = [np.array(result.marginals[int(b)]) for b in scope]
    table = result.model.log_table(i)
    state = int(np.argmax(p[axis]))
    if result.keep[i]:
        return p[axis][state] - naive_cavities(table, p)[axis][state]
    c = stored_messages(result, i)
    cavities = [x * np.exp(-y) for x, y in zip(p, c)]
    cavities = [x / x.sum() for x in cavities]
    moved = cavities[axis] * naive_message(table, cavities, axis)
    return moved[state] / moved.sum() - p[axis][state]


def test_in_a_tree_a_kept_factor_moved_what_its_removal_undoes():
    rng = np.random.default_rng(0)
    for _ in range(5):
        tree = random_tree(rng)
        result = infer(tree, MinJoint(0.0), EXACT)
        for v in range(tree.n_variables):
            found = explain(result, v, top=100)
            assert found.n_kept == len(found.kept) > 0
            assert found.n_ignored == 0
            for row in found.kept:
                without = EXACT(tree.keep(np.arange(tree.n_factors) != row.factor))
                undone = found.probability - without[v][found.state]
                assert row.effect == pytest.approx(undone, abs=1e-9)


@pytest.mark.drawn
@pytest.mark.parametrize("name", LOOPY)
@pytest.mark.parametrize("how", ["paper", "compensated", "refreshed"])
def test_effects_against_loops(name, how):
    graph = LOOPY[name]
    settings = {
        "paper": {},
        "compensated": {"recipe": Compensated(refreshes=0)},
        "refreshed": {"recipe": Compensated()},
    }[how]
    result = infer(graph, MinDivergence(1), BeliefPropagation(damping=0.2), **settings)
    for v in few(range(graph.n_variables), 2):
        found = explain(result, v, top=100)
        rows = {row.factor: row for row in (*found.kept, *found.ignored)}
        assert sorted(rows) == [i for i in range(graph.n_factors) if v in graph.scope(i)]
        assert {r.factor for r in found.kept} == {i for i in rows if result.keep[i]}
        for i, row in rows.items():
            assert row.effect == pytest.approx(naive_effect(result, i, v), abs=1e-6), (v, i)
            assert row.others == tuple(graph.name(int(b)) for b in graph.scope(i) if b != v)
            assert row.score == result.scores[i]
            assert row.seed == result.seed[i]


def test_the_largest_effects_come_first_in_words_and_dictionaries():
    graph = FactorGraph.pairwise(
        [0.1] * 6, [[0, v] for v in range(1, 6)], [0.1, -2.0, 0.5, 3.0, 0.0]
    )
    result = infer(graph, MinDivergence(2), EXACT)
    found = explain(result, "x0", top=2)
    assert [row.others for row in found.kept] == [("x4",), ("x2",)]
    sizes = [abs(row.effect) for row in found.ignored]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 2
    assert (found.n_kept, found.n_ignored) == (3, 3)
    assert explain(result, 0, top=0).kept == ()
    graph = lists.graphs()["grid"]
    result = infer(graph, MinDivergence(3), recipe=Compensated(refreshes=0))
    found = explain(result, "x4")
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["variable"] == "x4"
    assert content["kept"][0]["score"] is None or content["kept"][0]["score"] > 0
    assert content["score"] == "residual"
    text = str(found)
    assert text.startswith("p(x4 = ")
    assert "estimates" in text
    assert "seed" in text
    for bad in ("x99", 99, -1):
        refused(MinferError, "", explain, result, bad)
    refused(MinferError, "", explain, result, 0, top=-1)
    graph = lists.with_globals()["one-of-three-and-pairs"]
    result = infer(graph, MinDivergence(1))
    found = explain(result, 0)
    assert found.n_global == 1
    assert "global" in str(found)
    assert explain(result, 3).n_global == 0
    assert explain_model(result).by_kind[0].factors == 2


@pytest.mark.parametrize("name", LOOPY)
def test_shares_against_counting(name):
    graph = LOOPY[name]
    result = infer(graph, MinDivergence(2), BeliefPropagation(damping=0.2))
    found = explain_model(result, top=100)
    outside = [i for i in range(graph.n_factors) if not result.seed[i]]
    kept = [i for i in outside if result.keep[i]]
    for shares in (found.by_certainty, found.by_kind):
        assert sum(s.factors for s in shares) == len(outside)
        assert sum(s.kept for s in shares) == len(kept)
    for share in found.variables:
        v = graph.index(share.what)
        assert share.kept == sum(v in graph.scope(i) for i in kept) > 0
        assert share.factors == sum(v in graph.scope(i) for i in outside)
    counts = [s.kept for s in found.variables]
    assert counts == sorted(counts, reverse=True)
    json.dumps(found.to_dict(), allow_nan=False)


def test_what_ignored_factors_left_behind_is_told():
    """No pair of the variable is kept: what moved it is what the ignored ones left behind."""
    model = FactorGraph.pairwise([1.0, 0.2, -1.0], [[0, 1], [1, 2]], [2.0, 0.7])
    result = infer(model, MinDivergence(0), recipe=Compensated(refreshes=0))
    found = explain(result, "x1")
    assert [e.factor for e in found.left] == [3, 4]
    p = result.marginals[1]
    left = result.compensation.remembered().messages[1][0, 1]  # odds of factor 3 to x1
    without = p[1] / left / (p[0] + p[1] / left)
    assert found.left[0].effect == pytest.approx(p[1] - without)
    assert "left behind" in str(found)
    assert explain(infer(model, MinDivergence(0)), "x1").left == ()
    # With one ignored factor, compensation leaves all of its message but the seed's error.
    graph = FactorGraph.pairwise([1.0, -0.5], [[0, 1]], [1.5])
    plain = explain(infer(graph, MinDivergence(0), EXACT), 0)
    left = explain(infer(graph, MinDivergence(0), EXACT, recipe=Compensated(refreshes=3)), 0)
    assert abs(plain.ignored[0].effect) > 0.05
    assert abs(left.ignored[0].effect) < 1e-3


def test_a_clause_leaves_behind_what_its_table_does():
    pairs = FactorGraph.pairwise([0.8, -0.4, 0.3], [[0, 1], [1, 2]], [2.0, 1.5])
    clause = pairs.add_clauses([[0, 2]], 0.05)
    table = pairs.add_tables([[0, 2]], [clause.log_table(clause.n_factors - 1)])
    effects = []
    for graph in (clause, table):
        result = infer(graph, MinDivergence(2), recipe=Compensated(refreshes=0))
        assert result.keep.tolist() == [*[True] * (graph.n_factors - 1), False]
        effects.append([e.effect for v in (0, 2) for e in explain(result, v).ignored])
    assert len(effects[0]) == 2
    np.testing.assert_allclose(*effects, rtol=1e-5, atol=1e-9)
