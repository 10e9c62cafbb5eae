"""``minfer parse show``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from minfer.cli.failures import UsageError, command_line, note
from minfer.cli.files import check_outputs, check_readable, wrote
from minfer.cli.generate import argument, command, flag, option, output
from minfer.cli.options import JSON
from minfer.cli.parse.options import PARSER, TAGS, Pairs
from minfer.cli.progress import wait_for

if TYPE_CHECKING:
    from minfer.parsing.conllu import Sentence
    from minfer.parsing.drawing import Drawn


@command
def show(
    model: str = PARSER,
    text: str = argument("SENTENCE|FILE  Words separated by blanks, or a file as for `run`."),
    sentence: int = option("-n K  Which sentence of a file.", 1, min=1),
    gold: bool = flag("Compare with the heads in the file."),
    svg: str | None = output("OUT.svg  Write a picture; the opacity of an arc is its probability."),
    report: str | None = output(
        "OUT.html  Write one HTML file that opens offline: arcs over the sentence, and a slider "
        "over the limit that is set, or over factor costs."
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
    from minfer.parsing.drawing import Drawn
    from minfer.parsing.drawing import svg as picture_of
    from minfer.parsing.parser import Parser

    check_readable(model)
    check_outputs({"--svg": svg, "--report": report}, [model, text])
    inference = pairs.inference
    chosen = _find(text, sentence, gold)
    if gold and chosen.heads is None:
        raise UsageError("--gold compares with heads, and this sentence has none")
    parser = wait_for("loading the parser", lambda: Parser.load(model))
    drawn = wait_for("parsing", lambda: Drawn.of(parser, chosen, tags, inference))
    if svg is not None:
        write_bytes(svg, picture_of(drawn).encode())
        wrote(svg)
    if report is not None:
        from minfer.report import parse_report, write_report

        page = wait_for(
            "sweeping for the report",
            lambda: parse_report(
                parser, chosen, tags=tags, inference=inference, gold=gold,
                command=command_line(),
            ),
        )  # fmt: skip
        write_report(report, page)
        wrote(report)
    if json:
        render.write_json({"minfer": render.version(), **drawn._asdict()})
    else:
        _tell_tree(drawn)


def _find(text: str, number: int, with_heads: bool) -> Sentence:
    """The sentence that is meant: a file's, or the text itself; its heads only if asked for."""
    from minfer.parsing.conllu import Sentence, sentence_at

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
    return sentence_at(text, number, heads=with_heads)


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
