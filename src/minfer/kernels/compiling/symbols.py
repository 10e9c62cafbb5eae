"""One name, one body: every function that numba compiles has a symbol that no other ever has.

numba tells functions of one qualified name, types and options apart by a number that counts the
functions of *one process* (``FunctionIdentity._unique_ids``), and puts it into the name of their
machine code: ``...B3v38B...``. What another process loads from a cache then meets functions of its
own under the same name, and LLVM keeps one of the two: ``a + b`` where ``a - b`` was meant (numba
issue 10486). Here the number is 128 random bits, drawn for each function.

:func:`counted` finds what still has a counted name: functions that were compiled before this module
was loaded and are now part of a kernel. Such a kernel works, and is not kept.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import Any

#: What to do without: "symbols", "cache", "frugal" and "event", separated by commas. Tests force
#: the ways that are taken where a name of numba is missing.
WITHOUT = set(os.environ.get("MINFER_WITHOUT", "").split(","))

#: A part of the name of the cache folder: what was kept under counted names is never read again.
EDITION = "one name, one body, one key"

#: The number in a mangled name, length and letter before it: B3v38B.
_NUMBER = re.compile(rb"B(\d+)v(\d+)B")
_DIGITS = 30  # a counter never gets there, and of 10^9 random numbers one has fewer


class _Numbers:
    """An endless iterator over random numbers of 128 bits."""

    def __iter__(self) -> _Numbers:
        return self

    def __next__(self) -> int:
        return int.from_bytes(os.urandom(16), "little") | 1 << 127


def install() -> str:
    """Let numba number functions by :class:`_Numbers`; why not, if it cannot be done."""
    try:
        identity: Any = import_module("numba.core.bytecode").FunctionIdentity
        if not isinstance(identity._unique_ids, _Numbers):
            next(identity._unique_ids)
            identity._unique_ids = _Numbers()
        first, second = (identity.from_function(install).unique_id for _ in range(2))
    except Exception as error:  # another numba
        return f"{type(error).__name__}: {error}"
    if first == second or min(first, second) < 1 << 127:
        return "numba does not take the number of a function from where it did"
    return ""


def counted(code: bytes) -> str:
    """The first name in machine code with a number that a counter may have given; or nothing."""
    for match in _NUMBER.finditer(code):
        if int(match[1]) == len(match[2]) + 1 and len(match[2]) < _DIGITS:
            start = code.rfind(b"\0", 0, match.start()) + 1
            return code[start : code.find(b"\0", match.end())].decode("ascii", "replace")
    return ""


#: Why names are numba's own; empty where they are not. No kernel is kept on disk then.
UNAVAILABLE = "MINFER_WITHOUT has it" if "symbols" in WITHOUT else install()
