"""Tables of Bayesian networks from cases, against pgmpy and pyAgrum: CPU time.

    python benchmarks/learning_tables.py
    python benchmarks/learning_tables.py --networks alarm --rows 10000 --dry

* ``counts``: a data frame of names to tables, maximum likelihood and BDeu; pgmpy's
  ``DiscreteMLE`` and ``DiscreteBayesianEstimator`` by ``model.fit``, pyAgrum's ``BNLearner``.
* ``em``: a fifth of the cells of alarm is missing. pyAgrum's EM takes some milliseconds a row and
  iteration, so it gets twice as many rows again and again until ``--limit`` CPU seconds are spent,
  and as many iterations as we made on these; its likelihood is compared on the last of them, by
  us, and its time for all rows is extrapolated from there. pgmpy's EM (``DiscreteEM``) is for
  hidden columns: it drops rows with a missing cell first, and no row is without, so it has no line.

The libraries take turns in one process, and a time is the median over turns: once on one core with
one thread, and once in a process as anybody starts it, of which the ratios are told. Writes
the part "tables" of benchmarks/results/learning.json and of docs/reference/learning-measured.md.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import minfer
from learning_page import keep
from minfer import FactorGraph, interop
from minfer.learn import BayesianNetwork
from minfer_experiments.measure import (
    cpu_name,
    cpu_seconds,
    in_both_ways,
    in_turn,
    is_loose,
    medians,
    timed,
)
from minfer_experiments.pages import table
from networks_peers import folder


def cases(graph: FactorGraph, n: int, seed: int) -> pd.DataFrame:
    """Rows drawn from a network, by names."""
    states = np.asarray(minfer.sample(graph, n, seed=seed))
    return pd.DataFrame(
        {
            graph.name(v): np.array(graph.states(v), dtype=object)[states[:, v]]
            for v in range(graph.n_variables)
        }
    )


def edges_of(graph: FactorGraph) -> list[tuple[str, str]]:
    return [(p, graph.name(v)) for v in range(graph.n_variables) for p in graph.parents(v)]


def cpu_or_nan(call: Callable[[], Any]) -> float:
    """CPU seconds of a call; NaN where it fails on a state that the rows do not have, and such."""
    try:
        return cpu_seconds(call)
    except Exception as error:
        print(f"{type(error).__name__}: {str(error)[:100]}")
        return float("nan")


def counts(name: str, n: int, turns: int) -> list[dict[str, Any]]:
    """Medians of counting, without a prior and with BDeu."""
    import pyagrum as gum
    from pgmpy.models import DiscreteBayesianNetwork
    from pgmpy.parameter_estimator import DiscreteBayesianEstimator, DiscreteMLE

    graph = minfer.read(folder() / f"{name}.bif.gz")
    frame, edges = cases(graph, n, 1), edges_of(graph)
    bare = interop.to_pyagrum(graph)

    def pgmpy(estimator: Any) -> Any:
        model = DiscreteBayesianNetwork(edges)
        model.add_nodes_from(list(frame))
        return model.fit(frame, estimator=estimator)

    def pyagrum(bdeu: bool) -> Any:
        learner = gum.BNLearner(frame, bare)
        if bdeu:
            learner.useBDeuPrior(10.0)
        else:
            learner.useNoPrior()
        return learner.learnParameters(bare.dag())

    rows = []
    for prior in ("none", "bdeu"):
        estimator = (
            DiscreteMLE() if prior == "none"
            else DiscreteBayesianEstimator(prior_type="BDeu", equivalent_sample_size=10)
        )  # fmt: skip
        calls: dict[str, Callable[[], Any]] = {
            "minfer": lambda prior=prior: BayesianNetwork(edges, prior=prior, strength=10.0).fit(
                frame
            ),
            "pgmpy": lambda estimator=estimator: pgmpy(estimator),
            "pyAgrum": lambda prior=prior: pyagrum(prior == "bdeu"),
        }
        row = {"network": name, "rows": n, "prior": prior}
        row |= medians(in_turn(calls, turns, timer=cpu_or_nan))
        rows.append(row)
        print(row, flush=True)
    return rows


def em(n: int, limit: float, turns: int) -> dict[str, Any]:
    """EM on alarm with a fifth of the cells missing."""
    import pyagrum as gum

    graph = minfer.read(folder() / "alarm.bif.gz")
    frame = cases(graph, n, 1)
    frame = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.2)
    BayesianNetwork(graph, max_iterations=1).fit(frame.head(20))
    found = [timed(lambda: BayesianNetwork(graph).fit(frame)) for _ in range(turns)]
    net = found[0][1]
    rising = bool((np.diff(net.trace_) >= 0).all())
    few, spent, theirs_time = 50, 0.0, 0.0
    while spent + 2.5 * theirs_time <= limit and few < n:  # twice as many rows as before
        few = min(2 * few, n)
        part = frame.head(few)
        ours_time, ours = timed(lambda part=part: BayesianNetwork(graph).fit(part))
        bare = interop.to_pyagrum(graph)
        learner = gum.BNLearner(part.fillna("?").astype(str), bare, ["?"])
        learner.useSmoothingPrior(1.0)
        learner.useEM(1e-6)
        learner.EMsetMaxIter(ours.n_iter_ + 1)
        theirs_time, theirs = timed(
            lambda bare=bare, learner=learner: learner.learnParameters(bare.dag())
        )
        iterations = learner.EMnbrIterations()
        spent += theirs_time
        print(f"pyAgrum: {few} rows, {theirs_time:.1f} s, {iterations} iterations", flush=True)
    own = ours.score_samples(part).sum()
    ours.model_ = interop.from_pyagrum(theirs)
    row = {
        "rows": n, "iterations": net.n_iter_, "rising": rising, "status": net.status_,
        "seconds": statistics.median(x for x, _ in found), "few": few,
        "ours_few": ours_time, "ours_iterations": ours.n_iter_, "ours_likelihood": float(own),
        "pyagrum_few": theirs_time, "pyagrum_iterations": iterations,
        "pyagrum_likelihood": float(ours.score_samples(part).sum()),
    }  # fmt: skip
    row["pyagrum_all"] = theirs_time / few / iterations * n * (net.n_iter_ + 1)
    print(row, flush=True)
    return row


def section(measured: dict[str, Any]) -> str:
    """The section of the page."""
    counted, climbed, loose = measured["counts"], measured["em"], measured.get("loose")
    lines = []
    for k, row in enumerate(counted):
        ours = row["minfer"]
        cells = [row["network"], f"{row['rows']:,}", row["prior"], f"{1e3 * ours:.0f}"]
        for side in ("pgmpy", "pyAgrum"):
            if not np.isfinite(row[side]):
                cells.append("fails")
                continue
            ratio = f"{row[side] / ours:.1f}x"
            if loose:
                ratio += f"; {loose[k][side] / loose[k]['minfer']:.1f}x"
            cells.append(f"{1e3 * row[side]:.0f} ({ratio})")
        lines.append(cells)
    head = ["network", "rows", "prior", "minfer, ms", "pgmpy", "pyAgrum"]
    text = (
        "A data frame of names to tables, CPU time of one core, "
        f"{measured['processor']}, median. "
        + (
            "In brackets ratios of CPU time: on that core; and not pinned, all threads counted, as "
            "anybody runs it. "
            if loose
            else "Measured pinned alone. "
        )
        + "`benchmarks/learning_tables.py`.\n\n"
        + table(head, lines)
    )
    if climbed:
        r = climbed
        per = r["pyagrum_all"] / r["seconds"]
        text += (
            f"\n\nEM, alarm, a fifth of the cells missing, {r['rows']:,} rows: "
            f"{r['seconds']:.2f} s for {r['iterations']} iterations ({r['status']}), the penalised "
            f"likelihood {'rising' if r['rising'] else 'NOT rising'} at every step. pyAgrum's EM "
            f"takes {1e3 * r['pyagrum_few'] / r['few'] / r['pyagrum_iterations']:.1f} ms a row and "
            f"iteration, measured on {r['few']:,} rows ({r['pyagrum_few']:.0f} s); extrapolated to "
            f"all rows and our iterations that is {per:,.0f} times ours. The log-likelihood "
            f"of these {r['few']} rows is {r['ours_likelihood']:.2f} by ours after "
            f"{r['ours_iterations']} iterations and {r['pyagrum_likelihood']:.2f} by pyAgrum's "
            f"after {r['pyagrum_iterations']}. pgmpy's EM (`DiscreteEM`) is for hidden columns: "
            "it drops rows with missing cells, which leaves none here."
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", nargs="*", default=["asia", "alarm", "hailfinder"])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--limit", type=float, default=120.0, help="CPU s for pyAgrum's EM")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--dry", action="store_true", help="print only")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)

    def measured() -> dict[str, Any]:
        counted = [row for name in asked.networks for row in counts(name, asked.rows, asked.turns)]
        climbed = {} if is_loose() else em(asked.rows, asked.limit, asked.turns)
        return {"counts": counted, "em": climbed, "processor": cpu_name()}

    found = in_both_ways(__file__, measured)
    if found is None:
        return
    measured_both = {**found["pinned"], "loose": found["loose"]["counts"]}
    print(section(measured_both))
    if not asked.dry:
        keep("tables", measured_both, section(measured_both))


if __name__ == "__main__":
    main()
