"""The command line of the method: ``minfer run --reduce`` and ``minfer tradeoff``."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minfer
from minfer.cli.generate import documented
from minfer.cli.reduce import Reduction, make_request
from minfer.errors import SettingsError
from minfer.reduction.compare import Measurement, Point, Tradeoff, tradeoff
from minfer.reduction.infer import DEFAULT_FACTOR_COST, infer
from minfer.reduction.objectives import Budget, MinDivergence, MinJoint, MinSize
from minfer.reduction.recipes import Compensated
from refused import refused
from test_cli import call, fails, ok, told


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid of 8x8 with weights of all sizes."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=2 * 8 * 7) * rng.choice([0.02, 0.2, 1.0], size=2 * 8 * 7)
    graph = minfer.FactorGraph.grid(rng.normal(size=(8, 8)), weights)
    path = tmp_path_factory.mktemp("reduce") / "grid.minfer"
    minfer.write(graph, path)
    return path


@pytest.fixture(scope="session")
def hard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain whose pairwise tables all forbid something."""
    rng = np.random.default_rng(2)
    tables = [np.where(np.eye(3) > 0, -np.inf, rng.normal(size=(3, 3))) for _ in range(4)]
    scopes = [[v, v + 1] for v in range(4)]
    graph = minfer.FactorGraph.from_tables([3] * 5, scopes, tables)
    path = tmp_path_factory.mktemp("reduce") / "hard.minfer"
    minfer.write(graph, path)
    return path


def answer(*words: object) -> dict[str, Any]:
    return told("run", *words)


def probs(content: dict[str, Any]) -> np.ndarray:
    return np.concatenate(list(content["marginals"].values()))


def request(**given: Any) -> Any:
    limit = given.pop("time_limit", None)
    made = make_request(Reduction(**given), limit)
    assert made is not None
    return made


def test_objectives(model: Path) -> None:
    assert make_request(Reduction(), 3.0) is None
    assert request(reduce=True).objective == MinJoint(DEFAULT_FACTOR_COST)
    assert f"{DEFAULT_FACTOR_COST:g}." in documented(Reduction.home)["factor_cost"][1]
    assert request(factor_cost=0.5).objective == MinJoint(0.5)
    assert request(max_divergence=0.0).objective == MinSize(0.0)
    assert request(max_factors=0).objective == MinDivergence(0)
    assert request(max_factors=3, factor_cost=0.1).objective == Budget(
        max_divergence=None, max_factors=3, factor_cost=0.1
    )
    assert request(reduce=True, time_limit=3.0).iterates
    assert request(method="iterated").iterates
    assert not request(method="paper").iterates
    plain = answer(model)
    assert "reduction" not in plain
    assert plain["solver"].startswith("Auto")


def test_options_reach_the_method(model: Path) -> None:
    for seed, n in (("unary", 64), ("globals", 64), ("forest", 64 + 63)):
        assert answer(model, "--seed-graph", seed)["reduction"]["seed"] == n
    found = answer(model, "--max-factors", 5, "--factor-cost", 1e-4)["reduction"]
    assert found["added"] == 5
    assert "Budget" in found["objective"]
    assert answer(model, "--max-divergence", 0)["reduction"]["ignored"] == 0
    for words in (["--method", "iterated"], ["--reduce", "--time-limit", 30]):
        found = answer(model, "--factor-cost", 0.02, *words)["reduction"]
        assert found["trace"]
        assert found["stopped"]
    by_paper = answer(model, "--method", "paper", "--time-limit", 30)["reduction"]
    assert by_paper["trace"]
    assert not by_paper["compensated"]
    text = " ".join(call("run", model, "--factor-cost", 0).stdout.split())
    assert "no factor was ignored" in text
    assert "raise --factor-cost" in text
    exactly = answer(model, "--solver", "exact", "--exact-method", "clique-tree")
    assert "clique-tree" in exactly["solver"]


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ([], {"recipe": Compensated()}),
        (["--method", "paper"], {}),
        (["--score", "gain"], {"recipe": Compensated(score="gain")}),
    ],
)
def test_json_agrees_with_python(model: Path, words: list[str], settings: dict[str, Any]) -> None:
    content = answer(model, "--factor-cost", 0.01, "--solver", "bp", *words)
    result = infer(minfer.read(model), MinJoint(0.01), **settings)
    assert content["solver"].startswith("BeliefPropagation")
    assert content["status"] == result.status.value
    assert content["converged"] == result.converged
    np.testing.assert_allclose(probs(content), result.marginals.probs, atol=1e-12)
    found = content["reduction"]
    assert found["added"] == result.n_added > 0
    assert found["ignored"] == result.n_ignored > 0
    assert found["seed"] == result.n_seed == 64
    assert found["score"] == result.score_kind
    assert found["bound"] == pytest.approx(result.bound)
    if result.converged:
        assert found["mean_error_estimate"] == pytest.approx(result.mean_error_estimate)
        assert found["largest_error_estimate"] >= found["mean_error_estimate"]
    else:
        assert found["mean_error_estimate"] is found["largest_error_estimate"] is None
    assert found["no_bound_because"] == ""
    assert content["model"]["factors"] == result.n_factors


def test_the_panel(model: Path) -> None:
    loopy = " ".join(call("run", model, "--max-factors", 80, "--solver", "bp").stdout.split())
    assert loopy.count("it does not include the solver's own error") == 1
    result = ok("run", model, "--max-factors", 20, "--solver", "bp")
    text = " ".join(result.stdout.split())
    assert "own error" not in text, "a forest, on which belief propagation is exact"
    assert "error of leaving out not estimated: the last refresh still moved" in text
    assert "another refresh would move it by about" in text
    assert "not converged: the last refresh still moved a probability by" in text
    assert "--method iterated" in text
    assert "p(0)" in text
    for part in ("176 in all: 64 seed, 0 forced, 20 added, 92 ignored", "17.9%", "compensated"):
        assert part in text
    assert "(estimate" in text.split("divergence ")[1].split("bound")[0]
    bound = text.split("bound ")[1].split("log Z")[0]
    assert "rigorous" in bound
    assert "estimate" not in bound
    assert "of the full model" in text


def test_hard_constraints_and_reverse_scores(hard: Path) -> None:
    text = " ".join(call("run", hard, "--method", "paper").stdout.split())
    assert "4 forced" in text
    assert "--score reverse" in text
    found = answer(hard, "--method", "paper", "--score", "reverse", "--max-factors", 1)
    reduction = found["reduction"]
    assert (reduction["forced"], reduction["added"], reduction["ignored"]) == (0, 1, 3)
    assert reduction["divergence_estimate"][0] is None
    assert reduction["bound"] is None
    assert "forbids" in reduction["no_bound_because"]
    words = ["--method", "paper", "--score", "reverse", "--max-factors", 1]
    text = " ".join(call("run", hard, *words).stdout.split())
    assert "divergence infinite" in text
    assert "bound of leaving out none" in text


def test_compare_with_full_inference(model: Path, tmp_path: Path) -> None:
    """With exact inference where it fits, and with the same solver beside it."""
    words = ["--max-factors", 20, "--compare", "full", "--solver", "bp"]
    content = answer(model, *words)
    graph = minfer.read(model)
    exact, full = minfer.Exact()(graph), minfer.BeliefPropagation()(graph)
    found = content["compare"]
    assert found["compared_with"].startswith("Exact(")
    for part, p in ((found, probs(content)), (found["same_solver"], full.probs)):
        off = np.abs(p - exact.probs)
        assert part["mean_difference"] == pytest.approx(off.mean(), abs=1e-9)
        assert part["largest_difference"] == pytest.approx(off.max(), abs=1e-9)
    assert (found["reduced_factors"], found["full_factors"]) == (84, 176)
    assert found["speed_up"] == pytest.approx(found["full_seconds"] / found["reduced_seconds"])
    assert found["full"]["log_z"] == pytest.approx(exact.log_z)
    assert found["same_solver"]["log_z"] == pytest.approx(full.log_z)
    text = call("run", model, *words).stdout
    for part in ("compared", "full, by the same solver", "full, exact", "speed against it",
                 "mean difference from exact", "largest"):  # fmt: skip
        assert part in text
    by_exact = answer(model, *words[:-1], "exact")["compare"]
    assert by_exact["same_solver"] is None
    assert by_exact["compared_with"].startswith("Exact(")
    path = tmp_path / "large.minfer"
    rng = np.random.default_rng(0)
    minfer.write(minfer.FactorGraph.grid(rng.normal(size=(40, 40)), 0.3), path)
    result = call("run", path, "--max-factors", 20, "--compare", "full", "--json", "-q", "x0")
    assert "takes about" not in result.stderr
    found = json.loads(result.stdout)["compare"]
    assert found["compared_with"].startswith("BeliefPropagation(")
    assert found["same_solver"] is None
    text = call("run", path, "--max-factors", 20, "--compare", "full").stdout
    assert "mean difference from full" in text


def test_where_exact_is_cheap_it_says_so_first_and_uses_it(model: Path) -> None:
    """Unless a solver, or an option of one, is asked for."""
    plain = call("run", model, "--max-factors", 20, "--json")
    assert "note: the exact answer for the whole model takes about" in plain.stderr
    assert f"minfer run {model}" in plain.stderr
    assert "solved exactly too" in plain.stderr
    content = json.loads(plain.stdout)
    assert content["solver"].startswith("Exact(")
    assert content["log_z_kind"] == "exact"
    assert content["reduction"]["log_z_full_kind"] == "lower bound"
    truth = minfer.Exact()(minfer.read(model)).log_z
    low, high = content["reduction"]["log_z_bounds"]
    assert low <= truth <= high
    text = " ".join(call("run", model, "--max-factors", 20).stdout.split())
    assert "own error" not in text, "there is none"
    assert "(rigorous); of the full model" in text
    for words in (["--solver", "bp"], ["--damping", "0.3"], ["--max-iters", "99"]):
        asked = call("run", model, "--max-factors", 20, *words, "-e", "x0=1", "--json")
        assert f"minfer run {model} --evidence x0=1" in asked.stderr
        assert json.loads(asked.stdout)["solver"].startswith("BeliefPropagation(")


def test_log_z_of_the_full_model_is_not_guessed(model: Path, tmp_path: Path) -> None:
    path, pr, mar = tmp_path / "strong.minfer", tmp_path / "a.PR", tmp_path / "a.MAR"
    rng = np.random.default_rng(0)
    minfer.write(minfer.FactorGraph.grid(rng.normal(size=(40, 40)), 1.2, feature="equal"), path)
    words = ["--factor-cost", 0.1, "--time-limit", 60]  # no bounds under a time limit
    found = answer(path, *words, "-q", "x0")["reduction"]
    assert found["log_z_full"] is None
    assert found["log_z_full_kind"] == "none"
    assert "nats open" in found["no_log_z_full"]
    assert found["log_z_bounds"] is None
    text = " ".join(call("run", path, *words, "--rows", 0).stdout.split())
    assert "unknown: the ignored factors leave about" in text
    refused = call("run", path, *words, "--pr", pr, "--out", mar)
    assert refused.exit_code == 4
    assert "error: --pr" in refused.stderr
    assert "nats open" in refused.stderr
    assert mar.exists()
    assert not pr.exists()


@pytest.mark.slow
def test_compare_where_the_full_inference_refuses(tmp_path: Path) -> None:
    path = tmp_path / "picture.minfer"
    ok("example", "picture", "-o", path)
    words = ["--max-factors", 10, "--compare", "full", "--solver", "exact", "-q", "x0"]
    result = ok("run", path, *words)
    assert "no comparison" in result.stdout
    assert "GiB" in answer(path, *words)["compare"]["refused"]


@pytest.mark.parametrize("suffix", ["minfer", "uai", "fg"])
def test_save_reduced(model: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"small.{suffix}"
    content = answer(model, "--max-factors", 20, "--save-reduced", path, "--evidence", "x3=1")
    again = answer(path, "--solver", "bp")
    assert again["model"]["factors"] < 176
    np.testing.assert_allclose(probs(again), probs(content), atol=1e-4)
    assert again["marginals"]["x3"] == [0.0, 1.0]


def test_files_and_explanations(model: Path, tmp_path: Path) -> None:
    mar, pr = tmp_path / "a.MAR", tmp_path / "a.PR"
    content = answer(model, "--max-factors", 20, "--out", mar, "--pr", pr)
    written = np.concatenate(minfer.io.read_mar(mar))
    np.testing.assert_allclose(written, probs(content), atol=1e-9)
    log_z = content["reduction"]["log_z_estimate"]
    assert float(pr.read_text().split()[1]) * np.log(10) == pytest.approx(log_z)
    result = call("run", model, "--max-factors", 20, "--save-reduced", "-")
    assert result.stdout.startswith("MARKOV\n64\n")
    assert "log Z" in result.stderr
    words = ["--max-factors", 20, "--explain", "x9", "--explain", "model"]
    text = call("run", model, *words).stdout
    for part in ("explain x9", "kept factors that moved it", "by kind", "explain model"):
        assert part in text
    content = answer(model, *words)["explain"]
    assert content["x9"]["variable"] == "x9"
    assert content["x9"]["n_kept"] + content["x9"]["n_ignored"] == 5
    assert content["model"]["by_kind"][0]["factors"] == 112


def test_strict(model: Path) -> None:
    for words, code in (
        ("--max-factors 100 --max-iters 1", 5),
        ("--max-factors 20", 5),  # refreshes move it
        ("--max-factors 20 --method paper", 0),
        ("--method iterated", 0),
    ):
        assert call("run", model, *words.split(), "--strict").exit_code == code
    fails(call("run", model, "--explain", "x99"), 3, "x99")


SWEEP = ["--values", "0,0.2", "--repeats", 1]


def test_tradeoff_table_and_reference(model: Path, tmp_path: Path) -> None:
    result = ok("tradeoff", model, *SWEEP)
    text = " ".join(result.stdout.split())
    for part in ("paper", "compensated", "refreshed", "full BP", "active-set BP", "10 sweeps"):
        assert part in text
    assert "exact marginals" in text
    first = result.stdout.split("\n\n")[0]
    assert "is ahead" in first or "nothing here beats" in first, "the conclusion comes first"
    mar = tmp_path / "truth.MAR"
    ok("run", model, "--solver", "exact", "--out", mar)
    content = json.loads(call("tradeoff", model, *SWEEP, "--json", "--reference", mar).stdout)
    assert content["reference"] == str(mar)
    mar.write_text("MAR\n1 2 0.5 0.5\n")
    fails(call("tradeoff", model, *SWEEP, "--reference", mar), 3, "truth.MAR", "64")


@pytest.mark.parametrize(
    ("objective", "values"),
    [("min-divergence", "0,0.2"), ("min-joint", "1,0.01"), ("min-size", "1,0.5")],
)
def test_tradeoff_json(model: Path, objective: str, values: str) -> None:
    words = ["--objective", objective, "--values", values, "--repeats", 1, "--json"]
    content = json.loads(call("tradeoff", model, *words).stdout)
    assert content["objective"] == objective
    points = content["points"]
    assert [p["seconds"] for p in points] == sorted(p["seconds"] for p in points)
    reduced = {(p["method"], p["setting"]): p for p in points if not p["baseline"]}
    assert len(reduced) == 6
    first, second = {setting for _, setting in reduced}
    for method in ("paper", "compensated", "refreshed"):
        sizes = sorted(reduced[method, s]["kept_share"] for s in (first, second))
        assert sizes[0] < sizes[1] < 1
    graph = minfer.read(model)
    truth = minfer.Exact()(graph).probs
    off = np.abs(minfer.BeliefPropagation(max_iters=3)(graph).probs - truth)
    three = next(p for p in points if p["setting"] == "3 sweeps")
    assert three["mean_error"] == pytest.approx(off.mean(), abs=1e-9)
    assert three["max_error"] == pytest.approx(off.max(), abs=1e-9)


def test_tradeoff_files(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    ticks = count()  # no clock of the machine's: CPU time may stand still during so short a call
    clock = SimpleNamespace(process_time=lambda: next(ticks) / 1024)
    monkeypatch.setattr("minfer.reduction.compare.time", clock)
    table = tmp_path / "a.csv"
    for name in ("a.png", "a.svg"):
        words = [*SWEEP, "--csv", table, "--picture", tmp_path / name]
        ok("tradeoff", model, *words)
        assert (tmp_path / name).stat().st_size > 5000
    rows = list(csv.DictReader(table.open()))
    assert {r["method"] for r in rows} >= {"paper", "full BP"}
    assert {float(r["seconds"]) for r in rows} == {1 / 1024}
    to_stdout = call("tradeoff", model, *SWEEP, "--csv", "-")
    assert len(list(csv.DictReader(io.StringIO(to_stdout.stdout)))) == len(rows)
    assert "exact marginals" in to_stdout.stderr


def test_a_missing_plot_library_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    fails(call("tradeoff", model, "--picture", "a.png"), 4, "pip install 'minfer[plot]'")


def point(method: str, seconds: float, error: float, kept: float = 1.0) -> Point:
    return Point(method, f"{seconds:g}", method == "BP", kept, seconds, error, 2 * error, True)


def swept(*points: Point) -> Tradeoff:
    return Tradeoff(tuple(sorted(points, key=lambda p: p.seconds)), "exact marginals", 10, 5)


BASELINES = (point("BP", 1.0, 0.1), point("BP", 2.0, 0.01), point("BP", 4.0, 0.0))


def test_which_reduced_answers_win() -> None:
    """Sooner but worse than one sweep is no victory, nor is the full model, nor noise."""
    found = swept(*BASELINES, point("ours", 0.5, 0.05, 0.2), point("ours", 1.5, 0.009, 0.4))
    leads = [(lead.point.seconds, lead.rival.seconds, lead.times) for lead in found.ahead]
    assert leads == [(0.5, 2.0, 4.0), (1.5, 4.0, 4.0 / 1.5)]
    assert "ours, 0.5 is ahead" in found.verdict
    assert "4.0 times" in found.verdict
    assert "Below a mean error of 0.009" in found.verdict
    assert found.best == (True, False, True, False, True)
    for ours in ((0.1, 0.5, 0.2), (2.5, 0.05, 0.2), (0.5, 0.0, 1.0), (1.95, 0.01, 0.2)):
        found = swept(*BASELINES, point("ours", *ours))
        assert found.ahead == [], ours
        assert found.verdict.startswith("nothing")


def test_tradeoff_settings() -> None:
    graph = minfer.FactorGraph.pairwise([0.1, 0.2], [[0, 1]], [1.0])
    refused(SettingsError, "", tradeoff, graph, "best")
    refused(SettingsError, "", tradeoff, graph, repeats=0)
    sweep = Measurement(graph, values=[0.0], repeats=1)
    names = []
    for name, work in sweep.steps():
        names.append(name)
        work()
    assert len(names) == len(sweep)
    assert len(sweep.result().points) == len(sweep) - 1
    assert sweep.result().reference == "exact marginals"


@pytest.mark.parametrize("words", [["run", "--reduce"], ["tradeoff", "--repeats", "1"]])
def test_a_narrow_latin_terminal_that_is_a_pipe(model: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "minfer", words[0], str(model), *words[1:]]
    env = {**os.environ, "COLUMNS": "40", "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, env=env, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
