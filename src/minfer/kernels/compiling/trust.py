"""Folders that nobody else can have written to, used by their handles.

Compiled kernels are machine code in pickles: whoever can write them runs code as the user who
loads them. So a folder is used only if every folder on the way to it, itself included,

* belongs to us or to root, and
* can be written to by nobody else (mode without group and other write; access control lists show
  there, too). A sticky folder such as /tmp may be on the way: nobody can rename or remove there
  what belongs to others. Files do not lie in one.

Links on the way are resolved one by one: each belongs to us or to root and lies in such a folder
(/tmp on macOS, a home that an administrator moved). The last folder is opened without following a
link, and everything after that goes through its handle: what is swapped for it later is not seen.
Files are regular, ours, and writable by nobody else, as their open handle says.

Anything else is :class:`Untrusted`: neither read nor written nor removed. Where the system has no
owners and no handles of folders (Windows), names are used, and the user's profile is trusted as the
system guards it.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Whether folders are opened and checked; elsewhere they are used by name.
HANDLES = (
    hasattr(os, "geteuid")
    and hasattr(os, "O_NOFOLLOW")
    and {os.open, os.stat, os.mkdir, os.rmdir, os.unlink, os.readlink, os.rename}
    <= os.supports_dir_fd
    and {os.listdir, os.utime} <= os.supports_fd
)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_ON_THE_WAY = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_FILE = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | getattr(os, "O_BINARY", 0)
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40
_ANOTHER = "name another folder as MINFER_CACHE_DIR"


class Untrusted(OSError):
    """Somebody else can have written what lies there.

    Attributes
    ----------
    strerror : why, as in "it belongs to user 1001"
    advice : what to do
    """

    def __init__(self, path: Path, why: str, advice: str) -> None:
        super().__init__(errno.EPERM, why, str(path))
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}; {self.advice}"


class Folder:
    """A folder by its handle; where there are none, by its name.

    Attributes
    ----------
    path : what it was called when it was opened
    """

    def __init__(self, path: Path, handle: int | None) -> None:
        self.path, self._handle = path, handle
        self._id = None if handle is None else _identity(os.fstat(handle))

    def close(self) -> None:
        if self._handle is not None and self._now() is not None:
            os.close(self._handle)
            self._id = None

    def _now(self) -> os.stat_result | None:
        """Its state; None if somebody has closed its handle, and maybe used the number."""
        with suppress(OSError):
            if self._handle is None:
                return os.stat(self.path)
            now = os.fstat(self._handle)
            return now if _identity(now) == self._id else None
        return None

    def is_there(self) -> bool:
        """Whether it can still be used; Untrusted if others can write to it by now."""
        now = self._now()
        if now is not None and self._handle is not None:
            _check_folder(self.path, now)
            return now.st_nlink > 0  # or it was removed
        return now is not None

    def _name(self, name: str) -> str:
        return name if self._handle is not None else os.path.join(self.path, name)

    @contextmanager
    def inner(self, name: str, make: bool = False) -> Iterator[Folder]:
        """A folder in it, where files may lie."""
        if make:
            with suppress(FileExistsError):
                os.mkdir(self._name(name), 0o700, dir_fd=self._handle)
        if self._handle is None:
            yield Folder(self.path / name, None)
            return
        path = self.path / name
        try:
            handle = os.open(name, _FOLDER, dir_fd=self._handle)
        except OSError as error:
            raise _unless_link(path, error) from None
        try:
            _check_folder(path, os.fstat(handle), self.path)
            yield Folder(path, handle)
        finally:
            os.close(handle)

    def look(self, name: str) -> os.stat_result | None:
        """What lies under a name, of a link the link; None if nothing does."""
        with suppress(FileNotFoundError):
            return os.stat(self._name(name), dir_fd=self._handle, follow_symlinks=False)
        return None

    def own(self, name: str) -> bool:
        """Whether a file is there; Untrusted if it is not a file of ours to remove or replace."""
        found = self.look(name)
        if found is not None:
            _check_kind(self.path / name, found)
            _check_owner(self.path / name, found, _us())
        return found is not None

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path if self._handle is None else self._handle))

    def read(self, name: str) -> bytes:
        """A whole file."""
        path = self.path / name
        try:
            handle = os.open(self._name(name), _FILE, dir_fd=self._handle)
        except OSError as error:
            raise _unless_link(path, error) from None
        try:
            found = os.fstat(handle)
            _check_kind(path, found)
            _check_owner(path, found, _us())
            _check_mode(path, found, self.path)
            with open(handle, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(handle)

    def write(self, name: str, data: bytes) -> None:
        """A whole file: beside its place, then renamed. Only a file of ours is replaced."""
        self.own(name)
        beside = f"{name}.tmp.{uuid.uuid4().hex[:16]}"
        handle = os.open(self._name(beside), _NEW, 0o644, dir_fd=self._handle)
        try:
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(handle, left) :]
            finally:
                os.close(handle)
            os.replace(
                self._name(beside), self._name(name),
                src_dir_fd=self._handle, dst_dir_fd=self._handle,
            )  # fmt: skip
        except BaseException:
            with suppress(OSError):
                os.unlink(self._name(beside), dir_fd=self._handle)
            raise

    def remove(self, name: str) -> None:
        """Remove a file of ours, if it is there."""
        if self.own(name):
            with suppress(FileNotFoundError):
                os.unlink(self._name(name), dir_fd=self._handle)

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder in it."""
        os.rmdir(self._name(name), dir_fd=self._handle)

    def prove(self) -> None:
        """OSError unless a file can be written here."""
        name = f"proof.nbc.tmp.{uuid.uuid4().hex[:16]}"  # which is pruned if it is left behind
        os.close(os.open(self._name(name), _NEW, 0o600, dir_fd=self._handle))
        os.unlink(self._name(name), dir_fd=self._handle)

    def last_used(self) -> float:
        """When it was written to or marked."""
        state = self._now()
        return 0.0 if state is None else state.st_mtime

    def mark_used(self) -> None:
        os.utime(self.path if self._handle is None else self._handle)


_OPEN: dict[Path, Folder] = {}  # a process has one, and tests have more
_MOST_OPEN = 8


def opened(path: Path, make: bool = False) -> Folder:
    """A folder that nobody else can have written to, opened once in a process.

    ``make``: with those above it, if it is not there; open to nobody else.
    """
    folder = _OPEN.get(path)
    if folder is not None and folder.is_there():
        return folder
    if HANDLES:
        folder = Folder(path, _walk(path, make))
    else:
        if make:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.stat()
        folder = Folder(path, None)
    weakref.finalize(folder, _close, folder._handle, folder._id)
    _OPEN.pop(path, None)
    while len(_OPEN) >= _MOST_OPEN:
        _OPEN.pop(next(iter(_OPEN)))
    _OPEN[path] = folder
    return folder


def _close(handle: int | None, identity: tuple[int, int] | None) -> None:
    with suppress(OSError):
        if handle is not None and _identity(os.fstat(handle)) == identity:
            os.close(handle)


def check_below(path: Path) -> None:
    """Untrusted unless a folder, made if need be, and all that lies below it is ours alone.

    For numba's own cache, which uses it by name: nobody else can swap anything on the way.
    """
    if not HANDLES:
        return
    with opened(path.parent, make=True).inner(path.name, make=True) as folder:
        state = folder._now()
        is_closed = state is not None and not state.st_mode & 0o077
        for where, folders, files, at in os.fwalk(".", dir_fd=folder._handle):
            for name in (*folders, *files):
                found = os.stat(name, dir_fd=at, follow_symlinks=False)
                inner = path / where / name
                _check_owner(inner, found, _us())
                if not stat.S_ISDIR(found.st_mode):
                    _check_kind(inner, found)
                if not is_closed:  # or nobody else gets there, whatever its mode is
                    _check_mode(inner, found, path)


def _walk(path: Path, make: bool) -> int:
    """A handle of a folder after every step on the way to it was checked."""
    whole = path.absolute()
    top = Path(whole.anchor)
    ways = [(top, os.open(top, _ON_THE_WAY))]
    todo, links = [*reversed(whole.parts[1:])], 0
    try:
        _check_mode(top, os.fstat(ways[0][1]))  # whoever owns it owns us
        while todo:
            part, (where, at) = todo.pop(), ways[-1]
            if part == "..":
                if len(ways) > 1:
                    os.close(ways.pop()[1])
                continue
            here, found = where / part, _found(part, at, make)
            if stat.S_ISLNK(found.st_mode):
                links += 1
                target = _followed(here, found, part, at, links)
                if target.anchor:
                    while len(ways) > 1:
                        os.close(ways.pop()[1])
                todo += reversed(target.parts[1:] if target.anchor else target.parts)
                continue
            ways.append((here, os.open(part, _ON_THE_WAY, dir_fd=at)))
            _check_folder(here, os.fstat(ways[-1][1]))
        return os.open(".", _FOLDER, dir_fd=ways[-1][1])
    finally:
        for _, handle in ways:
            os.close(handle)


def _found(part: str, at: int, make: bool) -> os.stat_result:
    try:
        return os.stat(part, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(part, 0o700, dir_fd=at)
    return os.stat(part, dir_fd=at, follow_symlinks=False)


def _followed(path: Path, found: os.stat_result, part: str, at: int, links: int) -> Path:
    """Where a link leads, which lies in a folder that was checked."""
    _check_owner(path, found, {0, *_us()}, "it is a link that")
    if links > _MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return Path(os.readlink(part, dir_fd=at))


# ---------------------------------------------------------------------- what is checked


def _us() -> set[int]:
    return {os.geteuid()} if HANDLES else set()


def _check_folder(path: Path, found: os.stat_result, top: Path | None = None) -> None:
    """Without ``top``, one on the way."""
    if path.parent != path:
        _check_owner(path, found, {0, *_us()})
    _check_mode(path, found, top)


def _check_kind(path: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise Untrusted(path, "it is a link", "remove it")
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise Untrusted(path, "it is not a regular file", "remove it")


def _check_owner(path: Path, found: os.stat_result, trusted: set[int], what: str = "it") -> None:
    if HANDLES and found.st_uid not in trusted:
        raise Untrusted(path, f"{what} belongs to user {found.st_uid}", _ANOTHER)


def _check_mode(path: Path, found: os.stat_result, top: Path | None = None) -> None:
    """Without ``top``, of a folder on the way, which may be sticky."""
    mode = stat.S_IMODE(found.st_mode)
    if not HANDLES or not mode & _OTHERS or (top is None and mode & stat.S_ISVTX):
        return
    fix = "chmod go-w" if top is None else "chmod -R go-w"
    fix += f" {shlex.quote(str(path if top is None else top))}"
    advice = f"run `{fix}` if nobody else can have changed what is in it, or {_ANOTHER}"
    raise Untrusted(path, f"others can write to it (mode {mode:04o})", advice)


def _unless_link(path: Path, error: OSError) -> OSError:
    """The error to raise where something could not be opened, which may be because of a link."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR, getattr(errno, "EMLINK", None)):
        with suppress(OSError):
            if stat.S_ISLNK(os.lstat(path).st_mode):
                return Untrusted(path, "it is a link", "remove it")
    return error


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino
