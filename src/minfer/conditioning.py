"""What is left to infer: unary factors and known variables absorbed, once, for every solver.

    log p(x) = constant + sum_v field_v(x_v) + sum_{i, arity >= 2} log Psi_i(x_free) - log Z

Arity-0 and arity-1 factors go into the constant and the field; a variable with a single state left
(one state by nature, evidence, or a hard unary factor) is *fixed*, and the factors it touches are
sliced. A slice may forbid states of its other variables and so fix more (a true literal of an
exactly-one all the others); a few rounds of that propagation are made. Factors keep their numbers,
so every answer maps back to the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.checks import check_graph
from minfer.errors import ContradictionError, ModelError, RefusedError
from minfer.factors.group import FactorGroup, n_entries, patterns

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

_MAX_ROUNDS = 20
_FEW_FACTORS = 2000
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

    @cached_property
    def has_fixed(self) -> bool:
        return bool((self.fixed >= 0).any())

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
        found = ask(factors, tuple(shape)) if not self.has_fixed else None
        if found is not None:
            return found
        free = self.fixed[scope] < 0
        if self.has_fixed and free.all():
            found = ask(factors, tuple(shape))
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
            inside = scope[rows][:, pattern]
            joint = ask(factors[rows], left) if len(left) > 1 else None
            if joint is None:
                joint = np.ones((len(rows), 1))
                for a, size in enumerate(left):
                    q = probs[graph._offsets[inside[:, a]][:, None] + np.arange(size)]
                    joint = (joint[:, :, None] * q[:, None, :]).reshape(len(rows), -1)
            base = (np.maximum(self.fixed[scope[rows]], 0) * ~pattern * strides).sum(axis=1)
            cells = np.zeros(1, dtype=np.int64)
            for size, step in zip(left, strides[pattern]):
                cells = (cells[:, None] + np.arange(size) * step).ravel()
            out[rows[:, None], base[:, None] + cells] = joint
        return out


def condition(graph: FactorGraph) -> Conditioned:
    """Absorb unary factors and fixed variables; a variable with no state left is an error."""
    check_graph(graph)
    offsets = graph._offsets
    simple = [part for g in graph.groups for part in g.simplified()]
    log_field = np.zeros(int(offsets[-1])) if graph._field is None else graph._field
    lent = log_field is graph._field  # the graph's own, until something is to be written to it
    if lent and not (log_field.flags.carray and all(map(_leaves_field, simple))):
        log_field, lent = log_field.copy(), False
    constant, groups = _absorb_small(graph, simple, log_field)
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
        more, new = _absorb_small(graph, sliced, log_field)
        for g in new:
            if id(g) not in before:
                g.exclude(log_field, offsets)
        groups = new
        constant += more
    else:
        fixed_late = _new_fixed(graph, log_field, fixed)  # propagation stopped: leave them free
        fixed[fixed_late] = -1
    if not constant < np.inf or (len(log_field) and not log_field.max() < np.inf):
        raise ModelError(
            "the numbers of this model are too large: added up, they leave the range of floats "
            "(1.8e308); scale them down, and write -inf for what is impossible"
        )
    if constant == -np.inf:
        raise ContradictionError(
            "every assignment has probability zero: a factor forbids the observed states of all "
            "its variables; check the evidence against the model's zeros"
        )
    return Conditioned(graph, constant, log_field, fixed, tuple(groups))


def _leaves_field(group: FactorGroup) -> bool:
    """Whether a group adds nothing to the field and excludes no state."""
    return group.arity >= 2 and not group._excludes


def _absorb_small(
    graph: FactorGraph, groups: tuple[FactorGroup, ...] | list[FactorGroup], log_field: NDArray
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
            few = not once and 4 * n * k <= len(log_field)
            if few:  # sums of the variables they are over, rather than of all
                first, place = np.unique(first, return_inverse=True)
            for s in range(k):
                column = g.column(s)
                if column is None:
                    continue
                if few:
                    log_field[first + s] += np.bincount(place, column)
                elif dense:
                    log_field[first[0] + s : first[0] + n * k : k] += column
                elif once:
                    log_field[first + s] += column
                else:
                    log_field += np.bincount(first + s, column, minlength=len(log_field))
    return constant, rest


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
