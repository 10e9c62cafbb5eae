"""Factors that compute their own messages, for scopes far too large for a table.

"These arcs form a tree" is one. The mathematics is an object (:class:`GlobalFactor`), written in
Python by anybody, that serves all factors of its group: belief propagation asks it once per sweep,
for all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ModelError, RefusedError
from minfer.factors.group import FactorGroup, Floats, Ints, Mask

_STAND_IN = -1e6  # for minus infinity, where a global factor cannot bear it


@runtime_checkable
class GlobalFactor(Protocol):
    """The mathematics of factors over many variables. Must be immutable and picklable.

    Values of a variable's states lie one after the other: for variables with S_1, ..., S_A states a
    factor's row has S_1 + ... + S_A entries, in the order of its scope.

    A factor may also have ``max_messages(incoming, out)``, the same with maxima in place of sums:
    then :func:`minfer.mpe` can find best assignments where no clique tree fits.
    """

    def messages(self, incoming: Floats, out: Floats) -> Floats:
        """Fill ``out`` with the log-messages of n factors at once; return their log-partitions.

        Each row of ``incoming`` (n, S_1 + ... + S_A) is one factor's. With q its incoming
        log-messages (each variable's scaled so that its largest entry is 0; minus infinity is
        legal, and comes with evidence: a factor that answers NaN to it is asked again with -1e6
        in its place),
        ``out[i, s] = log sum_{x: x_i = s} psi(x) prod_{j != i} q_j(x_j)``
        and the result (n,) is ``log sum_x psi(x) prod_j q_j(x_j)``.
        """
        ...

    def score(self, assignments: Ints) -> Floats:
        """log psi(x) at n assignments (n, A) of the scope, (n,); minus infinity if forbidden."""
        ...


@dataclass(frozen=True, eq=False)
class Globals(FactorGroup):
    """F factors of one shape that one :class:`GlobalFactor` answers for."""

    shape: tuple[int, ...]  # (S_1, ..., S_A)
    factor: GlobalFactor

    kind, noun = "global", "global factor"
    form = "messages"

    def score(self, rows: Ints, states: Ints) -> Floats:
        values = np.asarray(self.factor.score(states))
        if values.shape != (len(states),):
            raise ModelError(
                f"global factor {int(self._ids[0])} ({type(self.factor).__name__}): score() of "
                f"{len(states)} assignments has shape {values.shape}, not ({len(states)},)"
            )
        return values.astype(np.float64)

    def forbids(self) -> Mask:
        """All may, for all that is known of them."""
        return np.ones(len(self), dtype=bool)

    def magnitude(self) -> Floats:
        return np.zeros(len(self))

    def sliced(self, touched: Mask, fixed: NDArray[np.int32]) -> list[FactorGroup]:
        return [self]  # a global factor sees a known variable as an incoming message

    @property
    def has_maxima(self) -> bool:
        return callable(getattr(self.factor, "max_messages", None))

    def messages(self, rows: Ints, incoming: Floats, out: Floats, best: bool = False) -> Floats:
        """Asked again with -1e6 where minus infinity came in and NaN came out.

        A formula that takes a message off a sum meets (-inf) - (-inf) there. e to -1e6 is 0, and
        1e6 costs a number six of its sixteen digits.
        """
        if best and not self.has_maxima:
            raise RefusedError(
                f"global factor {int(self._ids[0])} ({type(self.factor).__name__}) gives sums "
                "only, no maxima: for the best assignment of such a model it needs a method "
                "max_messages(incoming, out) that answers as messages does, by maxima"
            )
        log_z = self._ask(rows, incoming.copy(), out, best)
        if log_z.max(initial=-np.inf) < np.inf and out.max(initial=-np.inf) < np.inf:
            return log_z  # no NaN, which would be the largest, and nothing infinite
        hard = incoming == -np.inf
        again = (np.isnan(log_z) | np.isnan(out).any(axis=1)) & hard.any(axis=1)
        if again.any():
            more = np.empty((int(again.sum()), out.shape[1]))
            value = self._ask(
                rows[again], np.where(hard[again], _STAND_IN, incoming[again]), more, best
            )
            log_z[again] = np.where(value < _STAND_IN / 2, -np.inf, value)
            out[again] = np.where(more < _STAND_IN / 2, -np.inf, more)
        bad = ~(log_z < np.inf) | ~(out < np.inf).all(axis=1)
        if bad.any():
            number = int(self._ids[rows[np.flatnonzero(bad)[0]]])
            raise ModelError(
                f"global factor {number} ({type(self.factor).__name__}) gave messages or a log "
                "partition that are NaN, infinite or missing; they must be finite or minus infinity"
            )
        return log_z

    def _ask(self, rows: NDArray, incoming: NDArray, out: NDArray, best: bool) -> Floats:
        out[:] = np.nan
        ask: Any = getattr(self.factor, "max_messages" if best else "messages")
        with np.errstate(invalid="ignore"):
            answer = ask(incoming, out)
        try:
            log_z = np.asarray(answer, dtype=np.float64)
        except (TypeError, ValueError):
            log_z = np.full(len(rows), np.nan)
        if log_z.shape != (len(rows),):
            raise ModelError(
                f"global factor {int(self._ids[rows[0]])} ({type(self.factor).__name__}): "
                f"messages() of {len(rows)} factors returned log-partitions of shape "
                f"{log_z.shape}, not ({len(rows)},)"
            )
        return log_z.copy()
