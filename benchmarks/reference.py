"""Plain numpy answers that every tool is checked against: the BP fixed point and the exact one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from problems import F8, Problem


def flooding(p: Problem) -> Iterator[F8]:
    """Marginals [V, S] after 1, 2, ... iterations of parallel sum-product, in float64.

    m'_{a->b}(y_b) ∝ sum_{y_a} psi(y_a, y_b) b_a(y_a) / m_{b->a}(y_a), all edges at once.
    """
    a, b = p.edges.T
    psi = np.exp(p.tables)
    into_a, into_b = np.ones((2, len(a), p.n_states))
    ends = np.concatenate([a, b])
    order = np.argsort(ends, kind="stable")
    present, starts = np.unique(ends[order], return_index=True)
    while True:
        belief = _softmax(_gather(p, into_a, into_b, order, present, starts))
        to_b = np.einsum("es,est->et", belief[a] / into_a, psi)
        to_a = np.einsum("et,est->es", belief[b] / into_b, psi)
        into_a = to_a / to_a.sum(1, keepdims=True)
        into_b = to_b / to_b.sum(1, keepdims=True)
        yield _softmax(_gather(p, into_a, into_b, order, present, starts))


def _gather(p: Problem, into_a: F8, into_b: F8, order, present, starts) -> F8:
    logs = np.log(np.concatenate([into_a, into_b]))[order]
    total = p.unary.copy()
    total[present] += np.add.reduceat(logs, starts, axis=0)
    return total


def _softmax(x: F8) -> F8:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def bp_fixed_point(p: Problem, tol: float = 1e-12, max_iters: int = 20_000) -> F8:
    """The marginals [V, S] that parallel sum-product settles on."""
    last = np.zeros_like(p.unary)
    for it, now in enumerate(flooding(p)):
        if np.abs(now - last).max() <= tol:
            return now
        if it >= max_iters:
            break
        last = now
    raise RuntimeError(f"{p.name}: belief propagation did not converge")


def flooding_count(p: Problem, fixed_point: F8, tol: float, max_iters: int = 1000) -> int:
    """The first parallel iteration whose largest distance to the fixed point is <= tol."""
    for it, now in enumerate(flooding(p), start=1):
        if np.abs(now - fixed_point).max() <= tol:
            return it
        if it >= max_iters:
            break
    raise RuntimeError(f"{p.name}: not within {tol:g} after {max_iters} iterations")


def exact_grid(p: Problem) -> F8:
    """Exact marginals [V, S] of a narrow grid by forward-backward over its rows.

    A row's joint table has S^columns cells; the step to the next row applies each column's
    vertical table along that column's axis.
    """
    assert p.shape is not None
    rows, cols = p.shape
    table = {(int(i), int(j)): t for (i, j), t in zip(p.edges, np.exp(p.tables))}

    def axis(x: F8, c: int) -> F8:
        return x.reshape([-1 if k == c else 1 for k in range(cols)])

    inside = []  # each row's own potentials
    for r in range(rows):
        t = np.ones((p.n_states,) * cols)
        for c in range(cols):
            v = r * cols + c
            t = t * axis(np.exp(p.unary[v]), c)
            if c:
                shape = [p.n_states if k in (c - 1, c) else 1 for k in range(cols)]
                t = t * table[v - 1, v].reshape(shape)
        inside.append(t / t.max())

    def step(t: F8, r: int, up: bool) -> F8:
        for c in range(cols):
            psi = table[r * cols + c, (r + 1) * cols + c]
            t = np.moveaxis(np.tensordot(t, psi if not up else psi.T, axes=(c, 0)), -1, c)
        return t / t.max()

    above = [np.ones_like(inside[0])]
    below = [np.ones_like(inside[0])]
    for r in range(rows - 1):
        above.append(step(above[-1] * inside[r], r, up=False))
        below.append(step(below[-1] * inside[rows - 1 - r], rows - 2 - r, up=True))
    out = np.empty_like(p.unary)
    for r in range(rows):
        joint = above[r] * inside[r] * below[rows - 1 - r]
        for c in range(cols):
            one = joint.sum(axis=tuple(k for k in range(cols) if k != c))
            out[r * cols + c] = one / one.sum()
    return out
