"""``minfer parse run``."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from minfer.cli.failures import UsageError, note
from minfer.cli.files import check_readable, check_writable
from minfer.cli.generate import argument, command, option, output
from minfer.cli.options import JSON
from minfer.cli.parse.options import PARSER, TAGS, Pairs, Skipped
from minfer.cli.progress import Meter


@command
def run(
    model: str = PARSER,
    source: str = argument("IN  CoNLL-U, CoNLL-X or text; - is standard input; .gz too."),
    out: str = output("-o OUT.conllu  File to write; - is standard output; .gz compresses.", "-"),
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

    check_readable(model, source)
    check_writable(out, [model, source])
    if json and out == "-":
        raise UsageError("--json and the parses cannot both go to standard output: add -o FILE")
    layout: Any = format_
    inference = pairs.inference
    began = time.perf_counter()
    broken = Skipped("not parsed")

    with Meter() as meter:

        def show(totals: Totals) -> None:
            if meter.live:
                meter(f"{totals}, {totals.words / (time.perf_counter() - began):,.0f} words/s")

        totals = parse_file(
            model, source, out, tags=tags, inference=inference, marginals=marginals,
            layout=layout, on_error=on_error, workers=workers, report=broken.tell, progress=show,
        )  # fmt: skip
    broken.close()
    seconds = time.perf_counter() - began
    note(totals.told(seconds))
    if json:
        content = {"minfer": render.version(), "out": out, **asdict(totals), "seconds": seconds}
        render.write_json(content)
