"""Whole files through the parser: any size at constant memory, on several cores, in order.

A file is cut into parts of some thousand words that are parsed one by one or side by side, and
written in their order. A sentence that cannot be read or parsed stays as it was; the rest is
parsed. Columns HEAD and DEPREL are replaced, so what stood there is not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain, islice

import numpy as np

from minfer.basics.checks import check_choice
from minfer.basics.parallel import cores, ordered_map
from minfer.basics.words import counted
from minfer.errors import FormatError, MinferError, SettingsError
from minfer.io.text import PathLike, atomic_write, check_writable
from minfer.parsing.conllu import (
    Dialect,
    Sentence,
    parse_block,
    parse_line,
    text_of_line,
    unsplit,
)
from minfer.parsing.graphs import count_pairs
from minfer.parsing.inference import Inference
from minfer.parsing.parser import Parser, SentenceBatch, in_batches
from minfer.parsing.tokens import tokenized, tokenizer_named
from minfer.parsing.treebank import Layout, SentenceLines, Source, read_units, source_name

PART = 1 << 18  # bytes of input parsed at a time, with some bytes more for each sentence
LARGE = 32  # parts: from there on every core is used, by default


@dataclass(frozen=True)
class Totals:
    """What was done, in sums over sentences."""

    sentences: int = 0
    words: int = 0
    skipped: int = 0  # sentences that stayed as they were
    kept: int = 0  # pairs of arcs in the graphs
    pairs: int = 0  # all that trees may contain
    unconverged: int = 0  # sentences whose belief propagation stopped before it had converged
    unsplit: int = 0  # words of text with punctuation that is not split off

    def __str__(self) -> str:
        return f"{counted(self.sentences, 'sentence')}, {counted(self.words, 'word')}"

    def told(self, seconds: float) -> str:
        """What was done in that time, and what was not."""
        text = f"{self} in {seconds:.1f} s ({self.words / seconds:,.0f} words/s, loading included)"
        if self.pairs:
            text += f"; {self.kept / self.pairs:.1%} of the pairs kept"
            text += f"; {counted(self.unconverged, 'sentence')} not converged"
        text += f"; {counted(self.skipped, 'sentence')} not parsed" * (self.skipped > 0)
        if self.unsplit:
            text += (
                f"; {counted(self.unsplit, 'word')} with punctuation that is not split off, as in "
                "'works,', was parsed as it is: separate it by spaces, or give a tokenizer"
            )
        return text

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def parse_file(
    model: PathLike,
    source: Source,
    target: PathLike,
    *,
    tags: str | None = None,
    inference: Inference | None = None,
    marginals: bool = False,
    layout: Layout | None = None,
    tokenizer: str | None = None,
    on_error: str = "skip",
    workers: int | None = None,
    report: Callable[[str], object] | None = None,
    progress: Callable[[Totals], object] | None = None,
) -> Totals:
    """Parse a file into a CoNLL-U file, which appears only when it is complete.

    Parameters
    ----------
    model : file of a parser
    source : CoNLL-U, CoNLL-X or text; ``-`` is standard input; .gz too
    target : ``-`` is standard output, ``.gz`` compresses
    tags, inference, marginals : as in :meth:`Parser.parse`
    layout : "conll" or "text", optional
        Input format; text has one sentence per line, blanks between words. By default it is told
        by the suffix (.txt is text), or else by the first line.
    tokenizer : "spacy:MODEL", "stanza:LANGUAGE" or "module:function", optional
        What finds sentences and words in each line of a text; their places in it are added to MISC.
    on_error : "skip" or "fail"
        What to do with a bad sentence: pass it through unchanged (a line of text is left out), or
        stop.
    workers : processes; by default all cores for large input, else one
    report : called with what is wrong with each sentence skipped
    progress : called with the sums so far after each part

    Raises
    ------
    FormatError : if no sentence can be read, or any with ``fail``
    RefusedError : with ``fail``, if a sentence is too long
    """
    check_choice("on_error", on_error, ("skip", "fail"))
    check_writable(target, [model, *([source] if isinstance(source, str | os.PathLike) else [])])
    if tokenizer is not None:
        tokenizer_named(tokenizer)  # or says what is wrong with it
        layout = layout or "text"
    layout, blocks = read_units(source, layout)
    if tokenizer is not None and layout != "text":
        raise SettingsError("a tokenizer is for text, and this file has its words")
    name = source_name(source)
    seen: list[SentenceLines] = []
    dialect: Dialect | None = None
    for block in islice(blocks, 100 if layout == "conll" else 0):
        seen.append(block)
        with suppress(FormatError):  # the first that can be read tells the dialect of all
            dialect = parse_block(block, name, heads=False).dialect
            break
    blocks = chain(seen, blocks)
    setup = partial(
        StreamWorker, str(model), name, layout, dialect, tags, inference or Inference(), marginals,
        on_error, tokenizer,
    )  # fmt: skip
    parts = in_batches(blocks, lambda block: len(block.data), PART)
    if workers is None:
        start = list(islice(parts, LARGE))
        parts = chain(start, parts)
        workers = cores() if len(start) == LARGE else 1
    totals = Totals()
    problem = ""
    with atomic_write(target) as file:
        for data, more, problems in ordered_map(parse_part, parts, workers, setup=setup):
            file.write(data)
            totals += more
            for problem in problems:
                if report is not None:
                    report(problem)
            if progress is not None:
                progress(totals)
        if totals.skipped and not totals.sentences:
            raise FormatError(f"no sentence could be parsed; the last: {problem}")
    return totals


# ---------------------------------------------------------------------- in a worker


class StreamWorker:
    """A loaded parser and what to do with it; a dialect of None is told by each sentence."""

    def __init__(
        self, model: str, source: str, layout: Layout, dialect: Dialect | None, tags: str | None,
        inference: Inference, marginals: bool, on_error: str, tokenizer: str | None = None,
    ) -> None:  # fmt: skip
        self.parser = Parser.load(model)
        self.source, self.layout, self.dialect, self.tags = source, layout, dialect, tags
        self.inference, self.marginals, self.on_error = inference, marginals, on_error
        self.tokenize = None if tokenizer is None else tokenizer_named(tokenizer)

    def sentences(self, block: SentenceLines) -> list[Sentence]:
        """Sentences that the parser will take, one unless there is a tokenizer; or MinferError."""
        try:
            if self.layout != "text":
                found = [parse_block(block, self.source, dialect=self.dialect, heads=False)]
            elif self.tokenize is None:
                found = [parse_line(block, self.source)]
            else:
                text = text_of_line(block, self.source)
                found = list(tokenized(text, self.tokenize, block.line))
        except FormatError:
            raise
        except MinferError as error:
            raise type(error)(f"{self.source}: line {block.line}: {error}") from None
        try:
            for sentence in found:
                self.parser.check(sentence, self.tags, inference=self.inference)
                if self.marginals:
                    sentence.check_room()
        except MinferError as error:
            raise type(error)(f"{self.source}: line {block.line}: {error}") from None
        return found

    def totals(self, batch: SentenceBatch, skipped: int, unsplit: int) -> Totals:
        s = self.parser.model.settings
        pairs = count_pairs(np.diff(batch.data.start), s.gp, s.sib, s.projective, s.single_root)
        waiting = ~(batch.residuals[:, 0] <= self.inference.tol)
        return Totals(
            len(batch.data), len(batch.heads), skipped, int(batch.counts[:, 2].sum()),
            int(pairs.sum()), int(waiting.sum()), unsplit,
        )  # fmt: skip


def parse_part(
    worker: StreamWorker, blocks: list[SentenceLines]
) -> tuple[bytes, Totals, list[str]]:
    """Parse some blocks: lines to write, sums, and what was wrong with sentences skipped."""
    sentences: list[Sentence] = []
    texts: list[bytes] = []  # in order; those of sentences come later
    places: list[int] = []
    problems = []
    words = 0
    for block in blocks:
        try:
            found = worker.sentences(block)
            sentences += found
            places += range(len(texts), len(texts) + len(found))
            texts += [b""] * len(found)
            if worker.layout == "text" and worker.tokenize is None:
                words += sum(len(unsplit(sentence.forms)) for sentence in found)
        except MinferError as error:
            if worker.on_error == "fail":
                raise
            problems.append(str(error))
            texts.append(block.data + b"\n\n" if worker.layout == "conll" else b"")
    batch = worker.parser.parse_batch(sentences, worker.tags, inference=worker.inference)
    parsed = worker.parser.sentences(sentences, batch, marginals=worker.marginals)
    for place, sentence in zip(places, parsed):
        texts[place] = f"{sentence}\n\n".encode()
    return b"".join(texts), worker.totals(batch, len(problems), words), problems
