"""Bayesian networks as classifiers: a target column, and scikit-learn's words for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_type
from minfer.errors import ContradictionError, ModelError, SettingsError, visible
from minfer.graph import FactorGraph
from minfer.learn.case_columns import columns_of, state_name
from minfer.learn.tables import BayesianNetwork
from minfer.model.evidence import Factorised, is_missing
from minfer.model.states import number_of

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class NetworkClassifier(BayesianNetwork):
    """A Bayesian network that predicts one column from the others, for scikit-learn's tools.

    All of :class:`BayesianNetwork`, and what follows. Predictions are exact posteriors; cells that
    are missing (None, NaN, "") are summed out.

    Parameters
    ----------
    structure : as for `BayesianNetwork`, with the target in it
        None is naive Bayes: the target is the only parent of every other column.
    target : str
        The variable that ``y`` is, or a column of X if ``fit`` is given no ``y``.
    bins : as for `BayesianNetwork`
        By default "supervised": where measurements tell most about the target. None: no bins.

    Attributes
    ----------
    classes_ : (K,) the target's states, as ``y`` has them

    Examples
    --------
    >>> X = [[4.9, 1.4], [5.0, 1.5], [5.1, 1.3], [6.2, 4.5], [6.4, 4.4], [6.0, 4.7]] * 3
    >>> y = ["setosa", "setosa", "setosa", "other", "other", "other"] * 3
    >>> net = NetworkClassifier().fit(X, y)
    >>> net.predict([[5.123, 1.4], [9.9, float("nan")]]).tolist(), net.score(X, y)
    (['setosa', 'other'], 1.0)
    >>> net.states_["x1"], net.predict_proba([[5.123, 1.4]]).round(2).tolist()
    (['< 3', '>= 3'], [[0.01, 0.99]])
    """

    _estimator_type = "classifier"
    _tags: ClassVar[Mapping[str, Any]] = BayesianNetwork._tags

    _: KW_ONLY
    target: str = "y"
    bins: Any = "supervised"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the tables from cases X and their targets y (N,), or X's own target column."""
        check_type(self.target, str, "NetworkClassifier: target must be a variable's name")
        own: dict[str, Factorised] = {}
        if y is not None:
            with columns_of(self, X, True) as (names, read_columns):
                if self.target in names:
                    raise SettingsError(
                        f"NetworkClassifier: X has the target's column {visible(self.target)!r}: "
                        "leave y out, or the column"
                    )
                n = len(read_columns(names[:1])[names[0]].places)
            self.classes_, codes = self._labels(y, n)
            if len(self.classes_) == 0:
                raise ModelError("NetworkClassifier: there are no labels")
            own = {self.target: Factorised(codes, [state_name(x) for x in self.classes_.tolist()])}
        self._learn(X, own)
        said: list[Any] = []
        if y is None:
            with columns_of(self, X, False) as (_, read_columns):
                said = list(read_columns([self.target])[self.target].values)
        self._name_classes(y is not None, said)
        return self

    def _structure(
        self, names: Sequence[str]
    ) -> tuple[list[str], dict[str, list[str]], FactorGraph | None]:
        variables, parents, given = super()._structure(names)
        if self.target not in variables or self.target not in names:
            what = "variable of the structure" if self.target in names else "column"
            raise ModelError(
                "NetworkClassifier requires y to be passed, but the target y is None, and no "
                f"{what} is called {visible(self.target)!r}"
            )
        return variables, parents, given

    def _structure_of_none(self, names: list[str]) -> dict[str, Sequence[str]]:
        return {name: () if name == self.target else (self.target,) for name in names}

    def _cuts(self) -> Any:
        """``bins`` with the target for "supervised"."""
        own = f"supervised:{self.target}"
        if isinstance(self.bins, Mapping):
            return {k: own if x == "supervised" else x for k, x in self.bins.items()}
        return own if isinstance(self.bins, str) and self.bins == "supervised" else self.bins

    def _check_width(self, width: int, names: list[str] | None, reset: bool) -> None:
        """Without the target, which is there when the network is learned or scored."""
        if names is not None and self.target in names:
            width, names = width - 1, [name for name in names if name != self.target]
        super()._check_width(width, names, reset)

    def _name_classes(self, given: bool, said: Sequence[Any]) -> None:
        """``classes_`` and the states that they are, in their order; of the types that are
        ``said`` in X's own column, where the target is one."""
        states = list(self.model_.states(self.target))
        if not given:
            numbers = [number_of(x) for x in states]
            known = [x for x in said if not is_missing(x)]
            if known and {state_name(x) for x in known} == {"False", "True"} == {*states}:
                truths = all(isinstance(x, bool | np.bool_) for x in known)
                self.classes_ = np.array([False, True] if truths else ["False", "True"])
            elif any(isinstance(x, str) for x in known) or not all(
                x is not None and x.is_integer() for x in numbers
            ):
                self.classes_ = np.array(states)
            else:
                self.classes_ = np.array([int(x or 0) for x in numbers])
        elif len(self.classes_) < len(states):  # of a model that has more
            if self.classes_.dtype.kind not in "UO":
                self.classes_ = np.array([float(x) for x in states]).astype(self.classes_.dtype)
            else:
                self.classes_ = np.array(states, dtype=self.classes_.dtype)
        self.classes_ = np.sort(self.classes_)
        self._places = [states.index(state_name(x)) for x in self.classes_.tolist()]

    def predict_proba(self, X: Any) -> Floats:
        """Posteriors of the classes (N, K); a target column in X is not read."""
        from minfer.solvers.plans import Network

        self._check_fitted("predict_proba")
        with columns_of(self, X, False) as (names, read_columns):
            wanted = [v for v in self.tables_ if v in names and v != self.target]
            columns = read_columns(wanted)
            n = len(read_columns(names[:1])[names[0]].places) if not wanted else -1
        known = self._known(self.model_, columns, "raise")
        known = known if wanted else np.full((self.model_.n_variables, n), -1, dtype=np.int32)
        found = Network(self.model_).ask(
            np.ascontiguousarray(known.T), [self.model_.index(self.target)], self.workers
        )
        if found.impossible.any():
            raise ContradictionError(
                f"NetworkClassifier: row {int(np.argmax(found.impossible))} has probability zero; "
                "a prior leaves none at zero"
            )
        return found.probs[:, self._places]

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row (N,)."""
        self._check_fitted("predict")
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def score(self, X: Any, y: Any = None) -> float:
        """The share of rows whose most probable class is right: y (N,), or X's target column."""
        found = self.predict(X)
        if y is None:
            with columns_of(self, X, False) as (names, read_columns):
                if self.target not in names:
                    raise ModelError(f"NetworkClassifier: score needs y, or {self.target} in X")
                columns = read_columns([self.target])
            known = self._known(self.model_, columns, "raise")[self.model_.index(self.target)]
            place = np.array(self._places)[np.searchsorted(self.classes_, found)]
            return float((place == known)[known >= 0].mean())
        return float((found == np.asarray(y)).mean())
