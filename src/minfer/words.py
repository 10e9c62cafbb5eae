"""Words for people: counts with their nouns, and foreign text made safe to print."""

from __future__ import annotations

import unicodedata

# Joiners are part of the spelling of words in several scripts; all other format characters, such as
# those that turn the direction of writing, are not to be seen and can make a line read wrong.
_JOINERS = "\u200c\u200d"
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def counted(n: int, noun: str) -> str:
    """A number and its noun, which has a regular plural.

    >>> counted(1, "sentence"), counted(2000, "sentence")
    ('1 sentence', '2,000 sentences')
    """
    return f"{n:,} {noun}{'s' * (n != 1)}"


def visible(text: str) -> str:
    r"""Text that is not ours (a name, a word, a path) as one line that a terminal can show.

    Control characters, line ends, bidirectional controls and halves of characters are escaped as in
    Python. Applied again it changes nothing. Files and JSON keep the true text.

    >>> print(visible("rain\x1b[31m"), visible("two\nlines"), visible("naïve"))
    rain\x1b[31m two\nlines naïve
    """
    if text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode()
        if unicodedata.category(c) in _HIDDEN and c not in _JOINERS
        else c
        for c in text
    )
