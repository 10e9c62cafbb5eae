"""Depth from two views of a scene that is drawn here."""

from __future__ import annotations

import numpy as np
import pytest

from minfer import BeliefPropagation, ModelError, SettingsError
from minfer.stereo import MOST, depth, scene, stereo_model
from refused import all_refused


def test_views_agree_where_both_see_a_point():
    seen = scene(40, 60, 8, noise=0.0)
    assert seen.left.shape == seen.right.shape == seen.disparity.shape == (40, 60)
    assert set(np.unique(seen.disparity)) <= set(range(8))
    rows, columns = np.mgrid[0:40, 0:60]
    there = columns - seen.disparity
    inside = there >= 0
    same = seen.left[inside] == seen.right[rows[inside], there[inside]]
    assert same.mean() > 0.85  # the others are hidden by what is nearer
    again = scene(40, 60, 8, noise=0.0)
    np.testing.assert_array_equal(seen.right, again.right)


def test_depth_is_found():
    seen = scene(48, 64, 12)
    found = depth(seen.left, seen.right, 12)
    assert found.answer.converged
    assert found.marginals.shape == (48, 64, 12)
    right = np.abs(found.labels - seen.disparity) <= 1
    assert right.mean() > 0.85
    open_, settled = found.entropy[~right].mean(), found.entropy[right].mean()
    assert open_ > settled  # where it is wrong it is less sure
    np.testing.assert_allclose(found.expected, found.marginals @ np.arange(12))
    assert "12 disparities" in repr(found)


def test_the_model_as_its_docstring_has_it():
    rng = np.random.default_rng(0)
    left, right = rng.random((2, 3, 5))
    graph = stereo_model(left, right, 4, coupling=0.5, truncation=2.0, sigma=0.3)
    for r in range(3):
        for c in range(5):
            for d in range(4):
                cost = (left[r, c] - right[r, c - d]) ** 2 / 0.18 if c >= d else np.inf
                assert graph.log_table(r * 5 + c)[d] == pytest.approx(-min(cost, MOST))
    step = np.abs(np.arange(4)[:, None] - np.arange(4))
    np.testing.assert_allclose(graph.log_table(15), -0.5 * np.minimum(step, 2))
    by_tables = BeliefPropagation(tol=1e-10)(graph).probs
    np.testing.assert_allclose(
        depth(left, right, 4, BeliefPropagation(tol=1e-10), coupling=0.5, sigma=0.3).answer.probs,
        by_tables,
        atol=1e-12,
    )


def test_what_is_refused():
    a = np.zeros((4, 6))
    all_refused(
        (lambda: depth(a, a[:3], 3), ModelError, "different sizes"),
        (lambda: depth(a, a, 7), ModelError, "width 6"),
        (lambda: depth(a, a, 3, sigma=0.0), ModelError, "sigma"),
        (lambda: depth(a, a, 1), SettingsError, "labels"),
        (lambda: scene(noise=-1.0), SettingsError, "noise"),
    )
