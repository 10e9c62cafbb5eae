"""What a circuit says under given likelihoods: marginals, rows, draws, derivatives.

A circuit speaks of the states of a simplified model, its *leaves*; a leaf stands for one state of a
variable or for several whose proportions are known. :class:`Weighed` is a circuit under one set of
log-likelihoods of all states: the shares of its edges are probabilities, and everything else is
read off them (:mod:`minfer.kernels.circuits.passes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.parallel import in_threads
from minfer.engine.circuits.arrays import grown
from minfer.engine.layout import normalised, ranges
from minfer.errors import NOTHING_POSSIBLE, ContradictionError

if TYPE_CHECKING:
    from minfer.engine.circuits.arrays import CircuitArrays
    from minfer.kernels.circuits.passes import CircuitFrame

Floats = NDArray[np.float64]
_NODES = 1 << 18  # whose edges' leaves are looked up together
_BLOCK = 64  # rows whose likelihoods are written out together


@dataclass(frozen=True, eq=False)
class Leaves:
    """Which leaf each state goes into. The last of ``n + 1`` is of auxiliary variables."""

    offsets: NDArray[np.int64]  # (V+1,) of states
    first: NDArray[np.int64]  # (V+1,) of leaves
    leaf: NDArray[np.int32]  # (sum S,), -1: excluded
    share: Floats  # (sum S,) p(state | leaf)

    @property
    def n(self) -> int:
        return int(self.first[-1])

    @cached_property
    def kept(self) -> NDArray[np.int64]:
        """The states that are in a leaf."""
        return np.flatnonzero(self.leaf >= 0)

    @cached_property
    def each(self) -> NDArray[np.int64]:
        """How many leaves each variable's states go into, (V,)."""
        used = np.unique(self.leaf[self.kept])
        owner = np.searchsorted(self.first, used, side="right") - 1
        return np.bincount(owner, minlength=len(self.offsets) - 1)

    @cached_property
    def merged(self) -> bool:
        """Whether any leaf stands for several states."""
        return len(self.kept) != len(np.unique(self.leaf[self.kept]))

    def sums(self, values: Floats) -> Floats:
        """Of values of states (..., sum S): sums over those of each leaf, and 1 of the last."""
        out = np.zeros((*values.shape[:-1], self.n + 1))
        if self.merged:
            np.add.at(out.T, self.leaf[self.kept], values[..., self.kept].T)
        else:
            out[..., self.leaf[self.kept]] = values[..., self.kept]
        out[..., -1] = 1.0
        return out

    def logs(self, values: Floats) -> Floats:
        """Logs of sums of ``share`` times the exponentials of values of states, (n + 1,)."""
        out = np.full(self.n + 1, -np.inf)
        if self.merged:
            with np.errstate(divide="ignore"):
                weighted = np.log(self.share[self.kept]) + values[self.kept]
            np.logaddexp.at(out, self.leaf[self.kept], weighted)
        else:
            out[self.leaf[self.kept]] = values[self.kept]
        out[-1] = 0.0
        return out

    @cached_property
    def members(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The states of each leaf: where they begin (n + 2,), and they, by numbers among all; the
        last leaf has one that is none of them."""
        order = self.kept[np.argsort(self.leaf[self.kept], kind="stable")]
        begin = np.searchsorted(self.leaf[order], np.arange(self.n + 1))
        return np.append(begin, len(order) + 1), np.append(order, -1)


class CircuitRows(NamedTuple):
    """Answers to rows."""

    probs: Floats  # (n, sum S)
    log_p: Floats  # (n,) log of what the likelihoods leave of the probability, at most 0
    unsafe: NDArray[np.bool_]  # (n,) lost in plain numbers


@dataclass(frozen=True, eq=False)
class Wires:
    """A circuit, ready for passes."""

    frame: CircuitFrame
    weight: Floats  # (E,)
    roots: NDArray[np.int32]
    log_scale: float
    leaves: Leaves

    @classmethod
    def of(cls, arrays: CircuitArrays, leaves: Leaves) -> tuple[Wires, CircuitArrays]:
        """Variables that no node is about get one, a root: they are independent of all others. The
        arrays are used up, and come back as views."""
        from minfer.kernels.circuits.passes import CircuitFrame

        n, n_nodes, n_edges = len(leaves.offsets) - 1, len(arrays.variable), len(arrays.state)
        there = np.zeros(max(n, int(arrays.variable.max(initial=-1)) + 1), dtype=bool)
        there[arrays.variable] = True
        absent = np.flatnonzero(~there[:n])
        sizes = np.diff(leaves.first)[absent]
        more = int(sizes.sum())
        leaf = np.full(n_edges + more, leaves.n, dtype=np.int32)
        for lo in range(0, n_nodes, _NODES):
            hi = min(lo + _NODES, n_nodes)
            begin, end = int(arrays.eptr[lo]), int(arrays.eptr[hi])
            owner = np.repeat(arrays.variable[lo:hi], np.diff(arrays.eptr[lo : hi + 1]))
            own = owner < n
            leaf[begin:end][own] = leaves.first[owner[own]] + arrays.state[begin:end][own]
        leaf[n_edges:] = ranges(leaves.first[absent], sizes)
        variable, eptr, cptr, weight = arrays.variable, arrays.eptr, arrays.cptr, arrays.weight
        if len(absent):
            variable = grown(variable, n_nodes + len(absent))
            variable[n_nodes:] = absent
            eptr = grown(eptr, len(variable) + 1)
            eptr[n_nodes + 1 :] = n_edges + np.cumsum(sizes)
            cptr, weight = grown(cptr, n_edges + more + 1), grown(weight, n_edges + more)
            cptr[n_edges + 1 :] = cptr[n_edges]
            weight[n_edges:] = 1.0
        frame = CircuitFrame(variable, eptr, leaf, cptr, arrays.child)
        roots = np.append(arrays.roots, n_nodes + np.arange(len(absent)))
        own_arrays = arrays._replace(
            variable=variable[:n_nodes], eptr=eptr[: n_nodes + 1], cptr=cptr[: n_edges + 1],
            weight=weight[:n_edges],
        )  # fmt: skip
        made = cls(frame, weight, roots.astype(np.int32), float(arrays.log_scale), leaves)
        return made, own_arrays

    @cached_property
    def width(self) -> int:
        """Variables, auxiliary ones included, by their numbers."""
        return int(self.frame.variable.max(initial=-1)) + 1

    @property
    def n_bytes(self) -> int:
        return sum(a.nbytes for a in (*self.frame, self.weight, self.roots))


class Weighed:
    """Wires under log-likelihoods (sum S,) of states; a ContradictionError if nothing is left."""

    def __init__(self, wires: Wires, logs: Floats) -> None:
        from minfer.kernels.arithmetic.ranged import LOG_STEP, exponentials
        from minfer.kernels.circuits.passes import climb

        self.wires, self.logs, leaves = wires, logs, wires.leaves
        of_leaves = leaves.logs(logs)
        likely, power = np.empty(leaves.n + 1), np.empty(leaves.n + 1, dtype=np.int64)
        exponentials(of_leaves, likely, power)
        n = len(wires.frame.variable)
        value, exponent = np.empty(n), np.empty(n, dtype=np.int64)
        self.share = np.empty(len(wires.weight))
        climb(wires.frame, wires.weight, likely, power, value, exponent, self.share)
        tops = value[wires.roots]
        with np.errstate(divide="ignore"):
            log_z = wires.log_scale + float(np.log(tops).sum())
        log_z += LOG_STEP * float(exponent[wires.roots].sum())
        if log_z == -math.inf:
            raise ContradictionError(NOTHING_POSSIBLE)
        self.log_z = log_z
        #: p(state | its leaf), (sum S,).
        self.inner = leaves.share.copy()
        if leaves.merged:
            kept = leaves.kept
            with np.errstate(invalid="ignore"):
                moved = logs[kept] - of_leaves[leaves.leaf[kept]]
                self.inner[kept] *= np.where(logs[kept] == -np.inf, 0.0, np.exp(moved))

    # ------------------------------------------------------------ one pass

    def _spread(self, of_leaves: Floats, inner: Floats) -> Floats:
        """Probabilities of states from those of leaves."""
        leaf = self.wires.leaves.leaf
        return np.where(leaf >= 0, of_leaves[..., leaf] * inner, 0.0)

    @cached_property
    def probs(self) -> Floats:
        """Marginals of all states, (sum S,)."""
        from minfer.kernels.circuits.passes import flow

        down, out = self._down(), np.zeros(self.wires.leaves.n + 1)
        flow(self.wires.frame, self.share, down, out)
        return normalised(self._spread(out, self.inner), self.wires.leaves.offsets)

    def _down(self) -> Floats:
        down = np.zeros(len(self.wires.frame.variable))
        down[self.wires.roots] = 1.0
        return down

    def moved(self, direction: Floats) -> Floats:
        """How the marginals move when log-likelihoods move along a direction (sum S,)."""
        from minfer.kernels.circuits.passes import moved_flow

        wires, leaves = self.wires, self.wires.leaves
        along = leaves.sums(np.where(self.inner > 0.0, direction * self.inner, 0.0))
        along[-1] = 0.0
        out, n = np.zeros(leaves.n + 1), len(wires.frame.variable)
        mean, moved = np.empty(n), np.zeros(n)
        moved_flow(wires.frame, self.share, along, mean, self._down(), moved, out)
        within = np.where(leaves.leaf >= 0, direction - along[leaves.leaf], 0.0)
        return self._spread(out, self.inner) + self.probs * within

    # ------------------------------------------------------------ rows

    def rows(self, like: Floats, workers: int = 1) -> CircuitRows:
        """Rows of likelihoods (n, sum S) of at most 1, on top of those at hand."""
        n = len(like)
        probs, log_p = np.empty(like.shape), np.empty(n)
        unsafe = np.zeros(n, dtype=bool)

        def solve(first: int) -> None:
            lanes = EightRows(self)
            for lo in range(first, min(first + _BLOCK, n), 8):
                some = slice(lo, min(lo + 8, n))
                probs[some], log_p[some], unsafe[some] = lanes(like[some])

        in_threads(solve, range(0, n, _BLOCK), workers)
        return CircuitRows(probs, log_p, unsafe)

    def clamped(
        self, rows: list[tuple[list[int], list[int]]]
    ) -> Iterator[tuple[int, Floats, float]]:
        """For variables and their states, row by row: the row's number, the marginals of all
        states given them, and their probability."""
        offsets = self.wires.leaves.offsets
        lanes = EightRows(self)
        for lo in range(0, len(rows), 8):
            some = rows[lo : lo + 8]
            like = np.ones((len(some), int(offsets[-1])))
            for row, (variables, states) in zip(like, some):
                for v, s in zip(variables, states):
                    row[offsets[v] : offsets[v + 1]] = 0.0
                    row[offsets[v] + s] = 1.0
            probs, log_p, unsafe = lanes(like)
            for k in range(len(some)):
                yield lo + k, probs[k], 0.0 if unsafe[k] else math.exp(log_p[k])

    # ------------------------------------------------------------ draws

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """States (n, V) of independent draws."""
        from minfer.kernels.circuits.passes import draw

        wires, leaves = self.wires, self.wires.leaves
        n_variables = len(leaves.offsets) - 1
        out = np.empty((n, n_variables), dtype=np.int32)
        begin, members = leaves.members
        some = max(1, (1 << 22) // max(wires.width, 1))
        several = np.flatnonzero(np.diff(begin) != 1)
        for lo in range(0, n, some):
            rows = min(some, n - lo)
            u = rng.random((rows, wires.width))
            chosen = np.zeros(u.shape, dtype=np.int32)
            draw(wires.frame, wires.roots, self.share, u, chosen)
            chosen = chosen[:, :n_variables]
            states = members[begin[chosen]]
            if len(several):
                again = rng.random(chosen.shape)
                for a in several.tolist():
                    rows_, columns = np.nonzero(chosen == a)
                    if len(rows_):
                        own = members[begin[a] : begin[a + 1]]
                        pick = _picked(self.inner[own], again[rows_, columns])
                        states[rows_, columns] = own[pick]
            out[lo : lo + rows] = states - leaves.offsets[:-1]
        return out


def _picked(p: Floats, u: Floats) -> NDArray[np.int64]:
    """The first place whose cumulated probability is above u times the whole."""
    total = np.cumsum(p)
    last = int(np.flatnonzero(p > 0.0)[-1])
    return np.minimum(np.searchsorted(total, u * total[-1], side="right"), last)


class EightRows:
    """Rows eight abreast; it keeps the room that they need."""

    def __init__(self, weighed: Weighed) -> None:
        wires = weighed.wires
        self.weighed, self.wires = weighed, wires
        n = len(wires.frame.variable)
        room = np.empty(n * 16 + 8)
        first = -(room.ctypes.data // room.itemsize) % 8  # on a cache line
        self.work = room[first : first + n * 16]
        self.likely = np.ones((wires.leaves.n + 1) * 8)
        self.out = np.empty(len(self.likely))
        self.touched = np.empty(n, dtype=np.bool_)
        self.mark: NDArray[np.bool_] | None = None

    def __call__(self, like: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        from minfer.kernels.circuits import passes as k

        weighed, wires, leaves, n = self.weighed, self.wires, self.wires.leaves, len(like)
        frame = wires.frame
        part = weighed.inner * like  # (n, sum S)
        of_leaves = leaves.sums(part)  # (n, leaves)
        mark = np.zeros(leaves.n + 1, dtype=bool)
        mark[leaves.leaf[(like != 1.0).any(axis=0) & (leaves.leaf >= 0)]] = True
        of_leaves[:, ~mark] = 1.0
        likely = self.likely.reshape(-1, 8)
        likely[:, :n] = of_leaves.T
        likely[:, n:] = 1.0
        if self.mark is None or not np.array_equal(mark, self.mark):
            k.reach(frame, mark, self.touched)
            self.work[:] = 1.0
            self.mark = mark
        work = self.work.reshape(-1, 2, 8)
        k.rows_up(frame, weighed.share, self.touched, self.likely, self.work)
        tops = work[wires.roots, 0]  # (R, 8)
        work[:, 1] = 0.0
        with np.errstate(divide="ignore"):
            work[wires.roots, 1] = np.where(tops > 0.0, 1.0 / tops, 0.0)
        self.out[:] = 0.0
        k.rows_down(frame, weighed.share, self.touched, self.likely, self.work, self.out)
        tops = tops[:, :n]
        mass = self.out.reshape(-1, 8)[:, :n].T.copy()  # (n, leaves)
        unsafe = (tops < k.SAFE).any(axis=0)
        with np.errstate(divide="ignore"):
            log_p = np.log(tops).sum(axis=0)
        leaf = leaves.leaf
        inner = part
        if leaves.merged:
            below = of_leaves[:, leaf]
            inner = np.divide(part, below, out=np.zeros_like(part), where=below > 0.0)
        else:
            inner = (part > 0.0).astype(np.float64)
        probs = np.where(leaf >= 0, mass[:, leaf] * inner, 0.0)
        probs[unsafe] = 1.0
        return normalised(probs, leaves.offsets), log_p, unsafe
