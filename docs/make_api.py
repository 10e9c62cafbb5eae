"""Write the tables of the pages in docs/api: every name, how it is called, and what it is.

The full text of the site comes from the docstrings while it is built; the tables are what a
reader of the repository sees. ``python docs/make_api.py`` writes them, between the markers
``<!-- begin names -->`` and ``<!-- end names -->`` of each page, from the directives below them;
with ``--check`` it exits with 1 if one is out of date.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minfer_experiments.pages import table

PAGES = Path(__file__).with_name("api")
BEGIN, END = "<!-- begin names -->\n", "<!-- end names -->\n"
MADE = re.compile(rf"{re.escape(BEGIN)}.*?{re.escape(END)}\n", flags=re.S)
FENCE = re.compile(r"^```{eval-rst}\n.*?^```$", flags=re.M | re.S)
DIRECTIVE = re.compile(r"^\.\. auto(\w+):: (\S+)\n?((?:   :.*\n?)*)", flags=re.M)


def page(text: str) -> str:
    """The page with a table before each block of directives."""
    return FENCE.sub(with_table, MADE.sub("", text))


def with_table(fence: re.Match[str]) -> str:
    """A block of directives, after the table of what they name."""
    found = [(name, what) for name, what in rows(fence[0]) if what]
    return f"{BEGIN}\n{table(['name', 'what it is'], found)}\n\n{END}\n{fence[0]}"


def rows(text: str) -> Iterator[tuple[str, str]]:
    """Each name of the directives, and the members that are asked for."""
    for kind, path, options in DIRECTIVE.findall(text):
        found = re.search(r":members:(.*)", options)
        asked = [m.strip() for m in found[1].split(",") if m.strip()] if found else []
        if kind == "module":
            module = importlib.import_module(path)
            for key in asked:
                yield (
                    called(f"{path}.{key}".removeprefix("minfer."), getattr(module, key)),
                    (first_sentence(getattr(module, key))),
                )
            continue
        where, _, name = path.rpartition(".")
        thing = getattr(importlib.import_module(where), name)
        yield called(path.removeprefix("minfer."), thing), first_sentence(thing)
        if found is None or not isinstance(thing, type):
            continue
        for key in asked or own_members(thing, inherited=":inherited-members:" in options):
            member = inspect.getattr_static(thing, key)
            member = getattr(member, "__func__", member)
            yield called(f".{key}", member, of=thing), first_sentence(member)


def own_members(kind: type, inherited: bool) -> list[str]:
    """What autodoc shows of a class: public, with a docstring, in the order of the source."""
    bases = [b for b in kind.__mro__ if b.__module__.startswith("minfer")] if inherited else [kind]
    found = {key: member for base in bases for key, member in vars(base).items()}
    return [k for k, m in found.items() if not k.startswith("_") and inspect.getdoc(m) and told(m)]


def told(member: Any) -> bool:
    """Is it a method or a property, not a default of a field?"""
    return isinstance(member, (classmethod, staticmethod, property)) or inspect.isfunction(member)


def called(name: str, thing: Any, of: type | None = None) -> str:
    """The name with its parameters; a property, an enumeration or an error has none."""
    hidden = isinstance(thing, type) and issubclass(thing, (BaseException, str, np.ndarray))
    if not callable(thing) or hidden:
        return f"`{name}`"
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return f"`{name}`"
    skip = of is not None and not isinstance(inspect.getattr_static(of, name[1:]), staticmethod)
    parts, star = [], False
    for p in list(found.parameters.values())[skip:]:
        if p.name.startswith("_"):
            continue
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
        star |= p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        sign = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(f"{sign}{p.name}{'' if p.default is p.empty else '=' + default(p.default)}")
    return f"`{name}({', '.join(parts)})`"


def default(value: Any) -> str:
    """Short, and the same on every machine."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    return "..."


def first_sentence(thing: Any) -> str:
    """Of its docstring, as Markdown in a cell."""
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    text = re.split(r"(?<=[.:;])\s(?=[A-Z`])", text)[0].rstrip(":;")
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    return text.replace("|", r"\|")


def main() -> None:
    for path in sorted(PAGES.glob("*.md")):
        text = path.read_text("utf-8")
        if "--check" not in sys.argv[1:]:
            path.write_text(page(text), "utf-8")
        elif text != page(text):
            sys.exit(f"docs/api/{path.name} is out of date: run `python docs/make_api.py`")


if __name__ == "__main__":
    main()
