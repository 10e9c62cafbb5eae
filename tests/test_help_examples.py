"""The examples in the help of every command, run as they are written, on small files."""

from __future__ import annotations

import gzip
import json
import shlex
import shutil
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minfer
from minfer import FactorGraph
from test_cli import COMMANDS, ok

#: What is not run here, and why.
LEFT_OUT = {
    "minfer paper": "takes minutes; test_beside.py has its folder",
    "minfer warmup": "compiles everything",
    "--engine ray": "starts a cluster",
    "zcat ": "a pipe of other programs",
}


def examples() -> list[str]:
    """All lines of all helps that begin with a command."""
    found: dict[str, None] = {}
    helps = []
    for command in COMMANDS.values():
        helps += [command.help, *(one.help for one in getattr(command, "commands", {}).values())]
    for text in helps:
        below = text.partition("Example")[2]
        found |= dict.fromkeys(line.strip() for line in below.splitlines() if "minfer " in line)
    return [line for line in found if not any(words in line for words in LEFT_OUT)]


def network(names: list[str], states: list[str]) -> FactorGraph:
    """A chain of variables, each like the one before."""
    k = len(states)
    like = 0.4 * np.eye(k) + 0.6 / k
    tables: dict[str, Any] = {names[0]: np.full(k, 1 / k)}
    tables |= {name: ([before], like) for before, name in pairwise(names)}
    return FactorGraph.network(dict.fromkeys(names, states), tables)


def grids(folder: Path) -> None:
    rng = np.random.default_rng(0)
    grid = FactorGraph.grid(rng.normal(size=(4, 4)), rng.normal(size=24))
    for name in ("grid.uai", "grid.uai.gz", "grid.fg", "large.uai"):
        minfer.write(grid, folder / name)
    minfer.write_mar(minfer.Exact()(grid), folder / "grid.uai.MAR")
    (folder / "grid.uai.evid").write_text("1 3 1\n")


def networks(folder: Path) -> None:
    alarm = network(["CVP", "PCWP", "HR", "PAP"], ["LOW", "NORMAL", "HIGH"])
    asia = network(["asia", "smoke", "lung", "bronc"], ["no", "yes"])
    files = {"alarm.bif": alarm, "alarm.minfer": alarm, "asia.minfer": asia}
    files["net.minfer"] = network(["SMOKE", "LUNG", "BRONC"], ["no", "yes"])
    files["large.bif"] = network(["A", "B", "C", "D"], ["no", "yes"])
    files["sprinkler.minfer"] = minfer.examples.sprinkler()
    for name, graph in files.items():
        minfer.write(graph, folder / name)


def tables(folder: Path, columns: dict[str, list[str]]) -> None:
    """cases.csv, cases.parquet and a folder of such files."""
    from pyarrow import csv, parquet, table

    (folder / "cases").mkdir()
    for name in ("cases", "cases/one"):
        csv.write_csv(table(columns), folder / f"{name}.csv")
        parquet.write_table(table(columns), folder / f"{name}.parquet")


def pictures(folder: Path) -> None:
    (folder / "scans").mkdir()
    rng = np.random.default_rng(0)
    clean = np.zeros((16, 16))
    clean[4:12, 5:13] = 1.0
    noisy = np.clip(clean + 0.3 * rng.normal(size=clean.shape), 0, 1)
    for name in ("scan.png", "photo.png", "scans/a.png", "scans/b.png"):
        minfer.pictures.write_picture(folder / name, noisy)


@cache
def trained(folder: Path) -> Path:
    """A treebank and a parser of it."""
    ok("example", "treebank", "-o", folder / "tiny.conllu")
    words = ["parse", "train", folder / "tiny.conllu", "-o", folder / "tiny.model"]
    ok(*words, "--bits", 12, "--tag-bits", 10)
    return folder


def sentences(folder: Path) -> None:
    made = trained(folder.parent)
    for name in ("en.model", "tiny.model"):
        shutil.copy(made / "tiny.model", folder / name)
    (folder / "corpus").mkdir()
    text = (made / "tiny.conllu").read_bytes()
    same = "tiny train dev test in out other corpus/a corpus/b"
    for name in same.split():
        (folder / f"{name}.conllu").write_bytes(text)
    for name in ("train", "wiki"):
        (folder / f"{name}.conllu.gz").write_bytes(gzip.compress(text))
    (folder / "story.txt").write_text("The dog sleeps .\n")


def programs(folder: Path) -> None:
    (folder / "prog.mln").write_text(
        "refers(paper, paper)\ncategory(paper, topic)\nsmokes(person)\n"
        "friends(person, person)\n1 friends(x, y) ^ smokes(y) => smokes(x)\n"
        "1.5 category(a, t) ^ refers(a, b) => category(b, t)\n0.5 category(a, t)\n"
    )
    (folder / "evidence.db").write_text(
        "refers(P1, P2)\nrefers(P2, P3)\ncategory(P3, Networking)\ncategory(P4, Theory)\n"
        "friends(Anna, Bob)\nsmokes(Bob)\n"
    )


def jobs(folder: Path) -> None:
    """What batch commands read."""
    from pyarrow import parquet, table

    (folder / "models").mkdir()
    shutil.copy(folder / "grid.uai", folder / "models" / "a.uai")
    (folder / "models.jsonl").write_text(json.dumps({"model": "grid.uai"}) + "\n")
    rows = {"evidence": [json.dumps({"wet_grass": 1}), None]}
    parquet.write_table(table(rows), folder / "rows.parquet")


def made(line: str, folder: Path) -> None:
    """The files that an example reads."""
    words = line.split()
    for name, make in {"parse": sentences, "rules": programs, "denoise": pictures}.items():
        if name in words[1:3]:
            pytest.importorskip({"rules": "duckdb", "parse": "safetensors"}.get(name, "numpy"))
            make(folder)
    grids(folder)
    networks(folder)
    if {"learn", "predict", "batch"} & {*words}:
        pytest.importorskip("pyarrow")
        columns = {"lung": ["no", "yes"], "smoke": ["yes", ""], "id": ["1", "2"]}
        if "learn" in words:
            columns = {v: ["LOW", "HIGH", "NORMAL"] for v in ("CVP", "PCWP", "HR", "PAP")}
        elif "batch" in words:
            columns = {"SMOKE": ["no", "yes"]}
        tables(folder, columns)
        jobs(folder)
    if line.startswith("minfer batch status"):
        ok(*["batch", "run", "models/", "-o", "parsed"])


@pytest.mark.slow
@pytest.mark.parametrize("line", examples())
def test_examples_run_as_they_are_written(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made(line, tmp_path)
    ok(*shlex.split(line)[1:])


def test_there_are_examples() -> None:
    assert len(examples()) > 60
