"""Networks through time against sums over all joint states of a slice, and unrolled graphs."""

from __future__ import annotations

import json
import math
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import chi2

import fuzzing
import minfer
from draws import blocks, draws, few
from minfer import (
    ContradictionError,
    Dynamic,
    EvidenceError,
    FactorGraph,
    FormatError,
    ModelError,
    SettingsError,
)
from minfer.learn import DynamicNetwork
from minfer.through_time import passes
from oracle import slices as oracle
from test_cli import call, ok

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
    assert found.states.shape == (n * t, len(case.card))
    assert close(found.log_score, x.log_likelihood)
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


# ------------------------------------------------------------ small cases


def weather(first: Any = None, step: Any = None, **states: Any) -> Dynamic:
    return Dynamic(
        first or {"rain": [0.5, 0.5], "wet": ("rain", [[0.8, 0.2], [0.1, 0.9]])},
        step or {"rain": ("rain@-1", [[0.7, 0.3], [0.3, 0.7]])},
        {"rain": ["no", "yes"], "wet": ["no", "yes"], **states},
    )


FAIR = [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("first", "step", "message"),
    [
        ({"rain": ("wet", FAIR), "wet": ("rain", FAIR)}, None, "first slice: .*cycle.*rain"),
        (None, {"rain": ("wet", FAIR), "wet": ("rain", FAIR)}, "step: .*cycle.*rain"),
        (None, {"rain": ("rian@-1", FAIR)}, "step: rain has the parent 'rian@-1', no var"),
        (None, {"snow": [0.5, 0.5]}, "step: it has a table of 'snow', no variable"),
        (None, {"rain@-1": [0.5, 0.5]}, "step: .*'rain@-1', a variable of the slice before"),
        (None, {"rain": ("rain@-1", [[0.7, 0.3]])}, "step: .*rain"),
        (None, {"rain": ("rain@-1", [[0.7, 0.4], FAIR[0]])}, "step: .*rain"),
        ({"rain": [0.5, 0.5]}, None, "first slice: .*wet"),
        (None, 3, "step: it must be a FactorGraph or"),
    ],
)
def test_what_is_no_network_through_time_is_refused(first: Any, step: Any, message: str) -> None:
    with pytest.raises(ModelError, match=f"Dynamic: {message}"):
        weather(first, step)


def test_states_that_differ_between_slices_are_refused() -> None:
    first = FactorGraph.network({"a": ["x", "y"]}, {"a": [0.5, 0.5]})
    other = {"a": ["x", "z"], "a@-1": ["x", "y"]}
    step = FactorGraph.network(other, {"a": ("a@-1", FAIR), "a@-1": [0.5, 0.5]})
    with pytest.raises(ModelError, match="step: a has x, z, but in the first slice x, y"):
        Dynamic(first, step)
    two = FactorGraph.network({"a0": 2, "at": 3}, {"a0": [0.5, 0.5], "at": [0.2, 0.3, 0.5]})
    with pytest.raises(ModelError, match="the states of 'a' differ between slices"):
        Dynamic.from_network(two)
    with pytest.raises(ModelError, match="'a0' has no 'at' beside it"):
        Dynamic.from_network(FactorGraph.network({"a0": 2}, {"a0": [0.5, 0.5]}))
    with pytest.raises(ModelError, match="no variable ends in '0' or in 't'"):
        Dynamic.from_network(FactorGraph.network({"a": 2}, {"a": [0.5, 0.5]}))
    with pytest.raises(ModelError, match="must be a Bayesian network"):
        Dynamic(FactorGraph.empty([2], ["a"]), {})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"time": [0, 2, 1], "wet": ["no"] * 3}, "row 2: time 1 comes after 2"),
        ({"time": [0, 1, 1], "wet": ["no"] * 3}, "row 2: time 1 is there twice"),
        (
            {"case": ["a", "b", "a"], "time": [5, 1, 4], "wet": ["no"] * 3},
            "row 2: case a: time 4 comes after 5",
        ),
        ({"time": [0, 1.5], "wet": ["no"] * 2}, "row 1, column time: a time must be a whole"),
        ({"time": [0, None], "wet": ["no"] * 2}, "row 1, column time: .* not nothing"),
        ({"time": [0, 10**9], "wet": ["no"] * 2}, "column time: 999,999,999 slices without a row"),
        ({"case": ["a", None], "wet": ["no"] * 2}, "row 1, column case: the case is missing"),
        ({"wet": ["no", "maybe"]}, "row 1, column wet: .*maybe"),
        ({"wt": ["no", "no"]}, "column 'wt' is not a variable; did you mean wet"),
        ({"x": [1.0]}, "no column is a variable"),
        (["yes", "no"], "a list of states does not say what they are of"),
        (np.array([1, 0]), "a list of states does not say what they are of"),
        ([[{"wet": 1}], []], "case 1 has no rows"),
        ([[{"case": 4, "wet": 1}], [{"wet": 0}]], "each list of a list of lists is a case: 'case'"),
    ],
)
def test_rows_that_make_no_sequences_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(EvidenceError, match=f"filter: {message}"):
        weather().filter(rows)


def test_settings_are_checked() -> None:
    model, rows = weather(), {"wet": ["no", "yes"]}
    for ask, message in (
        (lambda: model.filter(rows, "snow"), "targets: .*snow"),
        (lambda: model.filter(rows, ["rain", "rain"]), "targets: rain is named twice"),
        (lambda: model.filter(rows, []), "targets: name a variable at least"),
        (lambda: model.filter(rows, case="id"), "there is no column 'id'"),
        (lambda: model.filter(rows, case="wet"), "case: 'wet' is a variable of the model"),
        (lambda: model.filter({**rows, "k": [0, 1]}, case="k", time="k"), "both case and time"),
        (lambda: model.filter(rows, speed=1), "there is no setting 'speed'"),
        (lambda: model.filter({"wet": ["no"], "rain": ["no"]}), "every variable has a column"),
        (lambda: model.predict(rows, 0), "predict: horizon"),
        (lambda: model.sample(3), "sample: say how long"),
        (lambda: model.unroll(0), "unroll: n"),
        (lambda: model.smooth(rows).rows_of("x"), "there is no case 'x' among 1 sequence"),
    ):
        with pytest.raises(SettingsError, match=message):
            ask()
    soft = {"rain": [[0.5, 0.5]]}
    with pytest.raises(EvidenceError, match=r"must have shape \(2, 2\), not \(1, 2\)"):
        model.filter(rows, soft=soft)
    with pytest.raises(EvidenceError, match="row 0: wet is observed twice"):
        model.filter(rows, soft={"wet": [[0.5, 0.5], [np.nan, np.nan]]})
    with pytest.raises(EvidenceError, match=r"filter: soft evidence: .*'snow'"):
        model.filter(rows, soft={"snow": [[0.5, 0.5], [0.5, 0.5]]})
    with pytest.raises(EvidenceError, match="row 1 must be finite"):
        model.filter(rows, soft={"rain": [[0.5, 0.5], [0.0, 0.0]]})


def test_likelihoods_beside_a_table() -> None:
    """``soft=`` says what likelihoods in a list of observations do, of mixed cases with gaps."""
    like = [[0.3, 0.7], [np.nan, np.nan], [5.0, 0.0], [1e-200, 1e-220]]
    rows = {"case": ["a", "b", "a", "b"], "time": [0, 7, 3, 8], "wet": [None, "no", None, None]}
    listed = [
        {
            "case": c,
            "time": t,
            **({"wet": w} if w else {}),
            **({} if np.isnan(x[0]) else {"wet": x}),
        }
        for c, t, w, x in zip(rows["case"], rows["time"], rows["wet"], like)
    ]
    model = weather()
    found, wanted = model.smooth(rows, "rain", soft={"wet": like}), model.smooth(listed, "rain")
    np.testing.assert_array_equal(found["rain"], wanted["rain"])
    np.testing.assert_array_equal(found.log_likelihood, wanted.log_likelihood)
    alone = model.smooth([{"wet": [0.3, 0.7]}, {}, {}, {"wet": "no"}], "rain")
    assert close(found["rain"][[0, 2]], alone["rain"][[0, 3]])


def test_ties_go_the_same_way_alone_and_in_company() -> None:
    names, rng = {"x": 3, "y": 3}, np.random.default_rng(8)
    even = np.full((3, 3), 1 / 3)
    model = Dynamic({"x": even[0], "y": ("x", even)}, {"x": ("x@-1", even)}, names)
    cases = [[{"y": int(rng.integers(3))} for _ in range(n)] for n in (1, 9, 30, 4, 9, 2, 8, 40, 3)]
    together = model.best(cases, workers=2)
    for c, rows in enumerate(cases):
        states = together.states[together.rows_of(c)]
        np.testing.assert_array_equal(states, model.best(rows).states)


def test_likelihoods_of_any_range() -> None:
    """The quotient of two floats may be none: nothing that is possible becomes impossible."""
    sure = weather({"rain": [1.0, 0.0], "wet": ("rain", [[0.0, 1.0], [1.0, 0.0]])})
    row = {"wet": [1e250, 1e-310]}
    assert close(sure.log_likelihood([row]), math.log(1e-310))
    assert sure.filter([row], targets="rain")["rain"].tolist() == [[1.0, 0.0]]
    stream = sure.stream("rain")
    assert stream.observe(row)["rain"].tolist() == [1.0, 0.0]
    assert close(stream.log_likelihood, math.log(1e-310))


def test_streams_take_what_is_missing() -> None:
    wanted = weather().filter([{}, {"wet": "yes"}], "rain")["rain"]
    for nothing in (None, {}, {"wet": None}, {"wet": np.nan}):
        stream = weather().stream("rain")
        stream.observe(nothing)
        assert close(stream.observe({"wet": np.array([0, 1])})["rain"], wanted[1])
    assert repr(stream) == "EvidenceStream(2 slices observed)"


def test_variables_called_as_columns_are() -> None:
    tables = {"rain": [0.5, 0.5], "wet": ("rain", [[0.8, 0.2], [0.1, 0.9]])}
    plain = Dynamic(tables, {"rain": ("rain@-1", FAIR)}, {"rain": 2, "wet": 2})
    tables = {"case": tables["rain"], "time": ("case", tables["wet"][1])}
    odd = Dynamic(tables, {"case": ("case@-1", FAIR)}, {"case": 2, "time": 2})
    rows = [[1, 0, 1], [0], [1, None]]
    wanted = plain.predict([[{"wet": x} for x in own] for own in rows], 2)
    found = odd.predict([[{"time": x} for x in own] for own in rows], 2)
    np.testing.assert_array_equal(found["case"], wanted["rain"])
    assert close(found.log_likelihood, wanted.log_likelihood)
    assert list(found.columns())[:3] == ["case_", "time_", "case"]
    assert list(odd.sample(1, 2).columns()) == ["case_", "time_", "case", "time"]


def test_an_index_of_cases_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"case": [0, 1], "wet": ["no", "yes"]}).set_index("case")
    with pytest.raises(SettingsError, match="filter: case: 'case' is in the index"):
        weather().filter(frame)
    assert len(weather().filter(frame.reset_index()).log_likelihood) == 2


def test_a_contradiction_has_its_time_and_case() -> None:
    stuck = weather(step={"rain": ("rain@-1", np.eye(2))})
    rows = {"case": ["a", "a", "b", "b", "b"], "time": [3, 4, 7, 8, 9],
            "rain": ["no", "no", "yes", None, "no"]}  # fmt: skip
    for ask in (stuck.filter, stuck.smooth, stuck.predict, stuck.best):
        with pytest.raises(ContradictionError, match=r"case b, time 9: .* has probability zero"):
            ask(rows)
    assert stuck.log_likelihood(rows)[1] == -np.inf
    stream = stuck.stream()
    stream.observe({"rain": "yes"})
    with pytest.raises(ContradictionError, match="observe: time 1: "):
        stream.observe({"rain": "no"})
    assert stream.time == 1
    assert stream.observe({"wet": "no"})["rain"][1] == 1.0


def test_tables_come_out_as_they_went_in(tmp_path: Path) -> None:
    model = weather()
    columns = {"id": ["x", "x", "y"], "when": [0, 2, 0], "wet": ["yes", "no", ""]}
    wanted = model.smooth(columns, case="id", time="when")
    assert list(wanted.columns()) == [
        "id", "when", "rain", "P(rain)", "P(rain=no)", "P(rain=yes)",
    ]  # fmt: skip
    two = model.smooth([{"wet": "yes"}, {}, {"wet": "no"}])
    np.testing.assert_allclose(wanted["rain"][:2], two["rain"][[0, 2]], atol=1e-15)
    path = tmp_path / "rows.csv"
    lines = ["id,when,wet", *(",".join(map(str, row)) for row in zip(*columns.values()))]
    path.write_text("\n".join(lines) + "\n")
    read = model.smooth(path, case="id", time="when")
    assert read.to_dict() == {**wanted.to_dict(), "when": ["0", "2", "0"]}
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns, index=[4, 7, 9])
    found = model.smooth(frame, case="id", time="when").table()
    assert found.index.tolist() == [4, 7, 9]
    assert found["rain"].tolist() == ["yes", "no", "no"]
    ahead = model.predict(frame, 2, "rain", case="id", time="when").table()
    assert ahead[["id", "when"]].values.tolist() == [["x", 3], ["x", 4], ["y", 1], ["y", 2]]


def test_no_graph_of_all_slices_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in variables nor in memory: what a pass keeps grows as the root of T does."""
    most, made = [0], FactorGraph.__init__

    def counting(self: FactorGraph, *given: Any, **more: Any) -> None:
        made(self, *given, **more)
        most[0] = max(most[0], self.n_variables)

    monkeypatch.setattr(FactorGraph, "__init__", counting)
    model, rng = weather(), np.random.default_rng(0)
    assert most[0] == 4  # a slice and the one before
    rows = {"wet": rng.integers(2, size=100_000)}
    began = time.perf_counter()
    smoothed = model.smooth(rows)
    model.filter(rows), model.best(rows), model.predict(rows, 5), model.log_likelihood(rows)
    assert time.perf_counter() - began < 20.0
    assert most[0] == 4
    assert len(smoothed) == 100_000
    assert model.unroll(3).n_variables == 6
    short = model.smooth({"wet": rows["wet"][:60]})
    np.testing.assert_allclose(smoothed["rain"][:30], short["rain"][:30], atol=1e-6)


def grown(n: int) -> float:
    """MiB by which the peak of the process grows in n more observations."""
    stream = weather().stream()
    for _ in range(1000):
        stream.observe({"wet": 1})
    before = peak_rss()
    for k in range(n):
        stream.observe({"wet": k & 1})
    return peak_rss() - before


def peak_rss() -> float:
    resource = pytest.importorskip("resource")
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / unit


def test_streams_do_not_grow() -> None:
    assert grown(3000) <= 5.0


@pytest.mark.slow
def test_streams_do_not_grow_in_a_million_steps() -> None:
    assert grown(999_000) <= 5.0


def test_checkpoints_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drawn_evidence(np.random.default_rng(1), [2, 2], 90).rows
    rows = [{"rain" if k == "v0" else "wet": x for k, x in row.items()} for row in rows]
    model = weather()
    whole, best = model.smooth(rows, "rain"), model.best(rows)
    drawn = model.sample(20, evidence=rows)
    monkeypatch.setattr(passes, "_KEPT", 1)
    np.testing.assert_array_equal(model.smooth(rows, "rain")["rain"], whole["rain"])
    np.testing.assert_array_equal(model.best(rows).states, best.states)
    np.testing.assert_array_equal(model.sample(20, evidence=rows).states, drawn.states)


def test_threads_change_nothing() -> None:
    rng = np.random.default_rng(5)
    rows = {"case": np.repeat(np.arange(100), 9), "wet": rng.integers(2, size=900)}
    one, two = (weather().smooth(rows, workers=k)["rain"] for k in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_a_hidden_markov_model_in_one_line() -> None:
    pi, a, b = [0.6, 0.4], [[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]]
    model = Dynamic.hmm(pi, a, b, states={"state": ["healthy", "fever"]})
    best = model.best({"symbol": [0, 1, 2]})
    assert best.to_dict()["state"] == ["healthy", "healthy", "fever"]
    assert close(best.log_score, math.log(0.01512))  # by hand
    alpha = np.array(pi) * np.array(b)[:, 0]
    for x in (1, 2):
        alpha = alpha @ np.array(a) * np.array(b)[:, x]
    assert close(model.log_likelihood({"symbol": [0, 1, 2]}), math.log(alpha.sum()))
    with pytest.raises(ModelError, match=r"Dynamic.hmm: names must be two that differ"):
        Dynamic.hmm(pi, a, b, names=("x", "x"))
    with pytest.raises(ModelError, match=r"Dynamic.hmm: .*not \(2,\), \(2, 2\), \(3, 2\)"):
        Dynamic.hmm(pi, a, np.full((3, 2), 0.5))


# ------------------------------------------------------------ files and other libraries


def same_tables(a: Dynamic, b: Dynamic) -> None:
    assert a.names == b.names
    assert a.slice._states == b.slice._states
    for mine, other in zip([*a.first, *a.step], [*b.first, *b.step]):
        assert mine.parents == other.parents
        np.testing.assert_allclose(mine.table, other.table, rtol=0, atol=1e-15)  # files have logs


def test_files(tmp_path: Path) -> None:
    model = weather()
    model.save(tmp_path / "m.minfer")
    same_tables(Dynamic.load(tmp_path / "m.minfer"), model)
    with pytest.raises(FormatError, match=r"network through time: minfer\.Dynamic"):
        minfer.read(tmp_path / "m.minfer")
    minfer.write(model.unroll(2), tmp_path / "plain.minfer")
    with pytest.raises(FormatError, match=r"a model without time: minfer\.read"):
        Dynamic.load(tmp_path / "plain.minfer")
    for seed in range(10):
        case = drawn_model(np.random.default_rng([2, seed]))
        case.model.save(tmp_path / "d.minfer")
        same_tables(Dynamic.load(tmp_path / "d.minfer"), case.model)


def test_xdsl(tmp_path: Path) -> None:
    path = tmp_path / "umbrella.xdsl"
    path.write_bytes(fuzzing.XDSL_TIME)
    model = Dynamic.load(path)
    assert model.names == ("Place", "Rain", "Umbrella")
    assert model.interface == ("Place", "Rain")
    later = [[[0.7, 0.3], [0.3, 0.7]], [[0.001, 0.999], [0.01, 0.99]]]
    tables: dict[str, Any] = {"Place": [0.5, 0.5]}
    for t in range(4):
        now, past = f"Rain{t}", f"Rain{t - 1}"
        tables[now] = (["Place", past], later) if t else ("Place", [[0.7, 0.3], [0.01, 0.99]])
        tables[f"Umbrella{t}"] = now, [[0.9, 0.1], [0.2, 0.8]]
    plain = FactorGraph.network(dict.fromkeys(tables, 2), tables)
    every, seen = np.indices([2] * 9).reshape(9, -1), [0, 0, None, 1]
    p = np.exp(plain.log_score(every.T))
    rows = [{} if x is None else {"Umbrella": x} for x in seen]
    found = model.smooth(rows, ["Rain", "Place"])
    for t, x in enumerate(seen):
        p = p if x is None else p * (every[plain.index(f"Umbrella{t}")] == x)
    for t in range(4):
        for name, own in (("Rain", f"Rain{t}"), ("Place", "Place")):
            wanted = np.bincount(every[plain.index(own)], p, 2) / p.sum()
            assert close(found[name][t], wanted)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('order="1"', 'order="2"', "<cpt>: Rain: only tables of order 1 are read"),
        ('dynamic="plate"', 'dynamic="terminal"', "Rain is a terminal node"),
        ('<cpt id="Rain" order', '<equation id="Rain" order', "mismatched tag"),
        ('<cpt id="Rain" order', '<cpt id="Place" order', "Place is not a node on the plate"),
        ("0.001 0.999", "", "the table of Rain has 6 numbers, but needs 2 x 2 x 2"),
        ("<parents>Rain</parents>\n", "", "the table of Rain has 8 numbers, but needs 2 x 2"),
        ("0.7 0.3 0.3 0.7", "0.7 0.3 0.3 0.8", "sum"),
        ('<dynamic numslices="5">', "<dynamic/><dynamic>", "it should hold one <dynamic>"),
    ],
)
def test_bad_xdsl(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = fuzzing.XDSL_TIME.decode()
    at = text.rindex(old) if old.startswith("<parents>") else text.index(old)
    (tmp_path / "m.xdsl").write_text(text[:at] + new + text[at + len(old) :])
    with pytest.raises(FormatError, match=rf"m\.xdsl: line \d+, column \d+.*{message}"):
        Dynamic.load(tmp_path / "m.xdsl")


def test_what_is_the_same_at_all_times() -> None:
    """A variable without an end, as pyAgrum has them, against the network that has it once."""
    states = {"a0": 2, "kind": 3, "at": 2}
    pi, first = [0.2, 0.3, 0.5], [[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]]
    later = [[[0.8, 0.2], [0.1, 0.9]], [[0.3, 0.7], [0.6, 0.4]], [[0.5, 0.5], [0.0, 1.0]]]
    tables: Any = {"at": (["kind", "a0"], later), "kind": pi, "a0": ("kind", first)}
    model = Dynamic.from_network(FactorGraph.network(states, tables))
    assert model.names == ("a", "kind")
    plain = {"kind": pi, "a0": ("kind", first)}
    plain |= {f"a{t}": (["kind", f"a{t - 1}"], later) for t in range(1, 5)}
    graph = FactorGraph.network({"kind": 3, **{f"a{t}": 2 for t in range(5)}}, plain)
    every = np.indices([3, 2, 2, 2, 2, 2]).reshape(6, -1)
    p = np.exp(graph.log_score(every.T)) * (every[1] == 1) * (every[4] == 0)
    found = model.smooth([{"a": 1}, {}, {}, {"a": 0}, {}], ["kind", "a"])
    for t in range(5):
        assert close(found["kind"][t], np.bincount(every[0], p, 3) / p.sum())
        assert close(found["a"][t], np.bincount(every[t + 1], p, 2) / p.sum())
    for tables, message in (
        ({"a": FAIR[0], "a0": FAIR[0], "at": FAIR[0]}, "'a' is the same at all times.* 'a0'"),
        ({"k": ("a0", FAIR), "a0": FAIR[0], "at": FAIR[0]}, "'k', which is .* has the parent 'a0'"),
        ({"a0": ("at", FAIR), "at": FAIR[0]}, "'a0' of the first slice has the parent 'at'"),
    ):
        with pytest.raises(ModelError, match=message):
            Dynamic.from_network(FactorGraph.network(dict.fromkeys(tables, 2), tables))


def test_networks_of_pyagrum() -> None:
    gum = pytest.importorskip("pyagrum")
    bn = gum.fastBN("a0->at;a0->b0;at->bt", 2)
    model = Dynamic.from_network(bn)
    assert model.names == ("a", "b")
    assert model.interface == ("a",)
    step = [bn.cpt("at")[{"a0": k}] for k in range(2)]
    np.testing.assert_allclose(model.step[0].table, step, atol=1e-15)
    np.testing.assert_allclose(model.first[0].table, bn.cpt("a0").toarray(), atol=1e-15)
    unrolled = minfer.interop.to_pyagrum(model.unroll(6))
    engine = gum.LazyPropagation(unrolled)
    engine.setEvidence({"b@1": 0, "b@4": 1})
    engine.makeInference()
    found = model.smooth([{}, {"b": 0}, {}, {}, {"b": 1}, {}], "a")
    for t in range(6):
        assert close(found["a"][t], engine.posterior(f"a@{t}").toarray())


# ------------------------------------------------------------ learning


def em_step(case: Case, seen: list[Seen], theta: list[oracle.Tables]) -> tuple[Any, float]:
    """Tied tables after a step of EM without a prior, and the log-likelihood before it."""
    chain = oracle.chain(case.card, *theta)
    counts = [[np.zeros(table.shape) for _, table in own] for own in theta]
    total = 0.0
    for one in seen:
        x = oracle.solve(chain, one.likelihoods)
        total += x.log_likelihood
        for which, own in enumerate(theta):
            for v, (parents, _) in enumerate(own):
                known = [not (at[v] == 1.0).all() for at in one.likelihoods]
                y = x  # a leaf that is not observed is summed out
                if _is_leaf(case, which, v):
                    pairs, first = np.array(known[1:])[:, None, None], x.smoothed[:1] * known[0]
                    y = x._replace(pairs=x.pairs * pairs, smoothed=first)
                _add_counts(chain, y, which, [*parents, v], len(case.card), counts[which][v])
    for v in range(len(case.card)):
        if theta[0][v][0] == theta[1][v][0]:
            counts[0][v] = counts[1][v] = counts[0][v] + counts[1][v]
    out = []
    for own, found in zip(theta, counts):
        totals = [x.sum(-1, keepdims=True) for x in found]
        rows = [  # rows without data are uniform
            np.where(n > 0, x / np.where(n > 0, n, 1), 1 / x.shape[-1])
            for x, n in zip(found, totals)
        ]
        out.append([(parents, x) for (parents, _), x in zip(own, rows)])
    return out, total


@pytest.mark.drawn
def test_em_against_all_joint_states() -> None:
    for seed in range(draws(40)):
        rng = np.random.default_rng([40, seed])
        case = drawn_model(rng, 12)
        tables = [[(p, drawn_table(rng, list(x.shape), "mild")) for p, x in own]
                  for own in (case.first, case.step)]  # fmt: skip
        for v in range(len(case.card)):
            if tables[0][v][0] == tables[1][v][0]:
                tables[1][v] = tables[0][v]
        case = Case(case.card, *tables)
        seen = []
        for length in rng.integers(1, 9, 12):
            one = drawn_evidence(rng, case.card, int(length))
            rows = [{k: x for k, x in row.items() if isinstance(x, int)} for row in one.rows]
            like = [[own if f"v{v}" in row else np.ones(len(own)) for v, own in enumerate(at)]
                    for row, at in zip(rows, one.likelihoods)]  # fmt: skip
            seen.append(Seen(rows, like))
        rows = [{"case": c, **row} for c, one in enumerate(seen) for row in one.rows]
        names = {f"v{v}" for v in range(len(case.card))}
        rows[0] |= dict.fromkeys(names - set(rows[0]))  # all have columns
        net = DynamicNetwork(case.model, start="structure", prior="none", max_iterations=3, tol=0.0)
        net.fit(rows)
        theta, trace = tables, []
        for _ in range(len(net.trace_) - 1):
            theta, score = em_step(case, seen, theta)
            trace.append(score)
        assert close(net.trace_[:-1], trace), f"seed {seed}"
        for which, own in enumerate((net.model_.first, net.model_.step)):
            for v, found in enumerate(own):
                wanted = theta[which][v][1]
                if not _is_leaf(case, which, v):
                    assert close(found.table, wanted), f"seed {seed}"


def test_learned_from_counts_and_saved(tmp_path: Path) -> None:
    true = weather()
    drawn = true.sample(200, 20, seed=3)
    structure = {"rain": "rain@-1", "wet": "rain"}
    names = {"rain": ["no", "yes"], "wet": ["no", "yes"]}
    net = DynamicNetwork(structure, names, prior="none").fit(drawn.to_dict())
    assert net.status_ == "counted"
    assert net.model_.first[1].table is not None
    for mine, other in zip(net.model_.step, true.step):
        np.testing.assert_allclose(mine.table, other.table, atol=0.05)
    x = drawn["rain"].reshape(200, 20)
    pairs = np.bincount(x[:, :-1].ravel() * 2 + x[:, 1:].ravel(), minlength=4).reshape(2, 2)
    np.testing.assert_allclose(net.model_.step[0].table, pairs / pairs.sum(1, keepdims=True))
    net.save(tmp_path / "m.minfer")
    same_tables(Dynamic.load(tmp_path / "m.minfer"), net.model_)
    hidden = DynamicNetwork(structure, names, start="random", progress=True, max_iterations=5)
    hidden.fit({k: x for k, x in drawn.to_dict().items() if k != "rain"})
    assert all(b >= a - 1e-9 for a, b in pairwise(hidden.trace_))
    assert close(hidden.score({"wet": [0, 1]}), hidden.model_.log_likelihood({"wet": [0, 1]})[0])
    for settings, message in (
        ({"structure": 3}, "structure must be a Dynamic"),
        ({"structure": {"x": ()}, "states": names}, "'x' has none"),
        ({"structure": {"rain": None}, "states": names}, "parents of 'rain' must be names"),
        ({"structure": {"rain": [0]}, "states": names}, "parents of 'rain' must be names"),
        ({"structure": structure, "states": names, "start": "structure"}, "needs a Dynamic"),
    ):
        with pytest.raises(SettingsError, match=message):
            DynamicNetwork(**settings).fit({"wet": [0]})
    with pytest.raises(ModelError, match="there are no rows"):
        DynamicNetwork(structure, names).fit({"wet": []})
    stuck = weather(step={"rain": ("rain@-1", np.eye(2))})
    with pytest.raises(ContradictionError, match="time 1: the tables to begin with"):
        DynamicNetwork(stuck, start="structure").fit({"rain": ["no", "yes"], "wet": [None, None]})


# ------------------------------------------------------------ the command line, plots


def test_commands(tmp_path: Path) -> None:
    model = weather()
    model.save(tmp_path / "m.minfer")
    (tmp_path / "u.xdsl").write_bytes(fuzzing.XDSL_TIME)
    rows = tmp_path / "rows.csv"
    rows.write_text("case,time,wet,Umbrella\na,0,yes,true\na,3,,false\nb,0,no,\n")
    common = [str(tmp_path / "m.minfer"), str(rows), "-o", str(tmp_path / "out.csv")]
    for question, columns, n in (
        ("filter", "case,time,rain,P(rain),P(rain=no),P(rain=yes)", 3),
        ("smooth", "case,time,rain,P(rain),P(rain=no),P(rain=yes)", 3),
        ("predict", "case,time,rain,P(rain),", 2),
        ("best", "case,time,rain,wet", 3),
    ):
        ok("time", question, *common)
        head, *lines = (tmp_path / "out.csv").read_text().splitlines()
        assert head.startswith(columns), question
        assert len(lines) == n
    said = json.loads(ok("time", "smooth", *common, "--json", "--workers", "1").stdout)
    assert said["rows"] == 3
    assert said["log_scores"] == model.log_likelihood(rows).tolist()
    umbrella = ok("time", "smooth", str(tmp_path / "u.xdsl"), str(rows), "-t", "Rain").stdout
    found = Dynamic.load(tmp_path / "u.xdsl").smooth(rows, "Rain")["Rain"]
    assert [float(line.split(",")[-1]) for line in umbrella.splitlines()[1:]] == found[
        :, 1
    ].tolist()
    ok("time", "unroll", str(tmp_path / "m.minfer"), "3", "-o", str(tmp_path / "three.uai"))
    assert minfer.read(tmp_path / "three.uai").n_variables == 6
    page = tmp_path / "page.html"
    ok("time", "unroll", str(tmp_path / "m.minfer"), "3", "-o", str(tmp_path / "three.minfer"))
    ok("explore", str(tmp_path / "three.minfer"), "-o", str(page))
    assert "rain@2" in page.read_text()
    rows.write_text("case,time,wet\na,1,yes\na,0,no\n")
    failed = call("time", "filter", *common)
    assert failed.exit_code == 3
    assert "row 2: case a: time 0 comes after 1" in failed.stderr


def test_plot() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    rows = {"case": ["a", "a", "b"], "time": [4, 6, 0], "wet": ["yes", "no", "no"]}
    found = weather().smooth(rows)
    ax = found.plot("rain", case="a")
    assert ax.get_title() == "rain"
    assert ax.get_xlim() == (4, 6)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["no", "yes"]
    with pytest.raises(ModelError, match="wet is not among the targets"):
        found.plot("wet")
