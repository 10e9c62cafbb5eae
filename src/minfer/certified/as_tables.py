"""The model of a :class:`LocalBounds` in tables end to end: what exact elimination works on.

Logical factors become tables, or chains of them over auxiliary variables behind the model's own;
global factors are written out where that fits. What cannot be is left out, and its variables are
*opaque*: nothing can be said of a region that has one inside.

The logarithms here are wrong by what rounding did to the sums they are; ``error`` bounds it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.certified.local import LocalBounds
from minfer.certified.rounding import U
from minfer.engine.conditioning import Conditioned
from minfer.engine.decomposition import only_tables, written
from minfer.engine.layout import Flat, flatten
from minfer.errors import RefusedError
from minfer.factors.group import FactorGroup

#: Variables whose logarithms are less certain count as opaque.
MOST_ERROR = 0.01


class CertifiedTables(NamedTuple):
    """V variables, auxiliary ones behind the model's own; tables over free variables."""

    flat: Flat
    n_own: int
    free: NDArray[np.bool_]  # (V,)
    opaque: NDArray[np.bool_]  # (V,)
    #: (V,) absolute error of the logarithms at each variable: its field's, its factors' tables',
    #: and what an exponential adds by its argument
    #: (:func:`minfer.kernels.arithmetic.ranged.exponentials`).
    error: NDArray[np.float64]

    @classmethod
    def of(cls, local: LocalBounds) -> CertifiedTables:
        n = local.n_variables
        model, left_out = _in_tables(local.model)
        flat = flatten(model)
        opaque = np.zeros(len(flat.card), dtype=bool)
        for g in left_out:
            opaque[g._scope.ravel()] = True
        free = model.fixed < 0
        opaque &= free
        error = np.zeros(len(flat.card))
        error[:n] = local.slack
        if len(flat.card):
            error += 4 * U * np.maximum.reduceat(_finite_sizes(flat.field), flat.off[:-1])
        if len(flat.toff):
            toff, which = np.unique(flat.toff, return_inverse=True)  # some are shared
            largest = np.maximum.reduceat(_finite_sizes(flat.log_psi), toff)[which.ravel()]
            by_place = np.repeat(4 * U * largest, np.diff(flat.fptr))
            error += np.bincount(flat.scope, by_place, minlength=len(error))
        opaque |= free & ~(error < MOST_ERROR)  # numbers so large that floats cannot tell sums
        return cls(flat, n, free, opaque, error)


def _finite_sizes(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(logs), np.abs(logs), 0.0)


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
