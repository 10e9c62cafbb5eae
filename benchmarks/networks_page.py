"""docs/networks.md from what benchmarks/networks.py found."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
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


AIMS = (
    Aim("all posteriors, no evidence", "every network", "blank", (), "ratio, query", 1.0),
    Aim("all posteriors, no evidence", "geometric mean", "blank", (), "ratio, query", 6.0, True),
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


def write(found: Found) -> str:
    """The whole page as Markdown."""
    out = [
        "<!-- made by python benchmarks/networks.py -->",
        "# Networks, beside pyAgrum and pgmpy",
        "How fast Bayesian networks answer: the networks of bnlearn's repository, which come in "
        f"pgmpy's wheel, compared with {_versions(found)}. CPU time on one pinned core, without "
        "imports and compiling; the libraries take turns, and a time is the median over turns. "
        "pyAgrum runs its lazy propagation on one thread, pgmpy its variable elimination. For the "
        "evidence, a fifth of the variables is drawn to be observed and one of the others as the "
        "target, five times; rows are drawn from the network. Each speed-up is the median over "
        "these draws, with the smallest in brackets.",
        f"{_measured(found)} Times on a busy machine vary; ratios vary much less. {_loose(found)}",
        *_sections(found),
    ]
    return "\n\n".join(out) + "\n"


def _sections(found: Found) -> Iterator[str]:
    lines = aims(found)
    if lines:
        yield "## In short"
        yield table(["job", "networks", "speed-up over pyAgrum", "aim", ""], [*_short(lines)])
        lost = _lost(found)
        if lost:
            yield "**Lost** (slower than pyAgrum): " + "; ".join(lost) + "."
        else:
            yield "No row of this page is lost to pyAgrum."
    for part, make in SECTIONS.items():
        if part in found:
            yield from make(found[part])


def for_peers(found: Found) -> Iterator[str]:
    """The section of docs/peers.md."""
    lines = aims(found)
    if not lines:
        return
    yield "## Bayesian networks"
    yield (
        "Those of bnlearn's repository, compared with pyAgrum: minfer's speed-up on the network "
        "where it is smallest (*the five* are alarm, insurance, hailfinder, win95pts and pigs, "
        "*the small ones* these without pigs, *the three* munin1, link and munin). Written by "
        "`python benchmarks/networks.py`; [Networks](networks.md) has every row and explains what "
        "was measured."
    )
    yield table(["job", "networks", "speed-up over pyAgrum", "aim", ""], [*_short(lines)])
    lost = _lost(found)
    yield f"**Lost**: {'; '.join(lost)}." if lost else "None is lost."


def _short(lines: list[Line]) -> Iterator[list[str]]:
    for line in lines:
        value = times(line.value)
        if not line.aim.mean:
            value = f"at least {value} ({line.where})"
        if line.worst is not None:
            value += f"; worst draw {times(line.worst)}"
        where = line.aim.where + ("" if line.aim.networks else f" of {line.n}")
        yield [
            line.aim.job, where, value, f"{line.aim.least:g}",
            "" if line.reached else "**missed**",
        ]  # fmt: skip


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


def _blank(part: Row) -> Iterator[str]:
    mean = {
        key: statistics.geometric_mean(r[key] for r in part["rows"])
        for key in ("ratio", "ratio, query")
    }
    yield "## All posteriors, no evidence"
    yield (
        "Planning included. `Exact()(model)` and `minfer.query(model)` on a model that was just "
        "read; pyAgrum from its network to arrays. The geometric means are "
        f"{times(mean['ratio'])} and {times(mean['ratio, query'])}. *Difference*: the largest "
        "between any two probabilities."
    )
    yield table(
        ["network", "variables", "pyAgrum ms", "`Exact` ms", "speed-up", "`query` ms",
         "speed-up", "difference"],
        [[r["network"], f"{r['nodes']:,}", _ms(r, "pyagrum"), _ms(r, "exact"), ratio(r, "ratio"),
          _ms(r, "query"), ratio(r, "ratio, query"), f"{r['difference']:.0e}"]
         for r in part["rows"]],
    )  # fmt: skip


def _rows(part: Row) -> Iterator[str]:
    n = part["rows"][0]["rows"] if part["rows"] else 0
    yield "## Rows that observe the same variables"
    yield (
        f"{n:,} rows, µs per row. minfer's time includes everything from a model that was just "
        "read: layout, planning, and all rows; *frame* also reads a pandas data frame of state "
        "names and returns one of answers (`minfer.predict`). For pyAgrum the loop is the best "
        "case: the observed variables stay the same, so only values change (`chgEvidence`), and "
        "the first row, in which it plans, is not counted. pgmpy has no call for rows; its `query` "
        "runs in a loop."
    )
    yield "One target:"
    yield table(
        ["network", "pgmpy", "pyAgrum", "minfer", "frame", "speed-up over pyAgrum", "frame",
         "over pgmpy"],
        [[r["network"], _us(r, "one, pgmpy"), _us(r, "one, pyagrum"), _us(r, "one, ours"),
          _us(r, "one, frame"), ratio(r, "one"), ratio(r, "one frame"), ratio(r, "one pgmpy")]
         for r in part["rows"]],
    )  # fmt: skip
    yield (
        "All posteriors (pgmpy is not run, since it answers one variable at a time; *frame* is for "
        "one or two draws, since its answer has up to thousands of columns):"
    )
    yield table(
        ["network", "pyAgrum", "minfer", "frame", "speed-up over pyAgrum", "frame", "difference"],
        [[r["network"], _us(r, "all, pyagrum"), _us(r, "all, ours"), _us(r, "all, frame"),
          ratio(r, "all"), ratio(r, "all frame"), f"{r['difference']:.0e}"] for r in part["rows"]],
    )  # fmt: skip


def _sets(part: Row) -> Iterator[str]:
    yield "## Every row observes different variables"
    yield (
        "One target; each variable is observed in a fifth of the rows. minfer plans one tree for "
        "all rows if that fits, otherwise one for each row. pyAgrum sets all evidence again."
    )
    yield table(
        ["network", "rows", "pyAgrum µs a row", "minfer", "speed-up", "difference"],
        [[r["network"], f"{r['rows']:,}", _us(r, "pyagrum"), _us(r, "ours"), ratio(r, "ratio"),
          f"{r['difference']:.0e}"] for r in part["rows"]],
    )  # fmt: skip


def _single(part: Row) -> Iterator[str]:
    yield "## One call at a time"
    yield (
        "One row of names in, one answer out, for a question asked before: `minfer.query(model, "
        "target, evidence)` for the second time, and a call of what `minfer.queries.prepare(...)` "
        "returned; pyAgrum by `chgEvidence`. µs per call."
    )
    for what, words in (("one", "One target:"), ("all", "All posteriors:")):
        yield words
        yield table(
            ["network", "pyAgrum", "`query` again", "prepared", "speed-up, `query`",
             "prepared"],
            [[r["network"], _us(r, f"{what}, pyagrum"), _us(r, f"{what}, query"),
              _us(r, f"{what}, prepared"), ratio(r, f"{what} query"), ratio(r, f"{what} prepared")]
             for r in part["rows"]],
        )  # fmt: skip


def _cold(part: Row) -> Iterator[str]:
    yield "## From a file to an answer"
    yield (
        "Read a BIF file, then plan and answer one question with one target and evidence; ms. "
        "`–`: pyAgrum does not read the file (state names that are not words), or pgmpy was not "
        "run (its reader alone takes longer, see below)."
    )
    yield table(
        ["network", "pgmpy", "pyAgrum", "minfer", "speed-up over pyAgrum", "over pgmpy"],
        [[r["network"], _ms(r, "pgmpy"), _ms(r, "pyagrum"), _ms(r, "ours"), ratio(r, "ratio"),
          ratio(r, "pgmpy ratio")] for r in part["rows"]],
    )  # fmt: skip


def _reading(part: Row) -> Iterator[str]:
    yield "## Reading"
    yield "A BIF file to a model, ms. pyAgrum reads numbers in single precision."
    yield table(
        ["network", "MB", "pgmpy", "pyAgrum", "minfer", "speed-up over pgmpy", "over pyAgrum"],
        [[r["network"], number(r["bytes"] / 1e6), _ms(r, "pgmpy"), _ms(r, "pyagrum"),
          _ms(r, "minfer"), ratio(r, "pgmpy ratio"), ratio(r, "pyagrum ratio")]
         for r in part["rows"]],
    )  # fmt: skip


def _cores(part: Row) -> Iterator[str]:
    yield "## Two cores"
    yield (
        "All posteriors of rows that observe the same variables, wall-clock time of one thread "
        "divided by that of two: the best of seven turns each, and the median of the ratio within "
        "a turn."
    )
    yield table(
        ["network", "rows", "one thread, s", "two, s", "speed-up", "median"],
        [[r["network"], f"{r['rows']:,}", number(r["one"]), number(r["two"]), number(r["ratio"]),
          number(r["median"])] for r in part["rows"]],
    )  # fmt: skip


def _files(part: Row) -> Iterator[str]:
    yield "## The same files"
    yield (
        f"{len(part['networks'])} networks: the tables as pgmpy's reader has them (largest "
        f"difference {part['difference']:.0e}); BIF to XMLBIF to NET to native to BIF with names, "
        "states, the order of parents and every number to the last bit as before. Faults: "
        f"{len(part['faults'])}."
    )


def _agree(part: Row) -> Iterator[str]:
    yield "## The same answers"
    yield (
        f"`python benchmarks/networks.py --agree {part['n']}`: {part['n']:,} drawn sets of "
        "evidence, hard, soft and both, possible and not, compared with pyAgrum: posteriors by "
        "`query` with one target and with all, joints by `query` and `joint`, log P(e), and rows "
        "of `predict`. Each network gets about the same time. *Impossible*: evidence of "
        "probability zero, for which minfer raises an error or marks the row, and pyAgrum raises "
        "or gives P(e) = 0. *Underflow*: pyAgrum calls impossible what has a probability below "
        "the smallest double. "
        f"Faults: {len(part['faults'])}."
    )
    yield table(
        ["network", "sets", "impossible", "underflow", "numbers compared", "largest difference"],
        [[r["network"], f"{r['sets']:,}", f"{r['impossible']:,}", f"{r['underflow']:,}",
          f"{r['numbers']:,}", f"{r['difference']:.0e}"] for r in part["rows"]],
    )  # fmt: skip


SECTIONS: dict[str, Callable[[Row], Iterator[str]]] = {
    "rows": _rows,
    "sets": _sets,
    "single": _single,
    "blank": _blank,
    "cold": _cold,
    "reading": _reading,
    "cores": _cores,
    "agree": _agree,
    "files": _files,
}


def _measured(found: Found) -> str:
    days, machines, pythons = (together(found, key) for key in ("date", "cpu", "python"))
    text = f"Measured {' to '.join(dict.fromkeys((days[0], days[-1])))} on {' and '.join(machines)}"
    return f"{text}, Python {' and '.join(pythons)}, by `python benchmarks/networks.py`."


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


def _versions(found: Found) -> str:
    one = [stamp["versions"] for stamp in found["about"].values()][-1]
    return f"pyAgrum {one['pyagrum']} and pgmpy {one['pgmpy']}"
