"""Files of a run, by name, in its folder: none is written or removed outside, or through a link.

A folder may hold anything by the time a run comes back to it, and what its plan and manifest say
may have been written by anybody. So names are checked before they are used (:func:`inside`), and so
is what lies there (:func:`minfer.io.owned.look`); what goes is listed, and checked, before anything
does (:class:`Contents`).

``part-000007.conllu`` holds the answers of shard 7 in the order of its records, and
``part-000007.errors.jsonl`` its bad records with place and reason, if there are any; each is
complete or not there at all. Equal input gives equal bytes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from minfer.errors import FormatError, RefusedError, SettingsError
from minfer.io.owned import act as _act
from minfer.io.owned import check_ours, json_line, look
from minfer.io.text import atomic_write, cannot_write

if TYPE_CHECKING:
    from minfer.batch.shards import Shard

PLAN = "plan.jsonl"
MANIFEST = "manifest.jsonl"
BEGUN = "begun.jsonl"
LOCK = ".lock"
PICTURES = "pictures"

_PART = re.compile(r"part-\d{6,}(\.[a-z]+)+")
_TEMPORARY = re.compile(r"\.minfer-[0-9a-f]+\.tmp")  # a file's name until it is complete
_BEGINNING = b'{"settings": '  # of a plan

Parts = tuple[str, ...]


def has_plan(folder: Path) -> bool:
    """Whether there is a plan; FormatError if a file of that name is there that is not minfer's."""
    return check_ours(folder / PLAN, "a plan that minfer wrote", _is_plan)


def _is_plan(path: Path) -> bool:
    """Whether the first line is that of a plan; what comes after it may be damaged."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(_BEGINNING))
            head = json.loads(start + file.readline()) if start == _BEGINNING else {}
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        return False
    settings = head.get("settings")
    return isinstance(settings, dict) and "minfer" in settings and "inputs" in head


def inside(name: str) -> Parts | None:
    """The parts of an output file's name; None if batches write no file of that name."""
    path = PurePath(name)
    if not path.parts or str(path) != name or path.anchor or ".." in path.parts or "\0" in name:
        return None
    if len(path.parts) == 1:
        return path.parts if _PART.fullmatch(name) else None
    return path.parts if path.parts[0] == PICTURES and path.suffix == ".png" else None


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
    with atomic_write(path, follow=False) as file:
        yield file


class Contents:
    """What is a run's own of all that lies in its folder; its output's names are :func:`inside`.

    FormatError or RefusedError if something else is there too, or in the place of a name.
    """

    def __init__(self, folder: Path, names: Iterable[str] = ()) -> None:
        self.folder = folder
        listed = sorted({PurePath(name).parts for name in names})
        self.files = [parts for parts in listed if look(folder, *parts)]  # that are there
        self.folders = folders_of(listed)  # above the names, the deepest first
        self._begun = has_plan(folder)
        books = {(name,) for name in (PLAN, MANIFEST, BEGUN, LOCK) if look(folder, name)}
        known = {*books, *self.files} if self._begun else {(LOCK,)}
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
                elif not (_is_temporary(entry) and (self._begun or _is_half_a_plan(entry))):
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


def _is_half_a_plan(entry: os.DirEntry[str]) -> bool:
    """Whether a temporary file, in a folder without a plan, is what a killed process left of it."""
    with open(entry.path, "rb") as file:
        start = file.read(len(_BEGINNING))
    return _BEGINNING.startswith(start)


def part_name(number: int, format: str) -> str:
    """The file of a shard's answers."""
    return f"part-{number:06d}.{'jsonl' if format == 'png' else format}"


def errors_name(number: int) -> str:
    """The file of a shard's bad records."""
    return f"part-{number:06d}.errors.jsonl"


def picture_name(id: str) -> str:
    """The file of a clean picture, below the folder of the output."""
    return os.path.join(PICTURES, os.path.splitext(id)[0] + ".png")


def names_of(shard: Shard, format: str) -> list[str]:
    """All files that a shard may write."""
    pictures = [picture_name(name) for _, name in shard.files] if format == "png" else []
    return [part_name(shard.number, format), errors_name(shard.number), *pictures]


@contextmanager
def open_sink(
    folder: str, number: int, format: str, schema: pa.Schema
) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    """Where to put the answers of a shard; its file is there when the block has ended."""
    with ExitStack() as stack:
        file = stack.enter_context(written(folder, part_name(number, format)))
        if format == "parquet":
            yield stack.enter_context(pq.ParquetWriter(file, schema)).write_batch
        elif format.startswith("conllu"):
            yield lambda batch: file.writelines(
                f"{text}\n\n".encode() for text in batch.column("conllu").to_pylist()
            )
        elif format.startswith("jsonl"):
            yield lambda batch: file.writelines(map(json_line, batch.to_pylist()))
        elif format == "png":
            yield lambda batch: _write_pictures(folder, file, batch)
        else:
            raise SettingsError(f"there is no output format {format!r}")


def _write_pictures(folder: str, file: BinaryIO, batch: pa.RecordBatch) -> None:
    """Each picture under its own name, so that a shard done twice leaves what it left once."""
    for row in batch.to_pylist():
        name = picture_name(row["id"])
        with written(folder, name) as picture:
            picture.write(row.pop("clean"))
        file.write(json_line({**row, "picture": name}))


class Errors(ExitStack):
    """The bad records of a shard; no file if there are none."""

    def __init__(self, folder: str, number: int) -> None:
        super().__init__()
        self.folder, self.name, self.count = folder, errors_name(number), 0

    def __call__(self, place: str, id: str | None, reason: str) -> None:
        if not self.count:
            self._file = self.enter_context(written(self.folder, self.name))
        self.count += 1
        self._file.write(json_line({"place": place, "id": id, "error": reason}))
