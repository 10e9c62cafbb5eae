"""First-order messages of factors that are not built, as log-odds of their atoms.

A factor of weight w that is false with probability u says, with c = 1 - e^-w, 1 - c u; its message
to an atom is the ratio of what it says where the atom is true and where it is false. To literal i
of a clause, that it is false, that is the factor

    1 - c prod_{j != i} q_j

where q_j is the chance that literal j is false. ``cavity``: where the messages are in the
probabilities already, each atom's is taken without its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from minfer.rules.blocks import Floats
from minfer.rules.gains import false_given

if TYPE_CHECKING:
    from minfer.rules.blocks import Block

SOFT = 30.0  # weights of more than this are handled as logs
FLOOR = 1e-9  # least factor that the message of a hard rule is taken for


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
