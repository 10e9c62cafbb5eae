"""One throw-away environment for each peer: what it takes to install it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from minfer_experiments.measure import Stopwatch

ROOT = Path(__file__).resolve().parents[1]
TORCH = ["torch==2.13.0"]  # a plain "torch" would bring CUDA along
LIMIT = 1200  # seconds for one pip command

#: Steps of pip, and the tools that run in the environment. What fails is a result, too.
PEERS: dict[str, tuple[list[list[str]], tuple[str, ...]]] = {
    "minfer": ([[f"{ROOT}[parsing]"]], ("minfer",)),
    # declares some 195 packages (3.7 GB) that inference does not need: it goes in alone
    "pgmax": (
        [["jax==0.10.2", "numba", "scipy", "absl-py"], ["--no-deps", "pgmax==0.6.1"]],
        ("pgmax",),
    ),
    "pygms": ([["pygms==0.4.1"]], ("pygms", "pygms-ising")),
    "pomegranate": ([TORCH, ["pomegranate==1.1.2"]], ("pomegranate",)),
    "pyagrum": ([["pyagrum==3.3.1"]], ("pyagrum",)),
    "pgmpy": ([["pgmpy==1.1.2"]], ("pgmpy", "pgmpy-messages")),
    "torch-struct": ([[*TORCH, "numpy"], ["--no-deps", "torch-struct==0.5"]], ()),
    "supar": ([[*TORCH, "supar==1.1.4"]], ()),
    "libdai": ([["libdai"]], ()),
    "opengm": ([["opengm"]], ()),
}


def python_of(env: Path) -> Path:
    return env / ("Scripts" if os.name == "nt" else "bin") / "python"


def install(peer: str, env: Path) -> dict[str, Any]:
    """Make the environment; packages, megabytes and seconds that the peer needs, or the failure."""
    subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
    python = str(python_of(env))
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    empty, had = _megabytes(env), _packages(pip)
    spent = Stopwatch()
    for step in PEERS[peer][0]:
        try:
            done = subprocess.run(
                [*pip, "install", "--quiet", *step], capture_output=True, text=True, timeout=LIMIT
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"pip took more than {LIMIT} s"}
        if done.returncode:
            lines = [x for x in done.stderr.splitlines() if x.startswith("ERROR")]
            return {"failed": (lines or ["pip failed"])[-1].removeprefix("ERROR: ")[:200]}
    return {
        "seconds": spent.wall,
        "megabytes": _megabytes(env) - empty,
        "packages": _packages(pip) - had,
    }


def _packages(pip: list[str]) -> int:
    listed = subprocess.run([*pip, "list"], capture_output=True, text=True, check=True).stdout
    return max(0, len(listed.splitlines()) - 2)


def _megabytes(folder: Path) -> float:
    files = (Path(top) / f for top, _, names in os.walk(folder) for f in names)
    return sum(f.lstat().st_size for f in files) / 1e6
