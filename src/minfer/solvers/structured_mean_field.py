"""Structured mean field: blocks of variables that keep their dependencies, independent of others.

    q(x) = prod_b q_b(x_b),      log Z >= sum_f E_q[log psi_f] + sum_b H(q_b)

Blocks are disjoint. Each in turn takes the best distribution given the others,

    q_b(x_b)  proportional to  exp( sum_f E_{q of the others}[ log psi_f(x_b, others) ] ),

an exact answer on its own factors and on what is left of those that cross (Saul & Jordan 1996,
"Exploiting tractable substructures in intractable networks", NIPS; Wiegerinck 2000). The bound
never falls. With single variables as blocks this is naive mean field; with one block it is exact.

By default a block is a forest: each variable joins the block to which its factors are the strongest
among those where it closes no cycle. Variables that share a factor with zeros always go together,
since a product must not give mass to what is forbidden.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import brief, check_settings, check_whole, unique_rows
from minfer.basics.limits import clock, deadline_of, start_clock
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import CliqueTree, clique_tree
from minfer.engine.layout import ranges
from minfer.engine.support import lift, without_least
from minfer.errors import RefusedError, SettingsError
from minfer.factors.group import FactorGroup, components
from minfer.factors.tables import Tables
from minfer.graph import FactorGraph
from minfer.solvers.base import LogZ, Marginals, Solver, Status, check_start
from minfer.solvers.clique_passes import pass_messages
from minfer.solvers.independent import softmax
from minfer.solvers.irreducible import tied_parts
from minfer.solvers.prepared import Preparable


@dataclass(frozen=True)
class StructuredMeanField(Preparable):
    """Mean field with trees, or given clusters of variables, as blocks.

    Parameters
    ----------
    blocks : sequence of sequences of variables, optional
        By number or name, disjoint; each is solved exactly. Variables in none are blocks of their
        own. None: forests, chosen here.
    max_iters : int
        Sweeps over the blocks.
    tol : float
        Stop once a sweep moves no probability by more than this, and after it no update of one
        block would.
    time_limit : float or None
        Seconds after which the best answer so far is returned with status ``time limit``.
    max_cells : int
        Maximum cells of a part: of all cliques of a block or window, or of a cluster. A block that
        has more is refused.

    Notes
    -----
    log Z is a lower bound, never below that of the sweep before. ``start`` (any earlier answer for
    a graph with the same variables) gives the first q.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import Exact, FactorGraph, MeanField, StructuredMeanField
    >>> grid = FactorGraph.grid(np.linspace(-1, 1, 16).reshape(4, 4), 1.0)
    >>> [round(s(grid).log_z, 1) for s in (MeanField(), StructuredMeanField(), Exact())]
    [26.2, 26.7, 27.6]
    """

    blocks: Sequence[Sequence[int | str]] | None = None
    _: KW_ONLY
    max_iters: int = 1000
    tol: float = 1e-6
    time_limit: float | None = None
    max_cells: int = 2**26

    def __post_init__(self) -> None:
        check_settings(self.max_iters, self.tol, 0.0, self.time_limit)
        check_whole("max_cells", self.max_cells)
        if self.blocks is not None:
            try:
                given = tuple(tuple(block) for block in self.blocks)
            except TypeError:
                raise SettingsError(
                    "blocks must be a list of lists of variables, such as [[0, 1], [2]], not "
                    f"{brief(self.blocks)}"
                ) from None
            object.__setattr__(self, "blocks", given)

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        begin = start_clock(self.time_limit)
        check_start(start)
        model = only_tables(condition(graph), "StructuredMeanField")
        return _BlockAscent(self, graph, model, start, begin).answer()

    def _in_parts(self, graph: FactorGraph, parts: Sequence[Any]) -> list[Solver]:
        """Itself for each part of a graph, with what given blocks have of its variables."""
        if self.blocks is None:
            return [self for _ in parts]
        block_of = _block_of(graph, self.blocks)
        out: list[Solver] = []
        for part in parts:
            mine: dict[int, list[int]] = defaultdict(list)
            for v, b in enumerate(block_of[part.variables].tolist()):
                mine[b].append(v)
            mine.pop(-1, None)
            out.append(replace(self, blocks=tuple(mine.values())))
        return out


class _Touching(NamedTuple):
    """Rows of a group of factors that lie in the same way to a block."""

    group: int
    rows: NDArray[np.int64]
    inside: tuple[int, ...]  # positions in the block
    others: tuple[tuple[int, ...], ...]  # positions in other blocks, those of one together
    last: NDArray[np.bool_]  # (rows,) whether no later block has a variable of it


class _Block(NamedTuple):
    variables: NDArray[np.int64]
    states: NDArray[np.int64]  # where their states lie among all
    parts: list[_Touching]
    model: Conditioned
    tree: CliqueTree


class _BlockAscent:
    """One run: q by variable, and by factor where a block holds several of its variables."""

    def __init__(
        self,
        settings: StructuredMeanField,
        graph: FactorGraph,
        model: Conditioned,
        start: Marginals | None,
        begin: float,
    ) -> None:
        self.settings, self.graph, self.model, self.begin = settings, graph, model, begin
        self.deadline = deadline_of(settings.time_limit, clock())
        self.card = model.graph._n_states.astype(np.int64)
        self.off = model.graph._offsets
        self.tables = [g.log_tables() for g in model.groups]
        labels = self._given() if settings.blocks is not None else forests(model, self.tables)
        self.q, _ = softmax(model)
        if start is not None and np.array_equal(start.graph._n_states, graph._n_states):
            self.q[: len(start.probs)] = without_least(start.probs)
        self.joints: dict[tuple[int, tuple[int, ...]], NDArray[np.float64]] = {}
        self.blocks = [self._block(b, labels) for b in range(int(labels.max(initial=-1)) + 1)]
        self.value = np.full(len(self.blocks), -np.inf)  # log Z_b less what crosses
        self.crossing = np.zeros(len(self.blocks))  # E_q of the factors that end here
        self.constant = model.constant + float(model.field[model.fixed_at].sum())

    def _given(self) -> NDArray[np.int64]:
        """The block of each variable, -1 where it is fixed."""
        own, n = self.graph.n_variables, self.model.graph.n_variables
        labels = np.full(n, -1, dtype=np.int64)
        blocks = self.settings.blocks or ()
        labels[:own] = _block_of(self.graph, blocks)
        rest = np.flatnonzero(labels[:own] < 0)
        labels[rest] = len(blocks) + rest
        labels[self.model.fixed >= 0] = -1
        self._label_chains(labels)
        for g, table in zip(self.model.groups, self.tables):
            hard = np.isneginf(table).any(axis=1)
            crossing = (labels[g._scope] != labels[g._scope][:, :1]).any(axis=1)
            if (hard & crossing).any():
                row = int(np.flatnonzero(hard & crossing)[0])
                raise self._crossing("a factor with zeros", g._scope[row])
        used = np.unique(labels[labels >= 0])
        labels[labels >= 0] = np.searchsorted(used, labels[labels >= 0])
        return labels

    def _label_chains(self, labels: NDArray[np.int64]) -> None:
        """Auxiliary variables go to the block of the variables of their chain."""
        own, n = self.graph.n_variables, self.model.graph.n_variables
        if own == n:
            return
        scopes = [s for g in self.model.groups for s in g._scope.tolist() if max(s) >= own]
        links = np.array([(max(s), v) for s in scopes for v in s if v >= own])
        chain = components(n, *links.T)
        members: dict[int, list[int]] = defaultdict(list)
        for scope in scopes:
            members[chain[max(scope)]] += [v for v in scope if v < own]
        for c, variables in members.items():
            if len(set(labels[variables].tolist())) > 1:
                raise self._crossing("a logical factor too wide for a table", sorted(variables))
            labels[own:][chain[own:] == c] = labels[variables[0]]

    def _crossing(self, what: str, scope: Iterable[int]) -> RefusedError:
        names = ", ".join(self.graph.name(int(v)) for v in scope)
        return RefusedError(
            f"StructuredMeanField: {what} over {names} crosses the blocks; put its variables into "
            "one, or use BeliefPropagation"
        )

    def _block(self, b: int, labels: NDArray[np.int64]) -> _Block:
        mine = np.flatnonzero(labels == b)
        number = np.full(len(labels), -1, dtype=np.int32)
        number[mine] = np.arange(len(mine))
        parts: list[_Touching] = []
        groups: list[FactorGroup] = []
        for k, g in enumerate(self.model.groups):
            of = labels[g._scope]
            touching = np.flatnonzero((of == b).any(axis=1))
            if not len(touching):
                continue
            first = (of[touching][:, :, None] == of[touching][:, None, :]).argmax(axis=2)
            key = np.concatenate([first, of[touching] == b], axis=1)
            patterns, which = unique_rows(key)
            for p, pattern in enumerate(patterns):
                rows = touching[which == p]
                where, inside = pattern[: g.arity], pattern[g.arity :].astype(bool)
                sets = defaultdict(list)
                for a in np.flatnonzero(~inside).tolist():
                    sets[int(where[a])].append(a)
                last = of[rows].max(axis=1) == b
                others = tuple(tuple(s) for s in sets.values())
                part = _Touching(k, rows, tuple(np.flatnonzero(inside).tolist()), others, last)
                parts.append(part)
                for s in (part.inside, *others):
                    if len(s) > 1 and (k, s) not in self.joints:
                        joint = np.ones((len(g), 1))
                        for a in s:
                            q = self._marginal(g._scope[:, a], g.shape[a])
                            joint = (joint[:, :, None] * q[:, None, :]).reshape(len(g), -1)
                        self.joints[k, s] = joint
                if len(part.inside) > 1:
                    shape = tuple(g.shape[a] for a in part.inside)
                    scope = number[g._scope[rows][:, part.inside]]
                    none = np.full(len(rows), -1, dtype=np.int64)
                    groups.append(
                        Tables(none, scope, shape, np.zeros((len(rows), math.prod(shape))))
                    )
        graph = FactorGraph.empty(self.card[mine])
        states = ranges(self.off[mine], self.card[mine])
        small = Conditioned(
            graph, 0.0, self.model.field[states], np.full(len(mine), -1, np.int32), tuple(groups)
        )
        most = self.settings.max_cells
        tree = clique_tree(small, float(most))
        if not tree.complete or tree.cells > most:
            raise RefusedError(
                f"StructuredMeanField: a block of {len(mine)} variables needs cliques of more than "
                f"{most:,} cells; give smaller blocks, raise max_cells, or use BeliefPropagation"
            )
        return _Block(mine, states, parts, small, tree)

    def _marginal(self, variables: NDArray, size: int) -> NDArray[np.float64]:
        return self.q[self.off[variables][:, None] + np.arange(size)]

    def _expected(self, part: _Touching) -> NDArray[np.float64]:
        """What is left of log psi over the positions inside, the others averaged, (rows, cells)."""
        g = self.model.groups[part.group]
        table = self.tables[part.group][part.rows]
        if not part.others:
            return table
        n = len(part.rows)
        table = table.reshape(n, *g.shape)
        order = [*part.inside]
        weight = np.ones((n, 1))
        for s in part.others:
            q = (
                self.joints[part.group, s][part.rows]
                if len(s) > 1
                else self._marginal(g._scope[part.rows, s[0]], g.shape[s[0]])
            )
            weight = (weight[:, :, None] * q[:, None, :]).reshape(n, -1)
            order += s
        moved = table.transpose(0, *(a + 1 for a in order))
        flat = moved.reshape(n, -1, weight.shape[1])
        return np.einsum("nij,nj->ni", flat, weight)

    def update(self, b: int) -> float:
        """The best q of block b given the others; how far it moved."""
        block = self.blocks[b]
        field = self.model.field[block.states].copy()
        local = block.model.graph._offsets
        number = np.full(len(self.card), -1, dtype=np.int64)
        number[block.variables] = np.arange(len(block.variables))
        left = [self._expected(part) for part in block.parts]
        groups: list[FactorGroup] = []
        given = iter(block.model.groups)
        for part, table in zip(block.parts, left):
            if len(part.inside) > 1:
                shell = next(given)
                assert isinstance(shell, Tables)
                groups.append(shell.replace(_log_psi=np.ascontiguousarray(table)))
            else:
                scope = self.model.groups[part.group]._scope[part.rows, part.inside[0]]
                at = local[number[scope]][:, None] + np.arange(table.shape[1])
                np.add.at(field, at, table)
        found = pass_messages(
            replace(block.model, field=field, groups=tuple(groups)), block.tree, joints=True
        )
        moved = float(np.abs(found.probs - self.q[block.states]).max(initial=0.0))
        self.q[block.states] = found.probs
        at = 0
        value, crossing = found.log_z, 0.0
        for part, table in zip(block.parts, left):
            if len(part.inside) > 1:
                joint = found.joints[at : at + table.size].reshape(table.shape)
                at += table.size
                self.joints[part.group, part.inside][part.rows] = joint
            else:
                scope = self.model.groups[part.group]._scope[part.rows, part.inside[0]]
                joint = self._marginal(scope, table.shape[1])
            if part.others:
                each = (joint * table).sum(axis=1)
                value -= float(each.sum())
                crossing += float(each[part.last].sum())
        self.value[b], self.crossing[b] = value, crossing
        return moved

    def would_move(self, b: int) -> float:
        """How far the best q of block b is from the one it has, which stays."""
        block = self.blocks[b]
        inside = [part for part in block.parts if len(part.inside) > 1]
        q, value, crossing = self.q[block.states].copy(), self.value[b], self.crossing[b]
        joints = [self.joints[part.group, part.inside][part.rows].copy() for part in inside]
        moved = self.update(b)
        self.q[block.states], self.value[b], self.crossing[b] = q, value, crossing
        for part, joint in zip(inside, joints):
            self.joints[part.group, part.inside][part.rows] = joint
        return moved

    def bound(self) -> float:
        """The lower bound on log Z, less what rounding may have added."""
        terms = np.concatenate([self.value, self.crossing, [self.constant]])
        size = float(np.abs(terms).sum()) + len(self.q)
        size += sum(float(np.abs(t[np.isfinite(t)]).max(initial=0.0)) for t in self.tables)
        return float(terms.sum()) - 64 * float(np.finfo(float).eps) * size

    def answer(self) -> Marginals:
        planned = clock()
        residuals: list[float] = []
        bounds: list[float] = []
        status = Status.MAX_ITERS
        each, tol = range(len(self.blocks)), self.settings.tol
        while len(bounds) < self.settings.max_iters:
            residuals.append(max([self.update(b) for b in each], default=0.0))
            bounds.append(self.bound())
            still = len(self.blocks) <= 1
            if not still and residuals[-1] <= tol:
                still = all(self.would_move(b) <= tol for b in each)
            if still:
                status = Status.CONVERGED
                break
            if clock() > self.deadline:
                status = Status.TIME_LIMIT
                break
        kind = LogZ.LOWER
        if len(self.blocks) <= 1:
            status, kind = Status.EXACT, LogZ.EXACT
        probs = self.q.copy()
        probs[np.repeat(self.model.fixed >= 0, self.card)] = 0.0
        probs[self.model.fixed_at] = 1.0
        if status is not Status.EXACT:
            lift(self.model, probs)
        value = float(self.value.sum() + self.constant) if kind is LogZ.EXACT else bounds[-1]
        return Marginals(
            self.graph, probs[: int(self.graph._offsets[-1])], self.settings, status, kind,
            iterations=len(bounds), residuals=np.array(residuals),
            timings={"plan": planned - self.begin, "iterate": clock() - planned},
            note=f"{len(self.blocks):,} blocks",
            state=StructuredState(value, np.array(bounds), self.graph, self.model, self._inside()),
        )  # fmt: skip

    def _inside(self) -> dict[int, NDArray[np.float64]]:
        """Joint marginals of the factors whose free variables are in one block, by number."""
        out: dict[int, NDArray[np.float64]] = {}
        for block in self.blocks:
            for part in block.parts:
                if not part.others:
                    g = self.model.groups[part.group]
                    for i, joint in zip(
                        g._ids[part.rows].tolist(), self.joints[part.group, part.inside][part.rows]
                    ):
                        if i >= 0:
                            out[i] = joint.reshape(g.shape)
        return out


@dataclass(frozen=True, eq=False)
class StructuredState:
    """The bound, how it rose, and the joints within blocks."""

    value: float
    bounds: NDArray[np.float64]  # (iterations,)
    graph: FactorGraph
    model: Conditioned
    inside: dict[int, NDArray[np.float64]]

    def log_z(self) -> float:
        return self.value

    def factor(self, factor: int) -> NDArray[np.float64] | None:
        """Joint marginal of a factor within a block; None of one that crosses."""
        i = self.graph.factor_index(factor)
        joint = self.inside.get(i)
        if joint is None:
            return None
        return replace(self.model, graph=self.graph).expand(i, joint)


def forests(model: Conditioned, tables: list[NDArray[np.float64]]) -> NDArray[np.int64]:
    """The block of each variable, -1 where it is fixed: forests of units that hard factors join."""
    n = model.graph.n_variables
    unit = tied_parts(n, model.arrays.hard).tolist()
    near: dict[int, dict[int, float]] = defaultdict(dict)
    for g, table in zip(model.groups, tables):
        if not table.size:
            continue
        finite = np.isfinite(table)
        strength = np.where(finite, table, -np.inf).max(axis=1) - np.where(
            finite, table, np.inf
        ).min(axis=1)
        for scope, s in zip(g._scope.tolist(), strength.tolist()):
            units = {unit[v] for v in scope}
            for a in units:
                for b in units:
                    if a != b:
                        near[a][b] = near[a].get(b, 0.0) + s
    labels = np.full(n, -1, dtype=np.int64)
    block_of: dict[int, int] = {}
    tree: dict[int, int] = {}  # of each unit, called as its first one
    members: dict[int, list[int]] = {}  # of each tree
    n_blocks = 0
    for v in range(n):
        u = unit[v]
        if model.fixed[v] >= 0 or u in block_of:
            continue
        pull: dict[int, float] = defaultdict(float)
        met: dict[int, list[int]] = defaultdict(list)
        for w, s in near[u].items():
            if w in block_of:
                pull[block_of[w]] += s
                met[block_of[w]].append(tree[w])
        open_ = [b for b in range(n_blocks) if len(set(met[b])) == len(met[b])]
        if not open_:
            n_blocks += 1
            open_ = [n_blocks - 1]
        b = max(open_, key=lambda b: (pull[b], -b))
        block_of[u] = b
        *others, home = sorted(met[b], key=lambda t: len(members[t])) or [u]
        joined = [u, *(w for t in others for w in members.pop(t))]
        members.setdefault(home, []).extend(joined)
        tree.update(dict.fromkeys(joined, home))
    for v in range(n):
        if model.fixed[v] < 0:
            labels[v] = block_of[unit[v]]
    return labels


def _block_of(graph: FactorGraph, blocks: Sequence[Sequence[int | str]]) -> NDArray[np.int64]:
    """The number of each variable's block, -1 of those in none, (V,)."""
    out = np.full(graph.n_variables, -1, dtype=np.int64)
    for b, block in enumerate(blocks):
        for name in block:
            v = graph.index(name)
            if out[v] >= 0:
                raise SettingsError(f"blocks: {graph.name(v)} is in two of them")
            out[v] = b
    return out
