"""What a reduced answer may have cost, in sentences.

Every one of them says whether it is rigorous or an estimate.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from minfer.basics.words import counted, duration
from minfer.say import answers

if TYPE_CHECKING:
    from minfer.reduction.result import Result

MOST_KEPT = 0.9  # beyond this share the reduction is hardly worth it


def divergence(result: Result) -> str:
    if not result.n_ignored:
        return "0: no factor was ignored"
    if not math.isfinite(result.divergence):
        return "infinite: an ignored factor forbids what the reduced model allows"
    what = "residuals" if result.score_kind == "residual" else "gains"
    return (
        f"about {result.divergence:.3g} (estimate: the sum of the ignored factors' {what}, as the "
        "seed sees them)"
    )


def error(result: Result) -> str:
    if not result.n_ignored:
        return ""
    if reason := result.no_estimate:
        return f"not estimated: {reason}{next_move(result)}"
    largest = result.error_estimates.max(initial=0.0)
    text = (
        f"about {result.mean_error_estimate:.2g} on average, {largest:.2g} at the worst variable "
        "(estimate: how far the ignored factors would still move the answer"
    )
    if result.compensation is not None and result.marginals.log_z_kind.value == "exact":
        text += (
            "; it only sees messages, and the effect of lost correlations is often ten times that"
        )
    text += _without_solver(result) + ")"
    if result.error_refuted:
        text += f"; refuted: a probability is off by at least {result.least_error:.2g} (rigorous)"
    return text


def next_move(result: Result) -> str:
    """Of an answer that refreshes still move: how far the next one would."""
    each = result.error_estimates
    if result.settled or not np.isfinite(each).all():
        return ""
    step = "round" if result.trace else "refresh"
    return (
        f"; another {step} would move it by about {each.mean():.2g} on average, "
        f"{each.max(initial=0.0):.2g} at the worst variable"
    )


def _without_solver(result: Result) -> str:
    if result.marginals.log_z_kind.value != "exact":
        return "; it does not include the solver's own error, which is not known"
    return ""


def bound(result: Result) -> str:
    if not result.n_ignored:
        return ""
    if reason := why_no_bound(result):
        return f"none: {reason}"
    assert result.bound is not None
    return (
        f"the divergence of the reduced model from the full one is at most {result.bound:.3g} "
        "(rigorous; for single probabilities there are certified intervals)"
        f"{_without_solver(result)}"
    )


def why_no_bound(result: Result) -> str:
    bound = result.bound
    if bound is None:
        return result.certificate.reason.replace(" in H", " in the reduced model")
    if math.isinf(bound):
        return "an ignored factor forbids what the reduced model allows"
    return ""


def reduced_log_z(result: Result) -> str:
    text = f"{answers.log_z(result.marginals)}; of the reduced model"
    if not result.log_z_refuted:
        return text
    return f"{text}; refuted: it is {result.certificate.log_z:.8g} (rigorous)"


def full_log_z(result: Result) -> str:
    if not result.n_ignored:
        return "the same; of the full model, as nothing was ignored"
    value, estimate, bounds = result.log_z_full, result.log_z_estimate, result.log_z_bounds
    kind = "estimate, refuted" if result.log_z_full_refuted else "estimate"
    known = [f"about {estimate:.8g} ({kind})"] if math.isfinite(estimate) else []
    if bounds is not None and all(map(math.isfinite, bounds)):
        known.append(f"between {bounds[0]:.8g} and {bounds[1]:.8g} (rigorous)")
    elif math.isfinite(value) and result.log_z_full_kind.value == "lower bound":
        known.append(f"at least {value:.8g} (rigorous)")
    told = ", ".join(known) or f"unknown: {result.no_log_z_full}"
    return f"{told}; of the full model"


def steps(result: Result) -> str:
    return ", ".join(f"{name} {duration(s)}" for name, s in result.timings.items() if s)


def status(result: Result) -> str:
    own = answers.status(result.marginals)
    if result.status is not result.marginals.status and result.settled:
        return f"{result.status.value}: the reduced model is solved exactly"
    if result.settled or not result.marginals.status.ok:
        return own
    text = f"{result.status.value}: {result._unsettled}"
    n = result.marginals.iterations
    return f"{text}; {counted(n, 'iteration')} in the solver's last call" if n else text


def summary(result: Result, method: str, advice: str) -> dict[str, str]:
    """All facts by name; those without content are empty."""
    return {
        "solver": repr(result.marginals.solver),
        "why": result.marginals.note,
        "method": method,
        "status": status(result),
        "advice": advice,
        "factors": f"{result.n_factors:,} in all: {result.n_seed:,} seed, {result.n_forced:,} "
        f"forced, {result.n_added:,} added, {result.n_ignored:,} ignored; "
        f"{result.kept_share:.1%} of those outside the seed kept",
        "divergence": divergence(result),
        "error of leaving out": error(result),
        "bound of leaving out": bound(result),
        "log Z": reduced_log_z(result),
        "": full_log_z(result),
        "time": answers.took(result.seconds, steps(result)),
    }


def to_dict(result: Result, variables: list[int] | None, **settings: Any) -> dict[str, Any]:
    """As JSON: the result, the settings that led to it, and what its bound is worth."""
    content = result.to_dict(variables)
    content["reduction"] |= {
        **settings,
        "forced_share": result.forced_share,
        "largest_error_estimate": None
        if result.no_estimate
        else float(result.error_estimates.max(initial=0.0)),
        "bound_is_rigorous": True,
        "no_bound_because": why_no_bound(result),
    }
    return content


def little_ignored(result: Result) -> str:
    """What to do where the reduction was hardly worth it; empty where it was."""
    if result.kept_share <= MOST_KEPT or result.n_factors == result.n_seed:
        return ""
    if not result.n_ignored:
        return (
            "nothing was ignored, so this is plain inference by the solver above: raise "
            "factor_cost, or infer in the full model (small models are then solved exactly)"
        )
    return "little was ignored: raise factor_cost, or set max_factors, for a smaller model"
