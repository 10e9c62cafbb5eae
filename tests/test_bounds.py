"""mean field <= log Z <= tree-reweighted, on graphs with bridges and tails, thousands of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from draws import draws, thorough
from minfer import FactorGraph, LogZ, MeanField, TreeReweighted
from oracle import models
from oracle import truth as naive


def sandwich(graph: FactorGraph, weights="auto") -> bool:
    z = naive.log_z(graph)
    slack = 1e-7 * max(1.0, abs(z))
    low = MeanField()(graph)
    assert low.log_z_kind is LogZ.LOWER
    assert low.log_z <= z + slack
    high = TreeReweighted(weights=weights, tol=1e-8, damping=0.2)(graph)
    if high.log_z_kind in (LogZ.UPPER, LogZ.EXACT):
        assert high.log_z >= z - slack
    return high.log_z_kind in (LogZ.UPPER, LogZ.EXACT)


@pytest.mark.drawn
def test_thousands_of_cases():
    rng = np.random.default_rng(11)
    converged = 0
    cases = 2500 if thorough() else 240
    for case in range(cases):
        n = int(rng.integers(2, 9))
        density = rng.choice([0.3, 0.5, 1.0])
        edges = [[a, b] for a in range(n) for b in range(a) if rng.random() < density]
        if case % 3 == 0:  # a dense core with a tail: bridges must have weight 1
            edges = [[a, b] for a in range(min(n, 5)) for b in range(a)]
            edges += [[v, v - 1] for v in range(5, n)]
        spread = rng.choice([0.2, 1.0, 3.0])
        weights = rng.normal(size=len(edges)) * spread
        if case % 2:
            weights = np.abs(weights)
        edges = np.array(edges, dtype=np.int32).reshape(-1, 2)
        graph = FactorGraph.pairwise(rng.normal(size=n), edges, weights, feature="equal")
        converged += sandwich(graph, ["auto", "forests", "spanning-tree"][case % 3])
    assert converged > 0.8 * cases


@given(models.table_graphs(max_arity=2, max_states=3))
@settings(max_examples=draws(150))
def test_tables(graph):
    if np.isfinite(naive.log_z(graph)):
        sandwich(graph)
