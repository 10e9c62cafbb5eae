"""``minfer parse eval``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from minfer.cli.failures import UsageError
from minfer.cli.files import check_outputs, check_readable, pictures, wrote
from minfer.cli.generate import argument, command, option, output
from minfer.cli.options import JSON
from minfer.cli.parse.options import MULTI_ROOT, TAGS, Pairs, check_heads
from minfer.cli.progress import wait_for
from minfer.errors import ModelError

if TYPE_CHECKING:
    from minfer.parsing.conllu import Sentence


@command
def evaluate(
    gold: str = argument("GOLD.conllu  Treebank to compare with."),
    predicted: str | None = argument("PREDICTED.conllu  The same sentences, parsed.", None),
    model: str | None = option("MODEL  Parse the treebank with this parser instead."),
    tags: str | None = TAGS,
    compare: str | None = option(
        "OTHER.conllu  Another parse of the same sentences: differences with 95 % bootstrap "
        "intervals."
    ),
    calibration: str | None = output(
        "OUT.png  Calibration of the arc probabilities, as a table and a plot; - is the table "
        "only. Needs --model, or a parse written with --marginals."
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
    from minfer.parsing.calibration import treebank_calibration
    from minfer.parsing.conllu import read_conllu
    from minfer.parsing.evaluation import Measure, bootstrap_difference, evaluate

    if predicted is None and model is None:
        raise UsageError("give a parsed file, or a parser by --model")
    if predicted is not None and model is not None:
        raise UsageError("give a parsed file or --model, not both")
    if predicted is not None and tags is not None:
        raise UsageError("--tags needs --model")
    inputs = gold, predicted, model, compare
    check_readable(*inputs)
    plot = None if calibration == "-" else calibration
    check_outputs({"--calibration": plot}, inputs)
    if plot is not None:
        pictures()  # before the work, not after it
    inference = pairs.inference
    if pairs != Pairs() and model is None:
        raise UsageError("options of the reduction go with --model")

    def read(path: str) -> list[Sentence]:
        return list(read_conllu(path, multi_root=multi_root))

    def work() -> tuple[list[Sentence], list[Sentence], list[Sentence] | None]:
        truth = read(gold)
        check_heads(gold, truth)
        if model is None:
            parses = read(str(predicted))
        else:
            from minfer.parsing.parser import Parser

            parser = Parser.load(model)
            parses = list(parser.parse(truth, tags, inference=inference, marginals=True))
        return truth, parses, read(compare) if compare else None

    truth, parses, other = wait_for(f"reading {gold}", work)
    how: Any = {"punctuation": punctuation, "subtypes": subtypes}
    scores = evaluate(truth, parses, **how)
    others = None if other is None else evaluate(truth, other, **how)
    calibrated = treebank_calibration(truth, parses)
    if calibration is not None and calibrated is None:
        raise ModelError(
            f"{predicted}: there is no ArcProb in MISC: parse with --marginals, or use --model"
        )
    if plot is not None and calibrated is not None:
        calibrated.draw(plot)
        wrote(plot)
    differences = {}
    if others is not None:
        differences = {
            name: bootstrap_difference(scores, others, rng, measure=name)
            for name in get_args(Measure)
        }
    if json:
        content: dict[str, Any] = {"minfer": render.version(), "scores": scores.to_dict()}
        if others is not None:
            content["other"] = others.to_dict()
            content["differences"] = {k: vars(d) for k, d in differences.items()}
        if calibrated is not None:
            content["calibration"] = calibrated.to_dict()
        render.write_json(content)
        return
    console = render.console()
    render.face(console, scores.face(others, differences))
    if calibrated is not None:
        console.print(f"\narc probabilities: {calibrated}")
        if calibration is not None:
            console.print()
            render.show(console, render.table_of(calibrated.face()))
