"""Long files of one thing repeated, for every reader: refusing one takes as long as it is long.

``READERS`` are all readers of text, each with texts in the middle of which something may be
repeated. ``slow`` measures a reader at growing sizes and says where it takes more than its share.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fuzzing
import minfer
import mutating
from minfer import MinferError
from minfer.io import read_mar, read_pr
from minfer.io.bif import format_bif
from minfer.io.fg import format_fg
from minfer.io.net import format_net
from minfer.io.uai import format_uai
from minfer.io.xmlbif import format_xmlbif

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
    from minfer.parsing.conllu import read_conllu

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
    "many bound": ("m.mln", minfer.Rules.read, many_bound),
    "an unknown name": ("m.mln", minfer.Rules.read, lambda size:
        f"{'a' * (size // 2)}(person)\n1 {'a' * (size // 2 - 1)}(x)\n"),
}  # fmt: skip
