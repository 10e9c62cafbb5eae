"""The file: data, style and script in one HTML page that asks the network for nothing.

The page's own security policy allows only this style and this script, by their hashes. Data lie in
the page as JSON with ``<``, ``>`` and ``&`` escaped, and the script shows them as text only, so no
name in a model can become markup.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

import minfer

#: Parts of each kind's script, in order; they share one scope of their own.
SCRIPTS = {
    "report": (
        "page.js",
        "tools.js",
        "plots.js",
        "numbers.js",
        "table.js",
        "graph.js",
        "picture.js",
        "sentence.js",
        "report.js",
    ),
    "explore": ("page.js", "engine.js", "cards.js", "view.js", "panel.js", "explore.js"),
}


def page(data: dict[str, Any], title: str, kind: str = "report") -> str:
    """Some data as a whole HTML page, a report or one to explore a network with."""
    style = _resource(f"{kind}.css")
    parts = "\n".join(_resource(name) for name in SCRIPTS[kind])
    script = f'"use strict";\n(() => {{\n{parts}}})();\n'
    plain = title.encode("utf-8", "replace").decode()  # file names may hold half characters
    text = json.dumps({"title": title, "minfer": minfer.__version__, **data}, allow_nan=False,
                      separators=(",", ":"))  # fmt: skip
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    places = {
        "title": escape(plain),
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "data": text,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda m: places[m[1]], _resource(f"{kind}.html"))


def _resource(name: str) -> str:
    return files(__package__).joinpath("web", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
