"""A batch run: plan, hand shards to an engine, note what is done.

    inputs -> shards -> [ read -> job's function -> write ] for each -> manifest

The bracket is a :class:`~minfer.batch.processor.Processor`, the same under every engine: in this
process, in a pool of processes, in Ray's actors.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import minfer
from minfer.basics.parallel import cores
from minfer.basics.words import counted, duration
from minfer.batch import manifest as files
from minfer.batch.folder import names_of
from minfer.batch.jobs import Job, check_format
from minfer.batch.processor import Begin, Engine, Outcomes, Task, local_engine
from minfer.batch.shards import SHARD_BYTES, Shard, cut, find_inputs
from minfer.errors import DiskFullError, MinferError, SettingsError, WorkerError
from minfer.io.text import check_path, make_folder

ENGINES = ("local", "ray")
ON_ERROR = ("skip", "fail")


@dataclass(frozen=True)
class Progress:
    """How far a run has got."""

    shards: int  # planned
    done: int = 0  # in this run or an earlier one
    missing: int = 0  # done once, but their files are gone or changed: to be done again
    rows: int = 0  # answers so far
    errors: int = 0  # bad records so far
    bytes: int = 0  # of the input
    bytes_done: int = 0
    new_rows: int = 0  # of this run alone
    new_bytes: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Records a second, in this run."""
        return self.new_rows / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """By the bytes that are left; None if nothing is known yet."""
        if not self.new_bytes:
            return None
        return self.seconds * (self.bytes - self.bytes_done) / self.new_bytes

    def __str__(self) -> str:
        records = counted(self.rows + self.errors, "record")
        text = f"{self.done:,} of {counted(self.shards, 'shard')}, {records}"
        if self.errors:
            text += f" ({self.errors:,} of them bad)"
        if self.new_rows:
            text += f"; {self.rate:,.0f} a second"
        if (left := self.seconds_left) is not None and self.done < self.shards:
            text += f", {duration(left)} left"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON."""
        return {
            "shards": self.shards,
            "done": self.done,
            "missing": self.missing,
            "records": self.rows + self.errors,
            "answered": self.rows,
            "errors": self.errors,
            "seconds": self.seconds,
            "records_per_second": self.rate,
        }

    def summary(self, running: bool = False) -> dict[str, str]:
        """What is done, answered, bad and lost."""
        unfinished = "running" if running else "not finished"
        lines = {
            "state": "done" if self.done == self.shards else unfinished,
            "shards": f"{self.done:,} of {self.shards:,}",
            "records": f"{self.rows + self.errors:,}",
            "answered": f"{self.rows:,}",
            "bad": f"{self.errors:,}",
        }
        if self.missing:
            parts = counted(self.missing, "part")
            lines["lost"] = f"{parts} missing or changed: run the same command again"
        if self.new_rows:
            rate = counted(round(self.rate), "record")
            lines["time"] = f"{duration(self.seconds)}, {rate} a second"
        return lines

    def after(self, line: dict[str, Any]) -> Progress:
        """With one more shard."""
        return replace(
            self,
            done=self.done + 1,
            rows=self.rows + line["rows"],
            errors=self.errors + line["errors"],
            bytes_done=self.bytes_done + line["bytes"],
        )


def complaint(state: Progress, out: str | os.PathLike[str]) -> str:
    """How many records are bad, and where in the output folder it is said; empty if none is."""
    if not state.errors:
        return ""
    answered = f"{state.rows:,} of {counted(state.rows + state.errors, 'record')} answered"
    answered = answered if state.rows else "no record could be answered"
    return f"{answered}, {state.errors:,} bad (see {os.fspath(out)}/part-*.errors.jsonl)"


def run(
    job: Job,
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    on_error: str = "skip",
    fresh: bool = False,
    shard_bytes: int = SHARD_BYTES,
    report: Callable[[Progress], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> Progress:
    """Do a job over files of any size, from where an earlier run of it ended.

    Parameters
    ----------
    job : ParseSentences, RunModels, PredictRows or DenoisePictures
    inputs : files, or folders of them
    out : folder of the output
    format : of the output, see ``job.formats``
    engine : ``local``, processes on this machine, or ``ray``
    workers : processes or actors; by default one for each core of this machine or of the cluster
    address : of a Ray cluster that is already running
    on_error : ``skip`` notes bad records in errors files, ``fail`` stops at the first
    fresh : start over: remove what an earlier run wrote to ``out``, after all other checks
    shard_bytes : input per shard; the most work that a kill can cost each worker
    report : called at the start and after every shard
    note : called with remarks about the inputs

    Raises
    ------
    RefusedError : ``out`` belongs to a run with other settings or inputs, or holds other files
    DiskFullError : what is done is kept, and the same call continues from there
    """
    _check(engine, workers, address, on_error, shard_bytes)
    check_path(out, "write")
    format = check_format(job, format)
    settings = {**job.settings(), "format": format, "shard_bytes": shard_bytes}
    settings["minfer"] = minfer.__version__
    found = find_inputs([os.fspath(path) for path in inputs], job, os.fspath(out), note)
    _check_names(found, format)
    job.check()
    folder = make_folder(Path(out))
    with files.locked(folder):
        start = files.prepare(folder, settings, found, lambda: cut(found, job, shard_bytes), fresh)
        task = Task(job, str(folder), format, on_error)
        if engine == "local":
            return _go_on(start, task, local_engine(task, workers or cores()), report)
        from minfer.batch.ray_engine import ray_engine

        return _go_on(start, task, ray_engine(task, workers, address), report)


def _go_on(
    start: files.Start,
    task: Task,
    engine: AbstractContextManager[Engine],
    report: Callable[[Progress], None] | None,
) -> Progress:
    left, state = start.left, Progress(len(start.plan.shards))
    manifest: files.Manifest | None = None
    lost: list[MinferError] = []
    try:
        with engine if left else nullcontext(_nothing) as do:
            if start.old is not None and start.old.files:
                task.job.start(task.format)  # it may refuse, and no output is gone yet
            manifest = start.ready()
            state, began = _sum(start.plan, manifest), time.perf_counter()
            if report:
                report(state)
            with closing(do(left, _noting(manifest, task.format))) as outcomes:
                for outcome in outcomes:
                    if isinstance(outcome, MinferError):
                        lost.append(outcome)
                        continue
                    manifest.add(outcome)
                    state = replace(
                        state.after(outcome),
                        new_rows=state.new_rows + outcome["rows"] + outcome["errors"],
                        new_bytes=state.new_bytes + outcome["bytes"],
                        seconds=time.perf_counter() - began,
                    )
                    if report:
                        report(state)
    except DiskFullError as error:
        raise DiskFullError(
            f"{error}; what is done stays ({state.done:,} of {counted(state.shards, 'shard')}): "
            "free some space, and the same command continues from there"
        ) from None
    finally:
        if manifest is not None:
            start.sweep()
    if lost:
        raise WorkerError(
            f"{len(lost)} of {state.shards} shards were given up, the first: {lost[0]}; "
            "the others are done, and another run tries these again"
        )
    return state


def status(out: str | os.PathLike[str]) -> tuple[Progress, bool, dict[str, Any]]:
    """How far a run has got, whether it is running, and its settings."""
    folder = Path(out)
    plan = files.BatchPlan.load(folder)
    manifest = files.Manifest(folder, len(plan.shards))
    state = replace(_sum(plan, manifest), missing=len(manifest.lines) - len(manifest.done))
    return state, files.is_locked(folder), plan.settings


def _sum(plan: files.BatchPlan, manifest: files.Manifest) -> Progress:
    state = Progress(len(plan.shards), bytes=sum(shard.size for shard in plan.shards))
    for line in manifest.done.values():
        state = state.after(line)
    return state


def _noting(manifest: files.Manifest, format: str) -> Begin:
    return lambda shard: manifest.begin(names_of(shard, format))


def _nothing(shards: list[Shard], begin: Begin) -> Outcomes:
    yield from ()


def _check(
    engine: str, workers: int | None, address: str | None, on_error: str, shard_bytes: int
) -> None:
    if engine not in ENGINES:
        raise SettingsError(f"the engine must be {' or '.join(ENGINES)}, not {engine!r}")
    if address is not None and engine != "ray":
        raise SettingsError("an address is for the engine ray")
    if on_error not in ON_ERROR:
        raise SettingsError(f"on_error must be {' or '.join(ON_ERROR)}, not {on_error!r}")
    if workers is not None and workers < 1:
        raise SettingsError(f"workers must be at least 1, not {workers}")
    if shard_bytes < 1:
        raise SettingsError(f"shard_bytes must be at least 1, not {shard_bytes}")


def _check_names(inputs: Sequence[Any], format: str) -> None:
    """Pictures are written under their own names, so there must be one for each."""
    if format != "png":
        return
    seen: dict[str, str] = {}
    for item in inputs:
        if item.kind != "file":
            raise SettingsError(
                f"{item.file} is a table of pictures, which need not have names of their own: "
                "write parquet"
            )
        name = os.path.splitext(item.name)[0]
        if name in seen:
            raise SettingsError(
                f"{item.file} and {seen[name]} would be written under one name: give a folder "
                "above both, or write parquet"
            )
        seen[name] = item.file
