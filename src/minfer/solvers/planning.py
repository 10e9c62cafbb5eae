"""What a model would cost each solver, before running any.

Times are rough: a count of elementary steps times a constant measured on one core of a 2020s
server, good to a factor of three. The exact solver's cells are counted, not guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from minfer.basics.notebook import Face, Faced, Right
from minfer.basics.words import counted, duration, plain, power, size
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import CliqueTree
from minfer.engine.simplify import simplify
from minfer.errors import ContradictionError, RefusedError
from minfer.solvers import tempering
from minfer.solvers.clique_passes import cheap_cells, expected_seconds
from minfer.solvers.exact import CIRCUIT_GIB, Exact, promising
from minfer.solvers.irreducible import haven, no_messages
from minfer.solvers.join_graph import JoinGraph
from minfer.solvers.mean_field import refusal
from minfer.solvers.simplified import solvable
from minfer.solvers.windows import Windows

if TYPE_CHECKING:
    from minfer.factors.group import FactorGroup
    from minfer.graph import FactorGraph

SWEEPS = 50  # an iterative solver is assumed to take this many
NS_PAIR_MESSAGE = 6.0  # one message of a factor over two binary variables
NS_CELL = 1.3  # one cell of a table, in one message of belief propagation
NS_LABEL, NS_TAP = 2.8, 0.2  # one label in one message of pairs of labels, and each of its taps
LOG_SPACE = 3.0  # ... and so many times more where the table is too extreme for linear space
LOG_SPACE_RANGE = 600.0
NS_GIBBS_VISIT = 8.0  # one factor seen from one variable, in one sweep of one chain
GIBBS_SWEEPS = 4 * 2200  # chains times sweeps, by default
NS_TEMPERING_VISIT = 3.0  # the same, in one sweep of one copy
TEMPERING_COPIES, TEMPERING_SWEEPS = 4 * 16, 2500  # by default
NS_JOIN_CELL, NS_JOIN_CLUSTER, JOIN_SWEEPS = 12.0, 5000.0, 20  # a cell of a cluster, forth and back
NS_WINDOW_CELL = 62.0  # a cell of a window of the largest size, all rounds up to it
NS_GLOBAL = 5.0  # per squared number of variables
NS_MACHINE = 6.0  # a state of an automaton at one literal, forth and back
SOON = 2.0**24  # clique cells that take about a quarter of a second
MOST_SEARCHED = 20_000  # variables beyond which the search for an order takes long by itself


@dataclass(frozen=True)
class Estimate:
    """One solver's cost. ``refuses`` says why it would decline the model, or is empty."""

    solver: str
    seconds: float
    memory: float  # bytes beside the model
    seconds_per_sweep: float | None = None
    refuses: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, without the solver's name; infinite costs become None."""
        told = {name: value for name, value in vars(self).items() if name != "solver"}
        return plain(told if math.isfinite(self.seconds) else {**told, "memory": None})


@dataclass(frozen=True, repr=False)
class Plan(Faced):
    """Sizes of a model, how hard it is, and what each solver would cost.

    ``observed`` counts variables with a single state left, by evidence or hard constraints.
    ``width`` and ``largest_clique`` (log2 of its cells) are of the best elimination order found,
    of the model as it is or as what zeros and repetitions leave of it, which ``simplified`` says;
    ``width_known`` is False where the search stopped early and they are only what it met. They are
    None where a global factor rules an elimination out. ``circuit`` says how many nodes a circuit
    may have, where no tree fits; ``card`` whether a graphics card pays.
    """

    n_variables: int
    n_factors: int
    n_globals: int
    max_states: int
    max_arity: int
    n_components: int
    observed: int
    width: int | None
    largest_clique: float | None
    clique_cells: float | None
    width_known: bool
    estimates: tuple[Estimate, ...]
    recommendation: str
    reason: str
    simplified: str = ""
    circuit: str = ""
    card: str = ""

    def __getitem__(self, solver: str) -> Estimate:
        """The estimate of one solver, by its name on the command line."""
        return next(e for e in self.estimates if e.solver == solver)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON; infinite costs become None."""
        return {**vars(self), "estimates": {e.solver: e.to_dict() for e in self.estimates}}

    def face(self) -> Face:
        """The recommendation, what each solver would cost, and why."""
        rows = [
            (e.solver, "", "", f"refuses: {e.refuses}")
            if e.refuses
            else (e.solver, Right(duration(e.seconds)), Right(size(e.memory)), "")
            for e in self.estimates
        ]
        notes = {
            "model": f"{counted(self.n_variables, 'variable')} of up to "
            f"{counted(self.max_states, 'state')} ({self.observed:,} known), "
            f"{counted(self.n_factors, 'factor')} over up to {self.max_arity}, "
            f"{counted(self.n_components, 'component')}"
        }
        if self.width is not None and self.largest_clique is not None:
            least = "" if self.width_known else "at least "
            cells = f"{power(self.largest_clique)} cells"
            notes["width"] = f"{least}{self.width}; the largest clique has {least}{cells}"
        if self.simplified:
            notes["simplified"] = self.simplified.removeprefix("simplified: ")
        if self.circuit:
            notes["circuit"] = self.circuit
        if self.card:
            notes["a card"] = self.card
        conclusion = f"use {self.recommendation}: {self.reason}"
        return Face(conclusion, ("solver", "time, about", "memory", "remark"), rows, notes)


def plan(graph: FactorGraph) -> Plan:
    """Measure a model and estimate what each solver would cost."""
    from minfer.solvers.bp import BeliefPropagation
    from minfer.solvers.on_device import prospect

    model = condition(graph)
    exact, tree, simplified = _exact(model)
    iterative = _iterative(model)
    estimates = (*iterative, _joined(model), _windows(model, iterative[0], exact, tree), exact)
    cheap = tree is not None and tree.complete and tree.cells <= cheap_cells(model)
    recommendation, reason = _recommend({e.solver: e for e in estimates}, cheap)
    circuit, small = _circuit(model) if exact.refuses and promising(model) else ("", False)
    if small:
        recommendation, reason = "exact", "no clique tree fits, but a circuit should"
    return Plan(
        n_variables=graph.n_variables,
        n_factors=graph.n_factors,
        n_globals=sum(len(g) for g in graph.groups if g.form == "messages"),
        max_states=int(graph._n_states.max(initial=0)),
        max_arity=int(graph.arity.max(initial=0)),
        n_components=int(graph.component_labels().max(initial=-1)) + 1,
        observed=int(((model.fixed >= 0) & (graph._n_states > 1)).sum()),
        width=None if tree is None else tree.width,
        largest_clique=None if tree is None else tree.largest,
        clique_cells=None if tree is None else tree.cells,
        width_known=tree is not None and tree.complete,
        estimates=estimates,
        recommendation=recommendation,
        reason=reason,
        simplified=simplified,
        circuit=circuit,
        card=prospect(BeliefPropagation(), model),
    )


def _circuit(model: Conditioned) -> tuple[str, bool]:
    """How many nodes a circuit may have, and whether it is likely one that ``Exact`` makes."""
    from minfer.engine.circuits.driver import UNSEEN, forecast

    try:
        found = forecast(simplify(model).model)
    except RefusedError as error:
        return str(error), False
    return str(found), UNSEEN * found.likely_bytes <= CIRCUIT_GIB * 2.0**30


def exact_seconds(graph: FactorGraph, cells: float | None = SOON) -> float | None:
    """What the exact answer should take if its cliques have at most so many cells, else None.

    ``cells=None`` stands for what :class:`~minfer.Auto` allows. None also for models of so many
    variables that finding out would take more than a second or two.
    """
    try:
        model = condition(graph)
        free = int((model.fixed < 0).sum())
        allowed = float(cheap_cells(model))
        most = allowed if cells is None else cells
        if free > MOST_SEARCHED or 2 * free > most:
            return None
        tree = solvable(model, max(allowed, most)).tree  # the first order is not best
        if not tree.complete or tree.cells > most:
            return None
        Exact().check(tree)
    except (RefusedError, ContradictionError):
        return None
    return expected_seconds(tree)


def _exact(model: Conditioned) -> tuple[Estimate, CliqueTree | None, str]:
    try:
        found = solvable(model, memory=2.0**30 * Exact().max_gib)
    except RefusedError as error:
        return Estimate("exact", math.inf, math.inf, refuses=str(error)), None, ""
    tree = found.tree
    refuses = ""
    try:
        Exact().check(tree)
    except RefusedError as error:
        refuses = str(error)
    return Estimate("exact", expected_seconds(tree), tree.memory, refuses=refuses), tree, found.note


def _iterative(model: Conditioned) -> tuple[Estimate, ...]:
    """Belief propagation, tree-reweighted, mean field, Gibbs, tempering."""
    sweep, states, visits, wide = 0.0, 0.0, 0.0, 0
    for g in model.groups:
        sweep += _sweep_ns(g) * 1e-9
        states += float(sum(g.shape) * len(g))
        visits += g._scope.size * (1 if g.form != "machine" else g.machine().final.shape[1])
        wide = max(wide, 0 if g.form == "messages" else g.arity)
    n = model.graph.n_variables
    sweep += 5e-9 * n
    gibbs = GIBBS_SWEEPS * 1e-9 * (NS_GIBBS_VISIT * visits + 15.0 * n)
    copies = 1e-9 * TEMPERING_COPIES * (NS_TEMPERING_VISIT * visits + 10.0 * n)
    memory = 16.0 * states + 8.0 * float(model.graph._offsets[-1])
    no_globals = "it has no messages for global factors" if no_messages(model) else ""
    pairs_only = no_globals or (
        f"a factor joins {wide} unobserved variables, and it takes pairs only" if wide > 2 else ""
    )
    return (
        Estimate("bp", SWEEPS * sweep, memory, sweep),
        Estimate("trw", SWEEPS * 3.0 * sweep, 1.5 * memory, 3.0 * sweep, pairs_only),
        Estimate("mean-field", SWEEPS * 0.7 * sweep, memory / 2.0, 0.7 * sweep,
                 no_globals or refusal(model)),
        Estimate("gibbs", gibbs, memory, gibbs / GIBBS_SWEEPS, no_globals or haven(model)[1]),
        Estimate("tempering", TEMPERING_SWEEPS * copies, 64.0 * (8.0 * n + 4.0 * states), copies,
                 no_globals or tempering.refusal(model)),
    )  # fmt: skip


def _joined(model: Conditioned) -> Estimate:
    """A join graph of the default size: its cells are at most those of clusters that are full."""
    try:
        tables = only_tables(model)
    except RefusedError as error:
        return Estimate("join-graph", math.inf, math.inf, refuses=str(error))
    free = int((tables.fixed < 0).sum())
    n = sum(len(g) for g in tables.groups)
    cells = float(JoinGraph().max_cells) * min(free, n)
    sweep = 1e-9 * (NS_JOIN_CELL * cells + NS_JOIN_CLUSTER * (free + n))
    return Estimate("join-graph", JOIN_SWEEPS * sweep, 8.0 * cells, sweep)


def _windows(
    model: Conditioned, plain: Estimate, exact: Estimate, tree: CliqueTree | None
) -> Estimate:
    """Belief propagation, then windows of the default size if all of them grow so far."""
    settings = Windows()
    if tree is not None and tree.complete and tree.cells <= settings.max_cells:
        return replace(exact, solver="windows")
    cores = math.ceil(int((model.fixed < 0).sum()) / settings.core)
    seconds = 1e-9 * NS_WINDOW_CELL * settings.max_cells * cores
    return Estimate("windows", plain.seconds + seconds, plain.memory + 16.0 * settings.max_cells)


def _sweep_ns(group: FactorGroup) -> float:
    """Nanoseconds of all messages of a group, once."""
    if group.form == "messages":
        return NS_GLOBAL * group.arity**2 * len(group)
    if group.form == "machine":
        return NS_MACHINE * group.arity * group.machine().final.shape[1] * len(group)
    taps = group.label_taps()
    if group.shape == (2, 2):
        each = 2.0 * NS_PAIR_MESSAGE
    elif taps is not None:  # a sweep sends one message of each pair, ahead
        each = group.shape[0] * (NS_LABEL + NS_TAP * taps.shape[1])
    else:
        each = NS_CELL * group.n_cells * group.arity
    if group.kind == "table":
        log_psi = group.stored_tables()
        low = np.where(log_psi > -np.inf, log_psi, np.inf).min(axis=1, initial=np.inf)
        if (log_psi.max(axis=1, initial=-np.inf) - low > LOG_SPACE_RANGE).any():
            each *= LOG_SPACE
    return each * len(group)


def _recommend(by_name: dict[str, Estimate], cheap: bool) -> tuple[str, str]:
    """What ``Auto`` would choose, and why."""
    exact, trw = by_name["exact"], by_name["trw"]
    if not exact.refuses and cheap:
        return "exact", f"the exact answer takes about {duration(exact.seconds)}"
    if not exact.refuses:
        return "bp", (
            f"the exact answer would take about {duration(exact.seconds)}; belief propagation is "
            "approximate and much faster"
        )
    bound = "" if trw.refuses else "; trw adds an upper bound on log Z"
    return "bp", f"an exact answer is out of reach, and bp is linear in the model{bound}"
