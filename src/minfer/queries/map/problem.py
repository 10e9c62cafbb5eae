"""A conditioned model as the search for its best assignment sees it.

Free variables in their order, states end to end, factors in three forms: tables and taps of label
distances for compiled code (:mod:`minfer.kernels.best.dual`), and *blocks*, groups that answer for
themselves by max messages (global factors). Logical factors are chains of small tables
(:mod:`minfer.engine.decomposition`): being trees, they lose nothing in the relaxation; where a
chain would be too large, they are blocks too. Nothing is approximated; all that
is added here is what rounding may have hidden (:attr:`MapProblem.slack`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.engine.conditioning import absorb_small
from minfer.engine.decomposition import only_tables, written
from minfer.engine.layout import cells, join, places, scopes
from minfer.errors import ContradictionError, RefusedError
from minfer.factors.distances import recognised
from minfer.factors.group import MAX_TABLE_CELLS, FactorGroup, n_entries
from minfer.factors.tables import Tables
from minfer.kernels.best.dual import MaxWires

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.graph import FactorGraph

_EPS = 2.220446049250313e-16
#: A global factor of at most so many cells is a table, a larger one answers for itself.
_MAX_CELLS = 256
_STRUCTURED_FROM = 4  # labels from which tables are looked through for label distances
#: Numbers whose sum is beyond this are scaled by a power of two first.
_LARGE = 1e100


@dataclass(frozen=True, eq=False)
class MaxBlock:
    """Factors of one group that answer by max messages; rows of one colour share no variable.

    ``at`` (n, S_1 + ... + S_A) is where each state is among those of the free variables, -1 for
    known variables, whose vectors ``known`` are 0 and -inf.
    """

    group: FactorGroup
    colours: tuple[NDArray[np.int64], ...]
    at: NDArray[np.int64]
    known: NDArray[np.float64]
    n_free: NDArray[np.int64]  # (n,)


@dataclass(frozen=True, eq=False)
class MapProblem:
    """See the module's text. Scores here are those of the model, scaled by a power of two."""

    graph: FactorGraph
    model: Conditioned  # of the graph, perhaps with auxiliary variables behind its own
    free: NDArray[np.int64]  # the model's numbers of the variables
    theta: NDArray[np.float64]
    wires: MaxWires
    size: NDArray[np.float64]  # (F,) the largest finite number of a factor
    blocks: tuple[MaxBlock, ...]
    constant: float
    scale: float
    slack: float  # what rounding may make of a score, scaled

    @property
    def n(self) -> int:
        return len(self.free)

    @property
    def off(self) -> NDArray[np.int64]:
        return self.wires.off

    @cached_property
    def cards(self) -> NDArray[np.int64]:
        return np.diff(self.off)

    @property
    def pairwise(self) -> bool:
        """Whether there is nothing but factors over two variables."""
        return not self.blocks and bool((np.diff(self.wires.fptr) == 2).all())

    @cached_property
    def floor(self) -> float:
        """No possible assignment has a lower score (scaled); minus infinity where unknown."""
        if self.blocks:
            return -math.inf
        w = self.wires
        alive = self.theta > -np.inf
        total = float(self.theta[alive].clip(max=0.0).sum()) + self.constant
        if len(w.ft):
            starts, first, which = np.unique(w.ft, return_index=True, return_inverse=True)
            cells = np.multiply.reduceat(self.cards[w.sv], w.fptr[:-1])
            ends = starts + np.where(w.fw >= 0, w.fw + 1, cells)[first]
            finite = np.append(np.where(w.tab > -np.inf, w.tab, 0.0), 0.0)
            least = np.minimum.reduceat(finite, np.stack([starts, ends], axis=1).ravel())[::2]
            total += math.fsum(least.clip(max=0.0)[which].tolist())
        return total - self.slack - 1e-9 * abs(total)

    def whole(self, x: NDArray[np.int32]) -> NDArray[np.int64]:
        out = np.maximum(self.model.fixed, 0).astype(np.int64)
        out[self.free] = x
        return out[: self.graph.n_variables]

    def score(self, x: NDArray[np.int32]) -> float:
        """The log score of states of the free variables, as the graph gives it."""
        return float(self.graph.log_score(self.whole(x)))

    def binary_tables(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Scopes (F, 2) and tables (F, 4) of a problem over pairs of binary variables."""
        w, apart = self.wires, np.array([0, 1, 1, 0])
        width = w.fw[:, None]
        by_distance = np.where(apart < width, 1 + apart, 0)
        cell = np.where(width >= 0, by_distance, np.arange(4))
        return w.sv.reshape(-1, 2), w.tab[w.ft[:, None] + cell]


def lay_out(model: Conditioned) -> MapProblem:
    """The problem of a conditioned model; ContradictionError where a known factor forbids it."""
    own, model = model.graph, _chained(model)
    graph = model.graph
    free = np.flatnonzero(model.fixed < 0)
    place = np.full(graph.n_variables, -1, dtype=np.int64)
    place[free] = np.arange(len(free))
    off = np.concatenate([[0], np.cumsum(graph._n_states[free], dtype=np.int64)])
    parts = [p for g in model.groups for p in _parts(model, g)]
    blocks = [p for p in parts if isinstance(p, MaxBlock)]
    fixed, field = model.field[model.fixed_at], model.field.copy()
    others = [p for p in parts if not isinstance(p, MaxBlock)]
    more, compiled = absorb_small(graph, others, field)
    constant = math.fsum([model.constant, *fixed.tolist()]) + more
    theta = field[np.repeat(model.fixed < 0, graph._n_states)]
    if constant == -np.inf:
        raise ContradictionError("every assignment has probability zero: a factor forbids the "
                                 "observed states of all its variables")  # fmt: skip
    sizes = [float(g.magnitude().sum()) for g in own.groups]
    finite = np.abs(theta[np.isfinite(theta)])
    with np.errstate(over="ignore"):
        total = math.fsum(sizes) + float(finite.sum()) + abs(constant) + float(np.abs(fixed).sum())
    n_unary = sum(len(g) for g in own.groups if g.arity == 1)
    most = 64.0 + (n_unary > len(free)) * n_unary  # additions of one sum, all told
    # |computed - true| of a score, of the field and of the constant: each <= most 2^-53 total
    scale = 1.0
    if total > _LARGE:
        scale = 2.0 ** -math.ceil(math.log2(total))
    wires, size = _wires(compiled, place.astype(np.int32), off, scale)
    slack = 4.0 * most * _EPS * total * scale
    blocks = [replace(b, **_places(b.group, place, off, model.fixed)) for b in blocks]
    return MapProblem(
        own, model, free, theta * scale, wires, size, tuple(blocks), constant * scale, scale, slack
    )


def _chained(model: Conditioned) -> Conditioned:
    """The model with its logical factors as chains of tables, unless these are too large."""
    if all(g.form != "machine" for g in model.groups):
        return model
    rest = tuple(g for g in model.groups if g.form == "messages")
    others = tuple(g for g in model.groups if g.form != "messages")
    try:
        chained = only_tables(replace(model, groups=others), best=True)
    except RefusedError:
        return model
    return replace(chained, groups=(*chained.groups, *rest))


def _parts(model: Conditioned, group: FactorGroup) -> list[Any]:
    if group.form == "table":
        if type(group) is Tables and group.arity == 2 and group.shape[0] >= _STRUCTURED_FROM:
            return list(recognised(group, 0.0))
        return [group]
    if group.form == "machine":
        return [_block(model, group)]
    out: list[Any] = []
    large = []
    for row in range(len(group)):
        scope = group._scope[row]
        free = scope[model.fixed[scope] < 0]
        shape = tuple(int(s) for s in model.graph._n_states[free])
        few = n_entries(shape) <= _MAX_CELLS
        if few or (n_entries(shape) <= MAX_TABLE_CELLS and not group.has_maxima):
            out.append(written(model, group, row))
        else:
            large.append(row)
    if large:
        rows = np.array(large, dtype=np.int64)
        out.append(_block(model, group.take(rows, group._ids[rows])))
    return out


def _block(model: Conditioned, group: FactorGroup) -> MaxBlock:
    if not group.has_maxima:  # says so, with the factor's number
        group.messages(np.zeros(0, np.int64), np.zeros((0, 0)), np.zeros((0, 0)), best=True)
    scope = group._scope
    waiting = np.arange(len(group))
    colours = []
    while len(waiting):  # greedily: each colour takes what meets none of its own
        used = np.zeros(model.graph.n_variables, dtype=bool)
        taken = np.zeros(len(waiting), dtype=bool)
        for p, row in enumerate(waiting.tolist()):
            mine = scope[row][model.fixed[scope[row]] < 0]
            if not used[mine].any():
                used[mine] = True
                taken[p] = True
        colours.append(waiting[taken])
        waiting = waiting[~taken]
    nothing = np.zeros((0, 0))
    n_free = (model.fixed[scope] < 0).sum(axis=1)
    return MaxBlock(group, tuple(colours), nothing.astype(np.int64), nothing, n_free)


def _places(
    group: FactorGroup,
    place: NDArray[np.int64],
    off: NDArray[np.int64],
    fixed: NDArray[np.int32],
) -> dict[str, Any]:
    """Where the states of a block's variables are, and the vectors of known ones."""
    at = np.full((len(group), int(sum(group.shape))), -1, dtype=np.int64)
    known = np.zeros(at.shape)
    lo = 0
    for a, size in enumerate(group.shape):
        mine, state = place[group._scope[:, a]], fixed[group._scope[:, a]]
        is_free, columns = (mine >= 0)[:, None], slice(lo, lo + size)
        at[:, columns] = np.where(is_free, off[np.maximum(mine, 0)][:, None] + np.arange(size), -1)
        known[:, columns] = np.where(is_free | (state[:, None] == np.arange(size)), 0.0, -np.inf)
        lo += size
    return {"at": at, "known": known}


def _wires(
    groups: list[FactorGroup], place: NDArray[np.int32], off: NDArray[np.int64], scale: float
) -> tuple[MaxWires, NDArray[np.float64]]:
    """Factors end to end; see :mod:`minfer.kernels.best.dual`."""
    counts = [len(g) for g in groups]
    flat = scopes(groups, [place[g._scope] for g in groups])
    where = places(flat, len(off) - 1)
    taps = [g.label_taps() for g in groups]  # what is far off comes first here
    stored = [g.stored_tables() if t is None else np.roll(t, 1, 1) for g, t in zip(groups, taps)]
    ft, tab = cells(groups, stored)
    widths = [-1 if t is None else t.shape[1] - 1 for t in taps]
    fptr, sv = flat.fptr, flat.scope
    sf = np.repeat(np.arange(len(ft)), np.diff(fptr))
    size = np.diff(off)[sv]
    low = np.minimum.reduceat(sv, fptr[:-1]) if len(sv) else sv
    high = np.maximum.reduceat(sv, fptr[:-1]) if len(sv) else sv
    wires = MaxWires(
        off, where.vptr, where.order, fptr, sv, np.cumsum(size) - size, sf, low[sf] < sv,
        high[sf] > sv, ft, np.repeat(np.array(widths, np.int32), counts), tab * scale,
    )  # fmt: skip
    return wires, join([g.magnitude() for g in groups], np.float64) * scale
