"""Linear-chain conditional random fields, exact: labels of sequences from features of their items.

The model, its features and its objective are crfsuite's: a weight for each attribute and label that
were seen together, and for each pair of labels in a row; minus the log-likelihood plus c1 |w|_1 and
c2 |w|_2^2. Likelihood, gradient and marginals are exact (:mod:`minfer.kernels.learning.chains`).

**Attributes of one column are one.** Attributes that the same items have, with the same values, as
most that occur once have company, get the same gradient; begun at zero, L-BFGS keeps them equal. So
m of them are trained as one with values times sqrt(m), and every step is the same as without: a
weight u of the one stands for m weights u / sqrt(m), whose squares sum to u^2. (For c1 the one
counts sqrt(m) times.) Of a tagger's features this leaves about half.

**What the status says.** ``converged_``: the gradient met ``epsilon``. With c2 > 0 the objective is
above its minimum by at most |gradient|^2 / (4 c2), which is ``gap_``. Without a penalty, once every
training sequence has a probability above 1/2, no minimum exists, and training stops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain, count, pairwise, repeat
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import brief, check_choice, check_flag, check_number, check_whole
from minfer.basics.words import counted
from minfer.errors import ModelError, SettingsError, visible
from minfer.io.opening import reading
from minfer.io.text import PathLike
from minfer.learn.estimator import Estimator, alike
from minfer.learn.optimise import Descent, dot, minimise
from minfer.learn.save import (
    labels_to_save,
    read_arrays,
    saved_labels,
    saved_weights,
    write_arrays,
)

Floats = NDArray[np.float64]

BIAS = "bias"  # the attribute that every item of an array of numbers has
_WIDE = 4  # an attribute that meets at least one of so many labels has a line of weights
_LARGE = 25.0  # a weight times a value: odds of 1e11, which no sample can tell

_STATUS = {
    "gradient": "converged",
    "improvement": "improvement is small",
    "iterations": "out of iterations",
    "line search": "line search failed",
    "separable": "separable",
    "not finite": "features are too large",
}

_ADVICE = {
    "converged": "",
    "improvement is small": "set delta=0 to continue until the gradient meets epsilon",
    "out of iterations": "raise max_iterations, or set c2 > 0",
    "line search failed": "rounding hides any further decrease: this is as good as it gets",
    "separable": "the training sequences can be separated, so larger weights are always better and "
    "there is no optimum: set c2 > 0 (or c1 > 0)",
    "features are too large": "the squared gradient overflows: scale down features with huge "
    "values",
    "weights are growing": "some weights have no optimum, such as those of features that always "
    "come with the same label: set c2 > 0 (or c1 > 0)",
}


class ChainItems(NamedTuple):
    """Sequences as kernels read them."""

    ptr: NDArray[np.int64]  # (N+1,) where a sequence's items begin
    iptr: NDArray[np.int64]  # (T+1,) where an item's attributes begin
    attr: NDArray[np.int32]
    value: Floats

    def keep(self, number: NDArray[np.int32]) -> ChainItems:
        """Attributes numbered anew, without those that are -1."""
        new = number[self.attr]
        which = new >= 0
        return ChainItems(self.ptr, _ends(which)[self.iptr], new[which], self.value[which])


class ChainWeights(NamedTuple):
    """What attributes and pairs of labels weigh, as kernels read it."""

    fptr: NDArray[np.int64]  # (A+1,) where an attribute's weights begin
    label: NDArray[np.int32]  # their labels
    w: Floats
    trans: Floats  # (K, K)


class _Places:
    """Where features lie among the weights that are trained: those of *narrow* attributes end to
    end, then a line for each *wide* one, with zeros (``mask``) where there is no feature."""

    def __init__(
        self, fptr: NDArray[np.int64], label: NDArray[np.int32], n_labels: int, width: int
    ) -> None:
        sizes = np.diff(fptr)
        self.wide = sizes * _WIDE >= n_labels
        in_line = np.repeat(self.wide, sizes)
        self.number = np.where(self.wide, np.cumsum(self.wide), np.cumsum(~self.wide)) - 1
        self.label = label[~in_line]
        self.fptr = np.concatenate([[0], np.cumsum(sizes[~self.wide])]).astype(np.int64)
        lines = np.repeat(self.number * width, sizes) + label
        self.at = np.where(in_line, len(self.label) + lines, np.cumsum(~in_line) - 1)
        self.mask = np.zeros(int(self.wide.sum()) * width)
        self.mask[lines[in_line]] = 1.0

    def split(self, items: ChainItems) -> list[ChainItems]:
        """The occurrences of narrow and of wide attributes."""
        kinds = ~self.wide, self.wide
        return [items.keep(np.where(own, self.number, -1).astype(np.int32)) for own in kinds]


@dataclass(eq=False, repr=False)
class ChainCRF(Estimator):
    """A linear-chain conditional random field with crfsuite's features and objective.

    A *sequence* is a list of items, an *item* its features: ``["word=the", "title"]``,
    ``{"word=the": 1.0}``, ``{"word": "the", "title": True, "length": 3.0}`` (a string value makes
    the feature "word:the"), nested ``{"next": {"word": "cat"}}``; or an array (T, D) of numbers,
    one row per item, to which a constant is added. ``X`` is a list of sequences, ``y`` a list of
    lists of labels. A table (N, D) of numbers with labels (N,) counts as N sequences of one item.

    Parameters
    ----------
    c1, c2 : float
        Penalties: c1 times the sum of abs(w), c2 times the sum of w^2.
    min_freq : float
        Features that occur less often (by the sum of their absolute values) are left out.
    all_possible_states, all_possible_transitions : bool
        Weights also for what was never seen together: attributes and labels, pairs of labels.
    max_iterations : int
    epsilon : float
        Converged where the gradient's norm is at most epsilon max(1, that of w).
    delta, period : float, int
        Stop where ``period`` iterations lowered the objective by less than a share ``delta``.
    num_memories : int
        Steps that L-BFGS remembers.
    decode : "viterbi" or "mpm"
        What ``predict`` returns: the best path, or the most probable label of each item.
    classes : list, optional
        The labels there are; those of ``y`` if left out.

    Attributes
    ----------
    classes_ : array (K,), sorted
    attributes_ : list of str
    transitions_ : array (K, K), the weights of pairs of labels
    objective_ : float, of the training data, penalties included
    gap_ : float, by how much that is above the least possible, at most; infinity without c2
    converged_, status_, advice_ : bool, str, str
    n_iter_, trace_ : iterations, and the objective at the start and after each

    Examples
    --------
    >>> X = [[{"w": "the"}, {"w": "cat"}, {"w": "sat"}], [{"w": "cats"}, {"w": "sat"}]]
    >>> crf = ChainCRF(c2=0.1).fit(X, [["D", "N", "V"], ["N", "V"]])
    >>> crf.predict([[{"w": "the"}, {"w": "dog"}, {"w": "sat"}]])
    [['D', 'N', 'V']]
    >>> crf.status_, crf.score(X, [["D", "N", "V"], ["N", "V"]])
    ('converged', 1.0)
    """

    # not "classifier": scikit-learn would stratify by labels, and refuse lists of lists of them
    _tags: ClassVar[Mapping[str, Any]] = {
        "target.required": True,
        "input.dict": True,
        "input.three_d_array": True,
        "target.two_d_labels": True,
    }

    c1: float = 0.0
    c2: float = 1.0
    _: KW_ONLY
    min_freq: float = 0.0
    all_possible_states: bool = False
    all_possible_transitions: bool = False
    max_iterations: int = 10_000
    epsilon: float = 1e-5
    delta: float = 1e-5
    period: int = 10
    num_memories: int = 6
    decode: str = "viterbi"
    classes: Sequence[Any] | None = None

    def _check_settings(self) -> None:
        for name in ("c1", "c2", "min_freq", "epsilon", "delta"):
            check_number(f"ChainCRF: {name}", getattr(self, name), 0.0)
        for name in ("all_possible_states", "all_possible_transitions"):
            check_flag(f"ChainCRF: {name}", getattr(self, name))
        for name in ("max_iterations", "period", "num_memories"):
            check_whole(f"ChainCRF: {name}", getattr(self, name), 1)
        check_choice("ChainCRF: decode", self.decode, ("viterbi", "mpm"))

    # ------------------------------------------------------------ learning

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the weights from sequences and their labels."""
        self._check_settings()
        for name in ("n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
        items, names = self._read(X, True)
        labels = y if _is_table(X) else _flat_labels(y, items.ptr)
        classes, codes = self._codes(*self._labels(labels, len(items.iptr) - 1))
        self._train(items, names, classes, codes)
        return self

    def _codes(
        self, found: NDArray[Any], gold: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """The classes, and labels by their numbers among them."""
        if self.classes is None:
            return found, gold.astype(np.int32)
        given = list(self.classes)
        if len(set(given)) < len(given) or not given:
            raise SettingsError("ChainCRF: classes must be one or more different labels")
        classes = np.unique(np.array(given))
        place = {label: k for k, label in enumerate(classes.tolist())}
        number = np.array([place.get(label, -1) for label in found.tolist()], dtype=np.int32)
        if (number < 0).any():
            k = int(np.argmax(number < 0))
            item, label = int(np.argmax(gold == k)), brief(found.tolist()[k])
            raise ModelError(
                f"ChainCRF: item {item}, counted over all sequences, has label {label}, which is "
                f"not one of classes={[*place][:8]}"
            )
        return classes, number[gold]

    def _train(
        self, items: ChainItems, names: list[str], classes: NDArray[Any], gold: NDArray[np.int32]
    ) -> None:
        from minfer.kernels.learning.chains import likelihood

        n_labels = len(classes)
        merged, stands_for, root = _merged(items, len(names))
        fptr, label = self._features(merged, gold, n_labels, len(root))
        used = np.diff(fptr) > 0
        if not used.all():  # attributes all of whose features are too rare
            number = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
            merged = merged.keep(number)
            fptr = np.concatenate([fptr[:-1][used], fptr[-1:]])
            root, stands_for = root[used], number[stands_for].astype(np.int64)
        merged = merged._replace(value=merged.value * root[merged.attr])
        place = _Places(fptr, label, n_labels, _width(n_labels))
        second = _not_first(items.ptr)
        keys = gold[second - 1].astype(np.int64) * n_labels + gold[second]
        often = np.bincount(keys, minlength=n_labels * n_labels)
        seen = (often > 0) | self.all_possible_transitions
        links = np.divmod(np.flatnonzero(seen & (often >= self.min_freq)), n_labels)
        narrow, wide = place.split(merged)
        n_narrow, n_state = len(place.label), len(place.label) + len(place.mask)
        trans, d_trans = np.zeros((n_labels, n_labels)), np.empty((n_labels, n_labels))
        largest = [np.inf]
        grad = np.empty(n_state + len(links[0]))
        c2 = float(self.c2)

        def objective(x: Floats) -> tuple[float, Floats]:
            trans[links] = x[n_state:]
            weights = ChainWeights(place.fptr, place.label, x[:n_narrow], trans)
            parts = grad[:n_narrow], grad[n_narrow:n_state], d_trans
            loss, largest[0] = likelihood(narrow, wide, weights, x[n_narrow:n_state], gold, parts)
            grad[n_narrow:n_state] *= place.mask
            grad[n_state:] = d_trans[links]
            if c2:
                loss += c2 * dot(x, x)
                np.add(grad, 2.0 * c2 * x, out=grad)
            return loss, grad

        sizes = np.diff(fptr)
        l1 = np.full(len(grad), float(self.c1))
        l1[place.at] *= np.repeat(root, sizes)
        free = not self.c1 and not self.c2

        def watch(now: Descent) -> str | None:
            return "separable" if free and largest[0] < np.log(2.0) else None

        found = minimise(
            objective, np.zeros(len(grad)), l1=l1, memory=self.num_memories, epsilon=self.epsilon,
            delta=self.delta, period=self.period, max_iterations=self.max_iterations, watch=watch,
        )  # fmt: skip
        own = np.append(sizes, 0)[stands_for]  # none of what is too rare, -1
        kept = np.flatnonzero(own)
        self.classes_, self.attributes_ = classes, [names[k] for k in kept.tolist()]
        self.coef_ptr_ = _ends(own[kept])
        at = np.repeat(fptr[stands_for[kept]] - self.coef_ptr_[:-1], own[kept])
        at += np.arange(len(at))
        self.coef_label_, self.coef_ = label[at], (found.x[place.at] / np.repeat(root, sizes))[at]
        self._numbers_of = {name: k for k, name in enumerate(self.attributes_)}
        self.transitions_ = np.zeros((n_labels, n_labels))
        self.transitions_[links] = found.x[n_state:]
        self.objective_, self.gradient_ = found.value, found.gradient
        self.gap_ = found.gradient**2 / (4.0 * c2) if c2 else np.inf
        self.n_iter_, self.trace_ = found.n_iter, found.trace
        reach = np.zeros(len(root))
        np.maximum.at(reach, merged.attr, np.abs(merged.value))
        scores = np.abs(found.x[place.at]) * np.repeat(reach, sizes)
        growing = free and max(scores.max(initial=0.0), np.abs(trans).max()) > _LARGE
        self.status_ = "weights are growing" if growing else _STATUS[found.stopped]
        self.converged_ = self.status_ == "converged"
        self.advice_ = _ADVICE[self.status_]

    def _features(
        self, items: ChainItems, gold: NDArray[np.int32], n_labels: int, n_attr: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Where each attribute's features begin, and their labels."""
        keys = items.attr.astype(np.int64) * n_labels + np.repeat(gold, np.diff(items.iptr))
        if self.all_possible_states:
            pairs = np.arange(n_attr * n_labels)
            often = np.bincount(keys, np.abs(items.value), len(pairs))
        else:
            pairs, place = np.unique(keys, return_inverse=True)
            often = np.bincount(place, np.abs(items.value), len(pairs))
        if self.min_freq:
            pairs = pairs[often >= self.min_freq]
        fptr = np.searchsorted(pairs, np.arange(n_attr + 1) * n_labels)
        return fptr.astype(np.int64), (pairs % n_labels).astype(np.int32)

    # ------------------------------------------------------------ answers

    def predict(self, X: Any) -> Any:
        """Labels: a list for each sequence; an array (N,) for a table of numbers."""
        from minfer.kernels.learning.chains import best_paths

        self._check_fitted("predict")
        check_choice("ChainCRF: decode", self.decode, ("viterbi", "mpm"))
        items = self._asked(X)
        if self.decode == "mpm":
            path = self._marginals(items)[0].argmax(axis=1)
        else:
            path = np.empty(int(items.ptr[-1]), dtype=np.int64)
            best_paths(items, self._weights(), path)
        labels = self.classes_[path]
        return labels if _is_table(X) else [
            labels[a:b].tolist() for a, b in pairwise(items.ptr.tolist())
        ]  # fmt: skip

    def predict_proba(self, X: Any) -> Any:
        """Marginal probabilities (T, K) of each sequence's items; (N, K) for a table of numbers."""
        self._check_fitted("predict_proba")
        items = self._asked(X)
        probs, _ = self._marginals(items)
        return probs if _is_table(X) else np.split(probs, items.ptr[1:-1]) if len(X) else []

    def predict_marginals(self, X: Any) -> list[list[dict[Any, float]]]:
        """The same as a dict {label: probability} for each item."""
        labels = self.classes_.tolist() if hasattr(self, "classes_") else []
        found = self.predict_proba(X)
        if _is_table(X):
            found = [row[None, :] for row in found]
        return [[dict(zip(labels, row)) for row in probs.tolist()] for probs in found]

    def score(self, X: Any, y: Any) -> float:
        """The share of items whose label is predicted."""
        self._check_fitted("score")
        predicted = self.predict(X)
        if _is_table(X):
            if len(y) != len(predicted):
                raise ModelError(f"ChainCRF: y has {len(y)} labels, but X has {len(predicted)}")
            return float(np.mean(np.asarray(y).ravel() == predicted))
        truth = _flat_labels(y, _ends([len(path) for path in predicted])).tolist()
        if not truth:
            raise ModelError("ChainCRF: score: there are no items")
        return sum(a == b for a, b in zip(truth, chain.from_iterable(predicted))) / len(truth)

    def log_likelihood(self, X: Any, y: Any) -> Floats:
        """Of each sequence's labels, (N,); minus infinity where one is not a class."""
        from minfer.kernels.learning.chains import item_scores

        self._check_fitted("log_likelihood")
        items = self._asked(X)
        labels = np.asarray(y) if _is_table(X) else _flat_labels(y, items.ptr)
        n, trans = int(items.ptr[-1]), self.transitions_
        if len(labels) != n:
            raise ModelError(f"ChainCRF: {len(labels)} labels for {n} items")
        place = {label: k for k, label in enumerate(self.classes_.tolist())}
        gold = np.array([place.get(x, -1) for x in labels.tolist()], dtype=np.int32)
        scores = np.empty((n, _width(len(trans))))
        item_scores(0, n, items, self._weights(), scores.shape[1], scores.reshape(-1))
        own, second = scores[np.arange(n), gold], _not_first(items.ptr)
        own[second] += trans[gold[second - 1], gold[second]]
        own[gold < 0] = -np.inf
        sequence = np.repeat(np.arange(len(items.ptr) - 1), np.diff(items.ptr))
        return np.bincount(sequence, own, len(items.ptr) - 1) - self._marginals(items)[1]

    @property
    def state_features_(self) -> dict[tuple[str, Any], float]:
        """Weights by attribute and label."""
        self._check_fitted("state_features_")
        labels, names = self.classes_.tolist(), self.attributes_
        owner = np.repeat(np.arange(len(names)), np.diff(self.coef_ptr_)).tolist()
        return {
            (names[a], labels[k]): w
            for a, k, w in zip(owner, self.coef_label_.tolist(), self.coef_.tolist())
        }

    @property
    def transition_features_(self) -> dict[tuple[Any, Any], float]:
        """Weights that are not zero by pairs of labels in a row."""
        self._check_fitted("transition_features_")
        labels, found = self.classes_.tolist(), np.ndenumerate(self.transitions_)
        return {(labels[i], labels[j]): float(w) for (i, j), w in found if w}

    def _weights(self) -> ChainWeights:
        """What kernels take; copied if read-only, as those compiled take it."""
        own: Any = self.coef_ptr_, self.coef_label_, self.coef_, self.transitions_
        return ChainWeights(*(np.require(x, requirements="W") for x in own))

    def _marginals(self, items: ChainItems) -> tuple[Floats, Floats]:
        """Probabilities (T, K), and log Z (N,)."""
        from minfer.kernels.learning.chains import marginals

        probs = np.empty((int(items.ptr[-1]), len(self.classes_)))
        log_z = np.empty(len(items.ptr) - 1)
        marginals(items, self._weights(), probs, log_z)
        return probs, log_z

    # ------------------------------------------------------------ reading features

    def _asked(self, X: Any) -> ChainItems:
        """Sequences in numbers of the attributes that have weights; others are left out."""
        items, names = self._read(X, False)
        number = np.append(np.arange(len(self.attributes_), dtype=np.int32), np.int32(-1))
        if names:
            number = np.array([self._numbers_of.get(x, -1) for x in names], dtype=np.int32)
        return items.keep(number)

    def _read(self, X: Any, reset: bool) -> tuple[ChainItems, list[str]]:
        """Sequences, and the names of their attributes if they are learned: ``reset``."""
        if _is_table(X):
            return self._dense(X, None, reset)
        single = not isinstance(X, Iterable) or getattr(X, "ndim", 1) == 0
        if isinstance(X, str | bytes | Mapping) or single:
            raise ModelError(f"ChainCRF: X must be a list of sequences of items, not {brief(X)}")
        sequences = X if isinstance(X, list) else list(X)
        if reset and not sequences:
            raise ModelError("ChainCRF: there are no sequences to learn from")
        dense = [isinstance(s, np.ndarray) and s.ndim == 2 for s in sequences]
        if any(dense):
            if not all(dense):
                raise ModelError(
                    f"ChainCRF: sequence {dense.index(not dense[0])} is not of the same kind as "
                    "the first: arrays (T, D) of numbers, or items with features by name"
                )
            kept = [s for s in sequences if len(s)]
            if not kept:
                raise ModelError("ChainCRF: all sequences are empty")
            widths = {s.shape[1] for s in kept}
            if len(widths) > 1:
                raise ModelError(f"ChainCRF: arrays of {sorted(widths)} numbers an item are mixed")
            return self._dense(np.concatenate(kept), _ends([len(s) for s in sequences]), reset)
        for k, s in enumerate(sequences):
            if isinstance(s, str | Mapping) or not hasattr(s, "__len__"):
                raise ModelError(f"ChainCRF: sequence {k} must be a list of items, not {brief(s)}")
        numbers: Any = defaultdict(count().__next__) if reset else self._numbers_of
        read = _by_name(sequences, numbers, reset)
        ptr = _ends([len(s) for s in sequences])
        if reset and not ptr[-1]:
            raise ModelError("ChainCRF: all sequences are empty")
        names = list(numbers) if reset else []
        for name in names:
            if not isinstance(name, str):
                raise ModelError(f"ChainCRF: features must be strings, not {brief(name)}")
        return ChainItems(ptr, *read), names

    def _dense(
        self, X: Any, ptr: NDArray[np.int64] | None, reset: bool
    ) -> tuple[ChainItems, list[str]]:
        """Rows of numbers behind a constant, without zeros; each a sequence if there is no ptr."""
        if not reset and not hasattr(self, "n_features_in_"):
            raise ModelError("ChainCRF learned from features by name, not from numbers alone")
        table = self._numbers(X, reset=reset)
        wide = np.concatenate([np.ones((len(table), 1)), table], axis=1)
        rows, columns = np.nonzero(wide)
        ptr = np.arange(len(table) + 1, dtype=np.int64) if ptr is None else ptr
        iptr, names = _ends((wide != 0.0).sum(axis=1)), range(self.n_features_in_)
        items = ChainItems(ptr, iptr, columns.astype(np.int32), wide[rows, columns])
        return items, [BIAS, *map(str, getattr(self, "feature_names_in_", names))]

    # ------------------------------------------------------------ files

    def save(self, path: PathLike) -> None:
        """Write the model, bit for bit and without pickle; see :meth:`load`."""
        self._check_fitted("save")
        header = {
            "params": {k: v for k, v in self.get_params().items() if k != "classes"},
            **labels_to_save("ChainCRF", self.classes_),
            "attributes": self.attributes_,
            "status": self.status_,
            "n_iter": self.n_iter_,
            "numbers": [self.objective_, self.gradient_, self.gap_],
            "n_features_in": getattr(self, "n_features_in_", None),
            "feature_names_in": [str(x) for x in getattr(self, "feature_names_in_", [])],
        }
        arrays: dict[str, NDArray[Any]] = {
            "ptr": self.coef_ptr_, "label": self.coef_label_, "coef": self.coef_,
            "transitions": self.transitions_, "trace": np.array(self.trace_),
        }  # fmt: skip
        write_arrays(path, "ChainCRF", header, arrays)

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """A model that :meth:`save` wrote. Nothing in a file is executed; everything is checked."""
        header, parts = read_arrays(path, "ChainCRF")
        with reading(path, "a model written by ChainCRF.save is needed"):
            crf = cls(**header["params"])
            crf._check_settings()
            crf.classes_ = saved_labels(header)
            crf.attributes_ = [str(x) for x in header["attributes"]]
            crf.coef_ptr_ = ptr = parts["ptr"].astype(np.int64)
            crf.coef_label_ = parts["label"].astype(np.int32)
            crf.coef_ = saved_weights(parts["coef"])
            crf.transitions_ = saved_weights(parts["transitions"])
            crf.trace_ = parts["trace"].astype(np.float64).tolist()
            crf.status_, crf.n_iter_ = str(header["status"]), int(header["n_iter"])
            crf.objective_, crf.gradient_, crf.gap_ = map(float, header["numbers"])
            if header["n_features_in"] is not None:
                crf.n_features_in_ = int(header["n_features_in"])
                if names := header["feature_names_in"]:
                    crf.feature_names_in_ = np.array([str(x) for x in names], dtype=object)
                    if len(names) != crf.n_features_in_:
                        raise ValueError("names and number of its features differ")
            k = len(crf.classes_)
            sound = (
                ptr.ndim == 1 and len(ptr) == len(crf.attributes_) + 1
                and ptr[0] == 0 and (np.diff(ptr) >= 0).all()
                and crf.coef_.shape == crf.coef_label_.shape == (ptr[-1],)
                and crf.transitions_.shape == (k, k) and len(set(crf.attributes_)) == len(ptr) - 1
                and bool(((crf.coef_label_ >= 0) & (crf.coef_label_ < k)).all())
            )  # fmt: skip
            if not sound or crf.status_ not in _ADVICE:
                raise ValueError("this file is damaged: its arrays do not fit together")
            crf._numbers_of = {name: k for k, name in enumerate(crf.attributes_)}
            crf.converged_, crf.advice_ = crf.status_ == "converged", _ADVICE[crf.status_]
            return crf


def _width(n_labels: int) -> int:
    """Whole vectors of lanes."""
    return -(-n_labels // 8) * 8


def _ends(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    out = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def _is_table(X: Any) -> bool:
    """Whether this is a table of numbers (N, D), a row an item of its own."""
    if isinstance(X, np.ndarray):
        return X.ndim == 2 or (X.ndim < 2 and X.dtype != object)
    if hasattr(X, "tocsr") or hasattr(X, "columns") or hasattr(X, "__array__"):
        return True
    if isinstance(X, list | tuple) and len(X):
        first = X[0]
        if isinstance(first, float | int | np.number):
            return True
        if isinstance(first, list | tuple) and first and isinstance(first[0], float | int):
            return True
        return isinstance(first, np.ndarray) and first.ndim == 1 and first.dtype.kind in "iuf"
    return False


def _not_first(ptr: NDArray[np.int64]) -> NDArray[np.int64]:
    """The items that follow another in their sequence."""
    inner = np.ones(int(ptr[-1]) + 1, dtype=bool)
    inner[ptr] = False
    return np.flatnonzero(inner)


def _flat_labels(y: Any, ptr: NDArray[np.int64]) -> NDArray[Any]:
    """Labels of all items end to end; lengths are those of the sequences."""
    if y is None:
        raise ModelError("ChainCRF requires y to be passed, but the target y is None")
    single = not hasattr(y, "__len__") or getattr(y, "ndim", 1) == 0
    if isinstance(y, str | Mapping) or single:
        raise ModelError(f"ChainCRF: y must be a list of lists of labels, not {brief(y)}")
    if len(y) != len(ptr) - 1:
        raise ModelError(
            f"ChainCRF: y has {counted(len(y), 'sequence')}, but X has {len(ptr) - 1:,}"
        )
    for k, (own, size) in enumerate(zip(y, np.diff(ptr).tolist())):
        if isinstance(own, str | Mapping) or not hasattr(own, "__len__"):
            raise ModelError(f"ChainCRF: y[{k}] must be a list of labels, not {brief(own)}")
        if len(own) != size:
            raise ModelError(
                f"ChainCRF: sequence {k} has {counted(size, 'item')}, but "
                f"{counted(len(own), 'label')}"
            )
    flat = [*chain.from_iterable(y)]
    for label in flat:
        if label is None or label != label:
            raise ModelError(f"ChainCRF: a label must be a string or a whole number, not {label!r}")
    kinds = {str if isinstance(x, str) else type(x) for x in flat}
    if str in kinds and len(kinds) > 1:
        raise ModelError("ChainCRF: labels must be of one type, strings or numbers, not both")
    return np.array(flat)


def _by_name(
    sequences: list[Any], numbers: Any, grow: bool
) -> tuple[NDArray[np.int64], NDArray[np.int32], Floats]:
    """Where items' attributes begin, the attributes' numbers and values: as if all items were lists
    of texts or dicts of numbers, at the speed of ``map``; where one is not, once more with care."""
    attr: list[int] = []
    values: list[Any] = []
    sizes: list[int] = []
    for item in chain.from_iterable(sequences):
        if type(item) is dict:
            values.extend(item.values())
        elif type(item) in (list, tuple, set, frozenset):
            values.extend(repeat(1.0, len(item)))
        else:
            return _by_name_with_care(sequences, numbers, grow)
        sizes.append(len(item))
    plain = set(map(type, values)) <= {float, int, bool}
    if not plain or not np.isfinite(found := np.array(values, dtype=np.float64)).all():
        return _by_name_with_care(sequences, numbers, grow)
    get = numbers.__getitem__ if grow else numbers.get
    try:
        for item in chain.from_iterable(sequences):
            attr.extend(map(get, item) if grow else map(get, item, repeat(-1)))
    except TypeError:  # a feature that cannot be looked up, as a list in a list
        return _by_name_with_care(sequences, numbers, grow)
    return _ends(sizes), np.array(attr, dtype=np.int32), found


def _by_name_with_care(
    sequences: list[Any], numbers: Any, grow: bool
) -> tuple[NDArray[np.int64], NDArray[np.int32], Floats]:
    attr: list[int] = []
    values: list[float] = []
    sizes: list[int] = []
    for k, s in enumerate(sequences):
        for t, item in enumerate(s):
            before = len(attr)
            for name, value in _named(item, f"ChainCRF: sequence {k}, item {t}"):
                attr.append(numbers[name] if grow else numbers.get(name, -1))
                values.append(value)
            sizes.append(len(attr) - before)
    return _ends(sizes), np.array(attr, dtype=np.int32), np.array(values, dtype=np.float64)


def _named(item: Any, where: str) -> Iterable[tuple[str, float]]:
    """Features of an item by name, as python-crfsuite reads them."""
    if isinstance(item, Mapping):
        for name, value in item.items():
            if not isinstance(name, str):
                raise ModelError(f"{where}: features must be strings, not {brief(name)}")
            if isinstance(value, str):
                yield f"{name}:{value}", 1.0
            elif isinstance(value, Mapping | list | tuple | set | frozenset):
                for inner, x in _named(value, where):
                    yield f"{name}:{inner}", x
            else:
                if not isinstance(value, float | int | np.number | np.bool_):
                    raise ModelError(
                        f"{where}: the value of {visible(name)} must be a number, a string or "
                        f"features of its own, not {brief(value)}"
                    )
                if not np.isfinite(value):
                    raise ModelError(f"{where}: the value of {visible(name)} is {float(value)}")
                yield name, float(value)
    elif isinstance(item, list | tuple | set | frozenset):
        for name in item:
            if not isinstance(name, str):
                raise ModelError(f"{where}: features must be strings, not {brief(name)}")
            yield name, 1.0
    else:
        raise ModelError(f"{where} must be a list or a dict of features, not {brief(item)}")


def _merged(items: ChainItems, n_attr: int) -> tuple[ChainItems, NDArray[np.int64], Floats]:
    """One attribute for each different column, told apart by 128 bits; which one stands for each;
    the roots of how many."""
    from minfer.kernels.learning.chains import column_keys

    keys = np.zeros((2, n_attr), dtype=np.uint64)
    column_keys(items.iptr, items.attr, items.value.view(np.uint64), keys[0], keys[1])
    first, stands_for = alike(keys)
    number = np.full(n_attr, -1, dtype=np.int32)
    number[first] = np.arange(len(first))
    return items.keep(number), stands_for, np.sqrt(np.bincount(stands_for))
