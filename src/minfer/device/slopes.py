"""Beliefs of binary pairs on a device, and gradients through them; see ``slopes.cu``."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.device.odds import Layout, Run
from minfer.device.runs import SEEN, CudaProgram

_WINDOW = 8
_DONE, _CODE, _GOAL, _KEPT, _LIMIT = range(_WINDOW, _WINDOW + 5)  # columns, as in the source
_RUNNING = 1
#: Sweeps that are launched before the host looks.
_BURST = 8


class PairEnds(NamedTuple):
    """Where the two slots of each pair lie on a device, and whose they are."""

    slots: Any  # (2 P,) int32
    homes: Any  # (2 P,) int32
    n_pairs: int  # P

    @classmethod
    def of(cls, layout: Layout, slot: NDArray, scope: NDArray) -> PairEnds:
        there = layout.device.put(layout.full[slot.ravel()].astype(np.int32))
        homes = layout.device.put(layout.place[scope.ravel()].astype(np.int32))
        return cls(there, homes, len(slot))


class Gradients(NamedTuple):
    """Of rows: derivatives by log-odds (N, V), by log-tables (N, P, 4) or none, how many sweeps it
    took, and how they ended (codes of :mod:`minfer.kernels.messages.adjoint`)."""

    S: NDArray[np.float64]
    tables: NDArray[np.float64] | None
    sweeps: NDArray[np.int64]
    codes: NDArray[np.int64]


class JointsThere:
    """Beliefs of the pairs of N rows, which lie on a device, some rows after the other."""

    def __init__(self, layout: Layout, ends: PairEnds) -> None:
        self.layout, self.ends = layout, ends
        self.program = CudaProgram("slopes", "float64")
        self.parts: list[tuple[int, Any]] = []  # rows, and joints (rows, 4 P) there

    def add(self, run: Run) -> None:
        """The beliefs that a run has come to."""
        lay, device, (slots, homes, n) = self.layout, self.layout.device, self.ends
        program = CudaProgram("slopes", run.program.real)
        odds = device.empty((run.rows, lay.n_places), np.float64)
        joints = device.empty((run.rows, 4 * n), np.float64)
        sides = run.even, run.odd, run.controls
        places, wide = np.int32(lay.n_places), np.int64(lay.n_slots)
        device.launch(
            program, "lean", lay.n_places, run.rows, places, wide, lay.width, lay.start, run.prior,
            *sides, odds,
        )  # fmt: skip
        device.launch(
            program, "beliefs", n, run.rows, np.int32(n), places, wide, run._row_w, slots, homes,
            run.w.there, *sides, odds, joints,
        )  # fmt: skip
        self.parts.append((run.rows, joints))

    def get(self) -> NDArray[np.float64]:
        """All of them, (N, P, 4)."""
        parts = [self.layout.device.get(joints) for _, joints in self.parts]
        return np.concatenate(parts).reshape(-1, self.ends.n_pairs, 4)

    def __getitem__(self, row: int) -> NDArray[np.float64]:
        for n, joints in self.parts:
            if row < n:
                return self.layout.device.get(joints[row : row + 1]).reshape(-1, 4)
            row -= n
        raise IndexError(row)

    def adjoint(
        self, g: NDArray[np.float64], tol: float, damping: float, max_iters: int, tables: bool
    ) -> Gradients:
        """From derivatives (N, V) of a loss by log-odds of beliefs."""
        found, done = [], 0
        for n, joints in self.parts:
            part = g[done : done + n]
            found.append(self._some(part, joints, tol, damping, max_iters, tables))
            done += n
        columns = zip(*found, strict=True)
        return Gradients(*(None if c[0] is None else np.concatenate(c) for c in columns))  # type: ignore[arg-type]

    def _some(
        self, g: NDArray, joints: Any, tol: float, damping: float, max_iters: int, tables: bool
    ) -> Gradients:
        lay, device, (slots, homes, n) = self.layout, self.layout.device, self.ends
        rows, go, shape = len(g), device.launch, (len(g), lay.n_slots)
        places, wide = np.int32(lay.n_places), np.int64(lay.n_slots)
        away, heard = device.empty(shape, np.float64), device.empty(shape, np.float64)
        S = device.empty((rows, lay.n_places), np.float64)
        there = device.take(device.put(g), lay.who_there)
        begin = np.full((rows, _WINDOW + 5), np.inf)
        begin[:, [_DONE, _CODE]] = 0, _RUNNING
        begin[:, [_GOAL, _KEPT, _LIMIT]] = tol, damping, max_iters
        trace, seen = device.put(begin), device.empty((rows, SEEN), np.uint64)
        structure = lay.width, lay.start, lay.rev
        go(self.program, "opened", n, rows, np.int32(n), wide, slots, joints, away)
        go(
            self.program,
            "first",
            lay.n_places,
            rows,
            places,
            wide,
            *structure,
            there,
            away,
            heard,
            S,
        )
        left = max_iters
        while left > 0:
            for _ in range(min(_BURST, left)):
                for lo, hi in pairwise(lay.first):
                    go(
                        self.program, "pull", int(hi - lo), rows, np.int32(lo), np.int32(hi),
                        places, wide, *structure, there, away, heard, S, trace, seen,
                    )  # fmt: skip
                go(self.program, "verdict", rows, 1, np.int32(rows), trace, seen)
            left -= _BURST
            told = device.get(trace)
            if not (told[:, _CODE] == _RUNNING).any():
                break
        by_table = None
        if tables:
            out = device.empty((rows, 4 * n), np.float64)
            go(
                self.program, "tables", n, rows, np.int32(n), places, wide, slots, homes, joints,
                heard, S, out,
            )  # fmt: skip
            by_table = device.get(out).reshape(rows, n, 4)
        codes, sweeps = told[:, _CODE].astype(np.int64), told[:, _DONE].astype(np.int64)
        found = device.get(device.take(S, lay.place_there))
        return Gradients(np.where(lay.swept, found, g), by_table, sweeps, codes)
