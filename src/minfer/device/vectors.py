"""Pairs of variables with many states on a device: how a model lies there, and runs over rows.

The kernels are in ``vectors.cu``. Tables of pairs that share one, and labels by distance, are kept
once, tables also turned round; a table of one pair alone lies twice, as each end reads it, with 31
others side by side. The least number of a table must be within what the type holds:
:data:`LOWEST`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.device.runs import MOST_SLOTS, SLICE, CudaProgram, Device, DeviceRun, in_slices, starts

if TYPE_CHECKING:
    from minfer.kernels.messages.wiring import Wiring

#: How low the log of a table's number may be, its largest being 0: sums over states of what falls
#: below the range of the type are e^-20 of the least at most.
LOWEST = {"float32": -60.0, "float64": -600.0}
#: States up to which a thread has a variable to itself.
MOST_STATES = 256
_AT_ONCE = 1 << 16  # slots whose tables are copied at a time
_OFFSET, _SIZE = 2, 3  # columns of a wiring's slots
_TABLE, _FIRST, _CODE = 0, 1, 3  # and of its factors


class VectorLayout:
    """A structure on a device; see ``vectors.cu``. All variables are swept, those of trees too."""

    def __init__(
        self,
        device: Device,
        w: Wiring,
        gowner: NDArray[np.int32],
        order: NDArray[np.int64],
        first: NDArray[np.int64],
    ) -> None:
        card, off = w.card.astype(np.int64), w.off
        owner, size = gowner.astype(np.int64), w.gslot[:, _SIZE].astype(np.int64)
        factor, position = w.gslot[:, 0].astype(np.int64), w.gslot[:, 1].astype(np.int64)
        other = w.fslot[w.fac[factor, _FIRST] + 1 - position]
        degree = np.diff(w.gptr)
        self.states = int(card[order].max(initial=1))
        self.uniform = bool((card[order] == self.states).all())
        places = in_slices(order, first, degree * card, None if self.uniform else card)
        place, who = places.place, places.who
        front, start = starts(places, card), starts(places, degree * card)
        link = starts(places, degree)
        self.first, self.n_places = places.first, len(who)
        self.n_fields, self.n_numbers = int(front[-1]), int(start[-1])
        self.device, self.n_variables = device, len(card)
        if max(self.n_numbers, self.n_fields) > MOST_SLOTS:
            return  # the caller refuses
        rank = np.arange(len(owner)) - w.gptr[owner]
        at, lane = place[owner] // SLICE, place[owner] % SLICE
        base = start[at] + SLICE * rank * card[owner] + lane  # of the states of each slot
        mine = link[at] + SLICE * rank + lane  # what is told of the slot itself
        self._base, self._offset, self._size = base, w.gslot[:, _OFFSET].astype(np.int64), size

        def by_link(numbers: NDArray, n: int = int(link[-1])) -> Any:
            out = np.zeros(n, dtype=np.int32)
            out[mine] = numbers
            return device.put(out)

        self._own_tables(w, factor, position, other, at, rank, lane)
        self.nothing, self._ties = device.empty((1,), np.float64), (mine, int(link[-1]))
        self.form = by_link(self._form)
        self.rev, self.mate = by_link(base[other]), by_link(place[owner[other]])
        there = who >= 0
        self.width = device.put(np.where(there, degree[who], -1).astype(np.int32))
        self.card = device.put(np.where(there, card[who], 1).astype(np.int32))
        self.front, self.start, self.link = (device.put(x[:-1]) for x in (front, start, link))
        seat = np.maximum(place, 0)
        where = np.repeat(front[seat // SLICE] + seat % SLICE, card)
        where += SLICE * (np.arange(len(where)) - np.repeat(off[:-1], card))
        swept = np.repeat(place >= 0, card)
        self.swept = np.flatnonzero(swept)  # of the numbers of all variables
        self.field_at = device.put(where[swept])

    def _own_tables(
        self,
        w: Wiring,
        factor: NDArray[np.int64],
        position: NDArray[np.int64],
        other: NDArray[np.int64],
        at: NDArray[np.int64],
        rank: NDArray[np.int64],
        lane: NDArray[np.int64],
    ) -> None:
        """Where each slot's psi lies: its form, and what :meth:`tables` copies."""
        toff, code = w.fac[:, _TABLE], w.fac[:, _CODE]
        unique, which, count = np.unique(toff, return_inverse=True, return_counts=True)
        shared = (count[which] > 1) | (code > 0)
        kinds, one = np.unique(which[shared], return_index=True)
        rows = np.flatnonzero(shared)[one]  # a factor of each shared psi
        number = np.full(len(unique), -1)
        number[kinds] = np.arange(len(kinds))
        size = self._size
        slot = np.empty((len(toff), 2), np.int64)
        slot[factor, position] = np.arange(len(factor))
        n, m = size[slot[rows, 0]], size[slot[rows, 1]]
        dense = code[rows] == 0
        length = np.where(dense, n * m, 1 + w.fac[rows, _CODE + 1])
        begin = np.cumsum(np.where(dense, 2, 1) * length) - np.where(dense, 2, 1) * length
        forms = np.zeros((2 * len(rows), 3), np.int64)  # one for each end
        forms[:, 0] = np.repeat(code[rows], 2)
        forms[::2, 1], forms[1::2, 1] = begin, begin + np.where(dense, length, 0)
        forms[:, 2] = np.repeat(w.fac[rows, _CODE + 1], 2)
        self._shared = list(
            zip(toff[rows].tolist(), length.tolist(), n.tolist(), m.tolist(), dense.tolist())
        )
        self.n_shared = int((np.where(dense, 2, 1) * length).sum())
        self.forms = self.device.put(forms if len(forms) else np.zeros((1, 3), np.int64))
        self._form = (2 * number[which[factor]] + position).astype(np.int64)
        own = np.flatnonzero(~shared[factor])
        self._own, self._own_at = own, np.zeros(0, np.int64)
        self._own_from = toff[factor[own]]
        self._own_shape = np.stack([size[own], size[other[own]]], axis=1)
        self._own_turned = position[own] == 1
        self.n_own = 0
        if len(own):  # 32 side by side: room for the largest of those of one rank in a slice
            most = int(rank.max()) + 1
            keys, key = np.unique(at[own] * most + rank[own], return_inverse=True)
            cells = np.zeros(len(keys), np.int64)
            np.maximum.at(cells, key, self._own_shape.prod(axis=1))
            first = -(-self.n_shared // SLICE) + np.cumsum(cells) - cells
            self._form[own] = -1 - first[key]
            self._own_at = SLICE * first[key] + lane[own]
            self.n_own = int(SLICE * cells.sum())

    @property
    def n_table(self) -> int:
        """Numbers of all tables there."""
        return -(-self.n_shared // SLICE) * SLICE + self.n_own

    def tables(self, tab: NDArray[np.float64], dtype: Any) -> Any:
        """All tables there, from the linear ones of the wiring."""
        out, done = np.zeros(max(self.n_table, 1), dtype), 0
        for begin, length, n, m, dense in self._shared:
            piece = tab[begin : begin + length]
            out[done : done + length] = piece
            done += length
            if dense:
                out[done : done + length] = piece.reshape(n, m).T.ravel()
                done += length
        for k in range(0, len(self._own), _AT_ONCE):
            part = slice(k, k + _AT_ONCE)
            shape, turned = self._own_shape[part], self._own_turned[part]
            for n, m, turn in {(int(a), int(b), bool(t)) for (a, b), t in zip(shape, turned)}:
                mine = np.flatnonzero((shape == (n, m)).all(axis=1) & (turned == turn)) + k
                psi = tab[self._own_from[mine, None] + np.arange(n * m)]
                if turn:
                    psi = psi.reshape(-1, m, n).swapaxes(1, 2).reshape(-1, n * m)
                out[self._own_at[mine, None] + SLICE * np.arange(n * m)] = psi
        return self.device.put(out)

    def ties(self, numbers: NDArray[np.float64]) -> Any:
        """Numbers of slots (G,), there."""
        mine, n = self._ties
        out = np.zeros(n)
        out[mine] = numbers
        return self.device.put(out)

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of every number of the wiring's messages: where it is among them, and there."""
        within = np.arange(int(self._size.sum())) - np.repeat(
            np.cumsum(self._size) - self._size, self._size
        )
        offset, base = np.repeat(self._offset, self._size), np.repeat(self._base, self._size)
        return offset + within, base + SLICE * within


class VectorRun(DeviceRun):
    """Rows of one structure of pairs of many states."""

    def __init__(
        self, device: Device, layout: VectorLayout, rows: int, flooding: bool, dtype: Any,
        weighted: bool = False,
    ) -> None:  # fmt: skip
        name = np.dtype(dtype).name
        program = CudaProgram("vectors", name, layout.states, layout.uniform, weighted)
        super().__init__(device, program, rows, layout.n_numbers, flooding)
        self.layout, self.tab, self.rho = layout, None, layout.nothing
        self.prior = device.empty((rows, layout.n_fields), dtype)
        self.bel = device.empty((rows, layout.n_fields), dtype)

    def start(
        self,
        field: NDArray[np.float64],  # (N, sum S) logs, the largest of each variable 0
        tab: Any,  # on the device
        messages: NDArray[np.float64] | None,  # logs, in the wiring's order; None: all alike
        tol: float,
        damping: float,
        max_iters: int,
        rho: Any = None,  # of slots, on the device
    ) -> None:
        """Begin with these numbers."""
        lay, device = self.layout, self.device
        rho = lay.nothing if rho is None else rho
        if self.tab is not tab or self.rho is not rho:
            self.tab, self.rho, self._recorded = tab, rho, None
        if len(lay.swept) < field.shape[1]:
            field = field[:, lay.swept]
        with np.errstate(over="ignore"):
            sent = field.astype(self.prior.dtype)
        np.maximum(sent, -1e30, out=sent)
        device.fill(self.prior, device.put(sent), lay.field_at)
        device.fill(self.even, 0)
        if messages is not None:
            here, there = lay.entries()
            numbers = device.put(messages[None, here].astype(self.prior.dtype))
            device.fill(self.even, numbers, device.put(there))
        device.fill(self.bel, 1 / lay.states)
        self.begin(tol, damping, max_iters)

    @property
    def _model(self) -> tuple[Any, ...]:
        lay = self.layout
        return (
            np.int32(lay.n_places), np.int64(lay.n_fields), np.int64(lay.n_numbers), lay.width,
            lay.card, lay.front, lay.start, lay.link, lay.rev, lay.mate, lay.form, lay.forms,
            self.rho, self.tab, self.prior,
        )  # fmt: skip

    def _over(self, kernel: str, lo: int, hi: int, ends: bool) -> None:
        self.device.launch(
            self.program, kernel, int(hi - lo), self.rows, np.int32(lo), np.int32(hi),
            np.int32(ends), *self._model, self.even, self.odd, self.bel, self.controls, self.seen,
            self.tickets, self.trace,
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
            self.program, "finish", lay.n_places, self.rows, *self._model, self.even, self.odd,
            self.controls, self.seen, self.tickets, self.trace,
        )  # fmt: skip

    def beliefs(self) -> tuple[NDArray, NDArray[np.int64]]:
        """Probabilities (N, E) of what is swept, and where these are among all numbers (E,)."""
        lay = self.layout
        self.device.launch(
            self.program, "believe", lay.n_places, self.rows, *self._model, self.even, self.odd,
            self.controls, self.bel,
        )  # fmt: skip
        return self.device.get(self.device.take(self.bel, lay.field_at)), lay.swept

    def log_z(self) -> NDArray[np.float64]:
        """The Bethe log Z of every row of fields and tables as they were sent."""
        lay = self.layout
        total = self.device.empty((self.rows, lay.n_places), np.float64)
        self.device.launch(
            self.program, "bethe", lay.n_places, self.rows, *self._model, self.even, self.odd,
            self.controls, total,
        )  # fmt: skip
        return self.device.get(total.sum(axis=1))

    def messages(self, before: bool = False) -> Any:
        """A copy there of a single row's messages."""
        return self.side(before).copy()
