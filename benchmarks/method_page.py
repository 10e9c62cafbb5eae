"""The sections of the page "How well does it work" and its picture, from method.py's numbers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import costs
import method_problems as problems
from minfer_experiments.pages import table
from minfer_experiments.results import together

Row = dict[str, Any]

REDUCED = ("paper", "compensated", "1 refresh", "2 refreshes", "iterated")
DELETION = ("edge deletion", "edge deletion, compensated")
METHODS = (*REDUCED, *DELETION)
SHARES = (0.0, 0.05, 0.2, 0.5)
FULL = ("BP", "converged BP")
SHORT = {"paper": "paper", "compensated": "compensated", "refreshed": "2 refreshes"}
USEFUL = 0.5  # of the seed's error: a run must get there to count at equal time


# ------------------------------------------------------------------ small tools


def geometric_mean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(list(values), 1e-12)))))


def number(x: float | None) -> str:
    """Two digits; empty for None."""
    if x is None:
        return ""
    if abs(x) >= 99.5 or x == 0:
        return f"{x:,.0f}"
    return f"{x:.2g}" if abs(x) < 10 else f"{x:.0f}"


def times(x: float) -> str:
    return f"{number(x)}x"


def percent(x: float) -> str:
    return f"{x:.0%}" if x >= 0.1 else f"{100 * x:.2g}%"


def listed(names: Iterable[str]) -> str:
    """a, b and c."""
    found = list(names)
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found) or "none"


def pick(entries: list[Row], method: str, at: float) -> list[Row]:
    """The rows of one method at one setting, with their error relative to the seed's."""
    return [
        r | {"relative": r["error"] / e["seed_error"]}
        for e in entries
        for r in e["rows"]
        if r["method"] == method and r["at"] == at
    ]


def mean_of(entries: list[Row], method: str, at: float, key: str = "relative") -> float:
    return geometric_mean(r[key] for r in pick(entries, method, at))


def by_kind(entries: list[Row]) -> dict[str, list[Row]]:
    kinds: dict[str, list[Row]] = {}
    for e in entries:
        kinds.setdefault(e["kind"], []).append(e)
    return kinds


def time_to(rows: list[Row], error: float) -> tuple[float, bool]:
    """Least CPU ms of the runs whose error is no larger, and True; else of the best one."""
    found = [r["ms"] for r in rows if r["error"] <= error * (1 + 1e-9)]
    return (min(found), True) if found else (min(rows, key=lambda r: r["error"])["ms"], False)


def over(entry: Row, row: Row, baseline: tuple[str, ...]) -> tuple[float, bool]:
    """How much longer the baseline takes to the error of a run, and whether it gets there."""
    ms, reached = time_to([r for r in entry["rows"] if r["method"] in baseline], row["error"])
    return ms / row["ms"], reached


# ------------------------------------------------------------------ equal size


def size_table(result: Row) -> str:
    """Relative error at equal size, geometric mean over all instances."""
    body = []
    for name in METHODS:
        here = [number(mean_of(result["collection"], name, f)) for f in SHARES]
        others = (result["later"], result["fresh"], with_ellipses(result))
        body.append([name, *here, *(number(mean_of(x, name, 0.2)) for x in others)])
    head = ["method", *(f"f = {f:g}" for f in SHARES)]
    for seeds in (problems.LATER, problems.FRESH):
        head.append(f"seeds {listed(map(str, seeds))}, f = 0.2")
    return table([*head, "all grids under an ellipse, f = 0.2"], body)


def with_ellipses(result: Row) -> list[Row]:
    """The collection with the grids as they were before their shapes were changed."""
    others = [e for e in result["collection"] if not e["kind"].startswith("grid")]
    return others + list(result["ellipses"])


def kind_table(entries: list[Row]) -> str:
    """Relative error at f = 0.2, per kind."""
    body = []
    for kind, group in by_kind(entries).items():
        body.append([
            kind, number(geometric_mean(e["seed_error"] for e in group)),
            *(number(mean_of(group, m, 0.2)) for m in METHODS),
            number(mean_of(group, "converged BP", 0)),
            number(float(np.mean([e["noise"] / e["seed_error"] for e in group]))),
        ])  # fmt: skip
    return table(["kind", "seed error", *METHODS, "converged BP", "noise of reference"], body)


ESTIMATED = ("paper", "compensated", "1 refresh")


def estimate_table(entries: list[Row]) -> str:
    """Correlation of estimated and true error over the variables, and estimate / error, f = 0.2."""
    body = []
    for kind, group in by_kind(entries).items():
        cells = [kind]
        for m in ESTIMATED:
            found = [r["correlation"] for r in pick(group, m, 0.2) if "correlation" in r]
            cells += [f"{np.mean(found):.2f}" if found else "", number(estimate_ratio(group, m))]
        body.append(cells)
    head = ["kind"]
    for m in ESTIMATED:
        head += [f"{m}: correlation", "estimate / error"]
    return table(head, body)


def estimate_ratio(group: list[Row], method: str) -> float:
    return geometric_mean(r["estimate"] / r["error"] for r in pick(group, method, 0.2))


# ------------------------------------------------------------------ equal time


def best_run(group: list[Row]) -> tuple[float, str, float]:
    """The useful run of a kind that gains most over stopped BP: ratio, method, share."""
    found = []
    for m in REDUCED:
        for f in SHARES:
            if mean_of(group, m, f) <= USEFUL:
                found.append((speed_up(group, m, f, FULL)[0], m, f))
    return max(found)


def speed_up(group: list[Row], m: str, f: float, baseline: tuple[str, ...]) -> tuple[float, bool]:
    """Geometric mean of how much longer a baseline takes; whether it gets there on every model."""
    found = [over(e, pick([e], m, f)[0], baseline) for e in group]
    return geometric_mean(x for x, _ in found), all(reached for _, reached in found)


def time_table(entries: list[Row]) -> str:
    """Per kind: converged BP, one sweep, the most favourable run, and what BP needs to match it."""

    def pair(group: list[Row], m: str, at: float) -> str:
        return f"{number(mean_of(group, m, at, 'ms'))} / {number(mean_of(group, m, at, 'error'))}"

    body = []
    for kind, group in by_kind(entries).items():
        _, name, share = best_run(group)
        ratios = []
        for baseline in (FULL, ("active-set BP",)):
            x, reached = speed_up(group, name, share, baseline)
            ratios.append(times(x) + ("" if reached else "*"))
        body.append(
            [kind, pair(group, "converged BP", 0), pair(group, "BP", 1), f"{name}, f = {share:g}",
             pair(group, name, share), *ratios]
        )  # fmt: skip
    head = ["kind", "converged BP", "one sweep", "best reduced run", "its ms / error",
            "stopped BP takes", "active-set BP takes"]  # fmt: skip
    return table(head, body)


def sweep_cost(entries: list[Row]) -> tuple[float, float, int]:
    """CPU ms of a sweep over the dense models, of everything before it, and their factors."""
    group = by_kind(entries)["dense 700 mixed s=.3"]
    one, five = mean_of(group, "BP", 1, "ms"), mean_of(group, "BP", 5, "ms")
    sweep = (five - one) / 4
    return sweep, one - sweep, group[0]["factors"]


def solver_table(rows: list[Row]) -> str:
    body = []
    for r in rows:
        full = next(x for x in rows if x["solver"] == r["solver"] and x["method"] == "full")
        if r is full:
            body.append(
                [r["solver"], "full graph", number(r["ms"]), "", "", "", number(r["error"])]
            )
            continue
        body.append(
            [r["solver"], f"{r['method']}, f = {r['at']:g}", number(r["ms"]),
             times(full["ms"] / r["ms"]), number(r["later"]), times(full["ms"] / r["later"]),
             number(r["error"])]
        )  # fmt: skip
    head = ["solver", "run", "CPU ms", "speed-up", "of it after the seed and the choice",
            "speed-up of that", "mean error"]  # fmt: skip
    return table(head, body)


# ------------------------------------------------------------------ the big models


def cubic_table(entry: Row) -> str:
    full = entry["rows"][0]["ms"]
    body = []
    for r in entry["rows"]:
        cells = [run_name(r), number(r["ms"]), times(full / r["ms"])]
        if "kept" in r:
            for baseline in (FULL, ("active-set BP",)):
                cells.append(times(over(entry, r, baseline)[0]))
            shares = [percent(r["kept"]), percent(r.get("touched", 1.0))]
        else:
            cells += ["", ""]
            shares = ["100%", "100%"]
        estimate = number(r["estimate"]) if "estimate" in r else ""
        body.append([*cells, number(r["error"]), estimate, number(r["max"]), *shares])
    head = ["run", "CPU ms", "over converged BP", "over stopped BP", "over active-set BP",
            "mean error", "estimated", "largest error", "kept", "touched"]  # fmt: skip
    return table(head, body)


def run_name(r: Row) -> str:
    if r["method"] == "converged BP":
        return f"converged BP, {r['sweeps']} sweeps"
    if r["method"] == "BP":
        return f"BP, {r['at']:g} sweep" + ("s" if r["at"] > 1 else "")
    return f"{r['method']} {r['at']:g}"


GROWTH = (("paper, lazy", 1e-3), ("lazy, compensated", 1e-3), ("lazy, compensated", 1e-4))


def growth_table(entries: list[Row]) -> str:
    body = []
    for e in entries:
        full, one = e["rows"][0], pick([e], "BP", 1)[0]
        cells = [f"{e['words']}", f"{e['factors']:,}", number(full["ms"]),
                 f"{number(one['ms'])} / {number(one['error'])}"]  # fmt: skip
        for name, cost in GROWTH:
            (r,) = pick([e], name, cost)
            cells.append(
                f"{number(r['ms'])} / {number(r['error'])}: {times(full['ms'] / r['ms'])}, "
                f"{times(over(e, r, FULL)[0])} ({percent(r['touched'])} touched)"
            )
        body.append(cells)
    head = ["words", "factors", "converged BP ms", "one sweep, ms / error"]
    return table([*head, *(f"{name} {cost:g}" for name, cost in GROWTH)], body)


# ------------------------------------------------------------------ collections, UAI


def objective_table(rows: list[Row]) -> str:
    body = [
        [f"{r['objective']}({r['parameter']:.3g})", "yes" if r["compensated"] else "no",
         percent(r["share"]), f"{r['least']:.0%} to {r['most']:.0%}", number(r["mean"]),
         number(r["worst"])]
        for r in rows
    ]  # fmt: skip
    head = ["objective", "compensated", "kept of all", "kept per graph", "mean error", "worst"]
    return table(head, body)


UAI_COLUMNS = tuple(
    f"{m} {f:g}" for m in ("paper", "compensated", "2 refreshes") for f in (0.2, 0.5)
)


def uai_table(rows: list[Row]) -> str:
    body = []
    for r in rows:
        cells = [r[c] if isinstance(r[c], str) else number(r[c]) for c in UAI_COLUMNS]
        bp = number(r["BP"]) + ("" if r["converged"] else " (not converged)")
        body.append(
            [r["model"], str(r["variables"]), str(r["factors"]), f"{r['forced']:.0%}",
             "reverse" if r["reverse"] else "", number(r["seed"]), *cells, number(r["BP 1"]), bp]
        )  # fmt: skip
    head = [
        "model",
        "variables",
        "factors",
        "forced",
        "score",
        "seed",
        *UAI_COLUMNS,
        "one sweep",
        "BP",
    ]
    return table(head, body)


def uai_section(rows: list[Row]) -> str:
    if not rows:
        return "The models were not there when this page was made."
    usual = [r for r in rows if not r["reverse"]]
    forced = [r for r in rows if r["reverse"]]

    def wins(group: list[Row], a: str, b: str) -> int:
        return sum(isinstance(r[a], float) and r[a] < r[b] for r in group)

    text = (
        f"Of the {len(usual)} models where at most half is forced, compensation at 20% beats the "
        f"paper's method on {wins(usual, 'compensated 0.2', 'paper 0.2')} and the seed on "
        f"{wins(usual, 'compensated 0.2', 'seed')}; two refreshes come within 20% of the error of "
        f"converged BP, or below it, on {sum(within(r) for r in usual)}. On the other "
        f"{len(forced)} reverse scores with two refreshes beat the seed on "
        f"{wins(forced, '2 refreshes 0.2', 'seed')}, and BP is better than they are on "
        f"{wins(forced, 'BP', '2 refreshes 0.2')}."
    )
    return f"{text}\n\nModel by model: `benchmarks/results/instances.md`."


def within(r: Row) -> bool:
    return isinstance(r["2 refreshes 0.2"], float) and r["2 refreshes 0.2"] <= 1.2 * r["BP"]


def certificate_table(rows: list[Row]) -> str:
    body = [
        [number(r["alpha"]), "yes" if r["compensated"] else "no", percent(r["share"]),
         number(r["divergence"]), number(r["surrogate"]), number(r["bound"]), number(r["loose"]),
         "nothing" if r["interval"] is None or r["interval"] >= 1 else number(r["interval"]),
         number(r["max"])]
        for r in rows
    ]  # fmt: skip
    head = ["alpha", "compensated", "kept", "exact D", "surrogate", "bound", "bound without C",
            "sqrt(D / 2) (Pinsker)", "largest true error"]  # fmt: skip
    return table(head, body)


# ------------------------------------------------------------------ where it loses


def losses(result: Row) -> str:
    """A list of everything in the numbers that speaks against the method."""
    entries = result["collection"] + result["later"] + result["fresh"]
    kinds = by_kind(entries)
    shapes = [mean_of(x, "compensated", 0.2) for x in (result["collection"], with_ellipses(result))]
    out = [
        "The average depends on the pictures. With every grid under one ellipse, "
        f"compensation leaves {number(shapes[1])} of the seed's error at f = 0.2 instead of "
        f"{number(shapes[0])}."
    ]

    def worse(a: str, b: str, share: float) -> list[str]:
        """Kinds where method a has a larger error than method b."""
        return [k for k, g in kinds.items() if mean_of(g, a, share) > mean_of(g, b, share)]

    def count(a: str, b: str, share: float) -> int:
        pairs = zip(pick(entries, a, share), pick(entries, b, share))
        return sum(x["error"] > y["error"] for x, y in pairs)

    n = len(entries)
    for share in (0.05, 0.2, 0.5):
        out.append(
            f"Compensation is worse than the paper's method at f = {share:g} on "
            f"{count('compensated', 'paper', share)} of {n} models; on average over a kind: "
            f"{listed(worse('compensated', 'paper', share))}."
        )
    out.append(
        f"A second refresh makes the answer worse on {count('2 refreshes', '1 refresh', 0.2)} of "
        f"{n} models at f = 0.2, the first on {count('1 refresh', 'compensated', 0.2)}; four "
        "rounds of re-scoring are worse than two refreshes on "
        f"{count('iterated', '2 refreshes', 0.2)}."
    )
    timed = by_kind(result["collection"])
    lost = [k for k, g in timed.items() if best_run(g)[0] < 1]
    active = [
        k for k, g in timed.items() if speed_up(g, *best_run(g)[1:], ("active-set BP",))[0] < 1
    ]
    out.append(
        f"Stopping BP early is faster at equal error than any reduced run on {len(lost)} of "
        f"{len(timed)} kinds, active-set BP than the best of them on {len(active)}. With BP as the "
        "solver, ignoring factors does not pay on models of this size."
    )
    under = [k for k, g in kinds.items() if estimate_ratio(g, "compensated") < 0.5]
    out.append(
        "The error estimate of a compensated run is less than half of the true error on "
        f"{listed(under)}. It sees neither what ignored factors do to one another nor the "
        "solver's own error."
    )
    above = [
        k for k, g in kinds.items()
        if mean_of(g, "2 refreshes", 0.5) > 1.5 * mean_of(g, "converged BP", 0)
    ]  # fmt: skip
    out.append(
        "Refreshed runs approach the answer of BP, not the truth: two refreshes at f = 0.5 are "
        f"within 1.5 times the error of converged BP on {len(kinds) - len(above)} of {len(kinds)} "
        f"kinds (not on: {listed(above)}). Beyond that only a better solver helps."
    )
    cubic = result["cubic"][0]
    once, refreshed, lazily = (
        pick([cubic], name, 1e-4)[0] for name in ("compensated", "1 refresh", "lazy, 1 refresh")
    )
    out.append(
        f"On the model of {cubic['factors']:,} factors a refresh of all of them brings the "
        f"speed-up over converged BP from {times(cubic['rows'][0]['ms'] / once['ms'])} down to "
        f"{times(cubic['rows'][0]['ms'] / refreshed['ms'])}. Lazily it is cheap, but factors that "
        f"were never built are not compensated: the error stays at {number(lazily['error'])} "
        f"instead of {number(refreshed['error'])} (its own estimate, which has to guess what was "
        f"never built: {number(lazily['estimate'])})."
    )
    uai = result.get("uai") or []
    usual = [r for r in uai if not r["reverse"]]
    if usual:
        beaten = [
            r["model"] for r in usual
            if not isinstance(r["compensated 0.2"], float) or r["compensated 0.2"] > r["paper 0.2"]
        ]  # fmt: skip
        failed = [r["model"] for r in uai if r["BP"] >= r["seed"]]
        unconverged = [r["model"] for r in uai if not r["converged"]]
        out += [
            f"UAI models on which compensation is worse than the paper's method at 20%: "
            f"{listed(beaten)}.",
            f"UAI models on which BP itself is no better than the seed: {listed(failed)}; on which "
            f"it does not converge: {listed(unconverged)}.",
        ]
    vacuous = [r for r in result["certificates"] if r["interval"] is None or r["interval"] >= 1]
    by_compensation = sum(r["compensated"] for r in vacuous)
    out.append(
        f"What Pinsker's inequality makes of the bound says nothing about single probabilities in "
        f"{len(vacuous)} of {len(result['certificates'])} rows of its table, {by_compensation} of "
        "them compensated; [intervals](recipes/intervals.md) are found in another way."
    )
    bars = costs.scan_missed(result["scan"]) + costs.selection_missed(result["selection"])
    if bars:
        out.append(f"Cost of scoring and choosing above its limit: {'; '.join(bars)}.")
    return "\n".join(f"- {line}" for line in out)


# ------------------------------------------------------------------ the page


def sections(result: Row) -> dict[str, str]:
    """The sections of docs/reference/method.md by name."""
    entries, cubics = result["collection"], result["cubic"]
    bars = costs.scan_missed(result["scan"])
    gibbs = next(r for r in result["solvers"] if r["solver"] == "Gibbs")
    return {
        "short": _short(result),
        "shapes": shape_table(result),
        "size": size_table(result),
        "kinds": kind_table(entries),
        "estimates": estimate_table(entries),
        "time": f"{time_table(entries)}\n\n{_sweeps(entries)}",
        "solvers": f"{solver_table(result['solvers'])}\n\nGibbs is `{gibbs['settings']}`.",
        "cubic": _about(cubics[0]) + "\n\n" + cubic_table(cubics[0]),
        "growth": f"{growth_table(cubics)}\n\n{_growth(cubics)}",
        "objectives": objective_table(result["objectives"]),
        "uai": uai_section(result["uai"]),
        "selection": costs.selection_table(result["selection"]),
        "scan": costs.scan_table(result["scan"]) + "\n\n" + (
            "Above the limits of 2 and a third: " + "; ".join(bars) + "." if bars else
            "Gains cost at most twice the sweep, residuals at most a third of the gains."
        ),
        "certificates": certificate_table(result["certificates"]) + "\n\n"
        + certificate_words(result["certificates"]),
        "losses": losses(result),
    }  # fmt: skip


def _short(result: Row) -> str:
    """What the method is worth, in a sentence or two; where it was measured."""
    here, all_ = result["collection"], with_ellipses(result)
    share = {m: percent(mean_of(here, m, 0.2)) for m in SHORT.values()}
    first = {m: percent(mean_of(all_, m, 0.2)) for m in SHORT.values()}
    small, big = result["cubic"][0], result["cubic"][-1]

    def lazy(entry: Row) -> str:
        (r,) = pick([entry], "lazy, compensated", 1e-3)
        speed, stopped = times(entry["rows"][0]["ms"] / r["ms"]), times(over(entry, r, FULL)[0])
        return f"{speed} over converged BP and {stopped} over BP stopped at the same error"

    return (
        f"In short: with 20% of the factors the paper's method leaves {share['paper']} of the "
        f"seed's error, compensation {share['compensated']}, two refreshes {share['2 refreshes']} "
        f"({first['compensated']} and {first['2 refreshes']} with one ellipse on every grid, "
        "see below). With BP as the solver, ignoring factors saves time on large models: lazy and "
        f"compensated, {lazy(small)} on {small['factors']:,} factors, {lazy(big)} on "
        f"{big['factors']:,}. Measured on {' and '.join(together(result, 'cpu'))}."
    )


def shape_table(result: Row) -> str:
    """Relative errors at f = 0.2 with the shapes of now and with an ellipse on all grids."""
    grids = [e for e in result["collection"] if e["kind"].startswith("grid")]
    groups = {
        "grids": grids, "grids, an ellipse on each": result["ellipses"],
        "all models": result["collection"], "all, an ellipse on each grid": with_ellipses(result),
    }  # fmt: skip
    body = [
        [name, *(number(mean_of(group, m, 0.2)) for m in SHORT.values())]
        for name, group in groups.items()
    ]
    return table(["relative error at f = 0.2", *SHORT.values()], body)


def _sweeps(entries: list[Row]) -> str:
    sweep, setup, factors = sweep_cost(entries)
    best = [best_run(group)[0] for group in by_kind(entries).values()]
    return (
        f"Our BP needs {number(sweep)} ms for a sweep over {factors:,} factors "
        f"({number(sweep * 1e6 / (2 * factors))} ns a message) after {number(setup)} ms of set-up. "
        "A reduced run makes two or more such calls, scores, selects and copies. On "
        f"{sum(x < 1 for x in best)} of the {len(best)} kinds that costs more than the sweeps it "
        "saves: with BP as the solver, models of this size are too small for ignoring factors to "
        f"pay, and the best reduced run has {times(min(best))} to {times(max(best))} the speed of "
        "stopped BP."
    )


def _about(cubic: Row) -> str:
    return (
        f"{cubic['words']} words, {cubic['variables']:,} arcs, {cubic['factors']:,} factors; the "
        f"seed's error is {number(cubic['seed_error'])}:"
    )


def _growth(cubics: list[Row]) -> str:
    cubic = cubics[0]
    full, one = cubic["rows"][0], pick([cubic], "BP", 1)[0]
    ns = (full["ms"] - one["ms"]) / (full["sweeps"] - 1) / (2 * cubic["factors"]) * 1e6
    per_arc = [
        r["touched"] * e["factors"] / e["variables"]
        for e in cubics
        for r in pick([e], "lazy, compensated", 1e-3)
    ]
    return (
        f"BP needs about {number(ns)} ns a message and {full['sweeps']} sweeps on the first; at a "
        f"cost of 0.001 the lazy method looks at {number(min(per_arc))} to {number(max(per_arc))} "
        "factors for each arc."
    )


def certificate_words(rows: list[Row]) -> str:
    """What the table of certificates says."""
    plain = [r for r in rows if not r["compensated"]]
    left = [r for r in rows if r["compensated"]]
    useful = [r for r in plain if r["interval"] is not None and r["interval"] < 1]
    width = [r["interval"] / r["max"] for r in useful]
    tight = [r["bound"] / r["divergence"] for r in useful]
    gain = [p["divergence"] / max(c["divergence"], 1e-12) for p, c in zip(plain, left)]
    loose = [c["bound"] / p["bound"] for p, c in zip(plain, left)]
    words = (
        f"Without compensation sqrt(D / 2) is informative in {len(useful)} of {len(plain)} rows, "
        "those that keep nearly everything of a confident model"
    )
    if useful:
        words += (
            f"; there the bound is {number(min(tight))} to {number(max(tight))} times D, and "
            f"sqrt(D / 2) {number(min(width))} to {number(max(width))} times the largest true "
            "error, since D adds up over the whole model and Pinsker's inequality holds for each "
            "event"
        )
    words += f". Compensation makes D {number(min(gain))} to {number(max(gain))} times smaller"
    if min(loose) <= 1:
        return words + "."
    return words + (
        f" and the bound {number(min(loose))} to {number(max(loose))} times larger: a corrected "
        "factor is large where all of its variables are improbable, and the comonotone worst case "
        "lets all of them be improbable at once. For a certificate, do not compensate."
    )


# ------------------------------------------------------------------ the picture

COLOURS = dict(zip(METHODS, ("C3", "C1", "C2", "C0", "C4", "C7", "C5")))
CUBIC_MARKS = {
    "BP": ("k", "o"), "active-set BP": ("0.5", "s"), "paper": ("C3", "o"),
    "paper, lazy": ("C3", "^"), "compensated": ("C1", "o"), "lazy, compensated": ("C1", "^"),
    "1 refresh": ("C2", "o"), "lazy, 1 refresh": ("C2", "^"),
}  # fmt: skip


def picture(result: Row, path: Path) -> None:
    """Error against kept share, and on the million-factor model against time."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    entries, cubic = result["collection"], result["cubic"][0]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), dpi=110)
    for name in METHODS:
        values = [mean_of(entries, name, f) for f in SHARES]
        style = "--" if name in DELETION else "-"
        mark = "s" if name in DELETION else "o"
        left.plot(SHARES, values, style, marker=mark, color=COLOURS[name], label=name)
    bp = mean_of(entries, "converged BP", 0)
    left.axhline(bp, color="k", linewidth=1, linestyle=":", label="converged BP")
    left.set(yscale="log", xlabel="share of the factors kept", ylabel="error / seed's error")
    left.set_ylim(top=20)
    left.set_title(f"{len(entries)} models, geometric mean", fontsize=10)
    for name, (colour, mark) in CUBIC_MARKS.items():
        rows = [r for r in cubic["rows"] if r["method"] == name]
        xy = [r["ms"] for r in rows], [r["error"] for r in rows]
        right.plot(*xy, marker=mark, color=colour, label=name, linewidth=0.8)
    right.axvline(cubic["rows"][0]["ms"], color="k", linewidth=1, linestyle=":")
    right.set(xscale="log", yscale="log", xlabel="CPU ms (dotted: converged BP)",
              ylabel="mean error")  # fmt: skip
    right.set_title(f"{cubic['factors']:,} factors", fontsize=10)
    left.legend(fontsize=7, ncols=2, loc="upper right")
    right.legend(fontsize=7)
    for axis in (left, right):
        axis.grid(True, which="major", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)
