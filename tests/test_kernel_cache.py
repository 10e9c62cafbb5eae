"""A damaged kernel cache costs a compilation and one line, never a run."""

from __future__ import annotations

import ast
import errno
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from typer.testing import CliRunner

from draws import few
from minfer.cli import app
from minfer.kernels.compiling import cache as _cache
from minfer.kernels.compiling import frugal as _frugal
from minfer.kernels.compiling import identity as _identity
from minfer.kernels.compiling import jit as _jit
from minfer.kernels.compiling import trust as _trust
from minfer.upkeep import health, warmup
from refused import refused

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


def the(folder: Path) -> Path:
    [path] = folder.rglob("*.nbc")
    return path


def hits(kernel: Any) -> int:
    return sum(kernel.stats.cache_hits.values())


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGES = {
    "truncated": lambda content: content[:-100],
    "empty": lambda content: b"",
    "garbage": lambda content: b"\x80\x04garbage" * 50,
    "another pickle": lambda content: pickle.dumps({"a": 1}),
    "a flipped bit": flip,
    "more at the end": lambda content: content + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_removed_and_its_kernel_compiled_anew(folder, capsys, damage):
    assert _jit.jit(twice)(21) == 42
    path = the(folder)
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


def test_a_file_that_cannot_be_read(folder, capsys, monkeypatch):
    assert _jit.jit(twice)(21) == 42
    path = the(folder)
    read = _trust.Folder.read

    def deny(self, name):
        if self.path / name == path and path.exists():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read(self, name)

    with monkeypatch.context() as patch:  # root reads everything, so permissions prove nothing
        patch.setattr(_trust.Folder, "read", deny)
        assert _jit.jit(twice)(21) == 42
    [line] = capsys.readouterr().err.splitlines()
    assert "Permission denied" in line


def test_a_folder_in_the_place_of_a_file_is_left_alone(folder, capsys):
    assert _jit.jit(twice)(21) == 42
    path = the(folder)
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
    for path in folder.rglob("*.nbc"):
        path.write_bytes(b"")
    assert _jit.jit(twice)(2) == 4
    assert _jit.jit(thrice)(2) == 6
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert len(_cache.FAULTS) == 2


def test_what_was_saved_under_another_key_is_not_used(folder, capsys):
    """As after two processes that saved two versions of a kernel at once, or two kernels."""
    kernel = _jit.jit(twice)
    assert kernel(21) == 42
    assert kernel(0.5) == 1.0
    whole, real = sorted(folder.rglob("*.nbc"))
    whole.write_bytes(real.read_bytes())
    again = _jit.jit(twice)
    assert again(21) == 42
    assert hits(again) == 0
    third = _jit.jit(twice)
    assert (third(21), third(0.5), hits(third)) == (42, 1.0, 2)
    _jit.jit(thrice)(21)
    [other] = {*folder.rglob("*.nbc")} - {whole, real}
    content = whole.read_bytes()
    whole.write_bytes(other.read_bytes())
    other.write_bytes(content)
    for function, right in ((twice, 42), (thrice, 63)):
        again = _jit.jit(function)
        assert (again(21), hits(again)) == (right, 0)
    assert capsys.readouterr().err == ""


def test_what_numba_cannot_use_is_removed_too(folder, capsys, monkeypatch):
    assert _jit.jit(twice)(21) == 42
    kernel = _jit.jit(twice)

    def rebuild(*_):
        raise ModuleNotFoundError("No module named 'numpy.old'")

    monkeypatch.setattr(_cache._Result, "_rebuild", rebuild)
    assert kernel(21) == 42
    assert "numpy.old" in capsys.readouterr().err
    assert _cache.FAULTS[0].removed


def test_a_full_disk_costs_only_the_cache(folder, capsys, monkeypatch):
    def full(handle, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert _jit.jit(twice)(21) == 42
        assert _jit.jit(thrice)(21) == 63
    [line] = capsys.readouterr().err.splitlines()
    assert "No space left" in line
    monkeypatch.setitem(warmup.PARTS, "method", ("minfer.kernels.arithmetic.softmax",))
    result = CliRunner().invoke(app, ["warmup", "method"])
    assert result.exit_code == 1
    assert "not kept" in result.output


@pytest.mark.slow
def test_processes_may_discard_at_once(tmp_path):
    (tmp_path / "tiny.py").write_text(
        textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from minfer.kernels.compiling.jit import jit

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


def test_doctor_reports_damage_and_removes_it(folder, monkeypatch):
    kernel = _jit.jit(twice)
    kernel(21)
    path = the(folder)
    path.write_bytes(b"")
    result = call_doctor(monkeypatch)
    assert result.exit_code == 0, result.output
    assert "1 damaged file removed" in result.stdout
    assert path.name in result.stdout
    assert not path.exists()
    assert "damaged" not in call_doctor(monkeypatch).stdout
    _jit.jit(thrice)(21)
    monkeypatch.setattr(_jit, "_KERNELS", [])  # of another checkout, or of another processor
    the(folder).write_bytes(b"garbage")
    assert "1 damaged file removed" in call_doctor(monkeypatch).stdout


def test_doctor_leaves_the_kernels_of_another_version(folder, monkeypatch):
    """Their classes may lie in modules that this one has not: it was called damage, and removed."""
    there = types.ModuleType("minfer_of_before")
    there.Told = type("Told", (), {"__module__": there.__name__})
    monkeypatch.setitem(sys.modules, there.__name__, there)
    place = folder / f"sweeps-{16 * '0'}"
    _cache.write(place, "sweep-1-00000000-0000000000000000.nbc", (("key", (), ()), there.Told()))
    monkeypatch.delitem(sys.modules, there.__name__)
    result = call_doctor(monkeypatch)
    assert result.exit_code == 0, result.output
    assert "damaged" not in result.stdout
    assert the(place).exists()


def test_doctor_does_not_vouch_for_what_cannot_be_removed(folder, monkeypatch):
    _jit.jit(twice)(21)
    path = the(folder)
    path.unlink()
    path.mkdir()
    result = call_doctor(monkeypatch)
    assert result.exit_code == 1
    assert "BROKEN" in result.stdout
    assert str(path) in result.stdout


def njit_with(function: Any, folder: Path, ready: _cache.ShippedKernels | None = None) -> Any:
    """A kernel as the package makes its own."""
    kernel = numba.njit(nogil=True)(function)
    kernel._cache = _cache.KernelCache(function, folder, ready)
    return kernel


def as_wheel(place: Path, kernel: Any) -> _cache.ShippedKernels:
    """A folder of compiled kernels as a wheel has it, for this very machine."""
    target = kernel.targetctx.codegen().magic_tuple()
    variant = {"name": "any", "target": target, "needs": []}
    about = {**_cache.described(), "variants": [variant]}
    (place / _cache.ABOUT).write_text(json.dumps(about))
    return _cache.ShippedKernels(place)


@pytest.fixture
def shipped(folder, tmp_path, monkeypatch):
    """A folder such as a wheel has, with one kernel for this very machine."""
    monkeypatch.delenv("MINFER_READY", raising=False)  # by which a wheel under test is chosen
    kernel = njit_with(twice, tmp_path / "ready" / "any" / folder.name)
    assert kernel(21) == 42
    as_wheel(tmp_path / "ready", kernel)
    return tmp_path / "ready"


def edit(place: Path, **changes: Any) -> None:
    about = json.loads((place / _cache.ABOUT).read_text())
    for variant in about["variants"]:
        variant.update({name: changes.pop(name) for name in variant if name in changes})
    (place / _cache.ABOUT).write_text(json.dumps({**about, **changes}))


def files(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_ready_code_is_loaded_and_nothing_is_written(shipped, folder):
    before = files(shipped)
    ready = _cache.ShippedKernels(shipped)
    kernel = njit_with(twice, folder, ready)
    assert kernel(21) == 42
    assert (hits(kernel), ready.loaded, ready.missing) == (1, 1, "")
    assert files(folder) == {}
    assert files(shipped) == before
    assert kernel(0.5) == 1.0  # a version that was not shipped
    assert ready.loaded == 1
    assert len(list(folder.rglob("*.nbc"))) == 1
    njit_with(twice, folder)(21)  # what is in the own cache comes first
    assert njit_with(twice, folder, ready)(21) == 42
    assert ready.loaded == 1


def test_the_first_variant_that_fits_is_taken(shipped, folder, monkeypatch):
    [variant] = json.loads((shipped / _cache.ABOUT).read_text())["variants"]
    better = {"name": "better", "target": ["a", "b", "c"], "needs": ["teleport"]}
    edit(shipped, variants=[better, variant, {**variant, "name": "worse"}])
    ready = _cache.ShippedKernels(shipped)
    assert (ready.missing, ready.name) == ("", "any")
    for asked, missing in (("worse", ""), ("0", "MINFER_READY=0"), ("fast", "not one of better")):
        monkeypatch.setenv("MINFER_READY", asked)
        ready = _cache.ShippedKernels(shipped)
        assert missing in ready.missing
        assert bool(missing) == bool(ready.missing)
        assert ready.name == ("worse" if asked == "worse" else "")
    monkeypatch.setenv("MINFER_READY", "better")
    assert _cache.ShippedKernels(shipped).missing == "this processor has no teleport"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"numba": "0.1"}, "numba 0.1"),
        ({"python": "2.7"}, "python 2.7"),
        ({"system": "pdp11"}, "system pdp11"),
        ({"needs": ["teleport"]}, "no teleport"),
        *((damage, "") for damage in (*DAMAGES, "no about")),
    ],
)
def test_ready_code_that_is_damaged_or_for_others_is_left_alone(shipped, folder, changes, why):
    if changes == "no about":
        (shipped / _cache.ABOUT).write_text("[")
    elif isinstance(changes, str):
        path = the(shipped)
        path.write_bytes(DAMAGES[changes](path.read_bytes()))
    else:
        edit(shipped, **changes)
    before = files(shipped)
    ready = _cache.ShippedKernels(shipped)
    kernel = njit_with(twice, folder, ready)
    assert kernel(21) == 42
    assert (hits(kernel), ready.loaded) == (0, 0)
    assert why in ready.missing
    assert files(shipped) == before
    assert _cache.FAULTS == []


def test_every_home_of_kernels_is_known():
    """Kernels lie in the packages that the cache, `warmup` and `doctor` look at."""
    ours = [k for k in _jit.kernels() if k.py_func.__module__.startswith("minfer.")]
    modules = {kernel.py_func.__module__ for kernel in ours}
    assert all(name.startswith(_jit.HOMES) for name in modules)
    assert len(modules) >= 40
    for kernel in ours:  # by all sources that it is made of: neither path nor time plays a part
        key = _identity.key(kernel.py_func.__module__)
        assert kernel._cache.folder.name.endswith(key[:16])
    places = {kernel._cache.folder for kernel in ours}
    assert places <= set(_jit.folders())
    assert {place.parent for place in places} == {_jit.CACHE_DIR}


def test_ready_says_whether_a_kernel_is_compiled_here_or_in_the_cache(folder):
    kernel = _jit.jit(twice)
    assert not _jit.ready(kernel)
    assert kernel(2) == 4
    assert _jit.ready(kernel)
    place = the(folder).parent
    os.utime(place, (0, 0))
    again = _jit.jit(twice)
    assert _jit.ready(again)  # as in the next process
    assert again(2) == 4
    assert time.time() - place.stat().st_mtime < 3600  # its use is noted
    the(folder).unlink()
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


@pytest.fixture
def package(tmp_path):
    """A package of four modules: outer imports middle, middle inner; other none of them."""
    place = tmp_path / "minfer"
    kernels = place / "kernels"
    (kernels / "compiling").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "compiling/__init__": "",
        "compiling/jit": "options = 1",
        "inner": "from minfer.kernels.compiling.jit import options\nDEPTH = 1\n",
        "middle": "from minfer.kernels.inner import (\n    DEPTH,\n)\n",
        "outer": "def late():\n    from . import middle\n",
        "other": '"""Prose\nfrom the minfer\nimport of which is none."""\nimport ast, os\n',
    }.items():
        (kernels / f"{name}.py").write_text(text)
    (place / "__init__.py").write_text("")
    return place


def keys(package: Path) -> dict[str, str]:
    hashed = _identity
    for kept in (hashed.key, hashed._imports, hashed._place, hashed._source):
        kept.cache_clear()
    names = ("inner", "middle", "outer", "other")
    return {name: _identity.key(f"{package.name}.kernels.{name}", package) for name in names}


@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ("inner", {"inner", "middle", "outer"}),
        ("middle", {"middle", "outer"}),
        ("outer", {"outer"}),
        ("other", {"other"}),
        ("compiling/jit", set()),
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
        "import os, minfer.kernels.inner as x",
        "import os, \\\n    minfer.kernels.inner",
        "from minfer.kernels import inner",
        "from .inner import DEPTH",
        "from .. import kernels; from ..kernels import inner",
        "from minfer.kernels import (  # :)\n    inner,\n)",
        "if True:\n    from minfer.kernels.inner import DEPTH as D",
    ],
)
def test_every_form_of_import_counts(package, statement):
    (package / "kernels" / "other.py").write_text(f"{statement}\n")
    keys(package)
    assert "minfer.kernels.inner" in _identity.closure("minfer.kernels.other", package)


def statements(node):
    """All statements below a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


@pytest.mark.drawn
def test_imports_are_read_as_python_reads_them():
    """The quick reading of every file against its syntax tree."""
    for path in few(sorted(_identity.PACKAGE.rglob("*.py")), 100):
        text = path.read_text()
        parent = ".".join(path.relative_to(_identity.PACKAGE.parent).parent.parts)
        tree = ast.parse(text)
        alone = (s for s in statements(tree) if isinstance(s, ast.Import | ast.ImportFrom))
        parts = (_identity._named(ast.unparse(node), parent) for node in alone)
        there = {name for names in parts for name in names if name.startswith("minfer.")}
        assert there <= set(_identity._named(text, parent)), path


@pytest.mark.slow
def test_an_edited_inner_kernel_is_never_served_stale(tmp_path):
    """In processes of their own: a copy of the package, and an edit two imports away."""
    copy = tmp_path / "minfer"
    shutil.copytree(ROOT / "src" / "minfer" / "kernels", copy / "kernels")
    (copy / "__init__.py").write_text("")
    inner = copy / "kernels" / "tiny_inner.py"
    inner.write_text(
        "from minfer.kernels.compiling.jit import jit\n@jit\ndef inner(x):\n    return x + 1\n"
    )
    for name, below in (("tiny_middle", "tiny_inner"), ("tiny_outer", "tiny_middle")):
        (copy / "kernels" / f"{name}.py").write_text(
            "from minfer.kernels.compiling.jit import jit\n"
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


FRUGAL = pytest.mark.skipif(bool(_frugal.UNAVAILABLE), reason=_frugal.UNAVAILABLE or "-")


@FRUGAL
def test_an_inner_kernel_has_no_code_of_its_own_until_python_calls_it(folder):
    outer, inner = above()
    assert outer(1) == 20
    assert not inner.overloads
    assert not _jit.ready(inner)
    assert not list(folder.rglob("*"))  # it has no file either, and neither has one with a closure
    assert inner(4) == 5  # and from Python: one more compilation
    assert _jit.ready(inner)
    assert _jit.ready(_jit.jit(below))
    assert outer(1.5) == 25.0
    refused(ValueError, "negative", outer, -1)
    refused(ValueError, "negative", inner, -1)


@FRUGAL
def test_code_does_not_depend_on_what_python_has_called_before(folder):
    """A kernel that was called, or loaded, is linked into another as one that was not."""
    codes = []
    for call_first in (False, True):
        outer, inner = above()
        if call_first:
            assert inner(4) == 5
        assert outer(1) == 20
        [made] = outer.overloads.values()
        text = str(made.library._final_module)
        codes.append(re.sub(r"v\d+B", "vB", re.sub(r"c\d+|0x\w+", "", text)).count("\n"))
    assert codes[0] == codes[1]


@FRUGAL
def test_somebody_elses_function_may_call_a_kernel(folder):
    _, inner = above()

    @numba.njit
    def theirs(x):
        return inner(x) - 1

    assert theirs(3) == 3
    assert type(theirs) is not _frugal.Kernel
    refused(ValueError, "negative", theirs, -1)


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
    [made] = getattr(total_, "_inners", total_.overloads).values()
    assert " reassoc " not in str(made.library._final_module)
