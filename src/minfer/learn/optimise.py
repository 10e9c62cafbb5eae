"""Minimisers: L-BFGS over all data, Adam over mini-batches; both with L1 and L2, both resumable.

    minimise  loss(w) + 1/2 sum_j l2_j w_j^2 + sum_j l1_j |w_j|

* :func:`lbfgs` looks at all data at each step (:mod:`minfer.learn.lbfgs`). Each evaluation is cold
  and converged: messages that depend on the way make a line search fail.
* :func:`adam` makes steps on mini-batches with the messages of the step before (*warm*), a few
  sweeps each. Every ``evaluate_every`` epochs everything is evaluated cold and converged; that is
  the trace, and the messages it leaves are those the next steps begin with. L1 is a proximal step.

Resuming gives the same bits: both minimisers' states are a few arrays, and messages at an
evaluation follow from the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.learn.lbfgs import Descent, dot, minimise, subgradient

if TYPE_CHECKING:
    from minfer.learn.workers import Data

Weights = NDArray[np.float64]


class Row(NamedTuple):
    """A line of the trace: everything cold and converged."""

    step: int  # iterations of L-BFGS, epochs of Adam
    loss: float  # mean over labels, without penalties
    objective: float  # with penalties
    gradient: float  # largest entry of the objective's gradient
    dev: float  # loss on the dev data, NaN where there are none
    seconds: float  # CPU seconds of inference so far


@dataclass(frozen=True)
class Penalty:
    """L1 and L2, a number for each weight."""

    l1: Weights
    l2: Weights

    def value(self, w: Weights) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            value = dot(self.l1, np.abs(w)) + 0.5 * dot(self.l2, w * w)
        return value if math.isfinite(value) else math.inf

    def gradient(self, w: Weights, gradient: Weights) -> Weights:
        """The objective's gradient: at zeros, the smallest of its subgradients."""
        return subgradient(w, gradient + self.l2 * w, self.l1)


@dataclass
class Stop:
    """Early stopping: the best weights on dev data, and how long ago they were found."""

    patience: int | None
    best: float = math.inf
    weights: Weights | None = None
    step: int = 0
    waited: int = 0

    def seen(self, dev: float, w: Weights, step: int) -> None:
        if dev < self.best:
            self.best, self.weights, self.step, self.waited = dev, w.copy(), step, 0
        elif not math.isnan(dev):
            self.waited += 1

    @property
    def over(self) -> bool:
        """Whether to stop, after so many evaluations without a better one."""
        return self.patience is not None and self.waited >= self.patience


@dataclass
class OptimiserState:
    """What a minimiser needs to go on, which a checkpoint holds, and what happens beside it."""

    weights: Weights
    step: int = 0
    trace: list[Row] = field(default_factory=list)
    stop: Stop = field(default_factory=lambda: Stop(None))
    first: Weights | None = None  # Adam's moments
    second: Weights | None = None
    count: int = 0  # of Adam's steps
    descent: Descent | None = None  # of L-BFGS
    done: str = ""  # how it ended
    began: float = 0.0  # CPU seconds of the data when it did
    dev: Callable[[Weights], float] | None = None  # the loss on dev data
    progress: Callable[[Row], None] | None = None
    save: Callable[[OptimiserState], None] | None = None
    save_every: int = 10

    def row(
        self, data: Data, loss: float, objective: float, gradient: float, now: bool = False
    ) -> None:
        """Add a line to the trace, for weights and step as they are; ``now``: and save it."""
        dev = math.nan if self.dev is None else self.dev(self.weights)
        self.trace.append(Row(self.step, loss, objective, gradient, dev, data.seconds - self.began))
        if self.progress is not None:
            self.progress(self.trace[-1])
        self.stop.seen(dev, self.weights, self.step)
        self.keep(now)

    def keep(self, now: bool = False) -> None:
        if self.save is not None and (now or self.step % self.save_every == 0):
            self.save(self)

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Plain values and arrays."""
        d = self.descent
        stop = asdict(self.stop)
        best = stop.pop("weights")
        header = {
            "step": self.step, "count": self.count, "done": self.done, "stop": stop,
            "trace": [list(row) for row in self.trace], "has_best": best is not None,
            "descent": None if d is None else [d.value, d.trace, d.n_eval, d.bends],
        }  # fmt: skip
        zero = np.zeros(len(self.weights))
        arrays = {
            "weights": self.weights,
            "first": zero if self.first is None else self.first,
            "second": zero if self.second is None else self.second,
            "best": zero if best is None else best,
        }
        if d is not None:
            kept = np.array([d.x, d.gradient, *d.steps, *d.changes])
            arrays["descent"] = kept
        return header, arrays

    @classmethod
    def unpack(cls, header: dict[str, Any], arrays: dict[str, NDArray], n: int) -> OptimiserState:
        """What :meth:`pack` packed, of n weights; what is odd raises: a file may say anything."""
        for name in ("weights", "first", "second", "best"):
            if arrays[name].shape != (n,) or arrays[name].dtype != np.float64:
                raise ValueError(f"{name} should be {n} numbers")
            if not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} are not all finite")
        stop = Stop(None, float(header["stop"]["best"]))
        stop.step, stop.waited = (_count(header["stop"][name]) for name in ("step", "waited"))
        if header["has_best"]:
            stop.weights = arrays["best"]
        descent = None
        if header["descent"] is not None:
            value, trace, n_eval, bends = header["descent"]
            bends, trace, rows = _reals(bends), _reals(trace), arrays["descent"]
            k = len(bends)
            if rows.shape != (2 + 2 * k, n) or rows.dtype != np.float64 or not trace:
                raise ValueError("the steps of the descent do not fit together")
            if not np.isfinite(rows).all():
                raise ValueError("the steps of the descent are not all finite")
            x, gradient, *kept = (row.copy() for row in rows)
            descent = Descent(
                x, float(value), gradient, trace, _count(n_eval), kept[:k], kept[k:], bends
            )
        rows_ = [Row(_count(step), *_reals(numbers)) for step, *numbers in header["trace"]]
        return cls(
            arrays["weights"], _count(header["step"]), rows_, stop, arrays["first"],
            arrays["second"], _count(header["count"]), descent, str(header["done"]),
        )  # fmt: skip


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"a count is needed, not {value!r}")
    return value


def _reals(values: Any) -> list[float]:
    return [float(x) for x in values]


def lbfgs(
    data: Data, state: OptimiserState, penalty: Penalty, *, tol: float, max_iters: int
) -> str:
    """Minimise; ``state.weights`` are the result. Says how it ended."""
    n = len(state.weights)
    most = np.sqrt(np.finfo(float).max) / max(1.0, float(penalty.l2.max(initial=0.0)), n)

    def evaluated(w: Weights) -> tuple[float, Weights]:
        if not np.abs(w).max(initial=0.0) < most:  # its squares are not numbers
            return math.inf, np.zeros(n)
        e = data.evaluate(w)
        return e.value + 0.5 * dot(penalty.l2, w * w), e.gradient + penalty.l2 * w

    def look(d: Descent) -> str | None:
        w = d.x
        largest = float(np.abs(subgradient(w, d.gradient, penalty.l1)).max(initial=0.0))
        if d.n_iter > state.step:  # else the beginning, or where a run goes on
            state.descent, state.weights, state.step = d, w, d.n_iter
            state.row(data, d.value - penalty.value(w), d.value, largest)
        if state.stop.over:
            return "early stopping"
        return "converged" if largest <= tol else None

    found = minimise(
        evaluated, state.weights if state.descent is None else state.descent, l1=penalty.l1,
        memory=10, epsilon=0.0, delta=0.0, max_iterations=max_iters, watch=look,
    )  # fmt: skip
    state.weights = found.x
    return _ENDED.get(found.stopped, found.stopped)


#: How L-BFGS ended, where it was not :func:`lbfgs` that said so.
_ENDED = {
    "gradient": "converged",
    "iterations": "max iterations",
    "improvement": "stalled",
    "line search": "stalled",
    "not finite": "diverging",
}


def adam(data: Data, state: OptimiserState, penalty: Penalty, s: Mapping[str, Any]) -> str:
    """Minimise; ``state.weights`` are the result. Says how it ended.

    ``s`` are settings of :func:`minfer.learn.fit`. ``decay``: the learning rate falls to zero over
    all epochs as a half cosine.
    """
    w, tol, epochs, accumulate = state.weights.copy(), s["tol"], s["epochs"], s["accumulate"]
    first = np.zeros_like(w) if state.first is None else state.first.copy()
    second = np.zeros_like(w) if state.second is None else state.second.copy()
    steps = math.ceil(len(data.blocks) / accumulate)

    def look(epoch: int) -> str:
        """Evaluate cold and converged; says whether to stop."""
        e = data.evaluate(w)
        if not (math.isfinite(e.value) and np.isfinite(e.gradient).all()):
            return "diverging"
        if not state.trace or state.trace[-1].step != epoch:  # else resumed here: known already
            largest = float(np.abs(penalty.gradient(w, e.gradient)).max(initial=0.0))
            state.weights, state.step = w.copy(), epoch
            state.first, state.second = first.copy(), second.copy()
            state.row(data, e.value, e.value + penalty.value(w), largest, now=True)
        if state.stop.over:
            return "early stopping"
        return "converged" if state.trace[-1].gradient <= tol else ""

    for epoch in range(state.step, epochs):
        if epoch % s["evaluate_every"] == 0 and (ended := look(epoch)):
            return ended
        order = np.random.default_rng([s["seed"], epoch]).permutation(len(data.blocks))
        for k in range(steps):
            some = order[k * accumulate : (k + 1) * accumulate].tolist()
            e = data.evaluate(w, some, warm=s["warm"], sweeps=s["sweeps"] if s["warm"] else None)
            g = e.gradient + penalty.l2 * w
            if not np.isfinite(g).all():
                return "diverging"
            state.count += 1
            first = 0.9 * first + 0.1 * g
            second = 0.999 * second + 0.001 * g * g
            share = (epoch + k / steps) / epochs
            rate = s["learning_rate"]
            if s["decay"]:
                rate *= 0.5 * (1.0 + math.cos(math.pi * share))
            with np.errstate(over="ignore", invalid="ignore"):
                scale = rate / (np.sqrt(second / (1.0 - 0.999**state.count)) + 1e-8)
                new = w - scale * first / (1.0 - 0.9**state.count)
                new = np.sign(new) * np.maximum(np.abs(new) - scale * penalty.l1, 0.0)
            if not np.isfinite(new).all():
                return "diverging"
            w = new
    return look(epochs) or "max epochs"
