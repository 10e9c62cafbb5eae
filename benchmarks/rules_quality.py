"""How good the answers of rules are: entity resolution on Cora and advisers in UW-CSE, five folds.

    python benchmarks/rules_quality.py DATA [--rows ROWS] [-o docs/reference/rules-measured.md]
        [--folds 1 2] [--only cora] [--objectives pseudolikelihood marginals lazy grid]

DATA has the folders ``cora`` and ``uwcse``, each with ``fold1`` to ``fold5`` and in them
``test/test_facts.txt.gz``, ``test_pos.txt.gz`` and ``test_neg.txt.gz`` (the folds of srlearn). For
each fold the others are the training data: priors, weights of rules and the threshold of F1 come
from these alone. Candidates are the pairs that are labelled, the canopies of the data sets.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minfer import BeliefPropagation, Rules
from minfer.rules import learn
from minfer_experiments.measure import Stopwatch
from minfer_experiments.pages import table, write_section

Facts = dict[str, list[tuple[str, ...]]]


def read(path: Path) -> Facts:
    out: Facts = defaultdict(list)
    with gzip.open(path, "rt") as file:
        for line in file:
            found = re.match(r"(\w+)\((.*)\)\.", line.strip())
            if found:
                out[found[1]].append(tuple(x.strip() for x in found[2].split(",")))
    return out


def fold(data: Path, name: str, k: int) -> tuple[Facts, Facts, Facts]:
    where = data / name / f"fold{k}" / "test"
    facts, yes, no = (read(where / f"test_{x}.txt.gz") for x in ("facts", "pos", "neg"))
    return facts, yes, no


# ---------------------------------------------------------------------- scores


def auc(p: np.ndarray, y: np.ndarray) -> float:
    """Area under the ROC curve, ties counted half."""
    _, rank, n = np.unique(p, return_inverse=True, return_counts=True)
    place = (np.cumsum(n) - 0.5 * (n - 1))[rank]
    positive = y.sum()
    return float(
        (place[y == 1].sum() - positive * (positive + 1) / 2) / (positive * (len(y) - positive))
    )


def average_precision(p: np.ndarray, y: np.ndarray) -> float:
    """Area under the curve of precision and recall."""
    order = np.argsort(-p, kind="stable")
    hits = np.cumsum(y[order])
    return float((hits / np.arange(1, len(y) + 1))[y[order] == 1].mean())


def cll(p: np.ndarray, y: np.ndarray) -> float:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return float(np.where(y == 1, np.log(p), np.log1p(-p)).mean())


def ece(p: np.ndarray, y: np.ndarray, bins: int = 10) -> float:
    which = np.minimum((p * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(which, p - y, bins)).sum() / len(y))


def f1(p: np.ndarray, y: np.ndarray, threshold: float) -> float:
    chosen = p > threshold
    return float(2 * (chosen & (y == 1)).sum() / max(chosen.sum() + y.sum(), 1))


def best_threshold(parts: list[tuple[np.ndarray, np.ndarray]]) -> float:
    p, y = (np.concatenate(x) for x in zip(*parts))
    return max(np.quantile(p, np.linspace(0, 1, 400)), key=lambda t: f1(p, y, t))


def scores(test: tuple[np.ndarray, np.ndarray], train: list[Any]) -> dict[str, float]:
    p, y = test
    return {
        "F1": f1(p, y, best_threshold(train)), "AUC": auc(p, y), "PR": average_precision(p, y),
        "CLL": cll(p, y), "ECE": ece(p, y),
    }  # fmt: skip


def logistic(x: np.ndarray, y: np.ndarray, l2: float = 1e-2) -> np.ndarray:
    w = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        h = (x * (p * (1 - p))[:, None]).T @ x + l2 * np.eye(len(w))
        w -= np.linalg.solve(h, x.T @ (p - y) + l2 * w)
    return w


# ---------------------------------------------------------------------- Cora


class Cora:
    """A fold: pairs of citations that are labelled, and how alike their fields are."""

    def __init__(self, data: Path, k: int) -> None:
        facts, yes, no = fold(data, "cora", k)
        self.title = dict(facts["title"])
        alike = [self.likeness(facts, f) for f in ("title", "author", "venue")]
        label = {}
        for y, given in ((1, yes), (0, no)):
            for a, b in given["samebib"]:
                if a != b:
                    label[min(a, b), max(a, b)] = y
        self.pairs, self.y = sorted(label), np.array([label[p] for p in sorted(label)])
        x = np.array([[s(a, b) for s in alike] for a, b in self.pairs])
        self.x = np.c_[x, x[:, :1] * x[:, 1:], x == 1, np.ones(len(x))]

    @staticmethod
    def likeness(facts: Facts, name: str) -> Any:
        of, words = dict(facts[name]), defaultdict(set)
        for value, word in facts[f"hasword{name}"]:
            words[value].add(word)

        def jaccard(a: str, b: str) -> float:
            u, v = of.get(a), of.get(b)
            if u == v:
                return 1.0
            either = words[u] | words[v]
            return len(words[u] & words[v]) / len(either) if either else 0.0

        return jaccard

    def program(self, prior: np.ndarray) -> Rules:
        a, b = zip(*self.pairs)
        table = {"a": a, "b": b, "prior": self.x @ prior}
        return (
            Rules(max_groundings=5e7)
            .open("same", table, types=("bib", "bib"), symmetric=True, log_odds="prior")
            .rule("same(x, y) ^ same(y, z) ^ x < z => same(x, z)")
            .rule("same(x, y)")
        )

    def labels(self) -> dict[str, Any]:
        true = [p for p, y in zip(self.pairs, self.y) if y]
        return {"same": {"a": [a for a, _ in true], "b": [b for _, b in true]}}

    def answer(self, program: Rules) -> tuple[np.ndarray, np.ndarray, bool]:
        found = program.infer(solver=SOLVER)
        table = found["same"]
        p = dict(zip(zip(table["a"], table["b"]), table["probability"]))
        return np.array([p[pair] for pair in self.pairs]), self.y, found.converged


LAZY_THRESHOLD = 1e-3
GRID = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1)
SOLVER = BeliefPropagation(damping=0.3, max_iters=300, tol=1e-4)


def cora(
    data: Path, folds: list[int], every: list[int], objectives: list[str], out: Any
) -> list[dict[str, Any]]:
    loaded = {k: Cora(data, k) for k in every}
    rows = []
    for k in folds:
        spent = Stopwatch()
        train = [loaded[j] for j in every if j != k]
        prior = logistic(np.concatenate([t.x for t in train]), np.concatenate([t.y for t in train]))
        rows.append({"fold": k, "what": "priors alone", "weights": "", **scores(
            (odds(loaded[k].x @ prior), loaded[k].y), [(odds(t.x @ prior), t.y) for t in train]
        )})  # fmt: skip
        programs = [t.program(prior) for t in train]
        labels = [t.labels() for t in train]
        for objective in objectives:
            used = 2
            if objective == "grid":  # transitivity alone, by the CLL of the training folds
                learned, used = by_grid(train, programs), len(train)
            elif objective == "marginals":  # on two of the training folds, for time
                more: dict[str, Any] = {"solver": SOLVER, "max_iters": 8, "tol": 1e-3}
                learned = learn(programs[:2], labels[:2], objective, **more)
            elif objective == "lazy":  # likewise; a tenth, as all of it merges too much
                learned = by_lazy_marginals(programs, labels, 2, 0.1)
            else:
                learned = learn(programs, labels, objective)
            weights = learned if isinstance(learned, dict) else learned.weights
            here = [
                t.answer(p.with_weights(weights)) for t, p in zip(train[-used:], programs[-used:])
            ]
            p, y, converged = loaded[k].answer(loaded[k].program(prior).with_weights(weights))
            listed = " ".join(f"{w:.2f}" for w in weights.values())
            rows.append({"fold": k, "what": _called(objective), "weights": listed,
                         "converged": converged,
                         **scores((p, y), [t[:2] for t in here])})  # fmt: skip
        for row in rows:
            if row["fold"] == k:
                print(row, file=out, flush=True)
        print(f"fold {k}: {spent.cpu:.0f} s", file=out, flush=True)
    return rows


def by_grid(train: list[Cora], programs: list[Rules]) -> dict[str, float]:
    """The weight of transitivity with the best CLL of the marginals on training data."""
    rule, bias = (str(r.formula) for r in programs[0].rules)
    found = {}
    for w in GRID:
        answers = [t.answer(p.with_weights({rule: w, bias: 0.0})) for t, p in zip(train, programs)]
        found[w] = sum(cll(p, y) for p, y, _ in answers)
    return {rule: max(found, key=found.__getitem__), bias: 0.0}


def by_lazy_marginals(
    programs: list[Rules], labels: list[dict[str, Any]], used: int, share: float = 1.0
) -> Any:
    """Weights by the loss of the marginals on lazily grounded graphs of the first training folds.

    Groundings are chosen by the weights of pseudolikelihood; learning begins with a share of them.
    """
    begin = learn(programs, labels)
    low = {
        name: {k: share * x for k, x in w.items()} if isinstance(w, dict) else share * w
        for name, w in begin.weights.items()
    }
    start = replace(begin, program=begin.program.with_weights(low))
    return learn(programs[:used], labels[:used], "marginals", start=start, threshold=LAZY_THRESHOLD,
                 solver=SOLVER, max_iters=8, tol=1e-3)  # fmt: skip


def _called(objective: str) -> str:
    lazily = "marginals, lazily grounded"
    return f"rules, {lazily if objective == 'lazy' else objective}"


def odds(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(z, -30, 30)))


# ---------------------------------------------------------------------- UW-CSE

ALONE = [
    "advised(s, p)",
    "professor(s) ^ advised(s, p)",
    "student(p) ^ advised(s, p)",
    "student(s) ^ professor(p) ^ advised(s, p)",
    "phase(s, +f) ^ advised(s, p)",
    "position(p, +q) ^ advised(s, p)",
    "paper(t, s) ^ paper(t, p) ^ s != p ^ advised(s, p)",
    "ta(c, s, q) ^ taught(c, p, q) ^ advised(s, p)",
    "temporary(s, x) ^ advised(s, p)",
]
TOGETHER = [
    "advised(s, p) ^ advised(s, q) ^ p < q",
    "phase(s, Post_Generals) => EXIST p advised(s, p)",
    "phase(s, Post_Quals) => EXIST p advised(s, p)",
    "position(p, Faculty) => EXIST s advised(s, p)",
    "paper(t, s) ^ paper(t, r) ^ s < r ^ student(s) ^ student(r) ^ advised(s, p) => advised(r, p)",
]
NAMES = {
    "professor": "professor", "student": "student", "phase": "inphase", "position": "hasposition",
    "paper": "publication", "ta": "ta", "taught": "taughtby", "temporary": "tempadvisedby",
}  # fmt: skip
TYPES = {
    "professor": ("person",), "student": ("person",), "phase": ("person", "phase"),
    "position": ("person", "position"), "paper": ("title", "person"),
    "ta": ("course", "person", "quarter"), "taught": ("course", "person", "quarter"),
    "temporary": ("person", "person"),
}  # fmt: skip


class Department:
    def __init__(self, data: Path, k: int) -> None:
        self.facts, yes, no = fold(data, "uwcse", k)
        pairs = sorted({(p, 1) for p in yes["advisedby"]} | {(p, 0) for p in no["advisedby"]})
        self.pairs, self.y = [p for p, _ in pairs], np.array([y for _, y in pairs])

    def program(self, rules: list[str]) -> Rules:
        out = Rules(unbound="domain")
        for name, theirs in NAMES.items():
            rows = [tuple(x.capitalize() for x in r) for r in self.facts[theirs]]
            width = len(TYPES[name])
            # constants that rules name are there in every department
            if name == "phase":
                rows += [("Nobody", "Post_generals"), ("Nobody", "Post_quals")]
            if name == "position":
                rows += [("Nobody", "Faculty")]
            columns = {f"c{k}": [r[k] for r in rows] for k in range(width)}
            out.closed(name, columns, types=TYPES[name])
        pairs = [tuple(x.capitalize() for x in p) for p in self.pairs]
        out.open("advised", pairs, types=("person", "person"))
        for text in rules:
            out.rule(
                text.replace("Post_Generals", "Post_generals").replace("Post_Quals", "Post_quals")
            )
        return out

    def labels(self) -> dict[str, Any]:
        true = [tuple(x.capitalize() for x in p) for p, y in zip(self.pairs, self.y) if y]
        return {"advised": true}

    def answer(self, program: Rules) -> tuple[np.ndarray, np.ndarray, bool]:
        found = program.infer(solver=SOLVER)
        table = found["advised"]
        p = dict(zip(zip(table["c0"], table["c1"]), table["probability"]))
        listed = [p[tuple(x.capitalize() for x in pair)] for pair in self.pairs]
        return np.array(listed), self.y, found.converged


def uwcse(
    data: Path, folds: list[int], every: list[int], objectives: list[str], out: Any
) -> list[dict[str, Any]]:
    loaded = {k: Department(data, k) for k in every}
    rows = []
    for k in folds:
        train = [loaded[j] for j in every if j != k]
        labels = [t.labels() for t in train]
        for name, rules, objective in (
            ("each pair alone", ALONE, "pseudolikelihood"),
            *((_called(x), ALONE + TOGETHER, x) for x in objectives),
        ):
            programs = [t.program(rules) for t in train]
            more = {} if objective != "marginals" else {
                "solver": SOLVER, "max_iters": 15, "tol": 1e-4
            }  # fmt: skip
            if objective == "lazy":
                learned = by_lazy_marginals(programs, labels, len(programs))
            else:
                learned = learn(programs, labels, objective, **more)
            here = [t.answer(p.with_weights(learned)) for t, p in zip(train, programs)]
            p, y, converged = loaded[k].answer(loaded[k].program(rules).with_weights(learned))
            listed = " ".join(f"{w:.2f}" for w in list(learned.weights.values())[len(ALONE) :])
            rows.append({"fold": k, "what": name, "weights": listed, "converged": converged,
                         **scores((p, y), [t[:2] for t in here])})  # fmt: skip
            print(rows[-1], file=out, flush=True)
    return rows


# ---------------------------------------------------------------------- the page

PAPERS = {
    "Cora": "For the literature on this data set see Singla and Domingos, *Entity resolution with "
    "Markov logic* (ICDM 2006). Candidates, features and rules are different here, so their "
    "numbers are not comparable.",
    "UW-CSE": "For the literature on this data set see Richardson and Domingos, *Markov logic "
    "networks* (Machine Learning 62, 2006). Their knowledge base is much larger than the fourteen "
    "rules here, and the evidence differs, so their numbers are not comparable.",
}


def section(name: str, rows: list[dict[str, Any]]) -> str:
    """A data set's part of the page."""
    head = ["", "test folds", "F1", "AUC (ROC)", "AUC (PR)", "CLL", "ECE", "CLL by fold"]
    lines = []
    kinds = sorted(dict.fromkeys(r["what"] for r in rows), key=lambda k: k.startswith("rules"))
    for kind in kinds:
        mine = sorted((r for r in rows if r["what"] == kind), key=lambda r: r["fold"])
        means = [np.mean([r[c] for r in mine]) for c in ("F1", "AUC", "PR", "CLL", "ECE")]
        folds = ", ".join(str(r["fold"]) for r in mine)
        each = ", ".join(f"{r['CLL']:.3f}" for r in mine)
        lines.append([kind, folds, *(f"{m:.3f}" for m in means), each])
    wild = sum(not r.get("converged", True) for r in rows)
    unsettled = [f"{wild} of {len(rows)} runs did not converge."] if wild else []
    return "\n\n".join([f"## {name}", table(head, lines), *unsettled, PAPERS[name]])


def main() -> None:
    parser = argparse.ArgumentParser(description="How good the answers of rules are")
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, help="a page with the markers of both data sets")
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--only", choices=["cora", "uwcse"])
    parser.add_argument("--objectives", nargs="*", default=["pseudolikelihood", "marginals"])
    parser.add_argument("--rows", type=Path, help="results are kept here, one line each")
    parser.add_argument("--page", action="store_true", help="write the page from --rows alone")
    args = parser.parse_args()
    kept = []
    if args.rows and args.rows.exists():
        kept = [json.loads(line) for line in args.rows.read_text().splitlines()]
    for name, key, run in (("UW-CSE", "uwcse", uwcse), ("Cora", "cora", cora)):
        if args.only not in (None, key):
            continue
        rows = []
        if not args.page:
            rows = run(args.data, args.folds, [1, 2, 3, 4, 5], args.objectives, sys.stderr)
            rows = [{"data": name, **row} for row in rows]
            kept = [r for r in kept if not any(_same(r, row) for row in rows)] + rows
            if args.rows:
                args.rows.write_text("".join(json.dumps(r) + "\n" for r in kept))
        text = section(name, [r for r in kept if r["data"] == name])
        print(text)
        if args.out:
            write_section(args.out, name, text)


def _same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return all(a[k] == b[k] for k in ("data", "fold", "what"))


if __name__ == "__main__":
    main()
