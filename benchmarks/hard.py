"""Mean errors of marginals where belief propagation is wrong, by model and method.

    python benchmarks/hard.py [--data DIR] [--seconds 1 10 60] [--models NAME ...]
                              [--methods NAME ...] [--grids 40 70 100] [--drawn 4]
                              [--reference 300] [--references DIR] [--write FILE.json]
                              [--most SECONDS]
    python benchmarks/hard.py --show FILE.json
    python benchmarks/hard.py --page    # docs/reference/hard-measured.md

The UAI 2014 models (DIR as in places.py) against their exact marginals; square grids with strong
mixed couplings, fields N(0, 1/4) and couplings "equal" N(0, 4), against a long run of tempering,
whose own standard error is given; and, with --drawn, so many models each of five kinds that no
constant was chosen on, against Exact. Exact inference is switched off above 2^16 cells for
what is measured, but for the large grids, where it does not fit anyway. An error is the mean over
all states of all variables, at least 1e-4 in the means at the end. Seconds are wall clock, without
compiling: run it on a core of its own.

With --write what FILE has is kept and not measured again, and each number is written as soon as it
is there; --most ends the run before the next model once so many seconds have passed. So a long
table can be made in pieces.

The last lines compare Auto(time_limit) with BP: the geometric mean of the ratio of their errors
where BP errs by more than .01, and the models where Auto is worse by more than .005.
"""

from __future__ import annotations

import argparse
import math
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
    Windows,
)
from minfer.graph import grid_edges
from minfer_experiments.measure import Stopwatch
from minfer_experiments.pages import table as markdown
from minfer_experiments.pages import write_section
from minfer_experiments.results import Results
from places import INSTANCES, UAI, uai_models

CELLS = 2**16
FLOOR = 1e-4
UNBOUNDED = 1 << 40  # sweeps


def methods(seconds: float, limited: bool) -> dict[str, Callable[[FactorGraph], Marginals]]:
    """What is run in so many seconds; the first is belief propagation, damped where it must be.

    ``limited``: nothing may have more than 2^16 cells, as if the model were a larger one.
    """
    cells = CELLS if limited else None
    most = {"max_cells": CELLS} if limited else {}
    return {
        "bp": Auto(exact_cells=cells),
        "structured mean field": StructuredMeanField(time_limit=seconds, **most),
        "join graph 2^8": JoinGraph(max_cells=2**8, time_limit=seconds),
        "windows": Windows(time_limit=seconds, **most),
        "clamped": Clamped(time_limit=seconds),
        "tempering": Tempering(n_sweeps=UNBOUNDED, burn_in=2000, time_limit=seconds),
        "auto": Auto(time_limit=seconds, exact_cells=cells),
    }


class Case(NamedTuple):
    """A model and what its marginals are, made when they are first asked for."""

    name: str
    kind: str
    graph: FactorGraph
    truth: Callable[[], tuple[np.ndarray, float]]  # with its mean standard error


def uai(data: Path, names: list[str]) -> Iterator[Case]:
    for model in uai_models(data, names):
        yield Case(model.name, "uai", model.graph, lambda model=model: (model.marginals, 0.0))


def lattice(n: int, strength: float, field: float, rng: np.random.Generator) -> FactorGraph:
    edges = grid_edges(n, n)
    weights = strength * rng.normal(size=len(edges))
    return FactorGraph.pairwise(field * rng.normal(size=n * n), edges, weights, feature="equal")


def grids(sizes: list[int], reference: float, folder: Path | None) -> Iterator[Case]:
    """Grids, a long run's marginals, and its mean standard error, kept in a folder if given."""
    for n in sizes:
        graph = lattice(n, 2.0, 0.5, np.random.default_rng(n))
        kept = folder / f"grid{n}.npz" if folder else None

        def truth(graph: FactorGraph = graph, kept: Path | None = kept) -> tuple[np.ndarray, float]:
            if kept and kept.exists():
                with np.load(kept) as file:
                    return file["probs"], float(file["error"])
            long = Tempering(
                n_sweeps=UNBOUNDED, burn_in=10_000, n_replicas=32, rng=1, time_limit=reference
            )(graph)
            chains = long.state.chain_probs
            error = float((chains.std(axis=0, ddof=1) / math.sqrt(len(chains))).mean())
            if kept:
                np.savez(kept, probs=long.probs, error=error)
            return long.probs, error

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
    return FactorGraph.pairwise(field, edges, weights, feature="equal")


def drawn_segments(rng: np.random.Generator) -> FactorGraph:
    """A field of attractive pairs around random places, near the edge between two phases."""
    n = 150
    places = rng.random((n, 2))
    near = ((places[:, None] - places) ** 2).sum(axis=2)
    edges = np.argwhere(np.triu(near < 0.012, 1))
    strength = float(rng.uniform(0.8, 2.0))
    weights = strength * np.abs(rng.normal(size=len(edges)))
    return FactorGraph.pairwise(0.2 * rng.normal(size=n), edges, weights, feature="equal")


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


def measure(case: Case, seconds: list[float], wanted: list[str], row: dict) -> bool:
    """Add what is missing to a row; whether there was any."""
    row |= {"name": case.name, "kind": case.kind, "variables": case.graph.n_variables}
    errors = row.setdefault("errors", {})
    truth = None
    for limit in seconds:
        for method, solver in methods(limit, case.kind != "grid").items():
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
    return truth is not None


def table(rows: list[dict], columns: list[str] | None = None) -> str:
    """Errors of some methods, of all if none are given."""
    columns = columns or list(dict.fromkeys(k for row in rows for k in row["errors"]))
    body = []
    for row in rows:
        cells = [row["errors"].get(k) for k in columns]
        about = f" (reference ± {row['noise']:.3f})" if row.get("noise") else ""
        body.append([f"{row['name']}{about}", *map(decimals, cells)])
    return markdown(["model", *columns], body)


def decimals(x: float | None) -> str:
    return "–" if x is None else f"{x:.4f}".removeprefix("0")


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
            out.append(
                f"{key}: on the {len(ratios)} models where bp errs by more than .01, the error is "
                f"{mean:.1f} times smaller than that of bp (geometric mean); it is larger by more "
                f"than .005 on {', '.join(worse) or 'none'} of {len(pairs)}."
            )
    return out


def report(rows: list[dict]) -> str:
    """Tables of what was not exact, by kind of model."""
    out = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [r for r in rows if r["kind"] == kind and not r.get("exact")]
        out += [table(mine), *summary(mine), ""]
    return "\n".join(out)


# ---------------------------------------------------------------------- the page

RESULTS = Path(__file__).parent / "results" / "hard.json"
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "hard-measured.md"
#: The UAI 2014 models, models drawn anew, and large grids with strong mixed couplings.
KINDS = ("uai", "drawn", "grid")


def pages(rows: list[dict]) -> None:
    """The sections of docs/reference/hard-measured.md, Auto in short; all methods elsewhere."""
    rows = [row for row in rows if not row.get("exact")]
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        parts = summary(mine)
        for seconds in (1, 10, 60):
            names = [f"{m} {seconds} s" for m in list(methods(1.0, True))[1:]]
            seen = [k for k in names if any(k in row["errors"] for row in mine)]
            if seen:
                parts.append(table(mine, ["bp", *seen]))
        write_section(INSTANCES, f"hard {kind}", "\n\n".join(parts))
        write_section(PAGE, kind, in_short(kind, mine))


def in_short(kind: str, rows: list[dict]) -> str:
    """Belief propagation and Auto where the first errs, a row for each family of models."""
    mine = [row for row in rows if row["errors"]["bp"] > 0.01]
    columns = ["bp", "auto 1 s", "auto 10 s", "auto 60 s"]
    head = ["model", "belief propagation", *(f"`Auto(time_limit={s})`" for s in (1, 10, 60))]
    families: dict[str, list[dict]] = {}
    for row in mine:
        family = row["name"].rpartition(" " if kind == "drawn" else "_")[0]
        families.setdefault(family, []).append(row)
    body = []
    for some in families.values() if kind != "grid" else [[row] for row in mine]:
        about = f" (reference ± {some[0]['noise']:.3f})" if some[0].get("noise") else ""
        cells = [[r["errors"].get(k) for r in some] for k in columns]
        body.append([
            ", ".join(r["name"] for r in some) + about,
            *(", ".join(map(decimals, c)) for c in cells),
        ])  # fmt: skip
    return markdown(head, body) + "\n\n" + "\n\n".join(summary(mine))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=UAI)
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 10.0, 60.0])
    parser.add_argument("--models", nargs="*", help="of the UAI models; none for none of them")
    parser.add_argument("--methods", nargs="+", default=[])
    parser.add_argument("--grids", type=int, nargs="*", default=[40, 70, 100])
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--reference", type=float, default=300.0, help="seconds of a long run")
    parser.add_argument("--references", type=Path, help="folder in which long runs are kept")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--most", type=float, default=math.inf)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--page", action="store_true")
    args = parser.parse_args()
    if args.show:
        print(report(list(Results(args.show).parts.values())))
        return
    if args.page:
        pages(list(Results(RESULTS).parts.values()))
        return
    results = Results(args.write)
    warm = FactorGraph.grid(np.zeros((9, 9)) + 0.1, 1.0)
    hard = FactorGraph.from_tables([3] * 9, [[i, j] for i in range(9) for j in range(i)],
                                   [np.where(np.eye(3) > 0, -np.inf, 0.1)] * 36)  # fmt: skip
    for graph in (warm, hard):
        for solver in methods(0.2, True).values():  # compile
            with suppress(MinferError):
                solver(graph)
    spent = Stopwatch()
    every = chain(
        [] if args.models == [] else uai(args.data, args.models or []),
        grids(args.grids, args.reference, args.references),
        drawn(args.drawn),
    )
    for case in every:
        if spent.wall > args.most:
            break
        row = results.parts.get(case.name, {})
        if measure(case, args.seconds, args.methods, row):
            results.keep(case.name, row)
        print(table([row]), flush=True)
    print(report(list(results.parts.values())))


if __name__ == "__main__":
    main()
