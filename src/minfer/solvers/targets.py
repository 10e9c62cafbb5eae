"""Posteriors of a few variables, or of all, for many rows of evidence: what matters, planned once.

Rows are grouped by their *observed set*, and a plan is made for a set (:mod:`minfer.solvers.rows`):

* **Barren parts go.** A table that is a conditional distribution sums to one over its child, so it
  is left out where neither the child nor anything below it is observed or asked for. What is left:
  the targets, what is observed, and all above them. Parts that evidence cuts off from the targets
  stay, as components of their own: their mass is part of P(e), which finds contradictions anywhere.
  Who does not want to know (``check=False``) saves them: they may be nearly all of a network.
* **Evidence selects slices**, so that observed variables are in no clique.
* **One target needs one pass**, towards a clique that has it; several, or all, need both.

Sets with few rows share a plan in which the variables that some of them observe are free and
evidence enters as zeros. The rule: a set has a plan of its own if planning takes less time than its
rows take by the shared plan, or if that is too wide to be made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.checks import check_graph
from minfer.conditioning import condition
from minfer.decomposition import only_tables
from minfer.directed import check_acyclic
from minfer.elimination import tree_over
from minfer.errors import ContradictionError, ModelError
from minfer.layout import cells, scopes
from minfer.solvers.rows import Flat, RowPlan, Rows, links, spread

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

#: Plans with more cells are not made: rows are solved singly, with cliques that are streamed.
MAX_CELLS = float(1 << 23)
NS_PER_CELL = 2.0  # the first pass, one row
NS_PER_VARIABLE = 45_000.0  # planning, measured: 33 to 55 thousand
MOST_PLANS = 256
MOST_KEPT_CELLS = float(1 << 26)  # of all plans that are kept
_BLOCK = 1 << 23  # numbers of marginals that are not asked for, held at a time


_LOCK = Lock()  # held while plans are kept or forgotten; of the module, so that networks pickle


class Answers(NamedTuple):
    """One line a row; in impossible rows probabilities are NaN and log P(e) is minus infinity."""

    probs: NDArray[np.float64]  # (N, states of the targets end to end)
    log_pe: NDArray[np.float64]  # (N,)

    @property
    def impossible(self) -> NDArray[np.bool_]:
        return self.log_pe == -np.inf


@dataclass(frozen=True, eq=False)
class _Plan:
    """What one observed set, or several, need."""

    variables: NDArray[np.int64]  # of the network, in the plan's order
    rows: RowPlan
    known: int  # the one target, if it is always observed, or -1
    columns: NDArray[np.int64] | None  # of the plan's probabilities, those asked for; None: all


class Network:
    """A model ready for questions: tables end to end, and which of them are conditional.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import FactorGraph
    >>> from minfer.solvers.targets import Network
    >>> g = FactorGraph.network({"a": 2, "b": 2}, {"a": [.5, .5], "b": ("a", [[.9, .1], [.2, .8]])})
    >>> Network(g).ask(np.array([[-1, 1], [-1, -1]]), [0]).probs.round(3).tolist()
    [[0.111, 0.889], [0.5, 0.5]]
    """

    def __init__(self, graph: FactorGraph) -> None:
        check_graph(graph, "predict")
        self.graph = graph
        groups, field, constant = graph.groups, graph.field, 0.0
        self.n_states, self.offsets = graph._n_states, graph._offsets
        plain = all(g.form == "table" for g in groups)
        if not plain:
            model = only_tables(condition(graph))
            groups, field, constant = model.groups, model.field, model.constant
            self.n_states, self.offsets = model.graph._n_states, model.graph._offsets
        constant += sum(float(g.log_tables().sum()) for g in groups if g.arity == 0)
        groups = tuple(g for g in groups if g.arity > 0)
        self.constant = constant
        self.flat = Flat(
            np.ascontiguousarray(self.n_states), self.offsets, np.array(field),
            *scopes(groups), *cells(groups),
        )  # fmt: skip
        self.has_field = np.add.reduceat(self.flat.field != 0.0, self.offsets[:-1]) > 0
        self.child = self._children() if plain else np.full(len(self.flat.ids), -1)
        self._plans: OrderedDict[tuple[bytes | bool, ...], _Plan] = OrderedDict()

    def _children(self) -> NDArray[np.int64]:
        """The child of each table that is a conditional distribution, -1 of others."""
        of = self.graph._child
        child = np.full(len(self.flat.ids), -1, dtype=np.int64)
        if of is None:
            return child
        child[:] = of[self.flat.ids]
        known = child[child >= 0]
        scope, fptr = self.flat.scope.tolist(), self.flat.fptr.tolist()
        parents = [
            [v for v in scope[fptr[f] : fptr[f + 1]] if v != child[f]]
            for f in np.flatnonzero(child >= 0)
        ]
        try:
            check_acyclic(self.graph, known.tolist(), parents)
        except ModelError:  # a variable with two such tables, or a cycle: no network
            child[:] = -1
        return child

    @cached_property
    def _uniform(self) -> NDArray[np.float64]:
        """log S of variables that nothing is said of but as parents, 0 of others.

        Where they are in a plan each of their states has probability 1/S, so that leaving them out
        where they are barren changes nothing.
        """
        _, needed = self._above
        own = np.zeros(len(self.n_states), dtype=bool)
        own[self.child[self.child >= 0]] = True
        return np.where(own | needed, 0.0, np.log(self.n_states))

    @cached_property
    def _above(self) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Each variable's parents; and what can never be left out."""
        scope, fptr = self.flat.scope.tolist(), self.flat.fptr.tolist()
        parents: list[list[int]] = [[] for _ in self.n_states]
        needed = self.has_field.copy()
        for f, child in enumerate(self.child.tolist()):
            mine = scope[fptr[f] : fptr[f + 1]]
            if child < 0:
                needed[mine] = True
            else:
                parents[child] = [v for v in mine if v != child]
        return parents, needed

    def relevant(self, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The variables that are not barren if ``wanted`` are observed or asked for."""
        parents, needed = self._above
        out = needed | wanted
        todo = np.flatnonzero(out).tolist()
        while todo:
            for p in parents[todo.pop()]:
                if not out[p]:
                    out[p] = True
                    todo.append(p)
        return out

    # ------------------------------------------------------------ questions

    def ask(
        self,
        evidence: NDArray[np.integer],
        targets: Sequence[int],
        workers: int = 1,
        *,
        check: bool = True,
    ) -> Answers:
        """Posteriors of ``targets`` for rows of states (N, V), -1 where nothing is known.

        Without ``check`` what evidence cuts off from the targets is left out: log P(e) is NaN,
        minus infinity if the rest of the evidence alone is impossible.
        """
        n, behind = len(evidence), len(self.n_states) - evidence.shape[1]
        known = np.ascontiguousarray(evidence, dtype=np.int32)
        if behind:
            known = np.pad(known, ((0, 0), (0, behind)), constant_values=-1)
        width = int(self.n_states[list(targets)].sum())
        out = Answers(np.empty((n, width)), np.empty(n))
        if n:
            for plan, rows in self._grouped(known, list(targets), check):
                self._answer(plan, known, rows, list(targets), out, workers)
        if not check:
            out.log_pe[out.log_pe > -np.inf] = np.nan
        elif self.log_z:
            out.log_pe[:] -= self.log_z
        if check:  # what rounding adds to one is not a probability
            np.minimum(out.log_pe, 0.0, out=out.log_pe)
            out.log_pe[(known < 0).all(axis=1)] = 0.0
        return out

    @cached_property
    def log_z(self) -> float:
        """Of the model as it is: 0 for a network without evidence of its own."""
        directed = len(self.child) == len(self.n_states) and bool((self.child >= 0).all())
        if directed and not self.has_field.any():
            return self.constant
        nothing = np.full((1, len(self.n_states)), -1, dtype=np.int32)
        out = Answers(np.empty((1, 0)), np.empty(1))
        plan = self._plan(nothing[0] >= 0, nothing[0] >= 0, [])
        self._answer(plan, nothing, None, [], out, 1)
        if out.log_pe[0] == -np.inf:
            raise ContradictionError("predict: every assignment of the model has probability zero")
        return float(out.log_pe[0])

    def _grouped(
        self, known: NDArray[np.int32], targets: list[int], check: bool
    ) -> Iterator[tuple[_Plan, NDArray[np.int64] | None]]:
        """Rows by the plan that answers them; None: all of them."""
        from minfer.kernels.rows import observed_keys

        nobody = np.zeros(known.shape[1], dtype=bool)
        seen = known >= 0
        if len(known) == 1 or bool((seen == seen[0]).all()):
            yield self._plan(seen[0], nobody, targets, len(known), check), None
            return
        keys = np.empty(len(known), dtype=np.uint64)
        observed_keys(known, keys)
        by_key = np.argsort(keys, kind="stable")
        ordered = keys[by_key]
        first = np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
        sizes = np.diff(first, append=len(keys))
        always: NDArray[np.bool_] = np.asarray(seen.all(axis=0))
        ever: NDArray[np.bool_] = np.asarray(seen.any(axis=0))
        shared = self._plan(always, ever & ~always, targets, len(known), check)
        enough = 0.0
        if shared.rows.layout is not None:
            passes = 1.0 if len(targets) <= 1 else 2.5
            row = NS_PER_CELL * passes * max(shared.rows.cells, 1.0)
            enough = NS_PER_VARIABLE * len(shared.variables) / row
        rest = np.ones(len(known), dtype=bool)
        for g in np.flatnonzero(sizes > enough).tolist():
            mine = by_key[first[g] : first[g] + sizes[g]]
            observed = seen[mine[0]]
            mine = mine[(seen[mine] == observed).all(axis=1)]  # not by its key alone
            yield self._plan(observed, nobody, targets, len(mine), check), mine
            rest[mine] = False
        if rest.any():
            yield shared, None if rest.all() else np.flatnonzero(rest)

    def _answer(
        self,
        plan: _Plan,
        known: NDArray[np.int32],
        rows: NDArray[np.int64] | None,
        targets: list[int],
        out: Answers,
        workers: int,
    ) -> None:
        """Fill the lines of some rows, or of all."""
        n = len(known) if rows is None else len(rows)
        if plan.rows.layout is None:
            for r in range(n) if rows is None else rows.tolist():
                self._single(plan, known[r], targets, out, r)
            return
        width = plan.rows.width
        step = max(1024, _BLOCK // max(width, 1))
        direct = plan.known < 0 and plan.columns is None and rows is None

        def answer(begin: int, end: int) -> None:  # in a thread of its own, what comes after too
            for first in range(begin, end, step):
                past = min(first + step, end)
                some = slice(first, past) if rows is None else rows[first:past]
                evidence = known[some]
                if len(plan.variables) < known.shape[1]:
                    evidence = evidence.take(plan.variables, axis=1)
                part = Rows(
                    out.probs[some] if direct else np.empty((past - first, width)),
                    out.log_pe[some] if direct else np.empty(past - first),
                    np.zeros(past - first, dtype=bool), None,
                )  # fmt: skip
                plan.rows.fill(evidence, part)
                if not direct:
                    out.log_pe[some] = part.log_z
                    out.probs[some] = self._asked_for(plan, part, known[some])
                if part.unsafe.any():
                    for r in np.arange(len(known))[some][part.unsafe].tolist():
                        self._single(plan, known[r], targets, out, r)

        spread(answer, n, workers)

    def _asked_for(self, plan: _Plan, part: Rows, known: NDArray[np.int32]) -> NDArray[np.float64]:
        """The probabilities of the targets among those of a plan."""
        if plan.known < 0:
            return part.probs if plan.columns is None else part.probs.take(plan.columns, axis=1)
        possible = np.where(part.log_z > -np.inf, 1.0, np.nan)
        states = np.arange(int(self.n_states[plan.known]))
        return (known[:, plan.known, None] == states) * possible[:, None]

    def _single(
        self, plan: _Plan, known: NDArray[np.int32], targets: list[int], out: Answers, row: int
    ) -> None:
        """One row by the clique tree in logarithms, of what is not barren."""
        from minfer.solvers.exact import Exact

        graph = self.graph
        used = np.zeros(len(self.n_states), dtype=bool)
        used[plan.variables] = True
        left_out = np.zeros(graph.n_factors, dtype=bool)
        left_out[self.flat.ids[(self.child >= 0) & ~used[self.child]]] = True
        seen = np.flatnonzero(known[: graph.n_variables] >= 0).tolist()
        try:
            part = graph.keep(~left_out) if left_out.any() else graph
            answer = Exact()(part.with_evidence({v: int(known[v]) for v in seen}))
        except ContradictionError:
            out.probs[row], out.log_pe[row] = np.nan, -np.inf
            return
        own = slice(graph.n_variables)
        free = np.where(used, self._uniform, np.log(self.n_states))[own]
        out.log_pe[row] = answer.log_z - free.sum()
        if targets:
            out.probs[row] = np.concatenate([answer.probs[self._states(v)] for v in targets])

    def _states(self, v: int) -> slice:
        return slice(int(self.offsets[v]), int(self.offsets[v + 1]))

    # ------------------------------------------------------------ plans

    def _plan(
        self,
        observed: NDArray[np.bool_],
        sometimes: NDArray[np.bool_],
        targets: list[int],
        n_rows: int = 1,
        check: bool = True,
    ) -> _Plan:
        """For rows that all observe ``observed``, and may observe ``sometimes``; made once."""
        key = (
            observed.tobytes(), sometimes.tobytes(), np.array(targets, np.int64).tobytes(), check
        )  # fmt: skip
        with _LOCK:
            if key in self._plans:
                self._plans.move_to_end(key)
                return self._plans[key]
        plan = self._make(observed, sometimes, targets, n_rows, check)
        with _LOCK:
            self._plans[key] = plan
            kept = sum(p.rows.cells for p in self._plans.values() if p.rows.layout is not None)
            most = MOST_KEPT_CELLS
            while len(self._plans) > MOST_PLANS or (kept > most and len(self._plans) > 1):
                _, gone = self._plans.popitem(last=False)
                kept -= gone.rows.cells if gone.rows.layout is not None else 0.0
        return plan

    def _make(
        self,
        observed: NDArray[np.bool_],
        sometimes: NDArray[np.bool_],
        targets: list[int],
        n_rows: int,
        check: bool,
    ) -> _Plan:
        wanted = observed | sometimes
        wanted[targets] = True
        used = self.relevant(wanted)
        kept = (self.child < 0) | used[self.child]
        if not check:
            used, kept = self._reached(kept, observed, targets)
        variables = np.flatnonzero(used)
        flat = self.flat.part(variables, kept)
        cut = observed[variables]
        place = np.full(len(used), -1, dtype=np.int64)
        place[variables] = np.arange(len(variables))
        tree = tree_over(links(flat, ~cut), len(variables), MAX_CELLS, n_rows)
        if len(targets) > 1:
            rows = RowPlan.both_passes(flat, tree, cut)
            columns = np.concatenate(
                [np.arange(flat.off[place[v]], flat.off[place[v] + 1]) for v in targets]
            )
            all_of_it = len(columns) == flat.off[-1] and bool((np.diff(columns) == 1).all())
            plan = _Plan(variables, rows, -1, None if all_of_it else columns)
        else:
            free = [v for v in targets if not observed[v]]
            entering = (sometimes | self.has_field)[variables]
            target = int(place[free[0]]) if free else -1
            rows = RowPlan.one_pass(flat, tree, cut, entering, target)
            plan = _Plan(variables, rows, targets[0] if targets and not free else -1, None)
        rows.load(flat.log_psi, flat.field, self.constant - float(self._uniform[used].sum()))
        return plan

    def _reached(
        self, kept: NDArray[np.bool_], observed: NDArray[np.bool_], targets: list[int]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Variables and tables that the targets reach without passing an observed variable."""
        scopes, tables_of = self._incidence
        used = [False] * len(self.n_states)
        left, closed = kept.tolist(), observed.tolist()
        todo = []
        for v in targets:
            used[v] = True
            if not closed[v]:
                todo.append(v)
        found = np.zeros(len(kept), dtype=bool)
        while todo:
            for t in tables_of[todo.pop()]:
                if not left[t]:
                    continue
                left[t] = False
                found[t] = True
                for u in scopes[t]:
                    if not used[u]:
                        used[u] = True
                        if not closed[u]:
                            todo.append(u)
        return np.array(used), found

    @cached_property
    def _incidence(self) -> tuple[list[list[int]], list[list[int]]]:
        """The variables of each table, and the tables of each variable."""
        scope, fptr = self.flat.scope.tolist(), self.flat.fptr.tolist()
        scopes = [scope[a:b] for a, b in pairwise(fptr)]
        tables_of: list[list[int]] = [[] for _ in self.n_states]
        for t, mine in enumerate(scopes):
            for v in mine:
                tables_of[v].append(t)
        return scopes, tables_of
