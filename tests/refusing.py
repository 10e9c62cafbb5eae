"""Tables of calls that must end in an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refused(*cases: tuple[Callable[[], Any], type[Exception], str]) -> None:
    """Every call ends in its error, whose text matches the words, if there are any."""
    for call, error, words in cases:
        with pytest.raises(error, match=words or None):
            call()
