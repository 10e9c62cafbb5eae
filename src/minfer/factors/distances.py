"""Pairs of variables with the same labels, whose log psi depends on how far apart the labels are.

    log psi_f(x, y) = weight_f * profile(min(|x - y|, T - 1))

Potts (a weight where two labels agree), truncated linear and truncated quadratic smoothness are of
this form, and any other function of the distance |x - y| by its T *taps*; from distance T - 1 on it
is constant. A tap of minus infinity forbids its distance whatever the weight is.

To solvers these are tables, of which a few numbers say everything (:meth:`Distances.label_taps`):
belief propagation computes their messages in O(K) or O(K T) instead of O(K^2)
(:mod:`minfer.kernels.messages.labels`), mean field and Gibbs read taps instead of cells; whoever
needs a table can have one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_flag, per_factor, real_numbers, scope_array, told
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
    Tables,
    read_only,
)

if TYPE_CHECKING:
    from minfer.model.states import Variables

_AT_ONCE = 256  # tables compared at a time


@dataclass(frozen=True, eq=False)
class Distances(OneWeight):
    """F factors over two variables of K states each, log psi = weight * profile(|x - y|).

    ``weight`` has one number per factor, or one for all; ``profile`` one row per factor, or one for
    all, of T <= K numbers by distance, the last of all larger ones too.
    """

    shape: tuple[int, ...]  # (K, K)
    _theta: Floats  # (F,) or (1,)
    _profile: Floats  # (F, T) or (1, T)

    kind, noun = "label-distance", "label distance"
    per_factor = ("_theta", "_profile")

    @property
    def n_labels(self) -> int:
        """K, the states of each variable."""
        return self.shape[0]

    @property
    def profile(self) -> Floats:
        """What the weights multiply, by distance; the last of larger ones too: (F, T) or (1, T)."""
        return read_only(self._profile)

    @property
    def shared(self) -> bool:
        return len(self._theta) == 1 and len(self._profile) == 1 and len(self) != 1

    @property
    def has_tables(self) -> bool:
        return True

    def has_structure_of(self, other: FactorGroup) -> bool:
        return (
            super().has_structure_of(other)
            and isinstance(other, Distances)
            and self._profile.shape[1] == other._profile.shape[1]
        )

    def label_taps(self) -> Floats:
        with np.errstate(invalid="ignore", over="ignore"):
            taps = self._theta[:, None] * self._profile
        return np.where(self._profile == -np.inf, -np.inf, taps)

    def _taps(self, rows: Ints) -> Floats:
        """Log psi by distance of some rows, (n, T)."""
        taps = self.label_taps()
        return taps[rows if len(taps) == len(self) else np.zeros(len(rows), np.int64)]

    def _place(self, apart: NDArray) -> Ints:
        """Which tap a difference of labels reads."""
        return np.minimum(np.abs(apart), self._profile.shape[1] - 1)

    @property
    def _cells(self) -> Ints:
        """Which tap each cell of a table is, (K * K,)."""
        label = np.arange(self.n_labels)
        return self._place(label[:, None] - label).ravel()

    def basis(self) -> Floats | None:
        if len(self._profile) > 1 or not np.isfinite(self._profile).all():
            return None
        return np.ascontiguousarray(self._profile[:, self._cells])

    def statistics(self, joint: Floats) -> Floats:
        phi = np.where(self._profile > -np.inf, self._profile, 0.0)[:, self._cells]
        if len(phi) == 1:
            return (joint @ phi[0])[:, None]
        return (joint * phi).sum(axis=1)[:, None]

    def distance_statistics(self, mass: Floats) -> Floats:
        """The same from the distributions of the distance (F, T): see :meth:`statistics`."""
        phi = np.where(self._profile > -np.inf, self._profile, 0.0)
        return (mass * phi).sum(axis=1)[:, None]

    def without_zeros(self, which: Mask) -> Distances:
        if not (self.forbids() & which).any():
            return self
        zero = np.isneginf(self._profile) & which[:, None]
        return self.replace(_profile=np.where(zero, 0.0, self._profile))

    def support(self) -> Distances:
        profile = np.where(self._profile > -np.inf, 0.0, -np.inf)
        return self.replace(_theta=np.ones(1), _profile=profile)

    def score(self, rows: Ints, states: Ints) -> Floats:
        taps, place = self.label_taps(), self._place(states[:, 0] - states[:, 1])
        return taps[rows if len(taps) == len(self) else 0, place]

    def log_tables(self, rows: Rows = slice(None)) -> Floats:
        return np.ascontiguousarray(self._taps(np.arange(len(self))[rows])[:, self._cells])

    def stored_tables(self) -> Floats:
        return np.ascontiguousarray(self.label_taps()[:, self._cells])

    def _values(self) -> Floats:
        return self.label_taps()

    def pair_values(self) -> tuple[Floats, Floats]:
        basis = self.basis()
        if basis is None or not np.isin(basis, (0.0, 1.0)).all():
            return super().pair_values()
        return np.array(self.theta[:, None]), basis

    def messages(self, rows: Ints, incoming: Floats, out: Floats, best: bool = False) -> Floats:
        from minfer.kernels.messages import labels

        taps = np.require(self.label_taps(), requirements=["C", "W"])
        which = np.asarray(rows, dtype=np.int64) if len(taps) > 1 else np.zeros(len(rows), np.int64)
        log_z = np.empty(len(rows))
        given = np.require(incoming, np.float64, ["C", "W"])
        labels.all_messages(taps, which, given, out, log_z, best)
        return log_z

    def _slice(self, rows: Ints, known: Mask, states: NDArray[np.int32]) -> list[FactorGroup]:
        taps = self._taps(rows)
        shape = self.shape[: int((~known).sum())]
        apart = states[:, :1] - (states[:, 1:] if known.all() else np.arange(self.n_labels))
        entries = np.take_along_axis(taps, self._place(apart), axis=1)
        scope = np.ascontiguousarray(self._scope[rows][:, ~known])
        return [Tables(self._ids[rows], scope, shape, np.ascontiguousarray(entries))]

    def scores(self, probs: Floats, offsets: Ints, score: str, out: NDArray) -> None:
        """A gain or reverse divergence is one of the distance: log psi knows nothing else."""
        if score == "residual" or self.n_labels < 2:
            return super().scores(probs, offsets, score, out)
        from minfer.kernels.messages import labels
        from minfer.kernels.scores import gains

        taps = np.require(self.label_taps(), requirements=["C", "W"])
        mass = np.empty((len(self), taps.shape[1]))
        labels.distance_masses(self._scope, self.n_labels, probs, offsets, mass)
        (gains.table_gains if score == "gain" else gains.table_reverse_gains)(mass, taps, out)
        return None

    def check_numbers(self) -> None:
        n, taps = len(self), self._profile.shape[1] if self._profile.ndim == 2 else 0
        if self.arity != 2 or self.shape[0] != self.shape[1]:
            raise ModelError(
                f"factor {int(self._ids[0])}: label distances need two variables with equally "
                f"many states, not {list(self.shape)}; use a table"
            )
        if len(self._profile) not in (1, n) or not 1 <= taps <= self.n_labels:
            raise ModelError(
                f"factor {int(self._ids[0])}: {n} label distances of {self.n_labels} labels need "
                f"1 to {self.n_labels} numbers by distance, not of shape {self._profile.shape}"
            )
        good = (np.abs(self._profile) < MAX_LOG) | (self._profile == -np.inf)
        if not good.all():
            row = int(np.flatnonzero(~good.all(axis=1))[0])
            bad = float(self._profile[row][~good[row]][0])
            raise ModelError(
                f"factor {int(self._ids[row])}: a number by distance is {bad}; they must be finite "
                "(within 1e300) or minus infinity (a distance that is forbidden)"
            )
        if self._theta.shape not in ((1,), (n,)):
            raise ModelError(f"{n} label distances but weights of shape {self._theta.shape}")
        taps_ = self.label_taps()
        good = (np.abs(taps_) < MAX_LOG) | (self._profile == -np.inf)
        wrong = ~(np.abs(self._theta) < MAX_LOG) | ~good.all(axis=1)
        if wrong.any():
            row = int(np.flatnonzero(np.broadcast_to(wrong, (n,)))[0])
            raise ModelError(
                f"factor {int(self._ids[row])}: the weight of {self._a_noun} must be finite, and "
                f"within 1e300 when multiplied, not {float(self.theta[row])}"
            )

    def describe(self, put: Callable[[str, NDArray], None]) -> dict[str, Any]:
        put("weight", self._theta.astype("<f8"))
        put("profile", self._profile.astype("<f8"))
        rows, taps = self._profile.shape
        return {"weights": len(self._theta), "rows": rows, "taps": taps}

    @classmethod
    def _fields(cls, n: int, shape: tuple[int, ...], get: Get, entry: Entry) -> tuple[Any, ...]:
        weights, rows, taps = (entry.get(name) for name in ("weights", "rows", "taps"))
        if type(weights) is not int or type(rows) is not int or type(taps) is not int:
            raise ModelError("label distances need counts of weights, rows and taps")
        if len(shape) != 2:
            raise ModelError(f"label distances need two variables, not {len(shape)}")
        if weights not in (1, n) or rows not in (1, n) or not 1 <= taps <= shape[0]:
            raise ModelError(
                f"{weights} weights and {rows} rows of {taps} taps for {n} label distances "
                f"of {shape[0]} labels"
            )
        return shape, get("weight", "<f8", [weights]), get("profile", "<f8", [rows, taps])


def distances(
    ids: Ints, scope: NDArray[np.int32], shape: Sequence[int], weight: Floats, profile: Floats
) -> list[Distances]:
    """Groups of label distances in the least room, in the order of their numbers where it matters.

    ``weight`` (F,) may be infinite: then only the distances with the largest (minus infinity:
    smallest) number of the profile (F or 1, T) are allowed. Equal weights are kept once, taps that
    nothing tells apart from those beyond them are dropped.
    """
    profile = profile[:, : shape[0]]
    parts = []
    for kind in (0.0, 1.0, -1.0):
        rows = np.flatnonzero(np.where(np.isinf(weight), np.sign(weight), 0.0) == kind)
        if not len(rows):
            continue
        mine, w = profile[rows] if len(profile) > 1 else profile, weight[rows]
        if kind:
            finite = mine > -np.inf
            top = (kind * np.where(finite, mine, -kind * np.inf)).max(axis=1, keepdims=True)
            mine = np.where(finite & (kind * mine == top), 0.0, -np.inf)
            w = np.ones(1)
        if len(w) > 1 and (w == w[0]).all():
            w = w[:1]
        if len(mine) > 1 and (mine == mine[:1]).all():
            mine = mine[:1]
        last = mine.shape[1] - 1
        while last and (mine[:, last] == mine[:, last - 1]).all():
            last -= 1
        numbers = np.array(mine[:, : last + 1], dtype=np.float64, order="C")
        sizes = tuple(int(size) for size in shape)
        parts.append(
            Distances(ids[rows], scope[rows], sizes, np.array(w, dtype=np.float64), numbers)
        )
    return parts


def recognised(group: FactorGroup, tolerance: float) -> list[FactorGroup]:
    """The same factors, those that are functions of \\|x - y\\| with few taps as label distances.

    Few: no more than half as many as there are labels, or falling linearly up to the last. Cells of
    one distance may differ by ``tolerance`` times 1 + \\|log psi\\|; the first row is believed.
    """
    k = group.shape[0] if group.arity == 2 else 0
    if group.kind != "table" or group.shape != (k, k) or k < 3:
        return [group]
    stored = group.stored_tables().reshape(-1, k, k)
    taps = stored[:, 0, :]
    label = np.arange(k)
    place = np.abs(label[:, None] - label)
    is_one = np.ones(len(stored), dtype=bool)
    for lo in range(0, len(stored), _AT_ONCE):
        some = slice(lo, lo + _AT_ONCE)
        is_one[some] = _same(stored[some], taps[some][:, place], tolerance).all(axis=(1, 2))
    beyond = _same(taps, taps[:, -1:], tolerance)
    n_taps = k - np.cumprod(beyond[:, ::-1], axis=1).sum(axis=1) + 1
    inside = label < n_taps[:, None] - 1
    with np.errstate(invalid="ignore"):
        line = taps[:, :1] + (taps[:, 1:2] - taps[:, :1]) * label
        linear = (_same(taps, line, tolerance) | ~inside).all(axis=1)
    is_one &= (n_taps - 1 <= k // 2) | linear
    if not is_one.any():
        return [group]
    every = np.broadcast_to(np.where(is_one, n_taps, 0), (len(group),))
    parts: list[FactorGroup] = []
    for t in np.unique(every).tolist():
        rows = np.flatnonzero(every == t)
        if not t:
            parts.append(group.take(rows, group._ids[rows]))
            continue
        mine = taps[:, :t] if len(taps) == 1 else taps[rows][:, :t]
        weight, profile = _factored(mine)
        parts += distances(
            group._ids[rows], group._scope[rows], group.shape, np.resize(weight, len(rows)), profile
        )
    return parts


def _same(a: NDArray, b: NDArray, tolerance: float) -> Mask:
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= tolerance * (1.0 + np.abs(b))
        return (a == b) | (near & np.isfinite(a) & np.isfinite(b))


def _factored(taps: Floats) -> tuple[Floats, Floats]:
    """Weights (n,) and one profile that taps (n, T) are products of to the last bit, or 1 and they.

    The profile is 1 for labels that agree (Potts), or -1 where the distance is 1.
    """
    if np.isfinite(taps).all():
        for unit, at in ((1.0, 0), (-1.0, 1)):
            if at < taps.shape[1]:
                weight = unit * taps[:, at]
                if (weight != 0.0).all():
                    profile = taps[:1] / weight[:1, None]
                    if np.array_equal(weight[:, None] * profile, taps):
                        return weight, profile
    return np.ones(1), taps


def distance_groups(
    variables: Variables,
    first: int,
    scope: ArrayLike,
    weights: ArrayLike,
    profile: Callable[[int], Any],
    who: str,
) -> list[Distances]:
    """Pairs of labels with numbers from ``first`` on, checked.

    ``profile(d)`` gives numbers by distance up to d, or beyond; ``who`` is for messages.
    """
    scope_ = scope_array(scope)
    n = len(scope_)
    given = real_numbers(weights, f"{who}: weights")
    if given.dtype == bool:
        raise ModelError(f"{who}: a weight must be a number, not {told(weights)}")
    theta = per_factor(given, n, f"{who}: weights", float)
    if scope_.shape[1] != 2:
        raise ModelError(f"{who}: scopes must be pairs of variables (F, 2), not {scope_.shape}")
    variables._check_scopes(scope_, first)
    labels = variables._n_states[scope_]
    if (labels[:, 0] != labels[:, 1]).any():
        bad = int(np.flatnonzero(labels[:, 0] != labels[:, 1])[0])
        raise ModelError(
            f"factor {first + bad}: its variables {variables._scope_text(scope_[bad])} "
            f"have {labels[bad].tolist()} states, and a distance of labels needs equally many; "
            "use a table"
        )
    if np.isnan(theta).any():
        bad = int(np.flatnonzero(np.isnan(theta))[0])
        raise ModelError(f"factor {first + bad}: its weight is NaN")
    groups: list[Distances] = []
    for k in np.unique(labels[:, 0]).tolist():
        rows = np.flatnonzero(labels[:, 0] == k)
        table = np.atleast_2d(np.asarray(profile(k - 1), dtype=np.float64))
        if len(table) > 1:
            if len(table) != n:
                raise ModelError(f"{who}: {n} scopes but log-weights of shape {table.shape}")
            table = table[rows]
        wrong = ~((np.abs(table) < MAX_LOG) | (table == -np.inf))
        if wrong.any():
            bad = rows[int(np.flatnonzero(wrong.any(axis=1))[0])] if len(table) > 1 else rows[0]
            raise ModelError(
                f"factor {first + int(bad)}: {who}: numbers by distance must be "
                f"finite (within 1e300) or minus infinity, not {float(table[wrong][0])}"
            )
        groups += distances(first + rows, scope_[rows], (k, k), theta[rows], table)
    for g in groups:
        g.check(variables._n_states)
    return groups


def truncated(power: int, truncation: float, hard: bool, who: str) -> Callable[[int], NDArray]:
    """A profile: minus the distance to a power, beyond the truncation as there, or forbidden."""
    number = real_numbers(truncation, f"{who}: a truncation")
    if number.ndim or number.dtype == bool or not float(number) > 0.0:
        raise ModelError(
            f"{who}: the truncation must be a distance of labels above 0, or infinity, not "
            f"{told(truncation)}"
        )
    check_flag(f"{who}: hard", hard)
    last = float(number)
    end = -np.inf if hard else -(min(last, 1e150) ** power)
    return lambda far: np.where(np.arange(far + 1) > last, end, -(np.arange(far + 1.0) ** power))
