"""scikit-learn's habits without scikit-learn: what all estimators of :mod:`minfer.learn` share.

A constructor stores its arguments and does nothing else; ``fit`` checks them, learns, and leaves
what it found in attributes that end with an underscore. So pipelines, grid searches and
cross-validation take these estimators like their own; tables of numbers and labels are checked with
the words that scikit-learn's own checks look for.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import brief
from minfer.errors import ModelError, NotFittedError, SettingsError, visible
from minfer.model.states import near_names

if TYPE_CHECKING:
    from minfer.learn.fitting import Fitted


class Estimator:
    """Base of estimators: parameters from the constructor's signature, and checks of what is given.

    A subclass has a constructor that stores each argument under its own name, ``fit`` that returns
    ``self``, and may say what it is by the class variables below.

    Examples
    --------
    >>> class Half(Estimator):
    ...     def __init__(self, share=0.5):
    ...         self.share = share
    >>> Half(0.25), Half().set_params(share=1.0).get_params()
    (Half(share=0.25), {'share': 1.0})
    """

    #: "classifier", "density_estimator" or None, in scikit-learn's words.
    _estimator_type: ClassVar[str | None] = None
    #: What scikit-learn calls tags: {"input.two_d_array": False, "target.required": True, ...}.
    _tags: ClassVar[Mapping[str, Any]] = {}

    # ------------------------------------------------------------ parameters

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """The constructor's arguments, sorted; scikit-learn asks by this name."""
        own = inspect.signature(cls).parameters.values()
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in own):
            raise TypeError(f"{cls.__name__}: estimators name every argument, without * or **")
        return sorted(p.name for p in own)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments as they are now; ``deep``: also those of estimators in them.

        Parameters of an estimator that is itself a parameter are called ``outer__inner``.
        """
        out: dict[str, Any] = {}
        for name in self._get_param_names():
            value = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                out |= {f"{name}__{key}": x for key, x in value.get_params().items()}
            out[name] = value
        return out

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name, ``outer__inner`` reaches into one; returns ``self``."""
        known = self._get_param_names()
        inner: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            outer, _, rest = name.partition("__")
            if outer not in known:
                near = near_names(outer, known)
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
                raise SettingsError(
                    f"{type(self).__name__} has no parameter {visible(outer)!r}; {hint}"
                )
            if rest:
                inner.setdefault(outer, {})[rest] = value
            else:
                setattr(self, name, value)
        for outer, some in inner.items():
            getattr(self, outer).set_params(**some)
        return self

    def __repr__(self) -> str:
        default = {p.name: p.default for p in inspect.signature(type(self)).parameters.values()}
        said = []
        for name, value in default.items():
            own = getattr(self, name, value)
            if own is value or (isinstance(own, str | int | float | bool) and own == value):
                continue
            text = repr(own)
            said.append(f"{name}={text if len(text) < 60 else brief(own)}")
        return f"{type(self).__name__}({', '.join(said)})"

    # ------------------------------------------------------------ scikit-learn

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn wants to know of an estimator; only scikit-learn asks."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        kind = self._estimator_type
        tags = Tags(
            estimator_type=kind,
            target_tags=TargetTags(required=kind == "classifier"),
            classifier_tags=ClassifierTags() if kind == "classifier" else None,
            input_tags=InputTags(),
        )
        for name, value in self._tags.items():
            group, _, tag = name.rpartition(".")
            setattr(getattr(tags, f"{group}_tags") if group else tags, tag, value)
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def _check_fitted(self, what: str = "this") -> None:
        """Refuse to answer before ``fit``; ``what`` is the method that was called."""
        if not self.__sklearn_is_fitted__():
            kind: Any = NotFittedError
            if theirs := sys.modules.get("sklearn.exceptions"):  # in use: one that is theirs, too
                kind = type("NotFittedError", (NotFittedError, theirs.NotFittedError), {})
            raise kind(f"{type(self).__name__} is not fitted yet: call fit before {what}")

    def _say_how(self, fitted: Fitted) -> None:
        """How learning ended, under the names that all estimators have."""
        self.status_, self.converged_ = fitted.status, fitted.converged
        self.advice_ = fitted.advice

    # ------------------------------------------------------------ data

    def _numbers(self, X: Any, *, reset: bool) -> NDArray[np.float64]:
        """A table of numbers (N, D) as float64; ``reset`` learns its width and names."""
        name, names, x = type(self).__name__, _column_names(X), self._array(X)
        try:
            out = np.require(x, dtype=np.float64, requirements=["C"])
        except (TypeError, ValueError) as error:
            if isinstance(error, TypeError):  # objects that are not numbers; the words say which
                raise TypeError(f"{name}: X: argument must be a number: {error}") from None
            raise ModelError(f"{name}: X has a cell that is not a number: {error}") from None
        for count, noun in zip(out.shape, ("sample", "feature")):
            if not count:
                raise ModelError(
                    f"{name}: found array with 0 {noun}(s) (shape={out.shape}) "
                    "while a minimum of 1 is required."
                )
        if not np.isfinite(out).all():
            row, column = np.argwhere(~np.isfinite(out))[0].tolist()
            value = "NaN" if np.isnan(out[row, column]) else "infinity"
            raise ModelError(
                f"{name}: X has {value} in row {row}, column {column} "
                "(NaN or inf is not allowed here)"
            )
        self._check_width(out.shape[1], names, reset)
        return out

    def _array(self, X: Any) -> NDArray[Any]:
        """A table (N, D) as an array, whatever is in its cells."""
        name = type(self).__name__
        if hasattr(X, "toarray") and hasattr(X, "tocsr"):
            raise TypeError(f"{name}: X is sparse; give a dense array: X.toarray()")
        try:
            x = np.asarray(X)
        except ValueError as error:
            raise ModelError(f"{name}: X is not a table of numbers: {error}") from None
        if x.dtype.kind == "c":
            raise ModelError(f"{name}: X is complex. Complex data not supported")
        if x.ndim != 2:
            hint = " Reshape your data, to (N, 1) or (1, N)." if x.ndim < 2 else ""
            raise ModelError(
                f"{name}: X must have shape (N, D), rows by columns, not {x.shape}.{hint}"
            )
        return x

    def _check_width(self, width: int, names: list[str] | None, reset: bool) -> None:
        """Learn or compare the number of columns, and their names where all are texts."""
        if reset:
            self.n_features_in_ = width
            if names is not None:
                self.feature_names_in_ = np.array(names, dtype=object)
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            return
        name = type(self).__name__
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and list(known) != names:
            raise ModelError(
                f"{name}: The feature names should match those that were passed during fit: "
                f"{_difference(list(known), names)}"
            )
        if width != self.n_features_in_:
            raise ModelError(
                f"X has {width} features, but {name} is expecting {self.n_features_in_} features "
                "as input"
            )

    def _labels(self, y: Any, n: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Labels (N,) as classes, sorted, and the number of each row's class."""
        name = type(self).__name__
        if y is None:
            raise ModelError(f"{name} requires y to be passed, but the target y is None")
        labels = np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] == 1:
            import warnings

            kind: Any = UserWarning
            if "sklearn.exceptions" in sys.modules:
                kind = sys.modules["sklearn.exceptions"].DataConversionWarning
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected.", kind, stacklevel=3
            )
            labels = labels[:, 0]
        if labels.ndim != 1:
            raise ModelError(
                f"{name}: y must have shape (N,), one label per row, not {labels.shape}"
            )
        if len(labels) != n:
            raise ModelError(f"{name}: y has {len(labels)} labels, but X has {n} rows")
        if labels.dtype.kind == "f":
            if not np.isfinite(labels).all():
                raise ModelError(f"{name}: Input y contains NaN or infinity")
            if (labels != np.rint(labels)).any():
                raise ModelError(
                    f"{name}: Unknown label type: y is continuous; classes must be names or whole "
                    "numbers"
                )
        try:
            classes, codes = np.unique(labels, return_inverse=True)
        except TypeError:
            kinds = sorted({type(x).__name__ for x in labels.tolist()})
            raise ModelError(
                f"{name}: labels must be of one type, strings or numbers, not {' and '.join(kinds)}"
            ) from None
        return classes, codes.astype(np.int64)


def alike(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each different column of (k, N) keys comes first, and the place of all among these."""
    order = np.lexsort(keys)  # which is stable: the first of equals comes first
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(keys[:, order]) != 0).any(axis=0)
    first = order[new]
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    owner = np.empty(len(order), dtype=np.int64)
    owner[order] = rank[np.cumsum(new) - 1]
    return np.sort(first), owner


def _column_names(X: Any) -> list[str] | None:
    """Names of a data frame's columns, if all are texts."""
    columns = getattr(X, "columns", None)
    if columns is None or callable(columns):
        return None
    names = list(columns)
    texts = [isinstance(name, str) for name in names]
    if any(texts) and not all(texts):
        raise TypeError("names of columns must be of one type: make them all strings")
    return names if names and all(texts) else None


def _difference(known: list[str], names: list[str]) -> str:
    """Which names are new, which are missing, or that their order is another."""
    new = sorted(set(names) - set(known))
    lacking = sorted(set(known) - set(names))
    if not new and not lacking:
        return "Feature names must be in the same order as they were in fit."
    said = [f"unseen at fit time: {', '.join(new[:5])}"] if new else []
    said += [f"seen at fit time, yet now missing: {', '.join(lacking[:5])}"] if lacking else []
    return f"Feature names {'; '.join(said)}"
