"""Assignments drawn by parallel tempering: places to begin moves from.

Moves climb the hill they are on. Copies of the model at a ladder of temperatures, which change
places (:mod:`minfer.solvers.tempering`), come down on one hill after the other, on high ones more
often: moves go on from what the coldest copies hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import clock
from minfer.solvers.tempering import ROUNDS, Ensembles, Tempering, refusal

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.queries.map.problem import MapProblem

_UPDATES = 4_000_000  # of variables between two draws: some hundredths of a second
_LEAST, _MOST = 4, 500  # sweeps between two draws


class Draws:
    """Copies of one model, swept when asked for more. The same calls give the same answers."""

    def __init__(self, problem: MapProblem, model: Conditioned, seed: int) -> None:
        self.free = problem.free
        settings = Tempering(rng=seed)
        self.run = Ensembles(settings, model.graph, model, None, clock())
        lanes = settings.n_replicas * settings.n_chains
        self.sweeps = int(np.clip(_UPDATES / (lanes * max(problem.n, 1)), _LEAST, _MOST))
        self.rounds = 0
        self.waiting: list[NDArray[np.int32]] = []

    @staticmethod
    def of(problem: MapProblem, model: Conditioned, seed: int) -> Draws | None:
        """None where tempering declines, or states of auxiliary variables would be missing."""
        if problem.blocks or problem.model.graph is not model.graph or refusal(model):
            return None
        return Draws(problem, model, seed)

    def next(self) -> NDArray[np.int32]:
        """States of the free variables, (n,)."""
        if not self.waiting:
            self.run.sweep(self.sweeps, False)
            if self.rounds < ROUNDS:
                self.run.move_ladder()
            self.rounds += 1
            self.waiting = list(self.run.coldest()[:, self.free])
        return self.waiting.pop()
