"""Machine code that came with the wheel, for processors that nobody has compiled for yet.

A platform wheel holds a folder ``ready`` beside this file: the sealed files of a kernel cache
(:mod:`minfer.kernels._cache`), compiled for a generic processor, and ``about.json``, which says for
which numba, Python and system; folders in it are named after the sources, as in the cache. A kernel
is looked for in the user's own cache first, then here; with any other numba, Python, system or
source there is nothing here, and it is compiled as ever. The key of a version is numba's, with the
generic target in place of this processor's.
"""

from __future__ import annotations

import json
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import numba

FOLDER = Path(__file__).parent / "ready"
ABOUT = "about.json"


class Ready:
    """The folder of a wheel, if there is one and this process can use it.

    Attributes
    ----------
    loaded : versions of kernels that were taken from it
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.loaded = folder, 0

    @cached_property
    def about(self) -> dict[str, Any]:
        """What the folder was made for; empty where there is none."""
        try:
            found = json.loads((self.folder / ABOUT).read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @cached_property
    def missing(self) -> str:
        """Why it cannot be used, or nothing at all."""
        about = self.about
        if not about:
            return "this installation has none"
        for what, here in described().items():
            if about.get(what) != here:
                return f"it is for {what} {about.get(what)}, and this is {here}"
        lacking = sorted(set(about.get("needs", ())) - features())
        return f"this processor has no {', '.join(lacking)}" if lacking else ""

    def key(self, key: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        """The key of a version in the folder, from that of this processor."""
        return key[0], tuple(self.about["target"]), key[2]


def described() -> dict[str, str]:
    """What machine code depends on, of this process."""
    return {
        "numba": numba.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "system": system(),
    }


def system() -> str:
    """The machine and its operating system, as LLVM has them."""
    from llvmlite.binding import get_process_triple

    return str(get_process_triple())


def features() -> set[str]:
    """What this processor can do, by LLVM's names."""
    from llvmlite.binding import get_host_cpu_features

    return {name for name, there in get_host_cpu_features().items() if there}
