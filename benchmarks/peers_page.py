"""docs/peers.md from what peers.py found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import networks_page
from minfer_experiments.measure import is_loose
from minfer_experiments.pages import number, table
from peers_cases import CASES
from peers_claims import CLAIMS

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
WRONG = 0.01  # probabilities that are further off are wrong
CRASHES = ("IndexError", "KeyError", "RecursionError", "TypeError")  # errors that refuse nothing

#: models, marginals by, what it is good at and what it lacks
FEATURES = {
    "minfer": (
        "factor graphs: tables of any arity, log-linear features, rules, tree and other global "
        "factors; Bayesian networks",
        "BP, tree-reweighted BP, mean field, Gibbs, exact; reduced models with the cost of "
        "what was left out",
        "ignoring factors on purpose, and saying what it may cost; rows of evidence on networks, "
        "k best explanations, guaranteed intervals, learning of weights and tables; no GPU",
    ),
    "pgmax": (
        "factor graphs: enumerated, pairwise, OR, AND, pool factors",
        "BP (flooding, damping, any temperature)",
        "GPU, gradients through BP, batches by vmap, MAP by max-product and a smooth dual LP with "
        "bounds; no stop rule, no log Z, no files",
    ),
    "pygms": (
        "factor graphs of tables; reads Bayesian networks, influence diagrams, weighted CSPs",
        "BP (fixed iterations), mean field, weighted mini-buckets, junction tree, Gibbs, AIS",
        "bounds, MAP and AND/OR search, Ising learning, many file formats, torch factors (not "
        "tried here); BP has no stop rule",
    ),
    "pomegranate": (
        "factor graphs of categorical distributions; mixtures, HMMs, Bayesian networks",
        "BP (flooding, with a stop rule)",
        "learning, torch on a GPU, rows of evidence at once; no log Z, no MAP in factor graphs",
    ),
    "pyagrum": (
        "Bayesian networks, Markov random fields, influence diagrams, credal and causal models",
        "exact (Shafer-Shenoy, lazy propagation); BP and sampling for Bayesian networks",
        "learning, causality, notebooks of high quality, soft evidence, many file formats; "
        "Markov random fields exactly only",
    ),
    "pgmpy": (
        "Bayesian networks, Markov networks, factor graphs, dynamic and structural models",
        "exact (variable elimination, junction tree), message passing on trees, sampling",
        "structure and parameter learning, causal inference, many file formats; no loopy BP",
    ),
    "torch-struct": (
        "chains, semi-Markov chains, trees, alignments: one structure at a time",
        "exact, by automatic differentiation",
        "gradients, GPU batches, samples, entropies, k best structures; first-order dependencies "
        "only",
    ),
    "supar": (
        "parsers; tree, chain and span distributions",
        "exact for first order and adjacent siblings; mean field and BP for pairs of arcs",
        "trained neural parsers, gradients, GPU batches, entropies, k best structures",
    ),
}


def _way() -> str:
    """On which cores and threads."""
    if is_loose():
        return "Every tool runs as anybody runs it: not pinned, with threads of its own"
    return (
        "Every tool runs on one thread of one core (`--loose` measures them as anybody runs them, "
        "which has not been done for this page)"
    )


def write(results: dict[str, dict[str, Any]], networks: dict[str, Any] | None = None) -> str:
    """The whole page as Markdown, with what benchmarks/networks.py found."""
    parts = [
        "# Against the others",
        "minfer and the libraries one might use instead, on the same problems. Written by "
        f"`python benchmarks/peers.py`, {_measured(results)}. {_way()}; times are CPU times, and "
        "ratios compare runs that took turns. A library that does "
        "not install, crashes or gives no answer is listed with what happened.",
        "## In short",
        *_short(results),
        "## What they are for",
        table(
            ["library", "models", "marginals by", "good at; missing"],
            [[NAMES[p], *row] for p, row in FEATURES.items()],
        ),
        "Looked up by name in the installed versions whenever this page is measured "
        "(`benchmarks/peers_claims.py`):",
        table(["", *(NAMES[p] for p in FEATURES)], _claims(results)),
        "## Installing and starting",
        "Into an empty environment, with all dependencies; the seconds "
        "include the download. `start` is the CPU time to import it and get ready, with numpy "
        "loaded and caches warm: minfer compiles its kernels once on each machine, 5 to 25 "
        "seconds (the parser's about 40), and loads them afterwards. torch is the version "
        "without CUDA. PGMax declares far more than inference needs and fails on current JAX; here "
        "it gets what it imports and the one function that JAX has dropped.",
        table(["library", "version", "packages", "MB", "seconds", "start s"], _installs(results)),
        "## Time to the same accuracy",
        "Undamped belief propagation until no marginal is further than 1e-4 from its fixed point. "
        "The number of iterations is chosen for each tool, which is generous to those without a "
        "stop rule; pomegranate's, which stops too early for this, is switched off. minfer updates "
        "in sequence, its default, and needs fewer iterations than the others, which update all "
        "messages at once. minfer's time includes building the graph; the others' set-up and "
        "compilation are listed separately. PGMax and pomegranate compute in float32, their "
        "default, the others in float64. pyGMs' general BP also computes log Z in every iteration. "
        "Times of tools that are too slow are extrapolated from one and two iterations. *minfer's* "
        "is its ms in the turns with that tool, and the ratio is the median over turns. Problems "
        "as in `benchmarks/problems.py`: "
        "P1a5 a 64x64 Ising grid, P3 700 variables with 20,000 pairs, P4i a 10x10 Ising grid, P4m "
        "a 6x4 grid of 12 states.",
        table(
            ["problem", "tool", "iterations", "ms", "minfer's", "times minfer's", "set-up s",
             "compile s"],
            _bp(results),
        ),
        "Exact marginals of every variable. minfer's time includes building the graph, the others' "
        "does not. pgmpy answers one variable at a time; the others answer all at once.",
        table(
            ["problem", "tool", "ms", "minfer's", "times minfer's", "largest error"],
            _exact(results),
        ),
        *networks_page.for_peers(networks or {}),
        "## Accuracy against exact",
        "Largest error of any marginal once belief propagation has converged. The fixed point is "
        "the same for all, and far from exact on P4i: that is belief propagation, not the library. "
        "Where exact marginals are cheap, ask for them (minfer's `Auto` does).",
        table(["tool", "P4i", "P4m"], _accuracy(results)),
        "## Bad input and hard cases",
        "Should be refused: "
        + "; ".join(CASES[c].about for c in ("nan", "contradiction"))
        + "; evidence on a variable that the model does not have. Should be solved: "
        + "; ".join(CASES[c].about for c in ("degree", "chain", "cycle"))
        + ". The product of the chain's potentials is more than a float can hold. Numbers are the "
        "largest error of a marginal; on the ring belief propagation is not exact in any library, "
        "and "
        "pgmpy's message passing is meant for trees. Each cell is a separate process with 90 "
        "seconds of CPU time.",
        table(
            ["tool", "NaN", "contradiction", "unknown evidence", "degree 100", "chain of 600",
             "4-cycle"],
            _inputs(results),
        ),
        "## Trees",
        "Arc probabilities of first-order dependency trees with one root, 25 words, from the same "
        "normal scores with standard deviation 1, or 20 (*sure*, as from a confident parser). "
        "minfer runs `minfer.parsing.tree_marginals`; microseconds per sentence on one thread. "
        "Scores are float32 unless the batch says float64; errors are those of the largest "
        "probability against minfer's in float64. minfer always computes projective trees in "
        "float64, and "
        "non-projective ones where float32 cannot be trusted, as in the *sure* batches. The "
        "torch libraries also keep what gradients need. torch-struct's projective charts need "
        "scores that require gradients, and its matrix-tree adds 1e-5 to every arc; SuPar's always "
        "works in float64. The times of minfer's non-projective *sure* batches are from when eight "
        "such sentences were summed at once: one by one, as now, they take 2.6 times as long.",
        table(
            ["library", "batch", "us a sentence", "minfer's", "times minfer's", "error",
             "minfer's error"],
            _trees(results),
        ),
        *_second(results),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _measured(results: dict[str, Any]) -> str:
    """Days, machines and states of the code of all parts."""
    stamps = {
        (peer, part): stamp
        for peer, found in results.items()
        for part, stamp in found.get("about", {}).items()
    }
    if not stamps:
        return "not measured yet"
    days = sorted({s["date"] for s in stamps.values()})
    run = {key: s for key, s in stamps.items() if key[1] != "install"}
    machines = sorted({f"{s['cpu']}, Python {s['python']}" for s in run.values()})
    text = f"measured {' to '.join(sorted({days[0], days[-1]}))}"
    text += f" on {' and on '.join(machines)}" if machines else ""
    if len(states := {s["code"] for s in run.values()}) > 1:
        text += (
            f", with {len(states)} versions of the code, so rows of different libraries are not "
            "strictly comparable"
        )
    return text


def _claims(results: dict[str, Any]) -> list[list[str]]:
    """A cell says what the library has, unless the name was not found in it."""
    out = []
    for feature, has in CLAIMS.items():
        row = [feature]
        for peer in FEATURES:
            lost = feature in results.get(peer, {}).get("claims", {})
            row.append("**not found**" if lost else has[peer].says if peer in has else "-")
        out.append(row)
    return out


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
        rows = found.get("time", {}).get("bp", []) + found.get("time", {}).get("exact", [])
        failed = [*(r.get("failed") for r in rows), trees.get("failed")]
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


def _in_order(results: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """By problem, the fastest first, then those that failed."""
    return sorted(_rows(results, key), key=lambda r: (r["problem"], r.get("seconds", math.inf)))


def _bp(results: dict[str, Any]) -> list[list[str]]:
    out = []
    for r in _in_order(results, "bp"):
        if "failed" in r:
            out.append([r["problem"], r["tool"], "-", r["failed"], "-", "-", "-", "-"])
            continue
        mine = r["tool"] == "minfer"
        ms = number(r["seconds"] * 1e3) + (" (scaled)" if r["note"] else "")
        compiled = number(r["compile"]) if (r["compile"] or 0) > 1e-3 else "-"
        setup = "included" if mine else number(r["setup"])
        out.append([r["problem"], r["tool"], str(r["iters"]), ms, *_beside(r), setup, compiled])
    return out


def _exact(results: dict[str, Any]) -> list[list[str]]:
    out = []
    for r in _in_order(results, "exact"):
        if "failed" in r:
            out.append([r["problem"], r["tool"], r["failed"], "-", "-", "-"])
            continue
        ms = number(r["seconds"] * 1e3)
        out.append([r["problem"], r["tool"], ms, *_beside(r), f"{r['error']:.0e}"])
    return out


def _beside(r: dict[str, Any]) -> list[str]:
    """minfer's milliseconds in the same turns, and the ratio."""
    if r["tool"] == "minfer":
        return ["-", "1"]
    return [number(r["minfer_seconds"] * 1e3), number(r["x_minfer"])]


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
            out.append([tool, *(_outcome(case, found.get(case)) for case in order)])
    return out


def _outcome(case: str, found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    if "error" in found:
        return f"{found['error']:.1g}" if found["error"] > 1e-12 else "exact"
    if "raised" in found:
        kind = found["raised"].split(":")[0]
        if case not in ("nan", "contradiction", "unknown"):
            return f"**{kind}**"
        return f"{'error' if kind in CRASHES else 'refused'} ({kind})"
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
        if peer == "minfer":
            continue
        found = results.get(peer, {}).get("parsing", {})
        for r in found.get("rows", []):
            out.append(
                [name, r["batch"], number(r["us_per_sentence"]), number(r["minfer_us"]),
                 number(r["x_minfer"]), f"{r['difference']:.0e}",
                 f"{r['minfer_difference']:.0e}" if r["minfer_difference"] else "-"]
            )  # fmt: skip
        if "failed" in found:
            out.append([name, "the rest", found["failed"], "-", "-", "-", "-"])
    return out


def _second(results: dict[str, Any]) -> list[str]:
    """Forms of second order: what each computes, and how long it takes."""
    rows = []
    for peer, name in NAMES.items():
        for r in results.get(peer, {}).get("parsing", {}).get("second", []):
            mine = peer == "minfer"
            rows.append(
                [name, r["form"], r["batch"], number(r["us_per_sentence"]),
                 *("-" if mine else number(r[key]) for key in ("x_all", "x_reduced")),
                 r["limit"], f"{r['off']:.0e}", _remark(r)]
            )  # fmt: skip
    if not rows:
        return []
    return [
        "## Second order",
        "Pairs of arcs with their own scores, on the same tensors: 32 sentences of 25 words, "
        "arc scores of standard deviation 1 (flat) or 20 (sure), pair scores of 0.3 or 1 (strong). "
        "**These are different models**: only times are compared, not answers.",
        "* minfer: a projective tree factor with one root, all pairs of siblings, adjacent or not, "
        "and all grandparents; approximate, by BP of at most 10 iterations or until no probability "
        "changes by 1e-3; a sentence at a time, in float64. *All pairs* keeps everything; "
        "*reduced* leaves out pairs and arcs that are improbable under the first-order trees, with "
        "the parser's default thresholds, and `moved` is the share of a word's probability that "
        "moves to other heads. *Exact, grandparents* is the O(n^4) dynamic program, without "
        "siblings.\n"
        "* SuPar's `Dependency2oCRF`: projective trees with one root and adjacent siblings, exact "
        "in O(n^3), with gradients; float32.\n"
        "* SuPar's `DependencyLBP` and `DependencyMFVI`: each word chooses a head, all pairs of "
        "siblings; no tree, no grandparents; three iterations, its default.\n"
        "* SuPar's `SemanticDependencyLBP` and `SemanticDependencyMFVI`: each arc is there or not; "
        "siblings, grandparents and coparents (0 here); no tree; three iterations.\n"
        "* torch-struct has no second order.",
        "Without pair scores each model must give the first-order answer of its kind of structure; "
        "`differs by` is the largest difference. For minfer's *reduced* it is what leaving arcs "
        "out costs. In `DependencyLBP` a pair's potential is 1 + exp(score), so that a score of 0 "
        "is not without influence. With strong random pairs neither of minfer's graphs converges, "
        "and the reduction changes much: it assumes that the first-order answer is close.",
        table(
            ["library", "form", "batch", "us a sentence", "times all pairs", "times reduced",
             "without pairs", "differs by", "remarks"],
            rows,
        ),
    ]  # fmt: skip


def _remark(r: dict[str, Any]) -> str:
    if "kept" not in r:
        return "-"
    text = f"{r['converged']:.0%} converged, {r['iterations']:.1f} iterations"
    if "moved" in r:
        text += f", {r['share']:.1%} of the pairs, {r['moved']:.1%} moved"
    return text


def _short(results: dict[str, Any]) -> list[str]:
    """Who wins where, from the numbers."""
    rows = [(f"{r['problem']}, BP to 1e-4", r) for r in _rows(results, "bp")]
    rows += [(f"{r['problem']}, exact", r) for r in _rows(results, "exact")]
    for peer, name in NAMES.items():
        found = results.get(peer, {}).get("parsing", {})
        rows += [(f"trees, {r['batch']}", {**r, "tool": name}) for r in found.get("rows", [])]
    compared = [(w, r) for w, r in rows if r["tool"].lower() != "minfer" and r.get("x_minfer")]
    faster = [(w, r) for w, r in compared if r["x_minfer"] < 1 / NOISE]
    slower = [(w, r) for w, r in compared if r["x_minfer"] >= 1 / NOISE]
    right = [(w, r) for w, r in faster if r.get("difference", 0.0) <= WRONG]
    wrong = [(w, r) for w, r in faster if r.get("difference", 0.0) > WRONG]
    lines = []
    if right:
        said = "; ".join(f"{r['tool']} on {w} ({1 / r['x_minfer']:.1f} times)" for w, r in right)
        lines.append(f"* **Faster than minfer:** {said}.")
    else:
        lines.append("* No library here was faster than minfer on these problems.")
    if wrong:
        said = "; ".join(
            f"{r['tool']} on {w} ({1 / r['x_minfer']:.1f} times; its numbers are off by "
            f"{r['difference']:.0e}, for lack of digits)"
            for w, r in wrong
        )
        lines.append(f"* Faster, but not the answer: {said}.")
    if slower:
        what, least = min(slower, key=lambda row: row[1]["x_minfer"])
        lines.append(
            f"* In the other {len(slower)} comparisons minfer was faster or level; the closest is "
            f"{least['tool']} on {what}, {number(least['x_minfer'])} times minfer's time."
        )
    lines += _short_second(results)
    lines.append(
        "* **Where others win by what they do:** learning the structure of Bayesian networks "
        "(pgmpy, pyAgrum), GPUs (PGMax, torch-struct, SuPar, pomegranate), causality, decisions "
        "and dynamic networks (pyAgrum, pgmpy), trained neural parsers ready to download (SuPar). "
        "minfer has none of these; it does learn weights and tables from data, with gradients."
    )
    lines.append(
        "* **What only minfer does:** leaves factors out on purpose, scores each by what it would "
        "change, and says how far off the answer may be; tree factors inside any factor graph."
    )
    return ["\n".join(lines)]


def _short_second(results: dict[str, Any]) -> list[str]:
    said = []
    for peer, name in NAMES.items():
        if peer == "minfer":
            continue
        by_form: dict[str, list[float]] = {}
        for r in results.get(peer, {}).get("parsing", {}).get("second", []):
            by_form.setdefault(r["form"], []).append(r["x_all"])
        for form, x in by_form.items():
            span = " to ".join(dict.fromkeys(number(v) for v in (min(x), max(x))))
            said.append(f"{name}'s {form} {span}")
    if not said:
        return []
    return [
        "* Second order, by different models; times as multiples of minfer's time with all pairs: "
        f"{', '.join(said)}."
    ]
