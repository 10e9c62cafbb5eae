"""How true arc probabilities are.

Words are sorted into bins by the probability of the arc they were given. Of those in a bin, the
share that is right should be the mean probability:

    ECE   = sum_b n_b / n |right_b - mean_b|        (expected calibration error)
    Brier = mean (p_i - right_i)^2

Both are 0 for a parser that is certain and always right; the first also for one that knows exactly
how often it is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.errors import ModelError, SettingsError
from minfer.parsing.conllu import Sentence
from minfer.words import counted


@dataclass(frozen=True, eq=False)
class Calibration:
    """Probabilities against what was right.

    Attributes
    ----------
    edges : (B + 1,) of the bins, from 0 to 1
    counts : (B,) words in each
    probs, right : (B,) mean probability and share that is right, NaN in an empty bin
    ece, brier : float
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    probs: NDArray[np.float64]
    right: NDArray[np.float64]
    ece: float
    brier: float

    def __str__(self) -> str:
        words = counted(int(self.counts.sum()), "word")
        return f"ECE {self.ece:.4f}, Brier {self.brier:.4f} ({words})"


def calibration(probs: ArrayLike, right: ArrayLike, bins: int = 10) -> Calibration:
    """Compare probabilities (W,) with whether the arcs are right (W,).

    >>> print(calibration([0.8, 0.8, 0.8, 0.8, 0.8], [1, 1, 1, 1, 0]))
    ECE 0.0000, Brier 0.1600 (5 words)
    """
    p, truth = np.asarray(probs, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if bins < 1:
        raise SettingsError(f"bins must be at least 1, not {bins}")
    if p.shape != truth.shape or p.ndim != 1:
        raise ModelError(f"probabilities of shape {p.shape} for answers of shape {truth.shape}")
    if not len(p):
        raise ModelError("there are no words to calibrate on")
    if not ((p >= 0) & (p <= 1)).all():
        raise ModelError("probabilities must lie between 0 and 1")
    which = np.minimum((p * bins).astype(np.int64), bins - 1)
    counts = np.bincount(which, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean_p = np.bincount(which, p, bins) / counts
        mean_right = np.bincount(which, truth, bins) / counts
    gaps = np.abs(mean_p - mean_right)[counts > 0]
    ece = float((gaps * counts[counts > 0]).sum() / len(p))
    brier = float(((p - truth) ** 2).mean())
    return Calibration(np.linspace(0, 1, bins + 1), counts, mean_p, mean_right, ece, brier)


def tempered(probs: NDArray[np.float64], t: float) -> NDArray[np.float64]:
    """p^t / sum_h p_h^t over the heads h of each word, of arc probabilities (N, N).

    >>> tempered(np.array([[0.0, 0.9], [0.0, 0.1]]), 0.5).round(2).tolist()
    [[0.0, 0.75], [0.0, 0.25]]
    """
    if t == 1.0:
        return probs
    powers = probs**t
    powers[:, 1:] /= powers[:, 1:].sum(axis=0)
    return powers


def arc_probs(sentence: Sentence) -> NDArray[np.float64] | None:
    """ArcProb of each word (n,), as ``parse run --marginals`` writes it to MISC; None if a word
    has none."""
    out = np.empty(len(sentence))
    for k, items in enumerate(sentence.misc):
        found = [item[8:] for item in items.split("|") if item.startswith("ArcProb=")]
        try:
            out[k] = float(found[0])
        except (IndexError, ValueError):
            return None
    return out
