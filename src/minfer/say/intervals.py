"""What intervals prove, in sentences and as plain values."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.words import counted, duration, listed, upwards
from minfer.say.answers import log_z_between

if TYPE_CHECKING:
    from minfer.certified.result import Intervals
    from minfer.solvers.base import Marginals

#: An estimate is refuted if it is provably off by more.
REFUTED = 0.01
FAR = 5.0  # times an estimated error, which may be a standard error, that refutes it
ENDINGS = {
    "tolerance": "It took",
    "time": "The time limit was reached after",
    "work": "The work limit was reached after",
    "interrupted": "It was interrupted after",
    "exhausted": "Nothing was left to try after",
}
UNDECIDED = (
    "It was not decided whether the model allows any assignment at all; the intervals hold if it "
    "does"
)


def certain(iv: Intervals, chosen: list[int] | None = None) -> str:
    width, sure, unknown = _of(chosen, iv.width, iv.decided(), iv.vacuous)
    n = len(width)
    if not n:
        return "The model has no variables"
    narrow, decided, vacuous = (int(x.sum()) for x in (width <= iv.tol, sure, unknown))
    parts = [
        f"{_share(narrow, n)} certified to {iv.tol:g}",
        f"the most probable state is certain {'for all' if decided == n else f'for {decided:,}'}",
    ]
    if vacuous:
        parts.append(f"nothing is known about {'any' if vacuous == n else f'{vacuous:,}'}")
    return "; ".join(parts)


def _of(chosen: list[int] | None, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
    return [x if chosen is None else x[chosen] for x in arrays]


def _share(k: int, n: int) -> str:
    if n == 1:
        return f"The variable is{'' if k else ' not'}"
    return f"{'All' if k == n else f'{k:,} of'} {n:,} variables are"


def ending(iv: Intervals) -> str:
    return f"{ENDINGS[iv.stopped]} {duration(iv.seconds)}"


def progress(iv: Intervals, chosen: list[int] | None = None, undecided: bool = False) -> str:
    """Of intervals that are too wide: what is left to try, or when they last became narrower."""
    width, decided = _of(chosen, iv.width, iv.decided())
    left = (width > iv.tol) & ~(decided & undecided)
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
    last = f"the last step that narrowed anything ended after {duration(narrower[-1])}"
    told = [f"{width:.2g} after {duration(seconds)}" for seconds, width in curve(iv)]
    return f"the mean width was {listed(told)}; {last}" if len(told) > 1 else last


def curve(iv: Intervals) -> list[tuple[float, float]]:
    """What more time brought: (seconds, mean width) after a quarter, a half and all of the time.

    Each is the last step before; of several that are the same step there is one.
    """
    at: dict[float, float] = {}
    for share in (0.25, 0.5, 1.0):
        done = [step for step in iv.trace if step.seconds <= share * iv.seconds]
        if done:
            at[done[-1].seconds] = done[-1].mean_width
    return list(at.items())


def sentence(iv: Intervals, chosen: list[int] | None = None, undecided: bool = False) -> str:
    """What is certain, why the search ended, and how far it had come."""
    more = progress(iv, chosen, undecided)
    text = f"{certain(iv, chosen)}. {ending(iv)}{f'; {more}' if more else ''}."
    return text if iv.satisfiable else f"{text} {UNDECIDED}."


def judged(iv: Intervals, marginals: Marginals, chosen: list[int] | None = None) -> str:
    """How many numbers of an estimate are refuted, and how far off it can be at most."""
    least, most = _of(chosen, *iv.error_bounds(marginals))
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


def summary(iv: Intervals, chosen: list[int] | None = None) -> dict[str, str]:
    width, method, codes = _of(chosen, iv.width, iv.method, iv.codes)
    made = [
        f"{counted(int((method == word).sum()), 'variable')} by {word}"
        for word in dict.fromkeys(method[np.argsort(codes, kind="stable")].tolist())
        if word != "none"
    ]
    return {
        "width": f"{width.mean():.2g} on average, {width.max():.2g} at most" if len(iv) else "none",
        "method": ", ".join(made) or "none",
        "log Z": log_z_between(iv.log_z_bounds),
        "satisfiable": "" if iv.satisfiable else "not decided",
        "time": f"{duration(iv.seconds)} without compiling and loading kernels, "
        f"{iv.work:,.0f} units of work",
    }
