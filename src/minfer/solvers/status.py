"""How an answer came about, and what its log Z is to the true one."""

from __future__ import annotations

from enum import Enum

#: What the note of an answer begins with whose numbers did not hold.
LOST_RANGE = "lost its range"


class Status(Enum):
    """How an answer came about. The value is the word shown; :attr:`Marginals.advice` says more."""

    EXACT = "exact"
    CONVERGED = "converged"
    MAX_ITERS = "not converged"
    TIME_LIMIT = "time limit"
    SAMPLED = "sampled"
    GIVEN = "given"  # by someone else: nothing here knows how

    @property
    def ok(self) -> bool:
        """Whether the solver finished what it set out to do; assumed for given answers."""
        return self in (Status.EXACT, Status.CONVERGED, Status.SAMPLED, Status.GIVEN)


class LogZ(Enum):
    """What a reported log Z is to the true one. ``lower`` and ``upper`` are guarantees."""

    EXACT = "exact"
    LOWER = "lower bound"
    UPPER = "upper bound"
    ESTIMATE = "estimate"
    NONE = "none"
