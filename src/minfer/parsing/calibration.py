"""How true arc probabilities are.

Words are sorted into bins by the probability of the arc they were given. Of those in a bin, the
share that is right should be the mean probability:

    ECE   = sum_b n_b / n |right_b - mean_b|        (expected calibration error)
    Brier = mean (p_i - right_i)^2

Both are 0 for a parser that is certain and always right; the first also for one that knows exactly
how often it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.notebook import Face, Right
from minfer.basics.words import counted, plain
from minfer.errors import ModelError, SettingsError
from minfer.parsing.conllu import Sentence
from minfer.pictures import write_figure
from minfer.plots import pyplot


@dataclass(frozen=True, eq=False)
class Calibration:
    """Probabilities against what was right."""

    edges: NDArray[np.float64]  # (B + 1,) of the bins, from 0 to 1
    counts: NDArray[np.int64]  # (B,) words in each
    probs: NDArray[np.float64]  # (B,) mean probability, NaN in an empty bin
    right: NDArray[np.float64]  # (B,) share that is right, likewise
    ece: float
    brier: float

    def face(self) -> Face:
        """A row for each bin."""
        rows: list[tuple[object, ...]] = []
        for k, count in enumerate(self.counts.tolist()):
            told: tuple[object, ...] = ("", "", "")
            if count:
                bar = "#" * round(20 * self.right[k])
                told = Right(f"{self.probs[k]:.3f}"), Right(f"{self.right[k]:.3f}"), bar
            rows.append((f"{self.edges[k]:.1f} to {self.edges[k + 1]:.1f}", count, *told))
        return Face(str(self), ("probability", "words", "mean", "right", ""), rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return plain(vars(self))

    def draw(self, path: str) -> None:
        """A reliability plot: the share that is right against the probability, words below."""
        plt = pyplot("the figure needs", headless=True)
        figure, (top, low) = plt.subplots(
            2, 1, figsize=(5, 6), dpi=110, sharex=True, height_ratios=(3, 1)
        )
        full = self.counts > 0
        top.plot([0, 1], [0, 1], color="grey", linewidth=1, label="true probabilities")
        top.plot(self.probs[full], self.right[full], "o-", color="tab:blue", label="arcs chosen")
        title = f"ECE {self.ece:.4f}, Brier {self.brier:.4f}"
        top.set(ylabel="share right", title=title, ylim=(0, 1.02))
        top.legend(frameon=False)
        width = self.edges[1] - self.edges[0]
        low.bar(self.edges[:-1] + width / 2, self.counts, width=0.9 * width, color="tab:blue")
        low.set(xlabel="probability of the arc", ylabel="words", yscale="log", xlim=(0, 1.02))
        for axis in (top, low):
            axis.grid(alpha=0.3)
        figure.tight_layout()
        write_figure(path, figure)
        plt.close(figure)

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
    """ArcProb in MISC of each word (n,), as ``parse run --marginals`` has it; None if one lacks."""
    out = np.empty(len(sentence))
    for k, items in enumerate(sentence.misc):
        found = [item[8:] for item in items.split("|") if item.startswith("ArcProb=")]
        try:
            out[k] = float(found[0])
        except (IndexError, ValueError):
            return None
    return out


def treebank_calibration(
    gold: Iterable[Sentence], parses: Iterable[Sentence]
) -> Calibration | None:
    """Of parses with ArcProb in MISC against a treebank; None if a word has none."""
    probs, right = [], []
    for one, other in zip(gold, parses):
        p = arc_probs(other)
        if p is None:
            return None
        probs.append(p)
        right.append(np.asarray(one.heads) == other.heads)
    return calibration(np.concatenate(probs), np.concatenate(right))
