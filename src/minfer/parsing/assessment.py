"""A parse judged: attachment scores, beside another parse's, and how true its probabilities are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_args

import numpy as np

from minfer.notebook import Face
from minfer.parsing.calibration import Calibration, treebank_calibration
from minfer.parsing.conllu import Sentence
from minfer.parsing.evaluation import (
    Difference,
    Measure,
    Punctuation,
    Scores,
    bootstrap_difference,
    evaluate,
)


class Assessment(NamedTuple):
    """What there is to say about a parse.

    ``calibration`` is None without the probabilities of arcs; ``other`` and the ``differences`` of
    every measure are those of another parse of the same sentences, if there is one.
    """

    scores: Scores
    calibration: Calibration | None
    other: Scores | None = None
    differences: Mapping[str, Difference] = {}

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        content: dict[str, Any] = {"scores": self.scores.to_dict()}
        if self.other is not None:
            content["other"] = self.other.to_dict()
            content["differences"] = {k: vars(d) for k, d in self.differences.items()}
        if self.calibration is not None:
            content["calibration"] = self.calibration.to_dict()
        return content

    def face(self) -> Face:
        """Every measure, and in a note how true the probabilities are."""
        face = self.scores.face(self.other, self.differences)
        notes = {} if self.calibration is None else {"arc probabilities": str(self.calibration)}
        return face._replace(notes=notes)


def assess(
    gold: Iterable[Sentence],
    parses: Iterable[Sentence],
    other: Iterable[Sentence] | None = None,
    *,
    punctuation: Punctuation = "upos",
    subtypes: bool = True,
    rng: np.random.Generator | int = 0,
) -> Assessment:
    """Score a parse against a treebank, and compare it with another one.

    Parameters
    ----------
    gold, parses, other : the same sentences, each with heads
    punctuation, subtypes : as for :func:`minfer.parsing.evaluate`
    rng : generator or seed of the bootstrap intervals of the differences
    """
    gold, parses = list(gold), list(parses)
    scores = evaluate(gold, parses, punctuation=punctuation, subtypes=subtypes)
    calibrated = treebank_calibration(gold, parses)
    if other is None:
        return Assessment(scores, calibrated)
    others = evaluate(gold, other, punctuation=punctuation, subtypes=subtypes)
    differences = {
        name: bootstrap_difference(scores, others, rng, measure=name) for name in get_args(Measure)
    }
    return Assessment(scores, calibrated, others, differences)
