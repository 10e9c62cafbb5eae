"""What an answer may cost: rigorous upper bounds on D(p_H || p_F), F = H and the dropped factors R.

    D(p_H || p_F) = log E_H[Psi_R] - E_H[log Psi_R],     log Z_F = log Z_H + log E_H[Psi_R]

The second expectation is a sum over the dropped factors and needs their joint marginals only. The
first does not split up. It is largest when all log Psi_i rise together, so with Q_i the quantile
function of log Psi_i under p_H

    D(p_H || p_F) <= log int_0^1 exp( sum_i Q_i(u) ) du - sum_i E_H[log Psi_i].

For features exp(theta phi) this is Proposition 2 of the paper, corrected (its C has the wrong sign,
and the means are those of H, not of the seed): flip negative weights (phi -> 1 - phi,
theta -> -theta, mu -> 1 - mu), sort by increasing mean under p_H, cs_j = theta_1 + ... + theta_j;

    D(p_H || p_F) <= sum_i (1 - mu_i) theta_i + C,
    C = log sum_{j=0}^{L} (mu_{j+1} - mu_j) e^{-cs_j}  <= 0,     mu_0 = 0, mu_{L+1} = 1.

Without C it is the looser bound of Riedel & Smith (2010). In general the first term is
sum_i (max log Psi_i - E_H[log Psi_i]), and C sums over the places where a quantile function steps.
Factors that share no connected component of F are independent under p_H: E_H[Psi_R] is a product
over the components, and the bound the sum of one bound for each.

It is tight for one dropped factor in each component and for features that are comonotone under p_H,
and grows with the dropped factors of a component as if all were maximally correlated. D adds up
over the whole model, so nothing about single marginals is made of it: :func:`minfer.intervals` does
that. The error of an approximate solver on H comes on top and is not bounded here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import (
    check_flag,
    check_graph,
    check_number,
    check_type,
    real_numbers,
    unique_rows,
)
from minfer.basics.notebook import Face, Faced
from minfer.basics.words import upwards
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import CliqueTree, clique_tree
from minfer.errors import ModelError, RefusedError
from minfer.factors.group import Floats, Ints, Mask, connected, n_entries
from minfer.factors.tables import Tables
from minfer.reduction.compensation import Dropped, ignored, too_large
from minfer.solvers.clique_passes import pass_messages

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

#: Cells of all cliques together that a certificate may visit: about a second.
MAX_CELLS = 1 << 26
#: Clique trees it tries before it settles for less than joint marginals.
MAX_TREES = 24
#: Mass given to what is possible but has a smaller probability, which floats may round to zero.
_TINY = 1e-300
#: Below the largest value of a log-table by more than this, the factor is as good as zero.
_DEEP = 800.0
#: Ignored factors; with more a bound takes long and says nothing.
MOST_BOUNDED = 50_000


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Faced):
    """What is certain about F from exact inference in its part H; None where that is too expensive.

    Attributes
    ----------
    bound, loose : float or None
        D(p_H || p_F) is at most this, with C and without (Riedel & Smith 2010); infinite where a
        dropped table has a zero with mass under H.
    log_z, log_z_upper : float or None
        log Z_H, exact, and what log Z_F is at most.
    expectation : float or None
        E_H[log Psi_R], exact if ``n_enveloped`` is 0, else a lower bound on it.
    by_variable : float array (V,)
        Bounds on the divergence of the connected component of F that each variable lies in.
    n_enveloped : int
        Dropped factors whose joint marginal was too expensive, bounded from single marginals.
    cells : float
        Clique cells visited for it.
    reason : str
        Why there is no bound; empty if there is one.
    """

    bound: float | None = None
    loose: float | None = None
    log_z: float | None = None
    expectation: float | None = None
    log_z_upper: float | None = None
    by_variable: Floats = field(default_factory=lambda: np.zeros(0))
    n_enveloped: int = 0
    cells: float = 0.0
    reason: str = ""

    @property
    def log_z_lower(self) -> float | None:
        """log Z_F is at least log Z_H + E_H[log Psi_R]."""
        if self.log_z is None or self.expectation is None:
            return None
        return self.log_z + self.expectation

    def face(self) -> Face:
        """The bound, and what else is certain."""
        conclusion = f"no bound: {self.reason}"
        if self.bound is not None:
            conclusion = f"D(p_H || p_F) is at most {upwards(self.bound)} nats"
        known = (
            ("bound on D(p_H || p_F)", self.bound),
            ("the same of Riedel & Smith", self.loose),
            ("log Z of the reduced model", self.log_z),
            ("log Z of the full model, at least", self.log_z_lower),
            ("log Z of the full model, at most", self.log_z_upper),
            ("dropped factors bounded without their joint", self.n_enveloped or None),
        )
        rows = [(name, value) for name, value in known if value is not None]
        return Face(conclusion, ("certain", "value"), rows)


def feature_bound(mu: ArrayLike, theta: ArrayLike, loose: bool = False) -> float:
    """Bound on D(p_H || p_F) from means under H and weights, (L,); ``loose``: without C."""
    mean = real_numbers(mu, "mu").astype(np.float64)
    weight = real_numbers(theta, "theta").astype(np.float64)
    if mean.ndim != 1 or mean.shape != weight.shape:
        raise ModelError(f"mu and theta must have one shape (L,), not {mean.shape}, {weight.shape}")
    if not ((mean > -1e-9) & (mean < 1 + 1e-9) & np.isfinite(weight)).all():
        raise ModelError("means must lie between 0 and 1, and weights must be finite")
    check_flag("loose", loose)
    mean, weight = np.where(weight < 0, 1 - mean, mean), np.abs(weight)
    first = float(((1 - mean) * weight).sum())
    if loose:
        return first
    one_group = np.zeros(len(mean), dtype=np.int64)
    return max(first + float(_comonotone(mean, weight, one_group, 1)[0]), 0.0)


def quantile_bound(joints: Sequence[NDArray], log_tables: Sequence[NDArray]) -> float:
    """The same for any factors, each a marginal over its scope and a log-table of the same size."""
    if not np.iterable(joints) or not np.iterable(log_tables):
        raise ModelError("quantile_bound takes joint marginals and log-tables, a list of each")
    joints = [real_numbers(j, "joint marginals") for j in joints]
    log_tables = [real_numbers(t, "log-tables") for t in log_tables]
    sizes = np.array([np.size(j) for j in joints], dtype=np.int64)
    if len(joints) != len(log_tables) or any(np.size(t) != s for t, s in zip(log_tables, sizes)):
        raise ModelError("quantile_bound: every joint marginal needs a log-table of its size")
    steps = []
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size).tolist()
        p = np.array([np.ravel(joints[i]) for i in rows])
        x = np.array([np.ravel(log_tables[i]) for i in rows])
        steps.append(_steps(p, x, x, np.zeros(len(rows), dtype=np.int64)))
    return float(_by_group(steps, 1).bound[0])


def product_bound(model: FactorGraph, probs: ArrayLike) -> float | None:
    """A lower bound on log Z that holds at any product distribution q (Gibbs' inequality).

        log Z  >=  sum_v E_q[field_v] + sum_f E_q[log Psi_f] + sum_v H(q_v)

    ``probs`` (sum of states,) are scaled to sum to 1 each. Minus infinity where q has mass on what
    the model forbids; None for factors that are global or too large for a table.
    """
    if model.has_globals or too_large(model, np.zeros(model.n_factors, dtype=bool)):
        return None
    q = np.maximum(np.asarray(probs, dtype=np.float64), 0.0)
    if len(q):
        q = q / np.repeat(np.add.reduceat(q, model._offsets[:-1]), model._n_states)
    alive = q > 0
    total = float((q[alive] * (model.field[alive] - np.log(q[alive]))).sum())
    dropped = ignored(model, np.zeros(model.n_factors, dtype=bool))
    return total + product_estimates(model, dropped, q)[0]


def product_estimates(
    model: FactorGraph, dropped: Sequence[Dropped], probs: Floats
) -> tuple[float, float]:
    """log Z_F - log Z_H as products of marginals see it: sum_i E[log Psi_i], sum_i log E[Psi_i]."""
    mean, log_mean = 0.0, 0.0
    for d in dropped:
        n = len(d.scope)
        tables = np.broadcast_to(d.log_psi, (n, d.log_psi.shape[1]))
        done = 0
        batch = Tables(np.arange(n), d.scope, d.shape, d.log_psi)
        for joint in batch.product_joints(probs, model._offsets):
            x = np.where(joint > 0, tables[done : done + len(joint)], -np.inf)
            done += len(joint)
            mean += float((joint * np.where(joint > 0, x, 0.0)).sum())
            top = x.max(axis=1, keepdims=True)
            top = np.where(top > -np.inf, top, 0.0)
            with np.errstate(divide="ignore"):
                log_mean += float((top[:, 0] + np.log((joint * np.exp(x - top)).sum(axis=1))).sum())
    return mean, log_mean


def certificate(
    part: FactorGraph, dropped: Sequence[Dropped], max_cells: float | None = None
) -> Certificate:
    """Bound D(p_H || p_F) and log Z_F by exact inference in H.

    Joint marginals of H over a dropped factor's variables are products where these lie in
    different components of H; the others come from clique trees that also cover the dropped
    scopes, as many as the budget allows. What is left is bounded from the variables' marginals:
    log Psi lies between its smallest and its largest value given one of its variables.

    ``dropped`` are the factors of F that H, ``part``, lacks (of a compensated H: less the
    corrections they left behind); at most ``max_cells`` clique cells are visited, 2**26 by default.
    A possible combination counts with a mass of at least 1e-300, however improbable.
    """
    check_graph(part, "certificate")
    budget = MAX_CELLS if max_cells is None else max_cells
    check_number("max_cells", budget, infinite=True)
    if not np.iterable(dropped):
        raise ModelError("certificate takes a list of Dropped, as ignored(model, keep) gives it")
    for d in dropped:
        _check(part, d)
    try:
        model = only_tables(condition(part))
    except RefusedError as error:
        return Certificate(reason=str(error))
    pieces = _pieces(model, dropped)
    own = _components(model, [])
    wanted = [_within_a_component(own, piece) for piece in pieces]
    found = _infer(model, pieces, wanted, float(budget))
    if found is None:
        return Certificate(reason=f"exact inference in H needs more than {budget:.1e} clique cells")
    whole = _components(model, pieces)
    steps, constant, n_enveloped = [], 0.0, 0
    for piece, joint, known in zip(pieces, found.joints, found.known):
        if piece.arity == 0:
            constant += float(piece.log_psi.sum())
            continue
        lower = upper = np.asarray(piece.log_psi)
        if not known.all():
            lower, upper = _envelopes(joint, upper, piece.shape, known)
            n_enveloped += int((~known).sum())
        steps.append(_steps(joint, upper, lower, whole[piece._scope[:, 0]]))
    groups = _by_group(steps, int(whole.max(initial=-1)) + 1)
    loose, bound = float(groups.loose.sum()), float(groups.bound.sum())
    if constant == -np.inf:
        loose = bound = np.inf
    return Certificate(
        bound=bound,
        loose=loose,
        log_z=found.log_z,
        expectation=float(groups.mean.sum()) + constant,
        log_z_upper=found.log_z + float(groups.upper.sum()) + constant,
        by_variable=groups.bound[whole[: part.n_variables]],
        n_enveloped=n_enveloped,
        cells=found.cells,
    )


# ---------------------------------------------------------------- sums of quantile functions


class _Steps(NamedTuple):
    """n factors of K cells as step functions of the tail 1 - u, largest value first."""

    group: Ints  # (n,)
    top: Floats  # (n,) largest value with mass
    gap: Floats  # (n,) top - mean
    mean: Floats  # (n,)
    tail: Floats  # (n, K-1) where it steps
    drop: Floats  # (n, K-1) by how much


class _Groups(NamedTuple):
    """Sums over independent groups of factors, each (G,)."""

    loose: Floats
    bound: Floats
    mean: Floats
    upper: Floats  # on log E_H[Psi]


def _steps(p: NDArray, upper: NDArray, lower: NDArray, group: Ints) -> _Steps:
    """Quantiles from ``upper`` and means from ``lower`` log-tables, all (n, cells)."""
    alive = p > 0
    x = np.where(alive, upper, -np.inf)
    top = x.max(axis=1)
    start = np.where(top > -np.inf, top, 0.0)[:, None]
    x = np.maximum(x, start - _DEEP)
    gap = (p * (start - np.where(alive, lower, start))).sum(axis=1)
    mean = (p * np.where(alive, lower, 0.0)).sum(axis=1)
    order = np.argsort(-x, axis=1, kind="stable")
    x, p = np.take_along_axis(x, order, axis=1), np.take_along_axis(p, order, axis=1)
    tail = np.minimum(np.cumsum(p, axis=1), 1.0)
    return _Steps(group, top, gap, mean, tail[:, :-1], x[:, :-1] - x[:, 1:])


def _by_group(steps: Sequence[_Steps], n_groups: int) -> _Groups:
    """Bounds of every group: the gaps' sum, and that plus C."""

    def join(parts: list[NDArray]) -> NDArray:
        return np.concatenate([p.ravel() for p in parts]) if parts else np.zeros(0)

    group = join([s.group for s in steps]).astype(np.int64)
    place = join([np.repeat(s.group, s.tail.shape[1]) for s in steps]).astype(np.int64)
    tail, drop = join([s.tail for s in steps]), join([s.drop for s in steps])
    used = drop > 0
    c = _comonotone(tail[used], drop[used], place[used], n_groups)

    def total(parts: list[NDArray]) -> Floats:
        return np.bincount(group, join(parts), minlength=n_groups).astype(np.float64)

    loose = total([s.gap for s in steps])
    mean, top = total([s.mean for s in steps]), total([s.top for s in steps])
    # what rounding may have lost of the sums: the square root of a lost 1e-16 is an error of 1e-8
    size = total([np.abs(s.top) + np.abs(s.mean) + s.gap for s in steps])
    size = np.where(np.isfinite(size), size, 0.0)
    slip = np.finfo(float).eps * size * (8 + np.bincount(group, minlength=n_groups))
    return _Groups(loose + slip, np.maximum(loose + c, 0.0) + slip, mean, top + c + slip)


def _comonotone(tail: Floats, drop: Floats, group: Ints, n_groups: int) -> Floats:
    """C = log int_0^1 exp( - sum of the drops at tails <= t ) dt of every group, shape (G,)."""
    if not len(tail):
        return np.zeros(n_groups)
    order = np.lexsort((tail, group))
    tail, drop, group = tail[order], drop[order], group[order]
    new = np.concatenate([[True], group[1:] != group[:-1]])
    first = np.flatnonzero(new)
    # running sums that begin again at every group without ever growing large
    jump = drop.copy()
    jump[first[1:]] -= np.add.reduceat(drop, first)[:-1]
    fallen = np.cumsum(jump)
    stop = np.append(tail[1:], 1.0)
    stop[np.append(first[1:], len(tail)) - 1] = 1.0
    width = stop - tail
    # near 0 from what is lost against no drop, else relative to the largest piece with a width
    lost = np.bincount(group, width * np.expm1(-fallen), minlength=n_groups)
    base = np.zeros(n_groups)
    base[group[first]] = np.where(
        tail[first] > 0, 0.0, np.minimum.reduceat(np.where(width > 0, fallen, np.inf), first)
    )
    piece = width * np.exp(np.minimum(base[group] - fallen, 0.0)) + new * tail
    left = np.bincount(group, piece, minlength=n_groups)
    far = np.log(np.maximum(left, _TINY)) - base
    return np.where(lost > -0.5, np.log1p(np.maximum(lost, -0.5)), far)


def _envelopes(
    p: NDArray, x: NDArray, shape: tuple[int, ...], known: Mask
) -> tuple[Floats, Floats]:
    """Lower and upper log-tables (n, cells); where the joint is not known, functions of one axis.

    Of all axes, the one with the largest mean of the lower, and the smallest of the upper envelope.
    """
    n = len(p)
    alive = (p > 0).reshape(n, *shape)
    table = np.broadcast_to(x, p.shape).reshape(n, *shape)
    low, high = np.where(alive, table, np.inf), np.where(alive, table, -np.inf)
    best_low, best_high = np.full(n, -np.inf), np.full(n, np.inf)
    lower, upper = np.array(np.broadcast_to(x, p.shape)), np.array(np.broadcast_to(x, p.shape))
    for axis in range(1, len(shape) + 1):
        others = tuple(k for k in range(1, len(shape) + 1) if k != axis)
        for bound, best, envelope in (
            (lower, best_low, low.min(axis=others, keepdims=True)),
            (upper, best_high, high.max(axis=others, keepdims=True)),
        ):
            here = np.where(alive, envelope, 0.0).reshape(n, -1)
            mean = (p * here).sum(axis=1)
            better = ~known & ((mean >= best) if bound is lower else (mean <= best))
            bound[better], best[better] = here[better], mean[better]
    return lower, upper


# ---------------------------------------------------------------- exact joints of H


class _Found(NamedTuple):
    """Joints of every piece, and which of them are exact (the others have the right marginals)."""

    log_z: float
    joints: list[Floats]  # (n, cells)
    known: list[Mask]  # (n,)
    cells: float  # visited


class _Masses(NamedTuple):
    """One exact run: probabilities, zero only where impossible."""

    log_z: float
    states: Floats  # (sum S,)
    joints: Floats  # of the tables asked for, end to end


def _check(part: FactorGraph, d: Dropped) -> None:
    check_type(d, Dropped, "certificate takes Dropped factors", ModelError)
    n = len(d.scope)
    if d.scope.shape[1:] != (len(d.shape),) or (part._n_states[d.scope] != d.shape).any():
        raise ModelError(f"dropped factors of shape {d.shape} do not fit their variables")
    if d.log_psi.ndim != 2 or d.log_psi.shape[0] not in (1, n):
        raise ModelError(f"{n} dropped factors need {n} log-tables, or one for all")
    if d.log_psi.shape[1] != n_entries(d.shape) or not (d.log_psi < np.inf).all():
        raise ModelError(f"dropped log-tables of shape {d.shape} must be finite or minus infinity")


def _pieces(model: Conditioned, dropped: Sequence[Dropped]) -> list[Tables]:
    """The dropped factors over free variables, sliced where H leaves a variable one state."""
    known = model.fixed >= 0
    pieces: list[Tables] = []
    for d in dropped:
        if len(d.scope):
            ids, scope = np.arange(len(d.scope)), np.ascontiguousarray(d.scope, dtype=np.int32)
            log_psi = np.ascontiguousarray(d.log_psi, dtype=np.float64)
            pieces += Tables(ids, scope, d.shape, log_psi).sliced(known, model.fixed)  # type: ignore[arg-type]
    return pieces


def _components(model: Conditioned, pieces: list[Tables]) -> Ints:
    """Connected components of the free variables under H's factors and the pieces, (V,)."""
    states = model.graph._n_states
    links = tuple(g for g in (*model.groups, *pieces) if g.form == "messages" or g.arity > 1)
    return connected(len(states), links).astype(np.int64) if links else np.arange(len(states))


def _within_a_component(labels: NDArray, piece: Tables) -> Mask:
    """Rows of which two variables lie in one component of H: no product of marginals, (n,)."""
    if piece.arity < 2:
        return np.zeros(len(piece), dtype=bool)
    ordered = np.sort(labels[piece._scope], axis=1)
    return np.asarray((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))


def _infer(
    model: Conditioned, pieces: list[Tables], wanted: list[Mask], budget: float
) -> _Found | None:
    """Exact joints, in one run if that is cheap enough, else in several over parts of them."""
    nothing = np.zeros(0, dtype=np.int64)
    distinct = [
        unique_rows(piece._scope[w]) if w.any() else (piece._scope[:0], nothing)
        for piece, w in zip(pieces, wanted)
    ]
    scopes = [scope for scope, _ in distinct]
    cells = [n_entries(piece.shape) for piece in pieces]
    owner = np.repeat(np.arange(len(scopes)), [len(s) for s in scopes])
    row = np.concatenate([np.arange(len(s)) for s in scopes] or [nothing])
    joints = [np.zeros((len(s), c)) for s, c in zip(scopes, cells)]
    known = [np.zeros(len(s), dtype=bool) for s in scopes]
    base: _Masses | None = None
    cells_left = budget
    queue = [np.arange(len(owner))]
    for _ in range(MAX_TREES):
        if not queue:
            break
        items = queue.pop()
        extra = [(k, row[items[owner[items] == k]]) for k in np.unique(owner[items])]
        groups = [  # that say nothing, so that cliques cover their scopes
            Tables(np.arange(len(r)), scopes[k][r], pieces[k].shape, np.zeros((1, cells[k])))
            for k, r in extra
        ]
        run = _run(model, groups, cells_left)
        if run is not None:
            base, tree = run
            cells_left -= tree.cells
            start = 0
            for k, r in extra:
                stop = start + len(r) * cells[k]
                joints[k][r] = base.joints[start:stop].reshape(len(r), -1)
                known[k][r] = True
                start = stop
        elif not len(items):
            return None
        elif len(items) == len(owner):  # all at once is too much: H alone, then by region
            alone = _run(model, [], cells_left)
            if alone is None:
                return None
            base, tree = alone
            cells_left -= tree.cells
            by_region = [tree.position[s].min(axis=1, initial=len(tree.position)) for s in scopes]
            queue = _halves(np.argsort(np.concatenate(by_region), kind="stable"))
        else:
            queue += _halves(items)
    if base is None:
        return None
    out, exact = [], []
    for k, (piece, w) in enumerate(zip(pieces, wanted)):
        joint, found, which = _product(base.states, model.graph._offsets, piece), ~w, distinct[k][1]
        found[w] = known[k][which]
        joint[w & found] = joints[k][which][known[k][which]]
        out.append(joint)
        exact.append(found)
    return _Found(base.log_z, out, exact, budget - cells_left)


def _halves(items: Ints) -> list[Ints]:
    middle = len(items) // 2
    return [items[middle:], items[:middle]] if middle else []


def _run(
    model: Conditioned, extra: list[Tables], budget: float
) -> tuple[_Masses, CliqueTree] | None:
    """Masses of all states and of the extra scopes, and the tree used; None beyond the budget."""
    model = replace(model, groups=(*model.groups, *extra))
    tree = clique_tree(model, budget)
    if not tree.complete or tree.cells > budget:
        return None
    answer = pass_messages(model, tree, joints=True)
    n = sum(len(g) * n_entries(g.shape) for g in extra)
    states, joints = answer.probs, answer.joints[len(answer.joints) - n :]
    free = np.repeat(model.fixed < 0, model.graph._n_states)
    if (states[free] < _TINY).any() or (joints < _TINY).any():
        # a zero, or too small for a float? ask again with every weight that is not zero set to 1
        ones = tuple(g.support() for g in model.groups)
        zeros = np.where(model.field > -np.inf, 0.0, -np.inf)
        support = pass_messages(replace(model, groups=ones, field=zeros), tree, joints=True)
        possible = support.joints[len(support.joints) - n :]
        states = np.where(support.probs > 0, np.maximum(states, _TINY), states)
        joints = np.where(possible > 0, np.maximum(joints, _TINY), joints)
    return _Masses(answer.log_z, states, joints), tree


def _product(states: NDArray, offsets: NDArray, piece: Tables) -> Floats:
    """Products of the marginals over each scope, (n, cells), zero only where impossible."""
    joint = np.ones((len(piece), 1))
    for a, size in enumerate(piece.shape):
        p = states[offsets[piece._scope[:, a]][:, None] + np.arange(size)]
        possible = (joint > 0)[:, :, None] & (p > 0)[:, None, :]
        joint = np.maximum(joint[:, :, None] * p[:, None, :], np.where(possible, _TINY, 0.0))
        joint = joint.reshape(len(piece), -1)
    return joint
