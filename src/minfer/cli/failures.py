"""Errors as one line on stderr and an exit code, in one place for every command."""

from __future__ import annotations

import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from minfer import errors
from minfer.errors import MinferError, visible

INTERRUPTED = 130
BROKEN_PIPE = 141
BAD_INPUT = 3
REFUSED = 4
NOT_CONVERGED = 5

# typer carries its own click since 0.2x and used the click package before: the base class of its
# usage errors is found by way of the one it has always exported.
UsageProblem: Any = typer.BadParameter.__mro__[2]

#: The flags of the command that runs, by the names of its parameters.
running: dict[str, str] = {}
_SETTING = re.compile(r"[A-Z]\w*\([^()]*\)|\b([a-z]\w*)(?:(=)(?![\[(])[\"']?([^\s,;)\"']*)[\"']?)?")


class PlainHelp:
    """A command whose ``--help`` and arguments are shown without a type, and without braces."""

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if one.param_type_name == "argument":
                one.display_type_rich = lambda ctx: None  # typer asks this since 0.29,
                if hasattr(one, "type"):  # and asked the type before
                    one.type = copy(one.type)
                    one.type.get_metavar = lambda *_, **__: ""
                one.get_usage_pieces = partial(_usage, one)
        return found

    def get_help_option(self, ctx: Any) -> Any:
        found = super().get_help_option(ctx)  # type: ignore[misc]
        if found is not None:
            found.metavar = ""
        return found


def _usage(one: Any, ctx: Any) -> list[str]:
    name = one.metavar if one.required else f"[{one.metavar}]"
    return [name if one.nargs == 1 else f"{name}..."]


class Group(PlainHelp, TyperGroup):
    """A group of commands."""


class Commands(Group):
    """A group that runs a command and turns what it raises into an exit code."""

    def main(self, args: Any = None, *rest: Any, **options: Any) -> NoReturn:
        words, debug = split_debug(sys.argv[1:] if args is None else list(args))
        _typed[:] = words
        options["standalone_mode"] = False
        outer = super().main
        sys.exit(exit_code(lambda: outer(words, *rest, **options), debug))

    def invoke(self, ctx: Any) -> Any:
        """typer has answers of its own to these two, which come sooner than ours in ``main``."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, BrokenPipeError) as error:
            raise Stopped(error) from None


_typed: list[str] = []


def command_line() -> str:
    """The command as it was typed, quoted for a shell."""
    return shlex.join(["minfer", *_typed])


class Stopped(Exception):
    """Wraps Ctrl-C or a closed pipe on the way through typer."""


def split_debug(words: list[str]) -> tuple[list[str], bool]:
    """``--debug`` may stand anywhere before a ``--``; MINFER_DEBUG does the same."""
    end = words.index("--") if "--" in words else len(words)
    head = [word for word in words[:end] if word != "--debug"]
    asked = len(head) < end or os.environ.get("MINFER_DEBUG", "") not in ("", "0")
    return head + words[end:], asked


def exit_code(command: Callable[[], Any], debug: bool = False) -> int:
    """Run a command; say what went wrong, if anything, and return the exit code."""
    try:
        code = _flushed(command)
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return say("interrupted", INTERRUPTED, kind="")
    except UsageProblem as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "minfer"
        message = _sentence(error.format_message())
        see = " See" if message.endswith("?") else "; see"
        return say(f"{message}{see} `{where} --help`", error.exit_code)
    except (errors.SettingsError, errors.RefusedError, errors.FormatError) as error:
        return say(in_flags(str(error)), error.exit_code)
    except MinferError as error:
        return say(str(error), error.exit_code)
    except BrokenPipeError:
        _drop_stdout()
        return BROKEN_PIPE
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        if full := errors.fullness(error):
            try:
                sys.stdout.flush()
            except OSError:
                _drop_stdout()
            return say(f"{place}{full}", errors.DiskFullError.exit_code)
        return say(f"{place}{error.strerror or error}", BAD_INPUT)
    except MemoryError as error:
        return say(f"not enough memory: {error}" if str(error) else "not enough memory", REFUSED)
    except Exception as error:
        if debug:
            traceback.print_exc()
        return say(
            f"unexpected {type(error).__name__}: {error}; this is a bug in minfer: please report "
            "it with the command, the output of `minfer doctor`, and the traceback that --debug "
            "shows",
            1,
        )


def _drop_stdout() -> None:
    """So that the last flush, of what could not be written, has somewhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _flushed(command: Callable[[], Any]) -> Any:
    try:
        code = command()
    except Stopped as stopped:
        raise stopped.args[0] from None
    sys.stdout.flush()
    return code


def say(message: str, code: int, kind: str = "error: ") -> int:
    line = visible(" ".join(message.split()))
    print(f"minfer: {kind}{line}", file=sys.stderr, flush=True)
    return code


def demand(strict: bool, converged: bool) -> None:
    """Under ``--strict``, an answer that has not converged is a failure of its own."""
    if strict and not converged:
        raise typer.Exit(NOT_CONVERGED)


def note(message: str) -> None:
    """Something worth knowing that is neither the answer nor an error."""
    print(f"minfer: note: {visible(message)}", file=sys.stderr, flush=True)


@contextmanager
def noted() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in said:
        note(str(warning.message))


def in_flags(message: str, flags: Mapping[str, str] | None = None) -> str:
    """What the library says, its settings called by the flags of the command that runs.

    They are known by where they stand, at the beginning or before an =, and by an underscore;
    objects, as in Exact(max_gib=4.0), stay what they are.

    >>> flags = {"level": "--level", "fix": "--fix", "max_iters": "--max-iters"}
    >>> in_flags("denoise: level must be a number or None, not 'x'", flags)
    "--level must be a number, not 'x'"
    >>> in_flags("raise max_iters, or set level=0.3, or fix=True", flags)
    'raise --max-iters, or set --level 0.3, or --fix'
    >>> in_flags("level.png cannot be read", flags)
    'level.png cannot be read'
    """
    known = running if flags is None else flags

    def called(found: re.Match[str]) -> str:
        name, equals, value = found.groups(default="")
        if name not in known or not (equals or "_" in name):
            return found[0]
        return known[name] + (f" {value}" if value not in ("", "...", "True") else "")

    start = re.match(r"(?:\w+: )?(\w+)(?=[:,]? )", message)
    first = known.get(start[1], "") if start else ""
    if start and first:
        message = message[start.end() :].replace(" or None, not ", ", not ")
    if "reduce" in known:
        message = message.replace("infer in the full model", "leave --reduce out")
    return first + _SETTING.sub(called, message)


def _sentence(message: str) -> str:
    """typer's messages begin with a capital and end with a full stop; ours do not.

    >>> _sentence("Invalid value for '-k': Input should be a number.")
    "invalid value for '-k': input should be a number"
    """
    small = r"(^|: |\()[A-Z](?=[a-z])"
    return re.sub(small, lambda found: found[0].lower(), message.strip().rstrip("."))
