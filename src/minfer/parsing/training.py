"""From a treebank file to a parser in a file, resumed where it was interrupted.

:meth:`minfer.parsing.Parser.train` does the learning; here are the files around it. After each
epoch the state lies in a checkpoint beside the output, from which the same call resumes; it is
removed once the parser is written. A file of that name which is not a checkpoint is never touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from minfer.basics.limits import clock, compiled, load_compiler
from minfer.basics.words import counted
from minfer.errors import FormatError
from minfer.io.owned import check_apart, check_ours, discard
from minfer.io.text import check_writable
from minfer.parsing.conllu import BrokenSentence, read_treebank
from minfer.parsing.evaluation import Scores, evaluate
from minfer.parsing.learn import Recipe, Report, is_checkpoint
from minfer.parsing.model import require_safetensors
from minfer.parsing.parser import Parser
from minfer.say.answers import took


class Trained(NamedTuple):
    """A parser that was trained and written."""

    parser: Parser
    path: str
    seconds: float  # of training, without compiling and loading kernels
    broken: int  # sentences that could not be read
    scores: Scores | None = None  # on the development set

    @property
    def bytes(self) -> int:
        return os.path.getsize(self.path)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return {
            "model": self.path,
            "bytes": self.bytes,
            **{k: v for k, v in self.parser.model.info.items() if k != "minfer"},
            "temper": self.parser.model.settings.temper,
            "skipped_broken": self.broken,
            "seconds": self.seconds,
            "compile_seconds": compiled(),
            "dev": self.scores and self.scores.to_dict(),
        }

    def summary(self) -> dict[str, str]:
        """What it is, what it was trained on, how good it is, and what was left out."""
        lines = self.parser.summary()
        several = self.parser.model.info["skipped_several_roots"]
        left_out = {
            "with several roots (multi_root takes them)": several,
            "that could not be read": self.broken,
        }
        if several or self.broken:
            told = [f"{counted(n, 'sentence')} {what}" for what, n in left_out.items() if n]
            lines["left out"] = ", ".join(told)
        if self.scores is not None:
            temper = self.parser.model.settings.temper
            lines["dev"] = f"{self.scores}; weights rounded as in the file"
            lines["calibrated"] = f"on dev: probabilities to the power of {temper:g}"
        lines["time"] = took(self.seconds)
        return {**lines, "file": f"{self.path}, {self.bytes / 1e6:.1f} MB"}


_KEPT, _WHAT = "where training keeps its state", "a checkpoint of a training"


def train_file(
    treebank: str,
    out: str,
    dev: str | None = None,
    *,
    multi_root: bool = False,
    fresh: bool = False,
    on_error: str = "fail",
    recipe: Recipe | None = None,
    report: Report | None = None,
    broken: Callable[[BrokenSentence], object] | None = None,
    note: Callable[[str], object] = lambda text: None,
    **settings: Any,
) -> Trained:
    """Learn a parser from a treebank and write it.

    Parameters
    ----------
    treebank : file to learn from; .gz too
    out : file to write
    dev : treebank for evaluation after each epoch (the last epoch is kept), and for calibration
    multi_root : several words of a sentence may have head 0
    fresh : start over, even if an earlier run was interrupted
    on_error : "fail" or "skip"
        What to do with a bad sentence: stop, or leave it out.
    recipe, report : as for :meth:`Parser.train`
    broken : called with each sentence skipped
    note : called with what there is to say about the checkpoint
    **settings
        Of :meth:`Parser.train`.

    Raises
    ------
    SettingsError : the output, or the checkpoint beside it, is one of the inputs
    FormatError : the file in the checkpoint's place is something else
    """
    require_safetensors()  # before the work, not after it
    check_writable(out, [treebank, dev])
    checkpoint = Path(f"{out}.checkpoint")
    check_apart(checkpoint, _KEPT, [treebank, dev])
    if check_ours(checkpoint, _WHAT, is_checkpoint) and not fresh:
        note(f"there is {checkpoint}, to resume from (fresh=True starts over)")
    skipped: list[BrokenSentence] = []

    def skip(sentence: BrokenSentence) -> None:
        skipped.append(sentence)
        if broken is not None:
            broken(sentence)

    sentences = read_treebank(treebank, on_error=on_error, report=skip, multi_root=True)
    held_out = None
    if dev is not None:
        held_out = read_treebank(dev, on_error=on_error, report=skip, multi_root=True)
    if fresh:  # nothing speaks against it now
        discard(checkpoint, _WHAT, is_checkpoint)
    load_compiler()
    began = clock()
    try:
        parser = Parser.train(
            sentences, held_out, single_root=not multi_root, recipe=recipe, report=report,
            checkpoint=checkpoint, source=Path(treebank).name, **settings,
        )  # fmt: skip
    except KeyboardInterrupt:
        saved = f"the last epoch is saved in {checkpoint}: run the same command to resume"
        nothing = "nothing is saved yet: that starts with the first epoch for arcs"
        note(saved if checkpoint.exists() else nothing)
        raise
    except FormatError as error:
        advice = "; fresh=True removes it" if checkpoint.exists() else ""
        raise FormatError(f"{error}{advice}") from None
    seconds = clock() - began
    parser.save(out)
    discard(checkpoint, _WHAT, is_checkpoint)
    scores = evaluate(held_out, parser.parse(held_out)) if held_out else None
    return Trained(parser, out, seconds, len(skipped), scores)
