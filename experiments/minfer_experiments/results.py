"""How experiments keep what they measured: a JSON file, part by part, with when and where.

    {"about": {PART: {"date", "cpu", "python", "code", "versions"}, ...}, PART: ..., ...}

A part that is not measured in a run stays as it was, and pages are written from the file alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from minfer.io.text import make_folder, write_bytes
from minfer_experiments.measure import about

ABOUT = "about"


class Results:
    """The file; with ``dry`` a copy of it that is never written, without a path no file at all."""

    def __init__(self, path: Path | None, dry: bool = False, indent: int | None = 1) -> None:
        self.path, self.dry, self.indent = path, dry, indent
        self.found: dict[str, Any] = {ABOUT: {}}
        if path is not None and path.exists():
            self.found |= json.loads(path.read_text("utf-8"))

    @property
    def parts(self) -> dict[str, Any]:
        """What was measured, by part."""
        return {part: found for part, found in self.found.items() if part != ABOUT}

    def keep(self, part: str, found: Any, stamp: dict[str, Any] | None = None) -> None:
        """A part that was just measured; ``stamp`` is :func:`~.measure.about` of now if absent."""
        self.found[part] = found
        self.found[ABOUT][part] = about() if stamp is None else stamp
        self.save()

    def forget(self, parts: Iterable[str]) -> None:
        for part in parts:
            self.found.pop(part, None)
            self.found[ABOUT].pop(part, None)
        self.save()

    def save(self) -> None:
        """Write the file whole, or leave it as it was."""
        if self.path is None or self.dry:
            return
        make_folder(self.path.parent)
        separators = (",", ":") if self.indent is None else None
        text = json.dumps(self.found, indent=self.indent, separators=separators)
        write_bytes(self.path, f"{text}\n".encode())


def together(found: dict[str, Any], key: str) -> list[str]:
    """The different values of a key of ``about`` over the parts, sorted."""
    return sorted({str(stamp[key]) for stamp in found.get(ABOUT, {}).values() if stamp.get(key)})
