"""Posteriors as tables of the kind that came in.

For a target A: ``A`` (its most probable state), ``P(A)`` (how probable that is), ``P(A=state)`` for
each state; at last ``log P(e)``, and ``problem``: empty, or why a row has no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from minfer.graph import FactorGraph

IMPOSSIBLE = "impossible: the evidence has probability 0"
LOG_PE, PROBLEM = "log P(e)", "problem"


class Texts(NamedTuple):
    """A column of few different texts: places among them, -1 for none."""

    places: NDArray[np.integer]
    values: list[str]

    def objects(self) -> NDArray[np.object_]:
        return np.array([*self.values, None], dtype=object)[self.places]


Column = Any  # an array, Texts, or a column of the table that came in


def answer_names(
    graph: FactorGraph, targets: Sequence[int], probabilities: bool
) -> list[tuple[int, str, str, list[str]]]:
    """For each target: its number, and the names of its columns."""
    out = []
    for v in targets:
        name = graph.name(v)
        states = [f"P({name}={s})" for s in graph.states(v)] if probabilities else []
        out.append((v, name, f"P({name})", states))
    return out


def answer_columns(
    graph: FactorGraph,
    targets: Sequence[int],
    probs: NDArray[np.float64],
    log_pe: NDArray[np.float64] | None,
    problems: Texts,
    probabilities: bool,
) -> dict[str, Column]:
    """Columns of the answer by name; ``probs`` (N, states of the targets end to end)."""
    out: dict[str, Column] = {}
    first = 0
    unanswered = problems.places >= 0
    some = bool(unanswered.any())
    for v, name, of_best, by_state in answer_names(graph, targets, probabilities):
        size = int(graph._n_states[v])
        part = probs[:, first : first + size]
        if size == 2:
            best = (part[:, 1] > part[:, 0]).astype(np.int8)
            highest = np.maximum(part[:, 0], part[:, 1])
        else:
            best = part.argmax(axis=1)
            highest = part[np.arange(len(part)), best]
        if some:
            best = np.where(unanswered, -1, best)
        named = graph._states is not None and graph._states[v] is not None
        out[name] = Texts(best, list(graph.states(v))) if named else best.astype(np.int64)
        out[of_best] = highest
        for k, label in enumerate(by_state):
            out[label] = part[:, k]
        first += size
    if log_pe is not None:
        out[LOG_PE] = log_pe
    out[PROBLEM] = problems
    return out


# ---------------------------------------------------------------------- of each kind


def as_kind(kind: str, given: Any, columns: dict[str, Column], rows: NDArray | None) -> Any:
    """The answer as a table of a kind; ``rows``: those of the input it is about, None: all."""
    if kind == "pandas":
        import pandas as pd

        index = given.index if rows is None else given.index[rows]
        frame = pd.DataFrame({k: plain(x) for k, x in columns.items()}, index=index, copy=False)
        frame[PROBLEM] = pd.Series(columns[PROBLEM].objects(), index=index, dtype=object)  # None
        return frame
    if kind == "polars":
        import polars as pl

        return pl.DataFrame(
            {
                k: pl.Series(k, x.objects().tolist(), dtype=pl.String) if isinstance(x, Texts) else
                x if isinstance(x, pl.Series) else pl.Series(k, np.ascontiguousarray(x))
                for k, x in columns.items()
            }
        )  # fmt: skip
    if kind == "arrow":
        return as_arrow(columns)
    if kind == "records":
        lists = [plain(x) for x in columns.values()]
        lists = [x.tolist() if isinstance(x, np.ndarray) else x for x in lists]
        return [dict(zip(columns, cells)) for cells in zip(*lists)]
    arrays = {k: np.asarray(plain(x)) for k, x in columns.items()}
    if kind == "columns":
        return arrays
    out = np.empty(
        len(next(iter(arrays.values()))), dtype=[(k, x.dtype) for k, x in arrays.items()]
    )
    for k, x in arrays.items():
        out[k] = x
    return out


def plain(column: Column) -> Any:
    """A column as what tables of all kinds take."""
    if isinstance(column, Texts):
        return column.objects()
    return column.array if hasattr(column, "iloc") else column  # a series has its own index


def as_arrow(columns: dict[str, Column]) -> Any:
    """An Arrow table."""
    import pyarrow as pa

    def array(x: Column) -> Any:
        if isinstance(x, Texts):
            mask = x.places < 0
            places = pa.array(np.where(mask, 0, x.places).astype(np.int32), mask=mask)
            values = pa.array(x.values or [""], pa.string())
            return pa.DictionaryArray.from_arrays(places, values).cast(pa.string())
        return pa.array(np.ascontiguousarray(x)) if isinstance(x, np.ndarray) else x

    return pa.table({k: array(x) for k, x in columns.items()})


def taken(column: Any, rows: NDArray[np.int64]) -> Any:
    """Some rows of a column of any kind."""
    if hasattr(column, "iloc"):
        return column.iloc[rows]
    if isinstance(column, list):
        return [column[r] for r in rows.tolist()]
    return column.take(rows) if hasattr(column, "take") else column[rows]
