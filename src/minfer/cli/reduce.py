"""The reduction options of ``minfer run``, what they mean, and how the answer is reported.

Every line, and every name in the JSON object, distinguishes rigorous statements from estimates.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from minfer.cli.failures import UsageError, command_line, note
from minfer.cli.generate import option
from minfer.cli.options import solver_fields
from minfer.cli.progress import wait_for
from minfer.errors import RefusedError
from minfer.typed import variable
from minfer.words import counted, duration, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from minfer.graph import FactorGraph
    from minfer.reduction.comparison import Comparison
    from minfer.reduction.explain import Explanation, ModelExplanation
    from minfer.reduction.objectives import Objective
    from minfer.reduction.recipes import AnyRecipe
    from minfer.reduction.result import Result
    from minfer.solvers.base import Solver

PANEL = "Reduction"
DEFAULT_SOLVER = "bp"
METHODS = ("paper", "compensated", "iterated")
SEED_GRAPHS = {
    "globals": "unary_and_globals",
    "unary": "unary",
    "forest": "spanning_forest",
}
SCORES = ("gain", "residual", "reverse")
WHOLE_MODEL = "model"  # --explain model


# ---------------------------------------------------------------------- options


@dataclass(frozen=True)
class Limits:
    """What to keep and by which recipe; any of it implies ``--reduce``."""

    reduce: bool = option(
        "Run inference in the part of the model that matters, and estimate the error. Any option "
        "below implies it; --time-limit then covers all of it.",
        default=False,
    )
    factor_cost: float | None = option(
        "Keep factors whose score is at least G. Without any of these three, 0.01.", "G"
    )
    max_divergence: float | None = option(
        "Add factors until the ignored ones' scores sum to E or less.", "E"
    )
    max_factors: int | None = option("Add at most M factors, the highest scores first.", "M")
    method: str | None = option(
        "compensated (default: ignored factors leave their unary part behind, refreshed twice), "
        "paper (they leave nothing) or iterated (score, add, refresh, and again).",
        "WORD",
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
        "Also run the full inference, exactly if that fits: size, time and difference side by "
        "side.",
        "full",
    )
    report: str | None = option(
        "Write one HTML file that opens offline: a slider over the limit above, with what is kept, "
        "the answer, its errors, times and baselines. Reduces as --reduce does, with its solver. "
        "Takes about 20 runs.",
        "OUT.html",
    )


@dataclass(frozen=True)
class Reduction(Reported):
    """All of the panel."""

    values: float | None = option(
        "Use lists of values: those of probability Q (say 0.02) or more in the seed, and those "
        "that neighbours bring back. For pairs of variables with many values. Alone, it keeps all "
        "factors.",
        "Q",
    )
    seed_graph: str | None = option(
        "Where inference starts: globals (default: unary and global factors), unary or forest "
        "(also a spanning forest).",
        "WORD",
    )
    score: str | None = option(
        "gain (the paper's), residual (default if compensated) or reverse (ranks hard constraints "
        "too, but promises no finite divergence).",
        "WORD",
    )
    explain: list[str] | None = option(  # noqa: RUF009 (a field)
        "Which factors moved a variable, and which ignored ones could (may be repeated); "
        "`model`: where the kept factors lie.",
        "VAR",
    )
    save_reduced: str | None = option(
        "Write the reduced model, corrections included; the suffix sets the format.", "FILE"
    )


@dataclass(frozen=True)
class JobLimits(Limits):
    """Of commands that answer once and report nothing more."""

    reduce: bool = option("Infer in the part that matters.", default=False)
    method: str | None = option("compensated (default) or paper.", "WORD")

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
    save: str | None = None
    explain: tuple[str, ...] = ()
    compare: bool = False
    report: str | None = None
    certify: float | None = None  # seconds for intervals
    values: float | None = None  # probability from which on values are listed

    @property
    def iterates(self) -> bool:
        return hasattr(self.recipe, "rounds")

    @property
    def time_limit(self) -> float | None:
        return getattr(self.recipe, "time_limit", None)

    def check_names(self, model: FactorGraph) -> None:
        """Fail before the work if there is no variable that is to be explained."""
        for text in self.explain:
            _explained(text, model)

    def __call__(self, model: FactorGraph, solver: Solver) -> Result:
        """Run it."""
        from minfer.reduction import seeds
        from minfer.reduction.infer import infer
        from minfer.reduction.objectives import MinJoint

        seed = getattr(seeds, SEED_GRAPHS[self.seed_graph])
        values = None if self.values is None else MinJoint(self.values)
        return infer(model, self.objective, solver, recipe=self.recipe, seed=seed, values=values)

    @property
    def words(self) -> str:
        """The method and its seed."""
        if self.objective is None:
            return "lists of values, all factors"
        seed = {"globals": "unary and global factors", "unary": "unary factors"}
        about = seed.get(self.seed_graph, "unary factors and a spanning forest")
        return f"{self.recipe.words}; seed: {about}"

    def describe(self, result: Result) -> str:
        words = self.words
        if self.objective is None:
            return words
        if self.iterates:
            n = len(result.trace)
            rounds = f"iterated, {counted(n, 'round')} ({result.stopped})"
            words = words.replace("iterated", rounds, 1)
        return f"{words}; {self.objective} on the {result.score_kind} score"


def make_request(
    asked: Limits,
    time_limit: float | None = None,
    certify: float | None = None,
    factor_cost: float | None = None,
) -> Request | None:
    """What the reduction is asked for; None if it is not. ``factor_cost`` is without limits."""
    from minfer.checks import check_settings
    from minfer.reduction.recipes import recipe_named

    given = asked.given
    if not given:
        return None
    _check_word("--method", given.get("method"), METHODS)
    _check_word("--seed-graph", given.get("seed_graph"), tuple(SEED_GRAPHS))
    _check_word("--score", given.get("score"), SCORES)
    _check_word("--compare", given.get("compare"), ("full",))
    check_settings(1, 0.0, time_limit=time_limit)
    _check_values(given, time_limit)
    method = given.get("method", "compensated")
    return Request(
        objective=_objective(given, factor_cost),
        recipe=recipe_named(method, score=given.get("score"), time_limit=time_limit),
        method=method,
        seed_graph=given.get("seed_graph", "globals"),
        save=given.get("save_reduced"),
        explain=tuple(given.get("explain") or ()),
        compare="compare" in given,
        report=given.get("report"),
        certify=certify,
        values=given.get("values"),
    )


def _check_values(given: dict[str, Any], time_limit: float | None) -> None:
    """Lists of values go with one reduced inference, not with rounds or sweeps of them."""
    from minfer.checks import check_number

    if "values" not in given:
        return
    if given.get("method") == "iterated" or time_limit is not None or "report" in given:
        raise UsageError(
            "--values goes with one inference: leave out --method iterated, --time-limit and "
            "--report, or --values"
        )
    check_number("--values", given["values"], 0.0, 1.0)


def _check_word(flag: str, word: str | None, words: tuple[str, ...]) -> None:
    if word is None or word in words:
        return
    if flag == "--method" and word in ("clique-tree", "enumerate"):
        raise UsageError(f"--method {word}: the exact solver's option is --exact-method {word}")
    raise UsageError(f"{flag} must be {' or '.join(words)}, not {word!r}")


def _objective(given: dict[str, Any], factor_cost: float | None) -> Objective | None:
    from minfer.reduction.infer import DEFAULT_FACTOR_COST
    from minfer.reduction.objectives import Budget, MinDivergence, MinJoint, MinSize

    limits = {k: given[k] for k in ("max_divergence", "max_factors", "factor_cost") if k in given}
    if not limits and "values" in given:
        return None
    if not limits:
        return MinJoint(DEFAULT_FACTOR_COST if factor_cost is None else factor_cost)
    alone: dict[str, Any] = {
        "max_divergence": MinSize,
        "max_factors": MinDivergence,
        "factor_cost": MinJoint,
    }
    if len(limits) == 1:
        ((name, value),) = limits.items()
        return alone[name](value)
    return Budget(**limits)


# ---------------------------------------------------------------------- running it


class Report(NamedTuple):
    """Everything that is told of one reduced run."""

    request: Request
    result: Result
    comparison: Comparison | None
    refused: str  # why there is no comparison
    explanations: dict[str, Explanation | ModelExplanation]

    def to_dict(self, chosen: list[int] | None) -> dict[str, Any]:
        from minfer.reduction import telling

        result = self.result
        content = result.to_dict(chosen)
        more = {
            "method": self.request.method,
            "seed_graph": self.request.seed_graph,
            "objective": self.request.objective and str(self.request.objective),
            "forced_share": result.forced_share,
            "largest_error_estimate": None
            if result.no_estimate
            else float(result.error_estimates.max(initial=0.0)),
            "bound_is_rigorous": True,
            "no_bound_because": telling.why_no_bound(result),
        }
        content["reduction"] = {**content["reduction"], **more}
        if self.request.compare:
            found = self.comparison
            content["compare"] = (
                {"refused": self.refused} if found is None else found.to_dict(result)
            )
        if self.explanations:
            content["explain"] = {name: e.to_dict() for name, e in self.explanations.items()}
        return content


def say_if_exact_is_cheap(
    solver: Solver, settings: dict[str, Any], model: FactorGraph, words: list[str]
) -> Solver:
    """Say first that no reduction is needed, if so; and solve the parts exactly then, too.

    Unless a solver, or an option of one, was asked for: that is used, whatever it costs.
    """
    from minfer.planning import exact_seconds
    from minfer.solvers.exact import Exact

    seconds = wait_for("planning", lambda: exact_seconds(model))
    if seconds is None:
        return solver
    asked = settings.get("solver") or any(
        settings.get(o.key) is not None for o in solver_fields() if o.key != "time_limit"
    )
    used = "" if asked else "; the reduced model is solved exactly too"
    note(
        f"the exact answer for the whole model takes about {duration(seconds)}, without "
        f"--reduce: {shlex.join(words)}{used}"
    )
    return solver if asked else Exact()


def run_reduced(request: Request, solver: Solver, model: FactorGraph) -> Report:
    """Reduced inference, then what is not part of its time: bounds, comparison, explanations."""
    names = {text: _explained(text, model) for text in request.explain}
    result = certified(_timed(request, solver, model), request.certify)
    result = wait_for("bounding the divergence", lambda: _looked_at(result, request))
    comparison, refused = None, ""
    if request.compare:
        try:
            comparison = compared(request, result, solver)
        except RefusedError as error:
            refused = str(error)
            note(f"no comparison, the full inference was refused: {error}")
    explanations = wait_for(
        "explaining", lambda: {text: _explain(result, v) for text, v in names.items()}
    )
    return Report(request, result, comparison, refused, explanations)


def certified(result: Result, seconds: float | None, **options: Any) -> Result:
    """The answer with intervals, if they are asked for: in this thread, for Ctrl-C to end it."""
    if seconds is None:
        return result
    from minfer.cli.certainty import live

    with live(result.model.n_variables) as watch:
        return result.certified(seconds, watch=watch, **options)


def _explained(text: str, model: FactorGraph) -> int | None:
    """The variable of an ``--explain``; None for the whole model."""
    if text == WHOLE_MODEL and text not in model._index:
        return None
    return variable(text, model)


def _explain(result: Result, v: int | None) -> Explanation | ModelExplanation:
    from minfer.reduction.explain import explain, explain_model

    return explain_model(result) if v is None else explain(result, v)


def _timed(request: Request, solver: Solver, model: FactorGraph) -> Result:
    import minfer.kernels._jit  # noqa: F401 (loads numba, which is no part of the method's time)

    return wait_for("reduced inference", lambda: request(model, solver))


def _looked_at(result: Result, request: Request) -> Result:
    """Everything that is computed on first access; no bound where that would be out of place."""
    from minfer.reduction.bound import MOST_BOUNDED

    if request.time_limit is not None:
        result = result.unbounded("none is computed under a time limit")
    elif result.n_ignored > MOST_BOUNDED:
        most = f"{MOST_BOUNDED:,} ignored factors"
        result = result.unbounded(f"none is computed for more than {most}")
    _ = result.bound, result.error_estimates, result.divergence, result.log_z_full
    _ = result.values and result.values.outside_bound
    return result


def compared(request: Request, result: Result, solver: Solver) -> Comparison:
    """The full inference beside the reduced one."""
    from minfer.reduction.comparison import compare

    again = None if request.time_limit is not None else partial(request, result.model, solver)
    return wait_for("running the full inference", lambda: compare(result, solver, again))


def write_report(
    request: Request, solver: Solver, first: Result, name: str, make: Callable[..., str]
) -> None:
    """The sweep around an answer, as a page; ``make`` is ``minfer.report.report`` or its like."""
    from minfer.report import write_report as write

    def run(objective: Objective) -> Result:
        return replace(request, objective=objective)(first.model, solver)

    assert request.report is not None
    options: dict[str, Any] = {"title": name, "command": command_line(), "run": run}
    options |= {"method": request.words, "certify": request.certify, "first": first}
    write(
        request.report,
        wait_for("sweeping for the report", lambda: make(objective=request.objective, **options)),
    )
    note(f"wrote {request.report}")


# ---------------------------------------------------------------------- telling it


def show(
    console: Console, name: str, report: Report, read: float, chosen: list[int] | None = None
) -> None:
    """All that follows the table of marginals."""
    from minfer.cli import render
    from minfer.cli.certainty import told

    lines = summary(name, report, read)
    if (sure := report.result.intervals) is not None:
        lines |= told(sure, report.result.marginals, chosen)
    render.show(console, render.facts(lines))
    if report.comparison is not None:
        console.print()
        render.compared(console, report.result, report.comparison)
    for text, explanation in report.explanations.items():
        console.print(f"\nexplain {visible(text)}")
        console.print(str(explanation))


def summary(name: str, report: Report, read: float) -> dict[str, str | Text]:
    """The panel of a reduced answer."""
    from minfer.cli import render
    from minfer.reduction import telling

    result, m = report.result, report.result.marginals
    lines: dict[str, str | Text] = {
        "model": f"{name}: {render.describe(result.model)}",
        "solver": repr(m.solver),
        "why": m.note,
        "method": report.request.describe(result),
        "status": status_line(result),
        "advice": advice_line(report.request, result) or little_ignored(result),
        "factors": f"{result.n_factors:,} in all: {result.n_seed:,} seed, {result.n_forced:,} "
        f"forced, {result.n_added:,} added, {result.n_ignored:,} ignored; "
        f"{result.kept_share:.1%} of those outside the seed kept",
        "values": telling.values(result),
        "divergence": telling.divergence(result),
        "error of leaving out": telling.error(result),
        "bound of leaving out": telling.bound(result),
        "log Z": f"{render.log_z(m)}; of the reduced model",
        "": telling.full_log_z(result),
        "time": f"{duration(result.seconds)} ({telling.steps(result)}), compiling or loading "
        f"kernels included; reading the model {duration(read)}",
    }
    return {key: value for key, value in lines.items() if value}


def status_line(result: Result) -> Text:
    """The solver's status, or that refreshes still move its answer."""
    from rich.text import Text

    from minfer.cli import render

    inner = render.status(result.marginals)
    if result.status is not result.marginals.status and result.settled:
        return Text(f"{result.status.value}: the reduced model is solved exactly", style="green")
    if result.settled or not result.marginals.status.ok:
        return inner
    step = "round" if result.trace else "refresh"
    return Text(
        f"{result.status.value}: the last {step} still moved a probability by "
        f"{result.last_change:.1g}; the solver itself: {inner}",
        style="bold yellow",
    )


def advice_line(request: Request | None, result: Result) -> str:
    """The result's advice in the words of the command line."""
    from minfer.cli import render

    forced = result.forced_share > 0.5 and result.score_kind != "reverse"
    if request is None or forced or result.settled or result.marginals.advice:
        return render.options_in(result.advice)
    if not request.iterates:
        return "--method iterated goes on until the answer stops changing"
    more = "raise --time-limit" if request.time_limit is not None else "keep more factors"
    return f"{more}, or leave --reduce out"


def little_ignored(result: Result) -> str:
    from minfer.reduction.telling import MOST_KEPT

    if result.kept_share <= MOST_KEPT or result.n_factors == result.n_seed:
        return ""
    if not result.n_ignored and result.values is not None:
        return ""  # factors were not what was to be ignored
    if not result.n_ignored:
        return (
            "nothing was ignored, so this is plain inference by the solver above: raise "
            "--factor-cost, or leave --reduce out (small models are then solved exactly)"
        )
    return "little was ignored: raise --factor-cost, or set --max-factors, for a smaller model"
