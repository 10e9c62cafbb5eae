"""Gibbs sampling: every variable in turn is drawn from its conditional given all others.

    x_v ~ p(x_v | rest)  proportional to  exp( field_v(x_v) + sum_{f of v} log Psi_f(x_v, rest) )
    p(x_v = s)  ~  average over sweeps and chains of  p(x_v = s | rest)

Geman & Geman (1984), "Stochastic relaxation, Gibbs distributions, and the Bayesian restoration of
images", IEEE PAMI 6:721-741. Marginals average the conditional *distributions*, not the states
drawn (Rao-Blackwellisation; Gelfand & Smith 1990, "Sampling-based approaches to calculating
marginal densities", JASA 85:398-409). A factor's joint marginal is the frequencies of its cells.

Error estimate: with m_c(v, s) the mean of chain c = 1..C,

    error_estimate = max over v, s of  sqrt( sum_c (m_c - mean_c m_c)^2 / (C - 1) / C ),

the largest standard error of a marginal over independent chains. It sees slow mixing. Chains that
all sit in the same one of several islands of allowed assignments agree, so where zeros may make
islands (:func:`minfer.solvers.irreducible.may_be_trapped`), or finite weights do for all that a
chain can see (:func:`~minfer.solvers.irreducible.may_stick`), the error is infinite: not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import by_name, check_seconds, check_whole
from minfer.basics.limits import clock, deadline_of
from minfer.engine.conditioning import Conditioned
from minfer.engine.layout import Scopes, scopes
from minfer.engine.support import lift
from minfer.errors import ContradictionError, RefusedError
from minfer.kernels.backend import backend
from minfer.solvers.base import LogZ, Marginals, Status, normalised
from minfer.solvers.irreducible import haven, may_be_trapped, may_stick
from minfer.solvers.mean_field import (
    OnSites,
    Pace,
    initial_probs,
    is_idle,
    make_feasible,
    max_moves,
    random_words,
)

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.kernels.messages.layout import SiteLayout

#: Joint states of a factor that is not a table up to which they are counted.
MAX_COUNTED = 1 << 10
_TRIES = 3  # fresh draws per chain in the search for an allowed assignment


@by_name
@dataclass(frozen=True, kw_only=True)
class Gibbs(OnSites):
    """Single-site Gibbs sampling with several independent chains. It has no log Z: that is NaN.

    Parameters
    ----------
    n_sweeps : int
        Recorded sweeps of each chain.
    burn_in : int
        Sweeps of each chain before those recorded.
    n_chains : int
        Independent chains, or ensembles. With one there is no error estimate.
    rng : int
        Seed of the random generator. The same seed gives the same answer, to the bit; each chain
        has its own stream.
    time_limit : float or None
        Wall-clock seconds; checked between kernel calls of about 50 ms, after at least one recorded
        sweep. Burn-in gets half of the time at most. All chains make the same number of sweeps.

    Notes
    -----
    ``start`` (any earlier answer for a graph with the same variables) gives the distribution of
    the first states. In a model with zeros the first states are then moved into the allowed set by
    a min-conflicts search: for each chain at most 3 tries of 20,000 + 200 V moves. If that finds
    nothing, the model is refused. Global factors are refused, too, and so are hard logical factors
    unless single moves are known to reach everything: if every variable has a state that it may
    take in any allowed assignment without breaking a factor (such as false, if at most k of some
    variables may be true), every allowed assignment can be reached through these states. Tables
    with zeros are sampled, but the answer has not converged and its error is infinite unless that
    is shown in the same way or, for at most 16,384 assignments of variables that such tables join,
    by looking at all of them. Large finite weights trap chains, too: variables that weights of more
    than log(n_sweeps) nats tie are looked at together after the run, given the others, and the
    error is infinite if single changes lead from one part of their probability to another only
    through assignments that n_sweeps sweeps do not see.
    """

    n_sweeps: int = 2000
    burn_in: int = 200
    n_chains: int = 4
    rng: int = 0
    time_limit: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("n_sweeps", 1), ("n_chains", 1), ("burn_in", 0), ("rng", 0)):
            check_whole(name, getattr(self, name), least)
        check_seconds("time_limit", self.time_limit)

    def check(self, model: Conditioned) -> None:
        """Raise RefusedError where it cannot take the model."""
        if why := haven(model)[1]:
            raise RefusedError(f"Gibbs {why}")

    def run(
        self, graph: FactorGraph, model: Conditioned, parts: SiteLayout,
        start: Marginals | None, begin: float,
    ) -> Marginals:  # fmt: skip
        """The answer for a model that is laid out."""
        target, _ = haven(model)
        counted = scopes([g for g in model.groups if g.form == "table" or g.n_cells <= MAX_COUNTED])
        run = _Chains(self, counted, parts, begin)
        first = initial_probs(model, parts, start)
        run.find_first_states(first, target)
        planned = clock()
        residuals = run.sample()
        idle = np.repeat(is_idle(parts), graph._n_states)  # their first marginals are exact
        totals, states, counts = run.on.get((run.totals, run.states, run.counts))
        chain_probs = normalised(np.where(idle, first, totals), graph._offsets)
        probs = normalised(chain_probs.mean(axis=0), graph._offsets)
        lift(model, probs)
        error, note = standard_error(chain_probs), ""
        spread = "" if error is None else f"; they differ by {error:.2g}"
        if trap := may_be_trapped(model):
            error = math.inf
            note = (
                "it is not shown that changing one variable at a time leads to every allowed "
                f"assignment: {trap}, may keep all chains where they began{spread}"
            )
        elif trap := may_stick(model, states, len(residuals)):
            error = math.inf
            note = (
                f"the weights of {trap} may have kept all chains where they began: changes of one "
                f"variable at a time lead through what is too improbable to be seen{spread}"
            )
        return Marginals(
            graph, probs, self,
            Status.TIME_LIMIT if run.was_cut_short else Status.SAMPLED, LogZ.NONE,
            iterations=len(residuals), residuals=residuals,
            timings={"plan": planned - begin, "iterate": clock() - planned},
            error_estimate=error, note=note,
            state=GibbsState(model, *counted, counts, chain_probs, states),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class GibbsState:
    """What the chains saw. F factors over two or more free variables, C chains."""

    model: Conditioned
    ids: NDArray[np.int64]  # (F,) the factors' numbers in the graph
    scope_ptr: NDArray[np.int64]  # (F+1,)
    scope: NDArray[np.int32]
    counts: NDArray[np.int64]  # joint states of every factor, cells end to end, chains together
    chain_probs: NDArray[np.float64]  # (C, sum S) marginals of each chain
    states: NDArray[np.int32]  # (C, V) the last sample of each chain

    def log_z(self) -> float:
        """NaN: Gibbs sampling does not estimate it."""
        return math.nan

    @cached_property
    def _row(self) -> NDArray[np.int64]:
        """Where each factor of the graph is in ``ids``, or -1."""
        row = np.full(self.model.graph.n_factors, -1, dtype=np.int64)
        row[self.ids] = np.arange(len(self.ids))
        return row

    @cached_property
    def _count_ptr(self) -> NDArray[np.int64]:
        return count_ptr(self.model.graph._n_states, self.scope_ptr, self.scope)

    def factor(self, factor: int) -> NDArray[np.float64] | None:
        """Frequencies of a factor's joint states; None if at most one of its variables is free, or
        it is not a table and has too many states."""
        graph = self.model.graph
        graph._locate(factor)
        factor %= graph.n_factors
        row = int(self._row[factor])
        if row < 0:
            return None
        scope = self.scope[self.scope_ptr[row] : self.scope_ptr[row + 1]]
        cells = self.counts[self._count_ptr[row] : self._count_ptr[row + 1]]
        shape = tuple(int(s) for s in graph._n_states[scope])
        return self.model.expand(factor, (cells / cells.sum()).reshape(shape))


class _Chains:
    """The arrays of one run, filled by the kernel."""

    def __init__(self, settings: Gibbs, counted: Scopes, parts: SiteLayout, begin: float) -> None:
        self.settings, self.parts, self.on = settings, parts, backend()
        self.kernels = self.on.kernels("sampling.gibbs")
        self.deadline = deadline_of(settings.time_limit, begin)
        n_chains = settings.n_chains
        begins = count_ptr(parts.card, counted.fptr, counted.scope)
        self.there, self.words, self.states, self.totals, self.counted, self.counts = self.on.put((
            parts,
            random_words(settings.rng, n_chains),
            np.zeros((n_chains, len(parts.card)), dtype=np.int32),
            np.zeros((n_chains, len(parts.bias))),
            (counted.fptr, counted.scope, begins),
            np.zeros(int(begins[-1]), dtype=np.int64),
        ))  # fmt: skip
        self.was_cut_short = False

    def find_first_states(
        self, probs: NDArray[np.float64], target: NDArray[np.int32] | None
    ) -> None:
        """Independent draws from ``probs``, moved to where nothing is forbidden."""
        draw, off = self.kernels.draw, self.there.off
        probs = self.on.put(probs)
        if target is not None or not np.isneginf(self.parts.log_psi).any():
            draw(off, probs, self.words, self.states)
            if target is None:
                return
            haven_there = self.on.put(target)
            for x in self.states:
                if (f := self.kernels.yield_to(self.there, x, haven_there)) >= 0:
                    raise ContradictionError(
                        f"every assignment has probability zero: factor {int(self.parts.ids[f])} "
                        "forbids what the others leave"
                    )
            return
        for c in range(self.settings.n_chains):
            x, words = self.states[c : c + 1], self.words[c : c + 1]
            for _ in range(_TRIES):
                draw(off, probs, words, x)
                if make_feasible(self.on, self.there, x[0], words[0], self.deadline):
                    break
            else:
                or_time = " or the time limit" * (self.deadline < math.inf)
                raise RefusedError(
                    f"Gibbs found no assignment that the model allows, in {_TRIES} searches of "
                    f"{max_moves(x.shape[1]):,} moves{or_time}; use Exact or "
                    "BeliefPropagation, or start from an answer that is closer (start=...)"
                )

    def sample(self) -> NDArray[np.float64]:
        """Burn in, then record; the largest change of a chain's mean, sweep by sweep."""
        pace = Pace()
        left = self.settings.burn_in
        half_time = (clock() + self.deadline) / 2
        while left and clock() < half_time:
            n = min(left, pace.n)
            self._sweep(pace, n, -1)
            left -= n
        self.was_cut_short = left > 0
        parts: list[NDArray[np.float64]] = []
        done = 0
        while done < self.settings.n_sweeps:
            if done and clock() >= self.deadline:
                self.was_cut_short = True
                break
            n = min(self.settings.n_sweeps - done, pace.n)
            parts.append(self._sweep(pace, n, done))
            done += n
        return np.concatenate(parts)

    def _sweep(self, pace: Pace, n: int, t: int) -> NDArray[np.float64]:
        residuals = self.on.put(np.zeros(n))
        with pace:
            self.kernels.sample(
                self.there, self.states, self.words, n, t, self.totals, *self.counted, self.counts,
                residuals,
            )  # fmt: skip
        return self.on.get(residuals)


def standard_error(chain_probs: NDArray[np.float64]) -> float | None:
    """Largest standard error of a marginal, from chains (C, sum S); None for a single chain."""
    n = len(chain_probs)
    if n < 2:
        return None
    return float((chain_probs.std(axis=0, ddof=1) / math.sqrt(n)).max(initial=0.0))


def count_ptr(card: NDArray, scope_ptr: NDArray, scope: NDArray) -> NDArray[np.int64]:
    """Where each factor's cells begin if every factor has a table of its own, (F+1,)."""
    out = np.zeros(len(scope_ptr), dtype=np.int64)
    if len(scope):
        cells = np.multiply.reduceat(card[scope].astype(np.int64), scope_ptr[:-1])
        np.cumsum(cells, out=out[1:])
    return out
