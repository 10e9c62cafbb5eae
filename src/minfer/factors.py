"""Factors, stored in batches of one shape. No object per factor.

Three kinds (the first is the paper's, Riedel, Smith & McCallum 2010, section 2):

* :class:`Features`: Psi_i(y) = exp(theta_i * phi(y)) with one truth table phi over A binary
  variables, shared by the batch; weight and truth table are kept apart because a factor's gain
  depends on phi;
* :class:`Tables`: dense log-tables of one shape, row-major over the scope, the last variable
  fastest; minus infinity is legal (a hard constraint);
* :class:`Globals`: factors that compute their own messages (:class:`GlobalFactor`), for scopes far
  too large for a table, such as "these arcs form a tree".

``ids`` are the factors' numbers in their graph, increasing. Arrays handed out are read-only views;
kernels get the writable base arrays (names with an underscore), because numba compiles a second
version of a kernel for read-only input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

MAX_FEATURE_ARITY = 6

#: Truth tables by name, as `FactorGraph.pairwise(feature=...)` takes them.
TRUTH_TABLES: dict[str, NDArray[np.bool_]] = {
    "and": np.array([[False, False], [False, True]]),
    "equal": np.array([[True, False], [False, True]]),
    "or": np.array([[False, True], [True, True]]),
    "implies": np.array([[True, True], [False, True]]),
}


def read_only(array: NDArray) -> NDArray:
    """A view that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view


@runtime_checkable
class GlobalFactor(Protocol):
    """A factor over many variables that knows its own messages. Must be immutable and picklable.

    Values of a variable's states lie one after the other: for n variables with S_1, ..., S_n states
    ``incoming`` and ``out`` have S_1 + ... + S_n entries, in the order of the factor's scope.
    """

    def messages(self, incoming: NDArray[np.float64], out: NDArray[np.float64]) -> float:
        """Fill ``out`` with log-messages and return the factor's log-partition.

        With q the incoming log-messages (each variable's scaled so that its largest entry is 0;
        minus infinity is legal, and comes with evidence: a factor that answers NaN to it is asked
        again with -1e6 in its place),
        ``out[i, s] = log sum_{x: x_i = s} psi(x) prod_{j != i} q_j(x_j)``
        and the result is ``log sum_x psi(x) prod_j q_j(x_j)``.
        """
        ...

    def score(self, assignment: NDArray[np.int64]) -> float:
        """log psi(x) at one assignment of the scope, shape (n,); minus infinity if forbidden."""
        ...


@dataclass(frozen=True, eq=False)
class Features:
    """F log-linear features exp(theta * phi) that share one truth table over A binary variables."""

    _ids: NDArray[np.int64]  # (F,)
    _scope: NDArray[np.int32]  # (F, A)
    truth: NDArray[np.bool_]  # (2,) * A
    _theta: NDArray[np.float64]  # (F,)

    kind = "feature"

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> NDArray[np.int64]:
        return read_only(self._ids)

    @property
    def scope(self) -> NDArray[np.int32]:
        return read_only(self._scope)

    @property
    def theta(self) -> NDArray[np.float64]:
        """Weights, shape (F,)."""
        return read_only(self._theta)

    @property
    def arity(self) -> int:
        return self._scope.shape[1]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.truth.shape

    def log_tables(self, rows: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.float64]:
        """The same factors as dense log-tables, shape (F, 2**A)."""
        return self._theta[rows, None] * self.truth.reshape(1, -1)

    def take(self, rows: NDArray[np.int64], ids: NDArray[np.int64]) -> Features:
        """Some rows as a group of their own, under new numbers."""
        return Features(ids, self._scope[rows], self.truth, self._theta[rows])


@dataclass(frozen=True, eq=False)
class Tables:
    """F dense log-tables of one shape. ``log_psi`` has one row per factor, or one row for all."""

    _ids: NDArray[np.int64]  # (F,)
    _scope: NDArray[np.int32]  # (F, A)
    shape: tuple[int, ...]  # (S_1, ..., S_A)
    _log_psi: NDArray[np.float64]  # (F, prod S) or (1, prod S)

    kind = "table"

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> NDArray[np.int64]:
        return read_only(self._ids)

    @property
    def scope(self) -> NDArray[np.int32]:
        return read_only(self._scope)

    @property
    def log_psi(self) -> NDArray[np.float64]:
        """Log-tables, shape (F, S_1 * ... * S_A); a shared table is repeated without copying."""
        return read_only(np.broadcast_to(self._log_psi, (len(self), self._log_psi.shape[1])))

    @property
    def arity(self) -> int:
        return self._scope.shape[1]

    @property
    def shared(self) -> bool:
        return self._log_psi.shape[0] == 1 and len(self) != 1

    def log_tables(self, rows: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.float64]:
        """The log-tables of some rows, shape (rows, S_1 * ... * S_A)."""
        return self.log_psi[rows]

    def take(self, rows: NDArray[np.int64], ids: NDArray[np.int64]) -> Tables:
        """Some rows as a group of their own, under new numbers."""
        log_psi = self._log_psi if self.shared else self._log_psi[rows]
        return Tables(ids, self._scope[rows], self.shape, log_psi)


@dataclass(frozen=True, eq=False)
class Globals:
    """Global factors, each with its own scope. Few by nature, so objects are fine here."""

    _ids: NDArray[np.int64]  # (F,)
    scopes: tuple[NDArray[np.int32], ...]  # F arrays (n_i,)
    factors: tuple[GlobalFactor, ...]

    kind = "global"

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> NDArray[np.int64]:
        return read_only(self._ids)

    def take(self, rows: NDArray[np.int64], ids: NDArray[np.int64]) -> Globals:
        """Some rows as a group of their own, under new numbers."""
        return Globals(
            ids, tuple(self.scopes[r] for r in rows), tuple(self.factors[r] for r in rows)
        )


FactorGroup = Features | Tables | Globals


def n_entries(shape: Sequence[int]) -> int:
    """Entries of a table of this shape, as a Python integer that cannot overflow."""
    return prod(int(s) for s in shape)
