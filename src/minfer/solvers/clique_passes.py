"""The two passes of messages in a clique tree, and what can be read off after them.

Messages over the overlaps of cliques, first towards the roots and then back,

    up_c(s) = log sum_{x_c ~ s} exp( factors of c + up messages of c's children ),

make every clique's product of factors and messages its exact marginal (Lauritzen & Spiegelhalter
1988; Shafer & Shenoy 1990). They stay in log space and are scaled to maximum 0; zero probabilities
are minus infinity throughout. Factors are scaled likewise if some are so large that sums with them
would lose digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.basics.words import power
from minfer.engine.elimination import CliqueTree, clique_tree
from minfer.engine.layout import Flat, ends, flatten, normalised
from minfer.errors import NOTHING_POSSIBLE, ContradictionError, RefusedError
from minfer.factors.group import MAX_TABLE_CELLS, n_entries
from minfer.factors.tables import Tables

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.graph import FactorGraph

NS_PER_CELL, NS_PER_CLIQUE = 14.0, 5000.0  # both passes, measured; 8 to 20 ns a cell
_SLICE_CELLS = float(1 << 21)  # cells between two looks at the clock: about 30 ms
_LARGE = 1e4  # sums with larger numbers have fewer than 12 digits after the point
_NO_SIZES = np.zeros(0, dtype=np.int64)


def cheap_cells(model: Conditioned) -> int:
    """Cells of all cliques up to which the exact answer is worth its time: about ten seconds, less
    on large models, where the search for an order takes a while."""
    return 2**29 if int((model.fixed < 0).sum()) <= 20_000 else 2**24


def expected_seconds(tree: CliqueTree) -> float:
    """What the two passes should take, roughly."""
    return 1e-9 * (NS_PER_CELL * tree.cells + NS_PER_CLIQUE * len(tree.parent))


def check_tree(tree: CliqueTree, max_gib: float = 4.0, time_limit: float | None = None) -> None:
    """Raise RefusedError where the tree is beyond the limits."""
    gib = max(2.0 ** min(tree.largest + 3.0 - 30.0, 1000.0), tree.memory / 2**30)
    seconds = expected_seconds(tree)
    if gib > max_gib:
        limit = f"the limit is max_gib={max_gib:g}"
    elif not tree.complete:
        limit = "the search for an elimination order was given up"
        if time_limit is not None:
            limit += f" (time_limit={time_limit:g} s)"
    elif time_limit is not None and seconds > 4.0 * time_limit:
        limit = f"the limit is time_limit={time_limit:g} s"
    else:
        return
    clique = f"a clique of {tree.width + 1} variables and {power(tree.largest)} cells"
    cost = f"{_size(gib)} and {_duration(seconds)}"
    if tree.complete:
        what = f"the model needs {clique}, about {cost}"
    else:
        more = f"and more with {tree.left:,} variables to go"
        what = f"the model needs {clique}, {more}: over {cost}"
    raise RefusedError(
        f"Exact: {what}; {limit}. BeliefPropagation answers approximately, in time linear in "
        "the model"
    )


def _size(gib: float) -> str:
    return f"{gib:.3g} GiB" if gib < 1e4 else f"{gib:.1e} GiB"


def _duration(seconds: float) -> str:
    if seconds < 300.0:
        return f"{seconds:.2g} s"
    if seconds < 3e5:
        return f"{seconds / 3600.0:.2g} hours"
    days = seconds / 86400.0
    return f"{days:,.0f} days" if days < 1e5 else f"{days / 365.25:.0e} years"


class Inputs(NamedTuple):
    """The clique tree as the kernels read it. C cliques, I inputs (fields, tables, messages)."""

    card: NDArray[np.int32]  # (V,)
    clique_ptr: NDArray[np.int64]  # (C+1,)
    clique_var: NDArray[np.int32]
    n_res: NDArray[np.int32]  # (C,) variables eliminated here, the clique's first
    message: NDArray[np.int64]  # (C+1,) where each clique's message lies among the values
    in_ptr: NDArray[np.int64]  # (C+1,) inputs of each clique
    in_src: NDArray[np.int64]  # (I,) where an input's entries lie among the values
    in_out: NDArray[np.int64]  # (I,) where its marginal goes, or -1
    in_child: NDArray[np.int64]  # (I,) the child that sends it, or -1
    in_scope: NDArray[np.int64]  # (I,) where its scope begins
    in_arity: NDArray[np.int64]  # (I,)
    scope: NDArray[np.int32]  # the tables' scopes, then clique_var
    n_scope: int  # where clique_var begins in scope
    n_out: int  # entries of the result; scratch lies behind


class Passed(NamedTuple):
    probs: NDArray[np.float64]  # (sum S,)
    log_z: float
    joints: NDArray[np.float64]  # the tables' marginals end to end, if asked for


class Collected(NamedTuple):
    """A tree whose messages to the roots have been sent."""

    inputs: Inputs
    values: NDArray[np.float64]  # fields, tables, messages, and room for bundles
    scale: NDArray[np.float64]  # (C,)
    room: int  # entries of a result, with its scratch


def collect_messages(
    flat: Flat,
    tree: CliqueTree,
    look: Callable[[int], None],
    maximal: NDArray[np.bool_] | None = None,
    *,
    joints: bool = False,
    impossible: bool = False,
) -> Collected:
    """The first pass; ``look`` is called with the cliques that are done, now and then.

    ``maximal`` (C,): cliques whose own variables are maximised. ``joints``: marginals of tables
    will be wanted. ``impossible``: nothing may be left, by intention.
    """
    from minfer.kernels.cliques.streamed import SPARE, collect

    inputs = lay_out_inputs(flat, tree, joints)
    n_states = len(flat.field)
    spare = SPARE if tree.largest > 11.0 else 0  # small cliques have nothing to bundle
    values = np.empty(int(inputs.message[-1]) + spare)
    values[:n_states] = flat.field
    values[n_states : n_states + len(flat.log_psi)] = flat.log_psi
    scale = np.zeros(len(tree.parent))
    if maximal is None:
        maximal = np.zeros(len(tree.parent), dtype=np.bool_)
    for first, stop in slices_of(tree):
        look(first)
        if collect(inputs, first, stop, values, scale, maximal) >= 0 and not impossible:
            raise ContradictionError(NOTHING_POSSIBLE)
    return Collected(inputs, values, scale, inputs.n_out + int(tree.scratch_cells) + spare)


def _collected(
    model: Conditioned, tree: CliqueTree, joints: bool, deadline: float = math.inf
) -> tuple[Collected, float, NDArray[np.int64]]:
    """The first pass of a model; log Z; the tables' sizes, if their marginals are wanted."""
    flat, constant = _scaled(flatten(model), model)
    constant += float(model.field[model.fixed_at].sum())
    found = collect_messages(flat, tree, lambda _: check_clock(deadline), joints=joints)
    return found, constant + float(found.scale.sum()), flat.sizes if joints else _NO_SIZES


def pass_messages(
    model: Conditioned, tree: CliqueTree, joints: bool = False, deadline: float = math.inf
) -> Passed:
    """Run both passes; with ``joints`` also the marginals of the tables, ordered as flattened."""
    from minfer.kernels.cliques.streamed import distribute

    found, log_z, sizes = _collected(model, tree, joints, deadline)
    out = np.zeros(found.room)
    for first, stop in reversed(slices_of(tree)):
        check_clock(deadline)
        distribute(found.inputs, first, stop, found.values, found.scale, out)
    out[model.fixed_at] = 1.0
    probs, tables = np.split(out[: found.inputs.n_out], [len(model.field)])
    probs = normalised(probs, model.graph._offsets)
    return Passed(probs, log_z, normalised(tables, ends(sizes)))


def pass_means(
    model: Conditioned, tree: CliqueTree, direction: NDArray[np.float64], joints: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How the marginals, and those of the tables end to end, if asked for, move when the field
    moves along a direction (sum S,), centred by them."""
    from minfer.kernels.cliques.streamed import collect_means, distribute_means

    found, _, sizes = _collected(model, tree, joints)
    inputs, values, scale = found.inputs, found.values, found.scale
    means = np.zeros(len(values))
    means[: len(direction)] = direction
    for first, stop in slices_of(tree):
        collect_means(inputs, first, stop, values, means, scale)
    out, moments = np.zeros(found.room), np.zeros(found.room)
    for first, stop in reversed(slices_of(tree)):
        distribute_means(inputs, first, stop, values, means, scale, out, moments)
    n_states = len(model.field)
    probs = _balanced(moments[:n_states], out[:n_states], model.graph._offsets)
    cut = slice(n_states, inputs.n_out)
    return probs, _balanced(moments[cut], out[cut], ends(sizes))


def _balanced(
    moments: NDArray[np.float64], mass: NDArray[np.float64], starts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Derivatives of probabilities, from p T and p of each, that add up to zero in each part."""
    if not len(moments):
        return moments.copy()
    sizes = np.diff(starts)
    total, moment = (np.add.reduceat(a, starts[:-1]) for a in (mass, moments))
    total[total == 0.0] = 1.0  # of what is fixed
    shift = np.repeat(moment / total, sizes)
    return (moments - mass * shift) / np.repeat(total, sizes)


def _scaled(flat: Flat, model: Conditioned) -> tuple[Flat, float]:
    """Fields and tables scaled to maximum 0, if some are large; what that takes off all, and the
    model's constant."""
    if not _is_large(flat.field) and not _is_large(flat.log_psi):
        return flat, model.constant
    tables, which = np.unique(flat.toff, return_inverse=True)  # some share one
    field, own = _at_most_zero(flat.field, flat.off[:-1])
    log_psi, tops = _at_most_zero(flat.log_psi, tables)
    if max(np.abs(own).max(initial=0.0), np.abs(tops).max(initial=0.0)) <= _LARGE:
        return flat, model.constant
    taken = float(own[model.fixed < 0].sum() + tops[which].sum())
    return flat._replace(field=field, log_psi=log_psi), model.constant + taken


def _is_large(x: NDArray[np.float64]) -> bool:
    least = x.min(initial=0.0)
    if least == -np.inf:
        least = x[x > -np.inf].min(initial=0.0)
    return bool(max(x.max(initial=0.0), -least) > _LARGE)


def _at_most_zero(
    values: NDArray[np.float64], starts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Parts less their maxima, and these, 0 of parts without any."""
    if not len(starts):
        return values, np.zeros(0)
    tops = np.maximum.reduceat(values, starts)
    tops[tops == -np.inf] = 0.0
    return values - np.repeat(tops, np.diff(starts, append=len(values))), tops


def lay_out_inputs(flat: Flat, tree: CliqueTree, joints: bool = False) -> Inputs:
    """Lay out inputs by clique. ``joints``: marginals of the tables are wanted."""
    from minfer.kernels.cliques.streamed import place_inputs

    message = len(flat.field) + len(flat.log_psi) + ends(tree.separator_cells.astype(np.int64))
    in_ptr, source, out, child, where, arity, n_out = place_inputs(
        flat.off, flat.fptr, flat.toff, flat.sizes if joints else _NO_SIZES,
        tree.homes(flat.fptr, flat.scope), tree.ptr, tree.variables, tree.n_eliminated, tree.parent,
        message,
    )  # fmt: skip
    scope = np.concatenate([flat.scope, tree.variables])
    return Inputs(
        flat.card, tree.ptr, tree.variables, tree.n_eliminated, message, in_ptr, source, out,
        child, where, arity, scope, len(flat.scope), n_out,
    )  # fmt: skip


def slices_of(tree: CliqueTree, most: float = _SLICE_CELLS) -> list[tuple[int, int]]:
    """Ranges of cliques, of so many cells, between two looks at the clock."""
    if tree.cells <= most:
        return [(0, len(tree.parent))]
    which = (np.cumsum(tree.clique_cells) / most).astype(np.int64)
    stops = [*(np.flatnonzero(np.diff(which)) + 1).tolist(), len(which)]
    return list(zip([0, *stops[:-1]], stops))


def check_clock(deadline: float) -> None:
    if clock() > deadline:
        raise RefusedError(
            "Exact: the time limit passed before the answer was complete; raise time_limit, "
            "or use BeliefPropagation, which answers approximately"
        )


@dataclass(eq=False)
class CliqueTreeState:
    """Model and tree. The factors' marginals are computed, all at once, when one is asked for."""

    graph: FactorGraph
    model: Conditioned  # in tables, perhaps with auxiliary variables
    tree: CliqueTree
    probs: NDArray[np.float64]
    value: float
    _all: tuple[NDArray[np.float64], NDArray[np.int64]] | None = None

    def log_z(self) -> float:
        return self.value

    def factor(self, factor: int) -> NDArray[np.float64]:
        """Exact joint marginal over a factor's scope."""
        graph = self.graph
        factor = graph.factor_index(factor)
        shape = tuple(int(s) for s in graph._n_states[graph.scope(factor)])
        return self.factors(np.array([factor]))[0].reshape(shape)

    def factors(self, factors: NDArray[np.int64]) -> NDArray[np.float64]:
        """Exact joint marginals of factors of one shape, (n, cells)."""
        if self.graph.arity[factors[0]] == 0:
            return np.ones((len(factors), 1))
        return replace(self.model, graph=self.graph).joints(factors, self.probs, self._joints)

    def _joints(self, factors: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.float64]:
        if self._all is None:
            self._all = self._pass(self.model, self.tree), joint_starts(self.model)
        joints, first = self._all
        at = first[factors]
        if (at < 0).any():
            _check_cells(len(shape), n_entries(shape))
        found = np.empty((len(factors), math.prod(shape)))
        found[at >= 0] = joints[at[at >= 0][:, None] + np.arange(math.prod(shape))]
        for k in np.flatnonzero(at < 0):
            scope = self.graph.scope(int(factors[k]))
            found[k] = self._joint(scope[self.model.fixed[scope] < 0])
        return found

    def joint(self, variables: list[int]) -> NDArray[np.float64]:
        """Exact joint marginal of any variables: in a tree that holds them together."""
        fixed = self.model.fixed[variables]
        free = np.array(variables, dtype=np.int32)[fixed < 0]
        out = np.zeros([int(self.graph._n_states[v]) for v in variables])
        shape = tuple(int(self.graph._n_states[v]) for v in free)
        table = np.ones(())
        if len(free) == 1:
            lo = int(self.graph._offsets[free[0]])
            table = self.probs[lo : lo + shape[0]]
        elif len(free):
            table = self._joint(free).reshape(shape)
        out[tuple(int(f) if f >= 0 else slice(None) for f in fixed)] = table
        return out

    def _joint(self, free: NDArray[np.int32]) -> NDArray[np.float64]:
        """In a tree that covers these variables: of a factor that became a chain, or a constant."""
        shape = tuple(int(s) for s in self.graph._n_states[free])
        nothing = np.zeros((1, n_entries(shape)))
        extra = Tables(np.full(1, self.graph.n_factors), free[None, :], shape, nothing)
        model = replace(self.model, groups=(*self.model.groups, extra))
        tree = clique_tree(model)
        check_tree(tree)
        joints, at = self._pass(model, tree), joint_starts(model)[self.graph.n_factors]
        return joints[at : at + n_entries(shape)]

    def _pass(self, model: Conditioned, tree: CliqueTree) -> NDArray[np.float64]:
        """Joint marginals of all tables, end to end."""
        return pass_messages(model, tree, joints=True).joints


class MovedTree(CliqueTreeState):
    """A clique tree whose "marginals" are derivatives along a direction of the field."""

    direction: NDArray[np.float64]

    def _pass(self, model: Conditioned, tree: CliqueTree) -> NDArray[np.float64]:
        return pass_means(model, tree, self.direction, joints=True)[1]


def _check_cells(n_variables: int, n_cells: int) -> None:
    if n_cells > MAX_TABLE_CELLS:
        raise RefusedError(
            f"Exact: a joint marginal over {n_variables} unobserved variables is too large "
            f"({MAX_TABLE_CELLS:,} cells); ask for those of the variables"
        )


def joint_starts(model: Conditioned) -> NDArray[np.int64]:
    """Where each factor's joint marginal begins (F,) among those of all tables; -1: nowhere."""
    ids, begin = model.arrays.scopes.ids, ends(model.arrays.sizes)[:-1]
    first = np.full(max(model.graph.n_factors, int(ids.max(initial=-1)) + 1), -1)
    own = ids >= 0  # not those of chains
    first[ids[own]] = begin[own]
    return first
