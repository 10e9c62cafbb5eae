"""Attachment scores as the CoNLL evaluations count them, and intervals for their differences.

Over words: UAS is the share whose head is right, LAS the share whose head and relation are right,
in percent. Words, not characters or multi-word tokens, are the unit: tokenisation must be the same.

The shared tasks differ in two things, so both are settings:

==============  ====================================================  =====================
evaluation      punctuation                                           relations
==============  ====================================================  =====================
CoNLL-X (2006)  left out: forms of Unicode punctuation only           as written
CoNLL 2007      counted                                               as written
CoNLL 2017/18   counted                                               without ``:subtype``
==============  ====================================================  =====================

(Buchholz & Marsi 2006; Nivre et al. 2007; Zeman et al. 2018.) Scores with and without punctuation
are both kept. ``punctuation`` says which words are: ``"form"``, those of CoNLL-X (every character
in a Unicode category P: ``$``, ``+`` and the grave accent are symbols, not punctuation), or
``"upos"``, those whose gold UPOS is PUNCT, the custom with Universal Dependencies.

Counts stay per sentence, so the difference of two parsers on the same sentences has a paired
bootstrap interval: sentences are drawn with replacement, the same for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import Literal, get_args
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_type
from minfer.basics.notebook import Face, Right
from minfer.basics.words import counted
from minfer.errors import ModelError, SettingsError
from minfer.parsing.conllu import Sentence

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
    """One row of :attr:`Scores.counts`; without deprels no relation is right.

    heads : (n,) int, of word i + 1
    """
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
