"""Lazy candidates: factors that cannot reach the threshold are never built, scored or weighted.

A *factor source* describes candidates exp(theta y_a y_b) by templates. Under product marginals the
score of such a conjunction depends on its weight and on one product over its two variables:

    gain      g(mu_a mu_b, theta)  (:mod:`minfer.reduction.lazy`)
    residual  1/2 theta^2 v_a v_b,                                         v = mu (1 - mu)

Both grow with |theta| from 0 on, so a template's lowest and highest weight decide how large the
product must be (:func:`~minfer.reduction.lazy.least_mean`, :func:`least_variance`). A source lists
the pairs beyond that without looking at the others, and :func:`scan` keeps the same factors as a
scan of all of them.

What is ignored unseen is known as an interval: each such score is below the ceiling, and their sum
is at most sum_t c_t (sum of all products - sum of those seen), where c_t bounds a score per unit of
product: e^theta - 1 - theta for the gain, 1/2 theta^2 for the residual. What the unseen factors do
to each marginal is estimated, not bounded: :func:`unseen_shifts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_flag, check_graph, check_type, real_numbers, told
from minfer.basics.words import counted
from minfer.errors import ModelError, SettingsError
from minfer.factors.features import TRUTH_TABLES, Features
from minfer.factors.group import read_only
from minfer.reduction.lazy import CHUNK, Ranks, joined, least_mean

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.reduction.objectives import SelectionObjective

#: How far, relatively, thresholds are lowered so that rounding never hides a factor.
_MARGIN = 1e-9
_MOST_THETA = 300.0  # beyond, e^theta squared is not a number


@runtime_checkable
class FactorSource(Protocol):
    """Candidate factors exp(theta y_a y_b) over pairs of binary variables, numbered 0..n-1.

    A source may also have a method ``partner_sums(template, key) -> (V,)``: for each variable the
    sum of key over the other variables of its factors (:class:`JoinTemplates` shows one). Error
    estimates need these sums and list all factors of a source that does not offer them.
    """

    @property
    def n_factors(self) -> int: ...

    @property
    def theta_bounds(self) -> NDArray[np.float64]:
        """Lowest and highest weight of each template, shape (T, 2)."""
        ...

    def candidates(
        self, template: int, key: NDArray[np.float64], least: float
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Scopes (n, 2) and numbers (n,) of all its factors (a, b) with key[a] * key[b] >= least.

        ``key`` (V,) is not negative. A few more may be returned, never fewer, in any order.
        """
        ...

    def weights(
        self, template: int, scope: NDArray[np.int32], ids: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """theta of factors of one template, shape (n,)."""
        ...

    def total(self, template: int, key: NDArray[np.float64]) -> float:
        """Sum of key[a] * key[b] over all its factors, rounded up; infinite if not known."""
        ...


def least_variance(gamma: float, theta_low: float, theta_high: float) -> float:
    """Smallest v_a v_b of a conjunction whose residual can reach gamma; infinite if none can."""
    if gamma <= 0:
        return 0.0
    size = max(theta_low**2, theta_high**2)
    least = 2 * gamma / size if size > 0 else math.inf
    return least if least <= 1 / 16 else math.inf


@dataclass(frozen=True, eq=False)
class Join:
    """A template that pairs variables by a shared value.

    Its factors are all ordered pairs (a, b), a != b, with ``left[a] == right[b]``.

    Attributes
    ----------
    left, right : int arrays (V,)
        The value under which a variable takes part on each side; negative: it does not.
    theta_low, theta_high : float
        Bounds of the weights. Tight ones pay: loose ones let more candidates through.
    symmetric : bool
        Only pairs with a < b; left and right must be equal.
    """

    left: ArrayLike
    right: ArrayLike
    theta_low: float
    theta_high: float
    symmetric: bool = False


class _Joined(NamedTuple):
    """A join, members by value: pair (a, b) has the number row[a] + b, one less past own[a]."""

    left: NDArray[np.int32]  # variables, one value after the other, increasing within one
    of_left: NDArray[np.int32]  # their values, numbered
    right: NDArray[np.int32]
    of_right: NDArray[np.int32]
    n_values: int
    own: NDArray[np.int64]  # the place of a left member in ``right``, past its end if not there
    row: NDArray[np.int64]
    start: NDArray[np.int64]  # the places in ``right`` that share a left member's value
    stop: NDArray[np.int64]
    symmetric: bool

    @property
    def every(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places of all pairs, by a and b."""
        n = self.stop - self.start
        a = np.repeat(np.arange(len(n)), n)
        b = np.arange(len(a)) - np.repeat(np.cumsum(n) - self.stop, n)
        good = b > self.own[a] if self.symmetric else b != self.own[a]
        return a[good], b[good]

    def sums(self, key: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
        """Of each value the sum of key over both sides."""
        left = np.bincount(self.of_left, key[self.left], self.n_values)
        return left, np.bincount(self.of_right, key[self.right], self.n_values)

    @property
    def with_itself(self) -> NDArray[np.int32]:
        """Variables that are on both sides of a value."""
        return self.left[self.own < len(self.right)]


class JoinTemplates:
    """A factor source made of joins.

    Factors are numbered template after template; within one by the joined value, then by a, then
    by b. Candidates come in this order.

    Parameters
    ----------
    joins : sequence of Join
    weights : function (template, scope (n, 2)) -> theta (n,)
        Asked only for factors that may matter, many at a time.

    Examples
    --------
    Arcs (head, modifier) of three words and a root, and a weight for each chain of two arcs:

    >>> import numpy as np
    >>> from minfer.reduction.sources import Join, JoinTemplates
    >>> head, modifier = np.array([(h, m) for h in range(4) for m in (1, 2, 3) if h != m]).T
    >>> grandparents = Join(left=modifier, right=head, theta_low=0.5, theta_high=0.5)
    >>> source = JoinTemplates([grandparents], lambda template, scope: np.full(len(scope), 0.5))
    >>> source
    JoinTemplates(1 template, 18 factors over 9 variables)
    """

    def __init__(
        self, joins: Sequence[Join], weights: Callable[[int, NDArray[np.int32]], ArrayLike]
    ) -> None:
        if not np.iterable(joins) or not all(isinstance(j, Join) for j in joins):
            raise SettingsError(f"joins must be a list of Join, not {told(joins)}")
        if not callable(weights):
            raise SettingsError(
                f"weights must be a function (template, scope), not {told(weights)}"
            )
        self._weights = weights
        self._joined: list[_Joined] = []
        self._first = [0]  # number of each template's first factor
        self.n_variables = real_numbers(joins[0].left, "template 0: left").size if joins else 0
        for t, join in enumerate(joins):
            joined, n = _joined(join, t, self.n_variables, self._first[-1])
            self._joined.append(joined)
            self._first.append(self._first[-1] + n)
        bounds = [(float(j.theta_low), float(j.theta_high)) for j in joins]
        self._bounds = np.array(bounds, dtype=np.float64).reshape(-1, 2)

    @property
    def n_factors(self) -> int:
        return self._first[-1]

    @property
    def theta_bounds(self) -> NDArray[np.float64]:
        return self._bounds

    def candidates(
        self, template: int, key: NDArray[np.float64], least: float
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Pairs of a template with key[a] * key[b] >= least, by number: scope (n, 2), ids (n,)."""
        j, key = self._joined[template], self._checked(key)
        a, b = j.every if least <= 0 else self._ranked(j, key, float(least))
        return np.stack([j.left[a], j.right[b]], axis=1), j.row[a] + b - (b > j.own[a])

    def _ranked(
        self, j: _Joined, key: NDArray[np.float64], least: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places of the pairs with key[a] * key[b] >= least, by a and b."""
        from minfer.kernels.scores.ranked import NO_LOOKUPS, OPS, Sides, Tests

        q, likely = key[j.left], key[j.right]
        some = np.flatnonzero(q.max(initial=0.0) * likely >= least).astype(np.int32)
        ranks = Ranks.of(likely[some], j.of_right[some], j.n_values)
        right = some[ranks.rows]
        near = np.flatnonzero(q * ranks.best[j.of_left] >= least).astype(np.int32)
        op = OPS.index("<" if j.symmetric else "<>")
        own = j.own[near].astype(np.int32)
        tests = Tests(np.array([op]), own[None], right[None], np.zeros((0, 2), np.int64))
        sides = Sides(j.of_left[near], near, q[near], ranks.start, right, ranks.q, np.arange(2))
        found = joined(
            sides, q, (least, math.inf), tests, NO_LOOKUPS, np.empty((CHUNK, 2), np.int32)
        )
        codes = [np.sort(places[:, 0].astype(np.int64) << 32 | places[:, 1]) for places in found]
        # rows a follow each other: all that is left to do is where a part ends within one
        code = np.sort(np.concatenate([np.zeros(0, np.int64), *codes]), kind="stable")
        return code >> 32, code & 0xFFFFFFFF

    def weights(
        self, template: int, scope: NDArray[np.int32], ids: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """theta of some factors of a template, shape (n,), from the user's function."""
        return np.asarray(self._weights(template, scope), dtype=np.float64)

    def total(self, template: int, key: NDArray[np.float64]) -> float:
        """Sum of key[a] * key[b] over all factors of a template, rounded up."""
        j, key = self._joined[template], self._checked(key)
        left, right = j.sums(key)
        everything = float(left @ right)
        pairs = everything - float((key[j.with_itself] ** 2).sum())
        return pairs / (2 if j.symmetric else 1) + 1e-12 * everything

    def partner_sums(self, template: int, key: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each variable the sum of key over its partners in a template, shape (V,)."""
        j, key = self._joined[template], self._checked(key)
        left, right = j.sums(key)
        out = np.zeros(self.n_variables)
        out[j.left] += right[j.of_left]
        out[j.right] += left[j.of_right]
        out[j.with_itself] -= 2 * key[j.with_itself]
        return out / 2 if j.symmetric else out

    def _checked(self, key: NDArray[np.float64]) -> NDArray[np.float64]:
        if key.shape != (self.n_variables,):
            raise ModelError(
                f"the source is over {self.n_variables} variables, not {key.shape[0]}: "
                "it belongs to another model"
            )
        return key

    def __repr__(self) -> str:
        n = len(self._joined)
        return (
            f"JoinTemplates({counted(n, 'template')}, {counted(self.n_factors, 'factor')} over "
            f"{counted(self.n_variables, 'variable')})"
        )


def _joined(join: Join, template: int, n_variables: int, first: int) -> tuple[_Joined, int]:
    """Members by value, and the numbers of their factors from ``first`` on; how many there are."""
    where = f"template {template}"
    on_left = real_numbers(join.left, f"{where}: left")
    on_right = real_numbers(join.right, f"{where}: right")
    for side in (on_left, on_right):
        if side.shape != (n_variables,) or (side.size and side.dtype.kind not in "iu"):
            raise ModelError(
                f"{where}: left and right must be int arrays of shape ({n_variables},), "
                f"not {side.dtype} of shape {side.shape}"
            )
    for name in ("theta_low", "theta_high"):
        number = (int, float, np.integer, np.floating)
        check_type(getattr(join, name), number, f"{where}: {name} must be a number", ModelError)
    check_flag(f"{where}: symmetric", join.symmetric)
    low, high = float(join.theta_low), float(join.theta_high)
    if not -math.inf < low <= high < math.inf:
        raise ModelError(f"{where}: [{low}, {high}] is not a finite interval of weights")
    if join.symmetric and not np.array_equal(on_left, on_right):
        raise ModelError(f"{where}: a symmetric join needs the same left and right")
    shared = np.intersect1d(on_left, on_right)
    shared = shared[shared >= 0]
    left, of_left = _by_value(on_left, shared)
    right, of_right = _by_value(on_right, shared)
    place = np.full(n_variables, len(right))
    place[right] = np.arange(len(right))
    own = np.where(on_left[left] == on_right[left], place[left], len(right))
    start, stop = (np.searchsorted(of_right, of_left, side) for side in ("left", "right"))
    if join.symmetric:
        n_pairs, shift = stop - own - 1, own
    else:
        n_pairs, shift = stop - start - (own < len(right)), start
    ends = np.cumsum(n_pairs)
    row = first + ends - n_pairs - shift
    members = left, of_left, right, of_right, len(shared)
    return _Joined(*members, own, row, start, stop, bool(join.symmetric)), int(n_pairs.sum())


def _by_value(
    side: NDArray, values: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Variables with one of these values, one value after the other, and the values' places."""
    members = np.flatnonzero(np.isin(side, values))
    members = members[np.argsort(side[members], kind="stable")]
    return members.astype(np.int32), np.searchsorted(values, side[members]).astype(np.int32)


def ground(base: FactorGraph, source: FactorSource) -> FactorGraph:
    """The model with all factors of the source: its factor k is factor F + k of the new model."""
    check_graph(base, "ground")
    check_type(source, FactorSource, "ground takes a FactorSource")
    parts = _fetch(source, np.ones(base.n_variables), [0.0] * len(source.theta_bounds))
    found = _whole(parts)
    if not np.array_equal(found.ids, np.arange(source.n_factors)):
        raise ModelError(f"the source has {source.n_factors} factors but lists {len(found.ids)}")
    return base.add_features(found.scope, found.theta, "and")


@dataclass(frozen=True, eq=False, repr=False)
class Scan:
    """What a scan of a factor source touched, and what it keeps.

    Attributes
    ----------
    scope : int array (n, 2)
    ids : int array (n,)
        Numbers of the touched factors in the source, increasing.
    theta, scores : float arrays (n,)
    keep : bool array (n,)
        Which of them to keep.
    count : int
        Factors never looked at; none of them is kept.
    ceiling : float
        Every untouched factor's score is below it; 0 if there are none.
    most : float
        Upper bound on the sum of the untouched factors' scores.
    source : where they come from; does not pickle, like
    parts : what was touched, template by template
    """

    scope: NDArray[np.int32]
    ids: NDArray[np.int64]
    theta: NDArray[np.float64]
    scores: NDArray[np.float64]
    keep: NDArray[np.bool_]
    count: int
    ceiling: float
    most: float
    source: FactorSource | None
    parts: tuple[_Part, ...]

    @property
    def n_touched(self) -> int:
        return len(self.ids)

    @property
    def divergence(self) -> tuple[float, float]:
        """Between which values the sum of the scores of all ignored factors lies."""
        low = float(self.scores[~self.keep].sum())
        return low, low + self.most

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"source": None, "parts": ()}

    def __repr__(self) -> str:
        low, high = self.divergence
        return (
            f"Scan(touched {self.n_touched:,} of {self.n_touched + self.count:,} factors, "
            f"kept {int(self.keep.sum()):,}; divergence between {low:.3g} and {high:.3g})"
        )


def scan(
    source: FactorSource,
    objective: SelectionObjective,
    probs: NDArray[np.float64],
    score: str = "gain",
) -> Scan:
    """Keep the factors of a source that the objective would keep after a scan of all of them.

    Means are products of marginals: the result is that of a full scan unless the seed has a factor
    over the very pair of a candidate, whose joint a full scan would use.

    MinJoint, or any objective with a ``factor_cost``, touches what can reach that cost;
    MinDivergence lowers a ceiling until enough factors lie above it; MinSize, or any other
    objective, needs every score and touches all.

    Parameters
    ----------
    source : FactorSource
    objective : MinSize, MinDivergence, MinJoint or Budget
    probs : float array (V, 2)
        P(y = 0) and P(y = 1) of every variable in the seed graph
        (:func:`~minfer.factors.features.binary_pairs`).
    score : "gain" or "residual"
    """
    if score not in ("gain", "residual"):
        raise SettingsError(f"a factor source can be scored by 'gain' or 'residual', not {score!r}")
    scores = _Scores(source, np.asarray(probs, dtype=np.float64), score == "residual")
    cost, most, within = (
        getattr(objective, name, None) for name in ("factor_cost", "max_factors", "max_divergence")
    )
    if within is None and cost is not None:
        ceiling = float(cost)
        parts = scores.above(ceiling)
    elif within is None and most is not None:
        ceiling, parts = _best(scores, int(most))
    else:
        ceiling, parts = 0.0, scores.above(0.0)
    found = _whole(parts)
    keep = objective(found.scores)
    untouched = source.n_factors - len(found.ids)
    rest = min(untouched * ceiling, scores.rest(parts)) if untouched else 0.0
    return Scan(*found, keep, untouched, ceiling if untouched else 0.0, rest, source, tuple(parts))


class _Part(NamedTuple):
    """Touched factors, of one template or of all."""

    scope: NDArray[np.int32]
    ids: NDArray[np.int64]
    theta: NDArray[np.float64]
    scores: NDArray[np.float64]


def _fetch(source: FactorSource, key: NDArray[np.float64], least: Sequence[float]) -> list[_Part]:
    """Candidates of every template with their weights, not yet scored; bounds are checked."""
    parts = []
    for t, (low, high) in enumerate(source.theta_bounds):
        if least[t] == math.inf:
            parts.append(_NOTHING)
            continue
        scope, ids = source.candidates(t, key, least[t])
        theta = np.require(source.weights(t, scope, ids), np.float64, ["C", "W"])
        if theta.shape != ids.shape:
            raise ModelError(f"template {t}: {len(ids)} factors but weights of shape {theta.shape}")
        if len(theta) and not (theta.min() >= low and theta.max() <= high):
            bad = int(np.flatnonzero(~((theta >= low) & (theta <= high)))[0])
            raise ModelError(
                f"template {t}, factor {int(ids[bad])} over {scope[bad].tolist()}: weight "
                f"{theta[bad]} is outside the template's bounds [{low}, {high}]; widen them"
            )
        parts.append(_Part(scope, ids, theta, np.full(len(ids), np.nan)))
    return parts


_NOTHING = _Part(np.zeros((0, 2), np.int32), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


def _whole(parts: list[_Part]) -> _Part:
    """All parts as one, by increasing factor number."""
    out = _Part._make(np.concatenate(x) for x in zip(_NOTHING, *parts))
    if (out.ids[1:] < out.ids[:-1]).any():
        order = np.argsort(out.ids, kind="stable")
        out = _Part._make(x[order] for x in out)
    return out


class _Scores:
    """One of the two scores over one source: thresholds, values, and bounds on what is unseen."""

    def __init__(self, source: FactorSource, probs: NDArray[np.float64], residual: bool) -> None:
        if probs.ndim != 2 or probs.shape[1] != 2:
            raise ModelError(f"probs must have shape (V, 2), not {probs.shape}")
        self.source, self.residual = source, residual
        self.probs = read_only(np.ascontiguousarray(probs))
        off, on = probs.T
        off_by = float(np.abs(off + on - 1).max(initial=0.0))
        if not off_by < 1e-3:
            raise ModelError("probs: P(off) and P(on) of every variable must sum to 1")
        self.key = off * on if residual else np.ascontiguousarray(on)
        self.margin = _MARGIN + 5 * off_by

    def above(self, ceiling: float) -> list[_Part]:
        """Every factor whose score can reach the ceiling, scored, template by template."""
        least_key = least_variance if self.residual else least_mean
        lowered = ceiling * (1 - self.margin)
        least = [
            least_key(lowered, low, high) * (1 - self.margin)
            for low, high in self.source.theta_bounds
        ]
        parts = _fetch(self.source, self.key, least)
        offsets, score = 2 * np.arange(len(self.probs) + 1), "residual" if self.residual else "gain"
        for part in parts:
            scope = np.require(part.scope, np.int32, ["C"])
            group = Features(part.ids, scope, TRUTH_TABLES["and"], part.theta)
            group.scores(self.probs.ravel(), offsets, score, part.scores)
        return parts

    def slope(self, template: int) -> float:
        """Upper bound on the score of a factor per unit of its key product."""
        low, high = self.source.theta_bounds[template]
        if self.residual:
            return float(max(low**2, high**2)) / 2
        return max(math.expm1(t) - t if t < 700 else math.inf for t in (low, high))

    def highest(self) -> float:
        """Upper bound on every score; theta^2 / 8 is one, since a variance is at most 1/4."""
        product = float(self.key.max(initial=0.0)) ** 2
        most = 0.0
        for t, (low, high) in enumerate(self.source.theta_bounds):
            by_product = self.slope(t) * product if product > 0 else 0.0
            most = max(most, min(by_product, max(low**2, high**2) / 8))
        return most

    def rest(self, parts: list[_Part]) -> float:
        """Upper bound on the sum of the scores of all factors outside the parts."""
        most = 0.0
        for t, part in enumerate(parts):
            pairs = self.key.take(part.scope)
            unseen = self.source.total(t, self.key) - float((pairs[:, 0] * pairs[:, 1]).sum())
            if unseen > 0:
                most += self.slope(t) * unseen * (1 + self.margin)
        return most


def _best(scores: _Scores, m: int) -> tuple[float, list[_Part]]:
    """A ceiling with at least m scores at or above it, and what lies there.

    The m-th best of what was touched is at most the m-th best of all, so it serves as the next
    ceiling; the ceiling falls by at most a factor of 8 at a time, lest one step touch too much.
    """
    n = scores.source.n_factors
    ceiling = first = scores.highest() * (1 + _MARGIN)
    while m < n and ceiling > first * 1e-12:
        parts = scores.above(ceiling)
        values = np.concatenate([np.zeros(0), *(part.scores for part in parts)])
        if m == 0:
            return ceiling, parts
        mth = np.partition(values, len(values) - m)[len(values) - m] if len(values) >= m else 0.0
        if mth >= ceiling:
            return ceiling, parts
        if len(values) > n // 2:
            break
        ceiling = max(float(mth), ceiling / 8)
    return 0.0, scores.above(0.0)


def unseen_shifts(
    found: Scan, on: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What untouched factors would add to each variable's log-odds: mean and variance, (V,) each.

    An estimate. The message of a conjunction to a is log(1 + mu_b (e^theta - 1)), to first order
    mu_b E with E = e^theta - 1. Untouched weights are taken to be independent of one another and
    of the marginals, with the mean and variance of E among the touched ones of their template:

        mean_a = mean(E) sum_b mu_b,    variance_a = var(E) sum_b mu_b^2,

    sums over the untouched partners b of a; ``on`` (V,) is mu. A template of which nothing was
    touched counts with the largest E that its bounds allow, in either direction.
    """
    source = found.source
    assert source is not None
    mean, variance = np.zeros(len(on)), np.zeros(len(on))

    def unseen(t: int, part: _Part, key: NDArray[np.float64]) -> NDArray[np.float64]:
        if hasattr(source, "partner_sums"):
            every = source.partner_sums(t, key)
        else:
            every = _sums_over(source.candidates(t, np.ones(len(key)), 0.0)[0], key)
        return np.maximum(every - _sums_over(part.scope, key), 0.0)

    for t, part in enumerate(found.parts):
        rise = np.expm1(np.minimum(part.theta, _MOST_THETA))
        if len(rise):
            first, second = float(rise.mean()), float(rise.var())
        else:
            extremes = np.expm1(np.minimum(source.theta_bounds[t], _MOST_THETA))
            first, second = 0.0, float(np.square(extremes).max())
        mean += first * unseen(t, part, on)
        variance += second * unseen(t, part, on * on)
    return mean, variance


def _sums_over(scope: NDArray[np.int32], key: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each variable the sum of key over its partners in these pairs, shape (V,)."""
    out = np.zeros(len(key))
    np.add.at(out, scope, key[scope[:, ::-1]])
    return out
