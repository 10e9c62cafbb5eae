"""Reports: the numbers in them are the library's, and nothing in a model becomes markup."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minfer
from minfer import (
    BeliefPropagation,
    Budget,
    Exact,
    FactorGraph,
    MinDivergence,
    MinJoint,
    MinSize,
    infer,
)
from minfer.basics.cards import stress_layout
from minfer.errors import ModelError, SettingsError
from minfer.graph import grid_edges
from minfer.parsing import Inference, marginals
from minfer.pictures import base_pictures, gaussian, write_picture
from minfer.reduction.recipes import Compensated, Paper
from minfer.report import denoise_report, report, scores_report, write_report
from minfer.report.sweep import parameter_of, values
from refused import refused
from test_cli import call, fails


def data_of(page: str) -> dict[str, Any]:
    """The data in a report, as a browser reads them."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text)


def small_grid(side: int = 6, names: list[str] | None = None) -> FactorGraph:
    rng = np.random.default_rng(1)
    n = 2 * side * (side - 1)
    weights = rng.normal(size=n) * rng.choice([0.05, 0.3, 1.0], size=n)
    graph = FactorGraph.grid(rng.normal(size=(side, side)), weights)
    return FactorGraph(graph._n_states, graph.groups, tuple(names) if names else None)


@given(st.lists(st.floats(0, 10) | st.just(np.inf), max_size=40), st.integers(2, 12))
def test_values_go_from_none_to_all(scores: list[float], steps: int) -> None:
    gains = np.array(scores)
    n = int(np.isfinite(gains).sum())
    for objective in (MinJoint(0.3), MinSize(1.0), MinDivergence(3), Budget(factor_cost=0.1)):
        parameter = parameter_of(objective)
        found = values(parameter, gains, steps)
        kept = [int(parameter.make(v)(gains).sum()) - (len(gains) - n) for v in found]
        assert parameter.value in found
        assert kept == sorted(set(kept))
        if n and isinstance(objective, (MinJoint, MinDivergence)):
            assert (kept[0], kept[-1]) == (0, n)


def test_numbers_are_those_of_infer() -> None:
    model = small_grid()
    objective = MinJoint(0.01)
    found = data_of(report(model, objective, Exact(), recipe=Paper()))
    assert found["steps"][found["start"]]["value"] == 0.01
    exact = Exact()(model)
    for step in found["steps"]:
        result = infer(model, MinJoint(step["value"]), Exact())
        assert step["kept"] == result.n_added
        assert step["divergence"] == pytest.approx(result.divergence, rel=1e-4)
        assert step["error_mean"] == pytest.approx(result.mean_error_estimate, rel=1e-4, abs=1e-12)
        assert step["bound"] == pytest.approx(result.bound, rel=1e-4, abs=1e-9)
        assert np.allclose(step["rows"], result.marginals.probs.reshape(-1, 2), atol=1e-4)
        off = np.abs(result.marginals.probs - exact.probs)
        assert step["measured_mean"] == pytest.approx(off.mean(), rel=1e-4, abs=1e-9)
        assert sum(step["histogram"]) == step["kept"]
        drawn = found["drawing"]["factors"]
        assert len(drawn) == found["n_candidates"]
        assert step["drawing"]["kept"].count("1") == step["kept"]
    assert {b["method"] for b in found["baselines"]} == {"full BP", "active-set BP"}
    assert found["reference"] == "exact marginals"


def test_intervals_are_drawn_and_judge_every_step() -> None:
    model = FactorGraph.grid(2 * np.random.default_rng(0).normal(size=(6, 6)), 1.5)
    page = report(model, MinJoint(0.05), BeliefPropagation(), steps=5, certify=20.0)
    found = data_of(page)
    exact = Exact()(model)
    truth = exact.probs.reshape(-1, 2)[:, 1]
    assert found["certified"]["variables"] == model.n_variables
    judged = []
    for step in found["steps"]:
        low, high = np.array(step["row_ends"]).T
        assert (low <= truth + 1e-12).all(), "rounded outward"
        assert (truth - 1e-12 <= high).all()
        p = np.array([row[1] for row in step["rows"]])
        off = np.maximum(low - p, p - high)
        marked = np.array([mark == "1" for mark in step["row_refuted"]])
        assert (off[marked] > 0.0098).all()
        assert (off[~marked] < 0.0102).all()
        assert step["refuted"] == marked.sum()
        assert step["interval"] >= np.abs(p - truth).max() - 1e-4
        judged.append(step["refuted"])
    assert judged[0] > 0, "the seed alone is far off"
    assert not data_of(report(model, steps=3))["certified"]
    refused(SettingsError, "certify", report, model, steps=3, certify=0.0)


@pytest.mark.parametrize(
    "objective",
    [MinSize(0.5), MinSize(np.inf), MinDivergence(7), Budget(max_divergence=0.4, max_factors=20)],
)
def test_other_objectives(objective: Any) -> None:
    found = data_of(report(small_grid(), objective, steps=6))
    step = found["steps"][found["start"]]
    assert step["kept"] == infer(small_grid(), objective, recipe=Compensated()).n_added
    parameter = parameter_of(Budget(max_factors=5, factor_cost=0.1))
    assert parameter.make(0.5) == Budget(max_factors=5, factor_cost=0.5), "other limits stay"
    with pytest.raises(SettingsError, match="MinJoint"):
        parameter_of(lambda gains, costs=None: np.ones(len(gains), bool))


def test_odd_models_have_reports() -> None:
    one = FactorGraph.empty([2])
    wide = FactorGraph.from_tables([12, 1, 3], [[0, 2], [0, 1, 2]], [np.eye(12, 3), np.zeros(36)])
    differ = np.where(np.eye(3) > 0, -np.inf, 0.0)
    hard = FactorGraph.from_tables([3] * 4, [[0, 1], [1, 2], [2, 3]], [differ] * 3)
    for model in (FactorGraph.empty([]), one, wide, hard):
        found = data_of(report(model, steps=3, certify=2.0))
        assert len(found["rows"]) == model.n_variables
        for step in found["steps"]:
            assert len(step["row_ends"]) == len(step["row_refuted"]) == model.n_variables
            # two tables over the same variables are a cycle, of which propagation is off
            assert step["refuted"] <= model.n_variables
    assert (found["n_forced"], found["n_candidates"]) == (3, 0)
    assert found["steps"][0]["bound"] == 0.0


def test_a_large_model_is_sampled_and_says_so() -> None:
    rng = np.random.default_rng(0)
    page = report(FactorGraph.grid(rng.normal(size=(60, 60)), 1.0), steps=3)
    found = data_of(page)
    assert len(page) < 500_000
    assert len(found["rows"]) == 100
    assert len(found["drawing"]["names"]) == 120
    text = " ".join(found["notes"])
    assert "120 of 3,600 variables" in text
    assert "100 of 3,600 variables" in text


@pytest.mark.slow
def test_a_million_factors_fit_into_15_megabytes() -> None:
    noisy = gaussian(base_pictures(708)["house"], 0.4, np.random.default_rng(0))
    page = denoise_report(noisy)
    assert data_of(page)["n_candidates"] > 1_000_000
    assert len(page.encode()) < 15e6
    model = FactorGraph.grid(np.random.default_rng(0).normal(size=(708, 708)), 0.5)
    assert len(report(model, steps=2).encode()) < 2e6


def test_a_grid_is_drawn_as_a_grid() -> None:
    edges = grid_edges(4, 7)
    places = stress_layout(28, edges)
    length = np.linalg.norm(places[edges[:, 0]] - places[edges[:, 1]], axis=1)
    assert length.max() < 1.25 * length.min()
    assert places.min() == 0.0
    assert np.allclose(places[:, 0].max(), 1.0)
    assert places[:, 1].max() < 0.62  # 3 of 6 edges tall
    assert np.array_equal(places, stress_layout(28, edges))
    places = stress_layout(6, np.array([[0, 1], [1, 2], [3, 4], [4, 5]]))
    apart = np.linalg.norm(places[:, None] - places[None], axis=2) + np.eye(6)
    assert np.isfinite(places).all()
    assert apart.min() > 0.1


def test_picture_pairs_and_answers() -> None:
    noisy = gaussian(base_pictures(16)["house"], 0.4, np.random.default_rng(3))
    found = data_of(denoise_report(noisy, steps=5))
    shades = minfer.denoise(noisy).shades
    assert f"alpha {shades.alpha:.3g}, level {shades.level:.3g}" in found["about"]
    for step in found["steps"]:
        result = minfer.denoise(noisy, objective=MinJoint(step["value"])).result
        bits = np.unpackbits(np.frombuffer(b64decode(step["drawing"]["kept"]), np.uint8))
        assert np.array_equal(bits[: 2 * 16 * 15].astype(bool), result.keep[256:])
        answer = np.frombuffer(b64decode(step["drawing"]["answer"]), np.uint8) / 255
        assert np.abs(answer - result.marginals.probs[1::2]).max() < 0.003
    assert found["rows"][0]["name"].startswith("row ")


@pytest.mark.slow
def test_large_pictures_are_shown_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minfer.report.drawings.MOST_BLOCKS", 70)
    noisy = gaussian(base_pictures(132)["rings"], 0.4, np.random.default_rng(3))[:, :129]
    found = data_of(denoise_report(noisy, steps=2))
    drawing = found["drawing"]
    assert (drawing["block"], drawing["height"], drawing["width"]) == (2, 66, 65)
    share = np.frombuffer(b64decode(found["steps"][-1]["drawing"]["share"]), np.uint8)
    assert len(share) == 66 * 65
    assert share.min() == 255  # all pairs are kept at the last step
    part = drawing["part"]
    assert (part["height"], part["width"]) == (64, 64)
    step = found["steps"][found["start"]]
    keep = minfer.denoise(noisy, objective=MinJoint(step["value"])).result.keep[noisy.size :]
    down = keep[132 * 128 :].reshape(131, 129)[part["top"] :, part["left"] :][:63, :64]
    bits = np.unpackbits(np.frombuffer(b64decode(step["drawing"]["kept"]), np.uint8))
    assert np.array_equal(bits[64 * 63 :].astype(bool), down.ravel())
    assert "blocks of 2x2 pixels" in " ".join(found["notes"])


@pytest.mark.parametrize(
    ("objective", "seed"),
    [
        (MinJoint(0.05), "tree"),
        (MinJoint(0.05), "unary"),
        (MinSize(0.7), "tree"),
        (MinDivergence(12), "tree"),
        (None, "tree"),
    ],
)
def test_sentence_numbers_are_those_of_the_parser(objective: Any, seed: Any) -> None:
    rng = np.random.default_rng(5)
    n = 8
    arcs, sib, gp = rng.normal(size=(n, n)), rng.normal(size=(n,) * 3), rng.normal(size=(n,) * 3)
    words, gold = list("abcdefg"), [2, 0, 2, 3, 4, 5, 6]
    inference = Inference(objective=objective, least=1e-3, seed=seed)
    found = data_of(
        scores_report(words, arcs, sib=sib, gp=gp, inference=inference, gold=gold, steps=6)
    )
    parameter = parameter_of(objective or MinJoint(0.0))
    assert found["steps"][found["start"]]["value"] == parameter.value
    assert [step["full"] for step in found["steps"]].index(True) == len(found["steps"]) - 1
    assert found["steps"][-1]["kept"] == found["n_candidates"]
    for step in found["steps"]:
        settings = Inference.full()
        if not step["full"]:
            settings = replace(inference, objective=parameter.make(step["value"]))
        answer = marginals(arcs, sib=sib, gp=gp, inference=settings)
        assert step["kept"] == answer.kept == sum(step["histogram"])
        assert step["drawing"]["heads"] == answer.heads.tolist()
        heads = np.array([row[0] for row in step["rows"]])
        p = answer.probs[heads, np.arange(1, n)]
        assert np.allclose([row[1] for row in step["rows"]], p, atol=1e-4)
        assert step["right"] == int((answer.heads == gold).sum())
    refused(ModelError, "6 words", scores_report, words[:6], arcs)
    arcs[0] += 4  # with a single root this changes no tree
    for single_root in (True, False):
        found = data_of(
            scores_report(words, arcs, sib=sib, gp=gp, single_root=single_root, steps=6,
                          inference=inference)
        )  # fmt: skip
        for step in found["steps"]:
            assert step["kept"] == sum(step["histogram"])


EVIL = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "&amp;{{data}}",
    "\u2028",
]


class Tags(HTMLParser):
    """All tags of a page and its text outside of style and script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [v or "" for k, v in attributes if k in ("src", "href", "action")]


def test_names_never_become_markup_and_no_other_script_is_admitted() -> None:
    model = FactorGraph.named(dict.fromkeys(EVIL, 2), {tuple(EVIL[:2]): np.eye(2)})
    found = report(model, title=EVIL[0], command=EVIL[1], steps=2)
    plain = report(small_grid(2), title="plain", steps=2)
    assert Tags(found).tags == Tags(plain).tags
    assert [row["name"] for row in data_of(found)["rows"]] == EVIL
    assert data_of(found)["title"] == EVIL[0]
    assert Tags(found).links == ["data:,"]
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', plain)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert not re.findall(r"(?:https?:)?//[a-z]", plain.replace("http://www.w3.org/2000/svg", ""))


def test_commands_write_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    minfer.write(small_grid(4), "a model.minfer")
    ran = call(
        "run", "a model.minfer", "--max-factors", "9", "--method", "paper", "--report", "a.html"
    )
    assert ran.exit_code == 0
    assert "wrote a.html" in ran.stderr
    found = data_of(Path("a.html").read_text())
    assert found["title"] == "a model.minfer"
    words = "minfer run 'a model.minfer' --max-factors 9 --method paper --report a.html"
    assert found["command"] == words
    assert found["steps"][found["start"]]["kept"] == 9
    assert found["method"].startswith("the paper's")

    assert found["certified"] is None
    write_picture("p.png", base_pictures(16)["house"])
    words = ("denoise", "p.png", "--report", "p.html", "--intervals", "2")
    assert call(*words).exit_code == 0
    found = data_of(Path("p.html").read_text())
    assert found["drawing"]["kind"] == "picture"
    assert found["certified"]["variables"] == 256
    assert len(found["steps"][0]["row_ends"]) == 100
    run = ("run", "a model.minfer", "--report")
    fails(call(*run, "a.txt"), 2, "end the name in .html")
    fails(call(*run, "b.html", "--out", "b.html"), 2, "same file")
    fails(call("denoise", "p.png", "--report", "none/p.html"), 2, "no folder")


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    write_report(path, "<p>old</p>")
    refused(UnicodeEncodeError, "", write_report, path, "\ud800")
    assert path.read_text() == "<p>old</p>"
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]


def test_a_known_answer_is_not_computed_again() -> None:
    asked = []

    def run(objective: Any) -> Any:
        asked.append(objective)
        return infer(small_grid(), objective, recipe=Compensated())

    own = MinDivergence(7)
    first = infer(small_grid(), own, recipe=Compensated()).certified(0.1)
    page = report(small_grid(), own, run=run, first=first, steps=4, certify=100.0)
    assert asked[0] != own, "what was timed comes later"
    found = data_of(page)
    assert found["certified"]["seconds"] == pytest.approx(first.intervals.seconds, rel=1e-2)
