"""``minfer parse train``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from minfer.cli.failures import note
from minfer.cli.files import check_writable
from minfer.cli.generate import option, takes
from minfer.cli.options import OUTPUT_PANEL, Json
from minfer.cli.parse.options import (
    LEARNING_PANEL,
    MODEL_PANEL,
    MultiRoot,
    Skipped,
    check_choice,
    check_heads,
    check_readable,
    numbers,
)
from minfer.cli.progress import wait_for
from minfer.errors import FormatError
from minfer.words import counted, duration

if TYPE_CHECKING:
    from minfer.parsing.conllu import Sentence
    from minfer.parsing.evaluation import Scores
    from minfer.parsing.learn import Progress
    from minfer.parsing.parser import Parser

_STAGES = {"tags": "tagger", "arcs": "arcs", "pairs": "arcs and pairs", "labels": "relations"}


@dataclass(frozen=True)
class Kind:
    """What kind of parser."""

    projective: bool = option(
        "Whether crossing arcs are forbidden.", None, "--projective/--no-projective", default=True
    )
    gp: bool = option("Grandparent factors.", None, "--gp/--no-gp", default=True)
    sib: bool = option("Sibling factors.", None, "--sib/--no-sib", default=True)
    tags: str = option(
        "Train on the tags of the parser's own tagger, or on those in the file.",
        "predicted|gold",
        default="predicted",
    )


@dataclass(frozen=True)
class Learning:
    """Fields of :class:`minfer.parsing.Recipe`, and the seed."""

    rng: int = option("Seed of the random generator.", "N", default=0)
    first_epochs: int | None = option("Passes for arcs alone. Default: 1.", "N")
    epochs: int | None = option("Passes for arcs and pairs. Default: 3.", "N")
    bits: int | None = option("2^B lines of weights for arcs, and for pairs. Default: 20.", "B")
    tag_bits: int | None = option(
        "2^B lines of weights for tags, and for relations. Default: 18.", "B"
    )


@takes(LEARNING_PANEL, learning=Learning)
@takes(MODEL_PANEL, kind=Kind)
def train(
    treebank: Annotated[
        str, typer.Argument(metavar="TRAIN.conllu", help="Treebank to learn from; .gz too.")
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", metavar="MODEL", help="File to write.", rich_help_panel=OUTPUT_PANEL
        ),
    ],
    dev: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="DEV.conllu",
            help="Treebank for evaluation after each epoch (the last epoch is kept), and for "
            "calibration.",
        ),
    ] = None,
    multi_root: MultiRoot = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Start over, even if an earlier run was interrupted."),
    ] = False,
    on_error: Annotated[
        str,
        typer.Option(
            metavar="fail|skip", help="What to do with a bad sentence: stop, or leave it out."
        ),
    ] = "fail",
    json: Json = False,
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
    for path in filter(None, (treebank, dev)):
        check_readable(path)
    check_choice("--on-error", on_error, ("fail", "skip"))
    check_choice("--tags", kind.tags, ("predicted", "gold"))
    check_writable(out, [path for path in (treebank, dev) if path])
    from minfer.parsing.learn import Recipe
    from minfer.parsing.model import require_safetensors
    from minfer.parsing.parser import Parser

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
        from minfer.parsing.evaluation import evaluate

        scores = wait_for(f"parsing {dev}", lambda: evaluate(held_out, parser.parse(held_out)))
    _tell_training(parser, out, scores, broken.count, seconds, json)


def _treebank(path: str, on_error: str, broken: Skipped) -> list[Sentence]:
    from minfer.parsing.conllu import read_conllu

    mode: Any = on_error
    sentences = list(read_conllu(path, on_error=mode, report=broken.tell, multi_root=True))
    check_heads(path, sentences)
    return sentences


@contextmanager
def _training() -> Iterator[Callable[[Progress], None]]:
    """What is called with the progress of training: a bar on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    from minfer.cli import render

    columns = [TextColumn("{task.description:<16}"), BarColumn(), TextColumn("{task.fields[told]}")]
    with Bar(*columns, TimeElapsedColumn(), console=render.console(stderr=True)) as bar:
        task = bar.add_task("tagger", total=1.0, told="")
        last = [""]

        def show(p: Progress) -> None:
            if p.dev_uas is not None:
                last[0] = f"  dev UAS {p.dev_uas:.2f}"
            title = f"{_STAGES[p.stage]} {p.epoch}/{p.epochs}"
            told = f"loss {p.loss:.4f}{last[0]}"
            bar.update(task, description=title, completed=p.done, told=told)

        yield show


def _lines() -> Callable[[Progress], None]:
    """A line for each stage of preparation and for each epoch of the parser."""
    seen: set[str] = set()

    def say(p: Progress) -> None:
        line = ""
        if p.stage in ("arcs", "pairs"):
            if p.done >= 1:
                uas = f", dev UAS {p.dev_uas:.2f}" if p.dev_uas is not None else ""
                line = f"{_STAGES[p.stage]} {p.epoch}/{p.epochs}: loss {p.loss:.4f}{uas}"
        elif p.stage not in seen:
            seen.add(p.stage)
            line = f"{_STAGES[p.stage]}: loss {p.loss:.4f}"
        if line:
            note(f"{line}, {p.seconds:.0f} s")

    return say


def _tell_training(
    parser: Parser, out: str, scores: Scores | None, broken: int, seconds: float, json: bool
) -> None:
    from minfer.cli import render

    info, size = parser.model.info, os.path.getsize(out)
    if json:
        content: dict[str, Any] = {"minfer": render.version(), "model": out, "bytes": size}
        content |= {k: v for k, v in info.items() if k != "minfer"}
        content |= {
            "temper": parser.model.settings.temper,
            "skipped_broken": broken,
            "seconds": seconds,
            "dev": numbers(scores),
        }
        sys.stdout.write(render.to_json(content) + "\n")
        return
    left_out = info["skipped_several_roots"]
    lines = {
        "parser": repr(parser).removeprefix("Parser(").removesuffix(")"),
        "data": f"{counted(info['sentences'], 'sentence')}, {counted(info['words'], 'word')}",
        "lifted": f"{counted(info['lifted_arcs'], 'crossing arc')} in "
        f"{counted(info['non_projective_sentences'], 'sentence')}"
        if parser.model.settings.projective
        else "",
        "left out": _joined(
            (left_out, "with several roots (--multi-root takes them)"),
            (broken, "that could not be read"),
        ),
        "dev": f"{scores}; weights rounded as in the file" if scores is not None else "",
        "calibrated": f"on dev: probabilities to the power of {parser.model.settings.temper:g}"
        if scores is not None
        else "",
        "time": duration(seconds),
        "file": f"{out}, {size / 1e6:.1f} MB",
    }
    console = render.console()
    render.show(console, render.facts({k: v for k, v in lines.items() if v}))


def _joined(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{counted(n, 'sentence')} {what}" for n, what in counts if n)
