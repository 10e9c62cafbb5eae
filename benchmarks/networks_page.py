"""The sections of docs/reference/networks.md from what benchmarks/networks.py found."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from minfer_experiments.pages import number, table
from minfer_experiments.results import together

SMALL = ("alarm", "insurance", "hailfinder", "win95pts")
FIVE = (*SMALL, "pigs")
BIG = ("munin1", "link", "munin")
TOLERANCE = 1e-9

Row = dict[str, Any]
Found = dict[str, Any]


class Aim(NamedTuple):
    """How many times as fast minfer should be."""

    job: str
    where: str
    part: str
    networks: tuple[str, ...]  # none: all that were measured
    key: str
    least: float
    mean: bool = False  # the geometric mean over networks has to reach it, not each


BLANK = "all posteriors by `query`, no evidence"
AIMS = (
    Aim(BLANK, "every network", "blank", (), "ratio, query", 1.0),
    Aim(BLANK, "geometric mean", "blank", (), "ratio, query", 6.0, True),
    Aim("rows, one target", "the five", "rows", FIVE, "one", 50.0),
    Aim("rows, one target", "the three", "rows", BIG, "one", 30.0),
    Aim("rows, all posteriors", "the five", "rows", FIVE, "all", 100.0),
    Aim("rows, all posteriors", "the three", "rows", BIG, "all", 30.0),
    Aim("every row observes different variables", "the small ones", "sets", SMALL, "ratio", 10.0),
    Aim("a prepared `Query`, one target", "the small ones", "single", SMALL, "one prepared", 5.0),
    Aim("`minfer.query` again, one target", "the small ones", "single", SMALL, "one query", 5.0),
    Aim("file read, planned, answered", "every network", "cold", (), "ratio", 1.0),
    Aim("two cores against one", "all that were measured", "cores", (), "ratio", 1.7),
    Aim("reading, against pgmpy", "munin", "reading", ("munin",), "pgmpy ratio", 5.0),
)


class Line(NamedTuple):
    """What became of an aim."""

    aim: Aim
    value: float  # of the network where it is least, or the mean
    where: str  # that network
    worst: float | None  # the least of all draws
    reached: bool
    n: int  # networks that were measured

    def __str__(self) -> str:
        return (
            f"{self.aim.job}, {self.aim.where}: {self.value:.2f}x ({self.where}), "
            f"which should be {self.aim.least:g}x"
        )


def aims(found: Found) -> list[Line]:
    """Those that were measured."""
    out = []
    for aim in AIMS:
        rows = [
            row for row in found.get(aim.part, {"rows": []})["rows"]
            if aim.key in row and (not aim.networks or row["network"] in aim.networks)
        ]  # fmt: skip
        if not rows:
            continue
        least = min(rows, key=lambda row: row[aim.key])
        value, where = least[aim.key], least["network"]
        if aim.mean:
            value, where = statistics.geometric_mean(row[aim.key] for row in rows), "all"
        worst = [row[f"{aim.key}, least"] for row in rows if f"{aim.key}, least" in row]
        out.append(Line(aim, value, where, min(worst, default=None), value >= aim.least, len(rows)))
    return out


# ---------------------------------------------------------------------- the page


def sections(found: Found) -> dict[str, str]:
    """What the page's sections say, by name; those of parts that were measured."""
    made = {"measured": f"{_measured(found)} {_loose(found)}"}
    if lines := aims(found):
        lost = _lost(found)
        words = "**Lost** (slower than pyAgrum): " + "; ".join(lost) + "."
        made["short"] = _short(lines) + "\n\n" + (words if lost else "No row of this page is lost.")
    for name, (part, columns) in TABLES.items():
        if part in found:
            rows = found[part]["rows"]
            body = [[show(row, key) for _, show, key in columns] for row in rows]
            made[name] = table([title for title, _, _ in columns], body)
    if "blank" in found:
        means = [
            times(statistics.geometric_mean(r[key] for r in found["blank"]["rows"]))
            for key in ("ratio", "ratio, query")
        ]
        made["blank"] += f"\n\nThe geometric means are {means[0]} and {means[1]}."
    return made


def for_peers(found: Found) -> str:
    """The section of docs/reference/peers.md."""
    lines, lost = aims(found), _lost(found)
    if not lines:
        return ""
    return _short(lines) + "\n\n" + (f"**Lost**: {'; '.join(lost)}." if lost else "None is lost.")


def _short(lines: list[Line]) -> str:
    body = []
    for line in lines:
        value = times(line.value)
        if not line.aim.mean:
            value = f"at least {value} ({line.where})"
        if line.worst is not None:
            value += f"; worst draw {times(line.worst)}"
        where = line.aim.where + ("" if line.aim.networks else f" of {line.n}")
        missed = "" if line.reached else "**missed**"
        body.append([line.aim.job, where, value, f"{line.aim.least:g}", missed])
    return table(["job", "networks", "speed-up over pyAgrum", "aim", ""], body)


#: part -> (key, in words) of every ratio to pyAgrum
RATIOS = {
    "blank": [("ratio, query", "all posteriors without evidence")],
    "rows": [
        ("one", "rows, one target"), ("one frame", "the same from a data frame"),
        ("all", "rows, all posteriors"), ("all frame", "the same from a data frame"),
    ],
    "sets": [("ratio", "every row observes different variables")],
    "single": [
        ("one query", "query again"), ("one prepared", "prepared query"),
        ("all query", "query again, all posteriors"),
        ("all prepared", "prepared query, all posteriors"),
    ],
    "cold": [("ratio", "file read, planned, answered")],
    "reading": [("pyagrum ratio", "reading alone")],
}  # fmt: skip


def lost(found: Found) -> str:
    """What is lost, in a line; empty if nothing is."""
    return "; ".join(_lost(found))


def _lost(found: Found) -> list[str]:
    """Every ratio below one."""
    out = []
    for part, keys in RATIOS.items():
        for key, words in keys:
            lost = [
                f"{row['network']} ({times(row[key])})"
                for row in found.get(part, {"rows": []})["rows"] if row.get(key, 1.0) < 1.0
            ]  # fmt: skip
            if lost:
                out.append(f"{words}: {', '.join(lost)}")
    return out


def times(ratio: float | None) -> str:
    """A speed-up, two digits and a half."""
    if ratio is None:
        return "–"
    return number(ratio, 2 if ratio < 100 else 3)


def ratio(row: Row, key: str) -> str:
    """The median, and the least draw; bold where it is lost."""
    if key not in row:
        return "–"
    text = times(row[key])
    if f"{key}, least" in row:
        text += f" ({times(row[f'{key}, least'])})"
    return f"{text} **lost**" if row[key] < 1.0 else text


def _us(row: Row, key: str) -> str:
    return number(row[key] * 1e6) if row.get(key) else "–"


def _ms(row: Row, key: str) -> str:
    return number(row[key] * 1e3) if row.get(key) else "–"


def _plain(row: Row, key: str) -> str:
    return number(row[key]) if isinstance(row[key], float) else str(row[key])


def _count(row: Row, key: str) -> str:
    return f"{row[key]:,}"


def _megabytes(row: Row, key: str) -> str:
    return number(row[key] / 1e6)


def _off(row: Row, key: str) -> str:
    return f"{row[key]:.0e}"


Columns = list[tuple[str, Callable[[Row, str], str], str]]
_NETWORK = ("network", _plain, "network")
_DIFFERENCE = ("difference", _off, "difference")


def _single(what: str) -> Columns:
    return [
        _NETWORK, ("pyAgrum", _us, f"{what}, pyagrum"), ("`query` again", _us, f"{what}, query"),
        ("prepared", _us, f"{what}, prepared"), ("speed-up, `query`", ratio, f"{what} query"),
        ("prepared", ratio, f"{what} prepared"),
    ]  # fmt: skip


#: section -> (part, columns: head, how a cell is shown, its key)
TABLES: dict[str, tuple[str, Columns]] = {
    "rows, one target": ("rows", [
        _NETWORK, ("pgmpy", _us, "one, pgmpy"), ("pyAgrum", _us, "one, pyagrum"),
        ("minfer", _us, "one, ours"), ("frame", _us, "one, frame"),
        ("speed-up over pyAgrum", ratio, "one"), ("frame", ratio, "one frame"),
        ("over pgmpy", ratio, "one pgmpy"),
    ]),
    "rows, all posteriors": ("rows", [
        _NETWORK, ("pyAgrum", _us, "all, pyagrum"), ("minfer", _us, "all, ours"),
        ("frame", _us, "all, frame"), ("speed-up over pyAgrum", ratio, "all"),
        ("frame", ratio, "all frame"), _DIFFERENCE,
    ]),
    "sets": ("sets", [
        _NETWORK, ("rows", _count, "rows"), ("pyAgrum µs a row", _us, "pyagrum"),
        ("minfer", _us, "ours"), ("speed-up", ratio, "ratio"), _DIFFERENCE,
    ]),
    "single, one target": ("single", _single("one")),
    "single, all posteriors": ("single", _single("all")),
    "blank": ("blank", [
        _NETWORK, ("variables", _count, "nodes"), ("pyAgrum ms", _ms, "pyagrum"),
        ("`Exact` ms", _ms, "exact"), ("speed-up", ratio, "ratio"), ("`query` ms", _ms, "query"),
        ("speed-up", ratio, "ratio, query"), _DIFFERENCE,
    ]),
    "cold": ("cold", [
        _NETWORK, ("pgmpy", _ms, "pgmpy"), ("pyAgrum", _ms, "pyagrum"), ("minfer", _ms, "ours"),
        ("speed-up over pyAgrum", ratio, "ratio"), ("over pgmpy", ratio, "pgmpy ratio"),
    ]),
    "reading": ("reading", [
        _NETWORK, ("MB", _megabytes, "bytes"), ("pgmpy", _ms, "pgmpy"),
        ("pyAgrum", _ms, "pyagrum"), ("minfer", _ms, "minfer"),
        ("speed-up over pgmpy", ratio, "pgmpy ratio"), ("over pyAgrum", ratio, "pyagrum ratio"),
    ]),
    "cores": ("cores", [
        _NETWORK, ("rows", _count, "rows"), ("one thread, s", _plain, "one"),
        ("two, s", _plain, "two"), ("speed-up", _plain, "ratio"), ("median", _plain, "median"),
    ]),
}  # fmt: skip


def _measured(found: Found) -> str:
    days, machines, pythons = (together(found, key) for key in ("date", "cpu", "python"))
    text = f"Measured {' to '.join(dict.fromkeys((days[0], days[-1])))} on {' and '.join(machines)}"
    one = [stamp["versions"] for stamp in found["about"].values()][-1]
    versions = f"pyAgrum {one['pyagrum']}, pgmpy {one['pgmpy']}"
    return f"{text}, Python {' and '.join(pythons)}, {versions}. Ratios vary less than times."


def _loose(found: Found) -> str:
    """What ratios are in processes that are not pinned."""
    changes = [
        row[f"{key}, loose"] / row[key]
        for part, keys in RATIOS.items()
        for row in found.get(part, {"rows": []})["rows"]
        for key, _ in keys
        if row.get(f"{key}, loose") and row.get(key)
    ]
    if not changes:
        return "They were measured pinned alone; the script now measures them not pinned as well."
    low, high = min(changes), max(changes)
    return (
        f"In processes that are not pinned, all threads counted, as anybody runs it, the speed-ups "
        f"are {statistics.median(changes):.2f} times these in the median ({low:.2f} to {high:.2f}; "
        f"{len(changes)} ratios)."
    )
