"""Learning: objectives, warm steps, densities, growth; chains, tables, gradients.

    python benchmarks/learning.py --treebank TRAIN.conllu.gz DEV.conllu.gz   # everything: an hour
    python benchmarks/learning.py denoising --seeds 1 --images FOLDER
    python benchmarks/learning.py --page                 # docs/reference/learning-measured.md again

Writes ``benchmarks/results/learning.json``; what is not measured in a run stays as it was. From it
come the sections of ``docs/reference/learning-measured.md``.

* ``denoising``: a CRF over pixels with 15 tied weights (1 and the 3x3 patch for a pixel; for two
  neighbours 1 and whether they differ by more than .1, .2, .3, .4). Black and white drawings under
  bimodal noise: ten pictures of two drawings to train, ten of two unseen drawings to test, and the
  other way round (two folds); a seed draws which noisy versions. ``--images`` is a folder with
  ``noisy/bimodal.npz``, arrays ``labels (4, 64, 64)`` and ``noisy (4, 50, 64, 64)``; minfer's own
  drawings otherwise. The baseline is logistic regression on the same pixel features.
* ``warm``: the loss of the marginals through TRW by Adam, two warm sweeps a step against converged
  runs at every step: the same schedule, objective at the end cold and converged.
* ``ising``: an 8x8 Ising model of drawn couplings, 2,000 samples: exact log-likelihood of 2,000
  others in nats a sample, by objective.
* ``growth``: 150 of 4,950 pairs of 100 variables, couplings of either sign, 4,000 samples by Gibbs
  sampling: pairs found by ``grow`` and by L1 pseudolikelihood at the penalty that finds most.

* ``chains``, ``tables``, ``gradients``: ``learning_chains.py`` (against crfsuite, on a treebank),
  ``learning_tables.py`` (pgmpy, pyAgrum), ``learning_gradients.py`` (torch, JAX).

One pinned core (``taskset -c 0``), CPU seconds; compiling is not counted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import learning_chains
import learning_gradients
import learning_tables
from learning_page import FILE, PAGE
from minfer import BeliefPropagation, Exact, FactorGraph, MinJoint, TreeReweighted, sample
from minfer.graph import grid_edges
from minfer.learn import (
    BetheLikelihood,
    ExactLikelihood,
    GridCRF,
    IsingModel,
    MarginalLoss,
    Pseudolikelihood,
    TRWLikelihood,
    grow,
)
from minfer.pictures import base_pictures, bimodal
from minfer_experiments.learned_denoising import neighbours, patches
from minfer_experiments.measure import Stopwatch, pin, timed
from minfer_experiments.pages import table, write_section
from minfer_experiments.results import Results

Row = dict[str, Any]

# ---------------------------------------------------------------------- denoising


def pictures(folder: str | None) -> tuple[NDArray, Callable[[int, int], NDArray]]:
    """Labels of four drawings, and noisy versions of each by number."""
    if folder is not None:
        with np.load(Path(folder) / "noisy" / "bimodal.npz") as file:
            labels, seen = file["labels"].astype(int), file["noisy"].astype(float)
        return labels, lambda drawing, version: seen[drawing, version % seen.shape[1]]
    labels = np.stack(list(base_pictures().values())).astype(int)
    return labels, lambda d, v: bimodal(labels[d], np.random.default_rng([2003, d, v]))


def none(left: NDArray, right: NDArray, above: NDArray) -> NDArray[np.float64]:
    return np.zeros((len(left), 1))


def split(folder: str | None, fold: int, seed: int) -> tuple[Any, ...]:
    """Patches and labels of ten pictures to train and ten of unseen drawings."""
    labels, seen = pictures(folder)
    versions = np.random.default_rng([7, seed]).permutation(50)
    inside, outside = ((0, 1), (2, 3)) if fold == 0 else ((2, 3), (0, 1))
    train = [(d, v) for d in inside for v in versions[:5]]
    test = [(d, v) for d in outside for v in versions[5:10]]
    out: list[Any] = []
    for some in (train, test):
        out.append(np.stack([patches(seen(d, int(v))) for d, v in some]))
        out.append(np.stack([labels[d] for d, _ in some]))
    return tuple(out)


TRAINED = TreeReweighted(tol=1e-5)


def denoising(args: argparse.Namespace) -> list[Row]:
    bp = BeliefPropagation(tol=1e-4, max_iters=300)
    adam = {"method": "adam", "epochs": 120, "learning_rate": 0.3}
    how = {"evaluate_every": 60, "sweeps": 2}
    jobs: list[tuple[str, Any, dict[str, Any], dict[str, Any], Any]] = [
        ("pseudolikelihood, answers by BP", Pseudolikelihood(), {}, {}, bp),
        ("pseudolikelihood, answers by TRW", Pseudolikelihood(), {}, {}, TRAINED),
        ("Bethe likelihood", BetheLikelihood(bp), {"max_iters": 40}, {}, bp),
        ("TRW likelihood, warm", TRWLikelihood(TRAINED), adam, how, TRAINED),
        ("loss of marginals through TRW, warm", MarginalLoss(TRAINED), adam, how, TRAINED),
    ]
    if args.quick:
        jobs = [job for job in jobs if "Bethe" not in job[0]]
    rows: list[Row] = []
    for seed in range(args.seeds):
        for fold in (0, 1):
            x, y, x_test, y_test = split(args.images, fold, seed)
            with Stopwatch() as spent:
                base = GridCRF("pseudolikelihood", edges=none, l2=1e-6).fit(x, y, tol=1e-4)
            found = [("logistic, no pairs", base, spent.cpu, TRAINED)]
            first = np.append(base.fitted_.weights[:-1], np.zeros(5))
            for name, objective, settings, more, solver in jobs:
                with Stopwatch() as spent:
                    crf = GridCRF(objective, edges=neighbours, l2=1e-6, **settings)
                    crf.fit(x, y, tol=1e-4, start=first, **more)
                found.append((name, crf, spent.cpu, solver))
            for name, crf, seconds, solver in found:
                test = [crf.instance(a, b) for a, b in zip(x_test, y_test)]
                scores = crf.fitted_.scores(test, solver)
                rows.append(
                    {"objective": name, "seed": seed, "fold": fold, "seconds": seconds,
                     "weights": len(crf.fitted_.weights), "status": crf.fitted_.status,
                     "loss": crf.fitted_.loss, **scores}
                )  # fmt: skip
                print(f"{seed} {fold} {name:<36} {scores['error']:.4f} {scores['log_loss']:.4f} "
                      f"{seconds:6.1f} s  {crf.fitted_.status}", flush=True)  # fmt: skip
    return rows


def warm(args: argparse.Namespace) -> list[Row]:
    rows = []
    for seed in range(args.seeds):
        x, y, *_ = split(args.images, seed % 2, seed)
        base = GridCRF("pseudolikelihood", edges=none, l2=1e-6).fit(x, y, tol=1e-4)
        first = np.append(base.fitted_.weights[:-1], np.zeros(5))
        row: Row = {"seed": seed}
        for name, how in (("warm", {"sweeps": 2}), ("converged", {"warm": False})):
            crf = GridCRF(
                MarginalLoss(TRAINED), edges=neighbours, l2=1e-6, method="adam", epochs=120,
                learning_rate=0.3,
            )  # fmt: skip
            crf.fit(x, y, tol=0.0, start=first, evaluate_every=120, **how)
            row |= {f"{name} objective": crf.fitted_.value, f"{name} seconds": crf.fitted_.seconds}
        print(row, flush=True)
        rows.append(row)
    return rows


# ---------------------------------------------------------------------- densities


def ising(args: argparse.Namespace) -> list[Row]:
    rows = []
    edges = grid_edges(8, 8)
    objectives = {
        "exact": ExactLikelihood(), "pseudolikelihood": Pseudolikelihood(),
        "Bethe": BetheLikelihood(BeliefPropagation(max_iters=300, damping=0.2)),
        "TRW": TRWLikelihood(TreeReweighted(tol=1e-6)),
    }  # fmt: skip
    for scale in (0.5, 1.0, 2.0):
        for seed in range(args.seeds):
            rng = np.random.default_rng([11, seed])
            fields, couplings = 0.5 * rng.normal(size=64), scale * rng.normal(size=len(edges))
            true = FactorGraph.pairwise(fields, edges, couplings, feature="equal")
            x = np.asarray(sample(true, 4000, seed=seed))
            row: Row = {"scale": scale, "seed": seed}
            row["true"] = float((true.log_score(x[2000:]) - Exact()(true).log_z).mean())
            for name, objective in objectives.items():
                with Stopwatch() as spent:
                    model = IsingModel(edges, objective, l2=1e-5, tol=1e-4, max_iters=150)
                    model.fit(x[:2000])
                    row[name] = model.score(x[2000:])
                row[f"{name} seconds"] = spent.cpu
            print({k: round(v, 3) for k, v in row.items()}, flush=True)
            rows.append(row)
    return rows


# ---------------------------------------------------------------------- growth


def drawn_pairs(seed: int, n: int = 100, m: int = 150, samples: int = 4000) -> tuple[Any, Any]:
    """Samples of a model with m of all pairs of n variables, and those pairs."""
    rng = np.random.default_rng([13, seed])
    every = np.stack(np.triu_indices(n, 1), axis=1)
    edges = every[rng.choice(len(every), m, replace=False)]
    weights = rng.choice([-1.0, 1.0], m) * rng.uniform(0.8, 1.6, m)
    coupling = np.zeros((n, n))
    coupling[edges[:, 0], edges[:, 1]] = coupling[edges[:, 1], edges[:, 0]] = weights
    s = rng.choice([-1.0, 1.0], (samples, n))
    fields = 0.3 * rng.normal(size=n)
    for _ in range(300):
        for v in range(n):
            p = 1.0 / (1.0 + np.exp(-(fields[v] + s @ coupling[v])))
            s[:, v] = np.where(rng.random(samples) < p, 1.0, -1.0)
    return (s > 0).astype(np.int64), {tuple(sorted(e)) for e in edges.tolist()}


def hits(found: Any, true: set[tuple[int, int]]) -> tuple[float, float]:
    """Precision and recall."""
    right = len({tuple(sorted(e)) for e in np.asarray(found).tolist()} & true)
    return right / max(len(found), 1), right / len(true)


def growth(args: argparse.Namespace) -> list[Row]:
    rows = []
    for seed in range(args.seeds):
        x, true = drawn_pairs(seed)
        seconds, grown = timed(lambda x=x: grow(x, None, MinJoint(args.cost), tol=1e-4))
        precision, recall = hits(grown.edges, true)
        row: Row = {
            "seed": seed, "precision": precision, "recall": recall, "seconds": seconds,
            "rounds": len(grown.rounds), "status": grown.status,
        }  # fmt: skip
        if not args.quick:
            row |= by_l1(x, true)
        print(row, flush=True)
        rows.append(row)
    return rows


def by_l1(x: NDArray, true: set[tuple[int, int]]) -> Row:
    """L1 pseudolikelihood over all pairs, the penalty that does best in hindsight."""
    best: Row = {"l1 precision": 0.0, "l1 recall": 0.0}
    spent = Stopwatch()
    for l1 in (4e-4, 8e-4, 1.6e-3, 3.2e-3):
        model = IsingModel(l1=l1, l2=0.0, tol=2e-5, max_iters=150).fit(x)
        precision, recall = hits(model.edges_[model.couplings_ != 0.0], true)
        if min(precision, recall) >= min(best["l1 precision"], best["l1 recall"]):
            best |= {"l1": l1, "l1 precision": precision, "l1 recall": recall}
    return best | {"l1 seconds": spent.cpu}


# ---------------------------------------------------------------------- the page


def denoising_section(rows: list[Row]) -> str:
    names = list(dict.fromkeys(row["objective"] for row in rows))
    mean = {
        (n, k): float(np.mean([r[k] for r in rows if r["objective"] == n]))
        for n in names
        for k in ("error", "log_loss", "seconds")
    }
    lines = []
    for n in names:
        error = mean[n, "error"]
        share = error / mean[names[0], "error"]
        lines.append([n, f"{100 * error:.2f} %", f"{share:.2f}", f"{mean[n, 'log_loss']:.3f}",
                      f"{mean[n, 'seconds']:.1f}"])  # fmt: skip
    head = ["objective", "pixel error", "of the baseline's", "log-loss", "CPU s"]
    runs = len(rows) // len(names)
    return f"Means over {runs} runs (folds and seeds).\n\n" + table(head, lines)


def warm_section(rows: list[Row]) -> str:
    lines = []
    for r in rows:
        a, b = r["warm objective"], r["converged objective"]
        s, t = r["warm seconds"], r["converged seconds"]
        lines.append([f"{r['seed']}", f"{a:.6f}", f"{b:.6f}", f"{a - b:+.1e}",
                      f"{s:.1f} of {t:.1f}", f"{s / t:.2f}"])  # fmt: skip
    head = ["seed", "objective, two warm sweeps", "converged", "difference"]
    return table([*head, "CPU s of inference", "share"], lines)


def ising_section(rows: list[Row]) -> str:
    names = ["true", "exact", "pseudolikelihood", "Bethe", "TRW"]
    lines = []
    for scale in sorted({r["scale"] for r in rows}):
        some = [r for r in rows if r["scale"] == scale]
        lines.append([f"{scale:g}", *(f"{np.mean([r[n] for r in some]):.3f}" for n in names)])
    return table(["coupling scale", *names], lines)


def growth_section(rows: list[Row]) -> str:
    lines = []
    for r in rows:
        l1 = [f"{r[k]:.3f}" if k in r else "" for k in ("l1 precision", "l1 recall", "l1 seconds")]
        own = [f"{r['precision']:.3f}", f"{r['recall']:.3f}", f"{r['seconds']:.1f}"]
        lines.append([f"{r['seed']}", *own, *l1])
    head = ["seed", "precision", "recall", "CPU s", "L1: precision", "recall", "CPU s"]
    return table(head, lines)


SECTIONS: dict[str, Callable[[Any], str]] = {
    "denoising": denoising_section,
    "warm": warm_section,
    "ising": ising_section,
    "growth": growth_section,
    "chains": learning_chains.section,
    "tables": learning_tables.section,
    "gradients": learning_gradients.section,
}


def page(results: dict[str, Any]) -> dict[str, str]:
    """Sections of the page by part."""
    return {name: make(results[name]) for name, make in SECTIONS.items() if results.get(name)}


PARTS: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    "denoising": denoising,
    "warm": warm,
    "ising": ising,
    "growth": growth,
}
#: Parts with a script of their own, ``learning_NAME.py``: a process each, since these set threads
#: of other libraries before they are imported.
SCRIPTS = ("chains", "tables", "gradients")


def run_script(part: str, args: argparse.Namespace) -> None:
    """Run a part that has a script of its own."""
    if part == "chains" and not args.treebank:
        print("chains: left out, give --treebank TRAIN.conllu.gz DEV.conllu.gz")
        return
    given = [*(args.treebank if part == "chains" else []), *(["--dry"] if args.dry else [])]
    script = Path(__file__).with_name(f"learning_{part}.py")
    subprocess.run([sys.executable, script, *given], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", help=", ".join([*PARTS, *SCRIPTS]))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--images", help="folder with noisy/bimodal.npz")
    parser.add_argument("--treebank", nargs=2, metavar=("TRAIN", "DEV"), help="for chains")
    parser.add_argument("--cost", type=float, default=0.003, help="factor cost of growth")
    parser.add_argument("--quick", action="store_true", help="without the slow rivals")
    parser.add_argument("--dry", action="store_true", help="print only")
    parser.add_argument("--page", action="store_true", help="write the page from what is stored")
    args = parser.parse_args()
    pin()
    results = Results(FILE, args.dry)
    for part in [] if args.page else args.parts or [*PARTS, *SCRIPTS]:
        if part in SCRIPTS:
            run_script(part, args)
            continue
        if part not in PARTS:
            parser.error(f"no part {part}: choose from {', '.join([*PARTS, *SCRIPTS])}")
        results.keep(part, PARTS[part](args))
    for name, text in page((results if args.dry else Results(FILE)).parts).items():
        print(f"\n{name}\n{text}")
        if not args.dry:
            write_section(PAGE, name, text)


if __name__ == "__main__":
    main()
