"""Factors that were left out, as tables: what bounds and compensation take."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ModelError
from minfer.factors.group import Floats, Mask

if TYPE_CHECKING:
    from minfer.graph import FactorGraph


class Dropped(NamedTuple):
    """Dropped factors of one shape: n log-tables, or one for all, over A variables each."""

    scope: NDArray[np.int32]  # (n, A)
    log_psi: Floats  # (n, cells) or (1, cells), the last variable fastest
    shape: tuple[int, ...]  # (S_1, ..., S_A)


def too_large(model: FactorGraph, keep: Mask) -> str:
    """A factor outside a mask (F,) that is too large for a table, in words; empty if there is none.

    Bounds and messages of ignored factors are computed from their tables.
    """
    for g in model.groups:
        outside = ~keep[g._ids]
        if g.form != "messages" and not g.has_tables and outside.any():
            number = int(g._ids[int(np.argmax(outside))])
            over = f"{g._a_noun} over {g.arity} variables"
            return f"factor {number}, {over}, is too large for a table"
    return ""


def ignored(model: FactorGraph, keep: Mask) -> list[Dropped]:
    """The factors outside a mask (F,) as :func:`certificate` takes them."""
    batches = []
    for g in model.groups:
        rows = np.flatnonzero(~keep[g._ids])
        if not len(rows):
            continue
        if g.form == "messages":
            raise ModelError(
                f"factor {int(g._ids[rows[0]])} is {g._a_noun} and has no table: it cannot be "
                "dropped"
            )
        tables = g.stored_tables() if g.shared else g.log_tables(rows)
        batches.append(Dropped(g._scope[rows], tables, g.shape))
    return batches
