"""Columns of numbers in bins: against numpy's quantile and digitize, and by hand."""

from __future__ import annotations

import itertools
import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minfer
from minfer.errors import EvidenceError, SettingsError
from minfer.learn import BayesianNetwork, compare_bins
from minfer.learn.bins import Cuts
from minfer.model.states import bin_edges, bin_names
from refused import refused
from test_cli import ok

NUMBERS = st.lists(
    st.one_of(
        st.integers(-20, 20).map(float),
        st.floats(-1e6, 1e6).map(lambda x: float(np.float32(x))),
        st.floats(0, 1e-3),
    ),
    min_size=1, max_size=40,
)  # fmt: skip


@given(NUMBERS, st.integers(1, 8))
@settings(max_examples=300, deadline=None)
def test_bins_are_those_of_numpy(values, k):
    """Quantiles, without those that leave a bin empty, and equal parts: the same bins."""
    x = np.array(values)
    edges = Cuts.of(k, "test").edges(x)
    assert all(a < b for a, b in itertools.pairwise(edges))
    plain = np.digitize(x, np.quantile(x, np.arange(1, k) / k))
    _, wanted = np.unique(plain, return_inverse=True)
    np.testing.assert_array_equal(np.digitize(x, edges), wanted)
    edges = Cuts.of(f"width:{k}", "test").edges(x)
    assert all(a < b for a, b in itertools.pairwise(edges))
    cuts = np.linspace(x.min(), x.max(), k + 1)[1:-1]
    if len(edges) == len(cuts) and not np.isclose(x[:, None], cuts, rtol=1e-9, atol=0).any():
        np.testing.assert_array_equal(np.digitize(x, edges), np.digitize(x, cuts))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=6, unique=True))
def test_names_say_the_edges(edges):
    edges = sorted(x + 0.0 for x in edges)
    names = bin_names(edges)
    assert len(set(names)) == len(edges) + 1
    assert bin_edges(names) == tuple(edges)
    graph = minfer.FactorGraph.named({"x": list(names)}, {})
    for value in (-1e300, -3, 0.5, 7e200, *edges):
        wanted = int(np.digitize(value, edges)) if edges else 0
        assert graph.state("x", value) == graph.state("x", repr(value)) == wanted


@pytest.mark.parametrize(
    "names", [("low", "high"), ("< 2", ">= 3"), ("< 2", "1 to 3", ">= 3"), ("< x", ">= x"),
              ("< 3", "3 to 2", ">= 2"), ("< inf", ">= inf"), ("< 2",), ("1 to 2", ">= 2")],
)  # fmt: skip
def test_other_names_are_no_bins(names):
    assert bin_edges(names) is None


def message_length(classes):
    """Entropy in bits, and how many classes there are."""
    share = np.bincount(classes) / len(classes)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum()), len(share)


def supervised(x, classes):
    """Fayyad and Irani's recursion, one cut after another."""
    best, n = None, len(x)
    h, k = message_length(classes)
    for a, b in itertools.pairwise(np.unique(x)):
        low = x <= a
        (h1, k1), (h2, k2) = message_length(classes[low]), message_length(classes[~low])
        rest = (low.sum() * h1 + (~low).sum() * h2) / n
        if best is None or rest < best[0] - 1e-12:
            best = rest, (a + b) / 2, low, k * h - k1 * h1 - k2 * h2
    if best is None or k < 2:
        return []
    rest, cut, low, less = best
    if n * (h - rest) <= math.log2(n - 1) + math.log2(3**k - 2) - less:
        return []
    return [*supervised(x[low], classes[low]), cut, *supervised(x[~low], classes[~low])]


@pytest.mark.parametrize("seed", range(30))
def test_supervised_bins_are_fayyad_and_iranis(seed):
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, size=80)
    x = (classes * rng.choice([0, 1, 2]) + rng.normal(size=80)).round(rng.integers(0, 3))
    found, wanted = Cuts("supervised", "c").edges(x, classes), supervised(x, classes)
    np.testing.assert_array_equal(np.digitize(x, found), np.digitize(x, wanted))


def rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 15, size=n)
    ill = np.where(age + rng.normal(size=n) * 8 > 55, "yes", "no")
    return {"age": age, "visits": rng.integers(0, 4, size=n), "ill": ill}


EDGES = [("ill", "age"), ("ill", "visits")]


@pytest.mark.parametrize("bins", [4, "width:4", {"age": [30, 60]}, {"age": "edges:30,60"}])
def test_a_network_over_bins_is_one_over_their_numbers(bins):
    X = rows()
    X["age"][7] = np.nan
    net = BayesianNetwork(EDGES, bins=bins).fit(X)
    assert list(net.bins_) == ["age"]  # visits has four whole numbers
    assert net.states_["age"] == list(bin_names(net.bins_["age"]))
    by_hand = [None if a != a else int(np.digitize(a, net.bins_["age"])) for a in X["age"]]
    other = BayesianNetwork(EDGES).fit({**X, "age": by_hand})
    np.testing.assert_allclose(net.tables_["age"], other.tables_["age"], atol=1e-12)
    np.testing.assert_allclose(net.score_samples(X), other.score_samples({**X, "age": by_hand}))
    new = {"age": [5.123, -1e9, 44, "51.5", None], "visits": [0, 1, 2, 3, 3]}
    states = [
        None if a is None else int(np.digitize(float(a), net.bins_["age"])) for a in new["age"]
    ]
    wanted = minfer.predict(other.model_, {**new, "age": states}, "ill")["P(ill=yes)"]
    np.testing.assert_allclose(minfer.predict(net.model_, new, "ill")["P(ill=yes)"], wanted)


@pytest.mark.parametrize("suffix", ["minfer", "bif", "xmlbif", "net"])
def test_files_keep_them(tmp_path, suffix):
    net = BayesianNetwork(EDGES, bins="supervised:ill").fit(rows())
    net.save(tmp_path / f"net.{suffix}")
    again = minfer.read(tmp_path / f"net.{suffix}")
    assert again.states("age") == net.model_.states("age")
    one, other = (minfer.query(g, "ill", {"age": 47.11}) for g in (net.model_, again))
    np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize(
    ("bins", "said"),
    [
        ("many", "bins must be"),
        (0, "at least 1 bin"),
        ("width:0", "at least 1 bin"),
        ([3, 2], "edges must be increasing"),
        ({"aeg": 3}, "called 'aeg'; did you mean age"),
        ({"age": "supervised:il"}, "must name another column.*did you mean ill"),
        ({"age": "supervised:age"}, "must name another column"),
        ({"ill": 3}, "which is no finite number"),
        (3.5, "bins must be"),
    ],
)
def test_wrong_bins_are_refused(bins, said):
    with pytest.raises((SettingsError, EvidenceError), match=said):
        BayesianNetwork(EDGES, bins=bins).fit(rows())


def test_infinity_states_and_given_tables_are_refused():
    X = rows()
    X["age"][3] = np.inf
    with pytest.raises(EvidenceError, match="'inf', which is no finite number"):
        BayesianNetwork(EDGES, bins={"age": 3}).fit(X)
    net = BayesianNetwork(EDGES, bins={"age": 3}).fit(rows())
    with pytest.raises(
        EvidenceError, match=r"row 3, column age: age has the states .* a finite number"
    ):
        minfer.predict(net.model_, X, "ill")
    refused(SettingsError, "states= and bins=", BayesianNetwork(
        EDGES, bins={"age": 3}, states={"age": ["a", "b"]}).fit, rows())  # fmt: skip
    refused(SettingsError, "would change the states", BayesianNetwork(
        net.model_, bins=3, start="structure").fit, rows())  # fmt: skip


@pytest.mark.parametrize("kind", [Decimal, Fraction, str, np.float32])
def test_numbers_of_all_kinds(kind):
    X = rows(100)
    X["age"] = [kind(round(x, 1)) for x in X["age"].tolist()]
    plain = BayesianNetwork(EDGES, bins=3).fit({**X, "age": [float(x) for x in X["age"]]})
    net = BayesianNetwork(EDGES, bins={"age": 3}).fit(X)
    assert net.bins_ == plain.bins_
    np.testing.assert_allclose(net.tables_["age"], plain.tables_["age"])
    one = minfer.query(net.model_, "ill", {"age": kind(51)})
    np.testing.assert_allclose(one, minfer.query(net.model_, "ill", {"age": 51.0}))
    told = minfer.predict(net.model_, {"age": [kind(51)]}, "ill")["P(ill=yes)"]
    np.testing.assert_allclose(told, one["yes"])


def test_what_keeps_a_column_out_of_bins_is_said():
    """NA among ages, and infinity, where bins are asked for all measurements."""
    X = rows(200)
    for ages in (X["age"].round(2), np.arange(200) % 60):
        texts = [*map(str, ages[1:].tolist()), "NA"]
        with pytest.warns(UserWarning, match=r"without 'NA': missing=\['', 'NA'\] and bins="):
            BayesianNetwork(EDGES, bins=4).fit({**X, "age": texts})
        net = BayesianNetwork(EDGES, bins=4, missing=("", "NA")).fit({**X, "age": texts})
        assert len(net.bins_["age"]) == 3
    refused(EvidenceError, "column 'age' has infinity", BayesianNetwork(EDGES, bins=4).fit,
            {**X, "age": [*X["age"][1:], np.inf]})  # fmt: skip


def test_measurements_without_bins_are_noticed():
    X = {"x": np.repeat(np.arange(35) / 10, 5), "y": np.arange(175) % 15}
    with pytest.warns(UserWarning, match=r"'x' has 35 different values.*bins=\{'x': 5\}") as found:
        BayesianNetwork().fit(X)
    assert len(found) == 1


def test_the_number_of_bins_is_compared_by_hand():
    """Two folds of a network of two columns, counted and scored here."""
    X = rows(60)
    del X["visits"]
    found = compare_bins(BayesianNetwork([("ill", "age")]), X, [1, 3], folds=2, random_state=5)
    fold = np.random.default_rng(5).permutation(60) % 2
    for k, score in zip([1, 3], found.scores):
        total = 0.0
        for f in (0, 1):
            train, test = fold != f, fold == f
            edges = Cuts("quantiles", k).edges(X["age"][train])
            a, ill = np.digitize(X["age"], edges), X["ill"] == "yes"
            for i in np.flatnonzero(test):
                same = train & (ill == ill[i])
                total += math.log((same.sum() + 1) / (train.sum() + 2))
                total += math.log(((same & (a == a[i])).sum() + 1) / (same.sum() + k))
                total -= math.log(((train & (a == a[i])).sum() + 1) / (train.sum() + k))
        assert score == pytest.approx(total / 60, abs=1e-9)
    assert found.best == 3
    assert found.best_bins == {"age": "quantiles:3"}
    assert "3 bins are best" in str(found)
    net, X = BayesianNetwork([("ill", "age")]), {"ill": ["a", "b"], "age": [1, 2]}
    refused(SettingsError, "no column is in bins", compare_bins, net, X, folds=2)


def test_the_command_puts_columns_into_bins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = rows(200)
    lines = [",".join(map(str, row)) for row in zip(*X.values())]
    (tmp_path / "cases.csv").write_text("\n".join([",".join(X), *lines]))
    BayesianNetwork(EDGES, bins=2).fit(X).save("net.bif")
    done = ok("learn", "net.bif", "cases.csv", "-o", "out.bif", "--bins", "age=edges:40,60.5")
    assert "age: < 40, 40 to 60.5, >= 60.5" in done.stderr
    assert minfer.read("out.bif").states("age") == ("< 40", "40 to 60.5", ">= 60.5")
    done = ok("learn", "net.bif", "cases.csv", "-o", "out.bif", "--bins", "5", "--compare-bins",
              "1,4", "--json")  # fmt: skip
    facts = json.loads(done.stdout)
    assert facts["compared"]["best"] == 4
    assert len(facts["bins"]["age"]) == 3
    said = [ok("query", "out.bif", "ill", "-e", f"age={x}").stdout for x in ("5.123", "-7", "90")]
    assert said[0] == said[1] != said[2]
    done = ok("predict", "out.bif", "cases.csv", "-t", "ill", "-o", "-")
    assert "P(ill=yes)" in done.stdout
