"""What batch runs cost and what they survive: the facts of docs/reference/batch.md.

    python benchmarks/batch.py PART... [--work DIR] [--treebank FILE] [--model FILE] [--scale X]

Parts: overhead (over a bare loop), costs (of starting, of a shard), speedup (two processes against
one, on shards of a minute), memory (10 million tokens), kills (20 of the driver), ray (two workers,
one killed), components (one graph of a million small ones). ``--scale 0.05`` is a quick look.
Without ``--model`` a small parser is trained; the corpus is drawn from the treebank's sentences.
Needs the extras parsing, batch and ray.

Every line starts with the machine's load, since everything here is a ratio of times or an equality.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from minfer.batch import ParseSentences, run, status
from minfer.parsing import Parser, Recipe, Sentence, read_conllu, write_conllu
from minfer_experiments.measure import Stopwatch, in_turn, least, median_ratio, wall_seconds
from places import TREEBANKS

TREEBANK = TREEBANKS / "UD_English-EWT" / "en_ewt-ud-train.conllu.gz"


def say(text: str) -> None:
    print(f"[load {os.getloadavg()[0]:4.1f}] {text}", flush=True)


def drawn(treebank: Path, tokens: int) -> Iterator[Sentence]:
    """Sentences of a treebank, words only, drawn until there are so many tokens."""
    known = [s.forms for s in read_conllu(treebank, on_error="skip", report=lambda _: None)]
    rng = random.Random(0)
    while tokens > 0:
        sentence = Sentence.from_forms(rng.choice(known))
        tokens -= len(sentence)
        yield sentence


class Bench:
    """Model, corpora and folders of one run of this script."""

    def __init__(self, work: Path, treebank: Path, model: Path | None, scale: float) -> None:
        self.work, self.treebank, self.scale = work, treebank, scale
        work.mkdir(parents=True, exist_ok=True)
        self._model = model

    @property
    def job(self) -> ParseSentences:
        return ParseSentences(str(self.model))

    @property
    def model(self) -> Path:
        """The parser, trained here if none was given."""
        path = self._model or self.work / "small.model"
        if not path.exists():
            sentences = read_conllu(self.treebank, on_error="skip", report=lambda _: None)
            recipe = Recipe(bits=14, tag_bits=12, epochs=1, tag_epochs=2, label_epochs=1, folds=2)
            Parser.train(islice(sentences, 800), recipe=recipe).save(path)
        return path

    def corpus(self, tokens: int) -> Path:
        path = self.work / f"corpus-{tokens}.conllu"
        if not path.exists():
            write_conllu(drawn(self.treebank, tokens), path)
        return path

    def out(self, name: str) -> Path:
        return self.work / name

    def run(self, corpus: Path, name: str, **options: object) -> float:
        """Seconds of a run from the start."""
        return wall_seconds(
            lambda: run(self.job, [corpus], self.out(name), fresh=True, **options)  # type: ignore[arg-type]
        )

    # ------------------------------------------------------------------ the parts

    def tokens_per_second(self) -> float:
        """Of processor time."""
        parser = Parser.load(self.model)
        sentences = list(drawn(self.treebank, 40_000))
        list(parser.parse(sentences[:50]))
        with Stopwatch() as spent:
            for parsed in parser.parse(sentences):
                str(parsed)
        return sum(map(len, sentences)) / spent.cpu

    def overhead(self) -> None:
        corpus = self.corpus(int(100_000 * self.scale))

        def bare() -> None:
            parser = Parser.load(self.model)
            write_conllu(parser.parse(read_conllu(corpus)), self.out("bare.conllu"))

        def engine() -> None:
            self.run(corpus, "engine", workers=1, shard_bytes=4 << 20)

        times = in_turn({"bare": bare, "engine": engine}, 7, warm_up=False)
        ratio, best = median_ratio(times["engine"], times["bare"]), least(times)
        parts = b"".join(p.read_bytes() for p in sorted(self.out("engine").glob("part-*")))
        assert parts == self.out("bare.conllu").read_bytes()
        say(
            f"overhead: engine {best['engine']:.1f} s, bare loop {best['bare']:.1f} s of processor "
            f"time; ratio {ratio:.3f} (median of 7 pairs), "
            f"{best['engine'] / best['bare']:.3f} (best of each); same bytes"
        )

    def costs(self) -> None:
        """Of the start of a worker, and of a shard beyond its records; processor time."""
        code = f"import minfer.batch as b; b.ParseSentences({str(self.model)!r}).start('conllu')"
        starts = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            starts.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        corpus = self.corpus(20_000)
        seconds, shards = {}, {}
        for size in (1 << 30, 1000):
            work = partial(self.run, corpus, "costs", workers=1, shard_bytes=size)
            seconds |= least(in_turn({size: work}, 3, warm_up=False))
            shards[size] = status(self.out("costs"))[0].shards
        each = (seconds[1000] - seconds[1 << 30]) / (shards[1000] - 1)
        out = self.out("costs")
        line = (out / "manifest.jsonl").stat().st_size / shards[1000]
        plan = (out / "plan.jsonl").stat().st_size / shards[1000]
        say(
            f"costs: a worker starts in {min(starts):.2f} s; a shard costs {1e3 * each:.1f} ms "
            f"({shards[1000]} shards), {plan:.0f} bytes of plan and {line:.0f} of manifest"
        )

    def speedup(self) -> None:
        """Two shards of a minute: by one process, by two."""
        tokens = int(60 * self.tokens_per_second() * self.scale) * 2
        corpus = self.corpus(tokens // 10_000 * 10_000)
        shard = corpus.stat().st_size // 2 + 1
        seconds, work = {}, {}
        for workers in (1, 2):
            began = _processor_time()
            seconds[workers] = self.run(corpus, f"by-{workers}", workers=workers, shard_bytes=shard)
            work[workers] = _processor_time() - began
            say(
                f"speedup: {workers} workers, 2 shards: {seconds[workers]:.1f} s, "
                f"{work[workers]:.1f} s of processor time"
            )
        assert digest(self.out("by-1")) == digest(self.out("by-2"))
        say(
            f"speedup: {seconds[1] / seconds[2]:.2f} by the clock; by processor time two idle "
            f"cores would give {2 * work[1] / work[2]:.2f}"
        )

    def memory(self) -> None:
        """Many shards by two processes; a fifth of it as one shard, which must stream."""
        watch = Watch()
        for tokens, shard_bytes, workers in ((10_000_000, 8 << 20, 2), (2_000_000, 1 << 40, 1)):
            corpus = self.corpus(int(tokens * self.scale))
            watch.start()
            seconds = self.run(corpus, f"by-{workers}", workers=workers, shard_bytes=shard_bytes)
            sizes = watch.stop()
            tenths = [max(part) for part in np.array_split(sizes, 10) if len(part)]
            say(
                f"memory: {tokens * self.scale:,.0f} tokens, {corpus.stat().st_size / 2**20:,.0f} "
                f"MiB in shards of {min(shard_bytes, corpus.stat().st_size) / 2**20:,.0f}, "
                f"{workers} workers, {seconds:,.0f} s; peak resident MiB, all processes, in each "
                "tenth of the run: " + " ".join(f"{size / 2**20:.0f}" for size in tenths)
            )

    def kills(self, times: int = 20) -> None:
        corpus = self.corpus(int(2_000_000 * self.scale))
        alone = self.run(corpus, "undisturbed", workers=1, shard_bytes=1 << 18)
        longest = 3 + alone / (2 * times)  # seconds until a kill: starting, and a little work
        out, rng, killed = self.out("killed"), random.Random(1), 0
        run(self.job, [self.corpus(1000)], out, fresh=True)  # something to be forgotten
        command = [sys.executable, "-m", "minfer", "batch", "parse", self.model, corpus, "-o", out]
        command += ["--workers", "2", "--shard-mb", "0.25"]
        fresh = ["--fresh"]
        while True:
            driver = subprocess.Popen(
                [*map(str, command), *fresh], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if killed < times:
                time.sleep(rng.uniform(0, longest))
                if driver.poll() is not None:
                    raise SystemExit("it was done before it could be killed: raise --scale")
                driver.send_signal(signal.SIGKILL)
                killed += 1
            driver.wait()
            done = status(out)[0] if (out / "plan.jsonl").exists() else None
            if done is not None and done.shards > 1:
                fresh = []
            if driver.returncode == 0:
                break
        state = status(out)[0]
        same = digest(out) == digest(self.out("undisturbed"))
        say(
            f"kills: {killed} SIGKILLs, {state.done} of {state.shards} shards, "
            f"{state.rows:,} sentences; output identical: {same}"
        )
        assert same

    def ray(self) -> None:
        corpus = self.corpus(int(400_000 * self.scale))
        options = {"shard_bytes": 1 << 18}
        local = self.run(corpus, "local", workers=2, **options)
        killed: list[int] = []

        def report(state: object) -> None:
            if getattr(state, "done", 0) == 3 and not killed:
                killed.append(actors()[0])
                os.kill(killed[0], signal.SIGKILL)

        seconds = self.run(corpus, "ray", workers=2, engine="ray", report=report, **options)
        same = digest(self.out("ray")) == digest(self.out("local"))
        say(
            f"ray: 2 workers, one killed ({len(killed)}): {seconds:.0f} s, the starting of Ray "
            f"included; local {local:.0f} s; output identical: {same}"
        )
        assert same
        assert killed

    def components(self) -> None:
        from minfer import BeliefPropagation, Components, FactorGraph

        n = int(1_000_000 * self.scale)
        rng = np.random.default_rng(0)
        chains = np.arange(5 * n).reshape(n, 5)  # n chains of five variables
        edges = np.stack([chains[:, :-1].ravel(), chains[:, 1:].ravel()], axis=1)
        graph = FactorGraph.pairwise(rng.normal(size=5 * n), edges, rng.normal(size=len(edges)))
        BeliefPropagation()(FactorGraph.pairwise([0.0, 0.0], [[0, 1]], [1.0]))  # loads kernels
        answers = {}
        for name, solver in (
            ("whole", BeliefPropagation()),
            ("components, 1 thread", Components(BeliefPropagation())),
            ("components, 2 threads", Components(BeliefPropagation(), workers=2)),
        ):
            with Stopwatch() as spent:
                answers[name] = solver(graph)
            say(f"components: {n:,} of them, {name}: {spent.wall:.2f} s")
        first, *others = answers.values()
        worst = max(float(np.abs(first.probs - o.probs).max()) for o in others)
        say(f"components: largest difference of a probability {worst:.1e}; {others[0].note}")


# ---------------------------------------------------------------------- tools


def _processor_time() -> float:
    """Seconds of this process and of children that have ended."""
    both = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def digest(folder: Path) -> str:
    """Of all parts and errors files of a run, names included."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("part-*")):
        found.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def processes() -> Iterator[tuple[int, int, str]]:
    """Number, parent and name of every process."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            _, _, rest = (path / "stat").read_text().rpartition(")")
            yield int(path.name), int(rest.split()[1]), (path / "cmdline").read_text()
        except (OSError, IndexError):
            continue


def actors() -> list[int]:
    """Ray's actors of a batch run that this process started."""
    found = list(processes())
    family = {os.getpid()}
    for _ in range(4):
        family |= {pid for pid, parent, _ in found if parent in family}
    return [pid for pid, _, name in found if pid in family and "MapWorker" in name]


class Watch:
    """Resident memory of this process and its children, twice a second."""

    def start(self) -> None:
        self.sizes: list[int] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> list[int]:
        self._end.set()
        self._thread.join()
        return self.sizes

    def _look(self) -> None:
        me, page = os.getpid(), resource.getpagesize()
        while not self._end.wait(0.5):
            family = [me, *(pid for pid, parent, _ in processes() if parent == me)]
            total = 0
            for pid in family:
                try:
                    total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
                except (OSError, IndexError):
                    continue
            self.sizes.append(total)


def main() -> None:
    parts = ("overhead", "costs", "speedup", "memory", "kills", "ray", "components")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="+", choices=parts)
    parser.add_argument("--work", type=Path, default=Path("batch-bench"))
    parser.add_argument("--treebank", type=Path, default=TREEBANK)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    bench = Bench(given.work, given.treebank, given.model, given.scale)
    if given.parts != ["components"]:
        say(
            f"one process parses {bench.tokens_per_second():,.0f} tokens a second of processor time"
        )
    for part in given.parts:
        getattr(bench, part)()


if __name__ == "__main__":
    main()
