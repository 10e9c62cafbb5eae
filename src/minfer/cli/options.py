"""Options that commands share, each declared once; those of the solvers are their fields.

The option ``--max-iters`` is the field ``max_iters`` of the solver's dataclass, and so on: types,
and who has what, are read from the classes (which loads no kernel).
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from typer.core import TyperCommand

from minfer.cli.failures import PlainHelp, UsageError
from minfer.cli.generate import Options, Words, argument, flag_of, option, output, parameter
from minfer.errors import MinferError
from minfer.typed import is_number
from minfer.words import listed

if TYPE_CHECKING:
    from minfer.solvers.base import Solver

SOLVERS = {
    "auto": "Auto",
    "bp": "BeliefPropagation",
    "trw": "TreeReweighted",
    "mean-field": "MeanField",
    "structured-mean-field": "StructuredMeanField",
    "gibbs": "Gibbs",
    "tempering": "Tempering",
    "join-graph": "JoinGraph",
    "windows": "Windows",
    "clamped": "Clamped",
    "exact": "Exact",
}
#: Fields that are objects of Python and have no option: another solver, blocks of variables.
WITHOUT_OPTION = {"clamped": {"solver"}, "structured-mean-field": {"blocks"}}


#: What each field means, and the order of the options.
HELP = {
    "max_iters": "Maximum number of iterations.",
    "tol": "Stop when updating everything moves nothing by more than this.",
    "damping": "Share of the old message to keep, 0 to <1.",
    "schedule": "sequential, flooding or residual.",
    "weights": "auto, spanning-tree or forests.",
    "n_sweeps": "Sweeps of each chain after burn-in.",
    "burn_in": "Sweeps discarded at the start.",
    "n_chains": "Independent chains, or ensembles.",
    "n_replicas": "Copies at different temperatures.",
    "rng": "Seed of the random generator.",
    "max_cells": "Maximum cells of a cluster, or of all cliques of a block or window.",
    "core": "Variables read off one window.",
    "k": "Variables to clamp.",
    "restarts": "Other starts, used to choose these variables.",
    "max_gib": "Maximum memory for tables, in GiB.",
    "exact_cells": "Maximum cells for which exact is chosen.",
    "method": "auto, clique-tree or enumerate.",
    "time_limit": "Time limit in seconds; then the best answer so far (exact refuses).",
}
#: Fields whose option is called otherwise: ``--method`` is the reduction's.
CALLED = {"method": "exact_method"}
#: Fields that take more in Python than on the command line.
AS_WORDS = {"weights": str}


class SolverOption(NamedTuple):
    """One field of one or more solvers."""

    name: str
    type: Any
    solvers: tuple[str, ...]

    @property
    def key(self) -> str:
        return CALLED.get(self.name, self.name)

    @property
    def flag(self) -> str:
        return flag_of(self.key)


@lru_cache(maxsize=1)
def solver_fields() -> tuple[SolverOption, ...]:
    """Every option, from the fields of the solvers' dataclasses."""
    import minfer

    found: dict[str, tuple[Any, list[str]]] = {}
    for word, name in SOLVERS.items():
        kind = getattr(minfer, name)
        # annotations are texts, such as "float | None"; the first word is the type
        for f in fields(kind):
            if not f.name.startswith("_") and f.name not in WITHOUT_OPTION.get(word, ()):
                plain = {"int": int, "float": float, "str": str}[str(f.type).split(" ")[0]]
                found.setdefault(f.name, (AS_WORDS.get(f.name, plain), []))[1].append(word)
    return tuple(SolverOption(name, found[name][0], tuple(found[name][1])) for name in HELP)


METAVARS: dict[type, str] = {int: "N", float: "X", str: "WORD"}

MODEL = argument("MODEL  Model file; the suffix sets the format, - is standard input.")


@dataclass(frozen=True)
class Input(Options):
    """A model and its evidence."""

    model: str = MODEL
    evidence: Words = option(
        "-e FILE|x3=1,x7=0  Observed states, by index or name: a file (UAI or JSON), or "
        "variable=state pairs (repeatable; a name with a comma needs quotes, or its own option)."
    )
    soft: Words = option(
        "x3=a:0.2,b:0.8  Likelihoods of one variable's states, by name (0 for those left out), or "
        "one for each in order, as in x3=0.2,0.8 (repeatable). A JSON file for --evidence can "
        "hold them too."
    )

    @property
    def files(self) -> list[str]:
        """Those that must not be overwritten."""
        return [self.model, *(self.evidence or ())]


CASES = argument("CASES  Table of cases: .csv, .tsv (.gz), .parquet; - is CSV.")
JSON = output("One JSON object on standard output instead of the table.", False)
CSV = output("--csv FILE  Write the whole table as CSV; - is standard output.")
PROBABILITIES = output(
    "--probabilities/--no-probabilities  Write the probability of every state, or only of the "
    "most probable one.",
    True,
)
MISSING = option("TEXT  Text that means not observed, like an empty cell.")
STRICT = output("Exit with code 5 if the answer has not converged.", False)


def rows_option(order: str) -> Any:
    """``--rows``, of a table for people."""
    return output(f"N  Rows of the table, {order} first.", 20, min=0)


# ---------------------------------------------------------------------- intervals

#: Seconds for ``--intervals`` where none are given.
INTERVAL_SECONDS = 5.0
_INTERVAL_FLAGS = ("--intervals", "--certify")


def interval_option(text: str) -> Any:
    """``--intervals``, whose number may be left out."""
    return option(f"{' '.join(_INTERVAL_FLAGS)} [SECONDS]  {text}")


class Command(PlainHelp, TyperCommand):
    """A command whose ``--intervals`` may stand without its number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_seconds(args))


class WithoutIntervals(PlainHelp, TyperCommand):
    """A command of the parser, which has none yet."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for word in _before_dashes(args):
            if word.partition("=")[0] in _INTERVAL_FLAGS:
                raise UsageError(
                    f"{word}: the parser has no certified intervals yet; `minfer intervals` and "
                    "`minfer run --intervals` have them, for models"
                )
        return super().parse_args(ctx, args)


def with_seconds(words: list[str]) -> list[str]:
    """``--intervals`` that no number follows gets one.

    >>> with_seconds(["--intervals", "grid.uai"])
    ['--intervals', '5', 'grid.uai']
    >>> with_seconds(["grid.uai", "--intervals", "0.5"])
    ['grid.uai', '--intervals', '0.5']
    """
    out: list[str] = []
    head = _before_dashes(words)
    for k, word in enumerate(words):
        out.append(word)
        alone = k + 1 >= len(head) or not is_number(words[k + 1])
        if k < len(head) and word in _INTERVAL_FLAGS and alone:
            out.append(f"{INTERVAL_SECONDS:g}")
    return out


def _before_dashes(words: list[str]) -> list[str]:
    return words[: words.index("--")] if "--" in words else words


def check_interval_seconds(seconds: float | None) -> None:
    """Fail before the work, not after it."""
    if seconds is not None and not seconds > 0:
        raise UsageError(f"--intervals takes positive seconds, not {seconds:g}")


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
        added = [parameter("solver", str | None, option(f"NAME  {choices}"), cls.panel)]
        for o in solver_fields():
            who = "all solvers" if len(o.solvers) == len(SOLVERS) else ", ".join(o.solvers)
            about = option(f"{METAVARS[o.type]}  {HELP[o.name]} ({who})")
            added.append(parameter(o.key, o.type | None, about, cls.panel))
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
        import minfer

        name = self.name
        if name not in SOLVERS:
            raise UsageError(f"there is no solver {name!r}; choose from {', '.join(SOLVERS)}")
        for o in solver_fields():
            if o.key not in self.given:
                continue
            if name not in o.solvers:
                who = listed(o.solvers)
                plural = "solvers that have it are" if len(o.solvers) > 1 else "one that has it is"
                raise UsageError(f"solver {name} has no option {o.flag}; the {plural} {who}")
            settings[o.name] = self.given[o.key]
        try:
            return getattr(minfer, SOLVERS[name])(**settings)
        except MinferError:
            raise  # it says what is wrong with which setting
        except (TypeError, ValueError) as error:
            raise UsageError(f"solver {name}: {error}") from None


class PictureSolving(Solving):
    """The same for pictures."""

    default = "bp"
    told = "bp"
