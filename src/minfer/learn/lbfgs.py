"""L-BFGS, and its orthant-wise variant for an L1 penalty (OWL-QN; Andrew and Gao 2007).

Minimises f(x) + sum_i l1_i |x_i| for a differentiable f. The stopping rules are those of crfsuite:
the (pseudo-)gradient is at most ``epsilon`` of max(1, |x|), or the objective fell by less than a
share ``delta`` in ``period`` iterations. Without a penalty the line search asks for sufficient
decrease and for a slope that has flattened (weak Wolfe, by bisection), with it for sufficient
decrease inside the orthant. A value that is not finite counts as too large a step: weights that
are handed back are always finite, and no worse than those at the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_DECREASE, _FLATTER = 1e-4, 0.9
_MOST_TRIALS = 40

Vector = NDArray[np.float64]


class Minimum(NamedTuple):
    """Where it ended.

    Attributes
    ----------
    x : the best weights found
    value : the objective there, penalty included
    gradient : norm of its gradient there; of the smallest subgradient with an L1 penalty
    n_iter, n_eval : iterations made, and evaluations of the objective
    stopped : "gradient", "improvement", "iterations", "line search", or what ``watch`` said
    trace : the objective at the start and after each iteration
    """

    x: Vector
    value: float
    gradient: float
    n_iter: int
    n_eval: int
    stopped: str
    trace: list[float]


def minimise(
    objective: Callable[[Vector], tuple[float, Vector]],
    x: Vector,
    *,
    l1: Vector | None = None,
    memory: int = 6,
    epsilon: float = 1e-5,
    delta: float = 1e-5,
    period: int = 10,
    max_iterations: int = 10_000,
    watch: Callable[[int, Vector, float], str | None] | None = None,
) -> Minimum:
    """Minimise from ``x``; ``watch`` sees each iteration's end and stops the run by a word.

    The objective may hand back one and the same array as its gradient; it is copied.

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
        if penalised:
            value += float(np.abs(at) @ l1)
        return value, np.array(grad, dtype=np.float64)

    x = np.array(x, dtype=np.float64)
    value, grad = whole(x)
    trace = [value]
    steps: list[Vector] = []
    changes: list[Vector] = []
    curvature: list[float] = []
    stopped, n_iter = "iterations", 0
    while True:
        slope_at = _subgradient(x, grad, l1) if penalised else grad  # type: ignore[arg-type]
        norm = float(np.sqrt(slope_at @ slope_at))
        if norm <= epsilon * max(1.0, float(np.sqrt(x @ x))):
            stopped = "gradient"
            break
        if len(trace) > period and trace[-1 - period] - value <= delta * abs(value):
            stopped = "improvement"
            break
        if n_iter >= max_iterations:
            break
        if watch is not None and (word := watch(n_iter, x, value)):
            stopped = word
            break
        found = None
        while found is None:
            direction = _direction(slope_at, steps, changes, curvature)
            if penalised:
                direction[direction * slope_at >= 0.0] = 0.0
            slope = float(direction @ slope_at)
            first = 1.0 if steps else 1.0 / max(norm, 1e-300)
            if slope < 0.0:
                if penalised:
                    orthant = np.where(x != 0.0, np.sign(x), -np.sign(slope_at))
                    found = _inside(whole, x, value, slope_at, direction, orthant, first)
                else:
                    found = _wolfe(whole, x, value, slope, direction, first)
            if found is None:
                if not steps:
                    break
                steps, changes, curvature = [], [], []  # once more, along the gradient
        if found is None:
            stopped = "line search"
            break
        new, new_value, new_grad = found
        step, change = new - x, new_grad - grad
        bend = float(step @ change)
        if bend > 1e-16 * float(change @ change):
            steps.append(step)
            changes.append(change)
            curvature.append(bend)
            if len(steps) > memory:
                del steps[0], changes[0], curvature[0]
        x, value, grad = new, new_value, new_grad
        trace.append(value)
        n_iter += 1
    return Minimum(x, value, norm, n_iter, n_eval, stopped, trace)


def _direction(
    grad: Vector, steps: list[Vector], changes: list[Vector], curvature: list[float]
) -> Vector:
    """Minus the inverse Hessian, as far as it is known, times the gradient."""
    d = -grad
    shares = []
    for s, y, c in zip(reversed(steps), reversed(changes), reversed(curvature)):
        share = float(s @ d) / c
        d -= share * y
        shares.append(share)
    if steps:
        d *= curvature[-1] / float(changes[-1] @ changes[-1])
    for s, y, c, share in zip(steps, changes, curvature, reversed(shares)):
        d += (share - float(y @ d) / c) * s
    return d


def _subgradient(x: Vector, grad: Vector, l1: Vector) -> Vector:
    """The smallest subgradient of the penalised objective."""
    at_zero = np.where(grad > l1, grad - l1, np.where(grad < -l1, grad + l1, 0.0))
    return np.where(x != 0.0, grad + np.sign(x) * l1, at_zero)


def _wolfe(
    whole: Callable[[Vector], tuple[float, Vector]],
    x: Vector,
    value: float,
    slope: float,
    direction: Vector,
    step: float,
) -> tuple[Vector, float, Vector] | None:
    """A step of sufficient decrease after which the slope has flattened."""
    low, high = 0.0, np.inf
    fallback = None
    for _ in range(_MOST_TRIALS):
        at = x + step * direction
        new, grad = whole(at)
        if not (np.isfinite(new) and new <= value + _DECREASE * step * slope):
            high = step
        elif float(grad @ direction) < _FLATTER * slope:
            low, fallback = step, (at, new, grad)
        else:
            return at, new, grad
        step = 2.0 * low if high == np.inf else 0.5 * (low + high)
        if high - low <= 1e-12 * high:
            break
    return fallback


def _inside(
    whole: Callable[[Vector], tuple[float, Vector]],
    x: Vector,
    value: float,
    slope_at: Vector,
    direction: Vector,
    orthant: Vector,
    step: float,
) -> tuple[Vector, float, Vector] | None:
    """A step of sufficient decrease within an orthant: what would leave it becomes zero."""
    for _ in range(_MOST_TRIALS):
        at = x + step * direction
        at[at * orthant <= 0.0] = 0.0
        new, grad = whole(at)
        if np.isfinite(new) and new <= value + _DECREASE * float(slope_at @ (at - x)):
            if np.array_equal(at, x):
                return None
            return at, new, grad
        step *= 0.5
    return None
