"""Mean errors of marginals where belief propagation is wrong, by model and method.

    python benchmarks/hard.py [--data DIR] [--seconds 1 10 60] [--models NAME ...]
                              [--methods NAME ...] [--grids 40 70 100] [--drawn 4]
                              [--reference 300] [--write FILE.json] [--most SECONDS]
    python benchmarks/hard.py --show FILE.json

The UAI 2014 models (DIR as in uai_bp.py) against their exact marginals; square grids with strong
mixed couplings, fields N(0, 1/4) and couplings "equal" N(0, 4), against a long run of tempering,
whose own standard error is given; and, with --drawn, so many models each of five kinds that no
constant was chosen on, against Exact. Exact inference is switched off above 2^16 cells for
what is measured. An error is the mean over all states of all variables, at least 1e-4 in the means
at the end. Seconds are wall clock, without compiling: run it on a core of its own.

With --write what FILE has is kept and not measured again, and each number is written as soon as it
is there; --most ends the run before the next model once so many seconds have passed. So a long
table can be made in pieces.

The last lines compare Auto(time_limit) with BP: the geometric mean of the ratio of their errors
where BP errs by more than .01, and the models where Auto is worse by more than .005.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minfer import (
    Auto,
    Clamped,
    ContradictionError,
    Exact,
    FactorGraph,
    JoinGraph,
    Marginals,
    MinferError,
    StructuredMeanField,
    Tempering,
    read_uai,
)
from minfer.io import read_mar
from uai_bp import DATA, beside

CELLS = 2**16
FLOOR = 1e-4
UNBOUNDED = 1 << 40  # sweeps


def methods(seconds: float) -> dict[str, Callable[[FactorGraph], Marginals]]:
    """What is run in so many seconds; the first is belief propagation, damped where it must be."""
    return {
        "bp": Auto(exact_cells=CELLS),
        "structured mean field": StructuredMeanField(time_limit=seconds),
        "join graph 2^8": JoinGraph(2**8, time_limit=seconds),
        "clamped": Clamped(time_limit=seconds),
        "tempering": Tempering(UNBOUNDED, 2000, time_limit=seconds),
        "auto": Auto(time_limit=seconds, exact_cells=CELLS),
    }


class Case(NamedTuple):
    """A model and what its marginals are, made when they are first asked for."""

    name: str
    kind: str
    graph: FactorGraph
    truth: Callable[[], tuple[np.ndarray, float]]  # with its mean standard error


def uai(data: Path) -> Iterator[Case]:
    for path in sorted(data.glob("uai/*/*.uai.gz")):
        graph = read_uai(path, evidence=beside(path, "evid"))

        def truth(path: Path = path) -> tuple[np.ndarray, float]:
            return np.concatenate(read_mar(beside(path, "MAR"))), 0.0

        yield Case(path.name.removesuffix(".uai.gz"), "uai", graph, truth)


def lattice(n: int, strength: float, field: float, rng: np.random.Generator) -> FactorGraph:
    where = np.arange(n * n).reshape(n, n)
    across = np.stack([where[:, :-1].ravel(), where[:, 1:].ravel()], axis=1)
    down = np.stack([where[:-1].ravel(), where[1:].ravel()], axis=1)
    edges = np.concatenate([across, down])
    weights = strength * rng.normal(size=len(edges))
    return FactorGraph.pairwise(field * rng.normal(size=n * n), edges, weights, "equal")


def grids(sizes: list[int], reference: float) -> Iterator[Case]:
    """Grids, a long run's marginals, and its mean standard error."""
    for n in sizes:
        graph = lattice(n, 2.0, 0.5, np.random.default_rng(n))

        def truth(graph: FactorGraph = graph) -> tuple[np.ndarray, float]:
            long = Tempering(UNBOUNDED, 10_000, n_replicas=32, rng=1, time_limit=reference)(graph)
            chains = long.state.chain_probs
            return long.probs, float((chains.std(axis=0, ddof=1) / math.sqrt(len(chains))).mean())

        yield Case(f"grid {n}x{n}", "grid", graph, truth)


def drawn_grid(rng: np.random.Generator) -> FactorGraph:
    return lattice(16, float(rng.uniform(1.0, 4.0)), float(rng.uniform(0.1, 1.0)), rng)


def drawn_csp(rng: np.random.Generator) -> FactorGraph:
    """Random pairs of four-state variables that may not take some states together."""
    n, states = 30, 4
    pairs = [sorted(rng.choice(n, 2, replace=False).tolist()) for _ in range(75)]
    tables = []
    for _ in pairs:
        table = np.zeros((states, states))
        off = rng.choice(states * states, 5, replace=False)
        table.ravel()[off] = -np.inf
        tables.append(table)
    return FactorGraph.from_tables([states] * n, pairs, tables)


def drawn_pedigree(rng: np.random.Generator) -> FactorGraph:
    """Genotypes of a family with several matings, at one place; some phenotypes seen."""
    n, founders = 60, 16
    prior = np.log(rng.dirichlet([2.0, 2.0, 2.0]))
    child = np.zeros((3, 3, 3))  # copies of the second allele, of two parents and their child
    for a, b in product(range(3), repeat=2):
        give = [(1 - g / 2, g / 2) for g in (a, b)]
        child[a, b] = [give[0][0] * give[1][0], give[0][0] * give[1][1] + give[0][1] * give[1][0],
                       give[0][1] * give[1][1]]  # fmt: skip
    scopes: list[list[int]] = [[v] for v in range(founders)]
    with np.errstate(divide="ignore"):
        tables = [prior] * founders
        for v in range(founders, n):
            parents = rng.choice(np.arange(max(0, v - 14), v), 2, replace=False).tolist()
            scopes.append([*parents, v])
            tables.append(np.log(child))
        for v in range(founders, n):  # a recessive trait, seen with some error
            if rng.random() < 0.6:
                on = rng.random() < 0.3
                scopes.append([v])
                tables.append(np.log([0.02, 0.02, 0.98] if on else [0.98, 0.98, 0.02]))
    return FactorGraph.from_tables([3] * n, scopes, tables)


def drawn_dbn(rng: np.random.Generator) -> FactorGraph:
    """Seven chains over time that hold on to their states and pull at each other."""
    chains, steps = 7, 30
    at = np.arange(chains * steps).reshape(steps, chains)
    edges = [*np.stack([at[:-1].ravel(), at[1:].ravel()], 1).tolist()]
    weights = [*rng.uniform(1.0, 4.0, size=len(edges))]
    for t in range(steps):
        for c in range(chains):
            edges.append([int(at[t, c]), int(at[t, (c + 1) % chains])])
            weights.append(float(rng.normal() * 1.5))
    field = 0.3 * rng.normal(size=chains * steps)
    return FactorGraph.pairwise(field, edges, weights, "equal")


def drawn_segments(rng: np.random.Generator) -> FactorGraph:
    """A field of attractive pairs around random places, near the edge between two phases."""
    n = 150
    places = rng.random((n, 2))
    near = ((places[:, None] - places) ** 2).sum(axis=2)
    edges = np.argwhere(np.triu(near < 0.012, 1))
    strength = float(rng.uniform(0.8, 2.0))
    weights = strength * np.abs(rng.normal(size=len(edges)))
    return FactorGraph.pairwise(0.2 * rng.normal(size=n), edges, weights, "equal")


KINDS = {"grid": drawn_grid, "csp": drawn_csp, "pedigree": drawn_pedigree, "dbn": drawn_dbn,
         "segments": drawn_segments}  # fmt: skip


def drawn(count: int) -> Iterator[Case]:
    """Models that nothing was tuned on; those that contradict themselves are drawn again."""
    for kind, draw in KINDS.items():
        made, seed = 0, 0
        while made < count:
            seed += 1
            graph = draw(np.random.default_rng([seed, *kind.encode()]))
            try:
                probs = Exact(max_gib=8.0)(graph).probs
            except ContradictionError:
                continue
            made += 1
            yield Case(f"new {kind} {seed}", "drawn", graph, lambda p=probs: (p, 0.0))


def measure(case: Case, seconds: list[float], wanted: list[str], row: dict) -> None:
    """Add what is missing to a row."""
    row |= {"name": case.name, "kind": case.kind, "variables": case.graph.n_variables}
    errors = row.setdefault("errors", {})
    truth = None
    for limit in seconds:
        for method, solver in methods(limit).items():
            key = method if method == "bp" else f"{method} {limit:g} s"
            if key in errors or row.get("exact") or (wanted and method not in wanted):
                continue
            if truth is None:
                truth, row["noise"] = case.truth()
            try:
                answer = solver(case.graph)
            except MinferError as error:
                errors[key] = None
                row.setdefault("refused", {})[key] = str(error)
                continue
            errors[key] = float(np.abs(answer.probs - truth).mean())
            if method == "auto":
                row.setdefault("notes", {})[key] = answer.note
                row.setdefault("estimates", {})[key] = answer.error_estimate
            if method == "bp" and answer.status.value == "exact":
                row["exact"] = True


def table(rows: list[dict]) -> list[str]:
    columns = list(dict.fromkeys(k for row in rows for k in row["errors"]))
    out = [f"| model | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for row in rows:
        cells = [row["errors"].get(k) for k in columns]
        text = " | ".join("–" if c is None else f"{c:.4f}" for c in cells)
        about = f" (reference ± {row['noise']:.3f})" if row.get("noise") else ""
        out.append(f"| {row['name']}{about} | {text} |")
    return out


def summary(rows: list[dict]) -> list[str]:
    out = []
    for key in dict.fromkeys(k for row in rows for k in row["errors"] if k.startswith("auto")):
        pairs = [
            (row["name"], max(row["errors"]["bp"], FLOOR), max(row["errors"][key], FLOOR))
            for row in rows
            if row["errors"].get(key) is not None and row["errors"].get("bp") is not None
        ]
        ratios = [bp / auto for _, bp, auto in pairs if bp > 0.01]
        worse = [name for name, bp, auto in pairs if auto > bp + 0.005]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            out.append(f"{key}: {mean:.1f} times below bp over the {len(ratios)} where it errs; "
                       f"worse by more than .005 on {', '.join(worse) or 'none'}")  # fmt: skip
    return out


def report(rows: list[dict]) -> str:
    """Tables of what was not exact, by kind of model."""
    out = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [r for r in rows if r["kind"] == kind and not r.get("exact")]
        out += [*table(mine), *summary(mine), ""]
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("MINFER_DATA", DATA)))
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 10.0, 60.0])
    parser.add_argument("--models", nargs="*", help="of the UAI models; none for none of them")
    parser.add_argument("--methods", nargs="+", default=[])
    parser.add_argument("--grids", type=int, nargs="*", default=[40, 70, 100])
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--reference", type=float, default=300.0, help="seconds of a long run")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--most", type=float, default=math.inf)
    parser.add_argument("--show", type=Path)
    args = parser.parse_args()
    if args.show:
        print(report(json.loads(args.show.read_text("utf-8"))))
        return
    kept = json.loads(args.write.read_text("utf-8")) if args.write and args.write.exists() else []
    rows = {row["name"]: row for row in kept}
    warm = FactorGraph.grid(np.zeros((9, 9)) + 0.1, 1.0)
    hard = FactorGraph.from_tables([3] * 9, [[i, j] for i in range(9) for j in range(i)],
                                   [np.where(np.eye(3) > 0, -np.inf, 0.1)] * 36)  # fmt: skip
    for graph in (warm, hard):
        for solver in methods(0.2).values():  # compile
            with suppress(MinferError):
                solver(graph)
    began = time.perf_counter()
    every = chain(uai(args.data), grids(args.grids, args.reference), drawn(args.drawn))
    for case in every:
        if case.kind == "uai" and args.models is not None and case.name not in args.models:
            continue
        if time.perf_counter() - began > args.most:
            break
        row = rows.setdefault(case.name, {})
        measure(case, args.seconds, args.methods, row)
        print("\n".join(table([row])), flush=True)
        if args.write:
            args.write.write_text(json.dumps(list(rows.values()), indent=1) + "\n", "utf-8")
    print(report(list(rows.values())))


if __name__ == "__main__":
    main()
