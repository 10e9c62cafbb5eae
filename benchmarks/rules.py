"""Rules over tables: grounding, and lazy grounding against all groundings.

    taskset -c 0 python benchmarks/rules.py [CASE ...] [--data DIR] [--json F] [--page]

Cases: ``grounding``, ``linear``, ``class``, ``cora-fold``, ``cora``, ``people``, ``people-300``,
``people-600``, ``people-large``.
Each runs in a process of its own, so that its memory is its own. ``--data`` is a folder with the
data sets ``cora`` (five folds in the format of srlearn, ``fold1/test/test_facts.txt.gz``, ...) and
``tuffy`` (``class/prog.mln.gz``, ...); what is not there is skipped, and said. ``--page`` writes
docs/reference/rules-measured.md from the results.

CPU seconds of one core; memory is the most a process held. Baselines are belief propagation over
all groundings with the same kernels, converged (tol 1e-5) and stopped after 1, 2 and 3 sweeps.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from minfer import BeliefPropagation, Exact, FactorGraph, Gibbs, Rules
from minfer_experiments.measure import Stopwatch, peak
from minfer_experiments.pages import table, write_sections
from minfer_experiments.results import Results

CASES = (
    "grounding", "linear", "class", "cora-fold", "people", "people-300", "people-600", "cora",
    "people-large",
)  # fmt: skip
SMALL = 30  # atoms of a part of a model that is solved exactly, to compare
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "rules-measured.md"
RESULTS = Path(__file__).parent / "results" / "rules.json"


def memory() -> float:
    """The most memory that this process held, in GB."""
    return peak() / 1e9


def errors(p: np.ndarray, ref: np.ndarray) -> dict[str, float]:
    return {"mean": float(np.abs(p - ref).mean()), "max": float(np.abs(p - ref).max())}


# ---------------------------------------------------------------------- data


def facts(path: Path) -> dict[str, set[tuple[str, ...]]]:
    """Lines ``predicate(a, b).`` of a file."""
    out: dict[str, set[tuple[str, ...]]] = collections.defaultdict(set)
    with gzip.open(path, "rt") as lines:
        for line in lines:
            text = line.strip().rstrip(".")
            if text:
                name, args = text.split("(", 1)
                out[name].add(tuple(x.strip() for x in args.rstrip(")").split(",")))
    return out


def cora_data(root: Path, folds: list[int]) -> dict[str, Any]:
    """Citations of some folds: pairs, how alike their fields are, and labels where there are."""
    true, pos, neg = (collections.defaultdict(set) for _ in range(3))
    for k in folds:
        for name, into in (("facts", true), ("pos", pos), ("neg", neg)):
            for p, rows in facts(root / f"fold{k}/test/test_{name}.txt.gz").items():
                into[p] |= rows
    alike, values = {}, {}
    for f in ("title", "author", "venue"):
        values[f] = sorted({a[1] for a in true[f]})
        words = collections.defaultdict(set)
        for v, w in true["hasword" + f]:
            words[v].add(w)
        listed = {w: i for i, w in enumerate(sorted({w for s in words.values() for w in s}))}
        m = np.zeros((len(values[f]), max(1, len(listed))))
        for i, v in enumerate(values[f]):
            m[i, [listed[w] for w in words[v]]] = 1
        both, size = m @ m.T, m.sum(1)
        either = size[:, None] + size[None] - both
        alike[f] = np.where(either > 0, both / np.maximum(either, 1), 0)
        np.fill_diagonal(alike[f], 1)
    bibs = sorted({a[0] for a in true["author"]})
    place = {b: i for i, b in enumerate(bibs)}
    value = {f: np.zeros(len(bibs), int) for f in alike}
    for f in alike:
        at = {v: i for i, v in enumerate(values[f])}
        for b, v in true[f]:
            value[f][place[b]] = at[v]
    i, j = np.triu_indices(len(bibs), 1)
    x = np.stack([alike[f][value[f][i], value[f][j]] for f in ("title", "author", "venue")], 1)
    x = np.c_[x, x[:, 0] * x[:, 1], x[:, 0] * x[:, 2], x == 1][:, :8]
    y = np.full(len(i), -1)
    n = len(bibs)
    for label, rows in ((1, pos["samebib"]), (0, neg["samebib"])):
        codes = [min(place[a], place[b]) * n + max(place[a], place[b]) for a, b in rows if a != b]
        y[np.isin(i * n + j, codes)] = label
    titles = {v: k for k, v in enumerate(values["title"])}
    labelled = [
        (alike["title"][titles[a], titles[b]], label)
        for label, rows in ((1, pos["sametitle"]), (0, neg["sametitle"]))
        for a, b in sorted(rows)
        if a != b and a in titles and b in titles
    ]
    return {
        "n": n, "i": i, "j": j, "x": x, "y": y, "title": value["title"], "alike": alike["title"],
        "titles": labelled,
    }  # fmt: skip


def regression(x: np.ndarray, y: np.ndarray, l2: float = 1e-2) -> np.ndarray:
    """Weights of a logistic regression, the last one its constant."""
    x = np.c_[x, np.ones(len(x))]
    w = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ w))
        h = (x * (p * (1 - p))[:, None]).T @ x + l2 * np.eye(len(w))
        w -= np.linalg.solve(h, x.T @ (p - y) + l2 * w)
    return w


def cora_rules(root: Path, test: list[int], weight: float = 0.1) -> Rules:
    """Citations of the test folds; priors by a regression on the others."""
    xs, ys, ts = [], [], []
    for k in [k for k in range(1, 6) if k not in test] or range(1, 6):
        d = cora_data(root, [k])
        known = d["y"] >= 0
        rest = np.flatnonzero(~known)
        rest = np.random.default_rng(k).choice(rest, min(3000, len(rest)), replace=False)
        xs += [d["x"][known], d["x"][rest]]
        ys += [d["y"][known], np.zeros(len(rest))]
        ts += d["titles"]
    w = regression(np.concatenate(xs), np.concatenate(ys))
    wt = regression(np.array([[a] for a, _ in ts]), np.array([b for _, b in ts]))
    d = cora_data(root, test)
    ti, tj = np.triu_indices(len(d["alike"]), 1)
    bib = {"a": d["i"], "b": d["j"], "f": np.c_[d["x"], np.ones(len(d["x"]))] @ w}
    title = {"a": ti, "b": tj, "f": d["alike"][ti, tj] * wt[0] + wt[1]}
    kinds, titles = ("bib", "bib"), ("title", "title")
    program = Rules(max_groundings=2e7)
    program.open("same", bib, columns=("a", "b"), types=kinds, symmetric=True, log_odds="f")
    program.open("sameTitle", title, columns=("a", "b"), types=titles, symmetric=True, log_odds="f")
    program.closed("title", {"b": np.arange(d["n"]), "t": d["title"]}, types=("bib", "title"))
    program.rule(f"{weight}: same(x, y) ^ same(y, z) ^ x < z => same(x, z)")
    both = "title(x, t) ^ title(y, u) ^ x < y ^ t != u"
    program.rule(f"2: {both} ^ same(x, y) => sameTitle(t, u)")
    program.rule(f"2: {both} ^ sameTitle(t, u) => same(x, y)")
    return program


def people(n: int, weight: float = 2.0) -> Rules:
    """All pairs of n records, one person in four records on average; same is transitive."""
    rng = np.random.default_rng(0)
    person = rng.integers(0, max(1, n // 4), n)
    i, j = np.triu_indices(n, 1)
    same = person[i] == person[j]
    f = np.where(same, rng.normal(3.0, 2.0, len(i)), rng.normal(-6.0, 1.2, len(i)))
    program = Rules(max_groundings=2e7, memory_limit="1500MB")
    program.open("same", {"a": i.astype(np.int32), "b": j.astype(np.int32), "f": f},
                 types=("r", "r"), columns=("a", "b"), symmetric=True, log_odds="f")  # fmt: skip
    return program.rule(f"{weight}: same(x, y) ^ same(y, z) ^ x < z => same(x, z)")


def smokers_data(n: int = 100_000, friends: int = 10) -> tuple[dict[str, Any], dict[str, Any]]:
    """Who is whose friend, and people with log-odds."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, n, (2, n * friends))
    good = a != b
    pairs = {"a": a[good].astype(np.int32), "b": b[good].astype(np.int32)}
    return pairs, {"x": np.arange(n, dtype=np.int32), "f": rng.normal(-1, 1, n)}


def smokers(pairs: dict[str, Any], who: dict[str, Any]) -> Rules:
    """Friends are observed, so groundings are linear in the tables."""
    program = Rules().closed("friends", pairs, types=("p", "p"), symmetric=True)
    program.open("smokes", who, columns=("x",), types=("p",), log_odds="f")
    program.open("cancer", {"x": who["x"]}, types=("p",), log_odds=-2)
    program.rule("0.2: friends(x, y) ^ smokes(x) => smokes(y)")
    return program.rule("1: smokes(x) => cancer(x)")


# ---------------------------------------------------------------------- runs


def lazily(program: Rules, **settings: Any) -> tuple[np.ndarray, dict[str, Any]]:
    with Stopwatch() as t:
        answer = program.infer(grounding="lazy", **settings)
    how = answer.lazily
    assert how is not None
    found = {
        "cpu": t.cpu, "kept": how.kept, "possible": how.possible,
        "thresholds": how.thresholds, "differences": how.differences, "largest": how.largest,
        "memory": memory(), "status": answer.status.value, **settings,
        "rounds": how.rounds, "rounds_asked": settings.get("rounds", 2),
    }  # fmt: skip
    return answer.probabilities, found


def full(program: Rules, sweeps: tuple[int, ...] = (1, 2, 3)) -> tuple[np.ndarray, dict[str, Any]]:
    """Belief propagation over all groundings, converged and stopped early."""
    assert program.store.n_atoms  # its tables are read
    with Stopwatch() as t:
        graph = program.model.graph
    ground = t.cpu
    with Stopwatch() as t:
        m = BeliefPropagation(tol=1e-5)(graph)
    ref = m.probs.reshape(-1, 2)[:, 1]
    out: dict[str, Any] = {
        "ground": ground, "bp": t.cpu, "cpu": ground + t.cpu, "sweeps": m.iterations,
        "factors": graph.n_factors, "groundings": sum(program.ground().bindings),
        "status": m.status.value, "stopped": [], "memory": memory(),
    }  # fmt: skip
    for k in sweeps:
        with Stopwatch() as t:
            early = BeliefPropagation(tol=1e-5, max_iters=k)(graph)
        p = early.probs.reshape(-1, 2)[:, 1]
        out["stopped"].append({"sweeps": k, "cpu": ground + t.cpu, **errors(p, ref)})
    return ref, out


def compared(program: Rules, runs: list[dict[str, Any]]) -> dict[str, Any]:
    lazily(program, threshold=1e-1)  # kernels are loaded
    found = [lazily(program, **settings) for settings in runs]
    ref, base = full(program)
    seed = 1 / (1 + np.exp(-program.store.fields()))
    for p, row in found:
        row |= errors(p, ref) | {"speed-up": base["cpu"] / row["cpu"]}
    return {"full": base, "lazy": [row for _, row in found], "priors": errors(seed, ref)}


def two_thresholds(program: Rules, thresholds: list[float], **settings: Any) -> dict[str, Any]:
    """Answers of their own at each threshold, and how far neighbours agree."""
    rows: list[dict[str, Any]] = []
    before = None
    for gamma in thresholds:
        p, row = lazily(program, threshold=gamma, **settings)
        if before is not None:
            likely = (p > 0.5) | (before > 0.5)
            row["from the one before"] = errors(p, before) | {
                "likely": float(np.abs(p - before)[likely].mean()), "n likely": int(likely.sum())
            }  # fmt: skip
        before = p
        rows.append(row)
        sys.stderr.write(json.dumps(row) + "\n")  # a run may be stopped
    return {"lazy": rows, "atoms": program.store.n_atoms}


def parts_of(graph: FactorGraph) -> np.ndarray:
    """A number for the connected part that each variable is in."""
    part = np.arange(graph.n_variables)
    while True:
        before = part.copy()
        for g in graph.groups:
            least = part[g.scope].min(axis=1)
            for a in range(g.scope.shape[1]):
                np.minimum.at(part, g.scope[:, a], least)
        if (part == before).all():
            return part


def exactly(graph: FactorGraph) -> tuple[np.ndarray, np.ndarray]:
    """Atoms in parts that factors join and that are small, and their exact probabilities."""
    part = parts_of(graph)
    size = np.bincount(part, minlength=len(part))[part]
    small = (size > 1) & (size <= SMALL)
    keep = np.zeros(graph.n_factors, dtype=bool)
    for g in graph.groups:
        keep[g.ids] = small[g.scope[:, 0]]
    return small, Exact()(graph.keep(keep)).probs.reshape(-1, 2)[:, 1]


def from_other_starts(graph: FactorGraph, atoms: np.ndarray) -> dict[str, Any]:
    """Atoms that belief propagation gets wrong: whether some of ten other starts helps."""
    rng = np.random.default_rng(0)
    here, found = np.isin(parts_of(graph), parts_of(graph)[atoms]), []
    for _ in range(10):
        pull = np.zeros((graph.n_variables, 2))
        pull[here, 1] = rng.normal(0, 6, int(here.sum()))
        start = BeliefPropagation()(graph.tilt(pull.ravel()))
        found.append(BeliefPropagation()(graph, start=start).probs.reshape(-1, 2)[atoms, 1])
    spread = np.ptp(found, axis=0)
    return {"atoms": int(atoms.sum()), "moved": int((spread > 0.01).sum())}


def case(name: str, data: Path) -> dict[str, Any]:
    """One case, as data; a reason where it is skipped."""
    needs = {"cora-fold": "cora", "cora": "cora", "class": "tuffy"}.get(name)
    if needs and not (data / needs).exists():
        return {"skipped": f"{needs} is not in {data}"}
    if name == "grounding":
        program = people(200)
        assert program.store.n_atoms  # its tables are read
        with Stopwatch() as t:
            grounding = program.ground()
        n = sum(grounding.bindings)
        return {"clauses": n, "cpu": t.cpu, "a second": n / t.cpu}
    if name == "linear":
        smokers(*smokers_data(1000)).infer()
        given = smokers_data()
        with Stopwatch() as all_of_it:
            program = smokers(*given)
            with Stopwatch() as t:
                program.ground()
            with Stopwatch() as b:
                graph = program.model.graph
            with Stopwatch() as s:
                answer = BeliefPropagation()(graph)
        ref = BeliefPropagation(tol=1e-8)(graph).probs
        tols = []
        for tol in (1e-3, 1e-4, 1e-5):
            with Stopwatch() as c:
                m = BeliefPropagation(tol=tol)(graph)
            tols.append({"tol": tol, "cpu": c.cpu, "sweeps": m.iterations, **errors(m.probs, ref)})
        p, row = lazily(program, threshold=1e-4)
        row |= errors(p, ref.reshape(-1, 2)[:, 1])
        return {
            "cpu": all_of_it.cpu, "tables and join": t.cpu, "graph": b.cpu, "bp": s.cpu,
            "sweeps": answer.iterations, "groundings": sum(program.ground().bindings), "tol": tols,
            "lazy": [row],
        }  # fmt: skip
    if name == "class":
        root = data / "tuffy" / "class"
        smokers(*smokers_data(1000)).infer()
        with Stopwatch() as t:
            program = Rules.read(
                root / "prog.mln.gz", [root / "evidence.db.gz"], root / "query.db.gz"
            )
            answer = program.infer(grounding="full")
        with Stopwatch() as g:
            long = Gibbs(n_sweeps=4000)(program.model.graph)
        p = long.probs.reshape(-1, 2)[:, 1]
        graph = program.model.graph
        small, exact = exactly(graph)
        starts = from_other_starts(graph, small & (np.abs(answer.probabilities - exact) > 0.5))
        return {
            "exact": {
                "atoms": int(small.sum()), "all": len(small), "starts": starts,
                "bp": errors(answer.probabilities[small], exact[small]),
                "gibbs": errors(p[small], exact[small]),
            },
            "cpu": t.cpu, "groundings": answer.possible, "factors": answer.factors,
            "status": answer.status.value, "gibbs sweeps": 4000, "gibbs cpu": g.cpu,
            **errors(answer.probabilities, p),
        }  # fmt: skip
    if name == "cora-fold":
        runs: list[dict[str, Any]] = [
            {"threshold": 1e-3, "rounds": 1, "sums": 0},
            {"threshold": 1e-4, "rounds": 1, "sums": 0},
            {"threshold": 1e-4, "rounds": 2, "sums": 0},
            {"threshold": 1e-5, "rounds": 1, "sums": 0},
            {"threshold": 1e-3, "rounds": 1, "sums": 1},
            {"threshold": 1e-4, "rounds": 1, "sums": 1},
            {"threshold": 1e-4, "rounds": 2, "sums": 1},
            {"tolerance": 1e-3},
        ]
        return compared(cora_rules(data / "cora", [1]), runs)
    if name == "cora":
        whole = cora_rules(data / "cora", [1, 2, 3, 4, 5])
        return two_thresholds(whole, [1e-2, 1e-3, 1e-4], sums=1)
    if name == "people":
        runs = [{"threshold": x} for x in (1e-2, 1e-3, 1e-4)]
        return {
            "80": compared(people(80), runs),
            "150": compared(people(150), runs),
            "200": compared(people(200), runs),
        }
    if name == "people-300":
        return {"300": compared(people(300), [{"threshold": x} for x in (1e-1, 1e-2, 1e-3)])}
    if name == "people-600":
        return {"600": two_thresholds(people(600), [1e-2, 1e-3, 1e-4])}
    assert name == "people-large"
    return two_thresholds(people(2000), [1e-2, 1e-1], sums=4)  # one sum overshoots


LARGE = (
    "Of all pairs 0.2 % are of one person, so a small mean difference says little about them: "
    "where either answer is above .5 ({n:,} pairs) the two differ by {likely:.2f} on average. At "
    "threshold 0.1 and this size the answer has not settled yet. A pair of thresholds one step "
    "lower does not fit into 2 GB: at 600 records the step from 0.01 to 0.001 makes seven times as "
    "many factors, here 14 million. Memory is that of the process, database and program included."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--data", type=Path, default=Path("data/relational"))
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--one", action="store_true", help="in this process, JSON to stdout")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(case(given.cases[0], given.data)))
        return
    results = Results(given.json)
    for name in given.cases or ([] if given.page else CASES):
        command = [sys.executable, __file__, name, "--one", "--data", str(given.data)]
        ran = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
        if ran.returncode:
            sys.stderr.write(f"{name}: {ran.stderr[-2000:]}\n")
            continue
        found = json.loads(ran.stdout.splitlines()[-1])
        print(name, json.dumps(found, indent=1))
        if "skipped" not in found or name not in results.found:
            results.keep(name, found)
    if given.page:
        made = {
            name: section(name, found) for name, found in results.parts.items() if name in CASES
        }
        write_sections(PAGE, {name: "\n".join(lines) for name, lines in made.items()})


# ---------------------------------------------------------------------- the page


def section(name: str, found: dict[str, Any]) -> list[str]:
    """A section of docs/reference/rules-measured.md."""
    if "skipped" in found:
        return [f"Skipped: {found['skipped']}."]
    if name == "grounding":
        return [
            f"{found['clauses']:,} clauses of transitivity over 200 records in {found['cpu']:.2f} "
            f"s: {found['a second'] / 1e6:.1f} million a second.", "",
        ]  # fmt: skip
    if name == "linear":
        rows = [
            f"{found['groundings']:,} groundings, from tables to marginals {found['cpu']:.2f} s: "
            f"tables and joins {found['tables and join']:.2f}, graph {found['graph']:.2f}, belief "
            f"propagation {found['bp']:.2f} ({found['sweeps']} sweeps). Clauses of two literals "
            "go to the engine for pairs, both orders as one pair. Lazy grounding has nothing to "
            "leave out:", "",
        ]  # fmt: skip
        tols = [
            [f"{r['tol']:g}", str(r["sweeps"]), f"{r['cpu']:.2f}", f"{r['mean']:.1e}",
             f"{r['max']:.1e}"] for r in found["tol"]
        ]  # fmt: skip
        head = ["tol", "sweeps", "BP s", "mean error", "largest"]
        return [*rows, *lazy_table(found["lazy"]), table(head, tols), ""]
    if name == "class":
        out = [
            f"{found['groundings']:,.0f} groundings, {found['factors']:,} factors: "
            f"{found['cpu']:.2f} s from files to marginals ({found['status']}). From "
            f"{found['gibbs sweeps']:,} sweeps of Gibbs sampling ({found['gibbs cpu']:.0f} s) they "
            f"differ by {found['mean']:.4f} on average, {found['max']:.3f} at most.", "",
        ]  # fmt: skip
        if "exact" not in found:
            return out + ([found["note"], ""] if "note" in found else [])
        exact = found["exact"]
        starts = exact["starts"]
        return [
            *out,
            f"{exact['atoms']:,} of {exact['all']:,} atoms are in connected parts of 2 to {SMALL}, "
            "which are solved exactly. There belief propagation is off by "
            f"{exact['bp']['mean']:.4f} on average, {exact['bp']['max']:.3f} at most, Gibbs "
            f"sampling by {exact['gibbs']['mean']:.4f} and {exact['gibbs']['max']:.3f}: the largest"
            " differences are errors of belief propagation, where papers refer to each other and "
            f"their ten categories exclude each other. Of the {starts['atoms']} atoms that are off "
            f"by more than .5, ten other starts move {starts['moved']}.", "",
        ]  # fmt: skip
    if name in ("people", "people-300", "people-600"):
        out = []
        for n, some in found.items():
            out += [f"{n} records:", ""]
            out += full_table(some) if "full" in some else lazy_table(some["lazy"])
        return out
    if "full" in found:
        return full_table(found)
    note = [found["note"], ""] if "note" in found else []
    if name == "people-large":
        last = found["lazy"][-1]["from the one before"]
        note = [LARGE.format(n=last["n likely"], likely=last["likely"]), ""]
    one = ["One threshold alone says nothing of the error.", ""] if len(found["lazy"]) == 1 else []
    return lazy_table(found["lazy"]) + one + note


def full_table(found: dict[str, Any]) -> list[str]:
    base = found["full"]
    rows = [
        f"All {base['groundings']:,} groundings: {base['cpu']:.1f} s (grounding "
        f"{base['ground']:.1f}, {base['sweeps']} sweeps {base['bp']:.1f}), {base['memory']:.2f} "
        f"GB, {base['status']}. Priors alone are off by {found['priors']['mean']:.2g} on average, "
        f"{found['priors']['max']:.2f} at most.", "",
    ]  # fmt: skip
    rows += lazy_table(found["lazy"], base["cpu"])
    stopped = [
        [str(r["sweeps"]), f"{r['cpu']:.1f}", f"{r['mean']:.1e}", f"{r['max']:.4f}"]
        for r in base["stopped"]
    ]
    head = ["sweeps", "CPU s", "mean error", "largest"]
    return [*rows, "Full, stopped early:", "", table(head, stopped), ""]


def lazy_table(found: list[dict[str, Any]], base: float | None = None) -> list[str]:
    head = ["threshold", "rounds", "sums", "factors", "CPU s", "GB"]
    head += ["speed-up"] * (base is not None) + ["mean error", "largest"]
    rows = []
    for r in found:
        asked = f"{r['threshold']:g}" if "threshold" in r else f"tolerance {r['tolerance']:g}"
        row = [asked, str(r.get("rounds_asked", 2)), str(r.get("sums", 1)), f"{r['kept']:,}"]
        row += [f"{r['cpu']:.2f}", f"{r['memory']:.2f}"]
        row += [] if base is None else [f"{base / r['cpu']:.1f}x"]
        off = ["", ""]
        if "mean" in r:
            off = [f"{r['mean']:.1e}", f"{r['max']:.4f}"]
        elif "from the one before" in r:
            other = r["from the one before"]
            off = [f"{other['mean']:.1e} from the line above", f"{other['max']:.3f}"]
            if "likely" in other:
                off[0] += f" ({other['likely']:.2g} where either is above .5)"
        rows.append(row + off)
    return [table(head, rows), ""]


if __name__ == "__main__":
    main()
