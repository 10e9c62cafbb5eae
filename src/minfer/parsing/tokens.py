"""Words from a tokenizer, spaCy's, Stanza's or any function, with their places in the text.

A tokenizer is called with a text and returns

* a `Doc` of spaCy, whose sentences are known (from a parser, senter or sentencizer);
* a `Document` of Stanza, whose words are taken, with the ranges of multi-word tokens;
* or sentences as lists of words, which are looked for in the text one after the other, or of
  (begin, end), places in it.

Sentences get a comment ``# text``, and words in MISC ``TokenRange=begin:end`` (in characters of the
text, as UDPipe writes it) and ``SpaceAfter=No`` (CoNLL-U).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from minfer.basics.checks import load
from minfer.errors import ModelError, SettingsError, visible
from minfer.parsing.conllu import Sentence, parse_sentence

Tokenizer = Callable[[str], Any]


class TextToken(NamedTuple):
    """Where a token begins and ends, and its words: more than one in a multi-word token."""

    begin: int
    end: int
    words: tuple[str, ...]


def tokenized(text: str, tokenize: Tokenizer, line: int = 1) -> Iterator[Sentence]:
    """The sentences of a text, unparsed; ``line`` is where it stands in a file.

    >>> for sentence in tokenized("Birds sing. Well!", lambda text: [["Birds", "sing", "."]]):
    ...     print(sentence.forms, sentence.misc[:2])
    ('Birds', 'sing', '.') ('TokenRange=0:5', 'TokenRange=6:10|SpaceAfter=No')
    """
    if not callable(tokenize):
        raise SettingsError(
            "a tokenizer is a function of a text, as nlp = spacy.load(...) and stanza.Pipeline are"
        )
    found = tokenize(text)
    for tokens in _of_any(text, found):
        if tokens:
            yield _sentence(text, tokens, line)


def _sentence(text: str, tokens: list[TextToken], line: int) -> Sentence:
    rows, number = [], 0
    for token in tokens:
        place = f"TokenRange={token.begin}:{token.end}"
        if text[token.end : token.end + 1].strip():
            place += "|SpaceAfter=No"
        several = len(token.words) > 1
        if several:
            whole = _cell(text[token.begin : token.end])
            ids = f"{number + 1}-{number + len(token.words)}"
            rows.append("\t".join([ids, whole, *["_"] * 7, place]))
        for word in token.words:
            number += 1
            rows.append(
                "\t".join([str(number), _cell(word), *["_"] * 7, "_" if several else place])
            )
    said = " ".join(text[tokens[0].begin : tokens[-1].end].split())
    data = "\n".join([f"# text = {said}", *rows])
    return parse_sentence(data, line=line, source="tokens", dialect="conllu", heads=False)


def _cell(word: str) -> str:
    return " ".join(word.split())


def _of_any(text: str, found: Any) -> Iterator[list[TextToken]]:
    """What a tokenizer returned, sentence by sentence."""
    if hasattr(found, "sents"):
        if not found.has_annotation("SENT_START"):
            raise SettingsError(
                "the tokenizer does not know where sentences end: nlp.add_pipe('sentencizer')"
            )
        for sentence in found.sents:
            yield [
                TextToken(t.idx, t.idx + len(t.text), (t.text,)) for t in sentence if not t.is_space
            ]
        return
    if hasattr(found, "sentences"):
        for sentence in found.sentences:
            yield [
                TextToken(t.start_char, t.end_char, tuple(w.text for w in t.words))
                for t in sentence.tokens
            ]
        return
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise ModelError(
            "a tokenizer must return a Doc of spaCy, a Document of Stanza, or a list of sentences, "
            f"each a list of words or of (begin, end), not {type(found).__name__}"
        )
    at = 0
    for sentence in found:
        tokens = []
        for item in [sentence] if isinstance(sentence, str) else sentence:
            if isinstance(sentence, str) or not (isinstance(item, str) or _is_place(item)):
                raise ModelError(
                    "a tokenizer must return sentences as lists of words or of (begin, end), not "
                    f"{item!r} in {type(sentence).__name__}"
                )
            if isinstance(item, str):
                begin = text.find(item, at) if item.strip() else -1
                if begin < 0:
                    raise ModelError(
                        f"the tokenizer's word {visible(item)!r} is not in the text after "
                        f"character {at}: give (begin, end) for words that it changes"
                    )
                end = begin + len(item)
            else:
                begin, end = map(int, item)
                if not (at <= begin < end <= len(text)) or not text[begin:end].strip():
                    raise ModelError(
                        f"the tokenizer's place ({begin}, {end}) is empty, or not after {at} in a "
                        f"text of {len(text)} characters"
                    )
            at = end
            tokens.append(TextToken(begin, end, (text[begin:end],)))
        yield tokens


def _is_place(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and all(hasattr(x, "__index__") for x in item)


def tokenizer_named(name: str) -> Tokenizer:
    """``spacy:MODEL``, ``stanza:LANGUAGE``, or ``module:function``, a function of a text."""
    kind, colon, what = name.partition(":")
    if not (kind and colon and what):
        raise SettingsError(
            f"tokenizer: {name!r} is not spacy:MODEL, stanza:LANGUAGE or module:function"
        )
    if kind == "spacy":
        spacy = load("spacy", "this tokenizer needs")
        try:
            nlp = spacy.load(what)
        except OSError as error:
            raise SettingsError(f"tokenizer: spacy:{what}: {error}") from None
        if not {"parser", "senter", "sentencizer"} & {*nlp.pipe_names}:
            nlp.add_pipe("sentencizer")
        return nlp
    if kind == "stanza":
        stanza = load("stanza", "this tokenizer needs")
        return stanza.Pipeline(what, processors="tokenize,mwt", verbose=False)
    try:
        found = getattr(import_module(kind), what)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"tokenizer: {name}: {error}") from None
    if not callable(found):
        raise SettingsError(f"tokenizer: {name} is no function")
    return found
