"""Checks of what users hand in: a clean copy comes back, or an error that names the place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.errors import ModelError
from minfer.factors import MAX_FEATURE_ARITY, TRUTH_TABLES, read_only


def checked_states(n_states: ArrayLike) -> NDArray[np.int32]:
    raw = np.asarray(n_states)
    if raw.ndim != 1:
        raise ModelError(f"n_states must have shape (V,), not {raw.shape}")
    if raw.size and not np.issubdtype(raw.dtype, np.integer):
        raise ModelError(f"n_states must be integers, not {raw.dtype}")
    if raw.size and (raw.min() < 1 or raw.max() > 2**31 - 1):
        bad = int(np.flatnonzero((raw < 1) | (raw > 2**31 - 1))[0])
        raise ModelError(f"variable {bad}: {raw[bad]} states; every variable needs at least one")
    return raw.astype(np.int32)


def checked_names(
    names: Sequence[str] | Mapping[str, int] | None, n_variables: int
) -> tuple[str, ...] | None:
    if names is None:
        return None
    names = tuple(names)
    if len(names) != n_variables:
        raise ModelError(f"{len(names)} names for {n_variables} variables")
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(n for n in names if n in seen or seen.add(n))  # type: ignore[func-returns-value]
        raise ModelError(f"two variables are called {twice!r}")
    if not all(isinstance(n, str) for n in names):
        raise ModelError("names must be strings")
    return names


def truth_table(feature: str | ArrayLike, arity: int) -> NDArray[np.bool_]:
    if isinstance(feature, str):
        if feature not in TRUTH_TABLES:
            raise ModelError(f"unknown feature {feature!r}; choose from {', '.join(TRUTH_TABLES)}")
        truth = TRUTH_TABLES[feature]
    else:
        truth = np.array(feature).astype(bool)
        if not np.array_equal(truth, np.asarray(feature)):
            raise ModelError("a truth table has entries 0 and 1 only; use a table for other values")
    if not 1 <= arity <= MAX_FEATURE_ARITY:
        raise ModelError(f"features have 1 to {MAX_FEATURE_ARITY} variables, not {arity}")
    if truth.shape != (2,) * arity:
        raise ModelError(
            f"a feature over {arity} variables needs a truth table of shape {(2,) * arity}, "
            f"not {truth.shape}"
        )
    return read_only(truth)


def check_log_psi(log_psi: NDArray, table_ptr: NDArray, first: int) -> None:
    """One pass for the usual case: the sum of the positive parts is NaN or inf iff an entry is."""
    if not log_psi.size or log_psi.max() < np.inf:  # max() is NaN if an entry is
        return
    bad = int(np.flatnonzero(~(log_psi < np.inf))[0])
    factor = int(np.searchsorted(table_ptr, bad, side="right")) - 1
    raise ModelError(
        f"factor {first + factor}: entry {bad - int(table_ptr[factor])} of its log-table is "
        f"{log_psi[bad]}; log-tables are finite or minus infinity (a zero)"
    )


def scope_array(scope: ArrayLike) -> NDArray[np.int32]:
    """A copy of scopes (F, A)."""
    raw = np.asarray(scope)
    if raw.ndim != 2:
        raise ModelError(f"scopes must have shape (F, A), not {raw.shape}")
    if raw.size and not np.issubdtype(raw.dtype, np.integer):
        raise ModelError(f"scopes must be integers, not {raw.dtype}")
    if raw.size and raw.dtype.itemsize > 4 and (raw.max() > 2**31 - 1 or raw.min() < -(2**31)):
        raise ModelError("a scope names a variable number beyond 2**31")
    return np.array(raw, dtype=np.int32, order="C")


def edge_array(edges: ArrayLike) -> NDArray[np.int32]:
    """A copy of edges (E, 2); an empty list is no edges."""
    raw = np.asarray(edges)
    if raw.size == 0:
        raw = np.zeros((0, 2), dtype=np.int32)
    if raw.ndim != 2 or raw.shape[1] != 2:
        raise ModelError(f"edges must have shape (E, 2), not {raw.shape}")
    return scope_array(raw)


def unique_rows(rows: NDArray) -> tuple[NDArray, NDArray]:
    """Distinct rows (K, A) and which of them each row is (F,); zero columns make one row."""
    if rows.shape[1] == 0:
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    distinct, which = np.unique(rows, axis=0, return_inverse=True)
    return distinct, which.ravel()


def concatenate(parts: Sequence[NDArray], dtype: type) -> NDArray:
    if not parts:
        return np.zeros(0, dtype=dtype)
    return np.concatenate([np.asarray(p, dtype=dtype).ravel() for p in parts])
