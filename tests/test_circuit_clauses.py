"""The search of hard clauses: against sums over all assignments, through conflicts, restarts,
forgotten clauses and slices; limits; what is no model of clauses goes elsewhere."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

import minfer
from minfer import ContradictionError, Exact, FactorGraph, RefusedError
from minfer.engine.circuits import clauses, driver
from minfer.engine.circuits.strengthen import strengthened
from minfer.engine.conditioning import condition

MODELS = int(os.environ.get("MINFER_CIRCUITS", "120")) // 10


def formula(seed: int) -> tuple[FactorGraph, np.ndarray]:
    """Clauses over up to 12 variables, and the log-weights of all assignments (2,) * n."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 13))
    field = rng.normal(size=(n, 2)) * rng.choice([0.0, 1.0, 30.0])
    if rng.random() < 0.3:
        field[rng.integers(n), rng.integers(2)] = -np.inf
    graph, log_w = FactorGraph.empty([2] * n), np.zeros([2] * n)
    for v in range(n):
        log_w = log_w + field[v].reshape([2 if u == v else 1 for u in range(n)])
    for _ in range(int(rng.integers(1, 5 * n))):
        scope = rng.choice(n, int(rng.integers(2, min(n, 6) + 1)), replace=False)
        wrong = rng.integers(0, 2, len(scope))
        graph = graph.add_clauses([scope.tolist()], signs=[(1 - 2 * wrong).tolist()])
        at = [slice(None)] * n
        for v, s in zip(scope.tolist(), wrong.tolist()):
            at[v] = s
        log_w[tuple(at)] = -np.inf
    if rng.random() < 0.4:  # a factor that is several clauses
        a, b, c = rng.choice(n, 3, replace=False).tolist()
        graph = graph.add_parity([[a, b, c]])
        bits = np.indices([2] * n)
        log_w[(bits[a] + bits[b] + bits[c]) % 2 == 1] = -np.inf
    return graph.tilt(field.ravel()), log_w


def check(seed: int) -> bool:
    """Whether it has a solution."""
    graph, log_w = formula(seed)
    n, top = log_w.ndim, log_w.max()
    for free in ([], None):
        if top == -np.inf:
            with pytest.raises(ContradictionError):
                minfer.compile(graph, free=free)
            continue
        circuit = minfer.compile(graph, free=free)
        p = np.exp(log_w - top)
        answer = circuit()
        assert answer.log_z == pytest.approx(math.log(p.sum()) + top, abs=1e-9), seed
        p /= p.sum()
        truth = [p.sum(axis=tuple(u for u in range(n) if u != v)) for v in range(n)]
        np.testing.assert_allclose(answer.probs, np.concatenate(truth), atol=1e-9)
        draws = np.asarray(circuit.sample(20))
        assert (log_w[tuple(draws.T)] > -np.inf).all()
        best = circuit.best().ranked[0]
        assert p[tuple(best.numbers)] == pytest.approx(p.max(), rel=1e-9)
    return bool(top > -np.inf)


@pytest.mark.parametrize("block", range(4))
def test_drawn_formulas_are_summed_as_assignments_are(block, monkeypatch):
    asked = []
    begin = driver.ClauseSearch

    def counted(*args):
        asked.append(args)
        return begin(*args)

    monkeypatch.setattr(driver, "ClauseSearch", counted)
    if block % 2:
        monkeypatch.setattr(clauses, "SLICE", 40)
        monkeypatch.setattr(clauses, "FORGET", 0)
    with_one = sum(check(seed) for seed in range(block * MODELS, (block + 1) * MODELS))
    assert len(asked) > MODELS
    assert with_one > MODELS / 4


def random_formula(n: int, each: int, length: int, seed: int) -> FactorGraph:
    rng = np.random.default_rng(seed)
    scopes = [rng.choice(n, length, replace=False).tolist() for _ in range(each)]
    graph = FactorGraph.empty([2] * n)
    return graph.add_clauses(scopes, signs=rng.choice([-1, 1], (each, length)).tolist())


def test_many_conflicts_and_forgotten_clauses_change_nothing(monkeypatch):
    """Against a clique tree, which shares no code with the search."""
    graph = random_formula(24, 94, 3, 4)
    tree = Exact(method="clique-tree")(graph)
    np.testing.assert_allclose(minfer.compile(graph)().probs, tree.probs, atol=1e-9)
    monkeypatch.setattr(clauses, "SLICE", 50)
    monkeypatch.setattr(clauses, "FORGET", 3)
    answer = minfer.compile(random_formula(24, 94, 3, 4))()
    assert answer.log_z == pytest.approx(tree.log_z, abs=1e-9)
    np.testing.assert_allclose(answer.probs, tree.probs, atol=1e-9)


def test_more_pigeons_than_holes_contradict():
    pigeons, holes = 6, 5
    at = np.arange(pigeons * holes).reshape(pigeons, holes)
    graph = FactorGraph.empty([2] * at.size).add_clauses(at.tolist())
    pairs = [[a, b] for hole in at.T for i, a in enumerate(hole) for b in hole[:i]]
    graph = graph.add_clauses(np.array(pairs), signs=-np.ones((len(pairs), 2), dtype=int))
    with pytest.raises(ContradictionError):
        driver.build(condition(graph), max_gib=1.0)


def test_the_same_run_twice_is_the_same_circuit(monkeypatch):
    model = condition(random_formula(40, 120, 3, 1))
    first = driver.build(model, max_gib=4.0)
    monkeypatch.setattr(clauses, "SLICE", 977)
    for one, two in zip(first, driver.build(model, max_gib=1.0)):
        np.testing.assert_array_equal(one, two)


def test_progress_is_told_and_limits_are_kept(monkeypatch):
    monkeypatch.setattr(clauses, "SLICE", 2000)
    model, heard = condition(random_formula(60, 150, 3, 0)), []
    driver.build(model, max_gib=1.0, progress=heard.append)
    shares = [p.share for p in heard if p.nodes]
    assert len(shares) > 5
    assert shares == sorted(shares)
    assert 0.0 <= shares[0] < shares[-1] <= 1.0
    with pytest.raises(RefusedError, match=r"nodes fill the .* GiB .* raise max_gib"):
        driver.build(model, max_gib=1e-4)
    with pytest.raises(RefusedError, match=r"more than the 1.0e\+04 steps allowed, at"):
        driver.build(model, max_gib=1.0, most_steps=1e4)


@pytest.mark.parametrize("most", [0.0, 20.0, 2e7])
def test_the_search_goes_on_after_the_other_one_was_tried(most, monkeypatch):
    """In a fixed order within so many nodes; too few of them, or enough."""
    graph = random_formula(24, 60, 3, 4)
    tree = Exact(method="clique-tree")(graph)
    monkeypatch.setattr(clauses, "SLICE", 50)
    monkeypatch.setattr(driver, "FIRST_STEPS", 100)
    monkeypatch.setattr(driver, "ARRIVING", 0.0)
    monkeypatch.setattr(driver, "TENTATIVE", most)
    ends = []
    by_order = driver._by_order

    def tried(*args):
        ends.append(by_order(*args))
        return ends[-1]

    monkeypatch.setattr(driver, "_by_order", tried)
    answer = minfer.compile(random_formula(24, 60, 3, 4))()
    assert [found is not None for found in ends] == [most == 2e7]
    assert answer.log_z == pytest.approx(tree.log_z, abs=1e-9)
    np.testing.assert_allclose(answer.probs, tree.probs, atol=1e-9)


@pytest.mark.parametrize("asked", [1, 1e6])
def test_the_forecast_of_clauses_is_their_own_search(asked, monkeypatch):
    monkeypatch.setattr(clauses, "SLICE", 500)
    monkeypatch.setattr(driver, "FORECAST_STEPS", asked)
    monkeypatch.setattr(driver, "TENTATIVE", 0.0)
    model = condition(random_formula(40, 120, 3, 1))
    found, made = driver.forecast(model), len(driver.build(model, max_gib=1.0).variable)
    if asked == 1:
        assert found.by == "its first steps"
        assert made <= 2.0**found.most
    else:
        assert found.likely == made


@pytest.mark.parametrize("other", ["soft", "table", "states"])
def test_what_is_not_of_clauses_alone_is_searched_as_before(other, monkeypatch):
    def refuse(*args):
        raise AssertionError

    monkeypatch.setattr(driver, "ClauseSearch", refuse)
    graph = FactorGraph.empty([2, 2, 2, 3]).add_clauses([[0, 1, 2]])
    if other == "soft":
        graph = graph.add_clauses([[0, 1]], 1.0)
    if other == "table":
        graph = graph.add_tables([[0, 1]], [[[0.0, -np.inf], [1.0, 2.0]]])
    if other == "states":
        graph = graph.add_tables([[2, 3]], [[[0.0, -np.inf, 0.0], [0.0, 0.0, 0.0]]])
    assert minfer.compile(graph)().log_z == pytest.approx(Exact()(graph).log_z, abs=1e-9)


def test_prime_clauses_exclude_what_they_should():
    rng = np.random.default_rng(0)
    for _ in range(50):
        arity = int(rng.integers(1, 5))
        wrong = np.flatnonzero(rng.random(1 << arity) < 0.5).tolist()
        found = clauses.prime_clauses(wrong, arity)
        for cell in range(1 << arity):
            bits = [cell >> (arity - 1 - j) & 1 for j in range(arity)]
            holds = all(any(bits[q >> 1] == q & 1 for q in clause) for clause in found)
            assert holds == (cell not in wrong)


def solutions(rows: list[tuple[int, ...]], n: int) -> np.ndarray:
    """Which assignments (2,) * n all clauses hold in."""
    bits = np.indices([2] * n)
    good = np.ones([2] * n, dtype=bool)
    for c in rows:
        good &= np.any([bits[q >> 1] == (q & 1) for q in c], axis=0) if c else False
    return good


@pytest.mark.parametrize("most", [2_000_000, 10, 0])
def test_strengthened_clauses_say_the_same(most):
    shorter = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 8))
        rows = [
            tuple(int(2 * v + rng.integers(2)) for v in rng.choice(n, rng.integers(1, 5)))
            for _ in range(int(rng.integers(1, 5 * n)))
        ]
        found = strengthened(rows, most)
        assert (solutions(found, n) == solutions(rows, n)).all(), seed
        assert found == strengthened(reversed(rows), most) or most < 100
        shorter += sum(map(len, found)) < sum(len(set(c)) for c in set(rows))
        if most > 100 and all(found):
            for c in found:
                assert not any(set(d) < set(c) for d in found)
    assert shorter > 100 or most < 100


def test_equal_literals_stand_for_one_another():
    """x0 = not x1, and x1 in a clause that then holds x0."""
    found = strengthened([(0, 2), (1, 3), (3, 4, 6), (2, 5, 7)])
    assert found == [(0, 2), (0, 4, 6), (1, 3), (1, 5, 7)]


def test_a_table_of_a_function_becomes_few_clauses():
    """y = a and b, as four rows; y = a, where b does not matter."""
    y, a, b = 0, 2, 4
    rows = [(y ^ s ^ 1, a ^ i, b ^ j) for i in (0, 1) for j in (0, 1) for s in [i & j]]
    assert sorted(map(len, strengthened(rows))) == [2, 2, 3]
    rows = [(y ^ i, a ^ i, b ^ j) for i in (0, 1) for j in (0, 1)]
    assert strengthened(rows) == [(y, a), (y ^ 1, a ^ 1)]


def test_variables_that_hang_on_a_clause_come_last():
    """x0 says whether one of x1 to x3 is true; these are in other clauses, too."""
    rows = [(0, 3, 5, 7), (1, 2), (1, 4), (1, 6), (3, 9), (5, 9), (7, 9)]
    assert clauses._pendant(rows, 5).tolist() == [True, False, False, False, False]
