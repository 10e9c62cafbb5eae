"""Broken files by the thousand: seeded mutations of small valid files of every format.

``case(rng, number)`` is reproducible on its own; ``check`` reads one, has a solver answer what was
accepted, and says what happened. Only a MinferError may escape, and none may take long.
"""

from __future__ import annotations

import gzip
import json
import random
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import minfer
from minfer import (
    BeliefPropagation,
    Exact,
    FactorGraph,
    Gibbs,
    MeanField,
    MinferError,
    TreeReweighted,
)
from minfer.io import read_mar, read_pr
from minfer.io.bif import format_bif
from minfer.io.circuits import format_circuit
from minfer.io.fg import format_fg
from minfer.io.native import _PREFIX, format_native, seal
from minfer.io.net import format_net
from minfer.io.uai import format_uai
from minfer.io.xmlbif import format_xmlbif

LIMIT_SECONDS = 2.0


class Case(NamedTuple):
    number: int
    kind: str  # the reader: one of READERS
    name: str  # the file name it is read under
    data: bytes


def model() -> FactorGraph:
    """Small, with everything: one state, zeros, a shared table, features, evidence, names."""
    graph = FactorGraph.empty([2, 3, 1, 2], ["a", "b", "c d", "\u00e9"])
    graph = graph.add_tables([[0], [1, 0], []], [[0.1, -0.5], np.arange(6.0) / 7, 0.25])
    graph = graph.add_tables([[3, 1, 2]], [[0.0, -np.inf, 1.5, -2.0, 0.3, 7.0]])
    graph = graph.add_tables(np.array([[0, 3], [3, 0]]), np.array([[[0.0, 1.0], [2.0, -np.inf]]]))
    graph = graph.add_features([[0, 3]], 1.25, "equal")
    return graph.with_evidence({3: 1})


#: A network through time as SMILE saves one.
XDSL_TIME = b"""<?xml version="1.0" encoding="UTF-8"?>
<smile version="1.0" id="Net" numsamples="10000" discsamples="10000">
	<nodes>
		<cpt id="Place">
			<state id="wet" /><state id="dry" /><probabilities>0.5 0.5</probabilities>
		</cpt>
		<cpt id="Rain" dynamic="plate">
			<state id="true" /><state id="false" />
			<parents>Place</parents><probabilities>0.7 0.3 0.01 0.99</probabilities>
		</cpt>
		<cpt id="Umbrella" dynamic="plate">
			<state id="true" /><state id="false" />
			<parents>Rain</parents><probabilities>0.9 0.1 0.2 0.8</probabilities>
		</cpt>
	</nodes>
	<dynamic numslices="5">
		<cpt id="Rain" order="1">
			<parents>Rain</parents>
			<probabilities>0.7 0.3 0.3 0.7 0.001 0.999 0.01 0.99</probabilities>
		</cpt>
	</dynamic>
	<extensions><genie version="1.0" app="SMILE 2.0"><plate leftwidth="9" /></genie></extensions>
</smile>
"""


def network() -> FactorGraph:
    """A Bayesian network with zeros, one state, odd names and several parents."""
    return FactorGraph.network(
        {"a": ["no", "yes"], "b": ["p", "q q", '"'], "c": ["only"], "d 4": 2},
        {
            "a": [0.25, 0.75],
            "b": ("a", [[0.5, 0.5, 0.0], [0.125, 0.125, 0.75]]),
            "c": ("d 4", [[1.0], [1.0]]),
            "d 4": (["b", "a"], [[[0.5, 0.5], [1, 0]], [[0, 1], [0.1, 0.9]], [[1, 0], [0.3, 0.7]]]),
        },
    )


XDSL = b"""<?xml version="1.0" encoding="UTF-8"?>
<smile version="1.0" id="Net"><nodes>
<cpt id="a"><state id="no" /><state id="yes" /> <probabilities>0.2 0.8</probabilities></cpt>
<deterministic id="b"><state id="t" /><state id="f" /> <parents>a</parents>
<resultingstates>t f</resultingstates></deterministic>
<noisymax id="c"><state id="big" /><state id="none" /> <parents>a b</parents>
<strengths>0 1 1 0</strengths> <parameters>0.5 0.5 0 1 0.25 0.75 0 1 0.1 0.9</parameters></noisymax>
</nodes> <extensions><genie app="GeNIe" /></extensions></smile>
"""

BIF = b"""// rows in another order, a default, a property
network x { property "y ; z" ; }
variable a { type discrete [ 2 ] { no, yes }; property position = (1, 2) ; }
variable b { type discrete [ 3 ] { p, q, r }; }
/* a
comment */
probability ( a | b ) { default 0.5, 0.5 ; (q) 0.25, 0.75; }
probability ( b ) { table 0.25, 0.25, 0.5; }
"""

XMLBIF = b"""<?xml version="1.0"?>
<!DOCTYPE BIF [ <!ELEMENT BIF ( NETWORK )*> <!ATTLIST VARIABLE TYPE (nature|utility) "nature"> ]>
<BIF VERSION="0.3"> <NETWORK> <NAME>x</NAME>
<VARIABLE> <NAME>a</NAME> <OUTCOME>no</OUTCOME> <OUTCOME>yes</OUTCOME> </VARIABLE>
<DEFINITION> <FOR>a</FOR> <TABLE> 0.5 0.5 </TABLE> </DEFINITION>
</NETWORK> </BIF>
"""

CNF = b"""c t wmc
p cnf 4 5
c p weight 1 0.3 0
c p weight -1 7/10 0
1 2 -3
0 -2 2 0
-4 0
2 0
-3 0
%
0
"""


def seeds() -> list[tuple[str, str, bytes]]:
    """(kind, file name, content) of valid files."""
    graph = model()
    uai, fg, native = format_uai(graph), format_fg(graph), format_native(graph)
    net = network()
    bif, xmlbif, hugin = format_bif(net), format_xmlbif(net), format_net(net)
    circuit = format_circuit(minfer.compile(graph))
    return [
        ("uai", "m.uai", uai),
        ("uai", "m.uai", uai.replace(b"MARKOV", b"BAYES").replace(b"\n", b"\r\n\t")),
        ("uai", "m.uai.gz", gzip.compress(uai, mtime=0)),
        ("fg", "m.fg", fg),
        ("fg", "m.fg", b"# a comment\n" + fg.replace(b"\n3\n", b"\n# \xff another\n3\n")),
        ("fg", "m.fg.gz", gzip.compress(fg, mtime=0)),
        ("minfer", "m.minfer", native),
        ("minfer", "m.minfer.gz", gzip.compress(native, mtime=0)),
        ("circuit", "m.circuit", circuit),
        ("circuit", "m.circuit.gz", gzip.compress(circuit, mtime=0)),
        ("uai", "m.uai", format_uai(net)),
        ("uai", "m.uai", b"# comments // twice\n" + format_uai(net) + b"/* the\nend */"),
        ("bif", "m.bif", bif),
        ("bif", "m.bif", BIF),
        ("bif", "m.bif.gz", gzip.compress(BIF, mtime=0)),
        ("xmlbif", "m.xmlbif", xmlbif),
        ("xmlbif", "m.xml", XMLBIF),
        ("xmlbif", "m.bifxml.gz", gzip.compress(XMLBIF, mtime=0)),
        ("net", "m.net", hugin),
        ("net", "m.net", b"% a comment\n" + hugin.replace(b"(0.5 0.5 0.0)", b"0.5 0.5 0.0")),
        ("xdsl", "m.xdsl", XDSL),
        ("cnf", "m.cnf", CNF),
        ("cnf", "m.cnf.gz", gzip.compress(CNF.replace(b"\n", b"\r\n"), mtime=0)),
        ("any", "model", CNF),
        ("any", "model", BIF),
        ("any", "model", hugin),
        ("any", "model", XDSL),
        ("any", "model", uai),
        ("any", "model", fg),
        ("any", "model", native),
        ("evid", "m.evid", b"2 0 1 1 2\n"),
        ("evid", "m.evid", b"1\n2 0 1\t1 2\n"),
        ("mar", "m.MAR", b"MAR\n2 2 0.25 0.75 3 0.5 0.5 0\n"),
        ("pr", "m.PR", b"PR\n-12.5\n"),
    ]


WORDS = [
    b"-1", b"nan", b"inf", b"-inf", b"1e999", b"1e-999", b"-0", b"0", b"1", b"2", b"3", b"0.5",
    b"1000000000", b"99999999999999999999", b"2147483648", b"4294967296", b"9007199254740993",
    b"1e9", b"1e300", b"abc", b"1.5.5", b"1-2", b"1_0", b"0x10", b"\xff\xfe", b"\0", b"1,", b"#",
    b"MARKOV", b"9" * 3000, b"", b"+", b".", b"e", b"nan(1)", b"\xef\xbb\xbf1", b"1 \x0c 2", b"33",
    b"(" * 500, b")", b"{", b"};", b";", b"|", b'"', b'"\\', b"\\", b"//", b"/*", b"*/", b"%",
    b"[9]", b"property", b"default", b"table", b"probability ( a ) {", b"node", b"utility u {}",
    b"<x>", b"</x>", b"<" * 50, b"<a>" * 100, b"&amp;", b"&e;", b"<!ENTITY e 'eee'>", b"<![CDATA[",
    b"<!DOCTYPE BIF SYSTEM 'x'>", b"<!--", b"<FOR>a</FOR>", b"<decision id='d'/>", b"yes",
    b"c p weight 2 0.5 0", b"p cnf 4 3",
]  # fmt: skip

Mutation = Callable[[random.Random, bytes], bytes]


def flip(r: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 8))):
        if out:
            out[r.randrange(len(out))] ^= 1 << r.randrange(8)
    return bytes(out)


def junk(r: random.Random, data: bytes) -> bytes:
    at = r.randint(0, len(data))
    return data[:at] + r.randbytes(r.randint(1, 20)) + data[at:]


def truncate(r: random.Random, data: bytes) -> bytes:
    return data[: r.randint(0, len(data))]


def cut(r: random.Random, data: bytes) -> bytes:
    at = r.randint(0, len(data))
    return data[:at] + data[at + r.randint(1, 30) :]


def repeat(r: random.Random, data: bytes) -> bytes:
    at = r.randint(0, len(data))
    return data[:at] + data[at : at + r.randint(1, 60)] * r.choice((2, 2, 3, 50)) + data[at:]


def _by_token(change: Callable[[random.Random, list[bytes]], None]) -> Mutation:
    def mutate(r: random.Random, data: bytes) -> bytes:
        lines = [line.split(b" ") for line in data.split(b"\n")]
        tokens = r.choice([line for line in lines if any(line)] or [[b"0"]])
        change(r, tokens)
        return b"\n".join(b" ".join(line) for line in lines)

    return mutate


@_by_token
def replace(r: random.Random, tokens: list[bytes]) -> None:
    tokens[r.randrange(len(tokens))] = r.choice(WORDS)


@_by_token
def swap(r: random.Random, tokens: list[bytes]) -> None:
    i, j = r.randrange(len(tokens)), r.randrange(len(tokens))
    tokens[i], tokens[j] = tokens[j], tokens[i]


@_by_token
def add(r: random.Random, tokens: list[bytes]) -> None:
    tokens.insert(r.randint(0, len(tokens)), r.choice([*tokens, r.choice(WORDS)]))


@_by_token
def drop(r: random.Random, tokens: list[bytes]) -> None:
    del tokens[r.randrange(len(tokens))]


def lines(r: random.Random, data: bytes) -> bytes:
    """Delete, repeat or exchange whole lines."""
    all_lines = data.split(b"\n")
    i, j = r.randrange(len(all_lines)), r.randrange(len(all_lines))
    how = r.randrange(3)
    if how == 0:
        del all_lines[i]
    elif how == 1:
        all_lines.insert(j, all_lines[i])
    else:
        all_lines[i], all_lines[j] = all_lines[j], all_lines[i]
    return b"\n".join(all_lines)


BYTES: list[Mutation] = [flip, junk, truncate, cut, repeat]
TOKENS: list[Mutation] = [replace, replace, replace, swap, add, drop, lines]


def inside_gzip(r: random.Random, data: bytes) -> bytes:
    """Break what is compressed, and pack it again properly."""
    return gzip.compress(r.choice(TOKENS + BYTES)(r, gzip.decompress(data)), 1, mtime=0)


def resealed(r: random.Random, data: bytes) -> bytes:
    """Break the header or the arrays of a native file, and make the checksum right again."""
    magic, version, length, _ = _PREFIX.unpack_from(data)
    header, arrays = data[_PREFIX.size :][:length], data[_PREFIX.size + length :]
    how = r.randrange(3)
    if how == 0:
        header = r.choice(BYTES)(r, header)
    elif how == 1:
        arrays = flip(r, arrays) if r.random() < 0.8 else r.choice(BYTES)(r, arrays)
    else:
        header = json.dumps(other_json(r, json.loads(header))).encode()
    return seal(version, header, arrays, magic)


def other_json(r: random.Random, value: Any) -> Any:
    """The same JSON with one value somewhere replaced."""
    odd = [None, True, -1, 0, 1, 2, 7, 10**30, 0.5, "x", [], {}, [[]], float("nan"), 2**31]
    if isinstance(value, dict) and value and r.random() < 0.9:
        key = r.choice(list(value))
        return {**value, key: other_json(r, value[key])}
    if isinstance(value, list) and value and r.random() < 0.9:
        k = r.randrange(len(value))
        return [*value[:k], other_json(r, value[k]), *value[k + 1 :]]
    return r.choice(odd)


_SEEDS = seeds()


def honest() -> list[Case]:
    """Files that must be accepted."""
    return [Case(-1, *seed) for seed in _SEEDS]


def case(rng: int, number: int) -> Case:
    """The ``number``-th broken file of the stream ``rng``."""
    r = random.Random(f"{rng}/{number}")
    kind, name, data = r.choice(_SEEDS)
    for _ in range(r.choice((1, 1, 1, 2, 4))):
        if data[:2] == b"\x1f\x8b":
            try:
                data = inside_gzip(r, data) if r.random() < 0.5 else r.choice(BYTES)(r, data)
            except (OSError, EOFError, ValueError, ArithmeticError, zlib.error):
                break  # already broken: not to be unpacked again
        elif data[:8] in (b"MINFER\r\n", b"MINFERC\n") and len(data) > 60 and r.random() < 0.8:
            data = resealed(r, data) if _well_sealed(data) else flip(r, data)
        else:
            data = r.choice(TOKENS + TOKENS + BYTES)(r, data)
    return Case(number, kind, name, data)


def _well_sealed(data: bytes) -> bool:
    length = _PREFIX.unpack_from(data)[2]
    try:
        return length <= len(data) and isinstance(json.loads(data[_PREFIX.size :][:length]), dict)
    except (ValueError, RecursionError):
        return False


SOLVERS = [
    BeliefPropagation(max_iters=30),
    TreeReweighted(max_iters=30),
    MeanField(max_iters=30),
    Exact(method="clique-tree"),
    Exact(),
    Gibbs(n_sweeps=4, burn_in=2, n_chains=2),
]


def answered(graph: FactorGraph, number: int) -> None:
    """Ask one of the solvers about a model that a reader accepted."""
    with np.errstate(all="ignore"):  # a native file may hold weights whose sum overflows
        graph.log_score(np.zeros(graph.n_variables, dtype=np.int64))
        answer = SOLVERS[number % len(SOLVERS)](graph)
    assert answer.probs.shape == (graph.offsets[-1],)


def _read_model(path: Path) -> FactorGraph:
    return minfer.read(path).validate()


MODELS = ("uai", "fg", "minfer", "bif", "xmlbif", "net", "xdsl", "cnf", "circuit", "any")
READERS: dict[str, Callable[[Path], Any]] = {
    **dict.fromkeys(MODELS, _read_model),
    "evid": lambda path: minfer.read_evidence(path, model()), "mar": read_mar, "pr": read_pr,
}  # fmt: skip


def read_and_used(
    broken: Case, folder: Path, read: Callable[[Path], Any], use: Callable[[Any], Any]
) -> tuple[str, float]:
    """What became of a case: an error's class name or ``accepted``, CPU seconds of reading."""
    path = folder / broken.name
    path.write_bytes(broken.data)
    start, seconds = time.process_time(), 0.0
    try:
        content = read(path)
        seconds = time.process_time() - start
        with np.errstate(all="ignore"):
            use(content)
    except MinferError as error:
        return type(error).__name__, seconds or time.process_time() - start
    return "accepted", seconds


def check(broken: Case, folder: Path) -> tuple[str, float]:
    """Read one case and use it; the error's class name or ``accepted``, and seconds of reading."""
    path = folder / broken.name
    path.write_bytes(broken.data)
    start = time.process_time()
    content, outcome, message = None, "accepted", str(path)
    try:
        content = READERS[broken.kind](path)
    except MinferError as error:
        outcome, message = type(error).__name__, str(error)
    seconds = time.process_time() - start
    assert str(path) in message, f"the message does not name the file: {message}"
    if isinstance(content, FactorGraph):
        with suppress(MinferError):
            answered(content, len(broken.data))
    return outcome, seconds
