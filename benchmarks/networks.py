"""Bayesian networks against pyAgrum and pgmpy: bnlearn's repository, as the pgmpy wheel holds it.

    python benchmarks/networks.py                           # everything: some ten minutes
    python benchmarks/networks.py --parts rows single --networks alarm pigs --dry

Writes ``benchmarks/results/networks.json`` and, from it, ``docs/reference/networks.md`` and a
section of ``docs/reference/peers.md``; what is not measured in a run stays as it was. ``--dry``
prints only, ``--check`` fails where an aim is missed, ``--parts`` without any writes the pages.

CPU time on one pinned core and, in a second process, as anybody runs it; each network of a part in
processes of its own. Compiling and imports are not counted. The libraries take turns, and a time is
the median over turns. Evidence: in each of ``--sets`` draws a fifth of the variables is observed
and one of the others is the target; rows are drawn from the network. A ratio is given as the median
over these draws, and the least of them.

* ``blank``: all posteriors without evidence, planning included, of every network.
* ``rows``: ``--rows`` rows that observe the same variables, one target or all posteriors. Ours from
  a model that was just read, everything included; once from an array of states, once from a data
  frame of names to one of answers. pyAgrum's loop in its best case: the variables that are observed
  stay the same, only values change, and the first row, in which it plans, is not counted.
* ``sets``: every row observes other variables.
* ``single``: one row, one call, by names, the question being known: ``minfer.query`` again, and a
  prepared ``Query``.
* ``cold``: a file read, a question planned and answered.
* ``cores``: two threads against one, wall-clock time.
* ``reading``: files alone.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import minfer
import networks_page
from minfer import Exact
from minfer.solvers.plans import Network
from minfer_experiments import measure
from minfer_experiments.measure import Stopwatch, cpu_seconds, in_turn, medians
from minfer_experiments.pages import write_sections
from minfer_experiments.results import Results
from networks_page import BIG, FIVE, SMALL
from networks_peers import (
    OBSERVED,
    Net,
    Pgmpy,
    PyAgrum,
    TooLong,
    all_networks,
    bundled,
    limit,
)
from places import DOCS, RESULTS

FILE, PAGE, PEERS_PAGE = RESULTS / "networks.json", DOCS / "networks.md", DOCS / "peers.md"
TURNS = 3
ENOUGH = 0.1  # CPU seconds in which pyAgrum's loop is timed in one turn
SLOW = 2.0  # seconds of one turn beyond which there is but one
PGMPY_LIMIT = 20.0  # seconds that pgmpy has for one row
READING = ("alarm", "hailfinder", "pigs", "link", "munin")
COLD_PGMPY = SMALL  # beyond these its reader is all there is to see

Row = dict[str, Any]


def turns(calls: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Each call in turn, some times; the median of what each returns."""
    slow = SLOW * len(calls)
    return medians(in_turn(calls, TURNS, warm_up=False, timer=measure.told, slow=slow))


class Loop:
    """A loop over rows that goes on where it was in the last turn."""

    def __init__(self, call: Callable[[Any], Any], rows: Sequence[Any], least: int = 2) -> None:
        self.call, self.rows, self.least = call, rows, least
        self.answers: list[Any] = []

    def __call__(self) -> float:
        """Seconds a row."""
        spent, n = Stopwatch(), 0
        while True:
            answer = self.call(self.rows[len(self.answers) % len(self.rows)])
            self.answers.append(answer)
            n += 1
            seconds = spent.cpu
            if n >= self.least and (seconds > ENOUGH or n >= 200):
                return seconds / n

    def difference(self, ours: NDArray[np.float64]) -> float:
        """The largest difference from our probabilities (N, sum S), of the rows that were asked."""
        n = min(len(self.answers), len(self.rows), len(ours))
        theirs = np.array([np.concatenate(a) for a in self.answers[:n]])
        return float(np.abs(ours[:n] - theirs).max())


def summary(name: str, draws: list[Row], against: dict[str, tuple[str, str]]) -> Row:
    """Median times over draws; ratios (theirs, ours), their median and the least."""
    row: Row = {"network": name, "sets": len(draws)}
    for key in draws[0]:
        values = [d[key] for d in draws if d.get(key) is not None]
        if key == "difference":
            row[key] = max(values)
        elif values:
            row[key] = statistics.median(values)
    for what, (theirs, ours) in against.items():
        ratios = [d[theirs] / d[ours] for d in draws if d.get(theirs) and d.get(ours)]
        if ratios:
            row[what], row[f"{what}, least"] = statistics.median(ratios), min(ratios)
    return row


# ---------------------------------------------------------------------- parts


def blank(net: Net) -> Row:
    """All posteriors without evidence."""
    models = [net.fresh() for _ in range(2 * TURNS + 2)]
    answer = Exact()(models.pop())
    minfer.query(models.pop())

    def theirs() -> list[Any]:
        return PyAgrum(net.pyagrum, net.names, None).answer()

    last: list[Any] = []
    net.pyagrum  # noqa: B018  # made before the clock runs
    row: Row = {"network": net.name, "nodes": net.graph.n_variables}
    row |= turns({
        "pyagrum": lambda: cpu_seconds(lambda: last.append(theirs())),
        "exact": lambda: cpu_seconds(lambda: Exact()(models.pop())),
        "query": lambda: cpu_seconds(lambda: minfer.query(models.pop())),
    })  # fmt: skip
    row["ratio"], row["ratio, query"] = row["pyagrum"] / row["exact"], row["pyagrum"] / row["query"]
    row["difference"] = float(np.abs(answer.probs - np.concatenate(last[0])).max())
    return row


def asked(net: Net, given: NDArray[np.int32], targets: list[int], got: list[Any]) -> float:
    """Seconds a row of a table of states, from a model that was just read; keeps the answer."""
    graph = net.fresh()
    return cpu_seconds(lambda: got.append(Network(graph).ask(given, targets))) / len(given)


def predicted(net: Net, frame: Any, target: str | None) -> float:
    """Seconds a row of a data frame, everything included."""
    graph = net.fresh()
    return cpu_seconds(lambda: minfer.predict(graph, frame, target, workers=1)) / len(frame)


def rows(net: Net, sets: int, n: int) -> Row:
    """Rows that observe the same variables."""
    draws = []
    every = list(range(len(net.names)))
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        cases = net.sample(n, rng)
        seen, target = net.observed_set(rng)
        given = np.full_like(cases, -1)
        given[:, seen] = cases[:, seen]
        numbers = [{net.names[v]: int(r[v]) for v in seen.tolist()} for r in given[:601]]
        frame = net.frame(given, seen)
        draw: Row = {"difference": 0.0}
        for what, targets in (("one", [target]), ("all", every)):
            peer = PyAgrum(net.pyagrum, net.names, None if what == "all" else targets)
            peer.first(numbers[0])
            loop = Loop(peer.next, numbers)
            Network(net.fresh()).ask(given[:9], targets)  # compiles
            got: list[Any] = []

            calls: dict[str, Callable[[], float]] = {
                "pyagrum": loop,
                "ours": lambda g=given, t=targets, got=got: asked(net, g, t, got),
            }
            few = 2 if net.name in FIVE else 1  # the answer is a frame of thousands of columns
            if what == "one" or seed < few:
                wanted = net.names[target] if what == "one" else None
                minfer.predict(net.graph, frame[:9], wanted, workers=1)
                calls["frame"] = lambda f=frame, w=wanted: predicted(net, f, w)
            if what == "one":
                calls |= pgmpy_loop(net, target, given)
            draw |= {f"{what}, {who}": x for who, x in turns(calls).items()}
            draw["difference"] = max(draw["difference"], loop.difference(got[0].probs))
        draws.append(draw)
    against = {}
    for what in ("one", "all"):
        against[what] = f"{what}, pyagrum", f"{what}, ours"
        against[f"{what} frame"] = f"{what}, pyagrum", f"{what}, frame"
    against["one pgmpy"] = "one, pgmpy", "one, ours"
    return {**summary(net.name, draws, against), "nodes": len(net.names), "rows": n}


def pgmpy_loop(net: Net, target: int, given: NDArray[np.int32]) -> dict[str, Loop]:
    """pgmpy's turn, where it answers a row within its limit."""
    rows = [net.evidence(r) for r in given[:30]]
    ask = Pgmpy(net.pgmpy, net.names[target])
    try:
        with limit(PGMPY_LIMIT):
            ask(rows[0])
    except (TooLong, MemoryError, ValueError):  # some tables have more axes than numpy allows
        return {}
    return {"pgmpy": Loop(ask, rows)}


def other_sets(net: Net, sets: int, n: int) -> Row:
    """Every row observes other variables."""
    draws = []
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        cases = net.sample(n, rng)
        target = net.observed_set(rng)[1]
        given = np.where(rng.random(cases.shape) < OBSERVED, cases, -1).astype(np.int32)
        evidence = [
            {net.names[v]: int(r[v]) for v in np.flatnonzero(r >= 0).tolist()} for r in given
        ]
        loop = Loop(PyAgrum(net.pyagrum, net.names, [target]).first, evidence)
        Network(net.fresh()).ask(given[:9], [target])
        got: list[Any] = []
        draw = turns({
            "pyagrum": loop,
            "ours": lambda g=given, t=target, got=got: asked(net, g, [t], got),
        })  # fmt: skip
        draw["difference"] = loop.difference(got[0].probs)
        draws.append(draw)
    found = summary(net.name, draws, {"ratio": ("pyagrum", "ours")})
    return {**found, "nodes": len(net.names), "rows": n}


def single(net: Net, sets: int) -> Row:
    """One row, one call, the question being known."""
    draws = []
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        cases = net.sample(200, rng)
        seen, target = net.observed_set(rng)
        given = np.full_like(cases, -1)
        given[:, seen] = cases[:, seen]
        evidence = [net.evidence(row) for row in given]
        observed = [net.names[v] for v in seen.tolist()]
        draw: Row = {"difference": 0.0}
        for what, asked in (("one", net.names[target]), ("all", None)):
            peer = PyAgrum(net.pyagrum, net.names, [target] if asked else None)
            peer.first(evidence[0])
            prepared = minfer.queries.prepare(net.graph, asked, observed)
            minfer.query(net.graph, asked, evidence[0])
            loop = Loop(peer.next, evidence)
            again = Loop(lambda e, t=asked: minfer.query(net.graph, t, e), evidence)
            ready = Loop(prepared, evidence)
            found = turns({"pyagrum": loop, "query": again, "prepared": ready})
            draw |= {f"{what}, {who}": x for who, x in found.items()}
            for ours in (again, ready):
                probs = [a if asked else a.probs for a in ours.answers[:200]]
                draw["difference"] = max(draw["difference"], loop.difference(np.array(probs)))
        draws.append(draw)
    against = {
        f"{what} {who}": (f"{what}, pyagrum", f"{what}, {who}")
        for what in ("one", "all") for who in ("query", "prepared")
    }  # fmt: skip
    return {**summary(net.name, draws, against), "nodes": len(net.names)}


def cold(net: Net, sets: int) -> Row:
    """A file read, a question planned and answered."""
    import pyagrum
    from pgmpy.readwrite import BIFReader

    draws = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{net.name}.bif"
        path.write_bytes(bundled(net.name))
        try:
            pyagrum.loadBN(str(path))
            reads = True
        except Exception:  # of a name that is not a word, for instance
            reads = False
        for seed in range(sets):
            rng = np.random.default_rng(seed)
            seen, target = net.observed_set(rng)
            row = np.full(len(net.names), -1, dtype=np.int32)
            row[seen] = net.sample(1, rng)[0, seen]
            evidence, name = net.evidence(row), net.names[target]

            def ours(name: str = name, evidence: Any = evidence) -> Any:
                return minfer.query(minfer.read(path), name, evidence)

            def theirs(target: int = target, evidence: Any = evidence) -> Any:
                bn = pyagrum.loadBN(str(path))
                return PyAgrum(bn, net.names, [target]).first(evidence)

            def pgmpys(name: str = name, evidence: Any = evidence) -> Any:
                return Pgmpy(BIFReader(str(path)).get_model(), name)(evidence)

            ours()
            calls: dict[str, Callable[[], float]] = {"ours": lambda f=ours: cpu_seconds(f)}
            if reads:
                calls["pyagrum"] = lambda f=theirs: cpu_seconds(f)
            if net.name in COLD_PGMPY and seed == 0:
                calls["pgmpy"] = lambda f=pgmpys: cpu_seconds(f)
            draws.append(turns(calls))
    against = {"ratio": ("pyagrum", "ours"), "pgmpy ratio": ("pgmpy", "ours")}
    return {**summary(net.name, draws, against), "nodes": len(net.names)}


def cores(net: Net, n: int) -> Row:
    """Two threads against one, all posteriors of one observed set, wall-clock time."""
    rng = np.random.default_rng(0)
    given = net.sample(n, rng)
    seen, _ = net.observed_set(rng)
    hidden = np.setdiff1d(np.arange(len(net.names)), seen)
    given[:, hidden] = -1
    network, every = Network(net.graph), list(range(len(net.names)))
    network.ask(given[:9], every)

    calls = {w: lambda w=w: network.ask(given, every, w) for w in (1, 2)}
    found = in_turn(calls, 7, warm_up=False, timer=measure.wall_seconds)
    one, two = measure.least(found).values()
    return {"network": net.name, "rows": n, "one": one, "two": two, "ratio": one / two,
            "median": measure.median_ratio(found[1], found[2])}  # fmt: skip


def reading(name: str) -> Row:
    """A BIF file, unpacked beforehand, to a model."""
    import pyagrum
    from pgmpy.readwrite import BIFReader

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.bif"
        path.write_bytes(bundled(name))
        nodes = minfer.read(path).n_variables
        calls: dict[str, Callable[[], float]] = {
            "minfer": lambda: cpu_seconds(lambda: minfer.read(path)),
            "pyagrum": lambda: cpu_seconds(lambda: pyagrum.loadBN(str(path))),
            "pgmpy": lambda: cpu_seconds(lambda: BIFReader(str(path)).get_model()),
        }
        try:
            pyagrum.loadBN(str(path))
        except Exception:
            del calls["pyagrum"]
        found = turns(calls)
    out: Row = {"network": name, "nodes": nodes, "bytes": len(bundled(name)), **found}
    for who in ("pyagrum", "pgmpy"):
        if who in found:
            out[f"{who} ratio"] = found[who] / found["minfer"]
    return out


# ---------------------------------------------------------------------- running


def parts(options: argparse.Namespace) -> dict[str, tuple[Iterable[str], Callable[[str], Row]]]:
    """Part -> the networks it is about by default, and how one of them is measured."""
    sets, n = options.sets, options.rows
    nets: dict[str, Net] = {}

    def net(name: str) -> Net:
        if name not in nets:
            nets[name] = Net(name)
        return nets[name]

    def few(name: str) -> int:  # rows that have nothing in common are planned one by one
        return n if name in FIVE else max(10, n // 50)

    return {
        "cores": ((*FIVE, *BIG), lambda x: cores(net(x), 20 * n if x in FIVE else n)),
        "reading": (READING, reading),
        "cold": (all_networks(), lambda x: cold(net(x), min(sets, 3))),
        "single": ((*FIVE, *BIG), lambda x: single(net(x), sets)),
        "sets": ((*FIVE, *BIG), lambda x: other_sets(net(x), sets, few(x))),
        "rows": ((*FIVE, *BIG), lambda x: rows(net(x), sets, n)),
        "blank": (all_networks(), lambda x: blank(net(x))),
    }


def told(row: Row) -> str:
    """One line of numbers, for the terminal."""
    words = []
    for key, value in row.items():
        if isinstance(value, float):
            words.append(f"{key} {value:.3g}")
    return f"{row['network']:<12}" + "; ".join(words)


def merged(old: list[Row], part: str, rows: list[Row]) -> list[Row]:
    """The new rows, and those of other networks from earlier runs."""
    names = {row["network"] for row in rows}
    every = [row for row in old if row["network"] not in names] + rows
    order = {name: k for k, name in enumerate(all_networks())}
    if part not in ("blank", "cold"):
        order = {name: k for k, name in enumerate((*FIVE, *BIG))}
    return sorted(every, key=lambda row: order.get(row["network"], 99))


def both(part: str, options: argparse.Namespace, name: str) -> Row:
    """The row of a network, pinned; of ratios also what they are in a process that is not."""
    numbers = [f"--sets={options.sets}", f"--rows={options.rows}"]
    found = measure.both_ways(__file__, "--parts", part, "--networks", name, *numbers)
    (row,), (free,) = found["pinned"], found["loose"]
    ratios = [key for key, _ in networks_page.RATIOS.get(part, ()) if key in free]
    return row | {f"{key}, loose": free[key] for key in ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="*", help="some of blank, rows, sets, ...; all by default")
    parser.add_argument("--networks", nargs="*", help="only these")
    parser.add_argument("--sets", type=int, default=5, help="draws of what is observed")
    parser.add_argument("--rows", type=int, default=1000, help="rows that observe the same")
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--dry", action="store_true", help="print only, write nothing")
    parser.add_argument("--check", action="store_true", help="fail where an aim is missed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    results = Results(options.out, options.dry)
    found = results.found

    def write() -> None:
        if results.parts and not options.dry:
            write_sections(options.page, networks_page.sections(found))
            if options.page == PAGE:
                write_sections(PEERS_PAGE, {"networks": networks_page.for_peers(found)})

    def keep(part: str, what: dict[str, Any]) -> None:
        results.keep(part, what, measure.about("pgmpy", "pyagrum"))
        write()

    every = parts(options)
    chosen = options.parts if options.parts is not None else list(every)
    if set(chosen) - set(every):
        parser.error(f"--parts: choose from {', '.join(every)}")
    if measure.WAY in os.environ:  # started by `both`
        names = options.networks or []
        print(json.dumps([every[part][1](name) for part in chosen for name in names]))
        return
    for part in [p for p in every if p in chosen]:
        names, one = every[part]
        if part != "cores":
            one = partial(both, part, options)
        print(f"{part}:", flush=True)
        spent = Stopwatch()
        got: list[Row] = []
        for name in names:
            if options.networks is None or name in options.networks:
                got.append(one(name))
                print(f"  {told(got[-1])}", flush=True)
                old = found.get(part, {"rows": []})["rows"]
                keep(part, {"rows": merged(old, part, got)})
        print(f"  {spent.cpu:.0f} s of CPU time", flush=True)
    write()
    missed = [line for line in networks_page.aims(found) if not line.reached]
    for line in missed:
        print(f"missed: {line}")
    if options.check and missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
