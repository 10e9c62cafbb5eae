"""Public boards: data that anybody can get, beside numbers that others published.

    python benchmarks/boards.py [uai] [ldpc] [chunking] [--folder DIR] [--names NAME ...]
    python benchmarks/boards.py --page        docs/reference/boards.md, from what is kept

* *uai*: marginals and log Z of the UAI 2014 problems by ``Auto(time_limit=20)``: one core, 8 GiB, a
  process each. ``--folder`` names any other folder of ``FAMILY/NAME.uai.gz`` with evidence and
  answers as they lie in DATA/uai. An error is the mean, over the variables not observed, of the
  Hellinger distance ``sqrt(1 - sum_s sqrt(p_s q_s))``, as on the UAI 2022 board.
* *ldpc*: codes over a binary channel with Gaussian noise, zeros sent, log odds ``2 y / sigma^2``
  with ``sigma^2 = 1 / (2 R 10^(EbN0/10))``: until ``ERRORS`` frames are wrong, beside published
  rates; and frames a second beside the package ``ldpc`` (``pip install --no-deps ldpc``).
* *chunking*: CoNLL-2000, the chain CRF beside python-crfsuite on the same lists of features.

What others answer in weighted counting is in docs/reference/circuits.md (``circuits.py``).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logical import load_ldpc
from minfer_experiments.measure import in_both_ways, in_turn, median_ratio, pin, timed
from minfer_experiments.pages import number, say, table, write_section
from minfer_experiments.results import Results
from places import DATA, DOCS, RESULTS, UAI, UaiModel, uai_models
from stopwatch import measure

FILE, PAGE = RESULTS / "boards.json", DOCS / "boards.md"
#: Packages that are measured, too.
BESIDE = {"uai": (), "ldpc": ("ldpc",), "chunking": ("python-crfsuite",)}
Row = dict[str, Any]
Floats = NDArray[np.float64]


# ------------------------------------------------------------------ UAI 2014

SECONDS, GIB = 20.0, 8
#: What a reference of six published digits can tell.
SAME = 1e-6


def hellinger(p: Floats, q: Floats, starts: NDArray[np.int64]) -> Floats:
    """Distances of two lists of distributions (sum of states,), a variable's from each start on."""
    return np.sqrt(np.maximum(0.0, 1.0 - np.add.reduceat(np.sqrt(p * q), starts)))


def one_model(path: Path) -> Row:
    """How far off a model's answer is, and what it took; in this process."""
    import minfer

    minfer.Auto(time_limit=1.0)(minfer.FactorGraph.pairwise([0.5, 1.0], [(0, 1)], [1.0]))  # loads
    model = UaiModel(path)
    graph, truth, starts = model.graph, model.marginals, model.graph.offsets[:-1]
    moved = np.add.reduceat(graph.field != minfer.read_uai(path).field, starts)
    begin, cpu = time.perf_counter(), time.process_time()
    answer = minfer.Auto(time_limit=SECONDS)(graph)
    out: Row = {"seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu}
    distance = hellinger(answer.probs, truth, starts)[moved == 0]
    with gzip.open(model.beside("PR"), "rt") as file:
        log10_z = float(file.read().split()[1])
    return out | {
        "status": answer.status.value,
        "note": answer.note,
        "hellinger": float(distance.mean()) if len(distance) else 0.0,
        "largest": float(np.abs(answer.probs - truth).max()),
        "log_z_off": abs(answer.log_z - log10_z * math.log(10.0)),
        "gib": measure.peak() / 2**30,
    }


def uai(asked: argparse.Namespace) -> list[Row]:
    rows = []
    for model in uai_models(asked.folder, asked.names):
        command = [sys.executable, __file__, "--model", str(model.path)]
        limited = ["bash", "-c", f'ulimit -v {GIB << 20}; exec "$0" "$@"', *command]
        env = os.environ | measure.one_thread()
        done = subprocess.run(limited, env=env, capture_output=True, text=True, check=False)
        row: Row = {"model": model.name, "family": model.family}
        if done.returncode == 0:
            row |= json.loads(done.stdout.splitlines()[-1])
        else:
            row["error"] = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        say(f"{row}")
        rows.append(row)
    return rows


def published(folder: Path) -> dict[str, dict[str, str]]:
    """Scores of the UAI 2022 tuning board, by model."""
    with open(folder / "board2022.csv") as file:
        return {line["model"]: line for line in csv.DictReader(file)}


def uai_section(rows: list[Row]) -> str:
    board = published(UAI) if (UAI / "board2022.csv").exists() else {}
    lines = []
    for row in rows:
        theirs = board.get(row["model"], {})
        shown = row["family"] not in ("Promedus", "Pedigree")
        scores = [theirs.get(f"{who}_20s", "") if shown else "" for who in ("ibia", "uai14", "lbp")]
        if "error" in row:
            lines.append([row["model"], row["error"], "", "", "", "", "", "", *scores])
            continue
        lines.append(
            [row["model"], row["status"], f"{row['hellinger']:.1e}",
             f"{row['largest']:.1e}", f"{row['log_z_off']:.1e}", number(row["seconds"]),
             number(row["cpu"]), number(row["gib"], 2), *scores]
        )  # fmt: skip
    good = [r for r in rows if "error" not in r]
    same = sum(r["largest"] <= SAME for r in good)
    z = sum(r["log_z_off"] <= SAME * 10 for r in good)
    head = ["model", "status", "mean Hellinger error", "largest error", "log Z off by",
            "seconds", "CPU s", "GiB", "IBIA, score at 20 s", "uai14", "LBP"]  # fmt: skip
    return (
        f"{len(rows)} models: {same} at the precision of the reference ({SAME:g} in every "
        f"probability), {z} in log Z; mean Hellinger error over all "
        f"{np.mean([r['hellinger'] for r in good]):.2e}, the largest "
        f"{max(r['hellinger'] for r in good):.2e}.\n\n" + table(head, lines)
    )


# ------------------------------------------------------------------ LDPC

ERRORS, LEAST_RATE, BLOCK = 100, 1e-3, 500
#: Codes, the curve beside them, and how they are decoded here.
CODES = {
    "WIMAX_288_576": ("flooding sum-product 100 iterations", 100),
    "CCSDS_64_128": ("layered sum-product 50 iterations", 50),
}
Decode = Callable[[Floats], tuple[int, int]]  # log odds (n, bits): wrong frames, bits


def read_alist(path: Path) -> tuple[int, list[list[int]]]:
    """Bits of a code, and those of each check, from MacKay's format."""
    with gzip.open(path, "rt") as file:
        lines = [[int(x) for x in line.split()] for line in file if not line.startswith("#")]
    bits, checks = lines[0]
    of: list[list[int]] = [[] for _ in range(checks)]
    for bit, line in enumerate(lines[4 : 4 + bits]):
        for check in filter(None, line):
            of[check - 1].append(bit)
    return bits, of


def our_decoder(bits: int, checks: list[list[int]], iterations: int) -> Decode:
    from minfer import BeliefPropagation, FactorGraph

    graph = FactorGraph.empty([2] * bits)
    for size in sorted(set(map(len, checks))):
        graph = graph.add_parity(np.array([c for c in checks if len(c) == size]))
    solver = BeliefPropagation(max_iters=iterations, tol=1e-3, schedule="flooding")
    prepared = solver.prepare(graph)

    def decode(log_odds: Floats) -> tuple[int, int]:
        field = np.zeros((*log_odds.shape, 2))
        field[:, :, 0] = log_odds
        found = prepared.batch(field=field.reshape(len(field), -1), log_z=False)
        wrong = found.probs.reshape(field.shape)[:, :, 1] > 0.5
        return int(wrong.any(axis=1).sum()), int(wrong.sum())

    return decode


def their_decoder(bits: int, checks: list[list[int]], iterations: int) -> Decode | None:
    decoder_of = load_ldpc()
    if decoder_of is None:
        return None
    from scipy.sparse import csr_matrix

    rows = np.repeat(np.arange(len(checks)), [len(c) for c in checks])
    columns = np.concatenate(checks)
    matrix = csr_matrix((np.ones(len(rows), np.uint8), (rows, columns)), (len(checks), bits))
    decoder = decoder_of(
        matrix, error_rate=0.1, max_iter=iterations, bp_method="product_sum", schedule="parallel",
        input_vector_type="received_vector",
    )  # fmt: skip

    def decode(log_odds: Floats) -> tuple[int, int]:
        wrong = errors = 0
        for word in log_odds:  # hard bits, and how likely each of them is wrong
            decoder.update_channel_probs(1.0 / (1.0 + np.exp(np.abs(word))))
            found = int(decoder.decode((word < 0).astype(np.uint8)).sum())
            wrong, errors = wrong + (found > 0), errors + found
        return wrong, errors

    return decode


class Channel(NamedTuple):
    """All zeros sent over Gaussian noise of a signal-to-noise ratio, in dB an information bit."""

    eb_n0: float
    rate: float

    @property
    def variance(self) -> float:
        return 1.0 / (2.0 * self.rate * 10.0 ** (self.eb_n0 / 10.0))

    def frames(self, count: int, bits: int, rng: np.random.Generator) -> Floats:
        """Log odds of 0, (count, bits)."""
        received = 1.0 + math.sqrt(self.variance) * rng.normal(size=(count, bits))
        return 2.0 * received / self.variance


def curve(code: str, names: Sequence[str]) -> Iterator[Row]:
    """Points of a published curve, and the same here."""
    how, iterations = CODES[code]
    bits, checks = read_alist(DATA / "ldpc" / f"{code}.alist.gz")
    rate = 1.0 - len(checks) / bits
    decode = our_decoder(bits, checks, iterations)
    theirs = their_decoder(bits, checks, iterations)
    with open(DATA / "ldpc" / "curves.csv") as file:
        points = [p for p in csv.DictReader(file) if p["code_and_decoder"] == f"{code} {how}"]
    for point in points:
        if float(point["fer"]) < LEAST_RATE or (names and point["eb_n0_db"] not in names):
            continue
        channel = Channel(float(point["eb_n0_db"]), rate)
        rng = np.random.default_rng([bits, round(100 * channel.eb_n0)])
        frames = wrong = errors = 0
        begin = time.process_time()
        while wrong < ERRORS:
            more, flipped = decode(channel.frames(BLOCK, bits, rng))
            frames, wrong, errors = frames + BLOCK, wrong + more, errors + flipped
        row: Row = {
            "code": code, "how": how, "eb_n0": channel.eb_n0, "frames": frames, "wrong": wrong,
            "ber": errors / frames / bits, "seconds": time.process_time() - begin,
            "their_frames": int(point["frames"]), "their_wrong": int(point["frame_errors"]),
            "their_ber": float(point["ber"]),
        }  # fmt: skip
        if theirs is not None:
            some = channel.frames(200, bits, rng)
            calls = {"ours": partial(decode, some), "theirs": partial(theirs, some)}
            spent = in_turn(calls, 3)
            row["ratio"] = median_ratio(spent["theirs"], spent["ours"])
            row["their_wrong_here"], row["wrong_here"] = theirs(some)[0], decode(some)[0]
        say(f"{row}")
        yield row


def apart(row: Row) -> float:
    """How many standard errors two counts of wrong frames are apart."""
    a, n, b, m = row["wrong"], row["frames"], row["their_wrong"], row["their_frames"]
    p = (a + b) / (n + m)
    return float((a / n - b / m) / math.sqrt(max(p * (1 - p), 1e-300) * (1 / n + 1 / m)))


def ldpc_section(rows: list[Row]) -> str:
    head = ["code", "Eb/N0, dB", "frames wrong", "rate", "published", "standard errors apart",
            "bits wrong", "published", "frames a second", "times the package ldpc"]  # fmt: skip
    lines = [
        [r["code"], f"{r['eb_n0']:.2f}", f"{r['wrong']} of {r['frames']:,}",
         f"{r['wrong'] / r['frames']:.2e}", f"{r['their_wrong'] / r['their_frames']:.2e}",
         f"{apart(r):+.1f}", f"{r['ber']:.1e}", f"{r['their_ber']:.1e}",
         f"{r['frames'] / r['seconds']:,.0f}", number(r.get("ratio"), 2)]
        for r in rows
    ]  # fmt: skip
    return table(head, lines)


# ------------------------------------------------------------------ CoNLL-2000


def sentences(path: Path) -> tuple[list[list[list[str]]], list[list[str]]]:
    """Features and chunk tags of each sentence."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        blocks = file.read().strip().split("\n\n")
    split = [[line.split() for line in block.splitlines()] for block in blocks]
    X = [[features(s, i) for i in range(len(s))] for s in split]
    return X, [[word[2] for word in s] for s in split]


def features(sentence: list[list[str]], i: int) -> list[str]:
    """Of a word: words and tags up to two places away, pairs and triples of them, its shape."""

    def at(k: int, column: int) -> str:
        return sentence[i + k][column] if 0 <= i + k < len(sentence) else f"edge{k}"

    word = at(0, 0)
    out = ["bias", *(f"w{k}={at(k, 0)}" for k in range(-2, 3))]
    out += [f"w{k}{k + 1}={at(k, 0)}|{at(k + 1, 0)}" for k in (-1, 0)]
    out += [f"t{k}={at(k, 1)}" for k in range(-2, 3)]
    out += [f"t{k}{k + 1}={at(k, 1)}|{at(k + 1, 1)}" for k in range(-2, 2)]
    out += [f"t{k}3={at(k, 1)}|{at(k + 1, 1)}|{at(k + 2, 1)}" for k in range(-2, 1)]
    out += [f"s3={word[-3:].lower()}", f"s2={word[-2:].lower()}", f"title={word.istitle()}"]
    return [*out, f"upper={word.isupper()}", f"digit={any(c.isdigit() for c in word)}"]


def chunks(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """Where chunks begin and end, and their kinds, as the official score reads IOB tags.

    >>> sorted(chunks(["B-NP", "I-NP", "O", "I-VP", "B-VP"]))
    [(0, 2, 'NP'), (3, 4, 'VP'), (4, 5, 'VP')]
    """
    found, begin, kind = set(), 0, ""
    for i, tag in enumerate([*tags, "O"]):
        head, _, name = tag.partition("-")
        if kind and (head != "I" or name != kind):
            found.add((begin, i, kind))
            kind = ""
        if not kind and head != "O":
            begin, kind = i, name
    return found


def f1(told: list[list[str]], truth: list[list[str]]) -> float:
    """Harmonic mean of precision and recall of chunks, in %."""
    both = right = 0
    for a, b in zip(told, truth, strict=True):
        ours, theirs = chunks(a), chunks(b)
        both, right = both + len(ours) + len(theirs), right + len(ours & theirs)
    return 200.0 * right / both


#: L2 penalty of half a squared norm over variance 1/(2 c2), and when to stop.
CHUNKING = {"c1": 0.0, "c2": 1.0, "delta": 1e-5}


def by_crfsuite(X: Any, y: Any, test: Any) -> Row:
    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    for items, labels in zip(X, y, strict=True):
        trainer.append(items, labels)
    trainer.set_params(CHUNKING)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        seconds, _ = timed(lambda: trainer.train(path))
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        told = [tagger.tag(items) for items in test[0]]
    return {"seconds": seconds, "f1": f1(told, test[1])}


def by_minfer(X: Any, y: Any, test: Any) -> Row:
    from minfer.learn import ChainCRF

    seconds, crf = timed(lambda: ChainCRF(**CHUNKING).fit(X, y))  # type: ignore[arg-type]
    told = [list(s) for s in crf.predict(test[0])]
    return {"seconds": seconds, "f1": f1(told, test[1])}


def chunking_once() -> Row:
    from minfer.learn import ChainCRF

    X, y = sentences(DATA / "conll2000" / "train.txt.gz")
    test = sentences(DATA / "conll2000" / "test.txt.gz")
    ChainCRF(max_iterations=2).fit(X[:20], y[:20]).predict(test[0][:20])  # compiles
    begin = time.perf_counter()
    ours = by_minfer(X, y, test)
    middle = time.perf_counter()
    theirs = by_crfsuite(X, y, test)
    ours["wall"], theirs["wall"] = middle - begin, time.perf_counter() - middle
    return {"minfer": ours, "crfsuite": theirs, "sentences": len(X), "tested": len(test[0])}


def chunking_section(found: dict[str, Row]) -> str:
    head = ["", "F1", "CPU s, one core", "CPU s, threads as they come", "by the clock"]
    one, free = found["pinned"], found["loose"]
    lines = [
        [name, f"{one[key]['f1']:.2f}", number(one[key]["seconds"]), number(free[key]["seconds"]),
         number(free[key]["wall"])]
        for name, key in (("minfer's `ChainCRF`", "minfer"), ("python-crfsuite", "crfsuite"))
    ]  # fmt: skip
    others = [("Zhang, Damerau & Johnson 2002", "94.13"), ("Kudo & Matsumoto 2001", "93.48"),
              ("the task's baseline", "77.07")]  # fmt: skip
    return table(head, lines + [[f"published: {who}", f, "", "", ""] for who, f in others])


# ------------------------------------------------------------------ all


def merged(old: list[Row], new: list[Row]) -> list[Row]:
    """Rows of pieces, made by ``--names``: the new ones take the places of the old."""
    key = ("model", "code", "eb_n0")
    rows = {tuple(row.get(k) for k in key): row for row in [*old, *new]}
    return [rows[name] for name in sorted(rows, key=str)]


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("parts", nargs="*", metavar="PART", help="uai, ldpc, chunking; default all")
    cli.add_argument("--folder", type=Path, default=UAI, help="of FAMILY/NAME.uai.gz")
    cli.add_argument(
        "--names", nargs="*", default=[], help="only these models, or dB; the others stay"
    )
    cli.add_argument(
        "--page", action="store_true", help="write docs/reference/boards.md from what is kept"
    )
    cli.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    asked = cli.parse_args()
    if asked.model:
        print(json.dumps(one_model(asked.model)))
        return 0
    results = Results(FILE)
    sections = {"uai": uai_section, "ldpc": ldpc_section, "chunking": chunking_section}
    for part in asked.parts or ([] if asked.page else list(sections)):
        if part == "chunking":
            found: Any = in_both_ways(__file__, chunking_once)
            if found is None:
                return 0
        elif part == "uai":
            pin()
            found = uai(asked)
        else:
            pin()
            found = [row for code in CODES for row in curve(code, asked.names)]
        if part != "chunking":
            found = merged(results.parts.get(part, []), found)
        print(sections[part](found))
        if asked.folder == UAI:
            results.keep(part, found, measure.about(*BESIDE[part]))
    if asked.page:
        for part, found in results.parts.items():
            write_section(PAGE, part, sections[part](found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
