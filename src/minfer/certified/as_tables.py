"""The model of a :class:`LocalBounds` in tables end to end: what exact elimination works on.

Logical factors become tables, or chains of them over auxiliary variables behind the model's own;
global factors are written out where that fits. What cannot be is left out, and its variables are
*opaque*: nothing can be said of a region that has one inside.

The logarithms here are wrong by what rounding did to the sums they are; ``error`` bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from minfer.certified.local import LocalBounds
from minfer.certified.rounding import U
from minfer.engine.conditioning import Conditioned
from minfer.engine.decomposition import only_tables, written
from minfer.errors import RefusedError
from minfer.factors.group import FactorGroup

#: Variables whose logarithms are less certain count as opaque.
MOST_ERROR = 0.01


@dataclass(frozen=True, eq=False)
class CertifiedTables:
    """V variables, auxiliary ones behind the model's own; F tables over free variables."""

    n_own: int
    card: NDArray[np.int32]  # (V,)
    off: NDArray[np.int64]  # (V+1,)
    free: NDArray[np.bool_]  # (V,)
    opaque: NDArray[np.bool_]  # (V,)
    field: NDArray[np.float64]  # (sum S,)
    fptr: NDArray[np.int64]  # (F+1,)
    scope: NDArray[np.int32]
    toff: NDArray[np.int64]  # (F,)
    size: NDArray[np.int64]  # (F,) cells
    log_psi: NDArray[np.float64]
    #: (V,) absolute error of the logarithms at each variable: its field's, its factors' tables',
    #: and what an exponential adds by its argument
    #: (:func:`minfer.kernels.arithmetic.ranged.exponentials`).
    error: NDArray[np.float64]

    @property
    def arity(self) -> NDArray[np.int64]:
        return np.diff(self.fptr)

    @classmethod
    def of(cls, local: LocalBounds) -> CertifiedTables:
        from minfer.solvers.clique_passes import table_sizes

        n = local.n_variables
        model, left_out = _in_tables(local.model)
        graph = model.graph
        card, off = graph._n_states, graph._offsets
        flat, (toff, log_psi) = model.arrays.scopes, model.arrays.cells
        size = table_sizes(card, flat.fptr, flat.scope)
        opaque = np.zeros(len(card), dtype=bool)
        for g in left_out:
            opaque[g._scope.ravel()] = True
        free = model.fixed < 0
        opaque &= free
        error = np.zeros(len(card))
        error[:n] = local.slack
        if len(card):
            finite = np.where(np.isfinite(model.field), np.abs(model.field), 0.0)
            error += 4 * U * np.maximum.reduceat(finite, off[:-1])
        if len(size):
            finite = np.where(np.isfinite(log_psi), np.abs(log_psi), 0.0)
            if int(size.sum()) == len(finite):
                largest = np.maximum.reduceat(finite, toff)
            else:  # some are shared
                largest = np.array([finite[t : t + s].max() for t, s in zip(toff, size)])
            by_place = np.repeat(4 * U * largest, np.diff(flat.fptr))
            error += np.bincount(flat.scope, by_place, minlength=len(card))
        opaque |= free & ~(error < MOST_ERROR)  # numbers so large that floats cannot tell sums
        return cls(
            n, card, off, free, opaque, model.field, flat.fptr, flat.scope, toff, size, log_psi,
            error,
        )  # fmt: skip


def _in_tables(model: Conditioned) -> tuple[Conditioned, list[FactorGroup]]:
    """The model in tables, and the groups that cannot be written so."""
    left_out: list[FactorGroup] = []
    done: list[FactorGroup] = [g for g in model.groups if g.form == "table"]
    now = model
    for g in model.groups:
        if g.form == "table":
            continue
        try:
            if g.form == "messages":
                tables = [written(model, g, row) for row in range(len(g))]
                done += [t for t in tables if t.arity]
            else:
                now = only_tables(replace(now, groups=(g,)))
                done += now.groups
        except RefusedError:
            left_out.append(g)
    return replace(now, groups=tuple(done)), left_out
