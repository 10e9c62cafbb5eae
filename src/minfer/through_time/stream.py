"""One observation in, one answer out, in constant memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from minfer.basics.words import counted
from minfer.errors import ContradictionError
from minfer.kernels.time.slices import (
    FILTER,
    LOGS,
    L,
    Observed,
    SliceAnswers,
    run_slices,
)
from minfer.model.evidence import is_missing, numbered
from minfer.through_time.answers import Moment
from minfer.through_time.sequences import scaled_logs

if TYPE_CHECKING:
    from minfer.through_time.dynamic import Dynamic


class EvidenceStream:
    """Filtering, a slice at a time: what it remembers is the belief about the interface.

    Attributes
    ----------
    time : int, slices observed so far
    log_likelihood : float, log P of all that was observed
    """

    def __init__(self, model: Dynamic, targets: list[int]) -> None:
        self.model, self._targets = model, targets
        self.time, self.log_likelihood = 0, 0.0
        passes, graph = model._passes, model.slice
        self._order = sorted(targets)
        self._plans = passes.arguments(LOGS)
        self._alpha = np.zeros(passes.size * L)
        self._wanted = np.zeros(graph.n_variables, dtype=np.uint8)
        self._wanted[targets] = 1
        self._width = int(graph._n_states[targets].sum())
        self._how = np.array([LOGS, FILTER, 1, 1, passes.size], dtype=np.int64)
        self._sequences = np.zeros((L, 3), dtype=np.int64)
        self._sequences[0, 1] = 1
        self._no = np.empty((0, 0), np.int32), np.empty(0), np.zeros((1, 1))

    def observe(self, evidence: Any = None) -> Moment:
        """The next slice's observations, {variable: state, or likelihoods; None where there is
        none}, and what is believed after them. If they are impossible, the stream stays where it
        was."""
        graph = self.model.slice
        if isinstance(evidence, Mapping):
            evidence = {
                v: x for v, x in evidence.items() if isinstance(x, np.ndarray) or not is_missing(x)
            }
        hard, soft = numbered(graph, {} if evidence is None else evidence)
        states = np.full((1, graph.n_variables), -1, dtype=np.int32)
        like = np.zeros((max(len(soft), 1), int(graph._n_states.max())))
        scale = 0.0
        for v, state in hard.items():
            states[0, v] = state
        for k, (v, given) in enumerate(soft.items()):
            like[k, : len(given)], top = scaled_logs(given)
            scale += top
            states[0, v] = -2 - k
        beliefs, scores = np.zeros((1, self._width)), np.zeros((L, 3))
        scores[:, 1:] = -1.0, 1.0
        no_path, nothing, no_draws = self._no
        alpha = self._alpha.copy()
        run_slices(
            self._plans, Observed(states, like, self._sequences, no_draws),
            SliceAnswers(beliefs, no_path, scores, alpha, nothing), self._wanted, self._how,
        )  # fmt: skip
        if scores[0, 1] >= 0.0:
            raise ContradictionError(
                f"observe: time {self.time}: what is observed has probability zero given what was "
                "observed before"
            )
        self._alpha, self._how[3] = alpha, 0
        self.time += 1
        self.log_likelihood += float(scores[0, 0]) + scale
        p = beliefs[0]
        if self._targets != self._order:
            from minfer.through_time.passes import _columns

            p = p[_columns(graph, self._targets)]
        return Moment(self.model, self._targets, p, self.time - 1, self.log_likelihood)

    def __repr__(self) -> str:
        return f"EvidenceStream({counted(self.time, 'slice')} observed)"
