"""Waiting for slow work: a spinner with the time on stderr, and Ctrl-C that works at once.

Kernels do not return to Python for seconds at a time, and Python delivers Ctrl-C to the main thread
between its own instructions only. So the work runs in a thread (kernels release the GIL), and the
main thread waits in short steps.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

PATIENCE = 1.0  # seconds before the spinner appears
_STEP = 0.1

_workers: list[threading.Thread] = []


def wait_for(text: str, work: Callable[[], T], more: Callable[[], str] = str) -> T:
    """``work()``, with a spinner on stderr if that is a terminal and it takes long; ``more`` says
    how far it is."""
    answer: list[T] = []
    failure: list[BaseException] = [MemoryError()]  # of a thread that could not even say so

    def job() -> None:
        try:
            answer.append(work())
        except BaseException as error:
            failure[0] = error  # takes no memory, of which there may be none left

    thread = threading.Thread(target=job, daemon=True, name=text)
    try:
        thread.start()
    except RuntimeError:  # there is no room for a thread: do it here
        return work()
    _workers.append(thread)
    _join(thread, text, more)
    if not answer:
        raise failure.pop()
    return answer[0]


def leave(code: Any) -> NoReturn:
    """End the process; at once if an interrupted solver still computes in its thread."""
    if any(thread.is_alive() for thread in _workers):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code)


def _join(thread: threading.Thread, text: str, more: Callable[[], str]) -> None:
    began = time.perf_counter()
    thread.join(PATIENCE)
    while thread.is_alive() and not sys.stderr.isatty():
        thread.join(_STEP)
    if not thread.is_alive():
        return
    from minfer.cli.render import console, line

    with console(stderr=True).status(line(text)) as spinner:
        while thread.is_alive():
            thread.join(_STEP)
            spinner.update(line(f"{text} {time.perf_counter() - began:.0f} s{more()}"))


class Meter:
    """A line on stderr that changes on a terminal; elsewhere one line every ten seconds."""

    def __init__(self) -> None:
        self.live, self.shown = sys.stderr.isatty(), False
        self.began = self.last = time.perf_counter()

    def __enter__(self) -> Meter:
        return self

    def rate(self, n: int) -> str:
        return f"{n / (time.perf_counter() - self.began):,.0f}"

    def __call__(self, text: object, end: bool = False) -> None:
        """Show how far the work is; at its end in any case."""
        now = time.perf_counter()
        if now - self.last < (0.2 if self.live else 10.0) and not end:
            return
        self.last, self.shown = now, True
        sys.stderr.write(f"\r\x1b[K{text}" if self.live else f"minfer: {text}\n")
        sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self.live and self.shown:
            sys.stderr.write("\n")


@contextmanager
def bar(total: float) -> Iterator[Callable[[float, str], None]]:
    """A bar on stderr, if that is a terminal, drawn when called with what is done and a text."""
    if not sys.stderr.isatty():
        yield lambda done, text: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from minfer.cli.render import console

    columns = BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    with Progress(
        *columns, console=console(stderr=True), transient=True, auto_refresh=False
    ) as drawn:
        task = drawn.add_task("", total=total)

        def draw(done: float, text: str) -> None:
            drawn.update(task, completed=done, description=text, refresh=True)

        yield draw
