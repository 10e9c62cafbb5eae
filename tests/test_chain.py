"""Linear-chain random fields: against all paths, finite differences and crfsuite."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws
from minfer.errors import FormatError, ModelError, NotFittedError, SettingsError
from minfer.learn import ChainCRF
from minfer.learn import chain as chain_module
from minfer.learn.save import write_arrays
from refused import refused


def drawn(seed, n=6, n_labels=3, longest=4, n_names=5, values=True):
    """Sequences of items with a few features each, and labels."""
    rng = np.random.default_rng(seed)
    names = [f"f{k}" for k in range(n_names)]
    X, y = [], []
    for _ in range(n):
        size = int(rng.integers(1, longest + 1))
        some = [rng.choice(names, size=rng.integers(1, 4), replace=False) for _ in range(size)]
        X.append([{str(a): float(rng.normal()) if values else 1.0 for a in own} for own in some])
        y.append([f"L{k}" for k in rng.integers(0, n_labels, size=size)])
    return X, y


def path_score(crf, items, labels):
    """The score of a path by the weights as a user sees them."""
    state, link = crf.state_features_, crf.transition_features_
    total = sum(
        x * state.get((name, label), 0.0)
        for item, label in zip(items, labels)
        for name, x in item.items()
    )
    return total + sum(link.get(pair, 0.0) for pair in itertools.pairwise(labels))


def by_all_paths(crf, items):
    """log Z, marginals and the best score by enumeration."""
    classes = crf.classes_.tolist()
    paths = [*itertools.product(classes, repeat=len(items))]
    scores = np.array([path_score(crf, items, path) for path in paths])
    top = scores.max()
    p = np.exp(scores - top)
    log_z = top + math.log(p.sum())
    p /= p.sum()
    marginals = np.zeros((len(items), len(classes)))
    for path, weight in zip(paths, p):
        for t, label in enumerate(path):
            marginals[t, classes.index(label)] += weight
    return log_z, marginals, top


@settings(max_examples=draws(25), deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.1, 1.0, 30.0, 400.0, 2000.0]))
def test_answers_are_those_of_all_paths(seed, scale):
    """Also where weights are so large that linear numbers would underflow."""
    X, y = drawn(seed, n_labels=2 + seed % 3)
    crf = ChainCRF(c2=0.5, all_possible_transitions=True, max_iterations=5).fit(X, y)
    rng = np.random.default_rng(seed)
    crf.coef_ = rng.normal(size=crf.coef_.shape) * scale
    crf.transitions_ = rng.normal(size=crf.transitions_.shape) * scale
    likelihoods = crf.log_likelihood(X, y)
    for items, labels, probs, best, own in zip(
        X, y, crf.predict_proba(X), crf.predict(X), likelihoods
    ):
        log_z, marginals, top = by_all_paths(crf, items)
        size = max(1.0, abs(log_z))
        np.testing.assert_allclose(probs, marginals, atol=1e-11 * size)
        assert path_score(crf, items, best) == pytest.approx(top, rel=1e-12, abs=1e-9)
        assert own == pytest.approx(path_score(crf, items, labels) - log_z, abs=1e-11 * size)


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("wide", [1, 4, 10**9])
def test_gradients_are_those_of_finite_differences(monkeypatch, scale, wide):
    """By the objective that training calls, narrow attributes, wide ones and both."""
    monkeypatch.setattr(chain_module, "_WIDE", wide)
    X, y = drawn(3, n=5, n_labels=3)
    rng = np.random.default_rng(0)
    checked = []

    def look(objective, x, **_):
        x = rng.normal(size=x.shape) * scale
        _, grad = objective(x)
        grad = grad.copy()
        for k in range(len(x)):
            h = 1e-5 * max(1.0, abs(x[k]))
            up, down = x.copy(), x.copy()
            up[k] += h
            down[k] -= h
            slope = (objective(up)[0] - objective(down)[0]) / (2 * h)
            if grad[k] or slope:  # lines of wide attributes have places without a feature
                assert grad[k] == pytest.approx(slope, abs=1e-6 * max(1.0, abs(slope)))
            checked.append(k)
        raise StopIteration

    monkeypatch.setattr(chain_module, "minimise", look)
    refused(StopIteration, "", ChainCRF(c2=0.3).fit, X, y)
    assert len(checked) > 10


def test_the_objective_is_that_of_the_definition():
    X, y = drawn(1)
    crf = ChainCRF(c1=0.0, c2=0.7, delta=0.0).fit(X, y)
    penalty = 0.7 * ((crf.coef_**2).sum() + (crf.transitions_**2).sum())
    assert crf.objective_ == pytest.approx(penalty - crf.log_likelihood(X, y).sum(), rel=1e-12)
    assert crf.converged_
    assert crf.gap_ < 1e-6
    assert crf.trace_[0] == pytest.approx(sum(map(len, y)) * math.log(3))
    X, y = drawn(4, n=20)
    crf = ChainCRF(c1=0.5, c2=0.0, delta=0.0, epsilon=1e-6).fit(X, y)
    assert crf.converged_
    assert (crf.coef_ == 0.0).any()
    best = crf.objective_
    rng = np.random.default_rng(0)
    for _ in range(20):  # nothing near is better
        crf.coef_, kept = crf.coef_ + 1e-3 * rng.normal(size=len(crf.coef_)), crf.coef_
        penalty = 0.5 * (np.abs(crf.coef_).sum() + np.abs(crf.transitions_).sum())
        assert penalty - crf.log_likelihood(X, y).sum() > best
        crf.coef_ = kept


def test_attributes_of_one_column_are_trained_as_one_and_nothing_changes(monkeypatch):
    X, y = drawn(2, n=12, values=False)
    X = [[{**item, "twin": 1.0, "triplet": 1.0, "all": 1.0} for item in s] for s in X]
    X[0][0] |= {"once": 1.0, "only": 1.0}
    names = {name for s in X for item in s for name in item}

    def alone(items, n_attr):
        return items, np.arange(n_attr), np.ones(n_attr, dtype=np.int64)

    for c1 in (0.0, 0.2):
        merged = ChainCRF(c1=c1, c2=0.1, delta=0.0, epsilon=1e-9).fit(X, y)
        with monkeypatch.context() as patch:
            patch.setattr(chain_module, "_merged", alone)
            plain = ChainCRF(c1=c1, c2=0.1, delta=0.0, epsilon=1e-9).fit(X, y)
        assert set(merged.attributes_) == set(plain.attributes_) == names
        assert merged.objective_ == pytest.approx(plain.objective_, rel=1e-10)
        for key, weight in plain.state_features_.items():
            assert merged.state_features_[key] == pytest.approx(weight, abs=1e-5)


@pytest.mark.parametrize(
    "settings_",
    [
        {},
        {"c1": 0.3, "c2": 0.1},
        {"all_possible_transitions": True, "all_possible_states": True},
        {"min_freq": 3.0},
    ],
)
def test_crfsuite_finds_the_same(tmp_path, settings_):
    """The same features, objective, weights and answers."""
    pycrfsuite = pytest.importorskip("pycrfsuite")
    X, y = drawn(5, n=40, n_names=8, values=False)
    crf = ChainCRF(epsilon=1e-7, delta=0.0, all_possible_transitions=False).set_params(**settings_)
    crf.fit(X, y)
    trainer = pycrfsuite.Trainer(verbose=False)
    for items, labels in zip(X, y):
        trainer.append(items, labels)
    names = {
        "min_freq": "feature.minfreq",
        "all_possible_transitions": "feature.possible_transitions",
        "all_possible_states": "feature.possible_states",
    }
    theirs = {names.get(k, k): v for k, v in settings_.items()}
    trainer.set_params({"c1": 0.0, "c2": 1.0, "epsilon": 1e-7, "delta": 1e-12, **theirs})
    trainer.train(str(tmp_path / "model"))
    assert crf.objective_ == pytest.approx(trainer.logparser.iterations[-1]["loss"], rel=1e-6)
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "model"))
    info = tagger.info()
    ours = {k: v for k, v in crf.state_features_.items() if v}
    assert {k for k, v in info.state_features.items() if v} == set(ours)
    for key, weight in info.state_features.items():
        assert ours[key] == pytest.approx(weight, abs=2e-3)
    for items, probs in zip(X, crf.predict_proba(X)):
        tagger.set(items)
        for t in range(len(items)):
            for k, label in enumerate(crf.classes_.tolist()):
                assert probs[t, k] == pytest.approx(tagger.marginal(label, t), abs=1e-3)


ITEMS = [
    ["a", "b"],
    {"a": 1.5, "b": True, "c": False},
    {"a": "x", "b": 2},
    {"a": {"b": 0.5, "c": "d"}, "e": ["f", "g"]},
]


def test_features_are_named_as_python_crfsuite_names_them():
    pycrfsuite = pytest.importorskip("pycrfsuite")
    for item, theirs in zip(ITEMS, pycrfsuite.ItemSequence(ITEMS).items()):
        assert dict(chain_module._named(item, "")) == pytest.approx(theirs)


def test_fast_and_careful_reading_agree():
    plain = [[{"a": 1.0, "b": 2.0}, ["c"]], [["a", "b"]]]
    for grow in (True, False):
        ids = {"a": 0, "b": 1, "c": 2}
        fast = chain_module._by_name(plain, ids, grow)
        careful = chain_module._by_name_with_care(plain, ids, grow)
        for one, two in zip(fast, careful):
            np.testing.assert_array_equal(one, two)


def test_arrays_of_numbers_are_sequences_too():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 3)) for n in (4, 1, 6, 3)]
    y = [(x[:, 0] > 0).astype(int).tolist() for x in X]
    crf = ChainCRF(c2=0.01).fit(X, y)
    assert crf.n_features_in_ == 3
    assert crf.score(X, y) == 1.0
    assert [p.shape for p in crf.predict_proba(X)] == [(4, 2), (1, 2), (6, 2), (3, 2)]
    named = [[dict(zip(("bias", "0", "1", "2"), (1.0, *row))) for row in x.tolist()] for x in X]
    same = ChainCRF(c2=0.01).fit(named, y)
    assert same.objective_ == pytest.approx(crf.objective_, rel=1e-5)


def test_mpm_viterbi_unknown_features_and_empty_sequences():
    X, y = drawn(7, n=30)
    crf = ChainCRF(c2=0.1, decode="mpm").fit(X, y)
    for path, probs in zip(crf.predict(X), crf.predict_proba(X)):
        assert path == crf.classes_[probs.argmax(axis=1)].tolist()
    for rows, probs in zip(crf.predict_marginals(X), crf.predict_proba(X)):
        assert [[*row.values()] for row in rows] == probs.tolist()
        assert [*rows[0]] == crf.classes_.tolist()
    X, y = drawn(8)
    crf = ChainCRF().fit([*X, []], [*y, []])
    assert crf.predict([[], [["never seen"]]])[0] == []
    assert len(crf.predict([[], [["never seen"]]])[1]) == 1
    assert crf.predict([]) == []
    assert crf.predict_proba([]) == []
    assert crf.log_likelihood([[]], [[]]).tolist() == [0.0]
    assert crf.log_likelihood(X[:1], [["Q"] * len(X[0])]).tolist() == [-np.inf]


def test_saved_models_are_the_same_bit_for_bit(tmp_path):
    X, y = drawn(9)
    for labels in (y, [[int(label[1]) for label in own] for own in y]):
        crf = ChainCRF(c2=0.25, decode="mpm").fit(X, labels)
        crf.save(tmp_path / "model.crf")
        again = ChainCRF.load(tmp_path / "model.crf")
        assert again.get_params() == crf.get_params()
        assert again.classes_.dtype == crf.classes_.dtype
        assert again.predict(X) == crf.predict(X)
        for one, two in zip(again.predict_proba(X), crf.predict_proba(X)):
            np.testing.assert_array_equal(one, two)
        assert (again.status_, again.trace_) == (crf.status_, crf.trace_)
    path = tmp_path / "other.crf"
    write_arrays(path, "fitted model", {"names": ["a", "b"]}, {"weights": np.zeros(2)})
    refused(FormatError, "it is a fitted model", ChainCRF.load, path)


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        ([], [], "no sequences"),
        ([[["a"]]], [["x", "y"]], "sequence 0 has 1 item, but 2 labels"),
        ([[{"a": math.nan}]], [["x"]], "sequence 0, item 0: the value of a is nan"),
        ([["abc"]], [["x"]], "item 0 must be a list or a dict of features"),
        ([[[1]]], [["x"]], "features must be strings"),
        ([[["a"]]], [[None]], "a label must be a string"),
        ([[["a"], ["b"]]], [["x", 1]], "of one type"),
        ("abc", ["x"], "X must be a list of sequences"),
        ([np.zeros((2, 2)), np.zeros((2, 3))], [[0, 1], [0, 1]], "mixed"),
        ([np.zeros((2, 2)), [["a"]]], [[0, 1], [0]], "sequence 1 is not of the same kind"),
        ([np.full((2, 2), np.nan)], [[0, 1]], "NaN"),
    ],
)
def test_bad_input_is_refused(X, y, said):
    refused(ModelError, said, ChainCRF().fit, X, y)


def test_bad_labels_settings_and_asking_too_early_are_refused():
    with pytest.raises(ModelError, match=r"item 1, .* has label 'Z', which is not one of"):
        ChainCRF(classes=["A", "B"]).fit([[["a"], ["b"]]], [["A", "Z"]])
    crf = ChainCRF(classes=["B", "A", "C"]).fit([[["a"], ["b"]]], [["A", "B"]])
    assert crf.classes_.tolist() == ["A", "B", "C"]
    refused(SettingsError, "different labels", ChainCRF(classes=["A", "A"]).fit, [[["a"]]], [["A"]])
    for wrong in ({"c2": -1.0}, {"c1": math.nan}, {"decode": "best"}, {"period": 0}):
        refused(SettingsError, next(iter(wrong)), ChainCRF(**wrong).fit, [[["a"]]], [["x"]])
    for ask in ("predict", "predict_proba", "predict_marginals"):
        refused(NotFittedError, "call fit", getattr(ChainCRF(), ask), [[["a"]]])
    with pytest.raises(ModelError, match="learned from features by name"):
        ChainCRF().fit([[["a"]]], [["x"]]).predict([[1.0]])


def test_separable_data_without_a_penalty_end_with_a_status():
    X = [[["a"], ["b"]], [["b"], ["a"]]] * 3
    y = [["A", "B"], ["B", "A"]] * 3
    crf = ChainCRF(c2=0.0, delta=0.0, epsilon=0.0).fit(X, y)
    assert crf.status_ == "separable"
    assert not crf.converged_
    assert "set c2 > 0" in crf.advice_
    assert np.isfinite(crf.coef_).all()
    assert crf.score(X, y) == 1.0
    X = [[["a", "k"]], [["a"]], [["b"]], [["b"]]]
    y = [["A"], ["A"], ["A"], ["B"]]
    crf = ChainCRF(c2=0.0, delta=0.0, epsilon=0.0, max_iterations=500).fit(X, y)
    assert crf.status_ != "converged"
    assert crf.advice_
    assert np.isfinite(crf.coef_).all()
    assert np.isfinite(crf.objective_)


def test_it_takes_part_in_a_grid_search():
    selection = pytest.importorskip("sklearn.model_selection")
    X, y = drawn(11, n=24)
    search = selection.GridSearchCV(ChainCRF(), {"c2": [0.1, 1.0]}, cv=3).fit(X, y)
    assert search.best_params_["c2"] in (0.1, 1.0)
    assert len(search.predict(X)) == len(X)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("c2", [0.0, 1.0])
def test_values_beyond_any_square_end_with_a_status(c2):
    crf = ChainCRF(c2=c2).fit([[{"a": 1e200}, {"a": 1e200}], [{"a": -1e200}]], [["x", "y"], ["y"]])
    assert crf.status_ == "features are too large"
    assert "scale" in crf.advice_
    assert not crf.converged_
    assert np.isfinite(crf.transitions_).all()
    assert crf.predict([[{"a": 1e200}]])[0][0] in ("x", "y")
