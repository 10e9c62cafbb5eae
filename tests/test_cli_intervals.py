"""The command line of certified intervals: ``minfer intervals`` and ``minfer run --intervals``."""

from __future__ import annotations

import csv
import io
import json
import signal
import sys
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minfer
from minfer.basics.words import ends as interval_text
from minfer.basics.words import probability, upwards
from minfer.cli.intervals import live
from minfer.cli.options import with_seconds
from minfer.say.intervals import sentence
from test_cli import call, fails, ok, start, told

#: Enough for some variables, not for all.
WORK = 100_000
ONE = ("--methods", "monotone", "--work", WORK)


def found_so(path: Path) -> minfer.Intervals:
    return minfer.intervals(minfer.read(str(path)), None, work=WORK, methods=["monotone"])


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid on which belief propagation is off and intervals are narrow but not all of them."""
    path = tmp_path_factory.mktemp("intervals") / "grid.minfer"
    rng = np.random.default_rng(0)
    minfer.write(minfer.FactorGraph.grid(2 * rng.normal(size=(12, 12)), 1.2), path)
    return path


@pytest.fixture(scope="session")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five states, names, and a factor over three variables."""
    path = tmp_path_factory.mktemp("intervals") / "several.minfer"
    rng = np.random.default_rng(1)
    graph = minfer.FactorGraph.from_tables(
        [5, 2, 3], [[0, 1, 2], [0]], [rng.normal(size=(5, 2, 3)), rng.normal(size=5)],
        names=["cloud", "rain", "wet"],
    )  # fmt: skip
    minfer.write(graph, path)
    return path


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_sentence_a_table_and_facts(model: Path) -> None:
    result = ok("intervals", model, *ONE, "--rows", 7)
    iv = found_so(model)
    first, table = words(result.stdout.split("\n\n")[0]), result.stdout
    narrow, decided = int((iv.width <= 0.01).sum()), int(iv.decided().sum())
    assert 0 < narrow < 144
    assert f"{narrow} of 144 variables are certified to 0.01" in first
    assert f"certain for {decided}" in first
    assert "The work limit was reached after" in first
    assert "; the last step that narrowed anything ended after" in first
    assert "would" not in first, "nothing is promised"
    rows = [line for line in table.splitlines() if line.lstrip().startswith("x")]
    assert len(rows) == 7
    widest = int(np.argmax(iv.width))
    assert rows[0].split()[0] == f"x{widest}"
    assert "137 more, none wider" in table
    for part in ("p(0)", "p(1)", "width", "by", "monotone", "units of work"):
        assert part in table


def test_json_agrees_with_python(model: Path) -> None:
    found = told("intervals", model, *ONE)
    iv = found_so(model)
    assert (found["stopped"], found["work"]) == ("work", iv.work)
    assert found["certified"] == int((iv.width <= 0.01).sum())
    assert found["model"]["variables"] == len(found["intervals"]) == 144
    for name, ends in iv.items():
        assert found["intervals"][name]["lo"] == ends[:, 0].tolist()
        assert found["intervals"][name]["hi"] == ends[:, 1].tolist()
    assert found["trace"][-1]["work"] == iv.work
    assert "intervals" not in told("run", model)
    assert "[" not in call("run", model).stdout.split("model ")[0]


def test_variables_evidence_states_and_other_settings(model: Path, several: Path) -> None:
    found = told("intervals", model, "-q", "x3,7", "-e", "x3=1", "--tol", 0.5, "--undecided")
    assert list(found["intervals"]) == ["x3", "x7"]
    assert found["intervals"]["x3"] == {"lo": [0.0, 1.0], "hi": [0.0, 1.0], "method": "fixed"}
    assert found["tol"] == 0.5
    assert found["stopped"] == "tolerance"
    text = words(call("intervals", model, "--variables", "x7", "--methods", "monotone").stdout)
    assert "variable" in text.split(".")[0]
    assert "x8" not in text
    text = call("intervals", several).stdout
    assert "highest" in text
    assert "cloud" in text
    assert "+1 more" in text
    exact = minfer.Exact()(minfer.read(str(several)))
    found = told("intervals", several)["intervals"]
    for name, p in exact.items():
        assert (found[name]["lo"] <= p + 1e-12).all()
        assert (p <= np.array(found[name]["hi"]) + 1e-12).all()
    found = told("run", several, "--solver", "exact", "--intervals", 2)
    assert found["intervals"]["refuted"] == 0
    text = words(call("run", several, "--intervals", "2").stdout)
    assert "no estimate is refuted by more than 0.01" in text
    assert "+1 more" in text


def test_csv_is_as_rigorous_as_the_numbers(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert "wrote" in call("intervals", model, *ONE, "--csv", path).stderr
    iv = found_so(model)
    rows = list(csv.DictReader(path.open()))
    assert list(rows[0]) == ["variable", "state", "lo", "hi", "method"]
    assert [float(r["lo"]) for r in rows] == iv.lo.tolist()
    assert [float(r["hi"]) for r in rows] == iv.hi.tolist()
    out = call("intervals", model, "--work", 1000, "-q", "x3", "--csv", "-")
    assert len(out.stdout.splitlines()) == 3
    assert "variable" in out.stderr


def test_nothing_known_is_said(tmp_path: Path) -> None:
    edges = np.stack(np.triu_indices(6, 1), axis=1)
    graph = minfer.FactorGraph.from_tables([3] * 6, edges, [np.eye(3)] * len(edges))
    minfer.write(graph, tmp_path / "dense.minfer")
    result = call("intervals", tmp_path / "dense.minfer", *ONE)
    assert "nothing is known about any" in words(result.stdout)
    assert result.stdout.count("nothing known") == 6
    assert "[0, 1]" in result.stdout
    iv = minfer.intervals(minfer.FactorGraph.empty([]))
    assert sentence(iv).startswith("The model has no variables")


SAYS_WHEN_IT_HAS_SOME = """
import sys
from minfer.certified.search import Search
from minfer.cli import main

def note(self, *given, real=Search._note):
    real(self, *given)
    print("some", file=sys.stderr, flush=True)

Search._note = note
main()
"""


def test_ctrl_c_prints_the_best_so_far(tmp_path: Path) -> None:
    graph = minfer.FactorGraph.grid(np.random.default_rng(0).normal(size=(60, 60)), 1.0)
    minfer.intervals(graph, None, work=10_000_000)  # kernels are compiled
    minfer.write(graph, tmp_path / "a.minfer")
    words = [tmp_path / "a.minfer", "--time-limit", 600, "--json"]
    process = start("intervals", *words, code=SAYS_WHEN_IT_HAS_SOME)
    assert process.stderr is not None
    assert "some\n" in iter(process.stderr.readline, "")  # its end, if it ends before that
    time.sleep(0.2)  # in the midst of it, then
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["stopped"] == "interrupted"
    assert found["mean_width"] < 1


def test_a_bar_for_people(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("intervals", model, *ONE).stderr == "", "none in a pipe"

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with live(144) as watch:
        assert watch is not None
        minfer.intervals(minfer.read(str(model)), None, work=WORK, watch=watch)
        time.sleep(0.3)
    assert "of 144 finished" in screen.getvalue()


@given(st.floats(0, 1), st.floats(0, 1))
def test_what_is_printed_holds_too(a: float, b: float) -> None:
    lo, hi = min(a, b), max(a, b)
    low, high = (Decimal(end) for end in interval_text(lo, hi).strip("[]").split(", "))
    assert low <= Decimal(lo)
    assert Decimal(hi) <= high
    assert high - low <= Decimal(hi) - Decimal(lo) + Decimal("0.0002")
    assert Decimal(upwards(hi)) >= Decimal(hi)


def test_seconds_are_optional() -> None:
    for words, taken in (
        ("a --intervals", "a --intervals 5"),
        ("--certify --json", "--certify 5 --json"),
        ("--intervals 1e1 a", "--intervals 1e1 a"),
        ("--intervals=2 a", "--intervals=2 a"),
        ("-- --intervals", "-- --intervals"),
        ("--intervals -- 3", "--intervals 5 -- 3"),
    ):
        assert with_seconds(words.split()) == taken.split()
    for ends, text in (
        ((0, 1), "[0, 1]"),
        ((1, 1), "[1, 1]"),
        ((1e-9, 1 - 1e-9), "[0.0000, 1.0000]"),
    ):
        assert interval_text(*map(float, ends)) == text


@pytest.mark.parametrize("more", [[], ["--max-factors", 150], ["--reduce", "--time-limit", 60]])
def test_run_shows_intervals_and_refutes(model: Path, more: list[object]) -> None:
    result = ok("run", model, "--solver", "bp", "--intervals", 30, *more)
    text = words(result.stdout)
    found = told("run", model, "--solver", "bp", "--intervals", 30, *more)
    sure = found["intervals"]
    assert 0 < sure["refuted"] <= 144
    assert f"{sure['refuted']} of 144 estimates are refuted" in text
    assert "provably off by more than 0.01" in text
    rows = [line for line in result.stdout.splitlines() if line.lstrip().startswith("x")]
    name = rows[0].split()[0]
    p, ends = found["marginals"][name], sure["intervals"][name]
    assert f"{probability(p[1])} {interval_text(ends['lo'][1], ends['hi'][1])}" in words(rows[0])
    marked = {row.split()[0] for row in rows if "refuted" in row}
    shown = {row.split()[0] for row in rows}
    assert marked == {n for n in shown if sure["intervals"][n]["refuted"]}
    for n, estimate in found["marginals"].items():
        low, high = np.array(sure["intervals"][n]["lo"]), np.array(sure["intervals"][n]["hi"])
        off = np.maximum(low - estimate, estimate - high).max()
        assert sure["intervals"][n]["refuted"] == (off > 0.01)
        most = np.maximum(high - estimate, estimate - low).max()
        assert most <= sure["largest_possible_error"]
    truth = minfer.Exact()(minfer.read(str(model)))
    error = max(np.abs(found["marginals"][n] - p).max() for n, p in truth.items())
    assert error <= sure["largest_possible_error"]


def test_run_csv(model: Path, tmp_path: Path) -> None:
    plain, judged = tmp_path / "a.csv", tmp_path / "b.csv"
    ok("run", model, "--solver", "bp", "--csv", plain)
    ok("run", model, "--solver", "bp", "--intervals", "--csv", judged)
    rows, more = (list(csv.DictReader(p.open())) for p in (plain, judged))
    assert list(rows[0]) == ["variable", "state", "p"]
    assert list(more[0]) == ["variable", "state", "p", "lo", "hi", "method", "refuted"]
    assert len(rows) == len(more) == 288
    answer = minfer.BeliefPropagation()(minfer.read(str(model)))
    np.testing.assert_array_equal([float(r["p"]) for r in rows], answer.probs)
    for row in more:
        off = max(float(row["lo"]) - float(row["p"]), float(row["p"]) - float(row["hi"]))
        assert (off > 0.01) == (row["refuted"] == "1")
    fails(call("run", model, "--csv", plain, "--out", plain), 2, "same file")
    other = Path(plain).parent / "." / ".." / Path(plain).parent.name / Path(plain).name
    fails(call("run", model, "--csv", plain, "--out", str(other)), 2, "same file")
    fails(call("run", model, "--csv", "-", "--json"), 2, "standard output")
    fails(call("run", model, "--intervals", "-3"), 2, "positive seconds")


def test_the_parser_says_that_it_has_none() -> None:
    for command, option in (("run", "--intervals"), ("eval", "--certify=3")):
        fails(call("parse", command, "a", "b", option), 2, "has no certified intervals; `minfer")
