"""A damaged kernel cache costs a compilation and one line, never a run."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
import textwrap
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import pytest
from typer.testing import CliRunner

from minfer.cli import app
from minfer.kernels import _cache, _jit, _ready

doctor = import_module("minfer.cli.doctor")  # the names of minfer.cli are the commands
warmup = import_module("minfer.cli.warmup")
ROOT = Path(__file__).parents[1]


def twice(x):
    return 2 * x


def thrice(x):
    return 3 * x


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of its own for kernels made from here on, as if this process had just begun."""
    _jit.kernels()  # those of the package stay where they are
    place = tmp_path / "cache"
    place.mkdir()
    monkeypatch.setattr(_jit, "CACHE_DIR", place)
    monkeypatch.setattr(_jit, "_KERNELS", [])
    monkeypatch.setattr(_cache, "FAULTS", [])
    monkeypatch.setattr(_cache, "UNSAVED", [])
    return place


def the(folder: Path, kind: str) -> Path:
    [path] = folder.rglob(f"*.{kind}")
    return path


def hits(kernel: Any) -> int:
    return sum(kernel.stats.cache_hits.values())


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGES = {
    "truncated": lambda content: content[:-100],
    "half": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "short": lambda content: b"x",
    "garbage": lambda content: b"\x80\x04garbage" * 50,
    "another pickle": lambda content: pickle.dumps({"a": 1}),
    "a flipped bit": flip,
    "more at the end": lambda content: content + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_damaged_file_is_removed_and_its_kernel_compiled_anew(folder, capsys, kind, damage):
    assert _jit.jit(twice)(21) == 42
    path = the(folder, kind)
    other = folder / "not-ours.txt"
    other.write_text("stays")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    again = _jit.jit(twice)
    assert again(21) == 42
    assert hits(again) == 0
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("minfer: ")
    assert str(path) in line
    assert [fault.path for fault in _cache.FAULTS] == [path]
    third = _jit.jit(twice)
    assert third(21) == 42
    assert hits(third) == 1
    assert capsys.readouterr().err == ""
    assert other.read_text() == "stays"


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_file_that_cannot_be_read(folder, capsys, monkeypatch, kind):
    assert _jit.jit(twice)(21) == 42
    path = the(folder, kind)
    with monkeypatch.context() as patch:  # root reads everything, so permissions prove nothing
        patch.setattr(Path, "read_bytes", unreadable(path))
        assert _jit.jit(twice)(21) == 42
    [line] = capsys.readouterr().err.splitlines()
    assert "Permission denied" in line


def unreadable(path):
    read = Path.read_bytes

    def deny(self):
        if self == path and self.exists():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return read(self)

    return deny


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_folder_in_the_place_of_a_file_is_left_alone(folder, capsys, kind):
    assert _jit.jit(twice)(21) == 42
    path = the(folder, kind)
    path.unlink()
    path.mkdir()
    (path / "somebody's.txt").write_text("stays")
    for _ in range(2):
        kernel = _jit.jit(twice)
        assert kernel(21) == 42
        assert hits(kernel) == 0
    assert "cannot be removed" in capsys.readouterr().err
    assert (path / "somebody's.txt").read_text() == "stays"


def test_many_damaged_files_are_one_line(folder, capsys):
    for function in (twice, thrice):
        _jit.jit(function)(2)
    for path in folder.rglob("*.nbi"):
        path.write_bytes(b"")
    assert _jit.jit(twice)(2) == 4
    assert _jit.jit(thrice)(2) == 6
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert len(_cache.FAULTS) == 2


def test_what_was_saved_under_another_key_is_not_used(folder, capsys):
    """As after two processes that saved two versions of a kernel at once, under one name."""
    kernel = _jit.jit(twice)
    assert kernel(21) == 42
    assert kernel(0.5) == 1.0
    whole, real = sorted(folder.rglob("*.nbc"))
    whole.write_bytes(real.read_bytes())
    again = _jit.jit(twice)
    assert again(21) == 42
    assert hits(again) == 0
    assert capsys.readouterr().err == ""
    third = _jit.jit(twice)
    assert (third(21), third(0.5), hits(third)) == (42, 1.0, 2)


def test_what_numba_cannot_use_is_removed_too(folder, capsys, monkeypatch):
    assert _jit.jit(twice)(21) == 42
    kernel = _jit.jit(twice)

    def rebuild(context, payload):
        raise ModuleNotFoundError("No module named 'numpy.old'")

    monkeypatch.setattr(kernel._cache._impl, "rebuild", rebuild)
    assert kernel(21) == 42
    assert "numpy.old" in capsys.readouterr().err
    assert _cache.FAULTS[0].removed


def test_a_full_disk_costs_only_the_cache(folder, capsys, monkeypatch):
    def full(self, path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with monkeypatch.context() as patch:
        patch.setattr(_cache.SealedFiles, "_open_for_write", full)
        assert _jit.jit(twice)(21) == 42
        assert _jit.jit(thrice)(21) == 63
    [line] = capsys.readouterr().err.splitlines()
    assert "No space left" in line
    monkeypatch.setattr(warmup, "_use_method", lambda: None)
    result = CliRunner().invoke(app, ["warmup", "method"])
    assert result.exit_code == 1
    assert "not kept" in result.output


def test_processes_may_discard_at_once(tmp_path):
    (tmp_path / "tiny.py").write_text(
        textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from minfer.kernels._jit import jit

        @jit
        def twice(x):
            return 2 * x

        print("ready", flush=True)
        sys.stdin.readline()
        print(twice(21), twice(0.5), flush=True)
        """)
    )
    places = f"{ROOT / 'src'}{os.pathsep}{tmp_path}"
    cache = tmp_path / "cache"
    environment = {**os.environ, "PYTHONPATH": places, "MINFER_CACHE_DIR": str(cache)}

    def at_once(n: int) -> None:
        pipe = subprocess.PIPE
        runs = [
            subprocess.Popen(
                [sys.executable, "-c", "import tiny"], env=environment, text=True,
                stdin=pipe, stdout=pipe, stderr=pipe,
            )
            for _ in range(n)
        ]  # fmt: skip
        for run in runs:
            assert run.stdout is not None
            assert run.stdout.readline() == "ready\n"
        for run in runs:
            assert run.stdin is not None
            run.stdin.write("go\n")
            run.stdin.flush()
        for run in runs:
            out, err = run.communicate()
            assert (run.returncode, out) == (0, "42 1.0\n"), err

    at_once(1)
    for path in cache.rglob("*.nb[ic]"):
        path.write_bytes(path.read_bytes()[:-1])
    at_once(3)


# ------------------------------------------------------------------ what the doctor says


def call_doctor(monkeypatch) -> Any:
    monkeypatch.setattr(doctor, "CHECKS", {"cache": doctor.CHECKS["cache"]})
    return CliRunner().invoke(app, ["doctor"])


def test_doctor_loads_what_it_vouches_for(folder, monkeypatch):
    assert "empty" in call_doctor(monkeypatch).stdout
    kernel = _jit.jit(twice)
    kernel(21)
    kernel(0.5)
    monkeypatch.setattr(_jit, "_KERNELS", [_jit.jit(twice)])
    result = call_doctor(monkeypatch)
    assert result.exit_code == 0, result.output
    assert "2 compiled kernels, all loaded" in result.stdout


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_doctor_reports_damage_and_removes_it(folder, monkeypatch, kind):
    kernel = _jit.jit(twice)
    kernel(21)
    path = the(folder, kind)
    path.write_bytes(b"")
    result = call_doctor(monkeypatch)
    assert result.exit_code == 0, result.output
    assert "1 damaged file removed" in result.stdout
    assert path.name in result.stdout
    assert not path.exists()
    assert "damaged" not in call_doctor(monkeypatch).stdout


def test_doctor_does_not_vouch_for_what_cannot_be_removed(folder, monkeypatch):
    _jit.jit(twice)(21)
    path = the(folder, "nbc")
    path.unlink()
    path.mkdir()
    result = call_doctor(monkeypatch)
    assert result.exit_code == 1
    assert "BROKEN" in result.stdout
    assert str(path) in result.stdout


def test_doctor_looks_at_entries_that_no_kernel_claims(folder, monkeypatch):
    """Of another checkout of the same sources, or of another processor."""
    _jit.jit(twice)(21)
    monkeypatch.setattr(_jit, "_KERNELS", [])
    the(folder, "nbc").write_bytes(b"garbage")
    assert "1 damaged file removed" in call_doctor(monkeypatch).stdout


# ---------------------------------------------------------------------- machine code from a wheel


def njit_with(function: Any, folder: Path, ready: _ready.Ready | None = None) -> Any:
    """A kernel as the package makes its own."""
    kernel = numba.njit(nogil=True)(function)
    kernel._cache = _cache.KernelCache(function, folder, ready)
    return kernel


@pytest.fixture
def shipped(folder, tmp_path):
    """A folder such as a wheel has, with one kernel for this very machine."""
    place = tmp_path / "ready"
    place.mkdir()
    kernel = njit_with(twice, place)
    assert kernel(21) == 42
    target = kernel.targetctx.codegen().magic_tuple()
    about = {**_ready.described("sources"), "target": target, "needs": []}
    (place / _ready.ABOUT).write_text(json.dumps(about))
    return place


def edit(place: Path, **changes: Any) -> None:
    about = json.loads((place / _ready.ABOUT).read_text())
    (place / _ready.ABOUT).write_text(json.dumps({**about, **changes}))


def files(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_ready_code_is_loaded_and_nothing_is_written(shipped, folder):
    before = files(shipped)
    ready = _ready.Ready(shipped, "sources")
    kernel = njit_with(twice, folder, ready)
    assert kernel(21) == 42
    assert (hits(kernel), ready.loaded, ready.missing) == (1, 1, "")
    assert files(folder) == {}
    assert files(shipped) == before
    assert kernel(0.5) == 1.0  # a version that was not shipped
    assert ready.loaded == 1
    assert len(list(folder.rglob("*.nbc"))) == 1


def test_the_own_cache_comes_first(shipped, folder):
    njit_with(twice, folder)(21)
    ready = _ready.Ready(shipped, "sources")
    assert njit_with(twice, folder, ready)(21) == 42
    assert ready.loaded == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"numba": "0.1"}, "numba 0.1"),
        ({"python": "2.7"}, "python 2.7"),
        ({"system": "pdp11"}, "system pdp11"),
        ({"sources": "other"}, "sources other"),
        ({"needs": ["teleport"]}, "no teleport"),
    ],
)
def test_ready_code_for_something_else_is_left_alone(shipped, folder, changes, why):
    edit(shipped, **changes)
    ready = _ready.Ready(shipped, "sources")
    kernel = njit_with(twice, folder, ready)
    assert kernel(21) == 42
    assert (hits(kernel), ready.loaded) == (0, 0)
    assert why in ready.missing


@pytest.mark.parametrize("damage", [*DAMAGES, "no about"])
def test_damaged_ready_code_is_compiled_and_not_touched(shipped, folder, damage):
    if damage == "no about":
        (shipped / _ready.ABOUT).write_text("[")
    else:
        path = the(shipped, "nbc")
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    before = files(shipped)
    ready = _ready.Ready(shipped, "sources")
    assert njit_with(twice, folder, ready)(21) == 42
    assert ready.loaded == 0
    assert files(shipped) == before
    assert _cache.FAULTS == []


def test_copies_of_the_package_share_their_kernels():
    """The folder is named after the sources: neither path nor time of a copy plays a part."""
    from minfer.kernels import vexp

    cache = vexp.log_dot._cache
    assert Path(cache._cache_path) == _jit.CACHE_DIR
    assert cache._cache_file._source_stamp is None


def test_ready_says_whether_a_kernel_is_compiled_here_or_in_the_cache(folder):
    kernel = _jit.jit(twice)
    assert not _jit.ready(kernel)
    assert kernel(2) == 4
    assert _jit.ready(kernel)
    assert _jit.ready(_jit.jit(twice))  # as in the next process
    the(folder, "nbi").unlink()
    assert not _jit.ready(_jit.jit(twice))


def test_loading_within_a_compilation_is_counted_once(folder, monkeypatch):
    """Seconds of compiling and loading together are never more than have passed."""
    _jit.jit(twice)(2)
    before, began = _jit.compiling(), time.perf_counter()
    listener = _jit._SayOnce()
    monkeypatch.setattr(_jit._SayOnce, "said", True)
    happening = SimpleNamespace(data={"dispatcher": None})
    listener.on_start(happening)
    assert _jit.jit(twice)(2) == 4
    assert _jit.compiling() - before <= time.perf_counter() - began
    listener.on_end(happening)
    assert 0.0 < _jit.compiling() - before <= time.perf_counter() - began
