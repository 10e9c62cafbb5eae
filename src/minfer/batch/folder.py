"""Files of a run, by name, in its folder: none is written or removed outside, or through a link.

A folder may hold anything by the time a run comes back to it, and what its plan and manifest say
may have been written by anybody. So names are checked before they are used (:func:`inside`), and so
is what lies there (:func:`look`); what goes is listed, and checked, before anything does
(:class:`Contents`).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePath
from typing import BinaryIO

from minfer.errors import MinferError, RefusedError
from minfer.io.text import atomic_write, cannot_write

PLAN = "plan.jsonl"
MANIFEST = "manifest.jsonl"
BEGUN = "begun.jsonl"
LOCK = ".lock"
PICTURES = "pictures"

_PART = re.compile(r"part-\d{6,}(\.[a-z]+)+")
_TEMPORARY = re.compile(r"\.minfer-.*\.tmp", re.DOTALL)  # a file's name until it is complete

Parts = tuple[str, ...]


def inside(name: str) -> Parts | None:
    """The parts of an output file's name; None if batches write no file of that name."""
    path = PurePath(name)
    if not path.parts or str(path) != name or path.anchor or ".." in path.parts or "\0" in name:
        return None
    if len(path.parts) == 1:
        return path.parts if _PART.fullmatch(name) else None
    return path.parts if path.parts[0] == PICTURES and path.suffix == ".png" else None


def look(folder: Path, *parts: str) -> bool:
    """Whether a file is there; RefusedError if it, or a folder on the way, is something else."""
    return _enter(folder, parts[:-1]) and _is(folder.joinpath(*parts), stat.S_ISREG, "file")


def _enter(folder: Path, parts: Parts) -> bool:
    """Whether a folder below is there; RefusedError if it, or one on the way, is none."""
    ways = (folder.joinpath(*parts[: k + 1]) for k in range(len(parts)))
    return all(_is(way, stat.S_ISDIR, "folder") for way in ways)


def _is(path: Path, kind: Callable[[int], bool], word: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    if not kind(mode):
        raise RefusedError(
            f"{path} is {'a link' if stat.S_ISLNK(mode) else f'not a {word}'}, which no batch run "
            "leaves there: move it away, or name another folder"
        )
    return True


@contextmanager
def written(folder: str, name: str) -> Iterator[BinaryIO]:
    """An output file that appears when complete (:func:`minfer.io.atomic_write`)."""
    path, parts = os.path.join(folder, name), inside(name)
    if parts is None:
        raise RefusedError(f"{name!r} is not the name of an output file in {folder}")
    look(Path(folder), *parts)
    if parts[1:]:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise cannot_write(path, error) from None
    with atomic_write(path) as file:
        yield file


class Contents:
    """What is a run's own of all that lies in its folder.

    Parameters
    ----------
    folder : of the run
    names : of its output files, each :func:`inside`, there or not

    Attributes
    ----------
    files : those of the names that are there
    folders : the folders above the names, the deepest first

    Raises
    ------
    RefusedError : something else is there too, or in the place of a name
    """

    def __init__(self, folder: Path, names: Iterable[str] = ()) -> None:
        self.folder = folder
        listed = sorted({PurePath(name).parts for name in names})
        self.files = [parts for parts in listed if look(folder, *parts)]
        self.folders = folders_of(listed)
        books = {(name,) for name in (PLAN, MANIFEST, BEGUN, LOCK) if look(folder, name)}
        known = {*books, *self.files} if (PLAN,) in books else {(LOCK,)}
        for parts in self._found((), set(self.folders)):
            if parts not in known:
                raise RefusedError(
                    f"{folder} holds other files, such as {os.path.join(*parts)}: move them away, "
                    "or name a new or empty folder"
                )
        for top in {parts[:-1] for parts in self.files}:
            if not os.access(path := folder.joinpath(*top), os.W_OK | os.X_OK):
                raise RefusedError(f"cannot remove files from {path}: no permission to write there")

    def _found(self, top: Parts, own: set[Parts]) -> Iterator[Parts]:
        """All that lies here and in the run's own folders, apart from what is half written."""
        with os.scandir(self.folder.joinpath(*top)) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                parts = (*top, entry.name)
                if parts in own and entry.is_dir(follow_symlinks=False):
                    yield from self._found(parts, own)
                elif not _is_temporary(entry):
                    yield parts

    def remove(self) -> None:
        """Remove the run; until the very end the folder is known as its own."""
        for parts in self.files:
            _act(os.unlink, self.folder, *parts)
        sweep(self.folder, self.folders)
        for parts in self.folders:
            _act(os.rmdir, self.folder, *parts)
        for name in (BEGUN, MANIFEST, PLAN):
            _act(os.unlink, self.folder, name)


def folders_of(names: Iterable[Parts]) -> list[Parts]:
    """The folders above some names, the deepest first."""
    above = {parts[:k] for parts in names for k in range(1, len(parts))}
    return sorted(above, key=lambda parts: (-len(parts), parts))


def sweep(folder: Path, folders: Iterable[Parts] = ()) -> None:
    """Remove what a killed process had begun to write here, and in folders below."""
    for top in ((), *folders):
        with suppress(FileNotFoundError), os.scandir(folder.joinpath(*top)) as entries:
            for entry in entries:
                if _is_temporary(entry):
                    _act(os.unlink, folder, *top, entry.name)


def _is_temporary(entry: os.DirEntry[str]) -> bool:
    return bool(_TEMPORARY.fullmatch(entry.name)) and entry.is_file(follow_symlinks=False)


def _act(action: Callable[..., None], folder: Path, *parts: str) -> None:
    """Unlink or rmdir what is there; folders on the way are entered only if they are not links."""
    path = folder.joinpath(*parts)
    try:
        if not hasattr(os, "O_NOFOLLOW") or action not in os.supports_dir_fd:
            if _enter(folder, parts[:-1]):
                action(path)
            return
        with ExitStack() as stack:
            at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, at)
            for part in parts[:-1]:
                at = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                stack.callback(os.close, at)
            action(parts[-1], dir_fd=at)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise MinferError(f"cannot remove {path}: {error.strerror}") from None
