"""Minimisers: L-BFGS over all data, Adam over mini-batches; both with L1 and L2, both resumable.

    minimise  loss(w) + 1/2 sum_j l2_j w_j^2 + sum_j l1_j |w_j|

* :func:`minimise` is L-BFGS, and its orthant-wise variant for an L1 penalty (OWL-QN; Andrew and Gao
  2007). The stopping rules are those of crfsuite: the (pseudo-)gradient is at most ``epsilon`` of
  max(1, |x|), or the objective fell by less than a share ``delta`` in ``period`` iterations. The
  line search asks for sufficient decrease and for a slope that has flattened (weak Wolfe, by
  bisection), with a penalty for sufficient decrease inside the orthant. Close to the optimum a
  decrease is lost in the rounding of the values; there the slope alone has to tell it (Hager and
  Zhang 2005). A value or slope that is not finite counts as too large a step: weights that are
  handed back are always finite, and, but for rounding, no worse than those at the start. (scipy's
  L-BFGS-B knows no L1 penalty, and cannot go on from a file.)
* :func:`lbfgs` looks at all data at each of its steps. Each evaluation is cold and converged:
  messages that depend on the way make a line search fail.
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

if TYPE_CHECKING:
    from minfer.learn.workers import Data

_DECREASE, _FLATTER = 1e-4, 0.9
_ROUNDING = 1e-14  # of a value: what is smaller is no difference
_MOST_TRIALS = 40

Vector = NDArray[np.float64]
Differentiable = Callable[[Vector], tuple[float, Vector]]
Trial = tuple[Vector, float, Vector]  # weights, value, gradient


def dot(a: Vector, b: Vector) -> float:
    """The inner product, in one order and this thread: those of BLAS, for ``a @ b``, spin while
    other code runs, and the last bits depend on how many there are."""
    return float(np.einsum("i,i->", a, b))


@dataclass
class Descent:
    """Where a run is, and all that it needs to go on."""

    x: Vector  # the weights
    value: float  # the objective there, penalty included
    gradient: Vector  # of the differentiable part, there
    trace: list[float]  # the objective at the start and after each iteration
    n_eval: int = 1  # evaluations of the objective
    steps: list[Vector] = field(default_factory=list)  # the last ones
    changes: list[Vector] = field(default_factory=list)  # of the gradient by them
    bends: list[float] = field(default_factory=list)  # products of the two

    @property
    def n_iter(self) -> int:
        return len(self.trace) - 1

    def forget(self) -> None:
        """Begin anew, along the gradient."""
        self.steps, self.changes, self.bends = [], [], []


class Minimum(NamedTuple):
    """Where it ended.

    ``stopped``: "gradient", "improvement", "iterations", "line search", "not finite" (the objective
    at the start, or a slope's square), or what ``watch`` said.
    """

    x: Vector  # the best weights found
    value: float  # the objective there, penalty included
    gradient: float  # norm of its gradient there; of the smallest subgradient with an L1 penalty
    n_iter: int
    n_eval: int  # evaluations of the objective
    stopped: str
    trace: list[float]  # the objective at the start and after each iteration


def minimise(
    objective: Differentiable,
    x: Vector | Descent,
    *,
    l1: Vector | None = None,
    memory: int = 6,
    epsilon: float = 1e-5,
    delta: float = 1e-5,
    period: int = 10,
    max_iterations: int = 10_000,
    watch: Callable[[Descent], str | None] | None = None,
) -> Minimum:
    """Minimise from ``x``; ``watch`` sees where each iteration begins, and ends the run by a word.

    The objective may hand back one and the same array as its gradient; it is copied. A
    :class:`Descent` is gone on with in place.

    Examples
    --------
    >>> found = minimise(lambda x: (float(x @ x) - 2 * x[0], 2 * x - [2, 0]), np.array([5.0, 3.0]))
    >>> found.stopped, np.abs(found.x.round(4)).tolist()
    ('gradient', [1.0, 0.0])
    >>> found = minimise(lambda x: (float(x @ x) - 2 * x[0], 2 * x - [2, 0]), np.array([5.0, 3.0]),
    ...                  l1=np.array([1.0, 1.0]))
    >>> found.x.round(4).tolist()
    [0.5, 0.0]
    """
    penalised = l1 is not None and bool(l1.any())
    n_eval = 0

    def whole(at: Vector) -> tuple[float, Vector]:
        nonlocal n_eval
        n_eval += 1
        value, grad = objective(at)
        grad = np.array(grad, dtype=np.float64)
        if penalised:
            value += dot(np.abs(at), l1)  # type: ignore[arg-type]
        return value if np.isfinite(grad).all() else np.inf, grad

    if isinstance(x, Descent):
        d = x
    else:
        x = np.array(x, dtype=np.float64)
        d = Descent(x, *whole(x), trace=[])
        d.trace.append(d.value)
    n_eval = d.n_eval
    while True:
        slope_at = subgradient(d.x, d.gradient, l1) if penalised else d.gradient  # type: ignore[arg-type]
        with np.errstate(over="ignore"):
            norm = math.sqrt(dot(slope_at, slope_at))
        if not (np.isfinite(d.value) and np.isfinite(norm)):
            stopped = "not finite"
            break
        if watch is not None and (word := watch(d)):
            stopped = word
            break
        if norm <= epsilon * max(1.0, math.sqrt(dot(d.x, d.x))):
            stopped = "gradient"
            break
        if d.n_iter >= period and d.trace[-1 - period] - d.value <= delta * abs(d.value):
            stopped = "improvement"
            break
        if d.n_iter >= max_iterations:
            stopped = "iterations"
            break
        found = None
        while found is None:
            direction = _direction(slope_at, d)
            if penalised:
                direction[direction * slope_at >= 0.0] = 0.0
            slope = dot(direction, slope_at)
            first = 1.0 if d.steps else 1.0 / max(norm, 1e-300)
            if slope < 0.0:
                if penalised:
                    found = _inside(whole, d.x, d.value, slope_at, direction, first)
                else:
                    found = _wolfe(whole, d.x, d.value, slope, direction, first)
            if found is None:
                if not d.steps:
                    break
                d.forget()
        d.n_eval = n_eval
        if found is None:
            stopped = "line search"
            break
        new, new_value, new_grad = found
        step, change = new - d.x, new_grad - d.gradient
        bend = dot(step, change)
        if bend > 1e-16 * dot(change, change):
            d.steps.append(step)
            d.changes.append(change)
            d.bends.append(bend)
            if len(d.steps) > memory:
                del d.steps[0], d.changes[0], d.bends[0]
        d.x, d.value, d.gradient = new, new_value, new_grad
        d.trace.append(new_value)
    return Minimum(d.x, d.value, norm, d.n_iter, d.n_eval, stopped, d.trace)


def _direction(grad: Vector, run: Descent) -> Vector:
    """Minus the inverse Hessian, as far as it is known, times the gradient."""
    d, shares = -grad, []
    kept = list(zip(run.steps, run.changes, run.bends))
    for s, y, c in reversed(kept):
        shares.append(dot(s, d) / c)
        d -= shares[-1] * y
    if kept:
        d *= run.bends[-1] / dot(run.changes[-1], run.changes[-1])
    for (s, y, c), share in zip(kept, reversed(shares)):
        d += (share - dot(y, d) / c) * s
    return d


def subgradient(x: Vector, grad: Vector, l1: Vector) -> Vector:
    """The smallest subgradient of the penalised objective; ``grad`` is that without penalty."""
    at_zero = np.where(grad > l1, grad - l1, np.where(grad < -l1, grad + l1, 0.0))
    return np.where(x != 0.0, grad + np.sign(x) * l1, at_zero)


def _wolfe(
    whole: Differentiable, x: Vector, value: float, slope: float, direction: Vector, step: float
) -> Trial | None:
    """A step of sufficient decrease after which the slope has flattened."""
    low, high = 0.0, np.inf
    fallback = None
    for _ in range(_MOST_TRIALS):
        at = x + step * direction
        new, grad = whole(at)
        slope_there = dot(grad, direction) if np.isfinite(new) else np.inf
        falls = new <= value + _DECREASE * step * slope
        if new - value <= _ROUNDING * abs(value):  # of a parabola these slopes say the same
            falls |= slope_there <= (2.0 * _DECREASE - 1.0) * slope
        if not (np.isfinite(new) and falls):
            high = step
        elif slope_there < _FLATTER * slope:
            low, fallback = step, (at, new, grad)
        else:
            return at, new, grad
        step = 2.0 * low if high == np.inf else 0.5 * (low + high)
        if high - low <= 1e-12 * high:
            break
    return fallback


def _inside(
    whole: Differentiable, x: Vector, value: float, slope_at: Vector, direction: Vector, step: float
) -> Trial | None:
    """A step of sufficient decrease within an orthant: what would leave it becomes zero."""
    orthant = np.where(x != 0.0, np.sign(x), -np.sign(slope_at))
    for _ in range(_MOST_TRIALS):
        at = x + step * direction
        at[at * orthant <= 0.0] = 0.0
        new, grad = whole(at)
        if np.isfinite(new) and new <= value + _DECREASE * dot(slope_at, at - x):
            return None if np.array_equal(at, x) else (at, new, grad)
        step *= 0.5
    return None


# ---------------------------------------------------------------------- over data


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

    l1: Vector
    l2: Vector

    def value(self, w: Vector) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            value = dot(self.l1, np.abs(w)) + 0.5 * dot(self.l2, w * w)
        return value if math.isfinite(value) else math.inf

    def gradient(self, w: Vector, gradient: Vector) -> Vector:
        """The objective's gradient: at zeros, the smallest of its subgradients."""
        return subgradient(w, gradient + self.l2 * w, self.l1)


@dataclass
class Stop:
    """Early stopping: the best weights on dev data, and how long ago they were found."""

    patience: int | None
    best: float = math.inf
    weights: Vector | None = None
    step: int = 0
    waited: int = 0

    def seen(self, dev: float, w: Vector, step: int) -> None:
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

    weights: Vector
    step: int = 0
    trace: list[Row] = field(default_factory=list)
    stop: Stop = field(default_factory=lambda: Stop(None))
    first: Vector | None = None  # Adam's moments
    second: Vector | None = None
    count: int = 0  # of Adam's steps
    descent: Descent | None = None  # of L-BFGS
    done: str = ""  # how it ended
    began: float = 0.0  # CPU seconds of the data when it did
    dev: Callable[[Vector], float] | None = None  # the loss on dev data
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

    def evaluated(w: Vector) -> tuple[float, Vector]:
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

    ``s``: settings of :func:`minfer.learn.fit`. The learning rate decays as a half cosine.
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
