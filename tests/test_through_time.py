"""Networks through time against sums over all joint states of a slice, and unrolled graphs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import chi2

from draws import blocks, few
from minfer import ContradictionError, Dynamic
from oracle import slices as oracle

TOLERANCE = 1e-9


class Case(NamedTuple):
    card: list[int]
    first: oracle.Tables
    step: oracle.Tables

    @property
    def model(self) -> Dynamic:
        names = [f"v{k}" for k in range(len(self.card))]
        both = [*names, *(f"{name}@-1" for name in names)]
        first, step = (
            {names[v]: ([both[p] for p in own], table) for v, (own, table) in enumerate(tables)}
            for tables in (self.first, self.step)
        )
        return Dynamic(first, step, dict(zip(names, self.card)))

    @property
    def chain(self) -> oracle.Chain:
        return oracle.chain(self.card, self.first, self.step)


def drawn_table(rng: np.random.Generator, shape: list[int], kind: str) -> np.ndarray:
    """Rows that sum to one: mild, with zeros, or with numbers of every size."""
    x = rng.gamma(0.7, size=shape) + 1e-3
    if kind == "zeros":
        x[rng.random(shape) < 0.4] = 0.0
    if kind == "wide":
        x = 10.0 ** -(rng.random(shape) ** 3 * 250.0)
    flat = x.reshape(-1, shape[-1])
    empty = ~flat.any(axis=1)
    flat[empty, rng.integers(0, shape[-1], empty.sum())] = 1.0
    return x / x.sum(axis=-1, keepdims=True)


def drawn_model(rng: np.random.Generator, most: int = 36) -> Case:
    card: list[int] = []
    for _ in range(rng.integers(1, 6)):
        size = int(rng.choice([1, 2, 2, 2, 3, 4]))
        if math.prod(card) * size <= most:
            card.append(size)
    n = len(card)
    kind = str(rng.choice(["mild", "mild", "zeros", "wide"]))
    tables: list[oracle.Tables] = []
    for of_step in (False, True):
        order = rng.permutation(n).tolist()
        found: oracle.Tables = [([], np.empty(0))] * n
        for k, v in enumerate(order):
            own = [u for u in order[:k] if rng.random() < 0.4][:3]
            if of_step:
                own += [n + u for u in range(n) if rng.random() < 0.35][:2]
            own = rng.permutation(own).astype(int).tolist()
            shape = [(card + card)[p] for p in [*own, v]]
            found[v] = own, drawn_table(rng, shape, kind)
        tables.append(found)
    return Case(card, *tables)


class Seen(NamedTuple):
    """Evidence as rows that a user would write, and as likelihoods."""

    rows: list[dict[str, Any]]
    likelihoods: oracle.Likelihoods


def drawn_evidence(rng: np.random.Generator, card: list[int], length: int) -> Seen:
    rows, likelihoods = [], []
    share = rng.choice([0.1, 0.4, 0.9])
    for _ in range(length):
        row: dict[str, Any] = {}
        own = []
        for v, size in enumerate(card):
            like = np.ones(size)
            if rng.random() < share:
                if rng.random() < 0.25:
                    like = 10.0 ** -(rng.random(size) * rng.choice([1.0, 60.0]))
                    like[rng.random(size) < 0.2] = 0.0
                    if not like.any():
                        like[rng.integers(size)] = 1.0
                    row[f"v{v}"] = like.tolist()
                else:
                    state = int(rng.integers(size))
                    row[f"v{v}"] = state
                    like = np.eye(size)[state]
            own.append(like)
        rows.append(row)
        likelihoods.append(own)
    return Seen(rows, likelihoods)


def close(a: Any, b: Any) -> bool:
    return bool(np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=False))


def check(case: Case, seen: list[Seen], rng: np.random.Generator) -> None:
    """Every question about some sequences at once, and each alone where one is impossible."""
    model, chain = case.model, case.chain
    n = len(case.card)
    names = list(model.names)
    truth = [oracle.solve(chain, one.likelihoods) for one in seen]
    rows = [{"case": c, **row} for c, one in enumerate(seen) for row in one.rows]
    log_likelihood = model.log_likelihood(rows)
    assert close(np.exp(log_likelihood - 1e-300), [math.exp(x.log_likelihood) for x in truth])
    for c, x in enumerate(truth):
        assert log_likelihood[c] == x.log_likelihood or close(log_likelihood[c], x.log_likelihood)
    bad = [c for c, x in enumerate(truth) if x.dead >= 0]
    if bad:
        where = f"case {bad[0]}, time {truth[bad[0]].dead}: "
        for ask in (model.filter, model.smooth, model.predict, model.best):
            with pytest.raises(ContradictionError, match=where):
                ask(rows) if ask == model.best else ask(rows, targets=names)
        rows = [row for row in rows if row["case"] not in bad]
    possible = [x for c, x in enumerate(truth) if c not in bad]
    if not possible:
        return
    filtered, smoothed = model.filter(rows, targets=names), model.smooth(rows, targets=names[::-1])
    horizon = int(rng.integers(1, 4))
    predicted = model.predict(rows, horizon)
    best = model.best(rows)
    assert close(best.log_score, [x.best for x in possible])
    ahead = []
    for x in possible:
        p = x.filtered[-1]
        for _ in range(horizon):
            p = p @ np.exp(chain.step)
            ahead.append(p)
    for v, size in enumerate(case.card):
        name = names[v]
        for answer, wanted in (
            (filtered, np.concatenate([x.filtered for x in possible])),
            (smoothed, np.concatenate([x.smoothed for x in possible])),
            (predicted, np.array(ahead)),
        ):
            assert close(answer[name], oracle.marginal(chain, wanted, v, size))
    step = np.cumsum([0] + [len(x.filtered) for x in possible])
    alive = [one for one, x in zip(seen, truth) if x.dead < 0]
    for c, one in enumerate(alive):
        path = best.states[step[c] : step[c + 1]]
        score = math.fsum(
            math.log(table[tuple([*path[t], *path[max(t - 1, 0)]][p] for p in [*own, v])])
            + math.log(one.likelihoods[t][v][path[t, v]])
            for t in range(len(path))
            for v, (own, table) in enumerate(case.step if t else case.first)
        )
        assert close(score, best.log_score[c])
    check_gaps(model, chain, alive, possible, rng)
    check_stream(model, chain, alive[0], possible[0])
    check_unrolled(case, alive[-1], possible[-1])
    counts = model._passes.counts(model._passes.read("", rows, {})[0])[0]
    for which, tables in enumerate((case.first, case.step)):
        for v, (own, table) in enumerate(tables):
            if not _is_leaf(case, which, v):
                wanted = np.zeros(table.shape)
                for x in possible:
                    _add_counts(chain, x, which, [*own, v], n, wanted)
                assert close(counts[which][v], wanted)


def check_gaps(
    model: Dynamic,
    chain: oracle.Chain,
    alive: list[Seen],
    possible: list[oracle.Answers],
    rng: np.random.Generator,
) -> None:
    """Rows of several cases mixed, those of unobserved slices left out."""
    begin = rng.integers(-5, 5, len(alive))
    listed = []
    for c, one in enumerate(alive):
        for t, row in enumerate(one.rows):
            if row or t in (0, len(one.rows) - 1):
                listed.append((int(begin[c]) + t, c, t, row))
    listed.sort(key=lambda x: x[:2])
    rows = [{"case": f"c{c}", "time": time, **row} for time, c, _, row in listed]
    v = int(rng.integers(model.n_variables))
    name, size = model.names[v], int(model.slice.n_states[v])
    found = model.smooth(rows, targets=name)
    wanted = np.array([possible[c].smoothed[t] for _, c, t, _ in listed])
    assert close(found[name], oracle.marginal(chain, wanted, v, size))
    assert found.time.tolist() == [time for time, *_ in listed]


def check_stream(model: Dynamic, chain: oracle.Chain, one: Seen, x: oracle.Answers) -> None:
    stream = model.stream()
    for t, row in enumerate(one.rows):
        found = stream.observe(row)
        for v, name in enumerate(model.names):
            size = int(model.slice.n_states[v])
            assert close(found[name], oracle.marginal(chain, x.filtered[t : t + 1], v, size)[0])
    assert close(stream.log_likelihood, x.log_likelihood)


def check_unrolled(case: Case, one: Seen, x: oracle.Answers) -> None:
    """The oracle itself, and the graph of all slices, by every joint state of that."""
    t, n = len(one.rows), len(case.card)
    if math.prod(case.card) ** t > 5000:
        return
    graph, every = case.model.unroll(t), np.indices(case.card * t).reshape(n * t, -1)
    assert graph.names == tuple(f"v{v}@{s}" for s in range(t) for v in range(n))
    with np.errstate(divide="ignore"):
        seen = [np.log(like) for own in one.likelihoods for like in own]
    log_p = graph.log_score(every.T) + sum(like[k] for like, k in zip(seen, every))
    top = log_p.max()
    p = np.exp(log_p - top)
    assert close(top + math.log(p.sum()), x.log_likelihood)
    assert close(top, x.best)
    for s in range(t):
        for v, size in enumerate(case.card):
            mine = np.bincount(every[s * n + v], p, size) / p.sum()
            assert close(mine, oracle.marginal(case.chain, x.smoothed[s : s + 1], v, size)[0])


def check_samples(case: Case, one: Seen, seed: int) -> None:
    """Pairs of successive slices are as frequent as they are probable."""
    chain = case.chain
    x = oracle.solve(chain, one.likelihoods)
    if x.dead >= 0:
        return
    n, t = 2000, len(one.rows)
    found = case.model.sample(n, seed=seed, evidence=one.rows)
    assert found.states.shape == (n * t, len(case.card)) and close(found.log_score, x.log_likelihood)
    joint = np.ravel_multi_index(tuple(found.states.T), case.card).reshape(n, t)
    k, s = len(chain.states), seed % max(t - 1, 1)
    expected, cells = x.smoothed[0], joint[:, 0]
    if t > 1:
        expected, cells = x.pairs[s].ravel(), joint[:, s] * k + joint[:, s + 1]
    counts = np.bincount(cells, minlength=len(expected))
    assert not counts[expected <= 1e-15].any()
    large = n * expected >= 5
    if large.sum() > 1:
        pull = ((counts - n * expected)[large] ** 2 / (n * expected)[large]).sum()
        assert chi2.sf(pull, large.sum()) > 1e-9


def _is_leaf(case: Case, which: int, v: int) -> bool:
    """Of these, what is missing adds no counts."""
    tables = case.step if which else case.first
    n = len(case.card)
    return v not in {p for own, _ in tables for p in own} and n + v not in {
        p for own, _ in case.step for p in own
    }


def _add_counts(
    chain: oracle.Chain, x: oracle.Answers, which: int, scope: list[int], n: int, out: np.ndarray
) -> None:
    k = len(chain.states)
    both = np.concatenate([np.tile(chain.states, (k, 1)), np.repeat(chain.states, k, 0)], axis=1)
    weight = x.pairs.sum(axis=0).ravel() if which else None
    if weight is None:
        both, weight = chain.states, x.smoothed[0]
    np.add.at(out, tuple(both[:, p] for p in scope), weight)


@pytest.mark.drawn
@pytest.mark.parametrize("first", range(0, 100 * blocks(3), 100))
def test_drawn_models_against_all_joint_states(first: int) -> None:
    for seed in few(range(first, first + 100), 14):
        rng = np.random.default_rng([39, seed])
        case = drawn_model(rng)
        lengths = rng.integers(1, 31 if rng.random() < 0.3 else 8, rng.integers(1, 12))
        seen = [drawn_evidence(rng, case.card, int(length)) for length in lengths]
        try:
            check(case, seen, rng)
            if seed % 10 == 0:
                check_samples(case, seen[0], seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
