"""First-order messages of factors that are not built, as log-odds of their atoms.

A clause of weight w, c = 1 - e^-w, tells literal i that it is false with the factor

    1 - c prod_{j != i} q_j

where q_j is the chance that literal j is false. ``cavity``: where the messages are in the
probabilities already, each q_j is taken without its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.rules.gains import SOFT, false_under

if TYPE_CHECKING:
    from minfer.rules.ground import Block
    from minfer.rules.selection import Factors

FLOOR = 1e-9  # least factor that the message of a hard rule is taken for


def add_messages(
    factors: Factors,
    w: NDArray[np.float64],
    p: NDArray[np.float64],
    out: NDArray[np.float64],
    times: float,
    cavity: bool,
) -> None:
    """Add clauses' messages, as log-odds of their atoms; ``cavity``: they are in ``p`` already."""
    positive = factors.positive.tolist()
    q = [1 - p[factors.scope[:, a]] if yes else p[factors.scope[:, a]]
         for a, yes in enumerate(positive)]  # fmt: skip
    hard = np.isinf(w)

    def message_to(a: int, q: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        others = np.ones(len(factors))
        for b in range(len(positive)):
            if b != a:
                others *= q[b]
        return log_message(w, others, hard)

    if cavity:
        q = [x / np.maximum(x + (1 - x) * _exp(message_to(a, q)), 1e-300) for a, x in enumerate(q)]
    for a, yes in enumerate(positive):
        message = message_to(a, q)
        sign = -times if yes else times
        out += np.bincount(factors.scope[:, a], sign * message, minlength=len(out))


def log_message(
    w: NDArray[np.float64], others: NDArray[np.float64], hard: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """log(1 - c prod of the others' chances to be false), c = 1 - e^-w."""
    out = np.empty(len(w))
    out[hard] = np.log(np.maximum(1 - others[hard], FLOOR))
    strong = (np.abs(w) > SOFT) & ~hard
    rest = ~(hard | strong)
    out[rest] = np.log1p(np.expm1(-w[rest]) * others[rest])
    with np.errstate(divide="ignore"):
        x = others[strong]
        out[strong] = np.logaddexp(np.log1p(-x), np.log(x) - w[strong])
    return out


def messages_sql(w: float, rows: str, n: int, cavity: bool) -> str:
    """SQL of a query with the logs l0, l1, ... of the messages that :func:`log_message` has.

    ``rows``: a query for the ids i0, i1, ... of ``n`` literals and their chances q0, q1, ... to be
    false. What is used twice is a column of a subquery, as a text that contains it over and over
    takes the database long to read.
    """
    if cavity:
        without = [f"q{k} / greatest(q{k} + (1 - q{k}) * v{k}, 1e-300) as q{k}" for k in range(n)]
        factors = _factors_sql(w, rows, n, logs=False)
        rows = f"select {_listed('i', n)}, {', '.join(without)} from ({factors})"
    return _factors_sql(w, rows, n, logs=True)


def _factors_sql(w: float, rows: str, n: int, logs: bool) -> str:
    """SQL of the rows with messages v0, v1, ..., or with their logs l0, l1, ..."""
    others = [" * ".join(f"q{j}" for j in range(n) if j != k) for k in range(n)]
    own = f"{_listed('i', n)}, {_listed('q', n)}"
    if abs(w) <= SOFT / 2 or math.isinf(w):
        if math.isinf(w):
            values = [f"greatest(1 - {x}, {FLOOR!r})" for x in others]
        else:
            values = [f"(1 - {-math.expm1(-w)!r} * {x})" for x in others]
        found = [f"ln({v}) as l{k}" if logs else f"{v} as v{k}" for k, v in enumerate(values)]
        return f"select {own}, {', '.join(found)} from ({rows})"
    # log of (1 - x) + x e^-w, neither of which need be a number that is not 0 or infinite
    products = ", ".join(f"{x} as x{k}" for k, x in enumerate(others))
    rows, none = f"select {own}, {products} from ({rows})", "'-inf'::double"
    terms = [
        f"if(x{k} < 1, ln(1 - x{k}), {none}) as t{k}, "
        f"if(x{k} > 0, ln(x{k}), {none}) - {w!r}::double as f{k}"
        for k in range(n)
    ]
    rows = f"select {own}, {', '.join(terms)} from ({rows})"
    values = [f"greatest(t{k}, f{k}) + ln(1 + exp(-abs(t{k} - f{k})))" for k in range(n)]
    found = [
        f"{v} as l{k}" if logs else f"exp(least({v}, 700)) as v{k}" for k, v in enumerate(values)
    ]
    return f"select {own}, {', '.join(found)} from ({rows})"


def _listed(stem: str, n: int) -> str:
    return ", ".join(f"{stem}{k}" for k in range(n))


def add_dense(
    block: Block,
    rows: NDArray[np.int64],
    w: NDArray[np.float64],
    p: NDArray[np.float64],
    out: NDArray[np.float64],
    cavity: bool,
) -> None:
    """Messages of formulas that are not clauses: P(false) with the atom true, and false."""
    if not len(rows):
        return
    some = replace(block, scope=block.scope[rows], count=None, key=None)
    w, hard = w[rows], np.isinf(w[rows])
    # a chance for each place of each factor, and those of an atom that is false, or true
    places: NDArray[np.int32] = np.arange(some.scope.size, dtype=np.int32)
    places = places.reshape(some.scope.shape)

    def messages(chances: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        extended = np.concatenate([chances.ravel(), [0.0, 1.0]])
        found = []
        for a in range(some.scope.shape[1]):
            logs = []
            for state in (0, 1):
                scope = places.copy()
                scope[:, a] = places.size + state
                here = false_under(replace(some, scope=scope), extended)
                logs.append(log_message(w, here, hard))
            found.append(logs[1] - logs[0])
        return found

    chances = p[some.scope]
    found = messages(chances)
    if cavity:
        for a, message in enumerate(found):
            x = chances[:, a].copy()
            chances[:, a] = x / np.maximum(x + (1 - x) * _exp(message), 1e-300)
        found = messages(chances)
    for a, message in enumerate(found):
        out += np.bincount(some.scope[:, a], message, minlength=len(out))


def _exp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(np.minimum(x, 700.0))
