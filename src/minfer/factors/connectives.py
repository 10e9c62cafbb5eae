"""Clauses, gates, parity checks and counting: each says its automaton and its numbers.

A weighted one has weight w where it is true; where w is infinite it must be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import integer, real_numbers, told
from minfer.errors import ModelError
from minfer.factors.group import Entry, Floats, Get, Ints, Mask, one_or_all, read_only
from minfer.factors.logical import Logical, Weighted


@dataclass(frozen=True, eq=False)
class Clauses(Weighted):
    """F disjunctions of A literals: psi = e^w if some literal is true, else 1.

    The automaton's state is whether a true literal has been seen.
    """

    kind = "clause"

    def automaton(self) -> tuple[NDArray, Floats]:
        return np.array([[0, 1], [1, 1]]), self.end_weights()


@dataclass(frozen=True, eq=False)
class Gates(Weighted):
    """F gates: e^w where the last literal is what the gate says of those before it, else 1.

    The inputs are read as a clause's literals; the output then compares.
    """

    def steps(self, reading: NDArray, compare: NDArray) -> NDArray:
        """One step for all inputs, one for the output."""
        inputs = np.broadcast_to(reading, (max(self.arity - 1, 0), 2, 2))
        return np.concatenate([inputs, np.asarray(compare)[None][: self.arity]])


@dataclass(frozen=True, eq=False)
class Ors(Gates):
    """The output is true if and only if some input is."""

    kind, noun = "or", "or-gate"

    def automaton(self) -> tuple[NDArray, Floats]:
        seen = np.array([[0, 1], [1, 1]])  # a true input
        return self.steps(seen, np.array([[1, 0], [0, 1]])), self.end_weights()


@dataclass(frozen=True, eq=False)
class Ands(Gates):
    """The output is true if and only if all inputs are."""

    kind, noun = "and", "and-gate"

    def automaton(self) -> tuple[NDArray, Floats]:
        missed = np.array([[1, 0], [1, 1]])  # a false input
        return self.steps(missed, np.array([[0, 1], [1, 0]])), self.end_weights()


@dataclass(frozen=True, eq=False)
class Parities(Weighted):
    """F parity checks over A literals: e^w if the number of true ones is even, or ``odd``."""

    _odd: Mask  # (F,)

    kind, noun = "parity", "parity check"
    per_factor = ("_literal", "_theta", "_odd")

    def automaton(self) -> tuple[NDArray, Floats]:
        final = self.end_weights()  # of wrong and right
        return np.array([[0, 1], [1, 0]]), np.where(self._odd[:, None], final, final[:, ::-1])

    def end_statistics(self, ends: Floats) -> Floats:
        return np.where(self._odd, ends[:, 1], ends[:, 0])[:, None]

    def check_numbers(self) -> None:
        super().check_numbers()
        if self._odd.shape != (len(self),) or self._odd.dtype != bool:
            raise ModelError(f"factor {int(self._ids[0])}: a parity is odd or not, by a bool each")

    def describe(self, put: Callable[[str, NDArray], None]) -> dict[str, Any]:
        put("odd", self._odd.astype("|u1"))
        return super().describe(put)

    @classmethod
    def _fields(cls, n: int, shape: tuple[int, ...], get: Get, entry: Entry) -> tuple[Any, ...]:
        odd = get("odd", "|u1", [n])
        if odd.max(initial=0) > 1:
            raise ModelError("parities are 0 (even) or 1 (odd)")
        return *super()._fields(n, shape, get, entry), odd.astype(bool)


def counter(cap: int, last: int) -> NDArray:
    """Steps of a counter over the states 0..cap; a true literal leads from ``cap`` to ``last``."""
    k = np.arange(cap + 1)
    return np.stack([k, np.append(k[1:], last)], axis=1)


@dataclass(frozen=True, eq=False)
class ExactlyOne(Logical):
    """F constraints: exactly one of A literals is true."""

    kind, noun = "exactly-one", "exactly-one constraint"

    def automaton(self) -> tuple[NDArray, Floats]:
        return counter(1, -1), np.array([[-np.inf, 0.0]])


@dataclass(frozen=True, eq=False)
class AtMostOne(Logical):
    """F constraints: at most one of A literals is true."""

    kind, noun = "at-most-one", "at-most-one constraint"

    def automaton(self) -> tuple[NDArray, Floats]:
        return counter(1, -1), np.zeros((1, 2))


@dataclass(frozen=True, eq=False)
class Cardinalities(Logical):
    """F log-weights of the count of true literals; the last one is of all larger counts too."""

    _log_weights: Floats  # (F or 1, C + 1), C <= A

    kind, noun = "cardinality", "cardinality factor"
    per_factor = ("_literal", "_log_weights")

    @property
    def log_weights(self) -> Floats:
        """By count, shape (F, C + 1); the last one is of all larger counts too."""
        return read_only(np.broadcast_to(self._log_weights, (len(self), self.n_weights)))

    def automaton(self) -> tuple[NDArray, Floats]:
        table, cap = self._log_weights, self.n_weights - 1
        if cap and np.isneginf(table[:, -1]).all():  # a count that is forbidden needs no state
            return counter(cap - 1, -1), table[:, :-1]
        return counter(cap, cap), table

    @property
    def n_weights(self) -> int:
        return self._log_weights.shape[1]

    @property
    def weights(self) -> Floats:
        return self.log_weights

    def with_weights(self, weights: Floats) -> Cardinalities:
        return self.replace(_log_weights=np.ascontiguousarray(weights))

    def end_statistics(self, ends: Floats) -> Floats:
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
    def _fields(cls, n: int, shape: tuple[int, ...], get: Get, entry: Entry) -> tuple[Any, ...]:
        rows = one_or_all(entry.get("rows"), n, "rows of log-weights")
        counts = entry.get("counts")
        if type(counts) is not int or not 1 <= counts <= len(shape) + 1:
            raise ModelError(f"log-weights of {str(counts)[:40]} counts for {len(shape)} literals")
        literals = super()._fields(n, shape, get, entry)
        return *literals, get("log_weights", "<f8", [rows, counts])


def count_fields(
    n_variables: int, log_weights: ArrayLike | None, at_most: int | None
) -> Callable[[Ints, int, int], dict[str, Any]]:
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

    def more(rows: Ints, n: int, arity: int) -> dict[str, Any]:
        if len(table) not in (1, n):
            raise ModelError(f"add_cardinality: {n} scopes but log-weights of shape {table.shape}")
        values = table if len(table) == 1 else table[rows]
        if values.shape[1] > arity + 1 and (log_weights is None or np.ndim(log_weights) == 1):
            values = values[:, : arity + 1]  # counts that cannot be
        return {"_log_weights": np.ascontiguousarray(values)}

    return more
