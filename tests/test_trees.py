"""Tree factors, decoders and the grandparent program against enumeration of all trees."""

from __future__ import annotations

import functools
import itertools
import pickle

import numpy as np
import pytest

from draws import draws, few, thorough
from minfer import BeliefPropagation, ContradictionError, FactorGraph, ModelError
from minfer.factors import GlobalFactor
from minfer.kernels.trees import trees as kernels
from minfer.parsing.decode import chu_liu_edmonds, eisner
from minfer.parsing.exact import _in_logs, exact_grandparent
from minfer.parsing.trees import (
    NonProjectiveTree,
    ProjectiveTree,
    all_arcs,
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


# ------------------------------------------------------------------ marginals


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
def test_shifting_a_word_changes_nothing(projective, single_root):
    rng = np.random.default_rng(4)
    scores, shift = draw(rng, 12), rng.normal(size=13) * 500
    mu, log_z = tree_marginals(scores, projective=projective, single_root=single_root)
    moved, other = tree_marginals(scores + shift, projective=projective, single_root=single_root)
    np.testing.assert_allclose(moved, mu, atol=1e-10)
    assert other == pytest.approx(log_z + shift[1:].sum(), abs=1e-8)


def test_bad_scores():
    for scores, word in [
        (np.zeros((2, 3)), "shape"),
        (np.zeros((1, 1)), "shape"),
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
        (lambda: tree_marginals(none, [0, 3]), ModelError, "0 words"),
        (lambda: tree_marginals(one[0]), ModelError, r"\(B, N, N\)"),
        (lambda: tree_marginals(one, [2]), ModelError, "lengths are for a batch"),
        (lambda: tree_marginals(three), ModelError, "sentence 1, arc 0 -> 2"),
        (lambda: tree_marginals(none), ContradictionError, "sentence 1: no projective tree"),
    )


# ------------------------------------------------------------------ the factor


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
        ([1], [1], 1, "1 -> 1"),
        ([0, 3], [1, 1], 2, "3 -> 1"),
        ([0, 0], [1, 1], 2, "twice"),
        ([0.5], [1], 2, "integers"),
        ([0, 1], [1], 2, "shape"),
        ([], [], 0, "word"),
    ]:
        with pytest.raises(ModelError, match=word):
            ProjectiveTree(bad_heads, bad_modifiers, n)


# ------------------------------------------------------------------ decoders


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


# ------------------------------------------------------------------ grandparents


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


def test_batches_are_single_sentences():
    rng = np.random.default_rng(4)
    lengths = np.array([6, 1, 4])
    scores = rng.normal(size=(3, 7, 7))
    scores[1, 2:] = np.nan  # beyond the sentence, not read
    scores[0, 3, 2] = -np.inf
    for projective in (True, False):
        for single_root in (True, False):
            kind = {"projective": projective, "single_root": single_root}
            mu, log_z = tree_marginals(scores, lengths, **kind)
            for b, n in enumerate(lengths):
                want, want_z = tree_marginals(scores[b, : n + 1, : n + 1], **kind)
                np.testing.assert_allclose(mu[b, : n + 1, : n + 1], want, atol=1e-14)
                assert log_z[b] == pytest.approx(want_z, abs=1e-13)
            assert mu.sum() == pytest.approx(lengths.sum())
    whole, _ = tree_marginals(scores[2:])
    np.testing.assert_array_equal(whole[0], tree_marginals(scores[2])[0])
    assert tree_marginals(np.zeros((0, 3, 3)))[0].shape == (0, 3, 3)
