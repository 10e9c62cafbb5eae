"""Means of classes, and the noise around them, from a noisy picture alone.

In the model p(y | x) ~ exp( coupling * sum [y_i = y_j] - alpha/2 * sum |x_i - m_{y_i}|^2 ), grey or
in C channels, the likelihood of x is raised by expectation-maximisation: with q_i(k) the marginals
under the numbers there are, by belief propagation,

    m_k = sum_i q_i(k) x_i / sum_i q_i(k),     1/alpha = sum_i sum_k q_i(k) |x_i - m_k|^2 / (N C).

Where classes overlap, means that are found pixel by pixel (k-means) lie where the *noise* is split
evenly, so what it begins with matters: k-means of the picture, and of the picture smoothed, whose
noise is a third. Of the two ends the one with the larger likelihood is taken,

    log p(x) = log Z(x) + N C/2 log(alpha / 2 pi) - log Z,

log Z being Bethe's and the last term the same for both. A large picture is judged by tiles. Where a
rare class has been taken for part of another, and a common one halved instead, EM stays: so the two
nearest means become one, the class that varies most is halved, and that is kept if it is likelier.

Pictures are smoother than a coupling of 1 implies, so that marginals follow the noise and alpha
comes out too large. In the end, then, a pixel is judged by its neighbours, as black and white ones
are (:mod:`.noise_estimate`): where all of them have one most probable class, means and variance are
those of what is seen there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.errors import SettingsError
from minfer.graph import FactorGraph, grid_edges
from minfer.images.noise_estimate import sample
from minfer.solvers.base import Marginals
from minfer.solvers.bp import BeliefPropagation

Floats = NDArray[np.float64]

_ROUNDS, _FIRST = 40, 8  # of EM; before the better start is chosen
_MOVES = 3  # classes that may be halved, and others be made one
_STILL = 1e-3  # deviations of the noise by which no mean moves any more
_JUDGED, _FEW = 4, 8  # rounds in which neighbours judge; of fewer pixels the mean stays
_LLOYD = 100  # rounds in which k-means settles
_LEAST = 1e-3  # deviation of the noise, as a share of the picture's range
_SOLVER = BeliefPropagation(tol=1e-2, max_iters=8)


class Classes(NamedTuple):
    """What a class looks like, and one over the variance around it."""

    means: Floats  # (K, C), in order of their sums
    alpha: float


def estimate_classes(x: Floats, k: int, coupling: float, means: Floats | None = None) -> Classes:
    """Means and alpha of a picture (H, W, C); means (K, C) that are given stay."""
    pixels, _ = sample(x)
    if means is None:
        different = len(np.unique(x.reshape(-1, x.shape[2]), axis=0))
        if not 2 <= k <= different:
            raise SettingsError(
                f"denoise: labels must be from 2 to the {different} different values of the "
                f"picture, not {k}"
            )
        smoothed = _smoothed(pixels).reshape(-1, x.shape[2])
        flat = pixels.reshape(-1, x.shape[2])
        starts = [k_means(flat, k), k_means(smoothed, k)]
    else:
        starts = [means]
    runs = [ClassClimb(pixels, start, coupling, means is None) for start in starts]
    if len(runs) > 1:
        for run in runs:
            run.go(_FIRST)
        runs.sort(key=lambda run: -run.likelihood())
    best = runs[0]
    for _ in range(_MOVES if means is None and k > 2 else 0):
        other = ClassClimb(pixels, best.halved(), coupling, True)
        other.go(_FIRST)
        if other.likelihood() <= best.likelihood():
            break
        best = other
    best.go(_ROUNDS)
    best.judged()
    order = np.argsort(best.means.sum(axis=1), kind="stable") if means is None else slice(None)
    return Classes(best.means[order], best.alpha)


class ClassClimb:
    """EM from some means."""

    def __init__(self, x: Floats, means: Floats, coupling: float, moves: bool) -> None:
        self.x, self.means, self.moves = x.reshape(-1, x.shape[2]), means, moves
        self.shape = x.shape[:2]
        self.least = max(_LEAST * float(np.ptp(x)), 1e-12) ** 2
        self.graph = FactorGraph.empty(np.full(len(self.x), len(means)))
        self.graph = self.graph.add_potts(grid_edges(*x.shape[:2]), coupling)
        away = self._away()
        near = float(away.min(axis=1).mean()) / x.shape[2]
        self.alpha = 1.0 / max(near, self.least)
        self.last: Marginals | None = None

    def _away(self) -> Floats:
        """Squares of distances (N, K)."""
        return ((self.x[:, None] - self.means) ** 2).sum(axis=2)

    def go(self, rounds: int) -> None:
        for _ in range(rounds):
            q = self._marginals()
            moved = 0.0
            if self.moves:
                weight = q.sum(axis=0)[:, None]
                new = np.where(weight > 1e-9, q.T @ self.x / np.maximum(weight, 1e-9), self.means)
                moved = float(np.abs(new - self.means).max()) * math.sqrt(self.alpha)
                self.means = new
            before = self.alpha
            self.alpha = 1.0 / max(float((q * self._away()).sum()) / self.x.size, self.least)
            if moved < _STILL and abs(self.alpha / before - 1.0) < _STILL:
                break

    def _marginals(self) -> Floats:
        field = -0.5 * self.alpha * self._away()
        self.last = _SOLVER(self.graph.tilt(field.ravel()), start=self.last)
        return self.last.probs.reshape(len(self.x), len(self.means))

    def halved(self) -> Floats:
        """Means where the two nearest are one, and the class that varies most is two."""
        q, k = self._marginals(), len(self.means)
        weight = np.maximum(q.sum(axis=0), 1e-9)
        apart = ((self.means[:, None] - self.means) ** 2).sum(axis=2)
        a, b = divmod(int(np.argmin(apart + np.where(np.eye(k, dtype=bool), np.inf, 0.0))), k)
        one = (weight[a] * self.means[a] + weight[b] * self.means[b]) / (weight[a] + weight[b])
        scatter = [
            ((q[:, c, None] * (self.x - m)).T @ (self.x - m)) / weight[c]
            for c, m in enumerate(self.means)
        ]
        size = weight * np.array([np.linalg.eigvalsh(s)[-1] - 1.0 / self.alpha for s in scatter])
        size[[a, b]] = -np.inf
        c = int(np.argmax(size))
        values, axes = np.linalg.eigh(scatter[c])
        half = axes[:, -1] * math.sqrt(max(float(values[-1]), self.least))
        means = self.means.copy()
        means[a], means[b], means[c] = one, means[c] - half, means[c] + half
        return means

    def judged(self) -> None:
        """Means and alpha of pixels whose neighbours all have one class."""
        for _ in range(_JUDGED if min(self.shape) > 2 else 0):
            labels = self._marginals().argmax(axis=1).reshape(self.shape)
            up, down = labels[:-2, 1:-1], labels[2:, 1:-1]
            left, right = labels[1:-1, :-2], labels[1:-1, 2:]
            agreed = (up == down) & (left == right) & (up == left)
            said = up[agreed]
            x = self.x.reshape(*self.shape, -1)[1:-1, 1:-1][agreed]
            count = np.bincount(said, minlength=len(self.means))
            if count.max(initial=0) < _FEW:
                return
            if self.moves:
                sums = np.stack([np.bincount(said, c, len(self.means)) for c in x.T], axis=1)
                some = (count >= _FEW)[:, None]
                self.means = np.where(some, sums / np.maximum(count, 1)[:, None], self.means)
            variance = float(((x - self.means[said]) ** 2).mean())
            self.alpha = 1.0 / max(variance, self.least)

    def likelihood(self) -> float:
        self._marginals()
        assert self.last is not None
        return float(self.last.log_z) + 0.5 * self.x.size * math.log(self.alpha)


def k_means(x: Floats, k: int) -> Floats:
    """Means (K, C) of classes of x (N, C), started from quantiles along its principal axis."""
    centred = x - x.mean(axis=0)
    axis = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    order = np.argsort(centred @ axis, kind="stable")
    places = ((np.arange(k) + 0.5) / k * len(x)).astype(int)
    means = x[order[places]]
    if len(np.unique(means, axis=0)) < k:  # some values are very common: spread them evenly
        different = np.unique(x, axis=0)
        along = different[np.argsort((different - x.mean(axis=0)) @ axis, kind="stable")]
        means = along[np.linspace(0, len(along) - 1, k).round().astype(int)]
    for _ in range(_LLOYD):
        nearest = ((x[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
        count = np.bincount(nearest, minlength=k)[:, None]
        sums = np.stack([np.bincount(nearest, c, k) for c in x.T], axis=1)
        new = np.where(count > 0, sums / np.maximum(count, 1), means)
        if np.array_equal(new, means):
            break
        means = new
    return means


def _smoothed(x: Floats) -> Floats:
    """Means of 3 x 3 pixels."""
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)), mode="edge")
    down = padded[:-2] + padded[1:-1] + padded[2:]
    return (down[:, :-2] + down[:, 1:-1] + down[:, 2:]) / 9.0
