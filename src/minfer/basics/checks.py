"""Checks of what users hand in: a clean copy comes back, or an error that names the place.

Numbers of things (variables, factors, states, iterations) are integers: 0.9 is not rounded and True
is not 1. Settings objects check every field when they are made, with the functions below.
"""

from __future__ import annotations

import inspect
import math
import operator
import sys
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.errors import MinferError, ModelError, RefusedError, SettingsError

T = TypeVar("T")

#: Variables of factors: (F, A), or F sequences of any lengths.
Scopes = ArrayLike | Sequence[Sequence[int]]

MAX_STATES = 2**31 - 1  # of one variable

NEAR_ONE = 1e-3  # sums of probabilities that were rounded to a few digits


def check_whole(name: str, value: object, least: int = 0, most: float = math.inf) -> None:
    """A count: an integer, no bool, within limits."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if whole and least <= value <= min(most, 2**62):  # type: ignore[operator]
        return
    limits = f"of at least {least}" if most == math.inf else f"from {least} to {most:g}"
    raise SettingsError(f"{name} must be a whole number {limits}, not {told(value)}")


def check_number(
    name: str,
    value: object,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    below: float = math.inf,
    above: float = -math.inf,
    infinite: bool = False,
    what: str = "",
) -> None:
    """A real number x, no bool and not NaN: least <= x <= most, above < x < below.

    Infinity is one of them only with ``infinite``; ``what`` says in words what is wanted.
    """
    fits = not isinstance(value, int) or abs(value) < 2**1000  # as a float
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        if value == math.inf:
            if infinite:
                return
        elif fits and least <= value <= most and above < value < below:
            return
    if not what and math.inf > most and least > -math.inf:
        what = f"{least:g} to {most:g}"
    elif not what:  # such as "above 0", or "0 or more and below 1"
        limits = (f"{least:g} or more", f"above {above:g}", f"{most:g} or less", f"below {below:g}")
        said = [text for text, x in zip(limits, (least, above, most, below)) if abs(x) < math.inf]
        what = " and ".join(said) or "a finite number"
    raise SettingsError(f"{name} must be {what}, not {told(value)}")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """One of some words."""
    if not isinstance(value, str) or value not in choices:
        words = " or ".join([", ".join(choices[:-1]), choices[-1]] if choices[1:] else choices)
        raise SettingsError(f"{name} must be {words}, not {told(value)}")


def check_flag(name: str, value: object) -> None:
    """True or False, and nothing that happens to be one of them in a condition."""
    if not isinstance(value, (bool, np.bool_)):
        raise SettingsError(f"{name} must be True or False, not {told(value)}")


def check_seconds(name: str, value: object) -> None:
    """A time limit, or None for none."""
    if value is not None:
        check_number(name, value, above=0.0, infinite=True, what="positive seconds or None")


def check_settings(
    max_iters: object, tol: object, damping: object = 0.0, time_limit: object = None
) -> None:
    """What the iterative solvers share."""
    check_whole("max_iters", max_iters, 1)
    check_number("tol", tol, 0.0, infinite=True)
    check_number("damping", damping, 0.0, below=1.0, what="in [0, 1)")
    check_seconds("time_limit", time_limit)


def check_device(solver: Any) -> None:
    """Refuse settings that say nothing of where a solver runs."""
    check_choice("device", solver.device, ("cpu", "cuda", "auto"))
    check_choice("dtype", solver.dtype, ("auto", "float64", "float32"))
    if solver.device == "cpu" and solver.dtype == "float32":
        raise SettingsError("dtype='float32' is for device='cuda'; a processor has float64")


def by_name(kind: type[T]) -> type[T]:
    """A settings class that refuses settings without names: nobody knows their order by heart."""
    made = kind.__init__

    @wraps(made)
    def named(self: Any, *given: Any, **settings: Any) -> None:
        if given:
            first = next(iter(inspect.signature(kind).parameters))
            raise SettingsError(
                f"{kind.__name__} takes its settings by name, as in {kind.__name__}({first}=...), "
                f"not {told(given[0])}"
            )
        made(self, **settings)

    kind.__init__ = named  # type: ignore[method-assign]
    return kind


def check_solver(solver: object) -> None:
    """A solver: ready to be called, not a class of solvers."""
    if not callable(solver) or isinstance(solver, type):
        raise SettingsError(f"{brief(solver)} is not a solver; use BeliefPropagation()")


class BaseGraph:
    """A factor graph, as far as a check has to know it: :class:`minfer.FactorGraph` is the one."""


def check_graph(value: object, who: str = "a solver") -> None:
    """A model, where one is expected."""
    if not isinstance(value, BaseGraph):
        raise ModelError(
            f"{who} takes a FactorGraph, not {type(value).__name__}; `minfer.read` reads a file"
        )


def check_type(
    value: object,
    kind: type | tuple[type, ...],
    what: str,
    error: type[MinferError] = SettingsError,
) -> None:
    """Refuse what is of another type; ``what`` begins the sentence, as in "infer takes a model"."""
    if not isinstance(value, kind):
        raise error(f"{what}, not {brief(value)}")


def told(value: object) -> str:
    """A refused value in a message: short, and with advice where a model stands for a setting."""
    if isinstance(value, BaseGraph):
        return f"{value!r}; settings come first and the model second, as in Exact()(model)"
    return brief(value)


def brief(value: object) -> str:
    """A value in a message, or its type where that would be long."""
    text = repr(value)
    return text if len(text) <= 80 and "\n" not in text else f"this {type(value).__name__}"


def as_list(given: Any, what: str, error: type[MinferError] = SettingsError) -> list[Any]:
    """Several things, or one that is named alone, as a list; ``what`` begins the complaint."""
    if isinstance(given, str) or integer(given) is not None:
        return [given]
    try:
        return list(given)
    except TypeError:  # no sequence, or an array without a dimension
        raise error(f"{what}, not {told(given)}") from None


def first_twice(values: Iterable[T]) -> T | None:
    """The first value that was there before; None if all differ."""
    seen: set[T] = set()
    return next((x for x in values if x in seen or seen.add(x)), None)  # type: ignore[func-returns-value]


def real_numbers(
    values: ArrayLike, what: str, error: type[MinferError] = ModelError
) -> NDArray[Any]:
    """An array of real numbers of any type, which a masked array is not: its mask would be lost."""
    if isinstance(values, np.ma.MaskedArray):
        raise error(f"{what} are a masked array: fill it first, say scores.filled(-np.inf)")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as reason:  # ragged, or a tensor with a gradient
        raise error(f"{what} must be an array of numbers: {reason}") from None
    if array.dtype.kind not in "biuf":
        raise error(f"{what} must be real numbers, not of type {array.dtype}")
    return array


def integers(
    values: ArrayLike, what: str, error: type[MinferError] = ModelError, bools: bool = False
) -> NDArray[Any]:
    """An array of integers of any type; floats are refused, whole or not. Empty is fine."""
    array = real_numbers(values, what, error)
    if array.size and array.dtype.kind not in ("iub" if bools else "iu"):
        raise error(f"{what} must be integers, not {array.dtype}")
    return array if array.size else array.astype(np.int64)


def integer(value: object) -> int | None:
    """A Python or numpy integer as an int; None for anything else, bools and floats included."""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def bool_mask(mask: ArrayLike, n: int, what: str, error: type[MinferError] = ModelError) -> NDArray:
    """A mask (n,) of bools and of nothing else."""
    array = real_numbers(mask, what, error)
    if array.dtype != bool or array.shape != (n,):
        raise error(f"{what}: a bool mask of shape ({n},) is needed")
    return array


def checked_states(n_states: ArrayLike) -> NDArray[np.int32]:
    given = n_states if isinstance(n_states, (list, tuple)) else ()
    if any(type(n) is int and n > MAX_STATES for n in given):  # perhaps beyond 64 bits
        raw: NDArray[Any] = np.array(given, dtype=object)
    else:
        raw = integers(n_states, "n_states")
    if raw.ndim != 1:
        raise ModelError(f"n_states must have shape (V,), not {raw.shape}")
    if raw.size and (raw.min() < 1 or raw.max() > MAX_STATES):
        bad = int(np.flatnonzero((raw < 1) | (raw > MAX_STATES))[0])
        limit = "needs at least one" if raw[bad] < 1 else f"has at most {MAX_STATES:,}"
        raise ModelError(f"variable {bad}: {raw[bad]} states; every variable {limit}")
    return raw.astype(np.int32)


def checked_names(
    names: Sequence[str] | Mapping[str, int] | None, n_variables: int
) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ModelError(f"names must be a list of strings, one for each variable, not {names!r}")
    names = tuple(names)
    if len(names) != n_variables:
        raise ModelError(f"{len(names)} names for {n_variables} variables")
    if not all(isinstance(n, str) for n in names):
        raise ModelError("names must be strings")
    if len(set(names)) != len(names):
        raise ModelError(f"two variables are called {first_twice(names)!r}")
    return names


def table_sizes(states: NDArray, arity: NDArray[np.int64]) -> NDArray[np.float64]:
    """Entries of each factor's table as floats, which saturate instead of overflowing.

    states : (sum of arity,) of the variables of one scope after the other
    """
    sizes = np.ones(len(arity))
    has = np.flatnonzero(arity)
    if len(has):
        begin = np.cumsum(arity) - arity
        with np.errstate(over="ignore"):
            sizes[has] = np.multiply.reduceat(states.astype(np.float64), begin[has])
    return sizes


def scope_array(scope: ArrayLike) -> NDArray[np.int32]:
    """A copy of scopes (F, A)."""
    raw = _variable_numbers(scope, "scopes")
    if raw.ndim != 2:
        one = f"; write [{raw.tolist()}] for one factor" if raw.ndim == 1 and raw.size < 8 else ""
        if not raw.size:
            one = "; for no factors give an array of shape (0, A)"
        raise ModelError(f"scopes must have shape (F, A), not {raw.shape}{one}")
    if raw.size and raw.dtype.itemsize > 4 and (raw.max() > 2**31 - 1 or raw.min() < -(2**31)):
        raise ModelError("a scope names a variable number beyond 2**31")
    return np.array(raw, dtype=np.int32, order="C")


def scope_list(scopes: Any, first: int) -> list[NDArray[np.int64]]:
    """Scopes of any lengths as arrays; ``first`` numbers the factors for messages."""
    try:
        given = list(scopes)
    except TypeError:
        raise ModelError(
            f"scopes must be F sequences of variable numbers, such as [[0, 1], [2]], not {scopes!r}"
        ) from None
    out = []
    for i, scope in enumerate(given):
        found = _variable_numbers(scope, f"factor {first + i}: its scope")
        if found.ndim != 1:
            raise ModelError(
                f"factor {first + i}: a scope must be a sequence of variables, not {told(scope)}; "
                "one factor over variables 0 and 1 has scopes [[0, 1]], one on each [[0], [1]]"
            )
        out.append(found.astype(np.int64))
    return out


def _variable_numbers(scope: Any, what: str) -> NDArray[Any]:
    """Integers; names get advice of their own."""
    try:
        return integers(scope, what)
    except ModelError:
        if not _has_text(scope):
            raise
    raise ModelError(
        f"{what} must be variable numbers, not names such as in {told(scope)}: graph.index(name) "
        "gives the number, and FactorGraph.named takes names"
    )


def _has_text(values: Any) -> bool:
    values = values.tolist() if isinstance(values, np.ndarray) else values
    return isinstance(values, str) or (
        isinstance(values, (list, tuple)) and any(_has_text(v) for v in values)
    )


def edge_array(edges: ArrayLike) -> NDArray[np.int32]:
    """A copy of edges (E, 2); an empty list is no edges."""
    raw = _variable_numbers(edges, "edges")
    if raw.size == 0:
        raw = np.zeros((0, 2), dtype=np.int32)
    if raw.ndim != 2 or raw.shape[1] != 2:
        raise ModelError(f"edges must have shape (E, 2), not {raw.shape}")
    return scope_array(raw)


def unique_rows(rows: NDArray) -> tuple[NDArray, NDArray]:
    """Distinct rows (K, A) and which of them each row is (F,); zero columns make one row."""
    if rows.shape[1] == 0 or (rows == rows[:1]).all():
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    distinct, which = np.unique(rows, axis=0, return_inverse=True)
    return distinct, which.ravel()


def per_factor(values: NDArray, n: int, what: str, dtype: type) -> NDArray:
    """One number for each of n factors, from one for all or from n."""
    try:
        return np.broadcast_to(values, (n,)).astype(dtype)
    except ValueError:
        raise ModelError(f"{n} scopes but {what} of shape {values.shape}") from None


def warn(message: str) -> None:
    """A warning at the line of the user's own that called us, whichever of our doors it took."""
    level, frame = 1, sys._getframe()
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] == "minfer"
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def look_like_probabilities(groups: Iterable[NDArray]) -> bool:
    """Whether all tables are distributions of one of their variables, and not all certain.

    Each of ``groups`` has tables of one shape, (F, S_1, ..., S_A). Numbers of 0 and 1 alone are as
    likely the logarithms of a coupling, as are those that sum to one only as a whole, such as
    0.5 for equal states.
    """
    between = False
    for tables in groups:
        if not tables.size or tables.min() < 0 or tables.max() > 1:
            return False
        flat = tables.reshape(len(tables), -1)
        like = np.zeros(len(tables), dtype=bool)
        for k in range(1, tables.ndim):
            near = np.abs(tables.sum(axis=k) - 1.0) < NEAR_ONE
            like |= near.reshape(len(tables), -1).all(axis=1)
        if not like.all():
            return False
        between = between or bool(((flat > 0) & (flat < 1)).any())
    return between


def concatenate(parts: Sequence[NDArray], dtype: type) -> NDArray:
    if not parts:
        return np.zeros(0, dtype=dtype)
    return np.concatenate([np.asarray(p, dtype=dtype).ravel() for p in parts])


def load(module: str, needs: str = "", extra: str = "") -> Any:
    """Import a library, or say what ``needs`` it and how to get it: by itself, or as an extra."""
    library = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError:
        needs, package = needs or f"this needs {library}", library
        if extra:
            package = f"'minfer[{extra}]'"
        raise RefusedError(f"{needs}, which is not installed: pip install {package}") from None
