"""What was planned and what is done, in files that survive the process at any moment.

``plan.jsonl`` is written once, whole: settings and inputs in its first line, then a line for each
shard. ``manifest.jsonl`` gets a line for each shard that is done, after its output is in place. A
line cut off by a crash is no line: its shard is done again, which gives the same output. So is a
shard whose files are no longer there, or no longer of the size that its line tells; of two lines
for a shard the later one counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minfer.batch.shards import Input, Shard, digest
from minfer.batch.sinks import MANIFEST, PLAN, json_line
from minfer.errors import FormatError, MinferError, RefusedError
from minfer.io.text import write_bytes

LOCK = ".lock"


@dataclass(frozen=True)
class Plan:
    """Settings, inputs and shards of a run."""

    settings: dict[str, Any]
    inputs: list[Input]
    shards: list[Shard]

    def save(self, folder: Path) -> None:
        head = {"settings": self.settings, "inputs": self.inputs}
        lines = [json_line(head), *(json_line(shard._asdict()) for shard in self.shards)]
        write_bytes(folder / PLAN, b"".join(lines))

    @classmethod
    def load(cls, folder: Path) -> Plan:
        path = folder / PLAN
        try:
            with open(path, encoding="utf-8") as file:
                head = json.loads(next(file))
                shards = [Shard(**json.loads(line)) for line in file]
        except FileNotFoundError:
            raise FormatError(f"{folder} holds no batch run: there is no {PLAN}") from None
        except (ValueError, TypeError, StopIteration) as error:
            raise FormatError(f"{path} is damaged ({error}): start over with --fresh") from None
        files = [s._replace(files=tuple((f, n) for f, n in s.files)) for s in shards]
        return cls(head["settings"], [Input(*item) for item in head["inputs"]], files)


class Manifest:
    """What was noted of shards, by number: all ``lines``, and those whose files are ``done``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / MANIFEST
        self.lines: dict[int, dict[str, Any]] = {}
        data = self.path.read_bytes() if self.path.exists() else b""
        self._good = 0  # bytes of whole lines
        for line in data.splitlines(keepends=True):
            try:
                content = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                content = None
            if content is None:
                break
            self._good += len(line)
            self.lines[content["shard"]] = content
        self.done = {k: line for k, line in self.lines.items() if _intact(folder, line)}

    def add(self, line: dict[str, Any]) -> None:
        """Append a line, on disk when this returns."""
        with open(self.path, "ab") as file:
            file.truncate(self._good)
            self._good += file.write(json_line(line))
            file.flush()
            os.fsync(file.fileno())
        self.lines[line["shard"]] = self.done[line["shard"]] = line


def _intact(folder: Path, line: dict[str, Any]) -> bool:
    """Whether the files of a shard are there, as large as they were written."""
    try:
        return all((folder / name).stat().st_size == size for name, size in line["files"].items())
    except (OSError, KeyError):
        return False


def prepare(
    folder: Path, settings: dict[str, Any], inputs: list[Input], cut: Callable[[], list[Shard]]
) -> tuple[Plan, Manifest]:
    """The plan and what of it is done, in a folder that is new or holds a run of the same kind."""
    if not (folder / PLAN).exists():
        if any(path.name != LOCK for path in folder.iterdir()):
            raise RefusedError(f"{folder} holds other files: name a new or empty folder")
        plan = Plan(settings, inputs, cut())
        plan.save(folder)
        return plan, Manifest(folder)
    plan, manifest = Plan.load(folder), Manifest(folder)
    _compare(folder, plan, settings, inputs, manifest)
    sweep(folder)
    return plan, manifest


def _compare(
    folder: Path, plan: Plan, settings: dict[str, Any], inputs: list[Input], manifest: Manifest
) -> None:
    """Refuse to go on if anything that the answers depend on has changed."""
    advice = "name another folder, or start over with --fresh"
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
        return f"{value['file']} ({value['sha256'][:8]})"
    return str(value)


def sweep(folder: Path) -> None:
    """Remove what a killed process had begun to write."""
    for path in folder.rglob(".minfer-*.tmp"):
        path.unlink(missing_ok=True)


def clear(folder: Path) -> None:
    """Remove a run from its folder, and nothing else."""
    if not (folder / PLAN).exists():
        return
    for path in [*folder.glob("part-*"), *(folder / "pictures").rglob("*.png")]:
        path.unlink(missing_ok=True)
    sweep(folder)
    (folder / MANIFEST).unlink(missing_ok=True)
    (folder / PLAN).unlink()  # last: until then the folder is known as ours


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder for one process at a time; the lock goes with the process, however it ends."""
    with open(folder / LOCK, "ab") as file:
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


def made(folder: Path) -> Path:
    """The folder, which is created if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MinferError(f"cannot write {folder}: {error.strerror}") from None
    return folder
