"""Keep what a release promised: its commands, options, exit codes, keys of JSON and files.

    python packaging/keep_release.py SITE        SITE: a folder with that release installed

Runs the lines of tests/kept/commands.txt with the release, in an empty folder, and writes
tests/kept/VERSION/: ``release.json`` and the files that later versions must still read.
tests/test_kept.py holds every later version to it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parents[1] / "tests" / "kept"

#: Prints version, and options of each command.
COMMANDS = """
import json, typer.main, minfer
from minfer.cli import app
def walk(c, path):
    out[" ".join(path)] = sorted(o for p in c.params for o in [*p.opts, *p.secondary_opts])
    for name in getattr(c, "commands", {}): walk(c.commands[name], [*path, name])
out = {}
walk(typer.main.get_command(app), [])
print(json.dumps([minfer.__version__, out]))
"""

#: Fits small models and saves them; prints what they answer.
SAVED = """
import json
import minfer
import numpy as np
from minfer.learn import BayesianNetwork, ChainCRF, GridCRF
X = [[["a", "x"], ["b"], ["a"]], [["b"], ["b", "x"]]] * 3
crf = ChainCRF(max_iterations=20).fit(X, [["A", "B", "A"], ["B", "B"]] * 3)
crf.save("chain.crf")
pictures = np.random.default_rng(0).normal(size=(3, 5, 6, 1)).round(2)
grid = GridCRF().fit(pictures, (pictures[..., 0] > 0).astype(int))
grid.save("grid.crf")
rows = {"rain": ["no", "yes", "no", "yes"], "wet": ["no", "yes", "no", "no"]}
net = BayesianNetwork([("rain", "wet")]).fit(rows)
net.save("net.minfer")
print(json.dumps({
    "chain.crf": [list(map(str, s)) for s in crf.predict(X[:2])],
    "grid.crf": grid.predict(pictures[:1]).tolist(), "pictures": pictures[:1].tolist(),
    "net.minfer": minfer.Exact()(minfer.read("net.minfer")).probs.tolist(),
    "wet.minfer": minfer.Exact()(minfer.read("wet.minfer")).probs.tolist(),
    "sprinkler.minfer": minfer.Exact()(minfer.read("sprinkler.minfer")).probs.tolist(),
}))
"""


def keys(value: Any) -> Any:
    """The shape of a JSON value: keys of objects, of the first element of a list."""
    if isinstance(value, dict):
        return {key: keys(part) for key, part in value.items()}
    return [keys(value[0])] if isinstance(value, list) and value else None


def lines() -> list[str]:
    text = (KEPT / "commands.txt").read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def main(site: str) -> None:
    env = os.environ | {"PYTHONPATH": str(Path(site).resolve()), "COLUMNS": "80"}
    with tempfile.TemporaryDirectory() as folder:

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, *arguments]
            return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)

        shutil.copytree(KEPT / "given", folder, dirs_exist_ok=True)
        version, commands = json.loads(run("-c", COMMANDS).stdout)
        runs = []
        for line in lines():
            done = run("-m", "minfer", *shlex.split(line))
            told = (
                keys(json.loads(done.stdout)) if "--json" in line and not done.returncode else None
            )
            runs.append({"line": line, "exit": done.returncode, "keys": told})
            print(done.returncode, line, done.stderr.strip().splitlines()[-1:])
        saved = run("-c", SAVED)
        print(saved.stderr)
        own = KEPT / version
        own.mkdir(exist_ok=True)
        kept = {"commands": commands, "runs": runs, "saved": json.loads(saved.stdout)}
        (own / "release.json").write_text(json.dumps(kept, indent=1) + "\n")
        for path in sorted(Path(folder).iterdir()):
            if path.suffix in (".minfer", ".crf", ".model"):
                shutil.copy(path, own)


if __name__ == "__main__":
    main(*sys.argv[1:])
