"""How fast is minfer beside a bare kernel: ``python benchmarks/speed.py``.

Two measurements, both in CPU time, the two taking turns within a round, on one pinned core or
(--loose) as anybody runs them, the time of all threads counted:

* the cost of one sequential sweep, minfer against the yardstick (see yardstick.py);
* the time to 1e-4: the smallest number of iterations after which no marginal is further than 1e-4
  from the fixed point of belief propagation, then the time of exactly that run. The count is
  chosen for the tool, which is generous to tools without a stop rule. minfer's time includes
  building the graph; the yardstick's does not.

Ratios are medians over rounds of the ratio within a round. ``peers.py`` measures other libraries
on the same problems, by the functions here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import reference
import yardstick
from minfer_experiments.measure import (
    in_turn,
    is_loose,
    last_core,
    loosen,
    median_ratio,
    medians,
    one_thread,
)
from minfer_experiments.pages import number, say, table
from minfer_experiments.results import ABOUT, Results
from problems import F8, Problem, load
from tools import TOOLS

HERE = Path(__file__).resolve().parent
TOL = 1e-4
CLOSE_SECONDS = 5  # for an idle process to end

# Problem -> tools that run it through belief propagation.
BP: dict[str, tuple[str, ...]] = {
    "P1a5": ("minfer", "yardstick", "pgmax", "pygms-ising", "pygms", "pomegranate"),
    "P1a1": ("minfer", "yardstick", "pgmax", "pygms-ising"),
    "P2a5": ("minfer", "yardstick", "pgmax", "pygms-ising"),
    "P3": ("minfer", "yardstick", "pgmax", "pygms-ising", "pygms", "pomegranate"),
    "P4i": ("minfer", "yardstick", "pgmax", "pygms-ising", "pygms", "pomegranate"),
    "P4m": ("minfer", "pgmax", "pygms", "pomegranate"),
    "G12": ("minfer", "pgmax"),
}
# Too slow for a full run: one and two iterations are timed and scaled.
SCALED = {(t, p) for t in ("pygms", "pomegranate") for p in ("P1a5", "P3")}
EXACT: dict[str, tuple[str, ...]] = {
    "P4i": ("minfer", "pyagrum", "pgmpy", "pygms"),
    "P4m": ("minfer", "pyagrum", "pgmpy", "pygms"),
}
SWEEPS = {"P1a5": (20, 220), "P2a5": (2, 12), "P3": (20, 220)}

SWEEP_BAR = 1.3


class ToolFailed(Exception):
    """A tool could not do what it was asked."""


class Client:
    """One tool in its own process: pinned, with one thread, unless all are loose."""

    def __init__(
        self, tool: str, python: str, core: int, log: Path, script: Path = HERE / "tools.py"
    ):
        env = os.environ | one_thread() | {
            "JAX_PLATFORMS": "cpu",
            "CUDA_VISIBLE_DEVICES": "",
            "TQDM_DISABLE": "1",
            "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        if tool == "minfer":  # of this checkout, whatever is installed
            env["PYTHONPATH"] = str(HERE.parent / "src")
        self.tool = tool
        self.process = subprocess.Popen(
            [python, str(script), tool, str(core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("a"),
            text=True,
            env=env,
            start_new_session=True,
        )

    def ask(self, op: str, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"op": op, **request}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise ToolFailed(f"the process ended (exit status {self.process.poll()})")
        answer = json.loads(line)
        if "failed" in answer:
            raise ToolFailed(answer["failed"])
        return answer

    def kill(self) -> None:
        """End the process and whatever it has started."""
        with suppress(OSError):  # nothing is left of it
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()

    def close(self) -> None:
        """Let the process end by itself, or kill it if it is still busy."""
        with suppress(OSError):  # one that died has no pipe left
            if self.process.stdin is not None:
                self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(CLOSE_SECONDS)
        self.kill()
        self.process.wait()


@dataclass
class Row:
    """One tool on one problem."""

    problem: str
    tool: str
    samples: list[float] = field(default_factory=list)  # CPU seconds, one a round
    iters: int | None = None
    error: float | None = None
    setup: float | None = None
    compile: float | None = None
    note: str = ""

    @property
    def seconds(self) -> float:
        return statistics.median(self.samples)


def fixed_point(p: Problem) -> F8:
    """The BP fixed point to 1e-12: the yardstick's for binary models, else plain flooding."""
    if not p.binary:
        return reference.bp_fixed_point(p)
    assert p.log_odds is not None
    assert p.weights is not None
    assert p.feature is not None
    wiring = yardstick.wire(p.log_odds, p.edges, p.weights, p.feature)
    one, its, change = yardstick.sweep(wiring, 100_000, 1e-12)
    if change > 1e-12:
        raise RuntimeError(f"{p.name}: no fixed point after {its} sweeps")
    return np.stack([1 - one, one], axis=1)


def take_turns(
    asks: dict[str, Callable[[], dict[str, Any]]], reps: int, **settings: Any
) -> dict[str, list[float]]:
    """Seconds that each tool tells in its rounds, there and back."""
    seconds = {"timer": lambda ask: ask()["seconds"], "there_and_back": True}
    return in_turn(asks, reps, **seconds, **settings)


def time_rows(rows: list[Row], asks: dict[str, Callable[[], dict[str, Any]]], reps: int) -> None:
    """Fill in the samples; fewer rounds for slow tools."""

    def fewer(seconds: float) -> int:
        return reps if seconds < 0.5 else 3 if seconds < 5 else 1

    found = take_turns(asks, reps, warm_up=False, fewer=fewer)
    for row in rows:
        row.samples = row.samples or found[row.tool]


def bp_rows(name: str, clients: dict[str, Client], reps: int, scratch: Path) -> list[Row]:
    """Time to TOL of every tool on one problem."""
    p = load(name)
    target = fixed_point(p)
    path = scratch / f"{name}.npy"
    np.save(path, target)
    flood = reference.flooding_count(p, target, TOL)
    say(f"{name}: {p.about}; flooding is within {TOL:g} after {flood} iterations")
    rows = []
    for tool in BP[name]:
        if tool not in clients:
            continue
        row, client = Row(name, tool), clients[tool]
        say(f"  preparing {tool}")
        try:
            row.setup = client.ask("build", problem=name)["seconds"]
            if (tool, name) in SCALED:
                row.iters = flood + TOOLS[tool].extra_iters
                one = client.ask("once", iters=1)["seconds"]
                two = client.ask("once", iters=2)["seconds"]
                row.samples = [one + (row.iters - 1) * (two - one)]
                row.note = "scaled from 1 and 2 iterations"
            else:
                sequential = tool in ("minfer", "yardstick")
                guess = max(1, flood // 2) if sequential else flood + TOOLS[tool].extra_iters
                found = client.ask("count", target=str(path), tol=TOL, guess=guess)
                row.iters, row.error = found["iters"], found["error"]
                row.compile = client.ask("compile", iters=row.iters)["seconds"]
        except ToolFailed as error:
            say(f"  {tool}: {error}")
            continue
        rows.append(row)
    asks = {
        r.tool: partial(clients[r.tool].ask, "time", iters=r.iters) for r in rows if not r.samples
    }
    time_rows(rows, asks, reps)
    for row in rows:
        say(f"  {row.tool:12} {row.seconds * 1e3:12.3f} ms  {row.iters} its {row.note}")
    return rows


def own_stop(name: str, client: Client, scratch: Path) -> dict[str, Any]:
    """minfer stopped by its own rule at TOL, graph build included."""
    client.ask("build", problem=name)
    found = client.ask("own_stop", target=str(scratch / f"{name}.npy"), tol=TOL)
    say(f"  minfer, own stop rule: {found['seconds'] * 1e3:.3f} ms, {found['iters']} its, "
        f"error {found['error']:.1e}")  # fmt: skip
    return {"problem": name, **found}


def exact_rows(name: str, clients: dict[str, Client], reps: int, scratch: Path) -> list[Row]:
    """Exact marginals: minfer builds its graph within the time, the peers' models are ready."""
    path = scratch / f"{name}-exact.npy"
    np.save(path, reference.exact_grid(load(name)))
    say(f"{name}: exact marginals")
    rows = []
    for tool in EXACT[name]:
        if tool not in clients:
            continue
        row, client = Row(name, tool), clients[tool]
        try:
            row.setup = client.ask("build", problem=name)["seconds"]
            row.error = client.ask("exact_error", target=str(path))["error"]
        except ToolFailed as error:
            say(f"  {tool}: {error}")
            continue
        rows.append(row)
    time_rows(rows, {r.tool: partial(clients[r.tool].ask, "exact") for r in rows}, reps)
    for row in rows:
        say(f"  {row.tool:12} {row.seconds * 1e3:12.3f} ms  error {row.error:.1e}")
    return rows


def sweep_costs(clients: dict[str, Client], names: list[str], reps: int) -> list[dict[str, Any]]:
    """Seconds per sweep, minfer against the yardstick, in paired rounds."""
    out = []
    for name, (few, many) in SWEEPS.items():
        if name not in names:
            continue
        pair = [clients[t] for t in ("minfer", "yardstick") if t in clients]
        for c in pair:
            c.ask("build", problem=name)
        asks = {c.tool: partial(c.ask, "sweep", few=few, many=many) for c in pair}
        found = take_turns(asks, 2 * reps)
        entry: dict[str, Any] = {"problem": name, **medians(found)}
        entry["messages"] = 2 * len(load(name).edges)
        if len(pair) == 2:
            ratios = [a / b for a, b in zip(found["minfer"], found["yardstick"])]
            entry["ratio"] = median_ratio(found["minfer"], found["yardstick"])
            entry["quartiles"] = [float(q) for q in np.quantile(ratios, [0.25, 0.75])]
        say(f"{name}: one sweep " + ", ".join(f"{t} {entry[t] * 1e3:.4f} ms" for t in found)
            + (f", ratio {entry['ratio']:.2f}" if "ratio" in entry else ""))  # fmt: skip
        out.append(entry)
    return out


def ratio(rows: list[Row], problem: str, slow: str, fast: str) -> float | None:
    """Median over rounds of slow / fast; None where either is missing."""
    by = {r.tool: r for r in rows if r.problem == problem}
    if slow not in by or fast not in by:
        return None
    a, b = by[slow].samples, by[fast].samples
    if min(len(a), len(b)) < 3:  # a single slow sample against the other's median
        return by[slow].seconds / by[fast].seconds
    return median_ratio(a, b)


def judge(sweeps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sweeps against the bar."""
    return [
        {
            "bar": "minfer's sweep against the yardstick's", "problem": entry["problem"],
            "need": f"<= {SWEEP_BAR:g}", "found": entry["ratio"],
            "met": entry["ratio"] <= SWEEP_BAR,
        }
        for entry in sweeps
        if "ratio" in entry
    ]  # fmt: skip


def report(found: dict[str, Any]) -> str:
    """The whole result as Markdown."""
    stamp, result = found[ABOUT]["speed"], found["speed"]
    versions, about = result["versions"], result["problems"]
    bp = [Row(**row) for row in result["bp"]]
    where = "not pinned, all threads counted, on" if is_loose() else "one core of"
    parts = [
        "# Speed",
        f"{stamp['date']}, {where} {stamp['cpu']}, Python {stamp['python']}, CPU time, "
        f"medians of up to {result['reps']} rounds in which the tools take turns.",
        "Versions: " + ", ".join(f"{t} {v}" for t, v in versions.items()) + ".",
    ]
    if result["bars"]:
        body = [
            [b["bar"], b["problem"], b["need"], number(b["found"]), "yes" if b["met"] else "**no**"]
            for b in result["bars"]
        ]
        parts += ["## Bars", table(["bar", "problem", "needed", "found", "met"], body)]
    if result["sweeps"]:
        body = [
            [
                e["problem"],
                *(number(e[t] * 1e3) if t in e else "-" for t in ("minfer", "yardstick")),
                number(e["yardstick"] / e["messages"] * 1e9),
                f"{e['ratio']:.2f} ({e['quartiles'][0]:.2f} - {e['quartiles'][1]:.2f})"
                if "ratio" in e
                else "-",
            ]
            for e in result["sweeps"]
        ]
        head = ["problem", "minfer ms", "yardstick ms", "yardstick ns/message", "ratio (quartiles)"]
        parts += ["## One sequential sweep", table(head, body)]
    if bp:
        parts += [
            "## Time to 1e-4",
            "Belief propagation until no marginal is further than 1e-4 from the fixed point, the "
            "number of iterations chosen for each tool. minfer's time includes building the graph; "
            "for all others building (set-up) and compiling stand apart.",
        ]
        body = []
        for r in bp:
            cells = [f"{r.problem}: {about[r.problem]}", r.tool, str(r.iters)]
            cells += [number(r.seconds * 1e3), number(r.seconds / (r.iters or 1) * 1e3)]
            for other in ("minfer", "yardstick"):
                x = ratio(bp, r.problem, r.tool, other)
                cells.append("-" if x is None else number(x))
            included = TOOLS[r.tool].includes_build
            cells += ["included" if included else number(r.setup)]
            cells += [number(r.compile) if r.compile and r.compile > 1e-3 else "-"]
            cells += [f"{r.error:.1e}" if r.error is not None else "-", r.note]
            body.append(cells)
        head = ["problem", "tool", "its", "ms", "ms/it", "x minfer", "x yardstick", "set-up s",
                "compile s", "error", "remark"]  # fmt: skip
        parts.append(table(head, body))
    if result["own_stop"]:
        body = [
            [o["problem"], str(o["iters"]), number(o["seconds"] * 1e3), f"{o['error']:.1e}"]
            for o in result["own_stop"]
        ]
        parts += ["## minfer stopped by its own rule at 1e-4, graph build included",
                  table(["problem", "its", "ms", "distance to the fixed point"],
                        body)]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def main() -> int:
    cli = argparse.ArgumentParser(description="minfer's speed against a bare kernel")
    cli.add_argument("--reps", type=int, default=9, help="rounds (default 9)")
    cli.add_argument("--problems", nargs="+", choices=list(BP), default=list(BP))
    cli.add_argument("--core", type=int, default=None, help="core to pin to (default the last)")
    cli.add_argument("--loose", action="store_true", help="no pinning, threads as they come")
    cli.add_argument("--out", type=Path, help="folder for the results (benchmarks/results, or a "
                     "folder loose in it)")  # fmt: skip
    args = cli.parse_args()
    if args.loose:
        loosen()
    args.out = args.out or HERE / "results" / ("loose" if args.loose else "")
    args.out.mkdir(parents=True, exist_ok=True)
    core = last_core() if args.core is None else args.core
    scratch = Path(tempfile.mkdtemp(prefix="minfer-speed-"))
    clients: dict[str, Client] = {}
    bp: list[Row] = []
    own: list[dict[str, Any]] = []
    try:
        for tool in ("minfer", "yardstick"):
            clients[tool] = Client(tool, sys.executable, core, scratch / f"{tool}.log")
        versions = {tool: client.ask("hello")["version"] for tool, client in clients.items()}
        sweeps = sweep_costs(clients, args.problems, args.reps)
        for name in args.problems:
            bp += bp_rows(name, clients, args.reps, scratch)
            own.append(own_stop(name, clients["minfer"], scratch))
    finally:
        for client in clients.values():
            client.close()
        shutil.rmtree(scratch, ignore_errors=True)
    result: dict[str, Any] = {
        "reps": args.reps,
        "versions": versions,
        "problems": {name: load(name).about for name in args.problems},
        "bars": judge(sweeps),
        "sweeps": sweeps,
        "bp": [vars(r) for r in bp],
        "own_stop": own,
    }
    results = Results(args.out / "speed.json")
    results.keep("speed", result)
    text = report(results.found)
    (args.out / "speed.md").write_text(text, "utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
