"""What engines share, and the engine of this machine: its processes, one shard each at a time.

A :class:`Processor` leaves a shard's files complete or not at all, and doing a shard twice leaves
the same bytes, so it does not matter when and how often anything is killed.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from minfer.basics.parallel import Worker, dismiss
from minfer.batch.folder import Errors, errors_name, open_sink, part_name, picture_name
from minfer.batch.shards import Bad, Shard, digest, read
from minfer.errors import FormatError, MinferError, WorkerError

if TYPE_CHECKING:
    from minfer.batch.jobs import Job

#: Lines for the manifest as shards are done, in any order, or an error for one that is given up.
Outcomes = Generator[dict[str, Any] | MinferError, None, None]
#: Called with each shard before anything of it is written.
Begin = Callable[[Shard], None]
#: Does shards. It is handed out by a context, which has found all that it needs when it is entered.
Engine = Callable[[list[Shard], Begin], Outcomes]
TRIES = 3  # of a shard whose workers die


@dataclass(frozen=True)
class Task:
    """What workers are told once."""

    job: Job
    folder: str
    format: str
    on_error: str = "skip"


class Processor:
    """Does shards: loaded and warmed once, called for each."""

    def __init__(self, task: Task, number: int = 0) -> None:
        from minfer.device.cuda import take_turn

        take_turn(number)  # workers whose solver has a device share the cards
        self.task = task
        self.function = task.job.start(task.format)
        self.schema = task.job.schema(task.format)
        self.schema = self.schema.remove(self.schema.get_field_index("error"))

    def __call__(self, shard: Shard) -> dict[str, Any]:
        """Write a shard's output and return its line of the manifest."""
        began, rows = time.perf_counter(), 0
        task = self.task
        written = [part_name(shard.number, task.format)]
        with (
            open_sink(task.folder, shard.number, task.format, self.schema) as sink,
            Errors(task.folder, shard.number) as errors,
        ):
            for batch in self._read(shard):
                if isinstance(batch, Bad):
                    self._complain(errors, batch.place, None, batch.error)
                    continue
                answers = self.function(batch)
                wrong = answers.column("error")
                if wrong.null_count < len(wrong):
                    places = answers.select(["place", "id", "error"]).to_pylist()
                    for row in places:
                        if row["error"] is not None:
                            self._complain(errors, **row)
                    answers = answers.filter(wrong.is_null())
                if len(answers):
                    sink(answers.select(self.schema.names))
                rows += len(answers)
                if task.format == "png":
                    written += map(picture_name, answers.column("id").to_pylist())
        if errors.count:
            written.append(errors_name(shard.number))
        return {
            "shard": shard.number,
            "input": shard.label,
            "sha256": digest(shard),
            "files": {name: os.path.getsize(os.path.join(task.folder, name)) for name in written},
            "rows": rows,
            "errors": errors.count,
            "bytes": shard.size,
            "seconds": round(time.perf_counter() - began, 3),
        }

    def _read(self, shard: Shard) -> Iterator[Any]:
        """The shard's batches; if the rest of it cannot be read, that is a bad record too."""
        try:
            yield from read(shard, self.task.job)
        except FormatError as error:
            yield Bad(shard.label, f"the rest of the shard is lost: {error}")

    def _complain(self, errors: Errors, place: str, id: str | None, error: str) -> None:
        if self.task.on_error == "fail":
            raise FormatError(error if error.startswith(f"{place}: ") else f"{place}: {error}")
        errors(place, id, error)


@contextmanager
def local_engine(task: Task, workers: int) -> Iterator[Engine]:
    """Processes that die with the driver (:mod:`minfer.basics.parallel`); one is this process."""
    if workers == 1:
        yield partial(_run_here, Processor(task))
    else:
        yield partial(_run_apart, task, workers)


def _run_here(processor: Processor, shards: list[Shard], begin: Begin) -> Outcomes:
    for shard in shards:
        begin(shard)
        yield processor(shard)


def _run_apart(task: Task, workers: int, shards: list[Shard], begin: Begin) -> Outcomes:
    waiting = deque(shards)
    tries: dict[int, int] = {}
    busy: dict[Any, tuple[Worker, Shard]] = {}  # by the pipe to the worker
    team: list[Worker] = []

    def hire() -> Worker:
        team.append(Worker(Processor.__call__, partial(Processor, task, len(team))))
        return team[-1]

    def give(worker: Worker) -> None:
        if not waiting:
            return
        shard = waiting.popleft()
        begin(shard)
        busy[worker.pipe] = (worker, shard)
        with suppress(WorkerError):  # dead already: its pipe says so below
            worker.send(shard.number, shard)

    try:
        for _ in range(min(workers, len(shards))):
            give(hire())
        while busy:
            for pipe in wait(list(busy)):
                worker, shard = busy.pop(pipe)
                try:
                    _, line, error = worker.receive()
                except WorkerError as death:
                    worker.pipe.close()
                    tries[shard.number] = tries.get(shard.number, 0) + 1
                    if tries[shard.number] < TRIES:
                        waiting.append(shard)
                    else:
                        yield WorkerError(f"{shard.label}: {death}")
                    if waiting:
                        give(hire())
                    continue
                if error is not None:
                    raise error
                yield line
                give(worker)
    finally:
        dismiss(team)
