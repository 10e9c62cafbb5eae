"""Options that commands share, each declared once; those of the solvers are their fields.

The option ``--max-iters`` is the field ``max_iters`` of the solver's dataclass, and so on: types,
and who has what, are read from the classes (which loads no kernel).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from typer import Typer
from typer.core import TyperCommand

from minfer.basics.checks import check_number
from minfer.basics.limits import clock, compiled
from minfer.basics.words import duration
from minfer.cli import generate
from minfer.cli.failures import PlainHelp, UsageProblem, in_flags, note
from minfer.cli.files import IN, OUT, read_model
from minfer.cli.generate import Options, Words, argument, option, output, setting, taken
from minfer.errors import SettingsError
from minfer.io.typed import do_of, evidence_beside, evidence_of, is_number
from minfer.say.answers import describe, set_text, sizes, told_evidence
from minfer.solvers.circuit import circuit_of
from minfer.solvers.named import SOLVERS, plain_settings, solver_named

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Solver

#: Fields whose option is called otherwise: ``--method`` is the reduction's.
CALLED = {"method": "exact_method"}

MODEL = argument("MODEL  Model file; the suffix sets the format, - is standard input.", file=IN)


@dataclass(frozen=True)
class Input(Options):
    """A model and its evidence, which are read when first asked for."""

    home = "minfer.io.typed:evidence_of"
    model: str = MODEL
    evidence: Words = setting("-e FILE|x3=1,x7=0", file=IN)
    soft: Words = setting("x3=a:0.2,b:0.8")
    do: Words = option(
        "x4=1  Set variables of a Bayesian network, whatever their parents say (repeatable)."
    )

    @cached_property
    def _read(self) -> tuple[FactorGraph, dict[int, Any], float]:
        """The model of the file, the evidence beside it, and the seconds that reading took."""
        began = clock()
        graph = read_model(self.model)
        seen = evidence_of(graph, self.evidence, self.soft)
        if not self.evidence and (beside := evidence_beside(self.model)):
            note(f"{beside} was not read; add --evidence {beside} to use it")
        if (circuit := circuit_of(graph)) is not None and not circuit._opens(list(seen)):
            closed = next(graph.name(v) for v in seen if not circuit._opens([v]))
            note(f"{closed} is not free in the circuit of {self.model}, so it is not used")
        return graph, seen, clock() - began

    @property
    def untouched(self) -> FactorGraph:
        """The model of the file."""
        return self._read[0]

    @cached_property
    def done(self) -> dict[int, int]:
        """What is set."""
        return do_of(self.untouched, self.do)

    @cached_property
    def bare(self) -> FactorGraph:
        """The model with what is set, but without its evidence."""
        if not self.done:
            return self.untouched
        from minfer.solvers.plans import acted_on

        return acted_on(self.untouched, self.done, self.seen)

    @property
    def seen(self) -> dict[int, Any]:
        return self._read[1]

    @cached_property
    def graph(self) -> FactorGraph:
        """The model with its evidence."""
        from minfer.graph import with_any_evidence

        return with_any_evidence(self.bare, self.seen)

    def content(self, graph: FactorGraph, answer: dict[str, Any]) -> dict[str, Any]:
        """As JSON: an answer, and what it is the answer to."""
        model = {"file": self.model, **sizes(graph)}
        times = {"read_seconds": self._read[2], "compile_seconds": compiled()}
        done = {"do": told_evidence(graph, self.done)} if self.done else {}
        return {"model": model, **done, **answer, **times}

    def summary(self, graph: FactorGraph, told: Mapping[str, str]) -> dict[str, str]:
        """What the library says of an answer, in the words of the command line, and the model."""
        done = {"set": set_text(graph, self.done)} if self.done else {}
        lines = {"model": f"{self.model}: {describe(graph)}", **done, **told}
        if "time" in lines:
            lines["time"] += f"; reading the model {duration(self._read[2])}"
        return lines

    @property
    def words(self) -> list[str]:
        pairs = [("--evidence", text) for text in self.evidence or ()]
        pairs += [("--soft", text) for text in self.soft or ()]
        pairs += [("--do", text) for text in self.do or ()]
        return ["minfer", "run", self.model, *(word for pair in pairs for word in pair)]


CASES = argument("CASES  Table of cases: .csv, .tsv (.gz), .parquet; - is CSV.", file=IN)
JSON = output("One JSON object on standard output instead of the table.", False)
SUMMARY = output("A summary as one JSON object on standard output; needs --out FILE.", False)
CSV = output("--csv FILE  Write the whole table as CSV; - is standard output.", file=OUT)
PROBABILITIES = taken("minfer:predict", "probabilities", "Output")
MISSING = option("TEXT  Text that means not observed, like an empty cell.")
STRICT = output("Exit with code 5 if the answer has not converged.", False)


def rows_option(order: str) -> Any:
    return output(f"N  Rows of the table, {order} first.", 20, min=0)


# ---------------------------------------------------------------------- intervals

#: Seconds for ``--intervals`` where none are given.
INTERVAL_SECONDS = 5.0
_INTERVAL_FLAGS = ("--intervals", "--certify")


def interval_option(text: str) -> Any:
    """``--intervals``, whose number may be left out."""
    return option(f"{' '.join(_INTERVAL_FLAGS)} [SECONDS]  {text}", callback=_positive)


def _positive(seconds: float | None) -> float | None:
    if seconds is not None:
        check_number("--intervals", seconds, above=0.0, what="positive seconds")
    return seconds


class Command(PlainHelp, TyperCommand):
    """A command whose ``--intervals``, if it has some, may stand without its number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        none = "" if any("--intervals" in p.opts for p in self.params) else ctx.command_path
        try:
            return super().parse_args(ctx, with_seconds(args, none))
        except UsageProblem as error:
            error.ctx = error.ctx or ctx  # an option without its value does not know its command
            raise


def member(of: Typer, home: str = "", name: str | None = None) -> Any:
    """A command of a group, called as the function is or otherwise."""
    return lambda function: of.command(name, cls=Command)(generate.command(home)(function))


def with_seconds(words: list[str], none: str = "") -> list[str]:
    """``--intervals`` that no number follows gets one; refused for a command with ``none``.

    >>> with_seconds(["--intervals", "grid.uai"])
    ['--intervals', '5', 'grid.uai']
    >>> with_seconds(["grid.uai", "--intervals", "0.5"])
    ['grid.uai', '--intervals', '0.5']
    """
    out: list[str] = []
    head = words[: words.index("--")] if "--" in words else words
    for word, following in zip(head, [*head[1:], ""]):
        out.append(word)
        if none and word.partition("=")[0] in _INTERVAL_FLAGS:
            raise SettingsError(
                f"{word}: `{none}` has no certified intervals; `minfer intervals` and `minfer run "
                "--intervals` have them, for models"
            )
        if word in _INTERVAL_FLAGS and not is_number(following):
            out.append(f"{INTERVAL_SECONDS:g}")
    return out + words[len(head) :]


# ---------------------------------------------------------------------- solvers


class Solving(Options):
    """``--solver`` and the options of all solvers, as they were given."""

    panel = "Solver"
    default: ClassVar[str] = "auto"
    told: ClassVar[str] = "auto; with --reduce, bp, or exact if that is cheap"

    def __init__(self, **given: Any) -> None:
        self.given = {key: value for key, value in given.items() if value is not None}

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        *most, last = SOLVERS
        choices = f"{', '.join(most)} or {last}. Default: {cls.told}."
        added = [generate.parameter("solver", str | None, option(f"NAME  {choices}"), cls.panel)]
        for name, (kind, have) in plain_settings().items():
            first, *_ = sorted(have, key="auto".__eq__)  # who refers to others comes last
            words, text = generate.documented(f"minfer:{SOLVERS[first]}")[name]
            who = "all solvers" if len(have) == len(SOLVERS) else ", ".join(have)
            told = option(f"{words}  {text.split('. ')[0].rstrip('.')}. ({who})")
            made: Any = kind
            added.append(generate.parameter(CALLED.get(name, name), made | None, told, cls.panel))
        return added

    @property
    def name(self) -> str:
        return self.given.get("solver", self.default)

    @property
    def time_limit(self) -> float | None:
        return self.given.get("time_limit")

    def or_else(self, default: str, **changed: Any) -> Solving:
        """The same where another solver is the default, and with some options changed."""
        return Solving(**{"solver": default, **self.given, **changed})

    def make(self, **settings: Any) -> Solver:
        """The solver asked for; options that were not given are ``settings``, or its defaults."""
        called = {key: name for name, key in CALLED.items()}
        settings |= {called.get(k, k): v for k, v in self.given.items() if k != "solver"}
        try:
            return solver_named(self.name, **settings)
        except SettingsError as error:
            raise SettingsError(in_flags(str(error), {"method": "--exact-method"})) from None


class PictureSolving(Solving):
    """The same for pictures."""

    default = "bp"
    told = "bp"
