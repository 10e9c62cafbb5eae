"""``minfer query``, ``mpe``, ``sample``, ``learn``; evidence and answers by state names."""

import csv
import io
import json

import numpy as np
import pytest

import minfer
from minfer import FactorGraph, MinJoint, explain, infer
from test_cli import call
from test_states import sprinkler


@pytest.fixture
def garden(tmp_path):
    minfer.write(sprinkler(), tmp_path / "garden.minfer")
    return str(tmp_path / "garden.minfer")


def run(*words, code=0):
    result = call(*words)
    assert result.exit_code == code, result.stderr
    return result


def told(result):
    return json.loads(result.stdout)


def test_query(garden):
    out = run("query", garden, "rain", "-e", "wet=yes").stdout
    p = minfer.query(sprinkler(), "rain", {"wet": "yes"})
    assert f"yes         {p['yes']:.4f}" in out
    assert "wet=yes" in out
    assert "log P(e)" in out
    found = told(run("query", garden, "rain", "-e", "wet=yes", "--json"))
    assert found["marginals"]["rain"] == pytest.approx(p.to_dict())
    assert found["log_evidence"] == pytest.approx(p.log_evidence)
    assert found["evidence"] == {"wet": "yes"}
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


def test_mpe_beyond_clique_trees(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "glass.minfer"
    size = 40
    field, pairs = rng.normal(size=(size, size)), 2.0 * rng.normal(size=2 * size * (size - 1))
    minfer.write(FactorGraph.grid(field, pairs), path)
    found = told(run("mpe", path, "--time-limit", 0.2, "--json"))
    best = found["assignments"][0]
    assert found["status"] == "time limit"
    assert not found["proven"]
    assert best["probability"] is None
    assert best["log_score"] + found["gap"] == pytest.approx(found["upper"])
    out = run("mpe", path, "--time-limit", 1.0).stdout  # room for all steps on a busy machine
    assert "time limit: log score" in out
    assert "roof duality, dual ascent" in out


def test_mpe(garden):
    best = minfer.mpe(sprinkler(), {"wet": "yes"}, k=2)
    found = told(run("mpe", garden, "-e", "wet=yes", "-k", 2, "--json"))
    assert found["proven"]
    assert [a["states"] for a in found["assignments"]] == [a.states for a in best]
    assert [a["probability"] for a in found["assignments"]] == [a.probability for a in best]
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
    ("words", "code", "message"),
    [
        (["-e", "wet=yess"], 3, "did you mean yes?"),
        (["-e", "wett=yes"], 3, "no variable 'wett'"),
        (["-e", "wet"], 3, "no such file"),
        (["-e", "wet=yes", "-e", "wet=no"], 3, "two states, yes and no"),
        (["-e", "=yes"], 2, "not variable=state"),
        (["--soft", "wet"], 2, "not variable=state:likelihood"),
        (["--soft", "wet=yes"], 2, "'yes' is not state:likelihood"),
        (["--soft", "wet=yes:-1"], 3, "not negative"),
        (["--soft", "wet=yes:0"], 3, "not all zero"),
        (["--soft", "wet=0.2,0.3,0.5"], 3, "wet has 2 states"),
        (["--soft", "wet=yes:1,yes:2"], 3, "wet: the state yes is given twice"),
        (["--soft", "wett=yes:1"], 3, "no variable 'wett'; did you mean wet"),
        (["--soft", "wet=yes:1", "-e", "wet=no"], 3, "wet is given twice"),
        (["-e", '{"wet": "yes", "wet": "no"}'], 3, "'wet' is given twice"),
        (["-e", "bad.json"], 3, "bad.json: line 2, column 9"),
        (["-e", "list.json"], 3, 'list.json: evidence is a JSON object such as {"x3": 1}'),
    ],
)
def test_wrong_evidence(garden, words, code, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text('{\n "wet": yes}')
    (tmp_path / "list.json").write_text('["wet"]')
    assert message in run("query", garden, "rain", *words, code=code).stderr


def test_answers_speak_names(garden, tmp_path):
    out = run("run", garden, "-e", "wet=yes").stdout
    assert "on: 0.6467  off: 0.3533" in out
    alike = run("run", garden, "-e", "wet=yes", "-q", "rain,wet").stdout
    assert "p(no)   p(yes)" in alike
    assert told(run("run", garden, "--json"))["states"]["sprinkler"] == ["off", "on"]
    target = tmp_path / "seen.minfer"
    run("convert", garden, target, "-e", "wet=yes")
    assert minfer.read(target).n_observed == 1
    out = tmp_path / "page.html"
    run("run", garden, "--report", out)
    assert '"labels":["off","on"]' in out.read_text().replace(", ", ",").replace(": ", ":")
    found = explain(infer(sprinkler(), MinJoint(0.001)), "rain")
    assert str(found).startswith("p(rain = no) = ")
    assert found.to_dict()["state_name"] == "no"
    assert "p(rain = no)" in run("run", garden, "--reduce", "--explain", "rain").stdout
    assert all(word in run("--help").stdout for word in ("minfer query", "minfer predict"))
    words = ["intervals", garden, "--work", "100000"]
    assert "no: [" in run(*words).stdout  # count has other states
    assert "p(no)" in run(*words, "--variables", "rain,wet").stdout
    found = told(run(*words, "--variables", "rain", "--json"))
    assert found["intervals"]["rain"]["states"] == ["no", "yes"]
    for more in (words, ["run", garden], ["run", garden, "--reduce"]):
        out = tmp_path / "states.csv"
        run(*more, "--csv", out)
        rows = list(csv.DictReader(out.open()))
        assert [r["state"] for r in rows if r["variable"] == "sprinkler"] == ["off", "on"]
        assert [r["state"] for r in rows if r["variable"] == "count"] == ["0", "1", "2"]


COMMANDS = {
    "run": ["run", "GARDEN"],
    "query": ["query", "GARDEN", "rain"],
    "mpe": ["mpe", "GARDEN"],
    "sample": ["sample", "GARDEN", "-n", "5"],
    "plan": ["plan", "GARDEN"],
    "convert": ["convert", "GARDEN", "OUT.minfer"],
    "explore": ["explore", "GARDEN", "-o", "OUT.html"],
    "intervals": ["intervals", "GARDEN", "--work", "100000"],
    "tradeoff": ["tradeoff", "GARDEN", "--values", "0.5", "--repeats", "1"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_evidence_by_name(command, garden, tmp_path):
    out = str(tmp_path / "out")
    words = [w.replace("GARDEN", garden).replace("OUT", out) for w in COMMANDS[command]]
    run(*words, "-e", "wet=yes", "--soft", "sprinkler=off:0.3,on:0.6")
    wrong = run(*words, "-e", "wet=yess", code=3).stderr
    assert "wet has the states no, yes, not 'yess'; did you mean yes?" in wrong
    wrong = run(*words, "--soft", "sprinkler=of:0.3", code=3).stderr
    assert "sprinkler has the states off, on, not 'of'; did you mean off?" in wrong


@pytest.mark.parametrize(
    "words",
    [
        ["--soft", "wet=no:0.2,yes:0.6"],
        ["--soft", "wet=0.2,0.6"],
        ["--soft", "wet = yes:6, no:2"],
        ["-e", '{"wet": {"yes": 0.6, "no": 0.2}}'],
        ["-e", '{"2": [0.2, 0.6], "count": null}'],
        ["-e", "soft.json"],
    ],
)
def test_soft_evidence(garden, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "soft.json").write_text('\n{"wet": {"no": 0.2, "yes": 0.6}}\n')
    want = minfer.query(sprinkler(), "rain", {"wet": {"no": 0.2, "yes": 0.6}})
    found = told(run("query", garden, "rain", *words, "--json"))
    assert found["marginals"]["rain"] == pytest.approx(want.to_dict(), abs=1e-12)
    like = found["evidence"]["wet"]
    assert like["yes"] == pytest.approx(3 * like["no"])
    by_run = told(run("run", garden, "-q", "rain", *words, "--json"))
    assert by_run["marginals"]["rain"] == pytest.approx(list(want), abs=1e-12)
    assert "wet~" in run("query", garden, "rain", *words).stdout


def test_hard_and_soft_in_one_file(garden, tmp_path):
    path = tmp_path / "seen.json"
    path.write_text('{"count": 2, "rain": "no", "wet": [0.2, 0.6]}')
    given = {"count": 2, "rain": "no", "wet": [0.2, 0.6]}
    want = minfer.query(sprinkler(), "sprinkler", given)
    found = told(run("query", garden, "sprinkler", "-e", path, "--json"))
    assert found["marginals"]["sprinkler"] == pytest.approx(want.to_dict(), abs=1e-12)
    assert found["evidence"]["rain"] == "no"
    seen = minfer.read(garden, evidence=path)
    p = minfer.Exact()(seen)["sprinkler"]
    assert np.allclose(p, want, atol=1e-12)
    best = told(run("mpe", garden, "-e", path, "--json"))
    assert best["assignments"][0]["states"]["rain"] == "no"
    assert minfer.read_evidence(path, sprinkler())[0] == 0


def test_names_with_commas_colons_and_equals_signs(tmp_path):
    g = FactorGraph.network(
        {"a=b, c": ["x, y", "<=5", "1:2"], "d": ["no", "yes"]},
        {"a=b, c": [0.3, 0.5, 0.2], "d": ("a=b, c", [[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]])},
    )
    path = tmp_path / "odd.minfer"
    minfer.write(g, path)
    want = minfer.query(g, "d", {"a=b, c": [0.1, 0.2, 0.7]})
    for text in (
        "a=b, c='x, y':0.1,<=5:0.2,1:2:0.7",
        "'a=b, c'=0.1,0.2,0.7",
        '"a=b, c"="x, y":0.1,"<=5":0.2,"1:2":0.7',
    ):
        found = told(run("query", path, "d", "--soft", text, "--json"))
        assert found["marginals"]["d"] == pytest.approx(want.to_dict(), abs=1e-12)
    for text, state in (
        ("a=b, c=x, y", "x, y"),
        ('"a=b, c"="x, y"', "x, y"),
        ('"a=b, c"=<=5,d=yes', "<=5"),
        ("d=yes,'a=b, c'='x, y'", "x, y"),
    ):
        found = told(run("query", path, "d", "-e", text, "--json"))
        assert found["evidence"]["a=b, c"] == state
    found = told(run("query", path, "a=b, c", "-e", "d=yes", "--json"))
    assert list(found["marginals"]["a=b, c"]) == ["x, y", "<=5", "1:2"]
    states = told(run("run", path, "-q", "a=b, c", "--json"))["states"]
    assert states == {"a=b, c": ["x, y", "<=5", "1:2"]}


def test_predict_writes_in_the_main_thread_where_an_interrupt_cleans_up(
    garden, tmp_path, monkeypatch
):
    import threading

    from minfer.prediction import Predictor

    before, threads = Predictor.file, []

    def file(self, *args, **kwargs):
        threads.append(threading.current_thread())
        return before(self, *args, **kwargs)

    monkeypatch.setattr(Predictor, "file", file)
    (tmp_path / "in.csv").write_text("wet\nyes\n")
    out = run("predict", garden, tmp_path / "in.csv", "-t", "rain")
    assert threads == [threading.main_thread()]
    assert "wrote" not in out.stderr
    assert "read wet" in out.stderr


def test_do(garden, tmp_path):
    graph = sprinkler()
    p = minfer.query(graph, "rain", {"wet": "yes"}, do={"sprinkler": "on"})
    out = run("query", garden, "rain", "-e", "wet=yes", "--do", "sprinkler=on").stdout
    assert f"yes         {p['yes']:.4f}" in out
    assert "do(sprinkler=on)" in out
    found = told(run("query", garden, "rain", "-e", "wet=yes", "--do", "sprinkler=on", "--json"))
    assert found["marginals"]["rain"] == pytest.approx(p.to_dict())
    assert found["do"] == {"sprinkler": "on"}
    assert found["log_evidence"] == pytest.approx(p.log_evidence)
    found = told(run("mpe", garden, "-e", "wet=yes", "--do", "sprinkler=on", "--json"))
    best = minfer.mpe(graph, {"wet": "yes"}, do={"sprinkler": "on"})
    assert found["assignments"][0]["states"] == best.states
    found = told(run("run", garden, "-e", "wet=yes", "--do", "sprinkler=on", "--json"))
    assert found["do"] == {"sprinkler": "on"}
    assert "do(sprinkler=on)" in run("run", garden, "--do", "sprinkler=on").stdout
    drawn = run("sample", garden, "-n", 5, "--do", "sprinkler=on").stdout
    assert {row["sprinkler"] for row in csv.DictReader(io.StringIO(drawn))} == {"on"}
    cases = tmp_path / "cases.csv"
    cases.write_text("wet\nyes\n")
    out = run("predict", garden, cases, "-t", "rain", "--do", "sprinkler=on").stdout
    row = next(csv.DictReader(io.StringIO(out)))
    assert float(row["P(rain=yes)"]) == pytest.approx(p["yes"])
    other = tmp_path / "other.minfer"
    run("convert", garden, other, "--do", "sprinkler=on")
    assert minfer.read(other).parents("sprinkler") == ()
    for words, text in (
        (["--do", "sprinkler"], "--do: 'sprinkler' is not variable=state"),
        (["--do", "sprinkler=wet"], "do: sprinkler has the states"),
        (["--do", "sprinkler=on", "--do", "sprinkler=off"], "contradictory do"),
        (["--do", "sprinkler=on", "-e", "sprinkler=on"], "is set and has evidence too"),
    ):
        assert text in call("query", garden, "rain", *words).stderr
