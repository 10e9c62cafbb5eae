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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from minfer.cli.failures import note, noted
from minfer.cli.files import IN, OUT, PAGE, THERE, File, write_report, written
from minfer.cli.generate import Options, argument, flag, flag_of, group, option, output
from minfer.cli.options import JSON, WithoutIntervals, member
from minfer.cli.progress import Meter, bar, wait_for
from minfer.errors import ModelError, SettingsError
from minfer.words import counted, listed

if TYPE_CHECKING:
    from minfer.parsing.assessment import Assessment
    from minfer.parsing.conllu import BrokenSentence, Sentence
    from minfer.parsing.drawing import Drawn
    from minfer.parsing.inference import Inference
    from minfer.parsing.learn import Progress

parse = group("parse", __doc__)

REPORTED = 20  # skipped sentences that are told one by one

PARSER = argument("MODEL  Parser written by `train`.", file=THERE)
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
            raise SettingsError(f"{flags} exclude each other: give one of them")
        if self.full:
            return Inference.full()
        return Inference(objective=Budget(**given).parts[0]) if given else Inference()


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


@member(parse, WithoutIntervals)
def train(
    treebank: str = argument("TRAIN.conllu  Treebank to learn from; .gz too.", file=THERE),
    out: str = output("-o MODEL  File to write.", ..., file=OUT),
    dev: str | None = option(
        "DEV.conllu  Treebank for evaluation after each epoch (the last epoch is kept), and for "
        "calibration.",
        file=THERE,
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
    from minfer.parsing.learn import Recipe
    from minfer.parsing.training import checkpoint_of, train_file

    given = {k: v for k, v in asdict(learning).items() if v is not None}
    settings = {"rng": given.pop("rng"), "recipe": Recipe(**given), **asdict(kind)}
    checkpoint = checkpoint_of(out)
    if checkpoint.exists() and not fresh:
        note(f"there is {checkpoint}, to resume from (--fresh starts over)")
    broken = Skipped("left out")
    try:
        with _training() as report:
            made = train_file(
                treebank, out, dev, multi_root=multi_root, fresh=fresh, on_error=on_error,
                report=report, broken=broken.tell, **settings,
            )  # fmt: skip
    except KeyboardInterrupt:
        if checkpoint.exists():
            note(f"the last epoch is saved in {checkpoint}: run the same command to resume")
        else:
            note("nothing is saved yet: that starts with the first epoch for arcs")
        raise
    broken.close()
    if json:
        render.write_json(made.to_dict())
    else:
        render.show(render.console(), render.facts(made.summary()))


@contextmanager
def _training() -> Iterator[Callable[[Progress], None]]:
    """What is called with the progress of training: a bar on a terminal, lines elsewhere."""
    uas = ""

    def show(p: Progress) -> None:
        nonlocal uas
        uas = uas if p.dev_uas is None else f", dev UAS {p.dev_uas:.2f}"
        parser = p.stage in ("arcs", "pairs")  # a line for each epoch; one for another stage
        if sys.stderr.isatty():
            draw(p.done, f"{p}{uas}")
        elif p.done >= 1 and (parser or p.epoch == p.epochs):
            note(f"{p}{uas if parser else ''}, {p.seconds:.0f} s")

    with bar(1.0) as draw:
        yield show


@member(parse, WithoutIntervals)
def run(
    model: str = PARSER,
    source: str = argument(
        "IN  CoNLL-U, CoNLL-X or text; - is standard input; .gz too.", file=THERE
    ),
    out: str = output(
        "-o OUT.conllu  File to write; - is standard output; .gz compresses.", "-", file=OUT
    ),
    format_: str | None = option(
        "conll|text  Input format; text has one sentence per line, blanks between words. Default: "
        "by suffix (.txt is text), or else by the first line."
    ),
    tags: str | None = TAGS,
    marginals: bool = output(
        "Add to MISC: ArcProb, Head2 and Head2Prob (the runner-up head), and TreeProb at the root.",
        False,
    ),
    workers: int | None = option(
        "N  Processes. Default: all cores for large input, else one.", min=1
    ),
    on_error: str = option(
        "skip|fail  What to do with a bad sentence: pass it through unchanged, or stop.", "skip"
    ),
    json: bool = JSON,
    *,
    pairs: Pairs,
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
    from minfer.cli import render
    from minfer.parsing.stream import Totals, parse_file

    layout: Any = format_
    inference = pairs.inference
    began = time.perf_counter()
    broken = Skipped("not parsed")

    with Meter() as meter:

        def show(totals: Totals) -> None:
            if meter.live:
                meter(f"{totals}, {meter.rate(totals.words)} words/s")

        totals = parse_file(
            model, source, out, tags=tags, inference=inference, marginals=marginals,
            layout=layout, on_error=on_error, workers=workers, report=broken.tell, progress=show,
        )  # fmt: skip
    broken.close()
    seconds = time.perf_counter() - began
    note(totals.told(seconds))
    if json:
        render.write_json({"out": out, **asdict(totals), "seconds": seconds})


@member(parse, WithoutIntervals, "eval")
def evaluate(
    gold: str = argument("GOLD.conllu  Treebank to compare with.", file=THERE),
    predicted: str | None = argument(
        "PREDICTED.conllu  The same sentences, parsed.", None, file=THERE
    ),
    model: str | None = option("MODEL  Parse the treebank with this parser instead.", file=THERE),
    tags: str | None = TAGS,
    compare: str | None = option(
        "OTHER.conllu  Another parse of the same sentences: differences with 95 % bootstrap "
        "intervals.",
        file=THERE,
    ),
    calibration: str | None = output(
        "OUT.png  Calibration of the arc probabilities, as a table and a plot; - is the table "
        "only. Needs --model, or a parse written with --marginals.",
        file=File("out", (".png",), draws=True),
    ),
    punctuation: str = option(
        "upos|form  What counts as punctuation: the tag PUNCT, or words made only of Unicode "
        "punctuation (CoNLL-X).",
        "upos",
    ),
    subtypes: bool = option(
        "--subtypes/--no-subtypes  Whether nmod:poss differs from nmod (CoNLL 2018: no).", True
    ),
    multi_root: bool = MULTI_ROOT,
    rng: int = option("N  Seed of the bootstrap.", 0),
    json: bool = JSON,
    *,
    pairs: Pairs,
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
    from minfer.cli import render
    from minfer.parsing.assessment import assess
    from minfer.parsing.conllu import read_conllu, read_treebank
    from minfer.parsing.parser import Parser

    if (predicted is None) == (model is None):
        raise SettingsError("give a parsed file, or a parser by --model, and not both")
    if model is None and tags is not None:
        raise SettingsError("--tags needs --model")
    if model is None and pairs != Pairs():
        raise SettingsError("options of the reduction go with --model")
    inference = pairs.inference

    def read(path: str) -> list[Sentence]:
        return list(read_conllu(path, multi_root=multi_root))

    def work() -> Assessment:
        truth = read_treebank(gold, multi_root=multi_root)
        if model is None:
            parses = read(str(predicted))
        else:
            parser = Parser.load(model)
            parses = list(parser.parse(truth, tags, inference=inference, marginals=True))
        how: Any = {"punctuation": punctuation, "subtypes": subtypes, "rng": rng}
        return assess(truth, parses, read(compare) if compare else None, **how)

    found = wait_for(f"reading {gold}", work)
    if calibration is not None and found.calibration is None:
        raise ModelError(
            f"{predicted}: there is no ArcProb in MISC: parse with --marginals, or use --model"
        )
    if calibration != "-" and found.calibration is not None:
        written(calibration, found.calibration.draw)
    if json:
        render.write_json(found.to_dict())
        return
    console = render.console()
    render.face(console, found.face())
    if calibration is not None and found.calibration is not None:
        console.print()
        render.show(console, render.table_of(found.calibration.face()))


@member(parse, WithoutIntervals)
def show(
    model: str = PARSER,
    text: str = argument(
        "SENTENCE|FILE  Words separated by blanks, or a file as for `run`.", file=IN
    ),
    sentence: int = option("-n K  Which sentence of a file.", 1, min=1),
    gold: bool = flag("Compare with the heads in the file."),
    svg: str | None = output(
        "OUT.svg  Write a picture; the opacity of an arc is its probability.",
        file=File("out", (".svg",), dash=False),
    ),
    report: str | None = output(
        "OUT.html  Write one HTML file that opens offline: arcs over the sentence, and a slider "
        "over the limit that is set, or over factor costs.",
        file=PAGE,
    ),
    tags: str | None = TAGS,
    json: bool = JSON,
    *,
    pairs: Pairs,
) -> None:
    """Show the parse of one sentence: its tree, probabilities and runner-up heads.

    In the picture, runner-up arcs are dashed and wrong ones (--gold) red.

    \b
    Examples:
      minfer parse show en.model "I saw the man with the telescope ."
      minfer parse show en.model test.conllu --sentence 7 --gold --svg seven.svg
      minfer parse show en.model "I saw the man with the telescope ." --report saw.html
    """
    from minfer.cli import render
    from minfer.io.text import write_bytes
    from minfer.parsing.conllu import sentence_meant
    from minfer.parsing.drawing import Drawn
    from minfer.parsing.drawing import svg as picture_of
    from minfer.parsing.parser import Parser

    inference = pairs.inference
    with noted():
        chosen = sentence_meant(text, sentence, heads=gold)
    if gold and chosen.heads is None:
        raise SettingsError("--gold compares with heads, and this sentence has none")
    parser = wait_for("loading the parser", lambda: Parser.load(model))
    drawn = wait_for("parsing", lambda: Drawn.of(parser, chosen, tags, inference))
    written(svg, lambda path: write_bytes(path, picture_of(drawn).encode()))
    about: dict[str, Any] = {"tags": tags, "inference": inference, "gold": gold}
    write_report(report, "parse_report", parser, chosen, **about)
    if json:
        render.write_json(drawn._asdict())
    else:
        _tell_tree(drawn)


def _tell_tree(drawn: Drawn) -> None:
    from minfer.cli import render
    from minfer.parsing.drawing import tree_lines

    drawn = drawn.visible()
    console = render.console()
    plain = not render.can_print("┼→")
    for line, form in zip(tree_lines(drawn.heads, plain), drawn.forms):
        console.print(f"{line} {form}", no_wrap=True, overflow="ignore", crop=False)
    console.print()
    render.face(console, drawn.face())
    console.print(f"\n{drawn.told()}")


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
