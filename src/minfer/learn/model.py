"""Log-linear models with tied weights: theta = theta_0 + X w.

    p(y | x; w)  proportional to  exp( sum_i theta_i . phi_i(y) ),   theta = theta_0 + X(x) w

theta are the numbers of a graph's factors, as :attr:`minfer.FactorGraph.weights` has them (a
feature has one, a table its cells), theta_0 those the graph came with, w the few weights that are
learned, and X, dense or sparse, says how often each weight counts in each number. Minus infinity in
theta_0 stays: hard factors are not learned.

An :class:`Instance` is one such graph with its X and its labels. A :class:`LogLinear` model makes
instances from *templates*: kinds of factors that share their weights wherever they occur.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_graph, check_type, integers, real_numbers, scope_array, told
from minfer.basics.words import counted
from minfer.errors import ModelError
from minfer.graph import FactorGraph

#: Weights by name for a template's basis.
BASES = ("all", "corner", "equal")
#: X of a model, dense or sparse.
Matrix = Any


@dataclass(frozen=True)
class Template:
    """A kind of factor whose weights are tied over all its occurrences.

    The log-table of an occurrence with features x (D,) is ``sum_bd w[d, b] x[d] basis[b]``.

    Parameters
    ----------
    name : str
    shape : (S_1, ..., S_A)
        Numbers of states of the variables it is over: ``(2,)``, ``(3, 3)``, ``(2, 2, 2)``.
    features : names of its D features, or how many; one that is always 1 by default
    basis : "corner", "all", "equal", or an array (B, S_1, ..., S_A)
        What a weight is about: every combination of states but those with a first state in them,
        which leaves no redundant weight ("corner"; [0, 1] for a binary variable, the
        conjunction for two); every combination ("all"); that all are in the same state ("equal");
        or B functions of the states.
    """

    name: str
    shape: tuple[int, ...]
    features: tuple[str, ...] | int | Sequence[str] = ("bias",)
    basis: Any = "corner"

    def __post_init__(self) -> None:
        check_type(self.name, str, "a template's name must be a string", ModelError)
        where = f"template {self.name!r}"
        shape = integers(self.shape, f"{where}: numbers of states").ravel()
        if not shape.size or (shape < 1).any():
            raise ModelError(f"{where}: shape is the number of states of each variable, 1 or more")
        object.__setattr__(self, "shape", tuple(int(s) for s in shape))
        names = self.features
        if isinstance(names, (int, np.integer)):
            names = tuple(f"x{d}" for d in range(int(names)))
        names = (names,) if isinstance(names, str) else tuple(names)
        if not names or len(set(names)) < len(names) or not all(isinstance(n, str) for n in names):
            raise ModelError(
                f"{where}: features must be one or more distinct names, or their number"
            )
        object.__setattr__(self, "features", names)
        if not isinstance(self.basis, str):
            basis = real_numbers(self.basis, f"{where}: basis").astype(np.float64)
            if basis.shape == self.shape:
                basis = basis[None]
            if basis.ndim != 1 + len(self.shape) or basis.shape[1:] != self.shape:
                raise ModelError(f"{where}: a basis of shape {basis.shape} over {self.shape}")
            if not np.isfinite(basis).all() or not len(basis):
                raise ModelError(f"{where}: a basis has one or more functions, of finite numbers")
            basis.setflags(write=False)
            object.__setattr__(self, "basis", basis)
        elif self.basis not in BASES:
            raise ModelError(
                f"{where}: basis must be {', '.join(BASES)} or an array, not {self.basis}"
            )
        elif self.basis == "equal" and len(set(self.shape)) > 1:
            raise ModelError(f"{where}: states {self.shape} of different numbers are never equal")

    @cached_property
    def functions(self) -> NDArray[np.float64]:
        """What its weights are about, shape (B, cells)."""
        cells = np.indices(self.shape).reshape(len(self.shape), -1)
        if not isinstance(self.basis, str):
            return np.ascontiguousarray(self.basis.reshape(len(self.basis), -1))
        if self.basis == "equal":
            return (cells == cells[0]).all(axis=0)[None].astype(np.float64)
        kept = np.ones(cells.shape[1], bool) if self.basis == "all" else (cells > 0).all(axis=0)
        return np.eye(cells.shape[1])[kept]

    @property
    def names(self) -> list[str]:
        """Its weights' names, features first, then functions of the states."""
        b = len(self.functions)
        if b == 1:
            return [f"{self.name}:{feature}" for feature in self.features]  # type: ignore[union-attr]
        if isinstance(self.basis, str):
            cells = np.indices(self.shape).reshape(len(self.shape), -1).T
            which = [",".join(map(str, cells[int(row.argmax())])) for row in self.functions]
        else:
            which = [str(k) for k in range(b)]
        return [f"{self.name}[{k}]:{feature}" for feature in self.features for k in which]  # type: ignore[union-attr]

    @property
    def truth(self) -> NDArray[np.bool_] | None:
        """Its truth table, if it is one feature over binary variables; None otherwise."""
        one = self.functions
        binary = len(one) == 1 and set(self.shape) == {2} and len(self.shape) <= 6
        if not binary or not ((one == 0) | (one == 1)).all():
            return None
        return one.reshape(self.shape).astype(bool)

    def attach(
        self, graph: FactorGraph, scopes: ArrayLike, features: Any
    ) -> tuple[FactorGraph, Matrix]:
        """The graph with this template's factors appended, and their rows of X."""
        from scipy import sparse

        where = f"template {self.name!r}"
        scope = scope_array(scopes) if np.size(scopes) else np.zeros((0, len(self.shape)), np.int32)
        if scope.shape[1] != len(self.shape):
            raise ModelError(f"{where} is over {len(self.shape)} variables, not {scope.shape[1]}")
        x = checked_matrix(features, len(scope), len(self.features), where)  # type: ignore[arg-type]
        truth = self.truth
        if truth is not None:
            return graph.add_features(scope, 0.0, truth), sparse.csr_array(x)
        if len(scope):
            known = (scope >= 0) & (scope < graph.n_variables)
            states = graph._n_states[np.where(known, scope, 0)]
            if (wrong := (known & (states != self.shape)).any(axis=1)).any():
                bad = int(np.argmax(wrong))
                raise ModelError(
                    f"{where} is over {self.shape} states, but its occurrence {bad} over "
                    f"{tuple(states[bad].tolist())}"
                )
            graph = graph.add_tables(scope, np.zeros((len(scope), *self.shape)))
        rows = sparse.kron(sparse.csr_array(x), sparse.csr_array(self.functions.T), format="csr")
        return graph, sparse.csr_array(rows)


@dataclass(frozen=True, eq=False)
class Instance:
    """A graph, how weights make its numbers, and what is known about its true states.

    Parameters
    ----------
    graph : FactorGraph, of numbers theta_0; evidence in it is what the model is conditioned on
    features : X, an array or scipy sparse array (graph's weights, learned weights)
    labels : true states (V,), or (N, V) for N observations of one and the same graph; -1: hidden
    name : str, for messages
    """

    graph: FactorGraph
    features: Matrix
    labels: NDArray[np.int32]
    name: str = ""

    def __post_init__(self) -> None:
        where = self.name or "instance"
        check_graph(self.graph, where)
        n = int(self.graph.weight_offsets[-1])
        x = checked_matrix(self.features, n, None, where)
        labels = integers(self.labels, f"{where}: labels", bools=True)
        v = self.graph.n_variables
        if labels.ndim not in (1, 2) or labels.shape[-1] != v or not len(np.atleast_2d(labels)):
            raise ModelError(
                f"{where}: labels of shape {labels.shape} for {counted(v, 'variable')}"
            )
        wrong = (labels < -1) | (labels >= self.graph._n_states)
        if wrong.any():
            place = tuple(int(k[0]) for k in np.nonzero(wrong))
            raise ModelError(
                f"{where}: label {int(labels[place])} of {self.graph.name(place[-1])}, which has "
                f"states 0 to {int(self.graph._n_states[place[-1]]) - 1}; -1 is a hidden label"
            )
        object.__setattr__(self, "features", x)
        object.__setattr__(self, "labels", self._with_evidence(np.atleast_2d(labels), where))

    def _with_evidence(self, labels: NDArray[Any], where: str) -> NDArray[np.int32]:
        """Labels, with states that evidence leaves no choice of filled in."""
        labels, log_field = labels.astype(np.int32), self.graph._field
        if log_field is None:
            return labels
        offsets = self.graph._offsets[:-1]
        allowed = np.add.reduceat(log_field > -np.inf, offsets)
        known = np.flatnonzero((allowed == 1) & (self.graph._n_states > 1))
        possible = np.flatnonzero(log_field > -np.inf)
        state = possible[np.searchsorted(possible, offsets[known])] - offsets[known]
        wrong = (labels[:, known] >= 0) & (labels[:, known] != state)
        if wrong.any():
            v = int(known[wrong.any(axis=0)][0])
            raise ModelError(f"{where}: the label of {self.graph.name(v)} contradicts its evidence")
        labels[:, known] = state
        return labels

    @property
    def n_weights(self) -> int:
        """How many weights are learned."""
        return int(self.features.shape[1])

    @property
    def n_labels(self) -> int:
        """How many states are known, over all observations."""
        return int((self.labels >= 0).sum())

    @property
    def hidden(self) -> bool:
        """Whether the state of some variable is not known."""
        return bool((self.labels < 0).any())

    def graph_at(self, weights: ArrayLike) -> FactorGraph:
        """The graph with numbers theta_0 + X w."""
        return self.graph.with_weights(self.graph.weights + self.features @ np.asarray(weights))

    def __repr__(self) -> str:
        text = f"{self.graph!r}, {counted(self.n_weights, 'weight')}"
        return f"Instance({text}, {counted(self.n_labels, 'label')})"


@dataclass(frozen=True)
class LogLinear:
    """A model as templates; its weights are theirs, one template after the other.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer.learn import LogLinear, Template
    >>> model = LogLinear([Template("seen", (2,), ["bias", "grey"]), Template("pair", (2, 2))])
    >>> model.names
    ['seen:bias', 'seen:grey', 'pair:bias']
    >>> seen = [[1, 0.2], [1, 0.9]]
    >>> one = model.instance([2, 2], {"seen": ([[0], [1]], seen), "pair": [[0, 1]]}, labels=[0, 1])
    >>> one.graph
    FactorGraph(2 variables of 2 states; 3 factors: 2 unary, 1 pairwise)
    """

    templates: tuple[Template, ...] | Sequence[Template] = field(default=())

    def __post_init__(self) -> None:
        templates = tuple(self.templates)
        if not templates or not all(isinstance(t, Template) for t in templates):
            raise ModelError("LogLinear takes one or more Templates")
        names = [t.name for t in templates]
        if len(set(names)) < len(names):
            raise ModelError("LogLinear: two templates have the same name")
        object.__setattr__(self, "templates", templates)

    @property
    def names(self) -> list[str]:
        """The names of all weights, shape (n_weights,)."""
        return [name for t in self.templates for name in t.names]

    @property
    def n_weights(self) -> int:
        return len(self.names)

    def instance(
        self,
        n_states: ArrayLike | FactorGraph,
        factors: Mapping[str, Any],
        labels: ArrayLike | None = None,
        name: str = "",
    ) -> Instance:
        """A graph with occurrences of the templates.

        Parameters
        ----------
        n_states : int array (V,), or a FactorGraph
            The variables; factors of a graph that is given stay as they are.
        factors : {template: scopes (F, A), or (scopes, features (F, D))}
            Features, dense or sparse, may be left out where there is one that is always 1.
        labels : int array (V,) or (N, V), -1 where hidden; all hidden by default
        """
        from scipy import sparse

        where = name or "instance"
        given = isinstance(n_states, FactorGraph)
        graph: FactorGraph = n_states if given else FactorGraph.empty(n_states)  # type: ignore[assignment,arg-type]
        check_type(factors, Mapping, f"{where}: factors are {{template: scopes}}", ModelError)
        unknown = set(factors) - {t.name for t in self.templates}
        if unknown:
            known = ", ".join(t.name for t in self.templates)
            raise ModelError(f"{where}: no template {told(min(unknown))}; there are {known}")
        blocks = [sparse.csr_array((int(graph.weight_offsets[-1]), 0))]
        for t in self.templates:
            scopes, x = _occurrences(factors.get(t.name, ()), t, where)
            graph, rows = t.attach(graph, scopes, x)
            blocks.append(rows)
        x = sparse.csr_array(sparse.block_diag(blocks, format="csr"))
        if labels is None:
            labels = np.full(graph.n_variables, -1)
        return Instance(graph, x, labels, name)  # type: ignore[arg-type]


def _occurrences(given: Any, template: Template, where: str) -> tuple[Any, Any]:
    """Scopes and features of a template's factors; one feature may be a vector (F,)."""
    if isinstance(given, tuple) and len(given) == 2 and _depth(given[0]) == 2:
        scopes, x = given
        return scopes, np.asarray(x)[:, None] if _depth(x) == 1 else x
    if len(template.features) > 1:  # type: ignore[arg-type]
        raise ModelError(
            f"{where}: template {template.name!r} has {len(template.features)} features: "  # type: ignore[arg-type]
            "give (scopes, features), features of shape (F, D)"
        )
    return given, np.ones((len(given), 1))


def _depth(values: Any) -> int:
    """Dimensions, by the first entries: 2 for [[0], [1]], whatever else is in it."""
    if hasattr(values, "ndim"):
        return int(values.ndim)
    return 1 + _depth(values[0]) if isinstance(values, (list, tuple)) and len(values) else 0


def checked_matrix(values: Any, rows: int, columns: int | None, where: str) -> Matrix:
    """A dense or sparse matrix of finite numbers, float64."""
    if hasattr(values, "tocsr"):
        from scipy import sparse

        x: Any = sparse.csr_array(values, dtype=np.float64)
        numbers = x.data
    else:
        x = np.ascontiguousarray(real_numbers(values, f"{where}: features"), dtype=np.float64)
        numbers = x
    wanted = f"({rows}, {'W' if columns is None else columns})"
    if x.ndim != 2 or x.shape[0] != rows or (columns is not None and x.shape[1] != columns):
        raise ModelError(f"{where}: features must have shape {wanted}, not {x.shape}")
    if not np.isfinite(numbers).all():
        row = int(np.argwhere(~np.isfinite(numbers))[0][0])
        if numbers is not x:  # sparse
            row = int(np.searchsorted(x.indptr, row, side="right")) - 1
        raise ModelError(f"{where}: features have a NaN or infinity in row {row}")
    return x


def check_instances(data: Any, where: str = "", *, labelled: bool = True) -> list[Instance]:
    """Instances of one number of weights; ``labelled``: at least one label among them."""
    if isinstance(data, Instance):
        data = [data]
    try:
        data = list(data)
    except TypeError:
        raise ModelError(f"data must be Instances, or portions of them, not {told(data)}") from None
    if not data:
        raise ModelError(f"there is nothing to learn from: {where or 'the data'} are empty")
    for k, one in enumerate(data):
        check_type(one, Instance, f"instance {k} is an Instance", ModelError)
        if one.n_weights != data[0].n_weights:
            raise ModelError(
                f"instance {k} has {one.n_weights} weights, instance 0 {data[0].n_weights}"
            )
    if labelled and not any(one.n_labels for one in data):
        raise ModelError("there is nothing to learn from: no instance has a label")
    return data
