"""Variables and their states: numbers, and names so that people can say ``{"CVP": "LOW"}``.

Numbers keep working everywhere; a name that a variable does not have is an error that lists those
it has. Variables without names of their own have "0", "1", ...

**Names that are numerals.** Of a variable with the states "1", "2", "3" the number 1 may be a name
or the second state. A text is always a name. A number is a state's number where the variable is
given by number as well, and in arrays of states; with a variable's name it is refused unless both
readings are the same. Cells of tables of cases are names first (:mod:`minfer.model.evidence`),
whatever their type.

**Bins.** Where the states are called "< 4.5", "4.5 to 5.2", ">= 5.2" (:func:`bin_edges`), a number
given with the variable's name, and any numeral, is a *value*: its bin is the number of edges that
are at most that value, as `numpy.digitize` counts. Infinity is none. The names say it all, so that
every file that keeps names keeps bins. A variable given by number takes states' numbers as ever.

**Truth.** True and False are the states that are called so, in any case of letters, and no others.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from functools import cached_property, lru_cache
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import BaseGraph, as_list, first_twice, integer, load, told
from minfer.basics.notebook import Face, Faced, Right
from minfer.basics.words import and_more, probability
from minfer.errors import EvidenceError, MinferError, ModelError, visible
from minfer.factors.group import FactorGroup, Ints, read_only

#: The names of each variable's states; None for a variable whose states have numbers only.
StateNames = tuple[tuple[str, ...] | None, ...]
ANY_NUMBER = "any number"  # the one bin where there are no edges
_SHOWN = 12
_IN_WORDS, _IN_TABLE = 6, 20  # states of a distribution that are shown
_LONGEST = 200  # characters of names that may be alike


def near_names(wanted: str, names: Iterable[str], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """Names much like the wanted one, the nearest first; the case of letters does not count.

    Two letters that have changed places are near too, of short names as well.

    >>> near_names("hypovolaemia", ["HISTORY", "HYPOVOLEMIA"]), near_names("CPV", ["CVP", "HR"])
    (['HYPOVOLEMIA'], ['CVP'])
    """
    lower: dict[str, list[str]] = {}
    if len(wanted) > _LONGEST:  # comparing takes the square of their length
        return []
    for name in (name for name in names if len(name) <= _LONGEST):
        lower.setdefault(name.strip().lower(), []).append(name)
    text = wanted.strip().lower()
    close = [text] * (text in lower)
    close += [x for x in lower if _swapped(x, text)]
    close += get_close_matches(text, list(lower), n=n, cutoff=cutoff)
    return [name for x in dict.fromkeys(close) for name in lower[x]][:n]


def did_you_mean(wanted: str, names: Iterable[str], quotes: bool = False) -> str:
    """The end of a sentence about a name that is not there: the nearest one, if any is near."""
    near = [visible(name) for name in near_names(wanted, names)]
    return f"; did you mean {repr(near[0]) if quotes else near[0]}?" if near else ""


def slips(texts: Sequence[str], names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Those texts that look like a name misspelt which is not among them, rather than like another
    name: their digits are the same. Each with that name."""
    known = dict.fromkeys(names)
    there = set(texts)
    absent = [name for name in known if name not in there]
    for text in texts:
        near = [] if text in known else near_names(text, absent)
        digits = [[c for c in x if c.isdigit()] for x in (text, *near)]
        if near and digits[0] == digits[1] and near_names(text, near, cutoff=0.8):
            yield text, near[0]


def check_columns(columns: Sequence[str], variables: Sequence[str], who: str) -> None:
    """Columns that are no variables are not read; one that looks like a misspelt variable is an
    error, and so are columns of which none is a variable."""
    for column, variable in slips(columns, variables):
        raise EvidenceError(
            f"{who}: column {visible(column)!r} is not a variable; did you mean "
            f"{visible(variable)}, which has no column?"
        )
    if columns and not set(columns) & set(variables):
        raise EvidenceError(
            f"{who}: no column is a variable: columns are {', '.join(map(visible, columns[:5]))}, "
            f"variables {', '.join(map(visible, variables[:5]))}"
        )


def _swapped(a: str, b: str) -> bool:
    """Whether two neighbouring letters have changed places."""
    if len(a) != len(b) or len(a) < 3:
        return False
    at = [k for k, (x, y) in enumerate(zip(a, b)) if x != y]
    return len(at) == 2 and at[1] == at[0] + 1 and a[at[0]] == b[at[1]] and a[at[1]] == b[at[0]]


def checked_state_names(names: Any, index: Any, n_states: NDArray[np.int32]) -> StateNames | None:
    """Names as a graph keeps them, from {variable: names} or one entry for each variable.

    ``index`` turns a variable's name into its number. None where no variable has names.
    """
    n = len(n_states)
    if names is None:
        return None
    listed: list[Any] = [None] * n
    if isinstance(names, Mapping):
        for variable, own in names.items():
            listed[index(variable)] = own
    else:
        if isinstance(names, str) or not isinstance(names, Sequence) or len(names) != n:
            raise ModelError(
                f"state names must be a mapping {{variable: names}} or one entry for each of the "
                f"{n} variables, not {told(names)}"
            )
        listed = list(names)
    out: list[tuple[str, ...] | None] = []
    for v, own in enumerate(listed):
        if own is None:
            out.append(None)
            continue
        if isinstance(own, str) or not isinstance(own, (Sequence, np.ndarray)):
            raise ModelError(f"the states of variable {v} must be a list of names, not {told(own)}")
        texts = tuple(str(s) for s in own)
        if len(texts) != n_states[v]:
            raise ModelError(
                f"variable {v} has {int(n_states[v])} states, but {len(texts)} names for them"
            )
        if (twice := first_twice(texts)) is not None:
            raise ModelError(f"variable {v} has two states of the name {visible(twice)!r}")
        out.append(texts)
    return tuple(out) if any(own is not None for own in out) else None


def declared_states(states: Any, who: str) -> tuple[list[int], list[list[str] | None]]:
    """Numbers and names of states from {variable: names, or how many}; ``who`` is for messages."""
    if not isinstance(states, Mapping):
        raise ModelError(
            f"{who}: states must be a mapping {{variable: names, or how many}}, not {told(states)}"
        )
    sizes: list[int] = []
    names: list[list[str] | None] = []
    for variable, own in states.items():
        number = None if isinstance(own, str) else integer(own)
        several = isinstance(own, (Sequence, np.ndarray)) and getattr(own, "ndim", 1) > 0
        if number is None and (isinstance(own, str) or not several):
            raise ModelError(
                f"{who}: the states of {variable} must be a list of names, or their number, not "
                f"{told(own)}"
            )
        sizes.append(number if number is not None else len(own))
        names.append(None if number is not None else [str(s) for s in own])
    return sizes, names


def state_number(
    variable: str,
    n_states: int,
    names: tuple[str, ...] | None,
    state: Any,
    error: type[MinferError] = EvidenceError,
    by_name: bool = False,
) -> int:
    """The number of a state given by number or name; ``variable`` is for messages.

    ``by_name``: its variable was given by name, so that a number that may be a name is refused.
    """
    if names is not None and (by_name or isinstance(state, str)):
        edges = bin_edges(names)
        if edges is not None and not (isinstance(state, str) and state in names):
            value = number_of(state) if isinstance(state, str) else finite(state)
            if value is not None:
                return bisect_right(edges, value)
            said = f"{variable} has {_listed(n_states, names)}, or a finite number"
            raise error(f"{said}, not {told(state)}")
    number = None if isinstance(state, str) else integer(state)
    if number is not None:
        if by_name and names is not None and not is_plain_number(names, number):
            raise error(f"{variable} has {_listed(n_states, names)}: {_either(names, number)}")
        if 0 <= number < n_states:
            return number
        raise error(f"{variable} has states 0 to {n_states - 1}, not {told(state)}")
    if isinstance(state, str):
        if names is not None:
            if state in names:
                return names.index(state)
        elif state.isdecimal() and len(state) < 20 and int(state) < n_states:
            return int(state)
    elif isinstance(state, (bool, np.bool_)):
        truth = state_of_truth(names, bool(state))
        if truth is not None:
            return truth
    hint = did_you_mean(state, names or ()) if isinstance(state, str) else ""
    if names is None and not isinstance(state, str):
        hint = "; states are integers or names"
    raise error(f"{variable} has {_listed(n_states, names)}, not {told(state)}{hint}")


def number_of(text: str) -> float | None:
    """A text as a number, if it is a finite one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def finite(value: Any) -> float | None:
    """A number of any kind as a float; None of what is none, of truths, infinity and NaN."""
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):  # a signalling NaN of Decimal
        return None
    return number if math.isfinite(number) else None


def bin_names(edges: Sequence[float]) -> tuple[str, ...]:
    """The states of a column of numbers cut at increasing edges.

    >>> bin_names([4.5, 6.0])
    ('< 4.5', '4.5 to 6', '>= 6')
    """
    return _bins_between([repr(float(x)).removesuffix(".0") for x in edges])


def _bins_between(ends: Sequence[str]) -> tuple[str, ...]:
    if not ends:
        return (ANY_NUMBER,)
    return (f"< {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f">= {ends[-1]}")


@lru_cache(maxsize=1 << 12)
def bin_edges(names: tuple[str, ...]) -> tuple[float, ...] | None:
    """The edges of bins, from the states' names; None where these are no bins.

    >>> bin_edges(("< 4.5", "4.5 to 6", ">= 6")), bin_edges(("low", "high"))
    ((4.5, 6.0), None)
    """
    if names != (ANY_NUMBER,) and (len(names) < 2 or not names[0].startswith("< ")):
        return None
    ends = [names[0][2:], *(name.rpartition(" to ")[2] for name in names[1:-1])]
    ends = ends if len(names) > 1 else []
    edges = tuple(x for x in map(number_of, ends) if x is not None)
    same = len(edges) == len(ends) and names == _bins_between(ends)
    return edges if same and all(a < b for a, b in pairwise(edges)) else None


def is_plain_number(names: tuple[str, ...], number: int) -> bool:
    """Whether a number can only be a state's number, or is its name as well."""
    if bin_edges(names) is not None:
        return False
    if 0 <= number < len(names) and number_of(names[number]) not in (None, number):
        return False
    return all(number_of(s) != number for k, s in enumerate(names) if k != number)


def _either(names: tuple[str, ...], number: int) -> str:
    """What to say instead of a number that may be a name."""
    called = [s for s in names if number_of(s) == number]
    says = [f"{visible(called[0])!r} for the state of that name"] if called else []
    if 0 <= number < len(names):
        says.append(f"{visible(names[number])!r} for the one numbered {number}")
    return f"{number} may be a name or a number; say {', or '.join(says)}"


def state_of_truth(names: tuple[str, ...] | None, value: bool) -> int | None:
    """The state that is called true or false, if there is one."""
    found = [k for k, s in enumerate(names or ()) if s.strip().lower() == str(value).lower()]
    return found[0] if len(found) == 1 else None


def numerals(names: tuple[str, ...] | None) -> dict[float, int] | None:
    """States by the numbers they are called; None where no name is one."""
    found: dict[float, int] = {}
    for k, name in enumerate(names or ()):
        value = number_of(name)
        if value is not None:
            found.setdefault(value, k)
    return found or None


def _listed(n_states: int, names: tuple[str, ...] | None) -> str:
    if names is None:
        return f"states 0 to {n_states - 1}"
    shown = ", ".join(visible(s) for s in names[:_SHOWN])
    more = f" and {n_states - _SHOWN} more" if n_states > _SHOWN else ""
    return f"the states {shown}{more}"


class Variables(BaseGraph):
    """The variables of a model: how many states each has, and what they are called; and what is
    counted once."""

    _n_states: NDArray[np.int32]
    groups: tuple[FactorGroup, ...]
    names: tuple[str, ...] | None
    _states: StateNames | None

    @property
    def n_variables(self) -> int:
        return len(self._n_states)

    @property
    def n_states(self) -> NDArray[np.int32]:
        """Number of states of each variable, shape (V,)."""
        return read_only(self._n_states)

    @property
    def offsets(self) -> Ints:
        """Where each variable's states begin in a flat array over all states, shape (V+1,)."""
        return read_only(self._offsets)

    @cached_property
    def n_factors(self) -> int:
        return sum(len(g) for g in self.groups)

    @cached_property
    def _conditioning(self) -> dict[str, Any]:
        """What :mod:`minfer.engine.conditioning` found out; shared where the factors are."""
        return {}

    @cached_property
    def _offsets(self) -> Ints:
        out = np.zeros(self.n_variables + 1, dtype=np.int64)
        np.cumsum(self._n_states, out=out[1:])
        return out

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names or ())}

    def _indices(self, given: Any, what: str, error: type[MinferError] = ModelError) -> list[int]:
        """The numbers of several variables, or of one, none of them twice; ``what`` they are for
        begins a complaint."""
        listed = as_list(given, f"{what} must be a list of variables", error)
        try:
            out = [self.index(variable) for variable in listed]
        except ModelError as reason:
            raise error(f"{what}: {reason}") from None
        if (twice := first_twice(out)) is not None:
            raise error(f"{what}: {visible(self.name(twice))} is named twice")
        return out

    def index(self, variable: int | str) -> int:
        """The number of a variable given by number or name."""
        if isinstance(variable, str):
            found = self._index.get(variable)
            if found is None and not self.names and variable[:1] == "x":
                digits = variable[1:]
                found = int(digits) if digits.isascii() and digits.isdigit() else None
            if found is not None and found < self.n_variables:
                return found
            hint = f"variables are x0 to x{self.n_variables - 1}"
            if self.names:
                close = near_names(variable, self.names, n=3)
                more = ", ..." if len(self.names) > 5 else ""
                hint = f"variables are {visible(', '.join(self.names[:5]))}{more}"
                hint = f"did you mean {', '.join(close)}?" if close else hint
            raise ModelError(f"there is no variable {variable!r}; {hint}")
        number = integer(variable)
        if number is None:
            raise ModelError(f"a variable must be an integer or a name, not {told(variable)}")
        if not 0 <= number < self.n_variables:
            raise ModelError(
                f"there is no variable {number}; the graph has {self.n_variables}, counted from 0"
            )
        return number

    def name(self, variable: int | str) -> str:
        """A variable's name, or ``x`` and its number."""
        number = self.index(variable)
        return self.names[number] if self.names else f"x{number}"

    def _scope_text(self, scope: ArrayLike) -> str:
        return "(" + ", ".join(self.name(int(v)) for v in np.asarray(scope)) + ")"

    def _check_scopes(self, scope: NDArray, first: int | Ints) -> None:
        """Range and distinctness of scopes (F, A); ``first`` numbers the factors for messages."""
        if not scope.size:
            return
        number = (lambda k: int(first[k])) if isinstance(first, np.ndarray) else lambda k: first + k
        if scope.min() < 0 or scope.max() >= self.n_variables:
            bad = int(np.flatnonzero(((scope < 0) | (scope >= self.n_variables)).any(axis=1))[0])
            raise ModelError(
                f"factor {number(bad)}: scope {scope[bad].tolist()} names a variable outside "
                f"0..{self.n_variables - 1}"
            )
        arity = scope.shape[1]
        if arity == 2:
            twice = scope[:, 0] == scope[:, 1]
        elif arity > 2:
            ordered = np.sort(scope, axis=1)
            twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        else:
            return
        if twice.any():
            bad = int(np.flatnonzero(twice)[0])
            raise ModelError(
                f"factor {number(bad)}: scope {scope[bad].tolist()} has a variable twice; "
                "take the table's diagonal instead"
            )

    def states(self, variable: int | str) -> tuple[str, ...]:
        """The names of a variable's states; "0", "1", ... where it has none of its own."""
        v = self.index(variable)
        return self._own_states(v) or tuple(str(s) for s in range(self._n_states[v]))

    def _own_states(self, v: int) -> tuple[str, ...] | None:
        return self._states[v] if self._states else None

    @property
    def has_state_names(self) -> bool:
        """Whether some variable's states have names."""
        return self._states is not None

    def state(self, variable: int | str, state: int | str) -> int:
        """The number of a state given by number or name.

        With a variable's name, a number that may be another state's name ("1", "2") is refused.
        """
        v = self.index(variable)
        return state_number(
            self.name(v), int(self._n_states[v]), self._own_states(v), state, ModelError,
            by_name=isinstance(variable, str),
        )  # fmt: skip


class Probabilities(Faced, np.ndarray):
    """Numbers of a variable's states, shape (S, ...), that can be asked by a state's name too.

    >>> from minfer.model.states import Probabilities
    >>> import numpy as np
    >>> p = Probabilities.of(np.array([0.2, 0.8]), "rain", ("no", "yes"))
    >>> float(p["yes"]), float(p[1])
    (0.8, 0.8)
    >>> p
    Probabilities(rain: no 0.2000, yes 0.8000)
    """

    variable: str
    states: tuple[str, ...] | None

    @classmethod
    def of(cls, values: NDArray, variable: str, states: tuple[str, ...] | None) -> Probabilities:
        out = values.view(cls)
        out.variable, out.states = variable, states
        return out

    def __array_finalize__(self, other: Any) -> None:
        self.variable = getattr(other, "variable", "")
        self.states = getattr(other, "states", None)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Sums, maxima and the like are plain numbers, and what has another shape plain arrays."""
        if array.shape == self.shape and not return_scalar:
            out = array.view(type(self))
            out.__dict__.update(self.__dict__)
            return out
        plain = np.asarray(array)
        return plain[()] if plain.ndim == 0 else plain

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            key = state_number(self.variable, len(self), self.states, key, ModelError)
        found = super().__getitem__(key)
        if isinstance(found, Probabilities) and key is not Ellipsis:
            return np.asarray(found)  # of some states, which have other numbers there
        return found

    def to_dict(self) -> dict[str, Any]:
        """By the states' names."""
        return dict(zip(self._labels, self.tolist()))

    def to_pandas(self) -> Any:
        """A pandas Series, its index the states."""
        pd = load("pandas")
        index = pd.Index(self._labels, name=self.variable)
        return pd.Series(np.array(self), index=index, name="probability")

    @property
    def _title(self) -> str:
        """P(variable), if this is a distribution and not what has been computed from one."""
        name, p = visible(self.variable), np.asarray(self)
        sure = abs(float(p.sum()) - 1.0) < 1e-9 and float(p.min()) >= 0.0
        return f"P({name})" if name and sure else name

    def face(self) -> Face:
        """A row for each state, or for the largest numbers."""
        p = np.asarray(self)
        order = range(len(p)) if len(p) <= _IN_TABLE else np.argsort(-p, kind="stable")[:_IN_TABLE]
        rows = [(self._labels[k], Right(probability(float(p[k])))) for k in order]
        more = and_more(len(p) - _IN_TABLE, "none larger")
        return Face(self._title, (self.variable or "state", "probability"), rows, more=more)

    def __str__(self) -> str:
        return self.face().text() if self._is_plain else np.asarray(self).__str__()

    def __repr__(self) -> str:
        if not self._is_plain:
            return repr(np.asarray(self))
        each = [f"{s} {probability(p)}" for s, p in zip(self._labels, self.tolist())]
        text = ", ".join(map(visible, each[:_IN_WORDS])) + ", ..." * (len(each) > _IN_WORDS)
        name = visible(self.variable)
        return f"{type(self).__name__}({name}{': ' * bool(name)}{text})"

    def _repr_html_(self) -> str:
        return super()._repr_html_() if self._is_plain else f"<pre>{np.asarray(self)}</pre>"

    @property
    def _is_plain(self) -> bool:
        """One number for each state."""
        known = self.states is None or len(self.states) == self.size
        return self.ndim == 1 and self.dtype.kind in "fiu" and self.size > 0 and known

    @property
    def _labels(self) -> tuple[str, ...]:
        return self.states or tuple(str(s) for s in range(len(self)))
