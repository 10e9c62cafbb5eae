"""minfer and the other libraries on the same problems, in one go: writes docs/peers.md.

    python benchmarks/peers.py                          # everything; resumes where it stopped
    python benchmarks/peers.py --only parsing           # the tree marginals alone
    python benchmarks/peers.py --peers pgmpy --again    # one peer anew
    python benchmarks/peers.py --envs DIR               # keep the environments and reuse them

Each peer gets an environment of its own and runs in processes of its own, pinned to one core; times
are CPU times. Next to each, minfer runs the same problems in turns, so that a ratio compares like
with like on a busy machine. What was found is kept in benchmarks/results/peers, a file for each
peer, and not measured again; a peer that fails to install, dies or hangs is a result like others.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

import peers_page
import reference
import speed
from peers_cases import CASES
from peers_environments import PEERS, ROOT, install, python_of
from peers_trees import BATCHES, TREE_TOOLS
from problems import load
from speed import Client, ToolFailed, cpu_name, say

HERE = Path(__file__).resolve().parent
BP = ("P1a5", "P3", "P4i", "P4m")
EXACT = ("P4i", "P4m")
SETTLED = 100  # flooding iterations after which the small problems stand still
LIMIT = 240.0  # CPU seconds for one answer
STARVED = 20  # times as long by the clock, on a busy machine
CASE_LIMIT = 90.0  # for a small model
START_LIMIT = 900.0  # the first start may compile
REPS = 3
TREE_ROUNDS = 5
PARTS = ("install", "time", "accuracy", "input", "parsing")


class Patient(Client):
    """A client whose process is killed when an answer takes too much CPU time."""

    limit = LIMIT

    def ask(self, op: str, **request: Any) -> dict[str, Any]:
        done, late = Event(), []
        began, used = time.monotonic(), self._cpu_seconds()

        def watch() -> None:
            while not done.wait(1.0):
                if (
                    self._cpu_seconds() - used > self.limit
                    or time.monotonic() - began > STARVED * self.limit
                ):
                    late.append(True)
                    self.process.kill()
                    return

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            return super().ask(op, **request)
        except ToolFailed as error:
            raise ToolFailed(f"no answer in {self.limit:g} s" if late else str(error)) from None
        finally:
            done.set()
            watcher.join()

    def _cpu_seconds(self) -> float:
        """CPU time of the process so far; on systems without /proc the time by the clock."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError):
            return time.monotonic() if not Path("/proc").exists() else 0.0

    def close(self) -> None:
        with suppress(OSError):  # a process that died has no pipe left
            super().close()


class Store:
    """What is known of one peer, part by part, in a file."""

    def __init__(self, peer: str, folder: Path, forget: Sequence[str] = ()):
        self.path = folder / f"{peer}.json"
        self.found: dict[str, Any] = {"peer": peer}
        if self.path.exists():
            known = json.loads(self.path.read_text())
            self.found |= {k: v for k, v in known.items() if k not in forget}

    def part(self, name: str, measure: Callable[[], Any]) -> Any:
        """Measure a part, unless it is there."""
        if name not in self.found:
            self.found[name] = measure()
            self.found["date"] = datetime.now(UTC).date().isoformat()
            temporary = self.path.with_suffix(".tmp")
            temporary.write_text(json.dumps(self.found, indent=1) + "\n")
            temporary.replace(self.path)
        return self.found[name]


class Bench:
    """Environments and processes."""

    def __init__(self, envs: Path, scratch: Path, core: int, problems: Sequence[str]):
        self.envs, self.scratch, self.core, self.problems = envs, scratch, core, problems

    def environment(self, peer: str) -> dict[str, Any]:
        """Install a peer, unless its environment is there; a failed one is removed."""
        env = self.envs / peer
        shutil.rmtree(env, ignore_errors=True)
        say(f"{peer}: installing")
        found = install(peer, env)
        if "failed" in found:
            shutil.rmtree(env, ignore_errors=True)
            say(f"{peer}: {found['failed']}")
        return found

    def ready(self, peer: str) -> bool:
        """Whether there is an environment, after another try where a throw-away one is gone."""
        if not python_of(self.envs / peer).exists():
            self.environment(peer)
        return python_of(self.envs / peer).exists()

    def start(self, peer: str, tool: str, script: str = "peers_worker.py") -> tuple[Patient, dict]:
        """A process of that tool, and its greeting; raises ToolFailed."""
        python = str(python_of(self.envs / peer))
        log = self.scratch / f"{tool}.log"
        client = Patient(tool, python, self.core, log, HERE / script)
        client.limit = START_LIMIT
        try:
            hello = client.ask("hello")
            client.limit = LIMIT
            return client, hello
        except ToolFailed:
            client.close()
            raise


def times(bench: Bench, peer: str) -> dict[str, Any]:
    """Belief propagation to 1e-4 and exact marginals, each tool and minfer in turns."""
    out: dict[str, Any] = {"hello": {}, "bp": [], "exact": [], "failed": {}}
    for tool in PEERS[peer][1]:
        for problem in bench.problems:
            if tool not in (*speed.BP[problem], *speed.EXACT.get(problem, ())):
                continue
            try:
                client, hello = bench.start(peer, tool)
                out["hello"][tool] = hello
                clients = {tool: client}
                if tool != "minfer":
                    clients["minfer"] = bench.start("minfer", "minfer")[0]
            except ToolFailed as error:
                out["failed"][tool] = str(error)
                break
            try:
                for key, rows_of in (("bp", speed.bp_rows), ("exact", speed.exact_rows)):
                    lists = speed.BP if key == "bp" else speed.EXACT
                    if tool not in lists.get(problem, ()):
                        continue
                    rows = rows_of(problem, clients, REPS, bench.scratch)
                    mine = [r for r in rows if r.tool == tool]
                    if not mine:
                        out["failed"][f"{tool} {key} {problem}"] = "no result"
                    for row in mine:
                        ratio = speed.ratio(rows, problem, tool, "minfer")
                        out[key].append(vars(row) | {"seconds": row.seconds, "x_minfer": ratio})
            except (ToolFailed, OSError) as error:
                out["failed"][f"{tool} {problem}"] = str(error)
            finally:
                for c in clients.values():
                    c.close()
    return out


def accuracy(bench: Bench, peer: str) -> dict[str, Any]:
    """Largest distance of settled belief propagation from the exact marginals."""
    out: dict[str, Any] = {}
    for tool in PEERS[peer][1]:
        for problem in EXACT:
            target = bench.scratch / f"{problem}-exact.npy"
            np.save(target, reference.exact_grid(load(problem)))
            if tool not in speed.BP[problem]:
                continue
            try:
                client, _ = bench.start(peer, tool)
                request = {"problem": problem, "target": str(target), "iters": SETTLED}
                out[f"{tool} {problem}"] = client.ask("accuracy", **request)["error"]
                client.close()
            except ToolFailed as error:
                out[f"{tool} {problem}"] = str(error)
    return out


def bad_input(bench: Bench, peer: str) -> dict[str, Any]:
    """What happens on each trap, in a process of its own."""
    out: dict[str, Any] = {}
    for tool in PEERS[peer][1]:
        try:
            client, _ = bench.start(peer, tool)
            ways = [way for way, has in client.ask("ways").items() if has]
            client.close()
        except ToolFailed as error:
            out[tool] = {"failed": str(error)}
            continue
        for way in ways:
            found = out.setdefault(f"{tool}, {'exact' if way == 'exact' else 'BP'}", {})
            for case in (*CASES, "unknown"):
                say(f"{tool}, {way}: {case}")
                try:
                    client, _ = bench.start(peer, tool)
                    client.limit = CASE_LIMIT
                    ask = {} if case == "unknown" else {"case": case, "way": way}
                    found[case] = client.ask("unknown" if case == "unknown" else "case", **ask)
                    client.close()
                except ToolFailed as error:
                    found[case] = {"died": str(error)}
    return out


def parsing(bench: Bench, peer: str) -> dict[str, Any]:
    """Tree marginals: agreement with minfer's, and times in turns."""
    out: dict[str, Any] = {"rows": []}
    names = list(dict.fromkeys(("minfer", peer)))
    clients: dict[str, Patient] = {}
    try:
        for name in names:
            clients[name], hello = bench.start(name, name, "peers_trees.py")
            if name == peer:
                out |= {"version": hello["version"], "import": hello["seconds"]}
        for batch in BATCHES:
            try:
                out["rows"].append(_tree_row(bench, clients, peer, batch))
            except ToolFailed as error:
                out["rows"].append({"batch": batch, "failed": str(error)})
                say(f"{peer}: {batch}: {error}")
    except ToolFailed as error:
        out["failed"] = str(error)
        say(f"{peer}: {error}")
    finally:
        for client in clients.values():
            client.close()
    return out


def _tree_row(bench: Bench, clients: dict[str, Patient], peer: str, batch: str) -> dict[str, Any]:
    sentences = BATCHES[batch].sentences
    files = {name: bench.scratch / f"{name}-trees.npy" for name in clients}
    for name, client in clients.items():
        client.ask("prepare", batch=batch, out=str(files[name]))
    seconds: dict[str, list[float]] = {name: [] for name in clients}
    for turn in range(TREE_ROUNDS):
        for name in list(clients)[:: 1 if turn % 2 == 0 else -1]:
            seconds[name].append(clients[name].ask("time")["seconds"])
    want, found = (np.load(files[n]) for n in ("minfer", peer))
    ratios = [a / b for a, b in zip(seconds[peer], seconds["minfer"])]
    row = {
        "batch": batch,
        "us_per_sentence": statistics.median(seconds[peer]) / sentences * 1e6,
        "minfer_us": statistics.median(seconds["minfer"]) / sentences * 1e6,
        "x_minfer": statistics.median(ratios),
        "difference": float(np.abs(found - want).max()),
    }
    say(
        f"{peer}: {batch}: {row['us_per_sentence']:.0f} us a sentence, "
        f"{row['x_minfer']:.1f} times minfer's, differs by {row['difference']:.1e}"
    )
    return row


def measure(bench: Bench, store: Store, peer: str, parts: list[str]) -> None:
    """All parts of one peer that are not known yet."""
    if "install" in parts:
        found = store.part("install", lambda: bench.environment(peer))
        if "failed" in found:
            return
    work = {"time": times, "accuracy": accuracy, "input": bad_input} if PEERS[peer][1] else {}
    if peer in TREE_TOOLS:
        work["parsing"] = parsing
    missing = [part for part in work if part in parts and part not in store.found]
    if missing and bench.ready("minfer") and bench.ready(peer):
        for part in missing:
            store.part(part, lambda part=part: work[part](bench, peer))


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    cli.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts")
    cli.add_argument("--problems", nargs="+", choices=BP, default=list(BP), help="to be timed")
    cli.add_argument("--again", action="store_true", help="measure these parts anew")
    cli.add_argument("--envs", type=Path, help="folder for the environments, kept")
    cli.add_argument("--core", type=int, default=None, help="core to pin to (default the last)")
    cli.add_argument("--results", type=Path, default=HERE / "results" / "peers")
    cli.add_argument("--page", type=Path, default=ROOT / "docs" / "peers.md")
    args = cli.parse_args()
    core = args.core
    if core is None:
        core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    args.results.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="minfer-peers-"))
    bench = Bench(args.envs or scratch / "envs", scratch, core, args.problems)
    bench.envs.mkdir(parents=True, exist_ok=True)
    try:
        for peer in args.peers:
            store = Store(peer, args.results, args.only if args.again else ())
            try:
                measure(bench, store, peer, args.only)
            except Exception as error:  # one peer never stops the others
                say(f"{peer}: {type(error).__name__}: {error}")
            if args.envs is None and peer != "minfer":
                shutil.rmtree(bench.envs / peer, ignore_errors=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    results = {p: Store(p, args.results).found for p in PEERS}
    machine = f"one core of {cpu_name()}, Python {platform.python_version()}"
    args.page.write_text(peers_page.write(results, machine))
    say(f"wrote {args.page}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
