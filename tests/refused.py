"""One line for a call that must be refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refused(
    error: type[BaseException], words: str, function: Callable[..., Any], *args: Any, **named: Any
) -> None:
    """The call raises this error, in words that match; "" are any."""
    with pytest.raises(error, match=words or None):
        function(*args, **named)


def all_refused(*cases: tuple[Callable[[], Any], type[BaseException], str]) -> None:
    """Each call, which takes nothing, raises its error in its words."""
    for call, error, words in cases:
        refused(error, words, call)
