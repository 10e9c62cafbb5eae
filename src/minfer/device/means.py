"""Naive mean field on binary pairs on a device; the kernels are in ``means.cu``."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.device.odds import Layout, SlotWeights
from minfer.device.runs import CudaProgram, Device, DeviceRun

#: Nothing is damped, but the judge is not to guess how far the next sweep goes.
_NO_GUESS = 1e-300


class MeansRun(DeviceRun):
    """A model's q, and how far it is. A sweep is one in each direction."""

    def __init__(self, device: Device, layout: Layout, dtype: Any) -> None:
        program = CudaProgram("means", np.dtype(dtype).name)
        super().__init__(device, program, 1, 1, False)
        self.layout, self.numbers = layout, layout.n_slots
        self.prior = device.empty((1, layout.n_places), dtype)
        self.bel = device.empty((1, layout.n_places), dtype)
        self.w: Any = None

    def start(
        self,
        prior: NDArray[np.float64],  # (1, V) log-odds
        w: SlotWeights,
        q: NDArray[np.float64],  # (1, V) of state 1
        tol: float,
        max_iters: int,
    ) -> None:
        """Begin with these numbers."""
        lay, device = self.layout, self.device
        if self.w is not w.there:
            self.w, self._recorded = w.there, None
        for there, numbers in ((self.prior, prior), (self.bel, q)):
            sent = device.put(np.clip(numbers, -1e30, 1e30).astype(there.dtype))
            device.fill(there, device.take(sent, lay.who_there))
        self.begin(tol, _NO_GUESS, max_iters)

    def _slots(self, n: int) -> None:
        lay, go = self.layout, self.device.launch
        model = (
            np.int32(lay.n_places), np.int64(lay.n_slots), lay.width, lay.start, lay.mate,
            self.prior, self.w, self.bel, self.controls, self.seen,
        )  # fmt: skip
        colours = list(pairwise(lay.first))
        for _ in range(n):
            for lo, hi in [*colours, *colours[-2::-1]]:
                go(self.program, "sweep", int(hi - lo), 1, np.int32(lo), np.int32(hi), *model)
            go(self.program, "update", lay.n_places, 1, *model)
            last = self.controls, self.seen, self.tickets, self.trace
            go(self.program, "finish", 1, 1, *last)

    def means(self) -> tuple[NDArray, NDArray[np.bool_]]:
        """q(x = 1), (V,), of what is swept; which variables are, (V,)."""
        lay = self.layout
        return self.device.get(self.device.take(self.bel, lay.place_there))[0], lay.swept
