"""Logical factors: everything that follows from a finite automaton over literals.

A *literal* is "this variable is in that state", or not. A logical factor reads its literals one
after the other with a finite automaton, and its value is a log-weight of the state the automaton
ends in (:class:`~minfer.factors.group.Machine`). Two states do for clauses, exactly-one, parity and
for gates with an output; counting needs one for each count that matters.

A kind says its automaton (:meth:`Logical.automaton`) and what its numbers are; the rest is here.
All messages of a factor cost time linear in its arity (:mod:`minfer.kernels.messages.automata`):
sums of products of probabilities, no 1 - prod q, so nothing cancels.

Evidence leaves an automaton: a known literal that may be read first moves the start, one that may
be read last is folded into the weights of the end states (:class:`Automata`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import (
    Scopes,
    integers,
    per_factor,
    real_numbers,
    scope_array,
    scope_list,
    told,
    unique_rows,
)
from minfer.errors import ModelError
from minfer.factors.group import (
    MAX_LOG,
    Entry,
    FactorGroup,
    Floats,
    Get,
    Ints,
    Machine,
    Mask,
    OneWeight,
    Tables,
    all_cells,
    difference,
    one_or_all,
    read_only,
)

if TYPE_CHECKING:
    from minfer.model.states import Variables

_CHUNK = 1 << 25  # entries of one boolean array
_AT_ONCE = 1 << 22  # entries of steps in a file, states times positions


@dataclass(frozen=True, eq=False)
class Logical(FactorGroup):
    """F factors over literals that one automaton reads; subclasses say which.

    Literal a of factor f is "its variable a is in state ``literal[f, a]``", negated where
    ``flip[a]``; a negated literal of a binary variable is written as the other state.
    """

    shape: tuple[int, ...]  # (S_1, ..., S_A)
    _literal: NDArray[np.int32]  # (F, A)
    flip: Mask  # (A,)

    form = "machine"
    per_factor: ClassVar[tuple[str, ...]] = ("_literal",)
    #: Names of the arrays with a row per factor that files hold beside the literals, all float64.
    numbers: ClassVar[tuple[str, ...]] = ()

    def automaton(self) -> tuple[NDArray, Floats]:
        """Steps (A, K, 2), or (K, 2) for all positions, from state 0 on; end weights (F or 1, K).

        ``step[a, k, l]`` is the state after literal a is read as l in state k, -1: forbidden.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define its automaton")

    @property
    def literal(self) -> NDArray[np.int32]:
        """The states that make the literals true (false where ``flip``), shape (F, A)."""
        return read_only(self._literal)

    def has_structure_of(self, other: FactorGroup) -> bool:
        if not super().has_structure_of(other):
            return False
        a, b = self.machine(), other.machine()
        return all(np.array_equal(x, y) for x, y in zip(a[:3], b[:3])) and a.final.shape == (
            b.final.shape
        )

    def machine(self) -> Machine:
        step, final = self.automaton()
        step = np.asarray(step, dtype=np.int32)
        if step.ndim == 2:
            step = np.broadcast_to(step, (self.arity, *step.shape))
        if self.flip.any():
            step = np.where(self.flip[:, None, None], step[:, :, ::-1], step)
        start = np.zeros(len(self), dtype=np.int32)
        return Machine(step, self._literal, start, np.asarray(final, dtype=np.float64))

    def ends(self, rows: Ints, states: Ints) -> NDArray[np.int32]:
        """The state the automata of ``rows`` (n,) end in at ``states`` (n, A); -1: forbidden."""
        step, literal, start, _ = self.machine()
        at = start[rows]
        read = (states == literal[rows]).astype(np.int64)
        for a in range(self.arity):
            at = np.where(at < 0, np.int32(-1), step[a, at, read[:, a]])
        return at

    def score(self, rows: Ints, states: Ints) -> Floats:
        final, at = self.machine().final, self.ends(rows, states)
        which = np.zeros(len(rows), dtype=np.int64) if len(final) == 1 else rows
        return np.where(at < 0, -np.inf, final[which, at])

    def statistics(self, joint: Floats) -> Floats:
        cells, n_ends = all_cells(self.shape), self.machine().final.shape[1] + 1
        out = np.zeros((len(self), n_ends))  # the last one: forbidden
        some = max(1, _CHUNK // max(len(cells) * self.arity, 1))
        for lo in range(0, len(self), some):
            rows = np.arange(lo, min(lo + some, len(self)))
            at = self.ends(np.repeat(rows, len(cells)), np.tile(cells, (len(rows), 1)))
            place = np.repeat(rows - lo, len(cells)) * n_ends + at % n_ends
            mass = np.bincount(place, joint[rows].ravel(), minlength=len(rows) * n_ends)
            out[rows] = mass.reshape(len(rows), n_ends)
        return self.end_statistics(np.ascontiguousarray(out[:, :-1]))

    def messages(self, rows: Ints, incoming: Floats, out: Floats, best: bool = False) -> Floats:
        from minfer.kernels.messages.automata import all_messages

        m, log_z = self.machine(), np.empty(len(rows))
        final = m.final if len(m.final) == 1 else m.final[rows]
        all_messages(
            np.require(m.step, np.int32, ["C", "W"]), m.literal[rows], m.start[rows],
            np.require(final, np.float64, ["C", "W"]), np.array(self.shape, dtype=np.int64),
            np.require(incoming, np.float64, ["C", "W"]), out, log_z, best,
        )  # fmt: skip
        return log_z

    def forbids(self) -> Mask:
        machine = self.machine()
        if not _may_forbid(machine):
            return np.zeros(len(self), dtype=bool)
        reach, dead = self._reached(machine)
        return dead | (reach & np.isneginf(machine.final)).any(axis=1)

    def spread(self) -> Floats:
        machine = self.machine()
        reach, dead = self._reached(machine)
        top = np.where(reach, machine.final, -np.inf).max(axis=1, initial=-np.inf)
        least = np.where(reach, machine.final, np.inf).min(axis=1, initial=np.inf)
        return difference(top, np.where(dead, -np.inf, least))

    def _reached(self, machine: Machine) -> tuple[Mask, Mask]:
        """Which states the automata can end in, (F, K); whether something is forbidden, (F,)."""
        reach = machine.start[:, None] == np.arange(machine.final.shape[1])
        dead = np.zeros(len(self), dtype=bool)
        for step in machine.step:
            reach, fell = _advance(reach, step, np.ones((len(self), 2), dtype=bool))
            dead |= fell
        return reach, dead

    def _values(self) -> Floats:
        return self.machine().final

    def simplified(self) -> list[FactorGroup]:
        return [self.as_tables()] if self.arity <= 2 else [self]

    def as_automata(self) -> Automata:
        """The same factors, known by their automaton alone."""
        step, literal, start, final = self.machine()
        return Automata(
            self._ids, self._scope, self.shape, literal, np.zeros(self.arity, dtype=bool), step,
            start, final,
        )  # fmt: skip

    def without_zeros(self, which: Mask) -> FactorGroup:
        if not (self.forbids() & which).any():
            return self
        auto = self.as_automata()
        n_ends = auto._final.shape[1]  # one more state: what was forbidden
        step = np.where(auto._step < 0, n_ends, auto._step)
        step = np.concatenate([step, np.full((self.arity, 1, 2), n_ends, np.int32)], axis=1)
        final = np.broadcast_to(auto._final, (len(self), n_ends))
        final = np.concatenate([final, np.full((len(self), 1), -np.inf)], axis=1)
        final = np.where(np.isneginf(final) & which[:, None], 0.0, final)
        return auto.replace(_step=step.astype(np.int32), _final=final)

    def support(self) -> FactorGroup:
        auto = self.as_automata()
        return auto.replace(_final=np.where(auto._final > -np.inf, 0.0, -np.inf))

    def sliced(self, touched: Mask, fixed: NDArray[np.int32]) -> list[FactorGroup]:
        """As every group's; where all literals are alike, one part for each number that is left."""
        step = self.machine().step
        hit = touched[self._scope]
        if len(set(self.shape)) > 1 or not _alike(step) or not hit.any():
            return super().sliced(touched, fixed)
        parts: list[FactorGroup] = []
        left = self.arity - hit.sum(axis=1)
        for n in np.unique(left).tolist():
            rows = np.flatnonzero(left == n)
            if n == self.arity:
                parts.append(self.take(rows, self._ids[rows]))
                continue
            order = np.argsort(~hit[rows], axis=1, kind="stable")  # the known ones first
            part = self.as_automata().take(rows, self._ids[rows])
            part = part.replace(
                _scope=np.take_along_axis(part._scope, order, axis=1),
                _literal=np.take_along_axis(part._literal, order, axis=1),
            )
            known = np.arange(self.arity) < self.arity - n
            parts += part._slice(np.arange(len(rows)), known, fixed[part._scope[:, known]])
        return parts

    @property
    def _excludes(self) -> bool:
        return _may_forbid(self.machine())

    def exclude(self, log_field: Floats, offsets: Ints) -> None:
        machine = self.machine()
        if not _may_forbid(machine):
            return
        first = offsets[self._scope]  # (F, A)
        allowed = np.zeros((*first.shape, 2), dtype=bool)  # values that literals may have
        for a, size in enumerate(self.shape):
            for s in range(size):
                here = log_field[first[:, a] + s] > -np.inf
                is_literal = self._literal[:, a] == s
                allowed[:, a, 1] |= here & is_literal
                allowed[:, a, 0] |= here & ~is_literal
        possible = np.empty_like(allowed)
        some = max(1, _CHUNK // max((self.arity + 1) * machine.final.shape[1], 1))
        for lo in range(0, len(self), some):
            rows = slice(lo, lo + some)
            _possible(machine, rows, allowed[rows], possible[rows])
        if np.array_equal(possible, allowed):
            return
        for a, size in enumerate(self.shape):
            for s in range(size):
                value = (self._literal[:, a] == s).astype(np.int64)
                never = ~possible[np.arange(len(self)), a, value]
                log_field[first[never, a] + s] = -np.inf

    def _slice(self, rows: Ints, known: Mask, states: NDArray[np.int32]) -> list[FactorGroup]:
        part = self.as_automata().take(rows, self._ids[rows])
        read = (states == part._literal[:, known]).astype(np.int32)  # (n, positions)
        return [g for sliced in part.after(known, read) for g in sliced.simplified()]

    def scores(self, probs: Floats, offsets: Ints, score: str, out: NDArray) -> None:
        from minfer.kernels.messages import automata as k
        from minfer.kernels.scores import gains

        step, literal, start, final = self.machine()
        step = np.ascontiguousarray(step)
        ends = np.zeros((len(self), final.shape[1] + 1))  # under the product; the last: forbidden
        k.end_distributions(step, literal, start, self._scope, probs, offsets, ends)
        if score == "residual":
            final = np.broadcast_to(final, (len(self), final.shape[1])).copy()
            k.residuals(step, literal, start, final, self._scope, probs, offsets, ends, out)
            return
        if score == "gain" and final.shape[1] == 2 and not _may_forbid(self.machine()):
            theta = np.broadcast_to(final[:, 1] - final[:, 0], (len(self),)).copy()
            gains.feature_gains(ends[:, 1].copy(), ends[:, 0].copy(), theta, out)
            return
        final = np.concatenate([final, np.full((len(final), 1), -np.inf)], axis=1)
        (gains.table_gains if score == "gain" else gains.table_reverse_gains)(ends, final, out)

    def check(self, n_states: NDArray[np.int32]) -> None:
        super().check(n_states)
        n, arity = self._scope.shape
        if self._literal.shape != (n, arity) or self.flip.shape != (arity,):
            raise ModelError(f"{n} {self.noun}s of {arity} literals: literals do not fit")
        bad = ((self._literal < 0) | (self._literal >= n_states[self._scope])).any(axis=1)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ModelError(
                f"factor {int(self._ids[row])}: its literals are states "
                f"{self._literal[row].tolist()}, but its variables have "
                f"{n_states[self._scope[row]].tolist()} states, counted from 0"
            )
        step, _, start, final = self.machine()
        n_ends = step.shape[1]
        if step.shape != (arity, n_ends, 2) or final.shape not in ((1, n_ends), (n, n_ends)):
            raise ModelError(f"{self.noun}: steps {step.shape} and weights {final.shape}")
        if start.shape != (n,) or (n and not 0 <= start.min() <= start.max() < n_ends):
            raise ModelError(f"{self.noun}: an automaton starts in a state it does not have")
        if step.size and not -1 <= step.min() <= step.max() < n_ends:
            raise ModelError(f"{self.noun}: a step leads to a state that does not exist")
        bad = ~((np.abs(final) < MAX_LOG) | (final == -np.inf))
        if bad.any():
            row = int(np.flatnonzero(bad.any(axis=1))[0])
            raise ModelError(
                f"factor {int(self._ids[row])}: a weight of this {self.noun} is "
                f"{final[row][bad[row]][0]}; weights are within 1e300, or minus infinity"
            )

    def describe(self, put: Callable[[str, NDArray], None]) -> dict[str, Any]:
        put("literal", self._literal.astype("<i4"))
        put("flip", self.flip.astype("|u1"))
        for name in self.numbers:
            put(name.lstrip("_"), getattr(self, name).astype("<f8"))
        return {}

    @classmethod
    def _fields(cls, n: int, shape: tuple[int, ...], get: Get, entry: Entry) -> tuple[Any, ...]:
        literal = get("literal", "<i4", [n, len(shape)])
        flip = get("flip", "|u1", [len(shape)])
        if flip.size and flip.max() > 1:
            raise ModelError("signs of literals are 0 or 1")
        values = [get(name.lstrip("_"), "<f8", [n]) for name in cls.numbers]
        return shape, literal, flip.astype(bool), *values


@dataclass(frozen=True, eq=False)
class Weighted(OneWeight, Logical):
    """Two end states, 0 and 1; weight w where the factor ends in 1 (it is *true*), else 0.

    Infinite: hard, and the weight is 0 where it is true and minus infinity where it is false.
    """

    _theta: Floats  # (F,)

    per_factor: ClassVar[tuple[str, ...]] = ("_literal", "_theta")
    numbers = ("_theta",)

    def end_weights(self) -> Floats:
        """Of the two end states, (F, 2)."""
        final, hard = np.zeros((len(self), 2)), np.isinf(self._theta)
        final[:, 1] = np.where(hard, 0.0, self._theta)
        final[hard, 0] = -np.inf
        return final

    def end_statistics(self, ends: Floats) -> Floats:
        return ends[:, 1:2]

    def check_numbers(self) -> None:
        good = (np.abs(self._theta) < MAX_LOG) | (self._theta == np.inf)
        if self._theta.shape != (len(self),) or not good.all():
            row = int(np.flatnonzero(~good)[0]) if self._theta.shape == good.shape else 0
            raise ModelError(
                f"factor {int(self._ids[row])}: the weight of {self._a_noun} must be a number "
                f"within 1e300, or infinity for a hard one, not {self._theta.ravel()[row]}"
            )


@dataclass(frozen=True, eq=False)
class Automata(Logical):
    """Logical factors given by their automaton: what evidence leaves of the other kinds."""

    _step: NDArray[np.int32]  # (A, K, 2)
    _start: NDArray[np.int32]  # (F,)
    _final: Floats  # (F or 1, K)

    kind = "automaton"
    per_factor = ("_literal", "_start", "_final")

    def machine(self) -> Machine:
        return Machine(self._step, self._literal, self._start, self._final)

    @property
    def n_weights(self) -> int:
        return self._final.shape[1]

    @property
    def weights(self) -> Floats:
        return read_only(np.broadcast_to(self._final, (len(self), self.n_weights)))

    def with_weights(self, weights: Floats) -> Automata:
        return self.replace(_final=np.ascontiguousarray(weights))

    def end_statistics(self, ends: Floats) -> Floats:
        return ends

    def simplified(self) -> list[FactorGroup]:
        """Tables for up to two variables and for factors that have become constant."""
        if self.arity <= 2:
            return [self.as_tables()]
        machine = self.machine()
        final, (reach, dead) = machine.final, self._reached(machine)
        high = np.where(reach, final, -np.inf).max(axis=1)
        low = np.where(reach, final, np.inf).min(axis=1)
        constant = (~dead & (high == low)) | ~reach.any(axis=1)
        if not constant.any():
            return [self]
        value = np.where(reach.any(axis=1), high, -np.inf)
        rows, rest = np.flatnonzero(constant), np.flatnonzero(~constant)
        table = Tables(self._ids[rows], self._scope[rows][:, :0], (), value[rows, None])
        return [table, self.take(rest, self._ids[rest])] if len(rest) else [table]

    def after(self, known: Mask, read: NDArray[np.int32]) -> list[Automata]:
        """With the literals ``known`` (A,) read as ``read`` (F, known), and gone."""
        step, literal, start, final = self.machine()
        arity, n = self.arity, len(self)
        value = np.zeros((n, arity), dtype=np.int32)
        value[:, known] = read
        free = [a for a in range(arity) if not known[a]]
        kept = {a: step[a] for a in free}
        split: list[int] = []  # may be read neither first nor last
        late: list[int] = []
        for a in np.flatnonzero(known).tolist():
            if all(_commute(step[a], step[b]) for b in free if b < a):
                start = np.where(start < 0, np.int32(-1), step[a, start, value[:, a]])
            elif all(_commute(step[a], step[b]) for b in free if b > a):
                late.append(a)
            else:
                split.append(a)
        if split:  # the same values throughout: part of the step before
            patterns, which = np.unique(value[:, split], axis=0, return_inverse=True)
            if len(patterns) > 1:
                parts = []
                for p in range(len(patterns)):
                    rows = np.flatnonzero(which.ravel() == p)
                    parts += self.take(rows, self._ids[rows]).after(known, read[rows])
                return parts
            for a in split:
                before = max(b for b in free if b < a)
                then = np.append(step[a][:, patterns[0, split.index(a)]], np.int32(-1))
                kept[before] = then[kept[before]].astype(np.int32)
        for a in reversed(late):
            final = np.broadcast_to(final, (n, final.shape[1]))
            then = step[a][:, value[:, a]].T  # (n, K)
            here = np.take_along_axis(final, np.maximum(then, 0), axis=1)
            final = np.where(then < 0, -np.inf, here)
        dead = start < 0
        if dead.any():  # nothing is allowed any more
            final = np.where(dead[:, None], -np.inf, np.broadcast_to(final, (n, final.shape[1])))
            start = np.where(dead, np.int32(0), start)
        steps = np.array([kept[a] for a in free], dtype=np.int32)
        return [
            Automata(
                self._ids, np.ascontiguousarray(self._scope[:, ~known]),
                tuple(s for s, k in zip(self.shape, known) if not k),
                np.ascontiguousarray(literal[:, ~known]), np.zeros(len(free), dtype=bool),
                steps.reshape(len(free), *step.shape[1:]), start.astype(np.int32),
                np.ascontiguousarray(final),
            )
        ]  # fmt: skip

    def describe(self, put: Callable[[str, NDArray], None]) -> dict[str, Any]:
        put("literal", self._literal.astype("<i4"))
        put("step", self._step.astype("<i4"))
        put("start", self._start.astype("<i4"))
        put("final", self._final.astype("<f8"))
        return {"rows": len(self._final), "states": self._final.shape[1]}

    @classmethod
    def _fields(cls, n: int, shape: tuple[int, ...], get: Get, entry: Entry) -> tuple[Any, ...]:
        rows = one_or_all(entry.get("rows"), n, "rows of end weights")
        n_ends = entry.get("states")
        if type(n_ends) is not int or not 1 <= n_ends * max(len(shape), 1) <= _AT_ONCE:
            raise ModelError(f"an automaton of {str(n_ends)[:40]} states")
        literal = get("literal", "<i4", [n, len(shape)])
        step = get("step", "<i4", [len(shape), n_ends, 2])
        start, final = get("start", "<i4", [n]), get("final", "<f8", [rows, n_ends])
        return shape, literal, np.zeros(len(shape), dtype=bool), step, start, final


def _may_forbid(machine: Machine) -> bool:
    return bool((machine.step < 0).any() or np.isneginf(machine.final).any())


def _advance(reach: Mask, step: NDArray[np.int32], allowed: Mask) -> tuple[Mask, Mask]:
    """States (n, K) that one step leads to, and which rows may have died in it."""
    out, dead = np.zeros_like(reach), np.zeros(len(reach), dtype=bool)
    for k in range(reach.shape[1]):
        for value in range(2):
            here = reach[:, k] & allowed[:, value]
            if step[k, value] < 0:
                dead |= here
            else:
                out[:, step[k, value]] |= here
    return out, dead


def _possible(machine: Machine, rows: slice, allowed: NDArray, out: NDArray) -> None:
    """Which values of literals some allowed assignment has, (n, A, 2) into ``out``.

    Forward over the states, then back.
    """
    step, _, start, final = machine
    n_ends, arity = final.shape[1], len(step)
    reach = [start[rows][:, None] == np.arange(n_ends)]
    for a in range(arity):
        reach.append(_advance(reach[-1], step[a], allowed[:, a])[0])
    good = np.broadcast_to(final if len(final) == 1 else final[rows], reach[0].shape) > -np.inf
    nowhere = np.zeros((len(out), 1), dtype=bool)
    for a in range(arity - 1, -1, -1):
        good = np.concatenate([good, nowhere], axis=1)  # state -1 is the last column
        each = [good[:, step[a, :, value]] & allowed[:, a, value, None] for value in range(2)]
        for value in range(2):
            out[:, a, value] = (reach[a] & each[value]).any(axis=1)
        good = each[0] | each[1]


def _alike(step: NDArray[np.int32]) -> bool:
    """Whether all positions have one step, and it commutes with itself."""
    return bool(len(step)) and bool((step == step[:1]).all()) and _commute(step[0], step[0])


def _commute(a: NDArray[np.int32], b: NDArray[np.int32]) -> bool:
    """Whether two literals may be read in either order, from whatever state."""
    a_, b_ = np.vstack([a, [-1, -1]]), np.vstack([b, [-1, -1]])  # state -1 stays
    return all(np.array_equal(b_[a[:, i], j], a_[b[:, j], i]) for i in range(2) for j in range(2))


def logical_groups(
    variables: Variables,
    first: int,
    kind: type[Logical],
    scopes: Scopes,
    signs: Scopes | None,
    states: Scopes | None,
    fields: Callable[[Ints, int, int], dict[str, Any]] | None,
) -> list[Logical]:
    """Factors with numbers from ``first`` on, checked; see ``FactorGraph.add_logical``."""
    if not (isinstance(kind, type) and issubclass(kind, Logical)) or not kind.kind:
        raise ModelError(
            "add_logical takes a subclass of minfer.factors.Logical with a name, its kind, "
            f"not {told(kind)}"
        )
    listed = _logical_scopes(scopes, first)
    if isinstance(listed, np.ndarray):
        arities = np.full(len(listed), listed.shape[1])
    else:
        arities = np.array([s.size for s in listed], dtype=np.int64)
    groups: list[Logical] = []
    for arity in np.unique(arities).tolist():
        rows = np.flatnonzero(arities == arity)
        if isinstance(listed, np.ndarray):
            scope = listed
        else:
            scope = scope_array(np.array([listed[i] for i in rows]).reshape(len(rows), arity))
        variables._check_scopes(scope, first + rows)
        literal, flip = _literals(variables, first + rows, scope, signs, states, rows, len(listed))
        key = np.concatenate([variables._n_states[scope], flip], axis=1)
        for_all, which = unique_rows(key)
        for k, pattern in enumerate(for_all):
            r = np.flatnonzero(which == k)
            more = fields(rows[r], len(listed), arity) if fields else {}
            try:
                group = kind(
                    _ids=first + rows[r], _scope=scope[r],
                    shape=tuple(int(s) for s in pattern[:arity]), _literal=literal[r],
                    flip=pattern[arity:].astype(bool), **more,
                )  # fmt: skip
                group.check(variables._n_states)
            except (TypeError, IndexError, NotImplementedError) as error:
                raise ModelError(
                    f"add_logical: {kind.__name__}: {error}; automaton() returns steps (K, 2) "
                    "or (A, K, 2) and log-weights (1 or F, K), fields= gives further fields"
                ) from error
            groups.append(group)
    return groups


def _literals(
    variables: Variables,
    ids: Ints,
    scope: NDArray[np.int32],
    signs: Any,
    states: Any,
    rows: Ints,
    n: int,
) -> tuple[NDArray[np.int32], Mask]:
    """States that make literals true, and which are to be negated all the same, (F, A)."""
    cards = variables._n_states[scope]
    literal = _like_scopes(1 if states is None else states, scope, rows, n, ids, "states")
    bad = ((literal < 0) | (literal >= cards)).any(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ModelError(
            f"factor {int(ids[row])}: its literals are states {literal[row].tolist()}, but "
            f"its variables {variables._scope_text(scope[row])} have {cards[row].tolist()} states, "
            "counted from 0; states= says which state makes a literal true"
        )
    sign = _like_scopes(1 if signs is None else signs, scope, rows, n, ids, "signs")
    if sign.dtype == bool:
        sign = np.where(sign, 1, -1)
    bad = (np.abs(sign) != 1).any(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ModelError(
            f"factor {int(ids[row])}: signs must be 1 and -1, or bools, not {sign[row].tolist()}"
        )
    negative = sign < 0
    literal = np.where(negative & (cards == 2), 1 - literal, literal)
    return literal.astype(np.int32), negative & (cards != 2)


def _logical_scopes(scopes: Any, first: int) -> Any:
    """Scopes (F, A) as one array, scopes of different lengths as a list of arrays."""
    try:
        array = scopes if isinstance(scopes, np.ndarray) else np.asarray(scopes)
    except (ValueError, TypeError):
        array = np.zeros(0)
    if array.ndim == 2 and array.size:
        return scope_array(scopes)
    return scope_list(scopes, first)


def _like_scopes(
    values: Any, scope: NDArray, rows: Ints, n: int, first: NDArray, what: str
) -> NDArray:
    """One number for all literals, or numbers of the same shape as the scopes, at some rows."""
    if getattr(values, "ndim", 1) == 0 or not hasattr(values, "__len__"):
        return np.broadcast_to(integers(values, what, bools=True), scope.shape)
    if len(values) != n:
        raise ModelError(f"{n} scopes but {len(values)} rows of {what}")
    if isinstance(values, np.ndarray) and values.ndim == 2:
        picked: Any = values[rows]
    elif not isinstance(values, (Sequence, np.ndarray)):
        raise ModelError(f"{what} must be numbers of the same shape as the scopes")
    else:
        picked = [values[i] for i in rows.tolist()]
        for k, row in enumerate(picked):
            if np.shape(row) != scope[k].shape:
                raise ModelError(
                    f"factor {int(first[k])}: {scope.shape[1]} literals but {what} of shape "
                    f"{np.shape(row)}"
                )
    array = integers(picked, what, bools=True).reshape(len(rows), -1)
    if array.shape != scope.shape:
        raise ModelError(f"{what} have shape {array.shape[1:]} a factor, not {scope.shape[1:]}")
    return array


def weight_fields(
    kind: type[Logical], weights: ArrayLike, more: Callable[..., dict[str, Any]] | None = None
) -> Callable[[Ints, int, int], dict[str, Any]]:
    """What a kind with a weight for each factor has beside its scopes."""
    theta = real_numbers(weights, f"{kind.kind}: weights")
    if theta.dtype == bool:
        raise ModelError(
            f"{kind.kind}: a weight must be a number, or infinity for a hard factor, not "
            f"{told(weights)}; other flags go by their names, as in odd=True"
        )

    def numbers(rows: Ints, n: int, arity: int) -> dict[str, Any]:
        mine = {"_theta": per_factor(theta, n, "weights", float)[rows]}
        return mine | (more(rows, n) if more else {})

    return numbers


def gate_scopes(inputs: Any, output: ArrayLike) -> Any:
    """Scopes of gates: the inputs, then the output."""
    out = integers(output, "output")
    listed = _logical_scopes(inputs, 0)
    if out.shape != (len(listed),):
        raise ModelError(f"{len(listed)} gates but outputs of shape {out.shape}")
    if isinstance(listed, np.ndarray):
        return np.concatenate([listed, out[:, None]], axis=1)
    return [np.append(s, o) for s, o in zip(listed, out)]
