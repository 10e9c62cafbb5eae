"""What was planned, begun and done, in files that survive the process at any moment.

``plan.jsonl`` is written once, whole: settings and inputs in its first line, then a line for each
shard. ``manifest.jsonl`` gets a line for each shard that is done, after its output is in place. A
shard is done again, which gives the same output, if its line was cut off by a crash or its files
are not of the size that the line tells; of two lines for a shard the later one counts.

``begun.jsonl`` names the files of a shard before any of them is written, so that what a killed
process leaves is known as its own. No file is removed or replaced that neither of the two names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from minfer.batch.folder import (
    BEGUN,
    LOCK,
    MANIFEST,
    PLAN,
    Contents,
    folders_of,
    has_plan,
    inside,
    names_of,
    sweep,
)
from minfer.batch.shards import KINDS, InputFile, Shard, digest
from minfer.errors import FormatError, RefusedError
from minfer.io.owned import Lines, appended, json_line, look
from minfer.io.text import atomic_write, cannot_write, check_path


@dataclass(frozen=True)
class BatchPlan:
    """Settings, inputs and shards of a run."""

    settings: dict[str, Any]
    inputs: list[InputFile]
    shards: list[Shard]

    def save(self, folder: Path) -> None:
        head = {"settings": self.settings, "inputs": self.inputs}
        lines = [json_line(head), *(json_line(shard._asdict()) for shard in self.shards)]
        with atomic_write(folder / PLAN, follow=False) as file:
            file.write(b"".join(lines))

    @classmethod
    def load(cls, folder: Path) -> BatchPlan:
        path = folder / PLAN
        check_path(path)
        try:
            has_plan(folder)
            lines = path.read_bytes().splitlines()
        except (FileNotFoundError, NotADirectoryError):
            raise FormatError(f"{folder} holds no batch run: there is no {PLAN}") from None
        except OSError as error:
            raise FormatError(f"cannot read {path}: {error.strerror}") from None
        number, shards = 1, list[Shard]()
        try:
            head = json.loads(lines[0] if lines else b"")
            settings, inputs = dict(head["settings"]), [InputFile(*item) for item in head["inputs"]]
            for line in lines[1:]:
                number += 1
                shards.append(_shard(json.loads(line), len(shards)))
                if not all(map(_is_output, names_of(shards[-1], settings["format"]))):
                    raise ValueError("a name leads out of the folder")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise FormatError(
                f"{path}: line {number}: damaged ({type(error).__name__}: {error}): start over "
                "with fresh=True"
            ) from None
        return cls(settings, inputs, shards)


def _shard(fields: dict[str, Any], number: int) -> Shard:
    shard = Shard(**fields)
    files = tuple((file, name) for file, name in shard.files)
    counts = shard.start, shard.size, *(() if shard.stop is None else (shard.stop,))
    texts = shard.file, *(text for pair in files for text in pair)
    if shard.number != number or not all(map(_is_count, counts)):
        raise ValueError(f"shard {number} is expected")
    if not all(isinstance(text, str) for text in texts) or (shard.kind == "file") != bool(files):
        raise ValueError("a shard has the names of its files")
    if shard.kind not in KINDS:
        raise ValueError(f"there is no kind {shard.kind!r}")
    return shard._replace(files=files)


class Manifest:
    """What was noted of the ``shards`` of a run; None if it is not known how many it has."""

    def __init__(self, folder: Path, shards: int | None = None) -> None:
        self._folder = folder
        self._done, self._begun = Lines(folder / MANIFEST), Lines(folder / BEGUN)
        self.lines: dict[int, dict[str, Any]] = {}  # by number of shard, the latest
        self.names: set[str] = set()  # of all files that any line lists, or that were begun
        for number, line in enumerate(self._done.content, 1):
            if fault := _fault(line, shards):
                raise self._done.wrong(number, fault)
            self.lines[line["shard"]] = line
            self.names.update(line["files"])
        for number, names in enumerate(self._begun.content, 1):
            if not isinstance(names, list) or not all(map(_is_output, names)):
                raise self._begun.wrong(number, "no list of names of output files")
            self.names.update(names)
        #: Those of the lines whose files are there, as large as they were written.
        self.done = {k: line for k, line in self.lines.items() if _intact(folder, line)}

    def check(self, names: Iterable[str]) -> list[str]:
        """Those that were not noted yet; RefusedError if a file of such a name is there already."""
        new = [name for name in names if name not in self.names]
        for name in new:
            if look(self._folder, *PurePath(name).parts):
                raise RefusedError(
                    f"{self._folder / name} is not of this run and would be overwritten: move it "
                    "away, or name another folder"
                )
        return new

    def begin(self, names: Iterable[str]) -> None:
        """Note files before they are written."""
        if new := self.check(names):
            self._begun.add(new)
            self.names.update(new)

    def add(self, line: dict[str, Any]) -> None:
        """Append a line, on disk when this returns."""
        self._done.add(line, sync=True)
        self.lines[line["shard"]] = self.done[line["shard"]] = line


def _fault(line: Any, shards: int | None) -> str | None:
    """What is wrong with a line of the manifest, if anything."""
    if not isinstance(line, dict):
        return f"a record is a JSON object, not {json.dumps(line)[:40]}"
    for key in ("shard", "rows", "errors", "bytes"):
        if not _is_count(line.get(key)):
            return f"a record has a number `{key}`, 0 or more; here is {_told(line, key)}"
    if not isinstance(line.get("sha256"), str):
        return f"a record has a text `sha256`; here is {_told(line, 'sha256')}"
    if shards is not None and line["shard"] >= shards:
        return f"shard {line['shard']} is not one of the {shards} in the plan"
    files = line.get("files")
    if not isinstance(files, dict) or not files:
        return f"a record has an object `files`, names and sizes; here is {_told(line, 'files')}"
    for name, size in files.items():
        if not _is_output(name):
            return f"{name!r} is not the name of an output file"
        if not _is_count(size):
            return f"the size of {name!r} is a number, 0 or more, not {json.dumps(size)[:40]}"
    return None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_output(name: Any) -> bool:
    return isinstance(name, str) and inside(name) is not None


def _told(line: dict[str, Any], key: str) -> str:
    return json.dumps(line[key])[:40] if key in line else "none"


def _intact(folder: Path, line: dict[str, Any]) -> bool:
    try:
        return all((folder / name).stat().st_size == size for name, size in line["files"].items())
    except OSError:
        return False


@dataclass(frozen=True)
class Start:
    """A run that nothing speaks against, before anything was written or removed for it."""

    folder: Path
    plan: BatchPlan  # new, or what the folder holds
    manifest: Manifest | None  # of a run that goes on
    old: Contents | None  # of a new run, what is to be removed first

    @property
    def left(self) -> list[Shard]:
        """Shards to be done."""
        done = {} if self.manifest is None else self.manifest.done
        return [shard for shard in self.plan.shards if shard.number not in done]

    def ready(self) -> Manifest:
        """Make the folder ready to go on."""
        if self.old is not None:
            self.old.remove()
            self.plan.save(self.folder)
        self.sweep()
        return self.manifest or Manifest(self.folder)

    def sweep(self) -> None:
        """Remove what is half written."""
        format = self.plan.settings["format"]
        names = (name for shard in self.plan.shards for name in names_of(shard, format))
        sweep(self.folder, folders_of(filter(None, map(inside, names))))


def prepare(
    folder: Path,
    settings: dict[str, Any],
    inputs: list[InputFile],
    cut: Callable[[], list[Shard]],
    fresh: bool = False,
) -> Start:
    """How to begin in a folder that is new or holds a run of the same kind; ``fresh``, of any.

    RefusedError if it holds anything else; nothing is changed here.
    """
    begun = has_plan(folder)
    for name in (MANIFEST, BEGUN):
        look(folder, name)
    if fresh or not begun:
        old = Contents(folder, Manifest(folder).names if begun else ())
        going = {str(folder.resolve().joinpath(*parts)) for parts in old.files}
        for item in inputs:
            if going and os.path.realpath(item.file) in going:
                raise RefusedError(
                    f"{item.file} is output of the run that {folder} holds, and input of this one: "
                    "name another folder"
                )
        return Start(folder, BatchPlan(settings, inputs, cut()), None, old)
    plan = BatchPlan.load(folder)
    manifest = Manifest(folder, len(plan.shards))
    _compare(folder, plan, settings, inputs, manifest)
    start = Start(folder, plan, manifest, None)
    for shard in start.left:
        manifest.check(names_of(shard, settings["format"]))
    return start


def _compare(
    folder: Path,
    plan: BatchPlan,
    settings: dict[str, Any],
    inputs: list[InputFile],
    manifest: Manifest,
) -> None:
    """Refuse to go on if anything that the answers depend on has changed."""
    advice = "name another folder, or start over with fresh=True"
    pairs = {k: (plan.settings.get(k), settings.get(k)) for k in {*plan.settings, *settings}}
    other = [
        f"{name} was {_short(old)}, is {_short(new)}"
        for name, (old, new) in sorted(pairs.items())
        if _content(old) != _content(new)
    ]
    if other:
        raise RefusedError(
            f"{folder} holds a run with other settings: {', '.join(other)}; {advice}"
        )
    if [i.file for i in plan.inputs] != [i.file for i in inputs]:
        raise RefusedError(f"{folder} holds a run over other input files: {advice}")
    changed = set()
    for then, now in zip(plan.inputs, inputs):
        if then.size != now.size:
            raise RefusedError(f"{now.file} has changed since {folder} was begun: {advice}")
        if then.modified != now.modified:
            changed.add(now.file)
    for shard in plan.shards:
        files = {shard.file, *(file for file, _ in shard.files)}
        line = manifest.lines.get(shard.number)
        if line and files & changed and digest(shard) != line["sha256"]:
            raise RefusedError(f"{shard.label} has changed since it was done: {advice}")


def _content(value: Any) -> Any:
    """What matters of a setting: of a file its hash, whatever its name."""
    return value["sha256"] if isinstance(value, dict) and "sha256" in value else value


def _short(value: Any) -> str:
    """A setting as messages tell it."""
    if isinstance(value, dict) and "sha256" in value:
        return f"{value.get('file')} ({str(value['sha256'])[:8]})"
    return str(value)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder for one process at a time; the lock goes with the process, however it ends."""
    look(folder, LOCK)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(appended(folder / LOCK))
        except OSError as error:
            raise cannot_write(folder / LOCK, error) from None
        if not _take(file):
            raise RefusedError(f"another process is at work in {folder}")
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process is at work in a folder."""
    with suppress(OSError), open(folder / LOCK, "rb") as file:
        return not _take(file)
    return False


def _take(file: Any) -> bool:
    try:
        import fcntl
    except ImportError:  # not on this system: nobody is kept out
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
