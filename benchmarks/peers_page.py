"""The sections of docs/reference/peers.md from what peers.py found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import networks_page
from minfer_experiments.pages import number, table
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

#: Those whose features the page lists.
FEATURES = [p for p in NAMES if p not in ("libdai", "opengm")]


def sections(
    results: dict[str, dict[str, Any]],
    networks: dict[str, Any] | None = None,
    loose: dict[str, dict[str, Any]] | None = None,
) -> dict[str, str]:
    """The sections of docs/reference/peers.md by name, with what benchmarks/networks.py found.

    Of *loose*, found without pinning, come the ratios in the columns "not pinned".
    """
    results = {p: _with_loose(found, (loose or {}).get(p, {})) for p, found in results.items()}
    made = {
        "measured": f"{_measured(results)}. {_way(loose)}",
        "short": _short(results, networks),
        "claims": table(["", *(NAMES[p] for p in FEATURES)], _claims(results)),
    }
    for name, (head, body) in TABLES.items():
        made[name] = table(head.split(", "), body(results))
    if networks:
        made["networks"] = networks_page.for_peers(networks)
    return made


#: What tells the rows of a table apart.
ROWS = {("time", "bp"): ("problem", "tool"), ("time", "exact"): ("problem", "tool"),
        ("parsing", "rows"): ("batch",)}  # fmt: skip


def _with_loose(found: dict[str, Any], free: dict[str, Any]) -> dict[str, Any]:
    """A peer's rows, each with its ratio as measured without pinning."""
    out = dict(found)
    for (part, key), names in ROWS.items():
        ratios = {
            tuple(r[n] for n in names): r.get("x_minfer") for r in free.get(part, {}).get(key, [])
        }
        if part in out:
            rows = out[part].get(key, [])
            told = [r | {"x_loose": ratios.get(tuple(r[n] for n in names))} for r in rows]
            out[part] = out[part] | {key: told}
    return out


def _way(loose: dict[str, Any] | None) -> str:
    """On which cores and threads."""
    text = "Every tool runs on one thread of one core"
    stamps = [s for found in (loose or {}).values() for s in found.get("about", {}).values()]
    if not stamps:
        return f"{text}."
    days = sorted({s["date"] for s in stamps})
    return (
        f"{text}; *not pinned* is the ratio of CPU times as anybody runs them, all threads counted "
        f"({' to '.join(dict.fromkeys((days[0], days[-1])))})."
    )


def _measured(results: dict[str, Any]) -> str:
    """Days, machines and states of the code of all parts."""
    stamps = {
        (peer, part): stamp
        for peer, found in results.items()
        for part, stamp in found.get("about", {}).items()
    }
    if not stamps:
        return "Not measured yet"
    days = sorted({s["date"] for s in stamps.values()})
    run = {key: s for key, s in stamps.items() if key[1] != "install"}
    machines = sorted({f"{s['cpu']}, Python {s['python']}" for s in run.values()})
    text = f"Measured {' to '.join(sorted({days[0], days[-1]}))}"
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
            out.append([r["problem"], r["tool"], "-", r["failed"], "-", "-", "-", "-", "-"])
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
            out.append([r["problem"], r["tool"], r["failed"], "-", "-", "-", "-"])
            continue
        ms = number(r["seconds"] * 1e3)
        out.append([r["problem"], r["tool"], ms, *_beside(r), f"{r['error']:.0e}"])
    return out


def _beside(r: dict[str, Any]) -> list[str]:
    """minfer's milliseconds in the same turns, and the ratio, on one core and not pinned."""
    if r["tool"] == "minfer":
        return ["-", "1", "1"]
    return [number(r["minfer_seconds"] * 1e3), number(r["x_minfer"]), _loose(r)]


def _loose(r: dict[str, Any]) -> str:
    return number(r["x_loose"]) if r.get("x_loose") else "-"


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
                 number(r["x_minfer"]), _loose(r), f"{r['difference']:.0e}",
                 f"{r['minfer_difference']:.0e}" if r["minfer_difference"] else "-"]
            )  # fmt: skip
        if "failed" in found:
            out.append([name, "the rest", found["failed"], "-", "-", "-", "-", "-"])
    return out


def _second(results: dict[str, Any]) -> list[list[str]]:
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
    return rows


def _remark(r: dict[str, Any]) -> str:
    if "kept" not in r:
        return "-"
    text = f"{r['converged']:.0%} converged, {r['iterations']:.1f} iterations"
    if "moved" in r:
        text += f", {r['share']:.1%} of the pairs, {r['moved']:.1%} moved"
    return text


def _short(results: dict[str, Any], networks: dict[str, Any] | None) -> str:
    """Who is faster where, from the numbers: everything the page has."""
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
    ahead = [f"{r['tool']} on {w} ({1 / r['x_minfer']:.1f} times)" for w, r in right]
    if networks and (lost := networks_page.lost(networks)):
        ahead.append(f"pyAgrum on Bayesian networks, {lost}: minfer's speed, in times pyAgrum's")
    if second := _faster_second(results):
        ahead.append(f"by other models of second order, {second} times what minfer takes")
    lines = [f"* **Faster than minfer:** {'; '.join(ahead) or 'no library here'}."]
    if wrong:
        said = "; ".join(
            f"{r['tool']} on {w} ({1 / r['x_minfer']:.1f} times; its numbers are off by "
            f"{r['difference']:.0e}, for lack of digits)"
            for w, r in wrong
        )
        lines.append(f"* Faster, but not the answer: {said}.")
    if slower:
        what, least = min(slower, key=lambda row: row[1]["x_minfer"])
        closest = f"{least['tool']} on {what}, {number(least['x_minfer'])} times minfer's time"
        lines.append(
            f"* In {'the other ' if faster else ''}{len(slower)} comparisons of the same answer, "
            f"Bayesian networks aside, minfer was faster or level; the closest is {closest}."
        )
    return "\n".join(lines)


def _faster_second(results: dict[str, Any]) -> str:
    """The parsers of second order that took less time, by form."""
    said = []
    for peer, name in NAMES.items():
        by_form: dict[str, list[float]] = {}
        for r in results.get(peer, {}).get("parsing", {}).get("second", []):
            by_form.setdefault(r["form"], []).append(r["x_all"])
        for form, x in by_form.items():
            if peer != "minfer" and min(x) < 1 / NOISE:
                span = " to ".join(dict.fromkeys(number(v) for v in (min(x), max(x))))
                said.append(f"{name}'s {form} with {span}")
    return ", ".join(said)


#: section -> head, rows
TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], list[list[str]]]]] = {
    "installs": ("library, version, packages, MB, seconds, start s", _installs),
    "bp": (
        "problem, tool, iterations, ms, minfer's, times minfer's, not pinned, set-up s, compile s",
        _bp,
    ),
    "exact": ("problem, tool, ms, minfer's, times minfer's, not pinned, largest error", _exact),
    "accuracy": ("tool, P4i, P4m", _accuracy),
    "inputs": (
        "tool, NaN, contradiction, unknown evidence, degree 100, chain of 600, 4-cycle", _inputs
    ),
    "trees": (
        "library, batch, us a sentence, minfer's, times minfer's, not pinned, error, "
        "minfer's error", _trees,
    ),
    "second": (
        "library, form, batch, us a sentence, times all pairs, times reduced, without pairs, "
        "differs by, remarks", _second,
    ),
}  # fmt: skip
