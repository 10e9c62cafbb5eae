"""Evidence as people give it: states by number or name, or a likelihood for each state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.checks import integer, told
from minfer.errors import EvidenceError, ModelError
from minfer.graph import FactorGraph
from minfer.states import state_number

#: {variable: state, or likelihoods of its states}.
Evidence = Mapping[Any, Any]


def with_any_evidence(graph: FactorGraph, evidence: Evidence | None) -> FactorGraph:
    """The model with hard and soft evidence."""
    return with_both(graph, *numbered(graph, {} if evidence is None else evidence))


def with_both(
    graph: FactorGraph, hard: Mapping[int, int], soft: Mapping[int, NDArray]
) -> FactorGraph:
    """The same by variables' numbers."""
    graph = graph.with_evidence(dict[int | str, int | str](hard.items()))
    if not soft:
        return graph
    every = {v: v for v in range(graph.n_variables)}
    return graph.tilt(log_field(graph, every, soft))


def numbered(
    graph: FactorGraph, evidence: Any
) -> tuple[dict[int, int], dict[int, NDArray[np.float64]]]:
    """Observed states, and likelihoods, by variables' numbers."""
    if not isinstance(evidence, Mapping):
        raise EvidenceError("evidence is a mapping {variable: state}, as in {'x3': 1}")
    hard: dict[int, int] = {}
    soft: dict[int, NDArray[np.float64]] = {}
    for variable, state in evidence.items():
        try:
            v = graph.index(variable)
        except ModelError as error:
            raise EvidenceError(f"evidence: {error}") from None
        if v in hard or v in soft:
            raise EvidenceError(f"evidence: {graph.name(v)} is given twice")
        if isinstance(state, (str, int, np.bool_)) or integer(state) is not None:
            own = graph._states[v] if graph._states else None
            hard[v] = state_number(
                graph.name(v), int(graph._n_states[v]), own, state,
                by_name=isinstance(variable, str),
            )  # fmt: skip
        elif isinstance(state, (Mapping, Sequence, np.ndarray)):
            soft[v] = _likelihoods(graph, v, state, isinstance(variable, str))
        else:
            raise EvidenceError(
                f"evidence: {graph.name(v)} must have a state's name or number, or likelihoods of "
                f"all its states, not {told(state)}"
            )
    return hard, soft


def _likelihoods(graph: FactorGraph, v: int, given: Any, by_name: bool) -> NDArray[np.float64]:
    one = FactorGraph(
        graph._n_states[v : v + 1],
        names=(graph.name(v),),
        _states=graph._states and (graph._states[v],),
    )
    try:
        seen = one.with_soft_evidence({graph.name(v) if by_name else 0: given})
    except ModelError as error:
        raise EvidenceError(f"soft evidence: {error}") from None
    return np.exp(seen.field)


def log_field(
    graph: FactorGraph, place: Mapping[int, int], soft: Mapping[int, NDArray]
) -> NDArray[np.float64]:
    """Soft evidence as log-weights (sum S,) of a part's states."""
    out = np.zeros(int(graph._offsets[-1]))
    for v, like in soft.items():
        if v in place:
            lo = int(graph._offsets[place[v]])
            with np.errstate(divide="ignore"):
                out[lo : lo + len(like)] = np.log(like)
    return out
