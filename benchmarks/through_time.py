"""Networks through time beside hmmlearn, pgmpy and pyAgrum: ``python benchmarks/through_time.py``.

One pinned core and one thread, in one process (``pip install hmmlearn pgmpy pyagrum`` first), and
ratios once more in a process as anybody runs it; the libraries take turns, and a time is the median
of CPU seconds over turns.

* ``hmm``: 1,000 sequences of 100 symbols, of 20, from 8 hidden states: marginals of all states, the
  best sequences, ten steps of EM from the same tables. hmmlearn runs in both its modes. Ours begins
  with columns of cases and symbols, and ends with an answer.
* ``slices``: 12 binary variables, of which 5 persist; 1,000 steps, of which 30 % of the cells are
  observed; all marginals. pgmpy's DBNInference gets the first 50 steps, and pyAgrum's
  LazyPropagation the unrolled network, whose making is not counted.
* ``long``: 100,000 steps; and what a stream's memory grows by from 1,000 to 1,000,000 steps.

Writes the section "measured" of docs/reference/time.md.
"""

from __future__ import annotations

import argparse
import datetime
import logging
import resource
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import minfer
from minfer import Dynamic, interop
from minfer.learn import DynamicNetwork
from minfer_experiments.measure import (
    cpu_name,
    cpu_seconds,
    in_both_ways,
    in_turn,
    is_loose,
    medians,
    pin,
    timed,
)
from minfer_experiments.pages import number, say, table, write_section
from places import DOCS

HIDDEN, SYMBOLS, LENGTH, SEQUENCES, STEPS_OF_EM = 8, 20, 100, 1_000, 10
VARIABLES, PERSIST, STEPS, FIRST_STEPS, OBSERVED = 12, 5, 1_000, 50, 0.3
Times = dict[str, float]


def rows_of(x: np.ndarray) -> np.ndarray:
    return x / x.sum(axis=-1, keepdims=True)


def hmm(turns: int) -> list[list[str]]:
    """Rows of the table: jobs, ours, both modes of hmmlearn, and by how much we are faster."""
    from hmmlearn.hmm import CategoricalHMM

    rng = np.random.default_rng(0)
    tables = [
        rows_of(rng.gamma(shape, size=size) + 0.01)
        for shape, size in ((1.0, HIDDEN), (0.5, (HIDDEN, HIDDEN)), (0.5, (HIDDEN, SYMBOLS)))
    ]
    model = Dynamic.hmm(*tables)
    drawn = model.sample(SEQUENCES, LENGTH, seed=1)
    rows = {"case": drawn.case, "symbol": drawn["symbol"]}
    columns, lengths = drawn["symbol"][:, None], [LENGTH] * SEQUENCES

    def other(mode: str) -> Any:
        made = CategoricalHMM(
            HIDDEN, implementation=mode, init_params="", n_iter=STEPS_OF_EM, tol=-np.inf
        )
        made.startprob_, made.transmat_, made.emissionprob_ = tables
        made.n_features = SYMBOLS
        return made

    def learned() -> DynamicNetwork:
        how = {"start": "structure", "prior": "none", "tol": 0.0, "max_iterations": STEPS_OF_EM}
        return DynamicNetwork(model, **how).fit(rows)

    theirs = {mode: other(mode) for mode in ("scaling", "log")}
    jobs: dict[str, dict[str, Callable[[], Any]]] = {
        "smoothing": {
            "minfer": lambda: model.smooth(rows, workers=1),
            **{k: lambda m=m: m.predict_proba(columns, lengths) for k, m in theirs.items()},
        },
        "best sequences (Viterbi)": {
            "minfer": lambda: model.best(rows, workers=1),
            **{k: lambda m=m: m.decode(columns, lengths) for k, m in theirs.items()},
        },
        f"EM, {STEPS_OF_EM} steps": {
            "minfer": learned,
            **{k: lambda k=k: other(k).fit(columns, lengths) for k in theirs},
        },
    }
    mine, other_p = model.smooth(rows)["state"], theirs["log"].predict_proba(columns, lengths)
    assert np.abs(mine - other_p).max() < 1e-9
    assert np.isclose(model.best(rows).log_score.sum(), theirs["log"].decode(columns, lengths)[0])
    em, peer = learned().model_, other("log").fit(columns, lengths)
    for a, b in ((em.step[0].table, peer.transmat_), (em.step[1].table, peer.emissionprob_)):
        assert np.abs(a - b).max() < 1e-6, np.abs(a - b).max()
    out = []
    for job, calls in jobs.items():
        found = medians(in_turn(calls, turns))
        say(f"{job}: {found}")
        ratio = min(found["scaling"], found["log"]) / found["minfer"]
        times = [number(1e3 * found[k]) for k in ("minfer", "scaling", "log")]
        out.append([job, *times, f"{ratio:.2g}x"])
    return out


def drawn_slices(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """The first slice, the step and the states: the first ``PERSIST`` variables persist."""
    names = [f"v{k}" for k in range(VARIABLES)]
    first, step = {}, {}
    for k, name in enumerate(names):
        n = min(k, int(rng.integers(1, 3)))
        own = [names[p] for p in rng.choice(k, n, replace=False)] if k else []
        before = [f"{name}@-1"] * (k < PERSIST)
        for parents, into in ((own, first), (own + before, step)):
            into[name] = parents, rows_of(rng.gamma(1.0, size=(2,) * (len(parents) + 1)) + 0.05)
    return first, step, dict.fromkeys(names, 2)


def slices(turns: int) -> list[list[str]]:
    import pyagrum as gum

    rng = np.random.default_rng(2)
    given = drawn_slices(rng)
    model = Dynamic(*given)
    drawn = model.sample(1, STEPS, seed=3).states
    seen = np.where(rng.random(drawn.shape) < OBSERVED, drawn, -1)
    unrolled = interop.to_pyagrum(model.unroll(STEPS))
    names = list(model.names)
    evidence = {f"{names[v]}@{t}": int(seen[t, v]) for t, v in np.argwhere(seen >= 0)}
    gum.setNumberOfThreads(1)

    def pyagrum() -> np.ndarray:
        engine = gum.LazyPropagation(unrolled)
        engine.setEvidence(evidence)
        engine.makeInference()
        nodes = [unrolled.idFromName(f"{v}@{t}") for t in range(STEPS) for v in names]
        return np.array([engine.posterior(node).toarray()[1] for node in nodes])

    def ours(steps: int) -> np.ndarray:
        return Dynamic(*given).smooth(seen[:steps], names, workers=1).probabilities[:, 1::2]

    found = medians(
        in_turn({"minfer": lambda: ours(STEPS), "pyAgrum": pyagrum}, max(turns // 3, 1))
    )
    off = np.abs(ours(STEPS).ravel() - pyagrum()).max()
    few = medians(in_turn({"minfer": lambda: ours(FIRST_STEPS)}, turns))["minfer"]
    seconds, theirs = timed(lambda: pgmpy(given, seen[:FIRST_STEPS]))
    pgmpy_off = np.nanmax(np.abs(theirs - ours(FIRST_STEPS)))
    say(f"{found} {few} pgmpy {seconds}, off by {off:.2g} and {pgmpy_off:.2g}")

    def row(what: str, other: float, mine: float, off: float) -> list[str]:
        times = [number(1e3 * x) for x in (other, mine)]
        return [what, *times, f"{other / mine:,.0f}x", f"{off:.1g}"]

    return [
        row(f"pyAgrum, {STEPS:,} steps, unrolled", found["pyAgrum"], found["minfer"], off),
        row(f"pgmpy, the first {FIRST_STEPS} steps", seconds, few, pgmpy_off),
    ]


def pgmpy(given: Any, seen: np.ndarray) -> np.ndarray:
    """All marginals by DBNInference, (T, V); NaN where it does not answer about what is known."""
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.inference import DBNInference
    from pgmpy.models import DynamicBayesianNetwork

    first, step, states = given
    names = list(states)

    def node(parent: str) -> tuple[str, int]:
        return (parent.removesuffix("@-1"), 0 if parent.endswith("@-1") else 1)

    model, tables = DynamicBayesianNetwork(), []
    model.add_nodes_from(names)
    for t, own in enumerate((first, step)):
        for name, (parents, values) in own.items():
            listed = [node(p) if t else (p, 0) for p in parents]
            model.add_edges_from([(p, (name, t)) for p in listed if t == 0 or p[1] == 0])
            flat = values.reshape(-1, values.shape[-1]).T
            cards = [2] * len(listed)
            tables.append(TabularCPD((name, t), 2, flat, listed or None, cards or None))
    model.add_cpds(*tables)
    model.initialize_initial_state()
    evidence = {(names[v], t): int(seen[t, v]) for t, v in np.argwhere(seen >= 0).tolist()}
    asked = [(names[v], t) for t, v in np.argwhere(seen < 0).tolist()]
    found = DBNInference(model).backward_inference(asked, evidence)
    out = np.full(seen.shape, np.nan)
    for (name, t), factor in found.items():
        out[t, names.index(name)] = factor.values[1]
    return out


def long(n_stream: int) -> list[str]:
    rng = np.random.default_rng(4)
    model = Dynamic(*drawn_slices(rng))
    states = model.sample(1, 100_000, seed=5).states
    seen = np.where(rng.random(states.shape) < OBSERVED, states, -1)
    asks = {"filter": model.filter, "smooth": model.smooth, "best": model.best}
    times = []
    for name, ask in asks.items():
        more = {} if name == "best" else {"targets": "v0"}
        times.append(f"`{name}` {cpu_seconds(lambda f=ask, m=more: f(seen, workers=1, **m)):.2g} s")
    out = [f"* 100,000 steps of the second network: {', '.join(times)}."]
    stream = model.stream("v0")
    rows = [{f"v{v}": int(row[v]) for v in np.flatnonzero(row >= 0)} for row in seen[:1000]]

    def observe(n: int) -> None:
        for k in range(n):
            stream.observe(rows[k % 1000])

    observe(1000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = cpu_seconds(lambda: observe(n_stream - 1000))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    each = 1e6 * seconds / (n_stream - 1000)
    out.append(
        f"* A stream of {n_stream:,} observations: {each:.0f} µs each, "
        f"and the peak of memory is {grown:.1f} MiB higher than after 1,000."
    )
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--stream", type=int, default=1_000_000)
    parser.add_argument("--dry", action="store_true", help="write no page")
    asked = parser.parse_args()

    def measured() -> list[Any]:
        pin()
        logging.disable(logging.WARNING)
        warnings.filterwarnings("ignore")
        last = [] if is_loose() else long(asked.stream)
        return [hmm(asked.turns), slices(asked.turns), last]

    if (found := in_both_ways(__file__, measured)) is None:
        return
    first, second, last = found["pinned"]
    for rows, at, free in zip((first, second), (-1, -2), found["loose"]):
        for row, loose in zip(rows, free):
            row.insert(len(row) + at + 1, loose[at])
    import hmmlearn
    import pgmpy as pgmpy_module
    import pyagrum

    versions = (
        f"hmmlearn {hmmlearn.__version__}, pgmpy {pgmpy_module.__version__}, pyAgrum "
        f"{pyagrum.__version__}"
    )
    text = "\n".join([
        f"Measured {datetime.date.today()} on {cpu_name()}, one core: minfer {minfer.__version__}, "
        f"{versions}. ms.",
        "",
        table(["HMM", "minfer", "hmmlearn, scaling", "hmmlearn, log", "speed-up", "not pinned"],
              first),
        "",
        table(["slices of 12 variables", "ms", "minfer", "speed-up", "not pinned", "difference"],
              second),
        "",
        *last,
    ])  # fmt: skip
    say(text)
    if not asked.dry:
        write_section(DOCS / "time.md", "measured", text)


if __name__ == "__main__":
    main()
