"""Certified intervals on the command line: the search with its bar, and lines about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from minfer.basics.limits import load_compiler
from minfer.cli.progress import bar
from minfer.say.intervals import judged, sentence

if TYPE_CHECKING:
    from minfer.certified.result import Intervals, SearchStep
    from minfer.graph import FactorGraph
    from minfer.reduction.result import Result
    from minfer.solvers.base import Marginals


def find(
    graph: FactorGraph, seconds: float | None, variables: list[int] | None = None, **options: Any
) -> Intervals:
    """:func:`minfer.intervals`, in this thread, so that Ctrl-C ends the search, not the command."""
    load_compiler()
    from minfer.certified.search import intervals as search

    with live(graph.n_variables if variables is None else len(variables)) as watch:
        return search(graph, seconds, variables=variables, watch=watch, **options)


@contextmanager
def live(n: int) -> Iterator[Callable[[SearchStep], None]]:
    """A bar on stderr for the ``watch`` of a search of n variables."""
    with bar(max(n, 1)) as draw:
        yield lambda step: draw(n - step.open, f"intervals: {step.told(n)}")


def certified(result: Result, seconds: float | None, **options: Any) -> Result:
    """A reduced answer with intervals, if they are asked for."""
    if seconds is None:
        return result
    with live(result.model.n_variables) as watch:
        return result.certified(seconds, watch=watch, **options)


def told(iv: Intervals, marginals: Marginals, chosen: list[int] | None = None) -> dict[str, str]:
    """Two lines about intervals for the facts below an answer."""
    text = sentence(iv, chosen)
    return {"judged": judged(iv, marginals, chosen), "intervals": text.removesuffix(".")}
