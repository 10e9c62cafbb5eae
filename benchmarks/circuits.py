"""Exact answers through zeros: circuits beside clique trees, ganak and an older ``Exact``.

    python benchmarks/circuits.py SECTION ... [--ganak PYTHON] [--before CHECKOUT] [--page PAGE]

Sections: promedas, linkage, cnf, uai, rows, quickscore; all by default. Each case is a process on
one pinned core, and a limit is one of CPU seconds, compiling excluded. ganak (``pip install
pyganak`` for the Python named) gets the same CNFs; an older checkout's ``Exact`` the UAI models,
which is kept and printed, and not on the page.
What a case gave is kept in ``results/circuits.json`` and not run again without ``--again``; a run
that was stopped goes on there. ``--page`` writes the tables into docs/reference/circuits.md.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from places import DATA, DOCS, RESULTS, ROOT, UaiModel, uai_models
from stopwatch import measure

Row = dict[str, Any]
SECTIONS = ("promedas", "linkage", "cnf", "uai", "rows", "quickscore")
FAMILIES = ("Promedus", "Pedigree", "CSP", "Alchemy")
KEPT = RESULTS / "circuits.json"
#: CPU seconds a case may take, and GiB.
LIMIT, GIB = 60.0, {"promedas": 2.0}
LN10 = math.log(10.0)

#: Reads a CNF and counts, in an interpreter without minfer. Weights are divided by each variable's
#: larger one, since the count comes back as a double.
GANAK = """
import gzip, json, math, sys, time
from pyganak import VERSION, WeightedCounter
w, clauses, own, scale = {}, [], [], 0.0
for line in gzip.open(sys.argv[1], "rt"):
    t = line.split()
    if t[:3] == ["c", "p", "weight"]: w[int(t[3])] = float(t[4])
    elif t[:1] == ["p"]: n = int(t[2])
    elif t and t[0] not in "c%":
        for x in map(int, t):
            if x: own.append(x)
            else: clauses.append(own); own = []
begin = time.process_time()
c = WeightedCounter()
c.new_vars(n)
c.add_clauses(clauses)
for v in range(1, n + 1):
    top = max(w.get(v, 1.0), w.get(-v, 1.0)); scale += math.log10(top)
    c.set_lit_weight(v, w.get(v, 1.0) / top); c.set_lit_weight(-v, w.get(-v, 1.0) / top)
z = c.count()
found = math.log10(z) + scale if z > 0 else None
print(json.dumps({"cpu": time.process_time() - begin, "log10_z": found, "version": VERSION}))
"""


# ------------------------------------------------------------------ one case, in its process


def cpu_clock() -> None:
    """Time limits in CPU seconds of this process, compiling excluded."""
    from minfer.basics import limits

    limits.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[attr-defined]


def warm_up(before: bool) -> None:
    """What is compiled or loaded once does not count."""
    from minfer import Exact, FactorGraph

    graph = _drawn(0, (8, 12, 4, 4, 3)).graph()
    graph = graph.add_clauses([[0, 1, 2, 3]], signs=[[1, -1, 1, -1]])
    for method in ("clique-tree",) if before else ("clique-tree", "circuit", "auto"):
        Exact(method=method)(graph)
    Exact()(
        FactorGraph.empty([3] * 20).add_tables([[v, v + 1] for v in range(19)], [np.eye(3)] * 19)
    )


def _drawn(seed: int, sizes: tuple[int, ...]) -> Any:
    sys.path.insert(0, str(ROOT / "tests"))
    from oracle.quickscore import drawn

    return drawn(seed, *sizes)


def solved(graph: Any, limit: float, gib: float, method: str, rounds: int = 1) -> Row:
    """What ``Exact`` takes and says; the best of some rounds."""
    from minfer import Exact, MinferError

    options = {} if method == "before" else {"method": method}
    solver = Exact(max_gib=gib, time_limit=limit, **options)
    out: Row = {"cpu": math.inf}
    for _ in range(rounds):
        begin = time.process_time()
        try:
            answer = solver(graph)
            log_z, out["probs"] = answer.log_z, answer.probs
        except MinferError as error:
            cpu = time.process_time() - begin
            if type(error).__name__ == "ContradictionError":
                return {"cpu": cpu, "log10_z": -math.inf}
            return {"cpu": cpu, "error": f"{type(error).__name__}: {error}"[:300]}
        out["cpu"] = min(out["cpu"], time.process_time() - begin)
        out["log10_z"], out["by"] = log_z / LN10, type(answer.state).__name__
        if out["cpu"] > 5.0:
            break
    return out | {"gib": measure.peak() / 2**30}


def one_uai(path: Path, limit: float, gib: float, method: str, rounds: int) -> Row:
    model = UaiModel(path)
    out = solved(model.graph, limit, gib, method, rounds)
    probs = out.pop("probs", None)
    if probs is not None and model.beside("MAR").exists():
        out["error_p"] = float(np.abs(probs - model.marginals).max())
        with gzip.open(model.beside("PR"), "rt") as file:
            out["error_z"] = abs(out["log10_z"] - float(file.read().split()[1]))
    return out


def one_cnf(path: Path, limit: float, gib: float) -> Row:
    import minfer

    out = solved(minfer.read(path), limit, gib, "auto")
    out.pop("probs", None)
    return out


def one_quickscore(seed: int, limit: float, gib: float) -> Row:
    sizes = (200, 600, 10, 200, 20)
    model = _drawn(seed, sizes)
    from oracle.quickscore import without_signs

    out = solved(model.graph(), limit, gib, "auto")
    probs = out.pop("probs", None)
    if probs is not None:
        truth = without_signs(model, 8)
        out["error_z"] = abs(out["log10_z"] - truth.log_p / LN10)
        out["error_p"] = float(np.nanmax(np.abs(probs[1:400:2] - truth.posterior)))
    return out


def one_row_set(path: Path, limit: float, gib: float) -> Row:
    """1,000 rows of a model's evidence variables, drawn from the model itself."""
    import minfer

    graph, seen = minfer.read_uai(path), UaiModel(path).graph
    observed = [v for v in range(graph.n_variables) if np.isneginf(_field_of(seen, v)).any()]
    begin = time.process_time()
    circuit = minfer.compile(graph, free=observed, max_gib=gib)
    out: Row = {"cpu": time.process_time() - begin, "nodes": circuit.size.nodes}
    rows = np.full((1000, graph.n_variables), -1)
    rows[:, observed] = np.asarray(circuit.sample(1000))[:, observed]
    circuit.batch(rows[:8])
    begin = time.process_time()
    found = circuit.batch(rows)
    out |= {"ms": time.process_time() - begin, "edges": circuit.size.edges}
    tree = minfer.Exact(max_gib=gib, method="clique-tree")
    own = graph.with_evidence({v: int(rows[0, v]) for v in observed})
    begin = time.process_time()
    answer = tree(own)
    out |= {"tree_ms": 1000 * (time.process_time() - begin), "gib": measure.peak() / 2**30}
    out["error_z"] = abs(float(found.log_z[0]) - answer.log_z) / LN10
    out["error_p"] = float(np.abs(found.probs[0] - answer.probs).max())
    return out


def _field_of(graph: Any, v: int) -> Any:
    return graph.field[graph.offsets[v] : graph.offsets[v + 1]]


def one(section: str, name: str, before: bool, limit: float) -> Row:
    gib, method = GIB.get(section, 4.0), "before" if before else "auto"
    if section == "promedas":
        return one_uai(DATA / "promedas" / f"{name}.uai.gz", limit, gib, method, 1)
    if section in ("uai", "linkage"):
        path = next(m.path for m in uai_models(names=[name]))
        return one_uai(path, limit, gib, method, 5 if section == "uai" else 1)
    if section == "cnf":
        return one_cnf(DATA / "wmc" / f"{name}.gz", limit, gib)
    if section == "rows":
        return one_row_set(next(m.path for m in uai_models(names=[name])), limit, gib)
    return one_quickscore(int(name), limit, gib)


# ------------------------------------------------------------------ all cases


def known(section: str) -> dict[str, float | None]:
    """log10 Z by name, where somebody knows it."""
    if section == "promedas":
        with open(DATA / "promedas" / "log10z.csv") as file:
            lines = list(csv.DictReader(file))
        return {f"{x['model']}.fg": float(x["log10_z"]) if x["log10_z"] else None for x in lines}
    with open(DATA / "wmc" / "counts.csv") as file:
        lines = list(csv.DictReader(file))
    return {x["instance"]: float(x["log10_count"]) if x["log10_count"] else None for x in lines}


def cases(section: str) -> list[str]:
    if section in ("promedas", "cnf"):
        return list(known(section))
    if section == "linkage":
        return [m.name for m in uai_models() if m.family == "linkage"]
    if section == "uai":
        return [m.name for m in uai_models() if m.family in FAMILIES]
    return ["Promedus_14"] if section == "rows" else ["0", "1", "2"]


def runs(
    section: str, asked: argparse.Namespace
) -> Iterator[tuple[str, Callable[[str], list[str]]]]:
    """Who runs each case: a name, and the command."""
    me = [str(Path(__file__)), "--limit", str(asked.limit), "--case", section]
    yield "now", lambda name: [sys.executable, *me, name]
    if asked.before and section in ("uai", "linkage", "promedas"):
        yield "before", lambda name: [sys.executable, *me, name, "--old"]
    if asked.ganak and section == "cnf":
        yield "ganak", lambda name: [asked.ganak, "-c", GANAK, str(DATA / "wmc" / f"{name}.gz")]


def child(command: list[str], who: str, asked: argparse.Namespace) -> Row:
    """A case's answer; what went wrong if there is none."""
    env = {**os.environ, **measure.one_thread()}
    src = [Path(asked.before) if who == "before" else ROOT]
    env["PYTHONPATH"] = os.pathsep.join(str(p / "src") for p in src)
    seconds = math.ceil(asked.limit + (60 if who != "ganak" else 5))  # with reading and warming up
    limited = ["bash", "-c", f'ulimit -t {seconds}; exec "$0" "$@"', *command]
    done = subprocess.run(limited, env=env, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return dict(json.loads(lines[-1]))
    told = done.stderr.strip().splitlines()
    why = f"over {asked.limit:g} s" if done.returncode in (-9, -24, 137, 152) else ""
    return {"error": why or (told[-1][:300] if told else f"exit code {done.returncode}")}


def run(section: str, kept: Any, asked: argparse.Namespace) -> None:
    rows = kept.parts.get(section, {})
    truth = known(section) if section in ("promedas", "cnf") else {}
    for name in cases(section):
        if asked.names and name not in asked.names:
            continue
        row = rows.setdefault(name, {})
        for who, command in runs(section, asked):
            if who in row and not asked.again:
                continue
            row[who] = child(command(name), who, asked)
            z = row[who].get("log10_z")
            if truth.get(name) is not None and z is not None:
                row[who]["error_z"] = 0.0 if z == truth[name] else abs(z - truth[name])
            kept.keep(section, rows)
            print(section, name, who, json.dumps(row[who]), flush=True)


# ------------------------------------------------------------------ the page


def tables(found: dict[str, Any]) -> dict[str, str]:
    from minfer_experiments.pages import number, table

    def seconds(row: Row | None) -> str:
        if not row:
            return ""
        return number(row["cpu"]) if "error" not in row else "–"

    def off(row: Row, key: str) -> str:
        return f"{row[key]:.0e}" if key in row else ""

    made = {}
    for section, rows in found.items():
        done = {name: row for name, row in rows.items() if "now" in row}
        body, others = [], [w for w in ("ganak",) if any(w in r for r in done.values())]
        for name, row in done.items():
            now = row["now"]
            if section == "rows":
                keys = "cpu", "edges", "ms", "tree_ms", "gib"
                body.append([name, *(number(now[k]) for k in keys)])
                body[-1] += [off(now, "error_z"), off(now, "error_p")]
                continue
            z = now.get("log10_z")
            body.append(
                [name.removesuffix(".cnf").removesuffix(".fg"), "" if z is None else f"{z:.6f}",
                 seconds(now), *(seconds(row.get(w)) for w in others), number(now.get("gib"), 2),
                 off(now, "error_z"), off(now, "error_p")]
            )  # fmt: skip
        head = ["model", "log10 Z", "CPU s", *others, "GiB", "log10 Z off by", "marginals off by"]
        if section == "rows":
            head = ["model", "compiled in, CPU s", "edges", "ms a row", "clique tree, ms", "GiB"]
            head += ["log10 Z off by", "marginals off by"]
        made[section] = f"{table(head, body)}\n\n{_summed_up(section, done)}"
    return made


def _summed_up(section: str, rows: dict[str, Any]) -> str:
    """A section in a sentence."""
    now = [r["now"] for r in rows.values() if "error" not in r["now"]]
    if section == "rows" or not now:
        return ""
    within = sum(r["cpu"] <= 20 for r in now)
    text = f"Answered: {len(now)} of {len(rows)}, {within} of them within 20 s"
    worst = max((r["error_z"] for r in now if "error_z" in r), default=None)
    text += "." if worst is None else f"; largest error of log10 Z {worst:.1e}."
    if section == "cnf":
        counted = [n for n, z in known("cnf").items() if z is not None and n in rows]
        good = sum(rows[n]["now"].get("error_z", 1.0) <= 1e-8 for n in counted)
        text += f" Of {len(counted)} with a reference count, {good} agree within 1e-8."
    for who in ("ganak",):
        beside = [(r["now"], r[who]) for r in rows.values() if who in r]
        ratio = sorted(
            m["cpu"] / max(o["cpu"], 1e-3) for m, o in beside if not ({*m, *o} & {"error"})
        )
        if ratio:
            ours = sum("error" in o and "error" not in m for m, o in beside)
            theirs = sum("error" in m and "error" not in o for m, o in beside)
            text += (
                f" Of {len(ratio)} that *{who}* answers too, {sum(x < 1 for x in ratio)} take less "
                f"time now; times are {ratio[0]:.2g} to {ratio[-1]:.2g} of its, "
                f"{ratio[len(ratio) // 2]:.2g} in the median. Answered now alone: {ours}; by "
                f"*{who}* alone: {theirs}."
            )
    return text


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    cli.add_argument("--ganak", metavar="PYTHON", help="an interpreter that has pyganak")
    cli.add_argument("--before", metavar="CHECKOUT", help="an older checkout")
    cli.add_argument("--names", nargs="*", default=[], help="only these cases")
    cli.add_argument("--limit", type=float, default=LIMIT, help="CPU seconds of a case")
    cli.add_argument("--again", action="store_true", help="run what is kept already, too")
    cli.add_argument("--page", type=Path, nargs="?", const=DOCS / "circuits.md")
    cli.add_argument("--core", type=int, help="core to pin to (default the last)")
    cli.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    cli.add_argument("--old", action="store_true", help=argparse.SUPPRESS)
    asked = cli.parse_args()
    measure.pin(asked.core)
    if asked.case:
        cpu_clock()
        warm_up(asked.old)
        print(json.dumps(one(*asked.case, asked.old, asked.limit)))
        return 0
    from minfer_experiments.results import Results

    kept = Results(KEPT)
    for section in asked.sections or ([] if asked.page else SECTIONS):
        run(section, kept, asked)
    if asked.page:
        from minfer_experiments.pages import write_sections

        write_sections(asked.page, tables(kept.parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
