"""``measure`` of minfer_experiments by its path, for scripts that run where this minfer is not.

Workers run in environments of other libraries, or with another checkout's minfer on their path, and
are timed as everything else is: ``from stopwatch import measure``.
"""

from __future__ import annotations

import sys
from pathlib import Path

HOME = str(Path(__file__).resolve().parents[1] / "experiments" / "minfer_experiments")
sys.path.append(HOME)
try:
    import measure
finally:
    sys.path.remove(HOME)

__all__ = ["measure"]
