"""Certified intervals on the command line: the search with its bar, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from minfer.certified.telling import advice, certain, ending, judged
from minfer.cli.progress import bar
from minfer.limits import load_compiler
from minfer.words import options_in

if TYPE_CHECKING:
    from minfer.certified.result import Intervals, Step
    from minfer.graph import FactorGraph
    from minfer.solvers.base import Marginals


def find(graph: FactorGraph, seconds: float | None, **options: Any) -> Intervals:
    """:func:`minfer.intervals`, in this thread, so that Ctrl-C ends the search, not the command."""
    load_compiler()
    from minfer.certified.search import intervals as search

    return search(graph, seconds, **options)


@contextmanager
def live(n: int) -> Iterator[Callable[[Step], None] | None]:
    """A bar on stderr for the ``watch`` of a search of n variables, if that is a terminal."""
    with bar(max(n, 1)) as draw:
        if draw is None:
            yield None
            return

        def watch(step: Step) -> None:
            text = (
                f"{n - step.open:,} of {n:,} finished; width {step.mean_width:.2g} on average, "
                f"{step.max_width:.2g} at most; {step.method}"
            )
            draw(n - step.open, f"intervals: {text}")

        yield watch


def sentence(iv: Intervals, chosen: list[int] | None = None, undecided: bool = False) -> str:
    """What is certain, why the search ended and what to do next, in plain words."""
    next_step = options_in(advice(iv, chosen, undecided))
    text = f"{certain(iv, chosen)}. {ending(iv)}"
    return f"{text}; {next_step}." if next_step else f"{text}."


def told(iv: Intervals, marginals: Marginals, chosen: list[int] | None = None) -> dict[str, str]:
    """Two lines about intervals for the facts below an answer."""
    text = sentence(iv, chosen).replace("--time-limit", "--intervals").removesuffix(".")
    return {
        "judged": judged(iv, marginals, chosen),
        "intervals": text.replace("--variables", "--query"),
    }
