"""One generator of options: the fields of a dataclass are options of a command.

    @dataclass(frozen=True)
    class Limits:
        max_factors: int | None = option("Add at most M factors.", "M")

    @takes(limits=Limits)
    def command(model: Model, *, limits: Limits) -> None: ...

``--max-factors`` then stands in the help, and the command gets its ``limits`` made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import Field, field, fields
from typing import Annotated, Any, Optional, get_args, get_type_hints

import typer

Command = Callable[..., None]


def option(
    help: str, metavar: str | None = None, *flags: str, default: Any = None, **more: Any
) -> Any:
    """A field of a dataclass that is an option: what ``typer.Option`` takes, and a default."""
    return field(
        default=default, metadata={"help": help, "metavar": metavar, "flags": flags} | more
    )


def takes(panel: str | None = None, **groups: type[Any]) -> Callable[[Command], Command]:
    """Give a command the options of some dataclasses; it gets each as an object of that name."""

    def decorate(command: Command) -> Command:
        def run(**given: Any) -> None:
            for name, kind in groups.items():
                given[name] = kind(**{f.name: given.pop(f.name) for f in fields(kind)})
            command(**given)

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        added = [p for kind in groups.values() for p in parameters(kind, panel)]
        return with_parameters(run, added, like=command, without=groups)

    return decorate


def parameters(kind: type[Any], panel: str | None = None) -> list[inspect.Parameter]:
    """The fields of a dataclass as parameters that typer reads."""
    hints = get_type_hints(kind)
    return [parameter(f.name, hints[f.name], f.default, panel, f) for f in fields(kind)]


def parameter(
    name: str, kind: Any, default: Any, panel: str | None, made: Field[Any] | dict[str, Any]
) -> inspect.Parameter:
    """One option, from a field that :func:`option` made or from its metadata."""
    more = dict(made.metadata if isinstance(made, Field) else made)
    flags = more.pop("flags", ()) or ("--" + name.strip("_").replace("_", "-"),)
    about: dict[str, Any] = {"rich_help_panel": panel} | more
    text = typer.Option(*flags, **about)
    parts = [part for part in get_args(kind) if part is not type(None)]
    if type(None) in get_args(kind):
        kind = Optional[parts[0]]  # noqa: UP045 (older typers do not read X | None)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, text]
    )


def with_parameters(
    command: Command,
    added: Sequence[inspect.Parameter],
    like: Command | None = None,
    without: Any = (),
    rest: bool = True,
) -> Command:
    """A command whose signature, or that of another ``like`` it, has some parameters more."""
    signature = inspect.signature(like or command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.name not in without]
    last = [p for p in own if p.kind is p.VAR_KEYWORD]
    named = [p for p in own if p not in last]
    every = [*named, *added, *(last if rest else ())]
    command.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in every}
    return command
