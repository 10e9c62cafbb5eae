"""Variables and their states in rows, for people and for files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.notebook import Bold, Face, Right
from minfer.basics.words import and_more, ends, probability
from minfer.errors import visible
from minfer.say.intervals import REFUTED

if TYPE_CHECKING:
    from minfer.certified.result import Intervals
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Marginals

MOST_COLUMNS = 6  # states shown as columns of their own
MOST_INTERVALS = 3  # where each has an interval
MOST_STATES = 4  # states named in a row otherwise


def rows(
    graph: FactorGraph,
    chosen: list[int] | None,
    marginals: Marginals | None,
    iv: Intervals | None,
) -> Iterator[list[Any]]:
    """A row for every state, their names first: its probability, its interval, or both."""
    judges = marginals is not None and iv is not None
    head = ["variable", "state", *(["p"] if marginals is not None else [])]
    head += [*(["lo", "hi", "method"] if iv is not None else []), *(["refuted"] if judges else [])]
    yield head
    method = None if iv is None else iv.method
    refuted = iv.refuted(marginals, REFUTED) if iv is not None and marginals is not None else None
    for v in range(graph.n_variables) if chosen is None else chosen:
        ends = None if iv is None else iv[v]
        for s, name in enumerate(graph.states(v)):
            row: list[Any] = [graph.name(v), name]
            if marginals is not None:
                row.append(float(marginals[v][s]))
            if ends is not None and method is not None:
                row += [float(ends[s, 0]), float(ends[s, 1]), method[v]]
            if refuted is not None:
                row.append(int(refuted[v]))
            yield row


def marginal_table(
    marginals: Marginals, chosen: list[int] | None, most: int, iv: Intervals | None = None
) -> Face:
    """One row per variable, of those chosen, or the least certain first; with intervals, if any."""
    variables = chosen
    if variables is None:
        variables = np.argsort(marginals.max_prob(), kind="stable")[:most].tolist()

    def cells(v: int) -> tuple[list[str], NDArray[np.int64]]:
        texts = list(map(probability, marginals[v]))
        if iv is not None:
            texts = [f"{p} {ends(*e)}" for p, e in zip(texts, iv[v])]
        return texts, np.argsort(-marginals[v], kind="stable")

    columns, last = (MOST_COLUMNS, "most probable"), {}
    if iv is not None:
        refuted = iv.refuted(marginals, REFUTED)
        columns = (MOST_INTERVALS, "most probable")
        last = {"": lambda v: Bold("refuted") if refuted[v] else ""}
    found = _state_table(marginals.graph, variables, cells, columns, last)
    left = 0 if chosen is not None else len(marginals) - len(variables)
    conclusion = "" if len(marginals) else "The model has no variables."
    return found._replace(conclusion=conclusion, more=and_more(left, "all at least as certain"))


def interval_table(iv: Intervals, chosen: list[int] | None, most: int) -> Face:
    """One row per variable, the widest first: its intervals, the width, and the method."""
    of = np.arange(len(iv)) if chosen is None else np.asarray(chosen, dtype=np.int64)
    order = of[np.argsort(-iv.width[of], kind="stable")]
    variables = (order[:most] if chosen is None else order).tolist()
    width, method, vacuous = iv.width, iv.method, iv.vacuous

    def cells(v: int) -> tuple[list[str], NDArray[np.int64]]:
        lo, hi = np.asarray(iv[v]).T
        return [ends(*pair) for pair in iv[v]], np.lexsort((-lo, -hi))

    last = {
        "width": lambda v: Right(f"{width[v]:.2g}"),
        "by": lambda v: "nothing known" if vacuous[v] else str(method[v]),
    }
    found = _state_table(iv.graph, variables, cells, (MOST_INTERVALS, "highest"), last)
    return found._replace(more=and_more(len(of) - len(variables), "none wider"))


def _state_table(
    graph: FactorGraph,
    variables: Sequence[int],
    cells: Callable[[int], tuple[list[str], NDArray[np.int64]]],
    most: tuple[int, str],
    last: Mapping[str, Callable[[int], object]] = {},
) -> Face:
    """States as columns if they are few and called alike, or else the first few of each listed.

    ``cells`` of a variable are a text for each state, and their order.
    """
    longest = max((graph.states(v) for v in variables), key=len, default=())
    alike = all(graph.states(v) == longest[: graph.n_states[v]] for v in variables)
    columns = [f"p({visible(s)})" for s in longest] if alike and len(longest) <= most[0] else []
    rows: list[list[object]] = []
    for v in variables:
        texts, order = cells(v)
        if columns:
            own: list[object] = [
                Bold(text) if s == order[0] else Right(text) for s, text in enumerate(texts)
            ]
            own += [""] * (len(columns) - len(own))
        else:
            names, left = graph.states(v), len(texts) - MOST_STATES
            text = "  ".join(f"{visible(names[s])}: {texts[s]}" for s in order[:MOST_STATES])
            own = [str(len(texts)), f"{text}  +{left} more" if left > 0 else text]
        rows.append([graph.name(v), *own, *(of(v) for of in last.values())])
    return Face("", ("variable", *(columns or ("states", most[1])), *last), rows)
