"""Data in portions, and who evaluates them: this process, a pool of processes, or Ray's actors.

A *portion* is a callable that loads some instances: those it was given, or a file's. Portions do
not depend on the number of workers, each keeps its prepared runs and messages where it is, and sums
are taken in the order of the portions: so any number of workers gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import load
from minfer.basics.parallel import Worker, dismiss
from minfer.errors import ModelError
from minfer.learn.joined import Evaluation, blocks_of
from minfer.learn.model import Instance, check_instances

if TYPE_CHECKING:
    from minfer.learn.objectives import Evaluator, Objective

#: Loads the instances of a portion.
Portion = Callable[[], Sequence[Instance]]


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


class ShardPart:
    """A portion where it is evaluated: loaded, in blocks, prepared."""

    def __init__(self, portion: Portion, objective: Objective, batch_size: int | None) -> None:
        instances = check_instances(portion(), f"the instances of {portion!r}", labelled=False)
        self.evaluators: list[Evaluator] = [
            objective.evaluator(some) for some in blocks_of(instances, batch_size)
        ]

    def about(self) -> tuple[int, list[int]]:
        """How many weights, and how many labels each block has."""
        return self.evaluators[0].block.n_weights, [e.n_labels for e in self.evaluators]

    def evaluate(
        self, w: NDArray[np.float64], blocks: list[int], warm: bool, sweeps: int | None
    ) -> list[Evaluation]:
        return [self.evaluators[k](w, warm, sweeps) for k in blocks]

    def freeze(self, w: NDArray[np.float64] | None) -> None:
        for evaluator in self.evaluators:
            evaluator.freeze(w)


class Team(Protocol):
    """Calls a method of some portions' parts; answers in the order asked."""

    def call(self, method: str, jobs: Sequence[tuple[int, tuple[Any, ...]]]) -> list[Any]: ...

    def close(self) -> None: ...


class Here:
    """This process."""

    def __init__(self, make: Callable[[Portion], ShardPart], portions: Sequence[Portion]) -> None:
        self.parts = [make(portion) for portion in portions]

    def call(self, method: str, jobs: Sequence[tuple[int, tuple[Any, ...]]]) -> list[Any]:
        return [getattr(self.parts[k], method)(*args) for k, args in jobs]

    def close(self) -> None:
        self.parts = []


class _Host:
    """A worker's parts, by the number of their portion; each made when first asked for."""

    def __init__(self, make: Callable[[Portion], ShardPart], portions: dict[int, Portion]) -> None:
        self.make, self.portions = make, portions
        self.parts: dict[int, ShardPart] = {}

    def __call__(self, job: tuple[int, str, tuple[Any, ...]]) -> Any:
        number, method, args = job
        if number not in self.parts:
            self.parts[number] = self.make(self.portions[number])
        return getattr(self.parts[number], method)(*args)


class Pool:
    """Processes of this machine; portion k belongs to worker k modulo their number."""

    def __init__(
        self, make: Callable[[Portion], ShardPart], portions: Sequence[Portion], workers: int
    ) -> None:
        self.workers = []
        n = min(workers, len(portions))
        for k in range(n):
            own = {i: portion for i, portion in enumerate(portions) if i % n == k}
            self.workers.append(Worker(_Host.__call__, partial(_Host, make, own)))

    def call(self, method: str, jobs: Sequence[tuple[int, tuple[Any, ...]]]) -> list[Any]:
        for place, (number, args) in enumerate(jobs):
            self.workers[number % len(self.workers)].send(place, (number, method, args))
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


class Actors:
    """Ray's actors, on this machine or a cluster; files must be under the same paths everywhere."""

    def __init__(
        self, make: Callable[[Portion], ShardPart], portions: Sequence[Portion], workers: int
    ) -> None:
        self.ray = ray = load("ray", "the engine ray needs Ray", "ray")
        self.ours = not ray.is_initialized()
        if self.ours:
            ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        n = min(workers, len(portions))
        remote: Any = ray.remote(num_cpus=1)(_Host)
        self.actors: list[Any] = [
            remote.remote(make, {i: p for i, p in enumerate(portions) if i % n == k})
            for k in range(n)
        ]

    def call(self, method: str, jobs: Sequence[tuple[int, tuple[Any, ...]]]) -> list[Any]:
        from ray.exceptions import RayTaskError

        waiting = [
            self.actors[number % len(self.actors)].__call__.remote((number, method, args))
            for number, args in jobs
        ]
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
        make = partial(ShardPart, objective=objective, batch_size=batch_size)
        if engine == "ray":
            self.team: Team = Actors(make, portions, workers)
        elif workers > 1 and len(portions) > 1:
            self.team = Pool(make, portions, workers)
        else:
            self.team = Here(make, portions)
        self.seconds = 0.0  # CPU seconds of inference, all workers together
        try:
            about = self.team.call("about", [(k, ()) for k in range(len(portions))])
        except BaseException:
            self.close()
            raise
        self.n_weights = about[0][0]
        for k, (n, _) in enumerate(about):
            if n != self.n_weights:
                self.close()
                raise ModelError(f"portion {k} has {n} weights, portion 0 {self.n_weights}")
        #: (portion, block) of every block, and how many labels it has
        self.blocks = [(k, b) for k, (_, labels) in enumerate(about) for b in range(len(labels))]
        self.labels = np.array([n for _, labels in about for n in labels])
        if not self.labels.any():
            self.close()
            raise ModelError("there is nothing to learn from: no instance has a label")

    def evaluate(
        self,
        w: NDArray[np.float64],
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
        jobs = [(portion, (w, some, warm, sweeps)) for portion, some in by_portion.items()]
        value, gradient, converged, seconds = 0.0, np.zeros(self.n_weights), True, 0.0
        for answers in self.team.call("evaluate", jobs):
            for one in answers:
                value += one.value
                gradient += one.gradient
                converged &= one.converged
                seconds += one.seconds
        n = max(int(self.labels[list(chosen)].sum()), 1)  # all hidden: sums of zeros
        self.seconds += seconds
        return Evaluation(value / n, gradient / n, converged, seconds)

    def freeze(self, w: NDArray[np.float64] | None) -> None:
        n = self.blocks[-1][0] + 1
        self.team.call("freeze", [(k, (w,)) for k in range(n)])

    def close(self) -> None:
        self.team.close()

    def __enter__(self) -> Data:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()
