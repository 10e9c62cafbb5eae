"""The reduction options of commands, what they ask for, and what is told of the answer."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from minfer.checks import check_choice
from minfer.cli.failures import note
from minfer.cli.files import NET, PAGE
from minfer.cli.generate import Options, flag, option
from minfer.cli.options import Solving
from minfer.cli.progress import wait_for
from minfer.errors import RefusedError, SettingsError, visible
from minfer.words import duration

if TYPE_CHECKING:
    from rich.console import Console

    from minfer.graph import FactorGraph
    from minfer.reduction.objectives import Objective
    from minfer.reduction.recipes import AnyRecipe
    from minfer.reduction.request import Account, Request
    from minfer.reduction.result import Result
    from minfer.solvers.base import Solver

DEFAULT_SOLVER = "bp"
LIMITS = {"factor_cost", "max_divergence", "max_factors"}


@dataclass(frozen=True)
class Limits(Options):
    """What to keep and by which recipe; any of it implies ``--reduce``."""

    panel = "Reduction"
    reduce: bool = flag(
        "Run inference in the part of the model that matters, and estimate the error. Any option "
        "below implies it; --time-limit then covers all of it."
    )
    factor_cost: float | None = option(
        "G  Keep factors whose score is at least G. Without any of these three, 0.01."
    )
    max_divergence: float | None = option(
        "E  Add factors until the ignored ones' scores sum to E or less."
    )
    max_factors: int | None = option("M  Add at most M factors, the highest scores first.")
    method: str | None = option(
        "WORD  compensated (default: ignored factors leave their unary part behind, refreshed "
        "twice), paper (they leave nothing) or iterated (score, add, refresh, and again)."
    )

    @property
    def given(self) -> dict[str, Any]:
        """What was asked for; empty if nothing was."""
        asked = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: v for k, v in asked.items() if not (v is None or v is False or v == [])}


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

    values: float | None = option(
        "Q  Use lists of values: those of probability Q (say 0.02) or more in the seed, and those "
        "that neighbours bring back. For pairs of variables with many values. Alone, it keeps all "
        "factors."
    )
    seed_graph: str | None = option(
        "WORD  Where inference starts: globals (default: unary and global factors), unary or "
        "forest (also a spanning forest)."
    )
    score: str | None = option(
        "WORD  gain (the paper's), residual (default if compensated) or reverse (ranks hard "
        "constraints too, but promises no finite divergence)."
    )
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

    reduce: bool = flag("Run inference only in the part that matters.")
    method: str | None = option("WORD  compensated (default) or paper.")

    @property
    def choice(self) -> tuple[Objective | None, AnyRecipe]:
        """The objective, if one is asked for, and the recipe."""
        from minfer.reduction.recipes import Paper

        if self.method is not None:
            check_choice("--method", self.method, ("paper", "compensated"))
        request = make_request(self)
        return (None, Paper()) if request is None else (request.objective, request.recipe)


def make_request(
    asked: Limits, time_limit: float | None = None, factor_cost: float | None = None
) -> Request | None:
    """What the reduction is asked for; None if it is not. ``factor_cost`` is without limits."""
    from minfer.reduction.request import Request

    given = asked.given
    if not given:
        return None
    if (word := given.get("method")) in ("clique-tree", "enumerate"):
        raise SettingsError(f"--method {word}: the exact solver's option is --exact-method {word}")
    if "values" in given and "report" in given:
        raise SettingsError("--values goes with one inference, --report takes many: leave one out")
    settings = {f.name: given[f.name] for f in fields(Request) if f.name in given}
    if not given.keys() & {*LIMITS, "values"}:
        settings["factor_cost"] = factor_cost
    return Request(**settings, time_limit=time_limit)


# ---------------------------------------------------------------------- running it


def solver_for(request: Request | None, solving: Solving, **own: Any) -> Solver:
    """The solver asked for; a reduction keeps the time itself, and has its own default."""
    if request is None:
        return solving.make(**own)
    return solving.or_else(DEFAULT_SOLVER, time_limit=None).make(**own)


def say_if_exact_is_cheap(
    solver: Solver, solving: Solving, model: FactorGraph, words: list[str]
) -> Solver:
    """Say first that no reduction is needed, if so; and solve the parts exactly then, too.

    Unless a solver, or an option of one, was asked for: that is used, whatever it costs.
    """
    from minfer.planning import exact_seconds
    from minfer.solvers.exact import Exact

    seconds = wait_for("planning", lambda: exact_seconds(model))
    if seconds is None:
        return solver
    asked = solving.given.keys() - {"time_limit"}
    used = "" if asked else "; the reduced model is solved exactly too"
    note(
        f"the exact answer for the whole model takes about {duration(seconds)}, without "
        f"--reduce: {shlex.join(words)}{used}"
    )
    return solver if asked else Exact()


def account(request: Request, result: Result, solver: Solver, **options: Any) -> Account:
    """What is not part of the answer's time: bounds, comparison, explanations."""
    from minfer.reduction.request import account as made

    found = wait_for("looking at the answer", lambda: made(request, result, solver, **options))
    if isinstance(found.compared, RefusedError):
        note(f"no comparison, the full inference was refused: {found.compared}")
    return found


def show_more(console: Console, told: Account) -> None:
    """What follows the summary: full answers beside the reduced one, and explanations."""
    from minfer.cli import render
    from minfer.reduction.comparison import Comparison, face

    if isinstance(told.compared, Comparison):
        console.print()
        render.face(console, face(told.result, told.compared))
    for title, reason in told.reasons.items():
        console.print(f"\nexplain {visible(title)}\n{reason}")
