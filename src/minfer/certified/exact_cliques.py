"""Exact: whole connected components by their clique trees, with a proven bound on the rounding.

The passes (:mod:`minfer.kernels.cliques.ranged_passes`) consist of sums, products and quotients of
non-negative numbers of unlimited range (:mod:`minfer.kernels.arithmetic.ranged`): rounding is
relative, and a positive number never becomes 0 unless the kernel says so, so a state is called
impossible only if zeros of the model make it so.

**The count of roundings.** A message up is a sum of products of its inputs. On the way back
top(s) / up(s) is what the rest of the tree sends: in top(s) = sum b(x) ..., every b(x) has the
*computed* up(s) as a factor, which the division takes out again, errors and all. So a marginal

    p(x_v) = sum of products of the tables / Z

meets every clique once in its numerator (in one direction or the other) and once in Z. In a clique
with i inputs, k variables and n cells that is a product of at most i + 2 numbers, a division, and
sums whose paths have at most n + (sum of the sizes of the variables) additions; every input counts
EXP roundings for its exponential, if it has one. Hence, over the cliques of the component,

    N = 2 sum_c ( (1 + EXP) i_c + 4 + n_c + sum of sizes_c )

and p is known up to a factor e^(+-t), t = gamma(N) + 2 A, where A is the sum over the component of
the absolute errors of the logarithms (``CertifiedTables.error``): every product of tables is off by
e^(+-A).

**When.** A component is solved once its cliques have at most ``budget`` cells for each variable
wanted there. Components are planned in packs: one clique forest for many, halved where it is too
wide. Planning is put off until the budget is worth it, unless the pack is nearly a tree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.certified.bounds import Bounds, Effort, Refining
from minfer.certified.local import LocalBounds
from minfer.certified.monotone import find_grid
from minfer.certified.rounding import EXP, U, down, gamma, up
from minfer.engine.conditioning import Conditioned
from minfer.engine.decomposition import only_tables, written
from minfer.engine.elimination import CliqueTree, links, tree_over
from minfer.engine.layout import Flat, ends, flatten, ranges
from minfer.errors import NOTHING_POSSIBLE, ContradictionError, RefusedError
from minfer.factors.group import FactorGroup, components
from minfer.kernels.arithmetic.ranged import exponentials
from minfer.kernels.cliques.ranged_passes import collect, distribute
from minfer.solvers.clique_passes import lay_out_inputs, slices_of

#: Cells of a tree (some seconds) and of its messages (a GiB), at most.
MOST_CELLS, MOST_MESSAGES = 2.0**28, 2.0**25
#: Orders that are worse by this are still finished: the search for better ones begins with one.
_SLACK = 16.0
#: Variables that are planned together, at least.
PACK = 2048
#: Planning n variables takes about so many units times n squared.
PLANNING = 16.0
#: Of more variables, all in one component, only what is nearly a tree is planned: it takes seconds.
MOST_PLANNED = 200_000
#: Grids of more rows and columns are not tried.
HOPELESS = 40
#: Units a cell takes in both passes.
PER_CELL = 16
#: Smaller probabilities are known by this bound only. (What the way back loses, less than 2^-800 a
#: cell, is nothing beside it.)
TINY = 1e-200
_SLICE = float(1 << 22)  # cells between two looks at the clock
#: Variables whose logarithms are less certain count as opaque.
MOST_ERROR = 0.01


class CertifiedTables(NamedTuple):
    """The model of a :class:`LocalBounds` in tables. V variables, auxiliary ones behind its own.

    What cannot be written so is left out, and its variables are *opaque*: nothing can be said of a
    region that has one inside.
    """

    flat: Flat
    n_own: int
    free: NDArray[np.bool_]  # (V,)
    opaque: NDArray[np.bool_]  # (V,)
    #: (V,) absolute error of the logarithms at each variable: its field's, its factors' tables',
    #: and what an exponential adds by its argument
    #: (:func:`minfer.kernels.arithmetic.ranged.exponentials`).
    error: NDArray[np.float64]

    @classmethod
    def of(cls, local: LocalBounds) -> CertifiedTables:
        n = local.n_variables
        model, left_out = _in_tables(local.model)
        flat = flatten(model)
        opaque = np.zeros(len(flat.card), dtype=bool)
        for g in left_out:
            opaque[g._scope.ravel()] = True
        free = model.fixed < 0
        opaque &= free
        error = np.zeros(len(flat.card))
        error[:n] = local.slack
        if len(flat.card):
            error += 4 * U * np.maximum.reduceat(_finite_sizes(flat.field), flat.off[:-1])
        if len(flat.toff):
            toff, which = np.unique(flat.toff, return_inverse=True)  # some are shared
            largest = np.maximum.reduceat(_finite_sizes(flat.log_psi), toff)[which.ravel()]
            by_place = np.repeat(4 * U * largest, np.diff(flat.fptr))
            error += np.bincount(flat.scope, by_place, minlength=len(error))
        opaque |= free & ~(error < MOST_ERROR)  # numbers so large that floats cannot tell sums
        return cls(flat, n, free, opaque, error)


def _finite_sizes(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(logs), np.abs(logs), 0.0)


def _in_tables(model: Conditioned) -> tuple[Conditioned, list[FactorGroup]]:
    """The model in tables, and the groups that cannot be written so."""
    left_out: list[FactorGroup] = []
    done: list[FactorGroup] = [g for g in model.groups if g.form == "table"]
    now = model
    for g in model.groups:
        if g.form == "table":
            continue
        try:
            if g.form == "messages":
                tables = [written(model, g, row) for row in range(len(g))]
                done += [t for t in tables if t.arity]
            else:
                now = only_tables(replace(now, groups=(g,)))
                done += now.groups
        except RefusedError:
            left_out.append(g)
    return replace(now, groups=tuple(done)), left_out


@dataclass(eq=False)
class Pack:
    """Some components."""

    components: NDArray[np.int64]
    variables: NDArray[np.int64]  # free ones, increasing
    tables: NDArray[np.int64]
    easy: bool  # nearly a tree
    tree: CliqueTree | None = None
    tried: float = 0.0  # cells up to which no tree was found
    over: bool = False  # solved, or hopeless


class ExactCliques:
    """See the module."""

    name = "exact"
    gradual = False

    def __init__(self) -> None:
        self._local: LocalBounds | None = None
        self._packs: list[Pack] = []

    def refine(self, now: Refining) -> bool:
        local, bounds, wanted, budget, effort = now
        if self._local is not local:
            self._prepare(local, effort)
        todo = list(reversed(self._packs))  # a stack: halves of a pack come before its successors
        kept: list[Pack] = []
        while todo:
            pack = todo.pop()
            if not pack.over and effort.go_on():
                n_wanted = int(wanted[pack.variables[pack.variables < len(wanted)]].sum())
                halves = self._visit(pack, bounds, n_wanted, budget, effort)
                if halves:
                    todo += reversed(halves)
                    continue
            kept.append(pack)
        self._packs = kept
        return any(not p.over for p in kept)

    def _prepare(self, local: LocalBounds, effort: Effort) -> None:
        self._local = local
        grid = find_grid(local)
        full = 2 * len(local.nbr) > 7 * local.n_variables  # nearly all pairs are there
        if grid is not None and full and min(grid[:2]) > HOPELESS:
            self._packs = []  # cliques would have 2^(shorter side) cells
            return
        self._tabled = t = CertifiedTables.of(local)
        n, flat = len(t.free), t.flat
        leaders = flat.scope[flat.fptr[:-1]]
        labels = components(n, np.repeat(leaders, np.diff(flat.fptr)), flat.scope).astype(np.int64)
        count = int(labels.max(initial=-1)) + 1
        effort.spend(8 * (n + len(flat.scope)))
        self._by_table = _sorted_by(labels[leaders], count)
        self._by_variable = _sorted_by(np.where(t.free, labels, count), count)
        hopeless = np.zeros(count, dtype=bool)
        hopeless[labels[t.opaque]] = True
        size = np.diff(self._by_variable[1])
        good = np.flatnonzero(~hopeless & (size > 0))
        end = np.cumsum(size[good])
        packs = np.split(good, np.flatnonzero(np.diff((end - size[good]) // PACK)) + 1)
        self._packs = [self._pack(p) for p in packs if len(p)]

    def _pack(self, chosen: NDArray[np.int64]) -> Pack:
        variables, tables = (
            np.sort(_members(*by, chosen)) for by in (self._by_variable, self._by_table)
        )
        fptr = self._tabled.flat.fptr
        n_links = int((fptr[tables + 1] - fptr[tables] - 1).sum())
        cycles = n_links - (len(variables) - len(chosen))
        return Pack(chosen, variables, tables, cycles <= 8 + len(variables) // 64)

    def _visit(
        self, pack: Pack, bounds: Bounds, n_wanted: int, budget: float, effort: Effort
    ) -> list[Pack]:
        """Plan and solve a pack if it is time; returns its halves where these are to be tried."""
        allowed = min(budget * n_wanted, MOST_CELLS)
        if not n_wanted or 2 * len(pack.variables) > allowed:
            return []
        if pack.tree is None:
            cost = PLANNING * len(pack.variables) * min(len(pack.variables), PACK)
            worth = budget * n_wanted >= cost * (4.0 if pack.tried else 1 / 16)
            if not (pack.easy or (worth and len(pack.variables) <= MOST_PLANNED)):
                return []
            if allowed < min(2 * pack.tried, MOST_CELLS):
                return []
            part = self._tabled.flat.part(pack.variables, pack.tables)
            n = len(part.card)
            tree = tree_over(links(part, np.ones(n, dtype=bool), part.card), n, _SLACK * allowed)
            effort.spend(cost)
            if len(pack.components) > 1 and not (tree.complete and tree.cells <= allowed):
                middle = len(pack.components) // 2
                pack.over = True
                return [self._pack(pack.components[:middle]),
                        self._pack(pack.components[middle:])]  # fmt: skip
            pack.tried = allowed
            pack.tree = tree if tree.complete else None
            too_large = tree.cells > MOST_CELLS or tree.message_cells > MOST_MESSAGES
            pack.over = too_large if tree.complete else allowed >= MOST_CELLS
            if pack.over:
                pack.tree = None
        if pack.tree is None or pack.tree.cells > allowed:
            return []
        self._solve(pack, bounds, effort)
        return []

    def _solve(self, pack: Pack, bounds: Bounds, effort: Effort) -> None:
        t = self._tabled
        part = t.flat.part(pack.variables, pack.tables)
        assert pack.tree is not None
        found = _marginals(part, pack.tree, effort)
        if found is None:
            return
        pack.over = True
        p, roundings = found
        # of each component: its own cliques and its own logarithms
        n = len(pack.components)
        which = np.repeat(np.arange(n), np.diff(self._by_variable[1])[pack.components])
        members = _members(*self._by_variable, pack.components)
        component = np.empty(len(pack.variables), dtype=np.int64)
        component[np.searchsorted(pack.variables, members)] = which
        count = np.bincount(component, roundings, minlength=n)
        error = np.bincount(component, t.error[pack.variables], minlength=n)
        spread = 1.02 * gamma(2 * count + 8) + 2.1 * error + 8 * U
        with np.errstate(over="ignore"):
            factor = np.exp(spread)[component]
        sizes = part.card
        for s in np.unique(sizes):
            mine = np.flatnonzero((sizes == s) & (pack.variables < t.n_own))
            q = p[part.off[mine][:, None] + np.arange(s)]
            low = np.where(q > TINY, down(down(q / factor[mine, None])), 0.0)
            high = np.where(q > 0, np.minimum(up(up(q * factor[mine, None])), 1.0), 0.0)
            tiny = np.minimum(2 * TINY * factor[mine, None], 1.0)
            high = np.where((q > 0) & (q <= TINY), tiny, high)
            bounds.offer(self.name, pack.variables[mine], low, high)


def _sorted_by(label: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Items by label, and where those of each of the labels 0..n-1 begin (n+1,)."""
    return np.argsort(label, kind="stable"), ends(np.bincount(label, minlength=n + 1)[:n])


def _members(
    order: NDArray[np.int64], ptr: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The items of some labels, label by label."""
    return order[ranges(ptr[labels], ptr[labels + 1] - ptr[labels])]


def _marginals(
    part: Flat, tree: CliqueTree, effort: Effort
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Marginals (sum S,), and roundings by the variable a clique eliminates; None: out of work."""
    n_states = len(part.field)
    inputs = lay_out_inputs(part, tree)
    inputs = inputs._replace(in_out=np.where(inputs.in_child >= 0, inputs.in_src, inputs.in_out))
    total = int(inputs.message[-1])
    m, e = np.zeros(total), np.zeros(total, dtype=np.int64)
    for begin, logs in ((0, part.field), (n_states, part.log_psi)):
        exponentials(logs, m[begin : begin + len(logs)], e[begin : begin + len(logs)])
    slices = slices_of(tree, _SLICE)
    for first, stop in slices:
        if not effort.go_on():
            return None
        if not collect(inputs, first, stop, m, e):
            raise ContradictionError(NOTHING_POSSIBLE)
        effort.spend(PER_CELL // 2 * tree.clique_cells[first:stop].sum())
    om, oe = np.zeros(total), np.zeros(total, dtype=np.int64)
    lossy = False
    for first, stop in reversed(slices):
        if not effort.go_on():
            return None
        lossy |= distribute(inputs, tree.parent, first, stop, m, e, om, oe)
        effort.spend(PER_CELL // 2 * tree.clique_cells[first:stop].sum())
    with np.errstate(under="ignore"):
        p = np.ldexp(om[:n_states], np.maximum(512 * oe[:n_states], -1500))
    possible = part.field > -np.inf if lossy else om[:n_states] > 0
    p = np.where(possible & (p < TINY), TINY, p)
    # roundings by clique, put down to one of the variables that are eliminated there
    states = ends(part.card[tree.variables])
    levels = states[tree.ptr[1:]] - states[tree.ptr[:-1]]
    count = (1 + EXP) * np.diff(inputs.in_ptr) + 4 + tree.clique_cells + levels
    roundings = np.zeros(len(part.card))
    roundings[tree.variables[tree.ptr[:-1]]] = count
    return p, roundings
