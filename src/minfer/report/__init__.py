"""One-file reports: a model, a picture or a sentence under a slider that moves the objective.

A report is one HTML file that opens offline. Everything in it is computed beforehand, at values of
the objective's parameter that keep few to all factors (:mod:`minfer.report.sweep`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_graph, check_type, integers
from minfer.basics.words import counted
from minfer.errors import ModelError, SettingsError
from minfer.images.denoising import COUPLING, FACTOR_COST, TOL, grey_values, shaded_model
from minfer.io.text import PathLike, write_bytes
from minfer.parsing.conllu import Sentence
from minfer.parsing.graphs import ArcScores
from minfer.parsing.inference import Inference
from minfer.reduction.infer import DEFAULT_FACTOR_COST, infer
from minfer.reduction.objectives import MinJoint, SelectionObjective
from minfer.reduction.recipes import AnyRecipe, Compensated, check_recipe, takes_recipe
from minfer.reduction.result import Result
from minfer.report.drawings import GraphDrawing, PictureDrawing
from minfer.report.model import SweptModel
from minfer.report.page import page
from minfer.report.sentence import Problem, SweptSentence
from minfer.report.sweep import STEPS, Sweep
from minfer.say.answers import describe
from minfer.solvers.bp import BeliefPropagation

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.parsing.parser import Parser
    from minfer.solvers.base import Solver

__all__ = ["denoise_report", "parse_report", "report", "scores_report", "write_report"]

Run = Callable[[SelectionObjective], Result]


@takes_recipe
def report(
    model: FactorGraph,
    objective: SelectionObjective | None = None,
    solver: Solver | None = None,
    *,
    title: str = "",
    command: str = "",
    method: str = "",
    steps: int = STEPS,
    certify: float | None = None,
    recipe: AnyRecipe | None = None,
    run: Run | None = None,
    first: Result | None = None,
    **options: Any,
) -> str:
    """The report of a model as one HTML page.

    Parameters
    ----------
    model : FactorGraph
    objective : MinSize, MinDivergence, MinJoint or Budget
        The slider moves its parameter and starts at its value; ``MinJoint(0.01)`` by default.
    solver : any solver, BeliefPropagation by default
    title : str
        What the model is called.
    command : str
        How to make the report again; shown as it is.
    method : str
        How the answers are made, in words.
    steps : int
        Values of the parameter, about.
    certify : float, optional
        Seconds for intervals that hold the full model's marginals (:func:`minfer.intervals`). They
        are drawn, and what they refute of each step's answer is marked.
    recipe : Paper, Compensated or Iterated
        ``Compensated()`` by default.
    run : a function of an objective that returns a Result, optional
        Instead of :func:`minfer.infer`; then ``solver``, ``recipe`` and ``options`` have no use.
    first : Result, optional
        The answer at ``objective`` where it is known already.
    **options
        Of :func:`minfer.infer`.

    Examples
    --------
    >>> from minfer.examples import sprinkler
    >>> from minfer.report import report
    >>> text = report(sprinkler(), title="sprinkler", steps=4)
    >>> text[:15], "https:" in text
    ('<!DOCTYPE html>', False)
    """
    check_graph(model, "report")
    for name, text in (("title", title), ("command", command), ("method", method)):
        check_type(text, str, f"report: {name} must be a string")
    objective = MinJoint(DEFAULT_FACTOR_COST) if objective is None else objective
    run, words = _run(model, solver, recipe, options, run)
    sweep = Sweep(objective, steps)
    subject = SweptModel(
        model, objective, run, lambda first: GraphDrawing(first, model.name), model.name,
        certify=certify, first=first,
    )  # fmt: skip
    call = command or f"minfer.report.report(model, {objective!r})"
    head = {"about": describe(model), "method": method or words, "command": call}
    return page({**head, **sweep.collect(subject)}, title or "model")


@takes_recipe
def denoise_report(
    image: ArrayLike,
    *,
    alpha: float | None = None,
    coupling: float = COUPLING,
    objective: SelectionObjective | None = None,
    solver: Solver | None = None,
    level: float | None = None,
    labels: int | None = None,
    means: ArrayLike | None = None,
    smooth: str = "equal",
    truncation: float | None = None,
    title: str = "",
    command: str = "",
    method: str = "",
    steps: int = STEPS,
    certify: float | None = None,
    recipe: AnyRecipe | None = None,
    run: Run | None = None,
    first: Result | None = None,
    **options: Any,
) -> str:
    """The report of a noisy picture, as :func:`report`; parameters of ``denoise`` come first."""
    seen = grey_values(image)
    shades, model, class_means, own_alpha = shaded_model(
        image, alpha=alpha, coupling=coupling, level=level, labels=labels, means=means,
        smooth=smooth, truncation=truncation,
    )  # fmt: skip
    if shades is not None:
        alpha, level = shades.alpha, shades.level
    alpha = own_alpha if alpha is None else alpha
    objective = MinJoint(FACTOR_COST) if objective is None else objective
    if run is None and solver is None:
        solver = BeliefPropagation(tol=TOL)
    run, words = _run(model, solver, recipe, options, run)
    height, width = seen.shape
    sweep = Sweep(objective, steps)
    subject = SweptModel(
        model, objective, run, lambda first: PictureDrawing(first, seen, class_means),
        lambda v: f"row {v // width}, column {v % width}", certify=certify, first=first,
        no_bound="not computed for pictures: it takes longer than the inference and says nothing",
    )  # fmt: skip
    what = "black and white" if class_means is None else f"{len(class_means)} classes"
    about = f"{height} x {width} pixels, {what}; coupling {coupling:g}"
    if alpha is not None:
        about += f", alpha {alpha:.3g}"
    if level is not None:
        about += f", level {level:.3g}"
    call = command or f"minfer.report.denoise_report(image, objective={objective!r})"
    head = {"about": about, "method": method or words, "command": call}
    return page({**head, **sweep.collect(subject)}, title or "picture")


def parse_report(
    parser: Parser,
    sentence: Sentence | Sequence[str],
    *,
    tags: str | None = None,
    inference: Inference | None = None,
    gold: bool = True,
    title: str = "",
    command: str = "",
    steps: int = STEPS,
) -> str:
    """The report of a sentence under a trained parser as one HTML page.

    The slider moves the parameter of the objective of ``inference`` and starts there; without one
    it is the factor cost 0. ``gold``: compare with the heads of the sentence, if it has any.
    """
    words = sentence.forms if isinstance(sentence, Sentence) else tuple(sentence)
    heads = sentence.heads if gold and isinstance(sentence, Sentence) else None
    s = parser.model.settings
    problem = Problem(
        words, parser.scores(sentence, tags), s.gp, s.sib, s.projective, s.single_root
    )
    call = command or f"minfer.report.parse_report(parser, {list(words)!r})"
    return _sentence_page(problem, inference, heads, title, call, steps)


def scores_report(
    words: Sequence[str],
    arc_scores: ArrayLike,
    *,
    sib: ArrayLike | None = None,
    gp: ArrayLike | None = None,
    projective: bool = True,
    single_root: bool = True,
    inference: Inference | None = None,
    gold: ArrayLike | None = None,
    title: str = "",
    command: str = "",
    steps: int = STEPS,
) -> str:
    """The report of a sentence with your own scores, as :func:`minfer.parsing.marginals` takes
    them; ``gold`` (n,) are heads to compare with, the rest as for :func:`parse_report`."""
    check_type(words, Sequence, "words must be a list of strings", ModelError)
    for word in words:
        check_type(word, str, "words must be strings", ModelError)
    scores = ArcScores.checked(arc_scores, gp, sib)
    problem = Problem(
        tuple(words), scores, gp is not None, sib is not None, projective, single_root
    )
    heads: NDArray[np.int32] | None = None
    if gold is not None:
        heads = integers(gold, "gold").ravel().astype(np.int32)
    call = command or "minfer.report.scores_report(words, arc_scores, sib=sib, gp=gp)"
    return _sentence_page(problem, inference, heads, title, call, steps)


def write_report(path: PathLike, text: str) -> None:
    """Write a report to a file, atomically; ``-`` is standard output."""
    check_type(text, str, "a report must be a string")
    write_bytes(path, text.encode())


def _run(
    model: FactorGraph,
    solver: Solver | None,
    recipe: AnyRecipe | None,
    options: dict[str, Any],
    run: Run | None,
) -> tuple[Run, str]:
    if run is not None:
        if options or solver is not None or recipe is not None:
            raise SettingsError("report: give run, or a solver and a recipe for infer, not both")
        return run, ""
    how = Compensated() if recipe is None else recipe
    check_recipe(how)
    return lambda objective: infer(model, objective, solver, recipe=how, **options), how.words


def _sentence_page(
    problem: Problem, inference: Inference | None, gold: NDArray[np.int32] | None, title: str,
    command: str, steps: int,
) -> str:  # fmt: skip
    inference = Inference() if inference is None else inference
    check_type(inference, Inference, "inference must be an Inference or None")
    sweep = Sweep(inference.objective or MinJoint(0.0), steps)
    subject = SweptSentence(problem, inference, gold)
    factors = [name for name, on in (("grandparent", problem.gp), ("sibling", problem.sib)) if on]
    about = f"{counted(len(problem.words), 'word')}; {' and '.join(factors) or 'no'} factors; "
    about += "projective trees" if problem.projective else "trees that may cross"
    seed = "the arc scores alone" if inference.seed == "unary" else "the model without pairs"
    method = (
        f"belief propagation with one tree factor; the seed is {seed}; "
        "decoded by minimum Bayes risk"
    )
    head = {"about": about, "method": method, "command": command}
    title = title or " ".join(problem.words[:12]) + " ..." * (len(problem.words) > 12)
    return page({**head, **sweep.collect(subject)}, title)
