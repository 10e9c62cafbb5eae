"""One reviewed file over all solvers and settings: none can drift unnoticed.

``python tests/test_golden.py`` writes it anew; look at the difference before you commit it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from oracle import lists

FILE = Path(__file__).with_name("golden.json")
GRAPHS = {name: lists.graphs()[name] for name in ("grid", "mixed", "zeros", "huge", "observed")}
GRAPHS |= lists.higher_order()


def answers() -> dict[str, dict]:
    out = {}
    for graph_name, graph in GRAPHS.items():
        for solver_name, solver in lists.SOLVERS.items():
            if solver_name in lists.PAIRWISE_ONLY and graph_name in lists.higher_order():
                continue
            m = solver(graph)
            out[f"{graph_name} {solver_name}"] = {
                "status": m.status.value,
                "log_z": None if math.isnan(m.log_z) else float(f"{m.log_z:.10g}"),
                "log_z_kind": m.log_z_kind.value,
                "probs": [float(f"{p:.8f}") for p in m.probs],
            }
    return out


def test_no_solver_has_drifted():
    golden, now = json.loads(FILE.read_text()), answers()
    assert sorted(golden) == sorted(now), "a solver or graph came or went: write the file anew"
    for key, old in golden.items():
        new = now[key]
        assert (new["status"], new["log_z_kind"]) == (old["status"], old["log_z_kind"]), key
        np.testing.assert_allclose(new["probs"], old["probs"], atol=2e-6, err_msg=key)
        if old["log_z"] is not None:
            assert new["log_z"] == pytest.approx(old["log_z"], rel=1e-6, abs=1e-6), key


if __name__ == "__main__":
    FILE.write_text(json.dumps(answers(), indent=1) + "\n")
