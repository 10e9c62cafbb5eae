"""Exact where that is cheap, by a clique tree or a circuit, belief propagation elsewhere; the note
says which and why.

With a time limit the time is used: a portfolio of methods (:mod:`minfer.solvers.portfolio`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minfer.basics.checks import by_name, check_settings, check_whole
from minfer.basics.limits import clock, compiled, deadline_of, start_clock
from minfer.basics.words import counted
from minfer.engine.conditioning import condition
from minfer.errors import RefusedError
from minfer.solvers.base import LogZ, Marginals, check_start
from minfer.solvers.bp import BeliefPropagation, at_rest
from minfer.solvers.clique_passes import cheap_cells, expected_seconds
from minfer.solvers.exact import (
    CIRCUIT_GIB,
    STEPS_A_SECOND,
    Exact,
    adds_up,
    by_circuit,
    compiled_answer,
    count_assignments,
    promising,
    tabulated,
)
from minfer.solvers.prepared import Preparable
from minfer.solvers.simplified import solvable

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

FOR_ORDER = 0.2  # and for an elimination order
FOR_CIRCUIT = 1.0 / 3.0  # of a time limit, for a circuit where no tree fits
WORTH_SAYING = 1.0  # seconds of compiling
LEAST_LEFT = 0.05  # seconds for which nothing more is begun
TINY = 2**12  # assignments that are simply enumerated


@by_name
@dataclass(frozen=True, kw_only=True)
class Auto(Preparable):
    """Picks a solver by the cost of the exact answer.

    Parameters
    ----------
    max_iters, tol
    Of belief propagation, if that is chosen.
    time_limit : float, optional
        Seconds for everything (wall clock; compiling kernels is not counted, and the note says
        if there was any). Where the exact answer does not fit, belief propagation is then only
        the beginning: join graphs, windows, clamping and parallel tempering follow, and the note
        says what was run and which answer was taken. From four seconds on it is clipped to
        certified intervals, if their kernels are compiled (`minfer warmup intervals`).
    exact_cells : int, optional
        Solve exactly if the cliques have no more cells than this together (2**22: about 0.1 s).
        None: as many as take a few seconds, the same rule as in `minfer plan`. Join graphs
        observe this limit, too.

    Notes
    -----
    If belief propagation does not converge it runs once more with damping 0.5, and the answer whose
    messages moved less in the end is taken. Without a time limit, that is all.

    With a time limit the answer depends on what the time allowed, and so on the machine. It is an
    estimate with an error estimate: the standard error of samples, or how far two methods differ
    (None where nothing but belief propagation could be run).
    """

    max_iters: int = 1000
    tol: float = 1e-6
    time_limit: float | None = None
    exact_cells: int | None = None

    def __post_init__(self) -> None:
        check_settings(self.max_iters, self.tol, 0.0, self.time_limit)
        if self.exact_cells is not None:
            check_whole("exact_cells", self.exact_cells)

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        began, before = start_clock(self.time_limit), compiled()
        check_start(start)
        answer, why = self._try_exact(graph, began)
        if answer is None and self.exact_cells is None:
            answer, why = self._try_circuit(graph, began, why)
        timings = {}
        if answer is None:
            timings["choose"] = clock() - began
            plain = BeliefPropagation(max_iters=self.max_iters, tol=self.tol)
            answer, how = at_rest(plain, graph, start, deadline_of(self.time_limit, began))
            whose = ""
            on_a_forest = answer.converged and answer.log_z_kind is LogZ.EXACT
            if self.time_limit is not None and not on_a_forest:
                left = self.time_limit - (clock() - began)
                if left >= LEAST_LEFT:
                    from minfer.solvers.portfolio import best_of

                    most = self.exact_cells
                    most = cheap_cells(condition(graph)) if most is None else most
                    limits = clock() + left, self.time_limit, float(most)
                    answer, whose = best_of(graph, answer, *limits)
            parts = [whose, why, f"BeliefPropagation {how}" if how else ""]
            if not whose:  # whose answer it is comes first, then what became of the others
                parts = [f"BeliefPropagation: {why}", how]
            why = "; ".join(filter(None, parts))
        if self.time_limit is not None and compiled() - before > WORTH_SAYING:
            why += (
                f"; compiling kernels took {compiled() - before:.0f} s, which time_limit does not "
                "count (once for this version; `minfer warmup` does it ahead of time)"
            )
        note = f"{why}. {answer.note}" if answer.note else why
        timings |= answer.timings
        if self.time_limit is not None:
            timings["others"] = max(clock() - began - sum(timings.values()), 0.0)
        return replace(answer, solver=self, note=note, timings=timings)

    def _try_exact(self, graph: FactorGraph, began: float) -> tuple[Marginals | None, str]:
        """The exact answer, or none; and why."""
        known = compiled_answer(Exact(), graph)
        if known is not None:
            return known, "Exact: the model was compiled"
        model = condition(graph)
        most = cheap_cells(model) if self.exact_cells is None else self.exact_cells
        n = count_assignments(graph)
        if n <= min(TINY, most):  # spares a first-time user the compiler
            answer = tabulated(Exact(), graph)
            if answer is None and adds_up(graph):
                answer = Exact(method="enumerate")(graph)
            if answer is not None:
                return answer, f"Exact: only {counted(n, 'assignment')}"
        if 2 * int((model.fixed < 0).sum()) > most:
            return None, "more variables than exact_cells allows"
        left = self._left(began)
        seconds = math.inf if left is None else FOR_ORDER * left
        try:
            found = solvable(model, float(most), seconds)
        except RefusedError:
            return None, "a factor is too large to solve exactly"
        tree = found.tree
        if not tree.complete and tree.cells <= most:
            why = "" if left is None else f" (time_limit={self.time_limit:g} s)"
            return None, f"the search for an elimination order was given up{why}"
        if not tree.complete or tree.cells > most:
            return None, f"exact inference needs more than {most:,} cells"
        left = self._left(began)
        if left is not None and expected_seconds(tree) > left:
            return None, "exact inference would not end within time_limit"
        try:
            Exact().check(tree)
        except RefusedError:
            return None, "exact inference needs too much memory"
        why = f"Exact: its cliques have only {tree.cells:,.0f} cells"
        deadline = deadline_of(self.time_limit, began)
        try:
            return found.solve(Exact(), graph, began, deadline), why
        except RefusedError:
            return None, "exact inference did not end within time_limit"

    def _try_circuit(
        self, graph: FactorGraph, began: float, why: str
    ) -> tuple[Marginals | None, str]:
        """The exact answer by a circuit, or none; and why."""
        if not promising(condition(graph)):
            return None, why
        limit, gib, steps = None, CIRCUIT_GIB, math.inf
        if self.time_limit is not None:
            gib = Exact().max_gib
            limit = min(FOR_CIRCUIT * self.time_limit, self._left(began) or 0.0)
            if limit < LEAST_LEFT:
                return None, why
            steps = 4.0 * STEPS_A_SECOND * limit  # what has no chance is not begun
        try:
            solver = Exact(method="circuit", max_gib=gib, time_limit=limit)
            made = by_circuit(solver, graph, steps)
        except RefusedError as error:
            told = str(error).removeprefix("circuit: ").partition(";")[0]
            return None, f"{why}; no small circuit ({told})"
        return made, f"Exact, by a circuit, since {why}"

    def _left(self, began: float) -> float | None:
        if self.time_limit is None:
            return None
        return max(self.time_limit - (clock() - began), 1e-3)
