"""Depth from two pictures: a model of many ordered labels, and a scene that is drawn here.

A pixel (r, c) of the left picture at disparity d is seen at (r, c - d) in the right one: what is
near moves more. With squared differences cut off at T, for what only one of the two sees, and
smooth surfaces that may end anywhere (Scharstein & Szeliski 2002 survey such models),

    p(d | left, right)  proportional to
        exp( - sum_i min( (left(i) - right(i - d_i))^2 / (2 sigma^2), T )
             - coupling * sum_(i,j) min( |d_i - d_j|, truncation ) ),

(i, j) over pixels next to each other: pairs that are truncated linear, whose messages take time in
the number of labels, not in its square.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_number, check_whole
from minfer.errors import ModelError
from minfer.graph import FactorGraph, grid_edges
from minfer.images.denoise_result import entropies
from minfer.images.denoising import grey_values
from minfer.solvers.base import Marginals, Solver
from minfer.solvers.bp import BeliefPropagation

#: Weight of a step of one disparity between neighbours, and the steps after which more are free.
COUPLING, TRUNCATION = 2.0, 2.0
#: What a pixel's mismatch costs at most, in nats.
MOST = 6.0
SIGMA = 0.06
TOL = 1e-4


class Scene(NamedTuple):
    """Two views and the truth, each (H, W): grey values of 0 to 1, whole disparities."""

    left: NDArray[np.float64]
    right: NDArray[np.float64]
    disparity: NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Depth:
    """Disparities of the left picture's pixels; variable ``r * W + c`` of the answer is a pixel."""

    answer: Marginals
    shape: tuple[int, int]

    @property
    def marginals(self) -> NDArray[np.float64]:
        """p(disparity = d), (H, W, D)."""
        return self.answer.probs.reshape(*self.shape, -1)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The most probable disparity, (H, W)."""
        return self.marginals.argmax(axis=2)

    @cached_property
    def expected(self) -> NDArray[np.float64]:
        """The expected disparity, (H, W): finer than whole steps on slanted surfaces."""
        return self.marginals @ np.arange(self.marginals.shape[2])

    @cached_property
    def entropy(self) -> NDArray[np.float64]:
        """How open each pixel is, in nats, (H, W): 0 where it is certain."""
        return entropies(self.marginals)

    def __repr__(self) -> str:
        height, width = self.shape
        return f"Depth({height}x{width}, {self.marginals.shape[2]} disparities; {self.answer!r})"


def depth(
    left: ArrayLike,
    right: ArrayLike,
    labels: int,
    solver: Solver | None = None,
    *,
    coupling: float = COUPLING,
    truncation: float = TRUNCATION,
    sigma: float = SIGMA,
) -> Depth:
    """Disparities 0 to ``labels - 1`` of the left picture's pixels, from both pictures.

    Parameters
    ----------
    left, right : numbers (H, W)
        Grey pictures from two eyes, a row of one at the height of the same row of the other.
    labels : int
        How many disparities there are; one more than the largest in pixels.
    solver : any solver, optional
        ``BeliefPropagation(tol=1e-4)`` by default.
    coupling, truncation : float
        What a step of one disparity between neighbours costs, and after how many steps the cost
        grows no more.
    sigma : float
        Standard deviation of the difference between two views of the same point.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer.stereo import depth, scene
    >>> seen = scene(40, 60, 8)
    >>> found = depth(seen.left, seen.right, 8)
    >>> bool((abs(found.labels - seen.disparity) <= 1).mean() > 0.9)
    True
    """
    graph = stereo_model(left, right, labels, coupling, truncation, sigma)
    solver = BeliefPropagation(tol=TOL) if solver is None else solver
    height, width = np.shape(left)
    return Depth(solver(graph), (height, width))


def stereo_model(
    left: ArrayLike,
    right: ArrayLike,
    labels: int,
    coupling: float = COUPLING,
    truncation: float = TRUNCATION,
    sigma: float = SIGMA,
) -> FactorGraph:
    """The model of two pictures; arguments as for :func:`depth`."""
    check_whole("labels", labels, 2)
    check_number("coupling", coupling, 0.0)
    check_number("truncation", truncation, 0.0)
    check_number("sigma", sigma, 0.0)
    a, b = grey_values(left, "depth"), grey_values(right, "depth")
    if a.shape != b.shape:
        raise ModelError(f"the pictures have different sizes, {a.shape} and {b.shape}")
    if sigma == 0.0:
        raise ModelError("sigma is the deviation of two views of one point: larger than 0")
    height, width = a.shape
    if labels > width:
        raise ModelError(f"labels: {labels} disparities in a picture of width {width}")
    costs = np.full((height, width, labels), MOST)
    for d in range(labels):
        apart = a[:, d:] - b[:, : width - d]
        costs[:, d:, d] = np.minimum(apart**2 / (2 * sigma**2), MOST)
    graph = FactorGraph.empty(np.full(a.size, labels))
    graph = graph.add_tables(np.arange(a.size)[:, None], -costs.reshape(-1, labels))
    return graph.add_truncated_linear(grid_edges(height, width), coupling, truncation)


def scene(
    height: int = 96, width: int = 128, labels: int = 24, noise: float = 0.03, rng: int = 2010
) -> Scene:
    """Slanted surfaces with a pattern on them, one before the other, seen from two places.

    Disparities are 0 to ``labels - 1``; ``noise`` is a standard deviation, and ``rng`` a seed.
    """
    check_whole("height", height, 8)
    check_whole("width", width, 8)
    check_whole("labels", labels, 2)
    check_number("noise", noise, 0.0)
    draw = np.random.default_rng(rng)
    y, x = (np.mgrid[0:height, 0:width] + 0.5) / [[[height]], [[width]]]
    far = labels - 1
    true = 0.35 * far * y + 0.05 * far  # the ground comes nearer
    wall = (x > 0.08) & (x < 0.42) & (y > 0.15) & (y < 0.8)
    ball = (x - 0.7) ** 2 + ((y - 0.4) * height / width) ** 2 < 0.02
    board = np.abs(x - 0.66 + 0.2 * (y - 0.5)) + np.abs(y - 0.62) < 0.28
    true = np.where(wall, far * (0.35 + 0.5 * x), true)
    true = np.where(board, far * (0.75 - 0.35 * (x - 0.5)), true)
    true = np.where(ball, far * 0.95, true)
    disparity = np.clip(np.rint(true), 0, far).astype(np.int64)
    left = _pattern(height, width, draw)
    right = _pattern(height, width, draw)  # what only the right eye sees
    rows, columns = np.mgrid[0:height, 0:width]
    for d in range(labels):  # the nearest is painted last
        r, c = rows[disparity == d], columns[disparity == d]
        inside = c >= d
        right[r[inside], c[inside] - d] = left[r[inside], c[inside]]
    left, right = (
        np.clip(p + noise * draw.standard_normal(p.shape), 0.0, 1.0) for p in (left, right)
    )
    return Scene(left, right, disparity)


def _pattern(height: int, width: int, draw: np.random.Generator) -> NDArray[np.float64]:
    """Grey values (H, W) between 0 and 1, coarse and fine spots over each other."""
    out = np.zeros((height, width))
    for size, weight in ((1, 0.45), (3, 0.35), (9, 0.2)):
        coarse = draw.random((-(-height // size), -(-width // size)))
        out += weight * np.kron(coarse, np.ones((size, size)))[:height, :width]
    return out
