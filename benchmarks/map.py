"""The best assignment where no clique tree fits: what it takes.

    python benchmarks/map.py ising [--side 512]            # proven by a flow
    python benchmarks/map.py potts [--side 128] [--pgmax PYTHON]
    python benchmarks/map.py uai [--data DIR] [--seconds 10] [NAME ...]
    python benchmarks/map.py reference [--toulbar2 PYTHON] [--seconds 60] [NAME ...]

``potts``: a noisy picture with 12 labels; the time until (upper - score) / (upper - score of the
unary argmax) is at most 1 %, and what PGMax's dual solver (SDLP) needs to reach the same score:
PYTHON is an interpreter with pgmax, minfer's own numbers travel in a file. Its compilation is not
counted, its steps are run in chunks, at several temperatures, the best of which counts. ``uai``:
clique trees switched off above 2^16 cells; the score against those that toulbar2 proved within a
minute. ``reference`` makes these: each model goes to pytoulbar2 (PYTHON is an interpreter that has
it) in costs of some 16 digits together and without a known score, and ``results/map_toulbar2.json``
keeps the seconds, the log score of the assignment that came back, as minfer scores it, and whether
toulbar2's own bound is within 1e-6 of that score, which is what counts as proven. Models that
are in the file are not run again unless named.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from places import RESULTS, UAI, uai_models
from stopwatch import measure

PROVEN = RESULTS / "map_toulbar2.json"
LABELS, COUPLING, NOISE = 12, 1.0, 1.0
CLOSE = 1e-6  # scores that differ by less are the same


def ising(side: int) -> None:
    import minfer
    from minfer import FactorGraph

    rng = np.random.default_rng(0)
    for strength in (0.5, 1.0, 2.0):
        field = rng.normal(size=(side, side))
        pairs = strength * np.abs(rng.normal(size=2 * side * (side - 1)))
        graph = FactorGraph.grid(field, pairs)
        cpu, best = measure.timed(lambda graph=graph: minfer.mpe(graph))
        print(
            f"{side}x{side}, couplings {strength} |N(0, 1)|: {best.status} by {best.steps[0]}, "
            f"gap {best.gap:.1e}, {cpu:.1f} s of CPU",
            flush=True,
        )


def picture(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Unary log-weights (pixels, labels) of a noisy picture of discs, and edges."""
    from minfer.graph import grid_edges

    rng = np.random.default_rng(1)
    true = np.zeros((side, side), dtype=np.int64)
    yy, xx = np.mgrid[:side, :side]
    for _ in range(40):
        cy, cx, r = (
            rng.integers(0, side),
            rng.integers(0, side),
            rng.integers(side // 20, side // 5),
        )
        true[(yy - cy) ** 2 + (xx - cx) ** 2 < r * r] = rng.integers(LABELS)
    unary = rng.normal(size=(side, side, LABELS)) * NOISE
    unary[yy, xx, true] += 1.0
    return unary.reshape(-1, LABELS), grid_edges(side, side)


def potts_score(unary: np.ndarray, edges: np.ndarray, x: np.ndarray) -> float:
    same = x[edges[:, 0]] == x[edges[:, 1]]
    return float(unary[np.arange(len(x)), x].sum() + COUPLING * same.sum())


def potts(side: int, pgmax: str | None) -> None:
    import minfer
    from minfer import FactorGraph

    unary, edges = picture(side)
    graph = FactorGraph.empty([LABELS] * len(unary))
    graph = graph.add_tables([[v] for v in range(len(unary))], list(unary))
    graph = graph.add_potts(edges, COUPLING)
    minfer.mpe(graph, time_limit=0.1)  # compiled
    start = potts_score(unary, edges, unary.argmax(axis=1))
    whole, best = measure.timed(lambda: minfer.mpe(graph, gap=1e-9))
    wanted = 0.01 * (best.upper - start) / 1.01
    seconds, some = measure.timed(lambda: minfer.mpe(graph, gap=wanted))
    share = some.gap / (some.upper - start)
    print(
        f"{side}x{side}, {LABELS} labels: {100 * share:.2g} % of the way from unary argmax left "
        f"after {seconds:.2f} s of CPU (score {some.log_score:.2f}, upper {some.upper:.2f}); "
        f"at the end {best.status}, gap {best.gap:.3g}, {whole:.1f} s"
    )
    if pgmax is None:
        print("PGMax: no interpreter given (--pgmax)")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        np.savez(path, unary=unary, edges=edges, target=some.log_score)
        done = subprocess.run(
            [pgmax, __file__, "pgmax", "--file", str(path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    print(done.stdout or f"PGMax does not run: {done.stderr.strip().splitlines()[-1]}")
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            answer = json.loads(line)
            reached = answer["reached"]
            text = f"reached after {reached:.1f} s" if reached else f"not in {answer['ran']:.0f} s"
            ratio = (reached or answer["ran"]) / seconds
            print(
                f"PGMax at {answer['temperature']}: {text}, best {answer['best']:.2f}: {ratio:.0f}x"
            )


def run_pgmax(path: str) -> None:
    """In the interpreter with pgmax."""
    from tools import PGMax

    tool = PGMax()
    tool.setup()
    data = np.load(path)
    unary, edges, target = data["unary"], data["edges"], float(data["target"])
    variables = tool.vgroup.NDVarArray(num_states=LABELS, shape=(len(unary),))
    graph = tool.fgraph.FactorGraph(variable_groups=variables)
    pairs = [[variables[a], variables[b]] for a, b in edges.tolist()]
    graph.add_factors(
        tool.fgroup.PairwiseFactorGroup(
            variables_for_factors=pairs, log_potential_matrix=COUPLING * np.eye(LABELS)
        )
    )
    solver = tool.infer.build_inferer(graph.bp_state, backend="sdlp")
    chunk = 25
    for temperature in (0.0, 0.01, 0.1):
        start = solver.init(evidence_updates={variables: unary})
        solver.run(start, logsumexp_temp=temperature, num_iters=chunk)  # compiled
        arrays, spent, reached, best = start, 0.0, None, -math.inf
        while spent < 60.0 and reached is None:
            with measure.Stopwatch() as step:
                arrays = solver.run(arrays, logsumexp_temp=temperature, num_iters=chunk)
                tool.jax.block_until_ready(arrays.ftov_msgs)
            spent += step.cpu
            x = np.asarray(solver.decode_primal_unaries(arrays)[0][variables])
            best = max(best, potts_score(unary, edges, x))
            if best >= target:
                reached = spent
        answer = {"temperature": temperature, "reached": reached, "ran": spent, "best": best}
        print(json.dumps(answer), flush=True)


def uai(data: Path, seconds: float, names: list[str]) -> None:
    import minfer
    from minfer_experiments import pages
    from minfer_experiments.results import Results

    known = Results(PROVEN).parts
    last = "toulbar2, proven within a minute"
    print(pages.table(["model", "score", "upper", "status", "s", last], []))
    reached = total = 0
    for model in uai_models(data, names):
        graph = model.graph
        with measure.Stopwatch() as spent:
            best = minfer.mpe(graph, time_limit=seconds, max_gib=2.0**16 * 8 / 2**30)
        row = known.get(model.name, {})
        other = row["score"] if row.get("proven") else None
        if other is not None:
            total += 1
            reached += best.log_score >= other - CLOSE
        shown = "-" if other is None else f"{other:.6g}"
        numbers = f"{best.log_score:.6g}", f"{best.upper:.6g}"
        cells = [model.name, *numbers, f"{best.status}", f"{spent.wall:.1f}", shown]
        print(pages.line(cells), flush=True)
    print(f"\ntoulbar2's proven score reached on {reached} of {total}")


def reference(data: Path, python: str, seconds: float, names: list[str], most: float) -> None:
    """What toulbar2 finds and proves; ends after the model during which ``most`` seconds pass."""
    from minfer.engine.conditioning import condition
    from minfer.queries.map import toulbar
    from minfer.queries.map.problem import lay_out
    from minfer_experiments.results import Results

    known = Results(PROVEN)
    whole = measure.Stopwatch()
    for model in uai_models(data, names):
        if model.name in known.parts and not names:
            continue
        problem = lay_out(condition(model.graph))
        with measure.Stopwatch() as spent:
            answer = toulbar.solve(problem, -math.inf, seconds, python)
        score = bound = None
        if answer is not None:
            x, above = answer
            score = None if x is None else problem.score(x)
            bound = above / problem.scale if math.isfinite(above) else None
        proven = score is not None and bound is not None and bound - score <= CLOSE
        row = {"score": score, "bound": bound, "proven": proven, "seconds": round(spent.wall, 1)}
        print(model.name, row, flush=True)
        known.keep(model.name, row)
        if whole.wall > most:
            break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=["ising", "potts", "uai", "reference", "pgmax"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--side", type=int)
    parser.add_argument("--pgmax")
    parser.add_argument("--file")
    parser.add_argument("--data", type=Path, default=UAI)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--toulbar2", default=sys.executable)
    parser.add_argument("--most", type=float, default=math.inf, help="seconds, of reference")
    a = parser.parse_intermixed_args()
    if a.part == "ising":
        ising(a.side or 512)
    elif a.part == "potts":
        potts(a.side or 128, a.pgmax)
    elif a.part == "uai":
        uai(a.data, a.seconds or 10.0, a.names)
    elif a.part == "reference":
        reference(a.data, a.toulbar2, a.seconds or 60.0, a.names, a.most)
    else:
        run_pgmax(a.file)


if __name__ == "__main__":
    main()
