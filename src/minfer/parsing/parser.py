"""The dependency parser: train, save, load, parse.

First- and second-order factors over arcs with one tree factor (Smith & Eisner 2008), inference by
belief propagation on a graph reduced to the pairs that can matter (Riedel, Smith & McCallum 2010,
section 5.2), decoding by minimum Bayes risk. Probabilities of arcs come with every parse.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import as_list, check_choice, check_type, check_whole
from minfer.basics.words import counted
from minfer.errors import ModelError, RefusedError
from minfer.parsing.calibration import tempered
from minfer.parsing.conllu import DEPREL, HEAD, MISC, UPOS, XPOS, Sentence, with_misc
from minfer.parsing.features import Encoded, Encoder, compiled_templates
from minfer.parsing.graphs import ArcScores, list_pairs, to_graph
from minfer.parsing.inference import ArcMarginals, Inference, still_to_move
from minfer.parsing.learn import (
    Recipe,
    Report,
    predict_labels,
    predict_tags,
    retagged,
    train_model,
    with_heads,
)
from minfer.parsing.model import ParserModel, Settings
from minfer.parsing.tokens import Tokenizer, tokenized
from minfer.prediction.calibration import calibration

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.io.text import PathLike

BATCH = 8192  # words parsed at a time
MOST_WORDS = 1200  # of one sentence: trees take time that grows with their cube
MOST_PAIRS = 1 << 25  # of one sentence
TEMPERS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)  # exponents that are tried
TAGS = ("predicted", "gold")
MISC_KEYS = ("ArcProb", "Head2", "Head2Prob", "TreeProb")

Input = Sentence | Sequence[str]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class SentenceBatch:
    """Parses of some sentences, one word after the other.

    From ``heads`` on as :class:`minfer.parsing.kernels.parser.ParseArrays`. Where there are pairs
    log Z and log-probabilities of trees rest on the Bethe approximation, and a tree is never more
    probable than the least probable of its arcs.
    """

    data: Encoded  # the sentences as numbers, with the tags that were used
    tags: NDArray[np.int32] | None  # (words,) classes of the tagger; None if tags were given
    labels: NDArray[np.int32]  # (words,)
    heads: NDArray[np.int32]
    probs: NDArray[np.float64]
    second: NDArray[np.int32]
    second_probs: NDArray[np.float64]
    log_z: NDArray[np.float64]
    log_p: NDArray[np.float64]
    counts: NDArray[np.int64]
    residuals: NDArray[np.float64]
    marginals: NDArray[np.float64]


class Parser:
    """A trained dependency parser. Threads may share one: kernels run side by side.

    Examples
    --------
    >>> from minfer.parsing.parser import Parser
    >>> from minfer.parsing.tiny import tiny_treebank
    >>> parser = Parser.train(tiny_treebank())
    >>> [parse] = parser.parse([["Birds", "sing"]])
    >>> parse.heads.tolist(), parse.deprels
    ([2, 0], ('nsubj', 'root'))
    """

    def __init__(self, model: ParserModel) -> None:
        if not isinstance(model, ParserModel):
            raise ModelError(
                f"Parser takes a Model, not {type(model).__name__}: use "
                "Parser.load(path) or Parser.train(sentences)"
            )
        self.model = model
        self._local = threading.local()
        self._templates = compiled_templates()

    def __reduce__(self) -> tuple[type[Parser], tuple[ParserModel]]:
        return type(self), (self.model,)

    @property
    def _encoder(self) -> Encoder:
        """Each thread has its own: one encoder serves one thread, a parser any number."""
        if not hasattr(self._local, "encoder"):
            self._local.encoder = Encoder(self.model.upos)
        return self._local.encoder

    # ------------------------------------------------------------------ making one

    @classmethod
    def train(
        cls,
        train: Iterable[Sentence],
        dev: Iterable[Sentence] | None = None,
        *,
        projective: bool = True,
        single_root: bool = True,
        gp: bool = True,
        sib: bool = True,
        tags: str = "predicted",
        rng: int = 0,
        recipe: Recipe | None = None,
        report: Report | None = None,
        checkpoint: PathLike | None = None,
        source: str = "",
    ) -> Parser:
        """Learn from a treebank.

        Parameters
        ----------
        train, dev : sentences with heads; the UAS on ``dev`` is reported after each epoch, and
            the probabilities are :meth:`calibrated` on it
        projective : whether crossing arcs are forbidden; trees that have some are then lifted for
            training, and counted
        single_root : sentences with several roots are left out then, and counted
        gp : grandparent factors
        sib : sibling factors (without both it is a first-order parser)
        tags : "predicted" or "gold"
            Train on the tags of the parser's own tagger, or on those in the file.
        rng : seed of the random generator; the same gives the same parser
        recipe : everything else, see :class:`minfer.parsing.learn.Recipe`
        report : called with a :class:`minfer.parsing.learn.TrainingProgress`
        checkpoint : a file in which training is saved after each epoch and from which it continues
        source : what the data are, kept in the model
        """
        settings = Settings(projective, single_root, gp, sib, tags)
        check_whole("rng", rng)
        check_type(recipe, (Recipe, NoneType), "recipe must be a Recipe or None")
        held_out = None
        if dev is not None:
            held_out = [s for s, _ in with_heads(dev, "to judge by (dev)")]

        def dev_uas(model: ParserModel) -> float:
            assert held_out is not None
            parser = cls(model)
            right = [p.heads == s.heads for p, s in zip(parser.parse(held_out), held_out)]
            return float(100 * np.concatenate(right).mean())

        model = train_model(
            list(train), settings, recipe or Recipe(), int(rng),
            dev_uas if held_out else None, report, checkpoint, source,
        )  # fmt: skip
        return cls(model).calibrated(held_out) if held_out else cls(model)

    def calibrated(self, sentences: Sequence[Sentence]) -> Parser:
        """The same parser with its probabilities calibrated on some sentences, by one number t.

        ``ArcProb``, ``Head2Prob`` and :meth:`marginals` become p^t / sum_h p_h^t over the heads h
        of a word, with the t of lowest Brier score. Trees do not change.
        """
        heads = [heads for _, heads in with_heads(sentences, "to calibrate on")]
        if not heads:
            raise ModelError("no sentence to calibrate on")
        gold = np.concatenate(heads)

        def tempered(t: float) -> Parser:
            return Parser(replace(self.model, settings=replace(self.model.settings, temper=t)))

        def brier(parser: Parser) -> float:
            batch = parser.parse_batch(sentences)
            return calibration(batch.probs, batch.heads == gold).brier

        return min(map(tempered, TEMPERS), key=brier)

    @classmethod
    def load(cls, path: PathLike) -> Parser:
        """A parser that was saved."""
        return cls(ParserModel.load(path))

    def save(self, path: PathLike) -> None:
        """Write it to one file, in the safetensors format."""
        self.model.save(path)

    def __repr__(self) -> str:
        s, info = self.model.settings, self.model.info
        kind = "projective" if s.projective else "non-projective"
        order = " + ".join(name for name, on in (("GP", s.gp), ("SIB", s.sib)) if on)
        return (
            f"Parser({kind}, {order or 'first order'}, {s.tags} tags; "
            f"trained on {counted(info.get('sentences', 0), 'sentence')})"
        )

    def summary(self) -> dict[str, str]:
        """What it is, and what it was trained on."""
        info = self.model.info
        lines = {
            "parser": repr(self).removeprefix("Parser(").removesuffix(")"),
            "data": f"{counted(info['sentences'], 'sentence')}, {counted(info['words'], 'word')}",
        }
        if self.model.settings.projective:
            lifted = counted(info["non_projective_sentences"], "sentence")
            lines["lifted"] = f"{counted(info['lifted_arcs'], 'crossing arc')} in {lifted}"
        return lines

    # ------------------------------------------------------------------ using it

    def parse(
        self,
        sentences: Iterable[Input],
        tags: str | None = None,
        *,
        inference: Inference | None = None,
        marginals: bool = False,
    ) -> Iterator[Sentence]:
        """The sentences with heads and relations (and tags, if predicted), one after the other.

        Parameters
        ----------
        sentences : as read from a file, or lists of words; they may be a stream
        tags : "predicted" or "gold", optional
            Which tags to use: those of the parser's own tagger, or those in the file. Default: as
            in training.
        inference : :class:`Inference`; lazily reduced by default
        marginals : add to MISC: ``ArcProb``, ``Head2`` and ``Head2Prob`` (the runner-up head), and
            ``TreeProb`` at the root
        """
        for part in in_batches(map(_sentence, sentences), len, BATCH):
            yield from self.sentences(
                part, self.parse_batch(part, tags, inference=inference), marginals=marginals
            )

    def parse_text(
        self,
        text: str,
        tokenize: Tokenizer,
        tags: str | None = None,
        *,
        inference: Inference | None = None,
        marginals: bool = False,
    ) -> Iterator[Sentence]:
        """Parses of the sentences that a tokenizer finds in a text.

        Parameters
        ----------
        text : any text, of any number of sentences
        tokenize : called with the text: a pipeline of spaCy or Stanza, or a function that returns
            sentences as lists of words, or of places (begin, end) in the text
        tags, inference, marginals : as in :meth:`parse`

        Words have ``TokenRange=begin:end`` in MISC, in characters of the text, and
        ``SpaceAfter=No`` where none follows.
        """
        check_type(text, str, "parse_text takes a text", ModelError)
        found = tokenized(text, tokenize)
        return self.parse(found, tags, inference=inference, marginals=marginals)

    def parse_batch(
        self,
        sentences: Sequence[Sentence] | Encoded,
        tags: str | None = None,
        *,
        inference: Inference | None = None,
        all_marginals: bool = False,
        phase: int = 6,
    ) -> SentenceBatch:
        """Parse some sentences at once, into arrays.

        For timing: ``phase`` as for the kernel, 6 with relations, and a batch's ``data`` instead of
        its sentences.
        """
        from minfer.parsing.kernels.parser import ParseArrays, parse

        tags = self.model.settings.tags if tags is None else tags
        check_choice("tags", tags, TAGS)
        inference = Inference() if inference is None else inference
        check_type(inference, Inference, "inference must be an Inference or None")
        if not isinstance(sentences, Encoded):
            for sentence in sentences:
                self.check(sentence, tags, inference=inference)
        data, classes = self._encoded(sentences, tags)
        n, size = len(data.words), np.diff(data.start) + 1
        (heads, second), (probs, second_probs) = np.zeros((2, n), np.int32), np.zeros((2, n))
        log_z, log_p = np.zeros((2, len(data)))
        found = ParseArrays(
            heads, probs, second, second_probs, log_z, log_p,
            np.zeros((len(data), 4), dtype=np.int64), np.zeros((len(data), 2)),
            np.zeros(int((size**2).sum()) if all_marginals else 0),
        )  # fmt: skip
        model, s = self.model, self.model.settings
        parse(
            inference.packed(s.projective, s.single_root, s.gp, s.sib, self._limit),
            self._templates, self._encoder.tables(), data.tokens, model.arcs, model.pairs, phase,
            float(s.temper), found,
        )  # fmt: skip
        if len(data):
            least = np.minimum.reduceat(probs, data.start[:-1])
            np.minimum(log_p, np.log(np.maximum(least, np.finfo(float).tiny)), out=log_p)
        labels = heads
        if phase >= 6:
            labels = predict_labels(model.labels, model.relations, self._encoder, data, heads)
        return SentenceBatch(data, classes, labels, *found)

    def check(
        self, sentence: Sentence, tags: str | None = None, *, inference: Inference | None = None
    ) -> None:
        """Raise RefusedError if a sentence is too long, ModelError if it lacks tags it needs."""
        n, s = len(sentence), self.model.settings
        if n > MOST_WORDS:
            raise RefusedError(
                f"a sentence of {n:,} words is too long, at most {MOST_WORDS:,} are parsed: "
                "split it"
            )
        pairs = (s.gp + s.sib) * (n + 1) ** 3 / 2
        if inference is not None and inference.least == 0 and pairs > MOST_PAIRS:
            raise RefusedError(
                f"a sentence of {n:,} words has too many pairs of arcs to look at all: "
                "leave out full inference (Inference.full)"
            )
        if (tags or s.tags) == "gold" and {"_"}.issuperset(sentence.upos + sentence.xpos):
            raise ModelError("the sentence has no tags: use predicted ones (tags='predicted')")

    def marginals(
        self,
        sentences: Iterable[Input],
        tags: str | None = None,
        *,
        inference: Inference | None = None,
        calibrated: bool = True,
    ) -> Iterator[ArcMarginals]:
        """Probabilities of all arcs of each sentence; parameters as in :meth:`parse`.

        Those of a parser that was :meth:`calibrated`, as one trained with ``dev`` is, are what
        ``ArcProb`` says; ``calibrated=False`` gives the model's own beliefs. log Z is the model's.
        """
        inference, temper = inference or Inference(), self.model.settings.temper
        for part in in_batches(map(_sentence, sentences), len, BATCH):
            batch = self.parse_batch(part, tags, inference=inference, all_marginals=True)
            at = 0
            for b, (lo, hi) in enumerate(zip(batch.data.start, batch.data.start[1:])):
                size = int(hi - lo) + 1
                probs = batch.marginals[at : at + size**2].reshape(size, size)
                at += size**2
                if calibrated:
                    probs = tempered(probs, temper)
                _, scored, kept, iterations = batch.counts[b].tolist()
                residual, ratio = batch.residuals[b].tolist()
                yield ArcMarginals(
                    probs, float(batch.log_z[b]), batch.heads[lo:hi], scored, kept, iterations,
                    bool(residual <= inference.tol), residual, still_to_move(residual, ratio),
                )  # fmt: skip

    def scores(self, sentence: Input, tags: str | None = None) -> ArcScores:
        """All scores of a sentence: what :func:`minfer.parsing.marginals` takes."""
        from minfer.parsing.kernels import features as k

        sentence, s = _sentence(sentence), self.model.settings
        self.check(sentence, tags, inference=Inference.full())
        data, _ = self._encoded([sentence], tags or s.tags)
        size = len(data.words) + 1
        keys, numbers = k.sentence_keys(
            *self._templates[:3], self._encoder.tables(), data.tokens, 0
        )
        nothing = np.zeros(0, np.float32), np.uint64(0), np.uint64(1 << 24), 0.0
        arcs = np.full((size, size), -np.inf)
        k.first_scores(k.SCORE, self._templates, keys, numbers, self.model.arcs, nothing, arcs)
        pairs = list_pairs(arcs, s.gp, s.sib, s.projective, s.single_root)
        theta = np.empty(len(pairs.nodes))
        k.second_scores(
            k.SCORE, self._templates, keys, pairs[2:], self.model.pairs, nothing, self._limit, theta
        )
        cubes = []
        for use, rows in ((s.gp, slice(0, pairs.n_gp)), (s.sib, slice(pairs.n_gp, None))):
            cubes.append(np.zeros((size,) * 3 if use else (0, 0, 0)))
            if use:
                cubes[-1][tuple(pairs.nodes[rows].T)] = theta[rows]
        return ArcScores(arcs, *cubes)

    def to_graph(self, sentence: Input, tags: str | None = None) -> FactorGraph:
        """The sentence as a factor graph with all its factors, for any solver."""
        scores, s = self.scores(sentence, tags), self.model.settings
        return to_graph(
            scores.arcs, sib=scores.sib if s.sib else None, gp=scores.gp if s.gp else None,
            projective=s.projective, single_root=s.single_root,
        )  # fmt: skip

    # ------------------------------------------------------------------ inside

    @property
    def _limit(self) -> float:
        s = self.model.settings
        return max(abs(s.theta_low), abs(s.theta_high))

    def _encoded(
        self, sentences: Sequence[Sentence] | Encoded, tags: str
    ) -> tuple[Encoded, NDArray[np.int32] | None]:
        data = sentences if isinstance(sentences, Encoded) else self._encoder.encode(sentences)
        self._encoder.check(data)
        if isinstance(sentences, Encoded) or tags == "gold":
            return data, None
        classes = predict_tags(self.model.tagger, self._encoder, data)
        return retagged(data, self._encoder, self.model.classes, classes), classes

    def sentences(
        self, sentences: Sequence[Sentence], batch: SentenceBatch, *, marginals: bool = False
    ) -> Iterator[Sentence]:
        """The sentences of a batch with their parses; MISC as in :meth:`parse`."""
        relations = _names(self.model.relations, batch.labels)
        upos = xpos = None
        if batch.tags is not None:
            upos, xpos = (_names(names, batch.tags) for names in zip(*self.model.classes))
        misc = _misc_items(batch) if marginals else None
        numbers = batch.heads.tolist()
        bounds = batch.data.start.tolist()
        names = [str(k) for k in range(max(numbers, default=0) + 1)]
        for b, sentence in enumerate(sentences):
            lo, hi = bounds[b], bounds[b + 1]
            columns = list(sentence.columns)
            columns[HEAD] = tuple([names[h] for h in numbers[lo:hi]])
            columns[DEPREL] = relations[lo:hi]
            if upos is not None and xpos is not None:
                columns[UPOS], columns[XPOS] = upos[lo:hi], xpos[lo:hi]
            if misc is not None:
                sentence.check_room()
                columns[MISC] = with_misc(columns[MISC], MISC_KEYS, misc[lo:hi])
            yield sentence.replaced(columns, batch.heads[lo:hi])


def _names(names: Sequence[str], numbers: NDArray[np.int32]) -> tuple[str, ...]:
    return tuple([names[k] for k in numbers.tolist()])


def _misc_items(batch: SentenceBatch) -> list[str]:
    """For each word its probabilities as MISC has them."""
    probs = [f"ArcProb={p:.4f}" for p in batch.probs.tolist()]
    others = [
        f"|Head2={h}|Head2Prob={p:.4f}" if h >= 0 else ""
        for h, p in zip(batch.second.tolist(), batch.second_probs.tolist())
    ]
    items = list(map(str.__add__, probs, others))
    roots = np.flatnonzero(batch.heads == 0)
    owners = np.searchsorted(batch.data.start, roots, side="right") - 1
    for word, log_p in zip(roots.tolist(), batch.log_p[owners].tolist()):
        items[word] += f"|TreeProb={np.exp(log_p):.4f}"
    return items


def _sentence(item: Input) -> Sentence:
    if isinstance(item, Sentence):
        return item
    if isinstance(item, str):
        raise ModelError(
            f"{item[:40]!r} is a string: give lists of words, [text.split()] for one sentence"
        )
    words = as_list(item, "a sentence must be a list of words", ModelError)
    if not all(isinstance(word, str) for word in words):
        raise ModelError(f"the words of a sentence must be strings, not {words[:5]!r}")
    return Sentence.from_forms(words)


def in_batches(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Runs of items whose sizes are together ``most``, or just more."""
    part: list[T] = []
    total = 0
    for item in items:
        part.append(item)
        total += size(item)
        if total >= most:
            yield part
            part, total = [], 0
    if part:
        yield part
