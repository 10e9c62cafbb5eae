"""Naive mean field: the best product distribution, by coordinate ascent on a lower bound of log Z.

    log Z  >=  F(q) = sum_v E_q[field_v] + sum_f E_q[log Psi_f] + sum_v H(q_v)
    q_v(s)  proportional to  exp( field_v(s) + sum_{f of v} E_{q of others}[log Psi_f | x_v = s] )

Jordan, Ghahramani, Jaakkola & Saul (1999), "An introduction to variational methods for graphical
models", Machine Learning 37:183-233. Each update is the exact maximum over q_v, so F rises with
every sweep; sweeps go forwards and backwards in turn. F bounds log Z at any q, converged or not
(what rounding may add to it is taken off); converged means that one sweep more in each direction
moved no q by more than ``tol``, and that no update of one variable, given the answer of all others,
would. The start is q_v proportional to exp(field_v), without any random number: where the model is
symmetric (an Ising model without field) that start is uniform, a saddle point of F, and there the
answer stays.

Forbidden cells (log Psi = minus infinity) make F minus infinity as long as q gives them any mass.
So forbidden mass M(q) is kept apart, with 0 * (-inf) = 0, and driven to exactly zero first: sweeps
that charge a penalty of 2, 4, 8, ... per unit of M, then lexicographic ones (least M first, F among
equals), then, if need be, a min-conflicts search for one allowed assignment to start from. From
then on only states without forbidden mass may enter, and F is finite and rises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import by_name, check_device, check_settings
from minfer.basics.limits import clock, deadline_of, start_clock
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.layout import lay_out
from minfer.engine.support import lift, without_least
from minfer.errors import RefusedError
from minfer.kernels.backend import Backend, backend
from minfer.solvers.base import LogZ, Marginals, Status, check_start, first_argmax, normalised
from minfer.solvers.independent import softmax
from minfer.solvers.irreducible import no_messages
from minfer.solvers.prepared import Preparable

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.kernels.messages.layout import SiteLayout

#: Penalties per unit of forbidden mass, sweep by sweep, before the ascent proper.
_PENALTIES = np.concatenate([2.0 ** np.arange(1, 13), np.full(12, np.inf)])
_CALL_SECONDS = 0.05  # how long one kernel call should last, so that Ctrl-C and limits are seen


class OnSites(Preparable):
    """A solver that goes from variable to variable over a :class:`SiteLayout`."""

    def __call__(self: Any, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        begin = start_clock(self.time_limit)
        model = condition(graph)
        check_start(start)
        self.check(model)
        return self.run(graph, model, lay_out(model), start, begin)


@by_name
@dataclass(frozen=True, kw_only=True)
class MeanField(OnSites):
    """Naive mean field; its log Z is a lower bound.

    Parameters
    ----------
    max_iters : int
        Sweeps over all variables, at most.
    tol : float
        Stop once two sweeps, one in each direction, move no probability by more than this, and
        after them no single update would.
    time_limit : float or None
        Wall-clock seconds; checked between kernel calls of about 50 ms, after at least one sweep.
    device, dtype
        As in :class:`~minfer.BeliefPropagation`; a card has binary pairs without zeros, and sweeps
        colour after colour.

    Notes
    -----
    ``start`` (any earlier answer for a graph with the same variables) gives the first q. If q
    keeps mass on forbidden cells to the end, log Z is minus infinity, the status is not converged
    and ``note`` says what to do. States that q gives no mass have probability 2e-308 in the answer
    if the model's zeros do not exclude them. Global factors and hard logical factors are refused.
    """

    max_iters: int = 1000
    tol: float = 1e-6
    time_limit: float | None = None
    device: str = "cpu"
    dtype: str = "auto"

    def __post_init__(self) -> None:
        check_settings(self.max_iters, self.tol, 0.0, self.time_limit)
        check_device(self)

    def check(self, model: Conditioned) -> None:
        """Raise RefusedError where it cannot take the model."""
        if why := refusal(model):
            raise RefusedError(f"MeanField {why}")

    def run(
        self, graph: FactorGraph, model: Conditioned, parts: SiteLayout,
        start: Marginals | None, begin: float,
    ) -> Marginals:  # fmt: skip
        """The answer for a model that is laid out."""
        q, why = initial_probs(model, parts, start), ""
        if self.device != "cpu":
            from minfer.solvers.means_there import means_there

            found = means_there(self, model, parts, is_idle(parts), q, begin)
            if not isinstance(found, str):
                value = found.bound + model.constant - rounding(parts, model, found.q)
                lift(model, found.q)
                return Marginals(
                    graph, found.q, self, found.status, LogZ.LOWER,
                    iterations=2 * len(found.residuals), residuals=found.residuals,
                    timings={"plan": found.planned - begin, "iterate": clock() - found.planned},
                    note=found.note, state=MeanFieldState(value, np.array([value])),
                )  # fmt: skip
            why = found
        planned = clock()
        climb = _Climb(self, parts, q, begin)
        climb.leave_forbidden_cells()
        climb.settle()
        bounds = climb.trace[1] + (model.constant + float(parts.constant[0]))
        q, before = np.array(climb.on.get(climb.q)), climb.on.get(climb.before)
        bounds -= climb.rounding(model, q)
        note = "; ".join(filter(None, (climb.note, why)))
        lift(model, q)
        return Marginals(
            graph, q, self, climb.status, LogZ.LOWER,
            iterations=len(bounds), residuals=climb.trace[0],
            timings={"plan": planned - begin, "iterate": clock() - planned},
            note=note,
            state=MeanFieldState(float(bounds[-1]), bounds, before if climb.settled else None),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class MeanFieldState:
    """What mean field leaves: the bound, how it rose (minus infinity: forbidden mass), and, of a
    converged run, q before its last two sweeps."""

    value: float
    bounds: NDArray[np.float64]  # (iterations,); of a device's run the last alone
    before: NDArray[np.float64] | None = None  # (sum S,)
    independent: ClassVar[bool] = True  # any joint is a product

    def log_z(self) -> float:
        return self.value

    def factor(self, factor: int) -> None:
        """None: under q a factor's joint is the product of its variables' marginals."""


class _Climb:
    """One run: q, and for every sweep the largest change, the bound and the forbidden mass."""

    def __init__(self, settings: MeanField, parts: SiteLayout, q: NDArray, begin: float) -> None:
        self.settings, self.parts, self.on = settings, parts, backend()
        self.kernels = self.on.kernels("messages.mean_field")
        self.there, self.q, self.before = self.on.put((parts, q, q.copy()))
        self.trace = np.zeros((3, 0))
        self.deadline = deadline_of(settings.time_limit, begin)
        self.pace = Pace()
        self.tol = float(settings.tol)  # the kernel is compiled for floats

    @property
    def out_of_time(self) -> bool:
        return clock() >= self.deadline

    @property
    def mass(self) -> float:
        return float(self.trace[2, -1])

    @property
    def calm(self) -> int:
        """How many of the last two sweeps, from the end, moved nothing by more than ``tol``."""
        last = self.trace[0, -2:][::-1] <= self.tol
        return int(last.cumprod().sum())

    @property
    def settled(self) -> bool:
        return self.calm == 2

    def sweep(self, penalties: NDArray[np.float64], until_allowed: bool) -> int:
        """One kernel call; the number of sweeps it made."""
        charged, trace = self.on.put((penalties, np.zeros((3, len(penalties)))))
        backward = self.trace.shape[1] % 2 == 1
        with self.pace:
            n = self.kernels.ascend(
                self.there, self.q, self.before, self.calm, charged, backward, until_allowed,
                self.tol, trace,
            )  # fmt: skip
        self.trace = np.concatenate([self.trace, self.on.get(trace)[:, :n]], axis=1)
        return n

    def leave_forbidden_cells(self) -> None:
        """Bring the forbidden mass to zero, if there is a way."""
        hard = np.isneginf(self.parts.log_psi).any()
        if not hard or self.kernels.forbidden_mass(self.there, self.q) == 0:
            return
        left = _PENALTIES[: self.settings.max_iters - 1]
        while len(left) and not self.out_of_time:
            left = left[self.sweep(left[: self.pace.n], until_allowed=True) :]
            if self.mass == 0:
                return
        q = np.array(self.on.get(self.q))
        x = self.on.put(first_argmax(q, self.parts.off).astype(np.int32))
        words = self.on.put(random_words(0, 1)[0])
        if make_feasible(self.on, self.there, x, words, self.deadline):
            busy = ~is_idle(self.parts)
            q[np.repeat(busy, self.parts.card)] = 0
            q[(self.parts.off[:-1] + self.on.get(x))[busy]] = 1
            self.q = self.on.put(q)

    def settle(self) -> None:
        """The ascent proper: lexicographic sweeps, one at least, until nothing moves."""
        while True:
            left = self.settings.max_iters - self.trace.shape[1]
            left -= self.sweep(np.full(min(self.pace.n, left), np.inf), until_allowed=False)
            if self.settled or left <= 0 or self.out_of_time:
                return

    @property
    def status(self) -> Status:
        if self.settled and self.mass == 0:
            return Status.CONVERGED
        return Status.TIME_LIMIT if self.out_of_time else Status.MAX_ITERS

    @property
    def note(self) -> str:
        if self.mass == 0:
            return ""
        return (
            f"the answer still gives mass {self.mass:.2g} to assignments the model forbids, so its "
            "bound on log Z is minus infinity: start from another solver's answer (start=...), "
            "or use Exact or BeliefPropagation"
        )

    def rounding(self, model: Conditioned, q: NDArray[np.float64]) -> float:
        """What the rounding of its sums may have added to the bound at q; 0 if exact."""
        parts = self.parts
        more = self.kernels.expected_size(self.there, self.q) if len(parts.vfac) else 0.0
        return rounding(parts, model, q, more)


def rounding(
    parts: SiteLayout, model: Conditioned, q: NDArray[np.float64], more: float = 0.0
) -> float:
    """What rounding may have added to a bound at q; ``more``: the size of what factors that are not
    quadratic add."""
    terms = len(parts.qweight) + len(parts.vfac)
    if not terms:
        return 0.0
    size = abs(model.constant) + float(np.abs(q[q > 0] * parts.bias[q > 0]).sum()) + len(q)
    size += float(np.abs(parts.qweight).sum()) + terms + more
    return float(np.finfo(float).eps) * 8 * math.sqrt(terms + 64) * size


# ---------------------------------------------------------------------- shared with Gibbs


class Pace:
    """How many sweeps the next kernel call makes: doubled or halved towards 50 ms a call."""

    def __init__(self) -> None:
        self.n = 1

    def __enter__(self) -> None:
        self._begin = clock()

    def __exit__(self, *error: object) -> None:
        seconds = clock() - self._begin
        if seconds < _CALL_SECONDS / 2:
            self.n *= 2
        elif seconds > _CALL_SECONDS * 2:
            self.n = max(1, self.n // 2)


def refusal(model: Conditioned) -> str:
    """Why mean field declines a model and what to do, or nothing."""
    if why := no_messages(model):
        return why
    for g in model.groups:
        if g.form == "machine" and (hard := g.forbids()).any():
            i = int(g._ids[np.flatnonzero(hard)[0]])
            return (
                f"cannot use factor {i}: it is a hard {model.graph._locate(i)[0].noun} over "
                f"{g.arity} unobserved variables, and a product of marginals would have to give no "
                "mass at all to what it forbids; use BeliefPropagation or Exact, or make it "
                "soft, with finite weights"
            )
    return ""


def initial_probs(
    model: Conditioned, parts: SiteLayout, start: Marginals | None
) -> NDArray[np.float64]:
    """Marginals to start from, (sum S,): of ``start`` if they fit, else of the field alone, as
    always of idle variables, without any factor left."""
    off = model.graph._offsets
    weights, _ = softmax(model)
    if model.graph.n_variables and _fits(model, start):
        assert start is not None
        earlier = np.where(model.field > -np.inf, without_least(start.probs), 0.0)
        known = (np.add.reduceat(earlier, off[:-1]) > 0) & ~is_idle(parts)
        weights = normalised(np.where(np.repeat(known, np.diff(off)), earlier, weights), off)
    return weights


def is_idle(parts: SiteLayout) -> NDArray[np.bool_]:
    """Variables without any factor left, (V,)."""
    from minfer.kernels.messages.layout import IDLE

    return parts.kind == IDLE


def _fits(model: Conditioned, start: Marginals | None) -> bool:
    return (
        start is not None
        and np.array_equal(start.graph._n_states, model.graph._n_states)
        and start.probs.shape == model.field.shape
        and bool(np.isfinite(start.probs).all())
    )


def random_words(rng: int, n: int) -> NDArray[np.uint64]:
    """Seeds of n independent generators for the kernels, (n, 4)."""
    children = np.random.SeedSequence(rng).spawn(n)
    return np.array([c.generate_state(4, np.uint64) for c in children]).reshape(n, 4)


def max_moves(n_variables: int) -> int:
    """The effort of one search for an allowed assignment."""
    return 20_000 + 200 * n_variables


def make_feasible(
    on: Backend, parts: SiteLayout, x: NDArray, words: NDArray, deadline: float
) -> bool:
    """Move x (V,), in place, until no factor forbids it; False if the effort or time is spent."""
    repair = on.kernels("sampling.gibbs").repair
    left = max_moves(len(x))
    while left > 0:
        n = min(left, max(20_000, len(parts.toff)))  # each call looks at every factor once
        if repair(parts, x, words, n) == 0:
            return True
        left -= n
        if clock() >= deadline:
            return False
    return False
