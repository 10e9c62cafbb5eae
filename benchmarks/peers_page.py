"""docs/peers.md from what peers.py found. What the libraries offer is from their documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peers_cases import CASES
from speed import number, table

NAMES = {
    "minfer": "minfer",
    "pgmax": "PGMax",
    "pygms": "pyGMs",
    "pomegranate": "pomegranate",
    "pyagrum": "pyAgrum",
    "pgmpy": "pgmpy",
    "torch-struct": "torch-struct",
    "supar": "SuPar",
    "libdai": "libDAI",
    "opengm": "OpenGM",
}
NOISE = 1.1  # ratios closer to one than this are no difference

#: models, marginals by, what nobody else here has or does better
FEATURES = {
    "minfer": (
        "factor graphs: tables of any arity, log-linear features, tree and other global factors",
        "BP, tree-reweighted BP, mean field, Gibbs, exact; reduced models with the cost of "
        "what was left out",
        "ignoring factors on purpose, and saying what it may cost; no GPU, no gradients, "
        "no learning of tables",
    ),
    "pgmax": (
        "factor graphs: enumerated, pairwise, OR, AND, pool factors",
        "BP (flooding, damping), smooth dual LP",
        "GPU, gradients through BP, batches by vmap, MAP; no stop rule, no log Z",
    ),
    "pygms": (
        "factor graphs, some Bayesian and decision networks",
        "BP (fixed iterations), mean field, weighted mini-buckets, junction tree, Gibbs, AIS",
        "many MAP and search methods, structure learning, UAI, WCSP, BIF",
    ),
    "pomegranate": (
        "factor graphs of categorical distributions; mixtures, HMMs, Bayesian networks",
        "BP (flooding)",
        "learning, torch on a GPU, rows of evidence at once",
    ),
    "pyagrum": (
        "Bayesian networks, Markov random fields, influence diagrams, credal and causal models",
        "exact (Shafer-Shenoy, lazy propagation); BP and sampling for Bayesian networks",
        "learning, causality, explanations and notebooks of high quality, many file formats",
    ),
    "pgmpy": (
        "Bayesian networks, Markov networks, factor graphs, dynamic and structural models",
        "exact (variable elimination, junction tree), message passing on trees, sampling",
        "structure and parameter learning, causal inference, many file formats",
    ),
    "torch-struct": (
        "chains, trees, alignments: one structure at a time",
        "exact, by automatic differentiation",
        "gradients, GPU batches, samples, entropies, best structures",
    ),
    "supar": (
        "parsers; tree, chain and span distributions",
        "exact for first and some second order; mean field and BP for fixed second-order forms",
        "trained neural parsers of the state of the art, gradients, GPU batches",
    ),
}


def write(results: dict[str, dict[str, Any]], machine: str) -> str:
    """The whole page as Markdown."""
    dates = sorted({r["date"] for r in results.values() if "date" in r})
    span = dates[0] if len(set(dates)) == 1 else f"{dates[0]} to {dates[-1]}" if dates else "-"
    parts = [
        "# Against the others",
        "minfer and the libraries one might use instead, on the same problems. Written by "
        f"`python benchmarks/peers.py`, measured {span} on {machine}. Times are CPU times; ratios "
        "compare runs that took turns. Versions are those that install today; a library that does "
        "not install or dies is listed with what happened.",
        "## In short",
        *_short(results),
        "## What they are for",
        table(
            ["library", "models", "marginals by", "strong in; missing"],
            [[NAMES[p], *row] for p, row in FEATURES.items()],
        ),
        "## Installing and starting",
        "Into an empty environment, with everything that the library brings along; the seconds "
        "include the download, on a busy machine. `start` is the CPU time to import it and get "
        "ready, numpy and warm caches given. PGMax declares far more "
        "than inference needs and fails on current JAX; here it gets what it imports and the one "
        "function that JAX has dropped.",
        table(["library", "version", "packages", "MB", "seconds", "start s"], _installs(results)),
        "## Time to the same accuracy",
        "Belief propagation until no marginal is further than 1e-4 from its fixed point. The "
        "number of iterations is chosen for each tool, which is generous to those without a stop "
        "rule. minfer's time includes building the graph; the others' set-up and compilation stand "
        "apart. Problems as in `benchmarks/problems.py`: P1a5 a 64x64 Ising grid, P3 700 variables "
        "with 20,000 pairs, P4i a 10x10 Ising grid, P4m a 6x4 grid of 12 states.",
        table(
            ["problem", "tool", "iterations", "ms", "times minfer's", "set-up s", "compile s"],
            _bp(results),
        ),
        "Exact marginals of every variable:",
        table(["problem", "tool", "ms", "times minfer's", "largest error"], _exact(results)),
        "## Accuracy against exact",
        "Largest error of any marginal once belief propagation stands still. The fixed point is "
        "the same for all, and far from exact on P4i: that is belief propagation, not the library. "
        "Where exact marginals are cheap, ask for them (minfer's `Auto` does).",
        table(["tool", "P4i", "P4m"], _accuracy(results)),
        "## Bad input and hard cases",
        "Should be refused: "
        + "; ".join(CASES[c].about for c in ("nan", "contradiction"))
        + "; evidence on a variable that the model does not have. Should be solved: "
        + "; ".join(CASES[c].about for c in ("degree", "chain", "cycle"))
        + ". Numbers are the largest error of a marginal; on the ring belief propagation is not "
        "exact for anybody.",
        table(
            ["tool", "NaN", "contradiction", "unknown evidence", "degree 100", "chain of 600",
             "4-cycle"],
            _inputs(results),
        ),
        "## Trees",
        "Arc probabilities of first-order dependency trees with one root, 25 words, the same "
        "normal scores of standard deviation 1, or 20 as a parser that is sure has them "
        "(`minfer.parsing.batch_marginals`); microseconds a sentence. The torch "
        "libraries run in float32 on one thread, minfer in float64. torch-struct's projective "
        "charts need scores that require gradients, and its matrix-tree adds 1e-5 to every arc.",
        table(
            ["library", "batch", "us a sentence", "minfer's", "times minfer's", "differs by"],
            _trees(results),
        ),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _rows(results: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    for peer in NAMES:
        yield from results.get(peer, {}).get("time", {}).get(key, [])


def _installs(results: dict[str, Any]) -> list[list[str]]:
    out = []
    for peer, name in NAMES.items():
        found = results.get(peer, {})
        how = found.get("install")
        if how is None:
            continue
        if "failed" in how:
            out.append([name, f"does not install: {how['failed']}", "-", "-", "-", "-"])
            continue
        hello = list(found.get("time", {}).get("hello", {}).values())
        trees = found.get("parsing", {})
        failed = [*found.get("time", {}).get("failed", {}).values(), trees.get("failed")]
        if hello:
            version, start = hello[0]["version"], hello[0]["seconds"]
        elif "version" in trees:
            version, start = trees["version"], trees["import"]
        else:
            why = next((f for f in failed if f), None)
            version, start = f"does not start: {why}" if why else "not run", None
        out.append(
            [name, version, str(how["packages"]), f"{how['megabytes']:,.0f}",
             f"{how['seconds']:.0f}", number(start)]
        )  # fmt: skip
    return out


def _bp(results: dict[str, Any]) -> list[list[str]]:
    out = []
    for r in sorted(_rows(results, "bp"), key=lambda r: (r["problem"], r["seconds"])):
        mine = r["tool"] == "minfer"
        ms = number(r["seconds"] * 1e3) + (" (scaled)" if r["note"] else "")
        compiled = number(r["compile"]) if (r["compile"] or 0) > 1e-3 else "-"
        ratio = "1" if mine else number(r["x_minfer"])
        setup = "included" if mine else number(r["setup"])
        out.append([r["problem"], r["tool"], str(r["iters"]), ms, ratio, setup, compiled])
    return out


def _exact(results: dict[str, Any]) -> list[list[str]]:
    return [
        [r["problem"], r["tool"], number(r["seconds"] * 1e3),
         "1" if r["tool"] == "minfer" else number(r["x_minfer"]), f"{r['error']:.0e}"]
        for r in sorted(_rows(results, "exact"), key=lambda r: (r["problem"], r["seconds"]))
    ]  # fmt: skip


def _accuracy(results: dict[str, Any]) -> list[list[str]]:
    found: dict[str, dict[str, str]] = {}
    for peer in NAMES:
        for key, error in results.get(peer, {}).get("accuracy", {}).items():
            tool, problem = key.rsplit(" ", 1)
            text = error if isinstance(error, str) else f"{error:.2g}"
            found.setdefault(tool, {})[problem] = text
    return [[tool, row.get("P4i", "-"), row.get("P4m", "-")] for tool, row in found.items()]


def _inputs(results: dict[str, Any]) -> list[list[str]]:
    order = ("nan", "contradiction", "unknown", "degree", "chain", "cycle")
    out = []
    for peer in NAMES:
        for tool, found in results.get(peer, {}).get("input", {}).items():
            if "failed" in found:
                continue
            out.append([tool, *(_outcome(case, found.get(case)) for case in order)])
    return out


def _outcome(case: str, found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    if "error" in found:
        return f"{found['error']:.1g}" if found["error"] > 1e-12 else "exact"
    if "raised" in found:
        kind = found["raised"].split(":")[0]
        return f"refused ({kind})" if case in ("nan", "contradiction", "unknown") else f"**{kind}**"
    if "not_finite" in found:
        return "**NaN, no error**"
    if "answered" in found:
        return f"**answers {found['answered']}**"
    if "ignored" in found:
        return "**ignored, no error**"
    if "no_evidence" in found:
        return "takes none"
    return f"**{found['died']}**"


def _trees(results: dict[str, Any]) -> list[list[str]]:
    out = []
    for peer, name in NAMES.items():
        for r in results.get(peer, {}).get("parsing", {}).get("rows", []):
            if "failed" in r:
                out.append([name, r["batch"], r["failed"], "-", "-", "-"])
            elif peer != "minfer":
                out.append(
                    [name, r["batch"], number(r["us_per_sentence"]), number(r["minfer_us"]),
                     number(r["x_minfer"]), f"{r['difference']:.0e}"]
                )  # fmt: skip
    return out


def _short(results: dict[str, Any]) -> list[str]:
    """Who wins where, from the numbers."""
    wins, losses = [], []
    rows = [(f"{r['problem']}, BP to 1e-4", r) for r in _rows(results, "bp")]
    rows += [(f"{r['problem']}, exact", r) for r in _rows(results, "exact")]
    for peer, name in NAMES.items():
        for r in results.get(peer, {}).get("parsing", {}).get("rows", []):
            rows.append((f"trees, {r['batch']}", {"x_minfer": None, **r, "tool": name}))
    for what, r in rows:
        if r["tool"] == "minfer" or r["x_minfer"] is None:
            continue
        if r["x_minfer"] < 1 / NOISE:
            off = f", differing by {r['difference']:.0e}" if "difference" in r else ""
            losses.append(f"{r['tool']} on {what} ({1 / r['x_minfer']:.1f} times faster{off})")
        else:
            wins.append((r["x_minfer"], f"{r['tool']} on {what}"))
    lines = []
    if losses:
        lines.append("* **Faster than minfer:** " + "; ".join(losses) + ".")
    else:
        lines.append("* No library here was faster than minfer on these problems.")
    if wins:
        least = min(wins)
        lines.append(
            f"* In {len(wins)} other comparisons minfer was faster or level; the closest is "
            f"{least[1]}, {number(least[0])} times minfer's time."
        )
    lines.append(
        "* **Where others win by what they do:** learning models from data (pgmpy, pyAgrum, "
        "pomegranate), GPUs and gradients (PGMax, torch-struct, SuPar), MAP (PGMax, pyGMs), "
        "Bayesian networks, causality and notebooks (pyAgrum, pgmpy), trained neural parsers "
        "(SuPar). minfer learns nothing but its own linear parser, and has none of the rest."
    )
    lines.append(
        "* **What only minfer does:** leaves factors out on purpose, scores each by what it would "
        "change, and says how far off the answer may be; tree factors inside any factor graph."
    )
    return ["\n".join(lines)]
