"""The kernel cache is code: what somebody else can have written is neither read nor written.

Every test plays the attacker. What is planted is a sealed file under the right name whose pickle
leaves a mark when it is read; a mark means that somebody else's code was run.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from minfer.kernels.compiling import cache as _cache
from minfer.kernels.compiling import jit as _jit
from minfer.upkeep import health

try:
    from minfer.kernels.compiling import trust as _trust
except ImportError:  # of an earlier version, which these tests fail on
    _trust = None  # type: ignore[assignment]

ROOT = Path(__file__).parents[1]
SOMEBODY = 65534

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no owners here")
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can make files that belong to others",
)

TINY = """
from minfer.kernels.compiling.jit import jit

@jit
def twice(x):
    return 2 * x

print(twice(21), sum(twice.stats.cache_hits.values()))
"""


def twice(x):
    return 2 * x


class Mark:
    """A pickle that leaves a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


class Told(NamedTuple):
    """What a process said."""

    answer: str
    hits: str
    err: list[str]  # without the notice about compiling


class Place:
    """A user's machine: a home and a folder for temporary files."""

    def __init__(self, top: Path, patch: pytest.MonkeyPatch, compiled: Path | None = None) -> None:
        self.top, self._patch, self._compiled = top, patch, compiled
        self.home, self.tmp = top / "home", top / "tmp"
        for folder in (self.home, self.tmp):
            folder.mkdir(mode=0o755)
        self.tmp.chmod(0o1777)
        self.mark = top / "mark"

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        places = ("MINFER_CACHE_DIR", "XDG_CACHE_HOME")
        kept = {name: value for name, value in os.environ.items() if name not in places}
        return {**kept, "HOME": str(self.home), "TMPDIR": str(self.tmp), **more}

    def run(self, between: Callable[[], object] = lambda: None, **more: str) -> Told:
        """As a new process: choose a folder, and load or compile the kernel.

        ``between``: done when the folder is chosen, before the kernel is asked for.
        """
        err = io.StringIO()
        with self._patch.context() as patch, redirect_stderr(err):
            environment = self.environment(more)
            for name in {*os.environ} - {*environment}:
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(tempfile, "tempdir", None)
            for module, name, value in (
                (_cache, "FAULTS", []), (_cache, "UNSAVED", []), (_jit, "_KERNELS", []),
                *([(_trust, "_OPEN", {})] if _trust else []),
            ):  # fmt: skip
                patch.setattr(module, name, value)
            patch.setattr(_jit._SayOnce, "said", True)
            patch.setattr(_jit, "CACHE_DIR", _jit.cache_dir())
            kernel = _jit.jit(twice)
            between()
            answer = kernel(21)
            hits = sum(kernel.stats.cache_hits.values())
        return Told(str(answer), str(hits), err.getvalue().splitlines())

    def run_apart(self, **more: str) -> Told:
        """In a process of its own."""
        (self.top / "tiny.py").write_text(TINY)
        path = f"{ROOT / 'src'}{os.pathsep}{self.top}"
        done = subprocess.run(
            [sys.executable, "-c", "import tiny"], capture_output=True, text=True, check=True,
            env={**self.environment(more), "PYTHONPATH": path}, timeout=100,
        )  # fmt: skip
        err = [line for line in done.stderr.splitlines() if "compiling the kernels" not in line]
        return Told(*done.stdout.split(), err)

    def fill(self, cache: Path) -> None:
        """As after a run that compiled."""
        assert self._compiled is not None
        shutil.copytree(self._compiled, cache, dirs_exist_ok=True)

    def file(self, cache: Path) -> Path:
        """The one compiled kernel in a cache."""
        [path] = cache.rglob("*.nbc")
        return path

    def plant(self, path: Path, owner: int | None = None) -> None:
        """A file that a trusting reader runs."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        body = pickle.dumps(Mark(self.mark))
        path.write_bytes(body + hashlib.sha256(body).digest())
        if owner is not None:
            os.chown(path, owner, owner)

    def safe(self, told: Told, lines: int = 1) -> str:
        """The right answer, nothing of anybody else's was run, and it was said in a line."""
        assert told.answer == "42"
        assert not self.mark.exists(), "somebody else's code was run"
        assert len(told.err) == lines, told.err
        return "".join(told.err)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    """A cache with the one kernel."""
    place = Place(tmp_path_factory.mktemp("compiled"), pytest.MonkeyPatch())
    assert place.run() == ("42", "0", [])
    return place.home / ".cache" / "minfer"


@pytest.fixture
def place(tmp_path, compiled, monkeypatch) -> Place:
    return Place(tmp_path, monkeypatch, compiled)


def give(path: Path, owner: int = SOMEBODY) -> None:
    """Make a folder, and all in it, somebody else's."""
    for inner in [path, *path.rglob("*")]:
        os.chown(inner, owner, owner, follow_symlinks=False)


def contents(folder: Path) -> dict[str, Any]:
    """All that lies in a folder, and of files when they were written."""
    return {
        str(path.relative_to(folder)): path.is_dir() or path.lstat().st_mtime_ns
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_kernels_are_kept_at_home_and_closed_to_others(place, apart):
    run = place.run_apart if apart else place.run
    old = os.umask(0)
    try:
        assert run() == ("42", "0", [])
    finally:
        os.umask(old)
    assert run() == ("42", "1", [])
    cache = place.home / ".cache"
    for path in [cache, *cache.rglob("*")]:
        assert not path.stat().st_mode & 0o022, path
    assert place.run(MINFER_CACHE_DIR=str(place.top / "deep" / "er")) == ("42", "0", [])
    assert place.run(MINFER_CACHE_DIR=str(place.top / "deep" / "er")) == ("42", "1", [])


def test_links_of_ours_are_followed(place):
    """A home that was moved, relative and absolute links, and ``..`` after one."""
    (place.top / "disk" / "homes").mkdir(parents=True)
    (place.top / "disk" / "homes" / "me").mkdir()
    (place.top / "moved").symlink_to("disk/homes")
    (place.top / "far").symlink_to(place.top / "moved")
    for name in ("moved/me", "far/me", "moved/../homes/me"):
        told = place.run(HOME=str(place.top / name))
        assert (told.answer, told.err) == ("42", [])
    assert told.hits == "1"
    assert (place.top / "disk" / "homes" / "me" / ".cache" / "minfer").is_dir()


def test_a_link_that_leads_nowhere_or_in_a_circle(place):
    (place.top / "round").symlink_to("round")
    told = place.run(MINFER_CACHE_DIR=str(place.top / "round"))
    assert "MINFER_CACHE_DIR" in place.safe(told)
    assert list(place.home.rglob("*.nbc"))


def test_a_file_in_the_place_of_the_cache_says_what_to_do(place):
    (place.top / "afile").write_text("mine")
    said = place.safe(place.run(MINFER_CACHE_DIR=str(place.top / "afile")))
    assert "cannot be written to (Not a directory): name a folder that can be" in said
    assert (place.top / "afile").read_text() == "mine"


def test_without_a_home_the_temporary_folder_is_used(place):
    for hits in "01":
        assert place.run(HOME="/dev/null/home") == ("42", hits, [])
    assert place.file(place.tmp / f"minfer-cache-{os.geteuid()}")


def test_a_handle_that_somebody_closed_is_opened_again(place):
    """Daemons close all files that they did not open; the number may be another file's by then."""
    place.fill(place.home / ".cache" / "minfer")
    other = place.top / "other"
    other.mkdir()

    def close() -> None:
        [folder] = _trust._OPEN.values()
        elsewhere = os.open(other, os.O_RDONLY)
        os.dup2(elsewhere, folder._handle)
        os.close(elsewhere)

    assert place.run(close) == ("42", "1", [])
    assert not contents(other)


def test_a_child_process_has_the_cache_too(place):
    place.fill(place.home / ".cache" / "minfer")

    def fork() -> None:
        child = os.fork()
        if child:
            os._exit(0 if os.waitpid(child, 0)[1] == 0 else 1)

    outer = os.fork()
    if not outer:
        told = None
        with suppress(BaseException):
            told = place.run(fork)
        os._exit(0 if told == ("42", "1", []) else 1)
    assert os.waitpid(outer, 0)[1] == 0


def test_without_handles_names_are_used(tmp_path, monkeypatch):
    """As on Windows."""
    monkeypatch.setattr(_trust, "HANDLES", False)
    monkeypatch.setattr(_trust, "_OPEN", {})
    monkeypatch.setattr(_jit, "CACHE_DIR", tmp_path / "cache" / "here")
    monkeypatch.setattr(_cache, "FAULTS", [])
    for hits in (0, 1):
        kernel = _jit.jit(twice)
        assert kernel(21) == 42
        assert sum(kernel.stats.cache_hits.values()) == hits
    [path] = (tmp_path / "cache").rglob("*.nbc")
    path.write_bytes(b"damaged")
    assert _jit.jit(twice)(21) == 42
    assert [fault.removed for fault in _cache.FAULTS] == [True]
    os.utime(path.parent, (0, 0))
    assert _cache.prune(tmp_path / "cache" / "here", [])[0] == 1


@as_root
def test_another_user_at_home():
    """As that user: folders on the way that can be entered and not listed, and his own home."""
    top = Path(tempfile.mkdtemp(prefix="minfer-test-"))
    try:
        home = top / "homes" / "him"
        home.mkdir(parents=True)
        os.chown(home, SOMEBODY, SOMEBODY)
        home.chmod(0o700)
        for folder in (top, home.parent):
            folder.chmod(0o711)
        child = os.fork()
        if not child:
            code = 1
            with suppress(BaseException):
                os.setgroups([])
                os.setgid(SOMEBODY)
                os.setuid(SOMEBODY)
                cache = _trust.opened(home / ".cache" / "minfer", make=True)
                with cache.inner("bp", make=True) as inner:
                    inner.write("x", b"his")
                    code = 0 if inner.read("x") == b"his" else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(_trust.Untrusted, match=f"user {SOMEBODY}"):
            _trust.opened(home / ".cache" / "minfer")  # which root does not trust
    finally:
        shutil.rmtree(top)


def test_where_no_folder_can_be_trusted_it_is_one_line(place):
    for folder in (place.home, place.tmp):
        folder.chmod(0o777)
    trap = place.top / "trap"
    trap.mkdir()
    trap.chmod(0o777)
    said = place.safe(place.run(MINFER_CACHE_DIR=str(trap)))
    assert "not kept" in said
    assert str(trap) in said
    assert not [path for folder in (place.home, place.tmp, trap) for path in folder.iterdir()]


@as_root
def test_a_link_of_somebody_else_to_a_folder_of_ours(place):
    """Only the last owner was looked at."""
    cache = place.home / ".cache" / "minfer"
    place.fill(cache)
    trap = place.tmp / "trap"
    trap.symlink_to(cache)
    give(trap)
    place.plant(place.file(cache))
    before = contents(cache)
    said = place.safe(place.run(MINFER_CACHE_DIR=str(trap), HOME="/dev/null/home"))
    assert str(trap) in said
    assert f"user {SOMEBODY}" in said
    assert contents(cache) == before


@as_root
@pytest.mark.parametrize("where", ["a", "a/b", "a/b/c"])
def test_a_folder_on_the_way_belongs_to_somebody_else(place, where):
    cache = place.top / "a" / "b" / "c"
    cache.mkdir(parents=True)
    place.fill(cache)
    place.plant(place.file(cache))
    os.chown(place.top / where, SOMEBODY, SOMEBODY)
    before = contents(cache)
    said = place.safe(place.run(MINFER_CACHE_DIR=str(cache)))
    assert str(place.top / where) in said
    assert f"user {SOMEBODY}" in said
    assert contents(cache) == before
    assert place.run(MINFER_CACHE_DIR=str(cache)).hits == "1"  # kept at home


@pytest.mark.parametrize(
    ("where", "mode"),
    [
        ("above", 0o777), ("above", 0o775), ("above", 0o1777),
        ("the cache", 0o757), ("the cache", 0o777),
        ("its version", 0o777), ("its version", 0o1777),
        ("its module", 0o770), ("its module", 0o1777),
    ],
)  # fmt: skip
def test_a_folder_that_others_can_write_to(place, where, mode):
    cache = place.top / "above" / "cache"
    place.fill(cache)
    path = place.file(cache)
    folder = {
        "above": cache.parent, "the cache": cache,
        "its version": path.parent.parent, "its module": path.parent,
    }[where]  # fmt: skip
    folder.chmod(mode)
    if mode == 0o1777 and where != "its module":  # where nobody can touch what is not his
        assert place.run(MINFER_CACHE_DIR=str(cache)) == ("42", "1", [])
        return
    place.plant(path)
    before = contents(cache)
    said = place.safe(place.run(MINFER_CACHE_DIR=str(cache)))
    assert f"{mode:04o}" in said
    assert "chmod" in said
    assert contents(cache) == before
    folder.chmod(0o700)


def test_the_advice_helps(place):
    cache = place.top / "cache"
    place.fill(cache)
    for path in [cache, *cache.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)  # as with an umask of 0
    for _ in range(5):
        told = place.run(MINFER_CACHE_DIR=str(cache))
        said = "".join(told.err)
        if "`" not in said:
            break
        subprocess.run(said.split("`")[1], shell=True, check=True)
    assert told == ("42", "1", [])


@as_root
def test_the_temporary_folder_was_prepared_by_somebody_else(place):
    """By name, which everybody can guess."""
    trap = place.tmp / f"minfer-cache-{os.geteuid()}"
    place.fill(trap)
    place.plant(place.file(trap))
    give(trap)
    before = contents(trap)
    said = place.safe(place.run(HOME="/dev/null/home"))
    assert "not kept" in said
    assert str(trap) in said
    assert contents(trap) == before
    give(trap, os.geteuid())  # what is in it is ours, and a link of theirs leads there
    moved = place.tmp / "moved"
    trap.rename(moved)
    trap.symlink_to(moved)
    os.chown(trap, SOMEBODY, SOMEBODY, follow_symlinks=False)
    assert "link" in place.safe(place.run(HOME="/dev/null/home"))


def test_a_temporary_folder_that_is_not_sticky(place):
    place.tmp.chmod(0o777)
    said = place.safe(place.run(HOME="/dev/null/home"))
    assert str(place.tmp) in said
    assert not list(place.tmp.rglob("*.nb?"))


def test_a_folder_that_is_swapped_after_it_was_checked(place):
    """Its handle is used: what lies under its name by then does not matter."""
    cache = place.top / "cache"
    place.fill(cache)
    [version] = cache.iterdir()
    aside = place.top / "aside"
    trap = place.top / "trap"
    place.plant(trap / place.file(cache).relative_to(version))

    def swap() -> None:
        version.rename(aside)
        version.symlink_to(trap)

    before = contents(trap)
    told = place.run(swap, MINFER_CACHE_DIR=str(cache))
    assert told == ("42", "1", [])
    assert not place.mark.exists()
    assert contents(trap) == before


def test_a_module_folder_that_is_a_link(place):
    cache = place.top / "cache"
    place.fill(cache)
    path = place.file(cache)
    aside = place.top / "aside"
    path.parent.rename(aside)
    path.parent.symlink_to(aside)
    place.plant(aside / path.name)
    before = contents(aside)
    assert "link" in place.safe(place.run(MINFER_CACHE_DIR=str(cache)))
    assert contents(aside) == before


def as_somebody(path: Path) -> None:
    os.chown(path, SOMEBODY, SOMEBODY)


def as_link(path: Path) -> None:
    aside = path.parent.parent.parent.parent / "aside"
    path.rename(aside)
    path.symlink_to(aside)


def as_hard_link(path: Path) -> None:
    """Of a file of somebody else's."""
    aside = path.parent.parent.parent.parent / "aside"
    path.rename(aside)
    as_somebody(aside)
    os.link(aside, path)


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_open(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(as_somebody, marks=as_root),
        pytest.param(as_hard_link, marks=as_root),
        as_link,
        as_pipe,
        as_open,
    ],
)
def test_a_file_that_is_not_ours_alone(place, change: Callable[[Path], None]):
    cache = place.top / "cache"
    place.fill(cache)
    path = place.file(cache)
    place.plant(path)
    change(path)
    before = path.lstat()
    said = place.safe(place.run(MINFER_CACHE_DIR=str(cache)))
    assert str(path) in said
    if change is as_open:  # ours to replace
        assert place.run(MINFER_CACHE_DIR=str(cache)) == ("42", "1", [])
        assert not path.stat().st_mode & 0o022
    else:
        assert path.lstat() == before or stat.S_ISFIFO(before.st_mode)
        assert len(list(path.parent.iterdir())) == 1


@pytest.fixture
def wheel_kernel(tmp_path, monkeypatch):
    """A kernel that came with a wheel, and its own cache."""
    from test_kernel_cache import as_wheel, njit_with, twice

    monkeypatch.setattr(_cache, "FAULTS", [])
    monkeypatch.delenv("MINFER_READY", raising=False)  # by which a wheel under test is chosen
    shipped, own = tmp_path / "ready", tmp_path / "own" / "tiny-0123456789abcdef"
    kernel = njit_with(twice, shipped / "any" / own.name)
    assert kernel(21) == 42
    return njit_with(twice, own, as_wheel(shipped, kernel)), own


def test_a_marker_that_is_a_link_is_neither_believed_nor_replaced(wheel_kernel, tmp_path):
    kernel, own = wheel_kernel
    [types] = kernel._cache.signatures(kernel.targetctx)
    assert kernel._cache.refuse(types, kernel.targetctx, "it is wrong")
    assert kernel._cache.load_overload(types, kernel.targetctx) is None
    [marker] = own.iterdir()
    marker.unlink()
    outside = tmp_path / "outside"
    outside.write_text("mine")
    marker.symlink_to(outside)
    assert kernel._cache.load_overload(types, kernel.targetctx) is not None
    assert not kernel._cache.refuse(types, kernel.targetctx, "it is wrong")
    assert outside.read_text() == "mine"
    assert marker.is_symlink()


def old(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "k.nbc").write_text("1234")
    return folder


def aged(*folders: Path) -> None:
    then = time.time() - 90 * 86_400
    for folder in folders:
        os.utime(folder, (then, then))


def test_pruning_follows_no_link(tmp_path):
    current = tmp_path / f"kernels-{'0' * 12}"
    outside = old(tmp_path / "outside")
    module = old(current / f"bp-{'a' * 16}")
    (module / "more.nbc").symlink_to(outside / "k.nbc")
    past = old(tmp_path / f"kernels-{'1' * 12}")
    (past / f"bp-{'b' * 16}").symlink_to(outside)
    (current / f"bp-{'c' * 16}").symlink_to(outside)
    aged(outside, module, past, current)
    assert _cache.prune(current, []) == (0, 8)  # two files of ours; links, and what holds one, stay
    assert (outside / "k.nbc").read_text() == "1234"
    assert (module / "more.nbc").is_symlink()
    assert (past / f"bp-{'b' * 16}").is_symlink()


@as_root
def test_pruning_removes_nothing_of_others(tmp_path):
    current = tmp_path / f"kernels-{'0' * 12}"
    theirs = old(current / f"bp-{'a' * 16}")
    mixed = old(current / f"bp-{'b' * 16}")
    (mixed / "theirs.nbc").write_text("12")
    os.chown(mixed / "theirs.nbc", SOMEBODY, SOMEBODY)
    wide = old(current / f"bp-{'c' * 16}")
    wide.chmod(0o777)
    past = old(tmp_path / f"kernels-{'1' * 12}")
    give(theirs)
    give(past)
    aged(theirs, mixed, wide, past)
    assert _cache.prune(current, []) == (0, 4)
    assert [path.name for path in mixed.iterdir()] == ["theirs.nbc"]
    for folder in (theirs, wide, past):
        assert (folder / "k.nbc").exists()


@as_root
def test_pruning_a_cache_that_is_not_ours_does_nothing(tmp_path):
    current = tmp_path / "theirs" / f"kernels-{'0' * 12}"
    folder = old(current / f"bp-{'a' * 16}")
    aged(folder)
    os.chown(tmp_path / "theirs", SOMEBODY, SOMEBODY)
    assert _cache.prune(current, []) == (0, 0)
    assert (folder / "k.nbc").exists()


@pytest.mark.slow
@as_root
def test_numbas_own_cache_has_the_same_guard(place):
    cache, aside = place.top / "cache", place.top / "aside"
    options = {"MINFER_WITHOUT": "cache", "MINFER_CACHE_DIR": str(cache)}
    assert place.run_apart(**options) == ("42", "0", [])
    assert place.run_apart(**options) == ("42", "1", [])
    [index] = cache.rglob("*.nbi")
    index.parent.parent.chmod(0o777)
    told = [place.run_apart(**options)]
    index.parent.parent.chmod(0o700)
    as_somebody(index)
    told.append(place.run_apart(**options))
    os.chown(index, 0, 0)
    index.rename(aside)
    index.symlink_to(aside)
    told.append(place.run_apart(**options))
    for one in told:
        assert one.hits == "0"
        assert str(cache) in place.safe(one)


def test_doctor_says_why_nothing_is_kept(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setattr(_jit, "CACHE_DIR", cache)
    finding = health.CHECKS["cache"]()
    assert finding.ok is False
    assert "0777" in finding.text
