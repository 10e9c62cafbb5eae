"""What workers do in ``test_parallel.py``: their processes load this file, and not pytest."""

from __future__ import annotations

import os
import signal
import time

from minfer.errors import RefusedError, SettingsError


class OddError(Exception):
    """An error that pickles and does not come back."""

    def __init__(self, a, b):
        super().__init__(f"{a} {b}")


def work(item):
    """Slow for some items, wrong for others."""
    if item == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "refuse":
        raise RefusedError("too large")
    if item == "odd":
        raise OddError("two", "words")
    time.sleep(0.02 * (item % 3))
    return item * item


def state():
    return os.getpid(), []


def counted(worker, item):
    process, seen = worker
    seen.append(item)
    return process, len(seen), b"x" * item


def broken_setup():
    raise SettingsError("no such model")
