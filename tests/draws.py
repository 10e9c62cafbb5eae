"""How many cases a test takes: all in the thorough profile, a part in the everyday one.

MINFER_DRAWN_BLOCKS=1000 has tests that go on for ever take so many blocks of cases.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

from hypothesis import settings

Case = TypeVar("Case")


def thorough() -> bool:
    """Whether the profile is the one of CI, which draws 100 examples by itself."""
    return settings.default.max_examples >= 100


def blocks(n: int) -> int:
    """So many blocks of cases, or as many as MINFER_DRAWN_BLOCKS asks for."""
    return int(os.environ.get("MINFER_DRAWN_BLOCKS", n))


def draws(n: int) -> int:
    """``n`` examples where the profile draws 100 by itself, and in proportion."""
    return max(3, n * settings.default.max_examples // 100)


def few(cases: Iterable[Case], n: int) -> list[Case]:
    """All cases in the thorough profile, ``n`` of them from first to last in the everyday one."""
    found = list(cases)
    if thorough() or len(found) <= n:
        return found
    return [found[k * (len(found) - 1) // max(n - 1, 1)] for k in range(n)]
