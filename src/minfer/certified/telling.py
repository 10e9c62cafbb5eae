"""What intervals prove, in sentences and as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.certified.result import REFUTED, Intervals
from minfer.graph import FactorGraph
from minfer.solvers.base import Marginals
from minfer.words import duration, upwards


def certain(iv: Intervals, chosen: list[int] | None = None) -> str:
    """How many variables are certified, decided and vacuous."""
    which = slice(None) if chosen is None else chosen
    width = iv.width[which]
    n = len(width)
    if not n:
        return "The model has no variables"
    narrow, decided = int((width <= iv.tol).sum()), int(iv.decided()[which].sum())
    vacuous = int(iv.vacuous[which].sum())
    parts = [
        f"{_share(narrow, n)} certified to {iv.tol:g}",
        f"the most probable state is certain {'for all' if decided == n else f'for {decided:,}'}",
    ]
    if vacuous:
        parts.append(f"nothing is known about {'any' if vacuous == n else f'{vacuous:,}'}")
    return "; ".join(parts)


def _share(k: int, n: int) -> str:
    if n == 1:
        return f"The variable is{'' if k else ' not'}"
    return f"{'All' if k == n else f'{k:,} of'} {n:,} variables are"


ENDINGS = {
    "tolerance": "It took",
    "time": "The time limit was reached after",
    "work": "The work limit was reached after",
    "interrupted": "It was interrupted after",
    "exhausted": "Nothing was left to try after",
}


def ending(iv: Intervals) -> str:
    """Why the search ended, and when."""

    return f"{ENDINGS[iv.stopped]} {duration(iv.seconds)}"


def judged(iv: Intervals, marginals: Marginals, chosen: list[int] | None = None) -> str:
    """How many numbers of an estimate are refuted, and how far off it can be at most."""
    least, most = iv.error_bounds(marginals)
    which = slice(None) if chosen is None else chosen
    least, most = least[which], most[which]
    if not len(least):
        return "none: the model has no variables"
    bad, n = int((least > REFUTED).sum()), len(least)
    if bad:
        text = f"{bad:,} of {n:,} estimates are refuted: provably off by more than {REFUTED:g}"
    else:
        text = f"no estimate is refuted by more than {REFUTED:g}"
    sure = int((most <= REFUTED).sum())
    text += f"; {'all' if sure == n else f'{sure:,}'} are provably within {REFUTED:g}"
    return f"{text}; no probability is off by more than {upwards(float(most.max()))} (rigorous)"


def colours(iv: Intervals, answer: NDArray[np.int64]) -> str:
    """For how many pixels the colour is proven; ``answer`` (V,) are the colours that were found."""

    states = iv.states()
    sure, wrong = int((states >= 0).sum()), int(((states >= 0) & (states != answer)).sum())
    n = len(states)
    text = (
        f"{sure:,} of {n:,} pixels are decided: their most probable colour is proven, whatever the "
        "solver"
    )
    if wrong:
        text += f"; {wrong:,} of them should have the other colour"
    return f"{text} (rigorous; {duration(iv.seconds)})"


def to_dict(
    iv: Intervals, chosen: list[int] | None = None, marginals: Marginals | None = None
) -> dict[str, Any]:
    """As JSON: the intervals of the chosen variables, and how an estimate fares."""
    content = iv.to_dict()
    which = np.arange(len(iv)) if chosen is None else np.asarray(chosen, dtype=np.int64)
    every = content["intervals"]
    content["certified"] = int((iv.width[which] <= iv.tol).sum())
    content["intervals"] = {iv.graph.name(int(v)): every[iv.graph.name(int(v))] for v in which}
    if marginals is not None:
        least, most = iv.error_bounds(marginals)
        content["refuted_by"] = REFUTED
        content["refuted"] = int((least[which] > REFUTED).sum())
        content["largest_possible_error"] = float(most[which].max(initial=0.0))
        for v in which.tolist():
            content["intervals"][iv.graph.name(v)]["refuted"] = bool(least[v] > REFUTED)
    return content


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
