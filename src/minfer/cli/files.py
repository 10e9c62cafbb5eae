"""Files of commands: checked before the work, and told once they are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from minfer.basics.words import listed
from minfer.cli.failures import command_line, note, noted
from minfer.cli.progress import wait_for
from minfer.errors import FormatError, SettingsError

if TYPE_CHECKING:
    from minfer.graph import FactorGraph


class File(NamedTuple):
    """What a command does with the file that an option or argument names."""

    use: str  # "in", "there" (an input that is looked for beforehand) or "out"
    ends: tuple[str, ...] = ("",)  # how its name must end, if it is not -
    dash: bool = True  # whether - is standard output
    draws: bool = False  # with matplotlib
    model: bool = False  # whose suffix sets the format


IN, THERE, OUT = File("in"), File("there"), File("out")
NET = File("out", model=True)
HTML = File("out", (".html", ".htm"))
CIRCUIT = File("out", (".circuit", ".circuit.gz"))
SVG = File("out", (".svg",))
PAGE = HTML._replace(dash=False)
PICTURE = File("out", (".png", ".svg"), dash=False, draws=True)


class Used(NamedTuple):
    """A file that a command line may name."""

    flag: str
    file: File
    given: Any  # a path, some of them, or None

    @property
    def paths(self) -> list[str]:
        return [self.given] if isinstance(self.given, str) else list(self.given or ())


def check_files(used: Sequence[Used], json: bool = False) -> None:
    """Fail before the work: inputs are there, outputs can be written and overwrite nothing."""
    from minfer.io.formats import writing_complaint
    from minfer.io.text import check_writable
    from minfer.plots import pyplot

    inputs = [path for one in used if one.file.use != "out" for path in one.paths]
    outputs = [one for one in used if one.file.use == "out"]
    for one in used:
        for path in one.paths if one.file.use == "there" else ():
            if path != "-" and not Path(path).exists():
                raise FormatError(f"cannot read {path}: there is no such file")
    if inputs.count("-") > 1:
        flags = listed([one.flag for one in used if one.file.use != "out"])
        raise SettingsError(f"only one of {flags} can be standard input (-)")
    piped = [one for one in outputs if one.file.dash]
    if sum(one.given == "-" for one in piped) + json > 1:
        flags = ", ".join(f"{one.flag} -" for one in piped)
        name = f"name a file, as in {piped[0].flag} FILE"
        raise SettingsError(f"only one of {flags} and --json can go to standard output: {name}")
    before: dict[str, str] = {}
    for flag, file, path in outputs:
        if path is None or (path == "-" and file.dash):
            continue
        if not path.lower().endswith(file.ends):
            ends = " or ".join(end for end in file.ends if end != ".htm")
            raise SettingsError(f"{flag} {path}: end the name in {ends}")
        if file.model and (complaint := writing_complaint(path)):
            raise SettingsError(complaint)
        check_writable(path, inputs)
        place = os.path.realpath(path)
        if place in before:
            raise SettingsError(f"{before[place]} and {flag} are the same file, {path}")
        before[place] = flag
        if file.draws:
            pyplot(f"{flag} needs", headless=True)


def written(path: str | None, write: Callable[[str], object], more: str = "") -> None:
    if path is not None:
        write(path)
        wrote(path, more)


def write_report(path: str | None, make: str, *what: Any, **about: Any) -> None:
    """A page made by that function of :mod:`minfer.report`, if one was asked for."""
    if path is None:
        return
    from minfer import report

    page = partial(getattr(report, make), *what, command=command_line(), **about)
    report.write_report(path, wait_for("sweeping for the report", page))
    wrote(path)


def wrote(path: str | None, more: str = "") -> None:
    if path not in (None, "-"):
        note(f"wrote {path}{more}")


def read_model(model: str) -> FactorGraph:
    """The model in a file; what is odd about it becomes notes."""
    import minfer

    with noted():
        return wait_for(f"reading {model}", lambda: minfer.read(model))
