"""ChainCRF against crfsuite: the same features, objective and stopping rule, CPU time.

    python benchmarks/learning_chains.py TRAIN.conllu.gz DEV.conllu.gz
    python benchmarks/learning_chains.py TRAIN DEV --sentences 500 --turns 1 --dry

Tags (UPOS) of a treebank's words from features as crfsuite's tutorial has them: the word, its ends,
its shape, its neighbours. Both sides take the same lists of texts and are timed from there on, the
reading of features included; they take turns in one process, and a time is the median over turns.
That is done twice: on one core with one thread, and in a process as anybody starts it, where
libraries have threads of their own. Compiling is not counted. Rows: penalties, and a stopping rule
near crfsuite's own (delta) or tight.
Writes the part "chains" of benchmarks/results/learning.json and of
docs/reference/learning-measured.md.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from learning_page import keep
from minfer.learn import ChainCRF
from minfer_experiments.measure import Stopwatch, cpu_name, in_both_ways, in_turn, timed, told
from minfer_experiments.pages import table

CASES: list[dict[str, float]] = [
    {"c1": 0.0, "c2": 1.0, "delta": 1e-5},
    {"c1": 0.0, "c2": 1.0, "delta": 1e-7},
    {"c1": 0.5, "c2": 0.1, "delta": 1e-5},
]


def sentences(path: str, limit: int) -> list[list[tuple[str, str]]]:
    """Words and tags of a CoNLL-U file."""
    out: list[list[tuple[str, str]]] = [[]]
    opened: Any = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        for line in file:
            cells = line.rstrip("\n").split("\t")
            if len(cells) == 10 and cells[0].isdigit():
                out[-1].append((cells[1], cells[3]))
            elif not line.strip() and out[-1]:
                if len(out) == limit:
                    break
                out.append([])
    return [s for s in out if s]


def features(words: Sequence[str], i: int) -> list[str]:
    """Of one word."""
    word = words[i]
    out = ["bias", f"w={word.lower()}"]
    out += [f"s{k}={word[-k:]}" for k in (1, 2, 3)] + [f"p{k}={word[:k]}" for k in (1, 2, 3)]
    out += [f"upper={word.isupper()}", f"title={word.istitle()}", f"digit={word.isdigit()}"]
    out += [f"hyphen={'-' in word}"]
    for step in (-1, 1):
        if 0 <= i + step < len(words):
            near = words[i + step]
            out += [f"{step}w={near.lower()}", f"{step}s3={near[-3:]}"]
            out += [f"{step}w|w={near.lower()}|{word.lower()}"]
        else:
            out.append(f"{step}edge")
    for step in (-2, 2):
        if 0 <= i + step < len(words):
            out.append(f"{step}w={words[i + step].lower()}")
    return out


def data(path: str, limit: int) -> tuple[list[list[list[str]]], list[list[str]]]:
    found = sentences(path, limit)
    X = [[features([w for w, _ in s], i) for i in range(len(s))] for s in found]
    return X, [[tag for _, tag in s] for s in found]


def accuracy(told: list[list[str]], truth: list[list[str]]) -> float:
    pairs = [(a, b) for x, y in zip(told, truth) for a, b in zip(x, y)]
    return sum(a == b for a, b in pairs) / len(pairs)


def by_crfsuite(X: Any, y: Any, dev: Any, case: dict[str, float]) -> dict[str, float]:
    import pycrfsuite

    spent = Stopwatch()
    trainer = pycrfsuite.Trainer(verbose=False)
    for items, labels in zip(X, y):
        trainer.append(items, labels)
    trainer.set_params(case)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        trainer.train(path)
        seconds = spent.cpu
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        told = [tagger.tag(items) for items in dev[0]]
    last = trainer.logparser.iterations[-1]
    return {
        "seconds": seconds, "objective": last["loss"],
        "iterations": len(trainer.logparser.iterations), "accuracy": accuracy(told, dev[1]),
    }  # fmt: skip


def by_minfer(X: Any, y: Any, dev: Any, case: dict[str, float]) -> dict[str, float]:
    seconds, crf = timed(lambda: ChainCRF(**case).fit(X, y))  # type: ignore[arg-type]
    return {
        "seconds": seconds, "objective": crf.objective_, "iterations": crf.n_iter_,
        "accuracy": crf.score(*dev), "mpm": crf.set_params(decode="mpm").score(*dev),
        "gap": crf.gap_,
    }  # fmt: skip


def measure(train: str, dev: str, n: int, turns: int, which: int | None) -> list[dict[str, Any]]:
    """One row for each case: medians of both sides."""
    X, y = data(train, n)
    held_out = data(dev, 10**9)
    ChainCRF(max_iterations=2).fit(X[:5], y[:5]).score(*(part[:2] for part in held_out))
    rows = []
    for case in CASES if which is None else CASES[which : which + 1]:
        given = X, y, held_out, case
        sides = {"crfsuite": partial(by_crfsuite, *given), "minfer": partial(by_minfer, *given)}
        found = in_turn(sides, turns, warm_up=False, timer=told)
        row: dict[str, Any] = {"case": case, "sentences": len(X), "words": sum(map(len, X))}
        for side, runs in found.items():
            row[side] = {k: statistics.median(run[k] for run in runs) for k in runs[0]}
        row["processor"] = cpu_name()
        rows.append(row)
    return rows


def joined(found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The pinned rows, each with the ratio of both processes."""
    rows = []
    for row, loose in zip(found["pinned"], found["loose"]):
        free = loose["minfer"]["seconds"] / loose["crfsuite"]["seconds"]
        rows.append({**row, "loose": {k: loose[k]["seconds"] for k in ("minfer", "crfsuite")},
                     "loose_ratio": free})  # fmt: skip
    return rows


def section(rows: list[dict[str, Any]]) -> str:
    """The section of the page."""
    lines = []
    for row in rows:
        ours, theirs, case = row["minfer"], row["crfsuite"], row["case"]
        lines.append([
            f"c1 = {case['c1']:g}, c2 = {case['c2']:g}, delta = {case['delta']:g}",
            f"{theirs['objective']:.3f}", f"{ours['objective']:.3f}",
            f"{theirs['seconds']:.1f} ({theirs['iterations']:.0f})",
            f"{ours['seconds']:.1f} ({ours['iterations']:.0f})",
            f"{ours['seconds'] / theirs['seconds']:.2f}",
            f"{row['loose_ratio']:.2f}",
            f"{100 * theirs['accuracy']:.2f}",
            f"{100 * ours['accuracy']:.2f} ({100 * ours['mpm']:.2f})",
        ])  # fmt: skip
    head = [
        "penalties, rule", "crfsuite's objective", "ours", "crfsuite, s (iterations)", "ours",
        "ratio", "ratio, not pinned", "crfsuite's accuracy", "ours (by marginals)",
    ]  # fmt: skip
    return (
        f"UPOS of {rows[0]['sentences']:,} sentences ({rows[0]['words']:,} words), "
        f"the same features and stopping rule; CPU seconds of one core, {rows[0]['processor']}, "
        "from lists of features to weights, median; accuracy in % of the words of the development "
        "file. The second ratio is of CPU seconds in a process that is not pinned, all threads "
        "counted, as anybody runs it. "
        "`benchmarks/learning_chains.py`.\n\n" + table(head, lines)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train")
    parser.add_argument("dev")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="print only")
    parser.add_argument("--case", type=int, choices=range(len(CASES)), help="one alone; print only")
    asked = parser.parse_args()
    found = in_both_ways(
        __file__,
        lambda: measure(asked.train, asked.dev, asked.sentences, asked.turns, asked.case),
    )
    if found is None:
        return
    rows = joined(found)
    print(section(rows))
    if not asked.dry and asked.case is None:
        keep("chains", rows, section(rows))


if __name__ == "__main__":
    main()
