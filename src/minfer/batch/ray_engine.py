"""The engine for clusters: Ray Data moves shards to actors that do them.

``map_batches`` over the list of shards, one to a call, with an actor class: each actor loads the
model and warms the kernels once. What travels is the description of a shard and its line of the
manifest; an actor streams the records itself, so the corpus is never in Ray's memory. Input and
output must be under the same paths on all machines. Ray does a lost actor's shard again, elsewhere
if need be, which gives the same bytes.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from minfer import errors
from minfer.basics.checks import load
from minfer.batch.processor import Begin, Engine, Outcomes, Processor, Task
from minfer.batch.shards import Shard
from minfer.errors import MinferError, RefusedError, WorkerError

#: Shards that Ray hears of at a time; it keeps books on each.
WAVE = 4096


@contextmanager
def ray_engine(task: Task, workers: int | None, address: str | None) -> Iterator[Engine]:
    """The engine, connected."""
    ray = load("ray", "the engine ray needs Ray", "ray")
    load("ray.data")
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    if ours := not ray.is_initialized():
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        own = {"num_cpus": workers, "include_dashboard": False}
        try:
            ray.init(**(own if address is None else {"address": address}), **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise RefusedError(f"no Ray at {address or 'this machine'}: {error}") from None
    try:
        if workers is None:
            workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        yield partial(_run, ray, task, workers)
    except ray.exceptions.RayError as error:
        raise WorkerError(f"Ray gave up: {str(error).strip().splitlines()[-1]}") from error
    finally:
        if ours:
            ray.shutdown()


def _run(ray: Any, task: Task, workers: int, shards: list[Shard], begin: Begin) -> Outcomes:
    for k in range(0, len(shards), WAVE):
        wave = shards[k : k + WAVE]
        for shard in wave:
            begin(shard)
        lines = _dataset(ray, task, wave, workers)
        yield from (outcome_of(row["line"]) for row in lines.iter_rows())


def _dataset(ray: Any, task: Task, shards: list[Shard], workers: int) -> Any:
    """The lines of some shards, lazily: each is a block, and so a task of its own."""
    described = ray.data.from_items(
        [{"shard": json.dumps(shard._asdict())} for shard in shards],
        override_num_blocks=len(shards),
    )
    return described.map_batches(
        _Actor,
        fn_constructor_args=(task, os.getcwd()),
        batch_size=1,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(shards))),
        num_cpus=1,
    )


def outcome_of(text: str) -> dict[str, Any]:
    """The line of the manifest that an actor sent, or the error."""
    line = json.loads(text)
    if "failure" in line:
        raise getattr(errors, line["kind"], MinferError)(line["failure"])
    return line


class _Actor:
    """A processor under Ray: JSON in, JSON out."""

    def __init__(self, task: Task, base: str) -> None:
        os.chdir(base)  # the driver's folder, so that paths mean the same
        self.process = Processor(task)

    def __call__(self, batch: Any) -> dict[str, list[str]]:
        lines = []
        for text in batch.column("shard").to_pylist():
            fields = json.loads(text)
            fields["files"] = tuple((file, name) for file, name in fields["files"])
            try:
                line = self.process(Shard(**fields))
            except MinferError as error:  # a bad record under on_error=fail: no use to try again
                line = {"failure": str(error), "kind": type(error).__name__}
            lines.append(json.dumps(line))
        return {"line": lines}
