"""Options and checks that the commands of ``minfer parse`` share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from minfer.cli.failures import UsageError, note
from minfer.cli.generate import option
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
MultiRoot = Annotated[
    bool,
    typer.Option("--multi-root", help="Several words of a sentence may have head 0."),
]


@dataclass(frozen=True)
class Pairs:
    """Which pairs of arcs are scored."""

    factor_cost: float | None = option("Keep pairs whose gain is at least G (MinJoint).", "G")
    max_divergence: float | None = option(
        "Keep pairs until the gains of the others sum to E or less (MinSize).", "E"
    )
    max_factors: int | None = option(
        "Keep at most M pairs per sentence, the highest gains first (MinDivergence).", "M"
    )
    full: bool = option(
        "Belief propagation with every pair and every arc; sentences too long for it are skipped.",
        None,
        "--full",
        default=False,
    )

    @property
    def inference(self) -> Inference:
        from minfer.parsing.inference import Inference
        from minfer.reduction.objectives import MinDivergence, MinJoint, MinSize

        makers: dict[str, Any] = {
            "factor_cost": MinJoint,
            "max_divergence": MinSize,
            "max_factors": MinDivergence,
        }
        given = [f.name for f in fields(self) if getattr(self, f.name) not in (None, False)]
        if len(given) > 1:
            words = " and ".join("--" + name.replace("_", "-") for name in given)
            raise UsageError(f"{words} exclude each other: give one of them")
        if self.full:
            return Inference.full()
        for name in given:
            return Inference(objective=makers[name](getattr(self, name)))
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
        raise UsageError(f"{option} must be {' or '.join(choices)}, not {value!r}")
