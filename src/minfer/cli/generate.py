"""One generator of options: parameters of a command and fields of a dataclass are options.

    @dataclass(frozen=True)
    class Limits(Options):
        panel = "Reduction"
        max_factors: int | None = option("M  Add at most M factors.")

    @command()
    def run(model: str = argument("MODEL  Model file.", file=IN), *, limits: Limits) -> None: ...

``--max-factors`` then stands in the help, in its panel, and the command gets its ``limits`` made.
Files and words that an option can be are checked before the command runs. A :func:`setting` takes
its help and its default from the class or function that documents it, the ``home`` of its command
or group; and settings that are handed on as they are need no declaration at all:

    recipe: Given = taken("minfer.parsing:Recipe", "first_epochs epochs", bits="B")

gives the command a ``recipe``, by name, for ``Recipe(**recipe)``.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from functools import cache, cached_property
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, NamedTuple, Optional, get_args, get_type_hints

import typer

from minfer.basics.checks import check_choice
from minfer.cli.failures import Group, running
from minfer.cli.files import Used, check_files

Words = list[str] | None
Given = dict[str, Any]
KINDS: dict[str, type] = {"bool": bool, "int": int, "float": float}  # all else is typed as words
METAVARS: dict[type, str] = {int: "N", float: "X", str: "WORD"}
_WORDS = re.compile(r"[a-z0-9-]+(\|[a-z0-9-]+)*")  # a metavar that says what there is


def option(text: str, default: Any = None, **more: Any) -> Any:
    """A parameter or field that is an option, in the words of its help.

    ``-o FILE  Where to.``: flags, metavar, two spaces, and the text. Its name is a flag, unless
    there is a long one; it is required if the default is ``...``. Words as a metavar, ``a|b``, are
    checked, and so is a ``file``. ``more`` is for ``typer.Option``.
    """
    head, _, help = text.rpartition("  ")
    words = head.split()
    flags = tuple(word for word in words if word.startswith("-"))
    metavar = " ".join(word for word in words if word not in flags) or None
    about = {"help": help, "metavar": metavar, "flags": flags} | more
    return field(default=default, metadata=about)


def setting(head: str = "", **more: Any) -> Any:
    """An option that is documented at home, its own or its group's, where its default is, too."""
    return option(f"{head}  ", documented=True, **more)


def taken(home: str, names: str = "", panel: str | None = None, **heads: str) -> Any:
    """A parameter that is many settings at once; some have heads of their own."""
    return Taken(home, dict.fromkeys(names.split(), "") | heads, panel)


def output(text: str, default: Any = None, **more: Any) -> Any:
    return option(text, default, rich_help_panel="Output", **more)


def argument(text: str, default: Any = ..., **more: Any) -> Any:
    """A parameter that is an argument, ``MODEL  Model file.``; required if it has no default."""
    metavar, _, help = text.partition("  ")
    about = {"help": help, "metavar": metavar, "argument": True} | more
    return field(default=default, metadata=about)


def group(name: str, text: str | None) -> typer.Typer:
    """Commands under one name, which alone shows their help."""

    def alone(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return plain(name=name, cls=Group, help=text, callback=alone, invoke_without_command=True)


def plain(**about: Any) -> typer.Typer:
    """Commands, or one, without what typer would add to them."""
    about |= {"add_completion": False, "pretty_exceptions_enable": False}
    return typer.Typer(rich_markup_mode="rich", **about)


class Options:
    """A group of options, shown in one panel of the help: a dataclass, its fields the options."""

    panel: ClassVar[str | None] = None
    home: ClassVar[str] = ""

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        hints = get_type_hints(cls)
        made: Any = cls
        return [parameter(f.name, hints[f.name], f, cls.panel, cls.home) for f in fields(made)]

    @cached_property
    def given(self) -> dict[str, Any]:
        """What was asked for: all that is not as it is if nothing is said."""
        made: Any = self
        asked = {f.name: getattr(self, f.name) for f in fields(made)}
        return {k: v for k, v in asked.items() if not (v is None or v is False or v == [])}


class Taken(NamedTuple):
    """What :func:`taken` takes, by names and heads."""

    home: str
    heads: Mapping[str, str]
    panel: str | None

    def parameters(self) -> list[inspect.Parameter]:
        """As typer reads them, of the types that they have at home."""
        known = inspect.signature(resolve_name(self.home)).parameters
        out = []
        for name, head in self.heads.items():
            first, *rest = str(known[name].annotation).split(" | ")
            kind: Any = KINDS.get(first, str)
            kind = kind | None if "None" in rest else kind
            out.append(parameter(name, kind, setting(head), self.panel, self.home))
        return out


def command(home: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose parameters have their options, and those of groups that it takes."""
    return lambda function: made(function, home)


def made(function: Callable[..., None], home: str) -> Callable[..., None]:
    """What :func:`command` makes of a function."""
    hints = get_type_hints(function)
    groups: dict[str, list[inspect.Parameter]] = {}
    added: list[inspect.Parameter] = []
    for name, p in inspect.signature(function).parameters.items():
        group = p.default if isinstance(p.default, Taken) else hints[name]
        if hasattr(group, "parameters"):
            groups[name] = group.parameters()
            added += groups[name]
        elif isinstance(p.default, Field):
            added.append(parameter(name, hints[name], p.default, home=home))
        else:
            added.append(p.replace(annotation=hints[name]))

    known = {p.name: get_args(p.annotation)[1] for p in added if get_args(p.annotation)}
    flags: dict[str, str] = {k: about.flag for k, about in known.items() if about.flag[0] == "-"}
    for about in known.values():
        about.help = re.sub("``(.+?)``", lambda found: flags.get(found[1], found[1]), about.help)

    def run(**given: Any) -> None:
        check_given(known, given)
        for name, parts in groups.items():
            given[name] = hints[name](**{p.name: given.pop(p.name) for p in parts})
        running.clear()
        running.update(flags)
        function(**given)

    run.__name__, run.__module__ = function.__name__, __name__
    run.__doc__ = flowing(function.__doc__ or "")
    run.__signature__ = inspect.Signature(added)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in added}
    return run


def flowing(text: str) -> str:
    r"""A docstring whose paragraphs may be broken anywhere; those that begin with \b may not.

    >>> flowing("One\nline.\n\n\b\nExamples:\n  minfer demo")
    'One line.\n\n\x08\nExamples:\n  minfer demo'
    """
    parts = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(p if p.startswith("\b") else " ".join(p.split("\n")) for p in parts)


def flag_of(name: str) -> str:
    return "--" + name.strip("_").replace("_", "-")


@cache
def documented(home: str) -> dict[str, tuple[str, str]]:
    """All that the docstring of a class or function documents, as numpydoc has it: words, text.

    >>> documented("minfer:BeliefPropagation")["damping"]
    ('', 'Share of the old message kept, 0 to <1; 0.3 to 0.5 helps where it oscillates.')
    >>> documented("minfer:BeliefPropagation")["schedule"][0]
    'sequential|flooding|residual|coloured'
    """
    if sys.flags.optimize > 1:  # python -OO keeps no docstrings: then there is no help
        return defaultdict(lambda: ("", ""))
    doc = inspect.getdoc(resolve_name(home)) or ""
    part = re.search(r"^(?:Parameters|Attributes)\n-+\n(.+?)(?:\n\n|\Z)", doc, re.M | re.S)
    found: dict[str, tuple[str, str]] = {}
    for names, kind, body in re.findall(
        r"^(\w+(?:, \w+)*)(?: : (.*))?((?:\n .*)*)", part[1] if part else "", re.M
    ):
        text = " ".join(body.split())
        if not (text[:1].isupper() or '"' in kind):  # there is no type: all of it is text
            kind, text = "", f"{kind} {text}".strip()
        words = "|".join(re.findall(r'"([a-z0-9-]+)"', kind))
        found |= {name: (words, sentence(text)) for name in names.split(", ")}
    return found


def sentence(text: str) -> str:
    """A remark of a docstring as a sentence of a help, without what is for Python only.

    >>> sentence("how many. In Python also a list")
    'How many.'
    """
    text = text.split(" In Python")[0].rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


def check_given(known: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Words are among those that an option can be, and files can be read and written."""
    for name, about in known.items():
        if given[name] is not None and _WORDS.fullmatch(about.metavar or ""):
            called = about.flag if about.flag[0] == "-" else f"the {name}"
            check_choice(called, given[name], about.metavar.split("|"))
    used = [Used(a.flag, a.file, given[name]) for name, a in known.items() if a.file is not None]
    check_files(used, given.get("json", False))


def parameter(
    name: str, kind: Any, made: Field[Any], panel: str | None = None, home: str = ""
) -> inspect.Parameter:
    """One parameter that typer reads, from what :func:`option` or :func:`argument` made."""
    more: dict[str, Any] = {"rich_help_panel": panel, **made.metadata}
    flags, file, default = more.pop("flags", ()), more.pop("file", None), made.default
    parts = [part for part in get_args(kind) if part is not type(None)]
    home = more.pop("home", home)
    if more.pop("documented", False):
        words, more["help"] = documented(home)[name]
        more["metavar"] = more["metavar"] or words
        own = inspect.signature(resolve_name(home)).parameters[name].default
        if type(None) not in get_args(kind):
            default = own
        if own is True and not flags:
            flags = (f"{flag_of(name)}/--no{flag_of(name)[1:]}",)
        if default is None and own is not None:  # it remains so if nothing is given
            more["help"] += f" Default: {own}."
    more["metavar"] = more["metavar"] or METAVARS.get((*parts, kind)[0])
    if type(None) in get_args(kind):
        kind = Optional[parts[0]]  # noqa: UP045 (older typers do not read X | None)
    if kind is bool:
        default, more["metavar"] = bool(default), ""  # newer ones name the type of a flag
    if more.pop("argument", False):
        read: Any = typer.Argument(**more)
    else:
        named = (len(name) == 1 and flags) or any(flag.startswith("--") for flag in flags)
        flags = flags if named else (flag_of(name), *flags)
        read = typer.Option(*flags, **more)
    names = sorted(flags, key=lambda flag: not flag.startswith("--"))
    read.file, read.flag = file, (*names, read.metavar)[0]
    if default is ... or default is MISSING:
        default = inspect.Parameter.empty
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, read]
    )
