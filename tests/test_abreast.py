"""Eight sentences at once: every number as one by one, whatever shares the lanes."""

import itertools

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.errors import ContradictionError, ModelError
from minfer.kernels import abreast, lanes
from minfer.parsing import batch_marginals, nonprojective_marginals

roots = pytest.mark.parametrize("single_root", [True, False])


@numba.njit
def each(x, y, out):
    a, b = lanes.load(x, 0), lanes.load(y, 0)
    found = (
        a + b, a - 2.0, 2.0 * a, a / b, lanes.larger(a, b), lanes.smaller(a, b), lanes.bounded(a),
        lanes.choose(a, b, lanes.splat(1.0), lanes.splat(0.0)),
    )  # fmt: skip
    lanes.store(out, 0, found[0])
    lanes.store(out, 8, found[1])
    lanes.store(out, 16, found[2])
    lanes.store(out, 24, found[3])
    lanes.store(out, 32, found[4])
    lanes.store(out, 40, found[5])
    lanes.store(out, 48, found[6])
    lanes.store(out, 56, found[7])


@numba.njit
def turned(x, out):
    rows = (
        lanes.load(x, 0), lanes.load(x, 8), lanes.load(x, 16), lanes.load(x, 24),
        lanes.load(x, 32), lanes.load(x, 40), lanes.load(x, 48), lanes.load(x, 56),
    )  # fmt: skip
    c = lanes.transpose(rows)
    lanes.store(out, 0, c[0])
    lanes.store(out, 8, c[1])
    lanes.store(out, 16, c[2])
    lanes.store(out, 24, c[3])
    lanes.store(out, 32, c[4])
    lanes.store(out, 40, c[5])
    lanes.store(out, 48, c[6])
    lanes.store(out, 56, c[7])


@numba.njit
def exponentials(x):
    for i in range(0, x.size, 8):
        lanes.store(x, i, lanes.exp(lanes.load(x, i)))


def test_lanes():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 8))
    out = np.empty(64)
    each(x, y, out)
    want = [x + y, x - 2, 2 * x, x / y, np.maximum(x, y), np.minimum(x, y), x.clip(0, 1), x > y]
    np.testing.assert_array_equal(out.reshape(8, 8), want)
    turned(np.arange(64.0), out)
    np.testing.assert_array_equal(out.reshape(8, 8), np.arange(64).reshape(8, 8).T)


def test_exponentials():
    x = -np.r_[0.0, 1e-300, np.random.default_rng(1).random(4000) * 700, np.linspace(0, 4, 1998)]
    y = x.copy()
    exponentials(y)
    np.testing.assert_allclose(y, np.exp(x), rtol=8e-16)
    ends = np.array([-np.inf, -1e300, -709.0, -708.0, np.nan, 0.0, 0.5, -0.0])
    exponentials(ends)
    np.testing.assert_allclose(ends, [0, 0, 0, np.exp(-708), np.nan, 1, np.exp(0.5), 1], rtol=8e-16)


def one_by_one(scores, lengths, single_root):
    """What a sentence at a time gives; None for a sentence without a tree."""
    for x, n in zip(scores, lengths, strict=True):
        try:
            yield nonprojective_marginals(x[: n + 1, : n + 1], single_root)
        except ContradictionError:
            yield None


@roots
@pytest.mark.parametrize("spread", [0.0, 1.0, 6.0, 20.0, 300.0])
@pytest.mark.parametrize(("batch", "n"), [(8, 25), (8, 7), (19, 7), (3, 1), (24, 12), (10, 60)])
def test_as_one_by_one(single_root, spread, batch, n):
    rng = np.random.default_rng(batch)
    scores = rng.normal(0.0, spread, (batch, n + 1, n + 1))
    scores[:, :, 0] = np.nan  # never read
    scores[:, range(n + 1), range(n + 1)] = np.inf
    mu, log_z = batch_marginals(scores, projective=False, single_root=single_root)
    for b, (want, z) in enumerate(one_by_one(scores, [n] * batch, single_root)):
        np.testing.assert_allclose(mu[b], want, atol=1e-11)
        assert log_z[b] == pytest.approx(z, rel=1e-12, abs=1e-11)


@roots
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=30),
    spread=st.sampled_from([0.0, 1.0, 10.0, 100.0]),
    holes=st.sampled_from([0.0, 0.3, 0.8]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60, deadline=None)
def test_any_company(single_root, lengths, spread, holes, seed):
    """Sentences of all lengths, some of them without a tree."""
    rng = np.random.default_rng(seed)
    size = max(lengths) + 1
    scores = rng.normal(0.0, spread, (len(lengths), size, size))
    scores[rng.random(scores.shape) < holes] = -np.inf
    single = list(one_by_one(scores, lengths, single_root))
    good = [b for b, found in enumerate(single) if found is not None]
    if len(good) < len(lengths):
        first = next(b for b, found in enumerate(single) if found is None)
        with pytest.raises(ContradictionError, match=f"sentence {first}: no tree"):
            batch_marginals(scores, lengths, projective=False, single_root=single_root)
    if good:
        chosen = [lengths[b] for b in good]
        mu, log_z = batch_marginals(scores[good], chosen, False, single_root)
        for i, b in enumerate(good):
            n = lengths[b] + 1
            np.testing.assert_allclose(mu[i, :n, :n], single[b][0], atol=1e-11)
            assert log_z[i] == pytest.approx(single[b][1], rel=1e-12, abs=1e-11)
            assert mu[i, n:].sum() == mu[i, :, n:].sum() == 0.0


@roots
def test_both_ways_are_right_or_say_so(single_root):
    """The inverse within its danger, the sums always, straight from the kernels."""
    rng = np.random.default_rng(7)
    answered = 0
    draws = list(itertools.product((8, 9, 13, 26, 41), (0.0, 1.0, 8.0, 40.0), (0.0, 0.7)))
    for n, spread, holes in draws:
        scores = rng.normal(0.0, spread, (8, n, n))
        scores[rng.random(scores.shape) < holes] = -np.inf
        start, swap = np.arange(8) * n * n, np.empty(8, np.int64)
        work, frame = np.full(20 * 8 * n * n, np.nan), np.empty((abreast.MAX_HALVINGS, 3), np.int64)
        mu, out = np.full((2, 8, n, n), np.nan), np.full((2, 3, 8), np.nan)
        abreast.inverse_abreast(
            single_root, scores.ravel(), start, n, swap, mu[0].ravel(), out[0].ravel(), work
        )
        abreast.sums_abreast(
            single_root, scores.ravel(), start, n, swap, mu[1].ravel(), out[1].ravel(), work, frame
        )
        for lane, found in enumerate(one_by_one(scores, [n - 1] * 8, single_root)):
            (z, scale, danger), (sums, sums_scale, _) = out[:, :, lane]
            if found is None:
                assert not z > 1e-280
                assert not sums > 1e-40  # two children of the root weigh 1e-60
                continue
            if z > 1e-280 and danger < 1e4:
                answered += 1
                np.testing.assert_allclose(mu[0, lane], found[0], atol=1e-11)
                assert np.log(z) + scale == pytest.approx(found[1], rel=1e-12, abs=1e-11)
            if sums > 1e-40:
                np.testing.assert_allclose(mu[1, lane], found[0], atol=1e-11)
                assert np.log(sums) + sums_scale == pytest.approx(found[1], rel=1e-12, abs=1e-11)
    assert 2 * len(draws) < answered < 8 * len(draws)


def test_bad_scores_among_good_ones():
    scores = np.random.default_rng(3).normal(size=(16, 10, 10))
    for bad in (np.nan, np.inf):
        scores[9, 4, 7] = bad
        with pytest.raises(ModelError, match="sentence 9, arc 4 -> 7"):
            batch_marginals(scores, projective=False)
        batch_marginals(scores, np.r_[np.full(9, 9), 6, np.full(6, 9)], projective=False)
