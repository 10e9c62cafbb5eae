"""How well does it work: the method against exact answers, truncated BP and active-set BP.

    python benchmarks/method.py [--write docs/reference/method.md] [--parts NAME ...] [--data DIR]

Every model of method_problems.py, every method at several shares of kept factors. The error is the
mean over all marginal entries of the distance to the reference. Times are CPU times of the whole
call (set-up included, compilation not) on one pinned core; the runs that are compared take turns,
round after round, and each one's best time counts. All results go to benchmarks/results/method.json
and, through method_page.py, to the page and the picture beside it. With ``--parts`` only those are
measured again and the others taken from that file; ``--parts`` alone writes the page anew.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import costs
import method_page
import method_problems as problems
from method_problems import Instance, Reference
from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    Gibbs,
    MinDivergence,
    MinferError,
    MinJoint,
    MinSize,
    TreeReweighted,
    calibrate,
    infer,
    relax,
)
from minfer.reduction import seeds
from minfer.reduction.recipes import Compensated, Iterated, Paper
from minfer.reduction.sources import ground
from minfer_experiments.deletion import delete
from minfer_experiments.measure import Stopwatch, in_turn, least, pin, quickest
from minfer_experiments.pages import write_section, write_sections
from minfer_experiments.results import Results
from places import INSTANCES, RESULTS, UAI

SHARES = (0.0, 0.05, 0.2, 0.5)
SWEEPS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 30, 50)
ACTIVE = (0.3, 0.1, 0.03)

Row = dict[str, Any]
Method = Callable[[FactorGraph, int], Any]  # (model, factors to add) -> Result


def reduced(**settings: Any) -> Method:
    """``infer`` with the m best factors."""
    return lambda graph, m: infer(graph, MinDivergence(m), BeliefPropagation(), **settings)


def iterated(graph: FactorGraph, m: int) -> Any:
    """The m factors added over four rounds of scoring, corrections refreshed in each."""
    return relax(graph, MinDivergence(m), BeliefPropagation(), recipe=Iterated(rounds=4))


def deletion(compensate: bool) -> Method:
    """Edge deletion, which has to solve the full model first."""

    def run(graph: FactorGraph, m: int) -> Any:
        solver = BeliefPropagation()
        return delete(graph, solver(graph), MinDivergence(m), solver, compensate=compensate)

    return run


METHODS: dict[str, Method] = {
    "paper": reduced(),
    "compensated": reduced(recipe=Compensated(refreshes=0)),
    "1 refresh": reduced(recipe=Compensated(refreshes=1)),
    "2 refreshes": reduced(recipe=Compensated()),
    "iterated": iterated,
    "edge deletion": deletion(False),
    "edge deletion, compensated": deletion(True),
}


# ------------------------------------------------------------------ measuring


class Run(NamedTuple):
    """Something to measure: a method's name, its setting, and the call."""

    method: str
    at: float
    call: Callable[[], Any]


def distance(probs: NDArray, reference: Reference) -> float:
    return float(np.abs(probs - reference.probs).mean())


def measured(
    runs: list[Run], reference: Reference, rounds: int = 5, turn: float = 0.004
) -> list[Row]:
    """Every run: error, what its result says about itself, and CPU ms (not with ``rounds=0``).

    That is the best time of a call. The runs take turns; short ones are repeated within a turn.
    """
    rows = []
    for run in runs:
        answer = run.call()
        row: Row = {"method": run.method, "at": run.at}
        if hasattr(answer, "marginals"):
            row |= about(answer, reference)
            answer = answer.marginals
        error = np.abs(answer.probs - reference.probs)
        row |= {"error": float(error.mean()), "max": float(error.max())}
        rows.append(row | {"sweeps": answer.iterations})
    calls = {k: run.call for k, run in enumerate(runs)}
    times = in_turn(calls, rounds, warm_up=False, timer=partial(quickest, seconds=turn))
    for row, seconds in zip(rows, least(times).values()):
        if math.isfinite(seconds):
            row["ms"] = 1e3 * seconds
    return rows


def about(result: Any, reference: Reference) -> Row:
    """What is kept and touched, and how the error estimate compares with the truth."""
    row = {"kept": result.kept_share}
    if result.untouched is not None:
        row["touched"] = 1 - result.untouched.count / (result.n_factors - result.n_seed)
    estimates = result.error_estimates
    if result.score_kind != "deletion" and np.isfinite(estimates).all():
        truth = np.abs(result.marginals.probs - reference.probs)
        truth = np.maximum.reduceat(truth, result.model._offsets[:-1])
        row["estimate"] = float(estimates.mean())
        if estimates.std() > 0 and truth.std() > 0:
            row["correlation"] = float(np.corrcoef(estimates, truth)[0, 1])
    return row


def stopped(graph: FactorGraph, sweeps: Iterable[int], active: Iterable[float]) -> list[Run]:
    """Converged BP, BP stopped early, active-set BP: the baselines."""
    settings: list[tuple[str, float, BeliefPropagation]] = [
        ("converged BP", 0, BeliefPropagation()),
        *(("BP", k, BeliefPropagation(max_iters=k)) for k in sweeps),
        *(("active-set BP", t, BeliefPropagation(schedule="residual", tol=t)) for t in active),
    ]
    return [Run(name, at, lambda s=s: s(graph)) for name, at, s in settings]  # type: ignore[misc]


def outside(graph: FactorGraph) -> int:
    """Factors outside the seed."""
    return int((~seeds.unary_and_globals(graph)).sum())


def method_runs(graph: FactorGraph) -> list[Run]:
    """Every method at every share of the factors outside the seed."""
    sizes = [(share, round(share * outside(graph))) for share in SHARES]
    return [
        Run(name, share, lambda f=method, m=m: f(graph, m))  # type: ignore[misc]
        for name, method in METHODS.items()
        for share, m in sizes
    ]


def measure_instance(instance: Instance, cache: Path, timed: bool) -> Row:
    """All methods, and where times are wanted all baselines, on one model of the collection."""
    graph = instance.graph
    reference = problems.reference(instance, cache)
    seed = BeliefPropagation()(graph.keep(seeds.unary_and_globals(graph)))
    baselines = stopped(graph, SWEEPS if timed else (), ACTIVE if timed else ())
    return {
        "instance": instance.name, "kind": instance.kind, "variables": graph.n_variables,
        "factors": outside(graph), "reference": instance.reference, "noise": reference.noise,
        "seed_error": distance(seed.probs, reference),
        "rows": measured(baselines + method_runs(graph), reference, rounds=5 if timed else 0),
    }  # fmt: skip


# ------------------------------------------------------------------ the parts


def measure_collection(cache: Path, _: Path) -> list[Row]:
    return [measure_instance(i, cache, timed=True) for i in problems.collection()]


def measure_later(cache: Path, _: Path) -> list[Row]:
    chosen = problems.collection(problems.LATER)
    return [measure_instance(i, cache, timed=False) for i in chosen]


def measure_fresh(cache: Path, _: Path) -> list[Row]:
    chosen = problems.collection(problems.FRESH)
    return [measure_instance(i, cache, timed=False) for i in chosen]


def measure_ellipses(cache: Path, _: Path) -> list[Row]:
    return [measure_instance(i, cache, timed=False) for i in problems.ellipses()]


SOLVERS: dict[str, Any] = {
    "belief propagation": BeliefPropagation(),
    "tree-reweighted": TreeReweighted(),
    "Gibbs": Gibbs(n_sweeps=500, burn_in=100),
}
SOLVER_RUNS: tuple[tuple[str, float, dict[str, Any]], ...] = (
    ("paper", 0.5, {}),
    ("compensated", 0.2, {"recipe": Compensated(refreshes=0)}),
    ("compensated", 0.5, {"recipe": Compensated(refreshes=0)}),
    ("2 refreshes", 0.2, {"recipe": Compensated()}),
)


def measure_solvers(cache: Path, _: Path) -> list[Row]:
    """Section 5.1's grid with three solvers as black boxes; what comes after the seed also apart.

    Errors are against the same solver on the full graph; those of Gibbs, whose answers are noisy,
    against sampling for much longer.
    """
    graph = problems.picture(5.0, 1)
    sampled = problems.reference(Instance("picture", "picture", graph, "gibbs"), cache)
    n, rows = outside(graph), []
    for name, solver in SOLVERS.items():
        full = solver(graph)
        reference = sampled if name == "Gibbs" else Reference(full.probs, 0.0)
        runs = [Run("full", 1.0, lambda s=solver: s(graph))]  # type: ignore[misc]
        laps: list[list[float]] = [[]]  # share of the time after seed, scoring and selection
        for method, share, settings in SOLVER_RUNS:
            laps.append([])
            call = noted(graph, MinDivergence(round(share * n)), solver, settings, laps[-1])
            runs.append(Run(method, share, call))
        found = measured(runs, reference, rounds=3, turn=0.02)
        for row, shares in zip(found, laps):
            row["solver"], row["settings"] = name, repr(solver)
            row["later"] = row["ms"] * float(np.median(shares)) if shares else row["ms"]
        rows += found
    return rows


def noted(
    graph: FactorGraph, objective: Any, solver: Any, settings: dict[str, Any], laps: list[float]
) -> Callable[[], Any]:
    """A call of ``infer`` that also notes which share of its time the later inferences took."""

    def call() -> Any:
        result = infer(graph, objective, solver, **settings)
        laps.append(result.timings["infer"] / result.seconds)
        return result

    return call


CUBIC_WORDS = (100, 160, 200)
CUBIC_COSTS = (1e-3, 1e-4)
CUBIC_METHODS: dict[str, tuple[bool, dict[str, Any]]] = {  # lazily?, settings
    "paper": (False, {}),
    "paper, lazy": (True, {}),
    "compensated": (False, {"recipe": Compensated(refreshes=0)}),
    "lazy, compensated, gain": (True, {"recipe": Compensated(refreshes=0, score="gain")}),
    "lazy, compensated": (True, {"recipe": Compensated(refreshes=0)}),
    "lazy, 1 refresh": (True, {"recipe": Compensated(refreshes=1)}),
    "1 refresh": (False, {"recipe": Compensated(refreshes=1)}),
}


def measure_cubic(cache: Path, _: Path) -> list[Row]:
    """The parsing-like models with a factor for every grandparent, against converged full BP."""
    return [one_cubic(n, cache, whole=n == CUBIC_WORDS[0]) for n in CUBIC_WORDS]


def one_cubic(n_words: int, cache: Path, whole: bool) -> Row:
    """All runs, or for the growth with size only converged and stopped BP and the lazy ones."""
    base, source = problems.cubic(n_words, 0.5, 1)
    graph = ground(base, source)
    reference = problems.reference(Instance(f"cubic n={n_words}", "cubic", graph, "bp"), cache)
    seed = BeliefPropagation()(base)
    runs = stopped(graph, (1, 2, 3) if whole else (1, 2), ACTIVE if whole else ())
    for name, (lazy, settings) in CUBIC_METHODS.items():
        for cost in CUBIC_COSTS:
            if not (whole or lazy):
                continue
            settings = settings | ({"source": source} if lazy else {})
            model = base if lazy else graph
            call = lambda m=model, c=cost, k=settings: infer(m, MinJoint(c), **k)  # noqa: E731
            runs.append(Run(name, cost, call))
    return {
        "words": n_words, "variables": graph.n_variables, "factors": source.n_factors,
        "seed_error": distance(seed.probs, reference),
        "rows": measured(runs, reference, rounds=7 if whole else 3, turn=0.02),
    }  # fmt: skip


def measure_objectives(cache: Path, _: Path) -> list[Row]:
    """The three objectives on all grids, each with one parameter for the whole collection."""
    instances = [i for i in problems.collection() if i.kind.startswith("grid")]
    references = [problems.reference(i, cache) for i in instances]
    rows = []
    ways: list[dict[str, Any]] = [{}, {"recipe": Compensated(refreshes=0)}]
    objectives: list[Any] = [MinSize, MinDivergence, MinJoint]
    for settings in ways:
        for share in (0.2, 0.5):
            for objective in objectives:
                tuned = calibrate(objective, [i.graph for i in instances], kept=share, **settings)
                results = [
                    infer(i.graph, tuned, BeliefPropagation(), **settings) for i in instances
                ]
                errors = [
                    distance(x.marginals.probs, r) for x, r in zip(results, references, strict=True)
                ]
                kept = [x.kept_share for x in results]
                (parameter,) = (v for v in vars(tuned).values() if v is not None)
                rows.append({
                    "objective": objective.__name__, "parameter": float(parameter),
                    "compensated": bool(settings), "share": share,
                    "mean": float(np.mean(errors)), "worst": max(errors),
                    "least": min(kept), "most": max(kept),
                })  # fmt: skip
    return rows


UAI_SHARES = (0.2, 0.5)
UAI_METHODS = {
    "paper": Paper(),
    "compensated": Compensated(refreshes=0),
    "2 refreshes": Compensated(),
}


def measure_uai(_: Path, folder: Path) -> list[Row]:
    """The UAI 2014 models from a unary seed; reverse scores where most factors are forced."""
    solver = BeliefPropagation(time_limit=5)
    rows = []
    for instance in problems.uai_instances(folder):
        assert instance.answer is not None
        graph, reference = instance.graph, Reference(instance.answer, 0.0)
        n = int((~seeds.unary(graph)).sum())
        seed = infer(graph, MinDivergence(0), lambda g, start=None: start or solver(g))
        reverse = seed.forced_share > 0.5
        full, first = solver(graph), BeliefPropagation(max_iters=1)(graph)
        row: Row = {
            "model": instance.name, "family": instance.kind, "variables": graph.n_variables,
            "factors": n, "forced": seed.forced_share, "reverse": reverse,
            "seed": distance(seed.seed_marginals.probs, reference),
            "BP": distance(full.probs, reference), "converged": full.converged,
            "BP 1": distance(first.probs, reference),
        }  # fmt: skip
        for name, recipe in UAI_METHODS.items():
            for share in UAI_SHARES:
                objective = MinDivergence(round(share * n))
                how = replace(recipe, score="reverse" if reverse else None)
                try:
                    result = infer(graph, objective, solver, recipe=how)
                    row[f"{name} {share:g}"] = distance(result.marginals.probs, reference)
                except MinferError as error:
                    row[f"{name} {share:g}"] = type(error).__name__
        rows.append(row)
    return rows


def pinsker(bound: float | None) -> float | None:
    """What a divergence allows any probability to be off by: sqrt(D / 2), at most 1."""
    return None if bound is None else min(float(np.sqrt(bound / 2)), 1.0)


CERTIFIED = ((5.0, 8.0, 12.0), (0.5, 0.8, 0.95))  # confidences, shares


def measure_certificates(cache: Path, _: Path) -> list[Row]:
    """On 12 x 40 grids solved exactly: bound, exact divergence, surrogate, sqrt(D / 2), error."""
    rows = []
    for alpha in CERTIFIED[0]:
        graph = problems.grid(alpha, 1)
        full = Exact()(graph)
        for compensate in (False, True):
            for share in CERTIFIED[1]:
                objective = MinDivergence(round(share * outside(graph)))
                recipe = Compensated(refreshes=0) if compensate else Paper()
                result = infer(graph, objective, Exact(), recipe=recipe)
                found = result.certificate
                error = np.abs(result.marginals.probs - full.probs)
                lower = found.log_z_lower if found.n_enveloped == 0 else None
                rows.append({
                    "alpha": alpha, "share": share, "compensated": compensate,
                    "bound": result.bound, "loose": found.loose, "surrogate": result.divergence,
                    "divergence": None if lower is None else full.log_z - lower,
                    "interval": pinsker(result.bound), "max": float(error.max()),
                    "mean": float(error.mean()),
                })  # fmt: skip
    return rows


PARTS: dict[str, Callable[[Path, Path], Any]] = {
    "collection": measure_collection,
    "later": measure_later,
    "fresh": measure_fresh,
    "ellipses": measure_ellipses,
    "solvers": measure_solvers,
    "cubic": measure_cubic,
    "objectives": measure_objectives,
    "uai": measure_uai,
    "selection": lambda _, __: costs.selection(),
    "scan": lambda _, __: costs.scan(),
    "certificates": measure_certificates,
}


def rounded(x: Any) -> Any:
    """The same with floats of four digits, so that the file stays small."""
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [rounded(v) for v in x]
    return float(f"{x:.4g}") if isinstance(x, float) else x


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "minfer-benchmarks")
    parser.add_argument("--data", type=Path, default=UAI)
    parser.add_argument("--write", type=Path, help="write the page here, and a picture beside it")
    parser.add_argument("--json", type=Path, default=RESULTS / "method.json")
    arguments = parser.parse_args()
    pin()
    results = Results(arguments.json, indent=None)
    for part in arguments.parts:
        spent = Stopwatch()
        results.keep(part, rounded(PARTS[part](arguments.cache, arguments.data)))
        print(f"{part} ({spent.cpu:.0f} s)", flush=True)
    if arguments.write:
        write_sections(arguments.write, method_page.sections(results.found))
        if rows := results.found.get("uai"):
            write_section(INSTANCES, "method uai", method_page.uai_table(rows))
        method_page.picture(results.found, arguments.write.with_suffix(".png"))


if __name__ == "__main__":
    main()
