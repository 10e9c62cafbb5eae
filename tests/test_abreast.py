"""Eight sentences at once: every number as one by one, whatever shares the lanes."""

import itertools

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import test_trees
from draws import draws, few
from minfer.errors import ContradictionError, ModelError
from minfer.kernels.arithmetic import lanes
from minfer.kernels.trees import tree_lanes as abreast
from minfer.kernels.trees import trees
from minfer.parsing import tree_marginals
from oracle.truth import logsumexp

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
def test_the_inverse_is_right_or_says_so(single_root, dtype):
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
        abreast.inverse_abreast(
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
    clean = test_trees.clean(np.array(scores, float))
    if len(scores) < 8:
        want, log_z = test_trees.total(clean, False, single_root)
    else:
        size = len(scores)
        d, work = np.full((size, size), -np.inf), np.empty(trees.float_scratch(size))
        shift = np.where(np.arange(size) > 0, logsumexp(clean, axis=0), 0.0)
        ints = np.empty(trees.int_scratch(size), np.int64)
        log_z = trees.nonprojective_log(clean - shift, single_root, d, work, ints)
        want = np.exp(clean - shift + d - log_z)
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
