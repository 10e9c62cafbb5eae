"""The parser measured: accuracy over seeds, equal accuracy at a fraction of the factors, speed.

    python benchmarks/parsing.py [--data DIR] --models DIR                # all parts
    python benchmarks/parsing.py [--data DIR] --models DIR --parts speed

``--data`` (default as in places.py) holds UD treebanks in folders of their own (UD_English-EWT,
UD_Italian-ParTUT, UD_Dutch-LassySmall...). Models are trained into ``--models`` if they are not
there yet. Results go to benchmarks/results/parsing.json, from which
docs/reference/parsing.md is written.

Times are CPU seconds of whole passes over a corpus on one pinned core, the methods in turn, the
least of several rounds; a pass parses every sentence once, so nothing is warm that would not be.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minfer.parsing import Inference, Parser, Recipe, Sentence, evaluate, read_conllu
from minfer.parsing.calibration import calibration
from minfer.parsing.evaluation import Scores, bootstrap_difference
from minfer.parsing.features import Encoded
from minfer.parsing.stream import parse_file
from minfer_experiments import measure
from minfer_experiments.measure import Stopwatch, cpu_seconds
from minfer_experiments.pages import say, write_sections
from minfer_experiments.results import Results
from parsing_page import sections
from places import DOCS, RESULTS, TREEBANKS

RNGS = (101, 102, 103)
LANGUAGES = {  # folder's beginning, second-order factors, projective trees
    "English": ("UD_English-EWT", {"gp": True, "sib": True}, True),
    "Italian": ("UD_Italian-ParTUT", {"gp": True, "sib": False}, True),
    "Dutch": ("UD_Dutch-LassySmall", {"gp": True, "sib": False}, False),
}
FIRST = {"gp": False, "sib": False}
WAYS = {
    "full BP": Inference.full(),
    "full BP, 1 iteration": Inference.full(max_iters=1),
    "full BP, 2 iterations": Inference.full(max_iters=2),
    "full BP, 3 iterations": Inference.full(max_iters=3),
    "lazy (default)": Inference(),
}
PHASES = ("features", "arcs", "seed", "pairs", "BP", "tree", "relations")


class Bench:
    """Treebanks, and parsers that are trained once."""

    def __init__(self, data: Path, models: Path) -> None:
        self.data, self.models = data, models
        models.mkdir(parents=True, exist_ok=True)
        self._read: dict[tuple[str, str], list[Sentence]] = {}

    def file(self, language: str, part: str) -> Path:
        prefix = LANGUAGES[language][0]
        found = sorted(self.data.glob(f"{prefix}*/*-ud-{part}.conllu*"))
        if not found:
            raise SystemExit(f"{self.data}: no {prefix}*/*-ud-{part}.conllu(.gz)")
        return found[0]

    def sentences(self, language: str, part: str) -> list[Sentence]:
        key = language, part
        if key not in self._read:
            self._read[key] = list(read_conllu(self.file(language, part), multi_root=True))
        return self._read[key]

    def parser(self, language: str, order: int, tags: str, rng: int) -> Parser:
        """Order 1 is trained for as many epochs as order 2 in all."""
        path = self.models / f"{language}-{order}-{tags}-{rng}.model"
        if not path.exists():
            _, second, projective = LANGUAGES[language]
            recipe = Recipe()
            if order == 1:
                recipe = Recipe(first_epochs=recipe.first_epochs + recipe.epochs)
            say(f"training {path.name}")
            Parser.train(
                self.sentences(language, "train"), projective=projective, tags=tags, rng=rng,
                recipe=recipe, **(second if order == 2 else FIRST),
            ).save(path)  # fmt: skip
        return Parser.load(path)


def scored(parser: Parser, gold: list[Sentence], **how: Any) -> Scores:
    return evaluate(gold, parser.parse(gold, **how))


# ---------------------------------------------------------------------- parts


def accuracy(bench: Bench) -> list[dict[str, Any]]:
    """Test scores of every language, order and kind of tags, three seeds each."""
    rows = []
    for language in LANGUAGES:
        gold, dev = (bench.sentences(language, part) for part in ("test", "dev"))
        for order, tags in ((1, "gold"), (2, "gold"), (1, "predicted"), (2, "predicted")):
            for rng in RNGS:
                parser = bench.parser(language, order, tags, rng)
                fitted = parser.calibrated(dev)
                batch = parser.parse_batch(gold)
                found = list(parser.sentences(gold, batch))
                scores = evaluate(gold, found)
                heads = np.concatenate([s.heads for s in gold])
                upos = np.mean(
                    [a == b for s, t in zip(gold, found) for a, b in zip(s.upos, t.upos)]
                )
                rows.append({
                    "language": language, "order": order, "tags": tags, "rng": rng,
                    "uas": scores.uas, "las": scores.las, "uas_no_punct": scores.uas_no_punct,
                    "las_no_punct": scores.las_no_punct, "upos": 100 * float(upos),
                    "ece": calibration(batch.probs, batch.heads == heads).ece,
                    "temper": fitted.model.settings.temper,
                    "fitted_ece": calibration(
                        fitted.parse_batch(gold).probs, batch.heads == heads
                    ).ece,
                })  # fmt: skip
                say(f"{rows[-1]}")
    return rows


def training(bench: Bench) -> dict[str, Any]:
    """Time and memory of one training on English, in a process of its own."""
    code = (
        "import sys\n"
        "from minfer_experiments.measure import Stopwatch, peak\n"
        "from minfer.parsing import Parser, read_conllu\n"
        "data = list(read_conllu(sys.argv[1], multi_root=True))\n"
        "Parser.train(data[:20])\n"  # compiles or loads the kernels
        "with Stopwatch() as spent:\n"
        "    parser = Parser.train(data)\n"
        "print(spent.cpu, spent.wall, peak())\n"
    )
    command = [sys.executable, "-c", code, str(bench.file("English", "train"))]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {"cpu": float(out[0]), "wall": float(out[1]), "peak": int(out[2])}


def equal_accuracy(bench: Bench) -> list[dict[str, Any]]:
    """What the default keeps, and what that does to accuracy: per language, one seed, on test."""
    rows = []
    for language in LANGUAGES:
        parser = bench.parser(language, 2, "gold", RNGS[0])
        gold = bench.sentences(language, "test")
        full = scored(parser, gold, inference=Inference.full())
        every = parser.parse_batch(gold, inference=Inference.full()).counts[:, 1].sum()
        for name, how in WAYS.items():
            counts = parser.parse_batch(gold, inference=how).counts.sum(axis=0)
            scores = scored(parser, gold, inference=how)
            gap = bootstrap_difference(scores, full, 0)
            rows.append({
                "language": language, "method": name, "uas": scores.uas,
                "scored": 100 * float(counts[1] / every), "kept": 100 * float(counts[2] / every),
                "gap": gap.difference, "low": gap.low, "high": gap.high,
            })  # fmt: skip
            say(f"{rows[-1]}")
    return rows


def speed(bench: Bench) -> list[dict[str, Any]]:
    """Phases of a pass over English test: all of it, and sentences of 20 to 40 words."""
    parser = bench.parser("English", 2, "gold", RNGS[0])
    plain = bench.parser("English", 1, "gold", RNGS[0])
    gold = bench.sentences("English", "test")
    rows = []
    for name, chosen in (
        ("all", gold),
        ("20 to 40 words", [s for s in gold if 20 <= len(s) <= 40]),
        ("over 40 words", [s for s in gold if len(s) > 40]),
    ):
        words = sum(map(len, chosen))
        data, own = (p.parse_batch(chosen, "gold", phase=0).data for p in (parser, plain))
        spent = _in_turn({
            "full BP": partial(_seconds, parser, data, Inference.full()),
            "lazy (default)": partial(_seconds, parser, data, Inference()),
            "first order": partial(_seconds, plain, own, Inference()),
        })  # fmt: skip
        for method, ends in spent.items():
            rows.append({
                "slice": name, "sentences": len(chosen), "words": words, "method": method,
                "phases": np.diff(ends, prepend=0.0).tolist(), "seconds": ends[-1],
            })  # fmt: skip
            say(f"{rows[-1]}")
    return rows


def _seconds(parser: Parser, data: Encoded, how: Inference, phase: int) -> float:
    """CPU time until the end of a phase, from hashed words."""
    return cpu_seconds(lambda: parser.parse_batch(data, "gold", inference=how, phase=phase))


def _in_turn(jobs: dict[str, Callable[[int], float]], rounds: int = 9) -> dict[str, list[float]]:
    """For each job the least seconds until the end of each phase, or of a later one."""
    phases = range(len(PHASES))
    calls = {(name, k): partial(job, k) for k in phases for name, job in jobs.items()}
    found = measure.in_turn(calls, rounds, warm_up=False, timer=measure.told)
    best = measure.least(found)
    ends = {name: [best[name, k] for k in phases] for name in jobs}
    return {name: np.minimum.accumulate(x[::-1])[::-1].tolist() for name, x in ends.items()}


def files(bench: Bench) -> list[dict[str, Any]]:
    """CoNLL-U in, CoNLL-U out, with tags and relations: words a second on one core."""
    bench.parser("English", 2, "predicted", RNGS[0])  # trained if need be
    source, target = bench.file("English", "test"), bench.models / "parsed.conllu"
    model = bench.models / f"English-2-predicted-{RNGS[0]}.model"
    loading = cpu_seconds(lambda: Parser.load(model))
    rows = []
    for name, marginals in (("parses", False), ("parses with probabilities", True)):
        best = np.inf
        for _ in range(5):
            with Stopwatch() as spent:
                words = parse_file(model, source, target, marginals=marginals, workers=1).words
            best = min(best, spent.cpu - loading)
        rows.append({"what": name, "words_per_second": words / best})
        say(f"{rows[-1]}")
    return rows


PARTS: dict[str, Callable[[Bench], Any]] = {
    "accuracy": accuracy,
    "training": training,
    "equal accuracy": equal_accuracy,
    "speed": speed,
    "files": files,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=Path, default=TREEBANKS)
    options.add_argument("--models", type=Path, required=True)
    options.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    options.add_argument("--core", type=int, help="core to pin to (default the last)")
    chosen = options.parse_args()
    measure.pin(chosen.core)
    results = Results(RESULTS / "parsing.json")
    bench = Bench(chosen.data, chosen.models)
    for name in chosen.parts:
        spent = Stopwatch()
        found = PARTS[name](bench)
        more = {"load": os.getloadavg()[1], "seconds": round(spent.wall)}
        results.keep(name, found, measure.about() | more)
    say(f"peak memory {measure.peak() / 2**30:.2f} GiB")
    write_sections(DOCS / "parsing.md", sections(results.parts))


if __name__ == "__main__":
    main()
