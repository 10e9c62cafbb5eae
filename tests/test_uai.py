"""Belief propagation on the UAI 2014 models: it ends on all of them with proper marginals."""

from __future__ import annotations

import numpy as np
import pytest

from draws import few
from minfer import BeliefPropagation, read_uai
from oracle import lists


@lists.needs_data
def test_all_models_are_here():
    assert len(lists.UAI_MODELS) == 44


@pytest.mark.drawn
@pytest.mark.parametrize(
    "path", few(lists.UAI_MODELS, 15), ids=lambda p: p.name.removesuffix(".uai.gz")
)
def test_bp_ends_with_proper_marginals(path):
    graph = read_uai(path, evidence=path.with_name(path.name.replace(".uai.gz", ".uai.evid.gz")))
    m = BeliefPropagation(time_limit=3)(graph)
    assert np.isfinite(m.probs).all()
    assert (m.probs >= 0).all()
    np.testing.assert_allclose(np.add.reduceat(m.probs, graph.offsets[:-1]), 1, atol=1e-9)
    assert np.isfinite(m.log_z)
