"""Questions and their answers, as plain values and as tables for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from minfer.basics.notebook import Face, Right
from minfer.basics.words import probability
from minfer.model.joint import Joint
from minfer.queries.query import Posteriors, query
from minfer.say.answers import evidence_text, told_evidence

if TYPE_CHECKING:
    from minfer.graph import FactorGraph


class Asked(NamedTuple):
    """What is asked of a model given evidence, and the answer: joint, separate, or of all."""

    graph: FactorGraph
    targets: Sequence[int] | None
    evidence: Mapping[int, Any]
    found: Joint | Posteriors | dict[int, Any]
    log_evidence: float

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        graph, found = self.graph, self.found
        content = {
            "targets": [graph.name(v) for v in self.targets or range(graph.n_variables)],
            "evidence": told_evidence(graph, self.evidence),
            "log_evidence": self.log_evidence,
        }
        if isinstance(found, Joint):
            return {**content, "joint": found.to_dict()}
        each = found if isinstance(found, dict) else dict(enumerate(found))
        told = {v: dict(zip(graph.states(v), map(float, p))) for v, p in each.items()}
        return {**content, "marginals": {graph.name(v): states for v, states in told.items()}}

    def faces(self, most: int) -> Iterator[Face]:
        """The joint distribution of the targets, its first rows, or a table for each of them."""
        if isinstance(self.found, Joint):
            yield self.found.face(most)._replace(conclusion="")
        for v, p in self.found.items() if isinstance(self.found, dict) else ():
            rows = [(s, Right(probability(float(x)))) for s, x in zip(self.graph.states(v), p)]
            yield Face("", (self.graph.name(v), "probability"), rows)

    def summary(self) -> dict[str, str]:
        """The evidence and its probability, if there is any."""
        if not self.evidence:
            return {}
        log_p = self.log_evidence
        return {
            "evidence": evidence_text(self.graph, self.evidence),
            "log P(e)": f"{log_p:.8g}; P(e) = {math.exp(log_p):.6g}",
        }


def ask(
    graph: FactorGraph,
    targets: Sequence[int] | None,
    evidence: Mapping[int, Any],
    separate: bool = False,
) -> Asked:
    """Several targets give their joint distribution, unless they are ``separate``; None all.

    >>> from minfer.examples import sprinkler
    >>> ask(sprinkler(), [1, 2], {3: 1}, separate=True).summary()["evidence"]
    'wet_grass=1'
    """
    found: Any
    if targets is None or (len(targets) > 1 and not separate):
        found = query(graph, targets, evidence)
        return Asked(graph, targets, evidence, found, found.log_evidence)
    found = {v: query(graph, v, evidence) for v in targets}
    return Asked(graph, targets, evidence, found, next(iter(found.values())).log_evidence)
