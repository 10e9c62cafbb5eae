"""The solvers and their options, once, for every command that runs a solver.

The option ``--max-iters`` is the field ``max_iters`` of the solver's dataclass, and so on: types,
and who has what, are read from the classes (which loads no kernel).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import typer
from typer.core import TyperCommand

from minfer.cli.failures import UsageError
from minfer.cli.generate import parameter, with_parameters
from minfer.errors import MinferError
from minfer.typed import is_number

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
    "clamped": "Clamped",
    "exact": "Exact",
}
#: Fields that are objects of Python and have no option: another solver, blocks of variables.
WITHOUT_OPTION = {"clamped": {"solver"}, "structured-mean-field": {"blocks"}}


#: What each field means, and the order of the options.
HELP = {
    "max_iters": "Most iterations.",
    "tol": "Stop when updating everything moves nothing by more than this.",
    "damping": "Share of the old message to keep, 0 to <1.",
    "schedule": "sequential, flooding or residual.",
    "weights": "auto, spanning-tree or forests.",
    "n_sweeps": "Sweeps of each chain after burn-in.",
    "burn_in": "Sweeps discarded at the start.",
    "n_chains": "Independent chains, or ensembles.",
    "n_replicas": "Copies at different temperatures.",
    "rng": "Seed of the random generator.",
    "max_cells": "Maximum cells of a cluster, or of all cliques of a block.",
    "k": "Variables to clamp.",
    "restarts": "Other starts, for choosing them.",
    "max_gib": "Maximum memory for tables, in GiB.",
    "exact_cells": "Maximum cells for which exact is chosen.",
    "method": "clique-tree or enumerate.",
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
        return "--" + self.key.replace("_", "-")


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
SOLVER_PANEL = "Solver"
OUTPUT_PANEL = "Output"

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Model file; the suffix sets the format, - is standard input."
    ),
]
Evidence = Annotated[
    Optional[list[str]],  # noqa: UP045 (older typers do not read list[str] | None)
    typer.Option(
        "--evidence",
        "-e",
        metavar="FILE|x3=1,x7=0",
        help="Observed states, by index or name: a file (UAI or JSON), or variable=state pairs "
        "(repeatable; a name with a comma needs quotes, or its own option).",
    ),
]
Soft = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--soft",
        metavar="x3=a:0.2,b:0.8",
        help="Likelihoods of one variable's states, by name (0 for those left out), or one for "
        "each in order, as in x3=0.2,0.8 (repeatable). A JSON file for --evidence can hold them "
        "too.",
    ),
]

Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="One JSON object on standard output instead of the table.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
Csv = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--csv",
        metavar="FILE",
        help="Write the whole table as CSV; - is standard output.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
Probabilities = Annotated[
    bool,
    typer.Option(
        "--probabilities/--no-probabilities",
        help="Write the probability of every state, or only of the most probable one.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
Missing = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(metavar="TEXT", help="Text that means not observed, like an empty cell."),
]


def targets_option(text: str) -> Any:
    """``--targets``, of commands that predict or show some variables."""
    return typer.Option("--targets", "-t", metavar="A,B", help=text)


def rows_option(order: str) -> Any:
    """``--rows``, of a table for people."""
    return typer.Option(
        min=0, metavar="N", help=f"Rows of the table, {order} first.", rich_help_panel=OUTPUT_PANEL
    )


Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Exit with code 5 if the answer has not converged.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


# ---------------------------------------------------------------------- intervals

#: Seconds for ``--intervals`` where none are given.
INTERVAL_SECONDS = 5.0
_INTERVAL_FLAGS = ("--intervals", "--certify")


def interval_option(text: str) -> Any:
    """``--intervals``, whose number may be left out."""
    return typer.Option(*_INTERVAL_FLAGS, metavar="[SECONDS]", help=text)


class Command(TyperCommand):
    """A command whose ``--intervals`` may stand without its number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_seconds(args))


class WithoutIntervals(TyperCommand):
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


def solver_options(
    command: Callable[..., None],
    default: str = "auto; with --reduce, bp, or exact if that is cheap",
) -> Callable[..., None]:
    """Add ``--solver`` and the options of all solvers to a command; they come as ``**settings``."""
    *most, last = SOLVERS
    choices = f"{', '.join(most)} or {last}. Default: {default}."
    about = {"help": choices, "metavar": "NAME"}
    added = [parameter("solver", str | None, None, SOLVER_PANEL, about)]
    for o in solver_fields():
        who = "all solvers" if len(o.solvers) == len(SOLVERS) else ", ".join(o.solvers)
        about = {"help": f"{HELP[o.name]} ({who})", "metavar": METAVARS[o.type]}
        added.append(parameter(o.key, o.type | None, None, SOLVER_PANEL, about))
    return with_parameters(command, added, rest=False)


def solver_name(settings: dict[str, Any], default: str = "auto") -> str:
    return settings.get("solver") or default


def make_solver(settings: dict[str, Any], default: str = "auto") -> Solver:
    """The solver a command line asks for; options that were not given are left to its defaults."""
    name = solver_name(settings, default)
    if name not in SOLVERS:
        raise UsageError(f"there is no solver {name!r}; choose from {', '.join(SOLVERS)}")
    given = {o: settings[o.key] for o in solver_fields() if settings.get(o.key) is not None}
    for option in given:
        if name not in option.solvers:
            who = " and ".join(option.solvers)
            plural = "solvers that have it are" if len(option.solvers) > 1 else "one that has it is"
            raise UsageError(f"solver {name} has no option {option.flag}; the {plural} {who}")
    return construct(name, {option.name: value for option, value in given.items()})


def construct(name: str, settings: dict[str, Any]) -> Solver:
    """A solver by its short name; a setting it does not accept is a usage error."""
    import minfer

    solver_class = getattr(minfer, SOLVERS[name])
    try:
        return solver_class(**settings)
    except MinferError:
        raise  # it says what is wrong with which setting
    except (TypeError, ValueError) as error:
        raise UsageError(f"solver {name}: {error}") from None
