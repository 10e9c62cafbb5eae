"""One list of questions about drawn models, for whatever machine code answers them.

    python tests/test_three_ways.py --models 2000                  compiled here, and plain Python
    python tests/test_three_ways.py --models 2000 --site FOLDER    and an installed wheel

Four kinds of answers: *exact* ones, which are done in so many steps (marginals of clique trees and
circuits, queries, certified intervals, sums over trees and sequences), must be equal to 1e-12;
*bounds*, tightened as long as that pays, must hold log Z; *iterative* solvers must end with the
same status and, where they have converged, with marginals within their tolerance; *sampled* ones
must agree within the errors they state. Each process tells where its kernels came from: of a
wheel's answers, all did from the wheel, whatever this user has compiled before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from draws import draws
from minfer.kernels.compiling import plain as _plain

ROOT = Path(__file__).resolve().parents[1]
EXACT, TOLERANCE, TIMES = 1e-12, 1e-4, 20.0
Answer = dict[str, Any]


def answers(seed: int) -> Answer:
    """What one drawn model gives: numbers, by the kind of answer and its name."""
    import numpy as np

    import minfer
    from minfer.errors import MinferError
    from minfer.parsing import tree_marginals
    from oracle.models import SMALL

    rng = np.random.default_rng(seed)
    graph = [*SMALL.values()][seed % len(SMALL)](rng).graph
    found: Answer = {}

    def note(name: str, ask: Any) -> None:
        try:
            found[name] = ask()
        except MinferError as error:
            found[name] = type(error).__name__

    def exact() -> Any:
        answer = minfer.Exact(method="clique-tree")(graph)
        return [*answer.probs, answer.log_z]

    def asked() -> Any:
        target = int(rng.integers(graph.n_variables))
        return list(np.asarray(minfer.query(graph, target)))

    def bounds() -> Any:
        found = minfer.intervals(graph, None, tol=0.0, work=2000)
        return [*found.lo, *found.hi]

    def trees(projective: bool, many: int) -> Any:
        scores = rng.normal(0.0, float(rng.choice([1.0, 20.0])), (many, 4, 4))
        arcs, log_z = tree_marginals(scores if many > 1 else scores[0], projective=projective)
        return [*np.ravel(arcs), *np.ravel(log_z)]

    def circuit() -> Any:
        answer = minfer.compile(graph)()
        return [*answer.probs, answer.log_z]

    def smoothed() -> Any:
        first, *rows = rng.dirichlet(np.ones(3), 7)
        model = minfer.Dynamic.hmm(first, rows[:3], rows[3:])
        seen = [{"symbol": int(s)} for s in rng.integers(3, size=9)]
        best = np.ravel(model.best(seen).log_score)
        return [*np.ravel(model.smooth(seen, "state")["state"]), *best]

    def buckets() -> Any:
        bounds = minfer.MiniBuckets(i_bound=3)(graph).log_z_bounds
        return "nothing proven" if bounds is None else list(bounds)

    def solved(solver: Any) -> Any:
        answer = solver(graph)
        return [str(answer.status), *(answer.probs if answer.converged else ())]

    def sampled(solver: Any) -> Any:
        answer = solver(graph)
        return [list(answer.probs), float(answer.error_estimate)]

    note("exact marginals", exact)
    if graph.n_variables:
        note("exact query", asked)
    note("exact intervals", bounds)
    note("exact trees", lambda: trees(seed % 2 == 0, 1 + seed % 3 * 4))
    note("exact circuit", circuit)
    note("exact sequences", smoothed)
    note("bounds of mini-buckets", buckets)
    settings = {"tol": TOLERANCE / 10, "max_iters": 200}
    note("iterative bp", lambda: solved(minfer.BeliefPropagation(**settings)))
    schedule = ("flooding", "residual")[seed % 2]
    note(f"iterative {schedule}", lambda: solved(
        minfer.BeliefPropagation(schedule=schedule, damping=0.3, **settings)))  # fmt: skip
    note("iterative trw", lambda: solved(minfer.TreeReweighted(**settings)))
    note("iterative mean field", lambda: solved(minfer.MeanField(**settings)))
    if seed % 8 == 0:
        note("sampled gibbs", lambda: sampled(minfer.Gibbs(n_sweeps=200, burn_in=50)))
    return json.loads(json.dumps(found, default=float))


def differences(one: Answer, other: Answer) -> Iterator[str]:
    """What does not agree, in words."""
    import numpy as np

    for name in {**one, **other}:
        a, b = one.get(name), other.get(name)
        if isinstance(a, str) or isinstance(b, str) or a is None or b is None:
            if a != b:
                yield f"{name}: {a} and {b}"
        elif name.startswith("sampled"):
            gap = np.abs(np.subtract(a[0], b[0])).max(initial=0.0)
            if gap > TIMES * (a[1] + b[1]) + 1e-9:
                yield f"{name}: {gap} where errors are {a[1]} and {b[1]}"
        elif name.startswith("bounds"):
            for given in (one, other):
                (lower, upper), log_z = given[name], given["exact marginals"][-1]
                slip = EXACT * (1.0 + abs(log_z))  # of log Z
                if not lower - slip <= log_z <= upper + slip:
                    yield f"{name}: {lower} to {upper}, but log Z is {log_z}"
        else:
            most = EXACT if name.startswith("exact") else TOLERANCE
            if name.startswith("iterative") and a[0] != b[0]:
                yield f"{name}: {a[0]} and {b[0]}"
                continue
            a, b = (np.array([x for x in v if not isinstance(x, str)], float) for v in (a, b))
            scale = 1.0 + np.abs(np.where(np.isfinite(a), a, 0.0))
            same = (a == b) | (np.abs(a - b) <= most * scale) if a.shape == b.shape else False
            if not np.all(same):
                yield f"{name}: {a} and {b}"


def answered(seeds: range, way: str = "compiled", site: Path | None = None) -> dict[int, Answer]:
    """The answers of a process of its own, with the kernels that this way has."""
    places = [str(ROOT / "src" if site is None else site), str(ROOT / "tests")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    words = [str(seeds.start), str(seeds.stop), str(seeds.step)]
    call = [sys.executable, "-W", "ignore", __file__, "--answer", *words]
    with tempfile.TemporaryDirectory() as empty:
        if way == "plain":
            environment["NUMBA_DISABLE_JIT"] = "1"
        if way == "shipped":
            environment["MINFER_CACHE_DIR"] = empty
        done = subprocess.run(call, env=environment, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout)
    assert (found["shipped"] > 0) == (way == "shipped"), found["shipped"]
    assert not (way == "shipped" and found["compiled"]), f"{found['compiled']} kernels compiled"
    return {int(seed): answer for seed, answer in found["answers"].items()}


def kernels() -> dict[str, int]:
    """How many kernels of this process came with a wheel, and how many were compiled just now."""
    from minfer.kernels.compiling import jit as _jit

    misses = [k.stats.cache_misses for k in _jit._KERNELS if hasattr(k, "stats")]
    return {"shipped": _jit.READY.loaded, "compiled": sum(sum(m.values()) for m in misses)}


@pytest.mark.drawn
@pytest.mark.skipif(_plain.OFF, reason="compares compiled code with plain Python")
def test_compiled_kernels_say_what_plain_python_says():
    for seed, plain in answered(range(draws(40)), "plain").items():
        assert not list(differences(answers(seed), plain)), seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--site", type=Path, help="a folder in which a wheel is installed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--answer", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        found = {seed: answers(seed) for seed in range(*options.answer)}
        print(json.dumps({"answers": found, **kernels()}))
        return
    sites = {"compiled": None, "plain": None, "shipped": options.site}
    ways = [way for way in sites if way != "shipped" or options.site]
    steps = [range(k, options.models, 20) for k in range(20)]
    given: dict[str, dict[int, Answer]] = {}
    with ThreadPoolExecutor(options.workers) as pool:
        for way in ways:
            parts = pool.map(lambda seeds, w=way: answered(seeds, w, sites[w]), steps)
            given[way] = {seed: answer for part in parts for seed, answer in part.items()}
            print(f"{way}: {len(given[way])} models", flush=True)
    wrong = 0
    for way in ways[1:]:
        for seed, answer in sorted(given["compiled"].items()):
            for text in differences(answer, given[way][seed]):
                wrong += 1
                print(f"model {seed}, compiled and {way}: {text}")
    print(f"{wrong} differences")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
