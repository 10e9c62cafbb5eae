"""The answer of ignorant inference, and what ignoring may have cost.

Two kinds of statements, never mixed. *Rigorous*, computed from the model and what was kept of it:
``intervals`` (where the true marginals lie, if asked for), ``interval`` (no probability is further
off), ``bound`` on D(p_H || p_F) and ``log_z_bounds``; None where they cannot be had. *Estimates*:
``divergence`` (the surrogate D1 = sum of the ignored factors' scores) and ``mean_error_estimate``
(how far the ignored factors' messages would still move the marginals). ``bound`` and the estimates
are about leaving out alone: a solver that is not exact on H adds its own error. The intervals judge
the answer as it is, whoever made it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minfer.basics.notebook import card
from minfer.basics.words import counted, plain
from minfer.errors import RefusedError, renamed
from minfer.factors.features import binary_pairs
from minfer.factors.group import Floats, Ints, Mask
from minfer.reduction.bound import (
    Certificate,
    Dropped,
    certificate,
    ignored,
    product_bound,
    product_estimates,
)
from minfer.reduction.compensation import Compensation, compensate, too_large
from minfer.reduction.gains import factor_scores
from minfer.reduction.sources import Scan, unseen_shifts
from minfer.say.intervals import REFUTED
from minfer.say.intervals import to_dict as judged
from minfer.solvers.base import ROUNDING, LogZ, Status

if TYPE_CHECKING:
    from minfer.certified.result import Intervals
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Marginals

STILL = 1e-9  # estimated errors below this are those of corrections that stand still
LOST = 1e-6  # divergence above which something was lost all the same
#: Nats that the ignored factors may leave open for an estimate of the full model's log Z.
OPEN = 1.0
#: Why :func:`minfer.relax` stopped, if for time.
OUT_OF_TIME = "the time is up"


class Step(NamedTuple):
    """One line of a trace: what was known after so many seconds."""

    seconds: float
    n_added: int
    divergence: float
    change: float
    bound: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The answer of :func:`minfer.infer` or :func:`minfer.relax`, and what it left out.

    Attributes
    ----------
    model : FactorGraph
        The full model F (of a factor source: what was built of it).
    marginals, seed_marginals : Marginals
        Of the reduced model H (``marginals.graph``, corrections in its field), and of the seed.
    keep, seed : bool arrays (F,)
        Factors of H and of the seed, masks over ``model``; ``kept`` are the numbers of the first.
    scores : float array (F,)
        Infinite on the seed and on factors that must be kept.
    score_kind : "gain", "residual" or "reverse"
        What ``scores`` are; thresholds for one do not compare with another's.
    timings : dict
        Wall-clock seconds of seed, scores, select, compensate, infer.
    compensation : Compensation or None
    trace : tuple of Step
        Of iterated inference: time, size, surrogate, change, and bound where asked for.
    stopped : str
        Why iterated inference stopped.
    untouched : Scan or None
    gap : float
        With costs: how much better the optimum of the objective could be at most.
    last_change : float
        How far the last refresh, or the last round of iterated inference, moved any probability.
    settled : bool
        Whether that is within the solver's tolerance (of iterated inference: whether it had
        nothing left to do). Without refreshes there is nothing to settle.
    intervals : Intervals or None
        Where the marginals of the full model lie, rigorous, if ``certify=seconds`` or
        :meth:`certified` asked for them.
    no_certificate : str
        Why no certificate may be computed; empty if one may.
    """

    model: FactorGraph
    marginals: Marginals
    seed_marginals: Marginals
    keep: Mask
    seed: Mask
    scores: Floats
    score_kind: str
    timings: Mapping[str, float]
    compensation: Compensation | None = None
    trace: tuple[Step, ...] = ()
    stopped: str = ""
    untouched: Scan | None = None
    gap: float = 0.0
    last_change: float = 0.0
    settled: bool = True
    intervals: Intervals | None = None
    no_certificate: str = ""

    if not TYPE_CHECKING:
        __getattr__ = renamed(
            gains="scores", score="score_kind", error_estimate="mean_error_estimate"
        )

    # ------------------------------------------------------------------ what was kept

    @property
    def kept(self) -> Ints:
        """Numbers of the kept factors in the full model, increasing."""
        kept = np.flatnonzero(self.keep)
        return kept if self.untouched is None else np.sort(self.model.origin[kept])

    @property
    def n_factors(self) -> int:
        """Factors of the full model, built or not."""
        return self.model.n_factors + self.n_untouched

    @property
    def n_untouched(self) -> int:
        """Factors of a source that were never built."""
        return self.untouched.count if self.untouched else 0

    @property
    def n_seed(self) -> int:
        return int(self.seed.sum())

    @property
    def n_forced(self) -> int:
        """Factors outside the seed with an infinite score: kept whatever the objective."""
        return int((np.isinf(self.scores) & ~self.seed).sum())

    @property
    def n_added(self) -> int:
        """Factors that the objective chose to add: neither seed nor forced."""
        return int(self.keep.sum()) - self.n_seed - self.n_forced

    @property
    def n_ignored(self) -> int:
        return self.n_factors - int(self.keep.sum())

    @property
    def kept_share(self) -> float:
        """Share of the factors outside the seed that were kept."""
        outside = self.n_factors - self.n_seed
        return (int(self.keep.sum()) - self.n_seed) / outside if outside else 1.0

    @property
    def forced_share(self) -> float:
        """Share of the factors outside the seed that had to be kept."""
        outside = self.n_factors - self.n_seed
        return self.n_forced / outside if outside else 0.0

    @property
    def status(self) -> Status:
        """The solver's, unless refreshes or rounds still moved the answer: then not converged.

        An exact answer for the reduced model is called converged.
        """
        inner = self.marginals.status
        if inner is Status.EXACT and self.n_ignored and self.settled:
            return Status.CONVERGED
        if self.settled or not inner.ok:
            return inner
        return Status.TIME_LIMIT if self.stopped == OUT_OF_TIME else Status.MAX_ITERS

    @property
    def converged(self) -> bool:
        """Whether the solver finished and no refresh or round was still moving the answer."""
        return self.settled and self.marginals.converged

    @property
    def advice(self) -> str:
        """What to do about the answer, in a sentence; empty where nothing needs doing."""
        if self.forced_share > 0.5 and self.score_kind != "reverse":
            return (
                f"{self.forced_share:.0%} of the factors have zeros where the seed has mass and "
                "must be kept: score='reverse' ranks them too, without a finite divergence"
            )
        if self.settled or self.marginals.advice:
            return self.marginals.advice
        if not self.trace:
            return f"{self._unsettled}: raise refreshes, or use relax"
        more = "time_limit" if self.stopped == OUT_OF_TIME else "rounds"
        return f"{self._unsettled} ({self.stopped}): raise {more}"

    @property
    def _unsettled(self) -> str:
        """What an answer that is not settled was still doing."""
        step = "round" if self.trace else "refresh"
        return f"the last {step} still moved a probability by {self.last_change:.1g}"

    # ------------------------------------------------------------------ estimates

    @cached_property
    def divergence(self) -> float:
        """The surrogate D1, the sum of the ignored factors' scores: an estimate of D(p_H || p_F).

        Infinite if a factor was ignored whose zeros have mass (reverse scores allow that). Of a
        factor source the largest value it can have: see :attr:`divergence_interval`.
        """
        return self.divergence_interval[1]

    @cached_property
    def divergence_interval(self) -> tuple[float, float]:
        """The surrogate between its least and largest value: one number if all were scored."""
        scores = self.scores
        if self.score_kind == "reverse":
            scores = factor_scores(self.model, self.seed_marginals, self.keep)
        low = float(scores[~self.keep].sum())
        return low, low + (float(self.untouched.most) if self.untouched else 0.0)

    @cached_property
    def error_estimates(self) -> Floats:
        """Estimated error of each variable's marginal, its largest entry, shape (V,).

        How far one more message of each ignored factor would move it, others held fixed: no bound,
        and it does not see the solver's own error. Candidates of a source that were never built
        count as if their weights were drawn like those of the built ones; if none was built, as if
        each had the largest weight of its bounds (:func:`~minfer.reduction.sources.unseen_shifts`).
        NaN where the solver has not converged, or an ignored factor forbids what the answer allows
        or is too large for a table; :attr:`no_estimate` says where else they are no errors. While
        refreshes still move the answer they are how far the next one would.
        """
        n, unseen = self.model.n_variables, self.untouched if self.n_untouched else None
        if not self.marginals.converged or self.divergence_interval[0] == math.inf:
            return np.full(n, np.nan)
        if self._untabled or (unseen and unseen.source is None):
            return np.full(n, np.nan)
        if not n or (self.keep.all() and not unseen):
            return np.zeros(n)
        p = self.marginals.probs
        step, spread = np.zeros(len(p)), np.zeros(n)
        if self.compensation is not None:
            old, new = self.compensation.field, self.compensation.refreshed(p).field
            step = np.where(p > 0, new, 0.0) - np.where(p > 0, old, 0.0)
        elif not self.keep.all():
            step = compensate(self.model, p, self.keep).field
        first, size = self.model._offsets[:-1], self.model._n_states
        if unseen and unseen.source is not None:
            off, on = binary_pairs(p, self.model._offsets).T
            mean, variance = unseen_shifts(unseen, on)
            binary = size == 2
            step[first[binary] + 1] += mean[binary]
            spread = np.minimum(off * on * np.sqrt(variance), 1.0)
        with np.errstate(divide="ignore"):
            step += np.log(p)
        moved = np.exp(step - np.repeat(np.maximum.reduceat(step, first), size))
        moved /= np.repeat(np.add.reduceat(moved, first), size)
        return np.hypot(np.maximum.reduceat(np.abs(moved - p), first), spread)

    @cached_property
    def _untabled(self) -> str:
        """Which ignored factor is too large for a table; empty if all fit."""
        return too_large(self.model, self.keep)

    @property
    def mean_error_estimate(self) -> float:
        """Mean of :attr:`error_estimates`; NaN if there is none (see :attr:`no_estimate`)."""
        if self.no_estimate:
            return math.nan
        return float(self.error_estimates.mean()) if self.model.n_variables else 0.0

    @property
    def no_estimate(self) -> str:
        """Why nothing is said of the error; empty where :attr:`error_estimates` say it."""
        if not self.marginals.converged:
            return "the solver has not converged"
        if self._untabled:
            return self._untabled
        if not np.isfinite(self.error_estimates).all():
            return "an ignored factor forbids what the reduced model allows"
        if not self.settled:
            return self._unsettled
        if self.error_estimates.max(initial=0.0) < STILL and self.divergence > LOST:
            return (
                "one more message of each ignored factor would change nothing, and what is lost of "
                "their correlations is not seen"
            )
        return ""

    # ------------------------------------------------------------------ rigorous statements

    @property
    def reduced(self) -> FactorGraph:
        """H: the kept factors, tilted by what the ignored ones left behind."""
        part = self.model.keep(self.keep)
        return part if self.compensation is None else part.tilt(self.compensation.field)

    @cached_property
    def certificate(self) -> Certificate:
        """Everything rigorous about p_H against p_F, from the model alone; on first access."""
        if self.no_certificate or self._untabled:
            return Certificate(reason=self.no_certificate or self._untabled)
        return certificate(self.reduced, self._dropped())

    @property
    def _has_certificate(self) -> bool:
        """Whether the certificate is there already: none is computed for a face."""
        return "certificate" in self.__dict__

    def unbounded(self, reason: str) -> Result:
        """This answer without a certificate, where computing one would be out of place."""
        return replace(self, no_certificate=reason)

    @property
    def bound(self) -> float | None:
        """The best upper bound on D(p_H || p_F) we have; None where none is valid.

        Needs all factors built, and an H that is easy to solve exactly. Valid for compensated
        answers too, but hardly useful: what their ignored factors left behind cancels on average,
        and the bound must allow that it does not.
        """
        return None if self.n_untouched else self.certificate.bound

    @property
    def least_error(self) -> float:
        """What some probability is off by, at least; 0 if there are no :attr:`intervals`."""
        if self.intervals is None:
            return 0.0
        return float(self.intervals.error_bounds(self.marginals)[0].max(initial=0.0))

    @property
    def error_refuted(self) -> bool:
        """Whether the :attr:`intervals` prove a probability 0.01 further off than any estimate."""
        if self.no_estimate:
            return False
        return self.least_error > float(self.error_estimates.max(initial=0.0)) + REFUTED

    def certified(self, seconds: float = 10.0, **options: Any) -> Result:
        """This answer with :attr:`intervals`, searched for at most this many seconds.

        Ignored factors count as ranges first, then the whole model is used; ``options`` are those
        of :func:`minfer.intervals`.
        """
        from minfer.certified.search import intervals

        if self.n_untouched:
            raise RefusedError(
                f"certify: {counted(self.n_untouched, 'factor')} of the source were never built, "
                "and nothing rigorous is known of their effect: infer in "
                "minfer.ground(model, source), which has all of them"
            )
        return replace(self, intervals=intervals(self.model, seconds, kept=self.keep, **options))

    @property
    def interval(self) -> float | None:
        """The most that any probability can be off from the full model's; None if not certified."""
        if self.intervals is None:
            return None
        return float(self.intervals.error_bounds(self.marginals)[1].max(initial=0.0))

    @property
    def log_z_bounds(self) -> tuple[float, float] | None:
        """log Z_F lies between these two; None where there is no :attr:`bound`."""
        found = None if self.n_untouched else self.certificate
        if found is None or found.log_z_lower is None or found.log_z_upper is None:
            return None
        return found.log_z_lower, found.log_z_upper

    @property
    def log_z_refuted(self) -> bool:
        """Whether :attr:`log_z`, an estimate, is more than 0.01 off the :attr:`certificate`'s."""
        exact = None if self.n_untouched else self.certificate.log_z
        if exact is None or self.marginals.log_z_kind is not LogZ.ESTIMATE:
            return False
        return math.isfinite(self.log_z) and abs(self.log_z - exact) > REFUTED

    @property
    def log_z_full_refuted(self) -> bool:
        """Whether :attr:`log_z_estimate` (:attr:`log_z`, if all is kept) is outside its bounds."""
        if not self.n_ignored and self.compensation is None:
            return self.log_z_refuted
        return self._outside_log_z_bounds(self.log_z_estimate)

    def _outside_log_z_bounds(self, value: float) -> bool:
        """Whether a log Z of the full model, whoever gave it, is outside :attr:`log_z_bounds`."""
        bounds = self.log_z_bounds
        if bounds is None or not math.isfinite(value):
            return False
        slip = ROUNDING * (1.0 + abs(value))
        return not bounds[0] - slip <= value <= bounds[1] + slip

    def _dropped(self) -> list[Dropped]:
        """What H lacks of F: the ignored factors, of compensated ones less what they left."""
        if self.compensation is None:
            return ignored(self.model, self.keep)
        return self.compensation.residues()

    # ------------------------------------------------------------------ log Z

    @property
    def log_z(self) -> float:
        """log Z of H, as its solver gives it; see ``marginals.log_z_kind``."""
        return self.marginals.log_z

    @cached_property
    def _log_z_full(self) -> tuple[float, LogZ, str]:
        """log Z of F, what it is to the true one, and why there is none."""
        kind = self.marginals.log_z_kind
        if not self.n_ignored and self.compensation is None:
            return self.log_z, kind, "" if kind is not LogZ.NONE else "the solver gives none"
        if not self.n_untouched:
            if kind is LogZ.EXACT and self.log_z_bounds is not None:
                return self.log_z_bounds[0], LogZ.LOWER, ""
            if kind is LogZ.LOWER:
                value = product_bound(self.model, self.marginals.probs)
                if value is not None:
                    return value, LogZ.LOWER, ""
        value, why = self._estimated_log_z
        return (math.nan, LogZ.NONE, why) if why else (value, LogZ.ESTIMATE, "")

    @property
    def log_z_estimate(self) -> float:
        """An estimate of log Z of the full model, or NaN, also where there is a bound."""
        return self._estimated_log_z[0]

    @cached_property
    def _estimated_log_z(self) -> tuple[float, str]:
        """log Z_H + sum of log E[Psi_i] over the ignored factors, or why that is worth nothing."""
        if not math.isfinite(self.log_z):
            return math.nan, "the solver gives none of the reduced model"
        if not self.n_ignored and self.compensation is None:
            return self.log_z, ""
        if not self.marginals.converged:
            return math.nan, "the solver has not converged"
        if self.n_untouched:
            return math.nan, f"{counted(self.n_untouched, 'factor')} of the source were never built"
        if self._untabled:
            return math.nan, self._untabled
        p = np.asarray(self.marginals.probs)
        mean, log_mean = product_estimates(self.model, self._dropped(), p)
        if not math.isfinite(mean):
            return math.nan, "an ignored factor forbids what the reduced model allows"
        if log_mean - mean > OPEN:
            return math.nan, f"the ignored factors leave about {log_mean - mean:.2g} nats open"
        return self.log_z + log_mean, ""

    @property
    def log_z_full(self) -> float:
        """log Z of the full model; :attr:`log_z_full_kind` says what it is to the true one.

        Where H is solved exactly, the lower bound log Z_H + E_H[log of what H lacks]. Where the
        solver's own log Z is a lower bound, that of its marginals as a product distribution.
        Elsewhere an estimate, log Z_H + sum of log E[Psi_i] under products of marginals: refreshed
        to the end, the Bethe value of the full model. NaN where nothing supports one.
        """
        return self._log_z_full[0]

    @property
    def log_z_full_kind(self) -> LogZ:
        return self._log_z_full[1]

    @property
    def no_log_z_full(self) -> str:
        """Why there is no :attr:`log_z_full`, such as more than a nat left open; or empty."""
        return self._log_z_full[2]

    # ------------------------------------------------------------------ the rest

    @property
    def seconds(self) -> float:
        return sum(self.timings.values())

    def __getstate__(self) -> dict[str, Any]:
        if self.untouched is not None:
            _ = self.error_estimates  # needs the source, which stays behind
        return vars(self).copy()

    def to_dict(self, variables: list[int] | None = None) -> dict[str, Any]:
        """Plain Python values, ready for JSON; what is not finite becomes None."""
        low, high = self.divergence_interval
        sure = self.intervals
        alike = (  # called so in JSON, too
            "kept_share", "mean_error_estimate", "no_estimate", "bound", "interval", "log_z_full",
            "no_log_z_full", "log_z_estimate", "log_z_bounds", "log_z_refuted",
            "log_z_full_refuted", "last_change", "settled", "gap", "stopped", "advice",
        )  # fmt: skip
        return {
            **self.marginals.to_dict(variables),
            "error_estimate": self.marginals._shown_error if self.converged else None,
            "status": self.status.value,
            "converged": self.converged,
            "advice": self.advice,
            "seconds": self.seconds,
            "timings": dict(self.timings),
            "intervals": None if sure is None else judged(sure, variables, self.marginals),
            "reduction": plain({
                "factors": self.n_factors,
                "seed": self.n_seed,
                "forced": self.n_forced,
                "added": self.n_added,
                "ignored": self.n_ignored,
                "untouched": self.n_untouched,
                "score": self.score_kind,
                "compensated": self.compensation is not None,
                "divergence_estimate": [low, high],
                "divergence_is_infinite": math.isinf(high),
                "error_estimate_refuted": self.error_refuted,
                "log_z_full_kind": self.log_z_full_kind.value,
                "solver_status": self.marginals.status.value,
                "trace": [step._asdict() for step in self.trace],
                **{name: getattr(self, name) for name in alike},
            }),
        }  # fmt: skip

    def __repr__(self) -> str:
        outside = self.n_factors - self.n_seed
        low, high = self.divergence_interval
        about = f"about {high:.3g}" if low == high else f"between {low:.3g} and {high:.3g}"
        return (
            f"Result(kept {self.kept_share:.1%} of {counted(outside, 'factor')} outside the seed; "
            f"divergence {about}; {self.status.value}; "
            f"{self.seconds * 1e3:.3g} ms)"
        )

    def _repr_html_(self) -> str:
        low, high = self.divergence_interval
        rows: list[tuple[str, object]] = [
            ("factors of the model", self.n_factors),
            ("in the seed", self.n_seed),
            ("kept because they must be", self.n_forced),
            ("kept by choice", self.n_added),
            ("ignored", self.n_ignored),
            ("divergence (estimate)", high if low == high else f"{low:.4g} to {high:.4g}"),
            (
                f"mean error of leaving out (estimate{', refuted' if self.error_refuted else ''})",
                f"none: {self.no_estimate}" if self.no_estimate else self.mean_error_estimate,
            ),
        ]
        if self.intervals is not None:
            refuted = int(self.intervals.refuted(self.marginals).sum())
            rows.append(("largest possible error (rigorous)", self.interval))
            rows.append(("variables whose estimate is refuted (rigorous)", refuted))
        of_log_z = self.marginals.log_z_kind.value
        if self._has_certificate and self.log_z_refuted:
            of_log_z = f"{of_log_z}, refuted: it is {self.certificate.log_z:.8g}"
        rows.append((f"log Z of the reduced model ({of_log_z})", self.log_z))
        rows.append(("seconds", self.seconds))
        about = f"kept {self.kept_share:.1%} of the factors outside the seed, {self.status.value}"
        return card("Result", about, (), rows, self.advice)

    def plot(self) -> Any:
        """Scores of what was kept and ignored, and the solver's convergence: matplotlib axes (2,).

        Of :func:`minfer.relax` a third: size and divergence over time. Needs the extra ``plot``.
        """
        from minfer.plots import result

        return result(self)
