"""``minfer parse eval``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from minfer.cli.failures import UsageError, note
from minfer.cli.files import check_writable
from minfer.cli.generate import takes
from minfer.cli.options import OUTPUT_PANEL, Json
from minfer.cli.paper import pyplot
from minfer.cli.parse.options import (
    MEASURES,
    REDUCTION_PANEL,
    MultiRoot,
    Pairs,
    Tags,
    check_choice,
    check_heads,
    check_readable,
    check_suffix,
    numbers,
)
from minfer.cli.progress import wait_for
from minfer.errors import ModelError
from minfer.words import counted

if TYPE_CHECKING:
    from rich.table import Table

    from minfer.parsing.calibration import Calibration
    from minfer.parsing.conllu import Sentence
    from minfer.parsing.evaluation import Scores


@takes(REDUCTION_PANEL, pairs=Pairs)
def evaluate(
    gold: Annotated[str, typer.Argument(metavar="GOLD.conllu", help="Treebank to compare with.")],
    predicted: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="PREDICTED.conllu", help="The same sentences, parsed."),
    ] = None,
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--model", metavar="MODEL", help="Parse the treebank with this parser instead."
        ),
    ] = None,
    tags: Tags = None,
    compare: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="OTHER.conllu",
            help="Another parse of the same sentences: differences with 95 % bootstrap intervals.",
        ),
    ] = None,
    calibration: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="OUT.png",
            help="Calibration of the arc probabilities, as a table and a plot; - is the table "
            "only. Needs --model, or a parse written with --marginals.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    punctuation: Annotated[
        str,
        typer.Option(
            metavar="upos|form",
            help="What counts as punctuation: the tag PUNCT, or words made only of Unicode "
            "punctuation (CoNLL-X).",
        ),
    ] = "upos",
    subtypes: Annotated[
        bool,
        typer.Option(
            "--subtypes/--no-subtypes", help="Whether nmod:poss differs from nmod (CoNLL 2018: no)."
        ),
    ] = True,
    multi_root: MultiRoot = False,
    rng: Annotated[int, typer.Option(metavar="N", help="Seed of the bootstrap.")] = 0,
    json: Json = False,
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
    if predicted is None and model is None:
        raise UsageError("give a parsed file, or a parser by --model")
    if predicted is not None and model is not None:
        raise UsageError("give a parsed file or --model, not both")
    if predicted is not None and tags is not None:
        raise UsageError("--tags goes with --model")
    check_choice("--tags", tags, ("predicted", "gold"))
    check_choice("--punctuation", punctuation, ("upos", "form"))
    for path in filter(None, (gold, predicted, model, compare)):
        check_readable(path)
    if calibration is not None and calibration != "-":
        check_suffix("--calibration", calibration, ".png")
        check_writable(calibration, [p for p in (gold, predicted, model, compare) if p])
        pyplot()  # before the work, not after it
    inference = pairs.inference
    if pairs != Pairs() and model is None:
        raise UsageError("options of the reduction go with --model")

    from minfer.parsing.conllu import read_conllu
    from minfer.parsing.evaluation import bootstrap_difference, evaluate

    def read(path: str) -> list[Sentence]:
        return list(read_conllu(path, multi_root=multi_root))

    def work() -> tuple[list[Sentence], list[Sentence], list[Sentence] | None]:
        truth = read(gold)
        check_heads(gold, truth)
        if model is None:
            parses = read(str(predicted))
        else:
            from minfer.parsing.parser import Parser

            parses = list(
                Parser.load(model).parse(truth, tags, inference=inference, marginals=True)
            )
        return truth, parses, read(compare) if compare else None

    truth, parses, other = wait_for(f"reading {gold}", work)
    how: Any = {"punctuation": punctuation, "subtypes": subtypes}
    scores = evaluate(truth, parses, **how)
    others = evaluate(truth, other, **how) if other is not None else None
    calibrated = _calibrate(truth, parses)
    if calibration is not None:
        if calibrated is None:
            raise ModelError(
                f"{predicted}: there is no ArcProb in MISC: parse with --marginals, or use --model"
            )
        if calibration != "-":
            _plot(calibrated, calibration)
    differences = None
    if others is not None:
        differences = {
            name: bootstrap_difference(scores, others, rng, measure=name) for name in MEASURES
        }
    _tell_scores(scores, others, differences, calibrated, calibration is not None, json)


def _calibrate(gold: list[Sentence], parses: list[Sentence]) -> Calibration | None:
    import numpy as np

    from minfer.parsing.calibration import arc_probs, calibration

    probs, right = [], []
    for one, other in zip(gold, parses):
        p = arc_probs(other)
        if p is None:
            return None
        probs.append(p)
        right.append(np.asarray(one.heads) == other.heads)
    return calibration(np.concatenate(probs), np.concatenate(right))


def _tell_scores(
    scores: Scores,
    others: Scores | None,
    differences: dict[str, Any] | None,
    calibrated: Calibration | None,
    bins: bool,
    json: bool,
) -> None:
    from minfer.cli import render

    if json:
        content: dict[str, Any] = {"minfer": render.version(), "scores": numbers(scores)}
        if differences is not None:
            content["other"] = numbers(others)
            content["differences"] = {k: vars(d) for k, d in differences.items()}
        if calibrated is not None:
            parts = {k: getattr(v, "tolist", lambda v=v: v)() for k, v in vars(calibrated).items()}
            content["calibration"] = parts
        sys.stdout.write(render.to_json(content) + "\n")
        return
    console = render.console()
    render.show(console, _score_table(scores, others, differences))
    if calibrated is not None:
        console.print(f"\narc probabilities: {calibrated}")
        if bins:
            console.print()
            render.show(console, _calibration_table(calibrated))


def _score_table(
    scores: Scores, others: Scores | None, differences: dict[str, Any] | None
) -> Table:
    from minfer.cli import render

    titles = {
        "uas": f"UAS ({counted(scores.n, 'word')})",
        "las": "LAS",
        "uas_no_punct": f"UAS without punctuation ({counted(scores.n_no_punct, 'word')})",
        "las_no_punct": "LAS without punctuation",
        "exact": f"exact heads ({counted(len(scores.counts), 'sentence')})",
        "exact_labelled": "exact heads and relations",
    }
    extra = ("other", "difference") if others is not None else ()
    table = render.empty_table("", "score", *extra, right=("score", *extra))
    for name in MEASURES:
        row = [titles[name], f"{scores.of(name):.2f}"]
        if others is not None and differences is not None:
            row += [f"{others.of(name):.2f}", str(differences[name])]
        table.add_row(*row)
    return table


def _calibration_table(c: Calibration) -> Table:
    from minfer.cli import render

    table = render.empty_table(
        "probability", "words", "mean", "right", "", right=("words", "mean", "right")
    )
    for k, count in enumerate(c.counts.tolist()):
        row = [f"{c.edges[k]:.1f} to {c.edges[k + 1]:.1f}", f"{count:,}"]
        if count:
            bar = "#" * round(20 * c.right[k])
            row += [f"{c.probs[k]:.3f}", f"{c.right[k]:.3f}", bar]
        table.add_row(*row)
    return table


def _plot(c: Calibration, path: str) -> None:
    """A reliability plot: the share that is right against the probability, words below."""
    from minfer.io import atomic_write

    plt = pyplot()
    figure, (top, low) = plt.subplots(
        2, 1, figsize=(5, 6), dpi=110, sharex=True, height_ratios=(3, 1)
    )
    full = c.counts > 0
    top.plot([0, 1], [0, 1], color="grey", linewidth=1, label="true probabilities")
    top.plot(c.probs[full], c.right[full], "o-", color="tab:blue", label="arcs chosen")
    top.set(ylabel="share right", title=f"ECE {c.ece:.4f}, Brier {c.brier:.4f}", ylim=(0, 1.02))
    top.legend(frameon=False)
    width = c.edges[1] - c.edges[0]
    low.bar(c.edges[:-1] + width / 2, c.counts, width=0.9 * width, color="tab:blue")
    low.set(xlabel="probability of the arc", ylabel="words", yscale="log", xlim=(0, 1.02))
    for axis in (top, low):
        axis.grid(alpha=0.3)
    figure.tight_layout()
    with atomic_write(path) as file:
        figure.savefig(file, format="png", metadata={"Software": None})
    plt.close(figure)
    note(f"wrote {path}")
