"""An example worth copying: a small neural parser, trained through marginals of trees.

    python -m minfer_experiments.neural_parser TREEBANK                  # a table
    python -m minfer_experiments.neural_parser TREEBANK -o picture.png   # and a picture

TREEBANK is a folder with train, dev and test files in CoNLL-U. Words, their endings and tags are
embedded, a BiLSTM reads them, and a biaffine form scores arcs: the loss is log Z over all
projective trees less the score of the right one, its gradient the marginals of
:func:`minfer.torch.tree_log_partition`. Second order adds a score for each grandparent and each
sibling that the first order finds probable enough; then log Z is belief propagation's
(:class:`PairLogPartition`). Both are compared with the linear parser of :mod:`minfer.parsing`, on
the same tags, all probabilities calibrated in the same way.

A batch has sentences of one length, so nothing is padded or masked.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from minfer.errors import MinferError, ModelError
from minfer.parsing import Inference, Parser, Recipe, Sentence, evaluate, marginals, read_conllu
from minfer.parsing.calibration import Calibration, calibration, tempered
from minfer.parsing.graphs import list_pairs
from minfer.parsing.parser import TEMPERS
from minfer.parsing.projective import lift
from minfer.torch.trees import tree_log_partition, tree_marginals

#: Pairs of arcs whose probabilities under the first order multiply to less are not looked at.
LEAST = 3e-3
#: For training and for answers alike; no arc is left out, so that none has probability 0.
BELIEFS = Inference(least=LEAST, arc_least=0.0)
BATCH = 250  # words
RATE = 3e-3  # Adam's, at first
UNKNOWN, ROOT = 0, 1  # of every vocabulary
GP, SIB = 0, 1


# ---------------------------------------------------------------------- the model


class Scorer(nn.Module):
    """Scores of arcs, pairs of arcs and relations from numbers of words (B, n, 4)."""

    def __init__(self, sizes: Sequence[int], n_labels: int, width: int = 100) -> None:
        super().__init__()
        widths = 80, 30, 20, 30  # word, ending, UPOS, XPOS
        self.embed = nn.ModuleList(nn.Embedding(n, d) for n, d in zip(sizes, widths))
        self.read = nn.LSTM(sum(widths), width, 2, batch_first=True, bidirectional=True)
        self.head, self.modifier, self.labels = (
            nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Dropout(0.2)) for _ in range(3)
        )
        self.biaffine = nn.Linear(width, width)
        self.is_head = nn.Linear(width, 1)
        self.distance = nn.Embedding(2 * 16 + 1, 1)  # further away is all alike
        self.roles = nn.ModuleList(nn.Linear(2 * width, 3 * 32) for _ in (GP, SIB))
        self.label_head = nn.Linear(2 * width, width)
        self.label = nn.Linear(width, n_labels)
        self.drop = nn.Dropout(0.2)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of arcs (B, N, N), [head, modifier], and states (B, N, 2 width); N = n + 1."""
        words = nn.functional.pad(words, (0, 0, 1, 0), value=ROOT)
        embedded = torch.cat([e(words[..., k]) for k, e in enumerate(self.embed)], dim=-1)
        states = self.drop(self.read(self.drop(embedded))[0])
        heads, modifiers = self.head(states), self.modifier(states)
        place = torch.arange(words.shape[1])
        apart = (place - place[:, None]).clamp(-16, 16) + 16
        bilinear = self.biaffine(heads) @ modifiers.transpose(1, 2)
        return bilinear + self.is_head(heads) + self.distance(apart)[..., 0], states

    def pairs(self, states: Tensor, found: Found) -> Tensor:
        """Scores (P,) of grandparents, then siblings: a product of three words in their roles."""
        scores = []
        for roles, nodes in zip(self.roles, (found.nodes[: found.n_gp], found.nodes[found.n_gp :])):
            as_role = roles(states).view(-1, 3, 32)
            scores.append(torch.stack([as_role[nodes[:, k], k] for k in range(3)]).prod(0).sum(-1))
        return torch.cat(scores)

    def relations(self, states: Tensor, heads: Tensor) -> Tensor:
        """Scores (B, n, labels) of the relations of words to given heads (B, n)."""
        above = states.gather(1, heads[..., None].expand(-1, -1, states.shape[-1]))
        return self.label(self.labels(states[:, 1:]) + torch.relu(self.label_head(above)))


# ---------------------------------------------------------------------- pairs of arcs


class Found(NamedTuple):
    """Pairs of arcs of a batch, all its grandparents before its siblings."""

    nodes: Tensor  # (P, 3) of (g, h, m) or (h, m, s), sentence b's from b N on
    n_gp: int

    @classmethod
    def of(cls, probs: NDArray[np.float64]) -> Found:
        """Those whose arcs both have a probability of at least LEAST, of (B, N, N)."""
        batch, n = probs.shape[:2]
        kinds: tuple[list[NDArray], list[NDArray]] = [], []
        for b in range(batch):
            likely = np.where(probs[b] >= LEAST, 0.0, -np.inf)
            pairs = list_pairs(likely, gp=True, sib=True, projective=True, single_root=True)
            kinds[GP].append(pairs.nodes[: pairs.n_gp] + b * n)
            kinds[SIB].append(pairs.nodes[pairs.n_gp :] + b * n)
        nodes = np.concatenate([*kinds[GP], *kinds[SIB]]).astype(np.int64)
        return cls(torch.from_numpy(nodes), sum(map(len, kinds[GP])))

    def where(self, n: int) -> tuple[NDArray[np.int64], ...]:
        """Indices (kind, sentence, node, node, node) into cubes of scores."""
        nodes = self.nodes.numpy()
        kind = (np.arange(len(nodes)) >= self.n_gp).astype(np.int64)
        return kind, nodes[:, 0] // n, *(nodes % n).T


class PairLogPartition(torch.autograd.Function):
    """log Z (B,) of belief propagation, by scores of arcs (B, N, N) and of pairs (P,).

    Its gradient are the beliefs, of arcs and of pairs: at a fixed point messages do not count.
    Pairs that the solver leaves out have none. The second answer tells which are in (P,).
    """

    @staticmethod
    def forward(ctx: Any, arcs: Tensor, theta: Tensor, found: Found) -> tuple[Tensor, Tensor]:
        batch, n = arcs.shape[:2]
        where = found.where(n)
        cubes = np.zeros((2, batch, n, n, n))
        cubes[where] = theta.detach().numpy()
        log_z, probs, beliefs = np.empty(batch), np.zeros(arcs.shape), np.full(cubes.shape, np.nan)
        for b, scores in enumerate(arcs.detach().double().numpy()):
            answer = marginals(
                scores, gp=cubes[GP, b], sib=cubes[SIB, b], inference=BELIEFS, keep_messages=True
            )
            log_z[b], probs[b] = answer.log_z, answer.probs
            if (sent := answer.messages) is not None:
                odds = sent.from_tree.copy()
                np.add.at(odds, sent.pairs, sent.from_pairs)
                one, other = np.clip(odds[sent.pairs] - sent.from_pairs, -50, 50).T
                both = one + other + sent.theta
                some = np.logaddexp(np.logaddexp(0, one), np.logaddexp(other, both))
                (g, h), (a, m) = sent.heads[sent.pairs].T, sent.modifiers[sent.pairs].T
                beliefs[np.where(g == h, SIB, GP), b, g, a, m] = np.exp(both - some)
        belief = beliefs[where]
        kept = torch.from_numpy(~np.isnan(belief))
        ctx.save_for_backward(
            torch.from_numpy(probs).to(arcs.dtype),
            torch.from_numpy(np.nan_to_num(belief)).to(theta.dtype),
            torch.from_numpy(where[1]),
        )
        ctx.mark_non_differentiable(kept)
        return torch.from_numpy(log_z).to(arcs.dtype), kept

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        probs, beliefs, owner = ctx.saved_tensors
        return gradients[0][:, None, None] * probs, gradients[0][owner] * beliefs, None


# ---------------------------------------------------------------------- training


class Numbers:
    """Sentences as numbers: words, their last three letters, UPOS and XPOS; relations."""

    def __init__(self, train: Sequence[Sentence]) -> None:
        columns = zip(*(row for s in train for row in self.rows(s)))
        self.known = [
            {value: k for k, value in enumerate(sorted(common(column)), start=2)}
            for column in columns
        ]
        self.labels = sorted({name for s in train for name in s.deprels})
        self.sizes = [len(known) + 2 for known in self.known]

    @staticmethod
    def rows(s: Sentence) -> Iterator[tuple[str, ...]]:
        for form, upos, xpos in zip(s.forms, s.upos, s.xpos):
            yield form.lower(), form[-3:], upos, xpos

    def words(self, s: Sentence) -> list[list[int]]:
        return [[k.get(v, UNKNOWN) for k, v in zip(self.known, row)] for row in self.rows(s)]

    def batches(
        self, sentences: Sequence[Sentence], rng: np.random.Generator | None = None
    ) -> list[tuple[NDArray[np.int64], Tensor]]:
        """Numbers of sentences of one length, and their words (B, n, 4); shuffled by ``rng``."""
        sizes = np.array([len(s) for s in sentences])
        order = np.arange(len(sizes)) if rng is None else rng.permutation(len(sizes))
        found = []
        for n in np.unique(sizes):
            same, each = order[sizes[order] == n], max(1, BATCH // int(n))
            found += [same[k : k + each] for k in range(0, len(same), each)]
        if rng is not None:
            rng.shuffle(found)
        return [(b, torch.tensor([self.words(sentences[k]) for k in b])) for b in found]


def common(values: Sequence[str]) -> list[str]:
    """What is there at least twice."""
    return [value for value, count in Counter(values).items() if count > 1]


class NeuralParser:
    """A :class:`Scorer` with its vocabulary."""

    def __init__(self, train: Sequence[Sentence], seed: int = 0, width: int = 100) -> None:
        self.train = [s for s in train if s.heads is not None and (s.heads == 0).sum() == 1]
        if not self.train:
            raise ModelError("no sentence to learn from has heads and one root")
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.numbers = Numbers(self.train)
        self.net = Scorer(self.numbers.sizes, len(self.numbers.labels), width)
        trees = [lift(s.heads) for s in self.train if s.heads is not None]
        self.gold = [torch.from_numpy(tree.astype(np.int64)) for tree in trees]
        label = {name: k for k, name in enumerate(self.numbers.labels)}
        self.relations = [torch.tensor([label[name] for name in s.deprels]) for s in self.train]
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=RATE, betas=(0.9, 0.95))
        self.second = False
        self.seconds = 0.0

    def branch(self) -> NeuralParser:
        """Another that goes on from here."""
        other = copy.copy(self)
        other.net, other.optimiser, other.rng = copy.deepcopy((self.net, self.optimiser, self.rng))
        return other

    def fit(
        self, epochs: int, second: bool, rates: tuple[float, float], report: Any = None
    ) -> None:
        """Go on for some passes over the data, the learning rate falling evenly."""
        self.second = second
        for epoch in range(epochs):
            begin, total = time.process_time(), 0.0
            batches = self.numbers.batches(self.train, self.rng)
            for k, (which, words) in enumerate(batches):
                done = (epoch + k / len(batches)) / epochs
                self.optimiser.param_groups[0]["lr"] = rates[0] + done * (rates[1] - rates[0])
                self.net.train()
                loss = self.loss(which, words)
                self.optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
                self.optimiser.step()
                total += loss.item()
            self.seconds += time.process_time() - begin
            if report is not None:
                report(f"epoch {epoch + 1}: loss {total / len(batches):.3f}, {self.seconds:.0f} s")

    def loss(self, which: NDArray[np.int64], words: Tensor) -> Tensor:
        """Minus log-likelihood a word, of the trees and of the relations."""
        gold = torch.stack([self.gold[k] for k in which])
        relations = torch.stack([self.relations[k] for k in which])
        hidden = torch.rand(words.shape[:2]) < 0.1
        words[..., 0][hidden] = UNKNOWN
        arcs, states = self.net(words)
        batch, n = gold.shape
        tree = torch.zeros_like(arcs)
        tree[torch.arange(batch)[:, None], gold, torch.arange(1, n + 1)] = 1.0
        score = (arcs * tree).sum()
        if self.second:
            found = Found.of(tree_marginals(arcs.detach().double(), projective=True).numpy())
            theta = self.net.pairs(states, found)
            log_z, kept = PairLogPartition.apply(arcs, theta, found)
            kind, b, i, j, k = map(torch.from_numpy, found.where(n + 1))
            right = tree[b, i, j] * torch.where(kind == GP, tree[b, j, k], tree[b, i, k])
            score = score + (theta * right * kept).sum()
        else:
            log_z = tree_log_partition(arcs, projective=True)
        labelled = self.net.relations(states, gold).flatten(0, 1)
        cross = nn.functional.cross_entropy(labelled, relations.flatten(), reduction="sum")
        return (log_z.sum() - score + cross) / gold.numel()

    @torch.no_grad()
    def answer(self, sentences: Sequence[Sentence]) -> Answer:
        """Probabilities of all arcs, and trees of minimum Bayes risk with relations."""
        self.net.eval()
        begin = time.process_time()
        probs: list[Any] = [None] * len(sentences)
        parses: list[Any] = [None] * len(sentences)
        for which, words in self.numbers.batches(sentences):
            arcs, states = self.net(words)
            scores = arcs.double().numpy()
            pairs: list[dict[str, Any]] = [{}] * len(which)
            if self.second:
                found = Found.of(tree_marginals(arcs.double(), projective=True).numpy())
                cubes = np.zeros((2, *scores.shape, scores.shape[-1]))
                cubes[found.where(scores.shape[-1])] = self.net.pairs(states, found).numpy()
                pairs = [{"gp": gp, "sib": sib, "inference": BELIEFS} for gp, sib in zip(*cubes)]
            found_arcs = [marginals(s, **p) for s, p in zip(scores, pairs)]
            heads = np.stack([one.heads for one in found_arcs]).astype(np.int64)
            labels = self.net.relations(states, torch.from_numpy(heads)).argmax(-1).tolist()
            for k, one, names in zip(which, found_arcs, labels):
                probs[k] = one.probs
                deprels = [self.numbers.labels[name] for name in names]
                parses[k] = sentences[k].with_parse(one.heads, deprels)
        return Answer(probs, parses, time.process_time() - begin)


# ---------------------------------------------------------------------- judging


class Answer(NamedTuple):
    """What a parser makes of sentences."""

    probs: list[NDArray[np.float64]]  # (N, N) each
    parses: list[Sentence]
    seconds: float  # of CPU time


class Candidate(NamedTuple):
    """A parser that was trained."""

    name: str
    answer: Callable[[Sequence[Sentence]], Answer]
    seconds: float


class Judged(NamedTuple):
    """A parser on the test set."""

    name: str
    uas: float
    las: float
    temper: float
    raw: Calibration
    calibrated: Calibration
    raw_loss: float  # mean of -log P(right head)
    loss: float  # the same, calibrated
    training: float  # seconds
    parsing: float


def by_linear(parser: Parser, sentences: Sequence[Sentence]) -> Answer:
    """The linear parser's answer, its probabilities as they are."""
    begin = time.process_time()
    found = parser.marginals(sentences, inference=BELIEFS, calibrated=False)
    probs = [one.probs for one in found]
    seconds = time.process_time() - begin
    return Answer(probs, list(parser.parse(sentences, inference=BELIEFS)), seconds)


def of_arcs(answer: Answer, gold: Sequence[Sentence], t: float) -> tuple[Calibration, float]:
    """How true tempered probabilities of the chosen arcs are, and the log-loss of right ones."""
    chosen, right, loss = [], [], []
    for probs, parse, s in zip(answer.probs, answer.parses, gold):
        p, words = tempered(probs, t), np.arange(1, len(probs))
        assert s.heads is not None
        assert parse.heads is not None
        chosen.append(p[parse.heads, words])
        right.append(parse.heads == s.heads)
        loss.append(-np.log(np.maximum(p[s.heads, words], 1e-12)))
    p = np.clip(np.concatenate(chosen), 0.0, 1.0)
    return calibration(p, np.concatenate(right)), float(np.concatenate(loss).mean())


def judge(one: Candidate, dev: Sequence[Sentence], test: Sequence[Sentence]) -> Judged:
    """Temper on dev, where the Brier score is least; tell how that does on test."""
    on_dev, answer = one.answer(dev), one.answer(test)
    t = min(TEMPERS, key=lambda t: of_arcs(on_dev, dev, t)[0].brier)
    (raw, raw_loss), (calibrated, loss) = (of_arcs(answer, test, power) for power in (1.0, t))
    scores = evaluate(test, answer.parses)
    return Judged(
        one.name, scores.uas, scores.las, t, raw, calibrated, raw_loss, loss, one.seconds,
        answer.seconds,
    )  # fmt: skip


def linear_parsers(
    train: Sequence[Sentence], seed: int = 0, recipe: Recipe | None = None
) -> Iterator[Candidate]:
    """Of the first and of the second order."""
    for order, pairs in (("first", False), ("second", True)):
        begin = time.process_time()
        parser = Parser.train(train, gp=pairs, sib=pairs, tags="gold", rng=seed, recipe=recipe)
        seconds = time.process_time() - begin
        yield Candidate(f"linear, {order} order", partial(by_linear, parser), seconds)


def neural_parsers(
    train: Sequence[Sentence], epochs: int = 5, seed: int = 0, width: int = 100, report: Any = None
) -> Iterator[Candidate]:
    """Of the first and of the second order, which share all but the last epochs."""
    last = max(1, epochs * 2 // 5)
    shared = NeuralParser(train, seed, width)
    shared.fit(epochs - last, False, (RATE, RATE), report)
    for order in ("first", "second"):
        parser = shared.branch()
        parser.fit(last, order == "second", (RATE, RATE / 20), report)
        yield Candidate(f"neural, {order} order", parser.answer, parser.seconds)


HEADER = (
    "| parser | UAS | LAS | log-loss | calibrated | ECE | calibrated | t | train, s | test, s |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def line(one: Judged) -> str:
    """A row of the table."""
    return (
        f"| {one.name} | {one.uas:.2f} | {one.las:.2f} | {one.raw_loss:.3f} | {one.loss:.3f} | "
        f"{one.raw.ece:.3f} | {one.calibrated.ece:.3f} | {one.temper} | {one.training:.0f} | "
        f"{one.parsing:.1f} |"
    )


def draw(found: Sequence[Judged], path: str) -> None:
    """How often arcs are right against what was said, before and after calibration."""
    from minfer.pictures import write_figure
    from minfer.plots import pyplot

    plt = pyplot(headless=True)
    figure, axes = plt.subplots(1, 2, figsize=(7.5, 3.6), sharey=True)
    for ax, which in zip(axes, ("raw", "calibrated")):
        ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8)
        for one in found:
            c: Calibration = getattr(one, which)
            ax.plot(c.probs, c.right, "o-", markersize=3, label=f"{one.name}: {c.ece:.3f}")
        ax.set_title("as they are" if which == "raw" else "calibrated on dev", fontsize=9)
        ax.set_xlabel("probability of the arc")
        ax.legend(fontsize=7, title="calibration error", title_fontsize=7)
    axes[0].set_ylabel("share that is right")
    figure.tight_layout()
    figure.set_dpi(100)
    write_figure(path, figure)
    plt.close(figure)


def read(folder: str) -> list[list[Sentence]]:
    """Train, dev and test of a folder."""
    parts = []
    for part in ("train", "dev", "test"):
        files = sorted(Path(folder).glob(f"*{part}*.conllu*"))
        if len(files) != 1:
            raise ModelError(
                f"{folder}: expected one file *{part}*.conllu, but there are {len(files)}"
            )
        parts.append(list(read_conllu(files[0])))
    return parts


def main(arguments: Sequence[str] | None = None) -> None:
    """The example as a command."""
    parser = argparse.ArgumentParser(description="a neural parser against the linear one")
    parser.add_argument("treebank", help="a folder with train, dev and test in CoNLL-U")
    parser.add_argument("-o", "--out", help="a picture to write")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the data")
    parser.add_argument("--seed", type=int, default=0, help="of the random generator")
    parser.add_argument("--every", type=int, default=1, help="train on every k-th sentence")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    try:
        train, dev, test = read(args.treebank)
    except (MinferError, OSError) as error:
        parser.error(str(error))
    train = train[:: args.every]
    found = []
    for parsers in (
        linear_parsers(train, args.seed),
        neural_parsers(train, args.epochs, args.seed, report=print),
    ):
        found += [judge(one, dev, test) for one in parsers]
    print(HEADER, *map(line, found), sep="\n")
    if args.out:
        draw(found, args.out)


if __name__ == "__main__":
    main()
