"""Whole files through the parser: any size at constant memory, on several cores, in order.

A file is cut into parts of some thousand words that are parsed one by one or side by side, and
written in their order. A sentence that cannot be read or parsed stays as it was; the rest is
parsed. Columns HEAD and DEPREL are replaced, so what stood there is not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from minfer.basics.parallel import cores, ordered_map
from minfer.basics.words import counted
from minfer.errors import FormatError, MinferError, SettingsError
from minfer.io.text import PathLike, atomic_write, check_writable
from minfer.parsing.conllu import Dialect, Sentence, parse_block, parse_line
from minfer.parsing.inference import Inference
from minfer.parsing.pairs import count_pairs
from minfer.parsing.parser import Parser, SentenceBatch
from minfer.parsing.treebank import Layout, SentenceLines, Source, read_units, source_name

PART = 1 << 18  # bytes of input parsed at a time, with some bytes more for each sentence
LARGE = 32  # parts: from there on every core is used, by default


@dataclass(frozen=True)
class Totals:
    """What was done, in sums over sentences.

    Attributes
    ----------
    sentences, words : parsed
    skipped : sentences that stayed as they were
    kept, pairs : pairs of arcs in the graphs, and all that trees may contain
    unconverged : sentences whose belief propagation stopped before it had converged
    """

    sentences: int = 0
    words: int = 0
    skipped: int = 0
    kept: int = 0
    pairs: int = 0
    unconverged: int = 0

    def __str__(self) -> str:
        return f"{counted(self.sentences, 'sentence')}, {counted(self.words, 'word')}"

    def told(self, seconds: float) -> str:
        """What was done in that time, and what was not."""
        text = f"{self} in {seconds:.1f} s ({self.words / seconds:,.0f} words/s, loading included)"
        if self.pairs:
            text += f"; {self.kept / self.pairs:.1%} of the pairs kept"
            text += f"; {counted(self.unconverged, 'sentence')} not converged"
        return text + (f"; {counted(self.skipped, 'sentence')} not parsed" * (self.skipped > 0))

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class ParseJob:
    """What is done to each part; it travels to the workers.

    Attributes
    ----------
    model : file of the parser
    source : name of the input, for messages
    layout, dialect : of the input; a dialect of None is told by each sentence
    tags, inference, marginals : as in :meth:`Parser.parse`
    on_error : ``skip`` or ``fail``
    """

    model: str
    source: str
    layout: Layout
    dialect: Dialect | None
    tags: str | None
    inference: Inference
    marginals: bool
    on_error: str


class StreamPart(NamedTuple):
    """A parsed part: lines to write, sums, and what was wrong with sentences skipped."""

    data: bytes
    totals: Totals
    problems: list[str]


def parse_file(
    model: PathLike,
    source: Source,
    target: PathLike,
    *,
    tags: str | None = None,
    inference: Inference | None = None,
    marginals: bool = False,
    layout: Layout | None = None,
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
    if on_error not in ("skip", "fail"):
        raise SettingsError(f"on_error must be skip or fail, not {on_error!r}")
    check_writable(target, [model, *([source] if isinstance(source, str | os.PathLike) else [])])
    layout, blocks = read_units(source, layout)
    name = source_name(source)
    first, blocks = _first_sentence(blocks, layout, name)
    dialect = first.dialect if first is not None else None
    job = ParseJob(
        str(model), name, layout, dialect, tags, inference or Inference(), marginals, on_error
    )
    parts = _parts(blocks)
    if workers is None:
        start = list(islice(parts, LARGE))
        parts = chain(start, parts)
        workers = cores() if len(start) == LARGE else 1
    totals = Totals()
    problem = ""
    with atomic_write(target) as file:
        for part in ordered_map(parse_part, parts, workers, setup=partial(StreamWorker, job)):
            file.write(part.data)
            totals += part.totals
            for problem in part.problems:
                if report is not None:
                    report(problem)
            if progress is not None:
                progress(totals)
        if totals.skipped and not totals.sentences:
            raise FormatError(f"no sentence could be parsed; the last: {problem}")
    return totals


def _first_sentence(
    blocks: Iterator[SentenceLines], layout: Layout, name: str
) -> tuple[Sentence | None, Iterator[SentenceLines]]:
    """The first sentence that can be read, which tells the dialect of all; and all blocks."""
    seen = []
    for block in islice(blocks, 100 if layout == "conll" else 0):
        seen.append(block)
        try:
            return parse_block(block, name, heads=False), chain(seen, blocks)
        except FormatError:
            continue
    return None, chain(seen, blocks)


def _parts(blocks: Iterable[SentenceLines]) -> Iterator[list[SentenceLines]]:
    part: list[SentenceLines] = []
    size = 0
    for block in blocks:
        part.append(block)
        size += len(block.data)
        if size >= PART:
            yield part
            part, size = [], 0
    if part:
        yield part


# ---------------------------------------------------------------------- in a worker


class StreamWorker:
    """A loaded parser and what to do with it."""

    def __init__(self, job: ParseJob) -> None:
        self.job, self.parser = job, Parser.load(job.model)

    def sentence(self, block: SentenceLines) -> Sentence:
        """A sentence that the parser will take; MinferError if it is none."""
        job = self.job
        if job.layout == "text":
            sentence = parse_line(block, job.source)
        else:
            sentence = parse_block(block, job.source, job.dialect, heads=False)
        try:
            self.parser.check(sentence, job.tags, inference=job.inference)
            if job.marginals:
                sentence.check_room()
        except MinferError as error:
            raise type(error)(f"{job.source}: line {block.line}: {error}") from None
        return sentence


def parse_part(worker: StreamWorker, blocks: list[SentenceLines]) -> StreamPart:
    """Parse some blocks."""
    job, parser = worker.job, worker.parser
    sentences: list[Sentence] = []
    texts: list[bytes] = []  # in order; those of sentences come later
    places: list[int] = []
    problems = []
    for block in blocks:
        try:
            sentences.append(worker.sentence(block))
            places.append(len(texts))
            texts.append(b"")
        except MinferError as error:
            if job.on_error == "fail":
                raise
            problems.append(str(error))
            texts.append(block.data + b"\n\n" if job.layout == "conll" else b"")
    batch = parser.parse_batch(sentences, job.tags, inference=job.inference)
    for place, sentence in zip(places, parser.sentences(sentences, batch, marginals=job.marginals)):
        texts[place] = f"{sentence}\n\n".encode()
    return StreamPart(b"".join(texts), _totals(parser, batch, job, len(problems)), problems)


def _totals(parser: Parser, batch: SentenceBatch, job: ParseJob, skipped: int) -> Totals:
    s = parser.model.settings
    pairs = count_pairs(np.diff(batch.data.start), s.gp, s.sib, s.projective, s.single_root)
    kept = batch.counts[:, 2]
    waiting = ~(batch.residuals[:, 0] <= job.inference.tol)
    return Totals(
        len(batch.data), len(batch.heads), skipped, int(kept.sum()), int(pairs.sum()),
        int(waiting.sum()),
    )  # fmt: skip
