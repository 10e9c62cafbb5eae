"""Contraction and leaves: trees that are trees, and intervals that hold, in slices, too.

Models are those of ``oracle/models.py``. ``MINFER_CONTRACTIONS=3000`` sets how many are contracted.
"""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

import minfer
from draws import draws
from minfer import ContradictionError, FactorGraph
from minfer.certified import contracted
from minfer.certified.bounds import Effort, Refining
from minfer.certified.contracted import Contracted
from minfer.certified.leaves import BoundedLeaves
from minfer.certified.result import Intervals
from minfer.certified.search import Search
from minfer.engine.conditioning import condition
from minfer.engine.contraction import Contraction, ContractionTree, Planner, _Turn
from minfer.engine.leaves import _largest_mean, peel
from minfer.kernels.cliques.turning import turn
from oracle import models
from test_anytime import small, violated

CONTRACTIONS = int(os.environ.get("MINFER_CONTRACTIONS", "0"))


class Hurried(Effort):
    """There seems to be room for some things and not for others."""

    def __init__(self, seed: int) -> None:
        super().__init__(None, None)
        self._rng = np.random.default_rng(seed)

    def has_room(self, seconds: float, work: float) -> bool:
        return bool(self._rng.random() < (0.85 if work else 0.6))


class Slow(Effort):
    """Three slices, the sums of all others, and then so many of them."""

    def __init__(self, made: list[bool], slices: int, back: int) -> None:
        super().__init__(None, None)
        self._made, self._slices, self._back, self._late = made, slices, back, False

    def has_room(self, seconds: float, work: float) -> bool:
        if len(self._made) >= self._slices and seconds > 0.0:
            return sum(self._made) < 3 + self._back
        if len(self._made) == 3 and not self._late:
            self._late = True
            return False
        return True


def alone(
    graph: FactorGraph,
    *methods: contracted.Contracted | BoundedLeaves,
    effort: Effort | None = None,
) -> tuple[Intervals, Search]:
    """What these methods say with no limit, or where it seems that there is one."""
    effort = effort or Effort(None, None)
    search = Search(condition(graph), np.ones(graph.n_variables, dtype=bool), 0.0, False, effort)
    search.begin()
    for method in methods:
        wanted = search.bounds.width > 0.0
        method.refine(Refining(search.local, search.bounds, wanted, 1e15, effort))
    return search.answer(), search


@pytest.fixture
def at_once(monkeypatch):
    """Small models are contracted, too, and nothing is looked for that long."""
    monkeypatch.setattr(contracted, "WORTH", 0.0)
    monkeypatch.setattr(contracted, "EXCHANGES", 10)


def check(
    drawn: models.Drawn, memory: float, monkeypatch: pytest.MonkeyPatch, hurried: int = 0
) -> bool:
    """No end is wrong; whether there is an answer of all."""
    where = f"model {drawn.number} ({drawn.family})"
    monkeypatch.setattr(contracted, "MEMORY", memory)
    try:
        effort = Hurried(hurried) if hurried else None
        iv, search = alone(drawn.graph, Contracted(), BoundedLeaves(), effort=effort)
    except ContradictionError:
        assert drawn.impossible, where
        return False
    if drawn.impossible:
        assert not iv.satisfiable, where
        return False
    lower, upper = search.bounds.log_z
    assert not violated(drawn, lower, upper), (where, lower, upper)
    wrong = np.flatnonzero(models.judge(drawn, iv))
    assert not len(wrong), (where, iv.lo[wrong], iv.hi[wrong], drawn.digits[wrong])
    return math.isfinite(upper)


def check_all(numbers: range, monkeypatch: pytest.MonkeyPatch) -> None:
    done = tried = 0
    for drawn in small(numbers):
        memory = [2.0**30, 2000.0, 600.0][drawn.number % 3]
        done += check(drawn, memory, monkeypatch)
        for hurried in range(1, 4):  # in singles, and in part, too
            check(drawn, min(memory, 400.0 * hurried), monkeypatch, 10 * drawn.number + hurried)
        tried += 1
    assert done > 0.3 * tried


@pytest.mark.drawn
def test_contractions_bound_log_z_and_all_marginals(at_once, monkeypatch):
    check_all(range(draws(300)), monkeypatch)


@pytest.mark.skipif(not CONTRACTIONS, reason="set MINFER_CONTRACTIONS")
def test_thousands_of_contractions(at_once, monkeypatch):
    check_all(range(1000, 1000 + CONTRACTIONS), monkeypatch)


def drawn_network(rng: np.random.Generator, n: int, states: int, known: int) -> FactorGraph:
    tables = {}
    for v in range(n):
        parents = rng.choice(v, min(v, int(rng.integers(0, 3))), replace=False).tolist()
        p = rng.dirichlet(np.full(states, 0.7), [states] * len(parents))
        tables[f"v{v}"] = ([f"v{u}" for u in parents], p) if parents else p
    graph = FactorGraph.network(dict.fromkeys(tables, states), tables)
    return graph.with_evidence({f"v{v}": 0 for v in rng.permutation(n)[:known].tolist()})


def test_leaves_say_nothing_and_lie_within_what_their_neighbours_say():
    rng = np.random.default_rng(5)
    total = 0
    for _ in range(draws(60)):
        graph = drawn_network(rng, int(rng.integers(3, 14)), int(rng.integers(2, 4)), 2)
        model = condition(graph)
        peeled = peel(model)
        total += len(peeled.leaves)
        truth = minfer.Exact()(graph)
        # any box around the truth
        apart = rng.random() * rng.random(len(truth.probs))
        lo = np.maximum(truth.probs - apart - 1e-12, 0.0)
        hi = np.minimum(truth.probs + apart + 1e-12, 1.0)
        for leaf in peeled.leaves:
            own = slice(*model.graph._offsets[leaf.variable : leaf.variable + 2])
            lo[own], hi[own] = 0.0, 1.0
        low, high = peeled.ends(lo, hi)
        assert (low <= truth.probs + 1e-12).all()
        assert (high >= truth.probs - 1e-12).all()
        iv, _ = alone(graph, BoundedLeaves())
        assert ((iv.lo <= truth.probs + 1e-12) & (truth.probs - 1e-12 <= iv.hi)).all()
    assert total > 3


def test_evidence_below_keeps_a_variable():
    tables = {"a": [0.3, 0.7], "b": (["a"], [[0.9, 0.1], [0.2, 0.8]]),
              "c": (["b"], [[0.5, 0.5], [0.1, 0.9]])}  # fmt: skip
    graph = FactorGraph.network(dict.fromkeys(tables, 2), tables)
    name = [graph.name(leaf.variable) for leaf in peel(condition(graph)).leaves]
    assert name[:2] == ["c", "b"]
    for known, left in (("c", []), ("b", ["c"])):
        peeled = peel(condition(graph.with_evidence({known: 1})))
        assert [graph.name(leaf.variable) for leaf in peeled.leaves] in (left, [])


def test_means_are_bounded_by_every_distribution_within():
    rng = np.random.default_rng(0)
    for _ in range(draws(100)):
        shape = tuple(rng.integers(1, 4, size=rng.integers(1, 4)).tolist())
        theta = rng.dirichlet(np.ones(3), shape)
        theta = np.moveaxis(theta, -1, 0)
        joint = rng.dirichlet(np.ones(math.prod(shape)) * 0.3).reshape(shape)
        boxes = []
        for k in range(len(shape)):
            p = joint.sum(axis=tuple(j for j in range(len(shape)) if j != k))
            apart = rng.random() * rng.random((2, len(p)))
            boxes.append((np.maximum(p - apart[0], 0.0), np.minimum(p + apart[1], 1.0)))
        mean = (theta * joint).reshape(3, -1).sum(axis=1)
        assert (_largest_mean(theta, boxes) >= mean - 1e-12).all()
        assert (-_largest_mean(-theta, boxes) <= mean + 1e-12).all()


def grid_tables(rng: np.random.Generator, n: int) -> tuple[list[tuple[int, int]], list[np.ndarray]]:
    scopes = [(n * i + j, n * a + b) for i in range(n) for j in range(n)
              for a, b in ((i + 1, j), (i, j + 1)) if a < n and b < n]  # fmt: skip
    return scopes, [rng.random((2, 2)) for _ in scopes]


def holds(tree: ContractionTree) -> None:
    """What is left at a node is what something outside of it has."""
    below: dict[int, set[int]] = {}

    def leaves(i: int) -> set[int]:
        if i not in below:
            a, b = tree.kids[i]
            below[i] = {i} if a < 0 else leaves(a) | leaves(b)
        return below[i]

    n = len(tree.scopes)
    assert leaves(tree.root) == set(range(n))
    for i in below:
        inside = {v for k in below[i] for v in tree.scopes[k]}
        outside = {v for k in set(range(n)) - below[i] for v in tree.scopes[k]}
        left = {v for v in range(len(tree.card)) if tree.out[i] >> v & 1}
        assert left == inside & outside - set(tree.sliced)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("memory", [2.0**30, 3000.0])
def test_exchanges_keep_a_tree_a_tree_and_make_it_cheaper(memory, kind):
    rng = np.random.default_rng(1)
    scopes, tables = grid_tables(rng, 6)
    planner = Planner(scopes, [2] * 36, rng.permutation(36).tolist())
    first = planner.tree(2.0**40, 1, 0)
    assert first is not None
    planner.improve(20_000)
    tree = planner.tree(memory, 1 << 12, 1000)
    assert tree is not None
    holds(tree)
    assert tree.memory <= memory
    assert tree.work < first.work or tree.sliced
    passes = Contraction(tree, tables, [0.0] * len(tables), kind)
    whole, shares = 0.0, np.zeros(72)
    for states in np.ndindex(*[2] * len(tree.sliced)):
        one = passes.slice(dict(zip(tree.sliced, states)), True, lambda: True)
        assert one is not None
        assert one.shares is not None
        m = math.ldexp(one.whole.m, one.whole.e)
        whole, shares = whole + m, shares + m * one.shares
    with np.errstate(divide="ignore"):
        graph = FactorGraph.from_tables([2] * 36, scopes, [np.log(t) for t in tables])
    truth = minfer.Exact()(graph)
    assert math.log(whole) == pytest.approx(truth.log_z, abs=1e4 * passes.u)
    np.testing.assert_allclose(shares / whole, truth.probs, atol=1e3 * passes.u)


def test_nothing_is_contracted_that_does_not_fit(at_once, monkeypatch):
    monkeypatch.setattr(contracted, "SLICES", 2)
    monkeypatch.setattr(contracted, "MEMORY", 100.0)
    iv, search = alone(FactorGraph.grid(np.zeros((6, 6)), 1.0), Contracted())
    assert not math.isfinite(search.bounds.log_z[1])
    assert iv.width.min() > 0.5


def test_a_contraction_that_is_stopped_says_nothing():
    scopes, tables = grid_tables(np.random.default_rng(2), 4)
    planner = Planner(scopes, [2] * 16, list(range(16)))
    tree = planner.tree(2.0**30, 1, 0)
    assert tree is not None
    assert Contraction(tree, tables, [0.0] * 24).slice({}, True, lambda: False) is None


def test_tables_are_turned():
    rng = np.random.default_rng(3)
    for _ in range(draws(100)):
        n = int(rng.integers(1, 9))
        card = rng.integers(1, 5, n).tolist()
        have, want = rng.permutation(n).tolist(), rng.permutation(n).tolist()
        values = rng.random([card[v] for v in have])
        found = np.empty(values.size)
        turn(values.reshape(-1), *_Turn.of(have, want, card), 0.5, found)
        truth = values.transpose([have.index(v) for v in want])
        np.testing.assert_array_equal(found, 0.5 * truth.reshape(-1))


def test_the_heaviest_slices_say_most_where_not_all_fit(at_once, monkeypatch):
    monkeypatch.setattr(contracted, "MEMORY", 4000.0)
    rng = np.random.default_rng(4)
    graph = FactorGraph.grid(rng.normal(size=(6, 6)), rng.normal(size=60))
    truth = minfer.Exact()(graph)
    made: list[bool] = []
    inner = Contraction.slice

    def counted(self, states, backward, go_on):
        made.append(backward)
        return inner(self, states, backward, go_on)

    monkeypatch.setattr(Contraction, "slice", counted)
    alone(graph, Contracted())
    slices, widths = len(made), []
    assert slices > 15
    for back in (0, 2, 8, slices):
        made.clear()
        iv, search = alone(graph, Contracted(), effort=Slow(made, slices, back))
        lower, upper = search.bounds.log_z
        assert lower <= truth.log_z <= upper < lower + 1e-9
        assert ((iv.lo <= truth.probs + 1e-14) & (truth.probs - 1e-14 <= iv.hi)).all()
        assert sum(made) == min(3 + back, slices)
        widths.append(iv.width.max())
    assert widths[0] > widths[1] > widths[2] > widths[3]
    assert widths[3] < 1e-9
