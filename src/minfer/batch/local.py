"""The engine that needs no engine: processes of this machine, one shard each at a time.

Workers die with the driver (:mod:`minfer.basics.parallel`). A worker that dies is replaced and its
shard done again, up to :data:`TRIES` times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from minfer.basics.parallel import Worker, dismiss
from minfer.batch.processor import Begin, Engine, Outcomes, Processor, Task
from minfer.batch.shards import Shard
from minfer.errors import WorkerError

TRIES = 3


@contextmanager
def local_engine(task: Task, workers: int) -> Iterator[Engine]:
    """The engine; one worker is this process itself."""
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
        team.append(Worker(Processor.__call__, partial(Processor, task)))
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
