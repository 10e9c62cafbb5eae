"""Dense log-tables of one shape, row-major over the scope, the last variable fastest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.checks import (
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
from minfer.factors.group import MAX_LOG, FactorGroup, Rows, n_entries, read_only

if TYPE_CHECKING:
    from minfer.states import Variables

_FEW_FACTORS = 5000
MAX_ENTRIES = 2**40  # of a table; more fit into no memory


@dataclass(frozen=True, eq=False)
class Tables(FactorGroup):
    """F dense log-tables of one shape. ``log_psi`` has one row per factor, or one row for all."""

    shape: tuple[int, ...]  # (S_1, ..., S_A)
    _log_psi: NDArray[np.float64]  # (F, prod S) or (1, prod S)

    kind = "table"

    @property
    def log_psi(self) -> NDArray[np.float64]:
        """Log-tables, shape (F, S_1 * ... * S_A); a shared table is repeated without copying."""
        if not self.shared:
            return read_only(self._log_psi)
        return read_only(np.broadcast_to(self._log_psi, (len(self), self._log_psi.shape[1])))

    @property
    def shared(self) -> bool:
        return self._log_psi.shape[0] == 1 and len(self) != 1

    @property
    def has_tables(self) -> bool:
        return True

    def take(self, rows: NDArray[np.int64], ids: NDArray[np.int64]) -> Tables:
        log_psi = self._log_psi if self.shared else self._log_psi[rows]
        return Tables(ids, self._scope.take(rows, axis=0), self.shape, log_psi)

    @property
    def n_weights(self) -> int:
        return self._log_psi.shape[1]

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.log_psi

    def with_weights(self, weights: NDArray[np.float64]) -> Tables:
        return self.replace(_log_psi=np.ascontiguousarray(weights))

    def basis(self) -> NDArray[np.float64]:
        return np.eye(self.n_weights)

    def statistics(self, joint: NDArray[np.float64]) -> NDArray[np.float64]:
        return joint

    def statistics_at(
        self, rows: NDArray[np.int64], states: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        return np.arange(len(rows)), self._cells(states.T, len(rows)), np.ones(len(rows))

    def alike(self) -> Any:
        return Tables, self.shape

    def joined(self, groups: Sequence[Tables]) -> Tables:
        if len(groups) == 1:
            return self
        return super().joined(groups).replace(_log_psi=np.concatenate([g.weights for g in groups]))

    def without_zeros(self, which: NDArray[np.bool_]) -> Tables:
        if not np.isneginf(self._log_psi).any() or not which.any():
            return self
        zero = np.isneginf(self.log_psi) & which[:, None]
        return self.replace(_log_psi=np.where(zero, 0.0, self.log_psi))

    def support(self) -> Tables:
        return self.replace(_log_psi=np.where(self._log_psi > -np.inf, 0.0, -np.inf))

    def _cells(self, states: Iterable[NDArray[np.int64]], *n: int) -> NDArray[np.int64]:
        """Cells (*n) of states of the scope's variables, A arrays (*n)."""
        cell = np.zeros(n, dtype=np.int64)
        for size, state in zip(self.shape, states):
            cell = cell * size + state
        return cell

    def score(self, rows: NDArray[np.int64], states: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.log_psi[rows, self._cells(states.T, len(rows))]

    def log_score(self, assignments: NDArray[np.int64]) -> NDArray[np.float64]:
        states = (assignments[:, v] for v in self._scope.T)
        cells = self._cells(states, len(assignments), len(self))
        return self.log_psi[np.arange(len(self)), cells].sum(axis=1)

    def log_tables(self, rows: Rows = slice(None)) -> NDArray[np.float64]:
        return self.log_psi[rows]

    def stored_tables(self) -> NDArray[np.float64]:
        return self._log_psi

    def check_numbers(self) -> None:
        n, size = self._log_psi.shape
        if n not in (1, len(self)) or size != n_entries(self.shape):
            raise ModelError(
                f"{len(self)} tables of shape {self.shape} have entries of shape {(n, size)}"
            )
        check_log_psi(self._log_psi.ravel(), np.arange(n + 1) * size, int(self._ids[0]))

    def describe(self, put: Callable[[str, NDArray], None]) -> dict[str, Any]:
        put("log_psi", self._log_psi.astype("<f8"))
        return {"rows": len(self._log_psi)}

    @classmethod
    def restore(
        cls,
        ids: NDArray[np.int64],
        scope: NDArray[np.int32],
        shape: tuple[int, ...],
        get: Callable[[str, str, list[int]], NDArray],
        entry: dict[str, Any],
    ) -> Tables:
        rows = entry.get("rows")
        if type(rows) is not int or rows not in (1, len(ids)):
            raise ModelError(f"{str(rows)[:40]} tables for {len(ids)} factors")
        return cls(ids, scope, shape, get("log_psi", "<f8", [rows, n_entries(shape)]))


def check_entries(where: str, shape: Sequence[int]) -> None:
    """Raise ModelError about a table that no machine can hold."""
    if n_entries(shape) > MAX_ENTRIES:
        raise ModelError(
            f"{where}: a table over its {len(shape)} variables has about "
            f"2^{math.log2(n_entries(shape)):.0f} entries, too many for memory: use features, "
            "smaller factors, or a global factor (add_global)"
        )


def check_log_psi(log_psi: NDArray, table_ptr: NDArray, first: int) -> None:
    """One pass for the usual case: the sum of the positive parts is NaN or inf iff an entry is."""
    if not log_psi.size or (log_psi.max() < MAX_LOG and log_psi.min() > -MAX_LOG):
        return  # max() is NaN if an entry is
    wrong = ~(np.abs(log_psi) < MAX_LOG) & (log_psi != -np.inf)
    if not wrong.any():
        return
    bad = int(np.flatnonzero(wrong)[0])
    factor = int(np.searchsorted(table_ptr, bad, side="right")) - 1
    raise ModelError(
        f"factor {first + factor}: entry {bad - int(table_ptr[factor])} of its log-table is "
        f"{log_psi[bad]}; log-tables are finite (within 1e300) or minus infinity (a zero)"
    )


# ---------------------------------------------------------------------- from what people give


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
    variables: Variables,
    first: int,
    arity: NDArray[np.int64],
    scopes: NDArray[np.int32],
    log_psi: NDArray[np.float64],
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
    variables: Variables,
    first: int,
    arity: NDArray[np.int64],
    scopes: NDArray,
    scope_ptr: NDArray[np.int64],
) -> Iterator[tuple[tuple[int, ...], NDArray[np.int64], NDArray[np.int32]]]:
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
