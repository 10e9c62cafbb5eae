"""The parser: its kernels against the general engine, its convergence, learning and files."""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

import crafting
from draws import draws, few, thorough
from minfer import BeliefPropagation, FactorGraph, infer
from minfer.errors import ContradictionError, FormatError, MinferError, ModelError, SettingsError
from minfer.parsing.conllu import Sentence
from minfer.parsing.evaluation import evaluate
from minfer.parsing.features import Encoder, compiled_templates
from minfer.parsing.graphs import ArcScores, list_pairs, pair_weights, to_graph
from minfer.parsing.inference import Inference, Messages, marginals, still_to_move
from minfer.parsing.kernels import parser as kernels
from minfer.parsing.kernels import seeds
from minfer.parsing.learn import Recipe
from minfer.parsing.model import read_tensors
from minfer.parsing.parser import TEMPERS, Parser
from minfer.reduction.gains import factor_gains
from minfer.reduction.objectives import MinDivergence, MinJoint, MinSize
from refused import all_refused
from test_trees import FACTORS
from test_trees import messages as by_enumeration

TIGHT = Inference.full(max_iters=1000, tol=1e-12)

KINDS = [
    (projective, single_root, gp, sib)
    for projective in (True, False)
    for single_root in (True, False)
    for gp, sib in ((True, True), (True, False), (False, True))
]


def draw(seed, n, strength=0.7, no_arcs=0.0):
    rng = np.random.default_rng(seed)
    arcs = rng.normal(size=(n + 1, n + 1)) * 1.5
    arcs[1:][rng.random((n, n + 1)) < no_arcs] = -np.inf
    gp, sib = strength * rng.normal(size=(2, n + 1, n + 1, n + 1))
    return arcs, gp, sib


def draw_kind(seed, n, kind, **options):
    arcs, gp, sib = draw(seed, n, **options)
    projective, single_root, use_gp, use_sib = kind
    settings = {"projective": projective, "single_root": single_root}
    return arcs, gp if use_gp else None, sib if use_sib else None, settings


def arc_matrix(answer, n):
    probs = np.zeros((n + 1, n + 1))
    for v in range(answer.graph.n_variables):
        h, m = map(int, answer.graph.name(v).split("->"))
        probs[h, m] = answer[v][1]
    return probs


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("no_arcs", [0.0, 0.3])
def test_fixed_point_is_that_of_the_general_engine(kind, no_arcs):
    for n in (1, 2, 4, 6):
        arcs, gp, sib, settings = draw_kind(n, n, kind, no_arcs=no_arcs)
        graph = to_graph(arcs, gp=gp, sib=sib, **settings)
        theirs = BeliefPropagation(tol=1e-13)(graph)
        ours = marginals(arcs, sib=sib, gp=gp, inference=TIGHT, **settings)
        assert theirs.status.ok
        assert ours.converged
        np.testing.assert_allclose(ours.probs, arc_matrix(theirs, n), atol=1e-9)
        assert ours.log_z == pytest.approx(theirs.log_z, abs=1e-8)
        np.testing.assert_allclose(ours.probs[:, 1:].sum(axis=0), 1.0, atol=1e-12)


OBJECTIVES = [
    *(MinJoint(cost) for cost in (1e-1, 1e-2, 1e-4)),
    *(MinSize(bound) for bound in (0.0, 1e-3, 0.3, 5.0)),
    *(MinDivergence(m) for m in (0, 1, 20, 10_000)),
]


def kept_pairs(scores, kind, inference):
    """Numbers (g, h, m) or (h, m, s) of the pairs that the kernel keeps, and how many are gp."""
    mu = np.empty_like(scores.arcs)
    *_, nodes, n_gp, _ = kernels.infer_arrays(inference.packed(*kind), *scores, mu)
    return nodes.tolist(), n_gp


def unary_gains(scores, pairs, single_root):
    """Gains where each word's scores are normalised over its heads, and no tree is there.

    A single root has one child in expectation, by a number that is added to all scores of its arcs.
    """
    p = np.exp(scores.arcs)
    np.fill_diagonal(p, 0.0)
    if single_root:
        odds = p[0, 1:] / p[1:, 1:].sum(axis=0)
        p[0] *= np.exp(brentq(lambda c: expit(np.log(odds) + c).sum() - 1, -99, 99, xtol=1e-13))
    p = p[pairs.heads, pairs.modifiers] / p.sum(axis=0)[pairs.modifiers]
    graph = FactorGraph.empty(np.full(len(p), 2))
    graph = graph.add_features(np.arange(len(p))[:, None], np.log(p) - np.log1p(-p), [False, True])
    model = graph.add_features(pairs.arcs, pair_weights(scores, pairs), "and")
    seed = np.arange(model.n_factors) < len(p)
    return factor_gains(model, BeliefPropagation()(model.keep(seed)), seed)[len(p) :]


@pytest.mark.drawn
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed_graph", ["tree", "unary"])
def test_reduced_it_is_the_general_engine(kind, seed_graph):
    """The kept set exactly, with our selection and by sorting, and the marginals."""
    projective, single_root, use_gp, use_sib = kind
    tight = {"max_iters": 1000, "tol": 1e-12, "seed": seed_graph}
    compared, n_seeds, n = 0, *((2, 7) if thorough() else (1, 5))
    for seed in range(n_seeds):
        arcs, gp, sib, settings = draw_kind(seed, n, kind, strength=1.5)
        scores = ArcScores.checked(arcs, gp, sib)
        pairs = list_pairs(scores.arcs, use_gp, use_sib, projective, single_root)
        theta = pair_weights(scores, pairs)
        graph = to_graph(arcs, gp=gp, sib=sib, **settings)
        n_seed = graph.n_variables + 1  # unary factors and the tree come first
        seed_mask = np.arange(graph.n_factors) < n_seed
        for objective in few(OBJECTIVES, 3):  # of each kind one every day
            if seed_graph == "tree":
                theirs = infer(graph, objective, BeliefPropagation(tol=1e-13), seed=seed_mask)
                keep, answer = theirs.keep[n_seed:], theirs.marginals
            else:
                keep = objective(unary_gains(scores, pairs, single_root))
                answer = BeliefPropagation(tol=1e-13)(graph.keep(np.r_[seed_mask[:n_seed], keep]))
            ways = [Inference.scan(objective, **tight)]
            ways.append(replace(ways[0], paper_order=True))
            if isinstance(objective, MinJoint):
                bounds = float(theta.min()), float(theta.max())
                ways.append(Inference.min_joint(objective.factor_cost, *bounds, **tight))
            expected = pairs.nodes[keep].tolist(), int(keep[: pairs.n_gp].sum())
            for way in ways:
                assert kept_pairs(scores, kind, way) == expected
            ours = marginals(arcs, sib=sib, gp=gp, inference=ways[-1], **settings)
            assert ours.kept == keep.sum()
            assert ours.scored <= len(keep)
            if ours.converged and answer.status.ok:
                compared += 1
                np.testing.assert_allclose(ours.probs, arc_matrix(answer, n), atol=1e-8)
            if seed_graph == "tree":
                direct = marginals(arcs, sib=sib, gp=gp, objective=objective, **settings)
                assert direct.kept == ours.kept
    assert compared > len(OBJECTIVES) * (n_seeds - 1)


@pytest.mark.parametrize("projective", [True, False])
def test_arc_pruning_is_a_small_change(projective):
    arcs, gp, sib = draw(5, 30, strength=0.3)
    pruned = Inference(least=1e-6, arc_least=1e-5, objective=None, max_iters=50, tol=1e-6)
    whole, cut = (
        marginals(3 * arcs, sib=sib, gp=gp, projective=projective, inference=inference)
        for inference in (Inference.full(50, 1e-6), pruned)
    )
    assert cut.kept < whole.kept / 2
    assert np.abs(whole.probs - cut.probs).max() < 0.02


@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("seed", ["tree", "unary"])
@pytest.mark.parametrize("shift", ["words", -600.0, -5.0, 5.0, 600.0])
def test_shifting_all_scores_of_words_or_of_a_single_root_changes_nothing(shift, seed, projective):
    arcs, gp, sib = draw(6, 20, strength=0.3)
    more = np.zeros_like(arcs)
    if shift == "words":
        more += np.linspace(-300, 300, 21)
    else:
        more[0] = shift
    for inference in (Inference.full(), Inference.scan(MinJoint(1e-3), seed=seed)):
        a, b = (
            marginals(x, sib=sib, gp=gp, projective=projective, inference=inference)
            for x in (arcs, arcs + more)
        )
        np.testing.assert_allclose(a.probs, b.probs, atol=1e-9)
        assert b.log_z - a.log_z == pytest.approx(more[0, 1:].sum() if shift == "words" else shift)
        assert a.heads.tolist() == b.heads.tolist()
        assert (a.kept, a.scored) == (b.kept, b.scored)


def test_the_unary_seed_where_heads_are_few():
    """Words that only the root can head, or that it cannot; no word at all that it can."""
    mu = np.empty((4, 4))
    arcs = np.zeros((4, 4))
    arcs[0, 1] = -np.inf
    assert seeds.unary_seed(True, arcs, mu) == 0.0
    np.testing.assert_allclose(mu[0], [0, 0, 0.5, 0.5], atol=1e-12)
    arcs[0, 2] = -np.inf
    seeds.unary_seed(True, arcs, mu)
    np.testing.assert_allclose(mu[0], [0, 0, 0, 1], atol=1e-12)
    arcs[0] = -np.inf
    seeds.unary_seed(True, arcs, mu)
    assert not mu[0].any()
    arcs = np.zeros((4, 4))
    arcs[1:, 1] = -np.inf
    seeds.unary_seed(True, arcs, mu)
    np.testing.assert_allclose(mu[0], [0, 1, 0, 0], atol=1e-12)
    arcs[0, 1] = -np.inf
    assert seeds.unary_seed(True, arcs, mu) == -np.inf
    one = np.empty((2, 2))
    assert seeds.unary_seed(True, np.array([[0.0, 3.0], [0.0, 0.0]]), one) == 0.0
    assert one.tolist() == [[0.0, 1.0], [0.0, 0.0]]
    arcs = np.array([[0.0, 800.0, 0.0, -800.0], *np.zeros((3, 4))])
    seeds.unary_seed(True, arcs, mu)
    np.testing.assert_allclose(mu[0], [0, 1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(mu[:, 1:].sum(axis=0), 1.0)


@pytest.mark.parametrize("projective", [True, False])
def test_where_linear_numbers_underflow_logarithms_do(projective):
    """The best head of every word but the first is the one before; no tree has them backwards."""
    n = 40
    arcs, gp, sib = draw(8, n, strength=0.2)
    arcs[np.arange(2, n + 1), np.arange(1, n)] = 40.0  # a chain to the last word ...
    arcs[0] = -40.0
    arcs[0, n] = -200.0  # ... which is a costly root
    graph = to_graph(arcs, gp=gp, sib=sib, projective=projective)
    theirs = BeliefPropagation(tol=1e-10)(graph)
    ours = marginals(
        arcs, sib=sib, gp=gp, projective=projective, inference=Inference.full(300, 1e-10)
    )
    np.testing.assert_allclose(ours.probs, arc_matrix(theirs, n), atol=1e-6)
    assert ours.log_z == pytest.approx(theirs.log_z, rel=1e-6)


SMALL = Recipe(
    first_epochs=1, epochs=2, bits=12, tag_bits=10, tag_epochs=3, label_epochs=2, folds=2
)


def treebank(n_sentences, seed=0):
    """Sentences of a toy grammar: determiners before nouns, verbs between, adverbs after."""
    rng = np.random.default_rng(seed)
    words = {
        "DET": ["the", "a"], "ADJ": ["red", "old", "big"], "NOUN": ["dog", "cat", "house", "tree"],
        "VERB": ["sees", "likes", "eats"], "ADV": ["now", "here"],
    }  # fmt: skip
    out = []
    for _ in range(n_sentences):
        tags, heads, deprels = [], [], []

        def phrase(relation, tags=tags, heads=heads, deprels=deprels):
            first = len(tags)
            tags += ["DET"] + ["ADJ"] * rng.integers(0, 3) + ["NOUN"]
            noun = len(tags)
            heads += [noun] * (noun - first - 1) + [-1]
            deprels += ["det", *["amod"] * (noun - first - 2), relation]

        phrase("nsubj")
        tags.append("VERB")
        verb = len(tags)
        heads.append(0)
        deprels.append("root")
        if rng.random() < 0.7:
            phrase("obj")
        for _ in range(rng.integers(0, 2)):
            tags.append("ADV")
            heads.append(verb)
            deprels.append("advmod")
        forms = [str(rng.choice(words[tag])) for tag in tags]
        sentence = Sentence.from_forms(forms, tags)
        out.append(sentence.with_parse([verb if h < 0 else h for h in heads], deprels))
    return out


@pytest.fixture(scope="module")
def trained():
    return Parser.train(treebank(150), treebank(20, 1), recipe=SMALL, rng=3)


def test_it_learns_a_toy_grammar_and_the_same_by_the_same_rng(trained):
    gold = treebank(40, 2)
    blank = [list(s.forms) for s in gold]
    scores = evaluate(gold, trained.parse(blank))
    assert scores.uas > 95
    assert scores.las > 95
    parsed = list(trained.parse(blank))
    assert [s.upos for s in parsed] == [s.upos for s in gold]
    assert trained.model.info["sentences"] == 150
    assert len(trained.model.info["dev_uas"]) == 3
    again = Parser.train(treebank(150), recipe=SMALL, rng=3)
    other = Parser.train(treebank(150), recipe=SMALL, rng=4)
    for name in ("arcs", "pairs", "tagger", "labels"):
        assert np.array_equal(getattr(again.model, name), getattr(trained.model, name))
    assert not np.array_equal(other.model.arcs, trained.model.arcs)


def test_batches_and_streams_change_nothing(trained, monkeypatch):
    sentences = treebank(30, 5)
    whole = [s.heads.tolist() for s in trained.parse(sentences)]
    monkeypatch.setattr("minfer.parsing.parser.BATCH", 1)
    stream = trained.parse(iter(sentences))
    assert next(stream).heads.tolist() == whole[0]
    assert [s.heads.tolist() for s in stream] == whole[1:]
    assert [s.heads.tolist() for s in trained.parse([["Hm"]])] == [[0]]


@pytest.mark.parametrize("kind", KINDS[:6:2] + KINDS[6:])
def test_parsing_in_full_is_the_general_engine_on_the_graph(kind):
    projective, single_root, gp, sib = kind
    recipe = replace(SMALL, tag_epochs=1, epochs=1)
    parser = Parser.train(
        treebank(30), projective=projective, single_root=single_root, gp=gp, sib=sib,
        tags="gold", recipe=recipe,
    )  # fmt: skip
    tight = Inference.full(max_iters=500, tol=1e-12)
    sentences = treebank(6, 7)
    for sentence, answer in zip(sentences, parser.marginals(sentences, inference=tight)):
        graph = parser.to_graph(sentence)
        theirs = BeliefPropagation(tol=1e-13)(graph)
        if not (answer.converged and theirs.status.ok):
            continue
        np.testing.assert_allclose(answer.probs, arc_matrix(theirs, len(sentence)), atol=1e-8)
        assert answer.log_z == pytest.approx(theirs.log_z, abs=1e-7)
        scores = parser.scores(sentence)
        ours = marginals(
            scores.arcs, sib=scores.sib if sib else None, gp=scores.gp if gp else None,
            projective=projective, single_root=single_root, inference=tight,
        )  # fmt: skip
        np.testing.assert_allclose(ours.probs, answer.probs, atol=1e-12)
        assert graph.n_factors == graph.n_variables + 1 + answer.scored


@pytest.mark.parametrize("objective", [None, MinJoint(1e-2), MinSize(0.1), MinDivergence(5)])
@pytest.mark.parametrize("seed", ["tree", "unary"])
def test_parsing_is_inference_for_its_scores(trained, objective, seed):
    inference = Inference(least=1e-4, arc_least=1e-4, objective=objective, seed=seed)
    sentences = treebank(5, 9)
    for sentence, answer in zip(sentences, trained.marginals(sentences, inference=inference)):
        scores = trained.scores(sentence)
        ours = marginals(scores.arcs, sib=scores.sib, gp=scores.gp, inference=inference)
        np.testing.assert_allclose(ours.probs, answer.probs, atol=1e-12)
        assert ours.heads.tolist() == answer.heads.tolist()
        assert (ours.scored, ours.kept) == (answer.scored, answer.kept)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("kind", KINDS[::3])
def test_a_step_is_along_the_gradient_of_the_likelihood(trained, kind, pairs):
    """Against finite differences of the (Bethe) likelihood, at weights that matter."""
    sentence = treebank(1, 9)[0]
    encoder = Encoder(trained.model.upos)
    data = encoder.encode([sentence])
    kind = *kind[:2], kind[2] and pairs, kind[3] and pairs
    packed = Inference.full(max_iters=500, tol=1e-10).packed(*kind, 8.0)
    start = {name: getattr(trained.model, name) / 20 for name in ("arcs", "pairs")}

    def run(tables, rate):
        """Minus the log-likelihood; with a rate of 1 a step is minus the gradient."""
        totals = np.zeros(6)
        squares = np.full_like(tables["arcs"], 1e12)
        learnt = kernels.LearntTables(
            tables["arcs"], tables["pairs"], squares.copy(), squares.copy()
        )
        kernels.learn(
            packed, compiled_templates(), encoder.tables(), data.tokens, learnt, sentence.heads,
            np.zeros(1, np.int64), np.zeros(1, np.uint64),
            (np.uint64(1 << 24), rate * 1e6, rate * 1e6), totals,
        )  # fmt: skip
        return totals[0]

    after = {name: table.copy() for name, table in start.items()}
    run(after, 1.0)
    for name in ("arcs", "pairs") if pairs else ("arcs",):
        gradient = start[name] - after[name]
        for place in np.argsort(-np.abs(gradient))[:5]:
            loss = []
            for change in (0.01, -0.01):
                tables = {key: table.copy() for key, table in start.items()}
                tables[name][place] += change
                loss.append(run(tables, 0.0))
            assert (loss[0] - loss[1]) / 0.02 == pytest.approx(gradient[place], rel=0.01, abs=5e-3)


def test_loaded_it_parses_the_same_and_wrong_files_are_refused(trained, tmp_path, monkeypatch):
    pytest.importorskip("safetensors")
    path = tmp_path / "toy.model"
    all_refused((lambda: Parser.load(path), FormatError, "cannot read"))
    trained.save(path)
    loaded = Parser.load(path)
    assert repr(loaded) == repr(trained)
    a, b = (p.parse_batch(treebank(20, 11), all_marginals=True) for p in (trained, loaded))
    assert np.array_equal(a.marginals, b.marginals)
    assert np.array_equal(a.labels, b.labels)
    whole = path.read_bytes()
    for data, words in (
        (b"not a model", "not a parser"),
        (whole[:-100], r"toy.model: .*damaged.*copy it again, or train again"),
    ):
        path.write_bytes(data)
        all_refused((lambda: Parser.load(path), FormatError, words))
    path.write_bytes(whole)
    monkeypatch.setattr("minfer.parsing.model.FORMAT", 99)
    all_refused((lambda: Parser.load(path), FormatError, "train it again, or install"))
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    advice = r"pip install 'minfer\[parsing\]'"
    all_refused((lambda: trained.save(tmp_path / "other.model"), MinferError, advice))


def test_no_flipped_bit_goes_unnoticed(trained, tmp_path):
    pytest.importorskip("safetensors")
    path = tmp_path / "toy.model"
    trained.save(path)
    data = path.read_bytes()
    rng = np.random.default_rng(5)
    header = int.from_bytes(data[:8], "little")
    places = [*range(8), *rng.integers(8, header, 40), *rng.integers(header, len(data), 40)]
    for place in map(int, places):
        bad = bytearray(data)
        bad[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        with pytest.raises(FormatError, match=r"toy.model: (the file is damaged|not a parser)"):
            Parser.load(path)
    for size in (0, 4, 20, header // 2, header + 8, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(FormatError, match=r"toy.model: (the file is damaged|not a parser)"):
            Parser.load(path)


def _packed_as(name, size, /, **parts):
    """Arrays of a table of ones, with some of its parts exchanged."""
    arrays = crafting._packed(np.ones(size, np.float32))._asdict() | parts
    return {f"{name}.{part}": np.asarray(array) for part, array in arrays.items()}


EVEN = np.full(8, 1000, np.float16)

#: Arrays or header entries of a sealed file, and what the error says about them.
CRAFTED = {
    "columns": (_packed_as("labels", (16, 3)), {}, "labels has shape (16, 3), not (lines, 6)"),
    "classes": (_packed_as("tagger", (16, 3)), {}, "tagger has shape (16, 3), not (lines, 6)"),
    "no power of two": (_packed_as("arcs", 16 * 3), {}, "power of two from 2"),
    "a single line": (_packed_as("pairs", 16), {}, "power of two from 2"),
    "flat": (_packed_as("labels", 16 * 6), {}, "labels has shape (96,)"),
    "declared": (
        _packed_as("arcs", 128, shape=np.array([2**34])), {}, "declares 17,179,869,184 weights",
    ),
    "overflowing": (_packed_as("labels", (16, 6), shape=np.array([2**32, 2**32])), {}, "declares"),
    "negative": (_packed_as("arcs", 128, shape=np.array([-128])), {}, "positive numbers"),
    "dimensions": (_packed_as("arcs", 128, shape=np.array([2, 4, 16])), {}, "one or two"),
    "type of shape": (_packed_as("arcs", 128, shape=np.array([128.0])), {}, "row of int64"),
    "type of scale": (_packed_as("arcs", 128, scale=EVEN.astype("f4")), {}, "row of float16"),
    "few values": (_packed_as("arcs", 128, values=np.ones(5, np.int8)), {}, "5 values"),
    "few scales": (_packed_as("arcs", 128, scale=EVEN[:3]), {}, "3 scales"),
    "infinite": (_packed_as("arcs", 128, scale=EVEN * np.inf), {}, "not finite"),
    "nan": (_packed_as("arcs", 128, scale=EVEN * np.nan), {}, "not finite"),
    "tab": ({}, {"upos": ["NO\tUN"]}, "cannot stand in a column"),
    "surrogate": ({}, {"relations": ["a"] * 5 + ["\ud800"]}, "cannot stand in a column"),
    "number": ({}, {"upos": [7]}, "cannot stand in a column"),
    "no relation": (_packed_as("labels", (16, 1)), {"relations": []}, "at least one"),
    "text for list": ({}, {"relations": "abcdef"}, "relations is not a list"),
    "triples": ({}, {"classes": [["a", "b", "c"]]}, "incomplete"),
    "no settings": ({}, {"settings": None}, "incomplete"),
    "temper": ({}, {"settings": {"temper": "hot"}}, "temper must be a finite number"),
    "theta": ({}, {"settings": {"theta_high": 1e9}}, "increase within +-100"),
    "projective": ({}, {"settings": {"projective": 2}}, "True or False"),
    "info": ({}, {"info": ["a"]}, "info must be a dict"),
    "version": ({}, {"info": ["a"], "format": 1}, "of another version"),
}  # fmt: skip


@pytest.mark.parametrize("name", CRAFTED)
def test_files_with_a_right_checksum_and_wrong_content(tmp_path, name):
    pytest.importorskip("safetensors")
    other_arrays, other_header, message = CRAFTED[name]
    arrays, header = crafting.parser_parts()
    data = crafting._tensors(crafting._HEADER, (arrays | other_arrays, header | other_header))
    (tmp_path / "p.model").write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as caught:
            Parser.load(tmp_path / "p.model")
        assert tracemalloc.get_traced_memory()[1] < 20e6  # nothing is made of what is only declared
    finally:
        tracemalloc.stop()
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'p.model'}: ")


def test_models_and_sentences_made_by_hand_are_checked_too(trained):
    model = trained.model
    data = trained.parse_batch(treebank(5)).data
    sentence = treebank(1)[0]
    short = (*sentence.columns[:3], sentence.upos[:1], *sentence.columns[4:])
    for wrong in (
        {"labels": np.ones((1 << 18, 3), np.float32)},
        {"labels": model.labels.astype(float)},
        {"labels": np.asfortranarray(model.labels)},
        {"arcs": model.arcs[: 16 * 100]},
        {"arcs": np.full_like(model.arcs, np.nan)},
        {"pairs": np.full_like(model.pairs, 1e30)},
        {"tagger": model.tagger.tolist()},
        {"relations": ()},
        {"upos": ["NOUN"]},
        {"settings": {}},
    ):  # fmt: skip
        all_refused((lambda w=wrong: replace(model, **w), ModelError, next(iter(wrong))))
    for wrong in ({"temper": 0.0}, {"theta_low": 9.0}, {"tags": "silver"}, {"gp": None}):
        name = next(iter(wrong))
        all_refused((lambda w=wrong: replace(model.settings, **w), SettingsError, name))
    for wrong in (
        {"start": data.start[1:]}, {"start": np.repeat(data.start, 2)}, {"words": data.words[:-1]},
        {"upos": data.upos - 9}, {"xpos": data.xpos.astype(np.int64)},
    ):  # fmt: skip
        all_refused((lambda w=wrong: trained.parse_batch(replace(data, **w)), ModelError, ""))
    cut, arcs = [sentence.replaced(short, None)], np.zeros((3, 3))
    all_refused(
        (lambda: list(trained.parse([1])), ModelError, "words of a sentence must be strings"),
        (lambda: replace(model, relations=model.relations[:-1]), ModelError, "labels has shape"),
        (lambda: replace(model, classes=(*model.classes, ("X", "Y"))), ModelError, "tagger has sh"),
        (lambda: Parser("en.model"), ModelError, "Parser takes a Model"),
        (lambda: Parser(model).parse_batch(data), ModelError, "another encoder"),
        (lambda: trained.parse_batch(cut), ModelError, "upos"),
        (lambda: Parser.train([sentence.replaced(short, sentence.heads)], recipe=SMALL), ModelError,
         "upos"),
        *((lambda h=heads: Parser.train([sentence.replaced(sentence.columns, h)], recipe=SMALL),
           ModelError, "heads that are not theirs")
          for heads in (sentence.heads + 10**6, sentence.heads - 10**6, sentence.heads[1:])),
        (lambda: Parser.train(treebank(1), rng=-1), SettingsError, "a whole number of at least 0"),
        (lambda: Parser.train([["a", "b"]]), ModelError, "sentence 1 to learn from is of type"),
        (lambda: Parser.train([Sentence.from_forms(["a"])]), ModelError, "no heads to learn from"),
        (lambda: trained.calibrated([]), ModelError, "no sentence to calibrate on"),
        (lambda: marginals(arcs, gp=np.zeros((2, 2, 2))), ModelError, "must have shape"),
        (lambda: marginals(arcs - np.inf), ContradictionError, ""),
    )  # fmt: skip


def test_crafted_checkpoints_are_refused(tmp_path):
    pytest.importorskip("safetensors")
    path = tmp_path / "p.checkpoint"
    crafting.checkpoint_bytes(tmp_path)
    honest = read_tensors(tmp_path / "honest.checkpoint", crafting._CHECKPOINT, "", "")
    squares, tags = honest[0]["arcs squares"], honest[0]["tags"]
    for arrays, header, message in (
        ({"arcs": np.ones(1, np.float32)}, {}, "arcs should have shape"),
        ({"arcs": honest[0]["arcs"].astype(float)}, {}, "float32"),
        ({"arcs": honest[0]["arcs"] * np.nan}, {}, "must be finite"),
        ({"arcs squares": squares * 0}, {}, "at least 0.01"),
        ({"tags": tags + 1000}, {}, "tags should be from 0"),
        ({"tags": tags[:-1]}, {}, "tags should be int32"),
        (_packed_as("labels", (16, 2)), {}, "labels has shape"),
        (_packed_as("tagger", (16, 2), shape=np.array([2**40, 2**40])), {}, "declares"),
        ({}, {"done": 7}, "7 epochs are done of 2"),
        ({}, {"done": "x"}, "epochs are done"),
        ({}, {"theta": None}, "finite numbers"),
        ({}, {"dev_uas": [1.0, 2.0, 3.0]}, "too long"),
    ):
        data = crafting._tensors(crafting._CHECKPOINT, (honest[0] | arrays, honest[1] | header))
        path.write_bytes(data)
        with pytest.raises(FormatError, match="remove it to start over") as caught:
            crafting.train(path)
        assert message in str(caught.value)
    path.write_bytes(crafting._tensors(crafting._CHECKPOINT, honest))
    crafting.train(path)


def test_the_relation_root_is_that_of_the_root(trained):
    """And of no other word, however little a parser has learnt."""
    labels = trained.model.labels.copy()
    labels[:] = np.random.default_rng(3).normal(size=labels.shape)
    model = replace(trained.model, labels=labels)
    sentences = treebank(30, seed=6)
    assert "root" in model.relations
    for parse in Parser(model).parse(sentences):
        assert [h == 0 for h in parse.heads] == [r == "root" for r in parse.deprels]
    other = replace(model, relations=tuple("ROOT" if r == "root" else r for r in model.relations))
    found = [r for parse in Parser(other).parse(sentences) for r in parse.deprels]
    assert len(set(found)) > 1


def test_calibration_changes_probabilities_alone(trained):
    parser, gold = trained, treebank(30, seed=5)
    fitted = parser.calibrated(gold)
    t = fitted.model.settings.temper
    assert t in TEMPERS
    hot = Parser(replace(parser.model, settings=replace(parser.model.settings, temper=0.5)))
    before, after = (p.parse_batch(gold, all_marginals=True) for p in (parser, hot))
    np.testing.assert_array_equal(before.heads, after.heads)
    np.testing.assert_array_equal(before.marginals, after.marginals)

    at = word = 0
    for sentence, calibrated, own in zip(
        gold, hot.marginals(gold), hot.marginals(gold, calibrated=False)
    ):
        size = len(sentence) + 1
        mu = before.marginals[at : at + size * size].reshape(size, size)[:, 1:]
        share = np.sqrt(mu) / np.sqrt(mu).sum(axis=0)
        here = slice(word, word + size - 1)
        want = share[before.heads[here], np.arange(size - 1)]
        np.testing.assert_allclose(after.probs[here], want, rtol=1e-12)
        np.testing.assert_allclose(calibrated.probs[:, 1:], share, rtol=1e-12)
        np.testing.assert_array_equal(own.probs[:, 1:], mu)
        at, word = at + size * size, word + size - 1


# What a converged run did last, repeated: one undamped iteration from the messages before, made
# in numpy, in logarithms, with the tree factor by enumeration of all trees.
FEW = 6  # words up to which all trees are enumerated
ROUNDING = 1e-10


def to_arcs(state, unary):
    """Log-odds (A,) of the arcs: ``unary``, and the messages of all pairs."""
    total = np.array(unary, dtype=float)
    np.add.at(total, state.pairs, state.from_pairs)
    return total


def naive_iteration(state, arcs, projective, single_root):
    """Every message anew, undamped: all pairs', from the beliefs before, and then the tree's."""
    cavity = to_arcs(state, state.from_tree)[state.pairs] - state.from_pairs
    weighted = cavity + state.theta[:, None]
    sent = np.where(
        cavity > 0,  # the same twice, without differences of large numbers
        state.theta[:, None] + np.logaddexp(0, -weighted) - np.logaddexp(0, -cavity),
        np.logaddexp(0, weighted) - np.logaddexp(0, cavity),
    )
    state = state._replace(from_pairs=sent[:, ::-1])
    scores = arcs[state.heads, state.modifiers]
    incoming = np.zeros((len(scores), 2))
    incoming[:, 1] = to_arcs(state, scores)
    n = len(arcs) - 1
    if n <= FEW:
        out, _ = by_enumeration(
            state.heads, state.modifiers, incoming.ravel(), n, projective, single_root
        )
    else:  # held equal to enumeration in test_trees.py
        out = np.empty(incoming.size)
        tree = FACTORS[projective](state.heads, state.modifiers, n, single_root)
        tree.messages(incoming.reshape(1, -1), out[None])
    off, on = out.reshape(-1, 2).T
    return state._replace(from_tree=np.clip(on - off, -1e100, 1e100) + scores)


def movements(before, after):
    """The largest movement of a pair's message, of one of the tree's, and of a belief."""
    return (
        np.abs(expit(after.from_pairs) - expit(before.from_pairs)).max(),
        np.abs(expit(after.from_tree) - expit(before.from_tree)).max(),
        np.abs(
            expit(to_arcs(after, after.from_tree)) - expit(to_arcs(before, before.from_tree))
        ).max(),
    )


def draw_case(rng):
    """Scores and settings of a sentence of 2 to 8 words: weak to overwhelming, some of them tied,
    arcs that are missing or masked."""
    n = int(rng.choice([2, 3, 4, 5, 6, 8], p=[0.2, 0.25, 0.25, 0.2, 0.05, 0.05]))
    sizes = 10.0 ** rng.uniform(-3, [1.0, 1.0] if rng.random() < 0.7 else [3.0, 2.3])
    arcs, (gp, sib) = rng.normal(size=(n + 1, n + 1)), rng.normal(size=(2, n + 1, n + 1, n + 1))
    if rng.random() < 0.3:
        arcs, gp, sib = np.round(arcs), np.round(gp), np.round(sib)
    arcs, gp, sib = arcs * sizes[0], gp * sizes[1], sib * sizes[1]
    if rng.random() < 0.3:
        gone = rng.random((n, n + 1)) < 0.3
        arcs[1:][gone] = rng.choice([-np.inf, -3e4])
    settings = {"projective": bool(rng.integers(2)), "single_root": bool(rng.integers(2))}
    kinds = [(gp, sib), (gp, None), (None, sib)][rng.integers(3)]
    inference = Inference.full(
        max_iters=400, tol=10.0 ** -rng.integers(2, 10), damping=rng.choice([0, 0, 0.3, 0.6, 0.9])
    )
    return arcs, kinds, settings, inference


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(8))
def test_the_last_iteration_of_a_converged_run_moves_nothing_repeated_naively(seed):
    rng = np.random.default_rng(seed)
    converged = 0
    for case in range(draws(60)):
        arcs, (gp, sib), settings, inference = draw_case(rng)
        if case % 7 == 3:
            inference = replace(inference, objective=MinJoint(1e-2))
        answer = marginals(
            arcs, gp=gp, sib=sib, inference=inference, keep_messages=True, **settings
        )
        assert np.isfinite(answer.probs).all()
        if not answer.converged:
            assert answer.residual > inference.tol
            assert answer.iterations == inference.max_iters
            continue
        if not answer.kept:
            assert (answer.residual, answer.messages, answer.iterations) == (0.0, None, 0)
            continue
        converged += 1
        before = answer.messages
        assert len(before.theta) == answer.kept
        after = naive_iteration(before, arcs, **settings)
        moved = movements(before, after)
        assert max(moved) <= inference.tol + ROUNDING, (seed, case)
        assert answer.residual == pytest.approx(max(moved), rel=1e-3, abs=ROUNDING), (seed, case)
        probs = expit(to_arcs(after, after.from_tree))
        found = answer.probs[before.heads, before.modifiers]
        np.testing.assert_allclose(found, probs, atol=1e-9 + 0.1 * inference.tol)
    assert converged > 2 * draws(60) // 3


def two_words():
    """Two trees: 0 -> 1 -> 2 of weight e^12, by its grandparent alone, and 0 -> 2 -> 1 of e^8."""
    arcs = np.array([[0.0, -4.0, 6.0], [0.0, 0.0, -4.0], [0.0, 2.0, 0.0]])
    gp = np.zeros((3, 3, 3))
    gp[0, 1, 2] = 20.0
    return arcs, gp


@pytest.mark.parametrize("damping", [0.0, 0.5])
@pytest.mark.parametrize("projective", [True, False])
def test_a_tree_that_a_pair_makes_likely(projective, damping):
    """After one iteration no probability has moved by more than .001; the message has."""
    arcs, gp = two_words()
    ours = marginals(
        arcs, gp=gp, projective=projective, inference=Inference.full(100, damping=damping)
    )
    assert ours.converged
    assert ours.probs[0, 1] > 0.98


def test_damped_messages_are_not_taken_for_settled():
    """Far from its end a heavily damped run moves less than tol in each iteration."""
    arcs, gp = np.zeros((4, 4)), np.zeros((4, 4, 4))
    gp[1, 2, 3] = gp[0, 1, 2] = 2.0
    plain, damped = (
        marginals(arcs, gp=gp, inference=Inference.full(1000, 1e-2, d)) for d in (0.0, 0.97)
    )
    assert plain.converged
    assert damped.converged
    assert damped.residual <= 1e-2
    assert damped.still_to_move is None  # there is only one undamped iteration
    np.testing.assert_allclose(damped.probs, plain.probs, atol=0.02)


def test_a_limit_between_the_damped_run_and_its_confirmation_is_not_converged():
    arcs, gp = two_words()
    whole = marginals(arcs, gp=gp, inference=Inference.full(1000, 1e-3, 0.5))
    assert whole.converged
    for k in range(1, whole.iterations):
        cut = marginals(arcs, gp=gp, inference=Inference.full(k, 1e-3, 0.5))
        assert not cut.converged
        assert cut.residual > 1e-3
    again = marginals(arcs, gp=gp, inference=Inference.full(whole.iterations, 1e-3, 0.5))
    assert np.array_equal(again.probs, whole.probs)


def test_the_messages_told_are_those_before_the_last_iteration():
    rng = np.random.default_rng(1)
    arcs, gp = rng.normal(size=(6, 6)), rng.normal(size=(6, 6, 6))
    for k in (1, 2, 5):
        inference = Inference.full(max_iters=k, tol=0.0)
        answer = marginals(arcs, gp=gp, inference=inference, keep_messages=True)
        assert isinstance(answer.messages, Messages)
        after = naive_iteration(answer.messages, arcs, True, True)
        found = answer.probs[after.heads, after.modifiers]
        np.testing.assert_allclose(found, expit(to_arcs(after, after.from_tree)), atol=1e-12)
        _, *others = movements(answer.messages, after)  # it did not look at the pairs
        assert answer.residual == pytest.approx(max(others))
    assert marginals(arcs, gp=gp).messages is None


def test_what_still_to_move_is_told_of_a_run_that_ends_slowly():
    rng = np.random.default_rng(2)
    arcs, gp = rng.normal(size=(7, 7)), rng.normal(size=(7, 7, 7))
    tight = marginals(arcs, gp=gp, inference=Inference.full(1000, 1e-13))
    loose = marginals(arcs, gp=gp, inference=Inference.full(1000, 1e-4))
    assert 0 < loose.still_to_move < 1e-2
    assert np.abs(loose.probs - tight.probs).max() < 3 * loose.still_to_move
    assert still_to_move(0.1, 1.0) is None
    assert still_to_move(0.1, np.inf) is None
    assert still_to_move(0.0, np.inf) == 0.0
    assert marginals(arcs).still_to_move == 0.0


@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("single_root", [True, False])
def test_where_every_tree_needs_an_arc_far_below_its_rivals(projective, single_root):
    """Words 1 and 2 would hang on each other by far; each tree breaks that up."""
    arcs, gp = np.zeros((4, 4)), np.zeros((4, 4, 4))
    arcs[1, 2] = arcs[2, 1] = 2000.0
    arcs[0, 1], arcs[0, 2], arcs[0, 3] = -1.0, 1.0, -700.0
    arcs[3, 1] = arcs[3, 2] = -900.0
    gp[0, 2, 1] = -1.5
    graph = to_graph(arcs, gp=gp, projective=projective, single_root=single_root)
    theirs = BeliefPropagation(tol=1e-10)(graph)
    ours = marginals(
        arcs, gp=gp, projective=projective, single_root=single_root,
        inference=Inference.full(300, 1e-10),
    )  # fmt: skip
    assert ours.converged
    assert 0.3 < ours.probs[0, 2] < 0.7
    assert ours.probs[0, 2] == pytest.approx(theirs["0->2"][1], abs=1e-8)
    assert ours.log_z == pytest.approx(theirs.log_z, abs=1e-8)


def test_overwhelming_pairs_answer_in_logarithms():
    """A pair of e^1000 is not a number; it decides all the same."""
    arcs, gp = np.zeros((4, 4)), np.zeros((4, 4, 4))
    gp[0, 3, 1], gp[3, 1, 2] = 1000.0, 1000.0
    ours = marginals(arcs, gp=gp, inference=Inference.full(100, 1e-6))
    assert ours.converged
    assert ours.heads.tolist() == [3, 1, 0]
    assert ours.log_z == pytest.approx(2000.0)


def sentence(rng, n, projective, single_root, strength):
    arcs = 2 * rng.normal(size=(n + 1, n + 1))
    mu = np.empty_like(arcs)
    seeds.seed(False, projective, single_root, arcs, mu)
    settings = kernels.PackedInference(projective, single_root, True, True)
    candidates, (pair_arcs, *_) = kernels.candidates(settings, arcs, mu)
    return arcs, mu, candidates, pair_arcs, strength * rng.normal(size=len(pair_arcs))


@pytest.mark.slow  # compiles what the parser has inside one kernel
@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_logarithms_do_the_same_iterations(projective, single_root, damping):
    rng = np.random.default_rng(3)
    for strength in (0.1, 1.0, 3.0):
        for n in (2, 5, 9):
            case = sentence(rng, n, projective, single_root, strength)
            arcs, mu, candidates, pair_arcs, theta = case
            log_mu = mu.copy()
            settings = Inference.full(6, 1e-9, damping).packed(projective, single_root, True, True)
            plain, theirs = (
                kernels.second_order(
                    settings, True, arcs, result, candidates, pair_arcs, theta, in_logs
                )
                for in_logs, result in ((False, mu), (True, log_mu))
            )
            iters, residual, ratio, log_z, (logs, _, messages) = plain
            in_logs, _, log_messages = theirs[4]
            assert (logs, in_logs) == (False, True)
            assert theirs[0] == iters
            assert theirs[1] == pytest.approx(residual, rel=1e-3, abs=1e-12)
            assert theirs[2] == pytest.approx(ratio, rel=0.01)
            assert theirs[3] == pytest.approx(log_z, abs=1e-9)
            np.testing.assert_allclose(log_mu, mu, atol=1e-10)
            np.testing.assert_allclose(np.log(messages[:, :2]), log_messages[:, :2], atol=1e-8)
            np.testing.assert_allclose(messages[:, 2], log_messages[:, 2], atol=1e-9)
