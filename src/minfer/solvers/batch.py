"""Many answers over one structure, as arrays.

A row is one set of numbers (evidence, weights, field) for a structure that was prepared once
(:mod:`minfer.solvers.prepared`). Rows do not depend on one another: which rows share a call, and
how many threads there are, changes no bit of an answer. A row that the model excludes, such as
contradictory evidence, has ``log_z`` minus infinity and NaN for probabilities; the others go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import real_numbers
from minfer.basics.limits import clock
from minfer.basics.parallel import in_threads
from minfer.basics.words import counted
from minfer.errors import ContradictionError, EvidenceError, ModelError
from minfer.factors.group import MAX_LOG, FactorGroup, read_only
from minfer.model.evidence import hard_and_field, states_of
from minfer.solvers.base import LogZ, Status

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Solver
    from minfer.solvers.prepared import Prepared

#: What a row's code means.
STATUSES: tuple[Status | None, ...] = (None, *Status)


def code(status: Status | None) -> int:
    """The code of a status."""
    return STATUSES.index(status)


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """N answers.

    Attributes
    ----------
    graph : FactorGraph
        The structure, with its own numbers.
    probs : float array (N, sum of states)
        All marginals of each row, laid out like ``Marginals.probs``; NaN in impossible rows.
    log_z : float array (N,)
        NaN where it was not asked for.
    log_z_kind : LogZ
    codes : int array (N,)
        The status of each row as its place in :data:`STATUSES`; see :attr:`status`.
    iterations : int array (N,)
    residuals : float array (N,)
        The last residual of each row.
    statistics : float array (N, n_weights) or None
        Expected statistics of each row, if they were asked for (``Marginals.statistics``).
    solver : Solver
    seconds : float
        Wall-clock time of the whole batch.
    """

    graph: FactorGraph
    probs: NDArray[np.float64]
    log_z: NDArray[np.float64]
    log_z_kind: LogZ
    codes: NDArray[np.int8]
    iterations: NDArray[np.int64]
    residuals: NDArray[np.float64]
    solver: Solver
    seconds: float
    statistics: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.probs)

    def __getitem__(self, key: int | str | tuple[int | str, int | str]) -> NDArray[np.float64]:
        """p(x_v) in every row, shape (N, S_v), by number or name; ``[v, state]`` has shape (N,)."""
        variable, *rest = key if isinstance(key, tuple) else (key,)
        v = self.graph.index(variable)
        lo, hi = self.graph._offsets[v : v + 2]
        if not rest:
            return read_only(self.probs[:, lo:hi])
        return read_only(self.probs[:, lo + self.graph.state(variable, *rest)])

    @property
    def status(self) -> list[Status | None]:
        """The status of each row; None for one that is impossible."""
        return [STATUSES[k] for k in self.codes]

    @property
    def impossible(self) -> NDArray[np.bool_]:
        """Rows that the model excludes, shape (N,)."""
        return self.codes == 0

    @property
    def converged(self) -> NDArray[np.bool_]:
        """Rows whose run finished what it set out to do, shape (N,)."""
        return np.isin(self.codes, [k for k, s in enumerate(STATUSES) if s is not None and s.ok])

    def __repr__(self) -> str:
        text = f"Batch({counted(len(self), 'row')} of {counted(self.graph.n_variables, 'variable')}"
        done, out = int(self.converged.sum()), int(self.impossible.sum())
        if done < len(self) - out:
            text += f"; {len(self) - out - done:,} not converged"
        if out:
            text += f"; {out:,} impossible"
        return f"{text}; {self.solver!r}; {self.seconds * 1e3:.3g} ms)"


@dataclass(frozen=True, eq=False)
class Rows:
    """The numbers of N rows, checked; None where they are the graph's own."""

    n: int
    evidence: NDArray[np.int32] | None  # (N, V), -1 where nothing is known
    weights: NDArray[np.float64] | None  # (N, n_weights), or (1, n_weights) for all
    field: NDArray[np.float64] | None  # (N, sum S), or (1, sum S)

    @classmethod
    def of(
        cls,
        graph: FactorGraph,
        evidence: Sequence[Any] | Mapping[Any, ArrayLike] | NDArray | None,
        weights: ArrayLike | None,
        field: ArrayLike | None,
    ) -> Rows:
        """What a caller gave, as arrays with as many rows as the longest has."""
        evidence, field = _without_likelihoods(graph, evidence, field)
        known = None if evidence is None else states_of(graph, evidence, "batch")
        theta = _numbers(weights, int(graph.weight_offsets[-1]), "weights")
        more = _numbers(field, int(graph._offsets[-1]), "field")
        for what, values in (("field", more), ("weights", theta)):
            if values is None or not values.size:
                continue
            top, low = values.max(), values.min()
            if np.isnan(top):
                raise ModelError(f"batch: there is a NaN among the numbers of {what}")
            if top < MAX_LOG and low > -MAX_LOG:
                continue
            wrong = (np.abs(values) >= MAX_LOG) & (values != -np.inf)
            if what == "weights":  # infinity makes some kinds hard
                wrong &= values != np.inf
            if wrong.any():
                raise ModelError(
                    f"batch: {what}: {values[wrong][0]} is too large; numbers must be within "
                    "1e300, or minus infinity"
                )
        given = {"evidence": known, "weights": theta, "field": more}
        sizes = {name: len(a) for name, a in given.items() if a is not None}
        if not sizes:
            raise ModelError("batch: give rows of evidence, weights or field")
        n = max(sizes.values())
        for name, size in sizes.items():
            if size not in (1, n):
                raise ModelError(f"batch: {size} rows of {name}, but {n} of others")
        if known is not None and len(known) != n:
            known = np.broadcast_to(known, (n, known.shape[1]))
        return cls(n, known, theta, more)

    def at(self, row: int) -> dict[str, Any]:
        """The arguments of one call."""
        out: dict[str, Any] = {}
        for name in ("evidence", "weights", "field"):
            values = getattr(self, name)
            if values is not None:
                out[name] = values[row if len(values) > 1 else 0]
        return out

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Some of the rows."""

        def part(values: NDArray | None) -> NDArray | None:
            return values if values is None or len(values) == 1 < self.n else values[rows]

        return Rows(len(rows), part(self.evidence), part(self.weights), part(self.field))


def _of_states(said: Any) -> bool:
    """Whether it is likelihoods of all states, and no state."""
    many = isinstance(said, np.ndarray) and said.ndim > 0
    return many or isinstance(said, (Mapping, list, tuple))


def _without_likelihoods(graph: FactorGraph, evidence: Any, field: Any) -> tuple[Any, Any]:
    """Rows {variable: state, or likelihoods} as rows of states, and a field that has the rest."""
    rows = list(evidence) if isinstance(evidence, (list, tuple)) else []
    size, some = int(graph._offsets[-1]), {}
    for k, row in enumerate(rows):
        if isinstance(row, Mapping):
            like = {v: x for v, x in row.items() if _of_states(x)}
            if like:
                rows[k] = {v: x for v, x in row.items() if v not in like}
                try:
                    some[k] = hard_and_field(graph, like, None)[1]
                except EvidenceError as error:
                    raise EvidenceError(f"batch: row {k}: {error}") from None
    if not some:
        return evidence, field
    more = np.zeros((len(rows), size))
    more[list(some)] = list(some.values())
    own = _numbers(field, size, "field")
    if own is not None and len(own) not in (1, len(more)):
        return rows, own  # which is refused
    return rows, more if own is None else own + more


@dataclass(frozen=True, eq=False)
class Fields:
    """What rows say of single variables and of constants, absorbed for all rows at once."""

    log_field: NDArray[np.float64]  # (N or 1, sum S)
    constant: NDArray[np.float64]  # (N or 1,)
    more: NDArray[np.float64] | None  # (N or 1, sum S) to be added, where it need not be apart

    @property
    def whole(self) -> NDArray[np.float64]:
        """All of the field, (N or 1, sum S)."""
        return self.log_field if self.more is None else self.log_field + self.more

    @classmethod
    def of(
        cls, model: Conditioned, graph: FactorGraph, rows: Rows, statistics: bool
    ) -> Fields | None:
        """None where rows must be answered singly: weights, or ``statistics``, of the graph's own
        factors are wanted and these have been sliced, or are not linear in their weights."""
        if statistics and (
            model.has_fixed or not has_bases(graph) or any(g.form != "table" for g in graph.groups)
        ):
            return None
        if rows.weights is None:
            own = model.field[: int(graph._offsets[-1])]  # auxiliary variables lie behind
            return cls(own[None], np.array([model.constant]), rows.field)
        if model.has_fixed or not has_bases(graph) or not np.isfinite(rows.weights).all():
            return None
        n = len(rows.weights)
        log_field = np.tile(graph.field, (n, 1))
        constant = np.zeros(n)
        for g in graph.groups:
            if g.arity > 1 or not g.n_weights:
                continue
            basis = g.basis()
            assert basis is not None
            tables = weights_of(graph, g, rows.weights) @ basis  # (N, F, cells)
            if g.arity == 0:
                constant += tables.sum(axis=(1, 2))
                continue
            places = graph._offsets[g._scope] + np.arange(g.shape[0])
            if len(np.unique(places)) == places.size:
                log_field[:, places] += tables
            else:
                np.add.at(log_field.T, places, np.moveaxis(tables, 0, -1))
        if rows.field is not None:
            log_field = log_field + rows.field
        if ((log_field == -np.inf) != (model.field == -np.inf)).any():
            return None  # other zeros: another structure
        return cls(log_field, constant, None)


def has_bases(graph: FactorGraph) -> bool:
    """Whether all tables are linear in their weights."""
    return all(g.basis() is not None for g in graph.groups if g.n_weights)


def weights_of(
    graph: FactorGraph, group: FactorGroup, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """A group's own of all weights (N, n_weights), shape (N, F, k)."""
    places = graph._weight_places(group)
    return weights[:, places].reshape(len(weights), len(group), group.n_weights)


def expected(
    graph: FactorGraph, model: Conditioned, probs: NDArray, joints: NDArray
) -> NDArray[np.float64]:
    """Expected statistics (N, n_weights) of rows from their marginals (N, sum S) and the joints of
    ``model.groups`` one after the other, with N rows; NaN in impossible ones."""
    n = len(probs)
    flat = joints.reshape(n, -1)
    out = np.empty((n, int(graph.weight_offsets[-1])))
    parts: list[tuple[FactorGroup, NDArray]] = []
    for g in graph.groups:
        if g.arity == 0:
            parts.append((g, np.ones((n, len(g), 1))))
        elif g.arity == 1:
            parts.append((g, probs[:, graph._offsets[g._scope] + np.arange(g.shape[0])]))
    done = 0
    for g in model.groups:
        size = len(g) * g.n_cells
        parts.append((g, flat[:, done : done + size].reshape(n, len(g), g.n_cells)))
        done += size
    for g, joint in parts:
        basis = g.basis()
        if basis is not None:
            values, places = joint @ basis.T, graph._weight_places(g)  # (N, F, k)
            out[:, places] = values.reshape(n, -1) if isinstance(places, slice) else values
    out[np.isnan(probs).any(axis=1)] = np.nan
    return out


def with_singles(batch: Batch, run: Prepared, rows: Rows, which: NDArray[np.int64]) -> Batch:
    """The batch with some rows answered by single calls."""
    if not len(which):
        return batch
    some = one_by_one(run, rows.take(which), 1, batch.statistics is not None)
    for name in ("probs", "log_z", "codes", "iterations", "residuals", "statistics"):
        if (mine := getattr(batch, name)) is not None:
            mine[which] = getattr(some, name)
    kinds = {some.log_z_kind} | ({batch.log_z_kind} if len(which) < len(batch) else set())
    return replace(batch, log_z_kind=joint_kind(kinds))


def one_by_one(run: Prepared, rows: Rows, workers: int, statistics: bool) -> Batch:
    """A batch by single calls, in threads."""
    began = clock()
    graph = run.graph
    probs = np.full((rows.n, int(graph._offsets[-1])), np.nan)
    log_z = np.full(rows.n, -np.inf)
    iterations, residuals = np.zeros(rows.n, dtype=np.int64), np.zeros(rows.n)
    codes = np.zeros(rows.n, dtype=np.int8)
    kinds: set[LogZ] = set()
    expected = np.full((rows.n, int(graph.weight_offsets[-1])), np.nan) if statistics else None

    def solve(row: int) -> None:
        try:
            answer = run(**rows.at(row))
        except ContradictionError:
            return
        probs[row], log_z[row], codes[row] = answer.probs, answer.log_z, code(answer.status)
        iterations[row] = answer.iterations
        residuals[row] = answer.residuals[-1] if len(answer.residuals) else 0.0
        kinds.add(answer.log_z_kind)
        if expected is not None:
            expected[row] = answer.statistics()

    in_threads(solve, range(rows.n), workers)
    return Batch(
        graph, probs, log_z, joint_kind(kinds), codes, iterations, residuals,
        run.solver, clock() - began, expected,
    )  # fmt: skip


def joint_kind(kinds: set[LogZ]) -> LogZ:
    """What all log Zs of a batch are to the true ones."""
    for kind in (LogZ.EXACT, LogZ.LOWER, LogZ.UPPER):
        if kinds <= {LogZ.EXACT, kind}:
            return kind
    return LogZ.NONE if LogZ.NONE in kinds else LogZ.ESTIMATE


def _numbers(values: ArrayLike | None, n: int, what: str) -> NDArray[np.float64] | None:
    if values is None:
        return None
    out = np.atleast_2d(real_numbers(values, f"batch: {what}")).astype(np.float64, copy=False)
    if out.ndim != 2 or out.shape[1] != n:
        raise ModelError(f"batch: {what} must have shape (N, {n}), not {np.shape(values)}")
    return np.ascontiguousarray(out)
