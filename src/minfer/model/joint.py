"""Joint distributions of several variables: a table that knows the names of its axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import as_list, integer, load, told
from minfer.basics.notebook import Face, Faced, Right
from minfer.basics.words import and_more, counted, plain, probability
from minfer.errors import ModelError, visible
from minfer.factors.group import Floats, Ints, Mask
from minfer.model.states import state_number

_SHOWN = 20
_MOST_COLUMNS = 8  # states of what a conditional table is about, side by side
#: Conditions less probable than this are looked at in logarithms: sums of a table that is right to
#: 1e-14 of the whole are not right to 1e-9 of themselves, and below 1e-308 there are no numbers.
RARE = 1e-5


@dataclass(frozen=True, eq=False, repr=False)
class Joint(Faced):
    """P(A, B, ...), or P(A, ... | B, ...), with names.

    Attributes
    ----------
    table : float array (S_1, ..., S_k)
    variables : the names of its axes
    states : the names of the states of each axis
    given : names of the axes that are conditions; over the others each slice sums to one

    Examples
    --------
    >>> import numpy as np
    >>> from minfer.model.joint import Joint
    >>> j = Joint(
    ...     np.array([[0.1, 0.2], [0.3, 0.4]]), ("a", "b"), (("no", "yes"), ("low", "high"))
    ... )
    >>> float(j["yes", "low"]), float(j[{"b": "high"}].round(3))
    (0.3, 0.6)
    >>> float(j.conditional("a")["yes", "low"].round(4))
    0.4286
    """

    table: Floats
    variables: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    given: tuple[str, ...] = ()
    _log_evidence: Callable[[], float] | None = field(default=None)
    #: Logarithms of entries, less a constant, from their states (n, k); None where they are not
    #: known better than from the table.
    _logs: Callable[[Ints], Floats] | None = field(default=None)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.table.shape

    @property
    def log_evidence(self) -> float:
        """Log of the probability of the evidence; computed when first asked for."""
        if "_found" not in self.__dict__:
            ask = self._log_evidence
            self.__dict__["_found"] = math.nan if ask is None else float(ask())
        return self.__dict__["_found"]

    def axis(self, variable: int | str) -> int:
        """The axis of a variable given by its name, or by the axis itself."""
        if isinstance(variable, str):
            if variable in self.variables:
                return self.variables.index(variable)
        else:
            number = integer(variable)
            if number is not None and 0 <= number < len(self.variables):
                return number
        raise ModelError(
            f"this table is over {', '.join(map(visible, self.variables))}, not {told(variable)}"
        )

    def state(self, variable: int | str, state: int | str) -> int:
        """The number of a state of one of the variables."""
        a = self.axis(variable)
        names = self.states[a]
        by_name = isinstance(variable, str)
        return state_number(self.variables[a], len(names), names, state, ModelError, by_name)

    def __getitem__(self, key: Any) -> Any:
        """An entry by states, one for each variable, or the probability of {variable: state}."""
        if isinstance(key, Mapping):
            if self.given:
                raise ModelError(
                    "a conditional table is indexed by the states of all its variables"
                )
            index: list[Any] = [slice(None)] * self.table.ndim
            for variable, state in key.items():
                index[self.axis(variable)] = self.state(variable, state)
            return self.table[tuple(index)].sum()
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > self.table.ndim:
            raise ModelError(f"{len(keys)} states for {counted(self.table.ndim, 'variable')}")
        found = tuple(self.state(a, k) if isinstance(k, str) else k for a, k in enumerate(keys))
        try:
            return self.table[found]
        except (IndexError, TypeError, ValueError, OverflowError) as error:
            if all(integer(k) is not None for k in found) and isinstance(error, IndexError):
                raise  # as loops expect it at the end
            raise ModelError(f"a table is indexed by states, not {told(key)}") from None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return np.array(self.table, dtype=dtype)

    def marginal(self, *variables: int | str) -> Joint:
        """The table of some of the variables, in the order in which they are named."""
        if self.given:
            raise ModelError("marginal: take it of the joint table, before conditioning")
        axes = [self.axis(v) for v in variables]
        if len(set(axes)) < len(axes):
            raise ModelError("marginal: a variable is named twice")
        rest = tuple(a for a in range(self.table.ndim) if a not in axes)
        table = self.table.sum(axis=rest)
        left = sorted(axes)
        return self._over(table.transpose([left.index(a) for a in axes]), axes)

    def conditional(self, *given: int | str | Mapping[int | str, int | str]) -> Joint:
        """P(the others | given).

        By names, ``j.conditional("B")``: the same axes, each slice of B summing to one, NaN where
        the condition is impossible. By states, ``j.conditional({"B": "yes"})``: the table of the
        others. Of exact answers, conditions may be less probable than any number.
        """
        known: dict[int, int] = {}
        axes: list[int] = []
        for item in given:
            if isinstance(item, Mapping):
                for variable, state in item.items():
                    known[self.axis(variable)] = self.state(variable, state)
            else:
                axes.append(self.axis(item))
        if self.given:
            raise ModelError("conditional: this table is a conditional one already")
        index = tuple(known.get(a, slice(None)) for a in range(self.table.ndim))
        kept = [a for a in range(self.table.ndim) if a not in known]
        part = self.table[index]
        rest = tuple(kept.index(a) for a in kept if a not in axes)
        total = part.sum(axis=rest, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            table = np.where(total > 0.0, part / total, np.nan)
        rare = total < RARE
        if self._logs is not None and rare.any():
            table = np.where(rare, self._from_logs(rare, known, kept, rest), table)
        names = tuple(self.variables[a] for a in kept if a in axes)
        return self._over(table, kept, names)

    def _from_logs(
        self, rare: Mask, known: dict[int, int], kept: list[int], rest: tuple[int, ...]
    ) -> Floats:
        assert self._logs is not None
        logs = np.full([self.table.shape[a] for a in kept], -np.inf)
        chosen = np.broadcast_to(rare, logs.shape)
        cells = np.empty((int(chosen.sum()), self.table.ndim), dtype=np.int64)
        cells[:, kept] = np.argwhere(chosen)
        for a, state in known.items():
            cells[:, a] = state
        logs[chosen] = self._logs(cells)
        top = logs.max(axis=rest, keepdims=True)
        weights = np.exp(logs - np.where(top > -np.inf, top, 0.0))
        with np.errstate(invalid="ignore"):
            return weights / weights.sum(axis=rest, keepdims=True)

    def _over(self, table: ArrayLike, axes: list[int], given: tuple[str, ...] = ()) -> Joint:
        return Joint(
            np.asarray(table, dtype=np.float64),
            tuple(self.variables[a] for a in axes),
            tuple(self.states[a] for a in axes),
            given,
            self._log_evidence,
            self._logs if axes == list(range(self.table.ndim)) else None,
        )

    def entropy(self) -> float:
        """Entropy of the joint distribution, in nats."""
        p = self.table[self.table > 0.0]
        return float(-(p * np.log(p)).sum()) + 0.0

    def mutual_information(self, one: Any = 0, other: Any = None) -> float:
        """I(one; other) in nats, each a variable or several; by default the first and the rest."""
        first = [self.axis(v) for v in _listed(one)]
        second = (
            [a for a in range(self.table.ndim) if a not in first]
            if other is None
            else [self.axis(v) for v in _listed(other)]
        )
        if set(first) & set(second):
            raise ModelError("mutual_information: the two have a variable in common")
        both = self.marginal(*first, *second).table.reshape(
            math.prod(self.table.shape[a] for a in first), -1
        )
        return mutual_information(both)

    def most_probable(self) -> tuple[str, ...]:
        """The states with the largest entry, the first of equal ones."""
        return tuple(next(self._largest(1))[0])

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        states = dict(zip(self.variables, self.states))
        about = {"variables": self.variables, "given": self.given, "states": states}
        return plain({**about, "table": self.table})

    def to_pandas(self) -> Any:
        """A pandas Series, its index the variables."""
        pd = load("pandas")
        index = pd.MultiIndex.from_product(self.states, names=self.variables)
        return pd.Series(self.table.ravel(), index=index, name="probability")

    @property
    def _title(self) -> str:
        free = [visible(v) for v in self.variables if v not in self.given]
        bar = f" | {', '.join(map(visible, self.given))}" if self.given else ""
        return f"P({', '.join(free)}{bar})"

    def __repr__(self) -> str:
        return f"Joint({self._title}, {' x '.join(map(str, self.shape))} states)"

    def _largest(self, most: int = _SHOWN) -> Iterator[tuple[list[str], float]]:
        """The largest entries first: states of the variables, and the entry."""
        for cell in np.argsort(-np.nan_to_num(self.table.ravel()), kind="stable")[:most]:
            where = np.unravel_index(int(cell), self.table.shape)
            yield [own[int(k)] for own, k in zip(self.states, where)], float(self.table[where])

    def face(self, most: int = _SHOWN) -> Face:
        """The most probable combinations of states; of a conditional table a row for each of the
        conditions', in their order."""
        free = [a for a, v in enumerate(self.variables) if v not in self.given]
        if self.given and math.prod(self.shape[a] for a in free) <= _MOST_COLUMNS:
            return self._by_condition(free, most)
        rows = [(*own, Right(probability(p))) for own, p in self._largest(most)]
        more = and_more(self.table.size - most, "none larger")
        return Face(self._title, (*self.variables, "probability"), rows, more=more)

    def _by_condition(self, free: list[int], most: int) -> Face:
        given = [a for a in range(self.table.ndim) if a not in free]
        columns = list(product(*(self.states[a] for a in free)))
        table = self.table.transpose([*given, *free]).reshape(-1, len(columns))
        rows = [
            (*own, *(Right("impossible" if math.isnan(p) else probability(p)) for p in numbers))
            for own, numbers in zip(
                product(*(self.states[a] for a in given)), table[:most].tolist()
            )
        ]
        head = [
            ", ".join(f"{visible(self.variables[a])}={visible(s)}" for a, s in zip(free, own))
            for own in columns
        ]
        return Face(
            self._title, (*(self.variables[a] for a in given), *head), rows,
            more=and_more(len(table) - most),
        )  # fmt: skip


def mutual_information(both: Floats) -> float:
    """I(A; B) in nats of a joint table (S_A, S_B): sum of p log(p / (a b)) - p + a b.

    No term is negative, so what unlikely states say is not lost beside the others.
    """
    a, b = both.sum(axis=1, keepdims=True), both.sum(axis=0, keepdims=True)
    some = both > 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(both) - np.log(a) - np.log(b)
    terms = np.where(some, both * np.where(some, ratio, 0.0), 0.0) - both + a * b
    return max(float(terms.sum()), 0.0)


def _listed(variables: Any) -> list[Any]:
    return as_list(variables, "mutual_information: variables of the table", ModelError)
