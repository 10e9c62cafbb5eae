"""What the first call compiles: no kernel that it does not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow  # it compiles

#: One process, so that each case adds to what those before it compiled.
CODE = """
import json
import numpy as np
from numba.core import event
from typer.testing import CliRunner
import minfer
from minfer import BeliefPropagation, Exact, FactorGraph
from minfer.cli import app
from minfer.examples import sprinkler

names = []

class Listener(event.Listener):
    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        names.append(f"{function.__module__}.{function.__name__}")

    def on_end(self, event):
        pass

event.register("numba:compile", Listener())
found = {}

def note(case):
    found[case] = [name for name in names if name.startswith("minfer.")]
    names.clear()

minfer.query(sprinkler(), "rain", {"wet_grass": 1})
seen = Exact()(sprinkler().with_evidence({"wet_grass": 1}))
assert seen.log_z and seen.factor(0).size and seen.joint("rain", "sprinkler")
Exact(method="enumerate")(sprinkler()).log_z
note("exact")
rng = np.random.default_rng(0)
m = BeliefPropagation()(FactorGraph.grid(rng.normal(size=(24, 24)), 0.5))
assert m.converged and m.log_z
note("grid")
again = BeliefPropagation()(FactorGraph.grid(rng.normal(size=(3, 9)), 1.0))
assert again.converged
note("another grid")
seen = FactorGraph.grid(rng.normal(size=(24, 24)), 0.5).with_evidence({30: 1, 100: 0, 301: 1})
seen = BeliefPropagation()(seen)
assert seen.converged and seen.log_z
note("evidence")
result = CliRunner().invoke(app, ["demo"])
assert result.exit_code == 0, result.output
note("demo")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict[str, list[str]]:
    cache = tmp_path_factory.mktemp("cache")
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT / "src"), "MINFER_CACHE_DIR": str(cache),
    }  # fmt: skip
    call = [sys.executable, "-c", CODE]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_first_calls_compile_what_they_need_and_nothing_else(compiled):
    assert compiled["exact"] == []
    names = compiled["grid"]
    assert "minfer.kernels.messages.odds.sweep_pairs" in names
    modules = {name.rpartition(".")[0].removeprefix("minfer.kernels.") for name in names}
    assert modules <= {"messages.odds", "messages.bethe", "messages.wiring", "messages.tables"}
    needless = {
        "walk_pairs", "wake_all", "factor_message", "contract", "damped", "general_terms",
        "tree_slack", "variable_terms", "peel",
    }  # fmt: skip
    assert not needless & {name.rpartition(".")[2] for name in names}
    assert len(names) <= 25
    assert compiled["another grid"] == []  # nothing depends on size or numbers
    assert compiled["evidence"] == []  # observed variables make no run a mixed one
    names = compiled["demo"]
    modules = {name.split(".")[-2] for name in names}
    assert modules <= {"walks", "deepening"}
    assert len(names) <= 10
