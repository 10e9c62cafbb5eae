"""Batch runs: nothing lost, nothing twice, whatever happens; the same under every engine."""

from __future__ import annotations

import errno
import gzip
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hsettings
from hypothesis import strategies as st

from minfer import BeliefPropagation, Exact, FactorGraph, MinJoint, query, write
from minfer.errors import (
    DiskFullError,
    FormatError,
    MinferError,
    RefusedError,
    SettingsError,
    WorkerError,
)
from minfer.examples import sprinkler
from minfer.parsing import Parser, Recipe, Sentence, write_conllu
from minfer.parsing.tiny import tiny_treebank
from minfer.pictures import base_pictures, gaussian, read_picture, write_picture
from processes import all_end, everything

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet")

from batch_jobs import Shout, write_corpus  # noqa: E402
from draws import draws  # noqa: E402
from minfer.batch import (  # noqa: E402
    DenoisePictures,
    Job,
    ParseSentences,
    RunModels,
    run,
    status,
)
from minfer.batch.shards import ENDS, cut, digest, find_inputs, read, text_range  # noqa: E402
from minfer.reduction.recipes import Compensated  # noqa: E402
from refused import refused  # noqa: E402

HERE = Path(__file__).parent


def outputs(folder: Path) -> dict[str, bytes]:
    """All that a run is for: parts, errors, pictures."""
    names = [*folder.glob("part-*"), *folder.glob("pictures/**/*.png")]
    assert not list(folder.rglob("*.tmp"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in names}


def lines(folder: Path, pattern: str) -> list[dict]:
    parts = sorted(folder.glob(pattern))
    return [json.loads(line) for path in parts for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A parser of a few sentences."""
    path = tmp_path_factory.mktemp("model") / "tiny.model"
    recipe = Recipe(epochs=1, tag_epochs=1, label_epochs=1, bits=8, tag_bits=8, folds=2)
    Parser.train(tiny_treebank(), recipe=recipe).save(path)
    return str(path)


def sentences(n: int) -> list[Sentence]:
    rng = np.random.default_rng(3)
    words = ["the", "a", "dog", "cat", "saw", "slept", "go", "über"]
    return [Sentence.from_forms(rng.choice(words, rng.integers(1, 9)).tolist()) for _ in range(n)]


@given(
    st.lists(st.sampled_from(["a", "b\n", "\n", "\n\n", "\r\n", "# c\n"]), max_size=30),
    st.lists(st.integers(1, 60), max_size=4),
    st.sampled_from(sorted(ENDS)),
    st.booleans(),
)
@hsettings(max_examples=draws(200))
def test_byte_ranges_cut_nothing_and_lose_nothing(tmp_path_factory, texts, cuts, kind, packed):
    data = "".join(texts).encode()
    path = tmp_path_factory.getbasetemp() / "ranges"
    path.write_bytes(gzip.compress(data) if packed else data)
    edges = [0, *sorted(set(cuts)), None]
    parts = [b"".join(text_range(str(path), kind, a, b)) for a, b in pairwise(edges)]
    assert b"".join(parts) == data
    blank = b"\n\n" if kind == "conllu" else b"\n"
    at = 0
    for part, stop in zip(parts[:-1], edges[1:]):
        at += len(part)
        whole = data[:at].replace(b"\r\n", b"\n")
        assert not part or at == len(data) or whole.endswith(blank)
        assert at == len(data) or at >= stop or not part


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_however_it_is_cut_every_sentence_is_read_once(tmp_path, end, packed):
    path = tmp_path / ("c.conllu.gz" if packed else "c.conllu")
    write_corpus(tmp_path / "plain", 200, end=end)
    data = (tmp_path / "plain").read_bytes()
    path.write_bytes(gzip.compress(data) if packed else data)
    inputs = find_inputs([str(path)], Shout())
    for shard_bytes in (10**9, 5000, 777, 100):
        shards = cut(inputs, Shout(), shard_bytes)
        assert len(shards) <= (16 if packed else 10**6)
        found = [row for s in shards for b in read(s, Shout()) for row in b.to_pylist()]
        ids = [int(row["conllu"].decode().split("\n")[0].split("= ")[1]) for row in found]
        assert ids == list(range(200))
        assert [digest(s) for s in shards] == [digest(s) for s in cut(inputs, Shout(), shard_bytes)]


def shouted(folder: Path, n: int, bad: tuple[int, ...] = (), **options: Any) -> tuple[Path, Path]:
    """A corpus, and a finished run over it."""
    source, out = folder / "c.conllu", folder / "out"
    write_corpus(source, n, bad)
    run(Shout(), [source], out, workers=1, **options)
    return source, out


def nobody_goes_on(source: Path, out: Path, words: str, fresh: bool = True, **options: Any) -> None:
    """Neither status nor a run nor, mostly, starting over; and nothing is touched."""
    before = everything(out)
    refused(FormatError, words, status, out)
    refused(FormatError, words, run, Shout(), [source], out, workers=1, **options)
    if fresh:
        refused(FormatError, words, run, Shout(), [source], out, workers=1, fresh=True)
    assert everything(out) == before


def test_places_are_where_the_record_is(tmp_path):
    source, out = shouted(tmp_path, 50, bad=(3, 40), shard_bytes=700)
    data = source.read_bytes()
    found = lines(out, "*.errors.jsonl")
    assert [f["error"] for f in found] == ["it said boom"] * 2
    for sentence, fault in zip((3, 40), found):
        name, line = fault["place"].rsplit(": line ", 1)
        start = int(name.partition(" from byte ")[2] or 0)
        if start:  # counted from the first sentence that begins there
            start = data.index(b"\n\n", start - 2) + 2
        place = data[start:].split(b"\n")[int(line) - 1]
        assert place == f"# sent_id = {sentence}".encode()


def test_parse_is_what_the_parser_says(tmp_path, model):
    corpus = sentences(300)
    write_conllu(corpus, tmp_path / "c.conllu.gz")
    with open(tmp_path / "c.jsonl", "w") as file:
        for k, s in enumerate(corpus):
            file.write(json.dumps({"id": k, "words": s.forms, "other": 1}) + "\n")
    ids = [str(k) for k in range(300)]
    table = pa.table({"words": [list(s.forms) for s in corpus], "id": ids})
    pq.write_table(table, tmp_path / "c.parquet", row_group_size=90)

    expected = [str(s) for s in Parser.load(model).parse(corpus, marginals=True)]
    job = ParseSentences(model, marginals=True)
    for name, small in (("c.conllu.gz", 3000), ("c.jsonl", 3000), ("c.parquet", 100)):
        out = tmp_path / f"out-{name}"
        state = run(job, [tmp_path / name], out, shard_bytes=small, workers=1)
        assert (state.rows, state.errors) == (300, 0)
        assert state.shards == state.done > 3
        text = b"".join(data for _, data in sorted(outputs(out).items())).decode()
        assert text.split("\n\n")[:-1] == expected

    tables = {}
    for name in ("c.jsonl", "c.parquet"):
        out = tmp_path / f"table-{name}"
        run(job, [tmp_path / name], out, format="parquet", shard_bytes=3000, workers=1)
        tables[name] = pa.concat_tables([pq.read_table(p) for p in sorted(out.glob("part-*"))])
        assert tables[name].column("id").to_pylist() == ids
    assert tables["c.jsonl"].drop_columns("place") == tables["c.parquet"].drop_columns("place")
    heads = [s.heads.tolist() for s in Parser.load(model).parse(corpus)]
    assert tables["c.parquet"].column("heads").to_pylist() == heads


def test_bad_records_never_stop_a_run_unless_asked(tmp_path, model):
    good, bad = "1\tgo" + "\t_" * 8, "1\tgo\t_"
    path = tmp_path / "c.conllu"
    path.write_text(f"{good}\n\n{bad}\n\n{good}\n\n# c\n2\tx" + "\t_" * 8 + f"\n\n{good}\n\n{bad}")
    state = run(ParseSentences(model), [path], tmp_path / "out", workers=1)
    assert (state.rows, state.errors) == (3, 3)
    reasons = lines(tmp_path / "out", "*.errors.jsonl")
    assert [r["place"].split(": ")[1] for r in reasons] == ["line 3", "line 8", "line 12"]
    assert reasons[0]["error"] == "3 columns instead of 10"
    assert reasons[1]["error"] == "ID 2 stands where word 1 should"
    assert "cut off" in reasons[2]["error"]
    with pytest.raises(FormatError, match="3 columns"):
        run(ParseSentences(model), [path], tmp_path / "strict", workers=1, on_error="fail")
    assert not list((tmp_path / "strict").glob("part-*"))

    wrong = tmp_path / "nan.uai"
    wrong.write_text("MARKOV\n1\n2\n1\n1 0\n2\nnan 2\n")
    with pytest.raises(FormatError, match=r"nan\.uai: line 7") as info:
        run(RunModels(solver=Exact()), [wrong], tmp_path / "models", workers=1, on_error="fail")
    assert str(info.value).count("nan.uai") == 1  # it was named twice

    rows = [
        {"words": ["go"]},
        {"words": []},
        {"words": "go"},
        {"text": "go"},
        [],
        {"words": ["x\t"]},
    ]
    (tmp_path / "c.jsonl").write_text("\n".join([*map(json.dumps, rows), "{", json.dumps(rows[0])]))
    state = run(ParseSentences(model), [tmp_path / "c.jsonl"], tmp_path / "rows", workers=1)
    assert (state.rows, state.errors) == (2, 6)

    packed = gzip.compress(f"{good}\n\n".encode() * 5000, mtime=0)
    (tmp_path / "cut.conllu.gz").write_bytes(packed[: len(packed) // 2])
    state = run(ParseSentences(model), [tmp_path / "cut.conllu.gz"], tmp_path / "cut", workers=1)
    assert state.errors == 1
    assert state.rows > 1000
    assert "truncated" in lines(tmp_path / "cut", "*.errors.jsonl")[0]["error"]


class Fussy:
    """A solver with a bug."""

    def __call__(self, graph, start=None):
        return Exact()(graph) if graph.n_variables != 9 else 1 / 0

    def __repr__(self):
        return "Fussy()"


NAMED = FactorGraph.network(
    {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    {"rain": [0.8, 0.2], "wet": (["rain"], [[0.9, 0.1], [0.2, 0.8]])},
)


def test_evidence_of_models_by_state_name_and_soft(tmp_path):
    path = tmp_path / "n.minfer"
    write(NAMED, path)
    rows = [
        {"wet": "yes"},
        {"wet": {"no": 0.3, "yes": 0.9}},
        {"wet": [0.3, 0.9], "rain": "yes"},
        {"wet": None},
        {"wet": "yess"},
        {"1": 1},
    ]
    with open(tmp_path / "rows.jsonl", "w") as file:
        file.writelines(json.dumps({"evidence": row}) + "\n" for row in rows)
    job = RunModels(str(path), solver=Exact(), query=("rain",))
    state = run(job, [tmp_path / "rows.jsonl"], tmp_path / "out", format="jsonl", workers=1)
    assert (state.rows, state.errors) == (5, 1)
    found = lines(tmp_path / "out", "part-000000.jsonl")
    want = [query(NAMED, "rain", {"wet": "yes"}), query(NAMED, "rain", {"wet": [0.3, 0.9]}),
            [0, 1], [0.8, 0.2], query(NAMED, "rain", {"wet": "yes"})]  # fmt: skip
    for row, p in zip(found, want):
        assert row["states"] == [["no", "yes"]]
        np.testing.assert_allclose(row["marginals"], [p], atol=1e-12)
    said = (tmp_path / "out" / "part-000000.errors.jsonl").read_text()
    assert "wet has the states no, yes, not 'yess'; did you mean yes?" in said

    likelihoods = pa.map_(pa.string(), pa.map_(pa.string(), pa.float64()))
    maps = pa.array([[("wet", [("no", 0.3), ("yes", 0.9)])]], likelihoods)
    structs = pa.array([{"wet": {"no": 0.3, "yes": 0.9}, "rain": None}])
    for name, column in (("maps", maps), ("structs", structs)):
        pq.write_table(pa.table({"evidence": column}), tmp_path / f"{name}.parquet")
        out = tmp_path / name
        run(job, [tmp_path / f"{name}.parquet"], out, format="jsonl", workers=1)
        (row,) = lines(out, "part-000000.jsonl")
        np.testing.assert_allclose(row["marginals"], [want[1]], atol=1e-12)


def test_models_with_evidence(tmp_path):
    graph = sprinkler()
    write(graph, tmp_path / "s.minfer")
    write(FactorGraph.grid(np.ones((3, 3)), 1.0), tmp_path / "g.uai")
    (tmp_path / "broken.uai").write_text("MARKOV 3")
    run(RunModels(solver=Exact()), [tmp_path / "s.minfer", tmp_path / "broken.uai",
        tmp_path / "g.uai"], tmp_path / "files", format="jsonl", workers=1)  # fmt: skip
    first, second = lines(tmp_path / "files", "part-000000.jsonl")
    assert first["variables"] == list(graph.names)
    np.testing.assert_allclose(np.concatenate(first["marginals"]), Exact()(graph).probs)
    assert len(second["marginals"]) == 9

    rows = [{"rain": 1}, {"rain": 7}, {"snow": 1}, {}, {"wet_grass": 1, "sprinkler": 0}]
    with open(tmp_path / "rows.jsonl", "w") as file:
        file.writelines(json.dumps({"evidence": r, "model": "s.minfer"}) + "\n" for r in rows)
    kind = pa.map_(pa.string(), pa.int64())
    maps = pa.array([list(r.items()) for r in rows], kind)
    pq.write_table(pa.table({"evidence": maps}), tmp_path / "rows.parquet")
    expected = [graph.with_evidence(rows[k]) for k in (0, 3, 4)]
    shared = RunModels(str(tmp_path / "s.minfer"), solver=Exact(), query=("rain",))
    for name, job in (("rows.jsonl", RunModels(solver=Exact(), query=("rain",))),
                      ("rows.jsonl", shared), ("rows.parquet", shared)):  # fmt: skip
        out = tmp_path / f"{name}-{job.model is None}"
        state = run(job, [tmp_path / name], out, format="jsonl", workers=1)
        assert (state.rows, state.errors) == (3, 2)
        for row, conditioned in zip(lines(out, "part-000000.jsonl"), expected):
            m = Exact()(conditioned)
            np.testing.assert_allclose(row["marginals"], [m["rain"]])
            assert row["log_z"] == pytest.approx(m.log_z)
    shutil.copy(tmp_path / "s.minfer", tmp_path / "same.minfer")  # the same model by another name
    again = replace(shared, model=str(tmp_path / "same.minfer"))
    assert run(again, [tmp_path / "rows.parquet"], out, format="jsonl", workers=1).new_rows == 0
    models = tmp_path / "models"
    models.mkdir()
    for name in ("s.minfer", "broken.uai", "g.uai"):
        (tmp_path / name).rename(models / name)
    for _ in range(2):  # the output may lie below the input
        state = run(RunModels(solver=Fussy()), [models], models / "o", format="jsonl", workers=1)
        assert (state.rows, state.errors) == (1, 2)
    assert "ZeroDivisionError" in (models / "o" / "part-000000.errors.jsonl").read_text()
    with pytest.raises(FormatError, match="models: this is in the output folder"):
        run(RunModels(solver=Fussy()), [models], models, format="jsonl", workers=1)
    reduced = RunModels(
        None, solver=BeliefPropagation(), objective=MinJoint(0.05), recipe=Compensated(refreshes=0)
    )
    run(reduced, [models / "g.uai"], tmp_path / "reduced", format="jsonl", workers=1)
    (row,) = lines(tmp_path / "reduced", "part-000000.jsonl")
    assert 0 <= row["kept_share"] <= 1
    assert row["divergence"] >= 0


def test_pictures_keep_their_names(tmp_path):
    pytest.importorskip("PIL", reason="Pillow is not installed")
    clean = base_pictures(32)
    rng = np.random.default_rng(0)
    for k, (name, picture) in enumerate(clean.items()):
        path = tmp_path / "in" / ("deep" if k % 2 else ".") / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_picture(path, np.clip(gaussian(picture, 0.2, rng), 0, 1))
    (tmp_path / "in" / "z.png").write_text("no picture")
    state = run(DenoisePictures(), [tmp_path / "in"], tmp_path / "out", workers=1)
    assert (state.rows, state.errors) == (4, 1)
    found = {p.stem: p for p in (tmp_path / "out" / "pictures").rglob("*.png")}
    assert found["flower"].parent.name == "deep"
    for name, picture in clean.items():
        assert ((read_picture(found[name]).values > 0.5) == picture).mean() > 0.95
    found["house"].unlink()
    assert status(tmp_path / "out")[0].missing == 1
    run(DenoisePictures(), [tmp_path / "in"], tmp_path / "out", workers=1)
    run(DenoisePictures(), [tmp_path / "in"], tmp_path / "t", workers=1, format="parquet")
    table = pq.read_table(tmp_path / "t" / "part-000000.parquet")
    by_id = dict(zip(table.column("id").to_pylist(), table.column("clean").to_pylist()))
    assert by_id["house.png"] == found["house"].read_bytes()
    for name, low, high in (("alpha", 1, 20), ("level", 0.4, 0.6)):  # estimated for each picture
        assert all(low < value < high for value in table.column(name).to_pylist())
    files = [tmp_path / "in" / "house.png", found["house"]]
    with pytest.raises(SettingsError, match="under one name"):
        run(DenoisePictures(), files, tmp_path / "twice", workers=1)


def test_resuming_skips_what_is_done_and_refuses_what_has_changed(tmp_path):
    source, out = tmp_path / "c.conllu", tmp_path / "out"
    write_corpus(source, 200)
    job, options = Shout(), {"shard_bytes": 1000, "workers": 1}
    run(job, [source], out, **options)
    before = outputs(out)
    reports = []
    state = run(job, [source], out, report=reports.append, **options)
    assert len(reports) == 1
    assert (state.done, state.new_rows, state.rows) == (state.shards, 0, 200)

    kept = (out / "manifest.jsonl").read_bytes().splitlines(keepends=True)
    for cut_off in (b"", kept[3][:20], b"\0\0\0"):  # a line that was being written when it died
        (out / "manifest.jsonl").write_bytes(b"".join(kept[:3]) + cut_off)
        (out / "part-000005.conllu").unlink(missing_ok=True)
        (out / ".minfer-0123.tmp").write_text("half")
        state = run(job, [source], out, **options)
        assert state.new_rows == 200 - sum(json.loads(line)["rows"] for line in kept[:3])
        assert outputs(out) == before
        assert len(lines(out, "manifest.jsonl")) == state.shards

    (out / "part-000002.conllu").unlink()  # by somebody else, when all was done
    with open(out / "part-000004.conllu", "r+b") as file:
        file.truncate(10)
    state, _, _ = status(out)
    assert (state.done, state.missing) == (state.shards - 2, 2)
    state = run(job, [source], out, **options)
    assert state.new_rows == sum(json.loads(kept[k])["rows"] for k in (2, 4))
    assert (state.done, state.rows) == (state.shards, 200)
    assert outputs(out) == before
    assert status(out)[0].missing == 0

    with pytest.raises(RefusedError, match=r"shard_bytes was 1000, is 900.*fresh=True"):
        run(job, [source], out, workers=1, shard_bytes=900)
    os.utime(source, ns=(1, 1))  # touched, not changed
    run(job, [source], out, **options)
    data = source.read_bytes()
    source.write_bytes(data.replace(b"word7\t", b"word8\t"))
    refused(RefusedError, "has changed", run, job, [source], out, **options)
    run(job, [source], out, fresh=True, **options)
    assert b"WORD7\t" not in b"".join(outputs(out).values())
    source.write_bytes(data + b"1\tmore" + b"\t_" * 8 + b"\n\n")
    refused(RefusedError, "has changed", run, job, [source], out, **options)
    write_corpus(tmp_path / "d.conllu", 10)
    refused(RefusedError, "other input", run, job, [tmp_path / "d.conllu"], out, **options)
    refused(RefusedError, "other files", run, job, [source], tmp_path, **options)


def test_one_driver_at_a_time_and_in_a_folder(tmp_path):
    source, out, seen = tmp_path / "c.conllu", tmp_path / "out", []
    write_corpus(source, 40)

    def report(state):
        seen.append(status(out)[1])
        refused(RefusedError, "another process", run, Shout(), [source], out, workers=1)

    run(Shout(), [source], out, workers=1, report=report)
    state, running, settings = status(out)
    assert seen == [True, True]
    assert (state.done, running, settings["job"]) == (1, False, "shout")
    refused(MinferError, "that is a file, and a folder is needed", run, Shout(), [source], source)


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(tmp_path):
    write_corpus(tmp_path / "c.conllu", 300)
    options = {"shard_bytes": 1500}
    run(Shout(), [tmp_path / "c.conllu"], tmp_path / "alone", workers=1, **options)
    killed = []

    def report(state):
        if state.done in (1, 3) and len(killed) < 2:
            victim = multiprocessing.active_children()[0]
            os.kill(victim.pid, signal.SIGKILL)
            killed.append(victim.pid)

    job = Shout(0.02)
    run(job, [tmp_path / "c.conllu"], tmp_path / "out", workers=2, report=report, **options)
    assert outputs(tmp_path / "out") == outputs(tmp_path / "alone")
    assert len(set(killed)) == 2
    assert not multiprocessing.active_children()


class Fatal(Shout):
    """Something ends it at a word."""

    def start(self, format):
        inner = super().start(format)

        def function(batch):
            if any(b"boom" in text for text in batch.column("conllu").to_pylist()):
                self.end()
            return inner(batch)

        return function


class Deadly(Fatal):
    def end(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Full(Fatal):
    def end(self):
        raise OSError(errno.ENOSPC, "No space left on device", "cache")


@pytest.mark.slow
def test_a_shard_that_kills_its_workers_is_given_up_and_the_others_are_done(tmp_path):
    write_corpus(tmp_path / "c.conllu", 100, bad=(70,))
    with pytest.raises(WorkerError, match=r"1 of \d+ shards were given up.*SIGKILL"):
        run(Deadly(), [tmp_path / "c.conllu"], tmp_path / "out", workers=2, shard_bytes=1000)
    state, _, _ = status(tmp_path / "out")
    assert state.done == state.shards - 1


class Begun(NamedTuple):
    """A finished run, and how to start it over."""

    job: Job
    other: Job  # with other settings
    inputs: list[Path]
    out: Path
    listed: list[str]  # one part, and one picture if there are any

    def fresh(self, **changed):
        options = {"job": self.other, "inputs": self.inputs, "out": self.out, "workers": 1}
        options |= {"fresh": True, "shard_bytes": 200, **changed}
        return run(options.pop("job"), options.pop("inputs"), options.pop("out"), **options)


@pytest.fixture(scope="module", params=["parse", "run", "denoise"])
def finished(request, tmp_path_factory, model) -> Iterator[Begun]:
    """A run whose output the tests copy; none of them may touch what it read."""
    folder = tmp_path_factory.mktemp("finished")
    source, out = folder / "in", folder / "out"
    (source / "deep").mkdir(parents=True)
    if request.param == "parse":
        write_conllu(sentences(12), source / "c.conllu")
        job, other = ParseSentences(model), ParseSentences(model, marginals=True)
    elif request.param == "run":
        for k in range(3):
            write(sprinkler(), source / f"{k}.minfer")
        job, other = RunModels(solver=Exact()), RunModels(solver=Exact(), query=("rain",))
    else:
        pytest.importorskip("PIL", reason="Pillow is not installed")
        for k, name in enumerate(("a", "deep/b", "deep/c")):
            noisy = np.random.default_rng(k).random((48, 48)) > 0.5
            write_picture(source / f"{name}.png", noisy)
        job, other = DenoisePictures(), DenoisePictures(alpha=2.0)
    state = run(job, [source], out, workers=1, shard_bytes=200)
    assert state.done == state.shards > 1
    listed = [name for line in lines(out, "manifest.jsonl") for name in line["files"]]
    assert len(listed) == state.shards + (3 if request.param == "denoise" else 0)
    part, picture = min(listed), max(listed)
    before = everything(folder)
    yield Begun(job, other, [source], out, [part, picture] if picture > "pi" else [part])
    assert everything(folder) == before


@pytest.fixture
def begun(finished, tmp_path) -> Begun:
    shutil.copytree(finished.out, tmp_path / "out")
    return finished._replace(out=tmp_path / "out")


def test_fresh_starts_over(begun, tmp_path):
    before = outputs(begun.out)
    begun.fresh(out=tmp_path / "alone")
    (begun.out / ".minfer-0123.tmp").write_text("half")
    begun.fresh()
    assert outputs(begun.out) == outputs(tmp_path / "alone") != before
    assert everything(begun.out).keys() == everything(tmp_path / "alone").keys()
    whole = begun.fresh(shard_bytes=10**9)  # fewer parts: none of the old ones is left
    assert whole.shards == 1
    assert [name for name in outputs(begun.out) if name.startswith("part")] == [
        name for name in lines(begun.out, "manifest.jsonl")[0]["files"] if name.startswith("part")
    ]
    if begun.job.name == "denoise":  # a folder of its own that is empty now has no reason to stay
        begun.fresh(format="parquet")
        assert not (begun.out / "pictures").exists()


def plant(begun: Begun, what: str, outside: Path) -> None:
    """Put something into the folder of a run that the run did not put there."""
    out, (name, *_) = begun.out, what.split()
    outside.mkdir()
    for other in ("a.png", "b.png", "part"):
        (outside / other).write_text("precious")
    if what.endswith("link"):
        places = {"part": begun.listed[0], "picture": begun.listed[-1], "deep": "pictures/deep"}
        path = out / places.get(name, name)
        path.rename(outside / "moved")
        path.symlink_to(outside / "moved")
    elif what.endswith("folder"):
        (out / name).mkdir()
    else:
        (out / what).write_text("mine")


@pytest.mark.parametrize(
    "what",
    ["notes.txt", "part-notes.txt", "part-000999.conllu", "part-000000.errors.jsonl.old",
     "pictures/mine.png", "pictures/deep/mine.png", "pictures/notes.txt", "empty folder",
     "pictures/empty folder", "part link", "picture link", "pictures link", "deep link",
     "plan.jsonl link", "manifest.jsonl link"],
)  # fmt: skip
def test_fresh_keeps_what_is_not_its_own(begun, tmp_path, what):
    if begun.job.name != "denoise" and what.startswith(("pic", "deep")):
        pytest.skip("this job writes no pictures")
    plant(begun, what, tmp_path / "outside")
    before = everything(tmp_path)
    refused(RefusedError, "link" if what.endswith("link") else "other files", begun.fresh)
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["../outside", "{tmp}/outside", "pictures/../../outside", "pictures/../../x.png", "",
             ".", "pictures", "pictures/a\0.png", "notes.txt", "plan.jsonl", "part-000000.x/../x"]
)  # fmt: skip
def test_a_crafted_manifest_names_no_file_of_others(begun, tmp_path, name):
    for path in (tmp_path / "outside", tmp_path / "x.png"):
        path.write_text("precious")
    path = begun.out / "manifest.jsonl"
    *others, last = lines(begun.out, "manifest.jsonl")
    last["files"][name.format(tmp=tmp_path)] = 8
    path.write_text("".join(json.dumps(line) + "\n" for line in [*others, last]))
    before = everything(tmp_path)
    for call in (begun.fresh, lambda: begun.fresh(job=begun.job, fresh=False),
                 lambda: status(begun.out)):  # fmt: skip
        refused(FormatError, rf"manifest.jsonl: line {len(others) + 1}: ", call)
    assert everything(tmp_path) == before


def test_fresh_refuses_before_it_deletes(begun, tmp_path, monkeypatch):
    (tmp_path / "t.jsonl").write_text('{"id": 1}\n')
    pq.write_table(pa.table({"text": ["go"]}), tmp_path / "t.parquet")
    (tmp_path / "bad.model").write_text("no model")
    before = everything(tmp_path)
    wrong = {
        "parse": [ParseSentences(str(tmp_path / "bad.model")), ParseSentences("missing")],
        "run": [RunModels(str(tmp_path / "bad.model")), RunModels("missing"),
                RunModels(str(begun.inputs[0] / "0.minfer"), query=("ran",))],
        "denoise": [DenoisePictures(labels=1), DenoisePictures(alpha=-1.0)],
    }[begun.job.name]  # fmt: skip
    for workers in (1, 2):
        for job in wrong:
            refused(MinferError, "", begun.fresh, job=job, workers=workers)
    for changed in ({"format": "xml"}, {"workers": 0}, {"engine": "spark"},
                    {"inputs": [tmp_path / "missing"]}, {"inputs": [tmp_path / "t.parquet"]},
                    {"inputs": [tmp_path / "out" / "part-000000.conllu"]},
                    {"inputs": [tmp_path / "bad.model"]}, {"address": "nowhere:1"}):  # fmt: skip
        refused(MinferError, "", begun.fresh, **changed)
    with pytest.raises(MinferError):  # its own output, which would be gone before it is read
        begun.fresh(inputs=[begun.out / begun.listed[-1]])
    monkeypatch.setitem(sys.modules, "ray", None)
    refused(RefusedError, "needs Ray", begun.fresh, engine="ray")
    assert everything(tmp_path) == before


def test_what_a_stopped_run_left_is_its_own_and_nothing_else(begun, tmp_path, monkeypatch):
    """A shard's files are there before its line in the manifest: a kill may fall between."""
    from minfer.batch.manifest import Manifest

    out = tmp_path / "killed"
    add = Manifest.add

    def killed(self, line):
        if line["shard"] == 1:
            raise KeyboardInterrupt
        add(self, line)

    monkeypatch.setattr(Manifest, "add", killed)
    refused(KeyboardInterrupt, "", begun.fresh, out=out, fresh=False)
    monkeypatch.undo()
    assert len(lines(out, "manifest.jsonl")) == 1
    assert len(list(out.glob("part-*"))) == 2
    suffix = next(out.glob("part-000000.*")).name.partition(".")[2]
    (out / f"part-000002.{suffix}").write_text("mine")  # planned, but never begun
    before = everything(out)
    refused(RefusedError, "part-000002.* is not of this run", begun.fresh, out=out, fresh=False)
    with pytest.raises(RefusedError, match="other files, such as part-000002"):
        begun.fresh(out=out, shard_bytes=10**9)
    assert everything(out) == before
    (out / f"part-000002.{suffix}").unlink()
    begun.fresh(out=out, shard_bytes=10**9)
    begun.fresh(out=tmp_path / "alone", shard_bytes=10**9)
    assert everything(out).keys() == everything(tmp_path / "alone").keys()
    assert outputs(out) == outputs(tmp_path / "alone")


@pytest.mark.parametrize("moment", [1, 2, 5])
def test_starting_over_can_itself_be_stopped(begun, tmp_path, monkeypatch, moment):
    from minfer.batch import folder

    act, calls = folder._act, []

    def stopped(*arguments):
        calls.append(arguments)
        if len(calls) > moment:
            raise KeyboardInterrupt
        act(*arguments)

    monkeypatch.setattr(folder, "_act", stopped)
    refused(KeyboardInterrupt, "", begun.fresh)
    monkeypatch.undo()
    begun.fresh()
    begun.fresh(out=tmp_path / "alone")
    assert outputs(begun.out) == outputs(tmp_path / "alone")


def test_a_run_writes_through_no_link(begun, tmp_path):
    """What is lost is written again; not through a link that lies there instead."""
    name = begun.listed[-1]
    outside = tmp_path / "outside"
    if name.startswith("pictures"):
        shutil.move(begun.out / "pictures", outside)
        (outside / Path(name).relative_to("pictures")).write_text("precious")
        (begun.out / "pictures").symlink_to(outside)
    else:
        outside.write_text("precious")
        (begun.out / name).unlink()
        (begun.out / name).symlink_to(outside)
    before = everything(tmp_path)
    refused(RefusedError, "link", begun.fresh, job=begun.job, fresh=False)
    assert {k: v for k, v in everything(tmp_path).items() if "out/" not in k} == {
        k: v for k, v in before.items() if "out/" not in k
    }


@pytest.mark.parametrize(
    "line",
    ["[]", "7", "null", '"text"', "{}", "[" * 100_000, "nonsense", {"shard": None}, {"shard": "1"},
     {"shard": True}, {"shard": -1}, {"files": None}, {"files": []}, {"files": {}},
     {"files": {"part-000000.conllu": "8"}}, {"files": {"part-000000.conllu": -8}},
     {"rows": 1.5}, {"rows": -1}, {"errors": None}, {"bytes": "many"}, {"sha256": 5},
     {"shard": 99, "files": {"part-000099.conllu": 8}},
     *(("lacks", key) for key in ("shard", "sha256", "files", "rows", "errors", "bytes"))],
)  # fmt: skip
def test_a_line_that_is_no_record_is_an_error_with_its_place(tmp_path, line):
    source, out = shouted(tmp_path, 30, shard_bytes=300)
    kept = (out / "manifest.jsonl").read_text().splitlines()
    said, wrong = "", line
    if isinstance(line, tuple):
        said = line[1]
        wrong = json.dumps({k: v for k, v in json.loads(kept[1]).items() if k != said})
    elif isinstance(line, dict):
        said = "shard 99 is not one of the" if line.get("shard") == 99 else ""
        wrong = json.dumps(json.loads(kept[1]) | line)
    (out / "manifest.jsonl").write_text("\n".join([kept[0], wrong, *kept[2:]]) + "\n")
    words = rf"manifest\.jsonl: line 2: (?=.*remove the line).*{said}"
    nobody_goes_on(source, out, words, fresh="99" not in said, shard_bytes=300)
    (out / "manifest.jsonl").write_text("\n".join([kept[0], *kept[2:]]) + "\n")  # as it says
    run(Shout(), [source], out, shard_bytes=300, workers=1)
    assert status(out)[0].done == len(kept)


def test_only_a_last_line_without_its_end_is_skipped(tmp_path):
    source, out = shouted(tmp_path, 30, shard_bytes=300)
    for name in ("manifest.jsonl", "begun.jsonl"):
        path = out / name
        whole = path.read_bytes()
        path.write_bytes(whole + b"garbage")
        assert status(out)[0].done == status(out)[0].shards
        path.write_bytes(whole + b"garbage\n")
        number = len(whole.splitlines()) + 1
        words = rf"{name}: line {number}: .*remove the line"
        nobody_goes_on(source, out, words, shard_bytes=300)
        path.write_bytes(whole)


HEADS = ["[]", "{}", "7", "", "FOREIGN", '{"settings": 1, "inputs": []}',
         '{"settings": {}, "inputs": 5}', '{"settings": {}, "inputs": [[1]]}',
         '{"settings": ' + "[" * 100_000, "[" * 100_000]  # fmt: skip


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("alone", [True, False])
def test_a_plan_that_is_not_minfers_is_kept(tmp_path, head, alone):
    """It was replaced by `--fresh`, which the message asked for."""
    source, out = shouted(tmp_path, 3)
    if alone:
        shutil.rmtree(out)
        out.mkdir()
    (out / "plan.jsonl").write_text(head + "\n")
    nobody_goes_on(source, out, r"^(?!.*fresh).*plan\.jsonl is not a plan .*move it away")


@pytest.mark.parametrize("head", [*HEADS, 5, [[1]]])
def test_a_damaged_plan_is_an_error_with_its_place_and_can_be_started_over(tmp_path, head):
    source, out = shouted(tmp_path, 3)
    first, second = (out / "plan.jsonl").read_text().splitlines()
    if isinstance(head, str):
        second = head
    else:
        first = json.dumps(json.loads(first) | {"inputs": head})
    (out / "plan.jsonl").write_text(f"{first}\n{second}\n")
    words = rf"plan\.jsonl: line {1 + isinstance(head, str)}: .*fresh=True"
    nobody_goes_on(source, out, words, fresh=False)
    assert run(Shout(), [source], out, workers=1, fresh=True).rows == 3


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_full_disk_says_so_and_the_run_resumes(tmp_path, workers):
    source, out = tmp_path / "c.conllu", tmp_path / "out"
    write_corpus(source, 100, bad=(70,))
    options = {"workers": workers, "shard_bytes": 1000}
    run(Shout(), [source], tmp_path / "alone", **options)
    with pytest.raises(DiskFullError, match=r"disk is full; .*stays \(\d of \d+ shards\).*same"):
        run(Full(), [source], out, **options)
    assert not list(out.rglob("*.tmp"))  # they take room
    run(Shout(), [source], out, **options)
    assert outputs(out) == outputs(tmp_path / "alone")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("target", ["minfer.io.text.os.fsync", "minfer.batch.manifest.os.fsync"])
def test_a_full_disk_has_an_exit_code_of_its_own(tmp_path, monkeypatch, capsys, number, target):
    from minfer.cli.batch import How, _run
    from minfer.cli.failures import exit_code

    write_corpus(tmp_path / "c.conllu", 100)
    words = [str(tmp_path / "c.conllu")], str(tmp_path / "out")
    how = How(shard_mb=0.001, workers=1, json=True)
    calls = []

    def fsync(file):
        calls.append(file)
        if len(calls) > 6:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(target, fsync)
    assert exit_code(lambda: _run(Shout(), *words, how)) == 6
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert ("the disk is full" if number == errno.ENOSPC else "quota") in said
    assert "continues from there" in said
    monkeypatch.undo()
    assert 0 < status(tmp_path / "out")[0].done < status(tmp_path / "out")[0].shards
    assert exit_code(lambda: _run(Shout(), *words, how)) == 0
    run(Shout(), words[0], tmp_path / "alone", shard_bytes=1049, workers=1)
    assert outputs(tmp_path / "out") == outputs(tmp_path / "alone")


def test_a_full_disk_is_no_bad_record(tmp_path, monkeypatch):
    """Whatever a job catches: a record that found the disk full would stay an error for good."""
    write(sprinkler(), tmp_path / "s.minfer")

    def full(self, graph):
        if graph.n_variables > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return {}

    monkeypatch.setattr(RunModels, "_infer", full)
    with pytest.raises(DiskFullError):
        run(RunModels(), [tmp_path / "s.minfer"], tmp_path / "out", workers=1)
    assert not list((tmp_path / "out").glob("part-*"))


def test_a_nul_in_a_name_is_an_error_with_a_type(tmp_path, model):
    write_corpus(tmp_path / "c.conllu", 3)
    good, bad, out = tmp_path / "c.conllu", f"{tmp_path}/a\0b", tmp_path / "out"
    refused(FormatError, "NUL", status, bad)
    runs = (Shout(), bad, out), (Shout(), good, bad), (ParseSentences(bad), good, out)
    for job, source, target in (*runs, (RunModels(bad), good, out)):
        refused(FormatError, "NUL", run, job, [source], target)
    rows = [{"picture": "a\0b.png"}, {"picture": "missing.png"}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(DenoisePictures(), [tmp_path / "p.jsonl"], tmp_path / "p", format="parquet", workers=1)
    assert ["NUL" in e["error"] for e in lines(tmp_path / "p", "*.errors.jsonl")] == [True, False]


def shout(source: Path, out: Path, shard_bytes: int, workers: int, seconds: float, pids: str = ""):
    arguments = [source, out, shard_bytes, workers, seconds, pids]
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, str(HERE / "batch_jobs.py"), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
    )


@pytest.mark.slow
def test_a_driver_killed_at_random_moments_resumes_to_the_same_output(tmp_path):
    """Some way on each time; the last one finishes."""
    source, out, pids = tmp_path / "c.conllu", tmp_path / "out", tmp_path / "pids"
    write_corpus(source, 400, bad=(5, 250))
    run(Shout(), [source], tmp_path / "alone", shard_bytes=1000, workers=1)
    rng = random.Random(7)
    for kills in range(5):
        done = len(lines_of(out / "manifest.jsonl"))
        driver = shout(source, out, 1000, 2, 0.03, str(pids))
        until = time.monotonic() + 60
        while (  # let it get some way, so that kills fall into the work too
            driver.poll() is None
            and len(lines_of(out / "manifest.jsonl")) < done + (kills > 0)
            and time.monotonic() < until
        ):
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.25))
        if kills < 4:
            driver.kill()
        driver.communicate(timeout=60)
    assert driver.returncode == 0
    assert outputs(out) == outputs(tmp_path / "alone")
    manifest = lines(out, "manifest.jsonl")
    assert sorted(line["shard"] for line in manifest) == list(range(len(manifest)))
    assert sum(line["rows"] for line in manifest) == 398
    assert all_end({int(pid) for pid in pids.read_text().split()})  # workers die with their driver


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(tmp_path):
    peaks = []
    for n in (500, 120_000):
        write_corpus(tmp_path / f"{n}.conllu", n)
        driver = shout(tmp_path / f"{n}.conllu", tmp_path / f"out-{n}", 10**9, 1, 0)
        peaks.append(int(driver.communicate()[0]))
    size = (tmp_path / "120000.conllu").stat().st_size
    assert size > 8 << 20
    assert (peaks[1] - peaks[0]) * 1024 < 3 << 20


@pytest.mark.slow
def test_ray_gives_the_same_rows_with_a_worker_killed(tmp_path, cluster, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_corpus(Path("c.conllu"), 300, bad=(10, 200))
    run(Shout(), ["c.conllu"], "alone", shard_bytes=700, workers=1)
    killed = []

    def report(state):
        if state.done == 2 and not killed:
            killed.append(int(Path("pids").read_text().split()[-1]))
            os.kill(killed[0], signal.SIGKILL)

    job = Shout(0.05, str(tmp_path / "pids"))
    options = {"shard_bytes": 700, "engine": "ray", "workers": 2}
    state = run(job, ["c.conllu"], "out", report=report, **options)
    assert outputs(Path("out")) == outputs(Path("alone"))
    assert (state.rows, state.errors) == (298, 2)
    done = lines(Path("out"), "manifest.jsonl")
    assert sorted(line["shard"] for line in done) == list(range(state.shards))
    pids = set(Path("pids").read_text().split())
    assert killed
    assert len(pids) >= 3


def test_a_failure_under_ray_keeps_its_type(tmp_path, monkeypatch):
    from minfer.batch.processor import Task
    from minfer.batch.ray_engine import _Actor, outcome_of

    monkeypatch.chdir(tmp_path)
    write_corpus(Path("c.conllu"), 20, bad=(10,))
    (shard,) = cut(find_inputs(["c.conllu"], Shout()), Shout())
    batch = pa.table({"shard": [json.dumps(shard._asdict())]})
    skip, fail = (
        _Actor(Task(Shout(), str(tmp_path), "conllu", how), str(tmp_path))(batch)["line"][0]
        for how in ("skip", "fail")
    )
    assert outcome_of(skip)["errors"] == 1
    refused(FormatError, "it said boom", outcome_of, fail)


@pytest.mark.slow
def test_any_engine_that_moves_arrow_tables(tmp_path, cluster, model):
    """The job's function under Ray Data, and as Spark's mapInArrow and Dask call it."""
    from minfer.batch.engines import map_in_arrow, over_table

    words = [list(s.forms) for s in sentences(60)] + [[]]
    table = pa.table({"id": [str(k) for k in range(61)], "words": words})
    job = ParseSentences(model)
    function = job.start("parquet")
    expected = pa.Table.from_batches([function(b) for b in table.to_batches()])
    assert expected.column("error").to_pylist()[:60] == [None] * 60
    assert "neither" in expected.column("error").to_pylist()[60]

    spark = map_in_arrow(job)(iter(table.to_batches(max_chunksize=7)))
    assert pa.Table.from_batches(spark) == expected
    dask = [over_table(job)(table.slice(k, 20)) for k in range(0, 61, 20)]
    assert pa.concat_tables(dask) == expected

    dataset = cluster.data.from_arrow([table.slice(k, 20) for k in range(0, 61, 20)])
    mapped = dataset.map_batches(
        over_table,
        fn_constructor_args=(job,),
        batch_format="pyarrow",
        batch_size=16,
        compute=cluster.data.ActorPoolStrategy(size=2),
    )
    rows = sorted(mapped.take_all(), key=lambda row: int(row["id"]))
    assert [list(row["heads"] if row["heads"] is not None else []) for row in rows] == [
        heads or [] for heads in expected.column("heads").to_pylist()
    ]


def test_refusals(tmp_path, model):
    write_corpus(tmp_path / "c.conllu", 3)
    (tmp_path / "e.jsonl").write_text('{"evidence": {"rain": 1}}\n')
    job, source, out = Shout(), [tmp_path / "c.conllu"], tmp_path / "out"
    for options in ({"engine": "spark"}, {"workers": 0}, {"on_error": "hope"}, {"shard_bytes": 0},
                    {"format": "xml"}, {"address": "auto", "workers": 1}):  # fmt: skip
        refused(SettingsError, "", run, job, source, out, **options)
    refused(FormatError, "must end in", run, job, [model], out)
    (tmp_path / "none").mkdir()
    refused(FormatError, "no file below", run, job, [tmp_path / "none"], out)
    refused(FormatError, "given twice", run, job, source * 2, out)
    for name in ("missing.conllu", "missing"):
        with pytest.raises(FormatError, match=f"{name}: there is no such file or folder"):
            run(job, [tmp_path / name], out)
    refused(FormatError, "cannot read", run, ParseSentences("missing.model"), source, out)
    for wrong in (ParseSentences(str(source[0])), RunModels(str(source[0]))):
        with pytest.raises(FormatError):
            run(wrong, source if wrong.name == "parse" else [tmp_path / "e.jsonl"], out)
    assert not out.exists()  # so that the right command is not refused
    pq.write_table(pa.table({"text": ["go"]}), tmp_path / "t.parquet")
    with pytest.raises(FormatError, match="neither `words`"):
        run(ParseSentences(model), [tmp_path / "t.parquet"], tmp_path / "t", workers=1)
    refused(MinferError, "", status, tmp_path / "none")


def test_folders_leave_out_earlier_runs_and_tell_of_evidence(tmp_path):
    folder, notes = tmp_path / "in", []
    (folder / "deep").mkdir(parents=True)
    write_corpus(folder / "c.conllu", 20)
    run(Shout(), [folder], folder / "deep" / "old", workers=1, note=notes.append)
    assert notes == []
    state = run(Shout(), [folder], tmp_path / "out", workers=1, note=notes.append)
    assert state.rows == 20
    assert notes.pop() == f"1 folder was left out as output of an earlier run: {folder}/deep/old"
    parts = find_inputs([str(folder / "deep" / "old")], Shout(), note=notes.append)  # asked for
    assert [item.name for item in parts] == ["part-000000.conllu"]
    for name in ("a.uai", "a.uai.evid", "deep/b.uai.evid.gz"):
        (folder / name).write_text("")
    found = find_inputs([str(folder)], RunModels(), note=notes.append)
    assert [item.name for item in found] == ["a.uai"]
    assert notes[1].startswith("2 evidence files were not read: ")
    assert '"evidence": {' in notes[1]


def test_what_is_said_at_the_end(tmp_path, capsys):
    from minfer.cli.batch import How, _run

    how = How(workers=1)
    write_corpus(tmp_path / "c.conllu", 6, bad=(1, 2))
    _run(Shout(), [str(tmp_path / "c.conllu")], str(tmp_path / "some"), replace(how, json=True))
    said = capsys.readouterr()
    assert "4 of 6 records answered, 2 bad (see " in said.err
    facts = json.loads(said.out)
    assert (facts["records"], facts["answered"], facts["errors"]) == (6, 4, 2)
    write_corpus(tmp_path / "c.conllu", 2, bad=(0, 1))
    with pytest.raises(FormatError, match="no record could be answered, 2 bad"):
        _run(Shout(), [str(tmp_path / "c.conllu")], str(tmp_path / "none"), how)


def test_command_line(tmp_path, model):
    from typer.testing import CliRunner

    from minfer.cli import app

    write_conllu(sentences(50), tmp_path / "c.conllu")
    out = str(tmp_path / "out")
    command = ["batch", "parse", model, str(tmp_path / "c.conllu"), "-o", out, "--workers", "1"]
    result = CliRunner().invoke(app, [*command, "--shard-mb", "0.001", "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["done"] == facts["shards"] > 3
    assert facts["records"] == 50
    assert "50 records" in result.stderr
    result = CliRunner().invoke(app, [*command, "--marginals"])
    assert result.exit_code == 4
    assert "--fresh" in result.stderr
    assert "--shard-mb was 0.00" in result.stderr
    assert ", is 8" in result.stderr
    assert "shard_bytes" not in result.stderr
    result = CliRunner().invoke(app, [*command, "--shard-mb", "1e400"])
    assert result.exit_code == 2
    assert "--shard-mb must be a finite number" in result.stderr
    result = CliRunner().invoke(app, ["batch", "status", out])
    assert result.exit_code == 0
    assert "done" in result.stdout
    (tmp_path / "out" / "part-000001.conllu").unlink()
    result = CliRunner().invoke(app, ["batch", "status", out])
    assert "not finished" in result.stdout
    assert "1 part missing or changed: run the same command again" in result.stdout

    write(sprinkler(), tmp_path / "s.minfer")
    (tmp_path / "e.jsonl").write_text('{"evidence": {"rain": 1}}\n')
    command = ["batch", "run", str(tmp_path / "e.jsonl"), "--model", str(tmp_path / "s.minfer")]
    command += ["-o", str(tmp_path / "r"), "-q", "rain", "--format", "jsonl", "--workers", "1"]
    assert CliRunner().invoke(app, [*command, "--solver", "exact"]).exit_code == 0
    assert lines(tmp_path / "r", "part-*")[0]["marginals"] == [[0.0, 1.0]]
