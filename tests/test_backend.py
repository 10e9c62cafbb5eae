"""Solvers run unchanged on another backend."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import minfer
from minfer import FactorGraph, Gibbs, MeanField, Tempering
from minfer.kernels.backend import NUMPY, backend, using
from plain_backend import plain_backend

RNG = np.random.default_rng(3)
PAIRS = FactorGraph.grid(RNG.normal(size=(2, 3)), 0.7)
LABELS = FactorGraph.empty([3] * 4).tilt(RNG.normal(size=12)).add_potts([[0, 1], [1, 2], [2, 3]], 1)
LOGIC = PAIRS.add_clauses([[0, 1, 2]], weights=1.0)
ZEROS = PAIRS.add_tables([[0, 4]], [[[0.0, -np.inf], [0.3, 0.2]]])
SOLVERS = {
    MeanField(max_iters=30): {"ascend"},
    Gibbs(n_sweeps=5, burn_in=2, n_chains=2): {"draw", "sample"},
    Tempering(n_sweeps=4, burn_in=3, n_replicas=3, n_chains=2): {"draw", "place", "temper"},
}


@pytest.mark.parametrize("graph", [PAIRS, LABELS, LOGIC, ZEROS], ids=lambda g: repr(g))
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)
def test_answers_do_not_depend_on_the_backend(solver, graph):
    calls: list[str] = []
    with using(plain_backend(calls)):
        there = solver(graph)
    here = solver(graph)
    assert set(calls) >= SOLVERS[solver]
    np.testing.assert_allclose(there.probs, here.probs, rtol=1e-9)
    np.testing.assert_allclose(there.log_z, here.log_z, rtol=1e-9)
    assert there.status is here.status
    np.testing.assert_allclose(there.factor(graph.n_factors - 1), here.factor(graph.n_factors - 1))
    assert backend() is NUMPY


def test_these_solvers_name_no_kernel():
    folder = Path(minfer.__file__).parent / "solvers"
    for name in ("mean_field", "gibbs", "tempering"):
        text = (folder / f"{name}.py").read_text("utf-8")
        found = re.findall(r"from minfer\.kernels(?:\.\w+)? import (.*)", text)
        names = {each for line in found for each in re.split(r"[ ,()]+", line)}
        assert {each for each in names if each.islower()} <= {"backend"}
