"""Treebank files: CoNLL-U and CoNLL-X, read as a stream and written back with nothing lost.

One word per line in ten columns separated by tabs, an empty line after every sentence::

    ID FORM LEMMA UPOS    XPOS   FEATS HEAD DEPREL DEPS  MISC       CoNLL-U (Nivre et al. 2020)
    ID FORM LEMMA CPOSTAG POSTAG FEATS HEAD DEPREL PHEAD PDEPREL    CoNLL-X (Buchholz & Marsi 2006)

Words are numbered from 1; HEAD 0 is the root. CoNLL-U adds comments (``# ...``), multi-word ranges
(``3-4``) and empty nodes (``8.1``); they are not words, and stay where they are on output.

:mod:`minfer.parsing.treebank` accepts what people have. Writing gives one form: UTF-8, ``\\n``, one
empty line after each sentence. So a file in that form comes back byte for byte, except for the
columns a parse replaces.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import IO, Any, Literal, NoReturn, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_choice, check_type, told, warn
from minfer.basics.words import counted
from minfer.errors import FormatError, MinferError, ModelError, SettingsError
from minfer.io.text import PathLike, atomic_write
from minfer.parsing.projective import tree_fault
from minfer.parsing.treebank import SentenceLines, Source, read_blocks, read_units, source_name

Dialect = Literal["conllu", "conllx"]

ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, DEPS, MISC = range(10)

_UD_TAGS = {
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "CONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON"),
    *("PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X", "_"),
}
CUT_OFF = "the file ends inside a line, which has not all its 10 columns: it may be cut off"
_NUMBERS = {str(k): k for k in range(1000)}


# ---------------------------------------------------------------------- sentences


class Sentence:
    """A sentence as it stands in the file, and its words by column. Not to be changed in place.

    Attributes
    ----------
    text : the lines as read, without the empty line after them
    columns : ten tuples of n strings, see :data:`FORM` and the other column numbers
    heads : (n,) int32, the head of word i + 1, 0 for the root; None if the file has ``_``
    line : the number of its first line in the file
    dialect : ``"conllu"`` or ``"conllx"``
    """

    __slots__ = ("_changed", "_places", "columns", "dialect", "heads", "line", "text")

    text: str
    columns: tuple[tuple[str, ...], ...]
    heads: NDArray[np.int32] | None
    line: int
    dialect: Dialect
    _places: Sequence[int]  # the line of each word, counted from the sentence's first
    _changed: bool  # whether the columns differ from the text

    def __init__(
        self,
        text: str,
        columns: tuple[tuple[str, ...], ...],
        heads: NDArray[np.int32] | None,
        line: int,
        dialect: Dialect,
        places: Sequence[int],
        changed: bool = False,
    ) -> None:
        self.text, self.columns, self.heads = text, columns, heads
        self.line, self.dialect = line, dialect
        self._places, self._changed = places, changed

    @classmethod
    def from_forms(
        cls,
        forms: Sequence[str],
        upos: Sequence[str] | None = None,
        xpos: Sequence[str] | None = None,
    ) -> Sentence:
        """An unparsed sentence of given words.

        >>> print(Sentence.from_forms(["Birds", "sing"], upos=["NOUN", "VERB"]).forms)
        ('Birds', 'sing')
        """
        check_type(forms, Sequence, "words must be a list of strings", ModelError)
        n = len(forms)
        if not n:
            raise ModelError("a sentence needs at least one word")
        blank = ("_",) * n
        columns = [_ids(n), _strings("forms", forms, n), *[blank] * 8]
        if upos is not None:
            columns[UPOS] = _strings("upos", upos, n)
        if xpos is not None:
            columns[XPOS] = _strings("xpos", xpos, n)
        text = "\n".join(map("\t".join, zip(*columns)))
        return cls(text, tuple(columns), None, 1, "conllu", range(n))

    @classmethod
    def from_text(cls, text: str, line: int = 1) -> Sentence:
        """An unparsed sentence of words with blanks between them; the text becomes a comment.

        >>> print(Sentence.from_text("Birds sing").comments)
        ['# text = Birds sing']
        """
        check_type(text, str, "a sentence is text", ModelError)
        words = text.replace("\t", " ").replace("\r", " ").split(" ")
        plain = cls.from_forms([word for word in words if word])
        comment = f"# text = {' '.join(plain.forms)}\n"
        return cls(
            comment + plain.text, plain.columns, None, line, "conllu", range(1, len(plain) + 1)
        )

    def __len__(self) -> int:
        return len(self.columns[ID])

    @property
    def forms(self) -> tuple[str, ...]:
        return self.columns[FORM]

    @property
    def lemmas(self) -> tuple[str, ...]:
        return self.columns[LEMMA]

    @property
    def upos(self) -> tuple[str, ...]:
        """UPOS; CPOSTAG in CoNLL-X."""
        return self.columns[UPOS]

    @property
    def xpos(self) -> tuple[str, ...]:
        """XPOS; POSTAG in CoNLL-X."""
        return self.columns[XPOS]

    @property
    def feats(self) -> tuple[str, ...]:
        return self.columns[FEATS]

    @property
    def deprels(self) -> tuple[str, ...]:
        return self.columns[DEPREL]

    @property
    def misc(self) -> tuple[str, ...]:
        """MISC; PDEPREL in CoNLL-X."""
        return self.columns[MISC]

    @property
    def comments(self) -> list[str]:
        """The comment lines, with their ``#``."""
        return [line for line in self.text.split("\n") if line.startswith("#")]

    def with_parse(
        self,
        heads: ArrayLike | None = None,
        deprels: Sequence[str] | None = None,
        *,
        upos: Sequence[str] | None = None,
        xpos: Sequence[str] | None = None,
        misc: Mapping[str, Sequence[str | None]] | None = None,
    ) -> Sentence:
        """A copy with some columns replaced; what is None stays as it is.

        Parameters
        ----------
        heads : (n,) int, a tree (several roots are allowed)
        deprels, upos, xpos : n strings each
        misc : ``{key: n values}``, added to MISC as ``key=value``; a key already there is replaced,
            a value None leaves the word without it
        """
        n = len(self)
        columns, tree = list(self.columns), self.heads
        if heads is not None:
            tree = np.array(heads, dtype=np.int32)
            if tree.shape != (n,):
                raise ModelError(f"heads of shape {tree.shape} for {counted(n, 'word')}")
            numbers: list[int] = tree.tolist()
            if fault := tree_fault(numbers, multi_root=True):
                raise ModelError(f"heads: {fault[1]}")
            names = ("0", *_ids(n))
            columns[HEAD] = tuple([names[h] for h in numbers])
        replaced = (DEPREL, "deprels", deprels), (UPOS, "upos", upos), (XPOS, "xpos", xpos)
        for k, name, values in replaced:
            if values is not None:
                columns[k] = _strings(name, values, n)
        if misc:
            self.check_room()
            columns[MISC] = with_misc(columns[MISC], list(misc), _misc_items(misc, n))
        return self.replaced(columns, tree)

    def replaced(
        self, columns: Sequence[tuple[str, ...]], heads: NDArray[np.int32] | None
    ) -> Sentence:
        """A copy with other columns and heads, which are not looked at."""
        return Sentence(
            self.text, tuple(columns), heads, self.line, self.dialect, self._places, changed=True
        )

    def check_room(self) -> None:
        """Raise FormatError if MISC cannot be added to."""
        if self.dialect == "conllx" and any(label != "_" for label in self.columns[MISC]):
            raise FormatError(
                f"the sentence of line {self.line} is CoNLL-X with PDEPREL in column 10, where "
                "CoNLL-U has MISC: convert it to CoNLL-U to add probabilities"
            )

    def __str__(self) -> str:
        """The lines to write, without the empty line after them."""
        if not self._changed:
            return self.text
        rows = map("\t".join, zip(*self.columns))
        if isinstance(self._places, range):  # comments, then only words
            before = self._places.start
            return "\n".join([*self.text.split("\n", before)[:before], *rows])
        lines = self.text.split("\n")
        for place, row in zip(self._places, rows):
            lines[place] = row
        return "\n".join(lines)

    def __repr__(self) -> str:
        words = " ".join(self.forms[:8]) + " ..." * (len(self) > 8)
        return f"Sentence({words!r}, n={len(self)}, line={self.line})"


@dataclass(slots=True, eq=False, repr=False)
class BrokenSentence:
    """A sentence that could not be read: its bytes, to be passed on, and why."""

    raw: bytes  # the lines as read, without the empty line after them
    line: int  # the number of its first line in the file
    error: FormatError

    def __repr__(self) -> str:
        return f"BrokenSentence(line={self.line}, error={str(self.error)!r})"


def _strings(name: str, values: Sequence[str], n: int) -> tuple[str, ...]:
    """n strings that may stand in a column."""
    check_type(values, Sequence, f"{name} must be a list of strings", ModelError)
    values = tuple(values)
    if len(values) != n:
        raise ModelError(f"{len(values)} {name} for {counted(n, 'word')}")
    for value in values:
        check_type(value, str, f"{name} must be strings", ModelError)
    joined = "\n".join(values)
    if "\t" in joined or "\r" in joined or joined.count("\n") != n - 1 or "" in values:
        bad = next(k for k, v in enumerate(values) if not v or any(c in v for c in "\t\r\n"))
        raise ModelError(f"{name} of word {bad + 1}: {values[bad]!r} cannot stand in a column")
    return values


def _misc_items(additions: Mapping[str, Sequence[str | None]], n: int) -> list[str]:
    """``key=value|key=value`` for each of n words, empty where all values are None."""
    pairs = []
    for key, values in additions.items():
        if len(values) != n:
            raise ModelError(f"{len(values)} values of {key} for {counted(n, 'word')}")
        pairs.append(["" if v is None else f"{key}={v}" for v in values])
        if any(c in "".join(pairs[-1]) for c in "\t\r\n|") or not key or "=" in key:
            raise ModelError(f"MISC {key}: keys and values have no tab, line end or |, keys no =")
    return ["|".join(filter(None, items)) for items in zip(*pairs)]


def with_misc(column: Sequence[str], keys: Sequence[str], items: Sequence[str]) -> tuple[str, ...]:
    """MISC with items of some keys added to each word, in place of those it had."""
    out = []
    for old, new in zip(column, items):
        if old != "_":
            kept = [item for item in old.split("|") if item.partition("=")[0] not in keys]
            new = "|".join([*kept, new] if new else kept)
        out.append(new or "_")
    return tuple(out)


# ---------------------------------------------------------------------- one sentence


def parse_sentence(
    data: bytes | str,
    *,
    line: int = 1,
    source: str = "<text>",
    dialect: Dialect | None = None,
    multi_root: bool = False,
    heads: bool = True,
) -> Sentence:
    """The sentence of some lines.

    Parameters
    ----------
    data : the lines, without an empty one between them
    line, source : where they begin, for messages
    dialect : None tells it from the lines
    multi_root : whether several words may have head 0
    heads : whether HEAD is read; if not, whatever stands there is left alone
    """
    text = data if isinstance(data, str) else _decoded(data, line, source)
    text = text.rstrip("\n")
    lines = text.split("\n")
    start = 0
    while start < len(lines) and lines[start].startswith("#"):
        start += 1
    rows = [row.split("\t") for row in lines[start:]]
    places: Sequence[int] = range(start, len(lines))
    try:
        columns = tuple(zip(*rows, strict=True))
    except ValueError:
        columns = ()
    if len(columns) != 10 or "" in columns[FORM]:
        places, rows = _checked_rows(lines, line, source)
        columns = tuple(zip(*rows))
    if columns[ID] != _ids(len(rows)):
        words = _words(columns[ID], [line + place for place in places], source)
        places = [places[k] for k in words]
        columns = tuple(zip(*[rows[k] for k in words]))
    tree = _heads(columns[HEAD], places, line, source, multi_root) if heads else None
    return Sentence(text, columns, tree, line, dialect or _dialect(text, columns), places)


def _decoded(data: bytes, line: int, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        byte = data[error.start]
        _fail(source, line, f"byte 0x{byte:02x} is not UTF-8: convert the file to UTF-8")


def _checked_rows(lines: list[str], first: int, source: str) -> tuple[list[int], list[list[str]]]:
    """The rows among the lines, comments left out, after looking at each."""
    places = [k for k, text in enumerate(lines) if not text.startswith("#")]
    if not places:
        _fail(source, first, "a sentence without words: remove its lines or the empty line")
    rows = [lines[k].split("\t") for k in places]
    for place, row in zip(places, rows):
        if len(row) == 10 and row[FORM]:
            continue
        if len(row) == 10:
            fault = "FORM is empty: write _ where there is nothing"
        elif not "".join(row).strip():
            fault = "only blanks: an empty line should end the sentence"
        else:
            hint = "" if len(row) > 1 else "; columns are separated by tabs"
            fault = f"{counted(len(row), 'column')} instead of 10{hint}"
        _fail(source, first + place, fault)
    return places, rows


def _words(names: Sequence[str], numbers: Sequence[int], source: str) -> list[int]:
    """Which rows are words, by their ID; ranges and empty nodes must stand where they belong."""
    words: list[int] = []
    n = reach = minor = 0  # the last word, the end of the last range, the last empty node after n
    for k, name in enumerate(names):
        if _NUMBERS.get(name) == n + 1 or (_is_number(name) and int(name) == n + 1):
            words.append(k)
            n, minor = n + 1, 0
            continue
        low, sign, high = name.partition("-" if "-" in name else ".")
        if sign and _is_number(low) and _is_number(high):
            a, b = int(low), int(high)
            if sign == "-" and a == n + 1 and reach < a <= b:
                reach = b
                continue
            if sign == "." and a == n and minor < b:
                minor = b
                continue
        elif not _is_number(name):
            _fail(source, numbers[k], f"ID {name!r} is not a word (3), range (3-4) or node (3.1)")
        _fail(source, numbers[k], f"ID {name} stands where word {n + 1} should")
    if not words:
        _fail(source, numbers[0], "a sentence without words: remove its lines")
    if reach > n:
        _fail(source, numbers[-1], f"a range ends at {reach}, after the last word, {n}")
    return words


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _heads(
    column: tuple[str, ...], places: Sequence[int], line: int, source: str, multi_root: bool
) -> NDArray[np.int32] | None:
    try:
        heads = [_NUMBERS[head] for head in column]
    except KeyError:
        if column.count("_") == len(column):
            return None
        for place, head in zip(places, column):
            said = f"HEAD {head!r} is not a number from 0"
            if head == "_":
                said = "HEAD is _ while other words have one: give all heads or none"
            if not _is_number(head):
                _fail(source, line + place, said)
        heads = [int(head) for head in column]
    if fault := tree_fault(heads, multi_root):
        word, message = fault
        _fail(source, line + places[word - 1], message)
    return np.array(heads, dtype=np.int32)


def _dialect(text: str, columns: tuple[tuple[str, ...], ...]) -> Dialect:
    """CoNLL-U has comments, ranges, empty nodes, DEPS with a colon, or only universal tags."""
    if text.startswith("#") or text.count("\n") + 1 > len(columns[ID]):
        return "conllu"
    if any(":" in deps for deps in columns[DEPS]) or _UD_TAGS.issuperset(columns[UPOS]):
        return "conllu"
    return "conllx"


@lru_cache(maxsize=512)
def _ids(n: int) -> tuple[str, ...]:
    return tuple(map(str, range(1, n + 1)))


def _fail(source: str, line: int, message: str) -> NoReturn:
    raise FormatError(f"{source}: line {line}: {message}")


# ---------------------------------------------------------------------- files


@overload
def read_conllu(
    source: Source,
    *,
    on_error: Literal["fail", "skip"] = "fail",
    report: Callable[[BrokenSentence], object] | None = None,
    multi_root: bool = False,
    dialect: Dialect | None = None,
) -> Iterator[Sentence]: ...


@overload
def read_conllu(
    source: Source,
    *,
    on_error: Literal["keep"],
    report: Callable[[BrokenSentence], object] | None = None,
    multi_root: bool = False,
    dialect: Dialect | None = None,
) -> Iterator[Sentence | BrokenSentence]: ...


def read_conllu(
    source: Source,
    *,
    on_error: str = "fail",
    report: Callable[[BrokenSentence], object] | None = None,
    multi_root: bool = False,
    dialect: Dialect | None = None,
) -> Iterator[Sentence] | Iterator[Sentence | BrokenSentence]:
    """The sentences of a CoNLL-U or CoNLL-X file, one after the other.

    Parameters
    ----------
    source : path, ``-`` for standard input, or an open file (text or binary); gzip is recognised
    on_error : what to do with a bad sentence. ``fail`` raises, ``skip`` leaves it out, ``keep``
        yields a :class:`BrokenSentence` in its place, which :func:`write_conllu` passes on
    report : called with every sentence skipped or kept; by default a skipped one is a warning
    multi_root : whether several words of a sentence may have head 0
    dialect : ``conllu`` or ``conllx``; None: as in the first sentence

    Raises
    ------
    FormatError : with file, line, and what is wrong; always if the file itself cannot be read
    """
    check_choice("on_error", on_error, ("fail", "skip", "keep"))
    if dialect is not None:
        check_choice("dialect", dialect, ("conllu", "conllx"))
    if report is None and on_error == "skip":
        report = _warn

    def sentences(dialect: Dialect | None) -> Iterator[Any]:
        name = source_name(source)
        for block in read_blocks(source):
            try:
                sentence = parse_block(block, name, dialect=dialect, multi_root=multi_root)
            except FormatError as error:
                if on_error == "fail":
                    raise
                broken = BrokenSentence(block.data, block.line, error)
                if report is not None:
                    report(broken)
                if on_error == "keep":
                    yield broken
                continue
            dialect = sentence.dialect
            yield sentence

    return sentences(dialect)


def read_treebank(path: str, **settings: Any) -> list[Sentence]:
    """All sentences of a treebank, each of which has heads; settings of :func:`read_conllu`."""
    sentences: list[Sentence] = list(read_conllu(path, **settings))
    if not sentences:
        raise ModelError(f"{path}: no sentence in it")
    for sentence in sentences:
        if sentence.heads is None:
            raise ModelError(f"{path}: line {sentence.line}: this sentence has no heads")
    return sentences


def sentence_meant(text: str, number: int = 1, *, heads: bool = True) -> Sentence:
    """The sentence that is meant: that of a number in a file, or the text itself."""
    if text == "-" or os.path.exists(text):
        layout, blocks = read_units(text)
        block = next(islice(blocks, number - 1, number), None)
        if block is None:
            raise SettingsError(f"{text} has fewer than {counted(number, 'sentence')}")
        if layout == "text":
            return parse_line(block, source_name(text))
        try:
            return parse_block(block, source_name(text), multi_root=True, heads=heads)
        except MinferError as error:
            raise FormatError(f"sentence {number}: {error}") from None
    if number != 1:
        raise SettingsError(f"sentence {number} is of a file, and there is no file {text!r}")
    if os.path.splitext(text)[1] and " " not in text.strip():
        raise SettingsError(f"there is no file {text}, and a single word is not a sentence")
    if not text.strip():
        raise SettingsError("the sentence has no words")
    sentence = Sentence.from_text(text)
    if words := unsplit(sentence.forms):
        warn(f"{words[0]!r} is taken as one word: separate punctuation by spaces")
    return sentence


def unsplit(words: Iterable[str], last: bool = True) -> list[str]:
    """Words with punctuation that is not split off: "works," and, as the ``last`` one, "book.".

    >>> unsplit("It works, Mr. Smith said: (yes) e.g. U.S. 3,000 book.".split())
    ['works,', 'said:', '(yes)', 'book.']
    """
    listed = list(words)
    found = []
    for k, word in enumerate(listed):
        ends = ',;:?!)]"»”' + "." * (last and k == len(listed) - 1)
        core = word.strip('.,;:?!()[]"«»“”')
        is_word = len(word) > 1 and core and core[0].isalnum()
        if is_word and ((word[-1] in ends and core[-1].isalnum()) or word[0] in '(["«“'):
            found.append(word)
    return found


def parse_block(block: SentenceLines, source: str, **settings: Any) -> Sentence:
    """The sentence of a block; settings are those of :func:`parse_sentence`."""
    if block.cut:
        _fail(source, block.line + block.data.count(b"\n"), CUT_OFF)
    return parse_sentence(block.data, line=block.line, source=source, **settings)


def parse_line(block: SentenceLines, source: str) -> Sentence:
    """The sentence of a line of text."""
    return Sentence.from_text(text_of_line(block, source), block.line)


def text_of_line(block: SentenceLines, source: str) -> str:
    """A line of text."""
    return _decoded(block.data, block.line, source)


def _warn(broken: BrokenSentence) -> None:
    warnings.warn(f"sentence skipped: {broken.error}", stacklevel=4)


def write_conllu(
    sentences: Iterable[Sentence | BrokenSentence], target: PathLike | IO[bytes] | IO[str]
) -> int:
    """Write sentences as they come, broken ones as they were; how many were written.

    A file appears under its name only when complete; ``-`` is standard output, ``.gz`` compresses.
    """
    check_type(sentences, Iterable, "write_conllu takes sentences", ModelError)
    if isinstance(target, str | os.PathLike):
        with atomic_write(target) as file:
            return write_conllu(sentences, file)
    if not hasattr(target, "write"):
        raise SettingsError(f"the target must be a path or an open file, not {told(target)}")
    write: Any = target.write
    text, count = isinstance(target, io.TextIOBase), 0
    for count, sentence in enumerate(sentences, 1):  # noqa: B007
        if isinstance(sentence, BrokenSentence):
            data = sentence.raw + b"\n\n"
            write(data.decode(errors="replace") if text else data)
        else:
            lines = f"{sentence}\n\n"
            write(lines if text else lines.encode())
    return count
