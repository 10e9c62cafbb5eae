"""Dependency parsing: train a parser, run it, evaluate it, inspect a parse.

The parser of section 5.2 of the paper: arcs, grandparents and siblings under
one tree factor, belief propagation on the pairs that matter. Every arc comes
with its probability, an estimate: certified intervals, as `minfer intervals`
computes for models, are not available yet. Files are CoNLL-U or CoNLL-X,
or text with one sentence per line. Needs safetensors, the extra `parsing`.

\b
Example, on a treebank that comes with minfer:
  minfer example treebank -o tiny.conllu
  minfer parse train tiny.conllu -o tiny.model
  minfer parse show tiny.model "The old dog sees a bird ."
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial

from minfer.basics.limits import clock
from minfer.basics.words import counted, listed
from minfer.cli import render
from minfer.cli.failures import in_flags, note, noted
from minfer.cli.files import IN, OUT, PAGE, THERE, File, write_report, written
from minfer.cli.generate import Given, Options, argument, group, option, output, setting, taken
from minfer.cli.options import JSON, SUMMARY, member
from minfer.cli.progress import Meter, bar, wait_for
from minfer.errors import ModelError, SettingsError
from minfer.io.text import write_bytes
from minfer.parsing.conllu import BrokenSentence, sentence_meant
from minfer.parsing.drawing import Drawn
from minfer.parsing.drawing import svg as picture_of
from minfer.parsing.inference import Inference
from minfer.parsing.learn import Recipe, TrainingProgress
from minfer.parsing.parser import Parser
from minfer.reduction.objectives import Budget

parse = group("parse", __doc__)

REPORTED = 20  # skipped sentences that are told one by one

PARSER = argument("MODEL  Parser written by `train`.", file=THERE)
TAGS = taken("minfer.parsing:Parser.parse", "tags", "Model")
PARSING = taken("minfer.parsing:Parser.parse", "tags marginals")


@dataclass(frozen=True)
class PairsGiven(Options):
    """Which pairs of arcs are scored."""

    panel = "Reduction: factors are pairs (default: all that can matter, scored lazily)"
    home = "minfer:Budget"
    full: bool = option(
        "Belief propagation with every pair and every arc; sentences too long for it are skipped."
    )
    factor_cost: float | None = setting("G")
    max_divergence: float | None = setting("E")
    max_factors: int | None = setting("M")

    @property
    def inference(self) -> Inference:
        if len(self.given) > 1:
            raise SettingsError(f"{listed([*self.given])} exclude each other: give one of them")
        if self.full:
            return Inference.full()
        return Inference(objective=Budget(**self.given).parts[0] if self.given else None)


@member(parse, "minfer.parsing.training:train_file")
def train(
    treebank: str = argument("TRAIN.conllu  Treebank to learn from; .gz too.", file=THERE),
    out: str = output("-o MODEL  File to write.", ..., file=OUT),
    dev: str | None = setting("DEV.conllu", file=THERE),
    json: bool = JSON,
    how: Given = taken("minfer.parsing.training:train_file", "multi_root fresh on_error"),
    kind: Given = taken("minfer.parsing:Parser.train", "projective gp sib tags", "Model"),
    rng: Given = taken("minfer.parsing:Parser.train", "rng", "Learning"),
    recipe: Given = taken(
        "minfer.parsing:Recipe", "first_epochs epochs", "Learning", bits="B", tag_bits="B"
    ),
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
    from minfer.parsing.training import train_file

    with bar(1.0) as draw, skipping("left out") as broken:

        def show(p: TrainingProgress) -> None:
            draw(p.done, str(p))
            if p.ends and not sys.stderr.isatty():
                note(f"{p}, {p.seconds:.0f} s")

        made = train_file(
            treebank, out, dev, recipe=Recipe(**recipe), report=show, broken=broken,
            note=lambda text: note(in_flags(text)), **how, **kind, **rng,
        )  # fmt: skip
    render.tell(json, made.to_dict(), notes=made.summary())


@member(parse, "minfer.parsing.stream:parse_file")
def run(
    model: str = PARSER,
    source: str = setting("IN", argument=True, file=THERE),
    out: str = output(
        "-o OUT.conllu  File to write; - is standard output; .gz compresses.", "-", file=OUT
    ),
    workers: int | None = setting(min=1),
    reading: Given = taken(
        "minfer.parsing.stream:parse_file",
        "on_error",
        layout="--format",
        tokenizer="spacy:MODEL|stanza:LANGUAGE|MODULE:FUNCTION",
    ),
    parsing: Given = PARSING,
    json: bool = SUMMARY,
    *,
    pairs: PairsGiven,
) -> None:
    """Parse a file of any size, in order.

    HEAD and DEPREL are replaced, and UPOS and XPOS if tags are predicted;
    everything else is passed through unchanged. A bad or too long sentence is
    reported with its line and passed through unparsed (a line of text is left
    out); the exit code is then still 0, unless no sentence could be parsed.
    A file appears under its name only when complete.

    \b
    Examples:
      minfer parse run en.model in.conllu -o out.conllu --marginals
      minfer parse run en.model story.txt -o story.conllu
      zcat big.conllu.gz | minfer parse run en.model - --workers 2 | gzip > out.conllu.gz
    """
    from minfer.parsing.stream import Totals, parse_file

    inference = pairs.inference
    began = clock()
    with Meter() as meter, skipping("not parsed") as broken:

        def show(totals: Totals) -> None:
            if meter.live:
                meter(f"{totals}, {meter.rate(totals.words)} words/s")

        totals = parse_file(
            model, source, out, inference=inference, workers=workers, report=broken,
            progress=show, **reading, **parsing,
        )  # fmt: skip
    seconds = clock() - began
    note(totals.told(seconds))
    if json:
        render.write_json({"out": out, **asdict(totals), "seconds": seconds})


@member(parse, "minfer.parsing.evaluation:assess_files", "eval")
def evaluate(
    gold: str = setting("GOLD.conllu", argument=True, file=THERE),
    predicted: str | None = setting("PREDICTED.conllu", argument=True, file=THERE),
    model: str | None = setting("MODEL", file=THERE),
    tags: Given = TAGS,
    compare: str | None = setting("OTHER.conllu", file=THERE),
    calibration: str | None = output(
        "OUT.png  Calibration of the arc probabilities, as a table and a plot; - is the table "
        "only. Needs --model, or a parse written with --marginals.",
        file=File("out", (".png",), draws=True),
    ),
    scoring: Given = taken("minfer.parsing:evaluate", "punctuation subtypes"),
    multi_root: bool = setting(),
    rng: int = option("N  Seed of the bootstrap.", 0),
    json: bool = JSON,
    *,
    pairs: PairsGiven,
) -> None:
    """Score a parse, or a parser, against a treebank.

    UAS is the share of words with the right head, LAS of those with the right
    head and relation, in percent, with and without punctuation; exact is the
    share of sentences with every head right. Both must have the same words.

    \b
    Examples:
      minfer parse eval test.conllu out.conllu
      minfer parse eval test.conllu --model en.model --calibration calibration.png
      minfer parse eval test.conllu out.conllu --compare other.conllu
    """
    from minfer.parsing.evaluation import assess_files

    work = partial(
        assess_files, gold, predicted, compare, model=model, multi_root=multi_root, rng=rng,
        inference=pairs.inference if pairs.given else None, **tags, **scoring,
    )  # fmt: skip
    found = wait_for(f"reading {gold}", work)
    if calibration is not None and found.calibration is None:
        raise ModelError(
            f"{predicted}: there is no ArcProb in MISC: parse with --marginals, or use --model"
        )
    if calibration != "-" and found.calibration is not None:
        written(calibration, found.calibration.draw)
    asked = [found.calibration] if calibration and found.calibration else []
    tables = [one.face()._replace(conclusion="") for one in asked]  # the other face has said it
    render.tell(json, found.to_dict(), found.face(), more=tables)


@member(parse)
def show(
    model: str = PARSER,
    text: str = argument(
        "SENTENCE|FILE  Words separated by blanks, or a file as for `run`.", file=IN
    ),
    sentence: int = option("-n K  Which sentence of a file.", 1, min=1),
    gold: bool = option("Compare with the heads in the file."),
    svg: str | None = output(
        "OUT.svg  Write a picture; the opacity of an arc is its probability.",
        file=File("out", (".svg",), dash=False),
    ),
    report: str | None = output(
        "OUT.html  Write one HTML file that opens offline: arcs over the sentence, and a slider "
        "over the limit that is set, or over factor costs.",
        file=PAGE,
    ),
    tags: Given = TAGS,
    json: bool = JSON,
    *,
    pairs: PairsGiven,
) -> None:
    """Show the parse of one sentence: its tree, probabilities and runner-up heads.

    In the picture, runner-up arcs are dashed and wrong ones (--gold) red.

    \b
    Examples:
      minfer parse show en.model "I saw the man with the telescope ."
      minfer parse show en.model test.conllu --sentence 7 --gold --svg seven.svg
      minfer parse show en.model "I saw the man with the telescope ." --report saw.html
    """
    inference = pairs.inference
    with noted():
        chosen = sentence_meant(text, sentence, heads=gold)
    if gold and chosen.heads is None:
        raise SettingsError("--gold compares with heads, and this text has none: give CoNLL-U")
    parser = wait_for("loading the parser", lambda: Parser.load(model))
    drawn = wait_for("parsing", lambda: Drawn.of(parser, chosen, tags["tags"], inference))
    written(svg, lambda path: write_bytes(path, picture_of(drawn).encode()))
    write_report(report, "parse_report", parser, chosen, inference=inference, gold=gold, **tags)
    if json:
        render.write_json(drawn._asdict())
    else:
        _tell_tree(drawn)


def _tell_tree(drawn: Drawn) -> None:
    console, drawn = render.console(), drawn.visible()
    for line in drawn.lines(plain=not render.can_print("┼→")):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    console.print()
    render.face(console, drawn.face())
    console.print(f"\n{drawn.told()}")


@contextmanager
def skipping(fate: str) -> Iterator[Callable[[BrokenSentence | str], None]]:
    """Tells the first sentences that are skipped one by one, and the others by number."""
    skipped = 0

    def tell(problem: BrokenSentence | str) -> None:
        nonlocal skipped
        skipped += 1
        if skipped <= REPORTED:
            note(f"{fate}: {getattr(problem, 'error', problem)}")

    yield tell
    if skipped > REPORTED:
        note(f"{fate}: {counted(skipped - REPORTED, 'more sentence')}")
