"""Kernels as plain Python: NUMBA_DISABLE_JIT=1 pytest tests/test_plain.py

numpy checks every index there, so a kernel that reads or writes past an array fails instead of
returning whatever lies behind it. Answers are compared with enumeration where they are exact.
"""

from __future__ import annotations

import numpy as np
import pytest
from numba.core import config

from minfer import BeliefPropagation, Exact, Gibbs, MeanField, TreeReweighted
from minfer.errors import RefusedError
from minfer.exercise import small_graphs

pytestmark = [
    pytest.mark.skipif(not getattr(config, "DISABLE_JIT", False), reason="for NUMBA_DISABLE_JIT=1"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # whole numbers wrap around on purpose
]

SOLVERS = {
    "bp": BeliefPropagation(),
    "bp, damped": BeliefPropagation(damping=0.3, max_iters=5),
    "bp, flooding": BeliefPropagation(schedule="flooding", max_iters=5),
    "bp, residual": BeliefPropagation(schedule="residual", max_iters=5),
    "trw": TreeReweighted(max_iters=5),
    "mean field": MeanField(max_iters=5),
    "gibbs": Gibbs(n_sweeps=5, burn_in=1),
}
GRAPHS = small_graphs()


@pytest.mark.parametrize("number", range(len(GRAPHS)))
@pytest.mark.parametrize("name", SOLVERS)
def test_every_index_is_inside_its_array(name, number):
    graph = GRAPHS[number]
    try:
        answer = SOLVERS[name](graph)
    except RefusedError:
        return
    _ = answer.log_z
    for v in range(graph.n_variables):
        assert abs(answer[v].sum() - 1.0) < 1e-9


@pytest.mark.parametrize("number", range(9))
def test_clique_trees_agree_with_enumeration(number):
    graph = GRAPHS[number]
    tree, every = Exact(method="clique-tree")(graph), Exact(method="enumerate")(graph)
    np.testing.assert_allclose(tree.probs, every.probs, atol=1e-9)
