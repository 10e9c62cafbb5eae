"""Compiled kernels and plain Python on drawn models; all of them, and wheels: three_ways.py."""

from __future__ import annotations

import pytest

from draws import draws
from minfer.kernels.compiling import plain as _plain
from three_ways import answered, answers, differences

pytestmark = [
    pytest.mark.drawn,
    pytest.mark.skipif(_plain.OFF, reason="compares compiled code with plain Python"),
]


def test_compiled_kernels_say_what_plain_python_says():
    for seed, plain in answered(range(draws(40)), plain=True).items():
        assert not list(differences(answers(seed), plain)), seed
