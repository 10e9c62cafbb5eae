"""Options and checks that the commands of ``minfer parse`` share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from minfer.cli.failures import UsageError, note
from minfer.cli.generate import Options, argument, flag, flag_of, option
from minfer.errors import ModelError
from minfer.words import counted, listed

if TYPE_CHECKING:
    from minfer.parsing.conllu import BrokenSentence, Sentence
    from minfer.parsing.inference import Inference

REPORTED = 20  # skipped sentences that are told one by one

PARSER = argument("MODEL  Parser written by `train`.")
TAGS = option(
    "predicted|gold  Which tags to use: those of the parser's own tagger, or those in the "
    "file. Default: as in training.",
    rich_help_panel="Model",
)
MULTI_ROOT = flag("Several words of a sentence may have head 0.")


@dataclass(frozen=True)
class Pairs(Options):
    """Which pairs of arcs are scored."""

    panel = "Reduction (default: every pair that can matter, scored lazily)"
    factor_cost: float | None = option("G  Keep pairs whose gain is at least G (MinJoint).")
    max_divergence: float | None = option(
        "E  Keep pairs until the gains of the others sum to E or less (MinSize)."
    )
    max_factors: int | None = option(
        "M  Keep at most M pairs per sentence, the highest gains first (MinDivergence)."
    )
    full: bool = flag(
        "Belief propagation with every pair and every arc; sentences too long for it are skipped."
    )

    @property
    def inference(self) -> Inference:
        from minfer.parsing.inference import Inference
        from minfer.reduction.objectives import Budget

        given = {k: v for k, v in asdict(self).items() if v not in (None, False)}
        if len(given) > 1:
            flags = listed([flag_of(k) for k in given])
            raise UsageError(f"{flags} exclude each other: give one of them")
        if self.full:
            return Inference.full()
        return Inference(objective=Budget(**given).parts[0]) if given else Inference()


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


def check_heads(path: str, sentences: list[Sentence]) -> None:
    """Whether the file has sentences, all of them with heads."""
    if not sentences:
        raise ModelError(f"{path}: no sentence in it")
    for sentence in sentences:
        if sentence.heads is None:
            raise ModelError(f"{path}: line {sentence.line}: this sentence has no heads")
