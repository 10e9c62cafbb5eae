"""Causes that combine, against tables written out draw by draw (:mod:`oracle.causes`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minfer
from draws import blocks
from minfer import (
    BeliefPropagation,
    ContradictionError,
    Exact,
    FactorGraph,
    Gibbs,
    ModelError,
    NoisyAnd,
    NoisyMax,
    NoisyMin,
    NoisyOr,
    RefusedError,
)
from minfer.factors import IndependentCauses
from minfer.factors import causes as kind
from minfer.interop import from_pyagrum, to_pyagrum
from minfer.io.native import format_native, parse_native
from minfer.io.xdsl import format_xdsl, parse_xdsl
from minfer.learn import BayesianNetwork
from oracle import causes
from refused import all_refused


def pair(seed: int) -> tuple[FactorGraph, FactorGraph]:
    """A drawn network of gates, and the same of tables."""
    states, entries = causes.drawn(np.random.default_rng([seed, 41]))
    gates = FactorGraph.network(states, entries)
    return gates, FactorGraph.network(states, causes.tables_for(states, entries))


def star(n: int, leak: float = 0.01, p: float = 0.1) -> FactorGraph:
    """n causes of one effect."""
    names = [f"c{i}" for i in range(n)]
    return FactorGraph.network(
        {**{name: ["no", "yes"] for name in names}, "e": ["no", "yes"]},
        {
            **{name: [1.0 - p, p] for name in names},
            "e": NoisyOr({name: 0.2 + 0.7 * i / n for i, name in enumerate(names)}, leak=leak),
        },
    )


def evidence(rng: np.random.Generator, graph: FactorGraph, n: int) -> dict[int, int]:
    some = rng.permutation(graph.n_variables)[:n].tolist()
    return {v: int(rng.integers(graph.n_states[v])) for v in some}


def agree(gates: FactorGraph, tables: FactorGraph, seed: int) -> None:
    """Everything that is asked of both is the same, or impossible in both."""
    rng = np.random.default_rng([seed, 42])
    n = gates.n_variables
    seen: dict[Any, Any] = evidence(rng, gates, int(rng.integers(0, 4)))
    try:
        truth = Exact(method="enumerate")(tables.with_evidence(seen))
    except ContradictionError:
        with pytest.raises(ContradictionError):
            Exact(method="clique-tree")(gates.with_evidence(seen))
        return
    for method in ("clique-tree", "auto"):
        found = Exact(method=method)(gates.with_evidence(seen))
        np.testing.assert_allclose(found.probs, truth.probs, atol=1e-9)
        assert found.log_z == pytest.approx(truth.log_z, abs=1e-9)
    for f in range(gates.n_factors):
        np.testing.assert_allclose(found.factor(f), truth.factor(f), atol=1e-9)
    mine, theirs = minfer.mpe(gates, seen), minfer.mpe(tables, seen)
    assert mine.best.log_score == pytest.approx(theirs.best.log_score, abs=1e-9)
    free = [v for v in range(n) if v not in seen]
    if not free:
        return
    a = int(rng.choice(free))
    for given in (minfer.query(gates, a, seen), minfer.query(gates, [a], seen)):
        np.testing.assert_allclose(np.ravel(given), truth[a], atol=1e-9)
    row = [{gates.name(v): s for v, s in seen.items()}]
    rows = [minfer.predict(g, row, gates.name(a))[0] for g in (gates, tables)]
    assert rows[0]["log P(e)"] == pytest.approx(rows[1]["log P(e)"], abs=1e-9)
    several = [minfer.mpe(g, seen, variables=[a]).best.log_score for g in (gates, tables)]
    assert several[0] == pytest.approx(several[1], abs=1e-9)
    done = {int(v): int(rng.integers(gates.n_states[v])) for v in free[:2] if v != a}
    try:
        wanted = minfer.query(tables, a, seen, do=done)
    except ContradictionError:
        with pytest.raises(ContradictionError):
            minfer.query(gates, a, seen, do=done)
        return
    np.testing.assert_allclose(minfer.query(gates, a, seen, do=done), wanted, atol=1e-9)


@pytest.mark.drawn
@pytest.mark.parametrize("first", range(0, 20 * blocks(2), 20))
def test_drawn_networks(first: int) -> None:
    for seed in range(first, first + 20):
        agree(*pair(seed), seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1000 + 500 * blocks(1), 500))
def test_many_drawn_networks(first: int) -> None:
    for seed in range(first, first + 500):
        agree(*pair(seed), seed)


@pytest.mark.parametrize("first", range(5000, 5020, 20))
def test_gates_that_give_messages(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What large ones do, with small ones."""
    monkeypatch.setattr(kind, "_MOST_TABLED", 1)
    monkeypatch.setattr(kind, "_MOST_WRITTEN", (3, 1))
    for seed in range(first, first + 20):
        gates, tables = pair(seed)
        agree(gates, tables, seed)
        seen = evidence(np.random.default_rng(seed), gates, 2)
        try:
            found = [BeliefPropagation()(g.with_evidence(seen)) for g in (gates, tables)]
        except ContradictionError:
            continue
        if all(x.converged for x in found):
            np.testing.assert_allclose(found[0].probs, found[1].probs, atol=1e-4)


def test_forms() -> None:
    assert [star(n).groups[-1].form for n in (3, 11, 12)] == ["table", "table", "messages"]
    assert [star(n).groups[-1].decomposes for n in (3, 4)] == [False, True]
    group = star(60).groups[-1]
    assert isinstance(group, IndependentCauses)
    assert group._log_q.size == 2 * (2 * 60 + 1)


def test_sixty_parents() -> None:
    """By the formula: causes stay independent where nothing is seen."""
    graph = star(60)
    p = np.array([0.2 + 0.7 * i / 60 for i in range(60)])
    silent = 0.99 * np.prod(1.0 - 0.1 * p)
    for solver in (Exact(), BeliefPropagation()):
        found = solver(graph)
        assert found["e"][0] == pytest.approx(silent, rel=1e-12)
        seen = solver(graph.with_evidence({"e": "yes"}))
        assert seen.log_z == pytest.approx(np.log1p(-silent), abs=1e-12)
        without = silent / (1.0 - 0.1 * p) * 0.9
        np.testing.assert_allclose(
            [seen[f"c{i}"][0] for i in range(60)], (0.9 - without) / (1.0 - silent), rtol=1e-9
        )
    assert minfer.query(graph, "e", do={"c59": "yes"})[1] > 0.8
    assert minfer.query(graph, "c3", do={"e": "yes"})[1] == pytest.approx(0.1)
    assert minfer.separated(graph, "c1", "c2")
    assert not minfer.separated(graph, "c1", "c2", ["e"])
    best = minfer.mpe(graph, {"e": "no"})
    assert best.proven
    assert {best[f"c{i}"] for i in range(60)} == {"no"}
    answer = minfer.mpe(graph, {"e": "yes"}, variables=["c1", "c59"])
    assert answer.best["c1"] == "no"
    assert minfer.sample(graph, 50, {"e": "yes"}).shape == (50, 61)


def test_small_probabilities_keep_their_digits() -> None:
    """1 - (1 - p) loses them; sums of what is not negative do not."""
    names = [f"c{i}" for i in range(400)]
    tiny = 1e-18
    graph = FactorGraph.network(
        {**dict.fromkeys(names, 2), "e": 2},
        {**{c: [0.5, 0.5] for c in names}, "e": NoisyOr({c: [0.5, 1.0] for c in names}, tiny)},
    )
    none = {**dict.fromkeys(names, 0), "e": 0}
    assert float(graph.log_score(np.zeros(401, int))) == pytest.approx(800 * np.log(0.5), rel=1e-12)
    seen = Exact()(graph.with_evidence({c: 0 for c in none if c != "e"}))
    assert seen["e"][0] == pytest.approx(0.5**400, rel=1e-9)
    quiet = FactorGraph.network(
        {"c": 2, "e": 2}, {"c": [0.5, 0.5], "e": NoisyOr({"c": 1e-17}, leak=1e-18)}
    )
    given = minfer.query(quiet, "c", {"e": 1})
    assert given[1] == pytest.approx(11 / 12, rel=1e-9)


def test_samples_follow_the_model() -> None:
    graph, tables = pair(7)
    x = np.asarray(minfer.sample(graph, 20_000))
    states, counts = np.unique(x, axis=0, return_counts=True)
    expected = 20_000 * np.exp(tables.log_score(states))
    often = expected > 5
    chi2 = float(((counts - expected)[often] ** 2 / expected[often]).sum())
    n = int(often.sum())
    assert chi2 < n + 5 * np.sqrt(2 * n)


def test_what_large_gates_cannot_do() -> None:
    graph = star(60)
    both = {"e": "yes"}
    all_refused(
        (lambda: minfer.mpe(graph, both), RefusedError, "best assignments and circuits"),
        (lambda: minfer.mpe(graph, k=2), RefusedError, "Observe more of them"),
        (lambda: minfer.compile(graph), RefusedError, "need its table"),
        (lambda: Gibbs()(graph), RefusedError, "only gives messages"),
        (lambda: graph.conditional("e"), ModelError, r"graph.causes\(variable\)"),
        (lambda: minfer.write(graph, "never.bif"), RefusedError, "60 parents.*xdsl"),
        (lambda: minfer.write(graph, "never.uai"), RefusedError, "UAI"),
    )


def test_entries() -> None:
    or_, and_ = NoisyOr({"a": 0.8, "b": [0.0, 0.3, 0.6]}, leak=0.1), NoisyAnd({"a": 0.9})
    states = {"a": 2, "b": 3, "x": 2, "y": 2, "z": 3}
    low = NoisyMin({"a": [[0, 0, 1], [0.5, 0.25, 0.25]]})
    roots = {"a": [0.5, 0.5], "b": [0.2, 0.3, 0.5]}
    graph = FactorGraph.network(states, {**roots, "x": or_, "y": and_, "z": low})
    assert graph.directed
    assert graph.parents("x") == ("a", "b")
    assert graph.causes("a") is None
    assert isinstance(graph.causes("z"), NoisyMin)
    back = graph.causes("x")
    assert isinstance(back, NoisyOr)
    assert back.leak == pytest.approx(0.1)
    assert back.causes["a"] == pytest.approx(0.8)
    np.testing.assert_allclose(back.causes["b"], [0.0, 0.3, 0.6], atol=1e-15)
    np.testing.assert_allclose(graph.conditional("x")[1, 2, 1], 1 - 0.9 * 0.2 * 0.4)
    np.testing.assert_allclose(graph.conditional("y"), [[0.9, 0.1], [0.0, 1.0]], atol=1e-15)
    np.testing.assert_allclose(graph.conditional("z"), low.causes["a"], atol=1e-15)


def test_what_is_wrong_is_said() -> None:
    def build(entry: Any, size: int = 2) -> FactorGraph:
        states = {"a": 2, "b": 3, "x": size}
        return FactorGraph.network(states, {"a": [0.5, 0.5], "b": [0.2, 0.3, 0.5], "x": entry})

    all_refused(
        (lambda: build(NoisyOr({"a": 1.2})), ModelError, "x: a has a probability"),
        (lambda: build(NoisyOr({"b": 0.2})), ModelError, "3 states"),
        (lambda: build(NoisyOr({"a": [0.1, 0.2, 0.3]})), ModelError, "2 states, but"),
        (lambda: build(NoisyOr({"a": 0.5}), 3), ModelError, "NoisyMax"),
        (lambda: build(NoisyOr({"a": 0.5}, leak=[0.1, 0.2])), ModelError, "one probability"),
        (lambda: build(NoisyOr({})), ModelError, "no causes"),
        (lambda: build(NoisyOr({"x": 0.5})), ModelError, "own parent|cycle"),
        (lambda: build(NoisyOr({"q": 0.5})), ModelError, "q"),
        (lambda: build(NoisyOr(["a"])), ModelError, "mapping"),  # type: ignore[arg-type]
        (lambda: build(NoisyMax({"a": [[1, 0], [0.3, 0.3]]})), ModelError, "sums to 0.6"),
        (lambda: build(NoisyMax({"a": [1, 0]})), ModelError, r"shape \(2,\)"),
        (lambda: build(NoisyMax({"a": np.eye(2)}, leak=[1.0])), ModelError, "its leak"),
        (
            lambda: FactorGraph.network(
                {"a": 2, "b": 2}, {"a": NoisyOr({"b": 0.5}), "b": NoisyOr({"a": 0.5})}
            ),
            ModelError,
            "cycle",
        ),
    )


# ---------------------------------------------------------------- files and other libraries


@pytest.mark.parametrize("seed", range(12))
def test_there_and_back(seed: int) -> None:
    graph, tables = pair(seed + 300)
    native = parse_native("m", format_native(graph))
    assert format_native(native) == format_native(graph)
    assert native.directed == graph.directed
    found = parse_xdsl("m.xdsl", format_xdsl(graph))
    assert found.directed
    mine, theirs = Exact()(tables), Exact()(found)
    for v in range(graph.n_variables):
        name = graph.name(v)
        for s, state in enumerate(graph.states(v)):
            k = found.states(name).index(state)
            assert theirs[name][k] == pytest.approx(mine[name][s], abs=1e-9)
    again = parse_xdsl("m.xdsl", format_xdsl(found))
    assert sum(len(g) for g in again.groups if g.kind != "table") == sum(
        len(g) for g in found.groups if g.kind != "table"
    )


def test_sixty_parents_in_files() -> None:
    graph = star(60)
    back = parse_xdsl("m.xdsl", format_xdsl(graph))
    assert back.states("e") == ("yes", "no")  # from the strongest
    for other in (back, parse_native("m", format_native(graph))):
        seen = minfer.query(other, "c30", {"e": "yes"})
        assert seen["yes"] == pytest.approx(float(minfer.query(graph, "c30", {"e": "yes"})["yes"]))
    assert len(format_xdsl(graph)) < 20_000


def test_pyagrum() -> None:
    pytest.importorskip("pyagrum")
    graph = star(60)
    back = from_pyagrum(to_pyagrum(graph))
    x = np.random.default_rng(0).integers(0, 2, (20, 61))
    np.testing.assert_allclose(back.log_score(x), graph.log_score(x), rtol=1e-12)
    for seed in range(8):
        gates, _ = pair(seed + 400)
        again = from_pyagrum(to_pyagrum(gates))
        np.testing.assert_allclose(Exact()(again).probs, Exact()(gates).probs, atol=1e-12)


def test_pyagrums_own_gates() -> None:
    gum = pytest.importorskip("pyagrum")
    net = gum.BayesNet()
    for name in "ab":
        net.add(gum.LabelizedVariable(name, name, 2))
    net.add(gum.LabelizedVariable("t", "t", 3))
    for name, add in (
        ("d", net.addNoisyORNet), ("c", net.addNoisyORCompound), ("n", net.addNoisyAND),
        ("l", net.addLogit),
    ):  # fmt: skip
        add(gum.LabelizedVariable(name, name, 2), 0.1)
    net.addMAX(gum.LabelizedVariable("m", "m", 3))
    for k, parent in enumerate("ab"):
        for child in "dcnl":
            net.addWeightedArc(parent, child, 0.3 + 0.3 * k)
        net.addArc(parent, "m")
    net.addArc("t", "m")
    for name in "abt":
        net.generateCPT(name)
    graph = from_pyagrum(net)
    kinds = [type(graph.causes(name)).__name__ for name in "dcnlm"]
    assert kinds == ["NoisyOr", "NoisyOr", "NoisyAnd", "NoneType", "NoneType"]
    seen = {"c": 1, "n": 0}
    engine = gum.LazyPropagation(net)
    engine.setEvidence(seen)
    engine.makeInference()
    found = Exact()(graph.with_evidence(seen))
    for name in "abtdlm":
        np.testing.assert_allclose(found[name], engine.posterior(name).toarray(), atol=1e-12)


# ---------------------------------------------------------------- learning


def drawn_rows(graph: FactorGraph, n: int) -> dict[str, np.ndarray]:
    drawn = minfer.sample(graph, n)
    names = map(graph.name, range(graph.n_variables))
    return {v: np.array(graph.states(v), dtype=object)[drawn[v]] for v in names}


def several() -> FactorGraph:
    return FactorGraph.network(
        {"a": ["no", "yes"], "b": ["no", "yes"], "e": ["no", "yes"], "f": ["0", "1", "2"]},
        {
            "a": [0.6, 0.4],
            "b": [0.5, 0.5],
            "e": NoisyOr({"a": 0.7, "b": 0.3}, leak=0.05),
            "f": NoisyMax(
                {"e": [[1, 0, 0], [0.2, 0.5, 0.3]], "a": [[1, 0, 0], [0.6, 0.1, 0.3]]},
                leak=[0.9, 0.05, 0.05],
            ),
        },
    )


def test_learned_alone_and_by_the_tree_is_the_same() -> None:
    graph = several()
    rows = drawn_rows(graph, 600)
    settings: dict[str, Any] = {"prior": "none", "tol": 1e-12, "max_iterations": 5000}
    alone = BayesianNetwork(graph, **settings).fit(rows)
    assert alone.status_ == "converged"
    few = {name: list(column) for name, column in rows.items()}
    for name in few:
        few[name].append(None)  # a row that knows nothing
    tree = BayesianNetwork(graph, **settings).fit(few)
    assert (np.diff(tree.trace_) > -1e-9).all()
    for name in ("e", "f"):
        np.testing.assert_allclose(
            alone.model_.conditional(name), tree.model_.conditional(name), atol=2e-3
        )
    assert alone.log_likelihood_ == pytest.approx(tree.log_likelihood_, abs=1e-4)
    assert alone.log_likelihood_ == pytest.approx(600 * alone.score(rows), rel=1e-9)
    assert alone.log_likelihood_ > 600 * float(np.mean(graph_score(graph, rows)))


def graph_score(graph: FactorGraph, rows: dict[str, np.ndarray]) -> np.ndarray:
    x = [[graph.states(v).index(s) for s in rows[graph.name(v)]] for v in range(graph.n_variables)]
    return np.asarray(graph.log_score(np.array(x).T))


def test_learned_numbers_come_back() -> None:
    graph = several()
    rows = drawn_rows(graph, 20_000)
    net = BayesianNetwork(graph).fit(rows)
    found = net.tables_["e"]
    assert isinstance(found, NoisyOr)
    assert isinstance(net.model_.causes("f"), NoisyMax)
    assert [found.causes["a"], found.causes["b"], found.leak] == pytest.approx(
        [0.7, 0.3, 0.05], abs=0.03
    )
    assert net.counts_["e"]["a"].sum() == pytest.approx(20_000)
    hidden = {name: column for name, column in rows.items() if name != "e"}
    again = BayesianNetwork(graph, start="structure").fit(hidden)
    assert again.objective_ >= again.trace_[0]
    assert isinstance(again.model_.causes("e"), NoisyOr)


def test_zeros_of_gates_stay() -> None:
    graph = FactorGraph.network(
        {"a": 2, "e": 2}, {"a": [0.5, 0.5], "e": NoisyOr({"a": 0.5}, leak=0.0)}
    )
    rows = {"a": [0, 1, 1, 1], "e": [0, 1, 1, 0]}
    net = BayesianNetwork(graph, prior="none").fit(rows)
    found = net.tables_["e"]
    assert found.leak == 0.0
    assert found.causes["a"] == pytest.approx(2 / 3)
    with pytest.raises(ContradictionError, match="leak"):
        BayesianNetwork(graph).fit({"a": [0, 0], "e": [0, 1]})


# ---------------------------------------------------------------- a thousand nodes


def large(n_blocks: int = 16, width: int = 60) -> FactorGraph:
    """Blocks of causes that are shared by two effects with all of them as parents; the effects of a
    block are causes in the next."""
    rng = np.random.default_rng(3)
    states: dict[str, list[str]] = {}
    entries: dict[str, Any] = {}
    before: list[str] = []
    for b in range(n_blocks):
        names = [f"b{b}c{i}" for i in range(width)]
        states |= {name: ["no", "yes"] for name in names}
        entries |= {name: [0.95, 0.05] for name in names}
        if before:
            entries[names[0]] = NoisyOr(dict.fromkeys(before, 0.4), leak=0.02)
        before = [f"b{b}e{k}" for k in range(2)]
        for effect in before:
            states[effect] = ["no", "yes"]
            p = rng.uniform(0.2, 0.9, width)
            entries[effect] = NoisyOr(dict(zip(names, p.tolist())), leak=0.01)
    return FactorGraph.network(states, entries)


def forward(graph: FactorGraph, n: int) -> dict[str, np.ndarray]:
    """Rows of a network of noisy ORs, parents first."""
    rng, rows = np.random.default_rng(8), {}
    for v in range(graph.n_variables):
        todo = [graph.name(v)]
        while todo:
            name = todo[-1]
            gate = graph.causes(name)
            wait = [u for u in graph.parents(name) if u not in rows]
            if name in rows or wait:
                todo = todo[:-1] if name in rows else todo + wait
                continue
            on = graph.states(name).index("yes")
            silent = np.full(n, 1.0)
            if gate is None:
                silent *= 1.0 - graph.conditional(name).table[..., on]
            else:
                silent *= 1.0 - gate.leak
                for u, p in gate.causes.items():
                    p = np.array([0.0, p]) if np.ndim(p) == 0 else np.asarray(p)
                    at = np.array([graph.states(u).index(s) for s in rows[u]])
                    silent *= 1.0 - p[at]
            rows[name] = np.where(rng.random(n) < silent, "no", "yes")
    return rows


@pytest.mark.slow
def test_a_thousand_nodes_in_seconds() -> None:
    graph = parse_xdsl("m.xdsl", format_xdsl(large()))
    assert graph.n_variables == 992
    seen: dict[int | str, int | str] = {"b0e0": "yes", "b8e1": "no", "b15e1": "yes"}
    exact = Exact()(graph.with_evidence(seen))
    np.testing.assert_allclose(minfer.query(graph, "b15c0", seen), exact["b15c0"], atol=1e-9)
    made = large()
    rows = forward(made, 1000)
    net = BayesianNetwork(made, tol=1e-5).fit(rows)
    assert net.status_ == "converged"
    assert 1000 * net.score(rows) == pytest.approx(net.log_likelihood_, rel=1e-9)
