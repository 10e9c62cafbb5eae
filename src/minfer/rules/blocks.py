"""Factors of one rule over as many atoms each, as arrays; the same ones merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass
class Block:
    """Factors of one rule over as many atoms each.

    ``count`` bindings give each factor (their weights add up), ``key`` is its row among the rule's
    weights. ``positive`` are the signs of clauses; other formulas have a truth table; long ones an
    automaton.
    """

    rule: int
    scope: NDArray[np.int32]  # (F, A)
    share: float
    positive: NDArray[np.bool_] | None = None  # (A,)
    truth: NDArray[np.bool_] | None = None  # (2,) * A
    automaton: tuple[NDArray[np.int32], NDArray[np.bool_]] | None = None  # steps; accepting ends
    count: NDArray[np.int64] | None = None
    key: NDArray[np.int64] | None = None
    listed: bool = False  # whether its bindings can be found one by one (Part.listed)
    both: bool = False  # whether each stands for the same clause with its two atoms turned, too

    def __len__(self) -> int:
        return len(self.scope)

    @property
    def n_bindings(self) -> int:
        return len(self) if self.count is None else int(self.count.sum())

    @property
    def up(self) -> bool:
        """Of factors over one atom: whether they are true where it is."""
        return bool(self.truth[1] if self.positive is None else self.positive[0])  # type: ignore[index]

    def rows(self, which: Any) -> Block:
        """Some of its factors."""
        count, key = (None if x is None else x[which] for x in (self.count, self.key))
        return replace(self, scope=np.ascontiguousarray(self.scope[which]), count=count, key=key)


def codes(blocks: Sequence[Block]) -> NDArray[np.int64]:
    """A number for each factor, the same for the same; in order of atoms, then of keys."""
    columns = [np.concatenate([b.scope[:, a] for b in blocks])
               for a in range(blocks[0].scope.shape[1])]  # fmt: skip
    key = _column([b.key for b in blocks], blocks, 0)
    code, bits = np.zeros(sum(map(len, blocks)), np.int64), 0
    for column in columns if key is None else [*columns, key]:
        more = int(column.max(initial=0)).bit_length()
        if bits + more > 63:  # numbers without gaps instead
            code = np.unique(code, return_inverse=True)[1].ravel().astype(np.int64)
            bits = int(code.max(initial=0)).bit_length()
        code, bits = code << more | column, bits + more
    return code


def _column(
    columns: Sequence[NDArray[np.int64] | None], blocks: Sequence[Block], usual: int
) -> NDArray[np.int64] | None:
    """Columns of blocks one after the other; None where all have what is usual."""
    if all(x is None for x in columns):
        return None
    return np.concatenate([
        np.full(len(b), usual, np.int64) if x is None else x for x, b in zip(columns, blocks)
    ])  # fmt: skip


def joined(blocks: Sequence[Block]) -> Block:
    """Blocks of one kind as one."""
    if len(blocks) == 1:
        return blocks[0]
    return replace(
        blocks[0], scope=np.concatenate([b.scope for b in blocks]),
        count=_column([b.count for b in blocks], blocks, 1),
        key=_column([b.key for b in blocks], blocks, 0),
    )  # fmt: skip


def merged(blocks: Sequence[Block]) -> Block:
    """Blocks of one kind as one, the same factors too, their bindings added up."""
    whole = joined(blocks)
    _, first, which = np.unique(codes(blocks), return_index=True, return_inverse=True)
    n = np.bincount(which.ravel(), whole.count, minlength=len(first)).astype(np.int64)
    return replace(whole.rows(first), count=n if n.max(initial=1) > 1 else None)
