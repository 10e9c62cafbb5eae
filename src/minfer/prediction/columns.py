"""Tables as states: names of columns are variables, cells are states by name or number.

A column is *factorised*, in compiled code of whoever made the table: into its different values and
the place of each cell among them. Only the different values, of which there are few, are looked at
by Python; so a table costs a few nanoseconds a cell.

**What a cell says.** None, NaN, NA and texts listed as missing: nothing known. A text is a state's
name; of a variable without names, or that has no state of that name, a whole number is a state's
number. A number is a state's number, unless the variable has names that are numbers themselves
("1", "2.5"): then it is one of these. Where it is a state's, -1 is nothing known, as in batches.
True and False are states that are called so; where there are no names, 1 and 0. The rules are in
:mod:`minfer.states`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.errors import EvidenceError, MinferError, SettingsError, visible
from minfer.states import cell_of_number, cell_of_truth, number_of, numerals, state_number

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

UNKNOWN = -2  # among states: a value that is none
#: What files say where nothing is known, by habit.
_PERHAPS_MISSING = frozenset(
    ("na", "n/a", "#n/a", "nan", "null", "none", "nil", "?", "-", ".", "*", "missing", "unknown")
)
_MOST_NUMBERS = 1 << 16  # integers of a smaller range are their own places


class Factorised(NamedTuple):
    """A column: the place of each cell among the different values, -1 where it is empty."""

    places: NDArray[np.integer]  # (N,)
    values: Sequence[Any]


class Table:
    """What a table of some kind has: columns by name.

    Attributes
    ----------
    kind : "pandas", "polars", "arrow", "columns", "records" or "array"
    names : of its columns
    n : rows
    """

    def __init__(
        self, kind: str, given: Any, names: Iterable[Any], n: int, get: Callable[[Any], Factorised]
    ) -> None:
        self.kind, self.given, self.n, self.get = kind, given, n, get
        self._keys: dict[str, Any] = {}
        for name in names:
            if str(name) in self._keys:
                raise EvidenceError(f"predict: two columns are called {visible(str(name))!r}")
            self._keys[str(name)] = name

    @property
    def names(self) -> list[str]:
        return list(self._keys)

    def column(self, name: str) -> Factorised:
        return self.get(self._keys[name])

    def raw(self, name: str) -> Any:
        """A column as it is, to be carried through."""
        key = self._keys[name]
        if self.kind == "records":
            return [row.get(key) for row in self.given]
        if self.kind == "array" and self.given.dtype.names is None:
            return self.given[:, self.names.index(name)]
        return self.given[key]


def table_of(rows: Any, columns: Sequence[str] | None = None) -> Table:
    """A table of any kind; ``columns`` names those of a plain array."""
    home = type(rows).__module__.partition(".")[0]
    if isinstance(rows, np.ndarray):
        return _of_array(rows, columns)
    if columns is not None:
        raise SettingsError("predict: columns= names those of a plain array; this table has names")
    if home == "pandas" and hasattr(rows, "columns"):
        return Table("pandas", rows, rows.columns, len(rows), lambda k: _of_pandas(rows, k))
    if home == "polars" and hasattr(rows, "columns"):
        if hasattr(rows, "collect"):
            rows = rows.collect()
        return Table("polars", rows, rows.columns, len(rows), lambda k: _of_polars(rows[k]))
    if home == "pyarrow" and hasattr(rows, "column_names"):
        names = rows.column_names
        return Table("arrow", rows, names, rows.num_rows, lambda k: of_arrow(rows.column(k)))
    if home == "pyarrow" and hasattr(rows, "schema"):  # a record batch
        names = rows.schema.names
        return Table("arrow", rows, names, rows.num_rows, lambda k: of_arrow(rows.column(k)))
    if isinstance(rows, Mapping):
        return _of_mapping(rows)
    if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(key for row in rows for key in row)
        return Table(
            "records", rows, names, len(rows), lambda k: of_objects([r.get(k) for r in rows])
        )
    raise SettingsError(
        "predict: rows must be a data frame of pandas or polars, an Arrow table, columns {name: "
        "values}, a list of dicts, an array with columns=, or the name of a .csv or .parquet file, "
        f"not {type(rows).__name__}"
    )


def _of_array(rows: np.ndarray, columns: Sequence[str] | None) -> Table:
    if rows.dtype.names is not None:
        if rows.ndim != 1 or columns is not None:
            raise SettingsError(
                "predict: an array with named fields must have shape (N,), no columns="
            )
        return Table("array", rows, rows.dtype.names, len(rows), lambda k: of_values(rows[k]))
    if rows.ndim != 2 or columns is None or len(columns) != rows.shape[1]:
        raise SettingsError(
            f"predict: an array of rows has shape (N, C) and comes with columns=, C names; this "
            f"one has shape {rows.shape} and {'none' if columns is None else len(columns)}"
        )
    place = {name: k for k, name in enumerate(columns)}
    return Table("array", rows, columns, len(rows), lambda k: of_values(rows[:, place[k]]))


def _of_mapping(rows: Mapping[Any, Any]) -> Table:
    sizes = {}
    for name, values in rows.items():
        single = not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0
        if isinstance(values, str) or single:
            raise SettingsError(
                f"predict: column {visible(str(name))} must be a list or array of values, not "
                f"{type(values).__name__}; for one row give [{{variable: state}}]"
            )
        sizes[name] = len(values)
    if len(set(sizes.values())) > 1:
        raise EvidenceError(f"predict: columns must have the same length, not {sizes}")
    n = next(iter(sizes.values()), 0)
    return Table("columns", rows, rows, n, lambda k: of_values(rows[k]))


# ---------------------------------------------------------------------- factorising


def _of_pandas(frame: Any, key: Any) -> Factorised:
    import pandas as pd

    column = frame[key]
    if isinstance(column.dtype, pd.CategoricalDtype):
        return Factorised(column.cat.codes.to_numpy(), list(column.cat.categories))
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":
        return of_values(column.to_numpy())
    if hasattr(column.array, "__arrow_array__"):
        try:
            return of_arrow(column.array.__arrow_array__())
        except ImportError:  # that needs pyarrow
            pass
    places, values = pd.factorize(column.to_numpy(dtype=object))
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
                f"predict: a column of {column.type} has no states; texts or numbers are needed"
            ) from None
    places = column.indices
    if places.null_count:
        places = places.fill_null(-1) if pa.types.is_signed_integer(places.type) else (
            places.cast(pa.int64()).fill_null(-1))  # fmt: skip
    try:
        values = column.dictionary.to_pylist()
    except UnicodeDecodeError as error:
        raise EvidenceError(f"predict: a column has texts that are not UTF-8: {error}") from None
    return Factorised(places.to_numpy(zero_copy_only=False), values)


def of_values(values: Any) -> Factorised:
    """Of a list or array."""
    if not isinstance(values, np.ndarray):
        if type(values).__module__.partition(".")[0] == "pandas":  # a series among columns
            values = values.to_numpy()
        elif type(values).__module__.partition(".")[0] == "pyarrow":
            return of_arrow(values)
        else:
            return of_objects(values if isinstance(values, list) else list(values))
    if values.ndim != 1:
        raise EvidenceError(f"predict: a column must have shape (N,), not {values.shape}")
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


def _of_integers(values: NDArray[np.integer]) -> Factorised:
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low < _MOST_NUMBERS and -(2**62) < low <= high < 2**62:
        return Factorised(values.astype(np.int64) - low, range(low, high + 1))
    different, places = np.unique(values, return_inverse=True)
    return Factorised(places, different.tolist())


def of_objects(values: list[Any]) -> Factorised:
    """Of any objects, by a dictionary."""
    try:
        different = dict.fromkeys(values)
    except TypeError:
        wrong = next(k for k, x in enumerate(values) if getattr(x, "__hash__", None) is None)
        raise EvidenceError(
            f"predict: row {wrong}: a cell must be a state's name or number, not "
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


# ---------------------------------------------------------------------- states


class StateReader:
    """Turns columns into states of one variable."""

    def __init__(self, graph: FactorGraph, variable: int, missing: Iterable[str]) -> None:
        self.graph, self.variable = graph, variable
        self.names = graph._states[variable] if graph._states is not None else None
        self.n_states = int(graph._n_states[variable])
        self.missing = frozenset(missing)
        self.numbers = numerals(self.names)
        self._seen: dict[Any, int] = {}

    def __call__(self, column: Factorised) -> NDArray[np.int32]:
        """States (N,), -1 where nothing is known and UNKNOWN where the value is none."""
        states = np.empty(len(column.values) + 1, dtype=np.int32)
        states[-1] = -1
        for k, value in enumerate(column.values):
            states[k] = self.state(value)
        return states.take(column.places.astype(np.intp, copy=False), mode="wrap")  # -1: the last

    def state(self, value: Any) -> int:
        key = (type(value), value)
        if key not in self._seen:
            if len(self._seen) > 100_000:
                self._seen.clear()
            self._seen[key] = self._state(value)
        return self._seen[key]

    def _state(self, value: Any) -> int:
        if isinstance(value, str):
            return self._of_text(value)
        if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
            return -1
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
        found = cell_of_truth(self.n_states, self.names, self.numbers, value)
        return UNKNOWN if found is None else found

    def _of_number(self, number: float) -> int:
        found = cell_of_number(self.n_states, self.numbers, number)
        return UNKNOWN if found is None else found

    def complaint(self, value: Any) -> str:
        """What is wrong with a value that is not a state."""
        try:
            text = value if isinstance(value, str) else str(value)
            state_number(visible(self.graph.name(self.variable)), self.n_states, self.names, text)
        except MinferError as error:
            if text.strip().lower() not in _PERHAPS_MISSING:
                return str(error)
            said = visible(text.strip())
            return (
                f'{error}; where {said} stands for nothing known: missing=["", "{said}"], or '
                f"--missing {said}"
            )
        return f"{visible(self.graph.name(self.variable))} has no state {visible(str(value))!r}"
