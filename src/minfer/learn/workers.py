"""Data in portions, and who evaluates them: this process, a pool of processes, or Ray's actors.

A *portion* is a callable that loads some instances: those it was given, or a file's. Portions do
not depend on the number of workers, each keeps its prepared runs and messages where it is, and sums
are taken in the order of the portions: so any number of workers gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import load
from minfer.basics.parallel import Worker, dismiss
from minfer.errors import ModelError
from minfer.learn.joined import Evaluation, blocks_of
from minfer.learn.model import Instance, check_instances

if TYPE_CHECKING:
    from minfer.learn.objectives import Evaluator, Objective

Floats = NDArray[np.float64]

#: Loads the instances of a portion.
Portion = Callable[[], Sequence[Instance]]
#: What is asked of a portion: a method of its host, its number, arguments.
Job = tuple[str, int, tuple[Any, ...]]


@dataclass(frozen=True)
class GivenShards:
    """A portion that is in memory."""

    instances: tuple[Instance, ...]

    def __call__(self) -> Sequence[Instance]:
        return self.instances


def portions_of(data: Any, batch_size: int | None) -> list[Portion]:
    """Instances in memory as portions; portions (callables) as they are."""
    if callable(data):
        return [data]
    if isinstance(data, (list, tuple)) and data and all(callable(one) for one in data):
        return list(data)
    some = check_instances(data)
    return [GivenShards(tuple(part)) for part in blocks_of(some, batch_size)]


class _Host:
    """Portions where they are evaluated: each loaded, in blocks, prepared when first asked for."""

    def __init__(
        self, objective: Objective, batch_size: int | None, portions: dict[int, Portion]
    ) -> None:
        self.objective, self.batch_size, self.portions = objective, batch_size, portions
        self.parts: dict[int, list[Evaluator]] = {}

    def __call__(self, job: Job) -> Any:
        method, number, args = job
        if number not in self.parts:
            portion = self.portions[number]
            some = check_instances(portion(), f"the instances of {portion!r}", labelled=False)
            self.parts[number] = [
                self.objective.evaluator(part) for part in blocks_of(some, self.batch_size)
            ]
        return getattr(self, method)(self.parts[number], *args)

    def about(self, part: list[Evaluator]) -> tuple[int, list[int]]:
        """How many weights, and how many labels each block has."""
        return part[0].block.n_weights, [e.n_labels for e in part]

    def evaluate(
        self, part: list[Evaluator], w: Floats, blocks: list[int], warm: bool, sweeps: int | None
    ) -> list[Evaluation]:
        return [part[k](w, warm, sweeps) for k in blocks]

    def freeze(self, part: list[Evaluator], w: Floats | None) -> None:
        for evaluator in part:
            evaluator.freeze(w)


class Here:
    """This process."""

    def __init__(self, hosts: list[partial[_Host]]) -> None:
        self.host = hosts[0]()

    def call(self, jobs: Sequence[Job]) -> list[Any]:
        """Answers to jobs, in their order."""
        return [self.host(job) for job in jobs]

    def close(self) -> None:
        self.host.parts = {}


class Pool(Here):
    """Processes of this machine; portion k belongs to worker k modulo their number."""

    def __init__(self, hosts: list[partial[_Host]]) -> None:
        self.workers = [Worker(_Host.__call__, host) for host in hosts]

    def call(self, jobs: Sequence[Job]) -> list[Any]:
        for place, job in enumerate(jobs):
            self.workers[job[1] % len(self.workers)].send(place, job)
        answers: dict[int, Any] = {}
        failures: dict[int, BaseException] = {}
        for worker in self.workers:
            while worker.numbers:
                place, answer, failure = worker.receive()
                answers[place] = answer
                if failure is not None:
                    failures[place] = failure
        if failures:
            raise failures[min(failures)]
        return [answers[place] for place in range(len(jobs))]

    def close(self) -> None:
        dismiss(self.workers)
        self.workers = []


class Actors(Here):
    """Ray's actors, on this machine or a cluster; files must be under the same paths everywhere."""

    def __init__(self, hosts: list[partial[_Host]]) -> None:
        self.ray = ray = load("ray", "the engine ray needs Ray", "ray")
        self.ours = not ray.is_initialized()
        if self.ours:
            ray.init(num_cpus=len(hosts), include_dashboard=False, log_to_driver=False)
        remote: Any = ray.remote(num_cpus=1)(_Host)
        self.actors: list[Any] = [remote.remote(*host.args) for host in hosts]

    def call(self, jobs: Sequence[Job]) -> list[Any]:
        from ray.exceptions import RayTaskError

        waiting = [self.actors[job[1] % len(self.actors)].__call__.remote(job) for job in jobs]
        try:
            return list(self.ray.get(waiting))
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None

    def close(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)
        self.actors = []
        if self.ours:
            self.ray.shutdown()


class Data:
    """All portions under one objective: means of values and gradients over their labels."""

    def __init__(
        self,
        portions: Sequence[Portion],
        objective: Objective,
        *,
        batch_size: int | None = None,
        workers: int = 1,
        engine: str = "local",
    ) -> None:
        kind = Actors if engine == "ray" else Pool if min(workers, len(portions)) > 1 else Here
        n = 1 if kind is Here else min(workers, len(portions))
        numbered = list(enumerate(portions))
        self.team = kind([partial(_Host, objective, batch_size, dict(numbered[k::n]))
                          for k in range(n)])  # fmt: skip
        self.n_portions = len(portions)
        self.seconds = 0.0  # CPU seconds of inference, all workers together
        try:
            about = self._call("about")
            self.n_weights = about[0][0]
            for k, (n, _) in enumerate(about):
                if n != self.n_weights:
                    raise ModelError(f"portion {k} has {n} weights, portion 0 {self.n_weights}")
            #: (portion, block) of every block, and how many labels it has
            self.blocks = [(k, b) for k, (_, own) in enumerate(about) for b in range(len(own))]
            self.labels = np.array([n for _, own in about for n in own])
            if not self.labels.any():
                raise ModelError("there is nothing to learn from: no instance has a label")
        except BaseException:
            self.close()
            raise

    def _call(self, method: str, *args: Any) -> list[Any]:
        """Of all portions."""
        return self.team.call([(method, k, args) for k in range(self.n_portions)])

    def evaluate(
        self,
        w: Floats,
        blocks: Sequence[int] | None = None,
        *,
        warm: bool = False,
        sweeps: int | None = None,
    ) -> Evaluation:
        """Mean loss of a label and its gradient, over all blocks or some."""
        chosen = range(len(self.blocks)) if blocks is None else sorted(blocks)
        by_portion: dict[int, list[int]] = {}
        for k in chosen:
            portion, block = self.blocks[k]
            by_portion.setdefault(portion, []).append(block)
        jobs = [("evaluate", k, (w, some, warm, sweeps)) for k, some in by_portion.items()]
        value, gradient, converged, seconds = 0.0, np.zeros(self.n_weights), True, 0.0
        for one in chain.from_iterable(self.team.call(jobs)):
            value += one.value
            gradient += one.gradient
            converged &= one.converged
            seconds += one.seconds
        n = max(int(self.labels[list(chosen)].sum()), 1)  # all hidden: sums of zeros
        self.seconds += seconds
        return Evaluation(value / n, gradient / n, converged, seconds)

    def freeze(self, w: Floats | None) -> None:
        self._call("freeze", w)

    def close(self) -> None:
        self.team.close()
