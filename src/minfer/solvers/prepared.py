"""Structure prepared once, numbers many: what ``solver.prepare(graph)`` gives.

    run = solver.prepare(graph)
    run(evidence=..., weights=..., field=..., start=...)     one answer
    run.batch(evidence=..., weights=..., field=...)          many, as arrays

A model's structure is its variables, the scopes of its factors and what its own zeros fix; all else
are numbers. A call moves numbers only and answers what the solver would on the model with these
numbers. Where they change the structure after all (a zero where there was none, a weight beyond
what odds hold) the model is laid out afresh.

Evidence of a call is not sliced out of the tables, which would make another structure: a known
variable stays where it is and tells the others its state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_choice, check_flag, check_graph, check_whole
from minfer.basics.limits import clock
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import CliqueTree, clique_tree
from minfer.engine.wiring import Wired
from minfer.errors import ContradictionError
from minfer.model.evidence import hard_and_field, observed_states
from minfer.solvers.base import LogZ, Marginals, Solver, Status, check_start
from minfer.solvers.clique_passes import CliqueTreeState, flatten, pass_messages

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.batch import Batch, Rows
    from minfer.solvers.bp import BeliefPropagation
    from minfer.solvers.exact import Exact
    from minfer.solvers.lanes import LaneStructure
    from minfer.solvers.row_plans import RowPlan
    from minfer.solvers.trw import TreeReweighted

#: Cells of all cliques beyond which another plan for the evidence at hand may pay.
WORTH_PLANNING = 2.0**16
#: Cells up to which a single call is answered as one row.
MAX_PLANNED = 2.0**16
#: Cells of all cliques up to which rows are answered abreast.
MAX_CELLS = 2.0**21
#: Evidence of one call: {variable: state, or likelihoods}, or states (V,) with -1 where nothing is
#: known; by number or name.
Evidence = Mapping[Any, Any] | ArrayLike


class Call(NamedTuple):
    """What one call of a prepared run is about."""

    graph: FactorGraph  # with the call's weights and field
    whole: FactorGraph  # and with its evidence
    known: dict[int, int] | None  # that evidence, by numbers
    weighted: bool
    field: ArrayLike | None
    start: Marginals | None
    began: float


class Prepared:
    """A solver with a structure to run on, for any numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import BeliefPropagation, FactorGraph
    >>> run = BeliefPropagation().prepare(FactorGraph.grid(np.zeros((4, 4)), 0.5))
    >>> run(evidence={0: 1})[1].round(3).tolist()
    [0.368, 0.632]
    """

    dtypes: ClassVar[tuple[str, ...]] = ("float64", "float32")

    def __init__(self, solver: Solver, graph: FactorGraph) -> None:
        check_graph(graph, "prepare")
        self.solver, self.graph = solver, graph

    def __call__(
        self,
        evidence: Evidence | None = None,
        weights: ArrayLike | None = None,
        field: ArrayLike | None = None,
        start: Marginals | None = None,
    ) -> Marginals:
        """The answer for other numbers of the same structure.

        Parameters
        ----------
        evidence : {variable: state, or likelihoods}, or states (V,), optional
            Variables and states by number or name; -1, NaN or None in an array where nothing is
            known. In addition to the graph's own.
        weights : float array (n_weights,), optional
            Instead of ``graph.weights``.
        field : float array (sum of states,), optional
            Log-weights to add to every state.
        start : Marginals, optional
            An earlier answer to begin with, for these weights or others.
        """
        began = clock()
        check_start(start)
        evidence, field = hard_and_field(self.graph, evidence, field)
        graph = self.instance(None, weights, field)
        known = None if evidence is None else observed_states(graph, evidence)
        whole = graph if known is None else graph._observing(known)
        call = Call(graph, whole, known, weights is not None, field, start, began)
        answer = self._answer(call)
        return self.solver(whole, start) if answer is None else answer

    def _answer(self, call: Call) -> Marginals | None:
        """The answer on the prepared structure; None where it does not fit the call's numbers."""
        return None

    def batch(
        self,
        evidence: Sequence[Evidence] | Mapping[Any, ArrayLike] | NDArray | None = None,
        weights: ArrayLike | None = None,
        field: ArrayLike | None = None,
        *,
        dtype: str = "float64",
        workers: int = 1,
        log_z: bool = True,
        statistics: bool = False,
    ) -> Batch:
        """Many answers at once, as arrays: see :class:`~minfer.Batch`.

        Binary pairwise models run one in each lane of a vector (:mod:`minfer.solvers.lanes`), so
        do parity checks with the flooding schedule (:mod:`minfer.solvers.parity_lanes`), and
        ``Exact`` eight rows at a time on one clique tree (:mod:`minfer.solvers.row_plans`);
        everything else, and rows whose numbers do not fit, runs one by one on the prepared
        structure.

        Parameters
        ----------
        evidence : array (N, V), N mappings {variable: state, or likelihoods}, or columns \
{variable: N states}
            States by number or name; -1 (or NaN, or None) where nothing is known. A data frame or
            an Arrow table is taken by the names of its columns.
        weights : float array (N, n_weights), or (n_weights,) for all rows
        field : float array (N, sum of states), or (sum of states,) for all rows
        dtype : "float64" or "float32"
            float32, of belief propagation, takes about half the time and is within 1e-5.
        workers : int
            Threads; answers do not depend on them.
        log_z, statistics : bool
            Whether to compute log Z, and the expected statistics of each row.
        """
        from minfer.solvers.batch import Rows, one_by_one

        check_choice("dtype", dtype, self.dtypes)
        check_whole("workers", workers, 1)
        check_flag("log_z", log_z)
        check_flag("statistics", statistics)
        rows = Rows.of(self.graph, evidence, weights, field)
        kind = np.dtype(dtype).type
        found = self._in_lanes(rows, kind, workers, log_z, statistics) if rows.n else None
        return one_by_one(self, rows, workers, statistics) if found is None else found

    def _in_lanes(
        self, rows: Rows, dtype: type, workers: int, log_z: bool, statistics: bool
    ) -> Batch | None:
        """Rows side by side, where the solver can; None where it cannot."""
        return None

    def instance(
        self,
        evidence: Evidence | None = None,
        weights: ArrayLike | None = None,
        field: ArrayLike | None = None,
    ) -> FactorGraph:
        """The graph that a call with these numbers is about."""
        graph = self.graph
        if weights is not None:
            graph = graph.with_weights(weights)
        if field is not None:
            graph = graph.tilt(field)
        return graph if evidence is None else graph._observing(observed_states(graph, evidence))

    def __repr__(self) -> str:
        return f"Prepared({self.solver!r}, {self.graph!r})"


class Preparable:
    """A solver of which a preparation keeps nothing: it is called again."""

    def prepare(self: Any, graph: FactorGraph) -> Prepared:
        """The same interface as other solvers'; calls share what the factors are laid out as."""
        return Prepared(self, graph)


class PreparedPropagation(Prepared):
    """Belief propagation and its tree-reweighted kin, wired once."""

    solver: BeliefPropagation | TreeReweighted

    def __init__(self, solver: BeliefPropagation | TreeReweighted, graph: FactorGraph) -> None:
        super().__init__(solver, graph)
        self.model = condition(graph)
        self.mesh: Wired | None = solver._wired(self.model) if self.model.groups else None
        self._structure: LaneStructure | None = None  # of lanes, when first asked for
        self._weights: tuple[bytes, NDArray[np.float64] | None] | None = None

    def _answer(self, call: Call) -> Marginals | None:
        model, known, rho = condition(call.graph), None, None
        if self.mesh is None or not model.groups:
            return None
        if call.known is not None:
            known = known_states(call.graph, model.fixed, call.known)
            known = known if (known >= 0).any() else None
            rho = None if known is None else self._edge_weights(model, known)
        mesh = self.solver._wired(model, call.start, self.mesh, known, rho)
        if mesh is None:
            return None
        answer = self.solver.propagate(call.whole, mesh, call.start, call.began)
        logic = mesh.known is not None and len(mesh.machines.code) > 0
        if logic and answer.status is Status.MAX_ITERS:
            return None  # messages to known variables, which move nothing, may not settle
        return answer

    def _in_lanes(
        self, rows: Rows, dtype: type, workers: int, log_z: bool, statistics: bool
    ) -> Batch | None:
        """Rows in vector lanes, where all factors are binary pairs; what does not fit singly."""
        from minfer.solvers.batch import expected, with_singles

        began = clock()
        found = self.in_lanes(rows, dtype, workers, log_z, statistics)
        if found is None:
            return None if statistics else self._of_logic(rows, workers, log_z)
        batch, joints, left = found
        if joints is not None:
            assert self.mesh is not None
            here = joints if isinstance(joints, np.ndarray) else joints.get()
            means = expected(self.graph, self.mesh.model, batch.probs, here)
            batch = replace(batch, statistics=means)
        batch = with_singles(batch, self, rows, left)
        return replace(batch, seconds=clock() - began)

    def in_lanes(
        self, rows: Rows, dtype: type, workers: int, log_z: bool, pairs: bool
    ) -> tuple[Batch, Any, NDArray[np.int64]] | None:
        """Rows in vector lanes: the answers, without statistics; beliefs of all pairs (N, P, 4), if
        asked for, perhaps on a device; and which rows do not fit. None where the model does not
        go there."""
        from minfer.kernels.messages.odds_lanes import enter, leave
        from minfer.solvers.batch import Batch, Fields, code, weights_of
        from minfer.solvers.lanes import LaneStructure, absorb, run_in_lanes

        solver, graph, mesh, n = self.solver, self.graph, self.mesh, rows.n
        if mesh is None or mesh.reweighted or len(mesh.wiring.gslot):
            return None
        if (graph._n_states != 2).any():
            return None
        there = None
        if getattr(solver, "device", "cpu") != "cpu" and not mesh.is_forest:
            there = solver._rows_there(mesh, n)  # type: ignore[union-attr]
        if there is None and getattr(solver, "schedule", "") != "sequential":
            return None
        fields = Fields.of(self.model, graph, rows, pairs)
        if fields is None:
            return None
        if self._structure is None:
            self._structure = LaneStructure.of(mesh)
        lean, w, first = mesh.weighed.lean[None], None, None
        constant = fields.constant + mesh.left_over
        if rows.weights is not None:
            own = [weights_of(graph, g, rows.weights) for g in mesh.model.groups]
            new = absorb(mesh, own)
            lean, w, first, constant = new.lean, new.w, new.first, fields.constant + new.constant
        log_odds, start, impossible = (
            np.empty((n, graph.n_variables)), np.empty(n), np.empty(n, bool)
        )  # fmt: skip
        none = np.zeros((0, graph.n_variables))
        enter(
            fields.log_field, none if fields.more is None else fields.more, lean,
            none.astype(np.int32) if rows.evidence is None else rows.evidence,
            log_odds, start, impossible,
        )  # fmt: skip
        log_odds[impossible] = 0.0
        found = None if there is None else there(self._structure, log_odds, w, first, log_z, pairs)
        if found is None and getattr(solver, "schedule", "") != "sequential":
            return None
        if found is None:
            found = run_in_lanes(
                self._structure, log_odds, w, first, tol=solver.tol, damping=solver.damping,
                max_iters=solver.max_iters, dtype=dtype, workers=workers, pairs=pairs,
                time_limit=solver.time_limit, log_z=log_z,
            )  # fmt: skip
        values = found.log_z + constant + start if log_z else np.full(n, np.nan)
        values[impossible] = -np.inf
        probs = np.empty((n, 2 * graph.n_variables))
        leave(found.probs, probs)
        probs[impossible] = np.nan
        left = Status.TIME_LIMIT if found.stopped else Status.MAX_ITERS
        codes = np.where(found.converged, code(Status.CONVERGED), code(left)).astype(np.int8)
        codes[impossible] = code(None)
        batch = Batch(
            graph, probs, values, LogZ.EXACT if mesh.is_forest else LogZ.ESTIMATE, codes,
            found.iterations, found.residual, solver, 0.0,
        )  # fmt: skip
        return batch, found.pairs if pairs else None, np.flatnonzero(found.unsafe & ~impossible)

    def _of_logic(self, rows: Rows, workers: int, log_z: bool) -> Batch | None:
        """Rows of parity checks, flooded; those that do not fit singly."""
        from minfer.solvers.batch import Batch, Fields, code, with_singles
        from minfer.solvers.parity_lanes import ParityStructure, run_parities

        solver, mesh, n, began = self.solver, self.mesh, rows.n, clock()
        flooding = getattr(solver, "schedule", "") == "flooding" and not solver.damping
        on_device = getattr(solver, "device", "cpu") != "cpu"
        if mesh is None or not flooding or on_device or rows.weights is not None:
            return self._of_vectors(rows, log_z)
        if rows.evidence is not None or self.model.has_fixed:
            return None
        structure = ParityStructure.of(mesh)
        fields = Fields.of(self.model, self.graph, rows, False)
        if structure is None or fields is None:
            return None
        field = np.broadcast_to(fields.whole, (n, fields.whole.shape[1]))
        found = run_parities(
            structure, field, solver.tol, solver.max_iters, solver.time_limit, workers, log_z
        )
        probs = np.stack([1.0 - found.probs, found.probs], axis=2).reshape(n, -1)
        constant = fields.constant + mesh.left_over
        values = found.log_z + constant if log_z else np.full(n, np.nan)
        left = Status.TIME_LIMIT if found.stopped else Status.MAX_ITERS
        codes = np.where(found.converged, code(Status.CONVERGED), code(left)).astype(np.int8)
        batch = Batch(
            self.graph, probs, values, LogZ.ESTIMATE, codes, found.iterations, found.residual,
            solver, 0.0,
        )  # fmt: skip
        batch = with_singles(batch, self, rows, np.flatnonzero(found.unsafe))
        return replace(batch, seconds=clock() - began)

    def _of_vectors(self, rows: Rows, log_z: bool) -> Batch | None:
        """Rows of pairs of many states, on a device; None where they have no form there."""
        from minfer.solvers.batch import Batch, Fields, code

        solver, mesh, n, began = self.solver, self.mesh, rows.n, clock()
        if mesh is None or mesh.is_forest or mesh.reweighted or self.model.has_fixed:
            return None
        if getattr(solver, "device", "cpu") == "cpu" or rows.weights is not None:
            return None
        fields = Fields.of(self.model, self.graph, rows, False)
        there = solver._rows_there(mesh, n)  # type: ignore[union-attr]
        if fields is None or there is None or not len(mesh.wiring.gslot):
            return None
        found = there(fields.whole, rows.evidence, n, log_z)
        if found is None:
            return None
        constant = fields.constant + mesh.left_over
        values = found.log_z + constant if log_z else np.full(n, np.nan)
        values[found.unsafe] = -np.inf
        found.probs[found.unsafe] = np.nan
        left = Status.TIME_LIMIT if found.stopped else Status.MAX_ITERS
        codes = np.where(found.converged, code(Status.CONVERGED), code(left)).astype(np.int8)
        codes[found.unsafe] = code(None)
        return Batch(
            self.graph, found.probs, values, LogZ.ESTIMATE, codes, found.iterations, found.residual,
            solver, clock() - began,
        )  # fmt: skip

    def _edge_weights(
        self, model: Conditioned, known: NDArray[np.int32]
    ) -> NDArray[np.float64] | None:
        """Those of what evidence leaves, where it is tree-reweighted; the last ones are kept."""
        assert self.mesh is not None
        if not self.mesh.reweighted:
            return None
        observed = (known >= 0).tobytes()
        kept = self._weights  # calls may come from several threads
        if kept is None or kept[0] != observed:
            kept = observed, self.solver._weights_given(model, known)  # type: ignore[union-attr]
            self._weights = kept
        return kept[1]


def solve(
    solver: Solver,
    graph: FactorGraph,
    model: Conditioned,
    tree: CliqueTree,
    began: float,
    deadline: float = math.inf,
) -> Marginals:
    """The exact answer from a clique tree already built over ``only_tables(condition(graph))``."""
    planned = clock()
    answer = pass_messages(model, tree, deadline=deadline)
    done = clock()
    probs = answer.probs[: int(graph._offsets[-1])]  # auxiliary variables lie behind
    return Marginals(
        graph, probs, solver, Status.EXACT, LogZ.EXACT,
        timings={"order": planned - began, "messages": done - planned},
        state=CliqueTreeState(graph, model, tree, answer.probs, answer.log_z),
    )  # fmt: skip


class PreparedExact(Prepared):
    """Exact inference with a clique tree that is planned once, without the evidence of a call.

    Evidence enters as zeros. Where known variables cut the cells of a tree of more than 65,536 to
    less than an eighth, a call plans again for its evidence.
    """

    solver: Exact
    dtypes = ("float64",)

    def __init__(self, solver: Exact, graph: FactorGraph) -> None:
        super().__init__(solver, graph)
        self.tree: CliqueTree | None = None
        if solver.method != "enumerate":
            self.model = only_tables(condition(graph))
            self.tree = clique_tree(self.model)
            solver.check(self.tree)

    def _answer(self, call: Call) -> Marginals | None:
        if self.tree is None:
            return None
        model = only_tables(condition(call.graph)) if call.graph is not self.graph else self.model
        if not same_structure(self.model, model):
            return None
        if call.known is not None:
            known = known_states(call.graph, model.fixed, call.known)
            if self._pays_to_plan_again(known):
                return None
            model = replace(model, field=excluded(model, known))
        if not call.weighted and self.tree.cells <= MAX_PLANNED:
            answer = self._planned(call.whole, model, call.began)
            if answer is not None:
                return answer
        limit = self.solver.time_limit
        deadline = math.inf if limit is None else call.began + limit
        return solve(self.solver, call.whole, model, self.tree, call.began, deadline)

    def _planned(self, graph: FactorGraph, model: Conditioned, began: float) -> Marginals | None:
        """The answer by the plan for rows; None where plain numbers do not hold it."""
        assert self.tree is not None
        base, planned = self.model.field, clock()
        with np.errstate(invalid="ignore"):
            more = np.where(base == -np.inf, 0.0, model.field - base)
        found = self.plan.run(more[None, :])
        if found.unsafe[0]:
            return None
        if found.log_z[0] == -np.inf:
            from minfer.solvers.plans import IMPOSSIBLE

            raise ContradictionError(IMPOSSIBLE)
        log_z = float(found.log_z[0]) + model.constant - self.model.constant
        return Marginals(
            graph, found.probs[0, : int(graph._offsets[-1])].copy(), self.solver,
            Status.EXACT, LogZ.EXACT,
            timings={"order": planned - began, "messages": clock() - planned},
            state=CliqueTreeState(graph, model, self.tree, found.probs[0], log_z),
        )  # fmt: skip

    def _in_lanes(
        self, rows: Rows, dtype: type, workers: int, log_z: bool, statistics: bool
    ) -> Batch | None:
        """Rows on one plan of the clique tree; those that plain numbers cannot hold singly."""
        from minfer.solvers.batch import Batch, Fields, code, expected, weights_of, with_singles
        from minfer.solvers.plans import Network

        began = clock()
        if self.tree is None or self.tree.cells > MAX_CELLS:
            return None
        graph, n = self.graph, rows.n
        own = rows.weights is not None or rows.field is not None or statistics
        if rows.evidence is not None and not own and n * self.tree.cells > WORTH_PLANNING:
            # planned by what rows observe
            every = range(graph.n_variables)
            probs, values = Network(graph).solve(rows.evidence, every, workers)
            codes = np.where(values > -np.inf, code(Status.EXACT), code(None)).astype(np.int8)
            return Batch(
                graph, probs, values, LogZ.EXACT, codes, np.zeros(n, dtype=np.int64), np.zeros(n),
                self.solver, clock() - began,
            )  # fmt: skip
        if rows.weights is not None and any(g.form != "table" or g.shared for g in graph.groups):
            return None
        fields = Fields.of(self.model, graph, rows, statistics)
        if fields is None:
            return None
        n_states = int(graph._offsets[-1])
        more = None
        if rows.field is not None or rows.weights is not None:  # what they add to the field
            base = self.model.field[:n_states]
            more = np.zeros((n, len(self.model.field)))
            with np.errstate(invalid="ignore"):
                more[:, :n_states] = np.where(base == -np.inf, 0.0, fields.whole - base)
        log_psi = None
        if rows.weights is not None:
            parts = [
                np.reshape(weights_of(graph, g, rows.weights) @ g.basis(), (len(rows.weights), -1))  # type: ignore[operator]
                for g in self.model.groups
            ]
            log_psi = np.concatenate(parts, axis=1) if parts else np.zeros((n, 0))
            log_psi = np.broadcast_to(log_psi, (n, log_psi.shape[1]))
        known, fixed = rows.evidence, self.model.fixed[: graph.n_variables]
        wrong: Any = False
        if known is not None:
            behind = len(self.model.fixed) - graph.n_variables  # auxiliary variables are free
            wrong = ((known >= 0) & (fixed >= 0) & (known != fixed)).any(axis=1)
            if behind:
                known = np.pad(known, ((0, 0), (0, behind)), constant_values=-1)
        elif more is None and log_psi is None:
            known = np.full((n, len(self.model.fixed)), -1, dtype=np.int32)
        found = self.plan.run(more, known, log_psi, joints=statistics, workers=workers)
        values = found.log_z + (fields.constant - self.model.constant)
        probs = np.ascontiguousarray(found.probs[:, :n_states])
        impossible = (found.log_z == -np.inf) | wrong
        values[impossible], probs[impossible] = -np.inf, np.nan
        codes = np.where(impossible, code(None), code(Status.EXACT)).astype(np.int8)
        batch = Batch(
            graph, probs, values, LogZ.EXACT, codes, np.zeros(n, dtype=np.int64), np.zeros(n),
            self.solver, 0.0,
            expected(graph, self.model, probs, found.joints) if statistics else None,
        )  # fmt: skip
        batch = with_singles(batch, self, rows, np.flatnonzero(found.unsafe & ~impossible))
        return replace(batch, seconds=clock() - began)

    @cached_property
    def plan(self) -> RowPlan:
        """The clique tree laid out for rows, when first asked for."""
        from minfer.solvers.row_plans import RowPlan

        assert self.tree is not None
        flat = flatten(self.model)
        plan = RowPlan.make(flat, self.tree)
        plan.load(flat.log_psi, flat.field, self.model.constant)
        return plan

    def _pays_to_plan_again(self, known: NDArray[np.int32]) -> bool:
        """The rule of the class, by the cells that are left of each clique."""
        tree = self.tree
        assert tree is not None
        if tree.cells <= WORTH_PLANNING:
            return False
        seen = known[tree.variables] >= 0
        bits = np.log2(self.model.graph._n_states[tree.variables]) * seen
        less = np.add.reduceat(bits, tree.ptr[:-1])
        return float((tree.clique_cells * 2.0**-less).sum()) < tree.cells / 8.0


def same_structure(a: Conditioned, b: Conditioned) -> bool:
    """Whether two models differ in numbers only."""
    return (
        len(a.groups) == len(b.groups)
        and np.array_equal(a.fixed, b.fixed)
        and all(x is y or x.has_structure_of(y) for x, y in zip(a.groups, b.groups))
    )


def known_states(
    graph: FactorGraph, fixed: NDArray[np.int32], evidence: Mapping[int, int]
) -> NDArray[np.int32]:
    """The states that evidence leaves to variables that are free without it, -1 elsewhere; as long
    as ``fixed``, which may go on with auxiliary variables."""
    known = np.full(len(fixed), -1, dtype=np.int32)
    for v, state in evidence.items():
        known[v] = state
    wrong = (known >= 0) & (fixed >= 0) & (known != fixed)
    if wrong.any():
        v = int(np.flatnonzero(wrong)[0])
        raise ContradictionError(
            f"variable {graph.name(v)} has no state left: the model leaves it {fixed[v]} only, "
            f"and {known[v]} was observed"
        )
    known[fixed >= 0] = -1
    return known


def excluded(model: Conditioned, known: NDArray[np.int32]) -> NDArray[np.float64]:
    """The field without the states that known variables are not in."""
    graph = model.graph
    own = np.arange(len(model.field)) - np.repeat(graph._offsets[:-1], graph._n_states)
    state = np.repeat(known, graph._n_states)
    return np.where((state >= 0) & (own != state), -np.inf, model.field)
