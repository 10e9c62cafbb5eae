"""Circuits of drawn models against sums over all assignments, which share no code with them.

Models of 1 to 5 states with zeros, clauses and other machines, evidence and entries over 25
decades; at least a third have an assignment and more than ten variables that are searched, not
eliminated densely. ``MINFER_CIRCUITS=20000`` sets how many there are.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import minfer
from draws import few
from minfer import ContradictionError, Exact
from minfer.engine.circuits import driver
from minfer.solvers.gradients import pull_back
from oracle.models import Draft
from oracle.truth import log_weights, logsumexp

MODELS = int(os.environ.get("MINFER_CIRCUITS", "400"))
BLOCKS = 20
#: Assignments of a model, at most.
MOST = 1 << 15
#: Cells up to which cliques are eliminated densely: as shipped, or fewer to leave more to search.
SMALL = [None, 1, None, 16]


def drawn(seed: int) -> Draft:
    """Three of five are dense: nearly all variables meet, and zeros leave something to search."""
    rng = np.random.default_rng(seed)
    dense = seed % 5 < 3
    sizes, wanted = [], rng.integers(14, 16) if dense else rng.integers(4, 13)
    while len(sizes) < wanted:
        s = int(rng.choice([2] * 18 + [1, 3] if dense else [1, 2, 2, 2, 3, 4, 5]))
        if math.prod(sizes) * s > MOST:
            break
        sizes.append(s)
    d, n = Draft(sizes), len(sizes)
    hidden = [int(rng.integers(s)) for s in sizes] if dense or rng.random() < 0.7 else None
    decades = float(rng.choice([0.3, 2.0, 25.0]))
    zeros = [0.0, 0.02, 0.08] if dense else [0.0, 0.3, 0.6]
    for _ in range(int(rng.integers(n // 2, 2 * n))):
        scope = rng.permutation(n)[: rng.integers(1, min(n, 4) + 1)]
        _table(d, rng, scope, decades, float(rng.choice(zeros)), hidden)
    for _ in range(int(rng.integers(0, n // 2))):
        before = d.graph, len(d.factors)
        d.logical(rng, decades, 2, 9 if rng.random() < 0.3 else 4)
        if hidden is not None and len(d.factors) > before[1]:
            scope, t = d.factors[-1]
            if t[tuple(hidden[v] for v in scope)] == -math.inf:
                d.graph = before[0]
                d.factors.pop()
    for _ in range(int(rng.integers(0, 2 * n)) if dense else 0):
        _clause(d, rng, hidden)
    if rng.random() < 0.3:
        for v in rng.permutation(n)[: rng.integers(1, 3)].tolist():
            d.known(v, hidden[v] if hidden else int(rng.integers(sizes[v])))
    return d


def _table(d: Draft, rng: np.random.Generator, scope, decades: float, zeros: float, hidden) -> None:
    shape = [d.n_states[v] for v in scope]
    t = rng.uniform(-decades, 0.0, shape) * math.log(10)
    if rng.random() < 0.5:  # repeated numbers, which make rests equal
        t = rng.choice(t.ravel()[:2], shape)
    t[rng.random(t.shape) < zeros] = -np.inf
    if hidden is not None and t[tuple(hidden[v] for v in scope)] == -np.inf:
        t[tuple(hidden[v] for v in scope)] = -0.5
    if np.isneginf(t).all():
        t.flat[0] = 0.0
    d.table(scope, t)


def _clause(d: Draft, rng: np.random.Generator, hidden) -> None:
    """A hard clause that holds in the hidden assignment."""
    two = [v for v, s in enumerate(d.n_states) if s == 2]
    scope = rng.permutation(two)[: rng.integers(3, 6)].tolist()
    wrong = [int(rng.integers(2)) for _ in scope]
    if wrong == [hidden[v] for v in scope]:
        wrong[0] = 1 - wrong[0]
    d.graph = d.graph.add_clauses([scope], signs=[[1 - 2 * s for s in wrong]])
    t = np.zeros([2] * len(scope))
    t[tuple(wrong)] = -np.inf
    d.factors.append((tuple(scope), t))


class Truth:
    """Sums over all assignments, of the model or of a row of evidence on it."""

    def __init__(self, d: Draft) -> None:
        self.sizes = tuple(d.n_states)
        self.logs = log_weights(self.sizes, d.factors)

    def row(self, seen: dict[int, int]) -> Truth:
        out = object.__new__(Truth)
        out.sizes, out.logs = self.sizes, np.full(self.sizes, -np.inf)
        at = tuple(seen.get(v, slice(None)) for v in range(len(self.sizes)))
        out.logs[at] = self.logs[at]
        return out

    @property
    def log_z(self) -> float:
        return float(logsumexp(self.logs.ravel()))

    @property
    def p(self) -> np.ndarray:
        return np.exp(self.logs - self.log_z)

    def joint(self, scope) -> np.ndarray:
        rest = tuple(v for v in range(len(self.sizes)) if v not in scope)
        return np.transpose(self.p.sum(axis=rest), np.argsort(np.argsort(scope)))

    def marginals(self) -> np.ndarray:
        return np.concatenate([self.joint([v]) for v in range(len(self.sizes))])

    def moved(self, cotangent: np.ndarray) -> np.ndarray:
        """The covariance of the states' indicators times a cotangent."""
        every, first = range(len(self.sizes)), np.cumsum([0, *self.sizes])
        total = np.zeros(())
        for v in every:
            along = [-1 if u == v else 1 for u in every]
            total = total + cotangent[first[v] : first[v + 1]].reshape(along)
        p = self.p
        weighted = p * (total - (p * total).sum())
        return np.concatenate([weighted.sum(axis=tuple(u for u in every if u != v)) for v in every])


def close(found, truth, what: str, scale: float = 1.0) -> None:
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-9 * scale, err_msg=what)


class Watched:
    """The search, with the variables that were left to it at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.small: int | None = None
        self.searched = 0
        build, chosen = driver.build, driver.chosen

        def with_small(*args: Any, **named: Any) -> Any:
            more = {} if self.small is None else {"small": self.small}
            return build(*args, **named, **more)

        def watched(*args: Any) -> Any:
            found = chosen(*args)
            self.searched = max(self.searched, len(found[0][0].arrays.card))
            return found

        monkeypatch.setattr(driver, "build", with_small)
        monkeypatch.setattr(driver, "chosen", watched)


def check(seed: int, watched: Watched) -> bool:
    """Whether the model was one with an assignment and more than ten variables to search."""
    d, rng = drawn(seed), np.random.default_rng([seed, 1])
    truth, where = Truth(d), f"model {seed}"
    watched.small, watched.searched = SMALL[seed % len(SMALL)], 0
    if truth.log_z == -math.inf:
        with pytest.raises(ContradictionError):
            Exact(method="circuit")(d.graph)
        return False
    answer = Exact(method="circuit")(d.graph)
    close(answer.log_z, truth.log_z, where)
    close(answer.probs, truth.marginals(), where)
    n = len(d.n_states)
    some = rng.permutation(n)[: rng.integers(1, 4)].tolist()
    close(answer.joint(*some).table, truth.joint(some), f"{where}: joint of {some}")
    cotangent = rng.normal(size=len(answer.probs))
    close(pull_back(answer, cotangent).field, truth.moved(cotangent), f"{where}: gradient")
    searched = watched.searched
    _rows_best_and_samples(d, truth, rng, seed)
    return searched > 10


def _rows_best_and_samples(d: Draft, truth: Truth, rng: np.random.Generator, seed: int) -> None:
    where, n = f"model {seed}", len(d.n_states)
    known = {s[0] for s, t in d.factors if len(s) == 1 and np.isfinite(t).sum() == 1}
    could = [v for v in range(n) if v not in known]
    free = sorted(rng.permutation(could)[: rng.integers(0, 5)].tolist()) if seed % 2 else could
    circuit = minfer.compile(d.graph, free=free)
    rows = np.full((5, n), -1)
    for row in rows[1:]:
        for v in rng.permutation(free)[:3]:
            row[int(v)] = rng.integers(d.n_states[int(v)])
    found = circuit.batch(rows)
    for k, row in enumerate(rows):
        mine = truth.row({v: int(s) for v, s in enumerate(row) if s >= 0})
        if mine.log_z == -math.inf:
            assert found.log_z[k] == -math.inf, f"{where}, row {row}"
            continue
        close(found.log_z[k], mine.log_z, f"{where}, row {row}")
        close(found.probs[k], mine.marginals(), f"{where}, row {row}")
    logs = np.sort(truth.logs[truth.logs > -np.inf])[::-1]
    best = circuit.k_best(6)
    states = np.array([a.numbers for a in best.ranked], dtype=np.int64).reshape(-1, n)
    assert len(best.ranked) == min(6, len(logs)), where
    assert len(np.unique(states, axis=0)) == len(states), where
    scale = max(1.0, float(np.abs(logs[0])))
    close([a.log_score for a in best.ranked], logs[: len(states)], f"{where}: best", scale)
    close(truth.logs[tuple(states.T)], logs[: len(states)], f"{where}: k best", scale)
    if seed % 10 == 0:
        pair = rng.permutation(n)[:2].tolist()
        x = np.asarray(circuit.sample(4000, seed=seed))
        assert (truth.logs[tuple(x.T)] > -np.inf).all(), where
        expected = 4000 * truth.joint(pair).ravel()
        cells = np.ravel_multi_index(tuple(x[:, pair].T), [d.n_states[v] for v in pair])
        counts = np.bincount(cells, minlength=len(expected))
        large = expected >= 5
        if large.sum() > 1:
            pull = ((counts - expected)[large] ** 2 / expected[large]).sum()
            assert chi2.sf(pull, large.sum()) > 1e-9, f"{where}: samples of {pair}"


@pytest.mark.drawn
@pytest.mark.parametrize("block", range(BLOCKS))
def test_drawn_models(block, monkeypatch):
    watched = Watched(monkeypatch)
    mine = range(block * MODELS // BLOCKS, (block + 1) * MODELS // BLOCKS)
    found = [check(seed, watched) for seed in few(mine, 2)]
    assert sum(found) >= len(found) / 3 or len(found) < 100


def test_what_a_table_excludes_of_a_free_variable_once_others_are_fixed(monkeypatch):
    check(414, Watched(monkeypatch))


def test_the_oracle_agrees_with_the_graphs_own_scores():
    for seed in range(12):
        d = drawn(seed)
        truth = Truth(d)
        x = np.stack([np.random.default_rng(seed).integers(0, s, 50) for s in d.n_states], axis=1)
        np.testing.assert_allclose(truth.logs[tuple(x.T)], d.graph.log_score(x), atol=1e-9)
