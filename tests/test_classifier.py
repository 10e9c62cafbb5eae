"""Networks that predict a column, and how good predictions are: by hand and by scikit-learn."""

from __future__ import annotations

import json

import numpy as np
import pytest

import minfer
from minfer.errors import ContradictionError, EvidenceError, ModelError, SettingsError
from minfer.learn import BayesianNetwork, NetworkClassifier
from refused import refused
from test_cli import ok


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    kind = rng.choice(["oak", "birch", "fir"], size=n, p=[0.5, 0.3, 0.2])
    height = 4.0 * (kind == "oak") + 2.0 * (kind == "fir") + rng.normal(size=n)
    bark = np.where(rng.random(n) < 0.8, np.where(kind == "birch", "white", "grey"), "brown")
    return {"height": height, "bark": bark.astype(object)}, kind


def test_naive_bayes_by_hand():
    X, kind = rows()
    net = NetworkClassifier(bins=4, strength=0.5).fit(X, kind)
    assert net.classes_.tolist() == ["birch", "fir", "oak"]
    assert net.parents_ == {"y": [], "height": ["y"], "bark": ["y"]}
    tall = np.digitize(X["height"], net.bins_["height"])
    p = np.empty((len(kind), 3))
    for k, c in enumerate(net.classes_):
        own = kind == c
        p[:, k] = (own.sum() + 0.5) / (len(kind) + 1.5)
        for column, size in ((tall, 4), (X["bark"], 3)):
            for value in set(column.tolist()):
                share = ((column[own] == value).sum() + 0.5) / (own.sum() + 0.5 * size)
                p[column == value, k] *= share
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(net.predict_proba(X), p, rtol=1e-9)
    best = net.classes_[p.argmax(axis=1)]
    np.testing.assert_array_equal(net.predict(X), best)
    assert net.score(X, kind) == (best == kind).mean()
    whole = {**X, "y": kind}
    again = NetworkClassifier(bins=4, strength=0.5).fit(whole)  # the target as a column of X
    np.testing.assert_allclose(again.predict_proba(whole), p, rtol=1e-9)
    np.testing.assert_allclose(again.predict_proba(X), p, rtol=1e-9)
    assert again.score(whole) == net.score(X, kind)
    assert net.predict({"height": [None, np.nan], "bark": [None, "white"]}).tolist() == [
        "oak", "birch"]  # fmt: skip


def test_structures_and_labels_of_all_kinds():
    X, kind = rows()
    structure = [("y", "bark"), ("bark", "height"), ("y", "height")]
    net = NetworkClassifier(structure, bins=3).fit(X, kind)
    plain = BayesianNetwork(structure, bins=3).fit({**X, "y": kind})
    np.testing.assert_allclose(net.tables_["height"], plain.tables_["height"])
    wanted = minfer.predict(plain.model_, X, "y")
    np.testing.assert_allclose(net.predict_proba(X)[:, 2], wanted["P(y=oak)"])
    for labels in ([3, 10, 2], [False, True, True], [1.0, 0.0, 2.0]):
        y = np.array(labels)[np.unique(kind, return_inverse=True)[1]]
        found = NetworkClassifier(bins=3).fit(X, y)
        assert found.classes_.dtype == y.dtype
        assert found.classes_.tolist() == sorted(set(labels))
        assert found.score(X, y) > 0.6
    known = minfer.FactorGraph.network(
        {"y": ["oak", "fir", "birch", "elm"], "bark": ["brown", "grey", "white"]},
        {"y": [0.25] * 4, "bark": ("y", np.full((4, 3), 1 / 3))},
    )
    found = NetworkClassifier(known).fit(X, kind)
    assert found.classes_.tolist() == ["birch", "elm", "fir", "oak"]
    assert found.predict({"height": [9.0], "bark": ["white"]}).tolist() == ["birch"]


@pytest.mark.parametrize("labels", [["10", "9", "2"], [10, 9, 2], [True, False, True]])
def test_classes_are_of_the_types_of_their_column(labels):
    """Predictions can be compared with the column, whether it is y or a column of X."""
    X, kind = rows(60)
    column = np.array(labels)[np.unique(kind, return_inverse=True)[1]]
    net = NetworkClassifier().fit({**X, "y": column})
    same = NetworkClassifier().fit(X, column)
    assert net.classes_.tolist() == same.classes_.tolist()
    assert net.classes_.dtype.kind == same.classes_.dtype.kind
    np.testing.assert_array_equal(net.predict(X), same.predict(X))
    assert net.score({**X, "y": column}) == same.score(X, column) == (
        (net.predict(X) == column).mean())  # fmt: skip


def test_what_it_refuses():
    X, kind = rows(40)
    refused(ModelError, "no column is called 'y'", NetworkClassifier().fit, X)
    refused(
        SettingsError, "X has the target's column", NetworkClassifier(target="bark").fit, X, kind
    )
    refused(ModelError, "no variable of the structure", NetworkClassifier(
        [("bark", "height")]).fit, X, kind)  # fmt: skip
    refused(ModelError, "needs y", NetworkClassifier().fit(X, kind).score, X)
    sure = NetworkClassifier(prior="none").fit(
        {"a": ["x", "x", "z"], "b": ["u", "v", "v"]}, [0, 1, 1]
    )
    refused(ContradictionError, "row 1 has probability zero", sure.predict,
            {"a": ["x", "z"], "b": ["v", "u"]})  # fmt: skip


def test_it_works_in_scikit_learns_tools():
    selection = pytest.importorskip("sklearn.model_selection")
    pd = pytest.importorskip("pandas")
    X, kind = rows(120)
    search = selection.GridSearchCV(NetworkClassifier(), {"bins": ["supervised", 2, 5]}, cv=3)
    search.fit(pd.DataFrame(X), kind)
    assert search.best_score_ > 0.7


def test_evaluation_is_that_of_its_definitions(tmp_path):
    metrics = pytest.importorskip("sklearn.metrics")
    X, kind = rows()
    net = BayesianNetwork([("y", "height"), ("y", "bark")], bins=4).fit({**X, "y": kind})
    y = kind.astype(object)
    y[::7] = None
    found = minfer.evaluate(net.model_, {**X, "y": y}, "y")
    there = np.array([x is not None for x in y])
    p = minfer.predict(net.model_, X, "y")
    probs = np.stack([p[f"P(y={s})"] for s in found.states], axis=1)[there]
    truth = kind[there]
    assert found.unknown == (~there).sum()
    assert found.accuracy == pytest.approx(metrics.accuracy_score(truth, p["y"][there]))
    assert found.log_loss == pytest.approx(metrics.log_loss(truth, probs))
    one = np.array(found.states) == truth[:, None]
    assert found.brier == pytest.approx(((probs - one) ** 2).sum(axis=1).mean())
    np.testing.assert_array_equal(
        found.confusion, metrics.confusion_matrix(truth, p["y"][there], labels=list(found.states))
    )
    right = p["y"][there] == truth
    assert found.calibration.ece == pytest.approx(minfer.plots.reliability(
        np.minimum(p["P(y)"][there], 1), right).error)  # fmt: skip
    share = np.bincount(np.unique(truth, return_inverse=True)[1]) / len(truth)
    assert found.by_shares == pytest.approx(
        (share.max(), -(share * np.log(share)).sum(), 1 - (share**2).sum()))  # fmt: skip
    assert "shares alone" in str(found)
    lines = [",".join("" if x is None else str(x) for x in row) for row in zip(*X.values(), y)]
    (tmp_path / "cases.csv").write_text("\n".join(["height,bark,y", *lines]))
    filed = minfer.evaluate(net.model_, tmp_path / "cases.csv", "y")
    assert filed.log_loss == pytest.approx(found.log_loss)
    np.testing.assert_array_equal(filed.confusion, found.confusion)
    net.save(tmp_path / "net.bif")
    said = ok("evaluate", tmp_path / "net.bif", tmp_path / "cases.csv", "y", "--json")  # fmt: skip
    assert json.loads(said.stdout)["log_loss"] == pytest.approx(found.log_loss)
    said = ok("evaluate", tmp_path / "net.bif", tmp_path / "cases.csv", "y", "--bins", 4)
    assert f"{found.log_loss:.4f}" in said.stdout
    assert "0.8 to 1.0" in said.stdout or "0.75" in said.stdout


def test_the_plot_and_what_evaluation_refuses(tmp_path):
    pytest.importorskip("matplotlib")
    X, kind = rows(50)
    net = BayesianNetwork([("y", "bark")]).fit({**X, "y": kind}).model_
    minfer.evaluate(net, {**X, "y": kind}, "y").draw(str(tmp_path / "c.png"))
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    refused(EvidenceError, "no column 'y'", minfer.evaluate, net, X, "y")
    refused(ModelError, "no row has a known y", minfer.evaluate, net, {**X, "y": [None] * 50}, "y")
    refused(EvidenceError, "evidence on itself", minfer.evaluate, net, X, "y", evidence=["y"])
    refused(EvidenceError, "row 1, column y", minfer.evaluate, net,
            {"bark": ["grey", "grey"], "y": ["oak", "elm"]}, "y")  # fmt: skip


def test_impossible_rows_do_not_count():
    net = BayesianNetwork([("a", "b")], prior="none").fit({"a": ["x", "z"], "b": ["u", "u"],
                                                          "c": [1, 1]})  # fmt: skip
    model = minfer.FactorGraph.network(
        {"a": ["x", "z"], "b": ["u", "v"]}, {"a": [0.5, 0.5], "b": ("a", [[1, 0], [1, 0]])}
    )
    found = minfer.evaluate(model, {"a": ["x", "x", None], "b": ["u", "v", "v"]}, "a")
    assert (found.impossible, found.unknown, found.confusion.sum()) == (2, 1, 1)
    assert net.model_.n_variables == 2
