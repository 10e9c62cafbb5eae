"""What is left to infer: unary factors and known variables absorbed, once, for every solver.

    log p(x) = constant + sum_v field_v(x_v) + sum_{i, arity >= 2} log Psi_i(x_free) - log Z

Arity-0 and arity-1 factors go into the constant and the field; a variable with a single state left
(one state by nature, evidence, or a hard unary factor) is *fixed*, and the factors it touches are
sliced. A slice may forbid states of its other variables and so fix more (a true literal of an
exactly-one all the others); a few rounds of that propagation are made. Factors keep their numbers,
so every answer maps back to the graph.

Only what a field excludes has a say in that. So a graph and its copies with other fields share what
was found out (:attr:`FactorGraph._conditioning`): a new field is added to it, and variables are
fixed again only where it excludes other states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_graph
from minfer.engine.layout import FactorArrays
from minfer.errors import ContradictionError, ModelError, RefusedError
from minfer.factors.group import FactorGroup, n_entries, patterns

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

_MAX_ROUNDS = 20
_FEW_FACTORS = 2000
#: Unit roundoff of a double.
U = 2.0**-53
#: Cells of joint marginals that are written out together.
MAX_JOINT_CELLS = 1 << 28


@dataclass(frozen=True, eq=False)
class Conditioned:
    """A graph as the solvers see it."""

    graph: FactorGraph
    constant: float
    field: NDArray[np.float64]  # (sum S,) unary factors absorbed; -inf on excluded states
    fixed: NDArray[np.int32]  # (V,) the only state left, or -1
    groups: tuple[FactorGroup, ...]  # arity >= 2 over free variables; ids are the graph's
    _arrays: FactorArrays | None = None

    @property
    def arrays(self) -> FactorArrays:
        """The groups as arrays; models that differ in the field alone share them."""
        known = self._arrays
        if known is None or known.groups is not self.groups:
            known = FactorArrays(self.graph._n_states, self.graph._offsets, self.groups)
            object.__setattr__(self, "_arrays", known)
        return known

    @cached_property
    def has_fixed(self) -> bool:
        return bool((self.fixed >= 0).any())

    @cached_property
    def fixed_at(self) -> NDArray[np.int64]:
        """Where the states of the fixed variables are among all."""
        known = np.flatnonzero(self.fixed >= 0)
        return self.graph._offsets[known] + self.fixed[known]

    def expand(self, factor: int, joint: NDArray) -> NDArray[np.float64]:
        """A joint marginal over a factor's free variables, put back onto its whole scope."""
        whole = self.graph.scope(factor)
        out = np.zeros(tuple(int(s) for s in self.graph._n_states[whole]))
        index = tuple(int(f) if f >= 0 else slice(None) for f in self.fixed[whole])
        out[index] = joint
        return out

    def joints(
        self,
        factors: NDArray[np.int64],
        probs: NDArray[np.float64],
        ask: Callable[[NDArray[np.int64], tuple[int, ...]], NDArray[np.float64] | None],
    ) -> NDArray[np.float64]:
        """Joint marginals of factors of one shape over their whole scopes, shape (n, cells).

        ``ask(factors, shape)`` gives those over two or more free variables, (n, cells of the
        shape), or None where there are none: then they are products of the marginals ``probs``.
        """
        graph = self.graph
        scope = graph.scopes(factors)
        shape = [int(s) for s in graph._n_states[scope[0]]]
        if len(shape) == 1:
            return probs[graph._offsets[scope] + np.arange(shape[0])]  # fixed ones are 0 and 1
        free = self.fixed[scope] < 0
        found = ask(factors, tuple(shape)) if free.all() else None
        if found is not None:
            return found
        if n_entries(shape) * len(factors) > MAX_JOINT_CELLS:
            raise RefusedError(
                f"{len(factors)} joint marginals over {len(shape)} variables each are too large to "
                "be written out; ask for fewer at a time, or for the variables' own"
            )
        out = np.zeros((len(factors), n_entries(shape)))
        strides = np.array([n_entries(shape[k + 1 :]) for k in range(len(shape))], dtype=np.int64)
        for pattern, rows in patterns(free):
            left = tuple(s for s, f in zip(shape, pattern) if f)
            joint = ask(factors[rows], left) if len(left) > 1 else None
            if joint is None:
                joint = self.products(scope[rows][:, pattern], left, probs)
            base = (np.maximum(self.fixed[scope[rows]], 0) * ~pattern * strides).sum(axis=1)
            cells = np.zeros(1, dtype=np.int64)
            for size, step in zip(left, strides[pattern]):
                cells = (cells[:, None] + np.arange(size) * step).ravel()
            out[rows[:, None], base[:, None] + cells] = joint
        return out

    def products(
        self, scope: NDArray[np.int32], shape: tuple[int, ...], probs: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Products of the marginals of variables (n, A) of one shape, (n, cells)."""
        joint = np.ones((len(scope), 1))
        for a, size in enumerate(shape):
            q = probs[self.graph._offsets[scope[:, a]][:, None] + np.arange(size)]
            joint = (joint[:, :, None] * q[:, None, :]).reshape(len(scope), -1)
        return joint


class _Settled(NamedTuple):
    """What is left where the field excludes these states, whatever it says of the others."""

    gone: NDArray[np.bool_] | None  # (sum S,); None: none
    constant: float
    field: NDArray[np.float64] | None  # (sum S,) to be added; None: nothing
    fixed: NDArray[np.int32]
    has_fixed: bool
    arrays: FactorArrays


def condition(graph: FactorGraph) -> Conditioned:
    """Absorb unary factors and fixed variables; a variable with no state left is an error."""
    check_graph(graph)
    known, given = graph._conditioning, graph._field
    gone: NDArray[np.bool_] | None = None
    if given is not None and given.size and given.min() == -np.inf:
        gone = np.isneginf(given)
    kind = "free" if gone is None else "cut"
    found = known.get(kind)
    if found is None or not (gone is None or np.array_equal(found.gone, gone)):
        if "absorbed" not in known:
            simple = [part for g in graph.groups for part in g.simplified()]
            field = np.zeros(int(graph._offsets[-1]))
            constant, groups = absorb_small(graph, simple, field)
            known["absorbed"] = constant, field if len(groups) < len(simple) else None, groups
        found = known[kind] = _settled(graph, known["absorbed"], gone)
    if given is None:
        log_field = found.field if found.field is not None else np.zeros(int(graph._offsets[-1]))
    elif found.field is not None:
        log_field = given + found.field
    else:
        log_field = given if given.flags.carray else given.copy()
    if not found.constant < np.inf or (len(log_field) and not log_field.max() < np.inf):
        raise ModelError(
            "the numbers of this model are too large: added up, they leave the range of floats "
            "(1.8e308); scale them down, and write -inf for what is impossible"
        )
    if found.constant == -np.inf:
        raise ContradictionError(
            "every assignment has probability zero: a factor forbids the observed states of all "
            "its variables; check the evidence against the model's zeros"
        )
    arrays = found.arrays
    model = Conditioned(graph, found.constant, log_field, found.fixed, arrays.groups, arrays)
    model.__dict__["has_fixed"] = found.has_fixed
    return model


def _settled(
    graph: FactorGraph,
    start: tuple[float, NDArray[np.float64] | None, list[FactorGroup]],
    gone: NDArray[np.bool_] | None,
) -> _Settled:
    """Fix what has one state left, slice factors there, and so on, from what unary factors come
    to (None: nothing) and the others."""
    offsets, (constant, field, groups) = graph._offsets, start
    log_field = np.zeros(int(offsets[-1])) if field is None else field
    lent = True
    if gone is not None or any(g._excludes for g in groups):
        log_field, lent = log_field.copy(), False
        if gone is not None:
            log_field[gone] = -np.inf
        for g in groups:
            g.exclude(log_field, offsets)
    fixed = np.full(graph.n_variables, -1, dtype=np.int32)
    for _ in range(_MAX_ROUNDS):
        newly = _new_fixed(graph, log_field, fixed)
        if not len(newly):
            break
        if lent:
            log_field, lent = log_field.copy(), False
        touched = np.zeros(graph.n_variables, dtype=bool)
        touched[newly] = True
        before = {id(g) for g in groups}
        sliced = [part for g in groups for part in g.sliced(touched, fixed)]
        more, groups = absorb_small(graph, sliced, log_field)
        for g in groups:
            if id(g) not in before:
                g.exclude(log_field, offsets)
        constant += more
    else:
        fixed_late = _new_fixed(graph, log_field, fixed)  # propagation stopped: leave them free
        fixed[fixed_late] = -1
    arrays = FactorArrays(graph._n_states, offsets, tuple(groups))
    own = field if lent else log_field
    return _Settled(gone, constant, own, fixed, bool((fixed >= 0).any()), arrays)


def absorb_small(
    graph: FactorGraph, groups: Sequence[FactorGroup], log_field: NDArray
) -> tuple[float, list[FactorGroup]]:
    """Add arity-0 factors to the constant and arity-1 factors to the field, in place."""
    constant, rest = 0.0, []
    for g in groups:
        if g.form == "messages" or g.arity >= 2:
            rest.append(g)
        elif g.arity == 0:
            constant += float(g.log_tables().sum())
        else:
            first = graph._offsets[g._scope[:, 0]]
            once = bool((first[1:] > first[:-1]).all())  # no variable twice
            n, k = len(g), g.shape[0]
            dense = n > 0 and once and int(first[-1] - first[0]) == (n - 1) * k  # end to end
            if dense and k > 2:
                log_field[first[0] : first[0] + n * k].reshape(n, k)[:] += g.stored_tables()
                continue
            if once and k > 2 and first.size <= _FEW_FACTORS:  # all states at once
                log_field[first[:, None] + np.arange(k)] += g.stored_tables()
                continue
            for s in range(k):
                column = g.column(s)
                if column is None:
                    continue
                if dense:
                    log_field[first[0] + s : first[0] + n * k : k] += column
                elif once:
                    log_field[first + s] += column
                else:
                    np.add.at(log_field, first + s, column)
    return constant, rest


def summed_sizes(graph: FactorGraph) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many factors are at each variable, (V,), and what their largest numbers and the largest
    of its field come to in size, (V,)."""
    n = graph.n_variables
    count, size = np.zeros(n), np.zeros(n)
    for g in graph.groups:
        if g.form == "messages":
            continue
        a = g.magnitude()
        for k in range(g.arity):
            count += np.bincount(g._scope[:, k], minlength=n)
            size += np.bincount(g._scope[:, k], weights=a, minlength=n)
    if graph._field is not None and n:
        field = np.abs(np.where(np.isfinite(graph._field), graph._field, 0.0))
        size += np.maximum.reduceat(field, graph._offsets[:-1])
    return count, size


def rounding_slack(graph: FactorGraph) -> NDArray[np.float64]:
    """(V,) a bound on the rounding of any sum, with signs, of numbers of a variable's factors.

    With c factors of sizes a_1..a_c at a variable, and its field: every log-odds, log-ratio or
    absorbed field is a sum of entries of these, each rounded once itself, at most four a factor.
    """
    count, size = summed_sizes(graph)
    return 4 * U * (4 * count + 16) * size


def rounding_of_sums(graph: FactorGraph) -> float:
    """A bound on what :func:`condition` may lose of log Z by rounding.

    Numbers of a variable are added to its field one after the other, at most as many as it has
    factors; the constant is what a few dozen additions in a row come to (pairwise sums), and one
    for each group. What cancels counts with its size, so this is not about the size of log Z.
    """
    count, size = summed_sizes(graph)
    alone = sum(float(g.magnitude().sum()) for g in graph.groups if g.arity == 0)
    depth = 64 + len(graph.groups)
    return float(U * (((count + depth) * size).sum() + depth * alone))


def _new_fixed(graph: FactorGraph, log_field: NDArray, fixed: NDArray) -> NDArray[np.int64]:
    """Variables that have just one state left and were not fixed before; writes their state."""
    if not graph.n_variables or (log_field.min() > -np.inf and graph._n_states.min() > 1):
        return np.zeros(0, dtype=np.int64)
    gone = np.flatnonzero(~(log_field > -np.inf))  # few, as a rule
    owner = np.searchsorted(graph._offsets, gone, side="right") - 1
    counts = graph._n_states - np.bincount(owner, minlength=graph.n_variables)
    if (counts == 0).any():
        v = int(np.flatnonzero(counts == 0)[0])
        raise ContradictionError(
            f"variable {graph.name(v)} has no state left: the evidence, or evidence and hard "
            "constraints together, exclude them all"
        )
    newly = np.flatnonzero((counts == 1) & (fixed < 0))
    if len(newly):  # the state left: the sum of all less that of the others
        size = graph._n_states[newly].astype(np.int64)
        others = np.bincount(owner, weights=gone - graph._offsets[owner], minlength=len(counts))
        fixed[newly] = size * (size - 1) // 2 - others[newly].astype(np.int64)
    return newly
