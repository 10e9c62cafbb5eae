"""Gradients through marginals: from dLoss/d(marginals) to dLoss/d(field) and dLoss/d(weights).

    m = solver(graph)
    back = pull_back(m, cotangent)         # cotangent: dLoss/dp, flat as m.probs
    back.field, back.weights

Ways, chosen by what the answer is:

* **adjoint** of exact answers: their Jacobian is a covariance, hence symmetric, and its product
  with the cotangent is how the marginals move along it,

      d p(s) = p(s) (E[T | s] - E[T]),     T(x) = sum_v cotangent_v(x_v),

  for every state s and every cell of a factor's joint. Joint tables are weighted with T; in a
  clique tree conditional means travel with the messages (:mod:`minfer.kernels.cliques.streamed`).
  Of fixed points of belief propagation and its tree-reweighted kin: one linear system in the
  messages' transposed slopes (:mod:`minfer.kernels.messages.adjoint`), solved by sweeps like those
  that found the fixed point, damped where these needed it, by GMRES where that is not enough.
* **perturbation** (Domke 2010): the Jacobian of the marginals by the field is symmetric wherever
  they are the gradient of a log Z, so its product with the cotangent is how the marginals (and all
  expected statistics) move when the field is tilted along the cotangent. Four runs at tilts of -2,
  -1, 1 and 2 steps; ``error`` says how far the finer and the coarser difference are apart. A tilt
  of improbable states moves nothing that can be told from rounding (and the log-loss of a label of
  probability p has a cotangent of 1 / p): ``converged`` is false if it matters.
* **independent**: models in which no factor is left over two free variables, in closed form.

The gradient of log Z itself is ``m.probs`` and ``m.statistics()``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import check_choice, check_number, check_type, real_numbers
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.message_state import MessageState, refresh_cavities
from minfer.engine.wiring import PAIR, TABLE, ranges, refill
from minfer.errors import ModelError, RefusedError
from minfer.factors.group import n_entries
from minfer.solvers.base import Marginals, Solver, Status
from minfer.solvers.circuit import Circuit, CircuitState
from minfer.solvers.clique_passes import CliqueTreeState, MovedTree, joint_starts, pass_means
from minfer.solvers.exact import EnumeratedState, Exact
from minfer.solvers.joint_table import JointTable
from minfer.solvers.mean_field import MeanField, MeanFieldState
from minfer.solvers.propagation import Propagation
from minfer.solvers.simplified import SimplifiedState

if TYPE_CHECKING:
    from minfer.engine.wiring import Wired
    from minfer.factors.group import FactorGroup
    from minfer.graph import FactorGraph
    from minfer.kernels.messages.adjoint import PairFrame

Floats = NDArray[np.float64]
#: Joints of some factors, whose free variables have one shape: (n, cells).
Ask = Callable[[NDArray[np.int64], tuple[int, ...]], Floats]

#: Of a probability by the flooding update: what a perturbed run must have settled to.
_TIGHT = 1e-14
#: A tilt, in nats of the largest cotangent, by which perturbation moves the field; and its steps.
TILT = 2e-3
TILTS = (-2, -1, 1, 2)
#: The share of what the largest contributes that differences may be off by and count as converged.
ROUGH = 1e-4
#: A cotangent times this may be lost, with what has left the range of numbers: how much of the
#: largest contribution that may be in an exact gradient, and what is too little to matter at all.
_NOTHING, _LOST, _NO_MATTER = 1e-300, 1e-9, 1e-200
#: Probabilities below this may be 0 in prepared calls and batches.
_FLUSHED = 1e-15
_FAR = 1e290  # sums of cotangents beyond this may overflow
_CHUNK = 1 << 22  # cells of joints that are written out together
#: Cells of joint beliefs that an adjoint may write out.
_MAX_CELLS = 1 << 27
_NONE = np.zeros(0)
_RESTART = 30  # Krylov vectors that GMRES keeps


@dataclass(frozen=True, eq=False)
class Pullback:
    """What :func:`pull_back` gives."""

    field: Floats  # (sum of states,) dLoss/d(log-field)
    weights: Floats  # (n_weights,) dLoss/d(graph.weights)
    method: str  # "adjoint", "perturbation" or "independent"
    status: Status  # CONVERGED, EXACT (no iteration was needed) or MAX_ITERS
    sweeps: int = 0  # over the messages, products of GMRES included; runs of a perturbation
    error: float | None = None  # of a perturbation: an estimate of the largest of any number
    note: str = ""  # what was needed to get there (damping, GMRES), or what the gradient lacks

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
    check_type(marginals, Marginals, "pull_back: expected the answer of a solver", ModelError)
    graph = marginals.graph
    c = np.array(real_numbers(cotangent, "pull_back: cotangent"), dtype=np.float64).ravel()
    if c.shape != marginals.probs.shape:
        raise ModelError(
            f"pull_back: a cotangent of {c.size} numbers for {marginals.probs.size} probabilities"
        )
    if not np.isfinite(c).all():
        raise ModelError("pull_back: the cotangent must be finite")
    check_number("pull_back: tol", tol, above=0.0, below=1.0)
    check_choice("pull_back: method", method, ("auto", "adjoint", "perturbation"))
    state = marginals.state
    if isinstance(state, MessageState):
        logical = len(state.mesh.machines.code) + len(state.mesh.python_factors) > 0
        if method != "perturbation" and not logical:
            found = _adjoint(marginals, state, c, tol, max_iters, weights)
            if found is not None:
                return found
    else:
        model = condition(graph)
        if marginals.status is Status.EXACT:
            marginals = _in_a_tree(marginals, c)
        if not model.groups:
            return _independent(marginals, model, c, weights)
        if method != "perturbation" and marginals.status is Status.EXACT:
            exactly = _exactly(marginals, model, c, weights)
            if exactly is not None:
                return exactly
    if method == "adjoint":
        raise RefusedError(
            "pull_back: this answer has no adjoint (it is of a solver other than Exact, "
            "BeliefPropagation and TreeReweighted, or of the latter two with logical or global "
            'factors): use method="perturbation"'
        )
    return _perturbed(marginals, c, solver, weights)


# ---------------------------------------------------------------------- from tables to weights


def _by_weights(
    graph: FactorGraph, model: Conditioned, field: Floats, ask: Ask,
    short: Callable[[FactorGroup], Floats | None] = lambda group: None,
) -> Floats:  # fmt: skip
    """dLoss/d(weights), from dLoss/d(log psi) as ``ask`` has it, a signed joint that sums to zero:
    what a group makes of a joint, ``statistics``, is linear."""
    out = np.zeros(int(graph.weight_offsets[-1]))
    for g in graph.groups:
        if not g.n_weights or g.arity == 0:
            continue
        found = short(g)
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


def away_from_mean(graph: FactorGraph, probs: Floats, c: Floats) -> Floats:
    """c - E[c] of every variable, 0 on states that are impossible; of one row or of many. By way of
    differences to the most probable state, so that nothing cancels where E[c] is almost c."""
    if not c.size:
        return c
    first, sizes = graph._offsets[:-1], np.diff(graph._offsets)
    likely = probs == np.repeat(np.maximum.reduceat(probs, first, axis=-1), sizes, axis=-1)
    top = np.maximum.reduceat(np.where(likely, c, -np.inf), first, axis=-1)
    c = np.where(probs > 0.0, c - np.repeat(top, sizes, axis=-1), 0.0)
    mean = np.add.reduceat(probs * c, first, axis=-1)
    return np.where(probs > 0.0, c - np.repeat(mean, sizes, axis=-1), 0.0)


def _products(
    model: Conditioned, probs: Floats, s: Floats, factors: NDArray[np.int64], shape: Sequence[int]
) -> Floats:
    """prod_v p_v times sum_v s_v, over the free variables of factors that tie nothing."""
    scope = model.graph.scopes(factors)
    free = scope[model.fixed[scope] < 0].reshape(len(factors), len(shape))
    joint, total = np.ones((len(factors), 1)), np.zeros((len(factors), 1))
    for a, size in enumerate(shape):
        at = model.graph._offsets[free[:, a]][:, None] + np.arange(size)
        joint = (joint[:, :, None] * probs[at][:, None, :]).reshape(len(factors), -1)
        total = (total[:, :, None] + s[at][:, None, :]).reshape(len(factors), -1)
    return joint * total


def _independent(marginals: Marginals, model: Conditioned, c: Floats, weights: bool) -> Pullback:
    graph, probs = marginals.graph, marginals.probs
    s = away_from_mean(graph, probs, c)
    field = probs * s
    found = np.zeros(int(graph.weight_offsets[-1]))
    if weights:
        found = _by_weights(graph, model, field, partial(_products, model, probs, s))
    return Pullback(field, found, "independent", Status.EXACT)


# ---------------------------------------------------------------------- exact answers


def _exactly(marginals: Marginals, model: Conditioned, c: Floats, weights: bool) -> Pullback | None:
    """None where nothing was kept that could tell."""
    from minfer.solvers.loose_ends import LooseState

    graph = marginals.graph
    if isinstance(marginals.state, LooseState):  # its field may move: no loose ends any more
        marginals = Circuit(Exact(method="circuit"), graph, ())(None)
    direction = away_from_mean(graph, marginals.probs, c)
    size = max(1.0, float(np.abs(direction).max(initial=0.0)) / _FAR)  # sums must stay finite
    if isinstance(marginals.state, JointTable):
        moved = _of_table(marginals.state, model, direction / size)
    elif isinstance(marginals.state, CliqueTreeState):
        moved = _of_tree(marginals.state, direction / size, weights)
    elif isinstance(marginals.state, CircuitState):
        moved = _of_circuit(marginals.state, model, direction / size)
    elif isinstance(marginals.state, SimplifiedState):
        probs, joints = marginals.state.moved(direction / size, weights)
        moved = Tangent(probs, model, joints)
    else:
        return None
    field = moved.probs * size
    found = np.zeros(int(graph.weight_offsets[-1]))
    if weights and moved.joints is not None:
        found = size * _by_weights(graph, moved.model, moved.probs, moved.joints)
    status, note = Status.EXACT, ""
    if out_of_range(c, direction * marginals.probs):
        status = Status.MAX_ITERS
        note = "the cotangent of states whose probability is next to 0 is too large"
    return Pullback(field, found, "adjoint", status, 2, None, note)


class Tangent(NamedTuple):
    """Derivatives of exact marginals along a direction (sum of states,), centred by them."""

    probs: Floats  # (sum of states,)
    model: Conditioned  # of which variables are fixed
    joints: Ask | None  # None: not asked for


def _of_table(state: JointTable, model: Conditioned, direction: Floats) -> Tangent:
    graph, p = state.graph, state.p
    means = np.zeros(p.shape)
    for v, lo in enumerate(graph._offsets[:-1].tolist()):
        means += direction[lo : lo + p.shape[v]].reshape([-1] + [1] * (p.ndim - 1 - v))
    moved = p * means
    moved -= p * moved.sum()

    def joint(variables: list[int]) -> Floats:
        others = tuple(v for v in range(p.ndim) if v not in variables)
        return moved.sum(axis=others).transpose(np.argsort(np.argsort(variables)))

    def ask(factors: NDArray[np.int64], shape: tuple[int, ...]) -> Floats:
        out = np.empty((len(factors), int(np.prod(shape))))
        for k, f in enumerate(factors.tolist()):
            scope = model.graph.scope(f)
            out[k] = joint(scope[model.fixed[scope] < 0].tolist()).ravel()
        return out

    return Tangent(np.concatenate([joint([v]) for v in range(p.ndim)]), model, ask)


def _of_circuit(state: CircuitState, model: Conditioned, direction: Floats) -> Tangent:
    def ask(factors: NDArray[np.int64], shape: tuple[int, ...]) -> Floats:
        scopes = [state.graph.scope(f) for f in factors.tolist()]
        return state.moved_joints([s[model.fixed[s] < 0].tolist() for s in scopes], direction)

    return Tangent(state.moved(direction), model, ask)


def _of_tree(state: CliqueTreeState, direction: Floats, joints: bool) -> Tangent:
    model, tree = state.model, state.tree
    whole = np.zeros(len(model.field))  # auxiliary variables lie behind
    whole[: len(direction)] = direction
    probs, of_tables = pass_means(model, tree, whole, joints)
    known = (of_tables, joint_starts(model)) if joints else None
    there = MovedTree(state.graph, model, tree, probs, 0.0, known)
    there.direction = whole
    return Tangent(probs[: len(direction)], replace(model, graph=state.graph), there._joints)


def _in_a_tree(marginals: Marginals, c: Floats) -> Marginals:
    """An exact answer, found again where it has no tree, or has lost what matters to rounding."""
    graph, probs, again = marginals.graph, marginals.probs, False
    if isinstance(marginals.state, CliqueTreeState):  # of a prepared call, perhaps
        again = bool(were_lost(c, probs, away_from_mean(graph, probs, c) * probs))
    again |= isinstance(marginals.state, EnumeratedState)
    try:
        return Exact(method="clique-tree", max_gib=1e6)(graph) if again else marginals
    except RefusedError:  # never of what is in a tree already
        return marginals


def were_lost(c: Floats, probs: Floats, shares: Floats) -> Any:
    """Whether what prepared calls and batches round to 0 may matter, of one row or of many."""
    most = np.abs(np.where(probs < _FLUSHED, c, 0.0)).max(axis=-1, initial=0.0)
    least = np.maximum(_LOST * np.abs(shares).max(axis=-1, initial=0.0), _NO_MATTER)
    return most * _FLUSHED > least


def out_of_range(c: Floats, shares: Floats) -> Any:
    """Whether probabilities below the range of numbers may matter, of one row or of many, by the
    shares of states: cotangent, less its mean, times probability."""
    lost = np.abs(c).max(axis=-1, initial=0.0) * _NOTHING
    return lost > np.maximum(_LOST * np.abs(shares).max(axis=-1, initial=0.0), _NO_MATTER)


# ---------------------------------------------------------------------- adjoint


def _adjoint(
    marginals: Marginals, state: MessageState, c: Floats, tol: float, max_iters: int, weights: bool
) -> Pullback | None:
    """None where joint beliefs would take too much room."""
    mesh, graph = state.mesh, marginals.graph
    system: PairSlopes
    if not len(mesh.wiring.gslot):
        system = PairSlopes(mesh, marginals.probs, c, *_slopes(state))
    else:
        written = (g for g in mesh.model.groups if mesh.log or g.arity != 2)
        if sum(len(g) * g.n_cells for g in written) > _MAX_CELLS:
            return None
        system = _Tables(marginals, state, c)
    status, sweeps, note = solve(system, tol, max_iters, state.damping)
    field = system.field()
    found = np.zeros(int(graph.weight_offsets[-1]))
    if weights:
        found = _by_weights(graph, mesh.model, field, system.tables, system.group)
    if not marginals.converged:
        status, note = Status.MAX_ITERS, "of messages that have not converged"
    return Pullback(field, found, "adjoint", status, sweeps, None, note)


def solve(
    system: PairSlopes, tol: float, max_iters: int, damping: float
) -> tuple[Status, int, str]:
    """Trees up, sweeps over the core, trees down; GMRES where sweeps do not get on."""
    from minfer.kernels.messages.adjoint import CONVERGED, SLOW

    system.begin()
    if not len(system.core):
        system.walk_down()
        return Status.EXACT, 1, ""
    trace = np.full(8, np.inf)
    code, done = system.sweeps(trace, max_iters, tol, damping)
    note = f"with damping {damping:g}" if damping else ""
    if code == SLOW:
        note = "by GMRES: sweeps alone made no progress"
        passed, done = _by_gmres(system, tol, max_iters, done)
        code = CONVERGED if passed else SLOW
    system.walk_down()
    return Status.CONVERGED if code == CONVERGED else Status.MAX_ITERS, done, note


def _by_gmres(system: PairSlopes, tol: float, max_iters: int, done: int) -> tuple[bool, int]:
    """Solve for what a sweep up and one down leave as it is; whether it passed, and all sweeps."""
    inside = system.mine()
    mine = slice(None) if inside.all() else inside
    start = system.lam[mine].copy()
    system.begin()  # what trees say to the core stays
    kept = system.lam.copy()
    kept[mine] = 0.0
    system.lam[:] = kept
    system.both(True)
    constant, spent = system.lam[mine].copy(), done + 2
    if not np.abs(start).max() <= 1e3 * np.abs(constant).max():
        start = np.zeros(len(constant))  # sweeps have run away
    system.lam[:] = 0.0

    def product(x: Floats) -> Floats:
        nonlocal spent
        spent += 2
        system.lam[mine] = x
        system.both(False)
        return x - system.lam[mine]

    goal = tol
    passed, x = False, start
    for _ in range(3):
        if spent >= max_iters:
            break
        x = _gmres(product, constant, x, goal, (max_iters - spent) // (2 * _RESTART) + 1)
        system.lam[:] = kept
        system.lam[mine] = x
        system.both(True)
        moved, scale = system.both(True)
        spent += 4
        passed = moved <= tol * scale
        if passed:
            break
        system.lam[:] = 0.0
        goal *= 0.03
    return passed, spent


def _gmres(
    product: Callable[[Floats], Floats], b: Floats, x: Floats, tol: float, cycles: int
) -> Floats:
    """x with |b - product(x)| <= tol |b|, from a first guess (Saad and Schultz 1986).

    SciPy's takes 0.1 ms a step, which is ten sweeps of a small model.
    """
    goal = tol * float(np.linalg.norm(b))
    basis = np.empty((_RESTART + 1, len(b)))
    for _ in range(cycles):
        rest = b - product(x)
        size = float(np.linalg.norm(rest))
        if not goal < size < math.inf:
            break
        basis[0] = rest / size
        top = np.zeros((_RESTART, _RESTART))  # of the projected matrix, made triangular
        left = [size]
        turns: list[tuple[float, float]] = []
        for j in range(_RESTART):
            new, found = product(basis[j]), basis[: j + 1]
            column = found @ new
            new -= column @ found
            again = found @ new  # twice is enough
            new -= again @ found
            below = float(np.linalg.norm(new))
            values = (column + again).tolist()
            for i, (c, s) in enumerate(turns):
                p, q = values[i], values[i + 1]
                values[i], values[i + 1] = c * p + s * q, c * q - s * p
            length = math.hypot(values[j], below)
            if length == 0.0:
                break
            c, s = values[j] / length, below / length
            values[j] = length
            top[: j + 1, j] = values
            turns.append((c, s))
            left[j:] = [c * left[j], -s * left[j]]
            if abs(left[j + 1]) <= goal or below == 0.0:
                break
            basis[j + 1] = new / below
        n = len(turns)
        x = x + np.linalg.solve(top[:n, :n], left[:n]) @ basis[:n]
    return x


def _slopes(state: MessageState) -> tuple[Floats, Floats]:
    """f' and sigma(c + w) of pairs in odds form, from their messages."""
    from minfer.kernels.messages.adjoint import pair_slopes
    from minfer.kernels.messages.wiring import PLAIN

    mesh, m, w = state.mesh, state.messages.m, state.mesh.wiring
    slope, sigma = np.empty_like(m), np.empty_like(m)
    odds = log_odds = _NONE
    if mesh.known is not None or not (w.kind == PLAIN).all():
        log_odds, odds = state._odds
    pair_slopes(w.ptr, w.prior, m, w.W, odds, log_odds, slope, sigma)
    return slope, sigma


class PairSlopes:
    """The adjoint equations of a fixed point, and what has been found of their solution, ``lam``:
    of models of which all factors over free variables are binary pairs, one number a message."""

    def __init__(self, mesh: Wired, probs: Floats, c: Floats, slope: Floats, sigma: Floats) -> None:
        from minfer.kernels.messages import adjoint as k

        self.k, self.mesh, self.probs, self.frame = k, mesh, probs, frame_of(mesh)
        self.slope, self.sigma = slope, sigma
        graph = mesh.model.graph
        self.core, self.off = self.frame.core, graph._offsets
        self.bel = np.array(probs)  # kernels take what can be written to
        self.all_binary = len(c) == 2 * graph.n_variables and bool((graph._n_states == 2).all())
        plain = self.all_binary and not len(mesh.wiring.gslot)
        self.c, self.centred = c, c if plain else away_from_mean(graph, probs, c)
        self.whole = np.empty(len(c)) if self.all_binary else probs * self.centred
        self.g, self.S = np.empty(graph.n_variables), np.empty(graph.n_variables)
        self.lam = np.empty(len(self.frame.rev))

    def begin(self) -> None:
        """Forget what has been found; collect from the trees."""
        self.k.pair_begin(self.frame, self.bel, self.c, self.g, self.S, self.lam)
        self._pass(self.g, self.frame.order, False)

    def walk_down(self) -> None:
        """Distribute to the trees."""
        self._pass(self.g, self.frame.order, True)

    def _pass(self, g: Floats, order: NDArray[np.int64], down: bool) -> tuple[float, float]:
        if not len(order):
            return 0.0, 0.0
        return self.k.pair_pass(self.frame, self.slope, g, self.lam, self.S, order, down, 0.0)

    def sweeps(self, trace: Floats, most: int, tol: float, damping: float) -> tuple[int, int]:
        """Sweeps over the core; see :func:`minfer.kernels.messages.adjoint.pair_sweeps`."""
        return self.k.pair_sweeps(
            self.frame, self.slope, self.g, self.lam, self.S, trace, most, tol, damping
        )

    def both(self, given: bool) -> tuple[float, float]:
        """A sweep up and one down, with the cotangent or without; what the latter moved."""
        g = self.g if given else np.zeros_like(self.g)
        self._pass(g, self.core, False)
        return self._pass(g, self.core, True)

    def mine(self) -> NDArray[np.bool_]:
        """Which of ``lam`` belong to the core."""
        inside = np.zeros(len(self.g), dtype=bool)
        inside[self.core] = True
        return np.repeat(inside, np.diff(self.frame.ptr).astype(np.int64))

    def field(self) -> Floats:
        if self.all_binary:
            np.negative(self.S, out=self.whole[::2])
            self.whole[1::2] = self.S
        else:
            binary = np.flatnonzero(np.diff(self.off) == 2)
            first, S = self.off[binary], self.S[binary]
            self.whole[first], self.whole[first + 1] = -S, S
        return self.whole

    def _numbers(self, factors: NDArray[np.int64], basis: Floats) -> Floats:
        rows, out = self.mesh.roles.row[factors], np.empty((len(factors), len(basis)))
        self.k.pair_statistics(self.frame, rows, self.sigma, self.lam, self.S, basis, out)
        return out

    def group(self, group: FactorGroup) -> Floats | None:
        """By the weights of a group, (F, k), where there is a short way."""
        mesh, basis = self.mesh, group.basis()
        if basis is None or mesh.model.has_fixed:
            return None
        if group.shape == (2,):
            return self.S[group._scope] * (basis[:, 1] - basis[:, 0])
        if group.shape != (2, 2) or not (mesh.roles.form[group._ids] == PAIR).all():
            return None
        return self._numbers(group._ids, basis)

    def tables(self, factors: NDArray[np.int64], shape: tuple[int, ...]) -> Floats:
        """By the log psi of factors over free variables of one shape, (n, cells)."""
        pair = self.mesh.roles.form[factors] == PAIR
        if pair.all():
            return self._numbers(factors, np.eye(4))
        s = np.divide(self.whole, self.probs, out=np.zeros_like(self.c), where=self.probs > 0.0)
        out = _products(self.mesh.model, self.probs, s, factors, shape)
        out[pair] = self._numbers(factors[pair], np.eye(4))
        return out


class _Tables(PairSlopes):
    """Models with tables of any shape, and perhaps pairs in odds form among them."""

    def __init__(self, marginals: Marginals, state: MessageState, c: Floats) -> None:
        state = replace(state, messages=refresh_cavities(state.mesh, state.messages))
        super().__init__(state.mesh, marginals.probs, c, *_slopes(state))
        w, s = self.mesh.wiring, state.messages
        self.state, self.c = state, self.centred
        self.alive = (self.bel > 0.0).astype(np.float64)
        self.q, self.s = np.empty(len(s.to_variable)), np.empty_like(self.c)
        self.lam = np.empty(len(s.to_variable) + len(w.rev))
        widest = int(w.card.max(initial=2))
        room = max(3 * widest, 2 * widest + 2 * int(w.fac[:, 4].max(initial=0)) + 24)
        self.tmp = np.zeros(3 * room)
        belief, at = self._beliefs()
        self.given = self.k.Conditionals(
            belief, at, s.to_factor, np.empty_like(s.to_factor), self.slope
        )
        self.lam[:] = 1.0
        self._turn(self.c, np.arange(len(w.card)), False, True, True)

    def _beliefs(self) -> tuple[Floats, NDArray[np.int64]]:
        """Joint beliefs of factors that are no pairs, or in logs; where each begins, or -1."""
        mesh, parts, done = self.mesh, [_NONE], 0
        at = np.full(len(mesh.wiring.fac), -1)
        for g in mesh.model.groups:
            ids = g._ids[mesh.roles.form[g._ids] == TABLE]
            if len(ids) and (mesh.log or g.arity != 2):
                joint = self.state._joints(ids, g.shape)
                at[mesh.roles.row[ids]] = done + np.arange(len(joint)) * joint.shape[1]
                parts.append(joint.ravel())
                done += joint.size
        return np.concatenate(parts), at

    def begin(self) -> None:
        self.k.table_begin(self.mesh.wiring, self.c, self.bel, self.lam, self.q, self.s)
        self._turn(self.c, self.frame.order, False, True)

    def walk_down(self) -> None:
        self._turn(self.c, self.frame.order, True, True)

    def _turn(
        self, c: Floats, order: NDArray[np.int64], down: bool, every: bool, norming: bool = False
    ) -> tuple[float, float]:
        if not len(order):
            return 0.0, 0.0
        return self.k.table_pass(
            self.mesh.wiring, self.given, self.alive, c, self.bel, self.lam, self.q, self.s, order,
            (down, every, False, norming), 0.0, self.tmp,
        )  # fmt: skip

    def sweeps(self, trace: Floats, most: int, tol: float, damping: float) -> tuple[int, int]:
        return self.k.table_sweeps(
            self.mesh.wiring, self.given, self.alive, self.c, self.bel, self.lam, self.q, self.s,
            self.core, trace, (most, float(tol), float(damping)), self.tmp,
        )  # fmt: skip

    def both(self, given: bool) -> tuple[float, float]:
        c = self.c if given else np.zeros_like(self.c)
        self._turn(c, self.core, False, True)
        return self._turn(c, self.core, True, False)

    def mine(self) -> NDArray[np.bool_]:
        gslot, inside = self.mesh.wiring.gslot, np.zeros(len(self.g), dtype=bool)
        inside[self.core] = True
        general = np.zeros(len(self.q), dtype=bool)
        general[ranges(gslot[:, 2], gslot[:, 3])] = np.repeat(inside[self.mesh.gowner], gslot[:, 3])
        return np.concatenate([general, super().mine()])

    def field(self) -> Floats:
        return self.bel * self.s

    def _numbers(self, factors: NDArray[np.int64], basis: Floats) -> Floats:
        binary = np.flatnonzero(np.diff(self.off) == 2)
        at = self.off[binary] + 1
        self.S[binary] = self.s[at] * self.bel[at]
        lam, self.lam = self.lam, self.lam[len(self.q) :]
        out = super()._numbers(factors, basis)
        self.lam = lam
        return out

    def group(self, group: FactorGroup) -> Floats | None:
        mesh, taps = self.mesh, group.label_taps()
        if taps is None or mesh.model.has_fixed or mesh.log:
            return None
        if not (mesh.roles.form[group._ids] == TABLE).all():
            return None
        rows = mesh.roles.row[group._ids]
        if not mesh.wiring.fac[rows, 3].all():
            return None
        taps = np.exp(taps - taps.max(axis=1, keepdims=True))
        which = np.arange(len(group)) if len(taps) > 1 else np.zeros(len(group), dtype=np.int64)
        mass = np.empty((len(group), taps.shape[1]))
        self.k.weigh_distances(mesh.wiring, self.given.cavity, rows, self.lam, taps, which, mass)
        return group.distance_statistics(mass)

    def tables(self, factors: NDArray[np.int64], shape: tuple[int, ...]) -> Floats:
        form = self.mesh.roles.form[factors]
        none, pair, general = form == 0, form == PAIR, form == TABLE
        out = np.empty((len(factors), n_entries(shape)))
        if none.any():
            out[none] = _products(self.mesh.model, self.bel, self.s, factors[none], shape)
        if pair.any():
            out[pair] = self._numbers(factors[pair], np.eye(4))
        if general.any():
            part = self.state._joints(factors[general], shape)
            self.k.weigh(self.mesh.wiring, self.mesh.roles.row[factors[general]], self.lam, part)
            out[general] = part
        return out


def frame_of(mesh: Wired) -> PairFrame:
    """What kernels read: the pairs, variables that sweeps visit, those of trees in their order."""
    from minfer.kernels.messages.adjoint import PairFrame

    w = mesh.wiring
    core = (w.ptr[1:] > w.ptr[:-1]) | (w.gptr[1:] > w.gptr[:-1])
    order = np.zeros(0, dtype=np.int64)
    if mesh.trees is not None:
        core &= ~mesh.trees.asleep
        order = mesh.trees.order[mesh.trees.order >= 0]
    off, scope = mesh.model.graph._offsets, mesh.pair_scope
    return PairFrame(off, w.ptr, w.rev, w.rho, mesh.slot, scope, np.flatnonzero(core), order)


# ---------------------------------------------------------------------- perturbation


def _perturbed(marginals: Marginals, c: Floats, solver: Solver | None, weights: bool) -> Pullback:
    """Differences of marginals and statistics along the cotangent, of fourth order."""
    graph = marginals.graph
    probs = marginals.probs
    direction = away_from_mean(graph, probs, c)
    n, run = int(graph.weight_offsets[-1]), _runner(marginals, solver)
    if not direction.any():
        return Pullback(np.zeros(len(c)), np.zeros(n), "perturbation", Status.EXACT)
    most = float(np.abs(direction * probs).max())
    step = TILT / max(float(np.abs(direction).max()), 1e-300)
    answers = [run(direction * (step * k)) for k in TILTS]
    field, error = slope_of([m.probs for m in answers], step)
    by_weight = np.zeros(n)
    if weights and n:
        by_weight, more = slope_of([m.statistics() for m in answers], step)
        error = max(error, more)
    error = max(float(error), float(np.finfo(np.float64).eps) / step)
    exact = all(m.status is Status.EXACT for m in answers)
    status, note = Status.EXACT if exact else Status.CONVERGED, ""
    if not marginals.converged or not all(m.converged for m in answers):
        status, note = Status.MAX_ITERS, "of runs that have not converged"
    elif error > ROUGH * most:
        status = Status.MAX_ITERS
        note = "the cotangent of improbable states is too large for differences"
    sweeps = sum(m.iterations for m in answers)
    return Pullback(field, by_weight, "perturbation", status, sweeps, error, note)


def slopes(values: Sequence[Any], step: Any) -> tuple[Any, Any]:
    """By the finer and the coarser difference of what was found at these tilts."""
    a, b, d, e = values
    return (d - b) / (2 * step), (e - a) / (4 * step)


def slope_of(values: Sequence[Floats], step: ArrayLike) -> tuple[Floats, Any]:
    """The slope of what was found at tilts of -2, -1, 1 and 2 steps, and how sure each row is."""
    fine, coarse = slopes(values, np.asarray(step))
    apart = fine - coarse
    return fine + apart / 3.0, np.abs(apart).max(axis=-1, initial=0.0) / 3.0


def _runner(marginals: Marginals, solver: Solver | None) -> Callable[[Floats], Marginals]:
    """The solver behind an answer, run with a field tilted and with next to no tolerance."""
    graph, state = marginals.graph, marginals.state
    if isinstance(state, MessageState):
        return lambda tilt: _propagated(marginals, state, tilt)
    states = (CliqueTreeState, SimplifiedState, CircuitState, JointTable, EnumeratedState)
    if isinstance(state, states):
        kinds = {EnumeratedState: "enumerate", CircuitState: "circuit"}
        exact = Exact(method=kinds.get(type(state), "auto"))
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


def _propagated(marginals: Marginals, state: MessageState, tilt: Floats) -> Marginals:
    """Belief propagation from an answer's messages, under another field of the same wiring."""
    graph = marginals.graph.tilt(tilt)
    mesh, damping = state.mesh, state.damping
    model = replace(mesh.model, graph=graph, field=mesh.model.field + tilt)
    filled = refill(mesh, model, mesh.known)
    assert filled is not None  # a tilt is finite: nothing but the field has changed
    for share in (damping, max(damping, 0.5)):
        run = Propagation(filled.for_a_run(mesh), marginals, _TIGHT, share, "sequential")
        status, residuals = run.run(20_000, None)
        if status.ok:
            break
    last = float(residuals[-1]) if len(residuals) else 0.0
    if not status.ok and last <= 1e-11 and math.isfinite(last):
        status = Status.CONVERGED  # as far as rounding lets it
    return Marginals(
        graph, run.probs(), marginals.solver, status, marginals.log_z_kind, len(residuals),
        residuals, state=run.state(),
    )  # fmt: skip
