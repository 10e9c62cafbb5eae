"""The component of spaCy pipelines: heads, labels and probabilities are those of the parser."""

from __future__ import annotations

import numpy as np
import pytest

from minfer import SettingsError
from minfer.parsing import Parser, Recipe
from minfer.parsing.tiny import tiny_treebank
from refused import refused

spacy = pytest.importorskip("spacy")
TEXT = "The old dog  sees a bird. The dog\nsleeps.\n\nA bird sings"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("parser") / "tiny.model"
    Parser.train(tiny_treebank(), recipe=Recipe(bits=16, tag_bits=14)).save(path)
    return path


@pytest.fixture
def nlp(saved):
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("minfer_parser", config={"model": str(saved)})
    return nlp


def test_parses_are_the_parsers(nlp, saved):
    doc = nlp(TEXT)
    parser = Parser.load(saved)
    forms = [[t.text for t in s if not t.is_space] for s in doc.sents]
    assert [len(f) for f in forms] == [7, 4, 3]
    batch = parser.parse_batch(list(parser.parse(forms)))
    at = 0
    for sentence, parse in zip(doc.sents, parser.parse(forms)):
        tokens = [t for t in sentence if not t.is_space]
        assert tuple(t.dep_ for t in tokens) == parse.deprels
        for t, h in zip(tokens, parse.heads):
            assert t.head == (tokens[h - 1] if h else t)
            assert t._.arc_prob == batch.probs[at]
            assert t._.second_prob == batch.second_probs[at]
            other = int(batch.second[at])
            assert t._.second_head == (None if other < 0 else tokens[other - 1] if other else t)
            at += 1
    blanks = [t for t in doc if t.is_space]
    assert len(blanks) == 3
    assert all(t.head.i == t.i - 1 and t.dep_ == "dep" for t in blanks)


def test_blanks_make_no_sentences(nlp):
    doc = nlp("\n\n The dog sleeps.  A bird sings.\n")
    assert [s.text.strip() for s in doc.sents] == ["The dog sleeps.", "A bird sings."]
    assert doc[0].is_space
    assert doc[0].head.text == "The"


def test_many_documents_at_once_and_one_by_one(nlp):
    texts = [TEXT, "", "   ", "Birds sing."] * 3
    for text, doc in zip(texts, nlp.pipe(texts, batch_size=4)):
        alone = nlp(text)
        assert [t.head.i for t in doc] == [t.head.i for t in alone]
        np.testing.assert_array_equal(
            [t._.arc_prob for t in doc if not t.is_space],
            [t._.arc_prob for t in alone if not t.is_space],
        )


def test_a_pipeline_is_saved_with_its_parser(nlp, tmp_path, saved):
    nlp.to_disk(tmp_path / "pipeline")
    saved_at = saved.rename(saved.with_suffix(".away"))  # the folder has its own
    try:
        again = spacy.load(tmp_path / "pipeline", config={"components.minfer_parser.model": None})
        assert [t.head.i for t in again(TEXT)] == [t.head.i for t in nlp(TEXT)]
    finally:
        saved_at.rename(saved)


def test_what_is_missing_is_said(saved):
    nlp = spacy.blank("en")
    nlp.add_pipe("minfer_parser", config={"model": str(saved)})
    refused(SettingsError, "sentencizer", nlp, "The dog sleeps.")
    empty = spacy.blank("en")
    empty.add_pipe("sentencizer")
    empty.add_pipe("minfer_parser")
    refused(SettingsError, "has no parser.*parse train", empty, "The dog sleeps.")
