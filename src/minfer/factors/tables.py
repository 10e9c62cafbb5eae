"""Dense log-tables of one shape, row-major over the scope, the last variable fastest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ModelError
from minfer.factors.group import MAX_LOG, FactorGroup, Rows, n_entries, read_only

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

    def without_zeros(self, which: NDArray[np.bool_]) -> Tables:
        if not np.isneginf(self._log_psi).any() or not which.any():
            return self
        zero = np.isneginf(self.log_psi) & which[:, None]
        return self.replace(_log_psi=np.where(zero, 0.0, self.log_psi))

    def support(self) -> Tables:
        return self.replace(_log_psi=np.where(self._log_psi > -np.inf, 0.0, -np.inf))

    def score(self, rows: NDArray[np.int64], states: NDArray[np.int64]) -> NDArray[np.float64]:
        cell = np.zeros(len(rows), dtype=np.int64)
        for k, size in enumerate(self.shape):
            cell = cell * size + states[:, k]
        return self.log_psi[rows, cell]

    def log_score(self, assignments: NDArray[np.int64]) -> NDArray[np.float64]:
        cell = np.zeros((len(assignments), len(self)), dtype=np.int64)
        for k, size in enumerate(self.shape):
            cell = cell * size + assignments[:, self._scope[:, k]]
        return self.log_psi[np.arange(len(self)), cell].sum(axis=1)

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
