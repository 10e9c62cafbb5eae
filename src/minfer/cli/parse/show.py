"""``minfer parse show``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from minfer.cli.failures import UsageError, command_line, note
from minfer.cli.files import check_report, check_writable
from minfer.cli.generate import takes
from minfer.cli.options import OUTPUT_PANEL, Json
from minfer.cli.parse.options import (
    REDUCTION_PANEL,
    ModelFile,
    Pairs,
    Tags,
    check_choice,
    check_readable,
    check_suffix,
)
from minfer.cli.progress import wait_for
from minfer.errors import FormatError
from minfer.words import counted

if TYPE_CHECKING:
    from minfer.parsing.conllu import Sentence
    from minfer.parsing.drawing import Drawn
    from minfer.parsing.inference import Inference


@takes(REDUCTION_PANEL, pairs=Pairs)
def show(
    model: ModelFile,
    text: Annotated[
        str,
        typer.Argument(
            metavar="SENTENCE|FILE", help="Words separated by blanks, or a file as for `run`."
        ),
    ],
    sentence: Annotated[
        int, typer.Option("--sentence", "-n", metavar="K", min=1, help="Which sentence of a file.")
    ] = 1,
    gold: Annotated[
        bool, typer.Option("--gold", help="Compare with the heads in the file.")
    ] = False,
    svg: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="OUT.svg",
            help="Write a picture; the opacity of an arc is its probability.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    report: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="OUT.html",
            help="Write one HTML file that opens offline: arcs over the sentence, and a slider "
            "over the limit that is set, or over factor costs.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    tags: Tags = None,
    json: Json = False,
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
    check_readable(model)
    check_choice("--tags", tags, ("predicted", "gold"))
    if svg is not None:
        check_suffix("--svg", svg, ".svg")
        check_writable(svg, [model, text])
    if report is not None:
        check_report(report, [svg], [model, text])
    inference = pairs.inference
    chosen = _find(text, sentence, gold)
    if gold and chosen.heads is None:
        raise UsageError("--gold compares with heads, and this sentence has none")
    drawn = wait_for("parsing", lambda: _drawn(model, chosen, tags, inference))
    if svg is not None:
        from minfer.io.text import write_bytes
        from minfer.parsing import drawing

        write_bytes(svg, drawing.svg(drawn).encode())
        note(f"wrote {svg}")
    if report is not None:
        _report(report, model, chosen, tags, inference, gold)
    if json:
        from minfer.cli import render

        content = {"minfer": render.version(), **drawn._asdict()}
        sys.stdout.write(render.to_json(content) + "\n")
    else:
        _tell_tree(drawn)


def _find(text: str, number: int, with_heads: bool) -> Sentence:
    """The sentence that is meant: a file's, or the text itself; its heads only if asked for."""
    from itertools import islice

    from minfer.errors import MinferError
    from minfer.parsing.conllu import Sentence, parse_block, parse_line
    from minfer.parsing.treebank import read_units, source_name

    if text != "-" and not os.path.exists(text):
        if number != 1:
            raise UsageError(f"--sentence chooses from a file, and there is no file {text!r}")
        if os.path.splitext(text)[1] and " " not in text.strip():
            raise UsageError(f"there is no file {text}, and a single word is not a sentence")
        if not text.strip():
            raise UsageError("the sentence has no words")
        sentence = Sentence.from_text(text)
        last = sentence.forms[-1]
        if len(last) > 1 and last[-1] in ".?!" and last[-2].isalnum():
            note(f"{last!r} is taken as one word: separate punctuation by spaces")
        return sentence
    layout, blocks = read_units(text)
    block = next(islice(blocks, number - 1, number), None)
    if block is None:
        raise UsageError(f"{text} has fewer than {counted(number, 'sentence')}")
    if layout == "text":
        return parse_line(block, source_name(text))
    try:
        return parse_block(block, source_name(text), multi_root=True, heads=with_heads)
    except MinferError as error:
        raise FormatError(f"sentence {number}: {error}") from None


def _drawn(path: str, sentence: Sentence, tags: str | None, inference: Inference) -> Drawn:
    import math

    from minfer.parsing.drawing import Drawn
    from minfer.parsing.parser import Parser

    parser = Parser.load(path)
    batch = parser.parse_batch([sentence], tags, inference=inference)
    [parsed] = parser.sentences([sentence], batch)
    gold = None if sentence.heads is None else sentence.heads.tolist()
    return Drawn(
        parsed.forms, parsed.upos, parsed.deprels, batch.heads.tolist(), batch.probs.tolist(),
        batch.second.tolist(), batch.second_probs.tolist(),
        math.exp(float(batch.log_p[0])), gold,
    )  # fmt: skip


def _report(
    path: str, model: str, sentence: Sentence, tags: str | None, inference: Inference, gold: bool
) -> None:
    from minfer.parsing.parser import Parser
    from minfer.report import parse_report, write_report

    def work() -> str:
        return parse_report(
            Parser.load(model), sentence, tags=tags, inference=inference, gold=gold,
            command=command_line(),
        )  # fmt: skip

    write_report(path, wait_for("sweeping for the report", work))
    note(f"wrote {path}")


def _tell_tree(drawn: Drawn) -> None:
    from minfer.cli import render
    from minfer.parsing.drawing import tree_lines

    drawn = drawn.visible()
    console = render.console()
    plain = not render.can_print("┼→")
    for line, form in zip(tree_lines(drawn.heads, plain), drawn.forms):
        console.print(f"{line} {form}", no_wrap=True, overflow="ignore", crop=False)
    console.print()
    titles = ["", "word", "tag", "head", "relation", "p", "runner-up", "p"]
    if drawn.gold is not None:
        titles.append("gold")
    table = render.empty_table(*titles, right=("", "p"))

    def name(node: int) -> str:
        return f"{node} {drawn.forms[node - 1]}" if node else "0 ROOT"

    for k, form in enumerate(drawn.forms):
        head, p, other = drawn.heads[k], drawn.probs[k], drawn.second[k]
        row = [str(k + 1), form, drawn.tags[k], name(head), drawn.deprels[k]]
        row += [render.probability(p)]
        row += [name(other), render.probability(drawn.second_probs[k])] if other >= 0 else ["", ""]
        if drawn.gold is not None:
            row.append("" if drawn.gold[k] == head else name(drawn.gold[k]))
        table.add_row(*row, style="" if p >= 0.5 else "yellow")
    render.show(console, table)
    console.print(f"\nprobability of the tree {render.probability(drawn.tree_prob)}")
    if drawn.gold is not None:
        right = sum(a == b for a, b in zip(drawn.gold, drawn.heads))
        console.print(f"{right} of {len(drawn.heads)} heads as in the file")
