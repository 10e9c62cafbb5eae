"""Any answer in sentences: how it ended, its log Z, its evidence, what a summary says of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minfer.basics.limits import compiled, load_compiler
from minfer.basics.words import counted, duration

if TYPE_CHECKING:
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Marginals, Solver


WORTH = 1e-3  # seconds of compiling that are told


def answered(solver: Solver, graph: FactorGraph) -> Marginals:
    """A solver's answer with its log Z; loading numba is not part of its time."""
    load_compiler()
    answer = solver(graph)
    _ = answer.log_z
    return answer


def status(marginals: Marginals) -> str:
    """How it ended, and how far the answer may still be from where it would end."""
    text = marginals.status.value
    if marginals.iterations:
        text += f" after {counted(marginals.iterations, 'iteration')}"
    if marginals._shown_error is not None:
        text += f", estimated error {marginals._shown_error:.1e}"
    elif marginals.error_estimate == math.inf:
        text += ", error unknown"
    if marginals.converged and marginals.still_to_move:
        text += f"; more iterations would move it by about {marginals.still_to_move:.1g}"
    return text


def log_z(marginals: Marginals) -> str:
    value = marginals.log_z
    if math.isnan(value):
        return "this solver gives none"
    kind = marginals.log_z_kind.value
    text = f"{value:.8g} ({kind}); log10 Z = {value / math.log(10):.8g}"
    if marginals.proven_log_z is None:
        return text
    return f"{text}; {log_z_between(marginals.log_z_bounds)}"


def log_z_between(bounds: tuple[float, float] | None) -> str:
    """Bounds of log Z, empty where there are none.

    >>> log_z_between((1.5, math.inf)), log_z_between((-1.25, 2.0))
    ('at least 1.5 (rigorous)', 'from -1.25 to 2 (rigorous)')
    """
    if bounds is None:
        return ""
    lower, upper = bounds
    if lower == -math.inf:
        return f"at most {upper:.8g} (rigorous)"
    if upper == math.inf:
        return f"at least {lower:.8g} (rigorous)"
    return f"from {lower:.8g} to {upper:.8g} (rigorous)"


def describe(graph: FactorGraph) -> str:
    """``7 variables of 2 to 4 states; ...``, as the graph prints itself."""
    return repr(graph).removeprefix("FactorGraph(").removesuffix(")")


def sizes(graph: FactorGraph) -> dict[str, int]:
    return {
        "variables": graph.n_variables,
        "factors": graph.n_factors,
        "states": int(graph.n_states.sum()),
        "max_states": int(graph.n_states.max(initial=0)),
        "max_arity": int(graph.arity.max(initial=0)),
        "observed": graph.n_observed,
    }


def summary(marginals: Marginals) -> dict[str, str]:
    return {
        "solver": repr(marginals.solver),
        "why": marginals.note,
        "status": status(marginals),
        "advice": marginals.advice,
        "log Z": log_z(marginals),
        "time": took(marginals.seconds),
    }


def took(seconds: float, parts: str = "") -> str:
    """What an answer took, in parts, and apart from it what compiling took in this process."""
    spent = compiled()
    text = f"{duration(seconds)} ({parts})" if parts else duration(seconds)
    return f"{text}; compiling or loading kernels {duration(spent)}" if spent >= WORTH else text


def told_evidence(graph: FactorGraph, seen: Mapping[int, Any]) -> dict[str, Any]:
    return {
        graph.name(v): graph.states(v)[state]
        if isinstance(state, int)
        else dict(zip(graph.states(v), map(float, state)))
        for v, state in seen.items()
    }


def set_text(graph: FactorGraph, do: Mapping[Any, Any] | None) -> str:
    """Interventions as people read them: do(CVP=LOW, HR=HIGH)."""
    told = [f"{graph.name(v)}={graph.states(v)[graph.state(v, s)]}" for v, s in (do or {}).items()]
    return f"do({', '.join(told)})" if told else ""


def evidence_text(graph: FactorGraph, seen: Mapping[int, Any]) -> str:
    """Evidence as people read it: CVP=LOW, HR~LOW:0.2,HIGH:0.8."""
    return ", ".join(
        f"{graph.name(v)}={graph.states(v)[state]}"
        if isinstance(state, int)
        else f"{graph.name(v)}~"
        + ",".join(f"{s}:{float(x):g}" for s, x in zip(graph.states(v), state))
        for v, state in seen.items()
    )
