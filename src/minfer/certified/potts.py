"""Upper bounds on the marginals of models whose pairs favour equal values (Potts, 1952; J >= 0).

    log p(x) = sum_v f_v(x_v) + sum_{pairs s = (u, v)} J_s [x_u = x_v] - log Z,   all J_s >= 0

with weights per pair. **Theorem.** Let e_v = exp f_v, B_s = [x_u = a] for a pair s of v with u, and

    q(t) = e_v(a) e^t / (e_v(a) e^t + sum_{b != a} e_v(b)),          T = sum_s J_s B_s.

Then P(x_v = a) <= E[q(T)]. Moreover, if U_u(a) >= P(x_u = a) for all neighbours u, and alpha + beta
t with beta >= 0 is at least q(t) at every value t that T can take, then

    P(x_v = a) <= alpha + beta sum_s J_s U_u(a).

*Proof.* Given all other variables, x_v = a has weight e_v(a) e^T and any b another has e_v(b)
e^{T_b} with T_b = sum_s J_s [x_u = b] >= 0, because no J is negative. So P(x_v = a | rest) <= q(T),
and the expectation over the rest is the first claim, whatever the dependences. The second: E[q(T)]
<= alpha + beta E[T], E[T] = sum_s J_s P(x_u = a), and beta >= 0. With all J_s <= J'_s the same
holds for T' = sum_s J'_s B_s >= T, since q increases. (No J_s is required to be the same, so
weights per pair cost nothing; two pairs of the same two variables, or weights that depend on a, are
covered too.) ∎

Minimised over lines it is the least concave function above q, at the mean of T: never more than
q(0) + sum_j (q(j) - q(j - 1)) min(1, E[N] / j), which Markov's inequality gives for equal weights
and N equal neighbours.

Bounds start at q of all neighbours and are improved in place, each step from bounds that hold. T'
is a multiple of a unit: J itself where weights at a variable are equal, else a part of the largest,
weights rounded up. Rounding is outward throughout (:func:`minfer.kernels.potts.lower_ups`); the
line is chosen in floats, and alpha computed for the line that was chosen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minfer.certified.local import rounding_slack
from minfer.certified.rounding import EXP, U, gamma, up
from minfer.conditioning import Conditioned, condition
from minfer.factors.group import FactorGroup
from minfer.graph import FactorGraph

#: Units that the sum of a variable's weights has, more or less, where they differ.
_UNITS = 64
#: Sweeps at most; they end when all bounds together come down by less than a thousandth.
_SWEEPS = 100
_FEWER = 1e-3


def potts_upper(graph: FactorGraph) -> NDArray[np.float64] | str:
    """Upper bounds on all marginals (sum of states,), or why there are none.

    Rigorous: they hold for the exact marginals of the model, evidence included.

    >>> from minfer import Exact, FactorGraph
    >>> graph = FactorGraph.empty([3, 3]).tilt([5.0, 0, 1, 3, 0, 0]).add_potts([[0, 1]], 1.0)
    >>> upper = potts_upper(graph)
    >>> bool((Exact()(graph).probs <= upper).all()), upper.round(3).tolist()
    (True, [0.99, 0.007, 0.019, 0.964, 0.046, 0.047])
    """
    model = condition(graph)
    weights = []
    for g in model.groups:
        found = _weights(g)
        if found is None:
            return (
                f"factor {int(g._ids[0])} is not a pair that favours equal values and has no other "
                "effect: the bound is proved only for such pairs"
            )
        weights.append(found)
    return _bounds(model, weights)


def _weights(g: FactorGroup) -> NDArray[np.float64] | None:
    """J of each factor (F,), rounded up; None if one is not of the form J [x = y] with J >= 0."""
    if g.form != "table" or g.arity != 2 or g.shape[0] != g.shape[1] or not g.has_tables:
        return None
    taps, k = g.label_taps(), g.shape[0]
    if k < 2:
        return np.zeros(len(g))
    if taps is None:
        tables = g.stored_tables().reshape(-1, k, k)
        same = np.eye(k, dtype=bool)
        apart = tables[:, ~same]
        if (apart != apart[:, :1]).any():
            return None
        taps = np.stack([tables[:, same].max(axis=1), apart[:, 0]], axis=1)
        if (tables[:, same] < taps[:, 1:]).any():
            return None
    if taps.shape[1] > 2:
        return None
    near, far = taps[:, 0], taps[:, -1]
    if not np.isfinite(taps).all() or (near < far).any():
        return None
    weight = np.where(near > far, up(near - far + 8 * U * (np.abs(near) + np.abs(far))), 0.0)
    return np.broadcast_to(weight, (len(g),))


def _bounds(model: Conditioned, weights: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    from minfer.kernels.potts import lower_ups

    graph = model.graph
    n, off = graph.n_variables, np.array(graph._offsets, dtype=np.int64)
    scope = np.concatenate([np.zeros((0, 2), np.int32), *(g._scope for g in model.groups)])
    ends = scope.ravel().astype(np.int64)
    order = np.argsort(ends, kind="stable")
    owner, nbr = ends[order], ends[order ^ 1]
    J = np.repeat(np.concatenate([np.zeros(0), *weights]), 2)[order]
    sptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=n), out=sptr[1:])
    degree = np.diff(sptr)
    most, least = np.zeros(n), np.full(n, np.inf)
    np.maximum.at(most, owner, J)
    np.minimum.at(least, owner, J)
    pieces = np.where(least < most, np.maximum(_UNITS // np.maximum(degree, 1), 1), 1)
    delta = up(most / pieces)
    with np.errstate(divide="ignore", invalid="ignore"):
        units = np.where(J > 0.0, np.ceil(J / delta[owner]), 0.0)
    units += units * delta[owner] * (1.0 - 4 * U) < J  # as many as reach J for certain
    units[(least == most)[owner]] = (J > 0.0)[(least == most)[owner]]
    whole = units.astype(np.int64)
    slip = float(gamma(2 * EXP + 16 + 2 * int(degree.max(initial=0))))
    total = np.bincount(owner, weights=whole, minlength=n).max(initial=0.0)
    upper = np.ones(len(model.field))
    if not len(upper):
        return upper
    rho, before = _odds_against(model, off), float(len(upper))
    for _ in range(_SWEEPS):
        fallen = lower_ups(sptr, nbr, whole, delta, off, rho, slip, int(total), upper)
        before -= fallen
        if fallen <= _FEWER * before:
            break
    return upper


def _odds_against(model: Conditioned, off: NDArray[np.int64]) -> NDArray[np.float64]:
    """Odds of all other values against each, by the field alone, rounded down (sum of states,).

    Infinite for impossible values. The others' weights are summed without the value's own: from
    both sides, so that nothing cancels.
    """
    field, size = model.field, np.diff(off)
    first = off[:-1]
    top = np.repeat(np.maximum.reduceat(field, first), size)
    with np.errstate(invalid="ignore"):
        e = np.exp(field - top)
    before = _running(e, off)
    after = _running(e[::-1], len(e) - off[::-1])[::-1]
    # twice the slack: of the value's own field and of the others', the largest taken off both
    error = 2.5 * np.expm1(2.0 * rounding_slack(model.graph)) + 2.0 * gamma(2 * EXP + 8 + size)
    error = np.repeat(np.minimum(error, 1.0), size)
    own = np.where(field > -np.inf, e + 1e-300, 0.0)  # what underflows is still possible
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = (before + after) / own * (1.0 - error)
    return np.where(field > -np.inf, np.maximum(rho, 0.0), np.inf)


def _running(x: NDArray[np.float64], off: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sums of what comes before each entry within its segment."""
    out = np.zeros(len(x))
    longest = int(np.diff(off).max(initial=0))
    first, size = off[:-1], np.diff(off)
    for j in range(1, longest):
        at = first[size > j] + j
        out[at] = out[at - 1] + x[at - 1]
    return out
