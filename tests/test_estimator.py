"""Estimators have scikit-learn's habits, without scikit-learn."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from minfer.errors import ModelError, NotFittedError, SettingsError
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
    ("given", "said"),
    [
        ([1.0, 2.0], "Reshape your data"),
        ([[np.nan]], "NaN in row 0, column 0"),
        ([[1.0, np.inf]], "infinity in row 0, column 1"),
        (np.zeros((0, 2)), "0 sample"),
        (np.zeros((2, 0)), "0 feature"),
        ([["a"]], "not a number"),
        ([[1j]], "Complex data not supported"),
        ([[1.0], [1.0, 2.0]], "not a table of numbers"),
    ],
)
def test_tables_of_numbers_are_checked(given, said):
    refused(ModelError, said, Mean().fit, given)


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


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (None, "requires y"),
        ([0, 1, 0], "3 labels, but X has 2 rows"),
        ([0.5, 1.0], "Unknown label type"),
        ([np.nan, 1.0], "NaN"),
        ([["a", "b"], ["c", "d"]], "one label per row"),
    ],
)
def test_labels_are_checked(y, said):
    refused(ModelError, said, Mean()._labels, y, 2)
