"""The model: an immutable factor graph as a struct of arrays.

    p(x)  proportional to  exp( sum_v field_v(x_v) ) * prod_i Psi_i(x_{scope(i)})

Variables are numbered 0..V-1 and have ``n_states[v] >= 1`` states; factors are numbered 0..F-1 and
lie in groups of one shape (see :mod:`minfer.factors`). ``field`` holds what was *learned* about
single variables after the model was built: hard evidence (minus infinity on the excluded states),
soft evidence (log-likelihoods), corrections. Every operation returns a new graph and shares what it
can with the old one; a graph never changes.

Graphs made from one another by :meth:`FactorGraph.keep`, evidence or :meth:`FactorGraph.tilt` share
a *lineage* and remember their factors' numbers in it, so that messages of one can start the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.checks import (
    check_flag,
    checked_names,
    checked_states,
    concatenate,
    edge_array,
    integer,
    integers,
    look_like_probabilities,
    real_numbers,
    scope_array,
    scope_list,
    table_sizes,
    told,
    unique_rows,
    warn,
)
from minfer.directed import build_network, with_probabilities
from minfer.errors import ContradictionError, ModelError, visible
from minfer.evidence import Evidence, log_field, numbered, soft_evidence
from minfer.factors.clause import Clauses
from minfer.factors.counting import AtMostOne, Cardinalities, ExactlyOne
from minfer.factors.distances import distances, recognised
from minfer.factors.features import Features, truth_table
from minfer.factors.globals import GlobalFactor, Globals
from minfer.factors.group import MAX_LOG, FactorGroup, connected, n_entries, read_only
from minfer.factors.logical import Logical
from minfer.factors.output import Ands, Ors
from minfer.factors.parity import Parities
from minfer.factors.tables import Tables, check_entries, check_log_psi
from minfer.notebook import card
from minfer.states import (
    StateNames,
    Variables,
    checked_state_names,
    declared_states,
)
from minfer.words import counted

if TYPE_CHECKING:
    from minfer.joint import Joint

_FEW_FACTORS = 5000
#: What a graph computes once about its structure.
_CACHED = (
    "n_factors", "_offsets", "_where", "arity", "_index", "weight_offsets", "_conditioning"
)  # fmt: skip


def new_lineage() -> str:
    """A name that no other graph has."""
    return os.urandom(8).hex()


class Component(NamedTuple):
    """A connected component: its own graph, and what its variables and factors were called."""

    graph: FactorGraph
    variables: NDArray[np.int64]
    factors: NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class FactorGraph(Variables):
    """A discrete factor graph. Build it with one of the class methods; it never changes.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import FactorGraph
    >>> FactorGraph.pairwise(log_odds=[0.5, -1.0, 0.0], edges=[[0, 1], [1, 2]], weights=[2.0, 1.0])
    FactorGraph(3 variables of 2 states; 5 factors: 3 unary, 2 pairwise)
    """

    _n_states: NDArray[np.int32]
    groups: tuple[FactorGroup, ...] = ()
    names: tuple[str, ...] | None = None
    _field: NDArray[np.float64] | None = None
    _origin: NDArray[np.int64] | None = None
    lineage: str = field(default_factory=new_lineage)
    #: Names of the variables' states, or None.
    _states: StateNames | None = None
    #: (F,) the variable of which a factor is the conditional distribution, or -1; None: nowhere.
    _child: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self._n_states, np.ndarray) or not isinstance(self.groups, tuple):
            raise ModelError(
                "a FactorGraph is made by FactorGraph.from_tables(n_states, scopes, log_tables), "
                "named, pairwise, grid or empty"
            )

    # ------------------------------------------------------------------ building

    @classmethod
    def empty(
        cls, n_states: ArrayLike, names: Sequence[str] | Mapping[str, int] | None = None
    ) -> FactorGraph:
        """Variables without factors; add some with :meth:`add_tables` and its siblings.

        Parameters
        ----------
        n_states : int array (V,)
            Number of states of each variable, at least 1.
        names : V distinct strings, optional
        """
        return cls(checked_states(n_states), (), checked_names(names, np.size(n_states)))

    @classmethod
    def pairwise(
        cls,
        log_odds: ArrayLike,
        edges: ArrayLike,
        weights: ArrayLike,
        feature: str | ArrayLike = "and",
        *,
        names: Sequence[str] | None = None,
    ) -> FactorGraph:
        """Binary pairwise model p(y) ∝ exp(sum_v a_v y_v + sum_k w_k phi(y_i, y_j)).

        Parameters
        ----------
        log_odds : float array (V,)
            One unary factor per variable, factors 0..V-1.
        edges : int array (E, 2)
            Factors V..V+E-1, in this order; several on one pair are allowed.
        weights : float or float array (E,)
        feature : "and" (y_i y_j), "equal" ([y_i = y_j]), "or", "implies", or a 2x2 truth table
        """
        log_odds = real_numbers(log_odds, "log_odds")
        if log_odds.ndim != 1:
            raise ModelError(f"log_odds must have shape (V,), not {log_odds.shape}")
        return cls._pairwise(log_odds, edge_array(edges), weights, feature, names)

    @classmethod
    def _pairwise(
        cls,
        log_odds: ArrayLike,
        edges: NDArray[np.int32],
        weights: ArrayLike,
        feature: str | ArrayLike,
        names: Sequence[str] | None = None,
    ) -> FactorGraph:
        """As ``pairwise``; the graph keeps ``edges`` itself."""
        log_odds = np.asarray(log_odds, dtype=np.float64).ravel()
        graph = cls.empty(np.full(log_odds.size, 2, np.int32), names)
        unary = np.arange(log_odds.size, dtype=np.int32)[:, None]
        graph = graph._append_features(unary, log_odds, [False, True])
        return graph._append_features(edges, weights, feature)

    @classmethod
    def grid(
        cls, log_odds: ArrayLike, coupling: ArrayLike = 1.0, feature: str | ArrayLike = "equal"
    ) -> FactorGraph:
        """Four-connected binary grid: the Ising model of section 5.1 of the paper.

        Parameters
        ----------
        log_odds : float array (H, W)
            Variable ``r * W + c`` is the pixel in row r, column c.
        coupling : float, or array (H*(W-1) + (H-1)*W,)
            Weight of [y_i = y_j]; horizontal edges first, row by row, then the vertical ones.
        """
        log_odds = real_numbers(log_odds, "grid: log_odds")
        if log_odds.ndim != 2:
            raise ModelError(f"grid: log_odds must have shape (H, W), not {log_odds.shape}")
        return cls._pairwise(log_odds, grid_edges(*log_odds.shape), coupling, feature)

    @classmethod
    def from_tables(
        cls,
        n_states: ArrayLike,
        scopes: ArrayLike | Sequence[Sequence[int]],
        log_tables: ArrayLike | Sequence[ArrayLike],
        names: Sequence[str] | None = None,
    ) -> FactorGraph:
        """Model of dense log-tables of any arity, in the given order.

        Parameters
        ----------
        n_states : int array (V,)
        scopes : F sequences of variable numbers, or one int array (F, A)
        log_tables : F arrays, or one float array (F, S_1, ..., S_A)
            ``log_tables[i][s_1, ..., s_A]`` is log Psi_i; flat tables run with the last variable
            fastest. Minus infinity forbids a combination; NaN and plus infinity are errors.
        """
        return cls.empty(n_states, names).add_tables(scopes, log_tables)

    @classmethod
    def named(
        cls,
        n_states: Mapping[str, int | Sequence[str]],
        log_tables: Mapping[tuple[str, ...], ArrayLike] | Iterable[tuple[Sequence[str], ArrayLike]],
        *,
        probabilities: bool = False,
    ) -> FactorGraph:
        """A small model by names.

        Parameters
        ----------
        n_states : {variable: its number of states, or their names}
        log_tables : {(variable, ...): log-table}, or pairs of the two
        probabilities : bool
            Whether the tables are probabilities, or other numbers that are not negative, instead
            of their logarithms. A table that is a conditional distribution of its last variable
            then knows it, as in :meth:`network`: pruning, sampling and sensitivity use that.

        Examples
        --------
        >>> from minfer import FactorGraph
        >>> tables = {("rain",): [0, -1.4], ("rain", "wet"): [[0, -3], [-2, 0]]}
        >>> FactorGraph.named({"rain": 2, "wet": 2}, tables)
        FactorGraph(2 variables of 2 states; 2 factors: 1 unary, 1 pairwise)
        >>> tables = {("rain",): [0.8, 0.2], ("rain", "wet"): [[0.9, 0.1], [0.2, 0.8]]}
        >>> states = {"rain": 2, "wet": ["no", "yes"]}
        >>> FactorGraph.named(states, tables, probabilities=True).directed
        True
        """
        check_flag("named: probabilities", probabilities)
        sizes, state_names = declared_states(n_states, "named")
        pairs = log_tables.items() if isinstance(log_tables, Mapping) else log_tables
        graph = cls.empty(sizes, list(n_states)).with_state_names(state_names)
        scopes, tables = [], []
        for pair in pairs if np.iterable(pairs) else [pairs]:
            if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
                raise ModelError(
                    "named: tables must be a mapping {(name, ...): log-table}, or pairs of the "
                    f"two, not {told(pair)}"
                )
            scope, table = pair
            one = isinstance(scope, str) or not np.iterable(scope)  # a string is one name
            names: Any = [scope] if one else scope
            scopes.append([graph.index(name) for name in names])
            tables.append(table)
        if probabilities:
            return with_probabilities(graph, scopes, tables)
        return graph.add_tables(scopes, tables)

    @classmethod
    def network(
        cls,
        states: Mapping[str, int | Sequence[str]],
        tables: Mapping[str, Any],
    ) -> FactorGraph:
        """A Bayesian network, in probabilities.

        Parameters
        ----------
        states : {variable: its states' names, or how many}
        tables : {variable: P(variable), or (parents, P(variable | parents))}
            The table's axes are the parents in their order, then the variable itself; every row
            over the variable's states sums to one. A matrix with a row for each combination of the
            parents' states, the last parent's fastest, and a flat list of these rows will do too;
            any other shape is refused (pgmpy's tables have columns: give ``table.T``).

        Examples
        --------
        >>> from minfer import FactorGraph
        >>> g = FactorGraph.network(
        ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
        ...     {"rain": [0.8, 0.2], "wet": (["rain"], [[0.9, 0.1], [0.2, 0.8]])},
        ... )
        >>> g.directed, g.states("wet")
        (True, ('no', 'yes'))
        """
        return build_network(cls, states, tables)

    def add_features(
        self, scope: ArrayLike, theta: ArrayLike, feature: str | ArrayLike = "and"
    ) -> FactorGraph:
        """Append features exp(theta * phi) over binary variables.

        Parameters
        ----------
        scope : int array (F, A), A <= 6
        theta : float or float array (F,), finite
        feature : a name (pairs only) or a truth table of shape (2,) * A
        """
        return self._append_features(scope_array(scope), theta, feature)

    def _append_features(
        self, scope: NDArray[np.int32], theta: ArrayLike, feature: str | ArrayLike
    ) -> FactorGraph:
        """Check and append; the graph keeps ``scope`` itself, so it must be nobody else's."""
        n, arity = scope.shape
        truth = truth_table(feature, arity)
        weights = real_numbers(theta, "add_features: weights")
        theta_ = np.empty(n)
        try:
            theta_[:] = weights
        except ValueError:
            raise ModelError(
                f"add_features: {n} scopes but weights of shape {weights.shape}"
            ) from None
        first = self.n_factors
        self._check_scopes(scope, first)
        if not (np.abs(theta_) < MAX_LOG).all():
            bad = int(np.flatnonzero(~(np.abs(theta_) < MAX_LOG))[0])
            raise ModelError(
                f"factor {first + bad}: weight {theta_[bad]} is not finite (within 1e300); "
                "use a table for a hard constraint, or evidence for a known value"
            )
        if n and self._n_states.size and not (self._n_states == 2).all():
            states = self._n_states[scope]
            if (states != 2).any():
                bad = int(np.flatnonzero((states != 2).any(axis=1))[0])
                raise ModelError(
                    f"factor {first + bad}: features are over binary variables, but its scope "
                    f"{self._scope_text(scope[bad])} has {states[bad].tolist()} states; use a table"
                )
        ids = np.arange(first, first + n)
        return self._append(Features(ids, scope, truth, theta_))

    def add_tables(
        self,
        scopes: ArrayLike | Sequence[Sequence[int]],
        log_tables: ArrayLike | Sequence[ArrayLike],
    ) -> FactorGraph:
        """Append dense log-tables; arguments as in :meth:`from_tables`.

        Warns if all of them look like probabilities.
        """
        graph = self._add_tables(scopes, log_tables)
        more = graph.groups[len(self.groups) :]
        if look_like_probabilities(g._log_psi.reshape(-1, *g.shape) for g in more):  # type: ignore[attr-defined]
            warn(
                "the log-tables look like probabilities: each sums to one. Give their logarithms, "
                "or build the model by FactorGraph.network, or named(..., probabilities=True)"
            )
        return graph

    def _add_tables(
        self,
        scopes: ArrayLike | Sequence[Sequence[int]],
        log_tables: ArrayLike | Sequence[ArrayLike],
    ) -> FactorGraph:
        if isinstance(scopes, np.ndarray) and scopes.ndim == 2:
            return self._add_table_batch(scopes, log_tables)
        listed = scope_list(scopes, self.n_factors)
        if not np.iterable(log_tables):
            raise ModelError(f"log-tables must be F arrays, one for each scope, not {log_tables!r}")
        tables = [
            real_numbers(t, f"factor {self.n_factors + i}: log-tables")
            for i, t in enumerate(log_tables)
        ]
        if len(listed) != len(tables):
            raise ModelError(f"{len(listed)} scopes but {len(tables)} tables")
        for i, (s, t) in enumerate(zip(listed, tables)):
            if s.size and (s.min() < 0 or s.max() >= self.n_variables):
                raise ModelError(
                    f"factor {self.n_factors + i}: scope {s.tolist()} names a variable outside "
                    f"0..{self.n_variables - 1}"
                )
            want = tuple(int(k) for k in self._n_states[s])
            if t.shape != want and t.shape != (n_entries(want),):
                check_entries(f"factor {self.n_factors + i}", want)
                raise ModelError(
                    f"factor {self.n_factors + i}: table has shape {t.shape}, but its scope "
                    f"{self._scope_text(s)} needs {want}"
                )
        arity = np.array([s.size for s in listed], dtype=np.int64)
        return self.add_flat_tables(
            arity, concatenate(listed, np.int32), concatenate(tables, np.float64)
        )

    def add_flat_tables(
        self, arity: NDArray[np.int64], scopes: NDArray[np.int32], log_psi: NDArray[np.float64]
    ) -> FactorGraph:
        """Append tables of any shapes from flat arrays: no object per factor.

        Parameters
        ----------
        arity : int array (F,)
        scopes : int array (sum of arity,), the scopes one after the other
        log_psi : float array (sum of table sizes,), each table with its last variable fastest
        """
        arity, scopes = integers(arity, "arity").ravel(), integers(scopes, "scopes").ravel()
        log_psi = real_numbers(log_psi, "log_psi").ravel()
        first, n = self.n_factors, len(arity)
        if (n and arity.min() < 0) or arity.sum() != len(scopes):
            raise ModelError(f"arities of {arity.sum()} in all, but {len(scopes)} variables")
        scope_ptr = np.concatenate([[0], np.cumsum(arity)])
        if scopes.size and (scopes.min() < 0 or scopes.max() >= self.n_variables):
            bad = int(np.flatnonzero((scopes < 0) | (scopes >= self.n_variables))[0])
            factor = int(np.searchsorted(scope_ptr, bad, side="right")) - 1
            raise ModelError(
                f"factor {first + factor}: variable {int(scopes[bad])} is outside "
                f"0..{self.n_variables - 1}"
            )
        sizes = table_sizes(self._n_states[scopes], arity)
        if sizes.sum() != log_psi.size:
            largest = int(np.argmax(sizes))
            states = self._n_states[scopes[scope_ptr[largest] : scope_ptr[largest + 1]]]
            check_entries(f"factor {first + largest}", states.tolist())
            raise ModelError(f"tables need {sizes.sum():.0f} entries, {log_psi.size} were given")
        table_ptr = np.concatenate([[0], np.cumsum(sizes.astype(np.int64))])
        check_log_psi(log_psi, table_ptr, first)
        groups: list[FactorGroup] = []
        log_psi = log_psi.astype(np.float64, copy=False)
        for shape, rows, scope in self._by_shape(arity, scopes, scope_ptr):
            if len(rows) == 1:
                begin = table_ptr.item(rows.item())
                entries = log_psi[begin : begin + n_entries(shape)][None].copy()
            else:
                entries = log_psi[table_ptr[rows][:, None] + np.arange(n_entries(shape))]
            groups.append(Tables(first + rows, scope, shape, entries))
        return self._append(*groups)

    def _by_shape(
        self, arity: NDArray[np.int64], scopes: NDArray, scope_ptr: NDArray[np.int64]
    ) -> Iterator[tuple[tuple[int, ...], NDArray[np.int64], NDArray[np.int32]]]:
        """Each shape, its factors, and their scopes (F, A); by arity, then by shape."""
        if len(arity) <= _FEW_FACTORS:  # plain loops are faster than so many calls
            listed, ends = scopes.tolist(), scope_ptr.tolist()
            states = self._n_states[scopes].tolist()
            found: dict[tuple[int, ...], list[int]] = {}
            for i, (lo, hi) in enumerate(pairwise(ends)):
                found.setdefault(tuple(states[lo:hi]), []).append(i)
                if len(set(listed[lo:hi])) < hi - lo:
                    self._check_scopes(scopes[None, lo:hi], self.n_factors + i)
            for shape in sorted(found, key=lambda shape: (len(shape), shape)):
                mine = found[shape]
                own = [listed[ends[i] : ends[i + 1]] for i in mine]
                yield shape, np.array(mine), np.array(own, dtype=np.int32)
            return
        for a in np.unique(arity):
            rows = np.flatnonzero(arity == a)
            scope = scopes[scope_ptr[rows][:, None] + np.arange(a)].astype(np.int32)
            self._check_scopes(scope, self.n_factors + rows)
            shapes, which = unique_rows(self._n_states[scope])
            for k in range(len(shapes)):
                r = np.flatnonzero(which == k)
                yield tuple(shapes[k].tolist()), rows[r], scope[r]

    def _add_table_batch(self, scopes: NDArray, log_tables: ArrayLike | Any) -> FactorGraph:
        """Tables of one shape: no regrouping. A leading axis of 1 is one table shared by all."""
        scope = scope_array(scopes)
        n, arity = scope.shape
        first = self.n_factors
        self._check_scopes(scope, first)
        log_psi = np.array(real_numbers(log_tables, "add_tables: log-tables"), dtype=np.float64)
        shapes = self._n_states[scope]
        if n == 0:
            return self
        if (shapes != shapes[0]).any():
            if log_psi.ndim == 0 or log_psi.shape[0] != n:
                raise ModelError("add_tables: a shared table needs scopes of one shape")
            return self.add_flat_tables(np.full(n, arity), scope.ravel(), log_psi.ravel())
        shape = tuple(int(s) for s in shapes[0])
        rows = log_psi.shape[0] if log_psi.ndim else 0
        if rows not in (1, n) or log_psi.shape[1:] not in (shape, (n_entries(shape),)):
            check_entries(f"factor {first}", shape)
            raise ModelError(
                f"add_tables: {n} scopes with {list(shape)} states need tables of shape "
                f"{(n, *shape)}, or {(1, *shape)} for one shared table; got {log_psi.shape}"
            )
        log_psi = np.ascontiguousarray(log_psi.reshape(rows, -1))
        size = log_psi.shape[1]
        check_log_psi(log_psi.ravel(), np.arange(rows + 1) * size, first)
        return self._append(Tables(np.arange(first, first + n), scope, shape, log_psi))

    def add_global(self, scope: ArrayLike, factor: GlobalFactor) -> FactorGraph:
        """Append one global factor over the variables in ``scope`` (A,), or F over (F, A)."""
        scope_ = scope_array(np.atleast_2d(integers(scope, "add_global: a scope")))
        if not (hasattr(factor, "messages") and hasattr(factor, "score")):
            raise ModelError("add_global: a global factor has methods messages() and score()")
        self._check_scopes(scope_, self.n_factors)
        return self.add_groups(lambda ids, scope, shape: Globals(ids, scope, shape, factor), scope_)

    # ------------------------------------------------------------------ pairs of labels

    def add_potts(self, scope: ArrayLike, weights: ArrayLike) -> FactorGraph:
        """Append pairs of variables with the same labels: log-weight w where the labels agree.

        Parameters
        ----------
        scope : int array (F, 2)
            Pairs of variables that have equally many states.
        weights : float or float array (F,)
            Negative ones push labels apart. Infinity: they must agree; minus infinity: differ.

        Examples
        --------
        >>> from minfer import BeliefPropagation, FactorGraph
        >>> graph = FactorGraph.empty([3, 3]).tilt([1.0, 0, 0, 0, 0, 0]).add_potts([[0, 1]], 2.0)
        >>> BeliefPropagation()(graph)[1].round(3).tolist()
        [0.499, 0.251, 0.251]
        """
        return self._add_distances(scope, weights, lambda far: [1.0, 0.0], "add_potts")

    def add_truncated_linear(
        self, scope: ArrayLike, weights: ArrayLike, truncation: float, *, hard: bool = False
    ) -> FactorGraph:
        """Append smoothness of ordered labels: log psi is ``-w min(|x - y|, truncation)``.

        Parameters
        ----------
        scope : int array (F, 2)
            Pairs of variables that have equally many states.
        weights : float or float array (F,)
        truncation : float
            The distance beyond which the cost does not grow; infinity for none.
        hard : bool
            Labels further apart than the truncation are impossible.
        """
        cut = _truncation(truncation, "add_truncated_linear")
        check_flag("add_truncated_linear: hard", hard)
        return self._add_distances(
            scope, weights, lambda far: _cut_off(-np.arange(far + 1.0), cut, hard),
            "add_truncated_linear",
        )  # fmt: skip

    def add_truncated_quadratic(
        self, scope: ArrayLike, weights: ArrayLike, truncation: float, *, hard: bool = False
    ) -> FactorGraph:
        """Append smoothness of ordered labels: log psi is ``-w min(|x - y|, truncation)^2``.

        Arguments as in :meth:`add_truncated_linear`.
        """
        cut = _truncation(truncation, "add_truncated_quadratic")
        check_flag("add_truncated_quadratic: hard", hard)
        return self._add_distances(
            scope, weights, lambda far: _cut_off(-(np.arange(far + 1.0) ** 2), cut, hard, 2),
            "add_truncated_quadratic",
        )  # fmt: skip

    def add_label_distances(
        self, scope: ArrayLike, log_weights: ArrayLike, weights: ArrayLike = 1.0
    ) -> FactorGraph:
        """Append pairs of variables with the same labels, by how far apart the labels are.

        Parameters
        ----------
        scope : int array (F, 2)
            Pairs of variables that have equally many states.
        log_weights : float array (T,) for all factors, or (F, T)
            log psi by distance ``|x - y|`` from 0 on; the last one applies to all larger ones.
            Minus infinity forbids. A distance costs time, so end the list where nothing changes.
        weights : float or float array (F,)
            What the log-weights are multiplied with; learning changes these.
        """
        given = real_numbers(log_weights, "add_label_distances: log-weights").astype(np.float64)
        table = np.atleast_2d(given)
        if given.ndim not in (1, 2) or not table.shape[1]:
            raise ModelError(
                "add_label_distances: log-weights must be a list by distance, of shape (T,) or "
                f"(F, T), not {given.shape}"
            )
        return self._add_distances(scope, weights, lambda far: table, "add_label_distances")

    def structured(self, tolerance: float = 1e-12) -> FactorGraph:
        """The same model, with tables that depend on the distance of two labels as such factors.

        Potts, truncated linear and quadratic tables and other functions of ``|x - y|`` with few
        different numbers are found, factors keep theirs. Belief propagation, mean field and Gibbs
        sampling then take time and memory proportional to the number of labels, not to its square.

        Parameters
        ----------
        tolerance : float
            Cells of one distance may differ by this times ``1 + |log psi|``; 0 for none at all.

        Examples
        --------
        >>> import numpy as np
        >>> from minfer import FactorGraph
        >>> table = 2.0 * np.eye(50)
        >>> graph = FactorGraph.from_tables([50, 50], [[0, 1]], [table]).structured()
        >>> graph.groups[0].theta, graph.groups[0].profile
        (array([2.]), array([[1., 0.]]))
        """
        limit = real_numbers(tolerance, "structured: the tolerance")
        if limit.ndim or not 0.0 <= float(limit) < 1.0:
            raise ModelError(
                f"structured: the tolerance must be from 0 to below 1, not {told(tolerance)}"
            )
        groups = [part for g in self.groups for part in recognised(g, float(limit))]
        if all(a is b for a, b in zip(groups, self.groups)):
            return self
        return FactorGraph(
            self._n_states, tuple(groups), self.names, self._field, _states=self._states,
            _child=self._child,
        )  # fmt: skip

    def _add_distances(
        self, scope: ArrayLike, weights: ArrayLike, profile: Callable[[int], Any], who: str
    ) -> FactorGraph:
        """Append pairs of labels; ``profile(d)`` gives numbers by distance up to d, or beyond."""
        scope_ = scope_array(scope)
        n = len(scope_)
        given = real_numbers(weights, f"{who}: weights")
        if given.dtype == bool:
            raise ModelError(f"{who}: a weight must be a number, not {told(weights)}")
        theta = _per_factor(given, n, f"{who}: weights", float)
        if scope_.shape[1] != 2:
            raise ModelError(f"{who}: scopes must be pairs of variables (F, 2), not {scope_.shape}")
        self._check_scopes(scope_, self.n_factors)
        labels = self._n_states[scope_]
        if (labels[:, 0] != labels[:, 1]).any():
            bad = int(np.flatnonzero(labels[:, 0] != labels[:, 1])[0])
            raise ModelError(
                f"factor {self.n_factors + bad}: its variables {self._scope_text(scope_[bad])} "
                f"have {labels[bad].tolist()} states, and a distance of labels needs equally many; "
                "use a table"
            )
        if np.isnan(theta).any():
            bad = int(np.flatnonzero(np.isnan(theta))[0])
            raise ModelError(f"factor {self.n_factors + bad}: its weight is NaN")
        groups: list[FactorGroup] = []
        for k in np.unique(labels[:, 0]).tolist():
            rows = np.flatnonzero(labels[:, 0] == k)
            table = np.atleast_2d(np.asarray(profile(k - 1), dtype=np.float64))
            if len(table) > 1:
                if len(table) != n:
                    raise ModelError(f"{who}: {n} scopes but log-weights of shape {table.shape}")
                table = table[rows]
            wrong = ~((np.abs(table) < MAX_LOG) | (table == -np.inf))
            if wrong.any():
                bad = rows[int(np.flatnonzero(wrong.any(axis=1))[0])] if len(table) > 1 else rows[0]
                raise ModelError(
                    f"factor {self.n_factors + int(bad)}: {who}: numbers by distance must be "
                    f"finite (within 1e300) or minus infinity, not {float(table[wrong][0])}"
                )
            groups += distances(self.n_factors + rows, scope_[rows], (k, k), theta[rows], table)
        for g in groups:
            g.check(self._n_states)
        return self._append(*groups)

    # ------------------------------------------------------------------ logical factors

    def add_clauses(
        self,
        scopes: ArrayLike | Sequence[Sequence[int]],
        weights: ArrayLike = np.inf,
        *,
        signs: ArrayLike | Sequence[Sequence[int]] | None = None,
        states: ArrayLike | Sequence[Sequence[int]] | None = None,
    ) -> FactorGraph:
        """Append clauses: log-weight w where at least one literal is true, 0 where none is.

        Parameters
        ----------
        scopes : int array (F, A), or F sequences of variable numbers of any lengths
        weights : float or float array (F,)
            Infinity makes a clause hard; a negative weight prefers it false.
        signs : as scopes, of 1 and -1 (or of bools), optional
            -1 negates a literal; all are positive by default.
        states : as scopes, or one int, optional
            A literal says that its variable is in this state, 1 by default.

        Examples
        --------
        >>> from minfer import BeliefPropagation, FactorGraph
        >>> graph = FactorGraph.empty([2, 2, 2]).add_clauses([[0, 1, 2]], 2.0, signs=[[1, 1, -1]])
        >>> BeliefPropagation()(graph)[2].round(3).tolist()
        [0.561, 0.439]
        """
        return self._add_weighted(Clauses, scopes, weights, signs, states)

    def add_parity(
        self,
        scopes: ArrayLike | Sequence[Sequence[int]],
        weights: ArrayLike = np.inf,
        *,
        odd: ArrayLike = False,
        signs: ArrayLike | Sequence[Sequence[int]] | None = None,
        states: ArrayLike | Sequence[Sequence[int]] | None = None,
    ) -> FactorGraph:
        """Append parity checks: log-weight w where an even number of literals is true, else 0.

        ``odd``, a bool or bool array (F,): an odd number; the rest as in :meth:`add_clauses`.
        """
        flags = real_numbers(odd, "add_parity: odd")
        if flags.dtype != bool:
            raise ModelError(f"add_parity: odd must be True or False, not {told(odd)}")

        def more(rows: NDArray[np.int64], n: int) -> dict[str, Any]:
            return {"_odd": _per_factor(flags, n, "odd", bool)[rows]}

        return self._add_weighted(Parities, scopes, weights, signs, states, more)

    def add_or(
        self,
        inputs: ArrayLike | Sequence[Sequence[int]],
        output: ArrayLike,
        weights: ArrayLike = np.inf,
        *,
        signs: ArrayLike | Sequence[Sequence[int]] | None = None,
        states: ArrayLike | Sequence[Sequence[int]] | None = None,
    ) -> FactorGraph:
        """Append gates whose output is true if and only if some input is: log-weight w, else 0.

        Parameters
        ----------
        inputs : int array (F, A), or F sequences of variable numbers of any lengths
        output : int array (F,)
            The scope of a factor is its inputs, then its output.
        weights, signs, states
            As in :meth:`add_clauses`; signs and states are of inputs and output.
        """
        return self._add_weighted(Ors, _gates(inputs, output), weights, signs, states)

    def add_and(
        self,
        inputs: ArrayLike | Sequence[Sequence[int]],
        output: ArrayLike,
        weights: ArrayLike = np.inf,
        *,
        signs: ArrayLike | Sequence[Sequence[int]] | None = None,
        states: ArrayLike | Sequence[Sequence[int]] | None = None,
    ) -> FactorGraph:
        """As :meth:`add_or`; the output is true if and only if all inputs are."""
        return self._add_weighted(Ands, _gates(inputs, output), weights, signs, states)

    def add_exactly_one(
        self,
        scopes: ArrayLike | Sequence[Sequence[int]],
        *,
        signs: ArrayLike | Sequence[Sequence[int]] | None = None,
        states: ArrayLike | Sequence[Sequence[int]] | None = None,
    ) -> FactorGraph:
        """Append constraints: exactly one literal is true. Arguments as in :meth:`add_clauses`."""
        return self.add_logical(ExactlyOne, scopes, signs=signs, states=states)

    def add_at_most_one(
        self,
        scopes: ArrayLike | Sequence[Sequence[int]],
        *,
        signs: ArrayLike | Sequence[Sequence[int]] | None = None,
        states: ArrayLike | Sequence[Sequence[int]] | None = None,
    ) -> FactorGraph:
        """Append constraints: at most one literal is true. Arguments as in :meth:`add_clauses`."""
        return self.add_logical(AtMostOne, scopes, signs=signs, states=states)

    def add_cardinality(
        self,
        scopes: ArrayLike | Sequence[Sequence[int]],
        log_weights: ArrayLike | None = None,
        *,
        signs: ArrayLike | Sequence[Sequence[int]] | None = None,
        states: ArrayLike | Sequence[Sequence[int]] | None = None,
        at_most: int | None = None,
    ) -> FactorGraph:
        """Append factors of the number of true literals.

        Parameters
        ----------
        scopes, signs, states
            As in :meth:`add_clauses`.
        log_weights : float array (C,) for all factors, or (F, C)
            By count, from 0 on; the last one applies to all larger counts. Minus infinity forbids.
            A count costs time, so end the list where nothing changes any more.
        at_most : int
            Instead of log-weights: no more literals than this are true.
        """
        if (log_weights is None) == (at_most is None):
            raise ModelError("add_cardinality takes log_weights by count, or at_most=k")
        if at_most is not None:
            most = integer(at_most)
            if most is None or most < 0:
                raise ModelError(f"add_cardinality: at_most must be a count, not {told(at_most)}")
            most = min(most, self.n_variables)
            table = np.append(np.zeros(most + 1), -np.inf)[None]
        else:
            given = real_numbers(log_weights, "add_cardinality: log-weights")  # type: ignore[arg-type]
            if given.ndim == 0:
                raise ModelError(
                    "add_cardinality: log-weights must be a list by count, not "
                    f"{told(log_weights)}; for a limit write at_most=k"
                )
            table = np.atleast_2d(given.astype(np.float64))
        if table.ndim != 2 or not table.shape[1]:
            raise ModelError(
                f"add_cardinality: log-weights must have shape (C,) or (F, C), not {table.shape}"
            )

        def more(rows: NDArray[np.int64], n: int, arity: int) -> dict[str, Any]:
            if len(table) not in (1, n):
                raise ModelError(
                    f"add_cardinality: {n} scopes but log-weights of shape {table.shape}"
                )
            values = table if len(table) == 1 else table[rows]
            if values.shape[1] > arity + 1 and (log_weights is None or np.ndim(log_weights) == 1):
                values = values[:, : arity + 1]  # counts that cannot be
            return {"_log_weights": np.ascontiguousarray(values)}

        return self.add_logical(Cardinalities, scopes, signs=signs, states=states, fields=more)

    def _add_weighted(
        self,
        kind: type[Logical],
        scopes: Any,
        weights: ArrayLike,
        signs: Any,
        states: Any,
        more: Callable[..., dict[str, Any]] | None = None,
    ) -> FactorGraph:
        theta = real_numbers(weights, f"{kind.kind}: weights")
        if theta.dtype == bool:
            raise ModelError(
                f"{kind.kind}: a weight must be a number, or infinity for a hard factor, not "
                f"{told(weights)}; other flags go by their names, as in odd=True"
            )

        def numbers(rows: NDArray[np.int64], n: int, arity: int) -> dict[str, Any]:
            mine = {"_theta": _per_factor(theta, n, "weights", float)[rows]}
            return mine | (more(rows, n) if more else {})

        return self.add_logical(kind, scopes, signs=signs, states=states, fields=numbers)

    def add_logical(
        self,
        kind: type[Logical],
        scopes: ArrayLike | Sequence[Sequence[int]],
        *,
        signs: ArrayLike | Sequence[Sequence[int]] | None = None,
        states: ArrayLike | Sequence[Sequence[int]] | None = None,
        fields: Callable[[NDArray[np.int64], int, int], dict[str, Any]] | None = None,
    ) -> FactorGraph:
        """Append factors of a logical kind, perhaps your own; see :mod:`minfer.factors.logical`.

        Parameters
        ----------
        kind : a subclass of :class:`minfer.factors.Logical`
        scopes, signs, states
            As in :meth:`add_clauses`.
        fields : callable, optional
            ``fields(rows, n, arity)`` gives the further fields of the group that holds the factors
            ``rows`` of the n given here, all over ``arity`` literals.
        """
        if not (isinstance(kind, type) and issubclass(kind, Logical)) or not kind.kind:
            raise ModelError(
                "add_logical takes a subclass of minfer.factors.Logical with a name, its kind, "
                f"not {told(kind)}"
            )
        first = self.n_factors
        listed = _logical_scopes(scopes, first)
        if isinstance(listed, np.ndarray):
            arities = np.full(len(listed), listed.shape[1])
        else:
            arities = np.array([s.size for s in listed], dtype=np.int64)
        groups: list[FactorGroup] = []
        for arity in np.unique(arities).tolist():
            rows = np.flatnonzero(arities == arity)
            if isinstance(listed, np.ndarray):
                scope = listed
            else:
                scope = scope_array(np.array([listed[i] for i in rows]).reshape(len(rows), arity))
            self._check_scopes(scope, first + rows)
            literal, flip = self._literals(scope, signs, states, rows, len(listed))
            key = np.concatenate([self._n_states[scope], flip], axis=1)
            for_all, which = unique_rows(key)
            for k, pattern in enumerate(for_all):
                r = np.flatnonzero(which == k)
                more = fields(rows[r], len(listed), arity) if fields else {}
                try:
                    group = kind(
                        _ids=first + rows[r], _scope=scope[r],
                        shape=tuple(int(s) for s in pattern[:arity]), _literal=literal[r],
                        flip=pattern[arity:].astype(bool), **more,
                    )  # fmt: skip
                    group.check(self._n_states)
                except (TypeError, IndexError, NotImplementedError) as error:
                    raise ModelError(
                        f"add_logical: {kind.__name__}: {error}; automaton() returns steps (K, 2) "
                        "or (A, K, 2) and log-weights (1 or F, K), fields= gives further fields"
                    ) from error
                groups.append(group)
        return self._append(*groups)

    def _literals(
        self, scope: NDArray[np.int32], signs: Any, states: Any, rows: NDArray[np.int64], n: int
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """States that make literals true, and which are to be negated all the same, (F, A)."""
        first = self.n_factors + rows
        cards = self._n_states[scope]
        literal = _like_scopes(1 if states is None else states, scope, rows, n, first, "states")
        bad = ((literal < 0) | (literal >= cards)).any(axis=1)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ModelError(
                f"factor {int(first[row])}: its literals are states {literal[row].tolist()}, but "
                f"its variables {self._scope_text(scope[row])} have {cards[row].tolist()} states, "
                "counted from 0; states= says which state makes a literal true"
            )
        sign = _like_scopes(1 if signs is None else signs, scope, rows, n, first, "signs")
        if sign.dtype == bool:
            sign = np.where(sign, 1, -1)
        bad = (np.abs(sign) != 1).any(axis=1)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ModelError(
                f"factor {int(first[row])}: signs must be 1 and -1, or bools, not "
                f"{sign[row].tolist()}"
            )
        negative = sign < 0
        literal = np.where(negative & (cards == 2), 1 - literal, literal)
        return literal.astype(np.int32), negative & (cards != 2)

    def add_groups(
        self,
        make: Callable[[NDArray[np.int64], NDArray[np.int32], tuple[int, ...]], FactorGroup],
        scope: NDArray[np.int32],
    ) -> FactorGraph:
        """Append factors of a kind of your own over ``scope`` (F, A): see :mod:`minfer.factors`.

        ``make(ids, scope, shape)`` makes a group of those whose variables have the states
        ``shape``; it is called once for each shape there is. What it makes is checked.
        """
        first = self.n_factors
        self._check_scopes(scope, first)
        groups = []
        shapes, which = unique_rows(self._n_states[scope]) if len(scope) else ((), np.zeros(0))
        for k, shape in enumerate(shapes):
            rows = np.flatnonzero(which == k)
            ids = first + rows
            groups.append(make(ids, scope[rows], tuple(int(s) for s in shape)))
            groups[-1].check(self._n_states)
        return self._append(*groups)

    def _append(self, *groups: FactorGroup) -> FactorGraph:
        """A new graph with more factors; a new lineage, since the numbers mean something new."""
        groups = tuple(g for g in groups if len(g))
        child = self._child
        if child is not None:
            more = sum(len(g) for g in groups)
            child = np.concatenate([child, np.full(more, -1, dtype=np.int32)])
        return FactorGraph(
            self._n_states, self.groups + groups, self.names, self._field,
            _states=self._states, _child=child,
        )  # fmt: skip

    # ------------------------------------------------------------------ looking

    @cached_property
    def n_factors(self) -> int:
        return sum(len(g) for g in self.groups)

    @property
    def field(self) -> NDArray[np.float64]:
        """Evidence and corrections: log-weights of every state, shape (sum of states,)."""
        if self._field is None:
            return read_only(np.broadcast_to(0.0, (int(self._offsets[-1]),)))
        return read_only(self._field)

    @property
    def origin(self) -> NDArray[np.int64]:
        """Each factor's number in the model this graph was kept from, shape (F,)."""
        return np.arange(self.n_factors) if self._origin is None else read_only(self._origin)

    @cached_property
    def _where(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Group and row of every factor."""
        group = np.empty(self.n_factors, dtype=np.int32)
        row = np.empty(self.n_factors, dtype=np.int64)
        for k, g in enumerate(self.groups):
            group[g._ids] = k
            row[g._ids] = np.arange(len(g))
        return group, row

    @cached_property
    def arity(self) -> NDArray[np.int64]:
        """Number of variables of each factor, shape (F,)."""
        out = np.empty(self.n_factors, dtype=np.int64)
        for g in self.groups:
            out[g._ids] = g.arity
        return read_only(out)

    @property
    def has_globals(self) -> bool:
        """Whether some factors only give messages (:class:`~minfer.Globals` and their like)."""
        return any(g.form == "messages" for g in self.groups)

    def scope(self, factor: int) -> NDArray[np.int32]:
        """The variables of one factor, in the order of its table."""
        group, row = self._locate(factor)
        return read_only(group._scope[row])

    def scopes(self, factors: NDArray[np.int64]) -> NDArray[np.int32]:
        """The variables of several factors of one arity, shape (n, A)."""
        for g in self.groups:
            if factors is g._ids:
                return g._scope
        group, row = self._where
        of = group[factors]
        first = self.groups[of[0]] if len(of) else None
        if first is None:
            return np.zeros((0, 0), dtype=np.int32)
        if (of == of[0]).all():
            return first._scope[row[factors]]
        out = np.empty((len(factors), first.arity), dtype=np.int32)
        for k in np.unique(of):
            here = of == k
            if self.groups[k].arity != first.arity:
                raise ModelError("take factors of one arity at a time")
            out[here] = self.groups[k]._scope[row[factors[here]]]
        return out

    def log_table(self, factor: int) -> NDArray[np.float64]:
        """One factor as a dense log-table of shape (S_1, ..., S_A)."""
        group, row = self._locate(factor)
        if not group.has_tables:
            raise ModelError(f"factor {factor} is {group._a_noun} too large for a table")
        return group.log_tables(slice(row, row + 1))[0].reshape(group.shape)

    def _locate(self, factor: int) -> tuple[FactorGroup, int]:
        factor = self.factor_index(factor)
        group, row = self._where
        return self.groups[group[factor]], int(row[factor])

    def factor_index(self, factor: int) -> int:
        """The number of a factor, from 0; negative ones count from the end."""
        number = integer(factor)
        if number is None:
            raise ModelError(
                f"a factor must be given by its number, an integer, not {told(factor)}"
            )
        if not -self.n_factors <= number < self.n_factors:
            raise ModelError(f"there is no factor {number}; the graph has {self.n_factors}")
        return number % self.n_factors

    def with_state_names(
        self, names: Mapping[int | str, Sequence[str]] | Sequence[Sequence[str] | None]
    ) -> FactorGraph:
        """The same model with names for states: ``{variable: names}``, or one entry for each.

        Variables that a mapping leaves out keep the names they have.

        >>> from minfer import FactorGraph
        >>> g = FactorGraph.named({"rain": 2}, {("rain",): [0.0, -1.4]})
        >>> g.with_state_names({"rain": ["no", "yes"]}).states("rain")
        ('no', 'yes')
        """
        if isinstance(names, Mapping) and self._states is not None:
            known: dict[int | str, Sequence[str]] = {
                v: own for v, own in enumerate(self._states) if own is not None
            }
            names = known | {self.index(v): own for v, own in names.items()}
        return self._renumbered(_states=checked_state_names(names, self.index, self._n_states))

    def child(self, factor: int) -> int | None:
        """The variable whose conditional distribution a factor is (given the rest of its scope)."""
        factor = self.factor_index(factor)
        if self._child is None or self._child[factor] < 0:
            return None
        return int(self._child[factor])

    def parents(self, variable: int | str) -> tuple[str, ...]:
        """Names of the parents of a variable of a Bayesian network, in the order of its table."""
        v = self.index(variable)
        return tuple(self.name(int(u)) for u in self.scope(self._conditional_of(v)) if u != v)

    def conditional(self, variable: int | str) -> Joint:
        """P(variable | parents) as the model has it: the parents' axes, then the variable's.

        Examples
        --------
        >>> from minfer import FactorGraph
        >>> g = FactorGraph.network(
        ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
        ...     {"rain": [0.8, 0.2], "wet": (["rain"], [[0.9, 0.1], [0.2, 0.8]])},
        ... )
        >>> g.parents("wet"), float(g.conditional("wet")["yes", "no"].round(3))
        (('rain',), 0.2)
        """
        from minfer.joint import Joint

        v = self.index(variable)
        factor = self._conditional_of(v)
        scope = self.scope(factor).tolist()
        order = [*(a for a, u in enumerate(scope) if u != v), scope.index(v)]
        variables = [scope[a] for a in order]
        names = tuple(self.name(u) for u in variables)
        states = tuple(self.states(u) for u in variables)
        table = np.exp(self.log_table(factor)).transpose(order)
        return Joint(table, names, states, names[:-1])

    def _conditional_of(self, v: int) -> int:
        """The number of the factor that is P(v | parents)."""
        found = [] if self._child is None else np.flatnonzero(self._child == v).tolist()
        if len(found) != 1:
            raise ModelError(
                f"{visible(self.name(v))} has no conditional distribution of its own in this "
                "model: Bayesian networks have one for each variable (FactorGraph.network, or a "
                "file)"
            )
        return found[0]

    @property
    def directed(self) -> bool:
        """Whether the model is a Bayesian network: one conditional distribution per variable."""
        if self._child is None or len(self._child) != self.n_variables:
            return False
        return bool((np.sort(self._child) == np.arange(self.n_variables)).all())

    def log_score(self, assignments: ArrayLike) -> NDArray[np.float64]:
        """log of the unnormalised probability of whole assignments.

        Parameters
        ----------
        assignments : int array (V,) or (N, V)

        Returns
        -------
        float array () or (N,)
        """
        x = integers(assignments, "assignments", bools=True).astype(np.int64)
        single = x.ndim == 1
        x = np.atleast_2d(x)
        if x.ndim != 2 or x.shape[1] != self.n_variables:
            raise ModelError(
                f"assignments must have shape ({self.n_variables},) or (N, {self.n_variables}), "
                f"not {np.shape(assignments)}"
            )
        if ((x < 0) | (x >= self._n_states)).any():
            raise ModelError("an assignment names a state that its variable does not have")
        total = np.zeros(len(x))
        if self._field is not None:
            total += self._field[self._offsets[:-1] + x].sum(axis=1)
        for g in self.groups:
            total += g.log_score(x)
        return total[0] if single else total

    # ------------------------------------------------------------------ new graphs from old

    def with_evidence(self, evidence: Mapping[int | str, int | str]) -> FactorGraph:
        """Condition on observed states: ``{variable or name: state or its name}``."""
        return self._observing(numbered(self, evidence, likelihoods=False)[0])

    def with_soft_evidence(self, likelihoods: Mapping[int | str, Any]) -> FactorGraph:
        """Multiply in per-state likelihoods: ``{variable or name: S non-negative numbers}``.

        By state name too, as in ``{"CVP": {"LOW": 0.2, "NORMAL": 0.8}}``; states left out have 0.
        """
        return self.tilt(log_field(self, None, soft_evidence(self, likelihoods)))

    def _observing(
        self, hard: Mapping[int, int], soft: Mapping[int, NDArray] | None = None
    ) -> FactorGraph:
        """The model with states and likelihoods of variables, all by number."""
        if not hard:
            return self.tilt(log_field(self, None, soft)) if soft else self
        values = self.field.copy()
        for v, state in hard.items():
            lo, hi = self._offsets[v], self._offsets[v + 1]
            seen = values[lo + state]
            if seen == -np.inf:
                name, said = self.name(v), self.states(v)[state]
                raise ContradictionError(
                    f"evidence {name}={said} contradicts earlier evidence on {name}, which "
                    "excludes that state"
                )
            values[lo:hi] = -np.inf
            values[lo + state] = seen
        graph = self._renumbered(_field=values)
        return graph.tilt(log_field(self, None, soft)) if soft else graph

    def tilt(self, delta: ArrayLike) -> FactorGraph:
        """Add log-weights to the states of all variables, shape (sum of states,)."""
        delta = real_numbers(delta, "tilt: log-weights").astype(np.float64)
        if delta.shape != (int(self._offsets[-1]),):
            raise ModelError(f"tilt needs shape ({int(self._offsets[-1])},), not {delta.shape}")
        if not ((np.abs(delta) < MAX_LOG) | (delta == -np.inf)).all():
            raise ModelError("tilt: log-weights are within 1e300, or minus infinity, and not NaN")
        return self._renumbered(_field=delta if self._field is None else self._field + delta)

    @cached_property
    def weight_offsets(self) -> NDArray[np.int64]:
        """Where each factor's numbers begin in :attr:`weights`, shape (F+1,)."""
        each = np.zeros(self.n_factors + 1, dtype=np.int64)
        for g in self.groups:
            each[g._ids + 1] = g.n_weights
        return np.cumsum(each)

    @property
    def weights(self) -> NDArray[np.float64]:
        """The numbers of all factors, one factor after the other, shape (n_weights,).

        A feature has one, its weight; a table its cells, the last variable fastest; a logical
        factor what its kind says; a global factor none.
        """
        out = np.empty(int(self.weight_offsets[-1]))
        for g in self.groups:
            self._put_weights(g, g.weights, out)
        return out

    def with_weights(self, weights: ArrayLike) -> FactorGraph:
        """The same structure with other numbers, shape (n_weights,) as :attr:`weights` has them.

        It shares its lineage with this graph: messages of one can start the other, and what a
        solver has prepared for one serves the other.
        """
        values = real_numbers(weights, "with_weights: weights").astype(np.float64)
        n = int(self.weight_offsets[-1])
        if values.shape != (n,):
            raise ModelError(f"with_weights: expected {n} weights, not {values.shape}")
        groups = []
        for g in self.groups:
            if g.n_weights:
                g = g.with_weights(self._weights_of(g, values))
                g.check_numbers()
            groups.append(g)
        return self._renumbered(groups=tuple(groups), _child=None)

    @cached_property
    def _conditioning(self) -> dict[str, Any]:
        """What :func:`minfer.conditioning.condition` found out; shared where the factors are."""
        return {}

    def _renumbered(self, **changes: Any) -> FactorGraph:
        """The same structure with other numbers; what is known of the structure goes along."""
        graph = object.__new__(FactorGraph)
        changes["_conditioning"] = {} if "groups" in changes else self._conditioning
        graph.__dict__.update(self.__dict__)
        graph.__dict__.update(changes)
        return graph

    def _weights_of(self, group: FactorGroup, values: NDArray) -> NDArray:
        """A group's own of the numbers of all factors, shape (F, k); a view where it can be."""
        return values[self._weight_places(group)].reshape(len(group), group.n_weights)

    def _put_weights(self, group: FactorGroup, values: NDArray, out: NDArray) -> None:
        """The opposite: a group's numbers (F, k) to their places among all."""
        places = self._weight_places(group)
        out[places] = values.ravel() if isinstance(places, slice) else values

    def _weight_places(self, group: FactorGroup) -> slice | NDArray[np.int64]:
        first, last = int(group._ids[0]), int(group._ids[-1])
        if last - first + 1 == len(group):  # consecutive numbers
            return slice(int(self.weight_offsets[first]), int(self.weight_offsets[last + 1]))
        return self.weight_offsets[group._ids][:, None] + np.arange(group.n_weights)

    def keep(self, which: ArrayLike) -> FactorGraph:
        """The same variables with fewer factors.

        Parameters
        ----------
        which : bool array (F,), or increasing int array of factor numbers
        """
        which = integers(which, "keep: factor numbers", bools=True)
        if which.ndim != 1:
            raise ModelError(
                f"keep: a mask or factor numbers must have one axis, not {which.shape}"
            )
        if which.dtype == bool:
            if which.shape != (self.n_factors,):
                raise ModelError(f"keep: the mask has shape {which.shape}, not ({self.n_factors},)")
            kept = np.flatnonzero(which)
        else:
            kept = which.astype(np.int64)
            if kept.size and (
                kept[0] < 0 or kept[-1] >= self.n_factors or (np.diff(kept) <= 0).any()
            ):
                raise ModelError("keep: factor numbers must be increasing and in range")
        groups: list[FactorGroup] = []
        for g in self.groups:
            lo, hi = np.searchsorted(kept, [g._ids[0], g._ids[-1] + 1])
            here = kept[lo:hi]
            if g._ids[-1] - g._ids[0] + 1 == len(g):  # consecutive numbers: rows by subtraction
                rows = here - g._ids[0]
                new = np.arange(lo, hi)
            else:
                rows = np.searchsorted(g._ids, here)
                found = g._ids[np.minimum(rows, len(g) - 1)] == here
                rows, new = rows[found], (np.arange(lo, hi))[found]
            if len(rows) == len(g):
                groups.append(g.replace(_ids=new))
            elif len(rows):
                groups.append(g.take(rows, new))
        origin = kept if self._origin is None else self._origin[kept]
        child = None if self._child is None else self._child[kept]
        return replace(self, groups=tuple(groups), _origin=origin, _child=child)

    def component_labels(self) -> NDArray[np.int32]:
        """The connected component of each variable, numbered by first appearance, shape (V,)."""
        return connected(self.n_variables, self.groups)

    def components(self) -> list[Component]:
        """The connected components as graphs of their own. Constant factors go with the first."""
        return self.split(self.component_labels())

    def split(self, labels: ArrayLike) -> list[Component]:
        """Graphs of variables with one label each, in time that does not grow with their number.

        Parameters
        ----------
        labels : int array (V,)
            From 0 on, each of them used; variables that share a factor share their label.
            Constant factors go with the first.
        """
        labels = integers(labels, "split: labels").astype(np.int64)
        if labels.shape != (self.n_variables,):
            raise ModelError(f"split: labels have shape {labels.shape}, not ({self.n_variables},)")
        if labels.size and labels.min() < 0:
            raise ModelError(f"split: labels must be numbers from 0 on, not {labels.min()}")
        n = int(labels.max(initial=-1)) + 1
        if n <= 1:
            return [Component(self, np.arange(self.n_variables), np.arange(self.n_factors))]
        of_factor = self._factor_labels(labels)
        variables, var_ptr, rank = _grouped(labels, n)
        factors, fac_ptr, factor_number = _grouped(of_factor, n)
        number = rank.astype(np.int32)
        groups: list[list[FactorGroup]] = [[] for _ in range(n)]
        for g in self.groups:
            rows, ptr, _ = _grouped(of_factor[g._ids], n)
            for c in np.flatnonzero(np.diff(ptr)).tolist():
                here = rows[ptr[c] : ptr[c + 1]]
                part = g.take(here, factor_number[g._ids[here]])
                groups[c].append(part.replace(_scope=np.ascontiguousarray(number[part._scope])))
        states, state_ptr, _ = _grouped(np.repeat(labels, self._n_states), n)
        out = []
        for c in range(n):
            which = variables[var_ptr[c] : var_ptr[c + 1]]
            names = tuple(self.names[v] for v in which) if self.names else None
            log_field = None
            if self._field is not None:
                log_field = self._field[states[state_ptr[c] : state_ptr[c + 1]]]
            mine = factors[fac_ptr[c] : fac_ptr[c + 1]]
            origin = mine if self._origin is None else self._origin[mine]
            graph = FactorGraph(
                self._n_states[which], tuple(groups[c]), names, log_field, origin,
                f"{self.lineage}/{new_lineage()}",
                _states=self._states and tuple(self._states[v] for v in which),
                _child=self._children_of(mine, number),
            )  # fmt: skip
            out.append(Component(graph, which, mine))
        return out

    def _children_of(
        self, factors: NDArray[np.int64], number: NDArray[np.int32]
    ) -> NDArray[np.int32] | None:
        """Children of some factors under the variables' new numbers."""
        if self._child is None:
            return None
        child = self._child[factors]
        return np.where(child >= 0, number[child], -1).astype(np.int32)

    def _factor_labels(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """The label that all variables of a factor have, shape (F,)."""
        out = np.zeros(self.n_factors, dtype=np.int64)
        for g in self.groups:
            if not g.arity:
                continue
            of_scope = labels[g._scope]
            out[g._ids] = of_scope[:, 0]
            if (of_scope != of_scope[:, :1]).any():
                raise ModelError("split: the variables of a factor have different labels")
        return out

    # ------------------------------------------------------------------ checking

    def validate(self) -> FactorGraph:
        """Check everything again (constructors already do) and return the graph itself."""
        checked_states(self._n_states)
        checked_names(self.names, self.n_variables)
        checked_state_names(self._states, self.index, self._n_states)
        seen = np.zeros(self.n_factors, dtype=bool)
        for g in self.groups:
            if len(g) == 0 or (np.diff(g._ids) <= 0).any() or g._ids[-1] >= self.n_factors:
                raise ModelError("factor numbers of a group must increase and be in range")
            seen[g._ids] = True
            if g._scope.ndim != 2 or len(g._scope) != len(g):
                raise ModelError(f"scopes of shape {g._scope.shape} for {len(g)} factors")
            self._check_scopes(g._scope, g._ids)
            g.check(self._n_states)
        if not seen.all():
            raise ModelError(f"factor {int(np.flatnonzero(~seen)[0])} is in no group")
        if self._child is not None:
            if self._child.shape != (self.n_factors,):
                raise ModelError("children: one entry for each factor")
            if self._child.size and self._child.min() < -1:
                raise ModelError("children: a variable's number for each factor, or -1")
            for i in np.flatnonzero(self._child >= 0).tolist():
                if self._child[i] not in self.scope(i):
                    raise ModelError(f"factor {i}: its child is not in its scope")
        if self._field is not None:
            if self._field.shape != (int(self._offsets[-1]),):
                raise ModelError("the field must have one entry per state")
            if np.isnan(self._field).any() or (self._field == np.inf).any():
                raise ModelError("the field has a NaN or plus infinity")
        return self

    def _check_scopes(self, scope: NDArray, first: int | NDArray[np.int64]) -> None:
        """Range and distinctness of scopes (F, A); ``first`` numbers the factors for messages."""
        if not scope.size:
            return
        number = (lambda k: int(first[k])) if isinstance(first, np.ndarray) else lambda k: first + k
        if scope.min() < 0 or scope.max() >= self.n_variables:
            bad = int(np.flatnonzero(((scope < 0) | (scope >= self.n_variables)).any(axis=1))[0])
            raise ModelError(
                f"factor {number(bad)}: scope {scope[bad].tolist()} names a variable outside "
                f"0..{self.n_variables - 1}"
            )
        arity = scope.shape[1]
        if arity == 2:
            twice = scope[:, 0] == scope[:, 1]
        elif arity > 2:
            ordered = np.sort(scope, axis=1)
            twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        else:
            return
        if twice.any():
            bad = int(np.flatnonzero(twice)[0])
            raise ModelError(
                f"factor {number(bad)}: scope {scope[bad].tolist()} has a variable twice; "
                "take the table's diagonal instead"
            )

    # ------------------------------------------------------------------ showing

    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for g in self.groups:
            if g.form == "table":
                word = {0: "constant", 1: "unary", 2: "pairwise"}.get(
                    g.arity, f"of arity {g.arity}"
                )
            else:
                word = g.kind
            counts[word] = counts.get(word, 0) + len(g)
        return counts

    def __repr__(self) -> str:
        states = ""
        if self.n_variables:
            lo, hi = int(self._n_states.min()), int(self._n_states.max())
            states = f" of {counted(lo, 'state')}" if lo == hi else f" of {lo} to {hi} states"
        text = f"{counted(self.n_variables, 'variable')}{states}; "
        text += counted(self.n_factors, "factor")
        if counts := self._counts():
            text += ": " + ", ".join(f"{n:,} {word}" for word, n in counts.items())
        observed = self.n_observed
        return f"FactorGraph({text}{f'; {observed:,} observed' if observed else ''})"

    @property
    def n_observed(self) -> int:
        """Variables of which evidence leaves one state only."""
        if self._field is None or not self.n_variables:
            return 0
        allowed = np.add.reduceat(self._field > -np.inf, self._offsets[:-1])
        return int(((allowed == 1) & (self._n_states > 1)).sum())

    def _repr_html_(self) -> str:
        about = repr(self).removeprefix("FactorGraph(").split(":")[0].removesuffix(")")
        return card("FactorGraph", about, ("factors", "count"), self._counts().items())

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in _CACHED}


def _logical_scopes(scopes: Any, first: int) -> Any:
    """Scopes (F, A) as one array, scopes of different lengths as a list of arrays."""
    try:
        array = scopes if isinstance(scopes, np.ndarray) else np.asarray(scopes)
    except (ValueError, TypeError):
        array = np.zeros(0)
    if array.ndim == 2 and array.size:
        return scope_array(scopes)
    return scope_list(scopes, first)


def _like_scopes(
    values: Any, scope: NDArray, rows: NDArray[np.int64], n: int, first: NDArray, what: str
) -> NDArray:
    """One number for all literals, or numbers of the same shape as the scopes, at some rows."""
    if getattr(values, "ndim", 1) == 0 or not hasattr(values, "__len__"):
        return np.broadcast_to(integers(values, what, bools=True), scope.shape)
    if len(values) != n:
        raise ModelError(f"{n} scopes but {len(values)} rows of {what}")
    if isinstance(values, np.ndarray) and values.ndim == 2:
        picked: Any = values[rows]
    elif not isinstance(values, (Sequence, np.ndarray)):
        raise ModelError(f"{what} must be numbers of the same shape as the scopes")
    else:
        picked = [values[i] for i in rows.tolist()]
        for k, row in enumerate(picked):
            if np.shape(row) != scope[k].shape:
                raise ModelError(
                    f"factor {int(first[k])}: {scope.shape[1]} literals but {what} of shape "
                    f"{np.shape(row)}"
                )
    array = integers(picked, what, bools=True).reshape(len(rows), -1)
    if array.shape != scope.shape:
        raise ModelError(f"{what} have shape {array.shape[1:]} a factor, not {scope.shape[1:]}")
    return array


def _per_factor(values: NDArray, n: int, what: str, dtype: type) -> NDArray:
    """One number for each of n factors, from one for all or from n."""
    try:
        return np.broadcast_to(values, (n,)).astype(dtype)
    except ValueError:
        raise ModelError(f"{n} scopes but {what} of shape {values.shape}") from None


def _truncation(value: object, who: str) -> float:
    """A distance at which something ends: positive, perhaps infinite."""
    number = real_numbers(value, f"{who}: a truncation")  # type: ignore[arg-type]
    if number.ndim or number.dtype == bool or not float(number) > 0.0:
        raise ModelError(
            f"{who}: the truncation must be a distance of labels above 0, or infinity, not "
            f"{told(value)}"
        )
    return float(number)


def _cut_off(cost: NDArray, truncation: float, hard: bool, power: int = 1) -> NDArray[np.float64]:
    """Numbers by distance 0, 1, ..., what is beyond the truncation as there, or forbidden."""
    beyond = np.arange(len(cost)) > truncation
    end = -np.inf if hard else -(min(truncation, 1e150) ** power)
    return np.where(beyond, end, cost)


def _gates(inputs: Any, output: ArrayLike) -> Any:
    """Scopes of gates: the inputs, then the output."""
    out = integers(output, "output")
    listed = _logical_scopes(inputs, 0)
    if out.shape != (len(listed),):
        raise ModelError(f"{len(listed)} gates but outputs of shape {out.shape}")
    if isinstance(listed, np.ndarray):
        return np.concatenate([listed, out[:, None]], axis=1)
    return [np.append(s, o) for s, o in zip(listed, out)]


def _grouped(
    labels: NDArray[np.int64], n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Places by label: the places, where each label's begin (n+1,), and each place's rank there."""
    order = np.argsort(labels, kind="stable")
    ptr = np.searchsorted(labels[order], np.arange(n + 1))
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels)) - np.repeat(ptr[:-1], np.diff(ptr))
    return order, ptr, rank


def grid_edges(height: int, width: int) -> NDArray[np.int32]:
    """Edges of a four-connected grid, horizontal ones first, shape (H*(W-1) + (H-1)*W, 2)."""
    pixel = np.arange(height * width, dtype=np.int32).reshape(height, width)
    across, down = height * max(width - 1, 0), max(height - 1, 0) * width
    edges = np.empty((across + down, 2), dtype=np.int32)
    edges[:across, 0] = pixel[:, :-1].ravel()
    edges[:across, 1] = pixel[:, 1:].ravel()
    edges[across:, 0] = pixel[:-1].ravel()
    edges[across:, 1] = pixel[1:].ravel()
    return edges


def with_any_evidence(graph: FactorGraph, evidence: Evidence | None) -> FactorGraph:
    """The model with hard and soft evidence, ``{variable: state, or likelihoods}``."""
    return graph if evidence is None else graph._observing(*numbered(graph, evidence))
