"""Models from data: estimators with scikit-learn's habits, and what they are made of.

Names are imported when first used, as those of :mod:`minfer` are.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_LATE = {
    "BayesianNetwork": "minfer.learn.tables",
    "ChainCRF": "minfer.learn.chain",
    "Estimator": "minfer.learn.estimator",
}

if TYPE_CHECKING:
    from minfer.learn.chain import ChainCRF
    from minfer.learn.estimator import Estimator
    from minfer.learn.tables import BayesianNetwork

__all__ = [
    "BayesianNetwork",
    "ChainCRF",
    "Estimator",
]


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module 'minfer.learn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
