"""Later versions keep what a release promised: commands, options, exit codes, keys, files.

``tests/kept/VERSION`` was made by that release (packaging/keep_release.py).
"""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import minfer
from minfer.cli import app
from minfer.learn import ChainCRF, GridCRF
from minfer.parsing import Parser
from test_cli import RUNNER

KEPT = Path(__file__).parent / "kept"
RELEASES = sorted(path.parent.name for path in KEPT.glob("*/release.json"))
#: Options that went, as the changelog says.
GONE = {("run", "--values")}
#: And keys.
GONE_KEYS = {".values"}


def release(version: str) -> dict[str, Any]:
    return dict(json.loads((KEPT / version / "release.json").read_text()))


def options(command: Any, path: tuple[str, ...] = ()) -> dict[str, set[str]]:
    out = {" ".join(path): {o for p in command.params for o in [*p.opts, *p.secondary_opts]}}
    for name, sub in dict(getattr(command, "commands", {})).items():
        out |= options(sub, (*path, name))
    return out


def lacking(value: Any, keys: Any, at: str = "") -> list[str]:
    """Keys that a JSON value has no more."""
    if isinstance(keys, list):
        return lacking(value[0], keys[0], f"{at}[0]") if value else [f"{at}: nothing"]
    out = []
    for key, below in (keys or {}).items():
        if not isinstance(value, dict) or key not in value:
            out.append(f"{at}.{key}")
        elif value[key] is not None:
            out += lacking(value[key], below, f"{at}.{key}")
    return out


@pytest.mark.parametrize("version", RELEASES)
def test_commands_and_options(version: str) -> None:
    now = options(typer.main.get_command(app))
    kept = {(c, o) for c, many in release(version)["commands"].items() for o in many}
    assert {(c, o) for c, o in kept if o not in now.get(c, set())} <= GONE
    assert set(release(version)["commands"]) <= set(now)


def _holds(version: str, folder: Path, skipped: tuple[str, ...]) -> None:
    for run in release(version)["runs"]:
        line = run["line"]
        if line.startswith(skipped):
            continue
        done = RUNNER.invoke(app, shlex.split(line))
        assert done.exit_code == run["exit"], (line, done.stderr)
        if run["keys"] is not None:
            assert set(lacking(json.loads(done.stdout), run["keys"])) <= GONE_KEYS, line


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what was given to the release's commands, and its own files."""
    shutil.copytree(KEPT / "given", tmp_path, dirs_exist_ok=True)
    shutil.copytree(KEPT / request.node.callspec.params["version"], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SLOW = ("parse train", "denoise", "intervals")


@pytest.mark.parametrize("version", RELEASES)
def test_exit_codes_and_keys(version: str, kept: Path) -> None:
    _holds(version, kept, SLOW)


@pytest.mark.slow
@pytest.mark.parametrize("version", RELEASES)
def test_all_exit_codes_and_keys(version: str, kept: Path) -> None:
    _holds(version, kept, ("nothing is left out",))


@pytest.mark.parametrize("version", RELEASES)
def test_files_say_the_same(version: str, kept: Path) -> None:
    said = release(version)["saved"]
    words = [[["a", "x"], ["b"], ["a"]], [["b"], ["b", "x"]]]
    assert [list(s) for s in ChainCRF.load("chain.crf").predict(words)] == said["chain.crf"]
    pictures = np.array(said["pictures"])
    assert GridCRF.load("grid.crf").predict(pictures).tolist() == said["grid.crf"]
    for name in ("net.minfer", "wet.minfer", "sprinkler.minfer"):
        assert np.allclose(minfer.Exact()(minfer.read(name)).probs, said[name], atol=1e-12)
    [parsed] = Parser.load("tiny.model").parse([["dogs", "bark"]])
    assert len(parsed.heads) == 2
