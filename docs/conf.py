"""The documentation site: ``sphinx-build -W docs build/docs`` (needs the extra ``docs``).

The built pages are complete: formulas become MathML while the site is built, so that a browser
fetches nothing from elsewhere.
"""

from __future__ import annotations

from typing import Any

from docutils.nodes import Element, SkipNode
from latex2mathml.converter import convert

from minfer import __version__

project = "minfer"
author = "The minfer authors"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = f"minfer {release}"
html_show_copyright = False
html_math_renderer = "mathml"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # the docstrings have the parameters' types, in words
napoleon_google_docstring = False
napoleon_use_ivar = True


def setup(app: Any) -> None:
    inline = lambda translator, node: write_math(translator, node, "inline")  # noqa: E731
    app.add_html_math_renderer("mathml", (inline, None), (write_math, None))
    app.connect("autodoc-process-signature", add_return_type)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)  # before napoleon


def write_math(translator: Any, node: Element, display: str = "block") -> None:
    """A formula as MathML."""
    formula = convert(node.astext(), display=display)
    for name in ("log", "exp"):  # browsers set no space after the name of a function
        formula = formula.replace(f"<mi>{name}</mi>", f'<mi>{name}</mi><mspace width="0.17em"/>')
    translator.body.append(formula)
    raise SkipNode


def add_return_type(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: Any
) -> tuple[str | None, str | None]:
    """Say what a function returns, in the words of the source."""
    found = getattr(thing, "__annotations__", {}).get("return") if what != "class" else None
    return signature, found if isinstance(found, str) else None


def keep_colons(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Napoleon takes "word: text" in a property's first line for its type: begin with no line."""
    if what == "property":
        lines.insert(0, "")


# plain words in the types of docstrings ("states", "numbers") are no references
suppress_warnings = ["ref.python"]
