"""Log-linear features: Psi_i(y) = exp(theta_i * phi(y)) with one truth table phi for the batch.

Riedel, Smith & McCallum (2010), section 2. Weight and truth table are kept apart because a factor's
gain depends on phi: with mu = E[phi] it is log(1 - mu + mu e^theta) - mu theta.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import real_numbers
from minfer.errors import ModelError
from minfer.factors.group import (
    MAX_LOG,
    Entry,
    FactorGroup,
    Floats,
    Get,
    Ints,
    Mask,
    OneWeight,
    Rows,
    interaction,
    read_only,
)

if TYPE_CHECKING:
    from minfer.model.states import Variables

MAX_FEATURE_ARITY = 6

#: Truth tables by name, as `FactorGraph.pairwise(feature=...)` takes them.
TRUTH_TABLES: dict[str, Mask] = {
    "and": np.array([[False, False], [False, True]]),
    "equal": np.array([[True, False], [False, True]]),
    "or": np.array([[False, True], [True, True]]),
    "implies": np.array([[True, True], [False, True]]),
}


def truth_table(feature: str | ArrayLike, arity: int) -> Mask:
    """The truth table of a feature over so many variables, by name or as given."""
    if isinstance(feature, str):
        if feature not in TRUTH_TABLES:
            raise ModelError(f"unknown feature {feature!r}; choose from {', '.join(TRUTH_TABLES)}")
        truth = TRUTH_TABLES[feature]
    else:
        given = real_numbers(feature, "truth tables")
        truth = given.astype(bool)
        if not np.array_equal(truth, given):
            raise ModelError("a truth table has entries 0 and 1 only; use a table for other values")
    if not 1 <= arity <= MAX_FEATURE_ARITY:
        raise ModelError(f"features must have 1 to {MAX_FEATURE_ARITY} variables, not {arity}")
    if truth.shape != (2,) * arity:
        raise ModelError(
            f"a feature over {arity} variables needs a truth table of shape {(2,) * arity}, "
            f"not {truth.shape}"
        )
    return read_only(truth)


@dataclass(frozen=True, eq=False)
class Features(OneWeight):
    """F log-linear features exp(theta * phi) that share one truth table over A binary variables."""

    truth: Mask  # (2,) * A
    _theta: Floats  # (F,)

    kind = "feature"
    per_factor = ("_theta",)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.truth.shape

    def has_structure_of(self, other: FactorGroup) -> bool:
        return (
            super().has_structure_of(other)
            and isinstance(other, Features)
            and (self.truth is other.truth or np.array_equal(self.truth, other.truth))
        )

    def _alike(self) -> Any:
        return Features, self.truth.shape, self.truth.tobytes()

    @property
    def has_tables(self) -> bool:
        return True

    def basis(self) -> Floats:
        return self.truth.reshape(1, -1).astype(np.float64)

    def statistics(self, joint: Floats) -> Floats:
        return (joint @ self.truth.ravel().astype(np.float64))[:, None]

    def without_zeros(self, which: Mask) -> Features:
        return self

    def support(self) -> Features:
        return self.replace(_theta=np.zeros(len(self)))

    def score(self, rows: Ints, states: Ints) -> Floats:
        return self._theta[rows] * self.truth[tuple(states.T)]

    def log_score(self, assignments: Ints) -> Floats:
        cell = np.zeros((len(assignments), len(self)), dtype=np.int64)
        for k in range(self.arity):
            cell = cell * 2 + assignments[:, self._scope[:, k]]
        return self.truth.ravel()[cell] @ self._theta

    def log_tables(self, rows: Rows = slice(None)) -> Floats:
        return self._theta[rows, None] * self.truth.reshape(1, -1)

    def column(self, state: int) -> Floats | None:
        return self._theta if self.truth[state] else None

    def forbids(self) -> Mask:
        return np.zeros(len(self), dtype=bool)

    def magnitude(self) -> Floats:
        return np.abs(self._theta)

    def spread(self) -> Floats:
        flat = self.truth.all() or not self.truth.any()
        return np.zeros(len(self)) if flat else np.abs(self._theta)

    def pair_values(self) -> tuple[Floats, Floats]:
        return self._theta[:, None], self.basis()

    def scores(self, probs: Floats, offsets: Ints, score: str, out: NDArray) -> None:
        if self.arity != 2 or score == "reverse":
            return super().scores(probs, offsets, score, out)
        from minfer.kernels.scores import gains as k

        pairs = binary_pairs(probs, offsets)
        t = self.truth.ravel().astype(np.float64)
        if score == "gain":
            k.pair_gains(self._scope, t, self._theta, pairs, out)
        else:
            k.pair_residuals(self._scope, self._theta, interaction(t), pairs, out)
        return None

    def joint_scores(self, rows: slice, joint: NDArray, score: str, out: NDArray) -> None:
        if score == "residual":
            return super().joint_scores(rows, joint, score, out)
        from minfer.kernels.scores import gains as k

        on = self.truth.ravel().astype(float)
        mu, nu = joint @ on, joint @ (1.0 - on)
        theta = self._theta[rows]
        if score == "reverse":  # the gain of going back: from mu e^theta / Z, by -theta
            up, down = np.exp(np.minimum(theta, 0.0)), np.exp(-np.maximum(theta, 0.0))
            total = mu * up + nu * down
            here = total > 0.0  # else it is certain, and a weight beyond floats moves nothing
            total[~here] = up[~here] = down[~here] = 1.0
            mu, nu, theta = mu * up / total, nu * down / total, -theta
        k.feature_gains(mu, nu, theta, out)
        return None

    def removal_costs(self, joint: Floats, out: Floats) -> None:
        from minfer.kernels.scores import gains as k

        on = self.truth.ravel()
        k.feature_gains(joint[:, on].sum(axis=1), joint[:, ~on].sum(axis=1), -self._theta, out)

    def check_numbers(self) -> None:
        if self._theta.shape != (len(self),) or not (np.abs(self._theta) < MAX_LOG).all():
            raise ModelError("features need one finite weight each (within 1e300)")

    def describe(self, put: Callable[[str, NDArray], None]) -> dict[str, Any]:
        put("truth", self.truth.astype("|u1"))
        put("theta", self._theta.astype("<f8"))
        return {}

    @classmethod
    def _fields(cls, n: int, shape: tuple[int, ...], get: Get, entry: Entry) -> tuple[Any, ...]:
        if not 1 <= len(shape) <= MAX_FEATURE_ARITY or any(s != 2 for s in shape):
            raise ModelError(f"features have 1 to {MAX_FEATURE_ARITY} binary variables")
        truth = get("truth", "|u1", list(shape))
        if truth.max() > 1:
            raise ModelError("a truth table has entries 0 and 1 only")
        return truth.astype(bool), get("theta", "<f8", [n])


def binary_pairs(probs: NDArray, offsets: Ints) -> Floats:
    """P(y_v = 0) and P(y_v = 1), shape (V, 2), read-only; (1, 0) for variables not binary.

    A view where all are binary.
    """
    binary = np.diff(offsets) == 2
    if binary.all():
        return read_only(probs.reshape(-1, 2))
    out = np.tile([1.0, 0.0], (len(offsets) - 1, 1))
    out[binary] = probs[offsets[:-1][binary][:, None] + np.arange(2)]
    return read_only(out)


def feature_group(
    variables: Variables,
    first: int,
    scope: NDArray[np.int32],
    theta: ArrayLike,
    feature: str | ArrayLike,
) -> Features:
    """Features with numbers from ``first`` on, checked; they keep ``scope`` itself."""
    n, arity = scope.shape
    truth = truth_table(feature, arity)
    weights = real_numbers(theta, "add_features: weights")
    theta_ = np.empty(n)
    try:
        theta_[:] = weights
    except ValueError:
        raise ModelError(f"add_features: {n} scopes but weights of shape {weights.shape}") from None
    variables._check_scopes(scope, first)
    if not (np.abs(theta_) < MAX_LOG).all():
        bad = int(np.flatnonzero(~(np.abs(theta_) < MAX_LOG))[0])
        raise ModelError(
            f"factor {first + bad}: weight {theta_[bad]} is not finite (within 1e300); "
            "use a table for a hard constraint, or evidence for a known value"
        )
    if n and variables._n_states.size and not (variables._n_states == 2).all():
        states = variables._n_states[scope]
        if (states != 2).any():
            bad = int(np.flatnonzero((states != 2).any(axis=1))[0])
            raise ModelError(
                f"factor {first + bad}: features are over binary variables, but its scope "
                f"{variables._scope_text(scope[bad])} has {states[bad].tolist()} states; use a "
                "table"
            )
    return Features(np.arange(first, first + n), scope, truth, theta_)
