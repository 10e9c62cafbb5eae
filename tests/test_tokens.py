"""Words from tokenizers: shapes of spaCy's and Stanza's answers, functions, what is wrong."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from minfer import ModelError, RefusedError, SettingsError
from minfer.parsing.conllu import read_conllu, unsplit
from minfer.parsing.tokens import tokenized, tokenizer_named
from refused import refused

TEXT = "It's late,  Ann. (Go!)"


def places(text):
    """By a pattern: sentences of places."""
    found = [(m.start(), m.end()) for m in re.finditer(r"\w+|[^\w\s]", text)]
    cut = next(k for k, (a, _) in enumerate(found) if text[a] == ".") + 1
    return [found[:cut], found[cut:]]


def words(text):
    return [[text[a:b] for a, b in sentence] for sentence in places(text)]


def spacy_like(text, known=True):
    def token(a, b):
        return SimpleNamespace(idx=a, text=text[a:b], is_space=not text[a:b].strip())

    sents = [[token(a, b) for a, b in sentence] for sentence in places(text)]
    sents[0].insert(5, token(10, 12))  # spaCy has tokens of blanks
    return SimpleNamespace(sents=sents, has_annotation=lambda name: known and name == "SENT_START")


def stanza_like(text):
    def token(a, b, *own):
        named = [SimpleNamespace(text=w) for w in own or (text[a:b],)]
        return SimpleNamespace(start_char=a, end_char=b, words=named)

    first, second = places(text)
    tokens = [token(0, 4, "It", "is"), *(token(a, b) for a, b in first[3:])]
    parts = [tokens, [token(a, b) for a, b in second]]
    return SimpleNamespace(sentences=[SimpleNamespace(tokens=part) for part in parts])


@pytest.mark.parametrize("tokenize", [places, words, spacy_like])
def test_places_in_the_text_are_kept(tokenize):
    first, second = tokenized(TEXT, tokenize, line=7)
    assert first.forms == ("It", "'", "s", "late", ",", "Ann", ".")
    assert second.forms == ("(", "Go", "!", ")")
    assert first.comments == ["# text = It's late, Ann."]
    assert first.line == 7
    for sentence in (first, second):
        for form, misc in zip(sentence.forms, sentence.misc):
            a, b = map(int, re.match(r"TokenRange=(\d+):(\d+)", misc).groups())
            assert TEXT[a:b] == form
            assert misc.endswith("SpaceAfter=No") == bool(TEXT[b : b + 1].strip())


def test_multi_word_tokens_keep_their_range():
    first, second = tokenized(TEXT, stanza_like)
    assert first.forms == ("It", "is", "late", ",", "Ann", ".")
    assert "1-2\tIt's\t_\t_\t_\t_\t_\t_\t_\tTokenRange=0:4" in str(first)
    assert first.misc[:3] == ("_", "_", "TokenRange=5:9|SpaceAfter=No")
    assert second.forms == ("(", "Go", "!", ")")


@pytest.mark.parametrize(
    ("tokenize", "kind", "said"),
    [
        (lambda text: spacy_like(text, known=False), SettingsError, "sentencizer"),
        (lambda text: text.split(), ModelError, "lists of words"),
        (lambda text: 3, ModelError, "not int"),
        (lambda text: [["Its"]], ModelError, "'Its' is not in the text after character 0"),
        (lambda text: [["late", "It"]], ModelError, "not in the text after character 9"),
        (lambda text: [[(0, 99)]], ModelError, r"place \(0, 99\)"),
        (lambda text: [[(0, 4), (2, 6)]], ModelError, "not after 4"),
        (lambda text: [[3]], ModelError, "not 3"),
        ("spacy", SettingsError, "a tokenizer is a function"),
    ],
)
def test_what_is_no_tokenizer(tokenize, kind, said):
    with pytest.raises(kind, match=said):
        list(tokenized(TEXT, tokenize))


def test_names_of_tokenizers():
    assert tokenizer_named("test_tokens:words") is not None
    for name in ("spacy", "nosuchmodule:f", "re:nothing", "sys:path"):
        refused(SettingsError, "tokenizer: ", tokenizer_named, name)
    try:
        import spacy  # noqa: F401
    except ImportError:
        refused(RefusedError, "pip install spacy", tokenizer_named, "spacy:en_core_web_sm")


def test_unsplit_punctuation():
    assert unsplit(["It", "works,", "he", "said:", "3,000", "e.g.", "U.S.", "cars", "."]) == [
        "works,",
        "said:",
    ]
    assert unsplit(["(so", "what?)"]) == ["(so", "what?)"]
    assert unsplit([",", "...", "'s", "1.5", "well-known", ")", "end."]) == ["end."]
    assert unsplit(["end.", "of"]) == []


def test_parser_and_command(tmp_path, monkeypatch):
    pytest.importorskip("safetensors")
    from minfer.parsing import Parser, Recipe
    from minfer.parsing.tiny import tiny_treebank
    from test_cli import ok

    parser = Parser.train(tiny_treebank(), recipe=Recipe(epochs=1, first_epochs=1))
    first, second = parser.parse_text(TEXT, words, marginals=True)
    assert len(first.heads) == 7
    assert first.misc[0].startswith("TokenRange=0:2|SpaceAfter=No|ArcProb=")
    assert second.deprels.count("root") == 1
    parser.save(tmp_path / "en.model")
    (tmp_path / "story.txt").write_text(f"{TEXT}\nA dog barks. It, too.\n")
    done = ok("parse", "run", tmp_path / "en.model", tmp_path / "story.txt", "-o",
              tmp_path / "a.conllu")  # fmt: skip
    assert "4 words with punctuation that is not split off" in " ".join(done.stderr.split())
    done = ok("parse", "run", tmp_path / "en.model", tmp_path / "story.txt", "-o",
              tmp_path / "b.conllu", "--tokenizer", "test_tokens:words")  # fmt: skip
    assert "not split" not in done.stderr
    found = list(read_conllu(tmp_path / "b.conllu"))
    assert [len(s) for s in found] == [7, 4, 4, 4]
    assert found[2].misc[1].startswith("TokenRange=2:5")
