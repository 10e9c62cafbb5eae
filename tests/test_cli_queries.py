"""``minfer query``, ``mpe`` and ``sample``; evidence and answers by state names in all commands."""

import csv
import io
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import minfer
from minfer import FactorGraph, MinJoint, explain, infer
from minfer.cli import app
from test_states import sprinkler


@pytest.fixture
def garden(tmp_path):
    minfer.write(sprinkler(), tmp_path / "garden.minfer")
    return str(tmp_path / "garden.minfer")


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


def told(result):
    return json.loads(result.stdout)


def test_query_one(garden):
    out = run("query", garden, "rain", "-e", "wet=yes").stdout
    p = minfer.query(sprinkler(), "rain", {"wet": "yes"})
    assert f"yes         {p['yes']:.4f}" in out
    assert "wet=yes" in out
    assert "log P(e)" in out
    found = told(run("query", garden, "rain", "-e", "wet=yes", "--json"))
    assert found["marginals"]["rain"] == pytest.approx(p.to_dict())
    assert found["log_evidence"] == pytest.approx(p.log_evidence)
    assert found["evidence"] == {"wet": "yes"}


def test_query_several_and_all(garden):
    joint = minfer.query(sprinkler(), ["rain", "wet"], {"count": 2})
    found = told(run("query", garden, "rain", "wet", "-e", "count=2", "--json"))
    assert np.allclose(found["joint"]["table"], joint.table)
    assert found["joint"]["variables"] == ["rain", "wet"]
    out = run("query", garden, "rain", "wet", "-e", "count=2", "--rows", 2).stdout
    assert "and 2 more" in out
    apart = told(run("query", garden, "rain,wet", "--separate", "--json"))
    assert set(apart["marginals"]) == {"rain", "wet"}
    every = told(run("query", garden, "-e", "wet=no", "--json"))
    assert set(every["marginals"]) == {"rain", "sprinkler", "wet", "count"}
    assert every["log_evidence"] == pytest.approx(
        minfer.query(sprinkler(), "rain", {"wet": "no"}).log_evidence
    )
    assert "sprinkler" in run("query", garden).stdout


def test_mpe(garden):
    best = minfer.mpe(sprinkler(), {"wet": "yes"}, k=2)
    found = told(run("mpe", garden, "-e", "wet=yes", "-k", 2, "--json"))
    assert found["proven"]
    assert [a["states"] for a in found["assignments"]] == [
        dict(zip(a.variables, a.states)) for a in best
    ]
    out = run("mpe", garden, "-e", "wet=yes", "-k", 2).stdout
    assert "wet (observed)   yes" in out
    assert "proven" in out
    some = told(run("mpe", garden, "--variables", "rain,count", "--json"))
    assert set(some["assignments"][0]["states"]) == {"rain", "count"}
    assert "no more than these 3" in run("mpe", garden, "--variables", "count", "-k", 9).stdout


def test_sample(garden, tmp_path):
    out = tmp_path / "cases.csv"
    run("sample", garden, "-n", 20, "-o", out, "-e", "wet=yes", "--seed", 5)
    rows = list(csv.DictReader(out.open()))
    assert [row["wet"] for row in rows] == ["yes"] * 20
    want = minfer.sample(sprinkler(), 20, {"wet": "yes"}, seed=5).to_dict()
    assert [row["rain"] for row in rows] == want["rain"]
    text = run("sample", garden, "-n", 2, "--numbers").stdout
    assert {row["rain"] for row in csv.DictReader(io.StringIO(text))} <= {"0", "1"}
    assert "end the name in .csv" in run("sample", garden, "-o", "x.txt", code=2).stderr


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (["wet=yess"], 3, "did you mean yes?"),
        (["wett=yes"], 3, "no variable 'wett'"),
        (["wet"], 3, "no such file"),
        (["wet=yes,wet=no"], 3, "two states, yes and no"),
        (["wet=yes", "wet=no"], 3, "two states, yes and no"),
        (["=yes"], 2, "not variable=state"),
        (["wet=7"], 3, "states no, yes, not '7'"),
    ],
)
def test_wrong_evidence(garden, given, code, message):
    words = [word for text in given for word in ("-e", text)]
    assert message in run("query", garden, "rain", *words, code=code).stderr


def test_impossible_evidence(garden):
    seen = ["-e", "rain=no,sprinkler=off,wet=yes"]
    for words in (["query", garden, "count"], ["mpe", garden], ["sample", garden]):
        assert "probability zero" in run(*words, *seen, code=3).stderr


def test_names_with_commas_and_equals_signs(tmp_path):
    g = FactorGraph.network(
        {"a, b": ["x, y", "<=5", ">5"], "c": ["no", "yes"]},
        {"a, b": [0.3, 0.5, 0.2], "c": ("a, b", [[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]])},
    )
    path = tmp_path / "odd.minfer"
    minfer.write(g, path)
    for text, state in (
        ("a, b=x, y", "x, y"),
        ('"a, b"="x, y"', "x, y"),
        ('"a, b"=<=5,c=yes', "<=5"),
        ("c=yes,'a, b'='x, y'", "x, y"),
    ):
        found = told(run("query", path, "c", "-e", text, "--json"))
        assert found["evidence"]["a, b"] == state
    found = told(run("query", path, "a, b", "-e", "c=yes", "--json"))
    assert list(found["marginals"]["a, b"]) == ["x, y", "<=5", ">5"]
    assert told(run("run", path, "-q", "a, b", "--json"))["states"] == {
        "a, b": ["x, y", "<=5", ">5"]
    }


def test_run_speaks_names(garden, tmp_path):
    out = run("run", garden, "-e", "wet=yes").stdout
    assert "on: 0.6467  off: 0.3533" in out
    alike = run("run", garden, "-e", "wet=yes", "-q", "rain,wet").stdout
    assert "p(no)   p(yes)" in alike
    assert told(run("run", garden, "--json"))["states"]["sprinkler"] == ["off", "on"]
    target = tmp_path / "seen.minfer"
    run("convert", garden, target, "-e", "wet=yes")
    assert minfer.read(target).n_observed == 1
    run("plan", garden, "-e", "wet=yes")


def test_explain_speaks_names(garden):
    result = infer(sprinkler(), MinJoint(0.001))
    found = explain(result, "rain")
    assert str(found).startswith("p(rain = no) = ")
    assert found.to_dict()["state_name"] == "no"
    assert "p(rain = no)" in run("run", garden, "--reduce", "--explain", "rain").stdout
