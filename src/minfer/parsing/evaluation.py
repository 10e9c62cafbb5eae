"""Attachment scores as the CoNLL evaluations count them, and intervals for their differences.

Over words, not characters or multi-word tokens: UAS is the share whose head is right, LAS the share
whose head and relation are right, in percent. Tokenisation must be the same.

The shared tasks differ in two things, so both are settings. CoNLL-X (Buchholz & Marsi 2006) leaves
punctuation out, CoNLL 2007 and 2017/18 count it; scores with and without are both kept. It is what
has only characters of a Unicode category P (``"form"``, CoNLL-X's: ``$``, ``+`` and the grave
accent are symbols), or the gold UPOS PUNCT (``"upos"``, the custom with Universal Dependencies).
CoNLL 2017/18 (Zeman et al. 2018) compares relations without their ``:subtype``.

Counts stay per sentence, so the difference of two parsers on the same sentences has a paired
bootstrap interval: sentences are drawn with replacement, the same for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, get_args
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_type
from minfer.basics.notebook import Face, Right
from minfer.basics.words import counted
from minfer.errors import ModelError, SettingsError
from minfer.parsing.calibration import treebank_calibration
from minfer.parsing.conllu import Sentence, read_conllu, read_treebank
from minfer.parsing.inference import Inference
from minfer.prediction.calibration import Calibration

Punctuation = Literal["form", "upos"]
Measure = Literal["uas", "las", "uas_no_punct", "las_no_punct", "exact", "exact_labelled"]

# columns of the counts: words, right heads, right heads and relations; then without punctuation
_COLUMNS = {"uas": (1, 0), "las": (2, 0), "uas_no_punct": (4, 3), "las_no_punct": (5, 3)}


@dataclass(frozen=True, eq=False)
class Scores:
    """Attachment scores, in percent (NaN where there are no words to count).

    ``counts`` (S, 6) has for each sentence the words, those with the right head, those with the
    right head and relation, and the same three without punctuation.
    """

    counts: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Words counted, punctuation included."""
        return int(self.counts[:, 0].sum())

    @property
    def n_no_punct(self) -> int:
        return int(self.counts[:, 3].sum())

    @property
    def uas(self) -> float:
        return self.of("uas")

    @property
    def las(self) -> float:
        return self.of("las")

    @property
    def uas_no_punct(self) -> float:
        return self.of("uas_no_punct")

    @property
    def las_no_punct(self) -> float:
        return self.of("las_no_punct")

    @property
    def exact(self) -> float:
        """Sentences with every head right, punctuation included."""
        return self.of("exact")

    @property
    def exact_labelled(self) -> float:
        """Sentences with every head and relation right, punctuation included."""
        return self.of("exact_labelled")

    def of(self, measure: Measure) -> float:
        """A score by name."""
        right, out_of = self.parts(measure)
        total = int(out_of.sum())
        return 100 * int(right.sum()) / total if total else float("nan")

    def parts(self, measure: Measure) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Per sentence (S,): what is right, and out of how much; the score is sum / sum."""
        if measure in _COLUMNS:
            right, out_of = _COLUMNS[measure]
            return self.counts[:, right], self.counts[:, out_of]
        if measure not in ("exact", "exact_labelled"):
            known = ", ".join([*_COLUMNS, "exact", "exact_labelled"])
            raise SettingsError(f"unknown measure {measure!r}; choose from {known}")
        column = 1 if measure == "exact" else 2
        whole = self.counts[:, column] == self.counts[:, 0]
        return whole.astype(np.int64), np.ones(len(self.counts), dtype=np.int64)

    def to_dict(self) -> dict[str, float]:
        """Plain Python values, ready for JSON."""
        return {"words": self.n, **{name: self.of(name) for name in get_args(Measure)}}

    def face(
        self, other: Scores | None = None, differences: Mapping[str, ScoreDifference] = {}
    ) -> Face:
        """Every measure; beside it another parse's, and the difference."""
        titles = {
            "uas": f"UAS ({counted(self.n, 'word')})",
            "las": "LAS",
            "uas_no_punct": f"UAS without punctuation ({counted(self.n_no_punct, 'word')})",
            "las_no_punct": "LAS without punctuation",
            "exact": f"exact heads ({counted(len(self.counts), 'sentence')})",
            "exact_labelled": "exact heads and relations",
        }
        rows = []
        for name in get_args(Measure):
            row = [titles[name], Right(f"{self.of(name):.2f}")]
            if other is not None:
                row += [Right(f"{other.of(name):.2f}"), Right(differences[name])]
            rows.append(row)
        return Face("", ("", "score", "other", "difference")[: len(rows[0])], rows)

    def __str__(self) -> str:
        return (
            f"UAS {self.uas:.2f}, LAS {self.las:.2f} ({counted(self.n, 'word')}); "
            f"without punctuation UAS {self.uas_no_punct:.2f}, LAS {self.las_no_punct:.2f} "
            f"({self.n_no_punct:,})"
        )


def evaluate(
    gold: Iterable[Sentence],
    predicted: Iterable[Sentence],
    *,
    punctuation: Punctuation = "upos",
    subtypes: bool = True,
) -> Scores:
    """Compare parses with a treebank, sentence by sentence.

    Parameters
    ----------
    gold, predicted : the same words, each with heads; they may be streams
    punctuation : "upos" or "form"
        What counts as punctuation: the tag PUNCT, or words made only of Unicode punctuation
        (CoNLL-X).
    subtypes : whether nmod:poss differs from nmod (CoNLL 2018: no)
    """
    for sentences in (gold, predicted):
        check_type(sentences, Iterable, "evaluate takes two collections of sentences", ModelError)
    rows = []
    for k, (one, other) in enumerate(zip_longest(gold, predicted)):
        if one is None or other is None:
            more = "the parse" if one is None else "the treebank"
            raise ModelError(f"{more} has more sentences than the {k} of the other")
        if one.forms != other.forms:
            raise ModelError(_difference(k, one, other))
        if other.heads is None:
            raise ModelError(f"the sentence of line {other.line} of the parse has no heads")
        rows.append(attachments(one, other.heads, other.deprels, punctuation, subtypes))
    return Scores(np.array(rows, dtype=np.int64).reshape(-1, 6))


def attachments(
    gold: Sentence,
    heads: Sequence[int] | NDArray[np.integer],
    deprels: Sequence[str] | None = None,
    punctuation: Punctuation = "upos",
    subtypes: bool = True,
) -> tuple[int, ...]:
    """One row of :attr:`Scores.counts`, for heads (n,); without deprels no relation is right."""
    if gold.heads is None:
        raise ModelError(f"the sentence of line {gold.line} of the treebank has no heads")
    if len(heads) != len(gold):
        raise ModelError(
            f"{len(heads)} heads for the {counted(len(gold), 'word')} of line {gold.line}"
        )
    right = gold.heads == np.asarray(heads)
    labelled = np.zeros(len(gold), dtype=bool)
    if deprels is not None:
        a: Sequence[str] = gold.deprels
        if not subtypes:
            a, deprels = [r.partition(":")[0] for r in a], [r.partition(":")[0] for r in deprels]
        labelled = right & [x == y for x, y in zip(a, deprels, strict=True)]
    words = ~punctuation_mask(gold, punctuation)
    counted_words = np.ones_like(right), right, labelled, words, right & words, labelled & words
    return tuple(int(np.count_nonzero(one)) for one in counted_words)


def punctuation_mask(sentence: Sentence, punctuation: Punctuation = "upos") -> NDArray[np.bool_]:
    """Which words (n,) are punctuation, by form or by UPOS."""
    if punctuation == "upos":
        return np.array([tag == "PUNCT" for tag in sentence.upos], dtype=bool)
    if punctuation == "form":
        return np.array([is_punctuation(form) for form in sentence.forms], dtype=bool)
    raise SettingsError(f"punctuation must be form or upos, not {punctuation!r}")


@lru_cache(maxsize=1 << 14)
def is_punctuation(form: str) -> bool:
    """Whether every character is in a Unicode category P, as the CoNLL-X evaluation has it.

    >>> is_punctuation("..."), is_punctuation("$"), is_punctuation("o'clock")
    (True, False, False)
    """
    return bool(form) and all(category(c)[0] == "P" for c in form)


def _difference(k: int, gold: Sentence, predicted: Sentence) -> str:
    where = f"sentence {k + 1} (line {gold.line} and line {predicted.line})"
    if len(gold) != len(predicted):
        words = counted(len(gold), "word")
        return f"{where} has {words} in the treebank, {len(predicted)} in the parse"
    word = next(i for i in range(len(gold)) if gold.forms[i] != predicted.forms[i])
    a, b = gold.forms[word], predicted.forms[word]
    return f"{where}: word {word + 1} is {a!r} in the treebank, {b!r} in the parse"


# ---------------------------------------------------------------------- differences


@dataclass(frozen=True)
class ScoreDifference:
    """Score of a minus score of b, in points, and its paired bootstrap interval."""

    difference: float  # on the sentences themselves
    low: float
    high: float
    level: float  # nominal coverage of the interval

    def __str__(self) -> str:
        percent = f"{100 * self.level:g} %"
        return f"{self.difference:+.2f} [{self.low:+.2f}, {self.high:+.2f}] ({percent})"


def bootstrap_difference(
    a: Scores,
    b: Scores,
    rng: np.random.Generator | int,
    n: int = 1000,
    *,
    measure: Measure = "uas",
    level: float = 0.95,
) -> ScoreDifference:
    """Interval of the difference of two parsers on the same sentences (percentile bootstrap).

    Parameters
    ----------
    a, b : scores of the same sentences in the same order
    rng : generator or seed
    n : resamples of the sentences
    measure : which score
    level : coverage of the interval
    """
    if not 0 < level < 1 or n < 1:
        raise SettingsError(f"level {level} and n {n}: needs 0 < level < 1 and n >= 1")
    check_type((a, b)[isinstance(a, Scores)], Scores, "bootstrap_difference takes two Scores")
    if not np.array_equal(a.counts[:, [0, 3]], b.counts[:, [0, 3]]):
        raise ModelError("the two scores are not of the same sentences: score both on one treebank")
    size = len(a.counts)
    rng = np.random.default_rng(rng)
    right_a, out_of = a.parts(measure)
    if not out_of.any():
        raise ModelError("there are no words to count")
    better = right_a - b.parts(measure)[0]
    draws = np.empty(n)
    for k in range(n):
        times = np.bincount(rng.integers(size, size=size), minlength=size)
        total = times @ out_of
        draws[k] = 100 * (times @ better) / total if total else np.nan
    tail = (1 - level) / 2
    low, high = np.nanquantile(draws, [tail, 1 - tail]).tolist()
    return ScoreDifference(a.of(measure) - b.of(measure), low, high, level)


# ---------------------------------------------------------------------- all of it


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
    from minfer.parsing.parser import Parser

    parses = Parser.load(model).parse(truth, tags, inference=inference, marginals=True)
    return assess(truth, parses, other, **settings)
