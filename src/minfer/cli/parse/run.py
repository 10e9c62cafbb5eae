"""``minfer parse run``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from minfer.cli.failures import UsageError, note
from minfer.cli.files import check_writable
from minfer.cli.generate import takes
from minfer.cli.options import OUTPUT_PANEL, Json
from minfer.cli.parse.options import (
    REDUCTION_PANEL,
    ModelFile,
    Pairs,
    Skipped,
    Tags,
    check_choice,
    check_readable,
)
from minfer.words import counted

if TYPE_CHECKING:
    from minfer.parsing.stream import Totals


@takes(REDUCTION_PANEL, pairs=Pairs)
def run(
    model: ModelFile,
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="CoNLL-U, CoNLL-X or text; - is standard input; .gz too."
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="OUT.conllu",
            help="File to write; - is standard output; .gz compresses.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = "-",
    format_: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--format",
            metavar="conll|text",
            help="Input format; text has one sentence per line, blanks between words. Default: by "
            "suffix (.txt is text), or else by the first line.",
        ),
    ] = None,
    tags: Tags = None,
    marginals: Annotated[
        bool,
        typer.Option(
            "--marginals",
            help="Add to MISC: ArcProb, Head2 and Head2Prob (the runner-up head), and TreeProb at "
            "the root.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            metavar="N", min=1, help="Processes. Default: all cores for large input, else one."
        ),
    ] = None,
    on_error: Annotated[
        str,
        typer.Option(
            metavar="skip|fail",
            help="What to do with a bad sentence: pass it through unchanged, or stop.",
        ),
    ] = "skip",
    json: Json = False,
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
    for path in (model, source):
        check_readable(path)
    check_choice("--on-error", on_error, ("skip", "fail"))
    check_choice("--tags", tags, ("predicted", "gold"))
    check_choice("--format", format_, ("conll", "text"))
    if out != "-":
        check_writable(out, [model, source])
    elif json:
        raise UsageError("--json and the parses cannot both go to standard output: add -o FILE")
    from minfer.parsing.stream import parse_file

    layout: Any = format_
    inference = pairs.inference
    began = time.perf_counter()
    broken = Skipped("not parsed")
    with _running(began) as progress:
        totals = parse_file(
            model, source, out, tags=tags, inference=inference, marginals=marginals,
            layout=layout, on_error=on_error, workers=workers, report=broken.tell,
            progress=progress,
        )  # fmt: skip
    broken.close()
    seconds = time.perf_counter() - began
    note(_closing(totals, seconds))
    if json:
        from dataclasses import asdict

        from minfer.cli import render

        content = {"minfer": render.version(), "out": out, **asdict(totals), "seconds": seconds}
        sys.stdout.write(render.to_json(content) + "\n")


@contextmanager
def _running(began: float) -> Iterator[Callable[[Totals], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    from minfer.cli import render

    with render.console(stderr=True).status("loading the parser") as status:

        def show(totals: Totals) -> None:
            rate = totals.words / (time.perf_counter() - began)
            status.update(f"{_size(totals)}, {rate:,.0f} words/s")

        yield show


def _size(totals: Totals) -> str:
    return f"{counted(totals.sentences, 'sentence')}, {counted(totals.words, 'word')}"


def _closing(totals: Totals, seconds: float) -> str:
    text = (
        f"{_size(totals)} in {seconds:.1f} s "
        f"({totals.words / seconds:,.0f} words/s, loading included)"
    )
    if totals.pairs:
        text += f"; {totals.kept / totals.pairs:.1%} of the pairs kept"
        text += f"; {counted(totals.unconverged, 'sentence')} not converged"
    return text + (f"; {counted(totals.skipped, 'sentence')} not parsed" if totals.skipped else "")
