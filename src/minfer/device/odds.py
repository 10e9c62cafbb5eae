"""Binary pairs on a device: how a model lies there, and runs over many rows of one structure.

The kernels, and what they promise, are in ``odds.cu``. Here the structure is laid out once
(:class:`Layout`), numbers are sent (:class:`Run`), and bursts of sweeps are launched; between
bursts the host looks which rows have converged.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

SOURCE = Path(__file__).with_name("odds.cu")
SLICE = 32  # as in the source, like the columns of ``controls``
TOL, DAMPING, PHASE, TRIGGER, LAST, WORST, PASSED, MADE, SIDE, FLOODING, MOST, RESIDUAL = range(12)
SEEN = 3
#: Messages of sweeps that are launched before the host looks, and how many sweeps at most.
BURST, LONGEST = 3e7, 32
#: Slots beyond which indices would not fit.
MOST_SLOTS = 2**31 - 1


class Device(Protocol):
    """What runs need of a device."""

    name: str

    def put(self, array: NDArray) -> Any:
        """A copy of it there."""

    @property
    def room(self) -> int:
        """Bytes that are free."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Room there; zeros."""

    def get(self, there: Any) -> NDArray:
        """A copy of it here, when all that was launched is done."""

    def launch(self, dtype: Any, kernel: str, threads: int, rows: int, *given: Any) -> None:
        """A kernel of ``odds.cu`` for numbers of a type, over so many threads of every row."""


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
        colour = np.repeat(np.arange(len(first) - 1), np.diff(first))
        swept = np.zeros(n, dtype=bool)
        swept[order] = True
        owner = np.repeat(np.arange(n, dtype=np.int32), degree.view(np.int64))
        other = owner[rev]
        self.slots = np.flatnonzero(swept[owner] & swept[other])
        here = owner[self.slots]
        count = np.bincount(here, minlength=n)
        rank = np.arange(len(here)) - (np.cumsum(count) - count)[here]
        padded = -(-np.diff(first) // SLICE) * SLICE
        self.first = np.append(0, np.cumsum(padded))
        for sort in (False, True):  # by degree only where that spares room
            if sort:
                order = order[np.lexsort((-count[order], colour))]
            place = np.full(n, -1)
            place[order] = self.first[colour] + np.arange(len(order)) - first[colour]
            self.who = np.full(self.first[-1], -1)
            self.who[place[order]] = order
            width = np.where(self.who >= 0, count[self.who], -1)
            widest = np.maximum(width, 0).reshape(-1, SLICE).max(axis=1)
            start = np.append(0, np.cumsum(widest * SLICE))
            if start[-1] <= 1.25 * len(here):
                break
        self.n_places, self.n_slots = len(self.who), int(start[-1])
        self.swept = swept
        if self.n_slots > MOST_SLOTS:
            return  # the caller refuses
        self.where = start[place[here] // SLICE] + SLICE * rank + place[here] % SLICE
        full = np.zeros(len(owner), dtype=np.int32)
        full[self.slots] = self.where
        back = np.zeros(self.n_slots, dtype=np.int32)
        back[self.where] = full[rev[self.slots]]
        self.width = device.put(width.astype(np.int32))
        self.start = device.put(start[:-1].astype(np.int64))
        self.rev = device.put(back)
        mate = np.zeros(self.n_slots, dtype=np.int32)
        mate[self.where] = place[other[self.slots]]
        self.mate = device.put(mate)
        self.at_rest = np.flatnonzero(~swept[other] & swept[owner])  # they tell the same for ever
        self.told = owner[self.at_rest]

    def by_place(self, numbers: NDArray, dtype: Any) -> NDArray:
        """Numbers of variables (N, V), by place."""
        return np.where(self.who >= 0, numbers[:, self.who], 0.0).astype(dtype, order="C")

    def by_slot(self, numbers: NDArray, dtype: Any) -> NDArray:
        """Numbers of slots (N, E) where they lie there."""
        out = np.zeros((len(numbers), self.n_slots), dtype=dtype)
        out[:, self.where] = numbers[:, self.slots]
        return out


class Run:
    """Rows of one structure, their messages, and how far they are."""

    def __init__(
        self,
        device: Device,
        layout: Layout,
        prior: NDArray[np.float64],  # (N, V) log-odds
        w: Any,  # by slot, on the device: (1, S) or (N, S)
        messages: NDArray[np.float64],  # (1, E) or (N, E), their logs
        tol: float,
        damping: float,
        flooding: bool,
        max_iters: int,
        dtype: Any,
    ) -> None:
        self.device, self.layout, self.dtype, self.rows = (
            device,
            layout,
            np.dtype(dtype),
            len(prior),
        )
        self.w, self.flooding = w, flooding
        if len(layout.at_rest):  # what those that are not swept say
            prior = np.array(np.broadcast_to(prior, (self.rows, prior.shape[1])))
            for row in range(self.rows):
                said = messages[row % len(messages), layout.at_rest]
                prior[row] += np.bincount(layout.told, said, minlength=prior.shape[1])
        self.prior = device.put(layout.by_place(np.clip(prior, -1e30, 1e30), dtype))
        first = layout.by_slot(messages, dtype)
        if len(first) < self.rows:
            first = np.repeat(first, self.rows, axis=0)
        self.even, self.odd = device.put(first), device.empty(first.shape, dtype)
        self.bel = device.put(np.full((self.rows, layout.n_places), 0.5, dtype=dtype))
        controls = np.zeros((self.rows, 12))
        controls[:, [TOL, DAMPING, TRIGGER, LAST]] = tol, damping, tol, 1e308
        controls[:, [FLOODING, MOST]] = flooding, max_iters
        self.controls = device.put(controls)
        self.state = controls
        self.seen = device.empty((self.rows, SEEN), np.uint64)
        self.burst = int(np.clip(BURST / max(self.rows * layout.n_slots, 1), 1, LONGEST))
        self.trace = device.empty((self.burst, self.rows), np.float64)

    @property
    def seconds(self) -> float:
        """Of a sweep, guessed."""
        return 1e-5 + 1e-11 * self.rows * self.layout.n_slots

    @property
    def passed(self) -> NDArray[np.bool_]:
        return self.state[:, PASSED] != 0.0

    @property
    def made(self) -> NDArray[np.int64]:
        """Sweeps of every row."""
        return self.state[:, MADE].astype(np.int64)

    @property
    def last(self) -> NDArray[np.float64]:
        """The last residual of every row; above the tolerance where it was not confirmed."""
        left = np.abs(self.state[:, RESIDUAL])
        over = np.nextafter(self.state[:, TOL], 1.0)
        return np.where(self.passed, left, np.maximum(left, over))

    @property
    def ended(self) -> bool:
        """No row has anything left to do."""
        return bool((self.passed | (self.state[:, MADE] >= self.state[:, MOST])).all())

    def sweeps(self, n: int, residuals: NDArray[np.float64]) -> int:
        """Up to n sweeps; how many were made. Of many rows the residuals are the largest."""
        done, device = 0, self.device
        while done < n:
            k = min(self.burst, n - done)
            for i in range(k):
                self._sweep(self.trace[i])
            before = self.state[:, MADE].max()
            self.state, told = device.get(self.controls), device.get(self.trace)[:k]
            made = int(self.state[:, MADE].max() - before)
            largest = np.abs(told).argmax(axis=1)
            residuals[done : done + made] = told[np.arange(k), largest][:made]
            done += made
            if self.ended:
                break
        return done

    def _sweep(self, trace: Any) -> None:
        lay, go = self.layout, self.device.launch
        n, slots = np.int32(lay.n_places), np.int64(lay.n_slots)
        ends = [0, lay.n_places] if self.flooding else lay.first
        kernel = "mix" if self.state[0, DAMPING] > 0.0 else "sweep"
        sweeps = [(kernel, lo, hi) for lo, hi in pairwise(ends)]
        for name, lo, hi in [*sweeps, ("update", 0, lay.n_places)]:
            go(
                self.dtype, name, int(hi - lo), self.rows, np.int32(lo), np.int32(hi), n, slots,
                self._own, lay.width, lay.start, lay.rev, self.prior, self.w, self.even, self.odd,
                self.bel, self.controls, self.seen,
            )  # fmt: skip
        go(
            self.dtype, "compare", lay.n_places, self.rows, n, slots, lay.width, lay.start,
            self.prior, self.even, self.odd, self.controls, self.seen,
        )  # fmt: skip
        go(
            self.dtype, "judge", self.rows, 1, np.int32(self.rows), self.controls, self.seen, trace
        )  # fmt: skip

    def beliefs(self, probs: NDArray) -> None:
        """p(x = 1) of what is swept into ``probs`` (N, V)."""
        lay = self.layout
        self.device.launch(
            self.dtype, "believe", lay.n_places, self.rows, np.int32(lay.n_places),
            np.int64(lay.n_slots), lay.width, lay.start, self.prior, self.even, self.odd,
            self.controls, self.bel,
        )  # fmt: skip
        there = lay.who >= 0
        probs[:, lay.who[there]] = self.device.get(self.bel)[:, there]

    def log_z(self) -> NDArray[np.float64]:
        """The Bethe log Z of every row, relative to zero states; known ones count from theirs."""
        lay = self.layout
        total = self.device.empty((self.rows, lay.n_places), np.float64)
        self.device.launch(
            self.dtype, "bethe", lay.n_places, self.rows, np.int32(lay.n_places),
            np.int64(lay.n_slots), self._own, lay.width, lay.start, lay.rev, lay.mate, self.prior,
            self.w, self.even, self.odd, self.controls, total,
        )  # fmt: skip
        return self.device.get(total.sum(axis=1))

    @property
    def _own(self) -> np.int64:
        """Between the weights of two rows; 0 where they share them."""
        return np.int64(self.layout.n_slots if self.w.shape[0] > 1 else 0)

    def messages(self, odds: NDArray[np.float64]) -> None:
        """The messages of a single row into ``odds`` (E,), in the order of the wiring."""
        held = self.odd if self.state[0, SIDE] else self.even
        odds[self.layout.slots] = np.exp(self.device.get(held)[0, self.layout.where].astype(float))
