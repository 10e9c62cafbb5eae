"""Tree factors, decoders and grandparents against all trees; many sentences against each alone."""

from __future__ import annotations

import functools
import itertools
import pickle

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws, few, thorough
from minfer import BeliefPropagation, ContradictionError, FactorGraph, ModelError
from minfer.factors import GlobalFactor
from minfer.kernels.arithmetic import lanes
from minfer.kernels.trees import trees as kernels
from minfer.kernels.trees.tree_lanes import inverse_in_lanes
from minfer.parsing.exact import _in_logs, exact_grandparent
from minfer.parsing.inference import marginals
from minfer.parsing.trees import (
    NonProjectiveTree,
    ProjectiveTree,
    all_arcs,
    chu_liu_edmonds,
    eisner,
    is_tree,
    tree_marginals,
)
from oracle.truth import logsumexp
from refused import all_refused

FACTORS = {True: ProjectiveTree, False: NonProjectiveTree}
DECODERS = {True: eisner, False: chu_liu_edmonds}
KINDS = list(itertools.product([True, False], [True, False]))  # projective, single root
#: Of sentences whose trees are all listed: of six words there are 117,649 choices of heads.
LENGTHS = [1, 2, 3, 4, 5, 6] if thorough() else [1, 2, 3, 4, 5]
kinds = pytest.mark.parametrize(("projective", "single_root"), KINDS)


@functools.cache
def trees(n: int, projective: bool, single_root: bool) -> np.ndarray:
    """Heads (T, n+1) of all trees, -1 at 0, by the definitions alone."""
    heads = np.array(list(itertools.product(range(n + 1), repeat=n))).reshape(-1, n)
    heads = np.concatenate([np.full((len(heads), 1), -1), heads], axis=1)
    below = np.zeros((len(heads), n + 1, n + 1), dtype=bool)  # [h, m]: m hangs on h, or is h
    below[:, np.arange(n + 1), np.arange(n + 1)] = True
    up = np.where(heads < 0, 0, heads)
    at = np.tile(np.arange(n + 1), (len(heads), 1))
    for _ in range(n + 1):
        at = np.take_along_axis(up, at, axis=1)
        np.put_along_axis(below, at[:, None, :], True, axis=1)
    good = (at == 0).all(axis=1)
    if single_root:
        good &= (heads[:, 1:] == 0).sum(axis=1) == 1
    if projective:  # all words between a head and its modifier hang on the head
        for m in range(1, n + 1):
            for k in range(1, n + 1):
                h = up[:, m]
                between = (np.minimum(h, m) < k) & (k < np.maximum(h, m))
                good &= ~between | below[np.arange(len(heads)), h, k]
    return heads[good]


def total(scores: np.ndarray, projective: bool, single_root: bool):
    """Arc probabilities and log Z by enumeration."""
    n = len(scores) - 1
    every = trees(n, projective, single_root)
    weights = scores[every[:, 1:], np.arange(1, n + 1)].sum(axis=1)
    log_z = logsumexp(weights)
    mu = np.zeros_like(scores)
    if log_z > -np.inf:
        p = np.exp(weights - log_z)
        for m in range(1, n + 1):
            mu[:, m] = np.bincount(every[:, m], p, minlength=n + 1)
    return mu, log_z


def messages(heads, modifiers, incoming, n, projective, single_root):
    """The messages of a tree factor and its log-partition, by enumeration."""
    every = trees(n, projective, single_root)
    y = every[:, modifiers] == heads  # (T, A)
    y = y[y.sum(axis=1) == n]  # trees made of candidates
    q = incoming.reshape(-1, 2)
    logs = np.where(y, q[:, 1], q[:, 0])
    out = np.full_like(q, -np.inf)
    for a in range(len(heads)):
        rest = np.delete(logs, a, axis=1).sum(axis=1)
        for s in (0, 1):
            rows = rest[y[:, a] == bool(s)]
            out[a, s] = logsumexp(rows) if len(rows) else -np.inf
    return out.ravel(), logsumexp(logs.sum(axis=1)) if len(logs) else -np.inf


def draw(rng, n, scale=2.0, density=1.0):
    scores = rng.normal(size=(n + 1, n + 1)) * scale
    scores[rng.random(scores.shape) > density] = -np.inf
    return scores


def clean(scores):
    copy = scores.copy()
    copy[:, 0] = -np.inf
    np.fill_diagonal(copy, -np.inf)
    return copy


@pytest.mark.drawn
def test_counts():
    """Known numbers: n^(n-1), (n+1)^(n-1) and, projective, binom(3n, n) / (2n + 1)."""
    assert [len(trees(n, False, True)) for n in LENGTHS] == [n ** (n - 1) for n in LENGTHS]
    assert [len(trees(n, False, False)) for n in range(1, 6)] == [1, 3, 16, 125, 1296]
    assert [len(trees(n, True, False)) for n in range(1, 6)] == [1, 3, 12, 55, 273]
    for n in range(1, 5):
        for projective, single_root in KINDS:
            accepted = [
                h
                for h in itertools.product(range(n + 1), repeat=n)
                if is_tree(np.array([-1, *h]), projective, single_root)
            ]
            assert len(accepted) == len(trees(n, projective, single_root))


@kinds
@pytest.mark.drawn
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("density", [1.0, 0.6])
def test_marginals_by_enumeration(n, density, projective, single_root):
    rng = np.random.default_rng(n)
    for scale in (0.0, 1.0, 5.0, 30.0, 700.0):
        scores = draw(rng, n, scale, density)
        expected, log_z = total(scores, projective, single_root)
        if log_z == -np.inf:
            with pytest.raises(ContradictionError, match="can be made"):
                tree_marginals(scores, projective=projective, single_root=single_root)
            continue
        mu, got = tree_marginals(scores, projective=projective, single_root=single_root)
        assert got == pytest.approx(log_z, rel=1e-12, abs=1e-10)
        np.testing.assert_allclose(mu, expected, atol=1e-10)
        np.testing.assert_allclose(mu[:, 1:].sum(axis=0), 1.0, atol=1e-10)


@pytest.mark.drawn
@kinds
@pytest.mark.parametrize("spread", few([0.0, 0.5, 2.0, 8.0], 2))
def test_long_sentences_agree_with_logs(projective, single_root, spread):
    n = (200 if projective else 120) // (1 if thorough() else 2)
    rng = np.random.default_rng(3)
    words = np.arange(n + 1)
    distance = np.abs(words[:, None] - words)
    scores = clean(draw(rng, n, spread) - 0.1 * distance)
    mu, log_z = tree_marginals(scores, projective=projective, single_root=single_root)
    np.testing.assert_allclose(mu[:, 1:].sum(axis=0), 1.0, atol=1e-9)
    if single_root:
        assert mu[0].sum() == pytest.approx(1.0, abs=1e-9)
    size = n + 1
    d, work = np.full((size, size), -np.inf), np.empty(kernels.float_scratch(size))
    scaled = scores - np.where(np.arange(size) > 0, logsumexp(scores, axis=0), 0.0)
    if projective:
        in_logs = kernels.projective_log(scaled, single_root, d, work)
    else:
        ints = np.empty(kernels.int_scratch(size), np.int64)
        in_logs = kernels.nonprojective_log(scaled, single_root, d, work, ints)
    shift = logsumexp(scores[:, 1:], axis=0).sum()
    assert log_z == pytest.approx(in_logs + shift, abs=1e-8)
    np.testing.assert_allclose(mu, np.exp(scaled + d - in_logs), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("single_root", [True, False])
def test_the_inverse_is_right_or_says_so(single_root):
    rng = np.random.default_rng(12)
    answered = 0
    draws = list(itertools.product((1, 2, 3, 8, 25, 60), (0.0, 1.0, 4.0, 12.0, 40.0), (0.0, 0.7)))
    for n, spread, holes in draws:
        scores = clean(draw(rng, n, spread))
        scores[rng.random(scores.shape) < holes] = -np.inf
        size = n + 1
        scale = logsumexp(scores, axis=0)
        w = np.exp(scores - np.where(scale > -np.inf, scale, 0.0))
        mu, d = np.full((2, size, size), np.nan)
        work = np.full(kernels.float_scratch(size), np.nan)
        z = kernels.inverse_marginals(w, single_root, mu, work)
        d[:] = 0.0
        ints = np.empty(kernels.int_scratch(size), np.int64)
        true = kernels.nonprojective(w, single_root, d, work, ints)
        if not np.isnan(z):
            answered += 1
            assert z == pytest.approx(true, rel=1e-12)
            np.testing.assert_allclose(mu, w * d / true, atol=2e-11)
    assert 0.4 * len(draws) < answered < len(draws)


@kinds
def test_shifting_a_word_changes_nothing_nor_does_a_parser_without_pairs(projective, single_root):
    rng, kind = np.random.default_rng(4), {"projective": projective, "single_root": single_root}
    scores, shift = draw(rng, 12), rng.normal(size=13) * 500
    mu, log_z = tree_marginals(scores, **kind)
    moved, other = tree_marginals(scores + shift, **kind)
    np.testing.assert_allclose(moved, mu, atol=1e-10)
    assert other == pytest.approx(log_z + shift[1:].sum(), abs=1e-8)
    alone = marginals(scores, **kind)
    np.testing.assert_allclose(alone.probs, mu, atol=1e-12)
    assert alone.log_z == pytest.approx(log_z)


def test_bad_scores():
    for scores, word in [
        (np.zeros((2, 3)), "shape"),
        (np.full((3, 3), np.nan), "0 -> 1"),
        (np.array([[0, 0, np.inf], [0, 0, 0], [0, 0, 0]]), "0 -> 2"),
        (np.ma.masked_less(np.zeros((3, 3)), 1), "masked array"),
        (np.zeros((3, 3), complex), "complex128"),
        ([["a", "b"], ["c", "d"]], "real numbers"),
        ([[0.0, 1.0], [2.0]], "array of numbers"),
    ]:
        for function in (tree_marginals, *DECODERS.values()):
            with pytest.raises(ModelError, match=word):
                function(scores)
    one, three, pairs, none = np.zeros((3, 3)), *np.zeros((2, 3, 3, 3)), np.zeros((2, 4, 4))
    pairs[0, 1, 2] = three[1, 0, 2] = np.nan
    none[1, :, 2] = -np.inf
    all_refused(
        (lambda: exact_grandparent(one, one), ModelError, "shape"),
        (lambda: exact_grandparent(one, pairs), ModelError, "0 -> 1 -> 2"),
        (lambda: tree_marginals(none, [3]), ModelError, "2 integers"),
        (lambda: tree_marginals(none, [3, 4]), ModelError, "sentence 1: 4 words"),
        (lambda: tree_marginals(one[0]), ModelError, r"\(B, N, N\)"),
        (lambda: tree_marginals(one, [2]), ModelError, "lengths are for a batch"),
        (lambda: tree_marginals(three), ModelError, "sentence 1, arc 0 -> 2"),
        (lambda: tree_marginals(none), ContradictionError, "sentence 1: no projective tree"),
    )


@pytest.mark.drawn
@kinds
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("sparse", [False, True])
def test_messages_by_enumeration(n, sparse, projective, single_root, monkeypatch):
    """Drawn candidates and messages: any scale, zeros of either sort, no tree at all."""
    monkeypatch.setattr("minfer.parsing.trees.DENSE", 0 if sparse else 100)
    rng = np.random.default_rng(100 * n)
    ways = itertools.product((0.0, 2.0, 50.0, 700.0), (0.0, 0.1, 0.3), (1.0, 0.7))
    for scale, zeros, density in few(ways, 8):
        heads, modifiers = all_arcs(n)
        some = rng.permutation(len(heads))[: max(1, int(density * len(heads)))]
        heads, modifiers = heads[some], modifiers[some]
        q = rng.normal(size=(len(heads), 2)) * scale
        hit = rng.random(len(heads)) < zeros
        q[hit, rng.integers(0, 2, size=hit.sum())] = -np.inf
        q -= q.max(axis=1, keepdims=True)
        factor = FACTORS[projective](heads, modifiers, n, single_root)
        out = np.full(2 * len(heads), np.nan)
        log_z = factor.messages(q.reshape(1, -1), out[None])[0]
        expected, z = messages(heads, modifiers, q.ravel(), n, projective, single_root)
        np.testing.assert_array_equal(out == -np.inf, expected == -np.inf)
        alive = expected > -np.inf
        np.testing.assert_allclose(out[alive], expected[alive], rtol=1e-12, atol=1e-10)
        if z == -np.inf:
            assert log_z == -np.inf
        else:
            assert log_z == pytest.approx(z, rel=1e-12, abs=1e-10)


@pytest.mark.drawn
@kinds
@pytest.mark.parametrize("mask", [-2e4, -1e9, -1e30])
def test_messages_with_finite_masks(mask, projective, single_root):
    """Arcs that are as good as impossible cost the others no digits."""
    rng = np.random.default_rng(5)
    n = 4
    heads, modifiers = all_arcs(n)
    factor = FACTORS[projective](heads, modifiers, n, single_root)
    for density, scale in few(itertools.product((0.2, 0.5, 0.8), (1.0, 30.0, 700.0)), 5):
        for _ in range(draws(20)):
            q = rng.normal(size=(len(heads), 2)) * scale
            q[:, 0] = 0.0
            q[rng.random(len(heads)) < density, 1] = mask
            out = np.empty_like(q)
            log_z = factor.messages(q.reshape(1, -1), out.reshape(1, -1))[0]
            want, z = messages(heads, modifiers, q.ravel(), n, projective, single_root)
            np.testing.assert_allclose(out.ravel(), want, rtol=1e-12, atol=1e-10)
            assert log_z == pytest.approx(z, rel=1e-12, abs=1e-10)


def arcs_with_tree(scores, projective, single_root, keep=None, order=None):
    """One variable per arc with its score, and the tree factor over them."""
    n = len(scores) - 1
    heads, modifiers = all_arcs(n)
    use = np.flatnonzero(scores[heads, modifiers] > -np.inf if keep is None else keep)
    use = use if order is None else use[order(len(use))]
    heads, modifiers = heads[use], modifiers[use]
    graph = FactorGraph.pairwise(scores[heads, modifiers], [], [])
    factor = FACTORS[projective](heads, modifiers, n, single_root)
    return graph.add_global(np.arange(len(use)), factor), heads, modifiers


@kinds
@pytest.mark.parametrize("n", [1, 3, 6, 15])
def test_belief_propagation_is_exact(n, projective, single_root):
    """One factor and unaries: BP gives the tree marginals, whatever the order of the arcs."""
    rng = np.random.default_rng(n)
    for scale, density in [(1.0, 1.0), (4.0, 0.8), (60.0, 1.0)]:
        scores = clean(draw(rng, n, scale, density))
        if n <= 6:
            mu, log_z = total(scores, projective, single_root)
        else:
            mu, log_z = tree_marginals(scores, projective=projective, single_root=single_root)
        for order in (None, rng.permutation):
            graph, heads, modifiers = arcs_with_tree(scores, projective, single_root, order=order)
            if log_z == -np.inf:
                with pytest.raises(ContradictionError):
                    BeliefPropagation()(graph)
                continue
            m = BeliefPropagation()(graph)
            assert m.status.ok
            np.testing.assert_allclose(
                m.probs.reshape(-1, 2)[:, 1], mu[heads, modifiers], atol=1e-10
            )
            assert m.log_z == pytest.approx(log_z, rel=1e-11, abs=1e-9)


@kinds
def test_evidence_and_contradiction(projective, single_root):
    rng = np.random.default_rng(8)
    scores = clean(draw(rng, 5))
    graph, heads, modifiers = arcs_with_tree(scores, projective, single_root)
    arc = {(int(h), int(m)): a for a, (h, m) in enumerate(zip(heads, modifiers))}
    seen = graph.with_evidence({arc[2, 3]: 1, arc[2, 4]: 0})
    held = scores.copy()
    held[:, 3] = np.where(np.arange(6) == 2, held[:, 3], -np.inf)
    held[2, 4] = -np.inf
    mu, log_z = total(held, projective, single_root)
    m = BeliefPropagation()(seen)
    np.testing.assert_allclose(m.probs.reshape(-1, 2)[:, 1], mu[heads, modifiers], atol=1e-10)
    assert m.log_z == pytest.approx(log_z, abs=1e-9)
    for clash in ({arc[2, 3]: 1, arc[4, 3]: 1}, {arc[2, 3]: 1, arc[3, 2]: 1}):
        with pytest.raises(ContradictionError):
            BeliefPropagation()(graph.with_evidence(clash))
    if single_root:
        with pytest.raises(ContradictionError):
            BeliefPropagation()(graph.with_evidence({arc[0, 3]: 1, arc[0, 2]: 1}))
    no_head = ~(modifiers == 3)
    with pytest.raises(ContradictionError):
        BeliefPropagation()(arcs_with_tree(scores, projective, single_root, no_head)[0])


@kinds
@pytest.mark.parametrize("per_word", [None, 4])
def test_messages_of_long_sentences(projective, single_root, per_word):
    """On and off add up to the partition, and no arc's own message comes back to it."""
    rng = np.random.default_rng(10)
    n = 40
    heads, modifiers = all_arcs(n)
    if per_word:
        near = np.abs(heads - modifiers) <= 3
        heads, modifiers = heads[near], modifiers[near]
    factor = FACTORS[projective](heads, modifiers, n, single_root)
    for scale in (0.5, 3.0, 40.0):
        q = rng.normal(size=(len(heads), 2)) * scale
        q -= q.max(axis=1, keepdims=True)
        out = np.empty_like(q)
        log_z = factor.messages(q.reshape(1, -1), out.reshape(1, -1))[0]
        both = logsumexp(out + q, axis=1)
        np.testing.assert_allclose(both, log_z, rtol=1e-12, atol=1e-9)
        scores = np.full((n + 1, n + 1), -np.inf)
        scores[heads, modifiers] = q[:, 1] - q[:, 0]
        mu, _ = tree_marginals(scores, projective=projective, single_root=single_root)
        np.testing.assert_allclose(
            np.exp(out[:, 1] + q[:, 1] - log_z), mu[heads, modifiers], atol=1e-10
        )
        for a in rng.integers(len(heads), size=5):
            for own in ([0.0, -np.inf], [-np.inf, 0.0], [0.0, -3.0]):
                other, moved = q.copy(), np.empty_like(q)
                other[a] = own
                factor.messages(other.reshape(1, -1), moved.reshape(1, -1))
                np.testing.assert_allclose(moved[a], out[a], rtol=1e-12, atol=1e-9)


@kinds
def test_score_is_the_definition(projective, single_root):
    heads, modifiers = all_arcs(3)
    factor = FACTORS[projective](heads, modifiers, 3, single_root=single_root)
    on = {tuple(tree[modifiers] == heads) for tree in trees(3, projective, single_root)}
    for arcs in itertools.product([0, 1], repeat=len(heads)):
        assert factor.score(np.array([arcs]))[0] == (0.0 if arcs in on else -np.inf)


def test_factor_objects():
    heads, modifiers = all_arcs(3)
    for kind in FACTORS.values():
        factor = kind(heads, modifiers, 3)
        assert isinstance(factor, GlobalFactor)
        again = pickle.loads(pickle.dumps(factor))
        q, out, out2 = np.zeros((1, 18)), np.empty((1, 18)), np.empty((1, 18))
        assert factor.messages(q, out) == again.messages(q, out2)
        np.testing.assert_array_equal(out, out2)
        with pytest.raises(AttributeError):
            factor.n_words = 4
        with pytest.raises(ValueError, match="read-only"):
            again.heads[0] = 1
    for bad_heads, bad_modifiers, n, word in [
        ([0], [0], 1, "0 -> 0"),
        ([0, 3], [1, 1], 2, "3 -> 1"),
        ([0, 0], [1, 1], 2, "twice"),
        ([0.5], [1], 2, "integers"),
        ([0, 1], [1], 2, "shape"),
        ([], [], 0, "word"),
    ]:
        with pytest.raises(ModelError, match=word):
            ProjectiveTree(bad_heads, bad_modifiers, n)


@kinds
@pytest.mark.drawn
@pytest.mark.parametrize("n", LENGTHS)
def test_decoders_by_enumeration(n, projective, single_root):
    rng = np.random.default_rng(20 + n)
    words = np.arange(1, n + 1)
    every = trees(n, projective, single_root)
    for k in range(40):
        scores = draw(rng, n, density=(1.0, 0.7, 0.4)[k % 3])
        if k % 2:
            scores = np.round(scores)  # ties
        scores += 300.0 * (k % 5 == 4) * (rng.random(scores.shape) < 0.3)
        values = scores[every[:, 1:], words].sum(axis=1)
        if values.max() == -np.inf:
            with pytest.raises(ContradictionError):
                DECODERS[projective](scores, single_root=single_root)
            continue
        heads = DECODERS[projective](scores, single_root=single_root)
        assert (heads == every).all(axis=1).any()
        assert scores[heads[1:], words].sum() == pytest.approx(values.max(), abs=1e-9)
        np.testing.assert_array_equal(heads, DECODERS[projective](scores, single_root=single_root))


@kinds
def test_decoders_long(projective, single_root):
    """A planted tree with the best score wins; a chain of rings is contracted."""
    rng = np.random.default_rng(21)
    n = 150
    heads = np.r_[-1, 0, [int(rng.integers(1, m)) for m in range(2, n + 1)]]
    if projective:
        heads = np.r_[-1, np.arange(n)]
    scores = rng.normal(size=(n + 1, n + 1))
    scores[heads[1:], np.arange(1, n + 1)] += 100.0
    np.testing.assert_array_equal(DECODERS[projective](scores, single_root=single_root), heads)
    scores = np.where(np.abs(np.subtract.outer(np.r_[: n + 1], np.r_[: n + 1])) == 1, 5.0, 0.0)
    assert is_tree(DECODERS[projective](scores, single_root=single_root), projective, single_root)


def total_grandparent(arcs, pairs, single_root):
    n = len(arcs) - 1
    every = trees(n, True, single_root)
    words = np.arange(1, n + 1)
    grand = np.take_along_axis(every, np.maximum(every, 0), axis=1)[:, 1:]
    heads = every[:, 1:]
    weights = arcs[heads, words].sum(axis=1)
    weights += np.where(heads > 0, pairs[grand, heads, words], 0.0).sum(axis=1)
    log_z = logsumexp(weights)
    mu = np.zeros_like(arcs)
    if log_z > -np.inf:
        for m in words:
            mu[:, m] = np.bincount(every[:, m], np.exp(weights - log_z), minlength=n + 1)
    return mu, log_z


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_grandparents_by_enumeration(n, single_root):
    rng = np.random.default_rng(30 + n)
    for scale, density in [(0.0, 1.0), (2.0, 1.0), (2.0, 0.6), (60.0, 1.0), (700.0, 0.9)]:
        arcs = draw(rng, n, scale, density)
        pairs = rng.normal(size=(n + 1,) * 3) * scale
        pairs[rng.random(pairs.shape) > density] = -np.inf
        expected, z = total_grandparent(arcs, pairs, single_root)
        if z == -np.inf:
            with pytest.raises(ContradictionError):
                exact_grandparent(arcs, pairs, single_root=single_root)
            continue
        mu, log_z = exact_grandparent(arcs, pairs, single_root=single_root)
        np.testing.assert_allclose(mu, expected, atol=1e-10)
        assert log_z == pytest.approx(z, rel=1e-12, abs=1e-10)


@pytest.mark.parametrize("single_root", [True, False])
def test_grandparents_without_pairs_and_in_logs(single_root):
    rng = np.random.default_rng(40)
    arcs = draw(rng, 20)
    mu, log_z = tree_marginals(arcs, single_root=single_root)
    got, z = exact_grandparent(arcs, np.zeros((21, 21, 21)), single_root=single_root)
    np.testing.assert_allclose(got, mu, atol=1e-12)
    assert z == pytest.approx(log_z, abs=1e-10)
    pairs = rng.normal(size=(21, 21, 21))
    got, z = exact_grandparent(arcs, pairs, single_root=single_root)
    h, m, g = np.ogrid[:21, :21, :21]
    outside = (g < np.minimum(h, m)) | (g > np.maximum(h, m))
    v = np.where(outside, clean(arcs)[:, :, None] + pairs.transpose(1, 2, 0), -np.inf)
    v[0, :, 0] = clean(arcs)[0]  # no grandparent
    log_mu, log_z = _in_logs(v, single_root)
    np.testing.assert_allclose(np.exp(log_mu - log_z), got, atol=1e-11)
    assert z == pytest.approx(log_z, abs=1e-10)


@kinds
def test_batches_are_single_sentences(projective, single_root):
    rng, kind = np.random.default_rng(4), {"projective": projective, "single_root": single_root}
    lengths = np.array([6, 1, 4])
    scores = rng.normal(size=(3, 7, 7))
    scores[1, 2:] = np.nan  # beyond the sentence, not read
    scores[0, 3, 2] = -np.inf
    mu, log_z = tree_marginals(scores, lengths, **kind)
    for b, n in enumerate(lengths):
        want, want_z = tree_marginals(scores[b, : n + 1, : n + 1], **kind)
        np.testing.assert_allclose(mu[b, : n + 1, : n + 1], want, atol=1e-14)
        assert log_z[b] == pytest.approx(want_z, abs=1e-13)
    assert mu.sum() == pytest.approx(lengths.sum())
    whole, _ = tree_marginals(scores[2:])
    np.testing.assert_array_equal(whole[0], tree_marginals(scores[2])[0])


roots = pytest.mark.parametrize("single_root", [True, False])
floats = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@numba.njit
def exponentials(x):
    for i in range(0, x.size, lanes.lanes_of(x)):
        lanes.store(x, i, lanes.exp(lanes.load(x, i)))


@numba.njit
def logarithms(x):
    for i in range(0, x.size, lanes.lanes_of(x)):
        lanes.store(x, i, lanes.log(lanes.load(x, i)))


@pytest.mark.parametrize(
    ("dtype", "far", "last", "within"),
    [(np.float64, 700, -708.0, 8e-16), (np.float32, 27.9, -27.9, 2.5e-7)],
)
def test_exponentials_and_logarithms(dtype, far, last, within):
    rng = np.random.default_rng(1)
    x = -np.r_[0.0, 1e-300, rng.random(4000) * far, np.linspace(0, 4, 1998)].astype(dtype)
    y = x.copy()
    exponentials(y)
    np.testing.assert_allclose(y, np.exp(x.astype(float)), rtol=within)
    ends = np.array([-np.inf, -1e30, last - 1, last, np.nan, 0.0, 0.5, -0.0] * 2, dtype)
    exponentials(ends)
    want = [0, 0, 0, np.exp(float(dtype(last))), np.nan, 1, np.exp(0.5), 1] * 2
    np.testing.assert_allclose(ends, want, rtol=within)
    if dtype == np.float64:
        x = np.exp(rng.uniform(-700, 700, 4096))
        x[:8] = [1.0, 2.0, 0.5, 1 + 1e-15, 1 - 1e-15, np.e, 1e-300, 1e300]
        y = x.copy()
        logarithms(y)
        np.testing.assert_allclose(y, np.log(x), rtol=4e-16, atol=1e-18)


def one_by_one(scores, lengths, single_root):
    """What a sentence at a time gives; None for a sentence without a tree."""
    for x, n in zip(scores, lengths, strict=True):
        try:
            yield tree_marginals(x[: n + 1, : n + 1], projective=False, single_root=single_root)
        except ContradictionError:
            yield None


@pytest.mark.parametrize("projective", [True, False])
@roots
@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0, 20.0])
@pytest.mark.parametrize(("batch", "n"), [(40, 25), (17, 15), (5, 3), (1, 30)])
def test_single_precision(projective, single_root, spread, batch, n):
    rng = np.random.default_rng(batch)
    scores = rng.normal(0.0, spread, (batch, n + 1, n + 1)).astype(np.float32)
    lengths = rng.integers(max(1, n - 3), n + 1, batch)
    for words in (None, lengths):
        mu, log_z = tree_marginals(scores, words, projective=projective, single_root=single_root)
        want, z = tree_marginals(
            scores.astype(float), words, projective=projective, single_root=single_root
        )
        assert (mu.dtype, log_z.dtype) == (np.float32, np.float64)
        np.testing.assert_allclose(mu, want, atol=1e-5)
        np.testing.assert_allclose(log_z, z, rtol=1e-7, atol=1e-5)


@roots
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=30),
    spread=st.sampled_from([0.0, 1.0, 6.0, 20.0, 100.0, 300.0]),
    holes=st.sampled_from([0.0, 0.3, 0.8]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=draws(100), deadline=None)
def test_any_company(single_root, lengths, spread, holes, seed):
    """Sentences of all lengths, some of them without a tree: each as one by one."""
    rng = np.random.default_rng(seed)
    size = max(lengths) + 1
    scores = rng.normal(0.0, spread, (len(lengths), size, size))
    scores[rng.random(scores.shape) < holes] = -np.inf
    scores[:, :, 0] = np.nan  # never read
    scores[:, range(size), range(size)] = np.inf
    single = list(one_by_one(scores, lengths, single_root))
    good = [b for b, found in enumerate(single) if found is not None]
    if len(good) < len(lengths):
        first = next(b for b, found in enumerate(single) if found is None)
        with pytest.raises(ContradictionError, match=f"sentence {first}: no tree"):
            tree_marginals(scores, lengths, projective=False, single_root=single_root)
    if good:
        chosen = [lengths[b] for b in good]
        mu, log_z = tree_marginals(scores[good], chosen, projective=False, single_root=single_root)
        for i, b in enumerate(good):
            n = lengths[b] + 1
            np.testing.assert_allclose(mu[i, :n, :n], single[b][0], atol=1e-11)
            assert log_z[i] == pytest.approx(single[b][1], rel=1e-12, abs=1e-11)
            assert mu[i, n:].sum() == mu[i, :, n:].sum() == 0.0


@pytest.mark.slow
@roots
@floats
@pytest.mark.drawn
def test_the_inverse_abreast_is_right_or_says_so(single_root, dtype):
    """Straight from the kernel: its errors stay within its danger, in either precision."""
    rng = np.random.default_rng(7)
    lane = 64 // np.dtype(dtype).itemsize
    answered = 0
    cases = few(itertools.product((16, 17, 26, 41), (0.0, 1.0, 8.0, 40.0), (0.0, 0.7)), 11)
    for n, spread, holes in cases:
        scores = rng.normal(0.0, spread, (lane, n, n)).astype(dtype)
        scores[rng.random(scores.shape) < holes] = -np.inf
        start, swap = np.arange(lane) * n * n, np.empty(2 * lane, np.int64)
        work, logs = np.full(3 * lane * n * n, np.nan, dtype), np.empty(lane * n)
        mu, (log_z, danger) = np.full_like(scores, np.nan), np.full((2, lane), np.nan)
        inverse_in_lanes(
            single_root, scores.ravel(), start, n, swap, mu.ravel(), log_z, danger, work, logs
        )
        for b, found in enumerate(one_by_one(scores, [n - 1] * lane, single_root)):
            if found is None:
                assert log_z[b] == -np.inf or not danger[b] < 1e6
            elif log_z[b] > -np.inf and danger[b] < 0.01 / np.finfo(dtype).eps:
                answered += 1
                tolerance = 4 * np.finfo(dtype).eps * (danger[b] + n)
                np.testing.assert_allclose(mu[b], found[0], atol=tolerance)
                assert log_z[b] == pytest.approx(found[1], rel=tolerance, abs=tolerance)
    assert lane * len(cases) / 4 < answered < lane * len(cases)


def test_bad_scores_among_good_ones():
    scores = np.random.default_rng(3).normal(size=(16, 20, 20))
    for bad, dtype in itertools.product((np.nan, np.inf), (np.float64, np.float32)):
        scores[9, 4, 7] = bad
        with pytest.raises(ModelError, match="sentence 9, arc 4 -> 7"):
            tree_marginals(scores.astype(dtype), projective=False)
        short = np.r_[np.full(9, 19), 6, np.full(6, 19)]
        tree_marginals(scores.astype(dtype), short, projective=False)
    scores = np.full((2, 4, 4), -1.5e308)
    scores[1, 0] = 1.5e308
    with pytest.raises((ModelError, ContradictionError), match=r"sentence [01]"):
        tree_marginals(scores, projective=False)


def overflow_in_single_precision():
    """Pivots of 1e-40: their inverses are infinite in float32."""
    arcs = {
        (0, 8): 0, (1, 3): 0, (1, 6): 0, (1, 13): 0, (2, 10): 0, (3, 2): -2, (3, 4): 0,
        (4, 1): -23, (5, 13): -26, (6, 1): 0, (7, 1): -16, (7, 2): 0, (7, 15): 0, (8, 5): -21,
        (10, 5): 0, (10, 11): 0, (11, 15): -19, (13, 4): -20, (14, 7): 0, (15, 14): 0,
    }  # fmt: skip
    scores = np.full((17, 17), -40.0)
    for arc, score in arcs.items():
        scores[arc] = score
    return scores


X = -np.inf
HARD = {
    "overflow in float32": overflow_in_single_precision(),
    "overflow of sums": [
        [0, 0, X, X, X, X, 0], [0, 0, X, X, X, X, X], [0, X, 0, 0, 0, -700, -100],
        [0, -700, X, 0, X, X, X], [0, -800, X, X, 0, X, X], [0, X, X, X, X, 0, X],
        [0, X, 0, X, X, X, 0],
    ],
    "overflow of one inverse": [
        [0, X, -320, X, X], [0, 0, 0, -1220, 0], [0, X, 0, -1620, X], [0, 0, X, 0, X],
        [0, X, X, X, 0],
    ],
    "one word can only be the root's": [[X, 0, -600], [X, X, X], [X, 0, X]],
    "a finite mask": [[0, -1e9, 5.75], [0, 0, -1e9], [0, 4.0, 0]],
    "a larger mask": [[0, -1e30, 5.75], [0, 0, -1e30], [0, 4.0, 0]],
    "a mask and crossing favourites": [
        [0, -1e30, 51.0, 4.0], [0, 0, -38.0, -1e30], [0, 8.0, 0, -1e30], [0, 4.0, -1e30, 0],
    ],
}  # fmt: skip


@roots
@floats
@pytest.mark.parametrize("name", HARD)
def test_hard_ones(single_root, dtype, name):
    """Against trees one by one where there are few words, else against logarithms."""
    scores = np.array(HARD[name], dtype)
    arcs = clean(np.array(scores, float))
    if len(scores) < 8:
        want, log_z = total(arcs, False, single_root)
    else:
        size = len(scores)
        d, work = np.full((size, size), -np.inf), np.empty(kernels.float_scratch(size))
        shift = np.where(np.arange(size) > 0, logsumexp(arcs, axis=0), 0.0)
        ints = np.empty(kernels.int_scratch(size), np.int64)
        log_z = kernels.nonprojective_log(arcs - shift, single_root, d, work, ints)
        want = np.exp(arcs - shift + d - log_z)
        log_z += shift.sum()
    for batch in (1, 2, 16):
        mu, z = tree_marginals(
            np.array([scores] * batch), projective=False, single_root=single_root
        )
        atol = 1e-11 if dtype == np.float64 else 1e-5
        np.testing.assert_allclose(mu, np.array([want] * batch), atol=atol)
        np.testing.assert_allclose(z, log_z, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5, 1e7])
def test_an_offset_of_the_root_costs_nothing(offset):
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(16, 21, 21)).astype(np.float32)
    scores[:, 0] += np.float32(offset)
    mu, _ = tree_marginals(scores, projective=False)
    near = scores.astype(float)
    near[:, 0] -= offset
    np.testing.assert_allclose(mu, tree_marginals(near, projective=False)[0], atol=1e-5)


@floats
def test_what_arrays_may_be(dtype):
    scores = np.random.default_rng(4).normal(size=(9, 6, 6)).astype(dtype)
    want, _ = tree_marginals(scores, projective=False)
    frozen = scores.copy()
    frozen.flags.writeable = False
    for same in (frozen, np.asfortranarray(scores), scores[::-1][::-1]):
        np.testing.assert_array_equal(tree_marginals(same, projective=False)[0], want)
    assert tree_marginals(scores[:0], [])[0].shape == (0, 6, 6)
    with pytest.raises(ModelError, match="N >= 2"):
        tree_marginals(scores[:, :1, :1])
