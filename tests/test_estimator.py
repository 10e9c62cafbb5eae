"""Estimators have scikit-learn's habits, without scikit-learn."""

from __future__ import annotations

import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest

from minfer.errors import ModelError, NotFittedError, SettingsError
from minfer.learn import (
    BayesianNetwork,
    ChainCRF,
    GridCRF,
    IsingModel,
    NetworkClassifier,
    PottsModel,
)
from minfer.learn.estimator import Estimator
from refused import refused


class Mean(Estimator):
    """The mean of each column."""

    def __init__(self, scale: float = 1.0, *, inner: Estimator | None = None) -> None:
        self.scale = scale
        self.inner = inner

    def fit(self, X, y=None):
        self.mean_ = self._numbers(X, reset=True).mean(axis=0) * self.scale
        return self

    def predict(self, X):
        self._check_fitted("predict")
        return self._numbers(X, reset=False) - self.mean_


def test_parameters_come_from_the_signature():
    mean = Mean(2.0, inner=Mean())
    assert mean.get_params(deep=False) == {"scale": 2.0, "inner": mean.inner}
    assert mean.get_params()["inner__scale"] == 1.0
    assert mean.set_params(inner__scale=3.0, scale=4.0) is mean
    assert (mean.scale, mean.inner.scale) == (4.0, 3.0)
    assert repr(mean) == "Mean(scale=4.0, inner=Mean(scale=3.0))"
    refused(SettingsError, "no parameter 'scal'; did you mean scale", Mean().set_params, scal=1.0)
    classes, codes = Mean()._labels(["b", "a", "b"], 3)
    assert classes.tolist() == ["a", "b"]
    assert codes.tolist() == [1, 0, 1]


def test_it_is_one_of_scikit_learns():
    exceptions = pytest.importorskip("sklearn.exceptions")
    for kind in (NotFittedError, exceptions.NotFittedError, ValueError):
        refused(kind, "Mean is not fitted yet: call fit before predict", Mean().predict, [[1.0]])
    base = pytest.importorskip("sklearn.base")
    utils = pytest.importorskip("sklearn.utils")
    mean = Mean(2.0).fit([[1.0], [3.0]])
    copy = base.clone(mean)
    assert copy.scale == 2.0
    assert not hasattr(copy, "mean_")
    assert utils.get_tags(mean).estimator_type is None


def test_scikit_learn_is_not_imported():
    code = (
        "import sys, minfer.learn.estimator as e\n"
        "class A(e.Estimator):\n    def __init__(self): pass\n"
        "try: A()._check_fitted()\nexcept e.NotFittedError: pass\n"
        "assert not any(m.split('.')[0] == 'sklearn' for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("fit", [1.0, 2.0], "Reshape your data"),
        ("fit", [[np.nan]], "NaN in row 0, column 0"),
        ("fit", [[1.0, np.inf]], "infinity in row 0, column 1"),
        ("fit", np.zeros((0, 2)), "0 sample"),
        ("fit", np.zeros((2, 0)), "0 feature"),
        ("fit", [["a"]], "not a number"),
        ("fit", [[1j]], "Complex data not supported"),
        ("fit", [[1.0], [1.0, 2.0]], "not a table of numbers"),
        ("_labels", None, "requires y"),
        ("_labels", [0, 1, 0], "3 labels, but X has 2 rows"),
        ("_labels", [0.5, 1.0], "Unknown label type"),
        ("_labels", [np.nan, 1.0], "NaN"),
        ("_labels", [["a", "b"], ["c", "d"]], "one label per row"),
    ],
)
def test_tables_of_numbers_and_labels_are_checked(method, given, said):
    rows = [2] if method == "_labels" else []
    refused(ModelError, said, getattr(Mean(), method), given, *rows)


def test_another_width_and_other_names_are_refused():
    mean = Mean().fit([[1.0, 2.0]])
    assert mean.n_features_in_ == 2
    refused(ModelError, "X has 1 features, but Mean is expecting 2", mean.predict, [[1.0]])
    pd = pytest.importorskip("pandas")
    mean = Mean().fit(pd.DataFrame({"a": [1.0], "b": [2.0]}))
    assert mean.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ModelError, match=r"unseen at fit time: c; seen at fit time.*missing: b"):
        mean.predict(pd.DataFrame({"a": [1.0], "c": [2.0]}))
    refused(ModelError, "same order", mean.predict, pd.DataFrame({"b": [1.0], "a": [2.0]}))
    mean.fit([[1.0]])
    assert not hasattr(mean, "feature_names_in_")


class Halves(IsingModel):
    """Any numbers, by whether they are above zero: scikit-learn's checks hand in no states."""

    def _numbers(self, X, **how):
        return (super()._numbers(X, **how) > 0).astype(float)


class Thirds(PottsModel):
    """Any numbers in three states, for the same reason."""

    def _numbers(self, X, **how):
        return np.clip(np.rint(super()._numbers(X, **how)), -1, 1) + 1


class Pixels(GridCRF):
    """Rows as pictures of one pixel, its label a class: what checks of classifiers are about.

    Their labels may be -1, so classes are numbered first.
    """

    _tags: ClassVar = {}

    def fit(self, X, y=None):
        x = self._numbers(X, reset=True)
        classes, codes = self._labels(y, len(x))
        super().fit(x[:, None, None], codes[:, None, None])
        self.classes_ = classes
        return self

    def predict_proba(self, X):
        self._check_fitted("predict_proba")
        return super().predict_proba(self._numbers(X, reset=False)[:, None, None])[:, 0, 0]

    def score(self, X, y):
        return float((self.predict(X) == np.asarray(y)).mean())


class RowCRF(ChainCRF):
    """A row an item, its label a class: what scikit-learn's checks of classifiers are about."""

    _estimator_type = "classifier"
    _tags: ClassVar = {}

    def __init__(self, c2=0.01, max_iterations=10_000):
        super().__init__(c2=c2, max_iterations=max_iterations)


@pytest.mark.filterwarnings("ignore:Estimator .* does not inherit")
@pytest.mark.filterwarnings("ignore:Can't test estimator GridCRF")
@pytest.mark.parametrize(
    ("estimator", "least"),
    [(GridCRF(), 1), (Halves(max_iters=20), 35), (Thirds(max_iters=20), 35),
     (Thirds(max_iters=20, pairs="table"), 35), (IsingModel(), 1), (PottsModel(), 1),
     pytest.param(Pixels("pseudolikelihood", max_iters=20), 50, marks=pytest.mark.slow),
     pytest.param(NetworkClassifier(), 40, marks=pytest.mark.slow),
     (BayesianNetwork(), 31), (ChainCRF(c2=0.01), 31), (RowCRF(), 31)],
    ids=repr,
)  # fmt: skip
def test_scikit_learns_own_checks(estimator, least):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    found = checks.check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {x["check_name"]: str(x["exception"]) for x in found if x["status"] == "failed"}
    if type(estimator) in (IsingModel, PottsModel):  # all it finds is that its data are no states
        no_states = ("states are whole numbers from 0 on", "raised ModelError unexpectedly")
        failed = {k: text for k, text in failed.items() if not any(r in text for r in no_states)}
    assert not failed
    assert sum(x["status"] == "passed" for x in found) >= least
