"""Table 1 and Figure 2 in small, on a toy treebank: what must hold on any machine.

Sizes, errors and accuracies are what they are; times are not tested.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from math import isnan

import numpy as np
import pytest

from minfer import FormatError
from minfer.parsing.conllu import write_conllu
from minfer.parsing.inference import Inference
from minfer.parsing.parser import Parser
from minfer.reduction.objectives import MinDivergence
from minfer_experiments import fig2, table1
from minfer_experiments.fig2 import draw
from minfer_experiments.parsing import (
    FULL,
    TREEBANKS,
    Corpus,
    Family,
    choose,
    load,
    trained,
    treebanks,
)
from test_cli import call
from test_parser import SMALL, treebank

pytest.importorskip("safetensors")

RECIPE = replace(SMALL, tag_epochs=0, epochs=1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("treebanks")
    (folder / "UD_Toy").mkdir()
    for code in ("xx_toy", "it_partut"):
        for part, size, seed in (("train", 60, 0), ("dev", 8, 1), ("test", 12, 2)):
            write_conllu(treebank(size, seed), folder / "UD_Toy" / f"{code}-ud-{part}.conllu")
    for part in ("dev", "test"):  # incomplete: not run
        write_conllu(treebank(3), folder / "UD_Toy" / f"yy_toy-ud-{part}.conllu")
    return str(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def rows(data, models):
    return [
        row
        for bank in treebanks(data)
        for row in table1.Table(bank, load(data, bank), models, RECIPE, passes=1).rows()
    ]


@pytest.fixture(scope="module")
def corpus(data, models):
    bank = treebanks(data)[1]
    split = load(data, bank)
    return Corpus(trained(bank, split, models, recipe=RECIPE), split.test)


def test_treebanks_are_found_and_read_or_it_is_said_where_they_are(data, tmp_path):
    found = treebanks(data)
    assert [b.code for b in found] == ["it_partut", "xx_toy"]
    assert found[0] in TREEBANKS
    assert [len(part) for part in load(data, found[0])] == [60, 8, 12]
    small = load(data, replace(found[0], small=True))
    assert [len(part) for part in small] == [6, 2, 12]
    for folder in (None, str(tmp_path), str(tmp_path / "none")):
        with pytest.raises(FormatError, match=r"universaldependencies\.org"):
            treebanks(folder)
    for experiment in ("table1", "fig2"):
        answer = call("paper", experiment, "-o", str(tmp_path))
        assert answer.exit_code != 0
        assert "universaldependencies" in answer.stderr
    assert "must be fig1, table1 or fig2" in call("paper", "fig7").stderr


def test_models_are_trained_once(data, models, corpus, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(Parser, "train", refuse)
    bank = treebanks(data)[1]
    again = trained(bank, load(data, bank), models, recipe=RECIPE)
    assert np.array_equal(again.model.pairs, corpus.parser.model.pairs)


def test_pairs_are_counted_with_and_without_impossible_ones(corpus):
    for n, possible, conceivable in zip(corpus.words, corpus.possible, corpus.conceivable):
        words, nodes = range(1, n + 1), range(n + 1)
        chains = [x for x in product(nodes, words, words) if x[0] != x[1] != x[2]]
        below = {h: [m for m in words if m != h] for h in nodes}
        siblings = [(h, m, s) for h in nodes for m, s in combinations(below[h], 2)]
        assert conceivable == len(chains) + len(siblings)
        real = [
            (g, h, m) for g, h, m in chains
            if g != m and not min(h, m) < g < max(h, m)
        ]  # fmt: skip
        assert possible == len(real) + sum(h > 0 for h, _, _ in siblings)


def test_an_outcome_is_that_of_the_parser(corpus):
    inference = Inference()
    ours = corpus.run(inference)
    theirs = list(corpus.parser.marginals(corpus.sentences, "gold", inference=inference))
    for k, answer in enumerate(theirs):
        np.testing.assert_allclose(ours.probs[k], answer.probs, atol=1e-12)
        assert (ours.kept[k], ours.iterations[k]) == (answer.kept, answer.iterations)
    full = corpus.run(FULL.inference)
    worst = [np.abs(a - b).max() for a, b in zip(ours.probs, full.probs)]
    assert ours.error(full) == pytest.approx(100 * np.mean(worst))
    right = sum((a.heads == s.heads).sum() for a, s in zip(theirs, corpus.sentences))
    assert ours.attachments.counts[:, 1].sum() == right


def test_the_smallest_accurate_one_is_chosen(corpus):
    family = Family("m", lambda m: Inference.scan(MinDivergence(int(m))), (0, 3, 10, 10_000))
    uas = {m.parameter: corpus.run(m.inference).attachments.uas for m in family.methods()}
    assert choose(family, corpus, -1.0).parameter == 0
    good = [m for m in uas if uas[m] == max(uas.values())]
    assert choose(family, corpus, max(uas.values())).parameter == good[0]
    assert choose(family, corpus, 101.0).parameter in good


def test_rows_claims_page_and_records_of_the_table(rows):
    for code in ("it_partut", "xx_toy"):
        of = {r.method: r for r in rows if r.code == code}
        full = of["full BP"]
        assert (full.kept, full.error, full.difference) == (100, 0, 0)
        assert full.speed_up == full.speed_up_same_tree == 1
        assert all(r.kept_of_all < r.kept for r in of.values() if r.kept)
        assert all(r.low <= r.difference <= r.high for r in of.values())
        for method in ("MinSize", "MinDivergence"):
            ours, paper = of[method], of[f"{method}, sorted"]
            assert (ours.kept, ours.error, ours.uas) == (paper.kept, paper.error, paper.uas)
        lazy, joint = of["MinJoint, lazy"], of["MinJoint"]
        assert (lazy.kept, lazy.error) == (joint.kept, joint.error)
        assert lazy.scored < joint.scored == 100
        assert of["seed alone"].kept == of["first order"].kept == 0
        assert isnan(of["first order"].error)
        assert of["full BP, 1 iteration"].iterations <= 1
        assert ("exact" in of) == (code == "it_partut")
    assert {r.exact_error for r in rows if r.method == "exact"} == {0.0}
    found = table1.claims(rows)
    assert any("true errors" in c.text for c in found)
    assert all(c.holds for c in found if "lazy scoring keeps" in c.text)
    text = table1.page(rows, ["a note"])
    assert "- a note" in text
    assert "nan " not in text
    content = table1.records(rows)
    assert len(content) == len(rows)
    assert content[0]["parameter"] == ""


def test_punctuation_is_left_out_of_the_count_of_crossing_trees():
    heads = np.array([3, 4, 0, 3])
    keep = np.array([True, False, True, True])
    assert table1._without(keep, heads).tolist() == [2, 0, 2]
    assert table1._without(np.array([True, True, True, False]), heads).tolist() == [3, 3, 0]


@pytest.mark.slow
def test_the_figure(data, models, monkeypatch, tmp_path):
    monkeypatch.setattr(fig2, "WORDS", (4, 12))
    monkeypatch.setattr(fig2, "LONG", 9)
    bank = treebanks(data)[1]
    figure = fig2.Figure(bank, load(data, bank), models, RECIPE, passes=1)
    assert figure.long
    assert max(len(s) for s in figure.split.train) == 9
    result = figure.measure()
    lengths = {g.words for g in result.growth}
    assert {10, 9} <= lengths
    assert all(g.variables == g.words**2 for g in result.growth)
    for g in result.of("MinDivergence"):
        assert g.factors <= max(g.factors for g in result.of("full BP"))
    ten = [t for t in result.tradeoff if t.method == "full BP" and t.parameter == 10]
    assert [t.kept for t in ten] == [100]
    assert len(fig2.claims(result)) == 11
    assert "| growth, end to end |" in fig2.page(result)
    assert {row["panel"] for row in fig2.records(result)} == {"a, b", "c"}
    pytest.importorskip("matplotlib")

    draw(result, str(tmp_path / "fig2.png"))
    assert (tmp_path / "fig2.png").stat().st_size > 10_000


def test_growth_is_the_slope_of_a_power():
    points = [fig2.Growth("x", n, n * n, 1.0, 0.1 * n**3, 2.0 * n, 1) for n in range(10, 100, 7)]
    result = fig2.Result("toy", points, [])
    assert result.slope("x") == pytest.approx(1.5)
    assert result.slope("x", "ms_end_to_end") == pytest.approx(0.5)
    assert isnan(result.slope("y"))
