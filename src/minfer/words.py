"""Counts in sentences for people."""

from __future__ import annotations


def counted(n: int, noun: str) -> str:
    """A number and its noun, which has a regular plural.

    >>> counted(1, "sentence"), counted(2000, "sentence")
    ('1 sentence', '2,000 sentences')
    """
    return f"{n:,} {noun}{'s' * (n != 1)}"
