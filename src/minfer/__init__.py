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

#: Names that are imported when first used, by the modules that have them.
_LATE = {
    "certified.result": "Intervals",
    "certified.search": "intervals",
    "images.denoising": "denoise",
    "io": "read read_evidence read_fg read_mar read_native read_pr read_uai write "
    "write_fg write_mar write_native write_pr write_uai",
    "model.causes": "NoisyAnd NoisyMax NoisyMin NoisyOr",
    "model.joint": "Joint",
    "prediction": "evaluate predict Predictor",
    "model.drawn": "Samples",
    "model.ranked": "Best",
    "queries.best": "mpe",
    "queries.information": "influence information",
    "queries.query": "Query query",
    "queries.samples": "sample",
    "queries.separation": "separated",
    "queries.sensitivity": "sensitivity",
    "reduction.calibrate": "calibrate",
    "reduction.compare": "tradeoff",
    "reduction.explain": "explain explain_model",
    "reduction.gains": "factor_gains",
    "reduction.infer": "infer",
    "reduction.objectives": "Budget MinDivergence MinJoint MinSize",
    "reduction.recipes": "Compensated Iterated Paper",
    "reduction.relax": "relax",
    "reduction.result": "Result",
    "reduction.sources": "FactorSource ground Join JoinTemplates",
    "report.explore": "explore Explorer",
    "rules": "Rules",
    "solvers.auto": "Auto",
    "solvers.base": "LogZ Marginals Solver Status",
    "solvers.batch": "Batch",
    "solvers.bp": "BeliefPropagation",
    "solvers.circuit": "Circuit",
    "solvers.clamped": "Clamped",
    "solvers.compiling": "compile",
    "solvers.components": "Components",
    "solvers.exact": "Exact",
    "solvers.gibbs": "Gibbs",
    "solvers.join_graph": "JoinGraph",
    "solvers.mean_field": "MeanField",
    "solvers.mini_buckets": "MiniBuckets",
    "solvers.planning": "Plan plan",
    "solvers.prepared": "Prepared",
    "solvers.structured_mean_field": "StructuredMeanField",
    "solvers.tempering": "Tempering",
    "solvers.trw": "TreeReweighted",
    "solvers.windows": "Windows",
    "through_time": "Dynamic",
}
_HOMES = {name: f"minfer.{home}" for home, names in _LATE.items() for name in names.split()}

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
    from minfer.model.causes import NoisyAnd, NoisyMax, NoisyMin, NoisyOr
    from minfer.model.drawn import Samples
    from minfer.model.joint import Joint
    from minfer.model.ranked import Best
    from minfer.prediction import Predictor, evaluate, predict
    from minfer.queries.best import mpe
    from minfer.queries.information import influence, information
    from minfer.queries.query import Query, query
    from minfer.queries.samples import sample
    from minfer.queries.sensitivity import sensitivity
    from minfer.queries.separation import separated
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
    from minfer.solvers.base import LogZ, Marginals, Solver, Status
    from minfer.solvers.batch import Batch
    from minfer.solvers.bp import BeliefPropagation
    from minfer.solvers.circuit import Circuit
    from minfer.solvers.clamped import Clamped
    from minfer.solvers.compiling import compile
    from minfer.solvers.components import Components
    from minfer.solvers.exact import Exact
    from minfer.solvers.gibbs import Gibbs
    from minfer.solvers.join_graph import JoinGraph
    from minfer.solvers.mean_field import MeanField
    from minfer.solvers.mini_buckets import MiniBuckets
    from minfer.solvers.planning import Plan, plan
    from minfer.solvers.prepared import Prepared
    from minfer.solvers.structured_mean_field import StructuredMeanField
    from minfer.solvers.tempering import Tempering
    from minfer.solvers.trw import TreeReweighted
    from minfer.solvers.windows import Windows
    from minfer.through_time import Dynamic

__all__ = [
    "Auto",
    "Batch",
    "BeliefPropagation",
    "Best",
    "Budget",
    "Circuit",
    "Clamped",
    "Compensated",
    "Components",
    "ContradictionError",
    "Dynamic",
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
    "MiniBuckets",
    "ModelError",
    "NoisyAnd",
    "NoisyMax",
    "NoisyMin",
    "NoisyOr",
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
    "compile",
    "denoise",
    "evaluate",
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
    "separated",
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
    if name in _HOMES:
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found
    if name in _PACKAGES:
        return import_module(f"minfer.{name}")
    raise AttributeError(f"module 'minfer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
