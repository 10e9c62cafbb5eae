"""Names of states: part of the model, so that people can say ``{"CVP": "LOW"}``.

Numbers keep working everywhere; a name that a variable does not have is an error that lists those
it has. Variables without names of their own have "0", "1", ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.checks import integer, told
from minfer.errors import EvidenceError, MinferError, ModelError
from minfer.words import visible

#: The names of each variable's states; None for a variable whose states have numbers only.
StateNames = tuple[tuple[str, ...] | None, ...]
_SHOWN = 12


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
                f"state names are a mapping {{variable: names}} or one entry for each of the {n} "
                f"variables, not {told(names)}"
            )
        listed = list(names)
    out: list[tuple[str, ...] | None] = []
    for v, own in enumerate(listed):
        if own is None:
            out.append(None)
            continue
        if isinstance(own, str) or not isinstance(own, (Sequence, np.ndarray)):
            raise ModelError(f"the states of variable {v} are a list of names, not {told(own)}")
        texts = tuple(str(s) for s in own)
        if len(texts) != n_states[v]:
            raise ModelError(
                f"variable {v} has {int(n_states[v])} states, but {len(texts)} names for them"
            )
        if len(set(texts)) < len(texts):
            twice = next(s for s in texts if texts.count(s) > 1)
            raise ModelError(f"variable {v} has two states of the name {visible(twice)!r}")
        out.append(texts)
    return tuple(out) if any(own is not None for own in out) else None


def declared_states(states: Any, who: str) -> tuple[list[int], list[list[str] | None]]:
    """Numbers and names of states from {variable: names, or how many}; ``who`` is for messages."""
    if not isinstance(states, Mapping):
        raise ModelError(
            f"{who}: states are a mapping {{variable: names, or how many}}, not {told(states)}"
        )
    sizes: list[int] = []
    names: list[list[str] | None] = []
    for variable, own in states.items():
        number = None if isinstance(own, str) else integer(own)
        if number is None and (isinstance(own, str) or not isinstance(own, (Sequence, np.ndarray))):
            raise ModelError(
                f"{who}: the states of {variable} are a list of names, or how many there are, not "
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
) -> int:
    """The number of a state given by number or name; ``variable`` is for messages."""
    number = None if isinstance(state, str) else integer(state)
    if number is not None:
        if 0 <= number < n_states:
            return number
        raise error(f"{variable} has states 0 to {n_states - 1}, not {told(state)}")
    if isinstance(state, str):
        if names is not None:
            if state in names:
                return names.index(state)
        elif state.isdecimal() and int(state) < n_states:
            return int(state)
    raise error(
        f"{variable} has {_listed(n_states, names)}, not {told(state)}{_near(names, state)}"
    )


def is_missing(value: Any) -> bool:
    """None, NaN and the NA of data frames: nothing known."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def state_numbers(
    variable: str, n_states: int, names: tuple[str, ...] | None, values: NDArray, first: int = 0
) -> NDArray[np.int64]:
    """States of one variable in many rows, by number or name; -1 where nothing is known.

    A wrong one is an error with its row, counted from ``first`` on. Numbers that are out of range
    are left as they are.
    """
    seen: dict[Any, int] = {}
    out = np.empty(len(values), dtype=np.int64)
    for i, value in enumerate(values.tolist()):
        number = seen.get(value) if isinstance(value, str) else None
        if number is None:
            try:
                number = _number_or_missing(variable, n_states, names, value)
            except EvidenceError as error:
                raise EvidenceError(f"row {first + i}: {error}") from None
            if isinstance(value, str):
                seen[value] = number
        out[i] = number
    return out


def _number_or_missing(
    variable: str, n_states: int, names: tuple[str, ...] | None, value: Any
) -> int:
    if not isinstance(value, str) and is_missing(value):
        return -1
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    number = None if isinstance(value, str) else integer(value)
    if number is not None and abs(number) < 2**31:
        return number
    return state_number(variable, n_states, names, value)


def _listed(n_states: int, names: tuple[str, ...] | None) -> str:
    if names is None:
        return f"states 0 to {n_states - 1}"
    shown = ", ".join(visible(s) for s in names[:_SHOWN])
    more = f" and {n_states - _SHOWN} more" if n_states > _SHOWN else ""
    return f"the states {shown}{more}"


def _near(names: tuple[str, ...] | None, state: Any) -> str:
    if names is None:
        return "" if isinstance(state, str) else "; states are integers or names"
    if not isinstance(state, str):
        return ""
    lower = {s.lower(): s for s in names}
    close = get_close_matches(state.lower(), list(lower), n=1)
    return f"; did you mean {visible(lower[close[0]])}?" if close else ""


class Probabilities(np.ndarray):
    """Numbers of a variable's states, shape (S, ...), that can be asked by a state's name too.

    >>> from minfer.states import Probabilities
    >>> import numpy as np
    >>> p = Probabilities.of(np.array([0.2, 0.8]), "rain", ("no", "yes"))
    >>> float(p["yes"]), float(p[1])
    (0.8, 0.8)
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
        names = self.states or tuple(str(s) for s in range(len(self)))
        return dict(zip(names, self.tolist()))
