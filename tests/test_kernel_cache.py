"""A damaged kernel cache costs a compilation and one line, never a run."""

from __future__ import annotations

import ast
import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from numba.core import compiler, event, registry
from numba.core.runtime import _nrt_python, rtsys
from typer.testing import CliRunner

from draws import few, thorough
from minfer import exercise, health
from minfer.cli import app
from minfer.kernels import _cache, _frugal, _inner, _jit, _keys, _ready

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
    monkeypatch.setattr(exercise, "_use_method", lambda: None)
    result = CliRunner().invoke(app, ["warmup", "method"])
    assert result.exit_code == 1
    assert "not kept" in result.output


@pytest.mark.slow
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
    monkeypatch.setattr(health, "CHECKS", {"cache": health.CHECKS["cache"]})
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
    kernel = njit_with(twice, place / folder.name)
    assert kernel(21) == 42
    target = kernel.targetctx.codegen().magic_tuple()
    about = {**_ready.described(), "target": target, "needs": []}
    (place / _ready.ABOUT).write_text(json.dumps(about))
    return place


def edit(place: Path, **changes: Any) -> None:
    about = json.loads((place / _ready.ABOUT).read_text())
    (place / _ready.ABOUT).write_text(json.dumps({**about, **changes}))


def files(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_ready_code_is_loaded_and_nothing_is_written(shipped, folder):
    before = files(shipped)
    ready = _ready.Ready(shipped)
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
    ready = _ready.Ready(shipped)
    assert njit_with(twice, folder, ready)(21) == 42
    assert ready.loaded == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"numba": "0.1"}, "numba 0.1"),
        ({"python": "2.7"}, "python 2.7"),
        ({"system": "pdp11"}, "system pdp11"),
        ({"needs": ["teleport"]}, "no teleport"),
    ],
)
def test_ready_code_for_something_else_is_left_alone(shipped, folder, changes, why):
    edit(shipped, **changes)
    ready = _ready.Ready(shipped)
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
    ready = _ready.Ready(shipped)
    assert njit_with(twice, folder, ready)(21) == 42
    assert ready.loaded == 0
    assert files(shipped) == before
    assert _cache.FAULTS == []


def test_every_home_of_kernels_is_known():
    """Kernels lie in the packages that the cache, `warmup` and `doctor` look at."""
    homes = {kernel.py_func.__module__.rpartition(".")[0] for kernel in _jit.kernels()}
    ours = {home for home in homes if home.startswith("minfer.")}
    assert ours == set(_jit.HOMES)
    assert len(_jit.folders()) >= 40
    places = {
        Path(kernel._cache._cache_path)
        for kernel in _jit.kernels()
        if kernel.py_func.__module__.startswith("minfer.")
    }
    assert places <= set(_jit.folders())  # by sources, of each home


def test_copies_of_the_package_share_their_kernels():
    """The folder is named after the sources: neither path nor time of a copy plays a part."""
    from minfer.kernels import vexp

    cache = vexp.log_dot._cache
    assert Path(cache._cache_path).parent == _jit.CACHE_DIR
    assert Path(cache._cache_path) in _jit.folders()
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


# ------------------------------------------------------------------ what an edit recompiles


@pytest.fixture
def package(tmp_path):
    """A package of four modules: outer imports middle, middle inner; other none of them."""
    place = tmp_path / "minfer"
    kernels = place / "kernels"
    kernels.mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "_jit": "options = 1",
        "inner": "from minfer.kernels._jit import options\nDEPTH = 1\n",
        "middle": "from minfer.kernels.inner import (\n    DEPTH,\n)\n",
        "outer": "def late():\n    from . import middle\n",
        "other": '"""Prose\nfrom the minfer\nimport of which is none."""\nimport ast, os\n',
    }.items():
        (kernels / f"{name}.py").write_text(text)
    (place / "__init__.py").write_text("")
    return place


def keys(package: Path) -> dict[str, str]:
    for kept in (_keys.key, _keys._imports, _keys._place, _keys._source):
        kept.cache_clear()
    names = ("inner", "middle", "outer", "other")
    return {name: _keys.key(f"{package.name}.kernels.{name}", package) for name in names}


@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ("inner", {"inner", "middle", "outer"}),
        ("middle", {"middle", "outer"}),
        ("outer", {"outer"}),
        ("other", {"other"}),
        ("_jit", set()),
    ],
)
def test_an_edit_changes_the_keys_of_what_imports_it(package, edited, changed):
    before = keys(package)
    path = package / "kernels" / f"{edited}.py"
    path.write_text(path.read_text() + "# edited\n")
    after = keys(package)
    assert {name for name in after if after[name] != before[name]} == changed


@pytest.mark.parametrize(
    "statement",
    [
        "import minfer.kernels.inner",
        "import os, minfer.kernels.inner as x",
        "import os, \\\n    minfer.kernels.inner",
        "from minfer.kernels import inner",
        "from minfer.kernels.inner import *",
        "from .inner import DEPTH",
        "from ..kernels import inner",
        "from .. import kernels; from ..kernels import inner",
        "from minfer.kernels import (  # :)\n    inner,\n)",
        "if True:\n    from minfer.kernels.inner import DEPTH as D",
    ],
)
def test_every_form_of_import_counts(package, statement):
    (package / "kernels" / "other.py").write_text(f"{statement}\n")
    keys(package)
    assert "minfer.kernels.inner" in _keys.closure("minfer.kernels.other", package)


def statements(node):
    """All statements below a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


@pytest.mark.drawn
def test_imports_are_read_as_python_reads_them():
    """The quick reading of every file against its syntax tree."""
    for path in few(sorted(_keys.PACKAGE.rglob("*.py")), 100):
        text = path.read_text()
        parent = ".".join(path.relative_to(_keys.PACKAGE.parent).parent.parts)
        tree = ast.parse(text)
        alone = (s for s in statements(tree) if isinstance(s, ast.Import | ast.ImportFrom))
        parts = (_keys._named(ast.unparse(node), parent) for node in alone)
        there = {name for names in parts for name in names if name.startswith("minfer.")}
        assert there <= set(_keys._named(text, parent)), path


def test_an_edited_inner_kernel_is_never_served_stale(tmp_path):
    """In processes of their own: a copy of the package, and an edit two imports away."""
    copy = tmp_path / "minfer"
    shutil.copytree(ROOT / "src" / "minfer" / "kernels", copy / "kernels")
    (copy / "__init__.py").write_text("")
    inner = copy / "kernels" / "tiny_inner.py"
    inner.write_text("from minfer.kernels._jit import jit\n@jit\ndef inner(x):\n    return x + 1\n")
    for name, below in (("tiny_middle", "tiny_inner"), ("tiny_outer", "tiny_middle")):
        (copy / "kernels" / f"{name}.py").write_text(
            "from minfer.kernels._jit import jit\n"
            f"from minfer.kernels.{below} import {below.removeprefix('tiny_')} as below\n"
            f"@jit\ndef {name.removeprefix('tiny_')}(x):\n    return 10 * below(x)\n"
        )
    (copy / "kernels" / "tiny_other.py").write_text(inner.read_text().replace("inner", "other"))
    code = (
        "from minfer.kernels import tiny_outer, tiny_other\n"
        "for f in (tiny_outer.outer, tiny_other.other):\n"
        "    print(f(1), sum(f.stats.cache_hits.values()))"
    )
    environment = {
        **os.environ, "PYTHONPATH": str(tmp_path), "MINFER_CACHE_DIR": str(tmp_path / "cache"),
    }  # fmt: skip

    def run() -> list[str]:
        call = [sys.executable, "-c", code]
        return subprocess.run(
            call, env=environment, capture_output=True, text=True, check=True
        ).stdout.split()

    assert run() == ["200", "0", "2", "0"]
    assert run() == ["200", "1", "2", "1"]
    inner.write_text(inner.read_text().replace("+ 1", "+ 4"))
    assert run() == ["500", "0", "2", "1"]


# ---------------------------------------------------------------------- what is old is removed


def aged(folder: Path, days: float, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(b"1234")
    then = time.time() - 86_400 * days
    for place in (folder, folder.parent):
        os.utime(place, (then, then))
    return folder


def test_old_kernels_are_removed_and_nothing_else(tmp_path):
    current = tmp_path / f"kernels-{'0' * 12}"
    here = aged(current / f"bp-{'a' * 16}", 90, "k.nbi")
    old = aged(current / f"bp-{'b' * 16}", 40, "k.nbi", "k.1.nbc", "k.nbi.tmp.0af")
    recent = aged(current / f"bp-{'c' * 16}", 20, "k.nbi")
    past = aged(tmp_path / f"kernels-{'1' * 12}" / f"kernels_{'d' * 40}", 40, "k.1.nbc").parent
    used = aged(tmp_path / f"kernels-{'2' * 12}" / f"bp-{'d' * 16}", 20, "k.1.nbc").parent
    mixed = aged(tmp_path / f"kernels-{'3' * 12}", 40, "k.1.nbc", "letter.txt")
    foreign = [
        aged(tmp_path / "kernels-mine", 400, "k.nbi"),
        aged(tmp_path / "photos", 400, "k.nbi"),
        aged(current / "photos", 400, "k.nbi"),
    ]
    (tmp_path / f"kernels-{'4' * 12}").symlink_to(foreign[0])
    assert _cache.prune(current, [here]) == (2, 12 + 4 + 4)
    assert not old.exists()
    assert not past.exists()
    assert [path.name for path in mixed.iterdir()] == ["letter.txt"]
    for folder in (here, recent, used, *foreign):
        assert folder.exists()
        assert list(folder.rglob("*.nb*"))


def test_only_the_latest_generations_are_kept(tmp_path):
    current = tmp_path / f"kernels-{'0' * 12}"
    many = [aged(current / f"bp-{k:016x}", k, "k.nbi") for k in range(14)]
    one = aged(current / f"lean-{'a' * 16}", 1, "k.nbi")
    past = [aged(tmp_path / f"kernels-{k:012x}" / f"bp-{'0' * 16}", k) for k in range(1, 14)]
    assert _cache.prune(current, [many[12]])[0] == 3 + 3
    assert [folder.exists() for folder in many] == [True] * 10 + [False] * 2 + [True, False]
    assert [folder.exists() for folder in past] == [True] * 10 + [False] * 3
    assert one.exists()


def test_use_is_noted_on_loading(folder):
    _jit.jit(twice)(21)
    place = the(folder, "nbc").parent
    os.utime(place, (0, 0))
    _jit.jit(twice)(21)
    assert time.time() - place.stat().st_mtime < 3600


# ---------------------------------------------------------------- kernels that only kernels call


def below(x):
    if x < 0:
        raise ValueError("negative")
    return x + 1


def above() -> tuple[Any, Any]:
    """A kernel that calls another, as a fresh process would make them."""
    inner = _jit.jit(below)

    def outer(x):
        return 10 * inner(x)

    return _jit.jit(outer), inner


@pytest.mark.skipif(bool(_inner.UNAVAILABLE), reason=_inner.UNAVAILABLE or "-")
def test_an_inner_kernel_has_no_code_of_its_own_until_python_calls_it(folder):
    for misses in (1, 0):  # compiled; then loaded, for the same kernel with other numbers
        outer, inner = above()
        assert outer(1 if misses else 1.5) == (20 if misses else 25.0)
        [made] = inner.overloads.values()
        assert isinstance(made.entry_point, _inner.Inner)
        assert not _jit.ready(inner)
    outer, inner = above()
    assert outer(2) == 30
    assert hits(inner) == 1
    assert inner(4) == 5  # and from Python: one more compilation
    assert _jit.ready(inner)
    assert _jit.ready(_jit.jit(below))
    with pytest.raises(ValueError, match="negative"):
        outer(-1)
    with pytest.raises(ValueError, match="negative"):
        inner(-1)


def making() -> tuple[Any, Any]:
    """A kernel and somebody else's function that both call ``np.zeros``, with equal options."""

    def make(n):
        return np.zeros((n, 3))

    return _jit.jit(make), numba.njit(**_jit.OPTIONS)(make)


@pytest.mark.skipif(bool(_inner.UNAVAILABLE), reason=_inner.UNAVAILABLE or "-")
def test_functions_of_numba_serve_kernels_and_others(folder):
    ours, theirs = making()
    again, before = making()
    assert before(1).shape == again(1).shape == (1, 3)
    for function in (ours, theirs, ours):
        assert function(2).tolist() == [[0.0] * 3] * 2
        with pytest.raises(ValueError, match="negative"):
            function(-1)
    loaded, _ = making()
    assert loaded(2).shape == (2, 3)
    assert hits(loaded) == 1
    with pytest.raises(ValueError, match="negative"):
        loaded(-1)


@pytest.mark.skipif(bool(_inner.UNAVAILABLE), reason=_inner.UNAVAILABLE or "-")
def test_what_is_lent_to_numba_is_taken_back(folder):
    own = [getattr(home, name) for home, name, _ in _frugal.LENT]
    seen = []

    def look(*_):
        seen.append([getattr(home, name) for home, name, _ in _frugal.LENT])

    listener = type("Look", (event.Listener,), {"on_start": look, "on_end": look})()
    with event.install_listener("numba:compile", listener):
        assert _jit.jit(twice)(21) == 42
        with pytest.raises(numba.TypingError):
            _jit.jit(twice)(None)
    lent = [ours for *_, ours in _frugal.LENT]
    assert lent in seen
    assert not set(map(id, lent)) & set(map(id, own))
    assert [getattr(home, name) for home, name, _ in _frugal.LENT] == own


@pytest.mark.skipif(bool(_frugal.UNAVAILABLE), reason=_frugal.UNAVAILABLE or "-")
def test_variables_of_statements_are_those_that_numba_finds():
    def mixed(a, b, n):
        total, pair = 0.0, (a, b)
        for i in range(n):
            x = pair[0][i] if i % 2 else min(a[i], b[i], key=None)
            a[i : i + 2] = [x, x][0]
            total += x
        return {"total": total, "pair": pair}

    code = compiler.run_frontend(mixed)
    found = 0
    for block in code.blocks.values():
        for statement in block.body:
            names = [v.name for v in statement._rec_list_vars(statement.__dict__)]
            ours = [v.name for v in _frugal._list_vars(statement, statement.__dict__)]
            assert names == ours
            found += len(names)
    assert found > 50


def test_kernels_without_it_are_the_same(folder, monkeypatch):
    monkeypatch.setattr(_inner, "UNAVAILABLE", "not tried")
    outer, inner = above()
    assert outer(1) == 20
    assert type(inner) is not _inner.Kernel
    assert _jit.ready(inner)


# ---------------------------------------------------------------- what is not compiled


def passing() -> list[Any]:
    """Kernels that borrow, return, make or hand on arrays, and the same calling one another."""

    def same(a):
        return a

    def part(a):
        return a[1:]

    def fresh(a):
        out = np.zeros(a.shape[0])
        out[0] = a[1]
        return out, a

    def total(a):
        x = 0.0
        for row in a.reshape(a.shape[0], 1):
            x += row[0]
        return x

    same, part, fresh, total = (_jit.jit(function) for function in (same, part, fresh, total))

    def all_of_them(a):
        one, two = fresh(part(same(a)))
        return total(one) + total(two)

    def only_reads(pair):
        a, b = pair
        x = 0.0
        for i in range(a.shape[0]):
            x += a[i] * b[i]
        return x

    return [same, part, fresh, total, _jit.jit(all_of_them), _jit.jit(only_reads)]


@pytest.mark.skipif(bool(_frugal.UNAVAILABLE), reason=_frugal.UNAVAILABLE or "-")
def test_references_are_counted_where_somebody_needs_them(folder):
    rtsys.initialize(registry.cpu_target.target_context)
    _nrt_python.memsys_enable_stats()
    for _ in range(2):  # compiled, then loaded
        same, part, fresh, total, every, only_reads = passing()
        a = np.arange(4.0)
        for _ in range(3):  # the first calls may leave something behind
            before, stats = sys.getrefcount(a), rtsys.get_allocation_stats()
            for _ in range(50):
                assert same(a) is a
                assert part(a).base is not None
                assert fresh(a)[0].tolist() == [1.0, 0.0, 0.0, 0.0]
                assert total(a) == 6.0
                assert every(a) == 2.0 + 6.0
                assert only_reads((a, a)) == 14.0
            assert sys.getrefcount(a) == before
            after = rtsys.get_allocation_stats()
            assert after.alloc - stats.alloc == after.free - stats.free
        text = "".join(only_reads.inspect_llvm().values()) if only_reads.stats.cache_misses else ""
        assert "NRT_incref" not in text


@pytest.mark.skipif(bool(_frugal.UNAVAILABLE), reason=_frugal.UNAVAILABLE or "-")
def test_flags_are_equal_where_numba_finds_them_equal():
    plain = compiler.Flags()
    one, two = _frugal.Flags(plain), _frugal.Flags(plain)
    assert one == two == plain
    assert len({hash(flags) for flags in (one, two, plain)}) == 1
    two.nrt = one.nrt  # set, to what it is anyway
    assert one == two
    two.error_model = "numpy"
    assert one != two
    two.error_model = one.error_model
    two.no_cfunc_wrapper = not one.no_cfunc_wrapper  # no matter to what a kernel calls
    assert one == two
    assert two != plain


# ---------------------------------------------------------------- intermediate code


def reads(a, i, j):
    return a[i] + a[j] * 2, a[-1], a[0], a.shape[0]


def reads_a_table(a, i, j):
    return a[i, j], a[j, i], a[-1, -2], a[0, 1], a.shape[1]


def reads_three(a, i, j):
    return a[i, j, 0], a[-1, j, i], a[i % 2, 1, -1]


def writes(a, i, j):
    a[i] = a[j]
    a[-1] = 3
    a[0] += 1
    a[j] = a[i] > 1
    return a.sum()


def writes_a_table(a, i, j):
    a[i, j] = a[j, i] - 1
    a[-1, 0] = 2.5
    return a.sum(), a[i].sum()


def compares(a, i, j):
    x, y = a[i], a[j]
    return x < y, x <= y, x > y, x >= y, x == y, x != y, x + y, x - y, x * y


def carries(a, i, j):
    """Variables set in a loop, in a branch, once, and read in other blocks."""
    n, total, last = a.shape[0], a[0] - a[0], a[i]
    step = n - 1
    for k in range(n):
        here = a[k]
        if here > last:
            last = here
        else:
            for m in range(k, n, step):
                there = a[m] * here
                if there != here:
                    total += there - last
        while k > 3 and total < here:
            total += 1
            if total > last:
                break
    return total, last, step


def counts(a, i, j):
    """Ranges of all kinds, empty ones and one that is kept, chosen, left early or gone twice."""
    n, total, kept = a.shape[0], 0, range(2, 6)
    for k in range(i, j):
        total += 3 * k + 1
        for m in range(k):
            if m > 2:
                break
            total += m * 7
        else:
            total += 1000
        n += 1
    for k in range(n - 1, -1, -2):
        total = total * 3 + k
    for k in range(n) if j > i else range(1):
        total += k
    for _ in range(2):
        for k in kept:
            total = 2 * total + k
    for k in range(np.uint64(1), np.uint64(n)):
        total += np.int64(k)
    for k in range(np.int32(i)):
        total -= k
    return total, n, len(kept), len(range(i, j))


def halves(a, i, j):
    """Views, and an array that is made in one branch only."""
    left = a[: i + 1]
    right = a[j:]
    if left.shape[0] > right.shape[0]:
        made = left * 2 + 1
    else:
        made = right - left.sum()
    return made.sum() + sum([x + 1 for x in left]) + np.array([1, 2])[i % 2]


def plain(function, a, i, j):
    """What Python says, without its warnings, in numba's types."""
    with np.errstate(all="ignore"):
        found = function(a, i, j)
    return found if isinstance(found, tuple) else (found,)


FUNCTIONS = {
    1: [reads, writes, compares, carries],
    2: [reads_a_table, writes_a_table],
    3: [reads_three],
}
SLOW_DTYPES = [
    pytest.param(dtype, marks=pytest.mark.slow)
    for dtype in ("float32", "int64", "uint64", "int32", "uint8", "bool")
]


def laid_out(dtype: str, ndim: int) -> list[np.ndarray]:
    """An array, and the same numbers in every other place, turned round, and transposed."""
    whole = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]).astype(dtype)
    if ndim == 1:
        return [whole[:6].copy(), whole[::2], whole[5::-1]]
    if ndim == 2:
        return [whole.reshape(4, 4), whole.reshape(4, 4).T, whole.reshape(4, 4)[:, ::2]]
    return [whole.reshape(2, 2, 4), np.moveaxis(whole.reshape(2, 2, 4), 0, 1)[:, ::-1]]


INDICES = [(1, 0), (-1, 1), (0, -2), (np.uint64(1), np.int32(-2))]


@pytest.mark.drawn
@pytest.mark.parametrize("dtype", ["float64", *SLOW_DTYPES])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_elements_are_those_that_numba_reads_and_writes(folder, dtype, ndim):
    """Every day those that Python does, and indices of other types in one layout."""
    by_python = dtype == "float64" and not thorough()
    for function in FUNCTIONS[ndim]:
        ours = _jit.jit(function)
        theirs = function if by_python else numba.njit(**_jit.OPTIONS)(function)
        for k in range(len(laid_out(dtype, ndim))):
            for i, j in INDICES if k == 0 or thorough() else INDICES[:-1]:
                mine, other = laid_out(dtype, ndim)[k], laid_out(dtype, ndim)[k]
                assert np.array_equal(ours(mine, i, j), theirs(other, i, j)), (function, i, j)
                assert np.array_equal(mine, other)


@pytest.mark.slow
def test_expressions_of_whole_arrays_are_those_of_numba(folder):
    ours, theirs = _jit.jit(halves), numba.njit(**_jit.OPTIONS)(halves)
    for a in laid_out("float64", 1):
        for i, j in [(1, 0), (0, 3), (4, -2)]:
            assert ours(a, i, j) == theirs(a, i, j)


def test_ranges_are_those_of_python(folder):
    ours, a = _jit.jit(counts), np.zeros(3)
    for i, j in [(0, 0), (0, 5), (3, 5), (5, 3), (-3, 2), (-5, -2), (2, -7)]:
        assert ours(a, i, j) == plain(counts, a, i, j)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_comparisons_of_what_is_not_a_number(folder, dtype):
    ours = _jit.jit(compares)
    a = np.array([np.nan, 1.0, np.inf, -np.inf, -0.0, 0.0], dtype)
    for i in range(6):
        for j in range(6):
            assert np.array_equal(ours(a, i, j), plain(compares, a, i, j), equal_nan=True)


def test_flags_of_a_kernel_are_its_own(folder):
    """Whichever kernel has it compiled first, sums are not reordered in it unless it says so."""

    def total(a):
        x = 0.0
        for k in range(a.shape[0]):
            x += a[k]
        return x

    def outer(a):
        return total_(a) + 1.0

    total_ = _jit.jit(total)
    _jit.jit(outer, fastmath={"reassoc"})(np.ones(3))
    [made] = total_.overloads.values()
    assert " reassoc " not in str(made.library._final_module)
