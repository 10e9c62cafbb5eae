"""Whether processes have ended, and what lies in a folder, for tests that leave both behind."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

looks_at_processes = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="looks at processes in /proc"
)


def all_end(pids: Iterable[int], seconds: float = 10.0) -> bool:
    """Whether all of them end within so many seconds.

    A process has ended when it is a zombie: how soon an orphan is removed after that is the
    business of the machine's first process, and some are slow.
    """
    until = time.monotonic() + seconds
    left = [pid for pid in pids if _runs(pid)]
    while left and time.monotonic() < until:
        time.sleep(0.05)
        left = [pid for pid in left if _runs(pid)]
    return not left


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def everything(folder: Path) -> dict[str, bytes | str]:
    """All that lies below a folder but its lock: contents, where links lead, and folders."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        if path.name != ".lock":
            kind = "folder" if path.is_dir() else path.read_bytes() if path.is_file() else "gone"
            link = f"-> {os.readlink(path)}" if path.is_symlink() else None
            found[str(path.relative_to(folder))] = link or kind
    return found
