"""How true arc probabilities are (:mod:`minfer.prediction.calibration`), and truer ones."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from minfer.parsing.conllu import Sentence
from minfer.prediction.calibration import Calibration, calibration


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
    return calibration(
        np.concatenate(probs), np.concatenate(right), of="word", chosen="arcs chosen"
    )
