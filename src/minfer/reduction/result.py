"""The answer of ignorant inference, and what ignoring may have cost.

Two kinds of statements, never mixed. *Rigorous*: ``bound`` (an upper bound on D(p_H || p_F)),
``interval`` (no probability under p_H is further off than this) and the bounds on log Z_F made
from them; None where they cannot be had. *Estimates*: ``divergence`` (the surrogate D1 = sum of
the ignored factors' scores) and ``error_estimate`` (how far the ignored factors' messages would
still move the marginals). Rigorous ones are about p_H itself; a solver that is not exact adds its
own error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.factors import Globals, Tables
from minfer.graph import FactorGraph
from minfer.notebook import card
from minfer.reduction.bound import Certificate, Dropped, certificate, ignored, pinsker
from minfer.reduction.compensation import Compensation, compensate
from minfer.reduction.gains import binary_marginals, factor_scores, product_joints, rows_of
from minfer.reduction.sources import FactorSource, unseen_shifts
from minfer.solvers.base import LogZ, Marginals, Status
from minfer.words import counted

STILL = 1e-9  # estimated errors below this are those of corrections that stand still
LOST = 1e-6  # divergence above which something was lost all the same


@dataclass(frozen=True, eq=False)
class Untouched:
    """Candidates of a factor source that were never built, because they cannot matter."""

    count: int
    ceiling: float  # each one's score is below this
    most: float  # and their sum at most this
    ids: NDArray[np.int64]  # the numbers of the factors that were built, in the full model
    source: FactorSource | None = None  # where they come from; does not pickle
    touched: tuple[Any, ...] = ()  # what was built, template by template

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"source": None, "touched": ()}


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
    marginals : Marginals
        Of the reduced model H; ``marginals.graph`` is H, corrections in its field.
    seed_marginals : Marginals
    keep : bool array (F,)
        Factors of H, a mask over ``model``; ``kept`` are their numbers.
    seed : bool array (F,)
    gains : float array (F,)
        Infinite on the seed and on factors that must be kept.
    score : "gain", "residual" or "reverse"
        What ``gains`` are; thresholds for one do not compare with another's.
    timings : dict
        Wall-clock seconds of seed, gains, select, compensate, infer.
    compensation : Compensation or None
    trace : tuple of Step
        Of iterated inference: time, size, surrogate, change, and bound where asked for.
    stopped : str
        Why iterated inference stopped.
    untouched : Untouched or None
    gap : float
        With costs: how much better the optimum of the objective could be at most.
    """

    model: FactorGraph
    marginals: Marginals
    seed_marginals: Marginals
    keep: NDArray[np.bool_]
    seed: NDArray[np.bool_]
    gains: NDArray[np.float64]
    score: str
    timings: Mapping[str, float]
    compensation: Compensation | None = None
    trace: tuple[Step, ...] = ()
    stopped: str = ""
    untouched: Untouched | None = None
    gap: float = 0.0

    # ------------------------------------------------------------------ what was kept

    @property
    def kept(self) -> NDArray[np.int64]:
        """Numbers of the kept factors in the full model, increasing."""
        kept = np.flatnonzero(self.keep)
        return kept if self.untouched is None else np.sort(self.untouched.ids[kept])

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
        return int((np.isinf(self.gains) & ~self.seed).sum())

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
        return self.marginals.status

    @property
    def advice(self) -> str:
        """What to do about the answer, in a sentence; empty where nothing needs doing."""
        if self.forced_share > 0.5 and self.score != "reverse":
            return (
                f"{self.forced_share:.0%} of the factors have zeros where the seed has mass and "
                "must be kept: score='reverse' ranks them too, without a finite divergence"
            )
        return self.marginals.advice

    # ------------------------------------------------------------------ estimates

    @cached_property
    def divergence(self) -> float:
        """The surrogate D1, the sum of the ignored factors' scores: an estimate of D(p_H || p_F).

        With residual scores an estimate of what compensation leaves of it; infinite if a factor
        was ignored whose zeros have mass (reverse scores allow that). Of a factor source the
        largest value it can have: see :attr:`divergence_interval`.
        """
        return self.divergence_interval[1]

    @cached_property
    def divergence_interval(self) -> tuple[float, float]:
        """The surrogate between its least and largest value: one number if all were scored."""
        scores = self.gains
        if self.score == "reverse":
            scores = factor_scores(self.model, self.seed_marginals, self.keep)
        low = float(scores[~self.keep].sum())
        return low, low + (float(self.untouched.most) if self.untouched else 0.0)

    @cached_property
    def error_estimates(self) -> NDArray[np.float64]:
        """Estimated error of each variable's marginal, its largest entry, shape (V,).

        How far one more message of each ignored factor would move it, others held fixed. Not a
        bound: strong couplings among ignored factors can make the true error several times this,
        and it does not see the solver's own error. Candidates of a source that were never built
        count as if their weights were drawn like those of the built ones, whatever their
        marginals; if none was built, as if each had the largest weight of its bounds, which is
        much too careful (:func:`~minfer.reduction.sources.unseen_shifts`). NaN where an ignored
        factor forbids what the answer allows; :attr:`no_estimate` says where else they mislead.
        """
        n, unseen = self.model.n_variables, self.untouched if self.n_untouched else None
        if self.divergence_interval[0] == math.inf or (unseen and unseen.source is None):
            return np.full(n, np.nan)
        if not n or (self.keep.all() and not unseen):
            return np.zeros(n)
        p = self.marginals.probs
        step, spread = np.zeros(len(p)), np.zeros(n)
        if self.compensation is not None:
            step = self.compensation.refreshed(p).field - self.compensation.field
        elif not self.keep.all():
            step = compensate(self.model, p, self.keep).field
        offsets = self.model._offsets
        first, size = offsets[:-1], np.diff(offsets)
        if unseen and unseen.source is not None:
            off, on = binary_marginals(self.model, p).T
            mean, variance = unseen_shifts(unseen.source, unseen.touched, on)
            binary = size == 2
            step[first[binary] + 1] += mean[binary]
            spread = np.minimum(off * on * np.sqrt(variance), 1.0)
        moved = p * np.exp(step - np.repeat(np.maximum.reduceat(step, first), size))
        moved /= np.repeat(np.add.reduceat(moved, first), size)
        return np.hypot(np.maximum.reduceat(np.abs(moved - p), first), spread)

    @property
    def error_estimate(self) -> float:
        """Mean of :attr:`error_estimates`; NaN where there is no telling: :attr:`no_estimate`."""
        if self.no_estimate:
            return math.nan
        return float(self.error_estimates.mean()) if self.model.n_variables else 0.0

    @property
    def no_estimate(self) -> str:
        """Why :attr:`error_estimates` are not to be believed; empty where they may be."""
        if not np.isfinite(self.error_estimates).all():
            return "an ignored factor forbids what the reduced model allows"
        if self.n_ignored and not self.marginals.converged:
            return "the solver has not converged"
        if self.error_estimates.max(initial=0.0) < STILL and self.divergence > LOST:
            return (
                "one more message of each ignored factor would change nothing, and what is lost of "
                "their correlations is not seen"
            )
        return ""

    # ------------------------------------------------------------------ rigorous statements

    @cached_property
    def certificate(self) -> Certificate:
        """Everything rigorous about p_H against p_F; computed on first access."""
        return certificate(self.marginals.graph, self._dropped())

    @property
    def bound(self) -> float | None:
        """The best upper bound on D(p_H || p_F) we have; None where none is valid.

        Needs the exact joint of every ignored scope under H, so H must be easy to solve exactly;
        and all factors built, since nothing rigorous is known of the others' joint effect. Valid
        for compensated answers too, but hardly useful: what their ignored factors left behind
        cancels on average, and the bound must allow that it does not.
        """
        if self.n_untouched:
            return None
        return self.certificate.bound

    @property
    def interval(self) -> float | None:
        """No probability of any event under p_H is further from p_F's (Pinsker); None as above."""
        return None if self.bound is None else pinsker(self.bound)

    @property
    def intervals(self) -> NDArray[np.float64] | None:
        """The same for the marginals of each variable, shape (V,), from its own component of F."""
        return None if self.bound is None else self.certificate.intervals

    def _dropped(self) -> list[Dropped]:
        """The ignored factors; of compensated ones the tables minus what they left behind.

        F = H' + ignored - corrections: taking each factor's corrections off its own table, not as
        factors of their own, keeps the bound tight.
        """
        if self.compensation is None:
            return ignored(self.model, self.keep)
        out = []
        left = self.compensation.remembered()
        assert left.messages is not None
        for g, m in zip(self.model.groups, left.messages):
            rows = np.flatnonzero(~rows_of(g, self.keep))
            if isinstance(g, Globals) or not len(rows):
                continue
            tables = np.array(g.log_tables(rows)).reshape(len(rows), *g.shape)
            power = 1.0 if left.rho is None else rows_of(g, left.rho)[rows][:, None]
            if g.arity < 2:
                tables[:] = 0.0  # left behind whole
            elif g.shape == (2, 2):
                log_m = power * np.log(m[rows])
                tables[:, 1, :] -= log_m[:, 0, None]
                tables[:, :, 1] -= log_m[:, 1, None]
            else:
                start = 0
                for a, size in enumerate(g.shape):
                    part = power * m[rows, start : start + size]
                    shape = [len(rows), *(size if b == a else 1 for b in range(g.arity))]
                    tables -= part.reshape(shape)
                    start += size
            out.append(Dropped(g._scope[rows], tables.reshape(len(rows), -1), g.shape))
        return out

    # ------------------------------------------------------------------ log Z

    @property
    def log_z(self) -> float:
        """log Z of H, as its solver gives it; see ``marginals.log_z_kind``."""
        return self.marginals.log_z

    @cached_property
    def _log_z_full(self) -> tuple[float, LogZ]:
        from minfer.solvers.mean_field import MeanField

        if self.keep.all() and not self.n_untouched:
            return self.log_z, self.marginals.log_z_kind
        exact = self.marginals.log_z_kind is LogZ.EXACT
        if exact and not self.n_untouched:
            found = self.certificate
            if found.log_z_lower is not None:
                return found.log_z_lower, LogZ.LOWER
        p = np.asarray(self.marginals.probs)
        mean = 0.0
        for d in self._dropped():
            mean += _expectation(self.model, d, p)
        by_product = self.marginals.solver.startswith(MeanField.__name__ + "(")
        kind = LogZ.LOWER if by_product and self.untouched is None else LogZ.ESTIMATE
        return self.log_z + mean, kind

    @property
    def log_z_full(self) -> float:
        """log Z_H + E_H[log of the ignored factors (minus corrections)].

        A lower bound on log Z_F where H is solved exactly or by mean field (then the expectation
        is exact too), an estimate otherwise: see :attr:`log_z_full_kind`.
        """
        return self._log_z_full[0]

    @property
    def log_z_full_kind(self) -> LogZ:
        return self._log_z_full[1]

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
        return {
            **self.marginals.to_dict(variables),
            "seconds": self.seconds,
            "timings": dict(self.timings),
            "reduction": {
                "factors": self.n_factors,
                "seed": self.n_seed,
                "forced": self.n_forced,
                "added": self.n_added,
                "ignored": self.n_ignored,
                "untouched": self.n_untouched,
                "kept_share": self.kept_share,
                "score": self.score,
                "compensated": self.compensation is not None,
                "divergence_estimate": [finite_or_none(low), finite_or_none(high)],
                "divergence_is_infinite": math.isinf(high),
                "error_estimate": finite_or_none(self.error_estimate),
                "no_estimate": self.no_estimate,
                "bound": finite_or_none(self.bound),
                "interval": self.interval,
                "log_z_full": finite_or_none(self.log_z_full),
                "log_z_full_kind": self.log_z_full_kind.value,
                "gap": self.gap,
                "stopped": self.stopped,
                "trace": [step._asdict() for step in self.trace],
                "advice": self.advice,
            },
        }

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
        rows = [
            ("factors of the model", self.n_factors),
            ("in the seed", self.n_seed),
            ("kept because they must be", self.n_forced),
            ("kept by choice", self.n_added),
            ("ignored", self.n_ignored),
            ("divergence (estimate)", high if low == high else f"{low:.4g} to {high:.4g}"),
            (
                "mean error of a marginal (estimate)",
                f"none: {self.no_estimate}" if self.no_estimate else self.error_estimate,
            ),
            ("log Z of the reduced model", self.log_z),
            ("seconds", self.seconds),
        ]
        about = f"kept {self.kept_share:.1%} of the factors outside the seed, {self.status.value}"
        return card("Result", about, (), rows, self.advice)

    def plot(self) -> Any:
        """Scores of what was kept and ignored, and the solver's convergence: matplotlib axes (2,).

        Of :func:`minfer.relax` a third: size and divergence over time. Needs the extra ``plot``;
        :mod:`minfer.plots` has each alone.
        """
        from minfer.plots import result

        return result(self)


def finite_or_none(x: float | None) -> float | None:
    """A number that JSON can hold."""
    return x if x is not None and math.isfinite(x) else None


def _expectation(model: FactorGraph, dropped: Dropped, probs: NDArray) -> float:
    """Sum of the dropped factors' expected log-tables under product marginals."""
    ids = np.arange(len(dropped.scope))
    group = Tables(ids, dropped.scope, dropped.shape, dropped.log_psi)
    done, total = 0, 0.0
    for joint in product_joints(model, group, probs):
        tables = dropped.log_psi[done : done + len(joint)]
        with np.errstate(invalid="ignore"):
            total += float(np.where(joint > 0, joint * tables, 0.0).sum())
        done += len(joint)
    return total
