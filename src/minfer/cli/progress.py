"""Waiting for slow work: a spinner with the time on stderr, and Ctrl-C that works at once.

Kernels do not return to Python for seconds at a time, and Python delivers Ctrl-C to the main thread
between its own instructions only. So the work runs in a thread (kernels release the GIL), and the
main thread waits in short steps.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 1.0  # seconds before the spinner appears
_STEP = 0.1

_workers: list[threading.Thread] = []


def wait_for(text: str, work: Callable[[], T]) -> T:
    """``work()``, with a spinner on stderr if that is a terminal and it takes long."""
    answer: list[T] = []
    failure: list[BaseException] = []

    def job() -> None:
        try:
            answer.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=job, daemon=True, name=text)
    _workers.append(thread)
    thread.start()
    _join(thread, text)
    if failure:
        raise failure[0]
    return answer[0]


def abandoned() -> bool:
    """Whether some work was left running, by an interrupt."""
    return any(thread.is_alive() for thread in _workers)


def _join(thread: threading.Thread, text: str) -> None:
    began = time.perf_counter()
    thread.join(PATIENCE)
    with ExitStack() as stack:
        spinner: Any = None
        while thread.is_alive():
            if spinner is None and sys.stderr.isatty():
                spinner = stack.enter_context(_spinner(text))
            thread.join(_STEP)
            if spinner is not None:
                spinner.update(_plain(f"{text} {time.perf_counter() - began:.0f} s"))


def _spinner(text: str) -> Any:
    from minfer.cli.render import console

    return console(stderr=True).status(_plain(text))


def _plain(text: str) -> Any:
    """Not as a string, which the spinner would read as markup."""
    from minfer.cli.render import line

    return line(text)
