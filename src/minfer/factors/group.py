"""What every kind of factor is: a group of factors of one shape that owns its mathematics.

A group is a struct of arrays over F factors: their numbers ``ids``, their ``scope`` (F, A) and
whatever numbers the kind has. No object per factor. Solvers iterate over groups and ask them, by
the methods below, for one of three *forms*, and have compiled code for each:

* ``table``: dense log-tables (:meth:`FactorGroup.log_tables`), row-major over the scope, the last
  variable fastest; minus infinity is legal (a hard constraint). Those over two binary variables
  without zeros go on as odds (:meth:`FactorGroup.pair_values`);
* ``machine``: a finite automaton that reads one literal of each variable in turn
  (:class:`Machine`); all messages of a factor take time linear in its arity;
* ``messages``: neither, but the group computes its own messages, all its factors in one call
  (:meth:`FactorGroup.messages`). Only belief propagation can use these (and ``Exact`` where they
  are small enough for a table); other solvers refuse them with advice.

A new kind is a subclass in a file of its own. It must say its ``shape`` and :meth:`score`; every
other method has a default that goes through ``score`` or tables, so a kind overrides what it knows
better. Subclasses register themselves under their ``kind``, the name files use.

Arrays handed out are read-only views; kernels get the writable base arrays (names with an
underscore), because numba compiles a second version of a kernel for read-only input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from minfer.basics.words import a_or_an
from minfer.errors import ModelError

MAX_LOG = 1e300  # of an entry of a log-table or a weight: larger ones overflow when added up
#: Cells up to which a factor that is not a table may be written out as one.
MAX_TABLE_CELLS = 1 << 16
_CHUNK = 1 << 22  # cells of joints held at a time
_FEW_LINKS = 300  # and variables: a plain loop takes less time than scipy

#: Every kind of factor by the name files use.
KINDS: dict[str, type[FactorGroup]] = {}

Group = TypeVar("Group", bound="FactorGroup")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Rows = Ints | slice
#: Reads an array of a file by its name, type and shape.
Get = Callable[[str, str, list[int]], NDArray]
Entry = dict[str, Any]


def read_only(array: NDArray) -> NDArray:
    """A view that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view


def n_entries(shape: Sequence[int]) -> int:
    """Entries of a table of this shape, as a Python integer that cannot overflow."""
    return prod(int(s) for s in shape)


def all_cells(shape: Sequence[int]) -> Ints:
    """The states of every cell of a table, shape (cells, A)."""
    return np.indices(shape).reshape(len(shape), n_entries(shape)).T


def interaction(log_tables: NDArray) -> NDArray:
    """w = (t11 - t10) - (t01 - t00) of log-tables (..., 4): of a 2x2 table, its non-unary part.

    With e^w = psi11 psi00 / (psi01 psi10) and two unaries it is all of a positive table
    (:func:`minfer.kernels.messages.wiring.split_pair` is the same for kernels).
    """
    t = log_tables
    return (t[..., 3] - t[..., 2]) - (t[..., 1] - t[..., 0])


def _over(logs: Floats, axes: tuple[int, ...], best: bool) -> Floats:
    """Logs of sums, or maxima, over some axes."""
    if not axes:
        return logs
    top = logs.max(axis=axes, keepdims=True)
    if not best:
        with np.errstate(divide="ignore"):
            safe = np.where(top > -np.inf, top, 0.0)
            top = safe + np.log(np.exp(logs - safe).sum(axis=axes, keepdims=True))
    return top.squeeze(axes)


def difference(top: Floats, least: Floats) -> Floats:
    """top - least, infinite where the least is minus infinity."""
    finite = least > -np.inf
    return np.where(finite, top - np.where(finite, least, 0.0), np.inf)


class Machine(NamedTuple):
    """A group of factors as finite automata with K states over A literals.

        log psi(x) = final[ step[A-1, ... step[1, step[0, start, l_0], l_1] ..., l_{A-1}] ]

    l_a is 1 where the variable at position a is in its state ``literal[a]``. Positions that share
    their ``step`` may be read in any order.
    """

    step: NDArray[np.int32]  # (A, K, 2) the state after reading l = 0 or 1; -1: forbidden
    literal: NDArray[np.int32]  # (F, A) the state of each variable that makes its literal true
    start: NDArray[np.int32]  # (F,)
    final: Floats  # (F, K) log-weights, or (1, K) for all


@dataclass(frozen=True, eq=False)
class FactorGroup:
    """F factors of one kind and shape; see the module's text."""

    _ids: Ints  # (F,) numbers in the graph, increasing
    _scope: NDArray[np.int32]  # (F, A)

    kind: ClassVar[str] = ""
    noun: ClassVar[str] = ""  #: What one of these is called; its kind where that is not said.
    form: ClassVar[str] = "table"
    #: Fields with a row for each factor, or one for all, beside ids and scope.
    per_factor: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        name = cls.__dict__.get("kind")
        if name:
            known = KINDS.get(name)
            ours = known is not None and known.__module__.startswith("minfer.")
            if ours and not cls.__module__.startswith("minfer."):
                raise ModelError(
                    f"the kind of factor {name!r} is reserved for minfer: choose another name"
                )
            KINDS[name] = cls
            if "noun" not in cls.__dict__:
                cls.noun = name

    # ------------------------------------------------------------------ looking

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Ints:
        return read_only(self._ids)

    @property
    def scope(self) -> NDArray[np.int32]:
        return read_only(self._scope)

    @property
    def arity(self) -> int:
        return self._scope.shape[1]

    if TYPE_CHECKING:  # a field of some kinds, a property of others

        @property
        def shape(self) -> tuple[int, ...]:
            """States of the variables, (S_1, ..., S_A)."""
            ...

    @property
    def _span(self) -> slice | Ints:
        """Where these factors are in an array over all: a slice if their numbers follow on."""
        first, last = int(self._ids[0]), int(self._ids[-1])
        return slice(first, last + 1) if last - first + 1 == len(self) else self._ids

    @property
    def n_cells(self) -> int:
        """Cells of a table of this shape."""
        return n_entries(self.shape)

    @property
    def has_tables(self) -> bool:
        """Whether these factors are tables, or small enough to be written as such."""
        return self.n_cells <= MAX_TABLE_CELLS

    @property
    def decomposes(self) -> bool:
        """Whether elimination takes chains (:meth:`chained`) in place of these tables, which are
        sums over states of its own: good for sums, wrong for maxima."""
        return False

    @property
    def is_conditional(self) -> bool:
        """Whether each is by nature the conditional distribution of its last variable."""
        return False

    @property
    def _a_noun(self) -> str:
        return a_or_an(self.noun)

    def has_structure_of(self, other: FactorGroup) -> bool:
        """Whether only numbers differ: the same kind of factors, in order, over the same scopes."""
        return (
            type(self) is type(other)
            and self.shape == other.shape
            and (self._ids is other._ids or np.array_equal(self._ids, other._ids))
            and (self._scope is other._scope or np.array_equal(self._scope, other._scope))
        )

    # ------------------------------------------------------------------ new groups from old

    def take(self: Group, rows: Ints, ids: Ints) -> Group:
        """Some rows as a group of their own, under new numbers."""
        own = {name: getattr(self, name) for name in self.per_factor}
        own = {name: a.take(rows, axis=0) for name, a in own.items() if len(a) == len(self)}
        # take is several times as quick as [rows]
        return self.replace(_ids=ids, _scope=self._scope.take(rows, axis=0), **own)

    def _alike(self) -> Any:
        """What groups have in common that can be :meth:`_joined`; None where they stay apart."""
        return None

    def _joined(self: Group, groups: Sequence[Group]) -> Group:
        """Groups that are alike, this one first, as one."""
        if len(groups) == 1:
            return self
        names = ("_ids", "_scope", *self.per_factor)
        each = {name: [(g, getattr(g, name)) for g in groups] for name in names}
        parts = {
            name: np.concatenate([np.broadcast_to(a, (len(g), *a.shape[1:])) for g, a in some])
            for name, some in each.items()
        }
        return self.replace(**parts)

    def replace(self: Group, **changes: Any) -> Group:
        """The same group with other fields."""
        return replace(self, **changes)

    @property
    def n_weights(self) -> int:
        """How many numbers of each factor learning may change."""
        return 0

    @property
    def weights(self) -> Floats:
        """The numbers that learning may change, shape (F, k)."""
        return np.zeros((len(self), 0))

    def with_weights(self: Group, weights: Floats) -> Group:
        """The same factors with other numbers (F, k)."""
        return self

    def basis(self) -> Floats | None:
        """(k, cells) so that log-tables are ``weights @ basis``; None where they are not linear."""
        return None

    def statistics(self, joint: Floats) -> Floats:
        """d log psi / d weights, expected under joints (n, cells): shape (n, k)."""
        return np.zeros((len(joint), 0))

    def _statistics_at(self, rows: Ints, states: Ints) -> tuple[Ints, Ints, Floats]:
        """d log psi / d weights of factors ``rows`` (n,) at states (n, A), where it is not zero.

        Answers places in rows, weights and values. Log-scores are linear in the weights, so any
        kind answers by its score.
        """
        none = np.zeros((len(self), self.n_weights))
        zero = self.with_weights(none).score(rows, states)
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
        for k in range(self.n_weights):
            unit = none.copy()
            unit[:, k] = 1.0
            value = self.with_weights(unit).score(rows, states)
            with np.errstate(invalid="ignore"):
                value = np.where(np.isfinite(value), value - zero, 0.0)
            at = np.flatnonzero(value)
            found.append((at, np.full(len(at), k), value[at]))
        return tuple(np.concatenate(part) for part in zip(*found))  # type: ignore[return-value]

    def end_statistics(self, ends: Floats) -> Floats:
        """The same from the distributions (n, K) of an automaton's end state: (n, k)."""
        return np.zeros((len(ends), 0))

    def distance_statistics(self, mass: Floats) -> Floats:
        """The same from the distributions (n, T) of how far apart two labels are."""
        return np.zeros((len(mass), 0))

    def as_tables(self, rows: Rows = slice(None)) -> Tables:
        """Some of these factors as dense tables."""
        tables = np.require(self.log_tables(rows), np.float64, ["C", "W"])
        return Tables(self._ids[rows], self._scope[rows], self.shape, tables)

    def simplified(self) -> list[FactorGroup]:
        """The same factors in forms that solvers know better, where there are some."""
        return [self]

    def without_zeros(self, which: Mask) -> FactorGroup:
        """The same, but what the factors of a mask (F,) forbid they allow; itself if nothing."""
        if not (self.forbids() & which).any():
            return self
        return self.as_tables().without_zeros(which)

    def support(self) -> FactorGroup:
        """The same zeros; everything else has weight 1."""
        return self.as_tables().support()

    # ------------------------------------------------------------------ values

    def score(self, rows: Ints, states: Ints) -> Floats:
        """log psi of the factors in ``rows`` (n,) at ``states`` (n, A) of their scopes, (n,)."""
        raise NotImplementedError(f"{type(self).__name__} does not define its score")

    def log_score(self, assignments: Ints) -> Floats:
        """The sum of all log psi at whole assignments (N, V), shape (N,)."""
        n = len(assignments)
        rows = np.tile(np.arange(len(self)), n)
        states = assignments[:, self._scope].reshape(n * len(self), self.arity)
        return self.score(rows, states).reshape(n, len(self)).sum(axis=1)

    def log_tables(self, rows: Rows = slice(None)) -> Floats:
        """Dense log-tables of some rows, shape (n, S_1 * ... * S_A)."""
        if not self.has_tables:
            raise ModelError(
                f"factor {int(self._ids[0])}, {self._a_noun} over {self.arity} variables, is too "
                f"large for a table ({MAX_TABLE_CELLS:,} cells)"
            )
        which = np.arange(len(self))[rows]
        cells = all_cells(self.shape)
        every = np.repeat(which, len(cells))
        return self.score(every, np.tile(cells, (len(which), 1))).reshape(len(which), -1)

    def stored_tables(self) -> Floats:
        """Log-tables (F, cells), or (1, cells) where one serves all."""
        return self.log_tables()

    @property
    def shared(self) -> bool:
        """Whether one stored table serves all factors."""
        return False

    def column(self, state: int) -> Floats | None:
        """log psi at one state of factors over one variable, (F,); None for zero throughout."""
        return self.log_tables()[:, state]

    def _values(self) -> Floats:
        """The different numbers that log psi can be, (F or 1, n)."""
        return self.stored_tables()

    def forbids(self) -> Mask:
        """Which factors have a zero somewhere, (F,)."""
        return np.broadcast_to(np.isneginf(self._values()).any(axis=1), (len(self),))

    @property
    def has_zeros(self) -> bool:
        """Whether any factor forbids anything."""
        return bool(self.forbids().any())

    def magnitude(self) -> Floats:
        """The size of each factor's largest finite number, (F,): for bounds on rounding."""
        values = self._values()
        size = np.where(np.isfinite(values), np.abs(values), 0.0).max(axis=1, initial=0.0)
        return np.broadcast_to(size, (len(self),))

    def spread(self) -> Floats:
        """Largest less smallest log psi of each factor, (F,); infinite where it has a zero."""
        values = self._values()
        top, least = values.max(axis=1, initial=-np.inf), values.min(axis=1, initial=np.inf)
        return np.broadcast_to(difference(top, least), (len(self),))

    # ------------------------------------------------------------------ forms

    def pair_values(self) -> tuple[Floats, Floats]:
        """2x2 log-tables as ``values @ basis``: values (F or 1, k), basis (k, 4)."""
        return self.stored_tables(), np.eye(4)  # of features and of tables that is their basis

    def label_taps(self) -> Floats | None:
        """Log psi by |x - y|, (F or 1, T), where these pairs know nothing else; None elsewhere.

        The last of the T numbers is of all larger distances too.
        """
        return None

    def machine(self) -> Machine:
        """The factors as automata, where that is their form."""
        raise NotImplementedError(f"{type(self).__name__} is not an automaton")

    @property
    def has_maxima(self) -> bool:
        """Whether :meth:`messages` can give maxima."""
        return True

    def messages(self, rows: Ints, incoming: Floats, out: Floats, best: bool = False) -> Floats:
        """All messages of the factors in ``rows`` (n,), and their log-partitions (n,).

        ``incoming`` and ``out`` are logs of shape (n, S_1 + ... + S_A); see
        :meth:`GlobalFactor.messages`. ``best``: maxima instead of sums, and the largest value.
        Solvers have compiled code for tables and automata; this is for those who ask a group.
        """
        n, ends = len(rows), np.cumsum(self.shape)
        whole = np.array(self.log_tables(rows)).reshape(n, *self.shape)
        parts = np.split(incoming, ends[:-1], axis=1)
        view = [
            q.reshape(n, *(-1 if b == a else 1 for b in range(self.arity)))
            for a, q in enumerate(parts)
        ]
        for a, end in enumerate(ends):
            rest = whole + sum(q for b, q in enumerate(view) if b != a)
            axes = tuple(1 + b for b in range(self.arity) if b != a)
            out[:, end - self.shape[a] : end] = _over(rest, axes, best)
        whole = whole + sum(view)
        return _over(whole.reshape(n, -1), (1,), best)

    @property
    def chain_cells(self) -> int:
        """Cells of these tables, at most."""
        return 0

    def chained(self, first: int) -> tuple[list[Tables], list[int]]:
        """The factors as sums over auxiliary variables, which are numbered from ``first`` on: small
        tables whose product they are, and how many states these variables have."""
        raise NotImplementedError(f"{type(self).__name__} has no chains")

    # ------------------------------------------------------------------ evidence

    def sliced(self, touched: Mask, fixed: NDArray[np.int32]) -> list[FactorGroup]:
        """The group after some variables became known: parts by which positions, each sliced there.

        ``touched`` (V,) marks variables that have just become known, ``fixed`` (V,) their states.
        """
        hit = touched.take(self._scope)  # (F, A)
        places = np.flatnonzero(hit)  # few, as a rule
        if not len(places):
            return [self]
        is_free = np.ones(len(hit), dtype=bool)
        is_free[places // self.arity] = False
        parts: list[FactorGroup] = []
        rest, rows_hit = np.flatnonzero(is_free), np.flatnonzero(~is_free)
        if len(rest):
            parts.append(self.take(rest, self._ids.take(rest)))
        for pattern, mine in patterns(hit[rows_hit]):
            rows = rows_hit[mine]
            parts += self._slice(rows, pattern, fixed[self._scope[rows][:, pattern]])
        return parts

    @property
    def _excludes(self) -> bool:
        """Whether these factors may forbid states by themselves."""
        return type(self).exclude is not FactorGroup.exclude

    def exclude(self, log_field: Floats, offsets: Ints) -> None:
        """Set states that these factors forbid by themselves to minus infinity, in place."""

    def _slice(self, rows: Ints, known: Mask, states: NDArray[np.int32]) -> list[FactorGroup]:
        """Factors in ``rows`` with positions ``known`` (A,) at ``states`` (n, positions)."""
        strides = np.array([n_entries(self.shape[k + 1 :]) for k in range(self.arity)])
        base = (states * strides[known]).sum(axis=1)
        cells = np.zeros(1, dtype=np.int64)
        for k in np.flatnonzero(~known):
            cells = (cells[:, None] + np.arange(self.shape[k]) * strides[k]).ravel()
        cells = base[:, None] + cells
        if self.shared:
            entries = self.stored_tables()[0][cells]
        else:
            entries = self.log_tables(rows)[np.arange(len(rows))[:, None], cells]
        shape = tuple(s for s, f in zip(self.shape, known) if not f)
        scope = np.ascontiguousarray(self._scope[rows][:, ~known])
        return [Tables(self._ids[rows], scope, shape, np.ascontiguousarray(entries))]

    # ------------------------------------------------------------------ scores of left-out factors

    def scores(self, probs: Floats, offsets: Ints, score: str, out: NDArray) -> None:
        """Gain, residual or reverse divergence under product marginals, into ``out`` (F,).

        ``probs`` (sum S,) and ``offsets`` (V+1,) are the marginals; the formulas are
        :mod:`minfer.reduction.gains`'.
        """
        done = 0
        for joint in self.product_joints(probs, offsets):
            rows = slice(done, done + len(joint))
            self.joint_scores(rows, joint, score, out[rows])
            done += len(joint)

    def score_bounds(self, score: str = "gain") -> Floats:
        """What each factor's score cannot exceed, whatever the marginals, (F,).

        The least is 0, at marginals that are certain. With r the factor's :meth:`spread`, a gain is
        largest where log psi takes its two extreme values only (a chord lies above e^x), and there
        at most log((e^r - 1) / r) - 1 + r / (e^r - 1), which is reached, and below r^2 / 8
        (Hoeffding's lemma) and r. The reverse divergence is the gain of 1 / psi under other
        marginals, so the same holds for it. A residual is half a variance of what is left of log
        psi: at most r^2 / 8, and w^2 / 32 for two binary variables. Infinite with zeros.
        """
        r = self.spread()
        if score != "residual":
            wide = (r > 0.1) & (r < np.inf)  # below, the formula cancels and Hoeffding's is as good
            x = np.where(wide, r, 1.0)
            rest = x * np.exp(-x) / -np.expm1(-x)  # r / (e^r - 1)
            exact = x + np.log(-np.expm1(-x) / x) - 1.0 + rest
            narrow = np.where(r == np.inf, np.inf, np.where(wide, 0.0, r) ** 2 / 8)
            return np.where(wide, exact, narrow)
        if self.form == "table" and self.shape == (2, 2):
            values, basis = self.pair_values()
            with np.errstate(invalid="ignore", over="ignore"):
                w = np.broadcast_to(interaction(values @ basis), (len(self),))
                return np.where(r < np.inf, w * w / 32, np.inf)
        with np.errstate(over="ignore"):
            return r * r / 8

    def product_joints(self, probs: Floats, offsets: Ints) -> Iterator[Floats]:
        """Product marginals over each factor's scope, (rows, cells), a chunk of rows at a time."""
        step = max(1, _CHUNK // self.n_cells)
        for start in range(0, len(self), step):
            scope = self._scope[start : start + step]
            joint = np.ones((len(scope), 1))
            for a, size in enumerate(self.shape):
                p = probs[offsets[scope[:, a]][:, None] + np.arange(size)]
                joint = (joint[:, :, None] * p[:, None, :]).reshape(len(scope), -1)
            yield joint

    def joint_scores(self, rows: slice, joint: NDArray, score: str, out: NDArray) -> None:
        """The same for some rows from the joints (rows, cells) of their variables."""
        from minfer.kernels.scores import gains as k

        tables = self.stored_tables() if self.shared else self.log_tables(rows)
        tables = np.require(tables, requirements=["C", "W"])
        if score == "gain":
            k.table_gains(joint, tables, out)
        elif score == "reverse":
            k.table_reverse_gains(joint, tables, out)
        else:
            k.table_residuals(joint, tables, np.array(self.shape, dtype=np.int64), out)

    def removal_costs(self, joint: Floats, out: Floats) -> None:
        """D(p || p without the factor) from the joints (F, cells) under p, into ``out`` (F,)."""
        from minfer.kernels.scores import gains as k

        k.table_gains(joint, np.require(-self.stored_tables(), requirements=["C", "W"]), out)

    # ------------------------------------------------------------------ checks and files

    def check_numbers(self) -> None:
        """Raise ModelError if the group's numbers are not what they must be."""

    def check(self, n_states: NDArray[np.int32]) -> None:
        """Raise ModelError if the group's numbers do not fit together or its variables."""
        if self._scope.shape != (len(self), len(self.shape)):
            raise ModelError(
                f"scopes of shape {self._scope.shape} for {len(self)} factors {self.shape}"
            )
        if (n_states[self._scope] != np.array(self.shape, dtype=np.int32)).any():
            raise ModelError(f"{self._a_noun} of shape {self.shape} does not fit its variables")
        self.check_numbers()

    def describe(self, put: Callable[[str, NDArray], None]) -> dict[str, Any]:
        """What a native file holds beside kind, count, shape, ids and scope.

        Arrays go to ``put(name, array)``, small numbers into the mapping returned.
        """
        from minfer.errors import RefusedError

        raise RefusedError(
            f"factor {int(self._ids[0])} is {self._a_noun}: that is code, not numbers, and the "
            "native format cannot hold it"
        )

    @classmethod
    def restore(
        cls, ids: Ints, scope: NDArray[np.int32], shape: tuple[int, ...], get: Get, entry: Entry
    ) -> FactorGroup:
        """The group that :meth:`describe` described; ``get(name, dtype, shape)`` reads an array.

        A file may say anything: wrong values must raise ModelError.
        """
        return cls(ids, scope, *cls._fields(len(ids), shape, get, entry))

    @classmethod
    def _fields(cls, n: int, shape: tuple[int, ...], get: Get, entry: Entry) -> tuple[Any, ...]:
        """The fields of n factors beside ids and scope, for :meth:`restore`."""
        raise ModelError(f"a {cls.kind} cannot be read from a file")


def one_or_all(rows: Any, n: int, what: str) -> int:
    """How many rows a file says there are: one for all n factors, or one for each."""
    if type(rows) is not int or rows not in (1, n):
        raise ModelError(f"{str(rows)[:40]} {what} for {n} factors")
    return rows


class OneWeight(FactorGroup):
    """Factors with a weight each, or one for all, in ``_theta``."""

    _theta: Floats  # (F,) or (1,)

    @property
    def theta(self) -> Floats:
        """Weights, shape (F,)."""
        return read_only(np.broadcast_to(self._theta, (len(self),)))

    @property
    def n_weights(self) -> int:
        return 1

    @property
    def weights(self) -> Floats:
        return self.theta[:, None]

    def with_weights(self: Group, weights: Floats) -> Group:
        return self.replace(_theta=np.array(weights[:, 0], dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Tables(FactorGroup):
    """F dense log-tables of one shape. ``log_psi`` has one row per factor, or one row for all."""

    shape: tuple[int, ...]  # (S_1, ..., S_A)
    _log_psi: Floats  # (F, prod S) or (1, prod S)

    kind = "table"
    per_factor = ("_log_psi",)

    @property
    def log_psi(self) -> Floats:
        """Log-tables, shape (F, S_1 * ... * S_A); a shared table is repeated without copying."""
        if not self.shared:
            return read_only(self._log_psi)
        return read_only(np.broadcast_to(self._log_psi, (len(self), self._log_psi.shape[1])))

    @property
    def shared(self) -> bool:
        return self._log_psi.shape[0] == 1 and len(self) != 1

    @property
    def has_tables(self) -> bool:
        return True

    @property
    def has_zeros(self) -> bool:
        return bool(self._log_psi.min(initial=0.0) == -np.inf)

    @property
    def n_weights(self) -> int:
        return self._log_psi.shape[1]

    @property
    def weights(self) -> Floats:
        return self.log_psi

    def with_weights(self, weights: Floats) -> Tables:
        return self.replace(_log_psi=np.ascontiguousarray(weights))

    def basis(self) -> Floats:
        return np.eye(self.n_weights)

    def statistics(self, joint: Floats) -> Floats:
        return joint

    def _statistics_at(self, rows: Ints, states: Ints) -> tuple[Ints, Ints, Floats]:
        return np.arange(len(rows)), self._cells(states.T, len(rows)), np.ones(len(rows))

    def _alike(self) -> Any:
        return Tables, self.shape

    def without_zeros(self, which: Mask) -> Tables:
        if not self.has_zeros or not which.any():
            return self
        zero = np.isneginf(self.log_psi) & which[:, None]
        return self.replace(_log_psi=np.where(zero, 0.0, self.log_psi))

    def support(self) -> Tables:
        return self.replace(_log_psi=np.where(self._log_psi > -np.inf, 0.0, -np.inf))

    def _cells(self, states: Iterable[Ints], *n: int) -> Ints:
        """Cells (*n) of states of the scope's variables, A arrays (*n)."""
        cell = np.zeros(n, dtype=np.int64)
        for size, state in zip(self.shape, states):
            cell = cell * size + state
        return cell

    def score(self, rows: Ints, states: Ints) -> Floats:
        return self.log_psi[rows, self._cells(states.T, len(rows))]

    def log_score(self, assignments: Ints) -> Floats:
        states = (assignments[:, v] for v in self._scope.T)
        cells = self._cells(states, len(assignments), len(self))
        return self.log_psi[np.arange(len(self)), cells].sum(axis=1)

    def log_tables(self, rows: Rows = slice(None)) -> Floats:
        return self.log_psi[rows]

    def stored_tables(self) -> Floats:
        return self._log_psi

    def check_numbers(self) -> None:
        n, size = self._log_psi.shape
        if n not in (1, len(self)) or size != n_entries(self.shape):
            raise ModelError(
                f"{len(self)} tables of shape {self.shape} have entries of shape {(n, size)}"
            )
        check_log_psi(self._log_psi.ravel(), np.arange(n + 1) * size, int(self._ids[0]))

    def describe(self, put: Callable[[str, NDArray], None]) -> dict[str, Any]:
        put("log_psi", self._log_psi.astype("<f8"))
        return {"rows": len(self._log_psi)}

    @classmethod
    def _fields(cls, n: int, shape: tuple[int, ...], get: Get, entry: Entry) -> tuple[Any, ...]:
        rows = one_or_all(entry.get("rows"), n, "tables")
        return shape, get("log_psi", "<f8", [rows, n_entries(shape)])


def check_log_psi(log_psi: NDArray, table_ptr: NDArray, first: int) -> None:
    """One pass for the usual case: the sum of the positive parts is NaN or inf iff an entry is."""
    if not log_psi.size or (log_psi.max() < MAX_LOG and log_psi.min() > -MAX_LOG):
        return  # max() is NaN if an entry is
    wrong = ~(np.abs(log_psi) < MAX_LOG) & (log_psi != -np.inf)
    if not wrong.any():
        return
    bad = int(np.flatnonzero(wrong)[0])
    factor = int(np.searchsorted(table_ptr, bad, side="right")) - 1
    raise ModelError(
        f"factor {first + factor}: entry {bad - int(table_ptr[factor])} of its log-table is "
        f"{log_psi[bad]}; log-tables are finite (within 1e300) or minus infinity (a zero)"
    )


def connected(n_variables: int, groups: Iterable[FactorGroup]) -> NDArray[np.int32]:
    """The connected component of each variable, numbered by first appearance, shape (V,)."""
    ends = [g._scope[:, [0, k]].T for g in groups for k in range(1, g.arity)]
    i, j = np.concatenate([np.zeros((2, 0), dtype=np.int32), *ends], axis=1)
    return components(n_variables, i, j)


def components(n: int, i: NDArray, j: NDArray) -> NDArray[np.int32]:
    """The same of n things with links (i, j)."""
    if n + len(i) > _FEW_LINKS:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        links = coo_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(n, n))
        return connected_components(links, directed=False)[1].astype(np.int32)
    root = list(range(n))  # a variable of the same component that comes before this one, or itself

    def first(v: int) -> int:
        while root[v] != v:
            root[v] = v = root[root[v]]
        return v

    for a, b in zip(i.tolist(), j.tolist()):
        a, b = first(a), first(b)
        root[max(a, b)] = min(a, b)
    number: dict[int, int] = {}
    return np.array([number.setdefault(first(v), len(number)) for v in range(n)], dtype=np.int32)


def patterns(rows: Mask) -> list[tuple[Mask, Ints]]:
    """The distinct rows of ``rows`` (n, A), in order, each with where it occurs."""
    width = rows.shape[1]
    if width > 62:
        _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    else:  # as numbers, which sort many times as fast
        code = rows @ (1 << np.arange(width)[::-1])
        _, first, which = np.unique(code, return_index=True, return_inverse=True)
    which = which.ravel()
    return [(rows[i], np.flatnonzero(which == p)) for p, i in enumerate(first)]
