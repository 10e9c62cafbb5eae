"""Options and checks that the commands of ``minfer parse`` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from minfer.cli.failures import UsageError, note
from minfer.errors import FormatError, ModelError
from minfer.words import counted

if TYPE_CHECKING:
    from minfer.parsing.conllu import BrokenSentence, Sentence
    from minfer.parsing.evaluation import Scores
    from minfer.parsing.inference import Inference

MODEL_PANEL = "Model"
LEARNING_PANEL = "Learning"
REDUCTION_PANEL = "Reduction (default: every pair that can matter, scored lazily)"
REPORTED = 20  # skipped sentences that are told one by one
MEASURES: Any = ("uas", "las", "uas_no_punct", "las_no_punct", "exact", "exact_labelled")

ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="Parser written by `train`.")]
Tags = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="predicted|gold",
        help="Which tags to use: those of the parser's own tagger, or those in the file. Default: "
        "as in training.",
        rich_help_panel=MODEL_PANEL,
    ),
]
FactorCost = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        metavar="G",
        help="Keep pairs whose gain is at least G (MinJoint).",
        rich_help_panel=REDUCTION_PANEL,
    ),
]
MaxDivergence = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        metavar="E",
        help="Keep pairs until the gains of the others sum to E or less (MinSize).",
        rich_help_panel=REDUCTION_PANEL,
    ),
]
MaxFactors = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        metavar="M",
        help="Keep at most M pairs per sentence, the highest gains first (MinDivergence).",
        rich_help_panel=REDUCTION_PANEL,
    ),
]
Full = Annotated[
    bool,
    typer.Option(
        "--full",
        help="Belief propagation with every pair and every arc; sentences too long for it are "
        "skipped.",
        rich_help_panel=REDUCTION_PANEL,
    ),
]
MultiRoot = Annotated[
    bool,
    typer.Option("--multi-root", help="Several words of a sentence may have head 0."),
]


def make_inference(
    factor_cost: float | None, max_divergence: float | None, max_factors: int | None, full: bool
) -> Inference:
    from minfer.parsing.inference import Inference
    from minfer.reduction.objectives import MinDivergence, MinJoint, MinSize

    makers: dict[str, tuple[Any, Any]] = {
        "--factor-cost": (factor_cost, MinJoint),
        "--max-divergence": (max_divergence, MinSize),
        "--max-factors": (max_factors, MinDivergence),
        "--full": (full or None, None),
    }
    given = {name: pair for name, pair in makers.items() if pair[0] is not None}
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: give one of them")
    if full:
        return Inference.full()
    for limit, maker in given.values():
        return Inference(objective=maker(limit))
    return Inference()


class Skipped:
    """Tells the first sentences that are skipped one by one, and the others by number."""

    def __init__(self, fate: str) -> None:
        self.fate, self.count = fate, 0

    def tell(self, problem: BrokenSentence | str) -> None:
        self.count += 1
        if self.count <= REPORTED:
            text = problem if isinstance(problem, str) else str(problem.error)
            note(f"{self.fate}: {text}")

    def close(self) -> None:
        if self.count > REPORTED:
            note(f"{self.fate}: {counted(self.count - REPORTED, 'more sentence')}")


def numbers(scores: Scores | None) -> dict[str, Any] | None:
    if scores is None:
        return None
    return {"words": scores.n, **{name: scores.of(name) for name in MEASURES}}


def check_readable(path: str) -> None:
    if path != "-" and not Path(path).exists():
        raise FormatError(f"cannot read {path}: there is no such file")


def check_suffix(option: str, path: str, suffix: str) -> None:
    """Pictures are of one kind each, whatever the name says."""
    if not path.lower().endswith(suffix):
        kind = suffix[1:].upper()
        raise UsageError(f"{option} {path}: the picture is {kind}: end the name in {suffix}")


def check_heads(path: str, sentences: list[Sentence]) -> None:
    """Whether the file has sentences, all of them with heads."""
    if not sentences:
        raise ModelError(f"{path}: no sentence in it")
    for sentence in sentences:
        if sentence.heads is None:
            raise ModelError(f"{path}: line {sentence.line}: this sentence has no heads")


def check_choice(option: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise UsageError(f"{option} is {' or '.join(choices)}, not {value!r}")
