"""How many examples Hypothesis draws: all in the thorough profile, a part in the everyday one."""

from __future__ import annotations

from hypothesis import settings


def draws(n: int) -> int:
    """``n`` examples where the profile draws 100 by itself, and in proportion."""
    return max(3, n * settings.default.max_examples // 100)
