"""The reduction options of commands, what they mean, and advice in their words."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from minfer.cli.failures import UsageError, command_line, note
from minfer.cli.files import wrote
from minfer.cli.generate import Options, choose, flag, option
from minfer.cli.options import Solving
from minfer.cli.progress import wait_for
from minfer.errors import RefusedError, visible
from minfer.limits import load_compiler
from minfer.typed import variable
from minfer.words import counted, duration, options_in

if TYPE_CHECKING:
    from rich.console import Console

    from minfer.graph import FactorGraph
    from minfer.reduction.comparison import Comparison
    from minfer.reduction.explain import Explanation, ModelExplanation
    from minfer.reduction.objectives import Objective
    from minfer.reduction.recipes import AnyRecipe
    from minfer.reduction.result import Result
    from minfer.solvers.base import Marginals, Solver

DEFAULT_SOLVER = "bp"
WHOLE_MODEL = "model"  # --explain model


# ---------------------------------------------------------------------- options


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
        "with its solver. Takes about 20 runs."
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
        "FILE  Write the reduced model, corrections included; the suffix sets the format."
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

        if self.method not in (None, "paper", "compensated"):
            raise UsageError(f"--method must be paper or compensated here, not {self.method}")
        request = make_request(self)
        return (None, Paper()) if request is None else (request.objective, request.recipe)


@dataclass(frozen=True)
class Request:
    """What a command line asks of the reduction."""

    objective: Objective | None  # None: all factors are kept, for lists of values
    recipe: AnyRecipe
    method: str = "compensated"
    seed_graph: str = "globals"
    values: float | None = None  # probability from which on values are listed

    @property
    def iterates(self) -> bool:
        return hasattr(self.recipe, "rounds")

    @property
    def time_limit(self) -> float | None:
        return getattr(self.recipe, "time_limit", None)

    def __call__(self, model: FactorGraph, solver: Solver) -> Result:
        """Run it."""
        from minfer.reduction.infer import infer
        from minfer.reduction.objectives import MinJoint
        from minfer.reduction.seeds import SEEDS

        seed, _ = SEEDS[self.seed_graph]
        values = None if self.values is None else MinJoint(self.values)
        return infer(model, self.objective, solver, recipe=self.recipe, seed=seed, values=values)

    @property
    def words(self) -> str:
        """The method and its seed."""
        from minfer.reduction.seeds import SEEDS

        if self.objective is None:
            return "lists of values, all factors"
        return f"{self.recipe.words}; seed: {SEEDS[self.seed_graph][1]}"

    def describe(self, result: Result) -> str:
        words = self.words
        if self.objective is None:
            return words
        if self.iterates:
            rounds = counted(len(result.trace), "round")
            words = words.replace("iterated", f"iterated, {rounds} ({result.stopped})", 1)
        return f"{words}; {self.objective} on the {result.score_kind} score"

    def run(self, model: FactorGraph, solver: Solver, what: str = "") -> Result:
        """The same with a spinner; loading numba is no part of its time."""
        load_compiler()
        return wait_for(f"reduced inference{what}", lambda: self(model, solver))

    def compare(self, result: Result, solver: Solver) -> Comparison | RefusedError:
        """The full inference beside the reduced one, or why there is none."""
        from minfer.reduction.comparison import compare

        again = None if self.time_limit is not None else partial(self, result.model, solver)
        try:
            return wait_for("running the full inference", lambda: compare(result, solver, again))
        except RefusedError as error:
            note(f"no comparison, the full inference was refused: {error}")
            return error

    def write_report(self, path: str, first: Result, make: str, what: Any, **about: Any) -> None:
        """The sweep around an answer, as a page made by that function of ``minfer.report``."""
        from minfer import report

        solver = about.pop("solver")

        def run(objective: Objective) -> Result:
            return replace(self, objective=objective)(first.model, solver)

        about |= {"command": command_line(), "run": run, "method": self.words, "first": first}
        work = partial(getattr(report, make), what, objective=self.objective, **about)
        report.write_report(path, wait_for("sweeping for the report", work))
        wrote(path)


def make_request(
    asked: Limits, time_limit: float | None = None, factor_cost: float | None = None
) -> Request | None:
    """What the reduction is asked for; None if it is not. ``factor_cost`` is without limits."""
    from minfer.checks import check_number, check_settings
    from minfer.reduction.gains import SCORES
    from minfer.reduction.recipes import RECIPES, recipe_named
    from minfer.reduction.seeds import SEEDS

    given = asked.given
    if not given:
        return None
    if given.get("method") in ("clique-tree", "enumerate"):
        word = given["method"]
        raise UsageError(f"--method {word}: the exact solver's option is --exact-method {word}")
    choose("--method", given.get("method"), *RECIPES)
    choose("--seed-graph", given.get("seed_graph"), *SEEDS)
    choose("--score", given.get("score"), *SCORES)
    choose("--compare", given.get("compare"), "full")
    check_settings(1, 0.0, time_limit=time_limit)
    method, values = given.get("method", "compensated"), given.get("values")
    if values is not None:
        if method == "iterated" or time_limit is not None or "report" in given:
            raise UsageError(
                "--values goes with one inference: leave out --method iterated, --time-limit and "
                "--report, or --values"
            )
        check_number("--values", values, 0.0, 1.0)
    recipe = recipe_named(method, score=given.get("score"), time_limit=time_limit)
    objective = _objective(given, factor_cost)
    return Request(objective, recipe, method, given.get("seed_graph", "globals"), values)


def _objective(given: dict[str, Any], factor_cost: float | None) -> Objective | None:
    from minfer.reduction.infer import DEFAULT_FACTOR_COST
    from minfer.reduction.objectives import Budget, MinJoint

    limits = {k: given[k] for k in ("max_divergence", "max_factors", "factor_cost") if k in given}
    if limits:
        budget = Budget(**limits)
        return budget.parts[0] if len(limits) == 1 else budget
    if "values" in given:
        return None
    return MinJoint(DEFAULT_FACTOR_COST if factor_cost is None else factor_cost)


# ---------------------------------------------------------------------- running it


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


def certified(result: Result, seconds: float | None, **options: Any) -> Result:
    """The answer with intervals, if they are asked for: in this thread, for Ctrl-C to end it."""
    if seconds is None:
        return result
    from minfer.cli.certainty import live

    with live(result.model.n_variables) as watch:
        return result.certified(seconds, watch=watch, **options)


class Reduced(NamedTuple):
    """Everything that is told of one reduced run."""

    request: Request
    result: Result
    compared: Comparison | RefusedError | None
    reasons: dict[str, Explanation | ModelExplanation]

    @property
    def full(self) -> Marginals:
        """The answer as one about the full model: its probabilities, and log Z of F."""
        from minfer.solvers.base import Marginals

        m = self.result.marginals
        return Marginals.from_probs(
            self.result.model, m.probs, m.solver, self.result.log_z_estimate
        )

    def check_log_z(self, pr: str) -> None:
        """A file of one number cannot say that the number is worth nothing."""
        from minfer.reduction.telling import full_log_z

        if not math.isfinite(self.result.log_z_estimate):
            raise RefusedError(
                f"--pr {pr}: log Z is {full_log_z(self.result)}; keep more factors "
                "(--factor-cost), or leave --reduce out"
            )

    def to_dict(self, chosen: list[int] | None) -> dict[str, Any]:
        from minfer.reduction.telling import to_dict

        asked = self.request
        objective = asked.objective and str(asked.objective)
        settings = {"method": asked.method, "seed_graph": asked.seed_graph, "objective": objective}
        content = to_dict(self.result, chosen, **settings)
        if isinstance(self.compared, RefusedError):
            content["compare"] = {"refused": str(self.compared)}
        elif self.compared is not None:
            content["compare"] = self.compared.to_dict(self.result)
        if self.reasons:
            content["explain"] = {name: e.to_dict() for name, e in self.reasons.items()}
        return content

    def summary(self) -> dict[str, str]:
        from minfer.reduction.telling import little_ignored, summary

        advice = advice_line(self.request, self.result) or little_ignored(self.result)
        return summary(self.result, self.request.describe(self.result), advice)

    def show_more(self, console: Console) -> None:
        """What follows the summary."""
        show_compared(console, self.result, self.compared)
        for text, reason in self.reasons.items():
            console.print(f"\nexplain {visible(text)}\n{reason}")


def to_explain(asked: Reduction, model: FactorGraph) -> dict[str, int | None]:
    """The variables of ``--explain``; None for the whole model."""
    whole = {WHOLE_MODEL} - model._index.keys()
    return {text: None if text in whole else variable(text, model) for text in asked.explain or ()}


def run(
    request: Request, asked: Reduction, solver: Solver, model: FactorGraph, seconds: float | None
) -> Reduced:
    """Reduced inference, then what is not part of its time: bounds, comparison, explanations."""
    from minfer.reduction.explain import explain, explain_model
    from minfer.reduction.telling import looked_at

    names = to_explain(asked, model)
    result = certified(request.run(model, solver), seconds)
    look = partial(looked_at, result, request.time_limit is not None)
    result = wait_for("bounding the divergence", look)
    compared = request.compare(result, solver) if asked.compare else None
    reasons = wait_for(
        "explaining",
        lambda: {
            text: explain_model(result) if v is None else explain(result, v)
            for text, v in names.items()
        },
    )
    return Reduced(request, result, compared, reasons)


def show_compared(
    console: Console, result: Result, compared: Comparison | RefusedError | None
) -> None:
    """The reduced answer beside full ones, if there are any."""
    from minfer.cli import render
    from minfer.reduction.comparison import Comparison, face

    if isinstance(compared, Comparison):
        console.print()
        render.face(console, face(result, compared))


# ---------------------------------------------------------------------- advice


def advice_line(request: Request | None, result: Result) -> str:
    """The result's advice in the words of the command line."""
    forced = result.forced_share > 0.5 and result.score_kind != "reverse"
    if request is None or forced or result.settled or result.marginals.advice:
        return options_in(result.advice)
    if not request.iterates:
        return "--method iterated goes on until the answer stops changing"
    more = "raise --time-limit" if request.time_limit is not None else "keep more factors"
    return f"{more}, or leave --reduce out"
