"""Long files of one thing repeated, for every reader: refusing one takes as long as it is long.

``READERS`` are all readers of text, each with texts in the middle of which something may be
repeated. ``slow`` measures a reader at growing sizes and says where it takes more than its share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fuzzing
import minfer
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
    *(
        "<a>",
        "<a/>",
        "<",
        "</a>",
        "<!--",
        "<a b='c'/>",
        "&amp;",
        "<NAME/>",
        "<OUTCOME/>",
        "<![CDATA[",
    ),
    *(
        "table ",
        "property ",
        "property;",
        "variable a {}",
        "probability ( a ) {}",
        "node a {}",
        "net{}",
    ),
    *(
        "default ",
        "potential (a) {}",
        "1\t",
        "\ta",
        "1\ta\t_\t_\t_\t_\t0\ta\t_\t_\n",
        "null,",
        "[0],",
    ),
]

SIZES = (1 << 12, 1 << 14, 1 << 16)
#: CPU seconds below which nothing is said, and how many times as long four times as much may take.
FREE, SHARE = 0.4, 8.0

MLN = "*f(person, person)\ns(person)\nt = {A, B}\n1.5 f(x, y) ^ s(x) => s(y)\n!s(A) v s(B).\n"
CONLLU = "1\tthe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n2\tdog\tdog\tNOUN\t_\t_\t0\troot\t_\t_\n\n"


def _model(path: Path) -> Any:
    return minfer.read(path)


def _evidence(path: Path) -> Any:
    return minfer.read_evidence(path, fuzzing.model())


def _mln(path: Path) -> Any:
    return minfer.Rules.read(path)


def _db(path: Path) -> Any:
    program = path.with_name("program.mln")
    program.write_text(MLN)
    return minfer.Rules.read(program, path)


def _rules_csv(path: Path) -> Any:
    return minfer.Rules().closed("f", path).store


def _cases(path: Path) -> Any:
    return minfer.predict(fuzzing.network(), path, targets=["a"])


def _conllu(path: Path) -> Any:
    from minfer.parsing.conllu import read_conllu

    return list(read_conllu(path))


def texts() -> dict[str, tuple[str, Callable[[Path], Any], list[str]]]:
    """By reader: the name of a file, how it is read, and valid texts."""
    net = fuzzing.network()
    return {
        "uai": ("m.uai", _model, [format_uai(fuzzing.model()).decode()]),
        "fg": ("m.fg", _model, [format_fg(fuzzing.model()).decode()]),
        "bif": ("m.bif", _model, [format_bif(net).decode(), fuzzing.BIF.decode()]),
        "xmlbif": ("m.xmlbif", _model, [format_xmlbif(net).decode(), fuzzing.XMLBIF.decode()]),
        "net": ("m.net", _model, [format_net(net).decode()]),
        "xdsl": ("m.xdsl", _model, [fuzzing.XDSL.decode()]),
        "any": ("model", _model, [fuzzing.BIF.decode()]),
        "evidence": ("m.evid", _evidence, ["2 0 1 1 2\n", '{"a": 1, "b": [0.5, 0.2, 0.1]}']),
        "mar": ("m.MAR", read_mar, ["MAR\n2 2 0.25 0.75 3 0.5 0.5 0\n"]),
        "pr": ("m.PR", read_pr, ["PR\n-12.5\n"]),
        "mln": ("m.mln", _mln, [MLN]),
        "db": ("m.db", _db, ["f(A, B)\n!s(A)\n// none\ns(B)\n"]),
        "rules table": ("f.csv", _rules_csv, ["a,b\nx,y\nz,w\n"]),
        "cases": ("cases.csv", _cases, ["b,c\np,only\n,\n"]),
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
    """What is wrong with how long texts of growing size take; empty if nothing."""
    last = 0.0
    for size in SIZES:
        text = make(size)
        allowed = max(FREE, SHARE * max(last, 1e-3))
        for _ in range(4):  # garbage may be collected, and threads of others may run
            took = seconds(read, path, text)
            if took <= allowed:
                break
        if took > allowed:
            return f"{size:,} bytes took {took:.2f} s, a quarter of it {last:.2f} s"
        last = took
    return ""


# ---------------------------------------------------------------------- many things

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

Made = tuple[str, Callable[[Path], Any], Callable[[int], str]]


def twice_a_state_bif() -> Made:
    def text(size: int) -> str:
        n = size // 7
        states = ", ".join(f"s{k}" for k in (*range(n), n - 1))
        return f"variable a {{ type discrete [ {n + 1} ] {{ {states} }}; }}"

    return "m.bif", _model, text


def many_quoted_states_bif() -> Made:
    def text(size: int) -> str:
        n = size // 30
        states = ", ".join(f'"s {k}"' for k in range(n))
        rows = "\n".join(f'("s {k}") 1;' for k in range(n))
        return (
            f"variable a {{ type discrete [ {n} ] {{ {states} }}; }}\n"
            "variable b { type discrete [ 1 ] { x }; }\n"
            f"probability ( a ) {{ table {', '.join(['0'] * (n - 1))}, 1; }}\n"
            f"probability ( b | a ) {{ {rows} }}"
        )

    return "m.bif", _model, text


def many_parents_bif() -> Made:
    def text(size: int) -> str:
        return (
            "variable a { type discrete [ 2 ] { x, y }; }\n"
            f"probability ( a | {'a ' * (size // 2)}) {{ table 1; }}"
        )

    return "m.bif", _model, text


def long_names_bif() -> Made:
    """Names that would be long together, were all their combinations written down."""

    def text(size: int) -> str:
        parents = [f"p{k}" for k in range(5)]
        length = size // 40
        lines = [
            f"variable {p} {{ type discrete [ 8 ] {{ "
            f"{', '.join(f'{s}' * length for s in range(8))} }}; }}"
            for p in parents
        ]
        lines.append("variable c { type discrete [ 1 ] { x }; }")
        lines.append(
            f"probability ( c | {', '.join(parents)} ) {{ {'(0) 1;' * 8**5} }}"
            if size == SIZES[-1]
            else "probability ( c | p0 ) { (0) 1; }"
        )
        return "\n".join(lines)

    return "m.bif", _model, text


def many_columns_cases() -> Made:
    def text(size: int) -> str:
        n = size // 9
        return ",".join(["a", *(f"c{k}" for k in range(n))]) + "\n" + ",".join(["no"] * (n + 1))

    return "c.csv", _cases, text


def many_columns_table() -> Made:
    def text(size: int) -> str:
        n = size // 9
        return ",".join(f"c{k}" for k in range(n)) + "\n" + ",".join(["x"] * n) + "\n"

    return "f.csv", _rules_csv, text


def last_column_twice() -> Made:
    def text(size: int) -> str:
        n = size // 6
        return ",".join(f"c{k}" for k in (*range(n), n - 1)) + "\n"

    return "f.csv", _rules_csv, text


def twice_a_name_json() -> Made:
    def text(size: int) -> str:
        n = size // 10
        return "{" + ", ".join(f'"c{k}": 0' for k in (*range(n), n - 1)) + "}"

    return "e.json", _evidence, text


def many_lines_mln() -> Made:
    def text(size: int) -> str:
        return "s(person)\ns(A) v\n" + "\n".join(["!s(B) v"] * (size // 8)) + "\ns(C)\n"

    return "m.mln", _mln, text


def many_arguments_mln() -> Made:
    def text(size: int) -> str:
        return f"s({', '.join(['t'] * (size // 3))})\n"

    return "m.mln", _mln, text


def many_bound_mln() -> Made:
    def text(size: int) -> str:
        n = size // 14
        names = [f"x{k}" for k in range(n)]
        return f"s(person)\n1 EXIST {', '.join(names)} {' ^ '.join(f's({x})' for x in names)}\n"

    return "m.mln", _mln, text


def unknown_name_mln() -> Made:
    def text(size: int) -> str:
        return f"{'a' * (size // 2)}(person)\n1 {'a' * (size // 2 - 1)}(x)\n"

    return "m.mln", _mln, text


BLOCKS: list[Callable[[], Made]] = [
    *(twice_a_state_bif, many_quoted_states_bif, many_parents_bif, long_names_bif),
    *(many_columns_cases, many_columns_table, last_column_twice, twice_a_name_json),
    *(many_lines_mln, many_arguments_mln, many_bound_mln, unknown_name_mln),
]
