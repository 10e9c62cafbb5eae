"""``do=`` against the truncated factorisation, summed over all assignments; ``separated`` against
all paths."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pytest

import minfer
from draws import blocks, few
from minfer import ContradictionError, EvidenceError, Exact, FactorGraph, ModelError
from minfer.examples import sprinkler
from oracle import models
from oracle import truth as naive
from refused import all_refused


class Case(NamedTuple):
    """A network, what is set, and evidence on other variables; and what follows from these."""

    graph: FactorGraph
    do: dict[Any, Any]
    seen: dict[Any, Any]
    x: np.ndarray  # (N, V) assignments
    weight: np.ndarray  # (N,) those of the truncated factorisation, without evidence
    likely: np.ndarray  # (N,) of the evidence

    def p(self, scope: list[int]) -> np.ndarray:
        """The joint table of some variables."""
        out = np.zeros([int(self.graph.n_states[v]) for v in scope])
        np.add.at(out, tuple(self.x[:, v] for v in scope), self.weight * self.likely)
        return out / out.sum()

    @property
    def log_evidence(self) -> float:
        return math.log(float(self.weight @ self.likely))


def named(graph: FactorGraph, v: int, s: int) -> int | str:
    """A state by its name, if it has one."""
    return s if graph.states(v)[s].isdecimal() else graph.states(v)[s]


def drawn(number: int) -> Case | None:
    """Up to three variables set, evidence on others, soft too; None where that is impossible."""
    rng = np.random.default_rng([number, 40])
    graph = models.network(rng, 7, 0.3)
    x, weight = naive.assignments(graph), np.ones(1)
    order = rng.permutation(graph.n_variables).tolist()
    n_set = int(rng.integers(1, 4))
    done = {v: int(rng.integers(graph.n_states[v])) for v in order[:n_set]}
    for f in range(graph.n_factors):
        if graph.child(f) not in done:
            weight = weight * np.exp(graph.log_table(f))[tuple(x[:, v] for v in graph.scope(f))]
    for v, s in done.items():
        weight = weight * (x[:, v] == s)
    likely, seen = np.ones(len(x)), {}
    for v in order[n_set : n_set + int(rng.integers(0, 4))]:
        size = int(graph.n_states[v])
        if rng.random() < 0.3:
            like = rng.random(size) * (rng.random(size) < 0.8)
            if not like.any():
                continue
            seen[graph.name(v)], likely = like.tolist(), likely * like[x[:, v]]
        else:
            s = int(rng.integers(size))
            seen[graph.name(v)] = named(graph, v, s)
            likely = likely * (x[:, v] == s)
    do = {graph.name(v): named(graph, v, s) for v, s in done.items()}
    case = Case(graph, do, seen, x, weight * np.ones(len(x)), likely)
    return case if float(case.weight @ likely) > 0 else None


def close(found: Any, truth: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), truth, rtol=0, atol=1e-9)


def follow(number: int) -> bool:
    """Every question that takes ``do``, held to the truncated factorisation."""
    if (case := drawn(number)) is None:
        return False
    graph, do, seen = case.graph, case.do, case.seen
    rng = np.random.default_rng([number, 41])
    every = list(range(graph.n_variables))
    t = int(rng.integers(graph.n_variables))
    for _ in range(2):  # planned, and as planned
        one = minfer.query(graph, t, seen, do=do)
        close(one, case.p([t]))
    assert one.log_evidence == pytest.approx(case.log_evidence, abs=1e-9)
    pair = rng.permutation(every)[:2].tolist()
    close(minfer.query(graph, pair, seen, do=do).table, case.p(pair))
    whole = minfer.query(graph, evidence=seen, do=do)
    assert whole.log_evidence == pytest.approx(case.log_evidence, abs=1e-9)
    close(minfer.query(graph, t, seen, do=do, solver=Exact()), case.p([t]))
    close(minfer.query(graph, t, seen, do=do, check=False), case.p([t]))
    hard = {v: s for v, s in seen.items() if not isinstance(s, list)}
    soft = {v: like for v, like in seen.items() if isinstance(like, list)}
    exact = Exact()(graph.with_do(do).with_evidence(hard).with_soft_evidence(soft))
    for v in every:
        close(whole[v], case.p([v]))
        close(exact[v], case.p([v]))
    ask = minfer.queries.prepare(graph, t, hard, soft=soft, do=do)
    close(ask(seen), case.p([t]))
    best, top = minfer.mpe(graph, seen, do=do), case.p(every)
    assert best.best.probability == pytest.approx(top.max(), abs=1e-9)
    assert top[tuple(best.best.numbers)] == pytest.approx(top.max(), abs=1e-9)
    drawn_states = np.asarray(minfer.sample(graph, 20, seen, do=do, seed=number))
    assert (top[tuple(drawn_states.T)] > 0).all()
    targets = [name for name in graph.names or () if name not in {*seen, *do}]
    if hard and not soft and targets:
        (answer,) = minfer.predict(graph, [seen], do=do)
        for name in targets:
            found = [answer[f"P({name}={s})"] for s in graph.states(name)]
            close(found, case.p([graph.index(name)]))
        assert answer["log P(e)"] == pytest.approx(case.log_evidence, abs=1e-9)
    return True


@pytest.mark.drawn
def test_interventions_are_the_truncated_factorisation() -> None:
    numbers = few(range(300), 80)
    assert sum(follow(number) for number in numbers) > len(numbers) / 2


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("first", range(0, 500 * blocks(2), 500))
def test_many_interventions(first: int) -> None:
    assert sum(follow(number) for number in range(300 + first, 800 + first)) > 250


def test_an_intervention_is_not_an_observation() -> None:
    graph = sprinkler()
    before = minfer.query(graph, "season")
    close(minfer.query(graph, "season", do={"sprinkler": 1}), before)
    assert not np.allclose(minfer.query(graph, "season", {"sprinkler": 1}), before)
    p = minfer.query(graph, "rain", {"wet_grass": 1}, do={"sprinkler": 1})
    assert "P(rain | do(sprinkler=1), wet_grass=1)" in str(p)
    told = minfer.influence(graph, "rain", {"wet_grass": 1}, do={"sprinkler": 1}, state=1)
    assert told.prior == pytest.approx(float(before @ [0.45, 0.35, 0.15, 0.40]))
    assert told.probability == pytest.approx(float(p[1]))
    assert [row.variable for row in told.rows] == ["wet_grass"]
    close(minfer.query(graph, "season", do={}), before)
    close(minfer.BeliefPropagation()(graph.with_do({"sprinkler": 1}))["season"], before)
    many = minfer.sample(graph, 20_000, {"wet_grass": 1}, do={"sprinkler": 1}, seed=3)
    assert abs((many["rain"] == 1).mean() - p[1]) < 0.02
    twice = graph.with_do({"sprinkler": 0}).with_do({"sprinkler": 1, "rain": 0})
    assert twice.validate().directed
    close(twice.conditional("sprinkler").table, [0, 1])


def test_a_model_and_its_copies_are_not_confused() -> None:
    """Plans, trees, tables and circuits of each are its own, whoever is asked first."""
    for compiled in (False, True):
        graph = sprinkler()
        if compiled:
            minfer.compile(graph)
        asked: list[dict[str, int]] = [{}, {"sprinkler": 0}, {"sprinkler": 1}, {"rain": 1}]
        for _ in range(2):
            for do in asked:
                alone = sprinkler().with_do(do)
                seen = {"wet_shoes": 1}
                for target in ("season", "wet_grass", ["rain", "season"]):
                    found = minfer.query(graph, target, seen, do=do)
                    assert found.to_dict() == minfer.query(alone, target, seen).to_dict()
                assert minfer.mpe(graph, seen, do=do).states == minfer.mpe(alone, seen).states
                same = minfer.sample(graph, 50, seen, do=do), minfer.sample(alone, 50, seen)
                assert (np.asarray(same[0]) == np.asarray(same[1])).all()


def test_what_cannot_be_set_is_refused() -> None:
    graph, grid = sprinkler(), FactorGraph.grid([[0.0, 1.0]])
    part = graph.keep(np.arange(graph.n_factors) > 0)
    soft = {"sprinkler": [0.2, 0.8]}
    seen = graph.with_evidence({"sprinkler": 0})
    both, none = "sprinkler is set and has evidence", "Bayesian network.*no directions"
    ask = minfer.query
    all_refused(
        (lambda: ask(graph, "rain", {"sprinkler": 1}, do={"sprinkler": 1}), EvidenceError, both),
        (lambda: ask(graph, "rain", soft, do={2: 1}), EvidenceError, both),
        (lambda: ask(seen, "rain", do={"sprinkler": 1}), EvidenceError, both),
        (lambda: seen.with_do({"sprinkler": 1}), EvidenceError, both),
        (lambda: ask(grid, 0, do={1: 1}), ModelError, none),
        (lambda: ask(part, "rain", do={"season": 1}), ModelError, none),
        (lambda: ask(graph, "rain", do={"rian": 1}), EvidenceError, "do: .*did you mean rain"),
        (lambda: ask(graph, "rain", do={"rain": 2}), EvidenceError, "do: rain has states 0 to 1"),
        (lambda: ask(graph, "rain", do={"rain": [0.5, 0.5]}), EvidenceError, "do: rain"),
        (lambda: ask(graph, "rain", do={"rain": 1, 1: 0}), EvidenceError, "do: rain .*twice"),
        (lambda: ask(graph, "rain", do=["rain"]), EvidenceError, "do must be a mapping"),
        (lambda: ask(None, "rain", do={"rain": 1}), ModelError, ""),  # type: ignore[arg-type]
        (
            lambda: minfer.queries.prepare(graph, "rain", ["sprinkler"], do={"sprinkler": 1}),
            EvidenceError, both,
        ),
        (
            lambda: minfer.predict(graph, [{"sprinkler": 1}], "rain", do={"sprinkler": 1}),
            EvidenceError, "sprinkler is set by do, and has a column",
        ),
        (lambda: minfer.mpe(graph, soft, do={"sprinkler": 1}), EvidenceError, both),
        (lambda: minfer.sample(graph, 1, soft, do={"sprinkler": 1}), EvidenceError, both),
        (lambda: minfer.influence(graph, "rain", soft, do={"sprinkler": 1}), EvidenceError, both),
    )  # fmt: skip
    sure = FactorGraph.network({"a": 2, "b": 2}, {"a": [0.5, 0.5], "b": ("a", np.eye(2))})
    for asks in (minfer.query, minfer.mpe, lambda *x, **y: minfer.sample(x[0], 1, x[-1], **y)):
        given = (sure, "a", {"b": 1}) if asks is minfer.query else (sure, {"b": 1})
        with pytest.raises(ContradictionError, match="b=1"):
            asks(*given, do={"a": 0})


# ---------------------------------------------------------------------- separation


def open_path(graph: nx.DiGraph, path: list[Any], known: set[Any]) -> bool:
    """Whether no variable between the ends of a path blocks it."""
    for before, v, after in zip(path, path[1:], path[2:]):
        if graph.has_edge(before, v) and graph.has_edge(after, v):
            if not known & {v, *nx.descendants(graph, v)}:
                return False
        elif v in known:
            return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_separation_is_that_of_all_paths(seed: int) -> None:
    rng = np.random.default_rng([seed, 42])
    told = [0, 0]
    for _ in range(60):
        graph = models.network(rng, 7, 0.3)
        arrows = nx.DiGraph()
        arrows.add_nodes_from(range(graph.n_variables))
        for v in range(graph.n_variables):
            arrows.add_edges_from((graph.index(u), v) for u in graph.parents(v))
        around = arrows.to_undirected()
        bare = FactorGraph.from_tables(
            graph.n_states, list(map(list, around.edges)),
            [np.zeros(graph.n_states[list(e)]) for e in around.edges],
        )  # fmt: skip
        for a, b in combinations(range(graph.n_variables), 2):
            known = {v for v in range(graph.n_variables) if rng.random() < 0.3} - {a, b}
            paths = list(nx.all_simple_paths(around, a, b))
            truth = not any(open_path(arrows, path, known) for path in paths)
            assert minfer.separated(graph, a, b, known) == truth
            told[truth] += 1
            assert minfer.separated(bare, a, b, known) == all(known & {*p} for p in paths)
            if all(graph.n_states[v] > 1 for v in known):  # it can be seen in the model
                assert minfer.separated(graph._observing(dict.fromkeys(known, 0)), a, b) == truth
    assert min(told) > 100


def test_separation_of_sets_and_soft_evidence() -> None:
    graph = sprinkler()
    assert minfer.separated(graph, ["umbrella", "wet_street"], "sprinkler", ["rain", "season"])
    assert not minfer.separated(graph, ["umbrella", "season"], ["sprinkler"], "rain")
    soft = graph.with_soft_evidence({"wet_shoes": [0.2, 0.8]})  # opens what meets above it
    assert minfer.separated(graph, "rain", "sprinkler", "season")
    assert not minfer.separated(soft, "rain", "sprinkler", "season")
    ask = minfer.separated
    all_refused(
        (lambda: ask(graph, "rain", "rain"), ModelError, "rain is in two"),
        (lambda: ask(graph, "rain", "season", ["rain"]), ModelError, "rain is in two"),
        (lambda: ask(graph, "rain", []), ModelError, "at least one"),
        (lambda: ask(graph, "rain", "snow"), ModelError, "no variable 'snow'"),
        (lambda: ask(graph, "rain", 2.5), ModelError, "separated: b"),  # type: ignore[arg-type]
        (lambda: ask("model", "rain", "season"), ModelError, ""),  # type: ignore[arg-type]
    )
