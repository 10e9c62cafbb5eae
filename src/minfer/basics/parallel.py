"""Ordered parallel maps: over threads, and over processes.

:func:`in_threads` is for kernels, which let go of Python's lock. :func:`ordered_map` is ``map``
with several worker processes: results and errors come in the order of the items, which are drawn
only as results are taken, so that a stream of any length may pass.

Each worker is a fresh process at the other end of a pipe of its own. A thread of the worker reads
the pipe, so that neither end can block the other; when the pipe closes (by Ctrl-C, a caller that
stops taking results, or a parent that is killed) the worker is gone at once.
"""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from minfer.errors import MinferError, SettingsError, WorkerError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2  # items sent to a worker before the first of them is answered, so that it never waits
_PATIENCE = 2.0  # seconds a worker has to go once its pipe is closed


def cores() -> int:
    """Processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int,
    interrupted: Callable[[], object] | None = None,
) -> list[Result]:
    """``function(item)`` of each item, in order; one worker, or one item, needs no thread.

    At the first error, or at Ctrl-C, ``interrupted`` is called, for what runs to be cut short.
    """
    if workers <= 1 or len(items) <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        try:
            return list(pool.map(function, items))
        except BaseException:
            if interrupted is not None:
                interrupted()
            raise


def ordered_map(
    function: Callable[..., Result],
    items: Iterable[Item],
    workers: int = 1,
    *,
    setup: Callable[[], Any] | None = None,
    in_flight: int | None = None,
) -> Iterator[Result]:
    """``function(item)`` of each item, in order.

    Parameters
    ----------
    function : called in a worker; it, its items and its results must pickle if there are several
    items : may be a stream; an error it raises comes after the results of what was drawn before
    workers : processes; 1 uses none but this one
    setup : called once in each worker; ``function(state, item)`` then gets what it returned
    in_flight : most items drawn whose results have not been taken; four per worker by default

    Raises
    ------
    what ``function``, ``setup`` or ``items`` raise, with the worker's traceback as a note;
    WorkerError if a worker dies. Scripts need the usual ``if __name__ == "__main__":``.

    Examples
    --------
    >>> from minfer.basics.parallel import ordered_map
    >>> list(ordered_map(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    in_flight = 4 * workers if in_flight is None else in_flight
    if workers < 1 or in_flight < 1:
        raise SettingsError(f"workers {workers} and in_flight {in_flight} must be at least 1")
    if workers == 1:
        return _map_here(function, items, setup)
    return _map_apart(function, items, workers, setup, in_flight)


def _map_here(
    function: Callable[..., Result], items: Iterable[Item], setup: Callable[[], Any] | None
) -> Iterator[Result]:
    state = () if setup is None else (setup(),)
    for item in items:
        yield function(*state, item)


def _map_apart(
    function: Callable[..., Result],
    items: Iterable[Item],
    workers: int,
    setup: Callable[[], Any] | None,
    in_flight: int,
) -> Iterator[Result]:
    from multiprocessing.connection import wait

    answers: dict[int, tuple[Any, BaseException | None]] = {}  # that wait for their turn
    rest = iter(items)
    end: BaseException | None = None  # of the items: an error, or StopIteration
    sent = taken = 0
    team: list[Worker] = []
    try:
        while True:
            while end is None and sent - taken < in_flight:
                worker = min(team, key=lambda w: len(w.numbers), default=None)
                if worker is None or (worker.numbers and len(team) < workers):
                    worker = Worker(function, setup)
                    team.append(worker)
                if len(worker.numbers) == _AHEAD:
                    break
                try:
                    item = next(rest)
                except Exception as error:
                    end = error
                else:
                    worker.send(sent, item)
                    sent += 1
            if taken in answers:
                result, failure = answers.pop(taken)
                if failure is not None:
                    raise failure
                taken += 1
                yield result
            elif taken < sent:
                for pipe in wait([worker.pipe for worker in team if worker.numbers]):
                    number, *answer = next(w for w in team if w.pipe is pipe).receive()
                    answers[number] = (answer[0], answer[1])
            elif isinstance(end, StopIteration):
                return
            else:
                assert end is not None
                raise end
    finally:
        dismiss(team)


def dismiss(team: Sequence[Worker]) -> None:
    """Let all go at once, then see them off."""
    for worker in team:
        worker.pipe.close()
    for worker in team:
        worker.end()


class Worker:
    """This end of a worker process; ``numbers`` are of the items it has not answered yet."""

    def __init__(self, function: Callable[..., Any], setup: Callable[[], Any] | None) -> None:
        import multiprocessing

        context = multiprocessing.get_context("spawn")  # safe with threads, the same everywhere
        self.pipe, other = context.Pipe()
        self.numbers: list[int] = []
        self._process: BaseProcess = context.Process(
            target=_work, args=(other, function, setup), daemon=True
        )
        with _without_interrupts():
            self._process.start()
        other.close()

    def send(self, number: int, item: Any) -> None:
        self.numbers.append(number)
        data = pickle.dumps(item)
        try:
            self.pipe.send((number, data))
        except ConnectionError:
            raise self._death() from None

    def receive(self) -> tuple[int, Any, BaseException | None]:
        """Number, result and error of an item."""
        try:
            number, result, error = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, ConnectionError):
            raise self._death() from None
        if number is None:  # nothing can be computed there
            raise error
        self.numbers.remove(number)
        return number, result, error

    def end(self) -> None:
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()

    def _death(self) -> WorkerError:
        self._process.join(_PATIENCE)
        code = self._process.exitcode
        if code is not None and code < 0:
            how = f"was killed by signal {signal.Signals(-code).name}"
            how += " (out of memory?)" if -code == signal.SIGKILL else ""
        else:
            how = f"ended with code {code}"
        where = f" at item {self.numbers[0] + 1:,}" if self.numbers else ""
        return WorkerError(
            f"a worker process {how}{where}: try fewer workers (1 uses no processes); a script "
            'needs if __name__ == "__main__": around the call'
        )


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """A process started here is born deaf to Ctrl-C; this one hears it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # which would end the block if it were started within
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(pipe: Connection, function: Callable[..., Any], setup: Callable[[], Any] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    items: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
    Thread(target=_listen, args=(pipe, items), daemon=True).start()
    state: tuple[Any, ...] = ()
    if setup is not None:
        try:
            state = (setup(),)
        except BaseException as error:
            pipe.send_bytes(_failure(None, error))
    while True:
        number, data = items.get()
        try:
            answer = pickle.dumps((number, function(*state, pickle.loads(data)), None))
        except BaseException as error:
            answer = _failure(number, error)
        pipe.send_bytes(answer)


def _listen(pipe: Connection, items: SimpleQueue[tuple[int, bytes]]) -> None:
    while True:
        try:
            items.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(0)


def _failure(number: int | None, error: BaseException) -> bytes:
    """The answer that carries an error, or one that stands for an error that does not pickle."""
    error.add_note("in a worker process:\n" + "".join(traceback.format_exception(error)))
    try:
        answer = pickle.dumps((number, None, error))
        pickle.loads(answer)
    except Exception:
        stand_in = MinferError(f"{type(error).__name__} in a worker process: {error}")
        stand_in.__notes__ = error.__notes__
        answer = pickle.dumps((number, None, stand_in))
    return answer
