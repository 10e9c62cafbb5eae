"""Bayesian networks against pyAgrum and pgmpy: bnlearn's repository, as the pgmpy wheel holds it.

    python benchmarks/networks.py [--what reading] [--networks munin,link] [--repeats 3]
                                  [--json F] [--check]

``reading``: a BIF file of some megabytes to a model, unpacked beforehand, by each reader in turn
within a round, in CPU time on one pinned core; ratios are medians over rounds of the ratio within a
round. ``--check`` fails if pgmpy's reader is not at least five times slower than ours on munin.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import minfer

READING_BAR = 5.0  # times sooner than pgmpy, on munin
READING = "alarm,hailfinder,link,pigs,munin"


def bundled(name: str) -> bytes:
    """A network of the pgmpy wheel, as BIF."""
    found = find_spec("pgmpy")
    if found is None or found.origin is None:
        raise SystemExit("this needs pgmpy and pyagrum: pip install pgmpy pyagrum")
    path = Path(found.origin).parent / "utils" / "example_models" / f"{name}.bif.gz"
    return gzip.decompress(path.read_bytes())


def cpu(call: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def reading(names: list[str], repeats: int) -> list[dict[str, Any]]:
    """Seconds of each reader, and how many times sooner we are."""
    import pyagrum
    from pgmpy.readwrite import BIFReader

    rows = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.bif"
            path.write_bytes(bundled(name))
            readers: dict[str, Callable[[], Any]] = {
                "minfer": lambda path=path: minfer.read(path),
                "pyagrum": lambda path=path: pyagrum.loadBN(str(path)),
                "pgmpy": lambda path=path: BIFReader(str(path)).get_model(),
            }
            graph = readers["minfer"]()  # imports are not timed
            rounds = [{who: cpu(read) for who, read in readers.items()} for _ in range(repeats)]
        row: dict[str, Any] = {"network": name, "nodes": graph.n_variables}
        row |= {who: statistics.median(r[who] for r in rounds) for who in readers}
        for who in ("pyagrum", "pgmpy"):
            row[f"{who} / minfer"] = statistics.median(r[who] / r["minfer"] for r in rounds)
        rows.append(row)
        print(
            f"{name:<12}{row['nodes']:>6,} nodes  minfer {row['minfer']:8.4f} s   "
            f"pyAgrum {row['pyagrum']:8.4f} s ({row['pyagrum / minfer']:.1f}x)   "
            f"pgmpy {row['pgmpy']:8.3f} s ({row['pgmpy / minfer']:.1f}x)",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", choices=["reading"], default="reading")
    parser.add_argument("--networks", default=READING, help="names, with commas between them")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--check", action="store_true", help="fail where a bar is missed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = reading(options.networks.split(","), options.repeats)
    if options.json:
        libraries = {who: version(who) for who in ("pgmpy", "pyagrum")}
        options.json.write_text(json.dumps({"reading": rows, "versions": libraries}, indent=2))
    missed = [r for r in rows if r["network"] == "munin" and r["pgmpy / minfer"] < READING_BAR]
    if options.check and missed:
        sys.exit(f"munin: {missed[0]['pgmpy / minfer']:.1f}x, which should be {READING_BAR:g}x")


if __name__ == "__main__":
    main()
