"""Gradients through batches: many answers over one structure, and the way back for all of them.

    rows = record(run, evidence, weights, field)   # run = solver.prepare(graph), as run.batch
    rows.batch.probs                               # (N, sum of states)
    rows.pull_back(cotangents).field               # dLoss/d(field) of every row

Ways, by what a batch leaves behind:

* **pairs**, binary, by belief propagation: rows run in lanes (:mod:`minfer.solvers.lanes`), which
  keep beliefs of pairs and no messages. The adjoint needs no more: a message's slope is a
  difference of conditional probabilities. All rows are solved in one kernel.
* **exact**: perturbation, a batch for each of four tilts; what improbable states do to others is
  read from the answers given that they occur. Rows in doubt are differentiated one by one.
* everything else, and rows whose numbers do not fit, by single calls on the prepared structure.

Rows do not depend on one another, nor on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.parallel import in_threads
from minfer.errors import ContradictionError
from minfer.solvers.base import Marginals
from minfer.solvers.batch import Batch, Rows, code, expected, joint_kind
from minfer.solvers.gradients import (
    ROUGH,
    TILT,
    TILTS,
    PairSlopes,
    away_from_mean,
    frame_of,
    out_of_range,
    pull_back,
    slope_of,
    solve,
    were_lost,
)
from minfer.solvers.prepared import Prepared, PreparedExact, PreparedPropagation

Floats = NDArray[np.float64]

#: States whose cotangent is larger than this times what they can contribute are left to no tilt.
_RARE = 1e4
_AT_ONCE = 256  # rows that are given a state
_WORK = 4e6  # slots that a kernel, which cannot be interrupted, goes through in one call


@dataclass(frozen=True, eq=False)
class Pullbacks:
    """Gradients of N rows."""

    field: Floats  # (N, sum of states) dLoss/d(log-field)
    weights: Floats  # (N, n_weights) dLoss/d(weights)
    converged: NDArray[np.bool_]  # (N,) is that, to the tolerance, and of a converged answer

    def put(self, which: NDArray[np.int64], rest: Pullbacks) -> None:
        """Take some rows from others'."""
        self.field[which], self.weights[which] = rest.field, rest.weights
        self.converged[which] = rest.converged


def record(run: Prepared, evidence: Any, weights: Any, field: Any, *, workers: int = 1) -> Recorded:
    """As ``run.batch``, to be differentiated; a row that is impossible is refused."""
    rows = Rows.of(run.graph, evidence, weights, field)
    found: Recorded | None = None
    if isinstance(run, PreparedPropagation) and rows.n:
        found = _in_lanes(run, rows, workers)
    elif isinstance(run, PreparedExact) and rows.n:
        batch = run._in_lanes(rows, np.float64, workers, False, False)
        found = None if batch is None else _Tilted(run, rows, possible(batch), workers)
    return found or _Singly(run, rows, np.arange(rows.n), workers)


def possible(batch: Batch) -> Batch:
    """The batch, none of whose rows is impossible."""
    if batch.impossible.any():
        raise ContradictionError(
            f"row {int(np.argmax(batch.impossible))}: every assignment has probability zero: the "
            "hard constraints (and evidence) contradict"
        )
    return batch


class _Singly:
    """Some rows by single calls."""

    def __init__(self, run: Prepared, rows: Rows, which: NDArray[np.int64], workers: int) -> None:
        self.run, self.which, self.workers = run, which, workers

        def answer(row: int) -> Marginals:
            try:
                return run(**rows.at(row))
            except ContradictionError as error:
                raise ContradictionError(f"row {row}: {error}") from None

        self.answers: list[Marginals] = in_threads(answer, which.tolist(), workers)
        n = len(which)
        last = [m.residuals[-1] if len(m.residuals) else 0.0 for m in self.answers]
        self.batch = Batch(
            run.graph,
            np.array([m.probs for m in self.answers]).reshape(n, int(run.graph._offsets[-1])),
            np.full(n, np.nan),
            joint_kind({m.log_z_kind for m in self.answers}),
            np.array([code(m.status) for m in self.answers], dtype=np.int8),
            np.array([m.iterations for m in self.answers], dtype=np.int64), np.array(last),
            run.solver, 0.0,
        )  # fmt: skip

    def pull_back(
        self, cotangents: Floats, *, tol: float, max_iters: int, weights: bool
    ) -> Pullbacks:
        """From dLoss/d(probability), (N, sum of states); as the function of that name."""
        found = in_threads(
            lambda k: pull_back(
                self.answers[k], cotangents[k], solver=self.run.solver, tol=tol,
                max_iters=max_iters, weights=weights,
            ),
            range(len(self.answers)), self.workers,
        )  # fmt: skip
        n, graph = len(found), self.run.graph
        return Pullbacks(
            np.array([b.field for b in found]).reshape(n, int(graph._offsets[-1])),
            np.array([b.weights for b in found]).reshape(n, int(graph.weight_offsets[-1])),
            np.array([b.converged for b in found], dtype=bool),
        )


def _in_lanes(run: PreparedPropagation, rows: Rows, workers: int) -> Recorded | None:
    found = run.in_lanes(rows, np.float64, workers, False, True)
    if found is None:
        return None
    batch, joints, left = found
    assert joints is not None
    singly = None
    if len(left):
        singly = _Singly(run, rows, left, workers)
        for name in ("probs", "codes", "iterations", "residuals"):
            getattr(batch, name)[left] = getattr(singly.batch, name)
    return _Pairwise(run, possible(batch), joints, singly, workers)


@dataclass(frozen=True, eq=False)
class _Pairwise:
    """Binary pairs, from the beliefs of their factors."""

    run: PreparedPropagation
    batch: Batch
    joints: Any  # (N, P, 4), or on a device
    singly: _Singly | None  # rows that are not in lanes
    workers: int

    def pull_back(
        self, cotangents: Floats, *, tol: float, max_iters: int, weights: bool
    ) -> Pullbacks:
        from minfer.kernels.messages import adjoint as k

        mesh, graph, n = self.run.mesh, self.run.graph, len(self.batch)
        assert mesh is not None
        c, probs = np.ascontiguousarray(cotangents, dtype=np.float64), self.batch.probs
        damping = float(self.run.solver.damping)
        inside = np.ones(n, dtype=bool)
        if self.singly is not None:
            inside[self.singly.which] = False
        rows = np.flatnonzero(inside)
        S, sweeps = np.zeros((n, graph.n_variables)), np.zeros(n, dtype=np.int64)
        tables = np.zeros((n if weights else 0, len(mesh.slot), 4))
        codes, frame = np.full(n, k.CONVERGED), frame_of(mesh)
        how, to = (tol, damping, max_iters), (S, tables, sweeps, codes)

        def some(part: NDArray[np.int64]) -> None:
            k.pair_rows(frame, part, self.joints, self.batch.probs, c, how, to)

        if isinstance(self.joints, np.ndarray):
            size = max(1, int(_WORK / max(1, 20 * len(mesh.wiring.rev))))
            size = max(1, min(size, -(-len(rows) // self.workers)))
            in_threads(some, [rows[i : i + size] for i in range(0, len(rows), size)], self.workers)
        else:
            by_odds = probs[:, ::2] * probs[:, 1::2] * (c[:, 1::2] - c[:, ::2])
            there = self.joints.adjoint(by_odds, *how, weights)
            S, sweeps, codes = there.S, there.sweeps, there.codes
            tables = there.tables if weights else tables
        for r in np.flatnonzero(codes == k.SLOW).tolist():  # one by one, by GMRES
            slope, sigma = np.empty((2, len(mesh.wiring.rev)))
            k.joint_slopes(mesh.slot, self.joints[r], slope, sigma)
            system = PairSlopes(mesh, self.batch.probs[r], c[r], slope, sigma)
            status, sweeps[r], _ = solve(system, tol, max_iters, damping)
            codes[r] = k.CONVERGED if status.ok else k.SLOW
            S[r] = system.S
            if weights:
                every = np.arange(len(mesh.slot))
                k.pair_statistics(frame, every, sigma, system.lam, system.S, np.eye(4), tables[r])
        field = np.empty((n, 2 * graph.n_variables))
        field[:, ::2], field[:, 1::2] = -S, S
        by_weight = np.zeros((n, int(graph.weight_offsets[-1])))
        if weights:
            by_weight = expected(graph, mesh.model, field, tables)
            for g in graph.groups:
                if g.arity == 0:  # constants
                    by_weight[:, graph._weight_places(g)] = 0.0
        found = Pullbacks(field, by_weight, (codes == k.CONVERGED) & self.batch.converged)
        if self.singly is not None:
            which = self.singly.which
            rest = self.singly.pull_back(c[which], tol=tol, max_iters=max_iters, weights=weights)
            found.put(which, rest)
        return found


@dataclass(frozen=True, eq=False)
class _Tilted:
    """Exact answers, differentiated along the cotangents."""

    run: PreparedExact
    rows: Rows
    batch: Batch
    workers: int

    def pull_back(
        self, cotangents: Floats, *, tol: float, max_iters: int, weights: bool
    ) -> Pullbacks:
        graph, probs, rows = self.run.graph, self.batch.probs, self.rows
        away = away_from_mean(graph, probs, cotangents)
        # states that would set a step in which all others are rounding
        most = np.abs(away * probs).max(axis=-1, keepdims=True, initial=0.0)
        rare = (np.abs(away) > _RARE * most) & (probs > 0.0)
        direction = np.where(rare, 0.0, away)
        size = np.abs(direction).max(axis=1, initial=0.0)
        step = np.where(size > 0.0, TILT / np.where(size > 0.0, size, 1.0), 1.0)[:, None]
        begin = np.zeros_like(probs) if rows.field is None else rows.field
        answers = [
            self.run.batch(
                rows.evidence, rows.weights, begin + direction * (step * k), workers=self.workers,
                log_z=False, statistics=weights,
            )
            for k in TILTS
        ]  # fmt: skip
        field, error = slope_of([b.probs for b in answers], step)
        by_weight = np.zeros((len(probs), int(graph.weight_offsets[-1])))
        if weights:
            means = [b.statistics for b in answers]
            assert means[0] is not None
            by_weight, more = slope_of(means, step)  # type: ignore[arg-type]
            error = np.maximum(error, more)
        shares = away * probs
        if rare.any():
            self._add_rare(np.argwhere(rare), shares, field, by_weight if weights else None)
        found = Pullbacks(field, by_weight, np.ones(len(probs), dtype=bool))
        doubtful = error > ROUGH * np.abs(shares).max(axis=1, initial=0.0)
        lost = were_lost(cotangents, probs, shares)
        which = np.flatnonzero(doubtful | lost | out_of_range(cotangents, shares))
        if len(which):
            rest = _Singly(self.run, rows, which, self.workers)
            found.put(which, rest.pull_back(cotangents[which], tol=tol, max_iters=max_iters,
                                            weights=weights))  # fmt: skip
        return found

    def _add_rare(
        self, places: NDArray[np.int64], shares: Floats, field: Floats, by_weight: Floats | None
    ) -> None:
        """What improbable states do to all others: the answers given each, less those without."""
        graph = self.run.graph
        owner = np.repeat(np.arange(graph.n_variables), graph._n_states)
        for begin in range(0, len(places), _AT_ONCE):
            row, at = places[begin : begin + _AT_ONCE].T
            some = self.rows.take(row)
            own = np.zeros((1, field.shape[1])) if some.field is None else some.field
            v = np.searchsorted(graph._offsets, at, side="right") - 1
            only = np.where(owner == v[:, None], -np.inf, 0.0)  # leave a variable a single state
            only[np.arange(len(at)), at] = 0.0
            given, plain = (
                self.run.batch(
                    some.evidence, some.weights, tilt, workers=self.workers, log_z=False,
                    statistics=by_weight is not None,
                )
                for tilt in (own + only, own)
            )  # fmt: skip
            share = shares[row, at][:, None]
            np.add.at(field, row, share * (given.probs - plain.probs))
            if by_weight is not None:
                assert given.statistics is not None
                assert plain.statistics is not None
                np.add.at(by_weight, row, share * (given.statistics - plain.statistics))


#: Answers of rows, ``batch``, and what a gradient through them needs, ``pull_back``.
Recorded = _Singly | _Pairwise | _Tilted
