"""What logical factors cost, each beside the same model in another form.

    python benchmarks/logical.py [--rounds 5] [--json F] [--check]
    python benchmarks/logical.py --loose        not pinned, as anybody runs it

* Random 3-SAT-like models of weights about 1, V = F / 3: belief propagation over clauses and over
  the same factors as tables, nanoseconds a factor and sweep, and seconds of a whole call.
* A regular (3, 6) LDPC code over a binary symmetric channel: parity checks, prepared once, against
  the product-sum decoder of the package ``ldpc`` (``pip install --no-deps ldpc`` does; without it
  this is left out). Whole calls on the same words, at most 50 iterations:
  nanoseconds a bit and iteration, words that come out wrong. Theirs stops as soon as all checks
  hold, ours when it has converged.
* At most 5 of each of 20 sets of 20 variables on a 20 x 20 grid: against a global factor in numpy.
* Parity checks of six bits against their tables.

CPU time, one core, both sides in turn in each round; ratios are medians within rounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minfer import BeliefPropagation, FactorGraph
from minfer.engine.conditioning import condition
from minfer.engine.wiring import wire
from minfer.solvers.propagation import Propagation
from minfer_experiments.measure import (
    Stopwatch,
    in_turn,
    loosen,
    median_ratio,
    medians,
    pin,
)

LIMITS = {"clauses, sweep": 8.0, "at most k, sweep": 50.0, "ldpc, bit and iteration, 1000": 0.5}
MOST = 50  # iterations of decoders

#: Words (n, bits) decoded: how many wrong, iterations, CPU seconds.
Decoder = Callable[[np.ndarray], tuple[int, int, float]]


def clauses(n: int, seed: int = 0) -> FactorGraph:
    """n random clauses of three literals over n / 3 variables."""
    rng = np.random.default_rng(seed)
    v = n // 3
    scope = rng.integers(0, v, (n + n // 5 + 50, 3))
    distinct = (scope[:, 0] != scope[:, 1]) & (scope[:, 1] != scope[:, 2])
    scope = scope[distinct & (scope[:, 0] != scope[:, 2])][:n]
    weights, signs = rng.uniform(0.5, 1.5, n), rng.choice([-1, 1], (n, 3))
    return FactorGraph.pairwise(rng.normal(size=v) * 0.5, [], []).add_clauses(
        scope, weights, signs=signs
    )


def tabled(graph: FactorGraph) -> FactorGraph:
    """The same model, all logical factors as tables."""
    groups = tuple(g.as_tables() if g.form == "machine" else g for g in graph.groups)
    return FactorGraph(graph._n_states, groups, graph.names, graph._field)


def ldpc_checks(n: int, seed: int = 0) -> np.ndarray:
    """A regular (3, 6) code of n bits: the bits of each check, (n / 2, 6), no bit twice."""
    rng = np.random.default_rng(seed)
    sockets = rng.permutation(np.repeat(np.arange(n), 3)).reshape(-1, 6)
    for _ in range(10_000):
        ordered = np.sort(sockets, axis=1)
        bad = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if not len(bad):
            return sockets
        for row in bad:
            other, i, j = rng.integers(len(sockets)), rng.integers(6), rng.integers(6)
            a, b = sockets[row, i], sockets[other, j]
            sockets[row, i], sockets[other, j] = b, a
    raise RuntimeError("no code found")


class AtMost:
    """A global factor in numpy: at most k of n binary variables are on."""

    def __init__(self, k: int) -> None:
        self.k = k

    def messages(self, incoming: np.ndarray, out: np.ndarray) -> np.ndarray:
        q = np.exp(incoming).reshape(len(incoming), -1, 2)
        arity, size = q.shape[1], self.k + 1
        ahead = np.zeros((len(q), arity + 1, size))
        back = np.zeros((len(q), arity + 1, size))
        ahead[:, 0, 0], back[:, arity] = 1.0, 1.0
        for a in range(arity):
            ahead[:, a + 1] = ahead[:, a] * q[:, a, :1]
            ahead[:, a + 1, 1:] += ahead[:, a, :-1] * q[:, a, 1:]
        for a in range(arity - 1, -1, -1):
            back[:, a] = back[:, a + 1] * q[:, a, :1]
            back[:, a, :-1] += back[:, a + 1, 1:] * q[:, a, 1:]
        m = out.reshape(q.shape)
        m[:, :, 0] = (ahead[:, :-1] * back[:, 1:]).sum(axis=2)
        m[:, :, 1] = (ahead[:, :-1, :-1] * back[:, 1:, 1:]).sum(axis=2)
        with np.errstate(divide="ignore"):
            out[:] = np.log(out)
            return np.log(ahead[:, arity].sum(axis=1))

    def score(self, assignments: np.ndarray) -> np.ndarray:
        return np.where(assignments.sum(axis=1) <= self.k, 0.0, -np.inf)


class OneByOne(AtMost):
    """The same, factor by factor, as one would write it first."""

    def messages(self, incoming: np.ndarray, out: np.ndarray) -> np.ndarray:
        rows = range(len(incoming))
        each = [super(OneByOne, self).messages(incoming[i : i + 1], out[i : i + 1]) for i in rows]
        return np.concatenate(each)


def sweeps(graph: FactorGraph, n: int) -> Callable[[], int]:
    """n sequential sweeps over a model wired beforehand."""
    bp = Propagation(wire(condition(graph)), None, 0.0, 0.0, "sequential")
    residuals = np.zeros(n)

    def run() -> int:
        made = 0
        while made < n:  # global factors answer between calls
            made += bp._sweeps(1 if bp.python_factors else n - made, residuals)
        return made

    return run


def compare(
    rounds: int, one: Callable[[], Any], two: Callable[[], Any]
) -> tuple[float, float, float]:
    """Median seconds of two calls, and the median of the ratio two / one."""
    times = in_turn({1: one, 2: two}, rounds)
    a, b = medians(times).values()
    return a, b, median_ratio(times[2], times[1])


def decode(n: int, words: int, error_rate: float, blocks: int) -> dict[str, float]:
    """Noisy words of a code, by parity checks and by other decoders, block by block in turn."""
    checks = ldpc_checks(n)
    noise = np.random.default_rng(1).random((words, n)) < error_rate  # zeros were sent
    decoders = {"ours": _our_decoder(checks, error_rate), **_others(checks, n, error_rate)}
    for decoder in decoders.values():
        decoder(noise[:2])
    rows = [
        [(*decoder(part), len(part)) for decoder in decoders.values()]
        for part in np.array_split(noise, blocks)
    ]
    print(f"LDPC (3, 6), n = {n:,}, {words:,} words, {error_rate:.2%} of bits flipped:")
    found = np.array(rows)  # (blocks, decoders, [wrong, iterations, seconds, words])
    cost = found[:, :, 2] / found[:, :, 1] / n * 1e9
    wrong, iterations, spent, _ = found.sum(axis=0).T
    for d, name in enumerate(decoders):
        print(
            f"  {name}: {np.median(cost[:, d]):.0f} ns a bit and iteration, "
            f"{np.median(cost[:, d] / cost[:, 0]):.2f}x ours; words wrong {wrong[d]:.0f} "
            f"({wrong[d] / words:.2%}); iterations a word {iterations[d] / words:.1f}; "
            f"ms a word {spent[d] / words * 1e3:.2f}"
        )
    if len(decoders) == 1:
        return {}
    return {f"ldpc, bit and iteration, {n}": float(np.median(cost[:, 1] / cost[:, 0]))}


def _our_decoder(checks: np.ndarray, error_rate: float) -> Decoder:
    graph = FactorGraph.empty([2] * (int(checks.max()) + 1)).add_parity(checks)
    prepared = BeliefPropagation(max_iters=MOST, tol=1e-3).prepare(graph)
    log_odds = math.log(1 / error_rate - 1)

    def run(words: np.ndarray) -> tuple[int, int, float]:
        wrong = iterations = 0
        spent = Stopwatch()
        for word in words:
            field = np.zeros((len(word), 2))
            field[:, 1] = np.where(word, log_odds, -log_odds)
            answer = prepared(field=field.ravel())
            wrong += bool((answer.probs[1::2] > 0.5).any())
            iterations += answer.iterations
        return wrong, iterations, spent.cpu

    return run


def load_ldpc() -> Any:
    """The package's decoder without its ``__init__``, which needs stim and sinter; or None."""
    if "ldpc" not in sys.modules:
        spec = importlib.util.find_spec("ldpc")
        if spec is None or spec.submodule_search_locations is None:
            return None
        package = types.ModuleType("ldpc")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["ldpc"] = package
    from ldpc.bp_decoder import BpDecoder

    return BpDecoder


def _others(checks: np.ndarray, n: int, error_rate: float) -> dict[str, Decoder]:
    """The package's decoder in its two schedules."""
    decoder_of = load_ldpc()
    if decoder_of is None:
        return {}
    from scipy.sparse import csr_matrix

    rows = np.repeat(np.arange(len(checks)), checks.shape[1])
    ones = np.ones(checks.size, np.uint8)
    matrix = csr_matrix((ones, (rows, checks.ravel())), shape=(len(checks), n))

    def decoder(schedule: str) -> Decoder:
        theirs = decoder_of(
            matrix, error_rate=error_rate, max_iter=MOST, bp_method="product_sum",
            schedule=schedule, input_vector_type="received_vector",
        )  # fmt: skip

        def run(words: np.ndarray) -> tuple[int, int, float]:
            wrong = iterations = 0
            spent = Stopwatch()
            for word in words:
                wrong += bool(theirs.decode(word.astype(np.uint8)).any())
                iterations += theirs.iter
            return wrong, iterations, spent.cpu

        return run

    return {f"ldpc, {schedule}": decoder(schedule) for schedule in ("parallel", "serial")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed")
    parser.add_argument("--loose", action="store_true", help="no pinning, threads as they come")
    given = parser.parse_args()
    if given.loose:
        loosen()
    pin()
    found: dict[str, float] = {}
    for n in (20_000, 200_000):
        graph = clauses(n)
        plain = tabled(graph)
        k = 20 if n < 50_000 else 6
        a, b, ratio = compare(given.rounds, sweeps(graph, k), sweeps(plain, k))
        print(
            f"{n:,} clauses of three: {a / k / n * 1e9:.0f} ns a factor and sweep, "
            f"tables {b / k / n * 1e9:.0f}: {ratio:.1f}x"
        )
        found["clauses, sweep"] = min(found.get("clauses, sweep", np.inf), ratio)
        a, b, ratio = compare(
            min(given.rounds, 3), partial(BeliefPropagation(), graph),
            partial(BeliefPropagation(), plain),
        )  # fmt: skip
        print(f"  to convergence, whole call: {a:.3f} s, tables {b:.3f} s: {ratio:.1f}x")
        found[f"clauses, call, {n}"] = ratio
    found |= decode(1_000, 2_000, 0.0625, 4 * given.rounds)
    found |= decode(10_000, 60, 0.07, 2 * given.rounds)
    rng = np.random.default_rng(0)
    grid = FactorGraph.grid(rng.normal(size=(20, 20)), 0.5)
    sets = rng.permutation(400).reshape(20, 20)
    ours = grid.add_cardinality(sets, at_most=5)
    for what, other in (("factor by factor", OneByOne(5)), ("batched", AtMost(5))):
        theirs = grid.add_global(sets, other)
        a, b, ratio = compare(given.rounds, sweeps(ours, 50), sweeps(theirs, 50))
        print(
            f"at most 5 of 20, 20 sets on a 20 x 20 grid: {a / 50 * 1e6:.0f} us a sweep, global "
            f"factor {what} {b / 50 * 1e6:.0f}: {ratio:.1f}x"
        )
        found.setdefault("at most k, sweep", ratio)  # the first: factor by factor
    solver = BeliefPropagation(max_iters=2000)
    m, w = solver(ours), solver(theirs)
    print(f"  answers differ by {np.abs(m.probs - w.probs).max():.1e}; {m.status.value}")
    checks = ldpc_checks(2_000)
    code = FactorGraph.empty([2] * 2_000).add_parity(checks, 2.0)
    code = code.tilt(rng.normal(size=4_000))
    a, b, ratio = compare(given.rounds, sweeps(code, 50), sweeps(tabled(code), 50))
    print(
        f"parity of six: {a / 50 / 1_000 * 1e9:.0f} ns a factor and sweep, table "
        f"{b / 50 / 1_000 * 1e9:.0f}: {ratio:.1f}x"
    )
    found["parity, sweep"] = ratio
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    missed = [k for k, least in LIMITS.items() if found.get(k, least) < least]
    print("missed: " + ", ".join(missed) if missed else "all bars met")
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
