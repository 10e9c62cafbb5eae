"""Binary pairs on a device: how a model lies there, and runs over many rows of one structure.

The kernels, and what they promise, are in ``odds.cu``. Here the structure is laid out once
(:class:`Layout`), and numbers are sent (:class:`Run`): as they are, for they are put in order
there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.device.runs import (
    ALONE,
    CONTROL,
    MOST_SLOTS,
    SEEN,
    SLICE,
    CudaProgram,
    Device,
    DeviceRun,
    in_slices,
    starts,
)

#: In logs: how far a variable's weights may add up, with the largest once more, where a block may
#: have a row to itself; alone.cu multiplies up to e^(40 + 23) by e^23, which floats hold.
MILD = 23.0
#: What logs of a message told in floats may hide of a belief; by as many as there are, it must be
#: within the tolerance there.
LOST = 2e-7
#: Threads of such a block at most.
CROWD = 512
#: Slots of a variable, on the average, from which eight threads share one, unless there are so many
#: variables that all threads are busy.
MANY, BUSY = 24, 1 << 16


class SlotWeights(NamedTuple):
    """Weights of pairs on a device."""

    there: Any  # by slot
    reach: float  # see MILD
    flat: int  # all are the same as that of this slot; -1: they differ


class Layout:
    """A structure on a device: places of variables, colour after colour in slices of 32, and slots.

    ``who`` (places,) is the variable of each place or -1, ``where`` (E',) the place of each slot
    that is there, of ``slots`` (E',) of the wiring: those between two variables that are swept.
    """

    def __init__(
        self,
        device: Device,
        ptr: NDArray,
        rev: NDArray,
        order: NDArray[np.int64],
        first: NDArray[np.int64],
    ) -> None:
        n, degree = len(ptr) - 1, np.diff(ptr.astype(np.int64))
        swept = np.zeros(n, dtype=bool)
        swept[order] = True
        owner = np.repeat(np.arange(n, dtype=np.int32), degree.view(np.int64))
        other = owner[rev]
        self.slots = np.flatnonzero(swept[owner] & swept[other])
        here = owner[self.slots]
        count = np.bincount(here, minlength=n)
        rank = np.arange(len(here)) - (np.cumsum(count) - count)[here]
        places = in_slices(order, first, count)
        start, place = starts(places, count), places.place
        self.first, self.who = places.first, places.who
        self.n_places, self.n_slots = len(self.who), int(start[-1])
        self.device, self.n, self.swept = device, n, swept
        self.nothing = device.empty((1,), np.float64)
        self.most = int(count.max(initial=0))  # slots of a variable
        self.degree = float(count[order].mean()) if len(order) else 0.0
        self.at_rest = np.flatnonzero(~swept[other] & swept[owner])  # they tell the same for ever
        self.told = owner[self.at_rest]
        if self.n_slots > MOST_SLOTS:
            return  # the caller refuses
        where = start[place[here] // SLICE] + SLICE * rank + place[here] % SLICE
        full = np.zeros(len(owner), dtype=np.int32)
        full[self.slots] = where
        back = np.zeros(self.n_slots, dtype=np.int32)
        back[where] = full[rev[self.slots]]
        width = np.where(self.who >= 0, count[self.who], -1)
        self.here = here
        self.colours = device.put(self.first.astype(np.int32))
        self.width = device.put(width.astype(np.int32))
        self.start = device.put(start[:-1].astype(np.int64))
        self.rev = device.put(back)
        mate = np.zeros(self.n_slots, dtype=np.int32)
        mate[where] = place[other[self.slots]]
        self.mate = device.put(mate)
        self.full, self.place = full, place
        self.slot = int(where[0]) if len(where) else 0  # one of those that are there
        self.where, self.slots_there = device.put(where), device.put(self.slots)
        self.who_there = device.put(np.maximum(self.who, 0))
        self.place_there = device.put(np.maximum(place, 0))

    def weights(self, numbers: NDArray[np.float64], out: Any) -> SlotWeights:
        """Weights of pairs by slot, (1, E) or (N, E), into an array there."""
        self.to_slots(numbers, out)
        mine = numbers[:, self.slots]
        if not mine.size:
            return SlotWeights(out, 0.0, -1)
        size = np.abs(mine).max(axis=0)
        flat = len(mine) == 1 and bool((mine == mine[0, 0]).all())
        reach = float(np.bincount(self.here, size).max() + size.max())
        return SlotWeights(out, reach, self.slot if flat else -1)

    def by_slot(self, numbers: NDArray, dtype: Any) -> Any:
        """Numbers of slots (N, E) where they lie there."""
        out = self.device.empty((len(numbers), self.n_slots), dtype)
        self.to_slots(numbers, out)
        return out

    def to_slots(self, numbers: NDArray, out: Any) -> None:
        """The same into an array there."""
        sent = self.device.put(numbers.astype(out.dtype))
        if len(self.slots) < numbers.shape[1]:
            sent = self.device.take(sent, self.slots_there)
        self.device.fill(out, sent, self.where)


class Run(DeviceRun):
    """Rows of one structure, their messages, and how far they are."""

    def __init__(
        self, device: Device, layout: Layout, rows: int, own: bool, flooding: bool, dtype: Any,
        weighted: bool = False,
    ) -> None:  # fmt: skip
        name = np.dtype(dtype).name
        parts = 8 if layout.degree >= MANY and layout.n_places < BUSY else 1
        program = CudaProgram("odds", name, weighted=weighted, parts=parts)
        super().__init__(device, program, rows, layout.n_slots, flooding)
        self.layout = layout
        self.prior = device.empty((rows, layout.n_places), dtype)
        self.bel = device.empty((rows, layout.n_places), dtype)
        self.own: Any = device.empty((rows, layout.n_slots), dtype) if own else None
        self.w = SlotWeights(self.own, np.inf, -1)
        self._row_w = np.int64(layout.n_slots if own else 0)  # between the weights of two rows
        self.rho: Any = layout.nothing  # by slot, on the device
        reals = -(-layout.n_slots * np.dtype(dtype).itemsize // 8)
        self.block = CONTROL + SEEN + reals + -(-layout.n_slots // 4)  # doubles of alone.cu
        self.block += -(-layout.n_places // (2 * SLICE)) + -(-layout.n_places // 8)
        self.alone = False
        self.fits = (
            not (flooding or weighted) and layout.most < 128 and 8 * self.block <= device.shared
        )

    def start(
        self,
        prior: NDArray[np.float64],  # (N, V) log-odds
        w: SlotWeights | NDArray[np.float64],  # of all rows; or of every row, (N, E)
        messages: NDArray[np.float64] | None,  # (1, E) or (N, E), their logs; None: they are zero
        tol: float,
        damping: float,
        max_iters: int,
        rho: tuple[NDArray[np.float64], Any] | None = None,  # (E,), and by slot, on the device
    ) -> None:
        """Begin with these numbers."""
        lay, device = self.layout, self.device
        if rho is not None and self.rho is not rho[1]:
            self.rho, self._recorded = rho[1], None
        if isinstance(w, np.ndarray):
            self.w = lay.weights(w, self.own)
        elif self.w is not w:
            self.w, self._recorded = w, None
        if len(lay.at_rest):  # what those that are not swept say
            prior = np.array(np.broadcast_to(prior, (self.rows, prior.shape[1])))
            if messages is not None:
                for row in range(self.rows):
                    said = messages[row % len(messages), lay.at_rest]
                    said = said if rho is None else said * rho[0][lay.at_rest]
                    prior[row] += np.bincount(lay.told, said, minlength=prior.shape[1])
        with np.errstate(over="ignore"):
            sent = prior.astype(self.prior.dtype)
        np.clip(sent, -1e30, 1e30, out=sent)
        device.fill(self.prior, device.take(device.put(sent), lay.who_there))
        if messages is None:
            device.fill(self.even, 0)
        else:
            lay.to_slots(messages, self.even)
        device.fill(self.bel, 0.5)
        self.begin(tol, damping, max_iters)
        # whether every row is a block's, from the first sweep to the last
        fine = self.prior.dtype == np.float64 or LOST * lay.most <= tol
        self.alone = self.fits and fine and self.w.reach <= MILD

    def _launch(self, most: int) -> None:
        if not self.alone:
            super()._launch(most)
            return
        lay = self.layout
        colour = int(np.diff(lay.first).max(initial=1))
        size = min(CROWD, max(-(-colour // (2 * SLICE)) * SLICE, 2 * SLICE))
        self.device.launch_blocks(
            CudaProgram("alone", self.program.real), "whole", self.rows, size, self.block,
            np.int32(min(most, ALONE)), np.int32(len(lay.first) - 1), np.int32(lay.n_places),
            np.int32(lay.n_slots), self._row_w, np.int32(self.w.flat), lay.colours, lay.width,
            lay.start, lay.rev, self.prior, self.w.there, self.even,
            self.odd, self.bel, self.controls, self.trace,
        )  # fmt: skip

    def _over(self, kernel: str, lo: int, hi: int, ends: bool) -> None:
        lay = self.layout
        self.device.launch(
            self.program, kernel, int(hi - lo) * self.program.parts, self.rows, np.int32(lo),
            np.int32(hi), np.int32(ends), np.int32(lay.n_places), np.int64(lay.n_slots),
            self._row_w, lay.width, lay.start, lay.rev, self.rho, self.prior, self.w.there,
            self.even, self.odd, self.bel, self.controls, self.seen, self.tickets, self.trace,
        )  # fmt: skip

    def _sweep(self) -> None:
        lay = self.layout
        ends = [0, lay.n_places] if self.flooding else lay.first
        for lo, hi in pairwise(ends):
            self._over(self._kernel, lo, hi, hi == ends[-1])

    def _confirm(self) -> None:
        lay = self.layout
        self._over("update", 0, lay.n_places, False)
        self.device.launch(
            self.program, "finish", lay.n_places, self.rows, np.int32(lay.n_places),
            np.int64(lay.n_slots), lay.width, lay.start, self.rho, self.prior, self.even, self.odd,
            self.controls, self.seen, self.tickets, self.trace,
        )  # fmt: skip

    def believe(self) -> None:
        """Beliefs, there, from the messages that hold."""
        lay = self.layout
        self.device.launch(
            self.program, "believe", lay.n_places, self.rows, np.int32(lay.n_places),
            np.int64(lay.n_slots), lay.width, lay.start, self.rho, self.prior, self.even, self.odd,
            self.controls, self.bel,
        )  # fmt: skip

    def beliefs(self) -> tuple[NDArray, NDArray[np.bool_]]:
        """p(x = 1), (N, V), of what is swept; which variables are, (V,)."""
        self.believe()
        lay = self.layout
        return self.device.get(self.device.take(self.bel, lay.place_there)), lay.swept

    def log_z(self) -> NDArray[np.float64]:
        """The Bethe log Z of every row, relative to zero states; known ones count from theirs."""
        lay = self.layout
        total = self.device.empty((self.rows, lay.n_places), np.float64)
        self.device.launch(
            self.program, "bethe", lay.n_places, self.rows, np.int32(lay.n_places),
            np.int64(lay.n_slots), self._row_w, lay.width, lay.start, lay.rev, lay.mate, self.prior,
            self.w.there, self.even, self.odd, self.controls, total,
        )  # fmt: skip
        return self.device.get(total.sum(axis=1))

    def messages(self, before: bool = False) -> Any:
        """A copy there of a single row's messages, as ``Layout.slots`` says."""
        return self.device.take(self.side(before), self.layout.where)
