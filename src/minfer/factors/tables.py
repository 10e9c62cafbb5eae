"""Dense tables from what people give: checked, and grouped by shape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import (
    Scopes,
    concatenate,
    integers,
    real_numbers,
    scope_array,
    scope_list,
    table_sizes,
    unique_rows,
)
from minfer.errors import ModelError
from minfer.factors.group import Floats, Ints, Tables, check_log_psi, n_entries

if TYPE_CHECKING:
    from minfer.model.states import Variables

_FEW_FACTORS = 5000
MAX_ENTRIES = 2**40  # of a table; more fit into no memory


def check_entries(where: str, shape: Sequence[int]) -> None:
    """Raise ModelError about a table that no machine can hold."""
    if n_entries(shape) > MAX_ENTRIES:
        raise ModelError(
            f"{where}: a table over its {len(shape)} variables has about "
            f"2^{math.log2(n_entries(shape)):.0f} entries, too many for memory: use features, "
            "smaller factors, or a global factor (add_global)"
        )


def table_groups(
    variables: Variables, first: int, scopes: Scopes, log_tables: ArrayLike | Sequence[ArrayLike]
) -> list[Tables]:
    """Tables with numbers from ``first`` on, checked; as ``FactorGraph.from_tables`` takes them."""
    if isinstance(scopes, np.ndarray) and scopes.ndim == 2:
        return _alike(variables, first, scope_array(scopes), log_tables)
    listed = scope_list(scopes, first)
    if not np.iterable(log_tables):
        raise ModelError(f"log-tables must be F arrays, one for each scope, not {log_tables!r}")
    tables = [real_numbers(t, f"factor {first + i}: log-tables") for i, t in enumerate(log_tables)]
    if len(listed) != len(tables):
        raise ModelError(f"{len(listed)} scopes but {len(tables)} tables")
    for i, (s, t) in enumerate(zip(listed, tables)):
        if s.size and (s.min() < 0 or s.max() >= variables.n_variables):
            variables._check_scopes(s[None], first + i)
        want = tuple(int(k) for k in variables._n_states[s])
        if t.shape != want and t.shape != (n_entries(want),):
            check_entries(f"factor {first + i}", want)
            raise ModelError(
                f"factor {first + i}: table has shape {t.shape}, but its scope "
                f"{variables._scope_text(s)} needs {want}"
            )
    arity = np.array([s.size for s in listed], dtype=np.int64)
    return flat_table_groups(
        variables, first, arity, concatenate(listed, np.int32), concatenate(tables, np.float64)
    )


def flat_table_groups(
    variables: Variables, first: int, arity: Ints, scopes: NDArray[np.int32], log_psi: Floats
) -> list[Tables]:
    """The same from flat arrays; see ``FactorGraph.add_flat_tables``."""
    arity, scopes = integers(arity, "arity").ravel(), integers(scopes, "scopes").ravel()
    log_psi = real_numbers(log_psi, "log_psi").ravel()
    n = len(arity)
    if (n and arity.min() < 0) or arity.sum() != len(scopes):
        raise ModelError(f"arities of {arity.sum()} in all, but {len(scopes)} variables")
    scope_ptr = np.concatenate([[0], np.cumsum(arity)])
    if scopes.size and (scopes.min() < 0 or scopes.max() >= variables.n_variables):
        bad = int(np.flatnonzero((scopes < 0) | (scopes >= variables.n_variables))[0])
        factor = int(np.searchsorted(scope_ptr, bad, side="right")) - 1
        raise ModelError(
            f"factor {first + factor}: variable {int(scopes[bad])} is outside "
            f"0..{variables.n_variables - 1}"
        )
    sizes = table_sizes(variables._n_states[scopes], arity)
    if sizes.sum() != log_psi.size:
        largest = int(np.argmax(sizes))
        states = variables._n_states[scopes[scope_ptr[largest] : scope_ptr[largest + 1]]]
        check_entries(f"factor {first + largest}", states.tolist())
        raise ModelError(f"tables need {sizes.sum():.0f} entries, {log_psi.size} were given")
    table_ptr = np.concatenate([[0], np.cumsum(sizes.astype(np.int64))])
    check_log_psi(log_psi, table_ptr, first)
    groups: list[Tables] = []
    log_psi = log_psi.astype(np.float64, copy=False)
    for shape, rows, scope in _by_shape(variables, first, arity, scopes, scope_ptr):
        if len(rows) == 1:
            begin = table_ptr.item(rows.item())
            entries = log_psi[begin : begin + n_entries(shape)][None].copy()
        else:
            entries = log_psi[table_ptr[rows][:, None] + np.arange(n_entries(shape))]
        groups.append(Tables(first + rows, scope, shape, entries))
    return groups


def _by_shape(
    variables: Variables, first: int, arity: Ints, scopes: NDArray, scope_ptr: Ints
) -> Iterator[tuple[tuple[int, ...], Ints, NDArray[np.int32]]]:
    """Each shape, its factors, and their scopes (F, A); by arity, then by shape."""
    if len(arity) <= _FEW_FACTORS:  # plain loops are faster than so many calls
        listed, ends = scopes.tolist(), scope_ptr.tolist()
        states = variables._n_states[scopes].tolist()
        found: dict[tuple[int, ...], list[int]] = {}
        for i, (lo, hi) in enumerate(pairwise(ends)):
            found.setdefault(tuple(states[lo:hi]), []).append(i)
            if len(set(listed[lo:hi])) < hi - lo:
                variables._check_scopes(scopes[None, lo:hi], first + i)
        for shape in sorted(found, key=lambda shape: (len(shape), shape)):
            mine = found[shape]
            own = [listed[ends[i] : ends[i + 1]] for i in mine]
            yield shape, np.array(mine), np.array(own, dtype=np.int32)
        return
    for a in np.unique(arity):
        rows = np.flatnonzero(arity == a)
        scope = scopes[scope_ptr[rows][:, None] + np.arange(a)].astype(np.int32)
        variables._check_scopes(scope, first + rows)
        shapes, which = unique_rows(variables._n_states[scope])
        for k in range(len(shapes)):
            r = np.flatnonzero(which == k)
            yield tuple(shapes[k].tolist()), rows[r], scope[r]


def _alike(
    variables: Variables, first: int, scope: NDArray[np.int32], log_tables: ArrayLike | Any
) -> list[Tables]:
    """Tables of one shape: no regrouping. A leading axis of 1 is one table shared by all."""
    n, arity = scope.shape
    variables._check_scopes(scope, first)
    log_psi = np.array(real_numbers(log_tables, "add_tables: log-tables"), dtype=np.float64)
    shapes = variables._n_states[scope]
    if n == 0:
        return []
    if (shapes != shapes[0]).any():
        if log_psi.ndim == 0 or log_psi.shape[0] != n:
            raise ModelError("add_tables: a shared table needs scopes of one shape")
        return flat_table_groups(
            variables, first, np.full(n, arity), scope.ravel(), log_psi.ravel()
        )
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
    return [Tables(np.arange(first, first + n), scope, shape, log_psi)]
