"""A component of spaCy pipelines that sets heads, labels and the probabilities of arcs.

    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("minfer_parser", config={"model": "my.model"})
    token = nlp("The dog sleeps.")[1]
    token.head, token.dep_, token._.arc_prob, token._.second_head, token._.second_prob

spaCy finds it by the entry point of this package, so nothing need be imported; it is loaded with
the first pipeline that names it. Blanks, which spaCy has as tokens, are no words: they hang on the
word before them, or on their sentence's first word, labelled `dep`. A root's head is itself. A
parser that allows several roots makes several sentences of one, since in spaCy a root is what a
sentence is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minfer.basics.checks import load
from minfer.errors import ModelError, SettingsError
from minfer.parsing.conllu import Sentence
from minfer.parsing.inference import Inference
from minfer.parsing.parser import Parser, in_batches

#: Attributes of tokens, after ``token._.``; `second_head` is a token, or None.
ATTRIBUTES = ("arc_prob", "second_head", "second_prob")
_FILE = "parser.model"
#: Words that are parsed at once, about.
_BATCH = 2000

spacy = load("spacy", "minfer_parser is a component of spaCy,")


class SpacyParser:
    """A :class:`~minfer.parsing.Parser` as a component."""

    def __init__(
        self, parser: Parser | None, name: str = "minfer_parser", full: bool = False
    ) -> None:
        self.parser, self.name = parser, name
        self.inference = Inference.full() if full else None
        for attribute in ATTRIBUTES:
            if not spacy.tokens.Token.has_extension(attribute):
                spacy.tokens.Token.set_extension(attribute, default=None)

    def __call__(self, doc: Any) -> Any:
        """The same document, with heads, labels and probabilities."""
        return next(iter(self.pipe([doc])))

    def pipe(self, docs: Iterable[Any], batch_size: int = 128) -> Iterator[Any]:
        """Several documents; the words of about ``batch_size`` of them are parsed at once."""
        parser = self.parser
        if parser is None:
            raise SettingsError(
                f"{self.name} has no parser: nlp.add_pipe('minfer_parser', "
                "config={'model': FILE}), with a file of `minfer parse train`"
            )
        for part in in_batches(docs, lambda doc: max(len(doc), _BATCH // batch_size), _BATCH):
            words = [_sentences(doc) for doc in part]
            flat = [_as_ours(sentence) for sentences in words for sentence in sentences]
            found = parser.parse_batch(flat, inference=self.inference)
            bounds = found.data.start.tolist()
            relations = [parser.model.relations[k] for k in found.labels.tolist()]
            at = 0
            for doc, sentences in zip(part, words):
                heads, labels = np.zeros(len(doc), np.int64), ["dep"] * len(doc)
                last = next((t.i for t in doc if not t.is_space), 0)
                for t in doc:  # blanks hang on the word before, else on the first
                    last = last if t.is_space else t.i
                    heads[t.i] = last - t.i
                for sentence in sentences:
                    lo = bounds[at]
                    for k, t in enumerate(sentence):
                        h, second = int(found.heads[lo + k]), int(found.second[lo + k])
                        heads[t.i] = sentence[h - 1].i - t.i if h else 0
                        labels[t.i] = relations[lo + k]
                        t._.arc_prob = float(found.probs[lo + k])
                        t._.second_head = t if second == 0 else None
                        if second > 0:
                            t._.second_head = sentence[second - 1]
                        t._.second_prob = float(found.second_probs[lo + k])
                    at += 1
                _set(doc, heads, labels)
                yield doc

    def to_disk(self, path: Any, exclude: Iterable[str] = ()) -> None:
        """Write the parser into a folder, as ``nlp.to_disk`` asks."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        if self.parser is not None:
            self.parser.save(folder / _FILE)

    def from_disk(self, path: Any, exclude: Iterable[str] = ()) -> SpacyParser:
        """Read it from there."""
        self.parser = Parser.load(Path(path) / _FILE)
        return self


@spacy.language.Language.factory(
    "minfer_parser",
    assigns=["token.head", "token.dep", *(f"token._.{name}" for name in ATTRIBUTES)],
    requires=["doc.sents"],
    default_config={"model": None, "full": False},
)
def minfer_parser(nlp: Any, name: str, model: Any, full: bool) -> SpacyParser:
    """A component with the parser in file ``model``, or one that is read by ``nlp.from_disk``."""
    return SpacyParser(None if model is None else Parser.load(model), name, full)


def _sentences(doc: Any) -> list[list[Any]]:
    if len(doc) and not doc.has_annotation("SENT_START"):
        raise SettingsError(
            "the pipeline does not know where sentences end: nlp.add_pipe('sentencizer') before "
            "minfer_parser"
        )
    found = [[t for t in sentence if not t.is_space] for sentence in doc.sents] if len(doc) else []
    return [words for words in found if words]


def _as_ours(sentence: list[Any]) -> Sentence:
    return Sentence.from_forms(
        ["_".join(t.text.split()) for t in sentence],
        [t.pos_ or "_" for t in sentence],
        [t.tag_ or "_" for t in sentence],
    )


def _set(doc: Any, heads: Any, labels: list[str]) -> None:
    if not len(doc):
        return
    numbers = np.array([doc.vocab.strings.add(label) for label in labels], dtype=np.uint64)
    columns = [heads.astype(np.int64).view(np.uint64), numbers]
    try:
        doc.from_array([spacy.attrs.HEAD, spacy.attrs.DEP], np.stack(columns, axis=1))
    except ValueError as error:
        raise ModelError(f"spaCy does not take the parse: {error}") from None
