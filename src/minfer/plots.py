"""Pictures of answers, with matplotlib (the extra ``plot``), which is imported when first used.

Every function draws into ``ax``, or into a new figure, and returns the axes: change, save or show
them with matplotlib. :meth:`minfer.Result.plot` puts those about one answer side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minfer.basics.checks import brief, check_choice, check_whole, load, real_numbers
from minfer.errors import ModelError, SettingsError, visible

if TYPE_CHECKING:
    from minfer.certified.result import Intervals
    from minfer.reduction.compare import Tradeoff
    from minfer.reduction.result import Result
    from minfer.solvers.base import Marginals
    from minfer.through_time.answers import Beliefs

#: Smaller errors, scores and changes are drawn here: an axis of logs has no place for 0.
LEAST_DRAWN = 1e-8
BINS = 40
MOST_BARS = 40  # intervals drawn one by one


class Reliability(NamedTuple):
    """How often what was given a probability came true, in K bins of equal width.

    ``error`` is the mean distance of confidence and frequency, weighted by the cases.
    """

    confidence: NDArray[np.float64]  # (K,) mean probability given
    frequency: NDArray[np.float64]  # (K,) share that came true
    cases: NDArray[np.int64]  # (K,)
    error: float


def pyplot(what: str = "plots need", headless: bool = False) -> Any:
    """``matplotlib.pyplot``, or an error that says how to get it."""
    matplotlib = load("matplotlib", f"{what} matplotlib", "plot")
    if headless:
        matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def result(answer: Result) -> NDArray[Any]:
    """What was kept and how the solver converged: axes (2,), or (3,) with a trace over time."""
    _takes(answer, "a Result")
    panels = [scores, convergence, *([trace] if answer.trace else [])]
    size = (4.6 * len(panels), 3.6)
    figure, axes = pyplot().subplots(1, len(panels), figsize=size, layout="constrained")
    for panel, ax in zip(panels, axes):
        panel(answer, ax)
    figure.suptitle(
        f"kept {answer.kept_share:.1%} of {answer.n_factors - answer.n_seed:,} factors outside "
        f"the seed; {answer.status.value}",
        fontsize=10,
    )
    return axes


def scores(answer: Result, ax: Any = None) -> Any:
    """Histogram of the scores of the factors outside the seed, kept and ignored.

    The line is at the largest score ignored; factors that must be kept are in the legend only.
    """
    _takes(answer, "a Result")
    ax = _axes(ax)
    scored = ~answer.seed & np.isfinite(answer.scores)
    values = np.maximum(answer.scores, LEAST_DRAWN)
    if scored.any():
        low, high = values[scored].min(), values[scored].max()
        edges = np.geomspace(low / 1.1, high * 1.1, BINS + 1)
        parts = [values[scored & ~answer.keep], values[scored & answer.keep]]
        names = [f"{len(part):,} {word}" for part, word in zip(parts, ("ignored", "kept"))]
        ax.hist(parts, edges, stacked=True, label=names, color=["tab:gray", "tab:blue"])
        ax.set_xscale("log")
        if len(parts[0]):
            most = float(answer.scores[scored & ~answer.keep].max())
            line = max(most, LEAST_DRAWN)
            ax.axvline(line, color="black", linestyle="--", label=f"largest ignored, {most:.3g}")
    if answer.n_forced:
        ax.plot([], [], " ", label=f"{answer.n_forced:,} must be kept")
    ax.set(title="factors outside the seed", xlabel=answer.score_kind, ylabel="factors")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=8)
    return ax


def convergence(answer: Marginals | Result, ax: Any = None) -> Any:
    """The largest change of any probability in each iteration, of a result on the seed and on H."""
    _takes(answer, "a Result or Marginals")
    ax = _axes(ax)
    given: Any = answer
    runs = {"solver": given}
    if hasattr(given, "seed_marginals"):
        runs = {"seed": given.seed_marginals, "reduced model": given.marginals}
    for name, run in runs.items():
        changes = np.maximum(run.residuals, LEAST_DRAWN)
        label = f"{name}: {run.status.value}"
        ax.plot(np.arange(1, len(changes) + 1), changes, "o-", markersize=3, label=label)
    ax.set(title="convergence", xlabel="iteration", ylabel="largest change", yscale="log")
    return _finished(ax)


def trace(answer: Result, ax: Any = None) -> Any:
    """Iterated inference over time: divergence (estimate), change of the marginals, bound."""
    _takes(answer, "a Result")
    if not answer.trace:
        raise SettingsError("only answers of minfer.relax have a trace")
    ax = _axes(ax)
    seconds = [step.seconds for step in answer.trace]
    lines = {
        "divergence (estimate)": [step.divergence for step in answer.trace],
        "change of the marginals": [step.change for step in answer.trace],
    }
    if any(step.bound is not None for step in answer.trace):
        lines["bound"] = [np.nan if s.bound is None else s.bound for s in answer.trace]
    for name, values in lines.items():
        ax.plot(seconds, np.maximum(values, LEAST_DRAWN), "o-", markersize=3, label=name)
    ax.set(title=answer.stopped, xlabel="seconds", yscale="log")
    return _finished(ax)


def tradeoff(found: Tradeoff, x: str = "seconds", ax: Any = None) -> Any:
    """Mean error against ``x``, "seconds" or "kept_share"; a line for each method."""
    _takes(found, "a Tradeoff")
    check_choice("x", x, ("seconds", "kept_share"))
    ax = _axes(ax)
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for method in dict.fromkeys(p.method for p in found.points):
        line = sorted(
            (p for p in found.points if p.method == method), key=lambda p: (p.kept_share, p.seconds)
        )
        error = [max(p.mean_error, LEAST_DRAWN) for p in line]
        places = [p.seconds * 1e3 if x == "seconds" else p.kept_share for p in line]
        style = "o--" if line[0].baseline else "s-"
        ax.plot(places, error, style, label=method, markersize=4, linewidth=1)
    if x == "seconds":
        ax.set(xscale="log", xlabel="CPU time, ms")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.set_xscale("symlog", linthresh=0.01)
        ax.set(xlabel="share of the factors outside the seed kept", xlim=(-0.002, 1.3))
    ax.set_yscale("log")
    against = visible(f"mean error against {found.reference}")
    ax.set_ylabel(against, fontsize=8, parse_math=False)
    return _finished(ax)


def intervals(
    found: Intervals,
    marginals: Marginals | None = None,
    variables: Sequence[int | str] | None = None,
    ax: Any = None,
) -> Any:
    """Intervals as bars, the widest first, at most 40 of them; an estimate is a tick on its bar.

    Of two states the second is drawn, of more the one with the highest lower end. Estimates that
    the intervals refute (by more than 0.01) are red. ``variables``: only these.
    """
    _takes(found, "Intervals")
    if marginals is not None:
        _takes(marginals, "estimates that are Marginals")
    ax = _axes(ax)
    graph = found.graph
    chosen = range(len(found)) if variables is None else [graph.index(v) for v in variables]
    of = np.array(chosen, dtype=np.int64)
    order = of[np.argsort(-found.width[of], kind="stable")][:MOST_BARS]
    refuted = np.zeros(len(found), dtype=bool) if marginals is None else found.refuted(marginals)
    for row, v in enumerate(order.tolist()):
        ends = found[v]
        state = 1 if len(ends) == 2 else int(np.argmax(ends[:, 0]))
        low, high = ends[state]
        colour = "tab:red" if refuted[v] else "tab:blue"
        ax.barh(row, max(high - low, 1e-3), left=low, height=0.7, color=colour, alpha=0.6)
        if marginals is not None:
            p = marginals[v][state]
            ax.plot([p, p], [row - 0.45, row + 0.45], color="black", linewidth=1)
    ax.set_yticks(range(len(order)))
    ax.set_yticklabels([visible(graph.name(v)) for v in order.tolist()], parse_math=False)
    ax.tick_params(axis="y", labelsize=max(4, min(9, 200 // max(len(order), 1))))
    ax.invert_yaxis()
    left = len(of) - len(order)
    title = f"the {len(order)} widest of {len(of):,} intervals" if left else "intervals"
    if marginals is not None:
        title += f"; {int(refuted[of].sum()):,} estimates refuted"
    ax.set(title=title, xlabel="probability", xlim=(0, 1))
    ax.grid(axis="x", alpha=0.3)
    return ax


def narrowing(found: Intervals, ax: Any = None) -> Any:
    """Mean and largest width over the seconds of the search."""
    _takes(found, "Intervals")
    ax = _axes(ax)
    seconds = np.maximum([step.seconds for step in found.trace], 1e-4)
    for name, widths in (
        ("on average", [step.mean_width for step in found.trace]),
        ("largest", [step.max_width for step in found.trace]),
    ):
        ax.plot(seconds, np.maximum(widths, LEAST_DRAWN), "o-", markersize=3, label=name)
    ax.axhline(max(found.tol, LEAST_DRAWN), color="black", linewidth=0.8, linestyle="--",
               label=f"asked for, {found.tol:g}")  # fmt: skip
    ax.set(title=f"stopped by {found.stopped}", xlabel="seconds", ylabel="width", xscale="log")
    ax.set_yscale("log")
    return _finished(ax)


def reliability(probs: ArrayLike, truth: ArrayLike, bins: int = 10) -> Reliability:
    """Probabilities (N,) of anything that can come true, against whether it did (N,), in bins."""
    _, _, count, confidence, frequency, error = binned(probs, truth, bins)
    some = count > 0
    return Reliability(confidence[some], frequency[some], count[some], error)


class Binned(NamedTuple):
    """Probabilities (N,), what came true (N,), and by bin (K,): cases, means, NaN where none is."""

    probs: NDArray[np.float64]
    came: NDArray[np.float64]
    cases: NDArray[np.int64]
    confidence: NDArray[np.float64]
    frequency: NDArray[np.float64]
    error: float


def binned(probs: ArrayLike, truth: ArrayLike, bins: int) -> Binned:
    """Cases in bins of equal width, empty ones too."""
    p = real_numbers(probs, "probabilities").astype(np.float64).ravel()
    came = real_numbers(truth, "outcomes").ravel()
    if not len(p) or p.shape != came.shape:
        raise ModelError(f"{p.size} probabilities for {came.size} outcomes; both need (N,), N > 0")
    if not ((p >= 0) & (p <= 1 + 1e-9)).all():
        raise ModelError("probabilities must lie between 0 and 1")
    if not np.isin(came, (0, 1)).all():
        raise ModelError("outcomes must be true or false")
    check_whole("bins", bins, 1)
    which = np.minimum((p * bins).astype(np.int64), int(bins) - 1)
    count = np.bincount(which, minlength=int(bins))
    true = came.astype(np.float64)
    with np.errstate(invalid="ignore"):
        confidence = np.bincount(which, p, int(bins)) / count
        frequency = np.bincount(which, true, int(bins)) / count
    some = count > 0
    error = float((np.abs(confidence - frequency) * count)[some].sum() / len(p))
    return Binned(p, true, count, confidence, frequency, error)


def calibration(probs: ArrayLike, truth: ArrayLike, bins: int = 10, ax: Any = None) -> Any:
    """Reliability diagram: frequency against probability, with two standard errors.

    Arguments as for :func:`reliability`; below the diagonal the answer is too sure.
    """
    found = reliability(probs, truth, bins)
    ax = _axes(ax)
    f = np.clip(found.frequency, 0.5 / found.cases, 1 - 0.5 / found.cases)  # no bar of length 0
    ax.plot([0, 1], [0, 1], color="black", linewidth=0.8, label="calibrated")
    ax.errorbar(
        found.confidence,
        found.frequency,
        2 * np.sqrt(f * (1 - f) / found.cases),
        fmt="o-",
        markersize=4,
        capsize=2,
        label=f"{int(found.cases.sum()):,} cases, calibration error {found.error:.3g}",
    )
    ax.set(xlabel="probability given", ylabel="share that came true", xlim=(0, 1), ylim=(0, 1))
    ax.set_title("calibration")
    return _finished(ax)


def beliefs(found: Beliefs, variable: str | None = None, case: Any = None, ax: Any = None) -> Any:
    """Probabilities of a variable's states over time, stacked.

    ``variable`` is the first target by default, ``case`` the first sequence: its number or, if the
    table had a column of cases, what it is called there.
    """
    _takes(found, "Beliefs")
    ax = _axes(ax)
    name = found.targets[0] if variable is None else variable
    rows = found.rows_of(case)
    time, p = found.time[rows], found[name][rows]
    states = found.model.slice.states(name)
    ax.stackplot(time, p.T, labels=list(map(visible, states)), alpha=0.8, step="mid")
    ax.set(title=visible(name), xlabel="time", ylabel="probability", ylim=(0, 1))
    if len(time) > 1:
        ax.set_xlim(time[0], time[-1])
    return _finished(ax)


def _takes(value: object, kinds: str) -> None:
    """Refuse what is of another class than ``kinds`` names. By name: answers may import this."""
    if not {kind.__name__ for kind in type(value).__mro__} & set(kinds.split()):
        raise SettingsError(f"this plot takes {kinds}, not {brief(value)}")


def _axes(ax: Any) -> Any:
    return pyplot().subplots(figsize=(5, 3.8), layout="constrained")[1] if ax is None else ax


def _finished(ax: Any) -> Any:
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    return ax
