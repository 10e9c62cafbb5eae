"""Every bound against enumeration: ``python benchmarks/bounds.py --cases 100000 --rng 0``.

A case is a drawn model of 2 to 5 variables (2 or 3 states, tables over up to 3 variables; features
in half of the cases; zeros, evidence, corrections left behind in some), of which some factors are
dropped. Everything the library claims about the rest is compared with sums over all assignments.
Prints one Markdown table; exit code 1 if a claim does not hold (tolerance 1e-9, relative to
the larger of 1 and |log Z|).
"""

from __future__ import annotations

import argparse
import itertools
import sys
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minfer import FactorGraph
from minfer.reduction import bound as b
from minfer_experiments import pages
from minfer_experiments.measure import Stopwatch

ROWS = {
    "features": "Proposition 2 (`feature_bound`)",
    "loose": "without C (Riedel & Smith 2010)",
    "quantile": "tables (`quantile_bound`)",
    "certificate": "`certificate`",
    "enveloped": "`certificate`, joints too expensive",
    "pinsker": "every marginal, by Pinsker's inequality",
    "log_z": "log Z between its bounds",
}
TOLERANCE = 1e-9


class Case(NamedTuple):
    """F as H and dropped log-tables (of H's corrections where there are some)."""

    states: tuple[int, ...]
    part: FactorGraph
    scopes: list[tuple[int, ...]]
    tables: list[np.ndarray]  # flat
    truths: list[np.ndarray] | None  # flat, where all dropped factors are features
    log_h: np.ndarray  # (N,) score of every assignment under H


@cache
def assignments(states: tuple[int, ...]) -> np.ndarray:
    """All assignments, (N, V)."""
    return np.array(list(itertools.product(*map(range, states))), dtype=np.int64)


@cache
def cells(states: tuple[int, ...], scope: tuple[int, ...]) -> np.ndarray:
    """The cell of a table over this scope in every assignment, (N,)."""
    cell = np.zeros(len(assignments(states)), dtype=np.int64)
    for v in scope:
        cell = cell * states[v] + assignments(states)[:, v]
    return cell


def draw(rng: np.random.Generator) -> Case | None:
    """A case, or None if H has no assignment left."""
    n = int(rng.integers(2, 6))
    features = rng.random() < 0.5
    states = (2,) * n if features else tuple(rng.integers(2, 4, size=n).tolist())
    scale = float(rng.choice([0.3, 1.0, 4.0]))
    zeros = rng.random() < 0.15
    log_h = np.zeros(len(assignments(states)))
    kept: list[tuple[tuple[int, ...], np.ndarray]] = []
    scopes, tables, truths = [], [], []
    for _ in range(int(rng.integers(1, 8))):
        scope = tuple(rng.permutation(n)[: rng.integers(1, min(n, 3) + 1)].tolist())
        size = int(np.prod([states[v] for v in scope]))
        truth = rng.random(size) < 0.5
        table = scale * (rng.normal() * truth if features else rng.normal(size=size))
        if zeros and not features and rng.random() < 0.4:
            table = np.where(rng.random(size) < 0.3, -np.inf, table)
        if rng.random() < 0.4:
            kept.append((scope, table))
        else:
            scopes.append(scope)
            tables.append(table)
            truths.append(truth)
    kept += [((v,), scale * rng.normal(size=states[v])) for v in range(n)]
    part = FactorGraph.from_tables(np.array(states), [s for s, _ in kept], [t for _, t in kept])
    for scope, table in kept:
        log_h += table[cells(states, scope)]
    plain = True
    if rng.random() < 0.2:  # each dropped factor leaves a correction with one of its variables
        delta = np.zeros(sum(states))
        for k, scope in enumerate(scopes):
            v = scope[0]
            left = 0.5 * scale * rng.normal(size=states[v])
            delta[sum(states[:v]) :][: states[v]] += left
            log_h += left[assignments(states)[:, v]]
            tables[k] = (tables[k].reshape(states[v], -1) - left[:, None]).ravel()
        part, plain = part.tilt(delta), False
    if rng.random() < 0.15:
        v = int(rng.integers(n))
        s = int(rng.integers(states[v]))
        part = part.with_evidence({v: s})
        log_h = np.where(assignments(states)[:, v] == s, log_h, -np.inf)
    if log_h.max() == -np.inf:
        return None
    return Case(states, part, scopes, tables, truths if features and plain else None, log_h)


def batches(case: Case) -> list[b.Dropped]:
    """The dropped factors by shape."""
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for i, scope in enumerate(case.scopes):
        by_shape.setdefault(tuple(case.states[v] for v in scope), []).append(i)
    return [
        b.Dropped(
            np.array([case.scopes[i] for i in rows], dtype=np.int32),
            np.array([case.tables[i] for i in rows]),
            shape,
        )
        for shape, rows in by_shape.items()
    ]


def normalised(score: np.ndarray) -> tuple[np.ndarray, float]:
    top = score.max()
    if top == -np.inf:
        return np.zeros(len(score)), -np.inf
    weights = np.exp(score - top)
    return weights / weights.sum(), float(top + np.log(weights.sum()))


def marginals(states: tuple[int, ...], p: np.ndarray) -> np.ndarray:
    x = assignments(states)
    return np.concatenate([np.bincount(x[:, v], p, minlength=s) for v, s in enumerate(states)])


def measure(cases: int, seed: int) -> dict[str, Any]:
    """Draw cases and check all claims: per row of the table cases, violations, median ratio."""
    rng = np.random.default_rng(seed)
    ratios: dict[str, list[float]] = {name: [] for name in ROWS}
    counts = dict.fromkeys(ROWS, 0)
    violations = dict.fromkeys(ROWS, 0)

    def claim(name: str, bound: float, truth: float, slack: float) -> None:
        counts[name] += 1
        violations[name] += not truth <= bound + slack
        if 1e-6 < truth < np.inf:
            ratios[name].append(bound / truth)

    spent = Stopwatch()
    done = 0
    while done < cases:
        case = draw(rng)
        if case is None:
            continue
        done += 1
        states = case.states
        here = [cells(states, scope) for scope in case.scopes]
        log_r = sum((t[c] for t, c in zip(case.tables, here)), np.zeros(len(case.log_h)))
        p_h, log_z_h = normalised(case.log_h)
        p_f, log_z_f = normalised(case.log_h + log_r)
        alive = p_h > 0
        with np.errstate(divide="ignore"):
            log_ratio = np.log(p_h[alive]) - np.log(p_f[alive])
        exact = float(p_h[alive] @ log_ratio)
        slack = TOLERANCE * max(1.0, abs(log_z_h), abs(log_z_f) if log_z_f > -np.inf else 1.0)
        if case.truths is not None:
            mu = np.array([p_h @ t[c] for t, c in zip(case.truths, here)])
            theta = np.array(
                [t.sum() / max(on.sum(), 1) for t, on in zip(case.tables, case.truths)]
            )
            claim("features", b.feature_bound(mu, theta), exact, slack)
            claim("loose", b.feature_bound(mu, theta, loose=True), exact, slack)
        joints = [np.bincount(c, p_h, minlength=len(t)) for t, c in zip(case.tables, here)]
        claim("quantile", b.quantile_bound(joints, case.tables), exact, slack)
        dropped = batches(case)
        whole = b.certificate(case.part, dropped)
        found = [("certificate", whole)]
        if done % 4 == 0 and case.part.n_factors > len(states) + 1:
            found.append(("enveloped", b.certificate(case.part, dropped, whole.cells - 1)))
        for name, c in found:
            if c.bound is None or (name == "enveloped" and not c.n_enveloped):
                continue
            claim(name, c.bound, exact, slack)
            claim("loose", c.loose, max(exact, c.bound), slack)
            counts["log_z"] += 1
            violations["log_z"] += not c.log_z_lower - slack <= log_z_f <= c.log_z_upper + slack
            if exact < np.inf:
                error = np.abs(marginals(states, p_h) - marginals(states, p_f))
                widths = np.repeat(np.minimum(np.sqrt(c.by_variable / 2), 1.0), states)
                counts["pinsker"] += 1
                violations["pinsker"] += not (error <= widths + 1e-9).all()
                if error.max() > 1e-6:
                    ratios["pinsker"].append(widths.max() / error.max())
    rows = {
        name: {
            "cases": counts[name],
            "violations": violations[name],
            "ratio": float(np.median(ratios[name])) if ratios[name] else None,
        }
        for name in ROWS
    }
    return {"cases": cases, "rng": seed, "seconds": spent.cpu, "rows": rows}


def table(report: dict[str, Any]) -> str:
    body = []
    for name, row in report["rows"].items():
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        body.append([ROWS[name], f"{row['cases']:,}", f"{row['violations']}", ratio])
    return pages.table(["claim", "cases", "violations", "median bound / truth"], body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--rng", type=int, default=0)
    options = parser.parse_args()
    report = measure(options.cases, options.rng)
    print(table(report))
    print(f"\n{report['cases']:,} models, {report['seconds']:.0f} s of CPU time", file=sys.stderr)
    sys.exit(any(row["violations"] for row in report["rows"].values()))


if __name__ == "__main__":
    main()
