"""Parallel tempering: Gibbs sampling at a ladder of temperatures whose copies change places.

K copies of the model run side by side, copy r at inverse temperature beta_r, 0 = beta_1 < ... <
beta_K = 1. Each is swept by Gibbs sampling; after a sweep neighbours exchange their states with
probability

    min(1, exp( (beta_{r+1} - beta_r) (E(x_r) - E(x_{r+1})) )),      E = log of the weight,

which leaves the joint distribution of all copies as it is (Swendsen & Wang 1986, "Replica Monte
Carlo simulation of spin glasses", PRL 57:2607; Geyer 1991). Hot copies cross from mode to mode and
hand what they find down the ladder. Marginals average the conditional distributions of the
coldest copy. The ladder is moved during burn-in until exchanges are equally frequent everywhere.

What the model forbids is soft on the way: a forbidden cell of a table costs e^-30 of its least
allowed one, and only sweeps that end up allowed count. Hot copies thus pass between islands of
allowed assignments that single moves cannot join.

log Z comes from the ladder: log Z(0) is known, and

    log Z(beta_{r+1}) - log Z(beta_r) = log E_r[ exp( (beta_{r+1} - beta_r) E(x) ) ].

The error estimate is the largest standard error of a marginal over independent ensembles. *Round
trips* of copies, from the hot end to the cold one and back, say whether it can be trusted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import by_name, check_seconds, check_whole
from minfer.basics.limits import clock, deadline_of, start_clock
from minfer.engine.conditioning import Conditioned, condition
from minfer.engine.layout import lay_out
from minfer.engine.support import lift
from minfer.errors import RefusedError
from minfer.kernels.backend import backend
from minfer.solvers.base import LogZ, Marginals, Status, check_start, normalised
from minfer.solvers.gibbs import GibbsState, count_ptr, standard_error
from minfer.solvers.irreducible import no_messages
from minfer.solvers.mean_field import Pace, initial_probs, is_idle, make_feasible, random_words
from minfer.solvers.prepared import Preparable

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.kernels.messages.layout import SiteLayout
    from minfer.kernels.sampling.tempering import TemperingSums

#: What a forbidden cell is softened to, in logs below the least allowed one of its table.
PENALTY = 30.0
#: Cells of a logical factor up to which it is written out as a table.
MAX_WRITTEN = 1 << 12
#: Rounds of burn-in after each of which the ladder is moved.
ROUNDS = 12
#: Recorded sweeps before samples may stop early.
LEAST_SWEEPS = 200
#: The lowest temperature of the first ladder but zero.
FIRST_BETA = 0.02
_UPDATES_A_CALL = 1 << 22  # of a variable in a lane: some 50 ms


@by_name
@dataclass(frozen=True, kw_only=True)
class Tempering(Preparable):
    """Parallel tempering with several independent ensembles.

    Parameters
    ----------
    n_sweeps : int
        Recorded sweeps of each ensemble.
    burn_in : int
        Sweeps before that, during which the ladder of temperatures is found.
    n_replicas : int
        Copies of the model in an ensemble, at different temperatures.
    n_chains : int
        Independent ensembles. With one there is no error estimate.
    rng : int
        Seed. Without a time limit the same seed gives the same answer, to the bit.
    time_limit : float or None
        Wall-clock seconds; burn-in gets a quarter of them at most.

    Notes
    -----
    For many-moded models with strong couplings, where belief propagation is far off and chains at
    one temperature stay where they began. The note tells how many exchanges were accepted and how
    many round trips were made. Global factors, and logical ones too large to be written out as
    tables, are refused. ``start`` gives the distribution of the coldest copies' first states in
    every other ensemble: if the others do not agree with these, the error estimate shows it.

    Examples
    --------
    >>> import numpy as np
    >>> from minfer import FactorGraph, Tempering
    >>> two_modes = FactorGraph.grid(np.full((4, 4), 0.02), 6.0, feature="equal")
    >>> m = Tempering(n_sweeps=500)(two_modes)
    >>> m.status.value, round(float(m[0][1]), 1)
    ('sampled', 0.6)
    """

    n_sweeps: int = 2000
    burn_in: int = 500
    n_replicas: int = 16
    n_chains: int = 4
    rng: int = 0
    time_limit: float | None = None

    def __post_init__(self) -> None:
        limits = {"n_sweeps": 1, "burn_in": 0, "n_replicas": 2, "n_chains": 1, "rng": 0}
        for name, least in limits.items():
            check_whole(name, getattr(self, name), least)
        check_seconds("time_limit", self.time_limit)

    def __call__(self, graph: FactorGraph, start: Marginals | None = None) -> Marginals:
        begin = start_clock(self.time_limit)
        check_start(start)
        model = condition(graph)
        if why := refusal(model):
            raise RefusedError(f"Tempering {why}")
        return Ensembles(self, graph, model, start, begin).answer()


def refusal(model: Conditioned) -> str:
    """Why tempering declines a model and what to do, or nothing."""
    if why := no_messages(model):
        return why
    for g in model.groups:
        if g.form == "machine" and g.n_cells > MAX_WRITTEN:
            i = int(g._ids[0])
            return (
                f"cannot use factor {i}: it is {model.graph._locate(i)[0]._a_noun} over {g.arity} "
                "unobserved variables, too many to write it out as a table; use BeliefPropagation "
                "or Exact"
            )
    return ""


class Even(Pace):
    """As many sweeps in each call."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __exit__(self, *error: object) -> None:
        pass


class Ensembles:
    """The arrays of one run, filled by the kernel."""

    def __init__(
        self, settings: Tempering, graph: FactorGraph, model: Conditioned,
        start: Marginals | None, begin: float,
    ) -> None:  # fmt: skip
        self.settings, self.graph, self.begin = settings, graph, begin
        self.on = on = backend()
        self.kernels, draw = on.kernels("sampling.tempering"), on.kernels("sampling.gibbs").draw
        self.residuals = np.zeros(0)
        self.began = clock()
        self.deadline = deadline_of(settings.time_limit, self.began)
        if any(g.form == "machine" for g in model.groups):
            written = (g.as_tables() if g.form == "machine" else g for g in model.groups)
            model = replace(model, groups=tuple(written))
        self.model = model
        self.parts = parts = lay_out(model)
        self.table, self.forbidden = _softened(parts)
        self.counted = model.arrays.scopes
        self.count_ptr = count_ptr(parts.card, self.counted.fptr, self.counted.scope)
        self.first = initial_probs(model, parts, None)
        first = on.put((self.first, initial_probs(model, parts, start)))
        n_chains, n_rungs = settings.n_chains, settings.n_replicas
        n_lanes = -(-n_rungs // 4) * 4
        n, n_facs = len(parts.card), len(parts.toff)
        x = np.zeros((n_chains, n, n_lanes))
        seeds = random_words(settings.rng, n_chains * (n_lanes + 1))
        seeds = seeds.reshape(n_chains, n_lanes + 1, 4)
        with np.errstate(divide="ignore"):
            at = np.linspace(0.0, 1.0, self.kernels.BINS + 1)
            logit = np.log(at) - np.log1p(-at)
        there, anywhere = on.put(
            (parts, normalised((parts.bias > -np.inf).astype(float), graph._offsets))
        )
        for c in range(n_chains):
            states, one_each = on.put((np.zeros((n_lanes, n), np.int32), seeds[c, 1:].copy()))
            draw(there.off, anywhere, one_each, states)
            cold, words = states[n_rungs - 1 : n_rungs], one_each[n_rungs - 1 : n_rungs]
            draw(there.off, first[c % 2], words, cold)
            if self.forbidden.size:
                make_feasible(on, there, cold[0], words[0], math.inf)
            x[c] = on.get(states).T
        low = np.geomspace(FIRST_BETA, 1.0, n_rungs - 1) if n_rungs > 2 else np.ones(1)
        self.beta = np.concatenate([[0.0], low])
        rung = np.tile(np.arange(n_rungs), (n_chains, 1))
        self._model = (there, *on.put((self.table, self.forbidden)))
        self._copies = on.put(self.kernels.Replicas(
            x, np.zeros((n_chains, n_facs, n_lanes), dtype=np.int32), seeds[:, 0].copy(), rung,
            rung.copy(), np.zeros((n_chains, n_rungs), dtype=np.int8),
        ))  # fmt: skip
        self._logit = on.put(logit)
        self._counted = on.put((self.counted.fptr, self.counted.scope, self.count_ptr))
        for c in range(n_chains):
            self.kernels.place(there, self._copies.x[c], self._copies.cell[c])
        self.done = 0  # sweeps, burn-in included
        self.rate = np.ones(n_rungs - 1)  # of exchanges, in the last round of burn-in
        self.settled = False  # whether the samples were stopped because they agree
        self.forget()

    def forget(self) -> None:
        """Empty what sweeps add to."""
        n_chains, n_rungs = self.settings.n_chains, len(self.beta)
        mean_exp = np.zeros((n_chains, 2, n_rungs))
        mean_exp[:, 0] = -np.inf
        none = np.zeros((n_chains, n_rungs - 1), dtype=np.int64)
        self._sums = self.on.put(self.kernels.TemperingSums(
            np.zeros((n_chains, len(self.parts.bias))), np.zeros((n_chains, 2), dtype=np.int64),
            mean_exp, none, none.copy(), np.zeros((n_chains, 1), dtype=np.int64),
        ))  # fmt: skip
        self._counts = self.on.put(np.zeros(int(self.count_ptr[-1]), dtype=np.int64))

    @property
    def sums(self) -> TemperingSums:
        """What is recorded so far, of all ensembles."""
        return self.on.get(self._sums)

    def sweep(self, n: int, record: bool) -> None:
        beta = self.on.put(self.beta)
        for c in range(self.settings.n_chains):
            copies, sums = (type(t)(*(each[c] for each in t)) for t in (self._copies, self._sums))
            self.kernels.temper(
                *self._model, copies, self._logit, beta, n, record, sums, self._counted,
                self._counts, self.done % 2,
            )  # fmt: skip
        self.done += n

    def coldest(self) -> NDArray[np.int32]:
        """The states of the coldest copies, (C, V)."""
        x, lane_at = self.on.get((self._copies.x, self._copies.lane_at))
        return np.array([each[:, at[-1]] for each, at in zip(x, lane_at)], dtype=np.int32)

    def move_ladder(self) -> None:
        """Temperatures such that exchanges would be refused equally often everywhere."""
        self.rate = rate = self.acceptance()
        refused = np.clip(1.0 - rate, 0.02, 0.98)
        along = np.concatenate([[0.0], np.cumsum(refused)])
        want = np.linspace(0.0, along[-1], len(self.beta))
        self.beta = np.interp(want, along, self.beta)
        self.beta[0], self.beta[-1] = 0.0, 1.0
        none = np.zeros_like(self.sums.tries)
        tries, accepted = self.on.put((none, none.copy()))
        self._sums = self._sums._replace(tries=tries, accepted=accepted)

    def pace(self) -> Pace:
        """How sweeps are cut into calls of the kernel, each of which sums its energies anew: by the
        clock where there is a deadline; else evenly, so that a seed gives the same bits."""
        if self.deadline < math.inf:
            return Pace()
        return Even(max(1, _UPDATES_A_CALL // max(self._copies.x.size, 1)))

    def burn_in(self) -> bool:
        """Find the ladder and lose the first states; False if time ran short."""
        pace, left = self.pace(), self.settings.burn_in
        until = self.began + (self.deadline - self.began) / 4
        each = max(1, -(-left // ROUNDS))
        in_round = 0
        while left and clock() < until:
            n = min(left, pace.n, each - in_round)
            with pace:
                self.sweep(n, False)
            left -= n
            in_round += n
            if in_round >= each:
                self.move_ladder()
                in_round = 0
        return left == 0

    def sample(self, enough: float = 0.0) -> NDArray[np.float64]:
        """Record; how far the mean of a chain moved between two looks, look by look. Stops early
        once no standard error is above ``enough``, if that is not 0."""
        pace, done = self.pace(), 0
        residuals: list[float] = []
        before = None
        while done < self.settings.n_sweeps:
            if done and clock() >= self.deadline:
                break
            n = min(self.settings.n_sweeps - done, pace.n)
            with pace:
                self.sweep(n, True)
            done += n
            mean = self.sums.totals / max(done, 1)
            moved = 1.0 if before is None else float(np.abs(mean - before).max(initial=0.0))
            residuals.append(moved)
            before = mean
            if enough > 0.0 and done >= LEAST_SWEEPS and self.sums.trips.min() >= 2:
                self.settled = (self.error() or 1.0) <= enough
                if self.settled:
                    break
        self.residuals = np.array(residuals)
        return self.residuals

    @property
    def busy(self) -> bool:
        """Whether any variable has a factor left."""
        return bool((self.parts.kind != 0).any())

    def answer(self) -> Marginals:
        """Burn in, sample, and the answer."""
        finished = not self.busy or self.burn_in()
        self.forget()
        if self.busy:
            self.sample()
            finished = finished and int(self.sums.valid[0, 0]) >= self.settings.n_sweeps
        return self.result(finished)

    def result(self, finished: bool) -> Marginals:
        """The answer from what is recorded."""
        busy, sums = self.busy, self.sums
        if busy and not (sums.valid[:, 1].any() and self._recorded(sums.totals.sum(axis=0))):
            raise RefusedError(
                "Tempering found no assignment that the model allows; use Exact, JoinGraph or "
                "BeliefPropagation, raise n_sweeps, or start from an answer that is closer "
                "(start=...)"
            )
        probs = self.probs()
        lift(self.model, probs)
        return Marginals(
            self.graph, probs, self.settings,
            Status.SAMPLED if finished else Status.TIME_LIMIT, LogZ.ESTIMATE,
            iterations=int(sums.valid[0, 0]), residuals=self.residuals,
            timings={"iterate": clock() - self.begin},
            error_estimate=self.error(), note=self.note() if busy else "",
            state=TemperingState(
                self.model, *self.counted, self.on.get(self._counts), self.chain_probs(),
                self.coldest(),
                value=self.log_z(), beta=self.beta.copy(), acceptance=self.acceptance(),
                round_trips=sums.trips[:, 0].copy(),
            ),
        )  # fmt: skip

    def chain_probs(self) -> NDArray[np.float64]:
        """Marginals by ensemble, of those that met something allowed; or all together, one row."""
        seen = self._seen()
        return self.probs()[None] if not seen.any() else self._of(self.sums.totals[seen])

    def error(self) -> float | None:
        """The largest standard error of a marginal, None from one ensemble alone."""
        if self._seen().sum() < 2:
            return None
        return max(standard_error(self.chain_probs()) or 0.0, self.least_error)

    def probs(self) -> NDArray[np.float64]:
        return self._of(self.sums.totals.sum(axis=0))

    def _of(self, totals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Marginals from sums of conditional distributions; idle variables have theirs."""
        idle = np.repeat(is_idle(self.parts), self.graph._n_states)
        return normalised(np.where(idle, self.first, totals), self.graph._offsets)

    def _seen(self) -> NDArray[np.bool_]:
        """Ensembles with something recorded of every variable."""
        return self._recorded(self.sums.totals)

    def _recorded(self, totals: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether sums (..., sum S) have something of every variable, (...,): a sweep may end
        allowed and yet have passed its first variables while it was not."""
        if not self.graph.n_variables:
            return np.ones(totals.shape[:-1], dtype=bool)
        sums = np.add.reduceat(totals, self.graph._offsets[:-1], axis=-1)
        return np.asarray((sums[..., ~is_idle(self.parts)] > 0).all(axis=-1))

    @property
    def least_error(self) -> float:
        """What no error is below: few sweeps may count where the model forbids something."""
        return 1.0 / (1.0 + float(self.sums.valid[:, 1].sum())) if self.forbidden.size else 0.0

    def acceptance(self) -> NDArray[np.float64]:
        sums = self.sums
        return np.asarray(sums.accepted.sum(axis=0) / np.maximum(sums.tries.sum(axis=0), 1))

    def note(self) -> str:
        rate, trips, sweeps = self.acceptance(), int(self.sums.trips.sum()), self.sums.valid
        said = f"exchanges accepted: {rate.min():.0%} to {rate.max():.0%}; {trips:,} round trips"
        valid = sweeps[:, 1].sum() / max(1, sweeps[:, 0].sum())
        if valid < 0.5:
            said += f"; {valid:.0%} of sweeps ended in an allowed assignment"
        if (n := int(self._seen().sum())) < self.settings.n_chains:
            said += f"; only {n} of {self.settings.n_chains} ensembles met one"
        if trips < 2 * self.settings.n_chains:
            said += ": too few to have seen every mode; raise n_sweeps or n_replicas"
        return said

    def log_z(self) -> float:
        graph, parts = self.graph, self.parts
        free = parts.kind != 0
        value = self.model.constant + float(parts.constant[0])
        if graph.n_variables:
            allowed = np.add.reduceat(parts.bias > -np.inf, graph._offsets[:-1], dtype=np.int64)
            value += float(np.log(allowed[free]).sum())
        (n, ok), mean_exp = self.sums.valid.sum(axis=0), self.sums.mean_exp
        if not n:
            return value
        top = mean_exp[:, 0].max(axis=0)[:-1]
        sums = (mean_exp[:, 1, :-1] * np.exp(mean_exp[:, 0, :-1] - top)).sum(axis=0)
        return value + float((top + np.log(sums / n)).sum()) + math.log(ok / n)


@dataclass(frozen=True, eq=False)
class TemperingState(GibbsState):
    """What the coldest copies saw, and how the ladder did. K copies, C ensembles."""

    value: float = math.nan
    beta: NDArray[np.float64] | None = None  # (K,) inverse temperatures
    acceptance: NDArray[np.float64] | None = None  # (K - 1,) share of exchanges
    round_trips: NDArray[np.int64] | None = None  # (C,)

    def log_z(self) -> float:
        return self.value


def _softened(parts: SiteLayout) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """The tables' values with forbidden cells at a finite price, and which these are, or none."""
    zero = np.isneginf(parts.log_psi)
    if not zero.any():
        return parts.log_psi, np.zeros(0, dtype=np.uint8)
    begin = np.unique(parts.toff[parts.toff >= 0])
    sizes = np.diff(np.append(begin, len(parts.log_psi)))
    least = np.minimum.reduceat(np.where(zero, np.inf, parts.log_psi), begin)
    least = np.where(np.isfinite(least), least, 0.0)
    soft = np.where(zero, np.repeat(least, sizes) - PENALTY, parts.log_psi)
    return soft, zero.astype(np.uint8)
