"""One question planned: the part of the model it is about, ready for any evidence on its variables.

A plan knows its targets and which variables will be observed. The observed ones are taken out of
the tree: their states select slices of tables (:mod:`minfer.solvers.rows`). Several targets are
answered without a wider tree: all but one are conditioned on, a row for each of their states,

    P(t_1, ..., t_k | e)  ∝  Z(t_2, ..., t_k, e) P(t_1 | t_2, ..., t_k, e),

eight rows abreast. What plain numbers or the rows' memory cannot hold goes to ``Exact``, which
refuses with an estimate what does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.conditioning import condition
from minfer.decomposition import only_tables
from minfer.elimination import tree_over
from minfer.errors import ContradictionError, RefusedError
from minfer.factors.group import MAX_TABLE_CELLS
from minfer.graph import FactorGraph
from minfer.queries.pruning import Part, prune
from minfer.solvers.exact import Exact
from minfer.solvers.rows import MAX_CELLS, OneRow, RowPlan, flatten, links

_NO_NUMBERS, _NO_JOINTS = np.empty((0, 0)), np.empty((0, 0))
#: Cells of all rows of one question, beyond which its joint comes from one wider tree.
MOST_ROW_CELLS = 2.0**28
IMPOSSIBLE = (
    "every assignment has probability zero: the model's zeros and the evidence contradict each "
    "other"
)


class Rows(NamedTuple):
    """Answers of rows: of the plan's one target, or of all its variables."""

    probs: NDArray[np.float64]  # (N, its states or sum S); NaN where impossible
    log_z: NDArray[np.float64]  # (N,) minus infinity where impossible


class Plan:
    """See the module. All numbers of variables are the part's own.

    Parameters
    ----------
    observed : variables of the whole of which rows have the states
    soft : variables of the whole whose states rows weight
    target : of the whole, the only one asked for; -1 for none at all, None for all
    """

    def __init__(
        self,
        part: Part,
        observed: Iterable[int],
        soft: Iterable[int] = (),
        target: int | None = None,
    ) -> None:
        self.part = part
        self.place = {v: k for k, v in enumerate(part.variables.tolist())}
        self.observed = [self.place[v] for v in observed if v in self.place]
        self.known_states: dict[int, int] = {}
        flat, constant = part.flat, 0.0
        if flat is not None:
            free = np.ones(len(flat.card), dtype=bool)
        else:
            model = only_tables(condition(part.graph))
            flat, constant, free = flatten(model), model.constant, model.fixed < 0
            for v in self.observed:
                if not free[v]:
                    self.known_states[v] = int(model.fixed[v])
        self.n_variables = len(part.variables)
        self.offsets = flat.off
        self.n_states = int(flat.off[self.n_variables])
        cut = np.zeros(len(free), dtype=bool)
        cut[self.observed] = True
        cut &= free
        self.target = -1 if target is None else self.place.get(target, -1)
        if self.target >= 0 and not free[self.target]:
            target = None
            self.target = -1
        self.all = target is None
        tree = tree_over(links(flat, ~cut & free), len(free), MAX_CELLS)
        self.cells = tree.cells if tree.complete else math.inf
        self.rows: RowPlan | None = None
        self.single: OneRow | None = None
        self.order: list[int] = []  # what a single row has the states of, by the whole's numbers
        if tree.complete and tree.cells <= MAX_CELLS:
            if self.all:
                self.rows = RowPlan._make(flat, tree, cut)
            else:
                entering = ~free
                if flat.field.any():
                    entering |= np.add.reduceat(flat.field != 0.0, flat.off[:-1]) > 0
                entering[[self.place[v] for v in soft if v in self.place]] = True
                self.rows = RowPlan.one_pass(flat, tree, cut, entering, self.target)
            self.rows.load(flat.log_psi, flat.field, constant)
            self._arguments()
            if not self.all:
                self.single = OneRow(self.rows, [v for v in self.observed if cut[v]])
                numbers = part.variables.tolist()
                self.order = [numbers[v] for v in self.observed if cut[v]]
        self.nothing_known = np.full((1, len(free)), -1, dtype=np.int32)

    @property
    def graph(self) -> FactorGraph:
        """The part as a model of its own."""
        return self.part.graph

    def _arguments(self) -> None:
        """What every call of the kernel has, once."""
        from minfer.kernels.rows import run_rows

        assert self.rows is not None
        plan, numbers = self.rows, self.rows.numbers
        assert numbers is not None
        assert plan.given is not None
        flat, layout = plan.flat, numbers.layout
        self.before = (
            layout.nodes, layout.inputs, layout.tables, layout.slices, layout.picks, layout.maps,
            numbers.psi, numbers.shared, flat.card, flat.off, plan.given[1], numbers.field,
            layout.cut, numbers.table,
        )  # fmt: skip
        self.constant, self.answer = numbers.constant, layout.answer
        self.width, self.n_field = plan.width, len(plan.given[1])
        self.kernel = run_rows

    # ------------------------------------------------------------ answers

    def run(self, evidence: NDArray[np.int32], field: NDArray[np.float64] | None = None) -> Rows:
        """Rows of observed states (N, V), -1 where free, with log-weights to add (N, sum S)."""
        if self.rows is None:
            return self._one_by_one(evidence, field, np.arange(len(evidence)))
        n = len(evidence)
        probs, log_z, unsafe = np.empty((n, self.width)), np.empty(n), np.empty(n, dtype=np.bool_)
        given = _NO_NUMBERS if field is None else self._wide(field)
        self.kernel(
            *self.before, evidence, given, _NO_NUMBERS, self.constant, self.answer, probs, log_z,
            unsafe, _NO_JOINTS,
        )  # fmt: skip
        if unsafe[0] if n == 1 else unsafe.any():
            rows = np.flatnonzero(unsafe)
            some = self._one_by_one(evidence[rows], None if field is None else field[rows], rows)
            probs[rows, : some.probs.shape[1]], log_z[rows] = some
        return Rows(probs, log_z)

    def _wide(self, field: NDArray[np.float64]) -> NDArray[np.float64]:
        """Fields of auxiliary variables too."""
        if field.shape[1] == self.n_field:
            return field
        return np.pad(field, ((0, 0), (0, self.n_field - field.shape[1])))

    def _one_by_one(
        self, evidence: NDArray[np.int32], field: NDArray[np.float64] | None, rows: NDArray
    ) -> Rows:
        """In logarithms, planned for each."""
        mine = slice(self.n_states if self.all else 0)
        if self.target >= 0:
            mine = slice(*self.offsets[self.target : self.target + 2].tolist())
        probs = np.full((len(rows), len(range(self.n_states)[mine])), np.nan)
        log_z = np.full(len(rows), -np.inf)
        for k in range(len(rows)):
            try:  # a state may be excluded by the field alone
                graph = self.with_evidence(evidence[k], None if field is None else field[k])
                answer = Exact()(graph)
            except ContradictionError:
                continue
            probs[k], log_z[k] = answer.probs[mine], answer.log_z
        return Rows(probs, log_z)

    def with_evidence(
        self, states: NDArray[np.int32], field: NDArray[np.float64] | None = None
    ) -> FactorGraph:
        """The part with observed states, and perhaps a field, of one row."""
        graph = self.graph if field is None else self.graph.tilt(field[: self.n_states])
        seen = np.flatnonzero(states[: graph.n_variables] >= 0).tolist()
        return graph.with_evidence({v: int(states[v]) for v in seen})

    def check_known(self, row: NDArray[np.int32]) -> bool:
        """Whether observed states agree with what the model's zeros alone decide."""
        return all(row[v] in (-1, state) for v, state in self.known_states.items())

    # ------------------------------------------------------------ several targets

    def joint(
        self,
        targets: list[int],
        row: NDArray[np.int32],
        field: NDArray[np.float64] | None,
    ) -> tuple[NDArray[np.float64], float]:
        """Table over the first of the (free) targets and the observed others, and log Z.

        The others are observed by the plan: rows have all their states.
        """
        first, others = targets[0], targets[1:]
        sizes = [int(self.offsets[v + 1] - self.offsets[v]) for v in targets]
        n = math.prod(sizes[1:])
        rows = np.repeat(row, n, axis=0)
        if others:
            rows[:, others] = np.indices(sizes[1:]).reshape(len(others), n).T
        fine = np.ones(n, dtype=bool)
        for v, state in self.known_states.items():
            fine &= rows[:, v] == state
        table, log_z = np.zeros((n, sizes[0])), np.full(n, -np.inf)
        if fine.any():
            some = rows[fine]
            fields = None if field is None else np.repeat(field, len(some), axis=0)
            found = self.run(some, fields)
            lo = int(self.offsets[first]) if self.all else 0
            log_z[fine] = found.log_z
            table[fine] = np.nan_to_num(found.probs[:, lo : lo + sizes[0]])
        top = float(log_z.max())
        if top == -np.inf:
            raise ContradictionError(IMPOSSIBLE)
        table *= np.exp(log_z - top)[:, None]
        total = float(table.sum())
        table /= total
        return table.reshape(*sizes[1:], sizes[0]), top + math.log(total)


def plan_for(
    graph: FactorGraph,
    targets: tuple[int, ...],
    observed: tuple[int, ...],
    soft: tuple[int, ...],
    *,
    whole: bool = False,
    check: bool = True,
) -> Plan:
    """A plan for P(targets | evidence on observed and soft), the other targets conditioned on."""
    known = set(observed)
    free = [t for t in targets if t not in known]
    part = prune(graph, targets, observed, soft, whole=whole, check=check)
    if whole:
        return Plan(part, observed, soft)
    if not free:
        return Plan(part, observed, soft, -1)
    first, *others = in_order(graph, free)
    return Plan(part, [*observed, *others], soft, first)


def in_order(graph: FactorGraph, free: list[int]) -> list[int]:
    """The target with most states first: it is the one that is not conditioned on."""
    first = max(range(len(free)), key=lambda k: (int(graph._n_states[free[k]]), -k))
    return [free[first], *(t for k, t in enumerate(free) if k != first)]


def check_size(graph: FactorGraph, targets: tuple[int, ...]) -> int:
    """Cells of the joint of some variables; refused where it is too large to be written out."""
    cells = math.prod(int(graph._n_states[t]) for t in targets)
    if cells > MAX_TABLE_CELLS:
        raise RefusedError(
            f"query: the joint of these {len(targets)} variables has {cells:.3g} cells, but the "
            f"limit is {MAX_TABLE_CELLS:,}; ask for fewer of them, or for samples (minfer.sample)"
        )
    return cells
