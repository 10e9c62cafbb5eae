"""Files of strangers: time and memory that grow as a file does, typed errors, nothing hangs."""

from __future__ import annotations

import ast
import gzip
import io
import math
import os
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crafting
import fuzzing
import minfer
import mutating
from draws import blocks, draws, few, thorough
from minfer import FormatError, MinferError, RefusedError, Rules, SettingsError
from minfer.cli import progress
from minfer.io import native, opening, read_mar, read_pr
from minfer.io.bif import format_bif
from minfer.io.fg import format_fg
from minfer.io.net import format_net
from minfer.io.npz import read_npz
from minfer.io.uai import format_uai
from minfer.io.xmlbif import format_xmlbif
from minfer.learn import ChainCRF, fit
from minfer.learn.save import write_arrays
from minfer.parsing.conllu import read_conllu
from minfer.parsing.model import ParserModel
from minfer.prediction import files
from minfer.rules.parse import parse_rule
from refused import all_refused, refused
from sources import parsed

SRC = Path(minfer.__file__).parent
#: What is repeated: what separates, opens, closes, quotes, comments and nests.
UNITS = [
    *(" ", "\n", "\t", "\r", "\r\n", "\f", ",", ", ", ";", "|", ".", "=", "-", "+", "!", "^", "_"),
    *("(", ")", "{", "}", "[", "]", "()", "{}", "(a)", "( ", "} ", "};", "(a", "a)", "[{", '{"a":'),
    *('"', "'", '\\"', "\\", '"a" ', '"a', "'a", '"\\', "/*", "*/", "//", "/* ", "*/ /*", "/", "%"),
    *("#", "# \n", "//\n", "1", "1 ", "1,", "1\n", "1 1 1\n", "1.", "1e", "0.5 ", "-1 ", "9e9"),
    *("a", "a ", "a,", "a\n", "a(", "a=", "a(x)\n", "x ^ ", "a(A) ^ ", "a(A) v ", "a(A) => "),
    *("a(A) <=> ", "!", "!a(A) v ", "1+", "1 < 1 ^ ", "EXIST x ", "a = {A}\n", "a(b!)\n", "\u00e9"),
    *("<a>", "<a/>", "<", "</a>", "<!--", "<a b='c'/>", "&amp;", "<NAME/>", "<OUTCOME/>"),
    *("<![CDATA[", "table ", "property ", "property;", "variable a {}", "probability ( a ) {}"),
    *("node a {}", "net{}", "default ", "potential (a) {}", "1\t", "\ta", "null,", "[0],"),
    "1\ta\t_\t_\t_\t_\t0\ta\t_\t_\n",
]

SIZES = (1 << 12, 1 << 14, 1 << 16)
#: CPU seconds below which nothing is said, and how many times as long four times as much may take.
FREE, SHARE = 0.4, 8.0
#: CPU seconds after which nothing larger is tried.
HANGS = 10.0

CONLLU = "1\tthe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n2\tdog\tdog\tNOUN\t_\t_\t0\troot\t_\t_\n\n"


def _evidence(path: Path) -> Any:
    return minfer.read_evidence(path, fuzzing.model())


def _conllu(path: Path) -> Any:
    return list(read_conllu(path))


def texts() -> dict[str, tuple[str, Callable[[Path], Any], list[str]]]:
    """By reader: the name of a file, how it is read, and valid texts."""
    net = fuzzing.network()
    return {
        "uai": ("m.uai", minfer.read, [format_uai(fuzzing.model()).decode()]),
        "fg": ("m.fg", minfer.read, [format_fg(fuzzing.model()).decode()]),
        "bif": ("m.bif", minfer.read, [format_bif(net).decode(), fuzzing.BIF.decode()]),
        "xmlbif": ("m.xmlbif", minfer.read, [format_xmlbif(net).decode(), fuzzing.XMLBIF.decode()]),
        "net": ("m.net", minfer.read, [format_net(net).decode()]),
        "cnf": ("m.cnf", minfer.read, [fuzzing.CNF.decode()]),
        "xdsl": ("m.xdsl", minfer.read, [fuzzing.XDSL.decode()]),
        "any": ("model", minfer.read, [fuzzing.BIF.decode()]),
        "evidence": ("m.evid", _evidence, ["2 0 1 1 2\n", '{"a": 1, "b": [0.5, 0.2, 0.1]}']),
        "mar": ("m.MAR", read_mar, ["MAR\n2 2 0.25 0.75 3 0.5 0.5 0\n"]),
        "pr": ("m.PR", read_pr, ["PR\n-12.5\n"]),
        "mln": ("m.mln", minfer.Rules.read, [mutating.MLN.decode()]),
        "db": ("m.db", mutating._evidence, [mutating.DB.decode()]),
        "rules table": ("f.csv", mutating._facts, ["a,b\nx,y\nz,w\n"]),
        "cases": ("cases.csv", mutating._cases, ["b,c\np,only\n,\n"]),
        "conllu": ("t.conllu", _conllu, [CONLLU + CONLLU]),
    }


def places(text: str) -> Iterator[int]:
    """Where something is put: before all, in the middle, after all."""
    yield from dict.fromkeys([0, len(text) // 2, len(text)])


def repeated(text: str, at: int, unit: str, size: int) -> str:
    """A text with so many bytes of one thing somewhere in it."""
    return text[:at] + unit * (size // len(unit)) + text[at:]


def seconds(read: Callable[[Path], Any], path: Path, text: str) -> float:
    """CPU seconds to read or refuse a text."""
    path.write_bytes(text.encode())
    start = time.process_time()
    with suppress(MinferError):
        read(path)
    return time.process_time() - start


def slow(read: Callable[[Path], Any], path: Path, make: Callable[[int], str]) -> str:
    """What is wrong with how long texts of growing size take; empty if nothing.

    A reader whose time grows faster than the file does so at every size: what is too slow is tried
    at four times the size before it is said, since garbage and others' threads also take time.
    """
    last = 0.0
    for size in SIZES:
        took = _least(read, path, make(size), allowed := max(FREE, SHARE * max(last, 1e-3)))
        if took > HANGS or (
            took > allowed and seconds(read, path, make(4 * size)) > max(FREE, SHARE * took)
        ):
            return f"{size:,} bytes took {took:.2f} s, a quarter of it {last:.2f} s"
        last = took
    return ""


def _least(read: Callable[[Path], Any], path: Path, text: str, enough: float) -> float:
    """The least CPU seconds of four attempts; the first below ``enough`` ends them."""
    took = math.inf
    for _ in range(4):
        if (took := min(took, seconds(read, path, text))) <= enough:
            break
    return took


#: What was slow once, by reader: always tried.
WORST = {
    "uai": ["/*", "/* "],
    "evidence": ["/* "],
    "mar": ["/* "],
    "pr": ["/* "],
    "bif": [" ", "\n"],
    "mln": ['\\"', '"', "(", "a(A) ^ "],
    "db": ['\\"', '"'],
    "cases": [",", "a,"],
    "rules table": [",", "a,"],
}


def _bif(states: str, more: str = "", n: int = 2) -> str:
    """A variable ``a`` with states, and more."""
    return f"variable a {{ type discrete [ {n} ] {{ {states} }}; }}\n{more}"


def many_quoted_states(size: int) -> str:
    n = size // 30
    rows = "\n".join(f'("s {k}") 1;' for k in range(n))
    more = (
        "variable b { type discrete [ 1 ] { x }; }\n"
        f"probability ( a ) {{ table {', '.join(['0'] * (n - 1))}, 1; }}\n"
        f"probability ( b | a ) {{ {rows} }}"
    )
    return _bif(", ".join(f'"s {k}"' for k in range(n)), more, n)


def long_names(size: int) -> str:
    """Names that would be long together, were all their combinations written down."""
    parents = [f"p{k}" for k in range(5)]
    states = ", ".join(f"{s}" * (size // 40) for s in range(8))
    lines = [f"variable {p} {{ type discrete [ 8 ] {{ {states} }}; }}" for p in parents]
    lines.append("variable c { type discrete [ 1 ] { x }; }")
    every = f"probability ( c | {', '.join(parents)} ) {{ {'(0) 1;' * 8**5} }}"
    return "\n".join([*lines, every if size == SIZES[-1] else "probability ( c | p0 ) { (0) 1; }"])


def many_bound(size: int) -> str:
    names = [f"x{k}" for k in range(size // 14)]
    return f"s(person)\n1 EXIST {', '.join(names)} {' ^ '.join(f's({x})' for x in names)}\n"


def _columns(n: int, *, twice: bool = False) -> str:
    return ",".join(f"c{k}" for k in (*range(n), *([n - 1] if twice else [])))


#: Many things, of which each is looked up: file, reader, and the text of a size.
BLOCKS: dict[str, tuple[str, Callable[[Path], Any], Callable[[int], str]]] = {
    "a state twice": ("m.bif", minfer.read, lambda size: _bif(
        ", ".join(f"s{k}" for k in (*range(size // 7), size // 7 - 1)), n=size // 7 + 1)),
    "many quoted states": ("m.bif", minfer.read, many_quoted_states),
    "many parents": ("m.bif", minfer.read, lambda size: _bif(
        "x, y", f"probability ( a | {'a ' * (size // 2)}) {{ table 1; }}")),
    "long names": ("m.bif", minfer.read, long_names),
    "many columns of cases": ("c.csv", mutating._cases, lambda size:
        f"a,{_columns(size // 9)}\n" + ",".join(["no"] * (size // 9 + 1))),
    "many columns of a table": ("f.csv", mutating._facts, lambda size:
        f"{_columns(size // 9)}\n" + ",".join(["x"] * (size // 9)) + "\n"),
    "the last column twice": ("f.csv", mutating._facts, lambda size:
        f"{_columns(size // 6, twice=True)}\n"),
    "a name twice": ("e.json", _evidence, lambda size: "{" + ", ".join(
        f'"c{k}": 0' for k in (*range(size // 10), size // 10 - 1)) + "}"),
    "many lines": ("m.mln", minfer.Rules.read, lambda size:
        "s(person)\ns(A) v\n" + "\n".join(["!s(B) v"] * (size // 8)) + "\ns(C)\n"),
    "many arguments": ("m.mln", minfer.Rules.read, lambda size:
        f"s({', '.join(['t'] * (size // 3))})\n"),
    "no declaration": ("m.mln", minfer.Rules.read, lambda size:
        f"p(t)\np({', '.join(['abcdefghij'] * (size // 12))}) v p(x)\n"),
    "many bound": ("m.mln", minfer.Rules.read, many_bound),
    "an unknown name": ("m.mln", minfer.Rules.read, lambda size:
        f"{'a' * (size // 2)}(person)\n1 {'a' * (size // 2 - 1)}(x)\n"),
}  # fmt: skip


@pytest.mark.drawn
@pytest.mark.parametrize("reader", texts())
def test_time_grows_as_the_file_does(reader, tmp_path):
    """One thing repeated: blanks, quotes, brackets, openers of comments, columns, lines."""
    pytest.importorskip("duckdb")
    name, read, valid = texts()[reader]
    for text in valid:
        seconds(read, tmp_path / name, text)  # what is imported once does not count
    for unit in UNITS if thorough() else few(UNITS, 2) + WORST.get(reader, []):
        for text in valid:
            for at in list(places(text)) if thorough() else [0, len(text) // 2]:
                found = slow(read, tmp_path / name, partial(repeated, text, at, unit))
                assert not found, f"{reader}, {unit!r} at {at}: {found}"


@pytest.mark.parametrize("things", BLOCKS)
def test_time_grows_as_the_number_of_things_does(things, tmp_path):
    """Many states, parents, columns, names: what is looked up again and again."""
    pytest.importorskip("duckdb")
    name, read, text = BLOCKS[things]
    seconds(read, tmp_path / name, text(64))
    assert not slow(read, tmp_path / name, text)


@pytest.mark.parametrize(
    "text",
    [
        " => ".join(["s(A)"] * 7500),
        " <=> ".join(["s(A)"] * 7500),
        "s(x) ^ 3 < " + "1+" * 30_000 + "1",
        "s(x) ^ 3 < " + "-" * 30_000 + "1",
        " v ".join(["s(A)"] * 30_000),
        "(" * 30_000 + "s(A)",
        "!" * 30_000 + "s(A)",
        "".join(f"EXIST x{k} " for k in range(30_000)) + "s(x0)",
    ],
    ids=["implies", "iff", "plus", "minus", "or", "brackets", "not", "exist"],
)
def test_rules_have_a_depth_and_a_size(text):
    refused(FormatError, r"deep|parts", parse_rule, text)


def test_json_has_a_depth(tmp_path):
    path = tmp_path / "e.json"
    path.write_text('{"a": ' + "[" * 200_000)
    refused(FormatError, r"e\.json", minfer.read_evidence, path, fuzzing.model())


def _bomb(path: Path, start: bytes, unit: bytes = b" ") -> Path:
    path.write_bytes(gzip.compress(start + unit * (4_000_000 // len(unit)), mtime=0))
    return path


@pytest.mark.parametrize("name", ["p.mln.gz", "p.db.gz", "m.uai.gz", "m.bif.gz", "m.minfer.gz"])
def test_a_small_file_unfolds_only_so_far(name, tmp_path, monkeypatch):
    path = _bomb(tmp_path / name, b"")
    read = {"mln": Rules.read, "db": mutating._evidence}.get(name.split(".")[1], minfer.read)
    monkeypatch.setattr(opening, "FREE_BYTES", 1_000_000)
    refused(FormatError, rf"{name}.*unfold to more than.*MINFER_MAX_RATIO", read, path)
    monkeypatch.setattr(opening, "MAX_BYTES", 1_000_000)
    monkeypatch.setenv("MINFER_MAX_RATIO", "100000")
    refused(FormatError, rf"{name}.*limited to 1,000,000 bytes", read, path)
    monkeypatch.setenv("MINFER_MAX_BYTES", "many")
    refused(SettingsError, "MINFER_MAX_BYTES must be a whole number", read, path)


def test_how_far_a_file_unfolds_is_told_by_all_of_it(tmp_path, monkeypatch):
    """One that begins with blanks was refused, where the same lines in another order were read."""
    monkeypatch.setattr(opening, "FREE_BYTES", 1_000_000)
    noise = np.random.default_rng(0).bytes(200_000)
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b" " * 19_000_000, mtime=0) + gzip.compress(noise, mtime=0))
    size = path.stat().st_size
    assert len(opening.read_bytes(path)) == 19_200_000 < 100 * size
    with opening.streamed(path) as file:
        assert sum(map(len, file)) == 19_200_000
    with open(path, "rb") as file, pytest.raises(FormatError, match="unfold to more than"):
        list(opening.unpacked(opening.chunks_of(file.read), "pipe"))
    monkeypatch.setenv("MINFER_MAX_RATIO", "50")
    refused(FormatError, f"{size:,} compressed bytes unfold to more than", opening.read_bytes, path)


def test_streams_and_tables_unfold_only_so_far(tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    monkeypatch.setattr(opening, "FREE_BYTES", 1_000_000)
    cases = _bomb(tmp_path / "c.csv.gz", b"a\n", b"no\n")
    with pytest.raises(FormatError, match=r"c\.csv\.gz.*unfold to more than"):
        minfer.predict(fuzzing.network(), cases, targets=["b"])
    with pytest.raises(FormatError, match=r"c\.csv\.gz.*unfold to more than"):
        _ = Rules().closed("f", cases).store
    words = _bomb(tmp_path / "t.conllu.gz", b"", b"1\ta\t_\t_\t_\t_\t0\troot\t_\t_\n\n")
    refused(FormatError, r"t\.conllu\.gz.*unfold to more than", list, read_conllu(words))
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros(1_000_000))
    refused(FormatError, r"a\.npz.*unfold to more than", read_npz, path, ("x",))
    monkeypatch.undo()
    (found,) = read_npz(path, ("x",))
    assert found.shape == (1_000_000,)


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("name", "start", "unit", "end"),
    few([
        ("m.xmlbif", "<BIF><NETWORK>", "<NAME/>", "</NETWORK></BIF>"),
        ("m.xmlbif", "<BIF><NETWORK>", "<FOR>a</FOR>", "</NETWORK></BIF>"),
        ("m.xdsl", "<smile><nodes>", "<a/>", "</nodes></smile>"),
        ("m.xdsl", "<smile><nodes><cpt id='a'>", "<state id='a'/>", "</cpt></nodes></smile>"),
    ], 2),
)  # fmt: skip
def test_xml_takes_so_much_memory_for_each_byte(name, start, unit, end, tmp_path):
    path = tmp_path / name
    path.write_text(start + unit * (400_000 // len(unit)) + end)
    tracemalloc.start()
    try:
        with suppress(FormatError):
            minfer.read(path)
        # and what does not grow with the file
        assert tracemalloc.get_traced_memory()[1] < 25 * path.stat().st_size + (4 << 20)
    finally:
        tracemalloc.stop()


_LIMITED = """
import resource, sys
from minfer.cli import main
import minfer.io, minfer.cli.run
pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (pages + (64 << 20),) * 2)
sys.argv = ["minfer", "run", sys.argv[1]]
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("kind", ["xmlbif", "uai"])
def test_a_file_too_large_for_memory_ends_the_command(kind, tmp_path):
    """It waited for ever for the thread that read."""
    path = tmp_path / f"large.{kind}"
    text = {
        "xmlbif": "<BIF><NETWORK>" + "<VARIABLE><NAME>a</NAME></VARIABLE>" * 500_000,
        "uai": "MARKOV\n1000000\n" + "2 " * 12_000_000,
    }[kind]
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 4, done.stderr
    assert done.stderr == f"minfer: error: {path}: there is not enough memory to read it\n"


def test_a_thread_that_cannot_say_so_is_not_waited_for(monkeypatch):
    """Without memory, not even the exception may find its way out of the thread."""

    def work() -> None:
        raise MemoryError

    refused(MemoryError, "", progress.wait_for, "reading", work)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("device", ["/dev/full", "/dev/zero"])
def test_devices_are_not_read(device, tmp_path):
    began = time.process_time()
    calls = [
        lambda: minfer.read(device),
        lambda: minfer.read_evidence(device, fuzzing.model()),
        lambda: Rules.read(device),
        lambda: list(read_conllu(device)),
        lambda: read_npz(device, ("x",)),
        lambda: ChainCRF.load(device),
        lambda: fit(mutating._instances(), "pseudolikelihood", checkpoint=device),
    ]
    for call in calls:
        refused(FormatError, f"cannot read {device}: it is a .*device", call)
    if find_spec("safetensors"):
        all_refused(
            (lambda: ParserModel.load(device), FormatError, "device"),
            (lambda: crafting.train(Path(device)), FormatError, "device"),
        )
    assert time.process_time() - began < 20


def test_pipes_are_read_where_they_can_be(tmp_path):
    code = "import minfer, sys; print(minfer.read(sys.argv[1]))"
    uai = "MARKOV\n1\n2\n1\n1 0\n2\n0.5 0.5\n"
    command = f"cat > {tmp_path}/m.uai; {sys.executable} -c '{code}' <(cat {tmp_path}/m.uai)"
    done = subprocess.run(["bash", "-c", command], input=uai, capture_output=True, text=True)
    assert "1 variable" in done.stdout, done.stderr


@pytest.mark.parametrize("damage", ["cut", "flipped", "header", "carriage returns", "not utf8"])
@pytest.mark.parametrize("arrow", [True, False])
def test_damaged_cases(damage, arrow, tmp_path, monkeypatch):
    if arrow:
        pytest.importorskip("pyarrow")
    else:
        monkeypatch.setattr(files, "arrow", lambda: None)
    rng = np.random.default_rng(0)
    text = "a\n" + "".join(rng.choice(["no\n", "yes\n", "\n"], 20_000))
    data = bytearray(gzip.compress(text.encode(), mtime=0))
    name, words = "c.csv.gz", r"c\.csv\.gz"
    if damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "flipped":
        data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    elif damage == "header":
        data[10] ^= 0x07
    elif damage == "carriage returns":
        name, words, data = "c.csv", r"c\.csv: line 1", b"a,c\rno,only\ryes,only\r"
    elif arrow:
        name, words, data = "c.parquet", "UTF-8", mutating._table(a=mutating._not_utf8())
    else:
        return
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(FormatError if damage != "not utf8" else MinferError, match=words):
        minfer.predict(fuzzing.network(), path, targets=["b"])


def test_learners_with_wrong_weights_or_headers(tmp_path):
    path = tmp_path / "m.crf"
    with np.load(io.BytesIO(mutating._chain())) as file:
        arrays = {name: file[name] for name in file.files}
    for name in ("coef", "transitions"):
        np.savez(tmp_path / "m.npz", **{**arrays, name: np.full_like(arrays[name], 1e308)})
        (tmp_path / "m.npz").rename(path)
        refused(FormatError, r"m\.crf.*not all finite, within 1e\+100", ChainCRF.load, path)
    for header in ({"arrays": [["x"]]}, {"arrays": 7}, {"arrays": ["x", "x"]}, {"kind": None}):
        write_arrays(path, "ChainCRF", header, {"x": np.zeros(2)})
        refused(FormatError, r"m\.crf: .*ChainCRF", ChainCRF.load, path)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("child", np.array([0, 1, 2, 99], np.int32), "its child is not in its scope"),
        ("child", np.array([0, 1, 2, -7], np.int32), "or -1"),
        ("group0.ids", np.array([90], np.int64), "factor"),
        # probabilities were taken to be normalised: log P(e) = 0 was the answer
        ("log_psi", 1.0, r"m\.minfer: factor \d: .*do not sum to 1"),
    ],
)
def test_native_files_with_wrong_indices_or_rows(name, change, said, tmp_path):
    path = tmp_path / "m.minfer"
    arrays, header = crafting.native_parts(fuzzing.network())
    if name == "log_psi":
        name = next(n for n in arrays if n.endswith("log_psi"))
        change = arrays[name] + change
    path.write_bytes(native.lay_out(header, {**arrays, name: change}))
    refused(FormatError, said, minfer.read, path)


@contextmanager
def little_memory() -> Iterator[None]:
    """2 GiB more than what this process has."""
    resource = pytest.importorskip("resource", reason="no limits of memory here")
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + (2 << 30), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.drawn
@pytest.mark.parametrize(
    "kind", [fuzzing, mutating, pytest.param(crafting, marks=pytest.mark.slow)],
    ids=lambda kind: kind.__name__,
)  # fmt: skip
def test_only_typed_errors_escape(kind, tmp_path):
    """What is accepted goes through the kernels, where a wrong index may end this process."""
    for name in {mutating: ("duckdb", "pyarrow"), crafting: ("safetensors", "PIL")}.get(kind, ()):
        pytest.importorskip(name)
    n = {fuzzing: draws(10_000), mutating: draws(2000) if thorough() else 120}.get(kind, 300)
    folder, limit = [tmp_path] * (kind is crafting), fuzzing.LIMIT_SECONDS if kind is fuzzing else 5
    for k in range(len(fuzzing.SOLVERS)):  # compiled while there is memory
        fuzzing.answered(fuzzing.model(), k)
    for case in kind.honest(*folder):
        assert kind.check(case, tmp_path)[0] == "accepted", case.kind
    a, b = ([kind.case(3, k, *folder) for k in range(30)] for _ in range(2))
    assert a == b
    outcomes: Counter[str] = Counter()
    with little_memory():
        for number in range(n * blocks(1)):
            case = kind.case(1, number, *folder)
            try:
                outcome, took = kind.check(case, tmp_path)
            except BaseException as error:
                error.add_note(f"case(1, {number}): {case.kind} {case.data[:200]!r}")
                raise
            assert took < limit, f"{kind.__name__}.case(1, {number}) took {took:.1f} s"
            outcomes.update([outcome, f"{case.kind}: {outcome}"])
    assert outcomes["FormatError"] > n / 2 or kind is not fuzzing
    assert min(outcomes["ContradictionError"], outcomes["EvidenceError"]) > 0 or kind is not fuzzing
    for name in ("parser", "checkpoint", "native") if kind is crafting else ():
        assert outcomes[f"{name}: accepted"] >= 5  # the kernels were reached
        assert outcomes[f"{name}: FormatError"] >= 20


#: Every function of ours that reads files of others, and what breaks its files: a kind of
#: ``fuzzing``, ``crafting`` or ``mutating``. A new reader fails the test below until it is here.
READERS = {
    "batch/shards.bytes_of": "records parquet",  # only a checksum
    "batch/shards._parquet": "records parquet",
    "batch/shards._read_csv": "records csv",
    "batch/shards.is_compressed": "records jsonl.gz",
    "batch/shards.opened": "records jsonl",
    "batch/shards.text_range": "records jsonl",
    "batch/shards.text_size": "records jsonl.gz",
    "io/bif.read_bif": "bif",
    "io/circuits.read_circuit": "circuit",
    "io/cnf.read_cnf": "cnf",
    "io/fg.read_fg": "fg",
    "io/__init__.read": "any",
    "io/native.read_native": "minfer",
    "io/net.read_net": "net",
    "io/npz.read_npz": "npz",
    "io/uai._plain_after_word": "mar",
    "io/uai.read_evidence": "evid",
    "io/uai.read_uai": "uai",
    "io/xdsl.read_xdsl": "xdsl",
    "io/xmlbif.read_xmlbif": "xmlbif",
    "learn/chain.load": "chain",
    "learn/fitting._read": "fitted",
    "learn/fitting._resumed": "fit checkpoint",
    "learn/grid.load": "grid",
    "learn/save.read_arrays": "chain",
    "parsing/learn.is_checkpoint": "checkpoint",
    "parsing/model.load": "parser",
    "parsing/model.read_tensors": "checkpoint",
    "parsing/treebank._unpacked": "conllu",
    "pictures.read_picture": "picture",
    "prediction/files.open_cases": "cases csv",
    "prediction/files._ragged": "cases csv",
    "rules/mln.read_program": "mln",
    "rules/mln.read_text": "db",
    "rules/tables._header": "facts csv",
    "rules/tables._of_database": "facts sqlite",
    "through_time/dynamic.load": "slices",
}
#: Functions that open what we wrote ourselves, or write.
OURS = {
    "basics/parallel", "batch/folder", "batch/manifest", "batch/rules", "batch/ray_engine",
    "cli/failures", "device/cuda", "device/runs", "io/opening", "io/owned", "io/text", "kernels",
    "queries/map/toulbar", "report/page", "upkeep/health",
}  # fmt: skip
_OPENS = {
    "open", "read_bytes", "read_text", "parsed", "reading", "opened", "regular", "streamed",
    "open_file", "load", "loads",
}  # fmt: skip
_MODULES = {"json", "np", "numpy", "gzip", "zipfile", "pickle", "marshal", "torch", "joblib"}


def _openings(file: Path) -> set[str]:
    """Functions of a module that open a file, by any of the ways there are."""
    found: set[str] = set()

    def walk(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = inside
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                name = inside or child.name
            if isinstance(child, ast.Call) and _opens(child.func):
                found.add(name)
            walk(child, name)

    if any(word in file.read_text("utf-8") for word in _OPENS):
        walk(parsed(file), "")
    return found


def _opens(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in _OPENS - {"load", "loads"}
    if not isinstance(function, ast.Attribute) or function.attr not in _OPENS:
        return False
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    if function.attr == "loads":
        return owner in _MODULES - {"json"}  # of a text that somebody else has opened
    if function.attr in ("open", "load"):
        return owner in _MODULES | {"image_module", "os", "io"}
    return function.attr in ("read_bytes", "read_text")


def test_every_reader_is_broken_somewhere():
    kinds = {*fuzzing.READERS, *crafting.KINDS, *mutating.KINDS}
    assert set(READERS.values()) <= kinds
    found = {
        f"{file.relative_to(SRC).with_suffix('').as_posix()}.{name}"
        for file in SRC.rglob("*.py")
        for name in _openings(file)
        if not any(file.relative_to(SRC).as_posix().startswith(ours) for ours in OURS)
    }
    assert found == set(READERS), found ^ set(READERS)


def test_nothing_is_unpickled_but_what_our_own_workers_send():
    users = {
        file.relative_to(SRC).as_posix()
        for file in SRC.rglob("*.py")
        if any(word in file.read_text("utf-8") for word in ("import pickle", "import marshal"))
    }
    assert users <= {"basics/parallel.py", "kernels/compiling/cache.py"}, users


def test_refused_is_not_wrong():
    """Memory is a matter of the machine, so it is no FormatError."""
    said = pytest.raises(RefusedError, match=r"m\.uai: there is not enough memory")
    with said, opening.reading("m.uai"):
        raise MemoryError
