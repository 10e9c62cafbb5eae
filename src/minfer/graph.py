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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import (
    check_flag,
    checked_names,
    checked_states,
    edge_array,
    integer,
    integers,
    real_numbers,
    told,
)
from minfer.basics.notebook import card
from minfer.basics.words import counted
from minfer.errors import ContradictionError, ModelError, visible
from minfer.factors.features import feature_group
from minfer.factors.group import MAX_LOG, FactorGroup, Floats, Ints, connected, read_only
from minfer.model.build import Growing
from minfer.model.directed import intervened, intervention, with_network, with_probabilities
from minfer.model.evidence import Evidence, log_field, numbered, soft_evidence
from minfer.model.states import StateNames, checked_state_names, declared_states

if TYPE_CHECKING:
    from minfer.model.causes import NoisyCauses
    from minfer.model.joint import Joint

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
    variables: Ints
    factors: Ints


@dataclass(frozen=True, eq=False, repr=False)
class FactorGraph(Growing):
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
    _field: Floats | None = None
    _origin: Ints | None = None
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
        graph = cls.empty(np.full(log_odds.size, 2, np.int32), names)
        unary = np.arange(log_odds.size, dtype=np.int32)[:, None]
        single = feature_group(graph, 0, unary, log_odds, [False, True])
        pairs = feature_group(graph, log_odds.size, edge_array(edges), weights, feature)
        return graph._append(single, pairs)

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
        return cls.pairwise(log_odds.ravel(), grid_edges(*log_odds.shape), coupling, feature)

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
        graph = cls._declared(n_states, "named")
        pairs = log_tables.items() if isinstance(log_tables, Mapping) else log_tables
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
        cls, states: Mapping[str, int | Sequence[str]], tables: Mapping[str, Any]
    ) -> FactorGraph:
        """A Bayesian network, in probabilities.

        Parameters
        ----------
        states : {variable: its states' names, or how many}
        tables : {variable: P(variable), or (parents, P(variable | parents))}
            The table's axes are the parents in their order, then the variable itself; every row
            over the variable's states sums to one. A matrix with a row for each combination of the
            parents' states, the last parent's fastest, and a flat list of these rows will do too;
            any other shape is refused (pgmpy's tables have columns: give ``table.T``). Or causes
            that combine, with a number for each of them: `minfer.NoisyOr`, `NoisyAnd`, `NoisyMax`,
            `NoisyMin`.

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
        return with_network(cls._declared(states, "network"), tables)

    @classmethod
    def _declared(cls, states: Any, who: str) -> FactorGraph:
        sizes, names = declared_states(states, who)
        return cls.empty(sizes, list(states)).with_state_names(names)

    @property
    def field(self) -> Floats:
        """Evidence and corrections: log-weights of every state, shape (sum of states,)."""
        if self._field is None:
            return read_only(np.broadcast_to(0.0, (int(self._offsets[-1]),)))
        return read_only(self._field)

    @property
    def origin(self) -> Ints:
        """Each factor's number in the model this graph was kept from, shape (F,)."""
        return np.arange(self.n_factors) if self._origin is None else read_only(self._origin)

    @cached_property
    def _where(self) -> tuple[NDArray[np.int32], Ints]:
        group = np.empty(self.n_factors, dtype=np.int32)
        row = np.empty(self.n_factors, dtype=np.int64)
        for k, g in enumerate(self.groups):
            group[g._ids] = k
            row[g._ids] = np.arange(len(g))
        return group, row

    @cached_property
    def arity(self) -> Ints:
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

    def scopes(self, factors: Ints) -> NDArray[np.int32]:
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

    def log_table(self, factor: int) -> Floats:
        """One factor as a dense log-table of shape (S_1, ..., S_A)."""
        group, row = self._locate(factor)
        if not group.has_tables:
            more = "; graph.causes(variable) has its numbers" if group.is_conditional else ""
            raise ModelError(f"factor {factor} is {group._a_noun} too large for a table{more}")
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
        from minfer.model.joint import Joint

        v = self.index(variable)
        factor = self._conditional_of(v)
        scope = self.scope(factor).tolist()
        order = [*(a for a, u in enumerate(scope) if u != v), scope.index(v)]
        variables = [scope[a] for a in order]
        names = tuple(self.name(u) for u in variables)
        states = tuple(self.states(u) for u in variables)
        table = np.exp(self.log_table(factor)).transpose(order)
        return Joint(table, names, states, names[:-1])

    def causes(self, variable: int | str) -> NoisyCauses | None:
        """How the causes of a variable combine, as `network` takes it; None where it has a table.

        Examples
        --------
        >>> from minfer import FactorGraph, NoisyOr
        >>> g = FactorGraph.network(
        ...     {"flu": 2, "fever": 2}, {"flu": [0.9, 0.1], "fever": NoisyOr({"flu": 0.8})}
        ... )
        >>> g.causes("fever").causes, g.causes("flu")
        ({'flu': 0.8}, None)
        """
        from minfer.model.causes import entry_of

        return entry_of(self, self._conditional_of(self.index(variable)))

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

    def log_score(self, assignments: ArrayLike) -> Floats:
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

    def _regrouped(self, groups: tuple[FactorGroup, ...], child: NDArray | None) -> FactorGraph:
        """The same variables with other factors: a new lineage, as numbers mean something new."""
        return FactorGraph(
            self._n_states, groups, self.names, self._field, _states=self._states, _child=child
        )

    def with_evidence(self, evidence: Mapping[int | str, int | str]) -> FactorGraph:
        """Condition on observed states: ``{variable or name: state or its name}``."""
        return self._observing(numbered(self, evidence, likelihoods=False)[0])

    def with_soft_evidence(self, likelihoods: Mapping[int | str, Any]) -> FactorGraph:
        """Multiply in per-state likelihoods: ``{variable or name: S non-negative numbers}``.

        By state name too, as in ``{"CVP": {"LOW": 0.2, "NORMAL": 0.8}}``; states left out have 0.
        """
        return self.tilt(log_field(self, None, soft_evidence(self, likelihoods)))

    def with_do(self, do: Mapping[int | str, int | str]) -> FactorGraph:
        """A Bayesian network in which variables have been set: ``{variable or name: state}``.

        Graph surgery: the table of each is replaced by certainty, and its parents are cut off.
        ``minfer.query`` and others take ``do=``; for all else, this is the model to hand them.

        Examples
        --------
        >>> from minfer.examples import sprinkler
        >>> g = sprinkler().with_do({"sprinkler": 1})
        >>> sprinkler().parents("sprinkler"), g.parents("sprinkler")
        (('season',), ())
        """
        return intervened(self, intervention(self, do))

    def _observing(
        self, hard: Mapping[int, int], soft: Mapping[int, NDArray] | None = None
    ) -> FactorGraph:
        """The model with states and likelihoods of variables, all by number."""
        graph, values = self, self.field.copy() if hard else self.field
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
        if hard:
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
    def weight_offsets(self) -> Ints:
        """Where each factor's numbers begin in :attr:`weights`, shape (F+1,)."""
        each = np.zeros(self.n_factors + 1, dtype=np.int64)
        for g in self.groups:
            each[g._ids + 1] = g.n_weights
        return np.cumsum(each)

    @property
    def weights(self) -> Floats:
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

    def _weights_of(self, group: FactorGroup, values: NDArray) -> NDArray:
        """A group's own of the numbers of all factors, shape (F, k); a view where it can be."""
        return values[self._weight_places(group)].reshape(len(group), group.n_weights)

    def _put_weights(self, group: FactorGroup, values: NDArray, out: NDArray) -> None:
        """The opposite: a group's numbers (F, k) to their places among all."""
        places = self._weight_places(group)
        out[places] = values.ravel() if isinstance(places, slice) else values

    def _weight_places(self, group: FactorGroup) -> slice | Ints:
        span, at = group._span, self.weight_offsets
        if isinstance(span, slice):
            return slice(int(at[span.start]), int(at[span.stop]))
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
            rows, new = here - g._ids[0], np.arange(lo, hi)
            if not isinstance(g._span, slice):  # other groups' numbers in between
                rows = np.searchsorted(g._ids, here)
                found = g._ids[np.minimum(rows, len(g) - 1)] == here
                rows, new = rows[found], new[found]
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
        of_factor = np.zeros(self.n_factors, dtype=np.int64)
        for g in self.groups:
            if g.arity:
                of_scope = labels[g._scope]
                of_factor[g._ids] = of_scope[:, 0]
                if (of_scope != of_scope[:, :1]).any():
                    raise ModelError("split: the variables of a factor have different labels")
        variables, var_ptr, rank = _grouped(labels, n)
        factors, fac_ptr, factor_number = _grouped(of_factor, n)
        number, child = rank.astype(np.int32), self._child
        if child is not None:  # under the variables' new numbers
            child = np.where(child >= 0, number[child], -1).astype(np.int32)
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
                _child=None if child is None else child[mine],
            )  # fmt: skip
            out.append(Component(graph, which, mine))
        return out

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

    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for g in self.groups:
            words = {0: "constant", 1: "unary", 2: "pairwise"}
            word = words.get(g.arity, f"of arity {g.arity}") if g.form == "table" else g.kind
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


def _grouped(labels: Ints, n: int) -> tuple[Ints, Ints, Ints]:
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
