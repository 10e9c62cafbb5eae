"""The reduction options of commands, what they ask for, and what is told of the answer."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from minfer.basics.words import duration
from minfer.cli.failures import note
from minfer.cli.files import NET, PAGE
from minfer.cli.generate import Options, option, setting
from minfer.cli.options import Input, Solving
from minfer.cli.progress import wait_for
from minfer.errors import SettingsError
from minfer.reduction.recipes import AnyRecipe, Paper

if TYPE_CHECKING:
    from minfer.reduction.objectives import SelectionObjective
    from minfer.reduction.spoken_request import Request
    from minfer.solvers.base import Solver

DEFAULT_SOLVER = "bp"


@dataclass(frozen=True)
class Limits(Options):
    """What to keep and by which recipe; any of it implies ``--reduce``."""

    panel = "Reduction"
    home = "minfer.reduction.spoken_request:Request"
    reduce: bool = option(
        "Run inference in the part of the model that matters, and estimate the error. Any option "
        "below implies it; --time-limit then covers all of it."
    )
    factor_cost: float | None = setting("G")
    max_divergence: float | None = setting("E")
    max_factors: int | None = setting("M")
    method: str | None = setting("WORD")


@dataclass(frozen=True)
class Reported(Limits):
    """The same with a comparison and a page."""

    compare: str | None = option(
        "full  Also run the full inference, exactly if that fits: size, time and difference side "
        "by side."
    )
    report: str | None = option(
        "OUT.html  Write one HTML file that opens offline: a slider over the limit above, with "
        "what is kept, the answer, its errors, times and baselines. Reduces as --reduce does, "
        "with its solver. Takes about 20 runs.",
        file=PAGE,
    )


@dataclass(frozen=True)
class Reduction(Reported):
    """All of the panel."""

    seed_graph: str | None = setting("WORD")
    score: str | None = setting("WORD")
    explain: list[str] | None = option(
        "VAR  Which factors moved a variable, and which ignored ones could (may be repeated); "
        "`model`: where the kept factors lie."
    )
    save_reduced: str | None = option(
        "FILE  Write the reduced model, corrections included; the suffix sets the format.",
        file=NET,
    )


@dataclass(frozen=True)
class JobLimits(Limits):
    """Of commands that answer once and report nothing more."""

    method: str | None = option(
        "compensated|paper  What ignored factors leave behind: their unary part, or nothing."
    )

    @property
    def choice(self) -> tuple[SelectionObjective | None, AnyRecipe]:
        request = make_request(self)
        return (None, Paper()) if request is None else (request.objective, request.recipe)


def make_request(
    asked: Limits, time_limit: float | None = None, factor_cost: float | None = None
) -> Request | None:
    """What the reduction is asked for; None if it is not. ``factor_cost`` is without limits."""
    from minfer.reduction.spoken_request import Request

    given = asked.given
    if not given:
        return None
    if (word := given.get("method")) in ("clique-tree", "enumerate"):
        raise SettingsError(f"--method {word}: the exact solver's option is --exact-method {word}")
    settings = {f.name: given[f.name] for f in fields(Request) if f.name in given}
    if not given.keys() & {"factor_cost", "max_divergence", "max_factors"}:
        settings["factor_cost"] = factor_cost
    return Request(**settings, time_limit=time_limit)


# ---------------------------------------------------------------------- running it


def solver_for(request: Request | None, solving: Solving, **own: Any) -> Solver:
    """The solver asked for; a reduction keeps the time itself, and has its own default."""
    if request is None:
        return solving.make(**own)
    return solving.or_else(DEFAULT_SOLVER, time_limit=None).make(**own)


def say_if_exact_is_cheap(solver: Solver, solving: Solving, source: Input) -> Solver:
    """Say that no reduction is needed, if so, and use Exact, unless a solver was asked for."""
    from minfer.solvers.exact import Exact
    from minfer.solvers.planning import exact_seconds

    seconds = wait_for("planning", lambda: exact_seconds(source.graph))
    if seconds is None:
        return solver
    asked = solving.given.keys() - {"time_limit"}
    used = "" if asked else "; the reduced model is solved exactly too"
    note(
        f"the exact answer for the whole model takes about {duration(seconds)}, without "
        f"--reduce: {shlex.join(source.words)}{used}"
    )
    return solver if asked else Exact()
