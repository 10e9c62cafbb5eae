"""Treebanks, trained models and measurements for section 5.2: what Table 1 and Figure 2 share.

A :class:`Corpus` holds sentences with all scores a parser gives them. Inference is run on these
scores, so what is timed is the seed, the listing of pairs, selection and belief propagation, and
nothing else; end to end is everything from hashed tokens to the tree. Times are CPU time of one
thread, the least of several passes over the whole corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.errors import FormatError
from minfer.parsing.conllu import Sentence, read_conllu
from minfer.parsing.evaluation import Scores as Attachments
from minfer.parsing.evaluation import attachments
from minfer.parsing.exact import exact_grandparent
from minfer.parsing.graphs import list_pairs
from minfer.parsing.inference import Inference
from minfer.parsing.learn import Recipe
from minfer.parsing.parser import Parser
from minfer.reduction.objectives import MinDivergence, MinJoint, MinSize
from minfer_experiments.measure import in_turn, least, thread_seconds, told

if TYPE_CHECKING:
    from minfer.parsing.features import Encoded

PASSES = 3
SAME_UAS = 0.1  # points below full BP that count as the same accuracy
LEVEL = 0.05  # times that differ by less are the same
RNG = 1
CHUNK = 64  # sentences timed at a time, end to end
RECIPE = Recipe(tag_epochs=0)  # gold tags

GAMMAS = (1e-5, 1e-4, 3e-4, 1e-3, 2e-3, 3e-3, 5e-3, 1e-2, 3e-2)
EPSILONS = (1e-3, 1e-2, 3e-2, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0)
SIZES = (25, 50, 100, 200, 400, 800, 1600)
LEAST = (1e-4, 3e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2)

WHERE = (
    "give --data DIR, a folder with treebanks of Universal Dependencies "
    "(https://universaldependencies.org): files such as en_ewt-ud-train.conllu, -dev and -test, "
    "gzipped or not, anywhere below it; the paper's languages are UD_English-EWT, "
    "UD_Italian-ParTUT and UD_Dutch-LassySmall"
)


# ---------------------------------------------------------------------- treebanks


@dataclass(frozen=True)
class Treebank:
    """A treebank and the model of the paper for its language.

    ``small``: there is no training file; four of five sentences of dev are learnt from, on the
    others parameters are chosen.
    """

    name: str
    code: str
    projective: bool = True
    gp: bool = True
    sib: bool = True
    small: bool = False

    @property
    def model(self) -> str:
        pairs = "+".join(n for n, on in (("GP", self.gp), ("SIB", self.sib)) if on)
        return f"{'projective' if self.projective else 'non-projective'}, {pairs}"


TREEBANKS = (
    Treebank("English EWT", "en_ewt"),
    Treebank("Italian ParTUT", "it_partut", sib=False),
    Treebank("Dutch LassySmall", "nl_lassysmall", projective=False, sib=False),
    Treebank("Italian ISDT, small", "it_isdt", sib=False, small=True),
    Treebank("Dutch Alpino, small", "nl_alpino", projective=False, sib=False, small=True),
)


class TreebankSplit(NamedTuple):
    """Sentences to learn from, to choose parameters on, and to report on."""

    train: list[Sentence]
    dev: list[Sentence]
    test: list[Sentence]


def treebanks(folder: str | None) -> list[Treebank]:
    """Those of :data:`TREEBANKS` in a folder; any other that is complete is run as English is."""
    if folder is None:
        raise FormatError(f"no treebanks: {WHERE}")
    if not Path(folder).is_dir():
        raise FormatError(f"{folder}: no such folder; {WHERE}")
    found = [t for t in TREEBANKS if _complete(folder, t.code, t.small)]
    known = {t.code for t in TREEBANKS}
    codes = {p.name.split("-ud-")[0] for p in Path(folder).rglob("*-ud-train.conllu*")}
    found += [Treebank(c, c) for c in sorted(codes - known) if _complete(folder, c, False)]
    if not found:
        raise FormatError(f"{folder}: no complete treebank here; {WHERE}")
    return found


def _complete(folder: str, code: str, small: bool) -> bool:
    parts = ("dev", "test") if small else ("train", "dev", "test")
    return all(_file(folder, code, part) is not None for part in parts)


def _file(folder: str, code: str, part: str) -> Path | None:
    return min(Path(folder).rglob(f"{code}-ud-{part}.conllu*"), default=None)


def load(folder: str, treebank: Treebank, quick: bool = False) -> TreebankSplit:
    """Read a treebank; a part of it if quick."""

    def read(part: str) -> list[Sentence]:
        path = _file(folder, treebank.code, part)
        if path is None:
            raise FormatError(f"{folder}: no file {treebank.code}-ud-{part}.conllu; {WHERE}")
        return list(read_conllu(path, multi_root=True))

    dev, test = read("dev"), read("test")
    if treebank.small:
        train = [s for k, s in enumerate(dev) if k % 5]
        dev = dev[::5]
    else:
        train = read("train")
    return (
        TreebankSplit(train[:1500], dev[:150], test[:150])
        if quick
        else TreebankSplit(train, dev, test)
    )


def trained(
    treebank: Treebank, split: TreebankSplit, models: Path, first_order: bool = False,
    recipe: Recipe = RECIPE, name: str = "",
) -> Parser:  # fmt: skip
    """The parser of a treebank, from the folder of models if it is there.

    A first-order parser is trained for as many epochs in all.
    """
    kind = "first" if first_order else "second"
    path = models / f"{name or treebank.code}-{kind}-{len(split.train)}.model"
    if path.exists():
        return Parser.load(path)
    if first_order:
        recipe = replace(recipe, first_epochs=recipe.first_epochs + recipe.epochs)
    parser = Parser.train(
        split.train, projective=treebank.projective, gp=treebank.gp and not first_order,
        sib=treebank.sib and not first_order, tags="gold", rng=RNG, recipe=recipe,
        source=treebank.name,
    )  # fmt: skip
    parser.save(path)
    return parser


@dataclass(eq=False)
class Experiment:
    """One treebank: its sentences, where its models lie, how often times are taken."""

    treebank: Treebank
    split: TreebankSplit
    models: Path
    recipe: Recipe = RECIPE
    passes: int = PASSES

    def parser(self, first_order: bool = False, name: str = "") -> Parser:
        """The trained parser, second order or first."""
        return trained(self.treebank, self.split, self.models, first_order, self.recipe, name)


# ---------------------------------------------------------------------- measuring


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a method answers for each of the S sentences of a corpus.

    Attributes
    ----------
    probs : list of (N, N) arc probabilities
    kept, scored, iterations : (S,) int64, pairs in the graph, pairs looked at, iterations of BP
    converged : (S,) bool
    attachments : right heads
    """

    probs: list[NDArray[np.float64]]
    kept: NDArray[np.int64]
    scored: NDArray[np.int64]
    iterations: NDArray[np.int64]
    converged: NDArray[np.bool_]
    attachments: Attachments

    def error(self, reference: Outcome) -> float:
        """Mean over sentences of the largest difference of a probability, times 100."""
        worst = [np.abs(p - q).max() for p, q in zip(self.probs, reference.probs)]
        return 100 * float(np.mean(worst))


class Corpus:
    """Sentences, shortest first, with all scores a parser gives them.

    Attributes
    ----------
    sentences : list
    words : (S,) int64
    possible, conceivable : (S,) int64, pairs of arcs that a tree may contain, and all pairs of
        the model's kinds, those that no tree contains included
    """

    def __init__(self, parser: Parser, sentences: Iterable[Sentence]) -> None:
        self.parser = parser
        self.sentences = sorted(sentences, key=len)
        self.scores = [parser.scores(s, "gold") for s in self.sentences]
        self.words = np.array([len(s) for s in self.sentences], dtype=np.int64)
        s = parser.model.settings
        self._kind = s.projective, s.single_root, s.gp, s.sib
        counted: dict[int, int] = {}
        for n, x in zip(self.words.tolist(), self.scores):
            if n not in counted:
                pairs = list_pairs(x.arcs, s.gp, s.sib, s.projective, s.single_root)
                counted[n] = len(pairs.nodes)
        self.possible = np.array([counted[n] for n in self.words.tolist()], dtype=np.int64)
        n = self.words
        chains = n * n * (n - 1)
        siblings = n * (n - 1) // 2 + n * (n - 1) * (n - 2) // 2
        self.conceivable = s.gp * chains + s.sib * siblings

    @property
    def variables(self) -> NDArray[np.int64]:
        """Candidate arcs (S,)."""
        return self.words**2

    @property
    def theta_bounds(self) -> tuple[float, float]:
        """Bounds of every pair's weight: the model clips them."""
        s = self.parser.model.settings
        return s.theta_low, s.theta_high

    @property
    def has_exact(self) -> bool:
        """Whether exact marginals can be had: projective trees, grandparents alone."""
        projective, _, gp, sib = self._kind
        return projective and gp and not sib

    def run(self, inference: Inference) -> Outcome:
        """The answers of belief propagation with some settings."""
        from minfer.parsing.kernels.parser import infer_arrays

        packed = inference.packed(*self._kind)
        rows, probs = [], []
        for x in self.scores:
            mu = np.empty_like(x.arcs)
            _, scored, iterations, residual, _, kept, _, _ = infer_arrays(packed, *x, mu)
            probs.append(mu)
            rows.append((len(kept), scored, iterations, residual <= inference.tol))
        return self._outcome(probs, rows)

    def run_exact(self) -> Outcome:
        """Exact marginals by dynamic programming."""
        probs = [exact_grandparent(x.arcs, x.gp, single_root=self._kind[1])[0] for x in self.scores]
        return self._outcome(probs, [(n, n, 0, True) for n in self.possible])

    def _outcome(self, probs: list[NDArray[np.float64]], rows: Sequence[tuple]) -> Outcome:
        from minfer.parsing.kernels.decode import decode

        right = []
        for mu, sentence in zip(probs, self.sentences):
            heads = np.empty(len(mu), dtype=np.int64)
            decode(self._kind[0], self._kind[1], mu, heads)
            right.append(attachments(sentence, heads[1:]))
        kept, scored, iterations, good = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        counts = np.array(right, dtype=np.int64).reshape(-1, 6)
        return Outcome(probs, kept, scored, iterations, good > 0, Attachments(counts))

    def inference_seconds(self, inference: Inference, passes: int = PASSES) -> NDArray[np.float64]:
        """CPU seconds (S,) of inference alone, selection included."""
        from minfer.parsing.kernels.parser import infer_arrays

        packed = inference.packed(*self._kind)
        room = [np.empty_like(x.arcs) for x in self.scores]

        def work(k: int) -> None:
            infer_arrays(packed, *self.scores[k], room[k])

        return least_seconds(work, len(self.scores), passes)

    def exact_seconds(self, passes: int = PASSES) -> NDArray[np.float64]:
        """CPU seconds (S,) of the dynamic program."""

        def work(k: int) -> None:
            exact_grandparent(self.scores[k].arcs, self.scores[k].gp, single_root=self._kind[1])

        return least_seconds(work, len(self.scores), passes)

    def end_to_end_seconds(
        self, inference: Inference, passes: int = PASSES, phase: int = 6
    ) -> NDArray[np.float64]:
        """CPU seconds (S,) from hashed tokens to labelled trees, sentences of one length at a time.

        ``phase`` below 6 stops early, as in :meth:`Parser.parse_batch`.
        """
        parser, chunks = self.parser, self._chunks
        data = parser.parse_batch(self.sentences, "gold", inference=inference, phase=0).data
        parts = [_part(data, lo, hi) for lo, hi in chunks]

        def work(k: int) -> None:
            parser.parse_batch(parts[k], "gold", inference=inference, phase=phase)

        seconds = least_seconds(work, len(parts), passes)
        sizes = np.array([hi - lo for lo, hi in chunks], dtype=np.int64)
        return np.repeat(seconds / sizes, sizes)

    @cached_property
    def _chunks(self) -> list[tuple[int, int]]:
        """Runs of sentences of the same length, at most :data:`CHUNK` of them."""
        ends = np.flatnonzero(np.diff(self.words)) + 1
        bounds = [0, *ends.tolist(), len(self.words)]
        return [
            (at, min(at + CHUNK, hi)) for lo, hi in pairwise(bounds) for at in range(lo, hi, CHUNK)
        ]


def _part(data: Encoded, lo: int, hi: int) -> Encoded:
    """Sentences ``lo`` to ``hi`` of some."""
    first, last = data.start[lo], data.start[hi]
    return replace(
        data, start=data.start[lo : hi + 1] - first, words=data.words[first:last],
        upos=data.upos[first:last], xpos=data.xpos[first:last],
    )  # fmt: skip


def least_seconds(work: Callable[[int], object], n: int, passes: int) -> NDArray[np.float64]:
    """CPU seconds (n,) of ``work(0)`` to ``work(n - 1)``: the least of some passes over all."""
    for k in range(min(n, 2)):
        work(k)
    jobs = {k: partial(work, k) for k in range(n)}
    found = in_turn(jobs, passes, warm_up=False, timer=thread_seconds)
    return np.array(list(least(found).values()))


# ---------------------------------------------------------------------- methods


@dataclass(frozen=True)
class Method:
    """A named way to infer; ``base`` is full belief propagation on the same tree."""

    name: str
    inference: Inference
    parameter: float = np.nan
    base: str = "full BP"


FULL = Method("full BP", Inference.full())


def times(
    corpus: Corpus, methods: Sequence[Method], passes: int = PASSES, end_to_end: bool = False
) -> list[NDArray[np.float64]]:
    """The least CPU seconds (S,) of each method in some passes, in which they take turns."""
    seconds = corpus.end_to_end_seconds if end_to_end else corpus.inference_seconds
    jobs = {k: partial(seconds, method.inference, 1) for k, method in enumerate(methods)}
    found = in_turn(jobs, passes, warm_up=False, timer=told)
    return [np.min(each, axis=0) for each in found.values()]


def same_accuracy(dev: Corpus) -> float:
    """The UAS on dev that counts as that of full belief propagation."""
    return dev.run(FULL.inference).attachments.uas - SAME_UAS


@dataclass(frozen=True)
class Family:
    """Methods that differ in one parameter."""

    name: str
    make: Callable[[float], Inference]
    values: Sequence[float]
    base: str = "full BP"

    def methods(self) -> list[Method]:
        return [Method(self.name, self.make(v), float(v), self.base) for v in self.values]


def objectives() -> list[Family]:
    """The paper's three, with a scan of all pairs."""
    scan = Inference.scan
    return [
        Family("MinDivergence", lambda m: scan(MinDivergence(int(m))), SIZES),
        Family("MinSize", lambda e: scan(MinSize(e)), EPSILONS),
        Family("MinJoint", lambda g: scan(MinJoint(g)), GAMMAS),
    ]


def choose(family: Family, dev: Corpus, least_uas: float) -> Method:
    """The fastest method of a family whose UAS on dev is high enough, inference alone.

    Times within :data:`LEVEL` of the least are level; of those, the one that keeps fewest pairs. If
    no UAS is high enough: the most accurate.
    """
    tried = []
    for method in family.methods():
        outcome = dev.run(method.inference)
        tried.append((int(outcome.kept.sum()), outcome.attachments.uas, method))
    good = [(kept, method) for kept, uas, method in tried if uas >= least_uas]
    if not good:
        return max(tried, key=lambda t: t[1])[2]
    seconds = [each.sum() for each in times(dev, [method for _, method in good])]
    level = [g for g, s in zip(good, seconds) if s <= (1 + LEVEL) * min(seconds)]
    return min(level, key=lambda g: g[0])[1]
