"""Models from data: estimators with scikit-learn's interface, and their parts.

Names are imported when first used, as those of :mod:`minfer` are.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_LATE = {
    "BayesianNetwork": "minfer.learn.tables",
    "BetheLikelihood": "minfer.learn.objectives",
    "ChainCRF": "minfer.learn.chain",
    "Estimator": "minfer.learn.estimator",
    "ExactLikelihood": "minfer.learn.objectives",
    "Fitted": "minfer.learn.fitting",
    "GridCRF": "minfer.learn.grid",
    "Grown": "minfer.learn.growth",
    "Instance": "minfer.learn.model",
    "IsingModel": "minfer.learn.ising",
    "Likelihood": "minfer.learn.objectives",
    "LogLinear": "minfer.learn.model",
    "MarginalLoss": "minfer.learn.objectives",
    "MaxMargin": "minfer.learn.objectives",
    "Objective": "minfer.learn.objectives",
    "Perceptron": "minfer.learn.objectives",
    "PottsModel": "minfer.learn.ising",
    "Pseudolikelihood": "minfer.learn.objectives",
    "TRWLikelihood": "minfer.learn.objectives",
    "Template": "minfer.learn.model",
    "fit": "minfer.learn.fitting",
    "grow": "minfer.learn.growth",
    "read_instances": "minfer.learn.shards",
    "sample_shards": "minfer.learn.shards",
    "shards": "minfer.learn.shards",
    "write_instances": "minfer.learn.shards",
}

if TYPE_CHECKING:
    from minfer.learn.chain import ChainCRF
    from minfer.learn.estimator import Estimator
    from minfer.learn.fitting import Fitted, fit
    from minfer.learn.grid import GridCRF
    from minfer.learn.growth import Grown, grow
    from minfer.learn.ising import IsingModel, PottsModel
    from minfer.learn.model import Instance, LogLinear, Template
    from minfer.learn.objectives import (
        BetheLikelihood,
        ExactLikelihood,
        Likelihood,
        MarginalLoss,
        MaxMargin,
        Objective,
        Perceptron,
        Pseudolikelihood,
        TRWLikelihood,
    )
    from minfer.learn.shards import read_instances, sample_shards, shards, write_instances
    from minfer.learn.tables import BayesianNetwork

__all__ = [
    "BayesianNetwork",
    "BetheLikelihood",
    "ChainCRF",
    "Estimator",
    "ExactLikelihood",
    "Fitted",
    "GridCRF",
    "Grown",
    "Instance",
    "IsingModel",
    "Likelihood",
    "LogLinear",
    "MarginalLoss",
    "MaxMargin",
    "Objective",
    "Perceptron",
    "PottsModel",
    "Pseudolikelihood",
    "TRWLikelihood",
    "Template",
    "fit",
    "grow",
    "read_instances",
    "sample_shards",
    "shards",
    "write_instances",
]


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module 'minfer.learn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
