"""The collection behind docs/reference/method.md: seeded models on which the method is judged.

Thirteen kinds, three seeds each. Every model is binary and pairwise with one unary factor per
variable (the seed of the method):

* ``grid``: the Ising grid of section 5.1 of the paper, 12 x 40 so that exact answers are cheap; a
  noisy shape at confidence alpha, coupling 1.
* ``full 20``: 20 variables, all 190 pairs; ``sparse``: 700 variables, 2,100 random pairs;
  ``dense``: 700 variables, 20,000 random pairs. All have conjunctions y_a y_b: mixed ones with
  weights N(0, s^2) and log-odds N(0, 1), attractive ones with weights |N(0, s^2)| and log-odds
  N(-3, 2^2), s such that the weights of a variable's factors sum to about 4.6.
* ``parsing``: 27 words, 702 arcs, 20,000 of their grandparent and sibling pairs as conjunctions of
  weights N(0, s^2). No tree factor: arcs are independent but for these, and their unary
  probabilities are those of a softmax over the heads of each word.

Apart from these: ``cubic``, all 990,000 grandparent pairs of 100 words, as a factor source;
``picture``, the grid of section 5.1 in its own size; and the UAI 2014 models whose exact marginals
come with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np
from numpy.typing import NDArray

from minfer import BeliefPropagation, Exact, FactorGraph
from minfer.factors import Features
from minfer.reduction.sources import Join, JoinTemplates
from places import uai_models

PARSER_SPREAD = 2.5  # standard deviation of a head's score: how sure the softmax is
SEEDS = (1, 2, 3)
LATER = (4, 5, 6)  # not used to choose damping, though its variants were run on them as well
FRESH = (7, 8, 9)  # played no part in any choice


@dataclass(frozen=True)
class Instance:
    """A model of the collection.

    ``reference`` is how its marginals are known: "exact" (clique tree), "gibbs" (long sampling),
    "bp" (converged belief propagation) or "given" (``answer``, shape (sum of states,)).
    """

    name: str
    kind: str
    graph: FactorGraph
    reference: str
    answer: NDArray[np.float64] | None = None


def shape(which: int) -> NDArray[np.bool_]:
    """An ellipse (20 % of the pixels), a rectangle (40 %) or two bars (50 %) on 12 x 40 pixels."""
    r, c = np.mgrid[:12, :40]
    if which == 0:
        return np.hypot((r + 0.5) / 12 - 0.5, (c + 0.5) / 40 - 0.5) < 0.25
    if which == 1:
        return (r >= 2) & (r < 10) & (c >= 8) & (c < 32)
    return (c % 20) < 10


def grid(alpha: float, seed: int, which: int | None = None) -> FactorGraph:
    """12 x 40 Ising grid under a shape with noise N(0, 0.3^2), the picture centred to mean 0."""
    rng = np.random.default_rng(seed)
    picture = shape(seed % 3 if which is None else which) + rng.normal(0, 0.3, (12, 40))
    return FactorGraph.grid(alpha * (picture - picture.mean()), 1.0)


def random_pairs(
    n_vars: int, n_pairs: int, scale: float, attractive: bool, seed: int
) -> FactorGraph:
    """Conjunctions over distinct random pairs, of mixed or of positive weights."""
    rng = np.random.default_rng(seed)
    a, b = np.triu_indices(n_vars, 1)
    chosen = np.sort(rng.choice(len(a), n_pairs, replace=False))
    edges = np.stack([a[chosen], b[chosen]], axis=1)
    weights = rng.normal(0, scale, n_pairs)
    log_odds = rng.normal(0, 1, n_vars)
    if attractive:
        weights, log_odds = np.abs(weights), 2 * log_odds - 3
    return FactorGraph.pairwise(log_odds, edges, weights, feature="and")


def arc_log_odds(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logit of a softmax over each row's last axis; minus infinity marks what is not an arc."""
    top = scores.max(axis=1, keepdims=True)
    e = np.exp(scores - top)
    rest = e.sum(axis=1, keepdims=True) - e
    return scores - top - np.log(rest)


def parsing(n_words: int, n_pairs: int, scale: float, seed: int) -> FactorGraph:
    """Arcs between words, no root; a random choice of their grandparent and sibling pairs."""
    rng = np.random.default_rng(seed)
    head, mod = np.divmod(np.arange(n_words * n_words), n_words)
    is_arc = head != mod
    number = np.where(is_arc, np.cumsum(is_arc) - 1, -1).reshape(n_words, n_words)
    h, m, k = (x.ravel() for x in np.indices((n_words,) * 3))
    apart = (h != m) & (m != k) & (h != k)
    grand = np.stack([number[h, m], number[m, k]], axis=1)[apart]
    sibling = np.stack([number[h, m], number[h, k]], axis=1)[apart & (m < k)]
    pairs = np.concatenate([grand, sibling])
    pairs = pairs[np.sort(rng.choice(len(pairs), n_pairs, replace=False))]
    scores = rng.normal(0, PARSER_SPREAD, (n_words, n_words))  # [modifier, head]
    np.fill_diagonal(scores, -np.inf)
    log_odds = arc_log_odds(scores).T.ravel()[is_arc]
    return FactorGraph.pairwise(log_odds, pairs, rng.normal(0, scale, n_pairs), feature="and")


def cubic(n_words: int, scale: float, seed: int) -> tuple[FactorGraph, JoinTemplates]:
    """Arcs (h, m), h in 0..n (0 the root), m in 1..n; all pairs (h, m), (m, k) as conjunctions.

    The arcs with their unary factors, and the pairs as a factor source that looks weights up.
    """
    n, rng = n_words, np.random.default_rng(seed)
    head, mod = np.nonzero(~np.eye(n + 1, dtype=bool))
    head, mod = head[mod > 0], mod[mod > 0]
    scores = rng.normal(0, PARSER_SPREAD, (n + 1, n + 1))  # [modifier, head]
    np.fill_diagonal(scores, -np.inf)
    log_odds = arc_log_odds(scores)[mod, head]
    weights = rng.normal(0, scale, (n + 1, n + 1, n + 1))  # [head, modifier, its modifier]
    low, high = float(weights.min()), float(weights.max())
    row = (head * (n + 1) + mod) * (n + 1)  # where an arc's weights begin

    def look_up(template: int, scope: NDArray[np.int32]) -> NDArray[np.float64]:
        above, below = scope.T
        return weights.take(row.take(above) + mod.take(below))

    source = JoinTemplates([Join(mod, head, low, high)], look_up)
    return FactorGraph.pairwise(log_odds, np.zeros((0, 2), dtype=int), []), source


def picture(alpha: float, seed: int) -> FactorGraph:
    """64 x 64 Ising grid, the size of section 5.1: a disc with noise N(0, 0.3^2), coupling 1."""
    rng = np.random.default_rng(seed)
    r, c = np.mgrid[:64, :64] - 31.5
    noisy = (np.hypot(r, c) < 20) + rng.normal(0, 0.3, (64, 64))
    return FactorGraph.grid(alpha * (noisy - noisy.mean()), 1.0)


Build = Callable[[int], FactorGraph]
KINDS: dict[str, tuple[str, Build]] = {
    "grid alpha=2": ("exact", lambda seed: grid(2.0, seed)),
    "grid alpha=5": ("exact", lambda seed: grid(5.0, seed)),
    "grid alpha=8": ("exact", lambda seed: grid(8.0, seed)),
    "full 20 mixed s=.3": ("exact", lambda seed: random_pairs(20, 190, 0.3, False, seed)),
    "full 20 mixed s=1": ("exact", lambda seed: random_pairs(20, 190, 1.0, False, seed)),
    "full 20 attractive s=.3": ("exact", lambda seed: random_pairs(20, 190, 0.3, True, seed)),
    "sparse 700 mixed s=1": ("gibbs", lambda seed: random_pairs(700, 2100, 1.0, False, seed)),
    "sparse 700 attractive s=1": ("gibbs", lambda seed: random_pairs(700, 2100, 1.0, True, seed)),
    "dense 700 mixed s=.3": ("gibbs", lambda seed: random_pairs(700, 20_000, 0.3, False, seed)),
    "dense 700 mixed s=1": ("gibbs", lambda seed: random_pairs(700, 20_000, 1.0, False, seed)),
    "dense 700 attractive s=.1": ("gibbs", lambda seed: random_pairs(700, 20_000, 0.1, True, seed)),
    "parsing 702 s=.5": ("gibbs", lambda seed: parsing(27, 20_000, 0.5, seed)),
    "parsing 702 s=1": ("gibbs", lambda seed: parsing(27, 20_000, 1.0, seed)),
}


def collection(seeds: tuple[int, ...] = SEEDS) -> Iterator[Instance]:
    """Every kind under every seed, in order."""
    for kind, (reference, build) in KINDS.items():
        for seed in seeds:
            graph = build(seed)
            yield Instance(f"{kind} #{seed}", kind, graph, reference)


def ellipses(seeds: tuple[int, ...] = SEEDS) -> Iterator[Instance]:
    """The grids again, all under an ellipse: what the choice of shapes does to the results."""
    for alpha in (2.0, 5.0, 8.0):
        for seed in seeds:
            graph = grid(alpha, seed, which=0)
            yield Instance(f"ellipse alpha={alpha:g} #{seed}", "ellipse", graph, "exact")


def uai_instances(folder: Path) -> Iterator[Instance]:
    """The UAI 2014 models under ``folder`` (one folder per family), evidence applied."""
    for model in uai_models(folder):
        yield Instance(model.name, model.family, model.graph, "given", model.marginals)


@dataclass(frozen=True)
class Reference:
    """Marginals (sum of states,) to compare with, and their own mean error (0 if exact)."""

    probs: NDArray[np.float64]
    noise: float


def reference(instance: Instance, cache: Path) -> Reference:
    """The marginals an instance is judged by, from ``cache`` where they are there already."""
    if instance.answer is not None:
        return Reference(instance.answer, 0.0)
    settings = (instance.reference, N_CHAINS, BURN_IN, N_SWEEPS, "1")
    path = cache / f"{_digest(instance.graph, settings)}.npz"
    if path.exists():
        with np.load(path) as stored:
            return Reference(stored["probs"], float(stored["noise"]))
    if instance.reference == "gibbs":
        answer = long_gibbs(instance.graph)
    else:
        solver = Exact() if instance.reference == "exact" else BeliefPropagation(tol=1e-9)
        answer = Reference(solver(instance.graph).probs, 0.0)
    cache.mkdir(parents=True, exist_ok=True)
    np.savez(path, probs=answer.probs, noise=answer.noise)
    return answer


def _digest(graph: FactorGraph, settings: tuple[object, ...]) -> str:
    h = hashlib.sha256(repr(settings).encode())
    for g in graph.groups:
        assert isinstance(g, Features)
        for x in (g.scope, g.truth, g.theta):
            h.update(np.ascontiguousarray(x).tobytes())
    return h.hexdigest()[:24]


N_CHAINS, BURN_IN, N_SWEEPS = 4, 1000, 20_000


def long_gibbs(graph: FactorGraph) -> Reference:
    """Marginals of a binary pairwise model by long Gibbs sampling with a control variate.

    Unary parts absorbed, each variable has p(x_v = 1 | rest) = sigma(L_v), L_v = f_v + (W x)_v.
    Plain Gibbs averages sigma(L_v). Its noise is mostly that of L_v, whose mean is known once all
    marginals m are: E[L] = f + W m. So with b_v the slope of sigma(L_v) on L_v over the samples,

        m = mean sigma(L) - b (mean L - f - W m),   a linear system in m,

    which is two to four times less noisy, and agrees with exact answers where there are any.
    """
    n = graph.n_variables
    field, couplings = np.zeros(n), np.zeros((n, n))
    for g in graph.groups:
        assert isinstance(g, Features)
        t = g.truth.astype(float)
        if g.arity == 1:
            np.add.at(field, g.scope[:, 0], g.theta * (t[1] - t[0]))
            continue
        a, b = g.scope.T
        np.add.at(field, a, g.theta * (t[1, 0] - t[0, 0]))
        np.add.at(field, b, g.theta * (t[0, 1] - t[0, 0]))
        w = g.theta * (t[1, 1] - t[1, 0] - t[0, 1] + t[0, 0])
        np.add.at(couplings, (a, b), w)
        np.add.at(couplings, (b, a), w)
    row, col = np.nonzero(couplings)
    ptr = np.searchsorted(row, np.arange(n + 1))
    sums = np.zeros((N_CHAINS, 4, n))
    for c in range(N_CHAINS):
        _sample(ptr, col, couplings[row, col], field, BURN_IN, N_SWEEPS, c, sums[c])
    p, mean, square, cross = sums.mean(axis=0)
    slope = (cross - p * mean) / np.maximum(square - mean * mean, 1e-12)
    system = np.eye(n) - slope[:, None] * couplings
    chains = np.linalg.solve(system, (sums[:, 0] - slope * (sums[:, 1] - field)).T).T
    on = np.clip(chains.mean(axis=0), 0.0, 1.0)
    error = chains.std(axis=0, ddof=1) / np.sqrt(N_CHAINS)
    return Reference(np.stack([1 - on, on], axis=1).ravel(), float(error.mean()))


@numba.njit(cache=False)
def _sample(ptr, neighbour, weight, field, burn_in, n_sweeps, seed, sums):  # type: ignore[no-untyped-def]
    """One chain; ``sums`` (4, V) gets the means of sigma(L), L, L^2 and L sigma(L)."""
    np.random.seed(seed)  # noqa: NPY002 (numba's own generator)
    n = len(field)
    on = np.zeros(n, dtype=np.bool_)
    log_odds = field.copy()
    for sweep in range(-1, burn_in + n_sweeps):
        for v in range(n):
            x = log_odds[v]
            p = 1.0 / (1.0 + np.exp(-x))
            if sweep >= burn_in:
                sums[0, v] += p
                sums[1, v] += x
                sums[2, v] += x * x
                sums[3, v] += x * p
            new = np.random.random() < (0.5 if sweep < 0 else p)  # noqa: NPY002
            if new != on[v]:
                on[v] = new
                sign = 1.0 if new else -1.0
                for e in range(ptr[v], ptr[v + 1]):
                    log_odds[neighbour[e]] += sign * weight[e]
    sums /= n_sweeps
