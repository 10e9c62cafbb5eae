"""Weights of rules from labels: counts and gradients against plain Python, and what is learned."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

pytest.importorskip("duckdb")

from draws import blocks, few, thorough
from minfer import (
    BeliefPropagation,
    ContradictionError,
    Exact,
    ModelError,
    RefusedError,
    Rules,
    SettingsError,
)
from minfer.learn import BetheLikelihood, MarginalLoss
from minfer.rules import weights as w_
from minfer.rules.examples import duplicate_people, friends_and_smokers
from minfer.rules.formulas import Or, free_variables
from minfer.rules.ground import parts_of
from minfer.rules.parse import parse_rule
from oracle import grounding as oracle


def drawn(seed: int):
    """A program, labels that evidence and functional predicates allow, and the atoms in order."""
    case = oracle.draw_case(seed)
    rng = random.Random(seed + 10_000)
    atoms = [(name, *row) for name, rows in case.open.items() for row in rows]
    for _ in range(200):
        truth = [case.evidence.get(a, rng.random() < 0.4) for a in atoms]
        if oracle.unique_holds(case, atoms, truth):
            return case, atoms, truth
    return None


def labelled(case, atoms, truth, **settings):
    program = oracle.program_of(case, unbound="domain", **settings)
    labels = {
        name: {
            f"c{k}": [a[k + 1] for a, t in zip(atoms, truth) if t and a[0] == name]
            for k in range(len(case.types[name]))
        }
        for name in case.open
    }
    return program, labels


def true_groundings(case, world, rule: str) -> float:
    """How many groundings of a rule hold; of a hard one those of its parts, one by one."""
    parsed = parse_rule(rule)
    if not parsed.hard:
        return oracle.score(case, world, [replace(parsed, weight=1.0)])
    total = 0
    for part in parts_of(parsed, 0):
        formula = part.formula or Or(part.literals)
        kinds = oracle.kinds_of(parsed.formula, case.types)
        kinds |= oracle.kinds_of(formula, case.types)
        free = list(free_variables(formula))
        for values in product(*(case.domains[kinds[x]] for x in free)):
            values = dict(zip(free, values))
            total += oracle.holds(formula, values, world, kinds, case.domains)
    return total


def naive_difference(case, atoms, truth, rule, k: int) -> float:
    """How much more of a rule is true with atom k true, others of its key false."""
    others = list(truth)
    if atoms[k][0] in case.unique:
        for i, atom in enumerate(atoms):
            if atom[:2] == atoms[k][:2]:
                others[i] = False
    worlds = (
        oracle.world_of(case, atoms, [*others[:k], t, *others[k + 1 :]]) for t in (True, False)
    )
    true, false = (true_groundings(case, world, rule) for world in worlds)
    return true - false


def data_of(program, labels):
    rules = program.rules
    weights = w_._Weights(rules, w_._kept(w_._named(rules), rules, ()), False)
    return w_._Labelled(program, labels, True, weights), weights


def settled(case, atom) -> bool:
    """Whether evidence says which atom of its key is true: then there is nothing to learn of."""
    return atom[0] in case.unique and any(
        true and other[:2] == atom[:2] for other, true in case.evidence.items()
    )


def compare(seed: int) -> int:
    found = drawn(seed)
    if found is None:
        return 0
    case, atoms, truth = found
    program, labels = labelled(case, atoms, truth)
    try:
        program.ground()
    except ContradictionError:
        return 0
    data, weights = data_of(program, labels)
    counts, (hard, _) = data.differences()
    texts = program.store.atom_texts(np.arange(program.store.n_atoms))
    place = {f"{a[0]}({', '.join(map(str, a[1:]))})": k for k, a in enumerate(atoms)}
    forced = sum(r.hard for r in program.rules)
    for i, text in enumerate(texts):
        k = place[text]
        if atoms[k] in case.evidence or not data.free[i] or settled(case, atoms[k]):
            continue
        for r, rule in enumerate(case.rules):
            expected = naive_difference(case, atoms, truth, rule, k)
            if not program.rules[r].hard:
                column = weights.columns.get((r, None))
                got = 0.0 if column is None else counts[[i], :].toarray()[0, column]
                assert got == pytest.approx(expected), (seed, rule, text)
            elif forced == 1:
                assert hard[i] == pytest.approx(expected), (seed, rule, text)
    return 1


@pytest.mark.drawn
@pytest.mark.parametrize("block", [
    *range(2),
    *(pytest.param(k, marks=pytest.mark.slow)
      for k in range(4, 2 * blocks(8))),
])  # fmt: skip
def test_counts_agree_with_plain_python(block):
    cases = few(range(30), 4 if block < 2 else 30)
    assert sum(compare(30 * block + k) for k in cases) > (10 if thorough() else 1)
    assert compare(498) == compare(1310) == 1  # hard rules, and keys that evidence settles


def people(n: int = 12, seed: int = 0):
    """Symmetric, functional, hard, EXIST, <=> and + in one program, with labels."""
    rng = np.random.default_rng(seed)
    names = [f"P{k}" for k in range(n)]
    town = rng.integers(0, 3, n)
    pairs = [(a, b) for k, a in enumerate(names) for b in names[k + 1 :] if rng.random() < 0.4]
    words = [(x, f"W{k}") for x in names for k in range(4) if rng.random() < 0.4]
    program = (
        Rules()
        .closed("word", words, types=("person", None))
        .closed("near", pairs, types=("person", "person"))
        .open("same", pairs, types=("person", "person"), symmetric=True, log_odds=-0.5)
        .open("kind", [(x, f"K{k}") for x in names for k in range(3)], types=("person", "kind"),
              exactly_one="c1")
        .open("old", names, types=("person",))
        .rule("word(x, +w) => kind(x, +k)")
        .rule("same(x, y) ^ same(y, z) ^ x < z => same(x, z)")
        .rule("near(x, y) => (old(x) <=> old(y))")
        .rule("near(x, y) ^ kind(x, k) => kind(y, k)")
        .rule("EXIST y same(x, y)")
        .rule("old(x)")
        .rule("same(x, y) => near(x, y) v near(y, x).")
    )  # fmt: skip
    labels = {
        "same": [p for p in pairs if town[names.index(p[0])] == town[names.index(p[1])]],
        "kind": [(x, f"K{t}") for x, t in zip(names, town)],
        "old": [x for x, t in zip(names, town) if t < 2],
    }
    return program, labels


def test_the_gradient_of_the_pseudolikelihood():
    program, labels = people()
    data, weights = data_of(program, labels)
    objective = w_.RulePseudolikelihood(data)
    rng = np.random.default_rng(1)
    w = rng.normal(size=len(weights.columns))
    value, gradient = objective(w)
    assert np.isfinite(value)
    for k in range(len(w)):
        step = np.zeros(len(w))
        step[k] = 1e-5
        slope = (objective(w + step)[0] - objective(w - step)[0]) / 2e-5
        assert slope == pytest.approx(gradient[k], abs=1e-6)


def test_the_pseudolikelihood_is_that_of_the_model():
    """Each atom, or key, given all others as evidence: asked of the grounded graph."""
    program, labels = people(6)
    data, weights = data_of(program, labels)
    objective = w_.RulePseudolikelihood(data)
    found = np.random.default_rng(2).normal(size=len(weights.columns))
    other = program.with_weights(dict(zip(w_._named(program.rules), weights.by_rule(found))))
    graph, y, total = other.to_graph(), data.y, 0.0
    done = set()
    for i in range(len(y)):
        mine = np.flatnonzero(data.group == data.group[i]).tolist()
        if i in done:
            continue
        done |= set(mine)
        rest = {k: int(y[k]) for k in range(len(y)) if k not in mine}
        p = Exact()(graph.with_evidence(rest)).probs.reshape(-1, 2)
        if len(mine) == 1:
            total -= math.log(p[i, y[i]])
        else:
            total -= math.log(p[next(k for k in mine if y[k] == 1), 1])
    assert objective(found)[0] == pytest.approx(total)


def test_the_graph_with_weights_is_the_program_with_weights():
    program, labels = people(5)
    data, weights = data_of(program, labels)
    grounding = data.ground()
    rng = np.random.default_rng(3)
    mean, found = rng.normal(size=(2, len(weights.columns)))
    one = data.instance(grounding, mean)
    other = program.with_weights(dict(zip(w_._named(program.rules), weights.by_rule(found))))
    a = Exact()(one.graph_at(found - mean)).probs
    assert np.allclose(a, Exact()(other.to_graph()).probs, atol=1e-9)


@pytest.mark.drawn
@pytest.mark.parametrize("objective", ["marginals", "bethe"])
def test_gradients_on_the_graph(objective):
    program, labels = people(7)
    data, weights = data_of(program, labels)
    grounding = data.ground()
    one = data.instance(grounding, np.zeros(len(weights.columns)))
    solver = BeliefPropagation(tol=1e-11, max_iters=5000, damping=0.3)
    kind = {"marginals": MarginalLoss, "bethe": BetheLikelihood}[objective]
    evaluate = kind(solver).evaluator([one])
    w = 0.3 * np.random.default_rng(4).normal(size=len(weights.columns))
    got = evaluate(w)
    assert got.converged
    for k in few(range(len(w)), 8):
        step = np.zeros(len(w))
        step[k] = 1e-4
        slope = (evaluate(w + step).value - evaluate(w - step).value) / 2e-4
        assert slope == pytest.approx(got.gradient[k], abs=1e-4)


@cache
def smokers():
    """A program and its labels, drawn from it; tests change neither."""
    data = friends_and_smokers(200, seed=3)
    rng = np.random.default_rng(0)
    rules = Rules().closed("friends", data["friends"], types=("person", "person"))
    rules.open("smokes", data["people"], types=("person",))
    rules.rule("0.4: friends(x, y) => (smokes(x) <=> smokes(y))").rule("-0.5: smokes(x)")
    x = np.zeros(200, dtype=int)
    graph = rules.to_graph()
    fields = graph.field.reshape(-1, 2)[:, 1]
    pairs = np.concatenate([g._scope for g in graph.groups])
    theta = np.concatenate([g._theta for g in graph.groups])
    near = [[] for _ in x]
    for (a, b), t in zip(pairs.tolist(), theta.tolist()):
        near[a].append((b, t))
        near[b].append((a, t))
    for _ in range(100):  # Gibbs
        for k in range(200):
            z = fields[k] + sum(t * (2 * x[b] - 1) for b, t in near[k])
            x[k] = rng.random() < 1 / (1 + math.exp(-z))
    names = rules.store.atom_texts(np.arange(200))
    true = [n[7:-1] for n, s in zip(names, x) if s]
    return rules, {"smokes": true}


@pytest.mark.parametrize("objective", ["pseudolikelihood", "marginals", "bethe"])
def test_weights_are_found_again(objective):
    rules, labels = smokers()
    learned = rules.learn(labels, objective)
    assert learned.converged, learned
    assert learned.labels == 200
    like, alone = learned.weights.values()
    if objective != "marginals":  # whose loss is not about how atoms go together
        assert like == pytest.approx(0.4, abs=0.2)
        assert alone == pytest.approx(-0.5, abs=0.5)
    assert "friends(x, y)" in str(learned)
    assert [r.weight for r in learned.program.rules] == [like, alone]


def test_the_graph_may_be_grounded_lazily():
    rules, labels = smokers()
    start = rules.learn(labels)
    settings = {"solver": BeliefPropagation(tol=1e-9, max_iters=2000), "start": start}
    all_of_it = rules.learn(labels, "marginals", **settings)
    same = rules.learn(labels, "marginals", threshold=1e-12, **settings)
    assert np.allclose(list(same.weights.values()), list(all_of_it.weights.values()), atol=1e-4)
    alone = rules.learn(labels, "marginals", threshold=10.0, **settings)
    share = len(labels["smokes"]) / 200
    like, bias = alone.weights.values()  # nothing but the rule about single atoms is left
    assert like == pytest.approx(0.0, abs=1e-6)
    assert bias == pytest.approx(math.log(share / (1 - share)), abs=0.05)
    with pytest.raises(SettingsError, match="threshold= is for objectives on the grounded graph"):
        rules.learn(labels, threshold=1e-3)
    bare = Rules().open("coin", list(range(10))).rule("coin(x)")
    with pytest.raises(SettingsError, match="threshold= needs weights"):
        bare.learn({"coin": [1]}, "marginals", threshold=1e-3)


def test_priors_keep_and_means():
    rules, labels = smokers()
    free = rules.learn(labels, prior=None).weights
    tight = rules.learn(labels, prior=1e-3).weights
    assert all(abs(w) < 0.01 for w in tight.values())
    given = rules.learn(labels, prior=1e-3, mean="given").weights
    assert list(given.values()) == pytest.approx([0.4, -0.5], abs=0.01)
    kept = rules.learn(labels, keep=["smokes(x)"]).weights
    assert kept["smokes(x)"] == -0.5
    assert kept != free
    again = rules.with_weights(free).learn(labels, "bethe", start=rules.learn(labels))
    assert again.converged


def test_weights_for_each_value():
    words = [(f"D{k}", w) for k in range(40) for w in (["ball"] if k < 20 else ["vote"])]
    rules = Rules().closed("word", words, types=("doc", None))
    rules.open("sport", [f"D{k}" for k in range(40)], types=("doc",)).rule(
        "word(d, +w) => sport(d)"
    )
    labels = {"sport": [f"D{k}" for k in range(40) if k < 15 or k >= 35]}
    for objective in ("pseudolikelihood", "marginals"):
        found = rules.learn(labels, objective, prior=None)
        (weights,) = found.weights.values()
        assert weights[("ball",)] == pytest.approx(math.log(3), abs=1e-3)
        assert weights[("vote",)] == pytest.approx(-math.log(3), abs=1e-3)
        assert found.program.infer().probability("sport(D0)") == pytest.approx(0.75, abs=1e-3)


def test_programs_of_their_own_share_weights():
    first = Rules().open("a", ["x1", "x2"]).rule("a(x)")
    second = Rules().open("a", ["y1", "y2"]).rule("a(x)")
    learned = w_.learn([first, second], [{"a": ["x1", "x2"]}, {"a": ["y1"]}], prior=None)
    assert learned.weights["a(x)"] == pytest.approx(math.log(3), abs=1e-4)
    with pytest.raises(ModelError, match="different rules"):
        w_.learn([first, Rules().open("a", ["z"]).rule("!a(x)")], [{"a": []}, {"a": []}])


def test_hidden_labels():
    rules = Rules().open("a", list(range(8))).closed("next", [(k, k + 1) for k in range(7)])
    rules.rule("a(x)").rule("next(x, y) => (a(x) <=> a(y))")
    labels = {"a": {"c0": [0, 1, 2, 5], "label": [True, True, False, True]}}
    with pytest.raises(RefusedError, match="marginals"):
        rules.learn(labels, truth="label")
    assert rules.learn(labels, "marginals", truth="label").labels == 4


def test_duplicates_are_found_better_with_learned_weights():
    data = duplicate_people(80)
    rules = (
        Rules()
        .closed("similar", data["pairs"], types=("record", "record", None))
        .open("same", {c: data["pairs"][c] for c in ("a", "b")}, types=("record", "record"),
              symmetric=True)
        .rule("same(a, b)")
        .rule("similar(a, b, s) ^ s > 0.7 ^ same(a, b)")
        .rule("similar(a, b, s) ^ s > 0.85 ^ same(a, b)")
        .rule("same(a, b) ^ same(b, c) ^ a < c => same(a, c)")
    )  # fmt: skip
    learned = rules.learn({"same": data["truth"]})
    assert learned.converged
    assert learned.missed >= 0
    assert learned["similar(a, b, s) ^ s > 0.85 ^ same(a, b)"] > 0.5


def test_rescaled_weights_follow_the_number_of_groundings():
    def chain(n):
        every = [(x, y) for x in range(n) for y in range(n) if x != y]
        rules = Rules().closed("near", every).open("a", list(range(n)))
        return rules.rule("near(x, y) => (a(x) <=> a(y))").rule("a(x)")

    learned = chain(5).learn({"a": [0, 1, 2, 3]})
    scaled = learned.rescaled(chain(9))
    names = list(learned.weights)
    assert scaled[names[0]] == pytest.approx(learned.weights[names[0]] * 4 / 8)
    assert scaled[names[1]] == learned.weights[names[1]]


def program() -> Rules:
    return Rules().open("a", ["x", "y"]).closed("b", ["x"]).rule("a(x)").rule("b(x) => a(x).")


BAD = [
    ("closed", lambda: program().learn({"b": []}), ModelError, "closed"),
    ("columns", lambda: program().learn({"a": [("x", "y")]}), ModelError, "2 columns"),
    ("no column", lambda: program().learn({"a": ["x"]}, truth="label"), ModelError, "'label'"),
    ("hard", lambda: program().learn({"a": ["y"]}), ContradictionError, "a(x)"),
    ("evidence", lambda: program().evidence("!a(y)").learn({"a": ["x", "y"]}), ContradictionError,
     "a(y)"),
    ("prior", lambda: program().learn({"a": ["x"]}, prior=0.0), SettingsError, "prior"),
    ("objective", lambda: program().learn({"a": ["x"]}, "best"), SettingsError, "best"),
    ("keep", lambda: program().learn({"a": ["x"]}, keep=["a(z)"]), ModelError, "a(z)"),
    ("l2", lambda: program().learn({"a": ["x"]}, "marginals", l2=1.0), SettingsError, "prior"),
    ("nothing", lambda: Rules().open("a", ["x"]).rule("a(x).").learn({"a": ["x"]}), ModelError,
     "no rule"),
    ("no labels", lambda: program().learn({}), ModelError, "no atom has a label"),
    ("no mapping", lambda: program().learn(["x"]), ModelError, "{predicate: table}"),
    ("clash", lambda: program().learn({"a": {"c0": ["x", "x"], "t": [1, 0]}}, "marginals",
                                      truth="t"), ContradictionError, "both"),
    ("weights", lambda: program().with_weights({"b(x)": 1.0}), ModelError, "no rule"),
    ("functional", lambda: Rules().open("f", [("x", 1), ("x", 2)], exactly_one="c1")
     .rule("f(x, +y)").learn({"f": [("x", 1), ("x", 2)]}), ContradictionError, "true, but 2 are"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "text"), [x[1:] for x in BAD], ids=[x[0] for x in BAD])
def test_bad_input_is_named(make, error, text):
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value), str(caught.value)


def test_weights_that_labels_do_not_bound_have_not_converged():
    rules = Rules().open("s", list("ABCD"), types=("t",)).open("c", list("ABCD"), types=("t",))
    rules.rule("s(x) => c(x)").rule("s(x)").rule("c(x)")
    labels = {"s": ["A", "B"], "c": ["A"]}  # nobody has c without s
    learned = rules.learn(labels, prior=None)
    assert learned.status == "diverging"
    assert "give a prior" in learned.advice
    assert rules.learn(labels, prior=2.0).converged
    bounded = {"s": ["A", "B"], "c": ["A", "C"]}
    assert rules.learn(bounded, prior=None).converged
    one = Rules().open("a", list("ABC"), types=("t",)).rule("a(x)")
    assert one.learn({"a": list("ABC")}, prior=None).status == "diverging"


def test_counts_where_other_literals_have_no_candidate():
    """An inner join that follows a left one, of which the database lost rows."""
    rows = [("Gh", "Cd"), ("Ef", "Gh"), ("Ef", "Ab"), ("Ef", "Cd")]
    program = Rules(unbound="domain").open("a", rows, types=["p", "t"]).evidence("a(Ef, Ab)")
    program.rule('a(x, "Cd") ^ !a(y, t) ^ !a("Gh", +s) ^ x < y')
    labels = {"a": [("Gh", "Cd"), ("Ef", "Ab"), ("Ef", "Cd")]}
    data, weights = data_of(program, labels)
    counts = data.differences()[0].toarray()
    atom = program.store.atom_texts(np.arange(4)).index("a(Gh, Cd)")
    found = {key[0]: counts[atom, k] for (_, key), k in weights.columns.items()}
    assert found == {"Ab": -1, "Gh": -1, "Cd": -3}  # x is Ef, y Gh, t one of three
    pushes = program.with_weights({program.rules[0].text: {"Cd": 1.0}}).infer().explain("a(Gh, Cd)")
    assert pushes.n == 5
