"""L-BFGS, and its orthant-wise variant for an L1 penalty (OWL-QN; Andrew and Gao 2007).

Minimises f(x) + sum_i l1_i |x_i| for a differentiable f. The stopping rules are those of crfsuite:
the (pseudo-)gradient is at most ``epsilon`` of max(1, |x|), or the objective fell by less than a
share ``delta`` in ``period`` iterations. Without a penalty the line search asks for sufficient
decrease and for a slope that has flattened (weak Wolfe, by bisection), with it for sufficient
decrease inside the orthant. Close to the optimum a decrease is lost in the rounding of the values;
there the slope alone has to tell it (Hager and Zhang 2005). A value or slope that is not finite
counts as too large a step: weights that are handed back are always finite, and, but for rounding,
no worse than those at the start.

scipy's L-BFGS-B knows no L1 penalty, and cannot go on from a file; ``minimise`` goes on from a
:class:`Descent` as it would have, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_DECREASE, _FLATTER = 1e-4, 0.9
_ROUNDING = 1e-14  # of a value: what is smaller is no difference
_MOST_TRIALS = 40

Vector = NDArray[np.float64]
Differentiable = Callable[[Vector], tuple[float, Vector]]
Trial = tuple[Vector, float, Vector]  # weights, value, gradient


def dot(a: Vector, b: Vector) -> float:
    """The inner product of two vectors, in this thread and in one order.

    ``a @ b`` is the BLAS library's, which wakes threads for some ten thousand numbers already: they
    spin while other code runs, and the last bits depend on how many there are.
    """
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
    """A step of sufficient decrease after which the slope has flattened.

    Where the values differ by rounding alone, slopes say whether they fell (Hager & Zhang 2005).
    """
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
