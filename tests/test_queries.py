"""Queries: posteriors, joints and P(e) by pruned, prepared plans, against all assignments."""

import gc
import math
import pickle
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal, localcontext
from importlib import import_module

import numpy as np
import pytest

import minfer
from draws import blocks, draws, few
from minfer import (
    BeliefPropagation,
    ContradictionError,
    EvidenceError,
    Exact,
    FactorGraph,
    ModelError,
    RefusedError,
)
from minfer.solvers import joint_table, plans
from minfer.solvers.plans import KEPT
from minfer.solvers.pruning import prune
from oracle import models
from oracle import truth as naive
from refused import all_refused, refused
from test_states import sprinkler


@pytest.fixture(autouse=True, params=["tables", "trees"])
def how(request, monkeypatch):
    """Small questions are looked up in whole joint tables; here they go to clique trees as well."""
    if request.param == "trees":
        monkeypatch.setattr(joint_table.AnswerTable, "of", lambda *_: None)


def test_one_small_question_needs_no_plan(monkeypatch):
    """Nor does the probability of its evidence, in a network and in a model of another kind."""
    garden = sprinkler()
    if joint_table.AnswerTable.of(prune(garden, (0,), ()), 0, ()) is None:
        pytest.skip("tables are switched off")
    monkeypatch.setattr(plans.CliquePlan, "__init__", lambda *_: pytest.fail("a plan was made"))
    undirected = minfer.FactorGraph.pairwise([0.5, -1.0, 0.2], [[0, 1], [1, 2]], [1.5, -0.7])
    for graph in (garden, undirected):
        seen = {graph.n_variables - 1: 1}
        found = minfer.query(graph, 0, seen)
        w = naive.weights(graph, seen)
        log_evidence = math.log(w.sum()) - math.log(naive.weights(graph).sum())
        assert np.abs(found - naive.table(w, [0])).max() < 1e-12
        assert found.log_evidence == pytest.approx(log_evidence, abs=1e-11)


CASES = [(kind, seed) for kind in models.NETWORKS for seed in few(range(60), 20)]


@pytest.mark.drawn
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_posteriors_joints_and_evidence_are_those_of_all_assignments(kind, seed):
    rng = np.random.default_rng([seed, len(kind)])
    graph = models.NETWORKS[kind](rng, zeros=float(rng.choice([0.0, 0.2, 0.4])))
    seen = models.evidence(rng, graph)
    some = rng.choice(graph.n_variables, int(rng.integers(1, min(3, graph.n_variables) + 1)), False)
    some = [int(v) for v in some]
    w = naive.weights(graph, seen)
    if w.sum() == 0.0:
        for targets in (some[0], some, None):
            refused(ContradictionError, "", minfer.query, graph, targets, seen)
        return
    log_evidence = math.log(w.sum()) - math.log(naive.weights(graph).sum())
    one = minfer.query(graph, some[0], seen)
    assert np.abs(one - naive.table(w, some[:1])).max() < 1e-12
    assert one.log_evidence == pytest.approx(log_evidence, abs=1e-11)
    assert list(one.to_dict()) == list(graph.states(some[0]))
    table = minfer.query(graph, [graph.name(v) for v in some], seen)
    assert np.abs(table.table - naive.table(w, some)).max() < 1e-12
    assert table.log_evidence == pytest.approx(log_evidence, abs=1e-11)
    at = np.unravel_index(int(np.argmax(table.table)), table.table.shape)
    assert table.most_probable() == tuple(graph.states(v)[k] for v, k in zip(some, at))
    every = minfer.query(graph, None, seen)
    for v in range(graph.n_variables):
        assert np.abs(every[v] - naive.table(w, [v])).max() < 1e-12
    assert every.log_z == pytest.approx(math.log(w.sum()), abs=1e-11)
    if graph.n_factors:
        scope = graph.scope(0).tolist()
        assert np.abs(every.factor(0) - naive.table(w, scope)).max() < 1e-11


@pytest.mark.parametrize("seed", range(30))
def test_a_prepared_question_serves_all_evidence_on_its_variables(seed):
    """And of a model that has evidence of its own."""
    rng = np.random.default_rng(seed)
    graph = models.network(rng, 6, 0.2)
    if seed % 2:
        last = graph.n_variables - 1
        with suppress(ContradictionError):
            graph = graph.with_evidence({0: 0})
            graph = graph.with_soft_evidence({last: rng.random(int(graph.n_states[last])).tolist()})
    observed = [v for v in range(graph.n_variables) if rng.random() < 0.4]
    target = int(rng.integers(graph.n_variables))
    asked = minfer.queries.prepare(graph, target, observed)
    pair = minfer.queries.prepare(graph, [target], observed)
    for _ in range(8):
        seen = {graph.name(v): int(rng.integers(graph.n_states[v])) for v in observed}
        w = naive.weights(graph, seen)
        if w.sum() == 0.0:
            for ask in (asked, pair, lambda seen: minfer.query(graph, target, seen)):
                refused(ContradictionError, "", ask, seen)
            continue
        truth = naive.table(w, [target])
        for one in (asked(seen), minfer.query(graph, target, seen)):
            assert np.abs(one - truth).max() < 1e-12
            assert one.log_evidence == pytest.approx(math.log(w.sum()), abs=1e-11)
        assert np.abs(pair(seen).table - truth).max() < 1e-12


def test_what_cannot_matter_is_left_out():
    g = sprinkler()  # rain -> sprinkler, wet <- both, count <- wet
    assert prune(g, [0], []).graph.names == ("rain",)
    assert set(prune(g, [0], [1]).graph.names) == {"rain", "sprinkler"}
    assert set(prune(g, [3], [2]).graph.names) >= {"wet", "count"}
    chain = FactorGraph.network(
        {"a": 2, "b": 2, "c": 2, "d": 2},
        {"a": [0.3, 0.7], "b": ("a", [[0.2, 0.8], [0.6, 0.4]]),
         "c": ("b", [[0.2, 0.8], [0.6, 0.4]]), "d": ("c", [[0.2, 0.8], [0.6, 0.4]])},
    )  # fmt: skip
    assert set(prune(chain, [3], [1]).graph.names) == {"b", "c", "d"}  # a is cut off by b
    assert set(prune(chain, [0], [1]).graph.names) == {"a", "b"}  # c, d are barren
    assert set(prune(chain, [3], [1], whole=True).graph.names) == {"a", "b", "c", "d"}
    apart = FactorGraph.from_tables([2, 2, 2], [[0, 1], [2]], [np.zeros((2, 2)), [0.0, 1.0]])
    assert prune(apart, [0], []).graph.n_variables == 2
    never = FactorGraph.from_tables([2, 2, 2], [[0, 1], [2]], [np.zeros((2, 2)), [0.0, -np.inf]])
    assert prune(never, [0], []).graph.n_variables == 3
    assert prune(never, [0], [], check=False).graph.n_variables == 2


def test_a_contradiction_elsewhere_is_found_unless_waived():
    g = FactorGraph.network(
        {"a": 2, "b": ["no", "yes"], "c": 2},
        {"a": [0.5, 0.5], "b": [0.5, 0.5], "c": ("b", [[1.0, 0.0], [0.0, 1.0]])},
    )
    seen = {"b": "yes", "c": 0}
    refused(ContradictionError, "", minfer.query, g, "a", seen)
    assert minfer.query(g, "a", seen, check=False).tolist() == [0.5, 0.5]
    assert minfer.query(g, "a", seen, check=False).log_evidence == -math.inf


def digits(graph: FactorGraph, seen: dict) -> dict:
    """Every allowed assignment's weight with 60 digits and any exponent."""
    out = {}
    factors = naive.factors_of(graph)
    for x in naive.assignments(graph).tolist():
        logs = [table[tuple(x[v] for v in scope)] for scope, table in factors]
        for v, s in seen.items():
            logs.append(math.log(s[x[v]]) if np.ndim(s) and s[x[v]] else 0.0)
            if (s[x[v]] == 0.0) if np.ndim(s) else (x[v] != s):
                logs.append(-math.inf)
        if min(logs, default=0.0) > -math.inf:
            out[tuple(x)] = sum(map(Decimal, logs), Decimal(0)).exp()
    return out


def summed(weights: dict, which: list) -> dict:
    out: dict = {}
    for x, w in weights.items():
        key = tuple(x[v] for v in which)
        out[key] = out.get(key, Decimal(0)) + w
    return out


@pytest.mark.drawn
@pytest.mark.parametrize("scale", [1.0, 30.0, 400.0, 3000.0])
def test_conditions_less_probable_than_any_number(scale):
    """NaN where the condition's probability is below 1e-308, and digits lost well above that."""
    rng = np.random.default_rng(int(scale))
    seen_rare = 0
    with localcontext() as context:
        context.prec = 60
        for _ in range(draws(60)):
            n = int(rng.integers(2, 6))
            graph = FactorGraph.empty(rng.integers(1, 4, size=n))
            for _ in range(int(rng.integers(1, 7))):
                scope = rng.choice(n, size=int(rng.integers(1, min(n, 3) + 1)), replace=False)
                table = np.round(scale * rng.normal(size=graph.n_states[scope]), 3)
                table[rng.random(table.shape) < 0.1] = -np.inf
                graph = graph.add_tables([scope], table[None])
            seen: dict = {}
            for v in range(n):
                if rng.random() < 0.2:
                    seen[v] = int(rng.integers(graph.n_states[v]))
                elif rng.random() < 0.1:
                    seen[v] = rng.random(graph.n_states[v])
            weights = digits(graph, seen)
            if not weights:
                continue
            which = [int(v) for v in rng.choice(n, size=2, replace=False)]
            both, of = summed(weights, which), summed(weights, which[1:])
            total = sum(weights.values())
            hard = {v: s for v, s in seen.items() if not np.ndim(s)}
            soft = np.zeros(int(graph.n_states.sum()))
            for v in seen.keys() - hard.keys():
                soft[graph.offsets[v] : graph.offsets[v + 1]] = np.log(seen[v])
            answers = [minfer.query(graph, which, seen)]
            observed = graph.tilt(soft).with_evidence(hard)
            answers += [s(observed).joint(*which) for s in (Exact(), Exact(method="clique-tree"))]
            answers += [minfer.query(graph, which, seen, solver=Exact())]
            want = np.full([int(graph.n_states[v]) for v in which], np.nan)
            for b, w in of.items():
                seen_rare += w / total < Decimal("1e-308")
                for a in range(len(want)):
                    want[a, b[0]] = both.get((a, *b), Decimal(0)) / w
            for j in answers:
                np.testing.assert_allclose(j.conditional(1).table, want, rtol=0, atol=1e-9)
                for b in of:
                    found = j.conditional({1: b[0]}).table
                    np.testing.assert_allclose(found, want[:, b[0]], rtol=0, atol=1e-9)
            first, information = summed(weights, which[:1]), Decimal(0)
            for (a, b), w in both.items():
                information += w / total * (w * total / (first[a,] * of[b,])).ln()
            for j in answers:
                got = j.mutual_information()
                assert got == pytest.approx(float(information), rel=1e-9, abs=1e-13)
            if which[0] not in hard and which[1] not in hard:
                found = minfer.information(graph, which[0], seen)[graph.name(which[1])]
                assert found.mutual_information == pytest.approx(float(information), abs=1e-10)
                assert np.isfinite([found.share, found.entropy]).all()
    assert seen_rare > 0 or scale < 1000.0


def test_a_joint_by_names():
    g = sprinkler()
    j = minfer.query(g, ["rain", "wet"], {"count": 2})
    assert j.variables == ("rain", "wet")
    assert j["yes", "no"] == j[1, 0] == j.table[1, 0]
    assert j[{"wet": "yes"}] == pytest.approx(j.table[:, 1].sum())
    assert j.conditional("wet").table.sum(axis=0).tolist() == pytest.approx([1.0, 1.0])
    assert j.conditional("wet").given == ("wet",)
    given = j.conditional({"wet": "yes"})
    assert given.variables == ("rain",)
    assert given["yes"] == pytest.approx(j["yes", "yes"] / j[{"wet": "yes"}])
    assert j.marginal("wet", "rain").table.T.tolist() == j.table.tolist()
    assert j.to_dict()["states"] == {"rain": ["no", "yes"], "wet": ["no", "yes"]}
    rain, wet = j.marginal("rain").table, j.marginal("wet").table
    direct = (j.table * np.log(j.table / (rain[:, None] * wet))).sum()
    assert j.mutual_information("rain", "wet") == pytest.approx(direct)
    assert "P(rain, wet)" in repr(j)
    assert str(j).splitlines()[2].split() == ["rain", "wet", "probability"]
    for wrong in ("maybe", "no"), ("no", "no", "no"):
        with pytest.raises(ModelError):
            j[wrong]
    refused(ModelError, "rain, wet, not 'snow'", j.marginal, "snow")


def test_a_target_that_is_observed():
    g = sprinkler()
    assert minfer.query(g, "wet", {"wet": "yes"}).tolist() == [0.0, 1.0]
    j = minfer.query(g, ["rain", "wet"], {"wet": "yes"})
    assert j.table[:, 0].tolist() == [0.0, 0.0]
    assert np.abs(j.table[:, 1] - minfer.query(g, "rain", {"wet": "yes"})).max() < 1e-12
    both = minfer.query(g, ["rain", "wet"], {"wet": "yes", "rain": "no"})
    assert both.table.tolist() == [[0.0, 1.0], [0.0, 0.0]]


def test_another_solver():
    g = sprinkler()
    exact = minfer.query(g, "rain", {"wet": "yes"})
    bp = minfer.query(g, "rain", {"wet": "yes"}, solver=BeliefPropagation())
    whole = BeliefPropagation()(g.with_evidence({"wet": "yes"}))
    assert np.abs(whole["rain"] - bp).max() < 1e-6
    assert bp.states == ("no", "yes")
    assert math.isfinite(bp.log_evidence)
    assert minfer.query(g, None, {"wet": 1}, solver=BeliefPropagation()).solver == (
        BeliefPropagation()
    )
    same = minfer.query(g, ["rain"], {"wet": "yes"}, solver=Exact())
    assert np.abs(same.table - exact).max() < 1e-12


def test_plans_that_are_kept_have_a_limit_of_cells(monkeypatch):
    """A few large plans count as much as many small ones; the newest always stays."""
    module = import_module("minfer.solvers.plans")
    for most, kept in ((2.0**40, 4), (0.0, 1)):
        monkeypatch.setattr(module, "MOST_CELLS", most)
        g = FactorGraph.grid(np.zeros((3, 3)), 1.0)
        for v in range(4):
            minfer.query(g, None, {v: 0})
        assert len(module.KEPT[g].plans) == kept
        assert len(module.KEPT[g].asked) == kept


def test_plans_are_kept_as_long_as_the_model():
    g = sprinkler()
    minfer.query(g, "rain", {"wet": "yes"})
    plans = KEPT[g].plans
    n = len(plans)
    minfer.query(g, "rain", {"wet": "no"})
    assert len(plans) == n
    minfer.query(g, "rain", {"count": 1})
    assert len(plans) == n + 1
    asks = (
        minfer.mpe,
        lambda g, e: minfer.mpe(g, e, variables=["rain"]),
        lambda g, e: minfer.sample(g, 3, e),
        lambda g, e: minfer.sensitivity(g, "rain", 0, e),
    )
    for ask in asks:
        ask(g, {"wet": "yes"})
        n = len(plans)
        ask(g, {"wet": "no"})  # other states find the same tree
        assert len(plans) == n
    model = weakref.ref(g)
    del g, plans
    gc.collect()
    assert model() is None


@pytest.mark.parametrize(
    ("targets", "seen", "error", "message"),
    [
        ("rian", {}, ModelError, "did you mean rain"),
        (["rain", "rain"], {}, ModelError, "named twice"),
        (3.5, {}, ModelError, "list of variables"),
        ("rain", {"wet": "yess"}, EvidenceError, "mean yes"),
        ("rain", {"wet": [0.2]}, EvidenceError, "has 2 states"),
        ("rain", {"wet": [0.0, 0.0]}, EvidenceError, "not all zero"),
        ("rain", {"wet": 1, 2: 0}, EvidenceError, "given twice"),
        ("rain", "wet=1", EvidenceError, "mapping"),
    ],
)
def test_bad_questions_are_refused_with_the_place(targets, seen, error, message):
    refused(error, message, minfer.query, sprinkler(), targets, seen)


def test_a_prepared_question_wants_the_evidence_it_was_prepared_for():
    asked = minfer.queries.prepare(sprinkler(), "rain", ["wet"], soft=["count"])
    assert asked({"wet": "yes", "count": [1, 2, 3]}).sum() == pytest.approx(1.0)
    assert asked.observed == ("wet",)
    assert asked.targets == ("rain",)
    for wrong in ({}, {"wet": 1}, {"wet": 1, "count": 2}, {"wet": 1, "count": [1, 1, 1], 1: 0}):
        refused(EvidenceError, "prepared with these", asked, wrong)
    refused(EvidenceError, "mean yes", asked, {"wet": "yess", "count": [1, 2, 3]})
    with pytest.raises(EvidenceError, match="observed and have soft"):
        minfer.queries.prepare(sprinkler(), "rain", ["wet"], soft=["wet"])


def test_questions_that_are_refused_whatever_was_asked_before():
    rng = np.random.default_rng(0)
    pairs = [[a, b] for a in range(60) for b in range(a + 1, 60)]
    wide = FactorGraph.pairwise(np.zeros(61), pairs, rng.normal(size=len(pairs)))
    g = FactorGraph.from_tables([2, 2], [[0, 1]], [np.zeros((2, 2))])
    minfer.query(g, 1)
    minfer.query(g, [0, 1])
    minfer.query(g, 0, {1: 0})
    never = FactorGraph.network(
        {"a": 2, "b": 2, "c": 2}, {"a": [0.5, 0.5], "b": [0.3, 0.7], "c": [0.1, 0.9]}
    ).tilt([-np.inf, -np.inf, 0, 0, 0, 0])
    bools = r"True|False"
    all_refused(
        (lambda: minfer.query(wide, 0), RefusedError, "GiB"),
        (lambda: minfer.query(FactorGraph.empty([50] * 6), list(range(6))), RefusedError,
         r"1\.56e\+10 cells"),
        *((lambda t=t: minfer.query(never, t, {"c": 1}), ContradictionError, "")
          for t in ("a", "b", ["b", "c"], None)),
        (lambda: minfer.query(g, True), minfer.MinferError, bools),
        (lambda: minfer.query(g, [False, True]), minfer.MinferError, bools),
        (lambda: minfer.query(g, 0, {True: 0}), minfer.MinferError, bools),
        (lambda: minfer.queries.prepare(g, 0, [1])({True: 0}), minfer.MinferError, bools),
        *((lambda n=n: minfer.query(g, n), ModelError, "there is no variable")
          for n in ("x²", "x٣", "x٢")),
        *((lambda n=n: minfer.query(g, 0, {n: 1}), EvidenceError, "there is no variable")
          for n in ("x²", "x٣", "x٢")),
    )  # fmt: skip
    assert minfer.query(wide, 60).tolist() == [0.5, 0.5]  # what is left of it is small


@pytest.mark.drawn
@pytest.mark.parametrize("block", range(blocks(1)))
@pytest.mark.parametrize("name", [
    "asia", "alarm", "insurance",
    *(pytest.param(x, marks=pytest.mark.slow)
      for x in ("sachs", "hailfinder", "hepar2", "win95pts")),
])  # fmt: skip
def test_the_same_as_pyagrum(name, block, tmp_path):
    """States at random and likelihoods: often impossible. What no double holds is so there."""
    gum, bn, graph = models.loaded(name, tmp_path)
    assert graph.directed
    rng = np.random.default_rng([1, block])
    names = list(graph.names)
    engine = gum.LazyPropagation(bn)
    joint = gum.VariableElimination(bn)
    for _ in range(draws(15)):
        observed = rng.choice(names, int(rng.integers(0, len(names) // 4 + 1)), replace=False)
        seen: dict = {str(v): str(rng.choice(graph.states(str(v)))) for v in observed}
        target, other = (str(v) for v in rng.choice([v for v in names if v not in seen], 2, False))
        for v in [v for v in seen if rng.random() < 0.2]:
            like = rng.random(len(graph.states(v))) * 10.0 ** rng.integers(-3, 2)
            like[2:][rng.random(len(like) - 2) < 0.3] = 0.0  # of one state pyAgrum takes the state
            seen[v] = like.tolist()
        engine.setEvidence(seen)
        try:
            log_evidence = math.log(engine.evidenceProbability())
        except (ValueError, gum.GumException):
            try:
                assert minfer.query(graph, target, seen).log_evidence < -690.0
            except ContradictionError:
                for asked in (None, [target, other]):
                    refused(ContradictionError, "", minfer.query, graph, asked, seen)
            continue
        found, every = minfer.query(graph, target, seen), minfer.query(graph, None, seen)
        assert found.log_evidence == pytest.approx(log_evidence, abs=1e-9)
        assert every.log_z == pytest.approx(log_evidence, abs=1e-9)
        np.testing.assert_allclose(found, engine.posterior(target).toarray(), atol=1e-9)
        for v in names:
            np.testing.assert_allclose(every[v], engine.posterior(v).toarray(), atol=1e-9)
        joint.setEvidence(seen)
        table = joint.jointPosterior({target, other})
        axes = list(reversed(table.names))
        want = table.toarray().transpose([axes.index(target), axes.index(other)])
        for ours in (minfer.query(graph, [target, other], seen), every.joint(target, other)):
            np.testing.assert_allclose(ours.table, want, atol=1e-9)
        hard = {v: [state] for v, state in seen.items() if isinstance(state, str)}
        if hard and hard.keys() == seen.keys():
            row = minfer.predict(graph, hard, [target], evidence=list(hard), workers=1)
            assert row["log P(e)"][0] == pytest.approx(log_evidence, abs=1e-9)


def test_numbers_that_no_plain_double_holds():
    wide = FactorGraph.named(
        {"a": 2, "b": 3, "c": 2},
        [
            (["a", "b"], np.array([[0.0, -900, 5], [900, -1800, 0]])),
            (["b", "c"], np.array([[0.0, -1500], [800, -100], [0, 1700.0]])),
        ],
    )
    for targets in (["b", "a"], ["a", "b"], ["b", "c", "a"]):  # a state excluded softly
        found = minfer.query(wide, targets, {"a": [0.0, 1.0]})
        assert found.marginal("a").table.tolist() == [0.0, 1.0]
        assert found.table.sum() == pytest.approx(1.0)
    logs = [[0.0, -1.0], [-3000.0, -3002.0], [-np.inf, -np.inf]]
    graph = FactorGraph.named({"e": 3, "t": 2}, {("e", "t"): logs})
    for state, want in ((0, 1.0), (1, 2.0)):
        found = minfer.query(graph, "t", {"e": state})
        assert found[1] == pytest.approx(1 / (1 + math.exp(want)), rel=1e-12)
    refused(ContradictionError, "e", minfer.query, graph, "t", {"e": 2})
    two = [(["a"], [-2000.0, 0]), (["a", "b"], [[1500.0, 1499], [0, 0]])]
    moved = minfer.sensitivity(FactorGraph.named({"a": 2, "b": 2}, two), "b", 0)
    assert moved.derivatives[0].tolist() == [math.inf, 0.0]  # e^1500 is not a number
    assert not any(np.isnan(d).any() for d in moved.derivatives)


def test_log_evidence_where_a_parent_has_no_table():
    g = FactorGraph.named({"a": 2, "b": 2}, {("a", "b"): [[0.9, 0.1], [0.2, 0.8]]},
                          probabilities=True)  # fmt: skip
    assert minfer.query(g, "a").log_evidence == pytest.approx(0.0, abs=1e-15)
    wanted = np.log([0.55, 0.5])
    assert minfer.query(g, "a", {"b": 0}).log_evidence == pytest.approx(wanted[0])
    assert minfer.query(g, "b", {"a": 0}).log_evidence == pytest.approx(wanted[1])
    found = [minfer.predict(g, {v: [0]}, t)["log P(e)"][0] for v, t in (("b", "a"), ("a", "b"))]
    assert found == pytest.approx(wanted.tolist())


@pytest.mark.drawn
def test_questions_from_several_threads():
    n = 10
    g = FactorGraph.network(
        {f"v{i}": 2 for i in range(n)},
        {f"v{i}": ([f"v{i - 1}"], [[0.9, 0.1], [0.2, 0.8]]) if i else [0.5, 0.5] for i in range(n)},
    )

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(draws(200)):
            k = rng.permutation(n)[:4].tolist()
            float(minfer.query(g, k[0], dict.fromkeys(k[1:], 0)).log_evidence)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize(
    "ask",
    [
        lambda g, e: minfer.query(g, "count", e),
        lambda g, e: minfer.query(g, ["count", "rain"], e),
        lambda g, e: minfer.query(g, None, e),
        lambda g, e: minfer.queries.prepare(g, "count", list(e))(e),
        lambda g, e: minfer.query(g, "count", e, solver=minfer.BeliefPropagation()),
        lambda g, e: minfer.mpe(g, e),
        lambda g, e: minfer.mpe(g, e, variables=["count"]),
        lambda g, e: minfer.sample(g, 5, e),
        lambda g, e: minfer.information(g, "count", e),
        lambda g, e: minfer.influence(g, "count", e),
        lambda g, e: minfer.sensitivity(g, "count", 1, e),
        lambda g, e: minfer.explore(g, e),
        lambda g, e: minfer.explore(g, e, fix=True),
    ],
)
def test_a_contradiction_names_the_observations(ask):
    g = sprinkler()
    g = FactorGraph.network(
        {**{v: list(g.states(v)) for v in ("rain", "sprinkler", "wet", "count")}, "mood": 2},
        {
            **{v: (list(g.parents(v)), g.conditional(v).table) for v in g.names},
            "mood": ("count", np.full((3, 2), 0.5)),
        },
    )
    seen = {"sprinkler": "off", "mood": 1, "rain": "no", "wet": "yes"}
    order = "(sprinkler=off, rain=no|rain=no, sprinkler=off)"
    with pytest.raises(
        ContradictionError, match=f"{order} and wet=yes together have probability zero"
    ) as caught:
        ask(g, seen)
    assert "mood" not in str(caught.value)


def test_contradictions_of_soft_evidence_of_the_model_itself_and_pickled():
    g = sprinkler()
    with pytest.raises(ContradictionError, match="rain=no and soft evidence on wet") as caught:
        minfer.query(g, "count", {"sprinkler": 0, "wet": [0, 1], "rain": "no"})
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    broken = FactorGraph.named({"a": 2, "b": 2}, [(["a", "b"], np.full((2, 2), -np.inf))])
    refused(ContradictionError, "without any evidence", minfer.query, broken, "a", {"b": 0})


def test_every_answer_knows_its_log_evidence_and_makes_tables():
    pd = pytest.importorskip("pandas")
    g, seen = sprinkler(), {"wet": "yes"}
    one, two, every = (minfer.query(g, t, seen) for t in ("rain", ["rain", "sprinkler"], None))
    wanted = one.log_evidence
    assert two.log_evidence == pytest.approx(wanted)
    assert every.log_evidence == pytest.approx(wanted)
    assert minfer.query(g).log_evidence == pytest.approx(0.0, abs=1e-12)
    soft = g.with_soft_evidence({"wet": [0.5, 0.25]})
    assert minfer.query(soft).log_evidence == pytest.approx(
        minfer.query(soft, "rain").log_evidence, abs=1e-12
    )
    frame = one.to_pandas()
    assert isinstance(frame, pd.Series)
    assert (frame.name, frame.index.name) == ("probability", "rain")
    assert frame["yes"] == one["yes"]
    assert two.to_pandas().loc[("yes", "off")] == two["yes", "off"]
    table = every.to_pandas()
    assert table["rain"]["yes"] == every["rain"]["yes"]
    assert table.index.names == ["variable", "state"]
    assert len(table) == 9
    assert Exact()(g)["rain"].to_pandas()["yes"] == pytest.approx(0.2)
