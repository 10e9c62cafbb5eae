"""What intervals prove, in sentences and as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.certified.result import REFUTED, Intervals
from minfer.errors import visible
from minfer.graph import FactorGraph
from minfer.notebook import Bold, Face, Right
from minfer.solvers.base import Marginals
from minfer.words import and_more, counted, duration, ends, probability, upwards

MOST_COLUMNS = 6  # states shown as columns of their own
MOST_INTERVALS = 3  # where each has an interval
FAR = 5.0  # times an estimated error, which may be a standard error, that refutes it
MOST_STATES = 4  # states named in a row otherwise


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


def progress(iv: Intervals, chosen: list[int] | None = None, undecided: bool = False) -> str:
    """Of intervals that are too wide: what is left to try, or when they last became narrower.

    Whether more time would narrow them further nobody knows, so nothing is promised.
    """
    which = slice(None) if chosen is None else chosen
    left = iv.width[which] > iv.tol
    if undecided:
        left &= ~iv.decided()[which]
    if not left.any():
        return ""
    if iv.stopped == "exhausted":
        return "only exact inference is left: `minfer plan` says what it would cost"
    narrower = [
        after.seconds
        for before, after in pairwise(iv.trace)
        if after.mean_width < before.mean_width
    ]
    if not narrower:
        return "no step narrowed anything"
    return f"the last step that narrowed anything ended after {duration(narrower[-1])}"


UNDECIDED = (
    "It was not decided whether the model allows any assignment at all; the intervals hold if it "
    "does"
)


def sentence(iv: Intervals, chosen: list[int] | None = None, undecided: bool = False) -> str:
    """What is certain, why the search ended, and how far it had come."""
    more = progress(iv, chosen, undecided)
    text = f"{certain(iv, chosen)}. {ending(iv)}{f'; {more}' if more else ''}."
    return text if iv.satisfiable else f"{text} {UNDECIDED}."


def widest(iv: Intervals, chosen: list[int] | None = None, most: int | None = None) -> list[int]:
    """The chosen variables, or the first of all, with the widest intervals first."""
    of = np.arange(len(iv)) if chosen is None else np.asarray(chosen, dtype=np.int64)
    return of[np.argsort(-iv.width[of], kind="stable")][:most].tolist()


def judged(iv: Intervals, marginals: Marginals, chosen: list[int] | None = None) -> str:
    """How many numbers of an estimate are refuted, and how far off it can be at most."""
    least, most = iv.error_bounds(marginals)
    which = slice(None) if chosen is None else chosen
    least, most = least[which], most[which]
    if not len(least):
        return "none: the model has no variables"
    bad, n = int((least > REFUTED).sum()), len(least)
    if bad:
        are = "is" if bad == 1 else "are"
        text = f"{bad:,} of {n:,} estimates {are} refuted: provably off by more than {REFUTED:g}"
    else:
        text = f"no estimate is refuted by more than {REFUTED:g}"
    sure = int((most <= REFUTED).sum())
    within = "all" if sure == n > 1 else f"{sure:,}"
    text += f"; {within} {'is' if sure == 1 else 'are'} provably within {REFUTED:g}"
    shown, off = marginals._shown_error, float(least.max())
    if shown is not None and off > FAR * shown + REFUTED:
        text += f"; the estimated error, {shown:.1e}, is refuted: it is at least {off:.1e}"
    return f"{text}; no probability is off by more than {upwards(float(most.max()))} (rigorous)"


def judged_colours(iv: Intervals, marginals: Marginals) -> str:
    """For how many pixels the colour is proven, and how many estimates are refuted."""
    states, answer = iv.states(), marginals.mpm()
    sure, wrong = int((states >= 0).sum()), int(((states >= 0) & (states != answer)).sum())
    n = len(states)
    text = (
        f"{sure:,} of {n:,} pixels are decided: their most probable colour is proven, whatever the "
        "solver"
    )
    if wrong:
        text += f"; {wrong:,} of them should have the other colour"
    if refuted := int(iv.refuted(marginals, REFUTED).sum()):
        what = counted(refuted, "estimate")
        text += f"; {what} refuted: provably off by more than {REFUTED:g}"
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


# ---------------------------------------------------------------------- tables


def marginal_table(
    marginals: Marginals, chosen: list[int] | None, most: int, iv: Intervals | None = None
) -> Face:
    """One row per variable, of those chosen, or the least certain first.

    With intervals ``p [lo, hi]``, and which estimates they refute.
    """
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
    variables = widest(iv, chosen, most if chosen is None else None)
    left = 0 if chosen is not None else len(iv) - len(variables)
    width, method, vacuous = iv.width, iv.method, iv.vacuous

    def cells(v: int) -> tuple[list[str], NDArray[np.int64]]:
        lo, hi = np.asarray(iv[v]).T
        return [ends(*pair) for pair in iv[v]], np.lexsort((-lo, -hi))

    last = {
        "width": lambda v: Right(f"{width[v]:.2g}"),
        "by": lambda v: "nothing known" if vacuous[v] else str(method[v]),
    }
    found = _state_table(iv.graph, variables, cells, (MOST_INTERVALS, "highest"), last)
    return found._replace(more=and_more(left, "none wider"))


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


def summary(iv: Intervals, chosen: list[int] | None = None) -> dict[str, str]:
    """How wide the intervals are, what made them, and what that took."""
    which = slice(None) if chosen is None else chosen
    width, method, codes = iv.width[which], iv.method[which], iv.codes[which]
    made = [
        f"{counted(int((method == word).sum()), 'variable')} by {word}"
        for word in dict.fromkeys(method[np.argsort(codes, kind="stable")].tolist())
        if word != "none"
    ]
    return {
        "width": f"{width.mean():.2g} on average, {width.max():.2g} at most" if len(iv) else "none",
        "method": ", ".join(made) or "none",
        "satisfiable": "" if iv.satisfiable else "not decided",
        "time": f"{duration(iv.seconds)} without compiling and loading kernels, "
        f"{iv.work:,.0f} units of work",
    }
