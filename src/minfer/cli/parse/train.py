"""``minfer parse train``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minfer.cli.failures import note
from minfer.cli.files import check_readable, check_writable
from minfer.cli.generate import Options, argument, command, flag, option, output
from minfer.cli.options import JSON
from minfer.cli.parse.options import MULTI_ROOT, Skipped, check_heads
from minfer.cli.progress import bar, wait_for
from minfer.errors import FormatError
from minfer.words import counted, duration

if TYPE_CHECKING:
    from minfer.parsing.conllu import Sentence
    from minfer.parsing.learn import Progress

_STAGES = {"tags": "tagger", "arcs": "arcs", "pairs": "arcs and pairs", "labels": "relations"}


@dataclass(frozen=True)
class Kind(Options):
    """What kind of parser."""

    panel = "Model"
    projective: bool = option(
        "--projective/--no-projective  Whether crossing arcs are forbidden.", True
    )
    gp: bool = option("--gp/--no-gp  Grandparent factors.", True)
    sib: bool = option("--sib/--no-sib  Sibling factors.", True)
    tags: str = option(
        "predicted|gold  Train on the tags of the parser's own tagger, or on those in the file.",
        "predicted",
    )


@dataclass(frozen=True)
class Learning(Options):
    """Fields of :class:`minfer.parsing.Recipe`, and the seed."""

    panel = "Learning"
    rng: int = option("N  Seed of the random generator.", 0)
    first_epochs: int | None = option("N  Passes for arcs alone. Default: 1.")
    epochs: int | None = option("N  Passes for arcs and pairs. Default: 3.")
    bits: int | None = option("B  2^B lines of weights for arcs, and for pairs. Default: 20.")
    tag_bits: int | None = option(
        "B  2^B lines of weights for tags, and for relations. Default: 18."
    )


@command
def train(
    treebank: str = argument("TRAIN.conllu  Treebank to learn from; .gz too."),
    out: str = output("-o MODEL  File to write.", ...),
    dev: str | None = option(
        "DEV.conllu  Treebank for evaluation after each epoch (the last epoch is kept), and for "
        "calibration."
    ),
    multi_root: bool = MULTI_ROOT,
    fresh: bool = flag("Start over, even if an earlier run was interrupted."),
    on_error: str = option(
        "fail|skip  What to do with a bad sentence: stop, or leave it out.", "fail"
    ),
    json: bool = JSON,
    *,
    kind: Kind,
    learning: Learning,
) -> None:
    """Learn a parser from a treebank.

    The default is a projective parser with grandparents, siblings, a tagger and
    relations; pairs are scored lazily in training too. For a projective parser,
    crossing arcs are lifted, and counted. Sentences with several roots are left
    out unless --multi-root is given.

    With --dev, one number is fitted on it at the end to calibrate the reported
    probabilities; trees do not change.

    After each epoch the state is saved in MODEL.checkpoint. After an interruption
    the same command resumes from there; at the end the file is removed.

    \b
    Examples:
      minfer parse train train.conllu --dev dev.conllu -o en.model
      minfer parse train train.conllu.gz -o nl.model --no-projective --no-sib
    """
    from minfer.cli import render
    from minfer.parsing.evaluation import evaluate
    from minfer.parsing.learn import Recipe
    from minfer.parsing.model import require_safetensors
    from minfer.parsing.parser import Parser

    check_readable(treebank, dev)
    check_writable(out, [treebank, dev])
    require_safetensors()  # before the work, not after it
    given = {name: value for name, value in asdict(learning).items() if name != "rng"}
    recipe = Recipe(**{k: v for k, v in given.items() if v is not None})
    checkpoint = Path(f"{out}.checkpoint")
    if checkpoint.exists() and not fresh:
        note(f"there is {checkpoint}, to resume from (--fresh starts over)")
    broken = Skipped("left out")
    sentences = wait_for(f"reading {treebank}", lambda: _treebank(treebank, on_error, broken))
    held_out = _treebank(dev, on_error, broken) if dev else None
    broken.close()
    if fresh:  # nothing speaks against it now
        checkpoint.unlink(missing_ok=True)

    began = time.perf_counter()
    with _training() as report:
        try:
            parser = Parser.train(
                sentences, held_out, **asdict(kind), single_root=not multi_root, rng=learning.rng,
                recipe=recipe, report=report, checkpoint=checkpoint, source=Path(treebank).name,
            )  # fmt: skip
        except KeyboardInterrupt:
            if checkpoint.exists():
                note(f"the last epoch is saved in {checkpoint}: run the same command to resume")
            else:
                note("nothing is saved yet: that starts with the first epoch for arcs")
            raise
        except FormatError as error:
            advice = "; --fresh removes it" if checkpoint.exists() else ""
            raise FormatError(f"{error}{advice}") from None
    seconds = time.perf_counter() - began
    parser.save(out)
    checkpoint.unlink(missing_ok=True)
    scores = None
    if held_out:
        scores = wait_for(f"parsing {dev}", lambda: evaluate(held_out, parser.parse(held_out)))
    size, info, temper = os.path.getsize(out), parser.model.info, parser.model.settings.temper
    if json:
        content = {"minfer": render.version(), "model": out, "bytes": size}
        content |= {k: v for k, v in info.items() if k != "minfer"}
        content |= {"temper": temper, "skipped_broken": broken.count, "seconds": seconds}
        render.write_json({**content, "dev": scores and scores.to_dict()})
        return
    left_out = [
        f"{counted(n, 'sentence')} {what}"
        for n, what in (
            (info["skipped_several_roots"], "with several roots (--multi-root takes them)"),
            (broken.count, "that could not be read"),
        )
        if n
    ]
    lines = parser.summary()
    if left_out:
        lines["left out"] = ", ".join(left_out)
    if scores is not None:
        lines["dev"] = f"{scores}; weights rounded as in the file"
        lines["calibrated"] = f"on dev: probabilities to the power of {temper:g}"
    lines |= {"time": duration(seconds), "file": f"{out}, {size / 1e6:.1f} MB"}
    render.show(render.console(), render.facts(lines))


def _treebank(path: str, on_error: str, broken: Skipped) -> list[Sentence]:
    from minfer.parsing.conllu import read_conllu

    mode: Any = on_error
    sentences = list(read_conllu(path, on_error=mode, report=broken.tell, multi_root=True))
    check_heads(path, sentences)
    return sentences


@contextmanager
def _training() -> Iterator[Callable[[Progress], None]]:
    """What is called with the progress of training: a bar on a terminal, lines elsewhere."""
    seen: set[str] = set()
    uas = ""

    def show(p: Progress) -> None:
        nonlocal uas
        uas = uas if p.dev_uas is None else f", dev UAS {p.dev_uas:.2f}"
        count = f" {p.epoch}/{p.epochs}" if draw is not None or p.stage in ("arcs", "pairs") else ""
        text = f"{_STAGES[p.stage]}{count}: loss {p.loss:.4f}"
        if draw is not None:
            draw(p.done, f"{text}{uas}")
        elif (p.done >= 1) if count else p.stage not in seen:  # a line per stage, or per epoch
            seen.add(p.stage)
            note(f"{text}{uas if count else ''}, {p.seconds:.0f} s")

    with bar(1.0) as draw:
        yield show
