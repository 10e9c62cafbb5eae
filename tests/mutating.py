"""Mutated tables, programs, records and learners: every reader that ``fuzzing`` has not.

``case(rng, number)`` is reproducible on its own. ``KINDS`` has a valid file of each kind, how it is
read and how it is used; a mutation breaks its bytes, its words or its numbers, and of files with
parts (learners, Parquet, JSON) also the parts, packed again as they should be. Only a MinferError
may escape.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import minfer
from crafting import other_array
from fuzzing import (
    BYTES,
    TOKENS,
    XDSL_TIME,
    Case,
    model,
    network,
    other_json,
    read_and_used,
    resealed,
)
from minfer.learn import ChainCRF, Fitted, GridCRF, LogLinear, Template, fit

MLN = b"""// a program
*friends(person, person)
smokes(person)  /* unknown */
likes(person, drink!)
drink = {Tea, Coffee}
1.5 friends(x, y) ^ smokes(x) => smokes(y)
!smokes("Carl") v smokes(Anna).
0.7 EXIST y friends(x, y) => smokes(x)
-0.2 likes(x, +d) ^ x != Anna
"""
DB = b"""friends(Anna, Bob)
friends("Bob", Carl)
// a comment
!smokes(Anna)
smokes(Bob)
likes(Carl, Tea)
"""
CSV = b'a,b\nno,p\nyes,"q q"\n,p\nno,""""\n'
FACTS = b'a,b\nno,p\nyes,"q q"\n"x ""y""",p\n'
JSONL = b"""{"id": "one", "evidence": {"a": 1}}
{"id": "two", "evidence": {"a": [0.25, 0.75], "b": {"p": 0.5, "q q": 1}}}

{"id": 3, "evidence": "{\\"a\\": \\"yes\\"}"}
"""
JSON = b'{"a": 1, "b": {"0": 0.5, "2": 0.25}, "c d": null, "3": [0.1, 0.9]}'
TEXT = b"the dog sleeps\n\nyes\na cat sees the old dog\n"


class Kind(NamedTuple):
    """Of files: their name, a valid one, how it is read, how it is used, how its parts change."""

    name: str
    seed: Callable[[], bytes]
    read: Callable[[Path], Any]
    use: Callable[[Any], None] = lambda read: None
    parts: Callable[[random.Random, bytes], bytes] | None = None


def _fixed(data: bytes) -> Callable[[], bytes]:
    return lambda: data


def _table(**columns: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


@cache
def _records() -> bytes:
    import pyarrow as pa

    kind = pa.map_(pa.string(), pa.int64())
    return _table(id=["one", "two"], evidence=pa.array([[("a", 1)], [("a", 0), ("c", 0)]], kind))


@cache
def _database(suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.{suffix}"
        con: Any = (sqlite3 if suffix == "sqlite" else import_module("duckdb")).connect(str(path))
        con.execute("create table f (a varchar, b varchar)")
        con.executemany("insert into f values (?, ?)", [("no", "p"), ("yes", "q")])
        con.commit()
        con.close()
        return path.read_bytes()


def _saved(save: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved"
        save(path)
        return path.read_bytes()


@cache
def _chain() -> bytes:
    words = [[["a", "b"], {"a": 1.5}, []], [["c"], ["b", "c"]]]
    crf = ChainCRF().fit(words, [["x", "y", "x"], ["y", "y"]])
    return _saved(crf.save)


@cache
def _grid() -> bytes:
    x = np.random.default_rng(1).random((2, 4, 5))
    return _saved(GridCRF("trw", max_iters=3).fit(x, (x > 0.5).astype(int)).save)


@cache
def _fitted() -> bytes:
    return _saved(fit(_instances(), "pseudolikelihood", l2=0.1, max_iters=3).save)


@cache
def _instances() -> Any:
    model = LogLinear([Template("seen", (2,), ["bias", "x"]), Template("pair", (2, 2), 1, "equal")])
    pairs, rng = np.array([[0, 1], [1, 2]]), np.random.default_rng(1)
    return [
        model.instance(
            np.full(3, 2),
            {"seen": (np.arange(3)[:, None], rng.normal(size=(3, 2))), "pair": pairs},
            np.array(labels),
        )
        for labels in ([0, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 1])
    ]


@cache
def _checkpoint() -> bytes:
    def run(path: Path) -> None:
        fit(_instances(), "pseudolikelihood", l2=0.1, tol=1e-12, max_iters=3, checkpoint=path)

    return _saved(run)


@cache
def _plan() -> bytes:
    from minfer.batch.manifest import PLAN, BatchPlan
    from minfer.batch.shards import InputFile, Shard

    with tempfile.TemporaryDirectory() as folder:
        shard = Shard(0, "jsonl", "/data/x.jsonl", 0, None, 120)
        settings = {"format": "jsonl", "minfer": "1.0.0"}
        inputs = [InputFile("/data/x.jsonl", "jsonl", "x", 120, 7)]
        BatchPlan(settings, inputs, [shard]).save(Path(folder))
        return (Path(folder) / PLAN).read_bytes()


def _finite(values: Any) -> None:
    assert np.isfinite(np.asarray(values, dtype=np.float64)).all(), "an answer is not finite"


def _facts(path: Path) -> Any:
    source = (path, "f") if path.suffix in (".sqlite", ".duckdb") else path
    return minfer.Rules().closed("f", source).store


def _evidence(path: Path, what: str = "evidence") -> Any:
    program = path.with_name("honest.mln")
    program.write_bytes(MLN)
    return minfer.Rules.read(program, **{what: path})


def _cases(path: Path) -> Any:
    return minfer.predict(network(), path, targets=["c", "d 4"], on_unknown="mark")


def _shards(path: Path) -> Any:
    from minfer.batch import RunModels, shards

    job = RunModels("m.uai")
    kind = {"jsonl": "jsonl", "csv": "csv", "parquet": "parquet"}[path.name.split(".")[1]]
    item = shards.InputFile(str(path), kind, "records", path.stat().st_size, 0)
    return [list(shards.read(shard, job)) for shard in shards.cut([item], job, 64)]


def _read_plan(path: Path) -> Any:
    from minfer.batch.manifest import BatchPlan

    return BatchPlan.load(path.parent)


def _read_units(path: Path) -> Any:
    from minfer.parsing.conllu import parse_line
    from minfer.parsing.treebank import read_units

    return [parse_line(block, str(path)) for block in read_units(path)[1]]


def _use_chain(crf: Any) -> None:
    words = [[["a", "b"], {"a": 1.5}, []], [["c"]]]
    if hasattr(crf, "n_features_in_"):
        return
    crf.predict(words)
    for probs in crf.predict_proba(words):
        _finite(probs)


def _use_grid(crf: Any) -> None:
    shape = (2, 3) if crf.n_features_in_ == 1 else (2, 3, min(crf.n_features_in_, 9))
    _finite(crf.predict_proba([np.full(shape, 0.5)])[0])


def _resume(path: Path) -> Any:
    return fit(_instances(), "pseudolikelihood", l2=0.1, tol=1e-12, max_iters=4, checkpoint=path)


def other_saved(r: random.Random, data: bytes) -> bytes:
    """A learner with another header or other arrays, packed again."""
    with np.load(io.BytesIO(data)) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays.pop("header").tobytes())
    how = r.randrange(4)
    if how < 2:
        header = other_json(r, header)
    elif how == 2:
        name = r.choice(list(arrays))
        arrays[name] = other_array(r, arrays[name])
    else:
        arrays.pop(r.choice(list(arrays)))
    text = json.dumps(header).encode()
    if r.random() < 0.1:
        text = b"[" * 100_000 + text
    out = io.BytesIO()
    arrays = {"header": np.frombuffer(text, np.uint8), **arrays}
    if r.random() < 0.05:
        arrays["header"] = other_array(r, arrays["header"])
    np.savez(out, **arrays)
    return out.getvalue()


def other_parquet(r: random.Random, data: bytes) -> bytes:
    """A column of another type, in a Parquet file that is right."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    odd = [
        pa.array([1, 2, 3]), pa.array([1.5, float("nan"), float("inf")]), pa.array([None] * 3),
        pa.array([b"\xff\xfe", b"no", None]), pa.array([[1], [], None]), pa.array([True, None]),
        pa.array([{"x": 1}, None, {"x": None}]), pa.array(["p", "", "\0"]).dictionary_encode(),
        pa.array([10**30, -1, 0], pa.decimal128(38, 0)), pa.array([0, 1, 2], pa.timestamp("ns")),
        pa.array([2**63, 1, 0], pa.uint64()), _not_utf8(),
    ]  # fmt: skip
    k = r.randrange(table.num_columns)
    column = r.choice(odd)[: table.num_rows]
    column = pa.concat_arrays([column] * 3)[: table.num_rows] if column else column
    table = table.set_column(k, r.choice([table.column_names[k], "a", "", "\ud7ff", "id"]), column)
    out = io.BytesIO()
    try:
        pq.write_table(table, out)
    except pa.ArrowException:
        return data
    return out.getvalue()


def _not_utf8() -> Any:
    import pyarrow as pa

    raw = pa.array([b"\xff\xfe", b"no", b"\xed\xa0\x80"])
    return pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])


def other_lines(r: random.Random, data: bytes) -> bytes:
    """One line of JSON that says something else."""
    lines = data.split(b"\n")
    places = [k for k, line in enumerate(lines) if line.strip()]
    k = r.choice(places)
    lines[k] = json.dumps(other_json(r, json.loads(lines[k]))).encode()
    return b"\n".join(lines)


def _slices() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.minfer"
        minfer.Dynamic.hmm([0.5, 0.5], [[0.9, 0.1], [0, 1]], np.full((2, 3), 1 / 3)).save(path)
        return path.read_bytes()


def _use_slices(model: minfer.Dynamic) -> None:
    model.slice.n_variables, model.interface, model.unroll(3)


KINDS: dict[str, Kind] = {
    "slices": Kind("m.minfer", _slices, minfer.Dynamic.load, _use_slices, resealed),
    "slices xdsl": Kind("m.xdsl", _fixed(XDSL_TIME), minfer.Dynamic.load, _use_slices),
    "mln": Kind("p.mln", _fixed(MLN), minfer.Rules.read),
    "mln.gz": Kind("p.mln.gz", _fixed(gzip.compress(MLN, mtime=0)), minfer.Rules.read),
    "db": Kind("p.db", _fixed(DB), _evidence),
    "db.gz": Kind("p.db.gz", _fixed(gzip.compress(DB, mtime=0)), _evidence),
    "query": Kind("p.query", _fixed(b"smokes(x)\nlikes\n"), lambda path: _evidence(path, "query")),
    "facts csv": Kind("f.csv", _fixed(FACTS), _facts),
    "facts tsv": Kind("f.tsv", _fixed(FACTS.replace(b",", b"\t")), _facts),
    "facts csv.gz": Kind("f.csv.gz", _fixed(gzip.compress(FACTS, mtime=0)), _facts),
    "facts parquet": Kind(
        "f.parquet", lambda: _table(a=["no", "yes", "x"], b=[1, 2, 3]), _facts, parts=other_parquet
    ),
    "facts sqlite": Kind("f.sqlite", lambda: _database("sqlite"), _facts),
    "facts duckdb": Kind("f.duckdb", lambda: _database("duckdb"), _facts),
    "cases csv": Kind("c.csv", _fixed(CSV), _cases),
    "cases tsv": Kind("c.tsv", _fixed(CSV.replace(b",", b"\t")), _cases),
    "cases csv.gz": Kind("c.csv.gz", _fixed(gzip.compress(CSV, mtime=0)), _cases),
    "cases parquet": Kind(
        "c.parquet",
        lambda: _table(a=["no", "yes", None], b=["p", "q q", "p"], x=[1.5, None, -2.0]),
        _cases,
        parts=other_parquet,
    ),
    "records jsonl": Kind("r.jsonl", _fixed(JSONL), _shards, parts=other_lines),
    "records jsonl.gz": Kind("r.jsonl.gz", _fixed(gzip.compress(JSONL, mtime=0)), _shards),
    "records csv": Kind("r.csv", _fixed(b"id,evidence\none,x0=1\ntwo,\n"), _shards),
    "records parquet": Kind("r.parquet", _records, _shards, parts=other_parquet),
    "plan": Kind("plan.jsonl", _plan, _read_plan, parts=other_lines),
    "json evidence": Kind(
        "e.json", _fixed(JSON), lambda path: minfer.read_evidence(path, model()), parts=other_lines
    ),
    "text": Kind("t.txt", _fixed(TEXT), _read_units),
    "chain": Kind("m.crf", _chain, ChainCRF.load, _use_chain, other_saved),
    "grid": Kind("m.grid", _grid, GridCRF.load, _use_grid, other_saved),
    "fitted": Kind("m.npz", _fitted, Fitted.load, lambda f: _finite(f.weights), other_saved),
    "fit checkpoint": Kind("c.npz", _checkpoint, _resume, parts=other_saved),
}


_NUMBER = re.compile(rb"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_NUMBERS = [b"0", b"-1", b"1e308", b"1e400", b"nan", b"9223372036854775808", b"1" * 5000, b"-0.0"]


def other_number(r: random.Random, data: bytes) -> bytes:
    """Another number in place of one."""
    found = list(_NUMBER.finditer(data[: 1 << 16]))
    if not found:
        return data + r.choice(_NUMBERS)
    m = r.choice(found)
    return data[: m.start()] + r.choice(_NUMBERS) + data[m.end() :]


def swapped_spans(r: random.Random, data: bytes) -> bytes:
    """Two spans that have changed places."""
    a, b, c, d = sorted(r.randint(0, len(data)) for _ in range(4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def many(r: random.Random, data: bytes) -> bytes:
    """A few bytes of the file, or of what opens and quotes, very often."""
    at = r.randint(0, len(data))
    unit = r.choice([data[at : at + r.randint(1, 4)] or b" ", *_OPENERS])
    return data[:at] + unit * r.choice((100, 3000, 30_000 // len(unit))) + data[at:]


_OPENERS = [b"//", b"/*", b"=>", *(bytes([c]) for c in b" \n\r\"'([{,\\!")]
_OTHER = [other_number, other_number, swapped_spans, many]


def mutated(r: random.Random, kind: Kind) -> bytes:
    """A broken file of a kind."""
    data = kind.seed()
    packed = data[:2] == b"\x1f\x8b" and r.random() < 0.7
    data = gzip.decompress(data) if packed else data
    for k in range(r.choice((1, 1, 1, 2, 4))):
        if kind.parts is not None and not k and r.random() < 0.6:
            with suppress(ValueError, TypeError, LookupError, OverflowError, zipfile.BadZipFile):
                data = kind.parts(r, data)  # unless it is too strange already
        else:
            data = r.choice(BYTES + TOKENS + _OTHER)(r, data)
    return gzip.compress(data, 1, mtime=0) if packed else data


def case(rng: int, number: int, kinds: Sequence[str] = ()) -> Case:
    """The ``number``-th broken file of the stream ``rng``, of one of some kinds or of any."""
    r = random.Random(f"mutated {rng}/{number}")
    kind = r.choice(list(kinds or KINDS))
    return Case(number, kind, KINDS[kind].name, mutated(r, KINDS[kind]))


def honest() -> list[Case]:
    """Files that must be accepted."""
    return [Case(-1, name, kind.name, kind.seed()) for name, kind in KINDS.items()]


def check(broken: Case, folder: Path) -> tuple[str, float]:
    return read_and_used(broken, folder, KINDS[broken.kind].read, KINDS[broken.kind].use)
