"""Figure 1 of the paper (section 5.1): size, error and speed-up against the confidence alpha.

    p(y | x)  proportional to  exp( w sum_(i,j) [y_i = y_j] + alpha sum_i x_i y_i ),  x of mean 0,

on 4 pictures x 50 noisy versions of 64x64 pixels, solved by tree-reweighted BP, the seed being the
unary factors. The parameters of the three objectives are set once, over the whole collection, so
that half of the pairwise factors are kept at alpha = 5.

Beside the paper's: its sorted selection next to ours, compensation on the very same kept factors,
refreshes, our own score, full inference stopped early, pixel accuracy, other couplings, noises and
solvers, and strips narrow enough for exact marginals. Times are CPU seconds of whole calls: seed,
gains, selection, edge weights and both inferences; making the graph, the same for all, is not in.
Errors are absolute differences of probabilities, the mean over pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.limits import load_compiler
from minfer.basics.words import counted
from minfer.errors import FormatError, ModelError
from minfer.graph import FactorGraph
from minfer.io.npz import read_npz
from minfer.pictures import base_pictures, bimodal, gaussian, write_figure
from minfer.plots import pyplot
from minfer.reduction.calibrate import calibrate
from minfer.reduction.infer import PAPER, infer
from minfer.reduction.objectives import MinDivergence, MinJoint, MinSize, SelectionObjective
from minfer.reduction.recipes import AnyRecipe, Compensated
from minfer.solvers.bp import BeliefPropagation
from minfer.solvers.exact import Exact
from minfer.solvers.trw import TreeReweighted
from minfer_experiments.measure import timed
from minfer_experiments.pages import Claim, Made, Note, claims_table, record, table

if TYPE_CHECKING:
    from minfer.reduction.result import Result
    from minfer.solvers.base import Marginals, Solver

ALPHAS = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0)
#: Where the objectives' parameters are set, and to which share of the pairwise factors.
REFERENCE_ALPHA, KEPT = 5.0, 0.5
TOL = 1e-4
SWEEPS = (1, 2, 3, 5)
SAME = 1.1  # errors whose ratio is at most this count as equivalent
ROWS = slice(26, 38)  # of a strip, 12: exact marginals in milliseconds
_TIGHT = 1e-7
_SEED = 2010  # of the noise

SOLVERS: dict[str, Callable[..., Solver]] = {"trw": TreeReweighted, "bp": BeliefPropagation}


class Collection(NamedTuple):
    """Noisy versions of pictures, in order: the versions of the first picture come first."""

    noisy: tuple[NDArray[np.float64], ...]
    clean: tuple[NDArray[np.bool_], ...]  # the true picture of each


def collection(
    noise: str = "gaussian",
    sigma: float = 0.3,
    versions: int = 50,
    pictures: dict[str, NDArray[np.bool_]] | None = None,
) -> Collection:
    """So many noisy versions of every picture; the same call gives the same noise.

    Parameters
    ----------
    noise : "gaussian" or "bimodal"
    sigma : float
        Standard deviation of the gaussian noise, on pixels 0 and 1.
    versions : int
        Of each picture. The first ones of a longer collection are those of a shorter one.
    pictures : dict of bool arrays, optional
        :func:`base_pictures` by default.
    """
    if noise not in ("gaussian", "bimodal"):
        raise ModelError(f"noise must be 'gaussian' or 'bimodal', not {noise!r}")
    noisy, clean = [], []
    for i, picture in enumerate((pictures or base_pictures()).values()):
        for version in range(versions):
            kind = 1 if noise == "bimodal" else 0
            rng = np.random.default_rng([_SEED, kind, i, version])
            seen = bimodal(picture, rng) if kind else gaussian(picture, sigma, rng)
            noisy.append(seen)
            clean.append(picture)
    return Collection(tuple(noisy), tuple(clean))


@dataclass(frozen=True)
class Setting:
    """One run of the whole figure."""

    name: str
    noise: str = "gaussian"
    sigma: float = 0.3
    coupling: float = 1.0
    solver: str = "trw"
    versions: int = 5
    strip: bool = False  # 12 rows of each picture, and exact marginals to compare with
    side: int = 64
    data: str = ""  # a .npz file with labels (P, H, W) and noisy (P, N, H, W)


MAIN = Setting("main", versions=50)
STRIPS = "strips"
SETTINGS = (
    MAIN,
    Setting("coupling 0.5", coupling=0.5),
    Setting("coupling 2", coupling=2.0),
    Setting("sigma 0.6", sigma=0.6),
    Setting("bimodal noise", noise="bimodal"),
    Setting("belief propagation", solver="bp"),
    Setting(STRIPS, strip=True),
    Setting(f"{STRIPS}, belief propagation", strip=True, solver="bp"),
)


def settings(quick: bool = False, data: str | None = None) -> tuple[Setting, ...]:
    """The settings to run: fewer versions if quick; also those of the .npz files of a folder."""
    found: tuple[Setting, ...] = SETTINGS
    if data is not None:
        files = sorted(Path(data).glob("*.npz"))
        if not files:
            raise FormatError(f"{data}: no .npz files with arrays labels and noisy here")
        found += tuple(Setting(f"pictures of {f.stem}", versions=10, data=str(f)) for f in files)
    if quick:
        found = tuple(replace(s, versions=2 if s is MAIN else 1) for s in found)
    return found


class Row(NamedTuple):
    """One method at one alpha, averaged over the collection."""

    setting: str
    alpha: float
    method: str
    size: float  # share of the pairwise factors kept
    error: float  # mean error against the full model by the same solver, run to the end
    max_error: float  # the largest of each picture, averaged
    exact_error: float  # mean error against exact marginals; NaN where there are none
    seconds: float  # CPU time of the whole call
    speed_up: float  # total time of full inference over total time
    accuracy: float  # share of pixels whose most probable state is the true one
    swept: float  # pairwise factors times sweeps of the last inference
    pictures: int


class Answer(NamedTuple):
    """What a method says about one graph."""

    probs: NDArray[np.float64]
    size: float
    swept: float


class Task(NamedTuple):
    """A piece of work to wait for."""

    name: str
    work: Callable[[], list[Row]]


def tasks(chosen: Sequence[Setting], alphas: Sequence[float] = ALPHAS) -> list[Task]:
    """The whole experiment in pieces, one per setting and alpha; pieces of a setting share data."""
    out = []
    for setting in chosen:
        case = Case(setting)
        for alpha in alphas:
            out.append(Task(f"{setting.name}, alpha {alpha:g}", _bound(case.rows, alpha)))
    return out


def _bound(rows: Callable[[float], list[Row]], alpha: float) -> Callable[[], list[Row]]:
    return lambda: rows(alpha)


class Case:
    """One setting: its pictures, its calibrated objectives, and the measurements."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.make = SOLVERS[setting.solver]
        self.solver = self.make(tol=TOL)

    @cached_property
    def pictures(self) -> Collection:
        s = self.setting
        if s.data:
            return _from_file(s.data, s.versions)
        base = base_pictures(s.side)
        if s.strip:
            base = {name: picture[ROWS] for name, picture in base.items()}
        return collection(s.noise, s.sigma, s.versions, base)

    def graphs(self, alpha: float) -> Iterator[FactorGraph]:
        for x in self.pictures.noisy:
            yield FactorGraph.grid(alpha * (x - x.mean()), self.setting.coupling)

    @cached_property
    def methods(self) -> dict[str, Callable[[FactorGraph], Answer]]:
        """Every method by name; the first is full inference."""
        graphs = list(self.graphs(REFERENCE_ALPHA))
        s = self.solver
        size = calibrate(MinSize, graphs, kept=KEPT, solver=s)
        divergence = calibrate(MinDivergence, graphs, kept=KEPT, solver=s)
        joint = calibrate(MinJoint, graphs, kept=KEPT, solver=s)
        ours = calibrate(MinJoint, graphs, kept=KEPT, solver=s, recipe=Compensated())
        out: dict[str, Callable[[FactorGraph], Answer]] = {"full": _full(s)}
        out["MinSize"] = _reduced(size, s)
        out["MinSize, sorted"] = _reduced(_sorted(size), s)
        out["MinDivergence"] = _reduced(divergence, s)
        out["MinDivergence, sorted"] = _reduced(_sorted(divergence), s)
        out["MinJoint"] = _reduced(joint, s)
        for name, refreshes in (("compensated", 0), ("refreshed", 2)):
            same = Compensated(refreshes=refreshes, score="gain")  # the very factors of MinJoint
            out[f"MinJoint, {name}"] = _reduced(joint, s, same)
        for name, refreshes in (("compensated", 0), ("refreshed", 2)):
            out[f"residual, {name}"] = _reduced(ours, s, Compensated(refreshes=refreshes))
        for n in SWEEPS:
            out[f"full, {counted(n, 'sweep')}"] = _full(self.make(tol=0.0, max_iters=n))
        if self.setting.solver != "bp":
            out["full BP"] = _full(BeliefPropagation(tol=TOL))
        out["seed"] = _reduced(MinJoint(np.inf), s)
        return out

    def warm_up(self) -> None:
        """Load every kernel, so that none is loaded while something is timed."""
        graph = next(self.graphs(REFERENCE_ALPHA))
        for method in self.methods.values():
            method(graph)

    def rows(self, alpha: float) -> list[Row]:
        """Measure every method at one alpha."""
        if "methods" not in self.__dict__:
            self.warm_up()
        tight = self.make(tol=_TIGHT, max_iters=20_000)
        tally = {name: _Tally() for name in self.methods}
        for graph, clean in zip(self.graphs(alpha), self.pictures.clean):
            truth = tight(graph).probs
            exact = Exact()(graph).probs if self.setting.strip else None
            for name, method in self.methods.items():
                seconds, answer = timed(partial(method, graph))
                tally[name].add(answer, seconds, truth, exact, clean)
        full = tally["full"].total("seconds")
        return [t.row(self.setting.name, alpha, name, full) for name, t in tally.items()]


class _Tally:
    """Sums over a collection."""

    def __init__(self) -> None:
        self.seen: list[dict[str, float]] = []

    def add(
        self,
        answer: Answer,
        seconds: float,
        truth: NDArray,
        exact: NDArray | None,
        clean: NDArray[np.bool_],
    ) -> None:
        off = np.abs(answer.probs - truth)
        right = (answer.probs[1::2] > 0.5) == clean.ravel()
        self.seen.append(
            {
                "size": answer.size,
                "error": float(off.mean()),
                "max_error": float(off.max()),
                "exact_error": nan if exact is None else float(np.abs(answer.probs - exact).mean()),
                "seconds": seconds,
                "accuracy": float(right.mean()),
                "swept": answer.swept,
            }
        )

    def total(self, key: str) -> float:
        return sum(one[key] for one in self.seen)

    def row(self, setting: str, alpha: float, name: str, full_seconds: float) -> Row:
        n = len(self.seen)
        mean = {key: self.total(key) / n for key in self.seen[0]}
        speed_up = full_seconds / max(self.total("seconds"), 1e-9)
        return Row(setting, alpha, name, speed_up=speed_up, pictures=n, **mean)


# ---------------------------------------------------------------------- methods


def _full(solver: Solver) -> Callable[[FactorGraph], Answer]:
    def run(graph: FactorGraph) -> Answer:
        m = solver(graph)
        return Answer(m.probs, 1.0, _swept(m))

    return run


def _reduced(
    objective: SelectionObjective, solver: Solver, recipe: AnyRecipe = PAPER
) -> Callable[[FactorGraph], Answer]:
    def run(graph: FactorGraph) -> Answer:
        result: Result = infer(graph, objective, solver, recipe=recipe)
        return Answer(result.marginals.probs, result.kept_share, _swept(result.marginals))

    return run


def _sorted(objective: MinSize | MinDivergence) -> SelectionObjective:
    """The same choice by sorting, as the paper makes it."""

    def choose(gains: NDArray, costs: NDArray | None = None) -> NDArray[np.bool_]:
        return objective(gains, costs, paper_order=True)

    return choose


def _swept(m: Marginals) -> float:
    """Pairwise factors times sweeps: what the inference cost, whatever the machine."""
    return float(m.iterations) * (m.graph.n_factors - m.graph.n_variables)


def _from_file(path: str, versions: int) -> Collection:
    labels, noisy = read_npz(path, ("labels", "noisy"))
    if labels.dtype.kind not in "biuf" or noisy.dtype.kind not in "biuf":
        raise FormatError(f"{path}: labels {labels.dtype} and noisy {noisy.dtype} are not numbers")
    labels, noisy = labels.astype(bool), noisy.astype(np.float64)
    if noisy.ndim != 4 or labels.shape != noisy.shape[:1] + noisy.shape[2:]:
        raise FormatError(f"{path}: labels {labels.shape} and noisy {noisy.shape} do not match")
    picked = noisy[:, :versions]
    each = picked.shape[1]
    return Collection(
        tuple(x for versions_ in picked for x in versions_),
        tuple(label for label in labels for _ in range(each)),
    )


# ---------------------------------------------------------------------- what section 5.1 says


class Curves:
    """Rows of one setting, read as curves over alpha."""

    def __init__(self, rows: Iterable[Row], setting: str = MAIN.name) -> None:
        self.of = {(r.method, r.alpha): r for r in rows if r.setting == setting}
        self.alphas = sorted({alpha for _, alpha in self.of})
        self.methods = list(dict.fromkeys(method for method, _ in self.of))

    def __call__(self, method: str, field: str) -> NDArray[np.float64]:
        """One number of a method at every alpha."""
        return np.array([getattr(self.of[method, alpha], field) for alpha in self.alphas])

    def at(self, method: str, alpha: float, field: str) -> float:
        return float(getattr(self.of[method, alpha], field))


def claims(rows: Iterable[Row], setting: str = MAIN.name) -> list[Claim]:
    """Section 5.1's statements about Figure 1, one by one, and what our additions change."""
    c = Curves(rows, setting)
    top = c.alphas[-1]
    at5 = REFERENCE_ALPHA
    high = np.array(c.alphas) >= 1
    out = []

    def say(text: str, holds: Any, evidence: str) -> None:
        out.append(Claim(text, bool(holds), evidence))

    for method in ("MinSize", "MinJoint"):
        size = c(method, "size")
        say(
            f"{method} needs fewer factors the larger alpha is",
            _falls(size),
            f"{size[0]:.0%} at alpha {c.alphas[0]:g}, {size[-1]:.0%} at {top:g}",
        )
    size = c("MinDivergence", "size")
    say("MinDivergence keeps the same number throughout", np.ptp(size) < 1e-3, f"{size.mean():.1%}")
    error = c("MinDivergence", "error")[high]
    say(
        "MinDivergence gets more accurate (alpha 1 and up)",
        _falls(error),
        f"mean error {error[0]:.4f} to {error[-1]:.4f}",
    )
    for method in ("MinSize", "MinJoint", "MinJoint, compensated"):  # ours by the same rule
        middle, last = c.at(method, at5, "error"), c.at(method, top, "error")
        seed = c.at("seed", at5, "error"), c.at("seed", top, "error")
        say(
            f"{method}: equivalent error with fewer factors (within {SAME - 1:.0%} from alpha "
            f"{at5:g} to {top:g})",
            last <= SAME * middle,
            f"mean error {middle:.4f} and {last:.4f}",
        )
        say(
            f"{method}: the seed's error is corrected to the same extent (within {SAME - 1:.0%})",
            last / seed[1] <= SAME * middle / seed[0],
            f"{middle / seed[0]:.1%} and {last / seed[1]:.1%} of it are left",
        )
    for method in ("MinSize", "MinJoint"):
        speed = c(method, "speed_up")
        say(
            f"{method}'s speed-up grows with alpha",
            speed[-1] > c.at(method, at5, "speed_up") > speed[0],
            ", ".join(f"{s:.2f}" for s in speed),
        )
    paper = {m: c.at(m, at5, "speed_up") for m in ("MinSize, sorted", "MinDivergence, sorted")}
    joint = c.at("MinJoint", at5, "speed_up")
    say(
        f"At alpha {at5:g}, where all keep half, MinJoint is the fastest",
        joint > max(paper.values()),
        f"MinJoint {joint:.2f}; " + ", ".join(f"{m} {s:.2f}" for m, s in paper.items()),
    )
    linear = {m: c.at(m, at5, "speed_up") for m in ("MinSize", "MinDivergence")}
    say(
        "It still leads by 10 % where the others select in O(n) instead of sorting",
        joint > 1.1 * max(linear.values()),
        ", ".join(f"{m} {s:.2f}" for m, s in linear.items()),
    )
    beyond = np.array(c.alphas) >= at5
    for method in ("MinJoint, compensated", "MinJoint, refreshed"):
        left = c(method, "error")[beyond]
        plain = c("MinJoint", "error")[beyond]
        say(
            f"{method} on the same factors is at least four times as accurate (alpha {at5:g} up)",
            (left <= plain / 4).all(),
            f"mean error at most {left.max():.5f}, plain {plain.max():.4f}",
        )
    return out


def _falls(values: NDArray[np.float64]) -> bool:
    """Never up, and down in all."""
    return bool((np.diff(values) <= 1e-9).all() and values[-1] < values[0])


# ---------------------------------------------------------------------- the page


def page(rows: Sequence[Row]) -> str:
    """The claims for all settings and the tables of the first, as a page of Markdown."""
    names = list(dict.fromkeys(r.setting for r in rows))
    lines = ["# Figure 1, measured", "", *_intro(rows), "", "## What section 5.1 says", ""]
    lines.append(claims_table(claims(rows)))
    if len(names) > 1:
        lines += ["", "In the other settings:", "", _verdicts(rows, names[1:])]
    lines += ["", f"## {names[0].capitalize()}", ""]
    lines += _tables([r for r in rows if r.setting == names[0]])
    return "\n".join(lines) + "\n"


def _verdicts(rows: Sequence[Row], names: Sequence[str]) -> str:
    found = [claims(rows, name) for name in names]
    body = [[same[0].text, *(claim.verdict for claim in same)] for same in zip(*found)]
    return table(["statement", *names], body)


def _intro(rows: Sequence[Row]) -> list[str]:
    n = max(r.pictures for r in rows)
    return [
        "Made by `minfer paper fig1`; all numbers are in `fig1.csv`. Each cell is an average",
        f"over a collection of noisy pictures ({n} in the largest). Size is the share of pairwise",
        "factors kept; errors are mean absolute differences of probabilities from full inference",
        "by the same solver; speed-ups are ratios of CPU time with everything counted in.",
    ]


def _tables(rows: Sequence[Row]) -> list[str]:
    c = Curves(rows, rows[0].setting)
    columns = [("size", "size", "{:.3f}"), ("mean error", "error", "{:.5f}")]
    columns += [("speed-up", "speed_up", "{:.2f}"), ("pixels right", "accuracy", "{:.4f}")]
    if not np.isnan(rows[0].exact_error):
        columns.append(("mean error against exact marginals", "exact_error", "{:.5f}"))
    lines = [f"{rows[0].pictures} pictures.", ""]
    for title, field, shown in columns:
        head = [f"{title}, alpha =", *(f"{a:g}" for a in c.alphas)]
        body = [[method, *map(shown.format, c(method, field))] for method in c.methods]
        lines += [table(head, body), ""]
    return lines[:-1]


def records(rows: Iterable[Row]) -> list[dict[str, str]]:
    """Rows as strings, ready for a CSV file."""
    return [record(row) for row in rows]


# ---------------------------------------------------------------------- the picture

DRAWN = {  # method -> colour and line of Figure 1
    "MinSize": ("tab:blue", "-"),
    "MinSize, sorted": ("tab:blue", ":"),
    "MinDivergence": ("tab:green", "-"),
    "MinDivergence, sorted": ("tab:green", ":"),
    "MinJoint": ("tab:red", "-"),
    "MinJoint, compensated": ("tab:orange", "--"),
    "MinJoint, refreshed": ("tab:purple", "--"),
    "full": ("black", "-"),
    "full, 2 sweeps": ("tab:gray", "-."),
}
LEAST_DRAWN = 1e-5  # smaller errors are drawn here


def draw(rows: Sequence[Row], path: str) -> None:
    """Figure 1 of the paper, and the error against exact marginals where these can be had."""
    plt = pyplot("the figure needs", headless=True)
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), dpi=110)
    panels = (
        ("(a) relative size", MAIN.name, "size"),
        ("(b) mean error against full inference", MAIN.name, "error"),
        ("(c) speed-up over full inference", MAIN.name, "speed_up"),
        ("(d) 12-row strips: mean error against exact", STRIPS, "exact_error"),
    )
    for axis, (title, setting, field) in zip(axes.flat, panels):
        c = Curves(rows, setting)
        for method, (colour, line) in DRAWN.items():
            if (field == "size" and "," in method) or not c.alphas:
                continue
            values = [max(v, LEAST_DRAWN) for v in c(method, field)]
            axis.plot(c.alphas, values, line, color=colour, label=method, marker="o", markersize=3)
        axis.set(title=title, xlabel="alpha", xscale="log")
        axis.set_xticks(c.alphas)
        axis.xaxis.set_major_formatter(plt.FuncFormatter(lambda x, _: f"{x:g}"))
        axis.xaxis.set_minor_locator(plt.NullLocator())
        axis.grid(alpha=0.3)
        if "error" in field:
            axis.set_yscale("log")
    axes[1, 0].axhline(1, color="black", linewidth=0.8)
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    write_figure(path, figure)
    plt.close(figure)


def run(quick: bool, data: str | None, models: Path, note: Note) -> Made:
    """Figure 1; ``models`` is not for it."""
    pieces = tasks(settings(quick, data))
    pyplot("the figure needs", headless=True)  # before the work, not after it
    load_compiler()
    rows: list[Row] = []
    for done, task in enumerate(pieces, 1):
        rows += task.work()
        note(f"{done}/{len(pieces)} {task.name}")
    return Made(records(rows), page(rows), claims(rows), "5.1", partial(draw, rows))
