"""A program of somebody who checks types: ``.ci/readonly`` does so against the installed wheel."""

from pathlib import Path
from tempfile import mkdtemp
from typing import assert_type

import numpy as np

import minfer
from minfer import Auto, BeliefPropagation, Exact, FactorGraph, Intervals, Joint, Marginals
from minfer.learn import BayesianNetwork, ChainCRF

network = FactorGraph.network(
    {"smoker": ["no", "yes"], "cancer": ["no", "yes"]},
    {"smoker": [0.7, 0.3], "cancer": ("smoker", [[0.99, 0.01], [0.9, 0.1]])},
)
yes: float = minfer.query(network, "cancer", {"smoker": "yes"})["yes"]
both = minfer.query(network, ["smoker", "cancer"])
assert_type(both, Joint)
assert_type(minfer.query(network), Marginals)
assert_type(Auto(time_limit=1)(network), Marginals)
found = BeliefPropagation()(FactorGraph.grid(np.zeros((3, 3)), 0.5))
assert_type(found.log_z, float)
assert_type(found.status.ok, bool)
assert_type(minfer.intervals(network, time_limit=1), Intervals)
answer = minfer.predict(network, {"smoker": ["yes", None]}, "cancer")
path = Path(mkdtemp()) / "network.bif"
minfer.write(network, path)
assert_type(minfer.read(path), FactorGraph)
rows = Exact().prepare(network).batch(evidence=[{"smoker": "yes"}])
tagger = ChainCRF().fit([[["a"], ["b"]]], [["x", "y"]])
learned = BayesianNetwork({"smoker": []})
best = minfer.mpe(network)
assert_type(best.gap, float)
assert abs(yes - 0.1) < 1e-12
