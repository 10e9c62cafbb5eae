"""Diagnosis networks whose tables no clique tree holds, against Quickscore."""

from __future__ import annotations

import numpy as np
import pytest

from minfer import Exact
from oracle.quickscore import Diagnosis, Score, drawn, quickscore, without_signs


def check(model: Diagnosis, truth: Score, method: str) -> None:
    answer = Exact(method=method)(model.graph())
    assert answer.log_z == pytest.approx(truth.log_p, abs=1e-9)
    found = answer.probs[1 : 2 * len(model.priors) : 2]
    known = ~np.isnan(truth.posterior)
    assert known.sum() >= 6
    np.testing.assert_allclose(found[known], truth.posterior[known], rtol=1e-9)


def test_both_ways_to_add_it_up_agree():
    for seed in range(20):
        model = drawn(seed, 30, 60, 6, 20, 6)
        signs, none = quickscore(model), without_signs(model)
        assert signs.slip < 1e-9
        assert signs.log_p == pytest.approx(none.log_p, abs=1e-9)
        np.testing.assert_allclose(signs.posterior, none.posterior, rtol=1e-8)


@pytest.mark.parametrize("method", ["clique-tree", "circuit"])
def test_small_networks(method):
    for seed in range(4):
        model = drawn(seed, 6, 9, 4, 4, 3)
        check(model, quickscore(model), method)


@pytest.mark.parametrize("method", ["auto", "circuit"])
def test_networks_of_sixty_diseases(method):
    model = drawn(0, 60, 150, 8, 60, 8)
    check(model, without_signs(model, 16), method)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "circuit"])
def test_six_hundred_findings_of_two_hundred_diseases(method):
    model = drawn(0, 200, 600, 10, 200, 20)
    check(model, without_signs(model, 24), method)
