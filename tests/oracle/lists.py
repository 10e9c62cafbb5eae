"""THE lists: every solver, every kind of factor, named graphs.

A new solver or factor kind is one line here, and every test that should cover it does.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import own_kind
from minfer import (
    Auto,
    BeliefPropagation,
    Clamped,
    Components,
    Exact,
    FactorGraph,
    Gibbs,
    JoinGraph,
    Marginals,
    MeanField,
    MiniBuckets,
    StructuredMeanField,
    Tempering,
    TreeReweighted,
    Windows,
)
from minfer.interop import to_pyagrum
from minfer.io import read_mar, read_uai
from minfer.parsing.trees import NonProjectiveTree, ProjectiveTree, all_arcs
from oracle import causes, models

SOLVERS = {
    "bp": BeliefPropagation(),
    "bp-flooding": BeliefPropagation(schedule="flooding", damping=0.3),
    "bp-residual": BeliefPropagation(schedule="residual"),
    "bp-coloured": BeliefPropagation(schedule="coloured"),
    "bp-damped": BeliefPropagation(damping=0.5, tol=1e-8),
    "trw": TreeReweighted(),
    "trw-forests": TreeReweighted(weights="forests", damping=0.2, schedule="coloured"),
    "trw-spanning-tree": TreeReweighted(weights="spanning-tree"),
    "mean-field": MeanField(),
    "gibbs": Gibbs(n_sweeps=300, burn_in=50, n_chains=3, rng=7),
    "exact": Exact(method="clique-tree"),
    "exact-auto": Exact(),
    "enumerate": Exact(method="enumerate"),
    "auto": Auto(),
    "auto-bp": Auto(exact_cells=0),
    "components": Components(BeliefPropagation(), workers=2, size=4),
    "clamped": Clamped(BeliefPropagation(), k=2),
    "clamped-exact": Clamped(Exact(method="clique-tree"), k=2, restarts=0),
    "join-graph": JoinGraph(),
    "join-graph-small": JoinGraph(max_cells=4, damping=0.3),
    "mini-buckets": MiniBuckets(),
    "tempering": Tempering(n_sweeps=300, burn_in=100, n_replicas=6, n_chains=3, rng=7),
    "structured-mean-field": StructuredMeanField(),
    "windows": Windows(),
    "windows-small": Windows(max_cells=8, core=2),
}
#: Solvers that draw at random: another start gives another answer.
SAMPLERS = {"gibbs", "tempering"}
#: Solvers whose log Z is a lower bound and whose marginals may be far off.
LOWER = {"mean-field", "structured-mean-field"}
#: Solvers that are exact on whatever they take, if it is small.
EXACT = {"exact", "enumerate", "auto", "clamped-exact", "join-graph", "windows"}
PAIRWISE_ONLY = {"trw", "trw-forests", "trw-spanning-tree"}
NO_LARGE_GLOBALS = {*PAIRWISE_ONLY, "mean-field", "gibbs", "tempering"}


def exactly_one() -> models.Between:
    """A global factor: exactly one of n binary variables is on."""
    return models.Between(1, least=1)


def pyagrum_solver(graph: FactorGraph, start: Marginals | None = None) -> Marginals:
    """Another library as a solver: pyAgrum's Shafer-Shenoy inference."""
    import pyagrum as gum

    inference = gum.ShaferShenoyMRFInference(to_pyagrum(graph))
    inference.makeInference()
    probs = [inference.posterior(graph.name(v)).toarray() for v in range(graph.n_variables)]
    return Marginals.from_probs(graph, np.concatenate(probs), "pyAgrum ShaferShenoy")


#: Real models, one folder per family, where there are some beside the checkout.
UAI = Path(os.environ.get("MINFER_DATA") or Path(__file__).parents[3] / "shared" / "data") / "uai"
UAI_MODELS = sorted(UAI.glob("*/*.uai.gz"))

needs_data = pytest.mark.skipif(
    not UAI_MODELS, reason="no real models here: set MINFER_DATA to a folder with uai/"
)


def published(path: Path) -> tuple[FactorGraph, np.ndarray]:
    """A model of the UAI competition and its exact marginals, which have 12 digits."""
    beside = [path.with_name(path.name.replace(".uai.gz", f".uai.{e}.gz")) for e in ("evid", "MAR")]
    return read_uai(path, evidence=beside[0]), np.concatenate(read_mar(beside[1]))


def graphs() -> dict[str, FactorGraph]:
    """Named graphs, each small enough to enumerate."""
    rng, labels = np.random.default_rng(5), np.random.default_rng(11)
    star = [[0, v] for v in range(1, 9)]
    return {
        "empty": FactorGraph.empty([]),
        "no-factors": FactorGraph.empty([2, 3, 1]),
        "constant": FactorGraph.from_tables([2], [[], [0]], [np.array(1.5), [0.0, 1.0]]),
        "chain": FactorGraph.pairwise(
            rng.normal(size=5), [[i, i + 1] for i in range(4)], rng.normal(size=4), feature="equal"
        ),
        "star": FactorGraph.pairwise(rng.normal(size=9), star, 1.5, feature="and"),
        "grid": FactorGraph.grid(rng.normal(size=(3, 3)), 0.7),
        "parallel": FactorGraph.pairwise([0.3, -0.4], [[0, 1], [0, 1], [1, 0]], [1, -2, 0.5]),
        "mixed": FactorGraph.from_tables(
            [2, 3, 1, 4],
            [[0], [1, 0], [3, 1], [2, 3], [0, 3]],
            [rng.normal(size=s) for s in [(2,), (3, 2), (4, 3), (1, 4), (2, 4)]],
        ),
        "zeros": FactorGraph.from_tables(
            [2, 2, 3],
            [[0, 1], [1, 2], [0, 2]],
            [
                [[0.0, -np.inf], [0.5, 1.0]],
                [[-np.inf, 0.0, 0.3], [0.2, -np.inf, 0.0]],
                rng.normal(size=(2, 3)),
            ],
        ),
        "huge": FactorGraph.pairwise([900.0, -1000.0, 3.0], [[0, 1], [1, 2]], [400.0, -700.0]),
        "disconnected": FactorGraph.pairwise(rng.normal(size=6), [[0, 3], [1, 2]], [1.0, -1.0]),
        "observed": FactorGraph.grid(rng.normal(size=(2, 3)), 1.0).with_evidence({1: 1, 4: 0}),
        "soft": FactorGraph.grid(rng.normal(size=(2, 2)), 1.0).with_soft_evidence({2: [0.2, 0.7]}),
        "labels": FactorGraph.empty([3] * 4)
        .tilt(labels.normal(size=12))
        .add_potts([[0, 1], [2, 3]], [0.8, -0.5])
        .add_truncated_linear([[0, 2], [3, 1]], 0.6, 1.5),
        "hard-labels": FactorGraph.empty([4] * 4)
        .tilt(labels.normal(size=16))
        .add_truncated_linear([[0, 1], [1, 2]], 0.3, 1, hard=True)
        .add_label_distances([[2, 3], [0, 3]], [[0.5, -0.2, 0.3], [1.0, 0.0, 0.0]]),
    }


def higher_order() -> dict[str, FactorGraph]:
    """Graphs beyond pairwise."""
    rng = np.random.default_rng(6)
    return {
        "triples": FactorGraph.from_tables(
            [2, 3, 2, 2],
            [[0, 1, 2], [3, 1], [2]],
            [rng.normal(size=s) for s in [(2, 3, 2), (2, 3), 2]],
        ),
        "features": FactorGraph.empty([2] * 4)
        .add_features([[0, 1, 2], [1, 2, 3]], [1.0, -2.0], np.arange(8).reshape(2, 2, 2) % 3 == 0)
        .add_features([[0], [3]], [0.5, -0.5], [False, True]),
        "causes": causes.network(3).with_evidence({4: 1}),
        "many-causes": causes.network(6),
    }


def every_kind() -> dict[str, FactorGraph]:
    """Logical factors of every kind, small enough to enumerate; add a kind of your own here."""
    rng = np.random.default_rng(7)
    unary = FactorGraph.pairwise(rng.normal(size=6), [], [])
    colours = FactorGraph.empty([3] * 5).tilt(rng.normal(size=15))
    signs = [[1, -1, 1], [-1, 1, 1]]
    return {
        "clauses": unary.add_clauses([[0, 1, 2], [2, 3, 4]], [1.2, -0.7], signs=signs),
        "clauses-of-states": colours.add_clauses(
            [[0, 1, 2], [2, 3, 4]], 1.0, signs=signs, states=2
        ),
        "hard-clauses": unary.add_clauses([[0, 1, 2], [3, 4, 5]]),
        "exactly-one": unary.add_exactly_one([[0, 1, 2], [3, 4, 5]]),
        "at-most-one": unary.add_at_most_one([[0, 1, 2, 3]]).add_features([[3, 4]], [0.5]),
        "parity": unary.add_parity([[0, 1, 2, 3], [3, 4, 5]], odd=[True, False]),
        "cardinality": unary.add_cardinality([[0, 1, 2, 3]], [0.0, 0.5, -0.5]),
        "at-most-two": unary.add_cardinality([[0, 1, 2, 3, 4]], at_most=2),
        "gates": unary.add_or([[0, 1]], [2]).add_and([[2, 3]], [4], 1.5),
        "own-kind": own_kind.add(unary, [[0, 1, 2, 3]]),
    }


def with_globals() -> dict[str, FactorGraph]:
    rng = np.random.default_rng(8)
    unary = FactorGraph.pairwise(rng.normal(size=4), [], [])
    arcs = FactorGraph.pairwise(rng.normal(size=9), [], [])  # 0-1 0-2 0-3 1-2 1-3 2-1 2-3 3-1 3-2
    every = np.arange(9)
    return {
        "one-of-four": unary.add_global([0, 1, 2, 3], exactly_one()),
        "one-of-three-and-pairs": unary.add_features([[0, 3], [1, 3]], [0.4, -0.6]).add_global(
            [2, 0, 1], exactly_one()
        ),
        "projective-tree": arcs.add_global(every, ProjectiveTree(*all_arcs(3), 3)),
        "tree-and-siblings": arcs.add_features([[3, 4], [0, 3]], [0.6, -0.4]).add_global(
            every, NonProjectiveTree(*all_arcs(3), 3, single_root=False)
        ),
    }


def logical() -> dict[str, FactorGraph]:
    """Logical factors: soft ones, hard ones with a haven (see HAVENS), and hard ones without."""
    rng = np.random.default_rng(9)
    six = FactorGraph.pairwise(rng.normal(size=6), [[0, 1], [2, 5], [3, 4]], [0.5, -0.8, 1.0])
    mixed = FactorGraph.from_tables(
        [2, 3, 2, 2, 3, 2],
        [[0], [1], [4], [1, 2], [4, 5]],
        [rng.normal(size=s) for s in [(2,), (3,), (3,), (3, 2), (3, 2)]],
    )
    return {
        "clauses": six.add_clauses(
            [[0, 1, 2], [5, 3, 1, 0], [4, 2, 0, 1, 3, 5]],
            [1.5, -0.7, 0.9],
            signs=[[1, -1, 1], [1, 1, -1, -1], [1, 1, 1, -1, 1, -1]],
        ),
        "counts": six.add_cardinality([[5, 0, 3, 1, 4, 2]], [0.3, -1.0, 0.5, 0.0, 2.0])
        .add_parity([[1, 2, 3, 4, 5]], 0.6, odd=True)
        .add_cardinality([[0, 1, 2]], [1.0, 0.0], signs=[[1, -1, 1]]),
        "gates": six.add_or([[1, 2, 3, 4]], [0], 1.2).add_and([[0, 5, 2, 4, 1]], [3], 0.8),
        "states": mixed.add_clauses([[5, 4, 1, 0, 2]], 1.1, states=[[1, 2, 0, 0, 1]])
        .add_cardinality([[0, 1, 2, 3, 4, 5]], [0.0, 0.7, -0.4], states=0)
        .add_clauses([[1, 4, 3]], 0.8, signs=[[-1, 1, -1]], states=[[2, 1, 1]]),
        "evidence": six.add_clauses([[0, 1, 2, 3, 4], [1, 3, 5]], 1.0)
        .add_parity([[0, 1, 2, 3, 4, 5]], 0.5)
        .with_evidence({1: 0, 4: 1}),
        "at-most": six.add_cardinality([[5, 4, 3, 2, 1, 0]], at_most=2).add_at_most_one(
            [[0, 2, 4]]
        ),
        "hard-clauses": six.add_clauses([[0, 1, 2], [1, 2, 3, 4, 5]], np.inf, states=1).add_clauses(
            [[0, 3, 5, 1]], 0.7, signs=[[-1, -1, 1, 1]]
        ),
        "exactly-one": six.add_exactly_one([[0, 1, 2, 3, 4]]),
        "parity-checks": six.add_parity([[0, 1, 2, 3, 4], [1, 3, 5]]),
        "hard-gate": six.add_or([[1, 2, 3, 4, 5]], [0]),
        "opposed": six.add_clauses([[0, 1, 2]]).add_at_most_one([[0, 4, 5], [1, 2, 3]]),
    }


#: Of the hard ones, those in which chains of single moves are known to reach everything.
HAVENS = {"at-most", "hard-clauses"}
TRAPS = {"exactly-one", "parity-checks", "hard-gate", "opposed"}
#: Solvers that take no hard logical factors at all.
SOFT_ONLY = {"mean-field"}
