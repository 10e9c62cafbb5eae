"""Machine code that came with the wheel, for processors that nobody has compiled for yet.

A platform wheel holds a folder ``ready``: for each *variant*, a kind of processor (x86-64,
x86-64-v3), a folder of sealed files as in a kernel cache (:mod:`minfer.kernels.compiling.cache`),
and ``about.json``, which says for which numba, Python and system they are, and what each variant
needs of a processor, the best one first. A kernel is looked for in the user's own cache, then in
the first variant that this processor can run; with any other numba, Python, system or source it is
compiled as ever. ``MINFER_READY`` names another variant to use, or, as 0, none.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numba

FOLDER = Path(__file__).parents[1] / "ready"
ABOUT = "about.json"


class ShippedKernels:
    """The folder of a wheel, if there is one; ``loaded`` counts what was taken from it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.loaded = folder, 0

    @cached_property
    def about(self) -> dict[str, Any]:
        """What the folder was made for; empty where there is none."""
        try:
            found = json.loads((self.folder / ABOUT).read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) and found.get("variants") else {}

    @cached_property
    def missing(self) -> str:
        """Why it cannot be used, or nothing at all."""
        about = self.about
        asked = os.environ.get("MINFER_READY", "")
        if not about:
            return "this installation has none"
        if asked == "0":
            return "MINFER_READY=0"
        for what, here in described().items():
            if about.get(what) != here:
                return f"it is for {what} {about.get(what)}, and this is {here}"
        known = [variant for variant in about["variants"] if asked in ("", variant["name"])]
        if not known:
            names = ", ".join(variant["name"] for variant in about["variants"])
            return f"MINFER_READY={asked} is not one of {names}"
        if self.variant is None:
            lacking = sorted(set(known[-1]["needs"]) - features())
            return f"this processor has no {', '.join(lacking)}"
        return ""

    @cached_property
    def variant(self) -> dict[str, Any] | None:
        """The first one that this processor can run, or the one that was asked for."""
        asked = os.environ.get("MINFER_READY", "")
        here = features()
        for variant in self.about.get("variants", ()):
            if asked in ("", variant["name"]) and set(variant["needs"]) <= here:
                return dict(variant)
        return None

    @property
    def name(self) -> str:
        return str(self.variant["name"]) if self.variant else ""

    @property
    def place(self) -> Path:
        return self.folder / self.name

    @property
    def target(self) -> tuple[str, ...]:
        """What the variant in use was compiled for, as numba says it."""
        return tuple(self.variant["target"]) if self.variant else ()


def described() -> dict[str, str]:
    """What machine code depends on, of this process."""
    return {
        "numba": numba.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "system": system(),
    }


def system() -> str:
    """The machine and its operating system, as LLVM has them."""
    return str(_llvm("get_process_triple", "unknown"))


def processor() -> str:
    return str(_llvm("get_host_cpu_name", "unknown"))


def features() -> set[str]:
    """What this processor can do, by LLVM's names; nothing where LLVM does not say."""
    return {name for name, there in _llvm("get_host_cpu_features", {}).items() if there}


def _llvm(name: str, otherwise: Any) -> Any:
    try:
        return getattr(import_module("llvmlite.binding"), name)()
    except (ImportError, AttributeError, RuntimeError):
        return otherwise
