"""Counting: log-weights by how many literals are true; exactly one, at most one, at most k."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import integer, real_numbers, told
from minfer.errors import ModelError
from minfer.factors.group import read_only
from minfer.factors.logical import Logical, restored_literals


def counter(cap: int, last: int) -> NDArray:
    """Steps of a counter over the states 0..cap; a true literal leads from ``cap`` to ``last``."""
    k = np.arange(cap + 1)
    return np.stack([k, np.append(k[1:], last)], axis=1)


@dataclass(frozen=True, eq=False)
class ExactlyOne(Logical):
    """F constraints: exactly one of A literals is true."""

    kind = "exactly-one"

    @property
    def noun(self) -> str:
        return "exactly-one constraint"

    def automaton(self) -> tuple[NDArray, NDArray[np.float64]]:
        return counter(1, -1), np.array([[-np.inf, 0.0]])


@dataclass(frozen=True, eq=False)
class AtMostOne(Logical):
    """F constraints: at most one of A literals is true."""

    kind = "at-most-one"

    @property
    def noun(self) -> str:
        return "at-most-one constraint"

    def automaton(self) -> tuple[NDArray, NDArray[np.float64]]:
        return counter(1, -1), np.zeros((1, 2))


@dataclass(frozen=True, eq=False)
class Cardinalities(Logical):
    """F log-weights of the count of true literals; the last one is of all larger counts too."""

    _log_weights: NDArray[np.float64]  # (F or 1, C + 1), C <= A

    kind = "cardinality"

    @property
    def noun(self) -> str:
        return "cardinality factor"

    @property
    def log_weights(self) -> NDArray[np.float64]:
        """By count, shape (F, C + 1); the last one is of all larger counts too."""
        return read_only(np.broadcast_to(self._log_weights, (len(self), self.n_weights)))

    @property
    def _pruned(self) -> bool:
        """Whether the last count is forbidden throughout: its state need not be."""
        table = self._log_weights
        return table.shape[1] > 1 and bool(np.isneginf(table[:, -1]).all())

    def automaton(self) -> tuple[NDArray, NDArray[np.float64]]:
        cap = self._log_weights.shape[1] - 1
        if self._pruned:
            return counter(cap - 1, -1), self._log_weights[:, :-1]
        return counter(cap, cap), self._log_weights

    def take(self, rows: NDArray[np.int64], ids: NDArray[np.int64]) -> Cardinalities:
        part = super().take(rows, ids)
        one = len(self._log_weights) == 1
        return part if one else part.replace(_log_weights=self._log_weights[rows])

    @property
    def n_weights(self) -> int:
        return self._log_weights.shape[1]

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.log_weights

    def with_weights(self, weights: NDArray[np.float64]) -> Cardinalities:
        return self.replace(_log_weights=np.ascontiguousarray(weights))

    def end_statistics(self, ends: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.zeros((len(ends), self.n_weights))
        out[:, : ends.shape[1]] = ends
        return out

    def check_numbers(self) -> None:
        shape = self._log_weights.shape
        if len(shape) != 2 or shape[0] not in (1, len(self)) or not 1 <= shape[1] <= self.arity + 1:
            raise ModelError(
                f"factor {int(self._ids[0])}: {len(self)} cardinalities of {self.arity} literals "
                f"need log-weights of counts 0 to {self.arity}, not of shape {shape}"
            )

    def describe(self, put: Callable[[str, NDArray], None]) -> dict[str, Any]:
        put("log_weights", self._log_weights.astype("<f8"))
        rows, counts = self._log_weights.shape
        return super().describe(put) | {"rows": rows, "counts": counts}

    @classmethod
    def restore(
        cls,
        ids: NDArray[np.int64],
        scope: NDArray[np.int32],
        shape: tuple[int, ...],
        get: Callable[[str, str, list[int]], NDArray],
        entry: dict[str, Any],
    ) -> Cardinalities:
        rows, counts = entry.get("rows"), entry.get("counts")
        if type(rows) is not int or rows not in (1, len(ids)):
            raise ModelError(f"{str(rows)[:40]} rows of log-weights for {len(ids)} factors")
        if type(counts) is not int or not 1 <= counts <= len(shape) + 1:
            raise ModelError(f"log-weights of {str(counts)[:40]} counts for {len(shape)} literals")
        literal, flip = restored_literals(ids, shape, get)
        return cls(ids, scope, shape, literal, flip, get("log_weights", "<f8", [rows, counts]))


def count_fields(
    n_variables: int, log_weights: ArrayLike | None, at_most: int | None
) -> Callable[[NDArray[np.int64], int, int], dict[str, Any]]:
    """The log-weights by count of groups; arguments as in ``FactorGraph.add_cardinality``."""
    if (log_weights is None) == (at_most is None):
        raise ModelError("add_cardinality takes log_weights by count, or at_most=k")
    if at_most is not None:
        most = integer(at_most)
        if most is None or most < 0:
            raise ModelError(f"add_cardinality: at_most must be a count, not {told(at_most)}")
        most = min(most, n_variables)
        table = np.append(np.zeros(most + 1), -np.inf)[None]
    else:
        given = real_numbers(log_weights, "add_cardinality: log-weights")  # type: ignore[arg-type]
        if given.ndim == 0:
            raise ModelError(
                "add_cardinality: log-weights must be a list by count, not "
                f"{told(log_weights)}; for a limit write at_most=k"
            )
        table = np.atleast_2d(given.astype(np.float64))
    if table.ndim != 2 or not table.shape[1]:
        raise ModelError(
            f"add_cardinality: log-weights must have shape (C,) or (F, C), not {table.shape}"
        )

    def more(rows: NDArray[np.int64], n: int, arity: int) -> dict[str, Any]:
        if len(table) not in (1, n):
            raise ModelError(f"add_cardinality: {n} scopes but log-weights of shape {table.shape}")
        values = table if len(table) == 1 else table[rows]
        if values.shape[1] > arity + 1 and (log_weights is None or np.ndim(log_weights) == 1):
            values = values[:, : arity + 1]  # counts that cannot be
        return {"_log_weights": np.ascontiguousarray(values)}

    return more
