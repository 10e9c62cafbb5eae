"""One generator of options: parameters of a command and fields of a dataclass are options.

    @dataclass(frozen=True)
    class Limits(Options):
        panel = "Reduction"
        max_factors: int | None = option("M  Add at most M factors.")

    @command
    def run(model: str = argument("MODEL  Model file.", file=IN), *, limits: Limits) -> None: ...

``--max-factors`` then stands in the help, in its panel, and the command gets its ``limits`` made.
Files and words that an option can be are checked before the command runs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Annotated, Any, ClassVar, Optional, get_args, get_type_hints

import typer

from minfer.checks import check_choice
from minfer.cli.failures import Group
from minfer.cli.files import Used, check_files
from minfer.errors import SettingsError

Words = list[str] | None


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


def flag(text: str) -> Any:
    """An option that is given or not."""
    return option(text, False)


def output(text: str, default: Any = None, **more: Any) -> Any:
    """An option about output."""
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

    return typer.Typer(name=name, cls=Group, help=text, callback=alone, invoke_without_command=True)


class Options:
    """A group of options, shown in one panel of the help: a dataclass, its fields the options."""

    panel: ClassVar[str | None] = None

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """As typer reads them."""
        hints = get_type_hints(cls)
        made: Any = cls
        return [parameter(f.name, hints[f.name], f, cls.panel) for f in fields(made)]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters have their options, and those of groups that it takes."""
    hints = get_type_hints(function)
    groups: dict[str, list[inspect.Parameter]] = {}
    added: list[inspect.Parameter] = []
    for name, p in inspect.signature(function).parameters.items():
        if isinstance(hints[name], type) and issubclass(hints[name], Options):
            groups[name] = hints[name].parameters()
            added += groups[name]
        elif isinstance(p.default, Field):
            added.append(parameter(name, hints[name], p.default))
        else:
            added.append(p.replace(annotation=hints[name]))

    known = {p.name: get_args(p.annotation)[1] for p in added if get_args(p.annotation)}

    def run(**given: Any) -> None:
        check_given(known, given)
        for name, parts in groups.items():
            given[name] = hints[name](**{p.name: given.pop(p.name) for p in parts})
        try:
            function(**given)
        except SettingsError as error:
            flags = {name: about.flag for name, about in known.items() if about.flag[0] == "-"}
            raise SettingsError(in_flags(str(error), flags)) from None

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


def in_flags(message: str, flags: Mapping[str, str]) -> str:
    """What is wrong with a setting, which is called by its flag if it is an option here.

    >>> in_flags("denoise: level must be a number or None, not 'x'", {"level": "--level"})
    "--level must be a number, not 'x'"
    >>> in_flags("predict: targets: there is no variable 'a'", {"targets": "--targets"})
    "--targets: there is no variable 'a'"
    >>> in_flags("level.png cannot be read", {"level": "--level"})
    'level.png cannot be read'
    """
    for start in re.findall(r"^(?:\w+: )?(\w+)(?:: | )", message):
        if start in flags:
            return flags[start] + message.partition(start)[2].replace(" or None, not ", ", not ")
    return message


def flag_of(name: str) -> str:
    return "--" + name.strip("_").replace("_", "-")


def check_given(known: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Words are among those that an option can be, and files can be read and written."""
    for name, about in known.items():
        if given[name] is not None and re.fullmatch(r"[a-z]+(\|[a-z]+)*", about.metavar or ""):
            check_choice(flag_of(name), given[name], about.metavar.split("|"))
    used = [Used(a.flag, a.file, given[name]) for name, a in known.items() if a.file is not None]
    check_files(used, given.get("json", False))


def parameter(
    name: str, kind: Any, made: Field[Any], panel: str | None = None
) -> inspect.Parameter:
    """One parameter that typer reads, from what :func:`option` or :func:`argument` made."""
    more: dict[str, Any] = {"rich_help_panel": panel, **made.metadata}
    flags, file = more.pop("flags", ()), more.pop("file", None)
    parts = [part for part in get_args(kind) if part is not type(None)]
    if type(None) in get_args(kind):
        kind = Optional[parts[0]]  # noqa: UP045 (older typers do not read X | None)
    if kind is bool:
        more["metavar"] = ""  # newer ones name the type of a flag
    if more.pop("argument", False):
        about: Any = typer.Argument(**more)
    else:
        named = (len(name) == 1 and flags) or any(flag.startswith("--") for flag in flags)
        flags = flags if named else (flag_of(name), *flags)
        about = typer.Option(*flags, **more)
    about.file, about.flag = file, next((f for f in flags if f.startswith("--")), about.metavar)
    default = made.default
    if default is ... or default is MISSING:
        default = inspect.Parameter.empty
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, about]
    )
