"""Kernels as plain Python: NUMBA_DISABLE_JIT=1 pytest tests/test_plain.py

numpy checks every index there, so a kernel that reads or writes past an array fails instead of
returning whatever lies behind it; :mod:`plainly` adds that none may be negative. All that calls
for recorded answers come from is run, and :mod:`plain_checks`, which compare with enumeration.
"""

from __future__ import annotations

import numpy as np
import pytest

import plainly
from minfer.basics.parallel import cores, ordered_map
from minfer.kernels.arithmetic import lanes
from minfer.kernels.compiling import jit as _jit
from minfer.kernels.compiling import plain as _plain

pytestmark = [
    pytest.mark.skipif(not _plain.OFF, reason="for NUMBA_DISABLE_JIT=1"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # whole numbers wrap around on purpose
]

#: The share of all blocks of statements (bodies of functions, loops and branches) that must be
#: reached. What is not are mostly rare turns: numbers out of range, arrays that must grow.
LEAST_REACHED = 0.9


@pytest.fixture(scope="module")
def done() -> plainly.Done:
    """Every unit, in as many processes as there are cores."""
    found = plainly.Done()
    work = plainly.work()
    for answer in ordered_map(plainly.run, range(len(work)), cores(), setup=plainly.setup):
        found.add(*answer)
    return found


def test_every_index_is_inside_its_array(done):
    assert not done.wrong, "\n".join(done.wrong)
    assert len(done.seconds) == len(plainly.work()) > 30


def test_every_kernel_is_entered(done):
    assert len(done.kernels) == len(_jit.kernels())
    assert sorted(done.kernels - done.reached) == []


def test_most_blocks_are_reached(done):
    missed = sorted(done.blocks - done.reached)
    assert len(missed) < (1.0 - LEAST_REACHED) * len(done.blocks), " ".join(missed)


@pytest.mark.parametrize(("dtype", "eps", "low"), [("f8", 1e-15, -700.0), ("f4", 5e-7, -25.0)])
def test_exp_and_log_of_lanes(dtype, eps, low):
    x = np.linspace(low, 1.0, 64).astype(dtype)
    for k in range(0, 64, lanes.lanes_of(x)):
        found = lanes.exp(lanes.load(x, k))
        np.testing.assert_allclose(found, np.exp(x[k : k + len(found)]), rtol=eps)
        if dtype == "f8":
            np.testing.assert_allclose(lanes.log(found), x[k : k + 8], rtol=1e-15, atol=1e-15)
    assert not np.any(lanes.exp(lanes.splat(x, -1e4)))


def _first(x, i):
    return x[i]


def _part(x, i):
    return x[i:].sum()


def _last(x, i):
    return x[-1] + x[0, i] if x.ndim == 2 else x[-1]


def test_a_negative_index_is_an_error():
    for function in (_first, _part):
        plainly.watched(function)
        assert function(np.arange(3.0), 2) == 2.0
        with pytest.raises(IndexError, match="-1"):
            function(np.arange(3.0), -1)
    plainly.watched(_last)
    assert _last(np.arange(3.0), -1) == 2.0  # written so
    with pytest.raises(IndexError, match="-2"):
        _last(np.ones((2, 2)), -2)
