"""What the model's zeros exclude, as logic: the one place where an impossibility is proved.

Numbers that fall below the range of floats look like zeros. So wherever a run finds that nothing is
left of a variable, or is about to say that a state has probability zero, it asks here. A state is
*possible* as long as no chain of hard zeros excludes it: of evidence, tables, logical and global
factors, each of which must allow it together with possible states of its other variables
(generalised arc consistency; Mackworth 1977). That is what the zeros of belief propagation's
messages mean while they are exact. It is linear in the size of the factors that forbid something,
proves what it excludes, and does not exclude all that is impossible: that may take a search.

Models without zeros, and answers without, cost nothing here.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.engine.layout import automata, join, part, places, scopes
from minfer.errors import ContradictionError

if TYPE_CHECKING:
    from minfer.engine.conditioning import Conditioned
    from minfer.factors.group import FactorGroup
    from minfer.kernels.messages.support import HardFactors

#: What a state gets that nothing excludes and whose probability came out as zero.
LEAST = float(np.finfo(np.float64).tiny)
_STAND_IN = 1e-290  # what answers have at most where this or a join graph's least number stands


def possible(model: Conditioned, known: NDArray[np.int32] | None = None) -> NDArray[np.bool_]:
    """States that no chain of zeros excludes, (sum S,); ``known`` (V,): evidence beside the
    model's, else -1. ContradictionError if a variable has no state left."""
    return Support(model, known).settled()


def lift(
    model: Conditioned, probs: NDArray[np.float64], known: NDArray[np.int32] | None = None
) -> bool:
    """Give possible states whose probability is zero, or no number, the least one, in place;
    whether there were some."""
    if probs.min(initial=1.0) > 0.0:
        return False
    zero = np.flatnonzero(~(probs > 0.0))
    zero = zero[_allowed(model, known)[zero]]
    if not len(zero):
        return False
    lost = zero[possible(model, known)[zero]]
    probs[lost] = LEAST
    return len(lost) > 0


def without_least(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of an answer without those that stand in for zeros (and so not negative)."""
    return np.where(probs > _STAND_IN, probs, 0.0)


def _allowed(model: Conditioned, known: NDArray[np.int32] | None) -> NDArray[np.bool_]:
    """States that evidence and unary factors leave."""
    allowed = model.field > -np.inf
    if known is not None:
        size = model.graph._n_states
        own = np.arange(len(allowed)) - np.repeat(model.graph._offsets[:-1], size)
        state = np.repeat(known, size)
        allowed &= (state < 0) | (state == own)
    return allowed


class Support:
    """The states still alive, and the factors that may exclude some."""

    def __init__(self, model: Conditioned, known: NDArray[np.int32] | None) -> None:
        self.graph, self.off = model.graph, model.graph._offsets
        self.alive = _allowed(model, known).view(np.uint8)
        tables = [part(g, g.forbids()) for g in model.groups if g.form == "table"]
        self.tables = [g for g in tables if len(g)]
        self.machines = [g for g in model.groups if g.form == "machine" and g._excludes]
        self.python_factors = [g for g in model.groups if g.form == "messages"]

    def settled(self) -> NDArray[np.bool_]:
        """All that is alive when nothing more goes."""
        if len(self.alive):
            bare = np.maximum.reduceat(self.alive, self.off[:-1]) == 0
            if bare.any():
                raise self._empty(int(np.argmax(bare)))
        self._by_kernel()
        while any(self._by_messages(g) for g in self.python_factors):
            self._by_kernel()
        return self.alive.view(np.bool_)

    @property
    def excludes(self) -> bool:
        """Whether there are factors that may forbid something."""
        return bool(self.tables or self.machines or self.python_factors)

    def narrow(self, alive: NDArray[np.uint8], v: int) -> int:
        """Put out, in ``alive``, what follows where states of v have gone; a variable without any
        state left, or -1."""
        self.alive = alive
        if (hard := self._hard) is not None:
            from minfer.kernels.messages.support import propagate

            waits = np.zeros(len(hard.fptr) - 1, dtype=np.uint8)
            waits[hard.vfac[hard.vptr[v] : hard.vptr[v + 1]]] = 1
            if (bare := propagate(self.off, alive, hard, waits)) >= 0:
                return int(bare)
        try:
            while any(self._by_messages(g) for g in self.python_factors):
                self._by_kernel()
        except ContradictionError:
            return v
        return -1

    @cached_property
    def _hard(self) -> HardFactors | None:
        """Tables and automata, as the kernel takes them."""
        groups = [*self.tables, *self.machines]
        if not groups:
            return None
        from minfer.kernels.messages.support import HardFactors

        flat = scopes(groups)
        where = places(flat, self.graph.n_variables)
        toff, cells = _cells(self.tables)
        auto = automata([g.machine() for g in self.machines])
        ends = (auto.final > -np.inf).astype(np.uint8)
        return HardFactors(*flat[1:], *where[1:3], toff, cells, *auto[:-1], ends)

    def _by_kernel(self) -> None:
        """What tables and automata exclude."""
        if (hard := self._hard) is None:
            return
        from minfer.kernels.messages.support import propagate

        v = propagate(self.off, self.alive, hard, np.ones(len(hard.fptr) - 1, dtype=np.uint8))
        if v >= 0:
            raise self._empty(int(v))

    def _by_messages(self, group: FactorGroup) -> bool:
        """What global factors exclude; whether that is anything."""
        parts = [self.off[group._scope[:, a]][:, None] + np.arange(s) for a, s in
                 enumerate(group.shape)]  # fmt: skip
        at = np.concatenate(parts, axis=1) if parts else np.zeros((len(group), 0), dtype=np.int64)
        incoming = np.where(self.alive[at] > 0, 0.0, -np.inf)
        out = np.empty(at.shape)
        log_z = group.messages(np.arange(len(group)), incoming, out)
        if (log_z == -np.inf).any():
            number = int(group._ids[int(np.argmin(log_z))])
            raise ContradictionError(
                f"{group.noun} {number} forbids every assignment that is left: the hard "
                "constraints (and evidence) contradict, so every assignment has probability zero"
            )
        gone = at[np.isneginf(out) & (self.alive[at] > 0)]
        self.alive[gone] = 0
        bare = np.maximum.reduceat(self.alive, self.off[:-1]) == 0
        if bare.any():
            raise self._empty(int(np.argmax(bare)))
        return len(gone) > 0

    def _empty(self, v: int) -> ContradictionError:
        return ContradictionError(
            f"variable {self.graph.name(v)} has no state left: the hard constraints (and "
            "evidence) exclude them all, so every assignment has probability zero"
        )


def _cells(groups: list[FactorGroup]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where each factor's table begins, and what tables allow; of label distances, patterns."""
    toff, parts, used = [], [], 0
    for g in groups:
        taps = g.label_taps()
        allowed = (g.stored_tables() if taps is None else taps) > -np.inf
        which = np.arange(len(g)) if len(allowed) > 1 else np.zeros(len(g), dtype=np.int64)
        if taps is not None:  # few patterns, which are written out
            allowed, alike = np.unique(allowed, axis=0, return_inverse=True)
            which = alike.ravel()[which]
            apart = np.abs(np.arange(g.shape[0])[:, None] - np.arange(g.shape[1]))
            allowed = allowed[:, np.minimum(apart, allowed.shape[1] - 1)].reshape(len(allowed), -1)
        toff.append(used + which * allowed.shape[1])
        parts.append(allowed.ravel().view(np.uint8))
        used += allowed.size
    return join(toff, np.int64), join(parts, np.uint8)
