"""Maximum-likelihood training of the parser, its tagger and its labeller.

For a sentence with gold tree y* and features f,

    d log p(y*) / d w = f(y*) - E[f]

The expectation is exact for arcs alone (tree marginals), and from beliefs of belief propagation
with pairs, on a graph reduced lazily: only pairs with mu_a mu_b >= ``least`` under the current
weights are scored, take part and learn. Steps are AdaGrad's (Duchi, Hazan & Singer 2011), after
each sentence; a random half of the features is dropped for each, or the arcs would become certain
before the pairs have learnt anything. One epoch of arcs alone, then epochs of both.

Everything follows from ``rng``, on one thread: epochs have seeds of their own, so a run that goes
on from a checkpoint ends where it would have ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_number, check_type, check_whole
from minfer.basics.limits import clock
from minfer.errors import FormatError, MinferError, ModelError, RefusedError
from minfer.io.opening import opened
from minfer.io.text import PathLike, shown
from minfer.parsing.conllu import Sentence
from minfer.parsing.features import (
    Encoded,
    Encoder,
    class_keys,
    compiled_templates,
    label_templates,
    tag_templates,
)
from minfer.parsing.inference import Inference
from minfer.parsing.model import (
    ParserModel,
    Settings,
    check_table,
    empty_table,
    features_digest,
    pack,
    read_tensors,
    unpack,
    write_tensors,
)
from minfer.parsing.projective import count_trees, lift

_CHUNK = 200  # sentences between two looks at the clock and at Ctrl-C
_START = 0.01  # of AdaGrad's sums of squares
_CHECKPOINT = "minfer_parser_checkpoint"
_MOST_HEADER = 1 << 24  # bytes
_STATE = ("arcs", "pairs", "arcs squares", "pairs squares")
_AFRESH = "remove it to start over"
ROOT = "root"  # the relation that UD keeps for the root's child


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a parser is trained.

    Parameters
    ----------
    first_epochs : passes over the data for arcs alone
    epochs : passes for arcs and pairs, afterwards
    rate, pair_rate, class_rate : AdaGrad's step for arcs, pairs, and tags and relations
    dropout : share of the features of arcs and pairs left out per sentence
    inference : how beliefs are computed; the reduced graph of the paper, in training too
    bits : 2^B lines of 16 weights for arcs, and for pairs
    tag_bits : 2^B lines of weights for tags, and for relations; fewer if there are many of them
    tag_epochs, label_epochs : passes for tags, and for relations
    folds : tags to learn from are predicted by taggers that have not seen the sentence
    """

    first_epochs: int = 1
    epochs: int = 3
    rate: float = 0.04
    pair_rate: float = 0.03
    class_rate: float = 0.05
    dropout: float = 0.5
    inference: Inference = field(
        default_factory=lambda: Inference(least=1e-3, arc_least=0.0, max_iters=5, tol=1e-2)
    )
    bits: int = 20
    tag_epochs: int = 4
    label_epochs: int = 2
    tag_bits: int = 18
    folds: int = 5

    def __post_init__(self) -> None:
        for name in ("first_epochs", "epochs", "tag_epochs", "label_epochs"):
            check_whole(name, getattr(self, name))
        for name in ("rate", "pair_rate", "class_rate"):
            check_number(name, getattr(self, name), 0.0, 10.0, what="from 0 to 10")
        check_number("dropout", self.dropout, 0.0, below=1.0, what="in [0, 1)")
        check_type(self.inference, Inference, "inference must be an Inference")
        for name in ("bits", "tag_bits"):
            check_whole(name, getattr(self, name), 4, 26)
        check_whole("folds", self.folds, 2)

    def table(self, n_classes: int) -> NDArray[np.float32]:
        """An empty table of a classifier, at most 128 MB."""
        bits = min(self.tag_bits, max(10, (1 << 25).bit_length() - n_classes.bit_length()))
        return np.zeros((1 << bits, n_classes), dtype=np.float32)

    @property
    def keep(self) -> np.uint64:
        return np.uint64(round((1 - self.dropout) * (1 << 24)))


@dataclass(frozen=True)
class TrainingProgress:
    """What a callback is told."""

    stage: str  # "tags", "arcs", "pairs" or "labels"
    epoch: int  # of all epochs of the parser, or of the stage
    epochs: int
    done: float  # share of this epoch's sentences
    loss: float  # minus log-likelihood per word so far in this epoch
    seconds: float  # since training began, without those of compiling kernels
    dev_uas: float | None = None  # of the last epoch of the parser that has ended

    @property
    def ends(self) -> bool:
        """Whether an epoch of the parser, or another stage, is over."""
        return self.done >= 1 and (self.stage in ("arcs", "pairs") or self.epoch == self.epochs)

    def __str__(self) -> str:
        uas = "" if self.dev_uas is None else f", dev UAS {self.dev_uas:.2f}"
        return f"{STAGES[self.stage]} {self.epoch}/{self.epochs}: loss {self.loss:.4f}{uas}"


#: What each stage learns.
STAGES = {"tags": "tagger", "arcs": "arcs", "pairs": "arcs and pairs", "labels": "relations"}
Report = Callable[[TrainingProgress], object]


def train_model(
    sentences: Sequence[Sentence],
    settings: Settings,
    recipe: Recipe,
    rng: int,
    dev_uas: Callable[[ParserModel], float] | None = None,
    report: Report | None = None,
    checkpoint: PathLike | None = None,
    source: str = "",
) -> ParserModel:
    """A model from a treebank; see :meth:`minfer.parsing.parser.Parser.train`."""
    begin = clock()

    def tell(stage: str, epoch: int, epochs: int, done: float, loss: float,
             uas: float | None = None) -> None:  # fmt: skip
        if report is not None:
            report(TrainingProgress(stage, epoch, epochs, done, loss, clock() - begin, uas))

    used, heads, skipped = _trees(sentences, settings)
    info = _info(used, skipped, settings, recipe, rng, source)
    upos = tuple(sorted({tag for s in used for tag in s.upos}))
    classes = tuple(sorted({pair for s in used for pair in zip(s.upos, s.xpos)}))
    relations = tuple(sorted({name for s in used for name in s.deprels}))
    encoder = Encoder(upos)
    data = encoder.encode(used)
    encoder.check(data)
    kept = _Checkpoint(checkpoint, _identity(used, heads, settings, recipe, rng))
    kept.resume(
        _n_epochs(settings, recipe), recipe.bits, len(data.words), len(classes), len(relations)
    )
    if not kept.classifiers:
        kept.classifiers = _learn_classifiers(
            used, classes, relations, encoder, data, settings.tags == "predicted", recipe, rng, tell
        )
    model = ParserModel(
        settings, upos, classes, relations,
        empty_table(16 << recipe.bits), empty_table(16 << recipe.bits),
        **unpack(kept.classifiers, ("tagger", "labels")), info=info,
    )  # fmt: skip
    data = retagged(data, encoder, classes, kept.classifiers["tags"])
    return _learn_trees(model, encoder, data, heads, recipe, rng, dev_uas, tell, kept)


def with_heads(
    sentences: Iterable[Sentence], why: str
) -> Iterator[tuple[Sentence, NDArray[np.int32]]]:
    """The sentences, which must have heads, and these."""
    for number, s in enumerate(sentences, 1):
        if not isinstance(s, Sentence):
            raise ModelError(
                f"sentence {number} {why} is of type {type(s).__name__}: it must be a Sentence "
                "with heads, from read_conllu or Sentence.from_forms"
            )
        if s.heads is None:
            raise ModelError(f"the sentence of line {s.line} has no heads {why}")
        n = len(s)
        if not n or s.heads.shape != (n,) or s.heads.min() < 0 or s.heads.max() > n:
            raise ModelError(
                f"the sentence of line {s.line} {why} has {n} words, and heads that are not theirs"
            )
        yield s, s.heads


def _trees(
    sentences: Sequence[Sentence], settings: Settings
) -> tuple[list[Sentence], NDArray[np.int32], int]:
    """The sentences that can be learnt from and their heads, lifted if trees are projective."""
    used, trees, skipped = [], [], 0
    for s, heads in with_heads(sentences, "to learn from"):
        if settings.single_root and (heads == 0).sum() > 1:
            skipped += 1
            continue
        used.append(s)
        trees.append(lift(heads) if settings.projective else heads)
    if not used:
        raise ModelError(
            "no sentence to learn from" + (": all have several roots" if skipped else "")
        )
    return used, np.concatenate(trees).astype(np.int32), skipped


def _info(
    used: Sequence[Sentence], skipped: int, settings: Settings, recipe: Recipe, rng: int,
    source: str,
) -> dict[str, Any]:  # fmt: skip
    from minfer import __version__

    counts = count_trees(s.heads for s in used if s.heads is not None)
    return {
        "minfer": __version__,
        "source": source,
        "sentences": counts.sentences,
        "words": counts.words,
        "non_projective_sentences": counts.non_projective,
        "lifted_arcs": counts.lifted if settings.projective else 0,
        "skipped_several_roots": skipped,
        "recipe": asdict(recipe),
        "rng": rng,
    }


def _numbers(names: Sequence[Any], values: Sequence[Any]) -> NDArray[np.int32]:
    number = {name: k for k, name in enumerate(names)}
    return np.array([number[value] for value in values], dtype=np.int32)


# ---------------------------------------------------------------------- classifiers


def retagged(
    data: Encoded, encoder: Encoder, classes: Sequence[tuple[str, str]], tags: NDArray[np.int32]
) -> Encoded:
    """The same sentences with tags (tokens,) by class."""
    upos, xpos = encoder.tag_numbers(classes)
    return replace(data, upos=upos[tags], xpos=xpos[tags])


def predict_tags(
    tagger: NDArray[np.float32], encoder: Encoder, data: Encoded,
    which: NDArray[np.int64] | None = None, out: NDArray[np.int32] | None = None,
) -> NDArray[np.int32]:  # fmt: skip
    """Classes (tokens,) of all sentences, or of those numbered in ``which``."""
    from minfer.parsing.kernels.classify import tag

    out = np.zeros(len(data.words), dtype=np.int32) if out is None else out
    order = np.arange(len(data)) if which is None else which
    tag(
        tag_templates(), encoder.tables(), data.tokens, tagger, tagger, class_keys(tagger.shape[1]),
        order, out, 0.0, out,
    )  # fmt: skip
    return out


def predict_labels(
    labels: NDArray[np.float32], relations: Sequence[str], encoder: Encoder, data: Encoded,
    heads: NDArray[np.int32],
) -> NDArray[np.int32]:  # fmt: skip
    """Relations (tokens,) by number; that of words whose head is the root is ``root``, as in UD."""
    from minfer.parsing.kernels.classify import label

    root = relations.index(ROOT) if ROOT in relations else -1
    out = np.zeros(len(data.words), dtype=np.int32)
    label(
        label_templates(), encoder.tables(), data.tokens, labels, labels, heads,
        np.arange(len(data)), out, 0.0, root, out,
    )  # fmt: skip
    return out


def _learn_classifiers(
    used: Sequence[Sentence], classes: Sequence[tuple[str, str]], relations: Sequence[str],
    encoder: Encoder, data: Encoded, predicted: bool, recipe: Recipe, rng: int,
    tell: Callable[..., None],
) -> dict[str, NDArray]:  # fmt: skip
    """Tagger and labeller, packed, and the ``tags`` (words,) that the rest is to learn from; those
    that are ``predicted`` are each by a tagger that did not see the sentence."""
    from minfer.parsing.kernels.classify import label, tag

    gold = _numbers(classes, [pair for s in used for pair in zip(s.upos, s.xpos)])
    relation = _numbers(relations, [name for s in used for name in s.deprels])
    heads = np.concatenate([s.heads for s in used]).astype(np.int32)
    everything, scratch = np.arange(len(used)), np.zeros_like(gold)
    tables, tokens, rate = encoder.tables(), data.tokens, recipe.class_rate
    keys = class_keys(len(classes))

    def learnt(
        stage: str, n_classes: int, epochs: int, which: NDArray[np.int64], seed: list[int],
        step: Callable[..., float],
    ) -> NDArray[np.float32]:  # fmt: skip
        """A table after some passes over some sentences."""
        weights = recipe.table(n_classes)
        squares = np.full_like(weights, _START)
        words = max(np.diff(data.start)[which].sum(), 1)
        for epoch in range(epochs):
            chunks = _chunks(which, [*seed, epoch], 10 * _CHUNK)
            loss = sum(step(weights, squares, order) for _, order, _ in chunks)
            tell(stage, epoch + 1, epochs, 1.0, loss / words)
        return weights

    def tag_step(weights: NDArray, squares: NDArray, order: NDArray[np.int64]) -> float:
        return tag(
            tag_templates(), tables, tokens, weights, squares, keys, order, gold, rate, scratch
        )

    def label_step(weights: NDArray, squares: NDArray, order: NDArray[np.int64]) -> float:
        return label(
            label_templates(), tables, tokens, weights, squares, heads, order, relation, rate, -1,
            scratch,
        )  # fmt: skip

    epochs = recipe.tag_epochs
    tagger = learnt("tags", len(classes), epochs, everything, [rng, 1], tag_step)
    tags = gold
    if predicted:
        tags, fold = np.zeros_like(gold), everything % min(recipe.folds, len(used))
        for k in range(fold.max() + 1):
            seen = np.flatnonzero(fold != k)
            quick = learnt("tags", len(classes), min(epochs, 2), seen, [rng, 2, k], tag_step)
            predict_tags(quick, encoder, data, np.flatnonzero(fold == k), tags)
    data = retagged(data, encoder, classes, tags)
    tables, tokens = encoder.tables(), data.tokens
    labels = learnt("labels", len(relations), recipe.label_epochs, everything, [rng, 3], label_step)
    return {**pack({"tagger": tagger, "labels": labels}), "tags": tags}


def _chunks(which: NDArray[np.int64], seed: list[int], size: int = _CHUNK):  # type: ignore[no-untyped-def]
    """Sentences in random order, some at a time: share done, numbers, seeds of what is dropped."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(which)
    seeds = generator.integers(0, 1 << 63, len(order), dtype=np.uint64)
    for k in range(0, len(order), size):
        yield min(1.0, (k + size) / len(order)), order[k : k + size], seeds[k : k + size]


# ---------------------------------------------------------------------- trees


def _n_epochs(settings: Settings, recipe: Recipe) -> int:
    second = settings.gp or settings.sib
    return recipe.first_epochs + (recipe.epochs if second else 0)


def _learn_trees(
    model: ParserModel, encoder: Encoder, data: Encoded, gold: NDArray[np.int32], recipe: Recipe,
    rng: int, dev_uas: Callable[[ParserModel], float] | None, tell: Callable[..., None],
    kept: _Checkpoint,
) -> ParserModel:  # fmt: skip
    from minfer.parsing.kernels.parser import LearntTables, learn

    s = model.settings
    epochs = _n_epochs(s, recipe)
    state = {"arcs": model.arcs, "pairs": model.pairs}
    state |= {f"{name} squares": np.full_like(table, _START) for name, table in state.items()}
    for name in kept.tables:
        state[name][:] = kept.tables[name]
    kept.tables.clear()
    learnt = LearntTables(*(state[name] for name in _STATE))
    theta, uas = kept.theta, kept.dev_uas
    limit = max(abs(s.theta_low), abs(s.theta_high))
    everything = np.arange(len(data))
    for epoch in range(kept.done, epochs):
        pairs = epoch >= recipe.first_epochs
        stage = "pairs" if pairs else "arcs"
        packed = recipe.inference.packed(
            s.projective, s.single_root, s.gp and pairs, s.sib and pairs, limit
        )
        totals = np.zeros(6)
        for share, order, seeds in _chunks(everything, [rng, 4, epoch]):
            learn(
                packed, compiled_templates(), encoder.tables(), data.tokens, learnt, gold, order,
                seeds, (recipe.keep, float(recipe.rate), float(recipe.pair_rate)), totals,
            )  # fmt: skip
            if share < 1:
                so_far = float(totals[0] / totals[1])
                tell(stage, epoch + 1, epochs, share, so_far, uas[-1] if uas else None)
        theta = totals[4:].tolist()
        if dev_uas is not None:
            uas.append(dev_uas(model))
        loss = float(totals[0] / totals[1])
        tell(stage, epoch + 1, epochs, 1.0, loss, uas[-1] if uas else None)
        kept.save(state, epoch + 1, theta, uas)
    del state, learnt  # rounding needs the memory
    info = {**model.info, "dev_uas": uas, "theta_seen": theta}
    return replace(model, info=info).rounded()


# ---------------------------------------------------------------------- checkpoints


def is_checkpoint(path: Path) -> bool:
    """Whether a file begins as checkpoints of training do, whole or not."""
    wrong = OSError, ValueError, RecursionError, MinferError
    with suppress(*wrong), opened(path, pipes=False) as file:
        size = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(size)) if size <= _MOST_HEADER else None
        about = head.get("__metadata__") if isinstance(head, dict) else None
        return isinstance(about, dict) and _CHECKPOINT in about
    return False


class _Checkpoint:
    """How far training has come, in a file if it has a path; nowhere at the beginning."""

    def __init__(self, path: PathLike | None, identity: dict[str, Any]) -> None:
        self.path, self.identity = path, identity
        self.done = 0  # epochs of the parser
        self.theta, self.dev_uas = [0.0, 0.0], list[float]()  # bounds seen last, UAS of each epoch
        # tagger and labeller as a file holds them, and the ``tags`` (words,) to learn from
        self.classifiers: dict[str, NDArray] = {}
        self.tables: dict[str, NDArray] = {}  # weights of arcs and pairs and sums of squares

    def resume(
        self, epochs: int, bits: int, n_words: int, n_classes: int, n_relations: int
    ) -> None:
        """Go on from the file, if there is one; FormatError if it is not what such a training
        leaves: kernels rely on it as on a model, see :func:`minfer.parsing.model.validate`."""
        path = self.path
        if path is None or not Path(path).exists():
            return
        arrays, header = read_tensors(path, _CHECKPOINT, "checkpoint", _AFRESH)
        if header.get("identity") != json.loads(json.dumps(self.identity)):
            raise FormatError(
                f"{shown(path)}: a checkpoint of another training (data, settings or rng differ): "
                "continue that one, or remove it to start over"
            )
        self.tables = {name: arrays.pop(name) for name in _STATE if name in arrays}
        self.classifiers = arrays
        try:
            self._set_progress(header, epochs)
            for name, n in (("tagger", n_classes), ("labels", n_relations)):
                check_table(name, unpack(arrays, [name])[name], n)
            tags = arrays.get("tags")
            if tags is None or tags.dtype != np.int32 or tags.shape != (n_words,):
                raise FormatError(f"tags should be int32 of shape ({n_words},)")
            if tags.min() < 0 or tags.max() >= n_classes:
                raise FormatError(f"tags should be from 0 to {n_classes - 1}")
            for name in _STATE:
                table = self.tables.get(name)
                if table is None or table.shape != (16 << bits,):
                    raise FormatError(f"{name} should have shape ({16 << bits},)")
                if name.endswith("squares"):
                    low = np.float32(_START)
                    if table.dtype != np.float32 or not low <= table.min() <= table.max() < np.inf:
                        raise FormatError(f"{name} should be float32, finite, at least {_START}")
                else:
                    check_table(name, table)
        except MinferError as error:
            raise FormatError(f"{shown(path)}: {error}: {_AFRESH}") from None

    def _set_progress(self, header: dict[str, Any], epochs: int) -> None:
        told: list[Any] = [header.get(name) for name in ("done", "theta", "dev_uas")]
        done, theta, uas = told
        if type(done) is not int or not 1 <= done <= epochs:
            raise FormatError(f"{done!r} epochs are done of {epochs}")
        for name, values in (("theta", theta), ("dev_uas", uas)):
            if not isinstance(values, list) or not all(
                isinstance(x, float) and np.isfinite(x) for x in values
            ):
                raise FormatError(f"{name} should be a list of finite numbers")
        if len(theta) != 2 or len(uas) > done:
            raise FormatError("theta or dev_uas is too long or too short")
        self.done, self.theta, self.dev_uas = done, theta, uas

    def save(
        self, tables: dict[str, NDArray], done: int, theta: list[float], uas: list[float]
    ) -> None:
        if self.path is None:
            return
        if Path(self.path).exists() and not is_checkpoint(Path(self.path)):
            raise RefusedError(f"{shown(self.path)} was replaced by something else: move it away")
        header = {
            "identity": self.identity, "done": done, "theta": theta, "dev_uas": uas,
            "tables": list(tables),
        }  # fmt: skip
        write_tensors(self.path, _CHECKPOINT, {**tables, **self.classifiers}, header)


def _identity(
    used: Sequence[Sentence], heads: NDArray[np.int32], settings: Settings, recipe: Recipe, rng: int
) -> dict[str, Any]:
    """What a checkpoint must agree with."""
    digest = blake2b(heads.tobytes(), digest_size=8)
    for s in used:
        digest.update("\t".join((*s.forms, *s.upos, *s.xpos, *s.deprels)).encode())
    return {
        "checkpoint": 2, "rng": rng, "recipe": asdict(recipe), "settings": asdict(settings),
        "features": features_digest(), "data": digest.hexdigest(),
    }  # fmt: skip
