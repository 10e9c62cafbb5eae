"""Stopped early, still certain: bounds of log Z and of marginals, and marginal MAP by search.

Models are those of ``oracle/models.py``: 1 to 5 states, zeros, clauses, weights up to 1e5, parts
that are apart, none at all, evidence. Truth is a sum over all assignments in long doubles, and in
decimals of 50 digits where an end is too close to the truth for these.

``MINFER_ANYTIME=5000`` sets how many runs are stopped, ``MINFER_MARGINAL_MAP=2000`` how many models
are maximised.
"""

from __future__ import annotations

import math
import os
from decimal import Decimal, localcontext

import numpy as np
import pytest

import minfer
from draws import draws
from minfer import ContradictionError, FactorGraph, LogZ, MiniBuckets, RefusedError, Status
from minfer.engine.buckets.search import BoundedSearch
from minfer.engine.conditioning import condition
from minfer.queries import best
from oracle import models
from oracle.truth import EXACT, WIDE, spread

RUNS = int(os.environ.get("MINFER_ANYTIME", "0"))
MAXIMA = int(os.environ.get("MINFER_MARGINAL_MAP", "0"))
#: Assignments of a model, at most, and where decimals take over at most.
MOST, FEW = 1 << 13, 1 << 10
#: Nodes after which a search is stopped, one after the other.
STOPS = (1, 3, 20, 300)


def total(drawn: models.Drawn) -> np.ndarray:
    """Log-weights of all assignments, in long doubles."""
    out = np.zeros(drawn.n_states, dtype=WIDE)
    for scope, t in drawn.factors:
        out = out + spread(drawn.n_states, scope, t.astype(WIDE))
    return out


def log_sum(logs: np.ndarray, axis: tuple[int, ...] | None = None) -> np.ndarray:
    """log of sums of exponentials, in long doubles; minus infinity of nothing."""
    top = logs.max(axis=axis, keepdims=True)
    safe = np.where(np.isneginf(top), 0, top)
    with np.errstate(divide="ignore"):
        found = np.log(np.exp(logs - safe).sum(axis=axis, keepdims=True)) + safe
    return found.reshape(()) if axis is None else found.squeeze(axis)


def exactly(drawn: models.Drawn) -> Decimal:
    """log Z with 50 digits."""
    with localcontext(EXACT):
        whole = Decimal(0)
        for x in np.ndindex(*drawn.n_states):
            parts = [float(t[tuple(x[v] for v in scope)]) for scope, t in drawn.factors]
            if -math.inf not in parts:
                whole += sum(map(Decimal, parts), Decimal(0)).exp()
        return whole.ln()


def violated(drawn: models.Drawn, lower: float, upper: float) -> bool:
    """Whether log Z is not between the two."""
    truth = log_sum(total(drawn))
    off = WIDE(np.finfo(WIDE).eps) * 64 * (1 + WIDE(drawn.magnitude))
    if WIDE(lower) <= truth - off and truth + off <= WIDE(upper):
        return False
    if math.prod(drawn.n_states) > FEW:
        return not (WIDE(lower) <= truth + off and truth - off <= WIDE(upper))
    slip = Decimal(10) ** -40
    exact = exactly(drawn)
    return not (
        (lower == -math.inf or Decimal(lower) <= exact + slip * (1 + abs(exact)))
        and (upper == math.inf or Decimal(upper) >= exact - slip * (1 + abs(exact)))
    )


def small(numbers: range):
    """Those of the numbered models that can be enumerated, impossible ones among them."""
    for number in numbers:
        drawn = models.draw(number)
        if math.prod(drawn.n_states) <= MOST:
            yield drawn


def check_stopped(drawn: models.Drawn) -> int:
    """A search that is stopped and gone on with: bounds hold, and never fall back."""
    where = f"model {drawn.number} ({drawn.family})"
    i_bound = 2 + drawn.number % 4
    try:
        search = BoundedSearch(condition(drawn.graph), i_bound=i_bound)
    except ContradictionError:
        assert drawn.impossible, where
        return 0
    lower, upper = -math.inf, math.inf
    lo, hi = np.zeros(sum(drawn.n_states)), np.ones(sum(drawn.n_states))
    for work in (0, *STOPS):
        try:
            search.run(work=work)
        except ContradictionError:
            assert drawn.impossible, where
            return 0
        if drawn.impossible:
            assert search.lower == -math.inf, where
            continue
        assert not violated(drawn, search.lower, search.upper), (where, work, search.lower)
        assert search.lower >= lower, (where, work)
        assert search.upper <= upper, (where, work)
        lower, upper = search.lower, search.upper
        low, high = search.intervals()
        iv = minfer.Intervals(
            drawn.graph, np.maximum(low, lo), np.minimum(high, hi),
            np.zeros(len(drawn.n_states), np.uint8), 0.01, "work",
        )  # fmt: skip
        wrong = np.flatnonzero(models.judge(drawn, iv))
        assert not len(wrong), (where, work, wrong, low[wrong], high[wrong], drawn.digits[wrong])
        lo, hi = iv.lo, iv.hi
    if search.exact and not drawn.impossible and upper < math.inf:
        assert upper - lower <= 1e-6 * (1 + abs(upper)), (where, lower, upper)
    return len(STOPS) + 1


@pytest.mark.drawn
def test_stopped_searches_bound_log_z_and_all_marginals():
    assert sum(map(check_stopped, small(range(draws(280))))) > 0


@pytest.mark.slow
def test_thousands_of_stopped_searches():
    runs, number = 0, 10_000
    while runs < (RUNS or 2000):
        runs += sum(map(check_stopped, small(range(number, number + 100))))
        number += 100


@pytest.mark.drawn
def test_mini_buckets_bound_log_z_and_the_marginals_are_within_what_they_say():
    seen = set()
    for drawn in small(range(draws(280))):
        where = f"model {drawn.number} ({drawn.family})"
        solver = MiniBuckets(i_bound=1 + drawn.number % 6)
        try:
            answer = solver(drawn.graph)
        except ContradictionError:
            assert drawn.impossible, where
            continue
        if drawn.impossible:
            continue
        seen.add(answer.status)
        lower, upper = answer.proven_log_z
        assert not violated(drawn, lower, upper), where
        assert answer.log_z_kind is (LogZ.EXACT if answer.status is Status.EXACT else LogZ.UPPER), (
            where
        )
        low, high = answer.state.low, answer.state.high
        iv = minfer.Intervals(
            drawn.graph, low, high, np.zeros(len(answer), np.uint8), 0.01, "exhausted"
        )
        assert not models.judge(drawn, iv).any(), where
        assert ((low <= answer.probs) & (answer.probs <= high)).all(), where
    assert seen == {Status.EXACT, Status.BOUND}


def test_log_z_bounds_of_every_kind_of_answer():
    graph = FactorGraph.grid(np.linspace(-1, 1, 9).reshape(3, 3), 0.7)
    exact = minfer.Exact()(graph)
    lower, upper = exact.log_z_bounds
    assert lower <= exact.log_z <= upper <= lower + 1e-7
    above = minfer.TreeReweighted()(graph).log_z_bounds
    below = minfer.MeanField()(graph).log_z_bounds
    assert (above[0], below[1]) == (-math.inf, math.inf)
    assert below[0] <= exact.log_z <= above[1]
    assert minfer.BeliefPropagation()(graph).log_z_bounds is None
    both = MiniBuckets(i_bound=2)(graph)
    assert both.log_z_bounds == both.proven_log_z
    assert both.to_dict()["log_z_bounds"] == list(both.proven_log_z)
    parts = minfer.Components(MiniBuckets(i_bound=2), size=1)(models.union(graph, graph))
    assert parts.log_z_bounds == pytest.approx([2 * end for end in both.proven_log_z])


def test_intervals_bound_log_z_and_are_narrower_with_time():
    rng = np.random.default_rng(3)
    graph = FactorGraph.grid(rng.normal(size=(9, 9)), rng.choice([-1.5, 1.5], 144))
    truth = minfer.Exact()(graph)
    before = (-math.inf, math.inf)
    for work in (1_000, 3_000_000, 30_000_000):
        iv = minfer.intervals(graph, None, work=work, methods=["buckets"], tol=0.0, workers=1)
        lower, upper = iv.log_z_bounds or (-math.inf, math.inf)
        assert before[0] <= lower <= truth.log_z <= upper <= before[1]
        assert ((iv.lo <= truth.probs + 1e-12) & (truth.probs - 1e-12 <= iv.hi)).all()
        before = lower, upper
    assert (iv.method == "buckets").any()
    assert iv.to_dict()["log_z_bounds"] == list(before)
    assert iv.midpoint().log_z_bounds == before


# ------------------------------------------------------------------ marginal MAP


@pytest.fixture
def no_tree(monkeypatch):
    """No clique tree fits, whatever the model."""

    def refuse(*_, **__):
        raise RefusedError("no tree today")

    monkeypatch.setattr(best, "_by_tree", refuse)


def check_best(drawn: models.Drawn, k: int) -> str:
    """The best of some variables against all of their assignments; how it ended."""
    n, where = len(drawn.n_states), f"model {drawn.number} ({drawn.family})"
    rng = np.random.default_rng([drawn.number, 38])
    wanted = rng.permutation(n)[: rng.integers(1, n + 1)].tolist()
    try:
        found = minfer.mpe(drawn.graph, variables=wanted, k=k, time_limit=5.0)
    except ContradictionError:
        assert drawn.impossible, where
        return "impossible"
    assert not drawn.impossible, where
    rest = tuple(v for v in range(n) if v not in wanted)
    scores = log_sum(total(drawn), rest) if rest else total(drawn)
    scores = np.asarray(scores).transpose(np.argsort(np.argsort(wanted)))
    room = 1e-9 * (1 + drawn.magnitude)
    order = np.sort(scores.ravel())[::-1]
    assert found.upper >= order[0] - room, (where, wanted, found.upper, order[0])
    assert found.upper >= found.log_score, where
    own = [scores[tuple(a.numbers)] for a in found]
    for a, value in zip(found, own):
        assert a.log_score <= value + room, (where, wanted, a.log_score, value)
    assert len({tuple(a.numbers) for a in found}) == len(found) <= k, where
    if found.proven:
        size = 1e-8 + 1e-11 * abs(float(order[0])) + room
        np.testing.assert_allclose(
            np.array(own, float), order[: len(own)].astype(float), rtol=0, atol=2 * size,
            err_msg=f"{where}, {wanted}",
        )  # fmt: skip
    if found.complete:
        assert len(found) == np.isfinite(scores.astype(float)).sum(), where
    return found.status


@pytest.mark.drawn
def test_marginal_map_by_search_against_all_assignments(no_tree):
    ended = [check_best(d, 1 + d.number % 3) for d in small(range(1, draws(140))) if d.n_states]
    assert ended.count("optimal") >= 0.8 * len([e for e in ended if e != "impossible"])


@pytest.mark.slow
def test_thousands_of_marginal_maxima(no_tree):
    ended: list[str] = []
    number = 20_000
    while len(ended) < (MAXIMA or 500):
        some = small(range(number, number + 50))
        ended += [check_best(d, 1 if d.number % 4 else 3) for d in some if d.n_states]
        number += 50
    assert ended.count("optimal") >= 0.8 * len([e for e in ended if e != "impossible"])


def test_what_a_tree_solves_is_solved_by_the_tree():
    graph = FactorGraph.grid(np.linspace(-1, 1, 16).reshape(4, 4), 0.7)
    found = minfer.mpe(graph, variables=[0, 5, 7])
    assert (found.steps, found.status) == (("clique tree",), "optimal")


def test_marginal_map_where_no_tree_fits_has_an_answer_and_a_gap():
    rng = np.random.default_rng(0)
    graph = FactorGraph.grid(rng.normal(size=(16, 16)), rng.choice([-1.0, 1.0], 480))
    found = minfer.mpe(graph, variables=range(0, 256, 2), time_limit=2.0, max_gib=0.01)
    assert found.steps[0] == "best-first search"
    assert -math.inf < found.log_score <= found.upper < math.inf
    assert found.status in ("optimal", "time limit")


def test_states_of_next_to_no_probability_are_not_overrated():
    """Their shares come from products below the normal numbers: of one, .5 % too much was said."""
    tables: list[tuple[list[int], list]] = [
        ([4, 3], [[489, -97, 463], [-181, -107, 167]]), ([3], [77, 108, 262]), ([1], [-52, -18]),
        ([0, 1, 4], [[[-850, -149], [43, -67]], [[-212, 298], [-465, -288]]]),
        ([1, 3], [[462, 202, 349], [-258, 215, 24]]), ([1, 2], [[-267, 308], [-358, 125]]),
        ([4, 2], [[-216, 159], [-981, -684]]), ([1], [-416, -161]),
    ]  # fmt: skip
    scopes, logs = zip(*((scope, np.array(t, dtype=np.float64)) for scope, t in tables))
    graph = FactorGraph.from_tables([2, 2, 2, 3, 2], scopes, logs)
    iv = minfer.intervals(graph, None, tol=0.0, work=1_000_000, methods=["buckets"])
    truth = minfer.Exact(method="enumerate")(graph).probs
    assert (iv.lo <= truth * (1 + 1e-9)).all()
    assert (truth <= iv.hi * (1 + 1e-9)).all()
