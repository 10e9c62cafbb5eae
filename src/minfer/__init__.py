"""minfer: fast marginal inference in discrete factor graphs, and how far the answer can be off.

The public names; solvers and readers are imported when first used, so that ``import minfer`` stays
cheap (numba loads with the first kernel).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from minfer.errors import (
    ContradictionError,
    EvidenceError,
    FormatError,
    MinferError,
    ModelError,
    NotFittedError,
    RefusedError,
    SettingsError,
)
from minfer.factors import Features, GlobalFactor, Globals, Tables
from minfer.graph import FactorGraph

__version__ = "1.0.0rc2"

_LATE = {
    "Intervals": "minfer.certified.result",
    "intervals": "minfer.certified.search",
    "Auto": "minfer.solvers.auto",
    "MinDivergence": "minfer.reduction.objectives",
    "MinJoint": "minfer.reduction.objectives",
    "MinSize": "minfer.reduction.objectives",
    "Compensated": "minfer.reduction.recipes",
    "Iterated": "minfer.reduction.recipes",
    "Paper": "minfer.reduction.recipes",
    "Result": "minfer.reduction.result",
    "Rules": "minfer.rules",
    "Budget": "minfer.reduction.objectives",
    "FactorSource": "minfer.reduction.sources",
    "Join": "minfer.reduction.sources",
    "JoinTemplates": "minfer.reduction.sources",
    "ground": "minfer.reduction.sources",
    "calibrate": "minfer.reduction.calibrate",
    "denoise": "minfer.images.denoising",
    "Explorer": "minfer.report.explore",
    "explore": "minfer.report.explore",
    "explain": "minfer.reduction.explain",
    "explain_model": "minfer.reduction.explain",
    "factor_gains": "minfer.reduction.gains",
    "relax": "minfer.reduction.relax",
    "tradeoff": "minfer.reduction.compare",
    "infer": "minfer.reduction.infer",
    "Batch": "minfer.solvers.batch",
    "BeliefPropagation": "minfer.solvers.bp",
    "Components": "minfer.solvers.components",
    "Clamped": "minfer.solvers.clamped",
    "Exact": "minfer.solvers.exact",
    "JoinGraph": "minfer.solvers.join_graph",
    "StructuredMeanField": "minfer.solvers.structured_mean_field",
    "Tempering": "minfer.solvers.tempering",
    "Windows": "minfer.solvers.windows",
    "Gibbs": "minfer.solvers.gibbs",
    "Predictor": "minfer.prediction",
    "predict": "minfer.prediction",
    "LogZ": "minfer.solvers.status",
    "Marginals": "minfer.solvers.base",
    "MeanField": "minfer.solvers.mean_field",
    "Prepared": "minfer.solvers.prepared",
    "Solver": "minfer.solvers.base",
    "Status": "minfer.solvers.status",
    "TreeReweighted": "minfer.solvers.trw",
    "Joint": "minfer.model.joint",
    "Plan": "minfer.solvers.planning",
    "plan": "minfer.solvers.planning",
    "Best": "minfer.queries.best",
    "Query": "minfer.queries.query",
    "Samples": "minfer.queries.samples",
    "influence": "minfer.queries.influence",
    "information": "minfer.queries.information",
    "mpe": "minfer.queries.best",
    "sample": "minfer.queries.samples",
    "sensitivity": "minfer.queries.sensitivity",
    "query": "minfer.queries.query",
    "read": "minfer.io",
    "read_evidence": "minfer.io",
    "read_fg": "minfer.io",
    "read_mar": "minfer.io",
    "read_native": "minfer.io",
    "read_pr": "minfer.io",
    "read_uai": "minfer.io",
    "write": "minfer.io",
    "write_fg": "minfer.io",
    "write_mar": "minfer.io",
    "write_native": "minfer.io",
    "write_pr": "minfer.io",
    "write_uai": "minfer.io",
}

if TYPE_CHECKING:
    from minfer.certified.result import Intervals
    from minfer.certified.search import intervals
    from minfer.images.denoising import denoise
    from minfer.io import (
        read,
        read_evidence,
        read_fg,
        read_mar,
        read_native,
        read_pr,
        read_uai,
        write,
        write_fg,
        write_mar,
        write_native,
        write_pr,
        write_uai,
    )
    from minfer.model.joint import Joint
    from minfer.prediction import Predictor, predict
    from minfer.queries.best import Best, mpe
    from minfer.queries.influence import influence
    from minfer.queries.information import information
    from minfer.queries.query import Query, query
    from minfer.queries.samples import Samples, sample
    from minfer.queries.sensitivity import sensitivity
    from minfer.reduction.calibrate import calibrate
    from minfer.reduction.compare import tradeoff
    from minfer.reduction.explain import explain, explain_model
    from minfer.reduction.gains import factor_gains
    from minfer.reduction.infer import infer
    from minfer.reduction.objectives import Budget, MinDivergence, MinJoint, MinSize
    from minfer.reduction.recipes import Compensated, Iterated, Paper
    from minfer.reduction.relax import relax
    from minfer.reduction.result import Result
    from minfer.reduction.sources import FactorSource, Join, JoinTemplates, ground
    from minfer.report.explore import Explorer, explore
    from minfer.rules import Rules
    from minfer.solvers.auto import Auto
    from minfer.solvers.base import Marginals, Solver
    from minfer.solvers.batch import Batch
    from minfer.solvers.bp import BeliefPropagation
    from minfer.solvers.clamped import Clamped
    from minfer.solvers.components import Components
    from minfer.solvers.exact import Exact
    from minfer.solvers.gibbs import Gibbs
    from minfer.solvers.join_graph import JoinGraph
    from minfer.solvers.mean_field import MeanField
    from minfer.solvers.planning import Plan, plan
    from minfer.solvers.prepared import Prepared
    from minfer.solvers.status import LogZ, Status
    from minfer.solvers.structured_mean_field import StructuredMeanField
    from minfer.solvers.tempering import Tempering
    from minfer.solvers.trw import TreeReweighted
    from minfer.solvers.windows import Windows

__all__ = [
    "Auto",
    "Batch",
    "BeliefPropagation",
    "Best",
    "Budget",
    "Clamped",
    "Compensated",
    "Components",
    "ContradictionError",
    "EvidenceError",
    "Exact",
    "Explorer",
    "FactorGraph",
    "FactorSource",
    "Features",
    "FormatError",
    "Gibbs",
    "GlobalFactor",
    "Globals",
    "Intervals",
    "Iterated",
    "Join",
    "JoinGraph",
    "JoinTemplates",
    "Joint",
    "LogZ",
    "Marginals",
    "MeanField",
    "MinDivergence",
    "MinJoint",
    "MinSize",
    "MinferError",
    "ModelError",
    "NotFittedError",
    "Paper",
    "Plan",
    "Predictor",
    "Prepared",
    "Query",
    "RefusedError",
    "Result",
    "Rules",
    "Samples",
    "SettingsError",
    "Solver",
    "Status",
    "StructuredMeanField",
    "Tables",
    "Tempering",
    "TreeReweighted",
    "Windows",
    "calibrate",
    "denoise",
    "explain",
    "explain_model",
    "explore",
    "factor_gains",
    "ground",
    "infer",
    "influence",
    "information",
    "intervals",
    "mpe",
    "plan",
    "predict",
    "query",
    "read",
    "read_evidence",
    "read_fg",
    "read_mar",
    "read_native",
    "read_pr",
    "read_uai",
    "relax",
    "sample",
    "sensitivity",
    "tradeoff",
    "write",
    "write_fg",
    "write_mar",
    "write_native",
    "write_pr",
    "write_uai",
]


#: Packages that pages and people call by their full names.
_PACKAGES = ("interop", "learn", "queries")


def __getattr__(name: str) -> Any:
    if name in _LATE:
        found = globals()[name] = getattr(import_module(_LATE[name]), name)
        return found
    if name in _PACKAGES:
        return import_module(f"minfer.{name}")
    raise AttributeError(f"module 'minfer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
