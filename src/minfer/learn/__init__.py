"""Models from data: estimators with scikit-learn's interface, and their parts.

Names are imported when first used, as those of :mod:`minfer` are.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "bins_compared": ["BinsCompared", "compare_bins"],
    "chain": ["ChainCRF"],
    "classifier": ["NetworkClassifier"],
    "dynamic": ["DynamicNetwork"],
    "estimator": ["Estimator"],
    "fitting": ["Fitted", "fit"],
    "grid": ["GridCRF"],
    "growth": ["Grown", "grow"],
    "ising": ["IsingModel", "PottsModel"],
    "model": ["Instance", "LogLinear", "Template"],
    "instance_files": ["read_instances", "sample_shards", "shards", "write_instances"],
    "tables": ["BayesianNetwork"],
}

if TYPE_CHECKING:
    from minfer.learn.bins_compared import BinsCompared, compare_bins
    from minfer.learn.chain import ChainCRF
    from minfer.learn.classifier import NetworkClassifier
    from minfer.learn.dynamic import DynamicNetwork
    from minfer.learn.estimator import Estimator
    from minfer.learn.fitting import Fitted, fit
    from minfer.learn.grid import GridCRF
    from minfer.learn.growth import Grown, grow
    from minfer.learn.instance_files import read_instances, sample_shards, shards, write_instances
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
    from minfer.learn.tables import BayesianNetwork

__all__ = [
    "BayesianNetwork",
    "BetheLikelihood",
    "BinsCompared",
    "ChainCRF",
    "DynamicNetwork",
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
    "NetworkClassifier",
    "Objective",
    "Perceptron",
    "PottsModel",
    "Pseudolikelihood",
    "TRWLikelihood",
    "Template",
    "compare_bins",
    "fit",
    "grow",
    "read_instances",
    "sample_shards",
    "shards",
    "write_instances",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        home = next((home for home, names in _HOMES.items() if name in names), "objectives")
        return getattr(import_module(f"minfer.learn.{home}"), name)
    raise AttributeError(f"module 'minfer.learn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
