"""Arrays as PGMax takes them: evidence, pairwise matrices, and lists of configurations.

PGMax knows a variable by its place in an array of variables; here it is that place's number in
row-major order, ``np.arange(H * W).reshape(H, W)[row, column]``. All potentials are logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import (
    check_graph,
    check_type,
    integers,
    real_numbers,
    scope_array,
    unique_rows,
)
from minfer.basics.words import counted
from minfer.errors import ModelError
from minfer.factors.group import Floats
from minfer.factors.tables import check_entries
from minfer.graph import FactorGraph


class Pairwise(NamedTuple):
    """A ``PairwiseFactorGroup``: ``variables`` (E, 2), ``log_potential_matrix`` (E, S, T) or one
    (S, T) for all.
    """

    variables: ArrayLike
    log_potential_matrix: ArrayLike


class Enumerated(NamedTuple):
    """An ``EnumFactorGroup``: ``variables`` (F, A), ``factor_configs`` (C, A) and
    ``log_potentials`` (F, C), or one (C,) for all. What is not listed is impossible.
    """

    variables: ArrayLike
    factor_configs: ArrayLike
    log_potentials: ArrayLike


class Arrays(NamedTuple):
    """A whole model: what :func:`to_arrays` gives and, in this order, :func:`from_arrays` takes."""

    num_states: NDArray[np.int32]  # (V,)
    evidence: Floats  # (V, largest S), minus infinity beyond a variable's states
    pairwise: tuple[Pairwise, ...]
    enumerated: tuple[Enumerated, ...]


def from_arrays(
    num_states: ArrayLike,
    evidence: ArrayLike | None = None,
    pairwise: Iterable[Pairwise] = (),
    enumerated: Iterable[Enumerated] = (),
    *,
    names: Sequence[str] | None = None,
) -> FactorGraph:
    """A model from PGMax's arrays.

    Parameters
    ----------
    num_states : int array of any shape, one entry a variable
    evidence : float array (..., S), S the largest number of states, optional
        One unary factor a variable; entries beyond a variable's states are not read.
    pairwise, enumerated : groups of factors, in this order

    Examples
    --------
    >>> import numpy as np
    >>> from minfer.interop import Enumerated, Pairwise, from_arrays
    >>> alike = Pairwise([[0, 1], [1, 2]], [[0.5, 0.0], [0.0, 0.5]])
    >>> one_of_three = Enumerated([[0, 1, 2]], np.eye(3, dtype=int), np.zeros(3))
    >>> from_arrays([2, 2, 2], np.zeros((3, 2)), [alike], [one_of_three])
    FactorGraph(3 variables of 2 states; 6 factors: 3 unary, 2 pairwise, 1 of arity 3)
    """
    states = integers(num_states, "num_states")
    graph = FactorGraph.empty(states.ravel(), names)
    if evidence is not None:
        given = real_numbers(evidence, "evidence").astype(np.float64)
        want = (*states.shape, int(states.max(initial=0)))
        if given.shape != want:
            raise ModelError(f"evidence has shape {given.shape}, not {want}")
        rows = given.reshape(graph.n_variables, want[-1])
        graph = graph.add_tables(
            [[v] for v in range(graph.n_variables)],
            [row[:size] for row, size in zip(rows, graph.n_states)],
        )
    for group in _groups(pairwise, Pairwise):
        scope = scope_array(group.variables)
        matrix = real_numbers(group.log_potential_matrix, "log_potential_matrix")
        graph = graph.add_tables(scope, matrix[None] if matrix.ndim == 2 else matrix)
    for number, listed in enumerate(_groups(enumerated, Enumerated)):
        scope = scope_array(listed.variables)
        graph = graph.add_tables(scope, _dense(graph, scope, listed, number))
    return graph


def _groups(given: Any, kind: Any) -> Iterable[Any]:
    check_type(given, Iterable, f"groups of factors must be a list of {kind.__name__}", ModelError)
    for group in given:
        check_type(group, kind, f"a group of factors must be a {kind.__name__}", ModelError)
        yield group


def to_arrays(graph: FactorGraph) -> Arrays:
    """A model as PGMax's arrays.

    Unary factors, evidence and corrections are added up in ``evidence``, constant factors in that
    of variable 0. Two variables and no zeros make a ``Pairwise``, everything else an ``Enumerated``
    without the impossible configurations: PGMax has no minus infinity. Global factors are errors.
    """
    check_graph(graph, "to_arrays")
    n, most = graph.n_variables, int(graph.n_states.max(initial=0))
    evidence = np.full((n, most), -np.inf)
    evidence[np.arange(most) < graph.n_states[:, None]] = graph.field
    pairwise, enumerated = [], []
    for g in graph.groups:
        if g.form == "messages" or not g.has_tables:
            raise ModelError(f"factor {g.ids[0]} is {g._a_noun} and has no table")
        tables = g.log_tables()
        if g.arity == 0:
            if not n:
                raise ModelError("a model without variables cannot be exported")
            evidence[0] += tables.sum()
        elif g.arity == 1:
            np.add.at(evidence[:, : g.shape[0]], g.scope[:, 0], tables)
        else:
            patterns, which = unique_rows(np.isfinite(tables))
            for k, possible in enumerate(patterns):
                rows = which == k
                if g.arity == 2 and possible.all():
                    matrices = tables[rows].reshape(-1, *g.shape)
                    pairwise.append(Pairwise(g.scope[rows], matrices))
                else:
                    configs = np.argwhere(possible.reshape(g.shape))
                    enumerated.append(Enumerated(g.scope[rows], configs, tables[rows][:, possible]))
    return Arrays(graph.n_states, evidence, tuple(pairwise), tuple(enumerated))


def _dense(graph: FactorGraph, scope: NDArray[np.int32], listed: Enumerated, number: int) -> Floats:
    """The tables of a group, (F, S_1, ..., S_A) or (1, ...) if one serves all."""
    where = f"enumerated group {number}"
    if scope.size and (scope.min() < 0 or scope.max() >= graph.n_variables):
        raise ModelError(f"{where} names a variable outside 0..{graph.n_variables - 1}")
    configs = scope_array(listed.factor_configs)
    values = np.asarray(listed.log_potentials, dtype=np.float64)
    values = values[None] if values.ndim == 1 else values
    shapes = graph.n_states[scope]
    if configs.shape[1] != scope.shape[1]:
        columns = counted(configs.shape[1], "column")
        raise ModelError(f"{where}: {columns} for {counted(scope.shape[1], 'variable')}")
    if len(shapes) and (shapes != shapes[0]).any():
        raise ModelError(f"{where}: its factors must have the same numbers of states")
    if values.ndim != 2 or values.shape[1] != len(configs) or len(values) not in (1, len(scope)):
        raise ModelError(
            f"{where}: log_potentials of shape {values.shape} for {len(scope)} factors of "
            f"{len(configs)} configurations"
        )
    if len(shapes) and ((configs < 0) | (configs >= shapes[0])).any():
        raise ModelError(f"{where} lists a state that its variable does not have")
    if len(np.unique(configs, axis=0)) != len(configs):
        raise ModelError(f"{where} lists a configuration twice")
    shape = tuple(int(s) for s in shapes[0]) if len(shapes) else (1,) * scope.shape[1]
    check_entries(where, shape)
    out = np.full((len(values), *shape), -np.inf)
    out[(slice(None), *configs.T)] = values
    return out
