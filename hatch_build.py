"""A wheel with machine code (packaging/ready_wheel.py puts it there) is for one platform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ReadyHook(BuildHookInterface):
    """The tag of the wheel, from what its machine code was made for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        about = Path(self.root, "src", "minfer", "kernels", "ready", "about.json")
        if self.target_name == "wheel" and about.exists():
            build_data["pure_python"] = False
            build_data["tag"] = json.loads(about.read_text())["tag"]
