"""Adding factors to a model: each kind checks what it is given, and makes its groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import (
    Scopes,
    integers,
    look_like_probabilities,
    per_factor,
    real_numbers,
    scope_array,
    told,
    unique_rows,
    warn,
)
from minfer.errors import ModelError
from minfer.factors import connectives as logic
from minfer.factors.distances import distance_groups, recognised, truncated
from minfer.factors.features import feature_group
from minfer.factors.globals import GlobalFactor, Globals
from minfer.factors.group import FactorGroup, Floats, Ints
from minfer.factors.logical import Logical, gate_scopes, logical_groups, weight_fields
from minfer.factors.tables import flat_table_groups, table_groups
from minfer.model.states import Variables


class Growing(Variables):
    """Variables with factors, and the ways to add more; every one returns a new graph."""

    #: (F,) the variable of which a factor is the conditional distribution, or -1; None: nowhere.
    _child: NDArray[np.int32] | None

    def _regrouped(self, groups: tuple[FactorGroup, ...], child: NDArray | None) -> Self:
        """The same variables with other factors: a new lineage, as numbers mean something new."""
        raise NotImplementedError

    def _renumbered(self, **changes: Any) -> Self:
        """The same structure with other numbers; what is known of the structure goes along."""
        graph = object.__new__(type(self))
        changes["_conditioning"] = {} if "groups" in changes else self._conditioning
        graph.__dict__.update(self.__dict__)
        graph.__dict__.update(changes)
        return graph

    def _append(self, *groups: FactorGroup, child: NDArray | None = None) -> Self:
        """A new graph with more factors; ``child`` (F,) has the children of these, if they do."""
        groups = tuple(g for g in groups if len(g))
        if self.groups and (child is not None or self._child is not None):
            counts = self.n_factors, sum(len(g) for g in groups)
            known = zip((self._child, child), counts)
            child = np.concatenate([np.full(n, -1) if c is None else c for c, n in known])
        child = None if child is None else child.astype(np.int32, copy=False)
        return self._regrouped(self.groups + groups, child)

    def add_features(
        self, scope: ArrayLike, theta: ArrayLike, feature: str | ArrayLike = "and"
    ) -> Self:
        """Append features exp(theta * phi) over binary variables.

        Parameters
        ----------
        scope : int array (F, A), A <= 6
        theta : float or float array (F,), finite
        feature : a name (pairs only) or a truth table of shape (2,) * A
        """
        scope_ = scope_array(scope)
        return self._append(feature_group(self, self.n_factors, scope_, theta, feature))

    def add_tables(self, scopes: Scopes, log_tables: ArrayLike | Sequence[ArrayLike]) -> Self:
        """Append dense log-tables; arguments as in :meth:`from_tables`.

        Warns if all of them look like probabilities.
        """
        groups = table_groups(self, self.n_factors, scopes, log_tables)
        if look_like_probabilities(g._log_psi.reshape(-1, *g.shape) for g in groups):
            warn(
                "the log-tables look like probabilities: each sums to one. Give their logarithms, "
                "or build the model by FactorGraph.network, or named(..., probabilities=True)"
            )
        return self._append(*groups)

    def add_flat_tables(self, arity: Ints, scopes: NDArray[np.int32], log_psi: Floats) -> Self:
        """Append tables of any shapes from flat arrays: no object per factor.

        Parameters
        ----------
        arity : int array (F,)
        scopes : int array (sum of arity,), the scopes one after the other
        log_psi : float array (sum of table sizes,), each table with its last variable fastest
        """
        return self._append(*flat_table_groups(self, self.n_factors, arity, scopes, log_psi))

    def add_global(self, scope: ArrayLike, factor: GlobalFactor) -> Self:
        """Append one global factor over the variables in ``scope`` (A,), or F over (F, A)."""
        scope_ = scope_array(np.atleast_2d(integers(scope, "add_global: a scope")))
        if not (hasattr(factor, "messages") and hasattr(factor, "score")):
            raise ModelError("add_global: a global factor has methods messages() and score()")
        return self.add_groups(lambda ids, scope, shape: Globals(ids, scope, shape, factor), scope_)

    def add_groups(
        self,
        make: Callable[[Ints, NDArray[np.int32], tuple[int, ...]], FactorGroup],
        scope: NDArray[np.int32],
    ) -> Self:
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
            groups.append(make(first + rows, scope[rows], tuple(int(s) for s in shape)))
            groups[-1].check(self._n_states)
        return self._append(*groups)

    def add_potts(self, scope: ArrayLike, weights: ArrayLike) -> Self:
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
    ) -> Self:
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
        who = "add_truncated_linear"
        return self._add_distances(scope, weights, truncated(1, truncation, hard, who), who)

    def add_truncated_quadratic(
        self, scope: ArrayLike, weights: ArrayLike, truncation: float, *, hard: bool = False
    ) -> Self:
        """Append smoothness of ordered labels: log psi is ``-w min(|x - y|, truncation)^2``.

        Arguments as in :meth:`add_truncated_linear`.
        """
        who = "add_truncated_quadratic"
        return self._add_distances(scope, weights, truncated(2, truncation, hard, who), who)

    def add_label_distances(
        self, scope: ArrayLike, log_weights: ArrayLike, weights: ArrayLike = 1.0
    ) -> Self:
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

    def _add_distances(
        self, scope: ArrayLike, weights: ArrayLike, profile: Callable[[int], Any], who: str
    ) -> Self:
        return self._append(*distance_groups(self, self.n_factors, scope, weights, profile, who))

    def structured(self, tolerance: float = 1e-12) -> Self:
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
        return self._regrouped(tuple(groups), self._child)

    def add_clauses(
        self,
        scopes: Scopes,
        weights: ArrayLike = np.inf,
        *,
        signs: Scopes | None = None,
        states: Scopes | None = None,
    ) -> Self:
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
        fields = weight_fields(logic.Clauses, weights)
        return self.add_logical(logic.Clauses, scopes, signs=signs, states=states, fields=fields)

    def add_parity(
        self,
        scopes: Scopes,
        weights: ArrayLike = np.inf,
        *,
        odd: ArrayLike = False,
        signs: Scopes | None = None,
        states: Scopes | None = None,
    ) -> Self:
        """Append parity checks: log-weight w where an even number of literals is true, else 0.

        ``odd``, a bool or bool array (F,): an odd number; the rest as in :meth:`add_clauses`.
        """
        flags = real_numbers(odd, "add_parity: odd")
        if flags.dtype != bool:
            raise ModelError(f"add_parity: odd must be True or False, not {told(odd)}")

        def more(rows: Ints, n: int) -> dict[str, Any]:
            return {"_odd": per_factor(flags, n, "odd", bool)[rows]}

        fields = weight_fields(logic.Parities, weights, more)
        return self.add_logical(logic.Parities, scopes, signs=signs, states=states, fields=fields)

    def add_or(
        self,
        inputs: Scopes,
        output: ArrayLike,
        weights: ArrayLike = np.inf,
        *,
        signs: Scopes | None = None,
        states: Scopes | None = None,
    ) -> Self:
        """Append gates whose output is true if and only if some input is: log-weight w, else 0.

        Parameters
        ----------
        inputs : int array (F, A), or F sequences of variable numbers of any lengths
        output : int array (F,)
            The scope of a factor is its inputs, then its output.
        weights, signs, states
            As in :meth:`add_clauses`; signs and states are of inputs and output.
        """
        scopes, fields = gate_scopes(inputs, output), weight_fields(logic.Ors, weights)
        return self.add_logical(logic.Ors, scopes, signs=signs, states=states, fields=fields)

    def add_and(
        self,
        inputs: Scopes,
        output: ArrayLike,
        weights: ArrayLike = np.inf,
        *,
        signs: Scopes | None = None,
        states: Scopes | None = None,
    ) -> Self:
        """As :meth:`add_or`; the output is true if and only if all inputs are."""
        scopes, fields = gate_scopes(inputs, output), weight_fields(logic.Ands, weights)
        return self.add_logical(logic.Ands, scopes, signs=signs, states=states, fields=fields)

    def add_exactly_one(
        self, scopes: Scopes, *, signs: Scopes | None = None, states: Scopes | None = None
    ) -> Self:
        """Append constraints: exactly one literal is true. Arguments as in :meth:`add_clauses`."""
        return self.add_logical(logic.ExactlyOne, scopes, signs=signs, states=states)

    def add_at_most_one(
        self, scopes: Scopes, *, signs: Scopes | None = None, states: Scopes | None = None
    ) -> Self:
        """Append constraints: at most one literal is true. Arguments as in :meth:`add_clauses`."""
        return self.add_logical(logic.AtMostOne, scopes, signs=signs, states=states)

    def add_cardinality(
        self,
        scopes: Scopes,
        log_weights: ArrayLike | None = None,
        *,
        signs: Scopes | None = None,
        states: Scopes | None = None,
        at_most: int | None = None,
    ) -> Self:
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
        fields = logic.count_fields(self.n_variables, log_weights, at_most)
        return self.add_logical(
            logic.Cardinalities, scopes, signs=signs, states=states, fields=fields
        )

    def add_logical(
        self,
        kind: type[Logical],
        scopes: Scopes,
        *,
        signs: Scopes | None = None,
        states: Scopes | None = None,
        fields: Callable[[Ints, int, int], dict[str, Any]] | None = None,
    ) -> Self:
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
        return self._append(
            *logical_groups(self, self.n_factors, kind, scopes, signs, states, fields)
        )
