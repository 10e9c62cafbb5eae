"""GridCRF: pictures labelled pixel by pixel, each looking at its own features and its neighbours.

    p(y | x)  proportional to  exp( sum_i u_{y_i} . x_i + sum_(i,j) [y_i = y_j] v . z_ij )

x_i are features of pixel i, z_ij of a pair of pixels next to each other; the first class has u = 0.
Weights are tied over all pixels and pictures, which may differ in size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_choice, real_numbers
from minfer.errors import ModelError, SettingsError
from minfer.graph import FactorGraph, grid_edges
from minfer.io.opening import reading
from minfer.io.text import PathLike, shown
from minfer.learn.estimator import Estimator
from minfer.learn.fitting import Fitted, fit
from minfer.learn.model import Instance, LogLinear, Template
from minfer.learn.save import labels_to_save, read_arrays, saved_labels, write_arrays

if TYPE_CHECKING:
    from minfer.learn.objectives import Objective
    from minfer.solvers.base import Marginals

#: Features of a pair of neighbours that have a name.
EDGES = {
    "bias": ["bias"], "direction": ["across", "down"], "contrast": ["bias", "contrast"],
}  # fmt: skip
PAIRS = ("equal", "corner", "all")
#: Settings that a file holds as they are.
_SAVED = (
    "pairs", "bias", "l2", "l1", "method", "max_iters", "epochs", "batch_size", "learning_rate",
    "seed", "workers",
)  # fmt: skip


@dataclass(eq=False, repr=False)
class GridCRF(Estimator):
    """A conditional random field over the pixels of pictures.

    Parameters
    ----------
    objective : name or Objective
        The loss of the marginals by default, since that is what prediction is judged by.
    edges : "bias", "direction", "contrast", or a function
        Features of neighbours: 1; one for those side by side and one for those above each other; 1
        and ``exp(-|x_i - x_j|^2 / (2 s))``, s the mean square over the training pictures; or
        ``edges(x_i, x_j, above) -> (E, n_features)`` of the pixels' features (E, D) and whether one
        is above the other (E,).
    pairs : "equal", "corner" or "all"
        What a pair's weights are about: equal labels; or, for each of them a weight, combinations
        of labels (without the first class; all).
    bias : bool
        Whether pixels have a feature that is always 1, beside those given.
    l2, l1, method, max_iters, epochs, batch_size, learning_rate, seed, workers
        As in :func:`minfer.learn.fit`.

    Attributes
    ----------
    classes_ : the labels there are, sorted
    fitted_ : Fitted, with weights, names and trace
    status_, converged_, advice_
    coef_ : {name: weight}

    Examples
    --------
    >>> import numpy as np
    >>> from minfer.learn import GridCRF
    >>> rng = np.random.default_rng(0)
    >>> y = np.zeros((4, 12, 12), int)
    >>> y[:, 3:9, 3:9] = 1
    >>> x = y + 0.5 * rng.normal(size=y.shape)
    >>> crf = GridCRF().fit(x[:3], y[:3])
    >>> crf.score(x[3:], y[3:]) > 0.9
    True
    """

    _estimator_type = "classifier"
    _tags: ClassVar[Mapping[str, Any]] = {"input.two_d_array": False, "input.three_d_array": True}

    objective: str | Objective = "marginals"
    _: KW_ONLY
    edges: str | Callable[..., Any] = "bias"
    pairs: str = "equal"
    bias: bool = True
    l2: float = 1e-4
    l1: float = 0.0
    method: str = "lbfgs"
    max_iters: int = 200
    epochs: int = 100
    batch_size: int | None = None
    learning_rate: float = 0.05
    seed: int = 0
    workers: int = 1

    def fit(self, X: Any, y: Any, *, dev: Any = None, **more: Any) -> Self:
        """Learn from pictures X, (N, H, W) or (N, H, W, D) or a list, and labels y (N, H, W).

        Labels that are -1, or NaN, are not known. ``dev``: pictures and labels (X, y) to stop by.
        More arguments go to :func:`minfer.learn.fit`.
        """
        check_choice("pairs", self.pairs, PAIRS)
        pictures, labels = _labelled(X, y)
        self.n_features_in_ = pictures[0].shape[2]
        known = np.unique(np.concatenate([one[_known(one)] for one in labels]))
        if known.dtype.kind == "f" and (known != np.rint(known)).any():
            wrong = known[known != np.rint(known)][0]
            raise ModelError(
                f"GridCRF: Unknown label type: y is continuous, it has {wrong:g}; classes must be "
                "names or whole numbers"
            )
        if len(known) < 2:
            raise ModelError(
                "GridCRF: the labels are of 1 class; two or more are needed, and -1 is not a class "
                "but a label that is not known"
            )
        self.classes_ = known
        self.spread_ = self._spread(pictures) if self.edges == "contrast" else 1.0
        pixel = ["bias"] * self.bias + [f"x{j}" for j in range(self.n_features_in_)]
        _, z = self._neighbours(pictures[0])
        names = EDGES[self.edges] if isinstance(self.edges, str) else z.shape[1]
        self.model_ = self._templates(pixel, names)
        data = [self.instance(x, t) for x, t in zip(pictures, labels)]
        if dev is not None:
            if not isinstance(dev, (tuple, list)) or len(dev) != 2:
                raise ModelError("GridCRF: dev must be (pictures, labels)")
            more["dev"] = [self.instance(x, t) for x, t in zip(*_labelled(*dev))]
        self.fitted_: Fitted = fit(
            data, self.objective, l2=self.l2, l1=self.l1, method=self.method, names=self.model_,
            max_iters=self.max_iters, epochs=self.epochs, batch_size=self.batch_size,
            learning_rate=self.learning_rate, seed=self.seed, workers=self.workers, **more,
        )  # fmt: skip
        self._say_how(self.fitted_)
        return self

    @property
    def coef_(self) -> dict[str, float]:
        self._check_fitted("coef_")
        return self.fitted_.to_dict()

    def marginals(self, picture: Any) -> Marginals:
        """Marginals of one picture's pixels, row by row."""
        return self.fitted_.objective.predictor(self.graph(picture))

    def graph(self, picture: Any) -> FactorGraph:
        """The model of one picture, for any solver or question."""
        self._check_fitted("this")
        return self.fitted_.graph(self.instance(_pictures([picture])[0]))

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes: (N, H, W, K), or a list where sizes differ."""
        self._check_fitted("predict")
        pictures = _pictures(X)
        out = [self.marginals(x).probs.reshape(*x.shape[:2], -1) for x in pictures]
        return np.stack(out) if len({p.shape for p in out}) == 1 else out

    def predict(self, X: Any) -> Any:
        """The most probable class of each pixel: (N, H, W), or a list where sizes differ."""
        p = self.predict_proba(X)
        if isinstance(p, np.ndarray):
            return self.classes_[p.argmax(axis=-1)]
        return [self.classes_[one.argmax(axis=-1)] for one in p]

    def score(self, X: Any, y: Any) -> float:
        """The share of pixels with a known label that are predicted right."""
        self._check_fitted("score")
        pictures, labels = _labelled(X, y)
        right = np.concatenate(
            [(found == told)[_known(told)] for found, told in zip(self.predict(pictures), labels)]
        )
        if not len(right):
            raise ModelError("GridCRF: there is no label to score by")
        return float(right.mean())

    def save(self, path: PathLike) -> None:
        """Write the model without pickle; see :meth:`load`."""
        self._check_fitted("save")
        header = {
            "params": {name: getattr(self, name) for name in _SAVED},
            "edges": self.edges if isinstance(self.edges, str) else None,
            "features": [list(t.features) for t in self.model_.templates],  # type: ignore[arg-type]
            **labels_to_save("GridCRF", self.classes_),
            "n_features_in": self.n_features_in_,
            "spread": self.spread_,
            "fitted": self.fitted_._header(),
        }
        write_arrays(path, "GridCRF", header, {"weights": self.fitted_.weights})

    @classmethod
    def load(
        cls,
        path: PathLike,
        *,
        edges: Callable[..., Any] | None = None,
        objective: str | Objective | None = None,
    ) -> Self:
        """A model that :meth:`save` wrote; nothing in a file is executed.

        A function given as ``edges`` is not in the file and has to be passed again, and so has an
        ``objective`` with settings of its own.
        """
        header, arrays = read_arrays(path, "GridCRF")
        with reading(path, "a model written by GridCRF.save is needed"):
            if (header["edges"] is None) != (edges is not None):
                said = f"{header['edges']!r}" if edges is not None else "a function"
                raise SettingsError(f"{shown(path)}: edges was {said} when it was fitted")
            fitted = Fitted._read(path, header["fitted"], arrays, objective)
            crf = cls(fitted.objective, edges=edges or header["edges"], **header["params"])
            crf.classes_ = saved_labels(header)
            crf.n_features_in_, crf.spread_ = int(header["n_features_in"]), float(header["spread"])
            if not all(isinstance(names, list) for names in header["features"]):
                raise ValueError("its features have no names")
            crf.model_ = crf._templates(*header["features"])
            pixel = len(header["features"][0]) - bool(crf.bias)
            fits = crf.model_.names == list(fitted.names) and crf.n_features_in_ == pixel
            if not fits or len(crf.classes_) < 2 or not 0 <= crf.spread_ < math.inf:
                raise ValueError("its weights do not fit its settings")
            crf.fitted_ = replace(fitted, model=crf.model_)
            crf._say_how(crf.fitted_)
            return crf

    # ------------------------------------------------------------------ the model

    def _templates(self, pixel: Sequence[str], pair: Sequence[str] | int) -> LogLinear:
        k = len(self.classes_)
        return LogLinear(
            [Template("pixel", (k,), pixel), Template("pair", (k, k), pair, self.pairs)]
        )

    def instance(self, picture: NDArray, labels: NDArray | None = None) -> Instance:
        """A picture (H, W, D), and its labels, as an instance."""
        height, width, d = picture.shape
        if d != self.n_features_in_:
            raise ModelError(
                f"GridCRF: a picture has {d} features per pixel, not {self.n_features_in_}"
            )
        x = picture.reshape(-1, d)
        if self.bias:
            x = np.concatenate([np.ones((len(x), 1)), x], axis=1)
        edges, z = self._neighbours(picture)
        numbers = None
        if labels is not None:
            if labels.shape != (height, width):
                raise ModelError(f"GridCRF: labels of {labels.shape} for {height}x{width} pixels")
            numbers = np.full(height * width, -1)
            known = _known(labels).ravel()
            flat = labels.ravel()[known]
            place = np.minimum(np.searchsorted(self.classes_, flat), len(self.classes_) - 1)
            if len(bad := flat[self.classes_[place] != flat]):
                raise ModelError(
                    f"GridCRF: label {bad[0]} is not one of the classes {self.classes_}"
                )
            numbers[known] = place
        n_states = np.full(height * width, len(self.classes_))
        every = np.arange(height * width)[:, None]
        return self.model_.instance(n_states, {"pixel": (every, x), "pair": (edges, z)}, numbers)

    def _neighbours(self, picture: NDArray) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Pairs of neighbours and their features."""
        height, width, d = picture.shape
        edges = grid_edges(height, width)
        above = np.arange(len(edges)) >= height * (width - 1)
        x = picture.reshape(-1, d)
        i, j = x[edges[:, 0]], x[edges[:, 1]]
        if callable(self.edges):
            z = np.asarray(self.edges(i, j, above), dtype=np.float64)
            if z.ndim != 2 or len(z) != len(edges):
                raise ModelError(f"GridCRF: edges gave {z.shape} for {len(edges)} pairs")
            return edges, z
        check_choice("edges", self.edges, tuple(EDGES))
        if self.edges == "direction":
            return edges, np.stack([~above, above], axis=1).astype(np.float64)
        bias = np.ones((len(edges), 1))
        if self.edges == "bias":
            return edges, bias
        alike = np.exp(-((i - j) ** 2).sum(axis=1) / (2.0 * self.spread_))
        return edges, np.concatenate([bias, alike[:, None]], axis=1)

    @staticmethod
    def _spread(pictures: Sequence[NDArray]) -> float:
        steps = [np.diff(x, axis=a).reshape(-1, x.shape[2]) for x in pictures for a in (0, 1)]
        squares = (np.concatenate(steps) ** 2).sum(axis=1)
        return max(float(squares.mean()), 1e-300) if len(squares) else 1.0


def _labelled(X: Any, y: Any) -> tuple[list[NDArray[np.float64]], list[NDArray[Any]]]:
    """Pictures, and as many labellings."""
    pictures = _pictures(X)
    if y is None:
        raise ModelError("GridCRF requires y to be passed, but the target y is None")
    labels = [np.asarray(one) for one in y]
    for k, one in enumerate(labels):
        if one.ndim != 2:
            raise ModelError(f"GridCRF: labels {k} have shape {one.shape}, not (H, W)")
    if len(pictures) != len(labels):
        raise ModelError(f"GridCRF: {len(pictures)} pictures but {len(labels)} labellings")
    return pictures, labels


def _pictures(X: Any) -> list[NDArray[np.float64]]:
    """Pictures as a list of (H, W, D)."""
    if hasattr(X, "tocsr"):
        raise TypeError("GridCRF: X is sparse; give dense pictures: X.toarray()")
    if not isinstance(X, (list, tuple)):
        X = np.asarray(X)
    if isinstance(X, np.ndarray) and X.dtype.kind == "c":
        raise ModelError("GridCRF: X is complex. Complex data not supported")
    if isinstance(X, np.ndarray) and X.ndim not in (3, 4):
        raise ModelError(f"GridCRF: pictures must be (N, H, W) or (N, H, W, D), not {X.shape}")
    out = []
    for k, one in enumerate(X):
        x = real_numbers(one, f"GridCRF: picture {k}").astype(np.float64)
        x = x[:, :, None] if x.ndim == 2 else x
        if x.ndim != 3 or not x.size:
            raise ModelError(f"GridCRF: picture {k} has shape {x.shape}, not (H, W) or (H, W, D)")
        if not np.isfinite(x).all():
            place = np.argwhere(~np.isfinite(x))[0].tolist()
            raise ModelError(f"GridCRF: picture {k} has a NaN or infinity at {place}")
        out.append(x)
    if not out:
        raise ModelError("GridCRF: there are no pictures")
    return out


def _known(labels: NDArray) -> NDArray[np.bool_]:
    if labels.dtype.kind == "f":
        return ~np.isnan(labels) & (labels != -1)
    return labels != -1 if labels.dtype.kind in "iu" else np.ones(labels.shape, bool)
