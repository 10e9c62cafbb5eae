"""Runs on a device, whatever their messages are: how programs are named, places of variables, and
bursts of sweeps over many rows of one structure.

Sources are put together here: ``judge.cu``, which all share, and the one of a kind of model. The
numbers of a run stay on the device; it can begin again with others (:meth:`DeviceRun.begin`), so
that what is launched, arguments and all, can be recorded once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
SLICE = 32  # as in the sources, like the columns of ``controls``
TOL, DAMPING, PHASE, TRIGGER, LAST, WORST, PASSED, MADE, SIDE, FLOODING, MOST, RESIDUAL = range(12)
ROUND, CONTROL = 12, 13
SEEN = 4
#: Messages of sweeps that are launched before the host looks, and how many sweeps, from and to.
BURST, SHORTEST, LONGEST = 3e7, 4, 16
#: Sweeps, the last of which may be a confirming update, which is launched apart.
PAUSE = 8
#: Sweeps of a launch in which a block makes all of a row.
ALONE = 64
#: Numbers beyond which indices would not fit.
MOST_SLOTS = 2**31 - 1


class CudaProgram(NamedTuple):
    """A source with what it is compiled for."""

    source: str  # its name
    real: str  # "float32" or "float64"
    states: int = 0  # of a variable, at most; models of pairs of many states
    uniform: bool = False  # all have so many
    weighted: bool = False  # messages are tree-reweighted
    parts: int = 1  # threads that share a variable

    @property
    def text(self) -> str:
        real = {"float32": "float", "float64": "double"}[self.real]
        told = {"REAL": real, "STATES": self.states, "UNIFORM": int(self.uniform),
                "WEIGHTED": int(self.weighted), "PARTS": self.parts}  # fmt: skip
        defined = "".join(f"#define {name} {value}\n" for name, value in told.items())
        return f"{defined}{_read('judge')}\n{_read(self.source)}"

    @property
    def kernels(self) -> list[str]:
        """Their names."""
        said = r"^(?:KERNEL(?: BOUNDED\(.*\))? void |SWEEP\()(?!name)(\w+)"
        return re.findall(said, self.text, re.MULTILINE)


@cache
def _read(name: str) -> str:
    return (HERE / f"{name}.cu").read_text("utf-8")


class Device(Protocol):
    """What runs need of a device. Arrays there are assigned to by slices, like those of numpy."""

    name: str

    def put(self, array: NDArray) -> Any:
        """A copy of it there."""

    @property
    def room(self) -> int:
        """Bytes that are free."""

    @property
    def shared(self) -> int:
        """Bytes that a block may have to itself."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Room there; zeros."""

    def get(self, there: Any) -> NDArray:
        """A copy of it here, when all that was launched is done."""

    def take(self, there: Any, columns: Any) -> Any:
        """Some columns of an array there, as a new one."""

    def fill(self, there: Any, numbers: Any, columns: Any = None) -> None:
        """Numbers, of an array there or here or a single one, into (some columns of) an array."""

    def launch(
        self, program: CudaProgram, kernel: str, threads: int, rows: int, *given: Any
    ) -> None:
        """A kernel of a program, over so many threads of every row."""

    def launch_blocks(
        self, program: CudaProgram, kernel: str, blocks: int, size: int, per: int, *given: Any
    ) -> None:
        """A kernel whose blocks, of ``size`` threads that meet, have ``per`` doubles of room each:
        its first argument is 0 where that is shared memory, else ``per``; its last the room."""

    def borrow(self, tensor: Any) -> Any:
        """A tensor of torch that is there, row after row, as an array of the same memory."""

    def beside(self, tensor: Any) -> AbstractContextManager[None]:
        """Launches within follow what torch has launched on the tensor's card, and it them."""

    def recorded(self, program: CudaProgram, work: Callable[[], None]) -> Callable[[], None]:
        """What launches the same as ``work`` does, with the same arguments, at less cost."""


class DevicePlaces(NamedTuple):
    """Variables colour after colour in slices of 32 places, each colour from a new slice on."""

    first: NDArray[np.int64]  # (C+1,) places where a colour begins
    place: NDArray[np.int64]  # (V,) of each variable, or -1
    who: NDArray[np.int64]  # (places,) the variable, or -1


def in_slices(
    order: NDArray[np.int64],
    first: NDArray[np.int64],
    load: NDArray[np.int64],
    card: NDArray | None = None,
) -> DevicePlaces:
    """Places for variables that need room for ``load`` (V,) numbers each, 32 times the most of
    its slice; sorted by ``card`` if given, and by load only where that spares much."""
    n = len(load)
    colour = np.repeat(np.arange(len(first) - 1), np.diff(first))
    ends = np.append(0, np.cumsum(-(-np.diff(first) // SLICE) * SLICE))
    found = None
    if card is not None:
        order = order[np.lexsort((card[order], colour))]
    for sort in (False, True):
        if sort:
            order = order[np.lexsort((-load[order], colour))]
        place, who = np.full(n, -1), np.full(ends[-1], -1)
        place[order] = ends[colour] + np.arange(len(order)) - first[colour]
        who[place[order]] = order
        found = DevicePlaces(ends, place, who)
        if starts(found, load)[-1] <= 1.25 * load[order].sum():
            break
    assert found is not None
    return found


def starts(places: DevicePlaces, load: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the numbers of each slice begin, and where the last ones end."""
    mine = np.where(places.who >= 0, load[places.who], 0)
    return np.append(0, np.cumsum(mine.reshape(-1, SLICE).max(axis=1) * SLICE))


class DeviceRun:
    """Rows of one structure, and how far they are; what a sweep launches is for kinds to say."""

    def __init__(
        self, device: Device, program: CudaProgram, rows: int, numbers: int, flooding: bool
    ) -> None:
        self.device, self.program, self.rows = device, program, rows
        self.numbers, self.flooding = numbers, flooding
        dtype = np.dtype(program.real)
        self.even = device.empty((rows, numbers), dtype)
        self.odd = device.empty((rows, numbers), dtype)
        self.burst = int(np.clip(BURST / max(rows * numbers, 1), SHORTEST, LONGEST))
        self.seen = device.empty((rows, SEEN), np.uint64)
        self.tickets = device.empty((rows,), np.int32)
        # controls and the last residuals of a single row, which are read together
        self.kept = ALONE if rows == 1 else 1
        self.told = device.empty((rows * (CONTROL + self.kept),), np.float64)
        self.controls = self.told[: CONTROL * rows].reshape(rows, CONTROL)
        self.trace = self.told[CONTROL * rows :]
        self.state = np.zeros((rows, CONTROL))
        self._recorded: tuple[bool, Callable[[], None]] | None = None

    def begin(self, tol: float, damping: float, max_iters: int) -> None:
        """With the numbers that are there now, and messages in ``even``."""
        controls = np.zeros((self.rows, CONTROL))
        controls[:, [TOL, DAMPING, TRIGGER, LAST]] = tol, damping, tol, 1e308
        controls[:, [FLOODING, MOST, ROUND]] = self.flooding, max_iters, self.kept
        self.device.fill(self.controls, controls)
        self.device.fill(self.seen, 0)
        self.state = controls

    @property
    def seconds(self) -> float:
        """Of a sweep, guessed."""
        return 1e-5 + 1e-11 * self.rows * self.numbers

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

    def side(self, before: bool = False) -> Any:
        """The messages that hold, of a single row; or those that the last update began with."""
        return self.odd if (self.state[0, SIDE] != 0.0) != before else self.even

    def sweeps(self, n: int, residuals: NDArray[np.float64]) -> int:
        """Up to n sweeps of every row that goes on; how many were made. Only of a single row are
        there all residuals."""
        done = 0
        while done < n:
            self._launch(n - done)
            before, told = self.made, self.device.get(self.told)
            self.state = told[: CONTROL * self.rows].reshape(self.rows, CONTROL)
            on = ~self.passed & (self.state[:, MADE] < self.state[:, MOST])
            moved = self.made - before
            more = int(moved[on].min() if on.any() else moved.max())
            which = (int(before.max()) + np.arange(more)) % self.kept
            residuals[done : done + more] = told[CONTROL * self.rows :][which]
            done += more
            if not on.any():
                break
        return done

    def _launch(self, most: int) -> None:
        """Some sweeps, at most so many."""
        if most < self.burst:
            self._slots(most)
        else:
            self._burst()

    def _burst(self) -> None:
        """As many as a burst has, recorded; anew where they are damped or not."""
        damped = bool(self.state[0, DAMPING] > 0.0)
        if self._recorded is None or self._recorded[0] != damped:
            work = partial(self._slots, self.burst)
            self._recorded = damped, self.device.recorded(self.program, work)
        self._recorded[1]()

    def _slots(self, n: int) -> None:
        """Sweeps, up to n. A row that is to be confirmed waits for the next update."""
        if n == 1 and not self.state[:, PHASE].any():
            self._sweep()
            return
        groups = -(-n // PAUSE)
        for k in range(groups):
            for _ in range((n + k) // groups - 1):
                self._sweep()
            self._confirm()

    def _sweep(self) -> None:
        raise NotImplementedError

    def _confirm(self) -> None:
        raise NotImplementedError

    @property
    def _kernel(self) -> str:
        return "mix" if self.state[0, DAMPING] > 0.0 else "sweep"
