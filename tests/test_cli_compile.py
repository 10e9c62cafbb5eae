"""``minfer compile``, and the commands that answer by the circuit in its file."""

from __future__ import annotations

import csv
import io
import json
from xml.etree import ElementTree

import numpy as np
import pytest

import minfer
from minfer import FactorGraph
from minfer.examples import sprinkler
from minfer.solvers.circuit import Circuit, circuit_of, keep_circuit
from test_cli import call, fails, ok, told


def wide(n: int = 40, seed: int = 3) -> FactorGraph:
    """Causes of findings, deterministic: every finding is the or of some causes."""
    rng = np.random.default_rng(seed)
    scopes = [[*sorted(rng.permutation(n)[:4].tolist()), n + k] for k in range(n)]
    graph = FactorGraph.empty([2] * 2 * n, [f"v{k}" for k in range(2 * n)])
    for scope in scopes:
        graph = graph.add_clauses([scope], signs=[[1, 1, 1, 1, -1]])
        for v in scope[:-1]:
            graph = graph.add_clauses([[v, scope[-1]]], signs=[[-1, 1]])
    field = np.tile([0.0, -1.5], 2 * n)
    field[2 * n :] = 0.0
    return graph.tilt(field)


SEEN = ["-e", "wet_grass=1", "--free", "rain,season"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A network and its circuit; and a circuit with evidence compiled in, of few free variables."""
    folder = tmp_path_factory.mktemp("compiled")
    minfer.write(sprinkler(), folder / "m.minfer")
    ok("compile", folder / "m.minfer", "-o", folder / "m.circuit", "--draw", folder / "m.svg")
    soft = ["--soft", "rain=1,0.5"]
    ok("compile", folder / "m.minfer", "-o", folder / "seen.circuit.gz", *SEEN, *soft)
    return folder


@pytest.fixture
def by_circuits(monkeypatch):
    """How often circuits are asked."""
    asked = []
    whole = Circuit._weighed

    def weighed(self, graph):
        asked.append(graph)
        return whole(self, graph)

    monkeypatch.setattr(Circuit, "_weighed", weighed)
    return asked


def refuse(*_: object) -> None:
    raise minfer.RefusedError("no tree fits")


EVIDENCES = [
    [],
    ["-e", "wet_grass=1"],
    ["-e", "wet_grass=1,season=2"],
    ["--soft", "rain=0.2,0.9"],
    ["-e", "umbrella=0", "--soft", "wet_shoes=1,0.01"],
]


@pytest.mark.parametrize("words", EVIDENCES, ids=str)
def test_a_circuit_answers_as_its_model(files, words, by_circuits, monkeypatch):
    model, circuit = files / "m.minfer", files / "m.circuit"
    best = told("mpe", model, *words, "-k", 3)
    close(best, told("mpe", circuit, *words, "-k", 3))
    want = told("run", model, *words)["marginals"]
    one, other = told("run", model, *words), told("run", circuit, *words)
    assert by_circuits
    assert other["log_z"] == pytest.approx(one["log_z"], abs=1e-12)
    assert "compiled" in other["note"]
    close(one["marginals"], other["marginals"])
    for targets in (["rain"], ["rain", "sprinkler"], []):
        one, other = (told("query", m, *targets, *words) for m in (model, circuit))
        close(one, other)
    monkeypatch.setattr("minfer.queries.cliques.check_fits", refuse)  # as if no tree did
    monkeypatch.setattr("minfer.queries.samples.check_fits", refuse)
    del by_circuits[:]
    other = told("mpe", circuit, *words, "-k", 3)
    assert other["steps"] == ["circuit"]
    close(best["assignments"], other["assignments"])
    assert len(by_circuits) == 2  # reading it, and once more
    drawn = ok("sample", circuit, *words, "-n", 400).stdout
    assert len(by_circuits) == 4
    names, *rows = csv.reader(io.StringIO(drawn))
    mean = np.array(rows, dtype=int).mean(axis=0)
    for name, m in zip(names, mean.tolist()):
        p = np.array(want[name])
        assert m == pytest.approx(p @ np.arange(len(p)), abs=0.25 if name == "season" else 0.12)


def close(one, other) -> None:
    """Two JSON values with the same keys, but for times and files."""
    if isinstance(one, dict):
        for key in one.keys() - {"model", "read_seconds", "compile_seconds", "seconds", "timings"}:
            if key not in ("note", "solver", "by", "method"):
                close(one[key], other[key])
    elif isinstance(one, list):
        for a, b in zip(one, other, strict=True):
            close(a, b)
    elif isinstance(one, float):
        assert other == pytest.approx(one, abs=1e-9)
    else:
        assert one == other


def test_tables_of_cases(files, tmp_path):
    pytest.importorskip("pyarrow")
    cases = tmp_path / "cases.csv"
    cases.write_text("wet_grass,umbrella\n1,\n0,1\n,0\n1,1\n")
    out = []
    for name in ("m.minfer", "m.circuit"):
        ok("predict", files / name, cases, "-o", tmp_path / "out.csv", "--targets", "rain,season")
        out.append((tmp_path / "out.csv").read_text())
    assert out[0] == out[1]


def test_what_was_compiled_in_stays(files):
    circuit = files / "seen.circuit.gz"
    seen = ["-e", "wet_grass=1", "--soft", "rain=1,0.5"]
    one, other = told("run", files / "m.minfer", *seen), told("run", circuit)
    assert other["log_z"] == pytest.approx(one["log_z"], abs=1e-12)
    more = told("run", circuit, "-e", "season=1")
    want = told("run", files / "m.minfer", *seen, "-e", "season=1")
    assert more["log_z"] == pytest.approx(want["log_z"], abs=1e-12)
    assert "compiled" in more["note"]
    closed = call("run", circuit, "-e", "umbrella=1", "--json")
    assert "umbrella is not free in the circuit of" in closed.stderr
    want = told("run", files / "m.minfer", *seen, "-e", "umbrella=1")
    assert json.loads(closed.stdout)["log_z"] == pytest.approx(want["log_z"], abs=1e-12)


def test_what_is_told(files, tmp_path):
    made = told("compile", files / "m.minfer", "-o", tmp_path / "a.circuit", "--free", "rain")
    assert made["free"] == ["rain"]
    assert made["nodes"] > 1
    assert made["log_z"] == pytest.approx(0.0, abs=1e-12)
    shown = ok("compile", files / "m.minfer", "-o", tmp_path / "a.circuit", *SEEN)
    assert "7 variables, 2 free" in shown.stdout
    assert "-0.733917 (exact)" in shown.stdout
    assert "simplified: " in shown.stdout
    assert shown.stderr == f"minfer: note: wrote {tmp_path / 'a.circuit'}\n"
    assert ElementTree.parse(files / "m.svg").getroot().tag.endswith("svg")
    piped = ok("run", "-", "--json", stdin=(files / "m.circuit").read_bytes())
    assert "compiled" in json.loads(piped.stdout)["note"]


def test_converting_says_that_the_circuit_is_gone(files, tmp_path):
    plain = tmp_path / "m.uai"
    said = ok("convert", files / "m.circuit", plain).stderr
    assert f"{plain} holds the model of {files / 'm.circuit'}, not its circuit" in said
    assert minfer.Exact()(minfer.read(plain)).log_z == pytest.approx(0.0, abs=1e-9)
    again = tmp_path / "again.circuit"
    fails(call("convert", files / "m.circuit", again), 2, "minfer compile")
    assert "not its circuit" not in ok("convert", files / "m.minfer", plain).stderr


def test_mistakes(files, tmp_path):
    model, out = files / "m.minfer", tmp_path / "a.circuit"
    fails(call("compile", model, "-o", tmp_path / "a.txt"), 2, "end the name in .circuit")
    fails(call("compile", model, "-o", out, "--free", "rian"), 3, "rian", "rain")
    seen = ["-e", "rain=1", "--free", "rain"]
    fails(call("compile", model, "-o", out, *seen), 3, "rain is observed in the model")
    fails(call("compile", model, "-o", out, "--max-gib", -1), 2, "--max-gib")
    fails(call("compile", model, "-o", out, "--time-limit", 0), 2, "--time-limit")
    large = tmp_path / "large.minfer"
    minfer.write(FactorGraph.empty([2] * 301), large)
    picture = tmp_path / "a.svg"
    said = call("compile", large, "-o", out, "--draw", picture)
    assert said.exit_code == 4
    assert "301 nodes" in said.stderr
    assert not picture.exists()
    assert len(minfer.Circuit.load(out).free) == 301  # is kept
    formula = tmp_path / "m.cnf"
    formula.write_text("p cnf 3 3\n1 2 0\n-1 3 0\n-2 3 0\n")
    words = call("compile", formula, "-o", out, "-e", "x3=0")
    fails(words, 3, "x3=0", "clause 1 (not x1 or x3)")
    minfer.write(wide(), large)
    fails(call("compile", large, "-o", out, "--max-gib", 1e-4), 4, "circuit", "--max-gib")


def test_contradictions_name_what_contradicts():
    """From Python, wherever circuits find them."""
    graph = FactorGraph.empty([2] * 4, ["a", "b", "c", "d"])
    graph = graph.add_clauses([[0, 1], [2, 3]], signs=[[-1, 1], [1, 1]])
    seen = {"a": 1, "b": 0, "d": 1}
    whole = graph.with_evidence(seen)
    words = r"a=1 and b=0 together have probability zero .*: see clause 0 \(not a or b\)"
    circuit = keep_circuit(minfer.compile(graph))
    asks = [
        lambda: minfer.compile(whole),
        lambda: minfer.Exact(method="circuit")(whole),
        lambda: minfer.Exact(method="circuit").prepare(graph)(seen),
        lambda: circuit(seen),
        lambda: circuit.best(seen),
        lambda: circuit.sample(3, evidence=seen),
        lambda: circuit.joint("c", "d", evidence=seen),
        lambda: minfer.query(graph, "c", seen),
        lambda: minfer.Auto()(whole),
    ]
    for ask in asks:
        with pytest.raises(minfer.ContradictionError, match=words):
            ask()
    impossible = graph.add_clauses([[0], [1]], signs=[[1], [-1]])
    with pytest.raises(minfer.ContradictionError, match=r"clause 2 \(a\)"):
        minfer.compile(impossible)


def test_several_evidences_on_one_graph():
    """Hard, soft, both and none, in turn, on one graph object that remembers its circuit."""
    graph = wide(12)
    plain = wide(12)
    minfer.compile(graph)
    assert circuit_of(graph) is not None
    rng = np.random.default_rng(0)
    for _ in range(4):
        hard = {int(v): 1 for v in rng.permutation(24)[:2]}
        soft = {int(v): [1.0, 0.3] for v in rng.permutation(24)[:2] if int(v) not in hard}
        for seen in ({}, hard, soft, {**hard, **soft}):
            one, other = (minfer.query(g, "v3", seen) for g in (plain, graph))
            np.testing.assert_allclose(one, other, atol=1e-10)
            one, other = (minfer.mpe(g, seen) for g in (plain, graph))
            assert one.log_score == pytest.approx(other.log_score, abs=1e-10)
            drawn = np.asarray(minfer.sample(graph, 5, seen))
            for v, s in hard.items() if seen is not soft and seen else ():
                assert (drawn[:, v] == s).all()
