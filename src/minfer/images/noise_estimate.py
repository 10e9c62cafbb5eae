"""What a noisy black-and-white picture tells of its own noise: alpha and level without the truth.

In the model p(y | x) ~ exp( coupling * sum [y_i = y_j] + alpha * sum (x_i - level) y_i ) the
log-odds of a pixel being white are alpha (x_i - level), from what is seen there, plus c_i, from its
neighbours; belief propagation gives both. Noise that is drawn for each pixel alone leaves x_i and
c_i independent given the true y_i, so the neighbours can judge the pixel:

* Where they are sure (|c_i| is large), x_i is a draw from the noise on a known pixel. These draws
  give the means m0, m1 of black and white as they are seen, and distribution functions F0, F1.
* The pixel is called white if x_i > t_i = level - c_i / alpha. That is wrong with probability
  F1(t_i) if it is white and 1 - F0(t_i) if it is black, and v_i = (x_i - m0) / (m1 - m0) has
  expectation y_i. So the mean of v_i F1(t_i) + (1 - v_i) (1 - F0(t_i)) estimates the share of wrong
  pixels (of flipped pixels, the loss estimate of Weissman et al. 2005).

Alpha and level are those with the least estimate: half way between the two shades would not do
with little ink on a page (docs/reference/denoising.md has the numbers). A shade without any inside,
such as strokes one pixel wide, has no pixels whose neighbours can be sure; its noise is then taken
to be the mirror image of the other's, and so it is for flipped pixels of the rarer shade if the two
are flipped about as often.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.graph import FactorGraph
from minfer.solvers.base import Marginals
from minfer.solvers.bp import BeliefPropagation

#: Alpha, times the distance of the two shades, where the picture does not tell a better one.
STRENGTH = 5.0

_STRENGTHS = tuple(
    2.0 ** (k / 2) for k in (2, 3, 1, 4, 0, 5, 6, 7, 8)
)  # 1 to 16; the first by rank
_STARTS = tuple(k / 8 for k in range(1, 8))  # of the way from the darkest to the lightest pixels
_START_STRENGTH = 3.0
_FINER = tuple(2.0 ** (k / 4) for k in (0, 1, -1, 2))  # times the best of these
_STEPS = (0.0, 0.05, -0.05, 0.1, -0.1)  # of the distance of the shades, from half way between them
_WIDE_STEPS = (*_STEPS, 0.15, -0.15, 0.2, -0.2, 0.3, -0.3)  # where alpha is given
_SURE = 2.8  # log-odds from the neighbours, for a coupling of 1 or more
_INSIDE = 1 / 8  # of the pixels that neighbours call black are sure, or black has no inside
_ALIKE = 1.5  # at most this ratio of standard deviations
_FEW = 8  # sure pixels of a shade tell nothing if they are fewer
_CLEAR = 4.0  # standard errors between two shades,
_APART = 0.3  # and standard deviations of a pixel: pure noise has an echo too
_DOUBT = 1.0  # standard errors between two estimates of errors
_LEVEL_DOUBT = 1.5  # the same for levels, of which half way between the shades is preferred
_ECHO = 0.004  # times the variance of the noise: what a pixel's echo in its neighbours may fake
_TIE = 1e-4  # share of pixels; of equal estimates the first is taken
_ROUNDS = 5
_PIXELS, _TILE = 2**16, 32  # a larger picture is judged by tiles
_SOLVER = BeliefPropagation(tol=1e-2, max_iters=12)


class Shades(NamedTuple):
    """The two numbers of the black-and-white model, and how black and white look."""

    alpha: float  # trust in single pixels
    level: float  # grey value that speaks for neither
    dark: float  # mean of black pixels as they are seen
    light: float
    told: bool  # False: the picture does not tell, and what was not given is a guess

    def guess(self, alpha: float | None, level: float | None) -> str:
        """What was guessed, of what was not given; empty where nothing was."""
        guessed = [f"level={self.level:.3g}"] if level is None else []
        guessed += [f"alpha={self.alpha:.3g}"] if alpha is None else []
        if self.told or not guessed:
            return ""
        what = "neighbouring pixels do not tell two shades of this picture apart"
        return f"{what}; a guess: {' '.join(guessed)}"


class _Trial(NamedTuple):
    """Two numbers to try; the lower the rank the better, where the picture leaves it open."""

    alpha: float
    level: float
    rank: float


class _Noise(NamedTuple):
    """Pixels whose neighbours are sure, as they are seen, sorted."""

    dark: NDArray[np.float64]
    light: NDArray[np.float64]

    @property
    def means(self) -> tuple[float, float]:
        return float(self.dark.mean()), float(self.light.mean())

    @property
    def variance(self) -> float:
        """Within the shades, where their distance is 1."""
        m0, m1 = self.means
        return float(self.dark.var() + self.light.var()) / (2 * (m1 - m0) ** 2)

    @property
    def none(self) -> bool:
        """Whether every pixel is what its neighbours say."""
        return all(len(np.unique(part)) == 1 for part in self)

    @property
    def clear(self) -> bool:
        """Whether there are two shades, beyond doubt."""
        if min(len(self.dark), len(self.light)) < _FEW:
            return False
        m0, m1 = self.means
        error = np.hypot(*(part.std() / np.sqrt(len(part)) for part in self))
        least = _APART * max(part.std() for part in self)
        return m1 - m0 > max(_CLEAR * float(error), float(least))


def estimate(
    x: NDArray[np.float64],
    coupling: float,
    alpha: float | None = None,
    level: float | None = None,
) -> Shades:
    """Alpha and level of a picture (H, W) of at least two grey values; what is given stays."""
    seen, counted = sample(x)
    low, span = float(seen.min()), float(np.ptp(seen))
    if coupling == 0 or span == 0:
        return _guess(x, alpha, level)
    judge = _Judge((seen - low) / span, counted, coupling)
    scaled = None if level is None else (level - low) / span
    noise, middle = judge.begin(scaled)
    if not noise.clear:
        return _guess(x, alpha, level)
    if alpha is None:
        strengths = (max(_STRENGTHS),) if noise.none else _STRENGTHS
        trials = [_Trial(s / judge.distance, middle, k) for k, s in enumerate(strengths)]
        coarse, noise = judge.choose(trials, noise, _DOUBT)
        alphas = [coarse.alpha * finer for finer in _FINER]
    else:
        alphas = [alpha * span]
    steps = _STEPS if alpha is None else _WIDE_STEPS
    levels = {middle + s * judge.distance: abs(s) for s in (steps if level is None else (0.0,))}
    trials = [_Trial(a, one, far) for one, far in levels.items() for a in alphas]
    best, noise = judge.choose(trials, noise, _LEVEL_DOUBT)
    m0, m1 = noise.means
    return Shades(
        alpha=best.alpha / span if alpha is None else alpha,
        level=low + span * best.level if level is None else level,
        dark=low + span * m0,
        light=low + span * m1,
        told=True,
    )


def two_means(x: NDArray[np.float64]) -> tuple[float, float]:
    """Means of the two classes of grey values that vary least (Otsu's)."""
    values, counts = np.unique(x, return_counts=True)
    n, mass = np.cumsum(counts), np.cumsum(counts * (values - values[0]))
    below, above = mass[:-1] / n[:-1], (mass[-1] - mass[:-1]) / (n[-1] - n[:-1])
    cut = int((n[:-1] * (n[-1] - n[:-1]) * (above - below) ** 2).argmax())
    return float(values[0] + below[cut]), float(values[0] + above[cut])


def _guess(x: NDArray[np.float64], alpha: float | None, level: float | None) -> Shades:
    dark, light = two_means(x)
    level = (dark + light) / 2 if level is None else level
    return Shades(
        STRENGTH / (light - dark) if alpha is None else alpha, level, dark, light, told=False
    )


class _Judge:
    """A picture of values from 0 to 1, and which of its pixels count."""

    def __init__(self, x: NDArray[np.float64], counted: NDArray[np.bool_], coupling: float) -> None:
        self.shades = two_means(x)
        self.distance = self.shades[1] - self.shades[0]
        self.two_valued = bool(((x == 0) | (x == 1)).all())
        self.ends = np.quantile(x, [0.001, 0.999])  # without outliers
        self.seen, self.counted = x.ravel(), counted.ravel()
        self.x = self.seen[self.counted]
        self.sure = _SURE * min(coupling, 1.0)
        self.graph = FactorGraph.grid(np.zeros(x.shape), coupling)
        self.last: Marginals | None = None  # a run starts with the messages of the one before

    def neighbours(self, alpha: float, level: float) -> NDArray[np.float64]:
        """The log-odds of white that each pixel hears from its neighbours."""
        field = alpha * (self.seen - level)
        states = np.stack([np.zeros_like(field), field], axis=1)
        self.last = _SOLVER(self.graph.tilt(states.ravel()), start=self.last)
        p = np.maximum(self.last.probs.reshape(-1, 2), np.finfo(float).tiny)
        return (np.log(p[:, 1]) - np.log(p[:, 0]) - field)[self.counted]

    def begin(self, level: float | None) -> tuple[_Noise, float]:
        """A first look: the noise, and half way between the shades unless a level is given."""
        dark, light = self.shades
        starts = [(dark + light) / 2 if level is None else level]
        if level is None and not self.two_valued:
            low, high = self.ends
            starts += [low + (high - low) * way for way in _STARTS]
        heard = [self.neighbours(_START_STRENGTH / self.distance, start) for start in starts]
        noise = self.noise(max(heard, key=self._apart))
        if level is None and noise.clear:
            level = sum(noise.means) / 2
        return noise, (dark + light) / 2 if level is None else level

    def _apart(self, c: NDArray[np.float64]) -> float:
        """Variance of grey values between the classes that the neighbours make (Otsu's, unseen)."""
        light = c > 0
        share = light.mean()
        if share in (0, 1):
            return 0.0
        apart = self.x[light].mean() - self.x[~light].mean()
        return float(share * (1 - share) * apart * abs(apart))

    def noise(self, c: NDArray[np.float64]) -> _Noise:
        """What is seen where the neighbours are sure."""
        sure = c < -self.sure, c > self.sure
        dark, light = (np.sort(self.x[s]) for s in sure)
        if not (len(dark) and len(light)):
            return _Noise(dark, light)
        inside = [s.sum() >= _INSIDE * called.sum() for s, called in zip(sure, (c < 0, c > 0))]
        spread = sorted((dark.std(), light.std()))
        alike = self.two_valued and all(inside) and spread[1] <= _ALIKE * spread[0]
        if inside[0] and (not inside[1] or (alike and len(dark) > len(light))):
            light = sum(self.shades) - dark[::-1]
        elif inside[1] and (not inside[0] or alike):
            dark = sum(self.shades) - light[::-1]
        return _Noise(dark, light)

    def choose(
        self, trials: Sequence[_Trial], noise: _Noise, doubt: float
    ) -> tuple[_Trial, _Noise]:
        """The trial with the least estimate of errors, and the noise that it shows.

        Estimates are noisy: of trials not clearly worse than the best, the lowest rank is taken.
        """
        heard = [self.neighbours(trial.alpha, trial.level) for trial in trials]
        chosen = -1
        for _ in range(_ROUNDS):
            errors = [self.errors(c, t.alpha, t.level, noise) for c, t in zip(heard, trials)]
            means = [float(e.mean()) for e in errors]
            best = int(np.argmin(means))
            worse = [e - errors[best] for e in errors]
            echo = _ECHO * noise.variance
            close = [w.mean() < max(doubt * w.std() / np.sqrt(len(w)), echo) for w in worse]
            close[best] = True
            rank = min(t.rank for t, one in zip(trials, close) if one)
            likely = [k for k, t in enumerate(trials) if close[k] and t.rank == rank]
            least = min(means[k] for k in likely)
            last, chosen = chosen, next(k for k in likely if means[k] <= least + _TIE)
            if chosen == last:
                break
            found = self.noise(heard[chosen])
            if not found.clear:
                break
            noise = found
        return trials[chosen], noise

    def errors(
        self, c: NDArray[np.float64], alpha: float, level: float, noise: _Noise
    ) -> NDArray[np.float64]:
        """Estimates of each pixel being wrong, whose mean is the share of wrong ones; see above."""
        m0, m1 = noise.means
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.nan_to_num(level - c / alpha, nan=level)
        missed = np.searchsorted(noise.light, t, side="right") / len(noise.light)
        invented = 1 - np.searchsorted(noise.dark, t, side="right") / len(noise.dark)
        v = (self.x - m0) / (m1 - m0)
        return v * missed + (1 - v) * invented


def sample(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A picture (H, W) or (H, W, C), or evenly spread tiles of a large one; and which
    pixels are on no seam."""
    if x.shape[0] * x.shape[1] <= _PIXELS:
        return x, np.ones(x.shape[:2], dtype=bool)
    height, width = (min(_TILE, side) for side in x.shape[:2])
    down = min(x.shape[0] // height, int(np.sqrt(_PIXELS / (height * width))))
    across = min(x.shape[1] // width, _PIXELS // (down * height * width))
    down = min(x.shape[0] // height, _PIXELS // (across * height * width))
    tops = np.linspace(0, x.shape[0] - height, down).round().astype(int)
    lefts = np.linspace(0, x.shape[1] - width, across).round().astype(int)
    rows = (tops[:, None] + np.arange(height)).ravel()
    columns = (lefts[:, None] + np.arange(width)).ravel()
    inside = []
    for side, count in ((height, down), (width, across)):
        place = np.arange(side * count) % side
        inside.append(((place > 0) & (place < side - 1)) | (count == 1))
    return x[np.ix_(rows, columns)], inside[0][:, None] & inside[1]
