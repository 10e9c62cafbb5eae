"""The method against enumeration and exhaustive search, and how it explains an answer."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws, few
from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    Marginals,
    MinDivergence,
    MinferError,
    MinJoint,
    factor_gains,
    infer,
)
from minfer.kernels.scores.gains import feature_gain, feature_gains
from minfer.reduction import seeds
from minfer.reduction.explain import explain, explain_model
from minfer.reduction.gains import SCORES, factor_scores
from minfer.reduction.recipes import Compensated
from oracle import lists, models
from oracle import truth as naive
from refused import refused

SEEDS = {"unary": seeds.unary, "globals": seeds.unary_and_globals, "forest": seeds.spanning_forest}


@given(models.table_graphs(max_variables=4))
@settings(max_examples=draws(150))
def test_gain_is_the_divergence_of_adding_the_factor(graph):
    seed = seeds.unary(graph)
    small = graph.keep(seed)
    if not np.isfinite(naive.log_z(small)):
        return
    gains = factor_gains(graph, Exact(method="enumerate")(small), seed)
    assert np.isinf(gains[seed]).all()
    for i in np.flatnonzero(~seed):
        with_i = graph.keep(np.flatnonzero(seed | (np.arange(graph.n_factors) == i)))
        if not np.isfinite(naive.log_z(with_i)):
            assert np.isinf(gains[i])
            continue
        exact = naive.divergence(small, with_i)
        assert gains[i] == pytest.approx(exact, rel=1e-9, abs=1e-9), i


BOUNDED = {**lists.graphs(), **lists.higher_order(), **lists.every_kind(), **lists.logical()}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", BOUNDED)
def test_scores_lie_within_their_bounds(name, score):
    """Whatever the marginals: drawn, almost certain, certain. The spread is that of the table."""
    graph, rng = BOUNDED[name], np.random.default_rng(0)
    most = np.empty(graph.n_factors)
    for g in graph.groups:
        most[g.ids] = g.score_bounds(score)
        tables = g.log_tables()
        with np.errstate(invalid="ignore"):
            wide = np.where(np.isneginf(tables).any(axis=1), np.inf, np.ptp(tables, axis=1))
        np.testing.assert_allclose(g.spread(), wide, rtol=1e-14)
    for alpha in (3.0, 1.0, 0.3, 0.03, 0.0003):
        probs = [rng.dirichlet(np.full(s, alpha)) for s in graph.n_states]
        m = Marginals.from_probs(graph, np.concatenate([*probs, []]), "drawn")
        assert (factor_scores(graph, m, None, score) <= most * (1 + 1e-12) + 1e-15).all()


@given(models.table_graphs(max_variables=4), st.integers(0, 1000))
def test_drawn_scores_lie_within_their_bounds(graph, seed):
    rng = np.random.default_rng(seed)
    probs = [rng.dirichlet(np.ones(s)) for s in graph.n_states]
    m = Marginals.from_probs(graph, np.concatenate([*probs, []]), "drawn")
    for score in SCORES:
        found = factor_scores(graph, m, None, score)
        for g in graph.groups:
            error = 1e-14 * (1 + g.magnitude())
            assert (found[g.ids] <= g.score_bounds(score) * (1 + 1e-12) + error).all()


@pytest.mark.parametrize("theta", [1e-8, 1e-3, 0.009, 0.011, 0.5, 3.0, 40.0, 700.0, 1e5])
def test_bounds_of_scores_are_reached(theta):
    """The gain of a feature at its worst mean; reverse, at that of the way back; residual, at 1/2.

    That mean is (1 - r / (e^r - 1)) / r, about 1/2 for small weights and 1 / r for large ones.
    """
    one = FactorGraph.empty([2]).add_features([[0]], [theta], [False, True])
    pair = FactorGraph.empty([2, 2]).add_features([[0, 1]], [theta], "and")
    (most,) = one.groups[0].score_bounds()
    assert most <= min(theta**2 / 8 * (1 + 1e-12), theta)
    small = theta < 1e-3
    mean = 0.5 if small else 1 / theta - 1 / (np.expm1(theta) if theta < 700 else np.inf)
    m = Marginals.from_probs(one, [1 - mean, mean], "worst")
    rel = 1e-4 if theta < 0.1 else 1e-9
    assert factor_scores(one, m)[0] == pytest.approx(most, rel=rel)
    if 1e-3 < theta < 40:
        on = (1 - mean) * np.exp(-theta)
        m = Marginals.from_probs(one, np.array([mean, on]) / (mean + on), "worst")
        assert factor_scores(one, m, None, "reverse")[0] == pytest.approx(most, rel=1e-4)
    half = Marginals.from_probs(pair, [0.5] * 4, "half")
    (most,) = pair.groups[0].score_bounds("residual")
    assert factor_scores(pair, half, None, "residual")[0] == pytest.approx(most, rel=1e-12)


@given(models.binary_graphs(max_variables=5))
@settings(max_examples=draws(150))
def test_gain_of_features_and_of_their_tables(graph):
    seed = seeds.unary(graph)
    m = Exact()(graph.keep(seed))
    gains = factor_gains(graph, m, seed)
    tables = models.as_tables(graph)
    np.testing.assert_allclose(factor_gains(tables, m, seed), gains, rtol=1e-7, atol=1e-9)


def test_gain_is_stable():
    """Against the exact value in more digits: tiny and huge weights, means next to 0 and 1."""
    mpmath = pytest.importorskip("mpmath")

    mpmath.mp.dps = 60
    rng = np.random.default_rng(0)
    n = 4000
    kinds = [10.0 ** rng.uniform(-14, -0.31, n), rng.random(n), np.zeros(n), np.ones(n)]
    mu = np.choose(rng.integers(0, 4, n), kinds)
    theta = rng.choice([-1, 1], n) * 10.0 ** rng.uniform(-8, np.where(rng.random(n) < 0.5, 3.4, 1))
    order = np.argsort(np.minimum(mu, 1 - mu) * np.exp(np.minimum(theta, 700)))  # blocks of a kind
    mu, theta = mu[order], theta[order]
    blocks = np.empty(n)
    feature_gains(mu, 1 - mu, theta, blocks)
    for i in range(n):
        m, t = mpmath.mpf(mu[i]), mpmath.mpf(theta[i])
        exact = float(mpmath.log(1 - m + m * mpmath.exp(t)) - m * t)
        assert blocks[i] == pytest.approx(exact, rel=1e-12, abs=1e-40)
        assert feature_gain(mu[i], 1 - mu[i], theta[i]) == pytest.approx(
            exact, rel=1e-11, abs=1e-40
        )
    shuffled, again = rng.permutation(n), np.empty(n)
    feature_gains(mu[shuffled], 1 - mu[shuffled], theta[shuffled], again)
    np.testing.assert_array_equal(again, blocks[shuffled], "neighbours in a block do not count")


def test_higher_arity_features():
    graph = lists.higher_order()["features"]
    seed = seeds.unary(graph)
    m = Exact()(graph.keep(seed))
    gains = factor_gains(graph, m, seed)
    for i in np.flatnonzero(~seed):
        table = graph.log_table(i)
        joint = m.product(graph.scope(i))
        expected = np.log((joint * np.exp(table)).sum()) - (joint * table).sum()
        assert gains[i] == pytest.approx(expected, abs=1e-12)


def test_seeds_have_a_mask_and_all_global_factors():
    wrong = np.ones(3, dtype=bool)
    refused(MinferError, "seed", infer, lists.graphs()["grid"], MinJoint(0.1), Exact(), seed=wrong)
    graph = lists.with_globals()["one-of-three-and-pairs"]
    m = BeliefPropagation()(graph.keep(seeds.unary(graph)))
    refused(MinferError, "put it into the seed", factor_gains, graph, m, seeds.unary(graph))
    assert np.isfinite(
        factor_gains(graph, m, seeds.unary_and_globals(graph))[~seeds.unary_and_globals(graph)]
    ).all()


@given(models.table_graphs(max_arity=2))
def test_spanning_forest(graph):
    mask = seeds.spanning_forest(graph)
    kept = graph.keep(mask)
    assert mask[graph.arity <= 1].all()
    before, after = graph.component_labels(), kept.component_labels()
    assert len(np.unique(before)) == len(np.unique(after)), "spans"
    trees = len(np.unique(after))
    assert int((kept.arity == 2).sum()) == graph.n_variables - trees, "has no cycle"


BOXES = [*(s for s in lists.SOLVERS if s != "enumerate"), "pyagrum"]


@pytest.mark.drawn
@pytest.mark.parametrize(("solver", "seed"), few(itertools.product(BOXES, SEEDS), len(BOXES)))
def test_every_solver_as_black_box(solver, seed):
    rng = np.random.default_rng(1)
    graph = FactorGraph.grid(2 * rng.normal(size=(4, 4)), 0.5)
    if solver == "pyagrum":
        pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
    s = lists.pyagrum_solver if solver == "pyagrum" else lists.SOLVERS[solver]
    everything = infer(graph, MinJoint(0.0), s, seed=SEEDS[seed])
    assert everything.keep.all()
    assert everything.divergence == 0.0
    nothing = infer(graph, MinJoint(np.inf), s, seed=SEEDS[seed])
    np.testing.assert_array_equal(nothing.keep, nothing.seed)
    assert nothing.marginals is nothing.seed_marginals, "nothing added: the second run is skipped"
    some = infer(graph, MinDivergence(6), s, seed=SEEDS[seed])
    assert some.n_added == 6
    assert some.n_seed + some.n_added + some.n_forced == len(some.kept)
    assert some.divergence == pytest.approx(some.scores[~some.keep].sum())
    assert list(some.timings) == ["seed", "scores", "select", "compensate", "infer"]
    assert "kept" in repr(some)
    left = infer(graph, MinDivergence(6), s, seed=SEEDS[seed], recipe=Compensated(refreshes=1))
    assert left.n_added == 6
    assert left.score_kind == "residual"
    assert np.isfinite(left.error_estimates).all()
    truth = naive.marginals(graph)
    if solver not in lists.SAMPLERS | lists.LOWER:
        assert (
            np.abs(left.marginals.probs - truth).mean()
            < np.abs(nothing.marginals.probs - truth).mean()
        )


def test_surrogate_is_exact_for_independent_features():
    """Left-out features over disjoint pairs are independent under the seed: D1 = D."""
    rng = np.random.default_rng(3)
    graph = FactorGraph.pairwise(rng.normal(size=6), [[0, 1], [2, 3], [4, 5]], [1.0, -2.0, 0.7])
    result = infer(graph, MinDivergence(1), Exact())
    exact = naive.divergence(graph.keep(result.keep), graph)
    assert result.divergence == pytest.approx(exact, abs=1e-10)


def test_forced_factors_are_kept_outside_the_budget():
    graph = lists.graphs()["zeros"].add_tables([[0], [1], [2]], [[0, 0.1], [0.2, 0], [0, 0, 0.3]])
    result = infer(graph, MinDivergence(0), Exact())
    assert result.n_forced == 2
    assert result.n_added == 0
    assert np.isfinite(result.divergence)


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
