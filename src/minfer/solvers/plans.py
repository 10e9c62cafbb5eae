"""One planner for questions: the part of a model that one is about, ready for any evidence.

A plan knows its targets and which variables will be observed. The observed ones are taken out of
the tree: their states select slices of tables (:mod:`minfer.solvers.row_plans`). One target needs
one pass, towards a clique that has it; marginals of each of several need both. The joint of several
is answered without a wider tree: all but one are conditioned on, a row for each of their states,

    P(t_1, ..., t_k | e)  ∝  Z(t_2, ..., t_k, e) P(t_1 | t_2, ..., t_k, e),

eight rows abreast. What plain numbers or the rows' memory cannot hold is solved in logarithms, row
by row, or refused with an estimate where it does not fit.

**Tables of cases** (:class:`Network`). Rows are grouped by their *observed set*. With ``check``,
parts that evidence cuts off from the targets stay, as components of their own: their mass is part
of P(e), which finds contradictions anywhere. A set has a plan of its own if planning takes less
time than its rows take by a plan that all share, in which the variables that some rows observe are
free and evidence enters as zeros, or if that is too wide to be made.

**Trees** (:func:`tree_for`). What is read off messages in numpy, without rows (best assignments,
samples, derivatives), needs a tree of what its evidence leaves, and so does a row that plain
numbers cannot hold. These are kept by the links between the variables that are left: other states
find the same tree, and evidence that decides more, by zeros, has one of its own.

Plans and trees are kept as long as their model, the last ones of each; and so are its copies in
which variables have been set (:func:`acted_on`), each with plans and trees of its own.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_graph
from minfer.engine.conditioning import condition
from minfer.engine.elimination import (
    Adjacency,
    CliqueTree,
    adjacency,
    links,
    order_in_two,
    tree_of,
    tree_over,
)
from minfer.engine.layout import flatten, ranges
from minfer.errors import ContradictionError, RefusedError
from minfer.factors.group import MAX_TABLE_CELLS
from minfer.graph import FactorGraph
from minfer.model.directed import intervened, intervention
from minfer.model.evidence import numbered
from minfer.solvers.pruning import PrunedPart, prune, whole_of

#: Variables of a question up to which a whole table may answer it.
MOST_TABLED = 16
#: Cells of all rows of one question, beyond which its joint comes from one wider tree.
MOST_ROW_CELLS = 2.0**28
#: Plans kept for each model, and cells of all of them: some 30 bytes each.
MOST_PLANS = 256
MOST_CELLS = 2.0**25
_BLOCK = 1 << 23  # numbers of marginals that are not asked for, held at a time
IMPOSSIBLE = (
    "every assignment has probability zero: the model's zeros and the evidence contradict each "
    "other"
)


class CliquePlan:
    """See the module. Numbers of variables are the part's own, but for those it is made with: rows
    have the states of ``observed``, weight those of ``soft`` or some observe them, and ``target``
    is the only one asked for; -1 for none at all, None for all."""

    def __init__(
        self,
        part: PrunedPart,
        observed: Iterable[int],
        soft: Iterable[int] = (),
        target: int | None = None,
        n_rows: int = 1,
    ) -> None:
        self.part = part
        self.place = {v: k for k, v in enumerate(part.variables.tolist())}
        self.observed = [self.place[v] for v in observed if v in self.place]
        flat, constant, self.fixed = part.flat, 0.0, np.zeros(0, dtype=np.int32)
        if flat is not None:
            free = np.ones(len(flat.card), dtype=bool)
        else:
            from minfer.engine.decomposition import only_tables

            model = only_tables(condition(part.graph))
            flat, constant, free = flatten(model), model.constant, model.fixed < 0
            if not free.all():
                self.fixed = model.fixed
        #: Observed variables, by the whole's numbers, that the model's zeros alone decide.
        self.decided = {
            int(part.variables[v]): int(self.fixed[v]) for v in self.observed if not free[v]
        }
        self.n_variables = len(part.variables)
        self.offsets = flat.off
        self.n_states = int(flat.off[self.n_variables])
        cut = np.zeros(len(free), dtype=bool)
        cut[self.observed] = True
        cut &= free
        self.target = -1 if target is None else self.place.get(target, -1)
        if self.target >= 0 and not free[self.target]:
            target, self.target = None, -1
        self.all = target is None
        from minfer.solvers.row_plans import MAX_CELLS, OneRow, RowPlan

        most = MAX_CELLS if n_rows == 1 else 4.0 * MAX_CELLS
        tree = tree_over(links(flat, ~cut & free, flat.card), len(free), most, n_rows)
        self.cells = tree.cells if tree.complete else math.inf
        entering = None
        if not self.all:
            entering = ~free
            if flat.field.any():
                entering |= np.add.reduceat(flat.field != 0.0, flat.off[:-1]) > 0
            entering[[self.place[v] for v in soft if v in self.place]] = True
        self.rows = RowPlan.make(flat, tree, cut, None if self.all else self.target, entering, most)
        self.rows.load(flat.log_psi, flat.field, constant)
        self.fits = self.rows.layout is not None
        self.single: OneRow | None = None
        self.order: list[int] = []  # what a single row has the states of, by the whole's numbers
        if self.fits and entering is not None and not (entering & cut).any():
            seen = [v for v in self.observed if cut[v]]
            self.single = OneRow(self.rows, seen)
            self.order = part.variables[seen].tolist()
        self.nothing_known = np.full((1, len(free)), -1, dtype=np.int32)

    def run(
        self, evidence: NDArray[np.int32], field: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rows of observed states (N, V), -1 where free, with log-weights to add (N, sum S).

        Probabilities, of the plan's one target or of all its variables, and log Z; NaN and minus
        infinity where impossible. A field of one row is that of all.
        """
        if len(self.fixed):  # what the model's zeros alone decide
            wrong = ((evidence >= 0) & (self.fixed >= 0) & (evidence != self.fixed)).any(axis=1)
            if wrong.any():
                instead = np.where(evidence >= 0, np.maximum(self.fixed, 0), -1).astype(np.int32)
                probs, log_z = self.run(np.where(wrong[:, None], instead, evidence), field)
                probs[wrong], log_z[wrong] = np.nan, -np.inf
                return probs, log_z
        if field is not None:
            if len(field) < len(evidence):
                field = np.repeat(field, len(evidence), axis=0)
            behind = int(self.offsets[-1]) - field.shape[1]  # those of auxiliary variables
            field = np.pad(field, ((0, 0), (0, behind))) if behind else field
        if not self.fits:
            return self._one_by_one(evidence, field)
        probs, log_z, unsafe, _ = self.rows.run(field, evidence)
        if unsafe[0] if len(unsafe) == 1 else unsafe.any():
            some = self._one_by_one(evidence[unsafe], None if field is None else field[unsafe])
            probs[unsafe, : some[0].shape[1]], log_z[unsafe] = some
        return probs, log_z

    def answer(self, known: NDArray[np.int32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The same of states of all variables of the whole (N, V)."""
        rows = known
        if len(self.part.variables) < known.shape[1]:
            rows = known.take(self.part.variables, axis=1)
        behind = self.nothing_known.shape[1] - rows.shape[1]
        if behind:
            rows = np.pad(rows, ((0, 0), (0, behind)), constant_values=-1)
        return self.run(rows)

    def _one_by_one(
        self, evidence: NDArray[np.int32], field: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """In logarithms, planned for what the states of each leave."""
        from minfer.engine.decomposition import only_tables
        from minfer.solvers.clique_passes import check_tree, pass_messages

        whole = self.part.graph
        mine = slice(self.n_states if self.all else 0)
        if self.target >= 0:
            mine = slice(*self.offsets[self.target : self.target + 2].tolist())
        probs = np.full((len(evidence), len(range(self.n_states)[mine])), np.nan)
        log_z = np.full(len(evidence), -np.inf)
        for k, states in enumerate(evidence):
            try:  # a state may be excluded by the field alone
                graph = self.with_evidence(states, None if field is None else field[k])
                model = only_tables(condition(graph))
                tree = tree_for(whole, adjacency(model), model.graph.n_variables)
                check_tree(tree)
                found = pass_messages(model, tree)
            except ContradictionError:
                continue
            probs[k], log_z[k] = found.probs[mine], found.log_z
        return probs, log_z

    def with_evidence(
        self, states: NDArray[np.int32], field: NDArray[np.float64] | None = None
    ) -> FactorGraph:
        """The part with observed states, and perhaps a field, of one row."""
        graph = self.part.graph
        graph = graph if field is None else graph.tilt(field[: self.n_states])
        seen = np.flatnonzero(states[: graph.n_variables] >= 0).tolist()
        return graph.with_evidence({v: int(states[v]) for v in seen})

    def row(self, hard: Mapping[int, int]) -> NDArray[np.int32]:
        """States by the whole's numbers as a row (1, V); those outside of the part are left out."""
        row = self.nothing_known.copy()
        for v, state in hard.items():
            if v in self.place:
                row[0, self.place[v]] = state
        return row

    def joint(
        self, targets: list[int], row: NDArray[np.int32], field: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], float]:
        """Table over the first of the (free) targets and the others, which the plan observes: rows
        have all their states. And log Z."""
        first, others = targets[0], targets[1:]
        sizes = [int(self.offsets[v + 1] - self.offsets[v]) for v in targets]
        n = math.prod(sizes[1:])
        rows = np.repeat(row, n, axis=0)
        if others:
            rows[:, others] = np.indices(sizes[1:]).reshape(len(others), n).T
        probs, log_z = self.run(rows, field)
        lo = int(self.offsets[first]) if self.all else 0
        table = np.nan_to_num(probs[:, lo : lo + sizes[0]])
        top = float(log_z.max())
        if top == -np.inf:
            raise ContradictionError(IMPOSSIBLE)
        table *= np.exp(log_z - top)[:, None]
        total = float(table.sum())
        table /= total
        return table.reshape(*sizes[1:], sizes[0]), top + math.log(total)


# ---------------------------------------------------------------- the planner


class Kept(NamedTuple):
    plans: OrderedDict[Any, Any]
    asked: dict[Any, Any]  # questions as they were put; forgotten with any plan


KEPT: WeakKeyDictionary[FactorGraph, Kept] = WeakKeyDictionary()
#: Held while plans are kept or forgotten: questions may come from several threads.
_LOCK = Lock()


def kept_of(graph: FactorGraph) -> Kept:
    """What is kept of a model as long as it is there."""
    with _LOCK:
        return KEPT.setdefault(graph, Kept(OrderedDict(), {}))


def plan_for(
    graph: FactorGraph,
    targets: tuple[int, ...],
    observed: tuple[int, ...],
    soft: tuple[int, ...] = (),
    *,
    each: bool = False,
    whole: bool = False,
    check: bool = True,
    small: bool = False,
    n_rows: int = 1,
) -> Any:
    """A plan for P(targets | evidence on observed and soft); made once.

    Parameters
    ----------
    each : marginals of every variable that is left, instead of the targets' joint
    whole : leave out only what is barren, so that log Z is that of all
    check : keep parts that can contradict the evidence
    small : a table in place of a plan, where it is small; one target and nothing soft
    n_rows : how many rows there will be, about
    """

    def make() -> Any:
        if small:
            from minfer.solvers.joint_table import MOST_CELLS, AnswerTable

            # of a small model the whole table costs less than to ask what matters
            table = None
            if graph.n_variables <= MOST_TABLED:
                table = AnswerTable.of(whole_of(graph), targets[0], observed, MOST_CELLS)
            if table is not None:
                return table
        part = prune(graph, targets, observed, soft, whole=whole, check=check)
        if small and len(part.variables) <= MOST_TABLED:  # of all that P(evidence) depends on
            wide = part if part.whole else prune(graph, targets, observed, whole=True)
            table = AnswerTable.of(wide, targets[0], observed)
            if table is not None:
                return table
        known = set(observed)
        free = in_order(graph, [t for t in targets if t not in known])
        target = None if each else free[0] if free else -1
        seen = observed if each else (*observed, *free[1:])
        return CliquePlan(part, seen, soft, target, n_rows)

    return _made_once(graph, (targets, observed, soft, each, whole, check, small), make)


def part_for(
    graph: FactorGraph,
    targets: tuple[int, ...],
    observed: tuple[int, ...],
    soft: tuple[int, ...] = (),
    *,
    whole: bool = False,
    barren: bool = False,
) -> PrunedPart:
    """What :func:`~minfer.solvers.pruning.prune` leaves for such a question; made once."""
    key = "part", targets, observed, soft, whole, barren
    return _made_once(
        graph, key, lambda: prune(graph, targets, observed, soft, whole=whole, barren=barren)
    )


def tree_for(
    graph: FactorGraph,
    shape: Adjacency,
    n: int,
    last: NDArray[np.bool_] | None = None,
    seconds: float = math.inf,
) -> CliqueTree:
    """A tree of what evidence left of a model, ``n`` variables with auxiliary ones; made once.

    ``last``: see :func:`~minfer.engine.elimination.order_in_two`. A search that had only so many
    ``seconds`` may have found less than another one would, so what it found is not kept.
    """

    def make() -> _KeptTree:
        if last is not None:
            return _KeptTree(tree_of(order_in_two(shape, last), shape, n, last))
        return _KeptTree(tree_over(shape, n, seconds=seconds))

    told = sha256(b"" if last is None else last.tobytes())
    for array in shape:
        told.update(array.tobytes())
    whole = last is not None or seconds == math.inf
    return _made_once(graph, ("tree", n, told.digest()), make, keep=whole).tree


class _KeptTree(NamedTuple):
    tree: CliqueTree

    @property
    def cells(self) -> int:  # numbers that are kept
        return len(self.tree.variables)


class _Acted(NamedTuple):
    graph: FactorGraph

    @property
    def cells(self) -> float:  # of its own plans
        known = KEPT.get(self.graph)
        sizes = [plan.cells for plan in [*known.plans.values()]] if known is not None else []
        return sum(size for size in sizes if size < math.inf)


def acted_on(graph: FactorGraph, do: Any, evidence: Any = None) -> FactorGraph:
    """The model with what ``do`` sets (:meth:`FactorGraph.with_do`), beside evidence on others;
    made once. Itself where that is nothing."""
    if do is None:
        return graph
    hard, soft = numbered(graph, {} if evidence is None else evidence)
    if not (done := intervention(graph, do, (*hard, *soft))):
        return graph
    key = "do", *sorted(done.items())
    return _made_once(graph, key, lambda: _Acted(intervened(graph, done))).graph


def _made_once(graph: FactorGraph, key: Any, make: Callable[[], Any], keep: bool = True) -> Any:
    """What is kept of a model under a key."""
    plans = kept_of(graph).plans
    with _LOCK:
        plan = plans.get(key)
        if plan is not None:
            plans.move_to_end(key)
            return plan
    plan = make()
    if keep:
        with _LOCK:
            plans[key] = plan
            _forget(graph, plans)
    return plan


def _forget(graph: FactorGraph, plans: OrderedDict[Any, Any]) -> None:
    """Drop the oldest plans where there are too many, or too many cells; the newest stays."""
    sizes = [plan.cells if plan.cells < math.inf else 0.0 for plan in plans.values()]
    cells = sum(sizes)
    for size in sizes[:-1]:
        if len(plans) <= MOST_PLANS and cells <= MOST_CELLS:
            return
        plans.popitem(last=False)
        KEPT[graph].asked.clear()
        cells -= size


# ---------------------------------------------------------------- tables of cases


class RowAnswers(NamedTuple):
    """One line a row; in impossible rows probabilities are NaN and log P(e) is minus infinity."""

    probs: NDArray[np.float64]  # (N, states of the targets end to end)
    log_pe: NDArray[np.float64]  # (N,)

    @property
    def impossible(self) -> NDArray[np.bool_]:
        return self.log_pe == -np.inf


class Network:
    """A model ready for rows of evidence.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import FactorGraph
    >>> from minfer.solvers.plans import Network
    >>> g = FactorGraph.network({"a": 2, "b": 2}, {"a": [.5, .5], "b": ("a", [[.9, .1], [.2, .8]])})
    >>> Network(g).ask(np.array([[-1, 1], [-1, -1]]), [0]).probs.round(3).tolist()
    [[0.111, 0.889], [0.5, 0.5]]
    """

    def __init__(self, graph: FactorGraph) -> None:
        check_graph(graph, "predict")
        self.graph = graph

    def ask(
        self, evidence: NDArray, targets: Sequence[int], workers: int = 1, *, check: bool = True
    ) -> RowAnswers:
        """Posteriors of ``targets`` for rows of states (N, V), -1 where nothing is known.

        Without ``check`` what evidence cuts off from the targets is left out: log P(e) is NaN,
        minus infinity if the rest of the evidence alone is impossible.
        """
        out = self.solve(evidence, targets, workers, check=check)
        if not check:
            out.log_pe[out.log_pe > -np.inf] = np.nan
            return out
        out.log_pe[:] -= self.log_z
        np.minimum(out.log_pe, 0.0, out=out.log_pe)  # what rounding adds to one is no probability
        out.log_pe[(evidence < 0).all(axis=1)] = 0.0
        return out

    def fits(self, evidence: NDArray, targets: Sequence[int], check: bool = True) -> bool:
        """Whether one plan for all these rows is of ordinary size."""
        seen = evidence >= 0
        always, ever = np.asarray(seen.all(axis=0)), np.asarray(seen.any(axis=0))
        plan = self._plan(always, ever & ~always, tuple(targets), len(evidence), check)
        return bool(plan.fits)

    def solve(
        self, evidence: NDArray, targets: Sequence[int], workers: int = 1, *, check: bool = True
    ) -> RowAnswers:
        """The same with log Z of what was planned for in place of log P(e)."""
        known = np.ascontiguousarray(evidence, dtype=np.int32)
        asked = tuple(targets)
        groups = list(self._grouped(known, asked, check)) if len(known) else []
        if len(groups) == 1 and workers == 1 and known.size <= _BLOCK // 8:
            return self._lines(groups[0][0], known, asked)  # as they come
        width = int(self.graph._n_states[list(asked)].sum())
        out = RowAnswers(np.empty((len(known), width)), np.empty(len(known)))
        for plan, rows in groups:
            self._fill(plan, known, rows, asked, out, workers)
        return out

    def _fill(
        self,
        plan: CliquePlan,
        known: NDArray[np.int32],
        rows: NDArray[np.int64] | None,
        targets: tuple[int, ...],
        out: RowAnswers,
        workers: int,
    ) -> None:
        """The lines of some rows, or of all."""
        from minfer.solvers.row_plans import spread

        step = max(1024, _BLOCK // max(plan.rows.width, 1))

        def answer(begin: int, end: int) -> None:  # in a thread of its own
            for first in range(begin, end, step):
                past = min(first + step, end)
                some = slice(first, past) if rows is None else rows[first:past]
                out.probs[some], out.log_pe[some] = self._lines(plan, known[some], targets)

        spread(answer, len(known) if rows is None else len(rows), workers)

    @cached_property
    def log_z(self) -> float:
        """Of the model as it is: 0 for a network without evidence of its own."""
        plan = plan_for(self.graph, (), (), whole=True, check=False)
        found = float(plan.run(plan.nothing_known)[1][0])
        if found == -math.inf:
            raise ContradictionError("predict: every assignment of the model has probability zero")
        return found

    def _plan(
        self,
        observed: NDArray[np.bool_],
        sometimes: NDArray[np.bool_],
        targets: tuple[int, ...],
        n_rows: int,
        check: bool,
    ) -> CliquePlan:
        """For rows that all observe ``observed``, and may observe ``sometimes``."""
        seen, soft = (tuple(np.flatnonzero(x).tolist()) for x in (observed, sometimes))
        each = len(targets) > 1
        return plan_for(
            self.graph, targets, seen, soft, each=each, whole=check, check=False,
            n_rows=max(n_rows, 2),
        )  # fmt: skip

    def _grouped(
        self, known: NDArray[np.int32], targets: tuple[int, ...], check: bool
    ) -> Iterator[tuple[CliquePlan, NDArray[np.int64] | None]]:
        """Rows by the plan that answers them; None: all of them."""
        from minfer.solvers.row_plans import NS_PER_CELL, NS_PER_VARIABLE, observed_sets

        nobody = np.zeros(known.shape[1], dtype=bool)
        seen = known >= 0
        if len(known) == 1 or bool((seen == seen[0]).all()):
            yield self._plan(seen[0], nobody, targets, len(known), check), None
            return
        always, ever = np.asarray(seen.all(axis=0)), np.asarray(seen.any(axis=0))
        shared = self._plan(always, ever & ~always, targets, len(known), check)
        enough = 0.0
        if shared.fits:
            passes = 0.7 if len(targets) <= 1 else 1.7
            row = NS_PER_CELL * passes * max(shared.cells, 1.0)
            enough = NS_PER_VARIABLE * shared.n_variables / row
        rest = np.ones(len(known), dtype=bool)
        for mine in observed_sets(known, int(enough)):
            yield self._plan(seen[mine[0]], nobody, targets, len(mine), check), mine
            rest[mine] = False
        if rest.any():
            yield shared, None if rest.all() else np.flatnonzero(rest)

    def _lines(
        self, plan: CliquePlan, known: NDArray[np.int32], targets: tuple[int, ...]
    ) -> RowAnswers:
        """Rows by a plan: of its probabilities those asked for."""
        probs, log_z = plan.answer(known)
        if plan.all:
            where = np.array([plan.place[t] for t in targets], dtype=np.int64)
            columns = ranges(plan.offsets[where], np.diff(plan.offsets)[where])
            if len(columns) < plan.offsets[-1] or bool((np.diff(columns) != 1).any()):
                probs = probs.take(columns, axis=1)
        elif targets and plan.target < 0:  # always observed
            states = np.arange(int(self.graph._n_states[targets[0]]))
            possible = np.where(log_z > -np.inf, 1.0, np.nan)
            probs = (known[:, targets[0], None] == states) * possible[:, None]
        return RowAnswers(probs, log_z)


# ---------------------------------------------------------------- targets


def in_order(graph: FactorGraph, free: Iterable[int]) -> list[int]:
    """The target with most states first: it is the one that is not conditioned on."""
    return sorted(free, key=lambda t: -int(graph._n_states[t]))


def check_size(graph: FactorGraph, targets: tuple[int, ...]) -> int:
    """Cells of the joint of some variables; refused where it is too large to be written out."""
    cells = math.prod(int(graph._n_states[t]) for t in targets)
    if cells > MAX_TABLE_CELLS:
        raise RefusedError(
            f"query: the joint of these {len(targets)} variables has {cells:.3g} cells, but the "
            f"limit is {MAX_TABLE_CELLS:,}; ask for fewer of them, or for samples (minfer.sample)"
        )
    return cells
