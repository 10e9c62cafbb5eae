"""Factors of one rule as arrays: the same ones merged, how often they are false, what they say.

A factor of weight w that is false with probability u under independent atoms has the gain

    g(u, w) = log(1 + u (e^-w - 1)) + u w       hard: -log(1 - u), the reverse divergence

whatever the formula: that of a feature with mean u and weight -w (:mod:`minfer.reduction.lazy`).

With c = 1 - e^-w it says 1 - c u; its first-order message to an atom is the ratio of what it says
where the atom is true and where it is false. To literal i of a clause, that it is false, that is

    1 - c prod_{j != i} q_j

where q_j is the chance that literal j is false. ``cavity``: where the messages are in the
probabilities already, each atom's is taken without its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.reduction.lazy import reach

Floats = NDArray[np.float64]

SOFT = 30.0  # weights of more than this are handled as logs
FLOOR = 1e-9  # least factor that the message of a hard rule is taken for
_SLACK = 1e-9  # of roots inside a join: rounding must not lose what the test after it keeps


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


def gains(u: Any, w: Any) -> Floats:
    """The gain of factors that are false with probability u, of weight w; hard: -log(1 - u)."""
    from minfer.kernels.scores.gains import feature_gains

    u, w = (np.array(x, dtype=np.float64) for x in np.broadcast_arrays(u, w))
    hard = np.isinf(w)
    w[hard] = 0.0
    out = np.empty(u.shape)
    feature_gains(u.ravel(), 1 - u.ravel(), -w.ravel(), out.reshape(-1))
    with np.errstate(divide="ignore"):
        out[hard] = -np.log1p(-u[hard])
    return out


def roots(threshold: float, w: float) -> tuple[float, float] | None:
    """Between which u the gain at weight w reaches a threshold; None where nowhere."""
    if math.isinf(w):
        return -math.expm1(-threshold), 1.0
    return reach(threshold, -w)


def widest(threshold: float, weights: Iterable[float]) -> tuple[float, float] | None:
    """An interval of u that has those of all weights in it, a little slack around."""
    if threshold <= 0:
        return 0.0, 1.0
    found = [r for w in weights if (r := roots(threshold, w)) is not None]
    if not found:
        return None
    low, high = min(r[0] for r in found), max(r[1] for r in found)
    return low * (1 - _SLACK), 1 - (1 - high) * (1 - _SLACK) + 1e-15


def false_given(block: Block, chances: Floats) -> Floats:
    """P(formula is false) of each factor, by the chances that its atoms are true, (F, A)."""
    if block.positive is not None:
        u = np.ones(len(chances))
        for a, yes in enumerate(block.positive.tolist()):
            u *= (1 - chances[:, a]) if yes else chances[:, a]
        return u
    if block.truth is not None:
        values = block.truth.reshape(1, -1).astype(np.float64)
        values = np.broadcast_to(values, (len(chances), values.shape[1]))
        for a in range(chances.shape[1]):
            q = chances[:, a : a + 1]
            half = values.shape[1] // 2
            values = values[:, :half] * (1 - q) + values[:, half:] * q
        return 1.0 - values[:, 0]
    assert block.automaton is not None
    step, accepting = block.automaton
    at = np.zeros((len(chances), len(accepting)))
    at[:, 0] = 1.0
    for a, q in enumerate(chances.T):
        then = np.zeros_like(at)
        for state in range(len(accepting)):
            then[:, step[a, state, 0]] += at[:, state] * (1 - q)
            then[:, step[a, state, 1]] += at[:, state] * q
        at = then
    return at[:, ~accepting].sum(axis=1)


def messages(
    block: Block, w: Floats, p: Floats, cavity: bool = False, floor: float = FLOOR
) -> Floats:
    """Messages of factors of these weights to all their atoms, (F, A)."""

    def sent(chances: Floats) -> Floats:
        out = np.empty(chances.shape)
        for a in range(chances.shape[1]):
            given = chances.copy()
            given[:, a] = 1.0
            out[:, a] = log_message(w, false_given(block, given), floor)
            given[:, a] = 0.0
            out[:, a] -= log_message(w, false_given(block, given), floor)
        return out

    chances = p[block.scope]
    found = sent(chances)
    if cavity:
        without = chances + (1 - chances) * np.exp(np.minimum(found, 700.0))
        found = sent(chances / np.maximum(without, 1e-300))
    return found


def add_messages(
    block: Block, w: Floats, p: Floats, out: Floats, times: float, cavity: bool
) -> None:
    """Add messages to the log-odds of atoms; ``cavity``: they are in ``p`` already."""
    found = times * messages(block, w, p, cavity)
    for a in range(found.shape[1]):
        out += np.bincount(block.scope[:, a], found[:, a], minlength=len(out))


def log_message(w: Floats, false: Floats, floor: float = FLOOR) -> Floats:
    """log(1 - c u), c = 1 - e^-w and u the chance to be false; of hard rules not below a floor."""
    hard = np.isinf(w)
    out = np.empty(len(w))
    strong = (np.abs(w) > SOFT) & ~hard
    rest = ~(hard | strong)
    out[rest] = np.log1p(np.expm1(-w[rest]) * false[rest])
    with np.errstate(divide="ignore"):
        out[hard] = np.log(np.maximum(1 - false[hard], floor))
        x = false[strong]
        out[strong] = np.logaddexp(np.log1p(-x), np.log(x) - w[strong])
    return out
