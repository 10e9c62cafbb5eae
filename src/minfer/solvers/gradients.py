"""Gradients through marginals: from dLoss/d(marginals) to dLoss/d(field) and dLoss/d(weights).

    m = solver(graph)
    back = pull_back(m, cotangent)         # cotangent: dLoss/dp, flat as m.probs
    back.field, back.weights

Three ways, chosen by what the answer is:

* **adjoint**: fixed points of belief propagation and its tree-reweighted kin, over tables of any
  kind. One linear system in the messages' transposed slopes (:mod:`minfer.kernels.adjoint`), solved
  by sweeps like those that found the fixed point, damped where these needed it, by GMRES where that
  is not enough. No number of the model is moved, so nothing depends on a step.
* **perturbation** (Domke 2010): the Jacobian of the marginals by the field is symmetric wherever
  they are the gradient of a log Z, so its product with the cotangent is how the marginals (and all
  expected statistics) move when the field is tilted along the cotangent. Four runs at tilts of -2,
  -1, 1 and 2 steps; ``error`` says how far the finer and the coarser difference are apart.
* **independent**: models in which no factor is left over two free variables, in closed form.

The gradient of log Z itself needs none of this: it is ``m.probs`` and ``m.statistics()``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.checks import check_type, real_numbers
from minfer.conditioning import Conditioned, condition
from minfer.errors import ModelError, RefusedError, SettingsError
from minfer.factors import FactorGroup
from minfer.graph import FactorGraph
from minfer.message_state import MessageState
from minfer.solvers.base import Marginals, Solver, Status
from minfer.wiring import PAIR, refill

if TYPE_CHECKING:
    from minfer.wiring import Mesh

#: Of a probability by the flooding update: what a perturbed run must have settled to.
_TIGHT = 1e-14
#: A tilt, in nats of the largest cotangent, by which perturbation moves the field.
_STEP = 2e-3
_CHUNK = 1 << 22  # cells of joints that are written out together
_RESTART = 30  # Krylov vectors that GMRES keeps


@dataclass(frozen=True, eq=False)
class Pullback:
    """What :func:`pull_back` gives.

    Attributes
    ----------
    field : float array (sum of states,)
        dLoss/d(log-field): of every state of every variable.
    weights : float array (n_weights,)
        dLoss/d(``graph.weights``).
    method : "adjoint", "perturbation" or "independent"
    status : Status
        ``CONVERGED``, ``EXACT`` (no iteration was needed) or ``MAX_ITERS``.
    sweeps : int
        Over the messages, the products that GMRES took included; runs of a perturbation.
    error : float or None
        Of a perturbation, an estimate of the largest error of any number of the two.
    note : str
        What was needed to get there (damping, GMRES), or what the gradient lacks.
    """

    field: NDArray[np.float64]
    weights: NDArray[np.float64]
    method: str
    status: Status
    sweeps: int = 0
    error: float | None = None
    note: str = ""

    @property
    def converged(self) -> bool:
        """Whether this is the gradient, to the tolerance asked for, of a converged answer."""
        return self.status.ok

    def __repr__(self) -> str:
        words = f"{self.method}, {self.status.value}, {self.sweeps} sweeps"
        return f"Pullback({words}{', ' if self.note else ''}{self.note})"


def pull_back(
    marginals: Marginals,
    cotangent: ArrayLike,
    *,
    solver: Solver | None = None,
    tol: float = 1e-6,
    max_iters: int = 1000,
    weights: bool = True,
    method: str = "auto",
) -> Pullback:
    """dLoss/d(field) and dLoss/d(weights) from dLoss/d(marginals).

    Parameters
    ----------
    marginals : Marginals
        A solver's answer. Its gradient is that of the fixed point it has converged to; of a run
        that was cut short it is an approximation, and ``converged`` is false.
    cotangent : float array (sum of states,)
        dLoss/d(probability), variable after variable as ``marginals.probs``.
    solver : Solver, optional
        What gave the answer, for solvers that have no adjoint and cannot be told from it.
    tol : float
        Sweeps stop when they move no derivative by more than this share of the largest.
    max_iters : int
        Sweeps at most.
    weights : bool
        Whether ``weights`` are wanted too; they are zero otherwise.
    method : "auto", "adjoint" or "perturbation"

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import BeliefPropagation, FactorGraph
    >>> from minfer.solvers.gradients import pull_back
    >>> m = BeliefPropagation()(FactorGraph.pairwise([0.5, 0.0], [[0, 1]], [1.0]))
    >>> back = pull_back(m, [0.0, 0.0, 0.0, 1.0])  # of P(x1 = 1)
    >>> back.weights.round(4).tolist()
    [0.0429, 0.2196, 0.1796]
    """
    check_type(marginals, Marginals, "pull_back: the answer of a solver is wanted", ModelError)
    graph = marginals.graph
    c = np.array(real_numbers(cotangent, "pull_back: cotangent"), dtype=np.float64).ravel()
    if c.shape != marginals.probs.shape:
        raise ModelError(
            f"pull_back: a cotangent of {c.size} numbers for {marginals.probs.size} probabilities"
        )
    if not np.isfinite(c).all():
        raise ModelError("pull_back: the cotangent must be finite")
    if not (isinstance(tol, (int, float)) and 0.0 < tol < 1.0):
        raise SettingsError(f"pull_back: tol is a number between 0 and 1, not {tol!r}")
    if method not in ("auto", "adjoint", "perturbation"):
        raise SettingsError(
            f'pull_back: method is "auto", "adjoint" or "perturbation", not {method!r}'
        )
    state = marginals.state
    if isinstance(state, MessageState):
        if (
            method != "perturbation"
            and len(state.mesh.machines.code) + len(state.mesh.speakers) == 0
        ):
            found = _adjoint(marginals, state, c, tol, max_iters, weights)
            if found is not None:
                return found
    else:
        model = condition(graph)
        if not model.groups:
            return _independent(marginals, model, c, weights)
    if method == "adjoint":
        raise RefusedError(
            "pull_back: this answer has no adjoint (it is of a solver other than "
            "BeliefPropagation and TreeReweighted, or has logical or global factors): take "
            'method="perturbation"'
        )
    return _perturbed(marginals, c, solver, weights)


# ---------------------------------------------------------------------- from tables to weights


def _by_weights(
    graph: FactorGraph,
    model: Conditioned,
    field: NDArray[np.float64],
    probs: NDArray[np.float64],
    pairs: Callable[[FactorGroup], NDArray[np.float64] | None],
    ask: Callable[[NDArray[np.int64], tuple[int, ...]], NDArray[np.float64] | None],
) -> NDArray[np.float64]:
    """dLoss/d(weights), from dLoss/d(log psi) as ``ask`` has it: a signed joint that sums to zero.

    What a group makes of a joint, ``statistics``, is linear, so it does for these too.
    """
    out = np.zeros(int(graph.weight_offsets[-1]))
    for g in graph.groups:
        if not g.n_weights or g.arity == 0:
            continue
        found = pairs(g)
        if found is None:
            found = np.empty((len(g), g.n_weights))
            some = max(1, _CHUNK // g.n_cells)
            for lo in range(0, len(g), some):
                rows = np.arange(lo, min(lo + some, len(g)))
                part = g if len(rows) == len(g) else g.take(rows, g._ids[rows])
                tables = model.joints(part._ids, field, ask)
                known = np.logical_and.reduce(model.fixed[part._scope] >= 0, axis=1)
                if known.any():
                    tables = np.where(known[:, None], 0.0, tables)
                found[rows] = part.statistics(tables)
        graph._put_weights(g, found, out)
    return out


def _centred(
    graph: FactorGraph, probs: NDArray[np.float64], c: NDArray[np.float64]
) -> NDArray[np.float64]:
    """c - E[c] of every variable, 0 on states that are impossible."""
    if not len(c):
        return c
    mean = np.add.reduceat(probs * c, graph._offsets[:-1])
    return np.where(probs > 0.0, c - np.repeat(mean, np.diff(graph._offsets)), 0.0)


def _products(
    model: Conditioned, factors: NDArray[np.int64], shape: Sequence[int],
    probs: NDArray[np.float64], s: NDArray[np.float64],
) -> NDArray[np.float64]:  # fmt: skip
    """prod_v p_v times sum_v s_v, over the free variables of factors that tie nothing."""
    scope = model.graph.scopes(factors)
    free = scope[model.fixed[scope] < 0].reshape(len(factors), len(shape))
    joint, total = np.ones((len(factors), 1)), np.zeros((len(factors), 1))
    for a, size in enumerate(shape):
        at = model.graph._offsets[free[:, a]][:, None] + np.arange(size)
        joint = (joint[:, :, None] * probs[at][:, None, :]).reshape(len(factors), -1)
        total = (total[:, :, None] + s[at][:, None, :]).reshape(len(factors), -1)
    return joint * total


def _independent(
    marginals: Marginals, model: Conditioned, c: NDArray[np.float64], weights: bool
) -> Pullback:
    """Of a softmax per variable."""
    graph, probs = marginals.graph, marginals.probs
    s = _centred(graph, probs, c)
    field = probs * s
    found = np.zeros(int(graph.weight_offsets[-1]))
    if weights:
        found = _by_weights(
            graph, model, field, probs, lambda g: None,
            lambda factors, shape: _products(model, factors, shape, probs, s),
        )  # fmt: skip
    return Pullback(field, found, "independent", Status.EXACT)


# ---------------------------------------------------------------------- adjoint


def _adjoint(
    marginals: Marginals,
    state: MessageState,
    c: NDArray[np.float64],
    tol: float,
    max_iters: int,
    weights: bool,
) -> Pullback | None:
    if not len(state.mesh.wiring.gslot):
        return _of_pairs(marginals, state, c, tol, max_iters, weights)
    return None


def _of_pairs(
    marginals: Marginals,
    state: MessageState,
    c: NDArray[np.float64],
    tol: float,
    max_iters: int,
    weights: bool,
) -> Pullback:
    """Models of which all factors over free variables are binary pairs, one number a message."""
    from minfer.kernels import adjoint as k

    mesh, graph, probs = state.mesh, marginals.graph, marginals.probs
    w, m = mesh.wiring, state.messages.m
    slope, sigma = np.empty_like(m), np.empty_like(m)
    k.pair_slopes(w.ptr, m, w.W, state._odds, state._log_odds, slope, sigma)
    s = _centred(graph, probs, c)
    field = probs * s
    first = graph._offsets[:-1]
    binary = graph._n_states == 2
    g = np.zeros(graph.n_variables)
    g[binary] = field[first[binary] + 1]
    S = g.copy()
    lam = np.repeat(g, np.diff(w.ptr).astype(np.int64))
    if len(w.rho):
        lam *= w.rho
    core, order = _core(mesh, np.diff(w.ptr) > 0)

    def walk(down: bool) -> None:
        if len(order):
            k.pair_pass(w.ptr, w.rev, w.rho, slope, g, lam, S, order, down, 0.0)

    def sweeps(done: int, most: int, damping: float) -> tuple[int, int, float]:
        return k.pair_sweeps(w.ptr, w.rev, w.rho, slope, g, lam, S, core, done, most, tol, damping)

    def begin() -> None:
        S[:] = g
        lam[:] = np.repeat(g, np.diff(w.ptr).astype(np.int64))
        if len(w.rho):
            lam[:] *= w.rho
        walk(False)

    solved = _solve(sweeps, walk, begin, lam, core, max_iters, _damping_of(marginals))
    field[first[binary]] = -S[binary]
    field[first[binary] + 1] = S[binary]
    found = np.zeros(int(graph.weight_offsets[-1]))
    if weights:
        by_weight = np.empty(len(mesh.slot))
        k.pair_weights(mesh.slot, w.rho, sigma, lam, by_weight)
        plain = not mesh.model.has_fixed

        def tables(factors: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.float64]:
            out = np.empty((len(factors), 4))
            form = mesh.roles.form[factors]
            pair = np.flatnonzero(form == PAIR)
            rows = mesh.roles.row[factors[pair]]
            those = np.empty((len(rows), 4))
            k.pair_statistics(rows, mesh.pair_scope, S, by_weight, np.eye(4), those)
            if len(pair) == len(factors):
                return those
            out = _products(mesh.model, factors, shape, probs, _divided(field, probs))
            out[pair] = those
            return out

        def pairs(group: FactorGroup) -> NDArray[np.float64] | None:
            basis = group.basis() if plain and group.shape == (2, 2) else None
            if basis is None or not (mesh.roles.form[group._ids] == PAIR).all():
                return None
            out = np.empty((len(group), len(basis)))
            k.pair_statistics(mesh.roles.row[group._ids], mesh.pair_scope, S, by_weight, basis, out)
            return out

        found = _by_weights(graph, mesh.model, field, probs, pairs, tables)
    return _answered(marginals, field, found, solved)


def _divided(field: NDArray[np.float64], probs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(field, probs, out=np.zeros_like(field), where=probs > 0.0)


def _core(mesh: Mesh, has_slots: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Variables that sweeps visit, and those of trees in collecting order."""
    if mesh.trees is None:
        return np.flatnonzero(has_slots), np.zeros(0, dtype=np.int64)
    order = mesh.trees.order
    return np.flatnonzero(has_slots & ~mesh.trees.asleep), order[order >= 0]


@dataclass
class _Solved:
    """How an adjoint came about."""

    status: Status
    sweeps: int
    note: str = ""


def _damping_of(marginals: Marginals) -> float:
    """The damping of the run that gave an answer, as its solver's words have it."""
    found = re.search(r"damping=([0-9.eE+-]+)", marginals.solver)
    return float(found[1]) if found else 0.0


def _solve(
    sweeps: Callable[[int, int, float], tuple[int, int, float]],
    walk: Callable[[bool], None],
    begin: Callable[[], None],
    lam: NDArray[np.float64],
    core: NDArray[np.int64],
    max_iters: int,
    damping: float,
) -> _Solved:
    """Trees up, the core to convergence, trees down."""
    from minfer.kernels.adjoint import CONVERGED, DIVERGED

    begin()
    if not len(core):
        walk(True)
        return _Solved(Status.EXACT, 1)
    done, note = 0, ""
    status, done, _ = sweeps(0, max_iters, damping)
    if status == DIVERGED and done < max_iters:
        spent, damping = done, 0.5 if damping < 0.4 else 0.8
        begin()
        status, done, _ = sweeps(0, max_iters - spent, damping)
        note, done = f"with damping {damping}", done + spent
    walk(True)
    return _Solved(Status.CONVERGED if status == CONVERGED else Status.MAX_ITERS, done, note)


def _answered(
    marginals: Marginals, field: NDArray[np.float64], weights: NDArray[np.float64], how: _Solved
) -> Pullback:
    status, note = how.status, how.note
    if not (np.isfinite(field).all() and np.isfinite(weights).all()):
        raise ModelError("pull_back: the adjoint left the range of floats")
    if not marginals.converged and status.ok:
        status, note = Status.MAX_ITERS, "of messages that have not converged"
    return Pullback(field, weights, "adjoint", status, how.sweeps, None, note)


# ---------------------------------------------------------------------- perturbation


def _perturbed(
    marginals: Marginals, c: NDArray[np.float64], solver: Solver | None, weights: bool
) -> Pullback:
    """Differences of marginals and statistics along the cotangent, of fourth order."""
    graph = marginals.graph
    direction = _centred(graph, marginals.probs, c)
    size = float(np.abs(direction).max(initial=0.0))
    n, run = int(graph.weight_offsets[-1]), _runner(marginals, solver)
    if size == 0.0:
        return Pullback(np.zeros(len(c)), np.zeros(n), "perturbation", Status.EXACT)
    step = _STEP / size
    answers = [run(direction * (step * k)) for k in (-2, -1, 1, 2)]

    def slope(values: list[NDArray[np.float64]]) -> tuple[NDArray[np.float64], float]:
        a, b, d, e = values
        fine, coarse = (d - b) / (2 * step), (e - a) / (4 * step)
        return fine + (fine - coarse) / 3.0, float(np.abs(fine - coarse).max(initial=0.0)) / 3.0

    field, error = slope([m.probs for m in answers])
    by_weight = np.zeros(n)
    if weights and n:
        by_weight, more = slope([m.statistics() for m in answers])
        error = max(error, more)
    ok = marginals.converged and all(m.converged for m in answers)
    exact = all(m.status is Status.EXACT for m in answers)
    status = (Status.EXACT if exact else Status.CONVERGED) if ok else Status.MAX_ITERS
    sweeps = sum(m.iterations for m in answers)
    return Pullback(
        field, by_weight, "perturbation", status, sweeps, error,
        "" if ok else "of runs that have not converged",
    )  # fmt: skip


def _runner(
    marginals: Marginals, solver: Solver | None
) -> Callable[[NDArray[np.float64]], Marginals]:
    """The solver behind an answer, run with a field tilted and with next to no tolerance."""
    from minfer.solvers.exact import CliqueTreeState, EnumeratedState, Exact
    from minfer.solvers.mean_field import MeanField, MeanFieldState

    graph, state = marginals.graph, marginals.state
    if isinstance(state, MessageState):
        return lambda tilt: _propagated(marginals, state, tilt)
    if isinstance(state, (CliqueTreeState, EnumeratedState)):
        method = "enumerate" if isinstance(state, EnumeratedState) else "clique-tree"
        exact = Exact(method=method)
        return lambda tilt: exact(graph.tilt(tilt))
    if solver is None and isinstance(state, MeanFieldState):
        solver = MeanField()
    if solver is None:
        raise RefusedError(
            f"pull_back: {marginals.solver} has no adjoint, and cannot be run again without being "
            "known: pass solver="
        )
    if marginals.status is Status.SAMPLED:
        raise RefusedError(
            "pull_back: samples have no gradient; use BeliefPropagation, TreeReweighted, MeanField "
            "or Exact"
        )
    tight: Any = solver
    if hasattr(solver, "tol") and hasattr(solver, "max_iters"):
        tight = replace(tight, tol=_TIGHT, max_iters=max(tight.max_iters, 100_000))
    return lambda tilt: tight(graph.tilt(tilt), marginals)


def _propagated(marginals: Marginals, state: MessageState, tilt: NDArray[np.float64]) -> Marginals:
    """Belief propagation from an answer's messages, under another field of the same wiring."""
    from minfer.solvers.propagation import Propagation

    graph = marginals.graph.tilt(tilt)
    mesh, damping = state.mesh, _damping_of(marginals)
    model = replace(mesh.model, graph=graph, field=mesh.model.field + tilt)
    filled = refill(mesh, model, mesh.known)
    assert filled is not None  # a tilt is finite: nothing but the field has changed
    for share in (damping, max(damping, 0.5)):
        run = Propagation(filled.for_a_run(mesh), marginals, _TIGHT, share, "sequential")
        status, residuals = run.run(20_000, None, 1e-7 * (len(mesh.wiring.rev) + 1000))
        if status.ok:
            break
    last = float(residuals[-1]) if len(residuals) else 0.0
    if not status.ok and last <= 1e-11 and math.isfinite(last):
        status = Status.CONVERGED  # as far as rounding lets it
    return Marginals(
        graph, run.probs(), marginals.solver, status, marginals.log_z_kind, len(residuals),
        residuals, state=run.state(),
    )  # fmt: skip
