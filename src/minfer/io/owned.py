"""Files whose names we make up: none is removed or replaced before it is known to be ours.

What a user names as an output may be overwritten, whole or not at all
(:func:`minfer.io.atomic_write`), if it is none of the inputs. A name that we derive, such as
``MODEL.checkpoint`` or ``models/000000.minfer``, may be something else's by chance. A file of such
a name is ours

* if a book beside it has its name and the SHA-256 of its content, noted before the file was
  written (:class:`Owned`); batches have books of their own (:mod:`minfer.batch.manifest`);
* or if its first bytes say so (:func:`discard`).

Anything else is an error before anything was touched. No link is followed,
and none is replaced. Nothing else in this package removes or replaces files, apart from
``atomic_write`` and the kernel cache (``tests/test_writers.py``).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from minfer.errors import FormatError, MinferError, RefusedError, SettingsError
from minfer.io.text import PathLike, atomic_write, cannot_write, make_folder

#: The book of a folder in which we write files under names of our own.
BOOK = "minfer-files.jsonl"
_HEAD = {"minfer": "files that minfer wrote here"}


# ---------------------------------------------------------------------- what lies there


def look(folder: Path, *parts: str) -> bool:
    """Whether a file is there; RefusedError if it, or a folder on the way, is something else."""
    return enter(folder, parts[:-1]) and _is(folder.joinpath(*parts), stat.S_ISREG, "file")


def enter(folder: Path, parts: tuple[str, ...]) -> bool:
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
            f"{path} is {'a link' if stat.S_ISLNK(mode) else f'not a {word}'}, which minfer does "
            "not leave there: move it away, or name another place"
        )
    return True


def check_apart(path: PathLike, what: str, inputs: Iterable[PathLike | None]) -> None:
    """SettingsError if a file that we would write under a name of our own is one of the inputs."""
    for source in inputs:
        with suppress(OSError):
            if source is not None and os.path.samefile(path, source):
                raise SettingsError(
                    f"{os.fspath(path)} is {what}, and it is also an input: name another output"
                )


# ---------------------------------------------------------------------- removing


def act(action: Callable[..., None], folder: Path, *parts: str) -> None:
    """Unlink or rmdir what is there; folders on the way are entered only if they are not links."""
    path = folder.joinpath(*parts)
    try:
        if not hasattr(os, "O_NOFOLLOW") or action not in os.supports_dir_fd:
            if enter(folder, parts[:-1]):
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


def check_ours(path: Path, what: str, is_ours: Callable[[Path], bool]) -> bool:
    """Whether a file is there that says itself what it is; FormatError if it is something else."""
    if not look(path.parent, path.name):
        return False
    if not is_ours(path):
        raise FormatError(
            f"{path} is not {what}, and that is where one would be kept: move it away, or name "
            "another output"
        )
    return True


def discard(path: Path, what: str, is_ours: Callable[[Path], bool]) -> None:
    """Remove a file that says itself what it is, if it is there."""
    if check_ours(path, what, is_ours):
        act(os.unlink, path.parent, path.name)


# ---------------------------------------------------------------------- books


def appended(path: Path) -> BinaryIO:
    """A file of ours to add to; a link in its place is an error."""
    no_link = getattr(os, "O_NOFOLLOW", 0)
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags | no_link, 0o666))


def json_line(content: Any) -> bytes:
    """One line of JSON."""
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"


class Lines:
    """A file of JSON lines that only grows; a last one without its end, cut off, is not a line.

    Attributes
    ----------
    content : of the lines, in order
    """

    advice = "remove the line, and its shard is done again"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: list[Any] = []
        self._good = 0  # bytes of whole lines
        data = path.read_bytes() if path.exists() else b""
        for number, line in enumerate(data.split(b"\n")[:-1], 1):
            try:
                self.content.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise self.wrong(number, f"not JSON ({error})") from None
            self._good += len(line) + 1

    def wrong(self, number: int, what: str) -> FormatError:
        """The error to raise about a line."""
        return FormatError(f"{self.path}: line {number}: {what}: {self.advice}")

    def add(self, line: Any, sync: bool = False) -> None:
        """Append a line; ``sync`` has it on disk when this returns."""
        try:
            with appended(self.path) as file:
                file.truncate(self._good)
                self._good += file.write(json_line(line))
                file.flush()
                if sync:
                    os.fsync(file.fileno())
        except OSError as error:
            raise cannot_write(self.path, error) from None


class _Book(Lines):
    advice = "move the file away, and the files it lists"


class Owned:
    """Files in a folder under names of our own; others may lie there too.

    Parameters
    ----------
    folder : made when something is written

    Raises
    ------
    FormatError, RefusedError : the folder has a file of the name of our book that is none
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        look(folder, BOOK)
        self._book = _Book(folder / BOOK)
        self._known: dict[str, set[str]] = {}
        if self._book.content[:1] != [_HEAD] and not self._is_new():
            raise RefusedError(
                f"{folder / BOOK} is not a list of files that minfer wrote: name another folder"
            )
        for number, line in enumerate(self._book.content[1:], 2):
            try:
                name, content = line["name"], line["sha256"]
                self._known.setdefault(name, set()).add(content)
            except (TypeError, KeyError):
                raise self._book.wrong(number, "not a name and a SHA-256") from None

    def _is_new(self) -> bool:
        """Whether there is no book, or not all of its first line."""
        path = self.folder / BOOK
        return not path.exists() or json_line(_HEAD).startswith(path.read_bytes())

    def check(self, *names: str) -> None:
        """RefusedError if a file of one of these names is there that we did not write."""
        for name in names:
            self._there(name)

    def write(self, name: str, data: bytes) -> None:
        """A whole file. One that has this content already stays, whoever wrote it."""
        there = look(self.folder, *_parts(name))
        if there and _digest(self._path(name)) == _hash(data):
            return
        self._there(name)
        make_folder(self._path(name).parent)
        if not self._book.content:
            self._book.add(_HEAD)
            self._book.content.append(_HEAD)
        self._known.setdefault(name, set()).add(_hash(data))
        self._book.add({"name": name, "sha256": _hash(data)}, sync=True)
        with atomic_write(self._path(name), follow=False) as file:
            file.write(data)

    def keep_only(self, folder: str, names: Iterable[str]) -> None:
        """Remove what we once wrote below a folder, apart from these names."""
        kept = set(names)
        for name in sorted(self._known):
            if name not in kept and _parts(name)[:-1] == _parts(folder) and self._is_ours(name):
                act(os.unlink, self.folder, *_parts(name))

    def _there(self, name: str) -> bool:
        if not look(self.folder, *_parts(name)):
            return False
        if not self._is_ours(name):
            raise RefusedError(
                f"{self._path(name)} is not as minfer wrote it, or not minfer's at all, and would "
                "be overwritten: move it away, or name another folder"
            )
        return True

    def _is_ours(self, name: str) -> bool:
        """Whether it lies there as it was written."""
        if name not in self._known or not look(self.folder, *_parts(name)):
            return False
        return _digest(self._path(name)) in self._known[name]

    def _path(self, name: str) -> Path:
        return self.folder.joinpath(*_parts(name))


def _parts(name: str) -> tuple[str, ...]:
    parts = PurePath(name).parts
    if not parts or PurePath(name).anchor or ".." in parts or "\0" in name:
        raise RefusedError(f"{name!r} is not the name of a file below a folder")
    return parts


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}") from None
