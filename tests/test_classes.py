"""Pictures of a few classes: means and noise are found, in grey and in colour."""

from __future__ import annotations

import numpy as np
import pytest

from minfer import BeliefPropagation, FactorGraph, ModelError, SettingsError, denoise
from minfer.graph import grid_edges
from minfer.images.class_estimate import estimate_classes, k_means
from refused import refused

GREYS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
COLOURS = np.array(
    [[0.8, 0.2, 0.2], [0.2, 0.6, 0.2], [0.3, 0.3, 0.9], [0.6, 0.4, 0.1], [0.4, 0.5, 0.5]]
)


def regions(seed, side=80, n=24):
    """Five classes in Voronoi cells (H, W)."""
    corner = np.random.default_rng(seed).random((n, 2)) * side
    row, column = np.mgrid[:side, :side]
    away = (row[..., None] - corner[:, 0]) ** 2 + (column[..., None] - corner[:, 1]) ** 2
    return away.argmin(axis=2) % 5


def told_all(x, means, sigma):
    """Labels where means and noise are known: the model of the docs, written out here."""
    height, width = x.shape[:2]
    away = ((x.reshape(height * width, 1, -1) - means.reshape(len(means), -1)) ** 2).sum(axis=2)
    g = FactorGraph.empty([len(means)] * (height * width)).tilt(-away.ravel() / (2 * sigma**2))
    g = g.add_potts(grid_edges(height, width), 1.0)
    answer = BeliefPropagation(tol=1e-4)(g)
    return answer.probs.reshape(height, width, -1).argmax(axis=2)


@pytest.mark.parametrize("means", [GREYS, COLOURS], ids=["grey", "colour"])
@pytest.mark.parametrize("seed", range(2))
def test_means_and_noise_are_found(means, seed):
    truth, rng = regions(seed), np.random.default_rng(seed)
    x = means[truth] + 0.15 * rng.normal(size=means[truth].shape)
    found = denoise(x, labels=5)
    place = np.array(
        [np.argmin(((means - m) ** 2).reshape(5, -1).sum(axis=1)) for m in found.means]
    )
    assert sorted(place) == [0, 1, 2, 3, 4]
    assert np.abs(found.means - means[place]).max() < 0.03
    assert 0.12 < found.alpha**-0.5 < 0.16
    right = (place[found.labels] == truth).mean()
    assert right > (told_all(x, means, 0.15) == truth).mean() - 0.02
    assert found.clean.shape == x.shape
    assert found.expected.shape == x.shape
    assert f"noise {found.alpha**-0.5:.3g}" in found.summary()["picture"]


@pytest.mark.slow
def test_a_rare_class_is_not_taken_for_part_of_another():
    """Discs, of which one class covers 7 %: EM from k-means halves a common class instead."""
    rng = np.random.default_rng(2)
    row, column = np.mgrid[:128, :128]
    truth = np.zeros((128, 128), dtype=int)
    for k in range(25):
        (y, x), r = rng.integers(0, 128, 2), rng.integers(8, 30)
        truth[(row - y) ** 2 + (column - x) ** 2 < r * r] = k % 5
    assert 0.05 < (truth == 3).mean() < 0.08
    x = GREYS[truth] + 0.15 * np.random.default_rng(52).normal(size=truth.shape)
    found = estimate_classes(x[..., None], 5, 1.0)
    assert np.abs(found.means.ravel() - GREYS).max() < 0.02
    assert 0.14 < found.alpha**-0.5 < 0.16


def test_what_is_given_stays():
    truth = regions(1, 40)
    x = GREYS[truth] + 0.1 * np.random.default_rng(1).normal(size=truth.shape)
    found = denoise(x, means=GREYS)
    assert found.means.tolist() == GREYS.tolist()
    assert 0.08 < found.alpha**-0.5 < 0.11
    assert denoise(x, means=GREYS, alpha=7.0).alpha == 7.0
    colour = COLOURS[truth]
    assert (denoise(colour, means=COLOURS).labels == truth).all()  # without noise
    np.testing.assert_array_equal(denoise(colour, labels=5).clean.round(6), colour)


def test_what_is_refused():
    colour = COLOURS[regions(0, 12)]
    refused(ModelError, "3 channels", denoise, colour)
    refused(ModelError, "3 channels", denoise, colour, labels=4, smooth="linear")
    refused(SettingsError, r"shape \(K, 3\)", denoise, colour, means=[0.1, 0.9])
    refused(SettingsError, "from 2 to the 5 different", denoise, colour, labels=6)
    refused(SettingsError, "two class means are equal", denoise, colour, means=COLOURS[[0, 0]])


def test_k_means_is_a_fixed_point():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)) + 5 * rng.integers(0, 3, size=(300, 1))
    means = k_means(x, 3)
    nearest = ((x[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    for k in range(3):
        np.testing.assert_allclose(x[nearest == k].mean(axis=0), means[k])


def test_files_in_colour(tmp_path):
    pytest.importorskip("PIL.Image")
    from minfer.pictures import read_picture, write_picture
    from test_cli import ok

    truth = regions(3, 48)
    noisy = np.clip(COLOURS[truth] + 0.1 * np.random.default_rng(3).normal(size=(48, 48, 3)), 0, 1)
    write_picture(tmp_path / "noisy.png", noisy)
    assert read_picture(tmp_path / "noisy.png").values.shape == (48, 48)
    loaded = read_picture(tmp_path / "noisy.png", colour=True)
    assert loaded.notes == ()
    np.testing.assert_allclose(loaded.values, noisy, atol=0.003)
    done = ok("denoise", tmp_path / "noisy.png", "-o", tmp_path / "clean.png", "--labels", 5,
              "--expected", tmp_path / "e.png", "--marginals", tmp_path / "m.png")  # fmt: skip
    assert "luminance" not in done.stderr
    clean = read_picture(tmp_path / "clean.png", colour=True).values
    assert (np.abs(clean - COLOURS[truth]).max(axis=2) < 0.08).mean() > 0.95
    grey = np.repeat(noisy[..., :1], 3, axis=2)
    write_picture(tmp_path / "grey.png", grey)
    assert read_picture(tmp_path / "grey.png", colour=True).values.ndim == 2
