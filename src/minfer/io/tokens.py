"""Text formats with words: BIF and NET as tokens that know their place.

All tokens are cut at once by one regular expression, and numbers are converted by the table; only
an error looks for line and column. Comments are blanked beforehand, character for character, so
that places stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import NoReturn

import numpy as np

from minfer.errors import FormatError, MinferError, visible
from minfer.factors.group import Floats
from minfer.io.text import MAX_TOKEN, check_text

#: A string on one line; backslash escapes. One that is not closed ends with its line.
STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'

_SHOWN = 40


class Tokens:
    """The tokens of a text in UTF-8; in a ``comment``, if there are some, ``/*`` runs to ``*/``."""

    def __init__(self, name: str, data: bytes, token: re.Pattern[str], comment: str = "") -> None:
        check_text(name, data)
        self.name, self.n_bytes, self._token = name, len(data), token
        try:
            self._text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode("utf-8", "replace")
            line, column = _place(before, len(before))
            raise FormatError(
                f"{name}: line {line}, column {column}: the text is not UTF-8; convert it, for "
                "instance with iconv -f latin1 -t utf-8"
            ) from None
        if comment:
            self._text = re.sub(f"{STRING}|{comment}", self._blank, self._text)
        self.words: list[str] = token.findall(self._text)

    def __len__(self) -> int:
        return len(self.words)

    def _blank(self, match: re.Match[str]) -> str:
        found = match[0]
        if found[0] == '"':
            return found
        if found.startswith("/*") and not (found.endswith("*/") and len(found) >= 4):
            line, column = _place(self._text, match.start())
            raise FormatError(
                f"{self.name}: line {line}, column {column}: this comment is never closed"
            )
        return re.sub(r"[^\n]", " ", found)

    def get(self, k: int, what: str) -> str:
        """The k-th token, which must be there."""
        if k >= len(self.words):
            self.ends(f"{what} is missing")
        return self.words[k]

    def expect(self, k: int, *wanted: str) -> int:
        """The place after some tokens that must follow now."""
        for word in wanted:
            if self.get(k, repr(word)) != word:
                self.fail(k, f"expected {word!r}")
            k += 1
        return k

    def find(self, word: str, k: int, what: str) -> int:
        """Where a token comes next."""
        try:
            return self.words.index(word, k)
        except ValueError:
            self.ends(f"{what} has no {word!r}")

    def string(self, k: int, what: str) -> str:
        """A name: a quoted string or a plain word."""
        word = self.get(k, what)
        if word[0] == '"':
            return self.unquoted(k)
        if len(word) == 1 and word in '{}()[];|="':
            self.fail(k, f"{what} should stand here")
        return word

    def unquoted(self, k: int) -> str:
        """What a string says."""
        word = self.words[k]
        body = word[1:-1]
        # a last quote that is itself escaped closes nothing
        escaped = (len(body) - len(body.rstrip("\\"))) % 2
        if len(word) < 2 or word[-1] != '"' or escaped:
            self.fail(k, "this string is not closed on its line")
        return re.sub(r"\\(.)", r"\1", body) if "\\" in body else body

    def integer(self, k: int, what: str) -> int:
        """A count, written in at most nine digits."""
        word = self.get(k, what)
        if not (word.isascii() and word.isdigit() and len(word) < 10):
            self.fail(k, f"{what} should be a number below 10**9")
        return int(word)

    def numbers(self, spans: Sequence[tuple[int, int]]) -> Floats:
        """The numbers in some runs of tokens: not negative, finite."""
        return self.numbers_at([k for span in spans for k in range(*span)])

    def numbers_at(self, places: Sequence[int]) -> Floats:
        """As :meth:`numbers`, of single tokens."""
        values = to_numbers([self.words[k] for k in places])
        if isinstance(values, int):
            self.fail(places[values], number_complaint(self.words[places[values]]))
        return values

    def fail(self, k: int, message: str, error: type[MinferError] = FormatError) -> NoReturn:
        """Raise an error about the k-th token."""
        if k >= len(self.words):
            self.ends(message)
        match = next(islice(self._token.finditer(self._text), k, None))
        if k == len(self.words) - 1:
            message += " (the file ends here: is it cut off?)"
        line, column = _place(self._text, match.start())
        raise error(
            f"{self.name}: line {line}, column {column}, token '{shortened(match[0])}': {message}"
        )

    def ends(self, message: str) -> NoReturn:
        """Raise an error about a file that ends too early."""
        text = self._text.rstrip()
        line, column = _place(text, len(text))
        raise FormatError(
            f"{self.name}: line {line}, column {column}: the file ends too early: {message}"
        )


def to_numbers(words: Sequence[str]) -> Floats | int:
    """Words as numbers, none negative and all finite; or the first word that is no such number."""
    joined = "".join(words)
    if joined.isascii() and "_" not in joined:  # float() takes more than a file should hold
        try:
            values = np.array(list(map(float, words)), dtype=np.float64)
        except ValueError:
            pass
        else:
            wrong = ~(np.isfinite(values) & (values >= 0))
            if not wrong.any():
                return values
    return next(k for k, word in enumerate(words) if number_complaint(word))


def number_complaint(word: str) -> str:
    """What is wrong with a word that should be a probability; empty if nothing."""
    if len(word) > MAX_TOKEN:
        return f"{len(word):,} characters are not a number"
    try:
        value = float(word) if word.isascii() and "_" not in word else None
    except ValueError:
        value = None
    if value is None:
        return "expected a number"
    if value < 0:
        return "a negative number is not allowed"
    if not np.isfinite(value):
        return f"{'NaN' if np.isnan(value) else 'an infinite or too large number'} is not allowed"
    return ""


def shortened(token: str) -> str:
    """A token as messages show it."""
    return visible(token[:_SHOWN]) + "..." * (len(token) > _SHOWN)


def _place(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
