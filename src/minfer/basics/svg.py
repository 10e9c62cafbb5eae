"""Pictures as text, SVG: what those drawn in different places have in common."""

from __future__ import annotations

from html import escape


def begun(width: float, height: float, title: str, about: str, style: str) -> list[str]:
    """The first lines of a picture that needs no other file, with words for who cannot see it."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{safe(title)}</title>',
        f'<desc id="desc">{safe(about)}</desc>',
        f"<style>{style}\n</style>",
    ]


def written(x: float, y: float, text: str, kind: str = "") -> str:
    """Text at a place, of a class."""
    names = f' class="{kind}"' if kind else ""
    return f'<text{names} x="{x:.1f}" y="{y:.1f}">{safe(text)}</text>'


def safe(text: str) -> str:
    """Text as XML may have it.

    >>> safe("a < b\\x07")
    'a &lt; b '
    """
    return escape("".join(c if c.isprintable() else " " for c in text))
