"""Pages to play with, before a browser sees them: what is in them, what is refused, the drawing."""

from __future__ import annotations

import html
import re
from base64 import b64decode
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minfer
from minfer import ContradictionError, EvidenceError, Exact, FactorGraph, ModelError, RefusedError
from minfer.basics.cards import GAP, Drawing, layered, spread
from minfer.errors import SettingsError
from minfer.examples import sprinkler
from oracle import models
from refused import refused
from test_cli import call, fails
from test_report import EVIL, data_of


def overlaps(drawing: Drawing, sizes: np.ndarray) -> int:
    low, high = drawing.corners, drawing.corners + sizes
    apart = (low[:, None] >= high[None] - 0.1) | (low[None] >= high[:, None] - 0.1)
    return int((~apart.any(axis=2)).sum() - len(sizes)) // 2


@st.composite
def networks(draw: Any) -> list[list[int]]:
    n = draw(st.integers(1, 14))
    parents = [
        sorted(draw(st.sets(st.integers(0, v - 1), max_size=3))) if v else [] for v in range(n)
    ]
    renamed = draw(st.permutations(range(n)))  # parents need not have lower numbers
    out: list[list[int]] = [[] for _ in range(n)]
    for v, own in enumerate(parents):
        out[renamed[v]] = [renamed[p] for p in own]
    return out


@given(networks(), st.integers(0, 1000))
def test_layers_put_parents_above_children_and_nothing_overlaps(
    parents: list[list[int]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    sizes = np.stack([np.full(len(parents), 172.0), rng.integers(40, 260, len(parents))], axis=1)
    drawing = layered(parents, sizes)
    assert overlaps(drawing, sizes) == 0
    bottom = drawing.corners[:, 1] + sizes[:, 1]
    for v, own in enumerate(parents):
        for p in own:
            assert bottom[p] <= drawing.corners[v, 1] - GAP
    assert sorted((a, b) for a, b, _ in drawing.edges) == sorted(
        (p, v) for v, own in enumerate(parents) for p in own
    )
    for a, b, points in drawing.edges:  # from the lower side of one to the upper side of the other
        assert points[1] == pytest.approx(bottom[a], abs=0.1)
        assert points[-1] == pytest.approx(drawing.corners[b, 1], abs=0.1)
        assert points[1::2] == sorted(points[1::2])
        for v, x in ((a, points[0]), (b, points[-2])):
            assert drawing.corners[v, 0] <= x <= drawing.corners[v, 0] + sizes[v, 0]
    assert (drawing.corners >= -0.1).all()
    assert (drawing.corners + sizes <= np.array(drawing.size) + 0.1).all()
    again = layered(parents, sizes)
    assert (again.corners == drawing.corners).all()
    assert again.edges == drawing.edges


@given(st.lists(st.sets(st.integers(0, 11), min_size=1, max_size=4), max_size=16))
def test_models_without_direction_do_not_overlap(scopes: list[set[int]]) -> None:
    sizes = np.stack([np.full(12, 172.0), np.linspace(60, 240, 12)], axis=1)
    drawing = spread([sorted(s) for s in scopes], sizes)
    assert overlaps(drawing, sizes) == 0
    assert (drawing.corners >= 0).all()
    assert (drawing.corners + sizes <= np.array(drawing.size) + 0.1).all()
    assert len(drawing.dots) == len({tuple(sorted(s)) for s in scopes if len(s) > 2})


def test_large_models_and_none_are_drawn_too() -> None:
    rng = np.random.default_rng(0)
    parents = [
        sorted({int(p) for p in rng.integers(max(0, v - 40), v, 2)}) if v else []
        for v in range(600)
    ]
    sizes = np.stack([np.full(600, 172.0), rng.integers(40, 120, 600)], axis=1)
    assert overlaps(layered(parents, sizes), sizes) == 0
    scopes = [[*own, v] for v, own in enumerate(parents)]
    drawing = spread(scopes, sizes)
    assert overlaps(drawing, sizes) == 0
    assert {v for a, b, _ in drawing.edges for v in (a, b)} == set(range(600))
    for drawing in (layered([], np.zeros((0, 2))), spread([], np.zeros((0, 2)))):
        assert drawing.size == (0, 0)
    assert "<!DOCTYPE html>" in minfer.explore(FactorGraph.empty([])).html
    assert data_of(minfer.explore(FactorGraph.empty([1, 2, 3])).html)["engine"]["fixed"][0] == 0


def test_the_data_are_the_model_and_its_evidence() -> None:
    graph = models.network(np.random.default_rng(0), 9, 0.3, exactly=True)
    top = int(np.argmax(Exact()(graph)["v3"]))
    data = data_of(minfer.explore(graph, {"v3": f"s{top}"}, title="drawn").html)
    assert data["directed"]
    assert data["title"] == "drawn"
    assert data["evidence"] == [[3, top]]
    assert data["names"] == [f"v{k}" for k in range(9)]
    assert data["states"] == [list(graph.states(v)) for v in range(9)]
    arcs = {(a, b) for a, b, _ in data["edges"]}
    scopes = {graph.child(f): set(graph.scope(f).tolist()) for f in range(9)}
    assert arcs == {(p, v) for v, scope in scopes.items() for p in scope - {v}}
    engine = data["engine"]
    out = [v for clique, k in zip(engine["cliques"], engine["eliminated"]) for v in clique[:k]]
    assert sorted(out) == [v for v, s in enumerate(engine["fixed"]) if s < 0]
    tables = np.frombuffer(b64decode(engine["tables"]), dtype="<f8")
    for scope, clique, at in zip(engine["scopes"], engine["clique_of"], engine["at"]):
        assert set(scope) <= set(engine["cliques"][clique])
        assert at + np.prod([engine["card"][v] for v in scope]) <= len(tables)
    graph = sprinkler()
    name = graph.name(1)
    shown = data_of(minfer.explore(graph.with_evidence({name: 1}), {0: 0}).html)
    assert shown["evidence"] == [[0, 0], [1, 1]]
    soft = graph.with_soft_evidence({name: [0.2, 0.4]}).with_evidence({name: 1})
    shown = data_of(minfer.explore(soft).html)
    assert shown["evidence"] == []  # what the other state had is no longer known
    assert shown["engine"]["fixed"][1] == 1


def test_the_page_needs_nothing_from_outside() -> None:
    page = minfer.explore(sprinkler()).html
    assert not re.findall(r"https?:(?!//www.w3.org/2000/svg)", page)
    assert "default-src 'none'" in page
    graph = FactorGraph.named({EVIL[0]: 2, '"><b>': 2}, {(EVIL[0], '"><b>'): np.eye(2)})
    page = minfer.explore(graph)
    frame = page._repr_html_()
    (source,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert html.unescape(source) == page.html
    assert "<b>" not in frame
    assert "allow-same-origin" not in frame
    assert len(repr(page)) < 100


def test_refusals_say_what_to_do() -> None:
    rng = np.random.default_rng(0)
    wide = FactorGraph.grid(rng.normal(size=(25, 25)), 0.3)
    with pytest.raises(RefusedError, match=r"2,000 variables.*targets="):
        minfer.explore(FactorGraph.empty([2] * 2000))
    refused(EvidenceError, "nobody", minfer.explore, sprinkler(), {"nobody": 1})
    refused(ModelError, "", minfer.explore, "model.uai")
    refused(SettingsError, "title", minfer.explore, sprinkler(), title=3)
    zero = [[0.0, -np.inf], [-np.inf, 0.0]]
    odd = [[-np.inf, 0.0], [0.0, -np.inf]]
    scopes = [[0, 1], [1, 2], [0, 2]]
    with pytest.raises(ContradictionError):
        minfer.explore(FactorGraph.from_tables([2, 2, 2], scopes, [odd, odd, odd]))
    same = FactorGraph.from_tables([2, 2, 2], scopes, [zero, zero, zero])
    refused(ContradictionError, "", minfer.explore, same, {0: 0, 2: 1})
    refused(RefusedError, r"cells.*targets=.*fix=True.*minfer run", minfer.explore, wide)
    wall = {25 * r + 8: 1 for r in range(25)} | {25 * r + 16: 0 for r in range(25)}
    assert len(data_of(minfer.explore(wide, wall, fix=True).html)["names"]) == 625
    part = minfer.explore(wide, wall, fix=True, targets=[0])
    assert len(data_of(part.html)["names"]) == 9 * 25
    with pytest.raises(RefusedError, match=r"cells, .*; join states, or use"):
        minfer.explore(wide, targets=[0], fix=True)


def test_targets_and_fixed_evidence_make_it_smaller(tmp_path: Path) -> None:
    chain = FactorGraph.network(
        {name: ["no", "yes"] for name in "abcde"},
        {"a": [0.3, 0.7]} | {q: (p, [[0.9, 0.1], [0.2, 0.8]]) for p, q in pairwise("abcde")},
    )

    def names(**options: Any) -> list[str]:
        return data_of(minfer.explore(chain, **options).html)["names"]

    assert names(targets=["b"]) == ["a", "b"]  # the others are barren
    assert names(targets=["b"], evidence={"d": "yes"}) == ["a", "b", "c", "d"]
    assert names(targets=["d"], evidence={"c": "yes"}) == ["a", "b", "c", "d"]
    assert names(targets=["d"], evidence={"c": "yes"}, fix=True) == ["c", "d"]
    assert len(names(evidence={"c": "yes"}, fix=True)) == 5
    fixed = data_of(minfer.explore(chain, {"c": "yes"}, fix=True, targets=["d"]).html)
    assert fixed["evidence"] == []
    assert fixed["directed"]
    assert data_of(minfer.explore(chain, {"c": "yes"}, targets=["d"]).html)["evidence"] == [[2, 1]]
    for wrong in ([], "ab", 3):
        refused(SettingsError, "target", minfer.explore, chain, targets=wrong)
    refused(ModelError, "'z'", minfer.explore, chain, targets=["z"])
    model, page = tmp_path / "chain.minfer", tmp_path / "page.html"
    minfer.write(chain, model)
    call("explore", model, "-o", page, "--targets", "d", "-e", "c=yes", "--fix")
    assert data_of(page.read_text("utf-8"))["names"] == ["c", "d"]


def test_the_command(tmp_path: Path) -> None:
    model = tmp_path / "sprinkler.minfer"
    minfer.write(sprinkler(), model)
    page = tmp_path / "page.html"
    call("explore", model, "-o", page, "--evidence", f"{sprinkler().name(0)}=1")
    data = data_of(page.read_text("utf-8"))
    assert data["title"] == "sprinkler.minfer"
    assert data["evidence"] == [[0, 1]]
    call("explore", model, "-o", page, "--title", "<b>")
    assert data_of(page.read_text("utf-8"))["title"] == "<b>"
    assert "&lt;b&gt;</h1>" in page.read_text("utf-8")
    assert call("explore", model, "-o", "-").stdout.startswith("<!DOCTYPE html>")
    page = tmp_path / "another.html"
    fails(call("explore", model, "-o", tmp_path / "page.txt"), 2, ".html")
    fails(call("explore", model, "-o", tmp_path / "nowhere" / "page.html"), 2, "nowhere")
    fails(call("explore", model, "-o", page, "--evidence", "nobody=1"), 3, "nobody")
    grid = tmp_path / "grid.uai"
    minfer.write(FactorGraph.grid(np.zeros((25, 25)), 0.5), grid)
    fails(call("explore", grid, "-o", page), 4, "cells")
    assert not page.exists()


def test_evidence_that_is_built_in_is_told_and_counts() -> None:
    graph = sprinkler()
    soft = {"wet_grass": [0.7, 0.2]}
    wanted = minfer.query(graph, "rain", soft).log_evidence
    for page in (
        minfer.explore(graph.with_soft_evidence(soft)),
        minfer.explore(graph, soft),
        minfer.explore(graph, soft, targets=["rain"]),
    ):
        data = data_of(page.html)
        assert [g["text"] for g in data["given"]] == ["wet_grass ~ 0: 0.7, 1: 0.2"]
        assert data["given_log"] == pytest.approx(wanted, abs=1e-12)
    both = {**soft, "sprinkler": 1}
    data = data_of(minfer.explore(graph, both, fix=True).html)
    assert {g["text"] for g in data["given"]} == {"wet_grass ~ 0: 0.7, 1: 0.2", "sprinkler = 1"}
    wanted = minfer.query(graph, "rain", both).log_evidence
    assert data["given_log"] == pytest.approx(wanted, abs=1e-12)
    plain = data_of(minfer.explore(graph, {"sprinkler": 1}).html)
    assert (plain["given"], plain["given_log"]) == ([], 0.0)


def test_pages_open_with_what_is_set(tmp_path: Path) -> None:
    graph = sprinkler()
    data = data_of(minfer.explore(graph, {"rain": 1}, do={"sprinkler": 1}).html)
    assert (data["evidence"], data["done"]) == ([[1, 1]], [[2, 1]])
    assert sorted(data["engine"]["own"]) == list(range(7))
    part = data_of(minfer.explore(graph, do={"sprinkler": 1}, targets=["rain"]).html)
    assert part["names"] == ["season", "rain", "sprinkler"]
    assert part["done"] == [[2, 1]]
    fixed = data_of(minfer.explore(graph, do={"sprinkler": 1}, fix=True).html)
    assert (fixed["done"], fixed["given"]) == ([], [{"text": "do(sprinkler=1)"}])
    assert len(fixed["edges"]) == len(data["edges"]) - 1
    grid = FactorGraph.grid(np.zeros((2, 2)), 1.0)
    assert data_of(minfer.explore(grid).html)["engine"]["own"] is None
    refused(ModelError, "no directions", minfer.explore, grid, do={0: 1})
    refused(EvidenceError, "set and has", minfer.explore, graph, {"rain": 1}, do={"rain": 1})
    sure = FactorGraph.network({"a": 2, "b": 2}, {"a": [0.5, 0.5], "b": ("a", np.eye(2))})
    refused(ContradictionError, "b=1", minfer.explore, sure, {"b": 1}, do={"a": 0})
    model, page = tmp_path / "sprinkler.minfer", tmp_path / "page.html"
    minfer.write(graph, model)
    call("explore", model, "-o", page, "-e", "rain=1", "--do", "sprinkler=1")
    data = data_of(page.read_text("utf-8"))
    assert (data["evidence"], data["done"]) == ([[1, 1]], [[2, 1]])
