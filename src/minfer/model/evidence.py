"""What is known, as people say it: the one reader of evidence and of tables of cases.

**One evidence** (:func:`numbered`) is {variable: state, or likelihoods}. A variable has a name or a
number, and is given once. A state has a name or a number (:mod:`minfer.model.states`); a missing
value is refused: leave the variable out. Likelihoods are one for each state, or by state, 0 for
those left out. JSON's null says nothing, so that it is left out (:mod:`minfer.io.evidence`).

**Tables of cases** (:func:`table_of`, :func:`states_of`) have a column for each variable, or are
arrays of states (N, V). None, NaN, NaT, NA, masked cells, and -1 among numbers of states, say that
nothing is known. Numbers may be floats if they are whole. A value that is no state is an error with
its row. A variable that has two columns is in both, which must not contradict each other.

What a cell says (:class:`StateReader`) depends on where the table is from. *Said* by a program, in
batches: what it would as the state of one evidence. In *files and frames* (``predict``, ``fit``),
where numbers and texts may have become one another on the way: a text is a state's name; where
there is none of that name, a whole number is a state's number. A number is one of the names, if
these are numbers themselves ("1", "2.5"), and else a state's number. True and False are states that
are called so; where there are no names, 1 and 0. Blanks around a text do not count, and texts
listed as missing say nothing. Columns are *factorised* by whoever made the table: Python looks only
at the different values, of which there are few.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import integer, real_numbers, told
from minfer.errors import EvidenceError, MinferError, ModelError, SettingsError, visible
from minfer.factors.group import Floats
from minfer.model.states import (
    Variables,
    bin_edges,
    finite,
    number_of,
    numerals,
    state_number,
    state_of_truth,
)

T = TypeVar("T")

#: {variable: state, or likelihoods of its states}.
Evidence = Mapping[Any, Any]
UNKNOWN = -2  # among states: a value that is none
#: What files say where nothing is known, by habit.
_PERHAPS_MISSING = frozenset(
    ("na", "n/a", "#n/a", "nan", "null", "none", "nil", "?", "-", ".", "*", "missing", "unknown")
)
_TRUTHS = (bool, np.bool_)
_MOST_NUMBERS = 1 << 16  # integers of a smaller range are their own places


def numbered(
    graph: Variables, evidence: Any, *, likelihoods: bool = True, what: str = "evidence"
) -> tuple[dict[int, int], dict[int, Floats]]:
    """Observed states, and likelihoods (S,) where they are allowed, by variables' numbers."""
    if not isinstance(evidence, Mapping):
        raise EvidenceError(f"{what} must be a mapping {{variable: state}}, as in {{'x3': 1}}")
    hard: dict[int, int] = {}
    soft: dict[int, Floats] = {}
    for variable, state in evidence.items():
        v = _said(what, graph.index, variable)
        if v in hard or v in soft:
            raise EvidenceError(f"{what}: {graph.name(v)} is given twice")
        one = isinstance(state, str | Real | Decimal | np.bool_)
        one = one or integer(state) is not None
        if one or not likelihoods:
            hard[v] = _said(what, graph.state, variable, state)
        elif isinstance(state, (Mapping, Sequence, np.ndarray)):
            soft[v] = _likelihoods(graph, variable, state)
        else:
            raise EvidenceError(
                f"evidence: {graph.name(v)} must have a state's name or number, or likelihoods of "
                f"all its states, not {told(state)}"
            )
    return hard, soft


def soft_evidence(graph: Variables, given: Any) -> dict[int, Floats]:
    """Likelihoods (S,) by variables' numbers."""
    if not isinstance(given, Mapping):
        raise EvidenceError(
            "soft evidence must be a mapping {variable: likelihoods}, as in {'x3': [0.2, 0.8]}"
        )
    found: dict[int, Floats] = {}
    for variable, values in given.items():
        v = _said("soft evidence", graph.index, variable)
        if v in found:
            raise EvidenceError(f"soft evidence: {graph.name(v)} is given twice")
        found[v] = _likelihoods(graph, variable, values)
    return found


def _likelihoods(graph: Variables, variable: int | str, given: Any) -> Floats:
    """One for each state of a variable, from a list or by state."""
    v = graph.index(variable)
    name, n = graph.name(v), int(graph._n_states[v])
    if isinstance(given, Mapping):
        by_state: dict[int, Any] = {}
        for state, value in given.items():
            k = _said("soft evidence", graph.state, variable, state)
            if k in by_state:
                raise EvidenceError(f"soft evidence: {name}: a state is given twice, {told(state)}")
            by_state[k] = value
        given = [by_state.get(k, 0.0) for k in range(n)]
    what = f"soft evidence: likelihoods of {name}"
    like = real_numbers(given, what, EvidenceError).astype(np.float64)
    if like.shape != (n,):
        said = like.size if like.ndim == 1 else f"an array of shape {like.shape}"
        raise EvidenceError(
            f"soft evidence: {name} has {n} states: give one likelihood for each, not {said}"
        )
    if not np.isfinite(like).all() or (like < 0).any() or not like.any():
        raise EvidenceError(
            f"{what} must be finite, not negative and not all zero, not {like.tolist()}"
        )
    return like


def _said(what: str, ask: Callable[..., T], *given: Any) -> T:
    """What the model answers; its complaint is one of evidence."""
    try:
        return ask(*given)
    except ModelError as error:
        raise EvidenceError(f"{what}: {error}") from None


def log_field(
    graph: Variables, place: Mapping[int, int] | None, soft: Mapping[int, NDArray]
) -> Floats:
    """Soft evidence as log-weights (sum S,) of a model's states.

    ``place`` has the numbers of variables there, where it is a part of the one that was asked.
    """
    out = np.zeros(int(graph._offsets[-1]))
    for v, like in soft.items():
        at = v if place is None else place.get(v)
        if at is not None:
            lo = int(graph._offsets[at])
            with np.errstate(divide="ignore"):
                out[lo : lo + len(like)] = np.log(like)
    return out


def hard_and_field(
    graph: Variables, evidence: Any, field: Any, what: str = "evidence"
) -> tuple[Any, Any]:
    """Evidence without the likelihoods in it, which go into a field (sum S,) or None."""
    if not isinstance(evidence, Mapping):
        return evidence, field
    hard, soft = numbered(graph, evidence, what=what)
    if soft:
        more = log_field(graph, None, soft)
        if field is None or np.shape(field) == more.shape:  # others are for who checks shapes
            field = more if field is None else np.asarray(field, dtype=np.float64) + more
    return hard, field


def typed_variable(graph: Variables, text: str) -> int | str:
    """A variable as texts name it: a bare number is one, unless a variable is called so."""
    bare = text.isdecimal() and len(text) < 20 and text not in graph._index
    return int(text) if bare else text


def observed_states(graph: Variables, evidence: Any) -> dict[int, int]:
    """One evidence without likelihoods: a mapping, or states (V,)."""
    if isinstance(evidence, Mapping):
        return numbered(graph, evidence, likelihoods=False)[0]
    given = _array(evidence)
    if given.shape != (graph.n_variables,):
        raise EvidenceError(
            f"evidence: states have shape {given.shape}, not ({graph.n_variables},); give -1 where "
            "nothing is known, or a mapping {variable: state}"
        )
    row = states_of(graph, given[None], "evidence")[0]
    return {v: s for v, s in enumerate(row.tolist()) if s >= 0}


def states_of(graph: Variables, rows: Any, who: str) -> NDArray[np.int32]:
    """States (N, V) of rows that a program gives, -1 where nothing is known."""
    if is_array(rows):
        given, n = _array(rows), graph.n_variables
        states = np.atleast_2d(given)
        if states.ndim != 2 or states.shape[1] != n:
            raise EvidenceError(
                f"{who}: evidence must have shape (N, {n}), not {given.shape}; or give mappings "
                "{variable: state}, or one of columns {variable: states}"
            )
        whole = (
            states.dtype.kind in "iu" and not ((states < -1) | (states >= graph._n_states)).any()
        )
        if whole or not states.size:
            return np.ascontiguousarray(states, dtype=np.int32)
        rows = dict(enumerate(states.T))
    table = table_of(rows, who=who)
    out = np.full((table.n, graph.n_variables), -1, dtype=np.int32)
    for name, key in table.keys.items():
        v = _said(f"{who}: evidence", graph.index, key)
        reader = StateReader(graph, v, said=True, by_name=isinstance(key, str))
        column, before = table.column(name), out[:, v]
        states = reader(column)
        if fault := reader.fault(column, states):
            raise EvidenceError(f"{who}: row {fault[0]}: {fault[1]}")
        twice = (before >= 0) & (states >= 0) & (before != states)
        if twice.any():
            raise EvidenceError(
                f"{who}: row {int(np.argmax(twice))}: {graph.name(v)} is given two states"
            )
        out[:, v] = np.where(states >= 0, states, before)
    return out


def is_array(rows: Any) -> bool:
    """Whether rows are states alone, without names of columns."""
    if isinstance(rows, np.ndarray):
        return rows.dtype.names is None
    if isinstance(rows, (list, tuple)):
        return not (rows and isinstance(rows[0], Mapping))
    named = hasattr(rows, "columns") or hasattr(rows, "schema")  # tables of other libraries
    return hasattr(rows, "__array__") and not named


def _array(values: Any) -> NDArray:
    """An array in which texts are texts and numbers numbers, side by side too."""
    if isinstance(values, np.ma.MaskedArray):
        out = np.array(values.data, dtype=object)
        out[np.ma.getmaskarray(values)] = None
        return out
    try:
        given = np.asarray(values)
        if given.dtype.kind in "US" and not isinstance(values, np.ndarray):
            return np.array(values, dtype=object)
    except (TypeError, ValueError):  # ragged
        return np.array("?")
    return given


class Factorised(NamedTuple):
    """A column: the place of each cell among the different values, -1 where it is empty."""

    places: NDArray[np.integer]  # (N,)
    values: Sequence[Any]


class Table:
    """What a table of some kind has: n rows, and columns by name.

    ``kind`` is "pandas", "polars", "arrow", "columns", "records" or "array", ``keys`` are the names
    as the table itself has them, and ``who`` asks, for messages.
    """

    def __init__(
        self,
        kind: str,
        given: Any,
        names: Iterable[Any],
        n: int,
        get: Callable[[Any], Factorised],
        who: str = "predict",
    ) -> None:
        self.kind, self.given, self.n, self.get, self.who = kind, given, n, get, who
        self.keys: dict[str, Any] = {}
        for name in names:
            if str(name) in self.keys:
                raise EvidenceError(f"{who}: two columns are called {visible(str(name))!r}")
            self.keys[str(name)] = name

    @property
    def names(self) -> list[str]:
        return list(self.keys)

    def column(self, name: str) -> Factorised:
        try:
            return self.get(self.keys[name])
        except EvidenceError as error:
            raise EvidenceError(f"{self.who}: {visible(name)}, {error}") from None

    def raw(self, name: str) -> Any:
        """A column as it is, to be carried through."""
        key = self.keys[name]
        if self.kind == "records":
            return [row.get(key) for row in self.given]
        if self.kind == "array" and self.given.dtype.names is None:
            return self.given[:, self.names.index(name)]
        return self.given[key]


def table_of(rows: Any, columns: Sequence[str] | None = None, who: str = "predict") -> Table:
    """A table of any kind; ``columns`` names those of a plain array, ``who`` is for messages."""
    home = type(rows).__module__.partition(".")[0]
    if isinstance(rows, np.ndarray):
        return _of_array(rows, columns, who)
    if columns is not None:
        raise SettingsError(f"{who}: columns= names those of a plain array; this table has names")
    if home == "pandas" and hasattr(rows, "columns"):
        return Table("pandas", rows, rows.columns, len(rows), lambda k: _of_pandas(rows[k]), who)
    if home == "polars" and hasattr(rows, "columns"):
        if hasattr(rows, "collect"):
            rows = rows.collect()
        return Table("polars", rows, rows.columns, len(rows), lambda k: _of_polars(rows[k]), who)
    if home == "pyarrow" and hasattr(rows, "num_rows"):  # a table or a record batch
        names = rows.schema.names
        return Table("arrow", rows, names, rows.num_rows, lambda k: of_arrow(rows.column(k)), who)
    if isinstance(rows, Mapping):
        return _of_mapping(rows, who)
    listed = isinstance(rows, Sequence) and not isinstance(rows, (str, bytes))
    if listed and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(key for row in rows for key in row)
        return Table(
            "records", rows, names, len(rows), lambda k: of_objects([r.get(k) for r in rows]), who
        )
    else_ = "an array with columns=, or the name of a .csv or .parquet file"
    raise (EvidenceError if who == "batch" else SettingsError)(
        f"{who}: rows must be a data frame of pandas or polars, an Arrow table, columns {{name: "
        f"values}}, a list of dicts, {'or an array of states' if who == 'batch' else else_}, not "
        f"{type(rows).__name__}"
    )


def _of_array(rows: np.ndarray, columns: Sequence[str] | None, who: str) -> Table:
    if rows.dtype.names is not None:
        if rows.ndim != 1 or columns is not None:
            raise SettingsError(
                f"{who}: an array with named fields must have shape (N,), no columns="
            )
        return Table("array", rows, rows.dtype.names, len(rows), lambda k: of_values(rows[k]), who)
    if rows.ndim != 2 or columns is None or len(columns) != rows.shape[1]:
        raise SettingsError(
            f"{who}: an array of rows has shape (N, C) and comes with columns=, C names; this "
            f"one has shape {rows.shape} and {'none' if columns is None else len(columns)}"
        )
    place = {name: k for k, name in enumerate(columns)}
    return Table("array", rows, columns, len(rows), lambda k: of_values(rows[:, place[k]]), who)


def _of_mapping(rows: Mapping[Any, Any], who: str) -> Table:
    sizes = {}
    for name, values in rows.items():
        single = not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0
        if single or isinstance(values, (str, bytes, Mapping, Set)):
            raise (EvidenceError if who == "batch" else SettingsError)(
                f"{who}: column {visible(str(name))} must be a list or array of values, not "
                f"{type(values).__name__}; for one row give [{{variable: state}}]"
            )
        sizes[name] = len(values)
    if len(set(sizes.values())) > 1:
        raise EvidenceError(f"{who}: columns must have the same length, not {sizes}")
    n = next(iter(sizes.values()), 0)
    return Table("columns", rows, rows, n, lambda k: of_values(rows[k]), who)


def _of_pandas(column: Any) -> Factorised:
    import pandas as pd

    column = column if isinstance(column, pd.Series) else pd.Series(column)
    if isinstance(column.dtype, pd.CategoricalDtype):
        return Factorised(column.cat.codes.to_numpy(), list(column.cat.categories))
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":
        return of_values(column.to_numpy())
    if hasattr(column.array, "__arrow_array__"):
        try:
            return of_arrow(column.array.__arrow_array__())
        except ImportError:  # that needs pyarrow
            pass
    try:
        places, values = pd.factorize(column.to_numpy(dtype=object))
    except TypeError:  # of cells that have no hash
        return of_objects(column.tolist())
    return Factorised(places, values.tolist())


def _of_polars(column: Any) -> Factorised:
    try:
        return of_arrow(column.to_arrow())
    except ImportError:  # to_arrow needs pyarrow
        return of_objects(column.to_list())


def of_arrow(column: Any) -> Factorised:
    """Of an Arrow array, chunked or not."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(column, pa.ChunkedArray):  # too long for one array
            column = pa.concat_arrays(column.chunks)
    if not pa.types.is_dictionary(column.type):
        try:
            column = column.dictionary_encode()
        except pa.ArrowException:
            raise EvidenceError(
                f"a column of {column.type} has no states; texts or numbers are needed"
            ) from None
    places = column.indices
    if places.null_count:
        places = places.fill_null(-1) if pa.types.is_signed_integer(places.type) else (
            places.cast(pa.int64()).fill_null(-1))  # fmt: skip
    try:
        values = column.dictionary.to_pylist()
    except UnicodeDecodeError as error:
        raise EvidenceError(f"a column has texts that are not UTF-8: {error}") from None
    return Factorised(places.to_numpy(zero_copy_only=False), values)


def of_values(values: Any) -> Factorised:
    """Of a list, an array, or a column of a frame."""
    if not isinstance(values, np.ndarray):
        home = type(values).__module__.partition(".")[0]
        if home in _FRAMES and not hasattr(values, "columns"):
            return _FRAMES[home](values)
        return of_objects(values if isinstance(values, list) else list(values))
    if values.ndim != 1:
        raise EvidenceError(f"a column must have shape (N,), not {values.shape}")
    if isinstance(values, np.ma.MaskedArray):
        found = of_values(np.asarray(values.data))
        return Factorised(np.where(np.ma.getmaskarray(values), -1, found.places), found.values)
    kind = values.dtype.kind
    if kind == "b":
        return Factorised(values.astype(np.int8), (False, True))
    if kind == "f":
        empty = np.isnan(values)
        whole = np.where(empty, 0.0, values)
        if (np.abs(whole) < 2**31).all() and (whole == np.rint(whole)).all():
            found = _of_integers(whole.astype(np.int64))
            return Factorised(np.where(empty, -1, found.places), found.values)
        different, places = np.unique(values, return_inverse=True)
        return Factorised(np.where(empty, -1, places), different.tolist())
    if kind in "iu":
        return _of_integers(values)
    return of_objects(values.tolist())


_FRAMES = {"pandas": _of_pandas, "polars": _of_polars, "pyarrow": of_arrow}


def _of_integers(values: NDArray[np.integer]) -> Factorised:
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low < _MOST_NUMBERS and -(2**62) < low <= high < 2**62:
        return Factorised(values.astype(np.int64) - low, range(low, high + 1))
    different, places = np.unique(values, return_inverse=True)
    return Factorised(places, different.tolist())


def _plain(cell: Any) -> Any:
    """What a masked cell, or an array of one, stands for."""
    if cell is np.ma.masked:
        return None
    return cell.item() if isinstance(cell, np.ndarray) and cell.ndim == 0 else cell


def of_objects(values: list[Any]) -> Factorised:
    """Of any objects, by a dictionary."""
    try:
        different = dict.fromkeys(values)
    except TypeError:
        plain = [_plain(x) for x in values]
        if any(x is not y for x, y in zip(plain, values)):
            return of_objects(plain)
        wrong = next(k for k, x in enumerate(values) if getattr(x, "__hash__", None) is None)
        raise EvidenceError(
            f"row {wrong}: a cell must be a state's name or number, not "
            f"{type(values[wrong]).__name__}"
        ) from None
    kinds = set(map(type, values))
    if len(kinds) > 1 and kinds & {bool, np.bool_}:  # True equals 1, but does not say the same
        keys = [(isinstance(x, bool | np.bool_), x) for x in values]
        pairs = {key: k for k, key in enumerate(dict.fromkeys(keys))}
        return Factorised(np.array([pairs[key] for key in keys]), [x for _, x in pairs])
    for k, value in enumerate(different):
        different[value] = k
    places = np.fromiter(map(different.__getitem__, values), dtype=np.int64, count=len(values))
    return Factorised(places, list(different))


class StateReader:
    """Turns columns into states of one variable.

    ``missing`` are texts that say nothing. ``said``: by a program, not in a file; ``by_name``: the
    variable was given by name, so that a number that may be a state's name is refused.
    """

    def __init__(
        self,
        graph: Variables,
        variable: int,
        missing: Iterable[str] = (),
        *,
        said: bool = False,
        by_name: bool = True,
    ) -> None:
        self.variable, self.name = variable, graph.name(variable)
        self.names, self.n_states = graph._own_states(variable), int(graph._n_states[variable])
        self.missing, self.said, self.by_name = frozenset(missing), said, by_name
        self.numbers = numerals(self.names)
        self.edges = bin_edges(self.names) if self.names and by_name else None

    def __call__(self, column: Factorised) -> NDArray[np.int32]:
        """States (N,), -1 where nothing is known and UNKNOWN where the value is none."""
        states = np.empty(len(column.values) + 1, dtype=np.int32)
        states[-1] = -1
        given: Sequence[Any] = column.values if self.edges is not None else ()
        truths = not isinstance(given, range) and any(isinstance(x, _TRUTHS) for x in given)
        values = np.array([]) if truths else np.asarray(given)
        if values.dtype.kind in "iuf" and len(values):
            number = values.astype(np.float64)
            states[:-1] = np.searchsorted(np.array(self.edges), number, side="right")
            states[:-1][~np.isfinite(number)] = UNKNOWN
            states[:-1][np.isnan(number)] = -1
            return states.take(column.places.astype(np.intp, copy=False), mode="wrap")
        for k, value in enumerate(column.values):
            states[k] = self.state(value)
        return states.take(column.places.astype(np.intp, copy=False), mode="wrap")  # -1: the last

    def fault(self, column: Factorised, states: NDArray[np.int32]) -> tuple[int, str] | None:
        """The first row of a column that is no state, and what is wrong with it."""
        if not states.size or states.min() != UNKNOWN:
            return None
        row = int(np.argmax(states == UNKNOWN))
        return row, self.complaint(column.values[int(column.places[row])])

    def state(self, value: Any) -> int:
        if isinstance(value, str) and not self.said:
            return self._of_text(value)
        if is_missing(value):
            return -1
        if self.said:
            value = _whole(value)
            if integer(value) == -1 and self.edges is None:
                return -1
            try:
                by = self.by_name
                return state_number(self.name, self.n_states, self.names, value, by_name=by)
            except EvidenceError:
                return UNKNOWN
        if isinstance(value, bytes):
            return self._of_text(value.decode("utf-8", "replace"))
        if isinstance(value, bool | np.bool_):
            return self._of_truth(bool(value))
        try:
            number = float(value)
        except (TypeError, ValueError):
            return self._of_text(str(value))
        except OverflowError:
            return UNKNOWN
        return self._of_number(number)

    def _of_text(self, text: str) -> int:
        for form in (text, text.strip()):
            if self.names is not None and form in self.names:
                return self.names.index(form)
            if form in self.missing:
                return -1
        number = number_of(text)
        if number is not None:
            return self._of_number(number)
        truth = {"true": True, "false": False}.get(text.strip().lower())
        return UNKNOWN if truth is None else self._of_truth(truth)

    def _of_truth(self, value: bool) -> int:
        found = state_of_truth(self.names, value)
        if found is None and (self.names is None or self.names in (("0", "1"), ("1", "0"))):
            return self._of_number(float(value))
        return UNKNOWN if found is None else found

    def _of_number(self, number: float) -> int:
        if self.edges is not None:
            return bisect_right(self.edges, number) if finite(number) is not None else UNKNOWN
        if self.numbers is not None:
            return self.numbers.get(number, UNKNOWN)
        whole = math.isfinite(number) and number == math.floor(number)
        return int(number) if whole and -1 <= number < self.n_states else UNKNOWN

    def complaint(self, value: Any) -> str:
        """What is wrong with a value that is not a state."""
        given = _whole(value) if self.said else str(value)
        name = self.name if self.said else visible(self.name)
        try:
            state_number(name, self.n_states, self.names, given, by_name=self.by_name)
        except MinferError as error:
            said = visible(str(value).strip())
            if self.said or said.lower() not in _PERHAPS_MISSING:
                return str(error)
            return (
                f'{error}; where {said} stands for nothing known: missing=["", "{said}"], or '
                f"--missing {said}"
            )
        return f"{visible(self.name)} has no state {visible(str(value))!r}"


def is_missing(value: Any) -> bool:
    """None, NaN, NaT, the NA of data frames and a masked cell: nothing known."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return not isinstance(value, str) and bool(value != value)


def _whole(value: Any) -> Any:
    """A float that is a whole number as an int: columns with missing numbers are of floats."""
    return int(value) if isinstance(value, float | np.floating) and value.is_integer() else value
