"""``minfer learn``: tables from a file of cases."""

from __future__ import annotations

import json

import numpy as np
import pytest

import minfer
from test_cli import call, ok

CASES = "id,rain,wet\n1,no,no\n2,no,yes\n3,yes,yes\n4,?,yes\n5,no,\n"


@pytest.fixture
def files(tmp_path):
    graph = minfer.FactorGraph.network(
        {"rain": ["no", "yes"], "wet": ["no", "yes"]},
        {"rain": [0.5, 0.5], "wet": ("rain", [[0.5, 0.5], [0.5, 0.5]])},
    )
    minfer.write(graph, tmp_path / "net.bif")
    (tmp_path / "cases.csv").write_text(CASES)
    return str(tmp_path / "net.bif"), str(tmp_path / "cases.csv"), str(tmp_path / "out.bif")


def test_it_writes_what_the_estimator_learns(files):
    model, cases, out = files
    done = ok("learn", model, cases, "-o", out, "--missing", "?", "--prior", "bdeu", "--json")
    facts = json.loads(done.stdout)
    assert facts["status"] == "converged"
    net = minfer.learn.BayesianNetwork(model, prior="bdeu", missing=("", "?")).fit(cases)
    assert facts["objective"] == pytest.approx(net.objective_)
    learned = minfer.read(out)
    assert learned.states("rain") == ("no", "yes")
    for name, table in net.tables_.items():
        factor = learned._conditional_of(learned.index(name))
        np.testing.assert_allclose(np.exp(learned.log_table(factor)), table, atol=1e-12)


def test_it_says_what_it_did_and_refuses_what_it_cannot_read_or_write(files):
    model, cases, out = files
    done = call("learn", model, cases, "-o", out, "--missing", "?")
    assert "converged after" in done.stdout + done.stderr
    done = call("learn", model, cases, "-o", out)
    assert done.exit_code == 3
    assert "row 3, column rain" in done.stderr
    assert "--missing ?" in done.stderr
    done = call("learn", model, cases, "-o", out, "--prior", "k2")
    assert done.exit_code == 2
    model, _, out = files
    done = call("learn", model, "no-such-cases.csv", "-o", f"{out}.png")
    assert done.exit_code == 2
    assert "the name should end in" in done.stderr
