"""Binary pairwise models as cuts: the best assignment by maximum flow, exact where signs allow it.

Every table over two binary variables is a constant, a unary number of each, and a price for being
different,

    t(x, y) = a + b x + c y - J [x != y],     J = (t00 + t11 - t01 - t10) / 2.

Where no J is negative, maximising is a minimum cut (Greig, Porteous & Seheult 1989). A negative J
becomes positive when one of its variables is read the other way round; some choice of variables
does that for all at once if and only if no cycle has an odd number of negative J: the model is
*balanced*.

Numbers become 64-bit integers by a power of two, the largest below 2^58, and half a unit for each
is added to the bound. The flow is by scipy, whose capacities have 32 bits: first the leading bits,
then what that left, cut to what can still flow, and so on. Every stage is a feasible flow of the
64-bit network, and the last one, where no bit is lost or the cut is used up, is a maximum flow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.factors.group import components

if TYPE_CHECKING:
    from minfer.queries.map.problem import MapProblem

_BITS = 30  # of one capacity; two of them are added where flow can go either way


@dataclass(frozen=True, eq=False)
class Ising:
    """constant + sum_i unary_i x_i - sum_e price_e [x_i != x_j], each pair once; slack: rounding.

    The price of a pair with zeros exceeds all that can be gained.
    """

    constant: float
    unary: NDArray[np.float64]
    pairs: NDArray[np.int64]  # (E, 2)
    price: NDArray[np.float64]
    slack: float

    @classmethod
    def of(
        cls,
        unary: NDArray[np.float64],
        scopes: NDArray,
        tables: NDArray[np.float64],
        constant: float = 0.0,
        slack: float = 0.0,
    ) -> Ising:
        """From pairs (F, 2) with tables (F, 4), 00 01 10 11, less their first entries."""
        n = len(unary)
        t00, t01, t10, t11 = tables.T
        price = ((t00 - t01) + (t11 - t10)) / 2.0
        b = ((t11 - t01) + (t10 - t00)) / 2.0
        c = ((t11 - t10) + (t01 - t00)) / 2.0
        unary = unary + np.bincount(scopes[:, 0], b, n) + np.bincount(scopes[:, 1], c, n)
        ordered = np.sort(scopes, axis=1).astype(np.int64)
        keys, which = np.unique(ordered[:, 0] * n + ordered[:, 1], return_inverse=True)
        merged = np.bincount(which.ravel(), price, len(keys)).astype(np.float64)
        pairs = np.stack([keys // max(n, 1), keys % max(n, 1)], axis=1)
        return cls(constant, unary, pairs, merged, slack)

    def bound(self, more: NDArray[np.float64], top: float) -> float:
        """The constant, some numbers, prices that were negative and what a cut gives, added up."""
        turned = -self.price[self.price < 0.0]
        constant = math.fsum([self.constant, *more.tolist(), *turned.tolist()])
        bound = constant + top
        return bound + (self.slack + 4.0 * 2.0**-52 * (abs(constant) + abs(top)))

    def flips(self) -> NDArray[np.bool_] | None:
        """The variables to read the other way round so that no price is negative, if that can be.

        With i and not-i as two nodes, pairs say which agree; none may agree with its own opposite.
        """
        n = len(self.unary)
        i, j = self.pairs.T
        other = np.where(self.price < 0.0, n, 0)
        use = self.price != 0.0
        row = np.concatenate([i[use], (i + n)[use]])
        col = np.concatenate([(j + other)[use], (j + n - other)[use]])
        label = components(2 * n, row, col)
        if (label[:n] == label[n:]).any():
            return None
        return label[:n] > label[n:]


def ising(problem: MapProblem, theta: NDArray[np.float64]) -> Ising | None:
    """A problem over binary variables and pairs in these terms; None where it is none."""
    if not problem.pairwise or not (problem.cards == 2).all() or np.isneginf(theta).any():
        return None
    scopes, t = problem.binary_tables()
    finite = np.isfinite(t)
    spread = np.where(finite, t, -np.inf).max(axis=1, initial=-np.inf)
    least = np.where(finite, t, np.inf).min(axis=1, initial=np.inf)
    pair = theta.reshape(-1, 2)
    gain = float((spread - least).sum()) + float(np.abs(pair[:, 1] - pair[:, 0]).sum())
    t = np.where(finite, t, least[:, None] - 2.0 * gain - 1.0)
    constant = math.fsum([problem.constant, *pair[:, 0].tolist(), *t[:, 0].tolist()])
    most = 8.0 + float(np.bincount(scopes.ravel(), minlength=problem.n).max(initial=0))
    size = float(np.abs(t).sum()) + float(np.abs(theta).sum())
    slack = 8.0 * most * 2.0**-52 * size + problem.slack
    return Ising.of(pair[:, 1] - pair[:, 0], scopes, t, constant, slack)


def by_flow(model: Ising, flip: NDArray[np.bool_]) -> tuple[NDArray[np.int32], float]:
    """The best assignment of a balanced model, and a bound that it meets up to rounding."""
    unary = np.where(flip, -model.unary, model.unary)
    x, top = best_cut(unary, model.pairs, np.abs(model.price))
    return np.where(flip, 1 - x, x).astype(np.int32), model.bound(model.unary[flip], top)


def persistent(model: Ising) -> tuple[NDArray[np.int32], float]:
    """The state of each variable that some best assignment has, -1 where nothing is known (QPBO);
    and a bound on every score.

    Every variable is doubled, x and its opposite; pairs with a negative price link x_i with the
    opposite of x_j instead, so the doubled model has no negative price and is a cut (Hammer, Hansen
    & Simeone 1984; Kolmogorov & Rother 2007). Its maximum is the bound of the relaxation with
    half-integers (roof duality). Where x and its opposite come out opposite, some best assignment
    has that state (persistency), all of them together.
    """
    n = len(model.unary)
    i, j = model.pairs.T
    other = np.where(model.price < 0.0, n, 0)
    pairs = np.concatenate(
        [np.stack([i, j + other], axis=1), np.stack([i + n, j + n - other], axis=1)]
    )
    y, top = best_cut(
        np.concatenate([model.unary, -model.unary]) / 2.0, pairs,
        np.tile(np.abs(model.price) / 2.0, 2),
    )  # fmt: skip
    bound = model.bound(model.unary / 2.0, top)
    return np.where(y[:n] != y[n:], y[:n], -1).astype(np.int32), bound


def best_cut(
    unary: NDArray[np.float64], pairs: NDArray[np.int64], price: NDArray[np.float64]
) -> tuple[NDArray[np.int32], float]:
    """The best x of sum unary x - sum price [x_i != x_j], price >= 0, and a bound on its value."""
    n = len(unary)
    largest = max(float(np.abs(unary).max(initial=0.0)), float(price.max(initial=0.0)))
    if not largest > 0.0:
        return np.zeros(n, dtype=np.int32), 0.0
    power = 57 - math.frexp(largest)[1]
    whole = np.rint(np.ldexp(unary, power)).astype(np.int64)
    costs = np.rint(np.ldexp(price, power)).astype(np.int64)
    inside = _reachable(whole, pairs, costs)
    different = inside[pairs[:, 0]] != inside[pairs[:, 1]]
    value = _sum(whole[inside]) - _sum(costs[different])
    off = (n + len(price) + 1) // 2  # half a unit for each number
    top = math.ldexp(float(value + off), -power)
    return inside.astype(np.int32), top + 2.0**-52 * abs(top)


def _sum(numbers: NDArray[np.int64]) -> int:
    """The sum as an integer of Python's, which cannot overflow."""
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())


def _reachable(
    unary: NDArray[np.int64], pairs: NDArray[np.int64], costs: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """The side of the source in a minimum cut; capacities are 64-bit integers."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    n, m = len(unary), len(pairs)
    source, sink = n, n + 1
    every = np.arange(n)
    i, j = pairs.T
    row = np.concatenate([i, j, np.full(n, source), every])
    col = np.concatenate([j, i, every, np.full(n, sink)])
    left = np.concatenate([costs, costs, np.maximum(unary, 0), np.maximum(-unary, 0)])
    shape = (n + 2, n + 2)
    most = int(left.max())  # no path can carry more
    while True:
        most = min(most, int(left.max()))
        shift = max(most.bit_length() - _BITS, 0)
        capacity = np.minimum(left, most) >> shift
        used = capacity > 0  # of opposite arcs both, though one of them may be full
        used[:m] |= used[m : 2 * m]
        used[m : 2 * m] = used[:m]
        use = np.flatnonzero(used)
        network = csr_matrix((capacity[use].astype(np.int32), (row[use], col[use])), shape=shape)
        flow = maximum_flow(network, source, sink).flow.tocoo()
        keys = flow.row.astype(np.int64) * (n + 2) + flow.col
        order = np.argsort(keys, kind="stable")
        at = np.searchsorted(keys[order], row * (n + 2) + col)
        at = np.minimum(at, max(len(keys) - 1, 0))
        found = order[at] if len(keys) else at
        carried = np.zeros(len(row), dtype=np.int64)
        if len(keys):
            hit = keys[found] == row * (n + 2) + col
            carried[hit] = flow.data[found[hit]].astype(np.int64) << shift
        left = left - carried
        is_open = np.flatnonzero((np.minimum(left, most) >> shift) > 0)
        ones = np.ones(len(is_open), np.int8)
        rest = csr_matrix((ones, (row[is_open], col[is_open])), shape=shape)
        inside = np.zeros(n + 2, dtype=bool)
        inside[breadth_first_order(rest, source, return_predecessors=False)] = True
        crossing = inside[row] & ~inside[col]
        most = _sum(left[crossing])
        if shift == 0 or most == 0:
            return inside[:n]
