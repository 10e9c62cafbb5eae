"""The ordered map: like ``map``, whatever the number of workers, and when things go wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import count, islice
from pathlib import Path

import pytest

from draws import thorough
from minfer.basics.parallel import cores, ordered_map
from minfer.errors import MinferError, RefusedError, SettingsError, WorkerError
from parallel_jobs import broken_setup, counted, state, work
from processes import all_end, looks_at_processes
from refused import refused


@pytest.mark.drawn
@pytest.mark.parametrize("workers", [1, 3 if thorough() else 2])
def test_order_state_and_a_stream_of_any_length(workers):
    drawn = []

    def endless():
        for k in count():
            drawn.append(k)
            yield k

    found = []
    squares = ordered_map(work, endless(), workers, in_flight=5)
    for result in islice(squares, 25):
        found.append(result)
        assert len(drawn) - len(found) <= 5
    squares.close()
    assert found == [k * k for k in range(25)]

    big = [300_000, 0, 200_000] * 3  # more than a pipe holds, both ways
    answers = list(ordered_map(counted, big, workers, setup=state))
    assert [len(data) for _, _, data in answers] == big
    processes = {process for process, _, _ in answers}
    assert len(processes) == workers
    assert (os.getpid() in processes) == (workers == 1)
    assert sum(max(n for p, n, _ in answers if p == process) for process in processes) == len(big)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_errors_come_in_their_turn(workers):
    results = ordered_map(work, [1, 2, "refuse", 3], workers)
    assert [next(results), next(results)] == [1, 4]
    refused(RefusedError, "too large", next, results)

    def broken_stream():
        yield from (1, 2)
        raise OSError("gone")

    results = ordered_map(work, broken_stream(), workers)
    assert [next(results), next(results)] == [1, 4]
    refused(OSError, "gone", next, results)
    with pytest.raises(SettingsError, match="no such model"):
        list(ordered_map(counted, [1, 2], workers, setup=broken_setup))
    assert list(ordered_map(work, [], workers)) == []


def test_a_worker_that_dies_and_an_error_that_does_not_pickle():
    results = ordered_map(work, [1, "die", 2], 2)
    refused(WorkerError, r"killed by signal SIGKILL .*item 2", list, results)
    with pytest.raises(MinferError, match="OddError in a worker process: two words") as caught:
        list(ordered_map(work, ["odd"], 2))
    assert "in work" in caught.value.__notes__[0]
    refused(SettingsError, "at least 1", ordered_map, work, [], 0)
    assert cores() >= 1


SLOW = r"""
import os, sys, time
from minfer.basics.parallel import ordered_map
def nap(item):
    os.write(1, f"{os.getpid()}\n".encode())  # at once, whatever PYTHONUNBUFFERED says
    time.sleep(60)
if __name__ == "__main__":
    list(ordered_map(nap, range(9), 2))
"""


@looks_at_processes
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path, blow):
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    path = str(Path(__file__).parents[1] / "src")
    process = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path}, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    workers = [int(process.stdout.readline()) for _ in range(2)]
    process.send_signal(blow)
    process.communicate(timeout=30)
    assert all_end(workers)


EARLY = r"""
import os, signal, sys
from minfer.basics.parallel import ordered_map
if __name__ == "__mp_main__":  # a worker that has not come to its work yet
    os.kill(os.getpid(), signal.SIGINT)
def same(item):
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return item, signal.SIGINT in blocked
if __name__ == "__main__":
    print(list(ordered_map(same, range(3), 2)), signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="has no signal masks")
def test_workers_do_not_hear_an_interrupt_while_they_start(tmp_path):
    """Ctrl-C goes to all processes of a terminal: tracebacks of workers stood on stderr."""
    script = tmp_path / "early.py"
    script.write_text(EARLY)
    path = str(Path(__file__).parents[1] / "src")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[(0, False), (1, False), (2, False)] set()\n", "")
