"""The reduction options of ``minfer run``, what they mean, and how the answer is reported.

Every line, and every name in the JSON object, distinguishes rigorous statements from estimates.
"""

from __future__ import annotations

import inspect
import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import numpy as np
import typer

from minfer.cli.failures import UsageError, command_line, note
from minfer.cli.options import OPTIONS as SOLVER_OPTIONS
from minfer.cli.options import variable
from minfer.cli.progress import wait_for
from minfer.errors import RefusedError
from minfer.words import counted, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from minfer.graph import FactorGraph
    from minfer.reduction.explain import Explanation, ModelExplanation
    from minfer.reduction.objectives import Objective
    from minfer.reduction.result import Result
    from minfer.solvers.base import Marginals, Solver

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
MOST_KEPT = 0.9  # beyond this share the reduction is hardly worth it
MOST_BOUNDED = 50_000  # ignored factors; with more a bound takes long and says nothing
TIMED_AGAIN = 30.0  # seconds; what took less is timed once more, with all kernels loaded


# ---------------------------------------------------------------------- options


class ReductionOption(NamedTuple):
    """One option of the panel; any of them implies ``--reduce``."""

    name: str
    type: Any
    metavar: str | None
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


OPTIONS = (
    ReductionOption(
        "reduce",
        bool,
        None,
        "Run inference in the part of the model that matters, and estimate the error. Any option "
        "below implies it; --time-limit then covers all of it.",
    ),
    ReductionOption(
        "factor_cost",
        float,
        "G",
        "Keep factors whose score is at least G. Without any of these three, 0.01.",
    ),
    ReductionOption(
        "max_divergence", float, "E", "Add factors until the ignored ones' scores sum to E or less."
    ),
    ReductionOption("max_factors", int, "M", "Add at most M factors, the highest scores first."),
    ReductionOption(
        "values",
        float,
        "Q",
        "Use lists of values: those of probability Q (say 0.02) or more in the seed, and those "
        "that neighbours bring back. For pairs of variables with many values. Alone, it keeps all "
        "factors.",
    ),
    ReductionOption(
        "method",
        str,
        "WORD",
        "compensated (default: ignored factors leave their unary part behind, refreshed twice), "
        "paper (they leave nothing) or iterated (score, add, refresh, and again).",
    ),
    ReductionOption(
        "seed_graph",
        str,
        "WORD",
        "Where inference starts: globals (default: unary and global factors), unary or forest "
        "(also a spanning forest).",
    ),
    ReductionOption(
        "score",
        str,
        "WORD",
        "gain (the paper's), residual (default if compensated) or reverse (ranks hard constraints "
        "too, but promises no finite divergence).",
    ),
    ReductionOption(
        "compare",
        str,
        "full",
        "Also run the full inference, exactly if that fits: size, time and difference side by "
        "side.",
    ),
    ReductionOption(
        "explain",
        list[str],
        "VAR",
        "Which factors moved a variable, and which ignored ones could (may be repeated); "
        "`model`: where the kept factors lie.",
    ),
    ReductionOption(
        "save_reduced",
        str,
        "FILE",
        "Write the reduced model, corrections included; the suffix sets the format.",
    ),
    ReductionOption(
        "report",
        str,
        "OUT.html",
        "Write one HTML file that opens offline: a slider over the limit above, with what is kept, "
        "the answer, its errors, times and baselines. Reduces as --reduce does, with its solver. "
        "Takes about 20 runs.",
    ),
)


def reduction_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the panel to a command; its values come as ``**settings``."""
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())
    rest = [p for p in own if p.kind is p.VAR_KEYWORD]
    added = []
    for option in OPTIONS:
        flag = option.type is bool
        text = typer.Option(
            option.flag, help=option.help, metavar=option.metavar, rich_help_panel=PANEL
        )
        kind: Any = Annotated[bool if flag else Optional[option.type], text]  # noqa: UP045
        added.append(
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if flag else None,
                annotation=kind,
            )
        )
    named = [p for p in own if p not in rest]
    command.__signature__ = signature.replace(parameters=named + added + rest)  # type: ignore[attr-defined]
    return command


@dataclass(frozen=True)
class Request:
    """What a command line asks of the reduction."""

    objective: Objective | None  # None: all factors are kept, for lists of values
    method: str = "compensated"
    seed_graph: str = "globals"
    score: str | None = None
    time_limit: float | None = None
    save: str | None = None
    explain: tuple[str, ...] = ()
    compare: bool = False
    report: str | None = None
    certify: float | None = None  # seconds for intervals
    values: float | None = None  # probability from which on values are listed

    @property
    def iterates(self) -> bool:
        return self.method == "iterated" or self.time_limit is not None

    def check_names(self, model: FactorGraph) -> None:
        """Fail before the work if there is no variable that is to be explained."""
        for text in self.explain:
            _explained(text, model)

    def __call__(self, model: FactorGraph, solver: Solver) -> Result:
        """Run it."""
        from minfer.reduction import seeds
        from minfer.reduction.infer import infer
        from minfer.reduction.objectives import MinJoint
        from minfer.reduction.relax import relax
        from minfer.reduction.tradeoff import METHODS as RECIPES

        seed = getattr(seeds, SEED_GRAPHS[self.seed_graph])
        if self.iterates:
            assert self.objective is not None  # lists are not iterated
            return relax(
                model,
                self.objective,
                solver,
                seed,
                compensate=self.method != "paper",
                score=self.score,
                time_limit=self.time_limit,
            )
        recipe = RECIPES["paper" if self.method == "paper" else "refreshed"]
        values = None if self.values is None else MinJoint(self.values)
        how: dict[str, Any] = {**recipe, "score": self.score, "values": values}
        return infer(model, self.objective, solver, seed, **how)

    @property
    def words(self) -> str:
        """The method and its seed."""
        if self.objective is None:
            return "lists of values, all factors"
        words = "the paper's" if self.method == "paper" else "compensated"
        if self.iterates:
            words += ", iterated"
        elif self.method != "paper":
            words += ", refreshed twice"
        seed = {"globals": "unary and global factors", "unary": "unary factors"}
        return f"{words}; seed: {seed.get(self.seed_graph, 'unary factors and a spanning forest')}"

    def describe(self, result: Result) -> str:
        words = self.words
        if self.objective is None:
            return words
        if self.iterates:
            n = len(result.trace)
            rounds = f"iterated, {counted(n, 'round')} ({result.stopped})"
            words = words.replace("iterated", rounds, 1)
        return f"{words}; {self.objective} on the {result.score} score"


def make_request(settings: dict[str, Any]) -> Request | None:
    """What the reduction is asked for; None if it is not."""
    from minfer.checks import check_settings

    asked = {o.name: settings.get(o.name) for o in OPTIONS}
    given = {k: v for k, v in asked.items() if not (v is None or v is False or v == [])}
    if not given:
        return None
    _check_word("--method", given.get("method"), METHODS)
    _check_word("--seed-graph", given.get("seed_graph"), tuple(SEED_GRAPHS))
    _check_word("--score", given.get("score"), SCORES)
    _check_word("--compare", given.get("compare"), ("full",))
    check_settings(1, 0.0, time_limit=settings.get("time_limit"))
    _check_values(given, settings.get("time_limit"))
    return Request(
        objective=_objective(given),
        method=given.get("method", "compensated"),
        seed_graph=given.get("seed_graph", "globals"),
        score=given.get("score"),
        time_limit=settings.get("time_limit"),
        save=given.get("save_reduced"),
        explain=tuple(given.get("explain") or ()),
        compare="compare" in given,
        report=given.get("report"),
        certify=settings.get("certify"),
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
    raise UsageError(f"{flag} is {' or '.join(words)}, not {word!r}")


def _objective(given: dict[str, Any]) -> Objective | None:
    from minfer.reduction.infer import DEFAULT_FACTOR_COST
    from minfer.reduction.objectives import Budget, MinDivergence, MinJoint, MinSize

    limits = {k: given[k] for k in ("max_divergence", "max_factors", "factor_cost") if k in given}
    if not limits and "values" in given:
        return None
    if not limits:
        return MinJoint(DEFAULT_FACTOR_COST)
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


class Difference(NamedTuple):
    """How far two answers for the same variables are apart."""

    mean: float
    largest: float
    where: str  # the variable of the largest difference

    @classmethod
    def between(cls, model: FactorGraph, a: Marginals, b: Marginals) -> Difference:
        off = np.abs(np.asarray(a.probs) - np.asarray(b.probs))
        if not len(off):
            return cls(0.0, 0.0, "")
        v = int(np.searchsorted(model._offsets, int(np.argmax(off)), side="right")) - 1
        return cls(float(off.mean()), float(off.max()), model.name(v))


class Full(NamedTuple):
    """One inference in the full model."""

    marginals: Marginals
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        plain = self.marginals.to_dict([])
        del plain["marginals"]
        return plain


class Comparison(NamedTuple):
    """The full inference beside the reduced one: exact where that fits, else by the same solver."""

    full: Full
    reduced_seconds: float
    difference: Difference
    same: Full | None = None  # by the same solver, where ``full`` is not
    same_difference: Difference | None = None  # of that from ``full``

    @property
    def is_exact(self) -> bool:
        return self.full.marginals.status.value == "exact"

    def speed_up(self, full: Full) -> float:
        return full.seconds / self.reduced_seconds if self.reduced_seconds > 0 else math.inf

    def to_dict(self, result: Result) -> dict[str, Any]:
        return {
            "compared_with": self.full.marginals.solver,
            "reduced_factors": int(result.keep.sum()),
            "full_factors": result.n_factors,
            "reduced_seconds": self.reduced_seconds,
            "full_seconds": self.full.seconds,
            "speed_up": self.speed_up(self.full),
            "mean_difference": self.difference.mean,
            "largest_difference": self.difference.largest,
            "largest_at": self.difference.where,
            "full": self.full.to_dict(),
            "same_solver": self._same(),
        }

    def _same(self) -> dict[str, Any] | None:
        if self.same is None or self.same_difference is None:
            return None
        return {
            **self.same.to_dict(),
            "seconds": self.same.seconds,
            "speed_up": self.speed_up(self.same),
            "mean_difference": self.same_difference.mean,
            "largest_difference": self.same_difference.largest,
            "largest_at": self.same_difference.where,
        }


class Report(NamedTuple):
    """Everything that is told of one reduced run."""

    request: Request
    result: Result
    comparison: Comparison | None
    refused: str  # why there is no comparison
    explanations: dict[str, Explanation | ModelExplanation]

    def to_dict(self, chosen: list[int] | None) -> dict[str, Any]:
        result = self.result
        content = result.to_dict(chosen)
        more = {
            "method": self.request.method,
            "seed_graph": self.request.seed_graph,
            "objective": self.request.objective and str(self.request.objective),
            "forced_share": result.forced_share,
            "error_estimate_largest": None
            if result.no_estimate
            else float(result.error_estimates.max(initial=0.0)),
            "bound_is_rigorous": True,
            "no_bound_because": why_no_bound(result),
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
    from minfer.cli import render
    from minfer.planning import exact_seconds
    from minfer.solvers.exact import Exact

    seconds = wait_for("planning", lambda: exact_seconds(model))
    if seconds is None:
        return solver
    asked = settings.get("solver") or any(
        settings.get(o.key) is not None for o in SOLVER_OPTIONS if o.key != "time_limit"
    )
    used = "" if asked else "; the reduced model is solved exactly too"
    note(
        f"the exact answer for the whole model takes about {render.duration(seconds)}, without "
        f"--reduce: {shlex.join(words)}{used}"
    )
    return solver if asked else Exact()


def run_reduced(request: Request, solver: Solver, model: FactorGraph) -> Report:
    """Reduced inference, then what is not part of its time: bounds, comparison, explanations."""
    names = {text: _explained(text, model) for text in request.explain}
    result = certified(_timed(request, solver, model), request.certify)
    wait_for("bounding the divergence", lambda: _look(result, request))
    comparison, refused = None, ""
    if request.compare:
        try:
            result, comparison = compare(request, result, solver, model)
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


def _look(result: Result, request: Request) -> None:
    """Everything that is computed on first access; no bound where that would be out of place."""
    from minfer.reduction.bound import Certificate

    values_line(result)
    reason = ""
    if request.time_limit is not None:
        reason = "none is computed under a time limit"
    elif result.n_ignored > MOST_BOUNDED:
        reason = f"none is computed for more than {MOST_BOUNDED:,} ignored factors"
    if reason:
        result.__dict__["certificate"] = Certificate(reason=reason)
    _ = result.bound, result.error_estimates, result.divergence, result.log_z_full


def compare(
    request: Request, result: Result, solver: Solver, model: FactorGraph
) -> tuple[Result, Comparison]:
    """The full inference; all is timed on a second call where the first was short.

    Exact where that takes seconds at most; then also by the same solver, whose own error shows.
    """
    from minfer.planning import exact_seconds
    from minfer.solvers.exact import Exact

    reduced_seconds = result.seconds
    if reduced_seconds < TIMED_AGAIN and request.time_limit is None:
        reduced_seconds = _timed(request, solver, model).seconds
    exact: Full | None = None
    if not isinstance(solver, Exact) and (
        wait_for("planning", lambda: exact_seconds(model, None)) is not None
    ):
        exact = _full(Exact(), model)
    same: Full | None = None
    try:
        same = _full(solver, model)
    except RefusedError:
        if exact is None:
            raise
    if exact is None or (same is not None and same.marginals.status.value == "exact"):
        assert same is not None
        return result, Comparison(
            same, reduced_seconds, Difference.between(model, result.marginals, same.marginals)
        )
    return result, Comparison(
        exact,
        reduced_seconds,
        Difference.between(model, result.marginals, exact.marginals),
        same,
        same and Difference.between(model, same.marginals, exact.marginals),
    )


def _full(solver: Solver, model: FactorGraph) -> Full:
    """One inference in the full model, timed again where it was short."""
    found = wait_for("running the full inference", lambda: solver(model))
    _ = wait_for("log Z of the full model", lambda: found.log_z)
    seconds = found.seconds
    if seconds < TIMED_AGAIN:
        seconds = wait_for("running the full inference", lambda: solver(model)).seconds
    return Full(found, seconds)


def write_report(
    request: Request, solver: Solver, model: FactorGraph, name: str, make: Callable[..., str]
) -> None:
    """The sweep around a request, as a page; ``make`` is ``minfer.report.report`` or its like."""
    from minfer.report import write_report as write

    def run(objective: Objective) -> Result:
        return replace(request, objective=objective)(model, solver)

    assert request.report is not None
    options: dict[str, Any] = {"title": name, "command": command_line(), "run": run}
    options |= {"method": request.words, "certify": request.certify}
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
        render.show(console, comparison_table(report.result, report.comparison))
    for text, explanation in report.explanations.items():
        console.print(f"\nexplain {visible(text)}")
        console.print(str(explanation))


def summary(name: str, report: Report, read: float) -> dict[str, str | Text]:
    """The panel of a reduced answer."""
    from minfer.cli import render

    result, m = report.result, report.result.marginals
    lines: dict[str, str | Text] = {
        "model": f"{name}: {render.describe(result.model)}",
        "solver": m.solver,
        "why": m.note,
        "method": report.request.describe(result),
        "status": status_line(result),
        "advice": advice_line(report.request, result) or _little_ignored(result),
        "factors": f"{result.n_factors:,} in all: {result.n_seed:,} seed, {result.n_forced:,} "
        f"forced, {result.n_added:,} added, {result.n_ignored:,} ignored; "
        f"{result.kept_share:.1%} of those outside the seed kept",
        "values": values_line(result),
        "divergence": divergence_line(result),
        "error of leaving out": error_line(result),
        "bound of leaving out": bound_line(result),
        "log Z": f"{render.log_z(m)}; of the reduced model",
        "": full_log_z(result),
        "time": f"{render.duration(result.seconds)} ({_steps(result)}), compiling or loading "
        f"kernels included; reading the model {render.duration(read)}",
    }
    return {key: value for key, value in lines.items() if value}


def values_line(result: Result) -> str:
    """Lists of values: how many are kept and what may be outside, or why there are none."""
    lists = result.values
    if lists is None:
        return ""
    if lists.dense:
        return f"all {lists.n_values:,}: {lists.dense}"
    text = (
        f"{lists.n_kept:,} of {lists.n_values:,} kept; estimated: "
        f"{lists.outside_estimate:.2g} of {counted(result.model.n_variables, 'variable')} outside"
    )
    if lists.outside_bound is None:
        return text
    return f"{text}; rigorous: at most {lists.outside_bound:.2g} in expectation"


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

    forced = result.forced_share > 0.5 and result.score != "reverse"
    if request is None or forced or result.settled or result.marginals.advice:
        return render.options_in(result.advice)
    if not request.iterates:
        return "--method iterated goes on until the answer stops changing"
    more = "raise --time-limit" if request.time_limit is not None else "keep more factors"
    return f"{more}, or leave --reduce out"


def _little_ignored(result: Result) -> str:
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


def divergence_line(result: Result) -> str:
    if not result.n_ignored:
        return "0: no factor was ignored"
    if not math.isfinite(result.divergence):
        return "infinite: an ignored factor forbids what the reduced model allows"
    what = "residuals" if result.score == "residual" else "gains"
    return (
        f"about {result.divergence:.3g} (estimate: the sum of the ignored factors' {what}, as the "
        "seed sees them)"
    )


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times as fast" if ratio >= 1 else f"{1 / ratio:.3g} times as slow"


def error_line(result: Result) -> str:
    if not result.n_ignored:
        return ""
    if reason := result.no_estimate:
        return f"not estimated: {reason}"
    largest = result.error_estimates.max(initial=0.0)
    text = (
        f"about {result.error_estimate:.2g} on average, {largest:.2g} at the worst variable "
        "(estimate: how far the ignored factors would still move the answer"
    )
    if result.compensation is not None and result.marginals.log_z_kind.value == "exact":
        text += "; it only sees messages, and the effect of lost correlations is often ten times "
        "that"
    return text + _without_solver(result) + ")"


def _without_solver(result: Result) -> str:
    """Said beside every number that is about leaving out only."""
    if result.marginals.log_z_kind.value != "exact":
        return "; it does not include the solver's own error, which is not known"
    return ""


def bound_line(result: Result) -> str:
    """The rigorous statement, or why there is none."""
    if not result.n_ignored:
        return ""
    if reason := why_no_bound(result):
        return f"none: {reason}"
    assert result.bound is not None
    return (
        f"the divergence of the reduced model from the full one is at most {result.bound:.3g} "
        "(rigorous; for single probabilities use --intervals)"
        f"{_without_solver(result)}"
    )


def why_no_bound(result: Result) -> str:
    bound = result.bound
    if bound is None:
        return result.certificate.reason.replace(" in H", " in the reduced model")
    if math.isinf(bound):
        return "an ignored factor forbids what the reduced model allows"
    return ""


def full_log_z(result: Result) -> str:
    """What is known of log Z of the full model, or why nothing is."""
    if not result.n_ignored and result.values is not None and not result.values.dense:
        return "about the same, by lists of its values"
    if not result.n_ignored:
        return "the same; of the full model, as nothing was ignored"
    value, estimate, bounds = result.log_z_full, result.log_z_estimate, result.log_z_bounds
    known = [f"about {estimate:.8g} (estimate)"] if math.isfinite(estimate) else []
    if bounds is not None and all(map(math.isfinite, bounds)):
        known.append(f"between {bounds[0]:.8g} and {bounds[1]:.8g} (rigorous)")
    elif math.isfinite(value) and result.log_z_full_kind.value == "lower bound":
        known.append(f"at least {value:.8g} (rigorous)")
    told = ", ".join(known) or f"unknown: {result.no_log_z_full}"
    return f"{told}; of the full model"


def _steps(result: Result) -> str:
    from minfer.cli import render

    return ", ".join(f"{name} {render.duration(s)}" for name, s in result.timings.items() if s)


def comparison_table(result: Result, found: Comparison) -> Table:
    """The reduced answer, full ones beside it, and how far they are from the last of them."""
    from minfer.cli import render

    full = [("full", found.full)]
    if found.same is not None:
        full = [("full, by the same solver", found.same), ("full, exact", found.full)]
    elif found.is_exact:
        full = [("full, exact", found.full)]
    titles = ["reduced", *(title for title, _ in full)]
    table = render.empty_table("compared", *titles, right=titles)
    table.add_row("factors", f"{int(result.keep.sum()):,}", *[f"{result.n_factors:,}"] * len(full))
    table.add_row("status", result.status.value, *(f.marginals.status.value for _, f in full))
    table.add_row(
        "time, kernels loaded",
        render.duration(found.reduced_seconds),
        *(render.duration(f.seconds) for _, f in full),
    )
    table.add_row("speed against it", "", *(_times(found.speed_up(f)) for _, f in full))
    z = [result.log_z_estimate, *(f.marginals.log_z for _, f in full)]
    cells = [f"{x:.6g}" if math.isfinite(x) else "unknown" for x in z]
    table.add_row("log Z of the full model", *cells)
    differences = [found.difference]
    if found.same_difference is not None:
        differences.append(found.same_difference)
    blank = [""] * (len(titles) - len(differences))
    of = "exact" if found.is_exact else "full"
    table.add_row(f"mean difference from {of}", *(f"{d.mean:.2g}" for d in differences), *blank)
    table.add_row("largest", *(f"{d.largest:.2g} at {d.where}" for d in differences), *blank)
    return table
