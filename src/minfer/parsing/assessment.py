"""A parse judged: attachment scores, beside another parse's, and how true its probabilities are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, get_args

import numpy as np

from minfer.basics.notebook import Face
from minfer.errors import SettingsError
from minfer.parsing.calibration import Calibration, treebank_calibration
from minfer.parsing.conllu import Sentence, read_conllu, read_treebank
from minfer.parsing.evaluation import (
    Measure,
    Punctuation,
    ScoreDifference,
    Scores,
    bootstrap_difference,
    evaluate,
)
from minfer.parsing.inference import Inference
from minfer.parsing.parser import Parser


class Assessment(NamedTuple):
    """What there is to say about a parse.

    ``calibration`` is None without the probabilities of arcs; ``other`` and the ``differences`` of
    every measure are those of another parse of the same sentences, if there is one.
    """

    scores: Scores
    calibration: Calibration | None
    other: Scores | None = None
    differences: Mapping[str, ScoreDifference] = {}

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


def assess_files(
    gold: str,
    predicted: str | None = None,
    compare: str | None = None,
    *,
    model: str | None = None,
    tags: str | None = None,
    inference: Inference | None = None,
    multi_root: bool = False,
    **settings: Any,
) -> Assessment:
    """The same for files: a treebank, a parse of it and another one, which are read.

    Parameters
    ----------
    gold : treebank to compare with
    predicted : the same sentences, parsed
    compare : another parse of the same sentences: differences with 95 % bootstrap intervals
    model : parse the treebank with this parser instead
    tags, inference : as in :meth:`Parser.parse`, with a ``model``
    multi_root : several words of a sentence may have head 0
    **settings
        Of :func:`assess`.
    """
    if (predicted is None) == (model is None):
        raise SettingsError("give a parsed file, or a parser (model=...), and not both")
    if model is None and (tags is not None or inference is not None):
        raise SettingsError("tags and the reduction go with model=...")
    read = partial(read_conllu, multi_root=multi_root)
    truth, other = read_treebank(gold, multi_root=multi_root), read(compare) if compare else None
    if model is None:
        return assess(truth, read(str(predicted)), other, **settings)
    parses = Parser.load(model).parse(truth, tags, inference=inference, marginals=True)
    return assess(truth, parses, other, **settings)
