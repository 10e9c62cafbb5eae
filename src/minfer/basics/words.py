"""Words for people: counts with nouns, times, sizes, ends of intervals; and values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from math import isfinite
from typing import Any


def counted(n: int, noun: str) -> str:
    """A number and its noun, which has a regular plural.

    >>> counted(1, "sentence"), counted(2000, "sentence")
    ('1 sentence', '2,000 sentences')
    """
    return f"{n:,} {noun}{'s' * (n != 1)}"


def a_or_an(noun: str) -> str:
    """A noun with its article, by how it is spelt.

    >>> a_or_an("exactly-one factor"), a_or_an("clause")
    ('an exactly-one factor', 'a clause')
    """
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def listed(words: Sequence[str]) -> str:
    """
    >>> listed(["bp", "trw", "join-graph"])
    'bp, trw and join-graph'
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def and_more(n: int, what: str = "") -> str:
    """What a table leaves out; nothing if it has all.

    >>> and_more(1200, "none larger"), and_more(0)
    ('and 1,200 more, none larger', '')
    """
    return f"and {n:,} more{', ' * bool(what)}{what}" if n > 0 else ""


def outward(lo: float, hi: float) -> tuple[str, str]:
    """The ends of an interval of probabilities, rounded so that it still holds: four digits, or up
    to six where it is narrower.

    Without digits where an end is 0 or 1: a state that is certain, or of which nothing is known.

    >>> outward(0.12345, 0.56781), outward(0.0, 1 / 3), outward(0.3125, 0.3125 + 1e-9)
    (('0.1234', '0.5679'), ('0', '0.3334'), ('0.312500', '0.312501'))
    """
    last = Decimal(next((s for s in ("0.0001", "0.00001") if float(s) <= hi - lo), "0.000001"))
    return _end(lo, last, ROUND_FLOOR), _end(hi, last, ROUND_CEILING)


def _end(p: float, last: Decimal, rounding: str) -> str:
    return f"{p:g}" if p in (0.0, 1.0) else str(Decimal(float(p)).quantize(last, rounding))


def ends(lo: float, hi: float) -> str:
    """An interval of probabilities, rounded outward: what is printed holds, too."""
    return "[{}, {}]".format(*outward(lo, hi))


def probability(p: float) -> str:
    """Four digits; a small one keeps its size rather than reading as zero."""
    return f"{p:.0e}" if 0 < p < 5e-5 else f"{p:.4f}"


def upwards(x: float) -> str:
    """A number with two digits, at least as large.

    >>> upwards(0.0321), upwards(1.0)
    ('0.033', '1')
    """
    return f"{float(Context(prec=2, rounding=ROUND_CEILING).create_decimal(float(x))):g}"


def duration(seconds: float) -> str:
    """Seconds with three digits, in a unit that fits.

    >>> duration(0.0123), duration(4e-5), duration(2345.0)
    ('12.3 ms', '40 us', '2,345 s')
    """
    if seconds < 1e-6:
        return "< 1 us"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def power(bits: float) -> str:
    """2 to the power of ``bits``, with one digit behind the point where there is something there.

    >>> power(52.0), power(20.317)
    ('2^52', '2^20.3')
    """
    return f"2^{bits:.1f}".removesuffix(".0")


def size(memory: float) -> str:
    """Bytes in MiB."""
    return f"{memory / 2**20:,.1f} MiB"


def plain(value: Any) -> Any:
    """Plain Python values, ready for JSON: what is not finite becomes None, arrays become lists.

    >>> plain({"p": (0.5, float("nan")), "n": 2})
    {'p': [0.5, None], 'n': 2}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # of numpy
        return plain(value.tolist())
    return None if isinstance(value, float) and not isfinite(value) else value
