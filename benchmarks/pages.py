"""Every table and figure of the documentation: what makes it, and when and where that ran.

    python benchmarks/pages.py                     all of them
    python benchmarks/pages.py --run [PAGE ...]    make them again with this code: all take a day
    python benchmarks/pages.py --write             from what is kept, without measuring: the tables,
                                                   and where a page says when they were measured

``PAGE`` is a name such as ``boards``. What scripts measure they keep in benchmarks/results, part by
part with day and machine; a page's section ``when`` and the list on docs/reference/claims.md are
written from there. Tables that are copied by hand have their day and machine here.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from minfer_experiments.pages import say, table, write_section
from minfer_experiments.results import ABOUT
from places import DATA, DOCS, RESULTS, ROOT

LIST = DOCS / "claims.md"
EWT = "{data}/treebanks/UD_English-EWT"
XEON, ARM, LOST = "Intel(R) Xeon(R) Processor", "aarch64", "a machine that was not noted"


class Made(NamedTuple):
    """What one command makes on a page."""

    page: str  # below docs/reference, without its ending
    what: str
    sections: tuple[str, ...]  # between the page's markers; none: copied by hand, or the whole file
    measure: tuple[str, ...]  # below benchmarks/, but for "minfer" and "docs/"
    write: str = ""  # from what is kept
    kept: str = ""  # where, below results/
    parts: tuple[str, ...] = ()  # of it, if not named as the sections
    told: tuple[str, str] = ("", "")  # day and machine of what is not kept


CIRCUITS = ("promedas", "linkage", "cnf", "uai", "rows", "quickscore")
HARD = ("uai", "drawn", "grid")
LEARNED = ("denoising", "warm", "ising", "growth", "chains", "tables", "gradients")
METHOD = (
    "short", "shapes", "size", "kinds", "estimates", "time", "solvers", "cubic", "growth",
    "objectives", "uai", "selection", "scan", "certificates", "losses",
)  # fmt: skip
NETWORKS = (
    "measured", "short", "rows, one target", "rows, all posteriors", "sets", "single, one target",
    "single, all posteriors", "blank", "cold", "reading", "cores",
)  # fmt: skip
PARSING = "parsing.py --models build/parsers"
PEERS = (
    "measured", "short", "claims", "installs", "bp", "exact", "accuracy", "inputs", "trees",
    "second",
)  # fmt: skip
RULES = (
    "grounding", "linear", "class", "cora-fold", "cora", "people", "people-300", "people-600",
    "people-large",
)  # fmt: skip
INTERVALS = (
    "certified.py --out benchmarks/results/certified.json --page docs/reference/how-far-off.md"
)
QUALITY = (
    "rules_quality.py {data}/relational -o docs/reference/rules-measured.md "
    "--rows benchmarks/results/rules_quality.jsonl"
)


def paper(name: str, *endings: str, data: str = "") -> tuple[str, ...]:
    """An experiment of the paper; it leaves files alone that it has not written itself."""
    files = " ".join(f"build/paper/{name}.{ending}" for ending in endings)
    return f"minfer paper {name} -o build/paper{data}", f"cp {files} docs/reference"


TREEBANKS = " --data {data}/treebanks"

MADE = [
    Made("boards", "UAI 2014, LDPC codes, CoNLL-2000", ("uai", "ldpc", "chunking"),
         ("boards.py --page uai ldpc chunking",), "boards.py --page", "boards.json"),
    Made("circuits", "circuits and CNFs", CIRCUITS, (f"circuits.py {' '.join(CIRCUITS)} --page",),
         "circuits.py --page", "circuits.json", told=("2026-11-19", f"{XEON} @ 2.50GHz")),
    Made("peers", "the other libraries, and what they do with bad input", PEERS,
         ("peers.py --again", "peers.py --again --loose --only time parsing"), kept="peers"),
    Made("networks", "Bayesian networks beside pyAgrum and pgmpy", NETWORKS, ("networks.py",),
         "networks.py --parts", "networks.json"),
    Made("peers", "networks, in short", ("networks",), (), kept="networks.json"),
    Made("time", "networks through time", ("measured",), ("through_time.py",),
         told=("2026-11-20", XEON)),
    Made("hard-measured", "where belief propagation is far off", HARD,
         ("hard.py --drawn 4 --write benchmarks/results/hard.json", "hard.py --page"),
         "hard.py --page", "hard.json", ("*",)),
    Made("how-far-off", "bounds of log Z, marginal MAP", ("anytime", "marginal"),
         ("anytime.py now", "anytime.py map", "anytime.py page"), "anytime.py page",
         "anytime.json", ("now", "map")),
    Made("how-far-off", "how narrow intervals are, and how soon", ("bars", "alone", "kept"),
         (f"{INTERVALS} --widths",), kept="certified.json", parts=("widths",)),
    Made("how-far-off", "which answers intervals refute", ("judge",), (f"{INTERVALS} --judge",),
         kept="certified.json"),
    Made("how-far-off", "intervals of the UAI models", ("uai-summary",),
         (f"{INTERVALS} --uai",), INTERVALS, "certified.json", ("uai",)),
    Made("method", "a fifth of the factors, a million factors", METHOD,
         ("method.py --write docs/reference/method.md",),
         "method.py --parts --write docs/reference/method.md", "method.json", ("*",)),
    Made("learning-measured", "learning beside crfsuite, pgmpy, pyAgrum", LEARNED,
         (f"learning.py --treebank {EWT}/en_ewt-ud-train.conllu.gz {EWT}/en_ewt-ud-dev.conllu.gz",),
         "learning.py --page", "learning.json"),
    Made("parsing", "accuracy, speed and training of the parser",
         ("accuracy", "equal accuracy", "speed", "files", "training"), (PARSING,),
         f"{PARSING} --parts", "parsing.json"),
    Made("neural-parser", "a neural parser", ("measured",),
         (f"-m minfer_experiments.neural_parser {EWT}",), told=("2026-11-16", ARM)),
    Made("rules-measured", "rules: speed and memory", RULES,
         ("rules.py --data {data}/relational --page",), kept="rules.json"),
    Made("rules-measured", "rules: how good their answers are", ("UW-CSE", "Cora"), (QUALITY,),
         f"{QUALITY} --page", told=("2026-11-17", ARM)),
    Made("speed", "sweeps beside a bare kernel", (), ("speed.py",), kept="speed.json",
         parts=("speed",)),
    Made("speed", "first calls; what a call costs around its kernels", (),
         ("coldstart.py", "costs.py shell"), told=("2026-11-20", XEON)),
    Made("gpu", "belief propagation on a graphics card", (), ("gpu.py",),
         told=("2026-11-20", "NVIDIA H200")),
    Made("denoising", "large pictures; levels against the best ones", (),
         ("denoise.py", "denoise_levels.py --data {data}/images"), told=("2026-11-16", LOST)),
    Made("many-labels", "many labels beside PGMax", (), (),
         told=("2026-11-17", LOST)),
    Made("batch", "batches: costs, kills, memory", (),
         ("batch.py overhead costs speedup memory kills ray components",),
         told=("2026-11-15", LOST)),
    Made("recipes/map", "the best assignment beside toulbar2", (),
         ("map.py ising", "map.py potts", "map.py reference", "map.py uai"),
         told=("2026-11-16", LOST)),
    Made("fig1", "Figure 1 of the paper", (), paper("fig1", "csv", "md", "png"),
         told=("2026-11-15", LOST)),
    Made("table1", "Table 1", (), paper("table1", "csv", "md", data=TREEBANKS),
         told=("2026-11-15", LOST)),
    Made("fig2", "Figure 2", (), paper("fig2", "csv", "md", "png", data=TREEBANKS),
         told=("2026-11-15", LOST)),
    Made("../index", "the picture at the top", (), ("docs/make_picture.py",)),
    Made("reports", "the picture of a report", (), ("docs/reference/make_report_picture.py",)),
    Made("recipes/explore", "the picture of a network to play with", (),
         ("docs/reference/make_explore_picture.py",)),
    Made("learning", "the picture of learned weights", (),
         ("-m minfer_experiments.learned_denoising -o docs/reference/learned.png",)),
]  # fmt: skip


def page_of(made: Made) -> Path:
    return (DOCS / f"{made.page}.md").resolve()


def stamps(made: Made) -> Iterator[tuple[str, str, str]]:
    """Part, day and machine of what a command measured."""
    there = RESULTS / (made.kept or "nothing")
    files = sorted(there.glob("*.json")) if there.is_dir() else [there]
    found = [json.loads(f.read_text("utf-8")).get(ABOUT, {}) for f in files if f.is_file()]
    asked = made.parts or made.sections
    for about in found:
        for part, stamp in about.items():
            if there.is_dir() or asked == ("*",) or part in asked or made.kept == "networks.json":
                yield part, stamp["date"], stamp["cpu"]
    if not any(found) and made.told[0]:
        yield "", *made.told


def when(made: Iterable[Made]) -> str:
    """Days and machines, in a sentence."""
    said: dict[str, set[str]] = {}
    for one in made:
        for _, day, machine in stamps(one):
            said.setdefault(machine, set()).add(day)
    spans = ((min(days), max(days), machine) for machine, days in said.items())
    return "; ".join(
        f"{first}{f' to {last}' if last != first else ''}, {machine}"
        for first, last, machine in sorted(spans)
    )


def pages() -> dict[Path, list[Made]]:
    out: dict[Path, list[Made]] = {}
    for made in MADE:
        out.setdefault(page_of(made), []).append(made)
    return out


def command(one: str) -> list[str]:
    """A line of :data:`MADE` as it is run, in the root of the checkout."""
    first, *rest = shlex.split(one.format(data=DATA))
    if first == "cp":
        return [first, *rest]
    if first in ("-m", "minfer"):
        return [sys.executable, "-m", *([first] if first != "-m" else []), *rest]
    return [sys.executable, first if "/" in first else f"benchmarks/{first}", *rest]


def shown(one: str) -> str:
    """The same for people."""
    first = one.split()[0]
    if first not in ("minfer", "cp"):
        one = f"python {one if '/' in first or first == '-m' else f'benchmarks/{one}'}"
    return f"`{one.format(data='DATA')}`"


def listing() -> str:
    rows = []
    for made in MADE:
        link = f"[{made.what}]({made.page}.md)"
        how = "; ".join(map(shown, made.measure)) or "kept as it was"
        rows.append([link, how, when([made]) or "-"])
    return table(["tables and figures", "command", "measured"], rows)


def sentence(made: list[Made]) -> str:
    """What a page says: when and where its tables were measured."""
    up = "../" * made[0].page.count("/")
    return f"Measured: {when(made)}; [by which command]({up}claims.md#tables-and-figures)."


def write() -> None:
    """All that is made from what is kept."""
    for one in dict.fromkeys(made.write for made in MADE if made.write):
        if "{data}" not in one or DATA.exists():
            say(one)
            subprocess.run(command(one), cwd=ROOT, check=True)
    for page, made in pages().items():
        if "<!-- begin when -->" in page.read_text("utf-8"):
            write_section(page, "when", sentence(made))
    write_section(LIST, "made", listing())


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--run", nargs="*", metavar="PAGE", help="measure again; all by default")
    cli.add_argument("--write", action="store_true", help="pages from what is kept")
    asked = cli.parse_args()
    failed = []
    if asked.run is not None:
        names = {made.page for made in MADE}
        if unknown := set(asked.run) - names:
            cli.error(f"no page {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}")
        for made in MADE:
            for one in made.measure if made.page in (asked.run or names) else ():
                say(shown(one))
                if subprocess.run(command(one), cwd=ROOT, check=False).returncode:
                    failed.append(one)
                    break
    if asked.write or asked.run is not None:
        write()
    else:
        print(listing())
    for one in failed:
        say(f"failed: {shown(one)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
