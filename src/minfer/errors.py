"""The errors minfer raises, each naming the place and saying what to do, as one printable line.

All derive from :class:`MinferError`; the command line maps them to exit codes.
"""

from __future__ import annotations

import errno
import unicodedata
from collections.abc import Callable
from typing import Any

# Joiners are part of the spelling of words in several scripts; all other format characters, such as
# those that turn the direction of writing, are not to be seen and can make a line read wrong.
_JOINERS = "\u200c\u200d"
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


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


class MinferError(Exception):
    """Base of every error minfer raises on purpose. Its text is one line, safe to print."""

    exit_code = 3

    def __str__(self) -> str:
        return visible(super().__str__())


class ModelError(MinferError, ValueError):
    """The model itself is wrong: a shape, a NaN, a variable out of range, a name twice."""


class EvidenceError(MinferError, ValueError):
    """Evidence names an unknown variable or state, or has the wrong shape."""


#: What a ContradictionError says where it is not known which observations are to blame.
NOTHING_POSSIBLE = (
    "every assignment has probability zero: the model's zeros, or the model's zeros and the "
    "evidence, contradict each other"
)


class ContradictionError(MinferError, ValueError):
    """Every assignment has probability zero: the model contradicts itself or the evidence.

    A proof from zeros of the model and the evidence; numbers that are too small raise none.
    Finding which observations are to blame takes time, so the text may be made on first use.
    """

    def __init__(self, message: str = "", ask: Callable[[], str | None] | None = None) -> None:
        super().__init__(message)
        self.ask = ask

    def __str__(self) -> str:
        if self.ask is not None:
            ask, self.ask = self.ask, lambda: None
            found = ask()
            if found:
                self.args = (found,)
        return super().__str__()

    def __reduce__(self) -> tuple[type[ContradictionError], tuple[str]]:
        return type(self), (str(self),)


class FormatError(MinferError, ValueError):
    """A file does not follow its format; the message gives file, line and token."""


class RefusedError(MinferError):
    """A solver declines a model it cannot handle or that would not fit, and names one that can."""

    exit_code = 4


class SettingsError(MinferError, ValueError):
    """A setting or argument is of the wrong type, out of its range or unknown."""

    exit_code = 2


class DeviceError(MinferError):
    """A device that was asked for is not there, fails, or has no room; what to do is said."""

    exit_code = 4


class NotFittedError(MinferError, ValueError, AttributeError):
    """An estimator is used before it has learned: call ``fit`` first."""

    exit_code = 2


class WorkerError(MinferError):
    """A worker process died, of its own accord or because the system killed it."""

    exit_code = 1


class MiscompiledError(MinferError):
    """Machine code of a kernel gives wrong answers on this machine, and was not used."""

    exit_code = 1


class DiskFullError(MinferError):
    """There is no room left to write: the disk is full, or a quota on it."""

    exit_code = 6


_FULL = {
    errno.ENOSPC: "the disk is full",
    getattr(errno, "EDQUOT", -1): "the disk quota is used up",
}


def fullness(error: BaseException) -> str | None:
    """What a full disk is called in messages; None if the error is of another kind."""
    if isinstance(error, DiskFullError):
        return str(error)
    return _FULL.get(error.errno or 0) if isinstance(error, OSError) else None


def renamed(**names: str) -> Callable[[object, str], Any]:
    """A ``__getattr__`` for a class whose attributes were renamed: it names the new one."""

    def missing(self: object, name: str) -> Any:
        hint = f": it is called {names[name]}" if name in names else ""
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    return missing
