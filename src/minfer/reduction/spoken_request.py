"""A reduction as people ask for it, by words and numbers, and the account of what came of it.

``Request(max_factors=1000, method="iterated", time_limit=5.0)(model, solver)`` is
:func:`minfer.infer` with the objective, recipe and seed that the words stand for, and the same
words tell what was done. An :class:`Account` is the answer with all that is told beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from minfer.basics.checks import check_choice, check_seconds
from minfer.basics.notebook import Face
from minfer.basics.words import counted
from minfer.errors import RefusedError, visible
from minfer.reduction.bound import MOST_BOUNDED
from minfer.reduction.compare import Comparison, compare
from minfer.reduction.explain import ModelExplanation, ResultExplanation, explain, explain_model
from minfer.reduction.infer import DEFAULT_FACTOR_COST, infer
from minfer.reduction.objectives import Budget, MinJoint, SelectionObjective
from minfer.reduction.recipes import AnyRecipe, Iterated, recipe_named
from minfer.reduction.result import Result
from minfer.reduction.seeds import SEEDS
from minfer.say import reduced
from minfer.solvers.base import Marginals

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Solver


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to keep of a model, and how.

    Parameters
    ----------
    factor_cost : float, optional
        Keep factors whose score is at least this. Without any of the three limits, 0.01. For
        pictures, `minfer denoise` has 0.03.
    max_divergence : float, optional
        Add factors until the ignored ones' scores sum to this or less.
    max_factors : int, optional
        Add at most so many factors, the highest scores first.
    method : "compensated", "paper" or "iterated"
        What ignored factors leave behind. compensated: their unary part, refreshed twice; paper:
        nothing; iterated: their unary part, in rounds of scoring, adding and refreshing until the
        answer stops changing.
    seed_graph : "globals", "unary" or "forest"
        Where inference starts. globals: unary and global factors; unary: unary factors only;
        forest: a spanning forest, too.
    score : "gain", "residual" or "reverse", optional
        What factors are ranked by. gain: the paper's score; residual: the default if compensated;
        reverse: ranks hard constraints too, but promises no finite divergence.
    time_limit : float, optional
        Seconds for everything; it makes any method iterated.

    Examples
    --------
    >>> from minfer.reduction.spoken_request import Request
    >>> asked = Request(max_factors=3, method="paper")
    >>> asked.objective, asked.words
    (MinDivergence(max_factors=3), "the paper's; seed: unary and global factors")
    >>> Request(factor_cost=0.1, time_limit=5.0).iterates
    True
    """

    factor_cost: float | None = None
    max_divergence: float | None = None
    max_factors: int | None = None
    method: str = "compensated"
    seed_graph: str = "globals"
    score: str | None = None
    time_limit: float | None = None

    def __post_init__(self) -> None:
        check_choice("seed_graph", self.seed_graph, tuple(SEEDS))
        check_seconds("time_limit", self.time_limit)
        _ = self.recipe, self.objective  # which check the other settings

    @cached_property
    def objective(self) -> SelectionObjective:
        names = ("max_divergence", "max_factors", "factor_cost")
        limits = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if limits:
            budget = Budget(**limits)
            return budget.parts[0] if len(limits) == 1 else budget
        return MinJoint(DEFAULT_FACTOR_COST)

    @cached_property
    def recipe(self) -> AnyRecipe:
        return recipe_named(self.method, score=self.score, time_limit=self.time_limit)

    @property
    def iterates(self) -> bool:
        return isinstance(self.recipe, Iterated)

    def __call__(
        self, model: FactorGraph, solver: Solver, objective: SelectionObjective | None = None
    ) -> Result:
        """The answer, or that of another objective in place of the request's."""
        seed, _ = SEEDS[self.seed_graph]
        objective = self.objective if objective is None else objective
        return infer(model, objective, solver, recipe=self.recipe, seed=seed)

    @property
    def words(self) -> str:
        return f"{self.recipe.words}; seed: {SEEDS[self.seed_graph][1]}"

    def describe(self, result: Result) -> str:
        words = self.words
        if self.iterates:
            rounds = counted(len(result.trace), "round")
            words = words.replace("iterated", f"iterated, {rounds} ({result.stopped})", 1)
        return f"{words}; {self.objective} on the {result.score_kind} score"

    def advice(self, result: Result) -> str:
        """What to do about an answer, as :attr:`minfer.Result.advice` but by a request's words."""
        forced = result.forced_share > 0.5 and result.score_kind != "reverse"
        if forced or result.settled or result.marginals.advice:
            return result.advice
        if not self.iterates:
            return "method=iterated goes on until the answer stops changing"
        more = "keep more factors" if self.time_limit is None else "raise time_limit"
        return f"{more}, or infer in the full model"

    def settings(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "seed_graph": self.seed_graph,
            "objective": str(self.objective),
        }

    def around(self, first: Result, solver: Solver) -> dict[str, Any]:
        """What a page of :mod:`minfer.report` needs to sweep around an answer."""
        run = partial(self, first.model, solver)
        return {"objective": self.objective, "method": self.words, "run": run, "first": first}

    def compare(self, result: Result, solver: Solver) -> Comparison | RefusedError:
        """The full inference beside the reduced one, or why there is none.

        The reduced one is timed again, unless its time is limited.
        """
        again = None if self.time_limit is not None else lambda: self(result.model, solver)
        try:
            return compare(result, solver, again)
        except RefusedError as error:
            return error


class Account(NamedTuple):
    """A reduced answer and all that is told of it."""

    request: Request
    result: Result
    compared: Comparison | RefusedError | None = None
    reasons: Mapping[str, ResultExplanation | ModelExplanation] = {}

    @property
    def full(self) -> Marginals:
        """The answer as one about the full model: its probabilities, and log Z of F."""
        m, model = self.result.marginals, self.result.model
        return Marginals.from_probs(model, m.probs, m.solver, self.result.log_z_estimate)

    def check_log_z(self, who: str) -> None:
        """RefusedError, in the name of ``who``, if log Z of the full model has no estimate."""
        if not math.isfinite(self.result.log_z_estimate):
            known = reduced.full_log_z(self.result).removesuffix("; of the full model")
            raise RefusedError(
                f"{who}: log Z of the full model is {known}; keep more factors (lower factor_cost, "
                "raise max_factors), or infer in the full model"
            )

    def to_dict(self, variables: list[int] | None = None) -> dict[str, Any]:
        content = reduced.to_dict(self.result, variables, **self.request.settings())
        if isinstance(self.compared, RefusedError):
            content["compare"] = {"refused": str(self.compared)}
        elif self.compared is not None:
            content["compare"] = self.compared.to_dict(self.result)
        if self.reasons:
            content["explain"] = {name: e.to_dict() for name, e in self.reasons.items()}
        return content

    def faces(self) -> Iterator[Face]:
        """What follows the summary: full answers beside the reduced one, and explanations."""
        if isinstance(self.compared, Comparison):
            yield self.compared.face(self.result)
        elif self.compared is not None:
            refused = f"no comparison, the full inference was refused: {self.compared}"
            yield Face(refused, (), ())
        for title, reason in self.reasons.items():
            yield Face(f"explain {visible(title)}\n{reason}", (), ())

    def summary(self) -> dict[str, str]:
        advice = self.request.advice(self.result) or reduced.little_ignored(self.result)
        return reduced.summary(self.result, self.request.describe(self.result), advice)


def account(
    request: Request,
    result: Result,
    solver: Solver,
    *,
    bounding: bool = True,
    comparing: bool = False,
    explaining: Iterable[tuple[str, int | None]] = (),
) -> Account:
    """Everything told of an answer, computed.

    ``bounding``: the divergence, and all else that is on first access; ``comparing``: the full
    inference too; ``explaining``: titles with variables, or None for the whole model.
    """
    if bounding:
        result = looked_at(result, request.time_limit is not None)
    compared = request.compare(result, solver) if comparing else None
    reasons = {
        title: explain_model(result) if v is None else explain(result, v) for title, v in explaining
    }
    return Account(request, result, compared, reasons)


def looked_at(result: Result, timed: bool = False) -> Result:
    """Everything computed that is on first access; no bound where that would be out of place.

    That is where time is limited (``timed``), or where too many factors are ignored.
    """
    if timed:
        result = result.unbounded("none is computed under a time limit")
    elif result.n_ignored > MOST_BOUNDED:
        most = f"{MOST_BOUNDED:,} ignored factors"
        result = result.unbounded(f"none is computed for more than {most}")
    _ = result.bound, result.error_estimates, result.divergence, result.log_z_full
    return result
