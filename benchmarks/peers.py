"""minfer and the other libraries on the same problems, in one go: writes docs/reference/peers.md.

    python benchmarks/peers.py                          # everything; resumes where it stopped
    python benchmarks/peers.py --only parsing           # the arc probabilities alone
    python benchmarks/peers.py --peers pgmpy --again    # one peer anew
    python benchmarks/peers.py --envs DIR               # keep the environments and reuse them
    python benchmarks/peers.py --loose --only time      # as anybody runs it: columns of that page

Each peer gets an environment of its own, made with pip, and runs in processes of its own, pinned
to one core, or (--loose) as anybody runs them; times are CPU times. Next to each, minfer of this
checkout runs the same problems in turns, so that a ratio compares like with like on a busy machine.
What was found is kept in benchmarks/results/peers, a file for each peer, with the day, the machine
and a fingerprint of the code; what is known is not measured again without --again, and the page
says where its parts come from several days, machines or states of the code. A peer that fails to
install, dies or hangs is a result like others: every answer has a limit, and a process that reaches
it is killed.

Parts: install (packages, size, seconds), claims (the features of the table are looked up in the
installed library), time (belief propagation to 1e-4, exact marginals), accuracy (against exact),
input (bad input and hard cases), parsing (arc probabilities).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

import peers_page
import reference
import speed
from minfer_experiments import measure
from minfer_experiments.pages import say, write_sections
from minfer_experiments.results import Results
from peers_cases import CASES
from peers_claims import CLAIMS
from peers_environments import PEERS, ROOT, install, python_of
from peers_trees import BATCHES, PAIR_BATCHES, TREE_TOOLS
from problems import load
from speed import Client, ToolFailed
from tools import TOOLS, Tool

HERE = Path(__file__).resolve().parent
BP = ("P1a5", "P3", "P4i", "P4m")
EXACT = ("P4i", "P4m")
METHODS = {"bp": "run", "exact": "exact"}  # what a tool overrides that can do it
SETTLED = 100  # flooding iterations after which the small problems stand still
LIMIT = 180.0  # CPU seconds for one answer
CASE_LIMIT = 90.0  # for a small model
COMPILE_LIMIT = 1800.0  # by the clock, for all of minfer's kernels
STARVED = 3  # times as long by the clock, on a busy machine or asleep
REPS = 3
TREE_ROUNDS = 5
OURS = os.environ | {"PYTHONPATH": str(ROOT / "src")}  # minfer of this checkout
PARTS = ("install", "claims", "time", "accuracy", "input", "parsing")


class Patient(Client):
    """A client whose process is killed when an answer takes too much CPU time."""

    limit = LIMIT
    failure = ""  # the last one

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
                    self.kill()
                    return

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            return super().ask(op, **request)
        except ToolFailed as error:
            self.failure = str(error)
            if late:
                what = _iterations(request["iters"]) if op == "once" else "no answer in"
                self.failure = f"{what} {self.limit:g} s"
            raise ToolFailed(self.failure) from None
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


def _iterations(n: int) -> str:
    return "one iteration >" if n == 1 else f"{n} iterations >"


class Store(Results):
    """What is known of one peer, part by part."""

    def __init__(self, peer: str, folder: Path) -> None:
        super().__init__(folder / f"{peer}.json")
        self.peer = peer

    def part(self, name: str, make: Callable[[], Any], stamp: dict[str, Any]) -> Any:
        """Measure a part, unless it is there."""
        if name in self.found:
            say(f"{self.peer}: {name} is known{self._when(name, stamp)}")
        else:
            self.keep(name, make(), stamp)
        return self.found[name]

    def _when(self, name: str, stamp: dict[str, Any]) -> str:
        old = self.found["about"].get(name)
        if old is None:
            return ", of an unknown day; --again measures it anew"
        other = [key for key in ("code", "cpu", "python") if old[key] != stamp[key]]
        what = f", with other {' and '.join(other)}; --again measures it anew" if other else ""
        return f" from {old['date']}{what}"


def stamp() -> dict[str, Any]:
    """Day, machine, and a fingerprint of all code that bears on a result."""
    own = (HERE / f"{name}.py" for name in ("problems", "reference", "speed", "tools"))
    files = {*(ROOT / "src" / "minfer").rglob("*.py"), *HERE.glob("peers*.py"), *own}
    code = hashlib.sha256()
    for file in sorted(files - {HERE / "peers_page.py"}):
        code.update(file.read_bytes())
    return measure.about(code=code.hexdigest()[:12])


class Bench:
    """Environments and processes."""

    def __init__(self, envs: Path, scratch: Path, core: int):
        self.envs, self.scratch, self.core = envs, scratch, core
        self.compiled = False

    def environment(self, peer: str) -> dict[str, Any]:
        """Install a peer into an empty environment; a failed one is removed."""
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
        found = python_of(self.envs / peer).exists()
        if found and peer == "minfer" and not self.compiled:
            self._compile()
        return found

    def _compile(self) -> None:
        """All kernels of this checkout, before anything is timed."""
        say("minfer: compiling, unless that was done before")
        command = [str(python_of(self.envs / "minfer")), "-m", "minfer", "warmup"]
        done = subprocess.run(command, capture_output=True, timeout=COMPILE_LIMIT, env=OURS)
        if done.returncode:
            raise RuntimeError(f"minfer warmup: {done.stderr.decode()[-500:]}")
        self.compiled = True

    @contextmanager
    def worker(
        self, peer: str, tool: str, limit: float = LIMIT, script: str = "peers_worker.py"
    ) -> Iterator[tuple[Patient, dict[str, Any]]]:
        """A process of that tool and its greeting; raises ToolFailed. Nothing outlives it."""
        python = str(python_of(self.envs / peer))
        client = Patient(tool, python, self.core, self.scratch / f"{tool}.log", HERE / script)
        try:
            hello = client.ask("hello")
            client.limit = limit
            yield client, hello
        finally:
            client.close()


def claims(bench: Bench, peer: str) -> dict[str, Any]:
    """Features of the page's table that the installed library does not have."""
    command = [str(python_of(bench.envs / peer)), str(HERE / "peers_claims.py"), peer]
    env = OURS if peer == "minfer" else None
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=env)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {feature: last[:200] for feature, has in CLAIMS.items() if peer in has}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for feature, why in found.items():
        say(f"{peer}: claimed but not found: {feature}: {why}")
    return found


def times(bench: Bench, peer: str) -> dict[str, Any]:
    """Belief propagation to 1e-4 and exact marginals, each tool and minfer in turns."""
    out: dict[str, Any] = {"hello": {}, "bp": [], "exact": []}
    for tool in PEERS[peer][1]:
        for problem in BP:
            for key, lists in (("bp", speed.BP), ("exact", speed.EXACT)):
                if tool in lists.get(problem, ()):
                    row, hello = _time_row(bench, peer, tool, problem, key)
                    out[key].append(row)
                    out["hello"] |= {tool: hello} if hello else {}
    return out


def _time_row(
    bench: Bench, peer: str, tool: str, problem: str, key: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The row of one tool and its greeting; a row that failed says why."""
    hello: dict[str, Any] = {}
    try:
        with ExitStack() as stack:
            client, hello = stack.enter_context(bench.worker(peer, tool))
            clients: dict[str, Client] = {tool: client}
            if tool != "minfer":
                clients["minfer"] = stack.enter_context(bench.worker("minfer", "minfer"))[0]
            rows_of = speed.bp_rows if key == "bp" else speed.exact_rows
            rows = rows_of(problem, clients, REPS, bench.scratch)
            by_tool = {r.tool: r for r in rows}
            if tool not in by_tool:
                raise ToolFailed(client.failure)
            found = vars(by_tool[tool]) | {
                "seconds": by_tool[tool].seconds,
                "minfer_seconds": by_tool["minfer"].seconds,
                "x_minfer": speed.ratio(rows, problem, tool, "minfer"),
            }
            return found, hello
    except ToolFailed as error:
        say(f"{tool} on {problem}: {error}")
        return {"problem": problem, "tool": tool, "failed": str(error)}, hello


def accuracy(bench: Bench, peer: str) -> dict[str, Any]:
    """Largest distance of settled belief propagation from the exact marginals."""
    out: dict[str, Any] = {}
    for problem in EXACT:
        target = bench.scratch / f"{problem}-exact.npy"
        np.save(target, reference.exact_grid(load(problem)))
        for tool in PEERS[peer][1]:
            if tool in speed.BP[problem]:
                request = {"problem": problem, "target": str(target), "iters": SETTLED}
                try:
                    with bench.worker(peer, tool) as (client, _):
                        out[f"{tool} {problem}"] = client.ask("accuracy", **request)["error"]
                except ToolFailed as error:
                    out[f"{tool} {problem}"] = str(error)
    return out


def bad_input(bench: Bench, peer: str) -> dict[str, Any]:
    """What happens on each trap, each in a process of its own: a hang is one cell."""
    out: dict[str, Any] = {}
    for tool in PEERS[peer][1]:
        for way in ("bp", "exact"):
            if getattr(TOOLS[tool], METHODS[way]) is getattr(Tool, METHODS[way]):
                continue  # it has none
            found = out[f"{tool}, {'exact' if way == 'exact' else 'BP'}"] = {}
            for case in (*CASES, "unknown"):
                ask = {"op": "unknown"} if case == "unknown" else {"op": "case", "case": case}
                try:
                    with bench.worker(peer, tool, CASE_LIMIT) as (client, _):
                        found[case] = client.ask(**ask, way=way)
                except ToolFailed as error:
                    found[case] = {"died": str(error)}
                say(f"{tool}, {way}: {case}: {found[case]}")
    return out


def parsing(bench: Bench, peer: str) -> dict[str, Any]:
    """Arc probabilities: agreement with minfer's, and times in turns."""
    out: dict[str, Any] = {"rows": [], "second": []}
    try:
        with ExitStack() as stack:
            clients: dict[str, Patient] = {}
            for name in dict.fromkeys(("minfer", peer)):
                enter = bench.worker(name, name, script="peers_trees.py")
                clients[name], hello = stack.enter_context(enter)
            out |= {"version": hello["version"], "import": hello["seconds"]}
            for batch in BATCHES:
                out["rows"].append(_tree_row(bench, clients, peer, batch))
            for batch in PAIR_BATCHES:
                for form in clients[peer].ask("forms")["forms"]:
                    out["second"].append(_pair_row(bench, clients, peer, form, batch))
    except ToolFailed as error:
        out["failed"] = str(error)
        say(f"{peer}: {error}")
    return out


def _turns(asks: dict[Any, Callable[[], dict[str, Any]]]) -> dict[Any, list[float]]:
    """Seconds of each in every round, there and back."""
    return speed.take_turns(asks, TREE_ROUNDS, warm_up=False)


def _tree_row(bench: Bench, clients: dict[str, Patient], peer: str, batch: str) -> dict[str, Any]:
    files = {name: bench.scratch / f"{name}-trees.npy" for name in clients}
    for name, client in clients.items():
        client.ask("prepare", batch=batch, out=str(files[name]))
    exact = bench.scratch / "exact-trees.npy"
    clients["minfer"].ask("exact", out=str(exact))
    seconds = _turns({n: lambda c=c: c.ask("time") for n, c in clients.items()})
    off = {n: float(np.abs(np.load(f) - np.load(exact)).max()) for n, f in files.items()}
    row = {
        "batch": batch,
        "us_per_sentence": _us(seconds[peer], BATCHES[batch].sentences),
        "minfer_us": _us(seconds["minfer"], BATCHES[batch].sentences),
        "x_minfer": measure.median_ratio(seconds[peer], seconds["minfer"]),
        "difference": off[peer],
        "minfer_difference": off["minfer"],
    }
    say(
        f"{peer}: {batch}: {row['us_per_sentence']:.0f} us a sentence, "
        f"{row['x_minfer']:.1f} times minfer's, differs by {row['difference']:.1e}"
    )
    return row


def _pair_row(
    bench: Bench, clients: dict[str, Patient], peer: str, form: str, batch: str
) -> dict[str, Any]:
    """One form of second order beside minfer with all pairs, and reduced."""
    all_pairs, reduced = ("minfer", "BP, all pairs"), ("minfer", "BP, reduced")
    trees = bench.scratch / "first-order.npy"
    first = PAIR_BATCHES[batch].first
    clients["minfer"].ask("prepare", batch=first, out=str(trees))
    asks: dict[Any, Callable[[], dict[str, Any]]] = {}
    checked, found = {}, {}
    for key in dict.fromkeys((all_pairs, reduced, (peer, form))):
        client, out = clients[key[0]], bench.scratch / "form.npy"
        request = {"form": key[1], "batch": batch, "out": str(out), "trees": str(trees)}
        checked[key] = client.ask("prepare_form", **request)
        found[key] = np.load(out)
        asks[key] = lambda client=client, form=key[1]: client.ask("time", form=form)
    seconds, sentences = _turns(asks), BATCHES[first].sentences
    mine = seconds[peer, form]
    row = {
        "batch": batch,
        "form": form,
        "us_per_sentence": _us(mine, sentences),
        "x_all": measure.median_ratio(mine, seconds[all_pairs]),
        "x_reduced": measure.median_ratio(mine, seconds[reduced]),
        **checked[peer, form],
    }
    if (peer, form) == reduced:  # the same model: how much of the probability is elsewhere
        moved = np.abs(found[peer, form] - found[all_pairs])[:, :, 1:].sum(1) / 2
        row |= {"moved": float(moved.mean()), "share": row["kept"] / checked[all_pairs]["kept"]}
    say(f"{peer}: {form}, {batch}: {row['us_per_sentence']:.0f} us a sentence")
    return row


def _us(seconds: list[float], sentences: int) -> float:
    return statistics.median(seconds) / sentences * 1e6


def measured(bench: Bench, store: Store, peer: str, parts: list[str]) -> bool:
    """All parts of one peer that are not known yet; whether all are known now."""
    now = stamp()
    if "install" in parts and "failed" in store.part(
        "install", lambda: bench.environment(peer), now
    ):
        return True
    work: dict[str, Callable[[Bench, str], Any]] = {}
    if any(peer in has for has in CLAIMS.values()):
        work["claims"] = claims
    if PEERS[peer][1]:
        work |= {"time": times, "accuracy": accuracy, "input": bad_input}
    if peer in TREE_TOOLS:
        work["parsing"] = parsing
    work = {part: how for part, how in work.items() if part in parts}
    if work.keys() - store.found and not (bench.ready("minfer") and bench.ready(peer)):
        return False
    for part, how in work.items():
        try:
            store.part(part, lambda how=how: how(bench, peer), now)
        except Exception as error:  # one part never stops the others
            say(f"{peer}: {part}: {type(error).__name__}: {error}")
    return not work.keys() - store.found


def main() -> int:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--peers", nargs="+", metavar="PEER", choices=list(PEERS), default=list(PEERS),
                     help=f"of {', '.join(PEERS)} (default all)")  # fmt: skip
    cli.add_argument("--only", nargs="+", metavar="PART", choices=PARTS, default=list(PARTS),
                     help="these parts (default all)")  # fmt: skip
    cli.add_argument(
        "--again",
        action="store_true",
        help="forget these parts first; leave it out to go on after an interruption",
    )
    cli.add_argument("--envs", type=Path, help="folder for the environments, kept and reused")
    cli.add_argument("--core", type=int, default=None, help="core to pin to (default the last)")
    cli.add_argument("--loose", action="store_true",
                     help="no pinning, threads as they come")  # fmt: skip
    cli.add_argument("--results", type=Path,
                     help="what was found (default benchmarks/results/peers, or "
                     "benchmarks/results/loose/peers)")  # fmt: skip
    cli.add_argument("--page", type=Path,
                     help="the page (default docs/reference/peers.md)")  # fmt: skip
    args = cli.parse_args()
    pinned, loose = HERE / "results" / "peers", HERE / "results" / "loose" / "peers"
    if args.loose:
        measure.loosen()
    args.results = args.results or (loose if args.loose else pinned)
    args.page = args.page or ROOT / "docs" / "reference" / "peers.md"
    core = measure.last_core() if args.core is None else args.core
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # through `finally`
    args.results.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="minfer-peers-"))
    bench = Bench((args.envs or scratch / "envs").resolve(), scratch, core)
    bench.envs.mkdir(parents=True, exist_ok=True)
    stores = {peer: Store(peer, args.results) for peer in args.peers}
    unfinished: list[str] = []
    try:
        for store in stores.values() if args.again else ():
            store.forget(args.only)
        for peer, store in stores.items():
            try:
                complete = measured(bench, store, peer, args.only)
            except Exception as error:  # one peer never stops the others
                say(f"{peer}: {type(error).__name__}: {error}")
                complete = False
            unfinished += [] if complete else [peer]
            if args.envs is None and peer != "minfer":
                shutil.rmtree(bench.envs / peer, ignore_errors=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    found = {p: Store(p, pinned if args.loose else args.results).found for p in PEERS}
    free = {p: Store(p, args.results if args.loose else loose).found for p in PEERS}
    networks = Results(HERE / "results" / "networks.json").found
    write_sections(args.page, peers_page.sections(found, networks, free))
    say(f"wrote {args.page}")
    if unfinished:
        say(f"not finished: {', '.join(unfinished)}; run it again, without --again")
    return 1 if unfinished else 0


if __name__ == "__main__":
    raise SystemExit(main())
